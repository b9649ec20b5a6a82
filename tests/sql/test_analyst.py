"""Statements as analysts type them before they have read anything, on tables of flights and of patients of which nothing is declared."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE patients AS SELECT i AS patient_id, ['F', 'M'][1 + (hash(i) % 2)::INT] AS sex, 1930 + (hash(i * 3) % 90)::INT AS birth_year,
    ['Leeds', 'York', 'Hull', 'Bath'][1 + (hash(i * 7) % 4)::INT] AS city FROM range(4000) t(i);
ALTER TABLE patients ADD PRIMARY KEY (patient_id);
CREATE TABLE clinics AS SELECT i AS clinic_id, 'Clinic ' || i AS name, ['north', 'south'][1 + i % 2] AS region, 10 + i * 3 AS beds FROM range(8) t(i);
ALTER TABLE clinics ADD PRIMARY KEY (clinic_id);
CREATE TABLE visits AS SELECT i AS visit_id, (hash(i * 11) % 4000)::INT AS patient_id, (hash(i * 13) % 8)::INT AS clinic_id,
    DATE '2025-01-01' + (hash(i * 17) % 365)::INT AS day, ['flu', 'cold', 'asthma', 'fracture', 'checkup'][1 + (hash(i * 19) % 5)::INT] AS diagnosis,
    round(20 + (hash(i * 23) % 9000) / 30.0, 2)::DECIMAL(9, 2) AS charge, CASE WHEN i % 10 = 0 THEN NULL ELSE (hash(i * 29) % 20)::INT END AS nights,
    TIMESTAMP '2025-01-01' + to_minutes((hash(i * 31) % 525000)::INT) AS checkin, (hash(i * 37) % 2) = 0 AS insured FROM range(16000) t(i);
CREATE TABLE flights AS SELECT i AS flight_id, (hash(i * 41) % 3000)::INT AS passenger,
    ['AMS', 'JFK', 'LHR', 'CDG', 'NRT'][1 + (hash(i * 43) % 5)::INT] AS origin, ['AMS', 'JFK', 'LHR', 'CDG', 'NRT'][1 + (hash(i * 47) % 5)::INT] AS dest,
    (hash(i * 53) % 300)::INT - 30 AS delay, 100 + (hash(i * 59) % 90000) / 10.0 AS miles, ['KL', 'BA', 'AF'][1 + (hash(i * 61) % 3)::INT] AS carrier,
    DATE '2024-01-01' + (hash(i * 67) % 700)::INT AS flown, (hash(i * 71) % 50) = 0 AS cancelled FROM range(20000) t(i);
"""
"""Of hashes, which are the same on each machine with one DuckDB; no answer is compared across them."""

