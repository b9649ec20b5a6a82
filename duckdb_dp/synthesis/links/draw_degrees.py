"""How many links each row of a side gets: drawn so that row types get their links and degrees their shares."""

from collections.abc import Sequence

import numpy as np

from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.degrees import HALVINGS, LEAST, ROUNDS

THIN = 4
"""Rows of a type for each of its degrees, at most, of which the number of links is drawn: fewer rows cannot have the degrees and
a given number of links too."""

CALIBRATED, RIDGE = 2_000, 1e-9
"""Values of attributes whose links together are those expected, at most, small attributes first; what keeps their equations solvable."""

GOLDEN = (5**0.5 - 1) / 2


def drawn(table: Array, sizes: Integers, links: Integers, rng: np.random.Generator) -> Integers:
    """A degree for each row, those of a type together and in the order of types, that add up to the links of each type.

    The shares of degrees of all rows together stay those of the table as far as the links allow: they are tilted,
    p_t(k) ~ g(k) exp(lambda_t k) table_t(k), with lambda from the links of each type and g from the shares.

    Args:
        table: shares of degrees of each type, shape (types, d + 1).
        sizes: rows of each type.
        links: of each type, at most d for each row.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    counts = _counted(table, sizes, links, rng)
    balance(counts, links, rng)
    return in_order(counts)


def in_order(counts: Integers) -> Integers:
    """The degree of each row, those of a type together, of how many rows of each type have each."""
    return np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.reshape(-1))


def thin(sizes: Integers, most: int) -> np.ndarray:
    """Which types have too few rows for the shares of degrees 0 to ``most``."""
    return np.asarray(sizes <= THIN * (most + 1))


def spread(table: Array, sizes: Integers, links: Array, values: Integers, rng: np.random.Generator) -> Integers:
    """How many rows of each type have each degree, where types may be thin; all together have the links that are expected.

    A thin type has the links that its rows draw, with the number that is expected as their mean: if each row is a type of its own,
    all would have the mean otherwise.

    Args:
        table: shares of degrees of each type, shape (types, d + 1).
        sizes: rows of each type.
        links: expected, of each type.
        values: of each attribute, by type, whose links together are those that are expected.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    counts = _counted(table, sizes, links, rng)
    degrees = np.arange(table.shape[1])
    free, ends = thin(sizes, len(degrees) - 1), np.rint(np.cumsum(links)).astype(np.int64)
    goal = np.where(free, counts @ degrees, np.diff(ends, prepend=0))
    spare = sizes * np.maximum(table @ degrees**2 - (table @ degrees) ** 2, LEAST) * free
    goal = (
        goal
        + np.floor(
            _calibrated(goal - links, spare, values) + (rng.random() + GOLDEN * np.arange(len(goal))) % 1
        ).astype(np.int64)
        * free
    )
    goal = np.clip(goal, 0, sizes * degrees[-1])
    missing = int(ends[-1] - goal.sum())
    while missing:
        room = sizes * degrees[-1] - goal if missing > 0 else goal
        kinds = np.flatnonzero((room > 0) & free) if ((room > 0) & free).any() else np.flatnonzero(room > 0)
        chosen = rng.permutation(kinds)[: abs(missing)]
        goal[chosen] += np.sign(missing)
        missing -= len(chosen) * int(np.sign(missing))
    balance(counts, goal, rng)
    return counts


def _calibrated(excess: Array, spare: Array, values: Integers) -> Array:
    """What to add to the links of each type so that the types of no value of an attribute have more or fewer than expected together.

    It is the least that does so, sum of added^2 / spare.

    Args:
        excess: links above those that are expected, of each type.
        spare: variances of the links of each type.
        values: codes of each attribute, shape (types, attributes).
    """
    from scipy.linalg import solve  # for import time
    from scipy.sparse import csr_array

    sizes = values.max(axis=0, initial=0) + 1
    order = np.argsort(sizes, kind="stable")
    some = order[np.cumsum(sizes[order]) <= CALIBRATED]
    cells = (values[:, some] + np.cumsum(sizes[some]) - sizes[some]).reshape(-1)
    places = np.arange(len(values) + 1) * len(some)
    design = csr_array((np.ones(len(cells)), cells, places), shape=(len(values), int(sizes[some].sum())))
    if not len(some) or not spare.any():
        return np.zeros(len(values))
    around = (design.T @ (design * spare[:, None])).toarray()
    around[np.diag_indices(len(around))] += RIDGE * max(float(around.max()), LEAST)
    return np.asarray(-spare * (design @ solve(around, design.T @ excess, assume_a="pos")))


