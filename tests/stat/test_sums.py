"""Intervals of sums, averages and expressions of them hold the truth in 95 of 100, over data of many shapes."""

from pathlib import Path

import duckdb
import pytest
from scipy import stats

import duckdb_dp.testing

GROUPS = 400
SHAPES = {
    "even": "random() * 100",
    "skewed": "least(100, exp(3 * random()) + CASE WHEN random() < 0.02 THEN 60 ELSE 0 END)",
    "far from the middle": "97 + 3 * random()",
    "one value": "40",
    "two ends": "CASE WHEN random() < 0.1 THEN 100 ELSE 0 END",
    "often missing": "CASE WHEN random() < 0.3 THEN random() * 100 END",
}
ANSWERS = {
    "s": "sum(x)", "m": "avg(x)", "d": "stddev_pop(x)", "v": "var_pop(x)", "n": "count(*)", "k": "count(x)",
    "r": "100 * sum(x) / count(*)", "c": "count(*) - count(x)", "f": "avg(x) FILTER (WHERE x > 20)",
    "o": "round(avg(x), 1)", "w": "floor(sum(x) / count(*))",
    "p": "greatest(count(*) - 200, 0)", "t": "(avg(x) - 40) / sqrt(count(*))",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("noise", ["mu := 30", "epsilon := 60, delta := 0"], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_hold(tmp_path: Path, shape: str, noise: str) -> None:
    with duckdb.connect() as con:
        con.execute("SELECT setseed(0.5)").fetchall()
        con.execute(
            f"CREATE TABLE t AS SELECT (i % {GROUPS})::INTEGER AS g, {SHAPES[shape]} AS x FROM range({200 * GROUPS}) r(i)"
        )
        duckdb_dp.testing.load(con, tmp_path / "l.dp", seed=7)
        con.execute(f"CALL dp_protect('t', {noise}); CALL dp_attribute('t', 'g', low := 0, high := {GROUPS - 1})")
        con.execute("CALL dp_attribute('t', 'x', low := 0, high := 100, step := 10)")
        asked = ", ".join(f"{text} AS {name}" for name, text in ANSWERS.items())
        budget = noise.replace("60, delta := 0", "30").replace("30", "15")
        found = con.execute(f"FROM dp_sql('SELECT g, {asked} FROM t GROUP BY g', {budget})").fetchall()
        names = [column[0] for column in con.description or []]
        truth = {row[0]: row[1:] for row in con.execute(f"SELECT g, {asked} FROM t GROUP BY g").fetchall()}
    for place, name in enumerate(ANSWERS):
        low, high = names.index(f"{name}_ci_low"), names.index(f"{name}_ci_high")
        pairs = [
            (row, truth[row[0]][place]) for row in found if row[low] is not None and truth[row[0]][place] is not None
        ]
        inside = sum(row[low] <= true <= row[high] for row, true in pairs)
        assert stats.binomtest(inside, len(pairs), 0.95, alternative="less").pvalue > 1e-4, (name, inside, len(pairs))
        assert (
            name not in "snkc"
            or stats.binomtest(inside, len(pairs), 0.95).pvalue > 1e-4
            or "laplace" in noise
            or "delta" in noise
        ), (name, inside)


QUANTILES = {
    "declared": "quantile_disc(x, 0.5)",
    "high": "quantile_disc(x, 0.95)",
    "low": "quantile_cont(x, 0.02)",
    "undeclared": "median(y)",
    "expression": "quantile_cont(y - 2 * x, 0.75)",
    "whole": "quantile_disc(z, 0.3)",
    "day": "quantile_disc(day, 0.6)",
    "filtered": "quantile_disc(y, 0.5) FILTER (WHERE x < 50)",
}


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["mu := 30", "epsilon := 300, delta := 0"], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_of_quantiles_hold(tmp_path: Path, shape: str, noise: str) -> None:
    """Of every group that is clearly not empty, of declared and undeclared columns, whole numbers, dates and expressions."""
    groups = 50
    with duckdb.connect() as con:
        con.execute("SELECT setseed(0.5)").fetchall()
        con.execute(
            f"CREATE TABLE t AS SELECT *, (x * 37)::INTEGER AS z, DATE '2021-03-05' + CAST(x * 5 AS INTEGER) AS day, x * x - 900 AS y "
            f"FROM (SELECT (i % {groups})::INTEGER AS g, {SHAPES[shape]} AS x FROM range({300 * groups}) r(i))"
        )
        duckdb_dp.testing.load(con, tmp_path / "l.dp", seed=7)
        con.execute(f"CALL dp_protect('t', {noise}); CALL dp_attribute('t', 'g', low := 0, high := {groups - 1})")
        con.execute("CALL dp_attribute('t', 'x', low := 0, high := 100, step := 10)")
        asked = ", ".join(f"{text} AS {name}" for name, text in QUANTILES.items())
        budget = noise.replace("30", "10")
        found = con.execute(f"FROM dp_sql('SELECT g, {asked} FROM t GROUP BY g', {budget})").fetchall()
        names = [column[0] for column in con.description or []]
        exact = asked.replace("median(y)", "quantile_disc(y, 0.5)").replace("quantile_cont", "quantile_disc")
        truth = {row[0]: row[1:] for row in con.execute(f"SELECT g, {exact} FROM t GROUP BY g").fetchall()}
    for place, name in enumerate(QUANTILES):
        low, high = names.index(f"{name}_ci_low"), names.index(f"{name}_ci_high")
        pairs = [
            (row, truth[row[0]][place]) for row in found if row[low] is not None and truth[row[0]][place] is not None
        ]
        inside = sum(row[low] <= true <= row[high] for row, true in pairs)
        outside = len(pairs) - inside
        assert stats.binomtest(outside, 50, 0.05, alternative="greater").pvalue > 1e-4, (name, outside, len(pairs))
        assert len(pairs) > 45 or name == "filtered" or shape == "often missing"


CHOSEN = {"total": ("sum(y)", "sum({})"), "mean": ("avg(y)", "avg({})"), "spread": ("stddev_pop(y)", "stddev_pop({})")}


@pytest.mark.some(1)
@pytest.mark.parametrize("noise", ["mu := 30", "epsilon := 60, delta := 0"], ids=["gaussian", "laplace"])
@pytest.mark.parametrize(
    "shape", ["exp(12 * random())", "-3 * random()", "tan(3.1 * (random() - 0.5))", "1e12 + random()"]
)
def test_intervals_of_sums_with_chosen_bounds_hold(tmp_path: Path, shape: str, noise: str) -> None:
    """What they cover is the sum of the values clamped to ``clipped_at``."""
    groups = 200
    with duckdb.connect() as con:
        con.execute("SELECT setseed(0.5)").fetchall()
        con.execute(
            f"CREATE TABLE t AS SELECT (i % {groups})::INTEGER AS g, {shape} AS y FROM range({100 * groups}) r(i)"
        )
        duckdb_dp.testing.load(con, tmp_path / "l.dp", seed=7)
        con.execute(f"CALL dp_protect('t', {noise}); CALL dp_attribute('t', 'g', low := 0, high := {groups - 1})")
        asked = ", ".join(f"{text} AS {name}" for name, (text, _) in CHOSEN.items())
        budget = noise.replace("60, delta := 0", "30").replace("30", "15")
        found = con.execute(f"FROM dp_sql('SELECT g, {asked} FROM t GROUP BY g', {budget})").fetchall()
        names = [column[0] for column in con.description or []]
        limits = {name: found[0][names.index(f"{name}_clipped_at")] for name in CHOSEN}
        clamped = {name: f"greatest(least(y, {high!r}), {low!r})" for name, (low, high) in limits.items()}
        exact = ", ".join(text.format(clamped[name]) for name, (_, text) in CHOSEN.items())
        truth = {row[0]: row[1:] for row in con.execute(f"SELECT g, {exact} FROM t GROUP BY g").fetchall()}
    for place, name in enumerate(CHOSEN):
        low, high = names.index(f"{name}_ci_low"), names.index(f"{name}_ci_high")
        pairs = [(row, truth[row[0]][place]) for row in found if row[low] is not None]
        inside = sum(row[low] - 1e-9 <= true <= row[high] + 1e-9 for row, true in pairs)
        assert stats.binomtest(inside, len(pairs), 0.95, alternative="less").pvalue > 1e-4, (name, inside, len(pairs))
        assert name != "total" or len(pairs) == groups
