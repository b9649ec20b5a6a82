"""Marginals fitted by empirical Bayes: each is shrunk towards what smaller marginals predict.

The prior of a pair is what a Markov tree of all pairs says (``estimate.by_tree``), and for more attributes the table that
iterative proportional fitting (IPF) makes of its pairs. How far a marginal may be from its prior is estimated from the noisy
residuals themselves: theta of ``tilting.interactions``.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.combination import comparable, halves, judged, leaning, said, weights
from duckdb_dp.reconstruct.estimate import Estimate, first
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.nonneg import Nonnegative
from duckdb_dp.reconstruct.tilting import interactions, product, shrunk, tilts

SWEEPS, MET = 20, 3e-3
"""Most IPF sweeps, and the sum of L1 distances from the marginals, over the total, at which they end: mostly the third."""

_TINY = 1e-300


def tilted(noisy: Array, prior: Array, strength: float, total: float) -> Array:
    """One table, of any shape; see ``tilting.tilts``.

    Privacy: post-processing.
    """
    found = tilts(noisy.reshape(1, -1), prior.reshape(1, -1), np.array([strength]), total)
    return found.reshape(prior.shape)


def interaction(residual: Array, prior: Array, variance: float) -> float:
    """theta of one table, from a centred residual whose noise had that variance before centring; see ``tilting.interactions``.

    Privacy: post-processing.
    """
    noise = variance * math.prod((n - 1) / n for n in residual.shape)
    return float(interactions(residual.reshape(1, -1), prior.reshape(1, -1), np.array([noise]))[0])


def proportional(table: Array, clique: Clique, margins: Iterable[tuple[Clique, Array]], sweeps: int = SWEEPS) -> Array:
    """Iterative proportional fitting: the table scaled to each of the marginals in turn, until they are nearly met.

    Privacy: post-processing.
    """
    targets = [
        (tuple(axis for axis, name in enumerate(clique) if name not in tau), np.asarray(margin))
        for tau, margin in margins
    ]
    for _ in range(sweeps):
        missed = 0.0
        for axes, margin in targets:
            sums = table.sum(axis=axes)
            missed += float(np.abs(sums - margin).sum())
            table = table * np.expand_dims(margin / np.maximum(sums, _TINY), axes)
        if missed <= MET * float(table.sum()):
            break
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Marginals by empirical Bayes, one at a time; singles and pairs are kept and agree, larger ones follow them.

    Singles and pairs are those of an ``Estimate``. More attributes: IPF from the pairs, and from measured larger sets inside;
    where the marginal's own residual was measured, tilted from that. Of those l, in ``shares``, is taken, and 1 - l of their counts
    without negative ones: ``counted``.

    Privacy: post-processing.
    """

    components: ResidualEstimates
    estimate: Estimate
    shares: Mapping[Clique, float] = field(default_factory=dict)
    counted: Nonnegative | None = None

    @classmethod
    def fit(cls, components: ResidualEstimates, wanted: Sequence[Clique]) -> "Fitted":
        """Fit all singles and pairs inside the cliques that are wanted, and judge measured ones of more attributes."""
        total = max(float(components.values.get((), np.zeros(()))), 0.0)
        # Pairs of attributes that no wanted marginal has are not fitted.
        alive = [tuple(name for name in clique if components.domain.sizes[name] > 1) for clique in wanted]
        names = sorted({name for clique in alive for name in clique})
        pairs = sorted({pair for clique in alive for pair in itertools.combinations(clique, 2)}) if total else []
        if not total:
            return cls(components=components, estimate=first(components, names, pairs, total))
        return cls.around(components, judged(components, names, pairs, total), wanted)

    @classmethod
    def around(cls, components: ResidualEstimates, estimate: Estimate, wanted: Sequence[Clique]) -> "Fitted":
        """Judge measured marginals of three and more attributes, beside an estimate of pairs.

        As pairs are judged (``combination.judged``): both estimates are made of residuals with twice the noise, and weighed by others
        whose noise is independent of theirs, and of that in pairs, which stay as they are.
        """
        found = cls(components=components, estimate=estimate)
        large = [clique for clique in wanted if len(clique) > 2 and clique in components.values]
        if not large or not estimate.total or not comparable(components.domain, wanted):
            return found
        half, rest = halves(components, whole=2)
        modelled, counted = replace(found, components=half), Nonnegative.fit(half, wanted, memory=math.inf)
        model = {clique: modelled.marginal(clique) for clique in large}
        near = leaning(model, {clique: counted.marginal(clique) for clique in large}, half.precisions)
        _, shares = weights(said(model, near, rest), 1.0)
        return replace(found, shares=shares, counted=Nonnegative.fit(components, wanted, memory=math.inf))

    def marginal(self, clique: Clique) -> Array:
        """One marginal, shape ``domain.shape(clique)``."""
        total, domain = self.estimate.total, self.components.domain
        alive = tuple(name for name in clique if domain.sizes[name] > 1)
        if alive != clique:
            return self.marginal(alive).reshape(domain.shape(clique))
        if total == 0 or not clique:
            return np.full(domain.shape(clique), total)
        if len(clique) <= 2:
            return self.estimate.marginal(clique)
        inside = self._inside(clique)
        table = proportional(product(self.estimate.singles, clique, total), clique, inside)
        if clique in self.components.values:
            (table,) = shrunk(self.components, {clique: table}, total).values()
            table = proportional(table, clique, inside, 1)
        share = self.shares.get(clique, 1.0)
        if self.counted is not None and share < 1:
            counts = {clique: self.counted.marginal(clique)}
            near = leaning({clique: table}, counts, self.components.precisions)[clique]
            table = share * table + (1 - share) * near
        return table

    def _inside(self, clique: Clique) -> list[tuple[Clique, Array]]:
        """Marginals that one of three or more attributes follows: its pairs, then measured larger sets."""
        larger = (tau for tau in subsets(clique)[:-1] if len(tau) > 2 and tau in self.components.values)
        pairs = list(itertools.combinations(clique, 2))
        return [(tau, self.marginal(tau)) for tau in (*pairs, *larger)]
