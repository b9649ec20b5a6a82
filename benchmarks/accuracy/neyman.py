"""'neyman' beside 'aim', static plans and Private-PGM's AIM: python benchmarks/accuracy/neyman.py [section ...] [--runs 10].

Mean over the marginals of L1 / rows, with its standard error over the runs; exact noise of the operating system; epsilon as zCDP at
delta 1e-9. Seconds are processor time of this process and all its threads, the fewest of the runs.

Sections: bars (Adult and Titanic by budget), tables (ten tables, 2-way and 3-way, beside 'aim' and plans), graphical (Private-PGM's
AIM, a loop over the package mbi), wide (many attributes).
"""

import argparse
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from aim_grem import Table, adult, others, peak_mb, planned, rho_of, timed, titanic

from duckdb_dp import Workload
from duckdb_dp.adaptive import MECHANISMS, Options
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.fitted import Fitted
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.postprocess import postprocess

BUDGETS = (0.1, 0.5, 1.0, 4.0, 8.0)
READINGS = ("unbiased", "nonnegative", "fitted")


def records(name: str, sizes: Sequence[int], columns: Sequence[Array]) -> Table:
    return Table(name, {f"a{i}": int(n) for i, n in enumerate(sizes)}, np.stack(columns, axis=1))


@functools.cache
def binary(rows: int = 20_000, attributes: int = 16, seed: int = 1) -> Table:
    """Generated: bits that lean on two factors."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, 2)) @ rng.normal(size=(2, attributes)) + rng.normal(size=(rows, attributes))
    return records(f"{attributes} bits", [2] * attributes, list((hidden > rng.normal(size=attributes)).astype(int).T))


@functools.cache
def chain(rows: int = 30_000, attributes: int = 12, seed: int = 3) -> Table:
    """Generated: a Markov tree with strong links."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 31, attributes)
    columns = [rng.choice(sizes[0], rows, p=rng.dirichlet(np.full(sizes[0], 0.5)))]
    for i in range(1, attributes):
        parent = rng.integers(max(0, i - 3), i)
        shares = rng.dirichlet(np.full(sizes[i], 0.25), sizes[parent])
        drawn = (rng.random(rows)[:, None] > np.cumsum(shares, axis=1)[columns[parent]]).sum(axis=1)
        columns.append(np.minimum(drawn, sizes[i] - 1))
    return records("tree", sizes, columns)


