"""dp_explain of links: what a dp_links would cost, and which links it would leave out."""

from typing import Any

from duckdb_dp.accounting.convert import shown
from duckdb_dp.errors import DPError, few
from duckdb_dp.request import Request
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset
from duckdb_dp.sql.dp_links import link_of
from duckdb_dp.sql.measured_pairs import pairs_note
from duckdb_dp.sql.registry import Rows
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.links.columns import left_out

COLUMNS = {
    "links": "VARCHAR", "max_degree": "BIGINT", "mechanism": "VARCHAR", "rho": "DOUBLE", "mu": "DOUBLE", "epsilon": "DOUBLE",
    "delta": "DOUBLE", "neighbours": "VARCHAR", "note": "VARCHAR",
}  # fmt: skip

MORE = {"synthetic", "rows", "max_degree", "protect", "method", "rounds"}
"""Arguments of dp_links beside the dataset and its budget."""


def explained(arguments: Arguments) -> dict[str, Any] | None:
    """The arguments of the dp_links that dp_explain is asked about: {'synthetic': {...}, 'max_degree': 10}; None for others.

    Raises:
        DPError: one of them is none of dp_links's.
    """
    asked = arguments["attributes"]
    if not isinstance(asked, dict) or "synthetic" not in asked:
        return None
    if unknown := set(asked) - MORE:
        raise DPError(
            f"{few(map(repr, sorted(unknown)))}: with 'synthetic' there may be {few(map(repr, sorted(MORE)))}."
        )
    return {**{name: arguments.get(name) for name in ("dataset", "epsilon", "delta", "rho", "mu")}, **asked}


def explain(session: Session, arguments: Arguments, place: Place) -> Rows:
    """One row: the price of the links, and what the bound leaves out, with what stored links of this request have measured of that.

    Privacy: costs nothing.
    """
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    link = link_of(session, dataset, arguments, place)
    request, delta = link.request, dataset.cost_delta
    notes = [note for note in (left_out(request), at_bound(session, request), pairs_note(session, request)) if note]
    return [
        {
            "links": " to ".join(side.role for side in link.sides),
            "max_degree": request.max_rows,
            "mechanism": request.mechanism,
            "rho": request.accounting.rho(request.cost),
            "mu": request.accounting.mu(request.cost),
            "epsilon": None if delta is None else shown(request.accounting.epsilon(request.cost, delta)),
            "delta": delta,
            "neighbours": dataset.neighbours,
            "note": "; ".join(notes) or None,
        }
    ]


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
