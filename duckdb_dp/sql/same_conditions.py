"""One form of conditions that DuckDB gives the same truth, NULL, for every row: BETWEEN and its two comparisons, NOT and what it turns."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import date

from sqlglot import exp

_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.GTE: exp.LT, exp.GT: exp.LTE, exp.LTE: exp.GT,
}  # fmt: skip
"""Comparisons and their opposites, NaN among the values: DuckDB orders it above all others, and it equals itself."""

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.NullSafeEQ: exp.NullSafeEQ, exp.NullSafeNEQ: exp.NullSafeNEQ,
    exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE,
}  # fmt: skip
"""Comparisons, and what they are with their sides exchanged."""

WHOLE = 2**31
"""Whole numbers below are INTEGER, so that a comparison with one of them has one type, whatever the other is."""

NEWEST = 9
"""The form that requests have now. In form 1 conditions are as they are written, in their order; in form 2 those of one table are,
decimals and negative numbers keep their BETWEEN, and equalities with several numbers are no IN. In both sums beside averages are of
values less the middle of their bounds, whatever bounds them. Up to form 3 quantiles of declared columns have cells beyond what
conditions allow, all SELECTs of a list the bound of the one with most rows, and the largest groups that are found 'other' among them.
Up to form 4 what is worked out of a difference of dates has the bounds of their declarations, whatever conditions say of it.
Up to form 5 each row before a LEFT JOIN has all rows of its table that a unit may have, and what is grouped by is an expression of the
group where parentheses are around it; nothing is known of the values of lag, lead and first_value. Values of expressions that conditions
bound, and nobody has declared, are found, and conditions on expressions, dates and times do not bound the cells of their quantiles;
groups of expressions, and of keys of public tables, are those that conditions on these, or on columns that are equal to them, exclude
too. Up to form 6 numbers of distinct values have the noise of all rows of a unit,
and columns of numbers with a fraction of public tables are grouped by each by itself;
what is declared of a named relation says nothing where that is joined. Up to form 7 LEFT JOINs are such also where conditions leave
out the rows that have none of their table, and conditions on other columns of a public table, or that public rows there are, exclude
no groups; what public rows say bounds no column of theirs, and columns that refer to a public table which is joined have all their
declared values as groups. Up to form 8 groups of subqueries are found, and rows of which a unit has one in each group are counted
as any others."""

_DECIMAL = re.compile(r"\d{1,15}\.\d{1,15}")

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)

_FORM: ContextVar[int] = ContextVar("form", default=NEWEST)


@contextmanager
def in_form(number: int) -> Iterator[None]:
    """Requests have the form that they had in earlier versions, while it is held."""
    token = _FORM.set(number)
    try:
        yield
    finally:
        _FORM.reset(token)


def form() -> int:
    """The number of the form that requests have."""
    return _FORM.get()


def in_one_form(node: exp.Expr, type_of: Callable[[exp.Column], str | None]) -> exp.Expr:
    """A condition on one table's rows in the form that all of its meaning share."""
    return conjunction([by_types(node, type_of)]) if form() >= 3 else node


def by_types(node: exp.Expr, type_of: Callable[[exp.Column], str | None]) -> exp.Expr:
    """An expression in which BOOLEAN columns are compared with no TRUE or FALSE, and DATE columns with dates where it was with their text.

    Args:
        node: the expression, which may be changed in place.
        type_of: the type of a column; None where it is not known.
    """
    return node.transform(lambda one: _by_types(one, type_of), copy=False) if form() >= 3 else node


def _by_types(node: exp.Expr, type_of: Callable[[exp.Column], str | None]) -> exp.Expr:
    if isinstance(node, exp.Not):
        inner = _by_types(bare(node.this), type_of)
        twice = bare(inner.this) if isinstance(inner, exp.Not) else node
        return twice.copy() if isinstance(twice, exp.Column) and type_of(twice) == "BOOLEAN" else node
    if not isinstance(node, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between):
        return node
    sides = [bare(node.args[word]) for word in ("this", "expression", "low", "high") if node.args.get(word) is not None]
    column = next((side for side in sides if isinstance(side, exp.Column)), None)
    if column is None:
        return node
    others = [side for side in sides if side is not column]
    if isinstance(node, exp.EQ | exp.NEQ) and isinstance(others[0], exp.Boolean) and type_of(column) == "BOOLEAN":
        return column.copy() if isinstance(node, exp.EQ) == others[0].this else exp.Not(this=column.copy())
    days = [side for side in others if isinstance(side, exp.Literal) and side.is_string and _DAY.fullmatch(side.name)]
    if days and type_of(column) == "DATE":
        for day in days:
            with suppress(ValueError):  # which is said where it is read
                date.fromisoformat(day.name)
                day.replace(exp.cast(day.copy(), "DATE"))
    return node


