"""CALL dp_attribute: declares which values one column may take."""

from duckdb_dp.domain import types
from duckdb_dp.domain.domain import canonical, declare
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql import bulk
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset, flag
from duckdb_dp.sql.catalog import context, described, find_column, seen_columns
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {"attribute": "VARCHAR", "type": "VARCHAR", "cells": "BIGINT"}


def rows(session: Session, arguments: Arguments, place: Place, seen: str) -> Rows:
    """CALL dp_attribute: declares one column's domain."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    column = find_column(seen_columns(session, arguments, place, seen), dataset.name, arguments["attribute"])
    words = ("values", "bins", "low", "high", "step", "decimals")
    for word in ("values", "bins"):
        if arguments.get(word) is not None and not isinstance(arguments[word], list):
            raise DPError(f"{word} is {as_sql(arguments[word])}; write a list, e.g. {word} := [1, 2, 3].")
    given = {name: arguments.get(name) for name in words}
    if given["step"] == bulk.AUTO:
        dtype = types.column_type(column["type"], f"attribute '{column['column']}'")
        given["step"] = bulk.step(dtype, given["low"], given["high"])
    found = declare(
        name=column["column"],
        type=column["type"],
        other=flag(arguments, "other"),
        nulls=flag(arguments, "nulls"),
        **given,
    )
    session.ledger.declare(dataset, found.name, canonical(found.to_json()))
    return [described(found)]


FUNCTION = register(Function(name="dp_attribute", rows=rows, columns=COLUMNS, context=context, curator=True))
