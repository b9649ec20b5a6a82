"""Relations of SELECTs as they were compiled before: asked again, a SELECT is compiled anew only where something has changed."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from sqlglot import exp

from duckdb_dp.sql.arguments import Place
from duckdb_dp.sql.family import Family
from duckdb_dp.sql.owned.tables import Read, Tables
from duckdb_dp.sql.owned.top import Top, top
from duckdb_dp.sql.same_conditions import form

KEPT = 32
"""SELECTs that are kept for each database."""

MOST_ROWS = 10_000
"""Rows of public tables that are kept of one SELECT at most."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What a relation was made of, and the relation.

    Attributes:
        given: all that a SELECT's relation depends on beside public rows.
        rows: the public rows that were read, with the SELECTs that read them.
        after: names of columns that are taken since.
        top: the relation.
    """

    given: tuple[Any, ...]
    rows: tuple[tuple[str, list[tuple[Any, ...]]], ...]
    after: dict[str, object]
    top: Top


@final
class Kept:
    """The relations that one database has compiled last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def top(
        self,
        family: Family,
        place: Place,
        select: exp.Select,
        taken: dict[str, object],
        read: Read,
        read_all: Callable[[Sequence[str]], list[list[tuple[Any, ...]]]],
        *,
        bounded: bool,
        finds: bool,
        collated: bool = False,
        as_written: bool = False,
        by_keys: frozenset[str] = frozenset(),
    ) -> Top:
        """As ``top.top``: the tables and their declarations, and the public rows that it reads, are compared first.

        Args:
            family, place: of the tables.
            select, taken, read: as ever.
            read_all: the same of several SELECTs.
            bounded: whether it is asked how many rows of a unit the relation has at most.
            collated: whether some column of the database is compared under a collation.
            finds, as_written, by_keys: as ever.
        """
        given = (select.copy(), family, place, dict(taken), bounded, collated, finds, as_written, by_keys, form())
        text = f"{as_written} {form()} {sorted(by_keys)} {select.sql('duckdb')}"
        with self._lock:
            known = self._known.get(text)
        if known is None or known.given != given or not _same_rows(known.rows, read_all):
            known = _compiled(given, read)
        with self._lock:
            if sum(len(rows) for _, rows in known.rows) <= MOST_ROWS:
                self._known[text] = known
                self._known.move_to_end(text)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        taken |= known.after
        found = known.top
        return replace(found, select=found.select.copy(), columns=dict(found.columns), declared=dict(found.declared))


def _same_rows(
    known: Sequence[tuple[str, list[tuple[Any, ...]]]],
    read_all: Callable[[Sequence[str]], list[list[tuple[Any, ...]]]],
) -> bool:
    return [rows for _, rows in known] == read_all([sql for sql, _ in known])


def _compiled(given: tuple[Any, ...], read: Read) -> _Known:
    select, family, place, taken, bounded, collated, finds, as_written, by_keys, _ = given
    rows: list[tuple[str, list[tuple[Any, ...]]]] = []

    def noted(sql: str) -> list[tuple[Any, ...]]:
        rows.append((sql, read(sql)))
        return rows[-1][1]

    after = dict(taken)
    tables = Tables(family, place, noted, bounded=bounded, collated=collated)
    found = top(tables, select.copy(), after, noted, finds=finds, as_written=as_written, by_keys=by_keys)
    return _Known(given=given, rows=tuple(rows), after=after, top=found)
