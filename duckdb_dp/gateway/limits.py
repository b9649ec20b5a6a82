"""How many statements an account runs at once and within a minute."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.config import Limits


@final
class Turnstile:
    """Lets statements in, by account, and knows how many run."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._state = threading.Condition()
        self._running: dict[str, int] = {}
        self._started: dict[str, deque[float]] = {}
        self._closed = False

    @contextmanager
    def admitted(self, account: str, *, counted: bool = True) -> Iterator[None]:
        """While a block runs, a statement of an account runs.

        Args:
            account: whose it is.
            counted: whether it is one more of those within a minute; one that was counted when it was prepared is not.

        Raises:
            DPError: too many do, or have within the last minute; or the gateway is stopping.
        """
        now = time.monotonic()
        with self._state:
            if self._closed:
                raise DPError("the gateway is stopping; ask again once it is back.")
            started = self._started.setdefault(account, deque())
            while started and started[0] < now - 60:
                started.popleft()
            if self._running.get(account, 0) >= self._limits.at_once:
                raise DPError(f"{self._limits.at_once} statements of '{account}' run already; wait for one to end.")
            if counted and len(started) >= self._limits.per_minute:
                raise DPError(
                    f"'{account}' has asked {self._limits.per_minute} statements within a minute; wait, and ask again."
                )
            if counted:
                started.append(now)
            self._running[account] = self._running.get(account, 0) + 1
        try:
            yield
        finally:
            with self._state:
                self._running[account] -= 1
                self._state.notify_all()

    def close(self, seconds: float) -> None:
        """Let nothing more in, and wait until what runs has ended."""
        with self._state:
            self._closed = True
            self._state.wait_for(lambda: not any(self._running.values()), seconds)
