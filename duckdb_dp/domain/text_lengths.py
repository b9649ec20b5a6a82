"""How much longer than the texts of a row a statement may make a text.

A text that a row makes long without a bound takes memory and time without a bound: then whether a statement ends would tell of the row.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlglot import exp

from duckdb_dp.errors import DPError, brief

MOST, WRITTEN = 256, 4_096
"""Times the length of the longest text of a row, and the characters that a statement itself writes into one text, at most."""

ALL, ALL_WRITTEN = 1_000, 65_536
"""The same of all texts that a statement makes of one row together: DuckDB keeps those of 2,048 rows at once."""

JOINED, JOINED_WRITTEN = 50_000, 2_500_000
"""The same in all rows that joins make of one row together."""

VALUE = 40
"""Characters of what is not made of a text: a number, a moment, a checksum."""

_JOINED = (exp.DPipe, exp.Concat, exp.ConcatWs)
_MADE = (
    *_JOINED,
    exp.Replace,
    exp.RegexpReplace,
    exp.TimeToStr,
    exp.Pad,
    exp.Lower,
    exp.Upper,
    exp.MD5,
    exp.SHA,
    exp.SHA2,
    exp.Anonymous,
)
"""What makes a new text as long as those of a row, or longer."""


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


@dataclass(slots=True)
class _Texts:
    """The texts that a query makes.

    Attributes:
        longest: of them.
        made: of each.
    """

    longest: Length = ROW
    made: list[Length] = field(default_factory=list)

    def within(self, outer: "_Texts") -> "_Texts":
        """Those of a query that reads these, with them."""
        return _Texts(outer.longest.of(self.longest), [*self.made, *(one.of(self.longest) for one in outer.made)])


def check(statement: exp.Expr, rows: int = 1) -> None:
    """Refuse a statement whose texts may be more than ``MOST`` times as long as those of a row, and ``WRITTEN`` characters.

    All together may be ``ALL`` times as long, and ``ALL_WRITTEN`` characters.

    Args:
        statement: it.
        rows: how many rows its joins make of one: all texts in them may be ``JOINED`` times as long, and ``JOINED_WRITTEN`` characters.

    Raises:
        DPError: it is so.
    """
    texts = _of(statement)
    found = texts.longest
    if found.times > MOST:
        raise DPError(
            f"the texts in {brief(statement.sql('duckdb'))} may grow to more than {MOST} times their length; join and replace fewer "
            "texts, and write the text that replaces another as a literal."
        )
    if found.written > WRITTEN:
        raise DPError(
            f"{brief(statement.sql('duckdb'))} may write more than {WRITTEN:,} characters into one text; write and join shorter texts."
        )
    times, written = math.fsum(one.times for one in texts.made), math.fsum(one.written for one in texts.made)
    if times > min(ALL, JOINED / rows) or written > min(ALL_WRITTEN, JOINED_WRITTEN / rows):
        of = f" in each of {rows:,} rows that joins make of one" if rows > 1 else ""
        raise DPError(
            f"{brief(statement.sql('duckdb'))} makes too many texts: together they may be {times:,.0f} times as long as those of a row, "
            f"and {written:,.0f} characters more{of}; join, pad and replace fewer texts{', or join fewer rows' if rows > 1 else ''}."
        )


def _longest(lengths: Iterable[Length]) -> Length:
    found = list(lengths)
    return Length(max((one.times for one in found), default=0.0), max((one.written for one in found), default=0.0))


def _beside(texts: Iterable[_Texts]) -> _Texts:
    """Those of queries that do not read each other."""
    found = list(texts)
    return _Texts(_longest([ROW, *(one.longest for one in found)]), [length for one in found for length in one.made])


def _of(query: exp.Expr) -> _Texts:
    """The texts of a query: what its expressions make, of what the queries inside have made."""
    if isinstance(query, exp.SetOperation):
        return _ctes(query).within(_beside([_of(query.this), _of(query.expression)]))
    if not isinstance(query, exp.Select):
        return _beside(_of(inner) for inner in _inside(query))
    known: dict[str, Length] = {}
    own, made = [ROW], list[Length]()
    for part in query.expressions:
        own.append(grown(part, known, made))
        if isinstance(part, exp.Alias):  # which may be read beside it, where the table may have a column of that name
            known[part.alias.lower()] = _longest([ROW, own[-1]])
    selected = {id(part) for part in query.expressions}
    own += [grown(part, known, made) for part in _parts(query) if id(part) not in selected]
    inside = _ctes(query).within(_beside(_of(each) for each in _inside(query)))
    return inside.within(_Texts(_longest(own), made))


def _ctes(query: exp.Expr) -> _Texts:
    """Those of the queries that WITH names: each may read the one before."""
    words = query.args.get("with_") or query.args.get("with")
    found = _Texts()
    for cte in [] if words is None else words.expressions:
        one = _of(cte.this)
        found = found.within(_Texts(_longest([ROW, one.longest]), one.made))
    return found


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


def grown(node: exp.Expr, known: Mapping[str, Length] = NONE, made: list[Length] | None = None) -> Length:
    """The length of an expression; what subqueries in it make counts with those.

    Args:
        node: it.
        known: the lengths of the aliases that it may read, by name.
        made: the lengths of texts that are made, to which its own are added.
    """
    if isinstance(node, exp.Select | exp.SetOperation):
        return ROW
    if isinstance(node, exp.Column):
        return known.get(node.name.lower(), ROW)
    if isinstance(node, exp.Literal):
        return Length(0.0, len(node.name))
    found = _grown(node, [grown(child, known, made) for child in node.iter_expressions()])
    if made is not None and isinstance(node, _MADE):
        made.append(found)
    return found


def _grown(node: exp.Expr, inner: list[Length]) -> Length:
    """The same by the lengths of its parts."""
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
