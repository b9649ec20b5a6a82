"""Datasets of several tables in the ledger: one unit and one budget; and what tables refer to, by their names."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from duckdb_dp.accounting import tables
from duckdb_dp.accounting.database import Database
from duckdb_dp.accounting.records import Dataset
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError, few, quoted_name

Name = tuple[str, str, str]
"""Catalog, schema and table."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NewMember:
    """A table of a dataset of several, or a named relation, as it is declared.

    Attributes:
        name: its full name.
        unit: the columns of its rows that name the unit, as ``records.units`` reads them.
        max_rows: how many of its rows each unit has at most in an answer; None where that is chosen privately.
        reference: JSON of the foreign key that leads towards the unit; None where its own columns name the unit.
        view: the SELECT of a named relation; None of a table.
    """

    name: Name
    unit: str | None
    max_rows: int | None
    reference: str | None = None
    view: str | None = None


@final
class Families:
    """Datasets of several tables of one ledger.

    Args:
        database: the ledger's.

    Raises:
        DPError: as the ledger's methods do.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def protect(
        self,
        members: Sequence[NewMember],
        *,
        unit: str,
        neighbours: str,
        budget: Budget,
        accounting: str | None = None,
        delta: float | None = None,
        discovery_delta: float | None = None,
    ) -> Dataset:
        """Declares tables private together, once and for all. The same declaration again returns the existing dataset.

        Args:
            members: the tables; the dataset is called as the first one.
            unit: the columns that name the unit, in the table that has them.
            neighbours: which two databases are neighbours, in words.
            budget: all that may ever be spent on all of them together.
            accounting: as in ``Ledger.protect``.
            delta: as in ``Ledger.protect``.
            discovery_delta: as in ``Ledger.protect``.

        Raises:
            DPError: a table is protected already in another way, or is public.

        Privacy: states a bound; spends nothing.
        """
        declared = tables.declaration(
            name=members[0].name[2],
            budget=budget,
            accounting=accounting,
            delta=delta,
            unit=unit,
            max_rows=1,
            discovery_delta=discovery_delta,
        )
        wanted = {field: value for field, value in declared.items() if field not in ("unit", "max_rows", "auto_rows")}
        with self._database.writing("nothing was declared") as db:
            found = [tables.find_dataset(db, *member.name) for member in members]
            first = next((one for one in found if one is not None), None)
            if first is not None:
                whole = [one for one in tables.datasets(db) if one.id == first.id]
                if [_folded(one) for one in whole] != [_declared(member) for member in members] or any(
                    getattr(first, field) != value for field, value in wanted.items()
                ):
                    known = {_folded(one)[:3] for one in whole}
                    later = [member.name[2] for member in members if _declared(member)[:3] not in known]
                    if later and len(later) + len(whole) == len(members):
                        raise DPError(
                            f"{first} is declared already, and {few(map(repr, later))} cannot join it: what the ledger promises is "
                            "about the tables that were named then. Name all tables at once, in a new ledger; a table about nobody may be "
                            f"read beside them: CALL dp_public({quoted_name(later[0])})"
                        )
                    raise DPError(
                        f"{first} is declared already, and a declaration stays: repeat it as it is, or leave '{first.name}' out."
                    )
                return whole[0]
            for member in members:
                tables.check_not_public(db, member.name)
            dataset = tables.insert_dataset(db, members[0].name, budget, declared, neighbours)
            for member in members:
                _insert(db, dataset.id, member)
            made = tables.find_dataset(db, *members[0].name)
            assert made is not None
            return made

    def add_view(self, dataset: Dataset, view: NewMember) -> Dataset:
        """Declares a named relation of a dataset, once and for all; the same again returns the existing one.

        Raises:
            DPError: the name is another's.

        Privacy: a definition; spends nothing.
        """
        with self._database.writing("nothing was declared") as db:
            existing = tables.find_dataset(db, *view.name)
            if existing is None:
                tables.check_not_public(db, view.name)
                _insert(db, dataset.id, view)
                existing = tables.find_dataset(db, *view.name)
                assert existing is not None
            own = existing.member and existing.member.view
            if own is None or existing.id != dataset.id or (own, *_folded(existing)) != (view.view, *_declared(view)):
                raise DPError(
                    f"'{view.name[2]}' is declared already, and a declaration stays: repeat it as it is, or choose another name."
                )
            return existing

    def relations(self) -> list[Dataset]:
        """All protected tables and named relations, in the order of their declaration."""
        return list(self._database.known("relations", lambda db: tables.datasets(db, views=True)))

    def refer(self, name: Name, spec: str) -> None:
        """Declares what a table refers to that is not protected yet; until it is, the last declaration counts.

        Args:
            name: the table.
            spec: canonical JSON, which the ledger only keeps.

        Privacy: foreign keys are public knowledge; spends nothing.
        """
        with self._database.writing("nothing was declared") as db:
            if tables.named_link(db, name) != spec:
                tables.name_link(db, name, spec)

    def references(self, name: Name) -> str | None:
        """What was declared by ``refer``; None where nothing was."""
        with self._database.reading() as db:
            return tables.named_link(db, name)


def _insert(db: sqlite3.Connection, dataset: int, member: NewMember) -> None:
    catalog, schema, name = member.name
    tables.insert(
        db,
        "members",
        dataset=dataset,
        catalog=catalog,
        schema=schema,
        name=name,
        unit=member.unit,
        max_rows=member.max_rows,
        reference=member.reference,
        view=member.view,
    )


def _declared(member: NewMember) -> tuple[object, ...]:
    return (*(part.lower() for part in member.name), member.unit, member.max_rows, member.reference)


def _folded(dataset: Dataset) -> tuple[object, ...]:
    full = (dataset.catalog.lower(), dataset.schema.lower(), dataset.name.lower())
    rows = None if dataset.auto_rows else dataset.max_rows
    return (*full, dataset.unit, rows, dataset.member and dataset.member.reference)
