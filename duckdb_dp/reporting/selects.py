"""The rows of dp_sql as sets of answers: one for each grouping set and aggregate of each SELECT.

A SELECT may have several aggregates, and an average is made of two queries, so what belongs together is read off the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from duckdb_dp.reporting import answers
from duckdb_dp.reporting.answers import Answer, AnswerSet, Rows, text
from duckdb_dp.reporting.asked import conditions
from duckdb_dp.request import Request

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CLIPPED = "clipped_at"
"""Suffix of the column that says which bounds were chosen for a sum."""

_SUFFIXES = ("stddev", "ci_low", "ci_high")


@dataclass(slots=True, kw_only=True)
class _Block:
    """Rows of one grouping set: the SELECT's number, and which labels are NULL in all rows."""

    number: int
    empty: tuple[bool, ...]
    size: int = 0
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    seen: set[tuple[Any, ...]] = field(default_factory=set)


class _Columns:
    """Which columns are labels, which are aggregates, and where the errors of those are."""

    def __init__(self, columns: Sequence[str], request: Request) -> None:
        (planned, counted), (direct, summed) = _planned(request), _direct(request)
        named = {name: planned.get(name, False) or direct.get(name, False) for name in (*planned, *direct)}
        numbers = counted | summed
        self.number = 0 if len(numbers) > 1 and columns[0] == "query" else None
        self.labels = [i for i, name in enumerate(columns) if name.lower() in named and i != self.number]
        self.nullable = [named[columns[i].lower()] for i in self.labels]
        rest = [i for i in range(len(columns)) if i not in self.labels and i != self.number]
        place = {name: i for i, name in enumerate(columns)}
        own = {i: [place.get(f"{columns[i]}_{suffix}") for suffix in _SUFFIXES] for i in rest}
        shared = [place.get(suffix) for suffix in _SUFFIXES]
        errors = {i for found in [*own.values(), shared] for i in found if i is not None}
        errors |= {place[name] for name in answers.ERROR_COLUMNS if name in place}
        errors |= {place[name] for name in (CLIPPED, *(f"{columns[i]}_{CLIPPED}" for i in rest)) if name in place}
        texts = {one.name.lower() for part in request.direct for one in part.outputs if not one.numeric}
        shown = [i for i in rest if i not in errors and columns[i].lower() not in texts]
        self.aggregates = {i: own[i] if None not in own[i] else shared for i in shown}


def _planned(request: Request) -> tuple[dict[str, bool], set[int]]:
    """(label columns, and whether NULL is a label of theirs; the numbers of the SELECTs)."""
    attributes = {attribute.name: attribute for attribute in request.attributes}
    parts = [question.select for question in request.questions if question.select is not None]
    selected = {column for part in parts for column in part.columns}
    named = {one.name.lower(): attributes[one.attribute].nulls for one in selected if not one.function}
    return named, {part.number for part in parts}


def _direct(request: Request) -> tuple[dict[str, bool], set[int]]:
    """The same of a release whose sums were taken row by row."""
    nulls = {attribute.name: attribute.nulls for attribute in request.attributes}
    labels = [label for part in request.direct for label in part.labels if label.name]
    named = {label.name.lower(): nulls.get(label.attribute, False) or None in label.values for label in labels}
    return named, {part.number for part in request.direct}


def read(result: "DuckDBPyConnection", columns: tuple[str, ...], request: Request) -> Rows:
    """Read the rows of a dp_sql release, as far as a page can show them.

    A grouping set ends where another SELECT begins, where other labels are NULL, or where labels come again.

    Privacy: post-processing.
    """
    places = _Columns(columns, request)
    blocks: list[_Block] = []
    sample: list[tuple[Any, ...]] = []
    total = 0
    while total < answers.READ and (rows := result.fetchmany(answers.BATCH)):
        total += len(rows)
        sample += rows[: answers.SAVED - len(sample)]
        for row in rows:
            _place(row, blocks, places)
    sets = [found for block in blocks for found in _sets(block, places, columns, request)]
    further = [(found.title, found.size) for found in sets[answers.DRAWN :]]
    return Rows(columns=columns, sample=sample, total=total, sets=sets[: answers.DRAWN], further=further)


def _place(row: tuple[Any, ...], blocks: list[_Block], places: _Columns) -> None:
    labels = tuple(row[i] for i in places.labels)
    number = 1 if places.number is None else int(row[places.number])
    # A NULL may be a cell of its own, where that was declared.
    empty = tuple(label is None and not null for label, null in zip(labels, places.nullable, strict=True))
    if not blocks or (blocks[-1].number, blocks[-1].empty) != (number, empty) or labels in blocks[-1].seen:
        blocks.append(_Block(number=number, empty=empty))
    block = blocks[-1]
    block.size += 1
    block.seen.add(labels)
    if len(block.rows) < answers.KEPT:
        block.rows.append(row)


def _sets(block: _Block, places: _Columns, columns: Sequence[str], request: Request) -> list[AnswerSet]:
    used = [i for i in places.labels if any(row[i] is not None for row in block.rows)]
    names = tuple(columns[i] for i in used)
    kinds = {attribute.name.lower(): attribute.kind for attribute in request.attributes}
    told = conditions(request, block.number)
    found = []
    for place, errors in places.aggregates.items():
        rows = [row for row in block.rows if row[place] is not None]
        if not rows:
            continue
        title = f"{columns[place]} {told}".strip() + (f", by {' × '.join(names)}" if names else "")
        ordered = len(names) == 1 and kinds.get(names[0].lower(), "values") != "values"
        one = AnswerSet(title=title, names=names, ordered=ordered, size=block.size)
        one.answers = [_answer(row, place, errors, used) for row in rows]
        one.size -= len(block.rows) - len(rows)
        found.append(one)
    return found


def _answer(row: tuple[Any, ...], place: int, errors: Sequence[int | None], used: Sequence[int]) -> Answer:
    stddev, low, high = (None if i is None else row[i] for i in errors)
    labels = tuple(text(row[i]) for i in used)
    return Answer(labels=labels, value=float(row[place]), stddev=stddev, low=low, high=high)
