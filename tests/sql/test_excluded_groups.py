"""Groups that conditions exclude are not shown: keys of public tables, and listed values of expressions, NULL among them."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql import some_visits
from tests.sql.earlier_forms import check_found_again
from tests.sql.test_public_references import opened

KEYS = {
    "movie_id": (
        "{0} > 8", "{0} < 3", "7 <= {0}", "{0} = 3", "{0} <> 3", "{0} BETWEEN 2 AND 4", "{0} IN (2, 4)", "NOT {0} IN (2, 4)", "{0} IS NOT NULL",
        "{0} = 3 OR {0} > 9", "NOT ({0} > 8 OR {0} < 3)", "{0} % 2 = 0", "CAST({0} AS VARCHAR) LIKE '1%'", "{0} > 4 AND {0} < 9 AND stars > 0",
    ),
    "land": (
        "{0} > 'm'", "{0} = 'no'", "{0} <> 'no'", "{0} IN ('no', 'it')", "{0} LIKE 'n%'", "NOT {0} LIKE '%p%'", "{0} IS NOT NULL",
        "{0} IS NOT NULL AND {0} <> 'jp'", "length({0}) = 2", "{0} = 'no' OR {0} LIKE 'p_'", "upper({0}) = 'PE'",
    ),
}  # fmt: skip
PUBLIC = {"movie_id": "(SELECT movie_id, 1 AS stars FROM movies)", "land": "(SELECT code AS land FROM lands)"}
FROM = (
    "SELECT {0} AS g, count(*) AS n FROM ratings WHERE {1} GROUP BY {0}",
    "SELECT {0} AS g, sum(r.stars) AS n FROM ratings r JOIN users ON \"user\" = id WHERE sex = 'f' AND ({1}) GROUP BY ALL",
    "SELECT g, count(*) AS n FROM (SELECT {0} AS g, stars FROM ratings WHERE {1}) GROUP BY g",
    "WITH w AS (SELECT {0}, stars FROM ratings) SELECT {0} AS g, count(*) AS n FROM w WHERE {1} GROUP BY 1",
    "SELECT r.{0} AS g, count(*) AS n FROM users LEFT JOIN ratings r ON \"user\" = id WHERE {1} GROUP BY 1",
)  # fmt: skip


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = opened(tmp_path_factory.mktemp("films"))
    yield found
    found.connection.close()


@pytest.mark.some(8)
@pytest.mark.parametrize(("key", "condition"), [(key, one) for key, some in KEYS.items() for one in some])
@pytest.mark.parametrize("table", FROM)
def test_keys_are_those_that_conditions_allow(films: Loaded, table: str, key: str, condition: str) -> None:
    select = table.format(key, condition.format(key))
    truth = [(g, n) for g, n in films(select) if n]
    found = films("SELECT g, n FROM dp_sql(?, epsilon := 1e4)", [select])
    assert sorted((g, round(n)) for g, n in found if round(n)) == sorted(truth)
    allowed = films(f"SELECT {key} FROM {PUBLIC[key]} WHERE {condition.format(key)}")
    assert sorted(g for g, _ in found) == sorted(g for (g,) in allowed)


@pytest.mark.parametrize("condition", ["movie_id > 8 OR stars > 1", "movie_id > stars", "stars > 1"])
def test_conditions_on_other_columns_exclude_none(films: Loaded, condition: str) -> None:
    select = f"SELECT movie_id AS g, count(*) AS n FROM ratings WHERE {condition} GROUP BY 1"
    assert len(films("FROM dp_sql(?, epsilon := 1e4)", [select])) == 12


NONE = {
    "movie_id": ("{0} > 100", "{0} = 3 AND {0} = 4", "{0} BETWEEN 5 AND 4", "{0} IS NULL", "{0} % 2 = 2", "NOT {0} < 50"),
    "land": ("{0} > 'z'", "{0} = 'no' AND {0} = 'it'", "{0} LIKE 'q%'", "length({0}) = 3", "{0} IS NULL"),
}  # fmt: skip
ALSO = (
    "SELECT {0} AS g, movie_id % 2 AS h, count(*) AS n FROM ratings WHERE {1} GROUP BY ALL",
    "SELECT count(*) AS n FROM ratings WHERE {1} GROUP BY {0}",
    "SELECT {0} AS g, count(*) AS n FROM ratings WHERE {1} GROUP BY ROLLUP ({0})",
)  # fmt: skip


@pytest.mark.some(4)
@pytest.mark.parametrize(("key", "condition"), [(key, one) for key, some in NONE.items() for one in some])
@pytest.mark.parametrize("table", FROM + ALSO)
def test_where_no_key_satisfies_the_conditions_that_is_what_is_said(
    films: Loaded, table: str, key: str, condition: str
) -> None:
    """It said that the column has no declared domain, where other conditions on it need none."""
    if condition.endswith("IS NULL") and ("LEFT" in table or "ROLLUP" in table):
        return  # which is a group there
    select = table.format(key, condition.format(key))
    assert not films(f"SELECT {key} FROM {PUBLIC[key]} WHERE {condition.format(key)}")
    line = films.refused("FROM dp_sql(?, epsilon := 1e4)", [select])
    assert "satisfies the conditions" in line
    assert "no group" in line
    assert "no declared domain" not in line


def test_where_no_row_of_a_public_table_satisfies_the_conditions_that_is_what_is_said(films: Loaded) -> None:
    for key, condition in (("movie_id", "m.movie_id > 100"), ("genre", "m.genre = 'opera'")):
        select = (
            f"SELECT m.{key}, count(*) AS n FROM ratings JOIN movies m USING (movie_id) WHERE {condition} GROUP BY 1"
        )
        line = films.refused("FROM dp_sql(?, epsilon := 1e4)", [select])
        assert f'GROUP BY "{key}": the public table "movies" has no value of it that satisfies the conditions' in line


VALUES = {
    "dayname({0})": ("{0} IS NOT NULL", "{0} > '2024-01-09'", "dayname({0}) <> 'Monday'", "dayname({0}) LIKE 'S%'", "NOT dayname({0}) IN ('Sunday')"),
    "month({0})": ("{0} IS NOT NULL", "month({0}) > 10", "month({0}) BETWEEN 3 AND 5 OR month({0}) = 1", "month({0}) % 2 = 0", "NOT month({0}) IS NULL"),
    "quarter({0})": ("quarter({0}) < 4", "2 <= quarter({0})", "quarter({0}) <> 3"),
    "dayofweek({0}) + 1": ("dayofweek({0}) + 1 > 4", "dayofweek({0}) < 2"),
}  # fmt: skip


@pytest.fixture(scope="module", params=[False, True])
def visits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with some_visits.loaded(tmp_path_factory.mktemp("visits"), declared=request.param) as found:
        found("CREATE TABLE alone AS SELECT da, x FROM visits; INSERT INTO alone VALUES (NULL, 3)")
        found("CALL dp_protect('alone', epsilon := 1e7, delta := 1e-9)")
        if request.param:
            found("CALL dp_attribute('alone', 'da', low := DATE '2024-01-01', high := DATE '2024-12-31')")
        yield found


@pytest.mark.some(8)
@pytest.mark.parametrize("table", ["visits", "alone"])
@pytest.mark.parametrize(("value", "condition"), [(value, one) for value, some in VALUES.items() for one in some])
def test_listed_values_are_those_that_conditions_allow(visits: Loaded, table: str, value: str, condition: str) -> None:
    select = f"SELECT {value} AS g, count(*) AS n FROM {table} WHERE {condition} GROUP BY 1".format("da")
    if value.startswith("dayofweek") and not declared(visits):
        return  # of which the text does not say the values
    truth = sorted(visits(select), key=str)
    found = visits("SELECT g, n FROM dp_sql(?, epsilon := 1e4)", [select])
    assert sorted(((g, round(n)) for g, n in found if round(n)), key=str) == truth
    days = f"SELECT DISTINCT {value} FROM (SELECT unnest(range(DATE '2024-01-01', DATE '2025-01-01', INTERVAL 1 DAY))::DATE AS da) WHERE {condition}"
    assert {g for g, _ in found} <= {g for (g,) in visits(days.format("da"))}


def declared(visits: Loaded) -> bool:
    try:
        visits("FROM dp_sql('SELECT da, count(*) AS n FROM visits GROUP BY da', epsilon := 1)")
    except duckdb.Error:
        return False
    return True


@pytest.mark.some(3)
@pytest.mark.parametrize("number", [4, 5])
@pytest.mark.parametrize("table", FROM)
def test_keys_that_were_shown_before_are_not_charged_again(tmp_path: Path, table: str, number: int) -> None:
    check_found_again(opened(tmp_path), table.format("movie_id", "movie_id > 8"), number)


@pytest.mark.some(3)
@pytest.mark.parametrize("number", [4, 5])
@pytest.mark.parametrize("table", ["visits", "alone"])
@pytest.mark.parametrize("condition", ["month(da) > 10", "da IS NOT NULL"])
def test_values_that_were_shown_before_are_not_charged_again(
    tmp_path: Path, table: str, condition: str, number: int
) -> None:
    with some_visits.loaded(tmp_path) as visits:
        visits(
            "CREATE TABLE alone AS SELECT da, x FROM visits; CALL dp_protect('alone', epsilon := 1e7, delta := 1e-9)"
        )
        check_found_again(
            visits, f"SELECT month(da) AS g, count(*) AS n FROM {table} WHERE {condition} GROUP BY 1", number
        )


def test_a_collation_of_the_column_excludes_no_group(tmp_path: Path) -> None:
    """A condition on the column is not one on the key where they are equal under a collation alone."""
    connection = duckdb.connect()
    connection.execute(
        """
        CREATE TABLE people (id INTEGER PRIMARY KEY); INSERT INTO people FROM range(60);
        CREATE TABLE lands (code VARCHAR PRIMARY KEY); INSERT INTO lands VALUES ('de'), ('fr'), ('us');
        CREATE TABLE trips (id INTEGER REFERENCES people (id), land VARCHAR COLLATE NOCASE);
        INSERT INTO trips SELECT i, ['de', 'FR', 'us'][1 + i % 3] FROM range(60) t(i);
        """
    )
    duckdb_dp.testing.load_exact(connection, tmp_path / "trips.dp")
    found = Loaded(connection, tmp_path / "trips.dp")
    found(
        "CALL dp_protect(['people', 'trips'], unit := 'people.id', max_rows := {'trips': 1}, epsilon := 1e7, delta := 1e-9)"
    )
    found("CALL dp_public('lands')")
    for condition in ("= 'DE'", "IN ('DE', 'fr')", "> 'E'"):
        select = f"SELECT l.code AS c, count(*) AS n FROM trips t JOIN lands l ON l.code = t.land WHERE t.land {condition} GROUP BY c"
        assert sorted(row[:2] for row in found("FROM dp_sql(?, epsilon := 1e4)", [select]) if row[1]) == sorted(
            found(select)
        )
