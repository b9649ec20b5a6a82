"""The accountings: what budgets and steps cost under each, that each way back undoes it, and that a new one is one class."""

import ast
import math
import re
from pathlib import Path
from typing import final

import duckdb
import mpmath
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp.accounting.base import (
    ACCOUNTINGS,
    GDP,
    PURE,
    ZCDP,
    Accounting,
    GaussianAccounting,
    find_accounting,
    usual_accounting,
)
from duckdb_dp.accounting.convert import gdp_mu, zcdp_rho
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError

PACKAGE = Path(duckdb_dp.__file__).parent


def test_cost_in_the_unit_of_the_accounting() -> None:
    budget = Budget(epsilon=1, delta=1e-9)
    assert GDP.cost(budget) == gdp_mu(1, 1e-9) ** 2
    assert ZCDP.cost(budget) == zcdp_rho(1, 1e-9)
    assert [a.cost(Budget(rho=0.3)) for a in (GDP, ZCDP)] == [0.6, 0.3]
    assert [a.cost(Budget(mu=3)) for a in (GDP, ZCDP)] == [9, 4.5]
    for accounting in (GDP, ZCDP):
        assert accounting.epsilon(accounting.cost(budget), 1e-9) == pytest.approx(1, rel=1e-9)


def test_cost_refuses_what_it_cannot_do() -> None:
    with pytest.raises(DPError, match="needs a delta"):
        GDP.cost(Budget(epsilon=1))
    for budget in (Budget(rho=1), Budget(mu=1), Budget(epsilon=1, delta=1e-9)):
        with pytest.raises(DPError, match="is no pure budget"):
            PURE.cost(budget)
    for accounting in (GDP, ZCDP):
        with pytest.raises(DPError, match="cannot promise delta 0"):
            accounting.cost(Budget(epsilon=1, delta=0))
    with pytest.raises(DPError, match="'renyi' is not available"):
        find_accounting("renyi")


def test_the_usual_accounting_of_a_budget() -> None:
    assert [usual_accounting(budget) for budget in (Budget(epsilon=1), Budget(mu=1), Budget(rho=1))] == [GDP, GDP, ZCDP]
    assert usual_accounting(Budget(epsilon=1, delta=0)) is PURE


@pytest.mark.parametrize("accounting", ACCOUNTINGS.values(), ids=str)
@pytest.mark.parametrize("cost", [1e-6, 0.3, 7.0])
def test_ways_there_and_back(accounting: Accounting, cost: float) -> None:
    assert find_accounting(str(accounting)) is accounting
    typed = Budget(**accounting.typed(cost)).with_delta(0 if accounting.pure else None)
    assert accounting.cost(typed) == pytest.approx(cost, rel=1e-12)
    beta = accounting.beta(cost)
    assert (beta is None) == accounting.pure
    if beta is not None:
        assert accounting.gaussian_cost(beta) == cost
    epsilon = accounting.pure_epsilon(cost)
    assert cost * (1 - 1e-9) <= accounting.pure_cost(epsilon) <= cost * (1 + 1e-10)
    noisy = accounting.laplace_epsilon(cost)
    assert noisy >= epsilon
    assert cost * (1 - 1e-9) <= accounting.laplace_cost(noisy) <= cost * (1 + 1e-10)
    chosen = accounting.selection_epsilon(cost)
    assert chosen >= epsilon
    assert cost * (1 - 1e-9) <= accounting.selection_cost(chosen) <= cost * (1 + 1e-10)
    assert accounting.guess(cost) >= 1 / 2


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 0.999, 1.0, 3.0, 20.0])
def test_a_pure_step_costs_what_randomised_response_does(epsilon: float) -> None:
    """Its mu: the trade-off curve of N(0, 1) against N(mu, 1) goes through the corner of randomised response."""
    assert PURE.cost(Budget(epsilon=epsilon, delta=0)) == PURE.pure_cost(epsilon) == epsilon
    assert ZCDP.pure_cost(epsilon) == PURE.rho(epsilon) == pytest.approx(epsilon**2 / 2)
    mpmath.mp.dps = 50
    wrong = 1 / (1 + mpmath.exp(epsilon))  # both errors at the corner
    mu = math.sqrt(GDP.pure_cost(epsilon))
    tail = mpmath.ncdf(-mpmath.mpf(mu) / 2)
    assert float(tail / wrong) == pytest.approx(1, abs=1e-9)
    assert tail <= wrong  # rounded up
    for accounting in (PURE, ZCDP, GDP):
        there = accounting.pure_cost(epsilon)
        assert accounting.pure_epsilon(there) == pytest.approx(epsilon, rel=1e-9)
        assert accounting.pure_cost(accounting.pure_epsilon(there)) <= there * (1 + 1e-10)


