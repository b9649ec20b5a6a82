"""Marginals fitted by empirical Bayes: each is shrunk towards what smaller marginals predict.

The prior of a marginal is what its smaller marginals say: the product of its 1-way marginals for a pair, and for more
attributes the table that iterative proportional fitting (IPF) makes of its pairs. How far a marginal may be from its
prior is estimated from the noisy residuals themselves: theta below.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from duckdb_dp.domain.domain import Clique, subsets
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import ResidualEstimates, centred
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.nonneg import simplex

SWEEPS, MET = 20, 3e-3
"""Most IPF sweeps, and the sum of L1 distances from the marginals, over the total, at which they end: mostly the third."""

STEPS = 50
TOLERANCE = 1e-7
_TINY = 1e-300


def tilted(noisy: Array, prior: Array, strength: float, total: float) -> Array:
    """argmin over mu with sum mu = total of |mu - noisy|^2 / 2 + strength KL(mu || prior).

    Each cell solves mu / s + log(mu / s) = (noisy - nu) / s + log(prior / s), so that mu = s omega(...), omega the Wright
    function; the multiplier nu of the total by Newton: the sum is convex and falls in nu, with slope -mu / (s + mu).

    Args:
        noisy: a noisy marginal.
        prior: what it shrinks to, no negative entry; where 0, the answer is 0.
        strength: s, positive: noise variance over theta.
        total: the sum of the answer, positive.

    Privacy: post-processing.
    """
    from scipy.special import wrightomega

    alive = prior > 0
    y, m = noisy[alive], prior[alive]
    base = y / strength + np.log(m / strength)
    level, mu = 0.0, m
    for _ in range(STEPS):
        mu = strength * wrightomega(base - level / strength)
        excess = float(mu.sum()) - total
        if abs(excess) <= TOLERANCE * total:
            break
        level += excess / max(float((mu / (strength + mu)).sum()), _TINY)
    answer = np.zeros_like(prior)
    answer[alive] = mu * (total / float(mu.sum()))
    return answer


def interaction(residual: Array, prior: Array, variance: float) -> float:
    """theta: how far the truth is from its prior, estimated as E (mu - prior)^2 = theta prior from a noisy residual.

    Where KL(mu || prior) / theta is the negative log density of mu, cells vary by about theta times the prior. The
    residual's squares are on average f v + theta prior, with f = prod (n_i - 1)/n_i as noise is centred too; they are
    weighted by the inverse variance of a square under the model, which depends on theta: a fixed point.

    Args:
        residual: the measured residual minus that of the prior, centred.
        prior: the prior, no negative entry.
        variance: v, of the noise before centring.

    Returns:
        theta, 0 where the residual is no larger than its noise.

    Privacy: post-processing.
    """
    noise = variance * math.prod((n - 1) / n for n in residual.shape)
    excess = residual**2 - noise
    theta: float = max(float(excess.sum()), 0.0) / max(float(prior.sum()), _TINY) + noise / max(
        float(prior.max()), _TINY
    )
    for _ in range(STEPS):
        weights = 1 / (noise + theta * prior) ** 2
        new = float((weights * prior * excess).sum()) / max(float((weights * prior**2).sum()), _TINY)
        if new <= 0:
            return 0.0
        if abs(new - theta) <= 1e-4 * theta:
            break
        theta = new
    return theta


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

    1. Singles: the simplex of the noisy total.
    2. Pairs: tilted from the product of their singles; one that was not measured is that product. Their own singles,
       averaged over all pairs of an attribute, are better than the measured ones alone: they replace them, and all pairs
       are scaled to them.
    3. More attributes: IPF from the pairs, and from measured larger sets inside; where the marginal's own residual was
       measured, tilted from that.

    Privacy: post-processing.
    """

    components: ResidualEstimates
    total: float
    singles: Mapping[Clique, Array]
    pairs: Mapping[Clique, Array]

    @classmethod
    def fit(cls, components: ResidualEstimates, wanted: Sequence[Clique]) -> "Fitted":
        """Fit all singles and pairs inside the cliques that are wanted."""
        total = max(float(components.values.get((), np.zeros(()))), 0.0)
        # Pairs of attributes that no wanted marginal has are not fitted.
        names = sorted({name for clique in wanted for name in clique})
        singles: dict[Clique, Array] = {(name,): simplex(components.marginal((name,)), total) for name in names}
        cliques = sorted({pair for clique in wanted for pair in itertools.combinations(clique, 2)})
        start = cls(components=components, total=total, singles=singles, pairs={})
        if total == 0:
            return start
        pairs: dict[Clique, Array] = {pair: start._shrunk(pair, start._product(pair)) for pair in cliques}
        better = _averaged(singles, pairs)
        agreed = {pair: _scaled(table, pair, better) for pair, table in pairs.items()}
        return cls(components=components, total=total, singles=better, pairs=agreed)

    def updated(self, noisy: Iterable[LinearMeasurement]) -> "Fitted":
        """These with more measurements of pairs: each measured pair is tilted anew, singles stay as they are."""
        measured = tuple(noisy)
        fitted = replace(self, components=self.components.added(measured))
        if self.total == 0:
            return fitted
        new = {one.clique: fitted._shrunk(one.clique, fitted._product(one.clique)) for one in measured}
        return replace(fitted, pairs={**self.pairs, **new})

    def marginal(self, clique: Clique) -> Array:
        """One marginal, shape ``domain.shape(clique)``."""
        if not clique:
            return np.asarray(self.total)
        if self.total == 0:
            return np.zeros(self.components.domain.shape(clique))
        if len(clique) == 1:
            return self.singles[clique]
        if len(clique) == 2:
            return self.pairs[clique]
        inside = self._inside(clique)
        table = proportional(self._product(clique), clique, inside)
        if clique in self.components.values:
            table = proportional(self._shrunk(clique, table), clique, inside, 1)
        return table

    def _inside(self, clique: Clique) -> list[tuple[Clique, Array]]:
        """Marginals that one of three or more attributes follows: its pairs, then measured larger sets."""
        larger = (tau for tau in subsets(clique)[:-1] if len(tau) > 2 and tau in self.components.values)
        pairs = list(itertools.combinations(clique, 2))
        return [(tau, self.marginal(tau)) for tau in (*pairs, *larger)]

    def _product(self, clique: Clique) -> Array:
        table = np.asarray(self.total)
        for name in clique:
            table = np.multiply.outer(table, self.singles[name,] / self.total)
        return table

    def _shrunk(self, clique: Clique, prior: Array) -> Array:
        """A measured marginal between its prior and its noisy residual; the prior where it was not measured."""
        measured = self.components.values.get(clique)
        if measured is None:
            return prior
        variance = 1 / self.components.precisions[clique]
        gap = measured - centred(prior)
        theta = interaction(gap, prior, variance)
        return tilted(prior + gap, prior, variance / theta, self.total) if theta > 0 else prior


def _averaged(singles: Mapping[Clique, Array], pairs: Mapping[Clique, Array]) -> dict[Clique, Array]:
    """Each single as the mean of what the pairs with it say."""
    said: dict[Clique, list[Array]] = {single: [] for single in singles}
    for pair, table in pairs.items():
        said[pair[:1]].append(table.sum(axis=1))
        said[pair[1:]].append(table.sum(axis=0))
    return {single: np.mean(said[single], axis=0) if said[single] else table for single, table in singles.items()}


def _scaled(table: Array, pair: Clique, singles: Mapping[Clique, Array]) -> Array:
    return proportional(table, pair, [(pair[:1], singles[pair[:1]]), (pair[1:], singles[pair[1:]])])
