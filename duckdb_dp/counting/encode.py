"""SQL that turns a column's value into its cell number, or NULL where the row is left out, and back. It never raises an error.

A synthetic value is stored as a cell number. In bins its fraction is the position in the bin: 3.25 is a quarter through bin 3.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.counting.places import Places, packed
from duckdb_dp.domain import types
from duckdb_dp.domain.differences import Difference
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import Scalar, Whole
from duckdb_dp.errors import identifier

quote, literal = identifier, types.literal

SEARCHED = 128
"""Longer lists of uneven bins are joined. A nested CASE visits each of its leaves for every few rows: on 2 million rows it
takes as long as a join at about 160 leaves, and 7 times as long at 1,000."""


def full_name(catalog: str, schema: str, table: str) -> str:
    """The quoted full name: what no CTE or TEMP table can shadow."""
    return ".".join(map(quote, (catalog, schema, table)))


def array(type_: str, values: Iterable[Scalar | None]) -> str:
    """A SQL list of values of a type."""
    return types.column_type(type_).array(values)


def union_all(selects: Sequence[str]) -> str:
    """All rows of some SELECTs: halves in parentheses, as DuckDB 1.4 reads no more than 1,000 nested expressions."""
    if len(selects) == 1:
        return selects[0]
    middle = len(selects) // 2
    return f"({union_all(selects[:middle])} UNION ALL {union_all(selects[middle:])})"


def code_type(size: int) -> str:
    """The smallest unsigned integer type for ``size`` cells."""
    return "UTINYINT" if size <= 255 else "USMALLINT" if size <= 65_535 else "UINTEGER"


@dataclass(frozen=True, slots=True)
class Coded:
    """SQL of the cell numbers of rows.

    Attributes:
        rows: FROM clause: the rows, each with its place in every long list of edges or values that has to be searched.
        codes: per attribute its cell number: 0 .. size - 1, or NULL for a row outside the domain.
    """

    rows: str
    codes: list[str]


def encode(attributes: Iterable[Attribute], rows: str, *, first: int = 0, guarded: bool = False) -> Coded:
    """SQL of the cell numbers of some columns of rows.

    Even bins take arithmetic, short lists nested CASE, and long ones an index of buckets or a join with the sorted list.
    No cast in it can fail and no arithmetic can overflow, whatever a row holds that ``inside`` lets through.

    Args:
        attributes: the declarations, under the columns' names in ``rows``.
        rows: what to select FROM.
        first: number of the first one in names that the SQL makes, where rows were encoded already.
        guarded: whether a condition on cells stands above, which DuckDB may work out of rows that are not ``inside``, before it leaves
            these out.
    """
    codes = []
    for i, attribute in enumerate(attributes, first):
        column = quote(attribute.name)
        declared = attribute.base
        code, rows = _coded(attribute, column, rows, i)
        if attribute.other:
            if attribute.kind != "values":
                code = f"CASE WHEN {_within(attribute, column)} THEN {code} END"
            code = f"coalesce({code}, {declared})"
        if attribute.hidden:
            code = _with_rest(attribute, column, code)
        if attribute.line:
            code = _on_line(attribute, column, code)
        if guarded and inside(attribute) is not None and not _total(attribute):
            code = f"CASE WHEN {_within(attribute, column)} THEN {code} END"
        if attribute.nulls:
            code = f"CASE WHEN {column} IS NULL THEN {declared + attribute.other} ELSE {code} END"
        codes.append(f"TRY_CAST({code} AS {code_type(attribute.size)})")
    return Coded(rows, codes)


def _coded(attribute: Attribute, column: str, rows: str, number: int) -> tuple[str, str]:
    """SQL of the declared cell of a value that is ``inside``, and the rows with what this takes."""
    points, dtype = attribute.points, attribute.dtype
    if not points:  # all values are others
        return "NULL", rows
    if attribute.kind == "integers":
        # Plain arithmetic keeps the column's statistics, and with them DuckDB's fastest GROUP BY (1.8 times a CASE's).
        return _offset(attribute, column), rows
    if attribute.kind == "bins":
        code = dtype.even_bin(column, points)
    else:
        code = None if attribute.line else dtype.place(column, points)
    if code is not None:
        return code, rows
    if (
        attribute.kind == "bins"
        and len(points) > SEARCHED + 1
        and (found := dtype.numbered(column, points)) is not None
    ):
        return _placed(*found, rows, number)
    known, order = dtype.comparable(column, points), [*range(len(points) - 1)]
    if attribute.kind == "values":
        order = sorted(range(len(points)), key=lambda i: dtype.order(points[i]))
    if len(order) <= SEARCHED:
        leaves = [
            str(i) if attribute.kind == "bins" else _listed(attribute, known.value, known.literal(i), str(i))
            for i in order
        ]
        return _search(known.value, [known.literal(i) for i in order], leaves), rows
    low, cell = f"_dp_low{number}", f"_dp_cell{number}"
    lows = types.sql_list([known.texts[i] for i in order], known.type)
    cells = types.sql_list([str(i) for i in order], "INTEGER") if attribute.kind == "values" else f"range({len(order)})"
    # The last of the sorted edges or values that is at most the row's.
    rows += f" ASOF LEFT JOIN (SELECT unnest({lows}) AS {low}, unnest({cells}) AS {cell}) ON {known.value} >= {low}"
    return cell if attribute.kind == "bins" else _listed(attribute, known.value, low, cell), rows


def _listed(attribute: Attribute, value: str, point: str, cell: str) -> str:
    """SQL of the cell of a value of which a listed one is the last that is not above it."""
    if attribute.line:
        return f"CASE WHEN {value} = {point} THEN 2 * {cell} ELSE 2 * {cell} + 1 END"
    return f"CASE WHEN {value} = {point} THEN {cell} END"


def _placed(value: str, edges: NDArray[np.float64], rows: str, number: int) -> tuple[str, str]:
    """The same for many uneven bins whose lower edges are doubles: by their buckets, or by a join that sorts the rows."""
    known, cell, low = f"_dp_known{number}", f"_dp_cell{number}", f"_dp_low{number}"
    text = f"(SELECT {literal(packed(edges))} AS {known})"
    if (places := Places.of(edges)) is None:
        lists = f"(SELECT _dp_numbers({known}, NULL) AS {low} FROM {text})"
        listed = f"SELECT unnest({low}) AS {low}, unnest(range({len(edges)})) AS {cell} FROM {lists}"
        return f"coalesce({cell}, 0)", f"{rows} ASOF LEFT JOIN ({listed}) ON {value} >= {low}"
    columns = [f"{low}_{i}" for i in range(places.most + 1)]
    # The lists first: UNNEST carries what else it reads along with each of its rows.
    lists = ", ".join(f"_dp_numbers({known}, {i}) AS {column}" for i, column in enumerate(columns))
    listed = ", ".join(f"unnest({column}) AS {column}" for column in columns[1:])
    listed = f"CAST(unnest(range({len(places.before)})) AS INTEGER) AS {cell}, CAST(unnest({low}_0) AS INTEGER) AS {low}_0, {listed}"
    buckets = f"SELECT {listed} FROM (SELECT {lists} FROM {text})"
    return places.place(value, columns), f"{rows} LEFT JOIN ({buckets}) ON {places.bucket(value)} = {cell}"


def shuffled(values: Sequence[str]) -> str:
    """SQL of a number by which rows are in an order that has nothing to do with their values.

    Hashed twice: DuckDB combines the hashes of several values so that among rows of one unit some came first half as often again as others.
    """
    return f"hash(hash({', '.join(values)}))"


def with_differences(rows: str, differences: Sequence[Difference]) -> str:
    """Rows with the differences of some of their columns, under the differences' names."""
    if not differences:
        return rows
    return f"(SELECT *, {', '.join(f'{one.sql} AS {quote(one.name)}' for one in differences)} FROM {rows})"


