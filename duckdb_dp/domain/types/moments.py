"""The column types DATE, TIME and TIMESTAMP in all precisions, and calendar steps between their values."""

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from functools import cache
from itertools import repeat
from typing import Any, ClassVar, cast, final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.types import moment_texts
from duckdb_dp.domain.types.base import MAX_CELLS, Amount, InUnits, Kind, Scalar
from duckdb_dp.errors import DPError, as_sql, swapped

_PER_SECOND = {"TIME": 10**6, "TIMESTAMP": 10**6, "TIMESTAMP_S": 1, "TIMESTAMP_MS": 10**3, "TIMESTAMP_NS": 10**9}
_PLACES = {"TIMESTAMP_S": 0, "TIMESTAMP_MS": 3}
_BY_SCALE = {None: "TIMESTAMP", 0: "TIMESTAMP_S", 3: "TIMESTAMP_MS", 6: "TIMESTAMP", 9: "TIMESTAMP_NS"}
_DAY, _HOUR = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(:\d\d(\.\d{0,%d})?)?"
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[ T]00:00:00(\.0*)?", re.ASCII)
"""A date as DuckDB writes it where it has become a timestamp, as in range(DATE '2020-01-01', ...)."""

_AT_MIDNIGHT = " 00:00:00"

_UNITS = {"TIMESTAMP_MS": "epoch_ms", "TIMESTAMP_NS": "epoch_ns"}
_WORDS = r"(\d+) (year|month|mon|week|day|hour|minute|second)s?"
_CLOCK = r"(\d+):(\d\d):(\d\d(?:\.\d{1,6})?)"


