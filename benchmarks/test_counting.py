"""Counting inside DuckDB against the plain GROUP BYs of the same marginals, in one run."""

import itertools
from collections.abc import Callable

import duckdb
import pytest
from common import SIZES, generated, seconds
from pytest_benchmark.fixture import BenchmarkFixture

import duckdb_dp


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


HISTOGRAMS = {
    "whole numbers": ("i", "low := 0, high := {last}", "i"),
    "even bins of DECIMAL": ("m", "low := 0, high := {cells}, step := 1", "floor(m)"),
    "even bins of DOUBLE": ("d", "bins := range({cells} + 1)", "floor(d)"),
    "uneven bins of DOUBLE": ("d", "bins := [i + i % 3 * 0.1 for i in range({cells} + 1)]", "floor(d)"),
}
"""Column, declaration, and the plain expression to group by."""


@pytest.mark.parametrize("cells", [1_000, 10_000, 1_000_000])
@pytest.mark.parametrize("kind", HISTOGRAMS)
def test_a_histogram(
    benchmark: BenchmarkFixture, ledger: str, report: Callable[[str], None], kind: str, cells: int
) -> None:
    column, declared, grouped = HISTOGRAMS[kind]
    con = duckdb.connect()
    con.execute(
        f"CREATE TABLE h AS SELECT x AS d, x::DECIMAL(12, 3) AS m, floor(x)::INTEGER AS i "
        f"FROM (SELECT random() * {cells} AS x FROM range(10_000_000))"
    )
    duckdb_dp.load(con, ledger)
    con.execute("CALL dp_protect('h', rho := 1e9, delta := 1e-9)")
    domain = declared.format(cells=cells, last=cells - 1)
    declaring = seconds(lambda: con.execute(f"CALL dp_attribute('h', '{column}', {domain})").fetchall(), 1)
    question = f"SELECT sum(count) FROM dp_marginals('h', ['{column}'], rho := 1, fresh := true)"
    con.execute(question).fetchall()
    plain = seconds(lambda: con.execute(f"SELECT {grouped} AS g, count(*) FROM h GROUP BY g").fetchnumpy(), 3)
    benchmark.pedantic(lambda: con.execute(question).fetchall(), rounds=3)
    ratio = benchmark.stats.stats.min / plain
    benchmark.extra_info["ratio to GROUP BY"] = ratio
    beside = f"{ratio:.2f} x the plain GROUP BY"
    if kind.startswith("uneven"):  # which floor() does not find: plain SQL joins them
        con.execute(f"CREATE TABLE edges AS SELECT i + i % 3 * 0.1 AS low, i FROM range({cells + 1}) r(i)")
        joined = "SELECT edges.i AS g, count(*) FROM h ASOF JOIN edges ON d >= low GROUP BY g"
        beside += f" by floor = {benchmark.stats.stats.min / seconds(lambda: con.execute(joined).fetchnumpy(), 3):.2f} x an ASOF JOIN"
    report(
        f"{cells:,} {kind}, 10,000,000 rows: {benchmark.stats.stats.min:.2f} s = {beside}, "
        f"declared in {declaring:.2f} s"
    )


@pytest.mark.parametrize("max_rows", [1, 3, 20])
@pytest.mark.parametrize("unit", ["number", "text"])
def test_bounding_units(
    benchmark: BenchmarkFixture, ledger: str, report: Callable[[str], None], unit: str, max_rows: int
) -> None:
    """Against a window over the unit as it is, which does not tell texts apart that a collation makes equal."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE v AS SELECT n AS number, 'user_' || n AS text, a FROM "
        "(SELECT hash(i) % 500_000 AS n, (i * 7 % 10)::INTEGER AS a FROM range(5_000_000) r(i))"
    )
    duckdb_dp.load(con, ledger)
    con.execute(f"CALL dp_protect('v', unit := '{unit}', max_rows := {max_rows}, rho := 1e9)")
    con.execute("CALL dp_attribute('v', 'a', low := 0, high := 9)")
    question = "SELECT sum(count) FROM dp_marginals('v', ['a'], rho := 1, fresh := true)"
    con.execute(question).fetchall()
    window = (
        f"SELECT a, count(*) FROM (SELECT a FROM v WHERE {unit} IS NOT NULL "
        f"QUALIFY row_number() OVER (PARTITION BY {unit} ORDER BY hash('k', {unit}, a), a) <= {max_rows}) GROUP BY a"
    )
    plain = seconds(lambda: con.execute(window).fetchall(), 3)
    benchmark.pedantic(lambda: con.execute(question).fetchall(), rounds=3)
    ratio = benchmark.stats.stats.min / plain
    benchmark.extra_info["ratio to a plain window"] = ratio
    report(
        f"units that are {unit}s, {max_rows} rows of each, 5,000,000 rows: {benchmark.stats.stats.min:.2f} s = "
        f"{ratio:.2f} x a plain window"
    )
