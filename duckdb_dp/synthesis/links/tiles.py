"""Large tables with many row types: links are estimated on a sample of rows, and drawn tile by tile."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

import numpy as np

from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.sides import Side

LARGEST = 6_000_000
"""Blocks of the largest problem that is solved whole; of 48 MB per matrix."""

SAMPLED = 1_500
"""Row types of each side that links are learnt on where there are more blocks than that."""

DRAWN = 16_000_000
"""Blocks of which links are drawn together, though they were learnt on a sample; of 128 MB per matrix."""

TILE = 500_000
"""Blocks of a tile where there are more: a row then has no more links than its tile has rows of the other side."""

SPARSE = 8  # pairs that a tile has at least for each of its links


def small(left: Side, right: Side) -> bool:
    """Whether all blocks of two sides fit into one problem."""
    return len(left.types) * len(right.types) <= LARGEST


def sampled(side: Side, rng: np.random.Generator) -> Side:
    """The side itself, or, if it has too many row types, a random sample of its rows."""
    if len(side.types) <= SAMPLED:
        return side
    return part(side, rng.choice(len(side.rows), min(SAMPLED, len(side.rows)), replace=False))


def part(side: Side, rows: Integers) -> Side:
    """Some rows of a side as a side of their own."""
    types, codes = np.unique(side.rows[rows], return_inverse=True)
    return replace(side, types=side.types[types], rows=codes.reshape(-1))


@final
class Tiles:
    """A random partition of the rows of both sides into equally many parts; the i-th parts are linked only with each other.

    Every pair of rows is in one tile with the same probability, so that counts keep their expectations, while the work
    is rows times the width of a tile.

    Args:
        left, right: the sides.
        links: how many links there will be.
        held: of each row of either side, up to a factor; each part has its share of those with many. None where that is not known.
        rng: the source of randomness.
    """

    def __init__(
        self, left: Side, right: Side, links: int, held: Sequence[Array] | None, rng: np.random.Generator
    ) -> None:
        self.left, self.right = left, right
        count = tiles_of(left, right, links)
        even = [np.zeros(len(side.rows)) for side in (left, right)]
        self._rows = [_parts(of, count, rng) for of in held or even]

    def __len__(self) -> int:
        return len(self._rows[0])

    def __iter__(self) -> Iterator[tuple[Integers, Integers]]:
        """(rows of the left side, rows of the right side) of each tile."""
        return zip(*self._rows, strict=True)

    def shares(self, links: int) -> Integers:
        """How many of the links each tile has: in proportion to its pairs of rows."""
        pairs = np.array([len(a) * len(b) for a, b in self], dtype=np.float64)
        ends = np.rint(np.cumsum(pairs) * (links / pairs.sum())).astype(np.int64)
        return np.asarray(np.diff(ends, prepend=0), dtype=np.int64)


def tiles_of(left: Side, right: Side, links: int) -> int:
    """How many tiles two sides make."""
    if len(left.types) * len(right.types) <= DRAWN:
        return 1
    sizes = [len(left.rows), len(right.rows)]
    most = max(1, min(sizes[0] * sizes[1] // (SPARSE * max(links, 1)), *sizes))
    count = 1
    while count < most and _blocks(left, count) * _blocks(right, count) > TILE:
        count += 1 + count // 8
    return min(count, most)


def _blocks(side: Side, count: int) -> int:
    return min(len(side.types), -(-len(side.rows) // count))


def _parts(held: Array, count: int, rng: np.random.Generator) -> list[Integers]:
    """Random parts, of which each has one of the ``count`` rows with most links, one of the next ones, and so on."""
    rows = len(held)
    if count == 1:
        return [np.arange(rows)]
    order = rng.permutation(rows)
    order = order[np.argsort(-held[order], kind="stable")]
    turns = rng.permuted(np.tile(np.arange(count), (-(-rows // count), 1)), axis=1).reshape(-1)[:rows]
    return [np.sort(order[turns == part]) for part in range(count)]
