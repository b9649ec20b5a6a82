"""Measures what depends on whole units: tables in which each unit weighs 1 at most, whatever its links are."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from duckdb_dp.counting.units import capped_of, weight_of
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import UNIT, Array, Centring, Identity, Integers, Measurable
from duckdb_dp.linop.base import UP
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.measurement import LinearMeasurement


@final
@dataclass(frozen=True, slots=True)
class PerUnit:
    """A query on counts that one unit changes as one row would, or, times a weight, as so many rows of one cell.

    Attributes:
        query: what is asked: linear, or a distance.
        weight: what one unit weighs in the counts, at most.
        rows: k, rows of one unit, for each of which noise is calibrated.

    A unit counts once, and not once for each of its k rows: the sensitivity is that of the query over k. It is ``Measurable``.
    """

    query: Measurable
    weight: int
    rows: int

    @property
    def squared_sensitivity(self) -> float:
        """That of the query over k^2, rounded up."""
        return self.query.squared_sensitivity * UP / self.rows**2

    def apply(self, counts: Integers) -> tuple[Array, Array]:
        """(the answers in units, a bound on their rounding errors)."""
        answers, errors = self.query.apply(counts)
        return answers / self.weight, 2 * (errors + 2 * UNIT * np.abs(answers)) / self.weight

    def exact(self, counts: Integers, index: int) -> Fraction:
        """One answer, exactly."""
        return self.query.exact(counts, index) / self.weight


@final
@dataclass(frozen=True, slots=True)
class NoisyTable:
    """A table of units as measured.

    Attributes:
        table: the cells, in units.
        variance: of the noise of each.
    """

    table: Array
    variance: float

    def shrunk(self, expected: Array) -> Array:
        """The table, shrunk towards what is expected by how much of its distance is noise.

        Formula: f = max(0, 1 - m v / |table - expected|^2), the positive-part James-Stein estimate for m cells of variance
        v, and at most |expected|^2 / (|expected|^2 + m v): counts differ from what is expected by no more than about that.

        Args:
            expected: the same shape.

        Privacy: post-processing.
        """
        gap = self.table - expected
        noise = self.variance * gap.size
        size = float((expected**2).sum())
        kept = max(0.0, min(1 - noise / max(float((gap**2).sum()), 1e-300), size / max(size + noise, 1e-300)))
        return np.asarray(expected + kept * gap)

    def around(self, expected: Array) -> Array:
        """The same, and never negative.

        Privacy: post-processing.
        """
        return np.maximum(self.shrunk(expected), 0.0)


def measure_tables(
    queryable: PrivateQueryable, asked: Iterable[tuple[Clique, tuple[int, ...], float]]
) -> list[NoisyTable]:
    """The tables of units of each (clique, shape, rho).

    Privacy: spends the sum of all rho; each table has L2 sensitivity 1 for a unit (`docs/privacy.md`).
    """
    steps = list(asked)
    queries = (
        (clique, PerUnit(Identity(math.prod(shape)), weight_of(clique), queryable.rows), rho)
        for clique, shape, rho in steps
    )
    return [
        NoisyTable(answers.reshape(shape), variance)
        for (_, shape, _), (answers, variance) in zip(steps, queryable.answer_all(queries), strict=True)
    ]


def measure_shares(
    queryable: PrivateQueryable, asked: Iterable[tuple[Clique, float]], most: int = 1
) -> list[LinearMeasurement]:
    """The residual of each (clique, rho), of links that weigh min(k, most)/k each where their unit has k: in units times ``most``.

    A unit of d links then adds as much as ``most`` links, and noise is so many d-ths of that of links.

    Privacy: spends the sum of all rho; a unit adds cells to each marginal that sum to ``most`` at most (`docs/privacy.md`).
    """
    steps = [(clique, Centring(queryable.domain.shape(clique)), rho) for clique, rho in asked]
    tables = [(capped_of(clique, most), centring, rho) for clique, centring, rho in steps]
    found = queryable.answer_all((name, PerUnit(c, weight_of(name), queryable.rows), rho) for name, c, rho in tables)
    return [
        LinearMeasurement(clique=clique, strategy=centring, answers=answers * most, variance=variance * most**2)
        for (clique, centring, _), (answers, variance) in zip(steps, found, strict=True)
    ]
