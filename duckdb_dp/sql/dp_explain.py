"""dp_explain: how accurate a request would be and what it would cost, before anything is spent."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from duckdb_dp.accounting.convert import shown
from duckdb_dp.accounting.event import AdaptiveEvent, Event
from duckdb_dp.accounting.history import compared as compared_accountings
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.answers import direct_plan, plan, price
from duckdb_dp.budget import Budget
from duckdb_dp.errors import DPError
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.outputs import Output
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import choose
from duckdb_dp.plan.direct import DirectPlan
from duckdb_dp.plan.requested import event
from duckdb_dp.plan.selection import INTERVALS
from duckdb_dp.plan.unknown_values import ThresholdNoise
from duckdb_dp.release import check
from duckdb_dp.request import SELECT, Request
from duckdb_dp.sql import (
    compared_marginals,
    compared_queries,
    dp_marginals,
    dp_quantiles,
    dp_sql,
    explained_calls,
    routes,
)
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.found_groups import Found
from duckdb_dp.sql.quantile_rows import told_of
from duckdb_dp.sql.question_kinds import Kind
from duckdb_dp.sql.questions import kinds, opened, precise, request_of
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "marginal": "VARCHAR",
    "cells": "BIGINT",
    "stddev": "DOUBLE",
    "half_width": "DOUBLE",
    "budget_share": "DOUBLE",
    "mechanism": "VARCHAR",
    "rho": "DOUBLE",
    "mu": "DOUBLE",
    "epsilon": "DOUBLE",
    "delta": "DOUBLE",
    "ratio_to_gaussian": "DOUBLE",
    "gap": "DOUBLE",
    "history": "VARCHAR",
    "neighbours": "VARCHAR",
    "route": "VARCHAR",
    "part_of": "VARCHAR",
    "error_in": "VARCHAR",
}

PLACES = "places of the sorted rows"
"""The unit of the error of a quantile: how far that is in values depends on the data."""


def columns(arguments: Arguments) -> dict[str, str]:
    """Names and types of the rows."""
    arguments = _named(arguments)
    if (found := explained_calls.find(arguments)) is not None:
        return dict(found[0].columns)
    if _compares(arguments):
        return compared_marginals.COLUMNS if _explained(arguments) is dp_marginals.KIND else compared_queries.COLUMNS
    return COLUMNS


def rows(session: Session, arguments: Arguments, place: Place, _seen: str) -> Rows:
    """How accurate a request would be and what it would cost, without reading data.

    Privacy: costs nothing.
    """
    arguments = _named(arguments)
    if (call := explained_calls.find(arguments)) is not None:
        return call[0].explain(session, call[1], place)
    kind, compared = _explained(arguments), _compares(arguments)
    if arguments.get("rows") is not None and not compared:
        raise DPError(
            "rows says how many rows to assume where mechanisms are compared; leave it out, or use mechanism := 'all'."
        )
    _, arguments = opened(session, kind, {**arguments, kind.argument: arguments["attributes"]}, place)
    if compared:
        arguments = {**arguments, "mechanism": "auto"}
    delta = arguments.get("delta")  # beside a precision it only says where to show epsilon
    arguments = precise(session, kind, arguments, place)
    found = None if kind.found is None else kind.found(session, arguments, place)
    dataset, request = request_of(session, kind, arguments, place, found)
    if compared:
        if kind is dp_marginals.KIND:
            return compared_marginals.compare(session, dataset, request, arguments)

        def other(**more: str) -> Request | None:
            """The same in another way; None where that cannot be."""
            try:
                return request_of(session, kind, {**arguments, **more}, place, found)[1]
            except DPError:
                return None

        if kind.direct is None:
            by_ranks = other(mechanism=SELECT) if SELECT in kind.own else None
            return compared_queries.compare(request, by_cells=request, by_ranks=by_ranks)
        by_cells, by_rows = other(**{routes.ROUTE: routes.CELLS}), other(**{routes.ROUTE: routes.ROWS})
        return compared_queries.compare(request, by_cells=by_cells, by_rows=by_rows)
    past = compared_accountings(session.ledger.charges(dataset), dataset.accounting, dataset.cost_delta, _selecting)
    of = _routes(session, kind, request, arguments, place, found)
    if bound := _bound(request):
        of = {number: f"{route}; {bound}" for number, route in of.items()}
    if request.adaptive:
        check(request)
        spent: Event = AdaptiveEvent(total=request.cost, accounting=request.accounting)
        known = _known(request, dataset, delta, spent)
        return [{**row, "history": past} for row in _rows(kind, request, known)]
    if request.direct:
        sums = direct_plan(request)
        known = _known(request, dataset, delta, event(sums, request), () if found is None else found.unpaid)
        rows = _direct(sums, known, of)
        if sums.planned is not None:
            rows += _planned(kind, request, sums.planned, sums.rest, known, of)
        rows = rows if found is None else _with_found(found, rows, known)
        return [{**row, "history": past} for row in rows]
    planned = plan(request)
    known = _known(request, dataset, delta, event(planned, request))
    return [{**row, "history": past} for row in _planned(kind, request, planned, 1.0, known, of)]


def _planned(
    kind: Kind, request: Request, planned: Plan, share: float, known: dict[str, Any], of: Mapping[int, str]
) -> Rows:
    """A row for each query set of a plan, which takes a share of the cost."""
    gap, ratio = compared_queries.gap(planned), _ratio_to_baseline(planned, request, share)
    return [
        {
            **row,
            "stddev": None if request.selected else stddev,
            "half_width": planned.quantile * stddev,
            "budget_share": share * planned.share(index),
            "mechanism": planned.mechanism,
            "ratio_to_gaussian": ratio,
            "gap": None if request.selected else gap,
            "route": _selects(request)
            if request.selected
            else None
            if question.select is None
            else of.get(question.select.number),
            "error_in": PLACES if kind.name == dp_quantiles.FUNCTION.name else None,
        }
        for index, (row, question) in enumerate(zip(_rows(kind, request, known), request.questions, strict=True))
        for stddev in [math.sqrt(routes.variance(planned, request, index))]
    ]


def _rows(kind: Kind, request: Request, known: dict[str, Any]) -> Rows:
    """The columns that are known for each query set with any mechanism; the error of an adaptive one depends on the data."""
    return [
        {"marginal": kind.describe(question), "cells": _cells(request, index), **known}
        for index, question in enumerate(request.questions)
    ]


def _cells(request: Request, index: int) -> int:
    question = request.questions[index]
    return (
        math.prod(request.shape(index))
        if request.rest or not question.is_marginal
        else request.domain.cells(question.clique)
    )


def _routes(
    session: Session, kind: Kind, request: Request, arguments: Arguments, place: Place, found: Found | None
) -> Mapping[int, str]:
    """Which route each SELECT of dp_sql takes and why not the other one, by its number; none of other functions."""
    if kind.direct is None:
        return {}
    from duckdb_dp.sql import unlisted  # for import time: these bring sqlglot
    from duckdb_dp.sql.parsed import parse_selects

    selects = parse_selects(arguments[kind.argument])
    if arguments.get("mechanism") in ("direct", SELECT):
        return dict.fromkeys(range(1, len(selects) + 1), "direct, as asked")
    dataset = kind.dataset(session, arguments, place)

    def asked(route: str) -> Request:
        return request_of(session, kind, {**arguments, routes.ROUTE: route}, place, found)[1]

    why = routes.reasons(request, selects, session.declared(dataset), asked)
    told = unlisted.notes(session, dataset, selects, place)
    return {number: "; ".join(filter(None, [reason, told.get(number)])) for number, reason in why.items()}


def _bound(request: Request) -> str:
    """Of which tables' bounds that of joined rows is the product, and of which a join takes some rows alone; '' where there are none."""
    sources = [part.source for part in request.direct if part.source is not None]
    largest = max((one for one in sources if one.rows is not None), key=lambda one: one.rows or 0, default=None)
    counted = ""
    if largest is not None and largest.bound:
        counted = f"at most {largest.rows} joined rows of a unit count: {largest.bound}"
    further = [
        f"where all rows of a unit are joined already, a row is joined with at most {one}"
        for one in dict.fromkeys(one.further for one in sources if one.further)
    ]
    return "; ".join(filter(None, [counted, *further]))


