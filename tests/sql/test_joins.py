"""dp_sql over joined tables and subqueries: DuckDB's own answers with the noise off, and one line, uncharged, for what mixes people."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE clinics (clinic_id INTEGER PRIMARY KEY, region VARCHAR NOT NULL, beds INTEGER, head VARCHAR);
CREATE TABLE codes (drug VARCHAR, class VARCHAR);
CREATE TABLE secret (patient_id INTEGER, region VARCHAR);
CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR, born DATE, clinic_id INTEGER, email VARCHAR UNIQUE NOT NULL);
CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER REFERENCES patients (patient_id),
                     clinic_id INTEGER REFERENCES clinics (clinic_id), charge INTEGER, paid DOUBLE, day DATE, reason VARCHAR);
CREATE TABLE drugs (visit_id INTEGER REFERENCES visits (visit_id), drug VARCHAR, days INTEGER, doctor INTEGER);
INSERT INTO clinics SELECT i, ['north', 'south', 'east'][1 + i % 3], i * 10, CASE WHEN i > 2 THEN 'h' || i END FROM range(6) t(i);
INSERT INTO codes SELECT 'd' || i, ['pain', 'cold'][1 + i % 2] FROM range(4) t(i);
INSERT INTO secret SELECT i, 'x' FROM range(40) t(i);
INSERT INTO patients SELECT i, ['f', 'm'][1 + i % 2], DATE '1950-01-01' + (i * 400)::INTEGER, i % 6, 'p' || i FROM range(40) t(i);
INSERT INTO visits SELECT i, CASE WHEN i % 20 > 0 THEN i * 7 % 38 END, CASE WHEN i % 9 > 0 THEN i % 5 END, i % 10, i / 7, DATE '2020-01-01' + (i * 3)::INTEGER,
    ['flu', 'leg', 'eye'][1 + i % 3] FROM range(160) t(i);
INSERT INTO drugs SELECT i % 150, 'd' || i % 5, i % 5, i % 40 FROM range(600) t(i);
"""
DECLARED = """
CALL dp_protect(['patients', 'visits', 'drugs'], unit := 'patients.patient_id', max_rows := {'patients': 1, 'visits': 90, 'drugs': 200}, rho := 1e15);
CALL dp_public(['clinics', 'codes']);
CALL dp_attribute('patients', 'sex', "values" := ['f', 'm']);
CALL dp_attribute('patients', 'clinic_id', low := 0, high := 5);
CALL dp_attribute('visits', 'charge', low := 0, high := 9);
CALL dp_attribute('visits', 'paid', bins := range(0, 31));
CALL dp_attribute('visits', 'day', low := DATE '2020-01-01', high := DATE '2021-12-31', step := INTERVAL 1 DAY);
CALL dp_attribute('visits', 'reason', "values" := ['flu', 'leg', 'eye']);
CALL dp_attribute('drugs', 'days', low := 0, high := 4);
CALL dp_attribute('drugs', 'drug', "values" := ['d0', 'd1', 'd2', 'd3'], other := true);
"""

