"""Who comes in: tokens are checked here, slowly once an address has been refused often."""

import hashlib
import threading
import time
from collections import OrderedDict, deque
from typing import final

import anyio
from anyio import to_thread

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.session import Account, Session

REFUSALS = 10
"""Sign-ins that an address may have refused within a minute."""

IDLE = 600.0
"""Seconds after which an agent's session is closed that has not asked."""

_REMEMBERED = 10_000


class TooManyError(DPError):
    """An address has been refused too often to be heard now."""


@final
class Door:
    """Signs accounts in, and keeps one session for each account that asks without visits, as agents do."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._lock = threading.Lock()
        self._refused: OrderedDict[str, deque[float]] = OrderedDict()
        self._good: OrderedDict[bytes, float] = OrderedDict()
        self._sessions: dict[tuple[str, str], tuple[Session, float]] = {}
        self._strangers = anyio.CapacityLimiter(4)

    async def account(self, name: str | None, token: str, *, address: str, client: str) -> Account:
        """The account of a token.

        A token that was good within the last hour is not held up by strangers from the same address.

        Raises:
            TooManyError: the address was refused too often within the last minute.
            DPError: the name or the token is wrong.
        """
        key, now = hashlib.sha256(token.encode("utf-8", "replace")).digest(), time.monotonic()
        with self._lock:
            known = now - self._good.get(key, -1e9) < 3600
            if not known and self._is_refused(address, now):
                raise TooManyError("too many sign-ins from your address were refused; wait a minute and try again.")

        def check() -> Account:
            return self.gateway.sign_in(name, token, client=client)

        try:
            found = await to_thread.run_sync(check, limiter=None if known else self._strangers)
        except DPError:
            with self._lock:
                self._good.pop(key, None)
                self._refused.setdefault(address, deque(maxlen=REFUSALS)).append(time.monotonic())
                self._refused.move_to_end(address)
                _trim(self._refused)
            raise
        with self._lock:
            self._good[key] = now
            _trim(self._good)
        return found

    def session(self, account: Account, client: str) -> Session:
        """The session that an account's agents share."""
        now, key, old = time.monotonic(), (account.name, account.role), []
        with self._lock:
            for each, (session, used) in list(self._sessions.items()):
                if each != key and now - used > IDLE:
                    old.append(session)
                    del self._sessions[each]
            found = self._sessions.get(key)
            current = found[0] if found else self.gateway.session(account, client=client)
            self._sessions[key] = (current, now)
        for session in old:
            session.close()
        return current

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            sessions = [session for session, _ in self._sessions.values()]
            self._sessions.clear()
        for session in sessions:
            session.close()

    def _is_refused(self, address: str, now: float) -> bool:
        times = self._refused.get(address, deque())
        return len(times) == REFUSALS and now - times[0] < 60


def _trim(kept: "OrderedDict[str, deque[float]] | OrderedDict[bytes, float]") -> None:
    while len(kept) > _REMEMBERED:
        kept.popitem(last=False)
