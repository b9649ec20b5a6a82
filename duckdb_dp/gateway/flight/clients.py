"""What the server keeps of its clients between two calls: their sessions, prepared statements, and answers that they have not read."""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import final

import pyarrow as pa
import pyarrow.flight as fl

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.flight.sign_in import Caller
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.session import Session

PREPARED, ANSWERS, SESSIONS = 1_000, 1_000, 100
"""Most prepared statements of a session, and unread answers and sessions of an account; the oldest make room."""

IDLE = 3600.0
"""Seconds after which a session ends that nobody used."""

UNREAD = 5.0
"""Seconds for which a server that stops waits for a client to read an answer that is ready."""

LOOK = 0.1
"""Seconds between two looks at whether a client has gone away."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A statement, and the values of its parameters."""

    sql: str
    parameters: tuple[object, ...] = ()


@final
class Answers:
    """Answers of an account that wait to be read.

    Args:
        memory: bytes of all but the newest; the oldest make room.
    """

    def __init__(self, memory: int) -> None:
        self._memory, self._held = memory, 0
        self._lock = threading.Lock()
        self._waiting: OrderedDict[bytes, pa.Table] = OrderedDict()
        self._newest = -UNREAD

    def keep(self, answer: pa.Table) -> bytes:
        """Keep an answer until it is read; its handle."""
        handle = secrets.token_bytes(16)
        with self._lock:
            self._waiting[handle] = answer
            self._newest = time.monotonic()
            self._held += answer.nbytes
            while len(self._waiting) > 1 and (self._held > self._memory or len(self._waiting) > ANSWERS):
                self._held -= self._waiting.popitem(last=False)[1].nbytes
        return handle

    @property
    def awaited(self) -> bool:
        """Whether a client may be about to read one."""
        with self._lock:
            return bool(self._waiting) and time.monotonic() - self._newest < UNREAD

    def take(self, handle: bytes) -> pa.Table | None:
        """An answer, which is forgotten; None where there is none."""
        with self._lock:
            found = self._waiting.pop(handle, None)
            self._held -= 0 if found is None else found.nbytes
        return found

    def read(self, handle: bytes) -> pa.Table:
        """An answer, which is forgotten.

        Raises:
            DPError: it was read before, or is none.
        """
        found = self.take(handle)
        if found is None:
            raise DPError(
                "flight: this answer was read already or waited too long; run the statement again: what is stored is free."
            )
        return found


@final
@dataclass(slots=True, kw_only=True)
class Client:
    """One session and what it left for later.

    Attributes:
        session: what runs its statements.
        answers: what waits to be read of all sessions of the account.
        used: when, by the monotonic clock.
        running: how many calls run.
        prepared: its prepared statements.
    """

    session: Session
    answers: Answers
    used: float = 0.0
    running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    prepared: OrderedDict[bytes, Prepared] = field(default_factory=OrderedDict)

    def prepare(self, sql: str) -> bytes:
        """Keep a statement; its handle."""
        handle = secrets.token_bytes(16)
        with self.lock:
            self.prepared[handle] = Prepared(sql=sql)
            while len(self.prepared) > PREPARED:
                self.prepared.popitem(last=False)
        return handle

    def statement(self, handle: bytes) -> Prepared:
        """A prepared statement.

        Raises:
            DPError: there is none of that handle.
        """
        found = self.prepared.get(handle)
        if found is None:
            raise DPError("flight: this session has no such prepared statement; prepare it again.")
        return found

    def bind(self, handle: bytes, parameters: Sequence[object]) -> None:
        """Give a prepared statement its values."""
        with self.lock:
            self.prepared[handle] = replace(self.statement(handle), parameters=tuple(parameters))


@final
class Clients:
    """All of them. A thread looks whether those have gone away whose statements run, and stops these.

    Args:
        gateway: whose sessions they are.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str, str], Client] = OrderedDict()
        self._answers: dict[str, Answers] = {}
        self._calls: dict[fl.ServerCallContext, Client] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._look, daemon=True, name="flight clients").start()

    @contextmanager
    def serving(self, caller: Caller, context: fl.ServerCallContext) -> Iterator[Client]:
        """While a block runs, a call of that client runs."""
        key = (caller.account.name, caller.account.role, caller.session)
        with self._lock:
            client = self._known.pop(key, None)
            if client is None:
                session = self._gateway.session(caller.account, client=f"flight {context.peer()}")
                memory = self._gateway.config.limits.memory << 20
                client = Client(session=session, answers=self._answers.setdefault(caller.account.name, Answers(memory)))
            self._known[key] = client
            client.running += 1
            client.used = time.monotonic()
            gone = self._outdated(caller.account.name)
            self._calls[context] = client
        for each in gone:
            each.session.close()
        try:
            yield client
        finally:
            with self._lock:
                self._calls.pop(context, None)
                client.running -= 1
                client.used = time.monotonic()

    def _outdated(self, account: str) -> list[Client]:
        """Forget those sessions that nobody uses, oldest first: all that are idle for long, and of an account those above the most."""
        before = time.monotonic() - IDLE
        own = sum(name == account for name, _, _ in self._known)
        gone = []
        for key, client in list(self._known.items()):
            if not client.running and (client.used < before or (own > SESSIONS and key[0] == account)):
                own -= key[0] == account
                gone.append(self._known.pop(key))
        return gone

    def end(self, caller: Caller) -> None:
        """Forget a client."""
        with self._lock:
            client = self._known.pop((caller.account.name, caller.account.role, caller.session), None)
        if client is not None:
            client.session.close()

    def _look(self) -> None:
        while not self._closed.wait(LOOK):
            with self._lock:
                # A session's statements share a sandbox: one is stopped only where no other would be.
                gone = [
                    client for context, client in self._calls.items() if client.running == 1 and context.is_cancelled()
                ]
            for client in gone:
                client.session.interrupt()

    def finish(self) -> None:
        """Wait until no call runs, and until what is answered is read, or nobody has read it for a while.

        Clients that go on asking, who are refused, do not hold it up for long.
        """
        busy, most = True, time.monotonic() + 2 * UNREAD
        while busy and time.monotonic() < most:
            time.sleep(LOOK)
            with self._lock:
                busy = bool(self._calls) or any(each.awaited for each in self._answers.values())

    def close(self) -> None:
        """End all sessions."""
        self._closed.set()
        with self._lock:
            clients = list(self._known.values())
            self._known.clear()
        for client in clients:
            client.session.close()
