"""The direct route of dp_sql over attached tables: what their engine counts of a request, and whether it can."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.counting.engines.source import Source
from duckdb_dp.counting.sums import ExactSums
from duckdb_dp.errors import DPError
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.request import Request
from duckdb_dp.sql.engines.sums import Blocks, Reading, check_part, together
from duckdb_dp.sql.external_tables import ENGINES, source, summed
from duckdb_dp.sql.session import Session


def refused_join(table: str) -> DPError:
    """The refusal of a join with an attached table."""
    return DPError(
        f"'{table}' is in another engine, and its rows are read alone: attach the join itself, an Ibis expression with the unit's columns, "
        "such as orders.join(customers, 'customer_id'), and protect that by its unit."
    )


def check(session: Session, dataset: Dataset, parts: Sequence[GroupedSums]) -> None:
    """Refuse what the engine may answer in another way than DuckDB; nothing is read.

    Raises:
        DPError: it does; the message says what would work.
    """
    if not summed(dataset):
        raise DPError(
            f"'{dataset.name}' is in {dataset.catalog}, and values are summed in {' and '.join(sorted(ENGINES))} alone: declare what is "
            "asked, and counts are answered from declared cells; or copy the table to DuckDB."
        )
    own = session.attached.find(dataset.catalog, dataset.schema, dataset.name)
    if own is not None:
        for part in parts:
            check_part(part, own)


def sums(session: Session, request: Request) -> ExactSums:
    """The exact sums of a request, worked out in one statement of the engine.

    Raises:
        DPError: the table is not attached now, or its engine failed.

    Privacy: exact sums; only ``private.py`` may read them.
    """
    own = _source(session, request)
    own.check_now(request.attributes, ())
    found = own.fetch(lambda table: together([one for tables in _tables(session, request, table) for one in tables]))
    columns = [found[name].to_numpy().astype(np.int64) for name in found.column_names]
    blocks: Blocks = {}
    first = 0
    for reading in _readings(session, request):
        last = first + reading.number
        numbers = {b - first: [column[columns[0] == b] for column in columns[1:]] for b in range(first, last)}
        blocks |= reading.blocks(numbers)
        first = last
    return ExactSums(request.direct, blocks)


def _source(session: Session, request: Request) -> Source:
    own = source(session, (request.catalog, request.schema, request.table))
    if any(part.source is not None for part in request.direct):
        raise refused_join(request.table)
    for part in request.direct:
        for name, type_ in part.columns:
            if own.columns.get(name) != type_:
                raise own.replaced()
    return own


def _readings(session: Session, request: Request) -> Sequence[Reading]:
    unit_key, found, first = session.ledger.unit_key(), [], 0
    for part in request.direct:
        found.append(Reading(request, part, first, unit_key, request.catalog))
        first += len(part.sums)
    return found


def _tables(session: Session, request: Request, table: Any) -> list[list[Any]]:
    found, first = [], 0
    for reading in _readings(session, request):
        found.append(reading.tables(table, first))
        first += reading.number
    return found