DECLARED = [
    """CALL dp_link('visits', "references" := {'patient_id': 'patients.patient_id'})""",
    "CALL dp_protect(['patients', 'visits'], unit := 'patients.patient_id', max_rows := 'auto', epsilon := 5000, delta := 1e-9, discovery_delta := 2e-10)",
    "CALL dp_public('clinics')",
    "CALL dp_protect('flights', unit := 'passenger', max_rows := 'auto', epsilon := 5000, delta := 1e-9, discovery_delta := 2e-10, another := true)",
]
ANSWERED = [
    "SELECT count(*) FROM flights",
    "SELECT carrier, count(*) FROM flights GROUP BY carrier",
    "SELECT carrier, avg(delay) FROM flights GROUP BY carrier ORDER BY 2 DESC",
    "SELECT origin, dest, count(*) AS n FROM flights GROUP BY origin, dest ORDER BY n DESC LIMIT 5",
    "SELECT median(delay) FROM flights WHERE NOT cancelled",
    "SELECT carrier, quantile_cont(delay, 0.9) AS p90 FROM flights GROUP BY 1",
    "SELECT carrier, quantile_cont(delay, [0.25, 0.5, 0.75]) FROM flights GROUP BY 1",
    "SELECT count(DISTINCT passenger) FROM flights WHERE origin = 'AMS'",
    "SELECT count(DISTINCT dest) FROM flights",
    "SELECT year(flown) AS y, month(flown) AS m, count(*) FROM flights GROUP BY ALL",
    "SELECT date_trunc('month', flown) AS m, sum(miles) FROM flights GROUP BY m ORDER BY m",
    "SELECT origin, sum(CASE WHEN cancelled THEN 1 ELSE 0 END) / count(*) AS cancelled_share FROM flights GROUP BY origin",
    "SELECT origin, count(*) FILTER (WHERE cancelled) AS c, count(*) AS n FROM flights GROUP BY origin HAVING count(*) > 1000",
    "SELECT delay > 60 AS late, count(*) FROM flights GROUP BY late",
    "SELECT CASE WHEN delay < 0 THEN 'early' WHEN delay < 15 THEN 'on time' ELSE 'late' END AS status, count(*) FROM flights GROUP BY status",
    "SELECT floor(delay / 60) AS hours, count(*) FROM flights GROUP BY hours",
    "SELECT carrier, stddev(delay), variance(delay) FROM flights GROUP BY carrier",
    "SELECT carrier, sum(miles) / 1000.0 AS kmiles, round(avg(miles), 1) AS mean FROM flights GROUP BY carrier",
    "SELECT avg(n) FROM (SELECT passenger, count(*) AS n FROM flights GROUP BY passenger)",
    "SELECT dest, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS r FROM flights GROUP BY dest",
    "WITH f AS (SELECT * FROM flights WHERE origin <> dest) SELECT carrier, count(*) FROM f GROUP BY carrier",
    "SELECT dayname(flown) AS d, count(*) FROM flights GROUP BY d",
    "SELECT strftime(flown, '%Y-%m') AS ym, count(*) FROM flights GROUP BY ym",
    "SELECT carrier, count(*) * 100.0 / sum(count(*)) OVER () AS pct FROM flights GROUP BY carrier",
    "SELECT approx_count_distinct(passenger) FROM flights",
    "SELECT avg(delay) FROM flights WHERE carrier ILIKE 'k%' AND flown >= '2025-01-01'",
    "SELECT origin || '-' || dest AS route, count(*) AS n FROM flights GROUP BY route ORDER BY n DESC LIMIT 3",
    "SELECT diagnosis, count(*) FROM visits GROUP BY diagnosis",
    "SELECT city, count(*) FROM patients GROUP BY city",
    "SELECT p.sex, avg(v.charge) FROM visits v JOIN patients p ON p.patient_id = v.patient_id GROUP BY p.sex",
    "SELECT c.region, count(*), sum(charge) FROM visits JOIN clinics c USING (clinic_id) GROUP BY c.region",
    "SELECT c.name, p.city, count(DISTINCT v.patient_id) AS people FROM visits v JOIN patients p USING (patient_id) JOIN clinics c USING (clinic_id) GROUP BY ALL ORDER BY people DESC LIMIT 5",
    "SELECT 2025 - birth_year AS age, count(*) FROM patients GROUP BY age",
    "SELECT (2025 - birth_year) // 10 * 10 AS decade, sex, count(*) FROM patients GROUP BY ALL",
    "SELECT median(charge), avg(nights) FROM visits WHERE diagnosis = 'flu'",
    "SELECT diagnosis, median(charge) AS m FROM visits GROUP BY diagnosis ORDER BY m DESC",
    "SELECT hour(checkin) AS h, count(*) FROM visits GROUP BY h ORDER BY h",
    "SELECT date_trunc('week', checkin) AS w, count(*) FROM visits GROUP BY w",
    "SELECT insured, diagnosis, count(*) FROM visits GROUP BY insured, diagnosis",
    "SELECT count(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND v.diagnosis = 'asthma')",
    "SELECT n, count(*) AS people FROM (SELECT patient_id, count(*) AS n FROM visits GROUP BY patient_id) GROUP BY n ORDER BY n",
    "SELECT avg(total) FROM (SELECT patient_id, sum(charge) AS total FROM visits GROUP BY patient_id)",
    "SELECT p.city, v.diagnosis, count(*) AS n FROM visits v LEFT JOIN patients p USING (patient_id) GROUP BY p.city, v.diagnosis",
    "SELECT diagnosis, count(nights), count(*) - count(nights) AS missing FROM visits GROUP BY diagnosis",
    "SELECT sum(charge * nights) FROM visits",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY charge) FROM visits",
    "SELECT sex, count(*) FROM patients GROUP BY sex UNION ALL SELECT 'all', count(*) FROM patients",
    "SELECT date_diff('day', DATE '2025-01-01', day) // 30 AS period, count(*) FROM visits GROUP BY period",
    "SELECT coalesce(nights, 0) AS n0, count(*) FROM visits GROUP BY n0 HAVING count(*) > 100",
    "SELECT day, count(*) AS n, avg(count(*)) OVER (ORDER BY day ROWS 6 PRECEDING) AS weekly FROM visits GROUP BY day ORDER BY day",
    "SELECT v.diagnosis, c.beds, count(*) FROM visits v, clinics c WHERE v.clinic_id = c.clinic_id AND c.beds > 20 GROUP BY ALL",
    "SELECT sum(charge) FROM visits WHERE day BETWEEN '2025-03-01' AND '2025-03-31'",

]  # fmt: skip
REFUSED = {
    "SELECT max(delay) FROM flights": "quantile_cont(delay, 0.99)",
    "SELECT carrier, min(delay), max(delay) FROM flights GROUP BY carrier": "quantile_cont(delay, 0.01)",
    "SELECT mode(dest) FROM flights": "ORDER BY it and take the largest",
    "SELECT * FROM flights LIMIT 5": "count them",
    "SELECT passenger, count(*) FROM flights GROUP BY passenger": "makes each unit a group of its own",
    "SELECT corr(delay, miles) FROM flights": "avg(x * y)",
    "SELECT string_agg(dest, ',') FROM flights": "count(*) with GROUP BY",
    "SELECT count(*) FROM patients WHERE patient_id NOT IN (SELECT patient_id FROM visits)": "NOT EXISTS",
    "SELECT TOP 5 diagnosis FROM visits": "does not parse",
    "SELECT diagnosis FROM visits GROUP BY diagnosis": "dp_discover",
    "SELECT DISTINCT diagnosis FROM visits": "GROUP BY x",
    "SELECT covar_pop(nights, charge) FROM visits": "avg(x * y)",

}  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("analyst") / "l.dp"
    with duckdb.connect() as connection:
        connection.execute(TABLES)
        duckdb_dp.testing.load(connection, folder, seed=1)
        loaded = Loaded(connection, folder)
        for statement in DECLARED:
            loaded(statement)
        yield loaded


