"""What views read, by their texts: one of the protected rows, or one that cannot be seen through, is never public."""

from typing import Any

import pytest

TABLES = """
CREATE TABLE staff (id INTEGER PRIMARY KEY, boss INTEGER, pay INTEGER); INSERT INTO staff SELECT i, i // 3, i % 4 FROM range(60) t(i);
CREATE TABLE extra AS SELECT i::INTEGER AS id, (i % 4)::INTEGER AS pay FROM range(9) t(i);
COPY staff TO '{folder}/staff.csv'; COPY extra TO '{folder}/extra.csv'; COPY extra TO '{folder}/extra.parquet';
CREATE SCHEMA o; CREATE VIEW o.b AS FROM staff; CREATE VIEW again AS FROM o.b; CREATE VIEW calm AS FROM extra;
CREATE MACRO all_staff() AS TABLE FROM staff; CREATE MACRO most() AS (SELECT max(pay) FROM staff); CREATE MACRO plus(x) AS x + 1;
CREATE MACRO any_of(t) AS TABLE FROM query_table(t); CREATE MACRO dp_like() AS TABLE FROM staff; CREATE MACRO twice() AS TABLE FROM again;
CREATE VIEW filed AS FROM read_csv('{folder}/staff.csv'); CREATE VIEW child AS FROM staff; CREATE VIEW parent AS FROM extra;
CREATE VIEW declared AS FROM extra; CALL dp_public('declared');
CALL dp_protect('staff', rho := 900); CALL dp_protect('filed', rho := 9); CALL dp_protect('child', rho := 900);
CALL dp_protect('parent', rho := 9); CALL dp_attribute('staff', 'pay', low := 0, high := 3);
CALL dp_attribute('child', 'pay', low := 0, high := 3); CALL dp_attribute('parent', 'pay', low := 0, high := 3);
CALL dp_link('child', "references" := {{'boss': 'parent.id', 'id': 'child.id'}}); CALL dp_public('parent', links := 'child');
CREATE OR REPLACE VIEW child AS FROM staff UNION ALL FROM filed;
CREATE TABLE syn AS SELECT * EXCLUDE (private) FROM dp_synthesize('staff', rho := 5, release := 'one'); SET VARIABLE v = 'staff';
"""