@final
class Moment(InUnits):
    """DATE, whose unit is a day, and TIME and TIMESTAMP, whose unit is the smallest part of a second."""

    spelled = "DATE|TIME|TIMESTAMP(_S|_MS|_NS)?"
    declared_by = "bins := [...]"
    ibis_names: ClassVar[dict[str, str]] = {"Date": "DATE", "Time": "TIME"}

    @classmethod
    def of_ibis(cls, dtype: Any) -> str | None:
        if dtype.is_timestamp():
            return _BY_SCALE.get(dtype.scale) if dtype.timezone is None else None
        return cls.ibis_names.get(type(dtype).__name__)

    @property
    def edge_type(self) -> str:
        return self.name

    @property
    def per_stored(self) -> float:
        """Times and timestamps were stored as microseconds, those of nanoseconds as they are."""
        return min(_PER_SECOND.get(self.name, 10**6) / 10**6, 1.0)

    @property
    def coarser(self) -> tuple[int, ...]:
        """Seconds, milliseconds and microseconds, where the type has smaller parts."""
        second = _PER_SECOND.get(self.name, 1)
        return tuple(second // parts for parts in (1, 10**3, 10**6) if second > parts)

    def fits(self, point: Scalar, *, edge: bool = False) -> bool:
        return isinstance(point, str) and is_moment(self.name, point)

    def misfits(self, points: Sequence[Scalar], *, edges: bool) -> list[Scalar]:
        quick = {*map(type, points)} == {str} and self._all_read(points)
        return [] if quick else super().misfits(points, edges=edges)

    def canonical(self, point: Scalar) -> Scalar:
        """A date without the time of a timestamp."""
        match = _MIDNIGHT.fullmatch(point) if self.name == "DATE" and isinstance(point, str) else None
        return point if match is None else match[1]

    def canonicals(self, points: Sequence[Scalar]) -> Sequence[Scalar]:
        if self.name != "DATE" or {*map(type, points)} != {str}:
            return points
        texts = cast(Sequence[str], points)
        return [text[:10] if text[10:] == _AT_MIDNIGHT else self.canonical(text) for text in texts]

    def asked(self, value: Scalar, *, typed: bool) -> Scalar | None:
        """A text becomes what the column holds, and might be rounded; what is typed as a moment is compared as it is."""
        name = "TIMESTAMP" if typed and self.name != "TIME" else self.name
        return value if isinstance(value, str) and is_moment(name, value) else None

    def amount(self, point: Scalar) -> Amount:
        since = _read(str(point)) - datetime(1970, 1, 1)
        micros = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
        per, over = (1, 86400 * 10**6) if self.name == "DATE" else (_PER_SECOND[self.name], 10**6)
        units, rest = divmod(micros * per, over)
        return Fraction(micros * per, over) if rest else units

    def amounts(self, points: Sequence[Scalar]) -> list[Amount]:
        micros = self._moments(points).astype(np.int64)
        per, over = (1, 86400 * 10**6) if self.name == "DATE" else (_PER_SECOND[self.name], 10**6)
        found, rest = np.divmod(micros * max(per // over, 1), max(over // per, 1))
        return super().amounts(points) if rest.any() else found.tolist()

    def _all_read(self, points: Sequence[Any]) -> bool:
        """Whether all texts fit, where that is quickly known of a million of them."""
        moments = self._read_at_once(points)
        if moments is None:
            dots = self.name != "DATE" and any(map(str.endswith, points, repeat(".")))
            if dots or not all(map(_pattern(self.name).fullmatch, points)):
                return False
            try:
                moments = self._moments(points)
            except ValueError:
                return False
        first, last = ("1678", "2262") if self.name == "TIMESTAMP_NS" else ("0001", "10000")
        return bool(moments.min() >= np.datetime64(first, "us") and moments.max() < np.datetime64(last, "us"))

    def _read_at_once(self, points: Sequence[Any]) -> NDArray[np.datetime64] | None:
        return moment_texts.read(
            points, _PLACES.get(self.name, 6), dates=self.name != "TIME", times=self.name != "DATE"
        )

    def _moments(self, points: Sequence[Any]) -> NDArray[np.datetime64]:
        """Texts that Python reads as moments; times are those of the first day of 1970."""
        texts = [f"1970-01-01 {point}" for point in points] if self.name == "TIME" else points
        return np.array(texts, dtype="datetime64[us]")

    def stepped(self, what: str, low: object, high: object, step: object) -> tuple[Kind, list[Scalar]]:
        """Days with a step of one day are cells of their own, as whole numbers are; else bins from low to high."""
        by = Interval.read("1 day" if step is None and self.name == "DATE" else step)
        ends = [str(self.canonical(point)) for point in (low, high) if isinstance(point, str)]
        whole = self.name != "DATE" or by is None or not by.rest % timedelta(days=1)
        if self.name == "TIME" and by is not None and by.longest >= timedelta(days=1):
            raise DPError(
                f"{what} has type TIME, whose values are within one day, found a step of {as_sql(step)}; e.g. low := '08:00:00', high := "
                "'18:00:00', step := INTERVAL 1 HOUR."
            )
        if by is None or not whole or len(ends) < 2 or not all(map(self.fits, ends)):
            example = "low := '2010-01-01', high := '2020-01-01', step := INTERVAL 1 MONTH"
            if self.name == "TIME":
                example = "low := '08:00:00', high := '18:00:00', step := INTERVAL 1 HOUR"
                example += (
                    "; to the end of the day write high := '23:59:59.999999'" if "24:00:00" in (low, high) else ""
                )
            raise DPError(
                f"{what} has type {self.name}, so low and high are such values and step is an interval above 0"
                f"{', of whole days' if self.name == 'DATE' else ''}, found {as_sql(low)}, {as_sql(high)}, {as_sql(step)}; "
                f"e.g. {example}."
            )
        first, last = map(_read, ends)
        if last <= first or (last - first) // by.longest > MAX_CELLS:
            raise DPError(
                f"{what} cannot go from {as_sql(low)} to {as_sql(high)} in steps of {'a day' if step is None else as_sql(step)}; "
                f"{swapped(low, high) if last < first else 'use low < high and a larger step'}."
            )
        if self.name == "DATE" and by == Interval(months=0, rest=timedelta(days=1)):
            low_day, high_day = (np.datetime64(moment, "D") for moment in (first, last))
            return "values", self._texts(np.arange(low_day, high_day + 1))
        return "bins", self._texts(_between(first, last, by))

    def _texts(self, found: NDArray[np.datetime64]) -> list[Scalar]:
        """Moments as Python writes them; without the times of a day where all are midnights."""
        if self.name == "TIME":
            return [*moment_texts.write(found, dates=False, times=True)]
        times = bool((found != found.astype("datetime64[D]")).any())
        return [*moment_texts.write(found, dates=True, times=times)]

    def units(self, value: str) -> str:
        if self.name == "DATE":
            return f"({value} - DATE '1970-01-01')"  # BIGINT
        return f"{_UNITS.get(self.name, 'epoch_us')}({value}){' // 1000000' if self.name == 'TIMESTAMP_S' else ''}"

    def from_units(self, number: str) -> str:
        if self.name == "DATE":
            return f"(DATE '1970-01-01' + CAST({number} AS INTEGER))"
        if self.name == "TIME":
            return f"(TIME '00:00:00' + to_microseconds(CAST({number} AS BIGINT)))"
        if self.name == "TIMESTAMP_NS":
            return f"make_timestamp_ns(CAST({number} AS BIGINT))"
        micros = 10**6 // _PER_SECOND[self.name]
        return f"CAST(make_timestamp(CAST({number} AS BIGINT) * {micros}) AS {self.name})"

    def ibis_points(self, column: Any, points: Sequence[Scalar]) -> tuple[Any, list[Any]]:
        import ibis

        moments = map(_read, map(str, points))
        if self.name in ("DATE", "TIME"):
            texts = [str(moment.date() if self.name == "DATE" else moment.time()) for moment in moments]
        else:
            texts = [str(moment) for moment in moments]
        return column, [ibis.literal(text).cast(column.type()) for text in texts]


def is_moment(type_: str, text: str) -> bool:
    """Whether DuckDB and Python read the text as the same date, time or timestamp."""
    if _pattern(type_).fullmatch(text) is None:
        return False
    try:
        found = _read(text)
    except ValueError:
        return False
    return type_ != "TIMESTAMP_NS" or 1678 <= found.year <= 2261


@cache
def _pattern(type_: str) -> re.Pattern[str]:
    """How the values of a type are written."""
    hour = _HOUR % _PLACES.get(type_, 6)
    return re.compile({"DATE": _DAY, "TIME": hour}.get(type_, f"{_DAY}([ T]{hour})?"), re.ASCII)


def _read(text: str) -> datetime:
    """A moment; a time is that of the first day of 1970."""
    if "-" in text:
        return datetime.fromisoformat(text)
    return datetime.combine(date(1970, 1, 1), time.fromisoformat(text))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An interval: months, which are of several lengths, and a time."""

    months: int
    rest: timedelta

    @classmethod
    def read(cls, text: object) -> "Interval | None":
        """From DuckDB's own text of an INTERVAL, such as '1 year 2 months 01:30:00'; None where it is none above 0."""
        if not isinstance(text, str) or re.fullmatch(rf"({_WORDS}\s*)*({_CLOCK})?", text, re.ASCII) is None:
            return None
        parts: dict[str, int] = {}
        for number, word in re.findall(_WORDS, text, re.ASCII):
            parts[word] = parts.get(word, 0) + int(number)
        months = 12 * parts.pop("year", 0) + parts.pop("month", 0) + parts.pop("mon", 0)
        try:
            rest = timedelta(**{f"{word}s": number for word, number in parts.items()})
            for hours, minutes, seconds in re.findall(_CLOCK, text, re.ASCII):
                rest += timedelta(hours=int(hours), minutes=int(minutes), microseconds=int(Fraction(seconds) * 10**6))
        except OverflowError:
            return None
        return cls(months=months, rest=rest) if months or rest else None

    @property
    def longest(self) -> timedelta:
        """How long it is at most."""
        return timedelta(days=31 * min(self.months, 10**6)) + min(self.rest, timedelta(days=10**7))

    def after(self, start: datetime, times: int) -> datetime:
        """The start and so many intervals, as DuckDB adds them: a month after the 31st is the last day of the next.

        Raises:
            ValueError, OverflowError: there is no such year.
        """
        if not self.months:
            return start + times * self.rest
        years, month = divmod(start.month - 1 + times * self.months, 12)
        year = start.year + years
        day = min(start.day, calendar.monthrange(year, month + 1)[1]) if 1 <= year <= 9999 else start.day
        return start.replace(year=year, month=month + 1, day=day) + times * self.rest


def _between(low: datetime, high: datetime, step: Interval) -> NDArray[np.datetime64]:
    """low, low + step, ..., below high, and high."""
    if not step.months:
        start, end = (np.datetime64(moment, "us") for moment in (low, high))
        return np.append(np.arange(start, end, np.timedelta64(step.rest)), end)
    found, times = [low], 1
    while True:
        try:
            moment = step.after(low, times)
        except (ValueError, OverflowError):
            break
        if moment >= high:
            break
        found.append(moment)
        times += 1
    return np.array([*found, high], dtype="datetime64[us]")
