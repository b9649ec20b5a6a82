"""How often the exponential mechanism draws each candidate, by tests that also refuse an epsilon 5 % off."""

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from duckdb_dp.noise import select
from duckdb_dp.noise.select import exponential
from duckdb_dp.testing import SeededEntropy

ACCEPT = 1e-6  # the draws of a seed either pass or not; a correct sampler fails one seed in a million
WRONG = [0.95, 1.05]
SIZE = 40_000
SCORES = {
    "few": (np.array([0.0, 0.0, 1.0, 0.5, 5.0, -1e9]), 1.0),
    "large numbers": (1e9 + np.array([0.0, -3.0, 1.0, 4.0, 5.5, 2.0]), 1.0),
    "epsilon 50": (np.array([0.0, 0.02, 0.07, 0.1, 0.13]), 50.0),
    "epsilon small": (np.array([0.0, 4e4, 2e4, 6e4]), 1e-4),
    "fine scores": (np.linspace(0, 8, 30), 1.0),
}


def frequencies(scores: np.ndarray, epsilon: float, seed: int, size: int = SIZE, error: float = 0.0) -> np.ndarray:
    bits = SeededEntropy(seed)
    drawn = [exponential(scores, 1.0, epsilon, bits=bits, error=error) for _ in range(size)]
    return np.bincount(drawn, minlength=len(scores))


def chi_square(found: np.ndarray, scores: np.ndarray, epsilon: float) -> float:
    """The p-value of Pearson's test that candidates are drawn in proportion to exp(epsilon score / 2)."""
    weights = np.exp((scores - scores.max()) * epsilon / 2)
    expected = weights / weights.sum() * found.sum()
    assert found[expected < 1e-6].sum() == 0
    likely = expected > 10
    assert np.array_equal(likely, expected > 1e-6)
    return float(stats.chisquare(found[likely], expected[likely] * found.sum() / expected[likely].sum()).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_chi_square_has_power(name: str) -> None:
    scores, epsilon = SCORES[name]
    found = frequencies(scores, epsilon, 91)
    assert chi_square(found, scores, epsilon) > ACCEPT
    assert all(chi_square(found, scores, epsilon * wrong) < ACCEPT for wrong in WRONG)


@pytest.mark.slow
def test_the_exact_path_has_power(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "_decide", lambda *_: None)
    scores, epsilon = SCORES["few"]
    found = frequencies(scores, epsilon, 92)
    assert chi_square(found, scores, epsilon) > ACCEPT
    assert all(chi_square(found, scores, epsilon * wrong) < ACCEPT for wrong in WRONG)


@pytest.mark.slow
def test_errors_take_from_epsilon() -> None:
    scores, _ = SCORES["few"]
    found = frequencies(scores, 1.5, 93, SIZE // 5, error=0.25)  # the sensitivity is 1.5 then
    assert chi_square(found, scores, 1.0) > ACCEPT
    assert chi_square(found, scores, 1.5) < ACCEPT


@pytest.mark.slow
def test_many_candidates() -> None:
    """Of 20,000 candidates, the ranks drawn have the distribution that they should."""
    scores = np.random.default_rng(94).normal(size=20_000)
    ranks = np.argsort(np.argsort(scores))
    bits = SeededEntropy(95)
    drawn = np.array([ranks[exponential(scores, 1.0, 2.0, bits=bits)] for _ in range(3000)])
    weights = np.exp(np.sort(scores))
    shares = np.cumsum(weights) / weights.sum()
    assert stats.kstest(shares[drawn], "uniform").pvalue > ACCEPT
    wrong = np.cumsum(np.sqrt(weights)) / np.sqrt(weights).sum()
    assert stats.kstest(wrong[drawn], "uniform").pvalue < ACCEPT


@pytest.mark.slow
def test_equal_scores_are_drawn_alike() -> None:
    found = frequencies(np.full(16, -3e8), 1.0, 96)
    assert stats.chisquare(found).pvalue > ACCEPT


@pytest.mark.slow
def test_opendp_agrees() -> None:
    """Its noisy maximum with Gumbel noise has the same law. It cannot be seeded: one run in 10**9 fails by chance."""
    dp.enable_features("contrib")
    scores, epsilon = SCORES["few"]
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    theirs = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=2 / epsilon)
    oracle = np.bincount([theirs(scores.tolist()) for _ in range(10_000)], minlength=len(scores))

    def pvalue(found: np.ndarray) -> float:
        return float(stats.chi2_contingency(np.array([oracle, found])[:, :5]).pvalue)

    assert pvalue(frequencies(scores, epsilon, 97, 10_000)) > 1e-9
    assert all(pvalue(frequencies(scores, epsilon * wrong, 98, 10_000)) < ACCEPT for wrong in (0.85, 1.15))
