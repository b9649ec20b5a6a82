"""Averages of residuals, against dense matrices."""

import functools
import itertools

import numpy as np
import pytest

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Centring, Identity, centre
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred, decompose
from duckdb_dp.reconstruct.groups import Groups
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement

DOMAIN = Domain({"a": 3, "one": 1, "b": 4, "c": 2, "d": 5})
SUBSETS = [tau for order in range(6) for tau in itertools.combinations(DOMAIN.attributes, order)]


def residuals(seed: int, cliques: list[Clique] = SUBSETS, variance: float = 2.0) -> list[LinearMeasurement]:
    rng = np.random.default_rng(seed)
    return [residual_measurement(DOMAIN, tau, rng.normal(size=DOMAIN.shape(tau)), variance) for tau in cliques]


def measured(clique: Clique, table: np.ndarray, variance: float) -> LinearMeasurement:
    return LinearMeasurement(clique=clique, strategy=Identity(table.size), answers=table.reshape(-1), variance=variance)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (4, 1, 3), (3, 2, 5, 4)])
def test_centred_is_the_projection(shape: tuple[int, ...]) -> None:
    table = np.random.default_rng(1).normal(size=shape)
    kept = table.copy()
    found = centred(table)
    assert found == pytest.approx(centre(table))
    assert (table == kept).all()
    matrix = functools.reduce(np.kron, (np.eye(n) - 1 / n for n in shape), np.eye(1))
    assert found.reshape(-1) == pytest.approx(matrix @ table.reshape(-1))


def test_reading_changes_nothing() -> None:
    components = ResidualEstimates.of(DOMAIN, residuals(3))
    first = components.marginal(("a", "b", "c"))
    first += 1.0
    assert components.marginal(("a", "b", "c")) == pytest.approx(first - 1.0)
    single = ResidualEstimates.of(DOMAIN, residuals(3, [("a",)])).marginal(("a",))
    single += 1.0
    assert single.mean() == pytest.approx(1.0)


def test_a_marginal_comes_back_from_its_parts() -> None:
    table = np.random.default_rng(4).normal(size=DOMAIN.shape(DOMAIN.attributes))
    components = ResidualEstimates.of(DOMAIN, decompose(DOMAIN, measured(DOMAIN.attributes, table, 1.0)))
    for clique in SUBSETS:
        axes = tuple(i for i, name in enumerate(DOMAIN.attributes) if name not in clique)
        assert components.marginal(clique) == pytest.approx(table.sum(axis=axes))


@pytest.mark.parametrize("clique", [("a",), ("a", "c"), ("a", "one", "c")])
def test_variance_against_dense_covariance(clique: Clique) -> None:
    """Each noisy residual is an independent Gaussian: cov of a marginal = sum s_tau R R^T, R from its noise to cells."""
    known = [residual_measurement(DOMAIN, tau, np.zeros(DOMAIN.shape(tau)), 1.0 + i) for i, tau in enumerate(SUBSETS)]
    known += [
        residual_measurement(DOMAIN, ("a",), np.zeros(3), 0.5),
        residual_measurement(DOMAIN, (), np.zeros(()), 3.0),
    ]
    precisions = ResidualEstimates.of(DOMAIN, known).precisions
    covariance = np.zeros((DOMAIN.cells(clique),) * 2)
    for tau, precision in precisions.items():
        if set(tau) <= set(clique):
            columns = [
                ResidualEstimates.of(DOMAIN, [residual_measurement(DOMAIN, tau, unit, 1.0)])
                .marginal(clique)
                .reshape(-1)
                for unit in np.eye(DOMAIN.cells(tau))
            ]
            covariance += np.array(columns).T @ np.array(columns) / precision
    assert np.diag(covariance) == pytest.approx(
        np.full(DOMAIN.cells(clique), ResidualEstimates.of(DOMAIN, known).variance(clique))
    )


