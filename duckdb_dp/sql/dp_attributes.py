"""CALL dp_attributes: declares what the schema implies for a table's columns, and lists what each other column needs."""

import re
from collections.abc import Mapping
from typing import Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import canonical, declare
from duckdb_dp.request import units
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset
from duckdb_dp.sql.catalog import context, described, seen_columns
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {"attribute": "VARCHAR", "type": "VARCHAR", "cells": "BIGINT", "declare": "VARCHAR"}


def rows(session: Session, arguments: Arguments, place: Place, seen: str) -> Rows:
    """CALL dp_attributes: declares what the schema implies for the columns, and lists what still needs a declaration."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    declared = session.declared(dataset)
    rows: Rows = []
    for column in seen_columns(session, arguments, place, seen):
        name, type_ = column["column"], column["type"]
        if any(name in columns for columns in units(dataset.unit)):
            continue
        found = declared.get(name)
        if found is None and (words := _from_schema(column)) is not None:
            found = declare(name=name, type=type_, nulls=column["nullable"], **words)
            session.ledger.declare(dataset, name, canonical(found.to_json()))
        if found is not None:
            rows.append({**described(found), "declare": _read_off(dataset, column)})
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
    """Whether a column is an ENUM without a CREATE TYPE: its labels may have been read off the data."""
    dtype = types.find(column["type"])
    return isinstance(dtype, types.Enum) and [*dtype.members] not in (column.get("enums") or [])


def _read_off(dataset: Dataset, column: Mapping[str, Any]) -> str | None:
    """The statement to write where the labels of an ENUM may have been read off the data."""
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


FUNCTION = register(Function(name="dp_attributes", rows=rows, columns=COLUMNS, context=context, curator=True))
