"""Pairs of attributes, each seen from both sides: what one record more costs in each cell, for several attributes at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.reconstruct.junction import Codes

Costs = NDArray[np.float32]

ALIKE = 2
"""How many times as many values as another one an attribute may have in the same view, which has columns for the most of them."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """g attributes with t pairs each and about as many values: a table of costs for each, one below the other.

    A table has a row for each value of the other attributes, and a column for each of the attribute's own values, or more.

    Attributes:
        attributes: their numbers, shape (g,).
        span: the cells of the tables, among those of all views.
        n: columns.
        others: the other attribute of each pair, shape (g, t), as all below.
        rows: the row of its first value.
        back, widths: the cell of the first values of both in the other attribute's table, among those of all views; its columns.
        cells: the cell of the first values of both, among those of all pairs.
        own, other: cells there from one value of this attribute to the next, and of the other.
    """

    attributes: Integers
    span: slice
    n: int
    others: Integers
    rows: NDArray[np.int32]
    back: Integers
    widths: Integers
    cells: Integers
    own: Integers
    other: Integers


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """All pairs, and the views of all attributes that have any.

    Attributes:
        views: of attributes.
        gaps: counts - targets of the pairs.
        weights: 1 / (target + 1).
        costs: of one record more in a cell, weight (gap + 1/2), of the views; infinite where there is no such value. In single
            precision, as weights are: exact enough to compare.
        held: the sum of the weights of an attribute's cells that a record is in, shape (rows, attributes).
        change: zeros, one for each cell of the pairs, for what a step adds up.
    """

    views: list[View]
    gaps: Array
    weights: Costs
    costs: Costs
    change: Costs
    held: Costs

    @property
    def distance(self) -> float:
        """The mean of (count - target)^2 / (target + 1) over all cells."""
        return float(np.dot(self.gaps**2, self.weights)) / max(len(self.gaps), 1)

    @classmethod
    def of(cls, codes: Codes, domain: Domain, targets: Mapping[Clique, Array]) -> "Pairs":
        """The pairs of some records, shape (rows, attributes), and of their targets, of any positive totals."""
        sizes, column = list(domain.sizes.values()), {name: i for i, name in enumerate(domain.attributes)}
        tables = {(column[one], column[other]): table for (one, other), table in targets.items()}
        others: dict[int, list[int]] = {}
        for a, b in tables:
            others.setdefault(a, []).append(b)
            others.setdefault(b, []).append(a)
        groups = _alike(sizes, others)
        widths = {a: max(sizes[b] for b in group) for group in groups for a in group}
        rows = {
            (a, b): row
            for a, near in others.items()
            for b, row in zip(near, _starts(sizes[b] for b in near), strict=False)
        }
        heights = {a: sum(sizes[b] for b in others[a]) for a in widths}
        *starts, cells = _starts(heights[a] * widths[a] for a in widths)
        start = dict(zip(widths, starts, strict=True))
        *firsts, all_cells = _starts(table.size for table in tables.values())
        first = dict(zip(tables, firsts, strict=True))
        gaps, weights = np.empty(all_cells), np.empty(all_cells, np.float32)
        costs, held = np.full(cells, np.inf, np.float32), np.zeros(codes.T.shape, np.float32)
        values = np.ascontiguousarray(codes.T, np.int64)
        for (a, b), table in tables.items():
            target = table * (len(codes) / table.sum())
            inside = values[a] * sizes[b] + values[b]
            counts = np.bincount(inside, minlength=table.size)
            gap, weight = counts.reshape(table.shape) - target, 1 / (target + 1)
            span = slice(first[a, b], first[a, b] + table.size)
            gaps[span], weights[span], cost = gap.reshape(-1), weight.reshape(-1), weight * (gap + 0.5)
            own = weights[span].take(inside)
            held[a] += own
            held[b] += own
            for x, y, seen in ((a, b, cost.T), (b, a, cost)):
                begin = start[x] + rows[x, y] * widths[x]
                costs[begin : begin + len(seen) * widths[x]].reshape(-1, widths[x])[:, : sizes[x]] = seen

        def view(group: Sequence[int]) -> View:
            begin, n, last = start[group[0]], widths[group[0]], group[-1]
            both = [(a, b) for a in group for b in others[a]]

            def grid(values: list[int]) -> Integers:
                return np.array(values, np.int64).reshape(len(group), -1)

            return View(
                attributes=np.array(group, np.int64),
                span=slice(begin, start[last] + heights[last] * n),
                n=n,
                others=grid([b for _, b in both]),
                rows=grid([(start[a] - begin) // n + rows[a, b] for a, b in both]).astype(np.int32),
                back=grid([start[b] + rows[b, a] * widths[b] for a, b in both]),
                widths=grid([widths[b] for _, b in both]),
                cells=grid([first[(a, b) if (a, b) in first else (b, a)] for a, b in both]),
                own=grid([sizes[b] if (a, b) in first else 1 for a, b in both]),
                other=grid([1 if (a, b) in first else sizes[a] for a, b in both]),
            )

        return cls(
            views=[view(group) for group in groups],
            gaps=gaps,
            weights=weights,
            costs=costs,
            change=np.zeros(all_cells, np.float32),
            held=np.ascontiguousarray(held.T),
        )


def _starts(sizes: Iterable[int]) -> list[int]:
    """Where parts of these sizes begin, one after another, and where the last one ends."""
    return list(accumulate(sizes, initial=0))


def _alike(sizes: Sequence[int], others: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The attributes that have pairs, in groups with as many pairs and about as many values."""
    groups: list[list[int]] = []
    for a in sorted(others, key=lambda a: (len(others[a]), sizes[a])):
        first = groups[-1][0] if groups else a
        if groups and len(others[a]) == len(others[first]) and sizes[a] <= ALIKE * sizes[first]:
            groups[-1].append(a)
        else:
            groups.append([a])
    return groups
