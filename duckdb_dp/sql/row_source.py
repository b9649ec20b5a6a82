"""The rows that the direct route reads: whose they are, which ones count, and in which group each is."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import duckdb

from duckdb_dp.counting.encode import array, encode, full_name, inside, literal, quote
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.request import Request
from duckdb_dp.sql import found_cells, found_groups, render
from duckdb_dp.sql.exact_types import WHOLE
from duckdb_dp.sql.opaque import opaque, whole
from duckdb_dp.sql.session import Session

KEYS = WHOLE | {"HUGEINT", "UHUGEINT", "UUID", "DATE", "VARCHAR"}
"""Types of columns of units whose names are the same everywhere, and of which only texts have a collation."""


def position(sizes: Sequence[str], cells: Sequence[str]) -> str:
    """A cell's place in row-major order."""
    position = f"{cells[0]}::BIGINT"
    for size, cell in zip(sizes[1:], cells[1:], strict=True):
        position = f"({position}) * {size} + {cell}"
    return position


def owner(request: Request, part: GroupedSums) -> list[str]:
    """The columns that name whose row it is, quoted; none where every row is a unit."""
    if part.source is not None:
        return [quote(name) for name in part.source.owner]
    return [] if request.unit is None else render.unit_columns(request)


def owner_types(session: Session, request: Request, part: GroupedSums) -> tuple[str, ...]:
    """The types of the columns that name whose row it is, as committed; none where they cannot be seen or are no ``KEYS``."""
    unit = owner(request, part)
    if not unit:
        return ()
    if part.source is not None and part.source.types:
        return part.source.types if KEYS.issuperset(part.source.types) else ()
    with session.looking() as cursor:
        try:
            found = None if cursor is None else cursor.sql(f"SELECT {', '.join(unit)} FROM {_relation(request, part)}")
        except duckdb.Error:
            return ()
        types = () if found is None else tuple(map(str, found.types))
    return types if KEYS.issuperset(types) else ()


def told_apart(column: str, type_: str) -> str:
    """SQL of a unit's column of a known type: of texts their bytes, as under a collation several people could be one.

    NULL, and so nobody's, should it have another type in the statement's transaction.
    """
    found = f"encode(TRY_CAST({column} AS VARCHAR))" if type_ == "VARCHAR" else column
    return f"CASE WHEN typeof({column}) = {literal(type_)} THEN {found} END"


def _relation(request: Request, part: GroupedSums) -> str:
    return full_name(request.catalog, request.schema, request.table) if part.source is None else f"({part.source.sql})"


def rows_of(
    request: Request, part: GroupedSums, attributes: Sequence[Attribute], unit: Sequence[str], aliases: Sequence[str]
) -> str:
    """SELECT of the unit and the columns in use, of the rows that satisfy the condition and lie inside the groups' domain."""
    columns = dict(part.columns) | {attribute.name: attribute.type for attribute in attributes}
    named = [f"{column} AS {alias}" for column, alias in zip(unit, aliases, strict=True)]
    # The declared type, whatever became of the column since.
    fallible = _in_fallible(part)
    texts = {name: f"TRY_CAST({quote(name)} AS {type_})" for name, type_ in columns.items()}
    casts = [
        f"{opaque(text, columns[name]) if name.lower() in fallible else text} AS {quote(name)}"
        for name, text in texts.items()
    ]
    conditions = [f"{alias} IS NOT NULL" for alias in aliases] + [text for text in map(inside, attributes) if text]
    if part.where:
        from duckdb_dp.sql.total_conditions import parts  # for import time: it brings sqlglot

        conditions += [f"({text})" if total else holds(text) for text, total in parts(part.where, columns)]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (
        f"SELECT * FROM (SELECT {', '.join([*named, *casts]) or '1 AS _dp_one'} FROM {_relation(request, part)}){where}"
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Rows with the group of each.

    Attributes:
        rows: their SQL.
        codes: SQL of cells whose ``position`` is the group; NULL of a row that is in none. There are none where all rows are one group.
        sizes: SQL of how many there are of each.
    """

    rows: str
    codes: list[str]
    sizes: list[str]


def placed(
    request: Request, part: GroupedSums, unit: Sequence[str], aliases: Sequence[str], found: Sequence[str]
) -> Placed:
    """The rows of ``rows_of`` with their groups.

    Args:
        request, part: whose they are.
        unit, aliases: as in ``rows_of``.
        found: the columns whose values the statement itself finds.
    """
    attributes = [attribute for attribute in request.attributes if attribute.name in part.clique]
    declared = [attribute for attribute in attributes if attribute.name not in found]
    later = [attribute for attribute in attributes if attribute.name in found]
    coded = encode(declared, f"({rows_of(request, part, attributes, unit, aliases)})", guarded=True)
    codes, sizes = coded.codes, [str(attribute.size) for attribute in declared]
    groups = found_groups.base(part, request, [attribute.name for attribute in later]) if later else part
    if groups.groups is not None and codes:
        # The group itself: a unit counts once in each group, and not once in each of its cells.
        numbers = array("INTEGER", [None if group < 0 else group for group in groups.groups])
        codes, sizes = [f"({numbers})[{position(sizes, codes)} + 1]"], [str(groups.size)]
    if later:
        more, widths = found_cells.coded(found, later)
        codes, sizes = [*codes, *more], [*sizes, *widths]
    return Placed(rows=coded.rows, codes=codes, sizes=sizes)


def _in_fallible(part: GroupedSums) -> frozenset[str]:
    """The columns, in small letters, of expressions of which the optimizer may leave out a part that fails on a value."""
    conditions = tuple(text for text in (part.where, *(one.where for one in part.sums)) if text)
    return _fallible(conditions, tuple(one.value for one in part.sums if one.value), part.columns)


@lru_cache(maxsize=1024)
def _fallible(
    conditions: tuple[str, ...], values: tuple[str, ...], columns: tuple[tuple[str, str], ...]
) -> frozenset[str]:
    from sqlglot import exp, parse_one  # for import time

    from duckdb_dp.sql.total_conditions import parts  # for import time: it brings sqlglot

    types = dict(columns)
    texts = [text for condition in conditions for text, total in parts(condition, types) if not total]
    nodes = [parse_one(text, dialect="duckdb") for text in [*texts, *values]]
    return frozenset(
        column.name.lower() for node in nodes if not whole(node, types) for column in node.find_all(exp.Column)
    )


def holds(condition: str) -> str:
    """SQL that is true where the condition is, and false where it is not, is NULL or fails."""
    return f"coalesce(TRY(CAST(({condition}) AS BOOLEAN)), false)"
