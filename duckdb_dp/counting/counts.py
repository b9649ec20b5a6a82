"""Which marginals to count, and their exact counts: the non-empty cells of a few blocks. Private: only ``private.py`` reads them.

A GROUP BY costs a pass over the rows, so few, small supersets of the asked marginals are counted. The choice sees the
domain only: the plan must not depend on private values, not even on the number of rows.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duckdb_dp.arrow import to_numpy
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Integers

LARGEST_DENSE = 1 << 20
"""Blocks of more cells stay as the list of their non-empty cells: summing 2,000 marginals from a dense block of 2^24
cells took two minutes, from its 512 non-empty cells a second."""

ROWS = 1 << 15
"""Non-empty cells of a large block that are summed at a time."""

LARGEST_KEY = 1 << 62
"""A cell's position fits a BIGINT below this; blocks of more cells take several words per cell."""


def words(domain: Domain, clique: Clique) -> list[Clique]:
    """A block's attributes in consecutive groups, each with fewer than ``LARGEST_KEY`` cells: a cell is one key each."""
    groups: list[Clique] = [()]
    for name in clique:
        if domain.cells((*groups[-1], name)) >= LARGEST_KEY:
            groups.append(())
        groups[-1] = (*groups[-1], name)
    return groups


@final
class Counts:
    """Marginals of one private table, by summing over the smallest counted block that contains them.

    Args:
        domain: the domain of the request.
        blocks: clique -> (keys, counts) of its non-empty cells. A key is the cell's position in row-major order; where
            ``words`` has several groups, a cell's keys follow one another and so do copies of its count.
    """

    def __init__(
        self, domain: Domain, blocks: Mapping[Clique, tuple[NDArray[np.integer], NDArray[np.integer]]]
    ) -> None:
        self.domain = domain
        self._blocks = blocks
        self._by_size = [(block, set(block)) for block in sorted(blocks, key=domain.cells)]
        self._chosen: dict[Clique, Clique] = {}
        self._dense: tuple[Clique, Integers] | None = None
        self._counts: dict[Clique, NDArray[np.float64]] = {}
        self._codes: dict[tuple[Clique, str], NDArray[np.integer]] = {}

    def block(self, clique: Clique) -> Clique:
        """The counted block that a marginal is summed from; reading marginals block by block keeps memory low."""
        if clique not in self._chosen:
            wanted = set(clique)
            self._chosen[clique] = next(block for block, names in self._by_size if wanted <= names)
        return self._chosen[clique]

    def marginal(self, clique: Clique) -> Integers:
        """Exact counts of a marginal, flat, in row-major order."""
        block = self.block(clique)
        if self.domain.cells(block) > LARGEST_DENSE:
            return self._summed(block, clique)
        table = self._table(block)
        axes = tuple(axis for axis, name in enumerate(block) if name not in clique)
        return table.sum(axis=axes).reshape(-1) if axes else table.reshape(-1)

    def _table(self, block: Clique) -> Integers:
        if self._dense is None or self._dense[0] != block:
            keys, counts = self._blocks[block]
            table = np.zeros(math.prod(self.domain.shape(block)), dtype=np.int64)
            table[keys] = counts
            self._dense = (block, table.reshape(self.domain.shape(block)))
        return self._dense[1]

    def _summed(self, block: Clique, clique: Clique) -> Integers:
        """A marginal from the non-empty cells of a large block."""
        size, counts = self.domain.cells(clique), self._weights(block)
        table = np.zeros(size, dtype=np.int64)
        codes = [(self._code(block, name), self.domain.sizes[name]) for name in clique]
        # A few rows at a time, which stay in the processor's cache.
        for start in range(0, len(counts), step := max(ROWS, size)):
            part = slice(start, start + step)
            keys = np.zeros(len(counts[part]), dtype=np.int64)
            for place, (code, values) in enumerate(codes):
                if place:
                    keys *= values
                keys += code[part]
            # In doubles: sums of whole numbers are exact up to 2^53.
            table += np.bincount(keys, weights=counts[part], minlength=size).astype(np.int64)
        return table

    def _weights(self, block: Clique) -> NDArray[np.float64]:
        """How many rows each non-empty cell of a block has."""
        if block not in self._counts:
            stride = len(words(self.domain, block))
            self._counts[block] = self._blocks[block][1][::stride].astype(np.float64)
        return self._counts[block]

    def _code(self, block: Clique, name: str) -> NDArray[np.integer]:
        """One attribute of every non-empty cell of a block; kept, as narrow as it may be."""
        if (block, name) not in self._codes:
            groups = words(self.domain, block)
            place = next(i for i, group in enumerate(groups) if name in group)
            after = groups[place][groups[place].index(name) + 1 :]
            keys = self._blocks[block][0][place :: len(groups)]
            code = keys // self.domain.cells(after) % self.domain.sizes[name]
            self._codes[block, name] = code.astype(np.min_scalar_type(self.domain.sizes[name]))
        return self._codes[block, name]


