"""Conditional ResidualPlanner: the optimal noise for one marginal, given the known precision of its residuals."""

import math
from collections.abc import Mapping

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import cell_shares


def conditional(
    domain: Domain, clique: Clique, beta: float, precisions: Mapping[Clique, float], least: float = 0.0
) -> dict[Clique, float]:
    """Variances of new residual measurements that lead to the least variance of one marginal.

    Minimises sum_tau v_tau / (1/s_tau + a_tau) subject to sum_tau p_tau / s_tau = beta, tau in gamma, with a_tau the
    precision known, p_tau = prod_{i in tau} (n_i - 1)/n_i and v_tau = p_tau prod_{j in gamma - tau} 1/n_j^2.

    Args:
        domain: the domain.
        clique: gamma.
        beta: privacy cost to spend, 2 rho.
        precisions: tau -> a_tau = 1 / variance of the estimate so far; absent ones are 0.
        least: measurements with a smaller share of beta are left out, and their share goes to the others.

    Returns:
        tau -> variance of its new measurement, of those worth measuring. Their costs sum to beta.

    Source: [AIM+GReM] section 4.3 and appendix D.2, there with a convex solver.

    Privacy: costs nothing; measuring costs beta. Depends on public sizes and on variances only.
    """
    sizes = domain.sizes
    shares = cell_shares(domain, clique)
    costs = np.array([math.prod((sizes[i] - 1) / sizes[i] for i in tau) for tau, _ in shares])
    errors = np.array([share for _, share in shares])
    known = np.array([precisions.get(tau, 0.0) for tau, _ in shares])
    gained = waterfill(errors, costs, known, beta)
    while least and np.any(small := (gained > 0) & (costs * gained < least * beta)):
        errors = np.where(small, 0.0, errors)
        gained = waterfill(errors, costs, known, beta)
    return {tau: 1 / float(x) for (tau, _), x in zip(shares, gained, strict=True) if x > 0}


def waterfill(errors: Array, costs: Array, known: Array, budget: float) -> Array:
    """The x >= 0 that minimises sum errors / (x + known) subject to sum costs x = budget, exactly.

    The optimum is x = max(0, t sqrt(errors / costs) - known) for one level t. Measurement i is in use when t is above
    l_i = known / sqrt(errors / costs); with those of the k lowest l in use, t = (budget + sum costs known) /
    sum sqrt(costs errors) over them, and k is the last one whose l_k is below its t.

    Args:
        errors: error per unit of variance, at least 0, shape (k,).
        costs: privacy cost per unit of precision, positive, shape (k,).
        known: precision known, at least 0, shape (k,).
        budget: privacy cost to spend, positive.

    Returns:
        Precisions to add, shape (k,); at least one is positive where an error is.

    Source: [AIM+GReM] appendix D.2, equation 8.
    """
    slopes = np.sqrt(errors / costs)
    with np.errstate(divide="ignore", invalid="ignore"):
        thresholds = np.where(slopes > 0, known / slopes, np.inf)
    order = np.argsort(thresholds, kind="stable")
    with np.errstate(divide="ignore"):
        levels = (budget + np.cumsum((costs * known)[order])) / np.cumsum((costs * slopes)[order])
    used = int(np.count_nonzero(thresholds[order] < levels))
    chosen = order[:used]
    added = np.zeros_like(known)
    added[chosen] = np.maximum(levels[used - 1] * slopes[chosen] - known[chosen], 0.0)
    # Where much is known the differences above cancel; the costs must still sum to the budget.
    return added * (budget / float(costs @ added))
