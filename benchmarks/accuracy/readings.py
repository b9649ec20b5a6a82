"""Every mechanism and reading beside one another, and what 'auto' takes: python benchmarks/accuracy/readings.py [--runs 1] ...

Mean over the marginals of L1 / rows, with exact noise; epsilon as zCDP at delta 1e-9. The last column is the error of what 'auto' takes
for counts that are read fitted, over the least of all ways. 'planned' is a plan of 'residual' for being read fitted. 'gauss. fit'
has independent noise on each marginal. 'singles' are products of single attributes, on which all the budget is spent. Other planners
measure marginals as 'residual' does, or worse.
"""

import argparse
import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
from aim_grem import Table, rho_of
from neyman import Reader, aim, binary, neyman, records, tables

from duckdb_dp import Workload
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.for_fitted import for_fitted
from duckdb_dp.plan.independent import gaussian
from duckdb_dp.plan.residual import residual
from duckdb_dp.reconstruct.grem import decompose
from duckdb_dp.reconstruct.postprocess import postprocess

AUTO = "neyman"


@functools.cache
def independent(rows: int = 20_000, attributes: int = 10, seed: int = 9) -> Table:
    """Generated: attributes that say nothing of one another."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 20, attributes)
    return records("independent", sizes, [rng.choice(n, rows, p=rng.dirichlet(np.ones(n))) for n in sizes])


@functools.cache
def small(rows: int = 600, attributes: int = 7, seed: int = 11, fewest: int = 2, most: int = 25) -> Table:
    """Generated: few rows, each attribute following another one in two fifths of them."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(fewest, most, attributes)
    columns = [rng.choice(sizes[0], rows)]
    for size in sizes[1:]:
        own, before = rng.choice(size, rows, p=rng.dirichlet(np.full(size, 0.7))), columns[rng.integers(len(columns))]
        columns.append(np.where(rng.random(rows) < 0.4, before % size, own))
    return records("small" if most <= 25 else "small, large", sizes, columns)


@functools.cache
def exclusive(rows: int = 10_000, groups: int = 5, seed: int = 17) -> Table:
    """Generated: groups of three attributes of 2 to 5 values, the third the sum of the others modulo that: no pair says anything."""
    rng = np.random.default_rng(seed)
    sizes, columns = np.repeat(rng.integers(2, 6, groups), 3), list[Array]()
    for size in sizes[::3]:
        one, other = (rng.choice(size, rows, p=rng.dirichlet(np.full(size, 20.0))) for _ in range(2))
        columns += [one, other, (one + other) % size]
    return records("XOR", sizes, columns)


@functools.cache
def sparse(rows: int = 20_000, kinds: int = 300, seed: int = 101) -> Table:
    """Generated: large domains that say nearly all of one another, so that most cells of pairs are empty."""
    rng = np.random.default_rng(seed)
    sizes = [40, 60, 30, 50, 25, 35]
    kind = rng.integers(0, kinds, rows) ** 2 // kinds
    columns = []
    for size in sizes:
        own = rng.integers(0, size, kinds)[kind]
        columns.append(np.where(rng.random(rows) < 0.05, rng.integers(0, size, rows), own))
    return records("sparse", sizes, columns)


@functools.cache
def strong(rows: int = 10_000, seed: int = 108) -> Table:
    """Generated: bins of one number, with a little noise in each."""
    rng = np.random.default_rng(seed)
    sizes, number = [10, 12, 16, 20, 8, 24, 6, 32, 9], rng.normal(size=rows)
    noisy = [(number + 0.15 * rng.normal(size=rows) + 2.5) / 5 * size for size in sizes]
    columns = [np.clip(one.astype(int), 0, size - 1) for one, size in zip(noisy, sizes, strict=True)]
    return records("strong", sizes, columns)


def singles(table: Table, rho: float) -> Reader:
    """Products of noisy single attributes, on which all the budget is spent."""
    workload = Workload.all_k_way(table.domain, 1)
    read = planned(table, workload, rho, residual(workload, 2 * rho), "nonnegative")

    def product(clique: Clique) -> Array:
        ones = [read((name,)) for name in clique]
        shares = [one / max(float(one.sum()), 1e-9) for one in ones]
        return float(ones[0].sum()) * functools.reduce(np.multiply.outer, shares)

    return product


def planned(table: Table, workload: Workload, rho: float, plan: Plan, reading: str) -> Reader:
    """A plan's noisy measurements in one reading."""
    queryable = table.queryable(rho)
    noisy = [queryable.measure(m.clique, m.strategy, m.cost / 2 * (1 - 1e-9)) for m in plan.measurements]
    if plan.mechanism == "gaussian":
        noisy = [part for one in noisy for part in decompose(table.domain, one)]
    return postprocess(reading, table.domain, workload.cliques, noisy)


def ways(table: Table, workload: Workload, rho: float) -> Mapping[str, Callable[[], Reader]]:
    """Name -> a run."""

    def of(plan: Plan, reading: str) -> Callable[[], Reader]:
        return lambda: planned(table, workload, rho, plan, reading)

    plain, alone = residual(workload, 2 * rho), gaussian(workload, 2 * rho)
    return {
        AUTO: lambda: neyman(table, workload, rho),
        "aim": lambda: aim(table, workload, rho),
        "planned": of(for_fitted(workload, 2 * rho), "fitted"),
        "fitted": of(plain, "fitted"),
        "nonneg.": of(plain, "nonnegative"),
        "unbiased": of(plain, "unbiased"),
        "gauss. fit": of(alone, "fitted"),
        "gauss. non.": of(alone, "nonnegative"),
        "singles": lambda: singles(table, rho),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--orders", default="2,3")
    parser.add_argument("--budgets", default="0.1,0.5,1,4,8")
    parser.add_argument("--data", default="", help="names with commas; all by default")
    parser.add_argument("--ways", default="", help="names with commas; all by default")
    asked = parser.parse_args()
    cells: list[dict[str, float]] = []
    for table in [*tables(), independent(), small(), binary(2_000, 10, 5), sparse(), strong()]:
        if asked.data and table.name not in asked.data.split(","):
            continue
        for order in map(int, asked.orders.split(",")):
            if math.comb(len(table.domain.sizes), order) < 1 or (table.name == "heavy tails" and order == 3):
                continue
            workload = Workload.all_k_way(table.domain, order)
            for epsilon in map(float, asked.budgets.split(",")):
                runs = ways(table, workload, rho_of(epsilon))
                runs = {name: run for name, run in runs.items() if not asked.ways or name in asked.ways.split(",")}
                if not cells:
                    print(f"{'':<18}{'rows':>7}{'':>5}" + "".join(f"{name:>12}" for name in runs) + f"{'auto':>7}")
                found = {
                    name: float(np.mean([table.error(run(), workload.cliques) for _ in range(asked.runs)]))
                    for name, run in runs.items()
                }
                cells.append(found)
                line = "".join(f"{error:>12.4f}" for error in found.values())
                over = found.get(AUTO, math.nan) / min(found.values())
                print(f"{table.name:<18}{len(table.records):>7}{order:>2}w{epsilon:>5}{line}{over:>7.2f}", flush=True)
    for name in cells[0]:
        over = np.array([cell[name] / min(cell.values()) for cell in cells])
        print(
            f"{name:<12} within 10 % of the best in {np.mean(over <= 1.1):.0%} of {len(cells)}, "
            f"geometric mean {np.exp(np.mean(np.log(over))):.3f}, worst {over.max():.2f}"
        )


if __name__ == "__main__":
    main()
