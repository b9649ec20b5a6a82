"""When quantiles are selected by their ranks, and what is selected from a marginal: which quantiles, at what cost."""

import math
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


def rank_variances(selection: Selection, rows: float = 1) -> Array:
    """The variance of the rank of each quantile, where rows lie in many cells.

    A selection of epsilon among points whose ranks are close draws the error of a rank as Laplace noise of scale 2 s / epsilon, s the
    sensitivity of its score, so of variance 8 (s / epsilon)^2. What is wanted is a share of the rows between two ranks that were drawn
    before, and errs by that share of their errors.

    Args:
        selection: the quantiles, and what they cost.
        rows: how many rows of a unit were chosen to count.

    Privacy: public.
    """
    found = np.empty(len(selection.quantiles))

    def split(asked: slice, ends: Array, between: tuple[float, float], left: float) -> None:
        """Quantiles of a slice; (the error of a rank) = (errors of all selections) @ (a row), of which ``ends`` has two."""
        number = asked.stop - asked.start
        if not number:
            return
        middle = asked.start + number // 2
        q, spent = selection.quantiles[middle], left / number.bit_length()
        inside = (q - between[0]) / (between[1] - between[0])
        epsilon = selection.accounting.selection_epsilon(spent)
        own = np.zeros(ends.shape[1])
        own[middle] = math.sqrt(8) * selection.rows * rows * max(inside, 1 - inside) / epsilon
        rank = (1 - inside) * ends[0] + inside * ends[1] + own
        found[middle] = float(rank @ rank)
        split(slice(asked.start, middle), np.stack([ends[0], rank]), (between[0], q), left - spent)
        split(slice(middle + 1, asked.stop), np.stack([rank, ends[1]]), (q, between[1]), left - spent)

    number = len(selection.quantiles)
    split(slice(0, number), np.zeros((2, number)), (0.0, 1.0), selection.cost)
    return found
