"""A mixture of a few product distributions, fitted to noisy residuals of singles and pairs: a model of low rank for all pairs.

P(x) = sum_k w_k prod_i P_ik(x_i). With P_i the (n_i, K) matrix of attribute i, the pair (a, b) is N P_a diag(w) P_b'. Where no
small graph fits the data, what many pairs have in common still fits a few components.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import ResidualEstimates

Floats = NDArray[np.float32]

RATE, MEMORY = 0.4, (0.9, 0.99)
"""Adam's step in logits, and how fast it forgets gradients and their squares."""

AGAIN = 0.5
"""Of the steps, and of their size, where a fit starts from an earlier one, of residuals with more noise."""

SPREAD = 1.0
"""Standard deviation of the logits around those of the singles: the prior, and where the fit starts."""

LOWEST = 1e-20
"""Share below which a fit does not start."""

LEAST = 0.1
"""Rows that a value is given at least where a fit starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A fitted mixture.

    Attributes:
        components: of each attribute the distribution in each component, shape (n_i, K).
        weights: of the components, shape (K,).
        total: number of rows.

    Privacy: post-processing.
    """

    components: Mapping[str, Floats]
    weights: Floats
    total: float

    def pairs(self, wanted: Iterable[Clique]) -> dict[Clique, Array]:
        """The marginals of some pairs, by one product of matrices."""
        span, start = {}, 0
        for name, shares in self.components.items():
            span[name] = slice(start, start := start + len(shares))
        every = np.concatenate(list(self.components.values()))
        found = ((every * (self.weights * np.float32(self.total))) @ every.T).astype(np.float64)
        return {(a, b): found[span[a], span[b]] for a, b in wanted}

    def marginal(self, clique: Clique) -> Array:
        """The marginal of a clique, of its shape."""
        table = self.weights[None, :] * np.float32(self.total)
        for name in clique[:-1]:
            table = (table[:, None, :] * self.components[name][None]).reshape(-1, len(self.weights))
        sizes = [len(self.components[name]) for name in clique]
        return (table @ self.components[clique[-1]].T).reshape(sizes).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a mixture is fitted to, as large matrices with a block for each attribute or pair.

    Attributes:
        sizes: of the attributes.
        pairs: centred residuals over N, 0 where not measured, shape (D, D) for D = sum of the sizes.
        singles: of single attributes, shape (D,).
        pair_weights: N^2 precision of the noise of each pair of attributes, 0 where not measured, shape (d, d).
        single_weights: of each attribute, shape (d,).
        base: logs of the distributions of single attributes, shape (D,).
    """

    sizes: tuple[int, ...]
    pairs: Floats
    singles: Floats
    pair_weights: Floats
    single_weights: Floats
    base: Floats

    @classmethod
    def of(
        cls, names: Sequence[str], components: ResidualEstimates, singles: Mapping[Clique, Array], total: float
    ) -> "Target":
        """The noisy residuals of some attributes and of their pairs, in shares of the total."""
        sizes = tuple(components.domain.sizes[name] for name in names)
        starts = dict(zip(names, np.cumsum((0, *sizes)), strict=False))
        place, width = {name: i for i, name in enumerate(names)}, sum(sizes)
        pairs, ones = np.zeros((width, width), np.float32), np.zeros(width, np.float32)
        weights, own = np.zeros((len(names), len(names)), np.float32), np.zeros(len(names), np.float32)
        for clique, values in components.values.items():
            if not set(clique) <= place.keys() or not 1 <= len(clique) <= 2:
                continue
            spans = [slice(starts[name], starts[name] + components.domain.sizes[name]) for name in clique]
            weight = components.precisions[clique] * total**2
            if len(clique) == 1:
                ones[spans[0]], own[place[clique[0]]] = values / total, weight
            else:
                (a, b), (i, j) = spans, (place[name] for name in clique)
                pairs[a, b] = values / total
                pairs[b, a] = pairs[a, b].T
                weights[i, j] = weights[j, i] = weight
        base = np.concatenate([np.log(np.maximum(singles[name,], LEAST) / total) for name in names])
        return cls(
            sizes=sizes,
            pairs=pairs,
            singles=ones,
            pair_weights=weights,
            single_weights=own,
            base=base.astype(np.float32),
        )

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each attribute's values begin, shape (d,)."""
        return np.cumsum((0, *self.sizes[:-1]))

    @cached_property
    def cell_weights(self) -> Floats:
        """The weight of each value with each other one, shape (D, D)."""
        return self.spread(np.repeat(self.pair_weights, self.sizes, axis=1))

    @cached_property
    def weighted(self) -> Floats:
        """The residuals times their weights, shape (D, D)."""
        return self.pairs * self.cell_weights

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The values of each attribute, -1 beyond them, shape (d, most values)."""
        inside = np.arange(max(self.sizes))
        return np.where(inside < np.array(self.sizes)[:, None], self.starts[:, None] + inside, -1)

    def apart(self, table: Floats) -> Floats:
        """The values of each attribute as a matrix of its own, with zeros beyond them, shape (d, most values, ...)."""
        if len(set(self.sizes)) == 1:
            return table.reshape(len(self.sizes), -1, *table.shape[1:])
        return np.concatenate([table, np.zeros_like(table[:1])])[self.places]

    def spread(self, values: Floats) -> Floats:
        """A row for each attribute as one for each of its values."""
        return np.repeat(values, self.sizes, axis=0)

    def sums(self, table: Floats) -> Floats:
        """Sums over the values of each attribute, shape (d, ...)."""
        return np.add.reduceat(table, self.starts, axis=0)

    def centred(self, table: Floats) -> Floats:
        """The mean over the values of each attribute is subtracted."""
        counts = np.array(self.sizes, np.float32).reshape(-1, *[1] * (table.ndim - 1))
        return table - self.spread(self.sums(table) / counts)

    def distributions(self, logits: Floats) -> Floats:
        """A softmax for each attribute and component."""
        shares = np.exp(logits - self.spread(np.maximum.reduceat(logits, self.starts, axis=0)))
        return np.asarray(shares / self.spread(self.sums(shares)))


def fit(
    target: Target,
    names: Sequence[str],
    total: float,
    *,
    components: int,
    steps: int,
    seed: int,
    before: Mixture | None = None,
) -> Mixture:
    """The most likely mixture, nearly: the mode of its logits under Gaussian noise and a Gaussian prior.

    Minimises sum over measured pairs of h |C(P_a) diag(w) C(P_b)' - c|^2 / 2, as much for singles, and
    |logits - log singles|^2 / (2 SPREAD^2); by Adam from a random start, or from an earlier mixture.

    Args:
        target: the residuals.
        names: of the attributes, in the target's order.
        total: number of rows.
        components: K.
        steps: of Adam, from a random start.
        seed: of the start; public.
        before: where to start instead, of the same attributes and as many components.

    Privacy: post-processing.
    """
    if before is None:
        rng, most = np.random.default_rng(seed), RATE
        moved = (SPREAD * rng.normal(size=(len(target.base), components))).astype(np.float32)
        mixing = np.zeros(components, np.float32)
    else:  # logits are known up to what the softmax takes away: the nearest to those of the singles
        steps, most = math.ceil(AGAIN * steps), AGAIN * RATE
        shares = np.concatenate([before.components[name] for name in names])
        moved = target.centred(np.log(np.maximum(shares, LOWEST)) - target.base[:, None])
        mixing = np.log(np.maximum(before.weights, LOWEST))
    logits = target.base[:, None] + moved
    optimiser = [_Adam(logits), _Adam(mixing)]
    for step in range(steps):
        rate = most * min(1.0, 2 * (steps - step) / steps)
        for adam, gradient in zip(optimiser, _gradients(target, logits, mixing), strict=True):
            adam.step(gradient, rate)
    shares = target.distributions(logits)
    found = dict(zip(names, np.split(shares, target.starts[1:]), strict=True))
    return Mixture(components=found, weights=_softmax(mixing), total=total)


def _gradients(target: Target, logits: Floats, mixing: Floats) -> tuple[Floats, Floats]:
    """Of the loss by the logits, (D, K), and by the logits of the weights, (K,)."""
    shares, weights = target.distributions(logits), _softmax(mixing)
    middle = target.centred(shares)
    mixed = _residuals(target, middle, weights)
    alone = target.spread(target.single_weights) * (target.centred(shares @ weights) - target.singles)
    by_shares = target.centred((mixed + alone[:, None]) * weights)
    by_logits = shares * (by_shares - target.spread(target.sums(shares * by_shares)))
    by_logits += (logits - target.base[:, None]) / np.float32(SPREAD**2)
    by_weights = (middle * mixed).sum(axis=0) / 2 + alone @ middle
    return by_logits, weights * (by_weights - weights @ by_weights)


def _residuals(target: Target, middle: Floats, weights: Floats) -> Floats:
    """sum_b h_ab (C(P_a) diag(w) C(P_b)' - c_ab) C(P_b) of every attribute a, shape (D, K).

    Where attributes have many values, as C(P_a) diag(w) sum_b h_ab C(P_b)' C(P_b) - sum_b h_ab c_ab C(P_b), which makes no matrix (D, D);
    else some rows at a time.
    """
    if len(middle) ** 2 >= MANY * len(target.sizes) ** 2 * middle.shape[1]:
        own = target.apart(middle)
        squares = np.matmul(own.transpose(0, 2, 1), own)
        others = (target.pair_weights @ squares.reshape(len(own), -1)).reshape(squares.shape)
        others *= weights[:, None]
        mixed = np.matmul(own, others).reshape(-1, middle.shape[1])
        return np.asarray(mixed[target.places.reshape(-1) >= 0] - target.weighted @ middle)
    found, right = np.empty_like(middle), middle.T
    mixed = middle * weights
    for first in range(0, len(middle), ROWS):
        span = slice(first, first + ROWS)
        gap = mixed[span] @ right
        gap -= target.pairs[span]
        gap *= target.cell_weights[span]
        found[span] = gap @ middle
    return found


MANY = 2
"""D^2 / (d^2 K) for d attributes of D values, from which on no matrix (D, D) is made: of 48 attributes of 20 values a gradient takes 0.6
of the time then, and of 8 values as long."""

ROWS = 256
"""Rows of the large matrices that are worked on together: they stay in a core's cache."""


def _softmax(values: Floats) -> Floats:
    shares = np.exp(values - values.max())
    return np.asarray(shares / shares.sum())


class _Adam:
    """Adam on one array, in place.

    Source: Kingma & Ba 2015.
    """

    def __init__(self, values: Floats) -> None:
        self._values, self._number = values, 0
        self._mean, self._square = np.zeros_like(values), np.zeros_like(values)

    def step(self, gradient: Floats, rate: float) -> None:
        self._number += 1
        slow, slower = MEMORY
        self._mean += (1 - slow) * (gradient - self._mean)
        self._square += (1 - slower) * (gradient**2 - self._square)
        mean = self._mean / (1 - slow**self._number)
        square = self._square / (1 - slower**self._number)
        self._values -= rate * mean / (np.sqrt(square) + 1e-8)
