"""Comparisons of labels that are ENUMs with what a statement writes: by their place, and not as texts.

DuckDB compares an ENUM with a text as texts: '[100, 200)' < '[20, 100)', and '10' < '9'.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from sqlglot import exp

from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.sql.above.answers import Column

_SIDES = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)

Body = TypeVar("Body", bound=exp.Expr)


def by_place(body: Body, answers: Iterable[Sequence[Column]]) -> Body:
    """The statement, in which what a label is compared with is a label too.

    Raises:
        DPError: a label is compared with a literal that is none.
    """
    every = [column for found in answers for column in found]
    labels = {column.name.lower(): column for column in every if column.bins}
    others = {column.name.lower() for column in every if not column.bins}
    made = {one.alias.lower() for one in body.find_all(exp.Alias) if one.alias.lower() != one.this.name.lower()}
    known = {name: column for name, column in labels.items() if name not in others | made}
    for node in list(body.walk()) if known else ():
        if isinstance(node, _SIDES):
            _compared(node.this, [node.expression], known)
            _compared(node.expression, [node.this], known)
        elif isinstance(node, exp.Between):
            _compared(node.this, [node.args["low"], node.args["high"]], known)
        elif isinstance(node, exp.In):
            _compared(node.this, list(node.expressions), known)
    return body


def _compared(label: exp.Expr, values: Iterable[exp.Expr], known: Mapping[str, Column]) -> None:
    column = known.get(label.name.lower()) if isinstance(label, exp.Column) else None
    if column is None:
        return
    for value in values:
        text = _literal(value)
        if text is not None:
            value.replace(exp.cast(exp.Literal.string(_label(text, column)), column.bins, dialect="duckdb"))


def _literal(node: exp.Expr) -> str | None:
    """The text of a literal, a number or a cast of one; None of anything else."""
    node = node.unnest()
    if isinstance(node, exp.Neg) and (inside := _literal(node.this)) is not None:
        return f"-{inside}"
    if isinstance(node, exp.Cast):
        return _literal(node.this)
    return str(node.this) if isinstance(node, exp.Literal) else None


def _label(text: str, column: Column) -> str:
    """The label that a literal is, by its text or as a number.

    Raises:
        DPError: it is none.
    """
    labels = [label for label in column.values if label is not None]
    if text in labels:
        return text
    alike = [label for label in labels if (number := _number(label)) is not None and number == _number(text)]
    if alike:
        return alike[0]
    raise DPError(
        f"{as_sql(text)} is no label of '{column.name}', whose labels are the texts {few(map(as_sql, labels))}; compare values in WHERE of "
        "the SELECT that counts, or label with label."
    )


def _number(label: str) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None
