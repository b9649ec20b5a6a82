"""The only module, with ``queryable``, that adds noise to exact counts: it charges, draws exact noise, stores, and only then returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from duckdb_dp.accounting.event import AdaptiveEvent, Event, ThresholdEvent
from duckdb_dp.accounting.ledger import Dataset, Ledger, Release
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.sums import Exact, ExactSums
from duckdb_dp.domain.domain import Clique
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Identity, Integers
from duckdb_dp.noise.answers import noisy
from duckdb_dp.noise.gaussian import expect_draws
from duckdb_dp.noise.grid import grid_step
from duckdb_dp.noise.kinds import GAUSSIAN, NOISES
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.plan.base import Plan
from duckdb_dp.plan.candidate import Candidate as Candidate
from duckdb_dp.plan.choose import PrivacyCost
from duckdb_dp.plan.requested import event
from duckdb_dp.progress import Track, silent
from duckdb_dp.queryable import PrivateQueryable as PrivateQueryable
from duckdb_dp.request import Request

if TYPE_CHECKING:
    from duckdb_dp.plan.clipping import Clip
    from duckdb_dp.plan.direct import AnyPlan, DirectPlan
    from duckdb_dp.plan.selection import Selection

VARIANCES = "variances"
"""Name of the array, in a stored release, that holds the variance of each measurement."""


def perform(
    run: Callable[[PrivateQueryable], Mapping[str, Array] | None],
    counts: Counts,
    *,
    request: Request,
    mechanism: str,
    ledger: Ledger,
    dataset: Dataset,
    bits: EntropySource,
    name: str | None = None,
    fresh_key: str | None = None,
) -> Release:
    """Charge the whole request, let an adaptive mechanism spend it step by step, and store the result.

    A request that was charged before is not charged again: it is finished from the steps that were taken before.

    Args:
        run: (the ``PrivateQueryable``) -> the noisy arrays to store; None while more steps are to come, another time.
        counts: the exact counts.

    Raises:
        DPError: the budget left is too small, or the ledger cannot be written. Nothing has been drawn then.

    Privacy: spends request.cost, once per request (once more for each ``fresh_key``).
    """
    beta = PrivacyCost.of(request.calibrated, request.accounting).beta
    assert beta is not None, "adaptive mechanisms add Gaussian noise"
    steps = AdaptiveEvent(total=request.cost, accounting=request.accounting)
    release = _charged(request, mechanism, steps, ledger, dataset, bits, name=name, fresh_key=fresh_key)
    if release.state == "charged":
        with ledger.drawing(release) as journal:
            if journal is not None:
                total, rows = beta / 2, request.max_rows
                queryable = PrivateQueryable(
                    counts, total=total, accounting=request.accounting, rows=rows, bits=bits, journal=journal
                )
                if (arrays := run(queryable)) is None:
                    journal.sync()
                else:
                    ledger.store(release, arrays)
    return release


def measure(
    plan: AnyPlan,
    counts: Exact,
    *,
    selections: Sequence[Selection] = (),
    request: Request,
    ledger: Ledger,
    dataset: Dataset,
    bits: EntropySource,
    name: str | None = None,
    fresh_key: str | None = None,
    track: Track = silent,
) -> Release:
    """The stored release of a request: it is charged, and every strategy answer measured with exact noise.

    Each answer is the nearest grid point to an ideal real draw around the exact answer, so that it is post-processing
    of the plan's ideal mechanism: B x + N(0, s I), or Laplace noise of that variance. Then the ``selections`` are drawn.

    A request that was charged before and never stored is drawn now, all at once, at no new charge. Nothing but bounds of sums and
    a fit of prefixes is computed from it before it is stored, which cannot fail: no failure depends on the noise.

    Raises:
        DPError: the budget left or memory is too small, or the ledger cannot be written. Nothing has been drawn then.

    Privacy: spends request.cost, once per request (once more for each ``fresh_key``).
    """
    if plan.refusal:
        raise DPError(plan.refusal)
    keys: dict[str, Any] = {"name": name, "fresh_key": fresh_key}
    if isinstance(counts, ExactSums) and counts.by_cells and not isinstance(plan, Plan) and _norms(plan):
        keys["choose"] = partial(_choices, plan, counts, bits)
    release = _charged(request, plan.mechanism, event(plan, request), ledger, dataset, bits, **keys)
    if release.state == "charged":
        if "choose" in keys and not isinstance(plan, Plan):
            _check_choices(release, plan)
        ledger.store(release, dict(_draw(plan, counts, bits, track, selections, release.choices)))
    return release


def measure_values(
    counts: Integers,
    kept: Callable[[np.ndarray], Mapping[str, Array]],
    *,
    request: Request,
    ledger: Ledger,
    bits: EntropySource,
    **charge: Any,
) -> Release:
    """Charge a request for unknown values, and store those whose noisy count is above the threshold.

    Args:
        counts: how many units hold each value, 1 or more; one unit is in at most ``max_values`` of them, once.
        kept: which of the counts are stored, as a mask -> parts of arrays made before that say which values those are.

    Privacy: spends request.cost and the delta of its options, once per request.
    """
    from duckdb_dp.plan.unknown_values import ThresholdNoise  # for import time

    noise = ThresholdNoise.of(request)
    threshold = ThresholdEvent(mu=noise.mu, delta=noise.delta)
    release = _charged(request, GAUSSIAN.name, threshold, ledger, bits=bits, **charge)
    if release.state == "charged":
        found = noisy(Identity(len(counts)), noise.stddev**2, counts, bits, GAUSSIAN)
        above = found >= noise.least(grid_step(noise.stddev))
        ledger.store(release, {"counts": found[above], **kept(above)})
    return release


def _charged(
    request: Request, mechanism: str, event: Event, ledger: Ledger, dataset: Dataset, bits: EntropySource, **keys: Any
) -> Release:
    """The release of a request, which is charged on disk before anything is drawn."""
    return ledger.charge(
        function=request.function,
        request=request.to_json(),
        mechanism=mechanism,
        event=event,
        dataset=dataset,
        private=bits.private,
        **keys,
    )


def _draw(
    plan: AnyPlan,
    counts: Exact,
    bits: EntropySource,
    track: Track,
    selections: Sequence[Selection],
    choices: Sequence[int],
) -> Iterator[tuple[str, Array]]:
    from duckdb_dp.plan import sum_bounds  # for import time

    yield VARIANCES, np.array([measurement.variance for measurement in plan.measurements])
    yield from plan.dump().items()
    clips = () if isinstance(plan, Plan) else plan.clips
    drawn = {clip.name: _chosen(clip, counts, bits) for clip in clips if clip.chosen and clip.rows}
    if not isinstance(plan, Plan):
        drawn |= {
            clip.name: _told(clip, counts, place, choices) for place, clip in enumerate(_norms(plan)) if clip.chosen
        }
    expect_draws(sum([measurement.strategy.shape[0] for measurement in plan.measurements]))
    order = counts.order([measurement.clique for measurement in plan.measurements])

    def exact(clique: Clique) -> tuple[Integers, float]:  # and how many rows of a unit count, where that is chosen
        if isinstance(plan, Plan) or not isinstance(counts, ExactSums):
            return counts.marginal(clique), 1.0
        if (clip := plan.clip_of(clique)) is not None and clip.rows:
            choice = int(drawn[clip.name][0])
            return counts.first_rows(clique, choice), clip.rows_of(choice)
        if clip is not None:
            cut = clip.chosen and counts.by_cells
            return counts.cut(clique, int(drawn[clip.name][0])) if cut else counts.marginal(clique), 1.0
        drawn.update(sum_bounds.choice(plan, clique, drawn))
        return counts.within(clique, sum_bounds.limits(plan, clique, drawn)), 1.0

    for index in track(order, "drawing noise"):
        measurement = plan.measurements[index]
        answers, rows = exact(measurement.clique)
        drawn[str(index)] = noisy(
            measurement.strategy, measurement.variance * rows**2, answers, bits, NOISES[plan.noise]
        )
    for selection in selections:
        drawn[selection.name] = selection.draw(*exact(selection.clique), drawn, bits)
    yield from drawn.items()


def choose_bounds(
    plan: DirectPlan, counts: ExactSums, *, request: Request, bits: EntropySource, **charge: Any
) -> list[int]:
    """Charge a request, and choose its bounds on norms: (bound, first, second) of each, the numbers of candidates.

    A statement asks for them in its midst, as what it adds up then depends on them. They are stored with the charge: so a statement that
    fails afterwards, which may depend on them, is not given others. Where the release is stored already, nothing is drawn.

    Args:
        counts: how many owners have their norm in each cell.

    Raises:
        DPError: as ``measure``.

    Privacy: spends request.cost, once per request; ``measure`` draws the rest.
    """
    if plan.refusal:
        raise DPError(plan.refusal)
    clips, choose = _norms(plan), partial(_choices, plan, counts, bits)
    release = _charged(request, plan.mechanism, event(plan, request), bits=bits, choose=choose, **charge)
    _check_choices(release, plan)
    return list(release.choices) or [0, 0, 0] * len(clips)


def _norms(plan: DirectPlan) -> list[Clip]:
    from duckdb_dp.plan.clipping import by_norm  # for import time

    return by_norm(plan.clips)


def _check_choices(release: Release, plan: DirectPlan) -> None:
    if release.state == "charged" and len(release.choices) != 3 * len(_norms(plan)):
        raise DPError(
            f"release {release.id} was begun by another version: finish it there, or ask with fresh := true, which is charged anew."
        )


def _choices(plan: DirectPlan, counts: ExactSums, bits: EntropySource) -> list[int]:
    """(bound, first, second) of each bound on a norm, the numbers of candidates; as ``choose_bounds`` returns them.

    Privacy: spends what the selections of ``_chosen`` cost.
    """
    drawn = [_chosen(clip, counts, bits)[:3].tolist() if clip.chosen else [0, 0, 0] for clip in _norms(plan)]
    return [int(found) for each in drawn for found in each]


def _told(clip: Clip, counts: Exact, place: int, choices: Sequence[int]) -> Array:
    """What was chosen before, as ``_chosen``: by ``choose_bounds``, or with the charge."""
    from duckdb_dp.plan.clipping import NONE  # for import time

    assert isinstance(counts, ExactSums)
    found = choices[3 * place : 3 * place + 3] if counts.by_cells else counts.choice(place)
    return np.array([*found, clip.lowest, NONE], np.float64)


def _chosen(clip: Clip, counts: Exact, bits: EntropySource) -> Array:
    """(bound, first, second, lowest): the numbers of its candidate and of those that one selection or two found, and their octave.

    They are drawn by the exact exponential mechanism.

    It is the first one where the budget is too small to tell anything.

    Privacy: spends at most what a selection of clip.epsilon and one of clip.steep cost.
    """
    from duckdb_dp.noise.select import exponential  # for import time: only chosen bounds are selected
    from duckdb_dp.plan.clipping import LEAST, NONE, SCORE_ERROR

    assert isinstance(counts, ExactSums)
    if clip.epsilon < LEAST:
        return np.array([0, 0, 0, clip.lowest, NONE], np.float64)
    owners = counts.owners(clip.sums[0], clip.size)
    choice = exponential(clip.scores(owners), 1.0, clip.epsilon, error=SCORE_ERROR, bits=bits)
    if not clip.goes_on(choice):
        return np.array([choice, choice, choice, clip.lowest, NONE], np.float64)
    steep = exponential(clip.steep_scores(owners, choice), 1.0, clip.steep, error=SCORE_ERROR, bits=bits)
    return np.array([clip.moved(choice, steep), choice, steep, clip.lowest, NONE], np.float64)
