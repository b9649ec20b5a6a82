"""GROUP BY of expressions over undeclared columns, refusals of aggregates, and the page of ClickBench."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from benchmarks.accuracy import clickbench
from tests.conftest import Loaded

LOG = """
CREATE TABLE log AS SELECT i AS id, i % 400 AS person, TIMESTAMP '2024-01-01' + to_minutes((i * 37) % 100000) AS ts,
    'http://www.site' || (i % 4) || '.com/p' || i AS url, (i * 7) % 90 AS age, CASE WHEN i % 10 > 0 THEN i % 3 END AS kind
FROM range(2000) t(i)
"""
SELECTS = [
    "SELECT hour(ts) AS g, count(*) AS n FROM log GROUP BY g",
    "SELECT extract(dow FROM ts) AS g, count(*) AS n, sum(age) AS s FROM log WHERE age BETWEEN 0 AND 90 GROUP BY 1",
    "SELECT monthname(ts) AS g, count(*) AS n FROM log GROUP BY monthname(ts)",
    "SELECT age >= 18 AS g, count(*) AS n FROM log GROUP BY g",
    "SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'mid' END AS g, count(*) AS n FROM log GROUP BY g",
    "SELECT url LIKE '%site1%' AS g, count(DISTINCT person) AS n FROM log GROUP BY g",
    "SELECT regexp_extract(url, 'site[0-9]') AS g, count(*) AS n FROM log GROUP BY g",
    "SELECT date_trunc('month', ts) AS g, count(*) AS n FROM log GROUP BY g",
    "SELECT strftime(ts, '%Y-%m') AS g, kind IS NULL AS h, count(*) AS n FROM log GROUP BY ALL",
    "SELECT age // 30 AS g, count(*) AS n, rank() OVER (ORDER BY count(*) DESC, age // 30) AS r FROM log GROUP BY g",
    "SELECT 1 AS one, hour(ts) AS g, count(*) AS n FROM log GROUP BY 1, g",
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with duckdb.connect() as connection:
        connection.execute(LOG)
        folder = tmp_path_factory.mktemp("computed") / "l.dp"
        duckdb_dp.testing.load_exact(connection, folder)
        loaded = Loaded(connection, folder)
        loaded(
            "CALL dp_protect('log', unit := 'person', max_rows := 5, epsilon := 1000, delta := 1e-9, discovery_delta := 5e-10)"
        )
        yield loaded


@pytest.mark.some(2)
@pytest.mark.parametrize("select", SELECTS)
def test_groups_are_those_of_the_expression(log: Loaded, select: str) -> None:
    """All that are not empty, each with DuckDB's own numbers; the same call is free."""
    epsilon = 3 + SELECTS.index(select) / 100
    names = [name for name, _ in log.columns(select)]
    asked = f"SELECT {', '.join(names)} FROM dp_sql(?, epsilon := ?) WHERE n > 0.5"

    def shown(rows: list[tuple[object, ...]]) -> set[tuple[str, ...]]:
        return {tuple(str(round(x)) if isinstance(x, float) else str(x) for x in row) for row in rows}

    found = shown(log(asked, [select, epsilon]))
    charges = log.charges()
    assert found == shown(log(select))
    assert shown(log(asked, [select, epsilon])) == found
    assert log.charges() == charges


MEMBERS = [
    "SELECT hour(ts) AS g, count(*) AS n FROM log GROUP BY g",
    "SELECT extract('month' FROM l.ts) AS g, p.even AS h, count(*) AS n FROM log AS l JOIN people AS p USING (person) GROUP BY ALL",
    "SELECT dayname(ts) AS g, sum(age) AS n FROM log WHERE age BETWEEN 0 AND 90 GROUP BY 1",
    "SELECT CASE WHEN age > 60 THEN 'old' ELSE 'young' END AS g, count(*) AS n FROM log GROUP BY ALL",
    "SELECT age > 60 AS g, count(*) AS n FROM log AS l SEMI JOIN people AS p USING (person) GROUP BY ALL",
]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people (person INTEGER PRIMARY KEY, even BOOLEAN)")
        connection.execute("INSERT INTO people SELECT i, i % 2 = 0 FROM range(400) t(i)")
        connection.execute(
            "CREATE TABLE log (id INTEGER PRIMARY KEY, person INTEGER REFERENCES people (person), ts TIMESTAMP, age INTEGER)"
        )
        connection.execute(
            "INSERT INTO log SELECT i, i % 400, TIMESTAMP '2024-01-01' + to_minutes((i * 37) % 100000), (i * 7) % 90 FROM range(2000) t(i)"
        )
        folder = tmp_path_factory.mktemp("members") / "l.dp"
        duckdb_dp.testing.load_exact(connection, folder)
        loaded = Loaded(connection, folder)
        loaded(
            "CALL dp_protect(['people', 'log'], unit := 'people.person', max_rows := {'log': 5}, epsilon := 1000, delta := 1e-9)"
        )
        loaded("CALL dp_attribute('log', 'age', bins := [0, 18, 65, 90])")
        yield loaded


