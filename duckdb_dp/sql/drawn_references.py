"""Which references of tables dp_synthesize_database draws, and which declared columns are numbers therefore, and no attributes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, few
from duckdb_dp.sql import (
    catalog,
    chosen_parents,
    contribution_bounds,
    dp_synthesize,
    inherited_columns,
    joined_columns,
    owners,
    provenance,
    public_domains,
)
from duckdb_dp.sql.dp_link import ROWID, has_rowid, own_key
from duckdb_dp.sql.joined_columns import JoinedColumns
from duckdb_dp.sql.links import ROW_NUMBER
from duckdb_dp.sql.repeated_references import RepeatedReference, repeated_references
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Reference, Table, is_link, with_kept_keys


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The tables that are made, and what becomes of their columns.

    Attributes:
        tables: the tables, parents first, with the public ones that links lead to, and with the references that are drawn.
        copied: the public tables.
        numbered: of each table the declared columns that are numbers, and those that are read off a parent.
        valued: of each table the columns that are no numbers: those with declared values, a public table's keys or a parent's.
        keyed: of each table the references that are drawn as any other column, with the attribute whose values are a public table's keys.
        declared: of each table those whose column is declared, and gets nothing but a public table's keys.
        also: of each table the attributes that nobody declared: those, and of links the ends at public tables, which tables that refer
            to the links may depend on.
        joined: of each table what its rows have by references to public tables and the unit's rows, on which links with others may depend.
        repeated: of each table the references that are read off a parent.
        held: of each table the declared columns that hold numbers of another one's synthetic rows, whatever values they are declared with.
    """

    tables: Sequence[Table]
    copied: Mapping[Name, Table]
    numbered: Mapping[Name, Sequence[str]]
    valued: Mapping[Name, frozenset[str]]
    keyed: Mapping[Name, Mapping[Reference, Attribute]]
    declared: Mapping[Name, Sequence[Reference]]
    also: Mapping[Name, Sequence[Attribute]]
    joined: Mapping[Name, tuple[JoinedColumns, ...]]
    repeated: Mapping[Name, tuple[RepeatedReference, ...]]
    held: Mapping[Name, Sequence[str]]

    def kept(self, table: Table) -> Table:
        """A table with the keys that its synthetic rows must have."""
        return with_kept_keys(table, self.valued.get(table.name, ()))

    def read(self, name: Name) -> list[str]:
        """The columns of a table that are read off a parent."""
        return [column for one in self.repeated[name] for column in one.read]


def schema(session: Session, tables: Sequence[Table], copied: Mapping[Name, Table], target: tuple[str, str]) -> Schema:
    """The schema of some tables, parents first, and of the synthetic ones in a target.

    Privacy: looks at declarations, constraints and public rows.
    """
    numbers = {table.name: numbered(session, table, tables) for table in tables}
    valued, constrained = dict[Name, frozenset[str]](), dict[Name, list[Reference]]()
    keyed, also = dict[Name, dict[Reference, Attribute]](), dict[Name, list[Attribute]]()
    said, holding = dict[Name, list[Reference]](), dict[Name, list[str]]()
    joined, referred = dict[Name, tuple[JoinedColumns, ...]](), {r.parent for one in tables for r in one.references}
    repeated, filled = dict[Name, tuple[RepeatedReference, ...]](), dict[Name, list[Reference]]()
    for table in tables:
        if (dataset := session.ledger.dataset(*table.name)) is None:
            continue
        declared = session.declared(dataset)
        known, linking = references(
            session, dataset, table, tables, to_itself(session, dataset, table, numbers[table.name])
        )
        held = {column for reference in known for column in reference.columns}
        found = {
            reference: attribute
            for reference in table.references
            if reference.parent in copied and not {*reference.columns} & declared.keys()
            if reference in known or not {*reference.columns} & held
            if (attribute := public_domains.of_key(session, table, reference, copied[reference.parent])) is not None
        }
        keyed[table.name] = {reference: attribute for reference, attribute in found.items() if reference not in known}
        parts = (
            replace(r, columns=(column,), key=(key,))
            for r in known
            if r.parent in copied and len(r.columns) > 1
            for column, key in zip(r.columns, r.key, strict=True)
            if column not in declared
        )
        of_parts = (public_domains.of_key(session, table, part, copied[part.parent]) for part in parts)
        also[table.name] = [*found.values(), *(attribute for attribute in of_parts if attribute is not None)]
        drawn = {*declared} - {*numbers[table.name]}
        holding[table.name] = [
            column
            for r in known
            for column, key in zip(r.columns, r.key, strict=True)
            if r.parent not in copied and column in declared and key not in valued.get(r.parent, ())
        ]
        said[table.name] = [
            r
            for r in table.references
            if r.parent in copied and r not in known and len(r.columns) == 1 and {*r.columns} <= drawn - held
            if public_domains.only_keys(session, declared[r.columns[0]], r.key[0], copied[r.parent])
        ]
        public = [
            r for r in table.references if r.parent in copied and (r in known or r in found or drawn >= {*r.columns})
        ]
        if table.name in referred or (known and not linking):
            joined[table.name] = joined_columns.chosen(
                session,
                table,
                public,
                copied,
                [r for r in public if r not in (*known, *found, *said[table.name]) and not {*r.columns} <= held],
            )
        if table.name in referred:
            inherited = inherited_columns.chosen(session, dataset, table, known, numbers, target)
            joined[table.name] = (*joined[table.name], *inherited)
        repeated[table.name] = tuple(repeated_references(table, known, filled, constrained))
        constrained[table.name] = [
            r for r in (*keyed[table.name], *said[table.name]) if copied[r.parent].distinct(r.key)
        ]
        filled[table.name] = [*known, *(one.repeated for one in repeated[table.name])]
        listed = {column for reference in found for column in reference.columns}
        read = [column for one in repeated[table.name] for column in one.read]
        valued[table.name] = frozenset({*declared, *listed} - {*numbers[table.name]} | held | {*read})
        numbers[table.name] = (*numbers[table.name], *read)
    return Schema(
        tables=referring(session, tables), copied=copied, numbered=numbers, valued=valued, keyed=keyed,
        declared=said, also=also, joined=joined, repeated=repeated, held=holding,
    )  # fmt: skip


