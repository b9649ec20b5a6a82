"""SQL conditions as exact sets of cells of the declared domain; a condition that bins cannot decide is an error.

A condition is evaluated on every cell of the attributes that it names, with SQL's three truth values. A cell that holds
several values (a bin) is decided only where all its values agree; a condition that cuts through one is an error.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from duckdb_dp.domain.domain import Attribute, UnknownAttribute
from duckdb_dp.domain.hidden_cells import beyond
from duckdb_dp.domain.not_parsed import why_not_parsed
from duckdb_dp.errors import DPError, as_sql, brief, few

Mask = NDArray[np.bool_]

_COMPARE: dict[type[exp.Expr], tuple[str, Callable[[Any, Any], Any]]] = {
    exp.EQ: ("=", operator.eq),
    exp.NEQ: ("<>", operator.ne),
    exp.LT: ("<", operator.lt),
    exp.LTE: ("<=", operator.le),
    exp.GT: (">", operator.gt),
    exp.GTE: (">=", operator.ge),
}
_UNDERSTOOD = {"this", "expression", "expressions", "low", "high", "negate", "table"}
_MIRROR = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


MAX_TIED = 65_536
"""Most cells of the attributes of one condition on several: queries on more are not planned either."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Three-valued truth on an array of cells: true, or unknown (NULL), else false."""

    true: Mask
    unknown: Mask

    def __and__(self, other: "Truth") -> "Truth":
        false = (~self.true & ~self.unknown) | (~other.true & ~other.unknown)
        true = self.true & other.true
        return Truth(true, ~true & ~false)

    def __or__(self, other: "Truth") -> "Truth":
        return ~(~self & ~other)

    def __invert__(self) -> "Truth":
        return Truth(~self.true & ~self.unknown, self.unknown)


def parse_condition(text: str) -> exp.Expr:
    """A SQL condition in DuckDB's dialect.

    Raises:
        DPError: it does not parse.
    """
    try:
        found = parse_one(text, into=exp.Condition, dialect="duckdb")
    except SqlglotError as error:
        raise DPError(f"the condition {as_sql(text)} does not parse: {why_not_parsed(error)}") from None
    return found


def attributes_of(condition: exp.Expr, declared: Mapping[str, Attribute]) -> list[Attribute]:
    """The declared attributes that a condition names, in the declared order.

    Raises:
        DPError: it names a column without a declared domain.
    """
    names = {_attribute(column, declared).name for column in condition.find_all(exp.Column)}
    return [attribute for name, attribute in declared.items() if name in names]


def cells_where(condition: exp.Expr, attributes: Sequence[Attribute]) -> Mask:
    """Which cells of the attributes satisfy a condition; shape: their sizes. NULL counts as not satisfied.

    Raises:
        DPError: the condition cuts through a bin, is not decided on the 'other' cell, or uses what is not understood.
    """
    cells = math.prod(attribute.size for attribute in attributes)
    if len(attributes) > 1 and cells > MAX_TIED:
        raise DPError(
            f"{brief(condition.sql('duckdb'))} ties {few(a.name for a in attributes)} together, {cells:,} cells, and such "
            f"conditions are worked out up to {MAX_TIED:,}; declare coarser bins, or tie fewer columns."
        )
    return _Evaluator(attributes).truth(condition).true


def cells_that_may(condition: exp.Expr, attribute: Attribute) -> Mask:
    """Which cells of an attribute may hold a value that satisfies a condition: those of ``cells_where``, and the bins it cuts through.

    Raises:
        DPError: as there, but for what bins do not decide.
    """
    return _Evaluator([attribute], may=True).truth(condition).true