READING = [
    "FROM staff", 'FROM main."STAFF"', "FROM memory.main.staff", "FROM staff AS s", "FROM o.b", "FROM again", "FROM filed", "FROM child",
    "SELECT [x * 2 for x in [1, 2] if x > 1] FROM staff", "SELECT COLUMNS(lambda c: c IN ('id', 'pay')) FROM staff",
    "FROM extra WHERE EXISTS (FROM staff s WHERE s.id = extra.id)", "FROM extra WHERE id IN (SELECT id FROM staff)",
    "FROM extra WHERE pay < ALL (SELECT pay FROM staff)", "FROM extra WHERE pay = (FROM (SELECT max(pay) FROM staff))",
    "SELECT (SELECT max(pay) FROM staff) FROM extra", "FROM extra ORDER BY (SELECT count(*) FROM staff)",
    "FROM extra LIMIT (SELECT max(pay) FROM staff)", "FROM extra OFFSET (SELECT max(pay) FROM staff)",
    "FROM extra QUALIFY row_number() OVER (ORDER BY (SELECT max(pay) FROM staff)) < 5",
    "SELECT count(*) OVER (PARTITION BY (SELECT 1 FROM staff LIMIT 1)) FROM extra",
    "SELECT max(pay) FILTER (id IN (SELECT id FROM staff)) FROM extra", "SELECT 1 FROM extra HAVING 1 < (SELECT count(*) FROM staff)",
    "SELECT 1 FROM extra GROUP BY (SELECT max(pay) FROM staff)", "SELECT CASE WHEN true THEN (SELECT 1 FROM staff LIMIT 1) END FROM extra",
    "SELECT * REPLACE ((SELECT 1 FROM staff LIMIT 1) AS pay) FROM extra", "SELECT unnest((SELECT list(id) FROM staff))",
    "SELECT {'a': (SELECT max(pay) FROM staff)}.a", "SELECT list_value((SELECT max(pay) FROM staff))[1]",
    "SELECT id FROM extra UNION ALL SELECT id FROM staff", "SELECT id FROM extra EXCEPT SELECT id FROM staff",
    "FROM extra UNION BY NAME SELECT id FROM staff", "SELECT id FROM extra INTERSECT ALL SELECT id FROM staff",
    "SELECT e.id FROM extra e, LATERAL (SELECT pay FROM staff WHERE staff.id = e.id) s", "SELECT e.id FROM extra e ASOF JOIN staff s ON e.id >= s.id",
    "SELECT e.id FROM extra e POSITIONAL JOIN staff", "FROM extra ANTI JOIN staff USING (id)", "SELECT e.id FROM extra e NATURAL JOIN staff",
    "FROM staff TABLESAMPLE 100%", "WITH a AS (FROM staff) FROM a", "WITH a AS MATERIALIZED (FROM staff), b AS (FROM a) FROM b",
    "WITH a AS (WITH b AS (FROM staff) FROM b) FROM a", "WITH staff AS (SELECT * FROM staff) FROM staff", "WITH staff AS (FROM extra) FROM staff",
    "WITH RECURSIVE r AS (SELECT id FROM extra UNION ALL SELECT s.id FROM staff s JOIN r ON s.boss = r.id WHERE s.id > r.id) FROM r",
    "FROM all_staff()", "FROM dp_like()", "FROM twice()", "SELECT most()", "SELECT plus(most())", "FROM query('FROM staff')",
    "FROM query('SELECT id FROM (FROM query(''FROM staff''))')", "FROM query_table('staff')", "FROM query_table('main.staff')",
    "FROM (PIVOT staff ON pay IN (0, 1) USING count(*) GROUP BY id)", "FROM (UNPIVOT (SELECT id, pay FROM staff) ON pay INTO NAME n VALUE v)",
    "FROM '{d}/staff.csv'", "FROM read_csv('{d}/sta*.csv')", "FROM read_csv(['{d}/extra.csv', '{d}/staff.csv'])",
    "FROM read_csv_auto('{d}/staff.csv', header = true)", "FROM read_csv('{d}/../{last}/staff.csv')", "FROM read_csv('{d}/[r-t]taff.csv')",
    "FROM read_text('{d}/staff.csv')", "FROM read_text('{d}/*')", "FROM glob('{d}/*')",
]  # fmt: skip
"""Texts that read protected rows, or may."""

HIDING = {
    "FROM any_of('staff')": "calls query_table(...)", "FROM any_of('extra')": "calls query_table(...)",
    "FROM query('FROM ' || 'staff')": "calls query(...)", "FROM query_table('sta' || 'ff')": "calls query_table(...)",
    "FROM query_table(getvariable('v'))": "calls getvariable(...)", "SELECT getvariable('v') FROM extra": "calls getvariable(...)",
    "FROM read_csv('{d}/' || 'staff.csv')": "calls read_csv(...)", "SELECT a_function(pay) FROM extra": "calls a_function(...)",
    "FROM (SUMMARIZE staff)": "reads show", "FROM (DESCRIBE staff)": "reads show", "FROM duckdb_tables()": "calls duckdb_tables(...)",
    "FROM pragma_storage_info('staff')": "calls pragma_storage_info(...)", "FROM pragma_table_info('staff')": "calls pragma_table_info(...)",
    "FROM histogram('staff', 'pay')": "calls histogram(...)", "FROM information_schema.tables": "reads 'tables'",
    "FROM system.main.duckdb_tables": "reads 'duckdb_tables'", "FROM duckdb_columns": "reads 'duckdb_columns'",
    "FROM pg_catalog.pg_class": "reads 'pg_class'", "FROM arrow_rows": "reads 'arrow_rows'", "FROM test_all_types()": "calls test_all_types(...)",
}  # fmt: skip
"""Texts of which nobody can tell what they read."""