ANSWERED = [
    "SELECT sex, count(*) AS n, sum(charge) AS s FROM visits JOIN patients USING (patient_id) GROUP BY sex",
    "SELECT p.sex, count(*) AS n FROM visits AS v, patients AS p WHERE v.patient_id = p.patient_id AND v.charge > 3 GROUP BY p.sex",
    "SELECT region, avg(v.charge) AS mean FROM visits v JOIN clinics c ON v.clinic_id = c.clinic_id JOIN patients p ON v.patient_id = p.patient_id WHERE c.beds > 0 GROUP BY region",
    "SELECT region, sex, count(*) AS n FROM patients NATURAL JOIN clinics GROUP BY ALL",
    "SELECT c.region, count(*) AS n FROM patients p LEFT JOIN clinics c ON p.clinic_id = c.clinic_id AND c.beds > 10 GROUP BY 1",
    "SELECT reason, count(*) AS n, sum(days) AS d FROM drugs JOIN visits USING (visit_id) JOIN patients USING (patient_id) GROUP BY reason",
    "SELECT class, count(*) AS n FROM drugs d JOIN codes c ON c.drug = d.drug JOIN visits v ON d.visit_id = v.visit_id JOIN patients p ON p.patient_id = v.patient_id GROUP BY class",
    "SELECT year(day) AS y, count(DISTINCT v.patient_id) AS people FROM visits v JOIN patients p ON p.patient_id = v.patient_id GROUP BY y",
    "SELECT count(*) AS n FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id LEFT JOIN drugs d ON d.visit_id = v.visit_id",
    "SELECT count(*) AS n, count(v.charge) AS k FROM visits v RIGHT JOIN patients p ON v.patient_id = p.patient_id",
    "SELECT count(*) AS n FROM visits a JOIN visits b ON a.patient_id = b.patient_id JOIN patients p ON p.patient_id = a.patient_id",
    "SELECT count(*) AS n FROM visits a JOIN visits b ON a.visit_id = b.visit_id WHERE a.patient_id IS NOT NULL",
    "SELECT sex, count(*) AS n FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND v.charge > 7) GROUP BY sex",
    "SELECT count(*) AS n FROM patients p WHERE NOT EXISTS (FROM visits v WHERE v.patient_id = p.patient_id)",
    "SELECT count(*) AS n FROM patients WHERE patient_id IN (SELECT patient_id FROM visits WHERE charge > 7)",
    "SELECT count(*) AS n FROM patients WHERE clinic_id NOT IN (SELECT clinic_id FROM clinics WHERE region = 'north')",
    "SELECT count(*) AS n FROM visits JOIN patients USING (patient_id) WHERE visit_id NOT IN (SELECT visit_id FROM visits WHERE charge > 4)",
    "SELECT count(*) AS n FROM patients WHERE patient_id IN (SELECT patient_id FROM visits GROUP BY patient_id HAVING sum(charge) > 20)",
    "SELECT sex, sum(total) AS s FROM (SELECT p.patient_id, sex, sum(charge) AS total FROM visits JOIN patients p USING (patient_id) GROUP BY ALL) WHERE total BETWEEN 0 AND 100 GROUP BY sex",
    "SELECT n, count(*) AS people FROM (SELECT p.patient_id, count(v.visit_id) AS n FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id GROUP BY p.patient_id) WHERE n BETWEEN 0 AND 9 GROUP BY n",
    "WITH heavy AS (SELECT patient_id, sum(charge) AS total FROM visits GROUP BY patient_id), seen AS (SELECT patient_id, count(*) AS k FROM visits GROUP BY 1) SELECT count(*) AS n FROM heavy JOIN seen USING (patient_id) JOIN patients USING (patient_id) WHERE total > 3 * k",
    "WITH v AS (SELECT * FROM visits WHERE charge > 2), w(id, who) AS (SELECT visit_id, patient_id FROM v) SELECT count(*) AS n FROM w JOIN patients ON who = patient_id",
    "SELECT count(*) AS n FROM (SELECT DISTINCT patient_id, reason FROM visits) JOIN patients USING (patient_id)",
    "SELECT reason, count(*) AS n FROM (SELECT patient_id, reason FROM visits WHERE charge > 5 UNION ALL SELECT v.patient_id, reason FROM visits v JOIN drugs d ON d.visit_id = v.visit_id) t JOIN patients p ON p.patient_id = t.patient_id GROUP BY reason",
    "SELECT count(*) AS n FROM visits v JOIN patients USING (patient_id) WHERE charge > (SELECT avg(w.charge) FROM visits w WHERE w.patient_id = v.patient_id)",
    "SELECT count(*) AS n FROM visits JOIN patients USING (patient_id) WHERE charge > (SELECT min(beds) FROM clinics WHERE beds > 0) / 10",
    "SELECT doctor_class, count(*) AS n FROM (SELECT CASE WHEN doctor < 20 THEN 'old' ELSE 'new' END AS doctor_class, visit_id FROM drugs) d JOIN visits v USING (visit_id) JOIN patients USING (patient_id) WHERE doctor_class IN ('old', 'new') GROUP BY doctor_class",
    "SELECT y, sum(charge) AS s FROM (SELECT year(day) AS y, charge, patient_id FROM visits) JOIN patients USING (patient_id) GROUP BY y",
    "SELECT c.region, p.sex, sum(v.charge) AS s FROM visits v JOIN patients p USING (patient_id) JOIN (SELECT clinic_id, max(region) AS region FROM clinics GROUP BY clinic_id) c ON c.clinic_id = v.clinic_id GROUP BY ALL",
    "SELECT sum(charge) FILTER (WHERE sex = 'f') AS f, 100 * sum(charge) / count(*) AS r FROM visits JOIN patients USING (patient_id)",
    "SELECT count(*) AS n FROM patients a JOIN patients b ON a.email = b.email",
    "SELECT count(*) AS n FROM visits v JOIN patients p ON v.patient_id = p.patient_id WHERE (v.clinic_id, p.sex) IN (SELECT clinic_id, 'f' FROM clinics WHERE beds < 30)",
    "SELECT region, count(*) AS n FROM visits, clinics, patients WHERE visits.clinic_id = clinics.clinic_id AND visits.patient_id = patients.patient_id AND (region = 'north' OR region = 'east') GROUP BY region",
    "SELECT count(*) AS n FROM patients p WHERE (SELECT count(*) FROM visits v WHERE v.patient_id = p.patient_id) > 4",
    "SELECT count(*) AS n, sum(m) AS s FROM (SELECT patient_id, median(charge) AS m, stddev(paid) AS d, sum(paid) AS t FROM visits GROUP BY patient_id HAVING count(*) > 2 AND sum(paid) > 10) JOIN patients USING (patient_id) WHERE m BETWEEN 0 AND 9",
    "SELECT count(*) AS n FROM patients p JOIN visits v ON p.patient_id = v.patient_id AND v.reason = 'flu' AND v.day > p.born",
    "SELECT count(*) AS n FROM patients p JOIN (SELECT v.patient_id FROM clinics c RIGHT JOIN visits v ON c.clinic_id = v.clinic_id) x ON x.patient_id = p.patient_id",
    "SELECT count(*) AS n FROM patients p, (SELECT v.patient_id FROM drugs d RIGHT JOIN visits v ON d.visit_id = v.visit_id AND days > 3) x WHERE x.patient_id = p.patient_id",
    "SELECT count(*) AS n FROM (SELECT c.region, v.patient_id FROM clinics c RIGHT JOIN visits v ON c.clinic_id = v.clinic_id) x JOIN patients USING (patient_id)",
    "FROM patients JOIN visits USING (patient_id) SELECT sex, count(*) AS n GROUP BY sex",
    "SELECT count(*) AS n, sum(days) AS d FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id JOIN drugs d ON d.visit_id = v.visit_id",
    "SELECT count(*) AS n FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id AND v.charge > 4 LEFT JOIN drugs d ON d.visit_id = v.visit_id JOIN visits w ON w.visit_id = d.visit_id",
    "SELECT count(*) AS n FROM clinics c JOIN patients p ON p.clinic_id = c.clinic_id LEFT JOIN visits v ON v.patient_id = p.patient_id JOIN drugs d ON d.visit_id = v.visit_id AND days > 1",
    "SELECT count(*) AS n FROM (FROM visits JOIN patients USING (patient_id) LEFT JOIN drugs USING (visit_id))",
    "SELECT count(*) AS n FROM patients p WHERE EXISTS (FROM visits v JOIN drugs d USING (visit_id) WHERE v.patient_id = p.patient_id AND days > 2)",
    "SELECT count(*) AS n FROM patients p WHERE (SELECT round(avg(charge)) FROM visits v WHERE v.patient_id = p.patient_id) > 4",
    "SELECT count(*) AS n FROM patients p WHERE (SELECT max(charge) - min(charge) FROM visits v WHERE v.patient_id = p.patient_id) > 5",
    "SELECT sum(m) AS s FROM (SELECT (SELECT count(DISTINCT reason) + 1 FROM visits v WHERE v.patient_id = p.patient_id) AS m FROM patients p) WHERE m BETWEEN 0 AND 4",
]
"""SELECTs whose answers are DuckDB's own where all rows have an owner."""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Patients, their visits, and the drugs of these, under one budget; no noise. One for all statements, which change nothing."""
    folder = tmp_path_factory.mktemp("joins") / "test.dp"
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, folder)
        loaded = Loaded(con, folder)
        loaded(TABLES + DECLARED)
        yield loaded


def answers(db: Loaded, select: str) -> list[tuple[Any, ...]]:
    """Rows of dp_sql without errors."""
    names = [name for name, *_ in db("DESCRIBE FROM dp_sql(?, rho := 1e12)", [select])]
    errors = ("stddev", "ci_low", "ci_high", "clipped_at", "private")
    kept = [i for i, name in enumerate(names) if not name.endswith(errors)]
    return [tuple(row[i] for i in kept) for row in db("FROM dp_sql(?, rho := 1e12)", [select])]


def plain(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(
        value if isinstance(value, str) else str(value) if value is None else f"{float(value):.4g}" for value in row
    )


@pytest.mark.some(6)
@pytest.mark.parametrize("select", ANSWERED)
def test_answers_are_those_of_duckdb(hospital: Loaded, select: str) -> None:
    """Groups without rows are there too, as 0 or NULL."""
    found = {plain(row) for row in answers(hospital, select)}
    expected = {plain(row) for row in hospital(select)}
    assert expected <= found
    assert all({*row[-1:]} <= {"0", "None", "-0"} for row in found - expected)


UNITS_OR_NULL = {
    "FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id": [
        "v.patient_id", "CASE WHEN charge > 5 THEN p.patient_id END", "CASE WHEN charge > 5 THEN v.patient_id WHEN sex = 'f' THEN p.patient_id END",
        "nullif(v.patient_id, 3)", "if(charge > 5, v.patient_id, NULL)",
    ],
    "FROM patients p JOIN visits v USING (patient_id)": ["v.patient_id", "CASE WHEN charge > 5 THEN patient_id ELSE NULL END"],
    "FROM patients p LEFT JOIN (SELECT * FROM visits WHERE charge > 7) v ON v.patient_id = p.patient_id": ["v.patient_id"],
    "FROM (SELECT p.sex, v.patient_id AS seen FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id AND charge > 7)": ["seen"],
    "FROM (SELECT CASE WHEN charge > 6 THEN p.patient_id END AS dear FROM visits v JOIN patients p USING (patient_id))": ["dear"],
    "FROM (SELECT patient_id AS w FROM patients WHERE sex = 'f' UNION ALL SELECT CASE WHEN charge > 8 THEN patient_id END FROM visits WHERE patient_id IS NOT NULL)": ["w"],
    "FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id LEFT JOIN drugs d ON d.visit_id = v.visit_id AND days > 3": [
        "CASE WHEN d.days > 3 THEN v.patient_id END"
    ],
}  # fmt: skip
"""FROM -> expressions that are the unit or NULL."""


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("source", "value"), [(source, value) for source, all_ in UNITS_OR_NULL.items() for value in all_]
)
def test_distinct_values_that_are_units_or_null_are_counted_as_units(hospital: Loaded, source: str, value: str) -> None:
    """One for each unit, so with the noise of a count of units; a value that is none has that of all rows of a unit."""
    asked = f"SELECT count(DISTINCT {value}) AS n, count(DISTINCT {value}) FILTER (WHERE true) AS m {source}"
    ((n, n_stddev, m, m_stddev),) = hospital("SELECT n, n_stddev, m, m_stddev FROM dp_sql(?, rho := 1e9)", [asked])
    assert (round(n), round(m)) == hospital(asked)[0]
    ((of_units,),) = hospital(
        "SELECT n_stddev FROM dp_sql('SELECT count(DISTINCT patient_id) AS n, count(DISTINCT patient_id) FILTER (WHERE clinic_id > 1) AS m "
        "FROM patients', rho := 1e9)"
    )
    assert n_stddev == pytest.approx(of_units, rel=1e-3)
    assert m_stddev == pytest.approx(of_units, rel=1e-3)


@pytest.mark.slow
def test_distinct_values_that_may_be_others_are_not_units(hospital: Loaded) -> None:
    source = "FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id"
    for value in (
        "coalesce(v.patient_id, 0)",
        "CASE WHEN charge > 5 THEN v.patient_id ELSE 0 END",
        "v.clinic_id",
        "v.patient_id + 1",
    ):
        asked = f"SELECT count(DISTINCT {value}) AS n {source}"
        ((n, stddev),) = hospital("SELECT n, stddev FROM dp_sql(?, rho := 1e9)", [asked])
        assert round(n) == hospital(asked)[0][0]
        ((of_units,),) = hospital(
            "SELECT stddev FROM dp_sql('SELECT count(DISTINCT patient_id) AS n FROM patients', rho := 1e9)"
        )
        assert stddev > 5 * of_units


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """The same tables as CREATE TABLE AS makes them from files: no constraints, and references that dp_link declares."""
    folder = tmp_path_factory.mktemp("files") / "test.dp"
    with duckdb.connect() as con, duckdb.connect() as made:
        duckdb_dp.testing.load_exact(con, folder)
        loaded = Loaded(con, folder)
        made.execute(TABLES)
        for (table,) in made.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            file = folder.parent / f"{table}.parquet"
            made.execute(f"COPY {table} TO '{file}'")
            loaded(f"CREATE TABLE {table} AS FROM '{file}'")
        loaded("""CALL dp_link('visits', "references" := {'patient_id': 'patients.patient_id'});
            CALL dp_link('drugs', "references" := {'visit_id': 'visits.visit_id'})""")
        loaded(DECLARED)
        yield loaded


ALONE = [
    "SELECT count(*) AS n FROM patients",
    "SELECT count(*) AS n FROM visits WHERE patient_id IS NOT NULL",
    "SELECT count(clinic_id) AS n FROM patients WHERE clinic_id > 1",
    "SELECT count(clinic_id) AS n FROM visits WHERE clinic_id > 1 AND patient_id IS NOT NULL",
    "SELECT count(DISTINCT patient_id) AS n FROM visits",
    "SELECT sum(days) AS n FROM drugs JOIN visits USING (visit_id) WHERE patient_id IS NOT NULL",
    "SELECT avg(charge) AS n FROM visits WHERE patient_id IS NOT NULL",
]
TOGETHER = {
    "union": "{0} UNION ALL {1}",
    "scalars": "SELECT ({0}) / ({1}) AS r",
    "with": "WITH a AS ({0}), b AS ({1}) SELECT a.n AS one, b.n AS two FROM a, b",
}


@pytest.mark.some(4)
@pytest.mark.parametrize("pair", [(i, j) for i in range(len(ALONE)) for j in range(len(ALONE)) if i != j])
@pytest.mark.parametrize("how", ["list", *TOGETHER])
def test_selects_of_other_tables_in_one_call_read_their_own(hospital: Loaded, pair: tuple[int, int], how: str) -> None:
    selects = [ALONE[i] for i in pair]
    expected = sorted(plain(row) for select in selects for row in hospital(select))
    if how == "list":
        found = sorted(plain(row[1:2]) for row in hospital("FROM dp_sql(?, rho := 1e12)", [selects]))
    else:
        text = TOGETHER[how].format(*selects)
        expected, found = sorted(map(plain, hospital(text))), sorted(map(plain, answers(hospital, text)))
    assert found == expected


@pytest.mark.slow
def test_groups_of_keys_that_lead_to_the_unit_are_rows_of_it(hospital: Loaded, files: Loaded) -> None:
    """By a reference, by a key of its own, in a join; and not by a public table's column of the same name."""
    for text in (
        "SELECT sum(k) AS a, count(*) AS n FROM (SELECT visit_id, count(*) AS k FROM drugs GROUP BY visit_id) WHERE k BETWEEN 0 AND 9",
        "SELECT k, count(*) AS n FROM (SELECT visit_id, count(*) AS k FROM drugs GROUP BY 1 HAVING count(*) > 1) WHERE k IN (3, 4) GROUP BY k",
        "SELECT sum(k) AS a FROM (SELECT v.visit_id, count(*) AS k FROM visits v JOIN drugs USING (visit_id) GROUP BY v.visit_id) WHERE k BETWEEN 0 AND 9",
        "WITH t AS (SELECT visit_id AS which, sum(days) AS s FROM drugs GROUP BY visit_id) SELECT count(*) AS n FROM t WHERE s > 7",
        "SELECT region, n FROM (SELECT c.clinic_id, region, count(*) AS n FROM patients p JOIN clinics c USING (clinic_id) GROUP BY ALL) WHERE n > 1",
    ):
        owned = text.replace(
            "FROM drugs",
            "FROM drugs SEMI JOIN (SELECT visit_id FROM visits WHERE patient_id IS NOT NULL) USING (visit_id)",
        )
        owned = owned.replace("GROUP BY v.visit_id", "WHERE v.patient_id IS NOT NULL GROUP BY v.visit_id")
        for db in (hospital, files):
            assert {plain(row) for row in hospital(owned)} <= {plain(row) for row in answers(db, text)}


