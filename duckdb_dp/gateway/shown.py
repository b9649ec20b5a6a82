"""SHOW TABLES and DESCRIBE of a dataset: what there is, for clients that look by SQL. A sandbox holds none of it."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from duckdb_dp.gateway import statement

DATASET = "DATASET"
"""What ``Session.tables`` calls what dp_ functions are asked about."""
_TABLES = re.compile(r"\s*show\s+tables\s*", re.IGNORECASE)
_COLUMNS = re.compile(r'\s*(?:describe|desc|show)\s+(?:table\s+)?(?:(\w+)|"([^"]+)")\s*', re.IGNORECASE)

DESCRIBED = pa.schema(
    [(name, pa.string()) for name in ("column_name", "column_type", "null", "key", "default", "extra")]
)
"""As DuckDB describes a table; ``extra`` says what is declared of a column."""


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
        {"column_name": row["column"], "column_type": row["type"], "null": "YES", "extra": row["values"]}
        for row in tables[known[name]][1]()
    ]
    return pa.Table.from_pylist(rows, DESCRIBED)
