"""The distributions of the rounded Gaussian and the rounded Laplace, by tests that also refuse a scale 5 % off."""

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from duckdb_dp.noise import gaussian, laplace
from duckdb_dp.noise.gaussian import rounded_gaussian
from duckdb_dp.noise.laplace import rounded_laplace
from duckdb_dp.testing import SeededEntropy

ACCEPT = 1e-6  # the draws of a seed either pass or not; a correct sampler fails one seed in a million
WRONG = [0.95, 1.05]
SIZE = 200_000


LAWS = {"norm": rounded_gaussian, "laplace": rounded_laplace}
"""A law's name in scipy.stats, and its sampler."""

both = pytest.mark.parametrize("law", LAWS)


def draws(law: str, scale: float, seed: int, size: int = SIZE) -> np.ndarray:
    return LAWS[law](scale, size, bits=SeededEntropy(seed))


def cuts(law: str, scale: float, cells: int, centre: float = 0.0) -> np.ndarray:
    """Half-integers between cells of about equal probability; between all integers but rare ones at small scales."""
    known = getattr(stats, law)
    if scale > 15:
        return np.unique(np.floor(centre + scale * known.ppf(np.arange(1, cells) / cells)) + 0.5)
    reach = np.ceil((6 if law == "norm" else 12) * scale)
    edges = np.floor(centre) + np.arange(-reach - 1, reach + 2) + 0.5
    outer = edges + np.where(edges > centre, 1, -1)
    return edges[np.abs(np.diff(known.cdf((np.stack([edges, outer]) - centre) / scale), axis=0))[0] > 1e-4]


def chi_square(law: str, sample: np.ndarray, scale: float, centre: float = 0.0) -> float:
    """The p-value of Pearson's test of the rounded law of this scale."""
    edges = cuts(law, scale, 40, centre)
    observed = np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1)
    probability = np.diff(getattr(stats, law).cdf((np.concatenate([[-np.inf], edges, [np.inf]]) - centre) / scale))
    assert probability.min() * len(sample) >= 10
    return float(stats.chisquare(observed, probability * len(sample)).pvalue)


@pytest.mark.some(2, "law")
@pytest.mark.parametrize("scale", [0.3, 0.7, 2.5, 7.0, 20.0, 1000 / 3, 2.0**20, 2.0**33])
@both
def test_chi_square_has_power(law: str, scale: float) -> None:
    sample = draws(law, scale, 41)
    assert chi_square(law, sample, scale) > ACCEPT
    assert all(chi_square(law, sample, scale * wrong) < ACCEPT for wrong in WRONG)


def noisy(law: str, centre: Fraction, scale: float, errors: float, seed: int, size: int = SIZE) -> np.ndarray:
    noisy_grid = (gaussian if law == "norm" else laplace).noisy_grid
    return noisy_grid(np.full(size, float(centre)), errors, scale, lambda _: centre, bits=SeededEntropy(seed))


@pytest.mark.some(2, "law")
@pytest.mark.parametrize("scale", [0.3, 0.7, 2.5, 20.0, 2.0**10, 2.0**20])
@pytest.mark.parametrize("centre", [Fraction(1, 4), Fraction(-4999, 10_000), Fraction(10**6) + Fraction(1, 3)])
@both
def test_chi_square_off_centre_has_power(law: str, scale: float, centre: Fraction) -> None:
    sample = noisy(law, centre, scale, 1e-9, 49) - round(centre)
    middle = float(centre - round(centre))
    assert chi_square(law, sample, scale, middle) > ACCEPT
    assert all(chi_square(law, sample, scale * wrong, middle) < ACCEPT for wrong in WRONG)
    assert all(chi_square(law, sample, scale, middle + wrong * scale) < ACCEPT for wrong in (-0.05, 0.05))
    if scale < 5:
        assert chi_square(law, sample, scale) < ACCEPT  # the centre has not been rounded


@pytest.mark.slow
@pytest.mark.parametrize("centre", [Fraction(1, 4), Fraction(-4999, 10_000)])
@both
def test_chi_square_of_the_exact_path_has_power(law: str, centre: Fraction) -> None:
    sample = noisy(law, centre, 2.5, 1.0, 50, 100_000)
    assert chi_square(law, sample, 2.5, float(centre)) > ACCEPT
    assert all(chi_square(law, sample, 2.5 * wrong, float(centre)) < ACCEPT for wrong in WRONG)
    assert chi_square(law, sample, 2.5) < ACCEPT


@pytest.mark.slow
def test_centres_of_every_kind() -> None:
    """Each draw takes its own centre: the differences, 2**-10 of the noise per grid step, are normal."""
    scale = 2.0**12
    centres = np.random.default_rng(51).uniform(-1, 1, SIZE) * 10.0 ** np.random.default_rng(52).integers(0, 12, SIZE)
    errors = np.abs(centres) * 2.0**-53
    sample = (
        gaussian.noisy_grid(centres, errors, scale, lambda i: Fraction(centres[i]), bits=SeededEntropy(53)) - centres
    )
    assert stats.kstest(sample / scale, "norm").pvalue > ACCEPT
    assert all(stats.kstest(sample / (scale * wrong), "norm").pvalue < ACCEPT for wrong in WRONG)


