"""Lower bounds on the error of any strategy, with Gaussian or Laplace noise, computed from public queries.

A strategy of L1 sensitivity 1 has L2 sensitivity at most 1, so what holds for Gaussian noise holds, per unit of variance,
for Laplace noise too.

Source: [HDMM18] sections 3.2, 6.1 and 8.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain, subsets
from duckdb_dp.domain.workload import Part
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.optimize.strategy import solve
from duckdb_dp.plan.energies import is_marginal, marginals_bound
from duckdb_dp.plan.hdmm.axes import Axis, AxisQueries, axis_of, groups, level, typical
from duckdb_dp.plan.hdmm.oracle import AxisStrategy
from duckdb_dp.plan.hdmm.problem import Problem, problem

Least = Callable[[Array], tuple[float, Array]]
"""Of one Gram matrix: the bound, and the lambda that proves it."""

QUICK = 512
"""Cells up to which weights are searched for noise of L1 sensitivity."""

MERGED = 200_000
"""Parts times attributes up to which products are merged before they are bounded."""


def least_error(parts: Sequence[Part], domain: Domain, clique: Clique, least: Least, limit: int) -> float:
    """No strategy of L2 sensitivity 1 has a smaller total squared error on the parts, at unit variance.

    A single product: the product of its factors' bounds, [HDMM18] Theorem 5. Marginals: the SVD bound, in closed form.
    Else the largest of: the sum over what can be bounded, as the least of a sum is at least the sum of the leasts;
    ``pinched_bound`` of all parts; and that of the products with the sum over the others.

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
    others = [part for part in parts if not is_marginal(part) and part.negated is None]
    rest = _problem(others, domain, clique, limit) if others else None
    outside = _sum(rest, least) if rest is not None else _each(others, domain, least, limit)
    products = [part for part in parts if not part.joint or part.negated is not None]
    joint = [part for part in parts if part.joint and part.negated is None]
    return max(
        marginals_bound(plain, domain) + outside,
        pinched_bound(parts, domain, clique, least, limit),
        pinched_bound(products, domain, clique, least, limit) + _each(joint, domain, least, limit) if joint else 0.0,
    )


def svd_bound(gram: Array) -> tuple[float, Array]:
    """(sum of singular values of W)^2 / n, from equal weights. [HDMM18] Definition 11."""
    return _nuclear(gram, float(np.trace(gram))) ** 2 / len(gram), np.full(len(gram), 1 / len(gram))


def pure_bound(gram: Array) -> tuple[float, Array]:
    """The same from better weights, where they are found in a moment: 2 % higher in RMSE for ranges of a width or prefixes."""
    equal = svd_bound(gram)
    if len(gram) > QUICK:
        return equal
    try:
        found = solve(gram=gram, tol=1e-2, max_steps=8)
    except DPError:  # a difference of Gram matrices, up to rounding
        return equal
    return (found.dual, found.weights) if found.dual > equal[0] else equal


def proved(found: AxisStrategy) -> tuple[float, Array]:
    """The dual bound of a solution."""
    assert found.weights is not None
    return found.bound, found.weights


def pinched_bound(parts: Sequence[Part], domain: Domain, clique: Clique, least: Least, limit: int) -> float:
    """A bound on unions of different products, from what each of them asks of each residual.

    Let |M| be the sum of singular values. For lambda >= 0 of sum 1 on the cells and any A of column norms at most 1,
    |W L| = |W A^+ A L| <= |W A^+|_F |A L|_F <= |W A^+|_F with L = diag(sqrt(lambda)), so that tr(G (A^T A)^+) >= |W L|^2;
    here lambda = (x)_i lambda_i. Projections P_t and Q_t, orthogonal for different t, never make |M| larger:
    |M| >= sum_t |P_t M Q_t|. On axis i take v = sqrt(lambda_i), the columns' parts v v^T and I - v v^T, and of part j the
    rows' y y^T / |y|^2 and I - y y^T / |y|^2, y = W_ij lambda_i; the total 1^T L v = 1 has the first alone. Then residual t
    has the Gram matrix sum_j w_j prod_{i not in t} a_ij (x)_{i in t} S_ij, over the parts j on t and maybe more, with

        a_ij = lambda_i^T G_ij lambda_i,   S_ij = L_i G_ij L_i - r r^T / a_ij,   r = L_i G_ij lambda_i.

    (tr M^(1/2))^2 is concave and grows with a factor, so of a sum it is at least the sum: with s_ij = tr S_ij^(1/2)

        bound = (sum_t sqrt(E_t))^2,   E_t = sum_j w_j prod_{i not in t} a_ij prod_{i in t} s_ij^2.

    It is exact for marginals. An axis that every part distinguishes is not split: t always has it, and S = L G L.
    Disjunctions 1 - (x)_i W_i have the residuals of -(x)_i W_i, all but the total, which has

        E = (y' (1 - y))^2 / |y|^2 = (prod_i c_i' lambda_i / |y| - |y|)^2,   |y|^2 = prod_i a_i,   c_i = W_i' w_i,

    and the sum of all weights where y = 0.

    Privacy: post-processing of public queries.
    """
    axes = _axes(parts, domain, clique, limit)
    if axes is None or sum(2.0 ** len(part.clique) for part in parts) > MERGED:
        return 0.0
    asked = [[axis.queries_of(part.negated or part) for axis in axes] for part in parts]
    splits = [
        any(
            part.negated is not None or found[place].level is not None for part, found in zip(parts, asked, strict=True)
        )
        for place in range(len(axes))
    ]
    weights = [part.weight * _outside(part, clique) for part in parts]
    found = []
    for choose in (_equal,) if least is svd_bound else (least, _equal):
        moments = [
            _of_axis(column, split, choose) for column, split in zip(zip(*asked, strict=True), splits, strict=True)
        ]
        found.append(_pinched(parts, weights, asked, moments))
    return max(found)


