"""One connection for many transactions: which share it, that it keeps no lock, and that a commit needs no new file."""

import os
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from duckdb_dp.accounting.database import MOST_IDLE, Database, close_idle
from duckdb_dp.errors import DPError


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(path=tmp_path / "ledger.sqlite", timeout=0.1)
    made.prepare()
    return made


def test_transactions_share_a_connection_only_while_it_is_held(database: Database) -> None:
    with database.reading() as one, database.reading() as other:
        assert one is not other
    with database.held(), database.held():
        with database.reading() as one, database.reading() as nested:
            assert nested is not one
        with database.reading() as other:
            assert other is one
        with database.writing("nothing was written") as written, database.reading() as beside:
            assert written is one
            assert beside is not one
    with database.reading() as later:
        assert later is not one
    with pytest.raises(ZeroDivisionError), database.held(), database.reading() as last:
        1 // 0  # noqa: B018
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        last.execute("SELECT 1")


def _held(database: Database) -> sqlite3.Connection:
    """The connection of a block, with what was read of it: nothing, where it was read before."""
    with database.held(), database.reading() as db:
        assert database.known("accounts", _names) == _names(db)
        return db


def _names(db: sqlite3.Connection) -> list[str]:
    return [row["name"] for row in db.execute("SELECT name FROM accounts ORDER BY id")]


def _add(path: Path, name: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO accounts (time, name, role, token_hash) VALUES ('', ?, 'analyst', ?)", (name, name))


def test_the_next_call_takes_the_connection_over_in_any_thread(database: Database) -> None:
    first = _held(database)
    with ThreadPoolExecutor() as pool:
        assert pool.submit(_held, database).result() is first
        held, done = threading.Event(), threading.Event()

        def hold() -> sqlite3.Connection:
            with database.held(), database.reading() as db:
                held.set()
                done.wait(10)
                return db

        one = pool.submit(hold)
        held.wait(10)
        assert _held(database) is not first  # which another thread holds
        done.set()
        assert one.result() is first
    close_idle()  # as a process does that ends
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        first.execute("SELECT 1")


@pytest.mark.skipif(os.name == "nt", reason="open files cannot be moved there")
def test_a_file_that_takes_the_place_of_another_while_it_is_used(database: Database, tmp_path: Path) -> None:
    """The connection to the old one is not taken for one to the new, and what is written says that it was moved."""
    shutil.copy2(database.path, tmp_path / "other")
    with database.held(), database.reading() as before:
        (tmp_path / "other").replace(database.path)
    assert _held(database) is not before
    shutil.copy2(database.path, tmp_path / "other")
    with database.held():
        with database.reading():
            (tmp_path / "other").replace(database.path)
        said = "took its place, while it was in use; nothing was written: ask again"
        with pytest.raises(DPError, match=said), database.writing("nothing was written") as db:
            db.execute("PRAGMA user_version = 3")
    assert _held(database) is not before


def test_few_connections_are_kept_open(tmp_path: Path) -> None:
    opened = []
    for place in range(MOST_IDLE + 4):
        made = Database(path=tmp_path / str(place) / "ledger.sqlite", timeout=0.1)
        made.prepare()
        opened.append(_held(made))
    for db in opened[:4]:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            db.execute("SELECT 1")
    assert opened[-1].execute("SELECT 1").fetchone()[0] == 1


@pytest.mark.skipif(os.name == "nt", reason="open files cannot be moved there, so none is kept open")
@pytest.mark.parametrize("how", ["written", "restored", "copied over", "gone", "forked"])
def test_a_file_that_was_touched_is_opened_anew(database: Database, tmp_path: Path, how: str) -> None:
    first, backup = _held(database), tmp_path / "backup"
    shutil.copy2(database.path, backup)
    with database.writing("nothing was written") as db:
        db.execute("INSERT INTO accounts (time, name, role, token_hash) VALUES ('', 'own', 'analyst', 'own')")
    first = _held(database)
    match how:
        case "written":
            _add(database.path, "other")
        case "restored":
            backup.replace(database.path)
        case "copied over":  # written as often as it was, by another process
            _add(backup, "other")
            database.path.write_bytes(backup.read_bytes())
        case "gone":
            database.path.unlink()
            with pytest.raises(DPError, match="could not be opened"):
                _held(database)
            return
        case "forked":
            with patch.object(os, "getpid", return_value=0):
                assert _held(database) is not first
            assert first.execute("SELECT 1").fetchone()[0] == 1
            return
    assert _held(database) is not first
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        first.execute("SELECT 1")


def test_a_held_connection_has_no_lock_and_reads_what_others_commit(database: Database) -> None:
    with database.held():
        for version in (100, 101):
            with database.writing("nothing was written") as db:
                db.execute(f"PRAGMA user_version = {version}")
            with database.reading() as db:
                assert db.execute("PRAGMA user_version").fetchone()[0] == version


def test_a_read_that_fails_leaves_the_held_connection_usable(database: Database) -> None:
    with database.held():
        with pytest.raises(DPError, match="no such table"), database.reading() as db:
            db.execute("SELECT * FROM nowhere")
        with database.reading() as db:
            assert db.execute("SELECT 1").fetchone()[0] == 1


def test_a_write_that_fails_leaves_the_held_connection_usable(database: Database) -> None:
    with database.held():
        with pytest.raises(DPError, match="no such table"), database.writing("nothing was written") as db:
            db.execute("INSERT INTO nowhere VALUES (1)")
        with database.writing("nothing was written") as db:
            assert db.execute("SELECT 1").fetchone()[0] == 1


def test_a_commit_ends_its_journal_and_leaves_the_file(database: Database) -> None:
    """Zeros at its head say that there is nothing to take back: what was committed is there for whoever opens it next."""
    for version in (100, 101):
        with database.writing("nothing was written") as db:
            db.execute(f"PRAGMA user_version = {version}")
        journal = database.path.with_name(f"{database.path.name}-journal").read_bytes()
        assert len(journal) > 512
        assert not any(journal[:28])
        with sqlite3.connect(database.path) as other:
            assert (
                other.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
            )  # as a version before this one opens it
            assert other.execute("PRAGMA user_version").fetchone()[0] == version
        other.close()


def test_what_is_known_is_read_again_after_anybody_wrote(database: Database) -> None:
    read = []

    def keys(db: sqlite3.Connection) -> int:
        read.append(db)
        return int(db.execute("SELECT count(*) FROM accounts").fetchone()[0])

    def add(db: sqlite3.Connection, name: str) -> None:
        db.execute("INSERT INTO accounts (time, name, role, token_hash) VALUES ('', ?, 'analyst', ?)", (name, name))

    assert [database.known("keys", keys) for _ in range(2)] == [0, 0]
    assert len(read) == 2
    with database.held():
        assert [database.known("keys", keys) for _ in range(3)] == [0, 0, 0]
        assert len(read) == 3
        with database.writing("nothing was written") as db:
            add(db, "own")
        assert [database.known("keys", keys) for _ in range(2)] == [1, 1]
        with sqlite3.connect(database.path) as other:
            add(other, "other")
        other.close()
        assert database.known("keys", keys) == 2
        with database.reading() as around:
            around.execute("SELECT 1 FROM accounts").fetchone()
            assert database.known("keys", keys) == 2


def test_what_is_known_is_refused_in_words_where_the_file_is_locked(database: Database) -> None:
    with database.held():
        assert database.known("one", lambda _: 1) == 1
        with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(DPError, match="was locked by another process"):
                database.known("one", lambda _: 2)
        assert database.known("one", lambda _: 3) == 1
