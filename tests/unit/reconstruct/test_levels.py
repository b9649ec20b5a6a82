"""Noisy counts of ordered values, smoothed level by level."""

import numpy as np
import pytest

from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.levels import smoothed

SHAPES = {
    "season": lambda n: 8 + 6 * (np.arange(n) % 365 > 300),
    "slope": lambda n: 1 + 20 * np.arange(n) / n,
    "peak": lambda n: 1 + 300 * np.exp(-(((np.arange(n) - n / 3) / 10) ** 2)),
    "even": lambda n: np.full(n, 9.0),
    "spikes": lambda n: np.where(np.arange(n) % 50 == 7, 200.0, 1.0),
}


def error(one: Array, other: Array) -> float:
    return float(np.abs(one - other).sum() / other.sum())


@pytest.mark.parametrize("size", [32, 100, 365, 1096])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_never_much_worse_than_noise_or_even_shares(shape: str, size: int) -> None:
    """Nearer to the truth than both where noise is of the size of the counts, and these are like their neighbours'."""
    rng, real, runs = np.random.default_rng(1), SHAPES[shape](size), 20
    total = real.sum()
    for stddev in (1.0, 5.0, 20.0):
        found, noise, even = np.zeros(3)
        for _ in range(runs):
            noisy = real + stddev * rng.normal(size=size)
            found += error(smoothed(noisy, stddev**2, size, total), real) / runs
            noise += error(np.maximum(noisy, 0) * total / np.maximum(noisy, 0).sum(), real) / runs
            even += error(np.full(size, total / size), real) / runs
        assert found < min(noise, even) + 0.3 * noise
        if shape in ("season", "slope", "peak") and size > 300 and stddev == 5:
            assert found < 0.8 * min(noise, even)


def test_what_is_known_stays_and_what_is_not_becomes_even() -> None:
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 100, 200).astype(np.float64)
    assert np.allclose(smoothed(counts, 0.0, 200, counts.sum()), counts, rtol=1e-9)
    flat = smoothed(50 + 40 * rng.normal(size=500), 1600.0, 500, 25_000.0)
    assert np.abs(flat - 50).mean() < 10


def test_values_without_an_order_are_left_alone() -> None:
    noisy = np.concatenate([50 + 10 * np.random.default_rng(3).normal(size=64), [7.0, 900.0]])
    found = smoothed(noisy, 100.0, 64, float(noisy.sum()))
    assert found.sum() == pytest.approx(noisy.sum())
    assert found[64:] == pytest.approx(noisy[64:], rel=1e-2)
    assert (smoothed(-np.ones(40), 1.0, 40, 10.0) > 0).all()
