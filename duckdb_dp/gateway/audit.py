"""Writes the audit in the background: charges are durable before an answer leaves, and its row in the audit soon after."""

import queue
import threading
import time
from typing import Any, final

from duckdb_dp.accounting.accounts import Accounts
from duckdb_dp.errors import DPError
from duckdb_dp.gateway.errors import Log

GATHER = 0.05
"""Seconds for which rows are gathered that are then written in one transaction: one for each row takes as long as an answer."""

STATEMENT = 10_000
"""Characters of a statement in the audit."""


@final
class Audit:
    """Rows of the audit, written in the order in which they come, many in one transaction."""

    def __init__(self, accounts: Accounts, log: Log) -> None:
        self._accounts, self._log = accounts, log
        self._rows: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._write, daemon=True, name="audit")
        self._thread.start()

    def note(self, **row: Any) -> None:
        """Add a row: what ``Accounts.note_all`` takes."""
        text = row["statement"]
        if row["outcome"] == "waiting":  # a steward decides about all of it
            self._rows.put(row)
            return
        self._rows.put({**row, "statement": text if len(text) <= STATEMENT else f"{text[:STATEMENT]} [cut]"})

    def flush(self) -> None:
        """Wait until all is written."""
        self._rows.join()

    def close(self) -> None:
        """Write all there is, and end."""
        self._rows.put(None)
        self._thread.join()

    def _write(self) -> None:
        last = False
        while not last:
            rows = [self._rows.get()]
            if rows[0] is not None:
                time.sleep(GATHER)
            while len(rows) < 1000 and not self._rows.empty():
                rows.append(self._rows.get())
            last = None in rows
            try:
                self._accounts.note_all([row for row in rows if row is not None])
            except DPError as error:
                self._log.write("audit", error=str(error), lost=len(rows))
            except Exception as error:  # the audit goes on, whatever was in a row
                self._log.unforeseen(error, lost=len(rows))
            for _ in rows:
                self._rows.task_done()
