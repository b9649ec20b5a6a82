"""All pairs from noisy residuals, by a Markov tree or by mixtures of products: what fitted marginals and synthesis start from.

Each estimate shrinks what was measured towards a prior that has all pairs at once (``tree``, ``mixture``), and makes pairs and
singles agree.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.linop import Array
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.levels import LEAST, smoothed
from duckdb_dp.reconstruct.mixture import Mixture, Target, fit
from duckdb_dp.reconstruct.nonneg import Nonnegative, simplex
from duckdb_dp.reconstruct.tilting import consistent, product, products, scaled, shrunk
from duckdb_dp.reconstruct.tree import along, spanning_tree

WIDEST, WIDE = 2**10, 2**9
"""Most values of all attributes that a mixture has: a step takes time by the square of that, and 300 steps a second or two. Where there are
more than the second, one mixture is fitted, and not as many as there are seeds."""

FEW = 350
"""Most values of all attributes for which mixtures are fitted anew each time. Starting from those of the round before takes less time, but
on Titanic pairs were 1 % worse then, and on Adult 1 % worse at epsilon 1 and 2 % better at 4; on 48 attributes of 503 values the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Singles and pairs without negative counts that agree with one another.

    Attributes:
        total: the sum of each.
        singles: (name,) -> table.
        pairs: (name, name) -> table.

    Privacy: post-processing.
    """

    total: float
    singles: Mapping[Clique, Array]
    pairs: Mapping[Clique, Array]

    def marginal(self, clique: Clique) -> Array:
        """A pair or a single; a pair that is not held is the product of its singles."""
        held = self.pairs.get(clique) if len(clique) == 2 else self.singles[clique]
        return product(self.singles, clique, self.total) if held is None else held


def first(components: ResidualEstimates, names: Iterable[str], pairs: Collection[Clique], total: float) -> Estimate:
    """The products of noisy singles, which are projected on the simplex of the total, or shrunk: see ``_calm``.

    Privacy: post-processing.
    """
    singles: dict[Clique, Array] = {}
    for name in names:
        size = components.domain.sizes[name]
        noisy = components.values.get((name,), np.zeros(size))
        singles[name,] = simplex(noisy + total / size, total)
    if total > 0:
        singles = _calm(components, singles, total)
    return Estimate(total=total, singles=singles, pairs=products(singles, pairs, total))


def _calm(components: ResidualEstimates, singles: Mapping[Clique, Array], total: float) -> dict[Clique, Array]:
    """r p + (1 - r) q: p a single on the simplex, q the same residual shrunk towards even shares, r how much of it is no noise.

    r = 1 - (n - 3)/n v / mean(y^2) for n values y with noise variance v, at least 0; 1 for three values and fewer. Where noise drowns a
    single, p has a few high counts at random, which are farther from the truth than even shares; where it does not, p is the nearest.
    Of many values in an order smoothed counts take the place of even shares (``levels``), and y is what these leave.

    Source: r is the factor of James & Stein 1961, its positive part.

    Privacy: post-processing.
    """
    even = {one: np.full(len(table), total / len(table)) for one, table in singles.items()}
    for one in singles.keys() & components.values.keys():
        if (ordered := components.ordered.get(one[0], 0)) >= LEAST:
            noisy = components.values[one] + even[one]
            even[one] = smoothed(noisy, 1 / components.precisions[one], ordered, total)
    found = shrunk(components, even, total)
    for one in singles.keys() & components.values.keys():
        noise = max(1 - 3 / len(even[one]), 0.0) / components.precisions[one]
        square = float(np.mean((components.values[one] + total / len(even[one]) - even[one]) ** 2))
        signal = 1 - noise / square if square > noise else float(noise == 0)
        found[one] = signal * singles[one] + (1 - signal) * found[one]
    return found


def by_tree(components: ResidualEstimates, start: Estimate) -> Estimate:
    """Pairs shrunk towards a Markov tree.

    1. Each measured pair is shrunk towards the product of its singles, and pairs and singles are made consistent.
    2. The maximum spanning tree by mutual information predicts all pairs.
    3. Each measured pair that is no edge is shrunk towards that prediction instead, and all are made consistent again.

    Args:
        components: noisy residuals.
        start: products; see ``first``.

    Privacy: post-processing.
    """
    domain, total = components.domain, start.total
    alone, singles = consistent(shrunk(components, start.pairs, total), start.singles, total)
    edges = spanning_tree(alone)
    priors = along(domain, edges, alone, singles, start.pairs, total)
    pairs = shrunk(components, priors, total) | {edge: alone[edge] for edge in edges}
    pairs, singles = consistent(pairs, singles, total)
    return Estimate(total=total, singles=singles, pairs=pairs)


def by_counts(components: ResidualEstimates, start: Estimate) -> Estimate:
    """Pairs that are as near to their noisy counts as counts without negative ones can be, made consistent.

    Where noise is small beside the counts, or most cells are empty, nothing is gained by a prior.

    Privacy: post-processing.
    """
    found = Nonnegative.fit(components.whole(), list(start.pairs), memory=math.inf)
    pairs = {pair: found.marginal(pair) for pair in start.pairs}
    pairs, singles = consistent(pairs, start.singles, start.total)
    return Estimate(total=start.total, singles=singles, pairs=pairs)


def mixtures(
    seen: ResidualEstimates,
    start: Estimate,
    *,
    components: int,
    steps: int,
    seeds: Sequence[int],
    before: Sequence[Mixture] = (),
) -> list[Mixture]:
    """Mixtures of the attributes that fit, the smallest first, to all residuals that are seen.

    Args:
        seen: the residuals.
        start: what attributes there are, and their singles.
        components, steps, seeds: see ``mixture.fit``.
        before: what this gave for fewer residuals of the same domain, where that has been done.

    Privacy: post-processing.
    """
    names = [name for (name,) in start.singles]
    if not mixable(seen.domain, names):
        return []
    names = widest(seen.domain, names)
    target = Target.of(names, seen, start.singles, start.total)
    width = len(target.base)
    few, seeds = min(components, width), seeds if width <= WIDE else seeds[:1]
    starts = itertools.zip_longest(seeds, before if width > FEW else ())
    return [fit(target, names, start.total, components=few, steps=steps, seed=s, before=b) for s, b in starts]


def mixable(domain: Domain, names: Collection[str]) -> bool:
    """Whether there is a mixture of these attributes: at least two of them fit."""
    return len(widest(domain, names)) > 1


def quick(domain: Domain, names: Collection[str]) -> bool:
    """Whether mixtures, if there are any, take so little time that they are fitted anew each time."""
    return sum(domain.sizes[name] for name in widest(domain, names)) <= FEW


def widest(domain: Domain, names: Collection[str]) -> list[str]:
    """The attributes with the fewest values, at most ``WIDEST`` together, in their order; none where that leaves out most."""
    chosen, room = set(), WIDEST
    for name in sorted(names, key=domain.sizes.__getitem__):
        room -= domain.sizes[name]
        if room < 0:
            break
        chosen.add(name)
    return [name for name in names if name in chosen] if 2 * len(chosen) >= len(names) else []


def by_mixtures(components: ResidualEstimates, found: Sequence[Mixture], start: Estimate) -> Estimate:
    """Pairs shrunk towards the mean of mixtures; those of attributes that the mixtures lack stay as they start.

    Args:
        components: noisy residuals.
        found: the mixtures.
        start: what attributes and pairs there are.

    Privacy: post-processing.
    """
    if not found:
        return start
    total = start.total
    known = found[0].components.keys()
    inside = [pair for pair in start.pairs if set(pair) <= known]
    ones = {one: np.mean([model.marginal(one) for model in found], axis=0) for one in start.singles if one[0] in known}
    singles = {**start.singles, **shrunk(components, ones, total)}
    every = [model.pairs(inside) for model in found]
    raw = {pair: np.mean([pairs[pair] for pairs in every], axis=0) for pair in inside}
    pairs = {**start.pairs, **shrunk(components, scaled(raw, singles), total)}
    pairs, singles = consistent(pairs, singles, total)
    return Estimate(total=total, singles=singles, pairs=pairs)
