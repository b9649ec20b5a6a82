"""Finds the registered function of a call, and returns the SQL of the call or the rows of a small public table."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from duckdb_dp.counting.encode import literal
from duckdb_dp.domain.domain import UnknownAttribute
from duckdb_dp.errors import DPError
from duckdb_dp.sql import own_names, render
from duckdb_dp.sql.arguments import Arguments, LongArguments, Place, UnknownDataset, check_settings, in_full
from duckdb_dp.sql.registry import Function, Role, find, functions
from duckdb_dp.sql.session import Session


def plan(
    session: Session,
    name: str,
    arguments: str,
    place: Place,
    *,
    role: Role | None,
    settings: tuple[str, str],
    key: str,
) -> str:
    """The SQL that a call is replaced by. It runs for EXPLAIN and DESCRIBE too, so it uses neither data nor budget.

    Args:
        session: of the database.
        name, arguments: the call; the arguments as JSON.
        place: (catalog, schema) where names are looked for.
        role: of the connection.
        settings: the connection's default collation, and others, as for ``check_settings``.
        key: the key that the connection's macros pass.
    """
    with session.ledger.held(), session.planning(), _advice(session, place, role):
        function, asked = _read(session, name, arguments, place, role)
        if function.compares:
            check_settings(*settings)
        sql = None if function.plan is None else function.plan(session, asked, place)
        if sql is not None:
            return own_names.bound(sql)
        texts = map(literal, (key, name, arguments, *place))
        call = ", ".join([*texts, f"{function.context(session, asked, place)}::VARCHAR"])
        return render.table(name, function.columns_of(asked), f"_dp_call({call})")


def call(session: Session, name: str, arguments: str, place: Place, seen: str | None, *, role: Role | None) -> str:
    """The rows of a small public table, as JSON, while the statement runs.

    Args:
        session, name, arguments, place, role: as in ``plan``.
        seen: what the function's context has selected.
    """
    with session.ledger.held(), _advice(session, place, role):
        function, asked = _read(session, name, arguments, place, role)
        assert function.rows is not None
        return json.dumps(function.rows(session, asked, place, seen or ""))


@contextmanager
def _advice(session: Session, place: Place, role: Role | None) -> Iterator[None]:
    """Add to errors what is known about a name that is not protected, and tell analysts who can solve the problem."""
    try:
        yield
    except UnknownDataset as error:
        from duckdb_dp.sql.missing_tables import explain_unknown  # for import time: most names are known

        raise for_role(role, explain_unknown(session, error, place)) from None
    except UnknownAttribute as error:
        from duckdb_dp.sql.missing_tables import explain_undeclared  # for import time: most names are known

        raise for_role(role, explain_undeclared(session, error, place)) from None
    except DPError as error:
        raise for_role(role, error) from None


def for_role(role: Role | None, error: DPError) -> DPError:
    """The error; if an analyst may not follow its advice, it says to ask the curator."""
    text = " ".join(str(error).split())
    if role != "analyst" or "curator" in text:
        return error
    curators = {name for name, function in functions().items() if function.curator}
    if not curators & set(re.findall(r"\bdp_\w+", text)):
        return error
    return DPError(f"{text.rstrip('.')}. Only the curator can do that: ask the curator.")


def _read(session: Session, name: str, arguments: str, place: Place, role: Role | None) -> tuple[Function, Arguments]:
    function, asked = find(name), session.kept(LongArguments).read(arguments)
    check_role(role, function, asked)
    # SELECTs that are explained may stand in the place of a dataset.
    alone = function.plan is None and asked.get("attributes", "") is None
    return function, asked if function.declares or alone else in_full(session.ledger, asked, place)


def check_role(role: Role | None, function: Function, arguments: Arguments) -> None:
    """Refuse an analyst what only the curator may do.

    Args:
        role: of the connection; None where it is not known.
        function, arguments: the call.

    Raises:
        DPError: only the curator may do it.
    """
    if role == "curator":
        return
    if function.curator:
        raise DPError(
            f"{function.name} is for the curator only; ask the curator, or load with role='curator' if you are the curator."
        )
    for name in function.declaring:
        if arguments.get(name):
            raise DPError(f"{name} := true declares what was found, which is for the curator only; leave it out.")
    for name in function.exact:
        if arguments.get(name):
            raise DPError(
                f"{name} := true shows exact numbers, which is for the curator only; leave it out and name a budget, e.g. epsilon := 0.2."
            )
