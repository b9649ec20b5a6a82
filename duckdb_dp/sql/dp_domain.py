"""dp_domain: every cell of every declared attribute."""

from typing import Any

from duckdb_dp.domain.types import as_text
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset
from duckdb_dp.sql.catalog import context
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "attribute": "VARCHAR", "position": "INTEGER", "label": "VARCHAR", "low": "VARCHAR", "high": "VARCHAR",
}  # fmt: skip


def rows(session: Session, arguments: Arguments, place: Place, _seen: str) -> Rows:
    """FROM dp_domain: every cell of every declared attribute."""
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    return [
        {
            "attribute": found.name,
            "position": position,
            "label": None if label is None else as_text(label),
            "low": low,
            "high": high,
        }
        for found in session.declared(dataset).values()
        for position, (label, (low, high)) in enumerate(zip(found.labels(), map(_edges, found.bounds()), strict=True))
    ]


def _edges(bounds: tuple[Any, Any]) -> tuple[str | None, str | None]:
    low, high = bounds
    return (None if low is None else str(low)), (None if high is None else str(high))


FUNCTION = register(Function(name="dp_domain", rows=rows, columns=COLUMNS, context=context, public=True))
