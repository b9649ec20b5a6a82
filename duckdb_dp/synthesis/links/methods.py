"""Synthetic links between two synthetic tables: measure, fit, and assign links to rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, final

import numpy as np

from duckdb_dp.domain.domain import Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.synthesis.links.adaptive_links import Learned, learn_links
from duckdb_dp.synthesis.links.alike_tiles import alike_tiles
from duckdb_dp.synthesis.links.assign_links import (
    End,
    assign_rows,
    each_once,
    feasible,
    filled,
    with_counts,
    with_numbers,
    within,
)
from duckdb_dp.synthesis.links.blocks import Blocks, threads
from duckdb_dp.synthesis.links.by_unit import ByUnit, learn_by_unit
from duckdb_dp.synthesis.links.degrees_by_value import measure_by_value
from duckdb_dp.synthesis.links.gaps import Gap
from duckdb_dp.synthesis.links.in_groups import in_groups
from duckdb_dp.synthesis.links.learner import measure_total, workloads
from duckdb_dp.synthesis.links.link_attributes import draw as draw_attributes
from duckdb_dp.synthesis.links.matches import Compared, Match
from duckdb_dp.synthesis.links.measure_attributes import measure_attributes
from duckdb_dp.synthesis.links.measure_limited import measure_limited, wanted
from duckdb_dp.synthesis.links.measured_degrees import ByGroup, Measured, at_bound
from duckdb_dp.synthesis.links.mwem_pgd import ROUNDS, mwem_pgd, small_workloads
from duckdb_dp.synthesis.links.number_classes import NumberClasses, number_classes
from duckdb_dp.synthesis.links.pair_groups import Wanted
from duckdb_dp.synthesis.links.repeats import pairs_repeat
from duckdb_dp.synthesis.links.shapes import Shape, measure_rows, shape_of, units_of
from duckdb_dp.synthesis.links.sides import Side
from duckdb_dp.synthesis.links.tiles import Tiles, part, sampled, small, tiles_of
from duckdb_dp.synthesis.links.whole import Whole, whole
from duckdb_dp.synthesis.links.whole_links import totals
from duckdb_dp.synthesis.links.within import Structure, keep_structure, measure_structure

GROUPED = "grouped"
"""Note in a release's detail: the attributes that were in groups of neighbouring values."""

METHODS = ("auto", "paper", "sliced")
"""How links are learnt."""

OF_LINKS = 0.25
"""Share for the attributes of the links themselves, where they have any."""

OF_TOTAL = 0.02
"""Share for how many links there are, where the links of each unit weigh 1 together and so nothing else needs it."""

OWN, OWN_OF_PARENTS = 0.16, 0.2
"""Share for how many links the units have by each of their own attributes; of parents, of whose children nothing else has to be known."""

WITHIN, WITHIN_CHILDREN = (0.09, 0.3), (0.16, 0.6)
"""Share for what the links of one unit have in common, and for what the children of one parent have; and how loud the noise of that
may be, as its L1 norm over the units. Children of one parent are often alike, so a louder one is worth its cost."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the links of a table obey besides the bounds of its sides; public facts.

    Attributes:
        distinct: whether a pair of rows is linked once at most.
        child: whether every left row has exactly one link: a row of a child table and its parent.
        no_self_links: whether both sides are one table, row by row, of which no row is linked to itself.
    """

    distinct: bool = True
    child: bool = False
    no_self_links: bool = False


MANY_TO_MANY = Rules()
"""Links between two tables, each pair once at most."""


