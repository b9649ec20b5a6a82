"""The time that a call of the broker may take: DuckDB is interrupted, and the planning of a dp_ function, which is Python, is ended."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from duckdb_dp.errors import DPError
from duckdb_dp.sql import stopping

UNCHARGED, CHARGED = (
    "nothing was charged",
    "what was charged stays charged, and the same request draws it at no new cost",
)
"""What is said of a call that was stopped."""

AGAIN = 0.2
"""Seconds after which what still runs is stopped again."""


class LateError(DPError):
    """A call took longer than it may."""


@contextmanager
def within(seconds: float, cursor: duckdb.DuckDBPyConnection, key: str = "") -> Iterator[threading.Event]:
    """While a block runs a statement on a cursor, it is stopped after that time; the event says whether it was.

    Args:
        seconds: how long it may take.
        cursor: a connection.
        key: the one that only its macros pass, if they have one: the work of its functions is stopped by it.
    """
    over, late, thread = threading.Event(), threading.Event(), threading.get_ident()

    def watch() -> None:
        wait = seconds
        while not over.wait(wait):
            late.set()
            cursor.interrupt()
            stopping.end(thread, key)
            wait = AGAIN

    watcher = threading.Thread(target=watch, daemon=True, name="deadline")
    watcher.start()
    try:
        yield late
    finally:
        over.set()
        watcher.join()
