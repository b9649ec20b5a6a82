"""The columns of tables, as the statement that declares something of them sees them."""

import json
from typing import Any

from duckdb_dp.counting.encode import literal
from duckdb_dp.domain.attribute import Attribute
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset
from duckdb_dp.sql.session import Session

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


def context(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL of the columns of the call's dataset."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    return catalog_query([(dataset.catalog, dataset.schema, dataset.name)])


def seen_columns(session: Session, arguments: Arguments, place: Place, seen: str) -> Catalog:
    """The columns that ``context`` has selected, or those of the attached table."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    found: Catalog = json.loads(seen or "[]")
    return found + session.attached.columns([(dataset.catalog, dataset.schema, dataset.name)])


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


def described(found: Attribute) -> dict[str, Any]:
    """What dp_attribute and dp_attributes say of a declared attribute."""
    return {"attribute": found.name, "type": found.type, "cells": found.size}
