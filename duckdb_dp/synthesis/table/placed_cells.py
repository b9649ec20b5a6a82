"""The cells of attributes whose values are compared, as numbers of the type's unit."""

from typing import final

import numpy as np

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.linop import Array, Integers


@final
class Cells:
    """The cells of an attribute in its type's unit: [low, high) of each; whole units hold what lies between them and the next one."""

    def __init__(self, attribute: Attribute) -> None:
        if attribute.kind == "integers":
            first, last = map(int, attribute.points)
            self.low = np.arange(first, last + 1, dtype=np.float64)
            self.high = self.low + 1
        elif attribute.kind == "values":
            self.low = np.array(attribute.dtype.amounts(attribute.points), dtype=np.float64)
            self.high = self.low + 1
        else:
            lows, highs = zip(*attribute.held, strict=True)
            self.low = np.array(lows, dtype=np.float64)
            # Where values have no unit bins end where the next one begins.
            units = np.array([float(high) + 1 for high in highs])
            self.high = np.append(self.low[1:], float(highs[-1])) if attribute.dtype.continuous else units
        self.number = len(self.low)
        self.shares = attribute.kind == "bins"

    def values(self, stored: Array) -> Array:
        """The values that are stored; of single ones the middle of their unit."""
        cell = np.floor(stored).astype(np.int64)
        share = stored - cell if self.shares else 0.5
        found: Array = self.low[cell] + share * (self.high[cell] - self.low[cell])
        return found

    def ends(self, cells: Integers, values: Array | None) -> tuple[Array, Array]:
        """The ends of cells, or values in their place."""
        return (self.low[cells], self.high[cells]) if values is None else (values, values)

    def reaching(self, least: Array) -> Integers:
        """The first cells with values of at least so much; ``number`` where there is none."""
        return np.searchsorted(self.high, least, side="right")

    def under(self, most: Array) -> Integers:
        """The last cells with values below so much; -1 where there is none."""
        return np.searchsorted(self.low, most, side="left") - 1

    def stored(self, cells: Integers, values: Array) -> Array:
        """Values as they are stored, each in its cell."""
        if not self.shares:
            return cells.astype(np.float64)
        widths = self.high[cells] - self.low[cells]
        widths = np.where(widths > 0, widths, 1.0)  # a bin may hold no value
        share = np.clip((values - self.low[cells]) / widths, 0, 1)
        found: Array = np.minimum(cells + share, np.nextafter(cells + 1.0, 0))
        return found
