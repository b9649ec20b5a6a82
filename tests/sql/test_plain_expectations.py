"""What users expect of plain SQL: it is answered as DuckDB answers it, or refused in the words of the statement."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckdb_dp.reporting.asked import left_out
from duckdb_dp.request import Request
from duckdb_dp.testing import load, load_exact
from tests.conftest import Loaded
from tests.sql.test_joins import DECLARED, TABLES

STAYS = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE stays (stay_id BIGINT PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patients (patient_id), u8 UBIGINT, h HUGEINT, uh UHUGEINT,
                    ward VARCHAR, moment TIMESTAMP, m mood, flag BOOLEAN, span INTERVAL);
INSERT INTO stays SELECT i, i * 11 % 40, CASE WHEN i % 5 > 0 THEN i END, i, i, 'w' || (i % 3), TIMESTAMP '2020-01-01' + i * INTERVAL 1 HOUR,
    ['sad', 'ok', 'happy'][1 + i % 3]::mood, i % 2 = 0, INTERVAL (i) DAY FROM range(60) t(i);
"""
WITH_STAYS = DECLARED.replace("'drugs'], unit", "'drugs', 'stays'], unit").replace(
    "{'patients'", "{'stays': 9, 'patients'"
)


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("plain") / "ledger.dp"
    with duckdb.connect() as connection:
        connection.execute(TABLES + STAYS)
        load_exact(connection, folder)
        connection.execute(WITH_STAYS).fetchall()
        halves = "SELECT (v.charge / 2)::INTEGER AS half, v.patient_id FROM visits v JOIN patients p USING (patient_id)"
        connection.execute("CALL dp_view('halves', ?, max_rows := 90)", [halves]).fetchall()
        connection.execute("CALL dp_attribute('halves', 'half', low := 0, high := 3)").fetchall()
        yield Loaded(connection, folder)


AS_PLAIN = [
    *(f"SELECT count(*) AS n FROM (SELECT patient_id, {function}({column}) AS s FROM stays GROUP BY patient_id) JOIN patients USING (patient_id) "
      "WHERE s > 40" for function in ("sum", "avg") for column in ("u8", "h", "uh", "stay_id")),
    *(f"SELECT count(*) AS n FROM patients p WHERE (SELECT {function}({column}) FROM stays s WHERE s.patient_id = p.patient_id) > 40"
      for function in ("sum", "avg") for column in ("u8", "stay_id")),
    *(f"SELECT count(*) AS n FROM {source} WHERE {condition}"
      for source in ("stays", "stays JOIN patients USING (patient_id)")
      for condition in ("m < 'other'", "m <= 'ok'", "m BETWEEN 'a' AND 'p'", "'other' > m", "m >= 'happy'",
                        "epoch_ms(moment) > 1577900000000", "epoch_ms(moment::DATE) BETWEEN 1577836800000 AND 1577923200000",
                        "epoch_ms(moment) IS NOT NULL AND year(epoch_ms(stay_id)) = 1970")),
    "SELECT count(*) AS n FROM (SELECT patient_id, max(epoch_ms(moment)) AS z FROM stays GROUP BY 1) JOIN patients USING (patient_id) "
    "WHERE z < 1577960000000",
]  # fmt: skip


@pytest.mark.some(4)
@pytest.mark.parametrize("select", AS_PLAIN)
def test_the_answer_is_that_of_plain_sql(hospital: Loaded, select: str) -> None:
    ((true,),) = hospital(select)
    ((found,),) = hospital("SELECT n FROM dp_sql(?, rho := 1e12)", [select])
    assert round(found) == true


