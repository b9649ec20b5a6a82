"""Mirror descent for graphical models in numpy, for many short fits of different models, which jax would have to compile."""

from collections.abc import Mapping, Sequence

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.junction import JunctionTree, calibrate
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.pgm import Fit, checked_tree, estimate_total, loss

FEWEST_GAINED = 1e-5
"""Stop when ten steps lower the objective by less than this, relatively."""


def descend(
    domain: Domain,
    measured: Sequence[LinearMeasurement],
    *,
    steps: int,
    memory: float,
    start: Mapping[Clique, Array] | None = None,
) -> Fit:
    """What ``pgm.fit`` does, by fewer steps in numpy.

    Formula: potentials theta_c <- theta_c - a B^T (B mu_c - y) / v, mu the marginals of exp(theta). The step a is halved
    until the objective falls by at least half of what its slope promises, and grows by a fifth after each success.

    Raises:
        DPError: the junction tree would not fit; no measurement sees the total.

    Source: McKenna, Sheldon, Miklau. ICML 2019, Alg. 1.

    Privacy: post-processing.
    """
    cliques, parents = checked_tree(domain, [one.clique for one in measured], memory)
    total = estimate_total(measured)
    potentials = {one.clique: np.zeros(domain.shape(one.clique)) for one in measured if one.clique} | dict(start or {})
    tree = calibrate(domain, total, cliques, parents, potentials)
    value, slopes = _objective(tree, measured)
    step = 1 / (total * max(1.0, max(float(np.abs(slope).max()) for slope in slopes.values()))) if slopes else 1.0
    step *= total
    past = value
    for count in range(1, steps + 1):
        while True:
            moved = {c: table - step * slopes[c] if c in slopes else table for c, table in potentials.items()}
            there = calibrate(domain, total, cliques, parents, moved)
            new, new_slopes = _objective(there, measured)
            promised = sum(float((s * (tree.marginal(c) - there.marginal(c))).sum()) for c, s in slopes.items())
            if value - new >= promised / 2 or promised <= 1e-9 * value:
                break
            step /= 2
        potentials, tree, value, slopes = moved, there, new, new_slopes
        step *= 1.2
        if count % 10 == 0:
            if past - value <= FEWEST_GAINED * value:
                break
            past = value
    return Fit(tree=tree, potentials=potentials, loss=loss(tree, measured))


def _objective(tree: JunctionTree, measured: Sequence[LinearMeasurement]) -> tuple[float, dict[Clique, Array]]:
    """(sum of |B mu - y|^2 / (2 v), its slope by the marginal of each measured clique)."""
    value, slopes = 0.0, dict[Clique, Array]()
    for one in measured:
        if not one.clique:
            continue
        marginal = tree.marginal(one.clique)
        gap = one.strategy.matvec(marginal.reshape(-1)) - one.answers
        value += float(gap @ gap) / (2 * one.variance)
        slope = one.strategy.rmatvec(gap).reshape(marginal.shape) / one.variance
        slopes[one.clique] = slopes[one.clique] + slope if one.clique in slopes else slope
    return value, slopes
