"""CALL dp_protect: declares what is private, the unit that is protected, and the budget of all its releases."""

import json
from collections.abc import Sequence
from typing import Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import plain_unit
from duckdb_dp.budget import reserved_delta
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, few
from duckdb_dp.request import units
from duckdb_dp.sql import catalog, failing_views, lineage, missing_tables, protectable, public_views
from duckdb_dp.sql.arguments import Arguments, Place, candidates, flag, name_parts, word
from duckdb_dp.sql.catalog import Catalog, columns_query
from duckdb_dp.sql.protecting import bounded_unit, budget_of, notes_on_delta, overlapping, table_of
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name

COLUMNS = {
    "dataset": "VARCHAR",
    "neighbours": "VARCHAR",
    "accounting": "VARCHAR",
    "budget": "DOUBLE",
    "epsilon": "DOUBLE",
    "delta": "DOUBLE",
    "note": "VARCHAR",
}


def context(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL of what ``rows`` needs from the catalog: the columns of the table, and the texts of all views."""
    if isinstance(arguments["dataset"], list):
        from duckdb_dp.sql import protect_together  # for import time: of several tables

        arguments = protect_together.alone(arguments) if len(arguments["dataset"]) == 1 else arguments
        if isinstance(arguments["dataset"], list):
            tables = catalog.query(protect_together.schemas(arguments, place))
            return f"to_json({{'tables': {tables}, 'seen': {_SEEN}}})"
    names = _names(session, arguments, place)
    plain = _are_tables(session, names)
    read = lineage.RELATIONS if plain else lineage.TEXTS
    texts = f"(SELECT to_json(list([database_name, schema_name, table_name, text])) FROM ({read}))"
    return f"to_json({{'columns': {columns_query(names)}::JSON, 'texts': {texts}, 'plain': {plain}, 'seen': {_SEEN}}})"


_SEEN = f"(SELECT to_json(list([database_name, schema_name, table_name])) FROM ({missing_tables.SEEN}))"


def _names(session: Session, arguments: Arguments, place: Place) -> list[Name]:
    parts = name_parts(arguments["dataset"])
    return list(dict.fromkeys([*candidates(parts, *place), *session.attached.named(parts)]))


def _are_tables(session: Session, names: Sequence[Name]) -> bool:
    """Whether no macro can matter, as a table stands here and at each name that is protected: to list all functions takes 20 ms."""
    protected = [(dataset.catalog, dataset.schema, dataset.name) for dataset in session.ledger.datasets()]
    with session.looking() as cursor:
        if cursor is None:
            return False
        found = cursor.execute("SELECT database_name, schema_name, table_name FROM duckdb_tables()").fetchall()
    tables = {_folded(full) for full in found}
    return any(_folded(name) in tables for name in names) and all(_folded(full) in tables for full in protected)


def _folded(name: Name) -> Name:
    catalog, schema, table = name
    return catalog.lower(), schema.lower(), table.lower()


def rows(session: Session, arguments: Arguments, place: Place, seen: str) -> Rows:
    """One row that says what is now protected, and for which neighbours.

    Raises:
        DPError: no such table; an invalid budget; a view in which one unit's rows change another's; or a table that may
            be a protected one under another name.

    Privacy: states a bound; spends nothing.
    """
    if isinstance(arguments["dataset"], list):
        from duckdb_dp.sql import protect_together  # for import time: of several tables

        arguments = protect_together.alone(arguments) if len(arguments["dataset"]) == 1 else arguments
        if isinstance(arguments["dataset"], list):
            return _together(session, arguments, place, seen)
    found = json.loads(seen)
    columns: Catalog = [*(found["columns"] or []), *session.attached.columns(_names(session, arguments, place))]
    texts = lineage.arranged(found["texts"] or [])
    name = table_of(arguments["dataset"], columns)
    if found["plain"]:
        _check_tables(session, texts, name)
    known = name[1] == SCHEMA or session.ledger.dataset(*name) is not None
    unit, max_rows = bounded_unit(arguments, columns, name[2], known=known)
    budget, delta = budget_of("dp_protect", arguments)
    if session.ledger.dataset(*name) is None and not flag(arguments, "another"):
        types = {c["column"]: c["type"] for c in columns if (c["catalog"], c["schema"], c["table"]) == name}
        missing_tables.check_not_renamed(session, name, types, found["seen"] or [])
    discovery_delta = arguments.get("discovery_delta")
    reserved = None if discovery_delta is None else reserved_delta(discovery_delta)
    notes = [
        *notes_on_delta(budget.delta if reserved is None else max(reserved, budget.delta or 0.0)),
        *_of_view(session, texts, name, unit),
        *_of_generated(session, name),
    ]
    dataset = session.ledger.protect(
        catalog=name[0],
        schema=name[1],
        name=name[2],
        budget=budget,
        accounting=word(arguments, "accounting", "") or None,
        delta=delta,
        unit=unit,
        max_rows=max_rows,
        discovery_delta=discovery_delta,
    )
    session.remember_uncommitted(dataset)
    return [_row(dataset, notes)]


def _check_tables(session: Session, texts: lineage.Texts, name: Name) -> None:
    """Refuse what became a view after its call was planned, so that the macros in it were not read."""
    protected = [(dataset.catalog, dataset.schema, dataset.name) for dataset in session.ledger.datasets()]
    for full in (name, *protected):
        if lineage.is_view(texts, full):
            raise DPError(f"'{full[2]}' became a view since the call was planned; COMMIT that, and ask again.")


def _together(session: Session, arguments: Arguments, place: Place, seen: str) -> Rows:
    """One row for each of several tables that share a unit and a budget."""
    from duckdb_dp.sql import protect_together  # for import time

    found = json.loads(seen)
    known = catalog.read(found["tables"]) | catalog.attached(session)
    members, unit, neighbours = protect_together.members(session, arguments, place, known, found["seen"] or [])
    budget, delta = budget_of("dp_protect", arguments)
    discovery_delta = arguments.get("discovery_delta")
    reserved = None if discovery_delta is None else reserved_delta(discovery_delta)
    notes = notes_on_delta(budget.delta if reserved is None else max(reserved, budget.delta or 0.0))
    first = session.ledger.families.protect(
        members,
        unit=plain_unit(unit),
        neighbours=neighbours,
        budget=budget,
        accounting=word(arguments, "accounting", "") or None,
        delta=delta,
        discovery_delta=discovery_delta,
    )
    whole = [dataset for dataset in session.ledger.datasets() if dataset.id == first.id]
    for dataset in whole:
        session.remember_uncommitted(dataset)
    return [
        _row(
            dataset,
            [
                protect_together.note(dataset, known),
                *notes,
                *_of_generated(session, (dataset.catalog, dataset.schema, dataset.name)),
            ],
        )
        for dataset in whole
    ]


def _row(dataset: Dataset, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "dataset": f"{dataset.catalog}.{dataset.schema}.{dataset.name}",
        "neighbours": dataset.neighbours,
        "accounting": dataset.accounting.name,
        "budget": dataset.budget,
        "epsilon": dataset.epsilon,
        "delta": dataset.delta,
        "note": "; ".join(notes) or None,
    }


def _of_view(session: Session, texts: lineage.Texts, name: Name, unit: str | None) -> list[str]:
    """Notes on a view, and on people who are in another protected table too."""
    columns = [column for one in units(unit) for column in one]

    def is_public(source: str) -> bool:
        named = texts.get(source, ())
        return bool(named) and all(session.ledger.public.holds(full) for full, _ in named)

    if session.ledger.dataset(*name) is None:
        notes = protectable.check(texts, name, columns, is_public)
        if fails := failing_views.fallible(texts, name):
            notes.append(
                f"where an expression of the view fails on a value ({few(fails)}), DuckDB's error shows that value to whoever "
                "asks: write TRY_CAST(...), or TRY(...) around it"
            )
        if guessing := failing_views.guessing(texts, name):
            notes.append(
                f"DuckDB guesses the types of columns of {few(guessing)} from rows, and its errors show lines of the file to whoever asks: "
                "make a table of it, and protect that"
            )
    else:  # it stays what it is
        notes = []
    return notes + overlapping(session, texts, name)


def _of_generated(session: Session, name: Name) -> list[str]:
    """A note on generated columns of a table: DuckDB checks them where a row is inserted, and not where it is changed."""
    if name[1] == SCHEMA or name[2].lower() not in public_views.computing(session):
        return []
    return [
        "where a generated column fails on a value, as it may once that row is updated, DuckDB's error shows that value to whoever asks: "
        "write TRY(...) around its expression"
    ]


FUNCTION = register(
    Function(name="dp_protect", rows=rows, columns=COLUMNS, context=context, declares=True, curator=True)
)
