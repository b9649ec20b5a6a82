"""Synthetic tables: what is kept of pairs of numbers in many bins: python benchmarks/accuracy/smooth.py [--rows 2000 ...] [--seeds 3].

Four pairs of numbers, three with a correlation of 0.3, 0.7 and 0.95 and one that bends, and six columns of 2 to 12 values. Each row has the
part of the correlations that synthetic rows keep; that of the variance of the fourth pair's second number that tenths of the first explain;
the L1 distance (0 to 2) of these four pairs; and that of all pairs.
"""

import argparse
import itertools
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr
from synthesis import opened

from duckdb_dp.accounting.convert import zcdp_rho
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.reconstruct.likeness import Likeness
from duckdb_dp.synthesis.scores import counted, errors
from duckdb_dp.synthesis.table.methods import DEFAULT, synthesize

DELTA, FEW = 1e-9, (2, 3, 5, 8, 12, 4)


def cut(values: Array, bins: int, amounts: bool = False) -> Integers:
    """Bins of equal width, of amounts that are lognormal."""
    low, high = (0.0, 8.0) if amounts else (-3.5, 3.5)
    values = np.exp(0.6 * values) if amounts else values
    return np.clip(((values - low) / (high - low) * bins).astype(np.int64), 0, bins - 1)


def table(rows: int, bins: int, seed: int) -> tuple[Domain, Codes]:
    """The columns a1, a2, ..., d2 of numbers, and n0 to n5."""
    rng, columns, hidden = np.random.default_rng(seed), {}, {}
    for name, r in (("a", 0.3), ("b", 0.7), ("c", 0.95)):
        hidden[name] = x = rng.normal(size=rows)
        columns[f"{name}1"] = cut(x, bins)
        columns[f"{name}2"] = cut(r * x + np.sqrt(1 - r**2) * rng.normal(size=rows), bins, name == "b")
    x = rng.normal(size=rows)
    columns["d1"], columns["d2"] = cut(x, bins), cut((np.abs(x) - 0.8) * 1.4 + 0.5 * rng.normal(size=rows), bins)
    for i, size in enumerate(FEW):
        value = rng.choice(size, rows, p=rng.dirichlet(np.full(size, 2.0)))
        if i < len(hidden):  # half of the rows follow a number
            followed = np.minimum((ndtr(hidden["abc"[i]]) * size).astype(np.int64), size - 1)
            value = np.where(rng.random(rows) < 0.5, followed, value)
        columns[f"n{i}"] = np.where(rng.random(rows) < 0.5, columns["n3"] % 4, value) if i == 5 else value
    sizes = {name: FEW[int(name[1])] if name[0] == "n" else bins for name in columns}
    return Domain(sizes), np.stack(list(columns.values()), 1).astype(np.int32)


def looked_at(domain: Domain, real: Codes, drawn: Codes) -> list[float]:
    """The columns of a row."""
    place = {name: i for i, name in enumerate(domain.attributes)}

    def kept(name: str, measure: Callable[[Array, Array], float]) -> float:
        one, other = (measure(codes[:, place[f"{name}1"]], codes[:, place[f"{name}2"]]) for codes in (drawn, real))
        return one / other

    edges = np.quantile(real[:, place["d1"]], np.linspace(0.1, 0.9, 9))

    def explained(x: Array, y: Array) -> float:
        part, mean = np.searchsorted(edges, x), y.mean()
        groups = [y[part == k] for k in range(10) if (part == k).any()]
        return float(sum(len(group) * (group.mean() - mean) ** 2 for group in groups) / len(y) / y.var())

    found = [kept(name, lambda x, y: float(np.corrcoef(x, y)[0, 1])) for name in "abc"]
    pairs = list(itertools.combinations(domain.attributes, 2))
    far = errors(counted(domain, real), counted(domain, drawn), pairs)
    four = [e for (one, other), e in zip(pairs, far, strict=True) if one[0] == other[0] != "n"]
    return [*found, kept("d", explained), float(np.mean(four)), float(far.mean())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", type=int, default=[2_000, 10_000, 50_000])
    parser.add_argument("--bins", nargs="*", type=int, default=[20, 40, 80])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 4.0, 10.0])
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    print(f"{'rows':>7}{'bins':>5}{'epsilon':>8}{'r .3':>8}{'r .7':>8}{'r .95':>8}{'bend':>8}{'four':>8}{'all':>8}")
    for rows, bins, epsilon in itertools.product(asked.rows, asked.bins, asked.epsilons):
        found = []
        for seed in range(asked.seeds):
            domain, codes = table(rows, bins, seed)
            alike = {name: Likeness(ordered=size) for name, size in domain.sizes.items() if name[0] != "n"}
            queryable, rng = opened(domain, codes, DEFAULT, zcdp_rho(epsilon, DELTA), seed), np.random.default_rng(seed)
            found.append(looked_at(domain, codes, synthesize(queryable, rows=rows, rng=rng, alike=alike)[0]))
        print(f"{rows:>7}{bins:>5}{epsilon:>8g}" + "".join(f"{x:>8.3f}" for x in np.mean(found, axis=0)), flush=True)


if __name__ == "__main__":
    main()
