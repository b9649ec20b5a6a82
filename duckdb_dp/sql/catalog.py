"""Tables, columns, keys and foreign keys, as they are in the database's catalog."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

import duckdb

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import literal
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, as_sql, nearest
from duckdb_dp.sql.arguments import Arguments, Place, candidates, find_dataset, name_parts
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Table, tables


def query(schemas: Sequence[tuple[str, str]]) -> str:
    """SELECT of one JSON text: the columns and constraints of all tables and views of some (catalog, schema)."""

    def inside(alias: str) -> str:
        found = " OR ".join(
            f"(lower({alias}.database_name) = {literal(catalog.lower())} AND "
            f"lower({alias}.schema_name) = {literal(schema.lower())})"
            for catalog, schema in dict.fromkeys(schemas)
        )
        return found or "false"

    columns = (
        "SELECT list({'catalog': c.database_name, 'schema': c.schema_name, 'table': c.table_name, 'column': c.column_name, "
        "'type': c.data_type, 'default': c.column_default, 'view': t.table_name IS NULL} "
        "ORDER BY c.table_name, c.column_index) FROM duckdb_columns() c "
        "LEFT JOIN duckdb_tables() t USING (database_name, schema_name, table_name) "
        f"WHERE NOT c.internal AND ({inside('c')})"
    )
    constraints = (
        "SELECT list({'catalog': k.database_name, 'schema': k.schema_name, 'table': k.table_name, "
        "'kind': k.constraint_type, 'columns': k.constraint_column_names, 'parent': k.referenced_table, "
        "'key': k.referenced_column_names, 'condition': k.expression} "
        "ORDER BY k.table_name, k.constraint_index) FROM duckdb_constraints() k "
        f"WHERE {inside('k')}"
    )
    return f"(SELECT to_json({{'columns': ({columns}), 'constraints': ({constraints})}})::VARCHAR)"


_ALL = """
SELECT 'column' AS kind, database_name, schema_name, table_name, column_index, column_name, data_type, column_default,
NULL::VARCHAR[], NULL::VARCHAR[] FROM duckdb_columns() WHERE NOT internal
UNION ALL SELECT 'table', database_name, schema_name, table_name, table_oid, sql, NULL, NULL, NULL, NULL FROM duckdb_tables()
UNION ALL SELECT 'constraint', database_name, schema_name, table_name, constraint_index, constraint_type, referenced_table, expression,
constraint_column_names, referenced_column_names FROM duckdb_constraints()
"""
"""The same as rows, of all schemas: planned in half of the time, which every call pays."""


_VIEWS = "SELECT 'view', database_name, schema_name, view_name, view_oid, {text} FROM duckdb_views() WHERE NOT internal"

_DEFINITIONS = f"""
SELECT 'table' AS kind, database_name, schema_name, table_name, table_oid, sql FROM duckdb_tables()
UNION ALL {_VIEWS.format(text="NULL")}
UNION ALL SELECT 'database', database_name, NULL, NULL, NULL, type FROM duckdb_databases()
"""
"""Without the texts of views, which take half of the time to write, as DuckDB writes those of its own ones too."""

Definitions = frozenset[tuple[Any, ...]]
"""(kind, database, schema, name, identifier, text) of tables and views."""


@final
class _Known:
    """The tables that were read last, while no table is made, altered or dropped, and as long as there is no view.

    The text of a table says all that is read of it, and a table that is made anew has another identifier. The columns of a view
    follow other tables, so that it is read each time.
    """

    def __init__(self) -> None:
        self._last: tuple[Definitions, dict[frozenset[tuple[str, str]], dict[Name, Table]]] | None = None

    def tables(self, session: Session, schemas: frozenset[tuple[str, str]]) -> dict[Name, Table]:
        """Those of some schemas."""
        last = self._last  # which another thread may replace, and never changes
        if last is not None and schemas in last[1] and last[0] == definitions(session):
            return last[1][schemas]
        with session.looking() as cursor:
            if cursor is None:
                return {}
            rows = cursor.execute(_ALL).fetchall()
        now, found = _definitions(rows), _of_schemas(rows, schemas)
        before = {} if last is None or last[0] != now else last[1]
        self._last = None if now is None else (now, {**before, schemas: found})
        return found


def _definitions(rows: Sequence[tuple[Any, ...]]) -> Definitions | None:
    """What ``definitions`` finds, of the rows of ``_ALL``; None where there is a view, or a table of which nothing is said."""
    found = frozenset(row[:6] for row in rows if row[0] == "table")
    named = {row[1:4] for row in found}
    plain = all(row[5] is not None for row in found) and all(row[1:4] in named for row in rows)
    return found if plain else None


def definitions(session: Session) -> Definitions:
    """The tables and views of all schemas as committed, with the statements that make them; none where the database is closed."""
    return _looked(session)[0]


def kinds(session: Session) -> dict[str, str]:
    """What the databases are that are attached: 'duckdb', or another engine's."""
    return _looked(session)[1]


