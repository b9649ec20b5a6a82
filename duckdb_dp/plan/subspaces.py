"""The queries of a workload split by residual, as all planners of residuals need them.

A query q on A is answered by its subqueries q_A' on the residuals of all A' in A:
q_A' = (C along A', mean along A - A') q. Residuals are orthogonal, so each is an optimisation problem of its own.

Source: [QS26] section 6.2.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from duckdb_dp.domain.disjunctions import Complement
from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.domain.queries import Intervals, Predicates, Queries
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.linop import Array

_Kind = TypeVar("_Kind", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Term:
    """A family of subqueries on one residual: products of one family per attribute, or a joint one on its cells.

    Families are not yet centred along their attributes.
    """

    sizes: tuple[int, ...]
    queries: tuple[Queries, ...]
    joint: bool


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """All subqueries on a residual, up to a common factor: residuals with equal ones share one object, and one solution.

    Attributes:
        sizes: sizes of its attributes.
        terms: (term, weight) with the largest weight 1, in a fixed order.
    """

    sizes: tuple[int, ...]
    terms: tuple[tuple[Term, float], ...]


def by_residual(
    workload: Workload, pieces: Callable[[Part], Iterable[tuple[tuple[int, ...], _Kind, float]]]
) -> dict[Clique, dict[_Kind, float]]:
    """Residual -> kind -> how much of it the workload asks, over all its parts.

    Args:
        workload: the queries.
        pieces: (places of the residual's attributes in the part's clique, kind, amount) of one part. Parts made of equal
            families on equal sizes are split once: half a million parts have a handful of ways.
    """
    families = {id(family): family for part in workload.parts for family in part.queries}
    equal: dict[Queries, int] = {}
    kinds = {key: equal.setdefault(family, len(equal)) for key, family in families.items()}
    known: dict[object, list[tuple[tuple[int, ...], _Kind, float]]] = {}
    found: dict[Clique, dict[_Kind, float]] = {}
    for part in workload.parts:
        clique = part.clique
        shape = workload.domain.shape(clique) if part.joint else None
        key = (tuple([kinds[id(family)] for family in part.queries]), part.weight, shape)
        if key not in known:
            known[key] = list(pieces(part))
        for places, kind, amount in known[key]:
            amounts = found.setdefault(tuple([clique[place] for place in places]), {})
            amounts[kind] = amounts.get(kind, 0.0) + amount
    return found


def residuals_of(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The residuals of a clique of these sizes, as places in it; an attribute of one value has none."""
    return subsets([place for place, size in enumerate(sizes) if size > 1])


def split(workload: Workload) -> list[tuple[Clique, Subspace, float]]:
    """(A', its subspace, factor): the Gram matrix on A' is the subspace's times the factor. Zero residuals are left out.

    For a product part: prod_{i in A'} C G_i C times prod_{j in A - A'} sum of weighted squared means of j's queries.
    """
    numbers: dict[Term, int] = {}

    def pieces(part: Part) -> Iterable[tuple[tuple[int, ...], int, float]]:
        for places, term, factor in _pieces(part, workload.domain.shape(part.clique)):
            yield places, numbers.setdefault(term, len(numbers)), factor

    found = by_residual(workload, pieces)
    terms = list(numbers)
    subspaces: dict[tuple[tuple[int, float], ...], Subspace] = {}
    result = []
    for tau, weights in found.items():
        largest = max(weights.values())
        # 12 digits: sums in another order must not look like another problem.
        scaled = tuple(sorted((number, float(f"{weight / largest:.12g}")) for number, weight in weights.items()))
        if scaled not in subspaces:
            chosen = tuple((terms[number], weight) for number, weight in scaled)
            subspaces[scaled] = Subspace(chosen[0][0].sizes, chosen)
        result.append((tau, subspaces[scaled], largest))
    return result


def centred_gram(queries: Queries) -> Array:
    """C G C of a one-attribute family."""
    gram = queries.gram()
    gram = gram - gram.mean(axis=0, keepdims=True)
    found: Array = gram - gram.mean(axis=1, keepdims=True)
    return found


def centred_rows(term: Term, sizes: tuple[int, ...]) -> Array:
    """The weighted subqueries of a term as rows on the residual's cells, centred; shape (queries, cells)."""
    rows: Array = np.ones((1, 1))
    for family in term.queries:
        rows = np.asarray(np.kron(rows, np.sqrt(family.weights())[:, None] * family.dense()), dtype=np.float64)
    table = rows.reshape(-1, *sizes)
    for axis in range(1, table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table.reshape(len(table), -1)


def _pieces(part: Part, sizes: tuple[int, ...]) -> Iterable[tuple[tuple[int, ...], Term, float]]:
    """(places of A' in the part's clique, term, factor) for every A' on which something of the part is left."""
    for places in residuals_of(sizes):
        kept = tuple(sizes[place] for place in places)
        product = part.negated if places and part.negated is not None else part
        queries: tuple[Queries, ...]
        if product.joint and places:
            queries = (_averaged(part.queries[0], places, sizes),)
            factor = part.weight
            empty = _trace(centred_rows(Term(kept, queries, len(places) > 1), kept)) == 0
        else:
            queries = tuple(_positive(product.queries[place]) for place in places)
            others = (family for place, family in enumerate(product.queries) if place not in places)
            factor = math.prod((_mean_square(other) for other in others), start=part.weight)
            empty = any(is_constant(family) for family in queries)
        if factor > 0 and not empty:
            yield places, Term(kept, queries, product.joint and len(places) > 1), factor


def _positive(family: Queries) -> Queries:
    """The family without NOT, which is lost in centring but for the sign."""
    return family.inner if isinstance(family, Complement) else family


def _trace(rows: Array) -> float:
    """Squared size of centred rows, 0 where only rounding is left."""
    size = float((rows**2).sum())
    return size if size > 1e-20 * rows.size else 0.0


@lru_cache(maxsize=1024)
def _mean_square(family: Queries) -> float:
    return family.mean_square()


@lru_cache(maxsize=1024)
def is_constant(family: Queries) -> bool:
    """Whether nothing is left of the family once centred, as of 'total'."""
    if isinstance(family, Intervals):
        return family.n == 1 or family.meaning == "total"
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
