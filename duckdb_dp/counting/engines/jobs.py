"""Which marginals to count together in one pass over the rows, chosen from the sizes of the domain and never from the data."""

import math
from collections.abc import Iterable

from duckdb_dp.counting.counts import blocks
from duckdb_dp.domain.domain import Clique, Domain

Job = tuple[Clique, ...]
"""Blocks of attributes that one pass counts."""

MOST_BLOCKS = 56
"""Blocks of one pass. Java compiles no method of more than 8,000 bytes, and Spark's for a pass has 1,600 and 60 to 90
for each block: past the limit a pass takes 5 times as long."""

SIZES = (1 << 9, 1 << 11, 1 << 13, 1 << 15, 1 << 17)
"""Bounds on the cells of a block that are tried: large blocks are few, small ones keep to the processor's caches."""


def jobs(domain: Domain, cliques: tuple[Clique, ...]) -> tuple[Job, ...]:
    """Blocks such that every clique is a subset of one, in the passes that cost least.

    Many large marginals are summed from the distinct rows instead: one job with all attributes as its block.
    """
    if blocks(domain, cliques) == (domain.attributes,):
        return ((domain.attributes,),)
    merged = (_merged(domain, cliques, most) for most in SIZES)
    tried = [tuple(found[i : i + MOST_BLOCKS] for i in range(0, len(found), MOST_BLOCKS)) for found in merged]
    return min(tried, key=lambda found: sum(_cost(domain, job) for job in found))


def _cost(domain: Domain, job: Job) -> float:
    """Cost of a pass, in seconds of processor time per 4 million rows.

    Measured on Spark 4.0: 1.5 to read and encode 15 columns; for each block 0.20 at 24,000 cells in all, 0.34 at 50,000,
    0.84 at 132,000, 1.6 at 370,000: the hash table of the cells leaves the caches.
    """
    cells = sum(map(domain.cells, job))
    return 1.5 + 0.2 * len(job) * math.pow(max(1.0, cells / 24_000), 0.75)


def _merged(domain: Domain, cliques: Iterable[Clique], most: int) -> Job:
    """Each clique in the block that grows least by it, if that has at most so many cells; else in a block of its own."""
    found: list[set[str]] = []
    cells: list[int] = []
    for clique in sorted(set(cliques), key=lambda clique: (-domain.cells(clique), clique)):
        if any(block.issuperset(clique) for block in found):
            continue
        best, best_growth = None, most
        for i, block in enumerate(found):
            grown = cells[i] * math.prod(domain.sizes[name] for name in clique if name not in block)
            if grown <= most and grown - cells[i] < best_growth:
                best, best_growth = i, grown - cells[i]
        if best is None:
            found.append(set(clique))
            cells.append(domain.cells(clique))
        else:
            found[best] |= set(clique)
            cells[best] += best_growth
    return tuple(dict.fromkeys(domain.clique(block) for block in found))
