"""The public tables that dp_synthesize_database copies: those to which others refer, as they are."""

from collections.abc import Sequence
from dataclasses import replace

from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.sql import catalog
from duckdb_dp.sql.ddl import Target
from duckdb_dp.sql.dp_link import declared_in, with_constraints
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Reference, Table


def public_parents(session: Session, tables: Sequence[Table]) -> list[Table]:
    """The tables that others refer to and that were declared public, as they are and without references of their own.

    What others refer to is a key where no two rows agree in it and none is NULL, whether the table says so or not, and where the type
    of the column that refers to it holds all of them.

    Privacy: reads public rows.
    """
    found: dict[Name, Table] = {}
    for child, reference in ((table, reference) for table in tables for reference in table.references):
        parent = found.get(reference.parent) or _public(session, reference.parent)
        if parent is not None:
            keys = tuple(key for key in parent.keys if set(key) != set(reference.key))
            if _identifies(session, child, reference, parent):
                keys = parent.keys if len(keys) < len(parent.keys) else (*keys, reference.key)
            found[parent.name] = replace(parent, references=(), keys=keys)
    return list(found.values())


def copies(session: Session, tables: Sequence[Table]) -> list[Target]:
    """The public tables that are copied, those first to which others refer: with the public ones to which they refer in turn.

    They keep the FOREIGN KEYs to those that are copied before them.

    Args:
        session: the session.
        tables: what ``public_parents`` found.

    Privacy: names, types and constraints only.
    """
    known, done, begun = {table.name: table for table in tables}, dict[Name, Target](), set[Name]()

    def copy(name: Name) -> None:
        original = _public(session, name)
        if name in begun or original is None:
            return
        begun.add(name)
        spec = declared_in(session.ledger.families.references(name))
        for reference in with_constraints(original, spec):
            copy(reference.parent)
        table = known.get(name, original)
        kept = tuple(r for r in original.references if r.parent in done and done[r.parent].table.distinct(r.key))
        parents = {r.parent: done[r.parent].table for r in kept}
        done[name] = Target(table=table, filled=tuple(table.columns), references=kept, parents=parents)

    for table in tables:
        copy(table.name)
    return list(done.values())


def _public(session: Session, name: Name) -> Table | None:
    """A table of that name that was declared public, and is no view."""
    found = catalog.find(catalog.committed(session, [name[:2]]), name)
    return found if found is not None and not found.view and session.ledger.public.holds(found.name) else None


def _identifies(session: Session, table: Table, reference: Reference, parent: Table) -> bool:
    """Whether a public table has rows, and each has values of its own in what is referred to, which the referring columns can hold."""
    names = ", ".join(map(quote, reference.key))
    held = [
        f"TRY_CAST({quote(key)} AS {table.columns[column]}) IS NOT NULL"
        for column, key in zip(reference.columns, reference.key, strict=True)
    ]
    select = (
        f"SELECT bool_and({' AND '.join(held)}) AND count(*) = count(DISTINCT ({names})) FROM {full_name(*parent.name)}"
    )
    if parent.name[1] == SCHEMA:  # of another engine, whose rows are not read here
        return parent.distinct(reference.key)
    with session.looking() as cursor:
        row = None if cursor is None else cursor.execute(select).fetchone()
    return row is not None and bool(row[0])
