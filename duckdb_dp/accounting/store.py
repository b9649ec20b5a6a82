"""Release files: noisy arrays as Arrow IPC files, written completely or not at all. No pickle and no code.

One row per array: `name` string, `shape` list of int64, `values` large list of float64 in C order.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa

from duckdb_dp.accounting.database import sync_folder
from duckdb_dp.arrow import lists, numbers, texts, to_numpy
from duckdb_dp.errors import DPError


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A release file that is written and durable, under a name that no reader looks for."""

    path: Path
    sha256: str
    bytes: int

    def publish(self) -> str:
        """Gives the file its final name and returns it; leftovers of crashed and losing draws of its release go.

        Call it with the ledger's write lock held and only for a release that is not stored yet: every other draft
        of it is then a leftover, or about to find that it lost.
        """
        final_path = self.path.with_suffix(".arrow")
        release = self.path.name.split("-")[0]
        for other in os.listdir(self.path.parent):  # noqa: PTH208  a pattern of each release's own would be compiled anew
            if other.startswith(f"{release}-") and other != self.path.name:
                with suppress(OSError):
                    (self.path.parent / other).unlink()
        self.path.rename(final_path)
        sync_folder(final_path.parent)
        return final_path.name

    def discard(self) -> None:
        """Deletes the draft, if it is still there."""
        with suppress(OSError):
            self.path.unlink()


def draft(folder: Path, release: int, arrays: Mapping[str, np.ndarray]) -> Draft:
    """Writes `arrays` to a fresh file in `folder`, durably.

    Raises:
        OSError: no space, or the folder cannot be written; nothing is left behind.
    """
    path = folder / f"{release:08d}-{uuid.uuid4().hex}.draft"
    try:
        with path.open("xb+") as file:
            batch = _batch(arrays)
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
            # Through the open file: who has stored this release meanwhile has deleted the draft, and that is no error.
            return Draft(path=path, sha256=digest(file), bytes=os.fstat(file.fileno()).st_size)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def digest(file: BufferedIOBase) -> str:
    """The SHA-256 of a whole file, in hex."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def check(path: Path, *, size: int, sha256: str | None) -> None:
    """Refuses a file that is not what was stored; without `sha256` only its size is looked at.

    Raises:
        OSError: the file is missing or cannot be read.
        ValueError: it has changed.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != size or (sha256 is not None and digest(file) != sha256):
            raise ValueError("its contents have changed")


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a release file, read-only and memory-mapped: shapes and float64 values as they were stored."""
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
    names, shapes, values = (batch.column(i) for i in range(3))
    flat = to_numpy(values.values)
    ends = to_numpy(values.offsets)
    return {
        name: flat[start:end].reshape(shape)
        for name, shape, start, end in zip(names.to_pylist(), shapes.to_pylist(), ends[:-1], ends[1:], strict=True)
    }


def _batch(arrays: Mapping[str, np.ndarray]) -> Any:
    for name, array in arrays.items():
        if array.dtype != np.float64:
            raise DPError(f"release array '{name}' is {array.dtype}: float64 works.")
    flat = [np.ascontiguousarray(array).reshape(-1) for array in arrays.values()]
    offsets = np.cumsum([0, *map(len, flat)], dtype=np.int64)
    values = np.concatenate(flat) if flat else np.empty(0)
    return pa.record_batch(
        {
            "name": texts(arrays),
            "shape": lists([numbers(np.array(array.shape, np.int64)) for array in arrays.values()], pa.int64()),
            "values": pa.LargeListArray.from_arrays(numbers(offsets), numbers(values)),
        }
    )
