"""The rows of a dataset's table with their owners, as SQL: along the foreign keys that lead to the unit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import units
from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError
from duckdb_dp.grouped_sums import GroupedSums, Lookup, Source
from duckdb_dp.request import Request
from duckdb_dp.sql import public_views
from duckdb_dp.sql.family import Family, Member, Reference, family
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.unit_paths import WHOLE
from duckdb_dp.synthesis.database import Name

PLAIN = WHOLE | {"UUID", "DATE"}
"""Types of keys by which rows are grouped: equal values are the same ones, and no collation is on them."""


def owned(session: Session, dataset: Dataset, request: Request) -> Request:
    """The request, with whose the rows are that it reads: of a dataset of one table it is as it was.

    Raises:
        DPError: that cannot be told from the tables as they are now.
    """
    if dataset.member is None:
        return request
    if dataset.member.view is not None:
        from duckdb_dp.sql import views  # for import time: it brings sqlglot

        seen = views.source(session, dataset)
        direct = tuple(part if part.source is not None else replace(part, source=seen) for part in request.direct)
        return replace(request, source=seen if request.questions or not direct else None, direct=direct)
    found, name = family(session, dataset), (dataset.catalog, dataset.schema, dataset.name)
    _check_register(session, found, name)
    (unit,) = units(dataset.unit)
    read = [attribute.name for attribute in request.attributes]
    read += [value for option, value in request.options if option == "attribute"]
    direct = tuple(
        part if part.source is not None else replace(part, source=_summed(found, name, unit, part))
        for part in request.direct
    )
    counts = bool(request.questions) or not direct
    return replace(request, source=source(found, name, unit, read) if counts else None, direct=direct)


def _check_register(session: Session, found: Family, name: Name) -> None:
    """Have all rows of a public register worked out before those that lead to it: another engine may fail on one of its rows."""
    member = found.member(name)
    while member is not None and member.references:
        first = member.references[0]
        member, public = found.member(first.parent), found.public_table(first.parent)
        if member is None and public is not None:
            public_views.check_read(session, public, [*first.parent_columns, *found.unit])


def by_join(session: Session, dataset: Dataset) -> bool:
    """Whether it takes a join to tell whose the rows of a table are, because none of its columns names the unit."""
    if dataset.member is None:
        return False
    member = family(session, dataset).member((dataset.catalog, dataset.schema, dataset.name))
    return member is None or not member.owner


def _summed(found: Family, name: Name, unit: Sequence[str], part: GroupedSums) -> Source | None:
    return source(found, name, unit, [*part.clique, *(column for column, _ in part.columns)])


def source(found: Family, name: Name, unit: Sequence[str], columns: Iterable[str]) -> Source | None:
    """The rows of a member with their owners; None where the table itself says so for all of them.

    A row that leads to no owner, by a key that is NULL or that its parent does not have, is left out. Where a parent's key is not
    unique, a row is of each of its parents' owners, once. So each row of the result has one owner and, given the member's own
    rows, is a function of that owner's rows alone, whatever the tables hold and whatever was declared of their keys.

    Args:
        found: the dataset's tables.
        name: of the member.
        unit: names for the columns of the owner.
        columns: those of the member's columns that are read.

    Raises:
        DPError: a column or a table is gone, or has the name of the owner's.

    Privacy: SQL of private rows.
    """
    member = found.member(name)
    assert member is not None
    if of_itself(found, member):
        return None
    shown = list(dict.fromkeys(columns))
    owner = dict(zip(unit, _owner(member, len(unit)), strict=True))
    clash = [name for name in owner if name.lower() in {column.lower() for column in shown} and not member.owner]
    if clash:
        raise DPError(
            f"'{member.name[2]}' has a column '{clash[0]}' now, the name of whose its rows are; give it another name."
        )
    folded = {column.lower() for column in shown}
    chosen = [f"t.{quote(column)} AS {quote(column)}" for column in shown]
    named = [f"{sql} AS {quote(alias)}" for alias, sql in owner.items() if alias.lower() not in folded]
    return Source(
        sql=f"SELECT {', '.join([*chosen, *named])} FROM {_from(found, member)}",
        owner=tuple(unit),
        types=() if member.owner else owner_types(found, member),
        lookup=None if member.owner else _lookup(found, member, chosen),
    )


def _lookup(found: Family, member: Member, chosen: Sequence[str]) -> Lookup | None:
    """The rows of a member by the key that leads to their owners; None where keys are not compared as they are."""
    first = member.references[0]
    parent = _parent(found, first.parent, member)
    types = [_type(member, own) for own in first.columns]
    alike = types == [_type(parent, key) for key in first.parent_columns]
    if not alike or not PLAIN.issuperset(types):
        return None
    keys = tuple((f"_dp_key{i}", type_) for i, type_ in enumerate(types))
    named = [f"t.{quote(own)} AS {quote(key)}" for own, (key, _) in zip(first.columns, keys, strict=True)]
    rows = f"SELECT {', '.join([*chosen, *named])} FROM {full_name(*member.name)} AS t"
    return Lookup(rows=rows, keys=keys, owners=_led(found, member, [False] * len(keys)))


def of_itself(found: Family, member: Member) -> bool:
    """Whether the member's own columns name the owner, and no row can lead to nobody."""
    if not member.references:
        return True
    first = member.references[0]
    parent = found.member(first.parent)
    return bool(member.owner) and first.enforced and (parent is None or of_itself(found, parent))


