"""Who calls: every call carries a token, or a name and a token, and is checked, so that a closed account is out within a second."""

import base64
import binascii
import secrets
from dataclasses import dataclass
from typing import final

import pyarrow.flight as fl

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.session import Account

HOW = "sign in with your name as user and your token as password, or send the header 'authorization: Bearer <token>'."
LONGEST = 1000
"""Characters of a header that is read."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An account, and which of its sessions; '' is the one of those who send the token alone."""

    account: Account
    session: str


@final
class Open(fl.ServerAuthHandler):  # type: ignore[misc]
    """Lets every handshake through: headers say who calls, and ``SignIn`` has read them by then."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        """Nothing is exchanged."""

    def is_valid(self, token: object) -> str:
        """Headers say who calls."""
        return ""


@final
class Signed(fl.ServerMiddleware):  # type: ignore[misc]
    """What a call knows of its caller.

    Args:
        caller: who.
        bearer: what the client sends from now on; None where it sends that already.
    """

    def __init__(self, caller: Caller, bearer: str | None) -> None:
        super().__init__()
        self.caller, self._bearer = caller, bearer

    def sending_headers(self) -> dict[str, str]:
        """The bearer token, after a handshake."""
        return {} if self._bearer is None else {"authorization": f"Bearer {self._bearer}"}


@final
class SignIn(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads who calls from the headers.

    A handshake with a name and a token (basic authentication) returns a bearer token: the same token, a dot, and the number of a
    new session. So the gateway keeps no list of tokens that were given out, and none outlives its account.
    """

    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway

    def start_call(self, info: fl.CallInfo, headers: dict[str, list[str]]) -> Signed:
        """Check the caller.

        Raises:
            FlightUnauthenticatedError: the account or its token is wrong.
        """
        try:
            return self._signed(headers, handshake=info.method == fl.FlightMethod.HANDSHAKE)
        except DPError as error:
            raise fl.FlightUnauthenticatedError(f"flight: {error}".rstrip(".")) from None
        except Exception as error:
            raise fl.FlightUnauthenticatedError(str(self._gateway.log.unforeseen(error))) from None

    def _signed(self, headers: dict[str, list[str]], *, handshake: bool) -> Signed:
        given = {name.lower(): values for name, values in headers.items()}
        agent = "".join(str(each) for each in given.get("user-agent", [])[:1] if str(each).isprintable())[:100]
        sent = [str(each)[:LONGEST] for each in given.get("authorization", [])]
        basic = next((each for each in sent if each[:6].lower() == "basic "), None)
        bearer = next((each[7:].strip() for each in reversed(sent) if each[:7].lower() == "bearer "), None)
        if basic is not None and (handshake or bearer is None):
            name, token = _name_and_token(basic[6:])
            session = secrets.token_urlsafe(12) if handshake else ""
            account = self._gateway.sign_in(name, token, client=f"flight {agent}")
            return Signed(Caller(account=account, session=session), f"{token}.{session}" if handshake else None)
        if bearer is None:
            raise DPError(HOW)
        token, _, session = bearer.partition(".")
        return Signed(Caller(account=self._account(token, agent), session=session[:64]), None)

    def _account(self, token: str, agent: str) -> Account:
        """The account of a token: four calls of a client in a row ask for it."""
        return self._gateway.recent(token) or self._gateway.sign_in(None, token, client=f"flight {agent}")


def _name_and_token(text: str) -> tuple[str, str]:
    """The two of basic authentication. Some clients leave the '=' at its end out, and some write it for URLs."""
    try:
        plain = text.strip().replace("-", "+").replace("_", "/").rstrip("=")
        name, colon, token = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise DPError(HOW)
    return name, token
