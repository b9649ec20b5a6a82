"""Neighbouring tables: everything that a user sees, except the noisy numbers, is the same."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.accounting.ledger import Ledger

COLUMNS = "who BIGINT, x DOUBLE, n INTEGER, s VARCHAR, b BOOLEAN, day DATE"
TABLE = [
    (1, 0.5, 1, "a", True, "2020-01-01"),
    (1, 1.5, 2, "b", False, "2020-06-01"),
    (2, 1.5, 2, "b", None, "2020-06-01"),
    (3, 0.1, 3, "a", True, "2020-12-31"),
] * 5
NULL = (None,) * 6
ODD: dict[str, tuple[Any, ...]] = {
    "inside": (9, 0.5, 1, "a", True, "2020-01-01"),
    "nothing but NULL": NULL,
    "NULL with a unit": (9, *NULL[1:]),
    "NaN": (9, float("nan"), 1, "a", True, "2020-01-01"),
    "infinity": (9, float("inf"), 1, "a", True, "infinity"),
    "minus infinity": (9, float("-inf"), 1, "a", True, "-infinity"),
    "far outside": (9, 1e308, 2**31 - 1, "a value that nobody declared", True, "9999-12-31"),
    "far below": (-(2**63), -1e308, -(2**31), "", False, "0001-01-01"),
    "odd text": (9, 0.5, 1, "other'; DROP TABLE t; --\n\u0000é", True, "2020-01-01"),
    "the word other": (9, 0.5, 1, "other", True, "2020-01-01"),
}
EMPTY: list[tuple[Any, ...]] = []
PAIRS: dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    **{f"one row more: {name}": (TABLE, [*TABLE, row]) for name, row in ODD.items()},
    **{f"the only row: {name}": (EMPTY, [row]) for name, row in ODD.items()},
    "one row less": (TABLE, TABLE[:-1]),
    "a unit less": (TABLE, [row for row in TABLE if row[0] != 1]),
    "a unit of many rows more": (TABLE, TABLE + [ODD["inside"]] * 500),
    "a unit of many odd rows more": (TABLE, TABLE + [(9, *row[1:]) for row in ODD.values()] * 50),
    "a unit of many rows, alone": (EMPTY, [(9, *row[1:]) for row in ODD.values()] * 50),
}
ASKED = ["['n', 's']", "[['x', 'n', 's', 'b', 'day'], ['day'], []]", "'all <=2-way'"]
UNITS = ", unit := 'who', max_rows := 2"
CASES = [
    (name, protect) for name in PAIRS for protect in ("", UNITS) if protect == "" or "unit" in name or "NULL" in name
]


@contextmanager
def loaded(folder: Path, rows: list[tuple[Any, ...]], protect: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t ({COLUMNS})")
        if rows:
            con.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", rows)
        with patch(
            "duckdb_dp.accounting.database.secrets.token_bytes", bytes
        ):  # the key that each ledger has for itself
            duckdb_dp.testing.load(con, folder, seed=3)
        con.execute(
            f"CALL dp_protect('t', mu := 10, delta := 1e-9{protect});"
            "CALL dp_attribute('t', 'x', bins := [0, 1, 2]); CALL dp_attribute('t', 'n', low := 1, high := 3, nulls := true);"
            "CALL dp_attribute('t', 's', \"values\" := ['a', 'b'], other := true); CALL dp_attribute('t', 'b');"
            "CALL dp_attribute('t', 'day', bins := ['2020-01-01', '2020-07-01', '2020-12-31'])"
        )
        yield con


ENDS = "coalesce(ci_high >= ci_low, true)"
"""Of the ends of a quantile's interval; noisy counts decide which of them is open, as they decide where the others are."""


