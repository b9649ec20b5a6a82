"""Synthetic tables: error of 1-, 2- and 3-way marginals, and time: python benchmarks/accuracy/synthesis.py [--methods ...].

Errors are |p - q|_1 of the two distributions, 0 to 2 (twice the total variation), the mean over all marginals of the order
and over the seeds. `none` draws every attribute alone from its exact distribution: what no dependence at all would give.
`mst` and `aim` need the extra 'pgm'. Times are of
the processor, for measuring, fitting and drawing as many records as the table has, after the counting; those of `mst` and
`aim` include what jax compiles. `--wide` compares records with the estimates that they are drawn from, on generated tables of many columns.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import duckdb
import numpy as np

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.accounting.convert import zcdp_rho
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.encode import encode
from duckdb_dp.domain.domain import Attribute, Clique, Domain, declare
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import silent
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.synthesis.scores import counted, errors
from duckdb_dp.synthesis.table.methods import DEFAULT, METHODS, Options, cliques, generate, synthesize
from duckdb_dp.synthesis.table.model import estimate
from duckdb_dp.testing import SeededEntropy

DATA = Path(__file__).parents[3] / "shared" / "data"
EPSILON, DELTA = 1.0, 1e-9
DECADES = list(range(1870, 2031, 10))


def tables(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, dict[str, dict[str, Any]]]]:
    """(name, table, declaration of each attribute)."""

    def read(name: str, file: str, columns: str = "*", more: str = "") -> None:
        con.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM read_csv('{DATA}/{file}'{more})")

    def common(table: str, column: str, most: int) -> dict[str, Any]:
        rows = con.execute(
            f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {most}"
        ).fetchall()
        return {"values": [row[0] for row in rows]}

    def up_to(sizes: dict[str, int]) -> dict[str, dict[str, Any]]:
        return {name: {"low": 0, "high": size - 1} for name, size in sizes.items()}

    read("adult", "adult/adult_small.csv")
    observed = con.execute("SELECT max(COLUMNS(*)) + 1 FROM adult").fetchone()
    names = [row[0] for row in con.execute("DESCRIBE adult").fetchall()]
    yield "adult", "adult", up_to(dict(zip(names, observed or (), strict=True)))
    read("titanic", "titanic/titanic.csv")
    yield "titanic", "titanic", up_to(json.loads((DATA / "titanic/titanic-domain.json").read_text()))
    read("pums", "pums/PUMS.csv")
    yield "pums", "pums", {
        "age": {"bins": [18, *range(25, 81, 5), 100]},
        "sex": {"low": 0, "high": 1},
        "educ": {"low": 1, "high": 16},
        "race": {"low": 1, "high": 6},
        "income": {"bins": [0, 1, 5e3, 1e4, 1.5e4, 2e4, 2.5e4, 3e4, 4e4, 5e4, 7.5e4, 1e5, 2e5, 1e6]},
        "married": {"low": 0, "high": 1},
    }  # fmt: skip
    read("people", "baseball/People.csv", "*, year(debut) AS first_year, year(finalGame) AS last_year")
    yield "people", "people", {
        "birthYear": {"bins": list(range(1840, 2011, 10)), "nulls": True, "other": True},
        "birthMonth": {"low": 1, "high": 12, "nulls": True},
        "birthCountry": {**common("people", "birthCountry", 12), "other": True, "nulls": True},
        "birthState": {**common("people", "birthState", 40), "other": True, "nulls": True},
        "weight": {"bins": [60, *range(150, 221, 10), 240, 330], "nulls": True},
        "height": {"bins": [40, 66, 68, 70, 71, 72, 73, 74, 75, 76, 78, 90], "nulls": True},
        "bats": {"values": ["R", "L", "B"], "nulls": True},
        "throws": {"values": ["R", "L", "S"], "nulls": True, "other": True},
        "first_year": {"bins": DECADES, "nulls": True},
        "last_year": {"bins": DECADES, "nulls": True},
    }  # fmt: skip
    read("salaries", "baseball/Salaries.csv")
    yield "salaries", "salaries", {
        "yearID": {"low": 1985, "high": 2016},
        "teamID": common("salaries", "teamID", 40),
        "lgID": {"values": ["AL", "NL"]},
        "salary": {"bins": [0, 100000, 150000, 200000, 300000, 400000, 500000, 750000, *(10**6 * m for m in (1, 2, 3, 5, 10, 40))]},
    }  # fmt: skip
    read("players", "worldcup/players.csv", "*, TRY_CAST(birth_date AS DATE) AS born")
    yield "players", "players", {
        **{name: {"low": 0, "high": 1} for name in ("female", "goal_keeper", "defender", "midfielder", "forward")},
        "count_tournaments": {"low": 1, "high": 7},
        "born": {"bins": [f"{year}-01-01" for year in range(1890, 2011, 5)], "nulls": True, "other": True},
    }  # fmt: skip
    columns = "names=['id', 'age', 'gender', 'occupation', 'zip'], types={'zip': 'VARCHAR'}"
    read("users", "movielens-100k/u.user", "*, left(zip, 1) AS area", f", delim='|', header=false, {columns}")
    yield "users", "users", {
        "age": {"bins": [0, 18, 25, 35, 45, 50, 56, 100]},
        "gender": {"values": ["M", "F"]},
        "occupation": common("users", "occupation", 30),
        "area": {"values": list("0123456789"), "other": True},
    }  # fmt: skip


def declared(con: duckdb.DuckDBPyConnection, table: str, found: dict[str, dict[str, Any]]) -> list[Attribute]:
    types = {row[0]: row[1] for row in con.execute(f"DESCRIBE {table}").fetchall()}
    return [declare(name=name, type=types[name], **how) for name, how in found.items()]


def encoded(con: duckdb.DuckDBPyConnection, table: str, attributes: list[Attribute]) -> Codes:
    """Cell numbers of the rows inside the domain."""
    coded = encode(attributes, table)
    columns = ", ".join(f"{code} AS c{i}" for i, code in enumerate(coded.codes))
    kept = " AND ".join(f"c{i} IS NOT NULL" for i in range(len(attributes)))
    rows = con.execute(f"SELECT * FROM (SELECT {columns} FROM {coded.rows}) WHERE {kept}").fetchnumpy()
    return np.stack([rows[f"c{i}"] for i in range(len(attributes))], axis=1).astype(np.int32)


def opened(domain: Domain, codes: Codes, options: Options, rho: float, seed: int) -> PrivateQueryable:
    marginal, blocks = counted(domain, codes), {}
    for clique in (*cliques(domain, options), ()):
        table = marginal(clique).astype(np.int64)
        keys = np.flatnonzero(table)
        blocks[clique] = (keys, table[keys])
    return PrivateQueryable(Counts(domain, blocks), total=rho, accounting=ZCDP, rows=1, bits=SeededEntropy(seed))


def orders(domain: Domain) -> list[list[Clique]]:
    return [list(itertools.combinations(domain.attributes, k)) for k in (1, 2, 3)]


def scored(domain: Domain, codes: Codes, synthetic: Codes) -> list[float]:
    real, other = counted(domain, codes), counted(domain, synthetic)
    return [float(errors(real, other, order).mean()) for order in orders(domain)]


def line(name: str, method: str, found: np.ndarray, seconds: float) -> None:
    print(f"{name:<10}{method:<8}" + "".join(f"{error:>9.4f}" for error in found) + f"{seconds:>9.2f}", flush=True)


def compare(name: str, domain: Domain, codes: Codes, chosen: list[Options], seeds: int) -> None:
    print(f"\n{name}: {len(codes):,} rows, sizes {', '.join(map(str, domain.sizes.values()))}")
    rng = np.random.default_rng(0)
    shuffled = np.stack([rng.permutation(column) for column in codes.T], axis=1)
    line(name, "none", np.array(scored(domain, codes, shuffled)), 0.0)
    for options in chosen:
        label = options.method + (f"<={options.order}" if options.method == "aim" and options.order != 2 else "")
        found, seconds = [], 0.0
        for seed in range(seeds):
            queryable = opened(domain, codes, options, zcdp_rho(EPSILON, DELTA), seed)
            start = process_time()
            synthetic, _ = synthesize(queryable, rows=len(codes), options=options, rng=np.random.default_rng(seed))
            seconds += process_time() - start
            found.append(scored(domain, codes, synthetic))
        line(name, label, np.mean(found, axis=0), seconds / seeds)


WIDE = [(20_000, 48, 8), (20_000, 48, 20), (120_000, 40, 2), (120_000, 60, 8), (120_000, 30, 20)]


def wide(rows: int, columns: int, size: int) -> Codes:
    """A column is geometric, and in three rows of ten says a hidden value that all columns have in common."""
    rng = np.random.default_rng(3)
    hidden = rng.integers(0, size, rows)
    own = (np.minimum(rng.geometric(0.3, rows) - 1, size - 1) for _ in range(columns))
    return np.stack(
        [np.where(rng.random(rows) < 0.3, (hidden + i) % size, one) for i, one in enumerate(own)], axis=1
    ).astype(np.int32)


def compare_wide(seeds: int) -> None:
    """Errors of pairs of the estimate and of the records drawn from it, and seconds of the processor for each."""
    print(
        f"{'rows x columns x values':<26}{'epsilon':>8}{'estimate':>10}{'records':>9}{'seconds':>9}{'of them to draw':>17}"
    )
    for rows, columns, size in WIDE:
        codes = wide(rows, columns, size)
        domain = Domain({f"a{i}": size for i in range(columns)})
        real, pairs = counted(domain, codes), orders(domain)[1]
        for epsilon in (1.0, 4.0):
            found = []
            for seed in range(seeds):
                queryable = opened(domain, codes, DEFAULT, zcdp_rho(epsilon, DELTA), seed)
                start = process_time()
                measured, forest = estimate(queryable, DEFAULT.rounds, silent)
                drawing = process_time()
                records, _ = generate(domain, measured, rows, rng=np.random.default_rng(seed), forest=forest)
                seconds = process_time() - start, process_time() - drawing
                flat = {pair: table.reshape(-1) for pair, table in forest.fitted.items()}
                read = errors(real, flat.__getitem__, pairs)
                found.append([read.mean(), errors(real, counted(domain, records), pairs).mean(), *seconds])
            read, drawn, *seconds = np.mean(found, axis=0)
            label = f"{rows:,} x {columns} x {size}"
            print(f"{label:<26}{epsilon:>8}{read:>10.4f}{drawn:>9.4f}{seconds[0]:>9.2f}{seconds[1]:>17.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="forest", help="of " + ", ".join(METHODS) + ", with commas")
    parser.add_argument("--data", default="", help="names with commas; all by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--wide", action="store_true", help="generated tables of many columns")
    asked = parser.parse_args()
    if asked.wide:
        compare_wide(asked.seeds)
        return
    chosen = [Options(method=method) for method in asked.methods.split(",")]
    print(f"rho {zcdp_rho(EPSILON, DELTA):.5f} (epsilon {EPSILON}, delta {DELTA}), {asked.seeds} seeds")
    print(f"{'':<10}{'method':<8}{'1-way':>9}{'2-way':>9}{'3-way':>9}{'seconds':>9}")
    con = duckdb.connect()
    for name, table, found in tables(con):
        if not asked.data or name in asked.data.split(","):
            attributes = declared(con, table, found)
            domain = Domain({attribute.name: attribute.size for attribute in attributes})
            compare(name, domain, encoded(con, table, attributes), chosen, asked.seeds)


if __name__ == "__main__":
    main()