def one_to_one(attribute: Attribute) -> bool:
    """Whether rows ``inside`` have the same cell only if they have the same value, so that groups can be encoded instead."""
    return attribute.kind == "integers" and not attribute.other and not attribute.hidden and not attribute.line


def inside(attribute: Attribute) -> str | None:
    """SQL condition that a row is inside the attribute's domain; None where ``encode`` itself gives NULL, or never."""
    if attribute.other or attribute.hidden or attribute.line or attribute.kind == "values":
        return None
    column = quote(attribute.name)
    condition = _within(attribute, column)
    return f"({condition} OR {column} IS NULL)" if attribute.nulls else condition


def outside(attribute: Attribute) -> str:
    """SQL condition: the value is not NULL and none of the declared ones (before 'other')."""
    column = quote(attribute.name)
    if attribute.kind != "values":
        return f"({column} IS NOT NULL AND NOT {_within(attribute, column)})"
    if (place := attribute.dtype.place(column, attribute.points)) is not None:
        return f"({column} IS NOT NULL AND {place} IS NULL)"
    known = attribute.dtype.comparable(column, attribute.points)
    return f"({column} IS NOT NULL AND {known.value} NOT IN ({', '.join(map(known.literal, range(len(known.texts))))}))"


def _with_rest(attribute: Attribute, column: str, code: str) -> str:
    """SQL of the cell of a value, hidden ones among them; of NULL where that has none."""
    place = {what: attribute.shown + i for i, what in enumerate(attribute.hidden)}
    if "below" in place:
        within, below = _within(attribute, column), _below(attribute, column)
        code = f"CASE WHEN {within} THEN {code} WHEN {below} THEN {place['below']} ELSE {place['above']} END"
    elif "unlisted" in place:
        code = f"coalesce({code}, {place['unlisted']})"
    return f"CASE WHEN {column} IS NULL THEN {place['null']} ELSE {code} END" if "null" in place else code


