"""Many marginals in one pass: exact counts, once each, however the statement is written."""

import itertools
from typing import Any

import duckdb
import numpy as np
import pytest

from duckdb_dp.counting.counts import blocks
from duckdb_dp.counting.tally import tallied
from duckdb_dp.domain.domain import Domain
from duckdb_dp.sql.bindings import LOADED

COLUMNS = [f"c{k}" for k in range(8)]
SIZE = 60
PAIRS = list(itertools.combinations(COLUMNS, 2))
ASKED = "FROM dp_marginals('{}', 'all 2-way', rho := {}, fresh := true)"
INSIDE = " AND ".join(f"{name} BETWEEN 0 AND {SIZE - 1}" for name in COLUMNS)


def made(db: Any, name: str = "w", rows: int = 5_000, **protected: Any) -> None:
    """A protected table; some of its values are outside the domain, or NULL."""
    columns = ", ".join(
        f"CASE WHEN (i + {k}) % 97 > 0 THEN (hash(i * {k + 3}) % {SIZE + 1})::INTEGER END AS {c}"
        for k, c in enumerate(COLUMNS)
    )
    db(f"CREATE TABLE {name} AS SELECT i % 700 AS person, {columns} FROM range({rows}) r(i)")
    options = "".join(f", {key} := {value!r}" for key, value in protected.items())
    db(f"CALL dp_protect('{name}', rho := 1e6{options})")
    for column in COLUMNS:
        db(f"CALL dp_attribute('{name}', '{column}', low := 0, high := {SIZE - 1})")


def expected(db: Any, table: str = "w") -> np.ndarray:
    found = db.connection.execute(f"SELECT {', '.join(COLUMNS)} FROM {table} WHERE {INSIDE}").fetchnumpy()
    cells = [found[one].astype(int) * SIZE + found[other].astype(int) for one, other in PAIRS]
    return np.concatenate([np.bincount(pair, minlength=SIZE**2) for pair in cells])


def answered(db: Any, asked: str) -> np.ndarray:
    """Whole numbers: without noise the counts of residuals are within rounding of them."""
    found = np.asarray(db.connection.execute(asked).fetchnumpy()["count"])
    assert np.allclose(found, np.rint(found), atol=0.01)
    return np.rint(found).astype(int)


def open_tallies(db: Any) -> int:
    return len(LOADED[db("SELECT _dp_loaded()")[0][0]].session.tallies._open)


def test_these_marginals_are_tallied() -> None:
    domain = Domain(dict.fromkeys(COLUMNS, SIZE))
    assert tallied(domain, blocks(domain, tuple(PAIRS)))


@pytest.mark.parametrize("rows", [0, 1, 5_000])
def test_counts_are_exact_without_noise(exact: Any, rows: int) -> None:
    made(exact, rows=rows)
    assert np.array_equal(answered(exact, ASKED.format("w", 1)), expected(exact))
    assert open_tallies(exact) == 0


def test_the_rows_of_the_transaction_count(exact: Any) -> None:
    made(exact, rows=100)
    exact("BEGIN; INSERT INTO w FROM w")
    inside = answered(exact, ASKED.format("w", 1))
    assert np.array_equal(inside, expected(exact))
    exact("ROLLBACK")
    assert np.array_equal(answered(exact, ASKED.format("w", 2)), expected(exact))
    assert inside.sum() == 2 * expected(exact).sum()


