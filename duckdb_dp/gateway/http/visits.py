"""Visits of people: a cookie, a session, the answers to download, and the tokens of their forms."""

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import final

import pyarrow as pa

from duckdb_dp.gateway.session import Account, Session

LIFE, IDLE = 8 * 3600.0, 3600.0
"""Seconds after which a visit ends: in all, and without a request."""

VISITS, OF_ACCOUNT = 1_000, 10
"""At once, in all and of one account: its oldest one ends where there are more."""

ANSWERS, BYTES = 3, 32 << 20
"""Answers of a visit that are kept for downloads, and their size."""


@final
@dataclass(slots=True, kw_only=True)
class Visit:
    """One signed-in browser."""

    account: Account
    token: str
    session: Session
    began: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)
    answers: "OrderedDict[str, pa.Table]" = field(default_factory=OrderedDict)

    def keep(self, table: pa.Table) -> str | None:
        """Keep an answer for its download; its key, or None where it is too large."""
        if table.nbytes > BYTES // ANSWERS:
            return None
        key = secrets.token_urlsafe(12)
        self.answers[key] = table
        while len(self.answers) > ANSWERS:
            self.answers.popitem(last=False)
        return key


@final
class Visits:
    """All visits, by the hashes of their cookies."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._visits: OrderedDict[bytes, Visit] = OrderedDict()

    def begin(self, visit: Visit) -> str:
        """The cookie of a new visit."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            own = [key for key, each in self._visits.items() if each.account.name == visit.account.name]
            over = own[: len(own) + 1 - OF_ACCOUNT] if len(own) >= OF_ACCOUNT else []
            over = over or [*self._visits][:1] if len(self._visits) >= VISITS else over
            ended = [self._visits.pop(key) for key in over]
            self._visits[_hash(cookie)] = visit
        for each in ended:
            each.session.close()
        return cookie

    def find(self, cookie: str) -> Visit | None:
        """The visit of a cookie; None where it is over."""
        now = time.monotonic()
        with self._lock:
            over = [key for key, each in self._visits.items() if now - each.began > LIFE or now - each.used > IDLE]
            ended = [self._visits.pop(key) for key in over]
            found = self._visits.get(_hash(cookie))
            if found is not None:
                found.used = now
                self._visits.move_to_end(_hash(cookie))
        for each in ended:
            each.session.close()
        return found

    def end(self, cookie: str) -> None:
        """End a visit."""
        with self._lock:
            found = self._visits.pop(_hash(cookie), None)
        if found is not None:
            found.session.close()

    def close(self) -> None:
        """End all visits."""
        with self._lock:
            found = list(self._visits.values())
            self._visits.clear()
        for each in found:
            each.session.close()

    def seal(self, cookie: str, text: str = "form") -> str:
        """What only this gateway can say of a text to the holder of a cookie: the token of its forms."""
        return hmac.new(self._secret, f"{cookie}\n{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def is_sealed(self, cookie: str, seal: str, text: str = "form") -> bool:
        """Whether a seal is of this text."""
        return bool(cookie) and hmac.compare_digest(self.seal(cookie, text).encode(), seal.encode("utf-8", "replace"))


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).digest()
