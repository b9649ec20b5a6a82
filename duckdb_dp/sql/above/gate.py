"""The last look at what runs above answers: by an allow-list it reads answers and public tables, and nothing else."""

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql import lineage
from duckdb_dp.sql.own_names import ROWS

_OPERATORS = "+ - * / // % ^ ** || & | ~ << >> ! ~~ !~~ ~~* !~~* ~~~ <->"


@cache
def _allowed() -> frozenset[str]:
    return frozenset([*ROWS.split(), *_OPERATORS.split()])


_TABLES = {"unnest", "range", "generate_series"}

_CLASSES = {
    "CONSTANT", "COLUMN_REF", "FUNCTION", "WINDOW", "COMPARISON", "CONJUNCTION", "OPERATOR", "CASE", "CAST", "BETWEEN",
    "SUBQUERY", "STAR", "COLLATE", "LAMBDA", "LAMBDA_REF", "TYPE",
}  # fmt: skip

_NODES = {
    "SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "BASE_TABLE", "JOIN", "SUBQUERY", "EMPTY", "EXPRESSION_LIST",
    "TABLE_FUNCTION", "ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER",
}  # fmt: skip


def check(body: str, tables: Collection[str]) -> None:
    """Refuse what reads anything else than these tables, or calls a function that is not listed.

    Args:
        body: SQL of a statement in which each table has a name of ``tables``.
        tables: answers, public tables and CTEs, in small letters.

    Raises:
        DPError: it does.
    """
    try:
        tree = lineage.parsed(body)
    except DPError:
        raise
    except Exception:
        raise DPError(
            "the statement is written in a way that is not read above answers; write it as a plain SELECT."
        ) from None
    for node in nodes(tree):
        if "class" in node:
            check_expression(node)
        elif isinstance(kind := node.get("type"), str) and (kind.endswith(("_NODE", "_MODIFIER")) or _table(node)):
            _check_relation(node, kind, tables)


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a statement as DuckDB parses it."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes(value)


def _table(node: dict[str, Any]) -> bool:
    """Whether a node without a class is an item of FROM: these have an alias, or what they join."""
    kind = node.get("type", "")
    return kind in _NODES or kind in (
        "PIVOT",
        "SHOW_REF",
        "COLUMN_DATA",
        "BOUND_TABLE_REF",
        "DELIM_GET",
        "CTE",
        "TABLE_REF",
    )


def check_expression(node: dict[str, Any]) -> None:
    """Refuse syntax and functions that are not listed.

    Raises:
        DPError: it is not listed.
    """
    if node["class"] not in _CLASSES:
        raise DPError(f"{str(node['class']).lower()} is not understood above answers; write a plain expression.")
    name = str(node.get("function_name", "")).lower()
    if node["class"] in ("FUNCTION", "WINDOW") and name:
        # DuckDB 1.4 writes EXTRACT as main.date_part, [1, 2] as main.list_value, and AT TIME ZONE as main.timezone.
        own = not node.get("schema") or (node["schema"] == "main" and name in ("date_part", "list_value", "timezone"))
        if not own or node.get("catalog") or name not in _allowed():
            raise DPError(
                f"{as_sql(name)} is not among the functions that may work on answers: arithmetic, the usual functions of numbers, "
                "texts and dates, aggregates and windows."
            )


def _check_relation(node: dict[str, Any], kind: str, tables: Collection[str]) -> None:
    if kind not in _NODES or node.get("sample"):
        what = "a sample" if node.get("sample") else kind.lower().removesuffix("_node").replace("_", " ")
        raise DPError(f"{what} is not read above answers; write SELECT ... FROM ... JOIN ... WHERE ... GROUP BY ....")
    if kind == "BASE_TABLE":
        full = node.get("schema_name") or node.get("catalog_name") or node.get("at_clause")
        if full or str(node.get("table_name", "")).lower() not in tables:
            raise DPError(
                f"{as_sql(node.get('table_name'))} is no answer and no public table; above answers nothing else is read."
            )
    if kind == "TABLE_FUNCTION":
        name = str((node.get("function") or {}).get("function_name", "")).lower()
        if name not in _TABLES:
            raise DPError(f"{as_sql(name)} reads something else than answers; above them nothing else is read.")
