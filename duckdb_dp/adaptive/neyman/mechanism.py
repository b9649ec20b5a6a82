"""The rounds of 'neyman': score the estimates, divide the budget, measure, estimate again."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.adaptive.base import Options, Outcome, Progress, measure_residuals
from duckdb_dp.adaptive.candidates import check_cells, check_first_noise, check_memory, singles
from duckdb_dp.adaptive.neyman import coarse, ways
from duckdb_dp.adaptive.neyman.allocation import (
    Residual,
    allocate,
    certain,
    effective_all,
    prior_precision,
    scored,
    uneven,
)
from duckdb_dp.adaptive.neyman.alone import spreads
from duckdb_dp.adaptive.neyman.doubt import chance, evidence, explained_by
from duckdb_dp.adaptive.neyman.scores import SHARES, Scores, score
from duckdb_dp.adaptive.neyman.triples import cost, dense, residuals, scoring, triples
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Centring
from duckdb_dp.linop.threads import one_thread
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct import combination
from duckdb_dp.reconstruct.estimate import Estimate, by_counts, by_mixtures, by_tree, first, mixable, mixtures, quick
from duckdb_dp.reconstruct.fitted import Fitted
from duckdb_dp.reconstruct.grem import ResidualEstimates
from duckdb_dp.reconstruct.likeness import Likeness
from duckdb_dp.reconstruct.measurement import LinearMeasurement, residual_measurement
from duckdb_dp.reconstruct.mixture import Mixture

TOTAL, MOST_TOTAL, KNOWN = 0.005, 0.04, 30.0
"""Share of the budget for the total, and most of it where its noise is then above one part in KNOWN of it."""

SINGLES, FEWEST = 0.3, 0.1
"""Most of the budget that goes to single attributes before the first round; and what goes to them however good they are."""

NEARLY, ENOUGH = 0.8 / 0.1, 0.8 / 0.005
"""A single of n values with precision (.8 n / (e N))^2 has an L1 error of about e N. More than ``FEWEST`` is spent as long as that is a
tenth of the rows, and nothing beyond half a percent: rounds buy more where that is worth it. On tables whose pairs say nearly all,
30 % for singles in any case gave 10 % more error."""

ROUNDS, MOST_ROUNDS = 3, 20

COMPONENTS, STEPS, SEEDS = 50, 300, (1, 2)
"""Of the mixtures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of the rounds.

    Attributes:
        known: all measured residuals and the priors.
        measured: the mechanism's own measurements.
        best: the estimate that is scored.
        models: several estimates, of which it is made; None before the first round.
        mixtures: of which one of them is made; none where none fits.
        evidence: that there is more between attributes than noise of singles; see ``doubt.evidence``.
        rounds: what has been done.

    Privacy: all of it has been charged.
    """

    known: ResidualEstimates
    measured: tuple[LinearMeasurement, ...]
    best: Estimate
    models: combination.Models | None = None
    mixtures: Sequence[Mixture] = ()
    evidence: float = 0.0
    rounds: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What may be measured for a workload.

    Attributes:
        asked: marginal -> weight.
        singles: attributes of more than one value.
        pairs: those inside asked marginals that fit the limit of cells.
        triples: the same; none where no marginal has three attributes, or too many.
    """

    asked: Mapping[Clique, float]
    singles: tuple[str, ...]
    pairs: tuple[Clique, ...]
    triples: tuple[Clique, ...]

    @classmethod
    def of(cls, workload: Workload, max_cells: int | None) -> "Parts":
        """Of attributes of more than one value: with another one it is the same marginal as without."""
        domain, limit = workload.domain, max_cells or math.inf
        alive = (tuple(name for name in clique if domain.sizes[name] > 1) for clique in workload.cliques)
        pairs = dict.fromkeys(pair for clique in alive for pair in itertools.combinations(clique, 2))
        kept = tuple(pair for pair in pairs if domain.cells(pair) <= limit)
        return cls(asked=workload.weights, singles=singles(workload), pairs=kept, triples=triples(workload, max_cells))


