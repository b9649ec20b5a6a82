"""Planners by name."""

import math

import pytest

from duckdb_dp.domain import Domain
from duckdb_dp.errors import DPError
from duckdb_dp.plan.choose import PLANNERS, choose
from duckdb_dp.workload import Workload

D = Domain({"a": 3, "b": 2})
W = Workload.marginals(D, [("a", "b"), ("b",)])


@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_gives_its_name_to_its_plan(name: str) -> None:
    plan = choose(W, beta=2.0, mechanism=name)
    assert (plan.mechanism, plan.objective, plan.workload) == (name, "total", W)
    assert plan.beta == pytest.approx(2)


def test_auto_takes_residual_for_marginals() -> None:
    assert choose(W, beta=1.0).mechanism == "residual"
    assert choose(W, beta=1.0, mechanism="auto", objective="max").mechanism == "residual"


@pytest.mark.parametrize("beta", [0, -1, math.nan, math.inf])
def test_a_cost_that_is_none(beta: float) -> None:
    with pytest.raises(DPError, match="it must be positive and finite"):
        choose(W, beta=beta)


def test_unknown_words() -> None:
    with pytest.raises(DPError, match=r"mechanism 'magic' is not known; use 'auto', 'residual', 'gaussian'"):
        choose(W, beta=1, mechanism="magic")
    for mechanism in ("residual", "gaussian"):
        with pytest.raises(DPError, match=r"objective 'least' is not known; use 'total' .* or 'max'"):
            choose(W, beta=1, mechanism=mechanism, objective="least")


def test_parts_by_position_and_by_attribute_set() -> None:
    plan = choose(W, beta=1.0)
    assert plan.part(1) is plan.part(("b",)) is W.parts[1]
    assert plan.variance(0) == plan.variance(("a", "b"))
    for which in (("a",), ("b", "a"), ("zz",)):
        with pytest.raises(DPError, match="the workload has 0 parts on"):
            plan.part(which)
