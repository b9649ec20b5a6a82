"""SQL expressions of a row, as Ibis expressions with the same values as DuckDB's, of which nothing can fail in any engine.

Engines differ in what they do on overflow, on division by 0, with decimals and with texts. So an expression is made of the few
operators that are listed here, each of them written such that all tested engines agree; any other is refused.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any, NoReturn, final

import duckdb
from sqlglot import exp, parse_one

from duckdb_dp.counting.engines.expressions import Expression, by_bytes, is_null
from duckdb_dp.errors import DPError, brief, first_line
from duckdb_dp.sql.engines.values import SMALL, TOTAL, Value, is_literal, limits, within
from duckdb_dp.sql.opaque import FIRST
from duckdb_dp.sql.typed import alone, type_of

_COMPARED = 18
"""Decimals up to so many digits are compared as they are."""

_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq, exp.NEQ: operator.ne, exp.LT: operator.lt, exp.LTE: operator.le, exp.GT: operator.gt, exp.GTE: operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
}

MADE_OF = (
    "columns, literals, comparisons, AND, OR, NOT, IN, BETWEEN, IS NULL, CASE, coalesce, nullif, +, -, *, abs, / by a literal or by "
    "nullif(x, 0), casts of numbers, and year, quarter, month and day of a date"
)


@final
class Rows:
    """The expressions over the columns of one relation.

    Args:
        engine: where it is, for messages.
        columns: name -> (Ibis column, its DuckDB type).
    """

    def __init__(self, engine: str, columns: Mapping[str, tuple[Expression, str]]) -> None:
        self.engine, self._columns = engine, columns
        self._types = {name: type_ for name, (_, type_) in columns.items()}
        self._readers: dict[type[exp.Expr], Callable[[Any], Value]] = {
            exp.Div: self._divided, exp.Is: self._is_null, exp.In: self._in, exp.Between: self._between, exp.Case: self._case,
            exp.Coalesce: self._coalesce, exp.Nullif: self._nullif, exp.Cast: self._cast, exp.TryCast: self._cast,
            exp.Try: lambda node: self.read(node.this), exp.Encode: self._bytes, exp.Decode: self._text,
        }  # fmt: skip

    def value(self, text: str) -> Value:
        """An expression, from its SQL; NULL where DuckDB's fails.

        Raises:
            DPError: it may have another value in the engine.
        """
        return self.read(parse_one(text, dialect="duckdb"))

    def holds(self, text: str) -> Expression:
        """Whether a condition is true; false where it is NULL, or DuckDB's fails.

        Raises:
            DPError: as ``value``.
        """
        import ibis

        return ibis.coalesce(self.condition(parse_one(text, dialect="duckdb")).ibis, ibis.literal(False))

    def condition(self, node: exp.Expr) -> Value:
        """A condition."""
        found = self._sure(node)
        return found if found.type == "BOOLEAN" else self._refuse(node)

    def read(self, node: exp.Expr) -> Value:
        """An expression."""
        if isinstance(node, exp.Paren):
            return self.read(node.this)
        if node.find(exp.Column) is None:
            return self._constant(node)
        if isinstance(node, exp.Column):
            column, type_ = self._columns[node.name]
            return Value(ibis=column, type=type_)
        if isinstance(node, exp.And | exp.Or):
            return self._joined(node)
        if isinstance(node, exp.Not):
            found = self._sure(node.this)
            return replace(found, ibis=~found.ibis) if found.type == "BOOLEAN" else self._refuse(node)
        if type(node) in _COMPARISONS:
            return self._compared(node, type(node), self._sure(node.this), self._sure(node.expression))
        if type(node) in _ARITHMETIC:
            return self._worked_out(node, _ARITHMETIC[type(node)], node.this, node.expression)
        if isinstance(node, exp.Neg):
            return self._worked_out(node, operator.neg, node.this)
        if isinstance(node, exp.Abs):
            return self._worked_out(node, lambda x: x.abs(), node.this)
        if type(node) in _PARTS:
            return self._part(node, _PARTS[type(node)], node.this)
        if isinstance(node, exp.Extract):
            return self._part(node, node.this.name.lower(), node.expression)
        if (inner := _known(node)) is not None:
            return self.read(inner)
        read = self._readers.get(type(node))
        return self._refuse(node) if read is None else read(node)

    def _refuse(self, node: exp.Expr, advice: str = "") -> NoReturn:
        text = brief(node.transform(_written).unnest().sql("duckdb"))
        raise DPError(
            f"{text} may be another value in {self.engine} than in DuckDB, or fail there; "
            + (advice or f"expressions of its rows are made of {MADE_OF}. Or copy the table to DuckDB.")
        )

    def _sure(self, node: exp.Expr) -> Value:
        """What is no number to be added: it must not overflow, as DuckDB compares x + 1 > 0 as x > -1, which does not."""
        found = self.read(node)
        if found.fallible:
            self._refuse(node, "cast its first number to DOUBLE, which does not overflow: CAST(x AS DOUBLE) + y.")
        return found

    def _constant(self, node: exp.Expr) -> Value:
        """A literal, or what DuckDB works out of literals."""
        import ibis

        text = node.sql("duckdb")
        try:
            with alone() as connection:
                row = connection.execute(f"SELECT {text}, typeof({text})").fetchone()
        except duckdb.Error as error:
            raise DPError(f"{brief(text)}: {first_line(error)}") from None
        assert row is not None
        value, type_ = row
        if value is None:
            return Value(ibis=ibis.null(), type="NULL")
        if isinstance(value, Decimal):
            return Value(ibis=ibis.literal(value, type_.lower()), type=type_)
        if isinstance(value, datetime) and type_ == "TIMESTAMP":
            return Value(ibis=ibis.literal(str(value)).cast("timestamp"), type=type_)
        if isinstance(value, date) and type_ == "DATE":
            return Value(ibis=ibis.literal(str(value)).cast("date"), type=type_)
        names = {"BOOLEAN": "boolean", "VARCHAR": "string", "FLOAT": "float32", "DOUBLE": "float64"}
        if type_ not in names and (type_ not in SMALL | {"BIGINT"}):
            self._refuse(node)
        return Value(ibis=ibis.literal(value, names.get(type_, "int64")), type=type_)

    # Conditions

    def _joined(self, node: exp.Expr) -> Value:
        found = [self.condition(part).ibis for part in (node.this, node.expression)]
        return Value(ibis=(operator.and_ if isinstance(node, exp.And) else operator.or_)(*found), type="BOOLEAN")

    def _compared(self, node: exp.Expr, kind: type[exp.Expr], left: Value, right: Value) -> Value:
        left, right = self._alike(node, left, right), self._alike(node, right, left)
        kinds = {left.type, right.type}
        ordered = kind not in (exp.EQ, exp.NEQ)
        plain = len(kinds) == 1 and kinds <= (
            {"VARCHAR", "DATE", "TIMESTAMP"} | (set() if ordered else {"BOOLEAN", "BLOB"})
        )
        pair = (left.ibis, right.ibis) if plain else self._numbers(node, left, right)
        return Value(ibis=_COMPARISONS[kind](*pair), type="BOOLEAN")

    def _alike(self, node: exp.Expr, one: Value, other: Value) -> Value:
        """A literal as what it is compared with: a text as a date, and midnight as its day."""
        import ibis.expr.operations as ops

        literal = one.ibis.op().find(ops.Field) == []
        if not literal or one.type == other.type or (one.type, other.type) not in (
            ("VARCHAR", "DATE"), ("VARCHAR", "TIMESTAMP"), ("DATE", "TIMESTAMP"), ("TIMESTAMP", "DATE"),
        ):  # fmt: skip
            return one
        (text,) = [found.value for found in one.ibis.op().find(ops.Literal)]
        read = self._constant(
            parse_one(f"CAST('{text.replace(chr(39), chr(39) * 2)}' AS {other.type})", dialect="duckdb")
        )
        if other.type == "DATE" and one.type == "TIMESTAMP" and not text.endswith("00:00:00"):
            self._refuse(node, "compare a date with a date.")
        return read

    def _numbers(self, node: exp.Expr, left: Value, right: Value) -> tuple[Expression, Expression]:
        """Two numbers as what they are compared as."""
        both = (left, right)
        if not all(one.number and one.exact for one in both) or "FLOAT" in {left.type, right.type}:
            self._refuse(
                node, "compare columns and literals of one kind; make numbers DOUBLE first: CAST(x AS DOUBLE)."
            )
        if "DOUBLE" in {left.type, right.type}:
            if any(one.rounded for one in both):
                self._refuse(node, "compare decimals with decimals.")
            return left.real, right.real
        if left.whole and right.whole:
            if left.given and right.given:
                return left.ibis.cast("int64"), right.ibis.cast("int64")
            if any(one.given and one.type in ("BIGINT", TOTAL) and not is_literal(one) for one in both):
                self._refuse(node, "make numbers DOUBLE first: CAST(x AS DOUBLE).")
            return left.real, right.real
        if not all(one.given and one.digits <= _COMPARED for one in both):
            self._refuse(node, "make numbers DOUBLE first: CAST(x AS DOUBLE).")
        sizes = [tuple(map(int, one.type[8:-1].split(","))) if one.digits else (19, 0) for one in both]
        scale = max(scale for _, scale in sizes)
        common = f"decimal({max(width - own for width, own in sizes) + scale}, {scale})"
        return left.ibis.cast(common), right.ibis.cast(common)

    def _bytes(self, node: exp.Expr) -> Value:
        """The bytes of a text, which are equal where no collation says so."""
        value = self.read(node.this)
        return Value(ibis=by_bytes(value.ibis), type="BLOB") if value.type == "VARCHAR" else self._refuse(node)

    def _text(self, node: exp.Expr) -> Value:
        """The text of the bytes of a text."""
        inner = node.this
        return self.read(inner.this) if isinstance(inner, exp.Encode) else self._refuse(node)

    def _is_null(self, node: exp.Expr) -> Value:
        if not isinstance(node.expression, exp.Null):
            self._refuse(node)
        return Value(ibis=is_null(self._sure(node.this).ibis), type="BOOLEAN")

    def _in(self, node: exp.Expr) -> Value:
        if {name for name, value in node.args.items() if value} != {"this", "expressions"}:
            self._refuse(node)
        value = self._sure(node.this)
        found = [self._compared(node, exp.EQ, value, self._sure(item)) for item in node.expressions]
        return replace(found[0], ibis=reduce(operator.or_, (one.ibis for one in found)))

    def _between(self, node: exp.Expr) -> Value:
        if node.args.get("symmetric"):
            self._refuse(node)
        value = self._sure(node.this)
        low, high = (self._sure(node.args[name]) for name in ("low", "high"))
        ends = [self._compared(node, kind, value, end) for kind, end in ((exp.GTE, low), (exp.LTE, high))]
        return replace(ends[0], ibis=ends[0].ibis & ends[1].ibis)

    # Values

    def _worked_out(self, node: exp.Expr, work: Callable[..., Expression], *parts: exp.Expr) -> Value:
        """Arithmetic, in float64: NULL where a whole number or a decimal is more than DuckDB's type holds."""
        found, type_ = [self.read(part) for part in parts], self._type(node)
        if not all(one.number for one in found) or type_ == "FLOAT":
            self._refuse(node, "make numbers DOUBLE first: CAST(x AS DOUBLE).")
        result = work(*(one.real for one in found))
        rounded, fallible = any(one.rounded for one in found), any(one.fallible for one in found)
        if type_ == "DOUBLE":
            return Value(ibis=result, type=type_, given=False, exact=not rounded, fallible=fallible)
        digits = replace(found[0], type=type_).digits
        if digits and digits > max(one.digits for one in found):  # otherwise it may overflow
            return Value(ibis=result, type=type_, given=False, exact=False, fallible=fallible)
        if type_ not in SMALL or any(one.type not in SMALL for one in found):
            self._refuse(node, "make numbers DOUBLE first: CAST(x AS DOUBLE).")
        return Value(ibis=within(result, type_), type=type_, given=False, fallible=True)

    def _divided(self, node: exp.Expr) -> Value:
        value, divisor = self.read(node.this), self.read(node.expression)
        by = node.expression.unnest()
        nullif = isinstance(by, exp.Nullif) and by.expression.sql("duckdb") in ("0", "0.0")
        if not (value.number and divisor.number) or self._type(node) != "DOUBLE":
            self._refuse(node)
        if not nullif and (not is_literal(divisor) or float(self._literal(by)) == 0):
            self._refuse(node, f"write / nullif({brief(by.sql('duckdb'))}, 0).")
        fallible = value.fallible or divisor.fallible
        exact = not (value.rounded or divisor.rounded)
        return Value(ibis=value.real / divisor.real, type="DOUBLE", given=False, exact=exact, fallible=fallible)

    def _literal(self, node: exp.Expr) -> Any:
        with alone() as connection:
            row = connection.execute(f"SELECT CAST({node.sql('duckdb')} AS DOUBLE)").fetchone()
        return 0 if row is None or row[0] is None else row[0]

    def _case(self, node: exp.Expr) -> Value:
        import ibis

        if node.args.get("this") is not None:
            self._refuse(node, "write CASE WHEN x = 1 THEN ...")
        whens = [self._sure(part.this) for part in node.args["ifs"]]
        if any(one.type != "BOOLEAN" for one in whens):
            self._refuse(node)
        default = node.args.get("default")
        thens = [self._sure(part.args["true"]) for part in node.args["ifs"]]
        thens += [] if default is None else [self._sure(default)]
        values, found = self._unified(node, thens)
        other = values.pop() if default is not None else ibis.null(values[0].type())
        cases = [(when.ibis, value) for when, value in zip(whens, values, strict=True)]
        return replace(found, ibis=ibis.cases(*cases, else_=other))

    def _coalesce(self, node: exp.Expr) -> Value:
        import ibis

        parts = [self._sure(part) for part in (node.this, *node.expressions)]
        values, found = self._unified(node, parts)
        # Not COALESCE itself, for which Ibis takes NaN for NULL in some engines.
        cases = [(~is_null(part.ibis), value) for part, value in zip(parts[:-1], values[:-1], strict=True)]
        return replace(found, ibis=ibis.cases(*cases, else_=values[-1]) if cases else values[-1])

    def _nullif(self, node: exp.Expr) -> Value:
        import ibis

        value, other = self._sure(node.this), self._sure(node.expression)
        same = self._compared(node, exp.EQ, value, other).ibis
        (kept,), found = self._unified(node, [value])
        return replace(found, ibis=ibis.ifelse(ibis.coalesce(same, ibis.literal(False)), ibis.null(kept.type()), kept))

    def _unified(self, node: exp.Expr, values: Sequence[Value]) -> tuple[list[Expression], Value]:
        """The branches of an expression as one type, and what they are then."""
        import ibis

        type_ = self._type(node)
        known = [one for one in values if one.type != "NULL"]
        if type_ == "DOUBLE" or type_.startswith("DECIMAL(") or not all(one.given for one in known):
            if not all(one.number and one.type != "FLOAT" for one in known) or type_ == "FLOAT":
                self._refuse(node)
            found = [ibis.null("float64") if one.type == "NULL" else one.real for one in values]
            exact = not any(one.rounded for one in known) and not type_.startswith("DECIMAL(")
            return found, Value(ibis=None, type=type_, given=False, exact=exact)
        if all(one.whole for one in known) and type_ in SMALL | {"BIGINT", TOTAL}:
            target = "int64"
        elif {one.type for one in known} == {type_}:
            target = known[0].ibis.type()
        else:
            self._refuse(node)
        found = [ibis.null(target) if one.type == "NULL" else one.ibis.cast(target) for one in values]
        return found, Value(ibis=None, type=type_)

    def _cast(self, node: exp.Expr) -> Value:
        import ibis

        type_, value = self._type(node), self.read(node.this)
        if value.type == type_:
            return value
        if type_ == "DOUBLE" and value.number:
            return replace(value, ibis=value.real, type=type_, given=False, exact=not value.rounded)
        if type_ in SMALL | {"BIGINT"} and value.type == "BOOLEAN":
            one, none = ibis.literal(1, "int64"), ibis.literal(0, "int64")
            number = ibis.cases((value.ibis, one), (~value.ibis, none), else_=ibis.null("int64"))
            return Value(ibis=number, type=type_, fallible=value.fallible)
        if type_ in SMALL | {"BIGINT"} and value.whole:
            if value.given:
                number = value.ibis.cast("int64")
                low, high = limits(type_)
                number = ibis.ifelse((number >= low) & (number <= high), number, ibis.null("int64"))
                narrow = type_ != "BIGINT" and isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast)
                return Value(ibis=number, type=type_, fallible=value.fallible or narrow)
            return replace(value, ibis=within(value.ibis, type_), type=type_, fallible=True)
        if type_ == "DATE" and value.type == "TIMESTAMP":
            return replace(value, ibis=value.ibis.date(), type=type_)
        self._refuse(node)

    def _part(self, node: exp.Expr, part: str, of: exp.Expr) -> Value:
        value = self.read(of)
        if value.type not in ("DATE", "TIMESTAMP") or part not in _PARTS.values():
            self._refuse(node)
        return Value(ibis=getattr(value.ibis, part)().cast("int64"), type=self._type(node), fallible=value.fallible)

    def _type(self, node: exp.Expr) -> str:
        return type_of(self._types, node.sql("duckdb"))


def _written(node: exp.Expr) -> exp.Expr:
    """A node as somebody wrote it, without what keeps it from failing and from being known."""
    return node.this if isinstance(node, exp.Try) else _known(node) or node


def _known(node: exp.Expr) -> exp.Expr | None:
    """What stands in an expression that DuckDB is to know nothing of, as ``opaque`` writes it; None of any other."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "union_extract":
        return None
    inner = node.expressions[0].expressions[0].expression
    shown = isinstance(inner, exp.Case) and FIRST in inner.sql("duckdb")
    found: exp.Expr = inner.args["ifs"][0].args["true"] if shown else inner
    return found
