"""dp_releases: every release, oldest first."""

from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "release": "BIGINT", "name": "VARCHAR", "catalog": "VARCHAR", "schema": "VARCHAR", "dataset": "VARCHAR",
    "function": "VARCHAR", "mechanism": "VARCHAR", "state": "VARCHAR", "released_at": "TIMESTAMP",
    "charged_at": "TIMESTAMP", "epsilon": "DOUBLE", "delta": "DOUBLE", "private": "BOOLEAN", "request": "VARCHAR",
}  # fmt: skip


def rows(session: Session, _arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """As the ledger has them."""
    return session.ledger.releases()


FUNCTION = register(Function(name="dp_releases", rows=rows, columns=COLUMNS, public=True))
