"""Ordered types whose values are whole numbers of a unit: a cent, a day, a microsecond."""

import math
from abc import abstractmethod
from collections.abc import Sequence

from duckdb_dp.domain.types.base import Amount, ColumnType, Scalar, literal

_EXACT = 2**53
"""Up to here every whole number is a double."""


class InUnits(ColumnType):
    """A type with a unit. What sums and quantiles need is here: values are integers, between ``limits``."""

    ordered = True

    @property
    def wide(self) -> str:
        """An integer type that holds any number of units."""
        return "HUGEINT"

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest number of units that the type holds; of dates and times more than can be written."""
        return -(2**127), 2**127 - 1

    @abstractmethod
    def from_units(self, number: str) -> str:
        """SQL of a value of the type from SQL of its number of units."""

    def order(self, point: Scalar) -> Amount:
        return self.amount(point)

    def held(self, points: Sequence[Scalar]) -> list[tuple[Amount, Amount]]:
        low, high = self.limits
        edges = [self.amount(point) for point in points]
        lows = [max(math.ceil(edge), low) for edge in edges[:-1]]
        highs = [min(math.ceil(edge) - 1, high) for edge in edges[1:-1]] + [min(math.floor(edges[-1]), high)]
        return list(zip(lows, highs, strict=True))

    def drawn(self, points: Sequence[Scalar], cell: str, share: str) -> str:
        """low + floor(share * n), of the n numbers of units from low to high; of a bin without a value the nearest one."""
        held = [(int(low), int(high)) for low, high in self.held(points)]
        lows = [min(low, held[-1][1]) for low, _ in held]
        numbers = [max(high - low + 1, 1) for low, high in held]
        type_ = "BIGINT" if max(*map(abs, lows), *numbers) < 2**61 else self.wide
        # A little less than n where n is no double, so that nothing is rounded up and out of the bin.
        spans = [float(n) if n <= _EXACT else float(n) * (1 - 2.0**-48) for n in numbers]
        offset = f"floor({share} * {_picked(spans, 'DOUBLE', cell)})"
        if type_ == "HUGEINT":  # from the middle, as an offset may be twice what the type holds
            halves = [n // 2 if n <= _EXACT else int(span / 2) for n, span in zip(numbers, spans, strict=True)]
            offset += f" - {_picked([float(half) for half in halves], 'DOUBLE', cell)}"
            lows = [low + half for low, half in zip(lows, halves, strict=True)]
        return self.from_units(f"{_picked([str(low) for low in lows], type_, cell)} + CAST({offset} AS {type_})")


def _picked(values: Sequence[Scalar], type_: str, cell: str) -> str:
    return f"(CAST([{', '.join(map(literal, values))}] AS {type_}[]))[{cell}]"
