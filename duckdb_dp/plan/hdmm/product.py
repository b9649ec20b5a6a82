"""OPT_kron: the best single Kronecker product for a union of products, one axis after the other.

With all axes but one fixed, the error is that of one Gram matrix on the axis that is left: the surrogate
sum_j c_j G_ji, c_j = w_j times the other axes' errors on term j. Each axis's strategy is found anew for its surrogate
until nothing is gained; a new one that is worse, which only an imperfect oracle returns, is not taken.

Source: [HDMM18] Definitions 17 and 18.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.linop import Array
from duckdb_dp.plan.hdmm.oracle import AxisStrategy, Oracle, total
from duckdb_dp.plan.hdmm.problem import Problem, weighted_sum

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
