"""CALL dp_approve: lets an account ask a request that waits."""

from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {"request": "BIGINT", "account": "VARCHAR", "epsilon": "DOUBLE", "state": "VARCHAR"}


def rows(session: Session, arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """The request, approved for good.

    Raises:
        DPError: there is none of that number, or it was decided.
    """
    return [session.ledger.accounts.decide(arguments["request"], approved=True, reason=None, steward=session.steward)]


FUNCTION = register(Function(name="dp_approve", rows=rows, columns=COLUMNS, curator=True))
