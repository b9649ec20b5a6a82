"""dp_check: exact numbers of rows outside the declared domain, for the curator only."""

from collections.abc import Mapping

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.encode import full_name, literal, outside, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError
from duckdb_dp.sql import views
from duckdb_dp.sql.arguments import Arguments, Place, find_dataset
from duckdb_dp.sql.external_tables import source
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "attribute": "VARCHAR",
    "rows": "BIGINT",
    "outside": "BIGINT",
    "nulls": "BIGINT",
    "outside_goes_to": "VARCHAR",
    "nulls_go_to": "VARCHAR",
    "note": "VARCHAR",
}


def plan(session: Session, arguments: Arguments, place: Place) -> str | None:
    """SELECT that counts in DuckDB; None for a table of another engine.

    Privacy: NOT PRIVATE.
    """
    dataset, declared = _declared(session, arguments, place)
    if dataset.schema == SCHEMA:
        return None
    seen = views.source(session, dataset)
    table = full_name(dataset.catalog, dataset.schema, dataset.name) if seen is None else f"({seen.sql})"
    known = {name.lower() for name in declared}
    units = [] if seen is not None else [column for column in dataset.leading if column.lower() not in known]
    return " UNION ALL ".join([*(_of_nobody(table, column) for column in units), _counted_here(table, declared)])


def _of_nobody(table: str, column: str) -> str:
    """The rows that no unit has."""
    return (
        f"SELECT {literal(column)} AS attribute, count(*) AS rows, 0 AS outside, count(*) FILTER ({quote(column)} IS NULL) AS nulls, "
        f"'left out' AS outside_goes_to, 'left out: no unit has them' AS nulls_go_to, 'NOT PRIVATE' AS note FROM {table}"
    )


def _declared(session: Session, arguments: Arguments, place: Place) -> tuple[Dataset, dict[str, Attribute]]:
    dataset = find_dataset(session.ledger, arguments["dataset"], *place)
    declared = session.declared(dataset)
    if not declared:
        raise DPError(
            f"'{dataset.name}' has no declared attributes. Declare them: CALL dp_attributes({dataset.argument})."
        )
    return dataset, declared


def _counted_here(table: str, declared: Mapping[str, Attribute]) -> str:
    return " UNION ALL ".join(
        f"SELECT {literal(found.name)} AS attribute, count(*) AS rows, count(*) FILTER ({outside(found)}) AS outside, "
        f"count(*) FILTER ({quote(found.name)} IS NULL) AS nulls, "
        f"{literal('other' if found.other else 'left out')} AS outside_goes_to, "
        f"{literal('its own cell' if found.nulls else 'other' if found.other else 'left out')} AS nulls_go_to, "
        f"'NOT PRIVATE' AS note FROM {table}"
        for found in declared.values()
    )


def rows(session: Session, arguments: Arguments, place: Place, _seen: str) -> Rows:
    """Rows of dp_check for an attached table: exact numbers of rows outside the declared domain.

    Privacy: NOT PRIVATE, for the curator only.
    """
    dataset, declared = _declared(session, arguments, place)
    from duckdb_dp.counting.engines.count import check as count_outside

    found = count_outside(source(session, (dataset.catalog, dataset.schema, dataset.name)), declared)
    return [
        {
            "attribute": attribute.name,
            "rows": rows,
            "outside": outside,
            "nulls": nulls,
            "outside_goes_to": "other" if attribute.other else "left out",
            "nulls_go_to": "its own cell" if attribute.nulls else "other" if attribute.other else "left out",
            "note": "NOT PRIVATE",
        }
        for attribute, (rows, outside, nulls) in zip(declared.values(), found, strict=True)
    ]


FUNCTION = register(Function(name="dp_check", plan=plan, rows=rows, columns=COLUMNS, curator=True, compares=True))
