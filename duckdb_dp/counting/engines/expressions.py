"""Ibis expressions that turn a column's value into its cell number, or NULL where the row is left out, for all engines.

They have the same results as the SQL of ``counting/encode.py``, and tests compare the two. Nothing in them can fail or overflow,
whatever a row holds: an engine would raise an error, and the error would reveal something about the row.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import Scalar, Whole
from duckdb_dp.errors import DPError

Expression = Any
"""An Ibis value: Ibis is imported where it is used."""

CHAIN = 4
"""More texts than this are looked for in an array, where the engine has them: one comparison after another is much code."""

LISTED = 64
"""More texts than this are looked up by a join."""

MOST_STEPS = 10_000
"""Bins, or numbers and dates by value, of one attribute: 5,000 bins take Ibis 30 seconds to write."""


def listed(attribute: Attribute) -> bool:
    """Whether the cell of a value is found in an array of the declared ones."""
    return attribute.dtype.textual and CHAIN < len(attribute.points) <= LISTED


def looked_up(attribute: Attribute) -> bool:
    """Whether the cell of a value is found by joining with the declared values."""
    return attribute.dtype.textual and len(attribute.points) > LISTED


def encode(attribute: Attribute, column: Expression, found: Expression | None = None) -> Expression:
    """The cell number of an attribute, int32: 0 .. size - 1; 0 too for a row that ``inside`` leaves out.

    It is never NULL, and short: Spark's code for 40 blocks is half as long without the tests for NULL, and Java compiles
    no method of more than 8,000 bytes (measured: 5 times slower beyond).

    Args:
        attribute: the declaration.
        column: the column.
        found: place among the declared values, NULL for none; for what is ``looked_up``.
    """
    import ibis

    declared = attribute.size - attribute.other - attribute.nulls
    none = declared if attribute.other else 0
    code = ibis.coalesce(_place(attribute, column) if found is None else found, _number(none))
    return _with_nulls(attribute, column, code)


def encode_listed(attribute: Attribute, column: Expression) -> Expression:
    """The same for texts, by the place in an array: less code, for engines that have arrays."""
    import ibis

    texts = ibis.literal([str(point) for point in attribute.points], "array<string>")
    place = ibis.coalesce(texts.index(text_of(attribute, column)).cast("int32"), _number(-1))
    if attribute.other:  # -1, for none, becomes the last
        count = len(attribute.points) + 1
        return _with_nulls(attribute, column, (place + _number(count)) % _number(count))
    return _with_nulls(attribute, column, ibis.greatest(place, _number(0)))


def _with_nulls(attribute: Attribute, column: Expression, code: Expression) -> Expression:
    import ibis

    return ibis.ifelse(is_null(column), _number(attribute.size - 1), code) if attribute.nulls else code


def inside(attribute: Attribute, column: Expression, found: Expression | None = None) -> Expression | None:
    """Condition that a row is inside the domain, NULL for false; None where every row is. Arguments as of ``encode``."""
    if attribute.other:
        return None
    within = _declared(attribute, column) if found is None else found.notnull()
    return (within | is_null(column)) if attribute.nulls else within


def outside(attribute: Attribute, column: Expression) -> Expression:
    """Condition, never NULL: the value is not NULL and none of the declared ones (before 'other')."""
    import ibis

    return ~is_null(column) & ~ibis.coalesce(_declared(attribute, column), ibis.literal(False))


def is_null(column: Expression) -> Expression:
    """Condition, never NULL: the value is NULL. Ibis takes NaN for NULL on Spark, and DuckDB does not."""
    return (column >= 0).isnull() if column.type().is_floating() else column.isnull()


def cell_of(attribute: Attribute, column: Expression) -> tuple[Expression, Expression]:
    """The cell number of a value, and whether it has one: numbers and dates beyond the ends are in the first or the last cell.

    Args:
        attribute: the cells.
        column: the column.
    """
    import ibis

    known = ~is_null(column)
    if column.type().is_floating():
        known = known & ~ibis.coalesce(column.isnan(), ibis.literal(False))
    if attribute.kind == "values":
        within = inside(attribute, column)
        return encode(attribute, column), known if within is None else known & ibis.coalesce(
            within, ibis.literal(False)
        )
    cut = _Cut.of(attribute, column)
    held = ibis.ifelse(known, ibis.greatest(ibis.least(cut.value, cut.last), cut.first), cut.first)
    if len(cut.lows) <= LISTED:
        return encode(attribute, held), known & ibis.literal(bool(cut.cells))
    return _looked_for(held, cut.lows) + cut.cells[0], known


def _looked_for(value: Expression, lows: Sequence[Expression]) -> Expression:
    """The place of the last of many lower edges that is not above a value: in two steps, by arrays, which are little code."""
    import ibis

    size = math.isqrt(len(lows))
    first = ibis.array(list(lows[::size])).filter(lambda low: low <= value).length() - 1
    block = ibis.array(list(lows))[first * size : first * size + size]
    return first * size + block.filter(lambda low: low <= value).length() - 1


def by_bytes(column: Expression) -> Expression:
    """What tells texts apart by their bytes, whatever collation the engine compares them with."""
    return column.hexdigest("sha256")


def text_of(attribute: Attribute, column: Expression) -> Expression:
    """The column as text that equals the declared values."""
    return attribute.dtype.ibis_points(column, ())[0]


def _declared(attribute: Attribute, column: Expression) -> Expression:
    """Condition that a value is one of the declared ones; NULL or false for NULL."""
    import ibis

    if attribute.kind != "values":
        cut = _Cut.of(attribute, column)
        return (cut.value >= cut.first) & (cut.value <= cut.last) if cut.cells else ibis.literal(False)
    if attribute.dtype.textual:
        return text_of(attribute, column).isin(list(attribute.points))
    return _place(attribute, column).notnull()


def _place(attribute: Attribute, column: Expression) -> Expression:
    """Place among the declared values or bins, int32; NULL for any other value and for NULL."""
    import ibis

    nothing = ibis.null("int32")
    if attribute.kind != "values":
        cut, declared = _Cut.of(attribute, column), _declared(attribute, column)
        if not cut.cells:
            return nothing
        step = _even_step(attribute)
        if attribute.kind == "bins" and step is None:
            return ibis.ifelse(declared, _search(cut.value, cut.lows, [_number(cell) for cell in cut.cells]), nothing)
        value = cut.value
        if step is not None:  # the last bin is closed
            value = ibis.least(value, _literal(int(attribute.points[0]) + step * len(cut.cells) - 1, str(value.type())))
        # NULL where it is outside: then the difference cannot overflow.
        offset = ibis.ifelse(declared, value, ibis.null(value.type())) - cut.first
        return (offset if step is None else offset // step).cast("int32")
    dtype = attribute.dtype
    value, points = dtype.ibis_points(column, attribute.points)
    if not dtype.ordered:
        cases = [(_equal(value, point), _number(i)) for i, point in enumerate(attribute.points)]
        return ibis.cases(*cases, else_=nothing)
    order = sorted(range(len(points)), key=lambda i: dtype.order(attribute.points[i]))
    leaves = [ibis.ifelse(value == points[i], _number(i), nothing) for i in order]
    return _search(value, [points[i] for i in order], leaves)


def _even_step(attribute: Attribute) -> int | None:
    """The width of bins of whole numbers that are even but for the last: division finds a number's bin, in little code."""
    if attribute.kind != "bins" or not isinstance(attribute.dtype, Whole):
        return None  # a quotient of real numbers may be rounded over an edge
    ends = [int(point) for point in attribute.points]
    step = ends[1] - ends[0]
    even = {b - a for a, b in itertools.pairwise(ends[:-1])} <= {step} and ends[-1] - ends[-2] <= step
    held = ends[0] >= 0 or attribute.dtype.limits[0] < 0
    # Some engines divide as doubles, which is exact below 2^52.
    return step if even and held and max(map(abs, ends)) < 2**51 else None


