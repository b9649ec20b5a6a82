"""Signs the requests inside the SQL of a call, so that only requests that were checked while binding are run."""

import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from duckdb_dp.counting.encode import literal
from duckdb_dp.errors import DPError
from duckdb_dp.request import Request

_SECRET = secrets.token_bytes(32)
"""Of this process; a statement is bound and run in one."""

_DIGITS = 64


ACCOUNT: ContextVar[str | None] = ContextVar("account", default=None)
"""The account of the gateway that asks, while its call is planned or charged; None: a local connection."""

CONNECTION: ContextVar[str] = ContextVar("connection", default="")
"""The key of the connection whose call that is; '' where nobody needs to know."""


WAITS: dict[str, int] = {}
"""The key of a connection -> the number of the request of its last call that waits for a steward: texts of errors may be anybody's."""

READ: dict[str, list[Request]] = {}
"""The key of a connection -> what its statements read answers to, of those connections that somebody looks at."""

PARTS = "_dp_part"
"""What the tables are called, with a number, that ``REST`` works on."""

REST: dict[str, str] = {}
"""The key of a connection -> what its last call asks above its answers, where that is not run beside them."""


def leaves(rest: str) -> None:
    """Note what is still to be done with the rows of the call that is planned now."""
    REST[CONNECTION.get()] = rest


def reads(request: Request) -> None:
    """Note that the call that is planned now reads answers to a request."""
    if (found := READ.get(CONNECTION.get())) is not None:
        found.append(request)


@contextmanager
def asked_by(account: str | None, connection: str = "") -> Iterator[None]:
    """While a block runs, an account asks, by a connection; also within a block of another one's."""
    before, older = ACCOUNT.set(account), CONNECTION.set(connection)
    try:
        yield
    finally:
        ACCOUNT.reset(before)
        CONNECTION.reset(older)


def signed(request: Request) -> str:
    """A request as a SQL literal, with the account that asks and its connection."""
    text = f"{ACCOUNT.get() or ''}\n{CONNECTION.get()}\n{request.to_json()}"
    return literal(_signature(text) + text)


def seal(text: str) -> str:
    """What proves later that a call was checked while it was bound."""
    return _signature(text)


def opened(text: str) -> str:
    """The JSON of a signed request.

    Raises:
        DPError: this process did not sign it.
    """
    return _checked(text)[2]


def asker(text: str) -> str | None:
    """The account that asked a signed request; None for a local connection.

    Raises:
        DPError: this process did not sign it.
    """
    return _checked(text)[0] or None


def connection_of(text: str) -> str:
    """The key of the connection that asked a signed request; '' of one that this process did not sign."""
    try:
        return _checked(text)[1]
    except DPError:
        return ""


def _checked(text: str) -> tuple[str, str, str]:
    signature, rest = text[:_DIGITS], text[_DIGITS:]
    if not hmac.compare_digest(signature.encode(), _signature(rest).encode()):
        raise DPError("a request was made by hand; ask by dp_marginals and the other dp_ functions.")
    account, connection, request = rest.split("\n", 2)
    return account, connection, request


def _signature(text: str) -> str:
    return hmac.new(_SECRET, text.encode(), "sha256").hexdigest()
