"""The law of unbiased sampling: inclusion probabilities, and covariances of pairs; with power against a wrong one."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2, poisson

from duckdb_dp.synthesis.links.ubs import ubs

pytestmark = pytest.mark.slow

DRAWS = 20_000
REJECTED = 1e-6


def shapes() -> dict[str, tuple[np.ndarray, int]]:
    rng = np.random.default_rng(11)
    found = {"figure": np.array([0.1, 0.2, 0.5, 0.7, 0.6, 0.9])}
    for name, x in {
        "any": rng.random(40),
        "small": rng.random(60) ** 4,
        "large": 1 - rng.random(30) ** 3,
        "zeros": rng.random(40) * (rng.random(40) < 0.6),
    }.items():
        m = max(2, int(x.sum()))
        for _ in range(100):
            x = np.minimum(x * (m / x.sum()), 1)
        found[name] = x
    return {name: (x, round(x.sum())) for name, x in found.items()}


SHAPES = shapes()


def drawn(x: np.ndarray, m: int, seed: int = 0) -> np.ndarray:
    """Indicators of many draws, shape (draws, N)."""
    rng = np.random.default_rng(seed)
    table = np.zeros((DRAWS, len(x)), dtype=bool)
    for row in table:
        row[ubs(x, m, rng)] = True
    return table


@pytest.fixture(scope="module")
def samples() -> Callable[[str], np.ndarray]:
    cache: dict[str, np.ndarray] = {}

    def sample(name: str) -> np.ndarray:
        if name not in cache:
            cache[name] = drawn(*SHAPES[name])
        return cache[name]

    return sample


def p_value(table: np.ndarray, x: np.ndarray) -> float:
    """Of the squared standardised frequencies. Negative association makes their sum no larger than independence would."""
    inside = (x > 0) & (x < 1 - 1e-12)
    spread = np.sqrt(x * (1 - x) / len(table))[inside]
    z = (table.mean(0)[inside] - x[inside]) / spread
    return float(chi2.sf((z**2).sum(), inside.sum()))


@pytest.mark.some(1)
@pytest.mark.parametrize("name", SHAPES)
def test_unbiased(name: str, samples: Callable[[str], np.ndarray]) -> None:
    x, m = SHAPES[name]
    table = samples(name)
    assert (table.sum(1) == m).all()
    assert p_value(table, x) > REJECTED
    assert not table[:, x == 0].any()
    assert table[:, x == 1].all()


def test_a_bias_of_five_percent_is_seen(samples: Callable[[str], np.ndarray]) -> None:
    x, _ = SHAPES["any"]
    wrong = np.clip(x * np.where(np.arange(len(x)) % 2, 1.05, 0.95), 0, 1)
    assert p_value(samples("any"), wrong) < REJECTED


def rejection(x: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """The paper's Example 1: sample with rejection, which is biased."""
    left, found = x / x.sum(), []
    while len(found) < m:
        i = int(rng.choice(len(x), p=left))
        if i not in found:
            found.append(i)
    return np.array(found)


def test_sampling_with_rejection_is_seen_to_be_biased() -> None:
    x, m = SHAPES["figure"]
    rng = np.random.default_rng(1)
    table = np.zeros((DRAWS // 4, len(x)), dtype=bool)
    for row in table:
        row[rejection(x, m, rng)] = True
    assert p_value(table, x) < REJECTED


@pytest.mark.parametrize("name", SHAPES)
def test_pairs_are_not_positively_associated(name: str, samples: Callable[[str], np.ndarray]) -> None:
    x, _ = SHAPES[name]
    table = samples(name).astype(float)
    pairs = np.triu_indices(len(x), 1)
    together = (table.T @ table)[pairs]
    independent = len(table) * np.outer(x, x)[pairs]
    assert (poisson.sf(together - 1, independent) > REJECTED / len(together)).all()
    assert together.sum() < independent.sum()


@pytest.mark.parametrize("name", ["any", "small"])
def test_sums_of_disjoint_parts_are_not_positively_associated(name: str, samples: Callable[[str], np.ndarray]) -> None:
    table = samples(name)
    rng = np.random.default_rng(2)
    for _ in range(20):
        half = rng.random(table.shape[1]) < 0.5
        first, second = table[:, half].sum(1), table[:, ~half].sum(1)
        assert np.cov(first, second)[0, 1] <= 0  # their sum is m
        third = ~half & (rng.random(len(half)) < 0.5)
        a, b = table[:, half].sum(1), table[:, third].sum(1)
        assert np.cov(a, b)[0, 1] < 5 * a.std() * b.std() / math.sqrt(len(table))
