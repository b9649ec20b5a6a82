"""Residuals measured for marginals that will be read fitted: the objective 'fitted' of 'residual'.

What is read fitted is shrunk towards what smaller marginals predict, so that a residual need not be measured where its noise would
hide what it adds, and singles and the total, which all marginals share, are worth more than their variance says.
"""

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np

from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.plan.base import Measurement
from duckdb_dp.plan.residual import ResidualPlan, residual

NEAREST, FARTHEST, DISTANCES = 100.0, 50_000.0, 12
"""L1 distances of pairs from what smaller marginals predict, in rows, that are all as likely as one another: how many, evenly in
their logs."""

NEARER = 0.6
"""How much nearer marginals of one attribute more are to what smaller ones predict."""

FILLED = 0.7
"""Share of an attribute's values among which its rows are, in effect."""

PART = 0.5
"""Weight of the error of a smaller marginal in that of a marginal that has it."""

UNBIASED = 0.02
"""Share of the budget that goes to the plan of least variance, so that all marginals have unbiased counts with intervals too."""

_GAINS = np.concatenate([[0.0], np.geomspace(1e-9, 1e15, 2000)])


def for_fitted(workload: Workload, beta: float) -> ResidualPlan:
    """The plan of least expected L1 error of marginals that are read fitted, at privacy cost beta.

    Minimises sum over tau of w_tau n_tau E 1 / sqrt(D_tau + K_tau) subject to sum p_tau D_tau = beta, with D_tau the precision of the
    residual tau, p_tau = prod (n_i - 1)/n_i, n_tau the cells among which the rows of tau are in effect, and w_tau the sum of the
    weights of the asked marginals that have tau, halved for those that have more. K_tau is the precision of what smaller marginals
    predict: none for the total and single attributes; (2/pi) (n_tau / s)^2 for an estimate at the L1 distance s, where s is not known
    but even on a log scale. It is 'neyman' with assumed scores. ``UNBIASED`` of the budget follows the plan of least variance.

    Args:
        workload: marginals with weights.
        beta: privacy cost.

    Raises:
        DPError: queries that are no marginals.

    Privacy: costs nothing; measuring it costs beta.
    """
    if not workload.is_marginals:
        raise DPError("objective 'fitted' plans marginals; use 'total' or 'max' for other queries.")
    plain = residual(workload, beta)
    assert isinstance(plain, ResidualPlan)
    added = _precisions(workload, [one.clique for one in plain.measurements], beta * (1 - UNBIASED))
    measurements = tuple(
        Measurement(clique=one.clique, strategy=one.strategy, variance=1 / (UNBIASED / one.variance + precision))
        for one, precision in zip(plain.measurements, added.tolist(), strict=True)
    )
    return replace(plain, measurements=measurements, objective="fitted")


def _precisions(workload: Workload, taus: list[Clique], budget: float) -> Array:
    """The D_tau that minimise the expected error, whose costs sum to the budget."""
    from scipy.optimize import brentq  # for import time

    sizes = workload.domain.sizes
    weights: dict[Clique, float] = defaultdict(float)
    for clique, weight in workload.weights.items():
        alive = tuple(name for name in clique if sizes[name] > 1)
        for tau in subsets(alive):
            weights[tau] += weight if len(tau) == len(alive) else PART * weight
    orders = np.array([len(tau) for tau in taus])
    costs = np.array([math.prod(1 - 1 / sizes[name] for name in tau) for tau in taus])
    cells = np.array([max(FILLED ** len(tau) * workload.domain.cells(tau) - 1, PART) if tau else 1.0 for tau in taus])
    gains = np.array([weights[tau] for tau in taus]) * cells / costs
    # K of the nearest; the others are in one proportion to it.
    scale = 2 / math.pi * (cells / (NEAREST * NEARER ** (orders - 2))) ** 2
    # E (x + K / scale)^(-3/2) by x, a falling function, the same for all residuals: it is inverted by a table.
    ratios = np.geomspace(1.0, NEAREST / FARTHEST, DISTANCES) ** 2
    slopes = ((_GAINS[:, None] + ratios) ** -1.5).mean(axis=1)
    ends = np.log(slopes[::-1]), np.log(np.maximum(_GAINS, _GAINS[1])[::-1])

    def precisions(level: float) -> Array:
        wanted = np.exp(level) / gains
        found = scale * np.exp(np.interp(np.log(wanted * scale**1.5), *ends))
        found = np.where(wanted * scale**1.5 >= slopes[0], 0.0, found)
        return np.asarray(np.where(orders < 2, wanted ** (-2 / 3), found))

    # At the highest level the budget would be spent if nothing were known of any residual.
    high = 1.5 * math.log(float(gains ** (2 / 3) @ costs) / budget) + 1e-9
    low = next(high - step for step in itertools.count(0, 5) if precisions(high - step) @ costs >= budget)
    found = precisions(brentq(lambda level: math.log(precisions(level) @ costs / budget), low, high))
    return found * (budget / float(found @ costs))
