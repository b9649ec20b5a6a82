"""What stands above the aggregates of dp_sql: DuckDB's own work on noisy answers, charged once, and reading nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE orders AS
SELECT i AS id, ['north', 'south', 'east', 'west'][1 + i % 4] AS region, ['a', 'b', 'c'][1 + (i * 7 // 5) % 3] AS kind,
    (i * 37) % 100 AS amount, DATE '2024-01-01' + ((i * 11) % 366)::INTEGER AS day, CASE WHEN i % 9 > 0 THEN (i * 13) % 50 END AS fee
FROM range(1, 800) t(i);
CREATE TABLE regions AS FROM (VALUES ('north', 'N', 1000), ('south', 'S', 2000), ('west', 'W', 500)) t(region, code, people);
CREATE TABLE secrets AS SELECT 42 AS s;
CREATE TABLE people AS SELECT i AS id, i % 10 AS boss FROM range(100) t(i);
"""
DECLARED = """
CALL dp_protect('orders', epsilon := 1000, delta := 1e-9);
CALL dp_attribute('orders', 'region', "values" := ['north', 'south', 'east', 'west']);
CALL dp_attribute('orders', 'kind', "values" := ['a', 'b', 'c']);
CALL dp_attribute('orders', 'amount', low := 0, high := 99);
CALL dp_attribute('orders', 'day', low := '2024-01-01', high := '2024-12-31');
CALL dp_protect('people', unit := 'boss', max_rows := 10, epsilon := 10, delta := 1e-9);
CALL dp_public('regions');
"""
BY_REGION = "SELECT region, count(*) AS n FROM orders GROUP BY region"

