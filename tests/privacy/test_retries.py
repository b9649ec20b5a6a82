"""Failures after the charge: whatever was drawn before is drawn no second time, and a retry goes on from there."""

import itertools
import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import duckdb_dp
from duckdb_dp import private, queryable
from duckdb_dp.accounting import journal
from duckdb_dp.accounting.journal import Journal, Step
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.errors import DPError
from tests.conftest import one_line

TABLES = """
CREATE TABLE people AS SELECT (i * 37 % 100)::INTEGER AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
    (i % 4)::INTEGER AS race, i % 2 = 0 AS smoker FROM range(420) t(i);
CREATE TABLE wide AS SELECT i % 2 = 0 AS a, i % 3 = 0 AS b, i % 4 = 0 AS c, i % 5 = 0 AS d, i % 6 = 0 AS e, i % 7 = 0 AS f,
    i % 8 = 0 AS g, i % 9 = 0 AS h FROM range(300) t(i);
CREATE TABLE users (user_id INTEGER PRIMARY KEY, sex VARCHAR, age INTEGER, member BOOLEAN);
CREATE TABLE movies (movie_id INTEGER PRIMARY KEY, comedy BOOLEAN, year INTEGER);
CREATE TABLE ratings (user_id INTEGER REFERENCES users (user_id), movie_id INTEGER REFERENCES movies (movie_id),
    stars TINYINT, PRIMARY KEY (user_id, movie_id));
INSERT INTO users SELECT i, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END, i * 37 % 80, i % 5 = 0 FROM range(60) t(i);
INSERT INTO movies SELECT i, i % 2 = 0, 2000 + i % 3 FROM range(25) t(i);
INSERT INTO ratings SELECT DISTINCT ON (u, m) u, m, s FROM
    (SELECT (i * i + i // 7) % 60 AS u, i * 13 % 25 AS m, 1 + i % 5 AS s FROM range(400) t(i));
CREATE TABLE staff (id INTEGER PRIMARY KEY, team_id INTEGER, tall BOOLEAN);
CREATE TABLE teams (team_id INTEGER PRIMARY KEY, big BOOLEAN);
INSERT INTO teams SELECT i, i % 2 = 0 FROM range(12) t(i);
INSERT INTO staff SELECT i, CASE WHEN i % 10 > 0 THEN i * i % 12 END, i % 3 = 0 FROM range(90) t(i);
"""
PROTECTED = """
CALL dp_protect('people', rho := 90000); CALL dp_protect('users', rho := 90000); CALL dp_protect('movies', rho := 90000);
CALL dp_protect('wide', rho := 90000); CALL dp_attributes('wide'); CALL dp_protect('staff', rho := 90000); CALL dp_protect('teams', rho := 90000);
CALL dp_protect('ratings', unit := 'user_id', max_rows := 4, rho := 90000);
CALL dp_attribute('people', 'age', bins := [0, 20, 40, 60, 100]); CALL dp_attribute('people', 'sex', "values" := ['F', 'M']);
CALL dp_attribute('people', 'race', low := 0, high := 3); CALL dp_attribute('people', 'smoker');
CALL dp_attribute('users', 'sex', "values" := ['F', 'M']); CALL dp_attribute('users', 'age', bins := [0, 20, 40, 80]);
CALL dp_attribute('users', 'member');
CALL dp_attribute('movies', 'comedy'); CALL dp_attribute('movies', 'year', low := 2000, high := 2002);
CALL dp_attribute('ratings', 'stars', low := 1, high := 5);
CALL dp_attribute('staff', 'tall'); CALL dp_attribute('teams', 'big');
CALL dp_link('staff', "references" := {'team_id': 'teams.team_id'});
CALL dp_public('teams', links := 'staff'); CALL dp_public('movies', links := 'ratings');
"""
MADE = " ".join(
    f"CREATE TABLE {name}_syn AS FROM dp_synthesize('{name}', rho := 1);"
    for name in ("people", "users", "movies", "staff", "teams")
)
BOTH = "synthetic := {'users': 'users_syn', 'movies': 'movies_syn'}"
CHILD = "synthetic := {'staff': 'staff_syn', 'teams': 'teams_syn'}"
CALLS = {
    "aim": "FROM dp_marginals('people', 'all 3-way', mechanism := 'aim', rho := RHO)",
    "neyman": "FROM dp_marginals('people', 'all 2-way', mechanism := 'neyman', rho := RHO)",
    "rows, forest": "FROM dp_synthesize('people', rho := RHO)",
    "rows, forest by rounds": "FROM dp_synthesize('wide', rho := RHO)",
    "rows, mst": "FROM dp_synthesize('people', method := 'mst', rho := RHO)",
    "rows, aim": "FROM dp_synthesize('people', method := 'aim', rho := RHO)",
    "links, auto": f"FROM dp_links('ratings', {BOTH}, rho := RHO)",
    "links, paper": f"FROM dp_links('ratings', {BOTH}, method := 'paper', rounds := 2, rho := RHO)",
    "links, sliced": f"FROM dp_links('ratings', {BOTH}, method := 'sliced', rounds := 2, rho := RHO)",
    "parents": f"FROM dp_links('staff', {CHILD}, rho := RHO)",
    "quality": "FROM dp_quality('people', 'people_syn', rho := RHO)",
}
BUDGETS = (f"{1 + i / 1000}" for i in itertools.count(1))


