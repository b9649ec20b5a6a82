"""Why a SQL text does not parse, in the words of SQL."""

import re
from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from duckdb_dp.errors import first_line, identifier

CLAUSES = frozenset({
    "all", "and", "as", "by", "case", "distinct", "else", "end", "except", "exists", "from", "group", "having", "in", "intersect",
    "into", "is", "join", "limit", "not", "null", "on", "or", "order", "qualify", "select", "then", "union", "using", "when",
    "where", "with",
})  # fmt: skip
"""Words that no column is called without quotes: where parsing stops at one, the text went wrong before it."""


def why_not_parsed(error: SqlglotError) -> str:
    """What sqlglot says of a text, without the names of its own classes; at a word of SQL, how a column of that name is written."""
    if word := _word(error):
        return f"{word} is a word of SQL there; if a column is called so, write {identifier(word)} in double quotes."
    text = first_line(error).rstrip(".")
    if lacking := re.match(r"Required keyword: '\w+' missing for (\w+)", text):
        return _lacking(lacking[1])
    found: dict[str, Any] = next(iter(getattr(error, "errors", [])), {})
    if "Unexpected token" in text and found.get("highlight"):
        return f"{found['highlight']} is not expected there, {_place(found)}."
    text = re.sub(r"\. Line \d+, Col: \d+$", f", {_place(found)}", text) if found.get("col") else text
    return "it ends too early, or is no condition." if " into " in text else text + "."


def _place(found: dict[str, Any]) -> str:
    """Where a word begins: sqlglot counts to its end."""
    column = found["col"] - max(len(found.get("highlight") or ""), 1) + 1
    return f"in line {found['line']}, column {column}"


def _lacking(name: str) -> str:
    """What is not there, in the words of SQL: ``name`` is that of a class of sqlglot."""
    if name in ("Where", "Having", "Qualify"):
        return f"{name.upper()} has no condition behind it."
    node = getattr(exp, name, None)
    sign = _SIGNS.get(name) or (node.key.upper() if node is not None else name.upper())
    return f"what belongs behind {sign} is missing."


_SIGNS = {
    "EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<=", "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "IntDiv": "//",
    "Mod": "%", "DPipe": "||", "Not": "NOT", "Between": "BETWEEN", "Paren": "(", "Ordered": "ORDER BY",
}  # fmt: skip


def _word(error: SqlglotError) -> str | None:
    """The word of SQL at which parsing stopped, where it may be a column's name; IF is noticed behind it, where it is compared."""
    for found in getattr(error, "errors", [])[:1]:
        word = str(found["highlight"])
        if word.upper() in DuckDB.Tokenizer.KEYWORDS and word.isalpha() and word.lower() not in CLAUSES:
            return word
        compared = re.search(r"\b(if)\s*[=<>!]+\s*$", str(found["start_context"]), re.IGNORECASE)
        return compared and compared[1]
    return None
