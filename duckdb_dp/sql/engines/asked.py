"""The direct route of dp_sql over attached tables: what their engine counts of a request, and whether it can."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.answers import direct_plan
from duckdb_dp.counting.engines.source import Source
from duckdb_dp.counting.sums import CHOICES, ExactSums
from duckdb_dp.errors import DPError
from duckdb_dp.grouped_sums import GroupedSums, sum_name
from duckdb_dp.plan.clipping import by_norm
from duckdb_dp.request import Request
from duckdb_dp.sql.engines.clipped import Clipped
from duckdb_dp.sql.engines.ranked import Ranked
from duckdb_dp.sql.engines.sums import Blocks, Reading, check_part, together
from duckdb_dp.sql.external_tables import ENGINES, relation, source, summed
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis.database import Name

_Read = Reading | Clipped | Ranked


def check(session: Session, dataset: Dataset, parts: Sequence[GroupedSums]) -> None:
    """Refuse what the engine may answer in another way than DuckDB; nothing is read.

    Args:
        session: what is attached.
        dataset: whose rows are read.
        parts: what is summed.

    Raises:
        DPError: it does; the message says what would work.
    """
    if not summed(dataset):
        raise DPError(
            f"'{dataset.name}' is in {dataset.catalog}, and values are summed in {' and '.join(sorted(ENGINES))} alone: declare what is "
            "asked, and counts are answered from declared cells; or copy the table to DuckDB."
        )
    for part in parts:
        own = _source(session, (dataset.catalog, dataset.schema, dataset.name), part)
        if own is not None:
            check_part(part, own)


def sums(session: Session, request: Request, choose: Callable[[ExactSums], Sequence[int]]) -> ExactSums:
    """The exact sums of a request, worked out in one statement of the engine, or in two where bounds on norms are chosen between them.

    Args:
        session: what is attached.
        request: the request.
        choose: chooses these bounds, from how many units have their norms in which cells: ``private.choose_bounds``.

    Raises:
        DPError: a table is not attached now, or its engine failed.

    Privacy: exact sums; only ``private.py`` may read them.
    """
    name = (request.catalog, request.schema, request.table)
    read: list[tuple[_Read, Source]] = []
    for reading in _readings(session, request):
        own = _source(session, name, reading.part, now=True)
        if own is None:
            own = source(session, name)  # which says how to attach it
        attributes = [one for one in request.attributes if one.name in reading.part.clique]
        own.check_now(attributes, ())
        if any(own.columns.get(column) != type_ for column, type_ in reading.part.columns):
            raise own.replaced()
        read.append((reading, own))
    blocks: Blocks = {}
    bounded = [(reading, own) for reading, own in read if isinstance(reading, Clipped) and reading.chosen]
    if bounded:
        widths = [len(reading.chosen) for reading, _ in bounded]
        numbers = _fetched(read[0][1], [(reading.owners, own) for reading, own in bounded], widths)
        for (reading, _), found in zip(bounded, numbers, strict=True):
            blocks |= reading.owner_blocks(found)
        choices = np.array(choose(ExactSums(request.direct, blocks)), dtype=np.int64)
        blocks[CHOICES] = (np.arange(len(choices)), choices)
        names = [clip.name for clip in by_norm(direct_plan(request).clips)]
        for reading, _ in bounded:
            reading.choices = dict(zip(names, choices[::3].tolist(), strict=True))
    widths = [reading.number for reading, _ in read]
    numbers = _fetched(read[0][1], [(reading.tables, own) for reading, own in read], widths)
    for (each, _), found in zip(read, numbers, strict=True):
        blocks |= each.blocks(found)
    return ExactSums(request.direct, blocks)


def _fetched(
    by: Source, asked: Sequence[tuple[Callable[[Any, int], list[Any]], Source]], widths: Sequence[int]
) -> list[dict[int, list[NDArray[np.int64]]]]:
    """What the engine answers, in one statement: of each reading its columns by the number of its block.

    Args:
        by: whose engine runs it.
        asked: of each reading what makes its tables, and the table that it reads.
        widths: how many blocks each has.
    """
    firsts = list(accumulate(widths, initial=0))
    tables = [table for (make, own), first in zip(asked, firsts, strict=False) for table in make(own.table, first)]
    found = by.fetch(lambda _: together(tables))
    columns = [found[name].to_numpy().astype(np.int64) for name in found.column_names]
    return [
        {b - first: [column[columns[0] == b] for column in columns[1:]] for b in range(first, last)}
        for first, last in pairwise(firsts)
    ]


def _source(session: Session, name: Name, part: GroupedSums, *, now: bool = False) -> Source | None:
    """What a grouping set is summed over: the attached table, or the join of several; None where it is not attached.

    Raises:
        DPError: a table of the join is not attached, or the engine may have other rows than DuckDB.
    """
    if part.source is None:
        return session.attached.find(*name)
    return relation(session, name, part.source.sql, now=now)


def _readings(session: Session, request: Request) -> Sequence[_Read]:
    unit_key, clips, first = session.unit_key(), direct_plan(request).clips, 0
    found: list[_Read] = []
    for part in request.direct:
        own = [clip for clip in clips if first <= clip.sums[0] < first + len(part.sums)]
        norms = [clip for clip in own if not clip.rows]
        if norms:
            found.append(Clipped(request, part, first, norms, request.catalog))
        numbers = [i for i, one in enumerate(part.sums) if not one.norm]
        if numbers:
            rest = replace(part, sums=tuple(part.sums[i] for i in numbers))
            names = [sum_name(first + i) for i in numbers]
            rows = [clip for clip in own if clip.rows]
            found.append(
                Ranked(request, rest, names, unit_key, request.catalog, clip=rows[0])
                if rows
                else Reading(request, rest, names, unit_key, request.catalog)
            )
        first += len(part.sums)
    return found
