"""The rounded Gaussian: the nearest integer to a number plus an ideal real Gaussian draw, without any rounding error.

How a draw is decided, in doubles or exactly, is in `duckdb_dp.noise.grid`; here are the normal law's parts.

Error budget of x = scale * q(V * 2**-64) in double arithmetic, q(u) the point whose upper normal tail is u, in units of
`scale`. A relative error of u moves q by that error times Mills' ratio R(q) <= min(1.26, 1 / q). With V >= 1, so that
q < 9.2:

* scipy's ndtri: below max(4e-15, 1.1e-15 q), hence 1.1e-14 (Cephes, from which it comes, states 7.2e-16 q; the tests
  measure at most 2e-15 where q < 4.63, with 1.1e-15 q near u = exp(-2), and 1e-15 q beyond); the standard library's
  inverse [Wic88] keeps to the same bound (the tests measure at most 3e-15 where q < 4.63, and 1e-15 q beyond);
* V and the product as doubles: (R(q) + q) 2**-53, below 1.1e-15;
* the sum with the centre, rounded: q 2**-53, below 1.1e-15.

The sum is below 1.4e-14. The margin, 2**-44 = 5.7e-14, is over four times that. To it comes the width of u's interval:
R(q) / V, as q is convex, for which 2 / V is allowed.
"""

import sys
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import inf, isqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.noise.grid import NoiseDistribution, decision_margin, draw, leading_digits, round_where_certain
from duckdb_dp.noise.uniform import EntropySource

MAX_SCALE = 2.0**44  # the margin is then one grid step, and every draw takes the slow path
_MARGIN = 2.0**-44  # in units of the scale
_FEW = 2**11  # in the standard library they take 0.5 ms, and importing scipy's special functions 270 ms
_MANY = 2**17  # 0.1 s in the standard library
_CHUNK = 2**14  # seven arrays of 128 kB: they stay in a core's cache


def expect_draws(count: int) -> None:
    """Import scipy where so many draws, by however small arrays, pay for it: its quantiles take a tenth of the time."""
    if count > _MANY:
        import scipy.special  # noqa: F401


def rounded_gaussian(scale: float, size: int, *, bits: EntropySource) -> npt.NDArray[np.int64]:
    """Draw nearest integers to independent ideal draws of N(0, scale**2), exactly.

    P(k) = Phi((k + 1/2) / scale) - Phi((k - 1/2) / scale) for every integer k.

    Source: [DRS22] for the ideal mechanism, which this post-processes: round(a + X) = a + round(X) for integers a.

    Privacy: spends mu = sensitivity / scale in GDP, mu**2 / 2 in zCDP, if `bits` is private.

    Args:
        scale: Standard deviation before rounding, in steps of the grid, taken as the exact double.
        size: How many draws.
        bits: The source of randomness.

    Returns:
        Shape `(size,)`. An entry beyond int64 would need |X| > 2**19 scale, of probability below 2**(-2**37).

    Raises:
        DPError: If the scale is not in (0, 2**44].
    """
    return noisy_grid(np.broadcast_to(0.0, size), 0.0, scale, lambda _: Fraction(0), bits=bits)


def noisy_grid(
    centres: npt.NDArray[np.float64],
    errors: npt.NDArray[np.float64] | float,
    scale: float,
    exact: Callable[[int], Fraction],
    *,
    bits: EntropySource,
) -> npt.NDArray[np.int64]:
    """Draw the nearest integers to c_i + X_i, c_i = exact(i), X_i independent ideal draws of N(0, scale**2), exactly.

    P(k) = Phi((k + 1/2 - c_i) / scale) - Phi((k - 1/2 - c_i) / scale) for every integer k.

    The result is a function of the c_i and the random words alone: neither `centres` nor `errors` shows in it.

    Source: [DRS22] for the ideal mechanism c + X, which this post-processes: c is neither rounded nor charged for it.

    Privacy: spends mu = (sensitivity of c) / scale in GDP, mu**2 / 2 in zCDP, if `bits` is private.

    Args:
        centres: Doubles near the c_i, in steps of the grid, shape `(m,)`.
        errors: Proved bounds of |centres[i] - c_i|, shape `(m,)`, or one for all. An infinite one is allowed.
        scale: Standard deviation before rounding, in steps of the grid, taken as the exact double.
        exact: Gives c_i, in steps of the grid. It is called at most once for each i, in order, and for nearly no i as
            long as the errors are small: for a share of about 2 errors + 2**-43 scale. It must not fail.
        bits: The source of randomness.

    Returns:
        Shape `(m,)`. An integer beyond int64, as only |c_i| > 2**62 would give, becomes the nearest int64.

    Raises:
        DPError: If the scale is not in (0, 2**44].
    """
    if not 0 < scale <= MAX_SCALE:
        raise DPError(
            f"The noise's scale {as_sql(scale)} is not in (0, 2**44]. Choose a stddev > 0 and a coarser grid."
        )
    law = NoiseDistribution(decide=_decide, enclose_tail=_normal_tail, margin=_MARGIN, chunk=_CHUNK)
    return draw(law, centres, errors, scale, exact, bits=bits)


