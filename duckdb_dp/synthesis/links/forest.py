"""Rows of a table that refer to rows of the same table, such that none is its own ancestor."""

import numpy as np

from duckdb_dp.linop import Integers

NOBODY = -1
"""The parent of a row that has none."""


def forest(parents: Integers, types: Integers, rng: np.random.Generator) -> Integers:
    """The same references without circles: one row of each circle changes parents with a row outside of all circles.

    Every row keeps its number of children, but where no row is outside with a parent: then one row's parent becomes a row
    without one, or where there is none, nobody. The other row is one of the same type where there is one, so that
    who is whose parent, by type, stays as it was.

    Args:
        parents: (n,): the position of each row's parent, or ``NOBODY``.
        types: (n,): the type of each row.
        rng: the source of randomness.

    Returns:
        The positions of the parents, in which whoever follows them comes to a row without one.

    Privacy: post-processing.
    """
    circles, circular = _circles(parents)
    if not circles:
        return parents
    found, outside = parents.copy(), np.flatnonzero(~circular & (parents != NOBODY))
    if not len(outside):  # no row to change with: then no row without a parent has children
        roots = np.flatnonzero(parents == NOBODY)
        found[circles[0]] = rng.choice(roots) if len(roots) else NOBODY
        return forest(found, types, rng)
    outside = outside[np.argsort(types[outside], kind="stable")]
    starts = np.searchsorted(types[outside], [types[circles], types[circles] + 1])
    for row, low, high in zip(circles, *starts.tolist(), strict=True):
        other = outside[rng.integers(low, high) if low < high else rng.integers(len(outside))]
        found[row], found[other] = found[other], found[row]
    return found


def _circles(parents: Integers) -> tuple[list[int], np.ndarray]:
    """(one row of each circle; of every row whether its ancestors end in a circle)."""
    n = len(parents)
    ahead = np.append(np.where(parents == NOBODY, n, parents), n)
    far = ahead.copy()
    for _ in range(max(n, 1).bit_length()):  # 2^k steps at once, until all are in a circle or past the last ancestor
        far = far[far]
    left, found = np.unique(far), []
    seen = np.zeros(n + 1, dtype=bool)
    seen[n] = True
    for first in left.tolist():
        if not seen[first]:
            found.append(first)
        row = first
        while not seen[row]:
            seen[row] = True
            row = int(ahead[row])
    return found, far[:n] != n
