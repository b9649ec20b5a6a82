"""dp_marginals, dp_queries, dp_quantiles and dp_sql: from a call to a request about one table, which is looked for and charged."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.answers import plan as planned_for
from duckdb_dp.budget import Budget
from duckdb_dp.domain.domain import UnknownAttribute
from duckdb_dp.errors import DPError, NoGroups
from duckdb_dp.release import check
from duckdb_dp.request import ADAPTIVE, Question, Request
from duckdb_dp.sql import answer_rows, answer_size, older_forms, precision, render, routes, same_sums
from duckdb_dp.sql.above.asked import Statement
from duckdb_dp.sql.arguments import (
    Arguments,
    Place,
    check_unit,
    flag,
    parse_budget,
    release_name,
    stable_cost,
    word,
)
from duckdb_dp.sql.mechanisms import check_mechanism, mechanism_options, release_numbers
from duckdb_dp.sql.question_kinds import Declared, Kind
from duckdb_dp.sql.registry import Function, functions, register
from duckdb_dp.sql.row_bounds import Bounds
from duckdb_dp.sql.session import Session

if TYPE_CHECKING:
    from duckdb_dp.grouped_sums import GroupedSums
    from duckdb_dp.sql.found_groups import Found

Done = TypeVar("Done")

_KINDS: dict[str, Kind] = {}


def kinds() -> Mapping[str, Kind]:
    """All kinds, by the function's name."""
    functions()
    return _KINDS


def register_kind(kind: Kind) -> Function:
    """Add a function that asks questions, for SQL and for dp_explain."""
    _KINDS[kind.name] = kind

    def ask(session: Session, arguments: Arguments, place: Place) -> str:
        return _ask(session, kind, arguments, place)

    def read(session: Session, stored: Release, arguments: Arguments, _place: Place) -> str:
        return answer_rows.read(session, kind, stored, arguments)

    return register(Function(name=kind.name, plan=ask, read=read, compares=True, public=True))


def _ask(session: Session, kind: Kind, arguments: Arguments, place: Place) -> str:
    """The SQL that reads the stored release if there is one, otherwise counts and charges. Refuses what cannot be planned."""
    above, arguments = opened(session, kind, arguments, place)
    if precision.asked(arguments) and arguments.get("delta") is not None:
        raise DPError(f"{kind.name}: precision takes no delta, which would be a second budget; leave it out.")
    arguments = precise(session, kind, arguments, place)
    name, fresh = release_name(arguments), flag(arguments, "fresh")
    try:
        found = None if kind.found is None else kind.found(session, arguments, place)
        dataset, request = request_of(session, kind, arguments, place, found)
    except NoGroups:  # which earlier versions may have answered, with groups that have no rows
        before = None if fresh else _before(session, kind, arguments, name, place)
        if before is None:
            raise
        return answer_rows.read(session, kind, before, arguments, above)
    planned = None if request.adaptive or request.direct else planned_for(request)
    made = () if found is None else dict(found.computed)
    if made or not any(
        part.source is not None for part in request.direct
    ):  # otherwise the tables were looked at just now
        session.check_columns(dataset, tuple(one for one in request.attributes if one.name not in made))
    stored = (
        None
        if fresh
        else session.stored(request, name) or _older(session, kind, arguments, dataset, request, name, place, found)
    )
    if stored is not None:
        return answer_rows.read(session, kind, stored, arguments, above)
    selects = request.direct or any(question.select is not None for question in request.questions)
    if selects and not fresh and name is None and (same := same_sums.find(session, request)) is not None:
        return answer_rows.read(session, kind, same[0], arguments, above, same[1])
    later = found if found is not None and found.pending else None
    if session.most_rows is not None and above is None and later is None:
        answer_size.check(session, kind.name, answer_size.of_request(request, arguments))
    if above is not None:
        above.check_size(request)
    check(request)
    key, private = session.unit_key(), session.bits.private
    if request.direct:
        from duckdb_dp.sql import direct_counts  # for import time: counts of cells do without it

        handle = direct_counts.run(session, request, key, name=name, fresh=fresh, found=later)
    else:
        cliques = None if planned is None else (*request.cliques, *planned.beyond)
        handle = render.run(request, key, name=name, fresh=fresh, cliques=cliques)
    names = () if later is None else later.names
    return answer_rows.rows(session, kind, request, planned, handle, arguments, private, above, names)