def test_decomposed_noise_is_as_measured_residuals() -> None:
    """A marginal measured with variance s knows residual tau as well as a residual measured with s n_gamma / n_tau."""
    clique = ("a", "c")
    parts = {one.clique: one.variance for one in decompose(DOMAIN, measured(clique, np.zeros((3, 2)), 2.0))}
    assert parts == {(): 12.0, ("a",): 4.0, ("c",): 6.0, ("a", "c"): 2.0}
    costs = sum(Centring(DOMAIN.shape(tau)).squared_sensitivity / s for tau, s in parts.items())
    assert costs == pytest.approx(1 / 2.0)
    found = ResidualEstimates(domain=DOMAIN, values={}, precisions={tau: 1 / s for tau, s in parts.items()})
    assert found.variance(clique) == pytest.approx(2.0)


def test_measurements_are_weighted_by_precision() -> None:
    rng = np.random.default_rng(5)
    values, variances = rng.normal(size=(3, 4)), np.array([1.0, 4.0, 0.5])
    one = ResidualEstimates.of(
        DOMAIN, [residual_measurement(DOMAIN, ("b",), x, v) for x, v in zip(values, variances, strict=True)]
    )
    mean = (values / variances[:, None]).sum(axis=0) / (1 / variances).sum()
    assert one.values["b",] == pytest.approx(mean - mean.mean())
    assert one.precisions["b",] == pytest.approx((1 / variances).sum())
    again = ResidualEstimates.of(DOMAIN, one.noisy())
    assert again.values["b",] == pytest.approx(one.values["b",])
    assert again.precisions == pytest.approx(one.precisions)


def test_adding_leaves_the_old_alone() -> None:
    old = ResidualEstimates.of(DOMAIN, residuals(6, [("a",), ()]))
    kept = {tau: values.copy() for tau, values in old.values.items()}
    new = old.added(residuals(7, [("a",), ("a", "b")]))
    assert set(old.values) == {("a",), ()}
    assert all((old.values[tau] == kept[tau]).all() for tau in kept)
    assert new.precisions == {("a",): 1.0, (): 0.5, ("a", "b"): 0.5}


def test_what_was_measured_in_groups_stays_so_until_it_is_measured_otherwise() -> None:
    def groups(shape: tuple[int, ...]) -> Groups:
        of = [np.arange(n) * m // n for m, n in zip(shape, DOMAIN.shape(("b", "d")), strict=True)]
        return Groups(tuple(of), [np.eye(m)[one] for m, one in zip(shape, of, strict=True)])

    def noisy(shape: tuple[int, ...]) -> LinearMeasurement:
        return residual_measurement(Domain(dict(zip("bd", shape, strict=True))), ("b", "d"), np.ones(shape), 1.0)

    known = ResidualEstimates.of(DOMAIN, residuals(8, [("a", "c"), ("d",)]))
    for shape, after in (((2, 2), {}), ((2, 3), {("b", "d"): (2, 2)}), ((4, 5), {("b", "d"): (2, 3)})):
        known = known.regrouped({("b", "d"): groups(shape) if shape != (4, 5) else None})
        assert known.in_groups() == after
        known = known.added([noisy(shape)])
    assert known.in_groups() == {}


@pytest.mark.parametrize("variance", [0.0, -1.0, float("inf"), float("nan")])
def test_a_variance_is_positive(variance: float) -> None:
    with pytest.raises(DPError, match="positive and finite"):
        residual_measurement(DOMAIN, ("a",), np.zeros(3), variance)


@pytest.mark.parametrize(("clique", "cells"), [(("a",), 4), (("other",), 3), ((), 2)])
def test_values_that_do_not_fit(clique: Clique, cells: int) -> None:
    noisy = LinearMeasurement(clique=clique, strategy=Centring((cells,)), answers=np.zeros(cells), variance=1.0)
    with pytest.raises(DPError, match="does not fit this domain"):
        ResidualEstimates.of(DOMAIN, [noisy])
