"""Pairs of attributes over the links of units, each unit as a whole limited to what the links of a typical one are in L2."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import final

import numpy as np

from duckdb_dp.linop import UNIT, Array, Integers
from duckdb_dp.linop.base import UP

WHOLE = 2**36
"""A unit's factor is a whole number of these parts of 1, over its number of links."""

ROUNDING = 1e-9
"""Of a unit's squared length, relative to the largest that its links could have: sums of 10^5 numbers in doubles lose a thousandth
of it."""

TOGETHER = 2**18
"""Links whose squares are worked out together, but for those of one unit."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class LimitedPairs:
    r"""Sums over units h of f_h v_h, with v_h how far its links are from independent ones in some pairs, and f_h = min(1, C / |v_h|).

    Formula: v_h[a, b](u, w) = s_a(u) s_b(w) 1/k sum over its k links i of ([x_i^a = u] - q_a(u)) ([x_i^b = w] - q_b(w)).
    The first answer is c sum of f_h, the others are the cells of each pair in turn.

    Attributes:
        centres: q_a of each attribute: any numbers that are about its shares.
        scales: s_a, positive.
        pairs: (a, b) by position of the attributes.
        bound: C.
        counted: c.
        rows: k for which noise is calibrated, as in ``PerUnit``.
        compared: (a, b, table) for each of the last attributes, which no row holds: what the table says of the codes of a and b.
        grouped: (a, group of each value of a) for each attribute after these, which no row holds either.
        numbers: the class of each number of links, from 0, which is one more attribute after these; none where it is none.

    A unit's answers have a length of at most sqrt(C^2 + c^2), whatever its links are. It is ``Measurable``, on the rows of units.
    """

    centres: Sequence[Array]
    scales: Sequence[Array]
    pairs: Sequence[tuple[int, int]]
    bound: float
    counted: float
    rows: int
    compared: Sequence[tuple[int, int, Integers]] = ()
    numbers: Integers | None = None
    grouped: Sequence[tuple[int, Integers]] = ()
    _last: dict[str, tuple[Integers, list[Integers]]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """(answers, values of all attributes)."""
        sizes = [len(one) for one in self.centres]
        return 1 + sum(sizes[a] * sizes[b] for a, b in self.pairs), sum(sizes)

    @property
    def squared_sensitivity(self) -> float:
        """(C^2 + c^2) / k^2, rounded up."""
        return (self.bound**2 + self.counted**2) * UP / self.rows**2

    def apply(self, counts: Integers) -> tuple[Array, Array]:
        """(the answers, a bound on their rounding errors)."""
        answers, sizes = list[Array](), list[Array]()
        for table, one, other in self._all(counts):
            # Sums of whole numbers are exact, so that each cell goes through a dozen roundings at most.
            across, down = table.sum(axis=1, keepdims=True) / WHOLE, table.sum(axis=0, keepdims=True) / WHOLE
            inside, total = table / WHOLE, int(table.sum()) / WHOLE
            outer = one.centre[:, None] * down + other.centre * across
            both = np.multiply.outer(one.centre, other.centre) * total
            scale = np.multiply.outer(one.scale, other.scale)
            answers.append((scale * (inside - outer + both)).reshape(-1))
            sizes.append((scale * (inside + outer + both)).reshape(-1))
        return np.concatenate(answers), 32 * UNIT * np.concatenate(sizes)

    def exact(self, counts: Integers, index: int) -> Fraction:
        """One answer, exactly."""
        place = index
        for table, one, other in self._all(counts):
            if place < table.size:
                u, w = divmod(place, table.shape[1])
                q, p = Fraction(float(one.centre[u])), Fraction(float(other.centre[w]))
                across, down = int(table[u].sum()), int(table[:, w].sum())
                cell = int(table[u, w]) - q * down - p * across + q * p * int(table.sum())
                return Fraction(float(one.scale[u])) * Fraction(float(other.scale[w])) * cell / WHOLE
            place -= table.size
        raise IndexError(index)

    def _all(self, rows: Integers) -> Iterator[tuple[Integers, "_Attribute", "_Attribute"]]:
        """(sums, the two attributes) of the number of units, as a pair of no attributes, and of each pair."""
        every = [_Attribute(*one) for one in zip(self.centres, self.scales, strict=True)]
        number, *tables = self._summed(rows)
        yield number, _Attribute(np.zeros(1), np.array([self.counted])), _Attribute(np.zeros(1), np.ones(1))
        for table, (a, b) in zip(tables, self.pairs, strict=True):
            yield table, every[a], every[b]

    def _summed(self, rows: Integers) -> list[Integers]:
        """Units, and links by each pair, where those of one unit weigh its factor together: exact."""
        last = self._last.get("rows")
        if last is not None and last[0] is rows:
            return last[1]
        added = len(self.compared) + len(self.grouped) + (self.numbers is not None)
        held, *codes = rows.reshape(-1, 1 + len(self.centres) - added).T
        codes += [table[codes[a], codes[b]] for a, b, table in self.compared]
        codes += [group[codes[a]] for a, group in self.grouped]
        if self.numbers is not None:
            codes.append(self.numbers[np.minimum(held, len(self.numbers) - 1)])
        weights = self.weights(held, codes)
        found = [np.array([[int(weights.sum())]])]
        for a, b in self.pairs:
            shape = len(self.centres[a]), len(self.centres[b])
            high, low = np.divmod(weights, 1 << 20)
            cells = codes[a] * shape[1] + codes[b]
            parts = [np.bincount(cells, part, math.prod(shape)).astype(np.int64) for part in (high, low)]
            found.append(((parts[0] << 20) + parts[1]).reshape(shape))
        self._last["rows"] = rows, found
        return found

    def weights(self, held: Integers, codes: Sequence[Integers]) -> Integers:
        """What each link weighs: f_h / k of ``WHOLE``, rounded down; ``codes`` are those of all attributes."""
        squares = self.squares(held, codes)
        factor = np.minimum(1.0, self.bound / np.sqrt(np.maximum(squares, 1e-300)))
        return np.repeat((factor * WHOLE).astype(np.int64), units_of(held)) // held

    def squares(self, held: Integers, codes: Sequence[Integers]) -> Array:
        """|v_h|^2 of each unit, rounded up.

        Each is a function of the unit's links alone, to the last bit: sums are in the order of their values.
        """
        if not len(held):
            return np.zeros(0)
        sizes = units_of(held)
        ends, unit = np.cumsum(sizes), np.repeat(np.arange(len(sizes)), sizes)
        found, first = [], 0
        while first < len(sizes):
            start = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, start + TOGETHER, side="right")), first + 1)
            part = slice(start, int(ends[last - 1]))
            found.append(self._squares(unit[part] - first, sizes[first:last], [one[part] for one in codes]))
            first = last
        return np.concatenate(found)

    def _squares(self, unit: Integers, held: Integers, codes: Sequence[Integers]) -> Array:
        total = np.zeros(len(held))
        singles = [_Single.of(unit, held, *one) for one in zip(codes, self.centres, self.scales, strict=True)]
        for a, b in self.pairs:
            one, other = singles[a], singles[b]
            owner, cell, number = _held(
                unit, codes[a] * len(other.centre) + codes[b], len(one.centre) * len(other.centre)
            )
            u, w = np.divmod(cell, len(other.centre))
            # n - e are the centred numbers, of which e is left where there is no link; see ``_Single``.
            gone = one.centre[u] * (other.at(owner, w) - held[owner] * other.centre[w])
            gone += other.centre[w] * one.at(owner, u)
            parts = (one.scale[u] * other.scale[w]) ** 2 * number * (number - 2 * gone)
            square = _sums(owner, parts, len(held))
            square += np.asarray(one.centres * (other.squares - 2 * held * other.crossed + held**2 * other.centres))
            square += np.asarray(2 * one.crossed * (other.crossed - held * other.centres) + one.squares * other.centres)
            largest = float((one.scale.max() * other.scale.max()) ** 2)
            total = total + np.maximum(square, 0.0) / held**2 + ROUNDING * largest
        return total


@final
@dataclass(frozen=True, slots=True)
class _Attribute:
    """The centre and the scale of the values of one attribute."""

    centre: Array
    scale: Array


@final
@dataclass(frozen=True, slots=True)
class _Single:
    """Numbers of links of each unit by one attribute: N(u), with sums over u of (s q)^2, s^2 q N(u) and (s N(u))^2."""

    centre: Array
    scale: Array
    cells: Integers
    numbers: Array
    centres: float
    crossed: Array
    squares: Array

    @classmethod
    def of(cls, unit: Integers, held: Integers, codes: Integers, centre: Array, scale: Array) -> "_Single":
        owner, cell, number = _held(unit, codes, len(centre))
        weighed = np.asarray(scale[cell] ** 2 * number, dtype=np.float64)
        return cls(
            centre=centre,
            scale=scale,
            cells=owner * len(centre) + cell,
            numbers=number,
            centres=float(((scale * centre) ** 2).sum()),
            crossed=_sums(owner, weighed * centre[cell], len(held)),
            squares=_sums(owner, weighed * number, len(held)),
        )

    def at(self, owner: Integers, cell: Integers) -> Array:
        """N of some cells of which the unit has links."""
        return np.asarray(self.numbers[np.searchsorted(self.cells, owner * len(self.centre) + cell)])


def units_of(held: Integers) -> Integers:
    """How many links each unit has, from how many the unit of each link has, those of a unit one after another."""
    found, at, listed = [], 0, held.tolist()
    while at < len(listed):
        found.append(listed[at])
        at += listed[at]
    return np.array(found, dtype=np.int64)


def _held(unit: Integers, cells: Integers, size: int) -> tuple[Integers, Integers, Array]:
    """(unit, cell, how many of its links) of each that has any, sorted."""
    keys, number = np.unique(unit * size + cells, return_counts=True)
    owner, cell = np.divmod(keys, size)
    return owner, cell, number.astype(np.float64)


def _sums(owner: Integers, parts: Array, size: int) -> Array:
    """Of each owner's parts, one after another."""
    return np.asarray(np.bincount(owner, parts, size), dtype=np.float64)
