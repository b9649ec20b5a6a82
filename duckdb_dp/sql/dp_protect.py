"""CALL dp_protect: declares what is private, the unit that is protected, and the budget of all its releases."""

import json
from collections.abc import Sequence
from typing import Any

from duckdb_dp.accounting.base import PURE
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import plain_unit
from duckdb_dp.accounting.tables import AUTO
from duckdb_dp.budget import Budget, reserved_delta
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import canonical
from duckdb_dp.domain.types import column_type
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.request import units
from duckdb_dp.sql import catalog, lineage, missing_tables, protect_together, protectable
from duckdb_dp.sql.arguments import Arguments, Place, candidates, flag, name_parts, word
from duckdb_dp.sql.catalog import Catalog, columns_query, find_column
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

MOST_DELTA = 0.01
"""A larger delta is refused: it allows to publish one row in a hundred as it is."""

USUAL_DELTA = 1e-5
"""A larger one is noted: it should be less than one over the number of people."""


def context(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL of what ``rows`` needs from the catalog: the columns of the table, and the texts of all views."""
    if isinstance(arguments["dataset"], list) and arguments["dataset"]:
        arguments = protect_together.alone(arguments) if len(arguments["dataset"]) == 1 else arguments
    if isinstance(arguments["dataset"], list):
        tables = catalog.query(protect_together.schemas(arguments, place))
        return f"to_json({{'tables': {tables}, 'seen': {_SEEN}}})"
    names = _names(session, arguments, place)
    texts = f"(SELECT to_json(list([database_name, schema_name, table_name, text])) FROM ({lineage.TEXTS}))"
    return f"to_json({{'columns': {columns_query(names)}::JSON, 'texts': {texts}, 'seen': {_SEEN}}})"


_SEEN = f"(SELECT to_json(list([database_name, schema_name, table_name])) FROM ({missing_tables.SEEN}))"


def _names(session: Session, arguments: Arguments, place: Place) -> list[Name]:
    parts = name_parts(arguments["dataset"])
    return list(dict.fromkeys([*candidates(parts, *place), *session.attached.named(parts)]))


def rows(session: Session, arguments: Arguments, place: Place, seen: str) -> Rows:
    """One row that says what is now protected, and for which neighbours.

    Raises:
        DPError: no such table; an invalid budget; a view in which one unit's rows change another's; or a table that may
            be a protected one under another name.

    Privacy: states a bound; spends nothing.
    """
    if isinstance(arguments["dataset"], list) and len(arguments["dataset"]) == 1:
        arguments = protect_together.alone(arguments)
    if isinstance(arguments["dataset"], list):
        return _together(session, arguments, place, seen)
    found = json.loads(seen)
    columns: Catalog = [*(found["columns"] or []), *session.attached.columns(_names(session, arguments, place))]
    texts = lineage.arranged(found["texts"] or [])
    name = _table(arguments["dataset"], columns)
    unit, max_rows = arguments.get("unit"), arguments.get("max_rows")
    if unit is not None:
        unit = _unit(columns, name[2], unit, max_rows)
        if name[1] != SCHEMA and session.ledger.dataset(*name) is None:
            _check_types(columns, units(unit))
        if max_rows is None:
            raise DPError(
                f"unit {as_sql(arguments['unit'])} needs a bound on its rows: add max_rows := 5, say, and further rows of a "
                "unit are left out; or max_rows := 'auto', and each request chooses a bound privately."
            )
    budget, delta = _budget(arguments)
    if session.ledger.dataset(*name) is None and not flag(arguments, "another"):
        types = {c["column"]: c["type"] for c in columns if (c["catalog"], c["schema"], c["table"]) == name}
        missing_tables.check_not_renamed(session, name, types, found["seen"] or [])
    discovery_delta = arguments.get("discovery_delta")
    reserved = None if discovery_delta is None else reserved_delta(discovery_delta)
    notes = [
        *_of_delta(budget.delta if reserved is None else max(reserved, budget.delta or 0.0)),
        *_of_view(session, texts, name, unit),
    ]
    dataset = session.ledger.protect(
        catalog=name[0],
        schema=name[1],
        name=name[2],
        budget=budget,
        accounting=word(arguments, "accounting", "") or None,
        delta=delta,
        unit=unit,
        max_rows=1 if max_rows is None else max_rows,
        discovery_delta=discovery_delta,
    )
    session.remember_uncommitted(dataset)
    return [_row(dataset, notes)]


def _together(session: Session, arguments: Arguments, place: Place, seen: str) -> Rows:
    """One row for each of several tables that share a unit and a budget."""
    found = json.loads(seen)
    known = catalog.read(found["tables"])
    members, unit, neighbours = protect_together.members(session, arguments, place, known, found["seen"] or [])
    budget, delta = _budget(arguments)
    discovery_delta = arguments.get("discovery_delta")
    reserved = None if discovery_delta is None else reserved_delta(discovery_delta)
    notes = _of_delta(budget.delta if reserved is None else max(reserved, budget.delta or 0.0))
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
    return [_row(dataset, [protect_together.note(dataset), *notes]) for dataset in whole]


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


def _table(asked: object, columns: Catalog) -> Name:
    found = list(dict.fromkeys((c["catalog"], c["schema"], c["table"]) for c in columns))
    if not found:
        raise DPError(
            f"there is no table or view {as_sql(asked)}. Create it first, or write its full name 'catalog.schema.table'."
        )
    if len(found) > 1:
        raise DPError(
            f"{as_sql(asked)} could be {few((repr('.'.join(name)) for name in found), ' or ')}; write the full name."
        )
    return found[0]


def _unit(columns: Catalog, table: str, asked: object, max_rows: object) -> str:
    """A column, or several as the JSON that ``request.units`` reads: ['a', 'b'] are two units, ['a', ['b', 'c']] too."""
    given = asked if isinstance(asked, list) else [asked]
    if not 1 <= len(given) <= 2 or not all(given):
        raise DPError(
            f"unit is {as_sql(asked)}; name a column, or two that are both protected: unit := ['user_id', 'movie_id']."
        )
    found = [
        [find_column(columns, table, part)["column"] for part in (one if isinstance(one, list) else [one])]
        for one in given
    ]
    if len(found) == 2 and max_rows == AUTO:
        raise DPError(f"unit {as_sql(asked)} needs a promise on its links: max_rows := 10, say, and not '{AUTO}'.")
    if len(found) == 2 and found[0] == found[1]:
        raise DPError(f"unit is {as_sql(asked)}, the same twice; name it once.")
    return str(found[0][0]) if len(found) == 1 and len(found[0]) == 1 else canonical(found)


def _check_types(columns: Catalog, named: Sequence[Sequence[str]]) -> None:
    """Refuse a unit whose type is not supported."""
    found = {column["column"]: column["type"] for column in columns}
    for column in (column for one in named for column in one):
        column_type(found[column], f"unit '{column}'")


def _budget(arguments: Arguments) -> tuple[Budget, Any]:
    """The budget, and the delta at which epsilons are shown if the budget has none."""
    delta = arguments.get("delta")
    beside = arguments.get("rho") is not None or arguments.get("mu") is not None
    budget = Budget(**{name: arguments.get(name) for name in ("epsilon", "rho", "mu")}, delta=None if beside else delta)
    if budget.epsilon is not None and budget.delta is None and word(arguments, "accounting", "") != PURE.name:
        raise DPError(
            f"epsilon needs a delta: CALL dp_protect({as_sql(arguments['dataset'])}, epsilon := {budget.epsilon:g}, "
            "delta := 1e-9), or delta := 0 for pure DP."
        )
    return budget, None if budget.epsilon is not None else delta


def _of_delta(delta: float | None) -> list[str]:
    if delta is None or delta <= USUAL_DELTA:
        return []
    if delta > MOST_DELTA:
        raise DPError(
            f"delta {delta:g} may not protect one person in {max(1, round(1 / delta))}; use less than one over the "
            "number of people, e.g. delta := 1e-9."
        )
    return [f"delta {delta:g} is large: use less than one over the number of people, e.g. delta := 1e-9"]


def _of_view(session: Session, texts: lineage.Texts, name: Name, unit: str | None) -> list[str]:
    """Notes on a view, and on people who are in another protected table too."""
    columns = [column for one in units(unit) for column in one]

    def is_public(source: str) -> bool:
        named = texts.get(source, ())
        return bool(named) and all(session.ledger.public.holds(full) for full, _ in named)

    if session.ledger.dataset(*name) is None:
        notes = protectable.check(texts, name, columns, is_public)
        if fails := protectable.fallible(texts, name):
            notes.append(
                f"where an expression of the view fails on a value ({few(fails)}), DuckDB's error shows that value to whoever "
                "asks: write TRY_CAST(...), or TRY(...) around it"
            )
    else:  # it stays what it is
        notes = []
    twice = [dataset.name for dataset in session.ledger.datasets() if _of_one_table(texts, name, dataset)]
    if twice:
        more = f" and {len(twice) - 3} more" if len(twice) > 3 else ""
        notes.append(
            f"its rows may be those of {', '.join(map(repr, twice[:3]))}{more}, with a budget too: people in both are protected by "
            "the sum of the budgets, so protect one of them only, or lower both"
        )
    return notes


def _of_one_table(texts: lineage.Texts, name: Name, other: Dataset) -> bool:
    """Whether a table and a protected one are views of one another, or of one table or file."""
    names = (name, (other.catalog, other.schema, other.name))
    folded = [tuple(part.lower() for part in full) for full in names]
    if folded[0] == folded[1] or not any(lineage.is_view(texts, full) for full in names):
        return False
    try:
        return lineage.overlap(*(lineage.sources(texts, full) for full in names))
    except lineage.Unreadable:
        return False


FUNCTION = register(
    Function(name="dp_protect", rows=rows, columns=COLUMNS, context=context, declares=True, curator=True)
)
