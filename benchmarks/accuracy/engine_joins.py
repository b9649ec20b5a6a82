"""Joins of TPC-H's tables in the engine that holds them: dp_sql beside the engine's own query, DuckDB through Ibis and local Spark.

The data: ``tpchgen-cli parquet -s 1 --output-dir=DIR`` (the PyPI package tpchgen-cli). Then
``python benchmarks/accuracy/engine_joins.py DIR duckdb spark``.

Rows of a Markdown table go to stdout: the processor time of the engine's own query, of the same as dp_sql, both the least of some runs in
turn, their ratio, and the largest relative error of a group at epsilon 0.5. docs/engines.md has them.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

sys.path.insert(0, str(Path(__file__).parents[1]))

from accuracy.engines import own_processor, processor_of

import duckdb_dp
from duckdb_dp.counting.engines import spark

TABLES = ("customer", "orders", "lineitem", "supplier", "nation", "region")
MEMBERS = ("customer", "orders", "lineitem")
DECLARED = """
CALL dp_link('orders', "references" := {'o_custkey': 'customer.c_custkey'});
CALL dp_link('lineitem', "references" := {'l_orderkey': 'orders.o_orderkey'});
CALL dp_protect(['customer', 'orders', 'lineitem'], unit := 'customer.c_custkey', epsilon := 1000, delta := 1e-9);
CALL dp_public(['supplier', 'nation', 'region']);
CALL dp_attribute('lineitem', 'l_returnflag', "values" := ['A', 'N', 'R']);
CALL dp_attribute('lineitem', 'l_quantity', low := 0, high := 50, step := 5);
CALL dp_attribute('orders', 'o_orderpriority', "values" := ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW']);
"""
QUERIES = {
    "lines and quantities by return flag": """SELECT l_returnflag, count(*) AS n, sum(l_quantity) AS s FROM lineitem
        GROUP BY l_returnflag""",
    "Q4, orders with a late line": """SELECT o_orderpriority, count(*) AS n FROM orders WHERE o_orderdate >= DATE '1993-07-01'
        AND o_orderdate < DATE '1993-10-01' AND EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey
        AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority""",
    "Q5, lines within a nation": """SELECT n_name, count(*) AS n FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
        AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01'
        AND o_orderdate < DATE '1995-01-01' GROUP BY n_name""",
    "Q13, customers by orders": """SELECT c_count, count(*) AS n FROM (SELECT c_custkey, count(o_orderkey) AS c_count FROM customer
        LEFT JOIN orders ON c_custkey = o_custkey GROUP BY c_custkey) AS c WHERE c_count BETWEEN 0 AND 40 GROUP BY c_count""",
}
RUNS = 3


def on(engine: str, folder: Path) -> tuple[Any, Callable[[str], Any], Callable[[], float]]:
    """An Ibis connection that has the tables, what runs a query there, and the processor time of its process."""
    if engine == "duckdb":
        import ibis

        backend = ibis.duckdb.connect(threads=2)
        for table in TABLES:
            backend.raw_sql(f"CREATE TABLE {table} AS FROM '{folder / table}.parquet'")
        return backend, lambda sql: backend.raw_sql(sql).fetchall(), own_processor
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    backend = spark.connect(master="local[2]", memory="3g", config=settings)
    session = backend.raw_sql("SELECT 1").sparkSession
    session.sparkContext.setLogLevel("OFF")
    for table in TABLES:
        session.read.parquet(f"{folder / table}.parquet").createOrReplaceTempView(table)
    process = processor_of(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    # Python's own share of a call is in neither: it is that of DuckDB's tables, some 40 ms.
    return backend, lambda sql: session.sql(sql).collect(), process


def main(folder: Path, engines: list[str]) -> None:
    """Print a row for each engine and query."""
    print(
        "| engine | query | its own | dp_sql | ratio | largest relative error |\n|---|---|---|---|---|---|", flush=True
    )
    for engine in engines:
        backend, run, processor = on(engine, folder)
        con = duckdb.connect()
        duckdb_dp.load(con, Path(tempfile.mkdtemp()) / "tpch.dp", progress=False)
        for table in TABLES:
            duckdb_dp.attach(con, table, backend.table(table))
        con.execute(DECLARED)
        for name, sql in QUERIES.items():
            times, answers = [], []
            for _ in range(RUNS):
                start = processor()
                run(sql)
                between = processor()
                answers = con.execute("FROM dp_sql(?, epsilon := 0.5, fresh := true)", [sql]).fetchall()
                times.append((between - start, processor() - between))
            own, ours = (min(each) for each in zip(*times, strict=True))
            exact = {str(row[0]): float(row[1]) for row in run(sql)}
            worst = max(abs(row[1] / exact[str(row[0])] - 1) for row in answers if exact.get(str(row[0]), 0) > 1000)
            print(f"| {engine} | {name} | {own:.2f} s | {ours:.2f} s | {ours / own:.1f} | {worst:.2g} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
