"""Conversions that DuckDB adds to a query where types differ, as its plan shows them: those that fail for some value."""

import json
from typing import Any

import duckdb

from duckdb_dp.sql.lineage import inner

Type = dict[str, Any]
"""A type, as DuckDB writes plans."""

_DIGITS = {
    "BOOLEAN": 1, "TINYINT": 3, "UTINYINT": 3, "SMALLINT": 5, "USMALLINT": 5, "INTEGER": 10, "UINTEGER": 10, "BIGINT": 19,
    "UBIGINT": 20, "HUGEINT": 39, "UHUGEINT": 39,
}  # fmt: skip
"""Whole numbers, the narrowest first: digits of the largest one."""

_SIGNED = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"]


def failing(con: duckdb.DuckDBPyConnection, select: str) -> list[str] | None:
    """Those of a SELECT that may fail on some value, as 'DATE to TIMESTAMP_NS'; None where DuckDB writes no plan, as of files.

    Privacy: costs nothing; reads no rows.
    """
    (text,) = con.execute("SELECT system.main.json_serialize_plan(?::VARCHAR)", [select]).fetchall()[0]
    plan = json.loads(text)
    return None if plan.get("error") else list(dict.fromkeys(_failing(plan)))


def _failing(node: Any) -> list[str]:
    if isinstance(node, dict):
        if node.get("type") == "OPERATOR_TRY":
            return []
        found = [name for part in node.values() for name in _failing(part)]
        if node.get("type") == "OPERATOR_CAST" and not (node.get("function_data") or node).get("try_cast"):
            (child,) = node.get("children") or [node["child"]]  # DuckDB 2.0, and before
            given, wanted = _returned(child), node["return_type"]
            if child.get("type") != "VALUE_CONSTANT" and not (given and _holds(given, wanted)):
                found.append(f"{_name(given)} to {_name(wanted)}")
        return found
    return [name for part in inner(node) for name in _failing(part)]


def _returned(node: dict[str, Any]) -> Type | None:
    """The type of a piece, where the plan says it."""
    if "return_type" in node:
        return dict(node["return_type"])
    if str(node.get("type", "")).startswith(("COMPARE_", "CONJUNCTION_")):
        return {"id": "BOOLEAN"}
    return None


def _holds(given: Type, wanted: Type) -> bool:
    """Whether a type holds all values of another one."""
    one, other = given["id"], wanted["id"]
    if other == "VARCHAR" or one in ("NULL", "SQLNULL", '"NULL"'):
        return True
    if one == other and one != "DECIMAL":
        return bool(given.get("type_info") == wanted.get("type_info"))
    if other == "DOUBLE":
        return one in _DIGITS or one in ("FLOAT", "DECIMAL")
    if other == "FLOAT":
        return one in _DIGITS and one not in ("HUGEINT", "UHUGEINT")
    if one in _DIGITS and other in _DIGITS:
        if one.startswith("U") and other.startswith("U"):
            return _DIGITS[one] <= _DIGITS[other]
        return other in _SIGNED and _DIGITS[one] < _DIGITS[other] + (one in _SIGNED)
    if other == "DECIMAL" and one in ("DECIMAL", *_DIGITS):
        digits, places = _decimal(given) if one == "DECIMAL" else (_DIGITS[one], 0)
        width, scale = _decimal(wanted)
        return scale >= places and width - scale >= digits - places
    return False


def _decimal(type_: Type) -> tuple[int, int]:
    info = type_["type_info"]
    return info["width"], info["scale"]


def _name(type_: Type | None) -> str:
    if type_ is None:
        return "a value"
    return "DECIMAL({}, {})".format(*_decimal(type_)) if type_["id"] == "DECIMAL" else str(type_["id"])
