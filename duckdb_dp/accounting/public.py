"""What the ledger knows to be public: tables that were declared public, and synthetic rows that were returned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import final

from duckdb_dp.accounting import tables
from duckdb_dp.accounting.database import Database
from duckdb_dp.accounting.records import Dataset, Release
from duckdb_dp.errors import DPError, quoted_name

Name = tuple[str, str, str]
"""Catalog, schema and table."""


@final
class Public:
    """Public tables and synthetic rows of one ledger.

    Args:
        database: the ledger's.

    Raises:
        DPError: as the ledger's methods do.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def declare(self, names: Sequence[Name], links: Dataset | None = None) -> None:
        """Declares that the rows of tables are public: everywhere, or where the links of a dataset refer to them.

        Args:
            names: catalog, schema and table of each.
            links: the dataset whose links may read them; None for everywhere.

        Raises:
            DPError: a table is protected, and so not public everywhere.

        Privacy: states what is public; spends nothing.
        """
        with self._database.writing("nothing was declared") as db:
            for catalog, schema, name in names:
                if links is None and tables.find_dataset(db, catalog, schema, name) is not None:
                    raise DPError(
                        f"'{name}' is protected, and a declaration stays; where only links refer to its rows, say of which "
                        f"table: CALL dp_public({quoted_name(name)}, links := 'my_links')."
                    )
                number = None if links is None else links.id
                if not tables.is_public(db, (catalog, schema, name), number):
                    tables.insert(db, "public", catalog=catalog, schema=schema, name=name, links=number)

    def holds(self, name: Name, links: Dataset | None = None) -> bool:
        """Whether the rows of a table are declared public: everywhere, or where the links of a dataset refer to them."""
        with self._database.reading() as db:
            return tables.is_public(db, name) or (links is not None and tables.is_public(db, name, links.id))

    def tables(self) -> list[Name]:
        """The tables that are declared public everywhere, in the order of their declaration."""
        with self._database.reading() as db:
            rows = db.execute("SELECT catalog, schema, name FROM public WHERE links IS NULL ORDER BY id")
            return [(row["catalog"], row["schema"], row["name"]) for row in rows]

    def note_rows(self, columns: Sequence[str], digest: str, *, release: int | None, private: bool) -> None:
        """Notes a digest of synthetic rows, by which a table that holds them is known again: of a release once, for each columns.

        Args:
            columns: their columns.
            digest: of the values in the columns, in any order of rows.
            release: which they are; None where several steps made them.
            private: False for rows that were drawn from a seeded source.

        Privacy: post-processing; spends nothing.
        """
        text = _as_text(columns)
        with self._database.writing("the rows stay unknown") as db:
            same = "release = ?" if release is not None else "release IS ? AND digest = ?"
            given = (release,) if release is not None else (release, digest)
            known = db.execute(f"SELECT 1 FROM synthetic WHERE columns = ? AND {same}", (text, *given)).fetchone()
            if known is None:
                tables.insert(db, "synthetic", release=release, columns=text, digest=digest, private=private)

    def noted(self, release: Release, columns: Sequence[str]) -> bool:
        """Whether the rows of a release are noted with just these columns; it may be read with several keys."""
        asked = "SELECT 1 FROM synthetic WHERE release = ? AND columns = ?"
        with self._database.reading() as db:
            return db.execute(asked, (release.id, _as_text(columns))).fetchone() is not None

    def synthetic_rows(self, *, private: bool) -> dict[tuple[str, ...], frozenset[str]]:
        """Columns, in small letters -> the digests of all noted rows with just these columns.

        Args:
            private: leave out rows that were drawn from a seeded source.
        """
        with self._database.reading() as db:
            rows = db.execute("SELECT columns, digest FROM synthetic WHERE private >= ?", (int(private),)).fetchall()
        found: dict[tuple[str, ...], set[str]] = {}
        for row in rows:
            found.setdefault(tuple(json.loads(row["columns"])), set()).add(row["digest"])
        return {columns: frozenset(digests) for columns, digests in found.items()}


def _as_text(columns: Sequence[str]) -> str:
    return json.dumps(sorted(column.lower() for column in columns))
