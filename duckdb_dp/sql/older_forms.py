"""Whether an earlier version may have stored the answers of a request in another form of it, under which they have to be looked for."""

from collections.abc import Callable
from typing import final

from duckdb_dp.request import Request
from duckdb_dp.sql.session import Session

_AS_WRITTEN = 'AS \\"t0\\"'
"""What the text of a request of a join says, in JSON, where its tables keep the order in which they were written."""


@final
class Looked:
    """Whether a ledger has such requests, by the account that sees them: it is looked through once, as no more of them are made."""

    def __init__(self) -> None:
        self.found: dict[object, bool] = {}


def possible(session: Session, request: Request) -> bool:
    """Whether the request may be stored as earlier versions wrote it: a join, or counts that are measured once now.

    Privacy: costs nothing; reads the ledger alone.
    """
    if has_sources(request):
        return _has_joins(session, request.function)
    return any(part.shares for part in request.direct)


def has_sources(request: Request) -> bool:
    """Whether the request reads relations of joined tables, whose conditions earlier versions kept as they were written."""
    return any(part.source is not None and part.source.canonical for part in request.direct)


def conditioned(made: Callable[[], Request]) -> Callable[[], Request]:
    """What makes the request with its conditions, and the keys of groups inside, as they are written."""
    from duckdb_dp.sql.owned.same_conditions import as_before  # for import time: it brings sqlglot

    def again() -> Request:
        with as_before():
            return made()

    return again


def _has_joins(session: Session, function: str) -> bool:
    found, account = session.kept(Looked).found, session.ledger.account
    if account not in found:
        numbers = session.ledger.newest(function, 2**31, private=session.bits.private)
        found[account] = any(_AS_WRITTEN in session.ledger.release(number).request for number, _ in numbers)
    return found[account]
