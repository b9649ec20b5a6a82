"""Marginals from any number of noisy residuals: combined by inverse variance, kept as centred components, added up.

A component c_tau is the residual of tau as an array over the cells of tau, centred along every axis: Recon(Decomp(.)) is
a projection, so that nothing has to be packed into the smaller arrays of the paper and unpacked again.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """One noisy residual: values = (C (x) ... (x) C) mu_clique + noise of the given variance in every answer.

    Attributes:
        clique: attributes of the residual; () is the total.
        variance: of the noise of each answer, before centring.
        values: the noisy answers, flat or of the clique's shape; whatever is not centred in them is noise.

    Privacy: has been paid for; all that is made of it is post-processing.
    """

    clique: Clique
    variance: float
    values: Array

    def __post_init__(self) -> None:
        if not 0 < self.variance < math.inf:
            raise DPError(
                f"the noise variance of {as_sql(self.clique)} is {as_sql(self.variance)}; a variance is positive and finite."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualEstimates:
    """Estimated residuals: the inverse-variance weighted averages of all noisy ones; what was not measured is 0.

    Attributes:
        domain: the domain.
        values: clique -> centred component, array of the clique's shape.
        precisions: clique -> 1 / variance of the noise (before centring) in the average.

    Source: [AIM+GReM] Alg. 3.

    Privacy: post-processing.
    """

    domain: Domain
    values: Mapping[Clique, Array]
    precisions: Mapping[Clique, float]

    @classmethod
    def of(cls, domain: Domain, noisy: Iterable[Noisy]) -> "ResidualEstimates":
        """The averages of noisy residuals."""
        return cls(domain=domain, values={}, precisions={}).added(noisy)

    def added(self, noisy: Iterable[Noisy]) -> "ResidualEstimates":
        """These and more noisy residuals; this object stays as it is.

        Raises:
            DPError: values that do not fit the domain.
        """
        values, precisions = dict(self.values), dict(self.precisions)
        for one in noisy:
            if any(self.domain.sizes.get(name, 0) == 1 for name in one.clique):
                continue  # an attribute of one value has no residual
            shape = _shape(self.domain, one)
            old, gained = precisions.get(one.clique, 0.0), 1 / one.variance
            found = centred(one.values.reshape(shape))
            if old:
                found = (old * values[one.clique] + gained * found) / (old + gained)
            values[one.clique], precisions[one.clique] = found, old + gained
        return ResidualEstimates(domain=self.domain, values=values, precisions=precisions)

    def marginal(self, clique: Clique) -> Array:
        """mu_gamma = sum over tau in gamma of c_tau / prod_{j in gamma - tau} n_j, shape ``domain.shape(clique)``.

        Every part is spread along one axis, into one part with one attribute more, until all are in the marginal: for
        three attributes that is three passes over the marginal instead of eight.

        Source: [AIM+GReM] Alg. 2 and Prop. 3.1.
        """
        sizes = self.domain.shape(clique)
        parts: dict[tuple[int, ...], Array] = {}
        for places, parent, axis in _ladder(len(clique)):
            part = parts.pop(places, None)
            own = self.values.get(tuple(clique[place] for place in places))
            if own is not None:
                part = own if part is None else part + own
            if part is None:
                continue
            part = np.expand_dims(part / sizes[parent[axis]], axis)
            into = parts.get(parent)
            if into is None:
                shape = tuple(sizes[place] for place in parent)
                parts[parent] = np.broadcast_to(part, shape).copy()
            else:
                into += part
        return self._top(clique, parts.get(tuple(range(len(clique)))), sizes)

    def _top(self, clique: Clique, below: Array | None, sizes: tuple[int, ...]) -> Array:
        own = self.values.get(clique)
        if below is None:
            return np.zeros(sizes) if own is None else own.copy()
        if own is not None:
            below += own
        return below

    def variance(self, clique: Clique) -> float:
        """The measured residuals' share of the variance of each cell of a marginal.

        Formula: sum over measured tau in gamma of s_tau prod_{i in tau} (n_i - 1)/n_i prod_{j in gamma - tau} 1/n_j^2.
        Residuals that were not measured count as 0 in a marginal; what that costs depends on the data and is not here.

        Source: [AIM+GReM] Prop. 4.4.
        """
        return math.fsum(
            share / self.precisions[tau] for tau, share in cell_shares(self.domain, clique) if tau in self.precisions
        )

    def noisy(self) -> tuple[Noisy, ...]:
        """The averages, one noisy residual per clique: they say all that the measurements said."""
        return tuple(
            Noisy(clique=clique, variance=1 / self.precisions[clique], values=values)
            for clique, values in self.values.items()
        )


def centred(table: Array) -> Array:
    """The projection on the residual space: the mean along every axis is subtracted, in place on a copy.

    Means are matrix products: summing short rows is slow otherwise. Twice as fast as array by array at 16^4 cells.

    Source: [AIM+GReM] Table 1, sub and center at once.
    """
    found = np.array(table, dtype=np.float64, order="C")
    before, after = 1, found.size
    for n in found.shape:
        after //= n
        view, mean = found.reshape(before, n, after), np.full((1, n), 1 / n)
        view -= np.matmul(mean, view) if after > 1 else np.matmul(view[:, :, 0], mean[0])[:, None, None]
        before *= n
    return found


def _shape(domain: Domain, one: Noisy) -> tuple[int, ...]:
    unknown = [name for name in one.clique if name not in domain.sizes]
    if unknown or one.values.size != domain.cells(one.clique):
        raise DPError(
            f"a noisy residual on {as_sql(one.clique)} with {one.values.size:,} values does not fit this domain; "
            "it was measured with other attributes or bins."
        )
    return domain.shape(one.clique)


def measured_variance(domain: Domain, clique: Clique, measured: Iterable[Noisy]) -> float:
    """The measured residuals' share of the variance of each cell of a marginal: ``ResidualEstimates.variance``.

    Privacy: post-processing; depends on variances only.
    """
    precisions: dict[Clique, float] = {}
    for one in measured:
        precisions[one.clique] = precisions.get(one.clique, 0.0) + 1 / one.variance
    return ResidualEstimates(domain=domain, values={}, precisions=precisions).variance(clique)


def cell_shares(domain: Domain, clique: Clique) -> list[tuple[Clique, float]]:
    """For each tau in the clique that has a residual: the variance of a cell of the marginal from unit noise on tau.

    Formula: v_tau = prod_{i in tau} (n_i - 1)/n_i prod_{j in gamma - tau} 1/n_j^2.

    Source: [AIM+GReM] Prop. 4.4.
    """
    sizes = domain.sizes
    alive = tuple(name for name in clique if sizes[name] > 1)
    return [
        (tau, math.prod((sizes[i] - 1) / sizes[i] if i in tau else 1 / sizes[i] ** 2 for i in alive))
        for order in range(len(alive) + 1)
        for tau in itertools.combinations(alive, order)
    ]


def decompose(domain: Domain, clique: Clique, values: Array, variance: float) -> tuple[Noisy, ...]:
    """A noisy marginal as independent noisy residuals of all subsets.

    Summing n_gamma / n_tau cells of noise variance s gives a marginal of tau with noise variance s n_gamma / n_tau, whose
    residual is independent of those of other subsets, as they are orthogonal projections of the same noise.

    Args:
        domain: the domain.
        clique: attributes of the marginal.
        values: the noisy marginal, flat or of its shape.
        variance: of the noise in each cell.

    Source: [AIM+GReM] Alg. 1.

    Privacy: post-processing.
    """
    table = values.reshape(domain.shape(clique))
    found = []
    for tau, _ in cell_shares(domain, clique):
        axes = tuple(axis for axis, name in enumerate(clique) if name not in tau)
        summed = np.asarray(table.sum(axis=axes))
        cells = domain.cells(clique) // domain.cells(tau)
        found.append(Noisy(clique=tau, variance=variance * cells, values=centred(summed)))
    return tuple(found)


@lru_cache(maxsize=32)
def _ladder(order: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]:
    """For every proper subset of 0..order-1, smallest first: (subset, the set one larger it goes to, the axis added)."""
    steps = []
    for size in range(order):
        for places in itertools.combinations(range(order), size):
            # The next place after a gap, cyclically: parts spread evenly over those one larger.
            first = places[-1] + 1 if places else 0
            new = next(p % order for p in range(first, first + order) if p % order not in places)
            parent = tuple(sorted((*places, new)))
            steps.append((places, parent, parent.index(new)))
    return tuple(steps)
