"""The plan of the direct route: sums over rows are measured one by one, and quantiles by prefix counts of public cells."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.grouped_sums import BITS, GroupedSums, Sum, sum_name
from duckdb_dp.linop import Array, Identity
from duckdb_dp.noise.kinds import GAUSSIAN, LAPLACE, NOISES
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.plan.choose import PrivacyCost, choose
from duckdb_dp.plan.chosen_bounds import OF_BOUNDS, chosen
from duckdb_dp.plan.prefixes import prefixes
from duckdb_dp.plan.searched import PLAN
from duckdb_dp.reconstruct.quantiles import Prefixes
from duckdb_dp.request import Question


@final
@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Public cells of a value, counted as prefixes: rows of each group for quantiles, units of all together to choose bounds.

    Attributes:
        name: what the names of its measurements begin with.
        one: the value, its condition and its cells.
        weight: of its share of the cost.
        question: what is asked about 'group' and 'value'.
        domain: how many groups and cells these have.
        plan: of the prefix counts.
    """

    name: str
    one: Sum
    weight: float
    question: Question
    domain: Domain
    plan: Plan

    @property
    def measurements(self) -> list[Measurement]:
        """Those of the plan, under the names of the request."""
        return [
            Measurement(clique=(self.name, "cells", *m.clique), strategy=m.strategy, variance=m.variance)
            for m in self.plan.measurements
        ]


@final
@dataclass(frozen=True, kw_only=True)
class DirectPlan:
    """Clamped sums of groups with independent noise.

    A row adds at most S steps of the grid to one group of a sum. Each sum takes a share w of the cost, by its weight, and the
    numbers of rows with and without a value take one together, as a row adds to one of them alone. With Gaussian noise the
    variance is S^2 / (w beta), with Laplace noise 2 (S / (w epsilon))^2, in steps of the grid, for a unit of one row;
    ``cost`` is that of a row already. All quantiles of one value take one share, for the prefix counts in its cells.

    Attributes:
        parts: what is measured, by SELECT and grouping set.
        cost: the budget, for tables that differ by one row.
        rows: the rows k of a unit.
        stored: what ``dump`` said when a stored release was drawn.

    Privacy: costs nothing; measuring it costs ``cost``.
    """

    parts: tuple[GroupedSums, ...]
    cost: PrivacyCost
    rows: int = 1
    stored: Mapping[str, Array] = field(default_factory=dict)

    mechanism: ClassVar[str] = "direct"
    refusal: ClassVar[None] = None

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
        known = {(id(part), one.value, one.where) for part, one in self.sums if one.kind == "known"}

        def free(part: GroupedSums, one: Sum) -> bool:
            return one.kind == "quantile" or (one.kind == "missing" and (id(part), one.value, one.where) in known)

        return tuple(0.0 if free(part, one) else 1.0 for part, one in self.sums)

    @cached_property
    def histograms(self) -> dict[int, Histogram]:
        """By the first sum that needs it."""
        return {
            index: self._histogram(index, *self.sums[index]) for index in dict.fromkeys(self.first) if index is not None
        }

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """One for each sum, whose clique is a name that no attribute has, and those of the histograms."""
        own = [
            Measurement(clique=sum_name(index), strategy=Identity(part.size), variance=self.variance(index))
            for index, (part, one) in enumerate(self.sums)
            if one.kind != "quantile"
        ]
        return (*own, *(m for histogram in self.histograms.values() for m in histogram.measurements))

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Name -> the numbers of its measurements: of a sum its own, and then those of its histogram."""
        found: dict[str, list[int]] = {}
        for place, measurement in enumerate(self.measurements):
            found.setdefault(measurement.clique[0], []).append(place)
        return found

    def share(self, index: int) -> float:
        """Part of the cost that a sum takes, with its histogram where it is the first that needs it."""
        histogram = self.histograms.get(index)
        return (self.weights[index] + (histogram.weight if histogram else 0.0)) / self._total

    def own(self, index: int) -> int:
        """The number of the measurement of a sum that is no quantile."""
        return self.places[sum_name(index)[0]][0]

    def limits(self, name: Clique, arrays: Mapping[str, Array]) -> tuple[float, float] | None:
        """``bounds`` of the sum of that name, or (0, 1); None where they are not chosen, and for histograms."""
        index = int(name[0][1:])
        return (self.bounds(index, arrays) or (0.0, 1.0)) if len(name) == 1 and self.sums[index][1].chosen else None

    def variance(self, index: int) -> float:
        """Noise variance of a sum that is no quantile, in steps of its grid."""
        share = (self.weights[index] or 1.0) / self._total
        part, one = self.sums[index]
        unit = 2 / (self.cost.epsilon * share) ** 2 if self.cost.beta is None else 1 / (self.cost.beta * share)
        return self._squared(part, one) * unit

    def stddev(self, index: int) -> float:
        """Standard deviation of the answers to one sum, in its own unit, or in that of its bound where that is chosen.

        That of a quantile is the largest of the number of rows below a value.
        """
        first, one = self.first[index], self.sums[index][1]
        if one.kind == "quantile":
            assert first is not None
            return self.histograms[first].plan.max_stddev
        grid = 2.0**-BITS if one.chosen else one.grid
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
        return prefixes(found.plan, found.question, found.domain, found.plan.estimates(noisy))

    def bounds(self, index: int, arrays: Mapping[str, Array]) -> tuple[float, float] | None:
        """(low, high) of a sum whose bounds are chosen; None where no values are clearly away from 0.

        Privacy: post-processing.
        """
        part, one = self.sums[index]
        assert one.cells is not None
        edges = np.asarray([float(point) for point in one.cells.points])
        found, stddev = self.prefixes(index, arrays), self.stddev(index)
        return chosen(edges, found, stddev=stddev, groups=part.size, rows=self.rows, noise=self.noise)

    def dump(self) -> dict[str, Array]:
        """The plans of the histograms as they were found; all else follows from the request."""
        return {
            f"{histogram.name} {key}": array
            for histogram in self.histograms.values()
            for key, array in histogram.plan.dump().items()
        }

    @cached_property
    def _total(self) -> float:
        return sum(self.weights) + sum(self._of_histogram(index) for index in {*self.first} - {None})

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
            times = self.rows / min(self.rows, 2) if one.chosen else 1
            share, beta = times * weight / self._total, self.cost.beta
            cost = PrivacyCost(beta=None if beta is None else beta * share * times, epsilon=self.cost.epsilon * share)
            plan = choose(workload, cost)
        return Histogram(name=name, one=one.histogram, weight=weight, question=question, domain=domain, plan=plan)

    def _squared(self, part: GroupedSums, one: Sum) -> float:
        """The squared sensitivity of a sum in steps, as that of one row: of a unit it is k^2 times as much.

        A unit that counts once in each of the k groups that its rows may be in changes k counts by 1, which is sqrt(k) in L2
        and k in L1; where there is one group, it is 1.
        """
        if not one.distinct:
            return float(one.steps) ** 2
        rows, groups = self.rows, min(self.rows, part.size)
        return groups / rows**2 if self.cost.beta is not None else (groups / rows) ** 2


AnyPlan = Plan | DirectPlan
"""Of counts, or of sums of groups."""
