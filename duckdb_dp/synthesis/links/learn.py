"""dp_links without its SQL: measure through the door, fit, and deal the links to synthetic rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement
from duckdb_dp.reconstruct.postprocess import postprocess
from duckdb_dp.synthesis.links.adaptive_links import Learned, learn_links
from duckdb_dp.synthesis.links.assign_links import End, deal, each_once, feasible, totals, within
from duckdb_dp.synthesis.links.blocks import Blocks, threads
from duckdb_dp.synthesis.links.fit import tilted
from duckdb_dp.synthesis.links.learner import workloads
from duckdb_dp.synthesis.links.linked import measure_linked, shrunk
from duckdb_dp.synthesis.links.mwem_pgd import ROUNDS, paper, small_workloads
from duckdb_dp.synthesis.links.sides import Side
from duckdb_dp.synthesis.links.tiles import Tiles, part, sampled, small

METHODS = ("auto", "paper", "sliced")
"""How links are learnt."""

LINKED = 0.03
"""Share of the budget for how many rows of a side have a link at all."""

CELLS, HELD = 2**20, 2**25
"""Most cells of one pair that is measured with an attribute of the links, and of all of them together: 3 GiB."""

OWN = 0.25
"""Share for the attributes of the links themselves, where they have any."""


def links(
    queryable: PrivateQueryable,
    left: Side,
    right: Side,
    *,
    rows: int | None = None,
    distinct: bool = True,
    child: bool = False,
    no_self_links: bool = False,
    own: Sequence[str] = (),
    method: str = "auto",
    rounds: int = ROUNDS,
    rng: np.random.Generator,
    track: Track = silent,
) -> tuple[list[Integers], dict[str, Any]]:
    """Links between the rows of two synthetic tables.

    Args:
        queryable: counts of the private links over the attributes of both sides and of the links.
        left, right: the synthetic tables, with the bounds that hold in the result.
        rows: how many links; None for their noisy number.
        distinct: whether a pair of rows is linked once at most.
        child: whether every left row has exactly one link: a row of a child table and its parent.
        no_self_links: whether both sides are one table, row by row, of which no row is linked to itself.
        own: attributes of the links.
        method: 'auto', or 'paper' or 'sliced' for the paper's own loop, on row types or on random slices of rows.
        rounds: iterations of the paper's loop.
        rng: the source of randomness of what is dealt; post-processing.
        track: shows progress.

    Returns:
        (left rows, right rows, a code per link for each own attribute), and what was spent on what.

    Source: [RS25] in counts, on row types; the recipe is ours (`docs/mechanisms/links.md`).

    Privacy: spends all that the door has. One protected entity changes every count of links by at most door.rows.
    """
    rho, spent = queryable.left, {}
    shares: dict[str, tuple[float, float]] = {}
    for side in (left, right):
        if side.linked is not None:
            shares[side.linked] = measure_linked(queryable, side.linked, LINKED * rho)
            spent[side.linked] = LINKED * rho
    noisy = _measured_own(queryable, own, (*left.attributes, *right.attributes), OWN * rho) if own else []
    if own:
        spent["own"] = OWN * rho
    with threads(left, right):
        learned = _learn(method, queryable, left, right, child, rounds, rng, track)
        total = learned.total
        size = len(left.rows) if child else rows or max(1, round(total * _scale(left, right)))
        linked = [
            None if side.linked is None else shrunk(*shares[side.linked], size, len(side.rows))
            for side in (left, right)
        ]
        dealt = _dealt(queryable.domain, learned, left, right, linked, size, distinct, child, no_self_links, rng, track)
    found = [*dealt, *_drawn_own(queryable, own, noisy, total, left, right, dealt, rng)]
    return found, {"links": len(dealt[0]), "method": method, "spent": {**spent, **learned.spent}}


def check(method: str, domain: Domain, left: Side, right: Side, *, child: bool = False) -> None:
    """Refuse what a method cannot do, before anything is charged.

    Raises:
        DPError: an unknown method; one of the paper's on tables of too many different rows, or sliced on a child table.

    Privacy: depends on public facts only.
    """
    if method not in METHODS:
        raise DPError(f"dp_links: unknown method '{method}'; one of: {', '.join(METHODS)}.")
    if method == "sliced" and child:
        raise DPError("dp_links: method 'sliced' links many to many, and this is a child table; use 'auto' or 'paper'.")
    if method != "auto" and not small(left, right):
        raise DPError(
            f"dp_links: method '{method}' works on all blocks of row types, and {len(left.types)} x {len(right.types)} "
            "are too many; use 'auto'."
        )
    sides = left.attributes, right.attributes
    if method != "auto" and workloads(*sides, 3) and not small_workloads(domain, *sides):
        raise DPError(
            f"dp_links: method '{method}' measures three attributes at once, and all have too many values; use 'auto'."
        )


def _learn(
    method: str,
    queryable: PrivateQueryable,
    left: Side,
    right: Side,
    child: bool,
    rounds: int,
    rng: np.random.Generator,
    track: Track,
) -> Learned:
    check(method, queryable.domain, left, right, child=child)
    if method == "auto":
        sides = (left, right) if small(left, right) else (sampled(left, rng), sampled(right, rng))
        return learn_links(
            Blocks(queryable.domain, *sides), queryable, rho=queryable.left, one_parent=child, track=track
        )
    blocks, sliced = Blocks(queryable.domain, left, right), method == "sliced"
    return paper(
        blocks, queryable, rho=queryable.left, rng=rng, rounds=rounds, sliced=sliced, one_parent=child, track=track
    )


def _dealt(
    domain: Domain,
    learned: Learned,
    left: Side,
    right: Side,
    linked: Sequence[float | None],
    size: int,
    distinct: bool,
    child: bool,
    no_self_links: bool,
    rng: np.random.Generator,
    track: Track,
) -> tuple[Integers, Integers]:
    """Links of all tiles together, by position in the whole tables, sorted by the left row."""
    tiles = Tiles(left, right, size, rng)
    found: list[tuple[Integers, Integers]] = []
    for (lefts, rights), links_ in track(list(zip(tiles, tiles.shares(size), strict=True)), "drawing links"):
        sides = (left, right) if len(tiles) == 1 else (part(left, lefts), part(right, rights))
        ends = [
            End(side=side, bound=_bound(side, child and place == 0), linked=linked[place])
            for place, side in enumerate(sides)
        ]
        if len(tiles) == 1 and tuple(learned.links.shape) == (len(left.types), len(right.types)):
            expected = learned.links
        else:
            blocks = Blocks(domain, *sides)
            expected = tilted(blocks, blocks.independent(float(links_ or 1)), learned.tilt, one_parent=child)
        same = (lefts, rights) if no_self_links else None
        drawn = _drawn(expected, ends[0], ends[1], int(links_), distinct, child, same, rng)
        found.append((lefts[drawn[0]], rights[drawn[1]]))
    rows = [np.concatenate(ends_) for ends_ in zip(*found, strict=True)]
    order = np.lexsort((rows[1], rows[0])) if len(tiles) > 1 else slice(None)
    return rows[0][order], rows[1][order]


def _drawn(
    expected: Array,
    left: End,
    right: End,
    size: int,
    distinct: bool,
    child: bool,
    same: tuple[Integers, Integers] | None,
    rng: np.random.Generator,
) -> tuple[Integers, Integers]:
    if child:
        whole = each_once(expected, left.side.sizes, right.room, rng)
        return deal(within(whole, expected, left, right, rng), replace(left, linked=1.0), right, False, rng)
    most = len(left.side.rows) * len(right.side.rows) if distinct else size
    room = min(float(most), float(left.room.sum()), float(right.room.sum()))
    scaled = feasible(expected, left, right, int(min(size, room)), distinct)
    return deal(within(totals(scaled, rng), scaled, left, right, rng), left, right, distinct, rng, same)


def _scale(left: Side, right: Side) -> float:
    """Links per original link: as many per row of the larger synthetic table as there were."""
    return max(left.scale, right.scale) if left.population or right.population else 1.0


def _bound(side: Side, child: bool) -> int | None:
    return 1 if child else side.max_degree


def _measured_own(
    queryable: PrivateQueryable, own: Sequence[str], others: Clique, rho: float
) -> list[LinearMeasurement]:
    """Residuals of the links' own attributes, alone and with one attribute of either side, in equal shares."""
    domain = queryable.domain
    pairs = _own_pairs(domain, own, others)
    cliques: list[Clique] = [*((a,) for a in own), *((b,) for b in others), *pairs]
    cliques = [clique for clique in cliques if all(domain.sizes[name] > 1 for name in clique)]
    share = rho / max(len(cliques), 1) * (1 - 1e-9)
    return queryable.measure_residuals((clique, share) for clique in cliques)


