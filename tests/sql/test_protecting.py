"""Declarations that promise less than they say: refused where they are never right, noted in a line where they may be."""

from typing import Any

import pytest

TABLES = """
CREATE TABLE visits AS SELECT i % 40 AS patient, i % 7 AS clinic, i % 90 AS age FROM range(200) t(i);
CREATE TABLE clinics AS SELECT i AS clinic, i % 2 = 0 AS open FROM range(7) t(i);
CREATE TABLE friends AS SELECT i AS one, (i + 1) % 40 AS other FROM range(40) t(i);
CREATE SEQUENCE numbers;
CREATE MACRO twice(x) AS 2 * x; CREATE MACRO most(x) AS max(x) OVER (); CREATE MACRO place(x) AS rank() OVER (ORDER BY x);
"""
UNIT = "unit := 'patient', max_rows := 5, "
NEVER = {
    # view: (refused without a unit, refused with unit := 'patient')
    "SELECT clinic, any_value(patient) AS patient, count(*) AS n FROM visits GROUP BY clinic": (True, True),
    "SELECT patient, count(*) AS n FROM visits GROUP BY patient": (True, False),
    "SELECT patient, clinic, avg(age) AS a FROM visits GROUP BY ALL": (True, False),
    "SELECT patient, clinic, avg(age) AS a FROM visits GROUP BY CUBE (patient, clinic)": (True, True),
    "SELECT patient, age - avg(age) OVER () AS a FROM visits": (True, True),
    "SELECT patient, row_number() OVER (PARTITION BY clinic ORDER BY age) AS a FROM visits": (True, True),
    "SELECT patient, row_number() OVER (PARTITION BY patient ORDER BY age) AS a FROM visits": (True, False),
    "SELECT * FROM visits QUALIFY row_number() OVER (PARTITION BY patient ORDER BY age) = 1": (True, False),
    "SELECT * FROM visits LIMIT 100": (True, True),
    "SELECT * FROM visits ORDER BY age LIMIT 10 OFFSET 2": (True, True),
    "SELECT * FROM (SELECT * FROM visits LIMIT 100)": (True, True),
    "SELECT * FROM visits USING SAMPLE 10%": (True, True),
    "SELECT * FROM visits TABLESAMPLE RESERVOIR (20)": (True, True),
    "SELECT *, random() AS r FROM visits": (True, True),
    "SELECT *, nextval('numbers') AS r FROM visits": (True, True),
    "SELECT *, gen_random_uuid() AS r FROM visits": (True, True),
    "SELECT * FROM visits WHERE random() < 0.5": (True, True),
    "SELECT DISTINCT ON (clinic) * FROM visits": (True, True),
    "SELECT DISTINCT ON (patient) * FROM visits": (True, False),
    "SELECT * FROM visits POSITIONAL JOIN friends": (True, True),
    "SELECT * FROM visits WHERE age > (SELECT avg(age) FROM visits)": (True, True),
    "SELECT * FROM visits WHERE age > (SELECT avg(age) FROM visits WHERE patient = patient)": (True, True),
    "SELECT *, (SELECT max(w.age) FROM visits w WHERE w.patient = v.patient) AS most FROM visits v": (True, False),
    "WITH c AS (SELECT clinic, count(*) AS n FROM visits GROUP BY 1) SELECT patient, n FROM visits JOIN c USING (clinic)": (True, True),
    "SELECT patient, string_agg(clinic, ',') AS all_of FROM visits GROUP BY 1": (True, False),
    "FROM query('SELECT any_value(patient) AS patient, avg(age) AS a FROM visits GROUP BY clinic')": (True, True),
    "SELECT patient, most(age) AS a FROM visits": (True, True),
    "SELECT patient, place(age) AS a FROM visits": (True, True),
    "SELECT any_value(patient) AS patient, geomean(age) AS a FROM visits": (True, True),
    "SELECT any_value(patient) AS patient, json_group_array(age) AS a FROM visits": (True, True),
    "SELECT min AS patient, max FROM (SUMMARIZE visits)": (True, True),
    "SELECT patient, stats(age) AS s FROM visits": (True, True),
    "SELECT patient, rowid % 10 AS fold FROM visits": (True, True),
    "SELECT patient, age FROM visits UNION ALL SELECT patient, age FROM visits LIMIT 10": (True, True),
    "SELECT patient, count(*) OVER (PARTITION BY patient % 3) AS n FROM visits": (True, True),
    "SELECT any_value(patient) AS patient, count(*) AS n FROM visits GROUP BY patient % 3": (True, True),
    "SELECT DISTINCT ON (patient % 3) * FROM visits": (True, True),
    "SELECT patient, estimated_size AS s FROM visits, duckdb_tables() t WHERE t.table_name = 'visits'": (True, True),
    "FROM (PIVOT visits ON clinic IN (1, 2) USING count(*))": (True, False),
}  # fmt: skip
PLAIN = {
    "SELECT * FROM visits": (False, False),
    "SELECT patient, clinic + 1 AS c, upper('x') AS x FROM visits WHERE age > 3 ORDER BY age": (False, False),
    "SELECT DISTINCT patient, clinic FROM visits": (False, False),
    # (noted without a unit, noted with one)
    "SELECT * FROM visits JOIN clinics USING (clinic)": (True, False),
    "SELECT patient, other FROM visits JOIN friends ON patient = one": (True, True),
    "SELECT v.* FROM visits v JOIN visits w ON v.patient = w.patient": (True, False),
    "SELECT v.* FROM visits v JOIN visits w ON v.patient <> w.patient": (True, True),
    "SELECT v.* FROM visits v JOIN visits w ON v.clinic = w.patient": (True, True),
    "SELECT patient, clinic FROM visits EXCEPT SELECT one, other FROM friends": (True, True),
    "SELECT patient, twice(age) AS a FROM visits": (False, False),
    "FROM visits UNPIVOT (x FOR y IN (clinic, age))": (True, False),
    "SELECT patient, other FROM visits JOIN friends ON clinic = one": (True, True),
    "SELECT * FROM visits UNION ALL SELECT * FROM visits": (True, False),
    "SELECT patient, unnest([clinic, age]) AS x FROM visits": (True, False),
    "SELECT * FROM visits WHERE clinic IN (SELECT clinic FROM clinics WHERE open)": (False, False),
    "SELECT * FROM visits WHERE patient IN (SELECT one FROM friends)": (True, True),
    "SELECT v.* FROM visits v JOIN (SELECT clinic, max(open) AS o FROM clinics GROUP BY 1) USING (clinic)": (True, False),
}  # fmt: skip


