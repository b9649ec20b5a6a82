"""Unbiased sampling: exactly m of N indices, each with its own probability, negatively associated."""

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.errors import DPError, as_sql, expect
from duckdb_dp.linop import Array, Integers

_TOLERANCE = 1e-6  # how far, relatively, the probabilities may be from adding up to m
_EXACT = 1e-12  # below this, that is rounding
_SHARING = 2**16  # indices that share what rounding to the grid left
_CHUNK = 2**20  # positions whose group ends are looked up at a time
_LANE = 2**8  # positions that are walked together with those of other lanes
_SPARSE = 64  # indices per group from which one lookup per group is faster than one per index


def ubs(x: Array, m: int, rng: np.random.Generator) -> Integers:
    """Draw m distinct indices so that index i is among them with probability x_i.

    Neighbours are merged greedily into groups whose probabilities add up to at most 1; of the L groups, L - m are left
    out, by the same algorithm on the groups' complements; of each group that stays one index is drawn. Any two
    neighbouring groups add up to more than 1, so that L < 2m and the work is O(N).

    Probabilities are first put on a grid of 2^-k, k = 62 - (bits of m), on which they add up to m exactly. Every later
    step is in whole numbers: sums and complements need no renormalising, x_i = 0 is never drawn and x_i = 1 always.

    Args:
        x: probabilities, shape (N,), each in [0, 1], adding up to m (relative tolerance 1e-6).
        m: how many indices.
        rng: the source of randomness. Sampling is post-processing and needs no exact one.

    Returns:
        The m chosen indices, ascending.

    Raises:
        DPError: probabilities outside [0, 1], or not adding up to m.

    Source: [RS25] Alg. 3, whose merging loop, as printed, drops the index that opens a new group.

    Privacy: post-processing.
    """
    try:
        values = np.asarray(x, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise DPError(f"ubs: x is {as_sql(x)}; give probabilities, e.g. [0.5, 0.5].") from None
    expect("ubs", "m", m, (int, np.integer), "a whole number of indices")
    expect("ubs", "rng", rng, np.random.Generator, "numpy's, e.g. numpy.random.default_rng()")
    _check(values, m)
    if m == 0:
        return np.zeros(0, dtype=np.int64)
    one = 1 << (62 - max(int(m), 1).bit_length())
    return _choose(_on_grid(values, m, one), int(m), one, rng)


def _check(x: Array, m: int) -> None:
    if not 0 <= m <= len(x):
        raise DPError(f"ubs: {m} of {len(x)} indices were asked for; ask for between 0 and {len(x)}.")
    if len(x) and not (float(x.min()) >= 0 and float(x.max()) <= 1):
        raise DPError("ubs: every probability must be between 0 and 1; clip them first.")
    total = float(x.sum())
    if abs(total - m) > _TOLERANCE * max(m, 1):
        raise DPError(f"ubs: the probabilities add up to {total:.9g}, not to m = {m}; scale them first.")


def _on_grid(x: Array, m: int, one: int) -> Integers:
    """A zero, and the nearest multiples of 1 / one, moved by the little it takes to add up to m * one."""
    total = float(x.sum())
    scale = one if abs(total - m) <= _EXACT * m else one * (m / total)
    grid = np.empty(len(x) + 1, dtype=np.int64)
    grid[0] = 0
    for first in range(0, len(x), _CHUNK):
        part = np.rint(x[first : first + _CHUNK] * scale)
        grid[1 + first : 1 + first + len(part)] = np.minimum(part, one, out=part)
    _complete(grid[1:], m, one)
    return grid


def _complete(grid: Integers, m: int, one: int) -> None:
    """Make the grid add up to m * one, in place."""
    missing = m * one - int(grid.sum())
    # What rounding left is a few units of 1 / one per index: the first indices that have room share it.
    for first in range(0, len(grid), _SHARING):
        if not missing:
            return
        part = grid[first : first + _SHARING]
        room = np.where((part > 0) & (part < one), one - part if missing > 0 else part, 0)
        missing -= _share(part, room, missing)
    # The rare rest: indices of probability 0 give way, or those that have room left.
    room = one - grid if missing > 0 else grid
    grid += np.sign(missing) * np.diff(np.minimum(np.cumsum(room), abs(missing)), prepend=0)


def _share(part: Integers, room: Integers, missing: int) -> int:
    """Move ``part`` towards ``missing`` by nearly equal steps within ``room``, in place; returns what was moved."""
    free = np.flatnonzero(room)
    if not len(free):
        return 0
    step, more = divmod(abs(missing), len(free))
    steps = np.minimum(room[free], step + (np.arange(len(free)) < more))
    part[free] += np.sign(missing) * steps
    return int(steps.sum()) * (1 if missing > 0 else -1)


def _choose(grid: Integers, m: int, one: int, rng: np.random.Generator) -> Integers:
    """The recursion, on whole numbers: grid_(i+1) / one is the probability of index i, and grid adds up to m * one.

    One array of N + 1 numbers is all that is held at a time: the grid, after its leading zero, is summed in place.
    """
    n = len(grid) - 1
    if m == 0:
        return np.zeros(0, dtype=np.int64)
    if m == n:
        return np.arange(m)
    ends = np.cumsum(grid, out=grid)
    starts = np.zeros(1, dtype=np.int64) if m == 1 else _groups(ends, m, one)
    sums = np.diff(ends[np.append(starts, n)])
    if len(starts) > m:
        excluded = _choose(np.concatenate([[0], one - sums]), len(starts) - m, one, rng)
        kept = np.delete(np.arange(len(starts)), excluded)
        starts, sums = starts[kept], sums[kept]
    return np.asarray(np.searchsorted(ends, ends[starts] + rng.integers(0, sums), side="right") - 1, dtype=np.int64)


def _groups(ends: Integers, m: int, one: int) -> Integers:
    """First indices of the greedy groups: each is as long as its probabilities add up to at most 1."""
    if len(ends) > _SPARSE * m:
        return _walk_sparse(ends, one)
    return _walk_dense(ends, one)


def _walk_sparse(ends: Integers, one: int) -> Integers:
    """One binary search per group."""
    starts, at, n = [], 0, len(ends) - 1
    while at < n:
        starts.append(at)
        at = int(ends.searchsorted(ends[at] + one, side="right")) - 1
    return np.array(starts, dtype=np.int64)


def _walk_dense(ends: Integers, one: int) -> Integers:
    """The end of a group from every start, looked up chunk by chunk, then a walk along them."""
    starts_of_chunks, at, n = [], 0, len(ends) - 1
    while at < n:
        chunk = ends[at : min(at + _CHUNK, n)]
        reach = ends[at : int(ends.searchsorted(chunk[-1] + one, side="right"))]
        starts, last = _walk(reach.searchsorted(chunk + one, side="right") - 1)
        starts_of_chunks.append(starts + at)
        at += last
    return np.concatenate(starts_of_chunks)


def _walk(after: Integers) -> tuple[Integers, int]:
    """The positions 0, after[0], after[after[0]], ... inside the chunk, and the first one outside.

    All lanes are walked at once from their first positions; greedy walks meet soon, so that the walk of the lane before
    needs only a few steps of its own until it is on one that is known.
    """
    lanes = np.arange(0, len(after), _LANE)
    stops = np.minimum(lanes + _LANE, len(after))
    seen = np.zeros(len(after), dtype=np.uint8)
    exits = _walk_lanes(after, lanes, stops, seen)
    marks, step, at = seen.data, np.ascontiguousarray(after).data, 0
    for first, stop, exit_ in zip(lanes.tolist(), stops.tolist(), exits.tolist(), strict=True):
        walked = []
        while at < stop and not marks[at]:
            walked.append(at)
            at = step[at]
        seen[first : min(at, stop)] = 0
        seen[walked] = 1
        at = exit_ if at < stop else at
    return np.flatnonzero(seen), at


def _walk_lanes(after: Integers, lanes: Integers, stops: Integers, seen: NDArray[np.uint8]) -> Integers:
    """Walk every lane from its first position, marking what is ``seen``; returns where each walk leaves its lane."""
    at, exits = lanes, np.zeros_like(lanes)
    lane = np.arange(len(lanes))
    while len(lane):
        seen[at] = 1
        at = after[at]
        left = at >= stops[lane]
        exits[lane[left]] = at[left]
        lane, at = lane[~left], at[~left]
    return exits
