"""What a statement may be made of: of each kind of syntax the parts that are read; with any other part it is refused."""

from typing import NoReturn

from sqlglot import exp

from duckdb_dp.errors import DPError, brief

_READ: dict[type[exp.Expr], set[str]] = {
    exp.Select: {
        "with_",
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "distinct",
        "qualify",
    },
    exp.From: {"this"},
    exp.Where: {"this"},
    exp.Qualify: {"this"},
    exp.Window: {"this", "partition_by", "order", "over"},
    exp.Having: {"this"},
    exp.Table: {"this", "db", "catalog", "alias"},
    exp.Subquery: {"this", "alias"},
    exp.TableAlias: {"this", "columns"},
    exp.Join: {"this", "on", "using", "side", "kind", "method"},
    exp.With: {"expressions"},
    exp.CTE: {"this", "alias"},
    exp.Distinct: set(),
    exp.Group: {"expressions", "all"},
    exp.Order: {"expressions"},
    exp.Ordered: {"this", "desc", "nulls_first"},
    exp.Limit: {"expression"},
    exp.Union: {"this", "expression", "distinct", "with_", "modifiers"},
    exp.Star: set(),
    exp.Column: {"this", "table", "db", "catalog"},
    exp.Identifier: {"this", "quoted"},
    exp.Alias: {"this", "alias"},
}
"""The parts of each node that the compiler reads."""

_WHY = {
    "sample": "a sample is not the same each time; noise already protects the rows",
    "pivots": "PIVOT is not read; write aggregates with FILTER (WHERE ...)",
    "offset": "OFFSET inside depends on the rows of all units; cut the result",
    "recursive": "WITH RECURSIVE is not read",
    "when": "AT is not read; name the table alone",
    "spec": "a frame, such as ROWS 1 PRECEDING, is not; leave it out, or use lag and lead",
    "kind": "SELECT AS STRUCT is not read",
}

GROUPED = (exp.Func, exp.Binary, exp.Paren, exp.Case, exp.Predicate, exp.Unary, exp.Bracket)
"""Expressions that may be grouped by as a whole."""


def check(node: exp.Expr) -> None:
    """Refuse a node with a part that is not read; its children are checked when they are compiled.

    Raises:
        DPError: it has one.
    """
    known = _READ.get(type(node))
    if known is None:
        refuse(node, "is not read here; write tables, joins and subqueries")
    extra = {name.rstrip("_") for name, value in node.args.items() if value} - {name.rstrip("_") for name in known}
    for name in sorted(extra):
        refuse(node, f"has a part that is not read: {_WHY.get(name, name.upper())}")


def refuse(node: exp.Expr, why: str) -> NoReturn:
    """The refusal of a part of a statement.

    Raises:
        DPError: always.
    """
    raise DPError(f"{brief(node.sql('duckdb'))} {why}.")


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """What ANDs join; and of an OR also the conditions that stand in each of its branches, as Q19 of TPC-H has its join."""
    if node is None:
        return []
    inner = node.unnest()
    if isinstance(inner, exp.And):
        return [*conjuncts(inner.this), *conjuncts(inner.expression)]
    if isinstance(inner, exp.Or) and not inner.find(exp.Query):
        first, second = conjuncts(inner.this), conjuncts(inner.expression)
        return [inner, *(one for one in first if one in second)]
    return [inner]


def plain(select: exp.Select) -> bool:
    """Whether a SELECT only joins, filters and works out columns, row by row."""
    words = ("with_", "group", "having", "order", "limit", "distinct", "qualify", "sample", "offset")
    if any(select.args.get(word) for word in words):
        return False
    return not any(has_aggregate(item) for item in select.expressions)


def has_aggregate(node: exp.Expr) -> bool:
    """Whether an aggregate or a window stands in an expression, outside its subqueries."""
    return any(isinstance(inner, exp.AggFunc | exp.Window) for inner in outside_queries(node))


def outside_queries(node: exp.Expr) -> list[exp.Expr]:
    """All nodes of an expression but those inside its subqueries."""
    return list(node.walk(prune=lambda inner: isinstance(inner, exp.Query)))
