"""Whole links for each block: expected ones rounded so that each block keeps its expectation, and rows and columns their sums."""

import numpy as np

from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.room import within_room
from duckdb_dp.synthesis.links.ubs import ubs

MOVES = 200_000_000
"""Rows of blocks that are looked at, at most, to make columns even."""

TURN, FEW = 32, 8
"""What part of the rows that are left draws a link at a time, and how many rows at least: full columns take no part in the next turn."""


def totals(expected: Array, rng: np.random.Generator) -> Integers:
    """Whole block totals with these expectations; their sum is that of the expectations, rounded.

    Privacy: post-processing.
    """
    whole = np.floor(expected + 1e-9)
    rest = np.clip(expected - whole, 0.0, 1.0).reshape(-1)
    more = round(float(rest.sum()))
    rounded = whole.astype(np.int64)
    if more:
        rounded.reshape(-1)[ubs(within_room(rest, 1.0, more), more, rng)] += 1
    return rounded


def by_rows(
    shares: Array, lefts: Array | Integers, rights: Array, rng: np.random.Generator, most: Array | float = np.inf
) -> Integers:
    """Whole block totals with these row sums, and column sums near these.

    Rows draw their links one after another, each by its shares times the part of every column that is free over the part that rows
    to come expect of it. If rows drew by their shares alone, columns would differ from their sums by the square root of these, and
    a row whose links go to a few columns would lose them to others when columns are made even.

    Args:
        shares: links expected of each block, with about these sums, shape (K, L).
        lefts, rights: sums of each row and column, of which the rows' are whole.
        rng: the source of randomness.
        most: links that a block can hold.

    Privacy: post-processing.
    """
    blocks = np.zeros(shares.shape, dtype=np.int64)
    free = np.diff(np.rint(np.cumsum(rights)), prepend=0.0)
    to_come = shares.sum(axis=0)
    room = np.broadcast_to(most, shares.shape)
    several = rng.permutation(np.flatnonzero(lefts > 1))
    for k in several[np.argsort(-lefts[several], kind="stable")].tolist():
        blocks[k] = _of_row(shares[k], int(lefts[k]), free, to_come, room[k], rng)
        free -= blocks[k]
        to_come -= shares[k]
    _singles(blocks, shares, rng.permutation(np.flatnonzero(lefts == 1)), free, to_come, room, rng)
    _even(blocks, shares, rights, rng, most)
    return blocks


def _of_row(shares: Array, links: int, free: Array, to_come: Array, room: Array, rng: np.random.Generator) -> Integers:
    """Whole links of one row of blocks, so many together."""
    whole = totals(within_room(shares * _factors(free, to_come), np.minimum(np.maximum(free, 0.0), room), links), rng)
    over = links - int(whole.sum())
    if over:  # what is free holds too few
        whole += totals(within_room(np.where(whole < room, shares, 0.0), np.minimum(room - whole, over), over), rng)
        whole[int(np.argmax(shares))] += links - int(whole.sum())
    return whole


def _singles(
    blocks: Integers, shares: Array, rows: Integers, free: Array, to_come: Array, room: Array, rng: np.random.Generator
) -> None:
    """Draw the link of each of some rows of blocks, in place, a few rows at a time: of those that draw one column the first ones get it."""
    full = False
    while len(rows):
        turn, rows = np.split(rows, [max(FEW, len(rows) // TURN)])
        factor = np.ones(len(free)) if full else _factors(free, to_come)
        ends = np.cumsum(np.where(room[turn] >= 1, shares[turn] * factor, 0.0), axis=1)
        places = (ends <= (rng.random(len(turn)) * ends[:, -1])[:, None]).sum(axis=1)
        places = np.minimum(places, shares.shape[1] - 1)
        order = np.argsort(places, kind="stable")
        first = np.searchsorted(places[order], places[order])
        kept = np.empty(len(turn), dtype=bool)
        kept[order] = full | (np.arange(len(turn)) - first < free[places[order]])
        full = not kept.any()
        done = turn[kept]
        blocks[done, places[kept]] = 1
        free -= np.bincount(places[kept], minlength=len(free))
        to_come -= shares[done].sum(axis=0)
        rows = np.concatenate([rows, turn[~kept]])


def _factors(free: Array, to_come: Array) -> Array:
    """By what each column's shares are multiplied, so that rows to come fill what is free."""
    return np.asarray(np.maximum(free, 0.0) / np.maximum(to_come, 1e-9))


def _even(
    blocks: Integers, shares: Array, columns: Array, rng: np.random.Generator, most: Array | float = np.inf
) -> None:
    """Move links within rows of blocks, in place, until each column has what it should have, up to rounding.

    Rounding row by row leaves columns that differ by the square root of their sum; then a type of one row, say, has no link
    where it should have one.
    """
    ends = np.rint(np.cumsum(columns)).astype(np.int64)
    missing = np.diff(ends, prepend=0) - blocks.sum(axis=0)
    more, less = (np.repeat(np.arange(len(missing)), np.maximum(sign * missing, 0)) for sign in (1, -1))
    number = min(len(more), len(less), MOVES // max(len(blocks), 1))
    more, less = rng.permutation(more)[:number], rng.permutation(less)[:number]
    room = np.broadcast_to(most, blocks.shape)
    for to, of in zip(more.tolist(), less.tolist(), strict=True):
        free = (blocks[:, of] > 0) & (blocks[:, to] < room[:, to])
        ends_at = np.cumsum(np.where(free, shares[:, to], 0.0))
        if ends_at[-1] > 0:
            k = min(int(np.searchsorted(ends_at, rng.random() * ends_at[-1], side="right")), len(blocks) - 1)
            blocks[k, of] -= 1
            blocks[k, to] += 1
