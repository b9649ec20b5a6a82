"""Rows that a statement compares, (a, b) = (1, 2) and (a, b) IN ((1, 2), (3, 4)), as comparisons of their fields."""

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

_EQUAL, _UNEQUAL = (exp.EQ, exp.NullSafeEQ), (exp.NEQ, exp.NullSafeNEQ)


def by_fields(statement: exp.Expr) -> None:
    """Write comparisons of rows with rows as those of their fields, in place.

    A row with a NULL in it is no NULL, and DuckDB compares it as such: (a, NULL) = (b, NULL) is true where a = b, and no field makes
    it NULL. So fields are compared by IS NOT DISTINCT FROM; where only what is true counts, a field is compared with a constant
    by =, which is false or NULL for the same rows.
    """
    for node in list(statement.find_all(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In)):
        left = _fields(node.this)
        others = node.expressions if isinstance(node, exp.In) else [node.expression]
        rights = [_fields(other) for other in others]
        if not left or not rights or any(len(right) != len(left) for right in rights):
            continue
        if any(_of_two_tables(one, two) for right in rights for one, two in zip(left, right, strict=True)):
            continue  # which is refused, in words that say how rows of two tables are joined
        plain = not isinstance(node, _UNEQUAL) and _only_true_counts(node)
        found: exp.Expr = exp.or_(*(_alike(left, right, plain) for right in rights), copy=False)
        node.replace(exp.paren(exp.not_(found, copy=False) if isinstance(node, _UNEQUAL) else found, copy=False))


def _fields(node: exp.Expr) -> list[exp.Expr]:
    """The fields of a row that is written out, as (a, b) or ROW(a, b); none of anything else."""
    inner = node.unnest()
    written = isinstance(inner, exp.Tuple) or (isinstance(inner, exp.Anonymous) and inner.name.upper() == "ROW")
    return list(inner.expressions) if written else []


def _alike(left: Sequence[exp.Expr], right: Sequence[exp.Expr], plain: bool) -> exp.Expr:
    pairs = zip(left, right, strict=True)
    parts: list[exp.Expr] = [
        (exp.EQ if plain and (_constant(one) or _constant(two)) else exp.NullSafeEQ)(
            this=_whole(one), expression=_whole(two)
        )
        for one, two in pairs
    ]
    return exp.paren(reduce(lambda a, b: exp.And(this=a, expression=b), parts), copy=False)


def _whole(node: exp.Expr) -> exp.Expr:
    """A copy of a field, in parentheses where it is more than a name or a constant."""
    return (
        node.copy()
        if isinstance(node, exp.Column | exp.Literal | exp.Null | exp.Paren)
        else exp.paren(node.copy(), copy=False)
    )


def _of_two_tables(one: exp.Expr, two: exp.Expr) -> bool:
    tables = [node.table.lower() for node in (one.unnest(), two.unnest()) if isinstance(node, exp.Column)]
    return len(set(tables)) == 2 and all(tables)


def _constant(node: exp.Expr) -> bool:
    """Whether a field is a constant, and so not NULL."""
    inner = node.unnest()
    while isinstance(inner, exp.Neg | exp.Cast) and not isinstance(inner, exp.TryCast):
        inner = inner.this
    return isinstance(inner, exp.Literal | exp.Boolean)


def _only_true_counts(node: exp.Expr) -> bool:
    """Whether only AND and OR stand between a condition and its WHERE, HAVING or ON, which take false and NULL alike."""
    parent = node.parent
    while isinstance(parent, exp.And | exp.Or | exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Where | exp.Having | exp.Join)
