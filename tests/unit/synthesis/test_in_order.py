"""Columns of which one is never below another: what is drawn of them together."""

import itertools

import numpy as np
import pytest

from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.table.columns import values
from duckdb_dp.synthesis.table.in_order import _pair, comparable, in_order
from duckdb_dp.synthesis.table.placed_cells import Cells

DAYS, WEEKS = list(range(0, 361, 30)), list(range(-4, 367, 7))


def bins(name: str, edges: list[int], type_: str = "INTEGER") -> Attribute:
    return declare(name=name, type=type_, bins=[*edges], nulls=True)


def drawn(
    attributes: list[Attribute], codes: list[Array], pairs: list[tuple[str, str, bool]], seed: int = 0
) -> list[Array]:
    rng = np.random.default_rng(seed)
    columns = [values(attribute, each, rng) for attribute, each in zip(attributes, codes, strict=True)]
    return in_order(attributes, codes, columns, pairs, rng)


def real(attributes: list[Attribute], columns: list[Array]) -> list[Array]:
    """The values that are stored, as whole units."""
    return [
        np.floor(Cells(attribute).values(column) + 1e-9) for attribute, column in zip(attributes, columns, strict=True)
    ]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("one", "other"), [*itertools.product([DAYS, WEEKS, "whole"], repeat=2)])
def test_all_rows_are_in_order_whatever_their_bins_are(one: object, other: object, strict: bool) -> None:
    attributes = [
        bins(name, edges)
        if isinstance(edges, list)
        else declare(name=name, type="INTEGER", low=0, high=365, nulls=True)
        for name, edges in (("a", one), ("b", other))
    ]
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, attribute.size, 5000).astype(np.int32) for attribute in attributes]
    before = [code.copy() for code in codes]
    columns = drawn(attributes, codes, [("a", "b", strict)])
    for attribute, code, column in zip(attributes, codes, columns, strict=True):
        null = code == attribute.size - 1
        assert np.array_equal(np.floor(column)[null], code[null])
        assert np.all((column >= 0) & (column < attribute.size))
    assert all(map(np.array_equal, codes, before))
    known = np.all([code < attribute.size - 1 for attribute, code in zip(attributes, codes, strict=True)], axis=0)
    low, high = real(attributes, [column[known] for column in columns])
    # Where the upper column has no value above the lower one's nothing can be done: the last days alone.
    assert np.mean(high - low < strict) < (0.01 if strict else 0.003)


def test_bins_keep_their_rows_where_that_can_be() -> None:
    attributes = [bins("a", DAYS), bins("b", DAYS)]
    rng = np.random.default_rng(2)
    first = rng.integers(0, 12, 4000)
    codes = [first.astype(np.int32), np.minimum(first + rng.integers(0, 3, 4000), 11).astype(np.int32)]
    columns = drawn(attributes, codes, [("a", "b", False)])
    assert all(np.array_equal(np.floor(column), code) for column, code in zip(columns, codes, strict=True))


@pytest.mark.parametrize("width", [7, 30, 90])
def test_short_stays_stay_short(width: int) -> None:
    """Their mean, how they are distributed, and where days lie in their bins."""
    rng = np.random.default_rng(3)
    a = 360 * rng.random(40000)
    b = a + rng.exponential(6, 40000)
    edges = list(range(0, 541, width))
    attributes = [bins(name, edges, "DOUBLE") for name in "ab"]
    codes = [np.floor(each / width).astype(np.int32) for each in (a, b)]
    low, high = (
        Cells(attribute).values(column)
        for attribute, column in zip(attributes, drawn(attributes, codes, [("a", "b", False)]), strict=True)
    )
    assert np.all(low <= high)
    assert abs(np.mean(high - low) - 6) < 0.7
    shares = [np.histogram(each, [0, 2, 4, 8, 16, 32, 1000])[0] / 40000 for each in (b - a, high - low)]
    assert np.abs(shares[0] - shares[1]).sum() < 0.15, shares
    places = np.histogram(low % width, 5, (0, width))[0] / 40000
    assert np.abs(places - 0.2).sum() < 0.15


