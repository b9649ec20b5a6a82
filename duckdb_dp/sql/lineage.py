"""Which tables a view is made of."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import duckdb

from duckdb_dp.errors import DPError
from duckdb_dp.relational.schema import Name

if TYPE_CHECKING:
    from duckdb_dp.sql.functions import Session

Texts = Mapping[str, Sequence[tuple[Name, str]]]
"""Last part of a name, in small letters -> the views and macros that have it: (full name, what they stand for)."""

TEXTS = """
SELECT database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal
UNION ALL SELECT database_name, schema_name, function_name, macro_definition FROM duckdb_functions()
WHERE NOT internal AND macro_definition IS NOT NULL
"""

_NAME = r'(?:"(?:[^"]|"")*"|[^\W\d]\w*)'
_HEAD = re.compile(
    rf"\s*CREATE\s.*?VIEW\s+{_NAME}(?:\.{_NAME}){{0,2}}\s*(?:\(\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\)\s*)?AS\s+",
    re.IGNORECASE | re.DOTALL,
)


def texts(session: "Session") -> Texts:
    """The views and macros that are committed.

    Raises:
        DPError: nobody can be asked.
    """
    cursor = session.cursor()
    if cursor is None:
        raise DPError(
            "the connection that was loaded is closed, and what tables are made of cannot be seen; load an open one."
        )
    with cursor:
        rows = cursor.execute(TEXTS).fetchall()
    found: dict[str, list[tuple[Name, str]]] = {}
    for catalog, schema, name, text in rows:
        full = catalog.lower(), schema.lower(), name.lower()
        found.setdefault(full[2], []).append((full, _HEAD.sub("", text, count=1).rstrip("; \n")))
    return found


def is_view(known: Texts, name: Name) -> bool:
    """Whether there is a view of that full name."""
    catalog, schema, table = (part.lower() for part in name)
    return (catalog, schema, table) in [full for full, _ in known.get(table, ())]


def tables(known: Texts, name: Name) -> frozenset[str]:
    """Last parts of the names of all tables that a view may read, through other views and macros too, in small letters.

    Names in a view's text may lack their schema, so one may mean any table or view that ends so. Never too few, but for what
    a function outside SQL reads.
    """
    if not is_view(known, name):
        return frozenset([name[2].lower()])
    left, seen = [name[2].lower()], set[str]()
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += [part for _, text in known.get(one, ()) for part in _named(text)]
    return frozenset(seen)


def _named(text: str) -> list[str]:
    """The tables that a text reads, as DuckDB understands it; what it does not understand by itself may read all it says.

    On a database of its own: asked where the views are, DuckDB forgets the types of their columns.
    """
    with duckdb.connect() as con:
        try:
            return [name.lower() for name in con.get_table_names(text)]
        except duckdb.Error:
            return [word.strip('"').replace('""', '"').lower() for word in re.findall(_NAME, text)]
