"""Between which numbers, dates and times columns of public tables lie beside protected rows: what is summed of them has these bounds."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, final

from sqlglot import exp, parse_one

from duckdb_dp.domain import types
from duckdb_dp.domain.types import Moment, Truth
from duckdb_dp.errors import DPError, identifier
from duckdb_dp.sql.owned import public_parts
from duckdb_dp.sql.owned.compiler import Compiler, key_alias
from duckdb_dp.sql.owned.relations import Joined, atom
from duckdb_dp.sql.same_conditions import form


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What public rows say of a column of the relation at the top, where it is not NULL.

    Attributes:
        column: its name.
        low, high: the ends, as texts.
        condition: that it lies between them.
    """

    column: str
    low: str
    high: str
    condition: exp.Expr

    def __str__(self) -> str:
        return f"{identifier(self.column)} lies between {self.low} and {self.high}, as public rows say"


def held(
    compiler: Compiler,
    joined: Joined,
    select: exp.Select,
    values: Mapping[str, exp.Expr],
    declared: Collection[str],
    read: Callable[[str], list[tuple[Any, ...]]],
) -> tuple[Held, ...]:
    """Those of the columns that aggregates other than count take, and that nothing declares.

    Args:
        compiler, joined: the relation that is aggregated.
        select: the SELECT over it.
        values: what its columns are.
        declared: names of columns that are declared.
        read: the rows of a SELECT of public tables.

    Privacy: reads public rows alone.
    """
    if form() < 8 or compiler.as_written:
        return ()
    nodes = (node for node in select.find_all(exp.AggFunc, exp.Anonymous) if not isinstance(node, exp.Count))
    names = dict.fromkeys(column.name for node in nodes for column in node.find_all(exp.Column))
    found = list[Held]()
    for name in names:
        value = values.get(name)
        if isinstance(value, exp.Column) and name not in declared and compiler.is_public(value):
            with suppress(DPError):  # of rows in another engine that are too many to be read: then bounds are chosen
                found += _of(compiler, joined, value, name, read)
    return tuple(found)


def _of(
    compiler: Compiler, joined: Joined, value: exp.Column, name: str, read: Callable[[str], list[tuple[Any, ...]]]
) -> Sequence[Held]:
    item, field = compiler.item(key_alias(value)), compiler.field(value)
    assert field is not None
    dtype = types.find(field.type)
    if isinstance(dtype, Truth):
        return [_between(name, "false", "true", "false", "true")]
    if dtype is None or not (dtype.numeric or isinstance(dtype, Moment)):
        return []
    if item.relation.owned:  # a subquery, which reads the column from a public table as it is
        assert field.table is not None
        alone = compiler.put(compiler.tables.public(field.table))
        part, value = Joined(items=[alone]), atom(alone.alias, field.column)
    else:
        part = public_parts.part(compiler, joined, item, small=True)
    select = compiler.select(part).select(exp.alias_(value.copy(), "v"), copy=False)
    floats = dtype.name in ("FLOAT", "DOUBLE")
    where = " WHERE NOT isnan(v)" if floats else ""  # which is no number in a sum
    least, most = ("CAST(min(v) AS DOUBLE)", "CAST(max(v) AS DOUBLE)") if floats else ("min(v)", "max(v)")
    ((low, high),) = read(
        f"SELECT CAST({least} AS VARCHAR), CAST({most} AS VARCHAR) FROM ({select.sql('duckdb')}) AS d{where}"
    )
    if low is None or high is None or "inf" in low or "inf" in high:  # what is infinite bounds nothing
        return []
    if isinstance(dtype, Moment):
        return [_between(name, low, high, *(f"CAST('{end}' AS {dtype.name})" for end in (low, high)))]
    return [_between(name, low, high, _rounded(low, -math.inf), _rounded(high, math.inf))]


def _between(name: str, low: str, high: str, first: str, last: str) -> Held:
    """What is held of a column, with its ends as texts and as SQL."""
    ends = {"low": parse_one(first, dialect="duckdb"), "high": parse_one(last, dialect="duckdb")}
    return Held(column=name, low=low, high=high, condition=exp.Between(this=exp.column(name, quoted=True), **ends))


def _rounded(text: str, to: float) -> str:
    """A number as a double, by which bounds are worked out: not beyond the end that it is."""
    exact, found = Decimal(text), float(text)
    if (to < 0 and Decimal(found) > exact) or (to > 0 and Decimal(found) < exact):
        found = math.nextafter(found, to)
    return str(int(found)) if found.is_integer() and abs(found) < 2**53 else repr(found)
