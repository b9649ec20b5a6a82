"""What Laplace noise costs in zCDP and Gaussian DP, against mpmath, and against brute force over splits on many answers."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from duckdb_dp.accounting.base import GDP, ZCDP
from duckdb_dp.accounting.convert import gdp_delta
from duckdb_dp.linop import Array

EPSILONS = [1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.999, 1.0, 2.0, 5.0, 20.0, 300.0]
ALPHAS = [1 + 10.0**k for k in range(-6, 5)] + [1.1, 1.5, 3.0, 7.0, 30.0]


def renyi(alpha: float, epsilon: float) -> mpmath.mpf:
    """D_alpha of Lap(0, 1) from Lap(epsilon, 1), in closed form."""
    a, e = mpmath.mpf(alpha), mpmath.mpf(epsilon)
    return mpmath.log((a * mpmath.exp((a - 1) * e) + (a - 1) * mpmath.exp(-a * e)) / (2 * a - 1)) / (a - 1)


def masses(epsilon: float, points: int = 400) -> tuple[Array, Array]:
    """Lap(0, 1) and Lap(epsilon, 1) on cells whose log ratio hardly varies: ends apart, where it is +-epsilon exactly."""
    ends = np.linspace(0, epsilon, points + 1)

    def cells(centre: float) -> Array:
        below = np.where(
            ends < centre, np.exp(np.minimum(ends - centre, 0)) / 2, 1 - np.exp(-np.abs(ends - centre)) / 2
        )
        return np.diff(below, prepend=0.0, append=1.0)

    return cells(0.0), cells(epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_closed_forms_rounded_up(epsilon: float) -> None:
    with mpmath.workdps(700):
        e = mpmath.mpf(epsilon)
        rho, tail = e + mpmath.exp(-e) - 1, mpmath.exp(-e / 2) / 2
        assert rho < ZCDP.laplace_cost(epsilon) < rho * (1 + mpmath.mpf("3e-11"))
        mu = mpmath.mpf(math.sqrt(GDP.laplace_cost(epsilon)))
        reached = [mpmath.erfc(size / (2 * mpmath.sqrt(2))) / 2 for size in (mu, mu * (1 - mpmath.mpf("1e-10")))]
        assert reached[0] < tail < reached[1]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_order_is_above_the_charge(epsilon: float) -> None:
    """D_alpha <= rho alpha for all alpha > 1, with equality as alpha falls to 1."""
    rho = ZCDP.laplace_cost(epsilon)
    with mpmath.workdps(400):
        shares = [renyi(alpha, epsilon) / alpha / rho for alpha in ALPHAS]
        assert max(shares) <= 1
        assert shares[0] > mpmath.mpf(1) - mpmath.mpf(1e-5)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 15.0])
def test_divergences_by_integration_agree(epsilon: float) -> None:
    """The closed form above, against the integral of p^alpha q^(1 - alpha)."""
    for alpha in (1.2, 2.0, 5.0):
        integral = mpmath.quad(
            lambda x, a=alpha: mpmath.exp(-a * abs(x) - (1 - a) * abs(x - epsilon)) / 2,
            [-mpmath.inf, 0, epsilon, mpmath.inf],
        )
        assert float(mpmath.log(integral) / (alpha - 1)) == pytest.approx(float(renyi(alpha, epsilon)), rel=1e-9)


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 4.0, 15.0])
def test_the_gaussian_curve_is_below_the_laplace_curve(epsilon: float) -> None:
    """By likelihood ratio tests on one answer, at all thresholds; and 0.1 % less would be above it somewhere."""
    mu = math.sqrt(GDP.laplace_cost(epsilon))
    errors = np.concatenate(
        [np.logspace(-12, -0.31, 2000), [math.exp(-epsilon / 2) / 2], np.linspace(0.49, 1, 500)[:-1]]
    )
    middle = np.exp(-epsilon) / (4 * errors)
    curve = np.where(
        errors < math.exp(-epsilon) / 2,
        1 - math.exp(epsilon) * errors,
        np.where(errors < 0.5, middle, math.exp(-epsilon) * (1 - errors)),
    )
    assert (ndtr(ndtri(1 - errors) - mu) <= curve + 1e-13).all()
    assert (ndtr(ndtri(1 - errors) - 0.999 * mu) > curve).any()


SPLITS = [
    (0.5, 0.5),
    (0.9, 0.1),
    (0.99, 0.01),
    (0.7, 0.3),
    (1 / 3, 1 / 3, 1 / 3),
    (0.8, 0.1, 0.1),
]


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_a_split_over_answers_leaks_no_more_than_one_answer(epsilon: float, split: tuple[float, ...]) -> None:
    """Hockey sticks of the product of the answers, by brute force over cells, at all thresholds, and Renyi divergences."""
    one, other = np.ones(1), np.ones(1)
    for share in split:
        p, q = masses(share * epsilon, 400 if len(split) == 2 else 60)
        one, other = np.outer(one, p).reshape(-1), np.outer(other, q).reshape(-1)
    mu, rho = math.sqrt(GDP.laplace_cost(epsilon)), ZCDP.laplace_cost(epsilon)
    for t in np.linspace(-1, 1, 41) * epsilon:
        lost = float(np.maximum(0, one - math.exp(t) * other).sum())
        assert lost <= gdp_delta(mu, float(t)) + 1e-12
    for alpha in (1.001, 1.1, 2.0, 5.0, 20.0):
        log = math.log(float((other * np.exp(alpha * (np.log(one) - np.log(other)))).sum())) / (alpha - 1)
        assert log <= rho * alpha * (1 + 1e-9) + 1e-12


def test_sums_of_costs_are_within_the_cost_of_the_sum() -> None:
    """What the proof rests on: both costs are superadditive, their ratios to epsilon grow."""
    grid = np.logspace(-6, 2.5, 60)
    for accounting in (GDP, ZCDP):
        ratios = [accounting.laplace_cost(float(e)) / e for e in grid]
        assert all(a < b for a, b in itertools.pairwise(ratios))
        for e, f in itertools.product(grid[::6], repeat=2):
            parts = accounting.laplace_cost(float(e)) + accounting.laplace_cost(float(f))
            assert parts <= accounting.laplace_cost(float(e + f)) * (1 + 1e-10)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 10.0])
def test_it_costs_less_than_any_pure_step(epsilon: float) -> None:
    for accounting in (GDP, ZCDP):
        assert accounting.laplace_cost(epsilon) <= accounting.pure_cost(epsilon)