def neyman(
    queryable: PrivateQueryable,
    workload: Workload,
    options: Options,
    *,
    prior: Sequence[LinearMeasurement] = (),
    alike: Mapping[str, Likeness] | None = None,
    track: Track = silent,
) -> Outcome:
    """Measure residuals of singles, pairs and perhaps triples until the budget of ``queryable`` is spent.

    Args:
        queryable: the private data and the budget.
        workload: marginals with weights.
        options: see ``Options``; rounds is the number of rounds, 3 by default.
        prior: noisy residuals known already, of the same table; they cost nothing.
        alike: which values of each attribute are; then pairs of many values may be measured in groups of such (``coarse``), and
            ``Outcome.measured`` has no residuals of groups. None: never.
        track: progress, in hundredths of the budget.

    Returns:
        What was measured, and the estimate of all pairs made of it.

    Raises:
        DPError: as ``check``.

    Privacy: spends all that ``queryable`` has left.
    """
    check(workload, options, queryable.left, queryable.accounting, rows=queryable.rows)
    parts = Parts.of(workload, options.max_cells)
    count = options.rounds or ROUNDS
    with one_thread(with_scipy=True):
        state = start(queryable, parts, ResidualEstimates.of(workload.domain, prior))
        for done in Progress(track, queryable.left, "scoring and measuring pairs"):
            while len(state.rounds) < count and queryable.left > 0 and not done(queryable.left):
                state = step(queryable, parts, state, count, alike)
                done.note(state.rounds[-1])
    whole = [one for one in state.measured if one.answers.size == workload.domain.cells(one.clique)]
    measured = ResidualEstimates.of(workload.domain, whole).noisy()
    return Outcome(measured=measured, rounds=state.rounds, estimate=state.best, grouped=state.known.in_groups())


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
    parts = Parts.of(workload, options.max_cells)
    check_memory(workload.domain, [(name,) for name in parts.singles])
    check_memory(workload.domain, parts.pairs, together=True)
    check_first_noise(rows**2 * max(1, len(parts.singles)) / (2 * SINGLES * rho), rho, accounting)


def start(queryable: PrivateQueryable, parts: Parts, known: ResidualEstimates) -> State:
    """Measure the total, and the residuals of single attributes as far as a first estimate needs them.

    Privacy: spends at most MOST_TOTAL + SINGLES of the budget; all of it where there are no attributes.
    """
    domain, budget = queryable.domain, queryable.left
    noisy = measure_residuals(queryable, {(): 1.0}, budget * TOTAL if parts.singles else budget)
    known = known.added(noisy)
    rows = _rows(known)
    if parts.singles:
        lacking = ((KNOWN / rows) ** 2 - known.precisions[()]) * queryable.rows**2 / 2
        more = min(lacking, (MOST_TOTAL - TOTAL) * budget)
        if more > 0:
            again = measure_residuals(queryable, {(): 1.0}, more)
            noisy, known = (*noisy, *again), known.added(again)
            rows = _rows(known)
        wanted = {
            one: precision - known.precisions.get(one, 0.0)
            for one, precision in _first_singles(domain, parts.singles, 2 * budget / queryable.rows**2, rows).items()
        }
        wanted = {one: precision for one, precision in wanted.items() if precision > 0}
        rho = math.fsum(precision * cost(domain, one) for one, precision in wanted.items()) * queryable.rows**2 / 2
        new = measure_residuals(queryable, wanted, min(rho, queryable.left)) if wanted else ()
        noisy, known = (*noisy, *new), known.added(new)
    best = first(known, parts.singles, parts.pairs, rows)
    if any(len(clique) == 2 for clique in known.values):
        best = by_tree(known, best)
    return State(known=known, measured=noisy, best=best)


def _rows(known: ResidualEstimates) -> float:
    """The noisy number of rows, at least one standard deviation of its noise: of fewer nothing could be planned."""
    return max(float(known.values[()]), 1 / math.sqrt(known.precisions[()]), 1.0)


