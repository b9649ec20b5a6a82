"""Intervals of products and squares of noisy numbers, from those of their factors.

To first order a product has no error where its factors are 0. What all numbers in the factors' intervals make together holds
the truth wherever their intervals do, near 0 too, and is hardly wider where they are far from it.
"""

from collections.abc import Callable

from sqlglot import exp

_MOST = 5
"""Products in one expression, as each takes the ends of its factors four times."""

Ends = tuple[exp.Expr, exp.Expr]


def number(node: exp.Expr | None) -> float | None:
    """What a literal is, with a sign or without one."""
    if isinstance(node, exp.Neg):
        found = number(node.this)
        return None if found is None else -found
    return float(node.this) if isinstance(node, exp.Literal) and not node.is_string else None


def products(node: exp.Expr, noisy: Callable[[exp.Expr], bool]) -> int:
    """How many products of noisy factors there are in an expression, outside of what it divides by and of functions."""
    node = _bare(node)
    if not noisy(node):
        return 0
    own = _square(node) is not None or (isinstance(node, exp.Mul) and noisy(node.this) and noisy(node.expression))
    return own + sum(products(part, noisy) for part in _parts(node))


def too_many(node: exp.Expr, noisy: Callable[[exp.Expr], bool]) -> bool:
    """Whether there are more products than their intervals are worked out for."""
    return products(node, noisy) > _MOST


def ends(node: exp.Expr, noisy: Callable[[exp.Expr], bool], factor: Callable[[exp.Expr], Ends]) -> Ends:
    """The ends of what an expression may be.

    Args:
        node: it.
        noisy: whether an expression in it has noise.
        factor: the ends of the interval of one without products.
    """
    node = _bare(node)
    if not products(node, noisy):
        return (node, node) if not noisy(node) else factor(node)

    def of(part: exp.Expr) -> Ends:
        return ends(part, noisy, factor)

    square = _square(node)
    if square is not None:
        low, high = of(square[0])
        power = exp.Literal.number(square[1])
        if square[1] % 2:
            return _call("power", low, power), _call("power", high, power)
        nearest = _call("greatest", low, _negative(high), exp.Literal.number(0))
        return _call("power", nearest, power), _call("power", _call("greatest", _negative(low), high), power)
    if isinstance(node, exp.Neg):
        low, high = of(node.this)
        return _negative(high), _negative(low)
    assert isinstance(node, exp.Binary)
    left, right = of(node.this), of(node.expression)
    if isinstance(node, exp.Add):
        return _both(exp.Add, left[0], right[0]), _both(exp.Add, left[1], right[1])
    if isinstance(node, exp.Sub):
        return _both(exp.Sub, left[0], right[1]), _both(exp.Sub, left[1], right[0])
    pairs = [_both(type(node), one, other) for one in dict.fromkeys(left) for other in dict.fromkeys(right)]
    return _call("least", *pairs), _call("greatest", *pairs)


def written(node: exp.Expr, noisy: Callable[[exp.Expr], bool]) -> tuple[list[exp.Expr], str, str]:
    """The factors of an expression, and SQL of its ends over ``"@l<i>"`` and ``"@h<i>"``."""
    factors: list[exp.Expr] = []

    def factor(one: exp.Expr) -> Ends:
        factors.append(one)
        low, high = (exp.column(exp.to_identifier(f"@{end}{len(factors) - 1}", quoted=True)) for end in "lh")
        return low, high

    low, high = ends(node, noisy, factor)
    return factors, low.sql("duckdb"), high.sql("duckdb")


def _bare(node: exp.Expr) -> exp.Expr:
    """An expression without the parentheses around it; those of a subquery belong to it."""
    return _bare(node.this) if isinstance(node, exp.Paren) else node


def _square(node: exp.Expr) -> tuple[exp.Expr, int] | None:
    """What is raised to which power, 2 or more, or multiplied with itself."""
    if isinstance(node, exp.Pow):
        power = number(node.expression)
        return (node.this, int(power)) if power is not None and power.is_integer() and power >= 2 else None
    return (node.this, 2) if isinstance(node, exp.Mul) and node.this == node.expression else None


def _parts(node: exp.Expr) -> list[exp.Expr]:
    """What the interval of an expression is made of, besides intervals to first order."""
    if (square := _square(node)) is not None:
        return [square[0]]
    if isinstance(node, exp.Div):
        return [node.this]
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return [node.this, node.expression]
    return [node.this] if isinstance(node, exp.Neg) else []


def _both(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.paren(kind(this=exp.paren(left.copy()), expression=exp.paren(right.copy())))


def _negative(node: exp.Expr) -> exp.Expr:
    return exp.Neg(this=exp.paren(node.copy()))


def _call(name: str, *operands: exp.Expr) -> exp.Expr:
    return exp.func(name, *[operand.copy() for operand in operands], dialect="duckdb")
