"""How many rows an answer will have, as far as declarations and the call say: the gateway refuses more than its limit before it charges."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duckdb_dp.errors import DPError
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.request import Request
from duckdb_dp.sql.session import Session

MOST = 1_000_000
"""Rows that a statement above answers may make, where an answer may not have more."""


def check(session: Session, function: str, rows: int | None) -> None:
    """Refuse an answer that would have too many rows; call it before anything is charged.

    Args:
        session: says how many an answer may have.
        function: which is asked.
        rows: how many it will have; None where that is not known before, as of groups that are found: such an answer is given whole.

    Raises:
        DPError: it is so.

    Privacy: reads the call and declarations only.
    """
    if session.most_rows is not None and rows is not None and rows > session.most_rows:
        raise DPError(
            f"{function}: the answer would have {rows:,} rows, and here one has at most {session.most_rows:,}; ask for fewer cells, "
            "groups or rows."
        )


def of_request(request: Request, arguments: Mapping[str, Any]) -> int | None:
    """The rows of the answers to a request as they stand, without a statement above them; None where data decides it."""
    if (asked := arguments.get("quantiles")) is not None:
        from duckdb_dp.sql.dp_quantiles import number_of  # for import time

        return number_of(request, asked)
    selects = [list(parts) for _, parts in itertools.groupby(request.direct, lambda part: part.number)]
    known = [rows for parts in selects if (rows := _of_select(parts)) is not None]
    return _of_questions(request) + sum(known) if len(known) == len(selects) else None


def _of_questions(request: Request) -> int:
    """The cells of all query sets, of which those of one SELECT share their rows."""
    firsts: Iterable[int] = range(len(request.questions))
    if any(question.select is not None for question in request.questions):
        from duckdb_dp.sql.layout import grouped  # for import time

        firsts = [indices[0] for indices in grouped(request.questions)]
    return sum(math.prod(request.shape(index)) for index in firsts)


def rows_of(request: Request, number: int, unknown: int) -> int:
    """The most rows of the answer to the SELECT of that number; of groups that are yet to be found ``unknown``."""
    parts = [part for part in request.direct if part.number == number]
    if parts:
        found = any(attribute.other and not attribute.points for attribute in request.attributes)
        return unknown if found else sum(part.size for part in parts)
    asked = enumerate(request.questions)
    return sum(
        math.prod(request.shape(i)) for i, one in asked if one.select is not None and one.select.number == number
    )


def _of_select(parts: Sequence[GroupedSums]) -> int | None:
    """The groups of one SELECT; with a condition on them it is not known how many there are."""
    rows, limit = sum(part.size for part in parts), parts[0].limit
    if limit is not None:
        return min(rows, limit)
    return None if parts[0].having else rows
