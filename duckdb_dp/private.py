"""The only module that adds noise to exact counts: it charges, draws exact noise, stores, and only then returns."""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, final

import numpy as np

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.accounting.event import AdaptiveEvent, Event, ThresholdEvent
from duckdb_dp.accounting.journal import Journal, Step
from duckdb_dp.accounting.ledger import Dataset, Ledger, Release
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.sums import Exact, ExactSums
from duckdb_dp.domain.domain import Clique, Domain, canonical
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Centring, Identity, Integers, LinOp, Measurable
from duckdb_dp.noise.gaussian import expect_draws
from duckdb_dp.noise.grid import grid_step
from duckdb_dp.noise.kinds import GAUSSIAN, NOISES, Noise
from duckdb_dp.noise.select import exponential
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.plan.candidate import Candidate as Candidate
from duckdb_dp.plan.choose import PrivacyCost
from duckdb_dp.plan.direct import AnyPlan, DirectPlan
from duckdb_dp.plan.unknown_values import ThresholdNoise
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.request import Request

VARIANCES = "variances"
"""Name of the array, in a stored release, that holds the variance of each measurement."""

KEPT_BYTES = 1 << 28
"""Bytes of exact marginals that a ``PrivateQueryable`` holds in memory."""

SEED = "seed"
"""What a journal calls random words."""

LARGEST_DISTANCE = 2.0**33
"""An L1 distance is cut off here, which keeps its sensitivity, so that the error of its sum in doubles has a bound."""

DISTANCE_ERROR = 2.0**-13
"""Bound on that error and the ones after it: numpy's pairwise sum of 2^29 numbers loses less than 64 units of 2^-53 * 2^33."""


