"""GROUP BY a column that refers to a public table, which nothing declares: its groups are the keys there."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again

TABLES = """
CREATE TABLE users (id INTEGER PRIMARY KEY, sex VARCHAR); INSERT INTO users SELECT i, ['f', 'm'][1 + i % 2] FROM range(300) t(i);
CREATE TABLE movies (movie_id INTEGER PRIMARY KEY, genre VARCHAR, stars INTEGER);
INSERT INTO movies SELECT i, ['comedy', 'drama'][1 + i % 2], i % 3 FROM range(12) t(i);
CREATE TABLE lands (code VARCHAR PRIMARY KEY); INSERT INTO lands VALUES ('no'), ('pe'), ('jp'), ('it');
CREATE TABLE hidden (code VARCHAR PRIMARY KEY); INSERT INTO hidden FROM lands;
CREATE TABLE ratings (rating_id INTEGER PRIMARY KEY, "user" INTEGER NOT NULL REFERENCES users (id), movie_id INTEGER NOT NULL REFERENCES movies (movie_id),
    land VARCHAR REFERENCES lands (code), secret VARCHAR REFERENCES hidden (code), stars INTEGER);
INSERT INTO ratings SELECT i, i % 300, i * i % 11, ['no', 'pe', 'jp', NULL][1 + i % 4], 'no', i % 5 FROM range(1200) t(i);
CREATE TABLE scores ("user" INTEGER PRIMARY KEY REFERENCES users (id), movie_id INTEGER NOT NULL REFERENCES movies (movie_id));
INSERT INTO scores SELECT i, i % 5 FROM range(200) t(i);
"""
PROTECTED = """
CALL dp_protect(['users', 'ratings', 'scores'], unit := 'users.id', max_rows := {{'users': 1, 'ratings': 4}}, epsilon := 1e7, delta := 1e-9{more});
CALL dp_public(['movies', 'lands']);
CALL dp_attribute('ratings', 'stars', low := 0, high := 4); CALL dp_attribute('users', 'sex', "values" := ['f', 'm']);
"""
ANSWERED = [
    "SELECT land, count(*) AS n FROM ratings GROUP BY ROLLUP (land)",  # rows without one are a group, and in the total
    "SELECT land, stars, count(*) AS n FROM ratings GROUP BY GROUPING SETS ((land), (stars))",
    "SELECT movie_id, sex, avg(stars) AS n FROM ratings r JOIN users ON \"user\" = id WHERE stars > 0 GROUP BY CUBE (1, 2)",
    "SELECT movie_id % 2 AS half, land, sum(stars) AS n FROM ratings GROUP BY ROLLUP (half, land)",
    "SELECT r.movie_id, count(*) AS n FROM ratings r JOIN movies m ON r.movie_id = m.movie_id GROUP BY ROLLUP (r.movie_id)",
    "SELECT s.movie_id, count(*) AS n FROM ratings r LEFT JOIN scores s USING (\"user\") GROUP BY ROLLUP (s.movie_id)",
    "SELECT movie_id, count(*) AS n FROM ratings GROUP BY movie_id",
    "SELECT MOVIE_ID AS m, count(*) AS n FROM ratings r GROUP BY ALL",
    "SELECT r.movie_id, sex, avg(stars) AS n FROM ratings r JOIN users ON \"user\" = id WHERE stars > 0 GROUP BY 1, 2",
    "SELECT r.movie_id, count(*) AS n FROM ratings r JOIN movies m ON r.movie_id = m.movie_id GROUP BY r.movie_id",
    "SELECT r.movie_id, genre, count(*) AS n FROM ratings r, movies m WHERE m.movie_id = r.movie_id GROUP BY ALL",
    "SELECT land, count(*) AS n FROM ratings WHERE land IS NOT NULL GROUP BY land",
    "SELECT land, movie_id, sum(stars) AS n FROM ratings WHERE land IS NOT NULL GROUP BY ALL",
    "SELECT movie_id, count(*) AS n FROM ratings GROUP BY movie_id HAVING count(*) > 80",
    "SELECT movie_id, count(*) AS n FROM ratings GROUP BY movie_id ORDER BY n DESC, movie_id LIMIT 3",
    "SELECT movie_id, count(DISTINCT \"user\") AS n FROM ratings WHERE stars IN (1, 2) GROUP BY movie_id",
    "SELECT movie_id // 2 AS half, count(*) AS n FROM ratings GROUP BY half",
    "SELECT r.movie_id, s.movie_id AS other, count(*) AS n FROM ratings r JOIN scores s ON s.\"user\" = r.\"user\" GROUP BY ALL",
    "SELECT genre, n FROM (SELECT movie_id, count(*) AS n FROM ratings GROUP BY movie_id) JOIN movies USING (movie_id)",
    "SELECT movie_id, rank() OVER (ORDER BY n DESC) AS r, n FROM (SELECT movie_id, count(*) AS n FROM ratings GROUP BY movie_id)",
]  # fmt: skip
REFUSED = [
    "SELECT secret, count(*) AS n FROM ratings GROUP BY secret",  # of a table that is not public
    "SELECT coalesce(land, 'none') AS c, count(*) AS n FROM ratings GROUP BY c",  # as this group has
]  # fmt: skip


def opened(folder: Path, more: str = "") -> Loaded:
    connection = duckdb.connect()
    connection.execute(TABLES)
    duckdb_dp.testing.load_exact(connection, folder / "films.dp")
    found = Loaded(connection, folder / "films.dp")
    found(PROTECTED.format(more=more))
    return found


@pytest.fixture(scope="module", params=["", ", discovery_delta := 1e-10"])
def films(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = opened(tmp_path_factory.mktemp("films"), request.param)
    yield found
    found.connection.close()


def rows(found: Loaded, sql: str, parameters: list[object]) -> list[tuple[object, ...]]:
    got = found(sql, parameters)
    return sorted((tuple(round(v, 3) if isinstance(v, float) else v for v in row) for row in got if row[-1]), key=str)


@pytest.mark.some(4)
@pytest.mark.parametrize("select", ANSWERED)
def test_groups_are_the_keys(films: Loaded, select: str) -> None:
    names = ", ".join(f'"{name}"' for name, *_ in films.connection.execute(select).description)
    truth = rows(films, f"SELECT {names} FROM ({select})", [])
    assert truth
    assert rows(films, f"SELECT {names} FROM dp_sql(?, epsilon := 1e4)", [select]) == truth


def test_it_is_one_question(tmp_path: Path) -> None:
    """As the key beside it is, of the table that is joined."""
    found, before = opened(tmp_path), 0
    for place, select in enumerate(
        (
            "SELECT m.movie_id AS k, count(*) AS n FROM ratings r JOIN movies m ON r.movie_id = m.movie_id GROUP BY 1",
            "SELECT r.movie_id AS k, count(*) AS n FROM ratings r JOIN movies m ON r.movie_id = m.movie_id GROUP BY 1",
        )
    ):
        found("FROM dp_sql(?, epsilon := 1)", [select])
        before = found.charges() if place == 0 else before
    assert found.charges() == before


@pytest.mark.parametrize("select", REFUSED)
def test_what_would_be_another_question_is_refused(tmp_path: Path, select: str) -> None:
    found = opened(tmp_path)
    assert "has no declared domain" in found.refused("FROM dp_sql(?, epsilon := 1)", [select])
    assert found.charges() == 0


LINKED = "CALL dp_link('people', \"references\" := {'town': 'towns.town'});"
OF_ONE = {
    "its own table": ("REFERENCES towns (town)", "CALL dp_protect('people', unit := 'id', max_rows := 1, {budget});"),
    "the table of the unit": ("REFERENCES towns (town)", "CALL dp_protect(['people', 'stays'], unit := 'people.id', max_rows := {{'stays': 2}}, {budget});"),
    "declared before": ("", f"{LINKED.replace('{', '{{').replace('}', '}}')} CALL dp_protect('people', unit := 'id', max_rows := 1, {{budget}});"),
    "declared later": ("", f"CALL dp_protect('people', unit := 'id', max_rows := 1, {{budget}}); {LINKED.replace('{', '{{').replace('}', '}}')}"),
}  # fmt: skip


@pytest.mark.parametrize("how", OF_ONE)
def test_of_the_table_of_the_unit(tmp_path: Path, how: str) -> None:
    constraint, protected = OF_ONE[how]
    connection = duckdb.connect()
    connection.execute(f"""
    CREATE TABLE towns (town INTEGER PRIMARY KEY); INSERT INTO towns FROM range(5);
    CREATE TABLE people (id INTEGER PRIMARY KEY, town INTEGER {constraint}); INSERT INTO people SELECT i, i * i % 5 FROM range(90) t(i);
    CREATE TABLE stays (stay INTEGER PRIMARY KEY, id INTEGER NOT NULL REFERENCES people (id));
    """)
    duckdb_dp.testing.load_exact(connection, tmp_path / "towns.dp")
    found = Loaded(connection, tmp_path / "towns.dp")
    found(protected.format(budget="epsilon := 1e7, delta := 1e-9"))
    found("CALL dp_public('towns')")
    select = "SELECT town, count(*) AS n FROM people GROUP BY town"
    assert rows(found, "SELECT town, n FROM dp_sql(?, epsilon := 1e4)", [select]) == rows(found, select, [])


@pytest.mark.parametrize("select", ANSWERED[:4])
def test_what_was_found_before_is_not_charged_again(tmp_path: Path, select: str) -> None:
    found = opened(tmp_path, ", discovery_delta := 1e-10")
    check_found_again(found, select, 3)
