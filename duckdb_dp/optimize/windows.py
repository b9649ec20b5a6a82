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

Wide windows do better on a ring that they go around in a whole number of steps: windows of half of the cells are determined
by the total and by differences that change their sign every w cells, which is what P leaves on 2 w cells. On 1,200 cells that
lowers the RMSE by 1.5 % for w = 250 and by 11 % for w = 600, to 1.3 % above the optimum. Where windows are wider than that, no query
tells apart the cells that all of them hold: those are one cell, and the windows are half of the cells that are left.

On very many cells the ring is the n cells themselves. The windows on them are rows of C too, and P^(1/2) has an inverse that is
circulant: the error is m t^2, which is 0.1 % more in RMSE at w = n / 24, and less for narrower windows.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from duckdb_dp.linop import Array, Circulant, Merged, Waves
from duckdb_dp.linop.convolution import rounded
from duckdb_dp.optimize.reflected import WRITTEN

RIDGE = 1e-3
"""Added to the spectrum, of its mean: keeps the inverse exact to 1e-9, and costs less than 1e-5 of the error."""

NARROW = 24
"""Windows of this part of the cells or less are within 1 % of the bound on any ring that is large enough."""

BETWEEN = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
"""Weights that are tried for the cells that all windows hold."""

POINTS = 2000
"""Points of an integral: to 1 %."""

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

    strategy: Circulant | Waves | Merged
    error: float
    bound: float


def closed_form(width: int, n: int) -> Found:
    """The strategy for all ranges of a width on n cells.

    Privacy: post-processing of public queries.
    """
    from scipy.fft import next_fast_len  # 0.1 s: only who plans pays for it

    around = int(next_fast_len(n + width - 1, real=True))
    signed, angle = _spectrum(width, around)
    phase = np.fft.irfft(np.sign(signed) * np.exp(-1j * (width - 1) * angle), around)
    bound = max(_bound(phase, width, n), _half(width, n))
    ends = (
        n - width
    )  # cells before the last window begins, and after the first one ends: no query tells the others apart
    if ends + 1 < width and 2 * ends < WRITTEN:
        inner = closed_form(ends + 1, 2 * ends + 1)
        return replace(inner, strategy=Merged(inner.strategy, ends, n - 2 * ends), bound=max(bound, inner.bound))
    if n > WRITTEN:
        around_all = ring(width, n)
        return Found(strategy=around_all, error=float(around_all.squares("width", width).sum()), bound=bound)
    tried = [_restricted(width, n, size) for size in (around, *_matching(width, n))]
    errors = [float(strategy.windows(width).sum()) for strategy in tried]
    best = int(np.argmin(errors))
    return Found(strategy=tried[best], error=errors[best], bound=bound)


def _matching(width: int, n: int) -> list[int]:
    """Rings of n cells or more that windows of that width go around in a whole number of steps, where windows are wide."""
    if width * NARROW <= n:
        return []
    fits = -(-n // width) * width
    return [fits] if n % width else [fits, fits + width]


def _restricted(width: int, n: int, around: int) -> Circulant:
    """P^(1/2) on a ring, restricted to n cells."""
    kernel = np.fft.irfft(np.sqrt(_lifted(_spectrum(width, around)[0])), around)
    return Circulant(kernel / np.sqrt(kernel @ kernel), n)


def _spectrum(width: int, around: int) -> tuple[Array, Array]:
    """Eigenvalues of the windows on a ring but for their phases, and the half angles that belong to them."""
    turns = np.arange(around // 2 + 1)
    angle = np.pi * turns / around
    signed = np.full(len(turns), float(width))
    signed[1:] = np.sin(width * angle[1:]) / np.sin(angle[1:])
    signed[(turns * width) % around == 0] *= turns[(turns * width) % around == 0] == 0  # where rounding hides a 0
    return signed, angle


def _lifted(signed: Array) -> Array:
    """The eigenvalues a_k of P, and the thousandth."""
    spectrum = np.abs(signed)
    return np.asarray(spectrum + RIDGE * spectrum.mean(), dtype=np.float64)


def ring(width: int, n: int) -> Waves:
    """The strategy where the ring is the n cells themselves, so that it has an inverse in closed form."""
    spectrum = _lifted(_spectrum(width, n)[0])
    kernel, inverse = np.fft.irfft(np.sqrt(spectrum), n), np.fft.irfft(1 / np.sqrt(spectrum), n)
    length, half = float(np.sqrt(kernel @ kernel)), n // 2 + 1
    return Waves("ring", rounded(kernel[:half] / length), inverse[:half] * length, np.ones(n))


def _half(width: int, n: int) -> float:
    """A bound for windows of half of the cells or more: the sum of singular values of all but the last, W L^(1/2), squared.

    The first p = n - w cells a_i, the last p cells b_i and those between, which all windows hold, are weighed by l each and by s in
    all. Window k < p is the sum of what is between, the a_i from k on and the b_i below k: half of the sum of all a_i and b_i, plus
    half of sum_i z_ki (a_i - b_i), z_ki = 1 for i >= k, else -1. Z is skew-circulant, with eigenvectors exp(i t_j k) / sqrt(p),
    t_j = pi (2 j + 1) / p, and eigenvalues of size 1 / sin(t_j / 2) = y_j. The two parts are orthogonal on the cells, so that

        M = W L W^T = r 1 1^T + (l / 2) Z Z^T,   r = p l / 2 + s,   2 p l + s = 1,
        tr M^(1/2) = sum_j sqrt(l / 2) y_j + (1 / pi) integral_0^inf log(1 + r 1^T ((l / 2) Z Z^T + t^2)^-1 1) dt

    with 1^T (...)^-1 1 = sum_j (y_j^2 / p) / (l y_j^2 / 2 + t^2): the integral of log det over t is pi tr M^(1/2) but for what does not
    depend on r. The integrand falls with t, so that a sum of its least values between points is below the integral.
    """
    ends = n - width
    if ends < 1 or n > 2 * width:
        return 0.0
    sizes = 1 / np.sin(np.pi * (2 * np.arange(ends) + 1) / (2 * ends))
    best = 0.0
    for between in BETWEEN if n < 2 * width else (0.0,):
        each = (1 - between) / (2 * ends)
        level, squares = ends * each / 2 + between, each / 2 * sizes**2
        points = np.sqrt(np.geomspace(1e-8 * squares.min(), 1e8 * (squares.max() + level * ends), POINTS))
        values = np.array(
            [np.log1p(level * float((sizes**2 / ends / (squares + t * t)).sum())) for t in points.tolist()]
        )
        integral = values[0] * points[0] + float(values[1:] @ np.diff(points))
        best = max(best, (float(np.sqrt(squares).sum()) + integral / np.pi) ** 2)
    return best * (1 - ROUNDING)


def _bound(phase: Array, width: int, n: int) -> float:
    """sum_i max(h_i, 0)^2: cell i lies at place i - k of window k, 0 <= k <= n - w."""
    sums = np.concatenate([[0.0], np.cumsum(phase[:width])])
    cell = np.arange(n)
    shares = sums[np.minimum(cell, width - 1) + 1] - sums[np.maximum(cell - (n - width), 0)]
    return float(np.square(np.maximum(shares, 0.0)).sum()) * (1 - ROUNDING)
