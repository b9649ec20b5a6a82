"""The rounded Gaussian: the nearest integer to a number plus an ideal real Gaussian draw, with no error of rounding.

A draw is X = s * scale * q(u), with s a random sign, u uniform on the reals of (0, 1/2) and q(u) the point whose
upper normal tail is u. A random word gives s and the first 64 binary digits of u: u lies in [V, V + 1) * 2**-64. All
the X that such an interval allows almost always put c + X next to one integer, and double arithmetic can tell, given a
double near c and a bound on its error. Otherwise the integer is found from c itself, a rational number, by integer
arithmetic with proved bounds, on as many digits of u as that takes.

Error budget of x = scale * q(V * 2**-64) in double arithmetic, in units of `scale`. A relative error of u moves q by
that error times Mills' ratio R(q) <= min(1.26, 1 / q). With V >= 1, so that q < 9.2:

* scipy's ndtri: below max(4e-15, 1.1e-15 q), hence 1.1e-14 (Cephes, from which it comes, states 7.2e-16 q; the tests
  measure at most 2e-15 where q < 4.63, with 1.1e-15 q near u = exp(-2), and 1e-15 q beyond);
* V and the product as doubles: (R(q) + q) 2**-53, below 1.1e-15;
* the sum y below, rounded: q 2**-53, below 1.1e-15.

The sum is below 1.4e-14. The margin, 2**-44 = 5.7e-14, is over four times that. To it comes the width of u's interval:
R(q) / V, as q is convex, for which 2 / V is allowed.

The centre's double is w + f, w its nearest integer: f is exact, |f| <= 1/2. y = f + x is rounded, by q scale 2**-53,
counted above, and 2**-54; y - rint(y) is exact. Its distance from 0 is compared with 1/2 - reach - error, in a few
roundings of at most 2**-54 each, or else a number below 0 that decides nothing. Products too small for a double's 53
digits lose below 2**-1070. All that is less than half of the slack of 2**-50 grid steps that is added to the reach.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import ceil, isfinite, isqrt
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from duckdb_dp.errors import DPError
from duckdb_dp.noise.bits import Bits

MAX_SCALE = 2.0**44  # the margin is then one grid step, and every draw takes the slow path
_MARGIN = 2.0**-44  # in units of the scale
_SLACK = 2.0**-50  # in grid steps
_LAST_FAST = 2.0**62  # results that could come near int64's limits are not decided in doubles
_MAGNITUDE = np.uint64(2**63 - 1)
_CHUNK = 2**14  # seven arrays of 128 kB: they stay in a core's cache


def rounded_gaussian(scale: float, size: int, *, bits: Bits) -> npt.NDArray[np.int64]:
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
    bits: Bits,
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
        raise DPError(f"The noise's scale {scale!r} is not in (0, 2**44]. Choose a stddev > 0 and a coarser grid.")
    noisy = np.empty(centres.shape, dtype=np.int64)
    bounds = np.broadcast_to(np.asarray(errors, dtype=np.float64), centres.shape)
    for start in range(0, centres.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        chunk = noisy[part]
        words = bits.uint64(chunk.size)
        for i, x in _decide(words, scale, centres[part], bounds[part], chunk):
            chunk[i] = _decide_exactly(int(words[i]), x, scale, exact(start + i), bits)
    return noisy


def _decide(
    words: npt.NDArray[np.uint64],
    scale: float,
    centres: npt.NDArray[np.float64],
    errors: npt.NDArray[np.float64],
    noisy: npt.NDArray[np.int64],
) -> list[tuple[int, float]]:
    """Fill `noisy` where doubles can decide; return the index and the approximate |X| of the others."""
    magnitude = (words & _MAGNITUDE).view(np.int64)
    x = magnitude * 2.0**-64
    ndtri(x, out=x)
    np.multiply(x, -scale, out=x)
    # The first bit of a word is the sign of its draw, as it would be of a double with the same bits.
    y = np.copysign(x, words.view(np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):  # x is infinite where V = 0
        whole = np.rint(centres)
        np.add(y, centres - whole, out=y)
        nearest = np.rint(y)
        np.copyto(noisy, whole, casting="unsafe")
        np.add(noisy, nearest.astype(np.int64), out=noisy)
        distance = np.abs(np.subtract(y, nearest, out=y), out=y)
        limit = np.subtract(0.5 - _reach(scale), 2 * scale / magnitude, out=nearest)
        decided = distance < np.subtract(limit, errors, out=limit)
        decided &= np.abs(whole, out=whole) < _LAST_FAST
    return [(int(i), float(x[i])) for i in np.flatnonzero(~decided)]


def _reach(scale: float) -> float:
    """How far x may be from the X of the nearest u in its interval, and more."""
    return scale * _MARGIN + _SLACK


def _decide_exactly(word: int, x: float, scale: float, centre: Fraction, bits: Bits) -> int:
    """Find the nearest integer to centre + X, X the draw that begins with `word`, by comparing u with normal tails."""
    u = _Uniform(word & int(_MAGNITUDE), bits)
    sign = -1 if word >> 63 else 1
    base = sign * centre - Fraction(1, 2)  # the result is sign * ceil(base + |X|)

    def beyond(k: int) -> bool:
        """Whether base + |X| > k, for k >= base: |X| > 0, so that no other k is in doubt."""
        t = (k - base) / Fraction(scale)
        return u.is_below_tail(t.numerator, t.denominator)

    low = ceil(base)
    if not isfinite(x):
        high = low + ceil(8 * scale)
        while beyond(high):
            low, high = high + 1, 2 * high - ceil(base)
    else:  # |X| is within reach of x: that nearly always leaves two integers at most, and one comparison
        middle, reach = base + Fraction(x), Fraction(_reach(scale) + 2 * scale / u.head)
        low, high = max(low, ceil(middle - reach)), ceil(middle + reach)
    while low < high:
        k = (low + high) // 2
        if beyond(k):
            low = k + 1
        else:
            high = k
    return max(-(2**63), min(sign * low, 2**63 - 1))


@final
class _Uniform:
    """A uniform real number in [head, head + 1) * 2**-length; its further digits are drawn when they matter."""

    __slots__ = ("_bits", "head", "length")

    def __init__(self, head: int, bits: Bits) -> None:
        self.head = head
        self.length = 64
        self._bits = bits

    def is_below_tail(self, numerator: int, denominator: int) -> bool:
        """Whether this number is below Phi(-t), t = numerator / denominator."""
        while True:
            low, high = _normal_tail(numerator, denominator, self.length)
            if self.head + 1 <= low:
                return True
            if self.head >= high:
                return False
            self.head = self.head << 64 | int(self._bits.uint64(1)[0])
            self.length += 64


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
