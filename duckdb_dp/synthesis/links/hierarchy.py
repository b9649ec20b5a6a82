"""References of a table to its own rows, such as employee to manager, made free of cycles: no row is its own ancestor."""

import numpy as np

from duckdb_dp.linop import Integers

NOBODY = -1
"""The parent of a row that has none."""


def without_cycles(parents: Integers, types: Integers, rng: np.random.Generator) -> Integers:
    """The same references without cycles: one row of each cycle swaps parents with a row that is in no cycle.

    The other row has the same type where there is one, so that pairs of types of children and parents stay the same. A
    swap keeps the number of children of every row. If all rows with a parent are in cycles, there is no row to swap with.
    Then one of them gets a row without a parent as its parent, or no parent if every row has one.

    Args:
        parents: (n,): the position of each row's parent, or ``NOBODY``.
        types: (n,): the type of each row.
        rng: the source of randomness.

    Returns:
        The positions of the parents; following them always ends at a row without a parent.

    Privacy: post-processing.
    """
    cycles, circular = _cycles(parents)
    if not cycles:
        return parents
    changed, outside = parents.copy(), np.flatnonzero(~circular & (parents != NOBODY))
    if not len(outside):  # no row to change with: then no row without a parent has children
        roots = np.flatnonzero(parents == NOBODY)
        changed[cycles[0]] = rng.choice(roots) if len(roots) else NOBODY
        return without_cycles(changed, types, rng)
    outside = outside[np.argsort(types[outside], kind="stable")]
    starts = np.searchsorted(types[outside], [types[cycles], types[cycles] + 1])
    for row, low, high in zip(cycles, *starts.tolist(), strict=True):
        other = outside[rng.integers(low, high) if low < high else rng.integers(len(outside))]
        changed[row], changed[other] = changed[other], changed[row]
    return changed


def _cycles(parents: Integers) -> tuple[list[int], np.ndarray]:
    """(one row of each cycle; of every row whether its ancestors end in a cycle)."""
    n = len(parents)
    ahead = np.append(np.where(parents == NOBODY, n, parents), n)
    far = ahead.copy()
    for _ in range(max(n, 1).bit_length()):  # 2^k steps at once, until all are in a cycle or past the last ancestor
        far = far[far]
    left, cycles = np.unique(far), []
    seen = np.zeros(n + 1, dtype=bool)
    seen[n] = True
    for first in left.tolist():
        if not seen[first]:
            cycles.append(first)
        row = first
        while not seen[row]:
            seen[row] = True
            row = int(ahead[row])
    return cycles, far[:n] != n