TUPLES = [
    ("c.clinic_id, region", "patients p JOIN clinics c USING (clinic_id)", "clinic_id, region FROM clinics"),
    ("region, c.clinic_id, head", "visits v JOIN clinics c ON c.clinic_id = v.clinic_id", "region, clinic_id, head FROM clinics"),
    ("head, region", "patients p JOIN clinics c USING (clinic_id) WHERE beds > 10", "DISTINCT head, region FROM clinics WHERE beds > 10"),
    ("region, class", "patients p JOIN clinics c USING (clinic_id) JOIN codes k ON k.drug = 'd' || c.clinic_id",
     "DISTINCT region, class FROM clinics c JOIN codes k ON k.drug = 'd' || c.clinic_id"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "rows", "public"), TUPLES)
def test_columns_of_public_tables_are_grouped_by_together(hospital: Loaded, keys: str, rows: str, public: str) -> None:
    """The groups are the rows that the public tables have of them, and not all combinations."""
    text = f"SELECT {keys}, count(*) AS n FROM {rows} GROUP BY {keys}"
    found = answers(hospital, text)
    assert {plain(row[:-1]) for row in found} == {plain(row) for row in hospital(f"SELECT {public}")}
    owned = text.replace("GROUP BY", "AND v.patient_id IS NOT NULL GROUP BY" if " v " in text else "GROUP BY")
    owned = owned.replace("v.clinic_id AND", "v.clinic_id WHERE")
    assert {plain(row) for row in hospital(owned)} <= {plain(row) for row in found}
    assert len(answers(hospital, f"{text} HAVING region <> 'north' ORDER BY n DESC, region LIMIT 2")) == 2


