"""Answers that are sums times constants: of these the error is known before, whatever the rows are."""

from functools import lru_cache

from sqlglot import exp, parse_one

from duckdb_dp.outputs import Output
from duckdb_dp.sql.constants import worth


def weights(output: Output) -> dict[int, float] | None:
    """The factor of each sum in a linear answer, such as 2 in count(*) * 2; None of any other answer."""
    if output.outer != ("", "") or any(isinstance(piece, tuple) for piece in output.pieces):
        return None
    found = _weights("".join(f'"@{piece}"' if isinstance(piece, int) else str(piece) for piece in output.pieces))
    return None if found is None else {index: factor for index, factor in found if factor}


@lru_cache(maxsize=256)
def _weights(text: str) -> tuple[tuple[int, float], ...] | None:
    found = _linear(parse_one(text, dialect="duckdb"))
    return None if found is None else tuple(found.items())


def _linear(node: exp.Expr) -> dict[int, float] | None:
    """The factors of sums in an expression."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return {int(node.name[1:]): 1.0} if node.name[:1] == "@" else None
    if node.find(exp.Column) is None:
        return {} if worth(node) is not None else None
    if isinstance(node, exp.Neg):
        return _times(_linear(node.this), -1.0)
    if isinstance(node, exp.Add | exp.Sub):
        left, right = _linear(node.this), _linear(node.expression)
        right = _times(right, -1.0) if isinstance(node, exp.Sub) else right
        if left is None or right is None:
            return None
        return {index: left.get(index, 0.0) + right.get(index, 0.0) for index in {**left, **right}}
    if isinstance(node, exp.Mul | exp.Div):
        left, right = node.this, node.expression
        if isinstance(node, exp.Mul) and right.find(exp.Column) is not None:
            left, right = right, left
        factor = None if right.find(exp.Column) is not None else worth(right.unnest())
        if not factor:
            return None
        return _times(_linear(left), 1 / factor if isinstance(node, exp.Div) else factor)
    return None


def _times(found: dict[int, float] | None, factor: float) -> dict[int, float] | None:
    return None if found is None else {index: factor * one for index, one in found.items()}
