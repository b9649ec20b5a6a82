"""dp_sql, GROUP BY of expressions over declared columns: the groups follow from the declarations, so they are public."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Self, final

import duckdb
from sqlglot import exp

from duckdb_dp.counting.encode import array
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.domain.types import Moment, Scalar, column_type
from duckdb_dp.domain.types.base import InUnits
from duckdb_dp.errors import DPError
from duckdb_dp.sql.declarations import declared_point
from duckdb_dp.sql.group_labels import MAX_CELLS
from duckdb_dp.sql.typed import alone

UNITS = {"DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}
"""Seconds of the units in which times are listed, the coarsest first."""

_OF_DAYS = {
    "DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY", "ISOYEAR", "YEARWEEK", "DOW", "ISODOW", "DOY", "WEEKDAY", "DAYOFWEEK",
    "DAYOFMONTH", "DAYOFYEAR", "WEEKOFYEAR",
}  # fmt: skip
"""Parts of a time that its day decides."""

_DAYS_PARTS = (
    exp.Year, exp.Quarter, exp.Month, exp.Week, exp.WeekOfYear, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfWeekIso,
    exp.DayOfYear, exp.LastDay, exp.Dayname, exp.Monthname,
)  # fmt: skip

_WRITTEN = {"DAY": "aAbBdgGjmuUVwWxyY%", "HOUR": "HIp", "MINUTE": "M", "SECOND": "S"}
"""What stands behind % in a format of strftime, by the unit that decides it."""

_FORMAT = re.compile("%-?(.)", re.DOTALL)

_MIDNIGHT = re.compile(r"\d{4}-\d{2}-\d{2}( 00:00:00)?", re.ASCII)

_ORDERED = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ)


def beyond(
    node: exp.Expr, name: str, type_: str, read: Mapping[str, Attribute], conditions: Sequence[exp.Expr] = ()
) -> Attribute | None:
    """All values of an expression over declared columns that it has of declared values, and of NULL where that is something.

    Its rows are those of the table: coalesce(sex, 'none') has rows whose sex is not declared, and age // 10 = 9 has all ages from 90 to
    99 where 0 to 90 are declared. Of bins each value counts that may be in one: a month of which a single day is in a bin is a group.
    None where there are too many, or no list of values decides the expression.

    Args:
        node: the expression.
        name: what its column is called.
        type_: its type.
        read: the columns that it reads, as they stand in it, each by its values.
        conditions: what all rows satisfy; those of these columns alone leave values out.
    """
    columns = [
        _Listed.of(f"x{i}", text, one, node) or _of_steps(f"x{i}", text, one, node)
        for i, (text, one) in enumerate(read.items())
    ]
    listed = {one.text: one for one in columns if one is not None}
    if len(listed) < len(read) or math.prod(one.size + 1 for one in listed.values()) > MAX_CELLS:
        return None
    value = f"TRY(CAST(({_renamed(node, listed).sql('duckdb')}) AS {type_}))"
    kept = "".join(f" AND {one}" for condition in conditions for one in _kept(condition, listed))
    rows = ", ".join(f"({one.rows})" for one in listed.values())
    missing = " OR ".join(f"{one.name} IS NULL" for one in listed.values())
    try:
        with alone() as connection:
            found = connection.execute(
                f"SELECT v, bool_and(n) FROM (SELECT {value} AS v, {missing} AS n FROM {rows} WHERE true{kept}) GROUP BY v ORDER BY v"
            ).fetchall()
        values = [plain(one, type_) for one, _ in found if one is not None]
        # What is NULL of NULL alone is no group, as nobody has declared NULL.
        nulls = any(one is None and not alone_ for one, alone_ in found) or any(one.nulls for one in read.values())
        return declare(name=name, type=type_, values=values, nulls=nulls and None in dict(found))
    except (duckdb.Error, DPError):
        return None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """A declared column with values enough to decide an expression.

    Attributes:
        name: of the values.
        text: of the column, as it stands in the expression, or of what rounds it there.
        size: how many values there are.
        rows: SQL of these and NULL.
        end: where each value stands for a day, an hour, a minute or a second, the name of its last moment; else ''.
    """

    name: str
    text: str
    size: int
    rows: str
    end: str = ""

    @classmethod
    def of(cls, name: str, text: str, attribute: Attribute, node: exp.Expr) -> Self | None:
        """Those of an expression; None where its declaration does not list them: of FLOAT and DOUBLE in bins, and beside 'other'."""
        dtype = attribute.dtype
        if attribute.other:
            return None
        if attribute.kind != "bins":
            labels = [*attribute.labels(), None]
            return cls(
                name=name, text=text, size=len(labels), rows=f"SELECT unnest({array(attribute.type, labels)}) AS {name}"
            )
        step = 1
        if not isinstance(dtype, InUnits):
            return None
        if isinstance(dtype, Moment) and dtype.name != "DATE":
            unit = finest_unit(node, text)
            if unit is None:
                return None
            step = UNITS[unit] * int(dtype.amount("00:00:01" if dtype.name == "TIME" else "1970-01-01 00:00:01"))
        first, last = int(attribute.held[0][0]) // step, int(attribute.held[-1][1]) // step
        size, start, end = last - first + 1, f"{name}", f"{name}_end"
        if size > MAX_CELLS or max(-first, last + 1) * step >= 2**63:
            return None
        units = f"SELECT unnest(range({first * step}, {last * step + 1}, {step})) AS u UNION ALL SELECT NULL"
        rows = (
            f"SELECT {dtype.from_units('u')} AS {start}, {dtype.from_units(f'u + {step - 1}')} AS {end} FROM ({units})"
        )
        return cls(name=name, text=text, size=size, rows=rows, end=end if step > 1 else "")


_STEPS = (exp.Floor, exp.Ceil, exp.Trunc, exp.Round, exp.Cast, exp.TryCast)
"""What makes whole numbers of a number, or such with a few decimals, and never a smaller one of a larger."""

_WHOLE = {"TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "UTINYINT", "USMALLINT", "UINT", "UBIGINT"}


def _of_steps(name: str, text: str, attribute: Attribute, node: exp.Expr) -> _Listed | None:
    """What rounds a FLOAT or DOUBLE in bins, as in floor(x / 5) * 5: all values between those of the first and the last edge.

    None where the column stands outside of that too, or is not just multiplied by, divided by or added to numbers in it.
    """
    if attribute.kind != "bins" or attribute.other or not attribute.dtype.continuous:
        return None
    around = [one.find_ancestor(*_STEPS) for one in node.find_all(exp.Column) if one.sql("duckdb") == text]
    if None in around or len({one.sql("duckdb") for one in around if one is not None}) != 1 or around[0] is None:
        return None
    step, decimals = around[0], _decimals(around[0])
    if decimals is None or (decimals and attribute.type == "FLOAT") or not _is_linear(step.this):
        return None

    def at(point: Scalar) -> str:
        value = f"CAST({float(point)!r} AS {attribute.type})"
        return step.sql("duckdb").replace(text, value)

    first, last = attribute.points[0], attribute.points[-1]
    with alone() as connection:
        asked = f"SELECT TRY({at(first)})::DOUBLE, TRY({at(last)})::DOUBLE, typeof({at(first)})"
        try:
            *ends, type_ = connection.execute(asked).fetchall()[0]
        except duckdb.Error:
            return None
    if not all(end is not None and abs(end) * 10**decimals < 2**53 for end in ends):
        return None
    low, high = sorted(round(end * 10**decimals) for end in ends)
    if high - low >= MAX_CELLS:
        return None
    values = f"CAST(unnest(range({low}, {high + 1})) / 1e{decimals} AS {type_})"
    return _Listed(
        name=name, text=step.sql("duckdb"), size=high - low + 2, rows=f"SELECT {values} AS {name} UNION ALL SELECT NULL"
    )


def _decimals(step: exp.Expr) -> int | None:
    """How many decimals rounding leaves; None where it does not leave a few."""
    if isinstance(step, exp.Cast | exp.TryCast):
        return 0 if step.args["to"].this.name in _WHOLE else None
    digits = step.args.get("decimals")
    text = "0" if digits is None else digits.sql("duckdb")
    return int(text) if re.fullmatch(r"\d", text) else None


def _is_linear(node: exp.Expr) -> bool:
    """Whether a number is a column times a number plus a number: then none between two edges is beyond what these become."""
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
        one, other = node.this.unnest(), node.expression.unnest()
        if _is_number(other):
            return _is_linear(one)
        return _is_number(one) and not isinstance(node, exp.Div) and _is_linear(other)
    return isinstance(node, exp.Column) or (isinstance(node, exp.Neg) and _is_linear(node.this))


def _is_number(node: exp.Expr) -> bool:
    node = node.this.unnest() if isinstance(node, exp.Neg) else node
    return isinstance(node, exp.Literal) and not node.is_string


def _renamed(node: exp.Expr, listed: Mapping[str, _Listed], *, end: bool = False) -> exp.Expr:
    """An expression over the listed values in place of columns, or over their last moments."""

    def one(inner: exp.Expr) -> exp.Expr:
        found = listed.get(inner.sql("duckdb")) if isinstance(inner, (exp.Column, *_STEPS)) else None
        return inner if found is None else exp.column(found.end if end and found.end else found.name)

    return node.copy().transform(one)


def _kept(condition: exp.Expr, listed: Mapping[str, _Listed]) -> list[str]:
    """SQL of what a condition keeps of the listed values: all that may satisfy it.

    What is listed by the day satisfies a comparison where the first or the last moment of the day does; other conditions keep all days.
    """
    texts = {column.sql("duckdb") for column in condition.find_all(exp.Column)}
    if not texts <= {*listed} or condition.find(exp.Query):
        return []
    parts, ends = [condition], any(listed[text].end for text in texts)
    if ends:
        if isinstance(condition, exp.Between):
            sides = ((exp.GTE, condition.args["low"]), (exp.LTE, condition.args["high"]))
            parts = [kind(this=condition.this, expression=value) for kind, value in sides]
        elif isinstance(condition, exp.EQ):
            parts = [kind(this=condition.this, expression=condition.expression) for kind in (exp.GTE, exp.LTE)]
        parts = [part for part in parts if _ordered(part)]
    found = []
    for part in parts:
        both = [_renamed(part, listed), *([_renamed(part, listed, end=True)] if ends else [])]
        tried = [f"TRY(CAST(({one.sql('duckdb')}) AS BOOLEAN))" for one in both]
        found.append(f"({' OR '.join(tried)})")
    return found


def _ordered(part: exp.Expr) -> bool:
    """Whether a condition compares a time, its day or its year with a constant: in the order of times it holds up to one, or from it on."""
    if not isinstance(part, _ORDERED):
        return False
    sides = [part.this.unnest(), part.expression.unnest()]
    reads = [side for side in sides if side.find(exp.Column)]
    (one,) = reads if len(reads) == 1 else (exp.Null(),)
    day = isinstance(one, exp.Cast) and one.to.sql("duckdb") == "DATE"
    return isinstance(one.this.unnest() if day or isinstance(one, exp.Year) else one, exp.Column)


def selected(name: str, type_: str, select: str, parameters: Sequence[Any] = ()) -> Attribute | None:
    """The different values that a SELECT of constants has, NULL among them; None where it fails, or no declaration holds them.

    Args:
        name, type_: of their column.
        select: SQL of one column.
        parameters: what its question marks stand for.
    """
    try:
        with alone() as connection:
            found = [
                row[0]
                for row in connection.execute(
                    f"SELECT DISTINCT v FROM ({select}) AS s(v) ORDER BY v", parameters
                ).fetchall()
            ]
        return declare(
            name=name, type=type_, values=[plain(one, type_) for one in found if one is not None], nulls=None in found
        )
    except (duckdb.Error, DPError):
        return None


def plain(value: Any, type_: str) -> Scalar:
    """A value of DuckDB's as it is declared.

    Raises:
        DPError: it is a decimal of more digits than a declaration holds.
    """
    if isinstance(value, Decimal):
        point = declared_point(column_type(type_), str(value))
        if point is None:
            raise DPError(f"{value} has more digits than a declaration holds.")
        return point
    if isinstance(value, datetime | date | time):
        return str(value)
    return value if isinstance(value, bool | int | float | str) else str(value)


def finest_unit(node: exp.Expr, text: str) -> str | None:
    """The finest of the units of which an expression reads the column of that text; None where it may read all of it."""
    found = [_unit(column) for column in node.find_all(exp.Column) if column.sql("duckdb") == text]
    return None if None in found else next((unit for unit in reversed(UNITS) if unit in found), None)


def _unit(column: exp.Expr) -> str | None:
    """The unit of which an expression reads a time, and no more; None where it may read all of it."""
    parent = column.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if isinstance(parent, exp.Cast | exp.TryCast):
        return "DAY" if parent.to.sql("duckdb") == "DATE" else None
    if isinstance(parent, _DAYS_PARTS):
        return "DAY"
    if isinstance(parent, exp.TimeToStr):
        return _written(parent.args.get("format"))
    if isinstance(parent, exp.DateBin):
        return _width(parent)
    unit: str | exp.Expr | None = None
    if isinstance(parent, exp.TimestampTrunc | exp.DateTrunc):
        unit = parent.args.get("unit")
    elif isinstance(parent, exp.Extract):
        unit = parent.this
    elif isinstance(parent, exp.Hour | exp.Minute | exp.Second):
        unit = type(parent).__name__
    elif isinstance(parent, exp.Anonymous):
        unit = parent.expressions[0] if parent.name.lower() in ("date_part", "datepart") else parent.name
    name = "" if unit is None else unit.upper() if isinstance(unit, str) else unit.name.upper()
    return "DAY" if name in _OF_DAYS else name if name in UNITS else None


def _width(bucket: exp.DateBin) -> str | None:
    """The unit of the width of a time_bucket, whose buckets start where a unit does: from a day on, where an origin is given."""
    width, origin = bucket.this, bucket.args.get("unit")
    origin = origin.this if isinstance(origin, exp.Cast) else origin
    from_day = origin is None or (isinstance(origin, exp.Literal) and _MIDNIGHT.fullmatch(origin.name))
    number = width.this if isinstance(width, exp.Interval) else None
    if not from_day or not isinstance(number, exp.Literal) or not number.name.isdigit():
        return None
    name = width.text("unit").upper().removesuffix("S")
    return "DAY" if name in _OF_DAYS else name if name in UNITS else None


def _written(format_: exp.Expr | None) -> str | None:
    """The unit that decides what strftime writes; None where that may be finer than a second."""
    if not isinstance(format_, exp.Literal) or not format_.is_string:
        return None
    letters = _FORMAT.findall(format_.name)
    units = [next((unit for unit, some in _WRITTEN.items() if letter in some), None) for letter in letters]
    return None if None in units else next((unit for unit in reversed(UNITS) if unit in units), "DAY")