def links(
    queryable: PrivateQueryable,
    left: Side,
    right: Side,
    *,
    rows: int | None = None,
    rules: Rules = MANY_TO_MANY,
    matches: Sequence[Match] = (),
    gaps: Sequence[Gap] = (),
    ordered: Mapping[str, int] = MappingProxyType({}),
    link_attributes: Sequence[str] = (),
    method: str = "auto",
    rounds: int = ROUNDS,
    unit: int | None = None,
    rng: np.random.Generator,
    track: Track = silent,
) -> tuple[list[Integers], dict[str, Any]]:
    """Links between the rows of two synthetic tables.

    Args:
        queryable: counts of the private links over the attributes of both sides and of the links.
        left, right: the synthetic tables, with the bounds that hold in the result.
        rows: how many links; None for their noisy number.
        rules: what the links obey; whether pairs are distinct is measured where the unit's side has an attribute for that.
        matches: attributes of both sides that links may match in; the published methods leave them out.
        gaps: dates of both sides that may be so far apart; as ``matches``.
        ordered: attribute of a side -> how many of its first values are in an order.
        link_attributes: attributes of the links.
        method: 'auto', or 'paper' or 'sliced' for the paper's own loop, on row types or on random slices of rows.
        rounds: iterations of the paper's loop.
        unit: the side, 0 or 1, whose rows are the units, where their links were counted unit by unit.
        rng: the source of randomness of what is drawn; post-processing.
        track: shows progress.

    Returns:
        (left rows, right rows, a code per link for each attribute of the links), and what was spent on what.

    Source: [RS25] in counts, on row types; the method 'auto' is ours (`docs/mechanisms/links.md`).

    Privacy: spends all that ``queryable`` has left. One protected entity changes every count of links by at most queryable.rows.
    """
    matches, gaps = (matches, gaps) if method == "auto" else ((), ())
    dates = {(gap.left, gap.right) for gap in gaps}
    compared: list[Compared] = [*(match for match in matches if (match.left, match.right) not in dates), *gaps]
    sizes_before = queryable.domain.sizes
    if method == "auto" and unit is not None:  # of others only pairs of few cells are counted
        queryable, (left, right) = in_groups(queryable, (left, right), unit, ordered, (*matches, *gaps))
    rho, sides = queryable.left, (left, right)
    known = measure_rows(queryable, sides, unit, rho)
    if unit is not None and (tag := sides[unit].repeated) is not None:
        units = known[unit]
        assert isinstance(units, Measured)
        rules = replace(rules, distinct=not pairs_repeat(queryable, tag, units, rho))
    spent = {"rows": rho - queryable.left}
    structure, own = None, OF_LINKS * rho if link_attributes else 0.0
    chosen = Wanted(pairs=(), rho=own, groups=0, left_out=())
    classes: NumberClasses | None = None
    if link_attributes:
        # What links have is measured by what rows are like: by which row it is each table would have few links.
        others = tuple(name for side in sides for name in side.attributes if name != side.key)
        if unit is not None and isinstance(units := known[unit], Measured):
            asked = queryable.domain, link_attributes, others, own, units, queryable.rows
            classes = number_classes(units, queryable.rows)
            chosen = wanted(*asked, matches, classes)
            own = chosen.rho
    sizes = dict[str, ByGroup]()
    if unit is not None:
        before, found = queryable.left, known[unit]
        assert isinstance(found, Measured)
        sizes = measure_by_value(queryable, sides[unit], (OWN_OF_PARENTS if rules.child else OWN) * rho, found.rows)
        share, loudest = WITHIN_CHILDREN if rules.child else WITHIN
        # Which of its rows two links of a unit go to has many pairs, which would drown what these rows are like.
        partners = tuple(name for name in sides[1 - unit].attributes if name != sides[1 - unit].key)
        spared = partners if rules.child else link_attributes
        structure = measure_structure(queryable, partners, link_attributes, share * rho, found, loudest, spared)
        spent["within units"] = before - queryable.left
    with threads(left, right):
        number = float(len(left.rows) if rules.child else rows or 0)
        if unit is None:
            learned = _learn(method, queryable, left, right, rules.child, rounds, own, compared, rng, track)
            number = number or learned.total
        elif not number:
            number, _, spent["total"] = measure_total(queryable, (OF_TOTAL * rho, 0.0), 1.0)
        size = max(1, round(number))
        shapes = [
            shape_of(found, side, queryable.domain, size, sizes) for found, side in zip(known, sides, strict=True)
        ]
        if method != "auto":  # the published methods know which rows have a link, and no more
            shapes = [replace(shape, popularity=None) for shape in shapes]
        by_unit = None if unit is None else units_of(unit, known[unit], shapes[unit], number, queryable.rows)
        if by_unit is not None:
            seen = sides if small(*sides) else tuple(sampled(side, rng) for side in sides)
            left_over = queryable.left - own
            learned, by_unit = learn_by_unit(by_unit, queryable, seen, structure, left_over, compared, track)
        drawn = _draw(queryable.domain, learned, left, right, shapes, size, rules, by_unit, rng, track)
    codes, ends = [], _codes(left, drawn[0]) | _codes(right, drawn[1])
    ends |= {match.name: match.codes(ends) for match in matches}
    if link_attributes:
        weights = np.ones(len(drawn[0]))
        if unit is None:
            measured, chosen = measure_attributes(queryable, link_attributes, learned.total, ends, matches)
        else:
            held = np.bincount(drawn[unit])[drawn[unit]]
            weights /= held
            ends |= {} if classes is None else {classes.name: classes.codes(held)}
            shown = learned.total, ends, drawn[unit]
            measured = measure_limited(
                queryable, link_attributes, chosen.pairs, *shown, rng, matches, classes, chosen.groups
            )
        codes = draw_attributes(measured, learned.total, ends, weights, rng)
    if unit is not None and structure is not None:
        found = known[unit]
        assert isinstance(found, Measured)
        all_codes = ends | dict(zip(link_attributes, codes, strict=True))
        inside = sides, unit, found.rows, rules
        drawn, codes = _kept_within(structure, drawn, all_codes, codes, *inside, rng)
    spent |= learned.spent | ({"own": own} if own else {})
    unmeasured = [queryable.domain.clique(pair) for pair in learned.unmeasured]
    detail = {"links": len(drawn[0]), "method": method, "spent": spent, "unmeasured": unmeasured}
    detail[GROUPED] = [name for name, size in queryable.domain.sizes.items() if size < sizes_before[name]]
    if unit is not None and isinstance(units := known[unit], Measured):
        detail["at_bound"] = at_bound(units, queryable.rows)
    if link_attributes:
        detail["pairs"] = chosen.told(queryable.domain)
    return [*drawn, *codes], detail


