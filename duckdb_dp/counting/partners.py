"""How many links the rows of a side have, row by row, where anybody may see these rows: which there are, and in what order, is public.

A unit h with m_hp links to the row p adds m_hp / sqrt(sum over p of m_hp^2) to the number of p: a vector of length 1 in L2, whatever
its links are. Numbers are counted in whole parts, times ``WHOLE``, rounded down.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Integers

PARTNERS = "\0partners"
"""First in the name of a block of the links of each row of a side: no column has such a name."""

WHOLE = 1 << 20
"""What a unit's vector has as its length."""

NUMBER, ORIGINAL = 0, -1
"""In place of a number of links: that the key says how many rows the side has, and whether the synthetic table has these very rows."""


def partners_of(end: int) -> Clique:
    """The numbers of links of the rows of the left (0) or right (1) side."""
    return (PARTNERS, str(end))


@final
@dataclass(frozen=True, slots=True)
class Partners:
    """The links of the rows of a side.

    Attributes:
        rows: how many rows the side has; public.
        original: whether the synthetic table has these very rows, so that the order of both is one; public.
        places: for each link, the position of its row in the order of the key.
        squares: for each link, the sum of the squares of the numbers of links that its unit has to each row.
    """

    rows: int
    original: bool
    places: Integers
    squares: Integers

    @classmethod
    def read(cls, keys: NDArray[np.integer], numbers: NDArray[np.integer]) -> "Partners":
        """From the cells of a block, in any order."""
        links = numbers > NUMBER
        return cls(
            rows=int(keys[numbers == NUMBER].sum()),
            original=bool(keys[numbers == ORIGINAL].sum()),
            places=np.asarray(keys[links], dtype=np.int64),
            squares=np.asarray(numbers[links], dtype=np.int64),
        )

    def table(self) -> Integers:
        """What all units add to each row, times ``WHOLE``.

        Privacy: exact; only ``private.py`` may read them.
        """
        weights = np.floor(WHOLE / np.sqrt(self.squares)).astype(np.int64)
        weights -= weights * weights * self.squares > WHOLE**2  # where the quotient was rounded up
        # In doubles: sums of whole numbers are exact up to 2^53, and of so many parts of links no table has as many.
        return np.bincount(self.places, weights, self.rows).astype(np.int64)
