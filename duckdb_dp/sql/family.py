"""The tables of a dataset: whose rows each one's are, which keys they have, and what may be read beside them; no data."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, final

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import units
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, few
from duckdb_dp.sql import catalog
from duckdb_dp.sql.arguments import check_unit
from duckdb_dp.sql.dp_link import declared_in
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis import database
from duckdb_dp.synthesis.database import Name, Table

Found = TypeVar("Found")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Columns of a member that hold a key of another table.

    Attributes:
        columns: the columns.
        parent: full name of the table that they refer to.
        parent_columns: its columns, in the same order.
        enforced: whether a FOREIGN KEY keeps every reference; otherwise it is declared, and some may lead nowhere.
    """

    columns: tuple[str, ...]
    parent: Name
    parent_columns: tuple[str, ...]
    enforced: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A protected table of a dataset, as committed.

    Attributes:
        name: its full name.
        columns: column -> SQL type, in order.
        keys: columns that no two rows share and that are never NULL, as enforced by PRIMARY KEY, or UNIQUE and NOT NULL.
        not_null: columns that are never NULL.
        references: the first one leads towards the unit; there is none where the member's own columns name the unit.
        owner: its own columns that name the unit, in the unit's order, if it has them; () where only a join tells.
        attributes: what is declared of its columns.
        max_rows: how many of its rows each unit may have at most in an answer; None where that is chosen privately.
    """

    name: Name
    columns: Mapping[str, str]
    keys: tuple[tuple[str, ...], ...] = ()
    not_null: frozenset[str] = frozenset()
    references: tuple[Reference, ...] = ()
    owner: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    max_rows: int | None = 1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTable:
    """A table or view that was declared public everywhere, as committed.

    Attributes:
        name: its full name.
        columns: column -> SQL type, in order.
        keys: columns that no two rows share and that are never NULL.
        not_null: columns that are never NULL.
        view: whether it is a view; then ``provenance.check_public`` says whether it is public still.
    """

    name: Name
    columns: Mapping[str, str]
    keys: tuple[tuple[str, ...], ...] = ()
    not_null: frozenset[str] = frozenset()
    view: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A dataset with all its tables: one unit, and one budget.

    Attributes:
        dataset: what is charged.
        unit_table: the table whose columns name the unit.
        unit: these columns; () where every row is a unit.
        members: the protected tables, by full name as the ledger spells it.
        public: the tables that may be read freely.
        views: named relations of the dataset: full name -> its SELECT.
        view_attributes: the declarations of a named relation's columns, by their names.
        view_rows: how many of a named relation's rows each unit may have at most; None where that is chosen privately.
        linked: (table, columns) of what references lead to that ``dp_link`` declares of the members, before they were protected or later.
        refers: table -> all its references: FOREIGN KEYs, and those that ``dp_link`` declares.
        gone: tables of the dataset, and public ones, that cannot be seen now.
    """

    dataset: Dataset
    unit_table: Name
    unit: tuple[str, ...]
    members: Mapping[Name, Member]
    public: Mapping[Name, PublicTable]
    views: Mapping[Name, str]
    view_rows: Mapping[Name, int | None] = field(default_factory=dict)
    view_attributes: Mapping[Name, Mapping[str, Attribute]] = field(default_factory=dict)
    linked: tuple[tuple[Name, tuple[str, ...]], ...] = ()
    refers: Mapping[Name, tuple[Reference, ...]] = field(default_factory=dict)
    gone: frozenset[Name] = frozenset()

    def member(self, name: Name) -> Member | None:
        """The member of that full name, in any letter case."""
        return _of_name(self.members, name)

    def referred(self, member: Member) -> tuple[tuple[str, ...], ...]:
        """Keys of a member as declared, to which members' references towards the unit lead: those that no constraint keeps apart."""
        led = [one.references[0] for one in self.members.values() if one.references]
        return _unenforced(member, ((r.parent, r.parent_columns) for r in led))

    def expected(self, member: Member) -> tuple[tuple[str, ...], ...]:
        """All keys of a member as declared: those of ``referred``, and those to which any reference leads that ``dp_link`` declares.

        They say how many rows a join is expected to have, and so which bound is enforced on its rows; of owners they say nothing.
        """
        return tuple(dict.fromkeys([*self.referred(member), *_unenforced(member, self.linked)]))

    def leading(self, name: Name) -> list[tuple[str, ...]]:
        """The sets of columns of a member of which each says whose a row is: its keys, its owner's, and its reference towards the unit."""
        member = self.member(name)
        if member is None:
            return []
        led = [one.columns for one in member.references[:1] if self.member(one.parent) is not None]
        return [*member.keys, *self.referred(member), member.owner, *led]

    def public_keys(self, name: Name, column: str) -> Iterator[Reference]:
        """The references of a column of a member to keys of public tables, under the names that these have now."""
        for one in self.refers.get(name, ()):
            to = self.public_table(one.parent)
            own = [each.lower() for each in one.columns] == [column.lower()]
            if own and to is not None and one.parent_columns in to.keys:
                yield replace(one, parent=to.name)

    def public_table(self, name: Name) -> PublicTable | None:
        """The public table of that full name, in any letter case."""
        return _of_name(self.public, name)


