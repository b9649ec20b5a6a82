"""The turn of a row among those of its unit, in classes: with few rows of each unit there is less noise, and less of the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from duckdb_dp.domain.domain import Attribute

TURNS = "turns"
"""Option of a request: the last turn of each class, rising to ``max_rows``."""

LEAST = 3
"""Rows of a unit from which on it is chosen how many count."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Classes of turns, from the first row of each unit on.

    Which row is first depends on that unit's rows alone, and is no matter of their values: of a keyed hash.

    Attributes:
        name: of the attribute that says the class; no other has it.
        last: the last turn of each class, rising.
    """

    name: str
    last: tuple[int, ...]

    @classmethod
    def of(cls, names: Sequence[str], last: Sequence[int]) -> "Turns":
        """With a name that is not among these, in any letter case: SQL takes them for one."""
        name, taken = "turn", {one.lower() for one in names}
        while name in taken:
            name += " "
        return cls(name=name, last=tuple(last))

    @property
    def attribute(self) -> Attribute:
        """The classes as bins of turns."""
        return Attribute(
            name=self.name, type="BIGINT", kind="bins", points=(1, *(turn + 1 for turn in self.last)), nulls=False
        )

    def rows(self, first: int, end: int) -> int:
        """How many rows of a unit are in the classes from ``first`` to before ``end``, at most."""
        return self.last[end - 1] - (self.last[first - 1] if first else 0)


def classes(rows: int) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, ... and the number of rows itself."""
    found, power = [1], 1
    while found[-1] < rows:
        found += [2 * power] if power == 1 else [3 * power // 2, 2 * power]
        power *= 2
    return (*(turn for turn in found if turn < rows), rows)
