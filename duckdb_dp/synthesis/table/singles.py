"""The first measurements of a synthesis: the number of rows, then every attribute alone."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, Identity, LinOp
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.nonneg import positive, simplex
from duckdb_dp.reconstruct.pgm import Measured

TOTAL_SHARE = 0.05
"""Of the budget, for the number of rows: what all projections lean on."""

GOAL, FEWEST, MOST = 0.02, 0.2, 0.8
"""Attributes alone get the share of the budget that promises this L1 error of their distributions, within bounds.

They come first: no pair can be better than its attributes. Of seven tables of 925 to 48,842 rows, at epsilon = 1 the small
ones were best with 0.8 and the large ones with 0.2 to 0.3.
"""

POWER = 2 / 3
"""rho_i ~ n_i^POWER minimises the sum of n_i s_i, s_i ~ rho_i^-1/2: the noise's share in the L1 errors."""


def measure_total(queryable: PrivateQueryable, rho: float) -> Measured:
    """The number of rows.

    Privacy: spends rho.
    """
    (found,) = measured(queryable, [((), rho)])
    return found


def measure_singles(queryable: PrivateQueryable, rho: float) -> list[Measured]:
    """Every attribute alone, at rho_i in proportion to n_i^(2/3).

    Privacy: spends rho.
    """
    weights = _weights(queryable.domain)
    return measured(
        queryable, [((name,), rho * weight) for name, weight in zip(queryable.domain.attributes, weights, strict=True)]
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


def fit_singles(domain: Domain, noisy: list[Measured]) -> tuple[float, dict[str, Array]]:
    """(total, one marginal per attribute, none negative): the total of all measurements, then the simplex.

    Formula: N = sum_c (sum y_c) / (n_c v_c) / sum_c 1 / (n_c v_c), the inverse variance mean of what each one says of N,
    and of that the posterior mean of a number of at least 1.

    Args:
        domain: the domain.
        noisy: Identity measurements of the total and of single attributes.

    Privacy: post-processing.
    """
    weights = np.array([1 / (len(found.values) * found.variance) for found in noisy])
    totals = np.array([float(found.values.sum()) for found in noisy])
    total, _ = positive(float(weights @ totals / weights.sum()), 1 / float(weights.sum()))
    singles = {name: np.full(n, total / n) for name, n in domain.sizes.items()}
    singles |= {found.clique[0]: simplex(found.values, total) for found in noisy if found.clique}
    return total, singles


def measured(
    queryable: PrivateQueryable,
    asked: Sequence[tuple[Clique, float]],
    strategy: Callable[[Clique], LinOp] | None = None,
) -> list[Measured]:
    """Noisy measurements of some marginals, of (clique, rho) each; of their cells unless a strategy is given.

    Privacy: spends the sum of all rho.
    """
    made = strategy or (lambda clique: Identity(queryable.domain.cells(clique)))
    steps = [(clique, made(clique), rho) for clique, rho in asked]
    return [
        Measured(clique=clique, strategy=operator, values=values, variance=variance)
        for (clique, operator, _), (values, variance) in zip(steps, queryable.measure_all(steps), strict=True)
    ]


def _weights(domain: Domain) -> Array:
    weights = np.array([n**POWER for n in domain.sizes.values()])
    return np.asarray(weights / weights.sum())
