"""The rounded Laplace: the nearest integer to a number plus an ideal real Laplace draw, without any rounding error.

How a draw is decided, in doubles or exactly, is in `duckdb_dp.noise.grid`; here are the Laplace law's parts.

Error budget of x = scale * q(V * 2**-64) in double arithmetic, q(u) = -log(2 u), in units of `scale`. A relative error
of u moves q by as much. With V >= 2**44, so that q < 13.2:

* numpy's log: 8 units in the last place, below 1.5e-14 (numpy states 4 at most; the tests measure at most 1);
* V and the product as doubles: (1 + q) 2**-53, below 1.6e-15;
* the sum with the centre, rounded: q 2**-53, below 1.5e-15.

The sum is below 1.9e-14. The margin, 2**-44 = 5.7e-14, is three times that. To it comes the width of u's interval:
log(1 + 1 / V) < 1 / V, for which 2 / V is allowed. With V < 2**44, which a double holds, q < 43.7, and the same sum is
below 6.7e-14; the margin and what 2 / V has to spare, 1 / V > 2**-44, are 1.1e-13.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.noise.grid import NoiseDistribution, decision_margin, draw, leading_digits, round_where_certain
from duckdb_dp.noise.uniform import EntropySource, enclose_exp

MAX_SCALE = 2.0**44  # the margin is then one grid step, and every draw takes the slow path
_MARGIN = 2.0**-44  # in units of the scale
_CHUNK = 2**14  # seven arrays of 128 kB: they stay in a core's cache


def rounded_laplace(scale: float, size: int, *, bits: EntropySource) -> npt.NDArray[np.int64]:
    """Draw nearest integers to independent ideal draws of Laplace(scale), exactly.

    P(0) = 1 - exp(-1 / (2 scale)),   P(k) = exp(-|k| / scale) sinh(1 / (2 scale)) for every integer k != 0.

    Source: [DMNS06] for the ideal mechanism, which this post-processes: round(a + X) = a + round(X) for integers a.

    Privacy: spends epsilon = (L1 sensitivity) / scale, with delta = 0, if `bits` is private.

    Args:
        scale: Mean of |X|, 1 / sqrt(2) of the standard deviation before rounding, in steps of the grid, taken as the
            exact double.
        size: How many draws.
        bits: The source of randomness.

    Returns:
        Shape `(size,)`. An entry beyond int64 would need |X| > 2**19 scale, of probability below 2**(-2**19).

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
    """Draw the nearest integers to c_i + X_i, c_i = exact(i), X_i independent ideal draws of Laplace(scale), exactly.

    P(k) = F(k + 1/2 - c_i) - F(k - 1/2 - c_i) for every integer k, F' (x) = exp(-|x| / scale) / (2 scale).

    The result is a function of the c_i and the random words alone: neither `centres` nor `errors` shows in it.

    Source: [DMNS06] for the ideal mechanism c + X, which this post-processes: c is neither rounded nor charged for it.

    Privacy: spends epsilon = (L1 sensitivity of c) / scale, with delta = 0, if `bits` is private.

    Args:
        centres: Doubles near the c_i, in steps of the grid, shape `(m,)`.
        errors: Proved bounds of |centres[i] - c_i|, shape `(m,)`, or one for all. An infinite one is allowed.
        scale: Mean of |X_i|, in steps of the grid, taken as the exact double.
        exact: Gives c_i, in steps of the grid. It is called at most once for each i, in order, and for nearly no i as
            long as the errors are small: for a share of about 2 errors + 2**-43 scale. It must not fail.
        bits: The source of randomness.

    Returns:
        Shape `(m,)`. An integer beyond int64, as only |c_i| > 2**62 would give, becomes the nearest int64.

    Raises:
        DPError: If the scale is not in (0, 2**44].
    """
    if not 0 < scale <= MAX_SCALE:
        raise DPError(f"The noise's scale {as_sql(scale)} is not in (0, 2**44]. Choose a scale > 0 and a coarser grid.")
    law = NoiseDistribution(decide=_decide, enclose_tail=_laplace_tail, margin=_MARGIN, chunk=_CHUNK)
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
    x = _log_of_twice(v)
    np.multiply(x, -scale, out=x)
    return round_where_certain(words, x, decision_margin(v, scale, _MARGIN), centres, errors, noisy)


def _log_of_twice(v: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """log(2 V 2**-64): shape `(m,)`."""
    u: npt.NDArray[np.float64] = np.multiply(v, 2.0**-63)
    with np.errstate(divide="ignore"):  # V = 0
        np.log(u, out=u)
    return u


def _laplace_tail(numerator: int, denominator: int, length: int) -> tuple[int, int]:
    """Enclose 2**length * exp(-t) / 2, t = numerator / denominator >= 0, between two integers."""
    return enclose_exp(numerator, denominator, length - 1)
