"""How much longer than the texts of a row a statement may make a text.

A text that a row makes long without a bound takes memory and time without a bound: then whether a statement ends would tell of the row.
"""

import math
from collections.abc import Iterable, Iterator

from sqlglot import exp

from duckdb_dp.errors import DPError, brief

MOST = 256
"""Times the length of the longest text of a row, besides what the statement itself writes."""

_JOINED = (exp.DPipe, exp.Concat, exp.ConcatWs)


def check(statement: exp.Expr) -> None:
    """Refuse a statement whose texts may be more than ``MOST`` times as long as those of a row.

    Raises:
        DPError: it is so.
    """
    if _of(statement) > MOST:
        raise DPError(
            f"the texts in {brief(statement.sql('duckdb'))} may grow to more than {MOST} times their length; join and replace fewer "
            "texts, and write the text that replaces another as a literal."
        )


def _of(query: exp.Expr) -> float:
    """The factor of a query: what its expressions make longer, of what the queries inside have made."""
    if isinstance(query, exp.SetOperation):
        sides = max(_of(query.this), _of(query.expression))
        return sides * _ctes(query)
    if not isinstance(query, exp.Select):
        return max((_of(inner) for inner in _inside(query)), default=1.0)
    own = [grown(part) for part in _parts(query)]
    aliased = {part.alias.lower(): grown(part) for part in query.expressions if isinstance(part, exp.Alias)}
    used = {column.name.lower() for part in _parts(query) for column in part.find_all(exp.Column)}
    aliases = math.prod(factor for name, factor in aliased.items() if name in used)  # an alias may be read beside it
    inner = max((_of(each) for each in _inside(query)), default=1.0)
    return max(own, default=1.0) * aliases * inner * _ctes(query)


def _ctes(query: exp.Expr) -> float:
    """Of the queries that WITH names: each may read the one before."""
    found = query.args.get("with_") or query.args.get("with")
    return math.prod(_of(cte.this) for cte in found.expressions) if found is not None else 1.0


def _parts(query: exp.Select) -> Iterator[exp.Expr]:
    for name, value in query.args.items():
        if name not in ("with", "with_"):
            yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, exp.Expr))


def _inside(query: exp.Expr) -> Iterator[exp.Expr]:
    """The queries that stand directly inside one, but for those of its WITH."""
    parts: Iterable[exp.Expr] = _parts(query) if isinstance(query, exp.Select) else query.iter_expressions()
    for part in parts:
        if isinstance(part, exp.Select | exp.SetOperation):
            yield part
        else:
            yield from _inside(part)


def grown(node: exp.Expr) -> float:
    """The factor of an expression; what subqueries in it make counts with those."""
    if isinstance(node, exp.Select | exp.SetOperation):
        return 1.0
    inner = [(child, grown(child)) for child in node.iter_expressions()]
    if isinstance(node, _JOINED):
        operands = [factor for child, factor in inner if not isinstance(child, exp.Literal) and child.find(exp.Column)]
        return max(1.0, math.fsum(operands))
    longest = max((factor for _, factor in inner), default=1.0)
    if isinstance(node, exp.Replace | exp.RegexpReplace):
        put = node.args.get("replacement")
        if put is not None and not (isinstance(put, exp.Literal) and put.is_string):
            return math.inf
        size = 0 if put is None else len(put.name)
        searched = len(node.expression.name) if isinstance(node.expression, exp.Literal) else 1
        if isinstance(node, exp.RegexpReplace):
            return longest * (1 + size)  # at each character, and \\1 is no longer than the text that it stands for
        return longest * max(1.0, size / max(1, searched))
    if isinstance(node, exp.TimeToStr) and not isinstance(node.args.get("format"), exp.Literal):
        return longest * 32  # the longest of a format's parts
    return longest
