"""The interface of a column type: how its values are declared, counted, drawn and shown."""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.errors import identifier, quoted

Scalar = str | int | float | bool
"""A value as JSON stores it: dates, times and UUIDs are texts."""

Amount = int | float | Fraction
"""A value in its type's own unit: 1 for whole numbers, the last digit for decimals, a day for dates, and so on."""

Kind = Literal["values", "bins", "integers"]

NUMBERS, LABELS = "low := ..., high := ..., step := ...", '"values" := [...]'
"""How the domain of numbers, and that of labels, is declared in SQL."""

LISTED = 1_000
"""Longer lists are no literals: DuckDB's parser takes a kilobyte and a microsecond for each of their values."""

MAX_CELLS = 1_000_000
"""Most cells of one attribute."""


@dataclass(frozen=True, slots=True)
class ColumnType(ABC):
    """A DuckDB column type. A family of types is one subclass, listed in ``FAMILIES``.

    No SQL and no Ibis expression of it can fail or overflow, whatever a row holds: an error would show a private value.

    Attributes:
        name: the type as DuckDB's catalog spells it.
    """

    name: str

    spelled: ClassVar[str]
    """Pattern of the names of the types of this family."""
    declared_by: ClassVar[str]
    """Arguments of dp_attribute for such a column, to be completed: proposed from the type, never from the values."""
    ordered: ClassVar[bool] = False
    """Whether bins, and low and high, can be declared; then ``amount``, ``held``, ``stepped`` and ``drawn`` work."""
    numeric: ClassVar[bool] = False
    """Whether values can be added up."""
    continuous: ClassVar[bool] = False
    """Whether the type has no smallest unit, as FLOAT and DOUBLE."""
    textual: ClassVar[bool] = False
    """Whether values are labels, compared as text."""
    ibis_names: ClassVar[dict[str, str]] = {}
    """Names of Ibis types of this family, with DuckDB's."""

    @classmethod
    def of(cls, name: str) -> Self | None:
        """The type of that name, if it belongs to this family."""
        return cls(name) if re.fullmatch(cls.spelled, name, re.DOTALL) else None

    @classmethod
    def of_ibis(cls, dtype: Any) -> str | None:
        """DuckDB's name of an Ibis type, if it belongs to this family."""
        return cls.ibis_names.get(type(dtype).__name__)

    # Values

    @property
    def members(self) -> tuple[Scalar, ...] | None:
        """All values of the type, where it lists them."""
        return None

    @abstractmethod
    def fits(self, point: Scalar, *, edge: bool = False) -> bool:
        """Whether the column can hold the point; or, for the edge of a bin, whether its values can be compared with it."""

    def misfits(self, points: Sequence[Scalar], *, edges: bool) -> list[Scalar]:
        """The points that do not fit."""
        return [point for point in points if not self.fits(point, edge=edges)]

    def canonical(self, point: Scalar) -> Scalar:
        """A declared point as DuckDB writes such values, and as the ledger stores it."""
        return point

    def canonicals(self, points: Sequence[Scalar]) -> Sequence[Scalar]:
        """The same of many points, which most types leave as they are."""
        if type(self).canonical is ColumnType.canonical:
            return points
        return [self.canonical(point) for point in points]

    def asked(self, value: Scalar, *, typed: bool) -> Scalar | None:
        """What a condition compares the column with, from a literal; None where it cannot be compared.

        Args:
            value: the literal's value.
            typed: whether it was written with its type, as DATE '2020-01-01' is.
        """
        return number_of(value) if self.numeric else value if isinstance(value, str) else None

    def order(self, point: Scalar) -> Any:
        """What orders and compares like the column."""
        return point

    def orders(self, points: Sequence[Scalar]) -> list[Any]:
        """The same of many points."""
        return list(points) if type(self).order is ColumnType.order else [self.order(point) for point in points]

    def in_one_unit(self, other: "ColumnType") -> bool:
        """Whether the amounts of values of both are of one unit, so that they say which value is the larger one."""
        alike = self.name == other.name or (self.numeric and other.numeric and self.per_one == other.per_one)
        return alike and self.ordered and other.ordered and self.continuous == other.continuous

    # Cells of ordered types

    def amount(self, point: Scalar) -> Amount:
        """A point in the type's unit, exactly; of FLOAT and DOUBLE the nearest number that they hold.

        Raises:
            ValueError, OverflowError: it is no value to compare the type's with.
        """
        raise ValueError(f"{self.name} has no order")

    def amounts(self, points: Sequence[Scalar]) -> list[Amount]:
        """The same of many points."""
        return [self.amount(point) for point in points]

    @property
    def per_one(self) -> int:
        """How many units make 1, for the arithmetic value of a number."""
        return 1

    @property
    def per_stored(self) -> float:
        """How many units make 1 of the numbers that the synthetic rows of older versions are stored as."""
        return float(self.per_one)

    def held(self, points: Sequence[Scalar]) -> list[tuple[Amount, Amount]]:
        """The lowest and the highest value of the type in each bin: [a, b), and [a, b] for the last one.

        The lowest is above the highest where the type has no value in the bin.
        """
        raise ValueError(f"{self.name} has no order")

    def stepped(self, what: str, low: object, high: object, step: object) -> tuple[Kind, list[Scalar]]:
        """The kind of cells and the points of low := ..., high := ..., step := ....

        Args:
            what: how a message calls the attribute.
            low, high, step: the arguments.

        Raises:
            DPError: they do not fit the type.
        """
        raise ValueError(f"{self.name} has no order")

    @property
    def edge_type(self) -> str:
        """Type of the result columns that show the edges of bins."""
        return "DOUBLE"

    # SQL

    def array(self, values: Iterable[Scalar | None]) -> str:
        """A SQL list of values of the type."""
        return sql_list(self.texts(values), self.name)

    def texts(self, values: Iterable[Scalar | None]) -> list[str | None]:
        """Each of many values as ``text``, and NULL."""
        as_is = str if type(self).text is ColumnType.text else ()
        return [value if value is None or isinstance(value, as_is) else self.text(value) for value in values]

    def text(self, value: Scalar) -> str:
        """A value as a text that DuckDB casts to the type without loss."""
        return as_text(value)

    def comparable(self, column: str, points: Sequence[Scalar]) -> "Comparable":
        """The column and the points as SQL that compares without a failing or lossy cast."""
        return Comparable(column, self.name, [self.text(point) for point in points])

    def numbered(self, column: str, points: Sequence[Scalar]) -> tuple[str, NDArray[np.float64]] | None:
        """(SQL of the column, the lower edges of bins) as doubles that compare as they do inside the bins; None where none do."""
        return (
            (f"CAST({column} AS DOUBLE)", np.array(self.orders(points[:-1]), np.float64)) if self.continuous else None
        )

    def even_bin(self, column: str, points: Sequence[Scalar]) -> str | None:
        """SQL of the bin of a value between the first and the last edge, exact; None where the edges are not even."""
        return None

    def place(self, column: str, points: Sequence[Scalar]) -> str | None:
        """SQL of the position of a value among the points, NULL for none; None where comparisons find it."""
        return None

    @property
    def coarser(self) -> tuple[int, ...]:
        """Numbers of units in whose multiples values are usually written, the largest first: whole seconds, say."""
        return ()

    def drawn(self, points: Sequence[Scalar], cell: str, share: str, by: int = 1) -> str:
        """SQL of a value of the type inside a bin, all of those in it alike.

        Args:
            points: the edges.
            cell: SQL of the bin's number, from 1.
            share: SQL of a number in [0, 1): how far through the bin's values.
            by: one of ``coarser``, in each bin at least once: of its multiples alone.
        """
        raise ValueError(f"{self.name} has no order")

    # Keys

    @property
    def as_number(self) -> bool:
        """Whether keys are read and compared as whole numbers of at most 64 bits; else as text."""
        return False

    @property
    def key_room(self) -> int | None:
        """How many numbers a key can hold, where a noisy number of rows may be more."""
        return None

    def key(self, table: str, number: str) -> str | None:
        """SQL of a synthetic row's key from its number; None where the type cannot hold one."""
        return None

    # Ibis

    def ibis_points(self, column: Any, points: Sequence[Scalar]) -> tuple[Any, list[Any]]:
        """The column and the points as Ibis expressions that compare without a failing or lossy cast."""
        import ibis

        return column, [ibis.literal(point) for point in points]


