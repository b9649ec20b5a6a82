"""What ``encode.decode`` shows of synthetic numbers, without SQL: its arithmetic step by step, so that values compare as they are shown."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from duckdb_dp.counting.encode import coarseness, in_decimals
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import InUnits
from duckdb_dp.linop import Array, Integers


@final
class Shown:
    """The shown values of the cells of an attribute that has an order, in its type's unit: exact whole numbers, or doubles.

    Attributes:
        number: of cells.
        single: whether each cell has one value, so that it is stored without a share of the way through it.
    """

    def __init__(self, attribute: Attribute) -> None:
        self.number, self.single = attribute.base, attribute.kind != "bins"
        dtype, points = attribute.dtype, attribute.points
        self._decimals: int | None = None
        self._type = np.float32 if attribute.type == "FLOAT" else np.float64
        self._whole = not dtype.continuous
        if attribute.kind == "integers":
            self._lows = _exact(range(int(points[0]), int(points[1]) + 1))
        elif self.single:
            self._lows = _exact([int(amount) for amount in dtype.amounts(points)])
        elif isinstance(dtype, InUnits):
            self._by, _ = coarseness(attribute)
            steps = dtype.steps(points, self._by)
            self._lows = _exact(steps.lows, self._by)
            self._spans, self._before = np.array(steps.spans), np.array(steps.before)
        else:
            self._ends = np.array(attribute.held, dtype=np.float64).T
            _, self._decimals = coarseness(attribute)
            if self._decimals is not None:
                lows, numbers, known = in_decimals(attribute, self._decimals)
                self._known = np.array(known)
                self._lows, self._spans = (
                    np.array([float(value if one else 0) for value, one in zip(values, known, strict=True)])
                    for values in (lows, numbers)
                )

    def values(self, stored: Array) -> Any:
        """The values that are shown of stored numbers: whole numbers, of Python's where 64 bits may be too few, or doubles."""
        floor = np.floor(stored)
        cell, share = floor.astype(np.int64), stored - floor
        if self.single:
            return self._lows[cell]
        if self._whole:
            offset = np.floor(share * self._spans[cell]) - self._before[cell]
            if self._lows.dtype == object:
                offset = np.array([*map(int, offset.tolist()), None], dtype=object)[:-1]
            else:
                offset = offset.astype(np.int64)
            return (self._lows[cell] + offset) * self._by
        least, most = self._ends[0][cell], self._ends[1][cell]
        number = least * (1 - share) + most * share
        if self._decimals is not None:
            decimal = (self._lows[cell] + np.floor(share * self._spans[cell])) / float(10**self._decimals)
            number = np.where(self._known[cell], decimal, number)
        inside = np.minimum(np.maximum(number.astype(self._type).astype(np.float64), least), most)
        return inside.astype(self._type).astype(np.float64)

    def last(self, cells: Integers) -> Array:
        """The greatest numbers that are stored of cells."""
        floats = cells.astype(np.float64)
        return floats if self.single else np.nextafter(floats + 1, 0)

    def ends(self) -> tuple[Any, Any]:
        """(the lowest, the highest) shown value of each cell."""
        cells = np.arange(self.number)
        return self.values(cells.astype(np.float64)), self.values(self.last(cells))


def _exact(numbers: Sequence[int], by: int = 1) -> Any:
    """Whole numbers as an array, of 64 bits where their multiples fit."""
    fits = max(map(abs, (min(numbers), max(numbers)))) * by < 2**61
    return np.array([*numbers], dtype=np.int64 if fits else object)
