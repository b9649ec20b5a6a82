"""Links of tables whose rows are somebody's by a join alone: of each unit one parent is counted, with its children."""

import json
from collections.abc import Sequence
from dataclasses import replace

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import full_name, literal, quote, shuffled
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.request import units
from duckdb_dp.sql import contribution_bounds, owners
from duckdb_dp.sql.arguments import Arguments
from duckdb_dp.sql.family import Family, Member, family
from duckdb_dp.sql.family import Reference as FamilyReference
from duckdb_dp.sql.joined_columns import JoinedColumns, joined
from duckdb_dp.sql.links import KEY, Counted, Link
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Reference, Table

OWNER = "_dp_owner"
"""Columns that name a row's owner, with a number; no table of the user's has such names."""


def drawn(session: Session, dataset: Dataset, references: Sequence[Reference]) -> list[Reference]:
    """The references of a table whose links can be drawn.

    Where only a join names the unit, that is the one to its parents. Where columns name it, others that lead to tables of the same
    units lead to rows of other units too, which nothing would charge.
    """
    if owners.by_join(session, dataset):
        return [reference for reference in references if of_one(session, dataset, reference)]
    own = [{*_folded(unit)} for unit in units(dataset.unit)]
    ones = [{*_folded(r.columns)} for r in references if of_one(session, dataset, r)]
    found = []
    for reference in references:
        columns = {*_folded(reference.columns)}
        # A parent whose key names the unit says it too.
        if columns in ones or not (_of_same_units(session, dataset, reference) and columns not in own):
            found += [reference] if not any(columns < one for one in ones) else []
    if len(found) <= 2:
        return found  # of two ends the curator is told what makes their rows public
    return [r for r in found if {*_folded(r.columns)} in [*own, *ones] or not _of_others(session, dataset, r)]


def _of_others(session: Session, dataset: Dataset, reference: Reference) -> bool:
    """Whether a reference leads to protected rows, other than the table's own, which its links neither protect nor may read."""
    if session.ledger.dataset(*reference.parent) is None or contribution_bounds.itself(dataset, reference):
        return False
    return not session.ledger.public.holds(reference.parent, dataset)


def _of_same_units(session: Session, dataset: Dataset, reference: Reference) -> bool:
    """Whether a reference leads to another table of the dataset."""
    parent = session.ledger.dataset(*reference.parent)
    return dataset.member is not None and parent is not None and parent.id == dataset.id and parent.name != dataset.name


def of_one(session: Session, dataset: Dataset, reference: Reference) -> bool:
    """Whether one parent of each unit is counted: a child table refers by it to rows that are a unit's, and not to the unit.

    It is the reference that says whose the child rows are, or one by a key that names the unit, as the rows do; and the unit has a type
    whose equal values are the same ones.
    """
    if dataset.schema == SCHEMA or dataset.member is None or dataset.member.view is not None:
        return False
    found = family(session, dataset)
    member = found.member((dataset.catalog, dataset.schema, dataset.name))
    if member is None or (led := _leading(found, member, reference)) is None:
        return False
    plain = owners.PLAIN | {"VARCHAR"}
    return {*_folded(led.columns)} != {*_folded(member.owner)} and {*owners.owner_types(found, member)} <= plain


def _leading(found: Family, member: Member, reference: Reference) -> FamilyReference | None:
    """The reference as one that leads a member's rows to rows of the same units; None where it does not."""
    parent = found.member(reference.parent)
    if parent is None or parent.name == member.name:
        return None
    first, pairs = member.references[0] if member.references else None, _pairs(reference.columns, reference.key)
    own = None if first is None else (_folded(first.parent), _pairs(first.columns, first.parent_columns))
    if own == (_folded(reference.parent), pairs):
        return first
    named = (
        list(zip(_folded(member.owner), _folded(parent.owner), strict=True)) if parent.owner and member.owner else []
    )
    if not named or not {*named} <= {*pairs}:
        return None
    return FamilyReference(columns=reference.columns, parent=parent.name, parent_columns=reference.key)


def of_parents(dataset: Dataset, table: Table | None, reference: Reference) -> Dataset:
    """The dataset with a parent for its unit, as it is where one of them is counted of each unit; of unique references it has one child."""
    columns = reference.columns
    unit = columns[0] if len(columns) == 1 else json.dumps([columns], separators=(",", ":"))
    if table is not None and table.distinct(columns):
        return replace(dataset, unit=unit, max_rows=1, auto_rows=False)
    return replace(dataset, unit=unit)


