"""Places of numbers among edges: as a binary search finds them, whatever the edges and the numbers are."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from duckdb_dp.counting.places import MOST, Places, packed, unpacked
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array

RNG = np.random.default_rng(5)
EDGES = {
    "one": [0.0],
    "uneven": np.sort(RNG.random(300)) * 100,
    "so even": np.arange(400.0) + np.arange(400) % 3 / 10,
    "huge": [-1.7e308, -3.0, 5e-324, 1e-300, 1.7e308],
    "next to each other": [1.0, np.nextafter(1.0, 2), np.nextafter(np.nextafter(1.0, 2), 2), 7.0],
    "equal": [1.0, 2.0, 2.0, 2.0, 3.0],
    "tiny": [0.0, 5e-324, 1e-323],
    "negative": [-5.0, -4.0, -0.5, -0.0],
}


def found(places: Places, values: Array) -> list[int]:
    columns = [f"e{i}" for i in range(places.most + 1)]
    with duckdb.connect() as con:
        con.register("rows", pa.table({"i": range(len(values)), "v": values}))
        buckets = {
            "k": range(len(places.before)),
            **{c: places.column(i) for i, c in enumerate(columns)},
            "e0": places.before,
        }
        con.register("buckets", pa.table(buckets))
        joined = f"rows LEFT JOIN buckets ON {places.bucket('v')} = k"
        answers = con.execute(f"SELECT {places.place('v', columns)} FROM {joined} ORDER BY i").fetchall()
    return [answer for (answer,) in answers]


@pytest.mark.parametrize("case", EDGES)
def test_every_value_has_the_last_edge_that_is_at_most_as_large(case: str) -> None:
    edges = np.array(EDGES[case])
    near = [np.nextafter(edges, way) for way in (-np.inf, np.inf)]
    values = np.concatenate([edges, *near, RNG.uniform(-5, 150, 500), [np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308]])
    expected = np.maximum(np.searchsorted(edges, values, side="right") - 1, 0)
    places = Places.of(edges)
    assert places is not None
    assert found(places, values) == expected.tolist()
    assert 0 <= found(places, np.array([np.nan]))[0] < len(edges)


def test_edges_that_no_buckets_part_are_joined() -> None:
    assert Places.of(np.sort(np.append(RNG.random(300), 1e12))) is None
    even, random = Places.of(np.arange(1e6)), Places.of(np.sort(RNG.random(20_000)))
    assert even is not None
    assert even.most <= 2
    assert random is not None
    assert random.most <= MOST


def test_numbers_are_read_as_they_were_written() -> None:
    numbers = np.sort(RNG.random(9))
    assert unpacked(packed(numbers)).tolist() == numbers.tolist()
    for text in ("", None, "no list", packed([]), packed([1.0, np.nan]), packed([2.0, 1.0])):
        with pytest.raises(DPError, match="_dp_numbers is for statements that dp_ functions write"):
            unpacked(text)
    places = Places.of(numbers)
    assert places is not None
    for column in (-1, places.most + 1, 2**31 - 1):
        with pytest.raises(DPError, match="call those"):
            places.column(column)