STATEMENTS = [
    "SELECT region, count(*) AS n, rank() OVER (ORDER BY count(*) DESC, region) AS r FROM orders GROUP BY region QUALIFY r <= 3",
    "SELECT region, count(*) AS n, sum(count(*)) OVER () AS total, n / total AS share FROM orders GROUP BY region",
    "SELECT region, kind, count(*) AS n, 100 * count(*) / sum(count(*)) OVER (PARTITION BY region) AS pct FROM orders GROUP BY 1, 2",
    "SELECT month(day) AS m, count(*) AS n, count(*) - lag(count(*)) OVER (ORDER BY month(day)) AS more FROM orders GROUP BY 1",
    "SELECT date_trunc('month', day) AS m, sum(amount) AS s, sum(sum(amount)) OVER (ORDER BY date_trunc('month', day)) AS upto FROM orders GROUP BY m",
    "SELECT region, avg(amount) AS mean, row_number() OVER w AS place FROM orders GROUP BY region WINDOW w AS (ORDER BY avg(amount)) ORDER BY place",
    "SELECT region, 100.0 * count(*) / (SELECT count(*) FROM orders) AS pct FROM orders GROUP BY region",
    "SELECT region, count(*) AS n FROM orders GROUP BY region HAVING count(*) > (SELECT count(*) / 5 FROM orders)",
    f"{BY_REGION} UNION ALL SELECT 'all', count(*) FROM orders",
    f"{BY_REGION} UNION ALL BY NAME SELECT count(*) AS n FROM orders ORDER BY n DESC",
    "SELECT 'orders' AS what, count(*) AS n FROM orders UNION SELECT 'large', count(*) FROM orders WHERE amount > 50",
    f"SELECT max(n) AS most, min(n) AS least, avg(n) AS mean, string_agg(region, ',' ORDER BY region) AS which FROM ({BY_REGION})",
    f"SELECT * FROM ({BY_REGION}) WHERE n > 100 ORDER BY n DESC, region LIMIT 2",
    f"FROM ({BY_REGION}) ORDER BY region LIMIT 1 OFFSET 2",
    f"WITH t AS ({BY_REGION}) SELECT region, n FROM t WHERE n >= (SELECT avg(n) FROM t)",
    f"WITH t AS ({BY_REGION}), u AS (SELECT region, n, n * 2 AS twice FROM t) SELECT u.*, twice - n AS n2 FROM u",
    f"WITH t AS ({BY_REGION}) SELECT t.region, r.code, 1000.0 * n / people AS rate FROM t JOIN regions r USING (region)",
    f"WITH t AS ({BY_REGION}) SELECT * FROM t LEFT JOIN regions USING (region) ORDER BY region",
    f"WITH t AS ({BY_REGION}) SELECT code FROM regions r WHERE EXISTS (SELECT 1 FROM t WHERE t.region = r.region AND n > 100)",
    "WITH a AS (SELECT region, count(*) AS n FROM orders WHERE kind = 'a' GROUP BY 1), b AS (SELECT region, count(*) AS n FROM orders "
    "WHERE kind = 'b' GROUP BY 1) SELECT region, a.n AS na, b.n AS nb, round(100 * a.n / b.n, 2) AS ratio FROM a JOIN b USING (region)",
    f"SELECT region, CASE WHEN n > 199.5 THEN 'large' WHEN n > 10 THEN 'small' ELSE 'none' END AS size FROM ({BY_REGION})",
    f"SELECT upper(region) AS r, round(n, -2) AS about, n::INTEGER AS whole FROM ({BY_REGION}) ORDER BY about DESC, r",
    "SELECT DISTINCT kind, count(*) AS n FROM orders GROUP BY kind",
    "SELECT region, count(*) AS n FROM orders GROUP BY region ORDER BY rank() OVER (ORDER BY count(*) DESC, region)",
    "SELECT kind, sum(n) AS n FROM (SELECT region, kind, count(*) AS n FROM orders GROUP BY region, kind) GROUP BY kind HAVING sum(n) > 1",
    "SELECT region, kind, n FROM (SELECT region, kind, count(*) AS n, row_number() OVER (PARTITION BY region ORDER BY count(*) DESC, kind) "
    "AS place FROM orders GROUP BY region, kind) WHERE place = 1",
    "WITH months AS (SELECT month(day) AS m, count(*) AS n FROM orders GROUP BY m) SELECT m, n, avg(n) OVER (ORDER BY m ROWS BETWEEN 1 "
    "PRECEDING AND 1 FOLLOWING) AS smooth, ntile(4) OVER (ORDER BY n, m) AS quarter FROM months",
    "WITH orders AS (SELECT region, count(*) AS n FROM main.orders GROUP BY region) SELECT sum(n) AS n FROM orders",
    "SELECT kind, count(*) AS n, (SELECT count(*) FROM orders) AS total FROM orders GROUP BY kind ORDER BY n",
    "SELECT * FROM (SELECT kind, count(*) AS n, (SELECT count(*) FROM orders WHERE kind = 'a') AS a FROM orders GROUP BY kind) WHERE n > 2",
    "SELECT (SELECT count(*) FROM orders WHERE kind = 'a') AS a, (SELECT count(*) FROM orders WHERE kind = 'b') AS b",
    f"SELECT v.name, t.n FROM (VALUES ('north', 'Nord'), ('east', 'Ost')) AS v(region, name) JOIN ({BY_REGION}) t ON t.region = v.region",
    f"SELECT region, n FROM ({BY_REGION}) EXCEPT SELECT 'north', 0",
    "SELECT x.kind, x.n, y.n AS rich FROM (SELECT kind, count(*) AS n FROM orders GROUP BY kind) x, (SELECT kind, count(*) AS n FROM orders "
    "WHERE amount > 50 GROUP BY kind) y WHERE x.kind = y.kind",
    "SELECT kind, GROUPING(kind) AS g, sum(n) AS n FROM (SELECT region, kind, count(*) AS n FROM orders GROUP BY ALL) GROUP BY ROLLUP (kind)",
    "SELECT region, avg(fee) AS fee, avg(fee) > 20 AS dear, count(*) OVER () AS rows FROM orders WHERE fee BETWEEN 0 AND 50 GROUP BY region",
    f"SELECT * EXCLUDE (region), region FROM ({BY_REGION})",
    "SELECT sum(list_sum) AS n FROM (SELECT sum(amount) AS list_sum FROM orders)",
    "SELECT region, count(*) AS n FROM orders GROUP BY region ORDER BY ALL",
    "SELECT region FROM orders GROUP BY region HAVING count(*) > 199.5",
]  # fmt: skip


def made(folder: Path, exact: bool) -> Loaded:
    connection = duckdb.connect()
    connection.execute(TABLES)
    if exact:
        duckdb_dp.testing.load_exact(connection, folder)
    else:
        duckdb_dp.testing.load(connection, folder, seed=3)
    loaded = Loaded(connection, folder)
    for statement in DECLARED.strip().split(";\n"):
        loaded(statement)
    return loaded


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    loaded = made(tmp_path_factory.mktemp("above") / "l.dp", True)
    yield loaded
    loaded.connection.close()


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    loaded = made(tmp_path_factory.mktemp("noisy") / "l.dp", False)
    yield loaded
    loaded.connection.close()


def plain(value: Any) -> Any:
    return round(float(value), 2) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


