"""Conversions between (epsilon, delta), mu (Gaussian DP), rho (zCDP) and pure epsilon.

Everything that is solved for is rounded to the safe side: a mu or rho down, an epsilon up, by `_SLACK`.
`_SLACK` is 30 times the largest error in delta against 50-digit arithmetic (`tests/oracle/test_convert.py`), and
100 times below the tolerance of the ledger's sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache

from duckdb_dp.errors import DPError

_SLACK = 1e-11

_DOUBTFUL = 1e-12
"""How far from a root, relative to it, a test is asked and not known: rounding takes no more than 1e-13 of a curve."""

_FAR = 8.0
"""Where the continued fraction of erfcx takes over: from 4 on its 30 levels are exact."""

_SPLITTER = 2.0**27 + 1


def shown(epsilon: float) -> float:
    """An epsilon for reading, to 10 digits: the 0.5 that was typed, not 0.499999999999528.

    Rounded to nearest, which is on the safe side as well: the noise is calibrated to 2e-9 less than is charged.

    Privacy: states a bound; spends nothing.
    """
    return float(f"{epsilon:.10g}")


def rounded_down(epsilon: float) -> float:
    """An epsilon that was solved for, a little less.

    Privacy: states a bound; spends nothing.
    """
    return epsilon * (1 - _SLACK)


# Pure DP steps in Gaussian DP


def gdp_of_pure(epsilon: float) -> float:
    """The least mu of any pure epsilon-DP step, 2 Phi^-1(e^epsilon / (1 + e^epsilon)), rounded up.

    Its trade-off function is below that of randomised response. Around 1/2 by erfinv, and far out by logarithms, which keep
    digits. Source: [DRS19] Prop. 3 with the worst case of [KOV15].

    Privacy: states a bound; spends nothing.
    """
    from scipy.special import erfinv, ndtri_exp

    if epsilon < 1:
        return 2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 2))) * (1 + _SLACK)
    return -2 * float(ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon)))) * (1 + _SLACK)


def pure_of_gdp(mu: float) -> float:
    """The reverse of ``gdp_of_pure``, log(Phi(mu / 2) / Phi(-mu / 2)), rounded down.

    With x = mu / sqrt(8), Phi(-mu / 2) = e^(-x^2) erfcx(x) / 2 and Phi(mu / 2) = 1 - erfc(x) / 2.

    Privacy: states a bound; spends nothing.
    """
    x = mu / math.sqrt(8)
    if mu < 1:
        return 2 * math.atanh(math.erf(x)) * (1 - _SLACK)
    return (x * x - math.log(erfcx(x) / 2) + math.log1p(-math.erfc(x) / 2)) * (1 - _SLACK)


# Laplace noise


def gdp_of_laplace(epsilon: float) -> float:
    """The least mu of Laplace noise of L1 sensitivity / epsilon, -2 Phi^-1(e^(-epsilon/2) / 2), rounded up.

    Around 1/2 by erfinv, and far out by logarithms, which keep digits. Source: `docs/privacy.md`, Laplace noise.

    Privacy: states a bound; spends nothing.
    """
    from scipy.special import erfinv, ndtri_exp

    if epsilon < 1:
        return 2 * math.sqrt(2) * float(erfinv(-math.expm1(-epsilon / 2))) * (1 + _SLACK)
    return -2 * float(ndtri_exp(-epsilon / 2 - math.log(2))) * (1 + _SLACK)


def laplace_of_gdp(mu: float) -> float:
    """The reverse of ``gdp_of_laplace``, -2 log(2 Phi(-mu / 2)), rounded down; x as in ``pure_of_gdp``.

    Privacy: states a bound; spends nothing.
    """
    x = mu / math.sqrt(8)
    if mu < 1:
        return -2 * math.log1p(-math.erf(x)) * (1 - _SLACK)
    return 2 * (x * x - math.log(erfcx(x))) * (1 - _SLACK)


def zcdp_of_laplace(epsilon: float) -> float:
    """The least rho of Laplace noise of L1 sensitivity / epsilon, epsilon + e^-epsilon - 1, rounded up.

    Below 1 by its series sum_{k >= 2} (-epsilon)^k / k!, which cancels nothing: 18 terms are exact to 1e-17.
    Source: [HM26]; `docs/privacy.md`, Laplace noise.

    Privacy: states a bound; spends nothing.
    """
    if epsilon >= 1:
        return (epsilon + math.expm1(-epsilon)) * (1 + _SLACK)
    tail = 0.0
    for k in range(19, 1, -1):  # epsilon^2 (1/2! - epsilon (1/3! - ...)), by Horner's rule
        tail = 1 / math.factorial(k) - epsilon * tail
    return epsilon * epsilon * tail * (1 + _SLACK)


def laplace_of_zcdp(rho: float) -> float:
    """The reverse of ``zcdp_of_laplace``, rounded down: a root, found by halving.

    Privacy: states a bound; spends nothing.
    """
    return _crossing(lambda epsilon: zcdp_of_laplace(epsilon) <= rho)[0] * (1 - _SLACK)


# Gaussian DP


def gdp_delta(mu: float, epsilon: float) -> float:
    """The delta at `epsilon` of a mu-GDP mechanism, exactly: Phi(a) - e^epsilon Phi(b).

    a = mu/2 - epsilon/mu and b = -mu/2 - epsilon/mu, so that e^epsilon phi(b) = phi(a), and with Mills' ratio
    R(t) = (1 - Phi(t)) / phi(t) the difference is phi(a) (R(-a) - R(-b)): no overflow and no underflow before delta's.
    Source: [DRS19] Cor. 1; [BW18] Thm. 8.

    Privacy: states a bound; spends nothing.
    """
    if mu == 0:
        return 0.0
    a, minus_b = mu / 2 - epsilon / mu, mu / 2 + epsilon / mu
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    if mu < 1:
        return density * _mills_drop(-a, mu)
    if a > 0:  # R(-a) grows like e^(a^2/2) here
        return math.erfc(-a / math.sqrt(2)) / 2 - density * _mills(minus_b)
    return density * (_mills(-a) - _mills(minus_b))


@lru_cache(maxsize=1024)
def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon for which a mu-GDP mechanism is (epsilon, delta)-DP, rounded up.

    Privacy: states a bound; spends nothing.
    """
    return _smallest_epsilon(lambda epsilon: gdp_delta(mu, epsilon), delta)


