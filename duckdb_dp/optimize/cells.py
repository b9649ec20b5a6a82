"""A workload reduced to its distinct cells, in independent blocks.

The strategy problem sees a cell i only through its row s_i of S (G = S S^T). Three reductions keep the optimum:

* a cell that no query touches (s_i = 0) gets no weight and no column;
* cells with s_i = +-s_j act as one, whose weight is the sum of theirs: a + b <= c on [50]^2 has 99 distinct cells among
  2,500, and |a - b| <= c has 50;
* where G is its own mirror image (i <-> n - 1 - i: ranges, anything centred, affine and abs in row-major order), the
  even and the odd parts of S are orthogonal: two blocks of half the rank, and mirrored cells act as one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from duckdb_dp.errors import DPError

Array = npt.NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """The p distinct cells of a workload on n cells, in blocks b with G = sum of expand(b) expand(b)^T.

    Attributes:
        blocks: S_b, shapes `(p, r_b)`, of full column rank. No blocks: an all-zero workload.
        label: The distinct cell of each cell, shape `(n,)`; -1 where no query touches it.
        signs: Entries +-1, shape `(blocks, n)`: the row of cell i in block b is `signs[b, i] * S_b[label[i]]`.

    Privacy: built from queries, never from data.
    """

    blocks: tuple[Array, ...]
    label: npt.NDArray[np.intp]
    signs: Array

    def expand(self, block: int, rows: Array) -> Array:
        """The `(m, p)` rows of one block as `(m, n)` rows over all cells."""
        return np.where(self.label >= 0, self.signs[block] * rows[:, self.label], 0.0)


def reduce_gram(gram: Array) -> Cells:
    """Reduce G, shape `(n, n)`.

    Rank is decided at n eps of the largest diagonal entry, so singular values of S below about 1e-7 of the largest are
    taken for rounding: with weights spread that far, give a factor instead.

    Raises:
        DPError: If G is not symmetric, or has a negative eigenvalue beyond rounding.

    Privacy: post-processing of public queries.
    """
    scale = float(np.abs(gram).max(initial=0.0))
    if np.abs(gram - gram.T).max(initial=0.0) > 1e-9 * scale:
        raise DPError("The Gram matrix of a workload is symmetric, and this one is not: give G = S S^T.")
    tolerance = len(gram) * _EPS * scale
    halves = _mirror_gram(gram, tolerance)
    keep, label, signs = _merge(halves, [np.diag(half) > tolerance for half in halves])
    blocks = [_pivoted_cholesky(half[np.ix_(keep, keep)], tolerance) for half in halves]
    for half, block, sign in zip(halves, blocks, signs, strict=True):
        rows = np.where(label[:, None] >= 0, sign[:, None] * block[label], 0.0) if len(block) else np.zeros_like(half)
        # |G_ij| <= sqrt(G_ii G_jj), and a diagonal entry up to n eps of the largest may have been dropped: its root.
        if np.abs(half - rows @ rows.T).max(initial=0.0) > 4 * np.sqrt(tolerance * scale):
            raise DPError("A workload's Gram matrix has no negative eigenvalue, and this one has: give G = S S^T.")
    return _unfold(len(gram), blocks, label, signs)


def reduce_factor(factor: Array) -> Cells:
    """Reduce S, shape `(n, r)`: cells by queries, each query's column scaled by the root of its weight.

    Privacy: post-processing of public queries.
    """
    n, r = factor.shape
    if r > n:
        factor = _triangle(factor.T).T
    halves = _mirror_factor(factor)
    sizes = [np.linalg.norm(half, axis=1) for half in halves]
    tolerance = max(n, r) * _EPS * max(size.max(initial=0.0) for size in sizes)
    keep, label, signs = _merge(halves, [size > tolerance for size in sizes])
    parts = [np.linalg.svd(half[keep], full_matrices=False) for half in halves]
    cut = max(n, r) * _EPS * max(sigma.max(initial=0.0) for _, sigma, _ in parts)
    return _unfold(n, [u[:, sigma > cut] * sigma[sigma > cut] for u, sigma, _ in parts], label, signs)


def _mirror_gram(gram: Array, tolerance: float) -> list[Array]:
    """The even and odd parts of G on one half of the cells, or G itself where it is not its own mirror image."""
    n, h = len(gram), (len(gram) + 1) // 2
    if n < 2 or np.abs(gram - gram[::-1, ::-1]).max() > tolerance:
        return [gram]
    mirrored = gram[::-1]
    return [((gram + mirrored) / 2)[:h, :h], ((gram - mirrored) / 2)[:h, :h]]


def _mirror_factor(factor: Array) -> list[Array]:
    """The even and odd parts of S on one half of the cells, or S itself where S S^T is not its own mirror image."""
    n, h = len(factor), (len(factor) + 1) // 2
    even, odd = ((factor + factor[::-1]) / 2)[:h], ((factor - factor[::-1]) / 2)[:h]
    # S S^T is its own mirror image iff E O^T = 0; with E = Q R and O = Q' R' iff R R'^T = 0, which is r x r.
    cross = _triangle(even) @ _triangle(odd).T
    if n < 2 or np.abs(cross).max() > n * _EPS * float(np.square(factor).sum()):
        return [factor]
    return [even, odd]


def _merge(
    halves: list[Array], touched: list[npt.NDArray[np.bool_]]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Array]:
    """Group the rows that agree in every block up to a sign per block.

    Rows are sorted by their products with a fixed generic vector and each is compared in full with the first of its
    run, so a chance meeting of products costs time and never correctness.

    Returns:
        One row per group; the group of each row, -1 where no block is touched; the signs, shape `(blocks, rows)`.
    """
    products = np.array([half @ np.cos(np.arange(half.shape[1]) ** 1.5) for half in halves])
    signs = np.where(products < 0, -1.0, 1.0)
    alive = np.any(touched, axis=0)
    key = np.abs(products).T @ (1.0 + np.arange(len(halves)) * np.sqrt(0.5))
    order = np.flatnonzero(alive)[np.argsort(key[alive], kind="stable")]
    starts = np.diff(key[order], prepend=-1.0) > 1e-9 * key[order]
    first = order[starts][np.cumsum(starts) - 1]
    gap, size = np.zeros(len(order)), np.zeros(len(order))
    for half, sign in zip(halves, signs, strict=True):
        rows, leaders = half[order] * sign[order, None], half[first] * sign[first, None]
        gap = np.maximum(gap, np.abs(rows - leaders).max(axis=1, initial=0.0))
        size = np.maximum(size, np.abs(leaders).max(axis=1, initial=0.0))
    starts |= gap > max(len(alive), 64) * _EPS * size
    # A row that is not its leader's equal becomes a group of its own, without taking the rows after it along.
    leader = np.where(starts, order, first)
    keep, group = np.unique(leader, return_inverse=True)
    label = np.full(len(alive), -1, dtype=np.intp)
    label[order] = group
    signs[:, order] *= signs[:, leader]
    return keep, label, signs


def _triangle(matrix: Array) -> Array:
    """R of the QR decomposition."""
    return np.asarray(np.linalg.qr(matrix, "r"), dtype=np.float64)


def _pivoted_cholesky(gram: Array, tolerance: float) -> Array:
    """S of full column rank with S S^T = G up to `tolerance` on the diagonal: rank-revealing, n r^2 operations."""
    from scipy.linalg.lapack import dpstrf  # 0.1 s: only who plans pays for it

    if not len(gram):
        return gram
    packed, pivots, rank, _ = dpstrf(gram, tol=max(tolerance, np.finfo(np.float64).tiny), lower=1)
    factor = np.empty((len(gram), rank))
    factor[pivots - 1] = np.tril(packed)[:, :rank]
    return factor


def _unfold(n: int, blocks: list[Array], label: npt.NDArray[np.intp], signs: Array) -> Cells:
    """Undo the mirror: cells of the other half take their partner's label, with the other sign in the odd block."""
    if len(blocks) == 2:
        partner = np.minimum(np.arange(n), n - 1 - np.arange(n))
        label, signs = label[partner], signs[:, partner]
        signs[1, (n + 1) // 2 :] *= -1
    used = [b for b, block in enumerate(blocks) if block.shape[1]]
    return Cells(blocks=tuple(blocks[b] for b in used), label=label, signs=signs[used])
