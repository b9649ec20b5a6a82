"""The exact sums of groups that a statement has worked out. Private: only ``private.py`` reads them."""

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Clique
from duckdb_dp.grouped_sums import GroupedSums, sum_name
from duckdb_dp.linop import Integers


@final
class ExactSums:
    """Sums in steps of their grids, by ``sum_name``.

    Args:
        parts: what is summed.
        blocks: name -> (groups, sums) of those that have rows.
    """

    def __init__(
        self,
        parts: Sequence[GroupedSums],
        blocks: Mapping[Clique, tuple[NDArray[np.integer], NDArray[np.integer]]],
    ) -> None:
        every = [part for part in parts for _ in part.sums]
        self._parts = {sum_name(index): part for index, part in enumerate(every)}
        self._blocks = blocks

    def order(self, names: Sequence[Clique]) -> list[int]:
        """Places of sums in the order in which they are best read: any."""
        return [*range(len(names))]

    def marginal(self, name: Clique) -> Integers:
        """The sum of each group."""
        part: GroupedSums = self._parts[name]
        groups, sums = self._blocks[name]
        found = np.zeros(part.size, dtype=np.int64)
        found[groups] = sums
        return found


Exact = Counts | ExactSums
"""Exact marginals of counts, or sums of groups."""