def read_blocks(blocks: Sequence[str], cells: pa.ListArray) -> dict[Clique, tuple[np.ndarray, np.ndarray]]:
    """Counted blocks as a statement has listed them, in the form of ``Counts``."""
    return {tuple(json.loads(block)): _keys_and_counts(found) for block, found in zip(blocks, cells, strict=True)}


def _keys_and_counts(cells: pa.ListScalar) -> tuple[np.ndarray, np.ndarray]:
    if cells.values is None:  # no row at all
        return np.empty(0, np.int64), np.empty(0, np.int64)
    keys, counts = cells.values.flatten()
    return to_numpy(keys), to_numpy(counts)


MERGED_CELLS = 1 << 17
"""Blocks are not grown past this: beyond it the hash table of a GROUP BY leaves the processor's caches."""


def passes(cells: int) -> float:
    """Cost of one GROUP BY in units of a small one.

    Measured on 10 million rows, 2 threads: 35 ms at 256 cells, 50 at 1,000, 110 at 15,000, 160 at 90,000.
    """
    return 1 + 0.43 * math.log2(max(1.0, cells / 256))


MANY_CLIQUES = 2_000
"""More marginals than this are summed from the distinct rows, which one GROUP BY gives."""

MANY_CELLS = 1 << 26
"""So are marginals whose blocks have more cells together: they would be mostly empty."""


def blocks(domain: Domain, cliques: tuple[Clique, ...]) -> tuple[Clique, ...]:
    """What to count for some marginals: a cover, or all attributes at once where a cover has too many cells."""
    if len(set(cliques)) <= MANY_CLIQUES:
        found = cover(domain, cliques)
        if sum(map(domain.cells, found)) <= MANY_CELLS:
            return found
    return (domain.attributes,)


def cover(domain: Domain, cliques: tuple[Clique, ...]) -> tuple[Clique, ...]:
    """Blocks such that every clique is a subset of one: greedy, by asked cliques per unit of ``passes``.

    105 pairs of 15 small attributes become about 20 blocks; pairs of large attributes stay as they are.
    """
    below = {tau for clique in cliques for order in range(len(clique)) for tau in itertools.combinations(clique, order)}
    wanted = [clique for clique in dict.fromkeys(cliques) if clique not in below]
    wanted.sort(key=lambda clique: (-domain.cells(clique), clique))
    left, orders, blocks = set(wanted), {len(clique) for clique in wanted}, []
    for seed in wanted:
        if seed in left:
            block = _grow(domain, seed, left, orders)
            blocks.append(block)
            left -= {tau for order in orders for tau in itertools.combinations(block, order)}
    return tuple(blocks)


def _grow(domain: Domain, seed: Clique, left: set[Clique], orders: set[int]) -> Clique:
    """Add the attribute that covers most more cliques for its cost, while it pays."""
    block, gained, best, best_value = seed, 1, seed, 1 / passes(domain.cells(seed))
    while True:
        room = [
            name for name in domain.attributes if name not in block and domain.cells((*block, name)) <= MERGED_CELLS
        ]
        if not room:
            return best
        gains = {name: _new(domain, block, name, left, orders) for name in room}
        name = max(room, key=lambda n: gains[n] / passes(domain.cells((*block, n))))
        block, gained = domain.clique((*block, name)), gained + gains[name]
        value = gained / passes(domain.cells(block))
        if value > best_value:
            best, best_value = block, value


def _new(domain: Domain, block: Clique, name: str, left: set[Clique], orders: set[int]) -> int:
    return sum(
        domain.clique((*tau, name)) in left
        for order in orders
        if order > 0
        for tau in itertools.combinations(block, order - 1)
    )
