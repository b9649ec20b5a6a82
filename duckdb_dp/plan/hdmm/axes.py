"""Axes: single attributes, or several attributes taken together, and the queries of a workload on each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.disjunctions import Complement
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.queries import Intervals, Predicates, Queries
from duckdb_dp.domain.workload import Part
from duckdb_dp.linop import Array


@final
@dataclass(frozen=True, slots=True)
class AxisQueries:
    """The queries of one part on one axis: products on some of its attributes, totals on the others, or joint ones.

    Attributes:
        sizes: sizes of the axis's attributes.
        places: the attributes of the axis that are asked; none means the total.
        families: one per place, or the joint one.
        joint: whether there is one family on the joint cells of the places.
    """

    sizes: tuple[int, ...]
    places: tuple[int, ...]
    families: tuple[Queries, ...]
    joint: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of queries of each family; () for the total."""
        return tuple(family.count for family in self.families)

    @property
    def simple(self) -> bool:
        """Whether this is one family on the whole axis."""
        return len(self.families) == 1 and len(self.places) == len(self.sizes)

    @property
    def level(self) -> float | None:
        """c where the Gram matrix is c 1 1^T, so that only the total is asked; else None."""
        return 1.0 if not self.places else _level(self)

    def gram(self) -> Array:
        """W^T diag(w) W on the cells of the axis."""
        return _gram(self)

    def crossed(self) -> Array:
        """(1 c^T + c 1^T) / 2 with c = W^T w, of predicates: how many hold each cell."""
        held = np.diag(self.gram())
        found: Array = (held[:, None] + held) / 2
        return found

    def answers(self, cells: Array) -> Array:
        """W x along the first axis of (n, ...): its shape becomes ``shape`` and the rest."""
        rest = cells.shape[1:]
        table = cells.reshape(*self.sizes, *rest)
        gone = tuple(axis for axis in range(len(self.sizes)) if axis not in self.places)
        table = table.sum(axis=gone) if gone else table
        if self.joint:
            return self.families[0].answers(table.reshape(-1, *rest), 0)
        for axis, family in enumerate(self.families):
            table = family.answers(table, axis)
        return table

    def squares(self, covariance: Array) -> Array:
        """q V q^T of every query, shape ``shape``; V (n, n) symmetric."""
        if not self.places:
            return np.asarray(covariance.sum())
        first_family = self.families[0]
        if self.simple and isinstance(first_family, Complement):
            inner = replace(self, families=(first_family.inner,))
            found = covariance.sum() - 2 * inner.answers(covariance.sum(axis=1)) + inner.squares(covariance)
            return np.asarray(np.maximum(found, 0.0), dtype=np.float64)
        bounds = first_family.bounds() if self.simple else None
        if bounds is not None and (bounds[0] <= bounds[1]).all():
            first, last = bounds
            sums = np.zeros((len(covariance) + 1, len(covariance) + 1))
            sums[1:, 1:] = covariance
            for axis in (0, 1):
                np.cumsum(sums, axis=axis, out=sums)
            return np.maximum(sums[last + 1, last + 1] - 2 * sums[first, last + 1] + sums[first, first], 0.0)
        half = self.answers(covariance)
        count = math.prod(self.shape)
        half = half.reshape(count, -1)
        found = np.empty(count)
        for start in range(0, count, 4096):  # a few rows of W at a time
            block = half[start : start + 4096]
            rows = self.rows(start, start + len(block))
            found[start : start + len(block)] = np.einsum("ij,ij->i", rows, block)
        return np.maximum(found, 0.0).reshape(self.shape)

    def rows(self, first: int, last: int) -> Array:
        """Some rows of W."""
        return _rows(self)[first:last]

    def weights(self) -> Array:
        """Weight of every query, shape ``shape``."""
        found = np.ones(())
        for family in self.families:
            found = np.multiply.outer(found, family.weights())
        return found


@final
@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One attribute, or several whose joint cells are asked for.

    Attributes:
        names: the attributes, in the domain's order.
        sizes: their sizes.
        label: where no query tells some cells apart, the class of each cell (n,); the classes are then the cells. A
            strategy on them answers as well as any on the cells: a + b <= c on 256 x 256 cells has 511 classes.
        first: the first cell of each class.
    """

    names: Clique
    sizes: tuple[int, ...]
    label: NDArray[np.intp] | None = None
    first: NDArray[np.intp] | None = None

    @property
    def cells(self) -> int:
        """Number of cells, or of classes."""
        return math.prod(self.sizes) if self.first is None else len(self.first)

    def queries_of(self, part: Part) -> AxisQueries:
        """The part's queries on the axis. A joint part lies within one axis; of disjunctions give ``part.negated``."""
        found = _queries_of(part, self.names, self.sizes)
        if self.first is None:
            return found
        if not found.places:
            return AxisQueries((self.cells,), (), (), joint=False)
        return AxisQueries((self.cells,), (0,), (_reduced(found, self.first.tobytes()),), joint=True)


def axis_of(names: Clique, parts: Sequence[Part], domain: Domain) -> Axis:
    """The axis of some attributes. Cells that no part tells apart become one class."""
    sizes = domain.shape(names)
    asked = [_queries_of(part.negated or part, names, sizes) for part in parts]
    if len(names) == 1 or not all(found.joint or not found.places for found in asked):
        return Axis(names, sizes)
    columns = np.ascontiguousarray(np.concatenate([_rows(found) for found in set(asked) if found.places]).T)
    numbers: dict[bytes, int] = {}
    label = np.array([numbers.setdefault(column.tobytes(), len(numbers)) for column in columns], dtype=np.intp)
    if len(numbers) == len(label):
        return Axis(names, sizes)
    return Axis(names, sizes, label, np.unique(label, return_index=True)[1])


