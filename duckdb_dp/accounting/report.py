"""The ledger's rows for reading: the SQL tables dp_releases, dp_ledger and dp_budget."""

from __future__ import annotations

import sqlite3
from typing import Any

from duckdb_dp.accounting.convert import cost_epsilon, shown
from duckdb_dp.accounting.records import Dataset
from duckdb_dp.accounting.schema import NAMED

_STATE = "CASE WHEN s.release IS NULL THEN 'charged' ELSE 'stored' END AS state"
_FROM = "FROM charges c JOIN datasets d ON d.id = c.dataset LEFT JOIN stored s ON s.release = c.id"


def releases(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """One row per release, oldest first; `released_at` is when its noise was stored."""
    name = (
        f"SELECT n.name FROM names n WHERE n.request_hash = c.request_hash AND n.private = c.private AND {NAMED} = c.id"
    )
    return _rows(
        db,
        f"SELECT c.id AS release, ({name} ORDER BY n.id LIMIT 1) AS name, d.catalog, d.schema, d.name AS dataset,"
        f" c.function, c.mechanism, {_STATE}, s.time AS released_at, c.time AS charged_at, c.epsilon, c.delta,"
        f" c.private, c.request {_FROM} ORDER BY c.id",
    )


def charges(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """One row per charge, oldest first, with everything that was recorded of it."""
    return _rows(
        db,
        "SELECT c.id AS release, c.time, d.catalog, d.schema, d.name AS dataset, c.function, c.request, c.request_hash,"
        " c.mechanism, c.event, d.accounting, c.cost, c.mu, c.rho, c.epsilon, c.delta, c.unit, c.neighbours,"
        f" c.fresh_key, c.private, c.version, {_STATE}, s.file, s.sha256, s.bytes {_FROM} ORDER BY c.id",
    )


def budgets(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """One row per dataset: total, spent and remaining in its own unit, and each as epsilon at its delta.

    Epsilons do not add up: that of what remains is not the difference of the other two.
    """
    sums = "SELECT count(*) AS releases, total(cost) AS spent FROM charges WHERE dataset = ?"
    rows = []
    for dataset in datasets(db):
        found = db.execute(sums, (dataset.id,)).fetchone()
        remaining = dataset.left(found["spent"])
        total = dataset.epsilon or epsilon_of(dataset, dataset.budget)
        rows.append(
            {
                "catalog": dataset.catalog,
                "schema": dataset.schema,
                "dataset": dataset.name,
                "accounting": dataset.accounting,
                "neighbours": dataset.neighbours,
                "total": dataset.budget,
                "spent": found["spent"],
                "remaining": remaining,
                "delta": dataset.delta,
                "epsilon_total": total,
                "epsilon_spent": epsilon_of(dataset, found["spent"]),
                "epsilon_remaining": epsilon_of(dataset, remaining),
                "releases": found["releases"],
            }
        )
    return rows


def datasets(db: sqlite3.Connection) -> list[Dataset]:
    """All protected tables, in the order of their declaration."""
    return [Dataset(**row) for row in db.execute("SELECT * FROM datasets ORDER BY id")]


def epsilon_of(dataset: Dataset, spent: float) -> float | None:
    """`spent` as epsilon at the dataset's delta; None when it has none."""
    return None if dataset.delta is None else shown(cost_epsilon(spent, dataset.delta, dataset.accounting))


def _rows(db: sqlite3.Connection, query: str) -> list[dict[str, Any]]:
    return [
        {**row, "private": bool(row["private"]), "epsilon": None if row["epsilon"] is None else shown(row["epsilon"])}
        for row in db.execute(query)
    ]
