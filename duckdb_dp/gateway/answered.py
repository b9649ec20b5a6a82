"""Answers that an account was given before: it may read them again, so a dashboard that asks the same again is not planned again.

They are forgotten once anything in the ledger has changed that says what is declared, who may ask, or what was decided; charges and
the audit say nothing of that.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, final

import pyarrow as pa

FUNCTIONS = frozenset({"dp_marginals", "dp_quantiles", "dp_queries", "dp_sql"})
"""Whose answers are stored releases: the same call has the same rows."""

LOOK = 1.0
"""Seconds between two looks at the ledger."""


@final
class Answered:
    """Tables and schemas by a key, of the present state; the ones that were not used for longest make room.

    Args:
        state: tells the ledger's state apart from an earlier one.
        memory: bytes of tables that are kept.
    """

    def __init__(self, state: Callable[[], Hashable], memory: int) -> None:
        self._state, self._memory = state, memory
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._seen: Hashable = None
        self._looked = -LOOK
        self._held = 0

    def present(self) -> Hashable:
        """The present state, as of a second ago at most; what was kept of an earlier one is forgotten."""
        with self._lock:
            if time.monotonic() - self._looked >= LOOK:
                state = self._state()
                self._looked = time.monotonic()
                if state != self._seen:
                    self._seen, self._held = state, 0
                    self._known.clear()
            return self._seen

    def find(self, key: Hashable) -> Any:
        """What was kept under a key; None where nothing was. Call ``present`` before."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return None
            self._known.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, state: Hashable, found: pa.Table | pa.Schema) -> None:
        """Keep what was found while that was the state, unless it has changed since."""
        size = 1_000 + len(str(key)) + (found.nbytes if isinstance(found, pa.Table) else 100 * len(found))
        with self._lock:
            if state != self._seen or size > self._memory // 10:
                return
            self._held += size - self._known.pop(key, (None, 0))[1]
            self._known[key] = (found, size)
            while self._held > self._memory:
                self._held -= self._known.popitem(last=False)[1][1]