class _Evaluator:
    """One condition on the product of some attributes' cells; axis i is attribute i.

    Args:
        attributes: the attributes.
        may: whether a bin satisfies a comparison where some of its values do; else that is an error.
    """

    def __init__(self, attributes: Sequence[Attribute], *, may: bool = False) -> None:
        self._may = may
        self._attributes = {attribute.name: attribute for attribute in attributes}
        self._axis = {attribute.name: axis for axis, attribute in enumerate(attributes)}
        self._shape = tuple(attribute.size for attribute in attributes)

    def truth(self, node: exp.Expr) -> Truth:
        if {key for key, value in node.args.items() if value} - _UNDERSTOOD:
            return _refuse(node)  # the parser notes in extra arguments what changes a node's meaning
        if isinstance(node, exp.Paren):
            return self.truth(node.this)
        if isinstance(node, exp.And):
            return self.truth(node.this) & self.truth(node.expression)
        if isinstance(node, exp.Or):
            return self.truth(node.this) | self.truth(node.expression)
        if isinstance(node, exp.Not):
            return self._not(node)
        if isinstance(node, exp.Boolean):
            return self._everywhere(bool(node.this))
        if isinstance(node, exp.Between):
            low = exp.GTE(this=node.this, expression=node.args["low"])
            return self.truth(low) & self.truth(exp.LTE(this=node.this, expression=node.args["high"]))
        if isinstance(node, exp.In) and node.expressions:
            found = self._everywhere(False)
            for value in node.expressions:
                found |= self.truth(exp.EQ(this=node.this, expression=value))
            return found
        if isinstance(node, exp.Is):
            return self._is(node)
        if isinstance(node, exp.Like | exp.ILike):
            return self._like(node)
        if type(node) in _COMPARE:
            return self._compare(node)
        if isinstance(node, exp.Column):
            return self._compare(exp.EQ(this=node, expression=exp.true()))
        return _refuse(node)

    def _not(self, node: exp.Not) -> Truth:
        for column in node.find_all(exp.Column):
            attribute = _attribute(column, self._attributes)
            if attribute.other and not attribute.nulls:
                raise DPError(
                    f"{brief(node.sql('duckdb'))}: NULL and other values share a cell of '{attribute.name}', and NOT tells them "
                    "apart; declare it with nulls := true."
                )
        return ~(_Evaluator([*self._attributes.values()]).truth(node.this) if self._may else self.truth(node.this))

    def _everywhere(self, value: bool) -> Truth:
        return Truth(np.full(self._shape, value), np.zeros(self._shape, dtype=bool))

    def _along(self, attribute: Attribute, cells: Sequence[bool | None]) -> Truth:
        """Truth values of one attribute's cells, spread over the others."""
        shape = [1] * len(self._shape)
        shape[self._axis[attribute.name]] = -1
        true = np.array([cell is True for cell in cells]).reshape(shape)
        unknown = np.array([cell is None for cell in cells]).reshape(shape)
        return Truth(np.broadcast_to(true, self._shape), np.broadcast_to(unknown, self._shape))

    def _is(self, node: exp.Expr) -> Truth:
        if isinstance(node.this, exp.Column) and isinstance(node.expression, exp.Null):
            attribute = _attribute(node.this, self._attributes)
            if attribute.other and not attribute.nulls:
                raise DPError(
                    f"{brief(node.sql('duckdb'))}: NULL shares the 'other' cell of '{attribute.name}'; declare it with nulls := true."
                )
            hidden = [what == "null" for what in attribute.hidden]
            return self._along(attribute, [*(label is None for label in attribute.labels()), *hidden])
        if isinstance(node.this, exp.Column) and isinstance(node.expression, exp.Boolean):
            found = self._compare(exp.EQ(this=node.this, expression=node.expression))
            return Truth(found.true, np.zeros(self._shape, dtype=bool))
        return _refuse(node)

    def _like(self, node: exp.Expr) -> Truth:
        if not isinstance(node.this, exp.Column) or not isinstance(node.expression, exp.Literal):
            return _refuse(node)
        attribute = _attribute(node.this, self._attributes)
        if not attribute.dtype.textual:
            raise DPError(
                f"{brief(node.sql('duckdb'))}: '{attribute.name}' is no text; compare it with =, <, BETWEEN or IN."
            )
        matches = _like_pattern(str(node.expression.this), ignore_case=isinstance(node, exp.ILike))
        each = self._each(attribute, node, matches)
        found = self._along(attribute, each + beyond(attribute, None, None, node))
        return ~found if node.args.get("negate") else found

    def _compare(self, node: exp.Expr) -> Truth:
        symbol, function = _COMPARE[type(node)]
        left, right = node.this.unnest(), node.expression.unnest()
        if isinstance(right, exp.Column) and _constant(left) is not None:
            left, right, symbol = right, left, _MIRROR[symbol]
            function = next(f for s, f in _COMPARE.values() if s == symbol)
        value = _constant(right)
        if isinstance(left, exp.Column) and value is not None:
            attribute = _attribute(left, self._attributes)
            point = _as_point(attribute, value, node)
            if attribute.kind == "bins":
                shown = _decide(attribute, function, point, node, may=self._may)
                return self._along(attribute, shown + beyond(attribute, function, point, node))
            if symbol == "=" and attribute.other and value in (declared := _declared_values(attribute)):
                equal = [attribute.dtype.order(each) == point for each in declared]
                return self._along(attribute, [*equal, False, *([None] * attribute.nulls)])
            each = self._each(attribute, node, lambda label: bool(function(attribute.dtype.order(label), point)))
            return self._along(attribute, each + beyond(attribute, function, point, node))
        numbers = [self._number(side, node) for side in (left, right)]
        unknown = np.isnan(numbers[0]) | np.isnan(numbers[1])
        return Truth(np.broadcast_to(function(*numbers) & ~unknown, self._shape), np.broadcast_to(unknown, self._shape))

    def _each(self, attribute: Attribute, node: exp.Expr, decide: Callable[[Any], bool]) -> list[bool | None]:
        """The condition on every single-valued cell; NULL is unknown, and 'other' cannot be told."""
        if attribute.kind == "bins":
            raise DPError(
                f"{brief(node.sql('duckdb'))}: '{attribute.name}' is declared in bins; compare it with their edges by <, >= or BETWEEN."
            )
        if attribute.other:
            raise DPError(
                f"{brief(node.sql('duckdb'))}: it is not known for the values in the 'other' cell of '{attribute.name}'; "
                "use = or IN with declared values."
            )
        return [None if label is None else decide(label) for label in attribute.labels()]

    def _number(self, node: exp.Expr, whole: exp.Expr) -> NDArray[np.float64]:
        """A number per cell, NaN for NULL: columns of single numbers, literals, +, -, * and abs."""
        node = node.unnest()
        if (value := _constant(node)) is not None and isinstance(value, int | float):
            return np.array(float(value))
        if isinstance(node, exp.Column):
            attribute = _attribute(node, self._attributes)
            if attribute.kind == "bins" or attribute.other or not attribute.dtype.numeric:
                raise DPError(
                    f"{brief(whole.sql('duckdb'))}: '{attribute.name}' has no single number per cell; declare it by low and high with "
                    "step 1 or by values, or compare it with bin edges alone."
                )
            shape = [1] * len(self._shape)
            shape[self._axis[attribute.name]] = -1
            labels = [math.nan if label is None else float(label) for label in attribute.labels()]
            labels += [math.nan for _ in beyond(attribute, None, None, whole)]
            return np.array(labels).reshape(shape)
        if type(node) in _ARITHMETIC:
            return np.asarray(
                _ARITHMETIC[type(node)](self._number(node.this, whole), self._number(node.expression, whole))
            )
        if isinstance(node, exp.Abs):
            return np.abs(self._number(node.this, whole))
        if isinstance(node, exp.Neg):
            return -self._number(node.this, whole)
        return _refuse(whole)


