"""CALL dp_link: which tables a table's rows refer to, declared, or taken from its FOREIGN KEY constraints."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import canonical
from duckdb_dp.domain.types import column_type
from duckdb_dp.errors import DPError, as_sql, few, nearest, quoted, quoted_name
from duckdb_dp.request import units
from duckdb_dp.sql import catalog
from duckdb_dp.sql.arguments import (
    Arguments,
    Place,
    UnknownDataset,
    candidates,
    column_parts,
    find_dataset,
    flag,
    name_parts,
)
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Reference, Table, with_roles

COLUMNS = {
    "role": "VARCHAR",
    "columns": "VARCHAR",
    "refers_to": "VARCHAR",
    "distinct_pairs": "BOOLEAN",
    "note": "VARCHAR",
}

ROWID = "rowid"
"""Identifies the rows of a table without a key; synthetic rows have a column of that name."""

EXAMPLE = "\"references\" := {'user_id': 'users.user_id', 'movie_id': 'movies.movie_id'}"


def context(session: Session, arguments: Arguments, place: Place) -> str:
    """SQL of what ``rows`` needs from the catalog: the tables of the schemas that are named."""
    dataset = _protected(session, arguments, place)
    given = _given(arguments.get("references"))
    named = [full[:2] for _, parent, _ in given for full in candidates(name_parts(parent), *place)]
    if dataset is None:
        named += [full[:2] for full in candidates(name_parts(arguments["dataset"]), *place)]
    else:
        named.append((dataset.catalog, dataset.schema))
    return catalog.query(named)


def _protected(session: Session, arguments: Arguments, place: Place) -> Dataset | None:
    """The dataset of that name; None where a table is not protected yet."""
    try:
        return find_dataset(session.ledger, arguments["dataset"], *place)
    except UnknownDataset:
        return None


def _name(
    session: Session, arguments: Arguments, place: Place, dataset: Dataset | None, known: Mapping[Name, Table]
) -> Name:
    """The full name of the table whose references are declared."""
    if dataset is not None:
        return dataset.catalog, dataset.schema, dataset.name
    options = catalog.options(session, arguments["dataset"], place)
    found = [table.name for full in options if (table := catalog.find(known, full)) is not None]
    if not found:
        raise UnknownDataset(str(arguments["dataset"]))
    return found[0]


def rows(session: Session, arguments: Arguments, place: Place, seen: str) -> Rows:
    """Rows of CALL dp_link: one per reference, now declared."""
    dataset = _protected(session, arguments, place)
    known = catalog.read(seen) | catalog.attached(session)
    name = _name(session, arguments, place, dataset, known)
    table = catalog.find(known, name)
    if table is None:
        raise DPError(f"there is no table '{name[2]}' now; create or attach it again.")
    given = _given(arguments.get("references"))
    before = session.ledger.families.references(name) if dataset is None else session.ledger.link(dataset)
    pairs = [_resolved(table, known, columns, parent, key, place) for columns, parent, key in given]
    asked = with_roles(name, pairs)
    if dataset is not None:
        said = set(map(_columns, declared_in(before)))  # of which another declaration is refused anyway
        _check_unit(dataset, table, [reference for reference in asked if _columns(reference) not in said])
    if dataset is None and not all(_of_its_key(name, reference) for reference in asked):
        before = None  # until the table is protected, the last declaration counts
    declared = _joined(table, asked, declared_in(before)) if given or before else table.references
    references = with_constraints(table, declared)
    if not references:
        raise DPError(f"'{name[2]}' has no FOREIGN KEY; declare what it refers to: {EXAMPLE}.")
    # 'pet_id': 'pets.pet_id' says which column identifies the table's own rows; it does not make pairs.
    columns = [c for r in references if not _of_its_key(name, r) for c in r.columns]
    # Without constraints nothing says whether pairs repeat: dp_links measures that.
    distinct = None if given and not table.keys else table.distinct(columns)
    if arguments.get("distinct") is not None:
        distinct = flag(arguments, "distinct")
    elif before is not None:
        distinct = json.loads(before)["distinct"]
    spec = {"references": [reference.to_json() for reference in declared], "distinct": distinct}
    if dataset is None:
        session.ledger.families.refer(name, canonical(spec))
    else:
        session.ledger.declare_link(dataset, canonical(spec), before if _extends(spec, before) else None)
    return [
        {
            "role": reference.role,
            "columns": ", ".join(reference.columns),
            "refers_to": f"{reference.parent[2]}({', '.join(reference.key)})",
            "distinct_pairs": distinct,
            "note": _note(session, reference, catalog.find(known, reference.parent)),
        }
        for reference in references
    ]


def _note(session: Session, reference: Reference, parent: Table | None) -> str | None:
    """What is said of a reference to columns that no constraint keeps apart: that they are believed to be a key, or are none.

    Privacy: reads public rows; of others names and constraints alone.
    """
    if parent is None or parent.distinct(reference.key) or reference.key == (ROWID,):
        return None
    named, columns = repr(parent.name[2]), few(reference.key)
    if not session.ledger.public.holds(parent.name):
        return (
            f"no PRIMARY KEY or UNIQUE is known that keeps {columns} of {named} apart, so it is believed to be a key: where rows share it, "
            "joins by it leave rows of a unit out, unless dp_sql is told max_rows"
        )
    if parent.view or parent.name[1] == SCHEMA:  # which are not read here
        return None
    names = ", ".join(map(quote, reference.key))
    there = " AND ".join(f"{quote(key)} IS NOT NULL" for key in reference.key)
    select = f"SELECT count(*) > count(DISTINCT ({names})) FROM {full_name(*parent.name)} WHERE {there}"
    with session.looking() as cursor:
        try:
            row = None if cursor is None else cursor.execute(select).fetchone()
        except duckdb.Error:  # a table that is not committed yet, or a generated column that fails
            return None
    shared = row is not None and row[0]
    return f"{named} is public and has rows that share {columns}: joins by it take each of them" if shared else None


def declared_in(spec: str | None) -> tuple[Reference, ...]:
    """What a spec declares; () for None."""
    return () if spec is None else tuple(map(Reference.from_json, json.loads(spec)["references"]))


def _check_unit(dataset: Dataset, table: Table, asked: Sequence[Reference]) -> None:
    """Refuse another parent for columns that name the unit, whose parent a FOREIGN KEY has said.

    Raises:
        DPError: there is one.
    """
    own = [frozenset(_folded(unit)) for unit in units(dataset.unit)]
    known = {_columns(r): r for r in table.references if _columns(r) in own}
    for one in asked:
        if (said := known.get(_columns(one))) is not None and _pairs(one) != _pairs(said):
            raise DPError(
                f"{few(one.columns)} of '{dataset.name}' names the unit and refers to '{said.parent[2]}' by a FOREIGN KEY, which stays."
            )


def _joined(table: Table, asked: Sequence[Reference], before: Sequence[Reference]) -> tuple[Reference, ...]:
    """References as they were declared before, those of the same columns as now; one of them at most is the table's own key."""
    now, keyed = {_columns(r): r for r in asked}, any(_of_its_key(table.name, r) for r in asked)
    kept = [r for r in before if _columns(r) in now or not (keyed and _of_its_key(table.name, r))]
    roles = {_columns(r): r.role for r in (*table.references, *kept)}
    found = {_columns(r): r for r in kept} | now
    return _with_roles(table.name, [(r, roles.get(_columns(r))) for r in found.values()], roles.values())


