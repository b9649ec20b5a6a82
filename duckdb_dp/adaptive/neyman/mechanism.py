"""The rounds of 'neyman': score the estimates, divide the budget, measure, estimate again."""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.adaptive.base import Options, Outcome, Progress, measure_residuals
from duckdb_dp.adaptive.candidates import check_cells, check_first_noise, check_memory, singles
from duckdb_dp.adaptive.neyman.allocation import Residual, allocate, effective, effective_all, prior_precision
from duckdb_dp.adaptive.neyman.scores import Scores, price, score
from duckdb_dp.adaptive.neyman.triples import SHARE, STDDEV, cost, residuals, triples
from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.optimize.threads import one_thread
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct import combination
from duckdb_dp.reconstruct.estimate import Estimate, by_mixtures, by_tree, first, mixable, mixtures
from duckdb_dp.reconstruct.fitted import Fitted
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement

TOTAL = 0.005
"""Share of the budget for the total."""

SINGLES = 0.3
"""Most of the budget that goes to single attributes before the first round."""

ENOUGH = 0.8 / 0.005
"""The first single of n values has precision (ENOUGH n / N)^2 at most: an L1 error of half a percent of the rows."""

ROUNDS, MOST_ROUNDS = 3, 20

SCORING, SCORE_STDDEV = 0.07, 0.014
"""Most of a round that scores may take; and the noise, over the number of rows, below which they need not be."""

PART_WEIGHT = 0.5
"""Of the L1 error of a single, or of the total, in those of all pairs that it is part of."""

