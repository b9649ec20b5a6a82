"""Noisy histograms of degrees as numbers of rows: noise alone has no long tail whatever the bound is, and real tails stay."""

import numpy as np
import pytest

from duckdb_dp.counting.units import classes
from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.by_number import uneven
from duckdb_dp.synthesis.links.degrees import model
from duckdb_dp.synthesis.links.measured_degrees import ByGroup, Measured, mean_power, means, numbers
from duckdb_dp.synthesis.links.per_unit import NoisyTable
from duckdb_dp.synthesis.links.sides import side_of

BOUNDS, ROWS, RUNS = (4, 10, 30, 100), 3000, 5
SIZES = {"side.shown": 2, "side.night": 7}


def counted(degrees: Integers, most: int, codes: Integers | None = None, values: int = 1) -> Array:
    """Rows that have links by class of degree and value."""
    linked = degrees > 0
    cells = (np.searchsorted(classes(most), degrees, side="right") - 1) * values + (0 if codes is None else codes)
    table = np.bincount(cells[linked], minlength=len(classes(most)) * values).reshape(-1, values)
    return np.asarray(table if codes is not None else table[:, 0], dtype=np.float64)


def measured(degrees: Integers, most: int, deviation: float, seed: int, codes: Integers | None = None) -> Measured:
    """With noise of this standard deviation in each cell, and of each attribute whose codes are given."""
    rng = np.random.default_rng(seed)

    def noisy(table: Array) -> NoisyTable:
        return NoisyTable(table + rng.normal(0, deviation, table.shape), deviation**2)

    columns = [] if codes is None else zip(SIZES.items(), codes.T, strict=True)
    values = {
        name: ByGroup(noisy=noisy(counted(degrees, most, one, size)), group=np.arange(size))
        for (name, size), one in columns
    }
    return Measured(
        rows=float(len(degrees)),
        linked=float((degrees > 0).sum() + rng.normal(0, deviation)),
        linked_variance=deviation**2,
        sizes=noisy(counted(degrees, most)),
        values=values,
    )


