"""Conversions: known values, the safe side of rounding, and that each undoes the other."""

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.accounting.convert import (
    cost,
    cost_epsilon,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    pure_cost,
    pure_epsilon,
    selection_epsilon,
    shown,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from duckdb_dp.accounting.event import AdaptiveEvent, GaussianEvent, PureEvent
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError

epsilons = st.floats(math.log(1e-6), math.log(200)).map(math.exp)
deltas = st.floats(math.log(1e-15), math.log(0.5)).map(math.exp)


@pytest.mark.parametrize(("delta", "gdp", "zcdp"), [(1e-6, 4.22468, 4.5309), (1e-9, 5.49527, 5.77869)])
def test_noise_at_epsilon_one(delta: float, gdp: float, zcdp: float) -> None:
    assert 1 / gdp_mu(1, delta) == pytest.approx(gdp, abs=5e-6)
    assert 1 / math.sqrt(2 * zcdp_rho(1, delta)) == pytest.approx(zcdp, abs=3e-5)


def test_known_rho() -> None:
    assert zcdp_rho(1, 1e-9) == pytest.approx(0.014973, abs=5e-7)
    rho = [zcdp_rho(epsilon, 1e-6) for epsilon in (0.5, 1, 2, 4, 8)]
    assert rho == pytest.approx([0.00664, 0.02436, 0.08815, 0.31106, 1.05236], abs=5e-6)


@given(epsilon=epsilons, delta=deltas)
@settings(max_examples=150, deadline=None)
def test_solutions_are_on_the_safe_side_and_tight(epsilon: float, delta: float) -> None:
    for largest, smallest, delta_of in ((gdp_mu, gdp_epsilon, gdp_delta), (zcdp_rho, zcdp_epsilon, zcdp_delta)):
        size = largest(epsilon, delta)
        assert delta_of(size, epsilon) <= delta < delta_of(size * (1 + 1e-9), epsilon)
        back = smallest(size, delta)
        assert delta_of(size, back) <= delta
        assert back == 0 or delta_of(size, back * (1 - 1e-9)) > delta * (1 - 1e-9)


@given(epsilon=epsilons, delta=deltas)
@settings(max_examples=100, deadline=None)
def test_gdp_is_never_dearer_than_zcdp(epsilon: float, delta: float) -> None:
    """A mu-GDP mechanism is mu^2/2-zCDP, so the exact curve lies below the conversion of zCDP."""
    mu = math.sqrt(2 * zcdp_rho(epsilon, delta))
    assert gdp_delta(mu, epsilon) <= delta * (1 + 1e-9)
    assert gdp_mu(epsilon, delta) >= mu * (1 - 1e-9)


@given(size=st.floats(1e-3, 20), epsilon=st.floats(0, 50), factor=st.floats(1.01, 10))
@settings(max_examples=100, deadline=None)
def test_monotone(size: float, epsilon: float, factor: float) -> None:
    for delta_of in (gdp_delta, zcdp_delta):
        assert 0 <= delta_of(size, epsilon) <= delta_of(size * factor, epsilon) * (1 + 1e-12) <= 1 + 1e-12
        assert delta_of(size, epsilon * factor + 0.01) <= delta_of(size, epsilon) * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [1e-100, 1e-30, 1e4, 1e30, 1e100])
def test_the_whole_range_of_budgets_converts(epsilon: float) -> None:
    for largest, delta_of in ((gdp_mu, gdp_delta), (zcdp_rho, zcdp_delta)):
        size = largest(epsilon, 1e-9)
        assert 0 < size < math.inf
        assert delta_of(size, epsilon) <= 1e-9


def test_nothing_costs_nothing() -> None:
    assert gdp_delta(0, 1) == zcdp_delta(0, 1) == 0
    assert gdp_epsilon(0, 1e-9) == zcdp_epsilon(0, 1e-9) == 0
    assert gdp_epsilon(1e-12, 1e-9) == zcdp_epsilon(1e-22, 1e-9) == 0  # delta alone covers it


@pytest.mark.parametrize("convert", [gdp_mu, gdp_epsilon, zcdp_rho, zcdp_epsilon])
@pytest.mark.parametrize("delta", [0.0, 1e-301, 1.0, float("nan")])
def test_impossible_deltas_are_refused(convert, delta: float) -> None:
    with pytest.raises(DPError, match="1e-9 works"):
        convert(1.0, delta)


def test_cost_in_the_unit_of_the_accounting() -> None:
    budget = Budget(epsilon=1, delta=1e-9)
    assert cost(budget, "gdp") == gdp_mu(1, 1e-9) ** 2
    assert cost(budget, "zcdp") == zcdp_rho(1, 1e-9)
    assert [cost(Budget(rho=0.3), a) for a in ("gdp", "zcdp")] == [0.6, 0.3]
    assert [cost(Budget(mu=3), a) for a in ("gdp", "zcdp")] == [9, 4.5]
    for accounting in ("gdp", "zcdp"):
        assert cost_epsilon(cost(budget, accounting), 1e-9, accounting) == pytest.approx(1, rel=1e-9)


