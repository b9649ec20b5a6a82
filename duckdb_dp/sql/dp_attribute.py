"""CALL dp_attribute: declares which values one column may take, or takes that back."""

from typing import Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import canonical, declare
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.sql import bulk, public_domains
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset, flag
from duckdb_dp.sql.catalog import context, described, find_column, seen_columns
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {"attribute": "VARCHAR", "type": "VARCHAR", "cells": "BIGINT"}

WORDS = ("values", "bins", "low", "high", "step", "decimals", "at_least")


def rows(session: Session, arguments: Arguments, place: Place, seen: str) -> Rows:
    """CALL dp_attribute: declares one column's domain, or takes it back.

    Raises:
        DPError: no such table or column, words that are no domain, or a declaration to take back that there is not.

    Privacy: states what is public; spends nothing.
    """
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    if flag(arguments, "remove"):
        return [_taken_back(session, dataset, arguments)]
    columns = seen_columns(session, arguments, place, seen)
    column = find_column(columns, dataset.name, arguments["attribute"])
    for word in ("values", "bins"):
        if arguments.get(word) is not None and not isinstance(arguments[word], list):
            raise DPError(f"{word} is {as_sql(arguments[word])}; write a list, e.g. {word} := [1, 2, 3].")
    given = {name: arguments.get(name) for name in WORDS}
    if given["at_least"] is not None:
        given["at_least"] = bulk.lower(columns, dataset.name, column, given["at_least"])
    dtype = types.column_type(column["type"], f"attribute '{column['column']}'")
    if given["step"] == bulk.AUTO:
        given["step"] = bulk.step(dtype, given["low"], given["high"])
    if dtype.members is None and all(value is None for value in given.values()):
        given["values"] = list(public_domains.keys(session, dataset, column["column"])) or None
    found = declare(
        name=column["column"],
        type=column["type"],
        other=flag(arguments, "other"),
        nulls=flag(arguments, "nulls"),
        **given,
    )
    session.ledger.declare(dataset, found.name, canonical(found.to_json()))
    return [described(found)]


def _taken_back(session: Session, dataset: Dataset, arguments: Arguments) -> dict[str, Any]:
    """The row of an attribute that is declared no more; its column may be gone.

    Raises:
        DPError: it was not declared, or is declared in the same call.
    """
    if given := [name for name in (*WORDS, "other", "nulls") if arguments.get(name) is not None]:
        raise DPError(f"remove := true takes a declaration back and declares nothing; leave {few(given, ' and ')} out.")
    declared, asked = session.declared(dataset), arguments["attribute"]
    found = next((a for name, a in declared.items() if isinstance(asked, str) and name.lower() == asked.lower()), None)
    if found is None:
        raise DPError(
            f"'{dataset.name}' has no declaration of {as_sql(asked)} to take back; declared are: {few(declared) or 'none'}."
        )
    session.ledger.declare(dataset, found.name, None)
    return {"attribute": found.name, "type": found.type, "cells": None}


FUNCTION = register(Function(name="dp_attribute", rows=rows, columns=COLUMNS, context=context, curator=True))
