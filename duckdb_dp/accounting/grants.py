"""What an account may spend of a dataset, and what it may read: checked in the transaction that charges the dataset.

An account pays each release once, whoever had it drawn: the sum of what it paid stays within its grant. What holds against
accounts that tell each other their answers is the dataset's budget.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, final

from duckdb_dp.accounting import budget_filter, tables
from duckdb_dp.accounting.event import Event
from duckdb_dp.accounting.records import TOLERANCE, Dataset, Release
from duckdb_dp.accounting.schema import NAMED
from duckdb_dp.errors import DPError, as_sql


class Waiting(DPError):  # noqa: N818  # a request that waits is no error of anyone's
    """A request above the account's ``max_epsilon``: it waits for a steward, and nothing was charged.

    Args:
        text: of the error.
        number: of the request that waits.
    """

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.number = number


ASKING = ("analyst", "steward")
"""Roles of accounts that may spend a grant."""

SUSPENDED = "0001-01-01"
"""The last day of a grant that an internal error or the time limit has ended, while rows of people were read: it may tell of a row."""

WHOLE: ContextVar[str | None] = ContextVar("whole", default=None)
"""The hash of the request of which one that is charged is a part: a steward approves the whole."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What an account may spend of one dataset, in the unit of its accounting: a row of the ledger's table `grants`.

    `epsilon` and `max_epsilon` are as they were typed; `until` is the last day, and `synthetic` the table to explore.
    """

    account: str
    dataset: int
    cost: float
    max_cost: float | None
    epsilon: float | None
    max_epsilon: float | None
    until: str | None
    synthetic: str | None

    @property
    def over(self) -> bool:
        """Whether its last day is over, in UTC."""
        return self.until is not None and datetime.now(UTC).date().isoformat() > self.until


def role(db: sqlite3.Connection, account: str) -> str | None:
    """The present role of an account; None where there is none."""
    row = db.execute("SELECT role FROM accounts WHERE name = ? ORDER BY id DESC LIMIT 1", (account,)).fetchone()
    return None if row is None else str(row["role"])


def find(db: sqlite3.Connection, account: str, dataset: int) -> Grant | None:
    """The newest grant of an account on a dataset."""
    columns = "account, dataset, cost, max_cost, epsilon, max_epsilon, until, synthetic"
    where = "account = ? AND dataset = ? ORDER BY id DESC LIMIT 1"
    row = db.execute(f"SELECT {columns} FROM grants WHERE {where}", (account, dataset)).fetchone()
    return None if row is None else Grant(**row)


def spent(db: sqlite3.Connection, account: str, dataset: int) -> float:
    """The sum of what an account has paid for releases of a dataset."""
    query = "SELECT total(cost) FROM account_charges WHERE account = ? AND dataset = ?"
    return float(db.execute(query, (account, dataset)).fetchone()[0])


def left(db: sqlite3.Connection, account: str, dataset: Dataset) -> float:
    """What an account may still spend of a dataset: no more than the dataset has left."""
    grant = find(db, account, dataset.id)
    if grant is None or grant.over or role(db, account) not in ASKING:
        return 0.0
    rest = grant.cost - spent(db, account, dataset.id)
    return min(rest if rest > TOLERANCE * grant.cost else 0.0, dataset.left(budget_filter.spent(db, dataset)))


def paid(db: sqlite3.Connection, account: str, release: int) -> bool:
    """Whether an account has paid a release."""
    query = "SELECT 1 FROM account_charges WHERE account = ? AND release = ?"
    return db.execute(query, (account, release)).fetchone() is not None


def own_release(db: sqlite3.Connection, account: str, request_hash: str, private: bool) -> Release | None:
    """The newest release of a request that an account has paid, whatever another had drawn anew since."""
    mine = "EXISTS (SELECT 1 FROM account_charges a WHERE a.release = c.id AND a.account = ?)"
    return tables.newest_release(db, f"c.request_hash = ? AND c.private = ? AND {mine}", request_hash, private, account)


def readable(db: sqlite3.Connection, account: str) -> set[int]:
    """The releases that an account may read: those that it paid, and those that were shared with it."""
    query = "SELECT release FROM account_charges WHERE account = :a UNION SELECT release FROM shares WHERE account = :a"
    return {row["release"] for row in db.execute(query, {"a": account})}


def granted(db: sqlite3.Connection, account: str, dataset: Dataset) -> Grant:
    """The grant of an account on a dataset.

    Raises:
        DPError: there is none.
    """
    grant = find(db, account, dataset.id)
    if grant is None:
        raise DPError(f"'{dataset.name}' is not granted to '{account}'; ask the steward for a grant on it.")
    return grant


def pay(db: sqlite3.Connection, account: str, dataset: Dataset, release: Release, function: str) -> None:
    """Charges an account for a release that it has not paid yet; in the transaction that charged the dataset, if that was charged.

    Raises:
        Waiting: it costs more than the account may spend at once, and no steward approved it.
        DPError: the account may not ask, or has not that much left.
    """
    if paid(db, account, release.id):
        return
    grant = check(db, account, dataset, function, release.cost)
    too_large = grant.max_cost is not None and release.cost > grant.max_cost * (1 + TOLERANCE)
    if too_large and not _approved(db, account, WHOLE.get() or release.request_hash):
        raise Waiting(above(dataset, account, release.cost, grant.max_cost))
    tables.insert(db, "account_charges", account=account, dataset=dataset.id, release=release.id, cost=release.cost)


def above(dataset: Dataset, account: str, cost: float, most: float | None) -> str:
    """That a cost is more than an account may spend at once."""
    limit = "" if most is None else f", {budget_filter.sizes(dataset, most)},"
    return (
        f"{budget_filter.amount(dataset, cost)} is more than '{account}' may spend at once{limit} on '{dataset.name}'"
    )


def check(db: sqlite3.Connection, account: str, dataset: Dataset, function: str, cost: float) -> Grant:
    """The grant of an account, of which it has so much left.

    Raises:
        DPError: the account may not ask, or has not that much left.
    """
    grant = granted(db, account, dataset)
    if role(db, account) not in ASKING:
        raise DPError(f"{function}: '{account}' may read what was shared with it, and ask nothing; ask the steward.")
    if grant.until == SUSPENDED:
        raise DPError(
            f"{function}: the grant of '{account}' on '{dataset.name}' waits for a steward, since an internal error or since "
            "statements ran into the time limit; log and audit have them, and the steward grants it anew."
        )
    if grant.over:
        raise DPError(
            f"{function}: the grant of '{account}' on '{dataset.name}' ended with {grant.until}; ask the steward."
        )
    before = spent(db, account, dataset.id)
    if before + cost > grant.cost * (1 + TOLERANCE):
        rest = min(max(grant.cost - before, 0.0), dataset.left(budget_filter.spent(db, dataset)))
        works = f"up to {budget_filter.sizes(dataset, rest)} works" if rest > 1e-6 * grant.cost else "nothing is left"
        raise DPError(
            f"{function}: {budget_filter.amount(dataset, cost)} is more than what remains of the grant of '{account}' on"
            f" '{dataset.name}', {budget_filter.amount(dataset, rest)}; nothing was charged; {works}; read releases"
            " that you have (FROM dp_releases()), or ask the steward for a larger grant."
        )
    return grant


@contextmanager
def told(db: sqlite3.Connection, account: str | None, dataset: Dataset, function: str, event: Event) -> Iterator[None]:
    """While a block charges a dataset: where that has too little left, an account is told what it has left itself.

    Raises:
        DPError: as the block, or of the account's grant.
    """
    try:
        yield
    except DPError:
        if account is not None:  # which has no more left than the dataset
            check(db, account, dataset, function, event.cost(dataset.accounting))
        raise


def _approved(db: sqlite3.Connection, account: str, request_hash: str) -> bool:
    """Whether a steward approved this request, once for each time that the account has paid it."""
    approved = (
        "SELECT count(*) FROM requests r JOIN decisions d ON d.request = r.id"
        " WHERE r.account = ? AND r.request_hash = ? AND d.approved"
    )
    used = (
        "SELECT count(*) FROM account_charges a JOIN charges c ON c.id = a.release"
        " WHERE a.account = ? AND c.request_hash = ?"
    )
    counts = [db.execute(query, (account, request_hash)).fetchone()[0] for query in (approved, used)]
    return bool(counts[0] > counts[1])


def decided(db: sqlite3.Connection, account: str, request_hash: str) -> str | None:
    """Whether a request of an account would be asked as approved, or was refused at last: 'approved', 'refused', or None."""
    if _approved(db, account, request_hash):
        return "approved"
    query = (
        "SELECT d.approved FROM requests r LEFT JOIN decisions d ON d.request = r.id WHERE r.account = ? AND r.request_hash = ?"
        " ORDER BY r.id DESC LIMIT 1"
    )
    row = db.execute(query, (account, request_hash)).fetchone()
    return "refused" if row is not None and row["approved"] == 0 else None


def wait(db: sqlite3.Connection, account: str, dataset: Dataset, cost: float, **asked: object) -> int:
    """The number of a request that waits for a steward: of the same request the one that is undecided, or a new one.

    Raises:
        DPError: a steward refused it.
    """
    refused = (
        "SELECT r.id, d.approved, d.reason FROM requests r JOIN decisions d ON d.request = r.id"
        " WHERE r.account = ? AND r.request_hash = ? ORDER BY r.id DESC LIMIT 1"
    )
    decided = db.execute(refused, (account, asked["request_hash"])).fetchone()
    if decided is not None and not decided["approved"]:
        why = "" if decided["reason"] is None else f" ({' '.join(str(decided['reason']).split())[:200]})"
        raise DPError(
            f"{asked['function']}: a steward refused this as request {decided['id']}{why}; nothing was charged; ask for less."
        )
    undecided = (
        "SELECT r.id FROM requests r LEFT JOIN decisions d ON d.request = r.id"
        " WHERE r.account = ? AND r.request_hash = ? AND d.request IS NULL LIMIT 1"
    )
    row = db.execute(undecided, (account, asked["request_hash"])).fetchone()
    if row is not None:
        return int(row["id"])
    columns = ("function", "request", "request_hash", "mechanism")
    tables.insert(
        db,
        "requests",
        account=account,
        dataset=dataset.id,
        cost=cost,
        epsilon=dataset.epsilon_of(cost),
        **{name: asked[name] for name in columns},
    )
    return int(db.execute(undecided, (account, asked["request_hash"])).fetchone()["id"])


# What an account sees of the ledger


def own_name(account: str | None, name: str | None) -> str | None:
    """The name in the ledger of what an account calls by a name: accounts do not see one another's names."""
    return name if account is None or name is None else f"{account.lower()}/{name}"


