"""The answers that a statement works on: their columns, as SQL and as rows of the same types to try the statement on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from duckdb_dp.counting.encode import array, quote
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.request import Request
from duckdb_dp.sql.direct_rows import bounds_of
from duckdb_dp.sql.typed import output_types

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import DirectPlan

ROWS = 3
"""Rows of public labels and made-up numbers that a statement is tried on."""

ERRORS = ("stddev", "ci_low", "ci_high")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of an answer.

    Attributes:
        name: of it.
        type: SQL type.
        values: of a label, some public values as text; none of an answer.
        errors: of an answer, the columns that say its error, by what each is called after the answer's name.
    """

    name: str
    type: str
    values: tuple[str | None, ...] = ()
    errors: tuple[str, ...] = ()

    def tried(self) -> list[str]:
        """SQL of its values in rows to try a statement on, and of its errors'."""
        values = array("VARCHAR", [self.values[i % len(self.values)] for i in range(ROWS)] if self.values else [])
        text = f"TRY_CAST(({values})[i + 1] AS {self.type})" if self.values else f"TRY_CAST(100.5 - i AS {self.type})"
        found = [f"{text} AS {quote(self.name)}"]
        for error in self.errors:
            kind = "DOUBLE[]" if error == "clipped_at" else self.type if error != "stddev" else "DOUBLE"
            value = "'[0, 1]'" if error == "clipped_at" else "1.5 + i"
            found.append(f"TRY_CAST({value} AS {kind}) AS {quote(f'{self.name}_{error}')}")
        return found


def selects_of(request: Request) -> int:
    """How many SELECTs a request answers."""
    planned = [question.select.number for question in request.questions if question.select is not None]
    return max([*planned, *(part.number for part in request.direct)])


def columns(request: Request, number: int, plan: "DirectPlan | None" = None) -> list[Column]:
    """The columns of the answer to the SELECT of that number; that it says where it was cut is known with a plan."""
    parts = [part for part in request.direct if part.number == number]
    return _direct(request, parts, plan) if parts else _planned(request, number)


def _direct(request: Request, parts: Sequence[GroupedSums], plan: "DirectPlan | None") -> list[Column]:
    attributes = {attribute.name: attribute for attribute in request.attributes}
    found: dict[str, Column] = {}
    for label in [label for part in parts for label in part.labels if label.name]:
        values: Sequence[Any] = attributes[label.attribute].labels() if label.attribute else label.values
        found.setdefault(label.name.lower(), _label(label.name, label.type, values))
    for output, type_ in zip(parts[0].outputs, output_types(parts[0], parts), strict=True):
        cut = plan is not None and bounds_of(request, plan, parts[0], output)
        errors = (*ERRORS, *(["clipped_at"] if cut else [])) if output.noisy else ()
        found[output.name.lower()] = Column(name=output.name, type=type_.replace('"NULL"', "VARCHAR"), errors=errors)
    return list(found.values())


def _planned(request: Request, number: int) -> list[Column]:
    attributes = {attribute.name: attribute for attribute in request.attributes}
    found: dict[str, Column] = {}
    for question in request.questions:
        if question.select is not None and question.select.number == number:
            for column in question.select.columns:
                if column.function:
                    new = Column(name=column.name, type="DOUBLE", errors=ERRORS)
                else:
                    attribute = attributes[column.attribute]
                    new = _label(column.name, attribute.column_type, attribute.labels())
                found.setdefault(column.name.lower(), new)
    return list(found.values())


def _label(name: str, type_: str, values: Sequence[Any]) -> Column:
    texts = tuple(None if value is None else str(value) for value in values[:ROWS])
    return Column(name=name, type=type_, values=texts or (None,))


def tried(found: Sequence[Column]) -> str:
    """SELECT of some rows of the types of an answer."""
    shown = ", ".join(text for column in found for text in column.tried())
    rows = ROWS if any(column.values for column in found) else 1  # which a scalar subquery may be
    return f"SELECT {shown} FROM range({rows}) AS r(i)"


def tried_table(types: Sequence[tuple[str, str]]) -> str:
    """SELECT of some rows of the types of a public table: NULL, as nothing is read."""
    return "SELECT " + ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in types)