@final
class PrivateQueryable:
    """Exact counts that answer only with noise; what each answer costs is counted against the request's one charge.

    Costs are rho, half the privacy cost beta of Gaussian noise: mu^2 / 2 in Gaussian DP. They add up over
    adaptive steps.

    Every result is stored in the journal before it is returned. So after any failure a retry is given the same steps again,
    with the same noise, and no step is drawn twice.

    Args:
        counts: the exact counts.
        total: what all steps together may cost, in rho.
        accounting: the dataset's; not the pure one.
        rows: rows k of one privacy unit: k times the sensitivity of one row.
        bits: the source of noise.
        journal: stores the steps, and has those of an earlier attempt; None: steps are not stored.

    Privacy: spends the rho of each step, at most ``total`` together.
    """

    def __init__(
        self,
        counts: Counts,
        *,
        total: float,
        accounting: Accounting,
        rows: int,
        bits: EntropySource,
        journal: Journal | None = None,
    ) -> None:
        self._counts = counts
        self._journal = journal
        self._total = total
        self._spent = 0.0
        self._bits = bits
        self._distances: dict[Clique, float] = {}
        self._exact: dict[Clique, Integers] = {}
        self._held = 0
        self.accounting = accounting
        self.rows = rows

    @property
    def domain(self) -> Domain:
        """The attributes in use; public."""
        return self._counts.domain

    @property
    def left(self) -> float:
        """rho still to be spent; public."""
        return max(0.0, self._total - self._spent)

    def measure(self, clique: Clique, strategy: LinOp, rho: float) -> LinearMeasurement:
        """B mu + N(0, v I) of one marginal mu, v = k^2 max_i [B^T B]_ii / (2 rho), exactly.

        Privacy: spends rho.
        """
        (measurement,) = self.measure_all([(clique, strategy, rho)])
        return measurement

    def measure_all(self, asked: Iterable[tuple[Clique, LinOp, float]]) -> list[LinearMeasurement]:
        """As ``measure`` of each (clique, strategy, rho), stored in the journal together, which takes less time.

        Privacy: spends the sum of all rho.
        """
        steps = list(asked)
        return [
            LinearMeasurement(clique=clique, strategy=strategy, answers=answers, variance=variance)
            for (clique, strategy, _), (answers, variance) in zip(steps, self.answer_all(steps), strict=True)
        ]

    def measure_marginals(self, asked: Iterable[tuple[Clique, float]]) -> list[LinearMeasurement]:
        """The cells of the marginal of each (clique, rho), measured directly.

        Privacy: spends the sum of all rho.
        """
        return self.measure_all((clique, Identity(self.domain.cells(clique)), rho) for clique, rho in asked)

    def measure_residuals(self, asked: Iterable[tuple[Clique, float]]) -> list[LinearMeasurement]:
        """The residual of each (clique, rho): the part of its marginal that smaller marginals do not determine.

        Privacy: spends the sum of all rho.
        """
        return self.measure_all((clique, Centring(self.domain.shape(clique)), rho) for clique, rho in asked)

    def answer_all(self, asked: Iterable[tuple[Clique, Measurable, float]]) -> list[tuple[Array, float]]:
        """(answers + N(0, variance I), variance) of each (clique, query, rho); a query need not be linear.

        Privacy: spends the sum of all rho.
        """
        steps = [
            self._taken(
                canonical(["measure", clique, type(query).__name__, *getattr(query, "shape", ())]),
                rho,
                partial(self._answered, clique, query),
            )
            for clique, query, rho in asked
        ]
        return [(step.values, step.variance) for step in self._kept(steps)]

    def _answered(self, clique: Clique, query: Measurable, rho: float) -> tuple[Array, float]:
        variance = self.rows**2 * query.squared_sensitivity / (2 * rho)
        return _noisy(query, variance, self._marginal(clique), self._bits, GAUSSIAN), variance

    def seed(self) -> list[int]:
        """Random words for post-processing; a retry gets the same.

        Privacy: spends nothing.
        """
        step = self._taken(SEED, 0.0, lambda _: (self._bits.uint64(4).view(np.float64), 0.0))
        (kept,) = self._kept([step])
        return [int(word) for word in kept.values.view(np.uint64)]

    def selection_epsilon(self, rho: float) -> float:
        """The epsilon of an exponential mechanism that costs rho: sqrt(8 rho) in zCDP, and in Gaussian DP 4/5 of it; public."""
        return self.accounting.selection_epsilon(self.accounting.gaussian_cost(2 * rho))

    def select(
        self,
        candidates: Sequence[Candidate],
        estimate: Callable[[Clique], Array],
        rho: float,
        changed: Collection[Clique] | None = None,
    ) -> int:
        """The index of a candidate, by the exact exponential mechanism on weight * (||mu - estimate||_1 - bias).

        One unit changes each score by at most max weight * k.

        Args:
            candidates: the candidates, whose weights are not negative.
            estimate: the current estimate of a marginal, any shape with its cells.
            rho: what the selection may cost.
            changed: the cliques whose estimate changed since the last selection; None for all.

        Source: [AIM+GReM] Alg. 4 line 9; the sensitivity is `docs/privacy.md`'s.

        Privacy: spends rho.
        """
        cliques = canonical([candidate.clique for candidate in candidates])
        asked = canonical(["select", hashlib.sha256(cliques.encode()).hexdigest()])
        step = self._taken(asked, rho, partial(self._selected, candidates, estimate, changed))
        (kept,) = self._kept([step])
        return int(kept.values[0])

    def _selected(
        self,
        candidates: Sequence[Candidate],
        estimate: Callable[[Clique], Array],
        changed: Collection[Clique] | None,
        rho: float,
    ) -> tuple[Array, float]:
        stale = {c.clique for c in candidates} if changed is None else set(changed)
        for candidate in candidates:
            if candidate.clique in stale or candidate.clique not in self._distances:
                self._distances[candidate.clique] = self._distance(candidate.clique, estimate(candidate.clique))
        weight = max(candidate.weight for candidate in candidates)
        scores = np.array([c.weight * (self._distances[c.clique] - c.bias) for c in candidates])
        error = weight * (DISTANCE_ERROR + 2.0**-50 * max(abs(c.bias) for c in candidates))
        epsilon = self.selection_epsilon(rho)
        chosen = exponential(scores, weight * self.rows, epsilon, error=error, bits=self._bits)
        return np.array([chosen], np.float64), 0.0

    def _taken(self, asked: str, rho: float, draw: Callable[[float], tuple[Array, float]]) -> tuple[Step, bool]:
        """A step, and whether it is new: either a stored step of an earlier attempt, or one drawn now."""
        known = None if self._journal is None else self._journal.next(asked, rho)
        if asked != SEED:
            self._pay(rho if known is None else known.rho)
        if known is not None:
            return known, False
        values, variance = draw(rho)
        return Step(asked=asked, rho=rho, variance=variance, values=values), True

    def _kept(self, steps: Sequence[tuple[Step, bool]]) -> list[Step]:
        """The steps, after the new ones are stored on disk; nothing that was drawn is returned before that."""
        if self._journal is not None:
            self._journal.keep([step for step, new in steps if new])
        return [step for step, _ in steps]

    def _distance(self, clique: Clique, estimate: Array) -> float:
        gap = np.abs(self._marginal(clique) - estimate.reshape(-1))
        return min(float(gap.sum()), LARGEST_DISTANCE)

    def _marginal(self, clique: Clique) -> Integers:
        """Exact counts; held in memory up to a limit, because scoring reads the same marginals in every round."""
        if clique not in self._exact:
            counts = self._counts.marginal(clique)
            if self._held + counts.nbytes > KEPT_BYTES:
                return counts
            self._exact[clique] = counts
            self._held += counts.nbytes
        return self._exact[clique]

    def _pay(self, rho: float) -> None:
        if not (rho > 0 and self._spent + rho <= self._total * (1 + 1e-12)):
            raise AssertionError(f"a step of rho {rho!r} does not fit into the {self.left!r} left of the charge")
        self._spent += rho