def _looked(session: Session) -> tuple[Definitions, dict[str, str]]:
    def look() -> tuple[Definitions, dict[str, str]]:
        with session.looking() as cursor:
            rows = [] if cursor is None else cursor.execute(_DEFINITIONS).fetchall()
            views = any(row[0] == "view" for row in rows)
            texts = cursor.execute(_VIEWS.format(text="sql")).fetchall() if cursor is not None and views else []
        databases = {row[1]: row[5] for row in rows if row[0] == "database"}
        return frozenset([*(row for row in rows if row[0] == "table"), *texts]), databases

    return session.once("definitions", look)


def seen(cursor: duckdb.DuckDBPyConnection, schemas: Collection[tuple[str, str]]) -> dict[Name, Table]:
    """The tables of some schemas, in small letters."""
    return _of_schemas(cursor.execute(_ALL).fetchall(), schemas)


def _of_schemas(rows: Sequence[tuple[Any, ...]], schemas: Collection[tuple[str, str]]) -> dict[Name, Table]:
    found: dict[str, list[tuple[Any, ...]]] = {"column": [], "table": [], "constraint": []}
    for kind, *row in rows:
        if (row[0].lower(), row[1].lower()) in schemas:
            found[kind].append(tuple(row))
    plain = {row[:3] for row in found["table"]}
    columns, constraints = (sorted(found[kind], key=lambda row: row[2:4]) for kind in ("column", "constraint"))
    return tables(
        [
            {**_place(row), "column": row[4], "type": row[5], "default": row[6], "view": row[:3] not in plain}
            for row in columns
        ],
        [
            {**_place(row), "kind": row[4], "parent": row[5], "condition": row[6], "columns": row[7], "key": row[8]}
            for row in constraints
        ],
    )


def _place(row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("catalog", "schema", "table"), row[:3], strict=True))


def read(text: str) -> dict[Name, Table]:
    """The tables of the JSON text that ``query`` selects."""
    found: Mapping[str, Any] = json.loads(text)
    return tables(found["columns"] or [], found["constraints"] or [])


def committed(session: Session, schemas: Sequence[tuple[str, str]]) -> dict[Name, Table]:
    """The committed tables of some schemas, and all attached ones: what can be read while a statement is bound."""
    wanted = frozenset((catalog.lower(), schema.lower()) for catalog, schema in schemas)

    return session.once(wanted, lambda: session.kept(_Known).tables(session, wanted)) | attached(session)


def attached(session: Session) -> dict[Name, Table]:
    """The attached tables of other engines; like views, they have no known constraints."""
    return {
        source.full_name: Table(name=source.full_name, columns=source.columns, view=True) for source in session.attached
    }


def options(session: Session, asked: object, place: Place) -> list[Name]:
    """The full names that a name may stand for: here in DuckDB's own order of search, and then of attached tables."""
    parts = name_parts(asked)
    return list(dict.fromkeys([*candidates(parts, *place), *session.attached.named(parts)]))


