"""The relaxed problem of the paper: a quadratic program over links, by projected gradients."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from duckdb_dp.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.relational.blocks import Blocks

if TYPE_CHECKING:
    from torch import Tensor

_POWER = 30  # power iterations
_MARGIN = 1.02  # by which the largest singular value may be underestimated after them


def project(
    point: "Tensor", weights: "Tensor", caps: "Tensor", total: "Tensor | float", near: "Tensor | None" = None
) -> tuple["Tensor", "Tensor"]:
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
    import torch

    target = torch.as_tensor(total, dtype=point.dtype, device=point.device).expand(len(point), 1)
    close = 1e-14 * target.abs().clamp_min(1)
    low = (-point / weights).min(1, keepdim=True).values
    high = ((caps - point) / weights).max(1, keepdim=True).values
    y = (torch.zeros_like(low) if near is None else near).clamp(low, high)
    for _ in range(200):
        x = torch.addcmul(point, y, weights).clamp_min_(0)
        torch.minimum(x, caps, out=x)
        over = x.sum(1, keepdim=True) - target
        if bool((over.abs() <= close).all()):
            break
        high = torch.where(over > 0, y, high)
        low = torch.where(over > 0, low, y)
        slope = (weights * ((x > 0) & (x < caps))).sum(1, keepdim=True)
        newton = y - over / slope.clamp_min(1e-300)
        step = torch.where((newton > low) & (newton < high), newton, (low + high) / 2)
        if bool((step == y).all()):
            break
        y = step
    return _settle(x, caps, target), y


def _settle(x: "Tensor", caps: "Tensor", target: "Tensor") -> "Tensor":
    """Move what rounding left of the sum to the entries, in proportion to their room, where Newton's steps could not."""
    for _ in range(3):
        missing = target - x.sum(1, keepdim=True)
        if bool((missing.abs() <= 1e-14 * target.abs().clamp_min(1)).all()):
            break
        room = (missing > 0) * (caps - x) + (missing < 0) * x
        share = (missing.abs() / room.sum(1, keepdim=True).clamp_min(1e-300)).clamp_max(1)
        x = (x + missing.sign() * share * room).clamp_min(0).minimum(caps)
    return x


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A measured marginal: counts of links, and how much a squared error in them weighs."""

    clique: Clique
    counts: Array
    weight: float = 1.0


@final
class Queries:
    """All queries of some marginals as one linear map Q from blocks to answers; marginals share their left sums."""

    def __init__(self, blocks: Blocks, targets: Sequence[Target]) -> None:
        import torch

        groups: dict[Clique, list[Target]] = {}
        for target in targets:
            groups.setdefault(blocks.split(target.clique)[0], []).append(target)
        self.parts, answers, weights = [], [], []
        for left, members in groups.items():
            rights = [blocks.split(target.clique)[1] for target in members]
            self.parts.append((blocks.indicator(left), torch.cat([blocks.indicator(r, right=True) for r in rights], 1)))
            tables = [_matrix(blocks, target) for target in members]
            answers.append(blocks.tensor(np.concatenate(tables, 1)))
            scales = [np.full(table.shape[1], target.weight) for table, target in zip(tables, members, strict=True)]
            weights.append(blocks.tensor(np.concatenate(scales))[None, :])
        self.answers, self.weights = answers, weights

    def gradient(self, links: "Tensor", answers: Sequence["Tensor | float"] | None = None) -> tuple[float, "Tensor"]:
        """(sum weight ||Q x - answers||^2 / 2, its gradient)."""
        import torch

        value, slope = 0.0, torch.zeros_like(links)
        for (left, right), wanted, weight in zip(self.parts, answers or self.answers, self.weights, strict=True):
            gap = left.T @ links @ right - wanted
            value += 0.5 * float((weight * gap**2).sum())
            slope.addmm_(left @ (weight * gap), right.T)
        return value, slope

    def curvature(self, root: "Tensor") -> float:
        """The largest eigenvalue of D Q^T W Q D, with D the given diagonal, by power iteration."""
        import torch

        start = np.random.default_rng(0).random(tuple(root.shape))
        vector, largest = torch.as_tensor(start, dtype=root.dtype, device=root.device), 0.0
        for _ in range(_POWER):
            vector /= torch.linalg.norm(vector)
            vector = root * self.gradient(root * vector, [0.0] * len(self.parts))[1]
            largest = float(torch.linalg.norm(vector))
        return _MARGIN * largest


def _matrix(blocks: Blocks, target: Target) -> Array:
    left, right = blocks.split(target.clique)
    table = target.counts.reshape(blocks.domain.shape(target.clique))
    turned = table.transpose([target.clique.index(name) for name in left + right])
    return turned.reshape(blocks.domain.cells(left), blocks.domain.cells(right))


def solve(
    queries: Queries,
    start: "Tensor",
    caps: "Tensor",
    total: "Tensor | float",
    *,
    each: bool = False,
    steps: int = 300,
    tolerance: float = 1e-9,
    accelerate: bool = True,
) -> "Tensor":
    r"""argmin sum weight ||Q x - a||^2 / 2 subject to 0 <= x <= caps and sum x = total.

    Projected gradient in the metric sum x^2 / caps, in which a block of equal pairs of rows moves as each of its pairs
    does in the paper; step 1 / (largest eigenvalue), by power iteration; Nesterov's acceleration, begun anew whenever
    it points uphill. Every iterate satisfies the constraints.

    Args:
        queries: Q, answers and weights.
        start: where to begin, shape (K, L).
        caps: pairs of rows per block, positive.
        total: of all blocks, or with ``each`` of every row, shape (K, 1).
        each: whether the sum of every row is given.
        steps: at most.
        tolerance: relative change at which to stop.
        accelerate: False is plain projected gradient descent, as in the paper.

    Source: [RS25] Alg. 2 and Appendix C; the restart is O'Donoghue and Candes'.

    Privacy: post-processing.
    """
    shape = start.shape if each else (1, start.numel())

    bounds, near = caps.reshape(shape), None

    def onto(point: "Tensor") -> "Tensor":
        nonlocal near
        found, near = project(point.reshape(shape), bounds, bounds, total, near)
        return found.reshape(start.shape)

    step = 1 / max(queries.curvature(caps.sqrt()), 1e-300)
    best, momentum = onto(start), 1.0
    ahead = best
    for _ in range(steps):
        found = onto(ahead - step * caps * queries.gradient(ahead)[1])
        moved = found - best
        if accelerate and float(((ahead - found) * moved / caps).sum()) <= 0:
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            ahead, momentum = found + (momentum - 1) / following * moved, following
        else:
            ahead, momentum = found, 1.0
        best = found
        if float(moved.abs().sum()) <= tolerance * float(found.sum()):
            break
    return best
