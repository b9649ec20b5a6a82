"""Unbiased sampling: inclusion probabilities, an exact sum, negative association."""

import numpy as np
import pytest

from duckdb_dp.errors import DPError
from duckdb_dp.relational.ubs import ubs

DRAWS = 40_000


def included(x: np.ndarray, m: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = np.zeros((DRAWS, len(x)), dtype=bool)
    for row in found:
        row[ubs(x, m, rng)] = True
    return found


@pytest.mark.parametrize(
    ("x", "m"),
    [
        ([0.5, 0.5, 0.5, 0.5], 2),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.3, 0.2], 4),
        ([0.1, 0.2, 0.3, 0.15, 0.25], 1),
        ([1.0, 0.0, 0.4, 0.6, 1.0], 3),
    ],
)
def test_every_index_at_its_probability_and_never_positively_associated(x: list[float], m: int) -> None:
    probabilities = np.array(x)
    found = included(probabilities, m, 1)
    assert (found.sum(axis=1) == m).all()
    error = np.sqrt(np.maximum(probabilities * (1 - probabilities), 1e-12) / DRAWS)
    assert (np.abs(found.mean(axis=0) - probabilities) <= 5 * error).all()
    covariance = np.cov(found.T.astype(float))
    assert (covariance[~np.eye(len(x), dtype=bool)] <= 5 * 0.25 / np.sqrt(DRAWS)).all()


def test_a_wrong_probability_would_be_seen() -> None:
    """The test above has power: 3 % more for one index is found."""
    found = included(np.array([0.53, 0.47, 0.5, 0.5]), 2, 2)
    error = np.sqrt(0.25 / DRAWS)
    assert abs(found[:, 0].mean() - 0.5) > 5 * error


@pytest.mark.parametrize(("n", "m"), [(100_000, 10), (100_000, 40_000), (100_000, 99_990), (7, 0), (7, 7)])
def test_any_size(n: int, m: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.random(n)
    for _ in range(60):
        x = np.minimum(x * (m / x.sum()) if m else x * 0, 1.0)
    x = 1 - (1 - x) * ((n - m) / max((1 - x).sum(), 1e-300))  # exact also where nearly all are chosen
    x = np.clip(x, 0, 1)
    chosen = ubs(x, m, rng)
    assert len(chosen) == len(set(chosen.tolist())) == m
    assert (np.diff(chosen) > 0).all()
    assert (x[chosen] > 0).all()


def test_refusals() -> None:
    rng = np.random.default_rng(0)
    for x, m in (([0.5, 0.6], 1), ([1.5, 0.5], 2), ([-0.1, 1.1], 1), ([0.5, 0.5], 3), ([np.nan, 1.0], 1)):
        with pytest.raises(DPError):
            ubs(np.array(x), m, rng)
