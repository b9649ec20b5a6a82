"""Stars that leave out, replace and rename columns, and COLUMNS(...), inside subqueries and above answers: as SQL, with right errors."""

import pytest

from tests.conftest import Loaded

INSIDE = [
    "SELECT race, count(*) AS n FROM (SELECT * EXCLUDE (age, smoker) FROM people) GROUP BY race",
    "SELECT r, count(*) AS n FROM (SELECT * RENAME (race AS r) FROM people) WHERE r > 0 GROUP BY r",
    "SELECT sex, sum(race) AS n FROM (SELECT * REPLACE (race * 2 AS race) FROM people) GROUP BY sex",
    "SELECT sex, sum(race) AS n FROM (SELECT p.* EXCLUDE (age) REPLACE (race + 1 AS race) FROM people AS p) GROUP BY sex",
    "WITH t AS (SELECT * EXCLUDE age FROM people) SELECT sex, count(*) AS n FROM t WHERE race = 1 GROUP BY sex",
]


@pytest.mark.parametrize("sql", INSIDE)
def test_stars_inside_are_those_of_sql(exact: Loaded, sql: str) -> None:
    got = sorted((str(row[0]), round(row[1], 3)) for row in exact("FROM dp_sql(?, epsilon := 9)", [sql]) if row[1])
    assert got == sorted((str(row[0]), row[1]) for row in exact(sql) if row[1])


ABOVE = {
    "SELECT * REPLACE (n * 3 AS n) FROM ({})": 3,
    "SELECT * RENAME (n AS m) FROM ({})": 1,
    "SELECT a.* EXCLUDE (sex) REPLACE (n / 2 AS n) FROM ({}) AS a": 0.5,
    "SELECT * REPLACE (n + 7 AS n) FROM (SELECT * FROM ({}))": 1,
    "SELECT COLUMNS('^n$') + 7 FROM ({})": 1,
    "SELECT COLUMNS(* EXCLUDE (sex)) * 4 FROM ({})": 4,
    "SELECT max(COLUMNS('n')) FROM ({})": None,
    "SELECT COLUMNS('n') AS x FROM ({})": None,
    "SELECT sex, COLUMNS(['n']) + 7 AS x FROM ({})": None,
}
ANSWER = "SELECT sex, count(*) AS n FROM people GROUP BY sex"


@pytest.mark.parametrize("above", ABOVE)
def test_stars_above_have_the_errors_of_what_they_show(shared: Loaded, above: str) -> None:
    """An interval is around its answer, and as wide as the answer's factor says; where none is known there is none."""
    sql, factor = above.format(ANSWER), ABOVE[above]
    (plain, *_) = shared(f"SELECT stddev FROM dp_sql('{ANSWER}', epsilon := 0.5)")
    found = shared.connection.execute("FROM dp_sql(?, epsilon := 0.5)", [sql])
    names, rows = [column[0] for column in found.description or []], found.fetchall()
    assert len(rows) == len(shared(sql))
    if factor is None:
        assert not [name for name in names if name.endswith(("stddev", "ci_low", "ci_high"))]
        return
    for row in rows:
        said = dict(zip(names, row, strict=True))
        answer = said.get("n", said.get("m"))
        assert said["stddev"] == pytest.approx(plain[0] * factor, rel=1e-6)
        assert said["ci_low"] < answer < said["ci_high"]
        assert said["ci_high"] - said["ci_low"] == pytest.approx(2 * 1.959964 * said["stddev"], rel=1e-5)


def test_a_star_without_that_column_is_refused(exact: Loaded) -> None:
    said = exact.refused("FROM dp_sql('SELECT count(*) FROM (SELECT * EXCLUDE (nothing) FROM people)', epsilon := 1)")
    assert "there is no column 'nothing'" in said


ORDERED = [
    "SELECT count(*) AS n, race AS r FROM people GROUP BY race",
    "SELECT race IS NULL AS missing, race * 2 AS double, count(*) AS n FROM people GROUP BY race",
    "SELECT * FROM (SELECT count(*) AS n, race FROM people GROUP BY race)",
    "SELECT * REPLACE (n * 10 AS n), n + 1 AS m FROM (SELECT sum(race) AS n, sex, count(*) AS c FROM people GROUP BY sex)",
    "SELECT count(*) AS race, race AS r FROM people GROUP BY ALL HAVING race > 20",
    "SELECT sum(race) AS sex, sex AS s FROM people GROUP BY ALL HAVING sex > 1",
]


@pytest.mark.parametrize("sql", ORDERED)
def test_columns_and_rows_are_in_the_order_of_the_statement(exact: Loaded, sql: str) -> None:
    """HAVING beside GROUP BY ALL takes an aggregate's alias before a column, as DuckDB does."""
    wanted = exact.connection.execute(sql)
    names, rows = [column[0] for column in wanted.description or []], wanted.fetchall()
    found = exact.connection.execute("FROM dp_sql(?, epsilon := 9)", [sql])
    shown = [column[0] for column in found.description or []]
    places = [place for place, name in enumerate(shown) if name in names]
    assert [shown[place] for place in places] == names
    got = [[_rounded(row[place]) for place in places] for row in found.fetchall()]
    assert sorted((row for row in got if any(isinstance(one, float) and one for one in row)), key=str) == sorted(
        ([_rounded(one) for one in row] for row in rows), key=str
    )


def _rounded(value: object) -> object:
    return round(float(value), 1) if isinstance(value, int | float) and not isinstance(value, bool) else value
