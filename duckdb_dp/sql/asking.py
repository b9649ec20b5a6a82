"""Questions: what dp_marginals, dp_queries, dp_sql and dp_release mean, as SQL."""

from typing import TYPE_CHECKING, Any

from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.answers import check_postprocess, plan
from duckdb_dp.counting.encode import literal
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.plan.base import Plan
from duckdb_dp.release import check
from duckdb_dp.request import SYNTHESES, Request
from duckdb_dp.sql import dp_links, dp_quality, dp_synthesize, layout, render
from duckdb_dp.sql.attaching import full_name_of
from duckdb_dp.sql.parse import Arguments, find_dataset, flag, parse_budget, parse_postprocess, parse_request

if TYPE_CHECKING:
    from duckdb_dp.sql.functions import Session


def ask(session: "Session", function: str, arguments: Arguments, place: tuple[str, str]) -> str:
    """SQL for dp_marginals, dp_queries and dp_sql: reads the stored release if there is one, else counts and charges."""
    dataset, request = request_of(session, function, arguments, place)
    # What cannot be planned is refused before anything runs.
    planned = None if request.adaptive else plan(request)
    check(request)
    name, fresh = arguments.get("release"), flag(arguments, "fresh")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise DPError(f"release is {as_sql(name)}; a release's name is a text, e.g. release := 'census'.")
    session.check_columns(dataset, request.attributes)
    stored = None if fresh else session.stored(request, name)
    if stored is not None:
        return _read(session, stored, arguments)
    handle = render.run(request, session.ledger.unit_key(), name=name, fresh=fresh)
    return _rows(request, planned, handle, arguments, private=session.bits.private)


def release(session: "Session", arguments: Arguments, place: tuple[str, str]) -> str:
    """SQL for FROM dp_release: the rows of a stored release, by its name or number, at no cost."""
    name = arguments["name"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DPError(f"the release is {as_sql(name)}; give its name or its number in dp_releases().")
    stored = session.ledger.release(name)
    session.read[stored.id] = stored
    if stored.function in SYNTHESES:
        for option in ("postprocess", "reconstruct"):
            if arguments.get(option) is not None:
                raise DPError(f"release '{name}' is of {stored.function}, and {option} reads marginals; leave it out.")
        if stored.function == "dp_links":
            return dp_links.read(session, stored, place)
        read = dp_synthesize.read if stored.function == "dp_synthesize" else dp_quality.read
        return read(session, stored)
    return _read(session, stored, arguments)


def request_of(
    session: "Session", function: str, arguments: Arguments, place: tuple[str, str]
) -> tuple[Dataset, Request]:
    """The dataset and the request that a call, or the call that dp_explain explains, stands for."""
    arguments = _named(function, arguments)
    dataset = dataset_of(session, function, arguments, place)
    if arguments.get("given") is not None:
        arguments = {**arguments, "given": _release_numbers(session, arguments["given"])}
    budget = parse_budget(arguments, dataset)
    return dataset, parse_request(function, arguments, dataset, session.declared(dataset), budget)


def _release_numbers(session: "Session", given: Any) -> list[int]:
    """The stored releases that an adaptive mechanism starts from: numbers, so that a name's later release is another request."""
    keys = given if isinstance(given, list) else [given]
    if not keys or not all(isinstance(key, str | int) and not isinstance(key, bool) for key in keys):
        raise DPError(f"given is {as_sql(given)}; write the names of releases, e.g. given := ['overview'].")
    return sorted({session.ledger.release(key).id for key in keys})


def _named(function: str, arguments: Arguments) -> Arguments:
    """The arguments of dp_explain under the names that the explained function has for them."""
    word = {"dp_queries": "queries", "dp_sql": "sql", "dp_marginals": "attributes"}[function]
    return arguments if word in arguments else {**arguments, word: arguments["attributes"]}


def dataset_of(session: "Session", function: str, arguments: Arguments, place: tuple[str, str]) -> Dataset:
    """The dataset named, or the one that all SELECTs of a dp_sql read."""
    arguments = _named(function, arguments)
    if function != "dp_sql":
        return find_dataset(session.ledger, arguments["dataset"], *place)
    from duckdb_dp.sql.select import parse_selects, table_name  # brings sqlglot, which a marginal need not wait for

    names = [full_name_of(session.ledger, table_name(select), place) for select in parse_selects(arguments["sql"])]
    found = [find_dataset(session.ledger, name, *place) for name in names]
    if arguments.get("dataset") is not None:
        found.append(find_dataset(session.ledger, arguments["dataset"], *place))
    if len({dataset.id for dataset in found}) > 1:
        several = few(sorted({dataset.name for dataset in found}))
        raise DPError(f"the SELECTs read several datasets ({several}); ask each in a call of its own.")
    return found[0]


def _read(session: "Session", stored: Release, arguments: Arguments) -> str:
    request, answers = Request.from_json(stored.request), session.answers(stored)
    handle = f"handle AS (SELECT {literal(str(stored.id))} AS handle)"
    return _rows(request, answers.plan, handle, arguments, private=stored.private)


def _rows(request: Request, planned: Plan | None, handle: str, arguments: Arguments, *, private: bool) -> str:
    postprocess = parse_postprocess(arguments, request)
    check_postprocess(request, postprocess)
    if planned is not None and request.function == "dp_queries":
        return layout.queries(request, planned, handle, private=private)
    if planned is not None and request.function == "dp_sql":
        return layout.select(request, planned, handle, private=private)
    if planned is not None and postprocess is None:
        errors = render.Errors.of(planned)
    else:
        errors = render.Errors(stddevs=None, measured=postprocess is None, postprocess=postprocess)
    return render.marginals(request, errors, handle, bounds=flag(arguments, "bounds"), private=private)
