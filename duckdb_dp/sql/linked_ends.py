"""The two ends of the links that a call of dp_links names, of the references that a table has."""

from collections.abc import Mapping, Sequence

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.errors import DPError, as_sql, few, quoted
from duckdb_dp.sql.arguments import name_parts
from duckdb_dp.sql.links import Side
from duckdb_dp.synthesis.database import Reference


def named(asked: object) -> dict[str, str]:
    """Role, in small letters -> name of the synthetic table, in quotes.

    Raises:
        DPError: it names none.
    """
    if not isinstance(asked, dict) or not asked or not all(isinstance(name, str) for name in asked.values()):
        raise DPError(
            f"synthetic is {as_sql(asked)}; name the synthetic table of each side: synthetic := {{'users': 'users_syn', "
            "'movies': 'movies_syn'}."
        )
    return {role.lower(): ".".join(map(quote, name_parts(name))) for role, name in asked.items()}


def choose(
    dataset: Dataset, references: Sequence[Reference], tables: Mapping[str, str]
) -> tuple[str | None, list[tuple[Reference, str]]]:
    """(the synthetic child table, or None; the references to link with their synthetic tables).

    Raises:
        DPError: no two ends are named.
    """
    own = dataset.name.lower()
    chosen, roles_of = [], {reference.role.lower() for reference in references}
    for reference in references:
        # A parent's name stands for its reference, but where another one is called so.
        named = "" if reference.parent[2].lower() in {own, *roles_of} else reference.parent[2].lower()
        found = tables.get(reference.role.lower()) or tables.get(named)
        if found is not None:
            chosen.append((reference, found))
    child = tables.get(own)
    if child is not None and not chosen:
        chosen = [(reference, child) for reference in references if reference.parent[2].lower() == own]
    known = {own, *(r.role.lower() for r in references), *(r.parent[2].lower() for r in references)}
    roles = few(repr(reference.role) for reference in references)
    if unknown := [role for role in tables if role not in known]:
        raise DPError(f"synthetic names {as_sql(unknown[0])}; '{dataset.name}' refers to {roles}.")
    if child is None and len(chosen) == 1 and chosen[0][0].parent[2].lower() == own:
        raise DPError(
            f"'{dataset.name}' refers to itself by '{chosen[0][0].role}', so its own synthetic table is what is linked: synthetic := "
            f"{{{quoted(dataset.name)}: {quoted(name_parts(chosen[0][1])[-1])}}}."
        )
    if len(chosen) != (2 if child is None else 1):
        both = f"'{dataset.name}' itself and {'' if len(references) == 1 else 'one of '}{roles}, where each of its rows has one parent"
        two = f"two of {roles}, or " if child is None and len(references) > 1 else ""
        raise DPError(f"synthetic names {few(map(repr, tables))}; name {two}{both}.")
    return child, chosen


def check_engine(dataset: Dataset, side: Side) -> None:
    """Refuse tables of two engines: one statement joins and counts them.

    Raises:
        DPError: the side is in another one.
    """
    catalog_, schema, table = side.reference.parent
    places = [dataset.catalog if dataset.schema == SCHEMA else "DuckDB", catalog_ if schema == SCHEMA else "DuckDB"]
    if places[0] != places[1]:
        raise DPError(
            f"'{dataset.name}' is in {places[0]} and '{table}', which it refers to, in {places[1]}; attach both from one "
            "connection, or copy both to DuckDB."
        )


def check_synthetic(side: Side) -> None:
    """Refuse a synthetic table without the columns it needs."""
    assert side.known is not None
    for column in [*side.key.columns, *side.held]:
        if not side.known.holds(column):
            raise DPError(
                f"'{side.known.table.name[2]}' has no column '{column}', which the links to '{side.role}' need; its columns "
                f"are: {few(side.known.table.columns)}."
            )
