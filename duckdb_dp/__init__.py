"""Differentially private statistics of DuckDB tables, in SQL."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from duckdb_dp.budget import Budget
from duckdb_dp.domain import Domain
from duckdb_dp.errors import DPError
from duckdb_dp.plan.base import Plan
from duckdb_dp.workload import Workload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from duckdb_dp.linop import Array

__all__ = ["Budget", "DPError", "Domain", "Plan", "Workload", "load", "plan"]
__version__ = "0.1.0"


def load(con: "DuckDBPyConnection", ledger: str | Path | None = None, *, progress: bool = True) -> None:
    """Make the ``dp_`` functions work in plain SQL on a DuckDB connection and its database's later cursors.

    Args:
        con: any ``duckdb.connect()`` connection, in memory or on a file, read-only too.
        ledger: folder of the ledger; by default ``<database>.dp`` beside the database file. An in-memory database
            without one gets a temporary ledger and a warning that it will be forgotten.
        progress: show a bar for long work on a terminal or in a notebook.

    Raises:
        DPError: DuckDB is too old, or the ledger is damaged, locked, read-only or of a newer version.

    Privacy: costs nothing.
    """
    from duckdb_dp.noise.bits import SystemBits
    from duckdb_dp.sql.install import load as install

    install(con, ledger, bits=SystemBits(), progress=progress)


def plan(
    workload: Workload,
    *,
    mechanism: str = "auto",
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    accounting: str | None = None,
    objective: str = "total",
    bases: "Mapping[str, Array] | None" = None,
) -> Plan:
    """The plan that would answer a workload at a budget: its noise, its error and a proved lower bound.

    Args:
        workload: the queries.
        mechanism: 'auto', 'residual', 'gaussian', 'querysmasher', 'residual_plus' or 'wff'.
        epsilon, delta: the budget (delta 0 is pure DP); or rho; or mu (exactly one).
        accounting: 'gdp' (default for epsilon and mu), 'zcdp' (default for rho) or 'pure' (default for delta 0): how
            epsilon becomes noise.
        objective: 'total' (sum of weighted variances) or 'max' (largest weighted variance, for marginals).
        bases: for 'residual_plus': attribute -> strategy matrix whose rows span its queries.

    Raises:
        DPError: two budgets or none, an unknown mechanism, or an unusable workload.

    Privacy: costs nothing; no data are seen.
    """
    from duckdb_dp.account.convert import cost
    from duckdb_dp.plan.choose import Price, choose
    from duckdb_dp.plan.smasher import residual_plus

    budget = Budget(epsilon=epsilon, delta=delta, rho=rho, mu=mu)
    accounting = accounting or budget.accounting
    price = Price.of(cost(budget, accounting), accounting)
    if bases is not None:
        if price.beta is None:
            raise DPError("bases are for Gaussian noise; type a budget with a delta.")
        if mechanism != "residual_plus":
            raise DPError(f"bases are for mechanism 'residual_plus', not {mechanism!r}.")
        return residual_plus(workload, price.beta, objective, bases)
    return choose(workload, price, mechanism=mechanism, objective=objective)
