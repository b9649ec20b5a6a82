"""The score vector: noisy L1 distances of all present estimates from the truth, in one Gaussian step."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from duckdb_dp.adaptive.base import grouped
from duckdb_dp.adaptive.neyman.allocation import CASES
from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array, Distance
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.combination import NONE
from duckdb_dp.reconstruct.groups import Groups

SHARES = np.geomspace(0.002, 2.0, CASES)
"""Distances that an estimate may have, over the number of rows; two tables of as many rows are at most 2 apart."""

PASSES, FIRST = 10, 3.0
"""Of the estimate of how distances are spread; and how many scores the guess, even in their logs, that it starts from counts for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Distances |mu - estimate|_1 as far as noisy values tell.

    Attributes:
        cases: distances that there may be, rising, shape (CASES,).
        chances: clique -> chance of each, shape (CASES,).
        distances: clique -> the mean.
        stddev: of the noise in each.
        noisy: what was measured.
    """

    cases: Array
    chances: Mapping[Clique, Array]
    distances: Mapping[Clique, float]
    stddev: float
    noisy: Mapping[Clique, float]

    def of(self, noisy: Mapping[Clique, float]) -> "Scores":
        """The same with other noisy distances of the same noise.

        Privacy: post-processing.
        """
        chances = posterior(np.array(list(noisy.values())), self.stddev, self.cases)
        return Scores(
            cases=self.cases,
            chances=dict(zip(noisy, chances, strict=True)),
            distances=dict(zip(noisy, (chances @ self.cases).tolist(), strict=True)),
            stddev=self.stddev,
            noisy=noisy,
        )

    def spread(self, cliques: Collection[Clique]) -> Array:
        """The chance of each distance for one of these cliques of which nothing is known, shape (CASES,)."""
        found = FIRST / len(self.cases) + np.sum([self.chances[clique] for clique in cliques], axis=0)
        return np.asarray(found / (FIRST + len(cliques)))


def score(
    queryable: PrivateQueryable, estimates: Mapping[Clique, Array], rho: float, groups: Mapping[Clique, Groups] = NONE
) -> Scores:
    """The distance of each estimate from its marginal, with noise N(0, k^2 m / (2 rho)) for m of them and units of k rows.

    One row moves each distance by at most 1, so all m together by sqrt(m) in L2; each is measured with rho / m.

    Args:
        queryable: the private data.
        estimates: not empty, of one sum; functions of noisy values alone.
        rho: positive.
        groups: of cliques whose tables of groups are compared, as one row is in one group.

    Privacy: spends rho.
    """
    share = rho / len(estimates) * (1 - 1e-12)
    distances = {clique: Distance(table.reshape(-1)) for clique, table in estimates.items()}
    asked = [(clique, grouped(distance, groups.get(clique)), share) for clique, distance in distances.items()]
    found = queryable.answer_all(asked)
    stddev = math.sqrt(found[0][1])
    cases = max(float(next(iter(estimates.values())).sum()), 1.0) * SHARES
    noisy = [float(values[0]) for values, _ in found]
    return Scores(cases=cases, chances={}, distances={}, stddev=stddev, noisy={}).of(
        dict(zip(estimates, noisy, strict=True))
    )


def posterior(noisy: Array, stddev: float, cases: Array) -> Array:
    """The chance of each case by a noisy distance, shape (m, CASES), all distances drawn from one unknown distribution.

    That is estimated from all of them, by expectation and maximisation from one that is even in the logs: where noise drowns each
    score, what they have in common is still seen, and a large noisy value is not taken for a large distance.

    Args:
        noisy: shape (m,).
        stddev: of the noise.
        cases: positive, shape (CASES,).

    Source: Robbins 1956, empirical Bayes; Laird 1978 for its estimate.

    Privacy: post-processing.
    """
    logs = -((noisy[:, None] - cases) ** 2) / (2 * stddev**2)
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    spread = first = np.full(len(cases), 1 / len(cases))
    chances: Array = likely
    for _ in range(PASSES):
        joint = likely * spread
        chances = np.asarray(joint / joint.sum(axis=1, keepdims=True))
        spread = (FIRST * first + chances.sum(axis=0)) / (FIRST + len(noisy))
    return chances


def price(count: int, rows: int, stddev: float) -> float:
    """The rho of scoring so many estimates with noise of that standard deviation."""
    return rows**2 * count / (2 * stddev**2)
