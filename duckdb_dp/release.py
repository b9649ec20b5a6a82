"""The orchestration of releases: request -> plan -> charge and measure -> stored release."""

from collections.abc import Mapping
from typing import Any

from duckdb_dp.accounting.ledger import Dataset, Ledger, Release
from duckdb_dp.answers import Columns, Sums, direct_plan, load, options, plan, price, to_arrays
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.sums import Exact
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.plan.requested import selections
from duckdb_dp.private import PrivateQueryable, measure, perform
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.request import RETIRED, Request


def release(
    request: Request,
    counts: Exact,
    *,
    ledger: Ledger,
    dataset: Dataset,
    bits: EntropySource,
    name: str | None = None,
    fresh_key: str | None = None,
    track: Track = silent,
) -> Release:
    """Answer a request from exact counts, charging it unless it was charged before.

    Privacy: spends request.cost of the dataset's budget, once per request (once more for each ``fresh_key``).
    """
    charge: dict[str, Any] = {
        "request": request,
        "ledger": ledger,
        "dataset": dataset,
        "bits": bits,
        "name": name,
        "fresh_key": fresh_key,
    }
    if not request.adaptive:
        planned = direct_plan(request) if request.direct else plan(request)
        return measure(planned, counts, selections=selections(request), track=track, **charge)
    from duckdb_dp.adaptive import MECHANISMS

    assert isinstance(counts, Counts)
    check(request)
    prior = [noisy for key in dict(request.options).get("given", ()) for noisy in _prior(ledger, key, request)]

    def run(queryable: PrivateQueryable) -> Mapping[str, Array]:
        found = MECHANISMS[request.mechanism](queryable, request.workload, options(request), prior=prior, track=track)
        return to_arrays(found.measured, found.rounds, prior, found.estimate)

    return perform(run, counts, mechanism=request.mechanism, **charge)


def check(request: Request) -> None:
    """Refuse what an adaptive mechanism could not do, before anything is charged.

    Raises:
        DPError: pure DP, a mechanism that is gone, or a budget or workload that the mechanism cannot work with.
    """
    if not request.adaptive:
        return
    if (better := RETIRED.get(request.mechanism)) is not None:
        raise DPError(f"mechanism '{request.mechanism}' is gone; mechanism := '{better}' is nearer to the truth.")
    from duckdb_dp.adaptive import check as check_mechanism

    beta = price(request).beta
    if beta is None:
        raise DPError(
            f"mechanism '{request.mechanism}' adds Gaussian noise, which has no pure epsilon (delta 0); "
            "use 'auto', or a dataset whose budget has a delta."
        )
    rho = beta * request.max_rows**2 / 2
    check_mechanism(
        request.workload,
        options(request),
        rho,
        request.accounting,
        mechanism=request.mechanism,
        rows=request.max_rows,
    )


def _prior(ledger: Ledger, key: int, request: Request) -> list[LinearMeasurement]:
    """What an earlier release measured, for free.

    Raises:
        DPError: the release is of another dataset, with other domains, or cannot be a prior.
    """
    stored = ledger.release(key)
    earlier = Request.from_json(stored.request)
    if (earlier.catalog, earlier.schema, earlier.table) != (request.catalog, request.schema, request.table):
        raise DPError(f"given: release {key} is of '{earlier.table}', and this asks '{request.table}'.")
    ours = {attribute.name: attribute for attribute in request.attributes}
    if any(ours.get(attribute.name, attribute) != attribute for attribute in earlier.attributes) or (
        (earlier.unit, earlier.max_rows) != (request.unit, request.max_rows)
    ):
        raise DPError(f"given: release {key} was made with other declared domains or another unit than today's.")
    answers = load(ledger, stored)
    if isinstance(answers, Columns | Sums):
        raise DPError(
            f"given: release {key} is of {earlier.function}, which is no measurement of marginals; give one of dp_marginals."
        )
    found = answers.own()
    return [noisy for noisy in found if set(noisy.clique) <= set(ours)]
