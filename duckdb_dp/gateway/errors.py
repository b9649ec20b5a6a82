"""Which errors leave the gateway: those of this package as they are, and all others as a number that is in the log."""

import json
import logging
import re
import secrets
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO, final

import duckdb

from duckdb_dp.accounting.grants import Waiting
from duckdb_dp.errors import DPError, as_sql, first_line

__all__ = ["Foreign", "Log", "Unforeseen", "Waiting", "failing", "foreseen", "hearing"]

EACH = 20
"""Lines of one place in another package that are in the log within a minute: whoever calls could fill it else."""

INTERNAL = re.compile(r"internal error \(|memory ran out")


class Unforeseen(DPError):  # noqa: N818  # as its kind is
    """What is told of an error that is no one's of this package."""


@final
class Log:
    """One JSON object a line, on stderr by default. It never holds the text of a foreign error, nor a statement: they may quote values."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr

    def write(self, event: str, **facts: object) -> None:
        """One line."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._out.write(json.dumps({"time": time, "event": event, **facts}, default=str) + "\n")
        self._out.flush()

    def unforeseen(self, error: BaseException, **facts: object) -> "Unforeseen":
        """What a client is told of an unforeseen error: its number in the log, which has its type and where it was raised."""
        number = secrets.randbelow(10**9)
        where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
        self.write("internal error", number=number, kind=type(error).__name__, where=where[-12:], **facts)
        return Unforeseen(f"internal error {number}; the steward finds this number in the log.")


@final
class Foreign(logging.Handler):
    """What other packages log, as lines of the log: whose it is and where, and never their texts, which may quote values.

    Args:
        log: where the lines go.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._seen: dict[str, list[float]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One line; of one place no more than ``EACH`` within a minute."""
        now, place = time.monotonic(), f"{record.name}:{record.module}:{record.lineno}"
        recent = [one for one in self._seen.get(place, []) if one > now - 60]
        self._seen[place] = recent if len(recent) >= EACH else [*recent, now]
        if len(recent) >= EACH:
            return
        kind = record.exc_info[0] if record.exc_info else None
        facts = {} if kind is None else {"kind": kind.__name__}
        where = f"{record.module}:{record.lineno} {record.funcName}"
        self._log.write("other", by=record.name, level=record.levelname.lower(), where=where, **facts)


@contextmanager
def hearing(log: Log) -> Iterator[None]:
    """While a block runs, what other packages log and warn of is in the log, and nowhere else."""
    root, handler = logging.getLogger(), Foreign(log)
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)


def foreseen(function: str, error: duckdb.Error) -> DPError | None:
    """The error of one of this package's functions, as DuckDB passes it on; None of any other error, which may quote values."""
    text = first_line(error)
    if not isinstance(error, duckdb.InvalidInputException) or not text.startswith(f"{function}: "):
        return None
    return None if INTERNAL.search(text) else DPError(text)


def failing(name: str, error: duckdb.Error) -> DPError | None:
    """The error of a public view that fails on a row, or whose file is gone; None where reading public rows ended in another way."""
    kinds = (
        duckdb.ConversionException,
        duckdb.InvalidInputException,
        duckdb.OutOfRangeException,
        duckdb.IOException,
        duckdb.BinderException,
    )
    if not isinstance(error, kinds) or "INTERRUPT" in str(error):
        return None
    return DPError(
        f"{as_sql(name)} is a public view that fails on a row, or whose file is gone or changed; only the curator can mend it."
    )
