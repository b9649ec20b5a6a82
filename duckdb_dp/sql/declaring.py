"""CALLs of the curator: what is private, and which values each column may take."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import literal, outside, quote
from duckdb_dp.domain import types
from duckdb_dp.domain.attribute import Attribute, canonical, declare
from duckdb_dp.domain.types import as_text
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.request import units
from duckdb_dp.sql.parse import Arguments, find_dataset, flag
from duckdb_dp.sql.render import full_name

if TYPE_CHECKING:
    from duckdb_dp.sql.functions import Session

Rows = list[dict[str, Any]]
Catalog = list[dict[str, Any]]
"""Columns that the user's transaction sees: catalog, schema, table, column, type, nullable, checks."""


def catalog_query(names: list[tuple[str, str, str]]) -> str:
    """SELECT of one JSON text with the columns of the named tables and views, as the user's transaction sees them."""

    def one_of(alias: str) -> str:
        return " OR ".join(
            f"(lower({alias}.database_name) = {literal(c.lower())} AND lower({alias}.schema_name) = {literal(s.lower())} "
            f"AND lower({alias}.table_name) = {literal(t.lower())})"
            for c, s, t in names
        )

    return (
        "(SELECT to_json(list({'catalog': database_name, 'schema': schema_name, 'table': table_name, 'column': column_name, "
        "'type': data_type, 'nullable': is_nullable, 'checks': (SELECT list(constraint_text) FROM duckdb_constraints() k "
        "WHERE k.database_name = c.database_name AND k.schema_name = c.schema_name AND k.table_name = c.table_name "
        "AND k.constraint_type = 'CHECK'), 'enums': (SELECT list(labels) FROM duckdb_types() WHERE logical_type = 'ENUM' "
        "AND NOT internal)} ORDER BY column_index))::VARCHAR "
        f"FROM duckdb_columns() c WHERE {one_of('c')})"
    )


def attribute(session: "Session", arguments: Arguments, place: tuple[str, str], columns: Catalog) -> Rows:
    """CALL dp_attribute: declares one column's domain."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    column = find_column(columns, dataset.name, arguments["attribute"])
    words = ("values", "bins", "low", "high", "step")
    for word in ("values", "bins"):
        if arguments.get(word) is not None and not isinstance(arguments[word], list):
            raise DPError(f"{word} is {as_sql(arguments[word])}; write a list, e.g. {word} := [1, 2, 3].")
    found = declare(
        name=column["column"],
        type=column["type"],
        other=flag(arguments, "other"),
        nulls=flag(arguments, "nulls"),
        **{name: arguments.get(name) for name in words},
    )
    session.ledger.declare(dataset, found.name, canonical(found.to_json()))
    return [_described(found)]


def attributes(session: "Session", arguments: Arguments, place: tuple[str, str], columns: Catalog) -> Rows:
    """CALL dp_attributes: takes what the schema says of the columns, and lists what still needs a declaration."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    declared = session.declared(dataset)
    rows: Rows = []
    for column in columns:
        name, type_ = column["column"], column["type"]
        if any(name in columns for columns in units(dataset.unit)):
            continue
        found = declared.get(name)
        if found is None and (words := _from_schema(column)) is not None:
            found = declare(name=name, type=type_, nulls=column["nullable"], **words)
            session.ledger.declare(dataset, name, canonical(found.to_json()))
        if found is not None:
            rows.append({**_described(found), "declare": _read_off(dataset, column)})
        else:
            dtype = types.find(type_)
            call = (
                "-- " + types.refusal(type_, f"attribute '{name}'")
                if dtype is None
                else f"CALL dp_attribute({dataset.argument}, {literal(name)}, {dtype.declared_by})"
            )
            rows.append({"attribute": name, "type": type_, "cells": None, "declare": call})
    return rows


def _nameless_enum(column: Mapping[str, Any]) -> bool:
    """Whether a column is an ENUM that nobody has made by CREATE TYPE: its labels may be what was in the data."""
    dtype = types.find(column["type"])
    return isinstance(dtype, types.Enum) and [*dtype.members] not in (column.get("enums") or [])


def _read_off(dataset: Dataset, column: Mapping[str, Any]) -> str | None:
    """What to write where the labels of an ENUM may have been read off the data, which its type does not tell."""
    if not _nameless_enum(column):
        return None
    call = f'CALL dp_attribute({dataset.argument}, {literal(column["column"])}, "values" := [...])'
    return f"-- an ENUM without a name, as pandas makes one of the data; if so, list what there may be: {call}"