def typical(asked: Sequence[AxisQueries], extra: float = 0.0) -> Array:
    """The Gram matrix of a typical query on an axis: sum_k G_k / tr G_k over the different kinds of queries k.

    The total 1 1^T / n is added with weight 1e-3 + extra, since measuring this axis together with others may need it; with
    ``extra`` 1 it counts as much as a kind of queries. Plain cells alone (a diagonal matrix) get no total without ``extra``.

    Args:
        asked: what each part asks of the axis.
        extra: weight of the total.

    Returns:
        Array of shape (n, n).
    """
    grams = [found.gram() for found in dict.fromkeys(asked) if found.level is None]
    if not grams:
        return np.ones((math.prod(asked[0].sizes),) * 2)
    whole = np.asarray(np.sum([gram / np.trace(gram) for gram in grams], axis=0), dtype=np.float64)
    if np.count_nonzero(whole - np.diag(np.diag(whole))) == 0 and extra == 0:
        return whole
    found: Array = whole + (extra + 1e-3) / len(whole)
    return found


def groups(parts: Sequence[Part], clique: Clique) -> list[Clique]:
    """One set per attribute; attributes from the first to the last of a joint part are one set together."""
    place = {name: index for index, name in enumerate(clique)}
    together = [False] * len(clique)  # attribute i with attribute i + 1
    for part in parts:
        if part.joint and part.negated is None:
            for index in range(place[part.clique[0]], place[part.clique[-1]]):
                together[index] = True
    found: list[list[str]] = []
    for index, name in enumerate(clique):
        if index and together[index - 1]:
            found[-1].append(name)
        else:
            found.append([name])
    return [tuple(names) for names in found]


def effective(part: Part, domain: Domain) -> Clique:
    """The attributes that a part really distinguishes: those asked for more than their total."""
    if part.joint:
        return part.clique
    return tuple(
        name
        for name, family in zip(part.clique, part.queries, strict=True)
        if domain.sizes[name] > 1 and level(family) is None
    )


def is_null(part: Part) -> bool:
    """Whether all queries of a part are 0 on every cell."""
    if part.negated is not None:
        return all(bool((family.means() == 1).all()) for family in part.negated.queries)
    return any(not (isinstance(family, Intervals) or family.dense().any()) for family in part.queries)


def level(family: Queries) -> float | None:
    """c where a one-attribute family's Gram matrix is c 1 1^T; else None."""
    return AxisQueries((family.n,), (0,), (family,), joint=False).level


def _queries_of(part: Part, names: Clique, sizes: tuple[int, ...]) -> AxisQueries:
    places = tuple(place for place, name in enumerate(names) if name in part.clique)
    if part.joint:
        families = part.queries if places else ()
    else:
        families = tuple(part.queries[part.clique.index(names[place])] for place in places)
    return AxisQueries(sizes, places, families, part.joint and bool(places))


@lru_cache(maxsize=64)
def _reduced(asked: AxisQueries, first: bytes) -> Predicates:
    return Predicates.of(_rows(asked)[:, np.frombuffer(first, dtype=np.intp)], asked.families[0].weights())


@lru_cache(maxsize=512)
def _level(asked: AxisQueries) -> float | None:
    """c with W^T diag(w) W = c 1 1^T, from the queries where there are too many cells for a matrix."""
    family = asked.families[0]
    if asked.simple and isinstance(family, Intervals) and asked.sizes[0] > 1:
        if family.kind in ("identity", "prefix", "suffix", "range"):  # 50 million ranges of 10,000 cells
            return None
        means = family.means()
        return float(len(means)) if (means == 1.0).all() else None
    gram = asked.gram()
    level = float(gram[0, 0])
    return level if np.abs(gram - level).max() <= 1e-12 * abs(level) else None


@lru_cache(maxsize=64)
def _gram(asked: AxisQueries) -> Array:
    if asked.simple:
        return asked.families[0].gram()
    if asked.joint:
        rows = _rows(asked)
        return np.asarray(rows.T @ (asked.weights()[:, None] * rows), dtype=np.float64)
    found: Array = np.ones((1, 1))
    for place, n in enumerate(asked.sizes):
        inside = asked.families[asked.places.index(place)].gram() if place in asked.places else np.ones((n, n))
        found = np.asarray(np.kron(found, inside), dtype=np.float64)
    return found


@lru_cache(maxsize=16)
def _rows(asked: AxisQueries) -> Array:
    """W, shape (queries, cells of the axis)."""
    if asked.joint:
        inside = asked.families[0].dense().reshape(-1, *[asked.sizes[place] for place in asked.places])
        spread = [asked.sizes[place] if place in asked.places else 1 for place in range(len(asked.sizes))]
        table = np.broadcast_to(inside.reshape(-1, *spread), (len(inside), *asked.sizes))
        return np.asarray(table.reshape(len(inside), -1), dtype=np.float64)
    found: Array = np.ones((1, 1))
    for place, n in enumerate(asked.sizes):
        rows = asked.families[asked.places.index(place)].dense() if place in asked.places else np.ones((1, n))
        found = np.asarray(np.kron(found, rows), dtype=np.float64)
    return found
