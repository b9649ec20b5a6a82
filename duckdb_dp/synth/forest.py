"""Estimates of every pair of attributes: measured pairs fitted, the others along the tree that measured ones span."""

import itertools
from typing import final

import numpy as np

from duckdb_dp.domain import Clique, Domain
from duckdb_dp.linop import Array, centre
from duckdb_dp.reconstruct.fitted import interaction, proportional, tilted
from duckdb_dp.reconstruct.pgm import Measured

SWEEPS = 10


@final
class Forest:
    """A Markov forest of measured pairs, grown one pair at a time.

    A pair that joins two trees becomes an edge: every pair across them is then estimated by the chain of conditional
    distributions, P(a, c) = sum over i, j of P(a, i) P(i, j) P(j, c) / (P(i) P(j)). A pair inside one tree closes a cycle:
    it is fitted, and other estimates stay. Pairs of different trees are independent.

    Args:
        domain: the domain.
        total: number of rows, positive.
        singles: marginal of each attribute, summing to the total, none negative.

    Privacy: post-processing.
    """

    def __init__(self, domain: Domain, total: float, singles: dict[str, Array]) -> None:
        self.domain = domain
        self.total = total
        self.singles = singles
        self.edges: list[Clique] = []
        self.fitted: dict[Clique, Array] = {}
        self._chained: dict[Clique, Array] = {}
        self._tree: dict[str, Clique] = {name: (name,) for name in domain.attributes}

    def pair(self, clique: Clique) -> Array:
        """The estimate of a pair in the domain's order, shape (n_i, n_j)."""
        found = self.fitted.get(clique, self._chained.get(clique))
        if found is None:
            found = np.multiply.outer(self.singles[clique[0]], self.singles[clique[1]]) / self.total
        return found

    def add(self, noisy: Measured) -> set[Clique]:
        """Fit one measured residual of a pair, and extend the tree that it joins; the pairs whose estimate changed."""
        pair = noisy.clique
        self.fitted[pair] = self.fit(noisy)
        one, other = (self._tree[name] for name in pair)
        if one is other:
            return {pair}
        self.edges.append(pair)
        self._chain(pair, one, other)
        joined = (*one, *other)
        self._tree.update(dict.fromkeys(joined, joined))
        return {self.domain.clique(both) for both in itertools.product(one, other)}

    def fit(self, noisy: Measured) -> Array:
        """One measured residual shrunk towards the present estimate of its pair, with the margins of its attributes."""
        prior = self.pair(noisy.clique)
        gap = noisy.strategy.estimate(noisy.values).reshape(prior.shape) - centre(prior)
        theta = interaction(gap, prior, noisy.variance)
        if theta <= 0:
            return prior
        table = tilted(prior + gap, prior, noisy.variance / theta, self.total)
        margins = [((name,), self.singles[name]) for name in noisy.clique]
        return proportional(table, noisy.clique, margins, SWEEPS)

    def _chain(self, pair: Clique, one: Clique, other: Clique) -> None:
        first, last = pair
        middle = _over(_over(self.fitted[pair], self.singles[first], 0), self.singles[last], 1)
        for a in one:
            to_last = self._between(a, first) @ middle
            for c in other:
                if (a, c) != pair:
                    table = to_last @ self._between(last, c)
                    ordered = self.domain.clique((a, c))
                    self._chained[ordered] = table if ordered == (a, c) else table.T

    def _between(self, one: str, other: str) -> Array:
        if one == other:
            return np.diag(self.singles[one])
        ordered = self.domain.clique((one, other))
        table = self.pair(ordered)
        return table if ordered == (one, other) else table.T


def _over(table: Array, margin: Array, axis: int) -> Array:
    """The table divided by a margin along one axis, 0 where the margin is."""
    inverse = np.divide(1.0, margin, out=np.zeros_like(margin), where=margin > 0)
    return table * (inverse[:, None] if axis == 0 else inverse)
