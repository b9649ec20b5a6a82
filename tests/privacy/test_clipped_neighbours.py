"""Sums whose contributions are bounded by norm: one unit changes them by the norm at most, and each score of a bound by 1."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.counting.sums import ExactSums
from duckdb_dp.grouped_sums import BITS, sum_name
from duckdb_dp.plan.direct import DirectPlan
from duckdb_dp.sql import execute

SELECTS = [
    "SELECT g, count(*) AS n, sum(w) AS s, avg(x) AS m, sum(y) AS y FROM t GROUP BY g",
    "SELECT count(*) AS n, sum(d) AS s, variance(y) AS v, count(x) AS k, count(DISTINCT u) AS u FROM t",
    "SELECT g, count(DISTINCT u) AS n, sum(x * w) FILTER (WHERE s LIKE 'a%') AS s, stddev(n) AS d FROM t GROUP BY g",
    "SELECT n // 2 AS h, median(x) AS m, count(DISTINCT s) AS s, sum(n) AS t FROM t GROUP BY h",
]


class SeenError(Exception):
    """Raised when the sums are known, before anything is charged."""


def rows(rng: random.Random, count: int) -> list[tuple]:
    odd = [0.0, -1.5, 0.25, 7.0, -9e307, 1e-9, float("nan"), float("inf"), None]
    return [
        (
            rng.choice(["a", "A", *"bcde", "c", "c", None]),
            rng.choice(["p", "q", "r", "?", None]),
            rng.choice([0, 1, 2, 3, 9, None]),
            rng.choice(odd),
            rng.choice(["a", "ab", "b", "", None]),
            rng.choice([2**63 - 1, -(2**63), 0, 4, None]),
            rng.choice([1e-300, -1e300, 2.0**-30, 3.5, 1 / 3, -0.0, None]),
            rng.choice([0.01, -99.99, 12.5, None]),
        )
        for _ in range(count)
    ]


def fill(con: duckdb.DuckDBPyConnection, found: list[tuple]) -> None:
    con.execute("DELETE FROM t")
    con.execute(f"INSERT INTO t SELECT {', '.join(['unnest(?)'] * 8)}", [list(c) for c in zip(*found, strict=True)])


@contextmanager
def table(folder: Path, pure: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t (u VARCHAR COLLATE NOCASE, g VARCHAR, n INTEGER, x DOUBLE, s VARCHAR, w BIGINT, y DOUBLE, d DECIMAL(12, 2))"
        )
        duckdb_dp.testing.load_exact(con, folder / "l.dp")
        budget = "epsilon := 9, delta := 0" if pure else "mu := 9"
        con.execute(
            f"CALL dp_protect('t', {budget}, unit := 'u', max_rows := 'auto');"
            "CALL dp_attribute('t', 'g', \"values\" := ['p', 'q', 'r'], other := true);"
            "CALL dp_attribute('t', 'n', low := 0, high := 3, nulls := true); CALL dp_attribute('t', 'x', bins := [-1, 0, 2])"
        )
        yield con


def read(con: duckdb.DuckDBPyConnection, select: str, pure: bool = False) -> tuple[DirectPlan, ExactSums]:
    """What is measured, and the exact sums."""
    from duckdb_dp.answers import direct_plan

    seen: list = []

    def stop(session: object, asked: object, sums: ExactSums, *_: object, **__: object) -> None:
        seen.append((direct_plan(asked), sums))  # type: ignore[arg-type]
        raise SeenError

    with patch.object(execute, "_draw", stop), pytest.raises(duckdb.Error, match="SeenError"):
        con.execute("FROM dp_sql(?, fresh := true, epsilon := 1, delta := ?)", [select, 0 if pure else 1e-9]).fetchall()
    (found,) = seen
    return found


def choices(size: int) -> list[int]:
    return sorted({0, size // 3, size // 2, 2 * size // 3, size - 1})


@pytest.mark.parametrize("pure", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("select", [SELECTS[0], *(pytest.param(text, marks=pytest.mark.slow) for text in SELECTS[1:])])
def test_one_unit_changes_clipped_sums_by_their_norm_at_most(tmp_path: Path, select: str, pure: bool) -> None:
    rng, attained = random.Random(select), 0.0
    with table(tmp_path, pure) as con:
        everybody = rows(rng, 60)
        fill(con, everybody)
        plan, before = read(con, select, pure)
        for one in ["a", "A", "c", None] if pure else ["a", "c", None]:
            rest = [row for row in everybody if row[0] != one]
            rng.shuffle(rest)
            fill(con, rest)
            _, after = read(con, select, pure)
            for clip in plan.clips:
                if clip.chosen:
                    first = clip.sums[0]
                    moved = clip.scores(before.owners(first, clip.size)) - clip.scores(after.owners(first, clip.size))
                    assert np.abs(moved).max() <= (0 if one is None else 1 + 1e-6)
                    if clip.steep:
                        scores = [
                            clip.steep_scores(each.owners(first, clip.size), clip.size - 1) for each in (before, after)
                        ]
                        assert np.abs(scores[0] - scores[1]).max() <= (0 if one is None else 1 + 1e-6)
                for choice in choices(clip.size):
                    names = [m.clique for m in plan.measurements if plan.clip_of(m.clique) is clip]
                    found = [
                        before.clipped(name, clip.candidates, choice) - after.clipped(name, clip.candidates, choice)
                        for name in names
                    ]
                    if one is None:
                        assert not any(change.any() for change in found)
                    elif clip.rows:
                        assert all(np.abs(change).sum() <= clip.bound(choice) for change in found)
                    else:
                        norm = float(np.linalg.norm(np.concatenate(found).astype(float), 1 if pure else 2))
                        part, sum_ = plan.sums[clip.sums[0]]
                        assert norm <= plan._squared(part, sum_) ** 0.5
                        attained = max(attained, norm / 2**BITS)
    assert attained > 1 - 1e-6


def test_contributions_below_the_bound_are_added_as_they_are(tmp_path: Path) -> None:
    """Sums of decimals, whole numbers and doubles are those of SQL where no norm is beyond the bound."""
    with table(tmp_path, False) as con:
        rng = random.Random(7)
        found = [
            (f"u{i % 9}", rng.choice("pqr"), i % 4, rng.random(), "s", rng.randrange(-99, 99), rng.random(), i / 4)
            for i in range(300)
        ]
        fill(con, found)
        select = "SELECT g, count(*) AS n, sum(d) AS d, sum(w) AS w, sum(y) AS y, sum(y) FILTER (WHERE n > 1) AS f FROM t GROUP BY g"
        plan, sums = read(con, select)
        expected = con.execute(f"{select} ORDER BY g").fetchall()
        for index, (part, one) in enumerate(plan.sums):
            clip = plan.clip_of(sum_name(index))
            assert clip is not None
            assert part.size == 4  # with other
            choice = int(np.searchsorted(clip.candidates, 1e5))
            got = sums.clipped(sum_name(index), clip.candidates, choice) * clip.bound(choice) / 2**BITS
            assert got[:3] == pytest.approx([float(row[index + 1]) for row in expected], rel=1e-5), str(one)
            assert got[3] == 0
