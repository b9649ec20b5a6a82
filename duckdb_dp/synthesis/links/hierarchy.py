"""References of a table to its own rows, such as employee to manager: no row is its own ancestor, and none deeper than it must be."""

from collections.abc import Sequence

import numpy as np

from duckdb_dp.linop import Array, Integers

NOBODY = -1
"""The parent of a row that has none."""

ALIKE = 16
"""Rows that pass for alike, on average, where rows of one type are fewer: what they differ in says least of their parents."""


def hierarchy(parents: Integers, rows: Integers, types: Integers, rng: np.random.Generator) -> Integers:
    """The same references without cycles, and with the rows that have children as near to the top as they can be.

    Links are drawn one by one, and what they agree with is how many children rows have, and of which types children and parents are:
    so they lie as deep as those of a random tree, whose depth grows with the root of the number of rows. Most hierarchies are broad.

    Args:
        parents: (n,): the position of each row's parent, or ``NOBODY``.
        rows: (n,): the type of each row.
        types: the codes of each type, shape (types, attributes).
        rng: the source of randomness.

    Privacy: post-processing.
    """
    keys = rows, _alike(parents, types[rows])
    levelled = by_levels(parents, keys, rng)
    free = without_cycles(levelled, rows, rng)
    return levelled if free is levelled else by_levels(free, keys, rng)


def by_levels(parents: Integers, keys: Sequence[Integers], rng: np.random.Generator) -> Integers:
    """The same references, dealt level by level: a row without children swaps parents with one that has some and is not placed yet.

    Both have the same key, the first one where there is such a row. So a swap by types keeps all counts of types of children and of
    parents, every swap keeps how many children rows have, and none makes a cycle: the first row is a leaf, and the second one
    is no ancestor of a row that is placed.

    Args:
        parents: (n,): the position of each row's parent, or ``NOBODY``.
        keys: of each row, one after another, shape (n,) each.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    held = np.flatnonzero(parents != NOBODY)
    content = held[np.argsort(parents[held], kind="stable")].tolist()
    ends = np.cumsum(np.bincount(parents[held], minlength=len(parents))).tolist()
    starts = [0, *ends[:-1]]
    place = dict(zip(content, range(len(content)), strict=True))
    waiting = [_waiting([row for row in content if starts[row] < ends[row]], key, rng) for key in keys]
    named = [key.tolist() for key in keys]
    placed = (parents == NOBODY).tolist()
    above = np.flatnonzero(parents == NOBODY).tolist()
    while above:
        slots = [slot for row in above for slot in range(starts[row], ends[row])]
        for slot in slots:
            placed[content[slot]] = True
        for slot in (slots[i] for i in rng.permutation(len(slots)).tolist()):
            leaf = content[slot]
            if starts[leaf] < ends[leaf]:
                continue
            for lists, key in zip(waiting, named, strict=True):
                rows = lists.get(key[leaf], [])
                while rows and placed[rows[-1]]:
                    rows.pop()
                if rows:
                    other = rows.pop()
                    content[slot], content[place[other]] = other, leaf
                    place[leaf], place[other] = place[other], slot
                    placed[leaf], placed[other] = False, True
                    break
        above = [content[slot] for slot in slots]
    dealt = parents.copy()
    dealt[content] = np.sort(parents[held])
    return dealt


def _waiting(rows: Sequence[int], key: Integers, rng: np.random.Generator) -> dict[int, list[int]]:
    """Rows by their key, in random order."""
    found: dict[int, list[int]] = {}
    for i in rng.permutation(len(rows)).tolist():
        found.setdefault(int(key[rows[i]]), []).append(rows[i])
    return found


def _alike(parents: Integers, codes: Integers) -> Integers:
    """A key for each row by those attributes that parents depend on most, as many as leave ``ALIKE`` rows a key on average, shape (n,).

    Args:
        parents: (n,): the position of each row's parent, or ``NOBODY``.
        codes: of all rows, shape (n, attributes).
    """
    held = np.flatnonzero(parents != NOBODY)
    ours, theirs = codes[held], codes[parents[held]]
    strength = [sum(_dependence(a, b) for b in theirs.T) for a in ours.T]
    key, keys = np.zeros(len(parents), dtype=np.int64), 1
    for axis in np.argsort(-np.array(strength), kind="stable").tolist():
        size = int(codes[:, axis].max(initial=0)) + 1
        if keys * size * ALIKE > len(parents):
            break
        key, keys = key * size + codes[:, axis], keys * size
    return key


def _dependence(a: Integers, b: Integers) -> float:
    """The chi-squared of two attributes, as far as it is above what chance has."""
    table = np.zeros((int(a.max(initial=0)) + 1, int(b.max(initial=0)) + 1))
    np.add.at(table, (a, b), 1.0)
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    expected: Array = np.multiply.outer(table.sum(1), table.sum(0)) / max(len(a), 1)
    squared = float(((table - expected) ** 2 / np.maximum(expected, 1e-300)).sum())
    free = float((table.shape[0] - 1) * (table.shape[1] - 1))
    return max(squared - free, 0.0)


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
