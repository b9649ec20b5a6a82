"""The SQL of the answers to a request about one table: those of a stored release, or of one that is about to be."""

from collections.abc import Sequence

from duckdb_dp.accounting.ledger import Release
from duckdb_dp.answers import direct_plan
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Request
from duckdb_dp.sql import render, short
from duckdb_dp.sql.above.asked import Statement
from duckdb_dp.sql.arguments import Arguments, no_postprocess
from duckdb_dp.sql.question_kinds import Kind
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.signing import reads


def read(
    session: Session,
    kind: Kind,
    stored: Release,
    arguments: Arguments,
    above: Statement | None = None,
    asked: Request | None = None,
) -> str:
    """The answers of a release, shown as its own request says, or as another does that measures the same."""
    request, found = asked or Request.from_json(stored.request), session.answers(stored)
    plan = None if request.direct else found.plan
    return rows(session, kind, request, plan, render.stored_handle(stored), arguments, stored.private, above)


def rows(
    session: Session,
    kind: Kind,
    request: Request,
    plan: Plan | None,
    handle: str,
    arguments: Arguments,
    private: bool,
    above: Statement | None,
    names: Sequence[str] = (),
) -> str:
    """The SELECT of the answers, in short columns where they are asked for: the request is the same."""

    def answers(handle: str, names: Sequence[str]) -> str:
        if request.direct and request.questions:
            return _batch(session, request, handle, arguments, private, names)
        if request.direct:
            return _sums(request, handle, arguments, private, names)
        return kind.rows(request, plan, handle, arguments, private)

    def shown(handle: str, names: Sequence[str]) -> str:
        found = answers(handle, names)
        return short.shortened(session, found, answers(short.NOTHING, ())) if short.is_short(arguments) else found

    reads(request)
    if above is not None:
        known, in_short = direct_plan(request) if request.direct else plan, short.is_short(arguments)
        assert known is not None
        return above.sql(request, known, handle, private=private, found=names, in_short=in_short)
    found = shown(handle, names)
    if kind.arranged is None:
        return found
    return kind.arranged(session, arguments, found, lambda: shown(short.NOTHING, ()))


def _batch(
    session: Session, request: Request, handle: str, arguments: Arguments, private: bool, found: Sequence[str]
) -> str:
    """SELECTs of which some are planned and some summed."""
    from duckdb_dp.sql.above.statement import batch  # for import time: it brings sqlglot

    no_postprocess(arguments, request.function)
    return batch(session, request).sql(request, direct_plan(request), handle, private=private, found=found)


def _sums(request: Request, handle: str, arguments: Arguments, private: bool, found: Sequence[str] = ()) -> str:
    no_postprocess(arguments, request.function)
    from duckdb_dp.sql import direct_rows  # for import time

    return direct_rows.select(request, direct_plan(request), handle, private=private, found=found)
