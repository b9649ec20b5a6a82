"""Splits a statement of an analyst into dp_ calls, for the broker, and what is around them, for the sandbox.

What is taken for a call is no wall: the sandbox holds nothing that is private, and the broker gets the name of a function and
constants, never text of the statement.
"""

import re
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

from duckdb_dp.errors import DPError, brief

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

CALL = re.compile(r"\s*call\b", re.IGNORECASE)
SHORT = 10_000
"""Characters of a statement that is worth keeping as it was read."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A dp_ call as it was written.

    Attributes:
        function: its name, in small letters.
        arguments: (name, None for one without; SQL of the value).
        start, end: where it stands in the text of the statement.
    """

    function: str
    arguments: tuple[tuple[str | None, str], ...]
    start: int
    end: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement whose parameters are written $p1, $p2, ... and its calls, in order.

    Attributes:
        text: the statement.
        calls: those of dp_ functions.
        names: all names in it, in small letters.
    """

    text: str
    calls: tuple[Call, ...]
    names: frozenset[str]

    @property
    def alone(self) -> bool:
        """Whether it is one call and nothing else."""
        if len(self.calls) != 1:
            return False
        call = self.calls[0]
        before, after = self.text[: call.start], self.text[call.end :]
        return re.fullmatch(r"\s*(select\s+\*\s+)?from\s+", before, re.IGNORECASE) is not None and not after.strip()

    @property
    def tables(self) -> list[tuple[str, str]]:
        """Of each call the (schema, name) of the table that takes its place: the function's name, as DuckDB calls its rows."""
        seen: Counter[str] = Counter()
        found = []
        for call in self.calls:
            seen[call.function] += 1
            found.append(("dp" if seen[call.function] == 1 else f"dp{seen[call.function]}", call.function))
        return found

    def around(self, tables: Sequence[str]) -> str:
        """The statement with a table's name in the place of each call."""
        pieces, end = [], 0
        for call, table in zip(self.calls, tables, strict=True):
            pieces += [self.text[end : call.start], table]
            end = call.end
        return "".join([*pieces, self.text[end:]])


def read(sql: str) -> Statement:
    """The statement of a text that may end with ';'.

    Raises:
        DPError: it cannot be read, or is none, or several.
    """
    return _read_again(sql) if len(sql) < SHORT else _read(sql)


def _read(sql: str) -> Statement:
    text, names = _plain(sql)
    tokens = _tokens(text)
    if not tokens:
        raise DPError("there is no statement; write one, such as FROM dp_budget().")
    calls: list[Call] = []
    place = 0
    while place < len(tokens) - 1:
        token = tokens[place]
        if token.text.lower().startswith("dp_") and _is_name(text, token) and tokens[place + 1].text == "(":
            call, place = _call(text, tokens, place)
            calls.append(call)
        place += 1
    return Statement(text=text, calls=tuple(calls), names=names)


_BEFORE = frozenset(
    [
        "create",
        "insert",
        "or",
        "replace",
        "temp",
        "temporary",
        "table",
        "view",
        "macro",
        "function",
        "if",
        "not",
        "exists",
        "into",
        "by",
        "name",
    ]
)


def made(text: str) -> set[str]:
    """The name, in small letters, of what a CREATE makes or an INSERT fills, without its schema; none of another statement."""
    tokens = _tokens(text)
    if not tokens or tokens[0].text.lower() not in ("create", "insert"):
        return set()
    place = next(
        (i for i, token in enumerate(tokens) if _is_name(text, token) and token.text.lower() not in _BEFORE), None
    )
    if place is None:
        return set()
    while place + 2 < len(tokens) and _written(text, tokens[place + 1]) == ".":
        place += 2
    return {tokens[place].text.lower()}


_read_again = lru_cache(maxsize=1_000)(_read)


def first_word(text: str) -> str:
    """The word that says what kind of statement it is, in small letters; '(' before one."""
    tokens = _tokens(text)
    return tokens[0].text.split()[0].lower() if tokens and tokens[0].text else ""


def words(text: str) -> list[str]:
    """The words of a statement as they are written, without comments."""
    return [_written(text, token) for token in _tokens(text)]


def used(text: str) -> list[int]:
    """The numbers of the parameters in a piece of a statement, as ``read`` writes them."""
    return sorted({int(number) for number in re.findall(r"\$p(\d+)\b", text)})


