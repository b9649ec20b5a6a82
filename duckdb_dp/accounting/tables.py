"""The SQL of the ledger's transactions: lookups, checks, inserts, and the rows that users read."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from duckdb_dp.accounting import budget_filter
from duckdb_dp.accounting.base import find_accounting, usual_accounting
from duckdb_dp.accounting.event import Event
from duckdb_dp.accounting.records import TOLERANCE, Dataset, Membership, Release, units, without_discovery
from duckdb_dp.accounting.schema import NAMED
from duckdb_dp.budget import Budget, reserved_delta
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.version import __version__

AUTO = "auto"
"""What ``max_rows`` is where each request chooses it privately."""


def insert(db: sqlite3.Connection, table: str, **values: object) -> None:
    """Inserts one row, stamped with the time."""
    values["time"] = datetime.now(UTC).isoformat(timespec="microseconds")
    marks = ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))


# Declarations


def declaration(
    *,
    name: str,
    budget: Budget,
    accounting: str | None,
    delta: float | None,
    unit: str | None,
    max_rows: int | str,
    discovery_delta: float | None = None,
) -> dict[str, Any]:
    """What a user declares of a dataset, by the ledger's columns."""
    if max_rows != AUTO and (isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1):
        raise DPError(
            f"'{name}': max_rows {as_sql(max_rows)} is not a whole number of at least 1, or '{AUTO}': 1 works."
        )
    if unit is None and max_rows != 1:
        raise DPError(
            f"'{name}': max_rows {as_sql(max_rows)} needs a unit: name its column, such as unit := 'patient_id'."
        )
    if delta is not None:
        delta = Budget(epsilon=1, delta=delta).delta  # refuses what is no delta
    if budget.delta is not None:
        if delta not in (None, budget.delta):
            raise DPError(f"'{name}': delta {delta:g} and {budget} name two deltas: type one.")
        delta = budget.delta
    found = find_accounting(accounting) if accounting else usual_accounting(budget)
    if found.pure and delta is None:
        delta = 0.0
    if delta == 0 and not found.pure:
        raise DPError(f"'{name}': delta 0 is pure DP, which accounting '{found}' cannot show: 1e-9 works.")
    if discovery_delta is not None:
        discovery_delta = reserved_delta(discovery_delta)
        if found.pure or discovery_delta == 0:
            raise DPError(
                f"'{name}': discovery_delta {discovery_delta:g} is for budgets with a delta: 1e-10 of 1e-9 works."
            )
        if delta is not None and discovery_delta >= delta:
            raise DPError(
                f"'{name}': discovery_delta {discovery_delta:g} is a part of delta {delta:g}: "
                f"less, such as discovery_delta := {delta / 10:.3g}, works."
            )
    return {
        "unit": unit,
        "max_rows": 1 if max_rows == AUTO else max_rows,
        "auto_rows": max_rows == AUTO,
        "accounting": found,
        "epsilon": budget.epsilon,
        "delta": delta,
        "rho": budget.rho,
        "mu": budget.mu,
        "discovery_delta": discovery_delta,
    }


def neighbours(unit: str | None, max_rows: int, *, auto_rows: bool = False) -> str:
    """Which two tables are neighbours, in words."""
    if unit is None:
        return "add or remove one row"
    either = " or one ".join(f"'{', '.join(columns)}'" for columns in units(unit))
    if auto_rows:
        return f"add or remove one {either} with all its rows"
    return f"add or remove one {either} with up to {max_rows} row{'s' if max_rows > 1 else ''}"


def insert_dataset(
    db: sqlite3.Connection,
    full: tuple[str, str, str],
    budget: Budget,
    declared: Mapping[str, Any],
    either: str | None = None,
) -> Dataset:
    """Inserts a protected table as ``declaration`` has it, with its neighbours in words; refuses one that is public."""
    catalog, schema, name = full
    check_not_public(db, full)
    accounting, budget = declared["accounting"], budget.with_delta(declared["delta"])
    if budget.delta is not None:
        budget = replace(budget, delta=without_discovery(budget.delta, declared["discovery_delta"]))
    columns = {
        **declared,
        "accounting": accounting.name,
        "budget": accounting.cost(budget),
        "neighbours": either or neighbours(declared["unit"], declared["max_rows"], auto_rows=declared["auto_rows"]),
        "version": __version__,
    }
    insert(db, "datasets", catalog=catalog, schema=schema, name=name, **columns)
    dataset = find_dataset(db, catalog, schema, name)
    assert dataset is not None
    return dataset


