"""When quantiles are selected by their ranks, and what is selected from a marginal: which quantiles, at what cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array, Integers
from duckdb_dp.noise.uniform import EntropySource

INTERVALS = 0.04
"""Part of the cost of selected quantiles that takes noisy prefixes, from which the intervals are read. It makes ranks 2 % worse."""

SELECTED = "select"
"""What the names of arrays of points begin with."""

CELLS, EACH = 500, 50
"""'auto' selects from as many cells, in all and for each quantile.

Measured on two shapes of 48,842 rows (benchmarks/test_quantiles.py): below, the cells are so heavy that prefixes, which answer all
quantiles at once, are within a row or two of selections, or better.
"""


def better(cells: int, quantiles: int) -> bool:
    """Whether 'auto' selects that many quantiles from that many cells; public."""
    return cells >= max(CELLS, EACH * quantiles)


@final
@dataclass(frozen=True, kw_only=True)
class Selection:
    """Quantiles that are selected in each group of a marginal.

    Attributes:
        name: of the array of points that is stored, shape (groups * quantiles,).
        clique: of the marginal.
        shape: of the marginal.
        axis: of the attribute whose quantiles are selected; the others are the groups.
        quantiles: increasing.
        cost: of all selections, in the accounting's own unit.
        accounting: what a selection costs.
        rows: of one unit.
        fitted: what was drawn, by name -> prefixes that do not fall, shape (groups, cells).

    Privacy: drawing spends cost.
    """

    name: str
    clique: Clique
    shape: tuple[int, ...]
    axis: int
    quantiles: tuple[float, ...]
    cost: float
    accounting: Accounting
    rows: float
    fitted: Callable[[Mapping[str, Array]], Array]

    def draw(self, marginal: Integers, rows: float, drawn: Mapping[str, Array], bits: EntropySource) -> Array:
        """The points, group by group.

        Args:
            marginal: exact counts, flat.
            rows: how many rows of a unit were chosen to count; 1 where the request says how many.
            drawn: noisy answers and choices, by name.
            bits: the source of randomness.

        Privacy: spends cost.
        """
        from duckdb_dp.noise.ranks import selected  # for import time: most requests select nothing

        groups = np.moveaxis(marginal.reshape(self.shape), self.axis, -1).reshape(-1, self.shape[self.axis])
        fits = np.diff(self.fitted(drawn), axis=1, prepend=0.0)
        found = [
            selected(
                group,
                expected,
                self.quantiles,
                cost=self.cost,
                accounting=self.accounting,
                rows=self.rows * rows,
                bits=bits,
            )
            for group, expected in zip(groups, fits, strict=True)
        ]
        return np.concatenate(found)
