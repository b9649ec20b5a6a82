"""Calls a SQL function from Python, and returns its rows as an Arrow table."""

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from duckdb_dp.errors import DPError, expect, first_line


def ask(
    con: duckdb.DuckDBPyConnection, function: str, first: Sequence[object], named: Mapping[str, object]
) -> pa.Table:
    """The rows of ``FROM function(first, ..., name := value, ...)``.

    Args:
        con: a loaded connection.
        function: a table function.
        first: its first arguments.
        named: its other arguments; those that are None are left out.

    Raises:
        DPError: the function refuses the call, or the connection is not loaded.

    Privacy: spends what the call in SQL spends.
    """
    name = function.removeprefix("dp_")
    expect(name, "con", con, duckdb.DuckDBPyConnection, "a connection that duckdb_dp.load was called with")
    given = {key: value for key, value in named.items() if value is not None}
    arguments = ["?"] * len(first) + [f'"{key}" := ?' for key in given]
    values: list[Any] = [*first, *given.values()]
    try:
        return con.sql(f"FROM {function}({', '.join(arguments)})", params=values).to_arrow_table()
    except duckdb.CatalogException:
        raise DPError(f"{name}: this connection has no dp_ functions; load them: duckdb_dp.load(con).") from None
    except duckdb.Error as error:
        raise DPError(first_line(error)) from None
