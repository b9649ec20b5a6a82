"""What is said of pairs of synthetic rows or links: which have too many cells, which were measured in groups, and which not at all."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.turns import TURNS
from duckdb_dp.errors import few
from duckdb_dp.request import Request
from duckdb_dp.sql import dp_links
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.links import columns as links
from duckdb_dp.synthesis.links.methods import GROUPED as IN_GROUPS
from duckdb_dp.synthesis.table import columns as rows
from duckdb_dp.synthesis.table.methods import GROUPED

ELSEWHERE, DROWNED = "not at all, as the budget says more elsewhere", "not at all, as noise would drown them"
"""How pairs were measured that were small enough."""

Note = tuple[str, str, Sequence[Clique]]
"""Which pairs, how they were measured, and their attributes."""


def too_large_note(request: Request) -> str | None:
    """Which pairs have too many cells to be measured, and what would help; which dates keep their difference. None where there are none.

    Noise may drown that: it depends on the noisy number of links, and ``pairs_note`` says it after.

    Privacy: depends on public facts only.
    """
    notes, apart = [], links.apart(request) if request.function == dp_links.FUNCTION.name else []
    if apart:
        kept = "of dates and times it is kept how far their bins are apart, to a factor of 2"
        notes.append(f"where noise does not drown it, {kept}: {_listed(apart)}")
    if pairs := _too_large(request):
        of_unit = request.function == dp_links.FUNCTION.name and links.unit_side(request) is not None
        groups = ", or noise is so large that these are in groups" if of_unit else ""
        notes.append(
            "pairs of too many cells keep no relation but what other pairs imply, unless dp_attribute gives them a larger step or "
            f"fewer bins{groups}: {_listed(pairs)}"
        )
    return "; ".join(notes) or None


def pairs_note(session: Session, request: Request) -> str | None:
    """How many rows of a unit counted, and pairs that were measured in groups or not, without those of too many cells.

    None where nothing is stored of them.

    Privacy: post-processing of a release.
    """
    stored = session.stored(request, None)
    if stored is None:
        return None
    said = _of_links if request.function == dp_links.FUNCTION.name else _of_rows
    detail = session.detail(stored)
    notes = said(detail, request.domain, set(_too_large(request)))
    found = [f"{what} measured {how}: {_listed(pairs)}" for what, how, pairs in notes if pairs]
    if (first := detail.get(TURNS, request.max_rows)) < request.max_rows:
        found.insert(
            0,
            f"{first} of up to {request.max_rows} rows of each unit counted, as more would have told less than their noise hides",
        )
    return "; ".join(found) or None


def _too_large(request: Request) -> list[Clique]:
    return links.too_large(request) if request.function == dp_links.FUNCTION.name else rows.too_large(request)


def _of_rows(detail: Mapping[str, Any], domain: Domain, too_large: Collection[Clique]) -> Iterator[Note]:
    grouped = [tuple(one[:2]) for one in detail.get(GROUPED, ())]
    yield "pairs", "in groups of values", grouped
    measured = {pair for clique in (*detail["measured"], *grouped) for pair in itertools.combinations(clique, 2)}
    every = itertools.combinations([name for name, size in domain.sizes.items() if size > 1], 2)
    yield "pairs", ELSEWHERE, [pair for pair in every if pair not in measured and pair not in too_large]


def _of_links(detail: Mapping[str, Any], domain: Domain, too_large: Collection[Clique]) -> Iterator[Note]:
    def small(pairs: Sequence[Sequence[str]]) -> list[Clique]:
        return [pair for pair in map(tuple, pairs) if pair not in too_large]

    if (found := detail.get("pairs")) is not None:
        what, most = "pairs of attributes of links", f"in at most {found['groups']} groups of neighbouring values"
        yield what, most, found["grouped"]
        yield what, DROWNED, small(found["left_out"])
    yield (
        "attributes of both sides",
        "in groups of neighbouring values",
        [(name,) for name in detail.get(IN_GROUPS, ())],
    )
    yield "pairs of attributes of both sides", DROWNED, small(detail.get("unmeasured", ()))


def _listed(pairs: Collection[Sequence[str]]) -> str:
    return few(" x ".join(pair) for pair in pairs)
