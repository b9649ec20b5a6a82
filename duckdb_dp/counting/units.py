"""Tables of what the rows of one unit have in common: how many there are, their values by that number, and pairs of them.

Each unit weighs at most 1 in each table but the last, whatever it holds, so that one unit more or less moves a table by one vector that is
not negative and sums to at most 1: sensitivity 1, in L1 and in L2. With k rows of a unit h, 1 <= k <= d, the tables are

    sizes_b(k, w)  = #{h with k rows: its own attribute b is w}
    values_a(K, u) = sum over h with k rows, k in the class K, of 1/k #{i: x_i^a = u}
    pairs_ab(u, v) = sum over h of 1/(k(k-1)) #{i != j: x_i^a = u and x_j^b = v}
    shares_A(u)    = sum over h of 1/k #{i: x_i^A = u}, of several attributes A
    capped_A(u)    = sum over h of min(k, c)/k #{i: x_i^A = u}, in which a unit weighs at most c

They are counted in whole numbers, times ``WEIGHT``: the weights of all but the first are rounded down.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Integers

if TYPE_CHECKING:
    from scipy.sparse import csr_array

UNIT = "\0unit"
"""First in the name of a table of units, and of the block that holds their rows: no column has such a name."""

WEIGHT = 232_792_560
"""What a unit weighs: the least common multiple of 1 to 22, so that 1/k and 1/(k(k-1)) are exact for up to 22 rows."""

EACH = 32
"""Numbers of rows up to which each has a class of its own; above, a class is an eighth wider than the one before."""


def classes(most: int) -> Integers:
    """The least number of rows of each class, from 1, for units of at most ``most`` rows; public."""
    found = list(range(1, min(most, EACH) + 1))
    while (after := found[-1] + max(1, found[-1] // 8)) <= most and most > EACH:
        found.append(after)
    return np.array(found, dtype=np.int64)


def sizes_of(most: int, *attribute: str) -> Clique:
    """The table of units by their number of rows, alone or with one attribute of the unit itself."""
    return (UNIT, "sizes", str(most), *attribute)


def values_of(first: Iterable[int], attribute: str) -> Clique:
    """The table of values of an attribute by class of the number of rows of their unit: the least number of each class, from 1."""
    return (UNIT, "values", ",".join(map(str, first)), attribute)


def pairs_of(attribute: str, other: str) -> Clique:
    """The table of values of two different rows of one unit."""
    return (UNIT, "pairs", attribute, other)


def shares_of(attributes: Clique) -> Clique:
    """The table of joint values of the rows, those of one unit weighing 1 together."""
    return (UNIT, "shares", *attributes)


def rows_of(attributes: Clique) -> Clique:
    """No table: the rows themselves, for queries that limit each unit by itself."""
    return (UNIT, "rows", *attributes)


def capped_of(attributes: Clique, most: int) -> Clique:
    """The table of joint values of the rows, those of one unit weighing as many as they are together, but at most so many."""
    return shares_of(attributes) if most == 1 else (UNIT, "capped", str(most), *attributes)


def weight_of(clique: Clique) -> int:
    """What a unit weighs at most in a table."""
    if clique[1] == "capped":
        return WEIGHT * int(clique[2])
    return 1 if clique[1] == "sizes" else WEIGHT


@final
@dataclass(frozen=True, slots=True)
class UnitRows:
    """The rows of all units, those of a unit one after another.

    Attributes:
        domain: has the attributes.
        codes: attribute -> its code in each row.
        held: for each row, how many rows its unit has.
        merged: once it is needed, rows of equal codes as one, with their weight where those of a unit weigh so many at most.
    """

    domain: Domain
    codes: dict[str, NDArray[np.integer]]
    held: Integers
    merged: dict[int, tuple[dict[str, NDArray[np.integer]], Integers]] = field(default_factory=dict)

    def table(self, clique: Clique) -> Integers:
        """The exact counts of a table, flat, times its weight.

        Privacy: exact; only ``private.py`` may read them.
        """
        kind, names = clique[1], clique[2 if clique[1] in ("pairs", "shares", "rows") else 3 :]
        if kind == "rows":
            return np.stack([self.held, *(self.codes[name].astype(np.int64) for name in names)], axis=1).reshape(-1)
        if kind == "pairs":
            return self._pairs(names[0], names[1])
        if kind in ("shares", "capped"):
            return self._shares(names, int(clique[2]) if kind == "capped" else 1)
        first = classes(int(clique[2])) if kind == "sizes" else np.array(clique[2].split(","), dtype=np.int64)
        size = self.domain.cells(names)
        cells = (np.searchsorted(first, self.held, side="right") - 1) * size
        if names:
            cells = cells + self.codes[names[0]]
        if kind == "sizes":
            return np.bincount(cells[self._starts()], minlength=len(first) * size)
        return self._weighted(cells, WEIGHT // np.maximum(self.held, 1), len(first) * size)

    def _shares(self, names: Clique, most: int) -> Integers:
        if most not in self.merged:
            self.merged[most] = self._merged(most)
        codes, weights = self.merged[most]
        cells = np.zeros(len(weights), dtype=np.int64)
        for name in names:
            cells = cells * self.domain.sizes[name] + codes[name]
        return self._weighted(cells, weights, self.domain.cells(names))

    def _merged(self, most: int) -> tuple[dict[str, NDArray[np.integer]], Integers]:
        """Rows of equal codes as one, where a number tells rows apart, with their weight: many tables are summed from few rows."""
        weights = WEIGHT // np.maximum(self.held, 1) * np.minimum(self.held, most)
        names = tuple(self.codes)
        if self.domain.cells(names) > np.iinfo(np.int64).max:
            return self.codes, weights
        keys = np.zeros(len(weights), dtype=np.int64)
        for name in names:
            keys = keys * self.domain.sizes[name] + self.codes[name]
        _, first, places = np.unique(keys, return_index=True, return_inverse=True)
        return {name: codes[first] for name, codes in self.codes.items()}, self._weighted(places, weights, len(first))

    def _starts(self) -> Integers:
        """The place of the first row of each unit."""
        found, at, held = [], 0, self.held.tolist()
        while at < len(held):
            found.append(at)
            at += held[at]
        return np.array(found, dtype=np.int64)

    @staticmethod
    def _weighted(cells: Integers, weights: Integers, size: int) -> Integers:
        """Sums of whole weights, exactly: in two halves, each of which a double holds."""
        high, low = np.divmod(weights, 1 << 14)
        parts = [np.bincount(cells, part, size).astype(np.int64) for part in (high, low)]
        return np.asarray((parts[0] << 14) + parts[1])

    def _pairs(self, one: str, other: str) -> Integers:
        weights = WEIGHT // np.maximum(self.held * (self.held - 1), 1)
        weights[self.held < 2] = 0
        starts = self._starts()
        units = np.repeat(np.arange(len(starts)), self.held[starts])
        left, right = self._counts(units, one), self._counts(units, other)
        left.data *= weights[starts][np.repeat(np.arange(len(starts)), np.diff(left.indptr))]
        table = np.asarray((left.T @ right).todense(), dtype=np.int64)
        same = self.codes[one].astype(np.int64) * table.shape[1] + self.codes[other]
        return np.asarray(table.reshape(-1) - self._weighted(same, weights, table.size))

    def _counts(self, units: Integers, name: str) -> "csr_array":
        """How many rows of each unit hold each value, shape (units, values)."""
        from scipy.sparse import csr_array  # for import time

        ones = np.ones(len(units), dtype=np.int64)
        shape = (int(units[-1]) + 1 if len(units) else 0, self.domain.sizes[name])
        found = csr_array((ones, (units, self.codes[name].astype(np.int64))), shape=shape)
        found.sum_duplicates()
        return found