def _counted(table: Array, sizes: Integers, links: Array | Integers, rng: np.random.Generator) -> Integers:
    """How many rows of each type have each degree, with about so many links of each type."""
    wanted = (sizes @ table) / max(int(sizes.sum()), 1)
    now = _tilted(table, sizes, links)
    for _ in range(ROUNDS // 3):
        shares = (sizes @ now) / max(int(sizes.sum()), 1)
        table = table * np.clip(wanted / np.maximum(shares, LEAST), 0.1, 10)[None, :]
        now = _tilted(table, sizes, links)
    ends = np.cumsum(now, axis=1)
    kinds = np.repeat(np.arange(len(sizes)), sizes)
    # Evenly spread numbers: shares of degrees of any run of rows, and so of all rows and of each type, are nearly exact.
    even = (rng.random() + GOLDEN * np.arange(len(kinds))) % 1
    degrees = np.minimum((even[:, None] >= ends[kinds]).sum(axis=1), table.shape[1] - 1)
    counts = np.zeros(table.shape, dtype=np.int64)
    np.add.at(counts, (kinds, degrees), 1)
    return counts


def _tilted(table: Array, sizes: Integers, links: Array | Integers) -> Array:
    """The shares times exp(lambda k), lambda such that each type has its links on average."""
    k = np.arange(table.shape[1], dtype=np.float64)
    mean = np.clip(links / np.maximum(sizes, 1), 1e-9, k[-1] - 1e-9)
    low, high = np.full(len(table), -40.0), np.full(len(table), 40.0)
    logs = np.log(np.maximum(table, 1e-300))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        power = logs + middle[:, None] * k
        now = np.exp(power - power.max(axis=1, keepdims=True))
        now /= now.sum(axis=1, keepdims=True)
        less = now @ k < mean
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray(now)


def balance(counts: Integers, links: Integers, rng: np.random.Generator) -> None:
    """Change degrees by one, in place, until each type has its links: two types at a time, so that shares of degrees stay."""
    k = np.arange(counts.shape[1])
    missing = links - counts @ k
    more, less = (
        np.repeat(np.arange(len(links)), np.maximum(missing, 0)),
        np.repeat(np.arange(len(links)), np.maximum(-missing, 0)),
    )
    more, less = rng.permutation(more), rng.permutation(less)
    both = min(len(more), len(less))
    for one, other in zip(more[:both].tolist(), less[:both].tolist(), strict=True):
        room = np.minimum(counts[one, :-1], counts[other, 1:])
        if room.any():
            at = int(np.searchsorted(np.cumsum(room), rng.integers(int(room.sum())), side="right"))
            _move(counts, one, at, 1)
            _move(counts, other, at + 1, -1)
        else:
            _step(counts, one, 1, rng)
            _step(counts, other, -1, rng)
    for kinds, step in ((more[both:], 1), (less[both:], -1)):
        for one in kinds.tolist():
            _step(counts, one, step, rng)


def _step(counts: Integers, kind: int, step: int, rng: np.random.Generator) -> None:
    """One row of a type, any that can, gets a link more or less."""
    room = counts[kind].copy()
    room[-1 if step > 0 else 0] = 0
    at = int(np.searchsorted(np.cumsum(room), rng.integers(int(room.sum())), side="right"))
    _move(counts, kind, at, step)


def _move(counts: Integers, kind: int, at: int, step: int) -> None:
    counts[kind, at] -= 1
    counts[kind, at + step] += 1


def arranged(rows: Sequence[Integers], degrees: Integers, rng: np.random.Generator) -> Integers:
    """A row for every link: the rows of each type in random order, each as often as its degree; links of a type mixed."""
    found, at = [], 0
    for members in rows:
        held = degrees[at : at + len(members)]
        at += len(members)
        found.append(rng.permutation(np.repeat(rng.permutation(members), held)))
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
