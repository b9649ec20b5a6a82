"""Conversions: known values, the safe side of rounding, and that each undoes the other."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.accounting.convert import (
    _crossing,
    _crossing_near,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    shown,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
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


@pytest.mark.slow
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


def test_an_epsilon_is_shown_as_it_was_typed() -> None:
    assert shown(0.499999999999528) == 0.5
    assert shown(1.0000000000078) == 1.0
    assert shown(1.23456789) == 1.23456789
    assert shown(0.0) == 0.0


@given(epsilon=epsilons, delta=deltas)
@settings(max_examples=100, deadline=None)
def test_a_root_that_is_found_faster_is_the_same_float(epsilon: float, delta: float) -> None:
    """The cost is part of what identifies a request, to its last digit."""
    asked = []

    def of(mu: float) -> float:
        asked.append(mu)
        return gdp_delta(mu, epsilon)

    plain = _crossing(lambda mu: of(mu) <= delta)
    before = len(asked)
    assert _crossing_near(lambda mu: of(mu) / delta, lambda mu: of(mu) <= delta) == plain
    assert len(asked) - before < before


def test_a_root_that_was_found_wrong_is_sought_again() -> None:
    assert _crossing_near(lambda x: x / 3, lambda x: x < 2) == _crossing(lambda x: x < 2)
