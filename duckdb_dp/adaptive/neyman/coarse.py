"""Pairs of many values are measured in groups of neighbouring ones where noise would drown each cell: which, by noisy values alone.

Age by year and income by amount have thousands of cells, and what they have in common is smooth. Groups are made before a pair is scored,
by the noise that it will have; where scores show that groups hide something, smaller ones are measured next.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from duckdb_dp.adaptive.neyman.allocation import effective, effective_all, prior_precision, uneven
from duckdb_dp.adaptive.neyman.scores import Scores
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array, Integers
from duckdb_dp.reconstruct.estimate import Estimate
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.groups import Groups
from duckdb_dp.reconstruct.likeness import Likeness, between, group_of

FEWEST, LEAST = 8, 5
"""Values of an attribute up to which each stays alone; and groups of another one, at least."""

SMOOTH, UNORDERED = 0.5, 3.0
"""b: g groups of an attribute are supposed to hide an L1 distance of b / g, over the rows; and where the pair has one without an order."""

EVEN = 2.0
"""How many times an even share of the budget groups are made for: pairs that depend on one another get more."""

FINER, CLEARLY = 1.3, 0.95
"""How many times as many cells new groups have, at least; and how much of what groups would leave single values may leave."""

NARROW = 0.1
"""2 w of a band below which it counts as one as wide."""

LOUDEST = 0.1
"""Noise in a score, over the number of rows, above which whole tables are not compared: they would say nothing, for half of the budget."""

STEPS = 10
"""Of the fixed point of both numbers of groups."""


def seen(known: ResidualEstimates, best: Estimate) -> dict[Clique, Array]:
    """The estimates of pairs as these are measured: of some the sums over groups."""
    return {pair: known.measured_as(pair, table) for pair, table in best.pairs.items()}


def first(known: ResidualEstimates, best: Estimate, left: float, alike: Mapping[str, Likeness]) -> ResidualEstimates:
    """With groups for pairs of which nothing has been measured.

    Args:
        known: what has been measured.
        best: the estimates.
        left: 2 rho / k^2 of what is left, for units of k rows.
        alike: which values of each attribute are.

    Privacy: post-processing.
    """
    even, measured = EVEN * left / len(best.pairs), known.cliques
    free = [pair for pair in best.pairs if pair not in measured]
    values = _Values(best, alike)
    return known.regrouped({pair: values.groups(pair, values.of(pair, even, _usual(pair, alike))) for pair in free})


def refined(
    known: ResidualEstimates, best: Estimate, scores: Scores, whole: Scores, left: float, alike: Mapping[str, Likeness]
) -> tuple[ResidualEstimates, Scores]:
    """(with smaller groups for pairs whose groups hide more than they save in noise, or none, the distances of what is then measured).

    Formula: with s the distance of the whole table, t that of its groups, and c that of Poisson counts from their means, which is
    there in any case, e = sqrt(s^2 - t^2 - c^2) is what groups hide, and e / (1/g + 1/h) says b, beside what is usual as far as noise
    allows. New groups hide as much less as 1/g + 1/h is, and where there is no order as the root of how many cells there are no more.
    Groups leave that and of t what noise leaves (``_left``), single values of s what their noise leaves. Values are measured alone where
    that is clearly less; once groups have been measured, c is counted with what these leave.

    Args:
        known, best, left, alike: as in ``first``.
        scores: of pairs as they are measured now.
        whole: of the tables of those that have groups.

    Privacy: post-processing.
    """
    even, total = EVEN * left / len(best.pairs), best.total
    other, noisy = dict[Clique, Groups | None](), dict(scores.noisy)
    # Ways that public facts say are chosen before: they stay, or values are measured alone.
    plain = {name: Likeness(ordered=one.ordered) for name, one in alike.items()}
    values, spread = _Values(best, plain), effective_all({pair: best.pairs[pair] for pair in known.groups})
    for pair, held in known.groups.items():
        near, usual, reach = scores.distances[pair], _usual(pair, plain), total * _reach(held.shape, held.sizes)
        unseen = max(whole.noisy[pair] ** 2 - whole.stddev**2 - near**2, 0.0)
        hidden = math.sqrt(max(unseen - by_chance(best.pairs[pair]) ** 2, 0.0))
        sure = (reach / whole.stddev) ** 2
        bias = max((hidden / reach * sure + 1 / usual) / (sure + 1 / usual**2), _least(near / total, usual))
        of = values.of(pair, even + known.precisions.get(pair, 0.0), bias)
        shape = tuple(int(one.max()) + 1 for one in of)
        finer = held.of_neighbours and math.prod(shape) > FINER * math.prod(held.shape)
        new = values.groups(pair, of) if finer or (held.of_neighbours and pair not in known.values) else held
        still = hidden * _still(shape, held, usual) if finer else hidden
        seen = math.hypot(near, math.sqrt(hidden**2 - still**2))
        rest = still if pair not in known.values else math.sqrt(max(unseen - hidden**2 + still**2, 0.0))
        alone = _left(whole.distances[pair], spread[pair], even, total)
        if new is not None and not held.of_neighbours and pair not in known.values:
            continue  # what alike values share is known from their groups first, in any case
        if new is None or alone < CLEARLY * math.hypot(
            _left(seen, effective(new.sums(best.pairs[pair])), even, total), rest
        ):
            other[pair], noisy[pair] = None, whole.noisy[pair]
        elif new is not held:
            other[pair] = new
            noisy[pair] = math.hypot(max(noisy[pair], 0.0), hidden) if finer else noisy[pair]
    return known.regrouped(other), scores.of(noisy)


def _reach(shape: Sequence[int], sizes: Sequence[int]) -> float:
    """1/g + 1/h, of attributes whose values are in groups."""
    return sum(1 / m for m, n in zip(shape, sizes, strict=True) if m < n)


def _still(shape: Sequence[int], groups: Groups, usual: float) -> float:
    """The part of what groups hide that others of this shape hide, which have more cells."""
    if usual == SMOOTH:
        return min(_reach(shape, groups.sizes) / _reach(groups.shape, groups.sizes), 1.0)
    cells = math.prod(groups.sizes)
    return math.sqrt((cells - math.prod(shape)) / (cells - math.prod(groups.shape)))


def _least(share: float, usual: float) -> float:
    """The least b of a pair at this distance, over the rows, from the estimate: as usual where there is no order.

    Two numbers of which one leaves the other a band of a part w of its values are 2 (1 - w) from independent ones, and groups that are
    wider than the band hide it: so b goes with (1 - w) / w.
    """
    return usual if usual > SMOOTH else SMOOTH * share / max(2 - share, NARROW)


def _left(distance: float, cells: float, precision: float, total: float) -> float:
    """The L1 distance that a measurement leaves of one, of an estimate whose mean square errors go with its counts.

    Formula: d / sqrt(1 + D d^2 pi / (2 n^2)) with n of the cells erring, as ``allocation.scored`` has it.
    """
    erring = uneven(cells, distance / total)
    return distance / math.sqrt(1 + precision / prior_precision(distance, erring, erring))


def by_chance(table: Array) -> float:
    """The expected L1 distance of Poisson counts from their means m: the sum of 2 m^(k + 1) exp(-m) / k!, k the whole part of m.

    Source: De Moivre; Diaconis & Zabell 1991.
    """
    from scipy.special import gammaln  # for import time

    m = table[table > 0]
    k = np.floor(m)
    return float(2 * np.exp((k + 1) * np.log(m) - m - gammaln(k + 1)).sum())


def grouped(
    best: Estimate, pair: Clique, precision: float, bias: float, alike: Mapping[str, Likeness]
) -> Groups | None:
    """The groups of neighbouring values with the least sum of noise and of what they hide; None where each value stays alone.

    Formula: g and h groups hide b / g + b / h, nothing where values stay alone, and noise of standard deviation s in each cell is
    sqrt(2/pi) s g h / N, both in L1 over the rows. So g = sqrt(b N / (sqrt(2/pi) s h)), and h alike. A table of n values counts as one of
    (sum sqrt p)^2 even ones.

    Args:
        best: noisy counts of the attributes.
        pair: of these.
        precision: 1 / s^2.
        bias: b.
        alike: as in ``first``.

    Privacy: post-processing.
    """
    values = _Values(best, alike)
    return values.groups(pair, values.of(pair, precision, bias))


def groups(pair: Clique, of: Sequence[Integers], best: Estimate, alike: Mapping[str, Likeness]) -> Groups:
    """Those with the group of each value, and how near values are to groups where they are in an order."""
    near = [between(best.singles[name,], one, alike[name].ordered) for name, one in zip(pair, of, strict=True)]
    return Groups(tuple(of), near)


def beside(table: Array, others: float, precision: float, total: float, ordered: int) -> Integers:
    """The groups of neighbouring values of an attribute that cost least beside so many of the other one, as in ``grouped``.

    Args:
        table: noisy counts of the attribute.
        others: groups of the other one, in effect.
        precision: 1 / s^2.
        total: rows.
        ordered: how many of the first values are in an order.

    Privacy: post-processing.
    """
    noise, most = math.sqrt(2 / math.pi / precision) / total * others, effective(table) + 1
    bias = SMOOTH if ordered else UNORDERED
    number = min(max(math.sqrt(bias / noise), min(LEAST, most)), most)
    if len(table) <= FEWEST or noise * most <= noise * number + bias / number:
        return np.arange(len(table))
    return group_of(table, number)


@final
class _Values:
    """The values of attributes in groups, which many pairs have in common.

    Args:
        best: noisy counts of the attributes.
        alike: as in ``first``.
    """

    def __init__(self, best: Estimate, alike: Mapping[str, Likeness]) -> None:
        self._best, self._alike = best, alike
        self._most = {name: effective(table) + 1 for (name,), table in best.singles.items()}
        self._of: dict[tuple[str, float], Integers] = {}
        self._nearness: dict[tuple[str, bytes], Array] = {}

    def of(self, pair: Clique, precision: float, bias: float) -> list[Integers]:
        """The group of each value of both attributes; arguments as of ``grouped``."""
        tables = [self._best.singles[name,] for name in pair]
        noise = math.sqrt(2 / math.pi / precision) / self._best.total
        most = [self._most[name] for name in pair]
        few = [len(table) <= FEWEST for table in tables]
        ways = [
            way
            for way in itertools.product((True, False), repeat=2)
            if all(one or not f for one, f in zip(way, few, strict=True))
        ]
        numbers = {alone: _numbers(most, alone, noise, bias) for alone in ways}
        chosen = min(ways, key=lambda alone: _loss(numbers[alone], alone, noise, bias))
        return [
            np.arange(len(table)) if alone else self._group_of(name, number)
            for name, table, number, alone in zip(pair, tables, numbers[chosen], chosen, strict=True)
        ]

    def groups(self, pair: Clique, of: Sequence[Integers]) -> Groups | None:
        """These groups; None where each value is alone."""
        if all(int(one.max()) + 1 == len(one) for one in of):
            return None
        return Groups(tuple(of), [self._near(name, one) for name, one in zip(pair, of, strict=True)])

    def _group_of(self, name: str, number: float) -> Integers:
        if (name, number) not in self._of:
            self._of[name, number] = group_of(self._best.singles[name,], number, self._alike[name])
        return self._of[name, number]

    def _near(self, name: str, of: Integers) -> Array:
        key = name, of.tobytes()
        if key not in self._nearness:
            self._nearness[key] = between(self._best.singles[name,], of, self._alike[name].ordered)
        return self._nearness[key]


def _numbers(most: Sequence[float], alone: Sequence[bool], noise: float, bias: float) -> list[float]:
    """Groups of both attributes; of those whose values stay alone as many as there are in effect."""
    number = list(most)
    for _ in range(STEPS):
        for i in (0, 1):
            if not alone[i]:
                number[i] = min(max(math.sqrt(bias / (noise * number[1 - i])), min(LEAST, most[i])), most[i])
    return number


def _loss(numbers: Sequence[float], alone: Sequence[bool], noise: float, bias: float) -> float:
    return noise * math.prod(numbers) + sum(bias / n for n, one in zip(numbers, alone, strict=True) if not one)


def _usual(pair: Clique, alike: Mapping[str, Likeness]) -> float:
    return SMOOTH if all(alike[name].known for name in pair) else UNORDERED