@functools.cache
def latent(rows: int = 30_000, attributes: int = 12, classes: int = 20, seed: int = 4) -> Table:
    """Generated: 20 latent classes, which no small graph fits."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 26, attributes)
    known = rng.choice(classes, rows, p=rng.dirichlet(np.ones(classes)))
    columns = []
    for size in sizes:
        shares = rng.dirichlet(rng.dirichlet(np.ones(size)) * size * 0.5 + 1e-3, classes)
        drawn = (rng.random(rows)[:, None] > np.cumsum(shares, axis=1)[known]).sum(axis=1)
        columns.append(np.minimum(drawn, size - 1))
    return records("latent", sizes, columns)


@functools.cache
def heavy(rows: int = 50_000, attributes: int = 5, size: int = 400, seed: int = 6) -> Table:
    """Generated: large domains with heavy tails, each value near that of the attribute before in half of the rows."""
    rng = np.random.default_rng(seed)
    columns: list[Array] = []
    for i in range(attributes):
        own = np.minimum(rng.zipf(1.4, rows) - 1, size - 1)
        follows = rng.random(rows) < 0.5
        columns.append(np.where(follows, (columns[-1] + rng.integers(3, size=rows)) % size, own) if i else own)
    return records("heavy tails", [size] * attributes, columns)


@functools.cache
def wide(rows: int = 20_000, attributes: int = 100, size: int = 20, seed: int = 7) -> Table:
    """Generated: many attributes, each leaning on one before."""
    rng = np.random.default_rng(seed)
    columns: list[Array] = []
    for i in range(attributes):
        own = rng.geometric(0.15, rows) % size
        follows = rng.random(rows) < 0.3
        columns.append(np.where(follows, columns[rng.integers(i)] * 3 % size, own) if i else own)
    return records(f"{attributes} x {size}", [size] * attributes, columns)


def tables() -> list[Table]:
    return [adult(), titanic(), *others(), binary(), chain(), latent(), heavy()]


Reader = Callable[[Clique], Array]


def neyman(table: Table, workload: Workload, rho: float, **options: Any) -> Reader:
    found = MECHANISMS["neyman"](table.queryable(rho), workload, Options(**options))
    components = ResidualEstimates.of(table.domain, found.measured)
    return Fitted.around(components, found.estimate, workload.cliques).marginal


def aim(table: Table, workload: Workload, rho: float) -> Reader:
    found = MECHANISMS["aim"](table.queryable(rho), workload, Options())
    return postprocess("fitted", table.domain, workload.cliques, found.measured)


def static(table: Table, workload: Workload, rho: float, reading: str) -> Reader:
    return postprocess(reading, table.domain, workload.cliques, planned(table, workload, rho))


def mean(found: Sequence[float]) -> str:
    return (
        f"{np.mean(found):.4f} +-{np.std(found, ddof=1) / math.sqrt(len(found)):.4f}"
        if len(found) > 1
        else f"{found[0]:.4f}"
    )


def case(table: Table, workload: Workload, run: Callable[[], Reader], runs: int) -> tuple[list[float], float]:
    """Errors of some runs, and the fewest seconds."""
    errors, least = [], math.inf
    for _ in range(runs):
        seconds, found = timed(lambda: {clique: read(clique) for read in [run()] for clique in workload.cliques})
        errors.append(table.error(found.__getitem__, workload.cliques))
        least = min(least, seconds)
    return errors, least


def bars(runs: int) -> None:
    for table, order in ((adult(), 2), (adult(), 3), (titanic(), 2)):
        workload = Workload.all_k_way(table.domain, order)
        for epsilon in BUDGETS:
            errors, seconds = case(table, workload, lambda: neyman(table, workload, rho_of(epsilon)), runs)  # noqa: B023
            print(f"{table.name:<10}{order}-way {epsilon:>5}  {mean(errors)}  {seconds:.2f} s", flush=True)


def compared(runs: int) -> None:
    print(f"{'data':<18}{'rows':>7}{'asked':>7}{'epsilon':>8}{'neyman':>18}{'aim':>18}{'plan, fitted':>18}")
    for table in tables():
        for order in (2, 3):
            if math.comb(len(table.domain.sizes), order) < 1 or (table.name == "heavy tails" and order == 3):
                continue
            workload = Workload.all_k_way(table.domain, order)
            for epsilon in (0.1, 1.0, 8.0):
                ways = (neyman, aim, functools.partial(static, reading="fitted"))
                found = [case(table, workload, lambda: way(table, workload, rho_of(epsilon)), runs)[0] for way in ways]  # noqa: B023
                line = "".join(f"{mean(errors):>18}" for errors in found)
                print(f"{table.name:<18}{len(table.records):>7}{order:>6}w{epsilon:>8}{line}", flush=True)


def with_pgm(table: Table, workload: Workload, rho: float, limit: float) -> Reader:
    import jax
    from aim_pgm import aim_pgm

    jax.clear_caches()  # what is compiled in a run on Adult takes gigabytes, and no other run needs it
    return aim_pgm(table.queryable(rho), workload, limit)


def graphical(runs: int, limit: float = 3600) -> None:
    for table, order in ((titanic(), 2), (adult(), 2), (adult(), 3)):
        workload = Workload.all_k_way(table.domain, order)
        for epsilon in BUDGETS:
            ours, seconds = case(table, workload, lambda: neyman(table, workload, rho_of(epsilon)), runs)  # noqa: B023
            line = f"{table.name:<10}{order}-way {epsilon}  neyman {mean(ours)} {seconds:.2f} s  "
            try:
                found = case(table, workload, lambda: with_pgm(table, workload, rho_of(epsilon), limit), runs)  # noqa: B023
                print(f"{line}AIM PGM {mean(found[0])} {found[1]:.0f} s", flush=True)
            except TimeoutError as error:
                print(f"{line}AIM PGM {error}", flush=True)


def many(runs: int) -> None:
    table = wide()
    workload = Workload.all_k_way(table.domain, 2)
    for epsilon in (0.5, 1.0, 4.0):
        errors, seconds = case(table, workload, lambda: neyman(table, workload, rho_of(epsilon)), runs)  # noqa: B023
        plain, _ = case(table, workload, lambda: static(table, workload, rho_of(epsilon), "fitted"), runs)  # noqa: B023
        print(
            f"{table.name} {epsilon}  {mean(errors)} plan {mean(plain)}  {seconds:.2f} s, most memory {peak_mb():.0f} MB",
            flush=True,
        )


SECTIONS: dict[str, Callable[[int], None]] = {"bars": bars, "tables": compared, "graphical": graphical, "wide": many}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; all if none is named")
    parser.add_argument("--runs", type=int, default=10)
    arguments = parser.parse_args()
    for name in arguments.sections or SECTIONS:
        SECTIONS[name](arguments.runs)


if __name__ == "__main__":
    main()
