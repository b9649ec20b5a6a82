"""lag, lead and first_value of a column have the values of that column, or NULL: groups and bounds need no further declaration."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again

TABLES = """
CREATE TABLE wards (ward_id INTEGER PRIMARY KEY, name VARCHAR); INSERT INTO wards SELECT i, 'w' || i FROM range(5) t(i);
CREATE TABLE patients (id INTEGER PRIMARY KEY); INSERT INTO patients FROM range(200);
CREATE TABLE stays (stay INTEGER PRIMARY KEY, id INTEGER NOT NULL REFERENCES patients (id), ward_id INTEGER REFERENCES wards (ward_id),
    kind VARCHAR, score INTEGER, day DATE, cost DOUBLE, flag BOOLEAN);
INSERT INTO stays SELECT i, i % 200, [i * i % 4, NULL][1 + (i % 11 = 0)::INTEGER], ['a', 'b', NULL][1 + i % 3], i % 6, DATE '2024-01-01' + (i % 5)::INTEGER,
    i % 40, i % 2 = 0 FROM range(600) t(i);
"""
DECLARED = """
CALL dp_protect(['patients', 'stays'], unit := 'patients.id', max_rows := {'stays': 3}, epsilon := 1e8, delta := 1e-9);
CALL dp_public('wards');
CALL dp_attribute('stays', 'kind', "values" := ['a', 'b'], nulls := true);
CALL dp_attribute('stays', 'score', low := 0, high := 5);
CALL dp_attribute('stays', 'day', low := DATE '2024-01-01', high := DATE '2024-01-05');
CALL dp_attribute('stays', 'cost', low := 0, high := 40, step := 10);
CALL dp_attribute('stays', 'flag')
"""
COLUMNS = ["kind", "score", "day", "flag", "ward_id", "name"]
WINDOWS = ["lag({0})", "lead({0})", "lag({0}, 2)", "first_value({0})"]


def opened(folder: Path) -> Loaded:
    connection = duckdb.connect()
    connection.execute(TABLES)
    duckdb_dp.testing.load_exact(connection, folder / "stays.dp")
    found = Loaded(connection, folder / "stays.dp")
    found(DECLARED)
    return found


@pytest.fixture(scope="module")
def stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = opened(tmp_path_factory.mktemp("stays"))
    yield found
    found.connection.close()


def grouped(window: str, column: str) -> str:
    source = "stays JOIN wards USING (ward_id)" if column == "name" else "stays"
    inner = f"SELECT {window.format(column)} OVER (PARTITION BY id ORDER BY stay) AS g FROM {source}"
    return f"SELECT g, count(*) AS n FROM ({inner}) GROUP BY g"


@pytest.mark.some(3)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("column", COLUMNS)
def test_groups_are_the_values_of_the_column_and_null(stays: Loaded, column: str, window: str) -> None:
    select = grouped(window, column)
    answer = [(g, n) for g, n, *_ in stays("FROM dp_sql(?, epsilon := 1e4)", [select]) if n]
    assert sorted(answer, key=str) == sorted([(g, float(n)) for g, n in stays(select)], key=str)


def test_bounds_are_those_of_the_column(stays: Loaded) -> None:
    inner = "SELECT cost, lag(cost) OVER (PARTITION BY id ORDER BY stay) AS before FROM stays"
    for value, bound in (("sum(before)", 40), ("sum(cost - before)", 40)):
        select = f"SELECT {value} AS s FROM ({inner})"
        ((found, stddev),) = stays("SELECT s, stddev FROM dp_sql(?, mu := 1)", [select])
        assert found == pytest.approx(stays(select)[0][0], abs=1)
        assert stddev == pytest.approx(3 * bound, rel=0.05)


@pytest.mark.parametrize("window", ["lag({0}, 1, 9)", "max({0})"])
def test_other_values_are_not_known(stays: Loaded, window: str) -> None:
    assert "not public" in stays.refused("FROM dp_sql(?, epsilon := 1)", [grouped(window, "ward_id")])


@pytest.mark.some(1)
@pytest.mark.parametrize("column", ["kind", "score", "cost"])
def test_what_was_answered_before_is_found_again(tmp_path: Path, column: str) -> None:
    found = opened(tmp_path)
    inner = f"SELECT id, {column}, lag({column}) OVER (PARTITION BY id ORDER BY stay) AS before FROM stays"
    value = "avg(before)" if column != "kind" else "count(before)"
    where = "WHERE before IN ('a', 'b') GROUP BY before" if column == "kind" else ""
    check_found_again(found, f"SELECT {value} AS v FROM ({inner}) {where}", 5)
