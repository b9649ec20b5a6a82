"""The simplex against a convex solver; marginals that are never negative and agree."""

import itertools

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import truncnorm

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Identity
from duckdb_dp.reconstruct.grem import ResidualEstimates, decompose
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement
from duckdb_dp.reconstruct.nonneg import Nonnegative, positive, simplex

DOMAIN = Domain({"a": 3, "b": 4, "one": 1, "c": 5, "d": 2})
PAIRS = list(itertools.combinations(DOMAIN.attributes, 2))
TRIPLES = list(itertools.combinations(DOMAIN.attributes, 3))


def noisy(
    cliques: list[Clique], seed: int, noise: float = 8.0, rows: int = 500
) -> tuple[ResidualEstimates, dict[Clique, np.ndarray]]:
    rng = np.random.default_rng(seed)
    table = rng.multinomial(rows, rng.dirichlet(np.full(DOMAIN.cells(DOMAIN.attributes), 0.2)))
    exact = table.reshape(DOMAIN.shape(DOMAIN.attributes))
    truth, parts = {}, []
    for clique in cliques:
        axes = tuple(i for i, name in enumerate(DOMAIN.attributes) if name not in clique)
        truth[clique] = exact.sum(axis=axes).astype(float)
        answers = (truth[clique] + rng.normal(0, noise, truth[clique].shape)).reshape(-1)
        strategy = Identity(len(answers))
        parts += decompose(
            DOMAIN, LinearMeasurement(clique=clique, strategy=strategy, answers=answers, variance=noise**2)
        )
    return ResidualEstimates.of(DOMAIN, parts), truth


@pytest.mark.parametrize("seed", range(5))
def test_the_simplex_against_a_convex_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, total = rng.normal(0, 5, 12), float(rng.uniform(0.1, 20))
    x = cvxpy.Variable(12, nonneg=True)
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(x - y)), [cvxpy.sum(x) == total]).solve(solver=cvxpy.CLARABEL)
    assert simplex(y, total) == pytest.approx(x.value, abs=1e-5)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(1e-3, 1e6))
def test_the_simplex_is_reached(values: list[float], total: float) -> None:
    found = simplex(np.array(values), total)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("total", [0.0, -3.0])
def test_no_rows_are_no_counts(total: float) -> None:
    assert not simplex(np.array([1.0, 2.0]), total).any()


def gap(read: Nonnegative, cliques: list[Clique]) -> float:
    """Largest L1 distance between what two marginals say of an attribute."""
    said: dict[str, list[np.ndarray]] = {}
    for clique in cliques:
        for axis, name in enumerate(clique):
            others = tuple(i for i in range(len(clique)) if i != axis)
            said.setdefault(name, []).append(read.marginal(clique).sum(axis=others))
    return max(float(np.abs(x - y).sum()) for found in said.values() for x, y in itertools.combinations(found, 2))


@pytest.mark.parametrize("cliques", [PAIRS, TRIPLES, [*TRIPLES, *PAIRS, ("a",), ()]])
def test_no_count_is_negative_and_marginals_agree_better(cliques: list[Clique]) -> None:
    components, truth = noisy(cliques, 1)
    read = Nonnegative.fit(components, cliques, memory=1e9)
    plain = Nonnegative.fit(components, cliques, memory=1e9, cycles=0)
    for clique in cliques:
        found = read.marginal(clique)
        assert found.shape == DOMAIN.shape(clique)
        assert (found >= 0).all()
        assert found.sum() == pytest.approx(read.total)
    assert gap(read, cliques) < 0.3 * gap(plain, cliques)
    errors = {
        r: sum(np.abs(r(c) - truth[c]).sum() for c in cliques)
        for r in (components.marginal, plain.marginal, read.marginal)
    }
    unbiased, projected, agreed = errors.values()
    assert agreed < projected < unbiased


@pytest.mark.parametrize("cliques", [PAIRS, TRIPLES])
def test_with_little_memory_the_answers_are_the_same(cliques: list[Clique]) -> None:
    components, _ = noisy(cliques, 2)
    kept, lean = (Nonnegative.fit(components, cliques, memory=memory) for memory in (1e9, 1.0))
    assert kept.kept
    assert not lean.kept
    for clique in cliques:
        assert lean.marginal(clique) == pytest.approx(kept.marginal(clique))


def test_exact_marginals_stay() -> None:
    components, truth = noisy(TRIPLES, 3, noise=1e-9)
    read = Nonnegative.fit(components, TRIPLES, memory=1e9)
    assert all(read.marginal(clique) == pytest.approx(truth[clique], abs=1e-5) for clique in TRIPLES)


def test_a_negative_total() -> None:
    components = ResidualEstimates.of(DOMAIN, [residual_measurement(DOMAIN, (), np.array(-5.0), 1.0)])
    read = Nonnegative.fit(components, PAIRS, memory=1e9)
    assert not any(read.marginal(pair).any() for pair in PAIRS)


@pytest.mark.parametrize("found", [-300.0, -40.0, 0.0, 1.0, 5.0, 200.0, 1e9])
@pytest.mark.parametrize("stddev", [1e-3, 1.0, 60.0])
def test_a_number_of_at_least_one(found: float, stddev: float) -> None:
    """Against scipy's truncated normal, where that can be computed; beyond, what it tends to."""
    mean, variance = positive(found, stddev**2)
    low = (1 - found) / stddev
    if low < 30:
        posterior = truncnorm(low, np.inf, loc=found, scale=stddev)
        assert mean == pytest.approx(posterior.mean())
        assert variance == pytest.approx(posterior.var(), rel=1e-4)
    else:
        assert mean == pytest.approx(1 + stddev / low, rel=1e-2)
    assert mean >= 1
    assert 0 <= variance <= min(stddev**2, mean**2)
