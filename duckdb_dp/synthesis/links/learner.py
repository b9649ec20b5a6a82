"""What the steps of ``adaptive_links`` share: the estimate of each residual, and the links that are fitted to all."""

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.nonneg import positive
from duckdb_dp.synthesis.links.allocate import allocate, incidence
from duckdb_dp.synthesis.links.blocks import Blocks
from duckdb_dp.synthesis.links.evidence import ResidualEstimate, coarse, learn_dispersions, residual_estimates
from duckdb_dp.synthesis.links.fit import Tilt, Wanted, fit
from duckdb_dp.synthesis.links.per_unit import measure_shares

ROUGH, FINE = 3e-5, 1e-6
"""Tolerances of fits, in KL per link: for learning dispersions, and of the result."""

SURE = 1e-4
"""Ridge at least, over the mean of the expected counts: noise-free residuals may contradict one another a little, as rows are whole."""

HELD = 20
"""Units of a value, on average, from which on pairs of many values are looked at."""

MOST = 4000
"""Workloads that are looked at: of more, evenly spaced ones stand for all."""


@final
@dataclass(slots=True, kw_only=True)
class Learner:
    """The state that the steps of ``adaptive_links`` share.

    Attributes:
        blocks: the blocks that are fitted.
        queryable: what is measured.
        one_parent: whether each left row has one link exactly.
        total: links, as measured or known.
        total_relative_variance: relative variance of the total.
        residuals: all residuals that may be measured.
        within: the residuals of every workload.
        base: independent links.
        spent: rho by step.
        tilts: the last fit to residuals of up to so many attributes, from which the next one starts.
        per_unit: what the links of a unit weigh together at most, in what is measured and in ``total``; 0: as many as they are.
    """

    blocks: Blocks
    queryable: PrivateQueryable
    one_parent: bool
    total: float
    total_relative_variance: float
    residuals: dict[Clique, ResidualEstimate]
    within: NDArray[np.int64]
    base: Array
    spent: dict[str, float] = field(default_factory=dict)
    tilts: dict[int, Tilt] = field(default_factory=dict)
    per_unit: int = 0

    def group(self, order: int, cross: bool) -> list[ResidualEstimate]:
        """Residuals of one order, across the sides or within one."""
        return [
            a for a in self.residuals.values() if len(a.clique) == order and all(self.blocks.split(a.clique)) == cross
        ]

    def upto(self, order: int) -> list[Clique]:
        """Cliques of at most so many attributes."""
        return [clique for clique in self.residuals if len(clique) <= order]

    def measure(self, step: str, shares: dict[Clique, float]) -> None:
        """Measure residuals with a given rho each.

        Privacy: spends the sum of ``shares``.
        """
        ordered = ((self.queryable.domain.clique(clique), rho) for clique, rho in shares.items())
        found = (
            measure_shares(self.queryable, ordered, self.per_unit)
            if self.per_unit
            else self.queryable.measure_residuals(ordered)
        )
        for clique, noisy in zip(shares, found, strict=True):
            self.residuals[clique].take(noisy)
        self.spent[step] = self.spent.get(step, 0.0) + sum(shares.values())

    def fill(self, step: str, rho: float, allowed: Collection[Clique]) -> None:
        """Split rho over the allowed residuals by their present estimates, and measure them.

        Privacy: spends rho, or nothing where nothing is allowed.
        """
        if allowed and rho > 0:
            degree = self.per_unit or self.queryable.rows
            shares = allocate(self.residuals, self.within, allowed=allowed, rho=rho, total=self.total, degree=degree)
            self.measure(step, shares)

    def fitted(self, order: int, tolerance: float = ROUGH) -> tuple[Array, Tilt]:
        """The fit to all residuals of up to some order."""
        wanted = self.wanted(order)
        links, tilt = fit(
            self.blocks,
            self.base,
            wanted.residuals,
            wanted.ridges,
            wanted.fine,
            one_parent=self.one_parent,
            start=self.tilts.get(order),
            tolerance=tolerance,
        )
        self.tilts[order] = tilt
        return links, tilt

    def wanted(self, order: int) -> Wanted:
        """What was measured of residuals of up to some order."""
        known = [a for a in self.residuals.values() if a.precision and len(a.clique) <= order]
        return Wanted(
            {a.clique: self._shaped(a) for a in known},
            {a.clique: max(1 / (a.precision * a.dispersion), SURE * self.total / math.prod(a.sizes)) for a in known},
            {
                a.clique: (coarse(a.sizes), 1 / (a.precision * a.fine_dispersion))
                for a in known
                if a.fine_dispersion is not None
            },
        )

    def alone(self, order: int) -> tuple[Wanted, Wanted]:
        """What was measured of the left side alone, and of the right one."""
        found = self.wanted(order)
        left, right = (
            [clique for clique in found.residuals if not self.blocks.split(clique)[1 - side]] for side in (0, 1)
        )
        return found.of(left), found.of(right)

    def unmeasured(self) -> list[Clique]:
        """The pairs across the sides of which nothing was measured."""
        left, right, domain = self.blocks.left.attributes, self.blocks.right.attributes, self.blocks.domain
        pairs = [pair for pair in itertools.product(left, right) if min(domain.shape(pair)) > 1]
        return [pair for pair in pairs if pair not in self.residuals or not self.residuals[pair].precision]

    def _shaped(self, residual: ResidualEstimate) -> Array:
        left = len(self.blocks.split(residual.clique)[0])
        return np.asarray(residual.mean).reshape(math.prod(n - 1 for n in residual.sizes[:left]), -1)

    def learn(self, order: int) -> None:
        """Estimate dispersions up to some order, each around the fit of smaller residuals."""
        for k in range(1, order + 1):
            below = self.fitted(k - 1)[0]
            for group, scale in self._kinds(k):
                tables = self.blocks.marginals(below, (a.clique for a in group if a.precision))
                seen = [next(tables) if a.precision else None for a in group]
                learn_dispersions(group, seen, self.residuals, scale, self.total_relative_variance)

    def _kinds(self, order: int) -> list[tuple[list[ResidualEstimate], float]]:
        """The kinds of residuals, each with the median of the prior of its dispersion.

        If rows have up to d links, counts on one side vary up to d times as much as Poisson counts; sqrt(d) is a guess. Rows
        that have more links than others show in all residuals of their side: in larger ones about as in single attributes.
        """
        within = [[a for a in self.group(order, False) if self.blocks.split(a.clique)[side]] for side in (0, 1)]
        if order == 1:
            return [(side, math.sqrt(self.queryable.rows)) for side in within]
        found = [(side, self._uneven(place)) for place, side in enumerate(within)]
        return [(self.group(order, True), 1.0), *found]

    def _uneven(self, side: int) -> float:
        """The geometric mean of the dispersions of the single attributes of a side."""
        ones = [a.dispersion for a in self.group(1, False) if self.blocks.split(a.clique)[side]]
        return float(np.exp(np.mean(np.log(ones)))) if ones else 1.0


