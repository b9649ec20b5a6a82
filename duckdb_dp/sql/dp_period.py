"""CALL dp_period: each closed period of a table becomes a table of its own, with a budget of its own."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import date
from typing import Any

import duckdb

from duckdb_dp.accounting import tables
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.periods import Rule, neighbours
from duckdb_dp.budget import Budget
from duckdb_dp.counting.encode import full_name, literal, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import periods
from duckdb_dp.domain.periods import A_YEAR, Period
from duckdb_dp.errors import DPError, as_sql, few, first_line, identifier
from duckdb_dp.request import units
from duckdb_dp.sql import catalog, lineage, missing_tables, stopping
from duckdb_dp.sql.arguments import Arguments, Place, candidates, flag, name_parts, word
from duckdb_dp.sql.catalog import Catalog, find_column
from duckdb_dp.sql.protecting import bounded_unit, budget_of, notes_on_delta, overlapping
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Table
from duckdb_dp.synthesis.running import now

COLUMNS = {
    "period": "VARCHAR", "dataset": "VARCHAR", "neighbours": "VARCHAR", "accounting": "VARCHAR", "budget": "DOUBLE", "epsilon": "DOUBLE",
    "delta": "DOUBLE", "note": "VARCHAR",
}  # fmt: skip

TYPES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")

MOST = 1_000
"""Periods that one call closes: each is a table."""


def rows(session: Session, arguments: Arguments, place: Place, _seen: str) -> Rows:
    """A row for each closed period, and what they promise together.

    Raises:
        DPError: the table was declared in another way, or a period's table cannot be made.

    Privacy: states a bound; spends nothing. Which tables are made depends on the clock and the call alone.
    """
    table = table_of(session, arguments["dataset"], place)
    rule = _rule(arguments, table)
    budget, declared = _declaration(arguments, table)
    whole = session.ledger.periods.check(table.name, rule, declared)
    if whole is None and not flag(arguments, "another"):
        missing_tables.check_not_renamed(
            session, table.name, dict(table.columns), _fetched(session, missing_tables.SEEN)
        )
    notes = notes_on_delta(declared["discovery_delta"] or declared["delta"])
    notes += overlapping(session, lineage.arranged(_fetched(session, lineage.TEXTS)), table.name)
    made = _to_close(session, whole, table, _earliest(session, whole, rule, arguments))
    _close(session, table, rule, budget, declared, made)
    return _rows(session, table, {name for name, _ in made}, notes)


def _fetched(session: Session, query: str) -> list[Any]:
    """Rows about the catalog, as committed."""
    with session.looking() as cursor:
        return [] if cursor is None else cursor.execute(query).fetchall()


def table_of(session: Session, asked: object, place: Place) -> Table:
    """The committed table of that name.

    Raises:
        DPError: there is none, or it is a view, a TEMP table or one of another engine.
    """
    options = candidates(name_parts(asked), *place)
    known = catalog.committed(session, [option[:2] for option in options if option[0] != "temp"])
    found = next((table for option in options if (table := catalog.find(known, option)) is not None), None)
    if found is None or found.view or found.name[1] == SCHEMA:
        what = "there is no table" if found is None else "periods are closed of DuckDB's own tables, which is not"
        raise DPError(
            f"{what} {as_sql(asked)} that other connections see; create and commit it, no TEMP table and no view."
        )
    return found


def _rule(arguments: Arguments, table: Table) -> Rule:
    """How the table is cut, as the call says.

    Raises:
        DPError: there is no such column of dates or timestamps, kind of period or day.
    """
    column = find_column(_columns(table), table.name[2], arguments["time_column"])
    if column["type"] not in TYPES:
        raise DPError(
            f"time_column is {identifier(column['column'])}, of type {column['type']}; name a column of dates or timestamps, which says "
            "when a row belongs."
        )
    every = word(arguments, "every", "month")
    if every not in A_YEAR:
        raise DPError(f"every is {as_sql(every)}; there are {few(map(repr, A_YEAR))}.")
    keep = arguments.get("keep_in")
    parts = table.name[:2] if keep is None else tuple(name_parts(keep))
    if len(parts) > 2:
        raise DPError(f"keep_in is {as_sql(keep)}; name a schema, or 'catalog.schema', that exists.")
    start = _day(arguments.get("start"))
    try:
        periods.of(start, every)
    except OverflowError:
        raise DPError(f"start is {start}, in the last {every} of all; say an earlier day.") from None
    return Rule(
        time_column=column["column"],
        every=every,
        place=(table.name[0], parts[0]) if len(parts) == 1 else (parts[0], parts[1]),
        start=start,
    )


def _columns(table: Table) -> Catalog:
    full = dict(zip(("catalog", "schema", "table"), table.name, strict=True))
    return [{**full, "column": name, "type": type_} for name, type_ in table.columns.items()]


def _day(asked: object) -> date:
    """The first day, as the call says, or today: what is before is not looked for, as that would depend on the data."""
    if asked is None:
        return now().date()
    try:
        return date.fromisoformat(str(asked)[:10])
    except ValueError:
        raise DPError(
            f"start is {as_sql(asked)}; say a day of the first period, as start := DATE '2026-01-01'."
        ) from None


def _declaration(arguments: Arguments, table: Table) -> tuple[Budget, dict[str, Any]]:
    """The budget of each period, and what is declared of all of them.

    Raises:
        DPError: there is no such column or budget; or two units.
    """
    unit, max_rows = bounded_unit(arguments, _columns(table), table.name[2])
    if len(units(unit)) > 1:
        raise DPError(f"unit {as_sql(arguments['unit'])} are two, and periods are for one: name one column.")
    budget, delta = budget_of(FUNCTION.name, arguments)
    declared = tables.declaration(
        name=table.name[2],
        budget=budget,
        accounting=word(arguments, "accounting", "") or None,
        delta=delta,
        unit=unit,
        max_rows=max_rows,
        discovery_delta=arguments.get("discovery_delta"),
    )
    return budget, declared


def _earliest(session: Session, whole: Dataset | None, rule: Rule, arguments: Arguments) -> Rule:
    """The rule from the earliest start that any call has said."""
    if whole is None or whole.rule is None:
        return rule
    starts = [Rule.from_json(whole.rule).start, *(one.period.begins for one in session.ledger.periods.of(whole))]
    starts += [] if arguments.get("start") is None else [rule.start]
    return Rule(time_column=rule.time_column, every=rule.every, place=rule.place, start=min(starts))


def _to_close(session: Session, whole: Dataset | None, table: Table, rule: Rule) -> list[tuple[Name, Period]]:
    """The tables of periods that are over and are not closed; of closed ones those that are gone and were never asked.

    Raises:
        DPError: there are too many, or a name is another table's.
    """
    closed = {one.period.begins: one.dataset for one in ([] if whole is None else session.ledger.periods.of(whole))}
    known = catalog.committed(session, [rule.place])
    made: list[tuple[Name, Period]] = []
    for period in periods.over(rule.start, rule.every, now()):
        name: Name = (*rule.place, period.table(table.name[2]))
        there, before = catalog.find(known, name) is not None, closed.get(period.begins)
        if before is not None and (there or session.ledger.charges(before)):
            continue
        if before is None and (there or session.ledger.dataset(*name) is not None):
            raise DPError(
                f"period {period.label} needs the name '{'.'.join(name)}', which is another table's; rename that one, or keep the periods "
                "in another schema: keep_in := 'archive'. No period was closed."
            )
        made.append((name, period))
        if len(made) > MOST:
            raise DPError(
                f"more than {MOST:,} periods are over since {rule.start}, and each is a table; use a later start, or every := 'month'."
            )
    return made


def _close(
    session: Session,
    table: Table,
    rule: Rule,
    budget: Budget,
    declared: Mapping[str, Any],
    made: Sequence[tuple[Name, Period]],
) -> None:
    """Make the tables, all of them or none; the ledger knows them before anybody can see them.

    Raises:
        DPError: they cannot be made.
    """
    cursor = session.cursor()
    if cursor is None:
        raise DPError("the connection that was loaded is closed, and tables cannot be made; load an open one.")
    with cursor, stopping.also(cursor.interrupt) if made else nullcontext():
        cursor.execute("BEGIN")
        try:
            for name, period in made:
                of_it = f"SELECT * FROM {full_name(*table.name)} WHERE {inside(table, rule.time_column, period)}"
                cursor.execute(f"CREATE TABLE {full_name(*name)} AS {of_it}")
            whole = session.ledger.periods.declare(table.name, rule, budget, dict(declared))
            session.ledger.periods.close(whole, made)
            cursor.execute("COMMIT")
        except duckdb.Error as error:
            raise DPError(
                f"the tables of the periods cannot be made in '{'.'.join(rule.place)}': {first_line(error).rstrip('.')}."
            ) from None


def inside(table: Table, column: str, period: Period) -> str:
    """SQL that is true of the rows of a period."""
    type_ = table.columns[column]
    low, high = (f"CAST({literal(day.isoformat())} AS {type_})" for day in (period.begins, period.ends))
    return f"{quote(column)} >= {low} AND {quote(column)} < {high}"


def _rows(session: Session, table: Table, made: set[Name], notes: Sequence[str]) -> Rows:
    whole = session.ledger.dataset(*table.name)
    assert whole is not None
    assert whole.rule is not None
    closed, rule = session.ledger.periods.of(whole), Rule.from_json(whole.rule)
    found = [
        {
            **_promise(whole, 1),
            "period": one.period.label,
            "dataset": ".".join(_full(one.dataset)),
            "neighbours": one.dataset.neighbours,
            "note": "closed now" if _full(one.dataset) in made else None,
        }
        for one in closed
    ]
    next_one = periods.of(closed[-1].period.ends if closed else max(rule.start, now().date()), rule.every)
    coming = f"the next one, {next_one.label}, is closed by this call from {next_one.ends}"
    if not closed:
        coming += "; for earlier ones add start := DATE '...'"
    said = {"unit": whole.unit, "max_rows": whole.max_rows, "auto_rows": whole.auto_rows}
    year = A_YEAR[rule.every]
    for count, what in ((len(closed), f"all {len(closed)} so far"), (year, f"any {year}, as in a year")):
        if count:
            both = {
                "period": what,
                "dataset": None,
                "neighbours": neighbours(said, "each of these periods"),
                "note": None,
            }
            found.append({**_promise(whole, count), **both})
    found[-1]["note"] = "; ".join([coming, *notes])
    return found


def _full(dataset: Dataset) -> Name:
    return dataset.catalog, dataset.schema, dataset.name


def _promise(whole: Dataset, count: int) -> dict[str, Any]:
    """What so many periods promise together: costs add up, and so do the deltas of thresholds."""
    cost, delta = count * whole.budget, whole.cost_delta
    typed = whole.epsilon if count == 1 and whole.epsilon else whole.epsilon_of(cost)
    return {
        "accounting": whole.accounting.name,
        "budget": cost,
        "epsilon": typed,
        "delta": None
        if delta is None
        else whole.delta
        if count == 1
        else delta + count * (whole.discovery_delta or 0.0),
    }


FUNCTION = register(Function(name="dp_period", rows=rows, columns=COLUMNS, declares=True, curator=True))
