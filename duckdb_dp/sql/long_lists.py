"""What a statement reads of long lists of labels and edges, which stand in it as one text."""

import json
import math

import numpy as np
import pyarrow as pa

from duckdb_dp import arrow
from duckdb_dp.counting.places import opened, places


def texts(text: str | None) -> list[str | None] | None:
    """The texts of a list, from its JSON; NULL for a text that is no such list."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, list) and {*map(type, found)} <= {str, type(None)} else None


def edges(text: str | None) -> int:
    """The number of a list of edges, which ``place`` knows from then on."""
    return opened(text or "")


def place(numbers: pa.Array, values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The last of the edges that is at most a value: 0 below all of them, and any for NULL and NaN.

    Privacy: no value decides whether it fails.
    """
    if not len(values):
        return pa.nulls(0, pa.int32())
    known = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    known = known.fill_null(math.nan) if known.null_count else known
    found = places(numbers[0].as_py(), arrow.to_numpy(known))
    return arrow.numbers(np.ascontiguousarray(found, dtype=np.int32))
