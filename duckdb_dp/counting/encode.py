"""SQL that turns a column's value into its cell number, or NULL where the row is left out, and back. It never raises an error.

A synthetic value is stored as a cell number. In bins its fraction is the position in the bin: 3.25 is a quarter through bin 3.
"""

from collections.abc import Iterable
from typing import Any

from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import Scalar, Whole
from duckdb_dp.errors import identifier

quote, literal = identifier, types.literal


def full_name(catalog: str, schema: str, table: str) -> str:
    """The quoted full name: what no CTE or TEMP table can shadow."""
    return ".".join(map(quote, (catalog, schema, table)))


def array(type_: str, values: Iterable[Scalar | None]) -> str:
    """A SQL list of values of a type."""
    return types.column_type(type_).array(values)


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
        value, texts = attribute.dtype.comparable(column, attribute.points)
        condition = f"{value} BETWEEN {texts[0]} AND {texts[-1]}"
    return f"({condition} OR {column} IS NULL)" if attribute.nulls else condition


def outside(attribute: Attribute) -> str:
    """SQL condition: the value is not NULL and none of the declared ones (before 'other')."""
    column = quote(attribute.name)
    return f"({column} IS NOT NULL AND {_inside(attribute, column)} IS NULL)"


def _inside(attribute: Attribute, column: str) -> str:
    points, dtype = attribute.points, attribute.dtype
    if attribute.kind == "integers":
        low, high = points
        return f"CASE WHEN {column} BETWEEN {low} AND {high} THEN {_offset(attribute, column)} END"
    if attribute.kind == "values" and (place := dtype.place(column, points)) is not None:
        return place
    value, texts = dtype.comparable(column, points)
    if attribute.kind == "bins":
        tree = _search(value, texts[:-1], [str(i) for i in range(len(texts) - 1)])
        return f"CASE WHEN {value} >= {texts[0]} AND {value} <= {texts[-1]} THEN {tree} END"
    order = sorted(range(len(points)), key=lambda i: dtype.order(points[i]))
    leaves = [f"CASE WHEN {value} = {texts[i]} THEN {i} END" for i in order]
    return _search(value, [texts[i] for i in order], leaves)


def _offset(attribute: Attribute, column: str) -> str:
    assert isinstance(attribute.dtype, Whole)
    return attribute.dtype.offset(column, int(attribute.points[0]))


def _search(value: str, lows: list[str], leaves: list[str]) -> str:
    """Binary search as nested CASE: leaf i for lows[i] <= value < lows[i + 1]."""
    if len(leaves) == 1:
        return leaves[0]
    half = len(leaves) // 2
    below, above = _search(value, lows[:half], leaves[:half]), _search(value, lows[half:], leaves[half:])
    return f"CASE WHEN {value} < {lows[half]} THEN {below} ELSE {above} END"


def decode(attribute: Attribute, code: str) -> str:
    """SQL expression for a drawn cell as a value in the attribute's own type; NULL for NULL.

    A bin gives one of the values that the type has in it, all alike: whole numbers and decimals to the last digit, dates
    and times to the type's unit. 'other' is a label in VARCHAR columns and NULL in others, since nothing is known of it.

    Args:
        attribute: its declaration.
        code: SQL of what is drawn.
    """
    if attribute.kind == "bins":
        cell, share = f"CAST(floor({code}) AS BIGINT) + 1", f"({code} - floor({code}))"
        return attribute.dtype.drawn(attribute.points, cell, share)
    labels: list[Any] = [*attribute.labels()]
    if attribute.other and attribute.type != "VARCHAR":
        labels[attribute.size - 1 - attribute.nulls] = None
    return f"({attribute.dtype.array(labels)})[CAST({code} AS BIGINT) + 1]"
