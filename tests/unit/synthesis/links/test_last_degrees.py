"""Degrees that noise hides: rows of none but few of them get no links that others have."""

import numpy as np
import pytest

from duckdb_dp.counting.units import classes
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.links import degrees
from duckdb_dp.synthesis.links.last_degrees import calmed
from duckdb_dp.synthesis.links.measured_degrees import Measured
from duckdb_dp.synthesis.links.negative_binomials import clipped
from duckdb_dp.synthesis.links.per_unit import NoisyTable
from duckdb_dp.synthesis.links.sides import side_of

ROWS, NOISE = 1_000, 4.5


def drawn(shares: Array, seed: int) -> tuple[Array, Array]:
    """(degrees of the rows, those that are drawn for as many links), of rows with these shares of degrees 0 to d."""
    rng, most = np.random.default_rng(seed), len(shares) - 1
    true = rng.choice(most + 1, ROWS, p=shares)
    table = np.bincount(true, minlength=most + 1)[1:] + rng.normal(size=most) * NOISE
    linked = float((true > 0).sum() + rng.normal() * NOISE)
    sizes = NoisyTable(table, NOISE**2)
    measured = Measured(rows=float(ROWS), linked=linked, linked_variance=NOISE**2, sizes=sizes)
    side = side_of(("a",), np.zeros((ROWS, 1), dtype=np.int64), max_degree=most)
    number = int(true.sum())
    found = degrees.model(measured, side, Domain({"a": 2}), number)
    return true, degrees.drawn(found.of(side), np.array([ROWS]), np.array([number]), rng)


def shares_of(*shares: float, most: int = 30) -> Array:
    return np.append(shares, np.zeros(most + 1 - len(shares)))


def top(degree: Array) -> float:
    """The part of all links that the hundredth of the rows with the most have."""
    return float(np.sort(degree)[::-1][: len(degree) // 100].sum() / degree.sum())


@pytest.mark.parametrize(("shares", "most"), [((0.875, 0.125), 0.07), ((0.5, 0.5), 0.02), ((0.25, 0.5, 0.25), 0.02)])
def test_hardly_a_link_is_of_rows_of_degrees_that_no_row_has(shares: tuple[float, ...], most: float) -> None:
    """Noise in thirty degrees, of which it hides that no row has them, is not rows with thirty links."""
    both = [drawn(shares_of(*shares), seed) for seed in range(10)]
    assert np.mean([found[found > true.max()].sum() / found.sum() for true, found in both]) < most
    assert np.mean([top(found) / top(true) for true, found in both]) < 1.6


@pytest.mark.parametrize("share", [0.03, 0.1])
@pytest.mark.parametrize("degree", [17, 30])
def test_a_number_of_rows_that_is_seen_is_kept(share: float, degree: int) -> None:
    shares = shares_of(0.6, 0.4 - share)
    shares[degree] = share
    for seed in range(3):
        true, found = drawn(shares, seed)
        assert (found == degree).mean() == pytest.approx((true == degree).mean(), abs=3 * NOISE / ROWS + 0.005)


def test_what_many_degrees_have_together_is_kept() -> None:
    """None of them is seen by itself, and all of them have a tenth of the rows."""
    shares = shares_of(0.5, 0.4)
    shares[5:] = 0.1 / len(shares[5:])
    for seed in range(3):
        true, found = drawn(shares, seed)
        assert (found > 4).mean() == pytest.approx((true > 4).mean(), abs=0.03)


@pytest.mark.parametrize("mean", [0.05, 0.2, 0.9])
@pytest.mark.parametrize("most", [8, 30, 100])
def test_rows_with_links_stay_as_many_and_the_last_degrees_fall(mean: float, most: int) -> None:
    first = classes(most)
    held = np.searchsorted(first, np.arange(1, most + 1), side="right") - 1
    shares = np.append([0.15], np.full(most - 1, 0.05 / (most - 1)))
    table = np.zeros(len(first))
    table[0] = 150.0
    prior = clipped(mean, 0.8, most)[1:]
    found = calmed(shares, prior, held, NoisyTable(table, NOISE**2), ROWS, mean)
    assert found.sum() == pytest.approx(shares.sum())
    assert (found >= 0).all()
    assert (np.diff(found[1:-1]) <= 1e-12).all()
    for seen in (np.zeros(len(first)), np.full(len(first), 150.0)):  # nothing is seen, or all is
        assert calmed(shares, prior, held, NoisyTable(seen, NOISE**2), ROWS, mean) is shares
