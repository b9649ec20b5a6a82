"""dp_marginals, dp_queries, dp_quantiles and dp_sql: from a call to a request about one table, and to the SQL of its answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, final

from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.answers import direct_plan
from duckdb_dp.answers import plan as planned_for
from duckdb_dp.budget import Budget
from duckdb_dp.domain.domain import Attribute, UnknownAttribute
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS
from duckdb_dp.release import check
from duckdb_dp.request import ADAPTIVE, Question, Request
from duckdb_dp.sql import direct_counts, direct_rows, render
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
    word,
)
from duckdb_dp.sql.registry import Function, functions, register
from duckdb_dp.sql.session import Session

Declared = Mapping[str, Attribute]
Found = TypeVar("Found")


def named_dataset(session: Session, arguments: Arguments, place: Place) -> Dataset:
    """The dataset that is an argument of the call."""
    return find_dataset(session.ledger, arguments["dataset"], *place)


def as_declared(declared: Declared, _arguments: Arguments) -> Declared:
    """The attributes as they are declared."""
    return declared


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A function that asks queries about one table: dp_marginals, dp_queries, dp_quantiles or dp_sql.

    Attributes:
        name: of the function.
        argument: the argument that holds the queries.
        recognises: whether the arguments of dp_explain ask about a call of this function; its second one is 'attributes'.
        questions: (argument, dataset, declared, arguments) -> the questions.
        rows: (request, plan, handle, arguments, private) -> the SQL of the answers; the plan is None for an adaptive one.
        describe: a question in a few words.
        dataset: whose questions they are.
        adaptive: whether adaptive mechanisms can answer them.
        direct: (session, dataset, declared, arguments) -> the sums that answer the call row by row; none where questions do.
        domain: (declared, arguments) -> the attributes as the function counts their cells.
    """

    name: str
    argument: str
    recognises: Callable[[Arguments], bool]
    questions: Callable[[Any, Dataset, Declared, Arguments], tuple[Question, ...]]
    rows: Callable[[Request, Plan | None, str, Arguments, bool], str]
    describe: Callable[[Question], str]
    dataset: Callable[[Session, Arguments, Place], Dataset] = named_dataset
    adaptive: bool = False
    direct: Callable[[Session, Dataset, Declared, Arguments], tuple[GroupedSums, ...]] | None = None
    domain: Callable[[Declared, Arguments], Declared] = as_declared


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
        return _read(session, kind, stored, arguments)

    return register(Function(name=kind.name, plan=ask, read=read, compares=True, public=True))


def _ask(session: Session, kind: Kind, arguments: Arguments, place: Place) -> str:
    """The SQL that reads the stored release if there is one, otherwise counts and charges. Refuses what cannot be planned."""
    dataset, request = request_of(session, kind, arguments, place)
    planned = None if request.adaptive or request.direct else planned_for(request)
    check(request)
    name, fresh = release_name(arguments), flag(arguments, "fresh")
    session.check_columns(dataset, request.attributes)
    stored = (
        None if fresh else session.stored(request, name) or _older(session, kind, arguments, dataset, request, name)
    )
    if stored is not None:
        return _read(session, kind, stored, arguments)
    key = session.ledger.unit_key()
    if request.direct:
        return _sums(request, direct_counts.run(request, key, name=name, fresh=fresh), arguments, session.bits.private)
    handle = render.run(request, key, name=name, fresh=fresh)
    return kind.rows(request, planned, handle, arguments, session.bits.private)


def _older(
    session: Session, kind: Kind, arguments: Arguments, dataset: Dataset, request: Request, name: str | None
) -> Release | None:
    """The release of the same call that an earlier version answered by questions, where it is asked row by row now."""
    if not request.direct or request.mechanism != "auto":
        return None
    try:
        planned = parse_request(kind, arguments, dataset, session.declared(dataset), parse_budget(arguments, dataset))
        return session.stored(planned, name)
    except DPError:
        return None


def _read(session: Session, kind: Kind, stored: Release, arguments: Arguments) -> str:
    request, answers = Request.from_json(stored.request), session.answers(stored)
    if request.direct:
        return _sums(request, render.stored_handle(stored), arguments, stored.private)
    return kind.rows(request, answers.plan, render.stored_handle(stored), arguments, stored.private)


def _sums(request: Request, handle: str, arguments: Arguments, private: bool) -> str:
    no_postprocess(arguments, request.function)
    return direct_rows.select(request, direct_plan(request), handle, private=private)


