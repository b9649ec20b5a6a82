"""A workload as HDMM sees it: a weighted sum of Kronecker products of Gram matrices, one factor per axis.

An axis is one attribute, or several that are taken together because some queries on them are no products.

Source: [HDMM18] section 5.3, Alg. 1 (ImpVec).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.linop import Array
from duckdb_dp.plan.hdmm.axes import Axis, Local, level
from duckdb_dp.workload import Part


@final
@dataclass(frozen=True, slots=True)
class Term:
    """One Kronecker product: weight, and per axis the number of a Gram matrix; -1 for the total 1 1^T."""

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
    """

    axes: tuple[Axis, ...]
    terms: tuple[Term, ...]
    grams: tuple[Array, ...]


def problem(parts: Sequence[Part], axes: tuple[Axis, ...]) -> Problem:
    """The parts as products over the given axes, equal ones merged. Attributes outside the axes are asked for totals only.

    Privacy: post-processing of public queries.
    """
    number: dict[Local, int] = {}
    terms: dict[tuple[int, ...], float] = {}
    inside = {name for axis in axes for name in axis.names}
    for part in parts:
        weight, places = part.weight, []
        for axis in axes:
            asked = axis.local(part)
            constant = asked.level
            weight *= 1.0 if constant is None else constant
            places.append(number.setdefault(asked, len(number)) if constant is None else -1)
        for name, family in zip(part.clique, part.queries, strict=False):
            if not part.joint and name not in inside:
                weight *= level(family) or 0.0
        terms[tuple(places)] = terms.get(tuple(places), 0.0) + weight
    grams = [asked.gram() for asked in number]
    merged = _merged({key: weight for key, weight in terms.items() if weight > 0}, grams, [a.cells for a in axes])
    return Problem(axes, tuple(merged), tuple(grams))


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
                weight = max(weight for _, weight in members)
                recipe = tuple(sorted((place, float(f"{w / weight:.12g}")) for place, w in members))
                if recipe not in known:
                    known[recipe] = len(grams)
                    grams.append(_sum([(_or_total(grams, place, n), w) for place, w in recipe]))
                place = known[recipe]
            terms[(*rest[:axis], place, *rest[axis:])] = weight
    return [Term(weight, key) for key, weight in terms.items()]


def _sum(weighted: list[tuple[Array, float]]) -> Array:
    found = np.zeros_like(weighted[0][0])
    for gram, weight in weighted:
        found += weight * gram
    return found


def _or_total(grams: Sequence[Array], place: int, n: int) -> Array:
    return np.ones((n, n)) if place < 0 else grams[place]
