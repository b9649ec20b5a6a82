"""dp_running: running totals by group, one step more for each day or month that is over, from one charge."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types.moments import is_moment
from duckdb_dp.errors import DPError, as_sql, few, identifier
from duckdb_dp.grouped_sums import Source
from duckdb_dp.noise.kinds import GAUSSIAN
from duckdb_dp.request import Request, units
from duckdb_dp.sql import answer_size, catalog, precision, render, short
from duckdb_dp.sql.arguments import (
    Arguments,
    Place,
    check_bounded,
    check_unit,
    find_attribute,
    find_dataset,
    flag,
    no_postprocess,
    parse_budget,
    release_name,
    stable_cost,
    whole_number,
    word,
)
from duckdb_dp.sql.owners import owned
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis import running

MOST_STEPS, MOST_TOTALS = 3_660, 1_000_000

STEPS = {"hour": "1 hour", "day": "1 day", "week": "7 days", "month": "1 month"}
"""What there may be a total for each of, as DuckDB writes that interval."""

ERRORS = ("total", "stddev", "ci_low", "ci_high")


def plan(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL for dp_running: counts, charges once, and measures the steps that are over and were not measured before."""
    request = request_of(session, precise(session, arguments, place), place)
    name, fresh = release_name(arguments), flag(arguments, "fresh")
    stored = None if fresh else session.stored(request, name)
    if stored is not None:
        return _read(request, render.stored_handle(stored), private=stored.private)
    groups, steps = math.prod(each.size for each in request.attributes[:-1]), running.over(request)
    answer_size.check(session, FUNCTION.name, groups * steps)
    key, clique = session.unit_key(), request.domain.attributes
    handle = render.run(request, key, name=name, fresh=fresh, cliques=(clique,))
    return _read(request, handle, private=session.bits.private)


def precise(session: Session, arguments: Arguments, place: Place) -> Arguments:
    """The arguments with the budget at which no total has a larger standard deviation than is asked for, if one is.

    Raises:
        DPError: bad input, one line each.
    """

    def largest(call: Arguments) -> float:
        request = request_of(session, call, place)
        return float(running.stddevs(request, int(dict(request.options)["horizon"]))[-1])

    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    return precision.scaled(arguments, dataset.accounting, largest)


def request_of(session: Session, arguments: Arguments, place: Place) -> Request:
    """The canonical request of a call, which is the same on each day.

    Raises:
        DPError: bad input, one line each.
    """
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    check_unit(dataset)
    check_bounded(dataset, FUNCTION.name, takes=None)
    if dataset.schema == SCHEMA:
        raise DPError(f"'{dataset.name}' lives in another engine, and dp_running is for DuckDB's own tables.")
    _check_rows_stay(session, dataset, place)
    if dataset.accounting.pure:
        raise DPError(
            f"dp_running adds Gaussian noise, which has no pure epsilon (delta 0), the budget of '{dataset.name}'; ask the count of "
            "each closed period by dp_marginals."
        )
    groups, time = _groups(session, dataset, arguments["attributes"]), _time(session, dataset, arguments)
    if time.name in {group.name for group in groups}:
        raise DPError(
            f"{identifier(time.name)} is the time, of which each step has a total; leave it out of the groups."
        )
    request = Request(
        function=FUNCTION.name,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=dataset.max_rows,
        accounting=dataset.accounting,
        attributes=(*groups, time),
        questions=(),
        cost=stable_cost(parse_budget(arguments, dataset), dataset.accounting),
        mechanism="toeplitz",
        objective="total",
        options=(("horizon", time.size - 1),),
    )
    totals = request.domain.cells(request.domain.attributes)
    if totals > MOST_TOTALS:
        raise DPError(
            f"{totals:,} totals are asked, of groups times steps, and the limit is {MOST_TOTALS:,}; use fewer groups."
        )
    if not running.over(request):
        raise DPError(f"the first step ends at {time.points[1]}, and nothing is known before; ask again then.")
    return _first_rows(owned(session, dataset, request))


