"""Who may ask over the network: accounts, their grants, what waits for a steward, and the audit. Insert-only, as all the ledger."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, final

from duckdb_dp.accounting import budget_filter, grants, tables
from duckdb_dp.accounting.database import Database
from duckdb_dp.accounting.records import TOLERANCE, Dataset
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError, as_sql, quoted_name

ROLES = ("steward", "analyst", "viewer", "closed")
"""What an account may be: 'viewer' reads what was shared with it, and 'closed' cannot sign in."""

_EVERY_CALL = frozenset({"account_charges", "audit", "charges", "requests", "stored"})
"""Tables that grow by what is asked, not by what is said."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


@final
class Accounts:
    """Accounts of one ledger.

    Args:
        database: the ledger's.

    Raises:
        DPError: as the ledger's methods do.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: object, role: object) -> str:
        """Makes an account, or gives it another role and token, and returns the token, which is kept nowhere.

        Raises:
            DPError: no name or role.
        """
        if isinstance(name, str):
            self._check_other(name)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise DPError(
                f"the account is {as_sql(name)}; give a name of letters, digits, '_', '.', '@' and '-', such as 'alice'."
            )
        if role not in ROLES:
            raise DPError(f"role is {as_sql(role)}; use 'steward', 'analyst', 'viewer', or 'closed' to end an account.")
        token = (
            f"ddp_{secrets.token_urlsafe(32)}"  # 256 random bits: no slow hash is needed to keep it from being guessed
        )
        with self._database.writing("nothing was changed") as db:
            tables.insert(db, "accounts", name=name.lower(), role=role, token_hash=_hash(token))
        return token

    def _check_other(self, name: str) -> None:
        """Refuse a name that is another account's but for case, or spaces at its ends: that account is given no other token so.

        Raises:
            DPError: it is.
        """
        known = name.strip().lower()
        with self._database.reading() as db:
            if known != name and grants.role(db, known) is not None:
                raise DPError(
                    f"the account is {as_sql(name)}, and there is an account '{known}': give exactly '{known}' to change that one, or "
                    "another name; nothing was changed."
                )

    def of_token(self, token: str) -> tuple[str, str] | None:
        """(name, role) of the account whose newest token that is; None where there is none, or it is closed.

        The look-up is by the token's SHA-256, so its time says nothing about tokens.
        """
        with self._database.reading() as db:
            row = db.execute("SELECT id, name FROM accounts WHERE token_hash = ?", (_hash(token),)).fetchone()
            if row is None:
                return None
            newest = "SELECT id, name, role FROM accounts WHERE name = ? ORDER BY id DESC LIMIT 1"
            found = db.execute(newest, (row["name"],)).fetchone()
        return (found["name"], found["role"]) if found["id"] == row["id"] and found["role"] != "closed" else None

    def grant(
        self,
        account: object,
        dataset: Dataset,
        budget: Budget,
        *,
        most: Budget | None = None,
        until: object = None,
        synthetic: tuple[str, str, str] | tuple[()] | None = None,
    ) -> str:
        """Says what an account may spend of a dataset in all, from now on; it takes the place of an earlier grant. Returns its name.

        Args:
            account: its name, in whatever case.
            dataset: whose budget it is about.
            budget: all that the account may spend, what it has spent included.
            most: what it may spend on one request without a steward.
            until: the last day, as '2027-06-30'.
            synthetic: the full name of the table to explore in its place; None: as an earlier grant says; (): none.

        Raises:
            DPError: no such account, or one that asks nothing, or no day; or more than the dataset has, or for one request more than for
                all.

        Privacy: states a bound; spends nothing.
        """
        day = None if until is None else _day(until)
        cost, most_cost = _cost(dataset, budget), None if most is None else _cost(dataset, most)
        if cost > dataset.budget * (1 + TOLERANCE):
            raise DPError(
                f"this grant is of {budget_filter.amount(dataset, cost)}, and the budget of {dataset.owner} is "
                f"{budget_filter.amount(dataset, dataset.budget)}; grant that much at most."
            )
        if most_cost is not None and most_cost > cost * (1 + TOLERANCE):
            raise DPError(
                f"max_epsilon := {most.epsilon:g} of one request is more than the grant has for all of them; give less, or leave it out."  # type: ignore[union-attr]
            )
        with self._database.writing("nothing was granted") as db:
            name = _known(db, account)
            if grants.role(db, name) == "viewer":
                raise DPError(
                    f"'{name}' is a viewer, which reads what was shared with it and spends nothing: nothing was granted; share a release, "
                    f"CALL dp_share(1, '{name}'), or make it an analyst, CALL dp_account('{name}', role := 'analyst')."
                )
            before = grants.find(db, name, dataset.id)
            tables.insert(
                db,
                "grants",
                account=name,
                dataset=dataset.id,
                cost=cost,
                max_cost=most_cost,
                epsilon=budget.epsilon,
                max_epsilon=None if most is None else most.epsilon,
                until=day,
                synthetic=(before and before.synthetic)
                if synthetic is None
                else json.dumps(synthetic)
                if synthetic
                else None,
            )
        return name

    def name_twin(self, dataset: Dataset, synthetic: tuple[str, str, str]) -> None:
        """Names a synthetic table in the present grants of a dataset that name none."""
        newest = "SELECT max(id) FROM grants WHERE dataset = ? GROUP BY account"
        kept = "account, dataset, cost, max_cost, epsilon, max_epsilon, until"
        with self._database.writing("nothing was changed") as db:
            query = f"SELECT {kept} FROM grants WHERE id IN ({newest}) AND synthetic IS NULL"
            for row in db.execute(query, (dataset.id,)).fetchall():
                tables.insert(db, "grants", **row, synthetic=json.dumps(synthetic))

    def suspend(self, account: str, dataset: Dataset | None) -> None:
        """Ends the present grant of an account on a dataset, or all of them, at once, until it is granted anew."""
        kept = "account, dataset, cost, max_cost, epsilon, max_epsilon, synthetic"
        newest = "SELECT max(id) FROM grants WHERE account = :a AND (:d IS NULL OR dataset = :d) GROUP BY dataset"
        with self._database.writing("nothing was changed") as db:
            query = f"SELECT {kept} FROM grants WHERE id IN ({newest})"
            for row in db.execute(query, {"a": account, "d": None if dataset is None else dataset.id}).fetchall():
                tables.insert(db, "grants", **row, until=grants.SUSPENDED)

    def suspended(self, account: str) -> bool:
        """Whether an error has ended any present grant of an account."""
        newest = "SELECT max(id) FROM grants WHERE account = ? GROUP BY dataset"
        with self._database.reading() as db:
            query = f"SELECT 1 FROM grants WHERE until = ? AND id IN ({newest})"
            return db.execute(query, (grants.SUSPENDED, account)).fetchone() is not None

    def check(self, account: str, dataset: Dataset, function: str) -> None:
        """Refuse a question of an account that has no grant on a dataset now.

        Raises:
            DPError: it has none, or it has ended.
        """
        with self._database.reading() as db:
            grants.check(db, account, dataset, function, 0.0)

    def grant_of(self, account: str, dataset: Dataset) -> grants.Grant | None:
        """The present grant of an account on a dataset."""
        with self._database.reading() as db:
            return grants.find(db, account, dataset.id)

    def share(self, release: int, account: object) -> None:
        """Lets an account read a stored release, at no cost to it.

        Raises:
            DPError: no such release or account.
        """
        with self._database.writing("nothing was shared") as db:
            tables.stored_release(db, release)
            tables.insert(db, "shares", release=release, account=_known(db, account))

    def decide(self, request: object, *, approved: bool, reason: str | None, steward: str | None) -> dict[str, Any]:
        """Approves or refuses a request that waits, for good; the row of ``requests``.

        Raises:
            DPError: there is no such request, or it was decided.
        """
        if isinstance(request, bool) or not isinstance(request, int) or not 0 < request < 2**63:
            raise DPError(f"the request is {as_sql(request)}; give its number in dp_requests().")
        with self._database.writing("nothing was decided") as db:
            rows = [row for row in _requests(db) if row["request"] == request]
            if not rows:
                raise DPError(f"there is no request {request}; FROM dp_requests() lists them.")
            if rows[0]["state"] != "waiting":
                raise DPError(f"request {request} was {rows[0]['state']} already, and a decision stays.")
            tables.insert(db, "decisions", request=request, approved=approved, reason=reason, steward=steward)
            return next(row for row in _requests(db) if row["request"] == request)

    def admit(self, account: str, dataset: Dataset, cost: float, *, fresh: bool, **asked: str) -> None:
        """Refuse a request whose parts are charged one by one, where the account may not spend so much at once.

        Args:
            account: who asks.
            dataset: what about.
            cost: of all parts together.
            fresh: whether it draws anew, which an approval does not count.
            asked: its function, JSON, hash and mechanism.

        Raises:
            Waiting: it waits for a steward; nothing was charged.
            DPError: it is refused.
        """
        with self._database.reading() as db:
            grant = grants.check(db, account, dataset, asked["function"], 0.0)  # what is left, each part's charge says
            allowed = grant.max_cost is None or cost <= grant.max_cost * (1 + TOLERANCE)
            if allowed or (not fresh and grants.decided(db, account, asked["request_hash"]) == "approved"):
                return
        said = grants.above(dataset, account, cost, grant.max_cost)
        if fresh:
            raise DPError(f"{asked['function']}: {said}; nothing was charged; ask without fresh := true.")
        raise self.waiting(account, dataset, cost, said, **asked)

    def waiting(self, account: str, dataset: Dataset, cost: float, why: str, **asked: str) -> grants.Waiting:
        """The error of a request that waits from now on, or did before.

        Raises:
            DPError: a steward refused it.
        """
        with self._database.writing("nothing was charged") as db:
            number = grants.wait(db, account, dataset, cost, **asked)
        return grants.Waiting(
            f"{asked['function']}: {why}; request {number} waits for a steward, and nothing was charged; once it is approved, ask the "
            "same again.",
            number,
        )

    def decided(self, account: str, request_hash: str) -> str | None:
        """Whether a steward has 'approved' a request of an account that was not asked since, or 'refused' it; or else None."""
        with self._database.reading() as db:
            return grants.decided(db, account, request_hash)

    def note_all(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Adds rows to the audit: account, client, statement, outcome, and if there are any detail, request and seconds."""
        if rows:
            with self._database.writing("they are missing in the audit") as db:
                for row in rows:
                    tables.insert(db, "audit", **row)

    def said(self) -> tuple[object, ...]:
        """Tells apart two states of what is declared, who may ask and what was decided: the day, and the last row of each table."""
        with self._database.reading() as db:
            tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
            said = [name for name in tables if name not in _EVERY_CALL]
            return date.today(), *(
                (name, db.execute(f'SELECT max(rowid) FROM "{name}"').fetchone()[0]) for name in said
            )

    # Rows for stewards

    def accounts(self) -> list[dict[str, Any]]:
        """The accounts, and when they were given their present token and role."""
        newest = "SELECT max(id) FROM accounts GROUP BY name"
        return self._rows(f"SELECT name, role, time FROM accounts WHERE id IN ({newest}) ORDER BY name")

    def granted(self, account: str, dataset: Dataset) -> bool:
        """Whether an account has a grant on a dataset."""
        with self._database.reading() as db:
            return grants.find(db, account, dataset.id) is not None

    def grants(self, account: str | None = None) -> list[dict[str, Any]]:
        """The present grants, with what was spent of each."""
        newest = "SELECT max(id) FROM grants GROUP BY account, dataset"
        rows = self._rows(
            "SELECT g.account, g.dataset AS number, d.catalog, d.schema, d.name AS dataset, g.epsilon, g.max_epsilon, g.until, g.synthetic,"
            " g.cost AS total, g.max_cost, d.budget, (SELECT total(a.cost) FROM account_charges a WHERE a.account = g.account AND"
            " a.dataset = g.dataset) AS spent, d.accounting, g.time FROM grants g JOIN datasets d ON d.id = g.dataset"
            f" WHERE g.id IN ({newest}) ORDER BY g.account, d.id"
        )
        for row in rows:
            full = None if row["synthetic"] is None else json.loads(row["synthetic"])
            row |= {"synthetic": full and quoted_name(*full)[1:-1].replace("''", "'"), "twin": full and full[2]}
        return [row for row in rows if account is None or row["account"] == account]

    def requests(self) -> list[dict[str, Any]]:
        """The requests that wait or waited for a steward, with the statement that asked first."""
        with self._database.reading() as db:
            return _requests(db)

    def audit(self) -> list[dict[str, Any]]:
        """What was asked, oldest first."""
        columns = "id AS entry, time, account, client, statement, outcome, detail, request, seconds"
        return self._rows(f"SELECT {columns} FROM audit ORDER BY id")

    def payers(self) -> dict[int, str]:
        """The number of each release that accounts have paid -> their names."""
        query = "SELECT release, group_concat(account, ', ') AS names FROM account_charges GROUP BY release"
        return {row["release"]: row["names"] for row in self._rows(query)}

    def _rows(self, query: str) -> list[dict[str, Any]]:
        with self._database.reading() as db:
            return [dict(row) for row in db.execute(query)]


