"""Marginals from residuals, spread axis by axis, against the sum over all subsets written out."""

import itertools
import math

import numpy as np
import pytest

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import centre
from duckdb_dp.reconstruct.residual import marginal

DOMAIN = Domain({"a": 3, "one": 1, "b": 4, "c": 2})
SUBSETS = [tau for order in range(5) for tau in itertools.combinations(DOMAIN.attributes, order)]


def residuals(seed: int) -> dict[Clique, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {tau: centre(rng.normal(size=DOMAIN.shape(tau))).reshape(-1) for tau in SUBSETS if "one" not in tau}


def smeared(tau: Clique, residual: np.ndarray, clique: Clique) -> np.ndarray:
    """A residual spread evenly over the attributes that it lacks."""
    shape = [DOMAIN.sizes[name] if name in tau else 1 for name in clique]
    spread = math.prod(DOMAIN.sizes[name] for name in clique if name not in tau)
    return np.broadcast_to(residual.reshape(shape) / spread, DOMAIN.shape(clique))


@pytest.mark.some(8)
@pytest.mark.parametrize("clique", SUBSETS)
@pytest.mark.parametrize("left_out", [None, 0, 1, 2])
def test_the_sum_of_smeared_residuals(clique: Clique, left_out: int | None) -> None:
    given = {tau: values for i, (tau, values) in enumerate(residuals(1).items()) if i % 3 != left_out}
    zeros = np.zeros(DOMAIN.shape(clique))
    expected = sum((smeared(tau, given[tau], clique) for tau in given if set(tau) <= set(clique)), zeros)
    found = marginal(DOMAIN, clique, given)
    assert found.shape == DOMAIN.shape(clique)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("clique", SUBSETS)
def test_a_table_comes_back_from_its_residuals(clique: Clique) -> None:
    table = np.random.default_rng(2).normal(size=DOMAIN.shape(DOMAIN.attributes))

    def exact(tau: Clique) -> np.ndarray:
        return table.sum(axis=tuple(i for i, name in enumerate(DOMAIN.attributes) if name not in tau))

    given = {tau: centre(exact(tau)) for tau in SUBSETS if "one" not in tau}
    np.testing.assert_allclose(marginal(DOMAIN, clique, given), exact(clique), atol=1e-10)


def test_marginals_of_marginals_agree() -> None:
    given = residuals(3)
    for clique in SUBSETS:
        for tau in SUBSETS:
            if set(tau) <= set(clique):
                gone = tuple(i for i, name in enumerate(clique) if name not in tau)
                np.testing.assert_allclose(
                    marginal(DOMAIN, clique, given).sum(axis=gone), marginal(DOMAIN, tau, given), atol=1e-10
                )


def test_a_missing_residual_counts_as_zero() -> None:
    given = {("a",): centre(np.array([1.0, 2.0, 6.0]))}
    np.testing.assert_allclose(marginal(DOMAIN, ("a",), given), [-2, -1, 3])
    np.testing.assert_allclose(marginal(DOMAIN, ("a", "c"), given), np.array([[-1, -1], [-0.5, -0.5], [1.5, 1.5]]))
    np.testing.assert_allclose(marginal(DOMAIN, (), {}), 0)
