"""dp_requests: what waits for a steward."""

from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "request": "BIGINT", "time": "TIMESTAMP", "account": "VARCHAR", "dataset": "VARCHAR", "function": "VARCHAR",
    "mechanism": "VARCHAR", "epsilon": "DOUBLE", "state": "VARCHAR", "reason": "VARCHAR", "steward": "VARCHAR",
    "decided_at": "TIMESTAMP", "statement": "VARCHAR", "asked": "VARCHAR", "request_hash": "VARCHAR",
}  # fmt: skip


def rows(session: Session, _arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """As the ledger has them."""
    return session.ledger.accounts.requests()


FUNCTION = register(Function(name="dp_requests", rows=rows, columns=COLUMNS, curator=True))
