"""Strategies for wide windows on many cells, next to the optimum: that of coarse cells, and what is left for fine ones.

The Gram matrix V of the optimum is nearly self-similar. Cells i, i + w, i + 2 w, ... are a chain, and from place to place it is smooth
but for the logarithm of how near two places are, times the optimum C^T C for the differences of one chain. So it is

    V = a J^T V_c J + (1 - a) (T o C^T C),

V_c the optimum on c times fewer cells and J quadratic splines, mirrored where the length of chains changes: these share out what a
cell has as coarse cells do thrice averaged. Prefixes have the spectrum 1 / (2 |sin(f / 2)|) on the fine cells, and 1 / (2 |sin(c f / 2)|)
on the coarse ones, of which J lets s^6 through, s = |sin(c f / 2) / (c sin(f / 2))|. T has what is missing:

    (1 - s^5) / (2 sin(f / 2)) >= 0.

a is the part of the RMSE that the coarse cells have: RMSE_c / (RMSE_c + T_00 sqrt(mean of E over windows)), E the least error of a chain's
differences, over all places. Where the coarse part of V's diagonal is longer, next to the mirrors, the fine one is made shorter, so
that the columns of B would be equally long in all of a chain. They are not, as J takes more from some of its cells than from others: so
V_c is not the optimum itself, but that of weights which are raised where columns are long, and lowered where they are short.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from duckdb_dp.linop import Array, Blended, Chains, Circulant
from duckdb_dp.linop.threads import one_thread
from duckdb_dp.optimize.strategy import solve
from duckdb_dp.optimize.window_bound import Coarse, coarse

LEAST = 2.0
"""Fine cells of a coarse one where these are so few that they are the same: T is not 0."""

REACH = 8
"""Coarse cells beyond the places of a ring, for what T has of both ends."""


STEPS, POWER = 2, 4
"""How often weights are changed, and by which power of the squared lengths of columns: for up to 0.5 % less RMSE."""

FLOOR = 1e-7
"""Of the weights, beside their sum."""


def blended(width: int, n: int) -> Blended:
    """The strategy for all ranges of a width on n cells, its largest column of length 1 up to rounding.

    Privacy: post-processing of public queries.
    """
    few = coarse(width, n)
    with one_thread(with_scipy=True):
        top, weights = few.found.matrix, few.found.weights
        for _ in range(STEPS):
            lengths = _around(top, few, width, n)[1]
            starts = np.cumsum(few.sizes) - few.sizes
            weights = np.maximum(weights * (np.add.reduceat(lengths, starts) / few.sizes) ** POWER, FLOOR)
            weights /= weights.sum()
            top = _optimum(few.factor, weights)
        return _around(top, few, width, n)[0]


def _optimum(factor: Array, weights: Array) -> Array:
    """M^(-1/4) S^T as in ``strategy``, up to a rotation, its largest column of length 1."""
    squares, vectors = np.linalg.eigh(factor.T @ (weights[:, None] * factor))
    found = np.ascontiguousarray((factor @ vectors * np.maximum(squares, squares[-1] * 1e-14) ** -0.25).T)
    return np.asarray(found / np.sqrt(np.square(found).sum(axis=0).max()), dtype=np.float64)


def _around(top: Array, few: Coarse, width: int, n: int) -> tuple[Blended, Array]:
    """(B, squared lengths of its columns) for a coarse strategy."""
    (turns, rest), windows = divmod(n, width), n - width + 1
    shares, places, chains, slope, peak, first, start = [], [], [], 0.0, 0.0, 0, 0
    for length, pieces, cells in ((rest, len(few.inside), turns + 1), (width - rest, len(few.beyond), turns)):
        share, place = splines(length, pieces)
        shares.append(share)
        places.append(place + start)
        if cells > 1 and length:
            mix, least = chain(cells)
            kernel = missing(length, length / pieces)
            peak, slope = max(peak, float(kernel @ kernel)), slope + length * least
            chains.append(Chains(first, mix, Circulant(kernel / np.sqrt(kernel @ kernel), length), np.ones(length)))
        first, start = first + length, start + pieces
    small = np.sqrt(few.found.primal / windows)
    part = small / (small + peak * np.sqrt(slope / windows))
    laid = Blended(np.sqrt(part) * top, n, np.concatenate(shares), np.concatenate(places), ())
    lengths = np.zeros(-(-n // width) * width)
    lengths[:n] = laid.columns(2)
    longest = lengths.reshape(-1, width).max(axis=0)
    left = np.sqrt(np.maximum(np.median(longest) + (1 - part) - longest, (1 - part) / 10))
    lengths = lengths[:n] + _with(replace(laid, top=top[:0]), chains, left, 1.0).columns(2)
    return _with(laid, chains, left, np.sqrt(lengths.max())), lengths / lengths.max()


def _with(laid: Blended, chains: list[Chains], scale: Array, size: float) -> Blended:
    """A J with chains of a scale, all of it divided by a size."""
    scaled = (replace(one, scale=scale[one.first : one.first + one.ring.n] / size) for one in chains)
    return replace(laid, top=laid.top / size, chains=tuple(scaled))


def splines(length: int, pieces: int) -> tuple[Array, Array]:
    """(shares, coarse ones) of each of some cells in three of the coarse cells that they make up, shapes (length, 3)."""
    place = (np.arange(length) + 0.5) * pieces / length
    near = np.minimum(np.floor(place), pieces - 1)
    off = place - near - 0.5
    shares = np.stack([(0.5 - off) ** 2 / 2, 0.75 - off**2, (0.5 + off) ** 2 / 2], axis=1)
    coarse_ones = np.stack([np.maximum(near - 1, 0), near, np.minimum(near + 1, pieces - 1)], axis=1)
    return shares, coarse_ones


def missing(length: int, size: float) -> Array:
    """A circulant root of T, for coarse cells of a size: its first column."""
    from scipy.fft import next_fast_len  # 0.1 s: only who plans pays for it

    around, size = int(next_fast_len(length + int(REACH * size), real=True)), max(size, LEAST)
    half = np.pi * np.arange(1, around // 2 + 1) / around
    let_through = np.minimum(np.abs(np.sin(size * half) / (size * np.sin(half))), 1.0)
    spectrum = (1 - let_through**5) / (2 * np.sin(half))
    first = spectrum[:1] / 2 if len(spectrum) else np.ones(1)  # not 0, so that T has an inverse
    return np.asarray(np.fft.irfft(np.sqrt(np.concatenate([first, spectrum])), around), dtype=np.float64)


@lru_cache(maxsize=64)
def chain(cells: int) -> tuple[Array, float]:
    """(C, E): the optimum for the differences of a chain of cells, and its error."""
    found = solve(factor=np.diff(np.eye(cells), axis=0).T, tol=1e-8)
    return found.matrix, found.primal
