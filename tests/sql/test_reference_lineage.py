"""A column that refers to a public table is known for it wherever it is read as it is: its groups are the keys there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again
from tests.sql.test_public_references import opened, rows

SOURCES = {
    "a query of WITH": "WITH r AS (SELECT * FROM ratings) SELECT {} FROM r",
    "renamed, and filtered": "WITH r AS (SELECT movie_id AS a, land AS b FROM ratings WHERE stars > 1), s AS (SELECT a AS movie_id, b AS land FROM r) SELECT {} FROM s",
    "a subquery": "SELECT {} FROM (SELECT movie_id, land FROM ratings WHERE stars > 1) t",
    "names of the alias": "SELECT {} FROM (SELECT movie_id, land FROM ratings) t (movie_id, land)",
    "USING": "SELECT {} FROM ratings JOIN (SELECT id AS \"user\", sex FROM users) USING (\"user\")",
    "NATURAL": "SELECT {} FROM ratings NATURAL JOIN (SELECT id AS \"user\", sex FROM users)",
    "the kept side of LEFT JOIN": "SELECT {} FROM ratings LEFT JOIN (SELECT \"user\" AS person FROM scores) ON person = \"user\"",
    "the kept side of RIGHT JOIN": "SELECT {} FROM (SELECT \"user\" AS person FROM scores) RIGHT JOIN ratings ON person = \"user\"",
    "LEFT JOIN of the public table": "SELECT {} FROM ratings LEFT JOIN movies USING (movie_id)",
    "groups of each unit": "SELECT {} FROM (SELECT \"user\", movie_id, land, count(*) AS k FROM ratings GROUP BY ALL)",
    "windows": "SELECT {} FROM (SELECT *, row_number() OVER (PARTITION BY \"user\" ORDER BY rating_id) AS k FROM ratings) WHERE k <= 2",
    "QUALIFY": "SELECT {} FROM (SELECT movie_id, land FROM ratings QUALIFY row_number() OVER (PARTITION BY \"user\" ORDER BY rating_id) = 1)",
    "DISTINCT": "SELECT {} FROM (SELECT DISTINCT \"user\", movie_id, land FROM ratings)",
    "UNION ALL": "SELECT {} FROM (SELECT movie_id, land FROM ratings WHERE stars > 2 UNION ALL SELECT movie_id, land FROM ratings)",
    "UNION ALL of two tables": "SELECT {} FROM (SELECT movie_id, land FROM ratings UNION ALL SELECT movie_id, nation FROM scores)",
    "a named relation": "SELECT {} FROM seen",
    "joined with itself": "SELECT {} FROM ratings JOIN (SELECT \"user\" AS person, movie_id AS other FROM ratings) ON person = \"user\"",
    "SEMI JOIN": "SELECT {} FROM ratings SEMI JOIN scores USING (\"user\")",
    "an outer join": "SELECT {} FROM users LEFT JOIN ratings ON id = \"user\" AND stars > 2",
    "an outer join of WITH": "WITH r AS (SELECT movie_id, land FROM users LEFT JOIN ratings ON id = \"user\" AND stars > 2) SELECT {} FROM r",
    "an outer join inside": "SELECT {} FROM (SELECT id, movie_id, nation AS land, count(*) AS k FROM users LEFT JOIN scores ON id = \"user\" GROUP BY ALL)",
    "an outer join in a UNION ALL": "SELECT {} FROM (SELECT id, movie_id FROM users LEFT JOIN scores ON id = \"user\" UNION ALL SELECT \"user\", movie_id FROM ratings)",
}  # fmt: skip
"""SELECTs with movie_id, and most with land."""

GROUPS = [
    "movie_id, count(*) AS n ... GROUP BY movie_id",
    "land, count(*) AS n ... GROUP BY ALL",
    "land, movie_id, count(*) AS n ... GROUP BY 1, 2",
    "movie_id // 2 AS half, count(*) AS n ... GROUP BY half HAVING count(*) > 10 ORDER BY half",
]

SEEN = 'SELECT r.*, u.sex FROM ratings r JOIN users u ON r."user" = u.id'


@pytest.fixture(scope="module", params=["", ", discovery_delta := 1e-10"])
def films(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    yield from linked(tmp_path_factory.mktemp("films"), request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Where no values are looked for."""
    yield from linked(tmp_path_factory.mktemp("plain"))


def linked(folder: Path, more: str = "") -> Iterator[Loaded]:
    found = opened(folder, more)
    found.connection.execute(
        "ALTER TABLE scores ADD COLUMN nation VARCHAR; UPDATE scores SET nation = ['no', 'jp'][1 + movie_id % 2]"
    )
    found("CALL dp_link('scores', \"references\" := {'nation': 'lands.code'})")
    found("CALL dp_view('seen', ?)", [SEEN])
    found.connection.execute(f"CREATE SCHEMA plain; CREATE VIEW plain.seen AS {SEEN}")
    yield found
    found.connection.close()


def asked(source: str, group: str) -> str:
    """The SELECT of a source with these groups."""
    shown, by = group.split(" ... ")
    return f"{source.format(shown)} {by}"


@pytest.mark.some(6)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("source", SOURCES)
def test_groups_are_the_keys(films: Loaded, source: str, group: str) -> None:
    select = asked(SOURCES[source], group)
    if "land" in group and source in ("an outer join in a UNION ALL", "an outer join inside"):
        pytest.skip("it has no land, or of one that no constraint keeps")
    names = ", ".join(
        f'"{name.split(",")[0].split()[-1]}"'
        for name in group.split(" ... ")[0].replace("count(*) AS ", "").split(", ")
    )
    truth = rows(films, f"SELECT {names} FROM ({select.replace('FROM seen', 'FROM plain.seen')})", [])
    if "outer join" not in source:
        truth = [row for row in truth if None not in row]  # rows without a key are in no group
    assert truth
    assert rows(films, f"SELECT {names} FROM dp_sql(?, epsilon := 1e4)", [select]) == truth


