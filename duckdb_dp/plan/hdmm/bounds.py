"""Lower bounds on the error of any strategy, with either kind of noise, from public queries alone.

A strategy of L1 sensitivity 1 has L2 sensitivity at most 1, so what holds for Gaussian noise holds, per unit of variance,
for Laplace noise too.

Source: [HDMM18] sections 3.2, 6.1 and 8.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from duckdb_dp.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.plan.hdmm.axes import axis, groups
from duckdb_dp.plan.hdmm.energies import energies
from duckdb_dp.plan.hdmm.problem import Problem, problem
from duckdb_dp.queries import Intervals
from duckdb_dp.workload import Part, Workload

Least = Callable[[Array], float]

MERGED = 200_000
"""Parts times attributes up to which products are merged before they are bounded."""


def least_error(parts: Sequence[Part], domain: Domain, clique: Clique, least: Least, limit: int) -> float:
    """No strategy of L2 sensitivity 1 has a smaller total squared error on the parts, at unit variance.

    A single product: the product of its factors' bounds, [HDMM18] Theorem 5. Marginals: the SVD bound, in closed form.
    Else the sum over what can be bounded, as the least of a sum is at least the sum of the leasts.

    Args:
        parts: the queries.
        domain: the domain.
        clique: all attributes that they distinguish.
        least: the bound of one Gram matrix.
        limit: most cells of a Gram matrix that it takes.

    Privacy: post-processing of public queries.
    """
    if len(parts) * len(clique) > MERGED:
        return marginals_bound(parts, domain) + _each(parts, domain, least, limit)
    whole = _problem(parts, domain, clique, limit)
    if whole is not None and len(whole.terms) == 1:
        return _sum(whole, least)
    plain = [part for part in parts if is_marginal(part)]
    others = [part for part in parts if not is_marginal(part)]
    rest = _problem(others, domain, clique, limit) if others else None
    outside = _sum(rest, least) if rest is not None else _each(others, domain, least, limit)
    return marginals_bound(plain, domain) + outside


def marginals_bound(parts: Sequence[Part], domain: Domain) -> float:
    """The SVD bound of the parts that ask for cells or totals only: (sum_tau sqrt(dim_tau E_tau / n_tau))^2.

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


def svd_bound(gram: Array) -> float:
    """(sum of singular values of W)^2 / n. [HDMM18] Definition 11."""
    values = np.linalg.eigvalsh(gram)
    kept = values[values > len(gram) * 2.0**-50 * values[-1]]
    return float(np.sqrt(kept).sum() ** 2 / len(gram)) if len(kept) else 0.0


def _problem(parts: Sequence[Part], domain: Domain, clique: Clique, limit: int) -> Problem | None:
    axes = tuple(axis(names, parts, domain) for names in groups(parts, clique) if domain.cells(names) <= 16 * limit)
    if {name for found in axes for name in found.names} != set(clique) or any(found.cells > limit for found in axes):
        return None
    return problem(parts, axes)


def _sum(found: Problem, least: Least) -> float:
    bounds: dict[int, float] = {-1: 1.0}
    for term in found.terms:
        for number in term.grams:
            if number not in bounds:
                bounds[number] = least(found.grams[number])
    return math.fsum(term.weight * math.prod(bounds[number] for number in term.grams) for term in found.terms)


def _each(parts: Sequence[Part], domain: Domain, least: Least, limit: int) -> float:
    """Every part by itself, those of the same families once; parts on too many cells count for nothing."""
    known: dict[object, float] = {}
    total = 0.0
    for part in parts:
        if is_marginal(part):
            continue
        key = (tuple([id(family) for family in part.queries]), domain.shape(part.clique))
        if key not in known:
            alone = _problem([part], domain, part.clique, limit)
            known[key] = 0.0 if alone is None else _sum(alone, least) / part.weight
        total += part.weight * known[key]
    return total
