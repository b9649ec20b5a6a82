"""Places of numbers among edges: as a binary search finds them, whatever the edges and the numbers are."""

import numpy as np
import pytest

from duckdb_dp.counting.places import Places, opened, packed, places
from duckdb_dp.errors import DPError

RNG = np.random.default_rng(5)
EDGES = {
    "one": [0.0],
    "uneven": np.sort(RNG.random(300)) * 100,
    "in one bucket": np.sort(np.append(RNG.random(300), 1e12)),
    "huge": [-1.7e308, -3.0, 5e-324, 1e-300, 1.7e308],
    "next to each other": [1.0, np.nextafter(1.0, 2), np.nextafter(np.nextafter(1.0, 2), 2), 7.0],
    "equal": [1.0, 2.0, 2.0, 2.0, 3.0],
    "tiny": [0.0, 5e-324, 1e-323],
}


@pytest.mark.parametrize("case", EDGES)
def test_every_value_has_the_last_edge_that_is_at_most_as_large(case: str) -> None:
    edges = np.array(EDGES[case])
    near = [np.nextafter(edges, way) for way in (-np.inf, np.inf)]
    values = np.concatenate([edges, *near, RNG.uniform(-5, 150, 500), [np.inf, -np.inf, 0.0, -0.0]])
    expected = np.maximum(np.searchsorted(edges, values, side="right") - 1, 0)
    found = Places.of(edges)
    assert found.place(values).tolist() == expected.tolist()
    assert places(opened(packed(edges)), values).tolist() == expected.tolist()
    assert 0 <= Places.of(edges).place(np.array([np.nan])).item() < len(edges)
    assert opened(packed(edges)) == opened(packed(edges))


def test_nothing_is_said_of_numbers_that_are_none(recwarn: pytest.WarningsRecorder) -> None:
    Places.of(np.array([0.0, 1.0, 5.0])).place(np.array([np.nan, np.inf, -np.inf, 1e308, -1e308]))
    assert not recwarn.list


@pytest.mark.parametrize("text", ["", "no list", packed([]), packed([1.0, np.nan]), packed([2.0, 1.0])])
def test_only_lists_of_edges_are_opened(text: str) -> None:
    with pytest.raises(DPError, match="_dp_edges is for statements that dp_ functions write"):
        opened(text)


def test_a_list_that_is_not_kept_is_refused() -> None:
    with pytest.raises(DPError, match="not known any more; run the statement again"):
        places(1, np.zeros(1))


def test_more_lists_are_kept_than_columns_are_in_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """And fewer where they are long."""
    numbers = [opened(packed(np.arange(200.0) + place)) for place in range(1_000)]
    assert all(places(number, np.array([place + 7.5]))[0] == 7 for place, number in enumerate(numbers))
    monkeypatch.setattr("duckdb_dp.counting.places.KEPT", 1_000)
    last = opened(packed(np.arange(900.0)))
    assert places(last, np.array([3.0]))[0] == 3
    with pytest.raises(DPError, match="not known any more"):
        places(numbers[0], np.array([1.0]))