def _plain(sql: str, *, explained: bool = False) -> tuple[str, frozenset[str]]:
    """The text with parameters written alike, FROM in the place of CALL, and without comments before it and the ';' at its end."""
    first = next(iter(_tokens(sql)), None)
    sql = sql if first is None else sql[first.start :]
    found = CALL.match(sql)
    if found is not None:
        sql = "FROM " + sql[found.end() :]
    tokens = _tokens(sql)
    while tokens and tokens[-1].text == ";":
        sql = sql[: tokens.pop().start]
    if any(token.text == ";" and _written(sql, token) == ";" for token in tokens):
        raise DPError("these are several statements; send one at a time.")
    pieces, end, number = [], 0, 0
    for place, token in enumerate(tokens):
        written = _written(sql, token)
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        if written.startswith("?") and written in ("?", "?::"):
            number += 1
            pieces += [sql[end : token.start], f"$p{number}"]
            end = token.start + 1
        elif written == "$" and after is not None and after.text.isdigit():
            pieces += [sql[end : token.start], f"$p{int(after.text)}"]
            end = after.end + 1
        elif written == "$":
            raise DPError("parameters have numbers here; write ? or $1 for the first.")
    names = frozenset(token.text.lower() for token in tokens if _is_name(sql, token))
    if (
        names == {"explain"} and not explained
    ):  # sqlglot takes what is explained for one text; DuckDB explains no explanation
        names |= _plain(sql[tokens[0].end + 1 :], explained=True)[1]
    return "".join([*pieces, sql[end:]]), names


def _tokens(text: str) -> "list[Token]":
    import sqlglot

    try:
        return list(sqlglot.tokenize(text, dialect="duckdb"))
    except sqlglot.errors.SqlglotError:
        raise DPError(f"the statement cannot be read; check its quotes and brackets: {brief(text, 80)}") from None


def _written(text: str, token: "Token") -> str:
    return text[token.start : token.end + 1]


def _is_name(text: str, token: "Token") -> bool:
    """Whether a token is a name: a word as it is written, or one in double quotes."""
    written = _written(text, token)
    return (written == token.text and re.fullmatch(r"\w+", written) is not None) or written.startswith('"')


def _call(text: str, tokens: "list[Token]", place: int) -> tuple[Call, int]:
    """The call whose name is at a place, and the place of its last token."""
    depth, pieces, start = 0, [], tokens[place + 1].end + 1
    for at in range(place + 1, len(tokens)):
        written = _written(text, tokens[at])
        depth += (written in ("(", "[", "{")) - (written in (")", "]", "}"))
        if (written == "," and depth == 1) or depth == 0:
            pieces.append(text[start : tokens[at].start].strip())
            start = tokens[at].end + 1
        if depth == 0:
            arguments = tuple(_argument(piece) for piece in pieces if piece)
            name = tokens[place].text.lower()
            return Call(function=name, arguments=arguments, start=tokens[place].start, end=start), at
    raise DPError(f"{tokens[place].text.lower()}: a parenthesis is not closed.")


def _argument(piece: str) -> tuple[str | None, str]:
    found = re.match(r'\s*(?:(\w+)|"(\w+)")\s*(?::=|=>)(.*)', piece, re.DOTALL)
    return (None, piece) if found is None else ((found[1] or found[2]).lower(), found[3].strip())


def constant(text: str) -> tuple[Any] | None:
    """The value of a literal, as a tuple of one; None where it has to be computed."""
    found = _constant(text)
    return None if found is None else (deepcopy(found[0]),)


@lru_cache(maxsize=1024)
def _constant(text: str) -> tuple[Any] | None:
    import sqlglot
    from sqlglot import exp

    def value(node: Any) -> Any:
        match node:
            case exp.Null():
                return None
            case exp.Boolean():
                return bool(node.this)
            case exp.Literal():
                if node.is_string:
                    return str(node.this)
                return int(node.this) if re.fullmatch(r"\d{1,18}", node.this) else float(node.this)
            case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
                return -value(node.this)
            case exp.Array():
                return [value(each) for each in node.expressions]
            case exp.Struct():
                pairs = [(each.this.name, value(each.expression)) for each in node.expressions]
                if len(dict(pairs)) == len(pairs):
                    return dict(pairs)
        raise ValueError

    try:
        return (value(sqlglot.parse_one(text, dialect="duckdb")),)
    except (ValueError, AttributeError, RecursionError, sqlglot.errors.SqlglotError):
        return None
