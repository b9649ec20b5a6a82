"""The rows of a stored release as sets of labelled answers: those that fit a page, and how many there are in all."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from duckdb_dp.reporting.asked import title
from duckdb_dp.request import Request

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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


def read(con: "DuckDBPyConnection", number: int, request: Request | None) -> Rows:
    """Read a stored release, batch by batch, as far as a page can show it.

    Args:
        con: a connection with ``duckdb_dp`` loaded.
        number: of the release.
        request: what was asked; None where this version does not understand it.

    Privacy: post-processing.
    """
    cursor = con.cursor()
    try:
        result = cursor.execute(f"FROM dp_release({number:d})")
        columns = tuple(column[0] for column in result.description or ())
        value = _value_column(columns)
        if request is None or value is None:
            return Rows(columns=columns, sample=result.fetchmany(SAVED), total=None, sets=[], further=[])
        sizes = [math.prod(part.shape) for part in request.workload.parts]
        sample: list[tuple[Any, ...]] = []
        drawn: list[AnswerSet] = []
        reader = _Reader(result, columns, value)
        for index, size in enumerate(sizes[:DRAWN]):
            within = reader.rows + size <= READ
            found = AnswerSet(title=title(request, index), names=(), ordered=_is_ordered(request, index), size=size)
            for rows in reader.take(size if within else KEPT):
                sample += rows[: SAVED - len(sample)]
                reader.add(found, rows, rank=within and size > KEPT)
            reader.name(found, request, index)
            drawn.append(found)
            if not within:
                break
        further = [(title(request, index), sizes[index]) for index in range(len(drawn), len(sizes))]
        return Rows(columns=columns, sample=sample, total=sum(sizes), sets=drawn, further=further)
    finally:
        cursor.close()


class _Reader:
    """Rows of a result in batches that end where a set of answers ends."""

    def __init__(self, result: "DuckDBPyConnection", columns: Sequence[str], value: int) -> None:
        self.rows = 0
        self._result = result
        self._columns = columns
        self._value = value
        self._error = {name: columns.index(name) for name in ERROR_COLUMNS if name in columns[value:]}
        self._labels = [i for i, name in enumerate(columns[:value]) if not (i == 0 and name in ("marginal", "query"))]

    def take(self, count: int) -> Iterator[list[tuple[Any, ...]]]:
        """The next ``count`` rows, in batches; fewer where the result ends."""
        while count:
            rows = self._result.fetchmany(min(count, BATCH))
            if not rows:
                return
            count -= len(rows)
            self.rows += len(rows)
            yield rows

    def add(self, found: AnswerSet, rows: list[tuple[Any, ...]], *, rank: bool) -> None:
        """Keep what fits of a batch, and where asked the largest ones of all."""
        found.answers += map(self._answer, rows[: KEPT - len(found.answers)])
        if rank:
            largest = sorted(rows, key=lambda row: row[self._value] or 0.0, reverse=True)[:TOP]
            found.top = sorted([*found.top, *map(self._answer, largest)], key=lambda a: a.value, reverse=True)[:TOP]

    def name(self, found: AnswerSet, request: Request, index: int) -> None:
        """Drop the labels that belong to other sets, and join 'from' and 'to'."""
        used = self._used(found, request, index)
        asked_by_interval = request.function == "dp_queries"
        spans = [i for i, place in enumerate(used) if asked_by_interval and self._is_span(place, used)]
        names = []
        for i, place in enumerate(used):
            if i in spans:
                names.append(self._columns[place].removesuffix("_from"))
            elif i - 1 not in spans:
                names.append(self._columns[place])
        found.names = tuple(names)
        found.answers = [_joined(answer, self._labels, used, spans) for answer in found.answers]
        found.top = [_joined(answer, self._labels, used, spans) for answer in found.top]

    def _used(self, found: AnswerSet, request: Request, index: int) -> list[int]:
        if request.function == "dp_marginals":
            clique = request.questions[index].clique
            return [place for place in self._labels if self._columns[place] in clique]
        seen = [*found.answers, *found.top]
        return [place for i, place in enumerate(self._labels) if any(answer.labels[i] != NULL for answer in seen)]

    def _is_span(self, place: int, used: Sequence[int]) -> bool:
        name = self._columns[place]
        following = self._columns[place + 1] if place + 1 in used else ""
        return name.endswith("_from") and following == name.removesuffix("_from") + "_to"

    def _answer(self, row: tuple[Any, ...]) -> Answer:
        stddev, low, high = (
            None if name not in self._error else row[self._error[name]] for name in ("stddev", "ci_low", "ci_high")
        )
        return Answer(
            labels=tuple(text(row[i]) for i in self._labels),
            value=float(row[self._value]),
            stddev=stddev,
            low=low,
            high=high,
        )


NULL = "NULL"


def text(value: object) -> str:
    """A label as text."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _value_column(columns: Sequence[str]) -> int | None:
    """The column before the first error column holds the answers."""
    places = [columns.index(name) for name in ERROR_COLUMNS[:-1] if name in columns]
    return min(places) - 1 if places and min(places) > 0 else None


def _joined(answer: Answer, places: Sequence[int], used: Sequence[int], spans: Sequence[int]) -> Answer:
    chosen = [answer.labels[places.index(place)] for place in used]
    labels = []
    for i, label in enumerate(chosen):
        if i in spans:
            end = chosen[i + 1]
            labels.append(label if label == end else f"{label} to {end}")
        elif i - 1 not in spans:
            labels.append(label)
    return Answer(labels=tuple(labels), value=answer.value, stddev=answer.stddev, low=answer.low, high=answer.high)


def _is_ordered(request: Request, index: int) -> bool:
    """One attribute of bins or whole numbers, asked cell by cell or by how far it reaches; sums and distances."""
    question = request.questions[index]
    if question.joint:
        return question.kinds[0] in ("affine", "abs")
    kinds = {attribute.name: attribute.kind for attribute in request.attributes}
    plain = len(question.kinds) == 1 and question.kinds[0] in ("identity", "prefix", "suffix")
    return len(question.clique) == 1 and plain and kinds[question.clique[0]] != "values"
