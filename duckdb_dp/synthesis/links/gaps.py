"""How far the two ends of a link are apart: a date or time of the left one and one of the right one."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Attribute, Clique
from duckdb_dp.domain.types.moments import Moment
from duckdb_dp.linop import Array, Integers

MOST = 4
"""Pairs that are looked at: each has its share of noise."""

TOLD, SHARED = 8, 0.5
"""Values of each attribute, at least, and the part of the shorter range that lies in the other."""

CELLS = 2**21
"""Most cells of two attributes that are compared."""


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gap:
    """The class of the difference between an attribute of the left end of a link and one of the right end.

    Attributes:
        left, right: the attributes.
        classes: of each pair of their values, from 0, shape (values of left, values of right).
        size: how many classes there are.
    """

    left: str
    right: str
    classes: Integers
    size: int

    @property
    def name(self) -> str:
        """A name that no attribute has."""
        return f"\0{self.left} - {self.right}"

    def codes(self, ends: Mapping[str, Integers]) -> Integers:
        """The class of each link."""
        return self.classes[ends[self.left], ends[self.right]]


def pairs_of(left: Sequence[Attribute], right: Sequence[Attribute]) -> list[Clique]:
    """The pairs that are looked at, by declarations alone: dates, or times, whose ranges lie within one another for the most part.

    Those that share most come first.

    Args:
        left, right: the attributes of both sides, '<role>.<column>'.
    """
    found = []
    for a, b in itertools.product(left, right):
        alike = a.dtype.ordered and b.dtype.ordered and _per_day(a) is not None and _per_day(b) is not None
        alike = alike or (not a.dtype.numeric and a.dtype.in_one_unit(b.dtype))
        if not alike or min(a.base, b.base) < TOLD or a.size * b.size > CELLS:
            continue
        ends = [(float(middles.min()), float(middles.max())) for middles in map(_middles, (a, b))]
        both = min(high for _, high in ends) - max(low for low, _ in ends)
        lengths = [high - low for low, high in ends]
        if both >= SHARED * min(lengths) > 0:
            found.append((-both / max(lengths), (a.name, b.name)))
    return [pair for _, pair in sorted(found, key=lambda one: one[0])[:MOST]]


def gaps_of(left: Sequence[Attribute], right: Sequence[Attribute]) -> list[Gap]:
    """The differences that are looked at: of ``pairs_of``.

    With a step u, the longer one of both attributes, a difference d is of the class 0 below u / 2, and else of the one of sign(d) and
    the whole part of the binary logarithm of |d| / u, which is 0 below 1. So few numbers tell a week from a year, and a week before
    from a week after. Pairs with NULL or 'other' have a class of their own.
    """
    lefts, rights = ({one.name: one for one in side} for side in (left, right))
    return [_gap(lefts[a], rights[b]) for a, b in pairs_of(left, right)]


def _gap(a: Attribute, b: Attribute) -> Gap:
    first, second = _middles(a), _middles(b)
    step = max(float(np.median(np.diff(np.sort(one)))) for one in (first, second))
    apart = (first[:, None] - second[None, :]) / step
    powers = np.floor(np.log2(np.maximum(np.abs(apart), 1.0))).astype(np.int64) + 1
    signed = np.where(np.abs(apart) < 0.5, 0, np.sign(apart).astype(np.int64) * powers)
    _, found = np.unique(signed, return_inverse=True)
    classes = np.full((a.size, b.size), -1, dtype=np.int64)
    classes[: a.base, : b.base] = found.reshape(signed.shape)
    size = int(classes.max()) + 1
    classes[classes < 0] = size
    return Gap(left=a.name, right=b.name, classes=classes, size=int(classes.max()) + 1)


def _per_day(attribute: Attribute) -> int | None:
    """Units of a date or a timestamp in a day; None for other types, whose units are their own."""
    dtype = attribute.dtype
    if not isinstance(dtype, Moment) or dtype.name == "TIME":
        return None
    return int(dtype.amount("1970-01-02"))


def _middles(attribute: Attribute) -> Array:
    """The middle of each declared cell, in days of dates and timestamps, else in the type's unit."""
    return _in_units(attribute) / (_per_day(attribute) or 1)


def _in_units(attribute: Attribute) -> Array:
    if attribute.kind == "integers":
        low, high = attribute.dtype.amounts(attribute.points)
        return np.linspace(float(low), float(high), attribute.base)
    points = np.array([float(one) for one in attribute.dtype.amounts(attribute.points)])
    return points if attribute.kind == "values" else (points[1:] + points[:-1]) / 2
