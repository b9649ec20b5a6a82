"""The strategy of one residual for each planner of residuals, with its error and a lower bound."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from duckdb_dp.domain.queries import Intervals, Queries
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Centring, Factor, Factored, LinOp
from duckdb_dp.optimize.fourier import circulant, power_of_gram, power_of_rows
from duckdb_dp.optimize.strategy import Strategy, solve
from duckdb_dp.plan.cache import cached
from duckdb_dp.plan.subspaces import Subspace, Term, centred_gram, centred_rows

MAX_DENSE = 4096
"""Most cells of a residual whose strategy is found as one dense problem."""

MAX_CIRCULANT = 8192
"""Most cells of a residual whose circulant strategy is written out as one matrix: 0.5 GB."""

TOLERANCE = 1e-3
"""Certified gap that a strategy is solved to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A strategy for one residual.

    Attributes:
        strategy: the operator; its privacy cost need not be 1.
        error: total weighted squared error tr(G (B^T B)^+) from unit noise on its answers.
        bound: no strategy of cost 1 on this residual has a smaller error.
    """

    strategy: LinOp
    error: float
    bound: float


def best(subspace: Subspace) -> Solution:
    """QuerySmasher's: the certified optimum. Products attribute by attribute, else one dense problem.

    Sums of different products on too many cells for that get the best single product; the bound is then the sum of the
    products' own optima, since the least of a sum is at least the sum of the leasts.
    """
    if not subspace.sizes:
        return _total()
    if len(subspace.terms) == 1 and not subspace.terms[0][0].joint:
        return _product(subspace.terms[0][0].queries)
    if math.prod(subspace.sizes) <= MAX_DENSE or all(term.joint for term, _ in subspace.terms):
        return _joint(subspace)
    return _best_product(subspace)


def identity(subspace: Subspace) -> Solution:
    """ResidualPlanner's: B = C, of privacy cost prod (n - 1)/n and error tr G. Optimal for marginals."""
    if not subspace.sizes:
        return _total()
    error = _trace(subspace, [np.eye(n) - 1 / n for n in subspace.sizes])
    return Solution(strategy=Centring(subspace.sizes), error=error, bound=best(subspace).bound)


def fourier(subspace: Subspace) -> Solution:
    """WFF's: the best circulant strategy, in closed form. Optimal for circular products."""
    if not subspace.sizes:
        return _total()
    bound = best(subspace).bound
    if len(subspace.terms) == 1 and not subspace.terms[0][0].joint:
        families = subspace.terms[0][0].queries
        found = [_circulant(family) for family in families]
        return Solution(
            strategy=Factored(tuple(factor for factor, _ in found)), error=math.prod(e for _, e in found), bound=bound
        )
    _check_dense(subspace, "wff", MAX_CIRCULANT)
    power = np.sum([weight * _power(term, subspace.sizes) for term, weight in subspace.terms], axis=0)
    matrix, error = circulant(power, subspace.sizes)
    return Solution(strategy=Factored((Factor(matrix, subspace.sizes),)), error=error, bound=bound)


def products(bases: Mapping[str, Factor]) -> Callable[[tuple[str, ...], Subspace], Solution]:
    """ResidualPlanner+'s: the product of given one-attribute strategies, each centred and scaled to cost 1."""

    def solution(clique: tuple[str, ...], subspace: Subspace) -> Solution:
        if not subspace.sizes:
            return _total()
        factors = tuple(bases[name] for name in clique)
        error = _trace(subspace, [factor.covariance for factor in factors])
        return Solution(strategy=Factored(factors), error=error, bound=best(subspace).bound)

    return solution


def is_cells(family: Queries) -> bool:
    """Whether the queries are the cells."""
    return isinstance(family, Intervals) and family.meaning == "identity"


@lru_cache(maxsize=512)
def one_attribute(family: Queries) -> tuple[Factor, float, float]:
    """(B, error, bound) of one attribute's residual, to a tenth of the tolerance: products of a few stay within it."""
    if is_cells(family):
        least = (family.n - 1) ** 2 / family.n
        return Factor(np.eye(family.n), (family.n,)).unit(), least, least
    found = _solved(gram=centred_gram(family), tol=_tolerance(family.n) / 10)
    return Factor(found.matrix, (family.n,)).unit(), found.primal, found.dual