@pytest.fixture(scope="module")
def views(shared: Any) -> Any:
    shared(TABLES)
    shared("CALL dp_public('clinics')")
    return shared


@pytest.mark.some(4)
@pytest.mark.parametrize("unit", [False, True], ids=["single rows", "a unit"])
@pytest.mark.parametrize("text", NEVER)
def test_views_in_which_one_persons_rows_change_others_are_refused(views: Any, text: str, unit: bool) -> None:
    own = f"never_{int(unit)}_{list(NEVER).index(text)}"
    views(f"CREATE VIEW {own} AS {text}; CREATE VIEW over_{own} AS SELECT * FROM {own}")
    for name in (own, f"over_{own}"):
        call = f"CALL dp_protect('{name}', {UNIT if unit else ''}epsilon := 1, delta := 1e-9)"
        if NEVER[text][unit]:
            line = views.refused(call)
            assert f"'{name}' cannot be protected" in line
            assert "unit := '...'" in line
        else:
            ((_, neighbours, *_),) = views(call)
            assert "one 'patient'" in neighbours


@pytest.mark.some(5)
@pytest.mark.parametrize("unit", [False, True], ids=["single rows", "a unit"])
@pytest.mark.parametrize("text", PLAIN)
def test_views_that_may_promise_less_are_noted(views: Any, text: str, unit: bool) -> None:
    name = f"plain_{int(unit)}_{list(PLAIN).index(text)}"
    views(f"CREATE VIEW {name} AS {text}")
    ((*_, note),) = views(f"CALL dp_protect('{name}', {UNIT if unit else ''}epsilon := 1, delta := 1e-9)")
    noted = note is not None and "the view has" in note
    assert noted == PLAIN[text][unit]
    if noted and not unit:
        assert "unit := '...', max_rows := ..." in note


