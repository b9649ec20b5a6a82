"""Which foreign key leads from each table of a dataset towards the unit, and which of its columns name the unit; no data."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.types import column_type
from duckdb_dp.errors import DPError, few, quoted, quoted_name
from duckdb_dp.synthesis.database import Name, Reference, Table

WHOLE = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
})  # fmt: skip
"""Types whose values compare exactly with each other."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is protected.

    Attributes:
        columns: that name it.
        table: the table that has them; None where every table of the dataset that has columns of these names does.
    """

    columns: tuple[str, ...]
    table: Name | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How the owner of a table's rows is found.

    Attributes:
        reference: the foreign key towards the unit; None where the table's own columns name it.
        owner: the columns of the table that name the unit; () where only a join tells.
    """

    reference: Reference | None
    owner: tuple[str, ...]


def paths(
    tables: Sequence[Table],
    unit: Unit,
    references: Mapping[Name, tuple[Reference, ...]],
    declared: Mapping[Name, tuple[Reference, ...]],
) -> dict[Name, Step]:
    """The step of each table of a dataset, by its name.

    A reference leads towards the unit if its parent names the unit, or gets there without coming back to the table. References of
    a table to itself lead nowhere.

    Args:
        tables: those that shall be protected together; the unit's own table is one of them, unless it is public.
        unit: what is protected.
        references: the foreign keys of each, as declared and by its constraints.
        declared: those of them that are declared, which go before others that lead to the unit, too.

    Raises:
        DPError: a table does not get to the unit, or on two ways, which may be those of two units.
    """
    listed = {_folded(table.name): table for table in tables}
    given = {
        _folded(name): tuple(one for one in found if not _numbers_rows(name, one)) for name, found in references.items()
    }
    ends = {_folded(unit.table)} if unit.table is not None else _with_columns(tables, unit)
    steps: dict[Name, Step] = {}

    def leads(name: Name, avoided: frozenset[Name]) -> bool:
        if name in ends:
            return True
        seen = avoided | {name}
        return name in listed and any(
            parent not in seen and leads(parent, seen) for parent in (_folded(r.parent) for r in given.get(name, ()))
        )

    def owner(table: Table, reference: Reference) -> tuple[str, ...]:
        parent = _folded(reference.parent)
        named = unit.columns if parent == _folded(unit.table or ("", "", "")) else step(parent).owner
        keys = {key.lower(): column for key, column in zip(reference.key, reference.columns, strict=True)}
        return tuple(keys[name.lower()] for name in named) if named and {n.lower() for n in named} <= set(keys) else ()

    def step(name: Name) -> Step:
        if name not in steps:
            table = listed[name]
            if name in ends:
                found = Step(reference=None, owner=_spelled(table, unit.columns))
            else:
                own = frozenset([name])
                towards = [r for r in given.get(name, ()) if leads(_folded(r.parent), own)]
                chosen = [r for r in towards if r.columns in {one.columns for one in declared[table.name]}]
                reference = _only(table, chosen or towards, given, unit)
                _check_types(table, listed.get(_folded(reference.parent)), reference)
                found = Step(reference=reference, owner=owner(table, reference))
            steps[name] = found
        return steps[name]

    lacking = [table for table in tables if _folded(table.name) not in ends and not given.get(_folded(table.name))]
    if lacking:
        raise _unlinked(lacking, tables, unit)
    return {table.name: step(_folded(table.name)) for table in tables}


def _numbers_rows(name: Name, reference: Reference) -> bool:
    """Whether a table refers to itself by a column that numbers its own rows: it leads nowhere."""
    columns, key = ([part.lower() for part in parts] for parts in (reference.columns, reference.key))
    return _folded(reference.parent) == _folded(name) and columns == key


def _only(
    table: Table, found: Sequence[Reference], given: Mapping[Name, tuple[Reference, ...]], unit: Unit
) -> Reference:
    """The one reference that leads towards the unit.

    Raises:
        DPError: there is none, or there are two.
    """
    name, wanted = table.name[2], _written(unit)
    if len(found) == 1:
        return found[0]
    if found:
        ways = " and ".join(f"by {_listed(r.columns)} ('{r.parent[2]}')" for r in found[:2])
        first, columns = found[0], ", ".join(repr(r.columns[0]) for r in found[:2])
        both = ""
        if unit.table is not None and {_folded(r.parent) for r in found[:2]} == {_folded(unit.table)}:
            both = f" If it is of both, leave '{name}' out, and protect it alone by both: unit := [{columns}]"
        raise DPError(
            f"a row of '{name}' may belong to two of {wanted}: {ways}. If one of them owns it, say which: {_link(table, first)} What else "
            f"it refers to is declared after dp_protect.{both}"
        )
    others = [r for r in given.get(_folded(table.name), ()) if _folded(r.parent) != _folded(table.name)]
    if others:
        parents = few(sorted({repr(r.parent[2]) for r in others}))
        raise DPError(
            f"'{name}' does not lead to {wanted}: it refers to {parents}, which is not in the list, or leads nowhere. Add the tables "
            f"between to the list, or, if no row of '{name}' is about a person: CALL dp_public({quoted_name(*_seen(table.name))})"
        )
    raise _unlinked([table], [table], unit)