def _kept_within(
    structure: Structure,
    drawn: Sequence[Integers],
    codes: dict[str, Integers],
    own: list[Integers],
    sides: Sequence[Side],
    unit: int,
    units: float,
    rules: Rules,
    rng: np.random.Generator,
) -> tuple[tuple[Integers, Integers], list[Integers]]:
    """The same links, dealt anew among rows of the unit's side of one type, so that links of one unit have what they have in common."""
    ends = list(drawn)
    contents = keep_structure(
        structure,
        ends[unit],
        sides[unit],
        codes,
        ends[1 - unit] if rules.no_self_links or (rules.distinct and not rules.child) else None,
        scale=len(sides[unit].rows) / units,
        apart=(np.arange(len(sides[unit].rows)), np.arange(len(sides[1 - unit].rows))) if rules.no_self_links else None,
        rng=rng,
    )
    ends[1 - unit] = ends[1 - unit][contents]
    order = np.lexsort((ends[1], ends[0]))
    return (ends[0][order], ends[1][order]), [part[contents][order] for part in own]


def check(method: str, domain: Domain, left: Side, right: Side, *, child: bool = False) -> None:
    """Refuse what a method cannot do, before anything is charged.

    Raises:
        DPError: an unknown method; 'paper' or 'sliced' on tables with too many row types; 'sliced' on a child table.

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
    own: float,
    matches: Sequence[Compared],
    rng: np.random.Generator,
    track: Track,
) -> Learned:
    """The links as estimated; ``own`` is kept for their attributes."""
    check(method, queryable.domain, left, right, child=child)
    if method == "auto":
        sides = (left, right) if small(left, right) else (sampled(left, rng), sampled(right, rng))
        blocks = Blocks(queryable.domain, *sides)
        return learn_links(blocks, queryable, rho=queryable.left - own, one_parent=child, matches=matches, track=track)
    blocks, sliced = Blocks(queryable.domain, left, right), method == "sliced"
    return mwem_pgd(
        blocks,
        queryable,
        rho=queryable.left - own,
        rng=rng,
        rounds=rounds,
        sliced=sliced,
        one_parent=child,
        track=track,
    )


def _draw(
    domain: Domain,
    learned: Learned,
    left: Side,
    right: Side,
    shapes: Sequence[Shape],
    size: int,
    rules: Rules,
    by_unit: ByUnit | None,
    rng: np.random.Generator,
    track: Track,
) -> tuple[Integers, Integers]:
    """Links of all tiles together, by position in the whole tables, sorted by the left row."""
    everything = None if small(left, right) else whole(domain, (left, right), learned, by_unit, rng)
    tiles = _tiles(domain, everything, (left, right), size, rules.child and shapes[1].popularity is None, rng)
    drawn: list[tuple[Integers, Integers]] = []
    for (lefts, rights), number in track(tiles, "drawing links"):
        sides = (left, right) if len(tiles) == 1 else (part(left, lefts), part(right, rights))
        bounds = (1 if rules.child else left.max_degree, right.max_degree)
        ends = [
            End(
                side=s,
                bound=b,
                linked=shape.linked,
                degrees=shape.degrees,
                popularity=None if shape.popularity is None else shape.popularity.part(rows),
            )
            for s, b, shape, rows in zip(sides, bounds, shapes, (lefts, rights), strict=True)
        ]
        if everything is not None:
            rows_of = lefts, rights
            expected = everything.expected(domain, sides, rows_of, float(number or 1), one_parent=rules.child)
        elif by_unit is not None:
            expected = by_unit.expected(domain, sides, learned.tilt, float(number or 1))
        else:
            expected = learned.links
        one_table = (lefts, rights) if rules.no_self_links else None
        rows = _draw_tile(expected, ends[0], ends[1], int(number), rules, one_table, rng)
        drawn.append((lefts[rows[0]], rights[rows[1]]))
    left_rows, right_rows = (np.concatenate(rows) for rows in zip(*drawn, strict=True))
    order = np.lexsort((right_rows, left_rows)) if len(tiles) > 1 else slice(None)
    return left_rows[order], right_rows[order]


def _tiles(
    domain: Domain, everything: Whole | None, sides: tuple[Side, Side], size: int, alike: bool, rng: np.random.Generator
) -> list[tuple[tuple[Integers, Integers], int]]:
    """The rows of both sides that are linked together, and how many links they have; ``alike`` keeps rows that are alike together."""
    count = tiles_of(*sides, size)
    if everything is not None and alike and count > 1:
        return [(tile, len(tile[0])) for tile in alike_tiles(domain, sides, everything, count, rng)]
    tiles = Tiles(*sides, size, None if everything is None else everything.spread, rng)
    return list(zip(tiles, tiles.shares(size).tolist(), strict=True))


def _draw_tile(
    expected: Array,
    left: End,
    right: End,
    size: int,
    rules: Rules,
    one_table: tuple[Integers, Integers] | None,
    rng: np.random.Generator,
) -> tuple[Integers, Integers]:
    """Links of one tile: whole numbers per block, then rows for both ends."""
    if rules.child:
        children = expected * (len(left.side.rows) / max(float(expected.sum()), 1e-300))
        right = with_counts(right, children.sum(axis=0), len(left.side.rows), rng)
        right = with_numbers(right, children.sum(axis=0), len(left.side.rows), rng)
        if not right.drawn:
            whole = each_once(expected, left.side.sizes, right.room, rng)
        else:
            whole = filled(expected, left.side.sizes, right.held(children.sum(axis=0)), rng)
        blocks = within(whole, expected, left, right, rng)
        return assign_rows(blocks, replace(left, linked=1.0), right, False, rng)
    most = len(left.side.rows) * len(right.side.rows) if rules.distinct else size
    room = min(float(most), float(left.room.sum()), float(right.room.sum()))
    scaled = feasible(expected, left, right, int(min(size, room)), rules.distinct)
    sums = scaled.sum(axis=1), scaled.sum(axis=0)
    lefts, rights = (len(end.side.rows) if rules.distinct else size for end in (left, right))
    left, right = with_counts(left, sums[0], rights, rng), with_counts(right, sums[1], lefts, rng)
    left, right = with_numbers(left, sums[0], rights, rng), with_numbers(right, sums[1], lefts, rng)
    if not (left.drawn or right.drawn):
        whole = totals(scaled, rng)
    else:
        both = np.multiply.outer(left.side.sizes, right.side.sizes).astype(np.float64)
        pairs = both if rules.distinct else np.inf
        whole = filled(scaled, left.held(sums[0]), right.held(sums[1]), rng, pairs)
    return assign_rows(within(whole, scaled, left, right, rng), left, right, rules.distinct, rng, one_table)


def _codes(side: Side, rows: Integers) -> dict[str, Integers]:
    """For each attribute of a side its code at every link, from the row at that end."""
    return {name: side.types[side.rows[rows], i] for i, name in enumerate(side.attributes)}
