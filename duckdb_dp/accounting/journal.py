"""The journal of a charged release: every step is stored on disk before anything is computed from it, and replayed on a retry."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from duckdb_dp.errors import DPError

WAITING, PAUSE = 600.0, 0.05
"""Seconds that one process waits for another to finish a release, and between two looks."""

SYNCED = 0.25
"""Seconds between two syncs of a journal at least: one for each step took a quarter of the time of `aim` on a busy disk."""

SAME = 1e-9
"""Relative difference of two costs that are the same but for rounding."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One noisy result.

    Attributes:
        asked: what it answers, public, as canonical text.
        rho: what it cost; 0 for random numbers.
        variance: of its noise; 0 where there is none.
        values: what came out, float64.
    """

    asked: str
    rho: float
    variance: float
    values: np.ndarray = field(repr=False)


@final
class Journal:
    """The steps of one release, in a file of its own that one process holds until it is done or dead.

    A retry is given the steps that were taken before, one after another, and then takes new ones. An SQLite file does what
    is needed: a commit is whole and durable or not there at all, and the lock ends with the process.

    Args:
        db: holds the file.
        path: for the text of errors.
        name: of the release, for the same.
    """

    def __init__(self, db: sqlite3.Connection, path: Path, name: str) -> None:
        self._db, self._path, self._name = db, path, name
        self._at, self._ended = 0, False
        self._due, self._syncing = -math.inf, False

    def next(self, asked: str, rho: float) -> Step | None:
        """The step that was taken before, where there is one more.

        Raises:
            DPError: another one was taken there, or the file is damaged.
        """
        if self._ended:  # nobody else adds steps
            return None
        with self._failing("has steps that cannot be read"):
            query = "SELECT asked, rho, variance, data FROM steps WHERE number = ?"
            row = self._db.execute(query, (self._at,)).fetchone()
        if row is None:
            self._ended = True
            return None
        if row[0] != asked or not math.isclose(row[1], rho, rel_tol=SAME):
            raise DPError(
                f"{self._name} was begun by another version or setup, whose step {self._at + 1} is not the one that follows "
                "here: finish it there, or ask with fresh := true, which is charged anew."
            )
        self._at += 1
        return Step(asked=row[0], rho=row[1], variance=row[2], values=np.frombuffer(row[3]).copy())

    def keep(self, steps: Sequence[Step]) -> None:
        """Make new steps durable, all or none of them.

        Whatever happens to the process, they are kept. The disk is synced for the first ones and again as time passes: a power
        cut may lose the last ones, whatever they were, and nobody has seen what was made of them.

        Raises:
            DPError: disk full, or no access; whoever asks again takes these steps anew, as nobody has seen them.

        Privacy: post-processing.
        """
        if not steps:
            return
        rows = [
            (self._at + place, step.asked, step.rho, step.variance, np.ascontiguousarray(step.values, np.float64).data)
            for place, step in enumerate(steps)
        ]
        due = time.monotonic() >= self._due
        with self._failing("cannot keep its steps"):
            if due != self._syncing:
                self._db.execute(f"PRAGMA synchronous = {'FULL' if due else 'NORMAL'}")
                self._syncing = due
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO steps VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        if due:
            self._due = time.monotonic() + SYNCED
        self._at += len(rows)

    def taken(self) -> list[Step]:
        """All steps so far."""
        with self._failing("has steps that cannot be read"):
            rows = self._db.execute("SELECT asked, rho, variance, data FROM steps ORDER BY number").fetchall()
        return [Step(asked=r[0], rho=r[1], variance=r[2], values=np.frombuffer(r[3]).copy()) for r in rows]

    def sync(self) -> None:
        """Bring all steps to the disk: before anybody sees them while others are to come.

        Raises:
            DPError: as ``keep``.
        """
        with self._failing("cannot keep its steps"):
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):  # a full disk has already rolled back
                self._db.execute("ROLLBACK")
            raise DPError(
                f"{self._name} {what} in '{self._path}' ({error}): once that works, or the file is back from a backup, the "
                "same request finishes it at no new cost."
            ) from error


@contextmanager
def journal(path: Path, name: str, patience: float = WAITING) -> Iterator[Journal]:
    """Hold a journal, made if there is none; waits for the process that holds it.

    Raises:
        DPError: it took too long, or the file cannot be made or read.
    """
    until = time.monotonic() + patience
    while (db := _held(path, name)) is None:
        if time.monotonic() > until:
            raise DPError(f"{name} is being made by another process: ask again when that is done, at no new cost.")
        time.sleep(PAUSE)
    try:
        yield Journal(db, path, name)
    finally:
        db.close()


def _held(path: Path, name: str) -> sqlite3.Connection | None:
    """The file, locked until it is closed; None while somebody else has it."""
    db = None
    try:
        path.touch(mode=0o600)
        db = sqlite3.connect(path, timeout=0, isolation_level=None)
        # A lock that is kept between commits, and no sync that `keep` does not ask for.
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("BEGIN EXCLUSIVE")
        columns = "number INTEGER PRIMARY KEY, asked TEXT, rho REAL, variance REAL, data BLOB"
        db.execute(f"CREATE TABLE IF NOT EXISTS steps ({columns})")
        db.execute("COMMIT")
        return db
    except (sqlite3.Error, OSError) as error:
        if db is not None:
            db.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return None
        raise DPError(
            f"{name} cannot keep its steps in '{path}' ({error}): once that works, the same request finishes it at no new cost."
        ) from error


def discard(path: Path) -> None:
    """Delete the journal of a release that is stored; never of another, which would be drawn twice."""
    for end in ("", "-wal"):
        with suppress(OSError):
            path.with_name(path.name + end).unlink()
