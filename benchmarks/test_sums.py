"""Sums over rows and quantiles in dp_sql against the same SELECT in plain DuckDB, in one run."""

from collections.abc import Callable

import duckdb
import pytest
from common import seconds
from pytest_benchmark.fixture import BenchmarkFixture

import duckdb_dp

ROWS = 5_000_000
TABLE = f"""
CREATE TABLE sales AS SELECT (i * 7919 % 200_000)::INTEGER AS customer, (i % 12)::INTEGER AS region,
    (i * 104_729 % 50_000 / 100)::DOUBLE AS amount, DATE '2023-01-01' + (i % 730)::INTEGER AS day, 'city ' || i % 500 AS city,
    exp(i * 7919 % 100_000 / 12_000) AS price
FROM range({ROWS}) t(i)
"""
SELECTS = {
    "averages by region": "SELECT region, count(*) AS n, avg(amount) AS m FROM sales GROUP BY region",
    "a condition on a text": "SELECT sum(amount) AS s FROM sales WHERE city LIKE '%7'",
    "revenue by month": "SELECT date_trunc('month', day) AS month, sum(amount) AS s FROM sales GROUP BY month",
    "bounds that are chosen": "SELECT region, sum(price) AS s FROM sales GROUP BY region",
    "medians of a declared number": "SELECT region, median(amount) AS m FROM sales GROUP BY region",
    "medians of an undeclared number": "SELECT region, median(price) AS m FROM sales GROUP BY region",
    "cities by region": "SELECT region, count(DISTINCT city) AS n FROM sales GROUP BY region",
    "customers by region": "SELECT region, count(DISTINCT customer) AS n FROM sales GROUP BY region",
}


@pytest.mark.parametrize("unit", ["", ", unit := 'customer', max_rows := 40"], ids=["rows", "customers"])
@pytest.mark.parametrize("name", SELECTS)
def test_sums(benchmark: BenchmarkFixture, ledger: str, report: Callable[[str], None], name: str, unit: str) -> None:
    if "DISTINCT customer" in SELECTS[name] and not unit:
        pytest.skip("each row is a unit")
    con = duckdb.connect()
    con.execute(TABLE)
    duckdb_dp.load(con, ledger, progress=False)
    con.execute(
        f"CALL dp_protect('sales', rho := 1e6{unit}); CALL dp_attribute('sales', 'region', low := 0, high := 11)"
    )
    con.execute("CALL dp_attribute('sales', 'amount', low := 0, high := 500, step := 50)")
    con.execute(
        "CALL dp_attribute('sales', 'day', low := DATE '2023-01-01', high := DATE '2024-12-30', step := INTERVAL 1 DAY)"
    )
    asked = SELECTS[name].replace("'", "''")
    question = f"FROM dp_sql('{asked}', rho := 1, fresh := true)"
    con.execute(question).fetchall()
    plain = seconds(lambda: con.execute(SELECTS[name]).fetchall(), 3)
    benchmark.pedantic(lambda: con.execute(question).fetchall(), rounds=3)
    ratio = benchmark.stats.stats.min / plain
    benchmark.extra_info["ratio to the plain SELECT"] = ratio
    report(
        f"{name}, {'customers' if unit else 'rows'}: {benchmark.stats.stats.min:.2f} s = {ratio:.1f} x the plain SELECT"
    )
