"""dp_discover: the values of a column that nobody has declared, as far as many units hold them, and its bounds and bins."""

from dataclasses import replace
from typing import Any

from duckdb_dp.accounting.convert import shown
from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.accounting.records import units
from duckdb_dp.answers import price
from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, canonical
from duckdb_dp.domain.public_cells import edges
from duckdb_dp.errors import DPError, as_sql, few, nearest
from duckdb_dp.plan.unknown_values import ThresholdNoise
from duckdb_dp.request import Request
from duckdb_dp.sql import catalog, declarations, precision, render, unknown_values
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
from duckdb_dp.sql.owners import owned
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.row_bounds import with_rows
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.signing import seal
from duckdb_dp.synthesis.discovery import BOUNDS, cell_noise

MECHANISMS = {"values": "gaussian", "bounds": "histogram", "bins": "prefix"}
"""What can be found, and how it is measured."""

SHARE = 0.01
"""Of discovery_delta, what a call takes at least; where it takes more than that of the budget, it takes as much of this."""

MOST_VALUES, MOST_BINS, BINS = 1_000_000, 1_000, 16

MOST_UNITS = 2.0**53
"""A threshold beyond it is out of reach of any table."""

ON_EACH_ROW = 1_000
"""Up to so many rows each has the declaration; of more only the first, as it lists all of them."""


