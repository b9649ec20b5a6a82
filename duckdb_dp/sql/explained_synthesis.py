"""dp_explain of syntheses: what a dp_synthesize or a dp_links would cost, and what it would leave out."""

from collections.abc import Collection
from typing import Any

from duckdb_dp.accounting.convert import shown
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.errors import DPError, few
from duckdb_dp.request import Request
from duckdb_dp.sql import alike_keys, dp_links, dp_synthesize
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset
from duckdb_dp.sql.measured_pairs import pairs_note, too_large_note
from duckdb_dp.sql.ordered_columns import check_orders, order_note
from duckdb_dp.sql.registry import Rows
from duckdb_dp.sql.row_bounds import with_rows
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.links.columns import left_out

PRICE = {
    "mechanism": "VARCHAR", "rho": "DOUBLE", "mu": "DOUBLE", "epsilon": "DOUBLE", "delta": "DOUBLE", "neighbours": "VARCHAR",
    "note": "VARCHAR",
}  # fmt: skip
ROWS = {"attributes": "VARCHAR", **PRICE}
LINKS = {"links": "VARCHAR", "max_degree": "BIGINT", **PRICE}
"""Columns of dp_explain about rows, and about links."""

ALL = "all"
"""Every declared attribute, in place of a list."""


def rows_asked(arguments: Arguments) -> dict[str, Any] | None:
    """The arguments of the dp_synthesize that dp_explain is asked about: {'synthesize': ['age', 'sex'], 'method': 'mst'}; None for others.

    Raises:
        DPError: one of them is none of dp_synthesize's.
    """
    found = _asked(arguments, "synthesize", {"rows", "method", "rounds", "max_rows"})
    if found is None:
        return None
    names = found["synthesize"]
    every = isinstance(names, str) and names.lower() == ALL
    return {"max_rows": arguments.get("max_rows"), **found, "attributes": None if every else names}


def links_asked(arguments: Arguments) -> dict[str, Any] | None:
    """The arguments of the dp_links that dp_explain is asked about: {'synthetic': {...}, 'max_degree': 10}; None for others.

    Raises:
        DPError: one of them is none of dp_links's.
    """
    return _asked(arguments, "synthetic", {"rows", "max_degree", "protect", "method", "rounds"})


def _asked(arguments: Arguments, first: str, more: Collection[str]) -> dict[str, Any] | None:
    asked = arguments["attributes"]
    if not isinstance(asked, dict) or first not in asked:
        return None
    if unknown := set(asked) - {first, *more}:
        raise DPError(
            f"{few(map(repr, sorted(unknown)))}: with '{first}' there may be {few(map(repr, sorted({first, *more})))}."
        )
    return {**{name: arguments.get(name) for name in ("dataset", "epsilon", "delta", "rho", "mu")}, **asked}


def explain_rows(session: Session, arguments: Arguments, place: Place) -> Rows:
    """One row: the price of synthetic rows, and pairs of attributes that they could not keep, with what stored ones of this request have.

    Privacy: costs nothing.
    """
    dataset = with_rows(
        dp_synthesize.FUNCTION.name, find_dataset(session.ledger, arguments["dataset"], *place), arguments
    )
    request = dp_synthesize.request_of(session, dataset, arguments)
    session.check_columns(dataset, request.attributes)
    check_orders(request)
    names = few(attribute.name for attribute in request.attributes)
    return [
        {"attributes": names, **_priced(session, dataset, request, [order_note(request), alike_keys.note(request)])}
    ]


def explain_links(session: Session, arguments: Arguments, place: Place) -> Rows:
    """One row: the price of the links, and what the bound leaves out, with what stored links of this request have measured of that.

    Privacy: costs nothing.
    """
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    link = dp_links.link_of(session, dataset, arguments, place)
    check_orders(link.request)
    notes = [left_out(link.request), at_bound(session, link.request), None if link.child else order_note(link.request)]
    return [
        {
            "links": " to ".join(side.role for side in link.sides),
            "max_degree": link.request.max_rows,
            **_priced(session, dataset, link.request, notes),
        }
    ]


def _priced(session: Session, dataset: Dataset, request: Request, notes: Collection[str | None]) -> dict[str, Any]:
    """The columns of ``PRICE``, with what is said of pairs after these notes."""
    delta = dataset.cost_delta
    return {
        "mechanism": request.mechanism,
        "rho": request.accounting.rho(request.cost),
        "mu": request.accounting.mu(request.cost),
        "epsilon": None if delta is None else shown(request.accounting.epsilon(request.cost, delta)),
        "delta": delta,
        "neighbours": dataset.neighbours,
        "note": "; ".join(filter(None, [*notes, too_large_note(request), pairs_note(session, request)])) or None,
    }


def at_bound(session: Session, request: Request) -> str | None:
    """How many units are at the bound, so that links of theirs may be left out, as the noisy histogram of a stored release has them.

    Privacy: post-processing.
    """
    stored = session.stored(request, None)
    found = None if stored is None else session.detail(stored).get("at_bound")
    if found is None:
        return None
    return (
        f"the stored links measured {found['rows']:,.0f} \u00b1 {1.96 * found['stddev']:,.0f} of about {found['of']:,.0f} rows with "
        f"{found['links']:.0f} or more"
    )