def _attribute(column: exp.Column, declared: Mapping[str, Attribute]) -> Attribute:
    for name, attribute in declared.items():
        if name.lower() == column.name.lower():
            return attribute
    raise UnknownAttribute(column.name, declared)


def _declared_values(attribute: Attribute) -> Sequence[Any]:
    """The values that have a cell of their own."""
    if attribute.kind == "integers":
        low, high = attribute.points
        return range(int(low), int(high) + 1)
    return attribute.points


def _constant(node: exp.Expr) -> str | int | float | bool | None:
    """The value of a literal, also negative or typed (DATE '2020-01-01'); None for anything else."""
    if isinstance(node, exp.Paren):
        return _constant(node.this)
    if isinstance(node, exp.Cast):
        return _typed(node)
    if isinstance(node, exp.Neg):
        inner = _constant(node.this)
        return -inner if isinstance(inner, int | float) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return int(node.this) if str(node.this).isdigit() else _exact_float(str(node.this))
    return None


def _exact_float(text: str) -> float | None:
    """The number, where a float is all of it."""
    found = float(text)
    return found if math.isfinite(found) and Fraction(repr(found)) == Fraction(text) else None


def _typed(node: exp.Cast) -> str | None:
    """The text of a moment such as DATE '2020-01-01'; other casts, which may round, are not understood."""
    name, text = node.to.sql("duckdb"), _constant(node.this)
    plain = {"DATE": r"\d{4}-\d\d-\d\d", "TIME": r"\d\d:.*"}.get(name, r"\d{4}-.*")
    known = name in ("DATE", "TIME") or (name.startswith("TIMESTAMP") and "TZ" not in name and "ZONE" not in name)
    return text if known and isinstance(text, str) and re.fullmatch(plain, text) else None