def test_rows_in_the_wrong_order_by_noise_change_no_distribution_of_one_column() -> None:
    """Noise makes as many rows that are too far apart, with which they are exchanged; moving bins changes by the share that is wrong."""
    attributes = [bins("a", DAYS), bins("b", DAYS)]
    rng = np.random.default_rng(4)
    first = rng.integers(0, 12, 20000)
    second = np.where(rng.random(20000) < 0.1, rng.integers(0, 12, 20000), first)
    codes = [first.astype(np.int32), second.astype(np.int32)]
    assert np.mean(second < first) > 0.04
    columns = drawn(attributes, codes, [("a", "b", False)])
    for column, code in zip(columns, codes, strict=True):
        made, had = (np.bincount(np.floor(each).astype(int), minlength=13) / 20000 for each in (column, code))
        assert np.abs(made - had).sum() < 0.015
    low, high = real(attributes, columns)
    assert np.all(low <= high)


def test_three_columns_in_order() -> None:
    attributes = [bins("booked", DAYS), bins("start", WEEKS), bins("end", WEEKS)]
    rng = np.random.default_rng(5)
    days = np.sort(360 * rng.random((3, 3000)), axis=0)
    codes = [
        (np.searchsorted(edges, each, side="right") - 1).astype(np.int32)
        for edges, each in zip((DAYS, WEEKS, WEEKS), days, strict=True)
    ]
    pairs = [("booked", "start", False), ("start", "end", False), ("booked", "end", False)]
    booked, start, end = real(attributes, drawn(attributes, codes, pairs))
    assert np.mean((booked <= start) & (start <= end)) > 0.99


@pytest.mark.parametrize("ends", [(0, 10, 0, 10), (0, 10, 10, 20), (0, 10, 4, 30), (5, 9, 0, 7), (0, 30, 10, 20)])
@pytest.mark.parametrize("scale", [0.5, 4.0, 1000.0])
def test_pairs_have_the_density_that_is_said(ends: tuple[float, ...], scale: float) -> None:
    rng = np.random.default_rng(6)
    a0, a1, b0, b1 = ends
    spans = [np.full(40000, float(end)) for end in ends]
    a, b = _pair(spans, scale, rng.random(40000), rng.random(40000))
    grid = [(np.arange(400) + 0.5) / 400 * (high - low) + low for low, high in ((a0, a1), (b0, b1))]
    x, y = np.meshgrid(*grid, indexing="ij")
    density = np.where(x <= y, np.exp((x - y) / scale), 0.0)
    density /= density.sum()
    for drawn_, known in ((a, x), (b, y), (b - a, y - x)):
        mean = float((density * known).sum())
        stddev = float(np.sqrt((density * (known - mean) ** 2).sum()))
        assert abs(drawn_.mean() - mean) < 5 * stddev / 200 + 0.05
        assert abs(drawn_.std() - stddev) < 0.05 * stddev + 0.05


def test_columns_of_no_pair_stay_as_they_are() -> None:
    attributes = [bins("a", DAYS), bins("b", DAYS), bins("c", DAYS)]
    codes = [np.random.default_rng(7).integers(0, 13, 500).astype(np.int32) for _ in attributes]
    assert np.array_equal(drawn(attributes, codes, [("a", "b", False)])[2], drawn(attributes, codes, [])[2])


def test_only_values_of_one_unit_are_compared() -> None:
    day, moment = declare(name="d", type="DATE", low="2020-01-01", high="2021-01-01", step="1 month"), bins("i", DAYS)
    assert comparable(day, day)
    assert not comparable(day, moment)
    assert comparable(bins("i", DAYS, "BIGINT"), moment)
    assert not comparable(bins("i", DAYS, "DOUBLE"), moment)
    assert comparable(declare(name="v", type="INTEGER", values=[1, 2]), moment)
    assert not comparable(declare(name="v", type="INTEGER", values=[2, 1]), moment)
    assert not comparable(*[declare(name="v", type="DOUBLE", values=[1, 2])] * 2)
    assert not comparable(*[declare(name="v", type="VARCHAR", values=["a", "b"])] * 2)
    assert comparable(declare(name="w", type="DOUBLE", bins=[-1e300, 0, 1e300]), bins("d", DAYS, "DOUBLE"))


def test_bins_without_a_value_are_no_error() -> None:
    attributes = [declare(name=name, type="DECIMAL(4,1)", bins=[0, 0.01, 0.02, 5]) for name in "ab"]
    codes = [np.random.default_rng(8).integers(0, 3, 500).astype(np.int32) for _ in attributes]
    columns = drawn(attributes, codes, [("a", "b", False)])
    assert all(np.all(np.isfinite(column)) for column in columns)
