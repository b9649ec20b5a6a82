"""Tables to count, and the best of a few timings."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import duckdb

import duckdb_dp

SHARED = Path(__file__).parents[2] / "shared"


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """Best of a few rounds: the least disturbed by others on the machine."""
    best = math.inf
    for _ in range(rounds):
        start = perf_counter()
        work()
        best = min(best, perf_counter() - start)
    return best


def distance(connection: duckdb.DuckDBPyConnection, columns: str, real: str, made: str) -> float:
    """The L1 distance of the distributions of some columns in two tables."""
    found = [
        {
            row[:-1]: row[-1]
            for row in connection.execute(f"SELECT {columns}, count(*) FROM {name} GROUP BY ALL").fetchall()
        }
        for name in (real, made)
    ]
    one, other = ({key: n / sum(each.values()) for key, n in each.items()} for each in found)
    return float(sum(abs(one.get(key, 0) - other.get(key, 0)) for key in one.keys() | other.keys()))


def adult(ledger: str) -> duckdb.DuckDBPyConnection:
    """The integer-coded Adult of the papers, protected, all 14 attributes declared."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE adult AS FROM read_csv('{SHARED}/data/adult/adult.csv')")
    duckdb_dp.load(con, ledger=ledger)
    con.execute("CALL dp_protect('adult', rho := 100)")
    for name, size in json.loads((SHARED / "data/adult/adult-domain.json").read_text()).items():
        con.execute("CALL dp_attribute('adult', ?, low := 0, high := ?)", [name, size - 1])
    return con


SIZES = (9, 16, 7, 15, 6, 5, 2, 42, 10, 10, 20, 12, 8, 3, 30)


def generated(ledger: str, rows: int) -> duckdb.DuckDBPyConnection:
    """A protected table of 15 small columns."""
    con = duckdb.connect()
    columns = ", ".join(f"(hash(i * {k + 3} + {k}) % {size})::UTINYINT AS c{k}" for k, size in enumerate(SIZES))
    con.execute(f"CREATE TABLE t AS SELECT {columns} FROM range({rows}) r(i)")
    duckdb_dp.load(con, ledger=ledger)
    con.execute("CALL dp_protect('t', rho := 1e6)")
    for k, size in enumerate(SIZES):
        con.execute(f"CALL dp_attribute('t', 'c{k}', low := 0, high := {size - 1})")
    return con
