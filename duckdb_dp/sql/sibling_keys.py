"""Keys such as (order, line): the column that tells the rows of one parent apart gets its values once the parents are known.

It looks at synthetic rows alone.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from duckdb_dp.counting.encode import quote
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types.base import InUnits
from duckdb_dp.domain.types.numbers import Decimal, Whole
from duckdb_dp.synthesis.database import Table

PLACE, NUMBER, MOVED = "_dp_place", "_dp_number", "_dp_moved"
"""Columns that no table of the user's has."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SiblingKey:
    """A column of a key, which differs between rows that agree in the key's other columns, its siblings.

    Attributes:
        column: the column.
        type: its DuckDB type.
        among: the key's other columns.
        attribute: how it is declared; None where it is not, and siblings are numbered from 1.
        believed: whether no constraint keeps rows apart, so that those for which no value is left stay as they were drawn.
    """

    column: str
    type: str
    among: tuple[str, ...]
    attribute: Attribute | None = None
    believed: bool = False

    def rows(self, rows: str, names: Sequence[str]) -> str:
        """SELECT of the rows of a SELECT, in which siblings differ; those for which no value is left are gone, or not apart."""
        if self.attribute is None:
            return self._numbered(rows)
        return self._moved(rows, self.attribute, names)

    def _numbered(self, rows: str) -> str:
        dtype = types.column_type(self.type)
        number = f"row_number() OVER (PARTITION BY {_list(self.among)} ORDER BY {quote(self.column)})"
        room = "" if dtype.key_room is None else f" WHERE {NUMBER} <= {dtype.key_room}"
        value = dtype.key("", NUMBER)
        return (
            f"SELECT * EXCLUDE ({NUMBER}) REPLACE ({value} AS {quote(self.column)}) "
            f"FROM (SELECT *, {number} AS {NUMBER} FROM ({rows})){room}"
        )

    def _moved(self, rows: str, attribute: Attribute, names: Sequence[str]) -> str:
        """The rows, of which those that repeat a sibling's value move to the next value that is free, or to the last ones.

        With places p(1) <= p(2) <= ... of k siblings among n values, the i-th moves up to u(i) = i + max(p(j) - j, j <= i), and back to
        i + min(min(u(j), n) - j, j >= i): all differ, at most n, and no other place is as near. Texts that nobody declared are numbered:
        other, other-2, ..., as those of siblings differ.
        """
        place, value, size = _places(attribute, quote(self.column))
        siblings = f"PARTITION BY {_list(self.among)}, {PLACE} IS NULL"
        order = ", ".join([PLACE, *map(quote, names)])
        whole = " AND ".join(f"{name} IS NOT NULL" for name in [*map(quote, self.among), PLACE])
        placed = f"SELECT *, {place} AS {PLACE} FROM ({rows})"
        numbered = f"SELECT *, row_number() OVER ({siblings} ORDER BY {order}) AS {NUMBER} FROM ({placed})"
        up = f"SELECT *, {NUMBER} + max({PLACE} - {NUMBER}) OVER ({siblings} ORDER BY {NUMBER}) AS {MOVED} FROM ({numbered})"
        back = (
            f"SELECT * REPLACE ({NUMBER} + min(least({MOVED}, {size}) - {NUMBER}) OVER ({siblings} ORDER BY {NUMBER} DESC) AS {MOVED}) "
            f"FROM ({up})"
        )
        free = f"{whole} AND {MOVED} >= 1"
        kept = quote(self.column)
        if _numbers_others(attribute):
            kept = f"CASE WHEN {PLACE} IS NULL AND {NUMBER} > 1 THEN {kept} || '-' || {NUMBER} ELSE {kept} END"
        left = "" if self.believed else f" WHERE ({MOVED} >= 1) IS NOT FALSE OR NOT ({whole})"
        return (
            f"SELECT * EXCLUDE ({PLACE}, {NUMBER}, {MOVED}) REPLACE (CASE WHEN {free} THEN {value} ELSE {kept} END "
            f"AS {quote(self.column)}) FROM ({back}){left}"
        )


def note(keys: Iterable[SiblingKey]) -> list[str]:
    """What the notes of a table say of them."""
    found = []
    for key in keys:
        among = ", ".join(key.among)
        if key.attribute is None:
            found.append(f"{key.column} counts from 1 among rows of the same {among}")
        else:
            kept = ", where one is left" if key.believed else ""
            numbered = ", and other texts are numbered" if _numbers_others(key.attribute) else ""
            found.append(
                f"of rows of the same {among} those that repeat a {key.column} get the next one{kept}{numbered}"
            )
    return found


