"""Views of files with rows of no file in their place, so that DuckDB writes their plans: it writes none of what reads files."""

import json
from copy import deepcopy
from pathlib import PurePath
from typing import Any

import duckdb

from duckdb_dp.counting.encode import literal, quote
from duckdb_dp.sql.lineage import FILES, Node, Texts, Unreadable, arguments, constant, parsed, text_of
from duckdb_dp.sql.protectable import walk
from duckdb_dp.synthesis.database import Name

_SCHEMAS = """
SELECT count(DISTINCT leaves) FROM (
    SELECT list((name, type, converted_type, scale, precision, logical_type::VARCHAR) ORDER BY name, type, converted_type) AS leaves
    FROM parquet_schema({})
    WHERE num_children IS NULL GROUP BY file_name
)
"""


def without(con: duckdb.DuckDBPyConnection, known: Texts, name: Name) -> str:
    """The query of a view in which each file is a subquery with its columns and no values.

    Raises:
        Unreadable: it is not decidable what takes a file's place, or the file's reader itself converts values.
    """
    text = text_of(known, name)
    if text is None:
        raise Unreadable("is no view")
    tree = deepcopy(parsed(text))
    try:
        _replace(con, known, tree, depth=0)
        query = _text(con, tree["node"])
        con.execute(f"DESCRIBE {query}").fetchall()
    except duckdb.Error:
        raise Unreadable("reads a file in a way that cannot be read") from None
    return query


def _replace(con: duckdb.DuckDBPyConnection, known: Texts, node: Any, *, depth: int) -> None:
    """Put subqueries in the place of files, and of views that read some, everywhere in a tree."""
    for key, part in list(node.items()) if isinstance(node, dict) else list(enumerate(node)):
        if isinstance(part, dict) and (found := _instead(con, known, part, depth)) is not None:
            node[key] = found
        elif isinstance(part, dict | list):
            _replace(con, known, part, depth=depth)


def _instead(con: duckdb.DuckDBPyConnection, known: Texts, node: Node, depth: int) -> Node | None:
    """The subquery in the place of a piece that reads a file, or is a view that does; None of others."""
    if node.get("type") == "TABLE_FUNCTION" and node["function"]["function_name"].lower() in FILES:
        called = node["function"]["function_name"]
        _check_reader(con, node["function"])
        return _empty(con, node, called)
    if node.get("type") != "BASE_TABLE":
        return None
    name = node["table_name"].lower()
    if name not in known:
        if not any(mark in name for mark in "./\\*?:"):
            return None  # of a WITH
        if name.split("?")[0].endswith((".parquet", ".parq")):
            _check_files(con, literal(node["table_name"]))
        return _empty(con, node, PurePath(node["table_name"]).name.split(".")[0])
    texts = {text for _, text in known[name] if text}
    if not any(_reads_files(known, text, depth) for text in texts):
        return None
    if len(known[name]) > 1:
        raise Unreadable(f"reads '{name}', of which there are several")
    tree = deepcopy(parsed(texts.pop()))
    _replace(con, known, tree, depth=depth + 1)
    return _subquery(node, tree["node"], node["table_name"])


def _reads_files(known: Texts, text: str, depth: int) -> bool:
    if depth > 50:
        raise Unreadable("reads itself")
    for part in walk(parsed(text)):
        if part.get("type") == "TABLE_FUNCTION" and part["function"]["function_name"].lower() in FILES:
            return True
        if part.get("type") == "BASE_TABLE":
            name = part["table_name"].lower()
            if name not in known and any(mark in name for mark in "./\\*?:"):
                return True
            if any(_reads_files(known, inside, depth + 1) for _, inside in known.get(name, ()) if inside):
                return True
    return False


def _check_reader(con: duckdb.DuckDBPyConnection, function: Node) -> None:
    """Refuse Parquet files of different types, or with a schema that is given: their reader converts values, and may fail."""
    if function["function_name"].lower() not in ("read_parquet", "parquet_scan"):
        return
    words = {str(part.get("name", "") or part.get("alias", "")).lower() for part in function.get("arguments") or ()}
    if "schema" in words or any(
        part.get("type") == "COMPARE_EQUAL" and "schema" in json.dumps(part.get("left")).lower()
        for part in arguments(function)
    ):
        raise Unreadable("gives the types of a file")
    first = arguments(function)[0]
    given = arguments(first) if first.get("function_name") == "list_value" else [first]
    files = [constant(one) for one in given]
    if None in files:
        raise Unreadable("computes the names of files")
    _check_files(con, f"[{', '.join(literal(str(file)) for file in files)}]")


def _check_files(con: duckdb.DuckDBPyConnection, files: str) -> None:
    if con.execute(_SCHEMAS.format(files)).fetchall() != [(1,)]:
        raise Unreadable("reads files of different columns")


def _empty(con: duckdb.DuckDBPyConnection, node: Node, alias: str) -> Node:
    """A subquery with the columns of what reads a file."""
    statement = deepcopy(parsed("SELECT * FROM x"))["node"]
    statement["from_table"] = {**node, "column_name_alias": []}
    rows = con.execute(f"DESCRIBE {_text(con, statement)}").fetchall()
    columns = ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_, *_ in rows)
    return _subquery(node, parsed(f"SELECT {columns}")["node"], alias)


def _subquery(node: Node, query: Node, alias: str) -> Node:
    found = deepcopy(parsed("SELECT * FROM (SELECT 1) AS a"))["node"]["from_table"]
    found["subquery"]["node"] = query
    return {**found, "alias": node.get("alias") or alias, "column_name_alias": node.get("column_name_alias", [])}


def _text(con: duckdb.DuckDBPyConnection, node: Node) -> str:
    statement = {**deepcopy(parsed("SELECT 1")), "node": node}
    given = json.dumps({"error": False, "statements": [statement]})
    (text,) = con.execute("SELECT system.main.json_deserialize_sql(?::JSON)", [given]).fetchall()[0]
    return str(text).rstrip("; ")
