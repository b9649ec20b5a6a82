"""dp_synthesize: from its arguments to a request, and from a stored release to rows in the table's own types."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.counting.encode import decode, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.turns import LEAST, TURNS, classes
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.request import Request
from duckdb_dp.sql import answer_size, catalog, dp_link, precision, provenance, render
from duckdb_dp.sql.alike_keys import with_alike
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
from duckdb_dp.sql.ordered_columns import check_orders, with_orders
from duckdb_dp.sql.owners import owned
from duckdb_dp.sql.registry import Function, register
from duckdb_dp.sql.row_bounds import with_rows
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.functions import check
from duckdb_dp.synthesis.table.columns import DEFAULT, ROUNDED, cliques

MAX_ROWS = 100_000_000
"""Most synthetic rows of one request: 0.8 GB for each attribute."""

ALSO = "also"
"""No argument of users': attributes that nobody declared, as they are those of keys of public tables."""

WIDE = "wide"
"""No argument of users': columns of the key that are numbered as BIGINT whatever their type, until they get their values."""

MAX_ROUNDS = 20
"""Most times that all pairs are scored."""


def plan(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL of the rows: reads the stored release if there is one, else counts, charges and draws."""
    dataset = with_rows(FUNCTION.name, find_dataset(session.ledger, arguments["dataset"], *place), arguments)
    request = request_of(session, dataset, arguments)
    key = _key(session, dataset, request, arguments.get("key"))
    key |= dict.fromkeys(arguments.get(WIDE, ()), "BIGINT")
    session.check_columns(dataset, request.attributes)
    name, fresh = release_name(arguments), flag(arguments, "fresh")
    stored = None if fresh else session.stored(request, name)
    if stored is not None:
        return _rows(session, request, render.stored_handle(stored), key, stored)
    check_orders(request)
    answer_size.check(session, FUNCTION.name, dict(request.options).get("rows"))
    handle = render.run(request, session.unit_key(), name=name, fresh=fresh, cliques=cliques(request))
    return _rows(session, request, handle, key, None)


def read(session: Session, stored: Release, arguments: Arguments, _place: Place) -> str:
    """SQL for the rows of a stored dp_synthesize, by its name or number."""
    no_postprocess(arguments, FUNCTION.name)
    request = Request.from_json(stored.request)
    dataset = find_dataset(session.ledger.asked_by(None), request.table, request.catalog, request.schema)
    return _rows(session, request, render.stored_handle(stored), _key(session, dataset, request, None), stored)


def attributes_of(session: Session, dataset: Dataset, arguments: Arguments) -> dict[str, Attribute]:
    """The attributes that a call can ask for."""
    also: Iterable[Attribute] = arguments.get(ALSO) or ()
    return session.declared(dataset, decimals=True) | {attribute.name: attribute for attribute in also}


def request_of(session: Session, dataset: Dataset, arguments: Arguments) -> Request:
    """The canonical request of a dp_synthesize.

    Raises:
        DPError: no attributes, an unknown method, or an argument that is not valid.
    """
    method = word(arguments, "method", DEFAULT.method)
    given = {name: whole_number(arguments, name, most) for name, most in (("rows", MAX_ROWS), ("rounds", MAX_ROUNDS))}
    if given["rounds"] is not None and method != DEFAULT.method:
        raise DPError(f"rounds: method {as_sql(method)} does not take that; method := '{DEFAULT.method}' does.")
    arguments = precision.refuse(
        arguments, "how far synthetic rows are from the table depends on it, and dp_quality measures that"
    )
    budget = parse_budget(arguments, dataset)
    request = Request(
        function=FUNCTION.name,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=dataset.max_rows,
        accounting=dataset.accounting,
        attributes=chosen_attributes(dataset, attributes_of(session, dataset, arguments), arguments.get("attributes")),
        questions=(),
        cost=stable_cost(budget, dataset.accounting),
        mechanism=method,
        objective="",
        options=tuple((name, value) for name, value in sorted(given.items()) if value is not None),
    )
    check(request)
    request = with_orders(request, catalog.of(session, dataset), request.attributes)
    if method != DEFAULT.method:
        return owned(session, dataset, request)
    request = owned(session, dataset, with_turns(request))
    # What is stored is read as it is, and no public table with it.
    known = None if flag(arguments, "fresh") else session.stored(request, release_name(arguments))
    return with_alike(session, dataset, request) if known is None else Request.from_json(known.request)


def with_turns(request: Request) -> Request:
    """The request, with the turns of rows where it may be chosen how many of each unit count: in DuckDB's own tables."""
    if request.max_rows < LEAST or request.schema == SCHEMA:
        return request
    return replace(request, options=tuple(sorted([*request.options, (TURNS, classes(request.max_rows))])))


def chosen_attributes(dataset: Dataset, declared: Mapping[str, Attribute], asked: object) -> tuple[Attribute, ...]:
    """The declared attributes that are asked for, all by default, in the order of their declaration.

    Raises:
        DPError: there are none, or one is not declared, or rows cannot be counted by themselves.
    """
    check_unit(dataset)
    check_bounded(dataset, "a synthesis")
    if asked is None:
        found = tuple(declared.values())
    elif asked == []:
        raise DPError("attributes is []; name some, e.g. attributes := ['age', 'sex'], or leave it out for all.")
    elif isinstance(asked, list):
        names = {find_attribute(dataset, declared, name).name for name in asked}
        found = tuple(attribute for name, attribute in declared.items() if name in names)
    else:
        raise DPError(f"attributes is {as_sql(asked)}; write a list of names, e.g. attributes := ['age', 'sex'].")
    if not found:
        raise DPError(
            f"'{dataset.name}' has no attributes to make rows of. Declare them: CALL dp_attributes({dataset.argument}) or "
            "dp_attribute."
        )
    return found


# Keys: no attributes, so they are made up when the rows are read


def _key(session: Session, dataset: Dataset, request: Request, asked: object) -> dict[str, str]:
    """Columns (with types) that number the rows: as asked, or the columns of the primary key that are not attributes.

    Raises:
        DPError: a column does not exist, or its type cannot hold a number.
    """
    table = catalog.of(session, dataset)
    known = {} if table is None else dp_link.with_rowid(session, dataset, table.columns)
    if table is not None and not table.key and dp_link.has_rowid(dataset, table):
        known = {dp_link.ROWID: "BIGINT", **known}
    names = {attribute.name.lower() for attribute in request.attributes}
    if asked is None:
        own = () if table is None else table.key or dp_link.declared_key(session, dataset)
        found = {column: known[column] for column in own if column in known}
        kept = {column: type_ for column, type_ in found.items() if column.lower() not in names}
        return kept if all(map(numbered, kept.values())) else {}
    given = asked if isinstance(asked, list) else [asked]
    columns = {name.lower(): (name, type_) for name, type_ in known.items()}
    chosen: dict[str, str] = {}
    for column in given:
        if not isinstance(column, str) or column.lower() in names:
            raise DPError(f"key is {as_sql(asked)}; name columns of '{dataset.name}' that are no attributes asked for.")
        name, type_ = columns.get(column.lower(), (column, "BIGINT") if table is None else (column, ""))
        if type_ and dataset.schema != SCHEMA:
            types.column_type(type_, f"key '{column}'")
        if not numbered(type_):
            raise DPError(
                f"key '{column}' is {f'of type {type_}' if type_ else 'no column'} in '{dataset.name}'; name a column of "
                "whole numbers or text."
            )
        chosen[name] = type_
    return chosen


def numbered(type_: str) -> bool:
    """Whether a column of that type can hold a row's number."""
    return (found := types.find(type_)) is not None and found.key("", "n") is not None


def numbered_key(table: str, key: Mapping[str, str]) -> tuple[list[str], str]:
    """SQL of the columns of a key, column -> type, that differ for each number n from 1, and the condition that n has room in them.

    Text has the table's name before the number. The original cannot have more rows than its key has values; the noisy number of rows
    can be more.
    """
    found, before, wide = list[str](), 1, False
    for name, type_ in key.items():
        dtype = types.column_type(type_)
        # Beside a column that holds all numbers, narrow ones repeat theirs.
        number = "n" if dtype.key_room is None or before == 1 else f"((n - 1) // {before} + 1)"
        found.append(f"{dtype.key(table, number)} AS {quote(name)}")
        before, wide = before * (dtype.key_room or 1), wide or dtype.key_room is None
    return found, "" if wide or not found else f" WHERE n <= {before}"


# Rows


def _rows(session: Session, request: Request, handle: str, key: Mapping[str, str], stored: Release | None) -> str:
    private = session.bits.private if stored is None else stored.private
    columns, fits = numbered_key(request.table, key)
    columns += [
        f"{decode(a, f'c{i}', rounded=rounded(session, stored))} AS {quote(a.name)}"
        for i, a in enumerate(request.attributes)
    ]
    drawn = ", ".join(f"unnest(_dp_cells(handle, {i})) AS c{i}" for i in range(len(request.attributes)))
    numbered = ", unnest(range(1, 1 + len(_dp_cells(handle, 0)))) AS n" if key else ""
    marked = "" if private else ", false AS private"
    select = f"SELECT {', '.join(columns)}{marked} FROM (SELECT {drawn}{numbered} FROM handle){fits}"
    names = [*key, *(attribute.name for attribute in request.attributes)]
    return provenance.handed_out(session, stored, handle, select, names)


def rounded(session: Session, stored: Release | None) -> bool:
    """Whether the values of a release, or of one that is yet to be drawn, are rounded: those of older versions stay as they were."""
    return stored is None or bool(session.detail(stored).get(ROUNDED))


FUNCTION = register(Function(name="dp_synthesize", plan=plan, read=read, compares=True, public=True))
