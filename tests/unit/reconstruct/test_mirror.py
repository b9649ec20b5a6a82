import itertools

import cvxpy as cp
import numpy as np
import pytest

from duckdb_dp.domain.domain import Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Centring, Identity
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.mirror import descend
from duckdb_dp.reconstruct.pgm import estimate_total

DOMAIN = Domain({"a": 3, "b": 2, "c": 4})


def noisy(seed: int) -> list[LinearMeasurement]:
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(24, 0.4)).reshape(3, 2, 4) * 500
    found = []
    for clique, kind in [(("a",), 0), (("a", "b"), 0), (("b", "c"), 1), (("a", "c"), 1), (("c",), 0)]:
        axes = tuple(i for i, name in enumerate("abc") if name not in clique)
        strategy = Centring(DOMAIN.shape(clique)) if kind else Identity(DOMAIN.cells(clique))
        answers = strategy.matvec(table.sum(axis=axes).reshape(-1))
        values = answers + rng.normal(0, 15, len(answers))
        found.append(LinearMeasurement(clique=clique, strategy=strategy, answers=values, variance=225.0))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_is_the_smallest_that_any_distribution_has(seed: int) -> None:
    measured = noisy(seed)
    cells = cp.Variable(24, nonneg=True)
    total = estimate_total(measured)
    terms = []
    for one in measured:
        keep = np.zeros((DOMAIN.cells(one.clique), 24))
        for i, place in enumerate(itertools.product(*map(range, (3, 2, 4)))):
            kept = tuple(x for x, name in zip(place, "abc", strict=True) if name in one.clique)
            keep[np.ravel_multi_index(kept, DOMAIN.shape(one.clique)), i] = 1
        terms.append(cp.sum_squares((one.strategy.dense() @ keep) @ cells - one.answers) / one.variance)
    best = cp.Problem(cp.Minimize(sum(terms)), [cp.sum(cells) == total]).solve()
    answers = sum(len(one.answers) for one in measured)
    found = descend(DOMAIN, measured, steps=2000, memory=1e6)
    assert best / answers - 1e-9 <= found.loss <= 1.01 * best / answers + 1e-3


def test_starting_from_a_fit_goes_on_from_there() -> None:
    measured = noisy(0)
    far = descend(DOMAIN, measured, steps=300, memory=1e6)
    near = descend(DOMAIN, measured, steps=1, memory=1e6, start=far.potentials)
    assert near.loss <= far.loss * (1 + 1e-9)
    assert descend(DOMAIN, measured, steps=1, memory=1e6).loss > 1.5 * far.loss


def test_a_tree_beyond_memory_is_refused() -> None:
    with pytest.raises(DPError, match="postprocess := 'fitted'"):
        descend(DOMAIN, noisy(0), steps=1, memory=100)


def test_only_the_total() -> None:
    total = LinearMeasurement(clique=(), strategy=Identity(1), answers=np.array([30.0]), variance=1.0)
    found = descend(DOMAIN, [total], steps=10, memory=1e6)
    assert found.tree.marginal(("a",)) == pytest.approx([10, 10, 10])
