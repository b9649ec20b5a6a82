"""dp_discover: the values of a column that nobody has declared, as far as many units hold them, and its bounds and bins."""

from typing import Any

from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, canonical
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.plan.unknown_values import ThresholdNoise
from duckdb_dp.request import Request
from duckdb_dp.sql import catalog, render, unknown_values
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
    whole_number,
    word,
)
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.signing import seal

FINDS = ("values",)

SHARE = 0.01
"""Of discovery_delta, what a call takes at least; where it takes more than that of the budget, it takes as much of this."""

MOST_VALUES = 1_000_000

ON_EACH_ROW = 1_000
"""Up to so many rows each has the declaration; of more only the first, as it lists all of them."""


def plan(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL for dp_discover: reads the stored release if there is one, else counts, charges and measures it."""
    request = request_of(session, arguments, place)
    name, fresh, declares = release_name(arguments), flag(arguments, "fresh"), flag(arguments, "declare")
    stored = None if fresh else session.stored(request, name)
    if stored is not None:
        return _read(request, render.stored_handle(stored), declares=declares, private=stored.private)
    handle = unknown_values.run(request, session.ledger.unit_key(), name=name, fresh=fresh)
    return _read(request, handle, declares=declares, private=session.bits.private)


def request_of(session: Session, arguments: Arguments, place: Place) -> Request:
    """The canonical request of a call.

    Raises:
        DPError: bad input, one line each.
    """
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    check_unit(dataset)
    name, type_ = _column(session, dataset, arguments["attribute"])
    find = word(arguments, "find", FINDS[0])
    if find not in FINDS:
        raise DPError(f"find {as_sql(find)} is not known; use {few(map(repr, FINDS), ' or ')}.")
    cost = stable_cost(parse_budget(arguments, dataset), dataset.accounting)
    options = {"attribute": name, "type": type_, "find": find, **_values(arguments, dataset, cost)}
    return Request(
        function=FUNCTION.name,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=dataset.max_rows,
        accounting=dataset.accounting,
        attributes=(),
        questions=(),
        cost=cost,
        mechanism="gaussian",
        objective="total",
        options=tuple(sorted(options.items())),
    )


def _values(arguments: Arguments, dataset: Dataset, cost: float) -> dict[str, Any]:
    """The options of find := 'values'.

    Raises:
        DPError: the dataset has no discovery_delta, or a row is asked for several values.
    """
    values = whole_number(arguments, "max_values", MOST_VALUES) or 1
    if arguments.get("bins") is not None:
        raise DPError("bins is for find := 'bins'; leave it out.")
    if dataset.schema == SCHEMA:
        raise DPError(f"'{dataset.name}' lives in another engine, and find := 'values' is for DuckDB's own tables.")
    if dataset.discovery_delta is None:
        raise DPError(
            f"find := 'values' takes a part of discovery_delta, which dp_protect has not reserved for '{dataset.name}', and a "
            "declaration stays; declare the values by dp_attribute, or protect later tables with discovery_delta := 1e-10."
        )
    if dataset.unit is None and values > 1:
        raise DPError(
            f"max_values is {values}, and each row of '{dataset.name}' is a unit, with one value; leave it out."
        )
    share = max(SHARE, min(1.0, cost / dataset.budget))
    return {"max_values": values, "delta": share * dataset.discovery_delta}


def _column(session: Session, dataset: Dataset, asked: object) -> tuple[str, str]:
    """(name, type) of the column, as the committed catalog has it; of a TEMP table, as it was declared.

    Raises:
        DPError: there is none, or its type is not supported.
    """
    table = catalog.of(session, dataset)
    columns = {a.name: a.type for a in session.declared(dataset).values()} if table is None else table.columns
    if not columns:
        raise DPError(
            f"the columns of '{dataset.name}' cannot be seen: COMMIT the table first; of a TEMP table only declared ones can."
        )
    for name, type_ in columns.items():
        if isinstance(asked, str) and name.lower() == asked.lower():
            types.column_type(type_, f"'{dataset.name}'.'{name}'")
            return name, type_
    raise DPError(f"'{dataset.name}' has no column {as_sql(asked)}; its columns are: {few(columns)}.")


def read(session: Session, stored: Release, arguments: Arguments, _place: Place) -> str:
    """SQL for the rows of a stored dp_discover, by its name or number."""
    no_postprocess(arguments, FUNCTION.name)
    request = Request.from_json(stored.request)
    return _read(request, render.stored_handle(stored), declares=False, private=stored.private)


def _read(request: Request, handle: str, *, declares: bool, private: bool) -> str:
    sealed = literal(seal(_declaring(request)) if declares else None)
    asked = f"to_json({{'handle': handle, 'sealed': {sealed}}})::VARCHAR"
    call = f"_dp_call('', {literal(FUNCTION.name)}, {asked}, '', '', NULL::VARCHAR)"
    rows_of = render.checked("rows", f"SELECT {call} AS text FROM handle")
    columns = {"value": "VARCHAR", **ERRORS}
    type_ = dict(request.options)["type"]
    chosen = ", ".join(f"TRY_CAST(value AS {type_}) AS value" if c == "value" else quote(c) for c in columns)
    marked = "" if private else ", false AS private"
    return f"WITH {handle}, {rows_of} SELECT {chosen}{marked} FROM ({render.json_rows(columns)})"


ERRORS = {"count": "DOUBLE", "stddev": "DOUBLE", "threshold": "DOUBLE", "declare": "VARCHAR"}


def _declaring(request: Request) -> str:
    return f"declare {request.hash}"


def rows(session: Session, arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """The rows of a stored release; they are declared where the call was checked to ask for it."""
    stored = session.ledger.release(int(arguments["handle"]))
    request = Request.from_json(stored.request)
    dataset = session.ledger.dataset(request.catalog, request.schema, request.table)
    assert dataset is not None
    found, declared = _found(session, stored, request, dataset)
    text, attribute = declared or (None, None)
    if arguments.get("sealed") == seal(_declaring(request)) and attribute is not None:
        session.ledger.declare(dataset, attribute.name, canonical(attribute.to_json()))
    each = len(found) <= ON_EACH_ROW
    return [{**row, "declare": text if each or place == 0 else None} for place, row in enumerate(found)]


def _found(
    session: Session, stored: Release, request: Request, dataset: Dataset
) -> tuple[Rows, tuple[str, Attribute] | None]:
    """The rows without a declaration, and that."""
    values = unknown_values.read(session.arrays(stored), dict(request.options)["type"])
    noise = ThresholdNoise.of(request)
    texts = [value for value, _ in values]
    errors = {"stddev": noise.stddev, "threshold": noise.threshold}
    found = [{"value": value, "count": count, **errors} for value, count in values]
    return found, unknown_values.declaration(request, texts, dataset.argument)


FUNCTION = register(
    Function(name="dp_discover", plan=plan, rows=rows, read=read, compares=True, declaring=("declare",))
)
