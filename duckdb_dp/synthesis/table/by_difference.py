"""Two dates or times of a row by how far they are apart: a day and the day after of the same bins, a week, two months."""

import itertools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.differences import Difference
from duckdb_dp.linop import Array, Integers
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.synthesis.table.placed_cells import Cells

TRIED, ROWS = 16, 2**16
"""Differences of its class that are tried for each row, and rows that are placed at once."""

TOLD = 128
"""In how many parts all values are told apart at best, as noise hides smaller ones."""

ROUNDS, LISTED = 64, 16
"""How often each row whose cells cannot be so far apart is tried with another one, and after how often rows are listed anew."""

MENDED = 0.05
"""Share of those rows that have to be mended between two listings, else exchanges end, as few of the rest find another row."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """The differences that were drawn of a pair of columns.

    Attributes:
        difference: of which columns.
        codes: its cell in each row; the last one is NULL.
        leaning: how the density of differences leans in each class, in [-1, 1], and 0 of NULL.
        groups: in how many groups of neighbouring values each column was measured with the other one; () where each value is one.
    """

    difference: Difference
    codes: Codes
    leaning: Array
    groups: tuple[int, ...] = ()


@final
@dataclass(slots=True, kw_only=True)
class End:
    """One of both columns, which changes in place unless it is fixed.

    Attributes:
        known: its cells as numbers.
        cells: of each row.
        stored: what would be stored of each row.
        fixed: whether it has its values.
    """

    known: Cells
    cells: Integers
    stored: Array
    fixed: bool

    def span(self, rows: Integers) -> tuple[Array, Array]:
        """The least and the greatest whole number of units that rows may have."""
        if self.fixed:
            value = np.floor(self.known.values(self.stored[rows]))
            return value, value
        return self.known.low[self.cells[rows]], self.known.high[self.cells[rows]] - 1

    def unsure(self, rows: Integers, groups: int) -> Array:
        """Within how many units the value is known: in its cell or group, and in no part of all values that noise hides."""
        first, last = self.span(rows)
        found: Array = np.maximum(last - first, (self.known.high[-1] - self.known.low[0]) / min(groups, TOLD))
        return found

    def put(self, rows: Integers, values: Array) -> None:
        """Give rows values that the column has cells for."""
        if self.fixed:
            return
        self.cells[rows] = self.known.under(values + 1)
        self.stored[rows] = self.known.stored(self.cells[rows], values + 0.5)


def settle(low: End, high: End, apart: Apart, rows: Integers, gap: float, rng: np.random.Generator) -> Integers:
    """The rows whose values are placed, in place, as far apart as was drawn.

    Where cells cannot be so far apart, rows first exchange cells of the upper column with rows that can do with theirs, so that its
    distribution stays: within a cell of the lower one, so that both together stay as they were measured, and then without that. Then they
    exchange cells of the lower one. Where these were exchanged before, both were farther from other columns.

    Of rows whose cells can be so far apart every pair of values in them that is, is drawn alike, but that differences in a class have the
    density that its neighbours say. Of those that are left a class that says more than both values together is taken for true, and one
    value's cell follows from the other one, as ``_moved`` does: noise in cells of months says less than a class of two days. Where the
    class is wider, or no declared values are so far apart, rows stay as they are.

    Args:
        low, high: both columns.
        apart: the differences of all rows.
        rows: those in question, in which both columns have declared values.
        gap: the least difference in units.
        rng: random numbers.

    Privacy: post-processing.
    """
    found = [np.empty(0, dtype=np.int64)]
    if low.fixed and high.fixed:
        return found[0]
    rows = rows[apart.codes[rows] < apart.difference.attribute.base]
    for moved, within in itertools.product((high, low), (True, False)):
        if not moved.fixed:
            _exchange(low, high, apart, rows, gap, rng, moved=moved, within=within)
    for start in range(0, len(rows), ROWS):
        found += _settle(low, high, apart, rows[start : start + ROWS], gap, rng)
    return np.concatenate(found)


def _exchange(
    low: End,
    high: End,
    apart: Apart,
    rows: Integers,
    gap: float,
    rng: np.random.Generator,
    *,
    moved: End,
    within: bool,
) -> None:
    """Exchange cells of one column, in place, of rows that cannot have their class and of rows that have what these need.

    The one is nearer to its class then, and the other one no farther from its own: else long rows would take what short ones cannot have,
    and no other row could do with that. Within a cell of the other column it changes no more than which of its rows has
    which cell; else both columns together change too.
    """
    kept, sign = (high, -1) if moved is low else (low, 1)
    groups = kept.cells[rows] * moved.known.number if within else np.zeros(len(rows), dtype=np.int64)
    least, most = _class(apart, rows, gap)
    lows, highs = (np.array(end.span(rows)) for end in (low, high))
    move, keep = (lows, highs) if moved is low else (highs, lows)

    def wrong(at: Integers, other: Integers) -> Array:
        """How far rows are from their class, with what moves taken from other rows."""
        (a0, a1), (b0, b1) = (ends[:, other if ends is move else at] for ends in (lows, highs))
        found: Array = np.maximum(b0 - a1 - most[at], 0) + np.maximum(least[at] - (b1 - a0), 0)
        return found

    everyone, before = np.arange(len(rows)), math.inf
    for number in range(ROUNDS):
        if number % LISTED == 0:  # who has which cell, which few exchanges change
            bad = np.flatnonzero(wrong(everyone, everyone) > 0)
            if len(bad) > before * (1 - MENDED):
                return
            before = len(bad)
            cells = groups + moved.cells[rows]
            order = np.argsort(cells, kind="stable")
            listed = cells[order]
        r = bad[wrong(bad, bad) > 0]
        wanted = _between(keep[:, r], rng) + sign * _between(np.array([least[r], most[r]]), rng)
        cell = groups[r] + np.clip(moved.known.under(wanted + 1), 0, moved.known.number - 1)
        first, last = (np.searchsorted(listed, cell, side) for side in ("left", "right"))
        r, first, last = (one[first < last] for one in (r, first, last))
        if not len(r):
            return
        s = order[first + (rng.random(len(r)) * (last - first)).astype(np.int64)]
        better = (wrong(r, s) < wrong(r, r)) & (wrong(s, r) <= wrong(s, s))
        r, s = r[better], s[better]
        _, once = np.unique(s, return_index=True)
        r, s = r[once], s[once]
        r, s = r[~np.isin(s, r)], s[~np.isin(s, r)]  # each row once
        for values in (moved.cells, moved.stored):
            values[rows[r]], values[rows[s]] = values[rows[s]], values[rows[r]]
        move[:, r], move[:, s] = move[:, s], move[:, r]


def _unsure(low: End, high: End, apart: Apart, rows: Integers) -> Array:
    """Within how many units both values together are known."""
    one, other = apart.groups or (TOLD, TOLD)
    return low.unsure(rows, one) + high.unsure(rows, other)


def _between(ends: Array, rng: np.random.Generator) -> Array:
    """A whole number from the first of each pair of ends to the second one."""
    first, last = ends
    found: Array = first + np.floor(rng.random(len(first)) * (last - first + 1))
    return found


def _class(apart: Apart, rows: Integers, gap: float) -> tuple[Array, Array]:
    """The least and the greatest difference of the class of each row, in units."""
    attribute, per = apart.difference.attribute, apart.difference.per
    edges = np.array(attribute.dtype.amounts(attribute.points), dtype=np.float64)
    classes = apart.codes[rows]
    return np.maximum(edges[classes] * per, gap), edges[classes + 1] * per - 1


def _settle(
    low: End, high: End, apart: Apart, rows: Integers, gap: float, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    least, most = _class(apart, rows, gap)
    # One in each part of the class, so that a few are enough.
    shares = (np.arange(TRIED) + rng.random((len(rows), 1))) / TRIED
    apart_by = least[:, None] + np.floor(shares * (most - least + 1)[:, None])
    (a0, a1), (b0, b1) = low.span(rows), high.span(rows)
    nearest, farthest = np.maximum(b0 - a1, least), np.minimum(b1 - a0, most)
    can = nearest <= farthest
    room = np.minimum(a1[:, None], b1[:, None] - apart_by) - np.maximum(a0[:, None], b0[:, None] - apart_by) + 1
    leaning = 1 + apart.leaning[apart.codes[rows], None] * (2 * shares - 1)
    chances = np.cumsum(np.maximum(room, 0) * leaning, axis=1)
    picked = (rng.random(len(rows))[:, None] * chances[:, -1:] >= chances).sum(axis=1)
    by = np.take_along_axis(apart_by, np.minimum(picked, TRIED - 1)[:, None], axis=1)[:, 0]
    by = np.where(can, np.clip(by, nearest, farthest), np.clip(by, least, most))

    first, last = np.maximum(a0, b0 - by), np.minimum(a1, b1 - by)
    lower = _between(np.array([first, last]), rng)
    placed = rows[can]
    low.put(placed, lower[can])
    high.put(placed, lower[can] + by[can])

    narrow = ~can & (most - least <= _unsure(low, high, apart, rows))
    held = _moved(low, high, rows[narrow], by[narrow], rng)
    return placed, held


def _moved(low: End, high: End, rows: Integers, by: Array, rng: np.random.Generator) -> Integers:
    """The rows that are placed, in place, so far apart, though their cells are not: one value follows from the other one.

    The upper one where it has such a value, else the lower one. Where neither has, the lower value is that of another row from which there
    is one: a job of nine years began in the first of ten.
    """
    if not len(rows):
        return rows
    a, b = (np.floor(end.known.values(end.stored[rows])) for end in (low, high))
    up = _inside(high, a + by)
    down = _inside(low, b - by)
    down &= ~up
    high.put(rows[up], (a + by)[up])
    low.put(rows[down], (b - by)[down])
    rest = ~up & ~down & (not (low.fixed or high.fixed))
    if rest.any():
        others = np.sort(a)
        first = np.searchsorted(others, high.known.low[0] - by, "left")
        last = np.searchsorted(others, high.known.high[-1] - by, "left")
        rest &= first < last
        lower = others[(first + rng.random(len(rows)) * (last - first)).astype(np.int64)[rest]]
        low.put(rows[rest], lower)
        high.put(rows[rest], lower + by[rest])
    found: Integers = rows[up | down | rest]
    return found


def _inside(end: End, values: Array) -> NDArray[np.bool_]:
    """Whether values are among the declared ones of a column that is not fixed."""
    found: NDArray[np.bool_] = (values >= end.known.low[0]) & (values <= end.known.high[-1] - 1) & (not end.fixed)
    return found