def _selects(request: Request) -> str:
    """What a selection does, as no standard deviation says it."""
    return (
        f"{len(request.selected or ())} quantiles are selected by their ranks, which takes {1 - INTERVALS:.0%} of the budget; "
        "half_width is that of the ranks of the intervals, from noisy prefixes"
    )


def _direct(planned: DirectPlan, known: dict[str, Any], of: Mapping[int, str]) -> Rows:
    """A row for each sum that is taken row by row, and for each value whose quantiles are asked.

    The error of a quantile is that of the number of rows below it; of a sum whose bounds are chosen it is not known before.
    """
    found, first = [], dict[int, int]()
    for index, (part, one) in enumerate(planned.sums):
        first.setdefault(id(part), index)
        stddev = planned.known_stddev(index)
        row = {
            "marginal": f"{one} by {', '.join(part.clique)}" if part.clique else str(one),
            "cells": part.size,
            "stddev": stddev,
            "half_width": None if stddev is None else planned.quantile * stddev,
            "budget_share": planned.noise_share(index) or None,
            "mechanism": planned.direct,
            "route": told_of(planned, index, of.get(part.number)),
            "part_of": _part_of(part, index - first[id(part)]),
            "error_in": PLACES if one.kind == "quantile" else None,
        }
        found.append({**known, **row})
    for part in planned.parts:
        found += [{**known, **row} for row in _added(planned, part, first[id(part)], of)]
    for clip in planned.clips:
        if clip.chosen:
            what = "the rows of a unit" if clip.rows else "a unit's norm"
            sums = ", ".join(dict.fromkeys(str(planned.sums[index][1]) for index in clip.sums))
            row = {
                "marginal": f"chooses the bound on {what} in {sums}",
                "cells": clip.size,
                "mechanism": "exponential mechanism",
                "route": of.get(planned.sums[clip.sums[0]][0].number),
            }
            found.append({**known, **row, "budget_share": planned.choosing(clip.sums)})
    return found


