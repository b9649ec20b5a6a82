"""dp_max_rows: how many rows the units have, by noisy numbers of units, and what each bound on their rows would keep."""

import math
import re
from dataclasses import replace
from typing import Any

from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.accounting.tables import AUTO
from duckdb_dp.answers import plan as planned
from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.rows_of_units import RowsOfUnits, attribute
from duckdb_dp.errors import DPError, as_sql, meant
from duckdb_dp.grouped_sums import Source
from duckdb_dp.plan.clipping import OF_CHOICE
from duckdb_dp.request import Question, Request, units
from duckdb_dp.sql import precision, render
from duckdb_dp.sql.arguments import (
    Arguments,
    Place,
    check_unit,
    find_dataset,
    flag,
    no_postprocess,
    parse_budget,
    release_name,
    stable_cost,
)
from duckdb_dp.sql.owners import owned
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.row_bounds import MOST_ROWS
from duckdb_dp.sql.session import Session

COLUMNS = {
    "max_rows": "VARCHAR", "noise": "DOUBLE", "units_whole": "DOUBLE", "rows_kept": "DOUBLE", "rows_left_out": "DOUBLE", "stddev": "DOUBLE",
    "note": "VARCHAR",
}  # fmt: skip

EXPLAINED = {
    "max_rows": "VARCHAR", "stddev": "DOUBLE", "rows_left_out": "DOUBLE", "error": "DOUBLE", "units_whole": "DOUBLE", "rows_kept": "DOUBLE",
    "note": "VARCHAR",
}  # fmt: skip
"""Columns of dp_explain about bounds."""

CHOSEN = f"each request of dp_sql chooses privately how much of a unit counts, by {OF_CHOICE:.0%} of its budget; others need a number"

TIMES = 10
"""How many times the largest bound that is seen a note takes the units to have that are not seen."""

SUGGESTED = 0.002
"""The share of a dataset's budget that dp_explain suggests for measuring."""


