"""Which tables and files a view reads, from its text as DuckDB's own parser understands it; an error if that is not decidable."""

# ruff: noqa: PTH111, PTH112, PTH116, PTH119, PTH207

import glob
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import duckdb

from duckdb_dp.errors import DPError
from duckdb_dp.sql.registry import find
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name

Texts = Mapping[str, Sequence[tuple[Name, str]]]
"""Last part of a name, in small letters -> the tables, views and macros that have it: (full name, text; '' for a table)."""

Node = dict[str, Any]
"""A piece of a parsed statement."""

RELATIONS = """
SELECT database_name, schema_name, table_name, '' AS text FROM duckdb_tables() WHERE NOT internal
UNION ALL SELECT database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal
"""
TEXTS = f"""{RELATIONS}
UNION ALL SELECT database_name, schema_name, function_name, macro_definition FROM duckdb_functions()
WHERE NOT internal AND macro_definition IS NOT NULL
"""

FILES = frozenset({
    "read_csv", "read_csv_auto", "read_parquet", "parquet_scan", "read_json", "read_json_auto", "read_json_objects",
    "read_json_objects_auto", "read_ndjson", "read_ndjson_auto", "read_ndjson_objects", "read_text", "read_blob",
    "sniff_csv", "glob", "delta_scan", "iceberg_scan", "read_xlsx", "st_read", "read_avro", "read_vortex",
})  # fmt: skip
"""Table functions that read the files that their first argument names."""

NOTHING = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"})
"""Table functions that read nothing but their arguments."""

MOST_FILES = 10_000
"""Files of a folder or a pattern that are looked at."""

REFERENCES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT"})
"""What may stand in a FROM clause."""

_NAME = r'(?:"(?:[^"]|"")*"|[^\W\d]\w*)'
_HEAD = rf"(?is)\s*CREATE\s.*?VIEW\s+{_NAME}(?:\.{_NAME}){{0,2}}\s*(?:\(\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\)\s*)?AS\s+"
"""What stands before the query of a view. Not compiled here: a database without views does not need it."""
_GLOB = re.compile(r"[*?\[{]")


class Unreadable(DPError):  # noqa: N818  what it says of a text
    """It is not decidable which tables a text reads."""


def texts(session: Session) -> Texts:
    """The tables, views and macros that are committed.

    Raises:
        DPError: the loaded connection is closed.
    """
    with session.looking() as cursor:
        if cursor is None:
            raise DPError(
                "the connection that was loaded is closed, and what tables are made of cannot be seen; load an open one."
            )
        return arranged(cursor.execute(TEXTS).fetchall())


def arranged(rows: Sequence[Sequence[str]]) -> Texts:
    """Rows of ``TEXTS`` by the last part of their names."""
    found: dict[str, list[tuple[Name, str]]] = {}
    for catalog, schema, name, text in rows:
        full = catalog.lower(), schema.lower(), name.lower()
        found.setdefault(full[2], []).append((full, _query(text)))
    return found


def _query(text: str) -> str:
    return (re.sub(_HEAD, "", text, count=1) if "create" in text.lower() else text).rstrip("; \n")


def text_of(known: Texts, name: Name) -> str | None:
    """The query of the view of that full name; None where it is not a view."""
    catalog, schema, table = (part.lower() for part in name)
    return next((text for full, text in known.get(table, ()) if full == (catalog, schema, table) and text), None)


def is_view(known: Texts, name: Name) -> bool:
    """Whether there is a view of that full name."""
    return text_of(known, name) is not None


def sources(known: Texts, name: Name) -> frozenset[str]:
    """What a table or view may read, through other views and macros too: last parts of names, and 'file:' with a path.

    Names in a view's text may lack their schema, so a name means every table or view of this name: never too few.

    Raises:
        Unreadable: it is not decidable.
    """
    own = name[2].lower()
    if not is_view(known, name):
        return frozenset([own])
    left, seen = [own], set[str]()
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        for _, text in known.get(one, ()):
            if text:
                try:
                    left += _reads(parsed(text), known, frozenset())
                except Unreadable as error:
                    raise Unreadable(f"'{name[2]}' {error}; make a table of it, and name that.") from None
    return frozenset(seen)


