"""Assigns links to rows, given links per block: whole block totals, then rows, each pair once and no row above its bound.

Block totals are rounded by unbiased sampling, so that each keeps its expectation. Rows of one type are exchangeable: each has
d slots, and the links of the type are assigned to its slots, so that no row has more than d. Where a pair of rows is linked
twice, links of the same row type swap ends, which changes neither block totals nor degrees.
"""

import itertools
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.blocks import scaled_to
from duckdb_dp.synthesis.links.degrees import Degrees, arranged, balance, in_order, spread, thin
from duckdb_dp.synthesis.links.degrees import drawn as drawn_degrees
from duckdb_dp.synthesis.links.popularity import Popularity, numbers, settled
from duckdb_dp.synthesis.links.room import within_room
from duckdb_dp.synthesis.links.sides import Side
from duckdb_dp.synthesis.links.swaps import Drawn, Pair, untangle
from duckdb_dp.synthesis.links.whole_links import by_rows

RELAXED = (1.0, 1.05, 1.15, 1.4, 2.0, 1e9)
"""Factors by which the shares of linked rows are raised, one after another, until all links are different pairs."""

LOST = 0.005
"""What part of the links may be lost so that the numbers of rows are nearer to what they should be."""

CROWDED = 20
"""Slots for each link, at least, from which rows are drawn without counting the links that each has already."""

MANY = 0.1
"""Share of the rows in thin row types from which degrees are drawn before links."""

LARGEST = 2_000_000
"""Row types times degrees, at most, for which shares of degrees are kept."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of the links to assign.

    Attributes:
        side: the synthetic table.
        bound: links that a row may have; None for as many as there are partners.
        linked: share of the rows that have a link; None where it is not known.
        degrees: how many links the rows have, where that is known for rows with a bound.
        counts: how many rows of each type have each number of links, where that was drawn first.
        popularity: what is known of how many links rows without a bound have.
        numbers: how many links each row has, where that was drawn first.
        evened: by what factor the numbers of rows of one type are nearer to each other.
    """

    side: Side
    bound: int | None
    linked: float | None
    degrees: Degrees | None = None
    counts: Integers | None = None
    popularity: Popularity | None = None
    numbers: Integers | None = None
    evened: float = 1.0

    @property
    def drawn(self) -> bool:
        """Whether the links of its row types were drawn first."""
        return self.counts is not None or self.numbers is not None

    @property
    def room(self) -> Array:
        """Links that each row type can hold."""
        sizes = self.side.sizes.astype(np.float64)
        return np.full(len(sizes), np.inf) if self.bound is None else sizes * self.bound

    def held(self, expected: Array) -> Array:
        """Whole links of each row type: those that were drawn first, or else those that are expected."""
        if self.numbers is not None:
            return np.bincount(self.side.rows, self.numbers, len(self.side.types)).astype(np.float64)
        if self.counts is None:
            return np.diff(np.rint(np.cumsum(expected)), prepend=0.0)
        return np.asarray(self.counts @ np.arange(self.counts.shape[1]), dtype=np.float64)