def check_protect(dataset: Dataset, arguments: Arguments) -> None:
    """Refuse to be told what links protect: that is the unit, which is neither of the tables.

    Raises:
        DPError: ``protect`` is given.
    """
    if arguments.get("protect") is not None:
        raise DPError(
            f"protect is {as_sql(arguments['protect'])}, and '{dataset.name}' protects its unit with all its rows; leave protect out."
        )


def counted(session: Session, dataset: Dataset, link: Link, unit_key: str) -> Counted:
    """The rows that are counted: of each unit one parent, the one with the least keyed hash, and the children of that one.

    In both, the first column of the key holds the unit and the others 0. So rows of two units are of two parents, whatever keys the
    tables hold, and a unit is one parent with its links, which is what links of a parent protect.

    Privacy: SQL of private rows. A unit changes one parent, which its own rows alone choose.
    """
    found = family(session, dataset)
    member = found.member((dataset.catalog, dataset.schema, dataset.name))
    assert member is not None
    child, side = link.sides
    first = _leading(found, member, side.reference)
    assert first is not None
    parent = found.member(first.parent)
    assert parent is not None
    texts = owners.as_texts(found, member, first)
    of_parent = [attribute.name for attribute in side.attributes]
    of_child = [attribute.name for attribute in child.attributes]
    ours = _keyed(found, parent, of_parent, first.parent_columns, texts, side.held, side.joined)
    theirs = _keyed(found, member, of_child, first.columns, texts, child.held, child.joined)
    width = len(found.unit)
    unit = [f"o{i}" for i in range(width)]
    keys = [f"k{i}" for i in range(len(texts))]
    held = [*keys, *(f"v{i}" for i in range(len(of_parent)))]
    present = " AND ".join(f"{name} IS NOT NULL" for name in [*unit, *keys])
    order = ", ".join(f"{one} ASC" for one in [shuffled([literal(unit_key), *unit, *held]), *held])
    chosen = f"SELECT * FROM ({ours}) WHERE {present} QUALIFY row_number() OVER (PARTITION BY {', '.join(unit)} ORDER BY {order}) = 1"
    both = " AND ".join(f"c.{name} = p.{name}" for name in [*unit, *keys])
    return Counted(
        cte=f"chosen AS MATERIALIZED ({chosen})",
        parents=f"(SELECT {_shown(of_parent, side.reference.key, unit)} FROM chosen p)",
        children=f"(SELECT {_shown(of_child, side.reference.columns, unit)} FROM ({theirs}) c SEMI JOIN chosen p ON {both})",
    )


def _keyed(
    found: Family,
    member: Member,
    columns: Sequence[str],
    keys: Sequence[str],
    texts: Sequence[bool],
    held: Sequence[str],
    further: Sequence[JoinedColumns] = (),
) -> str:
    """SELECT of a member's rows: the owner (o0, ...), a key (k0, ...) as it is compared, and columns (v0, ...).

    The columns are read from those that its rows hold, and are joined to them.
    """
    aliases = [f"{OWNER}{i}" for i in range(len(found.unit))]
    shown = list(dict.fromkeys([*held, *keys]))
    source = owners.source(found, member.name, aliases, shown)
    rows = full_name(*member.name) if source is None else f"({source.sql})"
    names = member.owner if source is None else aliases
    types = owners.owner_types(found, member)
    guarded = [
        f"encode(TRY_CAST({quote(name)} AS VARCHAR))"
        if type_ == "VARCHAR"
        else f"CASE WHEN typeof({quote(name)}) = {literal(type_)} THEN {quote(name)} END"
        for name, type_ in zip(names, types, strict=True)
    ]
    parts = [
        *(f"{sql} AS o{i}" for i, sql in enumerate(guarded)),
        *(f"{owners.plain(quote(key), text)} AS k{i}" for i, (key, text) in enumerate(zip(keys, texts, strict=True))),
        *(f"{quote(column)} AS v{i}" for i, column in enumerate(columns)),
    ]
    return f"SELECT {', '.join(parts)} FROM {joined(rows, further)}"


def _shown(columns: Sequence[str], key: Sequence[str], unit: Sequence[str]) -> str:
    """The columns under their own names, and the unit in place of the key, which may be some of them, under names of its own."""
    owner = unit[0] if len(unit) == 1 else f"row({', '.join(unit)})"
    values = [owner, *("0" for _ in key[1:])]
    named = [f"{value} AS {quote(f'{KEY}{name}')}" for value, name in zip(values, key, strict=True)]
    return ", ".join([*(f"v{i} AS {quote(column)}" for i, column in enumerate(columns)), *named])


def _pairs(columns: Sequence[str], keys: Sequence[str]) -> list[tuple[str, str]]:
    return sorted((one.lower(), other.lower()) for one, other in zip(columns, keys, strict=True))


def _folded(name: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in name)
