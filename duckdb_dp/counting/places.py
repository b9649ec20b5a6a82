"""The place of a number among many sorted ones, in arrays: ``encode`` writes the SQL that asks for it.

Numbers go to a statement as base64 of their doubles, are read once while it runs, and are known by a hash of them from then on.
"""

import base64
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array

MOST = 8
"""Edges of one bucket up to which all of them are compared."""

KEPT = 2**26
"""Edges of all lists that are kept, in 0.8 GB: more than one statement has, whose counts would take far more."""


def packed(numbers: Sequence[float] | Array) -> str:
    """Numbers as base64 of their doubles."""
    return base64.b64encode(np.asarray(numbers, dtype="<f8").tobytes()).decode()


@final
@dataclass(frozen=True, eq=False)
class Places:
    """Sorted numbers, with an index of equal buckets.

    Attributes:
        edges: the numbers, never decreasing and finite, and behind them one that no value reaches: NaN.
        before: for each bucket, the place of the last edge in lower ones, or -1.
        most: edges of one bucket, at most.
    """

    edges: Array
    before: NDArray[np.int32]
    most: int

    @classmethod
    def of(cls, numbers: Array) -> "Places":
        """The index: as many buckets as numbers."""
        found = cls(np.append(numbers, np.nan), np.zeros(0, dtype=np.int32), 0)
        bucket = found._bucket(numbers)
        before = np.searchsorted(bucket, np.arange(len(numbers) + 1)).astype(np.int32) - np.int32(1)
        return cls(found.edges, before, int(np.bincount(bucket).max()))

    def place(self, values: Array) -> NDArray[np.int32]:
        """Of each value, that of the last edge at most as large; 0 for smaller ones, and any for NaN, which no domain holds."""
        if self.most > MOST:
            return np.maximum(np.searchsorted(self.edges[:-1], values, side="right") - 1, 0).astype(np.int32)
        found: NDArray[np.int32] = self.before.take(self._bucket(values))
        for _ in range(self.most):
            found += self.edges.take(found + 1) <= values
        return np.maximum(found, np.int32(0))

    def _bucket(self, values: Array) -> NDArray[np.int32]:
        """Never decreasing in the values, however it is rounded: so the edges of lower buckets are lower."""
        count, half = len(self.edges) - 1, self.edges[0] / 2
        span = max(float(self.edges[-2] / 2 - half), float(np.finfo(np.float64).tiny))
        with np.errstate(all="ignore"):
            share = (values / 2 - half) / span  # halves do not overflow
            share *= count
            found: NDArray[np.int32] = np.fmax(np.fmin(share, count), 0.0).astype(np.int32)
        return found


_known: OrderedDict[int, Places] = OrderedDict()
_lock = Lock()


def opened(text: str) -> int:
    """The number of a list in ``packed`` form, which is kept.

    Raises:
        DPError: it is no such list.
    """
    try:
        edges = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8")
    except ValueError:
        edges = np.zeros(0)
    if not len(edges) or not np.isfinite(edges).all() or (np.diff(edges) < 0).any():
        raise DPError("_dp_edges is for statements that dp_ functions write; call those.")
    number = int.from_bytes(blake2b(edges.tobytes(), digest_size=8).digest(), "little", signed=True)
    with _lock:
        known = number in _known
    found = None if known else Places.of(edges)
    with _lock:
        if found is not None:
            _known[number] = found
        _known.move_to_end(number)
        held = sum(len(each.edges) for each in _known.values())
        while held > KEPT and len(_known) > 1:
            held -= len(_known.popitem(last=False)[1].edges)
    return number


def places(number: int, values: Array) -> NDArray[np.int32]:
    """The places of values in a list that was opened.

    Raises:
        DPError: it is not kept any more.
    """
    with _lock:
        found = _known.get(number)
    if found is None:
        raise DPError("a list of edges is not known any more; run the statement again.")
    return found.place(values)
