"""Processes in which statements on answers of dp_sql run: neither the memory nor the time that one takes is the gateway's."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import final

import pyarrow as pa

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.config import Limits
from duckdb_dp.gateway.sandbox import Sandbox
from duckdb_dp.sql.answer_size import MOST
from duckdb_dp.sql.signing import ACCOUNT, PARTS

IDLE = 8
"""Processes that are kept for the next statement, one of an account at most: one takes 0.4 s to start, and 60 MB."""

TRIAL, SHORTEST = 8, 1.0
"""A statement is tried on a few made-up rows for so many times less than it may take, as it is tried four times at most within its time;
and for so many seconds, which is what a busy machine may take."""

GIVEN = "_dp_told"

SAFE = "(in what stands above the answers, which are paid and stay)"


@final
class Aside:
    """Each process is one account's, and one statement's at a time: as many run as the account has statements.

    Args:
        limits: of each of them. Its rows are those that a statement may make that is charged.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = replace(limits, rows=max(limits.rows, MOST))
        self.most = limits.memory << 20
        """Bytes of what a statement works on: its process could not hold more, and this one need not."""
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, Sandbox] = OrderedDict()
        self._closed = False

    def tried(self, sql: str) -> dict[str, str]:
        """The columns, with their types, of a statement that reads nothing, for the account whose call is planned; it runs.

        Raises:
            DPError: DuckDB refuses it, or it takes too long, or too much memory.
        """
        with self._box(ACCOUNT.get() or "") as box:
            return box.described(sql, max(SHORTEST, self._limits.seconds / TRIAL))

    def done(self, account: str, rest: str, told: pa.Table, types: Sequence[str], said: str = SAFE) -> pa.Table:
        """The rows of a statement on answers.

        Args:
            account: whose it is.
            rest: the statement, which reads tables ``PARTS`` with a number.
            told: a column for each of these, of its rows as structs.
            types: of these columns, in SQL: Arrow has other ones.
            said: what errors end with.

        Raises:
            DPError: as ``tried``; or it makes too many rows.
        """
        if told.nbytes > self.most:
            raise DPError(
                f"answers and public tables have more than {self.most >> 20} MB; ask for fewer groups, or read smaller tables {said}"
            )
        tables = (
            f"{PARTS}{i} AS (SELECT unnest(CAST({name} AS {type_})) FROM {GIVEN} WHERE {name} IS NOT NULL)"
            for i, (name, type_) in enumerate(zip(told.column_names, types, strict=True))
        )
        with self._box(account) as box:
            try:
                box.give(GIVEN, told)
                return box.run(f"WITH {', '.join(tables)} SELECT * FROM ({rest})", {})
            except DPError as error:
                raise DPError(f"{str(error).rstrip('.')} {said}") from None
            finally:
                if box.alive:
                    box.drop(GIVEN, "main")

    @contextmanager
    def _box(self, account: str) -> Iterator[Sandbox]:
        with self._lock:
            box = self._idle.pop(account, None)
        if box is None or not box.alive:
            box = Sandbox(self._limits, lost="")
        try:
            yield box
        except DPError:
            self._keep(account, box)
            raise
        except BaseException:  # its caller does not wait any more, and what it would say next is not what is asked next
            box.close()
            raise
        self._keep(account, box)

    def _keep(self, account: str, box: Sandbox) -> None:
        with self._lock:
            ended = [self._idle.pop(account)] if account in self._idle else []
            self._idle[account] = box
            ended += [self._idle.popitem(last=False)[1] for _ in range(len(self._idle) - IDLE)]
            ended += [self._idle.pop(account)] if self._closed else []
        for each in ended:
            each.close()

    def close(self) -> None:
        """End them."""
        with self._lock:
            self._closed, ended = True, [*self._idle.values()]
            self._idle.clear()
        for each in ended:
            each.close()
