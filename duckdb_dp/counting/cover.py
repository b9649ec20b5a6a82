"""Which marginals to count: few, small supersets of the asked ones, since a GROUP BY costs a pass over the rows.

The choice sees the domain only: the plan must not depend on private values, not even on the number of rows.
"""

import itertools
import math

from duckdb_dp.domain.domain import Clique, Domain

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