def opened(session: Session, kind: Kind, arguments: Arguments, place: Place) -> tuple[Statement | None, Arguments]:
    """What stands above the SELECTs of a call, and the call of these; None and the call as it is where nothing does.

    Raises:
        DPError: it is not understood.
    """
    above = None if kind.above is None else kind.above(session, arguments[kind.argument], place)
    return above, arguments if above is None else {**arguments, kind.argument: above.selects, "above": above}


def precise(session: Session, kind: Kind, arguments: Arguments, place: Place) -> Arguments:
    """The arguments of a call with the budget that its precision needs, if it has one.

    Raises:
        DPError: no budget is enough, or it cannot be told.
    """
    if precision.asked(arguments) is None:
        return arguments

    def asked(call: Arguments) -> Request:
        found = None if kind.found is None else kind.found(session, call, place)
        return request_of(session, kind, call, place, found)[1]

    return precision.budgeted(arguments, kind.dataset(session, arguments, place).accounting, asked)


def _older(
    session: Session,
    kind: Kind,
    arguments: Arguments,
    dataset: Dataset,
    request: Request,
    name: str | None,
    place: Place,
    found: "Found | None",
) -> Release | None:
    """The release of the same call that an earlier version answered by one route, where it takes another or both now.

    Or the release of a plan of the same call for another reading, which it can be read in too.
    """
    if kind.adaptive and not request.direct:
        asked = word(arguments, "mechanism", "auto")
        plain = replace(request, mechanism=asked, objective=word(arguments, "objective", "total"), options=())
        return None if plain == request or asked in ADAPTIVE else session.stored(plain, name)
    older, declared = {**arguments, routes.OLDER: True}, session.declared(dataset)
    lines = (arguments, older) if request.lined else (arguments,)
    now: list[Callable[[], Request]] = [partial(_as_written, session, kind, one, place) for one in lines]
    ways: list[Callable[[], Request]] = []
    if request.selected is not None and word(arguments, "mechanism", "auto") == "auto":
        ways.append(lambda: replace(now[0](), mechanism="auto", options=()))
    if request.lined or (request.direct and request.questions):
        ways.append(lambda: request_of(session, kind, older, place, found)[1])
    by_one = not (request.direct and request.questions)
    if by_one and (request.rest or request.lined or (request.direct and request.mechanism == "auto")):
        ways.append(lambda: parse_request(kind, older, dataset, declared, parse_budget(older, dataset)))
    if kind.direct is not None and request.questions and request.mechanism == "auto":
        by_rows = {**arguments, routes.ROUTE: routes.ROWS}
        ways.append(lambda: request_of(session, kind, by_rows, place, found)[1])
    if older_forms.possible(session, request):
        ways += [partial(_as_written, session, kind, {**one, routes.AS_WRITTEN: True}, place) for one in lines]
    same = now if older_forms.has_sources(request) else [*now, *ways]
    ways += [older_forms.formed(form, way) for form in older_forms.forms(session, request, arguments) for way in same]
    if older_forms.has_sources(request) and dataset.member is not None and dataset.member.view is not None:
        all_rows = partial(_as_written, session, kind, {**arguments, routes.ALL_ROWS: True}, place)
        ways += [all_rows, older_forms.formed(3, all_rows)]
    for way in ways:
        with suppress(DPError):  # it could not be asked so
            if (stored := session.stored(_owned(session, dataset, way()), name)) is not None:
                return stored
    return None


def _before(session: Session, kind: Kind, arguments: Arguments, name: str | None, place: Place) -> Release | None:
    """The release of a call that is refused now, as it was stored in an earlier form."""
    from duckdb_dp.sql.same_conditions import NEWEST, in_form  # for import time: it brings sqlglot

    for number in range(NEWEST - 1, 0, -1):
        with suppress(DPError), in_form(number):
            found = None if kind.found is None else kind.found(session, arguments, place)
            dataset, request = request_of(session, kind, arguments, place, found)
            stored = session.stored(request, name)
            stored = stored or _older(session, kind, arguments, dataset, request, name, place, found)
            if stored is not None:
                return stored
    return None


def _as_written(session: Session, kind: Kind, arguments: Arguments, place: Place) -> Request:
    """The request of a join by these arguments, with the groups that are found by them, also where none are by those of now."""
    groups = None if kind.found is None else kind.found(session, arguments, place)
    return request_of(session, kind, arguments, place, groups)[1]


