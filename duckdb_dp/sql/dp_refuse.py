"""CALL dp_refuse: refuses a request that waits."""

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {"request": "BIGINT", "account": "VARCHAR", "epsilon": "DOUBLE", "state": "VARCHAR", "reason": "VARCHAR"}


def rows(session: Session, arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """The request, refused for good.

    Raises:
        DPError: there is none of that number, or it was decided.
    """
    reason = arguments.get("reason")
    if reason is not None and not isinstance(reason, str):
        raise DPError(f"reason is {as_sql(reason)}; give a text.")
    return [
        session.ledger.accounts.decide(arguments["request"], approved=False, reason=reason, steward=session.steward)
    ]


FUNCTION = register(Function(name="dp_refuse", rows=rows, columns=COLUMNS, curator=True))
