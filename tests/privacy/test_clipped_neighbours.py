"""Sums whose contributions are bounded by norm: one unit changes them by the norm at most, and each score of a bound by 1."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.counting.sums import ExactSums
from duckdb_dp.grouped_sums import BITS, sum_name
from duckdb_dp.plan.clipping import Clip, by_norm
from duckdb_dp.plan.direct import DirectPlan
from duckdb_dp.plan.sensitivity import squared
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


def _share(share: float) -> Callable[[int, Clip], int]:
    """All bounds at the same part of their candidates."""
    return lambda _, clip: min(int(clip.size * share), clip.size - 1)


def _suits(clip: Clip, bound: float) -> int:
    return int(np.searchsorted(clip.candidates, bound))


def _apart(place: int, clip: Clip) -> int:
    """Bounds at different parts of them."""
    return int(clip.size * ((place * 0.37 + 0.4) % 1))


PICKS = [*map(_share, [0.0, 0.33, 0.5, 0.55, 0.67, 1.0]), _apart]


def read(
    con: duckdb.DuckDBPyConnection, select: str, pure: bool = False, pick: Callable[[int, Clip], int] = _apart
) -> tuple[DirectPlan, dict[str, np.ndarray], ExactSums, dict[str, int]]:
    """What is measured, how many owners have each norm, the exact sums, and the bounds on norms that were given for them.

    Args:
        con, select: what is asked.
        pure: whether noise is Laplace.
        pick: the number of the bound that is given, from the place among them.
    """
    from duckdb_dp.answers import direct_plan

    seen: list = []
    owners: dict[str, np.ndarray] = {}
    given: dict[str, int] = {}

    def choose(session: object, asked: object, name: object, key: object, sums: ExactSums) -> list[int]:
        for place, clip in enumerate(by_norm(direct_plan(asked).clips)):  # type: ignore[arg-type]
            given[clip.name] = pick(place, clip)
            if clip.chosen:
                owners[clip.name] = sums.owners(clip.sums[0], clip.size)
        return [choice for choice in given.values() for _ in range(3)]

    def stop(session: object, asked: object, sums: ExactSums, *_: object, **__: object) -> None:
        seen.append((direct_plan(asked), sums))  # type: ignore[arg-type]
        raise SeenError

    drawn = pytest.raises(duckdb.Error, match="SeenError")
    with patch.object(execute, "_draw", stop), patch.object(execute, "_choose", choose), drawn:
        con.execute("FROM dp_sql(?, fresh := true, epsilon := 1, delta := ?)", [select, 0 if pure else 1e-9]).fetchall()
    ((plan, sums),) = seen
    owners |= {
        clip.name: sums.owners(clip.sums[0], clip.size)
        for clip in plan.clips
        if clip.chosen and clip.name not in owners
    }
    return plan, owners, sums, given


def choices(size: int) -> list[int]:
    return sorted({0, size // 3, size // 2, 2 * size // 3, size - 1})


@pytest.mark.parametrize("pure", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("select", [SELECTS[0], *(pytest.param(text, marks=pytest.mark.slow) for text in SELECTS[1:])])
def test_one_unit_changes_clipped_sums_by_their_norm_at_most(tmp_path: Path, select: str, pure: bool) -> None:
    rng, attained = random.Random(select), 0.0
    with table(tmp_path, pure) as con:
        everybody = rows(rng, 60)
        fill(con, everybody)
        whole = [read(con, select, pure, pick) for pick in PICKS]
        for one in ["a", "A", "c", None] if pure else ["a", "c", None]:
            rest = [row for row in everybody if row[0] != one]
            rng.shuffle(rest)
            fill(con, rest)
            for (plan, owners, before, given), pick in zip(whole, PICKS, strict=True):
                _, fewer, after, again = read(con, select, pure, pick)
                assert again == given
                for clip in plan.clips:
                    if clip.chosen:
                        _scores_move_by_one(clip, owners[clip.name], fewer[clip.name], 0 if one is None else 1 + 1e-6)
                    names = [m.clique for m in plan.measurements if plan.clip_of(m.clique) is clip]
                    if clip.rows:
                        for choice in choices(clip.size):
                            found = [before.first_rows(name, choice) - after.first_rows(name, choice) for name in names]
                            most = 0 if one is None else clip.bound(choice)
                            assert all(np.abs(change).sum() <= most for change in found)
                        continue
                    found = [before.marginal(name) - after.marginal(name) for name in names]
                    if one is None:
                        assert not any(change.any() for change in found)
                    else:
                        norm = float(np.linalg.norm(np.concatenate(found).astype(float), 1 if pure else 2))
                        part, sum_ = plan.sums[clip.sums[0]]
                        assert norm <= squared(part, sum_, 1, pure=pure) ** 0.5
                        attained = max(attained, norm / 2**BITS)
    assert attained > 1 - 1e-6


def _scores_move_by_one(clip: Clip, before: np.ndarray, after: np.ndarray, most: float) -> None:
    assert np.abs(clip.scores(before) - clip.scores(after)).max() <= most
    if clip.steep:
        scores = [clip.steep_scores(each, clip.size - 1) for each in (before, after)]
        assert np.abs(scores[0] - scores[1]).max() <= most


ALONE = [
    "SELECT count(*) AS n, sum(w) AS s, sum(d) AS d FROM t",
    "SELECT sum(y) AS y, sum(x * n) FILTER (WHERE s LIKE 'a%') AS f FROM t WHERE n > 0",
]


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("select", ALONE)
def test_sums_of_one_group_are_cut_after_one_reading(tmp_path: Path, select: str, pure: bool) -> None:
    """At each candidate they are the sum of what each owner adds, cut to it, and one owner changes them by its steps at most."""
    rng, attained = random.Random(select), 0.0
    with table(tmp_path, pure) as con:
        everybody = rows(rng, 60)
        fill(con, everybody)
        plan, owners, before, given = read(con, select, pure)
        assert before.by_cells
        assert not given
        names = sorted({row[0] for row in everybody if row[0] is not None})
        apart = []
        for one in names:
            fill(con, [row for row in everybody if row[0] == one])
            apart.append(read(con, select, pure)[2])
        for one in ["a", "c", None]:
            fill(con, [row for row in everybody if row[0] != one])
            _, fewer, after, _ = read(con, select, pure)
            for clip in plan.clips:
                _scores_move_by_one(clip, owners[clip.name], fewer[clip.name], 0 if one is None else 1 + 1e-6)
                name = sum_name(clip.sums[0])
                for choice in range(clip.size):
                    whole = int(before.cut(name, choice)[0])
                    changed = abs(whole - int(after.cut(name, choice)[0]))
                    assert changed <= (0 if one is None else 2**BITS)
                    attained = max(attained, changed / 2**BITS)
                    parts = [int(each.cut(name, choice)[0]) for each in apart]
                    assert abs(whole - sum(parts)) <= len(parts)
                    assert max(map(abs, parts)) <= 2**BITS
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
        plan, _, sums, given = read(con, select, pick=lambda _, clip: _suits(clip, 1e4))
        expected = con.execute(f"{select} ORDER BY g").fetchall()
        for index, (part, one) in enumerate(plan.sums):
            clip = plan.clip_of(sum_name(index))
            assert clip is not None
            assert part.size == 4  # with other
            tau = clip.bound(given[clip.name])
            got = sums.marginal(sum_name(index)) * tau / 2**BITS
            assert got[:3] == pytest.approx([float(row[index + 1]) for row in expected], rel=1e-5), str(one)
            assert got[3] == 0


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize(
    ("type_", "largest"),
    [
        ("TINYINT", 127),
        ("BIGINT", 2.0**62),
        ("DECIMAL(15,2)", 9.9e12),
        ("DECIMAL(18,6)", 9.9e11),
        ("DECIMAL(28,2)", 9.9e25),
        ("DOUBLE", 2.0**60),
    ],
)
def test_norms_of_all_sizes_are_those_of_exact_arithmetic(
    tmp_path: Path, type_: str, largest: float, pure: bool
) -> None:
    """The cell of each owner's norm, from the smallest number of a type to its largest; a little above where steps are filled."""
    sizes = [largest / 3.1**power for power in range(200)]
    values = [(size, -size / 3, size / 7) for size in sizes if size / 7 >= (2.0**-19 if type_ == "DOUBLE" else 4)]
    with table(tmp_path, pure) as con:
        con.execute(f"ALTER TABLE t ALTER w TYPE {type_}")
        for each in values:
            rows_of_one = [("a", group, 1, 0.5, "s", 0, 1.0, 1) for group in "pqr"]
            fill(con, rows_of_one)
            for group, value in zip("pqr", each, strict=True):
                con.execute(f"UPDATE t SET w = CAST(? AS {type_}) WHERE g = ?", [value, group])
            stored = [float(row[0]) for row in con.execute("SELECT w FROM t").fetchall()]
            plan, owners, _, _ = read(con, "SELECT g, sum(w) AS s FROM t GROUP BY g", pure)
            (clip,) = (clip for clip in plan.clips if clip.chosen)
            norm = float(np.linalg.norm(stored, 1 if pure else 2))
            (cell,) = np.flatnonzero(owners[clip.name])
            above = 3 if type_ == "DECIMAL(18,6)" and norm > 2.0**37 else 1
            assert norm <= np.append(clip.candidates, np.inf)[cell] * (1 + 1e-8)
            assert cell == 0 or norm * above * (1 + 1e-8) >= clip.candidates[cell - 1]