def conjunction(nodes: Sequence[exp.Expr]) -> exp.Expr:
    """Conditions that all hold, each of them once."""
    return _joined([part for node in nodes for part in parts(node, exp.And)], exp.And)


def _joined(nodes: Sequence[exp.Expr], kind: type[exp.Expr]) -> exp.Expr:
    """What AND or OR joins, each of them once; numbers that one expression is equal to, or none of which it is, are those of one IN."""
    join, equal = (exp.and_, exp.NEQ) if kind is exp.And else (exp.or_, exp.EQ)
    found = _sorted(nodes)
    if kind is exp.And and form() >= 3:
        found = [node for node in found if not (isinstance(node, exp.Boolean) and node.this)] or found
    alike: dict[tuple[str, bool], list[exp.Expr]] = {}
    for node in found if form() >= 3 else ():
        one = node.this if isinstance(node, exp.Not) and kind is exp.And else node
        literals = one.expressions if isinstance(one, exp.In) and (one is node) == (kind is exp.Or) else []
        literals = [one.expression] if type(node) is equal else literals
        if literals and all(isinstance(end, exp.Literal) for end in literals) and _same_type(literals):
            alike.setdefault((one.this.sql("duckdb"), literals[0].is_string), []).append(node)
    for nodes_ in alike.values():
        if len(nodes_) > 1:
            ones = [node.this if isinstance(node, exp.Not) else node for node in nodes_]
            listed = exp.In(
                this=ones[0].this.copy(),
                expressions=[end for one in ones for end in one.expressions or [one.expression]],
            )
            found = [node for node in found if not any(node is other for other in nodes_)]
            found.append(exp.Not(this=listed) if kind is exp.And else listed)
    return join(*_sorted(found), copy=False)


def simple(node: exp.Expr) -> exp.Expr:
    """A condition without parentheses, BETWEEN, IN with one value, or NOT over a comparison, AND or OR at its top."""
    node = bare(node)
    if form() == 1:
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
        twice = bare(inner.this)
        return twice if isinstance(twice, exp.Predicate) and form() >= 3 else node  # others may be no BOOLEAN
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
    return _same_type(ends)


def _same_type(ends: Sequence[exp.Expr]) -> bool:
    """Whether they are texts, numbers of type INTEGER, or decimals of one type."""
    literals = [end.this if isinstance(end, exp.Neg) and form() >= 3 else end for end in ends]
    if not all(isinstance(one, exp.Literal) for one in literals) or any(
        end is not one and one.is_string for end, one in zip(ends, literals, strict=True)
    ):
        return False
    if any(one.is_string for one in literals):
        return all(one.is_string for one in literals)
    if all(one.name.isdigit() for one in literals):
        return all(int(one.name) < WHOLE for one in literals)
    shapes = {tuple(map(len, one.name.partition("."))) for one in literals if _DECIMAL.fullmatch(one.name)}
    return form() >= 3 and len(shapes) == 1 and all(_DECIMAL.fullmatch(one.name) for one in literals)


def bare(node: exp.Expr) -> exp.Expr:
    """A node without parentheses; a subquery keeps its own."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def parts(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """What ANDs join, or ORs."""
    inner = simple(node)
    return [*parts(inner.this, kind), *parts(inner.expression, kind)] if isinstance(inner, kind) else [inner]


def _sorted(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    texts = {made.sql("duckdb"): made for made in map(_oriented, nodes)}
    return [texts[text] for text in sorted(texts)]


def _oriented(node: exp.Expr) -> exp.Expr:
    """A condition with the sides of its comparisons, and what AND and OR join, in one order."""
    node = simple(node)
    if isinstance(node, exp.And | exp.Or):
        return _joined(parts(node, type(node)), type(node))
    if isinstance(node, exp.Not):
        inner = _oriented(node.this)
        return exp.Not(this=exp.paren(inner) if isinstance(inner, exp.Connector) else inner)
    if type(node) in _MIRRORED:
        left, right = bare(node.this), bare(node.expression)
        sides = [(side.find(exp.Column) is None, side.sql("duckdb")) for side in (left, right)]
        kind = type(node) if sides[0] <= sides[1] else _MIRRORED[type(node)]
        pair = (left, right) if sides[0] <= sides[1] else (right, left)
        return kind(**dict(zip(("this", "expression"), map(_wrapped, pair), strict=True)))
    if isinstance(node, exp.In) and node.expressions and all(isinstance(one, exp.Literal) for one in node.expressions):
        found = node.copy()
        found.set("expressions", sorted(dict.fromkeys(node.expressions), key=lambda one: one.sql("duckdb")))
        return found
    return node


def _wrapped(node: exp.Expr) -> exp.Expr:
    return exp.paren(node) if isinstance(node, exp.Binary | exp.Not | exp.Predicate) else node
