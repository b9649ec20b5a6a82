"""The only door between exact data and results: charge, draw exact noise, store, and only then return."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from duckdb_dp.account.event import GaussianEvent
from duckdb_dp.account.ledger import Dataset, Ledger, Release
from duckdb_dp.data.counts import Counts
from duckdb_dp.linop import Array, Integers
from duckdb_dp.noise.bits import Bits
from duckdb_dp.noise.gaussian import noisy_grid
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.progress import Track, silent
from duckdb_dp.request import Request

VARIANCES = "variances"
"""Name of the array, in a stored release, that holds the variance of each measurement."""

GRID = 10
"""Noise is drawn on a grid of 2^-10 of its standard deviation: rounding to it adds 2^-20 / 12 to its variance, relatively."""


def measure(
    plan: Plan,
    counts: Counts,
    *,
    request: Request,
    ledger: Ledger,
    dataset: Dataset,
    bits: Bits,
    name: str | None = None,
    fresh_key: str | None = None,
    track: Track = silent,
) -> Release:
    """Charge the request, measure every strategy answer with exact Gaussian noise, and store the result.

    Each answer is the nearest grid point to an ideal real Gaussian draw around the exact answer, so that it is
    post-processing of the ideal Gaussian mechanism N(B x, s I) of the plan.

    A request that was charged before is not charged again: a stored release is returned as it is, and one that was
    charged but never stored (and so never seen) is drawn now.

    Returns:
        The stored release.

    Raises:
        DPError: the budget left is too small, or the ledger cannot be written. Nothing has been drawn then.

    Privacy: spends request.mu (Gaussian DP), once per request (once more for each ``fresh_key``).
    """
    release = ledger.charge(
        dataset=dataset,
        function=request.function,
        request=request.to_json(),
        mechanism=plan.mechanism,
        event=GaussianEvent(mu=request.mu),
        name=name,
        fresh_key=fresh_key,
        private=bits.private,
    )
    if release.state == "charged":
        ledger.store(release, dict(_draw(plan, counts, bits, track)))
    return release


def _draw(plan: Plan, counts: Counts, bits: Bits, track: Track) -> Iterator[tuple[str, Array]]:
    yield VARIANCES, np.array([measurement.variance for measurement in plan.measurements])
    order = sorted(range(len(plan.measurements)), key=lambda i: counts.block(plan.measurements[i].clique))
    for index in track(order, "drawing noise"):
        measurement = plan.measurements[index]
        yield str(index), _noisy(measurement, counts.marginal(measurement.clique), bits)


def _noisy(measurement: Measurement, exact: Integers, bits: Bits) -> Array:
    """The grid points nearest to B x + N(0, s I), a function of the ideal noisy answers alone."""
    stddev = math.sqrt(measurement.variance)
    step = 2.0 ** (math.frexp(stddev)[1] - 1 - GRID)
    answers, errors = measurement.strategy.apply(exact)

    def centre(index: int) -> Fraction:
        return measurement.strategy.exact(exact, index) / Fraction(step)

    # Dividing by a power of 2 is exact.
    points = noisy_grid(answers / step, errors / step, stddev / step, centre, bits=bits)
    return points.astype(np.float64) * step
