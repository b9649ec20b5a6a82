"""The first measurements of a synthetic table: the number of rows, then every one-way marginal."""

import math

import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.nonneg import positive, simplex

TOTAL_SHARE = 0.05
"""Of the budget, for the number of rows: what all projections lean on."""

GOAL, FEWEST, MOST = 0.02, 0.2, 0.8
"""Attributes alone get the share of the budget that promises this L1 error of their distributions, within bounds.

They come first: no pair can be better than its attributes. Of seven tables of 925 to 48,842 rows, at epsilon = 1 the small
ones were best with 0.8 and the large ones with 0.2 to 0.3.
"""

POWER = 2 / 3
"""rho_i ~ n_i^POWER minimises the sum of n_i s_i, s_i ~ rho_i^-1/2: the noise's share in the L1 errors."""


def measure_total(queryable: PrivateQueryable, rho: float) -> LinearMeasurement:
    """The number of rows.

    Privacy: spends rho.
    """
    (total,) = queryable.measure_marginals([((), rho)])
    return total


def measure_singles(queryable: PrivateQueryable, rho: float) -> list[LinearMeasurement]:
    """Every attribute alone, at rho_i in proportion to n_i^(2/3).

    Privacy: spends rho.
    """
    weights = _weights(queryable.domain)
    return queryable.measure_marginals(
        ((name,), rho * weight) for name, weight in zip(queryable.domain.attributes, weights, strict=True)
    )


def singles_share(domain: Domain, total: float, rho: float, rows: int = 1) -> float:
    """The share of rho that attributes alone should get, from the noisy number of rows.

    Formula: with all of rho the raw L1 error of attribute i is n_i s_i sqrt(2/pi) / N, s_i = k / sqrt(2 rho_i). A share x
    gives x^-1/2 times as much.

    Args:
        domain: the domain.
        total: N, noisy.
        rho: what is left for attributes and pairs.
        rows: k, rows of one privacy unit.

    Privacy: post-processing.
    """
    if len(domain.attributes) < 2:
        return 1.0
    sizes = np.array(list(domain.sizes.values()))
    stddevs = rows / np.sqrt(2 * rho * _weights(domain))
    error = math.sqrt(2 / math.pi) * float((sizes * stddevs).mean()) / max(total, 1.0)
    return min(MOST, max(FEWEST, (error / GOAL) ** 2))


def fit_singles(domain: Domain, noisy: list[LinearMeasurement]) -> tuple[float, dict[str, Array]]:
    """(total, one marginal per attribute, none negative): the total of all measurements, then the simplex.

    Formula: N = sum_c (sum y_c) / (n_c v_c) / sum_c 1 / (n_c v_c), the inverse variance mean of what each one says of N,
    and of that the posterior mean of a number of at least 1.

    Args:
        domain: the domain.
        noisy: Identity measurements of the total and of single attributes.

    Privacy: post-processing.
    """
    weights = np.array([1 / (len(one.answers) * one.variance) for one in noisy])
    totals = np.array([float(one.answers.sum()) for one in noisy])
    total, _ = positive(float(weights @ totals / weights.sum()), 1 / float(weights.sum()))
    singles = {name: np.full(n, total / n) for name, n in domain.sizes.items()}
    singles |= {one.clique[0]: simplex(one.answers, total) for one in noisy if one.clique}
    return total, singles


def _weights(domain: Domain) -> Array:
    weights = np.array([n**POWER for n in domain.sizes.values()])
    return np.asarray(weights / weights.sum())
