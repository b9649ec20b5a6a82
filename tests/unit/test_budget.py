"""A budget is one number of one kind, or an error that says what to type."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError


@pytest.mark.parametrize("value", [1, 1.0, Decimal(1), Fraction(1), np.int64(1), np.float32(1)])
def test_equal_numbers_are_equal_budgets(value: object) -> None:
    budget = Budget(epsilon=value, delta=Decimal("1e-9"))
    assert budget == Budget(epsilon=1.0, delta=1e-9)
    assert (type(budget.epsilon), type(budget.delta)) == (float, float)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"epsilon": 1, "delta": 1e-9}, "epsilon 1, delta 1e-09"),
        ({"epsilon": 0.5}, "epsilon 0.5"),
        ({"rho": 0.25}, "rho 0.25"),
        ({"mu": 2}, "mu 2"),
    ],
)
def test_text(fields: dict, text: str) -> None:
    assert str(Budget(**fields)) == text


def test_with_delta_fills_in_only_what_is_missing() -> None:
    assert Budget(epsilon=1).with_delta(1e-6) == Budget(epsilon=1, delta=1e-6)
    for complete in (Budget(epsilon=1, delta=1e-9), Budget(rho=1), Budget(mu=1)):
        assert complete.with_delta(1e-6) is complete
    assert Budget(epsilon=1).with_delta(None) == Budget(epsilon=1)


@pytest.mark.parametrize(
    ("fields", "found", "works"),
    [
        ({}, "no budget", "epsilon := 1"),
        ({"delta": 1e-9}, "delta 1e-09 alone", "epsilon := 1"),
        ({"epsilon": 1, "rho": 2}, "epsilon 1 and rho 2 are 2 budgets", "exactly one"),
        ({"epsilon": 1, "rho": 2, "mu": 3}, "are 3 budgets", "exactly one"),
        ({"epsilon": 0}, "epsilon 0 is not positive", "such as 1"),
        ({"epsilon": -1}, "epsilon -1 is not positive", "such as 1"),
        ({"rho": -0.5}, "rho -0.5 is not positive", "such as 1"),
        ({"mu": 0.0}, "mu 0 is not positive", "such as 1"),
        ({"mu": 1e200}, "mu 1e+200 is out of range", "1e-100 to 1e+100"),
        ({"epsilon": 1e-200}, "epsilon 1e-200 is out of range", "1e-100 to 1e+100"),
        ({"epsilon": float("nan")}, "epsilon nan is not a finite number", "such as 1"),
        ({"epsilon": Decimal("sNaN")}, "is not a finite number", "such as 1"),
        ({"rho": float("inf")}, "rho inf is not a finite number", "such as 1"),
        ({"mu": 10**400}, "is not a finite number", "such as 1"),
        ({"epsilon": True}, "epsilon true is not a number", "such as 1"),
        ({"epsilon": np.True_}, "is not a number", "such as 1"),
        ({"epsilon": "1"}, "epsilon '1' is not a number", "such as 1"),
        ({"epsilon": 1, "delta": "1e-9\n"}, "is not a number", "such as 1e-9"),
        ({"epsilon": 1, "delta": -1e-9}, "delta -1e-09 is not between", "1e-9 works"),
        ({"epsilon": 1, "delta": 1}, "delta 1 is not between", "1e-9 works"),
        ({"epsilon": 1, "delta": 1e-310}, "delta 1e-310 is not between", "1e-9 works"),
        ({"rho": 1, "delta": 1e-9}, "rho 1 takes no delta", "leave out delta 1e-09"),
        ({"mu": 1, "delta": 1e-9}, "mu 1 takes no delta", "leave out delta 1e-09"),
    ],
)
def test_refusals_say_what_was_found_and_what_works(fields: dict, found: str, works: str) -> None:
    with pytest.raises(DPError) as caught:
        Budget(**fields)
    message = str(caught.value)
    assert found in message
    assert works in message
    assert "\n" not in message


def test_delta_0_is_pure_dp() -> None:
    assert Budget(epsilon=1).with_delta(0) == Budget(epsilon=1, delta=0)