@pytest.mark.slow
def test_aggregates_of_groups_that_are_found_are_refused(exact: Loaded) -> None:
    exact("""CREATE TABLE codes AS SELECT i AS who, 'c' || i % 5 AS code FROM range(3000) t(i);
        CALL dp_protect('codes', unit := 'who', max_rows := 2, epsilon := 1e6, delta := 1e-9, discovery_delta := 1e-10)""")
    inner = "(SELECT code, count(*) AS n FROM codes GROUP BY code)"
    for wrong in ("avg(n)", "max(n)", "count(*)", "median(n)"):
        assert "found privately" in exact.refused(f"FROM dp_sql('SELECT {wrong} AS x FROM {inner}', epsilon := 10)")
    assert exact(f"SELECT x FROM dp_sql('SELECT sum(n) AS x FROM {inner}', epsilon := 10)")[0][0] == pytest.approx(
        3000, abs=1
    )


NEEDS_A_CONSTRAINT = {
    "SELECT count(*) AS n FROM patients a JOIN patients b ON a.email = b.email": "one owner",
    "SELECT count(*) AS n FROM visits JOIN patients USING (patient_id) WHERE visit_id NOT IN (SELECT visit_id FROM visits WHERE charge > 4)": "NOT NULL",
}


@pytest.mark.some(6)
@pytest.mark.parametrize("select", ANSWERED)
def test_declared_references_are_joined_along(files: Loaded, select: str) -> None:
    if select in NEEDS_A_CONSTRAINT:
        assert NEEDS_A_CONSTRAINT[select] in files.refused("FROM dp_sql(?, rho := 1e12)", [select])
        return
    found = {plain(row) for row in answers(files, select)}
    expected = {plain(row) for row in files(select)}
    assert expected <= found
    assert all({*row[-1:]} <= {"0", "None", "-0"} for row in found - expected)


NOT_IN = "SELECT count(*) AS n FROM visits WHERE visit_id {} IN (SELECT visit_id FROM drugs WHERE {} AND days > 2)"


def test_not_in_is_read_where_conditions_keep_nulls_away(files: Loaded) -> None:
    said = NOT_IN.format("IS NOT NULL AND patient_id IS NOT NULL AND visit_id NOT", "visit_id IS NOT NULL")
    assert answers(files, said) == [(pytest.approx(files(said)[0][0], abs=0.01),)]
    assert "NOT EXISTS" in files.refused(
        "FROM dp_sql(?, rho := 1e12)", [NOT_IN.format("IS NOT NULL AND visit_id NOT", "days IS NOT NULL")]
    )


@pytest.mark.slow
def test_a_join_along_a_declared_key_multiplies_no_bound(files: Loaded, hospital: Loaded) -> None:
    """The noise is that of one table's bound, as where a constraint keeps the key."""
    for counted in ("*", "DISTINCT visits.patient_id"):
        select = f"SELECT count({counted}) AS n FROM drugs JOIN visits USING (visit_id)"
        noise = [db("SELECT stddev FROM dp_explain('drugs', ?, rho := 1)", [select]) for db in (files, hospital)]
        assert noise[0] == noise[1]