def bookings(seed: int) -> tuple[Integers, Integers]:
    """(codes of attributes, degrees): none of those of which the first attribute is 0, one or two of the others."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, ROWS) for size in SIZES.values()], 1)
    return codes, np.where(codes[:, 0] == 0, 0, rng.integers(1, 3, ROWS))


@pytest.mark.parametrize("deviation", [1.0, 10.0, 40.0])
def test_a_bound_far_above_what_occurs_makes_no_tail(deviation: float) -> None:
    """What is read off a histogram, within a tenth of what it is with the least bound; half of the noise was several times it."""
    found = {}
    for most in BOUNDS:
        runs = [measured(bookings(seed)[1], most, deviation, seed) for seed in range(RUNS)]
        kept = [(float(one.units @ means(most)) / one.linked, mean_power(one, most, -1)) for one in runs]
        kept = [(*each, uneven(one.units, means(most))) for each, one in zip(kept, runs, strict=True)]
        found[most] = np.mean(kept, axis=0)
    tolerances = np.array([0.1, 0.05, 0.1]) * max(1.0, deviation / 10)
    for most in BOUNDS[1:]:
        assert (np.abs(found[most] - found[4]) < tolerances).all(), (most, found[most], found[4])


@pytest.mark.parametrize("deviation", [1.0, 10.0])
def test_rows_of_a_value_without_links_have_none_whatever_the_bound_is(deviation: float) -> None:
    """By the tables of attributes too, of which each has noise in values times degrees."""
    domain = Domain(SIZES)
    for most in BOUNDS:
        links = []
        for seed in range(RUNS):
            codes, degrees = bookings(seed)
            side = side_of(domain.attributes, codes, max_degree=most)
            known = measured(degrees, most, deviation, seed, codes)
            mean = model(known, side, domain, int(degrees.sum())).of(side) @ np.arange(most + 1)
            links.append(
                [np.average(mean[side.types[:, 0] == v], weights=side.sizes[side.types[:, 0] == v]) for v in (0, 1)]
            )
        none, some = np.mean(links, axis=0)
        assert none < 0.02 * deviation**0.5, (most, none)
        assert some == pytest.approx(1.5, abs=0.1 * max(1.0, deviation / 5)), most


@pytest.mark.parametrize("most", [30, 100])
def test_real_long_tails_stay(most: int) -> None:
    rng, chances = np.random.default_rng(0), np.arange(1.0, most + 1) ** -1.8
    degrees = rng.choice(np.arange(1, most + 1), 20_000, p=chances / chances.sum())
    far = classes(most) > most // 3
    for deviation in (0.0, 2.0, 10.0, 20.0):
        runs = [measured(degrees, most, deviation, seed) for seed in range(RUNS)]
        tails = [one.units[far].sum() / counted(degrees, most)[far].sum() for one in runs]
        sums = [one.units @ means(most) / (counted(degrees, most) @ means(most)) for one in runs]
        assert np.mean(tails) == pytest.approx(1, abs=0.01 + 0.015 * deviation)
        assert np.mean(sums) == pytest.approx(1, abs=0.001 + 0.01 * deviation)


def test_numbers_without_noise_are_as_they_are() -> None:
    table = np.array([5.0, 0.0, 7.0, 1.0, 0.0, 3.0])
    for expected in (None, np.full(6, 16 / 6)):
        np.testing.assert_allclose(numbers(NoisyTable(table, 1e-12), 16.0, expected), table, atol=1e-4)


def test_numbers_have_their_sum_and_are_not_negative() -> None:
    for seed in range(20):
        noisy = NoisyTable(np.random.default_rng(seed).normal(0, 50, 30), 2500.0)
        found = numbers(noisy, 100.0, np.geomspace(50, 1e-9, 30))
        assert found.min() >= 0
        assert found.sum() == pytest.approx(100)


def test_tables_of_attributes_tell_of_the_histogram_too() -> None:
    """All of them together, with less noise than any: the variance that is claimed is the one that is seen."""
    codes, degrees = bookings(0)
    truth, gaps, claimed = counted(degrees, 30), [], 0.0
    for seed in range(200):
        known = measured(degrees, 30, 10.0, seed, codes)
        gaps.append(known.classed.table - truth)
        claimed = known.classed.variance
    assert claimed == pytest.approx(100 / (1 + 1 / 2 + 1 / 7))
    assert np.var(gaps) == pytest.approx(claimed, rel=0.1)


@pytest.mark.parametrize("most", [4, 100, 2000])
def test_values_keep_their_links_under_any_bound(most: int) -> None:
    """The tilt of a value grows with the degree, and next to no row has the largest: the value would have it alone."""
    codes = np.arange(3000)[:, None] % 2
    degrees, side = 1 + codes[:, 0], side_of(("side.shown",), codes, max_degree=most)
    known = Measured(
        rows=3000.0,
        linked=3000.0,
        linked_variance=1e-6,
        sizes=NoisyTable(counted(degrees, most), 1e-6),
        values={
            "side.shown": ByGroup(noisy=NoisyTable(counted(degrees, most, codes[:, 0], 2), 1e5), group=np.arange(2))
        },  # so much that the tilt alone is believed
    )
    found = model(known, side, Domain({"side.shown": 2}), 4500).of(side) @ np.arange(most + 1)
    np.testing.assert_allclose(found, [1, 2], atol=0.3)


@pytest.mark.parametrize(
    ("deviation", "most", "people"), [(2.0, 8, 4000), (5.0, 8, 4000), (2.0, 40, 4000), (1.0, 8, 1000)]
)
def test_rows_of_a_value_without_links_get_next_to_none(deviation: float, most: int, people: int) -> None:
    """One of ten values, a twentieth of the people, none of whom has a link: noise above 0 gave them a fifth of the links of others."""
    domain, means_of = Domain({"side.work": 10}), list[tuple[float, float]]()
    for seed in range(10):
        rng = np.random.default_rng(seed)
        work = rng.choice(10, people, p=[0.95 / 9] * 9 + [0.05])
        degrees = np.minimum(1 + rng.geometric(0.3, people), most) * (work < 9)

        def noisy(table: Array) -> NoisyTable:
            return NoisyTable(table + rng.normal(0, deviation, table.shape), deviation**2)  # noqa: B023

        known = Measured(
            rows=float(people),
            linked=float((degrees > 0).sum() + rng.normal(0, deviation)),
            linked_variance=deviation**2,
            sizes=noisy(counted(degrees, most)),
            values={"side.work": ByGroup(noisy=noisy(counted(degrees, most, work, 10)), group=np.arange(10))},
        )
        side = side_of(("side.work",), work[:, None], max_degree=most)
        found = model(known, side, domain, int(degrees.sum())).of(side) @ np.arange(most + 1)
        none = side.types[:, 0] == 9
        means_of.append((float(found[none].mean()), float(found[~none].mean())))
        others = np.array([degrees[work == k].mean() for k in range(9)])
        assert np.abs(found[~none] - others[side.types[~none, 0]]).max() < 0.25 * others.mean()
    alone, others_mean = np.mean(means_of, axis=0)
    assert alone < 0.03 * others_mean
