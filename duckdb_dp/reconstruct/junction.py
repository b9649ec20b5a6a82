"""Distributions that factor over a junction tree: marginals of any clique, and records, without the full domain."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array, Integers

Codes = NDArray[np.int32]
"""Cell numbers of records, shape (rows, attributes)."""

_ONE: Array = np.ones(())

CELLS = 2**27
"""Cells that one marginal and the tables on the way to it may have: 1 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JunctionTree:
    """P = product of the cliques' marginals over the product of their separators'.

    Attributes:
        domain: the domain; every attribute is in a clique.
        total: sum of every marginal.
        cliques: the maximal cliques, each after its parent.
        parents: for each clique the position of its neighbour on the way to the root; None for a root, one per tree.
        tables: marginal of each clique, of the clique's shape, consistent on the separators, none negative.
    """

    domain: Domain
    total: float
    cliques: tuple[Clique, ...]
    parents: tuple[int | None, ...]
    tables: tuple[Array, ...]

    def marginal(self, clique: Clique) -> Array:
        """The marginal of any clique, shape ``domain.shape(clique)``; its attributes need not be in one clique.

        Formula: from the leaves to the root, m_i(S_i, K) = sum over the others of P_i / P_S * prod of the children's m, S_i
        the separator of clique i and K what of the asked clique lies below. Subtrees without any of it sum to 1.

        Raises:
            DPError: a table on the way would have more than 2^27 cells.

        Privacy: post-processing.
        """
        inside = [(self.domain.cells(names), i) for i, names in enumerate(self.cliques) if set(clique) <= set(names)]
        if inside:
            smallest = min(inside)[1]
            return _sum(self.tables[smallest], self.cliques[smallest], clique)
        roots: list[tuple[Array, Clique]] = []
        messages: dict[int, list[tuple[Array, Clique]]] = {}
        for i in reversed(range(len(self.cliques))):
            parent, mine = self.parents[i], self.cliques[i]
            below = messages.pop(i, [])
            held = set(mine).union(*(names for _, names in below))
            between = set() if parent is None else set(mine) & set(self.cliques[parent])
            if not (held & set(clique)) - between:
                continue
            names = self.domain.clique(between | (held & set(clique)))
            table = self._given(i, self.domain.clique(between)) if parent is not None else self.tables[i]
            message = self._contract([(table, mine), *below], names, clique)
            if parent is None:
                roots.append((message / self.total, names))
            else:
                messages.setdefault(parent, []).append((message, names))
        return self._contract(roots, clique, clique) * self.total

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """Records, shape (rows, attributes), in random order.

        Clique by clique: among records that agree on the separator, the new attributes' values are in proportion to their
        conditional distribution, to rounding, and in random order.

        Privacy: post-processing.
        """
        column = {name: i for i, name in enumerate(self.domain.attributes)}
        codes = np.zeros((rows, len(column)), dtype=np.int32)
        drawn: set[str] = set()
        for clique, table in zip(self.cliques, self.tables, strict=True):
            new = tuple(name for name in clique if name not in drawn)
            old = tuple(name for name in clique if name in drawn)
            if not new:
                continue
            given = np.zeros(rows, dtype=np.int64)
            for name in old:
                given = given * self.domain.sizes[name] + codes[:, column[name]]
            order = [clique.index(name) for name in (*old, *new)]
            cells = draw_given(table.transpose(order).reshape(self.domain.cells(old), -1), given, rng)
            for name, values in zip(new, np.unravel_index(cells, self.domain.shape(new)), strict=True):
                codes[:, column[name]] = values
            drawn.update(new)
        return codes

    def _given(self, i: int, between: Clique) -> Array:
        """P(clique | separator), 0 where the separator's probability is 0."""
        clique, table = self.cliques[i], self.tables[i]
        axes = tuple(i for i, name in enumerate(clique) if name not in between)
        margin = table.sum(axis=axes, keepdims=True)
        return np.asarray(np.divide(table, margin, out=np.zeros_like(table), where=margin > 0))

    def _contract(self, tables: list[tuple[Array, Clique]], kept: Clique, asked: Clique) -> Array:
        """The sum of a product of tables over all attributes but those kept, one table after another."""
        table, names = tables[0] if tables else (_ONE, ())
        for i in range(max(1, len(tables))):
            rest = set(kept).union(*(others for _, others in tables[i + 1 :]))
            factor, others = tables[i] if i else (_ONE, ())
            left = tuple(name for name in self.domain.attributes if name in rest and name in {*names, *others})
            if self.domain.cells(left) > CELLS:
                raise DPError(
                    f"the marginal of {as_sql(asked)} needs a table of {self.domain.cells(left):,} cells; up to {CELLS:,} "
                    f"work. Ask for fewer attributes at once."
                )
            label = {name: i for i, name in enumerate({*names, *others})}
            axes = [[label[name] for name in part] for part in (names, others, left)]
            operands: Any = (table, axes[0], factor, axes[1], axes[2])
            table, names = np.asarray(np.einsum(*operands), dtype=np.float64), left
        return table


