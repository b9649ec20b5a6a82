"""epoch_ms of a moment, which is a number: the parser takes it for epoch_ms of a number, which is a moment."""

from collections.abc import Callable
from typing import TypeVar

from sqlglot import exp

_MOMENTS = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATE")

Node = TypeVar("Node", bound=exp.Expr)


def of_moments(root: Node, type_of: Callable[[exp.Column], str]) -> Node:
    """The same tree, in which epoch_ms of a column or a cast that is a moment stands under its own name; anything else stays.

    Args:
        root: where it may stand.
        type_of: the type of a column; '' where it is not known.
    """
    for node in list(root.find_all(exp.UnixToTime)):
        taken = node.this
        while isinstance(taken, exp.Paren):
            taken = taken.this
        type_ = taken.to.sql("duckdb") if isinstance(taken, exp.Cast) else ""
        type_ = type_of(taken) if isinstance(taken, exp.Column) else type_
        if type_ in _MOMENTS and node.args.get("scale") == exp.Literal.number(3):
            node.replace(exp.Anonymous(this="epoch_ms", expressions=[node.this]))
    return root