def _with_roles(
    name: Name, found: Sequence[tuple[Reference, str | None]], taken: Collection[str]
) -> tuple[Reference, ...]:
    """References with the roles that they have, as links were asked for by these; new ones have others."""
    made = with_roles(name, [(r.columns, r.parent, r.key) for r, _ in found])
    return tuple(
        replace(one, role=role or (one.role if one.role not in taken else "_".join(one.columns)))
        for one, (_, role) in zip(made, found, strict=True)
    )


def with_constraints(table: Table, declared: tuple[Reference, ...]) -> tuple[Reference, ...]:
    """References that are declared, and the FOREIGN KEYs of other columns."""
    named = set(map(_columns, declared))
    more = [reference for reference in table.references if _columns(reference) not in named]
    taken = {reference.role for reference in declared}
    return (*declared, *(r if r.role not in taken else replace(r, role="_".join(r.columns)) for r in more))


def _extends(spec: Mapping[str, Any], before: str | None) -> bool:
    """Whether a declaration says what was declared before, and more."""
    if before is None:
        return False
    earlier = json.loads(before)
    same = [{**one, "role": ""} for one in spec["references"]]
    return spec["distinct"] == earlier["distinct"] and all({**one, "role": ""} in same for one in earlier["references"])


def references_of(session: Session, dataset: Dataset, table: Table | None) -> tuple[tuple[Reference, ...], bool | None]:
    """A dataset's references, declared or by its constraints, and whether its pairs are distinct; None where neither says.

    A declared reference of a key to itself is left out: it only says which columns identify the rows.

    Raises:
        DPError: there are none.
    """
    spec, own = session.ledger.link(dataset), (dataset.catalog, dataset.schema, dataset.name)
    found = declared_in(spec) if table is None else with_constraints(table, declared_in(spec))
    references = tuple(r for r in found if not _of_its_key(own, r))
    if spec is not None:
        return references, json.loads(spec)["distinct"]
    if table is None or not references:
        raise DPError(
            f"'{dataset.name}' has no FOREIGN KEY, as far as can be seen. Declare what it refers to: "
            f"CALL dp_link({dataset.argument}, {EXAMPLE})"
        )
    return references, table.distinct([column for reference in references for column in reference.columns])


