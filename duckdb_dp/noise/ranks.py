"""Quantiles selected by their ranks: the middle one first, then those of the rows on either side of it.

**One selection.** A row is anywhere in its cell: of a point p that has a share s of its cell below it, R(p) is the number of
rows in the cells before, and s of those in its own. Among the points of a part [a, b] with M = R(b) - R(a) rows, the q-quantile
is drawn by the exponential mechanism with the score

    -|R(p) - R(a) - q M|,

which one row of the part moves by at most max(q, 1 - q). The chosen point cuts the part in two; the quantiles below and above
it are found in these, each among its own rows.

**Which points.** One in each cell, and more in cells that are expected to have many rows, by what was released before: so that
a part may end inside a heavy cell. Points of a cell share its weight: a cell is as likely as another of the same ranks.

**What it costs.** What is left is divided by the number of levels that are still needed, and both sides get the rest. A unit that
has a part w / k of its rows in a part of the table moves the scores there by w / k of what they are calibrated to. Costs of
selections are star-shaped (c(t epsilon) <= t c(epsilon)), so that all parts together cost no more than one that had it all.
Proof: `docs/privacy.md`, "Selected quantiles".

Source: [KSS22] Alg. 1, for real numbers.
"""

from collections.abc import Sequence

import numpy as np

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.linop import Array, Integers
from duckdb_dp.noise.select import exponential
from duckdb_dp.noise.uniform import EntropySource

POINTS = 2**14
"""Points beyond one in each cell, at most: a part ends within a 2^15th of all rows of where it would."""

ERROR = 2.0**-10
"""Bound on the rounding of a score, of up to 2^38 rows: each of its seven operations loses at most 2^-53 of 2^38, and half as
much again where 2^15 points of a cell are counted."""


def selected(
    counts: Integers,
    expected: Array,
    quantiles: Sequence[float],
    *,
    cost: float,
    accounting: Accounting,
    rows: float,
    bits: EntropySource,
) -> Array:
    """A point for each quantile: the number of its cell, and the share of the cell below it, in (0, 1), as one number.

    Args:
        counts: rows in each cell, shape (n,).
        expected: about how many they are, by what was released before, not negative, shape (n,).
        quantiles: from 0 to 1, increasing.
        cost: of all selections together, in the accounting's own unit.
        accounting: what a selection costs.
        rows: k, the rows of one unit.
        bits: the source of randomness.

    Returns:
        Points that do not fall, shape (quantiles,).

    Privacy: spends cost.
    """
    pieces = 1 + np.floor(expected * (POINTS / max(float(expected.sum()), POINTS))).astype(np.int64)
    cells = np.repeat(np.arange(len(counts)), pieces)
    place = np.arange(len(cells)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    share = (2 * place + 1) / (2 * pieces[cells])
    ranks = (np.cumsum(counts) - counts)[cells] + counts[cells] * share
    weights = -np.log(pieces)[cells]
    found = np.empty(len(quantiles))

    def split(
        asked: slice, part: slice, ranked: tuple[float, float], between: tuple[float, float], left: float
    ) -> None:
        """Quantiles of a slice among the points of a part, which ends at two ranks and two quantiles."""
        number = asked.stop - asked.start
        if not number:
            return
        middle = asked.start + number // 2
        q, spent = quantiles[middle], left / number.bit_length()
        inside = (q - between[0]) / (between[1] - between[0])
        wanted = inside * (ranked[1] - ranked[0])
        sensitivity, epsilon = rows * max(inside, 1 - inside), accounting.selection_epsilon(spent)
        even = 2 * sensitivity / epsilon * weights[part]
        scores = even - np.abs(ranks[part] - ranked[0] - wanted)
        error = ERROR - 2.0**-50 * float(even.min())
        point = part.start + exponential(scores, sensitivity, epsilon, bits=bits, error=error)
        found[middle] = cells[point] + share[point]
        rank = float(ranks[point])
        rest = left - spent
        split(slice(asked.start, middle), slice(part.start, point + 1), (ranked[0], rank), (between[0], q), rest)
        split(slice(middle + 1, asked.stop), slice(point, part.stop), (rank, ranked[1]), (q, between[1]), rest)

    split(slice(0, len(quantiles)), slice(0, len(cells)), (0.0, float(counts.sum())), (0.0, 1.0), cost)
    return found
