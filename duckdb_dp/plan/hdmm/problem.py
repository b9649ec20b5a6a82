"""A workload as a weighted sum of Kronecker products of Gram matrices, one factor for each axis.

An axis is one attribute, or several that are taken together because some queries on them are no products.

Source: [HDMM18] section 5.3, Alg. 1 (ImpVec).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.domain.workload import Part
from duckdb_dp.linop import Array
from duckdb_dp.plan.hdmm.axes import Axis, AxisQueries, level
from duckdb_dp.plan.hdmm.oracle import AxisStrategy, Oracle, total


@final
@dataclass(frozen=True, slots=True)
class Term:
    """One Kronecker product: weight, and per axis the number of a Gram matrix; -1 for the total 1 1^T.

    Weights of disjunctions may be below 0.
    """

    weight: float
    grams: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """G = sum_j w_j G_j1 (x) ... (x) G_jd over some axes.

    Attributes:
        axes: the axes, in the domain's order.
        terms: the products.
        grams: the Gram matrices that they are made of, by number.
        signed: whether there are differences, which rounding may leave with small negative eigenvalues.
    """

    axes: tuple[Axis, ...]
    terms: tuple[Term, ...]
    grams: tuple[Array, ...]
    signed: bool


def problem(parts: Sequence[Part], axes: tuple[Axis, ...]) -> Problem:
    """The parts as products over the given axes, equal ones merged. Attributes outside the axes are asked for totals only.

    Disjunctions 1 - (x)_i W_i are w 1 1^T - 2 (x)_i (1 c_i^T + c_i 1^T) / 2 + (x)_i G_i: the middle term is made symmetric
    on every axis by itself, which keeps its trace with any product of symmetric matrices, and that is all it is used for.

    Privacy: post-processing of public queries.
    """
    number: dict[tuple[AxisQueries, bool], int] = {}
    terms: dict[tuple[int, ...], float] = {}
    inside = {name for axis in axes for name in axis.names}
    for part in parts:
        product = part.negated or part
        asked = [axis.queries_of(product) for axis in axes]
        levels = [found.level for found in asked]
        weight = math.prod((c for c in levels if c is not None), start=part.weight)
        for name, family in zip(product.clique, product.queries, strict=False):
            if not product.joint and name not in inside:
                weight *= level(family) or 0.0
        for crossed, times in ((False, 1.0), (True, -2.0)) if part.negated is not None else ((False, 1.0),):
            places = tuple(
                number.setdefault((found, crossed), len(number)) if c is None else -1
                for found, c in zip(asked, levels, strict=True)
            )
            terms[places] = terms.get(places, 0.0) + times * weight
        if part.negated is not None:
            totals = (-1,) * len(axes)
            queries = math.prod(float(family.weights().sum()) for family in product.queries)
            terms[totals] = terms.get(totals, 0.0) + part.weight * queries
    grams = [found.crossed() if crossed else found.gram() for found, crossed in number]
    merged = _merged({key: weight for key, weight in terms.items() if weight}, grams, [a.cells for a in axes])
    signed = any(part.negated is not None for part in parts)
    return Problem(axes, tuple(merged), tuple(grams), signed)


def _merged(terms: dict[tuple[int, ...], float], grams: list[Array], sizes: list[int]) -> list[Term]:
    """Products that differ on one axis only become one: the union of all k-way sets of 2 attributes is one product."""
    known: dict[tuple[tuple[int, float], ...], int] = {}
    for axis, n in enumerate(sizes):
        groups: dict[tuple[int, ...], list[tuple[int, float]]] = {}
        for key, weight in terms.items():
            groups.setdefault(key[:axis] + key[axis + 1 :], []).append((key[axis], weight))
        terms = {}
        for rest, members in groups.items():
            if len(members) == 1:
                (place, weight), *_ = members
            else:
                weight = max((weight for _, weight in members), key=abs)
                digits = 12 if min(w for _, w in members) > 0 else 17  # equal sums are equal; differences stay exact
                recipe = tuple(sorted((place, float(f"{w / weight:.{digits}g}")) for place, w in members))
                if recipe not in known:
                    known[recipe] = len(grams)
                    grams.append(weighted_sum([(1.0 if place < 0 else grams[place], w) for place, w in recipe], n))
                place = known[recipe]
            terms[(*rest[:axis], place, *rest[axis:])] = weight
    return [Term(weight, key) for key, weight in terms.items()]


def weighted_sum(weighted: Sequence[tuple[Array | float, float]], n: int) -> Array:
    """sum_j c_j G_j, shape (n, n); 1.0 stands for 1 1^T."""
    found = np.zeros((n, n))
    for gram, weight in weighted:
        found += weight * gram
    return found


ROUNDS = 4
"""Most times that every axis is gone through."""

ENOUGH = 1e-3
"""Relative gain of a round below which the search ends."""


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Product:
    """A Kronecker strategy of sensitivity 1, one factor per axis of the problem.

    Attributes:
        factors: per axis.
        error: tr(G (A^T A)^+).
    """

    factors: tuple[AxisStrategy, ...]
    error: float


def solve_product(problem: Problem, oracle: Oracle) -> Product:
    """The best product found, over all axes of the problem.

    Privacy: post-processing of public queries.
    """
    if len(problem.terms) == 1:
        return _single(problem, oracle)
    grams = _Grams(problem)
    factors = [_first(problem, axis, oracle, grams) for axis in range(len(problem.axes))]
    traces = np.array([grams.against(axis, factor) for axis, factor in enumerate(factors)])
    weights = np.array([term.weight for term in problem.terms])
    error = float(weights @ traces.prod(axis=0))
    for _ in range(ROUNDS if len(problem.axes) > 1 else 0):
        before = error
        for axis in range(len(problem.axes)):
            scales = weights * np.delete(traces, axis, axis=0).prod(axis=0)
            found = oracle(grams.surrogate(axis, scales))
            column = grams.against(axis, found)
            if float(scales @ column) < error:
                factors[axis], traces[axis], error = found, column, float(scales @ column)
        if error > before * (1 - ENOUGH):
            break
    return Product(factors=tuple(factors), error=error)


def _single(problem: Problem, oracle: Oracle) -> Product:
    (term,) = problem.terms
    factors = tuple(
        total(n) if number < 0 else oracle(problem.grams[number])
        for n, number in zip([axis.cells for axis in problem.axes], term.grams, strict=True)
    )
    error = term.weight * math.prod(factor.error for factor in factors)
    return Product(factors=factors, error=error)


def _first(problem: Problem, axis: int, oracle: Oracle, grams: "_Grams") -> AxisStrategy:
    """The axis's own best for its Gram matrices, each weighed as the plain identity elsewhere would weigh it."""
    scales = []
    for term in problem.terms:
        elsewhere = (
            float(n) if number < 0 else float(np.trace(problem.grams[number]))
            for place, (n, number) in enumerate(zip([a.cells for a in problem.axes], term.grams, strict=True))
            if place != axis
        )
        scales.append(term.weight * math.prod(elsewhere))
    return oracle(grams.surrogate(axis, np.array(scales)))


@final
class _Grams:
    """The terms' Gram matrices, axis by axis; equal ones are worked with once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.numbers = [[term.grams[axis] for term in problem.terms] for axis in range(len(problem.axes))]

    def surrogate(self, axis: int, scales: Array) -> Array:
        """sum_j c_j G_j on one axis."""
        n = self.problem.axes[axis].cells
        sums: dict[int, float] = {}
        for number, scale in zip(self.numbers[axis], scales.tolist(), strict=True):
            sums[number] = sums.get(number, 0.0) + scale
        largest = max(map(abs, sums.values()))
        # Rounded so that equal surrogates of different rounds are equal to the cache; differences would not survive it.
        digits = 17 if self.problem.signed else 9
        return weighted_sum(
            [
                (1.0 if number < 0 else self.problem.grams[number], float(f"{scale / largest:.{digits}g}"))
                for number, scale in sums.items()
            ],
            n,
        )

    def against(self, axis: int, factor: AxisStrategy) -> Array:
        """tr(G_j (A^T A)^+) of every term on one axis."""
        chosen = set(self.numbers[axis])
        found = {number: factor.against(None if number < 0 else self.problem.grams[number]) for number in chosen}
        return np.array([found[number] for number in self.numbers[axis]])