def _columns(reference: Reference) -> frozenset[str]:
    """The columns that a reference takes: no two references of a table have the same."""
    return frozenset(_folded(reference.columns))


def _pairs(reference: Reference) -> tuple[Name, frozenset[tuple[str, str]]]:
    """Its parent, and which column holds which of the key, in whatever order they are written."""
    return reference.parent, frozenset(zip(_folded(reference.columns), _folded(reference.key), strict=True))


def _folded(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)


def _of_its_key(name: Name, reference: Reference) -> bool:
    return _folded(reference.parent) == _folded(name) and reference.columns == reference.key


def declared_key(session: Session, dataset: Dataset) -> tuple[str, ...]:
    """The columns of a dataset that some declared link refers to; () where none does."""
    own = (dataset.catalog.lower(), dataset.schema.lower(), dataset.name.lower())
    for other in session.ledger.datasets():
        for data in json.loads(session.ledger.link(other) or '{"references": []}')["references"]:
            reference = Reference.from_json(data)
            if tuple(part.lower() for part in reference.parent) == own:
                return reference.key
    return ()


def own_key(session: Session, dataset: Dataset, table: Table | None) -> tuple[str, ...]:
    """The columns that identify the rows of a child table: its PRIMARY KEY, or those that a declared link refers to."""
    own = () if table is None else table.key
    return own or declared_key(session, dataset)


def no_key(dataset: Dataset, reference: Reference) -> DPError:
    """The error that a child table has no key, with the call that names one."""
    if dataset.schema != SCHEMA:
        own = quoted_name(dataset.name, "rowid")
        return DPError(
            f"'{dataset.name}' has no PRIMARY KEY that identifies its rows, as tables made from files have none; name a column that "
            f'does and is no attribute, or rowid, and synthesise the table again: CALL dp_link({dataset.argument}, "references" := '
            f"{{'rowid': {own}}})."
        )
    column, key = reference.columns[0], (reference.parent[2], reference.key[0])
    return DPError(
        f"{dataset.catalog} does not say which column identifies the rows of '{dataset.name}', and no link refers to them; declare "
        f'it with the link, for a column that is not an attribute: CALL dp_link({dataset.argument}, "references" := '
        f"{{{quoted(column)}: {quoted_name(*key)}, 'id': {quoted_name(dataset.name, 'id')}}})"
    )