def check_not_public(db: sqlite3.Connection, full: tuple[str, str, str]) -> None:
    """Refuses a table that was declared public."""
    if is_public(db, full):
        raise DPError(f"'{full[2]}' was declared public by dp_public, and a declaration stays.")


def find_dataset(db: sqlite3.Connection, catalog: str, schema: str, name: str) -> Dataset | None:
    """The protected table, or named relation, of that name."""
    where, full = "catalog = ? AND schema = ? AND name = ?", (catalog, schema, name)
    if (row := db.execute(f"{_MEMBERS} WHERE m.{where.replace('AND ', 'AND m.')}", full).fetchone()) is not None:
        return _member(db, row)
    row = db.execute(f"{_DATASETS} WHERE {where}", full).fetchone()
    return None if row is None else Dataset.from_row(row)


def datasets(db: sqlite3.Connection, *, views: bool = False) -> list[Dataset]:
    """All protected tables, in the order of their declaration: of a dataset of several each; with ``views`` its named relations too."""
    members: dict[int, list[Dataset]] = {}
    for row in db.execute(f"{_MEMBERS} ORDER BY m.id").fetchall():
        members.setdefault(row["dataset"], []).append(_member(db, row))
    found = []
    for dataset in rows_of_datasets(db):
        of_it = members.get(dataset.id, [])
        tables = [one for one in of_it if one.member and one.member.view is None] or [dataset]
        found += tables + [one for one in of_it if views and one not in tables]
    return found


def rows_of_datasets(db: sqlite3.Connection) -> list[Dataset]:
    """One for each budget: a dataset of several tables once, without a member."""
    return [Dataset.from_row(row) for row in db.execute(f"{_DATASETS} ORDER BY id")]


_MEMBERS = "SELECT m.* FROM members m"

_DATASETS = (
    "SELECT d.*, (SELECT p.spec FROM periods p WHERE p.dataset = d.id AND p.period IS NULL) AS rule FROM datasets d"
)


def _member(db: sqlite3.Connection, row: sqlite3.Row) -> Dataset:
    """The dataset of a row of ``members``, as seen from that table."""
    whole = Dataset.from_row(db.execute(f"{_DATASETS} WHERE id = ?", (row["dataset"],)).fetchone())
    return replace(
        whole,
        **{field: row[field] for field in ("catalog", "schema", "name", "unit")},
        max_rows=row["max_rows"] or 1,
        auto_rows=row["max_rows"] is None,
        member=Membership(
            id=row["id"], dataset=whole.name, unit=whole.unit, reference=row["reference"], view=row["view"]
        ),
    )


def check_dataset(db: sqlite3.Connection, dataset: Dataset) -> None:
    """Refuses a dataset that this ledger does not hold: one of another ledger, or made by hand."""
    if find_dataset(db, dataset.catalog, dataset.schema, dataset.name) != dataset:
        raise DPError(
            f"'{dataset.name}' is not protected in this ledger: CALL dp_protect({dataset.argument}, ...) first."
        )


def declare_link(db: sqlite3.Connection, dataset: Dataset, spec: str, extends: str | None) -> None:
    """Inserts what a dataset's rows refer to; refuses other references than the declared ones."""
    check_dataset(db, dataset)
    before = current_link(db, dataset)
    if before in (None, extends) and dataset.member is not None:
        name_link(db, (dataset.catalog, dataset.schema, dataset.name), spec)
    elif before in (None, extends):
        insert(db, "links", dataset=dataset.id, spec=spec)
    elif before != spec:
        raise DPError(
            f"what '{dataset.name}' refers to is declared already, and a declaration stays; repeat it as it is, or "
            "protect a view of the table, which has references of its own."
        )


def current_link(db: sqlite3.Connection, dataset: Dataset) -> str | None:
    """What was last declared of the tables that a dataset refers to, or that its table did before it was protected."""
    row = None
    if dataset.member is None:
        row = db.execute("SELECT spec FROM links WHERE dataset = ? ORDER BY id DESC LIMIT 1", (dataset.id,)).fetchone()
    if row is not None:
        return str(row["spec"])
    return named_link(db, (dataset.catalog, dataset.schema, dataset.name))