@pytest.mark.slow
@pytest.mark.some(1, "law")
@pytest.mark.parametrize("scale", [2.0**12, 2.0**26, 2.0**34])
@both
def test_kolmogorov_smirnov_has_power(law: str, scale: float) -> None:
    sample = draws(
        law, scale, 42
    )  # one grid step is 1e-4 of the distribution at most, against 2e-3 that the test resolves
    assert stats.kstest(sample / scale, law).pvalue > ACCEPT
    assert all(stats.kstest(sample / (scale * wrong), law).pvalue < ACCEPT for wrong in WRONG)


@pytest.mark.parametrize("scale", [2.5, 2.0**12, 2.0**20])
def test_moments_of_the_gaussian(scale: float) -> None:
    law = "norm"
    sample = draws(law, scale, 43, 1_000_000) / np.sqrt(scale**2 + 1 / 12)
    error = 1 / np.sqrt(len(sample))
    assert abs(sample.mean()) < 5 * error
    assert abs(sample.var() - 1) < 5 * np.sqrt(2) * error
    assert abs((sample**3).mean()) < 5 * np.sqrt(15) * error
    assert abs((sample**4).mean() - 3) < 5 * np.sqrt(96) * error


@pytest.mark.slow
@pytest.mark.parametrize(("law", "points"), [("norm", (3, 4, 4.5, 5)), ("laplace", (5, 8, 11, 13))])
def test_the_tails_are_there(law: str, points: tuple[float, ...]) -> None:
    sample = np.abs(draws(law, 2.0**12, 44, 4_000_000))
    for point in points:
        expected = 2 * getattr(stats, law).sf(point) * len(sample)
        found = np.count_nonzero(sample > point * 2**12)
        assert stats.poisson.cdf(found, expected) > ACCEPT
        assert stats.poisson.sf(found - 1, expected) > ACCEPT


@pytest.mark.parametrize("lag", [1, 2, 2**14])
@both
def test_successive_draws_are_independent(law: str, lag: int) -> None:
    scale = 2.0**20
    sample = draws(law, scale, 45)
    cell = np.searchsorted(cuts(law, scale, 8), sample)
    table = np.bincount(cell[:-lag] * 8 + cell[lag:], minlength=64).reshape(8, 8)
    assert stats.chi2_contingency(table).pvalue > ACCEPT
    for one in (sample / scale, np.abs(sample) / scale, sample % 2.0):  # values, sizes, last bits
        assert abs(np.corrcoef(one[:-lag], one[lag:])[0, 1]) < 5 / np.sqrt(SIZE)


@both
def test_last_bits_are_fair(law: str) -> None:
    sample = draws(law, 2.0**20, 46)
    residues = np.bincount(sample % 64, minlength=64)
    assert stats.chisquare(residues).pvalue > ACCEPT


@pytest.mark.parametrize("scale", [0.7, 4.0])
def test_twice_as_likely_one_step_nearer(scale: float) -> None:
    """P(k) / P(k + 1) = exp(1 / scale) for k >= 1: what the privacy rests on."""
    counts = np.bincount(np.abs(draws("laplace", scale, 46, 1_000_000)))
    for k in (1, 2, 3):
        both = counts[k] + counts[k + 1]
        ratio = 1 / (1 + np.exp(-1 / scale))
        assert stats.binomtest(int(counts[k]), int(both), ratio).pvalue > ACCEPT


@pytest.mark.slow
@pytest.mark.parametrize("scale", [20.0, 4096.0])
@both
def test_opendp_agrees(law: str, scale: float) -> None:
    """The discrete law of opendp and ours differ by less than 1e-3 in any probability at these scales.

    Its draws cannot be seeded, hence the lower level: one run in 10**9 fails by chance.
    """
    dp.enable_features("contrib")
    distance, make = (dp.l2_distance(T=float), dp.m.make_gaussian)
    if law == "laplace":
        distance, make = (dp.l1_distance(T=int), dp.m.make_laplace)
    oracle = np.array(make(dp.vector_domain(dp.atom_domain(T=int)), distance, scale=scale)([0] * 100_000))

    def pvalue(ours: np.ndarray) -> float:
        counts = [np.bincount(np.searchsorted(cuts(law, scale, 20), sample), minlength=20) for sample in (oracle, ours)]
        return float(stats.chi2_contingency(counts).pvalue)

    assert pvalue(draws(law, scale, 47)) > 1e-9
    assert all(
        pvalue(draws(law, scale * wrong, 48)) < ACCEPT for wrong in ((0.93, 1.07) if law == "laplace" else WRONG)
    )
