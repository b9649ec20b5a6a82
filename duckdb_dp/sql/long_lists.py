"""What a statement reads of long lists of labels and edges, which stand in it as one text."""

import json

import numpy as np
import pyarrow as pa

from duckdb_dp import arrow
from duckdb_dp.counting.places import read


def texts(text: str | None) -> list[str | None] | None:
    """The texts of a list, from its JSON; NULL for a text that is no such list."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, list) and {*map(type, found)} <= {str, type(None)} else None


def numbers(packed: pa.Array | pa.ChunkedArray, columns: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The numbers of each list, or a column of their buckets."""
    found = []
    for text, column in zip(packed.to_pylist(), columns.to_pylist(), strict=True):
        listed, places = read(text)
        found.append(listed if column is None or places is None else places.column(column))
    ends = np.cumsum([0, *map(len, found)])
    return pa.ListArray.from_arrays(
        arrow.numbers(ends.astype(np.int32)), arrow.numbers(np.concatenate([np.zeros(0), *found]))
    )
