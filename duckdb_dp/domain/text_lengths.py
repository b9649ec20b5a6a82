"""How much longer than the texts of a row a statement may make a text.

A text that a row makes long without a bound takes memory and time without a bound: then whether a statement ends would tell of the row.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sqlglot import exp

from duckdb_dp.errors import DPError, brief

MOST, WRITTEN = 256, 4_096
"""Times the length of the longest text of a row, and the characters that a statement itself writes into one text, at most."""

VALUE = 40
"""Characters of what is not made of a text: a number, a moment, a checksum."""

_JOINED = (exp.DPipe, exp.Concat, exp.ConcatWs)


@dataclass(frozen=True, slots=True)
class Length:
    """The length of a text: at most ``times`` that of the longest text of a row, and ``written`` characters more."""

    times: float = 1.0
    written: float = 0.0

    def of(self, inner: "Length") -> "Length":
        """The same of a text that is itself so long."""
        return Length(self.times * inner.times, self.times * inner.written + self.written)


ROW = Length()
"""A text of a row as it is."""

NONE: Mapping[str, Length] = MappingProxyType({})


def check(statement: exp.Expr) -> None:
    """Refuse a statement whose texts may be more than ``MOST`` times as long as those of a row, and ``WRITTEN`` characters.

    Raises:
        DPError: it is so.
    """
    found = _of(statement)
    if found.times > MOST:
        raise DPError(
            f"the texts in {brief(statement.sql('duckdb'))} may grow to more than {MOST} times their length; join and replace fewer "
            "texts, and write the text that replaces another as a literal."
        )
    if found.written > WRITTEN:
        raise DPError(
            f"{brief(statement.sql('duckdb'))} may write more than {WRITTEN:,} characters into one text; write and join shorter texts."
        )


def _longest(lengths: Iterable[Length]) -> Length:
    found = list(lengths)
    return Length(max((one.times for one in found), default=0.0), max((one.written for one in found), default=0.0))


def _one_in_another(lengths: Iterable[Length]) -> Length:
    """Of texts of which each may be made of the one before."""
    found = ROW
    for one in lengths:
        found = Length(max(1.0, one.times), one.written).of(found)
    return found


def _of(query: exp.Expr) -> Length:
    """The lengths in a query: what its expressions make longer, of what the queries inside have made."""
    if isinstance(query, exp.SetOperation):
        return _longest([_of(query.this), _of(query.expression)]).of(_ctes(query))
    if not isinstance(query, exp.Select):
        return _longest([ROW, *(_of(inner) for inner in _inside(query))])
    known: dict[str, Length] = {}
    own = [ROW]
    for part in query.expressions:
        own.append(grown(part, known))
        if isinstance(part, exp.Alias):  # which may be read beside it, where the table may have a column of that name
            known[part.alias.lower()] = _longest([ROW, own[-1]])
    selected = {id(part) for part in query.expressions}
    own += [grown(part, known) for part in _parts(query) if id(part) not in selected]
    return _longest(own).of(_longest([ROW, *(_of(each) for each in _inside(query))]).of(_ctes(query)))


def _ctes(query: exp.Expr) -> Length:
    """Of the queries that WITH names: each may read the one before."""
    found = query.args.get("with_") or query.args.get("with")
    return _one_in_another(_of(cte.this) for cte in found.expressions) if found is not None else ROW


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


def grown(node: exp.Expr, known: Mapping[str, Length] = NONE) -> Length:
    """The length of an expression; what subqueries in it make counts with those.

    Args:
        node: it.
        known: the lengths of the aliases that it may read, by name.
    """
    if isinstance(node, exp.Select | exp.SetOperation):
        return ROW
    if isinstance(node, exp.Column):
        return known.get(node.name.lower(), ROW)
    if isinstance(node, exp.Literal):
        return Length(0.0, len(node.name))
    inner = [grown(child, known) for child in node.iter_expressions()]
    if isinstance(node, _JOINED):
        between = len(inner) if isinstance(node, exp.ConcatWs) else 1  # the first stands between all others
        inner[:1] = [Length(one.times * between, one.written * between) for one in inner[:1]]
        return Length(math.fsum(one.times for one in inner), math.fsum(one.written for one in inner))
    longest = _longest(inner)
    if isinstance(node, exp.Replace | exp.RegexpReplace):
        put = node.args.get("replacement")
        if put is not None and not (isinstance(put, exp.Literal) and put.is_string):
            return Length(math.inf)
        size = 0 if put is None else len(put.name)
        searched = len(node.expression.name) if isinstance(node.expression, exp.Literal) else 1
        if isinstance(node, exp.RegexpReplace):
            return Length(1.0 + size).of(longest)  # at each character; \\1 is no longer than what it stands for
        return Length(max(1.0, size / max(1, searched))).of(longest)
    if isinstance(node, exp.TimeToStr):
        return Length(16.0).of(longest)  # two characters of a format stand for 30 at most
    if isinstance(node, exp.Pad):
        width = float(node.expression.name) if node.expression.is_number else math.inf
        return _longest([longest, Length(0.0, width)])
    return _longest([longest, Length(0.0, VALUE)]) if isinstance(node, exp.Func) else longest
