"""Columns that have a number in every row that is counted, so that the rows with one are all rows, and are counted once."""

import math
from collections.abc import Mapping, Sequence

from sqlglot import exp

from duckdb_dp.counting.encode import quote
from duckdb_dp.domain.expression_bounds import conjuncts, limits
from duckdb_dp.sql.exact_types import exact


def told(columns: Mapping[str, str], conditions: Sequence[exp.Expr]) -> list[str]:
    """SQL of the columns that have a number in each row that satisfies conditions: one says so, or compares it with a number.

    A DOUBLE may be NaN, which is larger than all numbers: of it a condition has to say an upper end.
    """
    whole = {name for name, type_ in columns.items() if exact(type_) != "DOUBLE"}
    nulls = [part.this for part in (p for one in conditions for p in conjuncts(one)) if isinstance(part, exp.Not)]
    known = [one.this.unnest() for one in nulls if isinstance(one, exp.Is) and isinstance(one.expression, exp.Null)]
    found = [column.name for column in known if isinstance(column, exp.Column) and column.name in whole]
    found += [name for name, (_, high) in limits(conditions).items() if name in whole or math.isfinite(high)]
    return [quote(name) for name in dict.fromkeys(found) if name in columns]


def no_columns(_conditions: Sequence[exp.Expr]) -> list[str]:
    """No columns, whatever conditions say, as in requests of earlier versions."""
    return []