def _one_owner(found: Family, member: Member) -> bool:
    """Whether constraints keep each row from having several owners, or one of them twice."""
    if member.owner or not member.references:
        return True
    first = member.references[0]
    parent = _parent(found, first.parent, member)
    folded = {key.lower() for key in first.parent_columns}
    unique = any({column.lower() for column in key} <= folded for key in parent.keys)
    return unique and _one_owner(found, parent)


def _owner(member: Member, number: int) -> list[str]:
    """SQL of the columns of a row's owner."""
    return [f"t.{quote(column)}" for column in member.owner] or [f"p.o{i}" for i in range(number)]


def owner_types(found: Family, member: Member) -> tuple[str, ...]:
    """The types of the columns in which a row's owner is found: those of the table that names it, which may be other whole numbers."""
    while not member.owner:
        member = _parent(found, member.references[0].parent, member)
    return tuple(_type(member, column) for column in member.owner)


def _from(found: Family, member: Member) -> str:
    """FROM clause with the rows ``t`` that have an owner, and where it takes a join to name it, with its columns in ``p``."""
    table = f"{full_name(*member.name)} AS t"
    if of_itself(found, member):
        return table
    texts = as_texts(found, member)
    on = " AND ".join(
        f"{plain(f't.{quote(own)}', text)} = p.k{i}"
        for i, (text, own) in enumerate(zip(texts, member.references[0].columns, strict=True))
    )
    join = "SEMI JOIN" if member.owner else "JOIN"
    return f"{table} {join} ({_led(found, member, texts)}) AS p ON {on}"


def as_texts(found: Family, member: Member, reference: Reference | None = None) -> list[bool]:
    """Which columns of a reference are compared with the parent's as texts; by default of that which leads rows to their owners."""
    first = reference or member.references[0]
    parent = _parent(found, first.parent, member)
    pairs = [
        (_type(member, own), _type(parent, key)) for own, key in zip(first.columns, first.parent_columns, strict=True)
    ]
    return [one == "VARCHAR" or (one != other and not {one, other} <= WHOLE) for one, other in pairs]


def _led(found: Family, member: Member, texts: Sequence[bool]) -> str:
    """SELECT of the keys that a member's references lead to, some as texts, and of the owners where the member does not name them."""
    first = member.references[0]
    parent = _parent(found, first.parent, member)
    keys = zip(first.parent_columns, texts, strict=True)
    named = [f"{plain(f't.{quote(key)}', text)} AS k{i}" for i, (key, text) in enumerate(keys)]
    distinct = ""
    if not member.owner:
        numbers = zip(count(), _owner(parent, len(found.unit)), unit_types(found), strict=False)
        # Texts by their bytes: under a collation DISTINCT would take two people for one.
        own = bool(parent.owner)
        texts_too = ((i, sql, own and type_ == "VARCHAR") for i, sql, type_ in numbers)
        named += [f"{f'decode({plain(sql, text)})' if text else sql} AS o{i}" for i, sql, text in texts_too]
        distinct = "" if _one_owner(found, member) else "DISTINCT "
    return f"SELECT {distinct}{', '.join(named)} FROM {_from(found, parent)}"


def _parent(found: Family, name: Name, member: Member) -> Member:
    """The member of that name, or the public table that has the unit."""
    if (parent := found.member(name)) is not None:
        return parent
    public = found.public_table(name)
    if public is None:
        raise DPError(
            f"'{name[2]}', which '{member.name[2]}' refers to, cannot be seen now; create or attach it again."
        )
    if public.view and name[1] != SCHEMA:  # which may fail on a row, or not, as the member's rows are
        raise DPError(
            f"'{name[2]}', which '{member.name[2]}' refers to, was a table and is a view now; make it a table again."
        )
    return Member(name=public.name, columns=public.columns, keys=public.keys, owner=found.unit)


def unit_types(found: Family) -> list[str]:
    """The types of the unit's columns."""
    end = found.member(found.unit_table) or found.public_table(found.unit_table)
    columns: Mapping[str, str] = {} if end is None else {name.lower(): type_ for name, type_ in end.columns.items()}
    return [columns.get(column.lower(), "VARCHAR") for column in found.unit]


def _type(member: Member, column: str) -> str:
    found = {name.lower(): type_ for name, type_ in member.columns.items()}.get(column.lower())
    if found is None:
        raise DPError(
            f"'{member.name[2]}' has no column '{column}' now, by which its rows' owners are found; give the column its name back."
        )
    return found


def plain(sql: str, text: bool) -> str:
    """SQL of a key, to be compared; of texts their bytes, whatever collation a column has."""
    return f"encode(TRY_CAST({sql} AS VARCHAR))" if text else sql
