"""dp_accounts: the accounts of the gateway, with their grants."""

from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "account": "VARCHAR", "role": "VARCHAR", "since": "TIMESTAMP", "dataset": "VARCHAR", "epsilon": "DOUBLE",
    "max_epsilon": "DOUBLE", "until": "VARCHAR", "synthetic": "VARCHAR", "total": "DOUBLE", "spent": "DOUBLE",
    "accounting": "VARCHAR",
}  # fmt: skip


def rows(session: Session, _arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """As the ledger has them."""
    accounts = session.ledger.accounts
    grants = accounts.grants()
    found: Rows = []
    for each in accounts.accounts():
        own = [row for row in grants if row["account"] == each["name"]] or [{}]
        found += [{**row, "account": each["name"], "role": each["role"], "since": each["time"]} for row in own]
    return found


FUNCTION = register(Function(name="dp_accounts", rows=rows, columns=COLUMNS, curator=True))
