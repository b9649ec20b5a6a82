"""The certified strategy for prefixes, suffixes or all ranges of some thousand cells, without an eigendecomposition.

The inverse of the Gram matrix G of these queries is a second difference T (``second_difference``), tridiagonal. So is
K = M^-1 with M = L^(1/2) G L^(1/2), whatever the weights L = diag(lambda), and with u = log t

    M^(1/2) = K^(-1/2) = (2 / pi) integral of t (K + t^2)^-1 du,   t / (k + t^2) = k^(-1/2) sech(u - log(k) / 2) / 2.

All terms are positive definite, so that a sum over a grid of step h is within a factor 1 +- 2 sum_m sech(pi^2 m / h) of
the integral on every eigenvector (Poisson's formula), and a part of the sum, divided by the upper factor, proves a
lower bound. Diagonals of (K + t^2)^-1 take O(n), so that the fixed point lambda <- lambda v^2 of ``strategy`` does too:
v = diag(K^(-1/2)) / lambda. Only the matrix at the end takes more: Z = (K + t^2)^-1 is Z_ii r_i ... r_(j-1) right of the
diagonal, so that n^2 numbers are products of matrices with one column for each t; the strategy is a Cholesky
factor of V, and

    error = tr(G V^-1) = tr(X K^(1/2)),  X = L^(1/2) D G D L^(1/2),   V = D^-1 L^(-1/2) K^(-1/2) L^(-1/2) D^-1,

for D^2 = diag(v), with K^(1/2) = K K^(-1/2): within the same factor.
"""

import math

import numpy as np

from duckdb_dp.linop import Array
from duckdb_dp.linop.threads import one_thread
from duckdb_dp.optimize.strategy import Strategy

KINDS = ("prefix", "suffix", "range")
"""Queries with such a Gram matrix."""

COARSE, BEYOND = 0.7, 13.0
"""Step of the grid in log t, and how far it reaches beyond the logarithms of the roots of K's eigenvalues, for weights:
to 4e-6."""

FINE, FAR = 0.5, 19.0
"""The same for a strategy and for a bound: to 1e-8."""

MANY = 16_384
"""Cells beyond which a bound to 1e-5 will do: in half the time and memory, 0.15 GB on 100,000 cells."""

ROUNDING = 1e-14
"""Times n^2 is taken from a bound: a hundred times the relative rounding of the smallest eigenvalue."""

STEPS = 15
"""Most steps: prefixes need 12, ranges 3."""

SPREAD = 1e-7
"""Variance of log v at which the strategy is well within 1e-5 of the bound."""

BLOCK = 64
"""Rows that share a reference point, so that no product of ratios overflows."""


def second_difference(kind: str, n: int) -> tuple[Array, float]:
    """(diagonal, unit): unit G^-1 has this diagonal, and -1 beside it."""
    diagonal = np.full(n, 2.0)
    if kind == "prefix":
        diagonal[0] = 1.0
    elif kind == "suffix":
        diagonal[-1] = 1.0
    return diagonal, float(n + 1 if kind == "range" else 1)


def kind_of(gram: Array) -> tuple[str, float] | None:
    """(kind, c) where G is c times the Gram matrix of all queries of a kind, up to rounding."""
    cell = np.arange(len(gram), dtype=np.float64)
    for kind in KINDS:
        first, last = _pair(kind, len(gram))
        scale = float(gram[0, 0]) / float(first[0] * last[0])
        limit = 1e-13 * scale * float((first * last).max())
        if scale > 0 and all(
            np.abs(
                gram[i] - scale * first[np.minimum(i, cell).astype(int)] * last[np.maximum(i, cell).astype(int)]
            ).max()
            <= limit
            for i in range(len(gram))
        ):
            return kind, scale
    return None


def solve(kind: str, n: int) -> Strategy:
    """The Gaussian strategy of least total squared error for all queries of a kind, to a gap of about 1e-5.

    Privacy: post-processing of public queries.
    """
    diagonal, unit = second_difference(kind, n)
    weights, step = np.full(n, 1 / n), 0
    with one_thread(with_scipy=True):
        while step < STEPS:
            step += 1
            v = half_diagonal(diagonal, weights) / weights
            v /= weights @ v
            if float(weights @ np.log(v) ** 2) < SPREAD:
                break
            weights = weights * v**2
            weights /= weights.sum()
        matrix, error = _strategy(kind, diagonal, weights)
    return Strategy(matrix=matrix, primal=error, dual=least(diagonal, weights) * unit, weights=weights, steps=step)


def least(diagonal: Array, weights: Array) -> float:
    """A proved lower bound of tr(M^(1/2))^2 for weights of sum 1 and unit 1; no eigenvalue of K is below 1 / tr M >= 1 / n."""
    step, beyond = (FINE, FAR) if len(weights) <= MANY else (COARSE, BEYOND)
    excess = 1 + 2 * sum(1 / math.cosh(math.pi**2 * m / step) for m in range(1, 5)) + 1e-15
    return (
        float(half_diagonal(diagonal, weights, step, beyond).sum()) / excess * (1 - ROUNDING * len(weights) ** 2)
    ) ** 2


