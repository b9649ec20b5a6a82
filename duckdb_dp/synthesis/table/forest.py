"""Estimates of all pairs of attributes: measured pairs are fitted, the others follow along a forest of measured pairs."""

import itertools
from typing import final

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array, centre
from duckdb_dp.reconstruct.fitted import interaction, proportional, tilted
from duckdb_dp.reconstruct.measurement import LinearMeasurement

SWEEPS = 10

CELLS = 2**20
"""Pairs with more cells are estimated only, never measured."""

ALL_CELLS = 2**26
"""Cells of all candidates together; where there are more, the smallest pairs are candidates."""


def candidates(domain: Domain) -> tuple[Clique, ...]:
    """The pairs that may be measured: the smallest ones if not all can be counted. A function of the domain alone."""
    pairs = [pair for pair in itertools.combinations(domain.attributes, 2) if min(domain.shape(pair)) > 1]
    chosen: set[Clique] = set()
    room = ALL_CELLS
    for pair in sorted(pairs, key=domain.cells):
        room -= domain.cells(pair)
        if room < 0 or domain.cells(pair) > CELLS:
            break
        chosen.add(pair)
    return tuple(pair for pair in pairs if pair in chosen)


@final
class Forest:
    """A Markov forest of measured pairs, grown one pair at a time.

    Attributes are the vertices, and at first each is a tree of its own. A measured pair (i, j) that joins two trees becomes an
    edge. Every pair (a, c) across the two trees is then estimated by the chain of conditional distributions,
    P(a, c) = sum over i, j of P(a, i) P(i, j) P(j, c) / (P(i) P(j)). A measured pair inside one tree is fitted, but does
    not become an edge. Attributes of different trees are taken as independent. So are attributes whose chain would contain a
    pair that is too large to be a candidate, so that no table larger than a candidate is held in memory.

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
        self._small = frozenset(candidates(domain))
        self._tree: dict[str, Clique] = {name: (name,) for name in domain.attributes}

    def pair(self, clique: Clique) -> Array:
        """The estimate of a pair in the domain's order, shape (n_i, n_j)."""
        estimate = self.fitted.get(clique, self._chained.get(clique))
        if estimate is None:
            estimate = np.multiply.outer(self.singles[clique[0]], self.singles[clique[1]]) / self.total
        return estimate

    def add(self, noisy: LinearMeasurement) -> set[Clique]:
        """Fit one measured residual of a pair, and extend the tree that it joins; the pairs whose estimate changed."""
        pair = noisy.clique
        self.fitted[pair] = self.fit(noisy)
        one, other = (self._tree[name] for name in pair)
        if one is other:
            return {pair}
        self.edges.append(pair)
        joined = (*one, *other)
        self._chain(pair, one, other)
        self._tree.update(dict.fromkeys(joined, joined))
        return {self.domain.clique(both) for both in itertools.product(one, other)}

    def fit(self, noisy: LinearMeasurement) -> Array:
        """One measured residual shrunk towards the present estimate of its pair, with the margins of its attributes."""
        prior = self.pair(noisy.clique)
        gap = noisy.strategy.estimate(noisy.answers).reshape(prior.shape) - centre(prior)
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
            if not {*self._steps(a, first)} <= self._small:
                continue
            # From the left as far as that fits; else from the right, which then does: (a, c) and the middle are small.
            from_left = self._through(a, first, middle) if self.domain.cells((a, last)) <= CELLS else None
            for c in other:
                ordered = self.domain.clique((a, c))
                if (a, c) == pair or not {ordered, *self._steps(last, c)} <= self._small:
                    continue
                if from_left is not None:
                    table = self._through(c, last, from_left.T).T
                else:
                    table = self._through(a, first, self._through(c, last, middle.T).T)
                self._chained[ordered] = table if ordered == (a, c) else table.T

    def _steps(self, one: str, other: str) -> tuple[Clique, ...]:
        return () if one == other else (self.domain.clique((one, other)),)

    def _through(self, one: str, other: str, table: Array) -> Array:
        """The pair (one, other) times a table of ``other``; of one attribute its margin on the diagonal."""
        if one == other:
            return self.singles[one][:, None] * table
        ordered = self.domain.clique((one, other))
        product: Array = (self.pair(ordered) if ordered == (one, other) else self.pair(ordered).T) @ table
        return product


def _over(table: Array, margin: Array, axis: int) -> Array:
    """The table divided by a margin along one axis, 0 where the margin is."""
    inverse = np.divide(1.0, margin, out=np.zeros_like(margin), where=margin > 0)
    return table * (inverse[:, None] if axis == 0 else inverse)