def seen(con: duckdb.DuckDBPyConnection, folder: Path) -> list[Any]:
    """All that is shown of the answers, but the numbers that are noisy by design."""
    found: list[Any] = []
    for mu, asked in enumerate(ASKED, start=1):
        call = f"FROM dp_marginals('t', {asked}, mu := {mu})"
        found += con.execute(f"DESCRIBE {call}").fetchall()
        found += con.execute(f"FROM dp_explain('t', {asked}, mu := {mu})").fetchall()
        found.append(shape_of_plan(con, call))
        found.append(attempt(con, f"SELECT * EXCLUDE (count, ci_low, ci_high), ci_high - count > 0 {call}"))
        # Once stored, the table is not even read.
        found += con.execute(f"EXPLAIN {call}").fetchall()
    for asked in ("'n', [0.1, 0.5], by := ['s', 'b']", "'day', 0.5"):
        call = f"FROM dp_quantiles('t', {asked}, mu := 0.5)"
        found += con.execute(f"DESCRIBE {call}").fetchall()
        found.append(shape_of_plan(con, call))
        found.append(attempt(con, f"SELECT * EXCLUDE (value, ci_low, ci_high), {ENDS} {call}"))
    call = "FROM dp_quantiles('t', 'n', [0.1, 0.5], by := ['s', 'b'], mu := 0.5, mechanism := 'select')"
    found.append(attempt(con, f"SELECT * EXCLUDE (value, ci_low, ci_high), {ENDS} {call}"))
    found.append(attempt(con, "FROM dp_marginals('t', ['x'], mu := 9.9)"))  # over the budget by now
    found += con.execute("SELECT * EXCLUDE (time, version) FROM dp_ledger()").fetchall()
    found += con.execute("SELECT * EXCLUDE (released_at, charged_at) FROM dp_releases()").fetchall()
    found += con.execute("FROM dp_budget()").fetchall()
    found += [(row["cost"], row["request_hash"], row["bytes"], row["state"]) for row in Ledger(folder).ledger_rows()]
    return found


def attempt(con: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """The rows, or the error's text."""
    try:
        return con.execute(sql).fetchall()
    except duckdb.Error as error:
        return str(error)


def shape_of_plan(con: duckdb.DuckDBPyConnection, call: str) -> str:
    """The plan before DuckDB's optimizer, which looks at the table's statistics and is seen by its owner only."""
    con.execute("SET explain_output = 'all'")
    plans = dict(con.execute(f"EXPLAIN {call}").fetchall())
    con.execute("SET explain_output = 'physical_only'")
    (unoptimized,) = [text for name, text in plans.items() if name in ("logical_plan", "unoptimized_logical_plan")]
    return re.sub(r"~[\d,]+ rows?", "~ rows", unoptimized)


@pytest.fixture(scope="module")
def everything_seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Any], str], list[Any]]:
    """What is seen of a table; one that many others are compared with is looked at once."""
    known: dict[tuple[int, str], list[Any]] = {}

    def look(rows: list[Any], protect: str) -> list[Any]:
        if (id(rows), protect) not in known:
            folder = tmp_path_factory.mktemp("seen") / "test.dp"
            with loaded(folder, rows, protect) as con:
                known[id(rows), protect] = seen(con, folder)
        return known[id(rows), protect]

    return look


@pytest.mark.slow
@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("name", "protect"), CASES, ids=[f"{name}{', units' if protect else ''}" for name, protect in CASES]
)
def test_nothing_but_the_noise_differs(everything_seen, name: str, protect: str) -> None:
    first, second = (everything_seen(rows, protect) for rows in PAIRS[name])
    assert first == second


def test_a_statement_reads_no_data_until_it_runs(tmp_path: Path) -> None:
    """A view that fails on its rows: planning, explaining and reading what is stored never touch them."""
    with loaded(tmp_path / "l.dp", TABLE, "") as con:
        con.execute("CREATE VIEW trap AS SELECT CASE WHEN x > 1 THEN error('read') ELSE x END AS x FROM t")
        con.execute("CALL dp_protect('trap', mu := 10); CALL dp_attribute('trap', 'x', bins := [0, 1, 2])")
        call = "FROM dp_marginals('trap', ['x'], mu := 1)"
        for statement in (
            f"EXPLAIN {call}", f"DESCRIBE {call}", f"PREPARE p AS {call}", f"SELECT * {call} LIMIT 0",
            f"SELECT * {call} WHERE false",
        ):  # fmt: skip
            con.execute(statement).fetchall()
        con.execute("FROM dp_explain('trap', ['x'], target_stddev := 3)").fetchall()
        with pytest.raises(duckdb.Error, match="read"):
            con.execute(call).fetchall()
        assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(0,)]  # counting comes before charging
        con.execute("CREATE OR REPLACE VIEW trap AS SELECT x FROM t")
        stored = con.execute(call).fetchall()
        con.execute("CREATE OR REPLACE VIEW trap AS SELECT CASE WHEN x > 1 THEN error('read') ELSE x END AS x FROM t")
        assert con.execute(call).fetchall() == stored


@pytest.mark.slow
def test_no_private_value_in_what_the_ledger_keeps(tmp_path: Path) -> None:
    rows = [(987_654_321, 0.123456789, 3, "a very private text", True, "2020-05-05")]
    with loaded(tmp_path / "l.dp", rows, UNITS) as con:
        seen(con, tmp_path / "l.dp")
    for path in (tmp_path / "l.dp").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for secret in (b"very private", b"987654321", b"0.123456", b"2020-05-05"):
            assert secret not in content
