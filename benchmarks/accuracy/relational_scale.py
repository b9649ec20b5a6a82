"""Links at scale: python benchmarks/accuracy/relational_scale.py [--rows 1000000] [--links 10000000] [--types 2000].

Two generated tables of as many rows, and links between them. Each size runs in a process of its own, so that its peak memory
is its own. Times are of the wall clock, after the counting.
"""

import argparse
import resource
import subprocess
import sys
import warnings
from time import perf_counter

import duckdb
import numpy as np

import duckdb_dp
from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Domain
from duckdb_dp.noise.uniform import SystemEntropy
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.methods import links
from duckdb_dp.synthesis.links.sides import Side
from duckdb_dp.synthesis.links.ubs import ubs

CURVE = [
    (10_000, 1_000_000, 500),
    (100_000, 1_000_000, 500),
    (1_000_000, 1_000_000, 500),
    (1_000_000, 1_000_000, 2_000),
    (1_000_000, 10_000_000, 500),
    (1_000_000, 10_000_000, 2_000),
]
"""(rows of each table, links, row types of each side)"""


def shape(types: int) -> tuple[int, int, int]:
    """Sizes of three attributes with about as many combinations."""
    a = round(types ** (1 / 3))
    return a, a, -(-types // a**2)


def tables(rows: int, types: int) -> tuple[Domain, Side, Side]:
    """Tables with attributes of any values."""
    sizes, rng = shape(types), np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).reshape(-1, 3)[:types]
    names = [tuple(f"{side}.{a}" for a in "abc") for side in ("left", "right")]
    domain = Domain({name: size for side in names for name, size in zip(side, sizes, strict=True)})
    weights = rng.gamma(1.0, size=(2, types))
    sides = [
        Side(
            attributes=name, types=grid, rows=rng.choice(types, rows, p=w / w.sum()), max_degree=20 if i == 0 else None
        )
        for i, (name, w) in enumerate(zip(names, weights, strict=True))
    ]
    return domain, sides[0], sides[1]


def one(rows: int, size: int, types: int) -> str:
    """A line: time and peak memory."""
    domain, left, right = tables(rows, types)
    rng = np.random.default_rng(1)
    # Links of rows that have much in common, more often than not.
    ends = rng.integers(0, rows, size), rng.integers(0, rows, size)
    alike = left.types[left.rows[ends[0]], 0] == right.types[right.rows[ends[1]], 0]
    kept = alike | (rng.random(size) < 0.5)
    cells = np.zeros(int(kept.sum()), dtype=np.int64)
    for side, rows_ in zip((left, right), ends, strict=True):
        for i, name in enumerate(side.attributes):
            cells = cells * domain.sizes[name] + side.types[side.rows[rows_[kept]], i]
    exact = Counts(domain, {domain.attributes: np.unique(cells, return_counts=True)})
    del cells, ends, alike, kept
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    queryable = PrivateQueryable(exact, total=0.3, accounting=ZCDP, rows=20, bits=SystemEntropy())
    begun = perf_counter()
    (lefts, rights), detail = links(queryable, left, right, rows=size, rng=rng)
    seconds = perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(lefts) == len(rights) == detail["links"]
    return (
        f"{rows:>10,}{size:>12,}{types:>7,}{seconds:>10.1f}{peak / 2**20:>8.2f}{before / 2**20:>8.2f}{len(lefts):>12,}"
    )


MOVIELENS = """
SELECT setseed(0.5);
CREATE TABLE users AS SELECT i AS user_id, (random() * 1.4)::INTEGER AS gender, (random() * 6)::INTEGER AS age,
    (random() * 20)::INTEGER AS occupation FROM range(6040) t(i);
CREATE TABLE movies AS SELECT i AS movie_id, {genres} FROM range(3883) t(i);
CREATE TABLE ratings AS SELECT DISTINCT (i * 7919 + i // 10 * 31) % 6040 AS user_id, (random() * 3882)::INTEGER AS movie_id
    FROM range({rows}) t(i);
CREATE TABLE users_syn AS FROM users; CREATE TABLE movies_syn AS FROM movies;
"""
DECLARED = """
CALL dp_protect('users', rho := 9); CALL dp_protect('movies', rho := 9);
CALL dp_protect('ratings', unit := 'user_id', max_rows := {degree}, rho := 9);
CALL dp_attribute('users', 'gender', low := 0, high := 1); CALL dp_attribute('users', 'age', low := 0, high := 6);
CALL dp_attribute('users', 'occupation', low := 0, high := 20);
CALL dp_attributes('movies');
CALL dp_link('ratings', "references" := {{'user_id': 'users.user_id', 'movie_id': 'movies.movie_id'}});
CALL dp_public(['users_syn', 'movies_syn']); CALL dp_public(['users', 'movies'], links := 'ratings');
"""
ASKED = "FROM dp_links('ratings', synthetic := {'users': 'users_syn', 'movies': 'movies_syn'}, rho := 0.3)"


