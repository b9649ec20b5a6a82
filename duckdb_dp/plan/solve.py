"""The best strategy of one residual, by each member of the residual family: how, how good, and how good it could be."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Centring, Factored, LinOp
from duckdb_dp.optimize.fourier import circulant, power_of_gram, power_of_rows
from duckdb_dp.optimize.strategy import solve
from duckdb_dp.plan.subspaces import Subspace, Term, centred_gram, centred_rows
from duckdb_dp.queries import Queries

MAX_DENSE = 4096
"""Most cells of a residual whose strategy is found as one dense problem."""

TOLERANCE = 1e-3
"""Certified gap that a strategy is solved to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A strategy with unit privacy cost for one residual.

    Attributes:
        strategy: the operator.
        error: total weighted squared error tr(G (B^T B)^+) at privacy cost 1.
        bound: no strategy of cost 1 on this residual has a smaller error.
    """

    strategy: LinOp
    error: float
    bound: float


Solver = Callable[[Subspace], Solution]


def best(subspace: Subspace) -> Solution:
    """QuerySmasher's: the certified optimum. Products attribute by attribute, else one dense problem.

    Sums of different products on too many cells for that get the best single product; the bound is then the sum of the
    products' own optima, since the least of a sum is at least the sum of the leasts.
    """
    if not subspace.sizes:
        return _total()
    if len(subspace.terms) == 1 and not subspace.terms[0][0].joint:
        return _product(subspace.sizes, subspace.terms[0][0].queries)
    if math.prod(subspace.sizes) <= MAX_DENSE:
        return _joint(subspace)
    return _best_product(subspace)


def identity(subspace: Subspace) -> Solution:
    """ResidualPlanner's: V = C scaled to unit diagonal, error prod (n - 1)/n * tr G. Optimal for marginals."""
    if not subspace.sizes:
        return _total()
    error = _trace(subspace, [np.eye(n) - 1 / n for n in subspace.sizes]) * math.prod((n - 1) / n for n in subspace.sizes)
    return Solution(strategy=Centring(subspace.sizes), error=error, bound=best(subspace).bound)


def fourier(subspace: Subspace) -> Solution:
    """WFF's: the best circulant strategy, in closed form. Optimal for circular products."""
    if not subspace.sizes:
        return _total()
    bound = best(subspace).bound
    if len(subspace.terms) == 1 and not subspace.terms[0][0].joint:
        families = subspace.terms[0][0].queries
        found = [circulant(power_of_gram(centred_gram(f)), (n,)) for f, n in zip(families, subspace.sizes, strict=True)]
        factors = tuple(matrix for matrix, _ in found)
        return Solution(strategy=Factored(subspace.sizes, factors), error=math.prod(e for _, e in found), bound=bound)
    _check_dense(subspace, "wff")
    power = sum(weight * _power(term, subspace.sizes) for term, weight in subspace.terms)
    matrix, error = circulant(power, subspace.sizes)
    return Solution(strategy=Factored(subspace.sizes, (matrix,)), error=error, bound=bound)


def products(bases: Mapping[str, Array]) -> Callable[[tuple[str, ...], Subspace], Solution]:
    """ResidualPlanner+'s: the product of given one-attribute strategies, each centred and scaled to cost 1."""

    def solved(clique: tuple[str, ...], subspace: Subspace) -> Solution:
        if not subspace.sizes:
            return _total()
        strategy = _unit(subspace.sizes, [bases[name] for name in clique])
        inverses = [inverse @ inverse.T for inverse in strategy.inverses]
        return Solution(strategy=strategy, error=_trace(subspace, inverses), bound=best(subspace).bound)

    return solved


@lru_cache(maxsize=512)
def one_attribute(family: Queries) -> tuple[Array, float, float]:
    """(B, error, bound) of one attribute's residual, to a tenth of the tolerance: products of a few stay within it."""
    found = solve(gram=centred_gram(family), tol=TOLERANCE / 10)
    return found.matrix, found.primal, found.dual


