"""Views that may fail on a row: what DuckDB's error then shows, and when it does."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache, lru_cache
from typing import Any

import duckdb

from duckdb_dp.sql.lineage import Node, Texts, Unreadable, arguments, inner, own_functions, parsed, text_of
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

LET_THROUGH = frozenset({
    "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape", "date_trunc", "datetrunc", "date_part", "datepart",
    "date_diff", "datediff", "date_sub", "datesub", "time_bucket",
})  # fmt: skip
"""Functions whose errors TRY does not catch where a row says the pattern, the part of a date or the width: see ``try_catches``."""

LARGEST = 999_999


def fallible(known: Texts, name: Name) -> list[str]:
    """Expressions of a view, or of views and macros in it, for which DuckDB may raise an error that shows a value."""
    text = text_of(known, name)
    try:
        trees = [] if text is None else list(trees_of(known, text))
    except Unreadable:
        return ["what cannot be read"]
    found = [what for tree, _ in trees for part in _walk_untried(tree) if (what := _fails(part, known)) is not None]
    found += [what for tree, _ in trees for part in walk(tree) if (what := _let_through(part)) is not None]
    return list(dict.fromkeys(found))


def guessing(known: Texts, name: Name) -> list[str]:
    """What a view reads whose columns' types DuckDB guesses from the rows: CSV and JSON."""
    text = text_of(known, name)
    try:
        trees = [] if text is None else list(trees_of(known, text))
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
        trees = [] if text is None else list(trees_of(known, text))
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
    """The name of a piece that may fail on some value, or in those rows that come to it; None if it cannot fail."""
    kind = part.get("class")
    if kind not in ("CAST", "FUNCTION", "WINDOW"):
        return None
    if not columns_of(part):  # in a CASE, say, only some rows come to it
        return None if name_of(part) in TOTAL or _works(json.dumps(part)) else _called(part)
    if kind == "CAST":
        return None if part.get("try_cast") or _to_text(part) else "a cast"
    name = name_of(part)
    if name in TOTAL or (name in TOTAL_BY and all(map(_positive, arguments(part)[1:]))):
        return None
    return None if name in known and name not in own_functions() else _called(part)


def _called(part: Node) -> str:
    name = name_of(part)
    return "a cast" if not name else f"{name}(...)" if name.isidentifier() else name


def _to_text(cast: Node) -> bool:
    """Whether it is a cast to VARCHAR, and not to a list or a STRUCT of that."""
    to = cast.get("type_expr") or cast.get("cast_type") or {}  # DuckDB 2.0, and before
    return "VARCHAR" in (to.get("type_name"), to.get("id"))


@lru_cache(maxsize=1024)
def _works(part: str) -> bool:
    """Whether DuckDB works out a piece without columns, as JSON."""
    statement = deepcopy(parsed("SELECT 1"))
    statement["node"]["select_list"] = [json.loads(part)]
    given = json.dumps({"error": False, "statements": [statement]})
    with _own().cursor() as con:
        try:
            (text,) = con.execute("SELECT json_deserialize_sql(?::JSON)", [given]).fetchall()[0]
            con.execute(text).fetchall()
        except duckdb.Error:
            return False
    return True


@cache
def _own() -> duckdb.DuckDBPyConnection:
    """A database in which there is nothing."""
    return duckdb.connect(config={"enable_external_access": False})


def _let_through(part: Node) -> str | None:
    """The name of a piece inside TRY whose errors that does not catch."""
    name = name_of(part) if part.get("class") == "FUNCTION" else ""
    if name not in LET_THROUGH:
        return None
    says = arguments(part)[1:] if name.endswith("_escape") else arguments(part)[:1]
    return _called(part) if columns_of(says) else None


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
    """All pieces but those inside TRY, and table functions of constants, which are called once."""
    if isinstance(node, dict):
        if node.get("type") == "OPERATOR_TRY":
            return
        if node.get("type") != "TABLE_FUNCTION" or columns_of(node):
            yield node
        else:
            node = arguments(node["function"])
    for part in inner(node):
        yield from _walk_untried(part)
