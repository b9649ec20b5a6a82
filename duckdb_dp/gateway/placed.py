"""Where dp_ calls may stand: in what returns or keeps their rows."""

import re
from collections.abc import Callable

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.gateway import statement
from duckdb_dp.gateway.statement import Statement
from duckdb_dp.sql.registry import functions

QUERIES = ("select", "from", "with", "pivot", "(")
"""First words of statements that make nothing, unless there is one of ``workspace.CHANGES`` in them."""

DESCRIBING = ("desc", "describe")
"""First words of statements that say which columns there are."""

_TABLE = re.compile(
    r"\s*create\s+(?P<kept>or\s+replace\s+)?(temp(orary)?\s+)?table\s+(?P<unless>if\s+not\s+exists\b)?", re.IGNORECASE
)


def check(read: Statement, holds: Callable[[str], bool]) -> None:
    """Refuse, before anything is charged, calls in what keeps no rows, and a table that is there already.

    Args:
        read: a statement.
        holds: whether the session has a table of that name.

    Raises:
        DPError: it is so.
    """
    first = statement.first_word(read.text)
    if first == "explain" and read.names & functions().keys():
        raise DPError(
            "EXPLAIN shows no plan of a dp_ call; what it would cost, and how good its answers would be, FROM dp_explain('SELECT ...', "
            "epsilon := 0.1) says at no cost."
        )
    if not read.calls:
        return
    if first not in (*QUERIES, *DESCRIBING, "create", "insert"):
        raise DPError(
            "a dp_ call stands in a SELECT, or in CREATE TABLE ... AS; DESCRIBE shows its columns at no cost."
        )
    if first != "create":
        return
    created = _TABLE.match(read.text)
    if created is None:
        raise DPError("a dp_ call is kept by CREATE TABLE ... AS, and by no view or macro.")
    for name in statement.made(read.text) if not (created["kept"] or created["unless"]) else ():
        if holds(name):
            raise DPError(f"there is a table {as_sql(name)} in this session; CREATE OR REPLACE TABLE makes it anew.")
