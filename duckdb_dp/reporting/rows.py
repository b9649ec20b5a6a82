"""The rows of a stored release as sets of answers, read batch by batch."""

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from duckdb_dp.reporting import answers, selects
from duckdb_dp.reporting.answers import ERROR_COLUMNS, NULL, TOP, Answer, AnswerSet, Rows, text
from duckdb_dp.reporting.asked import read_as, title
from duckdb_dp.request import Request

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def read(con: "DuckDBPyConnection", number: int, request: Request | None, postprocess: str | None = None) -> Rows:
    """Read a stored release, batch by batch, as far as a page can show it.

    Args:
        con: a connection with ``duckdb_dp`` loaded.
        number: of the release.
        request: what was asked; None where this version does not understand it.
        postprocess: how the counts are made better; None: they are read as they are.

    Privacy: post-processing.
    """
    cursor = con.cursor()
    try:
        asked = "" if request is None or request.function != "dp_marginals" else f", {read_as(postprocess)}"
        result = cursor.execute(f"FROM dp_release({number:d}{asked})")
        columns = tuple(column[0] for column in result.description or ())
        if request is not None and request.function == "dp_sql":
            return selects.read(result, columns, request)
        if request is not None and request.function == "dp_quantiles":
            return _quantiles(result.fetchall(), columns, request)
        value = _value_column(columns)
        if request is None or request.synthetic or value is None:
            return Rows(columns=columns, sample=result.fetchmany(answers.SAVED), total=None, sets=[], further=[])
        sizes = [math.prod(part.shape) for part in request.workload.parts]
        sample: list[tuple[Any, ...]] = []
        drawn: list[AnswerSet] = []
        reader = _Reader(result, columns, value)
        for index, size in enumerate(sizes[: answers.DRAWN]):
            within = reader.rows + size <= answers.READ
            found = AnswerSet(title=title(request, index), names=(), ordered=_is_ordered(request, index), size=size)
            for rows in reader.take(size if within else answers.KEPT):
                sample += rows[: answers.SAVED - len(sample)]
                reader.add(found, rows, rank=within and size > answers.KEPT)
            reader.name(found, request, index)
            drawn.append(found)
            if not within:
                break
        further = [(title(request, index), sizes[index]) for index in range(len(drawn), len(sizes))]
        return Rows(columns=columns, sample=sample, total=sum(sizes), sets=drawn, further=further)
    finally:
        cursor.close()


def _quantiles(rows: list[tuple[Any, ...]], columns: tuple[str, ...], request: Request) -> Rows:
    """All quantiles as one set: numbers are drawn with their intervals, dates and times are rows alone."""
    value = columns.index("value")
    known = [row for row in rows if row[value] is not None]
    drawn = [row for row in known if isinstance(row[value], int | float | Decimal)]
    found = AnswerSet(title=title(request, 0), names=columns[:value], ordered=False, size=len(drawn))
    found.answers = [
        Answer(
            labels=tuple(map(text, row[:value])),
            value=float(row[value]),
            stddev=None,
            low=float(row[value + 1]),
            high=float(row[value + 2]),
        )
        for row in drawn[: answers.KEPT]
    ]
    sets = [found] if drawn else []
    return Rows(columns=columns, sample=rows[: answers.SAVED], total=len(rows), sets=sets, further=[])


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
            rows = self._result.fetchmany(min(count, answers.BATCH))
            if not rows:
                return
            count -= len(rows)
            self.rows += len(rows)
            yield rows

    def add(self, found: AnswerSet, rows: list[tuple[Any, ...]], *, rank: bool) -> None:
        """Keep what fits of a batch, and where asked the largest ones of all."""
        found.answers += map(self._answer, rows[: answers.KEPT - len(found.answers)])
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
