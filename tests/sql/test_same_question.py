"""What is written in other words, and asks the same, has the same answers with the same errors, for one charge."""

import duckdb
import pytest

from tests.conftest import Loaded

SAME = [
    ("SELECT sex, count(1) AS n FROM (SELECT * FROM people) GROUP BY sex", "SELECT sex, count(*) AS n FROM people GROUP BY sex"),
    ("SELECT avg(q.age) AS m FROM (FROM people AS p) AS q WHERE true AND 1 = 1", "SELECT avg(age) AS m FROM people"),
    ("SELECT sum(age) / nullif(count(*), 0) AS r FROM people", "SELECT sum(age) / count(*) AS r FROM people"),
    ("SELECT sum(age)::DOUBLE / count(*) AS r FROM people", "SELECT sum(age) / count(*) AS r FROM people"),
    ("SELECT sum(age)::DOUBLE / NULLIF((count(*))::DOUBLE, 0) AS r FROM people", "SELECT sum(age) / count(*) AS r FROM people"),
    (
        "SELECT sex, round(100.0 * count(*) FILTER (WHERE age < 40) / nullif(count(*), 0), 1) AS r FROM people GROUP BY sex",
        "SELECT sex, round(100.0 * count(*) FILTER (WHERE age < 40) / count(*), 1) AS r FROM people GROUP BY sex",
    ),
    (
        "WITH f AS (SELECT CASE WHEN age > 50 THEN 'old' ELSE 'young' END AS g FROM people) SELECT g, count(*) AS n FROM f GROUP BY g",
        "SELECT g, count(*) AS n FROM (SELECT CASE WHEN age > 50 THEN 'old' ELSE 'young' END AS g FROM people) AS f GROUP BY g",
    ),
    (
        "WITH f AS (SELECT * FROM people WHERE age > 5), g AS (SELECT age, sex AS s FROM f) SELECT s, avg(age) AS m FROM g AS z WHERE z.age < 50 GROUP BY z.s",
        "SELECT s, avg(age) AS m FROM (SELECT age, sex AS s FROM (SELECT * FROM people WHERE age > 5) AS f) AS z WHERE z.age < 50 GROUP BY z.s",
    ),
    (
        "WITH f(a, b) AS (SELECT age, sex FROM people) SELECT b, avg(a) AS m FROM f GROUP BY b",
        "SELECT b, avg(a) AS m FROM (SELECT age, sex FROM people) AS f(a, b) GROUP BY b",
    ),
    (
        "WITH f AS (SELECT * FROM people), n AS (SELECT sex, count(*) AS n FROM f GROUP BY sex) SELECT sex, n / sum(n) OVER () AS s FROM n",
        "WITH n AS (SELECT sex, count(*) AS n FROM (SELECT * FROM people) AS f GROUP BY sex) SELECT sex, n / sum(n) OVER () AS s FROM n",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_question_has_the_same_answer(db: Loaded, one: str, other: str) -> None:
    first = db("FROM dp_sql(?, mu := 1)", [one])
    assert db("FROM dp_sql(?, mu := 1)", [other]) == first
    assert db.charges() == 1
    assert db.columns(f"FROM dp_sql('{one.replace(chr(39), chr(39) * 2)}', mu := 1)") == db.columns(
        f"FROM dp_sql('{other.replace(chr(39), chr(39) * 2)}', mu := 1)"
    )


@pytest.mark.parametrize(
    "select",
    [
        "SELECT sum(age) / nullif(count(*), 0) AS r FROM people",
        "SELECT sum(age)::DOUBLE / count(*) AS r FROM people",
        "SELECT round(a::DOUBLE / nullif(n, 0), 3) AS r FROM (SELECT sum(age) AS a, count(*) AS n FROM people)",
    ],
)
def test_a_rate_has_an_interval(exact: Loaded, select: str) -> None:
    (row,) = exact("SELECT r, ci_low, ci_high FROM dp_sql(?, mu := 4)", [select])
    ((true,),) = exact("SELECT avg(age) FROM people")
    assert row[1] <= true <= row[2]
    assert row[1] < row[0] < row[2]


def test_with_that_is_read_twice_or_groups_stays(db: Loaded) -> None:
    select = (
        "WITH f AS (SELECT * FROM people WHERE age < 50) SELECT count(*) AS n FROM f UNION ALL SELECT count(*) FROM f"
    )
    assert len(db("SELECT n FROM dp_sql(?, mu := 1)", [select])) == 2
    shadowed = "WITH f AS (SELECT * FROM people) SELECT n FROM (WITH f AS (SELECT count(*) AS n FROM people) SELECT n FROM f) AS g"
    assert len(db("SELECT n FROM dp_sql(?, mu := 1)", [shadowed])) == 1


def test_a_cast_that_noise_makes_fail_is_null(db: Loaded) -> None:
    select = "SELECT n::TINYINT AS small, n::INTEGER AS n FROM (SELECT count(*) AS n FROM people)"
    assert db("SELECT small, abs(n - 420) < 50 FROM dp_sql(?, mu := 1)", [select]) == [(None, True)]
    assert "'[0, 20)'" in db.refused(
        "FROM dp_sql('SELECT age::INTEGER AS a FROM (SELECT age, count(*) AS n FROM people GROUP BY age)', mu := 1)"
    )


def test_an_interval_with_an_upper_end_alone_stays_in_short_columns(exact: Loaded) -> None:
    exact(
        "CREATE TABLE t AS SELECT i % 100 AS x FROM range(4000) r(i); CALL dp_protect('t', mu := 1000, delta := 1e-9)"
    )
    exact("""CALL dp_attribute('t', 'x', "values" := [10, 20, 30])""")
    for q, ends in ((0.05, (None, 10)), (0.5, (30, None)), (0.95, (30, None))):
        select = f"SELECT quantile_disc(x, {q}) AS q FROM t"
        ((_, *long, _),) = exact("SELECT q, ci_low, ci_high, private FROM dp_sql(?, mu := 100)", [select])
        ((_, short, _),) = exact("SELECT q, ci, private FROM dp_sql(?, mu := 100, columns := 'short')", [select])
        assert tuple(long) == ends
        assert short == {"low": ends[0], "high": ends[1]}


@pytest.mark.parametrize(
    "select",
    ['SELECT count(*) AS "n" FROM people', "SELECT count(*) FROM people WHERE sex = 'a.b.c.d'", "-- how many\nSELECT count(*) FROM people",
     "/* all */ SELECT count(*) FROM \"people\"", "WITH f AS (SELECT * FROM people) SELECT count(*) AS n FROM f"],
)  # fmt: skip
def test_any_select_is_explained_alone(db: Loaded, select: str) -> None:
    assert db("FROM dp_explain(?, mu := 1)", [select]) == db("FROM dp_explain('people', ?, mu := 1)", [select])


def test_columns_are_named_by_their_functions(db: Loaded) -> None:
    names = [name for name, _ in db.columns(
        "FROM dp_sql('SELECT quantile_cont(age, 0.9), quantile_disc(race, 0.5), var_samp(age) FROM people', mu := 1)")]  # fmt: skip
    assert [name for name in names if not name.endswith(("stddev", "low", "high", "private"))] == [
        "quantile_cont",
        "quantile_disc",
        "variance_age",
    ]


SHADOWED = [
    "WITH a AS (SELECT * FROM people), people AS (SELECT * FROM people WHERE age = 1) SELECT count(*) AS n FROM a",
    "WITH a AS (SELECT race AS g FROM people) SELECT g, n FROM (WITH people AS (SELECT * FROM people WHERE race = 1) "
    "SELECT g, count(*) AS n FROM a WHERE g IN (1, 2) GROUP BY g)",
    "WITH f AS (SELECT race AS g FROM people), t AS (WITH people AS (SELECT * FROM people WHERE race = 1) "
    "SELECT g, count(*) AS n FROM f GROUP BY g) SELECT g, n FROM t",
    "WITH a AS (SELECT race, count(*) AS n FROM people GROUP BY race), people AS (SELECT 1 AS k) SELECT race, n FROM a",
    "WITH people AS (SELECT * FROM people WHERE race = 1) SELECT count(*) AS n FROM people",
    "WITH a AS (SELECT * FROM people WHERE race < 3), b AS (SELECT * FROM a WHERE race > 0) SELECT race, count(*) AS n FROM b GROUP BY race",
    "WITH a AS (SELECT race FROM people), b AS (SELECT race AS k FROM a) SELECT k, count(*) AS n FROM b AS a GROUP BY a.k",
]
"""Names that stand for several things."""


@pytest.mark.parametrize("select", SHADOWED)
def test_names_of_with_mean_what_sql_means(exact: Loaded, select: str) -> None:
    true = exact(select)
    try:
        found = exact("SELECT COLUMNS(lambda c: c NOT LIKE '%stddev' AND c NOT LIKE '%ci\\___%' ESCAPE '\\' AND c <> 'private') "
                      "FROM dp_sql(?, mu := 100)", [select])  # fmt: skip
    except duckdb.InvalidInputException:
        return  # refused
    rounded = {tuple(row[:-1]): round(row[-1]) for row in found}
    assert {key: n for key, n in rounded.items() if n} == {tuple(row[:-1]): row[-1] for row in true}


@pytest.mark.parametrize(
    "one", ["2 * (count(*) > 100)::DOUBLE", "(count(*) = 5)::DOUBLE + 1", "(count(*)::VARCHAR)::DOUBLE / 2"]
)
def test_casts_of_what_is_no_number_stay(exact: Loaded, one: str) -> None:
    ((found,),) = exact(f"SELECT r FROM dp_sql('SELECT {one} AS r FROM people', mu := 100)")
    ((true,),) = exact(f"SELECT {one} AS r FROM people")
    assert found == pytest.approx(true, abs=1)
