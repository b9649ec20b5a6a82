"""TPC-H with customers as unit: each of the 22 queries as it is, its relative error at epsilon 0.5, and its time over plain DuckDB.

The data are made by the PyPI package tpchgen-cli: ``tpchgen-cli parquet -s 1 --output-dir=DIR``, then
``python benchmarks/accuracy/tpch.py DIR``.
Rows of a Markdown table go to stdout; docs/tpch.md has them.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

import duckdb_dp

KEYS = {
    "region": "r_regionkey", "nation": "n_nationkey", "part": "p_partkey", "supplier": "s_suppkey",
    "partsupp": "ps_partkey, ps_suppkey", "customer": "c_custkey", "orders": "o_orderkey", "lineitem": "l_orderkey, l_linenumber",
}  # fmt: skip
REFERENCES = {
    "orders": ", FOREIGN KEY (o_custkey) REFERENCES customer (c_custkey)",
    "lineitem": ", FOREIGN KEY (l_orderkey) REFERENCES orders (o_orderkey)",
}
DECLARED = """
CALL dp_protect(['customer', 'orders', 'lineitem'], unit := 'customer.c_custkey', epsilon := 1000, delta := 1e-9);
CALL dp_public(['nation', 'region', 'part', 'supplier', 'partsupp']);
CALL dp_attribute('lineitem', 'l_returnflag', "values" := ['A', 'N', 'R']);
CALL dp_attribute('lineitem', 'l_linestatus', "values" := ['F', 'O']);
CALL dp_attribute('orders', 'o_orderpriority', "values" := ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW']);
CALL dp_attribute('orders', 'o_orderdate', low := DATE '1992-01-01', high := DATE '1998-12-31', step := INTERVAL 1 DAY);
CALL dp_attribute('lineitem', 'l_shipdate', low := DATE '1992-01-01', high := DATE '1998-12-31', step := INTERVAL 1 DAY);
"""
QUERIES = {
    "1": """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
        sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
        avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAY GROUP BY l_returnflag, l_linestatus""",
    "2": """SELECT s_acctbal, s_name, n_name, p_partkey FROM part, supplier, partsupp, nation, region WHERE p_partkey = ps_partkey
        AND s_suppkey = ps_suppkey AND p_size = 15 AND p_type LIKE '%BRASS' AND s_nationkey = n_nationkey
        AND n_regionkey = r_regionkey AND r_name = 'EUROPE' AND ps_supplycost = (SELECT min(ps_supplycost) FROM partsupp, supplier,
        nation, region WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey
        AND n_regionkey = r_regionkey AND r_name = 'EUROPE') ORDER BY s_acctbal DESC LIMIT 100""",
    "3": """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate < DATE '1995-03-15'
        AND l_shipdate > DATE '1995-03-15' GROUP BY l_orderkey, o_orderdate ORDER BY revenue DESC LIMIT 10""",
    "4": """SELECT o_orderpriority, count(*) AS order_count FROM orders WHERE o_orderdate >= DATE '1993-07-01'
        AND o_orderdate < DATE '1993-07-01' + INTERVAL 3 MONTH AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey
        AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority""",
    "5": """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
        AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01'
        AND o_orderdate < DATE '1994-01-01' + INTERVAL 1 YEAR GROUP BY n_name""",
    "6": """SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem WHERE l_shipdate >= DATE '1994-01-01'
        AND l_shipdate < DATE '1994-01-01' + INTERVAL 1 YEAR AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24""",
    "7": """SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue FROM (SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation,
        extract(year FROM l_shipdate) AS l_year, l_extendedprice * (1 - l_discount) AS volume FROM supplier, lineitem, orders, customer,
        nation n1, nation n2 WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
        AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY')
        OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE')) AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31') AS shipping
        GROUP BY supp_nation, cust_nation, l_year""",
    "8": """SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share FROM (
        SELECT extract(year FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation FROM part,
        supplier, lineitem, orders, customer, nation n1, nation n2, region WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey
        AND l_orderkey = o_orderkey AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey
        AND r_name = 'AMERICA' AND s_nationkey = n2.n_nationkey AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        AND p_type = 'ECONOMY ANODIZED STEEL') AS all_nations GROUP BY o_year""",
    "9": """SELECT nation, o_year, sum(amount) AS sum_profit FROM (SELECT n_name AS nation, extract(year FROM o_orderdate) AS o_year,
        l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount FROM part, supplier, lineitem, partsupp, orders,
        nation WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
        AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%green%') AS profit GROUP BY nation, o_year""",
    "10": """SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE '1993-10-01' AND o_orderdate
        < DATE '1993-10-01' + INTERVAL 3 MONTH AND l_returnflag = 'R' AND c_nationkey = n_nationkey GROUP BY c_custkey, c_name
        ORDER BY revenue DESC LIMIT 20""",
    "11": """SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value FROM partsupp, supplier, nation WHERE ps_suppkey = s_suppkey
        AND s_nationkey = n_nationkey AND n_name = 'GERMANY' GROUP BY ps_partkey ORDER BY value DESC""",
    "12": """SELECT l_shipmode, sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high,
        sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low FROM orders, lineitem
        WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
        AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1994-01-01' + INTERVAL 1 YEAR GROUP BY l_shipmode""",
    "13": """SELECT c_count, count(*) AS custdist FROM (SELECT c_custkey, count(o_orderkey) AS c_count FROM customer LEFT JOIN orders
        ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%' GROUP BY c_custkey) AS c_orders
        WHERE c_count BETWEEN 0 AND 50 GROUP BY c_count""",
    "14": """SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
        / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue FROM lineitem, part WHERE l_partkey = p_partkey
        AND l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-09-01' + INTERVAL 1 MONTH""",
    "15": """WITH revenue AS (SELECT s_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue
        FROM lineitem JOIN supplier ON s_suppkey = l_suppkey WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-01-01'
        + INTERVAL 3 MONTH GROUP BY s_suppkey) SELECT s_suppkey, s_name, total_revenue FROM supplier, revenue
        WHERE s_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue)""",
    "16": """SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt FROM partsupp, part WHERE p_partkey = ps_partkey
        AND p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%' AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
        AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size""",
    "17": """SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part WHERE p_partkey = l_partkey AND p_brand = 'Brand#23'
        AND p_container = 'MED BOX' AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)""",
    "18": """SELECT c_name, c_custkey, o_orderkey, sum(l_quantity) AS q FROM customer, orders, lineitem WHERE o_orderkey IN
        (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300) AND c_custkey = o_custkey
        AND o_orderkey = l_orderkey GROUP BY c_name, c_custkey, o_orderkey ORDER BY q DESC LIMIT 100""",
    "19": """SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem, part WHERE (p_partkey = l_partkey
        AND p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG') AND l_quantity >= 1 AND l_quantity <= 11
        AND p_size BETWEEN 1 AND 5 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')
        OR (p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
        AND l_quantity >= 10 AND l_quantity <= 20 AND p_size BETWEEN 1 AND 10 AND l_shipmode IN ('AIR', 'AIR REG')
        AND l_shipinstruct = 'DELIVER IN PERSON') OR (p_partkey = l_partkey AND p_brand = 'Brand#34'
        AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG') AND l_quantity >= 20 AND l_quantity <= 30
        AND p_size BETWEEN 1 AND 15 AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')""",
    "20": """SELECT s_name FROM supplier, nation WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp WHERE ps_partkey IN
        (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%') AND ps_availqty > (SELECT 0.5 * sum(l_quantity) FROM lineitem
        WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DATE '1994-01-01'
        AND l_shipdate < DATE '1994-01-01' + INTERVAL 1 YEAR)) AND s_nationkey = n_nationkey AND n_name = 'CANADA'""",
    "21": """SELECT s_name, count(*) AS numwait FROM supplier, lineitem l1, orders, nation WHERE s_suppkey = l1.l_suppkey
        AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F' AND l1.l_receiptdate > l1.l_commitdate AND EXISTS (SELECT * FROM lineitem l2
        WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey) AND NOT EXISTS (SELECT * FROM lineitem l3
        WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)
        AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA' GROUP BY s_name""",
    "22": """SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal FROM (SELECT substring(c_phone, 1, 2) AS cntrycode,
        c_acctbal FROM customer WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17') AND c_acctbal >
        (SELECT avg(c_acctbal) FROM customer WHERE c_acctbal > 0.00
        AND substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
        AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) AS custsale GROUP BY cntrycode""",
}
FIRST = {
    "17": (
        "SELECT p_partkey AS k, avg(l_quantity) AS q FROM lineitem JOIN part ON p_partkey = l_partkey WHERE p_brand = 'Brand#23' "
        "AND p_container = 'MED BOX' GROUP BY p_partkey",
        """SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem JOIN known ON k = l_partkey WHERE l_quantity < 0.2 * q""",
    ),
    "20": (
        "SELECT id, sum(l_quantity) AS q FROM lineitem JOIN pairs ON l_partkey = partkey AND l_suppkey = suppkey "
        "WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL 1 YEAR GROUP BY id",
        """SELECT DISTINCT s_name FROM supplier, nation, pairs, known WHERE s_suppkey = suppkey AND pairs.id = known.id
        AND available > 0.5 * q AND s_nationkey = n_nationkey AND n_name = 'CANADA'""",
    ),
    "22": (
        "SELECT avg(c_acctbal) AS a FROM customer WHERE c_acctbal > 0.00 AND "
        "substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')",
        """SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal FROM (SELECT substring(c_phone, 1, 2) AS cntrycode,
        c_acctbal FROM customer WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17') AND c_acctbal >
        (SELECT max(a) FROM known) AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) AS custsale GROUP BY cntrycode""",
    ),
}
"""What is asked first, for half of the epsilon, and kept as a public table ``known``; and the query with that table."""
PAIRS = """CREATE TABLE pairs AS SELECT row_number() OVER (ORDER BY ps_partkey, ps_suppkey) AS id, ps_partkey AS partkey,
    ps_suppkey AS suppkey, ps_availqty AS available FROM partsupp
    WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')"""
LABELS = {
    "1": 2, "4": 1, "5": 1, "6": 0, "7": 3, "8": 1, "9": 2, "12": 1, "13": 1, "14": 0, "15": 2, "17": 0, "19": 0, "21": 1, "22": 1,
}  # fmt: skip
"""Columns of each answer that are groups, before its aggregates."""
REPEATS = 7
"""Runs of each query, plain and private in turn: of a busy machine the least time of each is told, and the median of the errors."""
ERRORS = ("stddev", "ci_low", "ci_high", "clipped_at")


def database(folder: Path) -> duckdb.DuckDBPyConnection:
    """The tables with their keys, protected."""
    con = duckdb.connect()
    for table, key in KEYS.items():
        columns = con.execute(f"DESCRIBE FROM '{folder / table}.parquet'").fetchall()
        named = ", ".join(f"{name} {type_} NOT NULL" for name, type_, *_ in columns)
        con.execute(f"CREATE TABLE {table} ({named}, PRIMARY KEY ({key}){REFERENCES.get(table, '')})")
        con.execute(f"INSERT INTO {table} FROM '{folder / table}.parquet'")
    duckdb_dp.load(con, Path(tempfile.mkdtemp()) / "tpch.dp", progress=False)
    con.execute(DECLARED)
    return con


def errors(noisy: list[tuple[Any, ...]], names: list[str], exact: list[tuple[Any, ...]], keys: int) -> list[float]:
    """Of each aggregate the median relative error over the groups that have rows; NULL counts as 1."""
    shown = [i for i, name in enumerate(names) if not name.endswith(ERRORS)]
    known = {tuple(map(str, row[:keys])): row[keys:] for row in exact}
    found: list[list[float]] = [[] for _ in range(len(shown) - keys)]
    for row in noisy:
        plain = [row[i] for i in shown]
        for place, true in enumerate(known.get(tuple(map(str, plain[:keys])), ())):
            value = plain[keys + place]
            found[place].append(
                1.0 if value is None else abs(float(value) - float(true)) / abs(float(true)) if true else 0.0
            )
    return [statistics.median(each) for each in found if each]


def timed(
    con: duckdb.DuckDBPyConnection, sql: str, parameters: list[Any] | None = None
) -> tuple[float, list[tuple[Any, ...]], list[str]]:
    """(seconds of processor time of all threads, rows, names of the columns)."""
    start = time.process_time()
    rows = con.execute(sql, parameters or []).fetchall()
    return time.process_time() - start, rows, [column[0] for column in con.description or []]


def in_two(con: duckdb.DuckDBPyConnection, name: str, exact: list[tuple[Any, ...]]) -> str:
    """The relative errors of a query whose subquery is asked first; of a list of names the share that is right."""
    first, second = FIRST[name]
    con.execute(f"DROP TABLE IF EXISTS known; DROP TABLE IF EXISTS pairs; {PAIRS}; CALL dp_public('pairs')")
    con.execute("CREATE TABLE known AS FROM dp_sql(?, epsilon := 0.25)", [first])
    con.execute("CALL dp_public('known')")
    if name == "20":
        found = {row[0] for row in con.execute(second).fetchall()}
        true = {row[0] for row in exact}
        return f"{len(found & true)} of {len(true)} names, {len(found - true)} others"
    _, rows, names = timed(con, "FROM dp_sql(?, epsilon := 0.25)", [second])
    return ", ".join(f"{one:.2g}" for one in errors(rows, names, exact, LABELS[name]))


def main(folder: Path, only: list[str]) -> None:
    """Print a row for each query."""
    con = database(folder)
    call = "FROM dp_sql(?, epsilon := 0.5, fresh := true)"
    print("| query | answer | relative error of each aggregate | time over plain |\n|---|---|---|---|", flush=True)
    for name, query in QUERIES.items():
        if only and name not in only:
            continue
        if name in FIRST:
            print(f"| Q{name} | in two statements | {in_two(con, name, con.execute(query).fetchall())} | |", flush=True)
            continue
        _, exact, _ = timed(con, query)
        try:
            both = [(timed(con, query)[0], timed(con, call, [query])) for _ in range(REPEATS)]
        except duckdb.Error as error:
            print(f"| Q{name} | {str(error).splitlines()[0].split('dp_sql: ')[-1][-170:]} | | |", flush=True)
            continue
        plain, times = min(seconds for seconds, _ in both), [private for _, private in both]
        relative = [errors(rows, names, exact, LABELS[name]) for _, rows, names in times]
        shown = ", ".join(f"{statistics.median(each):.2g}" for each in zip(*relative, strict=True))
        print(f"| Q{name} | answered | {shown} | {min(t for t, _, _ in times) / plain:.1f} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
