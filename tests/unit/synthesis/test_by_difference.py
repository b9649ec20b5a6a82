"""Pairs of dates that are placed by how far they are apart."""

import numpy as np
import pytest

from duckdb_dp.domain.differences import differences
from duckdb_dp.domain.domain import declare
from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.table.by_difference import Apart
from duckdb_dp.synthesis.table.columns import values
from duckdb_dp.synthesis.table.in_order import in_order
from duckdb_dp.synthesis.table.placed_cells import Cells
from duckdb_dp.synthesis.table.tails import told, without_tail

MONTHS = [f"2020-{month:02}-01" for month in range(1, 13)]
EDGES = {"months": {"bins": [*MONTHS, "2021-06-01"]}, "days": {"low": "2020-01-01", "high": "2021-05-31"}}
ROWS = 4000


def placed(
    kind: str,
    days: Integers,
    by: Integers,
    noisy: float = 0.0,
    *,
    chain: bool = False,
    groups: tuple[int, ...] = (),
    even: bool = False,
) -> tuple[list[Array], list[Integers]]:
    """The days that are stored of rows whose first day, and difference, are these; and the cells that were drawn.

    The cells of a part of the rows of the last column are exchanged at random, as noise may have it; or all are drawn evenly.
    """
    rng = np.random.default_rng(5)
    edges = {"months": {"bins": [*MONTHS, "2021-06-01"]}, "days": {"low": "2020-01-01", "high": "2021-05-31"}}[kind]
    attributes = [declare(name=name, type="DATE", nulls=True, **edges) for name in "abc"[: 2 + chain]]
    pairs = [("a", "b"), ("b", "c")][: 1 + chain]
    found = differences(attributes, pairs)
    start = Cells(attributes[0]).low[0]
    real = [start + days, start + days + by, start + days + 2 * by][: 2 + chain]
    codes = [
        Cells(attribute).under(each + 1).astype(np.int32) for attribute, each in zip(attributes, real, strict=True)
    ]
    wrong = np.flatnonzero(rng.random(ROWS) < noisy)
    codes[-1][wrong] = codes[-1][rng.permutation(wrong)]
    if even:
        codes = [rng.integers(0, attribute.base, ROWS).astype(np.int32) for attribute in attributes]
    classes = [np.searchsorted(one.attribute.points, by, "right").astype(np.int32) - 1 for one in found]
    apart = {
        pair: Apart(difference=one, codes=each, leaning=np.zeros(one.attribute.size), groups=groups)
        for pair, one, each in zip(pairs, found, classes, strict=True)
    }
    columns = [values(attribute, each, rng) for attribute, each in zip(attributes, codes, strict=True)]
    drawn = in_order(attributes, codes, columns, [(*pair, False) for pair in pairs], rng, apart)
    return [np.floor(Cells(a).values(column)) for a, column in zip(attributes, drawn, strict=True)], codes


def edges_of(by: Integers) -> tuple[Integers, Integers]:
    points = np.array([0, 1, *(x for power in range(1, 10) for x in (2**power, 3 * 2 ** (power - 1)))])
    points = np.sort(points)
    place = np.searchsorted(points, by, "right") - 1
    return points[place], points[place + 1]


@pytest.fixture(scope="module")
def stays() -> tuple[Integers, Integers]:
    rng = np.random.default_rng(3)
    return rng.integers(0, 300, ROWS), rng.choice([0, 1, 5, 9, 40, 130], ROWS, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1])


@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize("kind", ["months", "days"])
def test_what_fits_stays_in_its_cells_and_has_its_class(
    kind: str, chain: bool, stays: tuple[Integers, Integers]
) -> None:
    real, codes = placed(kind, *stays, chain=chain)
    low, high = edges_of(stays[1])
    apart = real[1] - real[0]
    assert np.all((low <= apart) & (apart < high))
    if not chain:
        for name, days, cells in zip("ab", real, codes, strict=True):
            edges = (
                {"bins": [*MONTHS, "2021-06-01"]} if kind == "months" else {"low": "2020-01-01", "high": "2021-05-31"}
            )
            attribute = declare(name=name, type="DATE", nulls=True, **edges)
            assert np.array_equal(Cells(attribute).under(days + 1), cells)
    else:
        apart = real[2] - real[1]
        assert np.mean((low <= apart) & (apart < high)) > 0.95
        assert np.all(real[2] >= real[1])


