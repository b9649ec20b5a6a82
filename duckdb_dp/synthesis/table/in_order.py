"""Columns of which one is never below another, as the dates of an end and a beginning: what their bins leave open is drawn together.

Drawn apart, two values of one bin are in the wrong order half of the time, though the bins are right.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from duckdb_dp.counting.encode import coarseness
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.linop import Array, Integers
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.request import Request
from duckdb_dp.synthesis.table.as_shown import as_shown
from duckdb_dp.synthesis.table.by_difference import Apart, End, settle
from duckdb_dp.synthesis.table.placed_cells import Cells

IN_ORDER = "in_order"
"""Option of a request: (lower column, upper column, whether they always differ) of pairs whose order is public."""

SAID = "order_declared"
"""Name of an option: that who declared the columns says so, and not only a CHECK. Rows from before CHECKs were kept are still paid for."""

Order = tuple[str, str, bool]

TRIED, STEPS, ROWS = 4096, 40, 2**18
"""Rows on which the mean difference is tried, steps of a bisection, and rows that are drawn at once."""

WIDEST = 1e150
"""Bounds, in the type's unit, whose squares doubles hold. Columns with wider ones are only put in order as they are shown."""

SMALLEST, SHIFT = 2.0**-900, 1000
"""Bounds below it are multiplied by 2^SHIFT, which changes none of their digits, as parts of them are no doubles."""

ROUNDS, POOL = 64, 16
"""How often each row in the wrong order is tried with another one, of so many times as many."""


def orders(request: Request) -> list[Order]:
    """The pairs of a request whose order is public."""
    return [(low, high, strict) for low, high, strict in dict(request.options).get(IN_ORDER, ())]


def comparable(one: Attribute, other: Attribute) -> bool:
    """Whether values of both are compared as numbers of one unit."""
    return one.dtype.in_one_unit(other.dtype) and all(map(_placed, (one, other)))


def _placed(attribute: Attribute) -> bool:
    """Whether its cells have ends: bins, and whole units from below."""
    dtype = attribute.dtype
    if not attribute.points or (attribute.kind == "values" and dtype.continuous):
        return False
    amounts = dtype.amounts(attribute.points)
    return amounts == sorted(amounts)


def _is_wide(attribute: Attribute) -> bool:
    return max(abs(float(point)) for point in attribute.dtype.amounts(attribute.points)) >= WIDEST


