"""How much of a unit counts in a request: so many rows, or what a part of its budget chooses, or a declared norm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.accounting.tables import AUTO
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql.arguments import Arguments, check_bounded, whole_number

if TYPE_CHECKING:
    from duckdb_dp.grouped_sums import GroupedSums

MOST_ROWS = 2**31
SMALLEST, LARGEST = 1e-9, 1e18
"""Norms that can be declared."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bound of a request.

    Attributes:
        rows: how many rows of a unit count, where ``auto`` is not set.
        auto: whether what a unit adds is bounded by its norm, and by a number of rows where it has none.
        clip: the norm that is declared; None where it is chosen.
    """

    rows: int
    auto: bool = False
    clip: float | None = None

    @property
    def norms(self) -> str:
        """'typed' where the call says the norm that bounds what a unit adds, 'chosen' where its budget does, '' where rows are bounded."""
        return "" if not self.auto else "chosen" if self.clip is None else "typed"

    @property
    def options(self) -> tuple[tuple[str, Any], ...]:
        """What the request says of it beside ``max_rows``."""
        return () if self.clip is None else (("clip", self.clip),)

    def of_joined(self, sums: "Sequence[GroupedSums]") -> "Bounds":
        """The bound with which no row is left out of joins, as long as no unit has more rows of any table than was declared.

        That of the join with most rows, and at least this one where it is that of some; ``of_each`` says the others'.

        Raises:
            DPError: no number of rows is that large.
        """
        largest = max(
            (part.source for part in sums if part.source is not None), key=lambda one: one.rows or 0, default=None
        )
        if largest is None or largest.rows is None:
            return self
        if largest.rows > MOST_ROWS:
            raise DPError(
                f"dp_sql: a unit may have {largest.rows} rows in this join ({largest.bound}), too many for noise to leave anything of the "
                "answer; add max_rows := 'auto', which chooses privately how much of each unit counts, or max_rows := 100, say."
            )
        asked = any(part.source is None or part.source.rows is None for part in sums)
        return replace(self, rows=max(largest.rows, self.rows) if asked else largest.rows)

    def of_each(self, sums: "Sequence[GroupedSums]") -> "tuple[GroupedSums, ...]":
        """The sums, each of as many rows of a unit as its own join can have, so that noise covers no more."""
        from duckdb_dp.sql.same_conditions import form  # for import time: it brings sqlglot

        if form() < 4:
            return tuple(sums)
        rows = [self.rows if part.source is None else part.source.rows or self.rows for part in sums]
        return tuple(replace(part, rows=k) if k < self.rows else part for part, k in zip(sums, rows, strict=True))

    @classmethod
    def of(cls, function: str, dataset: Dataset, arguments: Arguments, *, sums: bool) -> "Bounds":
        """That of a call: as its arguments say, and otherwise as the dataset was declared.

        Args:
            function: its name.
            dataset, arguments: what is asked.
            sums: whether it may be answered by sums over rows, which a norm bounds.

        Raises:
            DPError: it cannot be bounded so.
        """
        asked, clip = arguments.get("max_rows"), arguments.get("clip")
        if (asked is not None or clip is not None) and dataset.unit is None:
            word = "clip" if clip is not None else "max_rows"
            raise DPError(
                f"{function}: {word} bounds what one unit adds, and each row of '{dataset.name}' is a unit; leave it out."
            )
        auto = asked == AUTO or clip is not None or (asked is None and dataset.auto_rows)
        if not auto:
            if isinstance(asked, str):
                raise DPError(f"max_rows is {as_sql(asked)}; it is a whole number from 1 to {MOST_ROWS:,}, or 'auto'.")
            rows = dataset.max_rows if asked is None else whole_number(arguments, "max_rows", MOST_ROWS)
            return cls(rows=rows or 1)
        if not sums:
            check_bounded(dataset, function)
        if clip is not None and asked not in (None, AUTO):
            raise DPError(
                f"{function}: clip := {as_sql(clip)} bounds a norm and max_rows := {as_sql(asked)} rows; give one of them."
            )
        return cls(rows=1, auto=True, clip=_norm(function, clip))


def with_rows(function: str, dataset: Dataset, arguments: Arguments) -> Dataset:
    """The dataset with the number of rows of a unit that count in a call: as it says, or else as the dataset was declared.

    Raises:
        DPError: neither says a number.
    """
    if arguments.get("max_rows") == AUTO:
        raise DPError(f"{function}: max_rows is 'auto', and it needs a number, such as max_rows := 5.")
    return replace(dataset, max_rows=Bounds.of(function, dataset, arguments, sums=False).rows, auto_rows=False)


def _norm(function: str, clip: object) -> float | None:
    if clip is None:
        return None
    number = isinstance(clip, int | float) and not isinstance(clip, bool) and math.isfinite(clip)
    if not number or not isinstance(clip, int | float) or not SMALLEST <= clip <= LARGEST:
        raise DPError(
            f"{function}: clip is {as_sql(clip)}; it is the most that one unit adds to an answer, in its own unit: a number from "
            "1e-9 to 1e18, such as clip := 50."
        )
    return float(clip)