def _added(planned: DirectPlan, part: GroupedSums, first: int, of: Mapping[int, str]) -> Rows:
    """A row for each answer that is several sums added up, as a count of all rows beside an average of those that are not NULL."""
    rows = []
    for output in part.outputs:
        places = [piece for piece in output.pieces if isinstance(piece, int)]
        if len(places) < 2 or not _plain(output):
            continue
        parts = [planned.known_stddev(first + place) for place in places]
        stddev = None if None in parts else math.sqrt(math.fsum((one or 0.0) ** 2 for one in parts))
        rows.append(
            {
                "marginal": f"{output.name} by {', '.join(part.clique)}" if part.clique else output.name,
                "cells": part.size,
                "stddev": stddev,
                "half_width": None if stddev is None else planned.quantile * stddev,
                "mechanism": planned.direct,
                "route": of.get(part.number),
            }
        )
    return rows


def _plain(output: Output) -> bool:
    """Whether an answer is a sum, or sums added up."""
    added = all(isinstance(piece, int) or set(piece) <= set("+() ") for piece in output.pieces)
    return added and output.outer == ("", "")


def _part_of(part: GroupedSums, place: int) -> str | None:
    """The answers of which a sum is but a part, such as an average; None of one that is an answer itself."""
    names = []
    for output in part.outputs:
        used = {piece if isinstance(piece, int) else piece[1] for piece in output.pieces if not isinstance(piece, str)}
        if place not in used:
            continue
        if used == {place} and _plain(output):
            return None
        names.append(output.name)
    return ", ".join(dict.fromkeys(names)) or None


