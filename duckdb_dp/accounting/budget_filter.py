"""The filter of a dataset's charges: the sum of costs, and apart from it that of the deltas of thresholds, stay within the budget.

Source: `docs/privacy.md`, "Unknown values".
"""

from __future__ import annotations

import sqlite3
from decimal import ROUND_FLOOR, Context

from duckdb_dp.accounting.event import Event
from duckdb_dp.accounting.records import TOLERANCE, Dataset
from duckdb_dp.errors import DPError


def spent(db: sqlite3.Connection, dataset: Dataset) -> float:
    """The sum of the costs charged, in the dataset's own unit."""
    return float(db.execute("SELECT total(cost) FROM charges WHERE dataset = ?", (dataset.id,)).fetchone()[0])


def check_budget(db: sqlite3.Connection, dataset: Dataset, function: str, event: Event) -> None:
    """Refuses an event that costs more than what remains; says how much would work."""
    check_own(dataset)
    check_discovery(db, dataset, function, event)
    before = spent(db, dataset)
    asked = event.cost(dataset.accounting)
    if before + asked <= dataset.budget * (1 + TOLERANCE):
        return
    left = dataset.left(before)
    works = "releases already made stay free: FROM dp_releases()"
    if left > 1e-6 * dataset.budget:
        works = f"up to {sizes(dataset, left)} works, and {works}"
    raise DPError(
        f"{function}: {amount(dataset, asked)} is more than what remains of the budget of {dataset.owner},"
        f" {amount(dataset, left)} of {amount(dataset, dataset.budget)}; nothing was charged; {works}"
    )


def check_own(dataset: Dataset) -> None:
    """Refuses a table whose closed periods have budgets, and that has none."""
    if dataset.rule is not None:
        raise DPError(
            f"'{dataset.name}' has a budget for each closed period and none for all of them: ask a period, which is a table of its own "
            "and has its attributes; FROM dp_budget() lists them."
        )


def discovery_spent(db: sqlite3.Connection, dataset: Dataset) -> float:
    """The sum of the deltas of thresholds charged."""
    query = "SELECT total(discovery_delta) FROM charges WHERE dataset = ?"
    return float(db.execute(query, (dataset.id,)).fetchone()[0])


def check_discovery(db: sqlite3.Connection, dataset: Dataset, function: str, event: Event) -> None:
    """Refuses an event whose threshold takes more than what remains of the dataset's discovery_delta."""
    if not event.delta:
        return
    before, total = discovery_spent(db, dataset), dataset.discovery_delta or 0.0
    if before + event.delta <= total * (1 + TOLERANCE):
        return
    raise DPError(
        f"{function}: a threshold takes {event.delta:.4g} of discovery_delta, of which {dataset.owner} has "
        f"{dataset.discovery_left(before):.4g} of {total:g} left; nothing was charged; declare the values by dp_attribute. "
        "Releases already made stay free: FROM dp_releases()"
    )


def amount(dataset: Dataset, value: float) -> str:
    """A cost for reading: 'epsilon 1.2 at delta 1e-09 (mu^2 0.25)'."""
    text, epsilon = f"{dataset.accounting.unit} {value:.6g}", dataset.epsilon_of(value)
    if dataset.accounting.pure or epsilon is None:
        return text
    return f"epsilon {epsilon:.4g} at delta {dataset.cost_delta:g} ({text})"


def sizes(dataset: Dataset, value: float) -> str:
    """A cost as what to type, rounded down so that it fits, and in epsilon first, as ``amount`` says it."""
    sizes = {"epsilon": dataset.epsilon_of(value), **dataset.accounting.typed(value)}
    down = Context(prec=4, rounding=ROUND_FLOOR)
    return " or ".join(
        f"{name} := {float(down.create_decimal_from_float(size)):g}" for name, size in sizes.items() if size is not None
    )
