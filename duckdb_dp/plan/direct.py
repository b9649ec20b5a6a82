"""The plan of the direct route: sums over rows are measured one by one, and quantiles by prefix counts of public cells."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, final

from duckdb_dp.accounting.base import GDP, Accounting
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.grouped_sums import BITS, PER_OCTAVE, GroupedSums, Sum, sum_name, sum_number
from duckdb_dp.linop import Array, Identity
from duckdb_dp.noise.kinds import GAUSSIAN, LAPLACE, NOISES
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.plan.choose import PrivacyCost, choose
from duckdb_dp.plan.chosen_bounds import OF_BOUNDS
from duckdb_dp.plan.clipping import FORMER_NONE, NONE, OF_CHOICE, ROWS, STEEP, Clip, lost
from duckdb_dp.plan.histogram import Histogram
from duckdb_dp.plan.prefixes import prefixes
from duckdb_dp.plan.searched import PLAN
from duckdb_dp.plan.selection import INTERVALS
from duckdb_dp.plan.sensitivity import squared
from duckdb_dp.plan.weights import weighed
from duckdb_dp.reconstruct.quantiles import Prefixes
from duckdb_dp.request import Question


@final
@dataclass(frozen=True, kw_only=True)
class DirectPlan:
    """Clamped sums of groups with independent noise.

    A row adds at most S steps of the grid to one group of a sum. Each sum takes a share w of the cost, by its weight, and the
    numbers of rows with and without a value take one together, as a row adds to one of them alone. With Gaussian noise the
    variance is S^2 / (w beta), with Laplace noise 2 (S / (w epsilon))^2, in steps of the grid, for a unit of one row;
    ``cost`` is that of a row already. All quantiles of one value take one share, for the prefix counts in its cells.

    Where nothing bounds an owner's rows (``auto``), the vector of what it adds to all groups of a sum is clipped to a norm tau, L2 for
    Gaussian noise and L1 for Laplace noise, and counted in steps of tau / 2^BITS; of what has no norm, quantiles and numbers of
    distinct values, k rows of each owner count. ``OF_CHOICE`` of w chooses tau, or k.

    Counts that a ``Plan`` answers may be measured beside the sums: each of their query sets has the weight of one sum, and the plan
    takes the shares of all of them together. So their mean variance is at most what it is as sums.

    Attributes:
        parts: what is measured, by SELECT and grouping set.
        cost: the budget, for tables that differ by one row.
        rows: the rows k of a unit; of parts that say it fewer count, and their noise is as much less.
        auto: whether bounds are chosen for what an owner adds.
        clip: the norm that is declared instead.
        accounting: what a choice costs.
        select: whether quantiles are selected by their ranks.
        stored: what ``dump`` said when a stored release was drawn.
        beside: how many query sets are planned.
        planned: their plan.

    Privacy: costs nothing; measuring it costs ``cost``.
    """

    parts: tuple[GroupedSums, ...]
    cost: PrivacyCost
    rows: int = 1
    auto: bool = False
    clip: float | None = None
    accounting: Accounting = GDP
    select: bool = False
    stored: Mapping[str, Array] = field(default_factory=dict)
    beside: int = 0
    planned: Plan | None = None

    direct: ClassVar[str] = "direct"

    @property
    def mechanism(self) -> str:
        """Its name, and that of the plan beside it."""
        return self.direct if self.planned is None else f"{self.direct}, {self.planned.mechanism}"

    @property
    def refusal(self) -> str | None:
        """Why it cannot be measured."""
        return None if self.planned is None else self.planned.refusal

    @property
    def rest(self) -> float:
        """Part of the cost that is left for the plan."""
        return self.beside / self._total

    @property
    def noise(self) -> str:
        """The name of its kind: Gaussian unless only pure DP will do."""
        return LAPLACE.name if self.cost.beta is None else GAUSSIAN.name

    @property
    def quantile(self) -> float:
        """Half-width of a 95 % interval in standard deviations."""
        return NOISES[self.noise].quantile

    @cached_property
    def sums(self) -> tuple[tuple[GroupedSums, Sum], ...]:
        """Every sum, with the groups that it is taken over."""
        return tuple((part, one) for part in self.parts for one in part.sums)

    @cached_property
    def first(self) -> tuple[int | None, ...]:
        """For each sum the first one of its part with the same histogram; None for those without."""
        found: dict[tuple[int, Sum], int] = {}
        return tuple(
            None if one.histogram is None else found.setdefault((id(part), one.histogram), index)
            for index, (part, one) in enumerate(self.sums)
        )

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """Of each sum's own measurement; 0 of one that costs nothing beside others, or is read off a histogram."""
        known = {(id(part), one.value, one.where, one.weighed) for part, one in self.sums if one.kind == "known"}

        def free(part: GroupedSums, one: Sum) -> bool:
            paired = one.kind == "missing" and (id(part), one.value, one.where, one.weighed) in known
            return one.kind == "quantile" or paired

        return tuple(0.0 if free(part, one) else 1.0 for part, one in self.sums)

    @cached_property
    def histograms(self) -> dict[int, Histogram]:
        """By the first sum that needs it."""
        return {
            index: self._histogram(index, *self.sums[index]) for index in dict.fromkeys(self.first) if index is not None
        }

    @cached_property
    def clips(self) -> tuple[Clip, ...]:
        """The bounds on what an owner adds.

        One for each sum, for rows with and without a number together, and for the rows of each grouping set that quantiles and
        numbers of distinct values are taken over.
        """
        if not self.auto:
            return ()
        found: dict[Any, list[int]] = {}
        for index, (part, one) in enumerate(self.sums):
            if one.norm:
                pair = (one.value, one.where, one.weighed) if one.kind in ("known", "missing") else index
                found.setdefault((id(part), pair), []).append(index)
            elif part.source is None or not part.source.single:
                found.setdefault(id(part), []).append(index)
        return weighed([self._clip(tuple(indices)) for indices in found.values()], self.parts)

    def _clip(self, indices: tuple[int, ...]) -> Clip:
        part, one = self.sums[indices[0]]
        lowest, highest = one.octaves if one.norm else (0, ROWS)
        numbers = bool(one.norm) and not one.counts
        lowest -= NONE if numbers else 0
        if _once(part, one):
            highest = 0
        elif one.distinct:  # one for each group
            highest = math.ceil(math.log2(part.size) / (1 if self.cost.beta is None else 2))
        declared = self.clip if one.norm and not one.distinct and not _once(part, one) else None
        share, steep = self.choosing(indices), 0.0
        if one.norm and self.cost.beta is None:
            steep = share / (STEEP + 1)
        elif one.norm:  # selections cost the square of their epsilon, nearly
            steep = share / (STEEP**2 + 1)

        def epsilon(part_of_cost: float) -> float:
            if self.cost.beta is None or not part_of_cost:
                return self.cost.epsilon * part_of_cost
            return self.accounting.selection_epsilon(self.accounting.gaussian_cost(self.cost.beta * part_of_cost))

        return Clip(
            sums=indices,
            lowest=lowest,
            size=(highest - lowest) * PER_OCTAVE + 1,
            epsilon=epsilon(share - steep),
            steep=epsilon(steep),
            noise=self.stddev(indices[0]) * math.sqrt(part.size) if one.norm else 0.0,
            declared=declared,
            numbers=numbers,
            rows=not one.norm,
            lost=lost(part.size, self.stddev(indices[0])) if self._read_off(indices) else 0.0,
        )

    def _read_off(self, indices: Sequence[int]) -> bool:
        """Whether some sums are quantiles that are read off noisy prefixes."""
        return not self.select and all(self.sums[index][1].kind == "quantile" for index in indices)

    @cached_property
    def _clip_of(self) -> dict[int, Clip]:
        return {index: clip for clip in self.clips for index in clip.sums}

    @property
    def adaptive(self) -> bool:
        """Whether it is a selection beside noise that only pure DP counts alike."""
        return self.cost.beta is not None and (self.select or any(clip.chosen for clip in self.clips))

    def clip_of(self, name: Clique) -> Clip | None:
        """What bounds an owner's part of a measurement; None where its rows are bounded before."""
        index = sum_number(name)
        return None if index is None else self._clip_of.get(index)

    def shown(self, index: int) -> bool:
        """Whether an answer says where it was cut."""
        clip = self._clip_of.get(index)
        return clip is not None and (clip.chosen or clip.declared is not None)

    def bound(self, index: int, arrays: Mapping[str, Array]) -> float | None:
        """The norm, or the number of rows, that an owner's part of a sum was cut to; None where its rows are bounded before.

        NaN where too few owners told one.

        Privacy: post-processing.
        """
        clip = self._clip_of.get(index)
        if clip is None or not clip.chosen:
            return None if clip is None else clip.bound(0)
        choice, one = arrays[clip.name], self.sums[clip.sums[0]][1]
        former = one.former_lowest - FORMER_NONE * clip.numbers if one.norm else clip.lowest
        lowest, none = [*map(int, choice[3:]), *(former, FORMER_NONE)[len(choice[3:]) :]]
        return clip.bound(int(choice[0]), lowest, none)

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """Those of the sums, and then those of the plan."""
        return (*self.summed, *(() if self.planned is None else self.planned.measurements))

    @cached_property
    def summed(self) -> tuple[Measurement, ...]:
        """One for each sum, whose clique is a name that no attribute has, and those of the histograms."""
        own = [
            Measurement(clique=sum_name(index), strategy=Identity(part.size), variance=self.variance(index))
            for index, (part, one) in enumerate(self.sums)
            if one.kind != "quantile"
        ]
        return (*own, *(m for histogram in self.histograms.values() for m in histogram.measurements))

    def selected(self, first: int) -> tuple[float, ...]:
        """The quantiles, increasing, that are selected from the histogram of a first sum; () where they are read off it."""
        if not self.select:
            return ()
        asked = (one for (_, one), own in zip(self.sums, self.first, strict=True) if own == first)
        return tuple(sorted({one.quantile for one in asked if one.kind == "quantile"}))

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Name -> the numbers of its measurements: of a sum its own, and then those of its histogram."""
        found: dict[str, list[int]] = {}
        for place, measurement in enumerate(self.summed):
            found.setdefault(measurement.clique[0], []).append(place)
        return found

    def share(self, index: int) -> float:
        """Part of the cost that a sum takes, with its histogram where it is the first that needs it."""
        histogram = self.histograms.get(index)
        return (self.weights[index] + (histogram.weight if histogram else 0.0)) / self._total

    def noise_share(self, index: int) -> float:
        """The same without what chooses its bound."""
        return self.share(index) * self._kept(index)

    def choosing(self, indices: Sequence[int]) -> float:
        """Part of the cost that chooses one bound for some sums."""
        return sum(self.share(index) * (1 - self._kept(index)) for index in indices)

    def rows_of(self, part: GroupedSums) -> int:
        """How many rows of a unit count in one grouping set."""
        return self.rows if part.rows is None else part.rows

    def _cost(self, part: GroupedSums) -> PrivacyCost:
        """The budget, for tables that differ by one of the rows that count there: with fewer of them each may cost more."""
        times = self.rows / self.rows_of(part)
        beta = None if self.cost.beta is None else self.cost.beta * times**2
        return PrivacyCost(beta=beta, epsilon=self.cost.epsilon * times)

    def own(self, index: int) -> int:
        """The number of the measurement of a sum that is no quantile."""
        return self.places[sum_name(index)[0]][0]

    def variance(self, index: int) -> float:
        """Noise variance of a sum that is no quantile, in steps of its grid."""
        share = (self.weights[index] or 1.0) / self._total * self._kept(index)
        part, one = self.sums[index]
        cost = self._cost(part)
        unit = 2 / (cost.epsilon * share) ** 2 if cost.beta is None else 1 / (cost.beta * share)
        return squared(part, one, self.rows_of(part), pure=cost.beta is None) * unit

    def known_stddev(self, index: int) -> float | None:
        """``stddev`` in the sum's own unit; None where a bound that is chosen decides it."""
        clip, first = self._clip_of.get(index), self.first[index]
        selected = first is not None and self.selected(first)
        if selected or self.sums[index][1].chosen or (clip is not None and clip.chosen):
            return None
        return self.stddev(index) * (1.0 if clip is None else clip.bound(0))

    def stddev(self, index: int) -> float:
        """Standard deviation of the answers to one sum, in its own unit, or in that of its bound where that is chosen.

        That of a quantile is the largest of the number of rows below a value. Where a number of rows is chosen, it is that for one.
        """
        first, one = self.first[index], self.sums[index][1]
        if one.kind == "quantile":
            assert first is not None
            return self.histograms[first].plan.max_stddev
        grid = 2.0**-BITS if one.chosen or one.norm else one.grid
        return math.sqrt(self.variance(index)) * grid

    def prefixes(self, index: int, arrays: Mapping[str, Array]) -> Prefixes:
        """The noisy prefix counts that a quantile, or the bounds of a sum, are read off.

        Args:
            index: of the sum.
            arrays: noisy answers, by the number of their measurement.

        Privacy: post-processing.
        """
        first = self.first[index]
        assert first is not None
        found = self.histograms[first]
        measured = found.plan.measurements
        places = self.places[found.name][-len(measured) :]
        noisy = {m.clique: arrays[str(place)] for m, place in zip(measured, places, strict=True)}
        read = prefixes(found.plan, found.question, found.domain, found.plan.estimates(noisy))
        rows = (self.bound(index, arrays) or 1.0) ** 2
        return replace(read, variances=read.variances * rows, suffix_variances=read.suffix_variances * rows)

    def dump(self) -> dict[str, Array]:
        """The plans as they were found; all else follows from the request."""
        own = {
            f"{histogram.name} {key}": array
            for histogram in self.histograms.values()
            for key, array in histogram.plan.dump().items()
        }
        return own if self.planned is None else {**own, **self.planned.dump()}

    def _kept(self, index: int) -> float:
        """The part of a sum's share that its noise takes: all of it where no bound is chosen."""
        part, one = self.sums[index]
        if one.norm:
            known = _once(part, one) or (self.clip is not None and not one.distinct)
        else:
            known = part.source is not None and part.source.single
        return 1.0 if known or not self.auto else 1 - OF_CHOICE

    @cached_property
    def _total(self) -> float:
        return self.beside + sum(self.weights) + sum(self._of_histogram(index) for index in {*self.first} - {None})

    def _of_histogram(self, first: int | None) -> float:
        """The weight of a histogram: 1 where quantiles are read off it."""
        sums = (self.sums[index][1] for index, own in enumerate(self.first) if own == first)
        return 1.0 if any(one.kind == "quantile" for one in sums) else OF_BOUNDS

    def _histogram(self, index: int, part: GroupedSums, one: Sum) -> Histogram:
        assert one.histogram is not None
        assert one.cells is not None
        weight, name = self._of_histogram(index), sum_name(index)[0]
        if one.kind == "quantile":
            domain = Domain({"group": part.size, "value": one.cells.size})
            question = Question(clique=("group", "value"), kinds=("identity", "prefix"))
        else:
            domain, question = Domain({"value": one.cells.size}), Question(clique=("value",), kinds=("prefix",))
        workload = Workload(domain, (question.part(domain),))
        kept = {key.removeprefix(f"{name} "): array for key, array in self.stored.items() if key.startswith(f"{name} ")}
        if PLAN in kept:
            from duckdb_dp.plan.stored import restore  # for import time

            plan = restore(workload, kept)
        else:
            # Rows of a unit are in k cells. To choose bounds only its largest and its smallest value are counted.
            rows, own = self.rows_of(part), self._cost(part)
            times = rows / min(rows, 2) if one.chosen else 1
            of_prefixes = INTERVALS if self.selected(index) else 1.0
            share, beta = times * weight / self._total * self._kept(index) * of_prefixes, own.beta
            cost = PrivacyCost(beta=None if beta is None else beta * share * times, epsilon=own.epsilon * share)
            plan = choose(workload, cost)
        return Histogram(name=name, one=one.histogram, weight=weight, question=question, domain=domain, plan=plan)


def _once(part: GroupedSums, one: Sum) -> bool:
    """Whether an owner adds 1 at most, to one group."""
    single = part.source is not None and part.source.single
    return bool(one.norm) and ((one.distinct and part.size == 1) or (one.counts and single))


AnyPlan = Plan | DirectPlan
"""Of counts, or of sums of groups."""