def numbers(rows: list[tuple[Any, ...]]) -> float:
    """The sum of all numbers of the last column."""
    return float(sum(abs(row[-1]) for row in rows if row[-1] is not None and not isinstance(row[-1], list)))


@pytest.mark.some(2)
@pytest.mark.parametrize("select", ANSWERED)
def test_it_is_answered_near_the_truth(tables: Loaded, select: str) -> None:
    """In the SELECT's own columns first; what its last column adds up to is near the truth."""
    asked = tables.connection.execute("FROM dp_sql(?, epsilon := 10, columns := 'short')", [select])
    names = [column[0].lower() for column in asked.description or []]
    rows, truth = asked.fetchall(), tables.connection.execute(select)
    own = [column[0].lower() for column in truth.description or []]
    real = truth.fetchall()
    shown = [name for name in names if not name.endswith(("ci", "clipped_at")) and name != "private"]
    assert len(shown) == len(own)
    kept = [[row[names.index(name)] for name in shown] for row in rows if "other" not in row]
    if real and not isinstance(real[0][-1], list):
        least = 60 if "DISTINCT dest" in select else 2  # of few values, each of many rows of a unit, most is noise
        assert numbers([tuple(row) for row in kept]) == pytest.approx(numbers(real), rel=0.15, abs=least)


@pytest.mark.parametrize("select", REFUSED)
def test_what_is_refused_names_what_to_ask_instead(tables: Loaded, select: str) -> None:
    assert REFUSED[select] in tables.refused("FROM dp_sql(?, epsilon := 10)", [select])