REFUSED = {
    "SELECT count(*) FROM clinics c JOIN patients p ON p.clinic_id = c.clinic_id FULL JOIN codes o ON o.drug = c.head": "is a FULL JOIN, which is not read",
    "SELECT count(*) FROM patients p JOIN (SELECT c.clinic_id FROM clinics c FULL JOIN visits v ON v.clinic_id = c.clinic_id) x USING (clinic_id)": "FULL JOIN",
    "SELECT c, count(*) AS n FROM (SELECT v.patient_id, c.head AS c FROM visits v JOIN clinics c USING (clinic_id) UNION ALL SELECT patient_id, email FROM patients) GROUP BY c": "worked out of private rows",
    "SELECT k, count(*) AS n FROM (SELECT DISTINCT v.patient_id, v.visit_id, s.k FROM visits v JOIN (SELECT clinic_id, count(*) AS k FROM clinics GROUP BY clinic_id) s USING (clinic_id)) GROUP BY k": "worked out of private rows",
    # joins that pair rows of two people
    "SELECT count(*) FROM visits a, visits b WHERE a.reason = b.reason": "one owner",
    "SELECT count(*) FROM visits a, patients b": "one owner",
    "SELECT count(*) FROM visits a CROSS JOIN patients b": "one owner",
    "SELECT count(*) FROM patients JOIN visits ON patients.patient_id = visits.visit_id": "one owner",
    "SELECT count(*) FROM patients p JOIN visits v ON p.patient_id = v.patient_id OR p.clinic_id = 1": "one owner",
    "SELECT count(*) FROM patients p JOIN visits v ON p.patient_id >= v.patient_id": "one owner",
    "SELECT count(*) FROM patients p JOIN visits v ON p.patient_id + 0 = v.patient_id + 0": "one owner",
    "SELECT count(*) FROM patients p JOIN visits v ON CAST(p.patient_id AS DOUBLE) = CAST(v.patient_id AS DOUBLE)": "one owner",
    "SELECT count(*) FROM patients p JOIN visits v ON p.patient_id <> v.patient_id": "one owner",
    "SELECT count(*) FROM visits a JOIN visits b USING (clinic_id)": "one owner",
    "SELECT count(*) FROM drugs a JOIN drugs b USING (drug)": "one owner",
    "SELECT count(*) FROM patients a NATURAL JOIN (SELECT clinic_id FROM visits) b": "one owner",
    "SELECT count(*) FROM visits v JOIN drugs d ON d.doctor = v.patient_id": "one owner",
    "SELECT count(*) FROM visits v LEFT JOIN drugs d ON v.charge = 3": "one owner",
    "SELECT count(*) FROM visits v LEFT JOIN drugs d ON d.drug = v.reason": "one owner",
    "SELECT region, count(*) FROM clinics LEFT JOIN visits USING (clinic_id) GROUP BY region": "LEFT JOIN from public rows",
    "SELECT count(*) FROM clinics c LEFT JOIN patients p ON p.clinic_id = c.clinic_id LEFT JOIN visits v ON v.patient_id = p.patient_id": "LEFT JOIN",
    "SELECT count(*) FROM visits v RIGHT JOIN clinics c USING (clinic_id)": "LEFT JOIN from public rows",
    "SELECT count(*) FROM patients p FULL JOIN visits v ON p.patient_id = v.patient_id": "FULL JOIN",
    "SELECT count(*) FROM patients POSITIONAL JOIN visits": "POSITIONAL|parse",
    "SELECT count(*) FROM visits a ASOF JOIN visits b ON a.patient_id = b.patient_id AND a.day >= b.day": "ASOF",
    "SELECT count(*) FROM clinics c, patients p RIGHT JOIN visits v ON p.patient_id = v.patient_id": "RIGHT",
    # names that mislead
    "WITH patients AS (SELECT visit_id AS patient_id, reason FROM visits) SELECT count(*) FROM patients JOIN visits ON patients.patient_id = visits.patient_id": "one owner",
    "WITH clinics AS (SELECT * FROM visits) SELECT count(*) FROM clinics, patients": "one owner",
    "SELECT count(*) FROM (SELECT visit_id AS patient_id FROM visits) t, patients u WHERE t.patient_id = u.patient_id": "one owner",
    "SELECT count(*) FROM (SELECT coalesce(patient_id, 0) AS patient_id FROM visits) t JOIN patients u USING (patient_id)": "one owner",
    "SELECT count(*) FROM (SELECT min(visit_id) AS visit_id FROM visits GROUP BY reason) t JOIN drugs USING (visit_id)": "several units",
    "SELECT count(*) FROM (SELECT patient_id, min(visit_id) AS k FROM visits GROUP BY patient_id) t JOIN drugs d ON d.visit_id = t.k": "one owner",
    "SELECT count(*) FROM main.secret, patients": "secret",
    "SELECT count(*) FROM patients JOIN secret USING (patient_id)": "dp_public",
    "SELECT count(*) FROM patients AS p, patients AS p": "alias",
    "SELECT count(*) FROM patients p JOIN visits v ON p.patient_id = v.patient_id WHERE patient_id > 3": "several tables",
    "SELECT count(*) FROM patients p JOIN visits v ON p.patient_id = v.patient_id WHERE q.x > 3": "no column",
    # subqueries over other people's rows
    "SELECT count(*) FROM visits v WHERE NOT EXISTS (SELECT 1 FROM visits w WHERE w.reason = v.reason AND w.visit_id <> v.visit_id)": "other units",
    "SELECT count(*) FROM visits v WHERE EXISTS (SELECT 1 FROM drugs d WHERE d.visit_id = v.visit_id OR d.days > 3)": "other units",
    "SELECT count(*) FROM visits v WHERE EXISTS (SELECT 1 FROM drugs d WHERE d.visit_id = d.visit_id)": "other units",
    "SELECT count(*) FROM visits WHERE EXISTS (SELECT 1 FROM visits WHERE visit_id = visit_id AND charge > 8)": "other units",
    "SELECT count(*) FROM clinics c WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.clinic_id = c.clinic_id)": "GROUP BY v.clinic_id",
    "SELECT count(*) FROM patients p JOIN clinics c USING (clinic_id) WHERE EXISTS (SELECT 1 FROM visits v WHERE v.clinic_id = c.clinic_id)": "other units",
    "SELECT count(*) FROM visits WHERE reason IN (SELECT reason FROM visits WHERE charge > 8)": "other units",
    "SELECT count(*) FROM patients WHERE patient_id NOT IN (SELECT patient_id FROM visits)": "NOT EXISTS",
    "SELECT sum(CASE WHEN patient_id IN (SELECT patient_id FROM visits) THEN 1 END) FROM patients": "NOT EXISTS",
    "SELECT count(*) FROM visits WHERE charge > ALL (SELECT charge FROM visits WHERE reason = 'flu')": "EXISTS",
    "SELECT count(*) FROM visits WHERE charge = ANY (SELECT charge FROM visits WHERE reason = 'flu')": "EXISTS",
    "SELECT count(*) FROM visits v JOIN clinics c USING (clinic_id) WHERE EXISTS (SELECT 1 FROM clinics d WHERE d.region = c.region AND EXISTS (SELECT 1 FROM visits w WHERE w.clinic_id = d.clinic_id))": "other units",
    "SELECT count(*) FROM visits WHERE charge > (SELECT charge FROM visits WHERE visit_id = 1)": "single value",
    "SELECT count(*) FROM visits v WHERE charge = (SELECT max(charge) FROM visits w WHERE w.reason = v.reason)": "other units",
    "SELECT count(*) FROM visits v WHERE charge = (SELECT DISTINCT max(charge) FROM visits w WHERE w.visit_id = v.visit_id)": "single value",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM visits WHERE charge > 8)": "count them: SELECT COUNT(*) AS n FROM visits WHERE charge > 8",
    # groups, distinct, sets, limits and windows inside
    "SELECT count(*) FROM (SELECT DISTINCT reason FROM visits)": "DISTINCT",
    "SELECT count(*) FROM (SELECT DISTINCT ON (patient_id) * FROM visits)": "DISTINCT ON",
    "SELECT count(*) FROM (SELECT visit_id FROM visits ORDER BY charge DESC LIMIT 10)": "LIMIT",
    "SELECT count(*) FROM (SELECT visit_id FROM visits ORDER BY charge)": "ORDER BY",
    "SELECT count(*) FROM (SELECT visit_id FROM visits LIMIT (SELECT max(charge) FROM visits))": "LIMIT",
    "SELECT count(*) FROM (SELECT visit_id FROM visits OFFSET 3)": "OFFSET",
    "SELECT sum(r) FROM (SELECT row_number() OVER (ORDER BY charge) AS r FROM visits)": "",
    "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY reason ORDER BY charge) AS r FROM visits)": "",
    "SELECT count(*) FROM (SELECT patient_id, first(reason) AS r FROM visits GROUP BY patient_id) WHERE r = 'flu'": "order of the rows",
    "SELECT count(*) FROM (SELECT patient_id, string_agg(reason, ',') AS r FROM visits GROUP BY patient_id) WHERE r = 'flu'": "order of the rows",
    "SELECT count(*) FROM (SELECT patient_id, max(reason ORDER BY day) AS r FROM visits GROUP BY patient_id) WHERE r = 'flu'": "not read here",
    "SELECT count(*) FROM (SELECT patient_id FROM visits UNION SELECT clinic_id FROM clinics)": "rows of people",
    "SELECT count(*) FROM (SELECT clinic_id FROM clinics UNION ALL SELECT clinic_id FROM visits)": "rows of people",
    "SELECT count(*) FROM (SELECT reason FROM visits UNION SELECT sex FROM patients)": "DISTINCT",
    "SELECT count(*) FROM (SELECT patient_id FROM patients EXCEPT SELECT patient_id FROM visits)": "several units",
    "SELECT count(*) FROM (SELECT clinic_id FROM clinics EXCEPT SELECT clinic_id FROM visits)": "rows of people",
    "SELECT count(*) FROM (SELECT clinic_id FROM clinics INTERSECT SELECT clinic_id FROM visits)": "rows of people",
    "SELECT count(*) FROM (SELECT visit_id, reason FROM visits UNION ALL SELECT patient_id, born FROM patients)": "CAST",
    "SELECT count(*) FROM (SELECT patient_id, count(*) AS n FROM visits GROUP BY ROLLUP (patient_id))": "ROLLUP",
    "SELECT count(*) FROM (PIVOT visits ON reason USING count(*) GROUP BY patient_id)": "",
    "SELECT count(*) FROM visits AT (VERSION => 1) JOIN patients USING (patient_id)": "AT is not read|parse",
    "SELECT count(*) FROM visits TABLESAMPLE 10 PERCENT JOIN patients USING (patient_id)": "",
    "SELECT count(*) FROM (SELECT * FROM visits USING SAMPLE 10 PERCENT)": "",
    # what reads something else, or is not the same each time
    "SELECT count(*) FROM visits, unnest([1, 2]) AS u(x)": "not read",
    "SELECT count(*) FROM visits, LATERAL (SELECT count(*) AS n FROM drugs WHERE doctor > patient_id) t": "",
    "SELECT count(*) FROM visits, (VALUES (1), (2)) AS v(x)": "not read",
    "SELECT count(*) FROM patients JOIN read_csv('secrets.csv') AS s USING (patient_id)": "",
    "SELECT count(*) FROM patients JOIN 'secrets.csv' USING (patient_id)": "",
    "SELECT count(*) FROM patients p JOIN visits v USING (patient_id) WHERE v.day < current_date": "not among",
    "SELECT sum(random()) FROM patients JOIN visits USING (patient_id)": "not among",
    "SELECT count(*) FROM patients JOIN visits USING (patient_id) WHERE getvariable('x') > charge": "not among",
    "SELECT count(*) FROM (SELECT patient_id, nextval('s') AS x FROM visits) WHERE x > 3": "not among",
    "SELECT count(*) FROM (SELECT COLUMNS(*) FROM visits)": "",
    "SELECT count(*) FROM (SELECT * ILIKE 'r%' FROM visits)": "not read",
    "WITH RECURSIVE r AS (SELECT patient_id AS k FROM visits UNION SELECT k + 1 FROM r WHERE k < 3) SELECT count(*) FROM r": "RECURSIVE",
    # groups at the top
    "SELECT patient_id, count(*) FROM visits JOIN patients USING (patient_id) GROUP BY patient_id": "one unit",
    "SELECT visit_id, sum(days) FROM visits JOIN drugs USING (visit_id) GROUP BY ALL": "one unit",
    "SELECT doctor, count(*) FROM visits JOIN drugs USING (visit_id) GROUP BY doctor": "dp_attribute|dp_discover",
    "SELECT n, count(*) FROM (SELECT patient_id, count(*) AS n FROM visits GROUP BY patient_id) GROUP BY n": "BETWEEN",
    "SELECT reason FROM visits JOIN patients USING (patient_id)": "",
    "SELECT sex, count(*) FROM patients JOIN visits USING (patient_id)": "GROUP BY",
    "SELECT max(charge) FROM visits JOIN patients USING (patient_id)": "quantile",
    "SELECT count(*) FROM clinics JOIN codes ON drug = region": "no cost",
    "SELECT count(*) FROM visits JOIN patients USING (nobody)": "both sides",
    "SELECT count(*) FROM visits JOIN patients ON visits.patient_id = patients.sex": "",
    "SELECT count(*) FROM visits v JOIN patients p USING (patient_id) WHERE v.day + 'x' > p.born": "",
}
"""What mixes people, is not the same each time, or is not understood: a part of the line that says so, '' for any."""


