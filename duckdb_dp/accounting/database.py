"""The ledger's SQLite file: opening, migrating, transactions, and errors that say what to do."""

from __future__ import annotations

import atexit
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, final

from duckdb_dp.accounting.schema import APPLICATION_ID, MIGRATIONS
from duckdb_dp.errors import DPError

Found = TypeVar("Found")

_State = tuple[int, int]
"""Which of its states an SQLite file is in: a number that changes when another connection writes, and how much this one has written."""

_RESTORE = "restore it from a backup; a new one would forget what was spent."


_Known = dict[Hashable, tuple[_State, Any]]
"""What was read, with the state of the file that it was read of."""

MOST_KNOWN = 1_000
"""Reads that are kept with a connection at most."""

MOST_IDLE = 16
"""Connections that a process keeps open at most, each of another file."""

_File = os.stat_result | None
"""What a file was when it was opened, or looked at; None of one that is not there."""

_IDLE: dict[tuple[int, Path, float], tuple[_File, sqlite3.Connection, _Known]] = {}
"""By process, file and timeout the connection that was used last, with what it read; the oldest first.

Those of a process that this one was forked from are left alone. Each step on it is one operation of a dict, which needs no lock: one that a
thread held while the process was forked would be held for good.
"""


def _take(path: Path, timeout: float) -> tuple[sqlite3.Connection, _Known, _File] | None:
    """The connection to a file, which is nobody else's then; None where there is none, or the file was touched since, or is another one."""
    found = _IDLE.pop((os.getpid(), path, timeout), None)
    if found is None:
        return None
    file, db, known = found
    now = _look(path)
    if _version(now) == _version(file):
        return db, known, now
    db.close()
    return None


def _keep(path: Path, timeout: float, db: sqlite3.Connection, known: _Known, opened: _File) -> None:
    """Keep a connection open, or close it: where there is one, another file took the place of its own, or an open one cannot be moved."""
    now = _look(path)
    same = now is not None and opened is not None and (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino)
    kept = now, db, known if len(known) <= MOST_KNOWN else {}
    if os.name == "nt" or not same or _IDLE.setdefault((os.getpid(), path, timeout), kept) is not kept:
        db.close()
        return
    with suppress(RuntimeError):  # where another thread keeps one just now
        for oldest in list(_IDLE)[:-MOST_IDLE]:
            _close(oldest)


def _look(path: Path) -> _File:
    try:
        return path.stat()
    except OSError:
        return None


def _version(file: _File) -> tuple[int, ...]:
    """What tells a file from another one, and from itself before it was written to."""
    return () if file is None else (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns)


def _close(key: tuple[int, Path, float]) -> None:
    if key[0] == os.getpid() and (found := _IDLE.pop(key, None)) is not None:
        found[1].close()


