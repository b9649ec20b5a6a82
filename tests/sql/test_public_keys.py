"""References to public tables that are no links: the column is drawn as any other, and its values are the keys there."""

import pytest

from tests.conftest import Loaded

TABLES = """
CREATE TABLE patients (pid INTEGER PRIMARY KEY, sex VARCHAR);
CREATE TABLE wards (wid INTEGER PRIMARY KEY, kind VARCHAR);
CREATE TABLE drugs AS SELECT 'it''s d' || i AS code, i % 2 AS class FROM range(20) r(i);
CREATE TABLE towns AS SELECT i AS town FROM range({towns}) r(i);
CREATE TABLE stays (sid INTEGER PRIMARY KEY, pid INTEGER REFERENCES patients (pid), wid INTEGER REFERENCES wards (wid),
    code VARCHAR, town {type}, days INTEGER);
INSERT INTO patients SELECT i, ['f', 'm'][i % 2 + 1] FROM range(300) r(i);
INSERT INTO wards SELECT i, ['icu', 'general', 'surgery'][i % 3 + 1] FROM range(12) r(i);
INSERT INTO stays SELECT row_number() OVER (), i, CASE WHEN (i + n) % 3 = 0 THEN NULL ELSE (i % 2) * 6 + n END, 'it''s d' || (i * 7 + n) % 20,
    i % 9, n FROM range(300) r(i), range(4) s(n) WHERE n <= i % 4;
CALL dp_public(['wards', 'drugs', 'towns']);
CALL dp_link('stays', "references" := {{'pid': 'patients.pid', 'wid': 'wards.wid', 'code': 'drugs.code', 'town': 'towns.town'}});
CALL dp_protect(['patients', 'stays'], unit := 'patients.pid', rho := 1e6, max_rows := {{'stays': 4}});
CALL dp_attributes('patients', {{'sex': ['f', 'm']}}); CALL dp_attributes('stays', {{'days': [0, 1, 2, 3]}});
"""
MADE = "CALL dp_synthesize_database('main', target := 'syn', tables := ['patients', 'stays'], rho := 1000)"


@pytest.mark.some(1)
@pytest.mark.parametrize("type_", ["BIGINT", "SMALLINT"])
def test_columns_of_facts_have_keys_of_public_tables(exact: Loaded, type_: str) -> None:
    exact(TABLES.format(towns=30, type=type_))
    note = exact(MADE)[-1][-1]
    assert "'wards' is public, and wid is drawn as any column, with the keys of 'wards' as its values" in note
    assert ("town refers to 'towns' without a constraint, as the types of the keys differ" in note) == (
        type_ == "SMALLINT"
    )
    for column, table in (("wid", "wards"), ("code", "drugs"), ("town", "towns")):
        assert exact(
            f"SELECT count(*) FROM syn.stays ANTI JOIN syn.{table} USING ({column}) WHERE {column} IS NOT NULL"
        ) == [(0,)]
        select = f"SELECT {column}, count(*) FROM {{}}.stays GROUP BY 1"
        one, other = (dict(exact(select.format(schema))) for schema in ("main", "syn"))
        assert sum(abs(one.get(key, 0) - other.get(key, 0)) for key in {*one, *other}) < 40  # of 750
    constraints = exact(
        "SELECT constraint_text FROM duckdb_constraints() WHERE schema_name = 'syn' AND constraint_type = 'FOREIGN KEY'"
    )
    assert len(constraints) == 3 + (type_ == "BIGINT")
    both = "SELECT sex, wid < 6, count(*) FROM {0}.patients JOIN {0}.stays USING (pid) WHERE wid IS NOT NULL GROUP BY ALL ORDER BY ALL"
    assert [row[:2] for row in exact(both.format("main"))] == [("f", True), ("m", False)]
    assert sum(row[2] for row in exact(both.format("syn")) if row[:2] in (("f", False), ("m", True))) < 40


def test_of_too_many_keys_none_is_a_value(exact: Loaded) -> None:
    exact(TABLES.format(towns=2000, type="BIGINT"))
    note = exact(MADE)[-1][-1]
    assert "'towns' is public, and these links to it are not drawn: town unknown" in note
    assert "town" not in exact.columns("FROM syn.stays")


