"""A session's own DuckDB, in a process of its own: what an analyst writes around dp_ calls runs here."""

import os
import re
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import pyarrow as pa

from duckdb_dp.errors import DPError, first_line
from duckdb_dp.gateway.config import Limits
from duckdb_dp.gateway.values import UNREADABLE
from duckdb_dp.gateway.worker import receive, send

START = 60.0
"""Seconds that the process may take to start."""

LOST = " Tables that this session had made are gone; what was paid can be read again."

_SETTING = re.compile(r' *\bUse "?(?:SET|PRAGMA) [^.]*(?:\.|$)', re.IGNORECASE)
"""Advice to change a setting, which nobody may there."""

WORKER = Path(__file__).with_name("worker.py")


@final
class Sandbox:
    """A process that knows the tables it was given. A crash of it, or its end, is an error of one statement.

    Args:
        limits: of the account: seconds, rows and memory.
        lost: what is said of what ends with it, after a space.
    """

    def __init__(self, limits: Limits, lost: str = LOST) -> None:
        self._limits, self._lost = limits, lost
        self._lock = threading.Lock()
        self.tables: set[str] = set()
        """What it was given, in small letters."""
        self.synthetic = False
        """Whether it was given synthetic rows: all that comes from it may be made of them."""
        environment = {"PATH": os.defpath, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
        zone = os.environ.get("TZ")  # in which a day begins as in the database
        environment |= {} if zone is None else {"TZ": zone}
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(WORKER), str(limits.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _ended, self._process)  # also where a session is forgotten
        clock = threading.Timer(START, self._process.kill)  # no statement waits for its start
        clock.daemon = True
        clock.start()
        ready = receive(self._process.stdout)  # type: ignore[arg-type]
        clock.cancel()
        if ready is None:
            self.close()
            raise DPError("the gateway has no memory left to start a session; ask again later.")

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def give(self, name: str, table: pa.Table, schema: str = "main") -> None:
        """Copy rows into a table of that name, in the place of one that is there."""
        self._ask({"do": "table", "name": name, "schema": schema}, table)
        self.tables.add(name.lower())

    def drop(self, name: str, schema: str) -> None:
        """Forget a table that it was given."""
        self._ask({"do": "drop", "name": name, "schema": schema})
        self.tables.discard(name.lower())

    def run(
        self, sql: str, parameters: Mapping[str, object], *, charged: bool = False, undone: bool = False
    ) -> pa.Table:
        """The rows of one statement.

        Args:
            sql: the statement, with parameters $p1, $p2, ...
            parameters: their values.
            charged: whether it holds answers that were paid, so that EXPLAIN would hide them.
            undone: whether what it makes or changes is undone.

        Raises:
            DPError: DuckDB refuses it, or it takes too long, too many rows, or too much memory.
        """
        try:
            given = pa.table({name: [value] for name, value in parameters.items()}) if parameters else None
        except UNREADABLE:
            raise DPError(
                "a parameter has a value that DuckDB has none for; give texts, numbers up to 2^63, dates or lists."
            ) from None
        return self._run(sql, given, charged=charged, undone=undone, seconds=self._limits.seconds)[1]

    def described(self, sql: str, seconds: float) -> dict[str, str]:
        """The columns of a statement, which is run for so long at most, with their types in SQL.

        Raises:
            DPError: as ``run``.
        """
        head, _ = self._run(sql, None, seconds=seconds)
        return dict(head["columns"])

    def _run(
        self, sql: str, given: pa.Table | None, *, seconds: float, charged: bool = False, undone: bool = False
    ) -> tuple[dict[str, Any], pa.Table]:
        asked = {"do": "run", "sql": sql, "rows": self._limits.rows, "charged": charged, "undone": undone}
        head, found = self._ask(asked, given, seconds)
        if "rows" in head:
            raise DPError(f"the answer has more than {self._limits.rows} rows; add LIMIT, or ask for less.")
        if "refused" in head:
            raise DPError(head["refused"])
        if "kind" in head:
            raise DPError(f"a statement of the kind {head['kind']} cannot be run here; write a SELECT.")
        assert found is not None
        return head, found

    def _ask(
        self, head: dict[str, Any], table: pa.Table | None = None, seconds: float | None = None
    ) -> tuple[dict[str, Any], pa.Table | None]:
        with self._lock:
            try:
                found = self._exchange(head, table, self._limits.seconds if seconds is None else seconds)
            except DPError:  # a ValueError
                raise
            except (OSError, ValueError, struct.error, pa.ArrowException):
                found = None
            if found is None:
                self.close()
                raise DPError("the statement took more memory than a session may use, or was stopped; ask for less.")
        answer, rows = found
        if "error" in answer:
            raise DPError(_SETTING.sub("", first_line(Exception(answer["text"]))))
        return answer, rows

    def _exchange(
        self, head: dict[str, Any], table: pa.Table | None, seconds: float
    ) -> tuple[dict[str, Any], pa.Table | None] | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        clock = threading.Timer(seconds, end)
        clock.daemon = True
        clock.start()
        try:
            send(self._process.stdin, head, table)  # type: ignore[arg-type]
            found = receive(self._process.stdout)  # type: ignore[arg-type]
        finally:
            clock.cancel()
        if found is None and late.is_set():
            self.close()
            raise DPError(f"the statement took longer than {seconds:g} s and was stopped; ask for less.{self._lost}")
        return found

    def close(self) -> None:
        """End the process."""
        self._end()


@final
class Sandboxes:
    """The sandboxes of each account: when it has too many, its oldest ends."""

    def __init__(self, most: int = 8) -> None:
        self._most, self._lock = most, threading.Lock()
        self._known: dict[str, list[weakref.ref[Sandbox]]] = {}

    def add(self, account: str, box: Sandbox) -> None:
        """Note a new one of an account."""
        with self._lock:
            living = [ref for ref in self._known.get(account, []) if (one := ref()) is not None and one.alive]
            self._known[account] = [*living, weakref.ref(box)][-self._most :]
        for ref in [*living, weakref.ref(box)][: -self._most]:
            old = ref()
            if old is not None:
                old.close()


def _ended(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()
    process.wait()
