"""Crashes, races and broken ledgers, as somebody sees them who only writes SQL."""

import errno
import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp.accounting import store
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.accounting.schema import MIGRATIONS
from duckdb_dp.errors import DPError
from tests.conftest import one_line

CALL = "FROM dp_marginals('people', ['sex'], mu := 0.5)"

PROLOGUE = """
import json, os, signal, sys
import duckdb, duckdb_dp
from duckdb_dp.accounting.ledger import Ledger

con = duckdb.connect()
con.execute("CREATE TABLE people AS SELECT CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex FROM range(420) t(i)")
duckdb_dp.load(con, sys.argv[1])

def protect(table, mu):
    con.execute(f"CALL dp_protect('{table}', mu := {mu}); CALL dp_attribute('{table}', 'sex', \\"values\\" := ['F', 'M'])")

def ask(sql):
    try:
        return con.execute(sql).fetchall()
    except duckdb.Error as error:
        return str(error)
"""
ASK = f"""
protect('people', 10)
print(json.dumps(ask("{CALL}")))
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
CRASHES = {
    "before the charge": f"Ledger.charge = lambda *a, **k: {KILL}",
    "between the charge and the draw": f"import duckdb_dp.private; duckdb_dp.private._draw = lambda *a, **k: {KILL}",
    "between the draw and the store": f"Ledger.store = lambda *a, **k: {KILL}",
    "within the store": f"from duckdb_dp.accounting import store; store.Draft.publish = lambda *a, **k: {KILL}",
    "after the store": f"import duckdb_dp.sql.session as session; session.load = lambda *a, **k: {KILL}",
}


@pytest.mark.slow
@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_killed_at_any_point_and_asked_again(start, run, folder: Path, crash: str) -> None:
    process = start(PROLOGUE + crash + "\n" + ASK, folder)
    assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == -9
    charged = Ledger(folder).ledger_rows()
    assert len(charged) == ("Ledger.charge" not in crash)
    again = json.loads(run(PROLOGUE + ASK, folder))
    assert [row[0] for row in again] == ["F", "M"]
    (row,) = Ledger(folder).ledger_rows()
    assert row["state"] == "stored"
    assert not charged or row["time"] == charged[0]["time"]
    assert json.loads(run(PROLOGUE + ASK, folder)) == again
    assert len(Ledger(folder).ledger_rows()) == 1
    assert len(list((folder / "releases").glob("*.arrow"))) == 1


def test_charged_and_never_drawn(db, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others see meanwhile, and that a failure to store is no failure to be charged."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store, "draft", full)
        with pytest.raises(duckdb.Error) as caught:
            db(CALL[:-1] + ", release := 'sexes')")
        line = str(caught.value)
        assert "\n" not in line
        assert "No space left on device" in line
        assert "release 1 is charged and the same request finishes it at no new cost" in line
    assert db("SELECT name, state, released_at FROM dp_releases()") == [("sexes", "charged", None)]
    assert "is charged but not stored: the same request finishes it at no new cost" in db.refused(
        "FROM dp_release('sexes')"
    )
    spent = db("SELECT spent FROM dp_budget()")
    rows = db(CALL)
    assert len(rows) == 2
    assert db("FROM dp_release('sexes')") == rows
    assert db("SELECT spent FROM dp_budget()") == spent
    assert db.charges() == 1


ROUNDS = 6
RACE = """
for line in sys.stdin:
    number = int(line)
    con.execute(f"CREATE TABLE IF NOT EXISTS t{number} AS FROM people")
    protect(f"t{number}", 1)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(ask(QUESTION.replace("TABLE", f"t{number}"))), flush=True)
