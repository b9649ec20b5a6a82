"""What is told, and done, when DuckDB fails in a question of an account: where rows of people are read, it may say something of one."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import final

from duckdb_dp.accounting.accounts import Accounts
from duckdb_dp.accounting.records import Dataset
from duckdb_dp.errors import DPError
from duckdb_dp.gateway.deadline import LateError
from duckdb_dp.gateway.errors import Unforeseen

STOPS, DAY = 3, 86_400.0
"""Statements of an account about one dataset that the time limit stops in so many seconds, until a steward looks at them."""


@final
class Stops:
    """When statements that read rows of people were stopped, unpaid, by account and dataset."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, int], deque[float]] = {}
        self._lock = threading.Lock()

    def add(self, account: str, dataset: int) -> int:
        """One more; how many there were in the last day."""
        now = time.monotonic()
        with self._lock:
            found = self._at.setdefault((account, dataset), deque())
            found.append(now)
            while found[0] < now - DAY:
                found.popleft()
            return len(found)


def check(accounts: Accounts, account: str, function: str, read: Callable[[], Dataset | None]) -> None:
    """Refuse, before a row is read, a question about a dataset whose grant such an error has ended.

    Raises:
        DPError: it has.
    """
    if accounts.suspended(account) and (dataset := read()) is not None:
        accounts.check(account, dataset, function)


def told(
    error: Unforeseen,
    *,
    bound: Callable[[], object],
    read: Callable[[], Dataset | None],
    suspend: Callable[[Dataset | None], None],
) -> DPError:
    """The error that an account is told.

    One that comes while a statement is bound reads no row, and none does where all answers are stored and paid. Any other may say whether
    a row satisfies a condition: the account asks nothing more of that dataset until a steward grants it anew, so that it is one bit that
    a person looks at, and not many. The error's own text, which may quote a value, is told to nobody.

    Args:
        error: what is told else.
        bound: binds the statement.
        read: the dataset whose rows it reads; None where all of its answers are stored and paid.
        suspend: ends the account's grant on a dataset, or all of them.
    """
    try:
        bound()
    except DPError:
        return error
    try:
        dataset, known = read(), True
    except DPError:
        dataset, known = None, False
    if dataset is not None or not known:
        suspend(dataset)
        about = "" if dataset is None else f" about '{dataset.name}'"
        return DPError(
            f"{error} Nothing more is answered{about} until the steward has looked at it, and grants it anew."
        )
    return error


def late(
    error: LateError, account: str, stops: Stops, read: Callable[[], Dataset | None], suspend: Callable[[Dataset], None]
) -> DPError:
    """The error that an account is told of a statement that was stopped, not all of it stored, while rows of people were read.

    A row may have made it slow, so that to be stopped is a bit of it: of these an account gets ``STOPS`` a day, and no more until a
    steward grants the dataset anew.

    Args:
        error: what is told else.
        account: its name.
        stops: those before.
        read: the dataset whose rows it reads; None where all of its answers are stored and paid.
        suspend: ends the account's grant on a dataset.
    """
    try:
        dataset = read()
    except DPError:
        return error
    if dataset is None:
        return error
    number = stops.add(account, dataset.id)
    if number < STOPS:
        return DPError(
            f"{error} After {STOPS} such stops in a day, of which this is number {number}, nothing more is answered about "
            f"'{dataset.name}' until the steward grants it anew."
        )
    suspend(dataset)
    return DPError(
        f"{error} This was stop number {number} in a day: nothing more is answered about '{dataset.name}' until the steward has looked "
        "at it, and grants it anew."
    )
