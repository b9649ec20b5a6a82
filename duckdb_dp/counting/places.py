"""The place of a number among many sorted ones, by equal buckets of few each: ``encode`` writes the SQL that asks for it.

Rows are joined with their buckets by a hash join, whose time hardly depends on how many there are: DuckDB reads an element of a
constant list in time that grows with the list. The numbers go to a statement once, as base64 of their doubles.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array

MOST = 8
"""Edges of one bucket, at most: a value is compared with all of them. Where more share one, a join that sorts the rows is faster."""


def _refused() -> DPError:
    return DPError("_dp_numbers is for statements that dp_ functions write; call those.")


def packed(numbers: Sequence[float] | Array | NDArray[np.int32]) -> str:
    """Numbers as base64 of their doubles."""
    return base64.b64encode(np.asarray(numbers, dtype="<f8").tobytes()).decode()


def unpacked(text: str | None) -> Array:
    """The numbers of a text in ``packed`` form.

    Raises:
        DPError: it is no such list.
    """
    try:
        found = np.frombuffer(base64.b64decode(text or "", validate=True), dtype="<f8")
    except ValueError:
        found = np.zeros(0)
    if not len(found) or not np.isfinite(found).all() or (np.diff(found) < 0).any():
        raise _refused()
    return found


@lru_cache(maxsize=2)
def read(text: str | None) -> "tuple[Array, Places | None]":
    """The numbers of a text in ``packed`` form, and their buckets: one statement asks for several columns of them.

    Raises:
        DPError: it is no such list.
    """
    numbers = unpacked(text)
    return numbers, Places.of(numbers)


@final
@dataclass(frozen=True, eq=False)
class Places:
    """Sorted numbers, with an index of equal buckets.

    Attributes:
        edges: the numbers, never decreasing and finite.
        before: for each bucket, how many edges lie in lower ones.
        most: edges of one bucket, at most.
    """

    edges: Array
    before: NDArray[np.int32]
    most: int

    @classmethod
    def of(cls, numbers: Array) -> "Places | None":
        """As many buckets as numbers, or up to four times as many where fewer share one then; None where more than MOST do."""
        few, fine = cls._with(numbers, len(numbers)), None
        if few.most > 2:
            fine = cls._with(numbers, 4 * len(numbers))
        best = few if fine is None or fine.most + 1 >= few.most else fine
        return best if best.most <= MOST else None

    @classmethod
    def _with(cls, numbers: Array, buckets: int) -> "Places":
        half, span = cls._scale(numbers)
        with np.errstate(under="ignore"):
            bucket = np.floor((numbers / 2 - half) / span * buckets)  # as ``bucket`` has it in SQL
        before = np.searchsorted(bucket, np.arange(buckets + 1)).astype(np.int32)
        return cls(numbers, before, int(np.bincount(bucket.astype(np.int64)).max()))

    @staticmethod
    def _scale(numbers: Array) -> tuple[float, float]:
        """(half of the first, half of the distance from there to the last): halves do not overflow."""
        half = float(numbers[0] / 2)
        return half, max(float(numbers[-1] / 2) - half, float(np.finfo(np.float64).tiny))

    def column(self, number: int) -> Array:
        """Of each bucket how many edges lie in lower ones (0), or the first, second, ... edge that does not, and NaN where none is left.

        Raises:
            DPError: there is no such column.
        """
        if not 0 <= number <= self.most:
            raise _refused()
        if not number:
            return self.before.astype(np.float64)
        return np.append(self.edges, [np.nan] * number)[self.before + (number - 1)]

    def bucket(self, value: str) -> str:
        """SQL of the bucket of a double, and one for NULL: never decreasing, however it is rounded, so edges of lower ones are lower."""
        buckets = len(self.before) - 1
        half, span = (f"{number!r}::DOUBLE" for number in self._scale(self.edges))
        share = f"({value} / 2::DOUBLE - {half}) / {span} * {buckets}::DOUBLE"
        return f"CAST(floor(greatest(least({share}, {buckets}::DOUBLE), 0::DOUBLE)) AS INTEGER)"

    def place(self, value: str, columns: Sequence[str]) -> str:
        """SQL of the place of the last edge that is at most a double: 0 for smaller ones and NULL, and any for NaN.

        Args:
            value: SQL of the double.
            columns: SQL of each ``column`` of its bucket, from 0 to ``most``; of the first as INTEGER.
        """
        before, *edges = columns
        above = " + ".join(f"CAST({edge} <= {value} AS INTEGER)" for edge in edges)
        return f"least(greatest({before} - 1 + {above}, 0), {len(self.edges) - 1})"
