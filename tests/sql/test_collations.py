"""Collations, settings and literals mean in dp_sql what they mean in DuckDB, or one line refuses them before the charge."""

import pytest

from tests.conftest import Loaded

COLLATIONS = ["NOCASE", "NOACCENT", "NOCASE.NOACCENT", "C"]
CONDITIONS = [
    "n = 'a'",
    "n IN ('A', 'e')",
    "n > 'a'",
    "n <> 'é'",
    "n BETWEEN 'a' AND 'e'",
    "n LIKE 'a%'",
    "lower(n) = 'a'",
]
GROUPS = ["n", "n = 'a'", "lower(n)"]


@pytest.fixture
def names(exact: Loaded, collation: str, declared: bool) -> Loaded:
    exact(f"CREATE TABLE t (id INTEGER PRIMARY KEY, n VARCHAR COLLATE {collation})")
    exact("INSERT INTO t SELECT i, ['a', 'A', 'B', 'é', 'e', NULL][1 + i % 6] FROM range(600) r(i)")
    exact("CALL dp_protect('t', mu := 1e9, delta := 1e-9)")
    if declared:
        exact("""CALL dp_attribute('t', 'n', "values" := ['a', 'A', 'B', 'é', 'e'], nulls := true)""")
    return exact


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("collation", COLLATIONS)
def test_conditions_hold_as_in_duckdb(names: Loaded, collation: str, declared: bool) -> None:
    for condition in CONDITIONS:
        asked = f"SELECT count(*) AS k FROM t WHERE {condition}"
        ((found,),) = names("SELECT k FROM dp_sql(?, mu := 1e6)", [asked])
        assert (condition, round(found)) == (condition, names(asked)[0][0])


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("collation", COLLATIONS)
def test_groups_are_those_of_duckdb_or_refused(names: Loaded, collation: str, declared: bool) -> None:
    for group in GROUPS:
        listed = "WHERE n IN ('a', 'A', 'e', 'é', 'B')" if group == "n" else "WHERE lower(n) IN ('a', 'e', 'é', 'b')"
        asked = f"SELECT {group} AS g, count(*) AS k FROM t {listed} GROUP BY g"
        if collation != "C":
            refused = names.refused("FROM dp_sql(?, mu := 1e6)", [asked])
            assert 'groups by "n", which is compared under a collation' in refused
            continue
        found = {(g, round(k)) for g, k in names("SELECT g, k FROM dp_sql(?, mu := 1e6)", [asked]) if round(k)}
        assert found == {*names(asked)}


@pytest.mark.parametrize("declared", [True])
@pytest.mark.parametrize("collation", ["NOCASE"])
def test_cells_alone_are_refused_and_joins_as_one_table(names: Loaded, collation: str, declared: bool) -> None:
    asked = "SELECT count(*) AS k FROM t WHERE n = 'a'"
    assert "is compared under a collation" in names.refused(f"FROM dp_sql($${asked}$$, mu := 1e6, mechanism := 'hdmm')")
    names(
        "CREATE TABLE p (id INTEGER PRIMARY KEY, n VARCHAR COLLATE NOCASE); CREATE TABLE v (p INTEGER REFERENCES p (id))"
    )
    names("INSERT INTO p SELECT id, n FROM t; INSERT INTO v SELECT id FROM p")
    names("CALL dp_protect(['p', 'v'], unit := 'p.id', max_rows := {'p': 1, 'v': 1}, mu := 1e9, delta := 1e-9)")
    joined = "FROM v JOIN p ON p.id = v.p WHERE n IN ('a', 'b')"
    ((found,),) = names("SELECT k FROM dp_sql(?, mu := 1e6)", [f"SELECT count(*) AS k {joined}"])
    assert round(found) == 300
    refused = names.refused("FROM dp_sql(?, mu := 1e6)", [f"SELECT n, count(*) AS k {joined} GROUP BY n"])
    assert 'groups by "n", which is compared under a collation' in refused


