"""What is told, and done, when DuckDB fails in a question of an account: where rows of people are read, it may say something of one."""

from collections.abc import Callable

import duckdb

from duckdb_dp.accounting.accounts import Accounts
from duckdb_dp.accounting.records import Dataset
from duckdb_dp.errors import DPError, first_line
from duckdb_dp.gateway.errors import Unforeseen


def check(accounts: Accounts, account: str, function: str, owed: Callable[[], Dataset | None]) -> None:
    """Refuse, before a row is read, a question about a dataset whose grant such an error has ended.

    Raises:
        DPError: it has.
    """
    if accounts.suspended(account) and (dataset := owed()) is not None:
        accounts.check(account, dataset, function)


def told(
    error: Unforeseen,
    *,
    bound: Callable[[], object],
    owed: Callable[[], Dataset | None],
    again: Callable[[], None],
    suspend: Callable[[Dataset | None], None],
) -> DPError:
    """The error that an account is told.

    One that comes while a statement is bound reads no row. One that comes back when the answers are stored and paid works on these
    alone, and is told as it is. Any other may say whether a row satisfies a condition: the account asks nothing more of that dataset
    until a steward grants it anew, so that it is one bit that a person looks at, and not many.

    Args:
        error: what is told else.
        bound: binds the statement.
        owed: the dataset that it would charge; None where all of it is stored and paid.
        again: runs it.
        suspend: ends the account's grant on a dataset, or all of them.
    """
    try:
        bound()
    except DPError:
        return error
    try:
        dataset, known = owed(), True
    except DPError:
        dataset, known = None, False
    if dataset is not None or not known:
        suspend(dataset)
        about = "" if dataset is None else f" about '{dataset.name}'"
        return DPError(
            f"{error} Nothing more is answered{about} until the steward has looked at it, and grants it anew."
        )
    try:
        again()
    except duckdb.Error as same:
        return DPError(f"{first_line(same)} (in what stands above the answers, which are paid and stay)")
    return error