def _requests(db: sqlite3.Connection) -> list[dict[str, Any]]:
    query = (
        "SELECT r.id AS request, r.time, r.account, d.catalog, d.schema, d.name AS dataset, r.function, r.mechanism,"
        " r.cost, r.epsilon, CASE WHEN e.request IS NULL THEN 'waiting' WHEN e.approved THEN 'approved' ELSE 'refused' END"
        " AS state, e.reason, e.steward, e.time AS decided_at, r.request_hash, r.request AS asked,"
        " (SELECT a.statement FROM audit a WHERE a.request = r.id AND a.account = r.account AND a.outcome = 'waiting'"
        " ORDER BY a.id LIMIT 1) AS statement"
        " FROM requests r JOIN datasets d ON d.id = r.dataset LEFT JOIN decisions e ON e.request = r.id ORDER BY r.id"
    )
    return [dict(row) for row in db.execute(query)]


def _known(db: sqlite3.Connection, account: object) -> str:
    """The name of an account that there is, in whatever case it was given."""
    known = account.strip().lower() if isinstance(account, str) else ""
    if grants.role(db, known) is None:
        name = known if _NAME.fullmatch(known) else "alice"
        raise DPError(f"there is no account {as_sql(account)}; make it: CALL dp_account('{name}', role := 'analyst').")
    return known


def _cost(dataset: Dataset, budget: Budget) -> float:
    return dataset.accounting.cost(budget.with_delta(dataset.cost_delta))


def _day(until: object) -> str:
    try:
        return date.fromisoformat(str(until)[:10]).isoformat()
    except ValueError:
        raise DPError(f"until is {as_sql(until)}; give a day, such as '2027-06-30'.") from None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
