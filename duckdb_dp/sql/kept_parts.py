"""The sums of SELECTs as they were found before: they follow from a SELECT and declarations alone, and are found anew where one differs."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.sql import direct
from duckdb_dp.sql.same_conditions import form
from duckdb_dp.sql.session import Session

KEPT = 32
"""SELECTs that are kept for each database."""

MOST = 100
"""Columns that a SELECT may show to be kept: more take memory, and are seldom asked again."""


@final
class KeptParts:
    """The sums that one database has found last, by the text of their SELECT, with all that they follow from."""

    def __init__(self) -> None:
        self.known: OrderedDict[str, tuple[tuple[Any, ...], list[GroupedSums]]] = OrderedDict()
        self.lock = threading.Lock()


def parts(
    session: Session,
    select: exp.Select,
    number: int,
    columns: Mapping[str, str],
    unit: Sequence[str],
    declared: Mapping[str, Attribute],
    *,
    pure: bool,
    found: Mapping[str, Attribute],
    norms: str,
    never: Collection[str],
    once: bool = True,
    held: Sequence[exp.Expr] = (),
) -> list[GroupedSums]:
    """As ``direct.parts``.

    Raises:
        DPError: as there.
    """
    kept: KeptParts = session.kept(KeptParts)
    maps = [list(one.items()) for one in (columns, declared, found)]  # whose order counts
    # A text leaves out what its dialect cannot say, and the tree's hash does not.
    given = (hash(select.copy()), *maps, tuple(unit), pure, norms, sorted(never), once, form(), list(held))
    text = f"{number} {once} {form()} {select.sql('duckdb')}"
    with kept.lock:
        before, sums = kept.known.get(text, ((), []))
    if before != given:
        sums = direct.parts(
            select,
            number,
            columns,
            unit,
            declared,
            pure=pure,
            found=found,
            norms=norms,
            never=never,
            once=once,
            held=held,
        )
    with kept.lock:
        if len(select.expressions) <= MOST:
            kept.known[text] = given, sums
            kept.known.move_to_end(text)
        while len(kept.known) > KEPT:
            kept.known.popitem(last=False)
    return list(sums)
