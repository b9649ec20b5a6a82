"""How many different values of what count(DISTINCT x) counts a unit has at most, where keys say that these are fewer than its rows."""

import math
from collections.abc import Mapping, Sequence

from sqlglot import exp

from duckdb_dp.sql.owned.compiler import Compiler, key_alias
from duckdb_dp.sql.owned.relations import Joined
from duckdb_dp.sql.same_conditions import form

Read = tuple[frozenset[str], bool]
"""Columns that stand in an expression, and whether it is one of them alone, which is NULL where a LEFT JOIN finds no row."""


def read_of(value: exp.Expr) -> Read:
    """Those of an expression."""
    return frozenset(column.name for column in value.find_all(exp.Column)), isinstance(value.unnest(), exp.Column)


def most(compiler: Compiler, joined: Joined, select: exp.Select, values: Mapping[str, exp.Expr]) -> dict[Read, int]:
    """What stands in each count(DISTINCT x), and how many different values that has of one unit at most.

    Values of one table are no more than its rows: of a patient with 40 events one sex, and as many wards as there are.

    Args:
        compiler, joined: the relation that is aggregated.
        select: the SELECT over it.
        values: what its columns are.
    """
    found = dict[Read, int]()
    for node in select.find_all(exp.Distinct) if form() >= 7 and not compiler.as_written else ():
        for value in node.expressions:
            names, alone = read = read_of(value)
            if names and read not in found and names <= {*values}:
                own = [values[name] for name in sorted(names)]
                rows = compiler.most(joined, own)
                both = (None if rows is None else rows.rows, _of_tables(compiler, own, alone=alone))
                known = [one for one in both if one is not None]
                found |= {read: min(known)} if known else {}
    return found


def _of_tables(compiler: Compiler, values: Sequence[exp.Expr], *, alone: bool) -> int | None:
    """The same by the tables that are read alone, and that none has a row there, wherever they are joined; None where they are public."""
    columns = [column for value in values for column in value.find_all(exp.Column)]
    if not compiler.tables.bounded or not all(column.table for column in columns):
        return None
    items = {key_alias(column): compiler.item(key_alias(column)) for column in columns}.values()
    rows = [item.relation.most.rows if item.relation.owned and item.relation.most else None for item in items]
    known = [one for one in rows if one is not None]
    missing = [bool(item.join) and not (alone and values[0] in columns) for item in items]
    return None if len(known) < len(rows) else math.prod(map(sum, zip(known, missing, strict=True)))