def _own_pairs(domain: Domain, own: Sequence[str], others: Clique) -> list[Clique]:
    """Pairs of an own attribute and another one that are measured, small ones first: as many as fit into memory."""
    pairs = (domain.clique((a, b)) for a in own for b in (*others, *(o for o in own if o > a)))
    found, room = [], HELD
    for pair in sorted(pairs, key=domain.cells):
        room -= domain.cells(pair)
        if room >= 0 and domain.cells(pair) <= CELLS:
            found.append(pair)
    return found


def _drawn_own(
    queryable: PrivateQueryable,
    own: Sequence[str],
    noisy: list[LinearMeasurement],
    total: float,
    left: Side,
    right: Side,
    dealt: tuple[Integers, Integers],
    rng: np.random.Generator,
) -> list[Integers]:
    """Each own attribute given the attribute of either side that says most about it; by itself where none was measured."""
    if not own:
        return []
    domain = queryable.domain
    codes = {name: side.types[side.rows[ends], i] for side, ends in zip((left, right), dealt, strict=True)
             for i, name in enumerate(side.attributes)}  # fmt: skip
    cliques = _own_pairs(domain, own, (*left.attributes, *right.attributes))
    known = [*noisy, residual_measurement(domain, (), np.array([total]), 1.0)]
    read = postprocess("fitted", domain, [*cliques, *((a,) for a in own)], known)
    found = []
    for a in own:
        tables = {b: _oriented(read(pair), pair, b) for b in codes if (pair := domain.clique((a, b))) in cliques}
        if not tables:
            shares = np.maximum(read((a,)), 0) + 1e-12
            found.append(rng.choice(len(shares), len(dealt[0]), p=shares / shares.sum()))
            continue
        best = max(tables, key=lambda b: _information(tables[b]))
        rows = np.maximum(tables[best], 0) + 1e-9
        # All rows' distributions one after another, so that one search finds every draw.
        bounds = np.cumsum(rows / rows.sum(axis=1, keepdims=True), axis=1) + np.arange(len(rows))[:, None]
        drawn = bounds.reshape(-1).searchsorted(codes[best] + rng.random(len(dealt[0]))) - codes[best] * domain.sizes[a]
        found.append(np.clip(drawn, 0, domain.sizes[a] - 1))
    return found


def _oriented(table: Array, clique: Clique, first: str) -> Array:
    return table if clique[0] == first else table.T


def _information(table: Array) -> float:
    """Mutual information of a table of counts, in nats."""
    p = np.maximum(table, 0) + 1e-12
    p = p / p.sum()
    alone = np.multiply.outer(p.sum(axis=1), p.sum(axis=0))
    return float((p * np.log(p / alone)).sum())
