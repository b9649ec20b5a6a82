"""The numeric column types: integers of 8 to 128 bits, DECIMAL, FLOAT and DOUBLE."""

import math
import re
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.types.base import (
    MAX_CELLS,
    NUMBERS,
    Amount,
    ColumnType,
    Comparable,
    InUnits,
    Kind,
    Scalar,
    literal,
    number_of,
)
from duckdb_dp.domain.types.decimal_texts import decimal_text
from duckdb_dp.errors import DPError, as_sql, swapped

_WIDEST, _NARROW = 38, 18
"""Digits of a DECIMAL, and of one that is a BIGINT."""

_WHOLE = 2**53
"""Below it every whole number is a double."""

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}


@final
class Whole(InUnits):
    """TINYINT to HUGEINT, and the same without a sign. The unit is 1."""

    spelled = r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)"
    declared_by = "low := ..., high := ..."
    numeric = True
    ibis_names: ClassVar[dict[str, str]] = {
        f"{sign}Int{bits}": sign.upper() + name for sign in ("", "U") for name, bits in _BITS.items() if bits <= 64
    }

    @property
    def limits(self) -> tuple[int, int]:
        bits = _BITS[self.name.removeprefix("U")]
        return (0, 2**bits - 1) if self.name.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    @property
    def wide(self) -> str:
        return "UHUGEINT" if self.name == "UHUGEINT" else "HUGEINT"

    def fits(self, point: Scalar, *, edge: bool = False) -> bool:
        """Bins may be cut beside what the type holds, inside what HUGEINT holds."""
        low, high = (-(2**127), 2**127 - 1) if edge and self.name != "UHUGEINT" else self.limits
        return isinstance(point, int) and not isinstance(point, bool) and low <= point <= high

    def misfits(self, points: Sequence[Scalar], *, edges: bool) -> list[Scalar]:
        quick = {*map(type, points)} == {int} and _ends_fit(self, points, edge=edges)
        return [] if quick else super().misfits(points, edges=edges)

    def amount(self, point: Scalar) -> Amount:
        return point if isinstance(point, int) else Fraction(str(point))

    def amounts(self, points: Sequence[Scalar]) -> list[Amount]:
        return [*points] if {*map(type, points)} == {int} else super().amounts(points)  # type: ignore[list-item]

    def comparable(self, column: str, points: Sequence[Scalar]) -> Comparable:
        """As BIGINT or HUGEINT: edges of bins may lie beside what the type holds."""
        small = self.name != "UHUGEINT" and all(-(2**63) <= int(point) < 2**63 for point in points)
        wide = "BIGINT" if small else self.wide
        return Comparable(column, wide, [str(int(point)) for point in points])

    def stepped(self, what: str, low: object, high: object, step: object) -> tuple[Kind, list[Scalar]]:
        first, last, by = _range(what, low, high, step)
        if by == 1:
            return "integers", [first, last]
        _check_steps(self, what, low, high, step)
        return "bins", between(first, last, by)

    def from_units(self, number: str) -> str:
        return f"CAST({number} AS {self.name})"

    def units(self, value: str) -> str:
        return f"CAST({value} AS {'BIGINT' if self.limits[1] < 2**63 else self.wide})"

    def offset(self, column: str, low: int) -> str:
        """SQL of how far a value of the column lies above a number."""
        return f"{self.units(column)} - ({low})"

    @property
    def as_number(self) -> bool:
        return self.limits[1] < 2**63

    @property
    def key_room(self) -> int | None:
        return self.limits[1] - self.limits[0] + 1 if self.limits[1] < 2**16 else None

    def key(self, table: str, number: str) -> str:
        low, room = self.limits[0], self.key_room  # in narrow types the values below 1 come after the greatest one
        return f"CAST({number if room is None else f'({number} + {-low}) % {room} + {low}'} AS {self.name})"

    def ibis_limits(self, column: Any) -> tuple[str, int, int]:
        """The Ibis type to compare in, and what it holds."""
        return ("int64", -(2**63), 2**63 - 1) if column.type().is_signed_integer() else ("uint64", 0, 2**64 - 1)

    def ibis_points(self, column: Any, points: Sequence[Scalar]) -> tuple[Any, list[Any]]:
        import ibis

        type_, *_ = self.ibis_limits(column)
        return column.cast(type_), [ibis.literal(int(point), type_) for point in points]


