import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pytest

from duckdb_dp.attribute import declare
from duckdb_dp.data.encode import encode, inside
from duckdb_dp.synth.decode import decode, decode_table

RNG = np.random.default_rng

DECLARED: list[dict[str, Any]] = [
    {"type": "VARCHAR", "values": ["a", "b"], "other": True, "nulls": True},
    {"type": "ENUM('x', 'it''s')", "nulls": True},
    {"type": "UUID", "values": ["6ecd8c99-4036-403d-bf84-cf8400f67836"]},
    {"type": "BOOLEAN", "nulls": True},
    {"type": "TINYINT", "bins": [-200, 0, 200]},
    {"type": "SMALLINT", "low": -3, "high": 3, "nulls": True},
    {"type": "INTEGER", "low": 0, "high": 10, "step": 3},
    {"type": "BIGINT", "bins": [-(2**63), 0, 2**63 - 1]},
    {"type": "UBIGINT", "low": 2**64 - 4, "high": 2**64 - 1},
    {"type": "HUGEINT", "bins": [-(2**126), 5, 2**126]},
    {"type": "UHUGEINT", "values": [0, 2**128 - 1]},
    {"type": "FLOAT", "bins": [0.1, 0.10000001, 0.7], "nulls": True},
    {"type": "DOUBLE", "bins": [-1.5e308, 0, 1.5e308]},
    {"type": "DOUBLE", "values": [0.1, 2]},
    {"type": "DECIMAL(4,2)", "bins": [0.125, 0.145, 7]},
    {"type": "DECIMAL(38,10)", "low": 0, "high": 1, "step": 0.25},
    {"type": "DATE", "bins": ["1969-12-30", "1970-01-01", "2000-02-29"], "nulls": True},
    {"type": "DATE", "values": ["2020-02-29"], "nulls": True},
    {"type": "TIME", "bins": ["00:00:00", "12:00:00", "23:59:59.5"]},
    {"type": "TIMESTAMP", "bins": ["1900-01-01", "1900-01-01 00:00:00.000002", "2100-01-01"]},
    {"type": "TIMESTAMP_S", "bins": ["2000-01-01", "2000-01-02"]},
    {"type": "TIMESTAMP_MS", "bins": ["2000-01-01", "2000-01-02"]},
    {"type": "TIMESTAMP_NS", "bins": ["2000-01-01", "2000-01-02"]},
]


@pytest.mark.parametrize("declared", DECLARED, ids=lambda d: d["type"])
def test_values_encode_back_to_their_cells(declared: dict[str, Any]) -> None:
    attribute = declare(name="a", **declared)
    codes = np.repeat(np.arange(attribute.size), 200)
    con = duckdb.connect()
    con.register("drawn", decode_table([attribute], codes[:, None], RNG(0)))
    con.execute(f"CREATE TABLE t AS SELECT CAST(a AS {declared['type']}) AS a, row_number() OVER () AS i FROM drawn")
    found = con.execute(f"SELECT {encode(attribute)}, {inside(attribute) or 'true'} FROM t ORDER BY i").fetchall()
    assert [cell for cell, _ in found] == codes.tolist()
    assert all(kept for _, kept in found)


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ({"type": "INTEGER", "values": [1, 2], "other": True, "nulls": True}, [1, 2, None, None]),
        ({"type": "VARCHAR", "values": ["a"], "other": True}, ["a", "other"]),
        ({"type": "UUID", "values": ["6ecd8c99-4036-403d-bf84-cf8400f67836"], "other": True}, [..., None]),
        ({"type": "ENUM('a', 'b')", "values": ["a"], "other": True}, ["a", None]),
        ({"type": "DATE", "bins": ["2020-01-01", "2020-01-02"], "other": True}, [..., None]),
        (
            {"type": "DECIMAL(4,2)", "bins": [0.001, 0.004, 0.015]},
            [Decimal("0.01")] * 2,
        ),  # the first bin holds no such number
    ],
)
def test_what_is_known_of_a_cell(declared: dict[str, Any], found: list[Any]) -> None:
    attribute = declare(name="a", **declared)
    values = decode(attribute, np.arange(attribute.size), RNG(0)).to_pylist()
    assert [value if want is not ... else ... for value, want in zip(values, found, strict=True)] == found


def test_bins_are_drawn_uniformly_to_both_ends() -> None:
    whole = decode(declare(name="a", type="INTEGER", bins=[0, 3, 5]), np.repeat([0, 1], 30_000), RNG(1)).to_numpy()
    counts = np.bincount(whole, minlength=6)
    assert np.abs(counts - [10_000] * 6).max() < 5 * np.sqrt(10_000)
    real = decode(declare(name="a", type="DOUBLE", bins=[2, 6]), np.zeros(40_000, int), RNG(1)).to_numpy()
    assert real.min() >= 2
    assert real.max() <= 6
    assert np.abs(np.histogram(real, 8)[0] - 5_000).max() < 5 * np.sqrt(5_000)
    cents = decode(declare(name="a", type="DECIMAL(4,2)", bins=[0, 0.02]), np.zeros(999, int), RNG(1)).to_pylist()
    assert set(cents) == {Decimal("0.00"), Decimal("0.01"), Decimal("0.02")}
    days = decode(
        declare(name="a", type="DATE", bins=["2000-02-28", "2000-03-01"]), np.zeros(99, int), RNG(1)
    ).to_pylist()
    assert set(days) == {dt.date(2000, 2, 28), dt.date(2000, 2, 29), dt.date(2000, 3, 1)}


def test_the_same_generator_gives_the_same_values() -> None:
    attribute = declare(name="a", type="HUGEINT", bins=[0, 2**100])
    one, two = (decode(attribute, np.zeros(9, int), RNG(5)) for _ in range(2))
    assert one.equals(two)
    assert not one.equals(decode(attribute, np.zeros(9, int), RNG(6)))