def _check_rows_stay(session: Session, dataset: Dataset, place: Place) -> None:
    """Refuse a view in which a row may go or change its time when others come, which the bound on what a unit adds does not cover.

    Raises:
        DPError: it is such a view.
    """
    text, table = None if dataset.member is None else dataset.member.view, catalog.of(session, dataset)
    if text is None and (table is None or not table.view):
        return
    if text is not None and (name := _chosen_from(text)) is not None:
        return _check_rows_stay(session, find_dataset(session.ledger, name, *place), place)
    raise DPError(
        f"'{dataset.name}' is a view, in which a row may go or change when others come; dp_running is for tables, and for relations of "
        "dp_view that choose rows and columns of one: CALL dp_view('some', 'SELECT * FROM table WHERE ...')."
    )


def _chosen_from(text: str) -> str | None:
    """The one table of which a SELECT chooses rows and columns, each by itself; None of a SELECT that does more."""
    from sqlglot import exp, parse_one  # for import time

    asked = parse_one(text, dialect="duckdb")
    more = {word for word, value in asked.args.items() if value} - {"expressions", "from_", "from", "where"}
    tables = list(asked.find_all(exp.Table))
    beyond = asked.find(exp.Subquery, exp.Exists, exp.Window, exp.AggFunc, exp.Join, exp.Unnest)
    if not isinstance(asked, exp.Select) or more or beyond or len(tables) != 1:
        return None
    return ".".join(part.sql("duckdb") for part in tables[0].parts)


def _groups(session: Session, dataset: Dataset, asked: object) -> tuple[Attribute, ...]:
    """The attributes to group by, in the order of their declaration.

    Raises:
        DPError: one is not declared.
    """
    declared = session.declared(dataset)
    names = [asked] if isinstance(asked, str) else asked
    if not isinstance(names, list):
        raise DPError(f"attributes are {as_sql(asked)}; name declared ones, as ['region'], or [] for the whole table.")
    chosen = {find_attribute(dataset, declared, name).name for name in names}
    if taken := sorted(name for name in chosen if name.lower() in ERRORS):
        raise DPError(
            f"{as_sql(taken[0])} is the name of a column of the answer too; name the group otherwise in a view."
        )
    return tuple(attribute for attribute in declared.values() if attribute.name in chosen)


def _time(session: Session, dataset: Dataset, arguments: Arguments) -> Attribute:
    """The column of the time, with a cell for each step of the horizon and one for what comes after.

    Raises:
        DPError: there is no such column, or no such steps.
    """
    table = catalog.of(session, dataset)
    columns = {a.name: a.type for a in session.declared(dataset).values()} if table is None else table.columns
    moments = {name: type_ for name, type_ in columns.items() if type_ == "DATE" or type_.startswith("TIMESTAMP")}
    asked = arguments.get("time_column")
    if asked is None and len(moments) != 1:
        raise DPError(
            f"'{dataset.name}' has {few(moments) or 'no column'} of dates or timestamps; name the one that says when a row belongs: "
            "time_column := 'visit_date'."
        )
    name = next(iter(moments)) if asked is None else next(
        (name for name in columns if isinstance(asked, str) and name.lower() == asked.lower()), None
    )  # fmt: skip
    if name is None:
        raise DPError(
            f"'{dataset.name}' has no column {as_sql(asked)}; its dates and timestamps: {few(moments) or 'none'}."
        )
    dtype = types.column_type(columns[name], f"'{dataset.name}'.{identifier(name)}")
    if name not in moments:
        raise DPError(
            f"time_column is {identifier(name)}, of type {columns[name]}; name a column of dates or timestamps."
        )
    every = word(arguments, "every", "day")
    if every not in STEPS or (every == "hour" and columns[name] == "DATE"):
        known = [step for step in STEPS if step != "hour" or columns[name] != "DATE"]
        raise DPError(f"every is {as_sql(every)}; of {columns[name]} there are {few(map(repr, known))}.")
    start = dtype.canonical(arguments.get("start") or "")
    if not isinstance(start, str) or not is_moment(columns[name], start):
        raise DPError(
            f"start is {as_sql(arguments.get('start'))}; say where the first step begins, for good, as start := DATE '2026-01-01'."
        )
    horizon = whole_number(arguments, "horizon", MOST_STEPS) or 365
    points = running.edges(start, STEPS[every], horizon + 1)
    if points is None:
        raise DPError(f"{horizon} steps of a {every} from {start} go beyond the year 9999; use a smaller horizon.")
    return Attribute(name=name, type=columns[name], kind="bins", points=points)


