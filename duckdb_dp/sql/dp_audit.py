"""dp_audit: what the gateway was asked."""

from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "entry": "BIGINT", "time": "TIMESTAMP", "account": "VARCHAR", "client": "VARCHAR", "statement": "VARCHAR",
    "outcome": "VARCHAR", "detail": "VARCHAR", "request": "BIGINT", "seconds": "DOUBLE",
}  # fmt: skip


def rows(session: Session, _arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """As the ledger has them."""
    return session.ledger.accounts.audit()


FUNCTION = register(Function(name="dp_audit", rows=rows, columns=COLUMNS, curator=True))
