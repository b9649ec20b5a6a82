"""Events: what a mechanism costs under each accounting, and the text that the ledger keeps."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.accounting.base import GDP, PURE, ZCDP
from duckdb_dp.accounting.convert import gdp_epsilon
from duckdb_dp.accounting.event import AdaptiveEvent, GaussianEvent, LaplaceEvent
from duckdb_dp.errors import DPError

deltas = st.floats(math.log(1e-15), math.log(0.5)).map(math.exp)


def test_steps_add_up_in_their_own_accounting_only() -> None:
    event = AdaptiveEvent(total=0.02, accounting=ZCDP)
    assert (event.mu, event.rho, event.cost(ZCDP)) == (None, 0.02, 0.02)
    with pytest.raises(DPError, match="no cost under 'gdp'"):
        event.cost(GDP)
    assert event.to_json() == '{"accounting":"zcdp","detail":{},"kind":"adaptive","total":0.02}'
    assert AdaptiveEvent(total=0.25, accounting=GDP).mu == 0.5
    noise = LaplaceEvent(epsilon=1)
    assert noise.cost(PURE) == 1.0
    assert noise.cost(ZCDP) == noise.rho == pytest.approx(math.exp(-1))
    assert noise.cost(GDP) == pytest.approx(noise.mu**2)
    assert noise.to_json() == '{"detail":{},"epsilon":1.0,"kind":"laplace"}'
    with pytest.raises(DPError, match="no pure epsilon"):
        GaussianEvent(mu=1).cost(PURE)
    for bad in (lambda: LaplaceEvent(epsilon=0), lambda: AdaptiveEvent(total=1, accounting=PURE)):
        with pytest.raises(DPError):
            bad()


@given(rho=st.floats(1e-6, 100), delta=deltas)
@settings(max_examples=50, deadline=None)
def test_event_shows_the_same_privacy_in_every_unit(rho: float, delta: float) -> None:
    event = GaussianEvent(mu=math.sqrt(2 * rho))
    assert event.rho == pytest.approx(rho, rel=1e-15)
    assert event.cost(GDP) == pytest.approx(2 * event.cost(ZCDP), rel=1e-15)
    assert GDP.epsilon(event.cost(GDP), delta) == pytest.approx(gdp_epsilon(event.mu, delta), rel=1e-9, abs=1e-9)
    assert GDP.epsilon(event.cost(GDP), delta) <= ZCDP.epsilon(event.cost(ZCDP), delta) * (1 + 1e-9) + 1e-9


def test_event_json_is_canonical() -> None:
    text = '{"detail":{"a":"x","b":2},"kind":"gaussian","mu":1.0}'
    assert GaussianEvent(mu=1, detail=(("b", 2), ("a", "x"))).to_json() == text
    assert GaussianEvent(mu=1.0, detail=(("a", "x"), ("b", 2))).to_json() == text


@pytest.mark.parametrize("mu", [0, -1, float("nan"), float("inf"), 1e-200, 1e200])
def test_event_refuses_what_is_no_mu(mu: float) -> None:
    with pytest.raises(DPError, match="not positive and finite"):
        GaussianEvent(mu=mu)
