"""What the direct route of dp_sql measures: clamped sums over the rows of groups, as public data of a request.

Each row adds to one group, and at most ``Sum.largest`` to its sum. So a unit of k rows changes the sums of all groups by at
most k times that, in L1 and in L2.
"""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.types import Scalar

BITS = 30
"""Values are rounded to multiples of 2^(e - BITS), where 2^e is the smallest power of 2 that none exceeds."""

Piece = str | int | tuple[str, int]
"""A piece of an expression over sums: SQL; the sum of that number; or ('known', i): whether sum i is clearly above 0; or
('group', i): the i-th label of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A sum over the rows of each group: of 1, or of a clamped number less a centre, or of the square of that.

    Attributes:
        value: SQL of the number; '' counts the rows where ``where`` is true.
        where: SQL of a condition; '' for all rows.
        low, high: the number is clamped to [low, high]; NULL and NaN add nothing.
        centre: what is subtracted.
        square: whether the difference is squared.
        kind: 'sum'; or 'known' and 'missing', which count the rows with a number and those without one.
        distinct: each unit counts once in each group.
    """

    value: str = ""
    where: str = ""
    low: float = 0.0
    high: float = 1.0
    centre: float = 0.0
    square: bool = False
    kind: str = "sum"
    distinct: bool = False

    def __str__(self) -> str:
        what = "count(DISTINCT unit)" if self.distinct else "count(*)" if not self.value else f"count({self.value})"
        if self.kind == "missing":
            what = f"count(*) - {what}"
        if not self.counts:
            shifted = self.value if self.centre == 0 else f"{self.value} - {self.centre:g}"
            what = f"sum(({shifted})^2)" if self.square else f"sum({shifted})"
        return f"{what} where {self.where}" if self.where else what

    @property
    def counts(self) -> bool:
        """Whether each row adds 1."""
        return not self.value or self.kind != "sum"

    @property
    def largest(self) -> float:
        """The most that one row adds, in absolute value."""
        if self.counts:
            return 1.0
        distance = max(abs(self.low - self.centre), abs(self.high - self.centre))
        return distance**2 if self.square else distance

    @property
    def grid(self) -> float:
        """What a sum is a whole multiple of: a power of 2; 1 for a count."""
        return 1.0 if self.counts else 2.0 ** (math.frexp(self.largest or 1.0)[1] - BITS)

    @property
    def steps(self) -> int:
        """The most that one row adds, in units of the grid."""
        return 1 if self.counts else max(1, math.ceil(self.largest / self.grid))

    def to_json(self) -> list[Any]:
        """Plain data."""
        return list(astuple(self))

    @classmethod
    def from_json(cls, data: list[Any]) -> "Sum":
        """The inverse of ``to_json``."""
        return cls(**dict(zip((field.name for field in fields(cls)), data, strict=True)))


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
    """

    name: str
    pieces: tuple[Piece, ...]
    numeric: bool = True
    outer: tuple[str, ...] = ("", "")
    curved: bool = False
    guards: tuple[tuple[Piece, ...], ...] = ()

    @property
    def noisy(self) -> bool:
        """Whether it takes any sum."""
        return any(isinstance(piece, int) for piece in self.pieces)

    def to_json(self) -> list[Any]:
        """Plain data."""
        guards = [write_pieces(guard) for guard in self.guards]
        return [self.name, write_pieces(self.pieces), self.numeric, list(self.outer), self.curved, guards]

    @classmethod
    def from_json(cls, data: list[Any]) -> "Output":
        """The inverse of ``to_json``."""
        name, pieces, numeric, outer, curved, guards = data
        return cls(
            name=name,
            pieces=read_pieces(pieces),
            numeric=numeric,
            outer=tuple(outer),
            curved=curved,
            guards=tuple(map(read_pieces, guards)),
        )


def write_pieces(pieces: tuple[Piece, ...]) -> list[Any]:
    """An expression as plain data."""
    return [list(piece) if isinstance(piece, tuple) else piece for piece in pieces]


def read_pieces(pieces: list[Any]) -> tuple[Piece, ...]:
    """An expression from plain data."""
    return tuple((piece[0], piece[1]) if isinstance(piece, list) else piece for piece in pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedSums:
    """One grouping set of one SELECT.

    Attributes:
        number: of the SELECT in the call, from 1.
        columns: (name, type) of the table's columns that its expressions read.
        where: SQL of its condition; '' for none.
        clique: the declared attributes that decide a row's group.
        size: how many groups there are.
        groups: the group of each cell of the clique, -1 for cells without one; None where each cell is one.
        labels: the labels of the groups.
        sums: what is summed.
        outputs: the columns of the result.
        having: condition on groups; empty for none.
        order: (expression, what follows it, such as ' DESC') by which rows are sorted.
        limit: how many rows at most; None for all.
    """

    number: int
    columns: tuple[tuple[str, str], ...]
    where: str
    clique: Clique
    size: int
    groups: tuple[int, ...] | None
    labels: tuple[Label, ...]
    sums: tuple[Sum, ...]
    outputs: tuple[Output, ...]
    having: tuple[Piece, ...] = ()
    order: tuple[tuple[tuple[Piece, ...], str], ...] = ()
    limit: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "number": self.number,
            "columns": self.columns,
            "where": self.where,
            "clique": self.clique,
            "size": self.size,
            "groups": self.groups,
            "labels": [label.to_json() for label in self.labels],
            "sums": [one.to_json() for one in self.sums],
            "outputs": [output.to_json() for output in self.outputs],
            "having": write_pieces(self.having),
            "order": [[write_pieces(pieces), after] for pieces, after in self.order],
            "limit": self.limit,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GroupedSums":
        """The inverse of ``to_json``."""
        groups = data["groups"]
        return cls(
            number=data["number"],
            columns=tuple((name, type_) for name, type_ in data["columns"]),
            where=data["where"],
            clique=tuple(data["clique"]),
            size=data["size"],
            groups=None if groups is None else tuple(groups),
            labels=tuple(map(Label.from_json, data["labels"])),
            sums=tuple(map(Sum.from_json, data["sums"])),
            outputs=tuple(map(Output.from_json, data["outputs"])),
            having=read_pieces(data["having"]),
            order=tuple((read_pieces(pieces), after) for pieces, after in data["order"]),
            limit=data["limit"],
        )


def sum_name(index: int) -> Clique:
    """What the i-th sum of a request is called where marginals are named by attributes; no attribute has such a name."""
    return (f"#{index}",)
