"""Views that may fail on a row: what DuckDB's error then shows, and when it does."""

import re
from collections.abc import Iterator
from typing import Any

from duckdb_dp.sql.lineage import Node, Texts, Unreadable, arguments, inner, text_of
from duckdb_dp.sql.protectable import SETS, columns_of, name_of, trees_of, walk
from duckdb_dp.synthesis.database import Name

TOTAL = frozenset({
    "coalesce", "ifnull", "nullif", "if", "lower", "upper", "trim", "ltrim", "rtrim", "length", "||", "concat", "concat_ws",
    "starts_with", "prefix", "contains", "~~", "!~~", "~~*", "!~~*", "greatest", "least", "year", "month", "day", "quarter", "floor",
    "ceil", "list_value", "struct_pack", "row", "count", "count_star", "sum", "avg", "any_value", "bool_and", "bool_or", "row_number",
    "unnest",
})  # fmt: skip
"""Functions that raise an error for no value. Sums beyond all types do, but are taken of groups and not of rows."""

TOTAL_BY = frozenset({"/", "//", "%", "round", "left", "right", "substring", "substr", "min", "max"})
"""Functions that raise none where all arguments but the first one are constants from 1 to ``LARGEST``: for 0 or huge numbers they do."""

LARGEST = 999_999


def fallible(known: Texts, name: Name) -> list[str]:
    """Expressions of a view, or of views and macros in it, for which DuckDB may raise an error that shows a value."""
    text = text_of(known, name)
    try:
        trees = [] if text is None else list(trees_of(known, name[2].lower(), text))
    except Unreadable:
        return ["what cannot be read"]
    found = [what for tree, _ in trees for part in _walk_untried(tree) if (what := _fails(part, known)) is not None]
    return list(dict.fromkeys(found))


def guessing(known: Texts, name: Name) -> list[str]:
    """What a view reads whose columns' types DuckDB guesses from the rows: CSV and JSON."""
    text = text_of(known, name)
    try:
        trees = [] if text is None else list(trees_of(known, name[2].lower(), text))
    except Unreadable:
        return []
    found = []
    for tree, _ in trees:
        for part in walk(tree):
            if part.get("type") == "TABLE_FUNCTION" and (called := name_of(part["function"])).startswith(
                ("read_csv", "read_json", "read_ndjson")
            ):
                found.append(f"{called}(...)")
            elif part.get("type") == "BASE_TABLE" and re.search(
                r"\.(csv|tsv|json|ndjson|jsonl)(\.\w+)?$", str(part.get("table_name", "")).lower()
            ):
                found.append("a file of CSV or JSON")
    return list(dict.fromkeys(found))


def chooses(known: Texts, name: Name) -> bool:
    """Whether a view, or a view or macro in it, may leave out rows of what it reads, or join them."""
    text = text_of(known, name)
    try:
        trees = [] if text is None else list(trees_of(known, name[2].lower(), text))
    except Unreadable:
        return True
    plain = {"BASE_TABLE", "TABLE_FUNCTION", "SUBQUERY", "EMPTY"}
    for tree, _ in trees:
        for node in walk(tree):
            if node.get("type") in (*SETS, "JOIN") or (node.get("type") == "SELECT_NODE" and _of_some_rows(node)):
                return True
            source = node.get("from_table")
            if isinstance(source, dict) and source.get("type") not in plain:
                return True
    return False


def _of_some_rows(node: Node) -> bool:
    """Whether a SELECT has a condition, or anything else that chooses rows."""
    return any(
        node.get(clause) for clause in ("where_clause", "having", "qualify", "sample", "modifiers", "group_expressions")
    )


def _fails(part: Node, known: Texts) -> str | None:
    """The name of a piece that may fail on some value; None if it cannot fail, or is the same for all rows."""
    if part.get("class") == "CAST":
        to_text = "VARCHAR" in str(part.get("type_expr") or part.get("cast_type"))
        fixed = isinstance(part.get("child"), dict) and part["child"].get("class") == "CONSTANT"
        return None if part.get("try_cast") or to_text or fixed else "a cast"
    if part.get("class") in ("FUNCTION", "WINDOW") and columns_of(part):
        name = name_of(part)
        if name in TOTAL | known.keys() or (name in TOTAL_BY and all(map(_positive, arguments(part)[1:]))):
            return None
        return name if not name.isidentifier() else f"{name}(...)"
    return None


def _positive(node: Any) -> bool:
    """Whether it is a constant number from 1 to ``LARGEST``."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return False
    found = node["literal"].get("text") if "literal" in node else node["value"].get("value")  # DuckDB 2.0, and before
    try:
        return 1 <= float(found) <= LARGEST
    except (TypeError, ValueError):
        return False


def _walk_untried(node: Any) -> Iterator[Node]:
    """All pieces but those inside TRY."""
    if isinstance(node, dict):
        if node.get("type") == "OPERATOR_TRY":
            return
        yield node
    for part in inner(node):
        yield from _walk_untried(part)
