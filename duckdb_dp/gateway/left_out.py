"""What answers leave out, as lines beside the rows that the broker returns."""

from collections.abc import Callable

import pyarrow as pa

from duckdb_dp.gateway.values import saying
from duckdb_dp.reporting import asked
from duckdb_dp.sql.install import described
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.signing import READ


def beside(session: Session, key: str, work: Callable[[], pa.Table]) -> pa.Table:
    """The rows that some work returns, with what they leave out by the requests that its calls read.

    Args:
        session: of the database.
        key: of the connection that does the work, and nothing else meanwhile.
        work: runs one statement.
    """
    read = READ[key] = []
    try:
        rows = work()
    finally:
        READ.pop(key, None)
    return saying(rows, (line for one in described(session, read) for line in asked.left_out(*one)))
