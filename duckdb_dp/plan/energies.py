"""The sum of squares of a workload on each residual, which determines the error of weighted marginals.

A query q on A splits into q_tau for tau in A: averaged over A - tau, centred along tau. E_tau is the weighted sum of
|q_tau|^2. With a marginal Gram matrix in place of (A^T A)^+, the error depends on the workload through E alone.

Source: [HDMM18] Theorem 10, in the residual basis.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from duckdb_dp.domain.disjunctions import Complement
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.queries import Intervals, Queries
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.linop import Array, centre
from duckdb_dp.plan.subspaces import by_residual, residuals_of


def energies(workload: Workload) -> dict[Clique, float]:
    """E_tau of every residual on which something of the workload is left.

    Privacy: post-processing of public queries.
    """
    found = by_residual(
        workload, lambda part: ((places, None, energy) for places, energy in part_energies(part, workload.domain))
    )
    return {tau: amounts[None] for tau, amounts in found.items()}


def part_energies(part: Part, domain: Domain) -> list[tuple[tuple[int, ...], float]]:
    """(places of tau in the part's clique, energy) of one part, zeros left out."""
    sizes = domain.shape(part.clique)
    found = [(places, part.weight * _energy(part, places, sizes)) for places in residuals_of(sizes)]
    return [(places, energy) for places, energy in found if energy > 0]


def marginals_bound(parts: Sequence[Part], domain: Domain) -> float:
    """The SVD bound of the parts that ask for cells or totals only: (sum_tau sqrt(dim_tau E_tau / n_tau))^2.

    No strategy of L2 sensitivity 1 has a smaller total squared error on them at unit variance.

    Source: [HDMM18] Theorem 12, in the residual basis.
    """
    plain = tuple(part for part in parts if is_marginal(part))
    if not plain:
        return 0.0
    found = 0.0
    for tau, energy in energies(Workload(domain, plain)).items():
        found += math.sqrt(energy * math.prod((domain.sizes[name] - 1) / domain.sizes[name] for name in tau))
    return found**2


def is_marginal(part: Part) -> bool:
    """Whether every query asks for one cell, or for the total, of each attribute."""
    return not part.joint and all(isinstance(q, Intervals) and q.kind in ("identity", "total") for q in part.queries)


def part_squares(part: Part, places: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """|q_tau|^2 of every query, shape ``part.shape``."""
    if part.joint and not places:
        return np.asarray(part.queries[0].means() ** 2, dtype=np.float64)
    if part.negated is not None:  # 1 - q and q differ in the total alone
        return part_squares(part.negated, places, sizes).reshape(-1)
    if part.joint:
        return joint_squares(part.queries[0], places, sizes)
    found = np.ones(())
    for place, family in enumerate(part.queries):
        found = np.multiply.outer(found, squares(family)[0 if place in places else 1])
    return found


def _energy(part: Part, places: tuple[int, ...], sizes: tuple[int, ...]) -> float:
    if part.joint and not places:
        return part.queries[0].mean_square()
    product = part.negated or part
    if product.joint:
        return float(part.queries[0].weights() @ part_squares(part, places, sizes))
    return math.prod(moments(family)[0 if place in places else 1] for place, family in enumerate(product.queries))


@lru_cache(maxsize=256)
def joint_squares(family: Queries, places: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """|q_tau|^2 of every query of a joint family; numbers that are rounding only are 0."""
    table = family.dense().reshape(-1, *sizes)
    scale = (table.reshape(len(table), -1) ** 2).sum(axis=1)
    gone = tuple(axis + 1 for axis in range(len(sizes)) if axis not in places)
    rows = centre(table.mean(axis=gone) if gone else table, first=1).reshape(len(table), -1)
    squares = np.asarray((rows**2).sum(axis=1), dtype=np.float64)
    return np.where(squares > 1e-20 * scale, squares, 0.0)


@lru_cache(maxsize=1024)
def squares(family: Queries) -> tuple[Array, Array]:
    """(|C q|^2, mean(q)^2) of every query of a one-attribute family."""
    means = family.means()
    if isinstance(family, Complement):  # the same but for its mean
        return squares(family.inner)[0], np.asarray(means**2, dtype=np.float64)
    bounds = family.bounds()
    sizes = means * family.n if bounds is not None else (family.dense() ** 2).sum(axis=1)
    centred = sizes - family.n * means**2
    return np.where(centred > 1e-14 * sizes, centred, 0.0), np.asarray(means**2, dtype=np.float64)


@lru_cache(maxsize=1024)
def moments(family: Queries) -> tuple[float, float]:
    """The weighted sums of ``squares``."""
    weights = family.weights()
    centred, means = squares(family)
    return float(weights @ centred), float(weights @ means)