def from_sql(degree: int, rows: int) -> str:
    """Tables of MovieLens-1M's sizes: all of dp_links, counting too, and what reading its links from Arrow takes."""
    con = duckdb.connect()
    genres = ", ".join(f"random() < {0.3 / (i + 1) + 0.02} AS genre{i}" for i in range(18))
    con.execute(MOVIELENS.format(genres=genres, rows=rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the ledger of a database in memory is forgotten
        duckdb_dp.load(con)
        con.execute(DECLARED.format(degree=degree))
    begun = perf_counter()
    con.execute(f"CREATE TABLE made AS {ASKED}")
    first = perf_counter() - begun
    begun = perf_counter()
    con.execute(f"CREATE TABLE again AS {ASKED}")
    again = perf_counter() - begun
    (size,) = con.execute("SELECT count(*) FROM made").fetchone() or (0,)
    return f"6,040 x 3,883 from SQL, at most {degree:>3} of {rows:>9,}: {first:.1f} s, read again {again:.2f} s, {size:,} links"


LISTED = """
CREATE TABLE users AS SELECT i AS user_id, i % 7 AS age FROM range(100000) t(i);
CREATE TABLE movies AS SELECT i AS movie_id, i % 5 AS genre FROM range(100000) t(i);
CREATE TABLE ratings AS SELECT DISTINCT i % 100000 AS user_id, i * 7919 % 100003 % 100000 AS movie_id FROM range(500000) t(i);
CREATE TABLE users_syn AS FROM users; CREATE TABLE movies_syn AS FROM movies;
CALL dp_protect('users', rho := 9); CALL dp_attribute('users', 'age', low := 0, high := 6);
CALL dp_protect('movies', rho := 9); CALL dp_attribute('movies', 'genre', low := 0, high := 4);
CALL dp_protect('ratings', unit := 'user_id', max_rows := 200, rho := 9);
CALL dp_link('ratings', "references" := {'user_id': 'users.user_id', 'movie_id': 'movies.movie_id'});
CALL dp_public(['users_syn', 'movies_syn']); CALL dp_public(['users', 'movies'], links := 'ratings');
"""


def listing(size: int = 10_000_000, turns: int = 5) -> str:
    """Stored links into a table, against an Arrow table of the same columns into one, in turns."""
    con = duckdb.connect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the ledger of a database in memory is forgotten
        duckdb_dp.load(con)
        con.execute(LISTED)
    asked = ASKED.replace("rho := 0.3", f'rho := 5, "rows" := {size}')
    con.execute(f"CREATE TABLE made AS {asked}")
    arrow = con.execute("FROM made").to_arrow_table()  # what DuckDB finds by this name
    times: dict[str, list[float]] = {asked: [], "FROM arrow": []}
    for _ in range(turns):
        for source, found in times.items():
            begun = perf_counter()
            con.execute(f"CREATE OR REPLACE TABLE again AS {source}")
            found.append(perf_counter() - begun)
    links_, reading = (float(np.median(found)) for found in times.values())
    ratios = sorted(a / b for a, b in zip(*times.values(), strict=True))
    return (
        f"listing {len(arrow):,} links: {links_:.2f} s, an Arrow table of them {reading:.2f} s, ratio {links_ / reading:.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--links", type=int, default=10_000_000)
    parser.add_argument("--types", type=int, default=2_000)
    options = parser.parse_args()
    if options.rows:
        print(one(options.rows, options.links, options.types))
        return
    print(f"{'rows':>10}{'links':>12}{'types':>7}{'seconds':>10}{'GB peak':>8}{'before':>8}{'linked':>12}")
    for rows, size, types in CURVE:
        asked = [sys.executable, __file__, "--rows", str(rows), "--links", str(size), "--types", str(types)]
        print(subprocess.run(asked, check=True, capture_output=True, text=True).stdout, end="", flush=True)
    for degree, size in ((10, 100_000), (200, 1_000_000)):
        print(from_sql(degree, size), flush=True)
    print(listing(), flush=True)
    x = np.random.default_rng(0).random(24_000_000)
    for m in (10_000, 1_000_000, 12_000_000):
        shares = np.minimum(x * (m / x.sum()), 1.0)
        shares *= m / shares.sum()
        begun = perf_counter()
        found = ubs(np.minimum(shares, 1.0), m, np.random.default_rng(1))
        print(f"ubs of 24 million, m = {m:>10,}: {perf_counter() - begun:.2f} s, {len(found):,} drawn")


if __name__ == "__main__":
    main()
