"""What is known of an expression in an engine: its DuckDB type, and whether all engines have the same value."""

from dataclasses import dataclass
from typing import final

from duckdb_dp.counting.engines.expressions import Expression
from duckdb_dp.domain import types
from duckdb_dp.domain.types import Whole

SMALL = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"}
"""Whole numbers whose sums, differences and products a DOUBLE holds as far as they fit the result's type."""

TOTAL = "HUGEINT"
"""What DuckDB calls a sum of these: a whole number that 64 bits hold, as no column of an engine has this type."""

DIGITS = 15
"""Decimals up to so many digits become the nearest DOUBLE in all engines."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """An expression in an engine.

    Attributes:
        ibis: the expression; a number that is worked out is a float64, whatever its type.
        type: what DuckDB calls its type.
        given: whether it is as a column or a literal has it, in the engine's own type.
        exact: whether all engines have the same value, and not one that is rounded in another way.
        fallible: whether DuckDB's would fail on some rows: then it is NULL here.
    """

    ibis: Expression
    type: str
    given: bool = True
    exact: bool = True
    fallible: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is a whole number that the engine holds in 64 bits."""
        return self.type in SMALL or self.type in ("BIGINT", TOTAL)

    @property
    def digits(self) -> int:
        """Of a decimal; 0 of others."""
        return int(self.type[8:].partition(",")[0]) if self.type.startswith("DECIMAL(") else 0

    @property
    def number(self) -> bool:
        """Whether it is one that all engines have."""
        return self.whole or bool(self.digits) or self.type in ("FLOAT", "DOUBLE")

    @property
    def real(self) -> Expression:
        """A number as float64."""
        return self.ibis.cast("float64") if self.given and self.type != "DOUBLE" else self.ibis

    @property
    def rounded(self) -> bool:
        """Whether ``real`` may be rounded in other ways than DuckDB's."""
        return not self.exact or self.digits > DIGITS


def is_literal(value: Value) -> bool:
    """Whether no column is in it."""
    import ibis.expr.operations as ops

    return not value.ibis.op().find(ops.Field)


def limits(type_: str) -> tuple[int, int]:
    """The smallest and the largest number of a type of whole numbers."""
    dtype = types.find(type_)
    assert isinstance(dtype, Whole)
    low, high = dtype.limits
    return low, high


def within(number: Expression, type_: str) -> Expression:
    """A float64 where a type of whole numbers holds it; NULL elsewhere."""
    import ibis

    low, high = limits(type_)
    inside = (number >= float(low)) & (number < float(high + 1))
    return ibis.ifelse(inside, number, ibis.null("float64"))