def test_sums_of_a_ratio_have_one_weight_of_each_owner(tmp_path: Path) -> None:
    """An average of a constant is that constant, wherever its bounds lie; sums that are not divided keep weights of their own."""
    rng = random.Random(5)
    with table(tmp_path, False) as con:
        found = [
            (f"u{i % 60 % (1 + i % 60 // 7)}", rng.choice("pqr"), i % 4, 0.75, "s", 12, rng.random(), 0)
            for i in range(900)
        ]
        fill(con, found)
        for select, groups in [
            ("SELECT avg(x) AS a, avg(w) AS b, stddev(w) AS c FROM t", 2),
            ("SELECT g, avg(x) AS a, 8 * sum(w) / sum(x) AS b FROM t GROUP BY g", 1),
            ("SELECT count(*) AS n, sum(w) AS s, avg(w) AS a, sum(x) / count(*) AS b FROM t WHERE w > 0", 3),
            ("SELECT g, count(*) AS n, sum(w) AS s FROM t GROUP BY g", 2),
        ]:
            plan, _, sums, given = read(con, select, pick=lambda place, clip: _suits(clip, 6 + 5 * place))
            rows_seen: dict[frozenset[str], list[list[float]]] = {}
            for index, (_, one) in enumerate(plan.sums):
                clip = plan.clip_of(sum_name(index))
                assert clip is not None
                x = 1.0 if one.counts else {'"x"': 0.75, '"w"': 12.0}[one.value]
                of_row = (x - one.centre) ** (2 if one.square else 1)
                if of_row and one.kind != "missing":
                    got = sums.marginal(sum_name(index)) * clip.bound(given[clip.name]) / 2**BITS / of_row
                    rows_seen.setdefault(frozenset({clip.name, *clip.together}), []).append(got.tolist())
            assert len(rows_seen) == groups
            for same in rows_seen.values():
                assert all(0 < sum(each) < 880 for each in same)  # something is cut
                assert all(each == pytest.approx(same[0], rel=1e-4) for each in same)
            totals = {round(sum(same[0]), 3) for same in rows_seen.values()}
            assert len(totals) == groups