def _from_schema(column: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments of ``declare`` that a column's type or CHECK constraints give: public knowledge."""
    dtype = types.find(column["type"])
    if dtype is not None and dtype.members is not None:
        return {}
    name = rf'(?:{re.escape(quote(column["column"]))}|(?<![\w".]){re.escape(column["column"])}(?![\w"]))'
    number = r"\(?(-?\d+)\)?(?![\w.]|\s*[*/%+-])"
    for check in column["checks"] or []:
        low = high = None
        if re.search(r"\b(OR|NOT|CASE)\b", check, re.IGNORECASE):
            continue  # not a range, or not one that every row keeps to
        if match := re.search(rf"{name}\s+BETWEEN\s+{number}\s+AND\s+{number}", check, re.IGNORECASE):
            low, high = int(match[1]), int(match[2])
        elif (above := re.search(rf"{name}\s*>=\s*{number}", check)) and (
            below := re.search(rf"{name}\s*<=\s*{number}", check)
        ):
            low, high = int(above[1]), int(below[1])
        if low is not None and high is not None and isinstance(dtype, types.Whole):
            return {"low": low, "high": high, "step": 1}
    return None


def domain(session: "Session", arguments: Arguments, place: tuple[str, str], columns: Catalog) -> Rows:
    """FROM dp_domain: every cell of every declared attribute."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    return [
        {
            "attribute": found.name,
            "position": position,
            "label": None if label is None else as_text(label),
            "low": low,
            "high": high,
        }
        for found in session.declared(dataset).values()
        for position, (label, (low, high)) in enumerate(zip(found.labels(), map(_edges, found.bounds()), strict=True))
    ]


def check(dataset: Dataset, declared: Mapping[str, Attribute]) -> str:
    """SELECT for dp_check: exact numbers of rows outside the declared domain, for the curator's eyes only."""
    if not declared:
        raise DPError(
            f"'{dataset.name}' has no declared attributes. Declare them: CALL dp_attributes({dataset.argument})."
        )
    table = full_name(dataset.catalog, dataset.schema, dataset.name)
    return " UNION ALL ".join(
        f"SELECT {literal(found.name)} AS attribute, count(*) AS rows, count(*) FILTER ({outside(found)}) AS outside, "
        f"count(*) FILTER ({quote(found.name)} IS NULL) AS nulls, "
        f"{literal('other' if found.other else 'left out')} AS outside_goes_to, "
        f"{literal('its own cell' if found.nulls else 'other' if found.other else 'left out')} AS nulls_go_to, "
        f"'NOT PRIVATE' AS note FROM {table}"
        for found in declared.values()
    )


def find_column(columns: Catalog, table: str, asked: object) -> dict[str, Any]:
    """The column of that name, in any letter case.

    Raises:
        DPError: there is none.
    """
    for column in columns:
        if isinstance(asked, str) and column["column"].lower() == asked.lower():
            return column
    names = few(column["column"] for column in columns) or "none: the table was dropped"
    raise DPError(f"'{table}' has no column {as_sql(asked)}; its columns are: {names}.")


def _described(found: Attribute) -> dict[str, Any]:
    return {"attribute": found.name, "type": found.type, "cells": found.size}


def _edges(bounds: tuple[Any, Any]) -> tuple[str | None, str | None]:
    low, high = bounds
    return (None if low is None else str(low)), (None if high is None else str(high))


CALLS: dict[str, tuple[dict[str, str], Callable[..., Rows]]] = {
    "dp_attribute": ({"attribute": "VARCHAR", "type": "VARCHAR", "cells": "BIGINT"}, attribute),
    "dp_attributes": ({"attribute": "VARCHAR", "type": "VARCHAR", "cells": "BIGINT", "declare": "VARCHAR"}, attributes),
    "dp_domain": (
        {"attribute": "VARCHAR", "position": "INTEGER", "label": "VARCHAR", "low": "VARCHAR", "high": "VARCHAR"},
        domain,
    ),
}
"""SQL name -> (columns and types, body). Bodies see declarations and the catalog, never rows."""


def names_for(
    session: "Session", function: str, arguments: Arguments, place: tuple[str, str]
) -> list[tuple[str, str, str]]:
    """Full names of the tables whose columns a CALL needs to see."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    return [(dataset.catalog, dataset.schema, dataset.name)]