REFUSED = [
    "SELECT count(*) FROM visits v JOIN patients p USING (patient_id) WHERE v.charge + p.sex > 1",
    "SELECT v.charge // v.reason AS z, count(*) FROM visits v JOIN patients p USING (patient_id) GROUP BY z",
    "SELECT count(*) FROM visits v JOIN patients p USING (patient_id) LEFT JOIN clinics c ON v.charge + v.reason",
    "SELECT count(*) FROM patients p WHERE (SELECT max(z.reason) FROM visits z WHERE z.patient_id = p.patient_id) > p.clinic_id",
    "SELECT count(*) FROM patients p WHERE (SELECT sum(z.charge) FROM visits z WHERE z.patient_id = p.patient_id) + p.sex > 1",
    "SELECT count(*) FROM (SELECT patient_id, sum(charge) AS total FROM visits GROUP BY 1) q JOIN patients p USING (patient_id) WHERE greatest(total, p.sex) > 1",
    "SELECT sum(z) FROM (SELECT (SELECT sum(z.charge) FROM visits z WHERE z.patient_id = p.patient_id) + p.clinic_id AS z FROM patients p)",
    "SELECT count(*) FROM visits v JOIN patients p USING (patient_id) WHERE v.charge IN ('a', 'b')",
    "SELECT count(*) FROM stays JOIN patients USING (patient_id) WHERE m = 'other'",
    "SELECT count(*) FROM stays JOIN patients USING (patient_id) WHERE span * span > span",
    "SELECT count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM stays WHERE stays.patient_id = p.patient_id AND m + 1 > 2)",
    "WITH w AS (SELECT p.patient_id, -v.reason AS z FROM visits v JOIN patients p USING (patient_id)), y AS (SELECT patient_id, max(z) AS mz FROM w "
    "GROUP BY 1) SELECT count(*) FROM y JOIN w USING (patient_id) WHERE mz > z",
]  # fmt: skip
INTERNAL = re.compile(r'\b[actxgvowuk]\d+\b|_dp_|"joined"|@')


@pytest.mark.some(4)
@pytest.mark.parametrize("select", REFUSED)
def test_refusals_name_what_the_statement_names(hospital: Loaded, select: str) -> None:
    refused = hospital.refused("FROM dp_sql(?, rho := 1)", [select])
    assert INTERNAL.search(refused.partition("LINE")[0]) is None, refused
    assert hospital.refused("FROM dp_explain(?, rho := 1)", [select]).partition(": ")[2].partition(": ")[2] in refused


@pytest.mark.parametrize(("name", "value"), [("integer_division", "true"), ("default_collation", "'nocase'")])
def test_dp_check_counts_what_dp_sql_counts_or_nothing(hospital: Loaded, name: str, value: str) -> None:
    ((before, *_),) = hospital("SELECT outside FROM dp_check('halves') WHERE attribute = 'half'")
    hospital(f"SET {name} = {value}")
    try:
        assert f"RESET {name} first" in hospital.refused("CALL dp_check('halves')")
    finally:
        hospital(f"RESET {name}")
    assert hospital("SELECT outside FROM dp_check('halves') WHERE attribute = 'half'") == [(before,)]


def test_groups_of_a_subquery_say_what_would_be_of_each_unit(hospital: Loaded) -> None:
    for select in (
        "SELECT avg(k) AS n FROM (SELECT doctor, count(*) AS k FROM drugs GROUP BY doctor)",
        "SELECT avg(k) AS n FROM (SELECT d.doctor, count(*) AS k FROM drugs d JOIN visits USING (visit_id) GROUP BY doctor)",
    ):
        refused = hospital.refused("FROM dp_sql(?, rho := 1)", [select])
        assert "GROUP BY patient_id there too" in refused
    at_the_top = "SELECT doctor, count(*) AS k FROM drugs GROUP BY doctor"
    assert "there too" not in hospital.refused("FROM dp_sql(?, rho := 1)", [at_the_top])
    per_unit = (
        "SELECT count(*) AS n FROM (SELECT doctor, patient_id, count(*) AS k FROM drugs JOIN visits USING (visit_id) "
        "GROUP BY doctor, patient_id) JOIN patients USING (patient_id) WHERE k > 0"
    )
    assert hospital("SELECT round(n)::BIGINT FROM dp_sql(?, rho := 1e12)", [per_unit]) == hospital(per_unit)


