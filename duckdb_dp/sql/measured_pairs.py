"""What a stored release of synthetic rows or links says of its pairs: which were measured in groups of values, and which not at all."""

from collections.abc import Collection, Sequence

from duckdb_dp.errors import few
from duckdb_dp.request import Request
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.table.methods import GROUPED


def pairs_note(session: Session, request: Request) -> str | None:
    """Pairs that were measured in groups of neighbouring values, and pairs that were not measured; None where nothing is stored of them.

    Privacy: post-processing of a release.
    """
    stored = session.stored(request, None)
    if stored is None:
        return None
    detail = session.detail(stored)
    found = detail.get("pairs")
    if found is None:
        return _note("pairs", "in groups of neighbouring values", [one[:2] for one in detail.get(GROUPED, ())])
    what, most = "pairs of attributes of links", f"in at most {found['groups']} groups of neighbouring values"
    notes = [
        _note(what, most, found["grouped"]),
        _note(what, "not at all, as noise would drown them", found["left_out"]),
    ]
    return "; ".join(note for note in notes if note) or None


def _note(what: str, how: str, pairs: Collection[Sequence[str]]) -> str | None:
    """None where there are no pairs."""
    return f"{what} measured {how}: {few(' x '.join(pair) for pair in pairs)}" if pairs else None