def with_counts(end: End, expected: Array, partners: int, rng: np.random.Generator) -> End:
    """The end, with how many links its rows have drawn first where many row types are thin, such as rows that are types of their own.

    Args:
        end: of the links.
        expected: links of each of its row types.
        partners: links that a row can have: as many as the other side has rows where no pair repeats.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    if end.degrees is None or end.bound is None:
        return end
    sizes, most = end.side.sizes, min(end.bound, partners)
    few = sizes[thin(sizes, most)].sum() > len(end.side.rows) * MANY
    if not few or len(sizes) * (most + 1) > LARGEST or expected.sum() > len(end.side.rows) * most:
        return end
    return replace(end, counts=spread(end.degrees.of(end.side)[:, : most + 1], sizes, expected, rng))


def with_numbers(end: End, expected: Array, partners: int, rng: np.random.Generator) -> End:
    """The end, with how many links each of its rows has drawn first, where that is known of rows without a bound.

    Privacy: post-processing.
    """
    if end.popularity is None or end.bound is not None or expected.sum() <= 0:
        return end
    return replace(end, numbers=numbers(end.popularity, end.side, expected, partners, rng))


def feasible(expected: Array, left: End, right: End, m: int, distinct: bool) -> Array:
    """The expected links, scaled to add up to m as far as pairs, rows and bounds allow, shape (K, L).

    Where blocks hold fewer links than are expected of them, others take these: of the same row types, as long as there is room. So a
    row that most rows of the other side are linked to keeps its links where rows with many would have it several times.

    Privacy: post-processing.
    """
    pairs = np.multiply.outer(left.side.sizes, right.side.sizes).astype(np.float64)
    most = pairs if distinct else np.where(pairs > 0, np.inf, 0.0)
    scaled = np.minimum(np.maximum(expected, 1e-12 * max(m, 1) * pairs / pairs.sum()), most)
    wanted = np.maximum(expected, 0.0) * (m / max(float(expected.sum()), 1e-300))
    if (scaled * (m / scaled.sum()) > most).any() or (wanted > most).any():
        rows = within_room(wanted.sum(axis=1), np.minimum(left.room, most.sum(axis=1)))
        columns = within_room(wanted.sum(axis=0), np.minimum(right.room, most.sum(axis=0)))
        scaled = scaled_to(scaled, rows, columns, most)
    for _ in range(200):
        scaled = scaled * (m / scaled.sum())
        scaled = np.minimum(scaled, most)
        scaled *= np.minimum(1.0, left.room / np.maximum(scaled.sum(axis=1), 1e-300))[:, None]
        scaled *= np.minimum(1.0, right.room / np.maximum(scaled.sum(axis=0), 1e-300))[None, :]
        if abs(scaled.sum() - m) <= 1e-9 * m:
            break
    return np.asarray(scaled)


def within(blocks: Integers, expected: Array, left: End, right: End, rng: np.random.Generator) -> Integers:
    """Whole block totals within what the row types can hold: the few links above that are moved to other blocks.

    Privacy: post-processing.
    """
    kept_within = blocks.copy()
    moved = 0
    for axis, room in ((1, left.room), (0, right.room)):
        for k in np.flatnonzero(kept_within.sum(axis=axis) > room):
            line = kept_within[k] if axis == 1 else kept_within[:, k]
            for _ in range(int(line.sum() - room[k])):
                line[rng.choice(len(line), p=line / line.sum())] -= 1
                moved += 1
    for _ in range(moved):
        free = (kept_within.sum(axis=1) < left.room)[:, None] & (kept_within.sum(axis=0) < right.room)[None, :]
        weights = np.where(free, expected, 0.0).reshape(-1)
        if weights.sum() <= 0:
            break
        kept_within.reshape(-1)[rng.choice(len(weights), p=weights / weights.sum())] += 1
    return kept_within


def each_once(expected: Array, sizes: Integers, room: Array, rng: np.random.Generator) -> Integers:
    """Whole block totals in which every left row has exactly one link: row sums are the sizes of the left types.

    Args:
        expected: links per block, shape (K, L).
        sizes: rows of each left type, shape (K,).
        room: links that each right type can hold, shape (L,), enough together; the result may exceed it slightly by rounding.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    shares = np.maximum(expected, 1e-12 * max(float(expected.max()), 1e-300))
    for _ in range(200):
        shares = shares * (sizes / shares.sum(axis=1))[:, None]
        held = shares.sum(axis=0)
        if (held <= room * (1 + 1e-9)).all():
            break
        shares = shares * np.minimum(1.0, room / np.maximum(held, 1e-300))
    return by_rows(shares, sizes, shares.sum(axis=0), rng)


def filled(
    expected: Array, lefts: Array | Integers, rights: Array, rng: np.random.Generator, most: Array | float = np.inf
) -> Integers:
    """Whole block totals in which each row type has the links that were drawn for it.

    Args:
        expected: links per block, shape (K, L).
        lefts, rights: whole links of each left and of each right type, shapes (K,) and (L,), with one sum.
        rng: the source of randomness.
        most: links that a block can hold.

    Privacy: post-processing.
    """
    shares = np.minimum(np.maximum(expected, 1e-12 * max(float(expected.max()), 1e-300)), most)
    return by_rows(scaled_to(shares, lefts, rights, most), lefts, rights, rng, most)


def assign_rows(
    blocks: Integers, left: End, right: End, distinct: bool, rng: np.random.Generator, same: Pair | None = None
) -> Pair:
    """Rows for both ends of every link, sorted by the left row.

    Args:
        blocks: whole links per block, shape (K, L).
        left, right: the ends.
        distinct: whether a pair may occur only once.
        same: for two ends in one table, where no row is linked to itself: the position in that table of each row of either end.

    Returns:
        (left rows, right rows), positions in the synthetic tables.

    Privacy: post-processing.
    """
    found = [_attempt(blocks, left, right, distinct, rng, same)]
    for factor in RELAXED:
        if len(found[-1][0]) == blocks.sum():
            break
        # The rows that were to be linked cannot hold so many different pairs: then a few more rows have a link, or numbers are more even.
        ends = [
            replace(end, linked=None if end.linked is None else min(1.0, factor * end.linked), evened=factor)
            for end in (left, right)
        ]
        found.append(_attempt(blocks, ends[0], ends[1], distinct, rng, same))
    most = max(len(rows[0]) for rows in found)
    lefts, rights = min(
        (rows for rows in found if len(rows[0]) >= (1 - LOST) * most), key=lambda rows: _away(rows, left, right)
    )
    order = np.lexsort((rights, lefts))
    return lefts[order], rights[order]


