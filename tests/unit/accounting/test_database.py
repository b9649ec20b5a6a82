"""One connection for many reads: which reads share it, and that it keeps no lock."""

import sqlite3
from pathlib import Path

import pytest

from duckdb_dp.accounting.database import Database
from duckdb_dp.errors import DPError


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(path=tmp_path / "ledger.sqlite", timeout=0.1)
    made.prepare()
    return made


def test_reads_share_a_connection_only_while_it_is_held(database: Database) -> None:
    with database.reading() as one, database.reading() as other:
        assert one is not other
    with database.held(), database.held():
        with database.reading() as one, database.reading() as nested:
            assert nested is not one
        with database.reading() as other:
            assert other is one
        with database.writing("nothing was written") as written:
            assert written is not one
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        one.execute("SELECT 1")
    with database.reading() as later:
        assert later is not one


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
