"""Tables of other engines: attaching them, finding them by name, and the counts that a request needs of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.engines import count, links
from duckdb_dp.counting.engines.source import Source
from duckdb_dp.counting.sums import Exact, ExactSums
from duckdb_dp.domain.domain import Clique
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.request import Request
from duckdb_dp.sql import catalog, key_types
from duckdb_dp.sql.arguments import name_parts
from duckdb_dp.sql.links import DEGREE, LINKED, from_request
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis import quality
from duckdb_dp.synthesis.database import Name

ENGINES = {"duckdb", "spark"}
"""Engines in which values are summed: expressions of rows are tested to have DuckDB's values there."""


MOST = 2**31 - 1
"""Rows of a public table, at most: the largest LIMIT that all engines have."""


def summed(dataset: Dataset) -> bool:
    """Whether the engine of an attached table sums values; others count declared cells alone."""
    return dataset.catalog in ENGINES


def counted(
    session: Session,
    request: Request,
    cliques: tuple[Clique, ...] | None,
    choose: Callable[[ExactSums], Sequence[int]],
) -> tuple[Exact, bool]:
    """The counts that a request needs, by the engine of its tables, and whether a promised bound on links holds.

    Args:
        session: what is attached, and the key of the hash that chooses rows.
        request: the request.
        cliques: the marginals; None for those of a score or of links, which the request itself says.
        choose: charges the request and chooses its bounds on norms, where there are any.

    Raises:
        DPError: a table is not attached now, or its engine cannot count it, or failed.

    Privacy: exact counts; only ``private.py`` may read them.
    """
    if request.direct:
        from duckdb_dp.sql.engines import asked  # for import time: it brings sqlglot

        return asked.sums(session, request, choose), True
    unit_key = session.unit_key()
    if "references" in dict(request.options):
        return links.count_links(links_of(session, request), unit_key)
    if cliques is None:
        cliques = quality.cliques(request)
    sql = None if request.source is None else request.source.sql
    table = relation(session, (request.catalog, request.schema, request.table), sql, now=True)
    return count.count(table, request, unit_key, cliques), True


def promise_holds(session: Session, request: Request) -> bool:
    """Whether a bound on links that was promised holds, by the engine of the tables."""
    return links.promise_holds(links_of(session, request))


def links_of(session: Session, request: Request) -> links.Links:
    """What an engine counts of a request's links, with the tables as they are attached now.

    Raises:
        DPError: one is not attached.
    """
    name, known = (request.catalog, request.schema, request.table), catalog.attached(session)
    link = key_types.compared(from_request(request), catalog.find(known, name), known)
    linked, degrees = dict(link.tagged(LINKED)), dict(link.tagged(DEGREE))
    parents = tuple(
        links.Parent(
            source=apart(session, link.sides[place].reference.parent),
            key=link.sides[place].reference.key,
            columns=link.sides[place].reference.columns,
            attributes=tuple(link.sides[place].columns),
            as_text=link.as_text[place],
            linked=linked.get(place),
            degree=degrees.get(place),
        )
        for place in link.parents
    )
    return links.Links(
        request=request,
        source=source(session, name),
        parents=parents,
        attributes=tuple(link.per_row),
        cells=link.cells,
        distinct=link.distinct,
        linked=linked.get(0) if link.child else None,
    )


def attach(con: duckdb.DuckDBPyConnection, session: Session, name: str, table: Any) -> None:
    """Give an Ibis table expression a name in SQL, for as long as the database is open.

    Raises:
        DPError: the name is not valid, or is that of a DuckDB table or view; or it is not an Ibis table, or one of this
            DuckDB connection.

    Privacy: costs nothing; no rows are read.
    """
    parts = name_parts(name)
    if len(parts) != 1:
        raise DPError(f"attach: {as_sql(name)} has several parts; give the table one name of its own, e.g. 'events'.")
    (name,) = parts
    here = con.execute(
        "SELECT database_name, schema_name FROM (SELECT database_name, schema_name, table_name AS name FROM duckdb_tables() "
        "UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views()) WHERE lower(name) = lower(?) AND "
        "((database_name, schema_name) = (current_database(), current_schema()) OR database_name = 'temp')",
        [name],
    ).fetchone()
    if here is not None:
        raise DPError(
            f"attach: '{name}' is a DuckDB table already ({'.'.join(here)}.{name}); attach under another name."
        )
    given = Source.of(name, table)
    if getattr(given.backend, "con", None) is con:
        raise DPError(
            f"attach: the source of '{name}' is a table of this DuckDB connection itself; protect it by its own name."
        )
    session.attached.add(given)


def relation(session: Session, name: Name, sql: str | None, *, now: bool = False) -> Source:
    """The attached table of that full name, or the join of attached tables that stands for it, as a table of their engine.

    Args:
        session: what is attached.
        name: of the dataset's table.
        sql: the join; None for the table itself.
        now: whether the tables of a join are compared with those that the engine has now.

    Raises:
        DPError: a table is not attached now, or has changed, or the engine may have other rows of the join than DuckDB.
    """
    if sql is None:
        return source(session, name)
    from duckdb_dp.sql.engines import joined  # for import time: it brings sqlglot

    def find(full: Name) -> Source:
        found = apart(session, full)
        if now:
            found.check_now((), ())
        return found

    return joined.source(sql, name[2], find)


def apart(session: Session, name: Name) -> Source:
    """The same, whose rows the engine works out by themselves where they are public.

    No engine moves a condition or a join into a LIMIT. So no value of a public expression is worked out that is not worked out of the
    table alone, which it fails on or not whatever the private rows are.

    Raises:
        DPError: it is not attached now.
    """
    found = source(session, name)
    return replace(found, table=found.table.limit(MOST)) if session.ledger.public.holds(name) else found


def source(session: Session, name: Name) -> Source:
    """The attached table of that full name.

    Raises:
        DPError: it is not attached now.
    """
    found = session.attached.find(*name)
    if found is None:
        catalog, _, table = name
        raise DPError(
            f"'{table}' is a table in {catalog} and not attached now. Attach it: duckdb_dp.attach(con, '{table}', table)"
        )
    return found
