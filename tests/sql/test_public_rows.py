"""LEFT JOINs from public rows to protected ones: answered where a public row without a protected one changes nothing that is asked."""

from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE users (id INTEGER PRIMARY KEY, sex VARCHAR); INSERT INTO users SELECT i, ['f', 'm'][1 + i % 2] FROM range(300) t(i);
CREATE TABLE genres (genre VARCHAR PRIMARY KEY, kind VARCHAR); INSERT INTO genres VALUES ('a', 'x'), ('b', 'y'), ('c', 'y'), ('d', NULL);
CREATE TABLE movies (movie_id INTEGER PRIMARY KEY, genre VARCHAR, made INTEGER);
INSERT INTO movies SELECT i, ['a', 'b', 'c'][1 + i % 3], 1990 + i // 4 FROM range(15) t(i);
CREATE TABLE ratings (rating_id INTEGER PRIMARY KEY, id INTEGER NOT NULL REFERENCES users (id), movie_id INTEGER REFERENCES movies (movie_id),
    stars INTEGER, day DATE);
INSERT INTO ratings SELECT i, i % 300, [i * i % 11, NULL][1 + (i % 13 = 0)::INTEGER], [i % 5, NULL][1 + (i % 7 = 0)::INTEGER], DATE '2024-01-01' + (i % 60)::INTEGER
    FROM range(1200) t(i);
"""

JOINS = {
    "movies m LEFT JOIN ratings r ON r.movie_id = m.movie_id": "m",
    "movies m LEFT JOIN ratings r USING (movie_id)": "m",
    "ratings r RIGHT JOIN movies m ON m.movie_id = r.movie_id": "m",
    "movies m LEFT JOIN ratings r ON r.movie_id = m.movie_id AND r.stars > 1": "m",
    "movies m LEFT JOIN ratings r USING (movie_id) LEFT JOIN users u USING (id)": "m",
    "genres g LEFT JOIN movies m USING (genre) LEFT JOIN ratings r USING (movie_id)": "g",
    "genres g LEFT JOIN movies m ON m.genre = g.genre JOIN ratings r ON r.movie_id = m.movie_id": "g",
    "genres g JOIN movies m USING (genre) LEFT JOIN ratings r USING (movie_id)": "m",
    "(SELECT m.genre, m.made, r.rating_id, r.stars, r.id FROM movies m LEFT JOIN ratings r USING (movie_id)) AS r": "r",
    "(SELECT * FROM genres WHERE kind = 'y') g LEFT JOIN (SELECT genre, r.* FROM movies JOIN ratings r USING (movie_id)) r USING (genre)": "g",
}
"""FROM -> the table whose column is grouped by."""

VALUES = [
    "count(r.rating_id)", "count(r.stars)", "count(DISTINCT r.id)", "avg(r.stars)", "sum(r.stars)", "sum(r.stars * 2 + 1)", "median(r.stars)",
    "stddev(r.stars)", "count_if(r.stars > 2)", "sum(CASE WHEN r.stars > 2 THEN 1 ELSE 0 END)", "sum(coalesce(r.stars, 0))",
    "count(r.stars) FILTER (WHERE r.stars > 1)", "100.0 * count_if(r.stars = 4) / count(r.stars)", "count(CAST(r.stars AS BIGINT))",
]  # fmt: skip
"""What is asked of each group."""


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Users and their ratings; some movies have none."""
    connection, folder = duckdb.connect(), tmp_path_factory.mktemp("films") / "films.dp"
    connection.execute(TABLES)
    duckdb_dp.testing.load_exact(connection, folder)
    found = Loaded(connection, folder)
    found(
        "CALL dp_protect(['users', 'ratings'], unit := 'users.id', max_rows := {'ratings': 4}, epsilon := 1e8, delta := 1e-9)"
    )
    found("CALL dp_public(['movies', 'genres']); CALL dp_attribute('ratings', 'stars', low := 0, high := 4)")
    yield found
    connection.close()