def _decide(
    words: npt.NDArray[np.uint64],
    scale: float,
    centres: npt.NDArray[np.float64],
    errors: npt.NDArray[np.float64],
    noisy: npt.NDArray[np.int64],
) -> list[tuple[int, float]]:
    """Fill `noisy` where doubles can decide; return the index and the approximate |X| of the others."""
    v = leading_digits(words)
    x = _normal_quantiles(np.multiply(v, 2.0**-64))
    np.multiply(x, -scale, out=x)
    return round_where_certain(words, x, decision_margin(v, scale, _MARGIN), centres, errors, noisy)


def _normal_quantiles(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Phi^-1(u) of doubles in [0, 1/2], shape `(m,)`, which may be written over; its error is budgeted above."""
    if u.size <= _FEW and "scipy.special" not in sys.modules:
        return _by_library(u)
    from scipy.special import ndtri  # for import time: a first answer is of few cells

    found: npt.NDArray[np.float64] = ndtri(u, out=u)
    return found


def _normal_tail(numerator: int, denominator: int, length: int) -> tuple[int, int]:
    """Enclose 2**length * Phi(-t), t = numerator / denominator >= 0, between two integers, nearly always 1 apart.

    Phi(-t) = 1/2 - t / sqrt(2 pi) * S(t**2 / 2),   S(y) = sum_n (-y)**n / (n! (2 n + 1)),   n = 0, 1, ...

    With a_n = y**n / n! in integers, units of 2**-p and all rounded downwards, S is off by less than 2 N + 1 units, N
    the n at which a_n becomes 0: y's rounding counts |S'| <= 1/3, each quotient by 2 n + 1 counts 1, and that of a_j
    counts |sum_{n >= j} (-y)**(n - j) j! / (n! (2 n + 1))| <= 1 / (2 j + 1), since this sum is the integral over s and
    x in (0, 1) of j (1 - s)**(j - 1) x**(2 j) exp(-y s x**2). Large terms cancel, and need no further digits.
    """
    square, double = numerator * numerator, 2 * denominator * denominator
    if 10 * square > 7 * length * double:  # Phi(-t) < exp(-t**2 / 2) / 2, and 0.7 > log(2)
        return 0, 1
    p = length + 32
    y = (square << p) // double
    a = total = 1 << p
    n = 0
    while a:
        n += 1
        a = (a * y >> p) // n
        total += -(a // (2 * n + 1)) if n & 1 else a // (2 * n + 1)
    error = 2 * n + 1
    density = _normal_density(p)
    one = denominator << (2 * p - length)
    half = 1 << (length - 1)
    low = half + (-(total + error) * numerator * (density + 2)) // one
    high = half - ((total - error) * numerator * (density - 2)) // one
    return low, high


@lru_cache(maxsize=16)
def _normal_density(bits: int) -> int:
    """Compute 2**bits / sqrt(2 pi) to within 2, by Machin's pi = 16 atan(1/5) - 4 atan(1/239)."""
    p = bits + 64  # the series lose less than 20 + 8 * p units of 2**-p: far below one unit of the result
    pi = 16 * _atan_inverse(5, p) - 4 * _atan_inverse(239, p)
    return isqrt((1 << (p + 2 * bits)) // (2 * pi))


def _atan_inverse(x: int, bits: int) -> int:
    """Compute 2**bits * atan(1 / x), each term to within 2."""
    power = (1 << bits) // x
    total, n = power, 0
    while power:
        n += 1
        power //= x * x
        total += -(power // (2 * n + 1)) if n & 1 else power // (2 * n + 1)
    return total


def _by_library(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The same in the standard library."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse(one) if one else -inf for one in u.tolist()], dtype=np.float64)