def _equal(value: Expression, point: Scalar) -> Expression:
    if isinstance(point, bool):
        return value if point else ~value
    return value == point


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A declared range cut into cells.

    Attributes:
        value: the column, as what compares with the points.
        first, last: the range, closed.
        lows: where each cell begins.
        cells: their numbers; none where the column's type cannot hold any value of the range.
    """

    value: Expression
    first: Expression
    last: Expression
    lows: list[Expression]
    cells: list[int]

    @classmethod
    def of(cls, attribute: Attribute, column: Expression) -> "_Cut":
        """The range of bins, or of whole numbers as one cell."""
        dtype = attribute.dtype
        if attribute.kind == "integers" or not isinstance(dtype, Whole):
            value, points = dtype.ibis_points(column, attribute.points)
            cells = list(range(len(points) - 1))
            return cls(value=value, first=points[0], last=points[-1], lows=points[:-1], cells=cells)
        # Bins may be cut beside what the type holds, and its comparisons know only what it holds.
        type_, low, high = dtype.ibis_limits(column)
        ends = [int(point) for point in attribute.points]
        closed = [(a, b - 1) for a, b in itertools.pairwise(ends)]
        closed[-1] = (ends[-2], ends[-1])
        kept = {i: (max(a, low), min(b, high)) for i, (a, b) in enumerate(closed) if a <= high and b >= low}
        lows = [_literal(a, type_) for a, _ in kept.values()] or [_literal(low, type_)]
        last = _literal(list(kept.values())[-1][1] if kept else low, type_)
        return cls(value=column.cast(type_), first=lows[0], last=last, lows=lows, cells=list(kept))


def _search(value: Expression, lows: Sequence[Any], leaves: Sequence[Expression]) -> Expression:
    """Binary search as nested conditions: leaf i for lows[i] <= value < lows[i + 1].

    Raises:
        DPError: it would be too long.
    """
    import ibis

    if len(leaves) > MOST_STEPS:
        raise DPError(
            f"a column has {len(leaves):,} declared bins or values, and a table of another engine takes at most "
            f"{MOST_STEPS:,}. Declare fewer; whole numbers with a step of 1, and texts, may have more."
        )
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    below, above = _search(value, lows[:half], leaves[:half]), _search(value, lows[half:], leaves[half:])
    return ibis.ifelse(value < lows[half], below, above)


def _number(value: int) -> Expression:
    return _literal(value, "int32")


def _literal(value: Scalar, type_: str | None = None) -> Expression:
    import ibis

    return ibis.literal(value, type_)
