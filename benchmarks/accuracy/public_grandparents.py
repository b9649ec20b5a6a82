"""Reviews of bookings of public listings, and charges of admissions to public wards, generated: what two references apart is kept.

python benchmarks/accuracy/public_grandparents.py [runs] [epsilon ...]: means over the runs, at delta 1e-6 for all tables together. Stars
follow the kind of the listing and the status of the booking; a charge's code follows whether the ward is an ICU, and its amount the
admission's urgency.
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
CREATE TABLE listings (id INTEGER PRIMARY KEY, kind VARCHAR, city INTEGER, beds INTEGER);
CREATE TABLE guests (id INTEGER PRIMARY KEY, country INTEGER);
CREATE TABLE bookings (id INTEGER PRIMARY KEY, guest_id INTEGER NOT NULL REFERENCES guests (id),
    listing_id INTEGER NOT NULL REFERENCES listings (id), status INTEGER, nights INTEGER);
CREATE TABLE reviews (id INTEGER PRIMARY KEY, booking_id INTEGER NOT NULL UNIQUE REFERENCES bookings (id), stars INTEGER);
INSERT INTO listings SELECT i, ['flat', 'house', 'room'][1 + i % 3], floor(20 * random()), 1 + floor(6 * random()) FROM range(200) t(i);
INSERT INTO guests SELECT i, i % 4 FROM range(2000) t(i);
INSERT INTO bookings SELECT row_number() OVER (), g, floor(200 * random() * random()), floor(3 * random()), 1 + floor(7 * random())
    FROM (SELECT i AS g, unnest(range(1 + floor(random() * 5)::INTEGER)) FROM range(2000) t(i));
INSERT INTO reviews SELECT row_number() OVER (), id, least(5, greatest(1, (CASE kind WHEN 'flat' THEN 4 WHEN 'house' THEN 2.8 ELSE 1.6 END
    + CASE status WHEN 0 THEN 0.7 ELSE 0 END + random() * 2 - 0.5)::INTEGER))
    FROM (SELECT b.id, kind, status FROM bookings b JOIN listings l ON l.id = listing_id) WHERE random() < 0.6;
CREATE TABLE wards (id INTEGER PRIMARY KEY, icu BOOLEAN, floor INTEGER);
CREATE TABLE patients (pid INTEGER PRIMARY KEY, sex INTEGER);
CREATE TABLE admissions (aid INTEGER PRIMARY KEY, pid INTEGER NOT NULL REFERENCES patients (pid),
    ward INTEGER NOT NULL REFERENCES wards (id), urgent BOOLEAN);
CREATE TABLE charges (cid INTEGER PRIMARY KEY, aid INTEGER NOT NULL REFERENCES admissions (aid), code INTEGER, amount INTEGER);
INSERT INTO wards SELECT i, i % 4 = 0, i % 5 FROM range(40) t(i);
INSERT INTO patients SELECT i, i % 2 FROM range(2000) t(i);
INSERT INTO admissions SELECT row_number() OVER (), p, floor(40 * random()), random() < 0.3
    FROM (SELECT i AS p, unnest(range(1 + floor(random() * 3)::INTEGER)) FROM range(2000) t(i));
INSERT INTO charges SELECT row_number() OVER (), aid, floor(CASE WHEN icu AND random() < 0.7 THEN 3 ELSE 10 END * random()),
    floor(5 * random()) + CASE WHEN urgent THEN 2 ELSE 0 END
    FROM (SELECT aid, urgent, icu, unnest(range(1 + floor(random() * 4)::INTEGER)) FROM admissions JOIN wards ON wards.id = ward);
"""
DECLARED = """
CALL dp_public('listings');
CALL dp_public('wards');
CALL dp_protect(['guests', 'bookings', 'reviews'], unit := 'guests.id', max_rows := {'bookings': 6, 'reviews': 6}, epsilon := 1e6,
    delta := 1e-6);
CALL dp_attributes('guests', {'country': [0, 1, 2, 3]});
CALL dp_attributes('bookings', {'status': [0, 1, 2], 'nights': [1, 2, 3, 4, 5, 6, 7]});
CALL dp_attributes('reviews', {'stars': [1, 2, 3, 4, 5]});
CALL dp_protect(['patients', 'admissions', 'charges'], unit := 'patients.pid', max_rows := {'admissions': 4, 'charges': 12},
    epsilon := 1e6, delta := 1e-6);
CALL dp_attributes('patients', {'sex': [0, 1]});
CALL dp_attributes('admissions', {'urgent': [false, true]});
CALL dp_attributes('charges', {'code': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 'amount': [0, 1, 2, 3, 4, 5, 6]});
"""
SCHEMAS = {"bnb": ("guests", "bookings", "reviews"), "care": ("patients", "admissions", "charges")}
STAYS = "{0}.reviews r JOIN {0}.bookings b ON b.id = r.booking_id JOIN {0}.listings l ON l.id = b.listing_id"
CARE = "{0}.charges c JOIN {0}.admissions a USING (aid) JOIN {0}.wards w ON w.id = a.ward"
DISTRIBUTIONS = {
    "bnb": {
        "kind, stars": f"SELECT kind, stars, count(*) FROM {STAYS} GROUP BY ALL",
        "status, stars": f"SELECT status, stars, count(*) FROM {STAYS} GROUP BY ALL",
        "nights, stars": f"SELECT nights, stars, count(*) FROM {STAYS} GROUP BY ALL",
        "kind, status": "SELECT kind, status, count(*) FROM {0}.bookings b JOIN {0}.listings l ON l.id = listing_id GROUP BY ALL",
        "kind of reviewed": f"SELECT kind, count(*) FROM {STAYS} GROUP BY ALL",
        "stars": "SELECT stars, count(*) FROM {0}.reviews GROUP BY ALL",
        "reviewed by status": "SELECT status, r.id IS NULL, count(*) FROM {0}.bookings b LEFT JOIN {0}.reviews r ON b.id = booking_id "
        "GROUP BY ALL",
        "reviews of a guest": "SELECT k, count(*) FROM (SELECT count(r.id) AS k FROM {0}.guests g LEFT JOIN {0}.bookings b "
        "ON g.id = guest_id LEFT JOIN {0}.reviews r ON b.id = booking_id GROUP BY g.id) GROUP BY k",
        "reviews of a listing": f"SELECT l.id, count(*) FROM {STAYS} GROUP BY ALL",
    },
    "care": {
        "icu, code": f"SELECT icu, code, count(*) FROM {CARE} GROUP BY ALL",
        "ward, code": f"SELECT ward, code, count(*) FROM {CARE} GROUP BY ALL",
        "urgent, amount": f"SELECT urgent, amount, count(*) FROM {CARE} GROUP BY ALL",
        "code, amount": f"SELECT code, amount, count(*) FROM {CARE} GROUP BY ALL",
        "code": "SELECT code, count(*) FROM {0}.charges GROUP BY ALL",
        "charges of an admission": "SELECT k, count(*) FROM (SELECT count(cid) AS k FROM {0}.admissions LEFT JOIN {0}.charges USING (aid) "
        "GROUP BY aid) GROUP BY k",
        "charges of a ward": f"SELECT ward, count(*) FROM {CARE} GROUP BY ALL",
    },
}
SPREAD = {
    "bnb": f"SELECT max(m) - min(m) FROM (SELECT avg(stars) AS m FROM {STAYS} GROUP BY kind)",
    "care": f"SELECT max(m) - min(m) FROM (SELECT avg((code < 3)::INTEGER) AS m FROM {CARE} GROUP BY icu)",
}
"""Differences that are to be kept: of mean stars between kinds, and of the share of three codes between wards."""


