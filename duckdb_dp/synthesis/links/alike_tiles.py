"""Tiles of a child table and its parents: parents that are alike, and the children that go to them."""

from collections.abc import Sequence

import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.assign_links import filled
from duckdb_dp.synthesis.links.room import within_room
from duckdb_dp.synthesis.links.sides import Side
from duckdb_dp.synthesis.links.tiles import part
from duckdb_dp.synthesis.links.whole import Whole

AT_ONCE = 4_000_000
"""Blocks that are worked out at once."""

SEEN = 500
"""Rows of each side by which parents are put in order, and parents that stand for those of all tiles."""

LOOKED = 200_000_000
"""Blocks of children and such parents that are looked at, at most, as long as each tile has one."""


def alike_tiles(
    domain: Domain, sides: Sequence[Side], everything: Whole, count: int, rng: np.random.Generator
) -> list[tuple[Integers, Integers]]:
    """(children, parents) of each tile, by position; those without children are left out.

    Where a column of the child is nearly one of its parent, as the month of a charge is that of its admission, random tiles lose that:
    a tile has some children and some parents of each month, and both numbers are random. So parents are put in order by the attributes that
    children depend on most, and cut into tiles. Children are dealt to these by what is expected of them, so that each tile has as many
    as its parents have places. Within a tile all attributes of both sides count, as ever.

    Args:
        domain: of the attributes.
        sides: children, and their parents.
        everything: what is expected of all rows.
        count: tiles, at most as many as there are parents.
        rng: the source of randomness.

    Privacy: post-processing.
    """
    left, right = sides
    tiles = np.array_split(_in_order(domain, sides, everything, rng), count)
    of, children = np.empty(len(right.rows), dtype=np.int64), len(left.rows)
    for i, tile in enumerate(tiles):
        of[tile] = i
    held = np.maximum(everything.spread[1], 0.0)
    most = np.inf if right.max_degree is None else float(right.max_degree)
    room = np.asarray(np.bincount(of, minlength=count) * most, dtype=np.float64)
    wanted = np.asarray(np.bincount(of, held, count) + 1e-9 * float(held.mean()), dtype=np.float64)
    free = within_room(wanted, room, children)
    each = max(1, min(SEEN, LOOKED // max(children, 1)) // count)
    seen = np.concatenate([rng.choice(tile, min(each, len(tile)), replace=False) for tile in tiles])
    weights, parents = np.zeros((len(right.types), count)), part(right, seen)
    np.add.at(weights, (right.rows[seen], of[seen]), held[seen] + 1e-9 * float(held.mean()))
    weights = weights[np.unique(right.rows[seen])]
    weights /= weights.sum(axis=1, keepdims=True)
    goes = np.empty(children, dtype=np.int64)
    turns = -(-children * max(len(seen), count) // AT_ONCE)
    order, done = rng.permutation(children), 0
    for rows in np.array_split(order, turns):
        some = part(left, rows)
        expected = everything.expected(domain, (some, parents), (rows, seen), float(len(rows)), one_parent=True)
        places = np.diff(np.rint(np.cumsum(free * (len(rows) / (children - done)))), prepend=0.0)
        blocks = filled(expected @ weights, some.sizes, np.maximum(places, 0.0), rng)
        goes[rows[np.argsort(some.rows, kind="stable")]] = np.repeat(
            np.tile(np.arange(count), len(blocks)), blocks.reshape(-1)
        )
        free = np.maximum(free - blocks.sum(axis=0), 0.0)
        done += len(rows)
    members = np.split(np.argsort(goes, kind="stable"), np.cumsum(np.bincount(goes, minlength=count))[:-1])
    return [(mine, np.sort(tile)) for mine, tile in zip(members, tiles, strict=True) if len(mine)]


def _in_order(domain: Domain, sides: Sequence[Side], everything: Whole, rng: np.random.Generator) -> Integers:
    """Positions of the parents, those that agree in the attributes on which children depend most next to each other."""
    rows = [rng.choice(len(side.rows), min(SEEN, len(side.rows)), replace=False) for side in sides]
    some = [part(side, mine) for side, mine in zip(sides, rows, strict=True)]
    expected = everything.expected(domain, some, rows, float(len(rows[0])), one_parent=True)
    right, told = some[1], []
    for i, name in enumerate(right.attributes):
        values = np.zeros((domain.sizes[name], len(right.types)))
        values[right.types[:, i], np.arange(len(right.types))] = 1.0
        told.append(_information(expected @ values.T))
    order = rng.permutation(len(sides[1].rows))
    types = sides[1].types[sides[1].rows[order]]
    return np.asarray(order[np.lexsort([types[:, i] for i in np.argsort(told)])] if told else order)


def _information(joint: Array) -> float:
    """How much one of two variables says of the other, in nats, by their joint weights."""
    shares = joint / max(float(joint.sum()), 1e-300)
    alone = np.multiply.outer(shares.sum(axis=1), shares.sum(axis=0))
    return float((shares * np.log(np.maximum(shares, 1e-300) / np.maximum(alone, 1e-300))).sum())