def for_gram(gram: Array) -> Factor:
    """The best strategy of one attribute for a centred Gram matrix (n, n)."""
    return Factor(_solved(gram=gram, tol=_tolerance(len(gram)) / 10).matrix, (len(gram),)).unit()


@lru_cache(maxsize=512)
def _circulant(family: Queries) -> tuple[Factor, float]:
    matrix, error = circulant(power_of_gram(centred_gram(family)), (family.n,))
    return Factor(matrix, (family.n,)), error


def _total() -> Solution:
    return Solution(strategy=Centring(()), error=1.0, bound=1.0)


def _product(families: tuple[Queries, ...]) -> Solution:
    """The Kronecker product of the one-attribute optima is optimal: KKT conditions and dual bounds multiply.

    Of cells alone that is centring, of error prod (n - 1) at the privacy cost prod (n - 1) / n.
    """
    if all(is_cells(family) for family in families):
        sizes = tuple([family.n for family in families])
        error = float(math.prod(n - 1 for n in sizes))
        strategy = Centring(sizes)
        return Solution(strategy=strategy, error=error, bound=error * strategy.squared_sensitivity)
    found = [one_attribute(family) for family in families]
    return Solution(
        strategy=Factored(tuple(factor for factor, _, _ in found)),
        error=math.prod(error for _, error, _ in found),
        bound=math.prod(bound for _, _, bound in found),
    )


def _joint(subspace: Subspace) -> Solution:
    rows = [math.sqrt(weight) * centred_rows(term, subspace.sizes) for term, weight in subspace.terms if term.joint]
    grams = [weight * _gram(term) for term, weight in subspace.terms if not term.joint]
    if grams:
        found = _solved(
            gram=np.sum([*grams, *(row.T @ row for row in rows)], axis=0), tol=_tolerance(math.prod(subspace.sizes))
        )
    else:
        found = _solved(factor=np.concatenate(rows).T, tol=_tolerance(math.prod(subspace.sizes)))
    factor = Factor(found.matrix, subspace.sizes).unit()
    return Solution(strategy=Factored((factor,)), error=found.primal, bound=found.dual)


def _tolerance(cells: int) -> float:
    """A tenth of the promised gap where that is cheap: up to 50 x 50 cells it is a fraction of a second."""
    return TOLERANCE / 10 if cells <= 2500 else TOLERANCE


def _solved(*, gram: Array | None = None, factor: Array | None = None, tol: float) -> Strategy:
    """A solution from disk where there is one."""
    if gram is not None:
        return cached(gram, "gram", tol, lambda: solve(gram=gram, tol=tol))
    assert factor is not None
    return cached(factor, "factor", tol, lambda: solve(factor=factor, tol=tol))


def _best_product(subspace: Subspace) -> Solution:
    if any(term.joint for term, _ in subspace.terms):
        _check_dense(subspace, "querysmasher", MAX_DENSE)
    candidates = []
    for term, _ in subspace.terms:
        factors = tuple(one_attribute(family)[0] for family in term.queries)
        error = _trace(subspace, [factor.covariance for factor in factors])
        candidates.append(Solution(strategy=Factored(factors), error=error, bound=0.0))
    least = min(candidates, key=lambda solution: solution.error)
    bound = sum(weight * math.prod(one_attribute(f)[2] for f in term.queries) for term, weight in subspace.terms)
    return Solution(strategy=least.strategy, error=least.error, bound=bound)


def _gram(term: Term) -> Array:
    gram: Array = np.ones((1, 1))
    for family in term.queries:
        gram = np.asarray(np.kron(gram, centred_gram(family)), dtype=np.float64)
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
            traces = (
                float((centred_gram(f) * inverse).sum()) for f, inverse in zip(term.queries, inverses, strict=True)
            )
            total += weight * math.prod(traces)
    return total


def _power(term: Term, sizes: tuple[int, ...]) -> Array:
    if term.joint:
        return power_of_rows(centred_rows(term, sizes), sizes)
    power = np.ones(1)
    for family in term.queries:
        power = np.multiply.outer(power, power_of_gram(centred_gram(family)))
    return power.reshape(sizes)


def _check_dense(subspace: Subspace, mechanism: str, limit: int) -> None:
    cells = math.prod(subspace.sizes)
    if cells > limit:
        raise DPError(
            f"mechanism '{mechanism}': queries of different kinds meet on a set of {cells:,} cells, and such a mix is "
            f"planned up to {limit:,}; use coarser bins, or the same kind of query wherever an attribute is used."
        )