def overlap(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two sets of ``sources`` may share a table or a file."""
    paths = [
        sorted(source.removeprefix("file:") for source in found if source.startswith("file:")) for found in (one, other)
    ]
    return bool(one & other) or any(_may_meet(a, b) for a in paths[0] for b in paths[1])


def _may_meet(one: str, other: str) -> bool:
    """Whether two paths, which may have patterns or be folders, may lead to one file: by the existing files, and by their texts."""
    if os.path.basename(one) == os.path.basename(other) or _found(one) & _found(other):
        return True  # of one name: what a relative path means is a setting
    begun = [os.path.realpath(path) if os.path.isdir(path) else _GLOB.split(path)[0] for path in (one, other)]
    if begun == [one, other]:
        return one == other
    return begun[0].startswith(begun[1]) or begun[1].startswith(begun[0])


def _found(path: str) -> set[tuple[int, int]]:
    """The files that a path leads to now, whatever they are called."""
    if "://" in path:
        return set()
    inside = [f"{path}/**"] if os.path.isdir(path) else []
    files = itertools.islice(
        (file for asked in [path, *inside] for file in glob.iglob(asked, recursive=True)), MOST_FILES
    )
    return {(stat.st_dev, stat.st_ino) for file in files if (stat := _stat(file)) is not None}


def _stat(file: str) -> os.stat_result | None:
    try:
        return os.stat(file)
    except OSError:
        return None


# Parsing


@lru_cache(maxsize=1024)
def parsed(text: str) -> Node:
    """The syntax tree of a query, or of an expression, as DuckDB's parser has it.

    It uses a database of its own, because in the database of the views DuckDB would forget the types of their columns.

    Raises:
        Unreadable: the parser does not show it.
    """
    for statement in (text, f"SELECT {text}"):  # a macro's text may be an expression
        found = _serialized(statement)
        if not found.get("error"):
            return dict(found["statements"][0])
    raise Unreadable("is written in a way that cannot be read; write it as a plain SELECT")


def _serialized(statement: str) -> Node:
    with duckdb.connect() as con:
        row = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement]).fetchone()
    assert row is not None
    found: Node = json.loads(row[0])
    return found


@cache
def own_functions() -> Mapping[str, frozenset[str]]:
    """DuckDB's own functions, in small letters -> their kinds ('scalar', 'aggregate', 'table', 'macro', ...)."""
    with duckdb.connect() as con:
        rows = con.execute(
            "SELECT lower(function_name), list(DISTINCT function_type) FROM duckdb_functions() GROUP BY ALL"
        )
        return {name: frozenset(kinds) for name, kinds in rows.fetchall()}


def inner(node: Any) -> Iterator[Any]:
    """What a piece of a statement consists of."""
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def constant(node: Any) -> str | None:
    """The text of a constant; None where it is something else."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    found = node["literal"].get("text") if "literal" in node else node["value"].get("value")  # DuckDB 2.0, and before
    return found if isinstance(found, str) else None


def arguments(function: Node) -> list[Any]:
    """The arguments of a call."""
    return [given["expression"] for given in function.get("arguments", ())] or list(function.get("children", ()))


def ctes(node: Node) -> Iterator[tuple[str, Any]]:
    """The names that a query's WITH gives, in order, and what they stand for."""
    for entry in (node.get("cte_map") or {}).get("map", ()):
        yield entry["key"].lower(), entry["value"]


# What is read


def reads(node: Any, known: Texts) -> list[str]:
    """The sources of a piece of a statement: names of tables, views and macros, and files.

    Raises:
        Unreadable: it is not decidable.
    """
    return _reads(node, known, frozenset())


def _reads(node: Any, known: Texts, hidden: frozenset[str]) -> list[str]:
    """The sources of a piece of a statement; ``hidden`` are names that a WITH gives."""
    if isinstance(node, dict):
        found = []
        for name, value in ctes(node):
            found += _reads(value, known, hidden)
            hidden = hidden | {name}
        kind = node.get("type")
        if kind in ("RECURSIVE_CTE_NODE", "CTE_NODE"):
            hidden = hidden | {node["cte_name"].lower()}
        for place in ("from_table", "left", "right", "source"):
            inside = node.get(place)
            if isinstance(inside, dict) and "class" not in inside and "_NODE" not in str(inside.get("type")):
                _check_reference(inside)
        if kind == "BASE_TABLE":
            return found + _table(node, known, hidden)
        if kind == "TABLE_FUNCTION":
            return found + _table_function(node["function"], known, hidden)
        if node.get("class") in ("FUNCTION", "WINDOW"):
            found += _function(node["function_name"].lower(), known)
        return found + [name for key, part in node.items() if key != "cte_map" for name in _reads(part, known, hidden)]
    return [name for part in inner(node) for name in _reads(part, known, hidden)]


def _check_reference(node: Node) -> None:
    if node.get("type") not in REFERENCES:
        raise Unreadable(f"reads {str(node.get('type')).lower().removesuffix('_ref')}, which cannot be seen through")


def _table(node: Node, known: Texts, hidden: frozenset[str]) -> list[str]:
    name = node["table_name"].lower()
    if name in known:
        return [name]
    if not node.get("schema_name"):
        if name in hidden:
            return []
        if re.search(r"[./\\*?:]", name):
            return [_file(node["table_name"])]
    raise Unreadable(f"reads '{node['table_name']}', which is no table that is committed")


def _file(path: str) -> str:
    """A path as one text: local ones whole, without 'file:' and '~', and links resolved up to the first pattern."""
    path = re.sub(r"^file:(//(localhost)?(?=/))?", "", path, flags=re.IGNORECASE)
    if "://" in path:
        return f"file:{path.lower()}"
    path = os.path.expanduser(path)
    begun = _GLOB.split(path)[0]
    return f"file:{os.path.realpath(begun)}{'/' if begun.endswith('/') else ''}{path[len(begun) :]}"


def _table_function(function: Node, known: Texts, hidden: frozenset[str]) -> list[str]:
    name, given = function["function_name"].lower(), arguments(function)
    if (
        name.startswith("dp_")
        and all(f"_dp_bind('{name}'" in text for _, text in known.get(name, ()))
        and _is_public(name)
    ):
        return []
    found = [source for argument in given for source in _reads(argument, known, hidden)]
    if name in known:
        return [*found, name]
    if name in NOTHING:
        return found
    first = _texts(given[0]) if given else None
    if first and name in FILES:
        return [*found, *map(_file, first)]
    if first and name == "query":
        return [*found, *_reads(parsed(first[0]), known, frozenset())]
    if first and name == "query_table":
        return [*found, *(_named(text, known) for text in first)]
    return _refuse(name)


def _is_public(name: str) -> bool:
    """Whether a function of ours returns releases and declarations only."""
    with suppress(DPError):
        return find(name).public
    return False


def _texts(argument: Node) -> list[str] | None:
    """The texts of an argument that is a constant text or a list of them; None where it is something else."""
    parts = arguments(argument) if argument.get("function_name") == "list_value" else [argument]
    found = [text for part in parts if (text := constant(part)) is not None]
    return found if len(found) == len(parts) else None


def _named(text: str, known: Texts) -> str:
    name = text.rsplit(".", 1)[-1].strip('"').lower()
    if name not in known:
        raise Unreadable(f"reads '{text}', which is no table that is committed")
    return name


def _refuse(name: str) -> list[str]:
    raise Unreadable(f"calls {name}(...), and what that reads cannot be seen")


def _function(name: str, known: Texts) -> list[str]:
    """What a function reads inside an expression: nothing, unless it is a macro."""
    if name in known:
        return [name]
    if name == "getvariable" or (name.isidentifier() and name not in own_functions() and name not in _SPECIAL):
        _refuse(name)
    return []


_SPECIAL = frozenset({
    "count_star", "coalesce", "unnest", "list_value", "row", "struct_pack", "if", "ifnull", "nullif",
    "row_number", "rank", "rank_dense", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "first_value",
    "last_value", "nth_value", "fill",
})  # fmt: skip
"""Functions that DuckDB's parser knows, and its list of functions may not."""
