"""Whether an earlier version may have stored the answers of a request in another form of it, under which they have to be looked for."""

import re
from collections.abc import Callable
from typing import final

from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.request import Request
from duckdb_dp.sql.arguments import Arguments
from duckdb_dp.sql.session import Session

_AS_WRITTEN = 'AS \\"t0\\"'
"""What the text of a request of a join says, in JSON, where its tables keep the order in which they were written."""

_CANONICAL = 'AS \\"u0\\"'
"""What it says where they do not."""

_RESPELT = re.compile(r"\b(BETWEEN|IN|NOT|GROUP)\b", re.IGNORECASE)
"""Words without which conditions of joins, and the keys of groups inside, are as they were first."""

_RESPELT_AGAIN = re.compile(
    r"\b(BETWEEN|IN|OR|AND|NOT|TRUE|FALSE|FILTER|COUNT_?IF|SUM|F?AVG|MEAN|STDDEV\w*|VAR\w*|\d{4}-\d\d-\d\d)\b",
    re.IGNORECASE,
)
"""Words without which they, and what is summed, are as they were before they took the form that they have now."""

NUMBERED = re.compile(r"\bROW_NUMBER\b", re.IGNORECASE)
"""What numbers the rows of each unit: as many as a unit has counted, however few are kept, before a condition on it bounded them."""

_OUTER = re.compile(r"\b(LEFT|RIGHT)\b", re.IGNORECASE)
"""Words of joins that may be inner ones by conditions, and were none."""

_SUBQUERY = re.compile(r"\(\s*(SELECT|FROM|WITH)\b", re.IGNORECASE)
"""What may have been grouped by, and whose groups were found."""

TOGETHER = "groups"
"""What columns of public tables are called that are grouped by together: of some types they were each by itself."""

_SOUGHT = '"other":true'
"""What it says where groups were found: also those of columns that refer to a public table, before they were the keys there."""


@final
class Looked:
    """Whether a ledger has such requests, by the account that sees them: it is looked through once, as no more of them are made."""

    def __init__(self) -> None:
        self.found: dict[object, bool] = {}
        self.respelt: dict[object, bool] = {}
        self.sought: dict[object, bool] = {}
        self.joined: dict[object, bool] = {}


def possible(session: Session, request: Request) -> bool:
    """Whether the request may be stored as earlier versions wrote it: a join, or counts that are measured once now.

    Privacy: costs nothing; reads the ledger alone.
    """
    if has_sources(request):
        return _has_joins(session, request.function)
    return any(part.shares for part in request.direct)


def has_sources(request: Request) -> bool:
    """Whether the request reads relations of joined tables."""
    return any(part.source is not None and part.source.canonical for part in request.direct)


def forms(session: Session, request: Request, arguments: Arguments) -> tuple[int, ...]:
    """The forms, as ``same_conditions.in_form`` numbers them, in which the request may be stored.

    Privacy: costs nothing; reads the ledger alone.
    """
    quantiles = any(one.kind == "quantile" for part in request.direct for one in part.sums)
    wider = quantiles or any(part.rows is not None or part.limit is not None for part in request.direct)
    wider = wider or any(map(_said_of, request.direct))
    shown = any(one.values for part in request.direct for one in part.labels)
    grouped = any(part.clique for part in request.direct)
    found_before = grouped and _seen(session, request.function, session.kept(Looked).sought, lambda one: _SOUGHT in one)
    fifth = shown or found_before or quantiles or any(map(_joins_or_windows, request.direct))
    asked = str(arguments.get("sql", "GROUP OR"))
    views = [one.name.lower() for one in session.ledger.families.relations() if one.member and one.member.view]
    viewed = any(name in asked.lower() for name in views)  # whose own declarations said nothing in joins
    outer = has_sources(request) and (viewed or _OUTER.search(asked) is not None)  # where they may be inner ones now
    fifth = fifth or outer or (grouped and not has_sources(request))
    fourth = quantiles or any(map(_differs, request.direct))
    latest = (*((5,) if fifth else ()), *((4,) if fourth else ()), *((3,) if wider else ()))
    if not has_sources(request):
        return (*latest, 1) if request.direct else ()
    words = {3: NUMBERED, 2: _RESPELT_AGAIN, 1: _RESPELT}
    found = [*dict.fromkeys([*latest, *(number for number, one in words.items() if one.search(asked))])]
    if found and not _seen(session, request.function, session.kept(Looked).respelt, _has_respelt):
        found = []
    if grouped and _seen(session, request.function, session.kept(Looked).joined, lambda one: _CANONICAL in one):
        found = [*dict.fromkeys([*found, 5])]
    if found_before:
        found = [*dict.fromkeys([*found, 5, 3])]
    few = any(one.each for part in request.direct for one in part.sums)  # which had the noise of all rows
    beside = any(name.startswith(TOGETHER) for part in request.direct for name in part.clique)
    summed = any(one.value and one.kind in ("sum", "quantile") for part in request.direct for one in part.sums)
    once = any(one.distinct for part in request.direct for one in part.sums)
    for number, changed in (
        (6, few or beside or viewed),
        (7, grouped or outer or summed),  # of which public rows say bounds
        (8, once or _SUBQUERY.search(asked) is not None),
    ):
        if changed and _seen(session, request.function, session.kept(Looked).joined, lambda one: _CANONICAL in one):
            found = [*dict.fromkeys([number, *found])]
    return tuple(found)


def _said_of(part: GroupedSums) -> bool:
    """Whether conditions may compare an expression that is summed, or it may be a difference of dates, whose bounds are chosen.

    Conditions bounded columns alone before, and differences of dates had the bounds of their declarations.
    """
    if any((one.chosen or part.source is not None) and " - " in one.value for one in part.sums):
        return True
    texts = [one.value for one in part.sums if one.value and not one.value.isidentifier()]
    return any(one in text for one in texts for text in (part.where, *(other.where for other in part.sums)))


def _joins_or_windows(part: GroupedSums) -> bool:
    """Whether it reads a LEFT JOIN, whose table had all of a unit's rows for each row before it up to form 5, or a window.

    Nothing was known of the values of windows, whatever is declared of their columns.
    """
    return part.source is not None and any(one in part.source.sql for one in ("LEFT JOIN", " OVER ("))


def _differs(part: GroupedSums) -> bool:
    """Whether it may sum what is worked out of differences of dates, which had the bounds of their declarations up to form 4."""
    return any(" - " in one.value and (one.chosen or one.where or part.where or part.source) for one in part.sums)


def formed(number: int, made: Callable[[], Request]) -> Callable[[], Request]:
    """What makes the request with its conditions, and the keys of groups inside, in one of these forms."""
    from duckdb_dp.sql.same_conditions import in_form  # for import time: it brings sqlglot

    def again() -> Request:
        with in_form(number):
            return made()

    return again


def _has_joins(session: Session, function: str) -> bool:
    return _seen(session, function, session.kept(Looked).found, lambda request: _AS_WRITTEN in request)


def _has_respelt(request: str) -> bool:
    respelt = _RESPELT.search(request) or _RESPELT_AGAIN.search(request) or NUMBERED.search(request)
    return _CANONICAL in request and (
        respelt is not None
        or '"quantile"' in request
        or '"number":2' in request
        or '["",' in request
        or '"limit":null' not in request
    )


def _seen(session: Session, function: str, found: dict[object, bool], like: Callable[[str], bool]) -> bool:
    account = session.ledger.account
    if account not in found:
        numbers = session.ledger.newest(function, 2**31, private=session.bits.private)
        found[account] = any(like(session.ledger.release(number).request) for number, _ in numbers)
    return found[account]