def _as_point(attribute: Attribute, value: Any, node: exp.Expr) -> Any:
    """A literal as something that orders like the attribute's labels."""
    dtype = attribute.dtype
    point = dtype.asked(value, typed=node.find(exp.Cast) is not None)
    try:
        if point is not None:
            return dtype.amount(point) if attribute.kind == "bins" else dtype.order(point)
    except (ValueError, OverflowError):
        pass
    raise DPError(
        f"{brief(node.sql('duckdb'))}: {as_sql(value)} does not fit '{attribute.name}', a column of type {attribute.type}."
    )


def _decide(
    attribute: Attribute, function: Callable[[Any, Any], Any], point: Any, node: exp.Expr, *, may: bool
) -> list[bool | None]:
    """A comparison on every cell of bins: the same for all values that the column's type has in one, or an error, or with ``may`` True.

    Between two edges lie [lowest, highest], in the type's own unit: <= '2020-01-31' is all of the days before February.
    """
    found: list[bool | None] = []
    held = attribute.dtype.continuous or point == int(point)  # else between two values of the column
    for cell, (lowest, highest) in enumerate(attribute.held):
        # Every comparison is monotonic, but for = and <> of a value between the ends.
        ends = {bool(function(lowest, point)), bool(function(highest, point))}
        inside = held and function in (operator.eq, operator.ne) and lowest < point < highest
        if lowest <= highest and (inside or len(ends) > 1) and not may:
            raise DPError(
                f"{brief(node.sql('duckdb'))} cuts through the bin {attribute.labels()[cell]} of '{attribute.name}'; "
                f"what is known of it are its bin edges: {_edges_near(attribute, cell)}."
            )
        found.append(True in ends or inside)
    if attribute.other and may:
        found.append(True)
    elif attribute.other:
        raise DPError(
            f"{brief(node.sql('duckdb'))}: it is not known for the values in the 'other' cell of '{attribute.name}'; declare it "
            "without other, with bins for all values."
        )
    return found + [None] * attribute.nulls


def _edges_near(attribute: Attribute, cell: int) -> str:
    """The edges next to a bin, at most five."""
    edges = [str(edge) for edge in attribute.points]
    start = max(0, min(cell - 1, len(edges) - 5))
    shown = edges[start : start + 5]
    return ", ".join(["..."] * (start > 0) + shown + ["..."] * (start + 5 < len(edges)))


def _like_pattern(pattern: str, *, ignore_case: bool) -> Callable[[Any], bool]:
    regex = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
    compiled = re.compile(regex, re.DOTALL | (re.IGNORECASE if ignore_case else 0))
    return lambda label: compiled.fullmatch(str(label)) is not None


def _refuse(node: exp.Expr) -> NoReturn:
    raise DPError(
        f"{brief(node.sql('duckdb'))} cannot be answered from the declared domain; conditions are AND, OR, NOT over =, <, <=, "
        "BETWEEN, IN, LIKE and IS NULL of declared columns, and sums or differences of whole-number columns."
    )
