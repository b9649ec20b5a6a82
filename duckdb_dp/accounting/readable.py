"""The rows of dp_releases, dp_ledger and dp_budget, from the ledger's tables."""

from __future__ import annotations

import sqlite3
from typing import Any

from duckdb_dp.accounting import grants
from duckdb_dp.accounting.convert import shown
from duckdb_dp.accounting.records import Dataset
from duckdb_dp.accounting.schema import NAMED
from duckdb_dp.accounting.tables import rows_of_datasets

_STATE = "CASE WHEN s.release IS NULL THEN 'charged' ELSE 'stored' END AS state"
_FROM = "FROM charges c JOIN datasets d ON d.id = c.dataset LEFT JOIN stored s ON s.release = c.id"


def release_rows(db: sqlite3.Connection) -> list[dict[str, Any]]:
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


def ledger_rows(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """One row per charge, oldest first, with everything that was recorded of it."""
    return _rows(
        db,
        "SELECT c.id AS release, c.time, d.catalog, d.schema, d.name AS dataset, c.function, c.request, c.request_hash,"
        " c.mechanism, c.event, d.accounting, c.cost, c.mu, c.rho, c.epsilon, c.delta, c.discovery_delta,"
        " c.unit, c.neighbours,"
        f" c.fresh_key, c.private, c.version, {_STATE}, s.file, s.sha256, s.bytes {_FROM} ORDER BY c.id",
    )


def charge_rows(db: sqlite3.Connection, dataset: Dataset, account: str | None) -> list[dict[str, Any]]:
    """The charges of a dataset, oldest first, with their events; of an account, those of what it paid."""
    paid = (
        ""
        if account is None
        else " AND EXISTS (SELECT 1 FROM account_charges a WHERE a.release = c.id AND a.account = :a)"
    )
    query = f"SELECT function, mechanism, event, cost FROM charges c WHERE dataset = :d{paid} ORDER BY id"
    return [dict(row) for row in db.execute(query, {"d": dataset.id, "a": account})]


def budget_rows(db: sqlite3.Connection, account: str | None = None) -> list[dict[str, Any]]:
    """One row per dataset: total, spent and remaining in its own unit, and each as epsilon at its delta; of an account, its grants.

    Epsilons do not add up: that of what remains is not the difference of the other two.
    """
    sums = "SELECT count(*) AS releases, total(cost) AS spent, total(discovery_delta) AS thresholds FROM charges WHERE dataset = ?"
    rows = []
    for dataset in rows_of_datasets(db):
        if dataset.rule is not None:
            continue  # its periods have budgets, and it has none
        found = db.execute(sums, (dataset.id,)).fetchone()
        remaining = dataset.left(found["spent"])
        total = dataset.epsilon or dataset.epsilon_of(dataset.budget)
        row: dict[str, Any] = {
            "catalog": dataset.catalog,
            "schema": dataset.schema,
            "dataset": dataset.name,
            "accounting": dataset.accounting.name,
            "neighbours": dataset.neighbours,
            "total": dataset.budget,
            "spent": found["spent"],
            "remaining": remaining,
            "delta": dataset.delta,
            "epsilon_total": total,
            "epsilon_spent": dataset.epsilon_of(found["spent"]),
            "epsilon_remaining": dataset.epsilon_of(remaining),
            "releases": found["releases"],
            "discovery_delta": dataset.discovery_delta,
            "discovery_delta_remaining": None
            if dataset.discovery_delta is None
            else dataset.discovery_left(found["thresholds"]),
        }
        seen = row if account is None else grants.own_budget(db, account, dataset, row)
        rows += [] if seen is None else [seen]
    return rows


def _rows(db: sqlite3.Connection, query: str) -> list[dict[str, Any]]:
    return [
        {**row, "private": bool(row["private"]), "epsilon": None if row["epsilon"] is None else shown(row["epsilon"])}
        for row in db.execute(query)
    ]
