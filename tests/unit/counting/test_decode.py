"""Drawn cells as values in SQL: of the column's type, in their cell, and all over it."""

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.counting.decode import decode
from duckdb_dp.counting.encode import encode, inside
from duckdb_dp.domain.attribute import Attribute, declare
from duckdb_dp.synthesis.table.columns import values

DECLARED: list[dict[str, Any]] = [
    {"type": "VARCHAR", "values": ["a", "b"], "other": True, "nulls": True},
    {"type": "VARCHAR", "values": ["other", "(other)"], "other": True},
    {"type": "ENUM('x', 'it''s')", "nulls": True},
    {"type": "UUID", "values": ["6ecd8c99-4036-403d-bf84-cf8400f67836"]},
    {"type": "BOOLEAN", "nulls": True},
    {"type": "TINYINT", "bins": [-200, 0, 200]},
    {"type": "SMALLINT", "low": -3, "high": 3, "nulls": True},
    {"type": "INTEGER", "low": 0, "high": 10, "step": 3},
    {"type": "BIGINT", "bins": [-(2**63), 0, 2**63 - 1]},
    {"type": "BIGINT", "bins": [2**53 + 1, 2**53 + 2, 2**53 + 5, 2**62 + 7, 2**63 - 2, 2**63 - 1]},
    {"type": "UBIGINT", "low": 2**64 - 4, "high": 2**64 - 1},
    {"type": "UBIGINT", "bins": [0, 2**63, 2**64 - 5, 2**64 - 2, 2**64 - 1]},
    {"type": "HUGEINT", "bins": [-(2**126), 5, 2**126]},
    {"type": "HUGEINT", "bins": [-(2**127), 2**127 - 1]},
    {"type": "HUGEINT", "bins": [-(2**127), -(2**127) + 1, -(2**127) + 9, 2**127 - 9, 2**127 - 1]},
    {"type": "UHUGEINT", "values": [0, 2**128 - 1]},
    {"type": "UHUGEINT", "bins": [0, 1, 2**127, 2**128 - 9, 2**128 - 8, 2**128 - 1]},
    {"type": "UHUGEINT", "bins": [0, 2**128 - 1]},
    {"type": "FLOAT", "bins": [0.1, 0.10000001, 0.7], "nulls": True},
    {"type": "FLOAT", "bins": [-3.4e38, -1e-45, 0, 1e-45, 3.4e38]},
    {"type": "DOUBLE", "bins": [-1.5e308, 0, 1.5e308]},
    {"type": "DOUBLE", "bins": [0, 5e-324, 0.1, 0.1 + 2**-56, 1]},
    {"type": "DOUBLE", "values": [0.1, 2]},
    {"type": "DECIMAL(4,2)", "bins": [0.125, 0.145, 7]},
    {"type": "DECIMAL(4,2)", "low": 0, "high": 10, "step": 1},
    {"type": "DECIMAL(9,0)", "low": 0, "high": 4, "step": 1, "other": True, "nulls": True},
    {"type": "DECIMAL(18,18)", "bins": [-0.5, 0, 0.5]},
    {"type": "DECIMAL(18,0)", "bins": [-(10**18) + 1, 10**17, 10**18 - 1]},
    {"type": "DECIMAL(38,0)", "bins": [-(10**38) + 1, 0, 10**20, 10**20 + 10, 10**38 - 1]},
    {"type": "DECIMAL(38,0)", "bins": [-(10**38) + 1, 10**38 - 1]},
    {"type": "DECIMAL(38,10)", "bins": [-1e27, 0, 1e-10, 3e-10, 1e27]},
    {"type": "DECIMAL(38,38)", "bins": [-0.9, 0.1, 0.9], "other": True},
    {"type": "DATE", "bins": ["0001-01-01", "2000-02-28", "2000-02-29", "9999-12-31"], "nulls": True},
    {"type": "DATE", "low": "2020-01-01", "high": "2020-01-05"},
    {"type": "DATE", "low": "2020-01-01", "high": "2021-01-01", "step": "1 month"},
    {"type": "TIME", "bins": ["00:00:00", "12:00:00", "23:59:59.999999"]},
    {"type": "TIME", "low": "08:00:00", "high": "18:00:00", "step": "01:30:00", "other": True},
    {"type": "TIMESTAMP", "bins": ["0001-01-01", "1969-12-31 23:59:59.999999", "1970-01-01", "9999-12-31"]},
    {"type": "TIMESTAMP", "values": ["2020-01-01", "2020-01-01 12:00:00.5"], "nulls": True},
    {"type": "TIMESTAMP_S", "bins": ["1900-01-01", "2000-01-01 00:00:01", "2000-01-01 00:00:02"]},
    {"type": "TIMESTAMP_MS", "bins": ["2000-01-01", "2000-01-01 00:00:00.001", "2000-01-01 00:00:00.003"]},
    {"type": "TIMESTAMP_NS", "bins": ["1700-01-01", "2000-01-01", "2000-01-01 00:00:00.000001", "2200-01-01"]},
    {"type": "TIMESTAMP_NS", "low": "2000-01-01", "high": "2001-01-01", "step": "3 months"},
]
CONNECTION = duckdb.connect()


