"""As which types the numbers of sums are added up exactly, where an owner's contributions are bounded by norm."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from duckdb_dp.counting.encode import quote
from duckdb_dp.grouped_sums import GroupedSums, Sum
from duckdb_dp.sql.typed import type_of

WHOLE = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
"""Types whose sums no number of rows overflows."""

DIGITS, PLACES = 28, 18
"""The same of decimals with so many digits, for 10^10 rows, and so many of them after the point. Wider ones are cast to so many."""


def by_norm(columns: Mapping[str, str], part: GroupedSums) -> GroupedSums:
    """A grouping set whose counts and sums are bounded by norm; quantiles and distinct values still by rows.

    Args:
        columns: name -> type of the relation's columns.
        part: the grouping set.
    """
    return replace(part, sums=tuple(_by_norm(columns, one) for one in part.sums))


def _by_norm(columns: Mapping[str, str], one: Sum) -> Sum:
    if one.kind in ("quantile", "values"):
        return one
    found = exact(type_of(columns, one.value)) if one.value else "BIGINT"
    return replace(one, cells=None, norm=found)


def counted(columns: Mapping[str, str], never: Collection[str]) -> list[str]:
    """SQL of those columns of exact numbers that are never NULL: each row has a number there."""
    return [quote(name) for name in never if exact(columns.get(name, "")) != "DOUBLE"]


def narrow(type_: str) -> bool:
    """Whether numbers of an exact type have at most 18 decimal digits, or 32 binary ones."""
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", type_)
    return int(decimal[1]) <= 18 if decimal is not None else type_ in WHOLE - {"BIGINT", "UBIGINT"}


def exact(type_: str) -> str:
    """The type that numbers of a type are added up as."""
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", type_)
    if decimal is not None and int(decimal[2]) <= PLACES:
        return f"DECIMAL({min(int(decimal[1]), DIGITS)},{decimal[2]})"
    return type_ if type_ in WHOLE else "DOUBLE"
