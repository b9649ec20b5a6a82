"""Strategies for all ranges of one width on many cells in closed form, with a proved bound.

On a ring of N >= n + w - 1 cells the windows of w cells are a circulant matrix C, C = X P with P = (C^T C)^(1/2) and X
orthogonal (0 where C is). P has eigenvalues a_k = |sin(pi w k / N) / sin(pi k / N)|. The m = n - w + 1 windows on n cells
are rows of C that are 0 on all other cells. The strategy is P^(1/2), restricted to the n cells and scaled to columns of
length 1: all of its columns are shifts of one. A thousandth is added to the a_k, so that none of them is 0.

With t = P_00, the mean of the a_k, its error is about m t^2 at most: tr(W (P restricted)^-1 W^T) <= tr of m rows of
C P^-1 C^T = P, since the inverse of a restriction is at most the restricted inverse. It is worked out from the inverse of
a Toeplitz matrix, in O(n) (``linop.Circulant.windows``).

The bound for narrow windows is ``strategy.solve``'s, |W L^(1/2)|^2, |.| the sum of singular values, L = diag(lambda). That sum is at
least tr(X^T W L^(1/2)) for any X that makes no vector longer, such as m rows of X above on n cells:

    |W L^(1/2)| >= sum_i sqrt(lambda_i) h_i,  h_i = sum_k X_ki W_ki,

and lambda_i proportional to max(h_i, 0)^2 gives sum_i max(h_i, 0)^2. On 512 cells the RMSE is 0.06, 0.3 and 0.7 % above
the optimum for widths of 4, 16 and 32, and the bound as much below it: about w / (10 n) each. Wide windows have that of
``window_bound``.

*Wide windows* do better on a ring that they go around in a whole number of steps: windows of half of the cells are determined
by the total and by differences that change their sign every w cells, which is what P leaves on 2 w cells. On 1,200 cells that
lowers the RMSE by 1.5 % for w = 250 and by 11 % for w = 600, to 1.3 % above the optimum.

*Folded.* Where n = Q w + r, Q >= 2 and 0 < r < w, that ring has Q w cells, and the last r cells u lie over the first r, c: the ring sees
(c + u) / 2, and d = c - u is measured beside it, by columns of squared length 3/4, so that all columns have length 1. A window is one
of the ring, plus half of the d from its first cell on, or less half of the d up to its last one. The ring's error is m t^2, and
that of the prefixes and suffixes of r cells is a third of what windows of r cells have on a ring of 2 r. For Q = 2 a cell, the
one w further and the one 2 w further are unit vectors in a plane, 120 degrees apart, as they are at the optimum from one cell to the next.

*Blended.* All of these are the same everywhere. Wide windows on more than 2,048 cells take what is next to the optimum: ``blends``.

Where windows are wider than half, no query tells apart the cells that all of them hold: those are one cell, and the windows are half of
the cells that are left. Of few such cells the optimum itself is found. On up to 2,048 cells wide windows are solved by ``strategy`` too.

On very many cells the ring is the n cells themselves. The windows on them are rows of C too, and P^(1/2) has an inverse that is
circulant: the error is m t^2, which is 0.1 % more in RMSE at w = n / 24, and less for narrower windows.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

import numpy as np

from duckdb_dp.domain.queries import Intervals
from duckdb_dp.linop import Array, Blended, Circulant, Dense, Folded, Merged, Waves
from duckdb_dp.linop.convolution import rounded
from duckdb_dp.linop.threads import one_thread
from duckdb_dp.optimize import window_bound
from duckdb_dp.optimize.blends import blended
from duckdb_dp.optimize.reflected import WRITTEN
from duckdb_dp.optimize.strategy import solve

RIDGE = 1e-3
"""Added to the spectrum, of its mean: keeps the inverse exact to 1e-9, and costs less than 1e-5 of the error."""

NARROW = 24
"""Windows of this part of the cells or less are within 1 % of the bound on any ring that is large enough."""

FAR = 10
"""The part of very many cells from which windows are wide enough for a bound that takes time by the square of that."""

FEW = 1024
"""Cells on which the optimum is found in a second."""

BLENDED = 12
"""Windows of a larger part of the cells than that are always better blended, on more than ``SOLVED`` of them."""

SOLVED, WIDE = 2048, 16
"""Cells on which three steps towards it take one to two seconds, and the part of them from which windows gain by it: their RMSE is 0.3 to
0.5 % above the bound, and in closed form 0.8 to 3.1 %."""

ROUNDING = 1e-9
"""Taken from the bound."""


Strategy = Circulant | Waves | Folded | Blended | Merged | Dense


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Found:
    """A strategy in closed form.

    Attributes:
        strategy: B, its largest column of length 1 up to rounding.
        error: tr(G (B^T B)^-1).
        bound: no strategy of L2 sensitivity 1 has a smaller error.
    """

    strategy: Strategy
    error: float
    bound: float


def closed_form(width: int, n: int) -> Found:
    """The strategy for all ranges of a width on n cells.

    Privacy: post-processing of public queries.
    """
    ends = n - width  # cells before the last window begins, and after the first one ends: the others are as one
    if ends + 1 < width:
        inner = (_solved if 2 * ends < FEW else closed_form)(ends + 1, 2 * ends + 1)
        return replace(inner, strategy=Merged(inner.strategy, ends, n - 2 * ends))
    if FEW < n <= SOLVED and width * WIDE > n:
        return _stepped(width, n)
    tried = _written(width, n) if n <= WRITTEN else _waves(width, n)
    best = min(tried, key=lambda found: found[1])
    return Found(strategy=best[0], error=best[1], bound=_least(width, n))


def _solved(width: int, n: int) -> Found:
    """The optimum on few cells."""
    found = solve(factor=Intervals("width", n, width).dense().T, tol=1e-4)
    return Found(strategy=Dense(found.matrix), error=found.primal, bound=found.dual)


@lru_cache(maxsize=4)  # for several attributes alike
def _stepped(width: int, n: int) -> Found:
    """What is next to the optimum on more cells. From the Gram matrix, whose rank is found in half the time."""
    found = solve(gram=Intervals("width", n, width).gram(), tol=1e-2)
    return Found(strategy=Dense(found.matrix), error=found.primal, bound=found.dual)


def _least(width: int, n: int) -> float:
    """The bound of rings where windows are narrow, on very many cells less than a tenth of them, else the larger of two."""
    from scipy.fft import next_fast_len  # 0.1 s: only who plans pays for it

    around = int(next_fast_len(n + width - 1, real=True))
    signed, angle = _spectrum(width, around)
    phase = np.fft.irfft(np.sign(signed) * np.exp(-1j * (width - 1) * angle), around)
    bound = _bound(phase, width, n)
    wide = width * NARROW > n if n <= WRITTEN else width * FAR >= n
    return max(bound, window_bound.least(width, n)) if wide and width > 1 else bound


def _written(width: int, n: int) -> list[tuple[Strategy, float]]:
    """The strategies that are tried on rings of n cells or more, and with cells laid over others, and their errors."""
    from scipy.fft import next_fast_len  # 0.1 s: only who plans pays for it

    around = int(next_fast_len(n + width - 1, real=True))
    found: list[Circulant | Folded | Blended] = []
    if n > SOLVED and width * NARROW > n:
        found.append(blended(width, n))
    if not found or width * BLENDED <= n:
        found += [_restricted(width, n, size) for size in (around, *_matching(width, n))]
        if _folds(width, n):
            found.append(folded(_restricted(width, n - n % width, n - n % width), n % width))
    with one_thread(with_scipy=True):
        return [(strategy, float(strategy.windows(width).sum())) for strategy in found]


def _waves(width: int, n: int) -> list[tuple[Strategy, float]]:
    """The same on very many cells."""
    around = ring(width, n)
    found: list[tuple[Strategy, float]] = [(around, float(around.squares("width", width).sum()))]
    if _folds(width, n) and n % width <= WRITTEN // 2:
        other = folded(ring(width, n - n % width), n % width)
        found.append((other, float(other.windows(width).sum())))
    return found


def _folds(width: int, n: int) -> bool:
    """Whether the ring of the cells that are whole multiples of wide windows is smaller, and holds two of them."""
    return width * NARROW > n and n % width > 0 and n >= 2 * width


def folded(around: Circulant | Waves, over: int) -> Folded:
    """A strategy on a ring, with so many more cells laid over its first ones."""
    size = 2 * over
    kernel = np.fft.irfft(np.sqrt(_lifted(_spectrum(over, size)[0])), size)
    return Folded(around, Circulant(kernel * np.sqrt(0.75 / (kernel @ kernel)), over))


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


def _bound(phase: Array, width: int, n: int) -> float:
    """sum_i max(h_i, 0)^2: cell i lies at place i - k of window k, 0 <= k <= n - w."""
    sums = np.concatenate([[0.0], np.cumsum(phase[:width])])
    cell = np.arange(n)
    shares = sums[np.minimum(cell, width - 1) + 1] - sums[np.maximum(cell - (n - width), 0)]
    return float(np.square(np.maximum(shares, 0.0)).sum()) * (1 - ROUNDING)
