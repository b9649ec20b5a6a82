"""Columns that name a table which is not read are refused as DuckDB refuses them, wherever in a statement they stand."""

import itertools
from collections.abc import Iterator
from contextlib import suppress

import duckdb
import pytest

from tests.conftest import Loaded
from tests.sql.test_public_references import opened

FROM = {
    "users": ("users", "sex", "id", ("", "users.", "main.users.", "memory.main.users.", "memory.users.", "USERS.")),
    "main.users": ("users", "sex", "id", ("users.", "main.users.", "memory.main.users.", "memory.users.")),
    "memory.users": ("users", "sex", "id", ("users.", "main.users.", "memory.main.users.", "memory.users.")),
    "ratings JOIN movies USING (movie_id)": ("movies", "genre", "stars", ("movies.", "main.movies.", "memory.movies.", "memory.main.movies.")),
    "users u": ("u", "sex", "id", ("", "u.", "U.")),
    'ratings r JOIN users u ON r."user" = u.id': ("u", "sex", "id", ("", "u.")),
    "ratings JOIN movies m USING (movie_id)": ("m", "genre", "stars", ("", "m.")),
    "(SELECT sex, id FROM users) s": ("s", "sex", "id", ("", "s.")),
    "(SELECT r.*, sex FROM users JOIN ratings r ON r.\"user\" = id) s": ("s", "sex", "movie_id", ("", "s.")),
}  # fmt: skip
WRONG = (
    "zz.",
    "nope.users.",
    "nope.movies.",
    "alias.zz.",
    "lands.",
    "main.lands.",
    "users.",
    "main.users.",
    "s2.users.",
    "nope.main.users.",
    "m.",
    "s.",
    "r.",
)
PLACES = (
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} ORDER BY {q}{g}",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} ORDER BY n DESC, {q}{g} LIMIT 1",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} ORDER BY lower({q}{g})",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} ORDER BY {q}n",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} ORDER BY count({q}{x})",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} HAVING {q}{g} <> 'q'",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} HAVING {q}n > 3",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} HAVING count({q}{x}) > 3",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} QUALIFY rank() OVER (ORDER BY {q}{g}) < 2",
    "SELECT {g}, count(*) AS n, rank() OVER (ORDER BY {q}{g}) AS r FROM {f} GROUP BY {g}",
    "SELECT {g}, count(*) AS n, rank() OVER (PARTITION BY {q}{g} ORDER BY count(*)) AS r FROM {f} GROUP BY {g}",
    "SELECT DISTINCT {g}, count(*) AS n FROM {f} GROUP BY {g} ORDER BY {q}{g}",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} ORDER BY {q}{g} LIMIT 1 OFFSET 1",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY ROLLUP ({g}) ORDER BY {q}{g}",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY ALL ORDER BY {q}{g}",
    "SELECT {q}{g}, count(*) AS n FROM {f} GROUP BY {g}",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {q}{g}",
    "SELECT {g}, count(*) AS n FROM {f} WHERE {q}{g} <> 'q' GROUP BY {g}",
    "SELECT {g}, count({q}{x}) AS n FROM {f} GROUP BY {g}",
    "SELECT {g}, count(*) FILTER (WHERE {q}{x} > 2) AS n FROM {f} GROUP BY {g}",
    "SELECT {g}, 2 * count(*) + count({q}{x}) AS n FROM {f} GROUP BY {g}",
    "SELECT * FROM (SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} ORDER BY {q}{g} LIMIT 2)",
    "SELECT * FROM (SELECT {g}, count(*) AS n FROM {f} GROUP BY {g}) w ORDER BY {q}{g}",
    "SELECT max(n) AS n FROM (SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} HAVING {q}{g} <> 'q') w",
    "WITH w AS (SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} QUALIFY rank() OVER (ORDER BY {q}{g}) < 2) SELECT * FROM w",
    "WITH w AS (SELECT {g}, count(*) AS n FROM {f} GROUP BY {g}) SELECT * FROM w WHERE {q}{g} <> 'q'",
    "SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} UNION ALL (SELECT {g}, count(*) AS n FROM {f} GROUP BY {g} ORDER BY {q}{g})",
    "SELECT {g}, count(*) AS n, (SELECT max(code) FROM lands WHERE code < {q}{g}) AS m FROM {f} GROUP BY {g}",
)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = opened(tmp_path_factory.mktemp("films"))
    found("CREATE SCHEMA s2; CREATE TABLE s2.users AS FROM users")
    yield found
    found.connection.close()