def to_itself(session: Session, dataset: Dataset, table: Table, numbers: Sequence[str]) -> list[Reference]:
    """The references of a table to itself that can be drawn, when all else of its rows is there."""
    declared = {name: found for name, found in session.declared(dataset).items() if name not in numbers}
    return [r for r in table.references if contribution_bounds.may_refer_to_itself(dataset, table, declared, r)]


def referring(session: Session, tables: Iterable[Table], *, joined: bool = True) -> list[Table]:
    """The tables with the references that are drawn; without ``joined`` none of those whose owner only a join tells.

    Links are drawn of tables to which others refer too, where these get their parents once the links are there.
    """
    found = []
    for table in tables:
        dataset = session.ledger.dataset(*table.name)
        if dataset is not None and (joined or not owners.by_join(session, dataset)):
            table = replace(table, references=tuple(chosen_parents.drawn(session, dataset, table.references)))
        elif dataset is not None:
            continue
        found.append(table)
    return found


def references(
    session: Session, dataset: Dataset, table: Table, tables: Sequence[Table], itself: Sequence[Reference] = ()
) -> tuple[list[Reference], bool]:
    """The references of a table that are drawn, and whether they are the two ends of links.

    Args:
        session: the session.
        dataset, table: the table.
        tables: all tables that are made.
        itself: its references to itself that can be drawn.
    """
    names, declared = {other.name for other in tables}, session.declared(dataset)
    # A column that is declared with NULL is drawn as any other where it refers to a public table: links have no NULL.
    possible = [
        reference
        for reference in chosen_parents.drawn(session, dataset, table.references)
        if session.ledger.dataset(*reference.parent) is not None
        or not any(name in declared and declared[name].nulls for name in reference.columns)
    ]
    known = [r for r in possible if r.parent in names and r.parent != table.name]
    known += itself
    made = [reference for reference in known if session.ledger.dataset(*reference.parent) is not None]
    linking = len(known) == 2 and _is_link(session, dataset, table, tables, known)
    if len(made) < len(known) and not (len(made) == 1 and linking):
        known = made  # links to a public table alone are of no unit
    return known, linking and len(known) == 2


def _is_link(
    session: Session, dataset: Dataset, table: Table, tables: Sequence[Table], known: Sequence[Reference]
) -> bool:
    """Whether the two references of a table are drawn as the ends of links.

    A table to whose rows others refer as parents of theirs has rows that get a parent, where the public table's keys can be the
    values of a column: these have more in common with other columns than links keep.
    """
    drawn = replace(table, references=tuple(chosen_parents.drawn(session, dataset, table.references)))
    others = referring(session, tables, joined=False)
    if is_link(drawn, others):
        return True
    public = [r for r in known if session.ledger.dataset(*r.parent) is None]
    if len(public) != 1:
        return False
    ((reference,), declared) = public, session.declared(dataset)
    parent = next(other for other in tables if other.name == reference.parent)
    if len(reference.columns) == 1 and (
        declared.keys() & {*reference.columns} or public_domains.of_key(session, table, reference, parent) is not None
    ):
        return False
    return is_link(drawn, [replace(other, references=tuple(_of_no_parent(session, other))) for other in others])