def workloads(left: Sequence[str], right: Sequence[str], k: int) -> list[Clique]:
    """All sets of k attributes with some of each side, or of the only side that has any; smaller where there are fewer."""
    k = min(k, len(left) + len(right))
    if not left or not right:
        return list(itertools.combinations((*left, *right), k)) if k else []
    return [
        a + b
        for i in range(1, k)
        for a in itertools.combinations(left, i)
        for b in itertools.combinations(right, k - i)
    ]


def too_large(domain: Domain, left: Sequence[str], right: Sequence[str]) -> list[Clique]:
    """The pairs across the sides whose residuals have too many coordinates to be measured, however many links there are; public."""
    pairs = [pair for pair in itertools.product(left, right) if min(domain.shape(pair)) > 1]
    return [pair for pair in pairs if pair not in residual_estimates(domain, [pair])]


def start(
    blocks: Blocks,
    queryable: PrivateQueryable,
    *,
    total: float,
    total_relative_variance: float,
    k: int,
    one_parent: bool,
    base: Array,
    per_unit: int,
) -> Learner:
    """A learner that has measured nothing yet.

    Where links are weighed by unit, pairs of many values are left out where a value of the unit's side has few units, and where the links
    of a unit weigh more than 1 together: what such values go to would be known, and not how many links they have.

    Where each left row has one link, marginals of the left side are those of its table and are not measured. Nor are attributes
    measured together with others from which they follow: these say all that both do.

    Privacy: post-processing.
    """
    wanted = workloads(blocks.left.attributes, blocks.right.attributes, k)
    wanted = wanted[:: -(-len(wanted) // MOST)] if wanted else []
    sizes = blocks.domain.sizes

    def many(clique: Clique) -> bool:
        left, right = blocks.split(clique)
        if not (left and right) or not per_unit:
            return bool(left and right)
        return per_unit == 1 and total >= HELD * sizes[left[0]]

    known = residual_estimates(blocks.domain, wanted, many)
    if one_parent:
        known = {clique: residual for clique, residual in known.items() if blocks.split(clique)[1]}
    implied = blocks.left.implied | blocks.right.implied
    known = {clique: one for clique, one in known.items() if not any({*clique} >= {*pair} for pair in implied)}
    for residual in known.values():
        if len(residual.clique) == 1:
            residual.dispersion = residual.optimistic_dispersion = math.sqrt(queryable.rows)
    return Learner(
        blocks=blocks,
        queryable=queryable,
        one_parent=one_parent,
        total=total,
        total_relative_variance=total_relative_variance,
        residuals=known,
        within=incidence(wanted, known),
        base=base,
        per_unit=per_unit,
    )


def measure_total(queryable: PrivateQueryable, shares: tuple[float, float], vague: float) -> tuple[float, float, float]:
    """Measure the number of links, a second time if it is imprecise: (total, its relative variance, rho spent).

    Args:
        queryable: what is measured.
        shares: rho of the first measurement and of the second; 0 for none.
        vague: relative variance above which there is a second.

    Privacy: spends the sum of ``shares`` at most.
    """
    (first,) = queryable.measure_residuals([((), shares[0])])
    mean, variance, spent = float(first.answers[0]), first.variance, shares[0]
    if shares[1] > 0 and variance > vague * mean**2:
        (again,) = queryable.measure_residuals([((), shares[1])])
        mean = (mean * again.variance + float(again.answers[0]) * variance) / (again.variance + variance)
        variance, spent = 1 / (1 / variance + 1 / again.variance), sum(shares)
    total, total_relative_variance = positive(mean, variance)
    return total, total_relative_variance / total**2, spent
