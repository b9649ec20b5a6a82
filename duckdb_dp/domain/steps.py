"""From low to high in even steps: of numbers exactly, of dates and times by the calendar."""

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from typing import final

MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[ T]00:00:00(\.0*)?", re.ASCII)
"""A date as DuckDB writes it where it has become a timestamp, as in range(DATE '2020-01-01', ...)."""

_WORDS = r"(\d+) (year|month|mon|week|day|hour|minute|second)s?"
_CLOCK = r"(\d+):(\d\d):(\d\d(?:\.\d{1,6})?)"


def numbers(low: int | float, high: int | float, step: int | float) -> list[int | float]:
    """low, low + step, ..., below high, and high: 0.1 three times is 0.3."""
    first, last, by = map(exact, (low, high, step))
    whole = all(isinstance(number, int) for number in (low, high, step))
    count = -(-(last - first) // by)
    return [_plain(first + i * by, whole) for i in range(int(count))] + [_plain(last, whole)]


def exact(number: int | float) -> Fraction:
    """The number that was typed."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def _plain(number: Fraction, whole: bool) -> int | float:
    return int(number) if number.denominator == 1 and (whole or abs(number) < 10**15) else float(number)


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
        years, month = divmod(start.month - 1 + times * self.months, 12)
        year = start.year + years
        day = min(start.day, calendar.monthrange(year, month + 1)[1]) if 1 <= year <= 9999 else start.day
        return start.replace(year=year, month=month + 1, day=day) + times * self.rest


def moments(low: str, high: str, step: Interval) -> list[str]:
    """low, low + step, ..., below high, and high, for dates, times or timestamps as text."""
    found = list(_moments(_read(low), _read(high), step))
    if "-" not in low:
        return [moment.time().isoformat() for moment in found]
    dates = all(moment.time() == time() for moment in found)
    return [str(moment.date()) if dates else str(moment) for moment in found]


def _moments(low: datetime, high: datetime, step: Interval) -> Iterator[datetime]:
    moment, times = low, 0
    while moment < high:
        yield moment
        times += 1
        try:
            moment = step.after(low, times)
        except (ValueError, OverflowError):
            break
    yield high


def length(low: str, high: str) -> timedelta:
    """From one moment to another."""
    return _read(high) - _read(low)


def _read(text: str) -> datetime:
    return (
        datetime.combine(date(1970, 1, 1), time.fromisoformat(text))
        if "-" not in text
        else datetime.fromisoformat(text)
    )