class BrokenError(Exception):
    """A failure that nothing in the package knows."""


@dataclass
class Watched:
    """What is drawn, kept and stored while a statement runs; what fails, and when."""

    drawn: int = 0
    kept: list[bytes] = field(default_factory=list)
    replayed: list[bytes] = field(default_factory=list)
    stored: list[dict[str, np.ndarray]] = field(default_factory=list)
    commits: int = 0
    fails_after: int | None = None
    fails_before: int | None = None
    fails_to_store: bool = False


def as_bytes(step: Step) -> bytes:
    return json.dumps([step.asked, step.rho, step.variance]).encode() + step.values.tobytes()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Every noise function, every step that is kept or played back, and every release that is stored."""
    found = Watched()
    keep, following, store = Journal.keep, Journal.next, Ledger.store

    def counting(draw: Callable[..., Any]) -> Callable[..., Any]:
        def draws(*args: Any, **kwargs: Any) -> Any:
            answers = draw(*args, **kwargs)
            found.drawn += len(answers) if isinstance(answers, list) else 1  # of ``noisy_all`` one for each query
            return answers

        return draws

    def kept(self: Journal, steps: list[Step]) -> None:
        found.commits += bool(steps)
        if steps and found.commits == found.fails_before:
            raise sqlite3.OperationalError("database or disk is full")
        keep(self, steps)
        found.kept += map(as_bytes, steps)
        if steps and found.commits == found.fails_after:
            raise BrokenError("no memory, say")

    def replayed(self: Journal, asked: str, rho: float) -> Step | None:
        step = following(self, asked, rho)
        found.replayed += [as_bytes(step)] if step is not None else []
        return step

    def stored(self: Ledger, release: Any, arrays: Any) -> None:
        found.stored.append({name: np.array(array) for name, array in arrays.items()})
        if found.fails_to_store:
            raise BrokenError("no disk, say")
        store(self, release, arrays)

    monkeypatch.setattr(Journal, "keep", kept)
    monkeypatch.setattr(Journal, "next", replayed)
    monkeypatch.setattr(Ledger, "store", stored)
    for module, name in itertools.product((private, queryable), ("noisy", "noisy_all", "exponential")):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, counting(getattr(module, name)))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database file of declared tables and synthetic ones, and its ledger."""
    folder = tmp_path_factory.mktemp("made")
    with duckdb.connect(folder / "test.duckdb") as connection:
        duckdb_dp.load(connection, progress=False)
        for statements in (TABLES, PROTECTED, MADE):
            connection.execute(statements)
    return folder


