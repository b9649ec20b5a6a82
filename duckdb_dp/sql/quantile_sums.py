"""The quantiles of the direct route of dp_sql: which one is asked, and the public cells that it is found in."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date

from sqlglot import exp

from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.expression_bounds import bounds, limits
from duckdb_dp.domain.public_cells import between, in_order, on_line
from duckdb_dp.domain.types import ColumnType, Moment, Scalar, Whole
from duckdb_dp.errors import DPError, brief
from duckdb_dp.grouped_sums import Sum
from duckdb_dp.sql.no_numbers import instead
from duckdb_dp.sql.said_ends import moments, numbers
from duckdb_dp.sql.same_conditions import form

_NODES = (exp.Median, exp.PercentileCont, exp.PercentileDisc, exp.Quantile, exp.ApproxQuantile)

MOST, MOST_PURE = 10_000, 1_000
"""Cells of a value, with Gaussian noise and with Laplace noise."""

EVERYTHING = (-math.inf, math.inf)

EXACT = 2.0**53
"""Whole numbers below are the same as doubles, by which conditions are read."""

OPERATIONS = 4_000_000_000
"""Most multiplications of an answer: about groups * cells^2, some seconds."""


def is_quantile(node: exp.Expr) -> bool:
    """Whether an aggregate is a quantile."""
    return isinstance(node, _NODES)


def usual(select: exp.Select) -> exp.Select:
    """The SELECT with percentile_cont(q) WITHIN GROUP (ORDER BY x) as a function of (x, q), and approximate counts as counts.

    Raises:
        DPError: it sorts by several expressions.
    """

    def one(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.ApproxDistinct):
            return exp.Count(this=exp.Distinct(expressions=[node.this]))
        if isinstance(node, exp.Count) and not isinstance(node.parent, exp.Filter):
            return _filtered(node)
        if not isinstance(node, exp.WithinGroup):
            return node
        sorted_by, inner = node.expression.expressions, node.this
        if len(sorted_by) != 1 or not isinstance(inner, exp.PercentileCont | exp.PercentileDisc):
            raise DPError(f"{brief(node.sql('duckdb'))}: write percentile_cont(0.5) WITHIN GROUP (ORDER BY column).")
        ordered, share = sorted_by[0], inner.this
        if isinstance(ordered, exp.Ordered):
            if ordered.args.get("desc"):
                share = exp.Literal.number(repr(1 - _share(node, share)))
            ordered = ordered.this
        return type(inner)(this=ordered, expression=share)

    found = select.transform(one)
    assert isinstance(found, exp.Select)
    return found


def _filtered(node: exp.Count) -> exp.Expr:
    """count(DISTINCT CASE WHEN c THEN x END) as count(DISTINCT x) FILTER (WHERE c), which is the same and may count units."""
    distinct = node.this
    case = distinct.expressions[0] if isinstance(distinct, exp.Distinct) and len(distinct.expressions) == 1 else None
    if not isinstance(case, exp.Case) or case.this is not None or len(case.args["ifs"]) != 1:
        return node
    default, when = case.args.get("default"), case.args["ifs"][0]
    if not (default is None or isinstance(default, exp.Null)) or not isinstance(when.args["true"], exp.Column):
        return node
    count = exp.Count(this=exp.Distinct(expressions=[when.args["true"].copy()]))
    return exp.Filter(this=count, expression=exp.Where(this=when.this.copy()))


def _share(node: exp.Expr, asked: object) -> float:
    text = asked.name if isinstance(asked, exp.Literal) and not asked.is_string else ""
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise DPError(
            f"{brief(node.sql('duckdb'))}: write one number from 0 to 1, as in quantile_cont(x, 0.9), for each."
        )
    return share


class Quantiles:
    """The quantiles of one SELECT.

    Args:
        type_of: the type of an expression over the columns of a row.
        declared: the declarations.
        groups: how many groups there are at most.
        pure: whether the noise is Laplace noise.
    """

    def __init__(
        self, type_of: Callable[[str], str], declared: Mapping[str, Attribute], groups: int, *, pure: bool
    ) -> None:
        self._type_of, self._declared = type_of, declared
        self._most = max(100, min(MOST_PURE if pure else MOST, math.isqrt(OPERATIONS // max(1, groups))))

    def sum(self, node: exp.Expr, value: exp.Expr, where: str, conditions: Sequence[exp.Expr]) -> Sum:
        """The quantile that an aggregate asks.

        Args:
            node: the aggregate.
            value: the expression that it takes, checked.
            where: text of the condition of its FILTER.
            conditions: that one and WHERE, checked.

        Raises:
            DPError: it is no number from 0 to 1, or the values have no order.
        """
        text = value.sql("duckdb")
        asked = node.args.get("expression") or node.args.get("quantile")
        share = 0.5 if isinstance(node, exp.Median) else _share(node, asked)
        type_ = self._type_of(text)
        dtype = types.find(type_)
        if dtype is None or not dtype.ordered:
            raise DPError(
                f"{brief(node.sql('duckdb'))}: {brief(text)} is {type_}, which has no order; quantiles are of numbers, dates and times: "
                f"{instead(text, type_)}."
            )
        found = dtype.name if type(node) in (exp.PercentileDisc, exp.Quantile) else _continuous(dtype)
        cells = replace(self._cells(value, dtype, conditions), name="value")
        return Sum(value=text, where=where, kind="quantile", cells=cells, quantile=share, type=found)

    def _cells(self, value: exp.Expr, dtype: ColumnType, conditions: Sequence[exp.Expr]) -> Attribute:
        known = self._declared.get(value.name) if isinstance(value, exp.Column) else None
        said = self._said(value, dtype, conditions)
        if isinstance(dtype, Moment) and form() >= 6:
            return self._moments(dtype, known, moments(value, dtype, conditions))
        if known is not None and known.kind != "bins":
            within = in_order(_within(known, *said))
            return within if known.kind == "integers" and _holds(within.points, said) else on_line(within)
        declared: tuple[Scalar, ...] = () if known is None else known.points
        low: Scalar | None = declared[0] if declared else None
        high: Scalar | None = declared[-1] if declared else None
        found = self._bounds(value, conditions) if not declared and dtype.numeric else None
        if found is not None:
            ends = (math.floor(found[0]), math.ceil(found[1])) if isinstance(dtype, Whole) else found
            low, high = ends if dtype.fits(ends[0], edge=True) and dtype.fits(ends[1], edge=True) else (None, None)
        if low is not None and high is not None and said != EVERYTHING:
            low, high = _between(dtype, low, high, *said)
        if isinstance(dtype, Whole) and not declared and form() >= 6 and (listed := _numbered(dtype, said, self._most)):
            return listed
        clamped = low is not None
        if not clamped and form() >= 6 and said[0] < said[1]:
            low, high = _alone(dtype, *said)
        points = between(dtype, low, high, declared, most=self._most)
        cells = Attribute(name="value", type=dtype.name, kind="bins", points=points)
        return on_line(cells) if clamped and not _holds(points, said) else cells

    def _said(self, value: exp.Expr, dtype: ColumnType, conditions: Sequence[exp.Expr]) -> tuple[float, float]:
        """Between which numbers conditions say that the value lies."""
        if not dtype.numeric or form() < 4 or not (isinstance(value, exp.Column) or form() >= 6):
            return EVERYTHING
        low_high = numbers(value, conditions) if form() >= 6 else limits(conditions).get(value.name, EVERYTHING)
        return low_high if all(abs(end) < EXACT or math.isinf(end) for end in low_high) else EVERYTHING

    def _moments(self, dtype: Moment, known: Attribute | None, said: tuple[str | None, str | None]) -> Attribute:
        """The cells of dates or times, between the ends of a declaration, or of what conditions say where that is less or elsewhere."""
        if known is not None and known.kind != "bins":
            days = _days(known, said)
            return in_order(known, line=True) if days is None else days
        points = () if known is None else known.points
        ends = _latest(dtype, (points[0], points[-1]) if points else (None, None), said)
        found = between(dtype, *ends, points, most=self._most)
        cells = Attribute(name="value", type=dtype.name, kind="bins", points=found)
        return on_line(cells) if points and ends != said else cells

    def _bounds(self, value: exp.Expr, conditions: Sequence[exp.Expr]) -> tuple[float, float] | None:
        try:
            found = bounds(value, self._declared, conditions)
        except DPError:
            return None
        return found if found is not None and found[0] < found[1] else None


def _numbered(dtype: Whole, said: tuple[float, float], most: int) -> Attribute | None:
    """The whole numbers that conditions allow, each a cell; None where they do not say both ends, or these are too many or one."""
    if not all(map(math.isfinite, said)):
        return None
    low, high = math.ceil(said[0]), math.floor(said[1])
    if not (low < high < low + most and dtype.fits(low) and dtype.fits(high)):
        return None
    return Attribute(name="value", type=dtype.name, kind="integers", points=(low, high))


def _days(known: Attribute, said: tuple[str | None, str | None]) -> Attribute | None:
    """Of listed dates or times those that conditions allow, which are all where each day between two is listed; None where few are left."""
    listed = in_order(known)
    orders = listed.dtype.orders(listed.points)
    first, last = (None if end is None else listed.dtype.orders((end,))[0] for end in said)
    kept = [
        point
        for point, order in zip(listed.points, orders, strict=True)
        if (first is None or first <= order) and (last is None or order <= last)
    ]
    if len(kept) < 2 or said == (None, None):
        return None
    found = replace(listed, points=tuple(kept))
    if listed.type != "DATE" or None in said or (kept[0], kept[-1]) != said:
        return on_line(found)
    days = (date.fromisoformat(str(kept[-1])) - date.fromisoformat(str(kept[0]))).days
    return found if len(kept) == days + 1 else on_line(found)


def _alone(dtype: ColumnType, low: float, high: float) -> tuple[Scalar | None, Scalar | None]:
    """The ends that conditions say of what nothing else bounds; None of one that they do not say, or that its type does not hold."""
    if isinstance(dtype, Whole):
        low, high = (end if math.isinf(end) else round_(end) for end, round_ in ((low, math.floor), (high, math.ceil)))
    ends = [end if math.isfinite(end) and dtype.fits(end, edge=True) else None for end in (low, high)]
    return ends[0], ends[1]


def _latest(
    dtype: Moment, declared: tuple[Scalar | None, Scalar | None], said: tuple[Scalar | None, Scalar | None]
) -> tuple[Scalar | None, Scalar | None]:
    """The later one of two first moments, and the earlier one of two last ones; those that are declared where nothing is left."""

    def chosen(ends: Sequence[Scalar | None], pick: Callable[..., int]) -> Scalar | None:
        known = [end for end in ends if end is not None]
        orders = dtype.orders(known)
        return known[pick(range(len(known)), key=orders.__getitem__)] if known else None

    low, high = chosen((declared[0], said[0]), max), chosen((declared[1], said[1]), min)
    if low is None or high is None or dtype.orders((low,))[0] < dtype.orders((high,))[0]:
        return low, high
    first, last = said
    apart = first is not None and last is not None and dtype.orders((first,))[0] < dtype.orders((last,))[0]
    return said if apart else declared


def _within(known: Attribute, low: float, high: float) -> Attribute:
    """A column declared by its values, with those that conditions allow; with all of them where fewer than two are left."""
    if known.kind == "integers":
        first, last = known.points
        assert isinstance(first, int)
        assert isinstance(last, int)
        ends = (
            max(first, math.ceil(low)) if low > first else first,
            min(last, math.floor(high)) if high < last else last,
        )
        return replace(known, points=ends) if ends[0] < ends[1] else known
    points = tuple(one for one in known.points if not isinstance(one, str) and low <= one <= high)
    return replace(known, points=points) if len(points) > 1 else known


def _holds(points: Sequence[Scalar], said: tuple[float, float]) -> bool:
    """Whether all values that conditions allow lie between the first and the last of these points."""
    first, last = points[0], points[-1]
    return not isinstance(first, str) and not isinstance(last, str) and first <= said[0] and said[1] <= last


def _between(dtype: ColumnType, first: Scalar, last: Scalar, low: float, high: float) -> tuple[Scalar, Scalar]:
    """The ends of a declaration in bins, or of what conditions allow where that is less or elsewhere."""
    assert not isinstance(first, str)
    assert not isinstance(last, str)
    if isinstance(dtype, Whole):
        low, high = (end if math.isinf(end) else round_(end) for end, round_ in ((low, math.floor), (high, math.ceil)))
    apart = low >= last or high <= first  # of all that is declared
    ends = (low, high) if apart else (max(first, low), min(last, high))
    fits = all(math.isfinite(end) and dtype.fits(end, edge=True) for end in ends)
    return ends if fits and ends[0] < ends[1] else (first, last)


def _continuous(dtype: ColumnType) -> str:
    """The type of a quantile that may lie between two values, as DuckDB has it."""
    if dtype.numeric:
        return "DOUBLE"
    return "TIMESTAMP" if isinstance(dtype, Moment) and dtype.name == "DATE" else dtype.name
