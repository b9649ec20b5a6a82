"""What may be selected, and what is refused before anything is charged."""

import itertools

import numpy as np
import pytest

from duckdb_dp.accounting.base import GDP, ZCDP, Accounting
from duckdb_dp.adaptive import CHECKS, MECHANISMS, Options, check
from duckdb_dp.adaptive.candidates import Above, targets
from duckdb_dp.adaptive.neyman.mechanism import Parts
from duckdb_dp.adaptive.neyman.triples import dense
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError

DOMAIN = Domain({"a": 3, "b": 4, "one": 1, "c": 5, "d": 2})
CLIQUES = [("a", "b", "c"), ("a", "one"), ("b", "d")]
WEIGHTS = [1.0, 2.0, 5.0]
WORKLOAD = Workload.marginals(DOMAIN, CLIQUES, WEIGHTS)


def test_targets_are_the_closure_with_the_papers_weights() -> None:
    found = {t.clique: t for t in targets(WORKLOAD)}
    assert set(found) == {c for c in WORKLOAD.closure if c and "one" not in c}
    overlap = {c: sum(w * len(set(c) & set(pi)) for pi, w in zip(CLIQUES, WEIGHTS, strict=True)) for c in found}
    largest = max(overlap.values())
    assert {c: t.weight for c, t in found.items()} == pytest.approx({c: w / largest for c, w in overlap.items()})
    assert all(t.cells == DOMAIN.cells(t.clique) for t in found.values())


def test_large_marginals_are_no_targets() -> None:
    found = {t.clique for t in targets(WORKLOAD, 12)}
    assert found == {("a",), ("b",), ("c",), ("d",), ("a", "b"), ("b", "d")}
    assert set(Parts.of(WORKLOAD, 12).pairs) == {("a", "b"), ("b", "d")}


def test_parts_are_those_of_attributes_with_more_than_one_value() -> None:
    parts = Parts.of(WORKLOAD, None)
    assert parts.asked == dict(zip(CLIQUES, WEIGHTS, strict=True))
    assert set(parts.singles) == {"a", "b", "c", "d"}
    assert set(parts.pairs) == {("a", "b"), ("a", "c"), ("b", "c"), ("b", "d")}
    assert parts.triples == (("a", "b", "c"),)


def test_above_finds_all_supersets() -> None:
    cliques = [c for k in range(1, 5) for c in itertools.combinations("abcde", k)]
    above = Above(cliques)
    for measured in ([], [()], [("a",)], [("a", "c"), ("d",)], [("x",)], [("a", "b", "c", "d")]):
        wanted = {c for c in cliques if any(set(tau) <= set(c) for tau in measured)}
        assert above(measured) == wanted


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_a_usual_request_is_not_refused(name: str) -> None:
    for accounting in (ZCDP, GDP):
        check(WORKLOAD, Options(), 1e-6, accounting, mechanism=name, rows=3)
    assert CHECKS.keys() == MECHANISMS.keys()


@pytest.mark.parametrize("name", list(MECHANISMS))
@pytest.mark.parametrize(("accounting", "unit"), [(ZCDP, "rho"), (GDP, "mu")])
def test_too_small_a_budget(name: str, accounting: Accounting, unit: str) -> None:
    with pytest.raises(DPError, match=rf"budget is too small.* at least {unit} := ") as caught:
        check(WORKLOAD, Options(), 1e-20, accounting, mechanism=name)
    amount = float(str(caught.value).split(":= ")[1].split(" ")[0])
    least = amount if unit == "rho" else amount**2 / 2
    check(WORKLOAD, Options(), least, accounting, mechanism=name)
    with pytest.raises(DPError, match="too small"):
        check(WORKLOAD, Options(), 0.9 * least, accounting, mechanism=name)


def test_too_few_rounds() -> None:
    with pytest.raises(DPError, match=r"rounds := 2 leaves too little .* 4 attributes; at least 4 works"):
        check(WORKLOAD, Options(rounds=2), 1.0, "zcdp")
    check(WORKLOAD, Options(rounds=4), 1.0, "zcdp")


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_too_small_a_limit_of_cells(name: str) -> None:
    with pytest.raises(DPError, match=r"max_cells := 4 leaves out the 1-way marginal of 'c'.* at least 5 works"):
        check(WORKLOAD, Options(max_cells=4), 1.0, "zcdp", mechanism=name)


@pytest.mark.parametrize("attributes", [19, 40])
def test_a_closure_beyond_the_limit(attributes: int) -> None:
    domain = Domain({f"x{i}": 2 for i in range(attributes)})
    with pytest.raises(DPError, match=f"more than 200,000 here, the largest marginal with {attributes} attributes"):
        check(Workload.marginals(domain, [domain.attributes]), Options(), 1.0, "zcdp")


@pytest.mark.slow
def test_many_overlapping_marginals_are_within_the_limit() -> None:
    domain = Domain({f"x{i}": 2 for i in range(60)})
    check(Workload.all_k_way(domain, 3), Options(), 1.0, "zcdp")


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_other_queries_than_marginals(name: str) -> None:
    with pytest.raises(DPError, match="answers marginals only"):
        check(Workload.product(DOMAIN, {"a": "prefix"}), Options(), 1.0, "zcdp", mechanism=name)


@pytest.mark.parametrize(
    "options",
    [{"rounds": 0}, {"rounds": 2.5}, {"rounds": True}, {"max_cells": 0}, {"max_memory": 0}, {"max_memory": np.inf}],
)
def test_options_that_make_no_sense(options: dict[str, float]) -> None:
    name = next(iter(options))
    with pytest.raises(DPError, match=f"{name} := "):
        Options(**options)


def test_weights_scale_out() -> None:
    twice = Workload.marginals(DOMAIN, CLIQUES, [2 * weight for weight in WEIGHTS])
    assert targets(twice) == targets(WORKLOAD)
    cliques: list[Clique] = [t.clique for t in targets(WORKLOAD)]
    assert len(cliques) == len(set(cliques))


def test_triples_are_dense_where_their_counts_are_above_the_noise() -> None:
    domain = Domain(dict.fromkeys("abcd", 5))
    found = list(itertools.combinations("abcd", 3))
    # 1,000 rows in 125 cells are 8 a cell; four triples, each with an eighth of what is left, have that noise at 2 rho = 8 / 64.
    assert not dense(found, domain, 1000.0, 0.99 * 8 / 64)
    assert dense(found, domain, 1000.0, 1.01 * 8 / 64)
    assert not dense([], domain, 1000.0, 1e9)
