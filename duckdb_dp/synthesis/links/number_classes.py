"""How many links the unit of a link has, in classes: an attribute of links, which others may depend on."""

from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.counting.units import classes
from duckdb_dp.linop import Integers
from duckdb_dp.synthesis.links.measured_degrees import Measured

APART, LEAST = 1.4, 0.1
"""Links of a unit in one class, at least as many times those in the class before; and of the units, the part that a class has at least."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class NumberClasses:
    """Classes of numbers of links, as an attribute of the links of a unit.

    Attributes:
        starts: the least number of each class, from 1.
    """

    starts: Integers

    @property
    def name(self) -> str:
        """A name that no attribute has."""
        return "\0number"

    def codes(self, held: Integers) -> Integers:
        """The class of each link whose unit has so many; of none it is the first."""
        return np.maximum(np.searchsorted(self.starts, held, side="right") - 1, 0)


def number_classes(units: Measured, most: int) -> NumberClasses | None:
    """Classes that each have a part of the units, for numbers that differ; None where nearly all units have about one number.

    Args:
        units: as measured.
        most: links of a unit at most.

    Privacy: post-processing.
    """
    found, before, seen = [1], 0.0, units.units
    left = float(seen.sum())
    needed = LEAST * left
    for first, number in zip(classes(most).tolist(), seen.tolist(), strict=True):
        if first >= APART * found[-1] and min(before, left) >= needed > 0:
            found.append(first)
            before = 0.0
        before += number
        left -= number
    return NumberClasses(np.array(found, dtype=np.int64)) if len(found) > 1 else None
