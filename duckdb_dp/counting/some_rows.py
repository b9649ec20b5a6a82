"""Counts of some rows of each unit, those in some classes of turns, from counts of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.turns import Turns
from duckdb_dp.linop import Integers


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SomeRows:
    """Marginals of the rows whose turn is in some classes.

    Attributes:
        counts: of all rows, with the attribute of the turns.
        turns: that attribute.
        first, end: the classes from ``first`` to before ``end``.
    """

    counts: Counts
    turns: Turns
    first: int
    end: int

    @property
    def domain(self) -> Domain:
        """The attributes but that of the turns."""
        return Domain({name: size for name, size in self.counts.domain.sizes.items() if name != self.turns.name})

    def order(self, cliques: Sequence[Clique]) -> list[int]:
        """As ``Counts.order``."""
        return self.counts.order([(*clique, self.turns.name) for clique in cliques])

    def marginal(self, clique: Clique) -> Integers:
        """Exact counts of a marginal, flat, in row-major order."""
        table = self.counts.marginal((*clique, self.turns.name)).reshape(-1, len(self.turns.last))
        return np.asarray(table[:, self.first : self.end].sum(axis=1), dtype=np.int64)
