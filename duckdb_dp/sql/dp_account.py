"""CALL dp_account: makes an account of the gateway, or gives it another role and token."""

from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {"account": "VARCHAR", "role": "VARCHAR", "token": "VARCHAR"}


def rows(session: Session, arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """The account, with its token, which is kept nowhere.

    Raises:
        DPError: no name, or no role.
    """
    account, role = arguments["account"], arguments["role"]
    token = session.ledger.accounts.add(account, role)
    return [{"account": str(account).lower(), "role": role, "token": token}]


FUNCTION = register(Function(name="dp_account", rows=rows, columns=COLUMNS, curator=True))
