"""The plan of the direct route: every sum is measured by itself, at an equal share of the cost."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

from duckdb_dp.grouped_sums import GroupedSums, Sum, sum_name
from duckdb_dp.linop import Array, Identity
from duckdb_dp.noise.kinds import GAUSSIAN, LAPLACE, NOISES
from duckdb_dp.plan.base import Measurement, Plan
from duckdb_dp.plan.choose import PrivacyCost


@final
@dataclass(frozen=True, kw_only=True)
class DirectPlan:
    """Clamped sums of groups with independent noise.

    A row adds at most S steps of the grid to one group of a sum. Of m shares of the cost each sum takes one, and the numbers of
    rows with and without a value take one together, as a row adds to one of them alone. With Gaussian noise the variance is
    S^2 m / beta, with Laplace noise 2 (S m / epsilon)^2, in steps of the grid, for a unit of one row; ``cost`` is that of a
    row already.

    Attributes:
        parts: what is measured, by SELECT and grouping set.
        cost: the budget, for tables that differ by one row.
        rows: the rows k of a unit.

    Privacy: costs nothing; measuring it costs ``cost``.
    """

    parts: tuple[GroupedSums, ...]
    cost: PrivacyCost
    rows: int = 1

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
    def shares(self) -> int:
        """Among how many the cost is split."""
        known = {(id(part), one.value, one.where) for part, one in self.sums if one.kind == "known"}
        free = [one for part, one in self.sums if one.kind == "missing" and (id(part), one.value, one.where) in known]
        return len(self.sums) - len(free)

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """One for each sum; its clique is a name that no attribute has."""
        shares = self.shares
        if self.cost.beta is not None:
            unit = shares / self.cost.beta
        else:
            unit = 2 * (shares / self.cost.epsilon) ** 2
        return tuple(
            Measurement(clique=sum_name(index), strategy=Identity(part.size), variance=self._squared(part, one) * unit)
            for index, (part, one) in enumerate(self.sums)
        )

    def _squared(self, part: GroupedSums, one: Sum) -> float:
        """The squared sensitivity of a sum in steps, as that of one row: of a unit it is k^2 times as much.

        A unit that counts once in each of the k groups that its rows may be in changes k counts by 1, which is sqrt(k) in L2
        and k in L1; where there is one group, it is 1.
        """
        if not one.distinct:
            return float(one.steps) ** 2
        rows, groups = self.rows, min(self.rows, part.size)
        return groups / rows**2 if self.cost.beta is not None else (groups / rows) ** 2

    def stddev(self, index: int) -> float:
        """Standard deviation of the answers to one sum, in its own unit."""
        return math.sqrt(self.measurements[index].variance) * self.sums[index][1].grid

    def dump(self) -> dict[str, Array]:
        """Nothing: it follows from the request."""
        return {}


AnyPlan = Plan | DirectPlan
"""Of counts, or of sums of groups."""