def in_order(
    attributes: Sequence[Attribute],
    codes: Sequence[Codes],
    columns: Sequence[Array],
    pairs: Sequence[Order],
    rng: np.random.Generator,
    apart: Mapping[tuple[str, str], Apart] | None = None,
) -> list[Array]:
    """The columns as they are stored, in which the pairs are in order.

    Rows of which it was drawn how far a pair is apart are placed by that, as ``by_difference.settle`` does. Of the others:

    Bins whose values can be in order stay as they are. Others are exchanged between rows as far as that helps; of the rest the upper
    column's bin moves up to the lower one's, or that one down, in half of the rows each. The values a <= b of bins that overlap or touch
    get the density exp((a - b) / s), of which s keeps the mean of b - a over rows of such bins, those in the wrong order among
    them, as noise makes as many the other way. A column of several pairs stays as the first one draws it. At last ``as_shown`` moves what
    rounding, or another pair, has put in the wrong order.

    Args:
        attributes: of the columns.
        codes: their cells.
        columns: what would be stored: cells, in bins with a share of the way through the bin.
        pairs: whose order is public.
        rng: random numbers.
        apart: how far pairs are apart, as far as it was drawn.

    Privacy: post-processing; the order is public.
    """
    apart = apart or {}
    found, place = [column.copy() for column in columns], {attribute.name: i for i, attribute in enumerate(attributes)}
    known = {i: Cells(attributes[i]) for pair in pairs for i in (place[pair[0]], place[pair[1]])}
    cells = {i: np.array(codes[i], dtype=np.int64) for i in known}
    drawn = set[int]()
    # Those first whose differences were drawn: a pair that others imply would draw both of its columns before them.
    for low, high, strict in sorted(pairs, key=lambda pair: pair[:2] not in apart):
        i, j = place[low], place[high]
        if {i, j} <= drawn or any(map(_is_wide, (attributes[i], attributes[j]))):
            continue  # no column is drawn twice
        rows = np.flatnonzero((cells[i] < known[i].number) & (cells[j] < known[j].number))
        gap = _gap(attributes[i], attributes[j], strict=strict)
        if (low, high) in apart:
            one, other = (End(known=known[k], cells=cells[k], stored=found[k], fixed=k in drawn) for k in (i, j))
            rows = np.setdiff1d(rows, settle(one, other, apart[low, high], rows, gap, rng))
        fixed = [known[k].values(found[k][rows]) if k in drawn else None for k in (i, j)]

        def ends(
            i: int = i, j: int = j, rows: Integers = rows, gap: float = gap, fixed: Sequence[Array | None] = fixed
        ) -> list[Array]:
            one, other = (known[k].ends(cells[k][rows], values) for k, values in zip((i, j), fixed, strict=True))
            return [one[0] + gap, one[1] + gap, *other]

        a0, a1, b0, b1 = ends()
        near = rows[(a1 >= b0) & (b1 >= a0)]
        far = known[j].values(found[j][near]) - known[i].values(found[i][near]) - gap
        free = [k for k, at in enumerate((i, j)) if at not in drawn]
        _exchange([known[i], known[j]], [cells[i], cells[j]], [found[i], found[j]], rows, gap, free, rng)
        a0, a1, b0, b1 = ends()
        wrong, next_, before = b1 <= a0, known[j].reaching(a0), known[i].under(b1 - gap)
        can_rise = (j not in drawn) & (next_ < known[j].number)
        can_fall = (i not in drawn) & (before >= 0)
        up = wrong & can_rise & ((rng.random(len(rows)) < 0.5) | ~can_fall)
        down = wrong & can_fall & ~up
        cells[j][rows[up]], cells[i][rows[down]] = next_[up], before[down]
        a0, a1, b0, b1 = spans = ends()
        close = np.flatnonzero((a1 >= b0) & (b1 > a0))
        for part, a, b in _drawn([bound[close] for bound in spans], float(far.mean()) if len(near) else 0.0, rng):
            at = rows[close[part]]
            if i not in drawn:
                found[i][at] = known[i].stored(cells[i][at], a - gap)
            if j not in drawn:
                found[j][at] = known[j].stored(cells[j][at], b)
        drawn |= {i, j}
    return as_shown(attributes, codes, found, [(place[low], place[high], strict) for low, high, strict in pairs])


def _gap(one: Attribute, other: Attribute, *, strict: bool) -> float:
    """How far the upper value is above the lower one at least, so that it still is where both are rounded."""
    (by, decimals), (other_by, other_decimals) = (
        coarseness(each) if each.kind == "bins" else (1, None) for each in (one, other)
    )
    if not one.dtype.continuous:
        return float(max(by, other_by)) if strict else 0.0 if other_by <= by else float(other_by)
    digits = [each for each in (decimals, other_decimals) if each is not None]
    return 10.0 ** -min(digits) if strict and digits else 0.0


