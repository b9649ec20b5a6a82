"""Days, weeks, months, quarters and years: which of them are over, and what each is called."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import final

A_YEAR = {"day": 366, "week": 54, "month": 12, "quarter": 4, "year": 1}
"""How many periods of each kind the days of one year can be in, at most."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The days from ``begins`` to the day before ``ends``."""

    every: str
    begins: date
    ends: date

    @property
    def label(self) -> str:
        """'2026', '2026-q1' or '2026-01'; of weeks and days the first day, '2026-01-05'."""
        if self.every == "year":
            return f"{self.begins.year:04}"
        if self.every == "quarter":
            return f"{self.begins.year:04}-q{(self.begins.month + 2) // 3}"
        return self.begins.isoformat()[: 7 if self.every == "month" else 10]

    def table(self, name: str) -> str:
        """What its table is called: 'visits_2026_01'."""
        return f"{name}_{self.label.replace('-', '_')}"


def of(day: date, every: str) -> Period:
    """The period of a day.

    Raises:
        OverflowError: it ends after the year 9999.
    """
    if every == "day":
        begins = day
    elif every == "week":
        begins = day - timedelta(days=day.weekday())
    else:
        months = {"month": 1, "quarter": 3, "year": 12}[every]
        begins = date(day.year, (day.month - 1) // months * months + 1, 1)
    if every in ("day", "week"):
        return Period(every=every, begins=begins, ends=begins + timedelta(days=1 if every == "day" else 7))
    later = begins.year * 12 + begins.month - 1 + months
    if later >= 12 * 10_000:
        raise OverflowError(f"{begins} is in the last period of all")
    return Period(every=every, begins=begins, ends=date(later // 12, later % 12 + 1, 1))


def over(start: date, every: str, now: datetime) -> Iterator[Period]:
    """The periods from that of ``start`` that are over."""
    period = of(start, every)
    while period.ends <= now.date():
        yield period
        period = of(period.ends, every)
