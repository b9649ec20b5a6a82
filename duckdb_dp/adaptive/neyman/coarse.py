"""Pairs of many values are measured in groups of neighbouring ones where noise would drown each cell: which, by noisy values alone.

Age by year and income by amount have thousands of cells, and what they have in common is smooth. Groups are made before a pair is scored,
by the noise that it will have; where scores show that groups hide something, smaller ones are measured next.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from duckdb_dp.adaptive.neyman.allocation import effective
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

FINER, SHOWN = 1.3, 0.1
"""How many times as many cells new groups have, at least; and the part of the distance by chance for which single values are measured
after groups, which takes L1 errors at large budgets back to where they are without groups."""

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
    even = EVEN * left / len(best.pairs)
    free = [pair for pair in best.pairs if pair not in known.cliques]
    return known.regrouped({pair: grouped(best, pair, even, _usual(pair, alike), alike) for pair in free})


def refined(
    known: ResidualEstimates, best: Estimate, scores: Scores, whole: Scores, left: float, alike: Mapping[str, Likeness]
) -> tuple[ResidualEstimates, Scores]:
    """(with smaller groups for pairs whose groups hide more than they save in noise, the distances of what is then measured).

    Formula: with s the distance of the whole table, t that of its groups, and c that of Poisson counts from their means, which is
    there in any case, e = sqrt(s^2 - t^2 - c^2) is what groups hide, and e / (1/g + 1/h) says b, beside what is usual as far as noise
    allows. Once groups have been measured, values are measured alone where that shows c too.

    Args:
        known, best, left, alike: as in ``first``.
        scores: of pairs as they are measured now.
        whole: of the tables of those that have groups.

    Privacy: post-processing.
    """
    even, total = EVEN * left / len(best.pairs), best.total
    plain = {name: Likeness(ordered=one.ordered) for name, one in alike.items()}
    other, noisy = dict[Clique, Groups | None](), dict(scores.noisy)
    for pair, held in known.groups.items():
        square = (
            whole.noisy[pair] ** 2 - whole.stddev**2 - scores.distances[pair] ** 2 - by_chance(best.pairs[pair]) ** 2
        )
        hidden = math.sqrt(max(square, 0.0))
        reach = total * sum(1 / m for m, n in zip(held.shape, held.sizes, strict=True) if m < n)
        sure, usual = (reach / whole.stddev) ** 2, _usual(pair, plain)
        bias = (hidden / reach * sure + 1 / usual) / (sure + 1 / usual**2)
        new = grouped(best, pair, even + known.precisions.get(pair, 0.0), bias, plain)
        shape = known.domain.shape(pair) if new is None else new.shape
        if pair in known.values and _shown(best.pairs[pair], even) > SHOWN:
            other[pair], noisy[pair] = None, math.hypot(max(noisy[pair], 0.0), hidden, by_chance(best.pairs[pair]))
        elif not held.of_neighbours:
            continue
        elif math.prod(shape) > FINER * math.prod(held.shape):
            other[pair], noisy[pair] = new, math.hypot(max(noisy[pair], 0.0), hidden)
        elif pair not in known.values:
            other[pair] = new
    return known.regrouped(other), scores.of(noisy)


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
    tables = [best.singles[name,] for name in pair]
    noise = math.sqrt(2 / math.pi / precision) / best.total
    most = [effective(table) + 1 for table in tables]
    few = [len(table) <= FEWEST for table in tables]
    ways = [
        way
        for way in itertools.product((True, False), repeat=2)
        if all(one or not f for one, f in zip(way, few, strict=True))
    ]
    numbers = {alone: _numbers(most, alone, noise, bias) for alone in ways}
    chosen = min(ways, key=lambda alone: _loss(numbers[alone], alone, noise, bias))
    of = [
        np.arange(len(table)) if alone else group_of(table, number, alike[name])
        for name, table, number, alone in zip(pair, tables, numbers[chosen], chosen, strict=True)
    ]
    found = groups(pair, of, best, alike)
    return None if found.shape == found.sizes else found


def groups(pair: Clique, of: Sequence[Integers], best: Estimate, alike: Mapping[str, Likeness]) -> Groups:
    """Those with the group of each value, and how near values are to groups where they are in an order."""
    return Groups(
        tuple(of), [between(best.singles[name,], one, alike[name].ordered) for name, one in zip(pair, of, strict=True)]
    )


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


def _shown(table: Array, precision: float) -> float:
    """How much of the L1 distance by chance, about sum sqrt(m), a measurement of single values takes away: to sum sqrt(m / (1 + D m))."""
    return 1 - float(np.sqrt(table / (1 + precision * table)).sum() / np.sqrt(table).sum())