@final
class Decimal(InUnits):
    """DECIMAL(width,scale). The unit is the last digit."""

    spelled = r"DECIMAL\(\d+,\d+\)"
    declared_by = NUMBERS
    numeric = True

    @classmethod
    def of_ibis(cls, dtype: Any) -> str | None:
        known = dtype.is_decimal() and dtype.precision is not None and dtype.precision <= 38
        return f"DECIMAL({dtype.precision},{dtype.scale or 0})" if known else None

    @property
    def digits(self) -> tuple[int, int]:
        """(width, scale)."""
        width, scale = map(int, re.findall(r"\d+", self.name))
        return width, scale

    @property
    def limits(self) -> tuple[int, int]:
        most: int = 10 ** self.digits[0] - 1
        return -most, most

    @property
    def per_one(self) -> int:
        found: int = 10 ** self.digits[1]
        return found

    def fits(self, point: Scalar, *, edge: bool = False) -> bool:
        """Bins may be cut beside and between what the type holds."""
        number = number_of(point)
        if number is None or not _is_finite(number):
            return False
        if edge:
            return abs(number) < 2**1024
        units, (low, high) = self.amount(number), self.limits
        return low <= units <= high and units == int(units)

    def misfits(self, points: Sequence[Scalar], *, edges: bool) -> list[Scalar]:
        quick = edges and _are_numbers(points) and _ends_fit(self, points, edge=True)
        return [] if quick else super().misfits(points, edges=edges)

    def amount(self, point: Scalar) -> Amount:
        return Fraction(str(point)) * self.per_one

    def amounts(self, points: Sequence[Scalar]) -> list[Amount]:
        """Many at once where all are whole numbers of units of 15 digits at most, which doubles tell apart."""
        numbers = np.array(points, dtype=np.float64)
        with np.errstate(over="ignore"):
            units = np.rint(numbers * self.per_one)
        if np.abs(units).max(initial=0) < 1e15 and np.array_equal(units / self.per_one, numbers):
            return units.astype(np.int64).tolist()  # type: ignore[no-any-return]
        return super().amounts(points)

    def stepped(self, what: str, low: object, high: object, step: object) -> tuple[Kind, list[Scalar]]:
        first, last, by = _range(what, low, high, step)
        _check_steps(self, what, low, high, step)
        if by == 1 and not self.digits[1] and isinstance(first, int) and isinstance(last, int):
            return "values", [*range(first, last + 1)]
        return "bins", between(first, last, by)

    def comparable(self, column: str, points: Sequence[Scalar]) -> Comparable:
        """Exactly, as decimals: of an edge between two the upper one, of the last edge the lower one.

        As doubles where an edge lies beyond all that the type holds.
        """
        least, most = self.limits
        *lower, last = [self.amount(point) for point in points]
        found = [*map(math.ceil, lower), math.floor(last)]
        if any(not least <= units <= most for units in found[1:-1]):
            return Comparable(f"CAST({column} AS DOUBLE)", "DOUBLE", [repr(float(point)) for point in points])
        texts = [decimal_text(min(max(units, least), most), self.digits[1]) for units in found]
        return Comparable(column, self.name, texts)

    def units(self, value: str) -> str | None:
        width, scale = self.digits
        if width + scale + 1 > _WIDEST:
            return None
        whole, factors = "BIGINT" if width <= _NARROW else "HUGEINT", (scale + 1, _NARROW + 1)
        narrow, wide = (f"CAST({value} * CAST({10**scale} AS DECIMAL({n}, 0)) AS {whole})" for n in factors)
        if width > _NARROW or width + scale <= _NARROW:
            return narrow
        # Of two narrow decimals DuckDB's product has 18 digits, and else an error shows the value; wide ones take 15 times as long.
        most = decimal_text(10 ** (_NARROW - scale) - 1, scale)
        ends = f"CAST('-{most}' AS {self.name}) AND CAST('{most}' AS {self.name})"
        return f"CASE WHEN {value} BETWEEN {ends} THEN {narrow} ELSE {wide} END"

    def from_units(self, number: str) -> str:
        scale = self.digits[1]
        unit = f" * CAST({literal(decimal_text(1, scale))} AS DECIMAL({max(scale, 1)}, {scale}))" if scale else ""
        return f"CAST(CAST({number} AS DECIMAL(38, 0)){unit} AS {self.name})"

    def ibis_points(self, column: Any, points: Sequence[Scalar]) -> tuple[Any, list[Any]]:
        return _as_doubles(column, points)

    def text(self, point: Scalar) -> str:
        return decimal_text(int(self.amount(point)), self.digits[1])


