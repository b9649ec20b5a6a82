"""Protected tables that cannot be seen now, and tables that may be one of them under another name."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import literal
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import UnknownAttribute
from duckdb_dp.errors import DPError, as_sql, few, identifier, of_file, quoted, quoted_name
from duckdb_dp.sql import catalog, lineage
from duckdb_dp.sql.arguments import UnknownDataset, candidates, find_dataset, full_name_of, name_parts
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name

SEEN = """
SELECT database_name, schema_name, table_name FROM duckdb_tables() WHERE NOT internal
UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal
UNION ALL SELECT database_name, '', '' FROM duckdb_databases()
"""
"""The full names of all tables and views, and those of the catalogs that are attached, with nothing behind them."""


def check_not_renamed(session: Session, name: Name, types: Mapping[str, str], seen: Iterable[Name]) -> None:
    """Refuse to protect a table that may be a protected one under another name, because it would get a second budget.

    This applies if a protected table cannot be seen now, and either has the same schema and table name in another catalog (its
    file may have been renamed), or all its declared columns are in the new table (the table may have been renamed).

    Args:
        session: whose ledger knows the protected tables.
        name: the table that shall be protected.
        types: its columns and their types.
        seen: what ``SEEN`` selects in the user's transaction.

    Raises:
        DPError: it may be one of them.

    Privacy: looks at names, types and declarations only.
    """
    folded = {column.lower(): type_ for column, type_ in types.items()}
    seen = [(catalog, schema, table) for catalog, schema, table in seen]
    for lost in missing(session, seen):
        if _same_table(lost, name) or _same_columns(session, lost, folded):
            raise DPError(
                f"'{'.'.join(name)}' may be '{_full(lost)}', which is protected in this ledger and cannot be seen now, and would "
                f"get a second budget. {remedy(lost, seen)} If its rows are other people's, add another := true."
            )


def check_not_protected(session: Session, name: Name) -> None:
    """Refuse to declare public what may be a protected table whose file was attached under another name.

    Raises:
        DPError: a protected table that cannot be seen now has the same schema and table name in another catalog.

    Privacy: looks at names only.
    """
    with session.looking() as cursor:
        seen: list[Name] = [] if cursor is None else [(a, b, c) for a, b, c in cursor.execute(SEEN).fetchall()]
    lost = next((one for one in missing(session, seen) if _same_table(one, name)), None)
    if lost is not None:
        raise DPError(
            f"'{'.'.join(name)}' may be '{_full(lost)}', which is protected in this ledger and cannot be seen now. {remedy(lost, seen)} "
            "Then another table of that name may be declared public."
        )


def missing(session: Session, seen: Iterable[Name]) -> list[Dataset]:
    """The protected tables that are neither among the names seen nor attached from another engine."""
    there = {tuple(part.lower() for part in full) for full in seen}
    return [
        dataset
        for dataset in session.ledger.datasets()
        if (dataset.catalog.lower(), dataset.schema.lower(), dataset.name.lower()) not in there
        and session.attached.find(dataset.catalog, dataset.schema, dataset.name) is None
    ]


def remedy(lost: Dataset, seen: Iterable[Name]) -> str:
    """The advice for a table that is a protected one under another name."""
    if lost.schema == SCHEMA:
        return f"Attach it as before: duckdb_dp.attach(con, {quoted(lost.name)}, table)."
    if lost.catalog.lower() not in {catalog.lower() for catalog, *_ in seen}:
        return (
            f"Use the old name of its file: rename it back to '{lost.catalog}', or ATTACH it AS {identifier(lost.catalog)} "
            "(docs/how-to/backup.md)."
        )
    return f"Give it the old name back, {'.'.join(map(identifier, (lost.catalog, lost.schema, lost.name)))}."


def explain_unknown(session: Session, error: UnknownDataset, place: tuple[str, str]) -> DPError:
    """The error for a name that is not protected: there is no such table, or it may have been renamed."""
    ledger, account = session.ledger, session.ledger.account
    if account is not None:  # which is told the same whether there is such a table or not
        mine = few(
            repr(dataset.name) for dataset in ledger.families.relations() if ledger.accounts.granted(account, dataset)
        )
        role = next((row["role"] for row in ledger.accounts.accounts() if row["name"] == account), None)
        others = {
            "steward": "A steward grants it to others and to stewards, as the curator does: "
            f"CALL dp_grant('{account}', {as_sql(error.name)}, epsilon := 1).",
            "viewer": "A viewer reads what was shared with it: FROM dp_releases() lists that.",
        }
        return DPError(
            f"{as_sql(error.name)} is not granted to '{account}', or there is no such table; granted are: {mine or 'none'}. "
            + others.get(str(role), "Ask the steward for a grant on it.")
        )
    parts = name_parts(error.name)
    wanted = {tuple(part.lower() for part in full) for full in candidates(parts, *place)}
    with session.looking() as cursor:
        if cursor is None:
            return error
        seen: list[Name] = [(catalog, schema, table) for catalog, schema, table in cursor.execute(SEEN).fetchall()]
    here = next((full for full in seen if tuple(part.lower() for part in full) in wanted), None)
    if here is not None and ledger.public.holds(here):
        return DPError(
            f"{as_sql(error.name)} was declared public, so that anybody may see its rows: DuckDB's own SELECT reads it, and nothing is "
            "charged."
        )
    if here is not None:
        same = [lost for lost in missing(session, seen) if _same_table(lost, here)]
        if not same:
            return _of_members(session, here) or error
        return DPError(
            f"{as_sql(error.name)} is not protected under the name '{'.'.join(here)}', but '{_full(same[0])}' is, which cannot "
            f"be seen now. {remedy(same[0], seen)}"
        )
    if session.attached.named(parts):
        return error
    known = [
        dataset.name if (dataset.catalog.lower(), dataset.schema.lower()) == _folded(place) else _full(dataset)
        for dataset in session.ledger.datasets()
    ]
    close = _close(parts[-1], session.ledger.datasets(), known)
    meant = "" if close is None else f" Did you mean {quoted_name(*close)}?"
    if file := of_file(".".join(parts)):
        return DPError(
            f"{as_sql('.'.join(parts))} is not protected, and no table. {file}; then CALL dp_protect('my_table', ...)"
        )
    return DPError(
        f"{as_sql(error.name)} is not protected, and no committed table or view has that name.{meant} "
        f"Protected are: {few(map(repr, known)) or 'none'}. Protect another one: CALL dp_protect({quoted(error.name)}, "
        "epsilon := 1, delta := 1e-9)"
    )


def explain_undeclared(session: Session, error: UnknownAttribute, place: tuple[str, str]) -> DPError:
    """The error for a name without a declared domain: of one that is no column of the table it says so, with the nearest."""
    if error.table is None or not error.name.isidentifier():  # an expression is no name
        return error
    name = full_name_of(session.ledger, error.table[1][1:-1].replace("''", "'"), place)
    dataset = find_dataset(session.ledger, name, *place)
    table = catalog.of(session, dataset)
    if table is None:
        return error
    try:
        catalog.find_column([{"column": column} for column in table.columns], dataset.name, error.name)
    except DPError as missing_column:
        return missing_column
    return error


def _of_members(session: Session, view: Name) -> DPError | None:
    """The error for a view that reads tables which were protected together: it is named for their budget, and not protected by itself."""
    texts = lineage.texts(session)
    query = lineage.text_of(texts, view)
    if query is None:
        return None
    with suppress(lineage.Unreadable):
        read = lineage.sources(texts, view)
        found = [one for one in session.ledger.datasets() if one.member is not None and one.name.lower() in read]
        if found:
            name = quoted_name(f"{view[2]}_rows")
            return DPError(
                f"'{view[2]}' is a view of '{found[0].name}', which is protected, and of its budget; name its rows for dp_ functions: "
                f"CALL dp_view({name}, {literal(query)}), and ask that."
            )
    return None


def _close(name: str, datasets: list[Dataset], known: list[str]) -> list[str] | None:
    """The parts of the protected name that is most like the one that was written."""
    names = [dataset.name.lower() for dataset in datasets]
    import difflib  # for import time: most names are known

    found = difflib.get_close_matches(name.lower(), names, n=1)
    if not found:
        return None
    dataset = datasets[names.index(found[0])]
    short = known[names.index(found[0])] == dataset.name
    return [dataset.name] if short else [dataset.catalog, dataset.schema, dataset.name]


def _same_table(lost: Dataset, name: Name) -> bool:
    return (lost.schema.lower(), lost.name.lower()) == _folded(name[1:])


def _same_columns(session: Session, lost: Dataset, types: Mapping[str, str]) -> bool:
    declared = {name.lower(): json.loads(spec).get("type") for name, spec in session.ledger.attributes(lost)}
    unit = [column.lower() for column in lost.leading]
    return bool(declared or unit) and declared.items() <= types.items() and types.keys() >= set(unit)


def _full(dataset: Dataset) -> str:
    return f"{dataset.catalog}.{dataset.schema}.{dataset.name}"


def _folded(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)