def binds(found: Loaded, select: str) -> bool:
    with suppress(duckdb.Error):
        found(select)
        return True
    return False


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("table", "place"), [one for at, one in enumerate(itertools.product(FROM, PLACES)) if (at + at // len(PLACES)) % 2]
)
def test_tables_that_are_not_read_are_refused(films: Loaded, table: str, place: str) -> None:
    _, key, value, _ = FROM[table]
    before = films.charges()
    for one in WRONG:
        select = place.format(f=table, g=key, x=value, q=one)
        if not binds(films, select):
            films.refused("FROM dp_sql(?, epsilon := 0.1)", [select])
            films.refused("FROM dp_sql(?, epsilon := 0.1)", [[select, "SELECT count(*) AS n FROM users"]])
    assert films.charges() == before


@pytest.mark.some(3)
@pytest.mark.parametrize("place", PLACES[:-1])
@pytest.mark.parametrize("table", FROM)
def test_tables_that_are_read_are_not(films: Loaded, table: str, place: str) -> None:
    """Of several tables it is asked for one spelling in some places."""
    _, key, value, own = FROM[table]
    for one in own:
        select = place.format(f=table, g=key, x=value, q=one)
        if not binds(films, select):
            continue
        try:
            assert films("FROM dp_sql(?, epsilon := 0.1)", [select])
        except duckdb.Error as error:
            assert "are to be alike" in str(error)


ALIASED = (
    "ORDER BY {}n", "ORDER BY {}n DESC, {}g", "ORDER BY {}n + 1 DESC", "HAVING {}n > 3 ORDER BY 1", "QUALIFY rank() OVER (ORDER BY {}n) < 2 ORDER BY 1",
    "ORDER BY {}g LIMIT 1", "HAVING {}n > 3 ORDER BY {}n LIMIT 1",
)  # fmt: skip


@pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1 has no such prefix")
@pytest.mark.parametrize("prefix", ["alias.", "ALIAS.", '"alias".'])
@pytest.mark.parametrize("clause", ALIASED)
@pytest.mark.parametrize("table", ["users", "users u", 'ratings r JOIN users u ON r."user" = u.id'])
def test_the_prefix_alias_is_that_of_columns_of_the_result(films: Loaded, table: str, clause: str, prefix: str) -> None:
    select = f"SELECT sex AS g, count(*) AS n FROM {table} GROUP BY sex {clause}"
    ways = [select.replace("{}", one) for one in (prefix, "")]
    assert films(ways[0]) == films(ways[1])
    found = [films("FROM dp_sql(?, epsilon := 0.1)", [one]) for one in ways]
    assert found[0] == found[1]
    for wrong in ("sex", "zz", "age"):
        films.refused(
            "FROM dp_sql(?, epsilon := 0.1)", [select.replace("{}n", f"alias.{wrong}").replace("{}", "")]
        ) if ("{}n" in select) else None


@pytest.mark.parametrize(
    "clause", ["ORDER BY zz.sex", "HAVING zz.sex = 'f'", "QUALIFY rank() OVER (ORDER BY zz.sex) < 2"]
)
def test_it_is_said_which_tables_there_are(films: Loaded, clause: str) -> None:
    select = f"SELECT sex, count(*) AS n FROM users GROUP BY sex {clause}"
    assert "uses zz.sex, which is no column of users." in films.refused("FROM dp_sql(?, epsilon := 0.1)", [select])
    assert "uses zz.sex, which is no column of users." in films.refused(
        "FROM dp_explain(NULL, ?, epsilon := 0.1)", [select]
    )
    joined = select.replace("users", 'ratings r JOIN users u ON r."user" = u.id')
    assert "uses zz.sex, which is no column of ratings AS r or users AS u." in films.refused(
        "FROM dp_sql(?, epsilon := 0.1)", [joined]
    )
