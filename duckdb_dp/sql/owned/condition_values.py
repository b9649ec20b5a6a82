"""Values of an expression that the conditions of the statement list, and those of expressions of it: public, without a declaration."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import duckdb
from sqlglot import exp

from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.domain.types import Scalar, Whole, column_type, find
from duckdb_dp.sql import computed_groups, declared_groups
from duckdb_dp.sql.computed_groups import of_type, stated
from duckdb_dp.sql.declarations import declared_point
from duckdb_dp.sql.declared_groups import UNITS, finest_unit, selected
from duckdb_dp.sql.kept_values import kept, never_null
from duckdb_dp.sql.owned.literals import literal, of_case
from duckdb_dp.sql.typed import alone
from duckdb_dp.sql.worked_out import worked_out

MOST_CELLS = 50_000
"""Days, hours and the like between two times, and whole numbers of which something is worked out, that are listed at most."""

_DATED = ("DATE", "TIMESTAMP", "TIME")
_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}
"""Comparisons with their sides exchanged."""


def listed(
    value: exp.Expr, conditions: Sequence[exp.Expr], type_of: Callable[[exp.Expr], str], name: str
) -> Attribute | None:
    """The cells of an expression: truth values, the literals of a CASE, parts of dates such as hour(ts), or what conditions list.

    They list x IN ('a', 'b'), x = 'a', whole numbers x BETWEEN 0 AND 9, and days between two dates; and so what is worked out of one such
    column, and of the days, hours, minutes or seconds of a time: date_trunc('week', ts).

    Args:
        value: the expression.
        conditions: what all rows satisfy.
        type_of: the types of expressions.
        name: what its column is called.
    """
    type_ = type_of(value)
    known = told(value, type_, name, type_of)
    if known is not None and (isinstance(value, exp.Case) or of_type(name, type_) is not None):
        return known
    values = _values(value, type_, conditions)
    if isinstance(values, range):
        return declare(name=name, type=type_, low=values[0], high=values[-1])
    if values:
        return declare(name=name, type=type_, values=[*values])
    return _worked_out(value, type_, conditions, type_of, name) or known


def decides(attribute: Attribute | None, value: exp.Expr) -> bool:
    """Whether the cells of a declaration say what a value is that is worked out of it, or is the column itself."""
    return attribute is not None and (
        isinstance(value, exp.Column) or (attribute.kind != "bins" and not attribute.other)
    )


def known(
    value: exp.Expr,
    type_of: Callable[[exp.Expr], str],
    attribute: Callable[[exp.Expr, str], Attribute | None],
    name: str,
    conditions: Sequence[exp.Expr],
) -> Attribute | None:
    """The cells of an expression that conditions list, or else declarations; None where neither do. Arguments as of ``beyond``."""
    found = _not_null(value, listed(value, conditions, type_of, name), attribute, conditions)
    return found or (beyond(value, type_of, attribute, name, conditions) if value.find(exp.Column) else None)


def _not_null(
    value: exp.Expr,
    found: Attribute | None,
    attribute: Callable[[exp.Expr, str], Attribute | None],
    conditions: Sequence[exp.Expr],
) -> Attribute | None:
    """The values of an expression that conditions leave, without NULL where it never is."""
    never = never_null(value, conditions) if found is not None and found.nulls else set()
    columns = [column for column in value.find_all(exp.Column) if column.sql("duckdb") not in never]
    found = computed_groups.without_null(value, found, [attribute(column, "") for column in columns])
    return found if isinstance(value, exp.Column) else kept(value, found, conditions)


def beyond(
    value: exp.Expr,
    type_of: Callable[[exp.Expr], str],
    attribute: Callable[[exp.Expr, str], Attribute | None],
    name: str,
    conditions: Sequence[exp.Expr],
) -> Attribute | None:
    """The cells of an expression over declared columns, of whose rows it is worked out; None where there are too many.

    Args:
        value: the expression.
        type_of: the types of expressions.
        attribute: the declaration of a column, under another name.
        name: what its column is called.
        conditions: what all rows satisfy.
    """
    type_ = type_of(value)
    read = {column.sql("duckdb"): attribute(column, "") for column in value.find_all(exp.Column)}
    known = {text: one for text, one in read.items() if one is not None}
    found = _not_null(value, told(value, type_, name, type_of), attribute, conditions)
    if found is None and len(known) == len(read):
        found = kept(value, declared_groups.beyond(value, name, type_, known, conditions), conditions)
    return found or worked_out(value, name, type_, conditions, type_of)


def told(value: exp.Expr, type_: str, name: str, type_of: Callable[[exp.Expr], str]) -> Attribute | None:
    """The cells of an expression as its own text or type says them: truth values, the literals of a CASE, parts of dates."""
    if (known := of_type(name, type_)) is not None:
        return known
    if isinstance(value, exp.Case) and (cases := of_case(value, type_)):
        return declare(name=name, type=type_, values=cases, nulls=value.args.get("default") is None)
    return stated(value, name, type_, type_of)


def _values(value: exp.Expr, type_: str, conditions: Sequence[exp.Expr]) -> Sequence[Scalar] | None:
    """What conditions list of an expression, without what others of them exclude; None where they do not."""
    text = value.sql("duckdb")
    own = [node for node in conditions if _others(node, text) == 0]
    for node in own:
        if isinstance(node, exp.In) and _is(node.this, text) and node.expressions:
            asked = node.expressions
        elif (compared := _compared(node, text)) is not None and compared[0] is exp.EQ:
            asked = [compared[1]]
        else:
            continue
        asked = [one for one in asked if not isinstance(one.unnest(), exp.Null)]  # which no value is equal to
        if isinstance(find(type_), Whole):  # and no whole number is equal to 2.5
            asked = [one for one in asked if (number := _number(one)) is None or number.denominator == 1]
        found = [
            literal(one) if (number := _number(one)) is None or number.denominator > 1 else int(number) for one in asked
        ]
        text_of_number = type_ != "VARCHAR" and any(isinstance(one, str) for one in found)
        if None in found or text_of_number or type_ in _DATED or type_.startswith("DECIMAL"):
            found = _evaluated([f"CAST(({one.sql('duckdb')}) AS {type_})" for one in asked])
        if type_.startswith("DECIMAL"):  # whose digits a double may not hold
            found = [None if one is None else declared_point(column_type(type_), str(one)) for one in found]
        known = [one for one in dict.fromkeys(found) if one is not None]
        if known and None not in found:
            return _kept(known, value, type_, own)
    if isinstance(whole := find(type_), Whole) and whole.numeric:
        low, high = _range(own, text)
        if low is None or high is None:
            return None
        low, high = max(low, whole.limits[0]), min(high, whole.limits[1])
        return range(low, high + 1) if low <= high else None
    if type_ == "DATE" and (days := _days(own, text)) is not None:
        return _kept(days, value, type_, own)
    return None


def _worked_out(
    value: exp.Expr, type_: str, conditions: Sequence[exp.Expr], type_of: Callable[[exp.Expr], str], name: str
) -> Attribute | None:
    """What an expression may be, of one column whose values, or whose days, conditions list."""
    columns = {column.sql("duckdb"): column for column in value.find_all(exp.Column)}
    if len(columns) != 1 or isinstance(value, exp.Column):
        return None
    ((text, column),) = columns.items()
    own_type = type_of(column)
    values = _values(column, own_type, conditions)
    if values is None and own_type in ("TIMESTAMP", "DATE"):
        finest = finest_unit(value, text)
        if finest is not None:
            values = _times([node for node in conditions if _others(node, text) == 0], text, finest)
    if not values or (isinstance(values, range) and values[-1] - values[0] > MOST_CELLS):
        return None
    shown = value.copy().transform(lambda node: exp.column("x") if node.sql("duckdb") == text else node)
    asked = f"TRY(CAST(({shown.sql('duckdb')}) AS {type_}))"
    source = f"(SELECT CAST(unnest(?::VARCHAR[]) AS {own_type}) AS x)"
    return selected(name, type_, f"SELECT {asked} FROM {source}", [list(map(str, values))])


def _days(conditions: Sequence[exp.Expr], text: str) -> list[Scalar] | None:
    """The days from the least to the largest time that conditions allow; None where they do not say."""
    found = _times(conditions, text, "DAY")
    return None if found is None else [str(time)[:10] for time in found]


def _times(conditions: Sequence[exp.Expr], text: str, unit: str) -> list[Scalar] | None:
    """The starts of the days, hours, minutes or seconds from the least to the largest time that conditions allow; None as above."""
    lows: list[str] = []
    highs: list[str] = []
    before = "- INTERVAL 1 MICROSECOND"
    for shown, start, stop, end in _views(text):
        for node in conditions:
            if shown.startswith("YEAR(") and any(
                (one := _number(each)) is not None and one.denominator > 1 for each in node.iter_expressions()
            ):
                continue
            if isinstance(node, exp.Between) and _is(node.this, shown):
                lows.append(start.format(node.args["low"].sql("duckdb")))
                highs.append(f"{stop.format(node.args['high'].sql('duckdb'))} {before}")
            elif (compared := _compared(node, shown)) is not None:
                how, other = compared[0], compared[1].sql("duckdb")
                if how in (exp.GT, exp.GTE, exp.EQ):
                    lows.append((stop if how is exp.GT else start).format(other))
                if how in (exp.LT, exp.LTE, exp.EQ):
                    highs.append(f"{(end if how is exp.LT else stop).format(other)} {before}")
    if not lows or not highs:
        return None
    asked = f"SELECT greatest({', '.join(lows)}), least({', '.join(highs)})"
    try:
        with alone() as connection:
            low, high = connection.execute(asked).fetchall()[0]
            if low is None or high is None or low > high or (high - low).total_seconds() > MOST_CELLS * UNITS[unit]:
                return None
            listed = f"unnest(generate_series(date_trunc('{unit}', ?::TIMESTAMP), ?::TIMESTAMP, INTERVAL 1 {unit}))"
            return [str(time) for (time,) in connection.execute(f"SELECT {listed}", [low, high]).fetchall()]
    except (duckdb.Error, TypeError, OverflowError):  # of years that Python does not know
        return None


def _views(text: str) -> list[tuple[str, str, str, str]]:
    """What conditions compare of a time: itself, its day, its year.

    With it SQL of three moments of a constant: its first, that behind its last, and that behind the last of what is below it. The last one
    is the end of a day where a day is compared with a time of it.
    """
    time, day, year = "TRY_CAST(({0}) AS TIMESTAMP)", "TRY_CAST(({0}) AS DATE)", "make_date(({0})::INTEGER, 1, 1)"
    morrow = f"({day} + INTERVAL 1 DAY)"
    return [
        (text, time, f"({time} + INTERVAL 1 MICROSECOND)", time),
        (
            f"CAST({text} AS DATE)",
            f"{day}::TIMESTAMP",
            morrow,
            f"CASE WHEN {time} > {day}::TIMESTAMP THEN {morrow} ELSE {day}::TIMESTAMP END",
        ),
        (f"YEAR({text})", f"{year}::TIMESTAMP", f"({year} + INTERVAL 1 YEAR)", f"{year}::TIMESTAMP"),
    ]


def _kept(found: list[Scalar], value: exp.Expr, type_: str, conditions: Sequence[exp.Expr]) -> list[Scalar]:
    """The values that satisfy the conditions."""
    text = value.sql("duckdb")
    others = [one.copy().transform(lambda n: exp.column("x") if n.sql("duckdb") == text else n) for one in conditions]
    asked = " AND ".join(f"TRY(CAST(({one.sql('duckdb')}) AS BOOLEAN))" for one in others)
    try:
        with alone() as connection:
            rows = connection.execute(
                f"SELECT i FROM (SELECT CAST(unnest(?::VARCHAR[]) AS {type_}) AS x, unnest(range({len(found)})) AS i) WHERE {asked}",
                [list(map(str, found))],
            ).fetchall()
    except duckdb.Error:
        return found
    return [found[i] for i in sorted(place for (place,) in rows)]


def _evaluated(texts: Sequence[str]) -> list[Scalar | None]:
    """Constants, as DuckDB works them out; None where one is none."""
    try:
        with alone() as connection:
            row = connection.execute(f"SELECT {', '.join(f'TRY({text})' for text in texts)}").fetchall()[0]
    except duckdb.Error:
        return [None] * len(texts)
    return [one if one is None or isinstance(one, bool | int | float | str) else str(one) for one in row]


def _is(node: exp.Expr, text: str) -> bool:
    return node.unnest().sql("duckdb") == text


def _others(node: exp.Expr, text: str) -> int:
    """How many columns a condition reads besides an expression; 1 where it does not read that, or has a subquery."""
    if node.find(exp.Query):
        return 1
    without = node.copy().transform(lambda one: exp.Null() if one.sql("duckdb") == text else one)
    return len(list(without.find_all(exp.Column))) + (without == node)


def _compared(node: exp.Expr, text: str) -> tuple[type[exp.Expr], exp.Expr] | None:
    """(how, with what constant) a condition compares an expression."""
    if type(node) not in _TURNED:
        return None
    if _is(node.this, text):
        return type(node), node.expression
    return (_TURNED[type(node)], node.this) if _is(node.expression, text) else None


def _number(node: exp.Expr) -> Fraction | None:
    """A literal number, exactly."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        value = _number(inner.this)
        return None if value is None else -value
    return Fraction(inner.name) if isinstance(inner, exp.Literal) and not inner.is_string else None


def _range(conditions: Sequence[exp.Expr], text: str) -> tuple[int | None, int | None]:
    """The smallest and the largest whole number that conditions allow; None where they do not say."""
    lows: list[int] = []
    highs: list[int] = []

    def bound(node: exp.Expr, into: list[int], more: int = 0) -> None:
        if (found := _number(node)) is not None:
            inside = math.ceil(found) if into is lows else math.floor(found)
            into.append(inside + (more if inside == found else 0))

    for node in conditions:
        if isinstance(node, exp.Between) and _is(node.this, text):
            bound(node.args["low"], lows)
            bound(node.args["high"], highs)
        elif (compared := _compared(node, text)) is not None:
            how, other = compared
            if how in (exp.GT, exp.GTE):
                bound(other, lows, how is exp.GT)
            elif how in (exp.LT, exp.LTE):
                bound(other, highs, -(how is exp.LT))
    return (max(lows) if lows else None), (min(highs) if highs else None)
