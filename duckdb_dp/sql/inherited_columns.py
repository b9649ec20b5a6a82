"""Columns of the unit's rows to which a parent of links refers, as attributes of the parent: the country of the guest of a booking."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import full_name
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.sql import catalog, owners
from duckdb_dp.sql.family import Family, Member, family
from duckdb_dp.sql.joined_columns import JoinedColumns
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name, Reference, Table

MOST = 3
"""Most columns that are read, those with the fewest values first: each has to be measured with all that the links have."""

VALUES = 8
"""Most cells of such a column: values in order are put together to so many, and other columns with more of them are not read."""


def chosen(
    session: Session,
    dataset: Dataset,
    table: Table,
    drawn: Sequence[Reference],
    numbered: Mapping[Name, Collection[str]],
    target: tuple[str, str],
) -> Iterator[JoinedColumns]:
    """The columns that a table's rows have by the reference that says whose they are.

    The row to which it leads is of the same unit: its key is the unit, or only this reference says whose the table's rows are, and a
    constraint keeps the key from two rows. So the columns are functions of the unit's own rows.

    Args:
        session: the session.
        dataset, table: the table.
        drawn: those of its references that synthetic rows have.
        numbered: of each table the declared columns that are numbers.
        target: catalog and schema of the synthetic tables.

    Privacy: looks at declarations and constraints.
    """
    found = None if dataset.member is None or dataset.member.view is not None else family(session, dataset)
    member = None if found is None else found.member(table.name)
    if found is None or member is None or table.name[1] == SCHEMA or table.view:
        return
    for reference in drawn:
        parent = found.member(reference.parent)
        if parent is None or parent.name == member.name or not _is_of_unit(session, found, dataset, member, reference):
            continue
        known = catalog.find(catalog.committed(session, [parent.name[:2]]), parent.name)
        of = session.ledger.dataset(*parent.name)
        if known is None or of is None or known.view or parent.name[1] == SCHEMA:
            continue
        left_out = {*numbered.get(parent.name, ()), *reference.key}
        own = (a for name, a in session.declared(of).items() if name not in left_out and a.at_least is None)
        certain = {*reference.columns} <= table.required and any(
            (r.columns, r.parent, r.key) == (reference.columns, reference.parent, reference.key)
            for r in table.references
            if _enforced(member, r)
        )
        taken = {name.lower() for name in table.columns}
        few = (coarse(a) for a in own)
        named = [
            replace(a, name=f"{reference.role}.{a.name}", nulls=a.nulls or not certain)
            for a in few
            if a is not None and f"{reference.role}.{a.name}".lower() not in taken
        ]
        if kept := sorted(named, key=lambda a: a.size)[:MOST]:
            yield JoinedColumns(
                reference=reference, attributes=tuple(kept), made=full_name(*target, reference.parent[2])
            )
            return


def _is_of_unit(session: Session, found: Family, dataset: Dataset, member: Member, reference: Reference) -> bool:
    """Whether the row to which a reference leads is the same unit's, whatever the tables hold."""
    columns, key = _folded(reference.columns), _folded(reference.key)
    if not _compared(member, found.member(reference.parent), columns, key):
        return False
    if _folded(reference.parent) == _folded(found.unit_table):
        unit = dict(zip(_folded(found.unit), _folded(member.owner), strict=bool(member.owner)))
        if member.owner and unit == dict(zip(key, columns, strict=True)):
            return True
    first, parent = member.references[0] if member.references else None, found.member(reference.parent)
    if first is None or parent is None or not owners.by_join(session, dataset):
        return False
    same = (_folded(first.parent), _folded(first.columns), _folded(first.parent_columns))
    unique = any({*_folded(one)} <= {*key} for one in parent.keys)
    return unique and same == (_folded(reference.parent), columns, key)


def _compared(member: Member, parent: Member | None, columns: Sequence[str], key: Sequence[str]) -> bool:
    """Whether equal keys are equal texts, as they are compared here, and no others: owners are found by their values."""
    if parent is None:
        return False
    ours, theirs = ({name.lower(): type_ for name, type_ in one.columns.items()} for one in (member, parent))
    plain = owners.PLAIN | {"VARCHAR"}
    return all(ours.get(a) == theirs.get(b) and ours.get(a) in plain for a, b in zip(columns, key, strict=True))


def _enforced(member: Member, reference: Reference) -> bool:
    return any(one.enforced and _folded(one.columns) == _folded(reference.columns) for one in member.references)


def coarse(attribute: Attribute) -> Attribute | None:
    """An attribute of few cells: values in order are put together evenly; None where others are too many."""
    if attribute.base <= VALUES:
        return attribute
    if attribute.kind == "values" and not attribute.dtype.ordered:
        return None
    if attribute.kind == "values":
        order = attribute.dtype.orders(attribute.points)
        edges = tuple(attribute.points[place] for place in sorted(range(len(order)), key=order.__getitem__))
    elif attribute.kind == "bins":
        edges = attribute.points
    else:
        low, high = (int(point) for point in attribute.points)
        edges = tuple(range(low, high + 1))
    places = [round(i * (len(edges) - 1) / VALUES) for i in range(VALUES + 1)]
    return declare(
        name=attribute.name,
        type=attribute.type,
        bins=[edges[place] for place, _ in itertools.groupby(places)],
        other=attribute.other,
        nulls=attribute.nulls,
        decimals=attribute.decimals if attribute.kind == "bins" else None,
    )


def _folded(name: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in name)
