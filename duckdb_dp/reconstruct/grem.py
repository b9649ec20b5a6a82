"""GReM: measurements of residuals are averaged by inverse variance, and marginals are sums of residuals.

A component c_tau is the residual of tau as an array over the cells of tau, centred along every axis: Recon(Decomp(.)) is
a projection, so that nothing has to be packed into the smaller arrays of the paper and unpacked again.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain, subsets
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array, Centring
from duckdb_dp.reconstruct.groups import Groups
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement
from duckdb_dp.reconstruct.residual import marginal


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualEstimates:
    """Estimated residuals: the inverse-variance weighted averages of all noisy ones; what was not measured is 0.

    Attributes:
        domain: the domain.
        values: clique -> centred component, array of the clique's shape.
        precisions: clique -> 1 / variance of the noise (before centring) in the average.
        groups: of cliques whose residuals are those of tables of groups of values, and have the shape of these.
        coarser: what was measured of cliques in larger groups than these are in now, in the order of measuring.
        ordered: of attributes of which it is known, how many of their first values are in an order.

    Source: [AIM+GReM] Alg. 3.

    Privacy: post-processing.
    """

    domain: Domain
    values: Mapping[Clique, Array]
    precisions: Mapping[Clique, float]
    groups: Mapping[Clique, Groups] = field(default_factory=dict)
    coarser: tuple["ResidualEstimates", ...] = ()
    ordered: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, domain: Domain, noisy: Iterable[LinearMeasurement]) -> "ResidualEstimates":
        """The averages of measured residuals."""
        return cls(domain=domain, values={}, precisions={}).added(noisy)

    def added(self, noisy: Iterable[LinearMeasurement]) -> "ResidualEstimates":
        """These and more measured residuals; this object stays as it is.

        Raises:
            DPError: answers that do not fit the domain.
        """
        values, precisions = dict(self.values), dict(self.precisions)
        for one, residual in _residuals(self.domain, noisy, self.groups):
            old, gained = precisions.get(one.clique, 0.0), 1 / one.variance
            if old:
                residual = (old * values[one.clique] + gained * residual) / (old + gained)
            values[one.clique], precisions[one.clique] = residual, old + gained
        return replace(self, values=values, precisions=precisions)

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """Of what is measured of a clique."""
        return self.groups[clique].shape if clique in self.groups else self.domain.shape(clique)

    @property
    def cliques(self) -> set[Clique]:
        """All of which anything has been measured, in any groups."""
        return {*self.values, *(clique for one in self.coarser for clique in one.values)}

    def regrouped(self, groups: Mapping[Clique, Groups | None]) -> "ResidualEstimates":
        """These with other groups for some cliques, or none; what was measured in those before is kept as coarser.

        Privacy: post-processing.
        """
        old = self._some(self.values.keys() & groups.keys())
        left = self._some(self.values.keys() - groups.keys())
        now = {**self.groups, **groups}
        return replace(
            left,
            groups={clique: one for clique, one in now.items() if one is not None},
            coarser=(*self.coarser, old) if old.values else self.coarser,
        )

    def _some(self, cliques: Collection[Clique]) -> "ResidualEstimates":
        """Those of some cliques, in their order."""
        kept = [clique for clique in self.values if clique in cliques]
        return ResidualEstimates(
            domain=self.domain,
            values={clique: self.values[clique] for clique in kept},
            precisions={clique: self.precisions[clique] for clique in kept},
            groups={clique: self.groups[clique] for clique in kept if clique in self.groups},
            ordered=self.ordered,
        )

    def measured_as(self, clique: Clique, table: Array) -> Array:
        """A table of the clique as its residual is measured: with the sums of groups, where it has any."""
        return self.groups[clique].sums(table) if clique in self.groups else table

    def whole(self) -> "ResidualEstimates":
        """Those of tables of single values alone."""
        return self._some(self.values.keys() - self.groups.keys())

    def in_groups(self) -> dict[Clique, tuple[int, ...]]:
        """Of what was measured in groups alone: how many there were of each attribute, when it was measured last.

        A clique whose groups have changed since counts as it was measured: new groups may get nothing of the budget.
        """
        last = {clique: one.groups.get(clique) for one in (*self.coarser, self) for clique in one.values}
        return {clique: groups.shape for clique, groups in last.items() if groups is not None}

    def filled(self, tables: Mapping[Clique, Array]) -> "ResidualEstimates":
        """Those of tables of single values, and where groups were measured the residuals of given tables.

        These count as precise as makes the sum of a group's cells as precise as it was measured, on average.
        """
        values, precisions = dict[Clique, Array](), dict[Clique, float]()
        for known in (*self.coarser, self):
            for clique in known.values.keys() & known.groups.keys():
                ratio = self.domain.cells(clique) / math.prod(known.groups[clique].shape)
                values[clique], precisions[clique] = centred(tables[clique]), known.precisions[clique] * ratio
        alone = self.whole()
        return replace(alone, values=values | dict(alone.values), precisions=precisions | dict(alone.precisions))

    def marginal(self, clique: Clique) -> Array:
        """mu_gamma = sum over tau in gamma of c_tau / prod_{j in gamma - tau} n_j, shape ``domain.shape(clique)``.

        Source: [AIM+GReM] Alg. 2 and Prop. 3.1.
        """
        return marginal(self.domain, clique, self.values)

    def variance(self, clique: Clique) -> float:
        """The measured residuals' share of the variance of each cell of a marginal.

        Formula: sum over measured tau in gamma of s_tau prod_{i in tau} (n_i - 1)/n_i prod_{j in gamma - tau} 1/n_j^2.
        Residuals that were not measured count as 0 in a marginal; what that costs depends on the data and is not here.

        Source: [AIM+GReM] Prop. 4.4.
        """
        return math.fsum(
            share / self.precisions[tau] for tau, share in cell_shares(self.domain, clique) if tau in self.precisions
        )

    def noisy(self) -> tuple[LinearMeasurement, ...]:
        """The averages, one noisy residual per clique: they say all that the measurements said."""
        return tuple(
            residual_measurement(self.domain, clique, values, 1 / self.precisions[clique])
            for clique, values in self.values.items()
        )


STACKED = 2**17
"""Cells of the tables of one shape that are centred together."""


def _residuals(
    domain: Domain, noisy: Iterable[LinearMeasurement], groups: Mapping[Clique, Groups]
) -> Iterator[tuple[LinearMeasurement, Array]]:
    """Each measurement with its centred answers; those of one shape, one after another, are centred together.

    An attribute of one value has no residual.
    """
    seen = (one for one in noisy if all(domain.sizes.get(name, 0) != 1 for name in one.clique))
    for shape, group in itertools.groupby(seen, key=lambda one: _shape(domain, one, groups)):
        together = max(1, STACKED // math.prod(shape))
        while few := list(itertools.islice(group, together)):
            yield from zip(few, residuals(np.stack([one.answers.reshape(shape) for one in few])), strict=True)


def centred(table: Array) -> Array:
    """The projection on the residual space: the mean along every axis is subtracted."""
    return np.asarray(residuals(table[None])[0])


def residuals(tables: Array) -> Array:
    """The projections of stacked tables, shape (k, ...), in place on a copy.

    Means are matrix products: summing short rows is slow otherwise. Twice as fast as array by array at 16^4 cells.

    Source: [AIM+GReM] Table 1, sub and center at once.
    """
    residual = np.array(tables, dtype=np.float64, order="C")
    before, after = len(residual), residual.size // max(len(residual), 1)
    for n in residual.shape[1:]:
        after //= n
        view, mean = residual.reshape(before, n, after), np.full((1, n), 1 / n)
        view -= np.matmul(mean, view) if after > 1 else np.matmul(view[:, :, 0], mean[0])[:, None, None]
        before *= n
    return residual


def _shape(domain: Domain, one: LinearMeasurement, groups: Mapping[Clique, Groups]) -> tuple[int, ...]:
    if one.clique in groups:
        return groups[one.clique].shape
    unknown = [name for name in one.clique if name not in domain.sizes]
    assert isinstance(one.strategy, Centring), "a residual is measured by Centring; decompose a marginal first"
    if unknown or one.answers.size != domain.cells(one.clique):
        raise DPError(
            f"a noisy residual on {as_sql(one.clique)} with {one.answers.size:,} values does not fit this domain; "
            "it was measured with other attributes or bins."
        )
    return domain.shape(one.clique)


def cell_shares(domain: Domain, clique: Clique) -> list[tuple[Clique, float]]:
    """For each tau in the clique that has a residual: the variance of a cell of the marginal from unit noise on tau.

    Formula: v_tau = prod_{i in tau} (n_i - 1)/n_i prod_{j in gamma - tau} 1/n_j^2.

    Source: [AIM+GReM] Prop. 4.4.
    """
    sizes = domain.sizes
    alive = tuple(name for name in clique if sizes[name] > 1)
    return [
        (tau, math.prod((sizes[i] - 1) / sizes[i] if i in tau else 1 / sizes[i] ** 2 for i in alive))
        for tau in subsets(alive)
    ]


def decompose(domain: Domain, noisy: LinearMeasurement) -> tuple[LinearMeasurement, ...]:
    """A noisy marginal as independent noisy residuals of all its subsets.

    Summing n_gamma / n_tau cells of noise variance s gives a marginal of tau with noise variance s n_gamma / n_tau, whose
    residual is independent of those of other subsets, as they are orthogonal projections of the same noise.

    Args:
        domain: the domain.
        noisy: the cells of a marginal, measured as they are.

    Source: [AIM+GReM] Alg. 1.

    Privacy: post-processing.
    """
    clique = noisy.clique
    table = noisy.answers.reshape(domain.shape(clique))
    residuals = []
    for tau, _ in cell_shares(domain, clique):
        axes = tuple(axis for axis, name in enumerate(clique) if name not in tau)
        summed = np.asarray(table.sum(axis=axes))
        cells = domain.cells(clique) // domain.cells(tau)
        residuals.append(residual_measurement(domain, tau, centred(summed), noisy.variance * cells))
    return tuple(residuals)
