"""The nearest integer to a number plus an ideal real draw, without any rounding error: what all noise distributions share.

A draw is X = s * scale * q(u), with s a random sign, u uniform on the reals of (0, 1/2) and q(u) the point whose
upper tail, under the law, is u. A random word gives s and the first 64 binary digits of u: u lies in [V, V + 1) * 2**-64.
All the X that such an interval allows almost always put c + X next to one integer, and double arithmetic can tell, given
a double near c and a bound on its error. Otherwise the integer is found from c itself, a rational number, by integer
arithmetic with proved bounds, on as many digits of u as that takes.

The law gives x, a double near scale * q(V * 2**-64), and proves that |x - |X|| and the rounding of the sum y below,
2**-53 x, are together below scale * (margin + 2 / V) for all u of the interval.

The centre's double is w + f, w its nearest integer: f is exact, |f| <= 1/2. y = f + x is rounded, by 2**-53 x, counted
above, and 2**-54; y - rint(y) is exact. Its distance from 0 is compared with 1/2 - reach - error, in a few roundings of
at most 2**-54 each, or else a number below 0 that decides nothing. Products too small for a double's 53 digits lose
below 2**-1070. All that is less than half of the slack of 2**-50 grid steps that is added to the reach.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil, frexp, isfinite
from typing import final

import numpy as np
import numpy.typing as npt

from duckdb_dp.noise.uniform import EntropySource, Uniform

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_SLACK = 2.0**-50  # in grid steps
_LAST_FAST = 2.0**62  # results that could come near int64's limits are not decided in doubles
GRID = 10
"""Noise is drawn on a grid of 2^-10 of its standard deviation: rounding to it adds 2^-20 / 12 to its variance, relatively."""

FINEST = -30
"""The grid is never finer than 2^-30, so that counts of up to 2^32 are whole numbers of its steps in 62 bits."""

_MAGNITUDE = np.uint64(2**63 - 1)


def grid_step(stddev: float) -> float:
    """The spacing of the grid of noise of that standard deviation: a power of two."""
    return 2.0 ** max(frexp(stddev)[1] - 1 - GRID, FINEST)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseDistribution:
    """A symmetric law of real noise, of scale 1.

    Attributes:
        decide: Takes words, scale, centres, their errors, and the results, which it fills where doubles can decide by
            `settle`; returns the index and the double near |X| of each of the others.
        enclose_tail: Takes the numerator and denominator of t >= 0 and a length; returns integers around
            2**length * P(X > t).
        margin: Of the doubles near |X|, in units of the scale: see this module.
        chunk: How many draws `decide` is given at a time.
    """

    decide: Callable[[Words, float, Floats, Floats, Integers], list[tuple[int, float]]]
    enclose_tail: Callable[[int, int, int], tuple[int, int]]
    margin: float
    chunk: int


def draw(
    law: NoiseDistribution,
    centres: Floats,
    errors: Floats | float,
    scale: float,
    exact: Callable[[int], Fraction],
    *,
    bits: EntropySource,
) -> Integers:
    """Draw the nearest integers to c_i + scale * X_i, c_i = exact(i), X_i independent ideal draws of a law, exactly.

    Privacy: post-processing of the ideal mechanism c + scale * X, if `bits` is private.

    Args:
        law: Of the noise.
        centres: Doubles near the c_i, in steps of the grid, shape `(m,)`.
        errors: Proved bounds of |centres[i] - c_i|, shape `(m,)`, or one for all. An infinite one is allowed.
        scale: Of the noise, in steps of the grid, taken as the exact double.
        exact: Gives c_i, in steps of the grid. It is called at most once for each i, in order.
        bits: The source of randomness.

    Returns:
        Shape `(m,)`. An integer beyond int64 becomes the nearest int64.
    """
    noisy = np.empty(centres.shape, dtype=np.int64)
    bounds = np.broadcast_to(np.asarray(errors, dtype=np.float64), centres.shape)
    for start in range(0, centres.size, law.chunk):
        part = slice(start, start + law.chunk)
        chunk = noisy[part]
        words = bits.uint64(chunk.size)
        for i, x in law.decide(words, scale, centres[part], bounds[part], chunk):
            chunk[i] = _decide_exactly(law, int(words[i]), x, scale, exact(start + i), bits)
    return noisy


def leading_digits(words: Words) -> Integers:
    """V, the first digits of u: shape `(m,)`, from words of shape `(m,)`."""
    return (words & _MAGNITUDE).view(np.int64)


def decision_margin(v: Integers, scale: float, margin: float) -> Floats:
    """How far from an integer a sum may be for doubles to decide, without an error of the centre; below 0: not at all."""
    with np.errstate(divide="ignore"):
        limit = 2 * scale / v
    return np.subtract(0.5 - _reach(scale, margin), limit, out=limit)


def round_where_certain(
    words: Words, x: Floats, limit: Floats, centres: Floats, errors: Floats, noisy: Integers
) -> list[tuple[int, float]]:
    """Fill `noisy` where doubles can decide; return the index and the approximate |X| of the others.

    Args:
        words: Their first bits give the signs, shape `(m,)`; so have the other arrays.
        x: Doubles near |X|.
        limit: What `clearance` says. It is written over.
        centres: Doubles near the c_i.
        errors: Bounds of their errors.
        noisy: The results.
    """
    # The first bit of a word is the sign of its draw, as it would be of a double with the same bits.
    y = np.copysign(x, words.view(np.float64))
    with np.errstate(invalid="ignore"):  # x is infinite where V = 0
        whole = np.rint(centres)
        np.add(y, centres - whole, out=y)
        nearest = np.rint(y)
        np.copyto(noisy, whole, casting="unsafe")
        np.add(noisy, nearest.astype(np.int64), out=noisy)
        distance = np.abs(np.subtract(y, nearest, out=y), out=y)
        decided = distance < np.subtract(limit, errors, out=limit)
        decided &= np.abs(whole, out=whole) < _LAST_FAST
    return [(int(i), float(x[i])) for i in np.flatnonzero(~decided)]


def _reach(scale: float, margin: float) -> float:
    """How far x may be from the |X| of the nearest u in its interval, and more."""
    return scale * margin + _SLACK


def _decide_exactly(
    law: NoiseDistribution, word: int, x: float, scale: float, centre: Fraction, bits: EntropySource
) -> int:
    """Find the nearest integer to centre + X, X the draw that begins with `word`, by comparing u with tails."""
    u = Uniform(word & int(_MAGNITUDE), bits)
    sign = -1 if word >> 63 else 1
    base = sign * centre - Fraction(1, 2)  # the result is sign * ceil(base + |X|)

    def beyond(k: int) -> bool:
        """Whether base + |X| > k, for k >= base: |X| > 0, so that no other k is in doubt."""
        t = (k - base) / Fraction(scale)
        return u.is_below(partial(law.enclose_tail, t.numerator, t.denominator))

    low = ceil(base)
    if not isfinite(x):
        high = low + ceil(8 * scale)
        while beyond(high):
            low, high = high + 1, 2 * high - ceil(base)
    else:  # |X| is within reach of x: that nearly always leaves two integers at most, and one comparison
        middle, total_relative_variance = base + Fraction(x), Fraction(_reach(scale, law.margin) + 2 * scale / u.head)
        low, high = max(low, ceil(middle - total_relative_variance)), ceil(middle + total_relative_variance)
    while low < high:
        k = (low + high) // 2
        if beyond(k):
            low = k + 1
        else:
            high = k
    return max(-(2**63), min(sign * low, 2**63 - 1))
