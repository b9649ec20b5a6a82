"""Which marginals to count, and their exact counts: the non-empty cells of a few blocks. Private: only ``private.py`` reads them.

A GROUP BY costs a pass over the rows, so few, small supersets of the asked marginals are counted. The choice sees the
domain only: the plan must not depend on private values, not even on the number of rows.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duckdb_dp.arrow import to_numpy
from duckdb_dp.counting.partners import PARTNERS, Partners
from duckdb_dp.counting.units import UNIT, UnitRows
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Integers

LARGEST_DENSE = 1 << 20
"""Blocks of more cells stay as the list of their non-empty cells: summing 2,000 marginals from a dense block of 2^24
cells took two minutes, from its 512 non-empty cells a second."""

ROWS = 1 << 15
"""Non-empty cells of a large block that are summed at a time."""

Blocks = Mapping[Clique, tuple[NDArray[np.integer], NDArray[np.integer]]]
"""Counted blocks: clique -> (keys, counts) of its non-empty cells."""

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
            ``words`` has several groups, a cell's keys follow one another and so do copies of its count. A clique that begins
            with ``UNIT`` has the cell of each row instead, those of a unit one after another, and how many its unit has; one that
            begins with ``PARTNERS`` what ``Partners`` reads.
    """

    def __init__(self, domain: Domain, blocks: Blocks) -> None:
        self.domain, self._counted = domain, blocks
        self._blocks = {block: cells for block, cells in blocks.items() if block[:1] not in ((UNIT,), (PARTNERS,))}
        self._units = _rows_of_units(domain, blocks)
        self.partners = {block: Partners.read(*cells) for block, cells in blocks.items() if block[:1] == (PARTNERS,)}
        self._by_size = [(block, set(block)) for block in sorted(self._blocks, key=domain.cells)]
        self._large = {block for block in self._blocks if domain.cells(block) > LARGEST_DENSE}
        self._chosen: dict[Clique, Clique] = {}
        self._shared: dict[Clique, Clique] = {}
        self._dense: tuple[Clique, Integers] | None = None
        self._counts: dict[Clique, NDArray[np.float64]] = {}
        self._codes: dict[tuple[Clique, str], NDArray[np.integer]] = {}

    @property
    def has_units(self) -> bool:
        """Whether the rows of each unit were counted; public."""
        return self._units is not None

    def in_groups(self, groups: Mapping[str, Integers]) -> "Counts":
        """The same rows, with some attributes in groups of their values: attribute -> the group of each value, numbered from 0."""
        domain = Domain({**self.domain.sizes, **{name: int(of.max()) + 1 for name, of in groups.items()}})
        blocks = {
            block: cells if block[:1] == (PARTNERS,) else _in_groups(self.domain, domain, block, cells, groups)
            for block, cells in self._counted.items()
        }
        return Counts(domain, blocks)

    def order(self, cliques: Sequence[Clique]) -> list[int]:
        """Places of marginals in the order in which they are best read: all of a table one after another.

        Many marginals of a large block are summed from fewer tables that several of them share. Which ones depends on the
        domain alone.
        """
        large: dict[Clique, list[Clique]] = {}
        for clique in cliques:
            if self._is_large(block := self._block(clique)):
                large.setdefault(block, []).append(clique)
        for group in large.values():
            asked, orders = set(group), {*map(len, group)}
            for table in cover(self.domain, tuple(group)):
                for tau in (tau for n in orders for tau in itertools.combinations(table, n)):
                    if tau in asked:
                        self._shared.setdefault(tau, table)
        return sorted(range(len(cliques)), key=lambda i: (self._block(cliques[i]), self._shared.get(cliques[i], ())))

    def marginal(self, clique: Clique) -> Integers:
        """Exact counts of a marginal, or of a table of units, flat, in row-major order."""
        if clique[:1] == (UNIT,):
            assert self._units is not None, "the rows of units were not counted"
            return self._units.table(clique)
        if clique in self.partners:
            return self.partners[clique].table()
        block = self._block(clique)
        name = self._shared.get(clique, clique) if self._is_large(block) else block
        table = self._table(block, name)
        axes = tuple(axis for axis, attribute in enumerate(name) if attribute not in clique)
        return table.sum(axis=axes).reshape(-1) if axes else table.reshape(-1)

    def _block(self, clique: Clique) -> Clique:
        """The counted block that a marginal is summed from."""
        if clique not in self._chosen:
            wanted = set(clique)
            self._chosen[clique] = next(block for block, names in self._by_size if wanted <= names)
        return self._chosen[clique]

    def _is_large(self, block: Clique) -> bool:
        return block in self._large

    def _table(self, block: Clique, name: Clique) -> Integers:
        """The marginal of a clique as a table, from its block; the last one is kept."""
        if self._dense is None or self._dense[0] != name:
            if self._is_large(block):
                table = self._summed(block, name)
            else:
                keys, counts = self._blocks[block]
                table = np.zeros(self.domain.cells(block), dtype=np.int64)
                table[keys] = counts
            self._dense = (name, table.reshape(self.domain.shape(name)))
        return self._dense[1]

    def _summed(self, block: Clique, clique: Clique) -> Integers:
        """A marginal from the non-empty cells of a large block."""
        size, counts = self.domain.cells(clique), self._weights(block)
        table = np.zeros(size, dtype=np.int64)
        narrow: Any = np.uint16 if size < 1 << 16 else np.int64
        codes = [(self._code(block, name), self.domain.sizes[name]) for name in clique]
        # A few rows at a time, which stay in the processor's cache.
        for start in range(0, len(counts), step := max(ROWS, size)):
            part = slice(start, start + step)
            keys = np.zeros(len(counts[part]), dtype=narrow)
            for place, (code, values) in enumerate(codes):
                if place:
                    keys *= narrow(values)
                keys += code[part].astype(narrow, copy=False)
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
            self._codes[block, name] = _code_of(self.domain, block, self._blocks[block][0], name)
        return self._codes[block, name]


