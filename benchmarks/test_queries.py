"""Linear queries: planning, and from SQL to the last row on Adult beside the exact GROUP BYs, in one run."""

import itertools
import json
import resource
from collections.abc import Callable

import duckdb
import pytest
from common import SHARED, adult, seconds
from pytest_benchmark.fixture import BenchmarkFixture
from query_smasher import cube, mixed, one_and_two_way, planned, prefixes

from duckdb_dp.plan import solve

PLANS = {
    **{
        f"[{n}]^40 {kind}": (one_and_two_way, n, 40, kind)
        for n in (10, 50)
        for kind in ("prefix", "range", "affine", "abs")
    },
    "[40]^50 prefix": (one_and_two_way, 40, 50, "prefix"),
    "[20]^20 mixed": (mixed, 20, 20),
    "[10]^1000 2-way prefix": (prefixes, 10, 1000),
}
NUMERIC = 85
"""Attributes of Adult with so many values are numeric, as in the papers."""


def domain() -> dict[str, int]:
    return dict(json.loads((SHARED / "data/adult/adult-domain.json").read_text()))


@pytest.mark.parametrize("name", PLANS)
def test_plan(
    benchmark: BenchmarkFixture, report: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    build, *sizes = PLANS[name]
    monkeypatch.setenv("DUCKDB_DP_CACHE", "off")

    def forget() -> None:
        solve.one_attribute.cache_clear()

    def fresh() -> float:
        return planned(build(*sizes)).rmse

    rmse = benchmark.pedantic(fresh, setup=forget, rounds=3)
    report(f"plan {name}: {benchmark.stats.stats.min:.3f} s, RMSE {rmse:.3f}, gap {planned(build(*sizes)).gap:.1e}")


def from_sql(
    benchmark: BenchmarkFixture,
    report: Callable[[str], None],
    con: duckdb.DuckDBPyConnection,
    name: str,
    sets: list[dict[str, str]],
) -> None:
    """Time, memory and ratio to counting the same marginals exactly."""

    def counted() -> None:
        for entry in sets:
            columns = ", ".join(f'"{column}"' for column in entry)
            con.execute(f"SELECT count(*) FROM (SELECT {columns}, count(*) FROM adult GROUP BY ALL)").fetchall()

    entries = ", ".join("{" + ", ".join(f"'{a}': '{kind}'" for a, kind in entry.items()) + "}" for entry in sets)
    call = f"dp_queries('adult', [{entries}], rho := 0.5, fresh := true)"
    plain = seconds(counted)
    (found,) = benchmark.pedantic(
        lambda: con.execute(f"SELECT count(*), sum(answer), max(stddev) FROM {call}").fetchall(), rounds=1
    )
    took, memory = benchmark.stats.stats.min, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    benchmark.extra_info.update({"peak memory, GB": memory, "ratio to GROUP BYs": took / plain})
    report(
        f"{name}: {found[0]:,} answers in {took:.1f} s = {1e9 * took / found[0]:.0f} ns each, peak {memory:.2f} GB; "
        f"{took / plain:.1f} x the {len(sets)} exact GROUP BYs ({plain:.2f} s)"
    )


def test_two_way_ranges_from_sql(benchmark: BenchmarkFixture, ledger: str, report: Callable[[str], None]) -> None:
    numeric = [name for name, size in domain().items() if size >= NUMERIC]
    sets = [dict.fromkeys(pair, "range") for pair in itertools.combinations(numeric, 2)]
    from_sql(benchmark, report, adult(ledger), "Adult, all 2-way ranges of 5 numeric attributes", sets)


@pytest.mark.parametrize("k", [2, 3])
def test_hybrid_from_sql(benchmark: BenchmarkFixture, ledger: str, report: Callable[[str], None], k: int) -> None:
    kinds = {name: "prefix" if size >= NUMERIC else "identity" for name, size in domain().items()}
    sets = [{name: kinds[name] for name in names} for names in itertools.combinations(kinds, k)]
    from_sql(benchmark, report, adult(ledger), f"Adult, hybrid {k}-way", sets)


def test_one_range_family_from_sql(benchmark: BenchmarkFixture, ledger: str, report: Callable[[str], None]) -> None:
    name = next(name for name, size in domain().items() if size == 100)
    from_sql(benchmark, report, adult(ledger), f"Adult, ranges of {name}", [{name: "range"}])


def test_the_workloads_are_the_published_ones() -> None:
    assert sorted(size for size in domain().values() if size >= NUMERIC) == [85, 99, 100, 100, 100]
    assert one_and_two_way(10, 40, "range").queries == 2_361_700
    assert len(cube(3, 2).attributes) == 2
