"""What a plan shows of itself."""

import pytest

import duckdb_dp
from duckdb_dp import Domain, Workload
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS

WORKLOAD = Workload.marginals(Domain({"a": 3, "b": 2}), [("a", "b"), ("b",)])


@pytest.mark.parametrize(
    ("mechanism", "delta"), [*((name, 1e-9) for name in PLANNERS), *((name, 0.0) for name in PURE_PLANNERS)]
)
def test_a_plan_is_shown_for_people(mechanism: str, delta: float) -> None:
    plan = duckdb_dp.plan(WORKLOAD, mechanism=mechanism, epsilon=1.0, delta=delta)
    assert repr(plan) == str(plan)
    assert repr(plan).startswith(f"Plan '{mechanism}' for 2 query sets, 8 queries\n")
    assert "privacy cost" in plan._repr_html_()


def test_one_query_of_one_set() -> None:
    shown = str(duckdb_dp.plan(Workload.marginals(Domain({"a": 3}), [()]), rho=0.5))
    assert shown.startswith("Plan 'residual' for 1 query set, 1 query\n")
    assert "gap 0.0e+00)" in shown
