"""Bounds on what a unit adds, chosen privately: the error of a count beside that of the best fixed bound, and how often intervals hold.

Shapes of rows per unit, from one each to a few units with most of the rows, at four sizes and four budgets (delta 1e-9). The choice
is drawn from the scores of `duckdb_dp.plan.clipping`, in floats; `alone` stops after the first selection. And of a small count, in rows:
the RMSE with a chosen bound, and with declared ones, which have all of the budget.

    python benchmarks/accuracy/contributions.py [draws]
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from duckdb_dp.accounting.base import GDP
from duckdb_dp.budget import Budget
from duckdb_dp.grouped_sums import PER_OCTAVE
from duckdb_dp.plan.clipping import BEYOND, OF_CHOICE, ROWS, STEEP, Clip

EPSILONS, SIZES = (0.1, 0.5, 1.0, 4.0), (300, 2_000, 20_000, 200_000)
SMALL = np.array([1.0] * 215 + [2.0] * 10 + [3.0, 4.0, 7.0, 8.0])
DECLARED = (1, 2, 4, 8)


def shapes(n: int, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """(name, rows of each unit)."""
    yield "one row", np.ones(n)
    yield "ten rows", np.full(n, 10.0)
    yield "uniform 1 to 10", rng.integers(1, 11, n).astype(float)
    yield "Poisson, mean 4", rng.poisson(4, n).astype(float)
    yield "geometric, mean 4", rng.geometric(1 / 4, n).astype(float)
    yield "geometric, mean 20", rng.geometric(1 / 20, n).astype(float)
    yield "lognormal, sigma 1", np.ceil(rng.lognormal(1, 1, n))
    yield "lognormal, sigma 1.5", np.ceil(rng.lognormal(1, 1.5, n))
    yield "Pareto 3", np.ceil(3 * rng.pareto(3, n) + 1)
    yield "Pareto 2", np.ceil(2 * rng.pareto(2, n) + 1)
    yield "Pareto 1.5", np.ceil(rng.pareto(1.5, n) + 1)
    yield "rank^-0.6", np.ceil(n / 4 * np.arange(1, n + 1) ** -0.6)
    few = rng.integers(1, 6, n).astype(float)
    few[: max(1, n // 200)] = 200
    yield "0.5 % with 200", few


def bound(cost: float) -> tuple[Clip, float]:
    """That of a count at a cost in Gaussian DP, as dp_sql has it, and the noise in units of the bound."""
    share = OF_CHOICE * cost
    steep = share / (STEEP**2 + 1)
    noise = 1 / math.sqrt(cost - share)
    epsilon, slower = GDP.selection_epsilon(share - steep), GDP.selection_epsilon(steep)
    return Clip(sums=(0,), lowest=0, size=ROWS * PER_OCTAVE + 1, epsilon=epsilon, steep=slower, noise=noise), noise


def drawn(scores: np.ndarray, epsilon: float, rng: np.random.Generator) -> int:
    """The exponential mechanism, in floats."""
    weights = np.exp(epsilon / 2 * (scores - scores.max()))
    return int(rng.choice(len(scores), p=weights / weights.sum()))


def choices(clip: Clip, rows: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """The bounds that are chosen, as numbers of candidates."""
    cells = np.minimum(np.searchsorted(clip.candidates, rows, "left"), clip.size)
    owners, found = np.bincount(cells, minlength=clip.size + 1), []
    for _ in range(draws):
        choice = drawn(clip.scores(owners), clip.epsilon, rng)
        if clip.goes_on(choice):
            choice = clip.moved(choice, drawn(clip.steep_scores(owners, choice), clip.steep, rng))
        found.append(choice)
    return np.array(found)


def measure(rows: np.ndarray, cost: float, draws: int, rng: np.random.Generator) -> list[tuple[float, float]]:
    """(RMSE over that of the best bound, share of 95 % intervals that hold all rows), for one selection and as it is."""
    clip, noise = bound(cost)
    taus, bias = clip.candidates, left_out(rows, clip.candidates)
    best = np.sqrt(bias**2 + (noise * taus) ** 2).min()
    found = []
    for one in (replace(clip, steep=0.0), clip):
        chosen = choices(one, rows, draws, rng)
        off = rng.normal(size=draws) * noise * taus[chosen] - bias[chosen]
        held = np.abs(off) < 1.96 * noise * taus[chosen]
        found.append((float(np.sqrt(np.mean(off**2)) / best), float(np.mean(held))))
    return found


def left_out(rows: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The rows beyond each bound."""
    return np.array([np.maximum(rows - tau, 0).sum() for tau in bounds])


def small(draws: int, rng: np.random.Generator) -> None:
    """Print how many units may be beyond a chosen bound, and the errors of a small count."""
    print("\n| epsilon | units beyond | chosen | " + " | ".join(f"clip := {tau}" for tau in DECLARED) + " |")
    print("|---|---|---|" + "---|" * len(DECLARED))
    for epsilon in (1.0, 3.0, 8.0):
        cost = GDP.cost(Budget(epsilon=epsilon, delta=1e-9))
        clip, noise = bound(cost)
        chosen = choices(clip, SMALL, draws, rng)
        mean = np.mean(left_out(SMALL, clip.candidates)[chosen] ** 2 + (noise * clip.candidates[chosen]) ** 2)
        taus = np.array(DECLARED, dtype=float)
        errors = [np.sqrt(mean), *np.sqrt(left_out(SMALL, taus) ** 2 + taus**2 / cost)]
        print(f"| {epsilon:g} | {2 * BEYOND / clip.epsilon:.0f} |", " | ".join(f"{error:.1f}" for error in errors), "|")


def main(draws: int) -> None:
    """Print a row for each shape, over all sizes and budgets, and one for all."""
    rng = np.random.default_rng(1)
    found: dict[str, list[list[tuple[float, float]]]] = {}
    for epsilon in EPSILONS:
        cost = GDP.cost(Budget(epsilon=epsilon, delta=1e-9))
        for n in SIZES:
            for name, rows in shapes(n, rng):
                found.setdefault(name, []).append(measure(rows, cost, draws, rng))
    print("| rows of a unit | RMSE / best, alone | RMSE / best | holds, alone | holds |\n|---|---|---|---|---|")
    everything = [each for cells in found.values() for each in cells]
    for name, cells in [*found.items(), ("all", everything)]:
        ratio, holds = np.exp(np.log(np.array(cells)[..., 0]).mean(0)), np.array(cells)[..., 1].mean(0)
        print(f"| {name} | {ratio[0]:.2f} | {ratio[1]:.2f} | {holds[0]:.0%} | {holds[1]:.0%} |")
    small(draws, rng)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