@pytest.mark.some(12)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("join", JOINS)
def test_it_answers_what_sql_does(films: Loaded, join: str, value: str) -> None:
    """Groups without a protected row are there too, with 0 where SQL has NULL for their sum."""
    for key in (f"{JOINS[join]}.genre", None):
        shown = "" if key is None else f"{key} AS grp, "
        select = f"SELECT {shown}{value} AS v FROM {join}{'' if key is None else ' GROUP BY grp'}"
        truth, got = (
            dict_of(films(select)),
            dict_of(films(f"SELECT {'' if key is None else 'grp, '}v FROM dp_sql(?, epsilon := 1e4)", [select])),
        )
        assert truth.keys() <= got.keys()
        for group, value_of in got.items():
            assert (value_of or 0) == pytest.approx(truth.get(group) or 0, abs=0.05)


def dict_of(rows: list[tuple[object, ...]]) -> dict[object, float | None]:
    return {row[:-1]: None if row[-1] is None else float(str(row[-1])) for row in rows}


LEFT_OUT = [
    "SELECT count(*) AS v FROM movies m LEFT JOIN ratings r USING (movie_id) WHERE r.stars > 2",
    "SELECT m.genre AS g, count(*) AS v FROM movies m LEFT JOIN ratings r USING (movie_id) WHERE r.day >= '2024-01-10' GROUP BY g",
    "SELECT m.genre AS g, count(*) AS v FROM movies m LEFT JOIN ratings r USING (movie_id) JOIN users u ON u.id = r.id GROUP BY g",
    "SELECT m.genre AS g, count(*) AS v FROM movies m LEFT JOIN ratings r USING (movie_id) JOIN users USING (id) GROUP BY g",
    "SELECT r.stars AS g, count(*) AS v FROM movies m LEFT JOIN ratings r USING (movie_id) WHERE r.stars IN (1, 3) GROUP BY g",
    "SELECT count(*) AS v FROM movies m LEFT JOIN ratings r USING (movie_id) WHERE r.stars BETWEEN 1 AND 2 AND m.made > 1990",
]
"""SELECTs whose conditions leave out public rows without a protected one."""


@pytest.mark.parametrize("select", LEFT_OUT)
def test_conditions_may_make_it_an_inner_join(films: Loaded, select: str) -> None:
    names = "g, v" if " AS g" in select else "v"
    got = dict_of(films(f"SELECT {names} FROM dp_sql(?, epsilon := 1e4)", [select]))
    assert {group: v for group, v in got.items() if v} == dict_of(films(select))


REFUSED = [
    "SELECT count(*) FROM movies m LEFT JOIN ratings r USING (movie_id)",
    "SELECT m.genre, count(*) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, count(m.movie_id) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, count(DISTINCT movie_id) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, count(r.stars), count(1) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, avg(coalesce(r.stars, 0)) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, sum(coalesce(r.stars, 1)) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, avg(CASE WHEN r.stars > 1 THEN 1 ELSE 0 END) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, sum(CASE WHEN r.stars > 1 THEN 1 ELSE 2 END) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, sum(CASE WHEN r.stars IS NULL THEN 1 ELSE 0 END) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, count_if(r.stars IS NULL) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT r.stars, count(r.stars) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL",
    "SELECT m.genre, count(r.stars) FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL HAVING count(*) > 3",
    "SELECT m.genre, count(r.stars) AS n FROM movies m LEFT JOIN ratings r USING (movie_id) GROUP BY ALL ORDER BY count(*) - n",
    "SELECT count(*) FROM movies m LEFT JOIN ratings r USING (movie_id) WHERE r.stars > 2 OR m.made > 1990",
    "SELECT count(*) FROM movies m LEFT JOIN ratings r USING (movie_id) WHERE r.stars IS NULL",
]


@pytest.mark.some(5)
@pytest.mark.parametrize("select", REFUSED)
def test_what_counts_public_rows_alone_is_refused(films: Loaded, select: str) -> None:
    assert "LEFT JOIN from public rows" in films.refused("FROM dp_sql(?, epsilon := 1)", [select])
