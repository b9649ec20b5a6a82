"""What dp_explain shows of a plan."""

from typing import Any

import pytest

from duckdb_dp.plan.base import Plan


@pytest.mark.slow
def test_a_gap_below_zero_by_rounding_is_none(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "gap", property(lambda self: -2.2e-16))
    assert shared("SELECT DISTINCT gap FROM dp_explain('people', 'all 2-way', mu := 1)") == [(0.0,)]
    compared = shared("SELECT gap FROM dp_explain('people', 'all 2-way', mu := 1, mechanism := 'all') WHERE intervals")
    assert set(compared) == {(0.0,)}


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.75])
def test_the_epsilon_that_is_typed_is_shown(shared: Any, epsilon: float) -> None:
    asked = f"'people', ['sex', 'race'], epsilon := {epsilon}, delta := 1e-9"
    assert shared(f"SELECT DISTINCT epsilon, delta FROM dp_explain({asked})") == [(epsilon, 1e-9)]
    shared(f"FROM dp_marginals({asked})")
    assert shared("SELECT epsilon FROM dp_ledger() ORDER BY release DESC LIMIT 1") == [(epsilon,)]