def _on_line(attribute: Attribute, column: str, code: str) -> str:
    """SQL of the cell of a value where those are in the order of all values; NULL of NULL and NaN, which have no place there."""
    below, known = _below(attribute, column), f"{column} IS NOT NULL"
    if attribute.dtype.continuous:
        known += f" AND NOT isnan({column})"
    if attribute.kind == "values":
        return f"CASE WHEN {known} THEN CASE WHEN {below} THEN 0 ELSE {code} + 1 END END"
    within, last = _within(attribute, column), attribute.size - 1
    return f"CASE WHEN {within} THEN {code} + 1 WHEN {below} THEN 0 WHEN {known} THEN {last} END"


def _below(attribute: Attribute, column: str) -> str:
    """SQL condition: the value lies below the first edge."""
    low = attribute.points[0]
    if attribute.kind == "integers":
        return f"{column} < {low}"
    known = attribute.dtype.comparable(column, (low, attribute.points[-1]))
    return f"{known.value} < {known.literal(0)}"


def _within(attribute: Attribute, column: str) -> str:
    """SQL condition: the value lies between the first and the last edge."""
    if attribute.kind == "integers":
        low, high = attribute.points
        return f"{column} BETWEEN {low} AND {high}"
    ends = attribute.dtype.comparable(column, (attribute.points[0], attribute.points[-1]))
    return f"{ends.value} BETWEEN {ends.literal(0)} AND {ends.literal(1)}"


def _total(attribute: Attribute) -> bool:
    """Whether a cell's number is worked out of every value without an overflow; the cast after it has TRY."""
    dtype = attribute.dtype
    return attribute.kind == "integers" and isinstance(dtype, Whole) and max(map(abs, dtype.limits)) < 2**62


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


