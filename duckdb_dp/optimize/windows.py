"""Strategies for all ranges of one width on many cells in closed form, with a proved bound.

On a ring of N >= n + w - 1 cells the windows of w cells are a circulant matrix C, C = X P with P = (C^T C)^(1/2) and X
orthogonal (0 where C is). P has eigenvalues a_k = |sin(pi w k / N) / sin(pi k / N)|. The m = n - w + 1 windows on n cells
are rows of C that are 0 on all other cells. The strategy is P^(1/2), restricted to the n cells and scaled to columns of
length 1: all of its columns are shifts of one. A thousandth is added to the a_k, so that none of them is 0.

With t = P_00, the mean of the a_k, its error is about m t^2 at most: tr(W (P restricted)^-1 W^T) <= tr of m rows of
C P^-1 C^T = P, since the inverse of a restriction is at most the restricted inverse. It is worked out from the inverse of
a Toeplitz matrix, in O(n) (``linop.Circulant.windows``).

The bound is ``strategy.solve``'s, |W L^(1/2)|^2, |.| the sum of singular values, L = diag(lambda). That sum is at least
tr(X^T W L^(1/2)) for any X that makes no vector longer, such as m rows of X above on n cells:

    |W L^(1/2)| >= sum_i sqrt(lambda_i) h_i,  h_i = sum_k X_ki W_ki,

and lambda_i proportional to max(h_i, 0)^2 gives sum_i max(h_i, 0)^2. On 512 cells the RMSE is 0.06, 0.3 and 0.7 % above
the optimum for widths of 4, 16 and 32, and the bound as much below it: about w / (10 n) each.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.linop import Array, Circulant

RIDGE = 1e-3
"""Added to the spectrum, of its mean: keeps the inverse exact to 1e-9, and costs less than 1e-5 of the error."""

ROUNDING = 1e-9
"""Taken from the bound."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Found:
    """A strategy in closed form.

    Attributes:
        strategy: B, its columns of length 1 up to rounding.
        error: tr(G (B^T B)^-1).
        bound: no strategy of L2 sensitivity 1 has a smaller error.
    """

    strategy: Circulant
    error: float
    bound: float


def closed_form(width: int, n: int) -> Found:
    """The strategy for all ranges of a width on n cells.

    Privacy: post-processing of public queries.
    """
    from scipy.fft import next_fast_len  # 0.1 s: only who plans pays for it

    around = int(next_fast_len(n + width - 1, real=True))
    turns = np.arange(around // 2 + 1)
    angle = np.pi * turns / around
    signed = np.full(len(turns), float(width))
    signed[1:] = np.sin(width * angle[1:]) / np.sin(angle[1:])
    signed[(turns * width) % around == 0] *= turns[(turns * width) % around == 0] == 0  # where rounding hides a 0
    spectrum = np.abs(signed)
    kernel = np.fft.irfft(np.sqrt(spectrum + RIDGE * spectrum.mean()), around)
    strategy = Circulant(kernel / np.sqrt(kernel @ kernel), n)
    phase = np.fft.irfft(np.sign(signed) * np.exp(-1j * (width - 1) * angle), around)
    return Found(strategy=strategy, error=float(strategy.windows(width).sum()), bound=_bound(phase, width, n))


def _bound(phase: Array, width: int, n: int) -> float:
    """sum_i max(h_i, 0)^2: cell i lies at place i - k of window k, 0 <= k <= n - w."""
    sums = np.concatenate([[0.0], np.cumsum(phase[:width])])
    cell = np.arange(n)
    shares = sums[np.minimum(cell, width - 1) + 1] - sums[np.maximum(cell - (n - width), 0)]
    return float(np.square(np.maximum(shares, 0.0)).sum()) * (1 - ROUNDING)
