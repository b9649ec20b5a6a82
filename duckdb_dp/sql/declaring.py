"""CALLs of the curator: what is private, and which values each column may take."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from duckdb_dp.account.ledger import Dataset
from duckdb_dp.attribute import Attribute, as_text, canonical, declare, domain_of, enum_values
from duckdb_dp.budget import Budget
from duckdb_dp.data.encode import literal, outside, quote
from duckdb_dp.errors import DPError
from duckdb_dp.request import units
from duckdb_dp.sql.parse import Arguments, candidates, find_dataset, flag, name_parts, word
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
        "AND k.constraint_type = 'CHECK')} ORDER BY column_index))::VARCHAR "
        f"FROM duckdb_columns() c WHERE {one_of('c')})"
    )


def protect(session: "Session", arguments: Arguments, place: tuple[str, str], columns: Catalog) -> Rows:
    """CALL dp_protect: one row that says what is now protected, and against whom."""
    asked = arguments["dataset"]
    found = list(dict.fromkeys((c["catalog"], c["schema"], c["table"]) for c in columns))
    if not found:
        raise DPError(
            f"there is no table or view '{asked}'. Create it first, or write its full name 'catalog.schema.table'."
        )
    if len(found) > 1:
        raise DPError(f"'{asked}' could be {' or '.join(repr('.'.join(name)) for name in found)}; write the full name.")
    catalog, schema, name = found[0]
    unit, max_rows = arguments.get("unit"), arguments.get("max_rows")
    if unit is not None:
        unit = _unit(columns, name, unit)
        if max_rows is None:
            raise DPError(
                f"unit {arguments['unit']!r} needs a bound on its rows: add max_rows := 5, say; further rows of a unit "
                "are left out."
            )
    accounting = word(arguments, "accounting", "") or None
    budget = Budget(**{name: arguments.get(name) for name in ("epsilon", "rho", "mu")}, delta=_budget_delta(arguments))
    if budget.epsilon is not None and budget.delta is None and accounting != "pure":
        raise DPError(
            f"epsilon needs a delta: CALL dp_protect('{asked}', epsilon := {budget.epsilon:g}, delta := 1e-9), "
            "or delta := 0 for pure DP."
        )
    dataset = session.ledger.protect(
        catalog=catalog,
        schema=schema,
        name=name,
        budget=budget,
        accounting=accounting,
        delta=None if budget.epsilon is not None else arguments.get("delta"),
        unit=unit,
        max_rows=1 if max_rows is None else max_rows,
    )
    session.remember_uncommitted(dataset)
    return [
        {
            "dataset": _full(dataset),
            "neighbours": dataset.neighbours,
            "accounting": dataset.accounting,
            "budget": dataset.budget,
            "epsilon": dataset.epsilon,
            "delta": dataset.delta,
        }
    ]


def _unit(columns: Catalog, table: str, asked: object) -> str:
    """A column, or several as the JSON that ``request.units`` reads: ['a', 'b'] are two units, ['a', ['b', 'c']] too."""
    given = asked if isinstance(asked, list) else [asked]
    if not 1 <= len(given) <= 2 or not all(given):
        raise DPError(
            f"unit is {asked!r}; name a column, or two that are both protected: unit := ['user_id', 'movie_id']."
        )
    found = [
        [_column(columns, table, part)["column"] for part in (one if isinstance(one, list) else [one])] for one in given
    ]
    if len(found) == 2 and found[0] == found[1]:
        raise DPError(f"unit is {asked!r}, the same twice; name it once.")
    return str(found[0][0]) if len(found) == 1 and len(found[0]) == 1 else canonical(found)


def _budget_delta(arguments: Arguments) -> Any:
    return arguments.get("delta") if arguments.get("rho") is None and arguments.get("mu") is None else None


def attribute(session: "Session", arguments: Arguments, place: tuple[str, str], columns: Catalog) -> Rows:
    """CALL dp_attribute: declares one column's domain."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    column = _column(columns, dataset.name, arguments["attribute"])
    words = ("values", "bins", "low", "high", "step")
    for name in ("values", "bins"):
        if arguments.get(name) is not None and not isinstance(arguments[name], list):
            raise DPError(f"{name} is {arguments[name]!r}; write a list, e.g. {name} := [1, 2, 3].")
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
            rows.append({**_described(found), "declare": None})
        else:
            domain = domain_of(type_)
            call = (
                f"-- {type_} has no domain; make it a number, a date or a text in a view"
                if domain is None
                else f"CALL dp_attribute({literal(dataset.name)}, {literal(name)}, {domain})"
            )
            rows.append({"attribute": name, "type": type_, "cells": None, "declare": call})
    return rows


def _from_schema(column: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments of ``declare`` that a column's type or CHECK constraints give: public knowledge."""
    if column["type"] == "BOOLEAN" or enum_values(column["type"]) is not None:
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
        if low is not None and high is not None and "INT" in column["type"]:
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
            f"'{dataset.name}' has no declared attributes. Declare them: CALL dp_attributes('{dataset.name}')."
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


def _column(columns: Catalog, table: str, asked: object) -> dict[str, Any]:
    for column in columns:
        if isinstance(asked, str) and column["column"].lower() == asked.lower():
            return column
    names = ", ".join(column["column"] for column in columns) or "none: the table was dropped"
    raise DPError(f"'{table}' has no column {asked!r}; its columns are: {names}.")


def _described(found: Attribute) -> dict[str, Any]:
    return {"attribute": found.name, "type": found.type, "cells": found.size}


def _edges(bounds: tuple[Any, Any]) -> tuple[str | None, str | None]:
    low, high = bounds
    return (None if low is None else str(low)), (None if high is None else str(high))


def _full(dataset: Dataset) -> str:
    return f"{dataset.catalog}.{dataset.schema}.{dataset.name}"


CALLS: dict[str, tuple[dict[str, str], Callable[..., Rows]]] = {
    "dp_protect": (
        {
            "dataset": "VARCHAR",
            "neighbours": "VARCHAR",
            "accounting": "VARCHAR",
            "budget": "DOUBLE",
            "epsilon": "DOUBLE",
            "delta": "DOUBLE",
        },
        protect,
    ),
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
    if function == "dp_protect":
        parts = name_parts(arguments["dataset"])
        return list(dict.fromkeys([*candidates(parts, *place), *session.attached.named(parts)]))
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    return [(dataset.catalog, dataset.schema, dataset.name)]