def find(known: Mapping[Name, Table], name: Name) -> Table | None:
    """The table of that name, in any letter case."""
    wanted = tuple(part.lower() for part in name)
    return next((table for full, table in known.items() if tuple(part.lower() for part in full) == wanted), None)


def of(session: Session, dataset: Dataset) -> Table | None:
    """A dataset's own table or view as committed; None where it cannot be seen, such as a TEMP table."""
    place = (dataset.catalog, dataset.schema)
    if dataset.member is not None and dataset.member.view is not None:
        columns = {column["column"]: column["type"] for column in of_view(session, dataset)}
        return Table(name=(*place, dataset.name), columns=columns, view=True)
    return find(committed(session, [place]), (*place, dataset.name))


Catalog = list[dict[str, Any]]
"""Columns that the user's transaction sees: catalog, schema, table, column, type, nullable, and perhaps checks and enums."""


def columns_query(names: list[tuple[str, str, str]], more: str = "") -> str:
    """SELECT of one JSON text with the columns of the named tables and views, as the user's transaction sees them.

    Args:
        names: of the tables and views.
        more: further entries of a column c of theirs, in SQL.
    """
    one_of = " OR ".join(
        f"(lower(c.database_name) = {literal(catalog.lower())} AND lower(c.schema_name) = {literal(schema.lower())} "
        f"AND lower(c.table_name) = {literal(table.lower())})"
        for catalog, schema, table in names
    )
    return (
        "(SELECT to_json(list({'catalog': database_name, 'schema': schema_name, 'table': table_name, 'column': column_name, "
        f"'type': data_type, 'nullable': is_nullable{more}}} ORDER BY column_index))::VARCHAR "
        f"FROM duckdb_columns() c WHERE {one_of})"
    )


_CONSTRAINTS = (
    ", 'checks': (SELECT list(constraint_text) FROM duckdb_constraints() k "
    "WHERE k.database_name = c.database_name AND k.schema_name = c.schema_name AND k.table_name = c.table_name "
    "AND k.constraint_type = 'CHECK'), 'enums': (SELECT list(labels) FROM duckdb_types() WHERE logical_type = 'ENUM' "
    "AND NOT internal)"
)


def context(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL of the columns of the call's dataset."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    return columns_query([(dataset.catalog, dataset.schema, dataset.name)])


def constrained(session: Session, arguments: Arguments, place: Place) -> str:
    """The same, each with what CHECK says of its table, and with the named ENUMs."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    return columns_query([(dataset.catalog, dataset.schema, dataset.name)], _CONSTRAINTS)


def seen_columns(session: Session, arguments: Arguments, place: Place, seen: str) -> Catalog:
    """The columns that ``context`` has selected, or those of the attached table."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    if dataset.member is not None and dataset.member.view is not None:
        return of_view(session, dataset)
    found: Catalog = json.loads(seen or "[]")
    return found + session.attached.columns([(dataset.catalog, dataset.schema, dataset.name)])


def of_view(session: Session, dataset: Dataset) -> Catalog:
    """The columns of a named relation."""
    from duckdb_dp.sql import views  # for import time: it brings sqlglot

    view, name = views.of(session, dataset), (dataset.catalog, dataset.schema, dataset.name)
    place = dict(zip(("catalog", "schema", "table"), name, strict=True))
    columns = {} if view is None else view.columns
    return [
        {**place, "column": column, "type": type_, "nullable": True, "checks": None, "enums": None}
        for column, type_ in columns.items()
    ]


def find_column(columns: Catalog, table: str, asked: object) -> dict[str, Any]:
    """The column of that name, in any letter case.

    Raises:
        DPError: there is none.
    """
    for column in columns:
        if isinstance(asked, str) and column["column"].lower() == asked.lower():
            return column
    names = nearest((column["column"] for column in columns), asked) or "none: the table was dropped"
    raise DPError(f"'{table}' has no column {as_sql(asked)}; its columns are: {names}.")


def described(found: Attribute) -> dict[str, Any]:
    """The row that dp_attribute and dp_attributes return for a declared attribute."""
    return {"attribute": found.name, "type": found.type, "cells": found.size}
