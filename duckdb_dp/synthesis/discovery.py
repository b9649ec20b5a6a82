"""dp_discover with find := 'bounds' or 'bins': where a column's values lie, by noisy counts of public cells."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np

from duckdb_dp.answers import DETAIL, to_bytes
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.public_cells import edges
from duckdb_dp.domain.workload import Workload
from duckdb_dp.linop import Array, Identity, Integers, LinOp
from duckdb_dp.plan.choose import PLANNERS
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.request import Request
from duckdb_dp.synthesis.base import Run, SyntheticTable

FALSE_ALARM = 1e-3
"""The chance that an empty cell is taken for one of the bounds."""

BOUNDS = 0.3
"""The share of the budget of find := 'bins' that finds the bounds."""

TAIL, WIDEST = 2.5, 4
"""Beyond cells that are clearly not empty, up to so many cells belong to them whose noisy sum is more than so many standard deviations.

Of 4,000 lognormal rows, five of each unit, 0.06 are outside of the bins at epsilon 0.5. At either end noise takes empty cells for
theirs in 2 of 100 draws.
"""

MOST_GROUPS = 1_024
"""Between the bounds, more cells than this are joined: planning takes half a second, and the error grows as a logarithm."""


@final
@dataclass(frozen=True, slots=True)
class Grouped:
    """A strategy on groups of consecutive cells; cells before the first and after the last are in none.

    Attributes:
        strategy: on the groups.
        starts: the first cell of each group, and the cell after the last.
    """

    strategy: LinOp
    starts: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(answers, groups)."""
        return self.strategy.shape

    @property
    def squared_sensitivity(self) -> float:
        """That of the strategy: a row is in one group at most."""
        return self.strategy.squared_sensitivity

    def apply(self, counts: Integers) -> tuple[Array, Array | float]:
        """As ``LinOp.apply``, of the cells."""
        return self.strategy.apply(self._grouped(counts))

    def exact(self, counts: Integers, index: int) -> Fraction:
        """As ``LinOp.exact``, of the cells."""
        return self.strategy.exact(self._grouped(counts), index)

    def _grouped(self, counts: Integers) -> Integers:
        return np.add.reduceat(counts[: self.starts[-1]], self.starts[:-1])


def check(request: Request) -> None:
    """Does nothing: ``sql.dp_discover`` has checked the call."""


def check_tables(request: Request, tables: Sequence[SyntheticTable], bound_holds: bool) -> None:
    """Does nothing: no synthetic table is read."""


def run(request: Request, tables: Sequence[SyntheticTable], track: Track) -> Run:
    """The function that measures the counts, and finds bounds or bins in them.

    Privacy: spends all that ``queryable`` has left, but for bins where it finds no bounds.
    """
    (attribute,), options = request.attributes, dict(request.options)
    points, coarse = attribute.points, edges(attribute.dtype, fine=False)

    def discover(queryable: PrivateQueryable) -> Mapping[str, Array]:
        index = {point: place for place, point in enumerate(points)}
        starts = tuple(index[point] for point in coarse)
        bins = options.get("bins")
        spent = queryable.left if bins is None else BOUNDS * queryable.left
        found = _bounds(queryable, starts, spent, nulls=attribute.nulls)
        if found is not None and bins is not None:
            found = {**_bins(queryable, found["starts"], bins, found["threshold"]), "nulls": found["nulls"]}
        kept = found or {"starts": [], "counts": [], "stddevs": [], "threshold": None}
        return {DETAIL: to_bytes({**kept, "edges": [points[start] for start in kept["starts"]]})}

    return discover


def cell_noise(rows: int, rho: float, cells: int) -> tuple[float, float]:
    """(stddev of the count of a cell, threshold) of the bounds: an empty cell is above it with a small probability; public."""
    from scipy.special import ndtri  # for import time

    stddev = rows / math.sqrt(2 * rho)
    return stddev, -float(ndtri(FALSE_ALARM / cells)) * stddev


def _bounds(queryable: PrivateQueryable, starts: tuple[int, ...], rho: float, *, nulls: bool) -> dict[str, Any] | None:
    """From the first to the last cell whose noisy count is above a threshold, and their tails; None where there is none.

    Args:
        starts: the first fine cell of each, and the one after the last.
        rho: what is spent.
        nulls: whether one more cell has NULL, of which is said whether its count is above the threshold too.

    Privacy: spends rho.
    """
    clique, cells = queryable.domain.attributes, len(starts) - 1
    groups = (*starts, starts[-1] + 1) if nulls else starts
    ((measured, _),) = queryable.answer_all([(clique, Grouped(Identity(len(groups) - 1), groups), rho)])
    counts = measured[:cells]
    stddev, threshold = cell_noise(queryable.rows, rho, cells)
    above = np.flatnonzero(counts > threshold)
    if not above.size:
        return None
    last = _with_tail(counts, int(above[-1]) + 1, stddev)
    first = cells - _with_tail(counts[::-1], cells - int(above[0]), stddev)
    return {
        "nulls": bool(nulls and measured[cells] > threshold),
        "starts": [starts[first], starts[last]],
        "counts": [float(counts[first:last].sum())],
        "stddevs": [stddev * math.sqrt(last - first)],
        "threshold": threshold,
    }


def _with_tail(counts: Array, last: int, stddev: float) -> int:
    """The end of the cells that go on from an end while some next ones together hold clearly more than their noise.

    Privacy: post-processing.
    """
    while True:
        sums = np.cumsum(counts[last : last + WIDEST])
        more = np.flatnonzero(sums > TAIL * stddev * np.sqrt(np.arange(1, len(sums) + 1)))
        if not more.size:
            return last
        last += int(more[0]) + 1


def _bins(queryable: PrivateQueryable, ends: Sequence[int], bins: int, threshold: float) -> dict[str, Any]:
    """Up to so many bins of about equal counts between two cells, by noisy prefix counts.

    Privacy: spends what is left.
    """
    from scipy.optimize import isotonic_regression  # for import time

    low, high = ends
    starts = [*range(low, high, -(-(high - low) // MOST_GROUPS)), high]
    groups = len(starts) - 1
    domain = Domain({"cell": groups})
    planned = PLANNERS["hdmm"](Workload.product(domain, {"cell": "prefix"}), 1.0, "total")
    (measured,) = planned.measurements
    query = Grouped(measured.strategy, tuple(starts))
    ((answers, variance),) = queryable.answer_all([(queryable.domain.attributes, query, queryable.left * (1 - 1e-12))])
    prefix = planned.answer(0, planned.estimates({measured.clique: answers})).reshape(-1)
    rising = isotonic_regression(prefix).x
    targets = rising[-1] * np.arange(1, bins) / bins
    cuts = np.searchsorted(rising, targets) + 1  # groups below each inner edge
    chosen = sorted({0, *(int(cut) for cut in cuts if cut < groups), groups})
    sums = np.concatenate([[0.0], prefix])[chosen]
    ranges = np.zeros((groups, len(chosen) - 1))
    for place, (start, end) in enumerate(itertools.pairwise(chosen)):
        ranges[start:end, place] = 1
    spread = (ranges * np.linalg.solve(measured.strategy.gram(), ranges)).sum(axis=0)
    return {
        "starts": [starts[place] for place in chosen],
        "counts": np.diff(sums).tolist(),
        "stddevs": np.sqrt(variance * spread).tolist(),
        "threshold": threshold,
    }