Moments = dict[AxisQueries, tuple[float, float, float]]
"""(s^2, a, c' lambda) of what is asked of an axis."""


def _pinched(
    parts: Sequence[Part], weights: Sequence[float], asked: Sequence[Sequence[AxisQueries]], moments: Sequence[Moments]
) -> float:
    """(sum_t sqrt(E_t))^2."""
    found: dict[tuple[int, ...], float] = {}
    for part, weight, row in zip(parts, weights, asked, strict=True):
        values = [moments[place][queries] for place, queries in enumerate(row)]
        for tau in subsets([place for place, (size, _, _) in enumerate(values) if size > 0]):
            energy = math.prod(size if place in tau else mean for place, (size, mean, _) in enumerate(values))
            if part.negated is not None and not tau:
                length = math.sqrt(energy)
                whole = math.prod(float(family.weights().sum()) for family in part.negated.queries)
                energy = (math.prod(held for _, _, held in values) / length - length) ** 2 if length > 0 else whole
            found[tau] = found.get(tau, 0.0) + weight * energy
    return math.fsum(map(math.sqrt, found.values())) ** 2


def _of_axis(asked: Sequence[AxisQueries], split: bool, choose: Least) -> Moments:
    """Of all that is asked of one axis, with the weights that prove the most for all of it together."""
    found: Moments = {queries: (0.0, queries.level, queries.level) for queries in asked if queries.level is not None}
    grams = {queries: queries.gram() for queries in asked if queries.level is None}
    weights = choose(typical(asked))[1] if grams else np.zeros(0)
    root = np.sqrt(weights)
    for queries, gram in grams.items():
        scaled = root[:, None] * gram * root
        size, mean = float(np.trace(scaled)), float(weights @ gram @ weights) if split else 0.0
        if mean > 0:
            seen = scaled @ root
            scaled = scaled - np.outer(seen, seen) / mean
        found[queries] = _nuclear(scaled, size) ** 2, mean, float(np.diag(gram) @ weights)
    return found


def _equal(gram: Array) -> tuple[float, Array]:
    return 0.0, np.full(len(gram), 1 / len(gram))


def _outside(part: Part, clique: Clique) -> float:
    """c of a part whose attributes outside a clique have the Gram matrices c_i 1 1^T, c the product."""
    if part.joint:
        return 1.0
    named = zip(part.clique, part.queries, strict=True)
    return math.prod(level(family) or 0.0 for name, family in named if name not in clique)


def _nuclear(gram: Array, size: float) -> float:
    """Sum of the roots of the eigenvalues of a Gram matrix that are above the rounding of one of trace ``size``."""
    values = np.linalg.eigvalsh(gram)
    return float(np.sqrt(values[values > len(gram) * 2.0**-50 * size]).sum())


def _axes(parts: Sequence[Part], domain: Domain, clique: Clique, limit: int) -> tuple[Axis, ...] | None:
    """The axes of the parts, None where one is too large."""
    axes = tuple(axis_of(names, parts, domain) for names in groups(parts, clique) if domain.cells(names) <= 16 * limit)
    if {name for found in axes for name in found.names} != set(clique) or any(found.cells > limit for found in axes):
        return None
    return axes


def _problem(parts: Sequence[Part], domain: Domain, clique: Clique, limit: int) -> Problem | None:
    axes = _axes(parts, domain, clique, limit)
    found = None if axes is None else problem(parts, axes)
    return None if found is None or found.signed else found


def _sum(found: Problem, least: Least) -> float:
    bounds: dict[int, float] = {-1: 1.0}
    for term in found.terms:
        for number in term.grams:
            if number not in bounds:
                bounds[number] = least(found.grams[number])[0]
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