@lru_cache(maxsize=1024)
def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta)-DP, rounded down.

    Privacy: states a bound; spends nothing.
    """
    return _largest_cost(lambda mu: gdp_delta(mu, epsilon), delta)


def _mills(t: float) -> float:
    """Mills' ratio R(t) = (1 - Phi(t)) / phi(t)."""
    return math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2))


def erfcx(x: float) -> float:
    """e^(x^2) erfc(x) for x above -26, to 2e-15: importing scipy's takes 0.15 s, and a first answer waits for it.

    Up to ``_FAR`` the product itself, with what rounding takes from x^2; beyond by 30 levels of Laplace's continued fraction
    1 / (x + (1/2) / (x + 1 / (x + (3/2) / (x + ...)))) / sqrt(pi). Source: Abramowitz and Stegun 7.1.14.
    """
    if x < _FAR:
        square = x * x
        high = x * _SPLITTER - (x * _SPLITTER - x)  # 26 bits of x, so that the products below are exact
        low = x - high
        rest = ((high * high - square) + 2 * high * low) + low * low
        return math.exp(square) * (1 + rest) * math.erfc(x)
    tail = x
    for level in range(30, 0, -1):
        tail = x + level / 2 / tail
    return 1 / (math.sqrt(math.pi) * tail)


def _mills_drop(t: float, width: float) -> float:
    """R(t) - R(t + width) for a width below 1, without cancellation: the integral of -R'(s) = 1 - s R(s)."""
    places = [(t + width * (node + 1) / 2, weight) for node, weight in _gauss_legendre()]
    return math.fsum(weight * (1 - s * _mills(s)) for s, weight in places) * width / 2


@cache
def _gauss_legendre() -> tuple[tuple[float, float], ...]:
    """(node, weight) on [-1, 1]: 12 are exact to 1e-16 for the smooth -R' over a width of 1.

    A node is a root of the Legendre polynomial P_12, found by Newton's method from cos(pi (i - 1/4) / 12.5), and its weight
    2 / ((1 - x^2) P_12'(x)^2). numpy's take 10 ms to import.
    """
    found = []
    for i in range(1, 13):
        x = math.cos(math.pi * (i - 0.25) / 12.5)
        for _ in range(8):
            below, value = 1.0, x
            for k in range(2, 13):
                below, value = value, ((2 * k - 1) * x * value - (k - 1) * below) / k
            slope = 12 * (below - x * value) / (1 - x * x)
            x -= value / slope
        found.append((x, 2 / ((1 - x * x) * slope * slope)))
    return tuple(found)


