"""What a SELECT at the top is compiled to: one over a relation, as if that were a table."""

import re
from dataclasses import dataclass
from typing import final

from sqlglot import exp

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.grouped_sums import Source
from duckdb_dp.sql.owned.public_ranges import Held
from duckdb_dp.synthesis.database import Name


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """A SELECT over one relation.

    Attributes:
        select: the SELECT, whose columns are those of the relation.
        source: the relation.
        columns: name -> type of its columns.
        unit: the columns that name the unit; none where they are not read.
        declared: what is declared of its columns, and the values of public ones that it groups by.
        origins: the table and the column that columns of the relation are as they are.
        refers: those of its columns that refer to a public table, as ``by_keys`` takes them.
        never: its columns that are never NULL.
        unlisted: what is to be said of conditions with values that nobody has declared.
        words: SQL of its columns, and of what is worked out of these -> what the statement says there, for errors.
        held: between which ends columns of public tables lie.
        once: whether a unit has at most one row in each group.
        different: what columns stand in count(DISTINCT x), and whether one alone -> how many different values of x a unit has at most.
    """

    select: exp.Select
    source: Source
    columns: dict[str, str]
    unit: tuple[str, ...]
    declared: dict[str, Attribute]
    origins: dict[str, tuple[Name, str]]
    refers: dict[str, str]
    never: frozenset[str]
    unlisted: tuple[str, ...]
    words: dict[str, str]
    held: tuple[Held, ...]
    different: dict[tuple[frozenset[str], bool], int]
    once: bool

    def as_asked(self, message: str) -> str:
        """What an error says of this SELECT, in the words of the statement."""
        texts = sorted(filter(None, self.words), key=len, reverse=True)
        if not texts:
            return message
        return re.sub("|".join(map(re.escape, texts)), lambda found: self.words[found[0]], message)
