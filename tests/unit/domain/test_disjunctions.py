"""Disjunctions by complement, against OR written out cell by cell."""

import itertools
import math

import numpy as np
import pytest

from duckdb_dp.domain.disjunctions import MAX_DENSE, Complement, Disjunctions
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.queries import Intervals, Predicates, Queries
from duckdb_dp.domain.workload import MAX_WRITTEN, Workload
from duckdb_dp.errors import DPError
from duckdb_dp.plan.hdmm import hdmm, hdmm_pure
from duckdb_dp.plan.smasher import querysmasher

WEIGHTED = Predicates.of([[1, 0, 1], [0, 1, 1]], [3.0, 0.25])
FAMILIES: dict[str, list[Queries]] = {
    "two": [Intervals("prefix", 4), WEIGHTED],
    "three": [Intervals("identity", 2), Intervals("range", 3), WEIGHTED],
    "one that wraps": [Intervals("circular", 4), Intervals("total", 2)],
}


def check(queries: Queries, rows: np.ndarray, weights: np.ndarray) -> None:
    assert (queries.count, queries.n) == rows.shape
    assert queries.bounds() is None
    np.testing.assert_array_equal(queries.dense(), rows)
    np.testing.assert_allclose(queries.weights(), weights)
    np.testing.assert_allclose(queries.means(), rows.mean(axis=1), atol=1e-15)
    np.testing.assert_allclose(queries.gram(), rows.T @ (weights[:, None] * rows), atol=1e-12)
    assert queries.mean_square() == pytest.approx(float(weights @ rows.mean(axis=1) ** 2))
    for axis in range(-2, 2):
        shape = [5, 5]
        shape[axis] = queries.n
        table = np.random.default_rng(2).normal(size=shape)
        expected = np.moveaxis(np.tensordot(rows, table, axes=(1, axis)), 0, axis)
        np.testing.assert_allclose(queries.answers(table, axis), expected, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_disjunctions(name: str) -> None:
    families = FAMILIES[name]
    chosen = itertools.product(*(family.dense().astype(bool) for family in families))
    rows = np.array([_any(queries).reshape(-1) for queries in chosen], dtype=float)
    weights = [math.prod(found) for found in itertools.product(*(family.weights() for family in families))]
    check(Disjunctions.of(families), rows, np.array(weights))


def _any(queries: tuple[np.ndarray, ...]) -> np.ndarray:
    found = np.zeros(())
    for query in queries:
        found = np.logical_or.outer(found, query)
    return found


@pytest.mark.parametrize("family", [Intervals("range", 4), Intervals("circular", 3), WEIGHTED], ids=str)
def test_complements(family: Queries) -> None:
    check(Complement(family), 1 - family.dense(), family.weights())


def test_what_is_no_condition_is_refused() -> None:
    with pytest.raises(DPError, match="give predicates of 0 and 1 alone"):
        Workload.disjunctions(Domain({"a": 2, "b": 2}), {"a": [[0.5, 1]], "b": "prefix"})


def test_few_are_written_out_and_one_attribute_needs_no_or() -> None:
    domain = Domain({"a": 10, "b": 12})
    assert isinstance(Workload.disjunctions(domain, {"a": "prefix", "b": "prefix"}).parts[0].queries[0], Predicates)
    assert Workload.disjunctions(domain, {"a": "prefix"}) == Workload.product(domain, {"a": "prefix"})


def test_one_on_more_cells_than_a_matrix_has_is_not_written_out() -> None:
    workload = Workload.disjunctions(Domain({"a": 300, "b": 300}), {"a": [[1, 0] * 150], "b": [[0, 1] * 150]})
    assert isinstance(workload.parts[0].queries[0], Disjunctions)
    assert workload.queries == 1


LARGE = Domain({"a": 90, "b": 80, "c": 70})


@pytest.mark.slow
def test_many_are_planned_without_their_joint_cells() -> None:
    workload = Workload.disjunctions(LARGE, {"a": "prefix", "b": "identity", "c": [[1, 0] * 35]})
    family = workload.parts[0].queries[0]
    assert isinstance(family, Disjunctions)
    assert family.n > MAX_DENSE
    assert family.n * family.count > MAX_WRITTEN
    plans = {name: hdmm(workload, 1.0, operator=name) for name in ("opt_kron", "opt_marginals", "opt_mixture")}
    plans["residuals"] = querysmasher(workload, 1.0)
    for plan in plans.values():
        assert plans["opt_marginals"].lower_bound <= plan.rmse < 60
        assert plan.total == pytest.approx(float(np.sum(plan.variance(0))), rel=1e-6)
    assert min(plan.rmse for plan in plans.values()) < 0.5 * plans["opt_marginals"].rmse
    assert hdmm_pure(workload, 1.0, operator="opt_marginals").rmse > 0


def test_what_needs_a_matrix_says_what_does_not() -> None:
    family = Disjunctions.of([Intervals("prefix", 400), Intervals("prefix", 400)])
    with pytest.raises(DPError, match=r"160,000 cells are no matrix, .* use mechanism 'querysmasher', or 'hdmm'"):
        family.dense()
