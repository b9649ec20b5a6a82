"""The rounded Laplace's distribution, by tests that also refuse a scale 5 % off."""

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from duckdb_dp.noise.laplace import noisy_grid, rounded_laplace
from duckdb_dp.testing import SeededEntropy

ACCEPT = 1e-6  # the draws of a seed either pass or not; a correct sampler fails one seed in a million
WRONG = [0.95, 1.05]
SIZE = 200_000


def draws(scale: float, seed: int, size: int = SIZE) -> np.ndarray:
    return rounded_laplace(scale, size, bits=SeededEntropy(seed))


def cuts(scale: float, cells: int, centre: float = 0.0) -> np.ndarray:
    """Half-integers between cells of about equal probability; between all integers but rare ones at small scales."""
    if scale > 15:
        return np.unique(np.floor(centre + scale * stats.laplace.ppf(np.arange(1, cells) / cells)) + 0.5)
    edges = np.floor(centre) + np.arange(-np.ceil(12 * scale) - 1, np.ceil(12 * scale) + 2) + 0.5
    outer = edges + np.where(edges > centre, 1, -1)
    return edges[np.abs(np.diff(stats.laplace.cdf((np.stack([edges, outer]) - centre) / scale), axis=0))[0] > 1e-4]


def chi_square(sample: np.ndarray, scale: float, centre: float = 0.0) -> float:
    """The p-value of Pearson's test of the rounded Laplace of this scale."""
    edges = cuts(scale, 40, centre)
    observed = np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1)
    probability = np.diff(stats.laplace.cdf((np.concatenate([[-np.inf], edges, [np.inf]]) - centre) / scale))
    assert probability.min() * len(sample) >= 10
    return float(stats.chisquare(observed, probability * len(sample)).pvalue)


@pytest.mark.parametrize("scale", [0.3, 0.7, 2.5, 7.0, 20.0, 1000 / 3, 2.0**20, 2.0**33])
def test_chi_square_has_power(scale: float) -> None:
    sample = draws(scale, 41)
    assert chi_square(sample, scale) > ACCEPT
    assert all(chi_square(sample, scale * wrong) < ACCEPT for wrong in WRONG)


def noisy(centre: Fraction, scale: float, errors: float, seed: int, size: int = SIZE) -> np.ndarray:
    return noisy_grid(np.full(size, float(centre)), errors, scale, lambda _: centre, bits=SeededEntropy(seed))


@pytest.mark.parametrize("scale", [0.3, 0.7, 2.5, 20.0, 2.0**20])
@pytest.mark.parametrize("centre", [Fraction(1, 4), Fraction(-4999, 10_000), Fraction(10**6) + Fraction(1, 3)])
def test_chi_square_off_centre_has_power(scale: float, centre: Fraction) -> None:
    sample = noisy(centre, scale, 1e-9, 49) - round(centre)
    middle = float(centre - round(centre))
    assert chi_square(sample, scale, middle) > ACCEPT
    assert all(chi_square(sample, scale * wrong, middle) < ACCEPT for wrong in WRONG)
    assert all(chi_square(sample, scale, middle + wrong * scale) < ACCEPT for wrong in (-0.05, 0.05))


@pytest.mark.parametrize("centre", [Fraction(1, 4), Fraction(-4999, 10_000)])
def test_chi_square_of_the_exact_path_has_power(centre: Fraction) -> None:
    sample = noisy(centre, 2.5, 1.0, 50, 100_000)
    assert chi_square(sample, 2.5, float(centre)) > ACCEPT
    assert all(chi_square(sample, 2.5 * wrong, float(centre)) < ACCEPT for wrong in WRONG)
    assert chi_square(sample, 2.5) < ACCEPT


@pytest.mark.parametrize("scale", [2.0**12, 2.0**26, 2.0**34])
def test_kolmogorov_smirnov_has_power(scale: float) -> None:
    sample = draws(scale, 42)
    assert stats.kstest(sample / scale, "laplace").pvalue > ACCEPT
    assert all(stats.kstest(sample / (scale * wrong), "laplace").pvalue < ACCEPT for wrong in WRONG)


def test_the_tails_are_there() -> None:
    sample = np.abs(draws(2.0**12, 44, 4_000_000))
    for scales in (5, 8, 11, 13):
        expected = np.exp(-scales) * len(sample)
        found = np.count_nonzero(sample > scales * 2**12)
        assert stats.poisson.cdf(found, expected) > ACCEPT
        assert stats.poisson.sf(found - 1, expected) > ACCEPT


def test_successive_draws_are_independent() -> None:
    sample = draws(2.0**20, 45)
    for one in (sample, np.abs(sample), sample % 2.0):  # values, sizes, last bits
        assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) < 5 / np.sqrt(SIZE)
    assert stats.chisquare(np.bincount(sample % 64, minlength=64)).pvalue > ACCEPT


@pytest.mark.parametrize("scale", [0.7, 4.0])
def test_twice_as_likely_one_step_nearer(scale: float) -> None:
    """P(k) / P(k + 1) = exp(1 / scale) for k >= 1: what the privacy rests on."""
    counts = np.bincount(np.abs(draws(scale, 46, 1_000_000)))
    for k in (1, 2, 3):
        both = counts[k] + counts[k + 1]
        ratio = 1 / (1 + np.exp(-1 / scale))
        assert stats.binomtest(int(counts[k]), int(both), ratio).pvalue > ACCEPT


@pytest.mark.parametrize("scale", [20.0, 4096.0])
def test_opendp_agrees(scale: float) -> None:
    """The discrete Laplace of opendp and ours differ by less than 1e-3 in any probability at these scales.

    Its draws cannot be seeded, hence the lower level: one run in 10**9 fails by chance.
    """
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    oracle = np.array(dp.m.make_laplace(*space, scale=scale)([0] * 100_000))

    def pvalue(ours: np.ndarray) -> float:
        counts = [np.bincount(np.searchsorted(cuts(scale, 20), sample), minlength=20) for sample in (oracle, ours)]
        return float(stats.chi2_contingency(counts).pvalue)

    assert pvalue(draws(scale, 47)) > 1e-9
    assert all(pvalue(draws(scale * wrong, 48)) < ACCEPT for wrong in (0.93, 1.07))
