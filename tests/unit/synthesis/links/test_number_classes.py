"""Attributes of links may depend on how many links their unit has."""

import numpy as np
import pytest

from duckdb_dp.counting.units import classes
from duckdb_dp.synthesis.links.measured_degrees import Measured
from duckdb_dp.synthesis.links.number_classes import number_classes
from duckdb_dp.synthesis.links.per_unit import NoisyTable


def measured(units: dict[int, float], most: int) -> Measured:
    table = np.array([units.get(first, 0.0) for first in classes(most).tolist()])
    whole = float(table.sum())
    return Measured(rows=whole, linked=whole, linked_variance=1.0, sizes=NoisyTable(table=table, variance=1.0))


@pytest.mark.parametrize(
    ("units", "most", "starts"),
    [
        ({1: 500, 2: 300, 3: 100, 5: 100}, 5, [1, 2, 3, 5]),
        ({1: 500, 2: 10, 3: 5}, 5, None),
        ({4: 900}, 4, None),
        ({1: 990, 2: 10, 8: 400, 9: 300}, 20, [1, 2, 9]),
        ({1: -3.0}, 3, None),
        ({}, 3, None),
    ],
)
def test_classes_have_a_part_of_the_units(units: dict[int, float], most: int, starts: list[int] | None) -> None:
    found = number_classes(measured(units, most), most)
    assert (None if found is None else found.starts.tolist()) == starts
    if found is not None:
        assert found.codes(np.arange(1, most + 1)).tolist() == [
            sum(first <= k for first in found.starts) - 1 for k in range(1, most + 1)
        ]
