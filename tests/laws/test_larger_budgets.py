"""A larger budget does not make pairs of many values worse, whether their values are in an order or not; nor do groups of values."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.adaptive import Options
from duckdb_dp.adaptive.neyman import neyman
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.likeness import Likeness
from duckdb_dp.testing import SeededEntropy

Columns = Sequence[tuple[Integers, int, int]]
"""Of each column its values, how many there may be, and how many of the first are in an order."""


def zipf(rng: np.random.Generator, values: int, rows: int) -> Integers:
    shares = 1 / np.arange(1, values + 1) ** 1.1
    return rng.permutation(values)[rng.choice(values, rows, p=shares / shares.sum())]


def cut(values: Array, bins: int) -> Integers:
    return np.clip((values + 3) / 6 * bins, 0, bins - 1).astype(np.int64)


def skewed(rng: np.random.Generator, rows: int) -> Columns:
    """Values without an order, of which few are frequent, and each says much of the next."""
    a = zipf(rng, 60, rows)
    b = np.where(rng.random(rows) < 0.7, rng.integers(0, 40, 60)[a], zipf(rng, 40, rows))
    return (a, 60, 0), (b, 40, 0), (np.where(rng.random(rows) < 0.5, rng.integers(0, 60, 40)[b], a), 60, 0)


def smooth(rng: np.random.Generator, rows: int) -> Columns:
    """Numbers with a correlation of 0.8, and one that bends."""
    x, e, f = rng.normal(size=(3, rows))
    return (cut(x, 60), 60, 60), (cut(0.8 * x + 0.6 * e, 60), 60, 60), (cut(np.abs(x) - 1 + 0.5 * f, 40), 40, 40)


def shuffled(rng: np.random.Generator, rows: int) -> Columns:
    """Numbers with a correlation of 0.7, of which the first have lost their order, and classes of these."""
    x, e = rng.normal(size=(2, rows))
    a = rng.permutation(300)[cut(x, 300)]
    z = np.where(rng.random(rows) < 0.7, a * 12 // 300, rng.integers(0, 12, rows))
    return (a, 300, 0), (cut(0.7 * x + 0.71 * e, 300), 300, 300), (z, 12, 0)


def narrow(rng: np.random.Generator, rows: int) -> Columns:
    """Numbers that nearly say one another, and classes of the first."""
    x, e = rng.normal(size=(2, rows))
    a = cut(x, 24)
    z = np.where(rng.random(rows) < 0.95, a * 30 // 24, rng.integers(0, 30, rows))
    return (a, 24, 24), (cut(0.95 * x + 0.31 * e, 24), 24, 24), (z, 30, 30)


def spikes(rng: np.random.Generator, rows: int) -> Columns:
    """Amounts in an order, of which a few of each kind are frequent, and what was paid of them."""
    kind = rng.choice(15, rows, p=rng.dirichlet(np.full(15, 0.8)))
    amount = rng.integers(0, 60, (15, 4))[kind, rng.integers(0, 4, rows)]
    paid = np.where(rng.random(rows) < 0.5, amount, amount * rng.integers(5, 10, rows) // 10)
    return (kind, 15, 0), (amount, 60, 60), (paid, 60, 60)


SHAPES = {each.__name__: each for each in (skewed, smooth, shuffled, narrow, spikes)}


def errors(
    shape: Callable[[np.random.Generator, int], Columns],
    rows: int,
    unit: int,
    rho: float,
    seed: int,
    groups: bool = True,
) -> Array:
    """L1 distance over the rows of each estimated pair from the true one."""
    columns = shape(np.random.default_rng(7), rows)
    domain = Domain({f"a{i}": size for i, (_, size, _) in enumerate(columns)})
    alike = {f"a{i}": Likeness(ordered=first) for i, (_, _, first) in enumerate(columns)}
    cells = np.ravel_multi_index([values for values, _, _ in columns], domain.shape(domain.attributes))
    counted = Counts(domain, {domain.attributes: np.unique(cells, return_counts=True)})
    queryable = PrivateQueryable(counted, total=rho, accounting=ZCDP, rows=unit, bits=SeededEntropy(seed))
    found = neyman(queryable, Workload.all_k_way(domain, 2), Options(), alike=alike if groups else None).estimate
    assert found is not None
    return np.array(
        [np.abs(table.reshape(-1) - counted.marginal(pair)).sum() / rows for pair, table in found.pairs.items()]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "unit"), [(3_000, 10), (20_000, 4)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_larger_budget_is_no_worse(shape: str, rows: int, unit: int) -> None:
    """The mean over seeds and pairs, and the worst pair of any seed: beside as large a spread as seeds have at the smaller budget."""
    seeds = range(3)
    before = None
    for rho in (0.056, 0.2, 0.7):
        found = np.array([errors(SHAPES[shape], rows, unit, rho, seed) for seed in seeds])
        if before is not None:
            spread = before.mean(axis=1).std(ddof=1)
            assert found.mean() <= before.mean() + 2 * spread / np.sqrt(len(seeds)), rho
            assert (found.max(axis=0) <= before.max(axis=0) + 3 * before.std(axis=0, ddof=1) + 0.03).all(), rho
        before = found


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "unit", "rho"), [(2_000, 1, 0.15), (3_000, 4, 0.5)])
@pytest.mark.parametrize("shape", SHAPES)
def test_groups_of_values_are_no_worse_than_none(shape: str, rows: int, unit: int, rho: float) -> None:
    with_groups, without = (
        np.mean([errors(SHAPES[shape], rows, unit, rho, seed, groups) for seed in range(2)]) for groups in (True, False)
    )
    assert with_groups <= 1.15 * without


def test_values_without_an_order_are_measured_one_by_one_where_that_leaves_less() -> None:
    found = [errors(skewed, 3_000, 4, 0.5, 0, groups).mean() for groups in (True, False)]
    assert found[0] <= 1.1 * found[1]
