"""Workloads of marginals: sets, weights, orders, and every check."""

import itertools
import math

import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError

D = Domain({"age": 85, "sex": 2, "race": 5})


def test_marginals() -> None:
    w = Workload.marginals(D, [("sex", "age"), ("race",), ()])
    assert w.cliques == (("age", "sex"), ("race",), ())
    assert w.weights == {("age", "sex"): 1.0, ("race",): 1.0, (): 1.0}
    assert w.queries == 170 + 5 + 1
    assert w.is_marginals
    assert [part.shape for part in w.parts] == [(85, 2), (5,), ()]
    assert all(part.is_marginal for part in w.parts)
    assert Workload.marginals(D, [["race"]], [2]).weights == {("race",): 2.0}


def test_the_closure_is_every_subset_smallest_first() -> None:
    w = Workload.marginals(D, [("sex", "race"), ("age",)])
    assert w.closure == ((), ("age",), ("sex",), ("race",), ("sex", "race"))
    assert Workload.marginals(D, [()]).closure == ((),)


@pytest.mark.parametrize(
    ("k", "upto", "orders"),
    [(0, False, [0]), (1, False, [1]), (2, False, [2]), (3, False, [3]), (2, True, [1, 2]), (3, True, [1, 2, 3])],
)
def test_all_k_way(k: int, upto: bool, orders: list[int]) -> None:
    w = Workload.all_k_way(D, k, upto=upto)
    assert w.cliques == tuple(c for order in orders for c in itertools.combinations(D.attributes, order))
    assert w.is_marginals


@pytest.mark.parametrize("k", [-1, 4, 1.0, "2", None, True])
def test_orders_that_are_none(k: object) -> None:
    with pytest.raises(DPError, match=r"but k is 0 to 3, the number of attributes"):
        Workload.all_k_way(D, k)  # type: ignore[arg-type]


def test_upto_zero_is_nothing() -> None:
    with pytest.raises(DPError, match=r"but k is 1 to 3"):
        Workload.all_k_way(D, 0, upto=True)


def test_sets_that_are_none() -> None:
    with pytest.raises(DPError, match="no marginal was asked for"):
        Workload.marginals(D, [])
    with pytest.raises(DPError, match="unknown attribute 'height'"):
        Workload.marginals(D, [("height",)])
    with pytest.raises(DPError, match="is named twice"):
        Workload.marginals(D, [("age", "age")])
    with pytest.raises(
        DPError, match=r"the attribute set \['age', 'sex'\] is named twice; name it once, with a weight"
    ):
        Workload.marginals(D, [("age", "sex"), ("sex", "age")])


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, "2", None, True, [1]])
def test_weights_that_are_none(weight: object) -> None:
    with pytest.raises(DPError, match="weights are positive and finite"):
        Workload.marginals(D, [("age",)], [weight])  # type: ignore[list-item]


def test_as_many_weights_as_sets() -> None:
    with pytest.raises(DPError, match="2 marginals but 1 weights; give one weight per marginal"):
        Workload.marginals(D, [("age",), ()], [1])


def test_union() -> None:
    both = Workload.marginals(D, [("age",)]) + Workload.marginals(D, [("sex",)], [3])
    assert both.weights == {("age",): 1.0, ("sex",): 3.0}
    twice = both + both
    assert not twice.is_marginals
    with pytest.raises(DPError, match="this mechanism answers marginals only, each once"):
        twice.weights  # noqa: B018
    with pytest.raises(DPError, match="only workloads over the same domain can be united"):
        both + Workload.marginals(Domain({"age": 85}), [("age",)])


def test_a_workload_is_shown_in_one_line() -> None:
    domain = Domain({"a": 2, "b": 3, "c": 4})
    assert repr(Workload.marginals(domain, [()])) == "Workload(1 query set, 1 query: total)"
    shown = "Workload(6 query sets, 35 queries: a; b; c; a, b; ...)"
    assert repr(Workload.all_k_way(domain, 2, upto=True)) == shown


def test_marginals_of_equal_sizes_share_their_queries() -> None:
    domain = Domain({"a": 3, "b": 3, "c": 3, "d": 2})
    parts = Workload.all_k_way(domain, 2).parts
    assert [part.clique for part in parts] == list(itertools.combinations("abcd", 2))
    assert [part.shape for part in parts] == [tuple(map(domain.sizes.get, part.clique)) for part in parts]
    assert len({id(part.queries) for part in parts}) == 2