def has_rowid(dataset: Dataset, table: Table) -> bool:
    """Whether the rows of a dataset's table have a ``ROWID`` of DuckDB's own, and no column has its name."""
    return dataset.schema != SCHEMA and not table.view and ROWID not in map(str.lower, table.columns)


def with_rowid(session: Session, dataset: Dataset, columns: Mapping[str, str]) -> dict[str, str]:
    """The columns of a dataset's table, and ``ROWID`` where it was declared to identify the rows."""
    return {ROWID: "BIGINT", **columns} if declared_key(session, dataset) == (ROWID,) else dict(columns)


def _given(asked: object) -> list[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """(columns, parent's name, key) of {'user_id': 'users.user_id'} or [{'columns': [...], 'references': [...]}]."""
    if asked is None:
        return []
    entries = asked if isinstance(asked, list) else [asked]
    found = []
    for entry in entries:
        # Of a list that mixes both forms, each entry has the names of all, NULL where they are others' own.
        given = {name: value for name, value in entry.items() if value is not None} if isinstance(entry, dict) else {}
        if not given:
            raise DPError(f"references is {as_sql(asked)}; write {EXAMPLE}.")
        if set(given) == {"columns", "references"}:
            found.append(_pair(asked, given["columns"], given["references"]))
        else:
            found += [_pair(asked, [column], [target]) for column, target in given.items()]
    return found


def _pair(asked: object, columns: object, targets: object) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    lists: list[list[Any]] = [given if isinstance(given, list) else [given] for given in (columns, targets)]
    if not all(isinstance(text, str) and text for texts in lists for text in texts) or len(lists[0]) != len(lists[1]):
        raise DPError(
            f"references is {as_sql(asked)}; write {EXAMPLE}, or [{{'columns': ['a', 'b'], 'references': ['t.a', 't.b']}}] for a "
            "key of several columns."
        )
    split = [found for target in lists[1] if (found := column_parts(target)) is not None]
    parents = {parent for parent, _ in split}
    if len(parents) != 1 or "" in parents or len(split) < len(lists[1]):
        raise DPError(f"{as_sql(targets)} does not name columns of one table; write 'table.column'.")
    return tuple(lists[0]), parents.pop(), tuple(column for _, column in split)


def _resolved(
    table: Table,
    known: Mapping[Name, Table],
    columns: tuple[str, ...],
    parent: str,
    key: tuple[str, ...],
    place: Place,
) -> tuple[tuple[str, ...], Name, tuple[str, ...]]:
    """The same with all names as the catalog spells them."""
    parts = name_parts(parent)
    options = [(*table.name[:2], parts[0])] if len(parts) == 1 else []
    options += candidates(parts, *place)
    target = next((found for option in options if (found := catalog.find(known, option)) is not None), None)
    if target is None:
        raise DPError(f"there is no table '{parent}' to refer to; create it first, or write 'schema.table.column'.")
    if target.name == table.name and columns == key == (ROWID,) and ROWID not in map(str.lower, table.columns):
        if table.view:
            raise DPError(
                f"'{table.name[2]}' is a view, whose rows have no {ROWID}; name a column that identifies them."
            )
        return columns, target.name, key
    return _spelled(table, columns), target.name, _spelled(target, key)


def _spelled(table: Table, columns: tuple[str, ...]) -> tuple[str, ...]:
    spelling = {column.lower(): column for column in table.columns}
    for column in columns:
        if column.lower() not in spelling:
            raise DPError(
                f"'{table.name[2]}' has no column '{column}'; its columns are: {nearest(table.columns, column)}."
            )
        if table.name[1] != SCHEMA:  # else of a type of another engine, which DuckDB may lack
            column_type(table.columns[spelling[column.lower()]], f"key '{column}'")
    return tuple(spelling[column.lower()] for column in columns)


FUNCTION = register(Function(name="dp_link", rows=rows, columns=COLUMNS, context=context, curator=True))