def main(runs: int, epsilons: list[float]) -> None:
    """Print a row for each epsilon."""
    con = duckdb.connect()
    con.execute(TABLES)
    duckdb_dp.load(con, f"{tempfile.mkdtemp()}/grandparents.dp", progress=False)
    con.execute(DECLARED)
    con.execute("RESET threads")
    for of, tables in SCHEMAS.items():
        ((true,),) = con.execute(SPREAD[of].format("main")).fetchall()
        columns = [f"difference ({true:.2f})", *DISTRIBUTIONS[of], "seconds"]
        print(f"| epsilon | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}", flush=True)
        for epsilon in epsilons:
            found = []
            for _ in range(runs):
                con.execute("DROP SCHEMA IF EXISTS syn CASCADE")
                start = time.perf_counter()
                con.execute(
                    f"CALL dp_synthesize_database('main', target := 'syn', tables := {list(tables)}, epsilon := {epsilon}, fresh := true)"
                ).fetchall()
                seconds = time.perf_counter() - start
                found.append(
                    [
                        con.execute(SPREAD[of].format("syn")).fetchall()[0][0],
                        *distances(con, DISTRIBUTIONS[of].values()),
                        seconds,
                    ]
                )
            print(
                f"| {epsilon:g} | {' | '.join(f'{mean(each):.3f}' for each in zip(*found, strict=True))} |", flush=True
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4, [float(one) for one in sys.argv[2:]] or [1, 4, 16])
