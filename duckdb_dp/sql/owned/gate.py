"""The last look at the SQL of a relation, as DuckDB parses it: it reads tables of the dataset and public ones by their full names."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import duckdb

from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql import collations, lineage, own_names, provenance, public_views
from duckdb_dp.sql.above.gate import check_expression, nodes
from duckdb_dp.sql.family import Family
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name

_RELATIONS = {"SELECT_NODE", "SET_OPERATION_NODE", "BASE_TABLE", "JOIN", "SUBQUERY", "DISTINCT_MODIFIER", "EMPTY"}
_OTHERS = {
    "PIVOT",
    "SHOW_REF",
    "COLUMN_DATA",
    "BOUND_TABLE_REF",
    "DELIM_GET",
    "CTE",
    "TABLE_REF",
    "TABLE_FUNCTION",
    "EXPRESSION_LIST",
}


def check(sql: str, family: Family, session: Session) -> None:
    """Refuse SQL that reads anything but members and public tables, or calls a function that is not listed.

    Args:
        sql: of the relation.
        family: the dataset's tables.
        session: whose catalog may have views that are public no longer.

    Raises:
        DPError: it does.
    """
    for name in _tables(sql):
        _check_table(name, family, session)
        public = family.public.get(name)
        if public is not None:
            public_views.check_read(session, public, _columns(sql))
    if all(name[1] != SCHEMA for name in _tables(sql)):
        collations.check_binds(session, sql)


@lru_cache(maxsize=128)
def _columns(sql: str) -> frozenset[str]:
    """The last parts of all names of columns in SQL, in small letters."""
    named = (node["column_names"] for node in nodes(lineage.parsed(sql)) if node.get("class") == "COLUMN_REF")
    return frozenset(str(names[-1]).lower() for names in named)


@lru_cache(maxsize=128)
def _tables(sql: str) -> tuple[Name, ...]:
    """The tables that SQL reads, by their names there; kept, as the text alone says so, and a call that is asked again has the same.

    Raises:
        DPError: it does anything else, or calls a function that is not listed.
    """
    sorted_: set[int] = set()  # modifiers that are the ORDER BY of an aggregate
    found: list[Name] = []
    for node in nodes(lineage.parsed(sql)):
        kind = node.get("type")
        if "class" in node:
            check_expression(node)
            sorted_.add(id(node.get("order_bys")))
        elif isinstance(kind, str) and (kind.endswith(("_NODE", "_MODIFIER")) or kind in _RELATIONS | _OTHERS):
            if id(node) in sorted_:
                continue
            if kind not in _RELATIONS or node.get("sample") or node.get("at_clause"):
                raise DPError(f"{kind.lower()} is not read in a join; write tables, joins and subqueries.")
            if kind == "BASE_TABLE":
                catalog, schema, table = (str(node.get(f"{word}_name", "")) for word in ("catalog", "schema", "table"))
                found.append((catalog, schema, table))
    return tuple(dict.fromkeys(found))


def read(select: str, family: Family, session: Session) -> list[tuple[Any, ...]]:
    """The rows of a SELECT of public tables.

    Raises:
        DPError: it reads another one.
    """
    check(select, replace(family, members={}), session)
    if any(schema == SCHEMA for _, schema, _ in _tables(select)):
        from duckdb_dp.sql.engines import public_rows  # for import time: most tables are in DuckDB

        return public_rows.read(session, select)
    with session.looking() as cursor:
        return [] if cursor is None else cursor.execute(own_names.bound(select)).fetchall()


def read_all(selects: Sequence[str], family: Family, session: Session) -> list[list[tuple[Any, ...]]]:
    """The rows of several SELECTs of public tables, by one statement where they are DuckDB's.

    Raises:
        DPError: as ``read``.
    """
    if len(selects) > 1 and all(schema != SCHEMA for select in selects for _, schema, _ in _tables(select)):
        for select in selects:
            check(select, replace(family, members={}), session)
        listed = ", ".join(f"(SELECT list(one) FROM ({select}) AS one)" for select in selects)
        with session.looking() as cursor, suppress(duckdb.Error):  # which each of them says better
            if cursor is not None:
                (found,) = cursor.execute(own_names.bound(f"SELECT {listed}")).fetchall()
                return [[tuple(row.values()) for row in rows or []] for rows in found]
    return [read(select, family, session) for select in selects]


def _check_table(name: Name, family: Family, session: Session) -> None:
    public = family.public.get(name)
    if public is None and name not in family.members:
        raise DPError(f"{as_sql('.'.join(name))} is neither a table of the dataset nor public.")
    if public is not None and public.view:
        provenance.check_public(session, public.name)