def decode(attribute: Attribute, code: str, *, rounded: bool = False) -> str:
    """SQL expression for a drawn cell as a value in the attribute's own type; NULL for NULL.

    A bin gives one of the values that the type has in it, all alike: whole numbers and decimals to the last digit, dates
    and times to the type's unit. 'other' is a label in VARCHAR columns and NULL in others, since nothing is known of it.

    Args:
        attribute: its declaration.
        code: SQL of what is drawn.
        rounded: whether numbers of FLOAT and DOUBLE of which no ``decimals`` are declared, times and timestamps are as coarse as
            their bins allow: a hundredth of the narrowest bin, or finer.
    """
    if attribute.kind == "bins":
        cell, share = f"CAST(floor({code}) AS BIGINT) + 1", f"({code} - floor({code}))"
        by, decimals = coarseness(attribute) if rounded else (1, attribute.decimals)
        drawn = attribute.dtype.drawn(attribute.points, cell, share, by)
        return drawn if decimals is None else _to_decimals(attribute, decimals, cell, share, drawn)
    labels: list[Any] = [*attribute.labels()]
    if attribute.other and attribute.type != "VARCHAR":
        labels[attribute.size - 1 - attribute.nulls] = None
    return f"({attribute.dtype.array(labels)})[CAST({code} AS BIGINT) + 1]"


WITHIN = 100
"""Steps of synthetic values in the narrowest bin, at least: with decimals, the first three digits of its width count."""


MOST_DECIMALS = 15
"""Of a synthetic number of FLOAT or DOUBLE, where its bins are narrow."""


def coarseness(attribute: Attribute) -> tuple[int, int | None]:
    """(units of a step, decimals) of synthetic values; None where values have no decimals, or as many as the type."""
    kind = attribute.dtype
    widths = [high - low for low, high in attribute.held]
    if not kind.continuous:
        return next((by for by in kind.coarser if min(widths) >= WITHIN * by), 1), attribute.decimals
    narrowest = min(map(float, widths))
    if attribute.decimals is not None or not 0 < narrowest < math.inf:
        return 1, attribute.decimals
    digits = math.ceil(math.log10(WITHIN) - math.log10(narrowest) - 1e-6)  # of the narrowest a quotient overflows
    return 1, min(max(0, digits), MOST_DECIMALS)


def in_decimals(attribute: Attribute, decimals: int) -> tuple[list[int], list[int], list[bool]]:
    """The numbers with so many decimals in each bin of doubles: (the least times 10^decimals, how many, whether doubles hold them)."""
    scale = 10**decimals
    exact = [Fraction(str(point)) * scale for point in attribute.points]
    lows = [math.ceil(edge) for edge in exact[:-1]]
    highs = [*(math.ceil(edge) - 1 for edge in exact[1:-1]), math.floor(exact[-1])]
    numbers = [high - low + 1 for low, high in zip(lows, highs, strict=True)]
    known = [n > 0 and max(abs(low), abs(low + n)) < 2**52 for low, n in zip(lows, numbers, strict=True)]
    return lows, numbers, known


def _to_decimals(attribute: Attribute, decimals: int, cell: str, share: str, drawn: str) -> str:
    """SQL of one of the numbers with so many decimals in a bin of doubles, all alike; ``drawn`` in a bin without one.

    u / 10^d, of whole numbers that doubles hold, is the double nearest to it, and so lies in the bin as the number does.
    """
    scale, (lows, numbers, known) = 10**decimals, in_decimals(attribute, decimals)

    def picked(values: Iterable[float], type_: str = "DOUBLE") -> str:
        return f"(CAST([{', '.join(map(literal, values))}] AS {type_}[]))[{cell}]"

    low, count = (
        picked(float(value if one else 0) for value, one in zip(values, known, strict=True))
        for values in (lows, numbers)
    )
    least, most = (picked(float(end) for end in ends) for ends in zip(*attribute.held, strict=True))
    number = f"CAST(({low} + floor({share} * {count})) / {float(scale)!r}::DOUBLE AS {attribute.type})"
    inside = f"CAST(least(greatest({number}, {least}), {most}) AS {attribute.type})"
    return f"CASE WHEN {picked(known, 'BOOLEAN')} THEN {inside} ELSE {drawn} END"
