"""One form of conditions that DuckDB gives the same truth, NULL, for every row: BETWEEN and its two comparisons, NOT and what it turns."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlglot import exp

_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.GTE: exp.LT, exp.GT: exp.LTE, exp.LTE: exp.GT,
}  # fmt: skip
"""Comparisons and their opposites, NaN among the values: DuckDB orders it above all others, and it equals itself."""

WHOLE = 2**31
"""Whole numbers below are INTEGER, so that a comparison with one of them has one type, whatever the other is."""

_AS_BEFORE: ContextVar[bool] = ContextVar("as_before", default=False)


@contextmanager
def as_before() -> Iterator[None]:
    """Conditions stay as they are written, as in requests of earlier versions, while it is held."""
    token = _AS_BEFORE.set(True)
    try:
        yield
    finally:
        _AS_BEFORE.reset(token)


def is_before() -> bool:
    """Whether it is held."""
    return _AS_BEFORE.get()


def simple(node: exp.Expr) -> exp.Expr:
    """A condition without parentheses, BETWEEN, IN with one value, or NOT over a comparison, AND or OR at its top."""
    node = bare(node)
    if is_before():
        return node
    if isinstance(node, exp.Between) and _splits(node):
        ends = ((exp.GTE, node.args["low"]), (exp.LTE, node.args["high"]))
        return exp.and_(*(kind(this=node.this.copy(), expression=end.copy()) for kind, end in ends), copy=False)
    if isinstance(node, exp.In) and len(set(node.expressions)) == 1 and isinstance(node.expressions[0], exp.Literal):
        return exp.EQ(this=node.this.copy(), expression=node.expressions[0].copy())
    return _negated(node) if isinstance(node, exp.Not) else node


def _negated(node: exp.Not) -> exp.Expr:
    """What a NOT says without it, where there is such a form."""
    inner = simple(node.this)
    if isinstance(inner, exp.Not):
        return node  # of what may be no BOOLEAN
    if isinstance(inner, exp.And | exp.Or):
        join = exp.or_ if isinstance(inner, exp.And) else exp.and_
        return join(*(simple(exp.not_(side, copy=True)) for side in (inner.this, inner.expression)), copy=False)
    opposite = _NEGATED.get(type(inner))
    if opposite is not None:
        return opposite(this=inner.this.copy(), expression=inner.expression.copy())
    return exp.Not(this=inner.copy())


def _splits(node: exp.Between) -> bool:
    """Whether both ends are compared in the type that either has alone: BETWEEN has one type for all three, its parts one each."""
    ends = [bare(node.args[word]) for word in ("low", "high")]
    if node.args.get("symmetric") or node.this.find(exp.Query) is not None:
        return False
    if all(isinstance(end, exp.Cast) and isinstance(end.this, exp.Literal) for end in ends):
        return bool(ends[0].args["to"] == ends[1].args["to"])
    if not all(isinstance(end, exp.Literal) for end in ends):
        return False
    texts = [end.is_string for end in ends]
    return all(texts) or (not any(texts) and all(end.name.isdigit() and int(end.name) < WHOLE for end in ends))


def bare(node: exp.Expr) -> exp.Expr:
    """A node without parentheses; a subquery keeps its own."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node
