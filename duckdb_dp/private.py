"""The only door between exact data and results: charge, draw exact noise, store, and only then return."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from duckdb_dp.account.event import GaussianEvent
from duckdb_dp.account.ledger import Dataset, Ledger, Release
from duckdb_dp.data.counts import Counts
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.noise.bits import Bits
from duckdb_dp.noise.gaussian import MAX_SCALE, gaussian_grid, rounded_gaussian
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.progress import Track, silent
from duckdb_dp.request import Request

VARIANCES = "variances"
"""Name of the array, in a stored release, that holds the variance of each measurement."""

EXACT = 2**61
"""Whole numbers up to here add without overflow in 64 bits; larger ones are carried as Python integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The grid of one measurement: spacing 1 / (denominator * multiplier), and the noise's scale in such steps."""

    steps: int
    scale: float

    @classmethod
    def of(cls, measurement: Measurement) -> "Grid":
        """The coarsest grid that holds every exact answer and is at most 2^-10 of the noise's scale.

        Answers are multiples of 1 / denominator, so nothing is rounded before the noise and no rounding is charged.

        Raises:
            DPError: more noise than the sampler can draw exactly.
        """
        stddev, denominator = float(np.sqrt(measurement.variance)), measurement.strategy.denominator
        steps = denominator * gaussian_grid(stddev, denominator)
        if stddev * steps > MAX_SCALE:
            raise DPError(
                f"noise of standard deviation {stddev:.3g} is more than can be drawn exactly here, "
                f"{MAX_SCALE / steps:.3g}; nothing was charged: ask with a larger budget, or for fewer cells at a time."
            )
        return cls(steps=steps, scale=stddev * steps)


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
    grids = [Grid.of(measurement) for measurement in plan.measurements]
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
        ledger.store(release, dict(_draw(plan, grids, counts, bits, track)))
    return release


def _draw(plan: Plan, grids: list[Grid], counts: Counts, bits: Bits, track: Track) -> Iterator[tuple[str, Array]]:
    yield VARIANCES, np.array([measurement.variance for measurement in plan.measurements])
    order = sorted(range(len(grids)), key=lambda i: counts.block(plan.measurements[i].clique))
    for index in track(order, "drawing noise"):
        measurement = plan.measurements[index]
        yield str(index), _noisy(measurement, grids[index], counts.marginal(measurement.clique), bits)


def _noisy(measurement: Measurement, grid: Grid, exact: np.ndarray, bits: Bits) -> Array:
    noise = rounded_gaussian(grid.scale, measurement.strategy.shape[0], bits=bits)
    largest = max(1.0, float(exact.sum(dtype=np.float64)))
    table = exact if largest * grid.steps < EXACT else exact.astype(object)
    steps = measurement.strategy.numerators(table) * (grid.steps // measurement.strategy.denominator) + noise
    return _ratio(steps, grid.steps)


def _ratio(steps: np.ndarray, denominator: int) -> Array:
    """steps / denominator, correctly rounded, so that it is a function of the noisy number alone.

    Division of doubles is that where both are exact, and denominator is: a small number times a power of 2. Larger numbers are divided as Python integers: else their last
    bits would tell which of two ways the exact counts were carried, and so something of their sum.
    """
    ratio = (steps / denominator).astype(np.float64)
    if steps.dtype != object and max(int(steps.max()), -int(steps.min())) > 2**53:
        inexact = np.flatnonzero((steps > 2**53) | (steps < -(2**53)))
        ratio[inexact] = steps[inexact].astype(object) / denominator
    return ratio
