"""All two-way marginals of a generated table on local Spark, and of Parquet files in DuckDB, against the engine's own GROUP BYs.

python benchmarks/accuracy/engines.py spark 5000000 20000000 50000000
python benchmarks/accuracy/engines.py duckdb 20000000 200000000

Seconds of wall clock, and of processor time, which other work on the machine disturbs less; of several sizes also the
slope between the last two, what a million more rows take.
"""

import argparse
import itertools
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import duckdb

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import SIZES

import duckdb_dp
from duckdb_dp.counting.engines import spark

PAIRS = list(itertools.combinations([f"c{k}" for k in range(len(SIZES))], 2))
QUESTION = "SELECT sum(count) FROM dp_marginals('t', 'all 2-way', rho := 1, fresh := true)"
FILES = 8

Timing = tuple[float, float]
"""(wall clock, processor time) in seconds."""


def generate(folder: Path, rows: int) -> str:
    """A Hive-partitioned Parquet table of 15 small columns; the glob of its files."""
    con = duckdb.connect(config={"memory_limit": "2GB", "preserve_insertion_order": "false"})
    columns = ", ".join(f"(hash(i * {k + 3} + {k}) % {size})::TINYINT AS c{k}" for k, size in enumerate(SIZES))
    for part in range(FILES):
        (folder / f"part={part}").mkdir(parents=True)
        numbers = f"range({rows * part // FILES}, {rows * (part + 1) // FILES})"
        con.execute(
            f"COPY (SELECT {columns} FROM {numbers} r(i)) TO '{folder}/part={part}/rows.parquet' (FORMAT parquet)"
        )
    return f"{folder}/*/*.parquet"


def timed(work: Callable[[], object], processor: Callable[[], float]) -> Timing:
    """Those of one run."""
    start, spent = perf_counter(), processor()
    work()
    return perf_counter() - start, processor() - spent


def own_processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def processor_of(pid: int) -> Callable[[], float]:
    """Processor time of another process, here the one that Spark runs in."""

    def seconds() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    return seconds


def declare(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CALL dp_protect('t', rho := 1e6)").fetchall()
    for k, size in enumerate(SIZES):
        con.execute(f"CALL dp_attribute('t', 'c{k}', low := 0, high := {size - 1})").fetchall()


def on_spark(folder: Path, sizes: list[int], threads: int, memory: str) -> None:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(2 * threads),
    }
    backend = spark.connect(master=f"local[{threads}]", memory=memory, config=settings)
    session = backend.raw_sql("SELECT 1").sparkSession
    session.sparkContext.setLogLevel("OFF")
    processor = processor_of(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    timings = []
    for rows in sizes:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            generate(Path(name) / "data", rows)
            session.read.parquet(f"{name}/data").createOrReplaceTempView("rows")
            con = duckdb.connect()
            duckdb_dp.load(con, Path(name) / "ledger.dp")
            duckdb_dp.attach(con, "t", backend.table("rows"))
            declare(con)

            def ask(con: duckdb.DuckDBPyConnection = con) -> None:
                con.execute(QUESTION).fetchall()

            def plain() -> None:
                for a, b in PAIRS:
                    session.sql(f"SELECT {a}, {b}, count(*) AS n FROM rows GROUP BY {a}, {b}").toArrow()

            session.sql(
                "SELECT c0, c1, count(*) AS n FROM rows GROUP BY c0, c1"
            ).toArrow()  # reads the files once, for both
            timings.append((timed(ask, processor), timed(plain, processor)))
            report("Spark", rows, *timings[-1])
    slopes(sizes, timings)


def on_duckdb(folder: Path, sizes: list[int], threads: int, memory: str) -> None:
    timings = []
    for rows in sizes:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            files = generate(Path(name) / "data", rows)
            con = duckdb.connect(
                config={"memory_limit": memory.upper() + "B", "threads": threads, "temp_directory": name}
            )
            con.execute(f"CREATE VIEW t AS FROM read_parquet('{files}', hive_partitioning = true)")
            duckdb_dp.load(con, Path(name) / "ledger.dp")
            declare(con)

            def ask(con: duckdb.DuckDBPyConnection = con) -> None:
                con.execute(QUESTION).fetchall()

            def plain(con: duckdb.DuckDBPyConnection = con) -> None:
                for a, b in PAIRS:
                    con.execute(f"SELECT {a}, {b}, count(*) AS n FROM t GROUP BY {a}, {b}").fetchall()

            con.execute("SELECT c0, c1, count(*) AS n FROM t GROUP BY c0, c1").fetchall()
            timings.append((timed(ask, own_processor), timed(plain, own_processor)))
            report("DuckDB", rows, *timings[-1])
            con.close()
    slopes(sizes, timings)
    print(f"largest memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB, limit {memory}")


def report(engine: str, rows: int, ours: Timing, plain: Timing) -> None:
    print(
        f"{engine}, {rows:,} rows, {len(PAIRS)} marginals: {ours[0]:.1f} s ({ours[1]:.1f} s of processor time); "
        f"{len(PAIRS)} GROUP BYs: {plain[0]:.1f} s ({plain[1]:.1f} s); ratio {ours[0] / plain[0]:.2f} ({ours[1] / plain[1]:.2f})",
        flush=True,
    )


def slopes(sizes: list[int], timings: list[tuple[Timing, Timing]]) -> None:
    """What a million more rows take, between the last two sizes."""
    if len(sizes) < 2:
        return
    more = (sizes[-1] - sizes[-2]) / 1e6
    (ours, plain), (ours_before, plain_before) = timings[-1], timings[-2]
    found = [
        f"{(now - then) / more:.3f}" for now, then in zip((*ours, *plain), (*ours_before, *plain_before), strict=True)
    ]
    print("a million more rows: {} s ({} s of processor time); GROUP BYs: {} s ({} s)".format(*found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=("spark", "duckdb"))
    parser.add_argument("rows", type=int, nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="4g")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run = on_spark if chosen.engine == "spark" else on_duckdb
        run(Path(name), chosen.rows, chosen.threads, chosen.memory)