def _unlinked(lacking: Sequence[Table], tables: Sequence[Table], unit: Unit) -> DPError:
    """The error for tables that refer to nothing, with a guess of what each refers to, by the names of columns."""
    several = len(lacking) > 1
    names = few([repr(table.name[2]) for table in lacking])
    calls = " ".join(_link(table, _guess(table, tables, unit)) for table in lacking)
    first = lacking[0].name
    none = "one of these" if several else f"'{first[2]}'"
    return DPError(
        f"{names} {'do' if several else 'does'} not lead to {_written(unit)}: {'they have' if several else 'it has'} no FOREIGN KEY, as "
        f"far as can be seen. Say what {'their' if several else 'its'} rows refer to: {calls} If no row of {none} is about a person: "
        f"CALL dp_public({quoted_name(*_seen(first))})"
    )


def _link(table: Table, reference: Reference) -> str:
    parent = reference.parent if reference.parent[0] else ("", table.name[1], reference.parent[2])
    targets = [quoted_name(*_seen(parent), key) for key in reference.key]
    columns, named = list(map(quoted, reference.columns)), quoted_name(*_seen(table.name))
    asked = f"{{{columns[0]}: {targets[0]}}}"
    if len(columns) > 1:
        asked = f"[{{'columns': [{', '.join(columns)}], 'references': [{', '.join(targets)}]}}]"
    return f'CALL dp_link({named}, "references" := {asked}).'


def _seen(name: Name) -> tuple[str, ...]:
    """A table's name as an argument, where its catalog is in use."""
    return name[2:] if name[1] in ("main", SCHEMA) else name[1:]


def _guess(table: Table, tables: Sequence[Table], unit: Unit) -> Reference:
    """What a table may refer to: the unit by a column of its name, or else another table by a column that both have, as a key is called."""
    key = unit.columns[0]
    column = next((column for column in table.columns if column.lower() == key.lower()), None)
    others = [] if column is not None and unit.table is not None else [each for each in tables if each is not table]
    for other in others:
        spelled = {name.lower(): name for name in other.columns}
        for name in table.columns:
            if name.lower() in spelled and re.search(r"(id|key|nr|no|code)$", name.lower()):
                return Reference(columns=(name,), parent=other.name, key=(spelled[name.lower()],), role="")
    return Reference(columns=(column or f"my_{key}",), parent=unit.table or ("", "", "my_table"), key=(key,), role="")


def _check_types(table: Table, parent: Table | None, reference: Reference) -> None:
    """Refuse a reference that compares values of two types: what a cast makes equal need not be of one person."""
    if parent is None:
        return
    spelled = {column.lower(): type_ for column, type_ in parent.columns.items()}
    own = {column.lower(): type_ for column, type_ in table.columns.items()}
    for column, key in zip(reference.columns, reference.key, strict=True):
        one, other = own.get(column.lower(), ""), spelled.get(key.lower(), "")
        column_type(one, f"'{table.name[2]}'.'{column}'")
        if one != other and not {one, other} <= WHOLE:
            raise DPError(
                f"'{table.name[2]}'.'{column}' is {one or 'gone'} and '{parent.name[2]}'.'{key}' is {other or 'gone'}: keys of two types "
                "may mix people up; give both columns one type."
            )


def _with_columns(tables: Iterable[Table], unit: Unit) -> set[Name]:
    wanted = {column.lower() for column in unit.columns}
    found = {_folded(table.name) for table in tables if wanted <= {column.lower() for column in table.columns}}
    if not found:
        names = few(repr(table.name[2]) for table in tables)
        raise DPError(f"none of {names} has a column {_listed(unit.columns)}; write unit := 'table.column'.")
    return found


def _spelled(table: Table, columns: Sequence[str]) -> tuple[str, ...]:
    spelled = {column.lower(): column for column in table.columns}
    return tuple(spelled[column.lower()] for column in columns)


def _written(unit: Unit) -> str:
    table = "" if unit.table is None else f"{unit.table[2]}."
    return "'" + ", ".join(f"{table}{column}" for column in unit.columns) + "'"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(repr, columns))


def _folded(name: Name) -> Name:
    catalog, schema, table = name
    return catalog.lower(), schema.lower(), table.lower()
