"""Diagnoses of visits of patients, generated: what rows have in common with the unit, two references away.

python benchmarks/accuracy/grandchildren.py [runs] [epsilon ...]: L1 distances of distributions, means over the runs, at delta 1e-6 for all
tables together, and CPU seconds. A diagnosis's code follows the patient's age and sex, and its days whether the visit was urgent.
"""

import sys
import tempfile
import time
from statistics import mean

import duckdb
from distributions import distances

import duckdb_dp

TABLES = """
SET threads = 1;
SELECT setseed(0.4);
CREATE TABLE patients (pid INTEGER PRIMARY KEY, sex VARCHAR, age INTEGER, plan INTEGER);
CREATE TABLE visits (vid INTEGER PRIMARY KEY, pid INTEGER NOT NULL REFERENCES patients (pid), ward INTEGER, urgent BOOLEAN);
CREATE TABLE diagnoses (did INTEGER PRIMARY KEY, vid INTEGER NOT NULL REFERENCES visits (vid), code INTEGER, days INTEGER);
INSERT INTO patients SELECT i, ['f', 'm'][1 + i % 2], floor(100 * sqrt(random())), i % 3 FROM range(3000) t(i);
INSERT INTO visits SELECT row_number() OVER (), p, floor(6 * random()), random() < 0.3
    FROM (SELECT i AS p, unnest(range(1 + floor(random() * random() * 8)::INTEGER)) FROM range(3000) t(i));
INSERT INTO diagnoses SELECT row_number() OVER (), vid,
    floor(CASE WHEN sex = 'm' AND random() < 0.5 THEN 2 WHEN age >= 60 AND random() < 0.7 THEN 5 ELSE 10 END * random()),
    floor(5 * random()) + CASE WHEN urgent THEN 2 ELSE 0 END
    FROM (SELECT vid, urgent, sex, age, unnest(range(floor(random() * 4)::INTEGER)) FROM visits JOIN patients USING (pid));
"""
DECLARED = """
CALL dp_protect(['patients', 'visits', 'diagnoses'], unit := 'patients.pid', max_rows := {'visits': 10, 'diagnoses': 30}, epsilon := 1e6,
    delta := 1e-6);
CALL dp_attributes('patients', {'sex': ['f', 'm'], 'age': {'low': 0, 'high': 99}, 'plan': [0, 1, 2]});
CALL dp_attributes('visits', {'ward': [0, 1, 2, 3, 4, 5], 'urgent': [false, true]});
CALL dp_attributes('diagnoses', {'code': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 'days': [0, 1, 2, 3, 4, 5, 6]});
"""
WHOLE = "{0}.diagnoses JOIN {0}.visits USING (vid) JOIN {0}.patients USING (pid)"
DISTRIBUTIONS = {
    "sex, code": f"SELECT sex, code, count(*) FROM {WHOLE} GROUP BY ALL",
    "age in tens, code": f"SELECT age // 10, code, count(*) FROM {WHOLE} GROUP BY ALL",
    "urgent, days": f"SELECT urgent, days, count(*) FROM {WHOLE} GROUP BY ALL",
    "ward, code": f"SELECT ward, code, count(*) FROM {WHOLE} GROUP BY ALL",
    "code, days": f"SELECT code, days, count(*) FROM {WHOLE} GROUP BY ALL",
    "diagnoses of a visit": "SELECT k, count(*) FROM (SELECT count(did) AS k FROM {0}.visits LEFT JOIN {0}.diagnoses USING (vid) "
    "GROUP BY vid) GROUP BY k",
    "diagnoses of a patient": "SELECT k, count(*) FROM (SELECT count(did) AS k FROM {0}.patients LEFT JOIN {0}.visits USING (pid) "
    "LEFT JOIN {0}.diagnoses USING (vid) GROUP BY pid) GROUP BY k",
}


def main(runs: int, epsilons: list[float]) -> None:
    """Print a row for each epsilon."""
    con = duckdb.connect()
    con.execute(TABLES)
    duckdb_dp.load(con, f"{tempfile.mkdtemp()}/grandchildren.dp", progress=False)
    con.execute(DECLARED)
    con.execute("RESET threads")
    print(
        f"| epsilon | {' | '.join([*DISTRIBUTIONS, 'seconds'])} |\n|---|{'---:|' * (len(DISTRIBUTIONS) + 1)}",
        flush=True,
    )
    for epsilon in epsilons:
        found = []
        for _ in range(runs):
            con.execute("DROP SCHEMA IF EXISTS syn CASCADE")
            start = time.process_time()
            con.execute(
                "CALL dp_synthesize_database('main', target := 'syn', tables := ['patients', 'visits', 'diagnoses'], "
                f"epsilon := {epsilon}, fresh := true)"
            ).fetchall()
            seconds = time.process_time() - start
            found.append([*distances(con, DISTRIBUTIONS.values()), seconds])
        print(f"| {epsilon:g} | {' | '.join(f'{mean(each):.3f}' for each in zip(*found, strict=True))} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4, [float(one) for one in sys.argv[2:]] or [1, 2, 4, 8])
