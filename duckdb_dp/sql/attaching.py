"""Tables of other engines under a name in SQL: attaching them, finding them by it, and what dp_check says of them."""

from typing import Any

import duckdb

from duckdb_dp.counting.engines.source import Source
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql.arguments import name_parts
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name


def attach(con: duckdb.DuckDBPyConnection, session: Session, name: str, table: Any) -> None:
    """Make an Ibis table expression known under a name, for as long as the database is open.

    Raises:
        DPError: not a name, or that of a DuckDB table or view; not an Ibis table, or one of this very connection.

    Privacy: costs nothing; no rows are read.
    """
    parts = name_parts(name)
    if len(parts) != 1:
        raise DPError(f"attach: {as_sql(name)} has several parts; give the table one name of its own, e.g. 'events'.")
    (name,) = parts
    here = con.execute(
        "SELECT database_name, schema_name FROM (SELECT database_name, schema_name, table_name AS name FROM duckdb_tables() "
        "UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views()) WHERE lower(name) = lower(?) AND "
        "((database_name, schema_name) = (current_database(), current_schema()) OR database_name = 'temp')",
        [name],
    ).fetchone()
    if here is not None:
        raise DPError(
            f"attach: '{name}' is a DuckDB table already ({'.'.join(here)}.{name}); attach under another name."
        )
    given = Source.of(name, table)
    if getattr(given.backend, "con", None) is con:
        raise DPError(
            f"attach: the source of '{name}' is a table of this DuckDB connection itself; protect it by its own name."
        )
    session.attached.add(given)


def source(session: Session, name: Name) -> Source:
    """The attached table of that full name.

    Raises:
        DPError: it is not attached now.
    """
    found = session.attached.find(*name)
    if found is None:
        catalog, _, table = name
        raise DPError(
            f"'{table}' is a table in {catalog} and not attached now. Attach it: duckdb_dp.attach(con, '{table}', table)"
        )
    return found
