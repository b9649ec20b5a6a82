"""The relaxed problem of [RS25], a quadratic program over links, solved by projected gradients."""

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.blocks import Blocks

_POWER = 30  # power iterations
_MARGIN = 1.02  # by which the largest singular value may be underestimated after them


def project(
    point: Array, weights: Array, caps: Array, total: Array | float, near: Array | None = None
) -> tuple[Array, Array]:
    r"""The nearest x with 0 <= x <= caps and sum x = total, in the metric sum (x - point)^2 / weights.

    x = clip(point + y weights, 0, caps): one number y solves a piecewise linear, increasing equation. Newton steps are
    exact on its pieces; bisection keeps them in bounds. The last rounding error goes to entries that have room.

    Args:
        point: shape (R, N): R problems of their own.
        weights: the metric, positive, shape (R, N).
        caps: upper bounds, shape (R, N).
        total: shape (R, 1), or one number; within what the bounds allow.
        near: where to look for y first, shape (R, 1): the y of a point nearby.

    Returns:
        x, and its y, shape (R, 1).

    Source: [RS25] Theorem 2, in a weighted metric.
    """
    target = np.broadcast_to(np.asarray(total, dtype=np.float64), (len(point), 1))
    close = 1e-14 * np.maximum(np.abs(target), 1)
    low = (-point / weights).min(1, keepdims=True)
    high = ((caps - point) / weights).max(1, keepdims=True)
    y = np.clip(np.zeros_like(low) if near is None else near, low, high)
    for _ in range(200):
        x = np.minimum(np.maximum(point + y * weights, 0), caps)
        over = x.sum(1, keepdims=True) - target
        if (np.abs(over) <= close).all():
            break
        high = np.where(over > 0, y, high)
        low = np.where(over > 0, low, y)
        slope = (weights * ((x > 0) & (x < caps))).sum(1, keepdims=True)
        newton = y - over / np.maximum(slope, 1e-300)
        step = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
        if (step == y).all():
            break
        y = step
    return _settle(x, caps, target), y


def _settle(x: Array, caps: Array, target: Array) -> Array:
    """Move what rounding left of the sum to the entries, in proportion to their room, where Newton's steps could not."""
    for _ in range(3):
        missing = target - x.sum(1, keepdims=True)
        if (np.abs(missing) <= 1e-14 * np.maximum(np.abs(target), 1)).all():
            break
        room = np.where(missing > 0, caps - x, np.where(missing < 0, x, 0.0))
        share = np.minimum(np.abs(missing) / np.maximum(room.sum(1, keepdims=True), 1e-300), 1)
        x = np.minimum(np.maximum(x + np.sign(missing) * share * room, 0), caps)
    return x


@final
class Queries:
    """All cells of some marginals as one linear map Q from links per block to answers; marginals share their left sums.

    Args:
        blocks: the blocks.
        measured: the marginals, measured cell by cell, all with the same noise.
        scale: share of the links that these blocks stand for, by which the answers are scaled.
    """

    def __init__(self, blocks: Blocks, measured: Sequence[LinearMeasurement], scale: float = 1.0) -> None:
        groups: dict[Clique, list[LinearMeasurement]] = {}
        for one in measured:
            groups.setdefault(blocks.split(one.clique)[0], []).append(one)
        self.parts, self.answers = list[tuple[Array, Array]](), list[Array]()
        for left, members in groups.items():
            rights = [blocks.indicator(blocks.split(one.clique)[1], right=True) for one in members]
            self.parts.append((blocks.indicator(left), np.concatenate(rights, 1)))
            self.answers.append(np.concatenate([_matrix(blocks, one) * scale for one in members], 1))

    def gradient(self, links: Array, answers: Sequence[Array | float] | None = None) -> tuple[float, Array]:
        """(||Q x - answers||^2 / 2, its gradient)."""
        value, slope = 0.0, np.zeros_like(links)
        for (left, right), wanted in zip(self.parts, answers or self.answers, strict=True):
            gap = left.T @ links @ right - wanted
            value += 0.5 * float((gap**2).sum())
            slope += left @ gap @ right.T
        return value, slope

    def curvature(self, root: Array) -> float:
        """The largest eigenvalue of D Q^T Q D, with D the given diagonal, by power iteration."""
        vector, largest = np.random.default_rng(0).random(root.shape), 0.0
        for _ in range(_POWER):
            vector /= np.linalg.norm(vector)
            vector = root * self.gradient(root * vector, [0.0] * len(self.parts))[1]
            largest = float(np.linalg.norm(vector))
        return _MARGIN * largest


def _matrix(blocks: Blocks, noisy: LinearMeasurement) -> Array:
    """The answers as a matrix, shape (cells of the left attributes, cells of the right ones)."""
    left, right = blocks.split(noisy.clique)
    table = noisy.answers.reshape(blocks.domain.shape(noisy.clique))
    turned = table.transpose([noisy.clique.index(name) for name in left + right])
    return turned.reshape(blocks.domain.cells(left), blocks.domain.cells(right))


def solve(
    queries: Queries,
    start: Array,
    caps: Array,
    total: Array | float,
    *,
    one_parent: bool = False,
    steps: int = 300,
    tolerance: float = 1e-9,
    accelerate: bool = True,
) -> Array:
    r"""argmin ||Q x - a||^2 / 2 subject to 0 <= x <= caps and sum x = total.

    Projected gradient in the metric sum x^2 / caps, in which a block of equal pairs of rows moves as each of its pairs
    does in the paper; step 1 / (largest eigenvalue), by power iteration; Nesterov's acceleration, begun anew whenever
    it points uphill. Every iterate satisfies the constraints.

    Args:
        queries: Q and the answers a.
        start: where to begin, shape (K, L).
        caps: pairs of rows per block, positive.
        total: of all blocks, or with ``one_parent`` of every row, shape (K, 1).
        one_parent: whether the sum of every row is given.
        steps: at most.
        tolerance: relative change at which to stop.
        accelerate: False is plain projected gradient descent, as in the paper.

    Source: [RS25] Alg. 2 and Appendix C; the restart is O'Donoghue and Candes'.

    Privacy: post-processing.
    """
    shape = start.shape if one_parent else (1, start.size)

    bounds, near = caps.reshape(shape), None

    def onto(point: Array) -> Array:
        nonlocal near
        projected, near = project(point.reshape(shape), bounds, bounds, total, near)
        return projected.reshape(start.shape)

    step = 1 / max(queries.curvature(np.sqrt(caps)), 1e-300)
    best, momentum = onto(start), 1.0
    ahead = best
    for _ in range(steps):
        projected = onto(ahead - step * caps * queries.gradient(ahead)[1])
        moved = projected - best
        if accelerate and float(((ahead - projected) * moved / caps).sum()) <= 0:
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            ahead, momentum = projected + (momentum - 1) / following * moved, following
        else:
            ahead, momentum = projected, 1.0
        best = projected
        if float(np.abs(moved).sum()) <= tolerance * float(projected.sum()):
            break
    return best