FALLIBLE = {
    "SELECT patient, CAST(age AS TINYINT) AS a FROM visits": "a cast",
    "SELECT * FROM visits WHERE age::VARCHAR::INTEGER > 3": "a cast",
    "SELECT * FROM visits WHERE CASE WHEN age > 99 THEN error('boom ' || patient) ELSE true END": "error(...)",
    "SELECT patient, age + 1 AS a, sqrt(age) AS b FROM visits": "+, sqrt(...)",
    "SELECT patient, twice(age) AS a FROM visits": "*",
    "SELECT patient, TRY_CAST(age AS TINYINT) AS a, TRY(sqrt(age)) AS b, age::VARCHAR AS c, age / 2 AS d FROM visits": None,
    "SELECT patient, '2020-01-01'::DATE AS a, upper('x') AS x FROM visits WHERE age > 3": None,
}


@pytest.mark.parametrize("text", FALLIBLE)
def test_expressions_whose_errors_would_show_a_value_are_noted(views: Any, text: str) -> None:
    name = f"fails_{list(FALLIBLE).index(text)}"
    views(f"CREATE VIEW {name} AS {text}; CREATE VIEW over_{name} AS SELECT * FROM {name}")
    for view in (name, f"over_{name}"):
        ((*_, note),) = views(f"CALL dp_protect('{view}', {UNIT}epsilon := 1, delta := 1e-9)")
        said = None if note is None or "an expression of the view" not in note else note
        assert (said is None) == (FALLIBLE[text] is None)
        assert said is None or f"fails on a value ({FALLIBLE[text]})" in said


def test_the_columns_of_one_unit_of_two_are_not_enough(views: Any) -> None:
    views("CREATE VIEW pairs AS SELECT patient, clinic, count(*) AS n FROM visits GROUP BY patient, clinic")
    views(
        "CREATE VIEW halves AS SELECT patient, any_value(clinic) AS clinic, count(*) AS n FROM visits GROUP BY patient"
    )
    call = "CALL dp_protect('{}', unit := ['patient', 'clinic'], max_rows := 9, rho := 1)"
    views(call.format("pairs"))
    assert "cannot be protected" in views.refused(call.format("halves"))


OF_ONE_NAME = [
    "CREATE VIEW staged.{0} AS {1}; CREATE VIEW {0} AS FROM staged.{0}",
    "CREATE VIEW staged.{0}_rows AS {1}; CREATE VIEW other.{0}_rows AS FROM visits; CREATE VIEW {0} AS FROM staged.{0}_rows",
    "CREATE VIEW other.{0}_rows AS {1}; CREATE VIEW staged.{0}_rows AS FROM visits; CREATE VIEW {0} AS FROM other.{0}_rows",
]


@pytest.mark.parametrize("made", range(len(OF_ONE_NAME)))
@pytest.mark.parametrize("text", ["SELECT patient, count(*) OVER () AS n FROM visits", "FROM visits LIMIT 10"])
def test_views_of_one_name_in_several_schemas_are_all_looked_at(views: Any, made: int, text: str) -> None:
    name = f"same_{made}_{len(text)}"
    views("CREATE SCHEMA IF NOT EXISTS staged; CREATE SCHEMA IF NOT EXISTS other")
    views(OF_ONE_NAME[made].format(name, text))
    assert f"'{name}' cannot be protected" in views.refused(
        f"CALL dp_protect('{name}', {UNIT}epsilon := 1, delta := 1e-9)"
    )


def test_all_forms_of_a_macro_are_looked_at(views: Any) -> None:
    views("CREATE MACRO more(x) AS x, (x, y) AS count(*) OVER (), (x, y, z) AS x")
    views("CREATE VIEW numbered AS SELECT patient, more(age, 1) AS n FROM visits")
    assert "'numbered' cannot be protected" in views.refused(
        f"CALL dp_protect('numbered', {UNIT}epsilon := 1, delta := 1e-9)"
    )


def test_generated_columns_are_noted(views: Any) -> None:
    """DuckDB checks them where a row is inserted, and not where it is changed; of views of such a table, what the views say is noted."""
    views(
        "CREATE TABLE shares (id INTEGER PRIMARY KEY, fee VARCHAR, number INTEGER GENERATED ALWAYS AS (fee::INTEGER))"
    )
    views(
        "CREATE TABLE parts (id INTEGER REFERENCES shares (id), twice INTEGER AS (id * 2)); CREATE TABLE rest AS SELECT 1 AS id"
    )
    for call in ("['shares', 'parts'], unit := 'shares.id', max_rows := 2", "'rest'"):
        for dataset, *_, note in views(f"CALL dp_protect({call}, epsilon := 1, delta := 1e-9, another := true)"):
            said = note is not None and "where a generated column fails on a value" in note
            assert said == (not dataset.endswith("rest"))


