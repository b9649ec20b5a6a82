"""The score vector: noisy L1 distances of all present estimates from the truth, in one Gaussian step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.linop import Array, Distance
from duckdb_dp.private import PrivateQueryable

FAR = 30.0
"""Standard deviations below 0 beyond which a noisy distance says no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Distances |mu - estimate|_1.

    Attributes:
        distances: clique -> distance, positive.
        stddev: of the noise in each.
    """

    distances: Mapping[Clique, float]
    stddev: float


def score(queryable: PrivateQueryable, estimates: Mapping[Clique, Array], rho: float) -> Scores:
    """The distance of each estimate from its marginal, with noise N(0, k^2 m / (2 rho)) for m of them and units of k rows.

    One row moves each distance by at most 1, so all m together by sqrt(m) in L2; each is measured with rho / m.

    Args:
        queryable: the private data.
        estimates: not empty; functions of noisy values alone.
        rho: positive.

    Privacy: spends rho.
    """
    share = rho / len(estimates) * (1 - 1e-12)
    found = queryable.answer_all([(clique, Distance(table.reshape(-1)), share) for clique, table in estimates.items()])
    stddev = math.sqrt(found[0][1])
    distances = _positive(np.concatenate([values for values, _ in found]), stddev)
    return Scores(distances=dict(zip(estimates, distances.tolist(), strict=True)), stddev=stddev)


def _positive(noisy: Array, stddev: float) -> Array:
    """The mean of each positive number of which nothing is known but a noisy value: a normal distribution cut off at 0.

    Of scores that are nothing but noise half would be 0 otherwise, and their pairs never be measured.
    """
    from scipy.special import log_ndtr  # for import time

    place = np.maximum(noisy / stddev, -FAR)
    return np.asarray(stddev * (place + np.exp(-(place**2) / 2 - math.log(2 * math.pi) / 2 - log_ndtr(place))))


def price(count: int, rows: int, stddev: float) -> float:
    """The rho of scoring so many estimates with noise of that standard deviation."""
    return rows**2 * count / (2 * stddev**2)
