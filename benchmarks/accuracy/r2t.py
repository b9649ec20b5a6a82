"""Counts and sums over joins under pure DP, clipped at a bound that is chosen privately: beside R2T (Dong et al. 2022).

Its six TPC-H queries with one private relation, at scale factor 1, with its units: plain mean absolute error over some runs. Each
query is one dp_sql; its rows are read once, and the choice of the bound and the noise are drawn anew for each run by the code that
draws them for every statement.

    python benchmarks/accuracy/r2t.py FOLDER_OF_PARQUET [runs] [R2T's figures as JSON]

The data: `pip install tpchgen-cli` and `tpchgen-cli parquet -s 1 --output-dir FOLDER`.
"""

import json
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any
from unittest.mock import patch

import duckdb

import duckdb_dp
from duckdb_dp.answers import load
from duckdb_dp.release import release
from duckdb_dp.sql import execute

EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
QUERIES = {
    "Q3": (
        "SELECT o_custkey AS unit FROM orders JOIN lineitem ON o_orderkey = l_orderkey "
        "WHERE o_orderdate < DATE '1997-01-01' AND l_shipdate > DATE '1994-01-01'",
        "count(*)",
    ),
    "Q10": (
        "SELECT o_custkey AS unit FROM orders JOIN customer ON o_custkey = c_custkey JOIN nation ON c_nationkey = n_nationkey",
        "count(*)",
    ),
    "Q11": (
        "SELECT ps_suppkey AS unit, ps_supplycost * ps_availqty / 1000000 AS value FROM partsupp JOIN supplier ON ps_suppkey = s_suppkey "
        "JOIN nation ON s_nationkey = n_nationkey",
        "sum(value)",
    ),
    "Q12": ("SELECT o_orderkey AS unit FROM orders JOIN lineitem ON o_orderkey = l_orderkey", "count(*)"),
    "Q18": (
        "SELECT o_custkey AS unit, l_quantity AS value FROM orders JOIN lineitem ON o_orderkey = l_orderkey "
        "JOIN customer ON o_custkey = c_custkey",
        "sum(value)",
    ),
    "Q20": (
        "SELECT s_suppkey AS unit FROM supplier JOIN nation ON s_nationkey = n_nationkey JOIN partsupp ON ps_suppkey = s_suppkey "
        "JOIN lineitem ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey",
        "count(*)",
    ),
}


class SeenError(Exception):
    """Raised when the rows are read, before anything is charged."""


def errors(folder: Path, rows: str, aggregate: str, runs: int) -> tuple[float, list[float]]:
    """The exact answer, and the mean absolute error at each epsilon."""
    with tempfile.TemporaryDirectory() as scratch, duckdb.connect() as con:
        for path in folder.glob("*.parquet"):
            con.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")
        con.execute(f"CREATE TABLE joined AS {rows}")
        ((exact,),) = con.execute(f"SELECT {aggregate}::DOUBLE FROM joined").fetchall()
        duckdb_dp.load(con, ledger=f"{scratch}/l.dp")
        con.execute("CALL dp_protect('joined', unit := 'unit', max_rows := 'auto', epsilon := 1e6, delta := 0)")
        seen: list[Any] = []

        def stop(*arguments: Any, **_: Any) -> None:
            seen[:] = arguments[:3]
            raise SeenError

        with patch.object(execute, "_draw", stop), suppress(duckdb.Error):
            con.execute(f"FROM dp_sql('SELECT {aggregate} AS answer FROM joined', epsilon := 1)").fetchall()
        session, asked, sums = seen
        dataset = session.ledger.dataset(asked.catalog, asked.schema, asked.table)
        found = []
        for epsilon in EPSILONS:
            request = replace(asked, cost=epsilon)
            drawn = []
            for run in range(runs):
                done = release(
                    request, sums, ledger=session.ledger, dataset=dataset, bits=session.bits, fresh_key=str(run)
                )
                (answer,) = load(session.ledger, done).parts([0])
                drawn.append(abs(float(answer[0]) - exact))
            found.append(mean(drawn))
        return exact, found


def main(folder: str, runs: str = "50", published: str = "") -> None:
    """Print a row for each query: the mean absolute error at each epsilon, and how many times smaller it is than R2T's."""
    known = json.loads(Path(published).read_text())["queries"] if published else {}
    print("| query | exact |", " | ".join(f"{epsilon:g}" for epsilon in EPSILONS), "|")
    print("|---|---|" + "---|" * len(EPSILONS))
    ratios = []
    for name, (rows, aggregate) in QUERIES.items():
        exact, found = errors(Path(folder), rows, aggregate, int(runs))
        theirs = known.get(name, {}).get("r2t_error", [])
        own = [their / ours for their, ours in zip(theirs, found, strict=False)]
        ratios += own
        cells = [f"{error:.4g}" + (f" (1/{own[i]:.0f})" if own else "") for i, error in enumerate(found)]
        print(f"| {name} | {exact:.9g} |", " | ".join(cells), "|", flush=True)
    if ratios:
        print(f"of R2T's error: 1/{min(ratios):.1f} at most, 1/{median(ratios):.1f} in the median")


if __name__ == "__main__":
    main(*sys.argv[1:])
