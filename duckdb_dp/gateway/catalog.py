"""What an account may ask and read, as tables: its datasets, public and synthetic tables, and the columns of one."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from duckdb_dp.accounting.records import Dataset, units
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.gateway.broker import Broker
from duckdb_dp.reporting.answers import text
from duckdb_dp.sql.arguments import name_parts
from duckdb_dp.synthesis.database import Reference, Table

Grants = Mapping[tuple[str, str, str], Mapping[str, Any]]
"""By the full name of the dataset."""

Readable = Mapping[str, tuple[str, str]]
"""Tables that are read as they are, by name: 'public' or 'synthetic', and the full name."""

_TEXT, _NUMBER, _WHOLE = pa.string(), pa.float64(), pa.int64()
DATASETS = pa.schema(
    {
        "dataset": _TEXT, "tables": pa.list_(_TEXT), "keys": pa.list_(_TEXT),
        "unit": _TEXT, "epsilon": _NUMBER, "epsilon_left": _NUMBER, "max_epsilon": _NUMBER, "delta": _NUMBER,
        "until": _TEXT, "synthetic": _TEXT, "accounting": _TEXT, "releases": _WHOLE,
    }.items()
)  # fmt: skip
DESCRIBED = pa.schema(
    {"column": _TEXT, "type": _TEXT, "key": _TEXT, "declared": _TEXT, "cells": _WHOLE, "values": _TEXT}.items()
)

SHOWN = 20
"""Most values of a column that are listed."""


def tables(broker: Broker, grants: Grants) -> dict[tuple[str, str, str], list[str]]:
    """The full name of each dataset with a grant -> its tables, and relations of dp_view; several where they are protected together."""
    granted = {row["number"]: full for full, row in grants.items()}
    found: dict[tuple[str, str, str], list[str]] = {}
    for dataset in broker.ledger.families.relations():
        if dataset.id in granted:
            found.setdefault(granted[dataset.id], []).append(dataset.name)
    return found


def datasets(broker: Broker, budgets: Sequence[Mapping[str, Any]], grants: Grants) -> pa.Table:
    """A row for each dataset with a grant."""
    rows, named = [], tables(broker, grants)
    for row in budgets:
        together = named.get((row["catalog"], row["schema"], row["dataset"]), [])
        keys = (_leading(broker, name, grants) for name in together)
        grant = grants.get((row["catalog"], row["schema"], row["dataset"]), {})
        rows.append(
            {
                "dataset": row["dataset"],
                "tables": together if len(together) > 1 else None,
                "keys": [line for lines in keys for line in lines] or None,
                "unit": row["neighbours"],
                "epsilon": row["epsilon_total"],
                "epsilon_left": row["epsilon_remaining"],
                **{name: row[name] for name in ("delta", "accounting", "releases")},
                **{name: grant.get(name) for name in ("max_epsilon", "until")},
                "synthetic": grant.get("twin"),  # as a session calls it
            }
        )
    return pa.Table.from_pylist(rows, DATASETS)


def described(broker: Broker, name: str, grants: Grants, readable: Readable) -> pa.Table:
    """A row for each column of a dataset's table, or of one that is read as it is.

    Raises:
        DPError: there is no such dataset with a grant, and no such table.
    """
    if name.lower() in readable:
        return pa.Table.from_pylist(read(broker, *readable[name.lower()]), DESCRIBED)
    dataset = _find(broker, name, grants)
    specs = (Attribute.from_json(json.loads(spec)) for _, spec in broker.ledger.attributes(dataset))
    declared = {each.name.lower(): each for each in specs}
    table = _table(broker, dataset)
    keys = {} if _is_view(dataset) else _keys(broker, dataset, table, grants)
    rows = [
        _column(column, type_, declared.get(column.lower())) | {"key": keys.get(column.lower())}
        for column, type_ in table.columns.items()
    ]
    return pa.Table.from_pylist(rows, DESCRIBED)


def counted(broker: Broker, name: str, grants: Grants) -> str | None:
    """How much of a unit counts in answers about a dataset's table, which no interval covers; None where each row is a unit.

    Raises:
        DPError: as ``described``.
    """
    dataset = _find(broker, name, grants)
    if dataset.unit is None:
        return None
    if dataset.auto_rows:
        return "a part of a request's budget chooses how much of each unit counts: answers say it as clipped_at, or say max_rows := 5"
    rows = f"{dataset.max_rows:,} row{'s' if dataset.max_rows > 1 else ''}"
    return f"of each unit at most {rows} count: further ones are left out, and no interval covers that"


def _find(broker: Broker, name: str, grants: Grants) -> Dataset:
    parts = [part.lower() for part in name_parts(str(name))]
    named = [
        each
        for each in _mine(broker, grants)
        if [part.lower() for part in (each.catalog, each.schema, each.name)][-len(parts) :] == parts
    ]
    if len({(each.catalog, each.schema, each.name) for each in named}) > 1:
        full = few([".".join((each.schema, each.name)) for each in named])
        raise DPError(f"there is more than one dataset {as_sql(name)}: {full}; name one of them.")
    if not named:
        raise DPError(
            f"there is no dataset and no public table {as_sql(name)} for this account; list the datasets that there are."
        )
    return named[0]


def columns(broker: Broker, name: str, grants: Grants) -> list[dict[str, Any]]:
    """The rows of ``described``."""
    return described(broker, name, grants, {}).to_pylist()  # type: ignore[no-any-return]


def read(broker: Broker, kind: str, full: str) -> list[dict[str, Any]]:
    """The columns of a public or synthetic table, as those of ``described``."""
    columns, values = broker.columns(name_parts(full)), f"{kind}: its rows are read as they are"
    empty = dict.fromkeys(DESCRIBED.names)
    return [{**empty, "column": name, "type": type_, "values": values} for name, type_ in columns.items()]


def _leading(broker: Broker, name: str, grants: Grants) -> list[str]:
    """Which columns of a dataset's table name its unit, and which lead to another table: 'visits.patient_id refers to ...'."""
    dataset = _find(broker, name, grants)
    if _is_view(dataset):
        return []
    keys = _keys(broker, dataset, _table(broker, dataset), grants)
    return [f"{name}.{column} {words}" for column, words in keys.items() if words != PRIMARY]