def plan(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL for dp_discover: reads the stored release if there is one, else counts, charges and measures it."""
    arguments = precise(session, arguments, place)
    request = request_of(session, arguments, place)
    name, fresh, declares = release_name(arguments), flag(arguments, "fresh"), flag(arguments, "declare")
    for asked in () if fresh else (request, _former(request)):
        if (stored := session.stored(asked, name)) is not None:
            return _read(asked, render.stored_handle(stored), declares=declares, private=stored.private)
    key = session.unit_key()
    if request.attributes:
        handle = render.run(request, key, name=name, fresh=fresh, cliques=(request.domain.attributes,))
    else:
        handle = unknown_values.run(request, key, name=name, fresh=fresh)
    return _read(request, handle, declares=declares, private=session.bits.private)


def _former(request: Request) -> Request:
    """The request as earlier versions wrote it, which did not look for NULL."""
    options = tuple(one for one in request.options if one[0] != "nulls")
    attributes = tuple(replace(attribute, nulls=False) for attribute in request.attributes)
    return replace(request, options=options, attributes=attributes)


def precise(session: Session, arguments: Arguments, place: Place) -> Arguments:
    """The arguments with the budget at which the counts have the standard deviation that is asked for, if one is.

    Raises:
        DPError: bad input, one line each.
    """
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    return precision.scaled(arguments, dataset.accounting, lambda call: _noise(request_of(session, call, place))[0])


def request_of(
    session: Session,
    arguments: Arguments,
    place: Place,
    *,
    cost: float | None = None,
    column: tuple[str, str] | None = None,
) -> Request:
    """The canonical request of a call, or of one of that cost about a column of that name and type.

    Raises:
        DPError: bad input, one line each.
    """
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    check_unit(dataset)
    name, type_ = column or _column(session, dataset, arguments["attribute"])
    find = word(arguments, "find", "values")
    if find not in MECHANISMS:
        raise DPError(f"find {as_sql(find)} is not known; use {few(map(repr, MECHANISMS), ' or ')}.")
    if cost is None:
        cost = stable_cost(parse_budget(arguments, dataset), dataset.accounting)
    if dataset.accounting.pure:
        raise DPError(
            f"dp_discover adds Gaussian noise, which has no pure epsilon (delta 0), the budget of '{dataset.name}'; declare "
            "its domain by dp_attribute."
        )
    attributes: tuple[Attribute, ...] = ()
    if find == "values":
        if arguments.get("max_rows") is not None:
            raise DPError("max_rows is for find := 'bounds' and 'bins'; of values max_values counts for each unit.")
        if units(dataset.unit) == ((name,),):
            raise DPError(
                f"{as_sql(name)} is the unit of '{dataset.name}': each of its values is one unit's, so none can be released."
            )
        more = _values(arguments, dataset, cost)
        more |= {} if column is not None else {"nulls": True}  # groups that are found have NULL among the others
    else:
        dataset = with_rows(f"dp_discover of {find}", dataset, arguments)
        more = _bins(arguments, find)
        attributes = (_public_cells(dataset, name, type_, find),)
    options = {"attribute": name, "type": type_, "find": find, **more}
    request = Request(
        function=FUNCTION.name,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=dataset.max_rows,
        accounting=dataset.accounting,
        attributes=attributes,
        questions=(),
        cost=cost,
        mechanism=MECHANISMS[find],
        objective="total",
        options=tuple(sorted(options.items())),
    )
    if (threshold := _noise(request)[1]) > MOST_UNITS:
        raise DPError(
            f"with this budget a value would have to be held by {threshold:.0g} units to be found; use a larger one, and "
            "dp_explain shows the threshold."
        )
    return owned(session, dataset, request)


def _noise(request: Request) -> tuple[float, float]:
    """(standard deviation, threshold) of the counts."""
    options, beta = dict(request.options), price(request).beta
    assert beta is not None, "refused under pure DP"
    if options["find"] == "values":
        noise = ThresholdNoise.of(request)
        return noise.stddev, noise.threshold
    cells = len(edges(types.column_type(options["type"]), fine=False)) - 1
    share = BOUNDS if options["find"] == "bins" else 1.0
    return cell_noise(1, share * beta / 2, cells)


def _public_cells(dataset: Dataset, name: str, type_: str, find: str) -> Attribute:
    """The column with public cells over the whole range of its type, and one for NULL.

    Raises:
        DPError: the type has no order.
    """
    dtype = types.column_type(type_)
    if not dtype.ordered:
        raise DPError(
            f"'{dataset.name}'.'{name}' has type {type_}, which has no order, and find := '{find}' is for numbers, dates and "
            "times; use find := 'values'."
        )
    return Attribute(name=name, type=type_, kind="bins", points=edges(dtype, fine=find == "bins"), nulls=True)


def _bins(arguments: Arguments, find: str) -> dict[str, Any]:
    """The options of find := 'bounds' and 'bins'.

    Raises:
        DPError: an argument is not theirs.
    """
    if arguments.get("max_values") is not None:
        raise DPError("max_values is for find := 'values'; leave it out.")
    if find == "bins":
        return {"bins": whole_number(arguments, "bins", MOST_BINS) or BINS}
    if arguments.get("bins") is not None:
        raise DPError("bins is for find := 'bins'; leave it out.")
    return {}


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
    raise DPError(f"'{dataset.name}' has no column {as_sql(asked)}; its columns are: {nearest(columns, asked)}.")


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
    labels = _labels(request)
    columns = {**dict.fromkeys(labels, "VARCHAR"), **ERRORS}
    texts = [f"TRY_CAST({name} AS {type_}) AS {name}" for name, type_ in labels.items()]
    chosen = ", ".join([*texts, *map(quote, ERRORS)])
    marked = "" if private else ", false AS private"
    return f"WITH {handle}, {rows_of} SELECT {chosen}{marked} FROM ({render.json_rows(columns)})"


ERRORS = {"count": "DOUBLE", "stddev": "DOUBLE", "threshold": "DOUBLE", "declare": "VARCHAR"}


def _labels(request: Request) -> dict[str, str]:
    """Names and types of the columns before the counts."""
    options = dict(request.options)
    if options["find"] == "values":
        return {"value": options["type"]}
    return dict.fromkeys(("low", "high"), types.column_type(options["type"]).edge_type)


def _declaring(request: Request) -> str:
    return f"declare {request.hash}"


def rows(session: Session, arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """The rows of a stored release; they are declared where the call was checked to ask for it."""
    stored = session.release_of(FUNCTION.name, arguments["handle"])
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
    options = dict(request.options)
    if options["find"] == "values":
        arrays = session.arrays(stored)
        values, nulls = unknown_values.read(arrays, options["type"]), unknown_values.missing(arrays)
        noise, texts = ThresholdNoise.of(request), [value for value, _ in values]
        errors = {"stddev": noise.stddev, "threshold": noise.threshold}
        found = [{"value": value, "count": count, **errors} for value, count in values]
        return found, declarations.of_values(request, texts, dataset.argument, nulls=nulls)
    detail = session.detail(stored)
    points = detail["edges"]
    texts = [str(point) for point in points]
    found = [
        {"low": low, "high": high, "count": count, "stddev": stddev, "threshold": detail["threshold"]}
        for low, high, count, stddev in zip(texts, texts[1:], detail["counts"], detail["stddevs"], strict=False)
    ]
    return found, declarations.of_cells(request, points, dataset.argument, nulls=detail.get("nulls", False))


EXPLAINED = {
    "attribute": "VARCHAR", "find": "VARCHAR", "stddev": "DOUBLE", "threshold": "DOUBLE", "discovery_delta": "DOUBLE",
    "mechanism": "VARCHAR", "rho": "DOUBLE", "mu": "DOUBLE", "epsilon": "DOUBLE", "delta": "DOUBLE",
}  # fmt: skip
"""Columns of dp_explain about a call."""


def explained(arguments: Arguments) -> dict[str, Any] | None:
    """The arguments of the call that dp_explain is asked about: {'discover': 'diagnosis', 'max_values': 3}; None for others.

    Raises:
        DPError: one of them is none of dp_discover's.
    """
    asked = arguments["attributes"]
    if not isinstance(asked, dict) or "discover" not in asked:
        return None
    more = {name: value for name, value in asked.items() if name != "discover"}
    if unknown := set(more) - {"find", "max_values", "bins"}:
        raise DPError(
            f"{few(map(repr, sorted(unknown)))}: beside 'discover' there may be 'find', 'max_values' and 'bins'."
        )
    budget = {name: arguments.get(name) for name in ("dataset", "epsilon", "delta", "rho", "mu", "precision")}
    return {**budget, "attribute": asked["discover"], **more}


def explain(session: Session, arguments: Arguments, place: Place) -> Rows:
    """One row: the noise, the threshold and the price of a call, without reading data.

    Privacy: costs nothing.
    """
    request = request_of(session, precise(session, arguments, place), place)
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    options, delta = dict(request.options), dataset.cost_delta
    stddev, threshold = _noise(request)
    return [
        {
            "attribute": options["attribute"],
            "find": options["find"],
            "stddev": stddev,
            "threshold": threshold,
            "discovery_delta": options.get("delta"),
            "mechanism": request.mechanism,
            "rho": request.accounting.rho(request.cost),
            "mu": request.accounting.mu(request.cost),
            "epsilon": None if delta is None else shown(request.accounting.epsilon(request.cost, delta)),
            "delta": delta,
        }
    ]


FUNCTION = register(
    Function(name="dp_discover", plan=plan, rows=rows, read=read, compares=True, declaring=("declare",))
)
