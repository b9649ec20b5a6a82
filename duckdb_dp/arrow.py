"""Arrow arrays from and to numpy and Python.

Where pandas is installed, ``pa.array`` and ``to_numpy`` import it before they convert anything, which takes 0.3 s. What a first
answer needs is converted here without it.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa


def to_numpy(array: pa.Array) -> np.ndarray:
    """The numbers of an array without NULLs, in the array's own memory and read-only; shape (len(array),)."""
    return np.from_dlpack(array)


def numbers(values: np.ndarray) -> pa.Array:
    """The numbers of a numpy array, flat, in its own memory where they follow one another there."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])


def known(values: np.ndarray, missing: np.ndarray) -> pa.Array:
    """The same with NULL where ``missing``, of the same shape, is true."""
    flat, valid = np.ascontiguousarray(values).reshape(-1), np.packbits(~missing.reshape(-1), bitorder="little")
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [pa.py_buffer(valid), pa.py_buffer(flat)])


def texts(values: Iterable[str | None]) -> pa.Array:
    """Texts and NULLs, in Arrow's own memory."""
    builder = pa.lib.StringBuilder()
    builder.append_values(list(values))
    return builder.finish()


def lists(values: Sequence[pa.Array], type_: pa.DataType) -> pa.Array:
    """One list for each array; ``type_`` is that of their elements."""
    ends = np.array([*accumulate(map(len, values), initial=0)], np.int32)
    elements = values[0] if len(values) == 1 else pa.concat_arrays(values) if values else pa.nulls(0, type_)
    return pa.ListArray.from_arrays(numbers(ends), elements)