@pytest.mark.some(3)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_without_noise_it_is_what_duckdb_says(exact: Loaded, statement: str) -> None:
    """And it is charged once, however many SELECTs are below."""
    epsilon, charges = 1 + STATEMENTS.index(statement) / 100, exact.charges()
    call = "FROM dp_sql(?, epsilon := ?)"
    asked = exact.connection.execute(call, [statement, epsilon])
    names = [column[0] for column in asked.description or []]
    found = asked.fetchall()
    assert exact.charges() == charges + 1
    truth = exact.connection.execute(statement)
    own = [column[0] for column in truth.description or []]
    assert [name for name in names if name in own] == own
    shown = [[plain(row[names.index(name)]) for name in own] for row in found]
    expected = [[plain(value) for value in row] for row in truth.fetchall()]
    if "ORDER BY" not in statement.rsplit(")", 1)[-1]:
        shown, expected = sorted(shown, key=str), sorted(expected, key=str)
    assert shown == expected
    assert sorted(exact(call, [statement, epsilon]), key=str) == sorted(found, key=str)
    assert exact.charges() == charges + 1


def errors(loaded: Loaded, statement: str) -> set[str]:
    return {
        name for name, _ in loaded.columns(f"FROM dp_sql($${statement}$$, epsilon := 1)") if name.endswith("stddev")
    }


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        (STATEMENTS[0], {"n_stddev"}),
        (STATEMENTS[6], {"stddev"}),
        (STATEMENTS[8], {"stddev"}),
        (STATEMENTS[11], set()),
        (STATEMENTS[15], {"n_stddev", "twice_stddev", "n2_stddev"}),
        (STATEMENTS[19], {"na_stddev", "nb_stddev", "ratio_stddev"}),
        (STATEMENTS[24], set()),
    ],
)
def test_what_passes_through_keeps_its_error(exact: Loaded, statement: str, columns: set[str]) -> None:
    assert errors(exact, statement) == columns


SHARES = f"WITH t AS ({BY_REGION}) SELECT"
NAMED = [
    (f"{SHARES} region, n FROM t", "region n stddev ci_low ci_high"),
    (f"{SHARES} upper(region) AS r, 1 AS one, n AS m FROM t", "r one m stddev ci_low ci_high"),
    (f"{SHARES} region, n, 100 * n / sum(n) OVER () AS pct FROM t", "region n n_stddev n_ci_low n_ci_high pct"),
    (f"{SHARES} region, 100 * n / sum(n) OVER () AS pct, n FROM t", "region pct n n_stddev n_ci_low n_ci_high"),
    (f"{SHARES} region, n, rank() OVER (ORDER BY n) AS r FROM t", "region n n_stddev n_ci_low n_ci_high r"),
    (f"{SHARES} region, n, CASE WHEN n > 3 THEN 'many' END AS w FROM t", "region n n_stddev n_ci_low n_ci_high w"),
    (f"{SHARES} region, 100 * n / sum(n) OVER () AS pct FROM t", "region pct"),
    (f"{SHARES} region, n, 2 * n AS m FROM t", "region n n_stddev n_ci_low n_ci_high m m_stddev m_ci_low m_ci_high"),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("statement", "columns"), NAMED)
def test_an_error_says_whose_it_is(exact: Loaded, statement: str, columns: str) -> None:
    """It has no prefix only where nothing else is worked out of answers, which it might be taken for."""
    found = [name for name, _ in exact.columns(f"FROM dp_sql($${statement}$$, epsilon := 1)")]
    assert found == [*columns.split(), "private"]
    both = f"FROM dp_sql([$${statement}$$, $${BY_REGION}$$], epsilon := 1)"
    names = [name for name, _ in exact.columns(both)]
    assert {name for name in names if name.endswith("stddev")} >= {
        name for name in columns.split() if name.endswith("_stddev")
    }


