"""Sums over rows of neighbouring tables: one unit changes each by its bound at most, whatever its rows hold."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.counting.sums import ExactSums
from duckdb_dp.grouped_sums import BITS, GroupedSums, sum_name
from duckdb_dp.sql import execute

SELECTS = [
    "SELECT count(*) AS n, count(x) AS k, sum(x) AS s, avg(x) AS m, variance(x) AS v FROM t",
    "SELECT g, sum(x) AS s, sum(n * x) AS p, avg(n) AS m FROM t GROUP BY g",
    "SELECT g, count(*) AS a, avg(x) AS m, count(DISTINCT u) AS d FROM t GROUP BY g",
    "SELECT count(DISTINCT u) AS d FROM t",
    "SELECT n > 1 AS h, count(DISTINCT u) AS d, sum(x) AS s FROM t GROUP BY h",
    "SELECT n // 2 AS h, sum(x) FILTER (WHERE s LIKE 'a%') AS f, count(*) FILTER (WHERE x > 0) AS c FROM t GROUP BY h",
    "SELECT g, n, sum(CASE WHEN s = 'b' THEN x ELSE -n END) AS c FROM t WHERE x < 2 OR s IS NULL GROUP BY CUBE (g, n)",
    "SELECT sum(least(greatest(CAST(s AS DOUBLE), 0), 20)) FILTER (WHERE s IS NOT NULL) AS z, sum(least(greatest(CAST(w AS DOUBLE), -3), 5)) AS w FROM t",
]
QUANTILES = [
    "SELECT g, median(x) AS m, quantile_disc(n, 0.9) AS q, count(*) AS c FROM t GROUP BY g",
    "SELECT median(w) AS m, quantile_cont(n * x, 0.1) AS q, median(n) FILTER (WHERE s LIKE 'a%') AS f FROM t",
    "SELECT n // 2 AS h, percentile_cont(0.3) WITHIN GROUP (ORDER BY x) AS p, count(DISTINCT u) AS d FROM t GROUP BY h",
]
CHOSEN = [
    "SELECT g, sum(w) AS s, avg(x * n * 7) AS m FROM t GROUP BY g",
    "SELECT avg(w) FILTER (WHERE g = 'p') / avg(w) FILTER (WHERE n > 1) AS r, sum(y) FILTER (WHERE false) AS y FROM t",
    "SELECT sum(CAST(s AS DOUBLE)) AS s, stddev(w) AS d, count(*) AS c, sum(y) AS y FROM t WHERE x < 2 OR s IS NULL",
]
LIMITS = [(0.0, 1.0), (-8.0, 0.0), (-(2.0**60), 2.0**60), (-(2.0**-30), 2.0**0.25), (0.0, 2.0**59.75)]
SELECTS += [
    "SELECT g, count(DISTINCT s) AS d, count(DISTINCT n * w) AS e, sum(x) AS s FROM t GROUP BY g",
    "SELECT count(DISTINCT y) FILTER (WHERE x < 2) AS y, count(DISTINCT u) AS u FROM t",
]
PLAIN = [select for select in SELECTS if "DISTINCT u" not in select]


class SeenError(Exception):
    """Raised when the sums are known, before anything is charged."""


def rows(rng: random.Random, count: int) -> list[tuple]:
    odd = [0.0, -1.5, 0.25, 1.0, 7.0, -9e307, float("nan"), float("inf"), float("-inf"), None]
    return [
        (
            rng.choice([*range(8), None]),
            rng.choice(["p", "q", "r", "?", None]),
            rng.choice([0, 1, 2, 3, 9, None]),
            rng.choice(odd),
            rng.choice(["a", "ab", "b", "12", "", None]),
            rng.choice([2**63 - 1, -(2**63), 0, 4, None]),
            rng.choice([1e-300, -1e300, 2.0**-30, 3.5, 1 / 3, -0.0, 2.0**0.25, None]),
        )
        for _ in range(count)
    ]


def fill(con: duckdb.DuckDBPyConnection, found: list[tuple]) -> None:
    con.execute("DELETE FROM t")
    con.execute(
        f"INSERT INTO t SELECT {', '.join(['unnest(?)'] * 7)}",
        [list(c) for c in zip(*found, strict=True)],
    )


def sums(con: duckdb.DuckDBPyConnection, select: str) -> list[tuple[GroupedSums, list[np.ndarray]]]:
    """The exact sums of each grouping set."""
    seen: list[tuple[GroupedSums, list[np.ndarray]]] = []

    def stop(parts: tuple[GroupedSums, ...], *more: object) -> None:
        exact, first = ExactSums(parts, *more), 0  # type: ignore[arg-type]
        for part in parts:
            seen.append(
                (part, [exact.marginal(sum_name(first + i)) for i in range(len(part.sums)) if counted(part, i)])
            )
            first += len(part.sums)
        raise SeenError

    with patch.object(execute, "ExactSums", stop), pytest.raises(duckdb.Error, match="SeenError"):
        con.execute("FROM dp_sql(?, mu := 1, mechanism := 'direct')", [select]).fetchall()
    return seen


def counted(part: GroupedSums, index: int) -> bool:
    """Whether a sum is no further quantile of a value whose cells are counted already."""
    before, one = part.sums[:index], part.sums[index]
    return one.kind != "quantile" or all(one.histogram != other.histogram for other in before)


def clamped(con: duckdb.DuckDBPyConnection, select: str) -> list[tuple[int, np.ndarray, list[np.ndarray]]]:
    """Of each sum whose bounds are chosen its power, the units that the bounds are chosen by, and the sums within several limits."""
    seen: list[tuple[int, np.ndarray, list[np.ndarray]]] = []

    def stop(parts: tuple[GroupedSums, ...], *more: object) -> None:
        exact, (part,) = ExactSums(parts, *more), parts  # type: ignore[arg-type]
        for i, one in enumerate(part.sums):
            if one.chosen:
                first = next(j for j, other in enumerate(part.sums) if other.histogram == one.histogram)
                units = exact.marginal((*sum_name(first), "cells", "value"))
                seen.append((2 if one.square else 1, units, [exact.within(sum_name(i), limits) for limits in LIMITS]))
        raise SeenError

    with patch.object(execute, "ExactSums", stop), pytest.raises(duckdb.Error, match="SeenError"):
        con.execute("FROM dp_sql(?, mu := 1, mechanism := 'direct')", [select]).fetchall()
    return seen


def slow(protect: str) -> Any:
    return pytest.param(protect, marks=pytest.mark.slow)


@contextmanager
def table(folder: Path, protected: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (u INTEGER, g VARCHAR, n INTEGER, x DOUBLE, s VARCHAR, w BIGINT, y DOUBLE)")
        duckdb_dp.testing.load_exact(con, folder / "l.dp")
        con.execute(
            f"CALL dp_protect('t', mu := 1{protected}); CALL dp_attribute('t', 'g', \"values\" := ['p', 'q', 'r'], other := true);"
            "CALL dp_attribute('t', 'n', low := 0, high := 3, nulls := true); CALL dp_attribute('t', 'x', bins := [-1, 0, 2])"
        )
        yield con


@pytest.mark.slow
@pytest.mark.parametrize(
    "protected",
    [
        slow(""),
        slow(", unit := 'u', max_rows := 1"),
        ", unit := 'u', max_rows := 3",
        slow(", unit := 'u', max_rows := 40"),
    ],
)
def test_one_unit_changes_each_sum_by_its_bound_at_most(tmp_path: Path, protected: str) -> None:
    with table(tmp_path, protected) as con:
        replay(con, protected, SELECTS if protected else PLAIN)
        replay(con, protected, QUANTILES[:1] if "3" in protected else [])


@pytest.mark.slow
def test_one_unit_changes_each_histogram_by_its_rows_at_most(tmp_path: Path) -> None:
    with table(tmp_path, ", unit := 'u', max_rows := 3") as con:
        replay(con, ", unit := 'u', max_rows := 3", QUANTILES)


def replay(con: duckdb.DuckDBPyConnection, protected: str, selects: list[str]) -> None:
    rng = random.Random(protected)
    k = int(protected.rsplit(" ", 1)[1]) if protected else 1
    largest = 0.0
    for select in selects:
        found = rows(rng, 40)
        fill(con, found)
        everybody = sums(con, select)
        units = {row[0] for row in found} if protected else range(0, 40, 7)
        for one in units:
            rest = [row for row in found if row[0] != one] if protected else found[:one] + found[one + 1 :]
            rng.shuffle(rest)
            fill(con, rest)
            for (part, before), (_, after) in zip(everybody, sums(con, select), strict=True):
                changes = [np.abs(a - b) for a, b in zip(before, after, strict=True)]
                own = [sum_ for i, sum_ in enumerate(part.sums) if counted(part, i)]
                for sum_, change in zip(own, changes, strict=True):
                    if one is None:
                        assert not change.any()  # rows without a unit are nobody's
                    elif sum_.cells is not None:
                        assert change.sum() <= k
                    elif sum_.distinct:
                        assert change.max() <= 1
                        assert change.sum() <= min(k, part.size)
                    else:
                        assert change.sum() <= k * sum_.steps
                        largest = max(largest, change.sum() / (k * sum_.steps))
                known = [change for sum_, change in zip(own, changes, strict=True) if sum_.kind != "sum"]
                if {sum_.kind for sum_ in part.sums} == {"sum", "known", "missing"} and len(known) == 2:
                    assert known[0].sum() + known[1].sum() <= k
    assert largest == 1 or k == 40 or {*selects} <= {*QUANTILES}  # the bound is attained


@pytest.mark.slow
@pytest.mark.parametrize("protected", ["", ", unit := 'u', max_rows := 1", ", unit := 'u', max_rows := 3"])
def test_one_unit_changes_a_sum_of_chosen_bounds_by_these_at_most(tmp_path: Path, protected: str) -> None:
    """Whatever limits are chosen: two cells, and in steps of the larger limit k times ``CHOSEN``."""
    rng = random.Random(protected)
    k = int(protected.rsplit(" ", 1)[1]) if protected else 1
    attained = 0.0
    with table(tmp_path, protected) as con:
        for select in CHOSEN:
            found = rows(rng, 40)
            fill(con, found)
            everybody = clamped(con, select)
            for one in {row[0] for row in found} if protected else range(0, 40, 5):
                rest = [row for row in found if row[0] != one] if protected else found[:one] + found[one + 1 :]
                fill(con, rest)
                for (_, cells, sums), (_, fewer, less) in zip(everybody, clamped(con, select), strict=True):
                    assert np.abs(cells - fewer).sum() <= (0 if one is None else min(k, 2))
                    for before, after in zip(sums, less, strict=True):
                        change = np.abs(before - after).sum()
                        assert change <= (0 if one is None else k * (2**BITS + 2) + len(before))
                        attained = max(attained, change / (k * 2**BITS))
    assert attained >= 1 - 1e-6 or k == 3


@pytest.mark.slow
def test_sums_of_chosen_bounds_are_those_of_the_clamped_values(tmp_path: Path) -> None:
    with table(tmp_path, "") as con:
        fill(con, [row for row in rows(random.Random(1), 300) if row[0] is not None])
        found = [
            each
            for column in ("y", "w")
            for each in clamped(con, f"SELECT sum({column}) AS s, stddev({column}) AS d FROM t")
        ]
        for column, (power, _, sums) in zip([c for c in "yw" for _ in range(2)], found, strict=True):
            for (low, high), got in zip(LIMITS, sums, strict=True):
                value = f"greatest(least(CAST({column} AS DOUBLE), {high!r}), {low!r})"
                known = f"{column} IS NOT NULL AND NOT isnan(CAST({column} AS DOUBLE))"
                ((expected,),) = con.execute(f"SELECT sum(({value}) ** {power}) FROM t WHERE {known}").fetchall()
                step = max(abs(low), abs(high)) ** power / 2**BITS
                assert got[0] * step == pytest.approx(expected, rel=1e-6, abs=400 * step)


def test_sums_are_those_of_the_rows_in_steps_of_the_grid(tmp_path: Path) -> None:
    with table(tmp_path, ", unit := 'u', max_rows := 40") as con:
        fill(con, [row for row in rows(random.Random(1), 200) if row[0] is not None])
        ((part, (total, known, *_)),) = sums(con, "SELECT sum(x) AS s, avg(x) AS m FROM t")
        clamped = "CASE WHEN NOT isnan(x) THEN least(greatest(x, -1), 2) - 0.5 END"
        ((expected, count),) = con.execute(f"SELECT sum({clamped}), count({clamped}) FROM t").fetchall()
    assert total[0] * part.sums[0].grid == expected
    assert known[0] == count
