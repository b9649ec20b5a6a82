"""SQL text: from a column's value to its cell number, NULL when the row is left out. It never raises."""

import math
from collections.abc import Iterable
from fractions import Fraction

from duckdb_dp.domain import units
from duckdb_dp.domain.attribute import Attribute
from duckdb_dp.domain.units import Scalar
from duckdb_dp.errors import identifier

quote = identifier


def full_name(catalog: str, schema: str, table: str) -> str:
    """The quoted full name: what no CTE or TEMP table can shadow."""
    return ".".join(map(quote, (catalog, schema, table)))


def literal(value: Scalar | None, type_: str | None = None) -> str:
    """A SQL literal, cast to a type where one is given."""
    if value is None:
        text = "NULL"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = "'" + value.replace("'", "''") + "'"
    elif isinstance(value, float):
        text = f"{value!r}::DOUBLE"
    else:
        text = f"{value}::UHUGEINT" if value >= 2**127 else str(value)  # beside small ones DuckDB would choose BIGINT
    return f"CAST({text} AS {type_})" if type_ else text


def array(type_: str, values: Iterable[Scalar | None]) -> str:
    """A SQL list of values of a type. Decimals are written as text: a cast from DOUBLE is off in their last digits."""
    if type_.startswith("DECIMAL"):
        values = [value if value is None else _decimal(type_, value) for value in values]
    return f"CAST([{', '.join(map(literal, values))}] AS {type_}[])"


def _decimal(type_: str, value: Scalar) -> str:
    return units.decimal_text(int(units.amount(type_, value)), units.digits(type_)[1])


def code_type(size: int) -> str:
    """The smallest unsigned integer type for ``size`` cells."""
    return "UTINYINT" if size <= 255 else "USMALLINT" if size <= 65_535 else "UINTEGER"


def encode(attribute: Attribute) -> str:
    """SQL expression for the cell number of an attribute: 0 .. size - 1, or NULL for a row outside the domain.

    No cast in it can fail and no arithmetic can overflow, whatever a row holds that ``inside`` lets through.
    """
    column = quote(attribute.name)
    declared = attribute.size - attribute.other - attribute.nulls
    if attribute.kind == "integers" and not attribute.other:
        # Plain arithmetic keeps the column's statistics, and with them DuckDB's fastest GROUP BY (1.8 times a CASE's).
        code = _offset(attribute, column)
    else:
        code = _inside(attribute, column)
    if attribute.other:
        code = f"coalesce({code}, {declared})"
    if attribute.nulls:
        code = f"CASE WHEN {column} IS NULL THEN {declared + attribute.other} ELSE {code} END"
    return f"CAST({code} AS {code_type(attribute.size)})"


def inside(attribute: Attribute) -> str | None:
    """SQL condition that a row is inside the attribute's domain; None where ``encode`` itself gives NULL, or never."""
    if attribute.other or attribute.kind == "values":
        return None
    column = quote(attribute.name)
    if attribute.kind == "integers":
        low, high = attribute.points
        condition = f"{column} BETWEEN {low} AND {high}"
    else:
        value, texts = _comparable(attribute, column)
        condition = f"{value} BETWEEN {texts[0]} AND {texts[-1]}"
    return f"({condition} OR {column} IS NULL)" if attribute.nulls else condition


def outside(attribute: Attribute) -> str:
    """SQL condition: the value is not NULL and none of the declared ones (before 'other')."""
    column = quote(attribute.name)
    return f"({column} IS NOT NULL AND {_inside(attribute, column)} IS NULL)"


def _inside(attribute: Attribute, column: str) -> str:
    points = attribute.points
    if attribute.kind == "integers":
        low, high = points
        return f"CASE WHEN {column} BETWEEN {low} AND {high} THEN {_offset(attribute, column)} END"
    value, texts = _comparable(attribute, column)
    if attribute.kind == "bins":
        tree = _search(value, texts[:-1], [str(i) for i in range(len(texts) - 1)])
        return f"CASE WHEN {value} >= {texts[0]} AND {value} <= {texts[-1]} THEN {tree} END"
    if attribute.family == "text":
        # A cast to ENUM is one hash look-up a row, whatever the number of values.
        return f"enum_code(TRY_CAST(CAST({column} AS VARCHAR) AS ENUM({', '.join(map(literal, points))})))"
    if attribute.family == "boolean":
        return "CASE " + " ".join(f"WHEN {column} = {text} THEN {i}" for i, text in enumerate(texts)) + " END"
    order = sorted(range(len(points)), key=lambda i: attribute.sort_key(points[i]))
    leaves = [f"CASE WHEN {value} = {texts[i]} THEN {i} END" for i in order]
    return _search(value, [texts[i] for i in order], leaves)


def _offset(attribute: Attribute, column: str) -> str:
    wide = {"UBIGINT": "HUGEINT", "HUGEINT": "HUGEINT", "UHUGEINT": "UHUGEINT"}.get(attribute.type, "BIGINT")
    return f"CAST({column} AS {wide}) - ({attribute.points[0]})"


def _comparable(attribute: Attribute, column: str) -> tuple[str, list[str]]:
    """The column and the points as SQL that can be compared without a failing or lossy cast."""
    if attribute.family == "temporal":
        return column, [literal(point, attribute.type) for point in attribute.points]
    if attribute.type.startswith("DECIMAL") and (exact := _decimals(attribute)) is not None:
        return column, exact
    if attribute.family == "real" and attribute.type != "FLOAT":
        return f"CAST({column} AS DOUBLE)", [literal(float(point)) for point in attribute.points]
    if attribute.type == "FLOAT":
        return column, [literal(float(point), "FLOAT") for point in attribute.points]
    return column, [literal(point) for point in attribute.points]


def _decimals(attribute: Attribute) -> list[str] | None:
    """The points as decimals of the column's type, which is exact; None where an edge lies beyond all that it holds.

    An edge between two decimals is the upper of them, the last edge the lower.
    """
    least, most = units.limits(attribute.type)
    *points, last = [Fraction(units.amount(attribute.type, point)) for point in attribute.points]
    found = [*map(math.ceil, points), math.floor(last)]
    if any(not least <= number <= most for number in found[1:-1]):
        return None
    scale = units.digits(attribute.type)[1]
    texts = (units.decimal_text(min(max(number, least), most), scale) for number in found)
    return [literal(text, attribute.type) for text in texts]


def _search(value: str, lows: list[str], leaves: list[str]) -> str:
    """Binary search as nested CASE: leaf i for lows[i] <= value < lows[i + 1]."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    below, above = _search(value, lows[:half], leaves[:half]), _search(value, lows[half:], leaves[half:])
    return f"CASE WHEN {value} < {lows[half]} THEN {below} ELSE {above} END"