def _total() -> Solution:
    return Solution(strategy=Centring(()), error=1.0, bound=1.0)


def _product(sizes: tuple[int, ...], families: tuple[Queries, ...]) -> Solution:
    """The Kronecker product of the one-attribute optima is optimal: KKT conditions and dual bounds multiply."""
    found = [one_attribute(family) for family in families]
    return Solution(
        strategy=_unit(sizes, [matrix for matrix, _, _ in found]),
        error=math.prod(error for _, error, _ in found),
        bound=math.prod(bound for _, _, bound in found),
    )


def _joint(subspace: Subspace) -> Solution:
    rows = [math.sqrt(weight) * centred_rows(term, subspace.sizes) for term, weight in subspace.terms if term.joint]
    grams = [weight * _gram(term) for term, weight in subspace.terms if not term.joint]
    if grams:
        found = solve(gram=sum(grams) + sum(row.T @ row for row in rows), tol=TOLERANCE)
    else:
        found = solve(factor=np.concatenate(rows).T, tol=TOLERANCE)
    return Solution(strategy=_unit(subspace.sizes, [found.matrix]), error=found.primal, bound=found.dual)


def _best_product(subspace: Subspace) -> Solution:
    if any(term.joint for term, _ in subspace.terms):
        _check_dense(subspace, "querysmasher")
    candidates = []
    for term, _ in subspace.terms:
        strategy = _unit(subspace.sizes, [one_attribute(family)[0] for family in term.queries])
        inverses = [inverse @ inverse.T for inverse in strategy.inverses]
        candidates.append(Solution(strategy=strategy, error=_trace(subspace, inverses), bound=0.0))
    least = min(candidates, key=lambda solution: solution.error)
    bound = sum(weight * math.prod(one_attribute(f)[2] for f in term.queries) for term, weight in subspace.terms)
    return Solution(strategy=least.strategy, error=least.error, bound=bound)


def _unit(sizes: tuple[int, ...], matrices: list[Array]) -> Factored:
    """The product strategy with every factor scaled to cost at most 1."""
    plain = Factored(sizes, tuple(matrices))
    norms = [math.sqrt(float((matrix**2).sum(axis=0).max())) for matrix in plain.centred]
    return Factored(sizes, tuple(matrix / norm for matrix, norm in zip(matrices, norms, strict=True)))


def _gram(term: Term) -> Array:
    gram = np.ones((1, 1))
    for family in term.queries:
        gram = np.kron(gram, centred_gram(family))
    return gram


def _trace(subspace: Subspace, inverses: list[Array]) -> float:
    """tr(G (V_1^+ (x) ... (x) V_k^+)) over all terms."""
    total = 0.0
    for term, weight in subspace.terms:
        if term.joint:
            table = centred_rows(term, subspace.sizes).reshape(-1, *subspace.sizes)
            through = table
            for axis, inverse in enumerate(inverses):
                through = np.moveaxis(np.tensordot(inverse, through, axes=(1, axis + 1)), 0, axis + 1)
            total += weight * float((table * through).sum())
        else:
            traces = (float((centred_gram(f) * inverse).sum()) for f, inverse in zip(term.queries, inverses, strict=True))
            total += weight * math.prod(traces)
    return total


def _power(term: Term, sizes: tuple[int, ...]) -> Array:
    if term.joint:
        return power_of_rows(centred_rows(term, sizes), sizes)
    power = np.ones(1)
    for family in term.queries:
        power = np.multiply.outer(power, power_of_gram(centred_gram(family)))
    return power.reshape(sizes)


def _check_dense(subspace: Subspace, mechanism: str) -> None:
    cells = math.prod(subspace.sizes)
    if cells > MAX_DENSE:
        raise DPError(
            f"mechanism '{mechanism}': queries of different kinds meet on a set of {cells:,} cells, and such a mix is "
            f"planned up to {MAX_DENSE:,}; use coarser bins, or the same kind of query wherever an attribute is used."
        )