def named_link(db: sqlite3.Connection, full: tuple[str, str, str]) -> str | None:
    """What was last declared of the tables that a table of that name refers to."""
    where = "catalog = ? AND schema = ? AND name = ? ORDER BY id DESC LIMIT 1"
    row = db.execute(f"SELECT spec FROM named_links WHERE {where}", full).fetchone()
    return None if row is None else str(row["spec"])


def name_link(db: sqlite3.Connection, full: tuple[str, str, str], spec: str) -> None:
    """Inserts what a table of that name refers to."""
    catalog, schema, name = full
    insert(db, "named_links", catalog=catalog, schema=schema, name=name, spec=spec)


def is_public(db: sqlite3.Connection, name: tuple[str, str, str], links: int | None = None) -> bool:
    """Whether the rows of a table are declared public: everywhere, or just where one dataset's links refer to them."""
    where = "catalog = ? AND schema = ? AND name = ? AND links IS ?"
    return db.execute(f"SELECT 1 FROM public WHERE {where}", (*name, links)).fetchone() is not None


# Charges


def newest_release(db: sqlite3.Connection, where: str, *values: object) -> Release | None:
    """The newest charge `c` for which `where` holds."""
    row = db.execute(
        "SELECT c.id, c.dataset, c.function, c.request, c.request_hash, c.mechanism, c.cost, c.mu, c.rho, c.epsilon,"
        " c.delta, c.private, c.time AS charged_at, s.time AS released_at"
        f" FROM charges c LEFT JOIN stored s ON s.release = c.id WHERE {where} ORDER BY c.id DESC LIMIT 1",
        values,
    ).fetchone()
    return None if row is None else Release(**{**row, "private": bool(row["private"])})


def newest_stored(
    db: sqlite3.Connection, function: str, most: int, *, private: bool, seen: set[int] | None
) -> list[tuple[int, str]]:
    """The numbers of the newest stored releases of a function, of those that may be seen, and the hashes of their requests."""
    rows = db.execute(
        "SELECT c.id, c.request_hash FROM charges c JOIN stored s ON s.release = c.id WHERE c.function = ? AND c.private = ?"
        " ORDER BY c.id DESC",
        (function, private),
    )
    return list(itertools.islice(((row[0], row[1]) for row in rows if seen is None or row[0] in seen), most))


def named_release(db: sqlite3.Connection, name: str, private: bool) -> Release | None:
    """The charge that was given that name first: a name stays where it is."""
    first = f"SELECT {NAMED} FROM names n WHERE n.name = ? AND n.private = ? ORDER BY n.id LIMIT 1"
    return newest_release(db, f"c.id = ({first})", name, private)


def stored_release(db: sqlite3.Connection, key: int | str) -> Release:
    """The stored release of that number or name."""
    if isinstance(key, int):
        found = newest_release(db, "c.id = ?", key) if 0 < key < 2**63 else None  # SQLite takes no larger number
    else:
        found = named_release(db, key, True) or named_release(db, key, False)
    if found is None:
        rows = db.execute("SELECT DISTINCT name FROM names ORDER BY name LIMIT 10")
        known = ", ".join(repr(row["name"]) for row in rows) or "none"
        raise DPError(f"there is no release {as_sql(key)}; the first names in use: {known}. See FROM dp_releases().")
    if found.state != "stored":
        raise not_stored(found, key)
    return found


def not_stored(release: Release, key: int | str) -> DPError:
    """The refusal of a release that is charged and not stored: its process ended, or its steps are not all over."""
    if release.function == "dp_running":
        return DPError(
            f"release {as_sql(key)} goes on, and is stored when the last step of its horizon is over and was asked for; until then the "
            "same call, FROM dp_running(...), shows its totals so far at no new cost."
        )
    return DPError(f"release {as_sql(key)} is charged but not stored: the same request finishes it at no new cost.")


