"""The mechanism 'pairs', our own: it measures 1-way marginals, then the pairs for which a fitted estimate is most wrong.

It differs from AIM+GReM in three ways. It never measures more than two attributes together: larger marginals follow from
their pairs. It selects against the fitted estimate (``reconstruct.fitted``), so that a pair which is nearly the product of
its 1-way marginals, or was measured well enough, is not selected. And fixed shares of the budget go to the total, to the 1-way
marginals, on which all estimates depend, and to a first measurement of all pairs: without it, selections waste more than it costs.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    alive,
    attribute_weights,
    check_cells,
    check_first_noise,
    check_memory,
    singles,
)
from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.workload import Workload
from duckdb_dp.plan.crp import waterfill
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.fitted import Fitted
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.measurement import LinearMeasurement

FIRST = 0.2
"""Share of the budget for the 1-way marginals."""

TOTAL = 0.005
"""Share of the budget for the total, to which a plan of least variance gives almost nothing."""

SURVEY = 0.6
"""Share of what is left then for a first measurement of all pairs."""

GROWTH = 2.0
"""By how much rounds grow once measuring what was selected changes it by no more than noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of the loop.

    Attributes:
        fitted: the fitted singles and pairs, from all measurements so far and the priors.
        measured: the mechanism's own measurements.
        rho: what the next round may spend, selection and measurement.
        changed: pairs whose estimate changed in the last round; None before the first.
        rounds: what has been done.
        finished: whether the budget is spent.

    Privacy: all of it has been charged.
    """

    fitted: Fitted
    measured: tuple[LinearMeasurement, ...]
    rho: float
    changed: frozenset[Clique] | None = None
    rounds: tuple[dict[str, Any], ...] = ()
    finished: bool = False


def pairs(
    queryable: PrivateQueryable,
    workload: Workload,
    options: Options,
    *,
    prior: Sequence[LinearMeasurement] = (),
    track: Track = silent,
) -> Outcome:
    """Measure residuals of single attributes and of pairs until the budget of ``queryable`` is spent.

    Args:
        queryable: the private data and the budget.
        workload: marginals with weights; the pairs inside them may be selected.
        options: see ``Options``; rounds defaults to the number of pairs.
        prior: noisy residuals known already, of the same table; they cost nothing.
        track: progress, in hundredths of the budget.

    Raises:
        DPError: as ``check``.

    Privacy: spends all that ``queryable`` has left.
    """
    check(workload, options, queryable.left, queryable.accounting, rows=queryable.rows)
    choices = pair_targets(workload, options.max_cells)
    state = initial(queryable, workload, options, choices, ResidualEstimates.of(workload.domain, prior))
    for done in Progress(track, queryable.left, "selecting and measuring pairs"):
        while not state.finished and not done(queryable.left):
            state = step(queryable, choices, state)
            done.note(state.rounds[-1])
    return Outcome(measured=ResidualEstimates.of(workload.domain, state.measured).noisy(), rounds=state.rounds)


def check(workload: Workload, options: Options, rho: float, accounting: Accounting, *, rows: int = 1) -> None:
    """Refuse what cannot be done, before anything is charged; arguments as for ``aim.check``.

    Raises:
        DPError: queries that are no marginals, or a budget that is too small for the first measurements.

    Privacy: depends on public facts only.
    """
    count = max(1, len(attribute_weights(workload)))
    check_cells(workload, options.max_cells)
    check_memory(workload.domain, [(name,) for name in singles(workload)])
    check_memory(workload.domain, [t.clique for t in pair_targets(workload, options.max_cells)], together=True)
    check_first_noise(rows**2 * count / (2 * FIRST * rho), rho, accounting)


def pair_targets(workload: Workload, max_cells: int | None = None) -> tuple[Target, ...]:
    """All pairs inside the workload's marginals, each with the weight of the marginals that have it, scaled to 1."""
    domain = workload.domain
    weights: dict[Clique, float] = defaultdict(float)
    for clique, weight in workload.weights.items():
        for pair in itertools.combinations(clique, 2):
            weights[pair] += weight
    limit = max_cells or math.inf
    chosen = {pair: weight for pair, weight in weights.items() if alive(domain, pair) and domain.cells(pair) <= limit}
    largest = max(chosen.values(), default=1.0)
    return tuple(Target(clique=p, weight=w / largest, cells=domain.cells(p)) for p, w in chosen.items())


def initial(
    queryable: PrivateQueryable,
    workload: Workload,
    options: Options,
    choices: Sequence[Target],
    known: ResidualEstimates,
) -> State:
    """Measure the total, the residuals of single attributes, and those of all pairs; without pairs, all budget goes to single attributes.

    Privacy: spends TOTAL + FIRST + (1 - TOTAL - FIRST) SURVEY of the budget.
    """
    budget, weights = queryable.left, attribute_weights(workload)
    noisy = measure_residuals(queryable, {(): 1.0}, budget * TOTAL if singles(workload) else budget)
    wanted: dict[Clique, float] = {(name,): weights[name] for name in singles(workload)}
    if wanted:
        noisy += _least(queryable, wanted, known, budget * FIRST if choices else queryable.left)
    if choices:
        noisy += _least(queryable, {target.clique: target.weight for target in choices}, known, queryable.left * SURVEY)
    fitted = Fitted.fit(known.added(noisy), [target.clique for target in choices])
    rho = queryable.left / (options.rounds or max(1, len(choices)))
    return State(fitted=fitted, measured=noisy, rho=rho, finished=not choices)


def _least(
    queryable: PrivateQueryable, weights: Mapping[Clique, float], known: ResidualEstimates, rho: float
) -> tuple[LinearMeasurement, ...]:
    """Residuals of least weighted total variance, sum_tau w_tau prod_{i in tau} (n_i - 1) s_tau, given the known precisions."""
    sizes, cliques = queryable.domain.sizes, list(weights)
    errors = np.array([weights[tau] * math.prod(sizes[i] - 1 for i in tau) for tau in cliques])
    costs = np.array([math.prod(1 - 1 / sizes[i] for i in tau) for tau in cliques])
    precisions = np.array([known.precisions.get(tau, 0.0) for tau in cliques])
    gained = waterfill(errors, costs, precisions, 2 * rho / queryable.rows**2)
    return measure_residuals(queryable, {tau: float(x) for tau, x in zip(cliques, gained, strict=True) if x > 0}, rho)


def step(queryable: PrivateQueryable, choices: Sequence[Target], state: State) -> State:
    """One round: select a pair, measure its residual, fit it again, anneal. It does not change the given state.

    Privacy: spends state.rho, or all that is left if that is less than two rounds.
    """
    selection, rho, last = split(queryable, state.rho, len(choices))
    noise = noise_of(queryable, rho)
    target = choices[select(queryable, choices, state.fitted.marginal, selection, noise, state.changed)]
    noisy = measure_residuals(queryable, {target.clique: 1.0}, queryable.left if last else rho)
    fitted = state.fitted.updated(noisy)
    change = float(np.abs(fitted.marginal(target.clique) - state.fitted.marginal(target.clique)).sum())
    done = report(len(state.rounds) + 1, target.clique, queryable, noise=noise, change=change, rows=fitted.total)
    return State(
        fitted=fitted,
        measured=(*state.measured, *noisy),
        rho=GROWTH * state.rho if change <= HALF_NORMAL * noise * target.cells else state.rho,
        changed=frozenset([target.clique]),
        rounds=(*state.rounds, done),
        finished=last,
    )