def _of_no_parent(session: Session, table: Table) -> Iterator[Reference]:
    """The references of a table other than those that lead to one chosen parent of each unit."""
    dataset = session.ledger.dataset(*table.name)
    return (r for r in table.references if dataset is None or not chosen_parents.of_one(session, dataset, r))


def numbered(session: Session, table: Table, tables: Sequence[Table]) -> tuple[str, ...]:
    """The declared columns of a table that identify its synthetic rows, which would share the values of attributes.

    They are those to which drawn references of other tables lead, and the table's own key where each row gets a parent and the
    key has no other column. Of a key of several columns they are those that hold a parent's key: others keep their values, as siblings
    differ in them; but rows that refer to others of their own table do so by numbers.
    """
    dataset = session.ledger.dataset(*table.name)
    if dataset is None:
        return ()
    declared = session.declared(dataset)
    known, linking = references(session, dataset, table, tables)
    held = {column for reference in known for column in reference.columns}
    keys = {
        reference.key
        for other in referring(session, tables)
        for reference in other.references
        if reference.parent == table.name != other.name
    }
    if declared.keys() >= set(table.key) and known and not linking:
        keys.add(table.key)
    own = {column for reference in table.references if reference.parent == table.name for column in reference.key}
    found = {column for key in keys for column in key if len(key) == 1 or column in held or own.intersection(key)}
    return tuple(name for name in declared if name in found)


def with_own_key(session: Session, dataset: Dataset, table: Table, *, needed: bool) -> tuple[Table, tuple[str, ...]]:
    """A table, and the columns that identify its rows: where that is needed and there are none, the table has a ``ROWID``."""
    own = own_key(session, dataset, table)
    if own or not needed or not has_rowid(dataset, table):
        return table, own
    return replace(table, columns={ROWID: "BIGINT", **table.columns}), (ROWID,)


def child_key(session: Session, dataset: Dataset, table: Table | None, synthetic: str) -> tuple[str, ...]:
    """The columns that identify the rows of a child table; without a key ``ROWID``, where the synthetic table has such a column."""
    if (own := own_key(session, dataset, table)) or table is None or not has_rowid(dataset, table):
        return own
    try:
        made, _, _ = provenance.named(session, synthetic, [(dataset.catalog, dataset.schema)])
    except DPError:
        return own  # which is said where synthetic tables are looked for
    return (ROWID,) if ROWID in made.columns else own


def row_number(own: Sequence[str], valued: Collection[str], held: Collection[str], table: Table) -> tuple[str, ...]:
    """The ``ROW_NUMBER`` of a table's rows, which they have until they get parents, where no column of their own key numbers them.

    Args:
        own: the key.
        valued: its columns that are drawn as attributes.
        held: the columns that get a parent's key.
        table: the table.
    """
    rest = [column for column in own if column not in valued]
    free = not {*rest} <= {*held}
    by_themselves = len(rest) == len(own) and all(dp_synthesize.numbered(table.columns[column]) for column in rest)
    return () if free or by_themselves else (ROW_NUMBER,)


def check_numbered(what: str, table: Table, key: Sequence[str]) -> None:
    """Refuse a key that synthetic rows cannot have.

    Raises:
        DPError: a column of it has a type that holds no numbers.
    """
    if odd := [column for column in key if not dp_synthesize.numbered(table.columns[column])]:
        declare = "" if table.distinct(odd[:1]) else "declare it, "
        raise DPError(
            f"{what} {few(odd)} of '{table.name[2]}', of type {table.columns[odd[0]]}; keys of synthetic rows are numbered, as "
            f"whole numbers or text; {declare}leave that table out, or give it such a key in a view."
        )


def check_types(table: Table, reference: Reference, parent: Table, numbers: Sequence[str]) -> None:
    """Refuse a reference whose columns cannot hold the synthetic keys of its parent, which are texts where the parent's are.

    Raises:
        DPError: it is one.
    """
    for column, key in zip(reference.columns, reference.key, strict=True):
        here, there = table.columns.get(column), parent.columns.get(key)
        if key in numbers and there == "VARCHAR" != here:
            raise DPError(
                f"'{table.name[2]}' refers by '{column}', of type {here}, to '{key}' of '{parent.name[2]}', of type {there}; keys "
                f"of synthetic rows are texts there, such as '{parent.name[2]}-1', so give both columns one type."
            )


def kept_itself(session: Session, dataset: Dataset, references: Sequence[Reference]) -> Reference | None:
    """The FOREIGN KEY of a table to itself that the new table keeps; only one, because with two, rows may need each other."""
    found = [reference for reference in references if contribution_bounds.itself(dataset, reference)]
    table = catalog.of(session, dataset)
    same = (
        {(r.columns, r.key) for r in table.references if contribution_bounds.itself(dataset, r)}
        if table is not None
        else set()
    )
    return found[0] if len(found) == 1 and (found[0].columns, found[0].key) in same else None