def test_one_table_and_a_view_of_it_have_two_budgets(views: Any) -> None:
    views(
        "CREATE TABLE staff AS SELECT 1 AS a; CREATE VIEW seniors AS SELECT * FROM staff; CREATE TABLE other AS SELECT 1 AS a"
    )
    ((*_, note),) = views("CALL dp_protect('staff', epsilon := 1, delta := 1e-9)")
    assert note is None
    ((*_, note),) = views("CALL dp_protect('other', epsilon := 1, delta := 1e-9)")
    assert note is None
    ((*_, note),) = views("CALL dp_protect('seniors', epsilon := 1, delta := 1e-9)")
    assert "those of 'staff', with a budget too" in note
    assert "the sum of the budgets" in note


def test_a_view_that_is_protected_stays_so(views: Any) -> None:
    views("CREATE VIEW young AS SELECT * FROM visits WHERE age < 30")
    views("CALL dp_protect('young', epsilon := 1, delta := 1e-9)")
    views("CREATE OR REPLACE VIEW young AS SELECT * FROM visits LIMIT 10")
    views("CALL dp_protect('young', epsilon := 1, delta := 1e-9)")


@pytest.mark.slow
def test_macros_are_read_where_a_view_may_stand(exact: Any) -> None:
    """They are left out where tables are committed at all names, so no view may take such a name on the way."""
    exact(TABLES)
    call = "CALL dp_protect('{}', epsilon := 1, delta := 1e-9)"
    replaced = "BEGIN; ALTER TABLE friends RENAME TO others; CREATE VIEW friends AS SELECT most(one) AS a FROM others"
    exact("BEGIN; CREATE VIEW ranked AS SELECT patient, most(age) AS a FROM visits")
    assert "'ranked' cannot be protected" in exact.refused(call.format("ranked"))
    exact(f"ROLLBACK; {replaced}")
    assert "'friends' became a view since the call was planned" in exact.refused(call.format("friends"))
    exact(f"ROLLBACK; {call.format('friends')}")
    exact(replaced)
    assert "'friends' became a view since the call was planned" in exact.refused(call.format("visits"))
    exact("ROLLBACK")
    exact(call.format("visits"))


@pytest.mark.parametrize("delta", [0.5, 0.1, 0.02, 1])
def test_a_delta_that_promises_nothing_is_refused(views: Any, delta: float) -> None:
    assert "delta" in views.refused(f"CALL dp_protect('friends', epsilon := 1, delta := {delta})")


def test_a_large_delta_is_noted(views: Any) -> None:
    ((*_, note),) = views("CALL dp_protect('friends', epsilon := 1, delta := 0.001)")
    assert "use less than one over the number of people" in note


def test_an_enum_without_a_name_is_noted(views: Any) -> None:
    views("CREATE TYPE size AS ENUM ('s', 'm'); CREATE TABLE shirts (made size, read ENUM('a', 'b'))")
    views("CALL dp_protect('shirts', epsilon := 1, delta := 1e-9)")
    notes = {name: note for name, _, _, note in views("CALL dp_attributes('shirts')")}
    assert notes["made"] is None
    assert "as pandas makes one of the data" in notes["read"]
    assert "CALL dp_attribute('shirts', 'read', \"values\" := [...])" in notes["read"]


def test_what_a_table_refers_to_stays(views: Any) -> None:
    views("CREATE TABLE a AS SELECT 1 AS id; CREATE TABLE b AS SELECT 1 AS id; CREATE TABLE l AS SELECT 1 AS x, 1 AS y")
    views("CALL dp_protect('l', unit := 'x', max_rows := 2, rho := 1)")
    first = "CALL dp_link('l', \"references\" := {'x': 'a.id', 'y': 'b.id'})"
    views(first)
    assert len(views(first)) == 2
    for other in (
        "{'x': 'b.id', 'y': 'a.id'}", "{'x': 'b.id'}", "{'x': 'a.id', 'y': 'b.id'}, \"distinct\" := false",
    ):  # fmt: skip
        line = views.refused(f"CALL dp_link('l', \"references\" := {other})")
        assert "a declaration stays" in line
