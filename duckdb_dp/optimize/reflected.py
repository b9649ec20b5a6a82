"""Strategies for prefixes, suffixes and all ranges of many cells in closed form, with a proved bound.

The Gram matrix G of these queries is the inverse of a second difference with a mirror or a zero at each end, so that
every power of it depends on i - j and i + j alone: waves on a string, and their reflections. With d = diag(G^(1/2)),

    B = G^(1/4) diag(d)^(-1/2)

has columns of length 1 and error tr(G D G^(-1/2) D), D = diag(d)^(1/2). It is 0.2 % in RMSE above the bound for
prefixes of 1,000 cells, and 0.01 % for ranges.

The bound is ``strategy.solve``'s, tr(M^(1/2))^2 with M = L^(1/2) G L^(1/2), at L = diag(d^2) / sum d^2: one step from equal
weights. ``tridiagonal`` proves it in O(n).
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.linop import Array, Reflected
from duckdb_dp.optimize.tridiagonal import least, second_difference

LEAF = 512
"""Cells of a block whose sum is written out."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Found:
    """A strategy in closed form.

    Attributes:
        strategy: B, its largest column of length 1 up to rounding.
        error: tr(G (B^T B)^-1).
        bound: no strategy of L2 sensitivity 1 has a smaller error.
    """

    strategy: Reflected
    error: float
    bound: float


def closed_form(kind: str, n: int) -> Found:
    """The strategy for all queries of a kind on n cells.

    Privacy: post-processing of public queries.
    """
    near, far = power(kind, n, 0.5)
    lengths = near[0] + far[::2]  # diag(G^(1/2))
    scale = 1 / np.sqrt(lengths)
    strategy = Reflected.of(*power(kind, n, 0.25), *power(kind, n, -0.25), scale)
    diagonal, unit = second_difference(kind, n)
    bound = least(diagonal, lengths**2 / (lengths @ lengths)) * unit
    return Found(strategy=strategy, error=_error(kind, 1 / scale), bound=bound)


def power(kind: str, n: int, exponent: float) -> tuple[Array, Array]:
    """(near, far) with [G^exponent]_ij = near_|i-j| + far_(i+j).

    All ranges: G^-1 is T / (n + 1), T the second difference with zeros beyond both ends. Prefixes: T on 2 n cells, of which
    the mirrored vectors are kept. Suffixes are prefixes from the other end.
    """
    cells = n if kind == "range" else 2 * n
    period = 2 * (cells + 1)
    waves = np.arange(1, cells + 1)
    values = (4 * np.sin(waves * np.pi / period) ** 2 / (cells + 1 if kind == "range" else 1)) ** -exponent
    if kind != "range":
        values[1::2] = 0.0  # those are odd about the mirror
    both = np.concatenate([[0.0], values, [0.0], values[::-1]])
    image = np.fft.fft(both).real / period
    apart, added = np.arange(n), np.arange(2 * n - 1)
    if kind == "range":
        return image[apart], -image[(added + 2) % period]
    near = image[apart] - image[2 * n + 1 + apart]
    far = image[added + 1] - image[(2 * n + 2 + added) % period]
    return near, far if kind == "prefix" else far[::-1].copy()


def _error(kind: str, d: Array) -> float:
    """tr(G D G^(-1/2) D) = sum_ij G_ij d_i d_j [G^(-1/2)]_ij, with G_ij = a_min(i,j) b_max(i,j)."""
    n = len(d)
    first = d * (1.0 if kind == "prefix" else np.arange(1, n + 1))
    last = d * (1.0 if kind == "suffix" else np.arange(n, 0, -1))
    near, far = power(kind, n, -0.5)
    return float((first * last) @ (near[0] + far[::2])) + 2 * _above(first, last, near, far)


def _above(first: Array, last: Array, near: Array, far: Array) -> float:
    """sum_(i<j) first_i (near_(j-i) + far_(i+j)) last_j in O(n log^2 n).

    Halves of halves: i in the left half of some block and j in its right half meet in a correlation and a convolution, both
    by Fourier transforms; the smallest blocks are written out.
    """
    size = LEAF
    while size < len(first):
        size *= 2
    begin, end, near, far = (_padded(v, m) for v, m in ((first, size), (last, size), (near, size), (far, 2 * size)))
    cell = np.arange(LEAF)
    by_difference = near[np.abs(np.subtract.outer(cell, cell))]
    total = 0.0
    for start in range(0, len(first), LEAF):
        rows = np.triu(by_difference + far[2 * start + np.add.outer(cell, cell)], 1)
        total += float(begin[start : start + LEAF] @ rows @ end[start : start + LEAF])
    s = LEAF
    while s < size:
        left = np.fft.rfft(begin.reshape(-1, 2 * s)[:, :s], 2 * s)
        right = np.fft.rfft(end.reshape(-1, 2 * s)[:, s:], 2 * s)
        lags = np.fft.irfft((left.conj() * right).sum(axis=0), 2 * s)  # of j - i - s, those below 0 at the end
        total += float(lags[:s] @ near[s : 2 * s] + lags[s + 1 :] @ near[1:s])
        for start, sums in zip(range(0, size, 2 * s), np.fft.irfft(left * right, 2 * s), strict=True):
            total += float(sums @ far[2 * start + s : 2 * start + 3 * s])  # of i + j - 2 start - s
        s *= 2
    return total


def _padded(vector: Array, length: int) -> Array:
    return np.concatenate([vector, np.zeros(length - len(vector))])
