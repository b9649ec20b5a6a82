"""The one orchestration: request -> plan -> charge and measure -> reconstruct -> answers."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from duckdb_dp.account.ledger import Dataset, Ledger, Release
from duckdb_dp.data.counts import Counts
from duckdb_dp.domain import Clique
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.noise.bits import Bits
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.choose import choose
from duckdb_dp.private import VARIANCES, measure
from duckdb_dp.progress import Track, silent
from duckdb_dp.request import Request


@lru_cache(maxsize=16)
def plan(request: Request) -> Plan:
    """The plan for a request. Public: sees the domain, the marginals and the budget only.

    Privacy: costs nothing.
    """
    return choose(request.workload, beta=request.beta, mechanism=request.mechanism, objective=request.objective)


def release(
    request: Request,
    counts: Counts,
    *,
    ledger: Ledger,
    dataset: Dataset,
    bits: Bits,
    name: str | None = None,
    fresh_key: str | None = None,
    track: Track = silent,
) -> Release:
    """Answer a request from exact counts, charging it unless it was charged before.

    Privacy: spends request.cost of the dataset's budget, once per request (once more for each ``fresh_key``).
    """
    return measure(
        plan(request),
        counts,
        request=request,
        ledger=ledger,
        dataset=dataset,
        bits=bits,
        name=name,
        fresh_key=fresh_key,
        track=track,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A stored release, ready to be read: marginals are reconstructed one at a time, when asked.

    Privacy: post-processing.
    """

    plan: Plan
    estimates: dict[Clique, Array]

    @classmethod
    def load(cls, ledger: Ledger, stored: Release) -> "Answers":
        """Read a release with the noise variances it was drawn with, whatever today's planner would choose."""
        planned = plan(Request.from_json(stored.request))
        arrays = ledger.load(stored)
        variances = arrays.pop(VARIANCES)
        if len(variances) != len(planned.measurements) or len(arrays) != len(variances):
            raise DPError(f"release {stored.id} was made by another version of duckdb_dp; read it with that version.")
        measured = tuple(
            replace(measurement, variance=float(variance))
            for measurement, variance in zip(planned.measurements, variances, strict=True)
        )
        noisy = {measurement.clique: arrays[str(i)] for i, measurement in enumerate(measured)}
        drawn = replace(planned, measurements=measured)
        return cls(plan=drawn, estimates=drawn.estimates(noisy))

    def parts(self, indices: Iterable[int]) -> list[Array]:
        """The flat answers to some query sets of the request, by their position in it."""
        return [self.plan.answer(index, self.estimates).reshape(-1) for index in indices]

    def stddevs(self, indices: Iterable[int]) -> list[Array]:
        """Their standard deviations, flat."""
        shapes = ((index, self.plan.workload.parts[index].shape) for index in indices)
        return [np.broadcast_to(self.plan.stddev(index), shape).reshape(-1) for index, shape in shapes]
