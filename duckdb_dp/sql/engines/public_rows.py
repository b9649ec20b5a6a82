"""Rows of public tables of another engine, for what a plan has to know of them: which groups there are, and how many rows a key has."""

from typing import Any

from sqlglot import exp, parse_one

from duckdb_dp.counting.encode import quote
from duckdb_dp.counting.engines.source import Source
from duckdb_dp.errors import DPError
from duckdb_dp.sql.external_tables import source
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.typed import alone

MOST = 1_000_000
"""Rows of a public table up to which it is read."""


def read(session: Session, select: str) -> list[tuple[Any, ...]]:
    """The rows of a SELECT of public attached tables: DuckDB works them out of the rows that their engine has.

    Args:
        session: what is attached.
        select: reads public tables alone, each by its full name.

    Raises:
        DPError: a table is not attached, or has too many rows, or its engine failed.

    Privacy: reads public rows alone; who calls it has checked that they are.
    """
    query = parse_one(select, dialect="duckdb")
    with alone() as connection:
        for number, table in enumerate(list(query.find_all(exp.Table))):
            own = source(session, (table.catalog, table.db, table.name))
            connection.register(f"given{number}", _rows(own))
            typed = ", ".join(f"CAST({quote(name)} AS {type_}) AS {quote(name)}" for name, type_ in own.columns.items())
            connection.execute(f"CREATE TEMP TABLE public{number} AS SELECT {typed} FROM given{number}")
            here = exp.to_table(f"public{number}")
            here.set("alias", table.args.get("alias"))
            table.replace(here)
        return connection.execute(query.sql("duckdb")).fetchall()


def _rows(own: Source) -> Any:
    rows = own.fetch(lambda table: table.limit(MOST + 1))
    if len(rows) > MOST:
        raise DPError(
            f"'{own.name}' is a public table in {own.engine} of more than {MOST:,} rows, and so many are not read to plan a "
            "question; declare the groups, and give max_rows := 5, say."
        )
    return rows
