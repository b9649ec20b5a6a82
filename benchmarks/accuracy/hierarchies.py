"""Tables that refer to themselves: python benchmarks/accuracy/hierarchies.py [--epsilons 1 4] [--seeds 3].

The rows are the original ones, declared public, so that what is seen is the references alone (delta 1e-6, zCDP):

deepest   how many rows are above the deepest one; ``truth`` is that of the original
mean      how many are above a row, on average
depth     L1 distance of the distributions of that
children  L1 distance of the distributions of the number of children
pairs     mean L1 distance of an attribute of a row and one of its parent, over that of parents at random
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import duckdb
import numpy as np

import duckdb_dp
from duckdb_dp.linop import Array, Integers

Table = tuple[dict[str, Integers], Integers, int]
"""(codes by attribute, the parent of each row or -1, the bound on children)."""


def staff(seed: int) -> Table:
    """4,000 rows, a parent for every four, and three attributes of which one resembles the parent's."""
    rng = np.random.default_rng(seed)
    n = 4000
    parents = (np.arange(n) - 1) // 4
    dept = _inherited(rng, parents, 6, 0.8)
    return {"dept": dept, "sex": rng.integers(0, 2, n), "age": rng.integers(0, 5, n)}, parents, 4


def company(seed: int) -> Table:
    """5,000 rows in 30 trees with uneven numbers of children, a grade that falls with the depth, and rows that are types of their own."""
    rng = np.random.default_rng(seed)
    n, tops = 5000, 30
    held = np.clip(rng.poisson(6, n), 1, 10)
    parents = np.full(n, -1)
    parents[tops:] = np.repeat(np.arange(n), held)[: n - tops]
    order = rng.permutation(n)
    dept = _inherited(rng, parents, 8, 0.9)
    grade = np.clip(_depths(parents) + rng.integers(0, 2, n), 0, 5)
    rest = {f"a{i}": rng.integers(0, 6, n) for i in range(3)}
    shuffled = np.full(n, -1)
    shuffled[order] = np.where(parents < 0, -1, order[parents])
    codes = {"dept": dept, "grade": grade, **rest}
    return {name: _at(order, code) for name, code in codes.items()}, shuffled, 10


def replies(seed: int) -> Table:
    """4,000 comments on 400 threads, each to any earlier one: a random tree."""
    rng = np.random.default_rng(seed)
    n, threads = 4000, 400
    parents = np.full(n, -1)
    held = np.zeros(n, dtype=np.int64)
    for row in range(threads, n):
        while held[parent := int(rng.integers(0, row))] == 10:
            pass
        parents[row], held[parent] = parent, held[parent] + 1
    topic = _inherited(rng, parents, 5, 0.95)
    return {"topic": topic, "long": rng.integers(0, 2, n)}, parents, 10


TABLES: dict[str, Callable[[int], Table]] = {"staff": staff, "company": company, "replies": replies}


def _at(order: Integers, codes: Integers) -> Integers:
    found = np.empty_like(codes)
    found[order] = codes
    return found


def _inherited(rng: np.random.Generator, parents: Integers, values: int, share: float) -> Integers:
    """Codes that a row has from its parent, which comes before it, with some probability."""
    found = rng.integers(0, values, len(parents))
    for row in np.flatnonzero((parents >= 0) & (rng.random(len(parents)) < share)).tolist():
        found[row] = found[parents[row]]
    return found


def _depths(parents: Integers) -> Integers:
    """How many rows are above each."""
    depth, at = np.zeros(len(parents), dtype=np.int64), parents.copy()
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parents[at], -1)
    return depth


def _distance(one: Integers, other: Integers) -> float:
    size = int(max(one.max(), other.max())) + 1
    return float(
        np.abs(np.bincount(one, minlength=size) / len(one) - np.bincount(other, minlength=size) / len(other)).sum()
    )


def _pairs(codes: dict[str, Integers], parents: Integers) -> list[Array]:
    held = np.flatnonzero(parents >= 0)
    found = []
    for a, b in itertools.product(codes, codes):
        table = np.zeros((int(codes[a].max()) + 1, int(codes[b].max()) + 1))
        np.add.at(table, (codes[a][held], codes[b][parents[held]]), 1.0)
        found.append(table / max(table.sum(), 1))
    return found


def _apart(one: list[Array], other: list[Array]) -> float:
    return float(np.mean([np.abs(a - b).sum() for a, b in zip(one, other, strict=True)]))


def linked(table: Table, epsilon: float) -> tuple[Integers, float]:
    """(the parents in dp_links's result, processor seconds)."""
    codes, parents, most = table
    con = duckdb.connect()
    duckdb_dp.load(con, Path(tempfile.mkdtemp()) / "links.dp", progress=False)
    columns = {"id": np.arange(len(parents)), **codes}
    frame = {**columns, "parent": np.ma.masked_less(parents, 0)}
    con.register("frame", _arrow(frame))
    names = ", ".join(codes)
    con.execute(f"CREATE TABLE t (id BIGINT PRIMARY KEY, {', '.join(f'{a} BIGINT' for a in codes)}, parent BIGINT)")
    con.execute(f"INSERT INTO t SELECT id, {names}, parent FROM frame")
    con.execute(f"CREATE TABLE t_syn AS SELECT id, {names} FROM t")
    con.execute(f"CALL dp_protect('t', epsilon := {epsilon}, delta := 1e-6, accounting := 'zcdp')")
    for name, code in codes.items():
        con.execute(f"CALL dp_attribute('t', '{name}', low := 0, high := {int(code.max())})")
    con.execute("""CALL dp_link('t', "references" := {'parent': 't.id'}); CALL dp_public('t_syn')""")
    begun = process_time()
    found = con.execute(
        f"SELECT id, coalesce(parent, -1) AS parent FROM dp_links('t', synthetic := {{'t': 't_syn'}}, epsilon := {epsilon}, "
        f"max_degree := {most}) ORDER BY id"
    ).fetchnumpy()
    return np.asarray(found["parent"], dtype=np.int64), process_time() - begun


def _arrow(columns: dict[str, Integers]) -> object:
    import pyarrow as pa

    return pa.table({name: pa.array(column) for name, column in columns.items()})


def measure(make: Callable[[int], Table], seeds: int, epsilons: list[float]) -> Iterator[dict[str, float]]:
    """One row per epsilon."""
    for epsilon in epsilons:
        rows = []
        for seed in range(seeds):
            table = codes, parents, _ = make(seed)
            real, truth = _depths(parents), _pairs(codes, parents)
            found, seconds = linked(table, epsilon)
            rng = np.random.default_rng(seed)
            dealt = parents.copy()
            dealt[parents >= 0] = rng.permutation(parents[parents >= 0])
            depth = _depths(found)
            rows.append(
                {
                    "truth": real.max(),
                    "deepest": depth.max(),
                    "mean truth": real.mean(),
                    "mean": depth.mean(),
                    "depth": _distance(depth, real),
                    "children": _distance(
                        np.bincount(found[found >= 0], minlength=len(found)),
                        np.bincount(parents[parents >= 0], minlength=len(found)),
                    ),
                    "pairs": _apart(_pairs(codes, found), truth) / _apart(_pairs(codes, dealt), truth),
                    "seconds": seconds,
                }
            )
        yield {"epsilon": epsilon, **{name: float(np.mean([row[name] for row in rows])) for name in rows[0]}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.data:
        for row in measure(TABLES[name], options.seeds, options.epsilons):
            print(f"{name:9}" + "  ".join(f"{column} {value:.3g}" for column, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