def test_of_links_rows_without_a_partner_are_left_out_and_the_plan_says_what_keeps_them(exact: Loaded) -> None:
    exact(
        "CREATE TABLE patients AS SELECT i AS pid, i % 2 AS sex FROM range(300) r(i); "
        "CREATE TABLE wards AS SELECT i AS wid, i % 3 AS kind FROM range(6) r(i); CREATE TABLE stays AS SELECT i AS pid, "
        "CASE WHEN i % 3 > 0 THEN i % 6 END AS wid, i % 4 AS days FROM range(300) r(i), range(2) s(n); CALL dp_public(['wards']); "
        "CALL dp_link('stays', \"references\" := {'pid': 'patients.pid', 'wid': 'wards.wid'}); "
        "CALL dp_protect(['patients', 'stays'], unit := 'patients.pid', rho := 1e6, max_rows := {'stays': 2}); "
        "CALL dp_attributes('patients', {'sex': [0, 1]}); CALL dp_attributes('stays', {'days': [0, 1, 2, 3]})"
    )
    plan = exact(MADE[:-1] + ", plan := true)")
    keeps = "CALL dp_attribute('stays', 'wid', nulls := true)"
    assert "rows whose wid is NULL are left out (to draw wid as any column, with NULL: " + keeps in plan[-1][-1]
    exact(keeps.replace("low := ..., high := ...", "low := 0, high := 5"))
    assert [row[2] for row in exact(MADE)] == ["rows", "rows", "parents in patients"]
    ((rows, held),) = exact("SELECT count(*), count(wid) FROM syn.stays")
    assert abs(rows - 600) < 20
    assert abs(held - 400) < 20


CHAIN = """
CREATE TABLE patients AS SELECT i AS pid, i % 2 AS sex FROM range(400) r(i);
CREATE TABLE wards AS SELECT i AS ward, i % 3 AS kind FROM range(6) r(i); CREATE TABLE codes AS SELECT 'c' || i AS icd FROM range(6) r(i);
CREATE TABLE doctors AS SELECT i AS doctor FROM range(3) r(i);
CREATE TABLE stays AS SELECT i * 2 + n AS sid, i AS pid, CASE WHEN i % 5 > {nulls} THEN (i * 7 + n * i) % 6 END AS ward, i % 3 AS doctor,
    n AS days FROM range(400) r(i), range(2) s(n);
CREATE TABLE findings AS SELECT row_number() OVER () AS fid, sid, 'c' || CASE WHEN sid % 9 = 0 THEN sid % 6 ELSE coalesce(ward, 0) END AS icd,
    days AS again FROM stays, range(2) s(n) WHERE n <= ward % 2;
CALL dp_public(['wards', 'codes', 'doctors']);
CALL dp_link('stays', "references" := {{'pid': 'patients.pid', 'ward': 'wards.ward'{more}}});
CALL dp_link('findings', "references" := {{'sid': 'stays.sid', 'icd': 'codes.icd'}});
CALL dp_protect(['patients', 'stays', 'findings'], unit := 'patients.pid', rho := 1e6, max_rows := {{'stays': 2, 'findings': 4}});
CALL dp_attributes('patients', {{'sex': [0, 1]}}); CALL dp_attributes('stays', {{'days': [0, 1]}});
CALL dp_attributes('findings', {{'again': [0, 1]}});
"""


@pytest.mark.some(1)
@pytest.mark.parametrize("nulls", [-1, 1])
@pytest.mark.parametrize("more", ["", ", 'doctor': 'doctors.doctor'"])
def test_what_refers_to_rows_depends_on_their_public_keys(exact: Loaded, more: str, nulls: int) -> None:
    """With one more reference the ward is a column of stays, and without it the other end of links; and it may be NULL."""
    exact(CHAIN.format(more=more, nulls=nulls))
    ask = (
        "CALL dp_synthesize_database('main', target := 'syn', tables := ['patients', 'stays', 'findings'], rho := 3000"
    )
    plan = exact(ask + ", plan := true)")
    assert ("links to patients and wards" in [row[2] for row in plan]) == (not more)
    columns = "ward, doctor" if more else "ward"
    assert f"what rows have in common with {columns} of 'stays' is measured as if declared" in plan[-1][-1]
    exact(ask + ")")
    select = "SELECT avg(('c' || ward = icd)::INTEGER), count(*) FROM {}.stays JOIN {}.findings USING (sid) WHERE ward IS NOT NULL"
    ((real, _),), ((made, rows),) = (exact(select.format(schema, schema)) for schema in ("main", "syn"))
    assert real > 0.85
    assert made > 0.4  # and about 1 in 6 where nothing is known of it
    assert rows > 500
    ((odd, even),) = exact(
        "SELECT avg(n) FILTER (ward % 2 = 1), avg(n) FILTER (ward % 2 = 0) FROM (SELECT ward, count(icd) AS n FROM syn.stays LEFT JOIN "
        "syn.findings USING (sid) WHERE ward IS NOT NULL GROUP BY sid, ward)"
    )
    assert odd > even + 0.3  # two and one; alike where nothing is known of it


def test_of_declared_columns_nothing_else_is_measured(exact: Loaded) -> None:
    exact(CHAIN.format(more=", 'doctor': 'doctors.doctor'", nulls=-1))
    exact(
        "CALL dp_attribute('stays', 'ward', low := 0, high := 5); CALL dp_attribute('stays', 'doctor', low := 0, high := 2)"
    )
    plan = exact(
        "CALL dp_synthesize_database('main', target := 'syn', tables := ['patients', 'stays', 'findings'], rho := 3000, plan := true)"
    )
    assert "is measured as if declared" not in str(plan)
