"""Expressions over aggregates: how the error of each follows from the noise of its sums, or that it does not.

To first order the error of a smooth expression is that of its linear part. An increasing function around it, such as round,
is applied to the ends of the interval instead. Of other expressions, such as CASE, no error is known.

Noise moves an answer out of what sqrt, ln, logarithms and roots are functions of: there they are NULL, and the ends of an interval are
moved to the nearest number that they are a function of.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from duckdb_dp.errors import DPError, brief, identifier
from duckdb_dp.outputs import LEAST, Piece, Product
from duckdb_dp.sql.clamped_sums import has_aggregates, is_aggregate
from duckdb_dp.sql.products import number, products, too_many, written

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
    exp.Log,
    exp.Cbrt,
    exp.Exp,
)
MOST_NODES = 2_000
"""Names, numbers and operators that an output stands for, where it names others."""
MOST_NESTED = 3
"""Functions that are not defined everywhere in each other, as sqrt(ln(x))."""
_STEPS = (exp.Round, exp.Floor, exp.Ceil, exp.Cast, exp.TryCast, exp.Greatest, exp.Least, exp.Coalesce)
_CURVED = (exp.Sqrt, exp.Ln, exp.Log, exp.Cbrt, exp.Exp, exp.Pow)

Outer = tuple[str, ...]
"""SQL around copies of an inner expression, which stands between each two texts."""

PLAIN: Outer = ("", "")
ROOT: Outer = ("sqrt(", ")")
POSITIVE: Outer = ("((", ") + abs(", ")) / 2")
"""The positive part, which keeps NULL."""


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """An expression as an increasing function of another.

    Attributes:
        inner: the other one.
        outer: the function.
        ends: the same for the ends of an interval, which are moved into its domain.
        curved: whether the function stretches, so that the standard deviation is a part of the interval's width.
        smooth: whether the inner expression has an error to first order.
        guards: what it divides by, which must be clearly away from 0.
    """

    inner: exp.Expr
    outer: Outer
    ends: Outer
    curved: bool
    smooth: bool
    guards: tuple[exp.Expr, ...]

    def of(self, function: Outer, *, curved: bool = False) -> "Unwrapped":
        """The same function of another one."""
        outer, ends = (compose(around, function) for around in (self.outer, self.ends))
        return replace(self, outer=outer, ends=ends, curved=self.curved or curved)


def unwrap(node: exp.Expr) -> Unwrapped:
    """Take the increasing functions off an expression over aggregates.

    Raises:
        DPError: functions that are not defined everywhere stand too deep in each other, or // is asked of noisy answers.
    """
    _check_nesting(node)
    check_whole(node, has_aggregates)
    outer = ends = PLAIN
    curved = False
    inner = plain(node, has_aggregates).unnest()
    while (child := _child(inner)) is not None:
        curved |= isinstance(inner, _CURVED)
        value, end = _around(inner, child)
        outer, ends = compose(outer, value), compose(ends, end)
        inner = child.unnest()
    smooth = _smooth(inner) and not too_many(inner, has_aggregates)
    return Unwrapped(inner, outer, ends, curved, smooth, tuple(_divisors(inner)))


def plain(node: exp.Expr, noisy: Callable[[exp.Expr], bool]) -> exp.Expr:
    """An expression without what changes nothing of noisy answers.

    That are casts to DOUBLE, which they are, inside of others; and NULLIF(x, 0) as a divisor, as a quotient is NULL anyhow where its
    divisor is not clearly away from 0.

    Args:
        node: an expression.
        noisy: whether an expression has noisy answers in it.
    """
    found = node.copy()
    for cast in list(found.find_all(exp.Cast, exp.TryCast)):
        inside = cast.this.unnest()
        numeric = is_aggregate(inside) or isinstance(inside, (*_SMOOTH, exp.Nullif))
        if cast is not found and cast.to.is_type("DOUBLE") and numeric and noisy(inside):
            cast.replace(exp.paren(cast.this))
    for quotient in list(found.find_all(exp.Div)):
        divisor = quotient.expression.unnest()
        if isinstance(divisor, exp.Nullif) and number(divisor.expression) == 0 and noisy(divisor.this):
            divisor.replace(exp.paren(divisor.this))
    return found


def product(found: Unwrapped, pieces: Callable[[exp.Expr], tuple[Piece, ...]]) -> Product | None:
    """How the interval of the inner expression follows from those of its factors; None where it has no products."""
    if not found.smooth or not products(found.inner, has_aggregates):
        return None
    factors, low, high = written(found.inner, has_aggregates)
    return Product(tuple(map(pieces, factors)), low, high)


def in_domain(node: exp.Expr) -> exp.Expr:
    """A function that is NULL, and not NaN or an error, where noise has moved its operands out of its domain.

    Raises:
        DPError: such functions stand too deep in each other.
    """
    if not isinstance(node, exp.Sqrt | exp.Ln | exp.Log | exp.Pow):
        return node
    _check_nesting(node)
    found, domain = node.copy(), _domain(node)
    for name in ("this", "expression") if isinstance(node, exp.Log) else ("this",):
        operand = node.args.get(name)
        if domain and isinstance(operand, exp.Expr) and number(operand) is None:
            kind = exp.GT if domain == ">" else exp.GTE
            inside = kind(this=exp.paren(operand.copy()), expression=exp.Literal.number(0))
            found.set(name, exp.case().when(inside, exp.paren(operand.copy())))
    return found


def all_in_domain(query: exp.Query) -> exp.Query:
    """A copy of a statement on noisy answers, whose functions are so."""
    found = query.copy()
    for node in reversed(list(found.find_all(exp.Sqrt, exp.Ln, exp.Log, exp.Pow))):  # those inside of others first
        node.replace(in_domain(node))
    return found


def check_whole(node: exp.Expr, noisy: Callable[[exp.Expr], bool]) -> None:
    """Refuse a // of noisy answers, which are no whole numbers: DuckDB would not cut off what is behind the point, as it does of counts.

    Args:
        node: an expression, or a statement.
        noisy: whether an expression has noisy answers in it.

    Raises:
        DPError: there is one.
    """
    for one in node.find_all(exp.IntDiv):
        for side in (one.this.unnest(), one.expression.unnest()):
            whole = isinstance(side, exp.Cast | exp.TryCast) and side.to.is_type(*exp.DataType.INTEGER_TYPES)
            if noisy(side) and not whole:
                raise DPError(
                    f"{brief(one.sql('duckdb'))}: noisy answers are no whole numbers, and // is for these; write floor(a / b), or "
                    "trunc(a / b)."
                )


def _check_nesting(node: exp.Expr) -> None:
    """Refuse what would become a text of exponential length: each function that is not defined everywhere takes its operand again.

    Raises:
        DPError: more than ``MOST_NESTED`` stand in each other.
    """
    if _nested(node) > MOST_NESTED:
        raise DPError(
            f"sqrt, ln, log and power stand in each other more than {MOST_NESTED} deep; ask the inner ones as columns of a subquery "
            "in FROM, and write the outer ones above it."
        )


def _nested(node: exp.Expr) -> int:
    """How deep such functions stand in each other."""
    return bool(_domain(node)) + max((_nested(child) for child in node.iter_expressions()), default=0)


def _domain(node: exp.Expr) -> str:
    """How the operand of a function compares with 0: '>', '>=', or '' where it may be any number."""
    if isinstance(node, exp.Ln | exp.Log):
        return ">"
    if isinstance(node, exp.Pow) and number(node.this) is None:
        power = number(node.expression)
        if power is not None and power.is_integer():
            return ""
        return ">=" if power is not None and power > 0 else ">"
    return ">=" if isinstance(node, exp.Sqrt) else ""


def check_aliases(aliases: Mapping[str, exp.Expr]) -> None:
    """Refuse outputs that name each other so often that what they stand for would be of exponential length.

    Raises:
        DPError: one stands for more than ``MOST_NODES`` names, numbers and operators.
    """
    sizes: dict[str, int] = {}

    def size(name: str, within: frozenset[str]) -> int:
        if name not in sizes:
            nodes = list(aliases[name].walk())
            named = [one.name.lower() for one in nodes if isinstance(one, exp.Column)]
            others = [one for one in named if one in aliases and one not in within]
            sizes[name] = len(nodes) + sum(size(one, within | {one}) for one in others)
        return sizes[name]

    for name, node in aliases.items():
        if (found := size(name, frozenset([name]))) > MOST_NODES and found > sum(1 for _ in node.walk()):
            raise DPError(
                f"{identifier(name)} stands for {found} names, numbers and operators, as outputs name each other; at most {MOST_NODES} are "
                "written out: ask the inner ones in a subquery in FROM."
            )


def of_aggregates(node: exp.Expr, aliases: Mapping[str, exp.Expr]) -> bool:
    """Whether an expression has an aggregate in it, or the name of another output that has."""
    named = (column.name.lower() for column in node.find_all(exp.Column) if not column.table)
    return has_aggregates(node) or any(
        of_aggregates(aliases[name], {other: one for other, one in aliases.items() if other != name})
        for name in named
        if name in aliases
    )


def spelled_out(node: exp.Expr, aliases: Mapping[str, exp.Expr], is_key: Callable[[exp.Expr], bool]) -> exp.Expr:
    """An expression with what the names of other outputs stand for."""
    if is_aggregate(node) or is_key(node):
        return node
    if isinstance(node, exp.Column):
        alias = aliases.get(node.name.lower())
        others = {name: one for name, one in aliases.items() if one is not alias}
        known = alias is not None and of_aggregates(alias, others)
        return exp.paren(spelled_out(alias, others, is_key)) if alias is not None and known else node
    found = node.copy()
    for name, value in list(found.args.items()):
        if isinstance(value, exp.Expr):
            found.set(name, spelled_out(value, aliases, is_key))
        elif isinstance(value, list):
            found.set(name, [spelled_out(one, aliases, is_key) if isinstance(one, exp.Expr) else one for one in value])
    return found


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
    if len(varying) != 1 or not constant or not _increasing(node, varying[0]):
        return None
    return varying[0]


def _increasing(node: exp.Expr, child: exp.Expr) -> bool:
    """Whether a function of one operand is increasing, wherever it is a function of it."""
    if isinstance(node, exp.Round):
        return child is node.this
    if isinstance(node, exp.Log):
        return node.args.get("expression") is None or (child is node.expression and (number(node.this) or 0) > 1)
    if isinstance(node, exp.Pow):
        if child is not node.this:
            return (number(node.this) or 0) > 1
        power = number(node.expression) or 0
        return power > 0 and power % 2 != 0
    return True


def _around(node: exp.Expr, child: exp.Expr) -> tuple[Outer, Outer]:
    """The text of a function around its operand, and around an end of that one's interval."""
    hole = exp.column(exp.to_identifier(HOLE, quoted=True))
    found = node.copy()
    for name, value in node.args.items():
        if value is child:
            found.set(name, hole)
        elif isinstance(value, list) and any(item is child for item in value):
            found.set(name, [hole if item is child else item.copy() for item in value])
    mark = f'"{HOLE}"'
    plain, value = (tuple(one.sql("duckdb").split(mark)) for one in (found, in_domain(found)))
    if (domain := _domain(node)) == ">=":
        return value, compose(plain, POSITIVE)
    if domain == ">":
        return value, tuple(f"CASE WHEN ({mark}) > 0 THEN {mark.join(plain)} ELSE {LEAST} END".split(mark))
    return plain, plain


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
    if isinstance(node, exp.Pow) and has_aggregates(node.this) and (number(node.expression) or 0) < 0:
        own = [node.this]
    return own + [found for child in children for found in _divisors(child)]