def _first_rows(request: Request) -> Request:
    """The request about the first ``max_rows`` rows of each unit by time, so that a later row never takes the place of an earlier one."""
    if request.unit is None:
        return request
    time, unit = request.attributes[-1], render.unit_columns(request)
    when = f"TRY_CAST({quote(time.name)} AS {time.type})"
    columns = [quote(attribute.name) for attribute in request.attributes]
    order = ", ".join([when, *(f"encode(CAST({column} AS VARCHAR))" for column in columns)])
    shown = ", ".join(dict.fromkeys([*unit, *columns]))
    apart = ", ".join(render.unit_keys(unit))
    first, last = (literal(str(point)) for point in (time.points[0], time.points[-1]))
    sql = (
        f"SELECT {shown} FROM {render.relation(request)} WHERE {when} >= CAST({first} AS {time.type}) AND "
        f"{when} < CAST({last} AS {time.type}) QUALIFY row_number() OVER (PARTITION BY {apart} ORDER BY {order}) <= {request.max_rows}"
    )
    (owner,) = units(request.unit)
    return replace(request, source=Source(sql=sql, owner=owner))


def read(session: Session, stored: Release, arguments: Arguments, _place: Place) -> str:
    """SQL for the rows of a release whose horizon is over, by its name or number."""
    no_postprocess(arguments, FUNCTION.name)
    request = Request.from_json(stored.request)
    found = _read(request, render.stored_handle(stored), private=stored.private)
    if not short.is_short(arguments):
        return found
    return short.shortened(session, found, _read(request, short.NOTHING, private=stored.private))


def _read(request: Request, handle: str, *, private: bool) -> str:
    call = f"_dp_call('', {literal(FUNCTION.name)}, to_json({{'handle': handle}})::VARCHAR, '', '', NULL::VARCHAR)"
    rows_of = render.checked("rows", f"SELECT {call} AS text FROM handle")
    *groups, time = request.attributes
    labels = {**{group.name: group.column_type for group in groups}, time.name: time.type}
    columns = {**dict.fromkeys(labels, "VARCHAR"), **dict.fromkeys(ERRORS, "DOUBLE")}
    texts = [f"TRY_CAST({quote(name)} AS {type_}) AS {quote(name)}" for name, type_ in labels.items()]
    marked = "" if private else ", false AS private"
    return f"WITH {handle}, {rows_of} SELECT {', '.join([*texts, *ERRORS])}{marked} FROM ({render.json_rows(columns)})"


def rows(session: Session, arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """The totals of the steps that were measured."""
    release, steps = session.ledger.steps(int(arguments["handle"]))
    if release.function != FUNCTION.name:
        raise DPError(f"release {release.id} is of {release.function}; FROM dp_release({release.id}) reads it.")
    request = Request.from_json(release.request)
    session.show(release.id, request)
    stored = None if steps else session.release_of(FUNCTION.name, arguments["handle"])
    found = running.estimates(request, steps) if stored is None else session.arrays(stored)[running.MEASURED]
    *groups, time = request.attributes
    totals, stddevs = running.totals(found), running.stddevs(request, len(found))
    return [
        _row({**dict(label), time.name: str(begins)}, float(total), float(stddev))
        for group, label in enumerate(_labels(groups))
        for begins, total, stddev in zip(time.points, totals[:, group], stddevs, strict=False)
    ]


def _labels(groups: Sequence[Attribute]) -> list[dict[str, str | None]]:
    """The labels of each group, in the order of its cells."""
    each = [[None if label is None else str(label) for label in group.labels()] for group in groups]
    return [dict(zip([group.name for group in groups], found, strict=True)) for found in itertools.product(*each)]


def _row(labels: Mapping[str, Any], total: float, stddev: float) -> dict[str, Any]:
    half = GAUSSIAN.quantile * stddev
    return {**labels, "total": total, "stddev": stddev, "ci_low": total - half, "ci_high": total + half}


FUNCTION = register(Function(name="dp_running", plan=plan, rows=rows, read=read, compares=True))
