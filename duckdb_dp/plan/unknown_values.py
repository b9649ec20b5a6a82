"""The noise and the threshold of counts of unknown values, from a request; public."""

import math
from dataclasses import dataclass
from typing import final

from duckdb_dp.accounting.threshold import threshold
from duckdb_dp.plan.choose import PrivacyCost
from duckdb_dp.request import SLACK, Request


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdNoise:
    """How values are released that nobody has declared: those whose noisy count of units is above a threshold.

    Attributes:
        mu, delta: what is charged.
        stddev: of the noise of each count: sqrt(k) / mu for k values of a unit.
        threshold: T of `accounting.threshold`, which the ideal noisy count must reach.

    Privacy: costs nothing.
    """

    mu: float
    delta: float
    stddev: float
    threshold: float

    @classmethod
    def of(cls, request: Request) -> "ThresholdNoise":
        """That of a request, calibrated to a little less than it is charged."""
        options = dict(request.options)
        beta, values = PrivacyCost.of(request.calibrated, request.accounting).beta, options["max_values"]
        charged = request.accounting.beta(request.cost)
        assert beta, "thresholds have a delta"
        assert charged, "thresholds have a delta"
        stddev = math.sqrt(values / beta)
        least = threshold(stddev, values, options["delta"] * (1 - SLACK))
        return cls(mu=math.sqrt(charged), delta=options["delta"], stddev=stddev, threshold=least)

    def least(self, step: float) -> float:
        """The first grid point all of whose cell is above the threshold: what a rounded count must reach."""
        return math.ceil(self.threshold / step + 0.5) * step
