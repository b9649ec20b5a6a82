"""What the direct route of dp_sql shows of its sums: expressions over them, as public data of a request."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from duckdb_dp.domain.types import Scalar

LEAST = "CAST('-Infinity' AS DOUBLE)"
"""SQL of what a logarithm is at 0, as the end of an interval."""

Piece = str | int | tuple[str, int]
"""A piece of an expression over sums: SQL; the sum of that number; or ('known', i): whether sum i is clearly above 0; or
('stddev', i): the standard deviation of its noise; or ('group', i): the i-th label of the group; or ('other', i): whether that stands
for all values that are not found."""


def within(low: float, high: float) -> tuple[str, ...]:
    """SQL around copies of a number that moves it to the nearest one in [low, high], and keeps NULL: an increasing function."""
    first, last = (f"CAST({end!r} AS DOUBLE)" for end in (low, high))
    return "CASE WHEN (", f") < {first} THEN {first} WHEN (", f") > {last} THEN {last} ELSE (", ") END"


def write_pieces(pieces: tuple[Piece, ...]) -> list[Any]:
    """An expression as plain data."""
    return [list(piece) if isinstance(piece, tuple) else piece for piece in pieces]


def read_pieces(pieces: list[Any]) -> tuple[Piece, ...]:
    """An expression from plain data."""
    return tuple((piece[0], piece[1]) if isinstance(piece, list) else piece for piece in pieces)


def renumbered(pieces: tuple[Piece, ...], places: Sequence[int]) -> tuple[Piece, ...]:
    """An expression of sums that stand in other places: that of number i in ``places[i]``."""

    def moved(piece: Piece) -> Piece:
        if isinstance(piece, int):
            return places[piece]
        return (piece[0], places[piece[1]]) if isinstance(piece, tuple) and piece[0] in ("known", "stddev") else piece

    return tuple(map(moved, pieces))


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A column of group labels.

    Attributes:
        name: of the column; '' where it is not shown.
        type: SQL type.
        key: which key of GROUP BY it is.
        attribute: the attribute whose cells are the labels, where each cell of the clique is a group.
        values: otherwise one for each group.
    """

    name: str
    type: str
    key: int
    attribute: str = ""
    values: tuple[Scalar | None, ...] = ()

    def to_json(self) -> list[Any]:
        """Plain data."""
        return [self.name, self.type, self.key, self.attribute, list(self.values)]

    @classmethod
    def from_json(cls, data: list[Any]) -> "Label":
        """The inverse of ``to_json``."""
        name, type_, key, attribute, values = data
        return cls(name=name, type=type_, key=key, attribute=attribute, values=tuple(values))


@dataclass(frozen=True, slots=True)
class Product:
    """How the interval of an expression with products follows from those of its factors.

    To first order a product has no error where both factors are 0, though it does have one: an interval of what all numbers in the factors'
    intervals make holds the truth wherever theirs do.

    Attributes:
        factors: expressions over sums.
        low, high: SQL of the ends, over the ends ``"@l<i>"`` and ``"@h<i>"`` of the i-th factor's interval.
    """

    factors: tuple[tuple[Piece, ...], ...]
    low: str
    high: str

    def renumbered(self, places: Sequence[int]) -> "Product":
        """The same of sums that stand in other places."""
        return replace(self, factors=tuple(renumbered(factor, places) for factor in self.factors))

    def to_json(self) -> list[Any]:
        """Plain data."""
        return [[write_pieces(factor) for factor in self.factors], self.low, self.high]

    @classmethod
    def from_json(cls, data: list[Any]) -> "Product":
        """The inverse of ``to_json``."""
        factors, low, high = data
        return cls(tuple(map(read_pieces, factors)), low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A column of the result: an expression over sums and labels.

    Attributes:
        name: of the column.
        pieces: an expression.
        numeric: whether it has an error, which follows from the noise of the sums to first order.
        outer: SQL around copies of the expression, an increasing function of it; ('', '') is the expression itself.
        curved: whether that function stretches, so that the standard deviation is a part of the interval's width.
        guards: what the expression divides by; where one of these is not clearly away from 0, it is NULL.
        ends: the same function for the ends of an interval, which are moved to where it is one; () where that is everywhere.
        product: of an expression with products, how its interval follows from those of the factors.
    """

    name: str
    pieces: tuple[Piece, ...]
    numeric: bool = True
    outer: tuple[str, ...] = ("", "")
    curved: bool = False
    guards: tuple[tuple[Piece, ...], ...] = ()
    ends: tuple[str, ...] = ()
    product: Product | None = None

    @property
    def noisy(self) -> bool:
        """Whether it takes any sum."""
        return any(isinstance(piece, int) for piece in self.pieces)

    def renumbered(self, places: Sequence[int]) -> "Output":
        """The same of sums that stand in other places."""
        return replace(
            self,
            pieces=renumbered(self.pieces, places),
            guards=tuple(renumbered(guard, places) for guard in self.guards),
            product=None if self.product is None else self.product.renumbered(places),
        )

    def to_json(self) -> list[Any]:
        """Plain data."""
        guards = [write_pieces(guard) for guard in self.guards]
        found = [self.name, write_pieces(self.pieces), self.numeric, list(self.outer), self.curved, guards]
        if self.product is not None:
            return [*found, list(self.ends), self.product.to_json()]
        return [*found, list(self.ends)] if self.ends else found

    @classmethod
    def from_json(cls, data: list[Any]) -> "Output":
        """The inverse of ``to_json``."""
        name, pieces, numeric, outer, curved, guards, *more = data
        return cls(
            name=name,
            pieces=read_pieces(pieces),
            numeric=numeric,
            outer=tuple(outer),
            curved=curved,
            guards=tuple(map(read_pieces, guards)),
            ends=tuple(more[0]) if more else (),
            product=Product.from_json(more[1]) if len(more) > 1 else None,
        )
