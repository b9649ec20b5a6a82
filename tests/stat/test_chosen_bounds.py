"""Bounds that noisy counts choose: sums clamped to them are nearly as good as with the best bound, over data of many shapes."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.grouped_sums import OCTAVES, PER_OCTAVE, SMALLEST, candidates
from duckdb_dp.linop import Array
from duckdb_dp.noise.kinds import GAUSSIAN
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import PrivacyCost, choose
from duckdb_dp.plan.chosen_bounds import chosen, half_beyond
from duckdb_dp.plan.prefixes import prefixes
from duckdb_dp.reconstruct.quantiles import Prefixes
from duckdb_dp.request import Question

SHAPES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "even": lambda rng, n: rng.uniform(0, 100, n),
    "one value": lambda rng, n: np.full(n, 40.0),
    "far from 0": lambda rng, n: rng.normal(100, 10, n),
    "exponential": lambda rng, n: rng.exponential(50, n),
    "lognormal": lambda rng, n: rng.lognormal(3, 1.4, n),
    "incomes": lambda rng, n: np.where(rng.random(n) < 0.25, 0, rng.lognormal(10.3, 0.9, n)),
    "power law": lambda rng, n: (1 - rng.random(n)) ** (-1 / 1.5) * 10,
    "below 0": lambda rng, n: -rng.lognormal(5, 1, n),
    "a few far away": lambda rng, n: np.where(rng.random(n) < 300 / n, 1000, rng.uniform(0, 10, n)),
}
EDGES = np.asarray([float(point) for point in candidates().points])
MU, DRAWS = 0.18, 40  # of (1, 1e-9)
QUESTION, DOMAIN = Question(clique=("value",), kinds=("prefix",)), Domain({"value": len(EDGES) - 1})
SIGMA = 1 / (MU * math.sqrt(0.7))


@cache
def plan() -> Plan:
    return choose(Workload(DOMAIN, (QUESTION.part(DOMAIN),)), PrivacyCost(beta=0.3 * MU**2, epsilon=0.0))


def draws(values: Array, rng: np.random.Generator) -> Iterator[Prefixes]:
    octaves = (np.log2(np.maximum(np.abs(values), 1e-300)) - SMALLEST) * PER_OCTAVE
    cells = OCTAVES * PER_OCTAVE + np.where(values < 0, -1, 1) * (np.clip(np.floor(octaves), -1, None) + 1)
    counts = np.bincount(cells.astype(int), minlength=len(EDGES) - 1).astype(float)
    read: Prefixes | None = None
    for _ in range(DRAWS):
        noisy = {}
        for m in plan().measurements:
            exact = m.strategy.matvec(counts)
            noisy[m.clique] = exact + rng.normal(0, math.sqrt(m.variance), exact.shape)
        if read is None:
            read = prefixes(plan(), QUESTION, DOMAIN, plan().estimates(noisy))
        yield replace(read, counts=plan().answer(0, plan().estimates(noisy)).reshape(1, -1))


def error(values: Array, low: float, high: float) -> float:
    """The root of the mean squared error of the sum, of its noise and of what is cut off."""
    return math.hypot(SIGMA * max(-low, high), float((np.clip(values, low, high) - values).sum()))


@pytest.mark.some(2)
@pytest.mark.parametrize("n", [1_000, 20_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_error_is_near_that_of_the_best_bound(shape: str, n: int) -> None:
    rng = np.random.default_rng(3)
    values = SHAPES[shape](rng, n)
    best = min(error(values, -bound, bound) for bound in 2.0 ** (np.arange(-20, 100) / 4))
    found = []
    for read in draws(values, rng):
        bounds = chosen(EDGES, read, stddev=SIGMA, groups=1, rows=1, noise=GAUSSIAN.name)
        assert bounds is not None
        found.append(error(values, *bounds) / best)
    assert math.sqrt(np.mean(np.square(found))) < 2, (np.median(found), max(found))


@pytest.mark.some(1)
@pytest.mark.parametrize("n", [150, 300])
@pytest.mark.parametrize("shape", ["even", "lognormal", "one value"])
def test_too_few_units_tell_a_bound_or_have_no_answer(shape: str, n: int) -> None:
    """No sum is cut down to nothing by chance."""
    rng = np.random.default_rng(3)
    values = SHAPES[shape](rng, n)
    middle = float(np.median(np.abs(values)))
    for read in draws(values, rng):
        bounds = chosen(EDGES, read, stddev=SIGMA, groups=1, rows=1, noise=GAUSSIAN.name)
        if bounds is not None and not half_beyond(EDGES, read, bounds):
            assert bounds[1] > middle / 4


def test_releases_that_do_not_store_their_bounds_keep_them() -> None:
    """What a step of their sums stands for follows from the bounds."""

    def former(scale: float, error: float, groups: int) -> tuple[float, float] | None:
        x = EDGES[1:]
        above = 1600 * (1 - np.exp(-np.maximum(x, 0) / scale))
        below = np.where(x <= 0, 400 / (1 + (np.abs(x) / 3) ** 1.5), 400 + above)[None, :]
        variances = np.full(below.shape, error**2)
        read = Prefixes(counts=below, variances=variances, suffix_variances=variances, width=1.96)
        return chosen(EDGES, read, stddev=6.0, groups=groups, rows=1, noise=GAUSSIAN.name, former=True)

    assert former(50, 30, 1) == former(50, 30, 10) == (-11.313708498984761, 181.01933598375618)
    assert former(1e6, 100, 1) == (0.0, 2097152.0)
    assert former(0.01, 5, 3) == (-38.05462768008707, 0.052556025953357156)
