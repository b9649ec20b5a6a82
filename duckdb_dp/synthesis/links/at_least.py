"""Degrees where both sides are protected: how many rows have at least so many links, which one unit changes by its bound at most."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from duckdb_dp.counting.units import classes
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import UNIT, Array, Integers, Measurable, Total
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.synthesis.links.degrees import Degrees
from duckdb_dp.synthesis.links.linked_rows import SPREAD
from duckdb_dp.synthesis.links.negative_binomials import negative_binomials
from duckdb_dp.synthesis.links.per_unit import NoisyTable, PerUnit
from duckdb_dp.synthesis.links.sides import Side

ROWS = 0.2
"""Share, of what is spent on the degrees of a side, for how many rows it has."""


@final
@dataclass(frozen=True, slots=True)
class AtLeast:
    """How many rows have at least each of some degrees, from the numbers of rows of each degree. It is ``Measurable``.

    A unit of the other side has up to d links: without it up to d rows lose one link each, and of each row one answer falls by
    1. A row itself that goes lowers an answer for each of its up to d links. So the answers move by at most d in L1, and in L2:
    in units of d rows, by 1.

    Attributes:
        degrees: the degrees, all at least 1.
    """

    degrees: Integers

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the answers."""
        return self.degrees.shape

    @property
    def squared_sensitivity(self) -> float:
        """1 for each of a unit's d rows."""
        return 1.0

    def apply(self, counts: Integers) -> tuple[Array, Array]:
        """(the answers, a bound on their rounding errors)."""
        answers = self._all(counts).astype(np.float64)
        return answers, UNIT * answers

    def exact(self, counts: Integers, index: int) -> Fraction:
        """One answer, exactly."""
        return Fraction(int(self._all(counts)[index]))

    def _all(self, counts: Integers) -> Integers:
        return np.asarray(counts[::-1].cumsum()[::-1][self.degrees])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Cumulated:
    """The degrees of a side as measured.

    Attributes:
        rows: how many rows the private side has.
        least: rows with at least the first degree of each class.
    """

    rows: float
    least: NoisyTable


def measure_cumulated(queryable: PrivateQueryable, tag: str, rho: float) -> Cumulated:
    """How many rows a side has, and how many with at least so many links.

    Privacy: spends rho; a unit of either side changes the first by 1, and the others by at most queryable.rows together.
    """
    first = classes(queryable.domain.sizes[tag] - 1)
    total = PerUnit(Total(queryable.domain.sizes[tag]), 1, queryable.rows)
    steps: list[tuple[Clique, Measurable, float]] = [
        ((tag,), total, ROWS * rho),
        ((tag,), AtLeast(first), (1 - ROWS) * rho),
    ]
    (rows, _), (least, variance) = queryable.answer_all(steps)
    return Cumulated(rows=max(float(rows[0]), 1.0), least=NoisyTable(least, variance))


def model_cumulated(measured: Cumulated, side: Side, links: int) -> Degrees:
    """The distribution of degrees for synthetic rows: smoothed towards a clipped negative binomial, and falling.

    Args:
        measured: of the private side.
        side: the synthetic one, with a bound.
        links: how many there will be.

    Privacy: post-processing.
    """
    from scipy.optimize import isotonic_regression  # for import time

    most, number, least = int(side.max_degree or 1), len(side.rows), measured.least
    first = classes(most)
    prior = _nearest(measured, links / number, most)
    expected = prior[::-1].cumsum()[::-1]
    found = _towards(least, expected[first] * measured.rows) / measured.rows
    falling = np.clip(isotonic_regression(found, increasing=False).x, 0, 1)
    classed = falling - np.append(falling[1:], 0.0)
    held = np.searchsorted(first, np.arange(1, most + 1), side="right") - 1
    of_class = np.bincount(held, prior[1:])
    within = np.where(of_class[held] > 0, prior[1:] / np.maximum(of_class[held], 1e-300), 1 / np.bincount(held)[held])
    return Degrees(shares=np.append(1 - falling[0], classed[held] * within))


def _nearest(measured: Cumulated, mean: float, most: int) -> Array:
    """The clipped negative binomial of that mean that all measured numbers together say.

    It is the one of the least

        |measured - expected|^2 / (2 v) + (linked - random)^2 / (2 SPREAD^2),

    where linked is its share of rows with a link, and random that of links drawn at random. The first number alone, of all rows with a
    link, has noise of some percent of the rows where the others together leave less.
    """
    options = negative_binomials(mean, most)
    least = options[:, ::-1].cumsum(axis=1)[:, ::-1][:, classes(most)] * measured.rows
    far = ((least - measured.least.table) ** 2).sum(axis=1) / (2 * max(measured.least.variance, 1e-300))
    far += (np.exp(-mean) - options[:, 0]) ** 2 / (2 * SPREAD**2)
    return np.asarray(options[np.argmin(far)])


def _towards(least: NoisyTable, expected: Array) -> Array:
    """What was measured, smoothed towards what is expected.

    Formula: expected + (I + t L'L)^-1 (measured - expected), where L takes the differences of neighbours, and of the last one and 0. Of the
    t that are tried it is the one of the least expected squared error, |distance to what was measured|^2 + 2 v tr((I + t L'L)^-1)
    (Stein 1981). Numbers of rows are differences of neighbours, of which noise makes far more than of what lies between them and a smooth
    distribution: one factor for all would keep all of it where that distribution is another one.

    Privacy: post-processing.
    """
    gap, size = least.table - expected, len(expected)
    steps = np.diff(np.eye(size + 1)[:, :size], axis=0)
    best, risk = expected, math.inf
    for strength in (0.0, *np.geomspace(0.01, 1e6, 17)):
        kept = np.linalg.inv(np.eye(size) + strength * steps.T @ steps)
        error = float(((gap - kept @ gap) ** 2).sum() + 2 * least.variance * np.trace(kept))
        if error < risk:
            best, risk = expected + kept @ gap, error
    return best
