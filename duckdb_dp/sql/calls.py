"""Finds the registered function of a call, and returns the SQL of the call or the rows of a small public table."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from duckdb_dp.counting.encode import literal
from duckdb_dp.errors import DPError
from duckdb_dp.sql import render
from duckdb_dp.sql.arguments import Arguments, Place, UnknownDataset, check_collation, in_full
from duckdb_dp.sql.registry import Function, Role, find, functions
from duckdb_dp.sql.session import Session


def plan(
    session: Session, name: str, arguments: str, place: Place, *, role: Role | None, collation: str, key: str
) -> str:
    """The SQL that a call stands for. Runs for EXPLAIN and DESCRIBE too: touches neither data nor budget.

    Args:
        session: of the database.
        name, arguments: the call; the arguments as JSON.
        place: (catalog, schema) where names are looked for.
        role: whose connection it is.
        collation: the connection's default one.
        key: what the connection's macros say.
    """
    with _advice(session, place, role):
        function, asked = _read(session, name, arguments, place, role)
        if function.compares:
            check_collation(collation)
        sql = None if function.plan is None else function.plan(session, asked, place)
        if sql is not None:
            return sql
        texts = map(literal, (key, name, arguments, *place))
        call = ", ".join([*texts, f"{function.context(session, asked, place)}::VARCHAR"])
        return render.table(name, function.columns_of(asked), f"_dp_call({call})")


def call(session: Session, name: str, arguments: str, place: Place, seen: str | None, *, role: Role | None) -> str:
    """The rows of a small public table, as JSON, while the statement runs.

    Args:
        session, name, arguments, place, role: as in ``plan``.
        seen: what the function's context has selected.
    """
    with _advice(session, place, role):
        function, asked = _read(session, name, arguments, place, role)
        assert function.rows is not None
        return json.dumps(function.rows(session, asked, place, seen or ""))


@contextmanager
def _advice(session: Session, place: Place, role: Role | None) -> Iterator[None]:
    """Errors say what else is known of a name that is not protected, and to an analyst who can mend what is wrong."""
    try:
        yield
    except UnknownDataset as error:
        from duckdb_dp.sql.missing_tables import explain_unknown  # for import time: most names are known

        raise for_role(role, explain_unknown(session, error, place)) from None
    except DPError as error:
        raise for_role(role, error) from None


def for_role(role: Role | None, error: DPError) -> DPError:
    """An error whose advice an analyst cannot follow alone says whom to ask."""
    text = " ".join(str(error).split())
    if role != "analyst" or "curator" in text:
        return error
    curators = {name for name, function in functions().items() if function.curator}
    if not curators & set(re.findall(r"\bdp_\w+", text)):
        return error
    return DPError(f"{text.rstrip('.')}. Only the curator can do that: ask the curator.")


def _read(session: Session, name: str, arguments: str, place: Place, role: Role | None) -> tuple[Function, Arguments]:
    function, asked = find(name), json.loads(arguments)
    check_role(role, function, asked)
    return function, asked if function.declares else in_full(session.ledger, asked, place)


def check_role(role: Role | None, function: Function, arguments: Arguments) -> None:
    """Refuse an analyst what is the curator's.

    Args:
        role: whose connection it is; None where that is not known.
        function, arguments: the call.

    Raises:
        DPError: it is the curator's.
    """
    if role == "curator":
        return
    if function.curator:
        raise DPError(
            f"{function.name} is for the curator only; ask the curator, or load with role='curator' if you are the curator."
        )
    for name in function.exact:
        if arguments.get(name):
            raise DPError(
                f"{name} := true shows exact numbers, which is for the curator only; leave it out and name a budget, e.g. epsilon := 0.2."
            )