def test_a_selection_costs_about_a_quarter_of_a_pure_step() -> None:
    assert ZCDP.selection_epsilon(0.02) == pytest.approx(0.4)
    assert GDP.selection_epsilon(0.02) == 2 * GDP.pure_epsilon(0.02)
    assert PURE.selection_epsilon(0.02) == 0.02


def test_selections_that_a_budget_pays_for() -> None:
    """Steps of one selection at 0.1 and one Gaussian measurement of mu 0.05: 14.5 when a selection was a pure step."""
    total = GDP.cost(Budget(epsilon=3, delta=1e-9))
    measured = GDP.gaussian_cost(0.05**2)
    assert total / (GDP.pure_cost(0.1) + measured) == pytest.approx(14.5, abs=0.05)
    assert total / (GDP.selection_cost(0.1) + measured) == pytest.approx(41.2, abs=0.05)


@pytest.mark.slow
def test_no_other_module_names_an_accounting() -> None:
    """They ask the object, so that a new accounting is one class: only text that is read by people may name them."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent.name != "accounting":
            found += [f"{path.name}:{text.lineno}" for text in _texts(path) if text.value in ACCOUNTINGS]
    for path in sorted(PACKAGE.rglob("*.j2")):
        found += [path.name] * bool(re.search("|".join(f"[\"']{name}[\"']" for name in ACCOUNTINGS), path.read_text()))
    assert found == []


def _texts(path: Path) -> list[ast.Constant]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]


@final
class Doubled(GaussianAccounting):
    """zCDP in units of rho / 2, which no user should want."""

    name, title, unit, symbol = "doubled", "doubled zCDP", "rho/2", "ρ/2"

    def typed(self, cost: float) -> dict[str, float]:
        return {"rho": cost / 2}

    def epsilon(self, cost: float, delta: float) -> float:
        return ZCDP.epsilon(cost / 2, delta)

    def largest(self, epsilon: float, delta: float) -> float:
        return 2 * ZCDP.largest(epsilon, delta)

    def gaussian_cost(self, beta: float) -> float:
        return beta

    def beta(self, cost: float) -> float:
        return cost

    def pure_cost(self, epsilon: float) -> float:
        return 2 * ZCDP.pure_cost(epsilon)

    def pure_epsilon(self, cost: float) -> float:
        return ZCDP.pure_epsilon(cost / 2)

    def mu(self, cost: float) -> None:
        return None

    def rho(self, cost: float) -> float:
        return cost / 2


@pytest.mark.slow
def test_a_new_accounting_is_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protect, explain, ask, be refused, choose adaptively and report under an accounting that only this test knows."""
    monkeypatch.setitem(ACCOUNTINGS, "doubled", Doubled())
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i % 2 = 0 AS a, i % 3 = 0 AS b FROM range(100) s(i)")
    duckdb_dp.testing.load(con, tmp_path / "l.dp", seed=0)
    con.execute("CALL dp_protect('t', rho := 2, delta := 1e-9, accounting := 'doubled'); CALL dp_attributes('t')")
    con.execute("FROM dp_explain('t', ['a'], rho := 0.5)").fetchall()
    con.execute("FROM dp_explain('t', ['a'], target_stddev := 5)").fetchall()
    con.execute("FROM dp_marginals('t', ['a'], rho := 0.5, release := 'first')").fetchall()
    con.execute("FROM dp_marginals('t', 'all 2-way', rho := 0.5, mechanism := 'aim')").fetchall()
    assert con.execute("SELECT accounting, total, remaining FROM dp_budget()").fetchall() == [("doubled", 4.0, 2.0)]
    with pytest.raises(
        duckdb.Error, match=r"epsilon .*rho/2 4\) is more than what remains .*up to epsilon := \S+ or rho := 1"
    ):
        con.execute("FROM dp_marginals('t', ['b'], rho := 2)")
    assert "ρ/2" in duckdb_dp.report(con, "first").html