def _exchange(
    known: Sequence[Cells],
    cells: Sequence[Integers],
    columns: Sequence[Array],
    rows: Integers,
    gap: float,
    free: Sequence[int],
    rng: np.random.Generator,
) -> None:
    """Exchange values, in place, of rows in the wrong order and of rows that are apart in the right one, where that brings both nearer.

    The values of the columns that are free to be exchanged: not of one that another pair has drawn.

    So no column's distribution changes, nor the mean difference: noise makes about as many rows that are too far apart as rows in the
    wrong order.
    """
    low, high = known

    def wrong(a: Integers, b: Integers) -> Array:
        """How far cells are in the wrong order; 0 where they are in the right one."""
        return np.where(high.high[b] <= low.low[a] + gap, low.low[a] + gap - high.low[b], 0.0)

    def split(at: Integers) -> tuple[Integers, Integers]:
        a, b = cells[0][at], cells[1][at]
        return at[wrong(a, b) > 0], at[low.high[a] + gap < high.low[b]]

    bad, good = split(rows)
    some = np.concatenate([bad, rng.permutation(good)[: POOL * len(bad)]])
    for _ in range(ROUNDS):
        bad, good = map(rng.permutation, split(some))
        both = min(len(bad), len(good))
        if not both:
            return
        r, s = bad[:both], good[:both]
        (a, b), (c, d) = ((cells[0][at], cells[1][at]) for at in (r, s))
        nearer, which = wrong(a, d) + wrong(c, b) < wrong(a, b), rng.integers(len(free), size=both)
        for number, k in enumerate(free):
            x, y = r[nearer & (which == number)], s[nearer & (which == number)]
            for values in (cells[k], columns[k]):
                values[x], values[y] = values[y], values[x]


def _drawn(spans: Sequence[Array], mean: float, rng: np.random.Generator) -> Iterator[tuple[Any, Array, Array]]:
    """(rows, a, b) of pairs a <= b in the spans (low of a, high of a, low of b, high of b), with that mean of b - a, in parts."""
    rows = len(spans[0])
    if not rows:
        return
    if max(float(np.abs(bound).max()) for bound in spans) < SMALLEST:
        more = 2.0**SHIFT
        for part, a, b in _drawn([bound * more for bound in spans], mean * more, rng):
            yield part, a / more, b / more
        return
    some = rng.choice(rows, min(rows, TRIED), replace=False)
    tried, u, v = [bound[some] for bound in spans], rng.random(len(some)), rng.random(len(some))
    widths = float(np.mean(spans[1] - spans[0] + spans[3] - spans[2])) or 1.0
    low, high = math.log(widths) - 7, math.log(widths) + 7
    for _ in range(STEPS // 2):
        middle = (low + high) / 2
        a, b = _pair(tried, math.exp(middle), u, v)
        low, high = (middle, high) if float(np.mean(b - a)) < mean else (low, middle)
    for start in range(0, rows, ROWS):
        part = slice(start, start + ROWS)
        parts = [bound[part] for bound in spans]
        a, b = _pair(parts, math.exp(low), rng.random(len(parts[0])), rng.random(len(parts[0])))
        yield part, a, b


def _pair(spans: Sequence[Array], scale: float, u: Array, v: Array) -> tuple[Array, Array]:
    """a in [a0, a1) and b in [b0, b1), a <= b, of the density exp(-(b - a) / scale), from even u and v.

    Below b0 the density of a is exp(a / scale), and above it 1 - exp(-(b1 - a) / scale), whose integral is inverted by bisection.
    """
    a0, a1, b0, b1 = spans
    top = np.maximum(np.minimum(a1, b1), a0)
    split = np.clip(b0, a0, top)
    first = scale * -np.expm1(-np.maximum(b1 - split, 0) / scale) * -np.expm1(-(split - a0) / scale)

    def integral(end: Array) -> Array:
        found: Array = (end - split) - scale * (
            np.exp(-np.maximum(b1 - end, 0) / scale) - np.exp(-np.maximum(b1 - split, 0) / scale)
        )
        return found

    rest = np.maximum(integral(top), 0)
    apart = split >= top
    share = np.where(apart, 1.0, np.divide(first, first + rest, out=np.ones_like(first), where=first + rest > 0))
    early = u < share
    lower = split + scale * np.log1p(
        np.divide(u, share, out=np.zeros_like(u), where=early) * np.expm1(-(split - a0) / scale)
    )
    low, high, wanted = split.copy(), top.copy(), np.maximum(u - share, 0) * (first + rest)
    for _ in range(STEPS):
        middle = (low + high) / 2
        over = integral(middle) > wanted
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    a = np.where(early, lower, low)
    start = np.maximum(a, b0)
    b = start - scale * np.log1p(v * np.expm1(-np.maximum(b1 - start, 0) / scale))
    return a, np.maximum(b, a)