@atexit.register
def close_idle() -> None:
    """Close the connections that this process keeps open."""
    for key in list(_IDLE):
        _close(key)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """One SQLite file: safe across threads, processes and forks.

    An open, with a read, takes 0.5 ms, most of it to read the tables' definitions. So the transactions of one call may share a connection
    (see ``held``), which the next call takes over if the file was not touched meanwhile. A durable commit takes what the disk takes.

    Args:
        path: the file.
        timeout: how long to wait for another process, in seconds.
    """

    path: Path
    timeout: float
    _own: threading.local = field(default_factory=threading.local, init=False, repr=False, compare=False)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While a block runs, this thread's transactions share one connection; each has a snapshot of its own, and locks are not kept."""
        if self._holds:
            yield
            return
        self._own.held, self._own.db, self._own.known = True, None, {}
        try:
            yield
        except BaseException:  # which may hold a cursor, and with it a lock, as long as it is kept
            if self._own.db is not None:
                self._own.db.close()
            raise
        else:
            if self._own.db is not None:
                _keep(self.path, self.timeout, self._own.db, self._own.known, self._own.opened)
        finally:
            self._own.held, self._own.db, self._own.known = False, None, {}

    def known(self, key: Hashable, read: Callable[[sqlite3.Connection], Found]) -> Found:
        """What a read finds; while the connection is held, what it found before, as long as nothing was written since by anybody."""
        kept = self._kept(key)
        if kept is not None:
            found: Found = kept[1]
            return found
        with self.reading() as db:
            if not self._holds or db is not self._own.db:
                return read(db)
            state, found = _state(db), read(db)
            self._own.known[key] = state, found
            return found

    def _kept(self, key: Hashable) -> tuple[_State, Any] | None:
        """What was found before, if that is so still. It is asked without a transaction, which takes three times as long."""
        if not self._holds:
            return None
        try:
            db = self._taken()
            kept: tuple[_State, Any] | None = None if db.in_transaction else self._own.known.get(key)
            return kept if kept is not None and kept[0] == _state(db) else None
        except sqlite3.Error as error:
            raise DPError(self._explain(error, "")) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection on one consistent snapshot."""
        with self._transaction("BEGIN", "") as db:
            yield db

    @contextmanager
    def writing(self, consequence: str) -> Iterator[sqlite3.Connection]:
        """A connection that no other writer runs beside; durable once the block has ended, undone if it raises.

        Args:
            consequence: what a failure means, such as 'nothing was charged', for the error's text.
        """
        with self._transaction("BEGIN IMMEDIATE", consequence) as db:
            yield db

    def prepare(self) -> None:
        """Creates the file and brings it to this version's tables; refuses what is not a ledger.

        Raises:
            DPError: no ledger, a damaged one, one of a newer version, or one that is missing beside its releases.
        """
        releases = self.path.parent / "releases"
        try:
            # Releases are looked for first: whoever stored one had made the file before.
            orphans = releases.is_dir() and any(releases.iterdir())
            if not self.path.exists():
                if orphans:
                    raise DPError(self._lost())
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_folder(self.path.parent.parent)
                self.path.touch(mode=0o600)
            releases.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise DPError(
                f"ledger '{self.path.parent}' could not be made ({why}): choose a writable folder."
            ) from error
        with self._transaction("BEGIN", "") as db:
            current = self._version(db, orphans=orphans) == len(MIGRATIONS)
            damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise DPError(self._damaged(damage))
        if not current:
            with self.writing("nothing was changed") as db:
                self._migrate(db, self._version(db, orphans=orphans))

    def _version(self, db: sqlite3.Connection, *, orphans: bool) -> int:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        mark = db.execute("PRAGMA application_id").fetchone()[0]
        if mark != APPLICATION_ID and (version or db.execute("SELECT 1 FROM sqlite_master").fetchone()):
            raise DPError(f"'{self.path}' is an SQLite file of something else: choose another path for the ledger.")
        if version > len(MIGRATIONS):
            known = f"this duckdb_dp knows versions up to {len(MIGRATIONS)}"
            raise DPError(f"ledger '{self.path}' has version {version} and {known}: upgrade duckdb_dp.")
        if version == 0 and orphans:  # an emptied file: starting anew would forget what was spent
            raise DPError(self._lost())
        return version

    @staticmethod
    def _migrate(db: sqlite3.Connection, version: int) -> None:
        for migration in MIGRATIONS[version:]:
            for statement in migration:
                db.execute(statement)
        if version == 0:
            db.execute("INSERT INTO secret (key) VALUES (?)", (secrets.token_bytes(16),))
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @contextmanager
    def _transaction(self, begin: str, consequence: str) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection() as db:
                db.execute(begin)
                try:
                    yield db
                except BaseException:
                    if db.in_transaction:  # a full disk has already rolled back
                        db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
        except sqlite3.Error as error:
            raise DPError(self._explain(error, consequence)) from error

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """The one that this thread holds, if it holds one and is not in the middle of a transaction; else one of its own."""
        if not self._holds or self._taken().in_transaction:
            with closing(self._connect()) as db:
                yield db
            return
        yield self._own.db

    @property
    def _holds(self) -> bool:
        return bool(getattr(self._own, "held", False))

    def _taken(self) -> sqlite3.Connection:
        """The connection that this thread holds: the one that was used last, or a new one."""
        if self._own.db is None:
            before = _look(self.path)  # so that a file that takes its place meanwhile is another one
            found = _take(self.path, self.timeout) or (self._connect(), {}, before)
            self._own.db, self._own.known, self._own.opened = found
        db: sqlite3.Connection = self._own.db
        return db

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a ledger that disappears while in use is an error, not a new and empty ledger.
        db = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,  # one thread after the other
        )
        db.row_factory = sqlite3.Row
        # FULL, and the folder synced after the journal is removed: with FULL alone a power cut just after a commit
        # can bring the journal back, and with it the budget. And it is not removed but ended, by zeros at its head that are synced
        # too: where no file comes or goes, a commit takes 17 ms instead of 24.
        db.execute("PRAGMA synchronous = EXTRA")
        db.execute("PRAGMA journal_mode = PERSIST")
        db.execute("PRAGMA foreign_keys = ON")
        return db

    def _explain(self, error: sqlite3.Error, consequence: str) -> str:
        ledger, so = f"ledger '{self.path}'", f"; {consequence}" if consequence else ""
        match _code(error) & 0xFF:  # the low byte is the kind, the rest its variant
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return f"{ledger} was locked by another process for {self.timeout:g} s{so}: end it, or try again."
            case sqlite3.SQLITE_READONLY if _code(error) == sqlite3.SQLITE_READONLY_DBMOVED:
                return f"{ledger} was moved, or another one took its place, while it was in use{so}: ask again."
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return f"{ledger} is read-only{so}: make the file and its folder writable."
            case sqlite3.SQLITE_CANTOPEN:
                return f"{ledger} could not be opened{so}: check that it exists, and that its folder is writable."
            case sqlite3.SQLITE_FULL:
                return f"{ledger}: the disk is full{so}: free some space and ask again."
            case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
                return self._damaged(error)
        return f"{ledger} failed ({error}): FROM dp_ledger() shows what was charged."

    def _damaged(self, found: object) -> str:
        reason = " ".join(str(found).split())  # quick_check reports over several lines
        return f"ledger '{self.path}' is damaged ({reason}): {_RESTORE}"

    def _lost(self) -> str:
        return f"ledger '{self.path}' is missing or empty beside its releases: {_RESTORE}"


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0))


def _state(db: sqlite3.Connection) -> _State:
    return int(db.execute("PRAGMA data_version").fetchone()[0]), db.total_changes


def sync_folder(folder: Path) -> None:
    """Makes the folder's entries durable; Windows does so by itself and cannot open folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
