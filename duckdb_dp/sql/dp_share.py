"""CALL dp_share: lets an account of the gateway read a stored release."""

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {"release": "BIGINT", "account": "VARCHAR"}


def rows(session: Session, arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """The release, and who may read it now too.

    Raises:
        DPError: no such release or account.
    """
    name = arguments["release"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DPError(f"the release is {as_sql(name)}; give its name or its number in dp_releases().")
    stored = session.ledger.release(name)
    session.ledger.accounts.share(stored.id, arguments["account"])
    return [{"release": stored.id, "account": arguments["account"]}]


FUNCTION = register(Function(name="dp_share", rows=rows, columns=COLUMNS, curator=True))
