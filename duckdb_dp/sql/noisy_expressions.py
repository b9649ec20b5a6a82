"""Expressions over aggregates: how the error of each follows from the noise of its sums, or that it does not.

To first order the error of a smooth expression is that of its linear part. An increasing function around it, such as round,
is applied to the ends of the interval instead. Of other expressions, such as CASE, no error is known.
"""

from dataclasses import dataclass

from sqlglot import exp

from duckdb_dp.sql.clamped_sums import has_aggregates, is_aggregate

HOLE = "@"
"""What stands for the inner expression while the text around it is made."""

_SMOOTH = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Neg,
    exp.Paren,
    exp.Literal,
    exp.Column,
    exp.Pow,
    exp.Sqrt,
    exp.Ln,
    exp.Exp,
)
_STEPS = (exp.Round, exp.Floor, exp.Ceil, exp.Cast, exp.TryCast, exp.Greatest, exp.Least, exp.Coalesce)
_CURVED = (exp.Sqrt, exp.Cbrt, exp.Ln, exp.Log, exp.Exp)

Outer = tuple[str, ...]
"""SQL around copies of an inner expression, which stands between each two texts."""

PLAIN: Outer = ("", "")
POSITIVE: Outer = ("((", ") + abs(", ")) / 2")
"""The positive part, which keeps NULL."""


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """An expression as an increasing function of another.

    Attributes:
        inner: the other one.
        outer: the function.
        curved: whether the function stretches, so that the standard deviation is a part of the interval's width.
        smooth: whether the inner expression has an error to first order.
        guards: what it divides by, which must be clearly away from 0.
    """

    inner: exp.Expr
    outer: Outer
    curved: bool
    smooth: bool
    guards: tuple[exp.Expr, ...]


def unwrap(node: exp.Expr) -> Unwrapped:
    """Take the increasing functions off an expression over aggregates."""
    outer, curved = PLAIN, False
    inner = node.unnest()
    while (child := _child(inner)) is not None:
        curved |= isinstance(inner, _CURVED)
        outer = compose(outer, _around(inner, child))
        inner = child.unnest()
    return Unwrapped(inner, outer, curved, _smooth(inner), tuple(_divisors(inner)))


def compose(outer: Outer, inner: Outer) -> Outer:
    """One function around another."""
    return tuple(f"{HOLE}".join(inner).join(outer).split(HOLE))


def _child(node: exp.Expr) -> exp.Expr | None:
    """The operand of an increasing function whose other operands are constants."""
    if not isinstance(node, _STEPS + _CURVED):
        return None
    operands = [
        value for name, value in node.args.items() if isinstance(value, exp.Expr) and name not in ("to", "expressions")
    ]
    operands += node.expressions
    varying = [operand for operand in operands if has_aggregates(operand)]
    constant = all(isinstance(operand, exp.Literal | exp.Neg) for operand in operands if operand not in varying)
    if len(varying) != 1 or not constant or (isinstance(node, exp.Round) and varying[0] is not node.this):
        return None
    if isinstance(node, exp.Log) and not _grows(node, varying[0]):
        return None
    return varying[0]


def _grows(node: exp.Log, child: exp.Expr) -> bool:
    """Whether it is a logarithm of the child to a base above 1."""
    base = node.this if node.args.get("expression") is not None else exp.Literal.number(10)
    return child is not base and isinstance(base, exp.Literal) and not base.is_string and float(base.this) > 1


def _around(node: exp.Expr, child: exp.Expr) -> Outer:
    """The text of a function around its operand."""
    hole = exp.column(exp.to_identifier(HOLE, quoted=True))
    found = node.copy()
    for name, value in node.args.items():
        if value is child:
            found.set(name, hole)
        elif isinstance(value, list) and any(item is child for item in value):
            found.set(name, [hole if item is child else item.copy() for item in value])
    return tuple(found.sql("duckdb").split(f'"{HOLE}"'))


def _smooth(node: exp.Expr) -> bool:
    if is_aggregate(node) or not has_aggregates(node):
        return True
    children = [child for child in node.args.values() if isinstance(child, exp.Expr)]
    return isinstance(node, _SMOOTH) and all(map(_smooth, children))


def _divisors(node: exp.Expr) -> list[exp.Expr]:
    if is_aggregate(node):
        return []
    children = [child for child in node.args.values() if isinstance(child, exp.Expr)]
    own = [node.expression] if isinstance(node, exp.Div) and has_aggregates(node.expression) else []
    return own + [found for child in children for found in _divisors(child)]
