"""How a budget is divided among residuals for the least sum of L1 errors, given how far each estimate is from the truth."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.plan.crp import waterfill
from duckdb_dp.reconstruct.tilting import stacked, stacks

LEAST = 1e-9


def effective(table: Array, least: float = 1.0) -> float:
    """n_eff = (sum sqrt m)^2 / sum m - 1: how many cells an L1 error spreads over, the size of the table where it is even.

    Where each cell errs in proportion to the root of its count, the L1 error is d sqrt(2/pi) (n_eff + 1) for a mean square
    error d^2 per effective cell. At least ``least``.
    """
    total = float(table.sum())
    return max(float(np.sqrt(table).sum()) ** 2 / total - 1, least) if total > 0 else least


def effective_all(tables: Mapping[Clique, Array]) -> dict[Clique, float]:
    """``effective`` of many tables."""
    found = dict.fromkeys(tables, 0.0)
    for cliques in stacks(tables):
        cells = stacked(tables, cliques)
        totals, roots = cells.sum(axis=1), np.sqrt(cells).sum(axis=1)
        spread = np.divide(roots**2, totals, out=np.ones(len(cliques)), where=totals > 0)
        found |= zip(cliques, np.maximum(spread - 1, 1.0).tolist(), strict=True)
    return found


def prior_precision(distance: float, cells: float) -> float:
    """1 / d^2 with d^2 = (pi/2) (distance / n_eff)^2: of the estimate itself, if it is so far from the truth in L1."""
    return 1 / (math.pi / 2 * (max(distance, LEAST) / cells) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A residual that may be measured.

    Attributes:
        weight: how much the L1 error of its table matters.
        cells: n_eff of its table.
        known: the precision of what is known of it.
        cost: of one unit of precision: prod (n_i - 1) / n_i.
    """

    weight: float
    cells: float
    known: float
    cost: float


def allocate(residuals: Mapping[Clique, Residual], budget: float) -> dict[Clique, float]:
    """The precisions to add that minimise sum weight n_eff / sqrt(D + known) subject to sum cost D = budget.

    Setting the derivative to 0: D = max(0, t (weight n_eff / cost)^(2/3) - known) for one level t, which ``waterfill`` finds
    exactly. Neyman's allocation has the square root there: it divides a sample for the least variance.

    Args:
        residuals: what may be measured.
        budget: 2 rho / k^2, for units of k rows.

    Returns:
        Those to be measured, with their precisions.

    Privacy: costs nothing; depends on noisy values only.
    """
    if not residuals:
        return {}
    slopes = np.array([(one.weight * one.cells / one.cost) ** (2 / 3) for one in residuals.values()])
    costs = np.array([one.cost for one in residuals.values()])
    known = np.array([one.known for one in residuals.values()])
    added = waterfill(costs * slopes**2, costs, known, budget)
    return {clique: float(x) for clique, x in zip(residuals, added, strict=True) if x > 0}
