"""Links: error of cross-table marginals and time: python benchmarks/accuracy/relational.py [--data movielens ...] [--seeds 20].

The error of synthetic links is the mean over all 3-way cross-table workloads of the L1 distance between the two
distributions, relative to that of uniform random pairs, as many (mean of 20 draws). Both tables are the original ones, so
that what is seen is the links alone. Times are of the processor: counting is not in them, learning and dealing are.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from relational_data import ALL, Linked

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.partners import NUMBER, ORIGINAL, partners_of
from duckdb_dp.counting.units import UNIT
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.noise.uniform import SystemEntropy
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.learner import workloads
from duckdb_dp.synthesis.links.methods import METHODS, links

RHO = {0.5: 0.00664, 1.0: 0.02436, 2.0: 0.08815, 4.0: 0.31106, 8.0: 1.05236}
"""epsilon: rho at delta = 1e-6."""


class Errors:
    """Mean L1 distance of the 3-way cross-table marginals of two lists of links, as distributions."""

    def __init__(self, data: Linked) -> None:
        self.domain, (left, right) = data.domain, data.sides()
        self.tables = {
            name: side.types[side.rows, i] for side in (left, right) for i, name in enumerate(side.attributes)
        }
        self.lefts = set(left.attributes)
        self.cliques = workloads(left.attributes, right.attributes, 3)
        self.truth = self.shares(data.links[:, 0], data.links[:, 1])

    def shares(self, lefts: Integers, rights: Integers) -> list[Array]:
        """The distribution of every workload."""
        codes = {name: table[lefts if name in self.lefts else rights] for name, table in self.tables.items()}
        found = []
        for clique in self.cliques:
            cell = np.zeros(len(lefts), dtype=np.int64)
            for name in clique:
                cell = cell * self.domain.sizes[name] + codes[name]
            found.append(np.bincount(cell, minlength=self.domain.cells(clique)) / len(lefts))
        return found

    def of(self, lefts: Integers, rights: Integers) -> float:
        """Mean L1 distance from the original links."""
        pairs = zip(self.shares(lefts, rights), self.truth, strict=True)
        return float(np.mean([np.abs(found - truth).sum() for found, truth in pairs]))


def uniform(data: Linked, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """As many random pairs, each once."""
    left, right = (len(next(iter(table.values()))) for table in (data.left, data.right))
    return tuple(np.divmod(rng.choice(left * right, len(data.links), replace=False), right))  # type: ignore[return-value]


def counts(data: Linked, original: bool = True) -> Counts:
    """What the database would count: cells of all attributes of both sides and of the links, over the links.

    Args:
        data: the links.
        original: whether the rows of the other side are known to be the original ones, of which each has its own links.
    """
    domain, (left, right) = data.domain, data.sides()
    cell = np.zeros(len(data.links), dtype=np.int64)
    for side, ends in ((left, data.links[:, 0]), (right, data.links[:, 1])):
        for i, name in enumerate(side.attributes):
            cell = cell * domain.sizes[name] + side.types[side.rows[ends], i]
    for name, codes in data.own.items():
        cell = cell * domain.sizes[name] + codes
    blocks = {
        domain.attributes: np.unique(cell, return_counts=True),
        (): (np.zeros(1, np.int64), np.array([len(cell)])),
    }
    most = data.degree if data.protected == "both" else 1  # of two protected sides degrees are counted
    for place, (name, side) in enumerate(zip(("left", "right"), (left, right), strict=True)):
        degrees = np.bincount(data.links[:, place], minlength=len(side.rows))
        blocks[(f"{name}.linked",)] = np.unique(np.minimum(degrees, most), return_counts=True)
    if (unit := data.unit) is not None:
        order = np.argsort(data.links[:, unit], kind="stable")
        owners = data.links[order, unit]
        blocks[(UNIT, *domain.attributes)] = cell[order], np.bincount(owners)[owners]
        if not data.child:
            blocks[partners_of(1 - unit)] = _partners(data, 1 - unit, original)
    both = Domain({**domain.sizes, "left.linked": most + 1, "right.linked": most + 1})
    return Counts(both, blocks)


def _partners(data: Linked, end: int, original: bool) -> tuple[Integers, Integers]:
    """The block of the links of each row of a side."""
    owners = data.links[:, 1 - end]
    rows = len(data.sides()[end].rows)
    return np.append(data.links[:, end], [rows, int(original)]), np.append(
        np.bincount(owners)[owners], [NUMBER, ORIGINAL]
    )


def measure(data: Linked, method: str, seeds: int) -> Iterator[dict[str, float | str]]:
    """One row per epsilon."""
    errors, exact, sides = Errors(data), counts(data), data.sides()
    base = float(np.mean([errors.of(*uniform(data, np.random.default_rng(seed))) for seed in range(20)]))
    for epsilon, rho in RHO.items():
        found, times = [], []
        for seed in range(seeds):
            queryable = PrivateQueryable(exact, total=rho, accounting=ZCDP, rows=data.degree, bits=SystemEntropy())
            begun = process_time()
            (lefts, rights), _ = links(
                queryable, *sides, method=method, rng=np.random.default_rng(seed), **data.options()
            )
            times.append(process_time() - begun)
            found.append(errors.of(lefts, rights) / base)
        yield {
            "data": data.name,
            "method": method,
            "epsilon": epsilon,
            "ratio": float(np.mean(found)),
            "deviation": float(np.std(found)),
            "uniform": base,
            "seconds": float(np.median(times)),
            "slowest": max(times),
        }


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Error against epsilon: a panel per database, a line per method."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(3.2 * len(names), 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows if row["data"] == name):
            line = [row for row in rows if (row["data"], row["method"]) == (name, method)]
            spread = [row["deviation"] for row in line]
            axes.errorbar([row["epsilon"] for row in line], [row["ratio"] for row in line], spread, label=method)
        axes.axhline(1, color="grey", linewidth=0.8, linestyle=":")
        axes.set(xscale="log", yscale="log", title=name, xlabel="epsilon")
    figure.axes[0].set_ylabel("3-way error / that of random links")
    figure.axes[0].legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", choices=list(ALL), default=list(ALL))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also append rows to this file")
    parser.add_argument("--plot", type=Path, help="draw what was measured, and the rows that --json has already")
    options = parser.parse_args()
    shown = []
    if options.json and options.json.exists():
        shown = [json.loads(line) for line in options.json.read_text().splitlines()]
    print(f"{'data':14}{'method':8}{'epsilon':>8}{'ratio':>8}{'+-':>7}{'uniform':>9}{'seconds':>9}{'slowest':>9}")
    for name in options.data:
        for method in options.methods:
            for row in measure(ALL[name](), method, options.seeds):
                print(
                    f"{row['data']:14}{row['method']:8}{row['epsilon']:8}{row['ratio']:8.3f}{row['deviation']:7.3f}"
                    f"{100 * float(row['uniform']):9.3f}{row['seconds']:9.2f}{row['slowest']:9.2f}"
                )
                sys.stdout.flush()
                shown.append(row)
                if options.json:
                    with options.json.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    if options.plot:
        plot(shown, options.plot)


if __name__ == "__main__":
    main()