@pytest.mark.some(13)
@pytest.mark.parametrize("select", REFUSED)
def test_the_rest_is_refused_in_one_line_before_the_charge(hospital: Loaded, select: str) -> None:
    message = hospital.refused("FROM dp_sql(?, rho := 1e12)", [select])
    assert message.startswith("Invalid Input Error: dp_sql: ")
    assert any(word in message for word in REFUSED[select].split("|"))


ODD = [
    "SELECT count(*) FROM visits JOIN patients USING (patient_id) WHERE reason",
    "SELECT count(*) FROM visits JOIN patients USING (patient_id) WHERE charge AND reason",
    "SELECT count(*) FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id AND v.reason",
    "SELECT count(*) FROM patients p WHERE (SELECT stddev(paid) FROM visits v WHERE v.patient_id = p.patient_id) > 1",
    "SELECT count(*) FROM (SELECT patient_id, sum(paid) AS s, stddev(paid) AS d, median(paid) AS m, count_if(reason) AS k, count(*) FILTER "
    "(WHERE reason) AS f, var_pop(paid * paid) AS v FROM visits GROUP BY patient_id HAVING max(reason)) WHERE d > 1 OR s > 3",
    "SELECT sum(n) FROM (SELECT 1 // (charge - charge) + CAST(reason AS INTEGER) AS n, patient_id FROM visits) WHERE n < 3",
]


@pytest.mark.some(2)
@pytest.mark.parametrize("select", ODD)
def test_no_value_raises(hospital: Loaded, select: str) -> None:
    """Texts as conditions, infinite numbers and those whose squares are, divisions by 0: NULL, and never an error that shows a value."""
    hospital("CREATE OR REPLACE TABLE before AS FROM visits")
    hospital(
        "UPDATE visits SET paid = 'inf' WHERE visit_id % 5 = 3; UPDATE visits SET paid = 1e308 WHERE visit_id % 7 = 1"
    )
    try:
        assert hospital("FROM dp_sql(?, rho := 1e12)", [select])
    finally:
        hospital(
            "UPDATE visits SET paid = before.paid FROM before WHERE before.visit_id = visits.visit_id; DROP TABLE before"
        )


def test_what_became_of_a_table_is_told(exact: Loaded) -> None:
    exact(
        "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (bid INTEGER PRIMARY KEY, id INTEGER REFERENCES a (id)); "
        "CREATE TABLE c (bid INTEGER REFERENCES b (bid), n INTEGER); INSERT INTO a FROM range(20); "
        "INSERT INTO b SELECT i, i FROM range(20) r(i); INSERT INTO c SELECT i, i FROM range(20) r(i)"
    )
    exact("CALL dp_protect(['a', 'b', 'c'], unit := 'a.id', max_rows := {'a': 1, 'b': 2, 'c': 2}, rho := 1e9)")
    for asked in ("SELECT count(*) AS n FROM c JOIN b USING (bid)", "SELECT count(*) FILTER (WHERE n > 3) AS n FROM c"):
        assert round(exact("SELECT n FROM dp_sql(?, rho := 1)", [asked])[0][0]) in (20, 16)
    exact("DROP TABLE c")
    with pytest.raises(
        duckdb.Error, match=r"main.c' is not there now: create it again, give it its name back, or attach its database"
    ):
        exact("FROM dp_sql('SELECT count(*) AS n FROM c JOIN b USING (bid)', rho := 1)")
    exact("CREATE TABLE towns AS SELECT i AS n FROM range(20) t(i); CALL dp_public('towns'); DROP TABLE towns")
    assert "main.towns' is not there now" in exact.refused(
        "FROM dp_sql('SELECT count(*) AS k FROM b JOIN towns ON id = n', rho := 1)"
    )
    exact("CREATE TABLE c (other INTEGER, n INTEGER)")
    with pytest.raises(duckdb.Error, match="'c' has no column 'bid' now, which says whose its rows are"):
        exact("FROM dp_sql('SELECT count(*) AS n FROM c JOIN b USING (bid)', rho := 1)")
    exact("DROP TABLE c")
    exact("CREATE VIEW c AS SELECT bid, (SELECT count(*) FROM a)::INTEGER AS n FROM b")
    for call in (
        "dp_sql('SELECT count(*) FILTER (WHERE n > 4) AS n FROM c'",
        "dp_sql('SELECT count(*) AS k FROM c JOIN b USING (bid)'",
    ):
        with pytest.raises(duckdb.Error, match="'c' was a table when it was protected and is a view now"):
            exact(f"FROM {call}, rho := 1)")


