"""Answers as rows of texts and as pictures with their intervals, from a result's columns alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from duckdb_dp.gateway import values
from duckdb_dp.gateway.values import listed, visible
from duckdb_dp.reporting import charts
from duckdb_dp.reporting.answers import KEPT, Answer, AnswerSet, text
from duckdb_dp.reporting.readable import Noisy, answers, folded, interval, is_clipping, reasons
from duckdb_dp.reporting.words import count

SHOWN = 500
"""Rows of a result on a page; all of them are in the download."""

DRAWN = 8
"""Pictures of a result."""

_ORDERED = (int, float, Decimal, date, time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A picture, with what its template says around it."""

    title: str
    error: str
    known: bool
    chart: charts.Chart
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The first rows of a result as texts; ``right`` has the places of numbers."""

    names: list[str]
    rows: list[list[str]]
    right: set[int]
    total: int


def shown(table: pa.Table, most: int = SHOWN) -> Rows:
    """The first rows, with each answer beside its error: '5,102 ± 21'; where answers were cut stands last, which a small screen hides."""
    names, rows = table.column_names, _values(table.slice(0, most))
    heads, cells, right = folded(names, rows)
    numbers = {i for i in range(len(heads)) if any(_number(row[i]) is not None for row in cells)}
    places = sorted(range(len(heads)), key=lambda place: is_clipping(heads[place]))
    return Rows(
        names=[heads[place] for place in places],
        rows=[[visible(_cell(row[place])) for place in places] for row in cells],
        right={i for i, place in enumerate(places) if place in right | numbers},
        total=table.num_rows,
    )


def sections(table: pa.Table) -> list[Section]:
    """A picture for each column of answers that has intervals, and for each marginal."""
    names, rows = table.column_names, _values(table.slice(0, KEPT))
    if table.num_rows > KEPT:
        return []
    found = answers(names, rows)
    taken = {place for one in found for place in (one.value, *one.folded)} | {
        place
        for place, name in enumerate(names)
        if name in ("private", "synthetic") or name.endswith("stddev") or is_clipping(name)
    }
    labels = [place for place in range(len(names)) if place not in taken]
    sets = [each for one in found for each in _sets(names, rows, one, labels) if each.answers]
    return [_section(each) for each in sets[:DRAWN]]


def said(table: pa.Table) -> list[str]:
    """What the intervals of a result do not cover, and why answers are not there."""
    return [*reasons(table.column_names, _values(table.slice(0, KEPT))), *values.said(table)]


def _sets(names: Sequence[str], rows: Sequence[Sequence[Any]], one: Noisy, labels: list[int]) -> list[AnswerSet]:
    """The answers of a column, apart by marginal where the first column names marginals."""
    if not labels or names[labels[0]] != "marginal":
        return [_set(names, rows, one, labels, names[one.value])]
    groups: dict[Any, list[Sequence[Any]]] = {}
    for row in rows:
        groups.setdefault(row[labels[0]], []).append(row)
    found = []
    for title, group in groups.items():
        used = [place for place in labels[1:] if any(row[place] is not None for row in group)]
        found.append(_set(names, group, one, used, f"{names[one.value]} by {title}" if title else names[one.value]))
    return found


def _set(
    names: Sequence[str], rows: Sequence[Sequence[Any]], one: Noisy, labels: Sequence[int], title: str
) -> AnswerSet:
    kept = []
    for row in rows:
        value, ends = _number(row[one.value]), [_number(end) for end in interval(row, one)]
        if value is not None:
            low, high = ends if None not in ends else (None, None)
            kept.append(
                Answer(labels=tuple(text(row[place]) for place in labels), value=value, stddev=None, low=low, high=high)
            )
    ordered = len(labels) == 1 and all(isinstance(row[labels[0]], _ORDERED) for row in rows)
    return AnswerSet(
        title=title, names=tuple(names[place] for place in labels), ordered=ordered, size=len(kept), answers=kept
    )


def _section(found: AnswerSet) -> Section:
    picture, note = charts.chart(found)
    halves = [half for each in found.answers if (half := charts.half_width(each)) is not None]
    return Section(title=found.title, error=spread(halves), known=bool(halves), chart=picture, note=note)


def spread(halves: Sequence[float]) -> str:
    """'± 91', or '± 20 to ± 35'; nothing of none."""
    if not halves:
        return ""
    low, high = (count(half, half) for half in (min(halves), max(halves)))
    return f"± {low}" if low == high else f"± {low} to ± {high}"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return float(value) if math.isfinite(value) else None


def _values(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [_days(listed(column)) for column in table.columns]
    return list(zip(*columns, strict=True))


def _days(values: list[Any]) -> list[Any]:
    """Moments that are all the beginnings of days, as these days."""
    known = [value for value in values if value is not None]
    if not known or not all(isinstance(value, datetime) and value.time() == time() for value in known):
        return values
    return [None if value is None else value.date() for value in values]


def _cell(value: object) -> str:
    if isinstance(value, list) and all(each is None or isinstance(each, float) for each in value):
        return f"[{', '.join('NULL' if each is None else f'{each:,.4g}' for each in value)}]"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}" if math.isfinite(value) else str(value)
    return text(value)
