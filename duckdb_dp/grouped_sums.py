"""What the direct route of dp_sql measures: clamped sums over the rows of groups, as public data of a request.

Each row adds to one group, and at most ``Sum.largest`` to its sum. So a unit of k rows changes the sums of all groups by at
most k times that, in L1 and in L2.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from duckdb_dp.domain.domain import Attribute, Clique
from duckdb_dp.outputs import Label as Label
from duckdb_dp.outputs import Output, Piece, read_pieces, renumbered, write_pieces
from duckdb_dp.sum_names import BITS as BITS
from duckdb_dp.sum_names import MARK as MARK
from duckdb_dp.sum_names import PER_OCTAVE as PER_OCTAVE
from duckdb_dp.sum_names import sum_name as sum_name
from duckdb_dp.sum_names import sum_number as sum_number

CHOSEN: int = 2**BITS + 3
"""Steps that one row adds at most to a sum whose bounds are chosen: 2^BITS for the bound, and 3 since numbers are rounded."""

SMALLEST, OCTAVES = -30, 90
"""Bounds are chosen among +-2^(SMALLEST + j / PER_OCTAVE) for j from 0 to OCTAVES * PER_OCTAVE: from 1e-9 to 1e18."""


@cache
def candidates() -> Attribute:
    """The cells of DOUBLE at whose edges bounds are chosen: negative ones, one around 0, and positive ones.

    Privacy: public.
    """
    edges = [2.0 ** (SMALLEST + j / PER_OCTAVE) for j in range(OCTAVES * PER_OCTAVE + 1)]
    return Attribute(name="value", type="DOUBLE", kind="bins", points=(*(-edge for edge in reversed(edges)), *edges))


FRACTION, WHOLE = 40, 62
"""Binary digits of a DOUBLE after and before the point that are added up where sums are bounded by norm."""


CLOSE, SMALL, TINY = 16, 24, -20
"""Octaves below the largest distance from a centre, and from 0: seldom are all values of a table so near to the middle of their bounds,
or so small beside them. And the octave of DOUBLEs without bounds below which all of them seldom are: a millionth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A sum over the rows of each group: of 1, or of a clamped number less a centre, or of the square of that; or a quantile.

    Attributes:
        value: SQL of the number; '' counts the rows where ``where`` is true.
        where: SQL of a condition; '' for all rows.
        low, high: the number is clamped to [low, high]; NULL and NaN add nothing.
        centre: what is subtracted.
        square: whether the difference is squared.
        kind: 'sum'; 'known' and 'missing', which count the rows with a number and those without one; 'values', which counts the
            distinct values of any type; or 'quantile'.
        distinct: each unit counts once in each group.
        cells: public cells of the value: those that a quantile is found in, or at whose edges the bounds of a sum are chosen.
        quantile: which one, from 0 to 1.
        type: SQL type of a quantile.
        norm: where an owner's contributions are bounded by their norm, as what type its numbers are added up: a whole or decimal
            one, whose sums are exact, or 'DOUBLE', whose numbers are put on a grid before; '' where its rows are bounded.
        weighed: with a norm, whether an owner has one weight in it and in the sums that it makes a ratio with.
        each: how many distinct values of a unit count at most, where these are fewer than its rows; 0 where they may be as many.
    """

    value: str = ""
    where: str = ""
    low: float = 0.0
    high: float = 1.0
    centre: float = 0.0
    square: bool = False
    kind: str = "sum"
    distinct: bool = False
    cells: Attribute | None = None
    quantile: float = 0.0
    type: str = "DOUBLE"
    norm: str = ""
    weighed: bool = False
    each: int = 0

    def __str__(self) -> str:
        if self.kind == "values":
            text = f"count(DISTINCT {self.value})"
            return f"{text} where {self.where}" if self.where else text
        if self.kind == "quantile":
            text = f"quantile({self.value}, {self.quantile:g})"
            return f"{text} where {self.where}" if self.where else text
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
        return not self.value or self.kind in ("known", "missing", "values")

    @property
    def chosen(self) -> bool:
        """Whether its bounds are chosen by a part of the budget."""
        return self.kind == "sum" and self.cells is not None

    @property
    def histogram(self) -> "Sum | None":
        """What is counted in its cells, the same for all quantiles of one value; None of a sum with bounds.

        Sums of one value under different conditions have the same bounds, so that they can be compared.
        """
        where = "" if self.chosen else self.where
        return None if self.cells is None else Sum(value=self.value, where=where, cells=self.cells)

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
        if self.norm:
            return 1 << BITS
        if self.chosen:
            return CHOSEN
        return 1 if self.counts else max(1, math.ceil(self.largest / self.grid))

    @property
    def bounded(self) -> bool:
        """Whether its value has bounds that are known."""
        return self.low < self.high

    @property
    def scale(self) -> int:
        """Numbers are multiplied by 2^scale before they are put on a grid of 2^-FRACTION: then those with bounds are below 2^40."""
        return FRACTION - math.frexp(self.largest)[1] if self.bounded and not self.counts else 0

    @property
    def octaves(self) -> tuple[int, int]:
        """The smallest and the largest bound on its norm among which one is chosen, as powers of 2: the range of its type.

        Each candidate below those that suit takes a part of the choice away. So of numbers with bounds none is below what a row can
        add: the bound that is nearer to the centre where that lies outside; half a unit of a whole or decimal type, as the centre may
        lie between two; of doubles 2^-CLOSE of the largest distance from a centre, or 2^-SMALL of the largest value.
        """
        if self.counts:
            return 0, FRACTION
        digits = int(self.norm.partition(",")[2].rstrip(")") or 0)
        smallest = -math.ceil(digits * math.log2(10))
        if self.bounded:
            middle, lowest = math.frexp(self.largest)[1], self.former_lowest
            near = max(self.low - self.centre, self.centre - self.high)
            if near > 0:  # the rows of an owner add up, as all lie on one side
                lowest = max(lowest, math.frexp(near**2 if self.square else near)[1] - 1)
            if self.norm != "DOUBLE":
                lowest = max(lowest, (smallest - 1) * (2 if self.square else 1))
            else:
                lowest = max(lowest, middle - (CLOSE if self.centre else SMALL) * (2 if self.square else 1))
            return min(lowest, middle), middle + FRACTION
        return (TINY, WHOLE + FRACTION // 2) if self.norm == "DOUBLE" else (smallest, 2 * FRACTION)

    @property
    def former_lowest(self) -> int:
        """The smallest bound, as a power of 2, in releases that do not store which one theirs was."""
        if self.counts or (not self.bounded and self.norm != "DOUBLE"):
            return self.octaves[0]
        return math.frexp(self.largest)[1] - FRACTION if self.bounded else -FRACTION

    @property
    def numeric(self) -> bool:
        """Whether it is a number, as all but quantiles of dates and times are."""
        return self.kind != "quantile" or (self.cells is not None and self.cells.dtype.numeric)

    @property
    def number(self) -> str:
        """Its SQL type in expressions."""
        return "DOUBLE" if self.numeric else self.type

    def to_json(self) -> list[Any]:
        """Plain data; of a sum with bounds what it was before there were cells, so that its request stays the same."""
        *plain, weighed, each = (getattr(self, field.name) for field in fields(self))
        if each:
            return [*plain, weighed, each]
        if self.norm:
            return [*plain[:_BEFORE], None, *plain[_BEFORE + 1 :], *([True] if weighed else [])]
        plain.pop()
        return (
            plain[:_BEFORE] if self.cells is None else [*plain[:_BEFORE], self.cells.to_json(), *plain[_BEFORE + 1 :]]
        )

    @classmethod
    def from_json(cls, data: list[Any]) -> "Sum":
        """The inverse of ``to_json``."""
        known = dict(zip((field.name for field in fields(cls)), data, strict=False))
        if known.get("cells") is not None:
            known["cells"] = Attribute.from_json(known["cells"])
        return cls(**known)


_BEFORE: int = [field.name for field in fields(Sum)].index("cells")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """The rows of a relation with a key in place of their owner's columns, and the owners that keys lead to.

    The relation is ``rows`` JOIN ``owners`` ON its keys = k0, k1, ...: sums of each key are sums of its rows' owners, so that rows may be
    added up before they are joined.

    Attributes:
        rows: the SELECT of the relation's rows.
        keys: (name, type) of its columns that are the key.
        owners: SELECT k<i>, o<j>: the key, and the columns that name an owner.
    """

    rows: str
    keys: tuple[tuple[str, str], ...]
    owners: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A relation of rows that have one owner each, which sums are taken over in place of the dataset's own table.

    Attributes:
        sql: its SELECT: every table in full, every column that the expressions read and the owner's, all names unique.
        owner: the columns that name a row's owner; () where each row is an owner of its own.
        single: whether no owner has two rows.
        rows: how many rows an owner has at most, by what was declared; None where that was not asked.
        bound: of which tables' bounds that is the product, in words.
        further: how many rows joins take of tables of which they do not take all, in words.
        types: of the owner's columns; () where they are not known.
        lookup: the same rows before they are joined with their owners, where that can be done last; it is no part of a request.
    """

    sql: str
    owner: tuple[str, ...]
    single: bool = False
    rows: int | None = field(default=None, compare=False)
    bound: str = field(default="", compare=False)
    further: str = field(default="", compare=False)
    types: tuple[str, ...] = field(default=(), compare=False)
    lookup: Lookup | None = field(default=None, compare=False)

    @property
    def canonical(self) -> bool:
        """Whether it has the form that all ways to write a join share, in which tables are called u0, u1 and so on."""
        return ' AS "u0"' in self.sql

    def to_json(self) -> list[Any]:
        """Plain data."""
        return [self.sql, list(self.owner), self.single]

    @classmethod
    def from_json(cls, data: list[Any]) -> "Source":
        """The inverse of ``to_json``."""
        sql, owner, single = data
        return cls(sql=sql, owner=tuple(owner), single=single)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedSums:
    """One grouping set of one SELECT.

    Attributes:
        number: of the SELECT in the call, from 1.
        columns: (name, type) of the table's or the relation's columns that its expressions read.
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
        source: the rows that are summed; None for those of the dataset's own table.
        rows: how many rows of a unit count, where these are fewer than the request says.
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
    source: Source | None = None
    rows: int | None = None

    @property
    def shares(self) -> bool:
        """Whether a number is summed whose own rows are not counted, as all rows have one, or as nothing asks."""
        counted = {(one.value, one.where) for one in self.sums if one.kind == "known"}
        return any(not one.counts and one.kind == "sum" and (one.value, one.where) not in counted for one in self.sums)

    def quantile(self, output: Output) -> int | None:
        """The number of the quantile that an output is a function of, and of nothing else; None for others."""
        first = output.pieces[0] if len(output.pieces) == 1 else None
        return first if isinstance(first, int) and self.sums[first].kind == "quantile" else None

    def arranged(self, sums: Sequence[Sum], places: Sequence[int]) -> "GroupedSums":
        """The same of these sums, of which number ``places[i]`` is what its own number i is."""
        return replace(
            self,
            sums=tuple(sums),
            outputs=tuple(output.renumbered(places) for output in self.outputs),
            having=renumbered(self.having, places),
            order=tuple((renumbered(pieces, places), after) for pieces, after in self.order),
        )

    def without_line(self) -> "GroupedSums":
        """The same with no cells of quantiles beyond those of declared values."""
        sums = [one if one.cells is None else replace(one, cells=replace(one.cells, line=False)) for one in self.sums]
        return replace(self, sums=tuple(sums))

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
            **({} if self.source is None else {"source": self.source.to_json()}),
            **({} if self.rows is None else {"rows": self.rows}),
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
            source=Source.from_json(data["source"]) if "source" in data else None,
            rows=data.get("rows"),
        )
