"""How many rows of each unit count: few have little noise, and all of them leave nothing of the table out."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from duckdb_dp.adaptive.neyman.coarse import EVEN, SMOOTH
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.turns import Turns
from duckdb_dp.linop import Array, Distance
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.reconstruct.nonneg import simplex

TOTAL, CLASSES = 0.03, 0.02
"""Of the budget, for the number of rows, and for how many there are of each class of turns."""

KNOWN, MORE = 0.05, 0.1
"""Noise in the number of rows, over that number, above which it is measured again; and what that takes of the budget at most."""

APART, SPREAD, COMPARED = 0.16, 0.3, 0.03
"""L1 distance that is supposed between the rows that count and the others, and how far it may be from that: of seven tables it was 0.04 to
0.3, and it is 1.5 where those with many rows are quite others. And the part of the budget by which they are compared."""

PAIRED, HEARD = 1.5, 0.5
"""Distance of pairs over that of single attributes; and the noise in it above which nothing is compared."""

CLEAR = 0.01
"""L1 distance by noise, over the rows, below which all rows count."""

UNLIKE, RATIOS = 0.3, 51
"""How far the number of rows may be, over itself, from that of units whose numbers of rows fall by one ratio; and ratios that are tried."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """The rows that count.

    Attributes:
        queryable: of these, against the same charge.
        number: how many of each unit they are.
        total: how many rows there are in all, noisy.
    """

    queryable: PrivateQueryable
    number: int
    total: float


def chosen(queryable: PrivateQueryable, turns: Turns) -> FirstRows:
    """The number of rows of each unit, one of those that classes end at, with the least sum of noise and of what is left out.

    Formula: c rows of each unit, which are a share s of all N, lose a (1 - s), and noise as ``_by_noise`` says with the standard deviation
    of c rows over s N rows. a is supposed to be ``APART`` first, and then what ``_apart`` says of the rows that would count.

    Args:
        queryable: of all rows, with their turns.
        turns: the classes.

    Privacy: spends ``TOTAL`` + ``CLASSES`` + ``MORE`` + ``COMPARED`` of the budget at most: the number of rows in a class is a count of
    as many rows of a unit as the class has turns.
    """
    budget, end = queryable.left, len(turns.last)
    whole = queryable.of_turns(turns, 0, end)
    (noisy,) = whole.measure_marginals([((), budget * TOTAL)])
    total = max(float(noisy.answers[0]), math.sqrt(noisy.variance), 1.0)
    domain, left = whole.domain, queryable.left
    if _by_noise(domain, left, turns.last[-1] / total) < CLEAR:
        return FirstRows(queryable=whole, number=turns.last[-1], total=total)
    classes = [
        queryable.of_turns(turns, place, place + 1).measure_marginals([((), budget * CLASSES / end)])[0]
        for place in range(end)
    ]
    total = _calm(turns, classes, noisy)
    if (lacking := noisy.variance / (KNOWN * total) ** 2 - 1) > 0:
        noisy = _again(whole, noisy, budget * min(TOTAL * lacking, MORE))
        total, left = _calm(turns, classes, noisy), queryable.left
    shares = _shares(turns, classes, noisy)
    by_noise = np.array(
        [
            _by_noise(domain, left, number / (share * total))
            for number, share in zip(turns.last, shares.tolist(), strict=True)
        ]
    )
    best = int(np.argmin(by_noise + APART * (1 - shares)))
    if best + 1 < end:
        some = queryable.of_turns(turns, 0, best + 1)
        apart = _apart(whole, some, total, float(shares[best]), budget * COMPARED)
        best = int(np.argmin(by_noise + apart * (1 - shares)))
    return FirstRows(queryable=queryable.of_turns(turns, 0, best + 1), number=turns.last[best], total=total)


def _again(whole: PrivateQueryable, noisy: LinearMeasurement, rho: float) -> LinearMeasurement:
    """The number of rows from what was measured of it and from one more measurement, each weighed by its noise.

    Privacy: spends rho.
    """
    (more,) = whole.measure_marginals([((), rho)])
    weight = more.variance / (more.variance + noisy.variance)
    return replace(
        noisy,
        answers=weight * noisy.answers + (1 - weight) * more.answers,
        variance=weight * noisy.variance,
    )


def _apart(whole: PrivateQueryable, some: PrivateQueryable, total: float, share: float, rho: float) -> float:
    """How far the pairs of some rows are from those of the others, in L1 over the rows: ``APART`` as far as noise hides it.

    Formula: of each attribute the distance D of the noisy shares of some rows, times the number of all, from all rows; D^2 less what noise
    and chance make of it, over N^2 (1 - s)^2, is the square of the distance from the other rows. The mean m over the attributes has
    noise of variance v, and a = (S^2 1.5 m + v A) / (S^2 + v), A being ``APART`` and S ``SPREAD``.

    Args:
        whole, some: all rows, and those that would count.
        total: N, noisy.
        share: s, of the rows that would count.
        rho: what may be spent.

    Privacy: spends rho, or nothing where noise would hide all of it.
    """
    names = [name for name, size in whole.domain.sizes.items() if size > 1]
    if not names:
        return APART
    each, reach = rho / (2 * len(names)), total * (1 - share)
    stddev = whole.rows / math.sqrt(2 * each)
    if stddev > HEARD * reach * math.sqrt(len(names)):
        return APART
    asked, beside = [], list[float]()
    for noisy in some.measure_marginals([((name,), each) for name in names]):
        shares = simplex(noisy.answers / max(float(noisy.answers.sum()), 1.0), 1.0)
        asked.append((noisy.clique, Distance(total * shares), each))
        by_noise = len(shares) * math.sqrt(noisy.variance) / share
        by_chance = float(np.sqrt(total * shares * (1 - share) / share).sum())
        beside.append(2 / math.pi * (by_noise**2 + by_chance**2))
    found = [
        math.sqrt(max(float(answer[0]) ** 2 - variance - less, 0.0)) / reach
        for (answer, variance), less in zip(whole.answer_all(asked), beside, strict=True)
    ]
    variance = (PAIRED * stddev / reach) ** 2 / len(names)
    return (SPREAD**2 * PAIRED * float(np.mean(found)) + variance * APART) / (SPREAD**2 + variance)


def _calm(turns: Turns, classes: Sequence[LinearMeasurement], total: LinearMeasurement) -> float:
    """The number of rows, nearer to what the classes say the more noise it has.

    Formula: where of each turn q times as many units have a row as of the one before, the classes and the total say how many there are;
    m is the mean of that over q, by how likely each makes all these numbers. Of the total T with variance s^2 it is
    (v T + s^2 m) / (v + s^2), with v = (``UNLIKE`` m)^2, as no table is quite so.

    Privacy: post-processing.
    """
    noise = np.sqrt([one.variance for one in (*classes, total)])
    found = np.array([float(one.answers[0]) for one in (*classes, total)]) / noise
    ends = np.array([0, *turns.last], dtype=np.float64)
    squares, rows = list[float](), list[float]()
    for q in np.linspace(0, 1, RATIOS).tolist():
        each = np.diff(ends if q == 1 else (1 - q**ends) / (1 - q))
        told = np.append(each, each.sum()) / noise
        units = max(float(told @ found / (told @ told)), 0.0)
        squares.append(float(((found - units * told) ** 2).sum()))
        rows.append(units * float(each.sum()))
    likely = np.exp((min(squares) - np.array(squares)) / 2)
    mean = float(likely @ np.array(rows) / likely.sum())
    unlike = (UNLIKE * mean) ** 2
    return max((unlike * float(total.answers[0]) + total.variance * mean) / (unlike + total.variance), 1.0)


def _shares(turns: Turns, classes: Sequence[LinearMeasurement], total: LinearMeasurement) -> Array:
    """The share of all rows up to each class, from noisy numbers of each and of all: of no turn there are fewer than of the next one.

    Formula: with u_j rows of each turn of class j, the least squares of all these numbers, each over its noise, among falling u that are
    not negative. u is a sum of steps d >= 0 from the last class on, so it is a regression without negative coefficients.

    Privacy: post-processing.
    """
    from scipy.optimize import nnls  # for import time

    widths = np.diff([0, *turns.last]).astype(np.float64)
    noise = np.sqrt([one.variance for one in (*classes, total)])
    found = np.array([float(one.answers[0]) for one in (*classes, total)]) / noise
    steps = np.triu(np.ones((len(widths), len(widths))))  # rows of each turn = steps @ d
    told = np.vstack([widths[:, None] * steps, widths @ steps]) / noise[:, None]
    kept = np.cumsum(steps @ nnls(told, found)[0] * widths)
    return np.asarray(np.maximum(kept / max(float(kept[-1]), 1e-9), 1e-6), dtype=np.float64)


def _by_noise(domain: Domain, rho: float, rows: float) -> float:
    """The mean L1 distance of pairs by noise, over the rows.

    Formula: a pair of m cells has n m, n = sqrt(2/pi) s / N; in g groups of either attribute, which hide 2 b / g, g = (b/n)^(1/3) is best,
    with 3 n^(1/3) b^(2/3) in all. It is the least of both, and of 1.

    Args:
        domain: the attributes.
        rho: what is spent.
        rows: k / N, rows of a unit that count over all that do.
    """
    names = [name for name, size in domain.sizes.items() if size > 1]
    asked: list[Clique] = [*itertools.combinations(names, 2)] or [(name,) for name in names]
    if not asked:
        return 0.0
    noise = math.sqrt(2 / math.pi * len(asked) / (2 * EVEN * rho)) * rows
    grouped = 3 * noise ** (1 / 3) * SMOOTH ** (2 / 3)
    return math.fsum(min(noise * domain.cells(pair), grouped, 1.0) for pair in asked) / len(asked)
