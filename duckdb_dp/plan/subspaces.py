"""Splitting a workload into its parts on the residual spaces of all attribute sets.

A query q on A is answered by its subqueries q_A' on the residuals of all A' in A:
q_A' = (C along A', mean along A - A') q. Residuals are orthogonal, so each is an optimisation problem of its own.

Source: [QS26] section 6.2.
"""

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from duckdb_dp.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.queries import Predicates, Queries
from duckdb_dp.workload import Part, Workload


@dataclass(frozen=True, slots=True)
class Term:
    """A family of subqueries on one residual: products of one family per attribute, or a joint one on its cells.

    Families are not yet centred along their attributes.
    """

    queries: tuple[Queries, ...]
    joint: bool


@dataclass(frozen=True, slots=True)
class Subspace:
    """All subqueries on a residual, up to a common factor: residuals with equal ones have the same best strategy.

    Attributes:
        sizes: sizes of its attributes.
        terms: (term, weight) with the largest weight 1, in a fixed order.
    """

    sizes: tuple[int, ...]
    terms: tuple[tuple[Term, float], ...]


def split(workload: Workload) -> list[tuple[Clique, Subspace, float]]:
    """(A', its subspace, factor): the Gram matrix on A' is the subspace's times the factor. Zero residuals are left out.

    For a product part: prod_{i in A'} C G_i C times prod_{j in A - A'} sum of weighted squared means of j's queries.
    """
    domain = workload.domain
    found: dict[Clique, dict[Term, float]] = defaultdict(lambda: defaultdict(float))
    for part in workload.parts:
        for places in _subsets(len(part.clique)):
            tau = tuple(part.clique[place] for place in places)
            term, factor = _term(part, places, domain.shape(part.clique))
            if factor > 0:
                found[tau][term] += factor
    subspaces: dict[tuple[object, ...], Subspace] = {}
    result = []
    for tau, terms in found.items():
        largest = max(terms.values())
        # 12 digits: sums in another order must not look like another problem.
        scaled = sorted(((term, float(f"{weight / largest:.12g}")) for term, weight in terms.items()), key=lambda t: repr(t[0]))
        key = (domain.shape(tau), tuple(scaled))
        subspace = subspaces.setdefault(key, Subspace(domain.shape(tau), tuple(scaled)))
        result.append((tau, subspace, largest))
    return result


def centred_gram(queries: Queries) -> Array:
    """C G C of a one-attribute family."""
    gram = queries.gram()
    gram = gram - gram.mean(axis=0, keepdims=True)
    return gram - gram.mean(axis=1, keepdims=True)


def centred_rows(term: Term, sizes: tuple[int, ...]) -> Array:
    """The weighted subqueries of a term as rows on the residual's cells, centred; shape (queries, cells)."""
    rows = np.ones((1, 1))
    for family in term.queries:
        rows = np.kron(rows, np.sqrt(family.weights())[:, None] * family.dense())
    table = rows.reshape(-1, *sizes)
    for axis in range(1, table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table.reshape(len(table), -1)


@lru_cache(maxsize=64)
def _subsets(size: int) -> list[tuple[int, ...]]:
    return [places for order in range(size + 1) for places in itertools.combinations(range(size), order)]


def _term(part: Part, places: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[Term, float]:
    if any(sizes[place] == 1 for place in places):
        return Term((), joint=False), 0.0  # an attribute of one value has no residual
    if part.joint:
        reduced = _averaged(part.queries[0], places, sizes)
        if not places:
            return Term((), joint=False), part.weight * float(reduced.gram()[0, 0])
        return Term((reduced,), joint=len(places) > 1), part.weight
    kept = tuple(part.queries[place] for place in places)
    others = (part.queries[place] for place in range(len(sizes)) if place not in places)
    factor = math.prod((_mean_square(family) for family in others), start=part.weight)
    if any(_is_constant(family) for family in kept):
        return Term((), joint=False), 0.0
    return Term(kept, joint=False), factor


@lru_cache(maxsize=1024)
def _mean_square(family: Queries) -> float:
    return float(family.weights() @ family.means() ** 2)


@lru_cache(maxsize=1024)
def _is_constant(family: Queries) -> bool:
    """Whether nothing is left of the family once centred, as of 'total'."""
    gram = family.gram()
    return bool(np.trace(centred_gram(family)) <= 1e-12 * np.trace(gram))


@lru_cache(maxsize=1024)
def _averaged(family: Queries, places: tuple[int, ...], sizes: tuple[int, ...]) -> Predicates:
    """A joint family with the attributes outside ``places`` averaged out."""
    table = family.dense().reshape(-1, *sizes)
    gone = tuple(axis + 1 for axis in range(len(sizes)) if axis not in places)
    rows = table.mean(axis=gone) if gone else table
    # Rounded, so that equal families reached in different ways are recognised as equal.
    return Predicates.of(np.round(rows.reshape(len(rows), -1), 14), family.weights())