@pytest.fixture(scope="module")
def loaded(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """A copy of it, with the system's own noise, and the folder of its ledger."""
    copy = shutil.copytree(made, tmp_path_factory.mktemp("loaded") / "copy")
    with duckdb.connect(copy / "test.duckdb") as connection:
        duckdb_dp.load(connection, progress=False)
        yield connection, copy / "test.duckdb.dp"


def journals(folder: Path) -> list[Path]:
    return list((folder / "releases").glob("*.journal*"))


def draws(steps: list[bytes]) -> int:
    """Steps that needed noise."""
    return sum(not step.startswith(b'["seed"') for step in steps)


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_failure_after_any_step_loses_and_redraws_nothing(loaded: Any, watched: Watched, call: str) -> None:
    connection, folder = loaded
    before = len(Ledger(folder).ledger_rows())
    sql = call.replace("RHO", next(BUDGETS))
    for watched.fails_after in itertools.count(1):
        try:
            rows = connection.execute(sql).fetchall()
        except duckdb.Error:
            # One step or batch more than the attempt before, which is played back bit for bit.
            assert watched.commits == watched.fails_after
            assert watched.replayed == watched.kept[: len(watched.replayed)]
            watched.replayed.clear()
            (charge,) = Ledger(folder).ledger_rows()[before:]
            assert charge["state"] == "charged"
            continue
        break
    assert watched.commits >= 2
    assert watched.replayed == watched.kept
    assert watched.drawn == draws(watched.kept), "a step was drawn twice, or not kept"
    (charge,) = Ledger(folder).ledger_rows()[before:]
    assert charge["state"] == "stored"
    assert journals(folder) == []
    assert connection.execute(sql).fetchall() == rows
    assert watched.drawn == draws(watched.kept)


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_stored_is_a_function_of_the_steps(loaded: Any, watched: Watched, call: str) -> None:
    """A failure to store, after all is computed: the retry draws nothing and comes to the same, to the last bit."""
    connection, _ = loaded
    sql = call.replace("RHO", next(BUDGETS))
    watched.fails_to_store = True
    with pytest.raises(duckdb.Error):
        connection.execute(sql).fetchall()
    drawn, watched.fails_to_store = watched.drawn, False
    connection.execute(sql).fetchall()
    assert watched.drawn == drawn
    assert watched.replayed == watched.kept
    first, second = watched.stored
    assert list(first) == list(second)
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


QUESTIONS = {
    "marginals": (
        "FROM dp_marginals('people', ['sex'], rho := RHO)",
        "FROM dp_marginals('people', ['age'], rho := RHO)",
    ),
    "queries": (
        "FROM dp_queries('people', [{'age': 'prefix'}], rho := RHO)",
        "FROM dp_queries('people', [{'race': 'range'}], rho := RHO)",
    ),
    "quantiles": (
        "FROM dp_quantiles('people', 'age', [0.5], rho := RHO)",
        "FROM dp_quantiles('people', 'race', [0.1], rho := RHO)",
    ),
    "counts": (
        "FROM dp_sql('SELECT count(*) FROM people', rho := RHO)",
        "FROM dp_sql('SELECT sex, count(*) FROM people GROUP BY sex', rho := RHO)",
    ),
    "sums": (
        "FROM dp_sql('SELECT sum(race) FROM people', rho := RHO)",
        "FROM dp_sql('SELECT avg(race) FROM people', rho := RHO)",
    ),
    "medians": (
        "FROM dp_sql('SELECT median(race) FROM people', rho := RHO)",
        "FROM dp_sql('SELECT count(*) FROM people WHERE race * race > 3', rho := RHO)",
    ),
    "rows of units": (
        "FROM dp_max_rows('ratings', rho := RHO)",
        "FROM dp_marginals('ratings', ['stars'], rho := RHO)",
    ),
    "synthesis": (
        "FROM dp_synthesize('people', rho := RHO)",
        "FROM dp_synthesize('people', attributes := ['sex', 'age'], rho := RHO)",
    ),
}


@pytest.mark.parametrize("asked", QUESTIONS.values(), ids=QUESTIONS)
def test_a_release_that_was_not_stored_stands_in_the_way_of_no_other(
    loaded: Any, watched: Watched, asked: tuple[str, str]
) -> None:
    """After a failure between the charge and the store, other questions are answered, and the same one at no new cost."""
    connection, folder = loaded
    before = len(Ledger(folder).ledger_rows())
    first, second = (sql.replace("RHO", next(BUDGETS)) for sql in asked)
    watched.fails_to_store = True
    with pytest.raises(duckdb.Error):
        connection.execute(first).fetchall()
    watched.fails_to_store = False
    for sql in (second, first, first, second):
        assert connection.execute(sql).fetchall()
    assert [charge["state"] for charge in Ledger(folder).ledger_rows()[before:]] == ["stored", "stored"]


@pytest.mark.slow
def test_memory_that_runs_out_after_the_steps(loaded: Any, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, _ = loaded
    sql = CALLS["rows, forest"].replace("RHO", next(BUDGETS))

    def full(*_: Any, **__: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("duckdb_dp.synthesis.table.fitting.fit", full)
        with pytest.raises(duckdb.Error) as caught:
            connection.execute(sql).fetchall()
    assert "dp_synthesize: memory ran out; if it was charged" in one_line(str(caught.value))
    drawn = watched.drawn
    assert connection.execute(sql).fetchall()
    assert watched.drawn == drawn


def test_a_disk_that_is_full_amid_the_steps(loaded: Any, watched: Watched) -> None:
    """What was drawn and could not be kept is seen by nobody and drawn anew; all before it stays."""
    connection, folder = loaded
    before = len(Ledger(folder).ledger_rows())
    sql = CALLS["aim"].replace("RHO", next(BUDGETS))
    watched.fails_before = 4
    with pytest.raises(duckdb.Error):
        connection.execute(sql).fetchall()
    kept = list(watched.kept)
    watched.fails_before = None
    connection.execute(sql).fetchall()
    assert watched.replayed == kept
    assert len(Ledger(folder).ledger_rows()) == before + 1


KILLED = """
import itertools, json, os, signal, sys
import duckdb, duckdb_dp
from duckdb_dp.accounting.journal import Journal

con = duckdb.connect(sys.argv[1])
duckdb_dp.load(con, progress=False)
keep, moments = Journal.keep, itertools.count(1)

def kept(self, steps):
    keep(self, steps)
    if steps and next(moments) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

Journal.keep = kept
con.execute(sys.argv[2]).fetchall()
"""


def recorded(path: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as db:
        found = db.execute("SELECT asked, rho, variance, data FROM steps ORDER BY number").fetchall()
    db.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("call", ["aim", "rows, forest by rounds", "links, paper", "parents"])
def test_killed_again_and_again(made: Path, tmp_path: Path, start: Any, run: Any, call: str) -> None:
    """kill -9 of a process in the midst of its steps: the next one goes on with them, and the charge is one."""
    file = shutil.copytree(made, tmp_path / "copy") / "test.duckdb"
    folder = file.with_name("test.duckdb.dp")
    before, steps = len(Ledger(folder).ledger_rows()), []
    sql = CALLS[call].replace("RHO", "1")
    for moment in (1, 1, 2):
        process = start(KILLED, file, sql, moment)
        process.communicate(timeout=120)
        assert process.returncode == -9
        shutil.copytree(folder / "releases", tmp_path / "read", dirs_exist_ok=True)
        (path,) = (tmp_path / "read").glob("*.journal")
        found = recorded(path)
        assert found[: len(steps)] == steps
        assert len(found) > len(steps)
        steps = found
    run(KILLED, file, sql, 0)
    (charge,) = Ledger(folder).ledger_rows()[before:]
    assert charge["state"] == "stored"
    assert journals(folder) == []


def test_threads_ask_at_once_and_one_draws(loaded: Any, watched: Watched) -> None:
    """Of two databases with one ledger: the sessions know nothing of each other."""
    connection, folder = loaded
    before = len(Ledger(folder).ledger_rows())
    sql = CALLS["aim"].replace("RHO", next(BUDGETS))
    with duckdb.connect() as other:
        other.execute("ATTACH ':memory:' AS test; USE test")
        other.execute(TABLES)
        duckdb_dp.load(other, folder, progress=False)
        found: list[Any] = []
        asks = [
            threading.Thread(target=lambda c=c: found.append(c.execute(sql).fetchall())) for c in (connection, other)
        ]
        for thread in asks:
            thread.start()
        for thread in asks:
            thread.join(60)
    assert found[0] == found[1]
    assert watched.drawn == draws(watched.kept)
    assert len(Ledger(folder).ledger_rows()) == before + 1
    assert journals(folder) == []


# The journal by itself


def step(asked: str, *values: float, rho: float = 0.5) -> Step:
    return Step(asked=asked, rho=rho, variance=2.0, values=np.array(values))


def test_steps_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "1.journal"
    odd = np.array([np.nan, -0.0, np.inf, 5e-324])
    odd[:1].view(np.uint64)[:] += 7  # a NaN like no other
    with journal.journal(path, "release 1") as one:
        assert one.next("a", 0.5) is None
        one.keep([step("a", 1.5), step("b", *odd)])
        one.keep([])
        one.keep([step("c")])
    with journal.journal(path, "release 1") as two:
        assert two.next("a", 0.5 * (1 + 1e-12)).values.tolist() == [1.5]
        assert two.next("b", 0.5).values.tobytes() == odd.tobytes()
        two.next("c", 0.5).values[:] = 0  # one's own to write on
        assert two.next("d", 0.5) is None
        two.keep([step("d", 4.0)])
    with journal.journal(path, "release 1") as three:
        for asked in "abcd":
            assert three.next(asked, 0.5) is not None


def test_the_disk_is_synced_for_the_first_step_and_as_time_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def level(held: Journal) -> int:
        return int(held._db.execute("PRAGMA synchronous").fetchone()[0])

    with journal.journal(tmp_path / "1.journal", "release 1") as held:
        held.keep([step("a", 1.0)])
        assert level(held) == 2  # FULL
        held.keep([step("b", 1.0)])
        monkeypatch.setattr(journal.time, "monotonic", lambda: float("inf"))
        held.keep([step("c", 1.0)])
        assert level(held) == 2


@pytest.mark.parametrize(("asked", "rho"), [("b", 0.5), ("a", 0.51)])
def test_another_step_is_refused_and_not_mixed_in(tmp_path: Path, asked: str, rho: float) -> None:
    path = tmp_path / "1.journal"
    with journal.journal(path, "release 1") as one:
        one.keep([step("a", 1.5)])
    with journal.journal(path, "release 1") as two, pytest.raises(DPError) as caught:
        two.next(asked, rho)
    assert one_line(str(caught.value)).startswith("release 1 was begun by another version or setup, whose step 1")


def test_one_holds_it_and_others_wait(tmp_path: Path, start: Any) -> None:
    path = tmp_path / "1.journal"
    script = """
        import sys, time
        from pathlib import Path
        import numpy as np
        from duckdb_dp.accounting import journal
        with journal.journal(Path(sys.argv[1]), "release 1") as held:
            held.keep([journal.Step(asked="a", rho=0.5, variance=2.0, values=np.array([1.5]))])
            print("held", flush=True)
            time.sleep(60)
    """
    process = start(script, path)
    assert process.stdout.readline() == "held\n"
    with (
        pytest.raises(DPError, match="release 1 is being made by another process"),
        journal.journal(path, "release 1", 0.2),
    ):
        pass
    process.kill()
    process.communicate()
    with journal.journal(path, "release 1", 5) as mine:
        assert mine.next("a", 0.5) is not None


def test_a_journal_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "1.journal"
    path.write_bytes(b"no such thing" * 1000)
    with pytest.raises(DPError) as caught, journal.journal(path, "release 1"):
        pass
    assert "once that works, the same request finishes it at no new cost" in one_line(str(caught.value))
    with (
        pytest.raises(DPError, match="cannot keep its steps"),
        journal.journal(tmp_path / "no" / "folder", "release 1"),
    ):
        pass


def test_a_disk_that_is_full_for_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "1.journal"
    with journal.journal(path, "release 1") as one:
        one.keep([step("a", 1.5)])
        one._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(DPError, match="full"):
            one.keep([step("b", *range(100_000))])
        one._db.execute("PRAGMA max_page_count = 100000")
        one.keep([step("b", 2.5)])
    with journal.journal(path, "release 1") as two:
        assert [two.next(asked, 0.5).values.tolist() for asked in "ab"] == [[1.5], [2.5]]
        assert two.next("c", 0.5) is None
