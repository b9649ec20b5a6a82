"""The threshold above which the noisy count of an unknown value is released: the chance of a value that one unit alone holds."""

import math

_UP = 1 + 1e-12
"""Far more than the rounding of the quantile, and far less than what a charge leaves of delta."""


def threshold(stddev: float, values: int, delta: float) -> float:
    """T = max over t <= k of 1 + stddev * Phi^-1((1 - delta)^(1/t)), rounded up; it grows with t, so t = k.

    With independent noise N(0, stddev^2) on each, the largest of t counts of 1 is above T with probability at most delta.

    Source: `docs/privacy.md`, "Unknown values".

    Privacy: states a bound; spends nothing.

    Args:
        stddev: of the noise.
        values: k, how many values one unit is counted for at most.
        delta: the probability.
    """
    from scipy.special import ndtri  # 0.2 s: loading need not wait for it

    tail = -math.expm1(math.log1p(-delta) / values)
    return 1 - stddev * float(ndtri(tail)) * _UP
