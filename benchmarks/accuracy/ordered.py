"""Many values in an order: days, ages and amounts of synthetic rows, smoothed level by level or towards even shares.

python benchmarks/accuracy/ordered.py [seeds]: L1 distances of 9,000 generated rows, means over the seeds, by epsilon.
"""

import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import duckdb

import duckdb_dp.testing
from duckdb_dp.reconstruct import estimate

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import distance

ROWS = """
SET threads = 1; SELECT setseed(0.4); CREATE TABLE sales (grade INTEGER, shop INTEGER, day DATE, age INTEGER, amount INTEGER);
INSERT INTO sales SELECT grade, floor(8 * random())::INTEGER, CASE WHEN random() < .15
    THEN make_date(2022 + floor(3 * random())::INTEGER, 11 + floor(2 * random())::INTEGER, 1 + floor(30 * random())::INTEGER)
    ELSE DATE '2022-01-01' + floor(1096 * random())::INTEGER END, 18 + floor(random() * random() * 80)::INTEGER,
    100 * grade + floor(-150 * ln(random()))::INTEGER FROM (SELECT floor(5 * random())::INTEGER AS grade FROM range(9000));
"""
DECLARED = """
CALL dp_protect('sales', epsilon := 1e6, delta := 1e-7);
CALL dp_attributes('sales', {'grade': [0, 1, 2, 3, 4], 'shop': [0, 1, 2, 3, 4, 5, 6, 7]});
CALL dp_attribute('sales', 'day', low := '2022-01-01', high := '2025-01-01', step := INTERVAL 1 DAY);
CALL dp_attribute('sales', 'age', low := 0, high := 110); CALL dp_attribute('sales', 'amount', low := 0, high := 2000, step := 10);
"""
DISTRIBUTIONS = {
    "days": "day",
    "months": "date_trunc('month', day)",
    "ages": "age",
    "bins of the amount": "amount // 10",
    "quarter and grade": "quarter(day), grade",
    "grade and hundreds of the amount": "grade, amount // 100",
    "shop and grade": "shop, grade",
}
NEVER = 10**9


def main(seeds: int) -> None:
    """Print the table."""
    connection = duckdb.connect()
    connection.execute(ROWS)
    print("| epsilon | | " + " | ".join(DISTRIBUTIONS) + " |")
    for epsilon in (0.3, 1, 4):
        for way, least in (("smoothed", estimate.LEAST), ("towards even shares", NEVER)):
            sums = dict.fromkeys(DISTRIBUTIONS, 0.0)
            for seed in range(seeds):
                duckdb_dp.testing.load(connection, tempfile.mkdtemp() + "/sales.dp", seed=seed)
                connection.execute(DECLARED)
                with patch.object(estimate, "LEAST", least):
                    connection.execute(
                        f"CREATE OR REPLACE TABLE made AS FROM dp_synthesize('sales', epsilon := {epsilon})"
                    )
                for name, columns in DISTRIBUTIONS.items():
                    sums[name] += distance(connection, columns, "sales", "made") / seeds
            print(f"| {epsilon} | {way} | " + " | ".join(f"{value:.3f}" for value in sums.values()) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
