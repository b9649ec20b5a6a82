"""One served database: accounts sign in, and their sessions ask."""

import threading
import time
import weakref
from typing import Any, final

import pyarrow as pa

from duckdb_dp.errors import DPError
from duckdb_dp.gateway import twins
from duckdb_dp.gateway.audit import Audit
from duckdb_dp.gateway.broker import Broker
from duckdb_dp.gateway.config import Config
from duckdb_dp.gateway.errors import Log
from duckdb_dp.gateway.limits import Turnstile
from duckdb_dp.gateway.sandbox import Sandboxes
from duckdb_dp.gateway.session import Account, Session

FRESH, KNOWN = 1.0, 1_000
"""Seconds for which a token is known that was good, where it comes with every call; and the most that are known."""

REFUSED, AT_ONCE = 0.3, 4
"""Seconds that a sign-in takes that is refused, and how many are refused at the same time; further ones wait ten times as long at most."""


@final
class Gateway:
    """Safe to use from many threads.

    Args:
        config: what is served.
        log: where lines about what happens go; stderr by default.

    Raises:
        DPError: the database or its ledger cannot be opened.
    """

    def __init__(self, config: Config, log: Log | None = None) -> None:
        self.config, self.log = config, log or Log()
        self.broker = Broker(config.database, config.ledger, config.limits, self.log)
        self.turnstile, self.boxes = Turnstile(config.limits), Sandboxes()
        self.audit = Audit(self.broker.ledger.accounts, self.log)
        self._lock, self._strangers = threading.Lock(), threading.BoundedSemaphore(AT_ONCE)
        self._known: dict[str, tuple[Account, float]] = {}
        self._closed = False
        self.made: dict[twins.Full, twins.Full] = {}
        """The twins that this gateway made, which a grant has that names no other."""
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    @classmethod
    def open(cls, config: Config) -> "Gateway":
        """Open the database of a configuration."""
        return cls(config, None if config.log is None else Log(config.log.open("a", encoding="utf-8")))

    def sign_in(self, name: str | None, token: str, *, client: str) -> Account:
        """The account of a token; None for the name where a client sends the token alone.

        Raises:
            DPError: it is refused: the same text, and some time, whatever was wrong.
        """
        found = self.broker.ledger.accounts.of_token(token) if isinstance(token, str) and len(token) < 200 else None
        if found is None or (name is not None and found[0] != str(name).lower()):
            if self._strangers.acquire(timeout=10 * REFUSED):
                row = {"account": str(name)[:64], "client": client[:200], "statement": "sign in", "outcome": "refused"}
                try:
                    self.audit.note(**row, detail=None)
                    time.sleep(REFUSED)
                finally:
                    self._strangers.release()
            raise DPError("the name or the token is wrong; the steward makes new ones: CALL dp_account('alice').")
        account = Account(name=found[0], role=found[1])  # type: ignore[arg-type]
        with self._lock:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[token] = (account, time.monotonic() + FRESH)
        return account

    def recent(self, token: str) -> Account | None:
        """The account of a token that was good within the last second, without a look at the ledger; None for any other.

        For tokens that come with every call: a closed account is out within that second.
        """
        account, until = self._known.get(token, (None, 0.0))
        return account if until >= time.monotonic() else None

    def session(self, account: Account, *, client: str) -> Session:
        """A session of an account; its sandbox starts when it is first needed."""
        made = Session(self, account, client)
        self._sessions.add(made)
        return made

    def twins(self, account: str, *, by_dataset: bool = False) -> dict[str, str]:
        """Names in small letters -> full names, of the synthetic tables of an account's grants; or the names of their datasets."""
        rows = [row for row in self.grants(account) if row["synthetic"]]
        return {(row["dataset"] if by_dataset else row["twin"]).lower(): row["synthetic"] for row in rows}

    def grants(self, account: str | None = None) -> list[dict[str, Any]]:
        """The present grants, of one account or of all, each with its twin."""
        return twins.filled(self.broker.ledger.accounts.grants(account), self.made)

    def make_twins(self, epsilon: float) -> None:
        """Make a twin of each dataset that has none.

        Raises:
            DPError: one costs more than its dataset has left.

        Privacy: spends ``epsilon`` of each such dataset, once.
        """
        self.made = twins.make(self.broker, epsilon, self.log)

    def steward(self, account: Account) -> "Steward":
        """What a steward decides.

        Raises:
            DPError: the account is no steward's.
        """
        if account.role != "steward":
            raise DPError(f"'{account.name}' is no steward.")
        return Steward(self, account)

    def healthy(self) -> bool:
        """Whether the database and the ledger answer."""
        try:
            self.broker.ledger.budget_rows()
            return not self._closed and self.broker.answers()
        except DPError:
            return False

    def close(self, seconds: float = 60.0) -> None:
        """Let nothing more in, finish what runs, and close the database."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.turnstile.close(seconds)
        for session in list(self._sessions):
            session.close()
        self.audit.close()
        self.broker.close()


@final
class Steward:
    """The queue, accounts, grants, the ledger and the audit, for one steward."""

    def __init__(self, gateway: Gateway, account: Account) -> None:
        self._accounts, self._ledger, self._gateway = gateway.broker.ledger.accounts, gateway.broker.ledger, gateway
        self._name = account.name

    def requests(self) -> pa.Table:
        """What waits for a steward, and what was decided."""
        self._gateway.audit.flush()  # the statement of a request is there
        return _rows(self._accounts.requests())

    def price(self, account: str, statement: str) -> pa.Table:
        """What a statement would cost an account, as ``Session.price``.

        Raises:
            DPError: it would be refused.
        """
        session = Session(self._gateway, Account(name=account, role="analyst"), "")
        try:
            return session.priced(statement)
        finally:
            session.close()

    def approve(self, request: int) -> None:
        """Let an account ask a request that waits, once.

        Raises:
            DPError: there is none, or it was decided.
        """
        self._accounts.decide(request, approved=True, reason=None, steward=self._name)

    def refuse(self, request: int, reason: str) -> None:
        """Refuse a request that waits.

        Raises:
            DPError: there is none, or it was decided.
        """
        self._accounts.decide(request, approved=False, reason=reason, steward=self._name)

    def accounts(self) -> pa.Table:
        """The accounts."""
        return _rows(self._accounts.accounts())

    def grants(self) -> pa.Table:
        """The grants, with what is spent of each."""
        return _rows(self._gateway.grants())

    def ledger(self) -> pa.Table:
        """Every charge, with the accounts that paid for its release; none of those that the curator made."""
        payers = self._accounts.payers()
        rows = self._ledger.ledger_rows()
        return _rows([{"release": row["release"], "account": payers.get(row["release"]), **row} for row in rows])

    def budget(self) -> pa.Table:
        """What each dataset has spent and has left."""
        return _rows(self._ledger.budget_rows())

    def audit(self) -> pa.Table:
        """What was asked by whom."""
        self._gateway.audit.flush()
        return _rows(self._accounts.audit())


def _rows(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows)
