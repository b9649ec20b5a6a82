"""The rounded Gaussian: the nearest integer to an ideal real Gaussian draw, with no error of rounding.

A draw is X = s * scale * q(u), with s a random sign, u uniform on the reals of (0, 1/2) and q(u) the point whose
upper normal tail is u. A random word gives s and the first 64 binary digits of u: u lies in [V, V + 1) * 2**-64. All
the X that such an interval allows almost always share one nearest integer, and double arithmetic can tell. Otherwise
the draw is decided by integer arithmetic with proved bounds, on as many digits of u as that takes.

Error budget of x = scale * q(V * 2**-64) in double arithmetic, in units of `scale`. A relative error of u moves q by
that error times Mills' ratio R(q) <= min(1.26, 1 / q). With V >= 2**45, so that q < 4.63:

* scipy's ndtri: below 4e-15 (Cephes, from which it comes, states 7.2e-16 q; the tests measure at most 2e-15 in all,
  and 1.1e-15 q near u = exp(-2));
* the width of u's interval: R(q) / V, below 6.2e-15, its value at V = 2**45;
* V and the product as doubles: (R(q) + q) 2**-53, below 0.6e-15;
* x -+ margin -+ 1/2 as doubles, which matters only where q scale > 0.4: below 1.6e-15 (x - rint(x) is exact).

The sum is below 1.3e-14. The margin, 2**-44 = 5.7e-14, is over four times that.
"""

from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, isfinite, isqrt
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from duckdb_dp.errors import DPError
from duckdb_dp.noise.bits import Bits

MAX_SCALE = 2.0**44  # the margin is then one grid step, and every draw takes the slow path
_MARGIN = 2.0**-44  # in units of the scale
_FIRST_FAST = 2**45  # smaller V, one draw in 2**18, are not decided in doubles
_MAGNITUDE = np.uint64(2**63 - 1)
_CHUNK = 2**14  # three arrays of 128 kB: they stay in a core's cache


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
    if not 0 < scale <= MAX_SCALE:
        raise DPError(
            f"rounded_gaussian: the scale {scale!r} is not in (0, 2**44]. Choose a stddev > 0 and a coarser grid."
        )
    draws = np.empty(size, dtype=np.int64)
    for start in range(0, size, _CHUNK):
        chunk = draws[start : start + _CHUNK]
        words = bits.uint64(chunk.size)
        for i, x in _decide(words, scale, chunk):
            chunk[i] = _decide_exactly(int(words[i]), x, scale, bits)
    return draws


def gaussian_grid(stddev: float, denominator: int) -> int:
    """Find the smallest m = 2**j >= 1 with stddev * denominator * m >= 2**10.

    On the grid of spacing g = 1 / (denominator * m), rounding adds g**2 / 12 to the variance, a share of at most
    2**-20 / 12, and every multiple of 1 / denominator is a grid point.

    Privacy: post-processing.

    Args:
        stddev: Standard deviation of the noise, in units of the answers.
        denominator: The answers are multiples of 1 / denominator.

    Raises:
        DPError: If the stddev is not positive and finite, or the denominator not positive.
    """
    if not (stddev > 0 and isfinite(stddev) and denominator >= 1):
        raise DPError(
            f"gaussian_grid: stddev {stddev!r} and denominator {denominator!r}. Both must be positive and finite."
        )
    return 1 << (ceil(2**10 / (Fraction(stddev) * int(denominator))) - 1).bit_length()


def _decide(words: npt.NDArray[np.uint64], scale: float, draws: npt.NDArray[np.int64]) -> list[tuple[int, float]]:
    """Fill `draws` where doubles can decide; return the index and the approximate |X| of the others."""
    magnitude = (words & _MAGNITUDE).view(np.int64)
    x = magnitude * 2.0**-64
    ndtri(x, out=x)
    np.multiply(x, -scale, out=x)
    nearest = np.rint(x)
    with np.errstate(invalid="ignore"):  # x is infinite where V = 0
        # The first bit of a word is the sign of its draw, as it would be of a double with the same bits.
        np.copyto(draws, np.copysign(nearest, words.view(np.float64)), casting="unsafe")
        distance = np.abs(np.subtract(x, nearest, out=nearest), out=nearest)
    undecided = np.flatnonzero((distance >= 0.5 - scale * _MARGIN) | (magnitude < _FIRST_FAST))
    return [(int(i), float(x[i])) for i in undecided]


def _decide_exactly(word: int, x: float, scale: float, bits: Bits) -> int:
    """Find the nearest integer to the draw that begins with `word` by comparing u with normal tails."""
    u = _Uniform(word & int(_MAGNITUDE), bits)
    numerator, denominator = scale.as_integer_ratio()

    def beyond(k: int) -> bool:
        """Whether |X| > k + 1/2."""
        return u.is_below_tail((2 * k + 1) * denominator, 2 * numerator)

    if u.head < _FIRST_FAST:
        low, high = 0, ceil(8 * scale)
        while beyond(high):
            low, high = high + 1, 2 * high
    else:  # |X| is within the margin of x: below scale 2**43 that leaves two integers, and one comparison
        low, high = max(0, ceil(x - scale * _MARGIN - 0.5)), floor(x + scale * _MARGIN + 0.5)
    while low < high:
        middle = (low + high) // 2
        if beyond(middle):
            low = middle + 1
        else:
            high = middle
    return -low if word >> 63 else low


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
    """Enclose 2**length * Phi(-t), t = numerator / denominator > 0, between two integers, nearly always 1 apart.

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