def test_statements_that_dp_view_proposes_can_be_run(hospital: Loaded) -> None:
    view = "SELECT s.flag, s.ward, s.moment, s.patient_id FROM stays s JOIN visits v USING (patient_id)"
    calls = {row[0]: row[-1] for row in hospital("CALL dp_view('flags', ?, max_rows := 90)", [view])}
    assert calls["flag"] == "CALL dp_attribute('flags', 'flag')"
    assert not any(", )" in call for call in calls.values())
    hospital(calls["flag"])


@pytest.mark.parametrize(
    "answer", ["count(*) * 2", "100.0 * count(*) / 4", "5 - count(*)", "sum(v.charge) - 3 * count(*)"]
)
def test_precision_of_multiples_of_counts(tmp_path: Path, answer: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(TABLES)
        load(connection, tmp_path / "ledger.dp", seed=1)
        connection.execute(DECLARED).fetchall()
        select = f"SELECT {answer} AS n FROM visits v JOIN patients p USING (patient_id)"
        ((stddev,),) = connection.execute('SELECT stddev FROM dp_sql(?, "precision" := 7)', [select]).fetchall()
        assert stddev == pytest.approx(7, rel=1e-6)
        with pytest.raises(duckdb.Error, match="depends on how many rows"):
            connection.execute('FROM dp_sql(?, "precision" := 7)', [select.replace(answer, "sqrt(count(*))")])


def test_requests_of_the_ledger_are_short(hospital: Loaded) -> None:
    hospital("FROM dp_sql('SELECT median(u8) AS q, sum(charge) FROM stays JOIN visits USING (patient_id)', rho := 2)")
    ((shown, whole),) = hospital("SELECT request, request_hash FROM dp_ledger() ORDER BY release DESC LIMIT 1")
    assert len(shown) < 3000
    assert json.loads(shown)["direct"][0]["outputs"]
    assert "more …" in shown
    ((release,),) = hospital("SELECT max(release) FROM dp_ledger()")
    stored = hospital.charged()[-1]
    assert len(stored["request"]) > 10_000
    assert (stored["release"], stored["request_hash"]) == (release, whole)


@pytest.mark.slow
def test_of_how_many_rows_a_quantile_has_a_value_is_said_before_and_after(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE few AS SELECT i % 500 AS x FROM range(600) t(i); CREATE TABLE many AS SELECT i % 500 AS x FROM range(60000) t(i)"
        )
        load(connection, tmp_path / "ledger.dp", seed=3)
        for table in ("few", "many"):
            connection.execute(f"CALL dp_protect('{table}', rho := 100)")
        for table, told in (("few", False), ("many", True)):
            select = f"SELECT quantile_cont(x, 0.9) AS q FROM {table}"
            ((route,),) = connection.execute("SELECT route FROM dp_explain(?, rho := 0.002)", [select]).fetchall()
            found = re.search(r"NULL of fewer than about ([\d,]+) rows", route)
            assert found is not None
            assert (600 if table == "few" else 60000) > int(found[1].replace(",", "")) or not told
            ((q,),) = connection.execute("SELECT q FROM dp_sql(?, rho := 0.002)", [select]).fetchall()
            assert (q is not None) == told
            (request,) = [row["request"] for row in Loaded(connection, tmp_path / "ledger.dp").charged()[-1:]]
            lines = left_out(Request.from_json(request), True, [], None)
            assert any(f"fewer than about {found[1]} rows" in line for line in lines)


def _sums(loaded: Loaded, select: str, **more: Any) -> list[Any]:
    arguments = "".join(f", {name} := {value}" for name, value in more.items())
    return [
        row[0]
        for row in loaded(f"SELECT marginal FROM dp_explain(?, rho := 1{arguments}) WHERE budget_share > 0", [select])
    ]


def test_counts_that_conditions_make_equal_are_measured_once(hospital: Loaded) -> None:
    numbers = ["charge", "charge + 0", "clinic_id", "visit_id"]
    where = "visits.charge IS NOT NULL AND visits.clinic_id > 0 AND visit_id >= 0"
    shown = "avg(charge) AS a, avg(visits.clinic_id) AS b, avg(visit_id) AS c, count(*) AS n"
    for source in ("visits", "visits JOIN patients USING (patient_id)"):
        found = _sums(hospital, f"SELECT {shown} FROM {source} WHERE {where}")
        assert sum(one.startswith("count") for one in found) == 1, (numbers, found)
        apart = _sums(
            hospital,
            f"SELECT avg(charge) AS a, avg(paid) AS b FROM {source} WHERE visits.charge IS NOT NULL AND paid IS NOT NULL",
        )
        assert sum(one.startswith("count") for one in apart) == 2  # of doubles, NaN is no number
        one = _sums(
            hospital,
            f"SELECT avg(charge) AS a, avg(paid) AS b FROM {source} WHERE visits.charge IS NOT NULL AND paid <= 30",
        )
        assert sum(each.startswith("count") for each in one) == 1
        owned = "visits.charge IS NOT NULL AND paid <= 30 AND visits.patient_id IS NOT NULL"
        plain = f"SELECT avg(charge) AS a, avg(paid) AS b FROM {source} WHERE {owned}"
        (found_row,) = hospital("SELECT a, b FROM dp_sql(?, rho := 1e12)", [plain])
        assert found_row == pytest.approx(hospital(plain)[0], rel=1e-3)


def test_groups_that_were_found_are_kept_and_not_charged_again(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(TABLES)
        load(connection, tmp_path / "ledger.dp", seed=1)
        loaded = Loaded(connection, tmp_path / "ledger.dp")
        loaded(DECLARED.replace("rho := 1e15", "epsilon := 1e6, delta := 1e-6, discovery_delta := 1e-8"))
        select = "SELECT doctor, count(*) AS n FROM drugs GROUP BY doctor"
        for more in ("", ", fresh := true"):
            loaded(f"FROM dp_sql(?, mu := 300{more})", [select])
        costs = loaded("SELECT function, cost FROM dp_ledger()")
        assert costs == [
            ("dp_discover", pytest.approx(27_000)),
            ("dp_sql", pytest.approx(63_000)),
            ("dp_sql", pytest.approx(63_000)),
        ]


def test_what_synthetic_tables_leave_out_is_said_with_what_keeps_it(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            """
            CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR);
            CREATE TABLE doctors (doctor_id INTEGER PRIMARY KEY, specialty VARCHAR);
            CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER REFERENCES patients, doctor_id INTEGER REFERENCES doctors,
                                 doctor VARCHAR, charge INTEGER);
            """
        )
        load(connection, tmp_path / "ledger.dp", seed=1)
        loaded = Loaded(connection, tmp_path / "ledger.dp")
        loaded(
            """
            CALL dp_protect(['patients', 'visits'], unit := 'patients.patient_id', max_rows := {'visits': 5}, epsilon := 8, delta := 1e-6);
            CALL dp_attribute('patients', 'sex', "values" := ['f', 'm']);
            CALL dp_attribute('visits', 'charge', low := 0, high := 49);
            """
        )
        plan = "SELECT note FROM dp_synthesize_database('main', 'syn', epsilon := 2, plan := true) WHERE note LIKE '%doctor%'"
        ((note,),) = loaded(plan)
        assert (
            "left out, not declared: doctor (to keep it: CALL dp_attribute('visits', 'doctor', \"values\" := [...])"
            in note
        )
        assert "'doctors' is not among the tables, so doctor_id, which refers to it, is left out" in note
        assert "CALL dp_public(['doctors'])" in note
        loaded("CALL dp_public(['doctors']); CALL dp_attribute('visits', 'doctor', \"values\" := ['d1', 'd2'])")
        ((note,),) = loaded(plan)
        assert "left out" not in note
        assert "'doctors' is public and is copied as it is" in note
