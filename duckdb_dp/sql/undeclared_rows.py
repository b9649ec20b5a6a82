"""dp_sql, counts that are planned over declared cells: which attributes need cells for values that nobody has declared, and for NULL.

With them each count has the rows that SQL has: a count of all rows has those of which one value is in no declared cell, and
``age <> 30`` is true of an age that nobody has declared. They are counted, and have no row in an answer.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError
from duckdb_dp.request import Question
from duckdb_dp.sql.clamped_sums import sums_numbers
from duckdb_dp.sql.select import questions


def with_all(declared: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """All attributes with those cells."""
    return {name: attribute.with_rest() for name, attribute in declared.items()}


def decided(selects: Iterable[tuple[int, exp.Select]], declared: Mapping[str, Attribute]) -> bool:
    """Whether these cells decide all conditions of SELECTs, and nothing is summed but rows."""
    return _questions(selects, with_all(declared)) is not None


def with_needed(
    selects: Iterable[tuple[int, exp.Select]], declared: Mapping[str, Attribute]
) -> Mapping[str, Attribute]:
    """The attributes, with those cells where a count of the SELECTs, given by number, has rows in them; as declared if not ``decided``."""
    whole = with_all(declared)
    asked = _questions(selects, whole)
    if asked is None:
        return declared
    needed = {name for question in asked for name in _needed(question, whole)}
    used = {name for question in asked for name in question.clique}
    for question in asked:
        needed |= used - {*question.clique}
    return {name: whole[name] if name in needed else attribute for name, attribute in declared.items()}


def _questions(selects: Iterable[tuple[int, exp.Select]], whole: Mapping[str, Attribute]) -> list[Question] | None:
    try:
        listed = [*selects]
        if any(sums_numbers(select) for _, select in listed):
            return None
        return [one for number, select in listed for one in questions(select.copy(), number, whole)]
    except DPError:
        return None


def _needed(question: Question, whole: Mapping[str, Attribute]) -> set[str]:
    """The attributes of a question that count rows in cells that are not shown. Of conditions joined by OR any may."""
    if question.disjunction:
        return {*question.clique}
    sizes = [whole[name].size for name in question.clique]
    shown = [whole[name].shown for name in question.clique]
    if question.joint:
        counted = np.any(np.array(question.kinds[0]), axis=0).reshape(sizes)
        found = [
            counted.take(range(own, size), axis) for axis, (own, size) in enumerate(zip(shown, sizes, strict=True))
        ]
        return {name for name, cells in zip(question.clique, found, strict=True) if cells.any()}
    return {name for name, kind, own in zip(question.clique, question.kinds, shown, strict=True) if _counts(kind, own)}


def _counts(kind: str | Sequence[Sequence[float]], shown: int) -> bool:
    """Whether queries along an attribute count cells after the first ones; the cells themselves do not, as they are not shown."""
    return not isinstance(kind, str) and any(any(row[shown:]) for row in kind)
