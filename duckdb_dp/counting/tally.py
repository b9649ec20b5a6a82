"""Many blocks counted in one pass: the rows' cell numbers are handed over by the statement, a few thousand rows at a time.

A GROUP BY hashes a row for each block, which takes ten times as long as adding 1 to a cell of a table in the processor's
caches; and a statement of a thousand GROUP BYs takes seconds to plan. Private: only ``private.py`` reads the counts.
"""

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.counting.counts import LARGEST_DENSE, Blocks
from duckdb_dp.domain.domain import Clique, Domain, canonical

FEW_BLOCKS = 16
"""No more blocks than this are counted by GROUP BYs. On 10 million rows and 2 threads, 17 take 4.4 s either way; on few rows
a tally of so many takes a tenth of the time."""

LARGEST_CODE = 1 << 16
"""Cell numbers are handed over as USMALLINT."""

FEWEST, MOST = 1 << 14, 1 << 18
"""Rows that are counted at a time: their keys should fit into the processor's caches, and be more than most blocks' cells."""

OPEN = "tally"
"""Key of the JSON object that stands for counted blocks, in the place of their names."""


def tallied(domain: Domain, blocks: Sequence[Clique]) -> bool:
    """Whether blocks are tallied: many of them, and none too large. A function of the domain alone."""
    return (
        len(blocks) > FEW_BLOCKS
        and max(map(domain.cells, blocks)) <= LARGEST_DENSE
        and max(domain.sizes.values()) <= LARGEST_CODE
    )


def described(domain: Domain, blocks: Sequence[Clique]) -> str:
    """What a ``Tally`` needs to know, as JSON."""
    return canonical({"sizes": list(domain.sizes.items()), "blocks": blocks})


@final
class Tally:
    """The counts of several blocks, which grow as rows are added.

    Args:
        domain: the attributes, in the order in which a row has their cell numbers.
        blocks: what to count.

    Raises:
        MemoryError: the counts do not fit into memory.
    """

    def __init__(self, domain: Domain, blocks: Sequence[Clique]) -> None:
        self.rows = 0
        self.failed = False
        self._lock = threading.Lock()
        self._place = {name: i for i, name in enumerate(domain.attributes)}
        self._sizes = domain.sizes
        self._counts = {block: np.zeros(domain.cells(block), dtype=np.int64) for block in blocks}
        # Blocks that differ in the last attribute follow one another, and share the keys of the others.
        self._blocks = sorted(blocks)
        cells = sum(map(domain.cells, blocks)) // max(1, len(blocks))
        self._codes = np.empty((len(domain.sizes), min(max(FEWEST, cells), MOST)), dtype=np.uint16)
        self._held = 0

    def add(self, flat: NDArray[np.uint16]) -> None:
        """Count rows, from their cell numbers one row after another. Several threads may do so at once."""
        codes = flat.reshape(-1, len(self._place))
        with self._lock:
            self.rows += len(codes)
            while len(codes):
                taken = codes[: self._codes.shape[1] - self._held]
                self._codes[:, self._held : self._held + len(taken)] = taken.T
                self._held += len(taken)
                codes = codes[len(taken) :]
                if self._held == self._codes.shape[1]:
                    self._count()

    def cells(self) -> Blocks:
        """The non-empty cells of each block, in the form of ``Counts``; no rows can be added after."""
        with self._lock:
            self._count()
            found = {}
            for block in self._blocks:
                counts = self._counts.pop(block)
                keys = np.flatnonzero(counts)
                found[block] = (keys, counts[keys])
            return found

    def _count(self) -> None:
        """Count the rows that are held; a block's cells are in row-major order."""
        codes = self._codes[:, : self._held].astype(np.int64)
        for shared, blocks in itertools.groupby(self._blocks, lambda block: block[:-1]):
            start = np.zeros(self._held, dtype=np.int64)
            for name in shared:
                start = start * self._sizes[name] + codes[self._place[name]]
            for block in blocks:
                key = start if not block else start * self._sizes[block[-1]] + codes[self._place[block[-1]]]
                self._counts[block] += np.bincount(key, minlength=len(self._counts[block]))
        self._held = 0


@final
class Tallies:
    """The tallies of the statements that are running. Each is opened, added to and taken by one statement.

    A statement that fails leaves its tally behind, until the same connection runs another one.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[int, int, Tally]] = {}
        self._lock = threading.Lock()

    def open(self, description: str, connection: int, statement: int) -> int:
        """A new tally of what ``described`` says, for a statement of a connection; its number.

        Every run of this is another tally: where DuckDB copies a part of a statement, each copy has its own.
        """
        described = json.loads(description)
        tally = Tally(Domain(dict(described["sizes"])), [tuple(block) for block in described["blocks"]])
        with self._lock:
            number = next(self._numbers)
            left = [n for n, (c, s, _) in self._open.items() if c == connection and s != statement]
            for old in left:
                del self._open[old]
            self._open[number] = (connection, statement, tally)
            return number

    def add(self, number: int, codes: Callable[[], NDArray[np.uint16]]) -> None:
        """Add what reads the cell numbers of rows. Never raises: the error would show something of private rows."""
        _, _, tally = self._open.get(number, (0, 0, None))
        if tally is None:
            return
        try:
            tally.add(codes())
        except Exception:
            tally.failed = True

    def taken(self, number: int, rows: int) -> Blocks:
        """The counts of a tally, which is closed.

        Args:
            number: what ``open`` returned.
            rows: how many rows the statement has added.

        Raises:
            RuntimeError: it has other rows, so that a row might count twice.
        """
        with self._lock:
            _, _, tally = self._open.pop(number, (0, 0, None))
        if tally is None or tally.failed or tally.rows != rows:
            raise RuntimeError("rows were not counted once each")
        return tally.cells()