def test_numbers_that_duckdb_compares_as_doubles_are_no_equal_keys(exact: Loaded) -> None:
    """2^70 and the 59 numbers after it are one double."""
    exact(
        "CREATE TABLE t (k UHUGEINT PRIMARY KEY); INSERT INTO t SELECT 1180591620717411303424::UHUGEINT + i::UHUGEINT FROM range(60) r(i)"
    )
    exact(
        "CREATE TABLE s (id INTEGER PRIMARY KEY, x HUGEINT, y UHUGEINT); INSERT INTO s SELECT i, 1180591620717411303424, 1180591620717411303424 FROM range(9) r(i)"
    )
    exact("CALL dp_public(['t']); CALL dp_protect('s', rho := 1e9)")
    with pytest.raises(duckdb.Error, match="the join may give a row of 's' several rows"):
        exact("FROM dp_sql('SELECT count(*) AS n FROM s JOIN t ON s.x = t.k', rho := 1)")
    assert round(exact("SELECT n FROM dp_sql('SELECT count(*) AS n FROM s JOIN t ON s.y = t.k', rho := 1)")[0][0]) == 9


TIES = {"DOUBLE": ("0.0", "-(0.0::DOUBLE)", "-0.0"), "INTERVAL": ("INTERVAL 30 DAY", "INTERVAL 1 MONTH", "30 days")}


@pytest.mark.parametrize("type_", TIES)
def test_which_rows_a_further_join_takes_of_equal_ones_depends_on_their_unit_alone(tmp_path: Path, type_: str) -> None:
    """Equal values have one hash and are told apart as texts; where rows lie depends on the rows of others."""
    one, other, text = TIES[type_]
    asked = (
        "SELECT count(*) AS n FROM v a JOIN v b ON a.pid = b.pid JOIN v c ON c.pid = a.pid "
        f"WHERE (c.x::VARCHAR || a.pid::VARCHAR) LIKE '{text}%'"
    )
    found = []
    for left_out in (-1, 0, 7):
        with duckdb.connect() as con:
            con.execute(
                f"SET threads = 1; CREATE TABLE p (id INTEGER PRIMARY KEY); INSERT INTO p FROM range(300); "
                f"CREATE TABLE v (pid INTEGER REFERENCES p (id), x {type_}); INSERT INTO v SELECT (i * 7919) % 300, "
                f"CASE WHEN (i * 7919) // 300 % 2 = 0 THEN {one} ELSE {other} END FROM range(6000) t(i) WHERE (i * 7919) % 300 <> {left_out}"
            )
            duckdb_dp.testing.load_exact(con, tmp_path / f"{left_out}.dp")
            con.execute("CALL dp_protect(['p', 'v'], unit := 'p.id', max_rows := {'v': 3}, rho := 1e12)")
            ((n,),) = con.execute("SELECT n FROM dp_sql(?, rho := 0.5, max_rows := 1200)", [asked]).fetchall()
            found.append(round(n))
    assert all(0 <= found[0] - n <= 20 * 20 * 3 for n in found[1:]), found


def test_keys_of_enums_are_joined(exact: Loaded) -> None:
    exact(
        "CREATE TYPE mood AS ENUM ('a', 'b', 'c'); CREATE TABLE people_of (m mood PRIMARY KEY, n INTEGER); "
        "CREATE TABLE said (m mood REFERENCES people_of (m), k INTEGER); INSERT INTO people_of VALUES ('a', 1), ('b', 2); "
        "INSERT INTO said VALUES ('a', 1), ('a', 2), ('b', 3)"
    )
    exact(
        "CALL dp_protect(['people_of', 'said'], unit := 'people_of.m', max_rows := {'people_of': 1, 'said': 3}, rho := 1e9)"
    )
    for asked in (
        "SELECT sum(k * n) AS s FROM said JOIN people_of USING (m)",
        "SELECT sum(a.k) AS s FROM said a JOIN said b USING (m)",
    ):
        assert round(exact("SELECT s FROM dp_sql(?, rho := 1e6)", [asked])[0][0]) == exact(asked)[0][0]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("type_", "joins"), [("TIME", True), ("DECIMAL(9,2)", True), ("DOUBLE", False), ("FLOAT", False)]
)
def test_keys_that_are_equal_and_not_the_same_are_told(exact: Loaded, type_: str, joins: bool) -> None:
    """Where equal keys are the same, tables are joined by them; of others the refusal says so."""
    value = "TIME '10:00:00' + INTERVAL (i) MINUTE" if type_ == "TIME" else "i / 4"
    exact(
        f"CREATE TABLE a AS SELECT ({value})::{type_} AS id FROM range(8) t(i); CREATE TABLE b AS SELECT id, 1 AS fee FROM a, range(3)"
    )
    exact(
        "CALL dp_link('b', \"references\" := {'id': 'a.id'}); CALL dp_protect(['a', 'b'], unit := 'a.id', max_rows := 3, rho := 1e12)"
    )
    for asked in (
        "a JOIN b ON a.id = b.id",
        "b x JOIN b y ON x.id = y.id AND x.fee = 1",
        "b WHERE EXISTS (SELECT 1 FROM a WHERE a.id = b.id)",
    ):
        select = f"SELECT count(*) AS n FROM {asked}"
        if joins:
            assert round(exact("SELECT n FROM dp_sql(?, rho := 1e9)", [select])[0][0]) == exact(select)[0][0]
        else:
            assert f"keys of {type_} may be equal without being the same" in exact.refused(
                "FROM dp_sql(?, rho := 1)", [select]
            )


