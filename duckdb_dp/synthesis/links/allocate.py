"""Which residuals to measure next, and with how much of the budget: water-filling on the predicted error of the workloads."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.links.evidence import ResidualEstimate

_FLOOR = 1e-4  # squared relative error below which a workload is as good as known
_ROUNDS = 40
_SMALLEST = 0.002  # shares below this are given to the others: a measurement costs time


def incidence(workloads: Sequence[Clique], residuals: Mapping[Clique, ResidualEstimate]) -> NDArray[np.int64]:
    """The residuals of every workload by their position among the residuals, shape (workloads, subsets), padded with -1."""
    position = {clique: i for i, clique in enumerate(residuals)}
    rows = [[position[s] for s in subsets(workload) if s in position] for workload in workloads]
    table = np.full((len(rows), max(map(len, rows), default=1)), -1, dtype=np.int64)
    for row, positions in zip(table, rows, strict=True):
        row[: len(positions)] = positions
    return table


def allocate(
    residuals: Mapping[Clique, ResidualEstimate],
    within: NDArray[np.int64],
    *,
    allowed: Collection[Clique],
    rho: float,
    total: float,
    degree: int,
) -> dict[Clique, float]:
    r"""Split rho over residuals so that the predicted error of all workloads together is least.

    A residual A of dispersion t contributes V_A = (coordinates t / N) / (1 + precision t N / cells) to the squared
    relative error of a workload, and its precision grows by 2 rho_A / (d^2 sensitivity). Minimises
    sum over workloads of sqrt(sum of V_A): for fixed weights 1 / (2 sqrt(..)) that is water-filling, in closed form up
    to its level, and the weights are updated until they converge.

    Args:
        residuals: the estimates of all residuals.
        within: ``incidence`` of the workloads.
        allowed: which may be measured.
        rho: what is to be spent.
        total: N, links.
        degree: d, links of one protected entity.

    Returns:
        clique -> its share of rho, for those that get one.

    Privacy: depends on noisy answers and public facts only.
    """
    t = np.array([residual.optimistic_dispersion for residual in residuals.values()])
    gain = t * total / np.array([residual.cells for residual in residuals.values()])
    size = np.array([residual.coordinates for residual in residuals.values()]) * t / total
    per_rho = gain * 2 / (degree**2 * np.array([residual.sensitivity for residual in residuals.values()]))
    known = 1 + gain * np.array([residual.precision for residual in residuals.values()])
    open_ = np.array([clique in allowed for clique in residuals])
    spent = np.zeros(len(residuals))
    for _ in range(_ROUNDS):
        weights = _weights(size / (known + per_rho * spent), within)
        new = _fill(np.where(open_, weights * size * per_rho, 0), known, per_rho, rho)
        moved = np.abs(new - spent).sum()
        spent = (spent + new) / 2
        if moved < 0.01 * rho:
            break
    spent[spent < min(_SMALLEST * rho, spent.max() / 2)] = 0
    spent *= rho / spent.sum()
    return {clique: float(share) for clique, share in zip(residuals, spent, strict=True) if share > 0}


def _weights(errors: Array, within: NDArray[np.int64]) -> Array:
    """How much the sum of the workloads' errors falls with each residual's squared error."""
    padded = np.append(errors, 0.0)
    slope = 0.5 / np.sqrt(_FLOOR + padded[within].sum(1))
    weights = np.bincount(within.reshape(-1) % len(padded), np.repeat(slope, within.shape[1]), len(padded))
    return np.asarray(weights[:-1], dtype=np.float64)


def _fill(worth: Array, known: Array, per_rho: Array, rho: float) -> Array:
    """argmin sum worth / (per_rho (known + per_rho x)) with sum x = rho, x >= 0: x = (sqrt(worth / l) - known)+ / per_rho.

    With the residuals in the order in which they come in, the level of each prefix is in closed form.
    """
    root = np.sqrt(worth)
    order = np.argsort(-root / known)
    slopes, offsets = np.cumsum((root / per_rho)[order]), np.cumsum((known / per_rho)[order])
    level = slopes / (rho + offsets)  # sqrt(l) if exactly this prefix is in
    inside = np.flatnonzero(level <= (root / known)[order])
    last = inside[-1] if len(inside) else 0
    return np.asarray(np.maximum(root / level[last] - known, 0) / per_rho, dtype=np.float64)
