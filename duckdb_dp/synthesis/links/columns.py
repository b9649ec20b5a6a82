"""dp_links: from a request to the stored columns of synthetic links: the keys at both ends, and the links' attributes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from duckdb_dp.answers import DETAIL, to_bytes
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import Attribute, Clique
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array, Integers
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.request import Request, units
from duckdb_dp.synthesis.base import Run, SyntheticTable, contents, ends, generator
from duckdb_dp.synthesis.database import Reference
from duckdb_dp.synthesis.links import learner, mwem_pgd
from duckdb_dp.synthesis.links.gaps import gaps_of, pairs_of
from duckdb_dp.synthesis.links.hierarchy import NOBODY, hierarchy
from duckdb_dp.synthesis.links.linked_rows import linked_rows
from duckdb_dp.synthesis.links.matches import matches_of
from duckdb_dp.synthesis.links.measure_attributes import countable
from duckdb_dp.synthesis.links.methods import METHODS, Rules, links
from duckdb_dp.synthesis.links.methods import check as check_method
from duckdb_dp.synthesis.links.pair_groups import candidates
from duckdb_dp.synthesis.links.sides import Side, side_of
from duckdb_dp.synthesis.links.tiles import part
from duckdb_dp.synthesis.table.columns import ROUNDED, SHARES, ordered, stored

ORPHANS = 0.06
"""Share of the budget for finding which rows of a child table have a parent, where some may have none."""

OWN_ORPHANS = 0.15
"""The same where rows refer to rows of their own table, whose bound makes the noise several times larger."""

LEAST = 1e-18
"""Cost under which links are not drawn: their noisy number would be of the order of 10^9."""

(DEFAULT, *_) = METHODS

JOINED = "joined"
"""The option of a request that says what each side has by references to other tables, where one has anything."""

LINKED, DEGREE, REPEATED = ".linked", ".degree", ".repeats a pair"
"""Ends of the names, after a role, of pseudo-attributes of its rows: whether they have a link, how many, and whether two are of a pair."""


def side_attributes(request: Request, end: int) -> tuple[Attribute, ...]:
    """The attributes of the left (0) or right (1) side of a dp_links, as the request calls them."""
    sizes = dict(request.options)["sizes"]
    start = sum(sizes[:end])
    return request.attributes[start : start + sizes[end]]


def implied(request: Request, end: int) -> frozenset[tuple[str, str]]:
    """Attributes of a side, and those of its rows, or of the public rows to which these refer, that follow from them."""
    options = dict(request.options)
    attributes = side_attributes(request, end)
    own, found = {attribute.name for attribute in attributes}, set[tuple[str, str]]()
    start = len(attributes)
    for one in reversed(options[JOINED][end] if JOINED in options else ()):
        read, start = attributes[start - one["size"] : start], start - one["size"]
        columns = one["reference"]["columns"]
        name = f"{options['references'][end]['role']}.{columns[0]}"
        if len(columns) == 1 and name in own:
            found |= {(name, attribute.name) for attribute in read}
    if (key := key_attribute(request, end)) is not None:
        found |= {(key, name) for name in own - {key}}
    return frozenset(found)


def key_attribute(request: Request, end: int) -> str | None:
    """The attribute of a side that is its key, as that of a small public table is; None where none is."""
    reference = dict(request.options)["references"][end]
    names = [f"{reference['role']}.{column}" for column in reference["key"]]
    held = {attribute.name for attribute in side_attributes(request, end)}
    return names[0] if len(names) == 1 and {*names} <= held else None


def link_attributes(request: Request) -> list[Attribute]:
    """The attributes of the link table itself."""
    start = sum(dict(request.options)["sizes"])
    return [
        attribute for attribute in request.attributes[start:] if not attribute.name.endswith((LINKED, DEGREE, REPEATED))
    ]


def _counted(request: Request) -> list[str]:
    """The names of what is counted of the links themselves: their attributes, and the differences of these."""
    return [*(one.name for one in link_attributes(request)), *(one.name for one in request.differences)]


def check(request: Request) -> None:
    """Refuse what cannot be done, before anything is charged.

    Raises:
        DPError: an unknown method; an option that it, or a child table, does not have; a cost at which links are only noise.
    """
    if 0 < request.cost < LEAST:
        raise DPError(
            f"a cost of {request.cost:g} would give links that are nothing but noise; ask for a cost (rho, or mu^2) of {LEAST:g} or more."
        )
    if request.mechanism not in METHODS:
        raise DPError(f"method is {as_sql(request.mechanism)}; use {' or '.join(map(repr, METHODS))}.")
    options = dict(request.options)
    if options["child"] and "rows" in options:
        raise DPError(
            "rows: each row of the synthetic child table has one parent at most; make that table with as many rows."
        )
    if request.mechanism == DEFAULT and "rounds" in options:
        raise DPError(f"rounds: method '{DEFAULT}' does not take that; method := 'paper' does.")


def check_tables(request: Request, tables: Sequence[SyntheticTable], bound_holds: bool) -> None:
    """Refuse synthetic tables that cannot be linked, and a broken promise, before anything is charged.

    Raises:
        DPError: an empty table, keys that repeat, values outside the domain; more links than there can be.
    """
    check_promise(request, bound_holds)
    options = dict(request.options)
    for end, table in enumerate(tables):
        name = options["synthetic"][end]
        columns = ", ".join(options["references"][end]["key"])
        if not table.rows:
            raise DPError(f"{name} has no rows whose key ({columns}) is not NULL; make some with dp_synthesize.")
        table.check_values(name, side_attributes(request, end))
        if not table.distinct:
            raise DPError(f"{name} has rows whose key ({columns}) is NULL or the same as another's; number them.")
    if (rows := options.get("rows")) is not None and not options["child"]:
        most, why = _most(request, tables)
        if rows > most:
            raise DPError(f"rows is {rows:,}, and there can be {most:,} links at most: {why}; ask for fewer.")
    if request.mechanism != DEFAULT:
        left, right = sides_of(request, tables)
        check_method(request.mechanism, request.domain, left, right, child=bool(options["child"]))


def _most(request: Request, tables: Sequence[SyntheticTable]) -> tuple[int, str]:
    """How many links the synthetic tables can have, and why no more."""
    left, right = (table.rows for table in tables)
    pairs = left * right - (left if _no_self_links(request) else 0)
    limits = (
        [(pairs, f"{left:,} times {right:,} rows make {pairs:,} pairs")] if dict(request.options)["distinct"] else []
    )
    limits += [
        (table.rows * request.max_rows, f"{table.rows:,} rows of {request.max_rows:,} links each")
        for end, table in enumerate(tables)
        if _protected(request, end)
    ]
    return min(limits)


def _no_self_links(request: Request) -> bool:
    """Whether both ends are rows of one table, and so none is linked to itself."""
    options = dict(request.options)
    left, right = map(Reference.from_json, options["references"])
    one_parent_table = (left.parent, left.key) == (right.parent, right.key)
    return one_parent_table and options["synthetic"][0] == options["synthetic"][1] and not options["child"]


def _protected(request: Request, end: int) -> bool:
    """Whether the bound on links is one for the rows of a side."""
    columns = {column.lower() for column in dict(request.options)["references"][end]["columns"]}
    return columns in [{column.lower() for column in unit} for unit in units(request.unit)]


def unit_side(request: Request) -> int | None:
    """The end whose rows are the one unit that is protected, each with its links, which are listed unit by unit; public.

    None where two units are, or single rows; for the published methods, which use no more than counts; and in other engines,
    which return counts alone.
    """
    if request.function != "dp_links" or request.mechanism != DEFAULT or request.schema == SCHEMA:
        return None
    options = dict(request.options)
    if "once" in options:
        return None  # one link each: there is nothing in common
    ends = [1] if options["child"] else [0, 1]
    found = [end for end in ends if _protected(request, end)]
    return found[0] if len(found) == len(units(request.unit)) == 1 else None


def counted_sides(request: Request) -> tuple[int, ...]:
    """The ends whose rows anybody may see, and have their links counted row by row; public.

    Each of the many links of such a row is one of another unit. Where the unit is no end, and no end's rows are the links, one unit
    may have all its links to one row of either side: then they are not counted.
    """
    if request.function != "dp_links" or request.mechanism != DEFAULT or request.schema == SCHEMA:
        return ()
    child, unit = bool(dict(request.options)["child"]), unit_side(request)
    other = (1 if child else None) if unit is None else None if child else 1 - unit
    return () if other is None or _bound(request, other) is not None else (other,)


def _bound(request: Request, end: int) -> int | None:
    """How many links a row of a side may have; None for any number."""
    options = dict(request.options)
    if end == 1 and options.get("once"):
        return 1
    if end == 1 and "children" in options:
        return int(options["children"])
    return request.max_rows if _protected(request, end) else None


def left_out(request: Request) -> str | None:
    """Which links are not counted because of the bound, in words; None where none are. It depends on public facts alone."""
    options, most = dict(request.options), request.max_rows
    references = [Reference.from_json(reference) for reference in options["references"]]
    if len(units(request.unit)) > 1:
        return f"no row of either side has more than {most} links, as promised, so none are left out"
    if "children" in options:
        most, columns = options["children"], references[1].columns
        return (
            f"of the rows with one {', '.join(columns)} {most} are counted, and no synthetic row is referred to by more"
        )
    ends = [end for end in ((1,) if options["child"] else (0, 1)) if _protected(request, end)]
    if not ends:
        return None
    role = references[ends[0]].role
    if options.get("one_parent"):
        bound = (
            ""
            if most == 1
            else f", and {most} of its links at most, or as few as max_degree says; no synthetic row has more"
        )
        return f"of each unit one row of '{role}' is counted{bound}"
    return f"links of one row of '{role}' above {most} are not counted, and no synthetic row has more"


def too_large(request: Request) -> list[Clique]:
    """The pairs of attributes, across the sides or of the links, that have too many cells to be measured; public."""
    domain, own = request.domain, _counted(request)
    left, right = ([attribute.name for attribute in side_attributes(request, end)] for end in (0, 1))
    across = learner.too_large if request.mechanism == DEFAULT else mwem_pgd.too_large
    asked = [] if unit_side(request) is not None else candidates(domain, own, (*left, *right))
    held = set(countable(domain, asked))
    large, differing = across(domain, left, right), apart(request)
    return [*(pair for pair in large if pair not in differing), *(pair for pair in asked if pair not in held)]


def apart(request: Request) -> list[Clique]:
    """The pairs of dates or times across the sides that are measured by how far they are apart; public."""
    left, right = (side_attributes(request, end) for end in (0, 1))
    return pairs_of(left, right) if request.mechanism == DEFAULT else []


def check_promise(request: Request, bound_holds: bool) -> None:
    """Refuse links that break the bound that was promised for both sides. The error says neither whose nor how many.

    Raises:
        DPError: the bound does not hold.
    """
    if not bound_holds:
        raise DPError(
            f"'{request.table}' has rows with more links than the {request.max_rows} promised for both sides; protect a "
            "view of it with a larger max_rows, or one side, whose further links are left out."
        )


def run(request: Request, tables: Sequence[SyntheticTable], track: Track) -> Run:
    """The function that draws the links.

    Privacy: spends all that ``queryable`` has left.
    """

    def drawn(queryable: PrivateQueryable) -> Mapping[str, Array]:
        rng = generator(queryable)
        found, detail = links_of(queryable, request, tables, rng, track)
        if not dict(request.options)["child"]:  # they come unit by unit
            order = rng.permutation(len(found[0]))
            found = [column[order] for column in found]
        left, right, *codes = found
        columns = [
            *ends(tables[0], left),
            *ends(tables[1], right),
            *stored(request, link_attributes(request), codes, rng),
        ]
        noted = {**contents(tables), "texts": [table.texts for table in tables], SHARES: True, ROUNDED: True, **detail}
        return {DETAIL: to_bytes(noted), **{str(i): column for i, column in enumerate(columns)}}

    return drawn


def links_of(
    queryable: PrivateQueryable,
    request: Request,
    tables: Sequence[SyntheticTable],
    rng: np.random.Generator,
    track: Track,
) -> tuple[list[Any], dict[str, Any]]:
    """The links of a request; the bound of a protected side also holds for its synthetic rows.

    Returns:
        (left rows, right rows, a code per link for each attribute of the links), and what was spent on what. Of a child
        table every row is a left row; where it has no parent the right one is NaN.

    Privacy: spends all that ``queryable`` has left.
    """
    options = dict(request.options)
    left, right = sides_of(request, tables)
    child = bool(options["child"])
    rules = Rules(distinct=bool(options["distinct"]), child=child, no_self_links=_no_self_links(request))
    linked = _rows_with_parent(queryable, options, left, right, rng) if child else np.arange(len(left.rows))
    drawn, detail = links(
        queryable,
        replace(part(left, linked), linked=None) if child else left,
        right,
        rows=options.get("rows"),
        rules=rules,
        matches=matches_of(side_attributes(request, 0), side_attributes(request, 1)),
        gaps=gaps_of(side_attributes(request, 0), side_attributes(request, 1)),
        ordered={one.name: ordered(one) for end in (0, 1) for one in side_attributes(request, end)},
        link_attributes=_counted(request),
        method=request.mechanism,
        unit=unit_side(request),
        rng=rng,
        track=track,
        **({"rounds": options["rounds"]} if "rounds" in options else {}),
    )
    if child:
        parents = np.full(len(left.rows), np.nan)
        parents[linked[drawn[0]]] = drawn[1]
        _give_parents(parents, linked, right, rng)
        if "children" in options and options["synthetic"][0] == options["synthetic"][1]:
            parents = _hierarchy(parents, left, rng)
        drawn = [np.arange(len(left.rows)), parents]
    return drawn, detail


def _rows_with_parent(
    queryable: PrivateQueryable, options: Mapping[str, Any], left: Side, right: Side, rng: np.random.Generator
) -> Integers:
    """Positions of the rows of a child table that get a parent, in order.

    Privacy: spends a share of what ``queryable`` has left where rows may have no parent, else nothing.
    """
    everyone = np.arange(len(left.rows))
    room = len(everyone) if right.max_degree is None else right.max_degree * len(right.rows)
    if left.linked is not None:
        share = OWN_ORPHANS if "children" in options else ORPHANS
        return linked_rows(queryable, left, left.linked, room, share * queryable.left, rng)
    if room < len(everyone):
        return np.sort(rng.permutation(everyone)[:room])
    return everyone


def _give_parents(parents: Array, linked: Integers, right: Side, rng: np.random.Generator) -> None:
    """Give rows that should have a parent but got none, in place, any parent with a free slot."""
    left = linked[np.isnan(parents[linked])]
    if not len(left):
        return
    if right.max_degree is None:
        parents[left] = rng.integers(0, len(right.rows), len(left))
        return
    held = np.bincount(parents[~np.isnan(parents)].astype(np.int64), minlength=len(right.rows))
    room = np.repeat(np.arange(len(right.rows)), np.maximum(right.max_degree - held, 0))
    chosen = rng.permutation(room)[: len(left)]
    parents[left[: len(chosen)]] = chosen


def _hierarchy(parents: Array, side: Side, rng: np.random.Generator) -> Array:
    """The same parents as a hierarchy, where some rows may have none; both sides are one table, in one order."""
    if side.linked is None:
        return parents
    known = hierarchy(np.nan_to_num(parents, nan=NOBODY).astype(np.int64), side.rows, side.types, rng)
    return np.where(known == NOBODY, np.nan, known)


def sides_of(request: Request, tables: Sequence[SyntheticTable]) -> tuple[Side, Side]:
    """Both synthetic tables as sides; besides them they contain only public facts about the private tables."""
    references = dict(request.options)["references"]
    sides = []
    for end, table in enumerate(tables):
        reference = Reference.from_json(references[end])
        attributes = side_attributes(request, end)
        tags = [tag for end in (LINKED, DEGREE) if (tag := f"{reference.role}{end}") in request.domain.sizes]
        sides.append(
            side_of(
                tuple(attribute.name for attribute in attributes),
                table.codes(attributes).astype(np.int64),
                max_degree=_bound(request, end),
                implied=implied(request, end),
                key=key_attribute(request, end),
                linked=tags[0] if tags else None,
                repeated=repeated if (repeated := f"{reference.role}{REPEATED}") in request.domain.sizes else None,
            )
        )
    left, right = sides
    return left, right
