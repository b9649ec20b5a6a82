"""The split over candidate marginals: with Gaussian noise the convex optimum, with Laplace noise the published one."""

import itertools
import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from duckdb_dp.optimize.marginals import split


def problem(sizes: tuple[int, ...], wanted: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """(coverage, energies) of marginals: every subset a candidate; energies as of plain cells."""
    places = range(len(sizes))
    sets = [s for k in range(len(sizes) + 1) for s in itertools.combinations(places, k)]
    taus = [s for s in sets if any(set(s) <= set(w) for w in wanted)]
    energies = [
        sum(
            math.prod(sizes[i] * (1 - 1 / sizes[i]) if i in tau else 1 / sizes[i] for i in w)
            for w in wanted
            if set(tau) <= set(w)
        )
        for tau in taus
    ]
    coverage = [
        [math.prod(1 / sizes[i] for i in a if i not in tau) if set(tau) <= set(a) else 0.0 for a in sets]
        for tau in taus
    ]
    return np.array(coverage), np.array(energies)


def test_gaussian_shares_are_the_convex_optimum() -> None:
    import cvxpy

    coverage, energies = problem((3, 5, 4), [(0, 1), (1, 2), (0,)])
    found = split(csr_array(coverage), energies, 2, [np.ones(8)])
    u = cvxpy.Variable(8, nonneg=True)
    best = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum(cvxpy.multiply(energies, cvxpy.inv_pos(coverage @ u)))), [cvxpy.sum(u) <= 1]
    )
    best.solve(solver=cvxpy.CLARABEL)
    assert found.error == pytest.approx(best.value, rel=1e-5)
    assert found.bound <= best.value * (1 + 1e-6)
    assert found.bound == pytest.approx(found.error, rel=1e-4)
    assert found.shares.sum() == pytest.approx(1)


def test_laplace_shares_of_the_published_example() -> None:
    """[HDMM18] table 3: all 2-way marginals of (2, 5, 50, 100) from three 2- and 3-way ones, error 62,886."""
    coverage, energies = problem((2, 5, 50, 100), list(itertools.combinations(range(4), 2)))
    rng = np.random.default_rng(0)
    found = split(csr_array(coverage), energies, 1, [rng.random(16) for _ in range(6)])
    assert round(found.error) <= 62_886
    assert (found.shares > 0).sum() == 3
    assert sorted(np.round(found.shares[found.shares > 0], 2)) == [0.25, 0.31, 0.44]