def test_cost_refuses_what_it_cannot_do() -> None:
    with pytest.raises(DPError, match="needs a delta"):
        cost(Budget(epsilon=1), "gdp")
    for budget in (Budget(rho=1), Budget(mu=1), Budget(epsilon=1, delta=1e-9)):
        with pytest.raises(DPError, match="is no pure budget"):
            cost(budget, "pure")
    for accounting in ("gdp", "zcdp"):
        with pytest.raises(DPError, match="cannot promise delta 0"):
            cost(Budget(epsilon=1, delta=0), accounting)
    with pytest.raises(DPError, match="'renyi' is not available"):
        cost(Budget(rho=1), "renyi")


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 0.999, 1.0, 3.0, 20.0])
def test_a_pure_step_costs_what_randomised_response_does(epsilon: float) -> None:
    """Its mu: the trade-off curve of N(0, 1) against N(mu, 1) goes through the corner of randomised response."""
    assert cost(Budget(epsilon=epsilon, delta=0), "pure") == pure_cost(epsilon, "pure") == epsilon
    assert pure_cost(epsilon, "zcdp") == pytest.approx(epsilon**2 / 2)
    mpmath.mp.dps = 50
    wrong = 1 / (1 + mpmath.exp(epsilon))  # both errors at the corner
    mu = math.sqrt(pure_cost(epsilon, "gdp"))
    tail = mpmath.ncdf(-mpmath.mpf(mu) / 2)
    assert float(tail / wrong) == pytest.approx(1, abs=1e-9)
    assert tail <= wrong  # rounded up
    for accounting in ("pure", "zcdp", "gdp"):
        there = pure_cost(epsilon, accounting)
        assert pure_epsilon(there, accounting) == pytest.approx(epsilon, rel=1e-9)
        assert pure_cost(pure_epsilon(there, accounting), accounting) <= there * (1 + 1e-10)


def test_a_selection_costs_less_under_zcdp() -> None:
    assert selection_epsilon(0.02, "zcdp") == pytest.approx(0.4)
    assert selection_epsilon(0.02, "gdp") == pure_epsilon(0.02, "gdp")
    assert selection_epsilon(0.02, "pure") == 0.02


def test_an_epsilon_is_shown_as_it_was_typed() -> None:
    assert shown(0.499999999999528) == 0.5
    assert shown(1.0000000000078) == 1.0
    assert shown(1.23456789) == 1.23456789
    assert shown(0.0) == 0.0


def test_steps_add_up_in_their_own_accounting_only() -> None:
    event = AdaptiveEvent(total=0.02, accounting="zcdp")
    assert (event.mu, event.rho, event.cost("zcdp")) == (None, 0.02, 0.02)
    assert event.epsilon(1e-9, "zcdp") == pytest.approx(zcdp_epsilon(0.02, 1e-9))
    with pytest.raises(DPError, match="no cost under 'gdp'"):
        event.cost("gdp")
    assert AdaptiveEvent(total=0.25, accounting="gdp").mu == 0.5
    assert PureEvent(pure=1).cost("pure") == 1.0
    assert PureEvent(pure=1).epsilon(1e-9, "zcdp") == pytest.approx(zcdp_epsilon(0.5, 1e-9))
    with pytest.raises(DPError, match="no pure epsilon"):
        GaussianEvent(mu=1).cost("pure")
    for bad in (lambda: PureEvent(pure=0), lambda: AdaptiveEvent(total=1, accounting="pure")):
        with pytest.raises(DPError):
            bad()


@given(rho=st.floats(1e-6, 100), delta=deltas)
@settings(max_examples=50, deadline=None)
def test_event_shows_the_same_privacy_in_every_unit(rho: float, delta: float) -> None:
    event = GaussianEvent(mu=math.sqrt(2 * rho))
    assert event.rho == pytest.approx(rho, rel=1e-15)
    assert event.cost("gdp") == pytest.approx(2 * event.cost("zcdp"), rel=1e-15)
    assert event.epsilon(delta, "gdp") == pytest.approx(gdp_epsilon(event.mu, delta), rel=1e-9, abs=1e-9)
    assert event.epsilon(delta, "gdp") <= event.epsilon(delta, "zcdp") * (1 + 1e-9) + 1e-9


def test_event_json_is_canonical() -> None:
    text = '{"detail":{"a":"x","b":2},"kind":"gaussian","mu":1.0}'
    assert GaussianEvent(mu=1, detail=(("b", 2), ("a", "x"))).to_json() == text
    assert GaussianEvent(mu=1.0, detail=(("a", "x"), ("b", 2))).to_json() == text


@pytest.mark.parametrize("mu", [0, -1, float("nan"), float("inf"), 1e-200, 1e200])
def test_event_refuses_what_is_no_mu(mu: float) -> None:
    with pytest.raises(DPError, match="not positive and finite"):
        GaussianEvent(mu=mu)
