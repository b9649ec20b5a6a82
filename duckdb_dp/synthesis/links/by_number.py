"""What units with few links and with many go to: measured in tables of units by classes of their number, for the links of all together."""

from collections.abc import Sequence
from typing import final

import numpy as np

from duckdb_dp.counting.units import classes
from duckdb_dp.linop import Array, Integers
from duckdb_dp.synthesis.links.per_unit import NoisyTable

SEEN = 30.0
"""Units of a class, at least, over the standard deviation of noise in a cell of it: of fewer their values are not seen."""

STRENGTHS = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 16)])
"""Variances of the lift of one value where the number of links grows by a factor of e; 0: it is the same for all units."""

NOISE_ALONE, FIRST, PASSES = 0.5, 3.0, 10
"""Chance that a value has the same lift for all units before anything is known; for how many values that guess counts, and passes of its
estimate."""

LEAST, ROUNDS = 0.01, 50
"""Of what is expected in a cell, what is left of it at least, and rounds of scaling."""


def starts(units: Array, most: int, deviation: float) -> Integers:
    """The least number of links of each class, from 1: neighbouring ones together until each has units enough for the noise.

    Args:
        units: of each of ``classes``.
        most: links of a unit at most.
        deviation: of the noise in each cell of what will be measured by class.

    Privacy: post-processing.
    """
    found, held = [1], 0.0
    for first, number in zip(classes(most).tolist(), units.tolist(), strict=True):
        if held >= SEEN * deviation:
            found.append(first)
            held = 0.0
        held += number
    if len(found) > 1 and held < SEEN * deviation:
        found.pop()
    return np.array(found, dtype=np.int64)


def uneven(units: Array, middles: Array) -> float:
    """The mean of |k / mean k - 1| over the units' numbers of links k: the largest L1 distance of links from shares; 0 without any.

    Privacy: post-processing.
    """
    mean = float(units @ middles) / max(float(units.sum()), 1e-300)
    return float(units @ np.abs(middles / mean - 1)) / float(units.sum()) if mean > 0 else 0.0


def lifted(tables: Sequence[NoisyTable], expected: Sequence[Array], means: Array) -> list[Array]:
    """Units by class of their number of links and value, as expected and measured together; the sums of both are as expected.

    Formula: a measured cell is B (1 + z_vc - mean over values of z_vc) + a_v B + noise, with B what is expected and means as B weighs
    values. The lift z_vc of a value v in class c is a random walk in the logarithm of the mean number of links, with variance t_v for a
    factor of e. t_v is drawn from an unknown distribution over ``STRENGTHS``, estimated from all values of all tables; a_v is any number,
    as shares are known better from elsewhere. The result is B (1 + E[z_vc - mean]), scaled to the sums of B. So noise alone changes next to
    nothing, one value that differs much keeps its difference, and classes in which little is seen follow their neighbours.

    Args:
        tables: as measured, shape (classes, values of an attribute).
        expected: the same shapes.
        means: links of a unit, of each class.

    Source: Robbins 1956 and Efron and Morris 1976 for the strengths from all values together.

    Privacy: post-processing.
    """
    place = np.log(np.maximum(means, 1.0))
    walk = np.minimum.outer(place - place[0], place - place[0])
    cases = [_Lifts(noisy, table, walk) for noisy, table in zip(tables, expected, strict=True)]
    for _ in range(PASSES):
        chances = _chances(np.concatenate([case.logs() for case in cases], axis=1))
        for case in cases:
            case.take(chances[:, : len(case.base)])
            chances = chances[:, len(case.base) :]
    return [
        _scaled(table * np.maximum(1 + (case.lift - case.common).T, LEAST), table)
        for case, table in zip(cases, expected, strict=True)
    ]


@final
class _Lifts:
    """The lifts of the values of one attribute by class, shape (values, classes).

    Args:
        noisy: what was measured.
        table: what is expected.
        walk: covariance of the lifts of a value whose strength is 1.
    """

    def __init__(self, noisy: NoisyTable, table: Array, walk: Array) -> None:
        self.base, self.noise = table.T, noisy.variance
        whole = np.maximum(self.base.sum(axis=1), 1e-300)[:, None, None]
        square = np.maximum((self.base**2).sum(axis=1), 1e-300)[:, None, None]
        centring = np.eye(len(walk)) - self.base[:, None, :] / whole
        free = np.eye(len(walk)) - self.base[:, :, None] * self.base[:, None, :] / square
        across = centring @ walk @ centring.transpose(0, 2, 1) * self.base[:, None, :] @ free
        strong, turn = np.linalg.eigh(free @ (self.base[:, :, None] * across) / self.noise)
        self.across, self.back = across @ turn, turn.transpose(0, 2, 1) @ free
        self.spread = 1 + np.multiply.outer(STRENGTHS, np.maximum(strong, 0.0))
        self.gap, self.common = noisy.table.T - self.base, np.zeros(len(walk))
        self.lift = np.zeros_like(self.base)

    def logs(self) -> Array:
        """The likelihood of each strength of each value, where the mean lift of each class is ``common``."""
        return np.asarray(-0.5 * (np.log(self.spread) + self._seen() ** 2 / self.noise / self.spread).sum(axis=2))

    def take(self, chances: Array) -> None:
        """Set the lifts to their means with the chances of the strengths, and ``common`` to what these say."""
        weights = ((chances * STRENGTHS[:, None])[:, :, None] / self.spread).sum(axis=0) / self.noise
        self.lift = (self.across @ (weights * self._seen())[:, :, None])[:, :, 0]
        self.common = (self.base * self.lift).sum(axis=0) / np.maximum(self.base.sum(axis=0), 1e-300)

    def _seen(self) -> Array:
        return np.asarray((self.back @ (self.gap + self.base * self.common)[:, :, None])[:, :, 0])


def _chances(logs: Array) -> Array:
    """The posterior of each value's strength, of its likelihoods, shape (strengths, values)."""
    guess = np.full(len(STRENGTHS), (1 - NOISE_ALONE) / (len(STRENGTHS) - 1))
    guess[0] = NOISE_ALONE
    likely, prior = np.exp(logs - logs.max(axis=0)), guess
    for _ in range(PASSES):
        joint = likely * prior[:, None]
        chances = joint / joint.sum(axis=0)
        prior = (FIRST * guess + chances.sum(axis=1)) / (FIRST + logs.shape[1])
    return np.asarray(chances)


def _scaled(table: Array, wanted: Array) -> Array:
    """The table with the sums of rows and columns of another one."""
    rows, columns = wanted.sum(axis=1), wanted.sum(axis=0)
    for _ in range(ROUNDS):
        table = table * (rows / np.maximum(table.sum(axis=1), 1e-300))[:, None]
        table = table * (columns / np.maximum(table.sum(axis=0), 1e-300))
    return np.asarray(table)
