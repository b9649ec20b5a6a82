"""How much a statement above answers may make of them that are yet to be paid, over the gateway.

It runs in a process of its own, within limits, which ends where they are not enough: so what may be too much is refused before anything is
charged. Once its answers are paid nothing is at stake, and it is run.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from duckdb_dp.errors import DPError, as_sql, brief
from duckdb_dp.sql.answer_size import MOST

TEXT = 16
"""A text counts as so many rows: these have a few thousand characters at most. A list or struct counts as two."""

_WRITING = {"repeat", "lpad", "rpad", "pad", "format", "printf", "concat", "concat_ws", "replace", "regexp_replace"}
"""Functions that write longer texts than they read."""

GROWING = {"range", "generate_series", "list_resize", "array_resize", "list_cat", "list_concat"}
"""Functions whose list is as long as their arguments say."""

WIDEST = 1_000
"""Characters that a text is repeated or filled up to."""

_UNBOUNDED = (exp.GenerateSeries, exp.Unnest, exp.Lateral)
_DOUBLING = (exp.Array, exp.Struct)
_GATHERING = (exp.ArrayAgg, exp.GroupConcat)

LATER = (
    "ask the SELECTs below by themselves first, FROM dp_sql('SELECT ... GROUP BY ...', epsilon := 0.1), or a list of them in one call: "
    "once they are paid, this statement is worked out from them at no cost, as far as a session's memory goes"
)


def check_public(rows: Mapping[str, int], limit: int) -> None:
    """Refuse public tables that are too large to be given to the process that works on them, also beside answers that are paid.

    Args:
        rows: how many rows each table has, by its name as it was asked for.
        limit: how many rows an answer may have.

    Raises:
        DPError: one has too many.
    """
    allowed = max(MOST, limit)
    for name, number in rows.items():
        if number > allowed:
            raise DPError(
                f"the public table {as_sql(name)} has {number:,} rows, and at most {allowed:,} are read above answers; ask the curator for "
                "a smaller one, with the rows that matter."
            )


def check(bodies: Sequence[exp.Query], rows: Mapping[str, int], limit: int) -> None:
    """Refuse statements that may make too much.

    Args:
        bodies: the statements.
        rows: how many rows each table in them has at most, by its name in small letters.
        limit: how many rows an answer may have.

    Raises:
        DPError: one may make too many rows or lists; nothing was charged.
    """
    allowed = max(MOST, limit)
    for body in bodies:
        for node in body.walk():
            if isinstance(node, _UNBOUNDED) or _name(node) in GROWING or _is_wide(node):
                raise DPError(f"{brief(node.sql('duckdb'))} is as long as one likes; {LATER}.")
        doubled = sum(isinstance(node, _DOUBLING) or _name(node) == "row" for node in body.walk())
        most = _Rows(rows).peak(body)
        if any(_name(node) in _WRITING or isinstance(node, exp.DPipe | exp.GroupConcat) for node in body.walk()):
            most *= TEXT
        if any(isinstance(node, exp.Window) and node.find(*_GATHERING) for node in body.walk()):
            most *= most
        if doubled > 40 or most * 2**doubled > allowed:
            raise DPError(
                f"what stands above the answers may make {_words(most * 2 ** min(doubled, 40))} rows or lists of them, and at most "
                f"{allowed:,} are made; {LATER}."
            )


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def _is_wide(node: exp.Expr) -> bool:
    """Whether a text is repeated, filled up or formatted to more than a few hundred characters, or to nobody knows how many."""
    name = _name(node)
    parts = [one for value in node.args.values() for one in (value if isinstance(value, list) else [value])]
    given = [one for one in parts if isinstance(one, exp.Expr)]
    if name in ("repeat", "lpad", "rpad", "pad") and len(given) > 1:
        width = given[1].unnest()
        return not (isinstance(width, exp.Literal) and str(width.this).isdigit() and int(width.this) < WIDEST)
    if name in ("format", "printf") and given:
        how = given[0].unnest()
        known = isinstance(how, exp.Literal) and how.is_string
        return not known or re.search(r"\d{4,}|\*|\{[^}]*\{", str(how.this)) is not None
    return False


def _words(number: int) -> str:
    return f"{number:,}" if number < 10**12 else "more than a million million"


class _Rows:
    """Upper bounds on rows: a join makes all pairs.

    Args:
        known: rows of tables and CTEs by name.
    """

    def __init__(self, known: Mapping[str, int]) -> None:
        self._known = dict(known)
        self._most = 1

    def peak(self, query: exp.Expr) -> int:
        """The rows of the largest part of a statement."""
        self._of(query)
        return self._most

    def _of(self, query: exp.Expr) -> int:
        with_ = query.args.get("with_") or query.args.get("with")
        for cte in with_.expressions if with_ is not None else ():
            self._known[cte.alias.lower()] = self._of(cte.this)
        if isinstance(query, exp.Subquery):
            found = self._of(query.this)
        elif isinstance(query, exp.SetOperation):
            found = self._of(query.this) + self._of(query.expression)
        elif isinstance(query, exp.Select):
            found = self._of_select(query)
        elif isinstance(query, exp.Table):
            found = self._known.get(query.name.lower(), MOST) if not query.args.get("joins") else MOST + 1
        elif isinstance(query, exp.Values):
            found = len(query.expressions)
        else:
            found = MOST + 1
        self._most = max(self._most, found)
        return max(found, 1)

    def _of_select(self, query: exp.Select) -> int:
        from_ = query.args.get("from_") or query.args.get("from")
        sources = [from_.this] if from_ is not None else []
        sources += [join.this for join in query.args.get("joins") or ()]
        found = math.prod(self._of(one) for one in sources)
        inner = max((self._of(one) for one in _subqueries(query)), default=1)
        self._most = max(self._most, found * inner)
        return found


def _subqueries(query: exp.Select) -> Iterator[exp.Expr]:
    """Those in its expressions: not its sources."""
    words = ("expressions", "where", "group", "having", "order", "qualify", "distinct", "limit", "offset")
    values = [query.args.get(word) for word in words]
    parts = [one for value in values for one in (value if isinstance(value, list) else [value])]
    parts += [join.args.get("on") for join in query.args.get("joins") or ()]
    for part in parts:
        if isinstance(part, exp.Expr):
            for node in part.walk(prune=lambda one: isinstance(one, exp.Query)):
                if isinstance(node, exp.Query):
                    yield node
