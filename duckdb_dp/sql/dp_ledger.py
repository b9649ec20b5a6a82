"""dp_ledger: every charge, with everything that was recorded about it."""

from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "release": "BIGINT", "time": "TIMESTAMP", "catalog": "VARCHAR", "schema": "VARCHAR", "dataset": "VARCHAR",
    "function": "VARCHAR", "mechanism": "VARCHAR", "accounting": "VARCHAR", "cost": "DOUBLE", "mu": "DOUBLE",
    "rho": "DOUBLE", "epsilon": "DOUBLE", "delta": "DOUBLE", "unit": "VARCHAR", "neighbours": "VARCHAR",
    "state": "VARCHAR", "private": "BOOLEAN", "version": "VARCHAR", "request": "VARCHAR", "request_hash": "VARCHAR",
    "discovery_delta": "DOUBLE",
}  # fmt: skip


def rows(session: Session, _arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """As the ledger has them."""
    return session.ledger.ledger_rows()


FUNCTION = register(Function(name="dp_ledger", rows=rows, columns=COLUMNS, public=True))
