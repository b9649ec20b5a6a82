"""Sets of labelled answers: those that fit on a page, and how many there are in all."""

from dataclasses import dataclass, field
from typing import Any

DRAWN = 40
"""Sets of answers that are drawn; further ones are listed by name."""

KEPT = 15_000
"""Answers of one set that are kept, in its order: as many as the largest heat map has cells."""

TOP = 30
"""Largest answers that are kept of a larger set."""

SAVED = 5_000
"""Rows, as they are, for the table and for the download."""

READ = 5_000_000
"""Rows after which reading stops: later sets are listed and not drawn."""

BATCH = 100_000

NULL = "NULL"

ERROR_COLUMNS = ("stddev", "measured_stddev", "ci_low", "ci_high", "private")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer: a text for each label, and its error where that is known."""

    labels: tuple[str, ...]
    value: float
    stddev: float | None
    low: float | None
    high: float | None


@dataclass(slots=True, kw_only=True)
class AnswerSet:
    """The answers to one query set, or to one marginal.

    Attributes:
        title: what was asked, in a few words.
        names: one for each label.
        ordered: whether the answers follow an order of numbers or dates along their single label.
        size: number of answers in all.
        answers: the first ones, all of them where ``whole``.
        top: the largest ones of a set that was read but not kept whole, largest first.
    """

    title: str
    names: tuple[str, ...]
    ordered: bool
    size: int
    answers: list[Answer] = field(default_factory=list)
    top: list[Answer] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether all answers were kept."""
        return len(self.answers) == self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What was read of a release.

    Attributes:
        columns: names of the result's columns.
        sample: its first rows, as they are.
        total: number of rows; None where only ``sample`` was read.
        sets: the answers; none where the result is no table of counts.
        further: (title, number of answers) of the sets that were not read.
    """

    columns: tuple[str, ...]
    sample: list[tuple[Any, ...]]
    total: int | None
    sets: list[AnswerSet]
    further: list[tuple[str, int]]

    @property
    def complete(self) -> bool:
        """Whether ``sample`` is all rows."""
        return len(self.sample) == self.total if self.total is not None else len(self.sample) < SAVED


def text(value: object) -> str:
    """A label as text."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