def _with_found(found: Found, sums: Rows, known: dict[str, Any]) -> Rows:
    """The rows of sums after one for each column whose values are yet to be found; all shares are of what both cost together."""
    total = math.fsum([found.cost, *(request.cost for request in found.unpaid)])
    before = [
        {
            **known,
            "marginal": f"values of {dict(request.options)['attribute']} that {noise.threshold:.0f} units hold",
            "stddev": noise.stddev,
            "budget_share": request.cost / total,
            "mechanism": request.mechanism,
        }
        for request in found.unpaid
        for noise in [ThresholdNoise.of(request)]
    ]
    share = found.cost / total
    return before + [
        {
            **row,
            "budget_share": row["budget_share"] and row["budget_share"] * share,
            **({"cells": None} if found.pending and any(name in row["marginal"] for name in found.names) else {}),
        }
        for row in sums
    ]


def _known(
    request: Request, dataset: Dataset, delta: float | None, spent: Event, before: Sequence[Request] = ()
) -> dict[str, Any]:
    """The columns that are the same for all rows, and NULL for those that a mechanism's own rows have.

    Args:
        request, dataset: what is asked.
        delta: where to show epsilon.
        spent: by the request itself.
        before: requests that find values first, which are charged with it.
    """
    delta = dataset.cost_delta if delta is None else Budget(epsilon=1, delta=delta).delta
    cost = math.fsum([request.cost, *(each.cost for each in before)])
    noises = [ThresholdNoise.of(each) for each in before]
    return {
        "stddev": None,
        "half_width": None,
        "budget_share": None,
        "mechanism": request.mechanism,
        "rho": spent.rho if spent.rho is None else math.fsum([spent.rho, *(noise.mu**2 / 2 for noise in noises)]),
        "mu": spent.mu if spent.mu is None else math.hypot(spent.mu, *(noise.mu for noise in noises)),
        "epsilon": None if delta is None else shown(request.accounting.epsilon(cost, delta)),
        "delta": delta,
        "ratio_to_gaussian": None,
        "gap": None,
        "part_of": None,
        "error_in": None,
        "neighbours": dataset.neighbours,
    }


def _selecting(function: str, mechanism: str) -> float:
    """The share of its budget that a mechanism plans for selections, where its rounds come as it plans them."""
    from duckdb_dp.adaptive import SELECTING
    from duckdb_dp.synthesis.functions import SELECTING as SYNTHETIC

    return {**SELECTING, **SYNTHETIC}.get((function, mechanism), 0.0)


def _ratio_to_baseline(planned: Plan, request: Request, share: float) -> float | None:
    """Error against independent noise on each marginal at the same cost; None where queries are no marginals."""
    if not planned.workload.is_marginals:
        return None
    baseline = choose(
        planned.workload,
        price(request).part(share),
        mechanism=planned.noise,
        objective="max" if request.objective == "max" else "total",
    )
    if request.objective == "max":
        return planned.max_stddev / baseline.max_stddev
    return planned.rmse / baseline.rmse


def _compares(arguments: Arguments) -> bool:
    mechanism = arguments.get("mechanism")
    return isinstance(mechanism, str) and mechanism.lower() == "all"


def _named(arguments: Arguments) -> Arguments:
    """The arguments by their names: SELECTs alone, as dp_sql takes them, name their tables themselves."""
    alone = {**arguments, "dataset": None, "attributes": arguments.get("dataset")}
    return alone if arguments.get("attributes") is None and dp_sql.recognises(alone) else arguments


def _explained(arguments: Arguments) -> Kind:
    """The function whose call this would be: of quantiles, of SQL text, of entries, or else of attribute sets."""
    return next((kind for kind in kinds().values() if kind.recognises(arguments)), dp_marginals.KIND)


FUNCTION = register(Function(name="dp_explain", rows=rows, columns=columns, public=True))