def _away(rows: Pair, left: End, right: End) -> float:
    """How far links are from the numbers of rows that were measured one by one, and without such rows how few links there are.

    To find places for the last links, numbers of all rows may have to be even, and then a few that are lost are better.
    """
    away, known = 0.0, False
    for end, own in zip((left, right), rows, strict=True):
        if (
            end.numbers is not None
            and end.popularity is not None
            and end.popularity.original
            and len(end.popularity.weights)
        ):
            away, known = away + float(np.abs(np.bincount(own, minlength=len(end.numbers)) - end.numbers).sum()), True
    return away if known else -float(len(rows[0]))


def _attempt(
    blocks: Integers, left: End, right: End, distinct: bool, rng: np.random.Generator, same: Pair | None
) -> Pair:
    kinds = np.stack([np.repeat(kind.reshape(-1), blocks.reshape(-1)) for kind in np.indices(blocks.shape)])
    sizes = [end.side.sizes for end in (left, right)]
    # Of each row type so many different rows of the other side may be linked to it.
    met = [np.minimum(sizes[1], blocks).sum(axis=1), np.minimum(sizes[0][:, None], blocks).sum(axis=0)]
    if not distinct:
        met = [blocks.sum(axis=1), blocks.sum(axis=0)]
    # Where pairs may repeat, a row may have more links than the other side has rows.
    partners = [len(right.side.rows), len(left.side.rows)] if distinct else [int(blocks.sum())] * 2
    lefts = _ends(left, blocks.sum(axis=1), partners[0], met[0], rng)
    rights = np.empty(len(lefts), dtype=np.int64)
    rights[np.argsort(kinds[1], kind="stable")] = _ends(right, blocks.sum(axis=0), partners[1], met[1], rng)
    if not distinct and same is None:
        return lefts, rights
    drawn = Drawn(lefts, rights, len(right.side.rows), distinct, same)
    kept = untangle(drawn, kinds, rng)
    return lefts[kept], rights[kept]


def _ends(end: End, links: Integers, partners: int, met: Integers, rng: np.random.Generator) -> Integers:
    """A row for every link, the links of a type together and in random order within it."""
    order = np.argsort(end.side.rows, kind="stable")
    starts = np.concatenate([[0], np.cumsum(end.side.sizes)])
    members = [order[a:b] for a, b in itertools.pairwise(starts)]
    if end.counts is not None and (links <= end.side.sizes * (end.counts.shape[1] - 1)).all():
        counts = end.counts.copy()
        balance(counts, links, rng)
        return arranged(members, in_order(counts), rng)
    if end.numbers is not None:
        return arranged(
            members, settled(end.numbers[order], end.side.sizes, links, met, end.evened, rng), rng, shuffled=False
        )
    most = partners if end.bound is None else min(end.bound, partners)
    held = bool((links <= end.side.sizes * most).all())  # not always, as block totals are rounded
    if end.degrees is not None and end.bound is not None and held and len(end.side.types) * (most + 1) <= LARGEST:
        table = end.degrees.of(end.side)[:, : most + 1]
        return arranged(members, drawn_degrees(table, end.side.sizes, links, rng), rng)
    rows = [
        _assigned(order[starts[k] : starts[k + 1]], int(count), end, partners, rng)
        for k, count in enumerate(links)
        if count
    ]
    return np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)


def _assigned(rows: Integers, count: int, end: End, partners: int, rng: np.random.Generator) -> Integers:
    """``count`` links among the rows of a type: one for each row that gets links, the others to random ones of these rows."""
    bound = end.bound or max(partners, -(-count // len(rows)))
    share = 1 - (1 - 1 / len(rows)) ** count if end.linked is None else end.linked
    active = int(min(max(round(share * len(rows)), -(-count // bound)), len(rows), count))
    chosen = rng.permutation(rows)[:active]
    more, slots = count - active, active * (bound - 1)
    if end.bound is None and count * CROWDED < active * bound:
        rest = rng.integers(0, active, more)
    else:
        rest = rng.choice(slots, more, replace=False) // (bound - 1) if more else np.zeros(0, dtype=np.int64)
    return rng.permutation(np.concatenate([chosen, chosen[rest]]))
