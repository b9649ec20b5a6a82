"""Expressions that no value of a row can make fail: comparisons of what can be compared, and everything else inside TRY."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import final

import duckdb
from sqlglot import exp

from duckdb_dp.domain.try_catches import dated
from duckdb_dp.errors import DPError, brief, first_line
from duckdb_dp.sql.constants import compared
from duckdb_dp.sql.opaque import whole, with_opaque_columns
from duckdb_dp.sql.typed import alone, nulls

TypeOf = Callable[[exp.Column], str]
"""The type of a column."""

_WHOLE = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_NUMBERS = {"whole", "exact", "double"}
_DIGITS = {
    "TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "UTINYINT": 3, "USMALLINT": 5, "UINTEGER": 10, "UBIGINT": 20,
}  # fmt: skip
MOST_DIGITS = 38
"""Of a DECIMAL."""
WIDE = {"UBIGINT", "HUGEINT", "UHUGEINT"}
"""Whole numbers that may have more digits than a DOUBLE."""
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)


def kind(type_: str) -> str:
    """What can be compared with what: types of one kind, and numbers with numbers, never fail."""
    if type_ in _WHOLE:
        return "whole"
    if type_ in ("FLOAT", "DOUBLE"):
        return "double"
    found = re.fullmatch(r"DECIMAL\((\d+),\s*\d+\)", type_)
    return "exact" if found and int(found.group(1)) <= 18 else type_


def comparable(first: str, second: str) -> bool:
    """Whether values of two kinds are compared without a conversion that may fail."""
    return first == second or {first, second} <= _NUMBERS or '"NULL"' in (first, second)


def fits(first: str, second: str) -> bool:
    """Whether numbers of two SQL types have a common type that holds all values of both: then none fails to be converted to it.

    DECIMAL(p, s) has p - s digits before the point and s after it, and a whole number has as many as its largest value. DuckDB
    compares both as the DECIMAL with the more of each, which is cut to 38 digits: only then a value may not fit. A sum of
    DECIMAL(18, s), or of narrower ones, is a DECIMAL(38, s): 2^63 rows of less than 10^18 units are less than 10^38.
    """
    if "DOUBLE" in (first, second):
        return all(type_ in ("DOUBLE", "FLOAT", "HUGEINT") or _digits(type_) is not None for type_ in (first, second))
    if "HUGEINT" in (first, second):
        return {first, second} <= {*_DIGITS, "HUGEINT"}
    one, two = _digits(first), _digits(second)
    return one is not None and two is not None and max(one[0], two[0]) + max(one[1], two[1]) <= MOST_DIGITS


def _digits(type_: str) -> tuple[int, int] | None:
    """How many digits exact numbers of a type have before the point, and after it."""
    if type_ in _DIGITS:
        return _DIGITS[type_], 0
    found = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", type_)
    return (int(found[1]) - int(found[2]), int(found[2])) if found else None


@lru_cache(maxsize=4096)
def constant(text: str) -> str:
    """The type of an expression without columns.

    Raises:
        DPError: it fails, as it would for every row.
    """
    with alone() as connection:
        try:
            rows = connection.execute(
                f"SELECT typeof(x), hash(x) FROM (SELECT ({text}) AS x)"
            ).fetchall()  # typeof alone works nothing out
        except duckdb.Error as error:
            raise DPError(f"{brief(text)}: {first_line(error)}") from None
    return str(rows[0][0])


@lru_cache(maxsize=4096)
def described(select: str) -> tuple[tuple[str, str], ...]:
    """Names and types of the columns of a SELECT without tables.

    Raises:
        DPError: DuckDB cannot bind it.
    """
    with alone() as connection:
        try:
            connection.execute(select).fetchall()
            return tuple((row[0], row[1]) for row in connection.execute(f"DESCRIBE {select}").fetchall())
        except duckdb.Error as error:
            raise DPError(first_line(error)) from None


@final
class Totals:
    """Makes expressions total.

    Args:
        type_of: the type of a column.
        as_asked: an expression in the words of the statement, for errors.
    """

    def __init__(self, type_of: TypeOf, as_asked: Callable[[exp.Expr], exp.Expr]) -> None:
        self._type_of, self._as_asked = type_of, as_asked

    def value(self, node: exp.Expr) -> exp.Expr:
        """The expression, with NULL where its value cannot be worked out."""
        return self._total(node)[0]

    def type(self, node: exp.Expr) -> str:
        """The SQL type of an expression.

        Raises:
            DPError: it does not fit the types of its columns.
        """
        names: dict[str, str] = {}
        taken: set[str] = set()

        def one(inner: exp.Expr) -> exp.Expr:
            if not isinstance(inner, exp.Column):
                return inner
            name = inner.name
            while name.lower() in taken and names.get(name) != self._type_of(inner):
                name += "_"
            taken.add(name.lower())
            names[name] = self._type_of(inner)
            return exp.column(name, quoted=True)

        text = node.transform(one).sql("duckdb")
        return typed(text, names, lambda: self._as_asked(node))

    def _total(self, node: exp.Expr) -> tuple[exp.Expr, str]:
        """An equal expression that never fails, and its kind."""
        if isinstance(node, exp.Column):
            return node, kind(self._type_of(node))
        if isinstance(node, exp.Paren):
            inner, found = self._total(node.this)
            return exp.paren(inner, copy=False), found
        if not node.find(exp.Column):
            return node, kind(constant(node.sql("duckdb")))
        made = self._known(compared(node, self._type_of))
        if made is not None:
            return made
        if _reads_query(node):
            raise DPError(
                f"{brief(self._as_asked(node).sql('duckdb'))} may fail on a value, and TRY(...) takes no subquery; give the "
                "subquery a column of its own: FROM (SELECT *, (SELECT ...) AS x FROM ...)."
            )
        self._check_parts(node)
        types: dict[str, str] = {}
        for column in node.find_all(exp.Column):
            type_ = self._type_of(column)
            types[column.name] = type_ if types.get(column.name, type_) == type_ else ""  # of two tables
        inside = node if whole(node, types) else with_opaque_columns(node, self._type_of)
        return exp.Anonymous(this="TRY", expressions=[inside]), kind(self.type(node))

    def _fit(self, node: exp.Expr, parts: Sequence[exp.Expr]) -> bool:
        """Whether the value of a subquery is among the parts of a node, and all of them are numbers of types that fit together.

        Other parts than these stand in TRY, where nothing needs to fit.
        """
        if not _reads_query(node):
            return False
        types = [self.type(part) if part.find(exp.Column) else constant(part.sql("duckdb")) for part in parts]
        return all(fits(one, two) for one, two in itertools.combinations(types, 2))

    def _check_parts(self, node: exp.Expr) -> None:
        """Refuse what one value makes fail in an error that TRY lets through: parts of dates of an INTERVAL, and what is made of ARRAYs."""
        for column in node.find_all(exp.Column):
            if re.search(r"\[\d+\]$", type_ := self._type_of(column)):  # in DuckDB 1.4 CASE and coalesce
                raise DPError(
                    f"{brief(self._as_asked(column).sql('duckdb'))} is {type_}, of which nothing is worked out; ask whether it IS NULL."
                )
        for inner in node.walk():
            of = dated(inner)
            if of is not None and self.type(of) == "INTERVAL":
                raise DPError(
                    f"{brief(self._as_asked(inner).sql('duckdb'))} asks an INTERVAL for a part of a date; ask for its days, "
                    "date_part('day', ...), or its seconds, epoch(...)."
                )

    def _known(self, node: exp.Expr) -> tuple[exp.Expr, str] | None:
        """Of syntax that cannot fail where its parts do not; None for others."""
        if isinstance(node, exp.And | exp.Or | exp.Not | exp.Neg):
            parts = {name: self._total(node.args[name]) for name in ("this", "expression") if node.args.get(name)}
            wanted = {"double"} if isinstance(node, exp.Neg) else {"BOOLEAN", '"NULL"'}
            if all(found in wanted for _, found in parts.values()):
                return _with(node, {name: each for name, (each, _) in parts.items()}), (
                    "double" if isinstance(node, exp.Neg) else "BOOLEAN"
                )
        elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null | exp.Boolean):
            inner, found = self._total(node.this)
            if isinstance(node.expression, exp.Null) or found == "BOOLEAN":
                return _with(node, {"this": inner}), "BOOLEAN"
        elif isinstance(node, _COMPARED):
            (left, one), (right, two) = self._total(node.this), self._total(node.expression)
            if comparable(one, two) or self._fit(node, [node.this, node.expression]):
                return _with(node, {"this": left, "expression": right}), "BOOLEAN"
        elif isinstance(node, exp.Between):
            names = ("this", "low", "high")
            made = {name: self._total(node.args[name]) for name in names}
            alike = all(comparable(made["this"][1], made[name][1]) for name in names[1:])
            if alike or self._fit(node, [node.args[name] for name in names]):
                return _with(node, {name: each for name, (each, _) in made.items()}), "BOOLEAN"
        elif isinstance(node, exp.In) and node.expressions:
            inner, found = self._total(node.this)
            listed = [self._total(item) for item in node.expressions]
            if all(comparable(found, each) for _, each in listed) or self._fit(node, [node.this, *node.expressions]):
                return _with(node, {"this": inner, "expressions": [item for item, _ in listed]}), "BOOLEAN"
        elif isinstance(node, exp.Coalesce) and _reads_query(node):
            given = [node.this, *node.expressions]
            parts_ = [self._total(part) for part in given]
            if all(comparable(parts_[0][1], each) for _, each in parts_) or self._fit(node, given):
                (first, _), *others = parts_
                return _with(node, {"this": first, "expressions": [part for part, _ in others]}), kind(self.type(node))
        elif isinstance(node, exp.Case) and _reads_query(node) and node.this is None:
            return self._case(node)
        elif isinstance(node, exp.Like | exp.ILike) and node.expression.find(exp.Column) is None:
            inner, found = self._total(node.this)
            if found == "VARCHAR":
                return _with(node, {"this": inner}), "BOOLEAN"
        elif isinstance(node, exp.Div):
            (left, one), (right, two) = self._total(node.this), self._total(node.expression)
            if {one, two} <= _NUMBERS or self._fit(node, [node.this, node.expression, _DOUBLE]):
                # in doubles, whatever the setting integer_division says
                return _with(node, {"this": exp.cast(left, "DOUBLE"), "expression": right}), "double"
        elif isinstance(node, exp.Add | exp.Sub | exp.Mul):
            (left, one), (right, two) = self._total(node.this), self._total(node.expression)
            if "double" in (one, two) and ({one, two} <= _NUMBERS or self._fit(node, [node.this, node.expression])):
                return _with(node, {"this": left, "expression": right}), "double"
        return None

    def _case(self, node: exp.Case) -> tuple[exp.Expr, str] | None:
        """CASE of conditions that never fail, with values of one kind."""
        whens = [(self._total(one.this), self._total(one.args["true"])) for one in node.args["ifs"]]
        default = None if node.args.get("default") is None else self._total(node.args["default"])
        kinds = [found for _, (_, found) in whens] + ([] if default is None else [default[1]])
        if any(found not in ("BOOLEAN", '"NULL"') for (_, found), _ in whens) or not all(
            comparable(kinds[0], each) for each in kinds
        ):
            return None
        ifs = [exp.If(this=condition, true=value) for (condition, _), (value, _) in whens]
        return exp.Case(ifs=ifs, default=None if default is None else default[0]), kind(self.type(node))


_DOUBLE = exp.cast(exp.Literal.number(0), "DOUBLE")


def typed(text: str, columns: Mapping[str, str], shown: Callable[[], exp.Expr]) -> str:
    """The type of an expression over columns of these types.

    Raises:
        DPError: it does not fit them; ``shown`` says how it was written.
    """
    try:
        return described(f"SELECT ({text}) AS found FROM ({nulls(columns)})")[0][1]
    except DPError as error:
        raise DPError(f"{brief(shown().sql('duckdb'))}: {error}") from None


def _reads_query(node: exp.Expr) -> bool:
    """Whether it has the value of a subquery in it, which TRY does not take."""
    return any(not column.table for column in node.find_all(exp.Column))


def _with(node: exp.Expr, parts: Mapping[str, object]) -> exp.Expr:
    found = node.copy()
    for name, part in parts.items():
        found.set(name, part)
    return found
