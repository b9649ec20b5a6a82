"""CALL dp_attributes: declares what the schema, a STRUCT or a file says of a table's columns, and lists what each other needs."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import literal
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, canonical, declare
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.request import units
from duckdb_dp.sql import bulk, declarations, public_domains
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset
from duckdb_dp.sql.catalog import constrained, described, seen_columns
from duckdb_dp.sql.registry import Columns, Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {"attribute": "VARCHAR", "type": "VARCHAR", "cells": "BIGINT", "declare": "VARCHAR"}
WITH_DOMAINS = {"attribute": "VARCHAR", "type": "VARCHAR", "cells": "BIGINT", "domain": "VARCHAR", "declare": "VARCHAR"}


OF_UNIT = "-- this names the unit; if its values are people, they are no attribute, and synthetic rows would hold them"


def columns(arguments: Arguments) -> Columns:
    """The columns of the answer: with the domains, where they are given or saved."""
    given = arguments.get("domain") is not None or arguments.get("save") is not None
    return WITH_DOMAINS if given else COLUMNS


def rows(session: Session, arguments: Arguments, place: Place, seen: str) -> Rows:
    """CALL dp_attributes: declares, all or nothing; lists every column with its domain or with what it still needs."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    found = seen_columns(session, arguments, place, seen)
    given, kinds = _given(session, dataset, found, arguments.get("domain"))
    before = session.declared(dataset, decimals=True)
    new = {**_from_schema(dataset, found, {**before, **given}), **given}
    save = arguments.get("save")
    if save is not None and (not isinstance(save, str) or not save.strip() or "\0" in save):
        raise DPError(f"save is {as_sql(save)}; it is a file's name, e.g. save := 'domain.toml'.")
    now = {**before, **new}
    listed = [column for column in found if column["column"] in now or not _names_unit(dataset, column)]
    listed.sort(key=lambda column: column["column"] not in given)  # what was just declared stands first
    answer = [_row(dataset, column, now.get(column["column"]), kinds) for column in listed]
    if save is not None:
        from duckdb_dp.sql.domain_files import write

        _check_files(session)
        names = [column["column"] for column in found]
        missing = {row["attribute"]: _needs(row["type"]) for row in answer if row["cells"] is None}
        write(save, dataset.argument, (now[name] for name in names if name in now), missing)
    session.ledger.declare_all(dataset, {name: canonical(each.to_json()) for name, each in new.items()})
    return answer


def _given(
    session: Session, dataset: Dataset, found: list[dict[str, Any]], domain: object
) -> tuple[dict[str, Attribute], Mapping[str, str]]:
    """(the attributes that the second argument describes, what a file says of the others)."""
    if domain is None:
        return {}, {}
    keys = partial(public_domains.keys, session, dataset)
    if not isinstance(domain, str):
        return bulk.declared(dataset.name, found, domain, keys), {}
    from duckdb_dp.sql.domain_files import declared, read

    _check_files(session)
    said = read(domain, dataset.name, found)
    kinds = {name.lower(): kind for name, kind in said.kinds.items()}
    return declared(domain, dataset.name, found, said.shapes, keys), kinds


def _check_files(session: Session) -> None:
    """Refuse files where the database may not touch any.

    Raises:
        DPError: enable_external_access is off.
    """
    with session.looking() as cursor:
        row = None if cursor is None else cursor.execute("SELECT current_setting('enable_external_access')").fetchone()
    if row is not None and not row[0]:
        raise DPError("enable_external_access is off, so no file is read or written; give the domain in the statement.")


def _from_schema(dataset: Dataset, found: list[dict[str, Any]], known: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """What the schema says of columns that are not declared otherwise."""
    new = {}
    for column in found:
        name = column["column"]
        if name not in known and not _names_unit(dataset, column) and (words := bulk.from_schema(column)) is not None:
            new[name] = declare(name=name, type=column["type"], nulls=column["nullable"], **words)
    return new


def _names_unit(dataset: Dataset, column: Mapping[str, Any]) -> bool:
    return any(column["column"] in names for names in units(dataset.unit))


def _row(
    dataset: Dataset, column: Mapping[str, Any], found: Attribute | None, kinds: Mapping[str, str]
) -> dict[str, Any]:
    """A column with its domain, or with the statement that would declare it."""
    if found is not None and _names_unit(dataset, column):
        return {**described(found), "declare": OF_UNIT, "domain": bulk.shown(found)}
    if found is not None:
        return {**described(found), "declare": _read_off(dataset, column), "domain": bulk.shown(found)}
    name, type_ = column["column"], column["type"]
    dtype, kind = types.find(type_), kinds.get(name.lower())
    if dtype is None:
        call = "-- " + types.refusal(type_, f"attribute '{name}'")
    elif kind == "":
        call = "-- an identifier, as the file says: it needs no domain"
    else:
        call = declarations.call(dataset.argument, name, kind or dtype.declared_by)
    return {"attribute": name, "type": type_, "cells": None, "declare": call, "domain": None}


def _needs(type_: str) -> tuple[str, list[str]]:
    """(a type, what to fill in for it as lines of TOML)."""
    dtype = types.find(type_)
    if dtype is None:
        return f"{type_}: no domain works", []
    words = dtype.declared_by.replace('"', "").replace(":=", "=")
    return type_, re.findall(r"\w+ = (?:\[.*?\]|[^,]+)", words)


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


FUNCTION = register(Function(name="dp_attributes", rows=rows, columns=columns, context=constrained, curator=True))