@pytest.mark.some(4)
@pytest.mark.parametrize("source", SOURCES)
def test_noise_covers_as_many_rows_as_without_groups(plain: Loaded, source: str) -> None:
    """The keys that are joined make no more rows of one."""
    explained = "SELECT DISTINCT stddev FROM dp_explain(?, epsilon := 1)"
    ((by_keys,),) = plain(explained, [asked(SOURCES[source], GROUPS[0])])
    ((alone,),) = plain(explained, [SOURCES[source].format("count(*) AS n")])
    assert by_keys == pytest.approx(alone)


SAME = [
    "SELECT movie_id, count(*) AS n FROM ratings GROUP BY movie_id",
    "WITH r AS (SELECT * FROM ratings) SELECT movie_id, count(*) AS n FROM r GROUP BY movie_id",
    "SELECT t.m AS movie_id, count(*) AS n FROM (SELECT movie_id AS m FROM ratings) t GROUP BY 1",
    "SELECT movie_id, count(*) AS n FROM ratings JOIN movies USING (movie_id) GROUP BY movie_id",
    "SELECT m.movie_id, count(*) AS n FROM ratings r JOIN movies m ON r.movie_id = m.movie_id GROUP BY 1",
]


def test_it_is_one_question_however_it_is_written(tmp_path: Path) -> None:
    found = opened(tmp_path)
    answers = [found("FROM dp_sql(?, epsilon := 1)", [select]) for select in SAME]
    assert found.charges() == 1
    assert answers == answers[:1] * len(SAME)


REFUSED = {
    "where no constraint keeps it, and NULL is a group": "SELECT nation, count(*) AS n FROM users LEFT JOIN scores ON id = \"user\" GROUP BY 1",
    "the same inside": "SELECT c, count(*) AS n FROM (SELECT id, nation AS c, count(*) AS k FROM users LEFT JOIN scores ON id = \"user\" GROUP BY ALL) GROUP BY 1",
    "not as it is": "SELECT c, count(*) AS n FROM (SELECT max(movie_id) AS c FROM ratings GROUP BY \"user\") GROUP BY c",
    "of one of two": "SELECT c, count(*) AS n FROM (SELECT movie_id AS c FROM ratings UNION ALL SELECT stars FROM ratings) GROUP BY c",
    "of another key": "SELECT c, count(*) AS n FROM (SELECT land AS c FROM ratings UNION ALL SELECT secret FROM ratings) GROUP BY c",
    "of a table that is not public": "WITH r AS (SELECT secret FROM ratings) SELECT secret, count(*) AS n FROM r GROUP BY secret",
    "with totals, where no constraint keeps it": "WITH u AS (SELECT nation FROM scores) SELECT nation, count(*) AS n FROM u GROUP BY ROLLUP (nation)",
    "with a group of rows without one": "SELECT coalesce(land, '-') AS c, count(*) AS n FROM (SELECT land FROM ratings) GROUP BY c",
}  # fmt: skip


@pytest.mark.some(3)
@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_known_to_be_a_key_is_refused(plain: Loaded, why: str) -> None:
    said = plain.refused("FROM dp_sql(?, epsilon := 1)", [REFUSED[why]])
    assert "no declared domain" in said or "worked out of private rows" in said


@pytest.mark.parametrize(
    "keys", ["movie_id, secret", "secret, movie_id", "land, movie_id, secret", "movie_id + rating_id, land"]
)
def test_what_is_missing_is_named_beside_what_is_known(plain: Loaded, keys: str) -> None:
    select = f"SELECT {keys}, count(*) AS n FROM (SELECT * FROM ratings) GROUP BY ALL"
    said = plain.refused("FROM dp_sql(?, epsilon := 1)", [select])
    assert f"'{'secret' if 'secret' in keys else 'rating_id'}' has no declared domain" in said


def test_one_expression_of_two_references(films: Loaded) -> None:
    source = 'ratings r JOIN scores s ON s."user" = r."user"'
    select = f"SELECT r.movie_id * 100 + s.movie_id AS c, count(*) AS n FROM {source} GROUP BY c"
    truth = rows(films, f"SELECT c, n FROM ({select})", [])
    assert rows(films, "SELECT c, n FROM dp_sql(?, epsilon := 1e4)", [select]) == truth


@pytest.mark.some(2)
@pytest.mark.parametrize("source", [one for one in SOURCES if one != "a named relation" and "two tables" not in one])
def test_what_was_found_before_is_not_charged_again(tmp_path: Path, source: str) -> None:
    found = opened(tmp_path, ", discovery_delta := 1e-10")
    found.connection.execute("ALTER TABLE scores ADD COLUMN nation VARCHAR")
    check_found_again(found, asked(SOURCES[source], GROUPS[0]), 3)


def test_declared_values_that_an_outer_join_inside_leaves_out_are_null(films: Loaded) -> None:
    """NULL is a group of their own, as it is where the outer join stands beside the groups."""
    inside = 'SELECT u.id, s.stars AS c, count(*) AS k FROM users u LEFT JOIN ratings s ON u.id = s."user" AND s.stars > 2 GROUP BY ALL'
    select = f"SELECT c, count(*) AS n FROM ({inside}) GROUP BY c"
    truth = rows(films, f"SELECT c, n FROM ({select})", [])
    assert any(row[0] is None for row in truth)
    assert rows(films, "SELECT c, n FROM dp_sql(?, epsilon := 1e4)", [select]) == truth
