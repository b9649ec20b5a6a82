"""What to ask of values that are no numbers, in place of their sum, their average, their quantiles or their extremes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import FINDS, UnknownAttribute
from duckdb_dp.errors import DPError, brief, identifier

if TYPE_CHECKING:
    from sqlglot import exp

INTERVAL, ZONED = "INTERVAL", "TIMESTAMP WITH TIME ZONE"


def numeric(type_: str) -> bool:
    """Whether values of a type are added up."""
    found = types.find(type_)
    return found is not None and found.numeric


def ordered(type_: str) -> bool:
    """Whether values of a type have quantiles."""
    found = types.find(type_)
    return found is not None and found.ordered


def as_number(value: str, type_: str) -> str:
    """An expression that is a number, of a value that is none."""
    text = brief(value)
    if type_ == "DATE":
        return f"{text} - DATE '2025-01-01'"
    if type_ == ZONED:
        return f"epoch({text} AT TIME ZONE 'UTC')"
    if type_.startswith("TIMESTAMP"):
        return f"date_diff('day', TIMESTAMP '2025-01-01', {text})"
    return f"epoch({text})" if type_ in ("TIME", INTERVAL) else f"TRY_CAST({text} AS DOUBLE)"


def instead(value: str, type_: str) -> str:
    """What to ask of such values; it is answered as it is written.

    Args:
        value: an expression.
        type_: its type, which is no number's.
    """
    text, number = brief(value), as_number(value, type_)
    if type_ == INTERVAL:
        return f"ask for its seconds, {number}, or its hours, {number} / 3600"
    if type_ == ZONED:
        return f"say in which zone it is read: median({text} AT TIME ZONE 'UTC')"
    if type_ == "TIME":
        return f"ask median({text}), or for its seconds: {number}"
    if type_ == "DATE" or type_.startswith("TIMESTAMP"):
        return f"ask median({text}), or for its days from one on: {number}"
    if type_ == "BOOLEAN":
        return f"ask avg({text}), the share of rows where it is true"
    if type_ == "VARCHAR":
        return f"ask count(*) and GROUP BY it; where it holds numbers, take {number}"
    return f"ask count(*) and GROUP BY it, or count({text})"


def group_instead(name: str, type_: str) -> str:
    """What to group by in place of a column of durations, or of moments with a time zone, which nothing declares; '' for others."""
    text = identifier(name)
    if type_ == ZONED:
        return f"{text} is a moment with a time zone; group by it in one: {text} AT TIME ZONE 'UTC'."
    if type_ != INTERVAL:
        return ""
    return (
        f"GROUP BY {text} is INTERVAL, which has no groups; group by a whole number of it, and say which ones count: "
        f"(epoch({text}) / 3600)::INTEGER AS hours, and WHERE hours BETWEEN 0 AND 24."
    )


def advised(error: DPError, select: "exp.Select", columns: Mapping[str, str], dataset: Dataset) -> DPError:
    """An error of a SELECT; of an expression of an undeclared moment that it groups by, with what a condition can say instead."""
    from duckdb_dp.sql.above.kinds import group_keys  # for import time: it brings sqlglot

    if not isinstance(error, UnknownAttribute):
        return error
    if text := group_instead(error.name, columns.get(error.name, "")):
        return DPError(text)
    itself = any(key.name.lower() == error.name.lower() for key in group_keys(select))
    if itself or not columns.get(error.name, "").startswith(("TIMESTAMP", "DATE")):  # not what is worked out of it
        return error if dataset.discovery_delta else UnknownAttribute(error.name, error.declared, advice=FINDS)
    year = f"year({identifier(error.name)})"
    advice = f" Or say which years there are: WHERE {year} BETWEEN 2020 AND 2025 GROUP BY {year}."
    return UnknownAttribute(error.name, error.declared, advice=advice)
