"""Exact counts that answer step by step, with exact noise and against one charge: a part of ``private``, which hands them out."""

import copy
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import final

import numpy as np

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.accounting.journal import Journal, Step
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.partners import partners_of
from duckdb_dp.counting.some_rows import SomeRows
from duckdb_dp.domain.domain import Clique, Domain, canonical
from duckdb_dp.domain.turns import Turns
from duckdb_dp.linop import Array, Centring, Identity, Integers, LinOp, Measurable
from duckdb_dp.noise.answers import noisy_all
from duckdb_dp.noise.kinds import GAUSSIAN
from duckdb_dp.noise.select import exponential
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.plan.candidate import Candidate
from duckdb_dp.reconstruct.measurement import LinearMeasurement

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

    Every result is stored in the journal before it is returned: a retry is given the same steps again, and none is drawn twice.

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
        self._counts: Counts | SomeRows = counts
        self._journal = journal
        self._total = total
        self._spent = [0.0]  # one sum with those of some rows
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

    def partners(self, end: int) -> tuple[int, bool] | None:
        """How many rows a side has, and whether the synthetic table has these very rows, where their links are counted; public."""
        assert isinstance(self._counts, Counts), "links are of no turns"
        found = self._counts.partners.get(partners_of(end))
        return None if found is None else (found.rows, found.original)

    def of_turns(self, turns: Turns, first: int, end: int) -> "PrivateQueryable":
        """The same rows of each unit whose turn is in the classes from ``first`` to before ``end``, against the same charge.

        So many of a unit's rows are in these, and its noise covers no more: one unit more or less moves no other unit's turns.
        """
        assert isinstance(self._counts, Counts), "all rows have turns"
        assert turns.last[-1] == self.rows, "turns are those of all rows that count"
        found = copy.copy(self)
        found._counts = SomeRows(counts=self._counts, turns=turns, first=first, end=end)
        found._distances, found._exact, found._held = {}, {}, 0
        found.rows = turns.rows(first, end)
        return found

    def in_groups(self, groups: Mapping[str, Integers]) -> "PrivateQueryable":
        """The same counts with some attributes in groups of their values, against the same charge: a row is in one cell, as before.

        Args:
            groups: attribute -> the group of each of its values, numbered from 0; public, or noisy.
        """
        assert isinstance(self._counts, Counts), "links are of no turns"
        found = copy.copy(self)
        found._counts = self._counts.in_groups(groups)
        found._distances, found._exact, found._held = {}, {}, 0
        return found

    @property
    def left(self) -> float:
        """rho still to be spent; public."""
        return max(0.0, self._total - self._spent[0])

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
        return self._answered(asked, self._paid)

    def answer_parts(self, clique: Clique, parts: Iterable[Measurable], rho: float) -> list[Array]:
        """Answers of parts of one strategy, each of which states the sensitivity of the whole; more may follow on a retry.

        Privacy: spends rho, once for all parts.
        """
        self._pay(rho)
        return [answers for answers, _ in self._answered(((clique, part, rho) for part in parts), self._known)]

    def _answered(
        self, asked: Iterable[tuple[Clique, Measurable, float]], find: Callable[[str, float], Step | None]
    ) -> list[tuple[Array, float]]:
        steps: list[Step] = []
        new: list[tuple[str, float, float, Clique, Measurable]] = []
        for clique, query, rho in asked:
            name = canonical(["measure", clique, type(query).__name__, *getattr(query, "shape", ())])
            if (known := find(name, rho)) is not None:
                steps.append(known)
            else:
                new.append((name, rho, self.rows**2 * query.squared_sensitivity / (2 * rho), clique, query))
        self._hold([clique for *_, clique, _ in new])
        for variance, group in itertools.groupby(new, key=lambda one: one[2]):
            alike = list(group)
            exact = ((query, self._marginal(clique)) for *_, clique, query in alike)
            for one, values in zip(alike, noisy_all(exact, variance, self._bits, GAUSSIAN), strict=True):
                steps.append(Step(asked=one[0], rho=one[1], variance=variance, values=values))
        self._keep(steps[-len(new) :] if new else [])
        return [(step.values, step.variance) for step in steps]

    def seed(self) -> list[int]:
        """Random words for post-processing; a retry gets the same.

        Privacy: spends nothing.
        """
        step = self._taken(SEED, 0.0, lambda _: self._bits.uint64(4).view(np.float64))
        return [int(word) for word in step.values.view(np.uint64)]

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
        return int(self._taken(asked, rho, partial(self._selected, candidates, estimate, changed)).values[0])

    def _selected(
        self,
        candidates: Sequence[Candidate],
        estimate: Callable[[Clique], Array],
        changed: Collection[Clique] | None,
        rho: float,
    ) -> Array:
        stale = {c.clique for c in candidates} if changed is None else set(changed)
        for candidate in candidates:
            if candidate.clique in stale or candidate.clique not in self._distances:
                gap = np.abs(self._marginal(candidate.clique) - estimate(candidate.clique).reshape(-1))
                self._distances[candidate.clique] = min(float(gap.sum()), LARGEST_DISTANCE)
        weight = max(candidate.weight for candidate in candidates)
        scores = np.array([c.weight * (self._distances[c.clique] - c.bias) for c in candidates])
        error = weight * (DISTANCE_ERROR + 2.0**-50 * max(abs(c.bias) for c in candidates))
        epsilon = self.selection_epsilon(rho)
        chosen = exponential(scores, weight * self.rows, epsilon, error=error, bits=self._bits)
        return np.array([chosen], np.float64)

    def _taken(self, asked: str, rho: float, draw: Callable[[float], Array]) -> Step:
        """A step without variance: a stored one of an earlier attempt, or one drawn now."""
        step = self._paid(asked, rho)
        if step is None:
            self._keep([step := Step(asked=asked, rho=rho, variance=0.0, values=draw(rho))])
        return step

    def _paid(self, asked: str, rho: float) -> Step | None:
        """The stored step of an earlier attempt, None where there is none; either is counted against the charge."""
        known = self._known(asked, rho)
        if asked != SEED:
            self._pay(rho if known is None else known.rho)
        return known

    def _known(self, asked: str, rho: float) -> Step | None:
        """The same, uncounted."""
        return None if self._journal is None else self._journal.next(asked, rho)

    def _keep(self, steps: Sequence[Step]) -> None:
        """Store new steps on disk; nothing that was drawn is returned before that."""
        if self._journal is not None:
            self._journal.keep(steps)

    def _marginal(self, clique: Clique) -> Integers:
        """Exact counts; held in memory up to a limit, because scoring reads the same marginals in every round."""
        if clique not in self._exact:
            counts = self._counts.marginal(clique)
            if self._held + counts.nbytes > KEPT_BYTES:
                return counts
            self._exact[clique] = counts
            self._held += counts.nbytes
        return self._exact[clique]

    def _hold(self, cliques: Sequence[Clique]) -> None:
        """Count marginals of a few tables that several of them share, where all of them can be held."""
        domain = self.domain
        wanted = [
            clique
            for clique in dict.fromkeys(cliques)
            if clique not in self._exact and domain.sizes.keys() >= {*clique}
        ]
        if self._held + 8 * sum(map(domain.cells, wanted)) <= KEPT_BYTES:
            for place in self._counts.order(wanted):
                self._marginal(wanted[place])

    def _pay(self, rho: float) -> None:
        if not (rho > 0 and self._spent[0] + rho <= self._total * (1 + 1e-12)):
            raise AssertionError(f"a step of rho {rho!r} does not fit into the {self.left!r} left of the charge")
        self._spent[0] += rho