SETTINGS = {
    "integer_division = true": "/ of whole numbers would be //",
    "ieee_floating_point_ops = false": "a division by zero would be an error",
    "old_implicit_casting = true": "compared as texts",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_that_only_a_part_of_an_answer_would_heed_are_refused(exact: Loaded, setting: str) -> None:
    """A condition runs under them and a group of declared cells does not."""
    asked = "SELECT age / 2 AS h, count(*) AS n FROM people WHERE age / 2 > 3 AND race / 2 = 1 GROUP BY h"
    queries = "FROM dp_queries('people', {'race': ['race / 2 = 1']}, mu := 1)"
    name = setting.partition(" ")[0]
    exact(f"SET {setting}")
    try:
        refused = exact.refused("FROM dp_sql(?, mu := 1)", [asked])
        assert SETTINGS[setting] in refused
        assert f"RESET {name} first" in refused
        assert SETTINGS[setting] in exact.refused(queries)
    finally:
        exact(f"RESET {name}")
    exact("FROM dp_sql('SELECT race / 2 AS h, count(*) AS n FROM people GROUP BY h', mu := 1)")


def test_what_is_sorted_by_nothing_is_in_the_order_of_its_cells(exact: Loaded) -> None:
    asked = "FROM dp_sql('SELECT race * 2 AS r, avg(race) AS m FROM people GROUP BY r', mu := 1)"
    before = exact(f"SELECT r {asked}")
    exact("SET default_order = 'desc'")
    try:
        assert exact(f"SELECT r {asked}") == before == [(0,), (2,), (4,), (6,)]
    finally:
        exact("RESET default_order")


NO_TEXTS = [
    "sex = 5", "5 <> sex", "sex IN ('F', 6)", "sex < 2.5", "sex = true", "sex = DATE '2020-01-01'", "sex = -1", "CASE sex WHEN 5 THEN true END", "NOT (sex = 5)",
]  # fmt: skip


@pytest.mark.some(5)
@pytest.mark.parametrize("place", ["WHERE", "FILTER", "sum", "GROUP BY", "joined", "joined sum"])
@pytest.mark.parametrize("declared", [True, False])
def test_texts_are_compared_with_texts(exact: Loaded, declared: bool, place: str) -> None:
    """DuckDB would make numbers of all texts, and fail at the first that is none."""
    if not declared:
        exact(
            "CREATE TABLE p2 AS SELECT row_number() OVER () AS id, * FROM people; CALL dp_protect('p2', mu := 10, delta := 1e-9)"
        )
    for condition in NO_TEXTS:
        select = {
            "WHERE": "SELECT count(*) AS n FROM {1} WHERE {0}",
            "FILTER": "SELECT count(*) FILTER (WHERE {0}) AS n FROM {1}",
            "sum": "SELECT sum(CASE WHEN {0} THEN 1 ELSE 0 END) AS n FROM {1}",
            "GROUP BY": "SELECT {0} AS g, count(*) AS n FROM {1} GROUP BY g",
            "joined": "SELECT count(*) AS n FROM (SELECT * FROM {1}) WHERE {0}",
            "joined sum": "SELECT count(*) FILTER (WHERE {0}) AS n FROM (SELECT * FROM {1})",
        }[place].format(condition, "people" if declared else "p2")
        refused = exact.refused("FROM dp_sql(?, mu := 1)", [select])
        assert (
            "is a text (VARCHAR), and" in refused
            or "an explicit cast is required" in refused
            or "Could not convert" in refused
        ), (condition, refused)
    assert exact("SELECT n FROM dp_sql('SELECT count(*) AS sex FROM people HAVING sex > 5', mu := 1) t(n)")


@pytest.mark.parametrize("more", [0, 9])
def test_declared_texts_are_told_apart_by_their_bytes(exact: Loaded, more: int) -> None:
    """Few texts, which are compared one by one, as many, which are cast: under a collation too."""
    exact(
        "CREATE TABLE few (x VARCHAR COLLATE NOCASE); INSERT INTO few VALUES ('a'), ('A'), ('A'), ('b'), ('á'), (NULL), ('it''s')"
    )
    exact("CALL dp_protect('few', rho := 100)")
    values = ["a", "A", "it's", *(f"other {i}" for i in range(more))]
    exact("CALL dp_attribute('few', 'x', \"values\" := ?)", [values])
    found = exact("SELECT x, round(count)::INTEGER FROM dp_marginals('few', ['x'], rho := 10)")
    assert dict(found) == {"a": 1, "A": 2, "it's": 1} | {f"other {i}": 0 for i in range(more)}


def test_two_collations_are_refused_in_one_line(exact: Loaded) -> None:
    """As DuckDB refuses to compare them: where a view is named, where rows are joined, and inside subqueries."""
    exact(
        "CREATE TABLE a (x VARCHAR COLLATE NOCASE, y VARCHAR COLLATE NOACCENT); CREATE TABLE b (x VARCHAR COLLATE NOACCENT, y VARCHAR)"
    )
    exact("""CALL dp_link('b', "references" := [{'columns': ['x', 'y'], 'references': ['a.x', 'a.y']}])""")
    exact("CALL dp_protect(['a', 'b'], unit := [['a.x', 'a.y']], max_rows := 3, rho := 1e12)")
    joined = "a JOIN b ON a.x = b.x AND a.y = b.y"
    for asked in (
        joined,
        f"(SELECT a.x, a.y FROM {joined})",
        "a WHERE EXISTS (SELECT 1 FROM b WHERE a.x = b.x AND a.y = b.y)",
    ):
        found = exact.refused("FROM dp_sql(?, rho := 1)", [f"SELECT count(*) AS n FROM {asked}"])
        assert "texts of two collations are compared, which DuckDB does not do" in found
    assert "texts of two collations" in exact.refused(f"CALL dp_view('c', 'SELECT a.x, b.y FROM {joined}')")
    assert exact("FROM dp_sql('SELECT count(*) AS n FROM b', rho := 1)")
