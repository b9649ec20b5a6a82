"""Differentially private statistics of DuckDB tables, in SQL."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from duckdb_dp.budget import Budget
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError, as_sql, expect
from duckdb_dp.plan.base import Plan
from duckdb_dp.version import __version__ as __version__

if TYPE_CHECKING:
    from datetime import date

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from duckdb_dp.linop import Array
    from duckdb_dp.reporting import Page
    from duckdb_dp.synthesis.links.ubs import ubs

__all__ = [
    "Budget",
    "DPError",
    "Domain",
    "Plan",
    "Workload",
    "attach",
    "discover",
    "load",
    "max_rows",
    "plan",
    "quantiles",
    "report",
    "running",
    "ubs",
]


def __getattr__(name: str) -> Any:
    """``ubs`` when it is first asked for, because a first marginal needs nothing of synthesis."""
    if name != "ubs":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from duckdb_dp.synthesis.links.ubs import ubs  # for import time

    return ubs


def load(
    con: "DuckDBPyConnection",
    ledger: str | Path | None = None,
    *,
    progress: bool = True,
    role: Literal["curator", "analyst"] = "curator",
) -> None:
    """Make the ``dp_`` functions work in plain SQL on a DuckDB connection and its database's later cursors.

    Args:
        con: any ``duckdb.connect()`` connection, in memory or on a file, read-only too.
        ledger: folder of the ledger; by default ``<database>.dp`` beside the database file. An in-memory database
            without one gets a temporary ledger and a warning that it will be forgotten.
        progress: show a bar for long work on a terminal or in a notebook.
        role: 'analyst' leaves out the functions that are the curator's, on this connection and its later cursors: those
            that declare, and those that show what is exact. Who can read the tables by plain SQL still can.

    Raises:
        DPError: an unknown role; DuckDB is too old, or the ledger is damaged, locked, read-only or of a newer version.

    Privacy: costs nothing.
    """
    from duckdb_dp.noise.uniform import SystemEntropy
    from duckdb_dp.sql.install import load as install

    install(con, ledger, bits=SystemEntropy(), progress=progress, role=role)
    if "IPython" in sys.modules:
        from duckdb_dp.reporting.notebook import register

        register()


def quantiles(
    con: "DuckDBPyConnection",
    dataset: str,
    attribute: str,
    quantiles: float | Iterable[float],
    *,
    by: str | Iterable[str] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    precision: float | str | None = None,
    mechanism: str = "auto",
    release: str | None = None,
    fresh: bool = False,
) -> "pa.Table":
    """Medians and other quantiles, by groups, with 95 % intervals: the rows of ``FROM dp_quantiles(...)``.

    Args:
        con: a loaded connection.
        dataset: a protected table.
        attribute: a declared attribute whose type has an order.
        quantiles: numbers from 0 to 1.
        by: attributes to group by.
        epsilon, delta: what this request spends (delta 0 is pure DP); or rho; or mu.
        precision: in place of a budget: the largest standard deviation of a rank, in rows; or '5% of 1000'.
        mechanism, release, fresh: as in SQL.

    Returns:
        The attributes of ``by``, quantile, value, ci_low and ci_high.

    Raises:
        DPError: what SQL refuses too, in the same line.

    Privacy: spends the budget typed, once per request. Other quantiles of the same request cost nothing more.
    """
    from duckdb_dp.sql.from_python import ask

    named = {
        "by": list(by) if isinstance(by, Iterable) and not isinstance(by, str) else by,
        "epsilon": epsilon,
        "delta": delta,
        "rho": rho,
        "mu": mu,
        "precision": precision,
        "mechanism": mechanism,
        "release": release,
        "fresh": fresh,
    }
    several = list(quantiles) if isinstance(quantiles, Iterable) else quantiles
    return ask(con, "dp_quantiles", [dataset, attribute, several], named)


def report(
    con: "DuckDBPyConnection", release: str | int, path: str | Path | None = None, *, postprocess: str | None = None
) -> "Page":
    """A page about one release: what was asked, for whom it protects and how, what it cost, its tables and charts.

    Args:
        con: a loaded connection.
        release: its name, or its number in ``dp_releases()``.
        path: where to write the page; None leaves it in memory (``.html``, ``.save(path)``, or shown in a notebook).
        postprocess: how counts are read, 'unbiased', 'nonnegative' or 'fitted'; by default as ``dp_release`` does.

    Raises:
        DPError: there is no such stored release, or it has no counts to read so.

    Privacy: costs nothing; shows what the release and the ledger hold.
    """
    from duckdb_dp.reporting import report as make

    return make(con, release, path, postprocess=postprocess)


def discover(
    con: "DuckDBPyConnection",
    dataset: str,
    attribute: str,
    *,
    find: Literal["values", "bounds", "bins"] = "values",
    max_values: int | None = None,
    bins: int | None = None,
    declare: bool = False,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    precision: float | str | None = None,
    release: str | None = None,
    fresh: bool = False,
) -> "pa.Table":
    """What a column holds that nobody has declared: the rows of ``FROM dp_discover(...)``.

    Args:
        con: a loaded connection.
        dataset, attribute: a protected table, and its column.
        find: 'values' that many units hold; 'bounds' of numbers, dates or times; or 'bins' of about equal counts.
        max_values: for 'values': for how many of its values a unit is counted at most; 1 by default.
        bins: for 'bins': how many at most; 16 by default.
        declare: also declare what was found, as dp_attribute does.
        epsilon, delta, rho, mu: the budget; exactly one of epsilon, rho and mu.
        precision: in place of a budget: the largest standard deviation of a count; or '5% of 1000'.
        release: a name for the release.
        fresh: draw and charge again.

    Returns:
        value, or low and high; then count, stddev, threshold and declare.

    Raises:
        DPError: what SQL refuses too, in the same line.

    Privacy: spends the budget typed, once per request, and for 'values' a part of discovery_delta.
    """
    from duckdb_dp.sql.from_python import ask

    named = {
        "find": find,
        "max_values": max_values,
        "bins": bins,
        "declare": declare,
        "epsilon": epsilon,
        "delta": delta,
        "rho": rho,
        "mu": mu,
        "precision": precision,
        "release": release,
        "fresh": fresh,
    }
    return ask(con, "dp_discover", [dataset, attribute], named)


def running(
    con: "DuckDBPyConnection",
    dataset: str,
    attributes: Sequence[str] = (),
    *,
    start: "date | str",
    time_column: str | None = None,
    every: Literal["hour", "day", "week", "month"] = "day",
    horizon: int = 365,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    precision: float | str | None = None,
    release: str | None = None,
    fresh: bool = False,
) -> "pa.Table":
    """Running totals that go on from day to day for one charge: the rows of ``FROM dp_running(...)``.

    Args:
        con: a loaded connection.
        dataset, attributes: a protected table, and the declared attributes to group by.
        start: where the first step begins.
        time_column: the column of dates or timestamps; by default the only one.
        every: what there is a total for each of.
        horizon: how many steps are charged.
        epsilon, delta, rho, mu: the budget of all steps; exactly one of epsilon, rho and mu.
        precision: in place of a budget: the largest standard deviation of a total; or '5% of 1000'.
        release: a name for the release.
        fresh: draw and charge again.

    Returns:
        The attributes, the time column, total, stddev, ci_low and ci_high, for each group and each step that is over.

    Raises:
        DPError: what SQL refuses too, in the same line.

    Privacy: spends the budget typed, once for all steps.
    """
    from duckdb_dp.sql.from_python import ask

    named = {
        "start": start,
        "time_column": time_column,
        "every": every,
        "horizon": horizon,
        "epsilon": epsilon,
        "delta": delta,
        "rho": rho,
        "mu": mu,
        "precision": precision,
        "release": release,
        "fresh": fresh,
    }
    return ask(con, "dp_running", [dataset, list(attributes) if isinstance(attributes, tuple) else attributes], named)


def max_rows(
    con: "DuckDBPyConnection",
    dataset: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    precision: float | str | None = None,
    release: str | None = None,
    fresh: bool = False,
) -> "pa.Table":
    """How many rows the units have, and what each bound on them would keep: the rows of ``FROM dp_max_rows(...)``.

    Args:
        con: a loaded connection.
        dataset: a protected table with a unit.
        epsilon, delta, rho, mu: the budget; exactly one of epsilon, rho and mu.
        precision: in place of a budget: the largest standard deviation of a number of units; or '5% of 1000'.
        release: a name for the release.
        fresh: draw and charge again.

    Returns:
        max_rows, noise, units_whole, rows_kept, rows_left_out, stddev and note.

    Raises:
        DPError: what SQL refuses too, in the same line.

    Privacy: spends the budget typed, once per request.
    """
    from duckdb_dp.sql.from_python import ask

    budget = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu, "precision": precision}
    return ask(con, "dp_max_rows", [dataset], {**budget, "release": release, "fresh": fresh})


def attach(con: "DuckDBPyConnection", name: str, source: object) -> None:
    """Let a table that lives in another engine be protected and asked by a name of its own in DuckDB's SQL.

    Its rows stay where they are: the engine counts them, and counts come back. Needs ``pip install 'duckdb-dp[spark]'``,
    or ``ibis-framework`` with another engine's backend.

    Args:
        con: a loaded connection; the name is known on all connections of its database, until it is closed.
        name: what to call it in ``dp_protect`` and all that follows.
        source: an Ibis table expression, such as ``ibis.pyspark.connect(spark).table('events')``.

    Raises:
        DPError: the connection is not loaded, the name is a DuckDB table's, or the source is no table of an engine.

    Privacy: costs nothing; no rows are read.
    """
    from duckdb_dp.sql.install import attach as attach_source

    attach_source(con, name, source)


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
        mechanism: 'auto', 'residual', 'querysmasher', 'hdmm', 'residual_plus', 'wff', 'gaussian' or 'laplace'.
        epsilon, delta: the budget (delta 0 is pure DP); or rho; or mu (exactly one).
        accounting: 'gdp' (default for epsilon and mu), 'zcdp' (default for rho) or 'pure' (default for delta 0): how
            epsilon becomes noise.
        objective: 'total' (sum of weighted variances) or 'max' (largest weighted variance, for marginals).
        bases: for 'residual_plus': attribute -> strategy matrix whose rows span its queries.

    Raises:
        DPError: two budgets or none, an unknown mechanism, or an unusable workload.

    Privacy: costs nothing; no data are seen.
    """
    from duckdb_dp.accounting.base import find_accounting, usual_accounting
    from duckdb_dp.plan.choose import PrivacyCost, choose
    from duckdb_dp.plan.smasher import residual_plus

    expect("plan", "workload", workload, Workload, "a duckdb_dp.Workload")
    for name, word in (("mechanism", mechanism), ("objective", objective)):
        expect("plan", name, word, str, "a word, e.g. 'auto' or 'total'")
    if bases is not None:
        expect("plan", "bases", bases, Mapping, "a matrix per attribute")
    if accounting is not None:
        expect("plan", "accounting", accounting, str, "'gdp', 'zcdp' or 'pure'")
    budget = Budget(epsilon=epsilon, delta=delta, rho=rho, mu=mu)
    chosen = find_accounting(accounting) if accounting else usual_accounting(budget)
    price = PrivacyCost.of(chosen.cost(budget), chosen)
    if bases is not None:
        if price.beta is None:
            raise DPError("bases are for Gaussian noise; type a budget with a delta.")
        if mechanism != "residual_plus":
            raise DPError(f"bases are for mechanism 'residual_plus', not {as_sql(mechanism)}.")
        return residual_plus(workload, price.beta, objective, bases)
    return choose(workload, price, mechanism=mechanism, objective=objective)