def _code_of(domain: Domain, block: Clique, keys: NDArray[np.integer], name: str) -> NDArray[np.integer]:
    """One attribute of every cell of a block, as narrow as it may be."""
    groups = words(domain, block)
    place = next(i for i, group in enumerate(groups) if name in group)
    after = groups[place][groups[place].index(name) + 1 :]
    code = keys[place :: len(groups)] // domain.cells(after) % domain.sizes[name]
    return code.astype(np.min_scalar_type(domain.sizes[name]))


def _in_groups(
    domain: Domain,
    grouped: Domain,
    block: Clique,
    cells: tuple[NDArray[np.integer], NDArray[np.integer]],
    groups: Mapping[str, Integers],
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The cells of a block where some attributes are in groups, as in ``Counts``: those that are one now are added up."""
    names, (keys, counts) = block[1:] if block[:1] == (UNIT,) else block, cells
    rows, found = len(keys) // len(words(domain, names)), list[NDArray[np.int64]]()
    for group in words(grouped, names):
        key = np.zeros(rows, dtype=np.int64)
        for name in group:
            code = _code_of(domain, names, keys, name)
            key = key * grouped.sizes[name] + (groups[name][code] if name in groups else code)
        found.append(key)
    table, held = np.stack(found, axis=1), counts[:: len(words(domain, names))].astype(np.int64)
    if block[:1] != (UNIT,):
        table, places = np.unique(table, axis=0, return_inverse=True)
        held, each = np.zeros(len(table), dtype=np.int64), held
        np.add.at(held, places.reshape(-1), each)
    return table.reshape(-1), np.repeat(held, table.shape[1])


def _rows_of_units(domain: Domain, blocks: Blocks) -> UnitRows | None:
    """The rows of the units, where they were counted."""
    block = next((block for block in blocks if block[:1] == (UNIT,)), None)
    if block is None:
        return None
    keys, held = blocks[block]
    names = block[1:]
    codes = {name: _code_of(domain, names, keys, name) for name in names}
    return UnitRows(domain, codes, np.asarray(held[:: len(words(domain, names))], dtype=np.int64))


def read_blocks(blocks: Sequence[str], cells: pa.ListArray) -> Blocks:
    """Counted blocks as a statement has listed them, in the form of ``Counts``."""
    return {tuple(json.loads(block)): _keys_and_counts(found) for block, found in zip(blocks, cells, strict=True)}


def _keys_and_counts(cells: pa.ListScalar) -> tuple[np.ndarray, np.ndarray]:
    if cells.values is None:  # no row at all
        return np.empty(0, np.int64), np.empty(0, np.int64)
    keys, counts = cells.values.flatten()
    return to_numpy(keys), to_numpy(counts)


MERGED_CELLS = 1 << 17
"""Blocks are not grown past this: beyond it the hash table of a GROUP BY leaves the processor's caches."""


def passes(cells: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Cost of one GROUP BY in units of a small one.

    Measured on 10 million rows, 2 threads: 35 ms at 256 cells, 50 at 1,000, 110 at 15,000, 160 at 90,000.
    """
    return np.asarray(1 + 0.43 * np.log2(np.maximum(1.0, np.asarray(cells) / 256)))


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
    left = _Left(domain, wanted)
    blocks = []
    for seed in wanted:
        if seed in left.cliques:
            block = left.grown(seed)
            blocks.append(block)
            left.remove(block)
    return tuple(blocks)


@final
class _Left:
    """The cliques that no block covers yet.

    Args:
        domain: of the request.
        cliques: all of them.
    """

    def __init__(self, domain: Domain, cliques: Sequence[Clique]) -> None:
        self.domain, self.cliques = domain, set(cliques)
        self._place = {name: i for i, name in enumerate(domain.attributes)}
        self._sizes = np.array([float(size) for size in domain.sizes.values()])
        self._orders = sorted({len(clique) for clique in cliques} - {0})
        # Per clique without one of its attributes: which ones complete it.
        self._missing: dict[Clique, NDArray[np.int64]] = {}
        for clique in cliques:
            self._mark(clique, 1)

    def remove(self, block: Clique) -> None:
        """What a block covers is left no more."""
        for clique in {
            tau for order in [0, *self._orders] for tau in itertools.combinations(block, order)
        } & self.cliques:
            self.cliques.remove(clique)
            self._mark(clique, 0)

    def grown(self, seed: Clique) -> Clique:
        """Add the attribute that covers most more cliques for its cost, while it pays."""
        block, gained, best, best_value = seed, 1, seed, 1 / passes(self.domain.cells(seed))
        while True:
            cells = self._sizes * float(self.domain.cells(block))
            room = cells <= MERGED_CELLS
            room[[self._place[name] for name in block]] = False
            if not room.any():
                return best
            gains = self._gains(block)
            value = np.where(room, gains / passes(cells), -1.0)
            place = int(value.argmax())
            block = self.domain.clique((*block, self.domain.attributes[place]))
            gained += int(gains[place])
            worth = gained / passes(self.domain.cells(block))
            if worth > best_value:
                best, best_value = block, worth

    def _gains(self, block: Clique) -> NDArray[np.int64]:
        """Per attribute: how many cliques that are left consist of it and attributes of the block."""
        taus = (tau for order in self._orders for tau in itertools.combinations(block, order - 1))
        found = [self._missing[tau] for tau in taus if tau in self._missing]
        return np.sum(found, axis=0, dtype=np.int64) if found else np.zeros(len(self._place), dtype=np.int64)

    def _mark(self, clique: Clique, left: int) -> None:
        for i, name in enumerate(clique):
            tau = clique[:i] + clique[i + 1 :]
            if tau not in self._missing:
                self._missing[tau] = np.zeros(len(self._place), dtype=np.int64)
            self._missing[tau][self._place[name]] = left
