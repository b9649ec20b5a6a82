"""Refusals of QUALIFY beside aggregates, and of EXISTS, IN and anti-joins of public rows with protected ones, say what to write: that works."""

import re
from collections.abc import Iterator

import pytest

from tests.conftest import Loaded
from tests.sql.test_public_references import opened

FIRST = 'row_number() OVER (PARTITION BY "user" ORDER BY rating_id) = 1'
QUALIFIED = {
    f"SELECT count(*) AS n FROM ratings QUALIFY {FIRST}": [(300,)],
    f"SELECT stars, count(*) AS n FROM ratings GROUP BY stars QUALIFY {FIRST}": [(i, 60) for i in range(5)],
    f"SELECT avg(stars) AS n FROM ratings r WHERE stars > 2 QUALIFY {FIRST.replace('= 1', '<= 4')}": [(3.5,)],
    f"SELECT r.stars, count(*) AS n FROM ratings r GROUP BY ALL HAVING n > 10 QUALIFY {FIRST}": [
        (i, 60) for i in range(5)
    ],
}
ANY = [
    "SELECT count(*) AS n FROM movies m WHERE NOT EXISTS (SELECT 1 FROM ratings r WHERE r.movie_id = m.movie_id)",
    "SELECT count(*) AS n FROM movies m WHERE EXISTS (FROM ratings r WHERE stars > 1 AND m.movie_id = r.movie_id)",
    "SELECT count(*) AS n FROM movies m WHERE m.movie_id NOT IN (SELECT movie_id FROM ratings)",
    "SELECT count(*) AS n FROM movies WHERE movie_id IN (SELECT r.movie_id FROM ratings r WHERE stars > 1)",
    "SELECT genre FROM movies WHERE NOT movie_id IN (SELECT movie_id FROM ratings)",
    "SELECT count(*) AS n FROM movies m ANTI JOIN ratings r USING (movie_id)",
    "SELECT count(*) AS n FROM movies m SEMI JOIN ratings r ON m.movie_id = r.movie_id",
    "SELECT count(*) AS n FROM lands l WHERE NOT EXISTS (SELECT 1 FROM ratings r JOIN users u ON u.id = r.\"user\" WHERE r.land = l.code AND u.sex = 'f')",
]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = opened(tmp_path_factory.mktemp("films"))
    yield found
    found.connection.close()


@pytest.mark.parametrize("select", QUALIFIED)
def test_what_is_said_of_qualify_beside_aggregates_works(films: Loaded, select: str) -> None:
    line = films.refused("FROM dp_sql(?, epsilon := 1)", [select])
    assert "QUALIFY beside aggregates is about groups" in line
    written = line.partition("write it in FROM: ")[2].removesuffix(".")
    names = ", ".join(name for name, *_ in films.connection.execute(written).description)
    answer = films(f"SELECT {names} FROM dp_sql(?, epsilon := 1e4)", [written])
    assert sorted(tuple(round(one, 1) for one in row) for row in answer) == QUALIFIED[select]
    assert sorted(films(written)) == QUALIFIED[select]


def test_rows_that_qualify_keeps_are_to_be_aggregated(films: Loaded) -> None:
    select = f"SELECT * FROM ratings QUALIFY {FIRST}"
    line = films.refused("FROM dp_sql(?, epsilon := 1)", [select])
    assert "aggregate those that QUALIFY keeps: SELECT count(*) FROM (SELECT ... QUALIFY ...)" in line
    assert round(films("SELECT n FROM dp_sql(?, epsilon := 1)", [f"SELECT count(*) AS n FROM ({select})"])[0][0]) == 300


@pytest.mark.parametrize("select", [
    "SELECT stars, count(*) AS n FROM ratings GROUP BY stars QUALIFY row_number() OVER (ORDER BY n DESC, stars) <= 2",
    "SELECT stars, count(*) AS c FROM ratings GROUP BY stars QUALIFY rank() OVER (ORDER BY count(*) DESC, stars) = 1",
    "SELECT sex, stars, avg(stars) AS a FROM ratings JOIN users ON id = \"user\" GROUP BY sex, stars QUALIFY row_number() OVER (PARTITION BY sex ORDER BY stars) = 1",
    "SELECT s, count(*) AS n FROM (SELECT stars AS s, id FROM ratings JOIN users ON id = \"user\") WHERE s BETWEEN 0 AND 4 GROUP BY s QUALIFY sum(n) OVER (ORDER BY s) > 300",
])  # fmt: skip
def test_qualify_of_groups_is_answered(films: Loaded, select: str) -> None:
    names = ", ".join(f'"{name}"' for name, *_ in films.connection.execute(select).description)
    truth = sorted(films(f"SELECT COLUMNS(*) FROM ({select})"), key=str)
    found = films(f"SELECT {names} FROM dp_sql(?, epsilon := 1e4)", [select])
    assert (
        sorted([tuple(round(one, 1) if isinstance(one, float) else one for one in row) for row in found], key=str)
        == truth
    )


@pytest.mark.parametrize("select", ANY)
def test_what_is_said_of_public_rows_that_any_unit_has_rows_for_works(films: Loaded, select: str) -> None:
    line = films.refused("FROM dp_sql(?, epsilon := 1)", [select])
    written = re.search(r"public table: (.*), of which those without", line)
    assert written is not None, line
    found = films("FROM dp_sql(?, epsilon := 1e4)", [written[1]])
    truth = films(f"SELECT * FROM ({written[1]})")
    assert sorted((row[0], round(row[1])) for row in found if round(row[1])) == sorted(
        row for row in truth if row[0] is not None
    )
    whole = "movies" if "movies" in select else "lands"
    assert len(found) == films(f"SELECT count(*) FROM {whole}")[0][0]  # with those that no unit has rows for
