"""Attributes of a public table, which nobody has to declare: its rows say which values there are."""

from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any

import duckdb

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import decode, full_name, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.domain.types import Scalar
from duckdb_dp.domain.types.moments import Moment
from duckdb_dp.domain.types.numbers import Whole
from duckdb_dp.errors import DPError
from duckdb_dp.sql import catalog
from duckdb_dp.sql.dp_link import declared_in, with_constraints
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Reference, Table

MOST_KEYS = 1000
"""Most rows of a public table whose keys are the values of a column that refers to it."""

MOST, BINS = 64, 16
"""Most values of an attribute; columns of more values that have an order are cut into so many bins of about as many rows."""


def attributes(session: Session, table: Table, leave: Collection[str]) -> tuple[Attribute, ...]:
    """The attributes of a public table's columns.

    Args:
        session: which reads the committed rows.
        table: it.
        leave: columns that are none, such as its key.

    Privacy: reads public rows.
    """
    folded = {name.lower() for name in leave}
    columns = {name: type_ for name, type_ in table.columns.items() if name.lower() not in folded}
    return tuple(_found(session, table, columns))


def small_key(session: Session, table: Table, key: Sequence[str]) -> tuple[Attribute, ...]:
    """The key of a public table of few rows as an attribute, so that links say which row they go to and not only what it is like.

    None where it has several columns, more values than an attribute that nobody declares may have, or the same one in two rows.

    Privacy: reads public rows.
    """
    if len(key) > 1 or not _once(session, table, key[0]):
        return ()
    found = _found(session, table, {name: table.columns[name] for name in key if name in table.columns})
    return tuple(attribute for attribute in found if attribute.kind == "values" and not attribute.nulls)


def _once(session: Session, table: Table, key: str) -> bool:
    """Whether no two public rows have the same key, by its bytes."""
    text = f"encode({quote(key)}::VARCHAR)"
    with session.looking() as cursor:
        if cursor is None:
            return False
        try:
            found = cursor.execute(
                f"SELECT count({text}) = count(DISTINCT {text}) FROM {full_name(*table.name)}"
            ).fetchone()
        except duckdb.Error:
            return False
    return found == (True,)


def of_key(session: Session, table: Table, reference: Reference, parent: Table) -> Attribute | None:
    """The attribute of a column that refers to a public table, whose keys are its values; None where there is no such.

    Args:
        session: which reads the committed rows.
        table: the table with the column.
        reference: it.
        parent: the public table.

    Privacy: reads public rows.
    """
    if len(reference.columns) > 1 or parent.name[1] == SCHEMA:  # rows of another engine are not read here
        return None
    (column,), (key,) = reference.columns, reference.key
    with session.looking() as cursor:
        if cursor is None:
            return None
        # As texts: neither a collation nor Python's types make one of two.
        rows = f"SELECT DISTINCT encode({quote(key)}::VARCHAR) AS v FROM {full_name(*parent.name)} WHERE {quote(key)} IS NOT NULL"
        whole = isinstance(types.find(table.columns[column]), Whole)
        try:
            found = cursor.execute(f"SELECT decode(v) FROM ({rows} LIMIT {MOST_KEYS + 1}) ORDER BY v ASC").fetchall()
            if not 0 < len(found) <= MOST_KEYS:
                return None
            values = [int(text) if whole else text for (text,) in found]
            made = declare(name=column, type=table.columns[column], values=values, nulls=column not in table.required)
            # Each value is a key again, or what refers to it would refer nowhere.
            listed = f"SELECT unnest({made.dtype.array([*made.points])})::VARCHAR AS v"
            missing = f"SELECT count(*) FROM ({listed}) WHERE encode(v) NOT IN (SELECT v FROM ({rows}))"
            again = cursor.execute(missing).fetchone()
        except (DPError, ValueError, duckdb.Error):
            return None  # keys of another type than the column's, say, or of a generated column that fails
        return made if again == (0,) and len(made.points) == len(values) else None


