"""Exact counts as they come from the database: non-empty cells of a few blocks. Private: only measuring reads them."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain import Clique, Domain
from duckdb_dp.linop import Integers


class Counts:
    """Marginals of one private table, by summing over the smallest counted block that contains them.

    Args:
        domain: the domain of the request.
        blocks: clique -> (keys, counts) of its non-empty cells; a key is the cell's position in row-major order.
    """

    def __init__(
        self, domain: Domain, blocks: Mapping[Clique, tuple[NDArray[np.integer], NDArray[np.integer]]]
    ) -> None:
        self._domain = domain
        self._blocks = blocks
        self._by_size = sorted(blocks, key=domain.cells)
        self._dense: tuple[Clique, Integers] | None = None

    def block(self, clique: Clique) -> Clique:
        """The counted block that a marginal is summed from; reading marginals block by block keeps memory low."""
        wanted = set(clique)
        return next(block for block in self._by_size if wanted <= set(block))

    def marginal(self, clique: Clique) -> Integers:
        """Exact counts of a marginal, flat, in row-major order."""
        block = self.block(clique)
        table = self._table(block)
        axes = tuple(axis for axis, name in enumerate(block) if name not in clique)
        return table.sum(axis=axes).reshape(-1) if axes else table.reshape(-1)

    def _table(self, block: Clique) -> Integers:
        if self._dense is None or self._dense[0] != block:
            keys, counts = self._blocks[block]
            table = np.zeros(math.prod(self._domain.shape(block)), dtype=np.int64)
            table[keys] = counts
            self._dense = (block, table.reshape(self._domain.shape(block)))
        return self._dense[1]