# zCDP


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The delta at `epsilon` that rho-zCDP implies, by the tight conversion.

    min over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha.
    The logarithm is convex in alpha, and any alpha bounds delta, so an inexact minimum is only a little above.
    Source: [CKS20] Prop. 12, Cor. 13.

    Privacy: states a bound; spends nothing.
    """
    if rho == 0:
        return 0.0
    low, high = -700.0, 700.0  # log(alpha - 1)
    while high - low > 1e-9:  # the error of the minimum is of second order, 1e-18
        middle = (low + high) / 2
        x = math.exp(middle)
        slope = (2 * x + 1) * rho - epsilon - math.log1p(1 / x)
        low, high = (middle, high) if slope < 0 else (low, middle)
    x = math.exp(low)
    return math.exp(min(0.0, x * ((1 + x) * rho - epsilon) - x * math.log1p(1 / x) - math.log1p(x)))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The smallest epsilon for which the tight conversion of rho-zCDP gives (epsilon, delta)-DP, rounded up.

    Privacy: states a bound; spends nothing.
    """
    return _smallest_epsilon(lambda epsilon: zcdp_delta(rho, epsilon), delta)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho for which the tight conversion of rho-zCDP gives (epsilon, delta)-DP, rounded down.

    Privacy: states a bound; spends nothing.
    """
    return _largest_cost(lambda rho: zcdp_delta(rho, epsilon), delta)


# Solving


def _largest_cost(delta_of: Callable[[float], float], delta: float) -> float:
    """The largest x with delta_of(x) <= delta, for an increasing delta_of, rounded down."""
    _check_delta(delta)
    target = delta * (1 - _SLACK)
    return _crossing_near(lambda x: delta_of(x) / target, lambda x: delta_of(x) <= target)[0] * (1 - _SLACK)


def _smallest_epsilon(delta_of: Callable[[float], float], delta: float) -> float:
    """The smallest x >= 0 with delta_of(x) <= delta, for a decreasing delta_of, rounded up."""
    _check_delta(delta)
    target = delta * (1 - _SLACK)
    if delta_of(0.0) <= target:
        return 0.0
    found = _crossing_near(lambda x: target / max(delta_of(x), 1e-308), lambda x: delta_of(x) > target)
    return found[1] * (1 + _SLACK)


def _check_delta(delta: float) -> None:
    """Below 1e-300 the doubles run out of digits, and at 0 every Gaussian mechanism fails."""
    if not 1e-300 <= delta < 1:
        raise DPError(f"delta {delta:g} is not between 1e-300 and 1: 1e-9 works.")


def _crossing(below: Callable[[float], bool]) -> tuple[float, float]:
    """Two neighbouring floats, the first below and the second not, for a test that holds up to some point above 0."""
    low = high = 1.0
    while below(high):
        low, high = high, high * 2
    while not below(low):
        low, high = low / 2, low
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


def _crossing_near(ratio: Callable[[float], float], below: Callable[[float], bool]) -> tuple[float, float]:
    """As ``_crossing``, where a ratio rises through 1 at that point: the same floats, for a third of the evaluations.

    The point is found by false position on the ratio's logarithm (Dowell and Jarratt's Illinois rule), and the test is asked only
    where rounding could decide it.
    """
    root = _root(lambda x: math.log(max(ratio(x), 1e-308)))
    low, high = _crossing(lambda x: below(x) if abs(x - root) <= _DOUBTFUL * root else x < root)
    return (low, high) if below(low) and not below(high) else _crossing(below)


def _root(rising: Callable[[float], float]) -> float:
    """The point above 0 where a rising function is 0, nearly."""
    low = high = 1.0
    at_low = at_high = rising(1.0)
    while at_high < 0:
        low, at_low, high = high, at_high, high * 2
        at_high = rising(high)
    while at_low >= 0:
        high, at_high, low = low, at_low, low / 2
        at_low = rising(low)
    before, side = 0.0, 0
    for _ in range(100):
        middle = high - at_high * (high - low) / (at_high - at_low)
        if not low < middle < high or abs(middle - before) <= _DOUBTFUL / 10 * middle:
            break
        before, value = middle, rising(middle)
        if value < 0:
            low, at_low, at_high, side = middle, value, at_high / 2 if side < 0 else at_high, -1
        else:
            high, at_high, at_low, side = middle, value, at_low / 2 if side > 0 else at_low, 1
    return before or (low + high) / 2
