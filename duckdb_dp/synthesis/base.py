"""What all syntheses share: synthetic tables as a statement has read them, and random numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.attribute import Attribute
from duckdb_dp.data.counts import words
from duckdb_dp.domain import Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Integers
from duckdb_dp.noise.bits import Bits
from duckdb_dp.private import Door
from duckdb_dp.reconstruct.junction import Codes
from duckdb_dp.request import Request

Run = Callable[[Door], Mapping[str, Array]]
"""From the door to the arrays that are stored."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticTable:
    """A synthetic table as a statement has read it, in the order of its key.

    Attributes:
        rows: how many it has.
        keys: how many different keys, without NULL.
        outside: for each attribute, how many rows hold a value outside its domain.
        words: the cell of each row in the joint domain of its attributes, as ``data.counts.words`` splits it.
        digest: a text that changes with its contents.
    """

    rows: int
    keys: int
    outside: tuple[int, ...]
    words: tuple[Integers, ...]
    digest: str

    def codes(self, attributes: tuple[Attribute, ...]) -> Codes:
        """Cell numbers, shape (rows, attributes)."""
        domain = Domain({attribute.name: attribute.size for attribute in attributes})
        found = np.zeros((self.rows, len(attributes)), dtype=np.int32)
        for word, group in zip(self.words, words(domain, domain.attributes), strict=True):
            for name in group:
                after = domain.cells(group[group.index(name) + 1 :])
                found[:, domain.attributes.index(name)] = word // after % domain.sizes[name]
        return found

    def check_values(self, name: str, attributes: tuple[Attribute, ...]) -> None:
        """Refuse a table that is empty or holds what no original row could count as.

        Raises:
            DPError: it does.
        """
        if not self.rows:
            raise DPError(f"{name} has no rows; make some with dp_synthesize.")
        for attribute, outside in zip(attributes, self.outside, strict=True):
            if outside:
                raise DPError(
                    f"{name} has {outside:,} rows with a value of '{attribute.name}' outside its declared domain; see "
                    "dp_domain, or make the rows with dp_synthesize."
                )


def option(request: Request, name: str) -> object:
    """An option of a request; None where it has none of that name."""
    return dict(request.options).get(name)


def generator(bits: Bits) -> np.random.Generator:
    """Random numbers for post-processing, from as good a seed as the noise's own."""
    return np.random.default_rng([int(word) for word in bits.uint64(4)])