def request_of(session: Session, kind: Kind, arguments: Arguments, place: Place) -> tuple[Dataset, Request]:
    """The dataset and the canonical request of a call.

    Raises:
        DPError: bad input, one line each.
    """
    dataset = kind.dataset(session, arguments, place)
    if arguments.get("given") is not None:
        arguments = {**arguments, "given": _release_numbers(session, arguments["given"])}
    budget, declared = parse_budget(arguments, dataset), session.declared(dataset)
    check_unit(dataset)
    direct = () if kind.direct is None else _of(dataset, kind.direct, session, dataset, declared, arguments)
    return dataset, parse_request(kind, arguments, dataset, declared, budget, direct)


def _of(dataset: Dataset, work: Callable[..., Found], *arguments: Any) -> Found:
    """What a function returns; its errors about undeclared columns name the table."""
    try:
        return work(*arguments)
    except UnknownAttribute as error:
        raise UnknownAttribute(error.name, error.declared, (dataset.name, dataset.argument)) from None


def parse_request(
    kind: Kind,
    arguments: Arguments,
    dataset: Dataset,
    declared: Declared,
    budget: Budget,
    direct: tuple[GroupedSums, ...] = (),
) -> Request:
    """The canonical request of a call whose dataset is known; it asks no questions where sums answer it.

    Raises:
        DPError: bad input, one line each.
    """
    check_unit(dataset)
    declared = _of(dataset, kind.domain, declared, arguments)
    asked: tuple[Question, ...] = ()
    if not direct:
        asked = _of(dataset, kind.questions, arguments[kind.argument], dataset, declared, arguments)
    mechanism = word(arguments, "mechanism", "auto")
    _check_mechanism(kind, mechanism, dataset)
    used = {name for one in (asked or direct) for name in one.clique}
    return Request(
        function=kind.name,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=dataset.max_rows,
        accounting=dataset.accounting,
        attributes=tuple(attribute for name, attribute in declared.items() if name in used),
        questions=asked,
        cost=stable_cost(budget, dataset.accounting),
        mechanism=mechanism,
        objective=word(arguments, "objective", "total"),
        options=_options(arguments, mechanism, kind),
        direct=direct,
    )


def _check_mechanism(kind: Kind, mechanism: str, dataset: Dataset) -> None:
    """Refuse an unknown mechanism; the error names those that the function supports for the dataset.

    Raises:
        DPError: there is no such mechanism.
    """
    pure = dataset.accounting.pure
    known = dict.fromkeys([*([] if pure else PLANNERS), *PURE_PLANNERS, *([] if pure else ADAPTIVE)])
    if mechanism in {"auto", *PLANNERS, *PURE_PLANNERS, *ADAPTIVE, *(["direct"] if kind.direct else [])}:
        return
    if not kind.adaptive:
        known = {name: None for name in known if name not in {"gaussian", "laplace", *ADAPTIVE}}
        known |= {"direct": None} if kind.direct else {}
    raise DPError(f"mechanism {as_sql(mechanism)} is not known; use 'auto', {', '.join(map(repr, known))}.")


def _options(arguments: Arguments, mechanism: str, kind: Kind) -> tuple[tuple[str, Any], ...]:
    """Arguments that only adaptive mechanisms take.

    Raises:
        DPError: one is given to another mechanism, or such a mechanism is asked for other queries than marginals.
    """
    given = {
        name: arguments[name]
        for name in ("given", "max_cells", "max_memory", "rounds")
        if arguments.get(name) is not None
    }
    if mechanism not in ADAPTIVE:
        if given:
            names = ", ".join(given)
            raise DPError(f"{names}: mechanism {as_sql(mechanism)} does not take that; mechanism := 'aim' does.")
        return ()
    if not kind.adaptive:
        raise DPError(
            f"{kind.name}: mechanism '{mechanism}' answers marginals; use dp_marginals, or mechanism := 'auto'."
        )
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in sorted(given.items()))


def _release_numbers(session: Session, given: Any) -> list[int]:
    """The stored releases that an adaptive mechanism starts from: numbers, so that a name's later release is another request."""
    keys = given if isinstance(given, list) else [given]
    if not keys or not all(isinstance(key, str | int) and not isinstance(key, bool) for key in keys):
        raise DPError(f"given is {as_sql(given)}; write the names of releases, e.g. given := ['overview'].")
    return sorted({session.ledger.release(key).id for key in keys})