def perform(
    run: Callable[[PrivateQueryable], Mapping[str, Array]],
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

    A request that was charged before is not charged again: a stored release is returned as it is, and one that was
    charged but never stored is finished now, from the steps that were taken before.

    Args:
        run: (the ``PrivateQueryable``) -> the noisy arrays to store.
        counts: the exact counts.

    Raises:
        DPError: the budget left is too small, or the ledger cannot be written. Nothing has been drawn then.

    Privacy: spends request.cost, once per request (once more for each ``fresh_key``).
    """
    beta = PrivacyCost.of(request.calibrated, request.accounting).beta
    assert beta is not None, "adaptive mechanisms add Gaussian noise"
    event = AdaptiveEvent(total=request.cost, accounting=request.accounting)
    release = _charged(request, mechanism, event, ledger, dataset, bits, name=name, fresh_key=fresh_key)
    if release.state == "charged":
        with ledger.drawing(release) as journal:
            if journal is not None:
                total, rows = beta / 2, request.max_rows
                queryable = PrivateQueryable(
                    counts, total=total, accounting=request.accounting, rows=rows, bits=bits, journal=journal
                )
                ledger.store(release, run(queryable))
    return release


def measure(
    plan: AnyPlan,
    counts: Exact,
    *,
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
    of the plan's ideal mechanism: B x + N(0, s I), or Laplace noise of that variance.

    A request that was charged before is not charged again: a stored release is returned as it is, and one that was
    charged but never stored is drawn now, all at once. Nothing but the bounds of sums is computed from it before it is
    stored, which cannot fail, so whether that fails does not depend on the noise.

    Raises:
        DPError: the budget left is too small, the ledger cannot be written, or what the plan measures does not fit into
            memory. Nothing has been drawn then.

    Privacy: spends request.cost, once per request (once more for each ``fresh_key``).
    """
    if plan.refusal:
        raise DPError(plan.refusal)
    spent = event(plan.noise, request)
    release = _charged(request, plan.mechanism, spent, ledger, dataset, bits, name=name, fresh_key=fresh_key)
    if release.state == "charged":
        ledger.store(release, dict(_draw(plan, counts, bits, track)))
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
    noise = ThresholdNoise.of(request)
    event = ThresholdEvent(mu=noise.mu, delta=noise.delta)
    release = _charged(request, GAUSSIAN.name, event, ledger, bits=bits, **charge)
    if release.state == "charged":
        noisy = _noisy(Identity(len(counts)), noise.stddev**2, counts, bits, GAUSSIAN)
        above = noisy >= noise.least(grid_step(noise.stddev))
        ledger.store(release, {"counts": noisy[above], **kept(above)})
    return release


def event(noise: str, request: Request) -> Event:
    """The event of a plan with that noise: it costs what the request costs."""
    return NOISES[noise].event(request.cost, request.accounting)


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


def _draw(plan: AnyPlan, counts: Exact, bits: EntropySource, track: Track) -> Iterator[tuple[str, Array]]:
    yield VARIANCES, np.array([measurement.variance for measurement in plan.measurements])
    yield from plan.dump().items()
    drawn: dict[str, Array] = {}
    expect_draws(sum([measurement.strategy.shape[0] for measurement in plan.measurements]))
    order = counts.order([measurement.clique for measurement in plan.measurements])
    for index in track(order, "drawing noise"):
        measurement = plan.measurements[index]
        if isinstance(plan, DirectPlan) and isinstance(counts, ExactSums):
            exact = counts.within(measurement.clique, plan.limits(measurement.clique, drawn))
        else:
            exact = counts.marginal(measurement.clique)
        drawn[str(index)] = _noisy(measurement.strategy, measurement.variance, exact, bits, NOISES[plan.noise])
    yield from drawn.items()


def _noisy(query: Measurable, variance: float, exact: Integers, bits: EntropySource, noise: Noise) -> Array:
    """The grid points nearest to B x + noise, a function of the ideal noisy answers alone."""
    stddev = math.sqrt(variance)
    step = grid_step(stddev)
    answers, errors = query.apply(exact)

    def centre(index: int) -> Fraction:
        return query.exact(exact, index) / Fraction(step)

    # Dividing by a power of 2 is exact.
    points = noise.draw(answers / step, errors / step, stddev / step, centre, bits=bits)
    return points.astype(np.float64) * step