PRIMARY = "is the primary key"


def _keys(broker: Broker, dataset: Dataset, table: Table, grants: Grants) -> dict[str, str]:
    """Columns in small letters -> what they name: the unit, a row, or a row of another table that this account may ask or read."""
    member = dataset.member
    led = None if member is None or member.reference is None else json.loads(member.reference)
    own = [tuple(led["owner"])] if led else units(dataset.unit)
    references = [*([] if led is None else [Reference.from_json(led)]), *table.references]
    mine = ((each.catalog, each.schema, each.name) for each in _mine(broker, grants))
    seen = {*broker.ledger.public.tables(), *mine}
    known = {tuple(part.lower() for part in full) for full in seen}
    found: dict[str, list[str]] = {}
    for column in (column for unit in own for column in unit):
        found.setdefault(column.lower(), []).append("names the unit")
    for column in table.primary if len(table.primary) == 1 else ():
        found.setdefault(column.lower(), []).append(PRIMARY)
    for reference in references:
        if tuple(part.lower() for part in reference.parent) in known:
            for column, key in zip(reference.columns, reference.key, strict=True):
                found.setdefault(column.lower(), []).append(f"refers to {reference.parent[2]}.{key}")
    return {column: "; ".join(dict.fromkeys(words)) for column, words in found.items()}


def _mine(broker: Broker, grants: Grants) -> list[Dataset]:
    """The tables and relations of dp_view of the datasets with a grant."""
    granted = {row["number"] for row in grants.values()}
    return [dataset for dataset in broker.ledger.families.relations() if dataset.id in granted]


def _table(broker: Broker, dataset: Dataset) -> Table:
    """The columns and keys of a table or relation; without columns where it, or what it is made of, is gone."""
    try:
        return broker.table(dataset)
    except DPError:
        return Table(name=(dataset.catalog, dataset.schema, dataset.name), columns={})


def _is_view(dataset: Dataset) -> bool:
    """Whether it is a relation of dp_view, whose columns may have the name of the unit's and be others."""
    return dataset.member is not None and dataset.member.view is not None


def _column(name: str, type_: str, attribute: Attribute | None) -> dict[str, Any]:
    if attribute is None:
        return {"column": name, "type": type_, "declared": None, "cells": None, "values": "not declared"}
    points = [text(point) for point in attribute.points]
    words = f"from {points[0]} to {points[-1]}" if attribute.kind == "integers" else ", ".join(points[:SHOWN])
    more = [f"... ({len(points)} in all)"] if attribute.kind != "integers" and len(points) > SHOWN else []
    more += ["and all others"] * attribute.other + ["and NULL"] * attribute.nulls
    return {
        "column": name,
        "type": type_,
        "declared": attribute.kind,
        "cells": attribute.size,
        "values": " ".join([words, *more]),
    }
