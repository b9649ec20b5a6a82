"""The line that compares accountings, against sums that are worked out here from what was charged."""

import json
import math
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.accounting.base import GDP, PURE, ZCDP
from duckdb_dp.accounting.event import AdaptiveEvent, Event, GaussianEvent, LaplaceEvent
from duckdb_dp.accounting.history import Charge, compared, cost_under
from duckdb_dp.accounting.ledger import Ledger


def nothing(function: str, mechanism: str) -> float:
    return 0.0


def charge(event: Event, cost: float, mechanism: str = "m") -> Charge:
    return Charge(function="f", mechanism=mechanism, event=event.to_json(), cost=cost)


def test_gaussian_noise_is_tighter_under_gdp_and_laplace_noise_under_zcdp() -> None:
    gaussian = [charge(GaussianEvent(mu=0.1 * i), ZCDP.gaussian_cost((0.1 * i) ** 2)) for i in range(1, 6)]
    mu_squared = math.fsum((0.1 * i) ** 2 for i in range(1, 6))
    line = compared(gaussian, ZCDP, 1e-6, nothing)
    one, other = GDP.epsilon(mu_squared, 1e-6), ZCDP.epsilon(mu_squared / 2, 1e-6)
    assert line == (
        f"so far 5 charges have come to epsilon {one:.4g} under 'gdp', {other:.4g} under 'zcdp' at delta 1e-06: "
        f"'gdp' is the tighter by {100 * (1 - one / other):.2g} %"
    )
    laplace = [charge(LaplaceEvent(epsilon=0.2), GDP.laplace_cost(0.2))]
    line = compared(laplace, GDP, None, nothing)
    assert line is not None
    assert line.startswith("so far 1 charge has come to epsilon ")
    assert "at delta 1e-09: 'zcdp' is the tighter by" in line


def test_no_line_without_charges_or_under_pure_dp() -> None:
    assert compared([], GDP, 1e-9, nothing) is None
    assert compared([charge(LaplaceEvent(epsilon=1), 1.0)], PURE, 0.0, nothing) is None


def test_steps_of_earlier_versions_count_as_any_pure_step() -> None:
    older = Charge(function="f", mechanism="laplace", event='{"detail":{},"epsilon":0.5,"kind":"pure"}', cost=0.125)
    assert cost_under(ZCDP, older, nothing) == ZCDP.pure_cost(0.5) > ZCDP.laplace_cost(0.5)


@pytest.mark.parametrize("share", [0.0, 0.1, 1 / 3, 1.0])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_the_same_steps_cost_no_more_under_the_other_accounting(share: float, count: int) -> None:
    """As many equal selections as one likes, and one measurement: brute force over the steps, both ways."""
    for own, other in ((GDP, ZCDP), (ZCDP, GDP)):
        total = 0.7
        epsilon = own.selection_epsilon(share * total / count) if share else 0.0
        beta = own.beta((1 - share) * total)
        assert beta is not None
        steps = (count * other.selection_cost(epsilon) if share else 0.0) + other.gaussian_cost(beta)
        found = cost_under(other, charge(AdaptiveEvent(total=total, accounting=own), total), lambda *_: share)
        assert steps <= found * (1 + 1e-6)
        assert found <= steps * 1.06


@pytest.mark.parametrize("delta", [None, 1e-300, 1e-9, 0.5])
@pytest.mark.parametrize("size", [1e-100, 1e-30, 1e-9, 1.0, 1e9, 1e30, 1e100])
def test_the_smallest_and_largest_charges_have_a_line(size: float, delta: float | None) -> None:
    for own in (GDP, ZCDP):
        events: list[Event] = [
            GaussianEvent(mu=size),
            LaplaceEvent(epsilon=size),
            AdaptiveEvent(total=size, accounting=own),
        ]
        for event in events:
            line = compared([charge(event, size)], own, delta, lambda *_: 0.1)
            assert line is not None
            assert "nan" not in line
            assert line.endswith(("no difference", " %"))
    small = compared([charge(GaussianEvent(mu=1e-12), 1e-24)], GDP, 1e-5, nothing)
    assert small == "so far 1 charge has come to epsilon 0 under 'gdp', 0 under 'zcdp' at delta 1e-05: no difference"


def test_the_line_in_dp_explain(tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i % 2 = 0 AS a, i % 3 = 0 AS b FROM range(100) s(i)")
    duckdb_dp.testing.load(con, tmp_path / "l.dp", seed=0)
    con.execute("CALL dp_protect('t', epsilon := 3, delta := 1e-9); CALL dp_attributes('t')")
    question = "SELECT DISTINCT history FROM dp_explain('t', 'all 1-way', rho := 0.001)"
    assert con.execute(question).fetchall() == [(None,)]
    for mechanism, mu in (("auto", 0.1), ("laplace", 0.05), ("aim", 0.2)):
        con.execute(f"FROM dp_marginals('t', 'all 1-way', mu := {mu}, mechanism := '{mechanism}')").fetchall()
    ((line,),) = con.execute(question).fetchall()
    events = [json.loads(row["event"]) for row in Ledger(tmp_path / "l.dp").ledger_rows()]
    assert [event["kind"] for event in events] == ["gaussian", "laplace", "adaptive"]
    assert f"{GDP.epsilon(0.1**2 + 0.05**2 + 0.2**2, 1e-9):.4g} under 'gdp'" in line
    small = ZCDP.selection_cost(1e-3) / GDP.selection_cost(1e-3)
    rho = 0.1**2 / 2 + ZCDP.laplace_cost(events[1]["epsilon"]) + 0.2**2 * (0.9 / 2 + 0.1 * small)
    (shown,) = [part.split()[0] for part in line.split(", ")[1:]]
    assert float(shown) == pytest.approx(ZCDP.epsilon(rho, 1e-9), rel=1e-3)
    assert con.execute("SELECT history FROM dp_explain('t', ['a'], rho := 0.001, mechanism := 'aim')").fetchall() == [
        (line,)
    ]