@final
@dataclass(frozen=True, slots=True)
class Comparable:
    """A column beside points of one type.

    Attributes:
        value: SQL of the column in the type.
        type: what is compared.
        texts: the points, as text that the type reads exactly.
    """

    value: str
    type: str
    texts: list[str]

    def literal(self, place: int) -> str:
        """SQL of a point."""
        text = self.texts[place]
        return literal(int(text)) if self.type.endswith("INT") else literal(text, self.type)


def number_of(value: Scalar) -> int | float | None:
    """The value where it is a number, which a truth value is not."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def literal(value: Scalar | None, type_: str | None = None) -> str:
    """A SQL literal, cast to a type where one is given."""
    if value is None:
        text = "NULL"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = quoted(value)
    elif isinstance(value, float):
        text = f"{value!r}::DOUBLE"
    else:
        text = f"{value}::UHUGEINT" if value >= 2**127 else str(value)  # beside small ones DuckDB would choose BIGINT
    return f"CAST({text} AS {type_})" if type_ else text


def sql_list(texts: Sequence[str | None], type_: str) -> str:
    """SQL of a list of a type from texts: a literal, or, where it is long, one text that is read while a statement runs."""
    if len(texts) <= LISTED:
        return f"CAST([{', '.join(map(literal, texts))}] AS {type_}[])"
    # A subquery is worked out once, where the function itself would be for each row.
    return f"(SELECT CAST(_dp_list({literal(json.dumps(texts, ensure_ascii=False))}) AS {type_}[]))"


def as_text(label: Scalar) -> str:
    """A label as it is shown: truth values as DuckDB writes them."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def without_order(type_: ColumnType, name: str) -> str:
    """What helps where a column has no order. No plain CAST of what a file made text: its error shows a value."""
    if type_.name != "VARCHAR":
        return f"Declare it by {LABELS}, or cast it in a view"
    return (
        f"Declare it by {LABELS}; or, where numbers or dates were read as text, read the file again with nullstr, its "
        f"word for a missing one, or take TRY_CAST({identifier(name)} AS DOUBLE), or AS DATE, in a view"
    )


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

    def orders(self, points: Sequence[Scalar]) -> list[Any]:
        return self.amounts(points)

    def held(self, points: Sequence[Scalar]) -> list[tuple[Amount, Amount]]:
        low, high = self.limits
        *edges, last = self.amounts(points)
        lows = [math.ceil(edge) for edge in edges]
        highs = [start - 1 for start in lows[1:]] + [math.floor(last)]
        return [(max(first, low), min(end, high)) for first, end in zip(lows, highs, strict=True)]

    def units(self, value: str) -> str | None:
        """SQL of a value as its number of units; None where no integer type holds it on the way."""

    def numbered(self, column: str, points: Sequence[Scalar]) -> tuple[str, NDArray[np.float64]] | None:
        *edges, last = self.amounts(points)
        lows, units = [math.ceil(edge) for edge in edges], self.units(column)
        if units is None or max(-lows[0], lows[-1], last) >= _EXACT:
            return None
        return f"CAST({units} AS DOUBLE)", np.array(lows, dtype=np.float64)

    def even_bin(self, column: str, points: Sequence[Scalar]) -> str | None:
        """(units above the lowest bin) // (units of a bin), in integers: no rounding; the last bin may be longer."""
        least, most = self.limits
        *edges, last = self.amounts(points)
        lows = [max(math.ceil(edge), least) for edge in edges]
        span, step = min(math.floor(last), most) - lows[0], lows[1] - lows[0] if len(lows) > 1 else 1
        units = self.units(column)
        if units is None or step < 1 or span >= 2**127 or lows != [lows[0] + i * step for i in range(len(lows))]:
            return None
        if span >= 2**63 and self.wide == "HUGEINT":
            units = f"CAST({units} AS HUGEINT)"
        return f"least(({units} - ({lows[0]})) // {step}, {len(lows) - 1})"

    def drawn(self, points: Sequence[Scalar], cell: str, share: str, by: int = 1) -> str:
        """low + floor(share * n), of the n numbers of units from low to high; of a bin without a value the nearest one."""
        steps = self.steps(points, by)
        offset = f"floor({share} * {_picked(steps.spans, 'DOUBLE', cell)})"
        if steps.type == "HUGEINT":  # from the middle, as an offset may be twice what the type holds
            offset += f" - {_picked(steps.before, 'DOUBLE', cell)}"
        number = f"{_picked([str(low) for low in steps.lows], steps.type, cell)} + CAST({offset} AS {steps.type})"
        return self.from_units(number if by == 1 else f"({number}) * {by}")

    def steps(self, points: Sequence[Scalar], by: int) -> "Steps":
        """The numbers among which ``drawn`` chooses in each bin, times ``by``."""
        held = [(-(-int(low) // by), int(high) // by) for low, high in self.held(points)]
        lows = [min(low, held[-1][1]) for low, _ in held]
        numbers = [max(high - low + 1, 1) for low, high in held]
        type_ = "BIGINT" if max(*map(abs, lows), *numbers) < 2**61 else self.wide
        # A little less than n where n is no double, so that nothing is rounded up and out of the bin.
        spans = [float(n) if n <= _EXACT else float(n) * (1 - 2.0**-48) for n in numbers]
        if type_ != "HUGEINT":
            return Steps(lows, spans, [0.0] * len(lows), type_)
        halves = [n // 2 if n <= _EXACT else int(span / 2) for n, span in zip(numbers, spans, strict=True)]
        middles = [low + half for low, half in zip(lows, halves, strict=True)]
        return Steps(middles, spans, [float(half) for half in halves], type_)


@dataclass(frozen=True, slots=True)
class Steps:
    """Whole numbers in bins: ``lows`` + floor(share * ``spans``) - ``before``, the latter two doubles, in an integer type."""

    lows: list[int]
    spans: list[float]
    before: list[float]
    type: str


def _picked(values: Sequence[Scalar], type_: str, cell: str) -> str:
    return f"(CAST([{', '.join(map(literal, values))}] AS {type_}[]))[{cell}]"
