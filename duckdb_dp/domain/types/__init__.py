"""The column types for which a domain can be declared; each family of types is one entry of ``FAMILIES``.

A type works in every function or in none: declaring, counting in DuckDB and through Ibis, conditions, synthetic values, keys
and results ask its entry and nothing else. A new column type is a new entry.
"""

from functools import cache
from typing import Any

from duckdb_dp.domain.types.base import (
    LABELS,
    MAX_CELLS,
    NUMBERS,
    Amount,
    ColumnType,
    InUnits,
    Kind,
    Scalar,
    as_text,
    literal,
    sql_list,
    without_order,
)
from duckdb_dp.domain.types.labels import Enum, Text, Truth, Uuid
from duckdb_dp.domain.types.moments import Moment
from duckdb_dp.domain.types.numbers import Decimal, Real, Whole
from duckdb_dp.errors import DPError

__all__ = [
    "LABELS",
    "MAX_CELLS",
    "NUMBERS",
    "Amount",
    "ColumnType",
    "Decimal",
    "Enum",
    "InUnits",
    "Kind",
    "Moment",
    "Real",
    "Scalar",
    "Text",
    "Truth",
    "Uuid",
    "Whole",
    "as_text",
    "column_type",
    "find",
    "from_ibis",
    "literal",
    "refusal",
    "sql_list",
    "without_order",
]

FAMILIES: list[type[ColumnType]] = [Whole, Decimal, Real, Truth, Text, Enum, Uuid, Moment]


@cache
def find(name: str) -> ColumnType | None:
    """The entry of a DuckDB type, as the catalog spells it; None for a type without one."""
    return next((found for family in FAMILIES if (found := family.of(name)) is not None), None)


def column_type(name: str, what: str = "a column") -> ColumnType:
    """The entry of a DuckDB type.

    Args:
        name: the type, as the catalog spells it.
        what: how a message calls the column.

    Raises:
        DPError: the type has none.
    """
    found = find(name)
    if found is None:
        raise DPError(refusal(name, what) + ".")
    return found


def refusal(name: str, what: str) -> str:
    """Why a column is refused whose type has no entry, and what helps."""
    more = ": AT TIME ZONE 'UTC' makes it a TIMESTAMP" if name == "TIMESTAMP WITH TIME ZONE" else ""
    return f"{what} has type {name}, which is not supported; make it a number, a date or a text in a view{more}"


def from_ibis(dtype: Any) -> str:
    """DuckDB's name of an Ibis type; Ibis's own where it has no entry."""
    names = (family.of_ibis(dtype) for family in FAMILIES)
    return next((name for name in names if name is not None), str(dtype.copy(nullable=True)))
