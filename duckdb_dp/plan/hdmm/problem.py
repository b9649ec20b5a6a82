"""A workload as HDMM sees it: a weighted sum of Kronecker products of Gram matrices, one factor per axis.

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
