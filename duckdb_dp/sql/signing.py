"""Signs the requests inside the SQL of a call, so that only requests that were checked while binding are run."""

import hmac
import secrets

from duckdb_dp.counting.encode import literal
from duckdb_dp.errors import DPError
from duckdb_dp.request import Request

_SECRET = secrets.token_bytes(32)
"""Of this process; a statement is bound and run in one."""

_DIGITS = 64


def signed(request: Request) -> str:
    """A request as a SQL literal."""
    text = request.to_json()
    return literal(_signature(text) + text)


def seal(text: str) -> str:
    """What proves later that a call was checked while it was bound."""
    return _signature(text)


def opened(text: str) -> str:
    """The JSON of a signed request.

    Raises:
        DPError: this process did not sign it.
    """
    signature, request = text[:_DIGITS], text[_DIGITS:]
    if not hmac.compare_digest(signature.encode(), _signature(request).encode()):
        raise DPError("a request was made by hand; ask by dp_marginals and the other dp_ functions.")
    return request


def _signature(text: str) -> str:
    return hmac.new(_SECRET, text.encode(), "sha256").hexdigest()
