"""What most tests start from: a small private table in a loaded database, with seeded noise or with none."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import duckdb_dp.testing
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.progress import silent
from duckdb_dp.sql.bindings import LOADED
from duckdb_dp.sql.session import Session
from duckdb_dp.testing import NoNoise, SeededEntropy

settings.register_profile("no times", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no times")  # a busy machine is no failure

os.environ["DUCKDB_DP_CACHE"] = "off"  # tests solve what they test, and leave the user's cache alone
os.environ.pop("COLUMNS", None)  # a width that test processes have, and no user's pipe

MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2**31:
    # Folders of tests in memory, where a ledger's commit takes 0.1 ms, and 7 ms on a disk; a run fills less than 100 MB.
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

ROOT = Path(duckdb_dp.testing.__file__).parents[1]

PEOPLE = """
CREATE TABLE people AS
SELECT (i * 37 % 100)::INTEGER AS age,
       CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
       (i % 4)::INTEGER AS race,
       CASE WHEN i % 7 = 0 THEN NULL ELSE i % 2 = 0 END AS smoker
FROM range(420) t(i)
"""
DECLARED = """
CALL dp_protect('people', mu := 1000, delta := 1e-9);
CALL dp_attribute('people', 'age', bins := [0, 20, 40, 60, 100]);
CALL dp_attribute('people', 'sex', "values" := ['F', 'M']);
CALL dp_attribute('people', 'race', low := 0, high := 3);
CALL dp_attribute('people', 'smoker', nulls := true);
"""


class Loaded:
    """A loaded connection: rows of a statement, and what the ledger has charged and stored."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.connection = connection
        self.folder = folder

    def __call__(self, sql: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Every row of one or several statements, always fetched: DuckDB 2.0 refuses to go on beside unread rows."""
        return (self.connection.execute(sql, parameters) if parameters else self.connection.execute(sql)).fetchall()

    def columns(self, sql: str) -> list[tuple[str, str]]:
        """Names and types of a query's columns."""
        return [(name, type_) for name, type_, *_ in self(f"DESCRIBE {sql}")]

    def charged(self) -> list[dict[str, Any]]:
        """The ledger's charges, past DuckDB."""
        return Ledger(self.folder).ledger_rows()

    def charges(self) -> int:
        """How many charges there are."""
        return len(self.charged())

    def refused(self, sql: str, parameters: list[Any] | None = None) -> str:
        """The one line of an error that must come, and nothing else may: no charge, no traceback."""
        before = self.charged()
        with pytest.raises(duckdb.Error) as caught:
            self(sql, parameters)
        assert self.charged() == before
        return one_line(str(caught.value))


def one_line(message: str) -> str:
    """An error's line. DuckDB may add the statement and a mark below it, after an empty line."""
    line, *rest = message.split("\n")
    assert not rest or (rest[0] == "" and rest[1].startswith("LINE ") and set(rest[2]) <= {" ", "^"})
    assert "Traceback" not in message
    assert "internal error" not in message
    return line


class Replay:
    """A source of noise that gives out the words it was told, in order."""

    private = False

    def __init__(self, words: Sequence[int]) -> None:
        self.words = list(words)
        self.given = 0

    def uint64(self, size: int) -> np.ndarray:
        """Give out the next ``size`` words."""
        self.given += size
        given, self.words = self.words[:size], self.words[size:]
        return np.array(given, dtype=np.uint64)


def replay_digits(words: Sequence[int]) -> Replay:
    """Words such that the first are the first digits of the number that the exponential mechanism draws."""
    return Replay([words[0] ^ (2**63 - 1), *words[1:]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The ledger's folder."""
    return tmp_path / "test.dp"


class People:
    """Connections to table 'people' in memory, declared. To connect and declare takes 0.3 s, so tests lend them in turn.

    Every test gets a session and a ledger of its own, and its tables are dropped after it. A connection on which it has left
    anything else is not lent again.
    """

    LEFT = """
    FROM (SELECT view_oid AS oid, 'VIEW' AS kind, database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal
          UNION ALL FROM (SELECT table_oid, 'TABLE', database_name, schema_name, table_name FROM duckdb_tables()))
    SELECT concat('DROP ', kind, ' ', format('"{}"."{}"."{}"', database_name, schema_name, replace(view_name, '"', '""')))
    WHERE (database_name, schema_name, view_name) <> ('memory', 'main', 'people') ORDER BY oid DESC
    """
    MACROS = "SELECT function_oid FROM duckdb_functions() WHERE NOT internal ORDER BY ALL"
    STATE = (
        MACROS,
        "SELECT database_name FROM duckdb_databases()",
        "SELECT database_name, schema_name FROM duckdb_schemas()",
        "SELECT table_oid, column_count, index_count FROM duckdb_tables()",
        "SELECT view_oid FROM duckdb_views() WHERE NOT internal",
        "SELECT type_oid FROM duckdb_types() WHERE NOT internal",
        "SELECT sequence_oid FROM duckdb_sequences()",
        "SELECT bit_xor(hash(name, value)) FROM duckdb_settings()",
        "SELECT name FROM duckdb_variables()",
        "SELECT count(*), bit_xor(hash(people)) FROM people",
    )

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger
        self.idle: list[tuple[duckdb.DuckDBPyConnection, list[Any]]] = []

    def make(self) -> tuple[duckdb.DuckDBPyConnection, list[Any]]:
        """A connection, and its state."""
        declared = self.ledger.exists()
        connection = duckdb.connect()
        connection.execute(PEOPLE)
        duckdb_dp.testing.load(connection, self.ledger, seed=0)
        if not declared:
            connection.execute(DECLARED).fetchall()
        return connection, [connection.execute(sql).fetchall() for sql in self.STATE]

    def is_as_before(self, connection: duckdb.DuckDBPyConnection, before: list[Any]) -> bool:
        """Drop tables and views, then look for anything else. Macros take long to list: whoever makes one makes tables."""
        connection.execute("BEGIN; ROLLBACK")  # fails inside a transaction
        left = connection.execute(self.LEFT).fetchall()
        for (drop,) in left:
            connection.execute(drop)
        return all(
            connection.execute(sql).fetchall() == known
            for sql, known in zip(self.STATE, before, strict=True)
            if left or sql is not self.MACROS
        )

    @contextmanager
    def lend(self, folder: Path, bits: EntropySource) -> Iterator[Loaded]:
        """One of them, with a ledger in ``folder`` and that noise."""
        connection, before = self.idle.pop() if self.idle else self.make()
        shutil.copytree(self.ledger, folder)
        made = LOADED[connection.execute("SELECT _dp_loaded()").fetchall()[0][0]]
        made.session = Session(connection, ledger=Ledger(folder), bits=bits, track=silent)
        with ExitStack() as stack:
            stack.callback(connection.close)
            yield Loaded(connection, folder)
            with suppress(duckdb.Error):
                if not made.restricted and self.is_as_before(connection, before):
                    stack.pop_all()
                    self.idle.append((connection, before))


@pytest.fixture(scope="session")
def lender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """Connections that tests lend."""
    made = People(tmp_path_factory.mktemp("people") / "test.dp")
    yield made
    for connection, _ in made.idle:
        connection.close()


@pytest.fixture
def db(lender: People, folder: Path) -> Iterator[Loaded]:
    """Table 'people' in memory, declared; seeded noise."""
    with lender.lend(folder, SeededEntropy(1)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def shared(lender: People, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """As ``db``, one for all tests of a file: they ask at budgets of their own and leave 'people' as it is."""
    with lender.lend(tmp_path_factory.mktemp("shared") / "test.dp", SeededEntropy(2)) as loaded:
        yield loaded


@pytest.fixture
def exact(lender: People, folder: Path) -> Iterator[Loaded]:
    """Table 'people' in memory, declared; no noise: answers are the exact counts."""
    with lender.lend(folder, NoNoise()) as loaded:
        yield loaded


FEW = 1
"""Cases of each test in the short run, where its mark says nothing: two would take more than five minutes on two cores."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """What else a run may ask for."""
    parser.addoption("--more", type=int, default=1, help="how many times as many cases of each test are not slow")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the cases of a test marked ``some(n, *names)`` all but n, evenly spread, are slow: n for each value of the named ones.

    The next value gets cases that lie between those of the value before, so that all of them have some. Of a test without the mark
    all but ``FEW`` are slow. With ``--more k`` it is k n and k ``FEW``.
    """
    more = config.getoption("--more")
    tests: dict[object, dict[tuple[str, ...], list[pytest.Item]]] = {}
    for item in items:
        if (mark := item.get_closest_marker("some")) is not None:
            values = tuple(str(item.callspec.params[name]) for name in mark.args[1:])
            groups = tests.setdefault((item.path, item.originalname, mark.args[0]), {})
            groups.setdefault(values, []).append(item)
        elif hasattr(item, "callspec") and item.get_closest_marker("slow") is None:
            tests.setdefault((item.path, item.originalname, FEW), {}).setdefault((), []).append(item)
    for (*_, few), groups in tests.items():
        count = few * more
        for place, cases in enumerate(groups.values()):
            kept = {(place + step * len(cases) // count) % len(cases) for step in range(count)}
            for number, item in enumerate(cases):
                if number not in kept:
                    item.add_marker(pytest.mark.slow)


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., "subprocess.Popen[str]"]:
    """Start a Python script in a process of its own: (script, *arguments) -> process.

    From a file: DuckDB takes any other script for a session at a terminal and shows a bar on standard output.
    """

    def start_script(script: str, *arguments: object) -> "subprocess.Popen[str]":
        file = tmp_path_factory.mktemp("script") / "script.py"
        file.write_text(textwrap.dedent(script))
        return subprocess.Popen(
            [sys.executable, "-W", "error", str(file), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start_script


@pytest.fixture
def run(start: Callable[..., "subprocess.Popen[str]"]) -> Callable[..., str]:
    """Run a Python script to its end in a process of its own; what it printed. It must succeed and complain of nothing."""

    def run_script(script: str, *arguments: object) -> str:
        with start(script, *arguments) as process:
            try:
                out, err = process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert (process.returncode, err) == (0, ""), err
        return out

    return run_script


def pytest_unconfigure() -> None:
    """Leave nothing that holds DuckDB's types when pytest exits: DuckDB 2.0 prints pages of 'nanobind: leaked' for each.

    Hypothesis keeps a callback with the garbage collector, and where torch is loaded too the tests are never freed.
    """
    gc.callbacks[:] = [callback for callback in gc.callbacks if not callback.__module__.startswith("hypothesis")]
    for found in gc.get_objects():
        if type(found) is FunctionType and found.__globals__.get("__file__", "").startswith(str(ROOT / "tests")):
            found.__annotations__.clear()
