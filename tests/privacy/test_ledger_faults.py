"""The ledger when things go wrong: nothing charged is forgotten, and no second draw of a charge is ever seen."""

import errno
import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

import duckdb_dp.budget
from duckdb_dp.accounting import store, tables
from duckdb_dp.accounting.database import Database
from duckdb_dp.accounting.event import GaussianEvent
from duckdb_dp.accounting.ledger import Dataset, Ledger, Release
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError

ROOT = Path(duckdb_dp.budget.__file__).parents[1]

# What every process of a test starts with.
PROLOGUE = """
import math, os, signal, sys, time
from pathlib import Path
from tempfile import mkdtemp
import numpy as np
from duckdb_dp.accounting import store, tables
from duckdb_dp.accounting.event import GaussianEvent
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError

def protect(ledger):
    return ledger.protect(catalog="c", schema="s", name="t", budget=Budget(rho=1))

def charge(ledger, dataset, request="{}", rho=1.0):
    event = GaussianEvent(mu=math.sqrt(2 * rho))
    return ledger.charge(dataset=dataset, function="f", request=request, mechanism="m", event=event)
"""


def start(script: str, *arguments: object) -> subprocess.Popen:
    """A process of its own, as another user of the ledger has."""
    file = Path(mkdtemp()) / "script.py"
    file.write_text(PROLOGUE + script)
    command = [sys.executable, str(file), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def protect(ledger: Ledger) -> Dataset:
    return ledger.protect(catalog="c", schema="s", name="t", budget=Budget(rho=1))


def charge(ledger: Ledger, dataset: Dataset, request: str = "{}", rho: float = 1.0, **asked) -> Release:
    event = GaussianEvent(mu=math.sqrt(2 * rho))
    return ledger.charge(dataset=dataset, function="f", request=request, mechanism="m", event=event, **asked)


def refusal(act: Callable[[], object]) -> str:
    """The message of the DPError that `act` raises, which must be one line."""
    with pytest.raises(DPError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "l.dp", timeout=5)


# Crashes

CRASHES = {
    "before the charge is committed": "tables.give_name = die",
    "between charge and store": "store_it = die",
    "with the file half written": "store.os.fsync = die",
    "with the file written": "store.digest = die",
    "with the file published": "tables.insert = lambda db, table, **values: die()",
    "after store": "load_it = die",
}


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("moment", CRASHES)
def test_kill_9_costs_at_most_what_was_charged(tmp_path: Path, moment: str) -> None:
    script = f"""
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
ledger = Ledger(Path(sys.argv[1]))
dataset = protect(ledger)
store_it, load_it = ledger.store, ledger.load
before, after = {(CRASHES[moment], "") if "charge is" in moment else ("", CRASHES[moment])!r}
exec(before)
event = GaussianEvent(mu=math.sqrt(2))
release = ledger.charge(dataset=dataset, function="f", request="{{}}", mechanism="m", event=event, name="n")
exec(after)
store_it(release, {{"a": np.array([1.0])}})
load_it(release)
"""
    process = start(script, tmp_path / "l.dp")
    process.communicate()
    assert process.returncode == -signal.SIGKILL

    ledger = Ledger(tmp_path / "l.dp")
    dataset = protect(ledger)
    assert ledger.spent(dataset) == pytest.approx(0 if moment.startswith("before") else 1)
    release = charge(ledger, dataset)
    assert release.state == ("stored" if moment == "after store" else "charged")
    ledger.store(release, {"a": np.array([2.0])})
    assert ledger.load(release)["a"] == (1.0 if moment == "after store" else 2.0)
    assert ledger.spent(dataset) == pytest.approx(1)
    assert len(list((ledger.path / "releases").iterdir())) == 1, "a draw that nobody saw stays on disk"


def test_an_interrupt_inside_a_transaction_undoes_it(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = protect(ledger)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tables, "give_name", interrupt)  # the last step, after the charge is inserted
        with pytest.raises(KeyboardInterrupt):
            charge(ledger, dataset, name="n")
    assert ledger.spent(dataset) == 0
    assert charge(ledger, dataset, name="n").state == "charged"  # and no lock is left


def test_commits_survive_a_power_cut(ledger: Ledger) -> None:
    """The journal's end, which is the commit, is on the disk: zeros at its head (PERSIST), or its removal (EXTRA, which is 3)."""
    with ledger._database.reading() as db:
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 3
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "persist"


# Races

ROUNDS, RACERS = 20, 4


def race(script: str, *arguments: object) -> list[list[str]]:
    """Runs `script` in processes that start each round at the same time; one list of printed lines per process."""
    body = f"""
me, folder = int(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
begin = float(sys.stdin.readline())
for round in range({ROUNDS}):
    time.sleep(max(0, begin + 0.06 * round - time.time()))
{script}
"""
    processes = [start(body, me, *arguments) for me in range(RACERS)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    begin = time.time() + 0.2
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{begin}\n")
        process.stdin.flush()
    lines = [process.communicate()[0].split("\n")[:-1] for process in processes]
    assert [process.returncode for process in processes] == [0] * RACERS
    return lines


@pytest.mark.slow
def test_exactly_one_process_wins_the_last_budget(tmp_path: Path) -> None:
    """Each round a new ledger, so that making it and protecting the table race as well."""
    lines = race(
        """
    ledger = Ledger(folder / str(round))
    try:
        print(charge(ledger, protect(ledger), request=str(me)).id)
    except DPError as error:
        print("refused" if "nothing was charged" in str(error) else error)
""",
        tmp_path,
    )
    for outcomes in zip(*lines, strict=True):
        assert sorted(outcomes) == ["1"] + ["refused"] * (RACERS - 1)


@pytest.mark.slow
def test_all_who_draw_for_one_charge_see_the_first_draw(tmp_path: Path) -> None:
    Ledger(tmp_path / "l.dp")
    lines = race(
        """
    ledger = Ledger(folder)
    release = charge(ledger, protect(ledger), request=str(round), rho=1 / 64)
    ledger.store(release, {"a": np.random.default_rng().normal(size=2000)})
    print(release.id, ledger.load(release)["a"].tobytes().hex())
""",
        tmp_path / "l.dp",
    )
    for outcomes in zip(*lines, strict=True):
        assert len(set(outcomes)) == 1
    assert len(set(lines[0])) == ROUNDS
    ledger = Ledger(tmp_path / "l.dp")
    assert len(ledger.releases()) == ROUNDS
    assert len(list((tmp_path / "l.dp" / "releases").iterdir())) == ROUNDS


def test_a_locked_ledger_is_waited_for_and_then_an_error(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.dp", timeout=0.1)
    dataset = protect(ledger)
    holder = sqlite3.connect(ledger.path / "ledger.sqlite", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    for act in (lambda: charge(ledger, dataset), lambda: ledger.spent(dataset), lambda: Ledger(ledger.path, timeout=0)):
        assert "was locked by another process" in refusal(act)
    assert "nothing was charged" in refusal(lambda: charge(ledger, dataset))
    timer = threading.Timer(0.3, holder.rollback)
    timer.start()
    assert charge(Ledger(ledger.path, timeout=30), dataset).state == "charged"
    timer.join()
    holder.close()


# Files


def test_a_read_only_ledger_can_be_read_and_not_charged(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = protect(ledger)
    connect = Database._connect

    def read_only(database: Database) -> sqlite3.Connection:
        db = connect(database)
        db.execute("PRAGMA query_only = ON")  # root ignores file modes; SQLite answers alike
        return db

    monkeypatch.setattr(Database, "_connect", read_only)
    message = refusal(lambda: charge(Ledger(ledger.path), dataset))
    assert "is read-only; nothing was charged: make the file and its folder writable" in message
    assert ledger.spent(dataset) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root ignores file modes")
@pytest.mark.parametrize("what", ["ledger.sqlite", "."])
def test_file_modes_that_forbid_writing(ledger: Ledger, what: str) -> None:
    dataset = protect(ledger)
    path = ledger.path / what
    mode = path.stat().st_mode
    path.chmod(mode & ~0o222)
    try:
        assert "nothing was charged" in refusal(lambda: charge(ledger, dataset))
    finally:
        path.chmod(mode)
    assert charge(ledger, dataset).state == "charged"


def test_damaged_pages_are_found(ledger: Ledger) -> None:
    dataset = protect(ledger)
    for number in range(50):
        charge(ledger, dataset, f"{number}" + "x" * 500, rho=0.01)
    path = ledger.path / "ledger.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    assert "is damaged" in refusal(lambda: Ledger(ledger.path))
    assert "is damaged" in refusal(lambda: charge(ledger, dataset, "another"))
    path.write_bytes(whole)
    assert Ledger(ledger.path).spent(dataset) == pytest.approx(0.5)


def test_rows_cannot_be_changed(ledger: Ledger) -> None:
    dataset = protect(ledger)
    ledger.declare(dataset, "age", "{}")
    ledger.store(charge(ledger, dataset, name="n"), {})
    db = sqlite3.connect(ledger.path / "ledger.sqlite")
    for table in ("secret", "datasets", "attributes", "charges", "stored", "names"):
        before = db.execute(f"SELECT * FROM {table}").fetchall()
        column = db.execute(f"PRAGMA table_info({table})").fetchone()[1]
        for statement in (
            f"UPDATE {table} SET {column} = {column}",
            f"DELETE FROM {table}",
            f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
        ):
            with pytest.raises(sqlite3.IntegrityError, match=f"{table} is insert-only"):
                db.execute(statement)
        assert before
        assert db.execute(f"SELECT * FROM {table}").fetchall() == before
    db.close()


# Release files


def test_a_damaged_release_is_an_error_and_never_drawn_again(ledger: Ledger) -> None:
    """What is said of files that are gone, cut or changed is in ``test_faults``."""
    dataset = protect(ledger)
    release = charge(ledger, dataset)
    ledger.store(release, {"a": np.arange(1000.0)})
    (path,) = (ledger.path / "releases").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:4000] + bytes([whole[4000] ^ 1]) + whole[4001:])
    message = refusal(lambda: ledger.load(release))
    ledger.store(release, {"a": np.zeros(1000)})
    assert charge(ledger, dataset).state == "stored"
    assert refusal(lambda: ledger.load(release)) == message
    path.write_bytes(whole)
    assert (ledger.load(release)["a"] == np.arange(1000.0)).all()


def test_disk_full_while_charging(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = protect(ledger)
    connect = Database._connect

    def full(database: Database) -> sqlite3.Connection:
        db = connect(database)
        db.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size as the least: no page more
        return db

    with monkeypatch.context() as patched:
        patched.setattr(Database, "_connect", full)
        message = refusal(lambda: charge(ledger, dataset, "x" * 100_000))
    assert "the disk is full; nothing was charged" in message
    assert ledger.spent(dataset) == 0
    assert charge(ledger, dataset, "x" * 100_000).state == "charged"


def test_disk_full_while_storing_leaves_the_charge_and_nothing_else(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = protect(ledger)
    release = charge(ledger, dataset)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(store.os, "fsync", full)
        message = refusal(lambda: ledger.store(release, {"a": np.array([1.0])}))
    assert "No space left on device" in message
    assert "release 1 is charged and the same request finishes it at no new cost" in message
    assert list((ledger.path / "releases").iterdir()) == []
    again = charge(ledger, dataset)
    assert again == release
    ledger.store(again, {"a": np.array([2.0])})
    assert ledger.load(again)["a"] == 2.0


def test_a_file_that_cannot_grow_is_not_stored(tmp_path: Path) -> None:
    """A real write error, half way: the process may write 64 KiB per file."""
    script = """
import resource
ledger = Ledger(Path(sys.argv[1]))
release = charge(ledger, protect(ledger))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17))
try:
    ledger.store(release, {"a": np.zeros(1 << 20)})
except DPError as error:
    print(error)
"""
    output = start(script, tmp_path / "l.dp").communicate()[0]
    assert "release 1 is charged and the same request finishes it at no new cost" in output
    assert list((tmp_path / "l.dp" / "releases").iterdir()) == []
    assert Ledger(tmp_path / "l.dp").releases()[0]["state"] == "charged"
