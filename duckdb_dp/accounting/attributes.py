"""The declarations of attributes in a ledger: of each column the newest one counts, and an empty one takes them back."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from duckdb_dp.accounting import tables
from duckdb_dp.accounting.records import Dataset

_REMOVED = ""
"""In place of the spec of an attribute whose declaration was taken back."""


def current(db: sqlite3.Connection, dataset: Dataset) -> list[sqlite3.Row]:
    """The newest row of every attribute that is declared, by position."""
    return [row for row in _all(db, dataset) if row["spec"] != _REMOVED]


def _all(db: sqlite3.Connection, dataset: Dataset) -> list[sqlite3.Row]:
    """The same with those whose declaration was taken back: they keep their position."""
    newest = "SELECT max(id) FROM attributes WHERE dataset = ? AND member IS ? GROUP BY name"
    member = dataset.member and dataset.member.id
    return db.execute(
        f"SELECT * FROM attributes WHERE id IN ({newest}) ORDER BY position", (declared_with(db, dataset), member)
    ).fetchall()


def declared_with(db: sqlite3.Connection, dataset: Dataset) -> int:
    """The number of the dataset whose attributes these are: all periods of a table have those of the table."""
    row = None
    if dataset.member is None:
        row = db.execute("SELECT dataset FROM periods WHERE period = ?", (dataset.id,)).fetchone()
    return dataset.id if row is None else int(row["dataset"])


def declare(db: sqlite3.Connection, dataset: Dataset, specs: Mapping[str, str | None]) -> None:
    """Inserts the specs of attributes that differ from their present ones; None takes a declaration back."""
    tables.check_dataset(db, dataset)
    member = dataset.member and dataset.member.id
    for name, given in specs.items():
        spec = _REMOVED if given is None else given
        before = _all(db, dataset)
        known = next((row for row in before if row["name"].lower() == name.lower()), None)
        if known is None or known["spec"] != spec:
            position = len(before) if known is None else known["position"]
            row = {
                "dataset": declared_with(db, dataset),
                "member": member,
                "name": name,
                "position": position,
                "spec": spec,
            }
            tables.insert(db, "attributes", **row)
