"""What a selection costs in Gaussian DP, against brute force over two-point pairs and over real exponential mechanisms."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from duckdb_dp.accounting.base import GDP
from duckdb_dp.accounting.convert import gdp_delta
from duckdb_dp.linop import Array

EPSILONS = [1e-4, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 12.0]


def pair(epsilon: float, t: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
    """(p, q): two points whose log ratios of probabilities are t and t - epsilon."""
    high, low = mpmath.exp(t), mpmath.exp(t - mpmath.mpf(epsilon))
    q = (1 - low) / (high - low)
    return high * q, q


def least_mu(p: mpmath.mpf, q: mpmath.mpf) -> mpmath.mpf:
    """Of a two-point pair: Phi^-1(p) - Phi^-1(q), which puts the Gaussian curve through the kink."""
    return mpmath.sqrt(2) * (mpmath.erfinv(2 * p - 1) - mpmath.erfinv(2 * q - 1))


def selected(scores: Array, epsilon: float) -> Array:
    """The probabilities of the exponential mechanism for scores of sensitivity 1."""
    weights = np.exp(epsilon / 2 * (scores - scores.max()))
    return weights / weights.sum()


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    """delta(epsilon) = sum max(0, p - e^epsilon q)."""
    return math.fsum(np.maximum(0, p - math.exp(epsilon) * q))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_charge_is_that_of_the_worst_two_point_pair_rounded_up(epsilon: float) -> None:
    charged = math.sqrt(GDP.selection_cost(epsilon))
    with mpmath.workdps(60):
        shares = [mpmath.mpf(i) / 200 for i in range(1, 200)]
        found = [least_mu(*pair(epsilon, share * mpmath.mpf(epsilon))) for share in shares]
        assert max(found) == found[99]  # the midpoint, t = epsilon / 2
        assert max(found) < charged < max(found) * (1 + mpmath.mpf("2e-10"))
        assert all(one < other for one, other in itertools.pairwise(found[:100]))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_gaussian_curve_is_below_every_two_point_curve(epsilon: float) -> None:
    """The test that rejects with type 1 error a has type 2 error at least Phi(Phi^-1(1 - a) - mu): at all a, not only the kink."""
    mu = math.sqrt(GDP.selection_cost(epsilon))
    errors = np.linspace(0, 1, 2001)[1:-1]
    for share in (0.01, 0.2, 0.5, 0.7, 0.99):
        p, q = map(float, pair(epsilon, share * mpmath.mpf(epsilon)))
        curve = np.where(errors < q, 1 - errors * p / q, (1 - p) / (1 - q) * (1 - errors))
        assert (ndtr(ndtri(1 - errors) - mu) <= curve + 1e-12).all()


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_hockey_sticks_of_exponential_mechanisms_are_within_the_charge(epsilon: float) -> None:
    """Scores of random tables and of their neighbours, each moved by up to 1 either way: at any delta, both ways."""
    rng, mu = np.random.default_rng(1), math.sqrt(GDP.selection_cost(epsilon))
    closest = 0.0
    for trial in range(200):
        size = int(rng.integers(2, 12))
        moves = rng.choice([-1.0, 1.0], size) if trial % 2 else rng.uniform(-1, 1, size)
        scores = rng.normal(0, [0.1, 1.0, 5.0 / epsilon][trial % 3], size)
        one, other = selected(scores, epsilon), selected(scores + moves, epsilon)
        assert np.ptp(np.log(one) - np.log(other)) <= epsilon * (1 + 1e-9) + 1e-12
        for p, q in ((one, other), (other, one)):
            for t in np.linspace(-1, 1, 21) * epsilon:
                lost, allowed = hockey_stick(p, q, float(t)), gdp_delta(mu, float(t))
                assert lost <= allowed * (1 + 1e-9) + 1e-14
                closest = max(closest, lost / allowed)
    assert closest > 0.5  # the tables are not all harmless


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_tenth_of_a_percent_less_would_be_too_little(epsilon: float) -> None:
    """Two candidates of opposite moves, one as likely in one table as the other in the other: the bound is reached."""
    one = selected(np.array([0.5, -0.5]), epsilon)
    mu = 0.999 * math.sqrt(GDP.selection_cost(epsilon))
    deltas = [(hockey_stick(one, one[::-1], t), gdp_delta(mu, t)) for t in np.linspace(-0.5, 0.5, 2001) * epsilon]
    assert any(lost > allowed for lost, allowed in deltas)


def test_the_integrand_is_largest_in_the_middle() -> None:
    """p (1 - p) / phi(Phi^-1(p)) falls away from p = 1/2: what makes the midpoint the worst pair."""
    with mpmath.workdps(40):
        z = [mpmath.mpf(i) / 20 for i in range(200)]
        slopes = [mpmath.ncdf(x) * mpmath.ncdf(-x) / mpmath.npdf(x) for x in z]
        assert all(one > other for one, other in itertools.pairwise(slopes))