@pytest.mark.parametrize("select", MEMBERS)
def test_groups_of_a_family_that_the_text_states_need_no_declaration(members: Loaded, select: str) -> None:
    """Also where a column is declared in bins that do not decide the expression."""
    names = ", ".join(name for name, _ in members.columns(select))
    found = members(f"SELECT {names} FROM dp_sql(?, epsilon := ?) WHERE n > 0.5", [select, 9 + MEMBERS.index(select)])
    assert {(*row[:-1], round(row[-1])) for row in found} == {(*row[:-1], round(row[-1])) for row in members(select)}


def test_a_person_is_no_group(log: Loaded) -> None:
    assert "what one person adds is never shown" in log.refused(
        "FROM dp_sql('SELECT person, count(*) FROM log GROUP BY 1', epsilon := 1)"
    )
    assert "lists people's rows" in log.refused("FROM dp_sql('SELECT url FROM log LIMIT 3', epsilon := 1)")


@pytest.mark.slow
def test_every_aggregate_of_duckdb_is_answered_or_refused_with_what_works(log: Loaded) -> None:
    """By DuckDB's own catalogue."""
    names = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate' ORDER BY 1"
    for (name,) in log(names):
        for arguments in ("age", "age, kind", "age, 0.5", "url"):
            try:
                log.connection.execute(f"SELECT {name}({arguments}) FROM log").fetchall()
            except duckdb.Error:
                continue  # it takes something else
            try:
                log(f"SELECT count(*) FROM dp_sql('SELECT {name}({arguments}) AS a FROM log', epsilon := 0.01)")
            except duckdb.Error as error:
                text = str(error).split("\n")[0]
                assert (
                    "ask" in text or "quantiles are of numbers" in text or "takes" in text or "only numbers" in text
                ), text


@pytest.mark.slow
def test_the_page_of_clickbench_is_true() -> None:
    page = Path(clickbench.__file__).parents[2] / "docs" / "clickbench.md"
    assert page.read_text() == clickbench.page()


@pytest.mark.slow
def test_what_helps_with_years_of_undeclared_moments(exact: Loaded) -> None:
    exact(
        "CREATE TABLE t AS SELECT TIMESTAMP '2020-01-01' + to_days(i) AS ts, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS tz FROM range(900) r(i)"
    )
    exact("CALL dp_protect('t', mu := 9)")
    for key in ("year(ts)", "date_trunc('year', ts)"):
        refused = exact.refused("FROM dp_sql(?, mu := 1)", [f"SELECT {key} AS y, count(*) AS n FROM t GROUP BY y"])
        assert 'WHERE year("ts") BETWEEN 2020 AND 2025 GROUP BY year("ts")' in refused
    asked = 'SELECT year(ts) AS y, count(*) AS n FROM t WHERE year("ts") BETWEEN 2020 AND 2025 GROUP BY year("ts")'
    assert exact("SELECT y, round(n) FROM dp_sql(?, mu := 1) WHERE n > 0.5", [asked]) == [
        (2020, 366),
        (2021, 365),
        (2022, 169),
    ]
    assert "year(" not in exact.refused("FROM dp_sql('SELECT ts, count(*) FROM t GROUP BY ts', mu := 1)")
    for select in ("SELECT year(tz) AS y, count(*) FROM t GROUP BY y", "SELECT avg(year(tz)) FROM t"):
        assert "AT TIME ZONE 'UTC'" in exact.refused("FROM dp_sql(?, mu := 1)", [select])
