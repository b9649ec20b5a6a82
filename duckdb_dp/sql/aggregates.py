"""The aggregates of dp_sql, and the linear queries that each needs: an average is computed from two of them."""

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import Amount, Scalar
from duckdb_dp.errors import DPError, brief, identifier
from duckdb_dp.select_parts import LinearQuery, SelectColumn

if TYPE_CHECKING:
    from sqlglot import exp


def bases(column: SelectColumn) -> tuple[LinearQuery, ...]:
    """The linear queries that an aggregate is made of.

    avg(x) is c + sum(x - c) / count(x) with c the middle of x's domain: then the noise of the sum does not include that
    of the count, which would be most of it for numbers far from 0.
    """
    functions = ("centred", "count") if column.function == "avg" else (column.function,)
    return tuple(LinearQuery(function=function, attribute=column.attribute) for function in functions)


def aggregate(call: "exp.Count | exp.Sum | exp.Avg", name: str, declared: Mapping[str, Attribute]) -> SelectColumn:
    """An aggregate as it was written.

    Raises:
        DPError: the aggregate is not of a declared column, or that column has cells without a number.
    """
    from sqlglot import exp

    from duckdb_dp.domain.predicate import attributes_of

    function = type(call).__name__.lower()
    if function == "count" and (call.this is None or isinstance(call.this, exp.Star)):
        return SelectColumn(name=name or function, attribute="", function=function)
    if isinstance(call.this, exp.Distinct):
        raise DPError(
            f"{brief(call.sql('duckdb'))} is no {function} of a declared column, row by row; ask count(*) and GROUP BY the "
            "column, and take the groups that are clearly above 0."
        )
    if not isinstance(call.this, exp.Column):
        raise DPError(f"{brief(call.sql('duckdb'))} is no {function} of a declared column.")
    attribute = attributes_of(call.this, declared)[0]
    if function != "count" and not attribute.dtype.numeric:
        raise DPError(
            f"{brief(call.sql('duckdb'))}: '{attribute.name}' is {attribute.type}, and only numbers have a sum or an average; "
            f"ask count(*) and GROUP BY {identifier(attribute.name)}, or make it a number in a view, by TRY_CAST."
        )
    if function == "count" and attribute.other and not attribute.nulls:
        raise DPError(
            f"{brief(call.sql('duckdb'))}: NULL and others share a cell of '{attribute.name}', and count tells them apart; declare it "
            "with nulls := true."
        )
    if function != "count" and attribute.other:
        raise DPError(
            f"{brief(call.sql('duckdb'))}: '{attribute.name}' needs a number in every cell; declare it by bins or low, high, without other."
        )
    return SelectColumn(name=name or function, attribute=attribute.name, function=function)


def weights(query: LinearQuery, declared: Mapping[str, Attribute]) -> tuple[Attribute, np.ndarray] | None:
    """(attribute, weight of each of its cells) of a linear query; None where every row counts as 1."""
    if not query.attribute:
        return None
    attribute = declared[query.attribute]
    if query.function == "count":
        counted = [*(label is not None for label in attribute.labels()), *(what != "null" for what in attribute.hidden)]
        return attribute, np.array(counted, dtype=float)
    shift = middle(attribute) if query.function == "centred" else 0.0
    return attribute, np.array([0.0 if number is None else number - shift for number in numbers(attribute)])


def numbers(attribute: Attribute) -> list[float | None]:
    """The number that each cell stands for; None for NULL.

    That of a bin is the middle of the values that the column's type has in it: whole numbers in [0, 10) are 0 to 9.
    """
    if attribute.kind == "bins":
        ends = attribute.bounds() if attribute.dtype.continuous else attribute.held
        middles = [
            (_real(low) / 2 + _real(high) / 2) / attribute.dtype.per_one for low, high in ends[: len(attribute.held)]
        ]
        return middles + [None] * (attribute.other + attribute.nulls)
    return [None if label is None else _real(label) for label in attribute.labels()]


def middle(attribute: Attribute) -> float:
    """The middle c of the numbers of an attribute's cells."""
    known = [number for number in numbers(attribute) if number is not None]
    return (min(known) + max(known)) / 2 if known else 0.0


def ends(item: SelectColumn, attribute: Attribute | None) -> tuple[float, float] | None:
    """The least and the largest number of a cell, between which an average lies; None for other aggregates."""
    known = [] if item.function != "avg" or attribute is None else [n for n in numbers(attribute) if n is not None]
    return (min(known), max(known)) if known else None


def outputs(
    item: SelectColumn, place: Mapping[LinearQuery, int], quantile: float, attribute: Attribute | None
) -> tuple[str, str]:
    """(answer, stddev) of an aggregate in SQL, from the columns a<i>, s<i> of its linear queries.

    For avg the stddev is |A| <= (sd(S) + |avg - c| sd(N)) / N to first order in the noise, whatever the correlation of S
    and N; NULL where the count N is not clearly above 0, because a ratio to it then has no valid error.
    """
    if item.function != "avg":
        index = place[bases(item)[0]]
        return f"a{index}", f"s{index}"
    assert attribute is not None
    total, count = (place[base] for base in bases(item))
    shift = f"a{total} / a{count}"
    known = f"a{count} > {2 * quantile!r} * s{count} AND a{count} > 0"
    stddev = f"(s{total} + abs({shift}) * s{count}) / a{count}"
    return (
        f"CASE WHEN {known} THEN {middle(attribute)!r}::DOUBLE + {shift} END",
        f"CASE WHEN {known} THEN {stddev} END",
    )


def _real(value: Scalar | Amount | None) -> float:
    assert isinstance(value, int | float | Fraction)
    return float(value)