def release_of(db: sqlite3.Connection, account: str, key: int | str) -> Release:
    """The stored release of that number, or of that name of the account's own, if the account may read it.

    Raises:
        DPError: it may not, or there is none: the same text for both.
    """
    found = readable(db, account)
    if isinstance(key, int):
        if key in found:
            return tables.stored_release(db, key)
    else:
        named = tables.named_release(db, own_name(account, key) or key, True)
        if named is not None and named.id in found:
            return tables.stored_release(db, named.id)
        shared = [release for release, name in _shared_names(db, account).items() if name == key]
        if shared:
            return tables.stored_release(db, max(shared))
    raise DPError(f"there is no release {as_sql(key)} that '{account}' may read; FROM dp_releases() lists those.")


def own_rows(db: sqlite3.Connection, account: str | None, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of dp_releases or dp_ledger that an account may see, with its own names; all of them where nobody asks from outside."""
    if account is None:
        return rows
    seen = readable(db, account)
    prefix = own_name(account, "") or ""
    named = "SELECT release, name FROM names WHERE substr(name, 1, ?) = ? ORDER BY id DESC"
    own = {row["release"]: row["name"][len(prefix) :] for row in db.execute(named, (len(prefix), prefix))}
    names = {**_shared_names(db, account), **own}
    hidden = {"fresh_key", "file", "sha256", "bytes"}
    return [
        {key: names.get(row["release"]) if key == "name" else value for key, value in row.items() if key not in hidden}
        for row in rows
        if row["release"] in seen
    ]


def _shared_names(db: sqlite3.Connection, account: str) -> dict[int, str]:
    """What the releases are called that a steward shared with an account, without whose name it is."""
    query = f"SELECT {NAMED} AS release, n.name FROM names n JOIN shares s ON s.release = {NAMED} WHERE s.account = ? ORDER BY n.id DESC"

    def bare(name: str) -> str:
        owner, slash, rest = name.partition("/")
        return rest if slash and role(db, owner) is not None else name

    return {row["release"]: bare(row["name"]) for row in db.execute(query, (account,))}


def own_budget(db: sqlite3.Connection, account: str, dataset: Dataset, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row of dp_budget as an account sees it: its grant, and what is left of it; None without a grant."""
    grant = find(db, account, dataset.id)
    if grant is None:
        return None
    used, rest = spent(db, account, dataset.id), left(db, account, dataset)
    count = "SELECT count(*) FROM account_charges WHERE account = ? AND dataset = ?"
    return {
        **row,
        "total": grant.cost,
        "spent": used,
        "remaining": rest,
        "epsilon_total": dataset.epsilon_of(grant.cost),
        "epsilon_spent": dataset.epsilon_of(used),
        "epsilon_remaining": dataset.epsilon_of(rest),
        "releases": db.execute(count, (account, dataset.id)).fetchone()[0],
    }
