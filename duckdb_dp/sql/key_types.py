"""How the keys of links are read and compared: as whole numbers if their types allow it, otherwise as text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from duckdb_dp.domain import types as column_types
from duckdb_dp.sql import catalog
from duckdb_dp.sql.links import Link, Side
from duckdb_dp.synthesis.database import Name, Table


def compared(link: Link, table: Table | None, known: Mapping[Name, Table]) -> Link:
    """The link, with whether its keys are compared as text, as the tables are now."""
    left, right = (_differ(table, catalog.find(known, side.reference.parent), side) for side in link.sides)
    return replace(link, as_text=(left, right))


def are_texts(parent: Table | None, side: Side) -> bool:
    """Whether a key must be read as text: not all its columns are known to be whole numbers of at most 64 bits."""
    if parent is None:
        return True
    found = [column_types.find(parent.columns.get(column, "")) for column in side.key.columns]
    return not all(type_ is not None and type_.as_number for type_ in found)


def with_texts(link: Link, texts: Sequence[bool]) -> Link:
    """The link with which of its keys are read as text."""
    left, right = (replace(s, key=replace(s.key, texts=t)) for s, t in zip(link.sides, texts, strict=True))
    return replace(link, sides=(left, right))


def _differ(table: Table | None, parent: Table | None, side: Side) -> bool:
    """Whether a foreign key and its key may differ in type, so that they must be compared as text for no cast to fail.

    Text is converted as well, because with a column's own collation one link might match several rows.
    """
    if table is None or parent is None:
        return True
    pairs = zip(side.reference.columns, side.reference.key, strict=True)
    types = [(table.columns.get(column), parent.columns.get(key, "")) for column, key in pairs]
    return any(one != other or one == "VARCHAR" for one, other in types)