def _first_singles(domain: Domain, names: Sequence[str], budget: float, rows: float) -> dict[Clique, float]:
    """The precisions of single attributes before the first round, in proportion to sqrt(n - 1), as far as they need it.

    Args:
        domain: the domain.
        names: of attributes of more than one value.
        budget: 2 rho / k^2, all there is.
        rows: noisy number of rows.
    """
    roots = {name: math.sqrt(domain.sizes[name] - 1) for name in names}
    even = budget / math.fsum(root * cost(domain, (name,)) for name, root in roots.items())
    found: dict[Clique, float] = {}
    for name, root in roots.items():
        nearly, enough = ((e * domain.sizes[name] / rows) ** 2 for e in (NEARLY, ENOUGH))
        found[name,] = min(SINGLES * even * root, max(FEWEST * even * root, nearly), enough)
    return found


def step(
    queryable: PrivateQueryable, parts: Parts, state: State, count: int, alike: Mapping[str, Likeness] | None = None
) -> State:
    """One round; it does not change the given state.

    Privacy: spends 1 / (rounds left) of what is left.
    """
    left = count - len(state.rounds)
    last, begun, rows = left == 1, queryable.left, queryable.rows
    budget, best = begun / left, state.best
    pairs = Scores(cases=SHARES, chances={}, distances={}, stddev=0.0, noisy={})
    if best.pairs:
        known, pairs = ways.scored(queryable, state.known, best, budget, alike)
        state = replace(state, known=known)
    wanted = _alone(parts, state)
    sure = 1.0
    if parts.pairs:
        explained = explained_by(parts.pairs, wanted, state.known)
        sure, state = _sure(parts, state, pairs, explained)
        wanted |= _pairs(parts, state, pairs, explained, sure)
    later: tuple[Clique, ...] = ()
    if sure > 1 / 2 and (last or dense(parts.triples, queryable.domain, best.total, 2 * queryable.left / rows**2)):
        larger = _triples(queryable, parts, state, pairs, budget)
        # What is measured of a triple is what its pairs do not say, and they are nearest in the last round.
        wanted, later = wanted | larger, () if last else tuple(larger)
    rho = queryable.left if last else budget - (begun - queryable.left)
    precisions = allocate(wanted, parts.asked, 2 * queryable.left / rows**2, 2 * rho / rows**2, later)
    if later:
        rho = min(rho, math.fsum(precisions[tau] * wanted[tau].cost for tau in precisions) * rows**2 / 2)
    noisy = measure_residuals(queryable, precisions, rho, state.known.groups)
    report = {
        "round": len(state.rounds) + 1,
        "measured": len(noisy),
        "left": queryable.left,
        "stddev": pairs.stddev,
        "error": math.fsum(pairs.distances.values()) / max(len(pairs.distances), 1) / best.total,
    }
    state = replace(state, rounds=(*state.rounds, report), measured=(*state.measured, *noisy))
    if last:  # what is measured is decided by what is known without smoothing, which every pair's score would see
        state = replace(
            state, known=replace(state.known, ordered={name: one.ordered for name, one in (alike or {}).items()})
        )
    return _estimated(state, noisy, pairs, last=last)


def _alone(parts: Parts, state: State) -> dict[Clique, Residual]:
    """What is known of the total and of singles, by their precisions."""
    domain, best, precisions = state.known.domain, state.best, state.known.precisions
    found: dict[Clique, Residual] = {(): certain(1.0, 1.0, precisions[()])}
    alone = spreads({(name,): best.singles[name,] for name in parts.singles}, precisions)
    for clique, (cells, sure) in alone.items():
        found[clique] = certain(cells, cost(domain, clique), precisions.get(clique, 0.0), sure)
    return found


def _sure(parts: Parts, state: State, scores: Scores, explained: Mapping[Clique, float]) -> tuple[float, State]:
    """(the chance that scores show more than noise of singles, the state with that evidence).

    Once a pair has been measured its estimate has other errors than those of singles, and nothing is doubted.
    """
    if not state.known.cliques.isdisjoint(parts.pairs):
        return 1.0, state
    # No score says that there is nothing: less than no evidence is a chance too.
    state = replace(state, evidence=max(state.evidence + evidence(scores, explained), 0.0))
    return chance(state.evidence), state