@final
class Real(ColumnType):
    """FLOAT and DOUBLE, which hold numbers as they are and have no unit."""

    spelled = "FLOAT|DOUBLE"
    declared_by = NUMBERS
    ordered = numeric = continuous = True
    ibis_names: ClassVar[dict[str, str]] = {"Float32": "FLOAT", "Float64": "DOUBLE"}

    def fits(self, point: Scalar, *, edge: bool = False) -> bool:
        most = 2**128 - 2**103 if self.name == "FLOAT" else 2**1024  # the next FLOAT rounds to infinity
        number = number_of(point)
        return number is not None and _is_finite(number) and abs(number) < most

    def misfits(self, points: Sequence[Scalar], *, edges: bool) -> list[Scalar]:
        quick = _are_numbers(points) and _ends_fit(self, points, edge=edges)
        return [] if quick else super().misfits(points, edges=edges)

    def order(self, point: Scalar) -> Any:
        return single(float(point)) if self.name == "FLOAT" else point

    def orders(self, points: Sequence[Scalar]) -> list[Any]:
        return singles(points).tolist() if self.name == "FLOAT" else list(points)

    def amount(self, point: Scalar) -> Amount:
        return single(float(point)) if self.name == "FLOAT" else float(point)

    def held(self, points: Sequence[Scalar]) -> list[tuple[Amount, Amount]]:
        exact = np.float32 if self.name == "FLOAT" else np.float64
        edges = singles(points) if self.name == "FLOAT" else np.array(points, dtype=np.float64)
        before = np.nextafter(edges[1:-1], exact(-math.inf))  # the next lower numbers that the type holds
        return list(zip(edges[:-1].tolist(), [*before.tolist(), edges[-1].item()], strict=True))

    def stepped(self, what: str, low: object, high: object, step: object) -> tuple[Kind, list[Scalar]]:
        first, last, by = _range(what, low, high, step)
        _check_steps(self, what, low, high, step)
        if by == 1 and isinstance(first, int) and isinstance(last, int):
            raise DPError(
                f"{what} has type {self.name}, where step := 1 may mean whole numbers or bins. Where it holds whole "
                f'numbers: "values" := range({first}, {last + 1}); else: bins := range({first}, {last + 1}).'
            )
        return "bins", between(first, last, by)

    def comparable(self, column: str, points: Sequence[Scalar]) -> Comparable:
        value = column if self.name == "FLOAT" else f"CAST({column} AS DOUBLE)"
        return Comparable(value, self.name, [self.text(point) for point in points])

    def text(self, point: Scalar) -> str:
        return repr(self.amount(point))

    def even_bin(self, column: str, points: Sequence[Scalar]) -> str | None:
        """A guess in doubles, the bin or the one below it, put right by the edge between them.

        Edge i is the double nearest to (a + i b) / d, for whole numbers a, b, d below 2^53: what a division of doubles
        gives. The guess is the bin of the value less half a step. A step is many times the distance between doubles
        there, so that its roundings and those of the edges come to less than half a step. Where all edges are whole
        numbers, whole numbers find the bin: x >= a + i b iff floor(x) >= a + i b.
        """
        first, bins = _exact(_number(points[0])), len(points) - 1
        step = _exact(_number(points[1])) - first
        d = math.lcm(first.denominator, step.denominator)
        a, b = int(first * d), int(step * d)
        largest = max(abs(float(points[0])), abs(float(points[-1])))
        apart = largest * (2.0**-23 if self.name == "FLOAT" else 2.0**-52)
        if max(abs(a), abs(a) + b * bins, d) >= _WHOLE or float(step) < 16 * apart:
            return None
        edges = (a + b * np.arange(bins, dtype=np.float64)) / d
        if not np.array_equal(edges, np.array(points[:-1], dtype=np.float64)):
            return None

        def edge(i: str) -> str:
            found = f"CAST({a} + {b} * ({i}) AS DOUBLE) / {d}::DOUBLE"
            return f"CAST({found} AS FLOAT)" if self.name == "FLOAT" else found

        value = f"CAST({column} AS DOUBLE)"
        if d == 1 and largest < 2 ** (62 if self.name == "DOUBLE" else 24):
            return f"least((CAST(floor({value}) AS BIGINT) - ({a})) // {b}, {bins - 1})"
        middle = float(first + step / 2)
        guess = f"CAST(floor(({value} - ({middle!r}::DOUBLE)) / {float(step)!r}::DOUBLE) AS BIGINT)"
        guess = f"least({guess}, {bins - 1})"  # whose next edge is a whole number of 64 bits still
        return f"least({guess} + CASE WHEN {column} >= {edge(f'{guess} + 1')} THEN 1 ELSE 0 END, {bins - 1})"

    def drawn(self, points: Sequence[Scalar], cell: str, share: str, by: int = 1) -> str:
        """low * (1 - share) + high * share: high - low might overflow."""
        ends = zip(*self.held(points), strict=True)
        low, high = (f"(CAST([{', '.join(literal(float(end)) for end in e)}] AS DOUBLE[]))[{cell}]" for e in ends)
        inside = f"{low} * (1 - {share}) + {high} * {share}"
        return f"CAST(least(greatest(CAST({inside} AS {self.name}), {low}), {high}) AS {self.name})"

    def ibis_points(self, column: Any, points: Sequence[Scalar]) -> tuple[Any, list[Any]]:
        return _as_doubles(column, [self.order(point) for point in points])