def drawn(attribute: Attribute, codes: np.ndarray, seed: int = 0) -> list[tuple[Any, ...]]:
    """(value, type, its cell, whether it is inside) of drawn cells, in order."""
    numbers = values(attribute, codes, np.random.default_rng(seed)).tolist()
    source = f"SELECT unnest(?::DOUBLE[]) AS c, unnest(range({len(numbers)})) AS i"
    made = f"SELECT {decode(attribute, 'c')} AS a, i FROM ({source})"
    shown = "a::VARCHAR" if attribute.type == "TIMESTAMP_NS" else "a"  # Python has no nanoseconds
    asked = f"SELECT {shown}, typeof(a), {encode(attribute)}, {inside(attribute) or 'true'} FROM ({made}) ORDER BY i"
    return CONNECTION.execute(asked, [numbers]).fetchall()


def check(attribute: Attribute, codes: np.ndarray) -> list[Any]:
    """The values of drawn cells, each of the column's type and in the cell that it was drawn for."""
    found = drawn(attribute, codes)
    hidden = attribute.other and attribute.type != "VARCHAR" and attribute.nulls  # 'other' is NULL, which has a cell
    cells = [cell for _, _, cell, _ in found]
    assert cells == [c + 1 if hidden and c == attribute.size - 2 else c for c in codes.tolist()]
    assert all(kept for _, _, _, kept in found)
    assert {type_ for _, type_, _, _ in found} <= {attribute.type, '"NULL"', "NULL"}
    return [value for value, *_ in found]


@pytest.mark.parametrize("declared", DECLARED, ids=lambda d: d["type"])
def test_values_are_in_their_cells_and_all_over_them(declared: dict[str, Any]) -> None:
    attribute = declare(name="a", **declared)
    found = check(attribute, np.repeat(np.arange(attribute.size), 200))
    if attribute.kind != "bins":
        return
    for cell, (low, high) in enumerate(attribute.held):
        several = len(set(found[200 * cell : 200 * cell + 200]))
        real = attribute.type in ("FLOAT", "DOUBLE")
        assert several > (0.5 * min(high - low, 200) if not real else 100 * (high > np.nextafter(low, high) + 2e-8))


EDGES = {
    "TINYINT": st.integers(-128, 127),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "UBIGINT": st.integers(0, 2**64 - 1),
    "HUGEINT": st.integers(-(2**127), 2**127 - 1),
    "UHUGEINT": st.integers(0, 2**128 - 1),
    "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True),
    "DOUBLE": st.floats(allow_nan=False, allow_infinity=False),
    "DECIMAL(9,3)": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: n / 1000),
    "DECIMAL(38,0)": st.integers(-(10**38) + 1, 10**38 - 1),
    "DATE": st.dates().map(str),
    "TIMESTAMP": st.datetimes().map(str),
    "TIMESTAMP_NS": st.datetimes(dt.datetime(1678, 1, 1), dt.datetime(2261, 12, 31)).map(str),
}