def plan(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL that reads the stored release if there is one, else counts the units by their rows, charges and measures."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    request = request_of(session, dataset, precise(session, dataset, arguments))
    name, fresh = release_name(arguments), flag(arguments, "fresh")
    stored = None if fresh else session.stored(request, name)
    if stored is not None:
        return _read(render.stored_handle(stored), private=stored.private)
    handle = render.run(request, session.unit_key(), name=name, fresh=fresh)
    return _read(handle, private=session.bits.private)


def precise(session: Session, dataset: Dataset, arguments: Arguments) -> Arguments:
    """The arguments with the budget at which no number of units has a larger standard deviation than is asked for, if one is.

    Raises:
        DPError: bad input, one line each.
    """
    return precision.scaled(
        arguments, dataset.accounting, lambda call: planned(request_of(session, dataset, call)).max_stddev
    )


def request_of(session: Session, dataset: Dataset, arguments: Arguments) -> Request:
    """The canonical request: the numbers of units in each cell of their number of rows.

    Its source has one row for each unit, so that a unit is in one cell, and changes the counts by 1.

    Raises:
        DPError: each row is a unit, or there are two units; or the table is another engine's.
    """
    check_unit(dataset)
    if dataset.unit is None:
        raise DPError(f"each row of '{dataset.name}' is a unit, so that there is no bound on a unit's rows to choose.")
    if dataset.schema == SCHEMA:
        raise DPError(f"'{dataset.name}' lives in another engine, and {FUNCTION.name} is for DuckDB's own tables.")
    total = Request(
        function=FUNCTION.name,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=1,
        accounting=dataset.accounting,
        attributes=(),
        questions=(Question.marginal(()),),
        cost=stable_cost(parse_budget(arguments, dataset), dataset.accounting),
        mechanism="auto",
        objective="total",
        options=(("whole_units", True),),
    )
    total = owned(session, dataset, total)
    (owner,) = units(dataset.unit)
    column = "rows of a unit"
    while column.lower() in {name.lower() for name in owner}:
        column += "_"
    unit = render.unit_columns(total)
    apart = ", ".join([*render.unit_bytes(unit), *unit])
    present = " AND ".join(f"{name} IS NOT NULL" for name in unit)
    sql = f"SELECT {', '.join(unit)}, count(*) AS {quote(column)} FROM {render.relation(total)} WHERE {present} GROUP BY {apart}"
    return replace(
        total,
        source=Source(sql=sql, owner=owner),
        attributes=(attribute(column),),
        questions=(Question.marginal((column,)),),
    )


def read(session: Session, stored: Release, arguments: Arguments, _place: Place) -> str:
    """SQL for the rows of a stored release, by its name or number."""
    no_postprocess(arguments, FUNCTION.name)
    return _read(render.stored_handle(stored), private=stored.private)


def _read(handle: str, *, private: bool) -> str:
    call = f"_dp_call('', {literal(FUNCTION.name)}, to_json({{'handle': handle}})::VARCHAR, '', '', NULL::VARCHAR)"
    rows_of = render.checked("rows", f"SELECT {call} AS text FROM handle")
    marked = "" if private else ", false AS private"
    return f"WITH {handle}, {rows_of} SELECT *{marked} FROM ({render.json_rows(COLUMNS)})"


def rows(session: Session, arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """What each bound would keep, by a stored release."""
    found = measured(session, session.release_of(FUNCTION.name, arguments["handle"]))
    none = dict.fromkeys(COLUMNS)
    rows = [{**none, "max_rows": str(bound), "noise": float(bound), **_kept(found, bound)} for bound in found.bounds]
    for row in rows:
        row["note"] = _unseen(found)
    return [*rows, {**none, "max_rows": AUTO, "note": CHOSEN}]


def _unseen(found: RowsOfUnits) -> str:
    """What the noise hides."""
    hidden = f"up to about {found.unseen:,.0f} units with more rows would not be seen at this budget, and are in none of these numbers"
    share = found.unseen_share(TIMES)
    if share is None:
        return hidden
    return (
        f"{hidden}: with {TIMES * found.bounds[-1]:,} rows each they would have {share:.0%} of the rows that are seen"
    )


def _kept(found: RowsOfUnits, bound: int) -> dict[str, float | None]:
    kept = found.kept(bound)
    shown = {name: getattr(kept, name) for name in ("units_whole", "rows_kept", "rows_left_out", "stddev")}
    return shown | ({} if kept.stddev else {"stddev": None})  # of the largest bound nothing that was seen lies beyond


def measured(session: Session, stored: Release) -> RowsOfUnits:
    """The noisy numbers of units of a stored release.

    Privacy: post-processing.
    """
    answers = session.answers(stored)
    (counts,), (stddevs,) = answers.parts([0]), answers.stddevs([0])
    return RowsOfUnits(counts, float(stddevs.max()))


def explained(arguments: Arguments) -> dict[str, Any] | None:
    """The arguments with the bounds that dp_explain is asked about: {'max_rows': [1, 3, 10]}; None where it is asked about something else.

    A list of SQL has one type, so with 'auto' in it numbers come as texts.

    Raises:
        DPError: they are no bounds.
    """
    asked = arguments["attributes"]
    if isinstance(asked, dict) and "max_rows" not in asked:
        for name, values in asked.items():
            numbers = [*values] if isinstance(values, list) else [values]
            if meant(["max_rows"], name) and all(
                isinstance(each, int) and not isinstance(each, bool) for each in numbers
            ):
                raise DPError(
                    f"{as_sql(asked)}: no queries are numbers; max_rows may be meant: {{'max_rows': {as_sql(values)}}}."
                )
    if not isinstance(asked, dict) or "max_rows" not in asked:
        return None
    given = asked["max_rows"] if isinstance(asked["max_rows"], list) else [asked["max_rows"]]
    texts = [int(each) if isinstance(each, str) and re.fullmatch(r"\d{1,9}", each) else each for each in given]
    bounds = [each for each in texts if each != AUTO]
    found = [each for each in bounds if isinstance(each, int) and not isinstance(each, bool) and 1 <= each <= MOST_ROWS]
    if len(asked) > 1 or not given or len(found) < len(bounds):
        raise DPError(
            f"{as_sql(asked)}: write the bounds to compare, and nothing beside them: {{'max_rows': [1, 3, 10]}}; '{AUTO}' has a row in any "
            "case."
        )
    return {**arguments, "bounds": list(dict.fromkeys(found))}


def explain(session: Session, arguments: Arguments, place: Place) -> Rows:
    """A row for each bound: the noise of a count of rows at a budget, and what a stored release says that it leaves out.

    Privacy: costs nothing.
    """
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    asked = request_of(session, dataset, precise(session, dataset, arguments))
    one = planned(replace(asked, source=None, attributes=(), questions=(Question.marginal(()),))).max_stddev
    stored = session.newest(dataset, FUNCTION.name)
    found = None if stored is None else measured(session, stored)
    rows = [_explained(bound, one, found) for bound in arguments["bounds"]]
    rows.append({**dict.fromkeys(EXPLAINED), "max_rows": AUTO, "note": CHOSEN})
    errors = [row["error"] for row in rows if row["error"] is not None]
    for row in rows:
        notes = [row["note"]] if row["note"] else []
        if errors and row["error"] == min(errors):
            notes.append("of these the least error of a count of all rows at this budget")
        if found is not None and row["error"] is not None:
            notes.append(_unseen(found))
        elif found is None and row is rows[0]:
            notes.append(_how_to_measure(dataset))
        row["note"] = "; ".join(notes) or None
    return rows


def _explained(bound: int, one: float, found: RowsOfUnits | None) -> dict[str, Any]:
    row: dict[str, Any] = {**dict.fromkeys(EXPLAINED), "max_rows": str(bound), "stddev": bound * one}
    if found is not None:
        kept = found.kept(bound)
        row |= {name: getattr(kept, name) for name in ("units_whole", "rows_kept", "rows_left_out")}
        row["error"] = math.hypot(bound * one, kept.rows_left_out)
    return row


def _how_to_measure(dataset: Dataset) -> str:
    """What measures what the bounds keep, and its price."""
    cost, delta = SUGGESTED * dataset.budget, dataset.cost_delta
    typed = {"epsilon": dataset.accounting.epsilon(cost, delta)} if dataset.epsilon and delta is not None else None
    ((word, value),) = (typed or dataset.accounting.typed(cost)).items()
    return (
        f"what each keeps is not measured yet: FROM {FUNCTION.name}({dataset.argument}, {word} := {value:.2g}) does, for {SUGGESTED:.1%} "
        "of the budget"
    )


FUNCTION = register(Function(name="dp_max_rows", plan=plan, rows=rows, read=read, compares=True))
