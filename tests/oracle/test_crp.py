"""Conditional ResidualPlanner: the water level against a convex solver, and against what is known in closed form."""

import math

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Centring
from duckdb_dp.plan.crp import conditional, waterfill
from duckdb_dp.reconstruct.grem import ResidualEstimates, cell_shares

DOMAIN = Domain({"a": 3, "b": 2, "one": 1, "c": 7})
CLIQUE = ("a", "b", "one", "c")

positive = st.floats(1e-3, 1e3)
cases = st.integers(1, 8).flatmap(
    lambda k: st.tuples(
        st.lists(positive, min_size=k, max_size=k),
        st.lists(st.floats(0.1, 1.0), min_size=k, max_size=k),
        st.lists(st.just(0.0) | positive, min_size=k, max_size=k),
        st.floats(1e-2, 1e2),
    )
)


def objective(errors: np.ndarray, known: np.ndarray, gained: np.ndarray) -> float:
    total = known + gained
    return float((errors / np.where(total > 0, total, np.nan)).sum())


@pytest.mark.parametrize("seed", range(8))
def test_a_convex_solver_finds_nothing_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = 1 + seed
    errors, costs = 10 ** rng.uniform(-3, 1, k), rng.uniform(0.2, 1, k)
    known = np.where(rng.random(k) < 0.3, 0.0, 10 ** rng.uniform(-1, 1.5, k))
    budget = float(10 ** rng.uniform(-0.5, 1))
    x = cvxpy.Variable(k, nonneg=True)
    loss = cvxpy.sum(cvxpy.multiply(errors, cvxpy.inv_pos(x + known)))
    cvxpy.Problem(cvxpy.Minimize(loss), [costs @ x == budget]).solve(solver=cvxpy.CLARABEL)
    ours = waterfill(errors, costs, known, budget)
    assert costs @ ours == pytest.approx(budget, rel=1e-12)
    assert objective(errors, known, ours) <= objective(errors, known, np.maximum(x.value, 0)) * (1 + 1e-6)
    assert ours == pytest.approx(np.maximum(x.value, 0), abs=2e-3 * float(ours.max()))


@given(cases)
def test_optimality_conditions(case: tuple[list[float], list[float], list[float], float]) -> None:
    errors, costs, known, budget = np.array(case[0]), np.array(case[1]), np.array(case[2]), case[3]
    gained = waterfill(errors, costs, known, budget)
    assert (gained >= 0).all()
    assert costs @ gained == pytest.approx(budget, rel=1e-9)
    used = gained > 1e-9 * (gained + known)
    with np.errstate(divide="ignore"):
        worth = errors / costs / (known + gained) ** 2
    level = worth[used].min()
    assert worth[used] == pytest.approx(np.full(int(used.sum()), level), rel=1e-5)
    assert (worth[~used] <= level * (1 + 1e-5)).all()


def test_with_nothing_known_it_is_the_closed_form() -> None:
    beta = 0.3
    found = conditional(DOMAIN, CLIQUE, beta, {})
    shares = dict(cell_shares(DOMAIN, CLIQUE))
    costs = {tau: Centring(DOMAIN.shape(tau)).squared_sensitivity for tau in shares}
    root = sum(math.sqrt(shares[tau] * costs[tau]) for tau in shares)
    assert found == pytest.approx({tau: math.sqrt(costs[tau] / shares[tau]) * root / beta for tau in shares})


def test_what_is_known_well_is_left_alone() -> None:
    shares = [tau for tau, _ in cell_shares(DOMAIN, CLIQUE)]
    known = {tau: 1e6 for tau in shares if len(tau) < 3}
    found = conditional(DOMAIN, CLIQUE, 1.0, known)
    assert set(found) == {("a", "b", "c")}
    assert found["a", "b", "c"] == pytest.approx(Centring((3, 2, 7)).squared_sensitivity)


def test_small_shares_can_be_left_out() -> None:
    whole, fewer = conditional(DOMAIN, CLIQUE, 1.0, {}), conditional(DOMAIN, CLIQUE, 1.0, {}, least=0.1)
    costs = {tau: Centring(DOMAIN.shape(tau)).squared_sensitivity / s for tau, s in fewer.items()}
    assert len(fewer) < len(whole)
    assert min(costs.values()) >= 0.1
    assert sum(costs.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("known", [{}, {(): 2.0, ("a",): 5.0, ("a", "c"): 0.5}])
def test_it_beats_independent_noise_where_something_is_known(known: dict[tuple[str, ...], float]) -> None:
    """Without knowledge, independent noise on the cells is optimal for one marginal."""
    beta, cells = 0.8, DOMAIN.cells(CLIQUE)
    shares = [tau for tau, _ in cell_shares(DOMAIN, CLIQUE)]
    independent = {tau: beta * DOMAIN.cells(tau) / cells for tau in shares}
    best = {tau: 1 / variance for tau, variance in conditional(DOMAIN, CLIQUE, beta, known).items()}

    def variance(gained: dict[tuple[str, ...], float]) -> float:
        total = {tau: known.get(tau, 0.0) + gained.get(tau, 0.0) for tau in shares}
        return ResidualEstimates(domain=DOMAIN, values={}, precisions=total).variance(CLIQUE)

    assert variance(best) <= variance(independent) * (0.999 if known else 1 + 1e-12)
    assert ResidualEstimates(domain=DOMAIN, values={}, precisions=independent).variance(CLIQUE) == pytest.approx(
        1 / beta
    )