def request_of(
    session: Session, kind: Kind, arguments: Arguments, place: Place, found: "Found | None" = None
) -> tuple[Dataset, Request]:
    """The dataset and the canonical request of a call; of groups that are yet to be found it has placeholders.

    Raises:
        DPError: bad input, one line each.
    """
    dataset = kind.dataset(session, arguments, place)
    if arguments.get("given") is not None:
        arguments = {**arguments, "given": release_numbers(session, arguments["given"])}
    budget, declared = parse_budget(arguments, dataset), session.declared(dataset)
    check_unit(dataset)
    check_mechanism(word(arguments, "mechanism", "auto"), dataset, adaptive=kind.adaptive, own=kind.own)
    bounds = Bounds.of(kind.name, dataset, arguments, sums=kind.direct is not None)
    if found is not None:
        declared, arguments = {**declared, **found.known}, {**arguments, "found": found}
    direct: tuple[GroupedSums, ...] = ()
    if kind.direct is not None:
        direct, read = _of(dataset, kind.direct, session, dataset, declared, arguments, place)
        declared, bounds = dict(read), bounds.of_joined(direct)
        direct = bounds.of_each(direct)
    declared = declared if found is None else {**declared, **found.placeholders}
    request = _owned(session, dataset, parse_request(kind, arguments, dataset, declared, budget, direct, bounds))
    if found is None or not found.requests:
        request = kind.chosen(request, arguments)
    else:
        known = [release for release in found.stored if release is not None]
        request = replace(request, cost=found.cost)
        from duckdb_dp.sql.found_groups import filled  # for import time

        request = request if found.pending else filled(session, request, known)
    if kind.direct is None or not request.questions or request.mechanism != "auto" or routes.ROUTE in arguments:
        return dataset, request
    summed = {**arguments, routes.ROUTE: routes.ROWS}
    return dataset, routes.better(request, lambda: request_of(session, kind, summed, place, found)[1])


def _owned(session: Session, dataset: Dataset, request: Request) -> Request:
    if dataset.member is None:
        return request
    from duckdb_dp.sql.owners import owned  # for import time: most tables are protected alone

    return owned(session, dataset, request)


def _of(dataset: Dataset, work: Callable[..., Done], *arguments: Any) -> Done:
    """What a function returns; its errors about undeclared columns name the table."""
    try:
        return work(*arguments)
    except UnknownAttribute as error:
        place = dataset.name, dataset.argument
        raise UnknownAttribute(error.name, error.declared, place, error.advice) from None


def parse_request(
    kind: Kind,
    arguments: Arguments,
    dataset: Dataset,
    declared: Declared,
    budget: Budget,
    direct: "tuple[GroupedSums, ...]" = (),
    bounds: Bounds | None = None,
) -> Request:
    """The canonical request of a call whose dataset is known; it asks no questions where sums answer it.

    Raises:
        DPError: bad input, one line each.
    """
    check_unit(dataset)
    bounds = bounds or Bounds.of(kind.name, dataset, arguments, sums=kind.direct is not None)
    arguments = {**arguments, "summed": {part.number for part in direct}}
    declared = _of(dataset, kind.domain, declared, dataset, arguments)
    asked: tuple[Question, ...] = _of(dataset, kind.questions, arguments[kind.argument], dataset, declared, arguments)
    mechanism = word(arguments, "mechanism", "auto")
    if bounds.auto and not direct:
        raise DPError(
            f"{kind.name}: what one unit adds is bounded privately on the rows themselves, in DuckDB's own tables, by mechanism 'auto' "
            "or 'direct'; for others add max_rows := 10, say."
        )
    adaptive = kind.adaptive
    check_mechanism(mechanism, dataset, adaptive=adaptive, own=kind.own)
    direct = tuple(same_sums.in_domain_order(part, declared, lambda name: declared[name].size) for part in direct)
    used = {name for clique in (*(one.clique for one in asked), *(one.clique for one in direct)) for name in clique}
    return Request(
        function=kind.name,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=bounds.rows,
        accounting=dataset.accounting,
        attributes=tuple(attribute.with_rest(False) for name, attribute in declared.items() if name in used),
        questions=asked,
        cost=stable_cost(budget, dataset.accounting),
        mechanism=mechanism,
        objective=word(arguments, "objective", "total"),
        options=mechanism_options(arguments, mechanism, kind.name, adaptive=adaptive) + bounds.options,
        direct=direct,
        auto_rows=bounds.auto,
        rest=tuple(name for name, attribute in declared.items() if name in used and attribute.rest),
    )
