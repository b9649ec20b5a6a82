"""Where a pair of rows is linked twice, or a row to itself, links of the same row types swap ends."""

from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.linop import Integers

SWEEPS, PATIENCE, TRIES = 200, 12, 4096
"""Rounds of swaps, rounds in a row that may help nothing, and swaps that are looked at in a round at least; a pair that
still comes twice then is left out."""

Pair = tuple[Integers, Integers]
"""Rows of the left and of the right side."""


@final
@dataclass(frozen=True, slots=True)
class Drawn:
    """The rows at both ends of every link, which swaps change in place, and which pairs are not allowed.

    Attributes:
        lefts, rights: rows of every link.
        width: rows of the right side.
        distinct: whether a pair may come once only.
        same: as for ``assign_rows``.
    """

    lefts: Integers
    rights: Integers
    width: int
    distinct: bool
    same: Pair | None

    def refused(self) -> tuple[Integers, Integers]:
        """(the pairs that are taken, in order; positions of the links whose pair is not allowed)."""
        taken, again = np.zeros(1, np.int64) - 1, np.zeros(0, int)
        if self.distinct:
            taken, again = _repeated(self.lefts * self.width + self.rights)
        if self.same is None:
            return taken, again
        return taken, np.union1d(again, np.flatnonzero(self.same[0][self.lefts] == self.same[1][self.rights]))

    def free(self, lefts: Integers, rights: Integers, taken: Integers) -> np.ndarray:
        """Which pairs are allowed, and not taken."""
        new = ~_among(lefts * self.width + rights, taken)
        return new if self.same is None else new & (self.same[0][lefts] != self.same[1][rights])


def untangle(drawn: Drawn, kinds: Integers, rng: np.random.Generator) -> np.ndarray:
    """Swap right ends and left ends in turn, until no pair is forbidden; returns which links to keep.

    Args:
        drawn: the links; changed in place.
        kinds: row types of both ends of every link, shape (2, links).
        rng: the source of randomness.
    """
    groups = []
    for kind in kinds:
        order = np.argsort(kind, kind="stable")
        groups.append((kind, order, np.searchsorted(kind[order], np.arange(kind.max(initial=0) + 2))))
    fewest, since = len(drawn.lefts) + 1, 0
    for sweep in range(SWEEPS):
        taken, again = drawn.refused()
        since = 0 if len(again) < fewest else since + 1
        fewest = min(fewest, len(again))
        if not len(again) or since > PATIENCE:
            break
        side = (sweep + 1) % 2
        kind, order, starts = groups[side]
        mine = np.repeat(again, 1 + TRIES // len(again))
        low, high = starts[kind[mine]], starts[kind[mine] + 1]
        theirs = order[low + (rng.random(len(mine)) * (high - low)).astype(np.int64)]
        new = drawn.free(drawn.lefts[mine], drawn.rights[theirs], taken)
        new &= drawn.free(drawn.lefts[theirs], drawn.rights[mine], taken) & ~np.isin(theirs, again)
        # One swap for each, and a partner that several want waits for the next round.
        mine, theirs = _firsts(mine[new], theirs[new])
        theirs, mine = _firsts(theirs, mine)
        ends = (drawn.lefts, drawn.rights)[side]
        ends[mine], ends[theirs] = ends[theirs], ends[mine].copy()
    kept = np.ones(len(drawn.lefts), dtype=bool)
    kept[drawn.refused()[1]] = False
    return kept


def _firsts(keys: Integers, others: Integers) -> tuple[Integers, Integers]:
    """Each key once, with the first of its partners."""
    keys, first = np.unique(keys, return_index=True)
    return keys, others[first]


def _among(keys: Integers, known: Integers) -> np.ndarray:
    """Which keys are among the known, sorted ones."""
    return np.asarray(known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys)


def _repeated(keys: Integers) -> tuple[Integers, Integers]:
    """The keys in order, and the positions of those that are repeated."""
    order = np.argsort(keys, kind="stable")
    known = keys[order]
    return known, np.asarray(order[1:][known[1:] == known[:-1]])