"""


def race(start, folder: Path, questions: list[str]) -> list[list]:
    """Rounds of one question per process, asked at the same time of a table that is new each time."""
    processes = [start(PROLOGUE + f"QUESTION = {question!r}" + RACE, folder) for question in questions]
    rounds = []
    for number in range(ROUNDS):
        for word in (f"{number}\n", "go\n"):
            for process in processes:
                process.stdin.write(word)
                process.stdin.flush()
            if word != "go\n":
                assert [process.stdout.readline() for process in processes] == ["ready\n"] * len(processes)
        rounds.append([json.loads(process.stdout.readline()) for process in processes])
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    return rounds


@pytest.mark.slow
def test_two_processes_race_for_the_last_budget(start, folder: Path) -> None:
    questions = [f"FROM dp_marginals('TABLE', ['sex'], mu := {mu})" for mu in (0.8, 0.81)]
    for answers in race(start, folder, questions):
        refused = [answer for answer in answers if isinstance(answer, str)]
        assert len(refused) == 1
        assert "is more than what remains of the budget" in refused[0]
        assert "nothing was charged" in refused[0]
    assert [row["releases"] for row in Ledger(folder).budget_rows()] == [1] * ROUNDS


@pytest.mark.slow
def test_two_processes_race_for_one_request(start, folder: Path) -> None:
    question = "FROM dp_marginals('TABLE', ['sex'], mu := 1)"
    for first, second in race(start, folder, [question, question]):
        assert first == second
        assert len(first) == 2
    assert [row["releases"] for row in Ledger(folder).budget_rows()] == [1] * ROUNDS
    assert len(list((folder / "releases").iterdir())) == ROUNDS


def together(calls: list) -> list:
    """What each of several calls returns or raises, all started at the same time."""
    barrier, results = threading.Barrier(len(calls)), [None] * len(calls)

    def work(index: int) -> None:
        barrier.wait()
        try:
            results[index] = calls[index]()
        except duckdb.Error as error:
            results[index] = str(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.mark.slow
def test_threads_race_for_one_request_and_for_the_last_budget(db) -> None:
    cursors = [db.connection.cursor() for _ in range(4)]
    for number in range(10):
        db(f"CREATE TABLE t{number} AS FROM people; CALL dp_protect('t{number}', mu := 1)")
        db(f"CALL dp_attribute('t{number}', 'sex', \"values\" := ['F', 'M'])")
        same = f"FROM dp_marginals('t{number}', ['sex'], mu := 0.5)"
        results = together([lambda c=cursor, same=same: c.execute(same).fetchall() for cursor in cursors])
        assert results == [results[0]] * 4
        assert len(results[0]) == 2
        others = [f"FROM dp_marginals('t{number}', ['sex'], mu := {0.7 + i / 100})" for i in range(4)]
        results = together(
            [lambda c=c, other=other: c.execute(other).fetchall() for c, other in zip(cursors, others, strict=True)]
        )
        refused = [result for result in results if isinstance(result, str)]
        assert len(refused) == 3
        assert all("nothing was charged" in text for text in refused)
    assert [releases for (releases,) in db("SELECT releases FROM dp_budget() WHERE dataset <> 'people'")] == [2] * 10


def test_threads_with_fresh_draws_are_each_charged(db) -> None:
    cursors = [db.connection.cursor() for _ in range(4)]
    fresh = CALL[:-1] + ", fresh := true)"
    results = together([lambda cursor=cursor: cursor.execute(fresh).fetchall() for cursor in cursors])
    assert len({json.dumps(result) for result in results}) == 4
    assert db.charges() == 4


# Ledgers that cannot be used: one line from load, or from the statement, and nothing charged or lost


def load(folder: Path) -> None:
    with duckdb.connect() as con:
        duckdb_dp.load(con, folder)


def refused_load(folder: Path) -> str:
    with pytest.raises(DPError) as caught:
        load(folder)
    line = str(caught.value)
    assert "\n" not in line
    assert str(folder) in line
    return line


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def scribbled(path: Path) -> None:
    path.write_bytes(b"not SQLite at all" * 100)


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def of_something_else(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")


KNOWN = f"has version 99 and this duckdb_dp knows versions up to {len(MIGRATIONS)}: upgrade duckdb_dp"
SPOILED = {
    scribbled: "is damaged (file is not a database): restore it from a backup",
    emptied: "is missing or empty beside its releases: restore it from a backup",
    Path.unlink: "is missing or empty beside its releases: restore it from a backup",
    newer: KNOWN,
    of_something_else: "is an SQLite file of something else",
}


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file" / "ledger.dp", tmp_path / "file", Path("/proc/no.dp"), Path("/dev/null/no.dp")):
        assert "choose a writable folder" in refused_load(folder)


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_ledger_that_cannot_be_used_is_left_as_it_is(db, spoil: Callable[[Path], None]) -> None:
    """Nothing is charged or lost meanwhile, and no ledger is started anew beside releases: put back, all is as before."""
    answer = db(CALL)
    path = db.folder / "ledger.sqlite"
    good = path.read_bytes()
    spoil(path)
    spoiled = path.read_bytes() if path.exists() else None
    assert SPOILED[spoil] in refused_load(db.folder)
    for statement in (
        CALL,
        "FROM dp_marginals('people', ['age'], mu := 0.5)",
        "FROM dp_ledger()",
        "CALL dp_protect('people', mu := 1000)",
    ):
        if spoil is newer:
            break  # it was of this version when it was loaded
        with pytest.raises(duckdb.Error) as caught:
            db(statement)
        assert "ledger" in one_line(str(caught.value))
    assert (path.read_bytes() if path.exists() else None) == spoiled
    path.write_bytes(good)
    assert db(CALL) == answer
    load(db.folder)
    assert db.charges() == 1


def test_a_locked_ledger(db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger.__init__, "__kwdefaults__", {"timeout": 0.2})
    duckdb_dp.testing.load(db.connection, db.folder, seed=1)
    lock = sqlite3.connect(db.folder / "ledger.sqlite", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    with pytest.raises(duckdb.Error, match=r"was locked by another process for 0\.2 s; nothing was charged"):
        db(CALL)
    with pytest.raises(duckdb.Error, match=r"was locked by another process for 0\.2 s; nothing was declared"):
        db("CALL dp_attribute('people', 'race', low := 0, high := 5)")
    assert len(db("FROM dp_explain('people', ['sex'], mu := 1)")) == 1  # reading goes on
    lock.execute("ROLLBACK")
    lock.execute("BEGIN EXCLUSIVE")
    assert "was locked by another process" in refused_load(db.folder)
    lock.execute("ROLLBACK")
    lock.close()
    assert len(db(CALL)) == 2
    assert db.charges() == 1


def test_a_release_file_that_is_gone_or_changed(db) -> None:
    answer = db(CALL)
    (path,) = (db.folder / "releases").iterdir()
    good = path.read_bytes()
    for spoil in (
        path.unlink,
        lambda: path.write_bytes(good[:-8]),
        lambda: path.write_bytes(good[:-80] + b"\1" + good[-79:]),
    ):
        spoil()
        duckdb_dp.testing.load(db.connection, db.folder, seed=1)  # nothing in memory
        for statement in (CALL, "FROM dp_release(1)"):
            line = db.refused(statement)
            assert "release 1 cannot be read from" in line
            assert "restore the file from a backup, or ask with fresh := true, which is charged anew" in line
        path.write_bytes(good)
    assert db(CALL) == answer
    assert db.charges() == 1
