"""Splitting queries on residuals: the pieces add up to the whole, and equal pieces are one object."""

import functools
import itertools
import math

import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.queries import Predicates, parse_kind
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.plan.subspaces import centred_gram, centred_rows, split

D = Domain({"a": 4, "one": 1, "b": 3, "c": 2})
RNG = np.random.default_rng(7)
WORKLOADS = {
    "product": Workload.product(D, {"a": "range", "b": "prefix", "c": "identity"}, 2.0),
    "with one value": Workload.product(D, {"a": "suffix", "one": "range"}),
    "a total": Workload.product(D, {"a": "total", "b": "circular"}),
    "weighted": Workload.product(D, {"a": Predicates.of(RNG.normal(size=(3, 4)), [1.0, 2.0, 0.1]), "b": "range"}),
    "affine": Workload.predicates(D, ("a", "b"), "affine", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    "three": Workload.predicates(D, ("a", "b", "c"), RNG.normal(size=(5, 24)), 0.3),
    "joint with one value": Workload.predicates(D, ("a", "one"), RNG.normal(size=(2, 4))),
    "union": (Workload.all_k_way(D, 2, kinds="prefix") + Workload.predicates(D, ("a", "b"), "abs") + Workload.product(D, {"a": "range", "b": "range"}, 0.5)),
}  # fmt: skip


def weighted_rows(part: Part) -> np.ndarray:
    """sqrt(weight) q for all queries of a part, on its own cells."""
    roots = (np.sqrt(f.weights())[:, None] * f.dense() for f in part.queries)
    return math.sqrt(part.weight) * functools.reduce(np.kron, roots, np.eye(1))


def subquery(rows: np.ndarray, part: Part, tau: tuple[str, ...]) -> np.ndarray:
    """(C along tau, mean along the rest) of every row, on the cells of tau."""
    table = rows.reshape(-1, *D.shape(part.clique))
    for axis, name in enumerate(part.clique, start=1):
        mean = table.mean(axis=axis, keepdims=True)
        table = table - mean if name in tau else mean
    return table.reshape(len(rows), -1)


def spread(rows: np.ndarray, part: Part, tau: tuple[str, ...]) -> np.ndarray:
    """A subquery of tau as a query on the part's cells: it counts the marginal on tau."""
    shape = [D.sizes[name] if name in tau else 1 for name in part.clique]
    return np.broadcast_to(rows.reshape(-1, *shape), (len(rows), *D.shape(part.clique))).reshape(len(rows), -1)


def subsets(clique: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [tau for size in range(len(clique) + 1) for tau in itertools.combinations(clique, size)]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_subqueries_sum_to_the_query_and_make_the_gram_matrices(workload: str) -> None:
    asked = WORKLOADS[workload]
    expected: dict[tuple[str, ...], np.ndarray] = {}
    for part in asked.parts:
        rows = weighted_rows(part)
        pieces = {tau: subquery(rows, part, tau) for tau in subsets(part.clique)}
        np.testing.assert_allclose(sum(spread(piece, part, tau) for tau, piece in pieces.items()), rows, atol=1e-12)
        for tau, piece in pieces.items():
            gram = expected.setdefault(tau, np.zeros((D.cells(tau), D.cells(tau))))
            gram += piece.T @ piece
    expected = {tau: gram for tau, gram in expected.items() if np.trace(gram) > 1e-12}
    found = {tau: (subspace, factor) for tau, subspace, factor in split(asked)}
    assert sorted(found) == sorted(expected)
    for tau, (subspace, factor) in found.items():
        assert subspace.sizes == D.shape(tau)
        assert max(weight for _, weight in subspace.terms) == 1
        gram = np.zeros_like(expected[tau])
        for term, weight in subspace.terms:
            rows = centred_rows(term, subspace.sizes)
            assert term.joint == (len(term.queries) == 1 and len(tau) > 1)
            gram += factor * weight * rows.T @ rows
        np.testing.assert_allclose(gram, expected[tau], atol=1e-9)


def distinct(workload: Workload) -> int:
    return len({id(subspace) for _, subspace, _ in split(workload)})


def test_equal_residuals_share_one_object() -> None:
    domain = Domain({f"x{i}": 5 for i in range(6)})
    assert distinct(Workload.all_k_way(domain, 3, upto=True, kinds="range")) == 4  # one for each order
    assert distinct(Workload.all_k_way(domain, 2, kinds={"x0": "prefix"})) == 1 + 2 + 2
    pairs = [Workload.predicates(domain, pair, "affine") for pair in itertools.combinations(domain.attributes, 2)]
    assert distinct(functools.reduce(Workload.__add__, pairs)) == 1 + 1 + 1  # a + b looks the same from a and from b
    assert (
        distinct(Workload.product(domain, {"x0": "range"}, 3.0) + Workload.product(domain, {"x1": "range"}, 0.1)) == 2
    )


def test_a_factor_is_no_other_problem_but_other_shares_are() -> None:
    domain = Domain({"x": 5, "y": 5})

    def both(x: float, y: float) -> Workload:
        asked = (("x", x), ("y", y))
        parts = [
            Workload.product(domain, {a: "range"}) + Workload.product(domain, {a: "circular"}, w) for a, w in asked
        ]
        return parts[0] + parts[1]

    assert distinct(both(2.0, 2.0)) == 2
    assert distinct(both(2.0, 3.0)) == 3


def test_a_marginal_and_its_matrix_have_the_same_gram() -> None:
    queries = parse_kind("range", 6)
    rows = queries.dense() - queries.dense().mean(axis=1, keepdims=True)
    np.testing.assert_allclose(centred_gram(queries), rows.T @ rows, atol=1e-12)