@pytest.mark.slow
def test_two_calls_and_two_readers_of_one_in_a_statement(exact: Any) -> None:
    """Each row counts once, also where DuckDB runs a part of a statement twice."""
    made(exact)
    made(exact, "v", 300)
    twice = f"WITH a AS ({ASKED.format('w', 3)}) SELECT count FROM a UNION ALL SELECT count FROM a"
    assert np.array_equal(answered(exact, twice), np.tile(expected(exact), 2))
    copied = twice.replace("AS (", "AS NOT MATERIALIZED (", 1)
    assert np.array_equal(answered(exact, copied), np.tile(expected(exact), 2))
    both = f"SELECT count {ASKED.format('w', 4)} UNION ALL SELECT count {ASKED.format('v', 4)}"
    assert np.array_equal(answered(exact, both), np.concatenate([expected(exact), expected(exact, "v")]))
    lateral = f"SELECT count FROM range(3), ({ASKED.format('v', 5)})"
    assert answered(exact, lateral).sum() == 3 * expected(exact, "v").sum()
    assert open_tallies(exact) == 0


def test_a_prepared_statement_counts_anew_each_time(exact: Any) -> None:
    made(exact, rows=200)
    exact(f"PREPARE asked AS {ASKED.format('w', 6)}")
    first = answered(exact, "EXECUTE asked")
    exact("INSERT INTO w FROM w")
    second = answered(exact, "EXECUTE asked")
    assert np.array_equal(second, 2 * first)
    assert first.sum() > 0


def test_a_unit_has_at_most_max_rows_rows(exact: Any) -> None:
    made(exact, unit="person", max_rows=2)
    found = answered(exact, ASKED.format("w", 7))
    kept = [found[i : i + SIZE**2].sum() for i in range(0, len(found), SIZE**2)]
    assert len(set(kept)) == 1
    assert 0 < kept[0] <= 2 * 700


@pytest.mark.slow
def test_a_statement_that_fails_leaves_nothing_for_the_next(exact: Any) -> None:
    made(exact)
    exact(
        "CREATE VIEW broken AS SELECT * REPLACE (CASE WHEN person > 698 THEN error('stop')::INTEGER ELSE c0 END AS c0) FROM w"
    )
    exact("CALL dp_protect('broken', rho := 1e6)")
    for column in COLUMNS:
        exact(f"CALL dp_attribute('broken', '{column}', low := 0, high := {SIZE - 1})")
    with pytest.raises(duckdb.Error):
        exact(ASKED.format("broken", 8))
    assert np.array_equal(answered(exact, ASKED.format("w", 8)), expected(exact))
    assert open_tallies(exact) == 0


def test_explaining_counts_nothing(exact: Any) -> None:
    made(exact, rows=100)
    exact(f"EXPLAIN {ASKED.format('w', 9)}")
    assert exact.charges() == 0
    assert open_tallies(exact) == 0


@pytest.mark.parametrize("options", ["", ", nulls := true", ", other := true", ", nulls := true, other := true"])
def test_one_marginal_of_whole_numbers_that_are_grouped_as_they_are(exact: Any, options: str) -> None:
    """Values outside the domain and NULL have the cell that is declared, or none."""
    exact(
        'CREATE TABLE w AS SELECT CASE WHEN i % 5 > 0 THEN i % 11 - 6 END::INTEGER AS "c 1", i % 3 AS c1, i AS n FROM range(990) r(i)'
    )
    exact("CALL dp_protect('w', rho := 1e6)")
    exact(f"CALL dp_attribute('w', 'c 1', low := -3, high := 2{options})")
    exact("CALL dp_attribute('w', 'c1', low := 0, high := 2)")
    found = {
        tuple(row[:2]): row[2]
        for row in exact("SELECT \"c 1\", c1, round(count) FROM dp_marginals('w', ['c1', 'c 1'], rho := 1)")
    }
    expected: dict[tuple[Any, int], int] = dict.fromkeys(found, 0)
    for i in range(990):
        value: Any = i % 11 - 6 if i % 5 else None
        if value is None or not -3 <= value <= 2:
            value = None if value is None and "nulls" in options else "other"
        else:
            value = str(value) if "other :=" in options else value
        if (value, i % 3) in expected:
            expected[value, i % 3] += 1
    assert found == expected
    assert sum(found.values()) == (990 if "other :=" in options else 792 * 6 / 11 + 198 * ("nulls" in options))