COMPONENTS, STEPS, SEEDS = 50, 300, (1, 2)
"""Of the mixtures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of the rounds.

    Attributes:
        known: all measured residuals and the priors.
        measured: the mechanism's own measurements.
        best: the estimate that is scored.
        tree, mixed: the two it was combined from; None before the first round.
        rounds: what has been done.

    Privacy: all of it has been charged.
    """

    known: ResidualEstimates
    measured: tuple[LinearMeasurement, ...]
    best: Estimate
    tree: Estimate | None = None
    mixed: Estimate | None = None
    rounds: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much the L1 error of each residual's table matters for the workload.

    Attributes:
        total: of the total.
        singles: (name,) -> weight.
        pairs: pair -> sum of the weights of the asked marginals that have it.
        triples: triple -> the same; none where no marginal has three attributes, or too many.
    """

    total: float
    singles: Mapping[Clique, float]
    pairs: Mapping[Clique, float]
    triples: Mapping[Clique, float]

    @classmethod
    def of(cls, workload: Workload, max_cells: int | None) -> "Weights":
        """Of the pairs that fit the limit of cells, and of all attributes of more than one value."""
        domain, limit = workload.domain, max_cells or math.inf
        pairs: dict[Clique, float] = defaultdict(float)
        ones: dict[Clique, float] = {(name,): 0.0 for name in singles(workload)}
        for clique, weight in workload.weights.items():
            # With an attribute of one value it is the same marginal as without.
            names = tuple(name for name in clique if domain.sizes[name] > 1)
            if len(names) == 1:
                ones[names] += weight
            for pair in map(tuple, itertools.combinations(names, 2)):
                pairs[pair] += weight
        for pair, weight in pairs.items():
            for name in pair:
                ones[name,] += PART_WEIGHT * weight
        kept = {pair: weight for pair, weight in pairs.items() if domain.cells(pair) <= limit}
        total = PART_WEIGHT * math.fsum([*workload.weights.values(), *pairs.values()])
        return cls(total=total, singles=ones, pairs=kept, triples=triples(workload, max_cells))


def neyman(
    queryable: PrivateQueryable,
    workload: Workload,
    options: Options,
    *,
    prior: Sequence[LinearMeasurement] = (),
    track: Track = silent,
) -> Outcome:
    """Measure residuals of singles, pairs and perhaps triples until the budget of ``queryable`` is spent.

    Args:
        queryable: the private data and the budget.
        workload: marginals with weights.
        options: see ``Options``; rounds is the number of rounds, 3 by default.
        prior: noisy residuals known already, of the same table; they cost nothing.
        track: progress, in hundredths of the budget.

    Returns:
        What was measured, and the estimate of all pairs made of it.

    Raises:
        DPError: as ``check``.

    Privacy: spends all that ``queryable`` has left.
    """
    check(workload, options, queryable.left, queryable.accounting, rows=queryable.rows)
    weights = Weights.of(workload, options.max_cells)
    count = options.rounds or ROUNDS
    with one_thread():
        state = start(queryable, weights, ResidualEstimates.of(workload.domain, prior))
        for done in Progress(track, queryable.left, "scoring and measuring pairs"):
            while len(state.rounds) < count and queryable.left > 0 and not done(queryable.left):
                state = step(queryable, weights, state, count)
                done.note(state.rounds[-1])
    measured = ResidualEstimates.of(workload.domain, state.measured).noisy()
    return Outcome(measured=measured, rounds=state.rounds, estimate=state.best)


def check(workload: Workload, options: Options, rho: float, accounting: Accounting, *, rows: int = 1) -> None:
    """Refuse what cannot be done, before anything is charged; arguments as for ``aim.check``.

    Raises:
        DPError: queries that are no marginals, or a budget that is too small for the first measurements.

    Privacy: depends on public facts only.
    """
    if (options.rounds or 0) > MOST_ROUNDS:
        raise DPError(
            f"rounds := {options.rounds} is too many: mechanism 'neyman' scores all pairs in each; 1 to {MOST_ROUNDS} work."
        )
    check_cells(workload, options.max_cells)
    weights = Weights.of(workload, options.max_cells)
    check_memory(workload.domain, weights.singles)
    check_memory(workload.domain, weights.pairs, together=True)
    check_first_noise(rows**2 * max(1, len(weights.singles)) / (2 * SINGLES * rho), rho, accounting)


def start(queryable: PrivateQueryable, weights: Weights, known: ResidualEstimates) -> State:
    """Measure the total, and the residuals of single attributes as far as a first estimate needs them.

    Privacy: spends at most TOTAL + SINGLES of the budget; all of it where there are no attributes.
    """
    domain, budget = queryable.domain, queryable.left
    noisy = measure_residuals(queryable, {(): 1.0}, budget * TOTAL if weights.singles else budget)
    known = known.added(noisy)
    rows = max(float(known.values[()]), 1.0)
    if weights.singles:
        share = SINGLES * budget * 2 / queryable.rows**2
        roots = {one: math.sqrt(domain.sizes[one[0]] - 1) for one in weights.singles}
        scale = share / math.fsum(root * cost(domain, one) for one, root in roots.items())
        wanted = {
            one: min(scale * root, (ENOUGH * domain.sizes[one[0]] / rows) ** 2) - known.precisions.get(one, 0.0)
            for one, root in roots.items()
        }
        wanted = {one: precision for one, precision in wanted.items() if precision > 0}
        rho = math.fsum(precision * cost(domain, one) for one, precision in wanted.items()) * queryable.rows**2 / 2
        new = measure_residuals(queryable, wanted, min(rho, queryable.left)) if wanted else ()
        noisy, known = (*noisy, *new), known.added(new)
    names = [name for (name,) in weights.singles]
    best = first(known, names, weights.pairs, rows)
    if any(len(clique) == 2 for clique in known.values):
        best = by_tree(known, best)
    return State(known=known, measured=noisy, best=best)


def step(queryable: PrivateQueryable, weights: Weights, state: State, count: int) -> State:
    """One round; it does not change the given state.

    Privacy: spends 1 / (rounds left) of what is left.
    """
    left = count - len(state.rounds)
    last, begun, rows = left == 1, queryable.left, queryable.rows
    budget, best = begun / left, state.best
    pairs = Scores(distances={}, stddev=0.0)
    if best.pairs:
        rho = min(SCORING * budget, price(len(best.pairs), rows, SCORE_STDDEV * best.total))
        pairs = score(queryable, best.pairs, rho)
    wanted = _residuals(queryable, weights, state, pairs)
    if last:
        wanted |= _triples(queryable, weights, state, pairs, budget)
    rho = queryable.left if last else budget - (begun - queryable.left)
    noisy = measure_residuals(queryable, allocate(wanted, 2 * rho / rows**2), rho)
    report = {
        "round": len(state.rounds) + 1,
        "measured": len(noisy),
        "left": queryable.left,
        "stddev": pairs.stddev,
        "error": math.fsum(pairs.distances.values()) / max(len(pairs.distances), 1) / best.total,
    }
    return _estimated(replace(state, rounds=(*state.rounds, report), measured=(*state.measured, *noisy)), noisy, pairs)


def _residuals(queryable: PrivateQueryable, weights: Weights, state: State, scores: Scores) -> dict[Clique, Residual]:
    """What is known of the total and of singles, by their precisions, and of pairs, by their scores."""
    domain, best = queryable.domain, state.best
    found: dict[Clique, Residual] = {
        (): Residual(weight=weights.total, cells=1.0, known=state.known.precisions[()], cost=1.0)
    }
    spread = effective_all(best.pairs)
    for pair, weight in weights.pairs.items():
        cells = spread[pair]
        # The estimate is no worse than what was measured of it.
        known = max(prior_precision(scores.distances[pair], cells), state.known.precisions.get(pair, 0.0))
        found[pair] = Residual(weight=weight, cells=cells, known=known, cost=cost(domain, pair))
    for one, weight in weights.singles.items():
        found[one] = Residual(
            weight=weight,
            cells=effective(best.singles[one], 0.5),
            known=state.known.precisions.get(one, 0.0),
            cost=cost(domain, one),
        )
    return found


def _triples(
    queryable: PrivateQueryable, weights: Weights, state: State, pairs: Scores, budget: float
) -> dict[Clique, Residual]:
    """What is known of triples, by scores that are taken now; none where these would take too much.

    Privacy: spends at most SHARE of the round's budget.
    """
    rho = price(len(weights.triples), queryable.rows, STDDEV * state.best.total)
    if not weights.triples or rho > SHARE * budget:
        return {}
    read = Fitted(components=state.known, estimate=state.best)
    priors = {triple: read.marginal(triple) for triple in weights.triples}
    return residuals(queryable.domain, weights.triples, priors, score(queryable, priors, rho), pairs)


def _estimated(state: State, noisy: Sequence[LinearMeasurement], scores: Scores) -> State:
    """The estimates from all that is known now."""
    known, before = state.known.added(noisy), state.best
    common: float = combination.MIDDLE
    own: dict[Clique, float] = {}
    if state.tree is not None and state.mixed is not None:
        common, own = combination.weights(state.tree, state.mixed, noisy)
    total = max(float(known.values[()]), 1.0)
    names, pairs = [name for (name,) in before.singles], list(before.pairs)
    tree = by_tree(known, first(known, names, pairs, total))
    if not before.pairs or not mixable(known.domain, names):  # the tree's is all there is
        return replace(state, known=known, best=tree)
    seen = known.added(_pseudo(state, scores))
    found = mixtures(seen, tree, components=COMPONENTS, steps=STEPS, seeds=SEEDS)
    mixed = by_mixtures(known, found, tree)
    best = combination.combined(tree, mixed, common, own)
    return replace(state, known=known, best=best, tree=tree, mixed=mixed)


def _pseudo(state: State, scores: Scores) -> list[LinearMeasurement]:
    """The estimate that was scored as an observation of each pair's residual, as precise as its score says.

    What was measured of the pair before is part of that estimate, and is not counted twice.
    """
    found, spread = [], effective_all(state.best.pairs)
    for pair, table in state.best.pairs.items():
        distance = math.hypot(scores.distances[pair], scores.stddev)
        gained = prior_precision(distance, spread[pair]) - state.known.precisions.get(pair, 0.0)
        if gained > 0:
            found.append(residual_measurement(state.known.domain, pair, table, 1 / gained))
    return found
