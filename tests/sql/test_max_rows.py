"""dp_max_rows and dp_explain of bounds: what each bound on a unit's rows keeps, by noisy numbers of units."""

import math
import random
import re
from collections import Counter

import duckdb
import numpy as np
import pytest

import duckdb_dp
from duckdb_dp.domain.rows_of_units import BOUNDS, RowsOfUnits
from duckdb_dp.request import Request
from duckdb_dp.sql import render
from tests.conftest import Loaded

ASK = "FROM dp_max_rows('visits', mu := 2)"

KINDS = {
    "table": "CALL dp_protect('visits', unit := 'patient', max_rows := 4, mu := 9, delta := 1e-9)",
    "auto": "CALL dp_protect('visits', unit := 'patient', max_rows := 'auto', mu := 9, delta := 1e-9)",
    "member": "CALL dp_protect(['persons', 'visits'], unit := 'persons.patient', mu := 9, delta := 1e-9)",
    "pure": "CALL dp_protect('visits', unit := 'patient', max_rows := 1, epsilon := 99, delta := 0)",
}


def visits(loaded: Loaded, protect: str) -> dict[int, int]:
    """500 patients with 1, 2, 3, 7 or 40 rows, and rows of nobody: how many patients have so many rows."""
    loaded("CREATE TABLE persons (patient VARCHAR PRIMARY KEY)")
    loaded("CREATE TABLE visits (patient VARCHAR REFERENCES persons (patient), ward INTEGER)")
    loaded("INSERT INTO persons SELECT 'p' || i FROM range(500) t(i)")
    rows = [1, 2, 3, 7, 40]
    loaded(
        "INSERT INTO visits SELECT 'p' || i, j % 5 FROM range(500) t(i), range(40) s(j) WHERE j < [1, 2, 3, 7, 40][1 + i % 5]"
    )
    loaded("INSERT INTO visits SELECT NULL, 1 FROM range(77)")
    loaded(protect)
    return dict.fromkeys(rows, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_bound_keeps(exact: Loaded, kind: str) -> None:
    have = visits(exact, KINDS[kind])
    ask = ASK if kind != "pure" else ASK.replace("mu", "epsilon")
    rows = exact(f"SELECT max_rows, noise, units_whole, rows_kept, rows_left_out FROM ({ask})")
    assert [row[0] for row in rows] == ["1", "2", "3", "5", "10", "20", "30", "50", "auto"]
    total = sum(n * units for n, units in have.items())
    assert rows[-1][1:] == (None, None, None, None)
    for bound, noise, whole, kept, left_out in rows[:-1]:
        k = int(bound)
        out = sum(max(n - k, 0) * units for n, units in have.items())
        assert noise == k
        # Of 7 rows the cell's middle is said, which is 7.7, and of 40 rows 39.5.
        assert left_out == pytest.approx(out, abs=150)
        assert kept == pytest.approx(1 - out / total, abs=0.02)
        if k in (1, 2, 3, 5, 10, 50):
            assert whole == pytest.approx(sum(units for n, units in have.items() if n <= k) / 500)
    assert exact.charges() == 1
    assert exact(f"SELECT max_rows, noise, units_whole, rows_kept, rows_left_out FROM ({ask})") == rows
    assert exact("SELECT count(*) FROM dp_release(1)") == [(9,)]
    assert exact.charges() == 1
    if kind != "member":
        assert exact.charged()[0]["neighbours"] == "add or remove one 'patient' with all its rows"


@pytest.mark.parametrize("kind", ["auto", "member"])
def test_explain_names_the_price_and_then_what_is_kept(exact: Loaded, kind: str) -> None:
    visits(exact, KINDS[kind])
    explain = "SELECT max_rows, stddev, error, note FROM dp_explain('visits', {'max_rows': [1, 5, 50]}, mu := 1)"
    before = exact(explain)
    assert [(row[0], row[2]) for row in before] == [("1", None), ("5", None), ("50", None), ("auto", None)]
    assert [row[1] for row in before[:3]] == pytest.approx([1, 5, 50])
    assert "FROM dp_max_rows('visits', mu := 0.4) does, for 0.2% of the budget" in before[0][3]
    assert exact.charges() == 0
    exact(ASK)
    after = exact(explain)
    assert [row[1] for row in after] == [row[1] for row in before]
    assert after[2][2] == pytest.approx(50)
    assert after[0][2] == pytest.approx(math.hypot(1, 4800), rel=0.05)
    assert "the least error" in after[2][3]
    assert not any("least" in (row[3] or "") for row in (after[0], after[1], after[3]))
    assert exact.charges() == 1
    for texts in ("['1', '5', '50']", "['1', '5', '50', 'auto']", "[1, 5, 50]::JSON[]"):
        assert exact(explain.replace("[1, 5, 50]", texts)) == after
    assert [row[0] for row in exact(explain.replace("[1, 5, 50]", "'auto'"))] == ["auto"]
    for asked in ("[]", "['0']", "['1', 'a']", "[0]", "['a']", "[1.5]", "NULL", "true"):
        assert "[1, 3, 10]" in exact.refused(explain.replace("[1, 5, 50]", asked))


def test_refused(exact: Loaded) -> None:
    assert "each row of 'people' is a unit" in exact.refused("FROM dp_max_rows('people', mu := 1)")
    exact("CREATE TABLE links AS SELECT i % 5 AS a, i % 3 AS b FROM range(9) t(i)")
    exact("CALL dp_protect('links', unit := ['a', 'b'], max_rows := 9, mu := 1)")
    assert "protects 'a' and 'b' together" in exact.refused("FROM dp_max_rows('links', mu := 1)")


def test_python_and_a_unit_that_is_called_like_the_column(exact: Loaded) -> None:
    exact('CREATE TABLE t AS SELECT i % 90 AS "rows of a unit", 1 AS max_rows FROM range(270) t(i)')
    exact("CALL dp_protect('t', unit := 'rows of a unit', max_rows := 1, mu := 9)")
    found = duckdb_dp.max_rows(exact.connection, "t", mu=3).to_pylist()
    assert [row["max_rows"] for row in found] == ["1", "2", "3", "auto"]
    assert found[2]["rows_kept"] == 1


def test_one_unit_changes_one_count_by_one(exact: Loaded) -> None:
    """The SQL that is counted, with and without each unit, whatever the rows: texts by their bytes, and NULL nobody's."""
    exact("CREATE TABLE t (u VARCHAR COLLATE NOCASE, x INTEGER)")
    exact("CALL dp_protect('t', unit := 'u', max_rows := 2, mu := 9)")
    exact("FROM dp_max_rows('t', mu := 1)")
    request = Request.from_json(exact.charged()[0]["request"])
    rng = random.Random(1)
    units = ["a", "A", "b", "", None, "c"]
    rows = [unit for unit in units for _ in range(rng.choice([1, 2, 3, 12]))]

    def counts(kept: list[str | None]) -> Counter:
        with duckdb.connect() as con:
            con.execute("CREATE TABLE t (u VARCHAR COLLATE NOCASE, x INTEGER)")
            con.executemany("INSERT INTO t VALUES (?, 1)", [[unit] for unit in rng.sample(kept, len(kept))])
            sql = render.counting(request, "key")
            cells = con.execute(f"WITH {sql} SELECT unnest(cells) FROM blocks").fetchall()
        return Counter({cell["k"]: cell["n"] for (cell,) in cells})

    whole = counts(rows)
    assert whole.total() == 5
    for unit in units:
        less = counts([other for other in rows if other != unit])
        assert (whole - less).total() == (unit is not None)
        assert not less - whole


def test_noise_alone_shows_no_large_units() -> None:
    rng = np.random.default_rng(1)
    shown = [RowsOfUnits(rng.normal(0, 9, len(BOUNDS) + 1), 9.0).seen for _ in range(500)]
    assert sum(seen > 0 for seen in shown) <= 10
    empty = RowsOfUnits(np.zeros(len(BOUNDS) + 1), 1.0).kept(3)
    assert (empty.units_whole, empty.rows_kept, empty.rows_left_out) == (None, None, 0.0)


def test_many_small_cells_are_seen_together() -> None:
    """30 units in each of 12 cells, none of which is certain by itself: their bounds are shown in most draws, and few beyond."""
    rng, true = np.random.default_rng(2), np.zeros(len(BOUNDS) + 1)
    true[:12] = 30
    seen = np.array([RowsOfUnits(true + rng.normal(0, 12, len(true)), 12.0).seen for _ in range(300)])
    assert np.mean((seen >= 9) & (seen <= 14)) > 0.9


def test_what_may_hide_is_said_in_rows() -> None:
    """1,000 units of one row, at a deviation of 10: 42 units with 10 rows each are not seen."""
    counts = np.zeros(len(BOUNDS) + 1)
    counts[0] = 1_000
    found = RowsOfUnits(counts, 10.0)
    assert (found.seen, found.unseen_share(10)) == (1, pytest.approx(0.42))
    assert RowsOfUnits(np.zeros(len(BOUNDS) + 1), 10.0).unseen_share(10) is None


@pytest.mark.parametrize("ask", [ASK, "FROM dp_explain('visits', {'max_rows': [1, 3]}, mu := 1)"])
def test_the_note_says_it(exact: Loaded, ask: str) -> None:
    visits(exact, KINDS["table"])
    assert exact(ASK)
    note = exact(f"SELECT note FROM ({ask}) WHERE max_rows = '1'")[0][0]
    assert re.search(r"about 2 units with more rows .*: with 500 rows each they would have \d\d?% of the rows", note)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", ["geometric", "lognormal", "pareto", "poisson", "seven"])
def test_the_error_covers_where_units_lie_between_two_bounds(shape: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = {
        "geometric": lambda: rng.geometric(0.12, 4000),
        "lognormal": lambda: np.ceil(rng.lognormal(1.5, 1, 4000)),
        "pareto": lambda: np.ceil(rng.pareto(1.5, 4000) + 1e-9),
        "poisson": lambda: 1 + rng.poisson(9, 4000),
        "seven": lambda: np.repeat([2, 7, 40], 1000),
    }[shape]()
    counts = np.histogram(rows, bins=[0.5, *(bound + 0.5 for bound in BOUNDS), 1e9])[0]
    found = RowsOfUnits(counts + rng.normal(0, 2, len(counts)), 2.0)
    for bound in found.bounds[:-1]:
        truth = np.maximum(rows[rows <= found.bounds[-1]] - bound, 0).sum()
        assert abs(found.kept(bound).rows_left_out - truth) < 4 * found.kept(bound).stddev, bound
