"""Completion: functions with their signatures, named arguments, keywords, tables and columns."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from duckdb_dp.shell.statements import tokens
from duckdb_dp.sql.install import macro_files

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST = 200
"""Candidates that are offered at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A text to insert, how many characters before the cursor it replaces, and what it is."""

    text: str
    replaces: int
    meta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a database knows: read again after each statement that may have changed it."""

    tables: tuple[str, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)  # name -> tables that have it
    declared: dict[str, tuple[str, ...]] = field(default_factory=dict)  # protected table -> attributes
    functions: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()


def names_of(con: "DuckDBPyConnection") -> Names:
    """The names of a database, by a cursor of its own.

    Privacy: names and declarations are public.
    """
    cursor = con.cursor()

    def column(query: str) -> list[str]:
        return [row[0] for row in cursor.execute(query).fetchall()]

    try:
        known = cursor.execute(
            "SELECT column_name, string_agg(DISTINCT table_name, ', ') FROM duckdb_columns() WHERE NOT internal "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        return Names(
            tables=tuple(
                column(
                    "SELECT table_name FROM duckdb_tables() WHERE NOT internal UNION "
                    "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
                )
            ),
            columns=dict(known),
            declared={table: tuple(_attributes(cursor, table)) for table in column("SELECT dataset FROM dp_budget()")},
            functions=tuple(
                column(
                    "SELECT DISTINCT function_name FROM duckdb_functions() WHERE regexp_matches(function_name, "
                    "'^[a-z][a-z0-9_]*$') AND NOT starts_with(function_name, '_') ORDER BY 1"
                )
            ),
            keywords=tuple(word.upper() for word in column("SELECT keyword_name FROM duckdb_keywords()")),
        )
    finally:
        cursor.close()


def _attributes(cursor: "DuckDBPyConnection", table: str) -> list[str]:
    import duckdb

    literal = "'" + table.replace("'", "''") + "'"
    try:
        return [row[0] for row in cursor.execute(f"SELECT DISTINCT attribute FROM dp_domain({literal})").fetchall()]
    except duckdb.Error:
        return []  # in another schema, or gone


@cache
def headers() -> dict[str, str]:
    """function -> the reference text at the head of its file, signature first."""
    found = {}
    for name, text in macro_files():
        if not name.startswith("_"):
            lines = [line.removeprefix("--").removeprefix(" ") for line in text.splitlines() if line.startswith("--")]
            found[name.removesuffix(".sql")] = "\n".join(lines)
    return found


@cache
def arguments() -> dict[str, tuple[str, ...]]:
    """function -> its named arguments, in order."""
    found = {}
    for name, text in macro_files():
        head = re.search(r"MACRO\s+(dp_\w+)\s*\((.*?)\)\s*AS TABLE", text, re.DOTALL)
        if head and not name.startswith("_"):
            found[head[1]] = tuple(re.findall(r'"?(\w+)"?\s*:=', head[2]))
    return found


def complete(before: str, names: Names) -> list[Candidate]:
    """Candidates for the word before the cursor, the most likely first.

    Args:
        before: the statement up to the cursor.
        names: of the database.
    """
    pieces = list(tokens(before))
    last = pieces[-1] if pieces else ""
    call = _enclosing(pieces)
    if last[:1] in ("'", '"') and (len(last) == 1 or last[-1] != last[0]):
        if call in SELECTS and re.search(r"\s", last):
            return _in_select(last, names)
        return _texts(last[1:], _inside(call, pieces, names))
    word = last if re.fullmatch(r"\w+", last) else ""
    previous = next((token for token in reversed(pieces[: -1 if word else None]) if not token.isspace()), "")
    given = {pieces[i] for i in range(len(pieces)) if "".join(pieces[i + 1 : i + 4]).lstrip().startswith((":=", "=>"))}
    return _ranked(word, _words(word, call, previous, names, given))


def _words(
    word: str, call: str | None, previous: str, names: Names, given: Collection[str]
) -> Iterable[tuple[str, str]]:
    """(text, what it is), in order of preference."""
    if call in arguments() and previous in (",", "("):
        for name in (name for name in arguments()[call] if name not in given):
            yield f'"{name}" := ' if name in QUOTED else f"{name} := ", f"argument of {call}"
    signatures = {name: text.splitlines()[0] for name, text in headers().items()}
    after_source = previous.lower() in ("from", "join", "call", "describe", "table", "into", "summarize")
    if after_source:
        yield from ((name, "table") for name in names.tables)
    if word or after_source:
        yield from ((f"{name}(", signature) for name, signature in signatures.items())
    if not word:
        return
    yield from ((name, f"column of {tables}") for name, tables in names.columns.items())
    yield from ((name, "table") for name in names.tables)
    yield from ((name, "keyword") for name in names.keywords)
    yield from ((f"{name}(", "function") for name in names.functions if name not in signatures)


def _ranked(word: str, found: Iterable[tuple[str, str]]) -> list[Candidate]:
    """Those that begin with the word, each once; keywords in the letter case that is being typed."""
    kept: dict[str, Candidate] = {}
    folded = word.lower()
    for text, meta in found:
        if not text.lower().lstrip('"').startswith(folded) or text.lower() == folded:
            continue
        if meta == "keyword" and word.islower():
            text = text.lower()
        elif meta == "table" or meta.startswith("column"):
            text = text if re.fullmatch(r"[A-Za-z_]\w*", text) else '"' + text.replace('"', '""') + '"'
        kept.setdefault(text, Candidate(text=text, replaces=len(word), meta=meta))
    return list(kept.values())[:MOST]


def _texts(begun: str, found: Iterable[tuple[str, str]]) -> list[Candidate]:
    folded = begun.lower()
    return [
        Candidate(text=text, replaces=len(begun), meta=meta)
        for text, meta in found
        if text.lower().startswith(folded) and text.lower() != folded
    ][:MOST]


def _enclosing(pieces: list[str]) -> str | None:
    """The function whose parentheses are open at the end."""
    stack: list[str] = []
    word = ""
    for token in pieces:
        if token in "([{" and len(token) == 1:
            stack.append(word.lower() if token == "(" else "")
        elif token in ")]}" and len(token) == 1 and stack:
            stack.pop()
        if not token.isspace():
            word = token
    return next((name for name in reversed(stack) if name), None)


QUOTED = ("values", "precision")
"""Arguments that older DuckDB reads as keywords."""

SELECTS = ("dp_sql", "dp_view", "dp_explain")
"""Functions whose texts may be a SELECT."""

AGGREGATES = (
    "count(*)",
    "count(",
    "count(DISTINCT ",
    "sum(",
    "avg(",
    "median(",
    "quantile_cont(",
    "quantile_disc(",
    "stddev(",
    "variance(",
)
"""What dp_sql answers."""


def _in_select(text: str, names: Names) -> list[Candidate]:
    """The word at the end of a SELECT in a text: an aggregate, a column or a table."""
    word = re.split(r"\W", text)[-1]
    if not word:
        return []
    found: list[tuple[str, str]] = [(name, "aggregate of dp_sql") for name in AGGREGATES]
    found += [(name, f"column of {tables}") for name, tables in names.columns.items()]
    return _ranked(word, found + [(name, "table") for name in names.tables])


ASKED = ("dp_marginals", "dp_queries", "dp_quantiles", "dp_discover", "dp_explain")
"""Functions whose texts are names of declared attributes."""


def _inside(call: str | None, pieces: list[str], names: Names) -> Iterable[tuple[str, str]]:
    """What a text inside a call may be: first the table, then its attributes, mechanisms and releases by name."""
    if call is None or not call.startswith("dp_"):
        return
    texts = [token[1:-1] for token in pieces[:-1] if token.startswith("'") and token.endswith("'")]
    tables = {table.lower(): table for table in (*names.tables, *names.declared)}
    table = next((tables[text.lower()] for text in reversed(texts) if text.lower() in tables), None)
    if table is None:
        yield from ((name, "protected" if name in names.declared else "table") for name in tables.values())
        return
    columns = names.declared.get(table) if call in ASKED else None
    for name in columns or [name for name, owners in names.columns.items() if table in owners.split(", ")]:
        yield name, f"attribute of {table}"
    if call in ("dp_marginals", "dp_explain"):
        yield from ((text, "all marginals") for text in ("all 1-way", "all 2-way", "all 3-way", "all <=2-way"))
    if call in ("dp_queries", "dp_explain"):
        for kind in ("identity", "total", "prefix", "suffix", "range", "circular", "hierarchy-2", "affine", "abs"):
            yield kind, "kind of query"
