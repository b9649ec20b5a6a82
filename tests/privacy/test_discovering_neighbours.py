"""dp_discover: what one unit changes, and the chance that its own values show."""

import json
import math
import random
from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

import duckdb_dp.testing
from duckdb_dp.accounting.base import GDP, ZCDP, Accounting
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.accounting.threshold import threshold
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Identity
from duckdb_dp.noise.grid import grid_step
from duckdb_dp.plan.choose import PLANNERS
from duckdb_dp.plan.unknown_values import ThresholdNoise
from duckdb_dp.request import SLACK, Request
from duckdb_dp.sql import unknown_values
from duckdb_dp.synthesis.discovery import Grouped

TABLE = "CREATE OR REPLACE TABLE t (u INTEGER, w VARCHAR COLLATE NOCASE, x VARCHAR)"


def request(
    unit: str | None = "u", values: int = 3, cost: float = 0.25, accounting: Accounting = GDP, *, nulls: bool = False
) -> Request:
    options = {"attribute": "x", "type": "VARCHAR", "find": "values", "max_values": values, "delta": 1e-8}
    options |= {"nulls": True} if nulls else {}
    return Request(
        function="dp_discover", catalog="memory", schema="main", table="t", unit=unit, max_rows=2, accounting=accounting,
        attributes=(), questions=(), cost=cost, mechanism="gaussian", objective="total", options=tuple(sorted(options.items())),
    )  # fmt: skip


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("unit", ["u", "w", json.dumps([["u", "w"]])])
def test_one_unit_changes_at_most_k_counts_by_one(unit: str, nulls: bool) -> None:
    """Over random tables: removing each unit, with rows in any order; NULL is one value more, and takes no place of another."""
    rng = random.Random(unit)
    with duckdb.connect() as connection:
        for k in (1, 2, 3, 9):
            rows = [
                (
                    rng.choice([*range(6), None]),
                    rng.choice("aAbB"),
                    rng.choice(["p", "q", "r", "P", "", None, "s" * 1001]),
                )
                for _ in range(60)
            ]

            def counts(kept: list, k: int = k) -> dict[bytes, int]:
                rng.shuffle(kept)
                connection.execute(TABLE)
                columns = [list(column) for column in zip(*kept, strict=True)]
                connection.execute("INSERT INTO t SELECT unnest(?), unnest(?), unnest(?)", columns)
                found = dict(connection.execute(unknown_values.held(request(unit, k, nulls=nulls), "key")).fetchall())
                without = dict(connection.execute(unknown_values.held(request(unit, k), "key")).fetchall())
                assert {v: n for v, n in found.items() if v != unknown_values.MISSING} == without
                return found

            def owner(row: tuple) -> object:
                return {"u": row[0], "w": row[1]}.get(unit, row[:2])

            everybody = counts(rows)
            assert k < 9 or (unknown_values.MISSING in everybody) == nulls  # where each unit has room for it
            for one in {owner(row) for row in rows}:
                left = counts([row for row in rows if owner(row) != one])
                changes = [everybody.get(v, 0) - left.get(v, 0) for v in {*everybody, *left}]
                assert set(changes) <= {0, 1}
                assert sum(changes) <= k
                if one is None:
                    assert not any(changes)


def test_rows_are_units_where_none_is_named() -> None:
    with duckdb.connect() as connection:
        connection.execute(f"{TABLE}; INSERT INTO t SELECT i, 'a', ['p', 'q', NULL][1 + i % 3] FROM range(10) r(i)")
        found = dict(connection.execute(unknown_values.held(request(None, 1), "key")).fetchall())
        more = dict(connection.execute(unknown_values.held(request(None, 1, nulls=True), "key")).fetchall())
    assert found == {b"p": 4, b"q": 3}
    assert more == {**found, unknown_values.MISSING: 3}


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-12, 1e-100])
@pytest.mark.parametrize("values", [1, 2, 20, 1000])
@pytest.mark.parametrize("stddev", [0.01, 5.5, 1e4])
def test_the_threshold_against_the_probability(delta: float, values: int, stddev: float) -> None:
    """1 - Phi((T - 1) / sigma)^t <= delta for every t up to k, with equality at k."""
    least = threshold(stddev, values, delta)
    for t in range(1, values + 1):
        assert -math.expm1(t * norm.logcdf((least - 1) / stddev)) <= delta * (1 + 1e-11)
    assert -math.expm1(values * norm.logcdf((least - 1) / stddev)) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("accounting", [GDP, ZCDP])
