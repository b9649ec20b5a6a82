"""A proved bound for all ranges of one wide width on many cells, next to the optimum of all strategies.

The bound is ``strategy.solve``'s: no strategy of L2 sensitivity 1 has an error below tr(M^(1/2))^2, M = W L W^T, L = diag(lambda).

*Weights.* Those of the optimum on some hundred cells are spread over the fine ones. Cells i, i + w, i + 2 w, ... hang together, so that
coarse cells begin at the same places of every w cells, and at the remainder of n by w, where the weights jump. The bound is of
second order in what the weights are off by: it is 0.1 % below the optimum.

*The trace.* The integral of log(1 + s^2 / t^2) over t > 0 is pi s, so that

    tr(M^(1/2)) = (1 / pi) integral of log det(1 + M / t^2) dt = (1 / pi) integral of e^u log det(1 + M e^(-2u)) du.

For one singular value the transform of the integrand, integral of e^u log(1 + s^2 e^(-2u)) e^(-i v u) du, is
s^(1 - i v) pi / ((1 - i v) cosh(pi v / 2)). By Poisson's formula a sum over a grid of step h is within a factor 1 +- 2 sum_m
1 / (|1 - 2 pi i m / h| cosh(pi^2 m / h)) of the integral. All terms are positive: a part of the sum, over the upper factor, proves a lower
bound. Where t is large, det(1 + X) >= 1 + tr X serves.

*The determinant.* With y the windows, take y_0 and the differences y_(k+1) - y_k, a change of basis of determinant 1. Difference k is
cell k + w less cell k, so that among them M has lambda_k + lambda_(k+w) on the diagonal and -lambda_(k+w) between k and k + w, and
nothing else; 1 becomes a second difference. In the order of k mod w, then k, both are within n / w of the diagonal, but for y_0 and
for what goes from the last residue to the first: these n / w + 2 are a border, whose Schur complement is small. O(n (n / w)^2) for
each t.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.linop import Array
from duckdb_dp.linop.threads import one_thread
from duckdb_dp.optimize.strategy import Strategy, solve

Integers = NDArray[np.intp]

COARSE = 400
"""Cells of the problem whose optimum the weights are taken from: 160 lower the bound by 0.02 to 1.3 %, 800 raise it by 0.2 % at most."""

FLOOR = 2e-4
"""Of the weights is spread evenly, so that no determinant is next to 0: costs half as much of the bound at most."""

STEP = 1.0
"""Of the grid in log t: the factor is 3e-5."""

LEAST, FAR = 5e-6, 1e5
"""The grid's ends, beside the mean of sqrt(M)'s eigenvalues, and sqrt(tr M): what is beyond is 1e-4 and 1e-5 of the integral."""

LARGE = 100.0
"""t^2 over tr M from which det(1 + X) >= 1 + tr X loses less than 1 % of what is left."""

ROUNDING = 1e-7
"""Taken from the bound. A determinant's logarithm is off by about 1e-16 n times the condition of the matrix, 1e7, at most, and adds up to
n times 10."""


def least(width: int, n: int) -> float:
    """No strategy of L2 sensitivity 1 has a smaller error on all ranges of a width on n cells.

    Privacy: post-processing of public queries.
    """
    if width == n:
        return 1 - ROUNDING
    with one_thread(with_scipy=True):
        weights = (1 - FLOOR) * spread(width, n) + FLOOR / n
        return trace(width, weights) ** 2 * (1 - ROUNDING)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Coarse:
    """The optimum on coarse cells.

    Attributes:
        inside: sizes of those of the first n mod w of every w cells.
        beyond: sizes of those of the others.
        sizes: of all of them.
        factor: S, shape (cells, windows): each window stands for the fine ones that begin nearest to it.
        found: the strategy.
    """

    inside: Integers
    beyond: Integers
    sizes: Integers
    factor: Array
    found: Strategy


@lru_cache(maxsize=4)  # the bound and the strategy are of one
def coarse(width: int, n: int) -> Coarse:
    """The optimum on about ``COARSE`` cells, at the same places in every w."""
    chain, rest = divmod(n, width)
    pieces = max(2, COARSE // chain)
    before = round(pieces * rest / width)
    inside = _cut(rest, before)
    beyond = _cut(width - rest, pieces - before)
    own = len(inside) + len(beyond)
    sizes = np.concatenate([np.tile(np.concatenate([inside, beyond]), chain), inside])
    windows = len(sizes) - own + 1
    cell, window = np.ogrid[: len(sizes), :windows]
    starts = np.concatenate([[0.0], sizes[: windows - 1] / 2]) + np.concatenate([sizes[: windows - 1] / 2, [0.0]])
    factor = ((cell >= window) & (cell < window + own)) * np.sqrt(starts)
    return Coarse(inside=inside, beyond=beyond, sizes=sizes, factor=factor, found=solve(factor=factor, tol=1e-3))


def spread(width: int, n: int) -> Array:
    """Weights of sum 1 on n cells, from the optimum on fewer."""
    (chain, rest), few = divmod(n, width), coarse(width, n)
    density = few.found.weights / few.sizes
    middle = np.cumsum(few.sizes) - few.sizes / 2
    edges = sorted({edge for k in range(chain + 1) for edge in (k * width, k * width + rest) if edge < n} | {n})
    found = np.empty(n)
    for low, high in itertools.pairwise(edges):
        own = (middle > low) & (middle < high)
        found[low:high] = np.interp(np.arange(low, high) + 0.5, middle[own], density[own])
    return np.asarray(found / found.sum(), dtype=np.float64)


def _cut(length: int, pieces: int) -> Integers:
    """Sizes of nearly equal pieces of a length: at least one, and none is empty."""
    edges = np.linspace(0, length, min(length, max(pieces, 1)) + 1).round().astype(np.intp)
    return np.diff(edges)


def trace(width: int, weights: Array) -> float:
    """A lower bound of tr(M^(1/2)), to about 1e-4."""
    windows = len(weights) - width + 1
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    size = float((sums[width:] - sums[:windows]).sum())
    points = np.exp(np.arange(math.log(LEAST * math.sqrt(size) / windows), math.log(FAR * math.sqrt(size)), STEP))
    values = np.log1p(size / points**2)
    near = points**2 <= LARGE * size
    weighed, plain = _bordered(width, weights)
    values[near] = [weighed.plus(plain, t * t).log_det() - 2 * windows * math.log(t) for t in points[near].tolist()]
    turns = 2 * math.pi / STEP * np.arange(1, 5)
    excess = 1 + 2 * float((1 / (np.hypot(1, turns) * np.cosh(math.pi * turns / 2))).sum()) + 1e-15
    return float(values @ points) * STEP / math.pi / excess


@final
@dataclass(frozen=True, eq=False, slots=True)
class _Bordered:
    """A symmetric matrix, banded but for its last rows and columns.

    Attributes:
        band: as LAPACK has it, lower, shape (b + 1, n).
        edge: the last columns beside it, shape (n, k).
        corner: their own rows, shape (k, k).
    """

    band: Array
    edge: Array
    corner: Array

    def plus(self, other: "_Bordered", scale: float) -> "_Bordered":
        pairs = ((self.band, other.band), (self.edge, other.edge), (self.corner, other.corner))
        return _Bordered(*(one + scale * two for one, two in pairs))

    def log_det(self) -> float:
        """log det of a positive definite one."""
        from scipy.linalg import cho_solve_banded, cholesky_banded  # 0.1 s: only who plans pays for it

        if not self.band.size:
            return float(np.linalg.slogdet(self.corner)[1])
        root = cholesky_banded(self.band, lower=True, check_finite=False)
        left = self.corner - self.edge.T @ cho_solve_banded((root, True), self.edge, check_finite=False)
        return 2 * float(np.log(root[0]).sum()) + float(np.linalg.slogdet(left)[1])


def _bordered(width: int, weights: Array) -> tuple[_Bordered, _Bordered]:
    """M and 1 in the basis of y_0 and the differences of windows."""
    n = len(weights)
    last = n - width  # differences, and the place of y_0 after them
    difference = np.arange(last)
    residue = difference % width
    order = np.argsort(np.where(residue, residue, width), kind="stable")
    inside = int(np.count_nonzero(residue))
    place = np.empty(last + 1, dtype=np.intp)
    place[order], place[last] = np.arange(last), last
    first, whole = np.arange(min(width, last)), np.array([last])
    chained, beside = np.arange(max(last - width, 0)), np.arange(max(last - 1, 0))
    weighed = [
        (difference, difference, weights[:last] + weights[width:]),
        (chained, chained + width, -weights[width : width + len(chained)]),
        (first, np.full(len(first), last), -weights[: len(first)]),
        (whole, whole, weights[:width].sum(keepdims=True)),
    ]
    plain = [
        (difference, difference, np.full(last, 2.0)),
        (beside, beside + 1, np.full(len(beside), -1.0)),
        (np.array([0]), whole, np.array([-1.0])),
        (whole, whole, np.ones(1)),
    ]
    return tuple(_split(entries, place, inside, n // width) for entries in (weighed, plain))  # type: ignore[return-value]


def _split(entries: list[tuple[Integers, Integers, Array]], place: Integers, inside: int, most: int) -> _Bordered:
    """The matrix of (row, column, value), each once, of a symmetric matrix, by their places; those from ``inside`` on are the border."""
    border = len(place) - inside
    band, edge, corner = np.zeros((most + 1, inside)), np.zeros((inside, border)), np.zeros((border, border))
    for row, column, value in entries:
        low, high = np.minimum(place[row], place[column]), np.maximum(place[row], place[column])
        own, far = high < inside, low >= inside
        beside = ~own & ~far
        band[(high - low)[own], low[own]] = value[own]
        edge[low[beside], high[beside] - inside] = value[beside]
        corner[high[far] - inside, low[far] - inside] = value[far]
        corner[low[far] - inside, high[far] - inside] = value[far]
    return _Bordered(band, edge, corner)
