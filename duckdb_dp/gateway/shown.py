"""SHOW TABLES and DESCRIBE of a dataset: what there is, for clients that look by SQL. A sandbox holds none of it."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from duckdb_dp.errors import DPError
from duckdb_dp.gateway import statement
from duckdb_dp.gateway.statement import Statement

DATASET = "DATASET"
"""What ``Session.tables`` calls what dp_ functions are asked about."""
_TABLES = re.compile(r"\s*show\s+tables\s*", re.IGNORECASE)
_COLUMNS = re.compile(r'\s*(?:describe|desc|show)\s+(?:table\s+)?(?:(\w+)|"([^"]+)")\s*', re.IGNORECASE)

_CATALOGUES = frozenset({
    "information_schema", "pg_catalog", "pg_tables", "sqlite_master", "duckdb_tables", "duckdb_columns",
    "duckdb_views", "duckdb_constraints",
})  # fmt: skip
"""What lists the tables of a database. A sandbox would list its own, and so none of those that may be asked."""
_ALL_TABLES = re.compile(r"\s*show\s+all\s+tables\s*", re.IGNORECASE)

DESCRIBED = pa.schema(
    [(name, pa.string()) for name in ("column_name", "column_type", "null", "key", "default", "extra")]
)
"""As DuckDB describes a table; ``extra`` says what is declared of a column, and ``key`` what it names."""


def listed_by_show(read: Statement) -> Statement:
    """The statement itself, unless it lists tables in a way that would silently find none.

    Raises:
        DPError: it does.
    """
    found = sorted(read.names & _CATALOGUES)
    if found or _ALL_TABLES.fullmatch(read.text):
        raise DPError(
            f"{found[0] if found else 'SHOW ALL TABLES'} lists none of the tables that may be asked here: SHOW TABLES lists them, and "
            "DESCRIBE visits says the columns of one."
        )
    return read


def shown(
    text: str, tables: Mapping[str, tuple[str, Callable[[], list[dict[str, Any]]]]], own: Iterable[str]
) -> pa.Table | None:
    """What a statement shows; None where it is another one.

    Args:
        text: the statement.
        tables: as ``Session.tables``.
        own: names of tables that the session has made, in small letters.
    """
    text = " ".join(statement.words(text))
    if _TABLES.fullmatch(text):
        return pa.table({"name": pa.array(sorted({*tables, *own}), pa.string())})
    found = _COLUMNS.fullmatch(text)
    name = "" if found is None else (found[1] or found[2]).lower()
    known = {each.lower(): each for each in tables}
    if name not in known or name in own or tables[known[name]][0] != DATASET:
        return None
    rows = [
        {
            "column_name": row["column"],
            "column_type": row["type"],
            "null": "YES",
            "key": row["key"],
            "extra": row["values"],
        }
        for row in tables[known[name]][1]()
    ]
    return pa.Table.from_pylist(rows, DESCRIBED)
