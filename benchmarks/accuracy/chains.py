"""Lines of orders of customers, generated: how far a synthetic database is from them, and one whose lines have random orders.

python benchmarks/accuracy/chains.py [runs]: L1 distances of distributions, means over the runs, by epsilon at delta 1e-6. Channel 0 has
one or two lines for each order, 2 up to six; a line's kind follows the order's channel, and its quantity the order's priority.
"""

import sys
import tempfile
from statistics import mean

import duckdb
from distributions import distances

import duckdb_dp

TABLES = """
SELECT setseed(0.4);
CREATE TABLE customers (cid INTEGER PRIMARY KEY, segment INTEGER);
CREATE TABLE orders (oid INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES customers (cid), channel INTEGER, priority INTEGER);
CREATE TABLE lines (oid INTEGER NOT NULL REFERENCES orders (oid), n INTEGER, kind INTEGER, quantity INTEGER, PRIMARY KEY (oid, n));
INSERT INTO customers SELECT i, i % 3 FROM range(3000) t(i);
INSERT INTO orders SELECT row_number() OVER () - 1, cid, CASE WHEN random() < 0.7 THEN segment ELSE (random() * 2.99)::INTEGER END,
    floor(5 * random())::INTEGER FROM (SELECT cid, segment, unnest(range(1 + floor(random() * random() * 8)::INTEGER)) FROM customers);
INSERT INTO lines SELECT oid, n, CASE WHEN random() < 0.6 THEN channel * 2 ELSE floor(6 * random())::INTEGER END,
    least(priority + floor(3 * random())::INTEGER, 6)
    FROM (SELECT oid, channel, priority, unnest(range(1 + floor(random() * (2 + 2 * channel))::INTEGER)) AS n FROM orders);
"""
DECLARED = """
CALL dp_protect(['customers', 'orders', 'lines'], unit := 'customers.cid', max_rows := {'orders': 8, 'lines': 40}, epsilon := 1e6,
    delta := 1e-6);
CALL dp_attributes('customers', {'segment': [0, 1, 2]});
CALL dp_attributes('orders', {'channel': [0, 1, 2], 'priority': [0, 1, 2, 3, 4]});
CALL dp_attributes('lines', {'kind': [0, 1, 2, 3, 4, 5], 'quantity': [0, 1, 2, 3, 4, 5, 6]});
"""
RANDOM = """
CREATE OR REPLACE TABLE syn.lines AS SELECT o.oid, l.n, l.kind, l.quantity
FROM (SELECT *, floor(random() * 1e9)::BIGINT % (SELECT count(*) FROM syn.orders) AS r FROM syn.lines) l
JOIN (SELECT oid, row_number() OVER () - 1 AS r FROM syn.orders) o USING (r)
"""
DISTRIBUTIONS = {
    "orders of a customer": "SELECT k, count(*) FROM (SELECT count(orders.oid) AS k FROM {0}.customers LEFT JOIN {0}.orders USING (cid) "
    "GROUP BY customers.cid) GROUP BY k",
    "lines of an order": "SELECT k, count(*) FROM (SELECT count(lines.oid) AS k FROM {0}.orders LEFT JOIN {0}.lines USING (oid) "
    "GROUP BY orders.oid) GROUP BY k",
    "and channel": "SELECT channel, k, count(*) FROM (SELECT orders.oid, any_value(channel) AS channel, count(lines.oid) AS k "
    "FROM {0}.orders LEFT JOIN {0}.lines USING (oid) GROUP BY orders.oid) GROUP BY ALL",
    "channel and kind": "SELECT channel, kind, count(*) FROM {0}.orders JOIN {0}.lines USING (oid) GROUP BY ALL",
    "priority and quantity": "SELECT priority, quantity, count(*) FROM {0}.orders JOIN {0}.lines USING (oid) GROUP BY ALL",
    "segment and kind": "SELECT segment, kind, count(*) FROM {0}.customers JOIN {0}.orders USING (cid) JOIN {0}.lines USING (oid) "
    "GROUP BY ALL",
}  # fmt: skip


def main(runs: int) -> None:
    """Print a row for each epsilon, and one with random orders."""
    con = duckdb.connect()
    con.execute(TABLES)
    duckdb_dp.load(con, f"{tempfile.mkdtemp()}/chains.dp", progress=False)
    con.execute(DECLARED)
    print(f"| epsilon | {' | '.join(DISTRIBUTIONS)} |\n|---|{'---:|' * len(DISTRIBUTIONS)}", flush=True)
    for epsilon in (0.5, 1, 2, 4, 8):
        found = []
        for _ in range(runs):
            con.execute("DROP SCHEMA IF EXISTS syn CASCADE")
            con.execute(
                f"CALL dp_synthesize_database('main', target := 'syn', epsilon := {epsilon}, fresh := true)"
            ).fetchall()
            found.append(distances(con, DISTRIBUTIONS.values()))
        print(f"| {epsilon} | {' | '.join(f'{mean(each):.3f}' for each in zip(*found, strict=True))} |", flush=True)
    con.execute(RANDOM)
    print(f"| random orders | {' | '.join(f'{each:.3f}' for each in distances(con, DISTRIBUTIONS.values()))} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
