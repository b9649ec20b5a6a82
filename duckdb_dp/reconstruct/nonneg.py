"""Marginals without negative counts: projection onto the simplex of the total, and averaging for consistency."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonnegative:
    """Marginals, each on the simplex of the noisy total and nearly consistent with the others, one at a time.

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
            fitted = cls(
                components=components, wanted=cliques, averages=(), kept={c: fitted.marginal(c) for c in cliques}
            )
        for _ in range(cycles if shared else 0):
            averages = (*fitted.averages, fitted._average(shared))
            kept = {clique: fitted._agreed(fitted.kept[clique], clique, averages[-1]) for clique in fitted.kept}
            fitted = cls(components=components, wanted=cliques, averages=averages, kept=kept)
        return fitted

    @property
    def total(self) -> float:
        """The noisy total, at least 0."""
        return max(float(self.components.values.get((), np.zeros(()))), 0.0)

    def marginal(self, clique: Clique) -> Array:
        """One marginal of those wanted, shape ``domain.shape(clique)``."""
        if clique in self.kept:
            return self.kept[clique]
        table = simplex(self.components.marginal(clique), self.total)
        for average in self.averages:
            table = self._agreed(table, clique, average)
        return table

    def _average(self, shared: frozenset[Clique]) -> dict[Clique, Array]:
        domain = self.components.domain
        sums: dict[Clique, Array] = {tau: np.zeros(domain.shape(tau)) for tau in shared}
        weights: dict[Clique, float] = defaultdict(float)
        for clique in self.wanted:
            for tau, summed in _sums(self.marginal(clique), clique, shared).items():
                weight = domain.cells(tau) / domain.cells(clique)
                sums[tau] += weight * summed
                weights[tau] += weight
        return {tau: centred(total / weights[tau]) for tau, total in sums.items()}

    def _agreed(self, table: Array, clique: Clique, average: dict[Clique, Array]) -> Array:
        """The marginal with the averages as its residuals, projected again."""
        sums = _sums(table, clique, average)
        gaps = {tau: average[tau] - centred(summed) for tau, summed in sums.items()}
        moved = ResidualEstimates(domain=self.components.domain, values=gaps, precisions={}).marginal(clique)
        moved += table
        return simplex(moved, self.total)


def _shared(cliques: Sequence[Clique]) -> frozenset[Clique]:
    """The sets that are inside at least two of the cliques. The total is in all, and the same in all."""
    seen: set[Clique] = set()
    twice: set[Clique] = set()
    for clique in cliques:
        for tau in subsets(clique)[1:]:
            (twice if tau in seen else seen).add(tau)
    return frozenset(twice)


def _sums(table: Array, clique: Clique, wanted: frozenset[Clique] | dict[Clique, Array]) -> dict[Clique, Array]:
    """The marginals of a marginal that are wanted, each summed from one that has one attribute more."""
    known: dict[Clique, Array] = {clique: table}
    for tau in reversed(subsets(clique)[1:-1]):
        above = next(tau_above for tau_above in known if len(tau_above) == len(tau) + 1 and set(tau) <= set(tau_above))
        axis = next(axis for axis, name in enumerate(above) if name not in tau)
        known[tau] = np.asarray(known[above].sum(axis=axis))
    return {tau: table for tau, table in known.items() if tau in wanted}


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