def junction_tree(domain: Domain, cliques: Iterable[Clique]) -> tuple[tuple[Clique, ...], tuple[int | None, ...]]:
    """A junction tree of the graph that joins the attributes of each clique: (cliques, parents), each after its parent.

    Attributes are eliminated greedily: one whose neighbours are all joined, else the one whose table with its neighbours is
    smallest. All attributes of the domain are in it.
    """
    near: dict[str, set[str]] = {name: set() for name in domain.attributes}
    for clique in cliques:
        for name in clique:
            near[name] |= set(clique) - {name}

    def weight(name: str) -> tuple[bool, int]:
        others = near[name]
        open_ = any(not others <= near[other] | {other} for other in others)
        return open_, domain.cells((name, *others))

    weights = {name: weight(name) for name in near}
    steps: list[tuple[str, set[str]]] = []
    while weights:
        name = min(weights, key=weights.__getitem__)
        del weights[name]
        others = near.pop(name)
        steps.append((name, others))
        for other in others:
            near[other] = (near[other] | others) - {name, other}
        for other in others.union(*(near[other] for other in others)):
            weights[other] = weight(other)
    return _joined(domain, steps)


def _joined(domain: Domain, steps: list[tuple[str, set[str]]]) -> tuple[tuple[Clique, ...], tuple[int | None, ...]]:
    """The tree of an elimination: each attribute with its neighbours hangs on the first of them that left next."""
    cliques: list[set[str]] = []
    parents: list[int | None] = []
    position: dict[str, int] = {}
    left = {name: i for i, (name, _) in enumerate(steps)}
    for name, others in reversed(steps):
        parent = position[min(others, key=left.__getitem__)] if others else None
        if parent is not None and cliques[parent] == others:
            cliques[parent] = {name, *others}
            position[name] = parent
        else:
            position[name] = len(cliques)
            cliques.append({name, *others})
            parents.append(parent)
    return tuple(domain.clique(clique) for clique in cliques), tuple(parents)


def calibrate(
    domain: Domain,
    total: float,
    cliques: tuple[Clique, ...],
    parents: tuple[int | None, ...],
    potentials: Mapping[Clique, Array],
) -> JunctionTree:
    """The marginals of P ~ exp(sum of potentials) on the cliques of a junction tree.

    Formula: log messages from the leaves to the root, then back (Shafer and Shenoy).

    Args:
        domain: the domain.
        total: sum of every marginal.
        cliques: the tree's, each after its parent.
        parents: for each clique the position of its parent.
        potentials: for each of some cliques, each inside a clique of the tree, its table.

    Privacy: post-processing.
    """
    beliefs = [np.zeros(domain.shape(clique)) for clique in cliques]
    for inside, table in potentials.items():
        i = next(i for i, clique in enumerate(cliques) if set(inside) <= set(clique))
        beliefs[i] += _spread(table.reshape(domain.shape(inside)), inside, cliques[i])
    up: dict[int, tuple[Array, Clique]] = {}
    for i in reversed(range(len(cliques))):
        parent = parents[i]
        if parent is not None:
            between = tuple(name for name in cliques[i] if name in cliques[parent])
            up[i] = (_logsum(beliefs[i], cliques[i], between), between)
            beliefs[parent] += _spread(*up[i], cliques[parent])
    tables: list[Array] = []
    for i, parent in enumerate(parents):
        if parent is not None:
            message, between = up[i]
            down = _logsum(beliefs[parent], cliques[parent], between) - message
            beliefs[i] += _spread(down, between, cliques[i])
        table = np.exp(beliefs[i] - beliefs[i].max())
        tables.append(table * (total / table.sum()))
    return JunctionTree(domain=domain, total=total, cliques=cliques, parents=parents, tables=tuple(tables))


def draw_given(table: Array, given: Integers, rng: np.random.Generator) -> Integers:
    """For each record a column of the table, in proportion to the row that it is given.

    Records of one row get each column as often as it says, to rounding (systematic sampling), in random order. A row of
    zeros counts as the sum of all rows.

    Args:
        table: (groups, values), none negative.
        given: row of each record, (rows,).
        rng: random numbers.

    Returns:
        The columns, (rows,).

    Privacy: post-processing.
    """
    groups, values = table.shape
    sums = table.sum(axis=1)
    if (sums <= 0).any():
        table = np.where((sums > 0)[:, None], table, table.sum(axis=0) + (0.0 if sums.any() else 1.0))
    ends = np.cumsum(table, axis=1)
    ends /= ends[:, -1:]
    ends[:, -1] = 1.0
    order = np.lexsort((rng.random(len(given)), given))
    counts = np.bincount(given, minlength=groups)
    rank = np.arange(len(given)) - np.repeat(np.cumsum(counts) - counts, counts)
    row = given[order]
    offsets = np.asarray(rng.random(size=groups))
    point = (rank + offsets[row]) / counts[row]
    columns = np.searchsorted((ends + np.arange(groups)[:, None]).reshape(-1), row + point, side="right") - row * values
    result = np.empty(len(given), dtype=np.int64)
    result[order] = np.clip(columns, 0, values - 1)
    return result


def _spread(table: Array, names: Clique, whole: Clique) -> Array:
    """The table with an axis of one for each attribute of ``whole`` that it lacks."""
    sizes = dict(zip(names, table.shape, strict=True))
    order = [names.index(name) for name in whole if name in sizes]
    return table.transpose(order).reshape([sizes.get(name, 1) for name in whole])


def _logsum(table: Array, names: Clique, kept: Clique) -> Array:
    """log sum exp over the attributes that are not kept."""
    axes = tuple(i for i, name in enumerate(names) if name not in kept)
    top = table.max(axis=axes, keepdims=True)
    return np.asarray(np.log(np.exp(table - top).sum(axis=axes)) + top.squeeze(axes))


def _sum(table: Array, names: Clique, kept: Clique) -> Array:
    return np.asarray(table.sum(axis=tuple(i for i, name in enumerate(names) if name not in kept)))