def find_or_charge(
    db: sqlite3.Connection, dataset: Dataset, event: Event, *, name: str | None, **asked: Any
) -> Release:
    """The release that a request means, charged now where there is none.

    That is the newest of the request, or of one statement with a ``fresh_key``; or the one of that name, if it is the request's.
    """
    where, key = "c.request_hash = ? AND c.private = ?", [asked["request_hash"], asked["private"]]
    if asked["fresh_key"] is not None:
        where, key = where + " AND c.fresh_key = ?", [*key, asked["fresh_key"]]
    named = None if name is None or asked["fresh_key"] is not None else named_release(db, name, asked["private"])
    if named is not None and named.request_hash == asked["request_hash"]:
        return named
    release = newest_release(db, where, *key)
    if release is None:
        budget_filter.check_budget(db, dataset, asked["function"], event)
        _insert_charge(db, dataset, event, **asked)
        release = newest_release(db, where, *key)
        assert release is not None
    return release


def choices(db: sqlite3.Connection, release: Release, choose: Callable[[], Sequence[int]]) -> tuple[int, ...]:
    """What was chosen for a release that is charged: what is stored, or ``choose()`` now, which is stored.

    In a text of the same length whatever it is: whether the disk can take it does not depend on it.
    """
    row = db.execute("SELECT chosen FROM choices WHERE release = ?", (release.id,)).fetchone()
    if row is not None:
        return tuple(map(int, row[0].split()))
    chosen = tuple(choose())
    insert(db, "choices", release=release.id, chosen=" ".join(f"{each:6}" for each in chosen))
    return chosen


def _insert_charge(db: sqlite3.Connection, dataset: Dataset, event: Event, **asked: object) -> None:
    """Inserts a charge: what was asked, with what the dataset and the event say of it.

    A request may keep another number of a unit's rows than the dataset's max_rows, as max_degree of dp_links: then its
    noise, and its neighbours, are those of that number.
    """
    try:
        request = json.loads(str(asked["request"]))
    except ValueError:
        request = None
    found = request if isinstance(request, dict) else {}
    rows = found.get("max_rows")
    rows = rows if isinstance(rows, int) and dataset.unit is not None else dataset.max_rows
    whole = bool(found.get("auto_rows")) or dict(found.get("options", ())).get("whole_units", False)
    usual = neighbours(dataset.unit, dataset.max_rows, auto_rows=dataset.auto_rows)
    which = dataset.neighbours.removeprefix(usual) if dataset.neighbours.startswith(usual) else ""  # ' of 2026-01'
    either = neighbours(dataset.unit, rows, auto_rows=whole) + which
    cost = event.cost(dataset.accounting)
    insert(
        db,
        "charges",
        dataset=dataset.id,
        event=event.to_json(),
        cost=cost,
        mu=event.mu,
        rho=event.rho,
        epsilon=None if dataset.cost_delta is None else dataset.accounting.epsilon(cost, dataset.cost_delta),
        delta=dataset.cost_delta,
        discovery_delta=event.delta,
        unit=dataset.member.unit if dataset.member else dataset.unit,
        neighbours=dataset.neighbours if dataset.member else either,
        version=__version__,
        **asked,
    )


def check_same(release: Release, dataset: Dataset, function: str, event: Event) -> None:
    """Refuses a release of another dataset, and a draw that would cost more than was charged for it."""
    if release.dataset != dataset.id:
        raise DPError(
            f"{function}: this request was charged to another dataset than '{dataset.name}': name it in full."
        )
    asked = event.cost(dataset.accounting)
    if release.state == "charged" and asked > release.cost * (1 + TOLERANCE):
        raise DPError(
            f"{function}: release {release.id} was charged {budget_filter.amount(dataset, release.cost)} and never drawn, and"
            f" drawing it would now cost {budget_filter.amount(dataset, asked)}: ask with fresh := true, which is charged anew."
        )


def give_name(db: sqlite3.Connection, name: str, release: Release) -> None:
    """Names a release; a name stays with its release, also when its request is drawn anew."""
    hash_, private = release.request_hash, int(release.private)
    rows = db.execute(
        f"SELECT n.request_hash, n.private, {NAMED} FROM names n WHERE n.name = ? ORDER BY n.id", (name,)
    ).fetchall()
    if any(tuple(row)[:2] != (hash_, private) for row in rows):
        raise DPError(f"{release.function}: the name '{name}' belongs to another request: choose another, or none.")
    if rows and rows[0][2] != release.id:
        raise DPError(
            f"{release.function}: the name '{name}' stays with release {rows[0][2]}: choose another for the new draw, or none."
        )
    if not rows:
        insert(db, "names", dataset=release.dataset, name=name, request_hash=hash_, private=private, release=release.id)