APART = [
    "FROM extra", "FROM calm", 'FROM "EXTRA" AS staff', "SELECT id AS staff FROM extra", "SELECT 'FROM staff' FROM extra", "SELECT plus(pay) FROM extra",
    "FROM query('FROM extra')", "FROM query_table('extra')", "FROM range(4)", "FROM generate_series(1, 4)", "VALUES (1, 2)", "SELECT unnest([1, 2])",
    "WITH one AS (FROM extra), two AS (FROM one) FROM two", "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r WHERE x < 9) FROM r",
    "FROM dp_release('one')", "FROM dp_synthesize('staff', rho := 5)", "FROM dp_budget()", "FROM syn JOIN extra USING (pay)",
    "FROM read_csv('{d}/extra.csv')", "FROM '{d}/extra.csv'", "FROM read_parquet('{d}/extra.parquet')", "SELECT e.id FROM extra e POSITIONAL JOIN syn",
    "FROM (PIVOT extra ON pay IN (0, 1) USING count(*) GROUP BY id)", "SELECT coalesce(nullif(pay, 1), ifnull(pay, 2), if(pay > 1, 2, 3)) FROM extra",
    "SELECT sum(pay) OVER (ORDER BY id ROWS 1 PRECEDING) + lag(pay) OVER (ORDER BY id) + rank() OVER (ORDER BY id) FROM extra",
    "SELECT [x for x in [pay] if x > 0], list_transform([pay], lambda x: x + 1), {'a': pay}.a, MAP {'a': 1} FROM extra",
    "SELECT extract(year FROM DATE '2020-01-01') + date_part('year', current_date), 'a' LIKE 'b', 'a' SIMILAR TO 'b', @pay FROM extra",
    "SELECT string_agg(pay::VARCHAR, ','), count(DISTINCT id), quantile_cont(pay, 0.5), array_agg(pay ORDER BY id) FROM extra GROUP BY CUBE (id, pay)",
]  # fmt: skip
"""Texts that read nothing of the protected rows."""


@pytest.fixture(scope="module")
def seen(shared: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Give a text to the views 'seen', 'declared', which was declared public, and 'parent', to which 'child' refers."""
    folder = tmp_path_factory.mktemp("files")
    shared(TABLES.format(folder=folder))
    shared.connection.create_function("a_function", abs, ["BIGINT"], "BIGINT")
    arrow_rows = shared.connection.sql("FROM staff").to_arrow_table()

    def give(text: str, *views: str) -> Any:
        text = text.replace("{d}", str(folder)).replace("{last}", folder.name)
        for view in ("seen", "declared", "parent"):
            given = f"CREATE OR REPLACE VIEW {view} AS SELECT 1::INTEGER AS id, 2::INTEGER AS pay FROM ({text if view in views else 'VALUES (1)'})"
            assert arrow_rows is not None
            shared.connection.execute(given)
        return shared

    return give


LINKS = "FROM dp_links('child', synthetic := {'child': 'syn', 'parent': 'syn'}, rho := 50)"
USES = {"CALL dp_public('seen')": "seen", "FROM dp_quality('staff', 'declared', exact := true)": "declared"}


@pytest.mark.some(3)
@pytest.mark.parametrize("text", READING)
def test_what_reads_protected_rows_is_not_public(seen: Any, text: str) -> None:
    db = seen(text, "seen", "declared")
    for use, name in USES.items():
        line = db.refused(use)
        assert f"'{name}' may be read from '" in line
        assert "which is protected, so it is not public" in line
    assert "'parent' may be read from the rows that 'child' protects" in seen(text, "parent").refused(LINKS)


@pytest.mark.some(3)
@pytest.mark.parametrize("text", HIDING)
def test_what_cannot_be_seen_through_is_not_public(seen: Any, text: str) -> None:
    db = seen(text, "seen", "declared")
    for use, name in USES.items():
        line = db.refused(use)
        assert f"'{name}' {HIDING[text]}" in line
        assert line.endswith("make a table of it, and name that.")
    assert f"'parent' {HIDING[text]}" in seen(text, "parent").refused(LINKS)


@pytest.mark.some(2)
@pytest.mark.parametrize("text", APART)
def test_what_reads_other_rows_can_be_public(seen: Any, text: str) -> None:
    db = seen(text, "seen", "declared")
    assert db("CALL dp_public('seen')") == [("memory.main.seen", "everywhere")]
    for view in ("seen", "declared"):
        assert db(f"FROM dp_quality('staff', '{view}', exact := true)")
    assert len(seen(text, "parent")(LINKS)) == len(db("FROM syn"))
