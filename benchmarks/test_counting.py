"""Counting inside DuckDB against the plain GROUP BYs of the same marginals, in one run."""

import itertools
from collections.abc import Callable

import pytest
from common import SIZES, generated, seconds
from pytest_benchmark.fixture import BenchmarkFixture


@pytest.mark.parametrize("rows", [10_000_000, 100_000_000])
def test_one_two_way_marginal(
    benchmark: BenchmarkFixture, ledger: str, report: Callable[[str], None], rows: int
) -> None:
    con = generated(ledger, rows)
    question = "SELECT sum(count) FROM dp_marginals('t', ['c7', 'c14'], rho := 1, fresh := true)"
    con.execute(question).fetchall()
    plain = seconds(lambda: con.execute("SELECT c7, c14, count(*) FROM t GROUP BY ALL").fetchall(), 5)
    benchmark.pedantic(lambda: con.execute(question).fetchall(), rounds=5)
    ratio = benchmark.stats.stats.min / plain
    benchmark.extra_info["ratio to GROUP BY"] = ratio
    report(f"one 2-way marginal, {rows:,} rows: {benchmark.stats.stats.min:.3f} s = {ratio:.2f} x the plain GROUP BY")


def test_all_two_way_marginals(benchmark: BenchmarkFixture, ledger: str, report: Callable[[str], None]) -> None:
    con = generated(ledger, 10_000_000)
    pairs = list(itertools.combinations(range(len(SIZES)), 2))

    def plain() -> None:
        for a, b in pairs:
            con.execute(f"SELECT c{a}, c{b}, count(*) FROM t GROUP BY ALL").fetchall()

    question = "SELECT sum(count) FROM dp_marginals('t', 'all 2-way', rho := 1, fresh := true)"
    base = seconds(plain)
    benchmark.pedantic(lambda: con.execute(question).fetchall(), rounds=3)
    ratio = benchmark.stats.stats.min / base
    benchmark.extra_info["ratio to GROUP BYs"] = ratio
    report(
        f"105 2-way marginals, 10,000,000 rows: {benchmark.stats.stats.min:.2f} s = {ratio:.2f} x the plain GROUP BYs"
    )