@pytest.mark.parametrize("kind", ["months", "days"])
def test_cells_that_noise_has_exchanged_follow_the_class(kind: str, stays: tuple[Integers, Integers]) -> None:
    """Short stays stay short though their months say otherwise, and the last column is distributed as it was."""
    real, codes = placed(kind, *stays, noisy=0.3)
    low, high = edges_of(stays[1])
    apart, short = real[1] - real[0], stays[1] < 40
    assert np.mean(((low <= apart) & (apart < high))[short]) > 0.99
    assert np.all(apart >= 0)
    edges = {"bins": [*MONTHS, "2021-06-01"]} if kind == "months" else {"low": "2020-01-01", "high": "2021-05-31"}
    known = Cells(declare(name="b", type="DATE", nulls=True, **edges))
    before, after = (np.bincount(cells, minlength=known.number) for cells in (codes[1], known.under(real[1] + 1)))
    assert np.abs(before - after).sum() < (0.05 if kind == "months" else 0.3) * ROWS


@pytest.mark.parametrize("kind", ["months", "days"])
def test_long_differences_that_few_cells_allow(kind: str) -> None:
    """Jobs of up to a year in a year and a half, days that noise drew evenly, of which the pair was not measured: each has its class."""
    by = np.random.default_rng(8).choice([5, 40, 150, 200, 300, 420], ROWS)
    real, codes = placed(kind, np.zeros_like(by), by, groups=(1, 1), even=True)
    low, high = edges_of(by)
    apart = real[1] - real[0]
    assert np.mean((low <= apart) & (apart < high)) > 0.99
    known = Cells(declare(name="a", type="DATE", nulls=True, **EDGES[kind]))
    assert known.low[0] <= real[0].min() <= real[1].max() < known.high[-1]
    tenths = np.linspace(known.low[0], known.high[-1], 11)
    before, after = (np.histogram(days, tenths)[0] for days in (known.low[codes[0]], real[0]))
    assert np.abs(before - after).sum() < 0.6 * ROWS  # 420 days begin in the first quarter


@pytest.mark.parametrize("noisy", [0.1, 0.3])
def test_rows_whose_cells_allow_their_class_keep_both(noisy: float) -> None:
    """Short rows take no cells that long ones need: of both cells together no more changes than noise has."""
    rng = np.random.default_rng(8)
    by = rng.choice([1, 2, 9, 25, 70], ROWS)
    days = rng.integers(0, 400, ROWS)
    real, codes = placed("months", days, by, noisy=noisy)
    right, _ = placed("months", days, by)
    known = Cells(declare(name="b", type="DATE", nulls=True, bins=[*MONTHS, "2021-06-01"]))
    tables = [
        np.bincount(known.under(one + 1) * known.number + known.under(other + 1), minlength=known.number**2)
        for one, other in (real, right)
    ]
    noise = np.bincount(codes[0].astype(np.int64) * known.number + codes[1], minlength=known.number**2)
    assert np.abs(tables[0] - tables[1]).sum() < 0.35 * np.abs(noise - tables[1]).sum()


def test_null_is_not_placed() -> None:
    rng = np.random.default_rng(1)
    attributes = [declare(name=name, type="DATE", nulls=True, bins=[*MONTHS]) for name in "ab"]
    (one,) = differences(attributes, [("a", "b")])
    codes = [rng.integers(0, attribute.size, ROWS).astype(np.int32) for attribute in (*attributes, one.attribute)]
    columns = [values(attribute, each, rng) for attribute, each in zip(attributes, codes[:2], strict=True)]
    apart = {("a", "b"): Apart(difference=one, codes=codes[2], leaning=np.zeros(one.attribute.size))}
    found = in_order(attributes, codes[:2], columns, [("a", "b", False)], rng, apart)
    for column, each, attribute in zip(found, codes[:2], attributes, strict=True):
        assert np.array_equal(
            column[each == attribute.base], columns[attributes.index(attribute)][each == attribute.base]
        )
    known = (codes[0] < attributes[0].base) & (codes[1] < attributes[1].base)
    low, high = (Cells(a).values(column[known]) for a, column in zip(attributes, found, strict=True))
    assert np.all(np.floor(low) <= np.floor(high))


def test_a_tail_of_noise_has_no_rows_and_a_real_one_has() -> None:
    rng = np.random.default_rng(2)
    real, stddev = np.array([500.0, 300.0, 100.0, 80.0]), 10.0
    kept = [
        told(np.maximum(np.append(real, np.zeros(12)) + stddev * rng.normal(size=16), 0), stddev) for _ in range(500)
    ]
    assert np.mean(np.array(kept) == 4) > 0.8
    assert min(kept) == 4
    assert told(np.append(real, [0, 0, 0, 60.0]), stddev) == 8
    codes = np.repeat(np.arange(6), 100)  # five classes and NULL
    found = without_tail(codes, np.array([500.0, 300.0, 0.0, 3.0, 2.0]), stddev**2, rng)
    assert set(found[codes < 2]) == {0, 1}
    assert set(found) == {0, 1, 5}
    assert np.array_equal(found == 5, codes == 5)
