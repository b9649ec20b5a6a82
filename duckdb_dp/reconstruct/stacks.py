"""Tables of about one shape as one array: for many small tables numpy takes longer for the calls than for the numbers.

Where tables are not of one shape, each has cells beyond its own up to the largest one's, which hold 0.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.residual import ladder

CELLS = 2**17
"""Cells of the tables that are worked on together: they stay in a core's cache."""

ROOM = 1.75
"""How many times as many cells as its own a table may have."""

KEPT = 5_000
"""Tables up to which it is kept how they are stacked: a few megabytes."""

Axes = tuple[int, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Stack:
    """The shapes of k tables with the same number of axes.

    Attributes:
        cliques: of the tables.
        sizes: of their axes, shape (k, axes).

    Privacy: post-processing.
    """

    cliques: Sequence[Clique]
    sizes: NDArray[np.int64]
    _parts: dict[Axes, list[Clique]] = field(default_factory=dict)
    _spans: dict[Axes, list[Any]] = field(default_factory=dict)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of each table with the cells beyond it."""
        return tuple(self.sizes.max(axis=0).tolist())

    @property
    def axes(self) -> Axes:
        """All axes of a table."""
        return tuple(range(self.sizes.shape[1]))

    @cached_property
    def even(self) -> bool:
        """Whether all have one shape."""
        return bool((self.sizes == self.sizes[0]).all())

    def stacked(self, tables: Mapping[Clique, Array], axes: Axes | None = None) -> Array:
        """The tables of the cliques, or of some of their attributes, shape (k, ...); 0 where there is none."""
        chosen = self.axes if axes is None else axes
        shape = [self.shape[axis] for axis in chosen]
        if self.even:  # one call instead of one for each table
            own = [tables[clique].reshape(-1) for clique in self.parts(chosen) if clique in tables]
            if len(own) == len(self.cliques):
                return np.concatenate(own).reshape(len(own), *shape)
        found = np.zeros((len(self.cliques), *shape))
        for clique, sizes, place in zip(
            self.parts(chosen), self.sizes[:, list(chosen)].tolist(), self._places(chosen), strict=True
        ):
            table = tables.get(clique)
            if table is not None:
                found[place] = table.reshape(sizes)
        return found

    def parts(self, axes: Axes) -> Sequence[Clique]:
        """The attributes at some axes of each clique."""
        if axes not in self._parts:
            self._parts[axes] = [tuple(clique[axis] for axis in axes) for clique in self.cliques]
        return self._parts[axes]

    def _places(self, axes: Axes) -> Sequence[Any]:
        """Where each table is in arrays of some axes."""
        if axes not in self._spans:
            sizes = self.sizes[:, list(axes)].tolist()
            self._spans[axes] = [(i, *map(slice, own)) for i, own in enumerate(sizes)]
        return self._spans[axes]

    def apart(self, found: Array, axes: Axes | None = None) -> list[Array]:
        """Each of the stacked tables, without the cells beyond it."""
        chosen = self.axes if axes is None else axes
        if self.even:
            return list(found)
        return [found[place] for place in self._places(chosen)]

    def emptied(self, found: Array, axes: Axes | None = None) -> Array:
        """The array itself, with 0 in the cells beyond the tables."""
        for place, axis in enumerate(() if self.even else self.axes if axes is None else axes):
            inside = np.arange(self.shape[axis]) < self.sizes[:, axis, None]
            found *= np.expand_dims(inside, [1 + other for other in range(found.ndim - 1) if other != place])
        return found

    @cached_property
    def inside(self) -> NDArray[np.bool_]:
        """Which cells are those of tables, shape (k, ...)."""
        return self.emptied(np.ones((len(self.cliques), *self.shape))) > 0

    def counts(self, axis: int, dimensions: int) -> Array:
        """The sizes of one axis, to divide arrays of so many dimensions by, the first of which are the tables."""
        return self.sizes[:, axis].astype(np.float64).reshape(-1, *[1] * (dimensions - 1))

    def centred(self, tables: Array, axes: Axes | None = None) -> Array:
        """The residuals of stacked tables, of all or some of their attributes: the mean along every axis is subtracted."""
        found = tables.copy()
        for place, axis in enumerate(self.axes if axes is None else axes):
            found -= np.expand_dims(summed(found, place + 1), place + 1) / self.counts(axis, found.ndim)
        return self.emptied(found, axes)

    def spread(self, residuals: Mapping[Axes, Array]) -> Array:
        """The tables as sums of residuals, each by its axes and shape (k, ...); see ``residual.marginal``, which does one table."""
        parts: dict[Axes, Array] = {}
        for axes, larger, place in ladder(len(self.shape)):
            both = [part for part in (parts.pop(axes, None), residuals.get(axes)) if part is not None]
            if not both:
                continue
            part = np.expand_dims(sum(both[1:], start=both[0]), place + 1)
            part = part / self.counts(larger[place], part.ndim)
            if larger in parts:
                parts[larger] += part
            else:
                parts[larger] = np.repeat(part, self.shape[larger[place]], axis=place + 1)
        whole = [part for part in (parts.get(self.axes), residuals.get(self.axes)) if part is not None]
        found = sum(whole[1:], start=whole[0]) if whole else np.zeros((len(self.cliques), *self.shape))
        return self.emptied(found)


def stacks(shapes: Mapping[Clique, tuple[int, ...]]) -> Sequence[Stack]:
    """Cliques in stacks of at most ``CELLS``, or of one clique."""
    key = tuple(shapes.items())
    return _again(key) if len(key) <= KEPT else _stacks(key)


@lru_cache(maxsize=4)
def _again(shapes: tuple[tuple[Clique, tuple[int, ...]], ...]) -> Sequence[Stack]:
    """The same pairs are stacked again and again while they are estimated."""
    return _stacks(shapes)


def _stacks(shapes: tuple[tuple[Clique, tuple[int, ...]], ...]) -> Sequence[Stack]:
    orders: dict[int, list[tuple[Clique, tuple[int, ...]]]] = defaultdict(list)
    for clique, shape in shapes:
        orders[len(shape)].append((clique, shape))
    found = []
    for order, alike in orders.items():
        kinds = _kinds((size for _, shape in alike for size in shape), ROOM ** (1 / max(order, 1)))
        groups: dict[tuple[int, ...], list[tuple[Clique, tuple[int, ...]]]] = defaultdict(list)
        for clique, shape in alike:
            groups[tuple(kinds[size] for size in shape)].append((clique, shape))
        for group in groups.values():
            cliques = [clique for clique, _ in group]
            sizes = np.array([shape for _, shape in group], np.int64).reshape(len(group), order)
            step = max(1, CELLS // max(math.prod(sizes.max(axis=0).tolist()), 1))
            for start in range(0, len(group), step):
                few = slice(start, start + step)
                found.append(Stack(cliques=cliques[few], sizes=sizes[few]))
    return found


def _kinds(sizes: Iterable[int], ratio: float) -> dict[int, int]:
    """size -> the least size that it stands beside."""
    found: dict[int, int] = {}
    least = 0
    for size in sorted(set(sizes)):
        if size > ratio * least:
            least = size
        found[size] = least
    return found


def summed(tables: Array, axis: int) -> Array:
    """The sums along one axis, as a product of matrices: sums of short rows are slow otherwise."""
    shape, n = tables.shape, tables.shape[axis]
    after = math.prod(shape[axis + 1 :])
    view = tables.reshape(math.prod(shape[:axis]), n, after)
    sums = np.matmul(np.ones((1, n)), view) if after > 1 else np.matmul(view[:, :, 0], np.ones(n))
    return np.asarray(sums.reshape(*shape[:axis], *shape[axis + 1 :]))


def shapes(tables: Mapping[Clique, Array], cliques: Iterable[Clique] | None = None) -> dict[Clique, tuple[int, ...]]:
    """The shapes of all tables, or of some."""
    return {clique: tables[clique].shape for clique in (tables if cliques is None else cliques)}
