"""CALL dp_protect of several tables: which they are, what their unit is, and how each row's owner is found."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duckdb_dp.accounting.families import NewMember
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.records import plain_unit
from duckdb_dp.accounting.tables import AUTO
from duckdb_dp.counting.engines.source import SCHEMA, check_together
from duckdb_dp.domain.domain import canonical
from duckdb_dp.domain.types import column_type
from duckdb_dp.errors import DPError, as_sql, few, identifier, of_file, quoted_name
from duckdb_dp.sql import catalog, lineage, missing_tables
from duckdb_dp.sql.arguments import Arguments, Place, candidates, column_parts, flag, name_parts
from duckdb_dp.sql.dp_link import declared_in, with_constraints
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.unit_paths import Step, Unit, paths
from duckdb_dp.synthesis.database import Name, Reference, Table

EXAMPLE = "CALL dp_protect(['patients', 'visits'], unit := 'patients.patient_id', epsilon := 3, delta := 1e-9)"


def schemas(arguments: Arguments, place: Place) -> list[tuple[str, str]]:
    """(catalog, schema) of all tables that a call may name."""
    named = [*arguments["dataset"], *([table] if (table := _unit_parts(arguments)[0]) else [])]
    return [full[:2] for name in named for full in candidates(name_parts(name), *place)]


def members(
    session: Session, arguments: Arguments, place: Place, known: Mapping[Name, Table], seen: Sequence[Name]
) -> tuple[list[NewMember], tuple[str, ...], str]:
    """The tables that a call protects together, the columns of the unit, and the neighbours in words.

    Args:
        session: the session.
        arguments: of the call.
        place: (catalog, schema) where names are looked for.
        known: tables of the schemas that the call names.
        seen: the full names of all tables and views.

    Raises:
        DPError: a table does not lead to the unit, is no table, or may be a protected one under another name.

    Privacy: names, types and constraints only.
    """
    if not arguments["dataset"]:
        raise DPError(f"no table was named; write {EXAMPLE}")
    tables = [_table(session, name, place, known) for name in arguments["dataset"]]
    if len({_folded(table.name) for table in tables}) < len(tables):
        raise DPError(f"{as_sql(arguments['dataset'])} names a table twice; name it once.")
    _check_one_engine(session, tables)
    unit = _unit(session, arguments, place, known, tables)
    if unit.table is not None and not session.ledger.public.holds(unit.table):
        own = catalog.find(known, unit.table)
        assert own is not None
        tables = [own, *(table for table in tables if table.name != own.name)]
    declared = {table.name: declared_in(session.ledger.families.references(table.name)) for table in tables}
    steps = paths(
        tables, unit, {table.name: with_constraints(table, declared[table.name]) for table in tables}, declared
    )
    bounds = _bounds(arguments.get("max_rows"), tables)
    for table in tables:
        bounds.setdefault(table.name[2].lower(), _unsaid(session, table, unit, steps))
    for table in tables:
        if session.ledger.dataset(*table.name) is None and not flag(arguments, "another"):
            missing_tables.check_not_renamed(session, table.name, table.columns, seen)
    found = [_member(table, steps[table.name], unit, bounds) for table in tables]
    written = ", ".join(unit.columns) if unit.table is None else ", ".join(f"{unit.table[2]}.{c}" for c in unit.columns)
    names = ", ".join(f"'{table.name[2]}'" for table in tables)
    return found, unit.columns, f"add or remove one '{written}' with all its rows of {names}"


def note(dataset: Dataset, known: Mapping[Name, Table]) -> str:
    """What is said of a member when it is protected: whose its rows are, and how many of them count.

    Args:
        dataset: as the member sees it.
        known: the tables, with their keys.
    """
    assert dataset.member is not None
    kept = (
        "each request of dp_sql chooses privately how many of its rows count, and other functions need a number: max_rows := 5, say, or 1 "
        "where each has one row"
    )
    if not dataset.auto_rows:
        one = dataset.max_rows == 1
        kept = "one row of each counts" if one else f"at most {dataset.max_rows} rows of each count"
    if dataset.member.reference is None:
        return kept
    reference = Reference.from_json(json.loads(dataset.member.reference))
    parent = catalog.find(known, reference.parent)
    several = (
        "" if parent is None or parent.distinct(reference.key) else ", and counts once for each where that says several"
    )
    return (
        f"a row is of whom '{reference.parent[2]}' says by {', '.join(map(repr, reference.columns))}{several}; {kept}"
    )


def _table(session: Session, asked: object, place: Place, known: Mapping[Name, Table]) -> Table:
    found = [table for full in catalog.options(session, asked, place) if (table := catalog.find(known, full))]
    if not found:
        first = of_file(str(asked)) or "Create it first, or write its full name."
        raise DPError(f"there is no table {as_sql(asked)}. {first}")
    if len(found) > 1:
        names = " or ".join(repr(".".join(table.name)) for table in found)
        raise DPError(f"{as_sql(asked)} could be {names}; write the full name.")
    (table,) = found
    outside = table.name[1] == SCHEMA
    if (table.view and not outside) or table.name[0] == "temp":
        raise _no_table(session, asked, table.name)
    return table


def _no_table(session: Session, asked: object, name: Name) -> DPError:
    """The refusal of a view or a TEMP table, which says what can be protected in its place."""
    temp = name[0] == "temp"
    what = f"{as_sql(asked)} is {'a TEMP table' if temp else 'a view'}, and only tables are protected together"
    try:
        read: frozenset[str] = frozenset() if temp else lineage.sources(lineage.texts(session), name)
    except lineage.Unreadable:
        read = frozenset(["file:"])
    if temp or any(source.startswith("file:") for source in read):
        made, alone = identifier(f"{name[2]}_rows"), quoted_name(name[2])
        single = (
            "" if temp else f"; or protect it by itself: CALL dp_protect({alone}, unit := '...', max_rows := 5, ...)"
        )
        return DPError(
            f"{what}: make a table of its rows, CREATE TABLE {made} AS FROM {identifier(name[2])}, and name that{single}"
        )
    return DPError(
        f"{what}: protect those that it reads, and then name what it selects: CALL dp_view('my_view', 'SELECT ...')"
    )


def _check_one_engine(session: Session, tables: Sequence[Table]) -> None:
    """Refuse tables of two engines, or of two connections to one: one statement reads them together."""
    sources = [found for table in tables if (found := session.attached.find(*table.name)) is not None]
    if sources and len(sources) < len(tables):
        here = next(table.name[2] for table in tables if session.attached.find(*table.name) is None)
        raise DPError(
            f"'{here}' is a table of DuckDB and '{sources[0].name}' is in {sources[0].engine}, and tables are joined in one engine: attach "
            f"'{here}' from there too, or copy '{sources[0].name}' to DuckDB."
        )
    if sources:
        check_together(sources)


def _unit_parts(arguments: Arguments) -> tuple[str, tuple[str, ...]]:
    """(table, columns) of 'table.column', or of [['table.a', 'table.b']]; the table is '' where only a column is named."""
    asked = arguments.get("unit")
    given = [asked] if isinstance(asked, str) else asked
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], list):
        (given,) = given
    elif isinstance(given, list) and len(given) > 1:
        raise DPError(
            f"unit is {as_sql(asked)}; two units are protected in one table of links, alone. A unit that two columns name: "
            "unit := [['countries.a', 'countries.b']]"
        )
    if not isinstance(given, list) or not given or not all(isinstance(one, str) and one.strip() for one in given):
        raise DPError(f"several tables need a unit, and unit is {as_sql(asked)}; write {EXAMPLE}")
    split = [found for one in given if (found := column_parts(one)) is not None]
    if len(split) < len(given) or len({table for table, _ in split}) != 1:
        raise DPError(f"unit is {as_sql(asked)}; write 'table.column', or of one table [['table.a', 'table.b']].")
    return split[0][0], tuple(column for _, column in split)


def _unit(session: Session, arguments: Arguments, place: Place, known: Mapping[Name, Table], tables: Sequence[Table]) -> Unit:  # fmt: skip
    """The unit, with all names as the catalog spells them."""
    asked, columns = _unit_parts(arguments)
    if not asked:
        spelled = {column.lower(): column for table in reversed(tables) for column in table.columns}
        return Unit(columns=tuple(spelled.get(column.lower(), column) for column in columns), table=None)
    parts = tuple(part.lower() for part in name_parts(asked))
    listed = [table for table in tables if tuple(part.lower() for part in table.name)[-len(parts) :] == parts]
    table = listed[0] if len(listed) == 1 else _table(session, asked, place, known)
    found = [catalog.find_column([{"column": c} for c in table.columns], table.name[2], column) for column in columns]
    names = tuple(str(column["column"]) for column in found)
    for name in names:
        column_type(table.columns[name], f"unit '{name}'")
    return Unit(columns=names, table=table.name)


def _bounds(asked: Any, tables: Sequence[Table]) -> dict[str, int | None]:
    """max_rows of the tables of which something was said, by their names in small letters; None where each request chooses."""
    names = {table.name[2].lower() for table in tables}
    given = asked if isinstance(asked, dict) else {} if asked is None else dict.fromkeys(names, asked)
    given = {name.rpartition(".")[2].strip('"').lower(): bound for name, bound in given.items()}
    if unknown := set(given) - names:
        raise DPError(
            f"max_rows names {few(map(repr, sorted(unknown)))}, and it may name {few(map(repr, sorted(names)))}."
        )
    for name, bound in given.items():
        if bound not in (None, AUTO) and (isinstance(bound, bool) or not isinstance(bound, int) or bound < 1):
            raise DPError(
                f"max_rows of '{name}' is {as_sql(bound)}; give a whole number of at least 1, or '{AUTO}', e.g. {{'{name}': 5}}."
            )
    return {name: None if bound == AUTO else bound for name, bound in given.items()}


def _unsaid(session: Session, table: Table, unit: Unit, steps: Mapping[Name, Step]) -> int | None:
    """max_rows of a table of which nothing was said: 1 where its key is the unit, by what refers to it.

    What was declared without a number before that stays so.
    """
    if (declared := session.ledger.dataset(*table.name)) is not None and declared.auto_rows:
        return None
    key = {column.lower() for column in unit.columns}
    found = [step.reference for step in steps.values() if step.reference is not None]
    led = any(_folded(r.parent) == _folded(table.name) and {name.lower() for name in r.key} == key for r in found)
    return 1 if led and unit.table == table.name else None


def _member(table: Table, step: Step, unit: Unit, bounds: Mapping[str, int | None]) -> NewMember:
    owner = step.owner or tuple(_apart(column, table) for column in unit.columns)
    one = bool(step.owner) and any({c.lower() for c in key} <= {c.lower() for c in step.owner} for key in table.keys)
    return NewMember(
        name=table.name,
        unit=plain_unit(owner),
        max_rows=1 if one else bounds.get(table.name[2].lower()),
        reference=None if step.reference is None else canonical({**step.reference.to_json(), "owner": step.owner}),
    )


def _apart(column: str, table: Table) -> str:
    """A name for the unit's column beside a table's own."""
    taken = {own.lower() for own in table.columns}
    while column.lower() in taken:
        column = f"unit_{column}"
    return column


def alone(arguments: Arguments) -> Arguments:
    """The call of one table, where a list has no more and it has the unit itself: the same as without a list."""
    (name,) = arguments["dataset"]
    unit, bound = arguments.get("unit"), arguments.get("max_rows")
    if unit is not None and (table := _unit_parts(arguments)[0]):
        if name_parts(table)[-1].lower() != name_parts(name)[-1].lower():
            return arguments
        columns = list(_unit_parts(arguments)[1])
        unit = columns[0] if len(columns) == 1 else [columns]
    if isinstance(bound, dict):
        bound = next(iter(bound.values())) if len(bound) == 1 else bound
    if unit is not None and bound is None:
        bound = AUTO
    return {**arguments, "dataset": name, "unit": unit, "max_rows": bound}


def _folded(name: Name) -> Name:
    catalog_, schema, table = name
    return catalog_.lower(), schema.lower(), table.lower()