def _pairs(
    parts: Parts, state: State, scores: Scores, explained: Mapping[Clique, float], sure: float
) -> dict[Clique, Residual]:
    """What is known of pairs, by their scores, and by the chance that these show anything but noise of singles."""
    best, precisions = state.best, state.known.precisions
    spread, nothing = effective_all(coarse.seen(state.known, state.best)), (1 - sure) * np.eye(1, len(scores.cases))[0]
    return {
        pair: scored(
            uneven(spread[pair], scores.distances[pair] / best.total),
            Centring(state.known.shape(pair)).squared_sensitivity,
            precisions.get(pair, 0.0),
            scores.cases,
            sure * scores.chances[pair] + nothing,
            explained[pair],
        )
        for pair in parts.pairs
    }


def _triples(
    queryable: PrivateQueryable, parts: Parts, state: State, pairs: Scores, budget: float
) -> dict[Clique, Residual]:
    """What is known of triples, by scores that are taken now; none where these would take too much.

    Privacy: spends at most SHARE of the round's budget.
    """
    rho = scoring(len(parts.triples), queryable.rows, state.best.total, budget)
    if not rho:
        return {}
    read = Fitted(components=state.known, estimate=state.best)
    priors = {triple: read.marginal(triple) for triple in parts.triples}
    return residuals(state.known, priors, score(queryable, priors, rho), pairs)


def _estimated(state: State, noisy: Sequence[LinearMeasurement], scores: Scores, *, last: bool) -> State:
    """The estimates from all that is known now, combined as residuals say whose noise these have not seen.

    That are this round's, of the estimates of the round before. The last round's are judged as well by halves of all that is known.
    """
    known = state.known.added(noisy)
    seen = _pseudo(state, scores) if mixable(known.domain, [name for (name,) in state.best.singles]) else []
    models, found = _models(known, state, seen, SEEDS)
    judged = [] if state.models is None else [(state.models, noisy)]
    if last and quick(known.domain, [name for (name,) in state.best.singles]):
        half, rest = combination.halves(known)
        judged.append((_models(half, replace(state, mixtures=()), seen, SEEDS[:1])[0], rest))
    best = combination.best(models, judged)
    return replace(state, known=known, best=best, models=models, mixtures=found)


def _models(
    known: ResidualEstimates, state: State, seen: Sequence[LinearMeasurement], seeds: Sequence[int]
) -> tuple[combination.Models, Sequence[Mixture]]:
    """(the estimates, the mixtures of which one is made), from what is known and for mixtures from what else is seen."""
    names, pairs = [name for (name,) in state.best.singles], list(state.best.pairs)
    begun = first(known, names, pairs, max(float(known.values[()]), 1.0))
    tree, mixed, counted, found = by_tree(known, begun), None, None, list[Mixture]()
    # Of singles alone a mixture knows less than their product: it fits their noise.
    if not known.cliques.isdisjoint(pairs) and mixable(known.domain, names):
        before = state.mixtures
        found = mixtures(
            known.filled(tree.pairs).added(seen), tree, components=COMPONENTS, steps=STEPS, seeds=seeds, before=before
        )
        mixed = by_mixtures(known, found, tree)
    if pairs and combination.comparable(known.domain, pairs):
        counted = by_counts(known, begun)
    return combination.Models(known=known, tree=tree, mixture=mixed, counted=counted), found


def _pseudo(state: State, scores: Scores) -> list[LinearMeasurement]:
    """The estimate that was scored as an observation of each pair's residual, as precise as its score says.

    What was measured of the pair before is part of that estimate, and is not counted twice.
    """
    found, spread = [], effective_all(coarse.seen(state.known, state.best))
    for pair, table in state.best.pairs.items():
        distance = math.hypot(scores.distances[pair], scores.stddev)
        erring = uneven(spread[pair], scores.distances[pair] / state.best.total)
        gained = prior_precision(distance, spread[pair], erring) - state.known.precisions.get(pair, 0.0)
        if gained > 0:
            gained *= state.known.domain.cells(pair) / math.prod(state.known.shape(pair))
            found.append(residual_measurement(state.known.domain, pair, table, 1 / gained))
    return found
