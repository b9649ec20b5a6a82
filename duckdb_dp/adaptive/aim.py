"""AIM+GReM: select a marginal whose estimate has a large error, measure it with optimal noise, update, repeat.

Source: [AIM+GReM] Algorithms 4, 6 and 7. Algorithm 7 as printed compares the true marginal with its estimate, which would
not be private; here the estimate after a round is compared with the one before it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.adaptive.base import (
    HALF_NORMAL,
    Options,
    Outcome,
    Progress,
    measure_residuals,
    noise_of,
    report,
    select,
    split,
)
from duckdb_dp.adaptive.candidates import (
    Target,
    check_cells,
    check_closure,
    check_first_noise,
    check_memory,
    singles,
    targets,
)
from duckdb_dp.adaptive.lazy import Estimates
from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.plan.crp import conditional
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.measurement import LinearMeasurement

FIRST = 0.9
"""rho of the first measurements: FIRST / (2 T) for each attribute, and for each round until it anneals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of the loop.

    Attributes:
        estimates: of all targets, from all measurements so far and the priors.
        measured: the mechanism's own measurements.
        rho: what the next round may spend, selection and measurement.
        changed: targets whose estimate changed in the last round; None before the first.
        rounds: what has been done.
        finished: whether the budget is spent.

    Privacy: all of it has been charged.
    """

    estimates: Estimates
    measured: tuple[LinearMeasurement, ...]
    rho: float
    changed: frozenset[Clique] | None = None
    rounds: tuple[dict[str, Any], ...] = ()
    finished: bool = False


def aim(
    queryable: PrivateQueryable,
    workload: Workload,
    options: Options,
    *,
    prior: Sequence[LinearMeasurement] = (),
    track: Track = silent,
) -> Outcome:
    """Measure residuals of a workload of marginals adaptively until the budget of ``queryable`` is spent.

    Args:
        queryable: the private data and the budget.
        workload: marginals with weights; their closure is what may be selected.
        options: see ``Options``.
        prior: noisy residuals known already, of the same table; they cost nothing.
        track: progress, in hundredths of the budget.

    Raises:
        DPError: as ``check``.

    Privacy: spends all that ``queryable`` has left.
    """
    check(workload, options, queryable.left, queryable.accounting, rows=queryable.rows)
    known = ResidualEstimates.of(workload.domain, prior)
    choices = targets(workload, options.max_cells)
    if not choices:
        total = measure_residuals(queryable, {(): 1.0}, queryable.left)
        return Outcome(measured=total, rounds=())
    state = initial(queryable, workload, options, choices, known)
    for done in Progress(track, queryable.left, "selecting and measuring marginals"):
        while not state.finished and not done(queryable.left):
            state = step(queryable, choices, state)
            done.note(state.rounds[-1])
    return Outcome(measured=ResidualEstimates.of(workload.domain, state.measured).noisy(), rounds=state.rounds)


def check(workload: Workload, options: Options, rho: float, accounting: Accounting, *, rows: int = 1) -> None:
    """Refuse what cannot be done, before anything is charged.

    Args:
        workload: the marginals.
        options: the options.
        rho: the budget; mu^2 / 2 in Gaussian DP.
        accounting: the dataset's; not the pure one.
        rows: rows of one privacy unit.

    Raises:
        DPError: queries that are no marginals, a closure beyond the limits, or a budget or a number of rounds that is
            too small for the first measurements.

    Privacy: depends on public facts only.
    """
    check_closure(workload)
    check_cells(workload, options.max_cells)
    attributes = len(singles(workload))
    choices = targets(workload, options.max_cells)
    check_memory(workload.domain, [target.clique for target in choices])
    rounds = _rounds(options, len(choices))
    if attributes * FIRST > rounds:
        raise DPError(
            f"rounds := {rounds} leaves too little after the first measurements of {attributes} attributes; "
            f"at least {math.ceil(attributes * FIRST)} works."
        )
    check_first_noise(rows**2 * rounds / (FIRST * rho), rho, accounting)


def initial(
    queryable: PrivateQueryable,
    workload: Workload,
    options: Options,
    choices: Sequence[Target],
    known: ResidualEstimates,
) -> State:
    """Measure residuals as precisely as 1-way marginals of precision 1 / sigma_0^2 would, as far as they are not known yet.

    sigma_0^2 = T / (0.9 rho), T the number of targets and the total. The marginal of attribute i measures its residual
    with precision 1 / sigma_0^2 and the total with 1 / (n_i sigma_0^2); the total is measured once, with the sum of these.

    Source: [AIM+GReM] Alg. 6.

    Privacy: spends at most d / (2 sigma_0^2).
    """
    rho, rounds = queryable.left, _rounds(options, len(choices))
    precision = FIRST * rho / rounds / queryable.rows**2
    names = singles(workload)
    wanted: dict[Clique, float] = {(): math.fsum(precision / workload.domain.sizes[name] for name in names)}
    wanted |= {(name,): precision for name in names}
    missing = {tau: value - known.precisions.get(tau, 0.0) for tau, value in wanted.items()}
    missing = {tau: value for tau, value in missing.items() if value > 0}
    sizes = workload.domain.sizes
    costs = (value * math.prod(1 - 1 / sizes[name] for name in tau) for tau, value in missing.items())
    noisy = measure_residuals(queryable, missing, math.fsum(costs) * queryable.rows**2 / 2) if missing else ()
    estimates = Estimates.of(known.added(noisy), [target.clique for target in choices], options.max_memory)
    return State(estimates=estimates, measured=noisy, rho=rho / (2 * rounds))


def step(queryable: PrivateQueryable, choices: Sequence[Target], state: State) -> State:
    """One round: select, plan the noise, measure, update the estimates, anneal. It does not change the given state.

    Source: [AIM+GReM] Alg. 4, lines 8 to 19.

    Privacy: spends state.rho, or all that is left if that is less than two rounds.
    """
    selection, rho, last = split(queryable, state.rho, len(choices))
    noise = noise_of(queryable, rho)
    target = choices[select(queryable, choices, state.estimates.marginal, selection, noise, state.changed)]
    known = state.estimates.components.precisions
    variances = conditional(queryable.domain, target.clique, 2 * rho / queryable.rows**2, known)
    precisions = {tau: 1 / variance for tau, variance in variances.items()}
    noisy = measure_residuals(queryable, precisions, queryable.left if last else rho)
    before, estimates = state.estimates.marginal(target.clique), state.estimates.updated(noisy)
    change = float(np.abs(estimates.marginal(target.clique) - before).sum())
    rows = float(estimates.components.values[()])
    done = report(len(state.rounds) + 1, target.clique, queryable, noise=noise, change=change, rows=rows)
    return State(
        estimates=estimates,
        measured=(*state.measured, *noisy),
        rho=4 * state.rho if change <= HALF_NORMAL * noise * target.cells else state.rho,
        changed=estimates.above([one.clique for one in noisy]),
        rounds=(*state.rounds, done),
        finished=last,
    )


def _rounds(options: Options, count: int) -> int:
    """T: the closure's size unless given; the total belongs to the closure too."""
    return options.rounds or count + 1
