"""What units with few links and with many go to: a value that differs keeps its difference, and noise alone changes little."""

import numpy as np
import pytest

from duckdb_dp.counting.units import classes
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.links.by_number import SEEN, lifted, starts, uneven
from duckdb_dp.synthesis.links.per_unit import NoisyTable

UNITS, MEANS = np.array([1200.0, 800.0, 500.0, 300.0, 200.0, 100.0]), np.array([1.0, 2.0, 3.5, 7.0, 16.0, 50.0])
SHARES = np.append(0.4, np.full(29, 0.6 / 29))


def links_of(table: Array) -> Array:
    """The distribution of the links by value."""
    return MEANS @ table / float((MEANS @ table).sum())


def popular() -> Array:
    """Units by class and value, where the first value has one link of nearly each unit, whatever its number."""
    first = UNITS * 0.9 / MEANS
    return np.concatenate([first[:, None], np.outer(UNITS - first, np.full(29, 1 / 29))], axis=1)


def around(table: Array) -> Array:
    """What is expected if the values do not depend on the number."""
    return np.outer(table.sum(axis=1), table.sum(axis=0)) / float(table.sum())


def noisy(table: Array, deviation: float, seed: int) -> NoisyTable:
    return NoisyTable(table + np.random.default_rng(seed).normal(0, deviation, table.shape), deviation**2)


@pytest.mark.parametrize("deviation", [0.1, 3.0, 10.0])
def test_a_value_of_nearly_everybody_has_its_links(deviation: float) -> None:
    real = popular()
    expected = around(real)
    assert links_of(expected)[0] > 2.5 * links_of(real)[0]
    found = [links_of(lifted([noisy(real, deviation, seed)], [expected], MEANS)[0]) for seed in range(8)]
    assert np.mean([one[0] for one in found]) == pytest.approx(links_of(real)[0], rel=0.15)
    before = np.abs(links_of(expected) - links_of(real)).sum()
    assert np.mean([np.abs(one - links_of(real)).sum() for one in found]) < before * (0.05 if deviation < 1 else 0.35)


@pytest.mark.parametrize("deviation", [0.1, 3.0, 10.0, 100.0])
def test_noise_alone_changes_little(deviation: float) -> None:
    expected = np.outer(UNITS, SHARES)
    moved, raw = [], []
    for seed in range(10):
        table = noisy(expected, deviation, seed)
        (found,) = lifted([table], [expected], MEANS)
        np.testing.assert_allclose(found.sum(axis=0), expected.sum(axis=0), rtol=1e-6)
        np.testing.assert_allclose(found.sum(axis=1), expected.sum(axis=1), rtol=1e-3)
        assert found.min() > 0
        moved.append(np.abs(links_of(found) - SHARES).sum())
        raw.append(np.abs(links_of(table.table) - SHARES).sum())
    assert np.mean(moved) < 0.25 * np.mean(raw)


def test_one_attribute_that_differs_does_not_move_another_one() -> None:
    real, other = popular(), np.outer(UNITS, [0.5, 0.3, 0.2])
    found = lifted([noisy(real, 1.0, 1), noisy(other, 1.0, 2)], [around(real), other], MEANS)
    assert links_of(found[0])[0] == pytest.approx(links_of(real)[0], rel=0.15)
    np.testing.assert_allclose(links_of(found[1]), [0.5, 0.3, 0.2], atol=0.05)


@pytest.mark.parametrize("most", [1, 5, 100])
@pytest.mark.parametrize("deviation", [0.01, 3.0, 1000.0])
def test_classes_have_units_enough_for_the_noise(most: int, deviation: float) -> None:
    units = np.geomspace(1000, 1, len(classes(most)))
    first = starts(units, most, deviation)
    assert first[0] == 1
    assert set(first) <= set(classes(most))
    held = np.add.reduceat(units, np.searchsorted(classes(most), first))
    assert len(first) == 1 or held.min() >= SEEN * deviation


def test_how_uneven_numbers_are() -> None:
    assert uneven(np.array([0.0, 50.0]), np.array([1.0, 2.0])) == pytest.approx(0)
    assert uneven(np.array([50.0, 50.0]), np.array([1.0, 3.0])) == pytest.approx(0.5)
    assert uneven(np.array([0.0, 0.0]), np.array([1.0, 2.0])) == 0
