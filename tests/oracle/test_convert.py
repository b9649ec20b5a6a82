"""Conversions against 50-digit arithmetic and against dp_accounting."""

import math
import random

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as rdp
from scipy.special import erfcx as scipy_erfcx

from duckdb_dp.accounting.convert import (
    erfcx,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    laplace_of_gdp,
    pure_of_gdp,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)

SLACK = 2e-11  # the rounding to the safe side, twice
_random = random.Random(20260101)
POINTS = [
    (10 ** _random.uniform(-6, math.log10(200)), 10 ** _random.uniform(smallest, math.log10(0.5)))
    for smallest in (-15, -15, -300)
    for _ in range(40)
]


def exact_gdp_delta(mu: float, epsilon: float) -> mp.mpf:
    """delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), to 50 digits after cancellation."""
    with mp.workdps(80 + int(epsilon)):
        mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return (mp.erfc(-a / mp.sqrt(2)) - mp.exp(epsilon) * mp.erfc(-b / mp.sqrt(2))) / 2


def exact_zcdp_delta(rho: float, epsilon: float) -> mp.mpf:
    """The minimum over alpha, written as in the paper, at the alpha where the derivative vanishes."""
    with mp.workdps(60):
        rho, epsilon = mp.mpf(rho), mp.mpf(epsilon)
        low, high = mp.mpf(-800), mp.mpf(800)
        for _ in range(100):
            middle = (low + high) / 2
            x = mp.exp(middle)
            if (2 * x + 1) * rho - epsilon < mp.log1p(1 / x):
                low = middle
            else:
                high = middle
        alpha = 1 + mp.exp(low)
        return mp.exp((alpha - 1) * (alpha * rho - epsilon)) / (alpha - 1) * (1 - 1 / alpha) ** alpha


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("largest", "smallest", "delta_of", "exact"),
    [(gdp_mu, gdp_epsilon, gdp_delta, exact_gdp_delta), (zcdp_rho, zcdp_epsilon, zcdp_delta, exact_zcdp_delta)],
    ids=["gdp", "zcdp"],
)
def test_against_fifty_digits(largest, smallest, delta_of, exact) -> None:
    worst = 0.0
    for epsilon, delta in POINTS:
        size = largest(epsilon, delta)
        truth = exact(size, epsilon)
        worst = max(worst, abs(float(delta_of(size, epsilon) / truth - 1)))
        assert truth <= delta, "rounded to the unsafe side"
        assert exact(size * (1 + SLACK), epsilon) > delta * (1 - SLACK), "not the largest"
        back = smallest(size, delta)
        assert exact(size, back) <= delta, "rounded to the unsafe side"
        assert back == 0 or exact(size, back * (1 - SLACK)) > delta * (1 - SLACK), "not the smallest"
    assert worst < 5e-13


def test_erfcx_against_fifty_digits_and_scipy() -> None:
    places = [*np.linspace(-20, 60, 401).tolist(), 1e-12, -1e-9, 7.999999, 8.0, 8.000001, 200.0, 1e6]
    ours = np.array([erfcx(x) for x in places])
    with mp.workdps(50):
        exact = [mp.exp(mp.mpf(x) ** 2) * mp.erfc(mp.mpf(x)) for x in places]
        worst = max(abs(float(one / truth - 1)) for one, truth in zip(ours, exact, strict=True))
    assert worst < 2e-15
    right = np.array(places) >= 0  # where scipy's is as exact
    assert ours[right] == pytest.approx(scipy_erfcx(places)[right], rel=1e-14)


@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.5, 0.999999, 1.0, 3.0, 20.0, 100.0])
def test_epsilons_of_mu_against_fifty_digits(mu: float) -> None:
    with mp.workdps(50 + int(mu * mu / 18)):  # above is 1 - 10^(-mu^2 / 18.4)
        below, above = (mp.erfc(sign * mp.mpf(mu) / mp.sqrt(8)) / 2 for sign in (1, -1))
        laplace, pure = -2 * mp.log(2 * below), mp.log(above / below)
    assert 1 - SLACK < float(laplace_of_gdp(mu) / laplace) < 1, "rounded down"
    assert 1 - SLACK < float(pure_of_gdp(mu) / pure) < 1, "rounded down"


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-6, 0.01])
@pytest.mark.parametrize("epsilon", [0.1, 1, 8])
def test_gdp_against_dp_accounting(epsilon: float, delta: float) -> None:
    stddev = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert 1 / gdp_mu(epsilon, delta) == pytest.approx(stddev, rel=1e-5)
    assert gdp_epsilon(1 / stddev, delta) == pytest.approx(dp_accounting.get_epsilon_gaussian(stddev, delta), rel=1e-5)


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-6, 0.01])
@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.5, 10])
def test_zcdp_against_the_rdp_accountant(rho: float, delta: float) -> None:
    """rho-zCDP is RDP of alpha rho at every alpha; its accountant converts by the same formula on a grid of alphas."""
    orders = 1 + np.geomspace(1e-2, 1e6, 40_000)
    epsilon, _ = rdp.compute_epsilon(orders, orders * rho, delta)
    assert zcdp_epsilon(rho, delta) <= epsilon * (1 + 1e-9)
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-5)


def test_composition_in_the_ledgers_unit_is_that_of_dp_accounting() -> None:
    """Gaussian mechanisms with mu^2 adding up to m are one with mu = sqrt(m)."""
    mus = [0.1, 0.25, 0.4]
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    for mu in mus:
        accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    together = gdp_epsilon(math.sqrt(sum(mu * mu for mu in mus)), 1e-6)
    assert together == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)
