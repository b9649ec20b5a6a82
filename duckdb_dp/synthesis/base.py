"""What all syntheses share: synthetic tables as a statement has read them, and random numbers for post-processing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import pyarrow as pa

from duckdb_dp.counting.counts import words
from duckdb_dp.domain.domain import Attribute, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable

if TYPE_CHECKING:
    from duckdb_dp.reconstruct.junction import Codes

Run = Callable[[PrivateQueryable], Mapping[str, Array] | None]
"""(``PrivateQueryable``) -> the arrays that are stored; None while further steps are to come, another time."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticTable:
    """A synthetic table as a statement has read it, in the order of its key; without a key, of its cells.

    Attributes:
        rows: how many it has.
        key: the columns of its key, whole numbers or texts.
        outside: for each attribute, how many rows hold a value outside its domain.
        words: the cell of each row in the joint domain of its attributes, as ``counting.counts.words`` splits it.
        distinct: whether no two rows have the same key, and no key has a NULL.
        fingerprint: DuckDB's version and its own digest of the rows; fast, but comparable only within one version.
    """

    rows: int
    key: tuple[pa.Array, ...]
    outside: tuple[int, ...]
    words: tuple[Integers, ...]
    distinct: bool
    fingerprint: str

    @classmethod
    def read(
        cls, rows: int, key: Sequence[pa.Array], outside: Sequence[int], words: Sequence[Integers], fingerprint: str
    ) -> SyntheticTable:
        """From columns in any order."""
        columns = list(key) or [pa.array(word) for word in words]
        known = not any(column.null_count for column in key)
        distinct = False
        if known and not any(outside):
            in_order, distinct = _order(columns)
            if not in_order:
                import pyarrow.compute as pc  # for import time: no marginal needs it

                names = [str(i) for i in range(len(columns))]
                places = pc.sort_indices(pa.table(columns, names), [(name, "ascending") for name in names])
                key = [column.take(places) for column in key]
                words = [word[places.to_numpy()] for word in words]
                _, distinct = _order([column.take(places) for column in columns])
        return cls(
            rows=rows,
            key=tuple(key),
            outside=tuple(outside),
            words=tuple(words),
            distinct=distinct,
            fingerprint=fingerprint,
        )

    @property
    def texts(self) -> bool:
        """Whether its key is texts."""
        return any(pa.types.is_string(column.type) for column in self.key)

    @property
    def digest(self) -> str:
        """A text that changes with the contents."""
        digest = hashlib.blake2b(str(self.rows).encode(), digest_size=16)
        for column in self.key:
            digest.update(_bytes(column))
        for word in self.words:
            digest.update(np.ascontiguousarray(word).tobytes())
        return digest.hexdigest()

    def codes(self, attributes: tuple[Attribute, ...]) -> Codes:
        """Cell numbers, shape (rows, attributes)."""
        domain = Domain({attribute.name: attribute.size for attribute in attributes})
        codes = np.zeros((self.rows, len(attributes)), dtype=np.int32)
        for word, group in zip(self.words, words(domain, domain.attributes), strict=True):
            for name in group:
                after = domain.cells(group[group.index(name) + 1 :])
                codes[:, domain.attributes.index(name)] = word // after % domain.sizes[name]
        return codes

    def check_values(self, name: str, attributes: tuple[Attribute, ...]) -> None:
        """Refuse a table that is empty or has values outside the domain.

        Raises:
            DPError: the table is such a one.
        """
        if not self.rows:
            raise DPError(f"{name} has no rows; make some with dp_synthesize.")
        for attribute, outside in zip(attributes, self.outside, strict=True):
            if outside:
                raise DPError(
                    f"{name} has a value of '{attribute.name}' outside its declared domain; see "
                    "dp_domain, or make the rows with dp_synthesize."
                )


def _order(columns: Sequence[pa.Array]) -> tuple[bool, bool]:
    """(whether the rows are in ascending order, whether no two of them are equal)."""
    import pyarrow.compute as pc  # for import time

    equal = np.ones(max(len(columns[0]) - 1, 0), dtype=bool)
    for column in columns:
        before, after = column[:-1], column[1:]
        if np.any(equal & np.asarray(pc.greater(before, after))):
            return False, False
        equal &= np.asarray(pc.equal(before, after))
    return True, not equal.any()


def _bytes(column: pa.Array) -> bytes:
    if pa.types.is_integer(column.type):
        numbers: Integers = column.to_numpy(zero_copy_only=False)
        return numbers.tobytes()
    import pyarrow.compute as pc  # for import time

    joined: str = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column), "")[
        0
    ].as_py()
    lengths: Integers = pc.binary_length(column).to_numpy(zero_copy_only=False)
    return lengths.tobytes() + joined.encode()


def contents(tables: Sequence[SyntheticTable]) -> dict[str, list[str]]:
    """What a release records of its synthetic tables, so that it is not read with changed ones."""
    return {
        "digests": [table.digest for table in tables],
        "fingerprints": [table.fingerprint for table in tables],
    }


def generator(queryable: PrivateQueryable) -> np.random.Generator:
    """Random numbers for post-processing, with a seed from the source of noise; a retry gets the same."""
    return np.random.default_rng(queryable.seed())


NOBODY = np.iinfo(np.int64).min
"""In place of a key: none."""


def ends(table: SyntheticTable, positions: Array) -> list[Array]:
    """What is stored for one end of all links: the columns of a whole-number key, bit for bit; otherwise positions."""
    if table.texts:
        return [np.asarray(positions, np.float64)]
    known = ~np.isnan(positions)
    places = np.where(known, positions, 0).astype(np.int64)
    columns = [column.to_numpy(zero_copy_only=False)[places] for column in table.key]
    return [np.where(known, column, NOBODY).astype(np.int64).view(np.float64) for column in columns]
