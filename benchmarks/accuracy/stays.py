"""Two dates of a row, of which one is never below the other: how long stays are, by ward, in rows of dp_synthesize.

python benchmarks/accuracy/stays.py [seeds]: a table of each case, means over the seeds.

10,000 generated stays, short ones in bins of a month and of a week, and jobs of years half of which end with a year. Beside what
dp_synthesize does, the same budget without the difference ('bins'), and without a CHECK ('apart').
"""

import itertools
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import duckdb

import duckdb_dp.testing
from duckdb_dp.sql import ordered_columns

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import distance

ROWS = 10_000
DAYS = {
    "stays": "CASE ward WHEN 'er' THEN 0 WHEN 'surgery' THEN 2 + floor(-4 * ln(1 - random())) "
    "WHEN 'old' THEN 5 + floor(-9 * ln(1 - random())) ELSE 1 + floor(-3 * ln(1 - random())) END",
    "jobs": "CASE WHEN random() < .5 THEN make_date(least(year(a) + floor(3 * random())::INTEGER, 2024), 12, 31) - a "
    "ELSE floor(CASE ward WHEN 'er' THEN 150 ELSE 900 END * random()) END",
}
"""SQL of how long a row lasts, from its ward and its first day a."""

CASES = {
    "stays by month": ("stays", "2022-01-01", 1090, "2025-07-01", "1 MONTH"),
    "stays by week": ("stays", "2022-01-03", 1090, "2025-07-07", "7 DAY"),
    "jobs by month": ("jobs", "2015-01-01", 3000, "2026-01-01", "1 MONTH"),
}
"""Case -> (which, first day, days on which they begin, end of the declared days, width of the bins)."""

WAYS = ("difference", "bins", "apart")
EPSILONS = (0.5, 1, 4, 8)
PAIRS = [*itertools.combinations(("ward", "sex", "cost", "a", "b"), 2)]


def table(connection: duckdb.DuckDBPyConnection, case: str, *, checked: bool) -> None:
    """The rows, declared; with a CHECK or without."""
    which, first, days, last, width = CASES[case]
    connection.execute("SET threads = 1; SELECT setseed(0.5)")
    check = ", CHECK (b >= a)" if checked else ""
    connection.execute(f"CREATE TABLE stays (ward VARCHAR, sex VARCHAR, cost DOUBLE, a DATE, b DATE{check})")
    connection.execute(
        "INSERT INTO stays SELECT ward, sex, 100 + 50 * (b - a) * random(), a, b "
        f"FROM (SELECT *, a + ({DAYS[which]})::INTEGER AS b FROM (SELECT "
        "['er', 'surgery', 'old', 'inner'][1 + floor(4 * random())::INTEGER] AS ward, ['F', 'M'][1 + floor(2 * random())::INTEGER] AS sex, "
        f"DATE '{first}' + floor({days} * random())::INTEGER AS a FROM range({ROWS})))"
    )
    connection.execute("CALL dp_protect('stays', epsilon := 1e6, delta := 1e-9)")
    connection.execute(
        "CALL dp_attributes('stays', {'ward': ['er', 'surgery', 'old', 'inner'], 'sex': ['F', 'M'], "
        "'cost': [0, 100, 200, 400, 800, 1600, 200000]})"
    )
    for column in "ab":
        connection.execute(
            f"CALL dp_attribute('stays', '{column}', low := '{first}', high := '{last}', step := INTERVAL {width})"
        )


def scores(case: str, way: str, epsilon: float, seed: int) -> list[float]:
    """(mean of b - a, rows in the wrong order, L1 of ward x class of b - a, of the two bins, of each bin, mean L1 of all pairs)."""
    connection = duckdb.connect()
    duckdb_dp.testing.load(connection, tempfile.mkdtemp() + "/stays.dp", seed=seed)
    table(connection, case, checked=way != "apart")
    first, width = CASES[case][1], CASES[case][4]
    with patch.object(
        ordered_columns, "looked_at", ordered_columns.looked_at if way == "difference" else lambda *_: []
    ):
        connection.execute(f"CREATE TABLE made AS FROM dp_synthesize('stays', epsilon := {epsilon})")
    bins = {name: f"time_bucket(INTERVAL {width}, {name}, DATE '{first}')" for name in "ab"}
    cells = {
        "ward": "ward",
        "sex": "sex",
        "cost": "cost >= 100, cost >= 200, cost >= 400, cost >= 800, cost >= 1600",
        **bins,
    }
    ((mean, wrong),) = connection.execute("SELECT avg(b - a), avg((b < a)::INTEGER) FROM made").fetchall()
    pairs = [distance(connection, f"{cells[one]}, {cells[other]}", "stays", "made") for one, other in PAIRS]
    length = distance(connection, "ward, floor(log2(1 + greatest(b - a, 0)))", "stays", "made")
    return [
        mean,
        wrong,
        length,
        pairs[-1],
        distance(connection, bins["a"], "stays", "made"),
        distance(connection, bins["b"], "stays", "made"),
        sum(pairs) / len(pairs),
    ]


def main(seeds: int) -> None:
    """Print a table of each case."""
    for case in CASES:
        connection = duckdb.connect()
        duckdb_dp.testing.load(connection, tempfile.mkdtemp() + "/stays.dp", seed=0)
        table(connection, case, checked=True)
        ((mean,),) = connection.execute("SELECT avg(b - a) FROM stays").fetchall()
        print(f"\n{case}: {mean:.1f} days on average\n")
        print("| epsilon | | mean of b - a | wrong order | ward x length | a x b | a | b | all pairs |")
        print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
        for epsilon, way in itertools.product(EPSILONS, WAYS):
            every = [scores(case, way, epsilon, seed) for seed in range(seeds)]
            means = [sum(column) / len(column) for column in zip(*every, strict=True)]
            print(
                f"| {epsilon} | {way} | {means[0]:.1f} | " + " | ".join(f"{value:.3f}" for value in means[1:]) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