def sibling_keys(
    table: Table,
    own: Sequence[str],
    numbered: Collection[str],
    attributes: Mapping[str, Attribute],
    referring: Collection[str],
    referred: Collection[str],
) -> tuple[SiblingKey, ...]:
    """The keys of a table of which one column is decided by siblings.

    Args:
        table: the table.
        own: the columns that identify its rows, a key of the table or declared.
        numbered: the columns that are numbered.
        attributes: the columns that are drawn.
        referring: the columns that hold a parent's key.
        referred: the columns to which rows of the table itself refer.
    """
    keys = list(dict.fromkeys([*table.keys, *table.believed, *([tuple(own)] if own else [])]))
    found: dict[str, SiblingKey] = {}
    for key in keys:
        column = _number_of(key, table, numbered, attributes, referring) or _value_of(key, attributes, referring)
        if column is None or column in found or column in referred:
            continue
        if sum(column in other for other in keys) == 1:
            among = tuple(other for other in key if other != column)
            found[column] = SiblingKey(
                column=column,
                type=table.columns[column],
                among=among,
                attribute=attributes.get(column),
                believed=key not in table.keys,
            )
    return tuple(found.values())


def room(
    table: Table, keys: Iterable[SiblingKey], attributes: Mapping[str, Attribute], columns: Collection[str]
) -> int | None:
    """How many rows of one parent can have keys that differ, which a constraint of the table demands; None for any number.

    They are as many as the values of the drawn columns of a key, of several keys the least number of them. Rows with NULL or 'other'
    may be more, and so may rows that have another parent too.

    Args:
        table: the table.
        keys: its keys of siblings.
        attributes: the columns that are drawn.
        columns: those that refer to the parent.
    """
    found = list[int]()
    for key in keys:
        drawn = [attributes.get(column) for column in (key.column, *key.among) if column not in columns]
        if {key.column, *key.among} not in map(set, table.keys) or not {*columns} <= {*key.among}:
            continue
        placed = [one for one in drawn if one is not None and _has_places(one) and not (one.nulls or one.other)]
        if len(placed) == len(drawn):
            found.append(math.prod(_places(one, "")[2] for one in placed))
    return min(found, default=None)


def wide(keys: Iterable[SiblingKey], numbered: Iterable[str], referring: Collection[str]) -> Iterator[str]:
    """The numbered columns that number more rows than they will have values: those of siblings, and those that parents replace."""
    late = {key.column for key in keys if key.attribute is None}
    return (column for column in numbered if column in late or column in referring)


def _number_of(
    key: Sequence[str],
    table: Table,
    numbered: Collection[str],
    attributes: Mapping[str, Attribute],
    referring: Collection[str],
) -> str | None:
    """The one number of a key whose other columns are drawn; None where there is no such, or it is no whole number."""
    numbers = [column for column in key if column in numbered and column not in referring]
    others = [column for column in key if column not in numbers]
    if len(numbers) != 1 or not others or not all(column in referring or column in attributes for column in others):
        return None
    dtype = types.find(table.columns[numbers[0]])
    return numbers[0] if isinstance(dtype, Whole) else None


def _value_of(key: Sequence[str], attributes: Mapping[str, Attribute], referring: Collection[str]) -> str | None:
    """The attribute of a key of several columns whose values have most places, of several the last one; None where there is no such.

    So the fewest rows find no value left.
    """
    others = [column for column in key if column not in referring]
    if len(key) == 1 or not all(column in attributes for column in others):
        return None
    placed = [column for column in reversed(others) if _has_places(attributes[column])]
    return max(placed, key=lambda column: _places(attributes[column], "")[2], default=None)


def _has_places(attribute: Attribute) -> bool:
    """Whether its values are whole numbers, decimals, days, or listed."""
    dtype = attribute.dtype
    in_units = attribute.type == "DATE" or (isinstance(dtype, Whole | Decimal) and dtype.units("") is not None)
    return attribute.kind == "values" or in_units


def _numbers_others(attribute: Attribute) -> bool:
    """Whether values that nobody declared are a text, which one row of siblings can have."""
    return attribute.other and attribute.type == "VARCHAR"


def _places(attribute: Attribute, column: str) -> tuple[str, str, int]:
    """SQL of the place of a value from 1, SQL of the value at ``MOVED``, and the number of places."""
    if attribute.kind == "values":
        listed = attribute.dtype.array([*attribute.points])
        return f"nullif(list_position({listed}, {column}), 0)", f"({listed})[{MOVED}]", len(attribute.points)
    dtype = attribute.dtype
    assert isinstance(dtype, InUnits)
    if attribute.kind == "integers":
        low, high = map(int, attribute.points)
    else:
        low, high = int(attribute.held[0][0]), int(attribute.held[-1][1])
    return f"{dtype.units(column)} - ({low}) + 1", dtype.from_units(f"{MOVED} - 1 + ({low})"), high - low + 1


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(quote, names))