def half_diagonal(diagonal: Array, weights: Array, step: float = COARSE, beyond: float = BEYOND) -> Array:
    """diag(K^(-1/2))."""
    k_diagonal, beside, highest = _scaled(diagonal, weights)
    logs = np.arange(-math.log(len(weights)) / 2 - beyond, highest + beyond, step)
    pivots, taken = _eliminated(k_diagonal, beside, np.exp(2 * logs))
    pivots[:-1] -= taken
    return np.asarray((1 / pivots) @ np.exp(logs) * (2 / math.pi * step), dtype=np.float64)


def _eliminated(diagonal: Array, beside: Array, shifts: Array) -> tuple[Array, Array]:
    """Pivots of K + s from the top, shape (n, shifts), and what elimination from the bottom takes from each but the last."""
    n = len(diagonal)
    down = diagonal[:, None] + shifts
    up = down.copy()
    taken = np.empty((n - 1, len(shifts)))
    for i in range(1, n):
        down[i] -= beside[i - 1] / down[i - 1]
    for i in range(n - 2, -1, -1):
        np.divide(beside[i], up[i + 1], out=taken[i])
        up[i] -= taken[i]
    return down, taken


def _scaled(diagonal: Array, weights: Array) -> tuple[Array, Array, float]:
    """K's diagonal, the squares beside it, and half the logarithm of a bound on its eigenvalues."""
    scaled = diagonal / weights
    return scaled, 1 / (weights[:-1] * weights[1:]), math.log(4 * float(scaled.max())) / 2


def _strategy(kind: str, diagonal: Array, weights: Array) -> tuple[Array, float]:
    """B with columns of length 1, upper triangular, and its error."""
    from scipy.linalg import cholesky  # 0.1 s: only who plans pays for it

    half = _half(diagonal, weights)
    outer = 1 / np.sqrt(half.diagonal())  # 1 / (D_ii sqrt(lambda_i))
    error = _error(kind, half, diagonal, weights, outer)
    half *= outer
    half *= outer[:, None]
    matrix = np.ascontiguousarray(cholesky(half.T, overwrite_a=True, check_finite=False), dtype=np.float64)
    matrix.setflags(write=False)
    return matrix, error


def _half(diagonal: Array, weights: Array) -> Array:
    """K^(-1/2), shape (n, n)."""
    n = len(weights)
    k_diagonal, beside, highest = _scaled(diagonal, weights)
    logs = np.arange(-math.log(n) / 2 - FAR, highest + FAR, FINE)
    pivots, taken = _eliminated(k_diagonal, beside, np.exp(2 * logs))
    # Z_ij = Z_ii r_i ... r_(j-1): solving upwards, Z_i,j+1 = Z_ij * |K_j,j+1| / (pivot of j + 1 from the bottom).
    fall = np.concatenate([np.zeros((1, len(logs))), np.cumsum(np.log(taken / np.sqrt(beside)[:, None]), axis=0)])
    pivots[:-1] -= taken
    own = 2 / math.pi * FINE * np.exp(logs) / pivots
    found = np.empty((n, n))
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        for i in range(start, stop):
            found[i, i:stop] = np.exp(fall[i:stop] - fall[i]) @ own[i]
            found[i:stop, i] = found[i, i:stop]
        if stop < n:
            left = own[start:stop] * np.exp(fall[stop] - fall[start:stop])
            found[start:stop, stop:] = left @ np.exp(fall[stop:] - fall[stop]).T
            found[stop:, start:stop] = found[start:stop, stop:].T
    return found


def _error(kind: str, half: Array, diagonal: Array, weights: Array, outer: Array) -> float:
    """tr(X K K^(-1/2)) for X_ij = G_ij / (outer_i outer_j), G_ij = first_min last_max."""
    first, last = _pair(kind, len(weights))
    first, last = first / outer, last / outer
    k_diagonal, beside = diagonal / weights, 1 / np.sqrt(weights[:-1] * weights[1:])
    total = 0.0
    for start in range(0, len(half), BLOCK):
        stop = min(start + BLOCK, len(half))
        rows = k_diagonal[start:stop, None] * half[start:stop]
        above, below = slice(max(start, 1) - 1, stop - 1), slice(start, min(stop, len(half) - 1))
        rows[start == 0 :] -= beside[above, None] * half[above]
        rows[: below.stop - start] -= beside[below, None] * half[start + 1 : below.stop + 1]
        inside = np.triu(rows[:, start:stop])
        total += float(first[start:stop] @ (inside @ last[start:stop] + rows[:, stop:] @ last[stop:]))
        beneath = np.tril(rows[:, start:stop], -1)
        total += float(last[start:stop] @ (beneath @ first[start:stop] + rows[:, :start] @ first[:start]))
    return total


def _pair(kind: str, n: int) -> tuple[Array, Array]:
    """(first, last) with G_ij = first_min(i,j) last_max(i,j)."""
    ones = np.ones(n)
    return (
        ones if kind == "prefix" else np.arange(1.0, n + 1),
        ones if kind == "suffix" else np.arange(float(n), 0, -1),
    )
