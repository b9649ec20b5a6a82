"""How near 'auto' is to the best of our own, by means: python benchmarks/accuracy/promise.py measure|show|short FILE [options].

What 'auto' takes for counts that are read fitted, beside all other mechanisms and readings of ``readings.ways``: mean over the
marginals of L1 / rows, exact noise, epsilon as zCDP at delta 1e-9. A cell is a table, 2-way or 3-way, and an epsilon.
'querysmasher', 'residual_plus', 'wff' and 'hdmm' measure marginals as 'residual' does ('fitted', 'nonneg.'); unbiased answers are never
nearer than those without negative counts.

``measure`` adds lines of JSON to FILE, one for each cell and way, and leaves out those that it has. A way has 10 runs, or 3 where its mean
is then more than 1.5 times the least; 'auto' and those within a tenth of the best have more, up to 60, until the standard error of the
quotient is below 3 %. ``show`` prints the cells, and in how many 'auto' is within 10 % of the way with the least mean; ``short`` prints a
table of Markdown.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import unseen
from aim_grem import Table, adult, others, rho_of, titanic
from neyman import BUDGETS, Reader, binary, chain, heavy, latent, wide
from readings import AUTO, exclusive, independent, small, sparse, strong, ways

from duckdb_dp import Workload

FEW, RUNS, MOST, PRECISE = 3, 10, 60, 0.03
HOPELESS, RIVAL, NEAR = 1.5, 1.1, 1.1

Errors = dict[str, list[float]]
Cell = tuple[str, int, float]


def tables() -> list[Table]:
    real = [adult(), titanic(), *others()]
    bits = [binary(), binary(2_000, 10, 5)]
    few = [small(), small(600, 6, 12, 20, 80)]
    return [
        *real,
        *bits,
        *few,
        independent(),
        strong(),
        exclusive(),
        latent(),
        chain(),
        sparse(),
        wide(20_000, 40),
        heavy(50_000, 3, 1_000),
    ]


def cells(
    every: list[Table], orders: list[int], budgets: list[float], data: list[str]
) -> Iterator[tuple[Table, int, float]]:
    for order in orders:
        for table in every:
            sizes = table.domain.sizes
            too_many = math.comb(len(sizes), order) > 1_000 or (order > 2 and max(sizes.values()) >= 400)
            if order <= len(sizes) and not too_many and (not data or table.name in data):
                yield from ((table, order, epsilon) for epsilon in budgets)


def quotient(found: Errors, way: str) -> tuple[float, float]:
    """(mean of 'auto' over the mean of a way, its standard error), runs being independent of one another."""
    one, other = (np.array(found[name]) for name in (AUTO, way))
    ratio = float(one.mean() / other.mean())
    if way == AUTO:
        return ratio, 0.0
    spread = sum(np.var(each, ddof=1) / len(each) / each.mean() ** 2 for each in (one, other))
    return ratio, ratio * math.sqrt(spread)


def best(found: Errors) -> str:
    return min(found, key=lambda name: float(np.mean(found[name])))


def measured(table: Table, order: int, epsilon: float, names: list[str], known: Errors, most: int = MOST) -> Errors:
    """The errors of each run; of the named ways, beside those that are known."""
    workload = Workload.all_k_way(table.domain, order)
    every = ways(table, workload, rho_of(epsilon))
    runs: Mapping[str, Callable[[], Reader]] = {name: every[name] for name in names or every if name != "unbiased"}
    found: Errors = {name: list(known.get(name, [])) for name in runs}

    def more(name: str, count: int) -> None:
        found[name] += [table.error(runs[name](), workload.cliques) for _ in range(count - len(found[name]))]

    for name in runs:
        more(name, FEW)
    least = min(np.mean(errors) for errors in (known | found).values())
    for name, errors in found.items():
        if name == AUTO or np.mean(errors) < HOPELESS * least:
            more(name, min(RUNS, most))
    while AUTO in found:
        first = best(known | found)
        rivals = [name for name in found if np.mean(found[name]) < RIVAL * np.mean((known | found)[first])]
        count = len(found[AUTO])
        if quotient(known | found, first)[1] <= PRECISE * quotient(known | found, first)[0] or count >= most:
            break
        for name in {AUTO, *rivals}:
            more(name, min(count + RUNS, most))
    return found


def far(known: Errors, name: str, times: float) -> bool:
    return name in known and bool(np.mean(known[name]) > times * np.mean(known[best(known)]))


def read(path: Path) -> dict[Cell, Errors]:
    """Of several lines of one cell and way the last counts."""
    found: dict[Cell, Errors] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        one = json.loads(line)
        found.setdefault((one["table"], one["order"], one["epsilon"]), {})[one["way"]] = one["errors"]
    return found


def measure(path: Path, asked: argparse.Namespace) -> None:
    names = [name for name in asked.ways.split(",") if name]
    data = [name for name in asked.data.split(";") if name]
    every = unseen.tables() if asked.unseen else tables()
    for table, order, epsilon in cells(every, list(map(int, asked.orders.split(","))), asked.budgets, data):
        known = read(path).get((table.name, order, epsilon), {})
        if not asked.again and known and all(name in known for name in names):
            continue
        again = [name for name in names if name == AUTO or not far(known, name, asked.far)]
        kept = {name: errors for name, errors in known.items() if name not in again}
        found = measured(table, order, epsilon, again, kept, asked.most)
        with path.open("a") as file:
            for name, errors in found.items():
                line = {"table": table.name, "order": order, "epsilon": epsilon, "way": name, "errors": errors}
                print(json.dumps(line), file=file)
        print(f"{table.name} {order}-way {epsilon}", flush=True)


def show(path: Path, asked: argparse.Namespace) -> None:
    found = read(path)
    names = list(dict.fromkeys(name for cell in found.values() for name in cell))
    over: dict[str, list[float]] = {name: [] for name in names}
    print(f"{'':<28}" + "".join(f"{name:>12}" for name in names) + "  auto / best")
    for (table, order, epsilon), cell in found.items():
        means = {name: float(np.mean(errors)) for name, errors in cell.items()}
        first = best(cell)
        ratio, error = quotient(cell, first)
        line = "".join(f"{means.get(name, math.nan):>12.4f}" for name in names)
        print(
            f"{table:<18}{order:>2}w {epsilon:>5} {line}  {ratio:.3f} +-{error:.3f} {first} in {len(cell[AUTO])} runs"
        )
        for name, mean in means.items():
            over[name].append(mean / means[first])
    for name, ratios in over.items():
        print(
            f"{name:<12} within 10 % of the best in {np.mean(np.array(ratios) <= NEAR):.0%} of {len(ratios)}, "
            f"geometric mean {np.exp(np.mean(np.log(ratios))):.3f}, worst {max(ratios):.2f}"
        )


def short(path: Path, asked: argparse.Namespace) -> None:
    """Markdown: 'auto' over the best by epsilon, its standard error in percent, and the best where that is another way."""
    found = read(path)
    budgets = sorted({epsilon for _, _, epsilon in found})
    print("| table | " + " | ".join(map(str, budgets)) + " |\n|---|" + "---|" * len(budgets))
    for table, order in dict.fromkeys((table, order) for table, order, _ in found):
        line = []
        for epsilon in budgets:
            cell = found.get((table, order, epsilon))
            first = best(cell) if cell else AUTO
            ratio, error = quotient(cell, first) if cell else (math.nan, 0.0)
            line.append(f"{ratio:.2f} ± {100 * error:.0f} % {first}" if first != AUTO else "1" if cell else "")
        print(f"| {table}, {order}-way | " + " | ".join(line) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "show", "short"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--orders", default="2,3")
    parser.add_argument("--budgets", type=lambda text: list(map(float, text.split(","))), default=list(BUDGETS))
    parser.add_argument("--data", default="", help="names of tables with semicolons; all by default")
    parser.add_argument("--unseen", action="store_true", help="the tables of unseen.py, on which nothing was chosen")
    parser.add_argument("--most", type=int, default=MOST, help="runs of a way")
    parser.add_argument("--ways", default="", help="names with commas; all by default")
    parser.add_argument("--again", action="store_true", help="measure the named ways of cells in FILE anew")
    parser.add_argument("--far", type=float, default=HOPELESS, help="but for those that were so many times the least")
    asked = parser.parse_args()
    {"measure": measure, "show": show, "short": short}[asked.what](asked.file, asked)


if __name__ == "__main__":
    main()
