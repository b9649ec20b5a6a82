"""The answers that a statement works on: their columns, as SQL and as rows of the same types to try the statement on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from duckdb_dp.counting.encode import array, quote
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.request import Request
from duckdb_dp.sql.direct_rows import bounds_of
from duckdb_dp.sql.layout import bins_type
from duckdb_dp.sql.typed import output_types

if TYPE_CHECKING:
    from duckdb_dp.plan.direct import DirectPlan

ROWS = 3
"""Rows of public labels and made-up numbers that a statement is tried on."""

ALL_ROWS = 1_000
"""The same where each label is tried, as a cast may fail of one."""

ERRORS = ("stddev", "ci_low", "ci_high")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of an answer.

    Attributes:
        name: of it.
        type: SQL type.
        values: of a label, some public values as text; none of an answer.
        bins: of labels that do not sort as texts, the ENUM of these, which has their order; statements see it in the place of texts.
        errors: of an answer, the columns that say its error, by what each is called after the answer's name.
    """

    name: str
    type: str
    values: tuple[str | None, ...] = ()
    bins: str = ""
    errors: tuple[str, ...] = ()

    def tried(self, rows: int) -> list[str]:
        """SQL of its values in that many rows to try a statement on, and of its errors'."""
        text = f"TRY_CAST(100.5 - i % {ROWS} AS {self.type})"
        # Among the first ones the last two: 'other' is one of them, which is no number.
        if values := [*self.values[:1], *self.values[1:][-2:], *self.values[1:-2]][:rows]:
            text = f"TRY_CAST(({array('VARCHAR', values)})[i % {len(values)} + 1] AS {self.bins or self.type})"
        found = [f"{text} AS {quote(self.name)}"]
        for error in self.errors:
            kind = "DOUBLE[]" if error == "clipped_at" else self.type if error != "stddev" else "DOUBLE"
            value = "'[0, 1]'" if error == "clipped_at" else f"1.5 + i % {ROWS}"
            found.append(f"TRY_CAST({value} AS {kind}) AS {quote(f'{self.name}_{error}')}")
        return found


def selects_of(request: Request) -> int:
    """How many SELECTs a request answers."""
    planned = [question.select.number for question in request.questions if question.select is not None]
    return max([*planned, *(part.number for part in request.direct)])


def columns(request: Request, number: int, plan: "DirectPlan | None" = None, later: Sequence[str] = ()) -> list[Column]:
    """The columns of the answer to the SELECT of that number.

    Args:
        request: what was asked.
        number: of the SELECT.
        plan: with it, it is known which answers say where they were cut.
        later: columns whose values are found by the statement itself.
    """
    parts = [part for part in request.direct if part.number == number]
    return _direct(request, parts, plan, later) if parts else _planned(request, number)


def sorted_as_bins(answers: str, found: Sequence[Column]) -> str:
    """SQL of an answer whose labels of bins sort in their order."""
    cast = [f"CAST({quote(one.name)} AS {one.bins}) AS {quote(one.name)}" for one in found if one.bins]
    return f"SELECT * REPLACE ({', '.join(cast)}) FROM ({answers})" if cast else answers


def _direct(
    request: Request, parts: Sequence[GroupedSums], plan: "DirectPlan | None", later: Sequence[str]
) -> list[Column]:
    attributes = {attribute.name: attribute for attribute in request.attributes}
    found: dict[str, Column] = {}
    labels = [label for part in parts for label in part.labels if label.name]
    for label in labels:
        attribute = attributes.get(label.attribute)
        values: Sequence[Any] = attribute.labels() if attribute is not None else label.values
        alike = {one.attribute for one in labels if one.name.lower() == label.name.lower()} == {label.attribute}
        text = label.type == "VARCHAR" and label.attribute not in later
        bins = bins_type(attribute) if attribute is not None and alike and text else ""
        found.setdefault(label.name.lower(), _label(label.name, label.type, values, bins))
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
                    new = _label(column.name, attribute.column_type, attribute.labels(), bins_type(attribute))
                found.setdefault(column.name.lower(), new)
    return list(found.values())


def _label(name: str, type_: str, values: Sequence[Any], bins: str = "") -> Column:
    texts = tuple(None if value is None else str(value) for value in (values if bins else values[:ALL_ROWS]))
    return Column(name=name, type=type_, values=texts or (None,), bins=bins)


def tried(found: Sequence[Column], *, every: bool = False) -> str:
    """SELECT of some rows of the types of an answer, or of as many as have every label."""
    rows = ROWS if any(column.values for column in found) else 1  # which a scalar subquery may be
    rows = max([rows, *(min(len(column.values), ALL_ROWS) for column in found)]) if every else rows
    shown = ", ".join(text for column in found for text in column.tried(rows))
    return f"SELECT {shown} FROM range({rows}) AS r(i)"


def tried_table(types: Sequence[tuple[str, str]]) -> str:
    """SELECT of some rows of the types of a public table: NULL, as nothing is read."""
    return "SELECT " + ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in types)
