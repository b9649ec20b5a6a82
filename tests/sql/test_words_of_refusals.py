"""Refusals of dp_sql speak of the names and the SQL of the statement: of aliases as they are written, and of nothing that it was compiled to."""

import random
import re
from collections.abc import Iterator

import duckdb
import pytest

from tests.conftest import Loaded, one_line
from tests.sql.test_public_references import opened

SOURCES = {
    "ratings r JOIN movies m USING (movie_id)": ("m.genre", "m.stars", "r.stars", "m.movie_id", "land"),
    'ratings r JOIN scores s ON r."user" = s."user"': ("r.movie_id", "s.movie_id", "r.stars", "land"),
    "(SELECT stars + 1 AS more, land, movie_id AS m FROM ratings) q": ("more", "q.land", "m"),
    '(SELECT "user", count(*) AS c, max(land) AS l FROM ratings GROUP BY "user") q': ("c", "l"),
    'users u LEFT JOIN ratings r ON u.id = r."user"': ("u.sex", "r.land", "r.stars", "r.movie_id"),
    "ratings": ("stars", "land", "movie_id", "secret"),
    'ratings a JOIN ratings b ON a."user" = b."user" JOIN movies m ON m.movie_id = a.movie_id': ("a.stars", "b.stars", "b.land", "m.genre", "m.stars"),
    '(SELECT *, row_number() OVER (PARTITION BY "user" ORDER BY rating_id) AS rn FROM ratings) w': ("rn", "w.stars", "land"),
    'users u JOIN (SELECT "user", avg(stars) AS av FROM ratings GROUP BY 1) x ON x."user" = u.id': ("av", "u.sex"),
}  # fmt: skip
AGGREGATES = (
    "max({0})", "string_agg({0}, ',')", "mode({0})", "sum(DISTINCT {0})", "avg({0})", "count(DISTINCT ({0}, {1}))", "median({0})", "quantile_cont({0}, 2)",
    "quantile_cont({0}, {1})", "first({0})", "corr({0}, {1})", "arg_max({0}, {1})", "sum({0} || {1})", "sum(length({0}))", "sum(random() * {0})", "sum(foo({0}))",
    "sum({0}) FILTER (WHERE {1} > now())", "approx_count_distinct({0})", "sum([{0}])", "count(*) + {0}", "sum(CASE WHEN {0} > 1 THEN {1} END)", "sum(sum({0}))",
    "median({0} || {1})", "count({0} IS NULL) / {0}", "sum((SELECT max({0})))", "sum({0}.a)", "avg(date_trunc('month', {0}))", "count(*) FILTER (WHERE {0} = 'x')",
    "sum({0}) OVER ()",
)  # fmt: skip
GROUPS = (
    "{0}", "{0}, {1}", "{0} || {1}", "{0} + {1}", "{0} // 2", "CAST({0} AS DATE)", "random() * {0}", "date_trunc('month', {0})", "coalesce({0}, {1})",
    "ROLLUP({0}, {1})", "({0}, {1})", "foo({0})", "lower({0})", "(SELECT max(x) FROM (SELECT {0} AS x))",
)  # fmt: skip
MORE = (
    "", "", "", "HAVING max({0}) > 1", "HAVING {0} > 1", "ORDER BY {1}", "QUALIFY row_number() OVER (ORDER BY {0}) = 1", "LIMIT {0}", "LIMIT 1 OFFSET {0}",
)  # fmt: skip
SQL = {"TRY_CAST", "CAST", "ARRAY_AGG", "POWER", "COALESCE", "EXISTS", "FILTER", "WHERE", "VALUES", "IN"}
"""What advice says, and how DuckDB's parser writes operators and functions of other names."""


@pytest.fixture(scope="module", params=["", ", discovery_delta := 1e-10"])
def films(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = opened(tmp_path_factory.mktemp("films"), request.param)
    yield found
    found.connection.close()


def statements(rng: random.Random, source: str) -> Iterator[str]:
    columns = SOURCES[source]
    while True:
        two = rng.choices(columns, k=2)
        aggregate, group, more = (rng.choice(one).format(*two) for one in (AGGREGATES, GROUPS, MORE))
        yield f"SELECT {aggregate} AS n FROM {source}"
        yield f"SELECT count(*) AS n FROM {source} GROUP BY {group} {more}"
        key = group if "ROLLUP" not in group else rng.choice(columns)
        yield f"SELECT {key} AS g, {aggregate} AS n FROM {source} GROUP BY {group} {more}"
        yield f"SELECT {two[0]}, count(*) AS n FROM {source} WHERE {key} = {rng.choice(['1', chr(39) + 'x' + chr(39)])} GROUP BY {two[0]}"


@pytest.mark.some(6)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("source", SOURCES)
def test_refusals_are_in_the_words_of_the_statement(films: Loaded, source: str, seed: int) -> None:
    names = {
        name.lower()
        for (name,) in films("SELECT column_name FROM duckdb_columns() UNION SELECT table_name FROM duckdb_tables()")
    }
    refused = 0
    made = statements(random.Random(f"{source} {seed}"), source)
    while refused < 6:
        select = next(made)
        try:
            films("FROM dp_sql(?, epsilon := 1e-3)", [select])
        except duckdb.Error as error:
            refused += 1
            line = one_line(str(error))
            low = select.lower()
            for quoted in re.findall(r'"((?:[^"(]|"")+)"', line):
                assert quoted.lower() in names or quoted.lower() in low or quoted in ("values", "references"), line
            for function in re.findall(r"\b([A-Z_]{2,})\(", line):
                assert function.lower() in low or function in SQL, line
            assert not re.search(r'_dp_|"[tuvco]\d"', line), line


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("SELECT m.genr, count(*) FROM {} GROUP BY 1", "no column 'm.genr'; the columns are: genre, "),
        ("SELECT count(*) FROM {} WHERE m.ganre = 'x'", "no column 'm.ganre'; the columns are: genre, "),
        ("SELECT avg(r.star) FROM {}", "no column 'r.star'; the columns are: stars, "),
        ("SELECT avg(lnd) FROM {}", "no column 'lnd'; the columns are: land, "),
        ("SELECT count(*) FROM ratings JOIN movie USING (movie_id)", "a table of 'ratings'; movies may be meant."),
    ],
)
def test_the_nearest_name_of_the_table_that_is_meant_comes_first(films: Loaded, statement: str, says: str) -> None:
    joined = "ratings r JOIN movies m USING (movie_id)"
    line = one_line(films.refused("FROM dp_sql(?, epsilon := 1e-3)", [statement.format(joined)]))
    assert says in line
    if " 'm." in line:  # and those of other tables do not
        assert "rating_id" not in line
