"""Marginals without negative counts: projection onto the simplex of the total, and averaging for consistency."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred
from duckdb_dp.reconstruct.stacks import Axes, Stack, stacks, summed

FAR = 1e4
"""Standard deviations from its bound at which a normal distribution is taken for what it tends to there."""

CYCLES = 2
"""Rounds of averaging and projecting: the first takes most of what there is to gain, the third next to nothing."""


def simplex(values: Array, total: float) -> Array:
    """The nearest array in L2 that has no negative entry and sums to ``total``; zeros if that is not positive.

    The solution is max(values - t, 0). Entries below the t that the others ask for leave, until none does: a few passes
    of shrinking size instead of a sort.

    Source: Michelot 1986.

    Privacy: post-processing.
    """
    if total <= 0:
        return np.zeros_like(values)
    active = values.reshape(-1)
    while True:
        level = (float(active.sum()) - total) / active.size
        above = active[active > level]
        if above.size in (0, active.size):  # 0 by rounding only, where all are equal
            return np.asarray(np.maximum(values - level, 0.0))
        active = above


def simplices(values: Array, total: float, inside: NDArray[np.bool_]) -> Array:
    """``simplex`` of each row, shape (k, cells), by the cells that are inside; 0 elsewhere.

    Privacy: post-processing.
    """
    if total <= 0:
        return np.zeros_like(values)
    level, left, active = np.zeros(len(values)), np.arange(len(values)), inside
    held = np.where(inside, values, 0.0)
    while left.size:
        count = active.sum(axis=1)
        level[left] = (held.sum(axis=1) - total) / count
        above = active & (held > level[left, None])
        stay = above.sum(axis=1)
        more = (stay > 0) & (stay < count)  # 0 by rounding only, where all are equal
        left, active = left[more], above[more]
        held = np.where(active, held[more], 0.0)
    return np.where(inside, np.maximum(values - level[:, None], 0.0), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonnegative:
    """Marginals, each on the simplex of the noisy total and nearly consistent with the others.

    Marginals are projected; then, ``cycles`` times, every residual that several of them share is averaged over those,
    they are moved to the averages, and projected again. Sums over n cells are weighted by 1 / n. The last step is a
    projection, so that no count is negative, and what marginals share agrees nearly.

    Where all marginals together take more than ``memory`` bytes only the averages are kept: a marginal then repeats its
    own projections when it is read.

    Privacy: post-processing.
    """

    components: ResidualEstimates
    wanted: tuple[Clique, ...]
    averages: tuple[dict[Clique, Array], ...]
    kept: dict[Clique, Array] = field(default_factory=dict)

    @classmethod
    def fit(
        cls, components: ResidualEstimates, wanted: Sequence[Clique], *, memory: float, cycles: int = CYCLES
    ) -> "Nonnegative":
        """Project and average."""
        domain = components.domain
        cliques = tuple(wanted)
        shared = _shared(cliques)
        keep = 8 * sum(domain.cells(clique) for clique in cliques) <= memory
        fitted = cls(components=components, wanted=cliques, averages=())
        if keep:
            fitted = replace(fitted, kept=fitted._all())
        for _ in range(cycles if shared else 0):
            average = fitted._average(shared)
            kept = fitted._all(average) if keep else {}
            fitted = replace(fitted, averages=(*fitted.averages, average), kept=kept)
        return fitted

    @property
    def total(self) -> float:
        """The noisy total, at least 0."""
        return max(float(self.components.values.get((), np.zeros(()))), 0.0)

    def marginal(self, clique: Clique) -> Array:
        """One marginal of those wanted, shape ``domain.shape(clique)``."""
        if clique in self.kept:
            return self.kept[clique]
        (stack,) = self._stacks([clique])
        return stack.apart(self._tables(stack))[0]

    def _stacks(self, cliques: Iterable[Clique]) -> Sequence[Stack]:
        return stacks({clique: self.components.domain.shape(clique) for clique in cliques})

    def _all(self, average: dict[Clique, Array] | None = None) -> dict[Clique, Array]:
        """All marginals that are wanted, moved to an average."""
        found: dict[Clique, Array] = dict.fromkeys(self.wanted, np.zeros(0))
        for stack in self._stacks(found):
            tables = self._tables(stack)
            moved = tables if average is None else self._agreed(stack, tables, average)
            found |= zip(stack.cliques, stack.apart(moved), strict=True)
        return found

    def _tables(self, stack: Stack) -> Array:
        if self.kept:
            return stack.stacked(self.kept)
        values = {axes: stack.stacked(self.components.values, axes) for axes in ((), *_subsets(stack))}
        tables = self._projected(stack, stack.spread(values))
        for average in self.averages:
            tables = self._agreed(stack, tables, average)
        return tables

    def _projected(self, stack: Stack, tables: Array) -> Array:
        rows = (len(tables), -1)
        return simplices(tables.reshape(rows), self.total, stack.inside.reshape(rows)).reshape(tables.shape)

    def _average(self, shared: frozenset[Clique]) -> dict[Clique, Array]:
        domain = self.components.domain
        sums: dict[Clique, Array] = {tau: np.zeros(domain.shape(tau)) for tau in shared}
        weights: dict[Clique, float] = defaultdict(float)
        for stack in self._stacks(self.wanted):
            for axes, found in _sums(stack, self._tables(stack)).items():
                for clique, tau, table in zip(stack.cliques, stack.parts(axes), stack.apart(found, axes), strict=True):
                    if tau in shared:
                        weight = domain.cells(tau) / domain.cells(clique)
                        sums[tau] += weight * table
                        weights[tau] += weight
        return {tau: centred(total / weights[tau]) for tau, total in sums.items()}

    def _agreed(self, stack: Stack, tables: Array, average: dict[Clique, Array]) -> Array:
        """The marginals with the averages as their residuals, projected again."""
        gaps = {}
        for axes, found in _sums(stack, tables).items():
            held = np.array([tau in average for tau in stack.parts(axes)])
            if held.any():
                gap = stack.stacked(average, axes) - stack.centred(found, axes)
                gaps[axes] = gap * held.reshape(-1, *[1] * len(axes))
        return self._projected(stack, stack.spread(gaps) + tables)


def _shared(cliques: Sequence[Clique]) -> frozenset[Clique]:
    """The sets that are inside at least two of the cliques. The total is in all, and the same in all."""
    seen: set[Clique] = set()
    twice: set[Clique] = set()
    for clique in cliques:
        for tau in subsets(clique)[1:]:
            (twice if tau in seen else seen).add(tau)
    return frozenset(twice)


def _subsets(stack: Stack) -> Iterator[Axes]:
    """Some of the axes, and all, the largest first."""
    for size in range(len(stack.axes), 0, -1):
        yield from itertools.combinations(stack.axes, size)


def _sums(stack: Stack, tables: Array) -> dict[Axes, Array]:
    """The marginals of stacked tables by their axes, each summed from one that has one axis more."""
    known: dict[Axes, Array] = {}
    for axes in _subsets(stack):
        if axes == stack.axes:
            known[axes] = tables
            continue
        above = next(larger for larger in known if len(larger) == len(axes) + 1 and set(axes) <= set(larger))
        lost = next(place for place, axis in enumerate(above) if axis not in axes)
        known[axes] = summed(known[above], lost + 1)
    return known


def positive(measured: float, variance: float) -> tuple[float, float]:
    """Mean and variance of a number of at least 1, of which nothing is known but a measurement with normal noise.

    Formula: the mean and variance of N(measured, variance) cut off below 1. With little noise that is the measurement itself;
    where noise drowns it, about the noise's size, and not 1: so few synthetic rows or links would say nothing.

    Privacy: post-processing.
    """
    from scipy.special import log_ndtr  # a first answer needs none of scipy, which takes long to import

    stddev = math.sqrt(variance)
    low = (1.0 - measured) / stddev
    if abs(low) > FAR:  # on either side what the formula tends to, whose terms would cancel or overflow
        return (measured, variance) if low < 0 else (1.0 + stddev / low, (stddev / low) ** 2)
    hazard = math.exp(-(low**2) / 2 - math.log(2 * math.pi) / 2 - float(log_ndtr(-low)))
    mean, shrunk = max(measured + stddev * hazard, 1.0), variance * (1 + low * hazard - hazard**2)
    return mean, min(max(shrunk, 0.0), variance, mean**2)
