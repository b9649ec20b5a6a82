"""The exponential mechanism, without any rounding error: it draws one index with exactly the intended probability.

**Scores.** Each score is rounded to a grid, r_i = the nearest integer to s_i / g, g = 2**k the power of two with
sensitivity / 2 < 2**20 g <= sensitivity. A score s_i is within `error` of the ideal score, a function of the data that one
privacy unit moves by at most `sensitivity`. So the unit moves g r_i by at most

    D = sensitivity + g + 2 error,

and index i is drawn with probability w_i / W,

    w_i = exp(epsilon g (r_i - max r) / (2 D)),   W = sum_i w_i.

The unit moves each exponent, up to a constant, by at most epsilon / 2, both ways: all log ratios of probabilities are
within epsilon, and within a range of width epsilon. g, D and epsilon are taken as the exact doubles and rationals: the
exponents are rational numbers. Scores beyond 2**1000 g are cut there, which moves no difference apart.

**The draw.** With u a uniform real of [0, 1), the result is the i with C_i <= u W < C_i + w_i, C_i the sum of the weights
before it. A random word gives the first 64 binary digits of u. Doubles tell nearly always; otherwise integers do, with
proved bounds, on as many digits of u as that takes. The candidates stand in their own order, from the one of the largest
score on and around: any order is right, and this one gives the largest score to u = 0.

Error budget of the decision in doubles, for n candidates. W >= 1, as the largest score's weight is 1.

* the exponent -x: 3.1 roundings, of a rate, of a difference of integers and of their product, so that w changes by below
  x exp(-x) 2**-51 < 2**-52; and numpy's exp of a number <= 0: 8 units in the last place, 2**-50 (numpy states 4 at most;
  the tests measure at most 1). Weights too small for a double's 53 digits are off by below 2**-1000;
* hence each sum of weights: n (2**-50 + 2**-52), and its roundings, n W 2**-53. The sums that bound a cell, and W, which u
  multiplies, are such sums: both together, below n W 2**-48.6 + n W 2**-52;
* the product u W, and the two sides: 4 roundings and the width of u's interval, below W 2**-50.9.

The sum is below n W 2**-48; the margin, n W 2**-46, is four times that.
"""

from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate
from math import frexp, ldexp

import numpy as np
import numpy.typing as npt

from duckdb_dp.noise.uniform import EntropySource, Uniform, enclose_exp

_FINENESS = 20  # the grid costs 2**-20 of epsilon at most
_FARTHEST = 2.0**1000  # in grid steps
_SMALLEST, _LARGEST = 2.0**-100, 2.0**100  # of parameters: the rate in doubles is then far from 0 and infinity
_MARGIN = 2.0**-46
_FIRST = 2**63 - 1  # the word of u = 0, since it is the one without noise: see testing.NoNoise


def exponential(
    scores: npt.NDArray[np.float64], sensitivity: float, epsilon: float, *, bits: EntropySource, error: float = 0.0
) -> int:
    """Draw the index of a large score, by the exponential mechanism.

    P(i) = exp(epsilon r_i g / (2 D)) / sum_j exp(epsilon r_j g / (2 D)), exactly: r_i g is score i to within 2**-21 of the
    sensitivity, and D is the sensitivity, 2**-20 of it at most, and twice the error.

    The first word of the bits is u's first digits, but for its 63 last bits, which are inverted: so `testing.NoNoise`, as
    every u close to 0, gives the largest score's index, the first of them if they are many.

    Source: [MT07] for the mechanism; [CR21], [DDR20] for its bounded range and its zCDP.

    Privacy: spends epsilon, with delta = 0; since its privacy loss has a range of epsilon, epsilon**2 / 8 in zCDP, and in
    Gaussian DP as much as a pure step of epsilon / 2; if `bits` is private. All scores must be functions of the private
    data and of what was released before.

    Args:
        scores: Shape `(n,)`, n >= 1, finite.
        sensitivity: By how much one privacy unit moves any ideal score at most, in [2**-100, 2**100].
        epsilon: Privacy to spend, in [2**-100, 2**100].
        bits: The source of randomness.
        error: Proved bound of the distances of the scores from the ideal ones, from the roundings of their making; at
            most 2**100.

    Returns:
        An index in range(n).

    Raises:
        ValueError: If an argument is not as said. Callers see to it that this does not depend on private data.
    """
    _check(scores, sensitivity, epsilon, error)
    step, rate = _grid(sensitivity, epsilon, error)
    best = int(np.argmax(scores))
    rounded = np.roll(_round(scores, step), -best)
    u = Uniform(int(bits.uint64(1)[0]) ^ _FIRST, bits)
    place = _decide(rounded, rate, u.head)
    if place is None:
        place = _decide_exactly(rounded, rate, u)
    return (best + place) % scores.size


def _grid(sensitivity: float, epsilon: float, error: float) -> tuple[float, Fraction]:
    """g, and epsilon g / (2 D)."""
    step = ldexp(1.0, frexp(sensitivity)[1] - 1 - _FINENESS)
    widest = Fraction(sensitivity) + Fraction(step) + 2 * Fraction(error)
    return step, Fraction(epsilon) * Fraction(step) / (2 * widest)


def _round(scores: npt.NDArray[np.float64], step: float) -> npt.NDArray[np.float64]:
    """The nearest integers to scores / step, a power of two, as doubles: exact up to 2**1000, and cut there."""
    with np.errstate(over="ignore"):
        rounded: npt.NDArray[np.float64] = np.rint(scores / step)
    return np.clip(rounded, -_FARTHEST, _FARTHEST, out=rounded)


def _check(scores: npt.NDArray[np.float64], sensitivity: float, epsilon: float, error: float) -> None:
    """Raise ValueError if an argument of `exponential` is not as it says."""
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise ValueError("scores must be finite numbers in one dimension, and there must be one")
    if not (_SMALLEST <= sensitivity <= _LARGEST and _SMALLEST <= epsilon <= _LARGEST and 0 <= error <= _LARGEST):
        raise ValueError(f"sensitivity {sensitivity!r}, epsilon {epsilon!r} or error {error!r} is out of range")


def _decide(rounded: npt.NDArray[np.float64], rate: Fraction, head: int) -> int | None:
    """The place whose cell holds u, whose first 64 digits are `head`; None if doubles cannot tell."""
    with np.errstate(over="ignore", under="ignore"):
        sums = np.cumsum(np.exp((rounded - rounded[0]) * float(rate)))
    point, margin = head * 2.0**-64 * sums[-1], sums.size * sums[-1] * _MARGIN
    first, last = np.searchsorted(sums[:-1], [point - margin, point + margin], side="right")
    return int(first) if first == last else None


def _decide_exactly(rounded: npt.NDArray[np.float64], rate: Fraction, u: Uniform) -> int:
    """The place whose cell holds u, by integers around the sums of the weights."""
    exponents = {r: rate * (int(rounded[0]) - int(r)) for r in np.unique(rounded).tolist()}
    places = rounded.tolist()
    while True:
        length = u.length + rounded.size.bit_length()
        cells = {r: enclose_exp(x.numerator, x.denominator, length) for r, x in exponents.items()}
        lows = list(accumulate(cells[r][0] for r in places))
        highs = list(accumulate(cells[r][1] for r in places))
        place = bisect_right(highs, u.head * lows[-1] >> u.length, hi=len(places) - 1)  # the ends surely at or below u
        if place == len(places) - 1 or (u.head + 1) * highs[-1] <= lows[place] << u.length:
            return place
        u.extend()