@settings(max_examples=300, derandomize=True, deadline=None)
@given(data=st.data())
def test_any_bins_of_any_type(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(sorted(EDGES)))
    near = st.tuples(EDGES[type_], st.integers(1, 3))
    points = set(data.draw(st.lists(EDGES[type_], min_size=2, max_size=6)))
    if type_.endswith("INT"):  # edges next to each other, where doubles are far apart
        points |= {min(a + by, max(points)) for a, by in data.draw(st.lists(near, max_size=3))}
    if len(points) < 2:
        return
    attribute = declare(name="a", type=type_, bins=sorted(points), nulls=data.draw(st.booleans()))
    check(attribute, np.repeat(np.arange(attribute.size), 20))


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ({"type": "INTEGER", "values": [1, 2], "other": True, "nulls": True}, [1, 2, None, None]),
        ({"type": "VARCHAR", "values": ["a"], "other": True}, ["a", "other"]),
        ({"type": "VARCHAR", "values": ["a", "other"], "other": True}, ["a", "other", "(other)"]),
        ({"type": "UUID", "values": ["6ecd8c99-4036-403d-bf84-cf8400f67836"], "other": True}, [..., None]),
        ({"type": "ENUM('a', 'b')", "values": ["a"], "other": True}, ["a", None]),
        ({"type": "DATE", "bins": ["2020-01-01", "2020-01-02"], "other": True}, [..., None]),
    ],
)
def test_what_is_known_of_a_cell(declared: dict[str, Any], found: list[Any]) -> None:
    attribute = declare(name="a", **declared)
    got = [value for value, *_ in drawn(attribute, np.arange(attribute.size))]
    assert [value if want is not ... else ... for value, want in zip(got, found, strict=True)] == found


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ({"type": "DECIMAL(4,2)", "bins": [0.001, 0.004, 0.015]}, [Decimal("0.01")] * 2),
        ({"type": "DECIMAL(4,2)", "bins": [0, 0.005, 0.009]}, [Decimal("0.00")] * 2),
        ({"type": "TINYINT", "bins": [127, 200, 300]}, [127, 127]),
        ({"type": "UTINYINT", "bins": [-9, 0, 1]}, [0, ...]),
    ],
)
def test_a_bin_without_a_value_gives_the_nearest(declared: dict[str, Any], found: list[Any]) -> None:
    attribute = declare(name="a", **declared)
    rows = drawn(attribute, np.arange(attribute.size))
    assert [value if want is not ... else ... for (value, *_), want in zip(rows, found, strict=True)] == found
    assert all(cell is not None and kept for _, _, cell, kept in rows)


def uniform(declared: dict[str, Any], rows: int) -> list[Any]:
    return [value for value, *_ in drawn(declare(name="a", **declared), np.zeros(rows, int), seed=1)]


def test_bins_are_drawn_uniformly_to_both_ends() -> None:
    whole = uniform({"type": "INTEGER", "bins": [0, 3]}, 40_000)
    assert np.abs(np.bincount(whole, minlength=4) - 10_000).max() < 5 * np.sqrt(10_000)
    real = np.array(uniform({"type": "DOUBLE", "bins": [2, 6]}, 40_000))
    assert real.min() >= 2
    assert real.max() <= 6
    assert np.abs(np.histogram(real, 8)[0] - 5_000).max() < 5 * np.sqrt(5_000)
    huge = np.array([float(n) for n in uniform({"type": "HUGEINT", "bins": [-(2**127), 2**127 - 1]}, 40_000)])
    assert np.abs(np.histogram(huge, 8)[0] - 5_000).max() < 5 * np.sqrt(5_000)
    cents = uniform({"type": "DECIMAL(4,2)", "bins": [0, 0.02]}, 999)
    assert set(cents) == {Decimal("0.00"), Decimal("0.01"), Decimal("0.02")}
    days = uniform({"type": "DATE", "bins": ["2000-02-28", "2000-03-01"]}, 99)
    assert set(days) == {dt.date(2000, 2, 28), dt.date(2000, 2, 29), dt.date(2000, 3, 1)}
