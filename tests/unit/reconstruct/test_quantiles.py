"""Quantiles from noisy prefix counts: their standard deviations, the fit, and intervals over many shapes of data."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import duckdb_dp
from duckdb_dp import Domain, Workload
from duckdb_dp.plan.base import Plan
from duckdb_dp.reconstruct.quantiles import Prefixes

QUANTILES = [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]


def planned(n: int, kind: str = "prefix", **budget: float) -> Plan:
    return duckdb_dp.plan(Workload.product(Domain({"a": n}), {"a": kind}), **budget)


def prefixes(plan: Plan, counts: np.ndarray) -> Prefixes:
    """Prefixes of rows of noisy answers."""
    suffix = replace(plan, workload=Workload.product(plan.workload.domain, {"a": "suffix"}))
    shape = counts.shape
    return Prefixes(
        counts=counts,
        variances=np.broadcast_to(plan.variance(0), shape),
        suffix_variances=np.broadcast_to(np.append(np.asarray(suffix.variance(0))[1:], 0.0), shape),
        width=plan.quantile,
    )


@pytest.mark.parametrize(
    ("n", "mechanism"),
    [(12, "hdmm"), (12, "residual"), (12, "querysmasher"), pytest.param(600, "auto", marks=pytest.mark.slow)],
)
def test_standard_deviations_are_those_of_the_noise(n: int, mechanism: str) -> None:
    """F - q N is linear in the noise of the strategy: its rows, one unit of noise after the other."""
    plan = planned(n, rho=0.1, mechanism=mechanism)
    found = prefixes(plan, np.zeros((1, n)))
    for q in QUANTILES:
        variance = np.zeros(n)
        for measured in plan.measurements:
            for unit in np.eye(measured.strategy.shape[0]):
                noisy = {m.clique: np.zeros(m.strategy.shape[0]) for m in plan.measurements} | {measured.clique: unit}
                answer = plan.answer(0, plan.estimates(noisy))
                variance += measured.variance * (answer - q * answer[-1]) ** 2
        assert found.stddevs(q)[0] == pytest.approx(np.sqrt(variance), rel=1e-6, abs=1e-6)


def shapes(n: int, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Counts of the cells of very different groups."""
    yield "uniform", rng.multinomial(20_000, np.full(n, 1 / n))
    skewed = np.exp(-np.arange(n) / (n / 20))
    yield "skewed", rng.multinomial(20_000, skewed / skewed.sum())
    yield "two heavy atoms, a tie at the median", np.bincount([n // 3, 2 * n // 3], minlength=n) * 10_000
    yield "one atom", np.bincount([n // 2], minlength=n) * 20_000
    yield "atoms at the ends", np.bincount([0, n - 1], minlength=n) * 500
    yield "few cells in use", rng.multinomial(3_000, rng.dirichlet(np.full(n, 0.02)))
    yield "a tiny group", rng.multinomial(30, np.full(n, 1 / n))
    yield "three rows", np.bincount([1, 1, n - 2], minlength=n)


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("budget", [{"rho": 0.0152}, {"epsilon": 0.3, "delta": 0.0}], ids=["gaussian", "laplace"])
def test_intervals_hold_over_many_shapes(budget: dict[str, float]) -> None:
    """Of 500 draws at most 5 % miss, for each shape and quantile: 39 are three standard deviations more."""
    n, draws, rng = 64, 500, np.random.default_rng(7)
    plan = planned(n, **budget)
    (measured,) = plan.measurements
    for name, cells in shapes(n, rng):
        size = (draws, measured.strategy.shape[0])
        noise = rng.normal(0, 1, size) if "rho" in budget else rng.laplace(0, 0.5**0.5, size)
        noisy = measured.strategy.matvec(cells.astype(float)) + noise * measured.variance**0.5
        counts = np.array([plan.answer(0, plan.estimates({measured.clique: row})) for row in noisy])
        found = prefixes(plan, counts).quantiles(QUANTILES)
        exact = np.cumsum(cells)
        for place, q in enumerate(QUANTILES):
            true = np.searchsorted(exact, max(1, np.ceil(q * exact[-1])))
            low, high = found[:, place, 2], found[:, place, 3]
            assert ((low > true) | (high < true)).sum() <= 39, (name, q)
            cell = found[:, place, 0]
            assert (np.isnan(cell) | ((low <= cell) & (cell <= high))).all()


def test_a_group_that_is_not_clearly_there_has_no_value() -> None:
    found = Prefixes(
        counts=np.array([[1.0, 5.0, 1.9], [1.0, 5.0, 2.1], [-3.0, -2.0, -9.0]]),
        variances=np.ones((3, 3)), suffix_variances=np.ones((3, 3)), width=2.0,
    )  # fmt: skip
    assert found.known().tolist() == [False, True, False]
    none, some, negative = found.quantiles([0.5])[:, 0]
    assert np.isnan(none[:2]).all()
    assert none[2:].tolist() == negative[2:].tolist() == [0, 2]
    assert not np.isnan(some).any()


def test_the_fit_does_not_fall_and_is_not_negative() -> None:
    counts = np.random.default_rng(1).normal(0, 5, (20, 30)) + np.arange(30)
    found = Prefixes(counts=counts, variances=np.ones((20, 30)), suffix_variances=np.ones((20, 30)), width=2.0).fitted()
    assert (np.diff(found, axis=1) >= 0).all()
    assert (found >= 0).all()


def test_without_noise_the_value_lies_at_its_share_of_the_cell() -> None:
    exact = Prefixes(
        counts=np.array([[10.0, 10.0, 30.0, 40.0]]), variances=np.full((1, 4), 1e-12),
        suffix_variances=np.full((1, 4), 1e-12), width=2.0,
    )  # fmt: skip
    found = exact.quantiles([0.125, 0.25, 0.5, 1.0])[0]
    assert found[:, 0].tolist() == [0, 0, 2, 3]
    assert found[:, 1] == pytest.approx([0.5, 1.0, 0.5, 1.0])
    assert (found[:, 1] < 1).all()
