"""The ledger: what is protected, what was charged, and where releases are stored. Its entries are never changed or deleted."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from duckdb_dp.accounting import attributes, budget_filter, grants, journal, readable, store, tables
from duckdb_dp.accounting.accounts import Accounts
from duckdb_dp.accounting.database import Database
from duckdb_dp.accounting.event import Event
from duckdb_dp.accounting.families import Families
from duckdb_dp.accounting.history import Charge
from duckdb_dp.accounting.periods import Periods, check_whole
from duckdb_dp.accounting.public import Public
from duckdb_dp.accounting.records import Dataset, Release
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Dataset", "Ledger", "Release", "hash_request"]


@final
class Ledger:
    """The ledger of one database: the folder `path` with `ledger.sqlite` and `releases/`, made if missing.

    Safe across threads and processes: each method is one transaction on a connection of its own.
    Whether a method raises, and what it says, depends on declarations, requests and charges, never on data.

    Args:
        path: the folder, such as `<database>.dp`; not on a network file system without locks.
        timeout: how long to wait for another process, in seconds.

    Raises:
        DPError: the folder cannot be made or written; its ledger is locked, damaged, missing beside its releases, or
            of a newer version. So too every method. What was charged stays charged.
    """

    def __init__(self, path: Path, *, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self._database = Database(path=self.path / "ledger.sqlite", timeout=timeout)
        self._database.prepare()
        self.public, self.families = Public(self._database), Families(self._database)
        self.accounts, self.periods = Accounts(self._database), Periods(self._database)
        self.account: str | None = None
        self._verified: set[str] = set()  # release files whose digest was checked

    def asked_by(self, account: str | None) -> Ledger:
        """The same ledger as an account of the gateway sees it: it pays from its grant, and reads what it may read."""
        seen = copy(self)
        seen.account = account
        return seen

    def held(self) -> AbstractContextManager[None]:
        """While a block runs, this thread's reads share one connection, which takes less time."""
        return self._database.held()

    def unit_key(self) -> str:
        """The secret key, in hex, of the hash that chooses which rows of a unit are kept."""
        with self._database.reading() as db:
            return bytes(db.execute("SELECT key FROM secret").fetchone()["key"]).hex()

    # Declarations

    def protect(
        self,
        *,
        catalog: str,
        schema: str,
        name: str,
        budget: Budget,
        accounting: str | None = None,
        delta: float | None = None,
        unit: str | None = None,
        max_rows: int | str = 1,
        discovery_delta: float | None = None,
    ) -> Dataset:
        """Declares a table private, once and for all. The same declaration again returns the existing dataset.

        Args:
            catalog, schema, name: the table; ASCII case does not matter, as in DuckDB.
            budget: all that may ever be spent on the table.
            accounting: 'gdp', 'zcdp' or 'pure'; by default what suits the budget.
            delta: for an epsilon typed without one; with a rho or mu, the delta at which to show epsilons.
            unit: the column that names the protected unit; None when each row is one.
            max_rows: how many rows of a unit are kept; 'auto' where each request chooses that privately.
            discovery_delta: the part of delta that is kept for thresholds, which find unknown values.

        Raises:
            DPError: the table is declared differently, or the declaration is not possible.

        Privacy: states a bound; spends nothing.
        """
        declared = tables.declaration(
            name=name,
            budget=budget,
            accounting=accounting,
            delta=delta,
            unit=unit,
            max_rows=max_rows,
            discovery_delta=discovery_delta,
        )
        with self._database.writing("nothing was declared") as db:
            existing = tables.find_dataset(db, catalog, schema, name)
            if existing is None:
                existing = tables.insert_dataset(db, (catalog, schema, name), budget, declared)
        check_whole(existing)
        if existing.member or any(getattr(existing, field) != value for field, value in declared.items()):
            raise DPError(f"{existing} is declared already, and a declaration stays: repeat it as it is.")
        return existing

    def dataset(self, catalog: str, schema: str, name: str) -> Dataset | None:
        """The protected table of that name, or None. An account is refused where it has no grant on it."""
        with self._database.reading() as db:
            found = tables.find_dataset(db, catalog, schema, name)
            if found is not None and self.account is not None:
                grants.granted(db, self.account, found)
            return found

    def datasets(self) -> list[Dataset]:
        """All protected tables, in the order of their declaration; those of one dataset have its number."""
        return list(self._database.known("datasets", tables.datasets))

    def declare(self, dataset: Dataset, name: str, spec: str | None) -> None:
        """Declares an attribute's domain anew: canonical JSON, which the ledger only keeps; None takes the declaration back.

        Privacy: a domain is public knowledge; spends nothing.
        """
        self.declare_all(dataset, {name: spec})

    def declare_all(self, dataset: Dataset, specs: Mapping[str, str | None]) -> None:
        """The same of many attributes, name -> spec: all of them are declared, or none.

        Privacy: domains are public knowledge; spends nothing.
        """
        with self._database.writing("nothing was declared") as db:
            attributes.declare(db, dataset, specs)

    def attributes(self, dataset: Dataset) -> list[tuple[str, str]]:
        """The current (name, spec) of every attribute, in the order of their first declaration."""
        whose = "attributes", dataset.id, dataset.member and dataset.member.id
        found = self._database.known(whose, lambda db: attributes.current(db, dataset))
        return [(row["name"], row["spec"]) for row in found]

    def declare_link(self, dataset: Dataset, spec: str, extends: str | None = None) -> None:
        """Declares which tables a dataset's rows refer to, once and for all; the same spec again changes nothing.

        Args:
            dataset: the table with the references.
            spec: canonical JSON, which the ledger only keeps.
            extends: an earlier spec that says the same of other tables, and is replaced.

        Raises:
            DPError: other references are declared.

        Privacy: foreign keys are public knowledge; spends nothing.
        """
        with self._database.writing("nothing was declared") as db:
            tables.declare_link(db, dataset, spec, extends)

    def link(self, dataset: Dataset) -> str | None:
        """The current spec of a dataset's references; None when none was declared."""
        return self._database.known(("link", dataset), lambda db: tables.current_link(db, dataset))

    # Charges

    def find(self, request_hash: str, *, private: bool = True) -> Release | None:
        """The newest release of a request, 'charged' or 'stored'; None when it was never charged, or not by this account."""
        with self._database.reading() as db:
            if self.account is not None:
                return grants.own_release(db, self.account, request_hash, private)
            return tables.newest_release(db, "c.request_hash = ? AND c.private = ?", request_hash, private)

    def named(self, name: str, *, private: bool = True) -> Release | None:
        """The release that was given that name, or None. Accounts have names of their own."""
        with self._database.reading() as db:
            found = tables.named_release(db, grants.own_name(self.account, name) or name, private)
            return found if self._paid(db, found) else None

    def _paid(self, db: sqlite3.Connection, found: Release | None) -> bool:
        return found is None or self.account is None or grants.paid(db, self.account, found.id)

    def release(self, key: int | str) -> Release:
        """The stored release of that number or name.

        Raises:
            DPError: there is none, or it is charged but not stored yet, or an account may not read it.
        """
        with self._database.reading() as db:
            if self.account is not None:
                return grants.release_of(db, self.account, key)
            return tables.stored_release(db, key)

    def newest(self, function: str, most: int, *, private: bool) -> list[tuple[int, str]]:
        """The numbers of the newest stored releases of an SQL function, and the hashes of their requests; an account's own."""
        with self._database.reading() as db:
            seen = None if self.account is None else grants.readable(db, self.account)
            return tables.newest_stored(db, function, most, private=private, seen=seen)

    def charge(
        self,
        *,
        dataset: Dataset,
        function: str,
        request: str,
        mechanism: str,
        event: Event,
        name: str | None = None,
        fresh_key: str | None = None,
        private: bool = True,
        choose: Callable[[], Sequence[int]] | None = None,
    ) -> Release:
        """Charges a request once, ever; durable when it returns. Call it before any other noise is drawn.

        A request that was charged before is returned as it is, at no new cost: load it when it is 'stored'; draw or finish
        it (see `drawing`) and store it when it is only 'charged'. All within one transaction, so across threads and
        processes a request is charged once and the sum of costs stays within the budget: a fully adaptive filter.

        Args:
            dataset: what is asked about.
            function: the SQL function, for the error's text and the reader of the ledger.
            request: canonical JSON of all that identifies the request: function, dataset, domain, unit, arguments.
            mechanism: which mechanism answers it.
            event: the full cost of the request. The noise must be calibrated to at most cost * (1 - 2e-9).
            name: a name for the release, for good; one that the request's own release has already means that release.
            fresh_key: for `fresh := true`, one key per statement: charges anew, once for it.
            private: False for noise from a seeded source. Such a release is never found by a private request.
            choose: draws, once ever, what the release begins with; stored in the same transaction, as `choices`.

        Raises:
            DPError: more than what remains, or a name in use for another release; nothing is charged.

        Privacy: spends `event`.
        """
        known = {"function": function, "request": request, "mechanism": mechanism}
        asked = known | {"request_hash": hash_request(request)}
        name = grants.own_name(self.account, name)
        try:
            with self._database.writing("nothing was charged") as db:
                tables.check_dataset(db, dataset)
                keys: dict[str, Any] = {"name": name, "fresh_key": fresh_key, "private": private}
                own = None
                if self.account is not None and fresh_key is None:
                    own = grants.own_release(db, self.account, asked["request_hash"], private)
                with grants.told(db, self.account, dataset, function, event):
                    release = own or tables.find_or_charge(db, dataset, event, **asked, **keys)
                tables.check_same(release, dataset, function, event)
                if self.account is not None:
                    grants.pay(db, self.account, dataset, release, function)
                if name is not None:
                    tables.give_name(db, name, release)
                if choose is None or release.state != "charged":
                    return release
                return replace(release, choices=tables.choices(db, release, choose))
        except grants.Waiting as waiting:
            cost = event.cost(dataset.accounting)
            raise self.accounts.waiting(self.account or "", dataset, cost, str(waiting), **asked) from None

    def spent(self, dataset: Dataset) -> float:
        """The sum of the costs charged so far, in the dataset's own unit."""
        with self._database.reading() as db:
            return budget_filter.spent(db, dataset)

    def remaining(self, dataset: Dataset) -> float:
        """What may still be charged, in the dataset's own unit; to an account, no more than its grant has left."""
        with self._database.reading() as db:
            spent = budget_filter.spent(db, dataset)
            return dataset.left(spent) if self.account is None else grants.left(db, self.account, dataset)

    def discovery_remaining(self, dataset: Dataset) -> float:
        """What thresholds may still take of the dataset's `discovery_delta`."""
        with self._database.reading() as db:
            return dataset.discovery_left(budget_filter.discovery_spent(db, dataset))

    def charges(self, dataset: Dataset) -> list[Charge]:
        """All charges of a dataset, oldest first, with their events; to an account, those of what it paid."""
        with self._database.reading() as db:
            return [Charge(**row) for row in readable.charge_rows(db, dataset, self.account)]

    # Releases

    @contextmanager
    def drawing(self, release: Release) -> Iterator[journal.Journal | None]:
        """The journal of a charged release, for the one process that draws it; None where another has stored it meanwhile.

        Steps that an earlier attempt has kept are in it. Once the release is stored, the journal is deleted.

        Raises:
            DPError: another process is at it for too long, or the journal cannot be written.
        """
        # A charge has its own journal: after a ledger was restored, its number may be that of another one's.
        own = hash_request(f"{release.request_hash} {release.charged_at}")[:16]
        path = self.path / "releases" / f"{release.id:08d}.{own}.journal"
        with journal.journal(path, f"release {release.id}") as held:
            yield None if self._stored(release) else held
        if self._stored(release):
            journal.discard(path)

    def steps(self, number: int) -> tuple[Release, list[journal.Step]]:
        """A release that is charged, with the steps that it has taken so far; none once it is stored.

        Raises:
            DPError: there is no such release, or another process is at it for too long.
        """
        with self._database.reading() as db:
            seen = self.account is None or number in grants.readable(db, self.account)
            release = tables.newest_release(db, "c.id = ?", number) if seen else None
        if release is None:
            raise DPError(f"there is no release {number}; FROM dp_releases() lists them.")
        with self.drawing(release) as held:
            return release, [] if held is None else held.taken()

    def _stored(self, release: Release) -> bool:
        with self._database.reading() as db:
            return db.execute("SELECT 1 FROM stored WHERE release = ?", (release.id,)).fetchone() is not None

    def store(self, release: Release, arrays: Mapping[str, np.ndarray]) -> None:
        """Stores the noisy float64 arrays of a charged release, durably. The first to store a release wins.

        When two processes draw all at once for one charge, only the first draw is kept, and the other is deleted unseen:
        both draws together would leak more than was charged. So nothing drawn may be shown, returned or logged; after
        `store`, always `load`. What is drawn step by step is drawn in `drawing`, by one process.

        Raises:
            DPError: disk full, or no access. The release stays charged; the same request finishes it at no new cost.

        Privacy: post-processing.
        """
        later = f"release {release.id} is charged and the same request finishes it at no new cost"
        try:
            draft = store.draft(self.path / "releases", release.id, arrays)
            try:
                with self._database.writing(later) as db:
                    if db.execute("SELECT 1 FROM stored WHERE release = ?", (release.id,)).fetchone() is None:
                        written = {"file": draft.publish(), "sha256": draft.sha256, "bytes": draft.bytes}
                        tables.insert(db, "stored", release=release.id, **written)
            finally:
                draft.discard()
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise DPError(
                f"'{self.path / 'releases'}' cannot take a release ({why}); {later} once that works."
            ) from error

    def load(self, release: Release) -> dict[str, np.ndarray]:
        """The arrays of a stored release, read-only and memory-mapped.

        Raises:
            DPError: not stored yet, or its file is missing or damaged.

        Privacy: post-processing.
        """
        with self._database.reading() as db:
            row = db.execute("SELECT * FROM stored WHERE release = ?", (release.id,)).fetchone()
        if row is None:
            raise tables.not_stored(release, release.id)
        path = self.path / "releases" / Path(row["file"]).name
        try:
            # The digest is taken once per ledger object and file, the size every time.
            store.check(path, size=row["bytes"], sha256=None if path.name in self._verified else row["sha256"])
            arrays = store.read(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "its contents have changed"
            raise DPError(
                f"release {release.id} cannot be read from '{path}' ({why}): restore the file from a backup, or ask "
                "with fresh := true, which is charged anew; a second draw for the same charge would leak."
            ) from error
        self._verified.add(path.name)
        return arrays

    # Reports

    def releases(self) -> list[dict[str, Any]]:
        """The rows of dp_releases: one per release, oldest first."""
        with self._database.reading() as db:
            return grants.own_rows(db, self.account, readable.release_rows(db))

    def ledger_rows(self) -> list[dict[str, Any]]:
        """The rows of dp_ledger: one per charge, oldest first, with all that was recorded."""
        with self._database.reading() as db:
            return grants.own_rows(db, self.account, readable.ledger_rows(db))

    def budget_rows(self) -> list[dict[str, Any]]:
        """The rows of dp_budget: one per dataset."""
        with self._database.reading() as db:
            return readable.budget_rows(db, self.account)


def hash_request(request: str) -> str:
    """The SHA-256 of a request's canonical JSON, in hex: the identity of its release."""
    return hashlib.sha256(request.encode()).hexdigest()