def single(number: float) -> float:
    """The number as a FLOAT column holds it.

    Raises:
        OverflowError: it is too large for one.
    """
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found


def singles(numbers: Sequence[Scalar]) -> NDArray[np.float32]:
    """The same of many numbers, none of them too large."""
    return np.array(numbers, dtype=np.float64).astype(np.float32)


def between(low: int | float, high: int | float, step: int | float) -> list[Scalar]:
    """low, low + step, ..., below high, and high: 0.1 three times is 0.3."""
    first, last, by = map(_exact, (low, high, step))
    whole = all(isinstance(number, int) for number in (low, high, step))
    count = -(-(last - first) // by)
    d = math.lcm(first.denominator, by.denominator)
    start, one = int(first * d), int(by * d)
    return [*(_plain(start + i * one, d, whole) for i in range(count)), _plain(*last.as_integer_ratio(), whole)]


def _are_numbers(points: Sequence[Scalar]) -> bool:
    found = {*map(type, points)}
    try:
        return found == {int} or (found <= {int, float} and all(map(math.isfinite, points)))  # type: ignore[arg-type]
    except OverflowError:  # a whole number that is no double: whoever asks looks at each
        return False


def _ends_fit(type_: ColumnType, points: Sequence[Any], *, edge: bool) -> bool:
    """Whether the least and the greatest of a million numbers fit, so that not each has to be asked about."""
    return not points or (type_.fits(min(points), edge=edge) and type_.fits(max(points), edge=edge))


def _number(point: Scalar) -> int | float:
    found = number_of(point)
    assert found is not None, "points of numbers are numbers"
    return found


def _exact(number: int | float) -> Fraction:
    """The number that was typed."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def _plain(numerator: int, denominator: int, whole: bool) -> int | float:
    """The whole number, or the nearest double."""
    number, rest = divmod(numerator, denominator)
    return number if not rest and (whole or abs(number) < 10**15) else numerator / denominator


def _range(what: str, low: object, high: object, step: object) -> tuple[int | float, int | float, int | float]:
    """(low, high, step) as numbers, low and high as whole ones where they are; a step of 1 where none is given."""
    found = [
        x for x in (low, high, 1 if step is None else step) if isinstance(x, int | float) and not isinstance(x, bool)
    ]
    if len(found) < 3 or not all(map(_is_finite, found)):
        raise DPError(
            f"{what} needs numbers for low, high and step, found {as_sql(low)}, {as_sql(high)}, {as_sql(step)}."
        )
    first, last = (int(x) if abs(x) < 10**15 and x == int(x) else x for x in found[:2])
    return first, last, found[2]


def _check_steps(type_: ColumnType, what: str, low: Any, high: Any, step: Any) -> None:
    """Refuse a range without a step, or one that the step does not cut into cells."""
    if step is None:
        raise DPError(
            f"{what} has type {type_.name}; give a step, e.g. low := {as_sql(low)}, high := {as_sql(high)}, step := 5."
        )
    if step <= 0 or high <= low or _exact(high) - _exact(low) > MAX_CELLS * _exact(step):
        raise DPError(
            f"{what} cannot go from {as_sql(low)} to {as_sql(high)} in steps of {as_sql(step)}; "
            f"{swapped(low, high) if high < low else 'use low < high and a larger step > 0'}."
        )


def _is_finite(number: int | float) -> bool:
    return isinstance(number, int) or math.isfinite(number)


def _as_doubles(column: Any, points: Sequence[Scalar]) -> tuple[Any, list[Any]]:
    """Exact for FLOAT; DECIMAL is compared as DuckDB casts it."""
    import ibis

    return column.cast("float64"), [ibis.literal(float(point), "float64") for point in points]