def family(session: Session, dataset: Dataset) -> Family:
    """The tables of a dataset, as committed: those that are its members, and those that are public.

    Raises:
        DPError: the dataset has two units.

    Privacy: names, types and declarations only.
    """
    check_unit(dataset)
    found = session.once(("family", dataset.id), lambda: _family(session, dataset))
    return replace(found, dataset=dataset)


def _family(session: Session, dataset: Dataset) -> Family:
    """That of a dataset, as seen from any of its tables."""
    relations = [one for one in session.ledger.families.relations() if one.id == dataset.id]
    tables = [one for one in relations if one.member is None or one.member.view is None]
    for one in tables:
        if one.schema == SCHEMA:
            from duckdb_dp.sql.external_tables import source  # for import time: most tables are in DuckDB

            source(session, _name(one))  # which says how to attach it, where it is not
    public = session.ledger.public.tables()
    known = catalog.committed(session, [full[:2] for full in [*public, *map(_name, tables)]])
    members = {_name(one): _member(session, one, known) for one in tables}
    (unit,) = units(dataset.member.unit if dataset.member else dataset.unit) or ((),)
    # The chains of references end at the table whose columns are the unit: a member, or a public table.
    ends = [one.references[0].parent if one.references else one.name for one in members.values()]
    unit_table = next(
        end for end, one in zip(ends, members.values(), strict=True) if not one.references or end not in members
    )
    return Family(
        dataset=dataset,
        unit_table=unit_table,
        unit=unit,
        members=members,
        public=_public(public, known),
        views={_name(one): one.member.view for one in relations if one.member and one.member.view is not None},
        view_rows={_name(one): None if one.auto_rows else one.max_rows for one in relations},
        view_attributes={_name(one): session.declared(one) for one in relations if one not in tables},
        linked=tuple((r.parent, r.key) for one in tables for r in declared_in(session.ledger.link(one))),
        refers={_name(one): _refers(session, one, known) for one in tables},
        gone=frozenset(name for name in [*public, *members] if catalog.find(known, name) is None),
    )