@pytest.mark.parametrize("values", [1, 7])
@pytest.mark.parametrize("cost", [1e-6, 0.033, 40.0, 1e7])
def test_on_the_grid_the_chance_is_no_larger(accounting: Accounting, values: int, cost: float) -> None:
    """The chance that a rounded count of 1 reaches the first grid point of all, summed over what becomes each of them."""
    noise = ThresholdNoise.of(request(values=values, cost=cost, accounting=accounting))
    step = grid_step(noise.stddev)
    least = noise.least(step)
    assert least == round(least / step) * step
    one = ndtr(-(least - step / 2 - 1) / noise.stddev)  # all that is rounded to it or to more
    assert -math.expm1(values * math.log1p(-one)) <= 1e-8 * (1 - SLACK)
    assert least - noise.threshold <= 2 * step
    beta = cost if accounting is GDP else 2 * cost
    assert noise.stddev == pytest.approx(math.sqrt(values / beta))
    assert noise.mu == pytest.approx(math.sqrt(beta), rel=1e-12)
    assert values / noise.stddev**2 < noise.mu**2


def test_neighbours_release_the_same_but_with_the_delta(tmp_path: Path) -> None:
    """With the same noise: what a unit adds below the threshold shows nowhere, and a value of its own never."""
    released = []
    for extra in (0, 1):
        with duckdb.connect() as connection:
            connection.execute("CREATE TABLE t AS SELECT i AS u, ['p', 'q'][1 + i % 2] AS x FROM range(400) r(i)")
            connection.execute(f"INSERT INTO t SELECT 1000, v FROM (VALUES ('mine'), ('p')) s(v) WHERE {extra}")
            duckdb_dp.testing.load_exact(connection, tmp_path / f"{extra}.dp")
            connection.execute(
                "CALL dp_protect('t', unit := 'u', max_rows := 2, mu := 10, delta := 1e-6, discovery_delta := 1e-7)"
            ).fetchall()
            found = connection.execute(
                "SELECT value, count FROM dp_discover('t', 'x', max_values := 2, mu := 5)"
            ).fetchall()
            released.append(dict(found))
    assert released == [{"p": 200.0, "q": 200.0}, {"p": 201.0, "q": 200.0}]


def test_released_values_read_back() -> None:
    texts = ["b", "", "é", "a\0b", "x" * 900]
    arrays = unknown_values.arrays([text.encode() for text in texts])
    found = unknown_values.read({**arrays, "counts": np.arange(5.0)}, "VARCHAR")
    assert found == [("", 1.0), ("b", 0.0), ("x" * 900, 4.0), ("é", 2.0)]
    some = unknown_values.only(arrays, np.array([True, False, True, False, True]))
    assert unknown_values.read({**some, "counts": np.arange(3.0)}, "VARCHAR") == [
        ("b", 0.0),
        ("x" * 900, 2.0),
        ("é", 1.0),
    ]


def test_groups_of_cells_have_the_sensitivity_of_their_strategy() -> None:
    """Each cell changes the answers by at most its column's norm; cells outside change none."""
    rng = np.random.default_rng(0)
    for strategy in (
        Identity(4),
        PLANNERS["hdmm"](Workload.product(Domain({"x": 4}), {"x": "prefix"}), 1.0, "total").measurements[0].strategy,
    ):
        query = Grouped(strategy, (2, 3, 7, 8, 11))
        counts = rng.integers(0, 9, 15)
        base, _ = query.apply(counts)
        for cell in range(15):
            more = counts + (np.arange(15) == cell)
            change = query.apply(more)[0] - base
            assert change @ change <= query.squared_sensitivity * (1 + 1e-9)
            assert bool(change.any()) == (2 <= cell < 11)
        for index in range(query.shape[0]):
            assert float(query.exact(counts, index)) == pytest.approx(base[index])


def test_a_failure_after_the_charge_is_finished_at_no_new_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has seen what was drawn, and a release that is stored is never drawn again."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS u, 'p' AS x FROM range(400) r(i)")
        duckdb_dp.testing.load(connection, tmp_path / "test.dp", seed=1)
        connection.execute(
            "CALL dp_protect('t', unit := 'u', max_rows := 1, mu := 10, delta := 1e-6, discovery_delta := 1e-7)"
        ).fetchall()
        call = "FROM dp_discover('t', 'x', mu := 5)"
        with monkeypatch.context() as patched:

            def fail(*_: object) -> None:
                raise MemoryError

            patched.setattr(Ledger, "store", fail)
            with pytest.raises(duckdb.Error, match="memory ran out"):
                connection.execute(call).fetchall()
        states = "SELECT state, discovery_delta FROM dp_ledger()"
        charged = connection.execute(states).fetchall()
        assert charged == [("charged", pytest.approx(0.25e-7))]
        rows = connection.execute(call).fetchall()
        assert [row[0] for row in rows] == ["p"]
        assert connection.execute(states).fetchall() == [("stored", charged[0][1])]
        assert connection.execute(call).fetchall() == rows
