"""The kinds of noise: costs and variances undo each other, and no other module tells kinds apart by name."""

import ast
from pathlib import Path

import numpy as np
import pytest

import duckdb_dp
from duckdb_dp.accounting.base import ACCOUNTINGS, Accounting
from duckdb_dp.linop import Dense, Identity
from duckdb_dp.noise.kinds import NOISES, Noise
from duckdb_dp.plan.choose import PLANNERS, PURE_PLANNERS

PACKAGE = Path(duckdb_dp.__file__).parent


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_costs_and_variances(noise: Noise) -> None:
    strategy = Dense(np.array([[1.0, 2.0, -3.0], [0.5, 0.0, 1.0]]))
    for cost in (0.01, 1.0, 30.0):
        assert noise.cost(strategy, noise.variance(strategy, cost)) == pytest.approx(cost, rel=1e-12)
        assert noise.variance(Identity(3), cost) == pytest.approx(noise.unit_variance(cost), rel=1e-12)
    assert noise.name in (PURE_PLANNERS if noise.pure else PLANNERS)  # independent noise on each marginal


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("accounting", ACCOUNTINGS.values(), ids=str)
def test_an_event_costs_what_may_be_spent(noise: Noise, accounting: Accounting) -> None:
    if noise.pure or not accounting.pure:
        assert noise.event(0.3, accounting).cost(accounting) == pytest.approx(0.3, rel=1e-9)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_compares_names_of_noise(path: Path) -> None:
    compared = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Compare)]
    texts = [one for node in compared for one in [node.left, *node.comparators] if isinstance(one, ast.Constant)]
    assert [text.lineno for text in texts if text.value in NOISES] == []