def _unenforced(member: Member, led: Iterable[tuple[Name, tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    """Of some (table, columns) the columns of a member, where they are there still and no constraint keeps them apart."""
    found = dict.fromkeys(key for name, key in led if _folded(name) == _folded(member.name))
    there = [key for key in found if set(key) <= set(member.columns)]
    return tuple(key for key in there if not any(set(own) <= set(key) for own in member.keys))


def _name(dataset: Dataset) -> Name:
    return dataset.catalog, dataset.schema, dataset.name


def _member(session: Session, dataset: Dataset, known: Mapping[Name, Table]) -> Member:
    declared, name = session.declared(dataset), _name(dataset)
    table = catalog.find(known, name) or Table(name=name, columns={a.name: a.type for a in declared.values()})
    if dataset.member is not None and table.view and name[1] != SCHEMA:
        raise DPError(
            f"'{dataset.name}' was a table when it was protected and is a view now, whose rows may be of several units; make it a table "
            "again, or name what it selects: CALL dp_view('my_view', 'SELECT ...')"
        )
    spec = dataset.member and dataset.member.reference
    reference = None if spec is None else json.loads(spec)
    (own,) = units(dataset.unit) or ((),)
    return Member(
        name=name,
        columns=table.columns,
        keys=keys(table),
        not_null=not_null(table),
        references=() if reference is None else _references(database.Reference.from_json(reference), table),
        owner=own if reference is None else tuple(reference["owner"]),
        attributes=declared,
        max_rows=None if dataset.auto_rows else dataset.max_rows,
    )


def _refers(session: Session, dataset: Dataset, known: Mapping[Name, Table]) -> tuple[Reference, ...]:
    """All references of a table."""
    table = catalog.find(known, _name(dataset))
    found = [*(() if table is None else table.references), *declared_in(session.ledger.link(dataset))]
    return tuple(
        Reference(
            columns=r.columns,
            parent=r.parent,
            parent_columns=r.key,
            enforced=table is not None and _enforced(table, r),
        )
        for r in found
    )


def _references(first: database.Reference, table: Table) -> tuple[Reference, ...]:
    """The reference towards the unit, as it was when the table was protected, and the table's other foreign keys."""
    others = [r for r in table.references if (r.columns, r.parent) != (first.columns, first.parent)]
    return tuple(
        Reference(columns=r.columns, parent=r.parent, parent_columns=r.key, enforced=_enforced(table, r))
        for r in (first, *others)
    )


def _enforced(table: Table, reference: database.Reference) -> bool:
    """Whether a FOREIGN KEY of the table keeps it."""

    def pairs(one: database.Reference) -> set[tuple[str, str]]:
        return {(column.lower(), key.lower()) for column, key in zip(one.columns, one.key, strict=True)}

    return any(
        [part.lower() for part in own.parent] == [part.lower() for part in reference.parent]
        and pairs(own) == pairs(reference)
        for own in table.references
    )


def keys(table: Table) -> tuple[tuple[str, ...], ...]:
    """Column sets that no two rows share and that are never NULL."""
    never = not_null(table)
    return tuple(key for key in table.keys if set(key) <= never)


def not_null(table: Table) -> frozenset[str]:
    """Columns that are never NULL: as declared, and those of the primary key."""
    return table.required | frozenset(table.primary)


def unowned(dataset: Dataset, table: Table) -> str | None:
    """Which rows of a table may belong to no unit, in words such as 'patient is NULL'; None where each has one."""
    never = {name.lower() for name in not_null(table)}
    spec = dataset.member and dataset.member.reference
    led = spec is not None and not _enforced(table, database.Reference.from_json(json.loads(spec)))
    found = [name for name in dataset.leading if led or name.lower() not in never]
    return f"{few(found, ' or ')} {'leads nowhere' if spec is not None else 'is NULL'}" if found else None


def _public(names: Iterable[Name], known: Mapping[Name, Table]) -> dict[Name, PublicTable]:
    found = [table for name in names if (table := catalog.find(known, name)) is not None]
    return {
        table.name: PublicTable(
            name=table.name, columns=table.columns, keys=keys(table), not_null=not_null(table), view=table.view
        )
        for table in found
    }


def _of_name(tables: Mapping[Name, Found], name: Name) -> Found | None:
    return next((found for full, found in tables.items() if _folded(full) == _folded(name)), None)


def _folded(name: Name) -> tuple[str, ...]:
    return tuple(part.lower() for part in name)
