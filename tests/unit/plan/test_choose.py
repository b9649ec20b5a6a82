"""Planners by name."""

import functools
import math
import operator

import pytest

from duckdb_dp.accounting.base import GDP, PURE, ZCDP
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS, PrivacyCost, choose
from duckdb_dp.plan.smasher import querysmasher
from duckdb_dp.request import Question

D = Domain({"a": 3, "b": 2})
W = Workload.marginals(D, [("a", "b"), ("b",)])
ONE = PrivacyCost.of(1.0, GDP)


@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_gives_its_name_to_its_plan(name: str) -> None:
    plan = choose(W, PrivacyCost.of(2.0, GDP), mechanism=name)
    assert (plan.mechanism, plan.objective, plan.workload) == (name, "total", W)
    assert plan.beta == pytest.approx(2)


def test_auto_takes_residual_for_marginals() -> None:
    assert choose(W, ONE).mechanism == "residual"
    assert choose(W, ONE, mechanism="auto", objective="max").mechanism == "residual"


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("kinds", "mechanism"),
    [
        ([{"a": "prefix", "b": "prefix", "c": "identity"}, {"a": "prefix", "b": "prefix"}], "hdmm"),
        ([{"a": "range", "c": "identity"}, {"b": "range", "c": "identity"}], "hdmm"),
        ([{"a": "range"}, {"b": "range"}, {"c": "range"}], "querysmasher"),
    ],
)
def test_auto_takes_the_better_of_both_kinds(kinds: list[dict[str, str]], mechanism: str) -> None:
    """On 120,000 cells: what belongs together is measured together."""
    domain = Domain({"a": 100, "b": 80, "c": 15})
    workload = functools.reduce(operator.add, (Workload.product(domain, asked) for asked in kinds))
    found = choose(workload, ONE)
    assert found.mechanism == mechanism
    assert found.rmse <= querysmasher(workload, 1.0).rmse
    again = choose(workload, ONE)
    assert [m.variance for m in again.measurements] == [m.variance for m in found.measurements]


@pytest.mark.parametrize("beta", [0, -1, math.nan, math.inf])
def test_a_cost_that_is_none(beta: float) -> None:
    with pytest.raises(DPError, match="it must be positive and finite"):
        PrivacyCost.of(beta, GDP)


def test_a_price_is_what_each_noise_takes() -> None:
    assert PrivacyCost.of(math.exp(-1), ZCDP) == PrivacyCost(beta=2 * math.exp(-1), epsilon=pytest.approx(1.0))
    assert PrivacyCost.of(0.9, GDP, rows=3).beta == pytest.approx(0.1)
    assert PrivacyCost.of(3.0, PURE, rows=3) == PrivacyCost(beta=None, epsilon=1.0)


@pytest.mark.parametrize("name", PURE_PLANNERS)
def test_pure_planners_spend_epsilon(name: str) -> None:
    plan = choose(W, PrivacyCost.of(2.0, PURE), mechanism=name)
    assert (plan.mechanism, plan.noise) == (name, "laplace")
    assert plan.epsilon == pytest.approx(2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["prefix", "identity", "range"])
@pytest.mark.parametrize("sizes", [{"a": 5000}, {"a": 3, "b": 4500}])
def test_pure_plans_of_axes_that_no_dense_strategy_fits(sizes: dict[str, int], kind: str) -> None:
    domain = Domain(sizes)
    question = Question(clique=domain.attributes, kinds=(*["identity"] * (len(sizes) - 1), kind))
    found = choose(Workload(domain, (question.part(domain),)), PrivacyCost(beta=None, epsilon=1.0))
    assert found.epsilon == pytest.approx(1.0)


def test_gaussian_noise_is_never_pure() -> None:
    for name in PLANNERS:
        if name not in PURE_PLANNERS:
            with pytest.raises(DPError, match=f"'{name}' adds Gaussian noise, which has no pure epsilon"):
                choose(W, PrivacyCost.of(1.0, PURE), mechanism=name)
    assert choose(W, PrivacyCost.of(1.0, PURE)).noise == "laplace"


def test_unknown_words() -> None:
    with pytest.raises(DPError, match=r"mechanism 'magic' is not known; use 'auto', 'residual', 'gaussian'"):
        choose(W, ONE, mechanism="magic")
    for mechanism in ("residual", "gaussian"):
        with pytest.raises(DPError, match=r"objective 'least' is not known; use 'total' .* 'max'"):
            choose(W, ONE, mechanism=mechanism, objective="least")


def test_parts_by_position_and_by_attribute_set() -> None:
    plan = choose(W, ONE)
    assert plan.part(1) is plan.part(("b",)) is W.parts[1]
    assert plan.variance(0) == plan.variance(("a", "b"))
    for which in (("a",), ("b", "a"), ("zz",)):
        with pytest.raises(DPError, match="the workload has 0 parts on"):
            plan.part(which)