def only_keys(session: Session, attribute: Attribute, key: str, parent: Table) -> bool:
    """Whether a declared column that refers to a public table gets nothing but its keys, or NULL.

    Args:
        session: which reads the committed rows.
        attribute: the column's declaration.
        key: the column of the public table that it refers to.
        parent: the public table.

    Privacy: reads public rows.
    """
    if attribute.kind == "bins" or attribute.size > 2 * MOST_KEYS or parent.name[1] == SCHEMA:
        return False
    with session.looking() as cursor:
        if cursor is None:
            return False
        drawn = f"SELECT ({decode(attribute, 'c')})::VARCHAR AS v FROM range({attribute.size}) r(c)"
        known = f"SELECT encode({quote(key)}::VARCHAR) FROM {full_name(*parent.name)} WHERE {quote(key)} IS NOT NULL"
        strange = f"SELECT count(*) FROM ({drawn}) WHERE v IS NOT NULL AND encode(v) NOT IN ({known})"
        try:
            return cursor.execute(strange).fetchone() == (0,)
        except duckdb.Error:
            return False


def keys(session: Session, dataset: Dataset, column: str) -> Sequence[Scalar]:
    """The keys that a column may have which refers to a public table; () where it does not, or there are too many.

    Privacy: reads public rows.
    """
    table = catalog.of(session, dataset)
    references = () if table is None else with_constraints(table, declared_in(session.ledger.link(dataset)))
    for reference in references:
        parent = catalog.find(catalog.committed(session, [reference.parent[:2]]), reference.parent)
        if reference.columns == (column,) and table and parent and session.ledger.public.holds(parent.name):
            found = of_key(session, table, reference, parent)
            return () if found is None else found.dtype.canonicals(sorted(found.points, key=found.dtype.order))
    return ()


def _found(session: Session, table: Table, columns: dict[str, str]) -> Iterator[Attribute]:
    with session.looking() as cursor:
        if cursor is None:
            return
        for name, type_ in columns.items():
            dtype, column = types.find(type_), quote(name)
            if dtype is None:
                continue
            rows = f"SELECT {column} AS v FROM {full_name(*table.name)}"
            other = False
            if isinstance(dtype, Moment) and dtype.name != "TIME":  # what is infinite has no place among others
                endless = cursor.execute(f"SELECT count(*) FROM ({rows}) WHERE NOT isfinite(v)").fetchone()
                other = endless != (0,)
                rows += f" WHERE isfinite({column}) OR {column} IS NULL"
            # Texts by their bytes: a collation may make one of two.
            read = (
                "decode(v) FROM (SELECT DISTINCT encode(v) AS v" if type_ == "VARCHAR" else "v FROM (SELECT DISTINCT v"
            )
            values = cursor.execute(f"SELECT {read} FROM ({rows})) LIMIT {MOST + 2}").fetchall()
            known, nulls = sorted(row[0] for row in values if row[0] is not None), any(row[0] is None for row in values)
            declared: dict[str, Any] = {"values": [_plain(value) for value in known]}
            if len(known) > MOST:
                if not (dtype.numeric or dtype.ordered):
                    continue
                shares = [i / BINS for i in range(BINS + 1)]
                ((edges, nulls),) = cursor.execute(
                    f"SELECT quantile_disc(v, {shares}), count(*) > count(v) FROM ({rows})"
                ).fetchall()
                declared = {"bins": [_plain(edge) for edge in dict.fromkeys(edges)]}
            try:
                other = other or bool(declared.get("bins"))
                yield declare(name=name, type=type_, nulls=bool(nulls), other=other, **declared)
            except DPError:
                continue  # a column without values, or of ones that cannot be declared


def _plain(value: Any) -> Any:
    """A value as it is declared: numbers as such, and what has no number as its text."""
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, bool | int | float | str) else str(value)