SINGLE = {
    # a condition on the value {s} of a subquery: the types of column for which it is answered
    "{s} > 100": "decimal wide whole double",
    "{s} >= 100.5": "decimal wide double",
    "100 < {s}": "decimal wide whole double",
    "{s} <> p.v": "decimal wide whole double",
    "{s} > p.w": "decimal wide double",
    "{s} > p.f": "decimal wide whole double",
    "{s} BETWEEN 10 AND p.v * 10": "decimal wide whole double",
    "{s} NOT BETWEEN 10.5 AND 20.25": "decimal wide double",
    "{s} IN (99, 100, 101)": "decimal wide whole double",
    "coalesce({s}, 0) = 0": "decimal wide whole double",
    "coalesce({s}, 0.0) < 20": "decimal wide double",
    "{s} / 2 > 20": "decimal wide whole double",
    "{s} * p.f > 20": "decimal wide whole double",
    "{s} <= {other}": "decimal wide double",
    "NOT ({s} > 20 AND p.v > 3)": "decimal wide whole double",
    "CASE WHEN {s} > 20 THEN p.v > 3 ELSE p.v > 5 END": "decimal wide whole double",
    "CASE WHEN {s} > 20 THEN p.v END > 3": "decimal wide whole double",
    "CASE WHEN {s} > 20 THEN p.w ELSE p.f END > 3": "decimal wide whole double",
    "{s} > p.long": "wide double",
    "{s} + 1 > 20": "wide double",
    "p.v < {s} OR {s} IS NULL": "decimal wide whole double",
}


@pytest.fixture(scope="module")
def pairs(shared: Loaded) -> Loaded:
    shared(
        "CREATE TABLE p (id INTEGER PRIMARY KEY, v INTEGER, w DECIMAL(10,2), f DOUBLE, long DECIMAL(18,18));"
        "INSERT INTO p SELECT i, i % 10, i % 9, i % 4, 0.5 FROM range(300) t(i);"
        "CREATE TABLE q (id INTEGER REFERENCES p (id), decimal DECIMAL(10,2), wide DECIMAL(38,2), whole INTEGER, double DOUBLE);"
        "INSERT INTO q SELECT i % 240, i % 50, i % 50, i % 50, i % 50 FROM range(700) t(i); INSERT INTO q (id) VALUES (250);"
        "CALL dp_protect(['p', 'q'], unit := 'p.id', max_rows := 3, rho := 1e12)"
    )
    return shared


@pytest.mark.some(4, "column")
@pytest.mark.parametrize("column", ["decimal", "wide", "whole", "double"])
@pytest.mark.parametrize("condition", SINGLE)
def test_single_values_are_compared(pairs: Loaded, condition: str, column: str) -> None:
    """Sums of DECIMALs are DECIMAL(38, s), and of whole numbers HUGEINT: compared where no value of these types can fail."""
    of = "FROM q WHERE q.id = p.id"
    text = condition.format(s=f"(SELECT sum({column}) {of})", other=f"(SELECT max(decimal) {of})")
    select = f"SELECT count(*) AS n FROM p WHERE {text}"
    asked = f"FROM dp_sql('{select}', rho := 1e6)"
    if column not in SINGLE[condition].split():
        refused = pairs.refused(asked)
        assert "give the subquery a column of its own" in refused or "CASE" in condition
        select = f"SELECT count(*) AS n FROM (SELECT *, (SELECT sum({column}) {of}) AS x, (SELECT max(decimal) {of}) AS y FROM p) p WHERE "
        select += condition.format(s="x", other="y")
        asked = f"FROM dp_sql('{select}', rho := 1e6)"  # as it says
    assert abs(pairs(asked)[0][0] - pairs(select)[0][0]) < 0.5


def test_a_sum_that_no_decimal_holds_fails_in_no_comparison(exact: Loaded) -> None:
    """Whether there is such a row must not be told by an error."""
    exact(
        "CREATE TABLE p (id INTEGER PRIMARY KEY, v DECIMAL(18,2)); INSERT INTO p SELECT i, i FROM range(20) t(i);"
        "CREATE TABLE q (id INTEGER REFERENCES p (id), a DECIMAL(18,0), b DECIMAL(38,0), c BIGINT);"
        "INSERT INTO q SELECT i % 20, 999999999999999999, '99999999999999999999999999999999999999', 9223372036854775807 FROM range(60) t(i);"
        "CALL dp_protect(['p', 'q'], unit := 'p.id', max_rows := 3, rho := 1e12)"
    )
    for column in "abc":
        for right in ("5", "p.v", "5::HUGEINT", "1e300", "5.5", "0.000000000000000001"):
            select = f"SELECT count(*) AS n FROM p WHERE (SELECT sum({column}) FROM q WHERE q.id = p.id) > {right}"
            try:
                found = exact(f"FROM dp_sql('{select}', rho := 1e6)")
            except duckdb.Error as error:
                assert "may fail on a value" in str(error)  # it may be answered or refused, and not fail
            else:
                assert round(found[0][0]) == (0 if right == "1e300" else 20)


ROWS = [
    "(x, y) = (1, 2)",
    "(x, y) <> (1, 2)",
    "NOT (x, y) = (1, 2)",
    "(x, y) IN ((1, 2), (3, 4), (2, NULL))",
    "(x, y) NOT IN ((1, 2), (NULL, 4))",
    "ROW(x, y) = ROW(NULL, 1)",
    "(x, y) = (y, x)",
    "(x, y + 1) = (y, x + 1) OR (x, y) = (0, 0)",
    "((x, y) = (1, 2)) IS NULL",
    "CASE WHEN (x, y) = (NULL, NULL) THEN x IS NULL ELSE (x, y) <> (1, 1) END",
    "(x, t) = (1, 'b')",
    "(x, y) IS DISTINCT FROM (1, NULL)",
    "(x, y) IS NOT DISTINCT FROM (1, NULL)",
]


@pytest.mark.some(4, "declared")
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("condition", ROWS)
def test_rows_are_compared_as_in_duckdb(exact: Loaded, condition: str, declared: bool) -> None:
    """NULLs in rows are alike, and a comparison of rows is never NULL."""
    exact(
        "CREATE TABLE r AS SELECT nullif(i % 5, 4)::INTEGER AS x, nullif(i // 5 % 6, 5)::INTEGER AS y, ['a', 'b'][1 + i % 2] AS t "
        "FROM range(120) r(i); CALL dp_protect('r', rho := 1e9)"
    )
    if declared:
        exact("CALL dp_attributes('r', {'x': [0, 1, 2, 3, NULL], 'y': [0, 1, 2, 3, 4, NULL], 't': ['a', 'b']})")
    for select in (
        f"SELECT count(*) AS n FROM r WHERE {condition}",
        f"SELECT count(*) FILTER (WHERE {condition}) AS n FROM r",
    ):
        ((found, *_),) = exact("FROM dp_sql(?, rho := 1e6)", [select])
        assert abs(found - exact(select)[0][0]) < 0.5


@pytest.mark.parametrize("row", ["(x, y)", "ROW(x, y)"])
def test_what_to_write_in_place_of_rows(exact: Loaded, row: str) -> None:
    exact("CREATE TABLE r AS SELECT i % 20 AS x, i % 4 AS y, i AS z FROM range(60) t(i)")
    exact("CALL dp_protect('r', unit := [['x', 'y']], max_rows := 5, rho := 1e9)")
    said = exact.refused(f"FROM dp_sql('SELECT count(DISTINCT {row}) AS n FROM r', rho := 1)")
    assert "SELECT count(*) FROM (SELECT DISTINCT a, b FROM ...)" in said
    asked = "SELECT count(*) AS n FROM (SELECT DISTINCT x, y FROM r)"
    assert round(exact("FROM dp_sql(?, rho := 1e6)", [asked])[0][0]) == 20
