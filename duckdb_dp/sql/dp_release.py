"""dp_release: the rows of a stored release, by its name or number."""

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, find, register
from duckdb_dp.sql.session import Session


def plan(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL of the rows, at no cost.

    Raises:
        DPError: there is no such release, or it does not support the post-processing.
    """
    name = arguments["name"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DPError(f"the release is {as_sql(name)}; give its name or its number in dp_releases().")
    stored = session.ledger.release(name)
    session.read[stored.id] = stored
    read = find(stored.function).read
    assert read is not None
    return read(session, stored, arguments, place)


FUNCTION = register(Function(name="dp_release", plan=plan, compares=True, public=True))
