"""dp_budget: what each dataset may spend, has spent and has left."""

from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "catalog": "VARCHAR", "schema": "VARCHAR", "dataset": "VARCHAR", "accounting": "VARCHAR",
    "neighbours": "VARCHAR", "total": "DOUBLE", "spent": "DOUBLE", "remaining": "DOUBLE", "delta": "DOUBLE",
    "epsilon_total": "DOUBLE", "epsilon_spent": "DOUBLE", "epsilon_remaining": "DOUBLE", "releases": "BIGINT",
    "discovery_delta": "DOUBLE", "discovery_delta_remaining": "DOUBLE",
}  # fmt: skip


def rows(session: Session, _arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """As the ledger has them."""
    return session.ledger.budget_rows()


FUNCTION = register(Function(name="dp_budget", rows=rows, columns=COLUMNS, public=True))