@pytest.mark.some(3)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_error_follows_its_column(exact: Loaded, statement: str) -> None:
    names = [name for name, _ in exact.columns(f"FROM dp_sql($${statement}$$, epsilon := 1)")]
    assert all(names)
    assert len({name.lower() for name in names}) == len(names)
    for place, name in enumerate(names):
        if name.endswith("_stddev"):
            assert names[place - 1] == name.removesuffix("_stddev")


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("statement", "word"),
    [
        (f"WITH t AS ({BY_REGION}) SELECT m FROM t", "m"),
        (f"WITH t AS ({BY_REGION}) SELECT n + region::DATE FROM t", "DATE"),
        (f"WITH t AS ({BY_REGION}) SELECT t.*, (SELECT max(amount) FROM orders) AS x FROM t", "quantile"),
        (f"WITH t AS ({BY_REGION}) SELECT * FROM t, secrets", "secrets"),
        (f"WITH t AS ({BY_REGION}) SELECT (SELECT s FROM secrets) + n FROM t", "secrets"),
        (f"WITH t AS ({BY_REGION}) SELECT * FROM t, orders", "orders"),
        (f"WITH t AS ({BY_REGION}) SELECT * FROM t UNION ALL SELECT region, amount FROM orders", "rows"),
        (f"WITH t AS ({BY_REGION}) SELECT * FROM t, read_csv('x.csv')", "read_csv"),
        (f"WITH t AS ({BY_REGION}) SELECT * FROM t, 'x.csv'", "x.csv"),
        (f"WITH t AS ({BY_REGION}) SELECT * FROM t, query('FROM orders')", "query"),
        (f"WITH t AS ({BY_REGION}) SELECT n, getvariable('v') FROM t", "getvariable"),
        (f"WITH t AS ({BY_REGION}) SELECT n, current_setting('threads') FROM t", "current_setting"),
        (f"WITH t AS ({BY_REGION}) SELECT n * random() FROM t", "random"),
        (f"WITH t AS ({BY_REGION}) SELECT leak(n) FROM t", "leak"),
        (f"WITH t AS ({BY_REGION}) PIVOT t ON region USING sum(n)", "SELECT"),
        (f"WITH RECURSIVE t AS ({BY_REGION}) SELECT * FROM t", "RECURSIVE"),
        (f"WITH _dp_answer0 AS ({BY_REGION}) SELECT * FROM _dp_answer0", "_dp_"),
        (f"SELECT * FROM ({BY_REGION}) t, (WITH u AS (SELECT 1 AS x) FROM u) v, u", "u"),
        ("WITH t AS (SELECT boss, count(*) AS n FROM people GROUP BY boss) SELECT * FROM t", ""),
        ("SELECT region, amount, rank() OVER (ORDER BY count(*)) AS r FROM orders GROUP BY region", "GROUP BY"),
        (f"SELECT * FROM ({BY_REGION}) TABLESAMPLE 10%", "sample"),
        (f"SELECT region, n::mytype FROM ({BY_REGION})", "mytype"),
        (f"WITH t AS ({BY_REGION}) SELECT * FROM t, (SELECT boss % 2, count(*) FROM people GROUP BY ALL)", ""),
    ],
)  # fmt: skip
def test_nothing_else_is_read(noisy: Loaded, statement: str, word: str) -> None:
    noisy("CREATE OR REPLACE MACRO leak(n) AS n + (SELECT max(amount) FROM orders)")
    assert word in noisy.refused("FROM dp_sql(?, epsilon := 0.5)", [statement])


@pytest.mark.slow
def test_a_macro_in_place_of_a_function_is_not_used(tmp_path: Path) -> None:
    loaded = made(tmp_path / "l.dp", False)
    loaded("CREATE TEMP MACRO upper(x) AS x || (SELECT max(amount) FROM orders)")
    asked = f"SELECT upper(region) || '!' AS r, n FROM ({BY_REGION})"
    assert {row[0] for row in loaded("FROM dp_sql(?, epsilon := 1)", [asked])} == {"NORTH!", "SOUTH!", "EAST!", "WEST!"}
    loaded('CREATE TEMP MACRO "||"(x, y) AS (SELECT max(amount) FROM orders)')
    assert "macro '||'" in loaded.refused("FROM dp_sql(?, epsilon := 1, fresh := true)", [asked])


def test_the_price_is_that_of_the_selects_below(noisy: Loaded) -> None:
    """dp_explain shows them, and what stands above is checked there too."""
    asked = f"WITH t AS ({BY_REGION}) SELECT region, n / (SELECT sum(n) FROM t) AS share FROM t"
    (row,) = noisy("SELECT cells, round(stddev) FROM dp_explain('orders', ?, epsilon := 1)", [asked])
    assert row == noisy("SELECT cells, round(stddev) FROM dp_explain('orders', ?, epsilon := 1)", [BY_REGION])[0]


@pytest.mark.slow
@pytest.mark.parametrize("place", [6, 9, 19])
def test_intervals_hold_the_truth(tmp_path: Path, place: int) -> None:
    """At least 92 in 100 of all intervals: errors to first order are at least those of the noise."""
    loaded = made(tmp_path / "l.dp", False)
    inside = total = 0
    statement = STATEMENTS[place].replace("round(100 * a.n / b.n, 2)", "100 * a.n / b.n")
    shown = loaded.connection.execute(statement)
    own = [column[0] for column in shown.description or []]
    truth = {row[own.index("region")]: row for row in shown.fetchall()}
    for _ in range(20):
        asked = loaded.connection.execute("FROM dp_sql(?, epsilon := 3, fresh := true)", [statement])
        names = [column[0] for column in asked.description or []]
        for row in asked.fetchall():
            true = truth[row[names.index("region")]]
            for name in [name for name in own if name != "region"]:
                low, high = (f"{name}_{end}" if f"{name}_{end}" in names else end for end in ("ci_low", "ci_high"))
                total += 1
                inside += row[names.index(low)] <= float(true[own.index(name)]) <= row[names.index(high)]
    assert inside >= 0.92 * total
