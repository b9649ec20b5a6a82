"""What every planner returns: measurements, their noise, and the resulting error."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from duckdb_dp.domain.domain import Clique
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.linop import Array, LinOp
from duckdb_dp.noise.kinds import GAUSSIAN, NOISES

PLAN = "plan"
"""Name of the array of a stored plan that holds the bytes of a JSON text: what the plan is, without its matrices."""

LISTED = 12
"""Marginals shown when a plan is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One noisy linear measurement of one marginal: strategy @ counts + noise, i.i.d. with the given variance.

    The noise is N(0, variance), or Laplace of scale b = sqrt(variance / 2): the plan says which.

    Attributes:
        clique: attributes of the marginal that it reads; () is the total.
        strategy: operator on the cells of the clique.
        variance: noise variance of every answer, for a unit of one row.
    """

    clique: Clique
    strategy: LinOp
    variance: float

    @property
    def cost(self) -> float:
        """Privacy cost max_i [B^T B]_ii / variance of this measurement alone, with Gaussian noise."""
        return self.strategy.squared_sensitivity / self.variance

    @property
    def pure_cost(self) -> float:
        """Pure epsilon max_i sum_j |B_ji| / b of this measurement alone, with Laplace noise of scale b."""
        return self.strategy.sensitivity / math.sqrt(self.variance / 2)


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """A public plan: what would be measured, at which cost, and how good the answers would be.

    With Gaussian noise the privacy cost is beta = max_i [B^T Sigma^-1 B]_ii <= sum of the measurements' costs; the
    mechanism is sqrt(beta)-GDP and beta/2-zCDP for tables that differ by one row. With Laplace noise it is
    epsilon-DP, epsilon <= sum of the measurements' pure costs.

    Attributes:
        workload: the queries.
        mechanism: the planner's name.
        measurements: what is measured.
        lower_bound: a proved lower bound: no plan that measures each residual by itself, at costs that sum to beta, has
            a smaller ``rmse``, or a smaller ``max_stddev`` (objective 'max').
        objective: 'total' (sum of variances), 'max' (largest weighted variance) or 'fitted' (L1 error of fitted marginals).
        noise: name of its kind, one of ``NOISES``.

    Privacy: costs nothing; a plan never sees data.
    """

    workload: Workload
    mechanism: str
    measurements: tuple[Measurement, ...]
    lower_bound: float
    objective: str = "total"
    noise: str = GAUSSIAN.name

    def __init_subclass__(cls) -> None:
        # A dataclass would show all its measurements.
        cls.__repr__ = Plan.__str__  # type: ignore[assignment]

    @abstractmethod
    def variance(self, which: int | Clique) -> float | Array:
        """Variance of the answers to one part of the workload, in closed form.

        Args:
            which: the part's position, or its attribute set where only one part has it.

        Returns:
            One number where all answers have the same, as in a marginal; else an array of shape ``part.shape``.
        """

    def mean_variance(self, which: int | Clique) -> float:
        """The mean of ``variance(which)``, which some plans know without the variance of each of 50 million ranges."""
        return float(np.mean(self.variance(which)))

    @abstractmethod
    def answer(self, which: int | Clique, estimates: Mapping[Clique, Array]) -> Array:
        """The unbiased answers to one part of the workload.

        Args:
            which: the part's position, or its attribute set.
            estimates: ``estimates(noisy)``.

        Returns:
            Array of shape ``part.shape``.

        Privacy: post-processing.
        """

    @abstractmethod
    def share(self, which: int | Clique) -> float:
        """Part of the privacy cost that serves one part of the workload; the parts' shares sum to 1."""

    def estimates(self, noisy: Mapping[Clique, Array]) -> dict[Clique, Array]:
        """What each measurement says of its marginal, from the noisy strategy answers, flat; post-processing."""
        return {m.clique: m.strategy.estimate(noisy[m.clique]) for m in self.measurements}

    def dump(self) -> dict[str, Array]:
        """Arrays to be stored with what was measured, from which ``stored.restore`` makes the plan; none for a closed form.

        Privacy: post-processing of public queries.
        """
        return {}

    @property
    def beyond(self) -> tuple[Clique, ...]:
        """The marginals that are measured and that none that is asked has all attributes of: they are counted too."""
        return ()

    @property
    def refusal(self) -> str | None:
        """Why this cannot be measured, as what it measures does not fit into memory; None where it can."""
        return None

    def part(self, which: int | Clique) -> Part:
        """A part of the workload, by its position or by its attribute set.

        Raises:
            DPError: the workload has no part, or several, on that attribute set.
        """
        if isinstance(which, int):
            return self.workload.parts[which]
        found = self._by_clique.get(which, [])
        if len(found) != 1:
            raise DPError(
                f"the workload has {len(found)} parts on {as_sql(which)}; name one by its position 0, 1, ...."
            )
        return found[0]

    @cached_property
    def _by_clique(self) -> dict[Clique, list[Part]]:
        found: dict[Clique, list[Part]] = {}
        for part in self.workload.parts:
            found.setdefault(part.clique, []).append(part)
        return found

    @cached_property
    def beta(self) -> float:
        """Privacy cost with Gaussian noise: the sum of the measurements' costs."""
        return math.fsum(measurement.cost for measurement in self.measurements)

    @cached_property
    def epsilon(self) -> float:
        """Pure epsilon with Laplace noise: the sum of the measurements' pure costs."""
        return math.fsum(measurement.pure_cost for measurement in self.measurements)

    @property
    def rho(self) -> float:
        """Cost in zero-concentrated DP: beta / 2."""
        return self.beta / 2

    @property
    def mu(self) -> float:
        """Cost in Gaussian DP: sqrt(beta)."""
        return math.sqrt(self.beta)

    @property
    def queries(self) -> int:
        """Number of scalar queries answered."""
        return self.workload.queries

    @property
    def total(self) -> float:
        """Sum of weight * variance over all queries."""
        return math.fsum(p.weight * self._sum(i) for i, p in enumerate(self.workload.parts))

    @property
    def rmse(self) -> float:
        """sqrt(sum of weight * variance over all queries / number of queries)."""
        return math.sqrt(self.total / self.queries)

    @property
    def gap(self) -> float:
        """rmse / lower_bound - 1 (of the largest stddev for objective 'max'): how far from optimal the plan can be."""
        return (self.max_stddev if self.objective == "max" else self.rmse) / self.lower_bound - 1

    @property
    def max_stddev(self) -> float:
        """sqrt of the largest weight * variance of any query."""
        return math.sqrt(max(p.weight * float(np.max(self.variance(i))) for i, p in enumerate(self.workload.parts)))

    @property
    def quantile(self) -> float:
        """Half-width of a 95 % interval in standard deviations."""
        return NOISES[self.noise].quantile

    def stddev(self, which: int | Clique) -> float | Array:
        """Standard deviation of the answers to one part: a number or an array, as ``variance``."""
        found = np.sqrt(self.variance(which))
        return float(found) if np.ndim(found) == 0 else found

    def _sum(self, index: int) -> float:
        part, variance = self.workload.parts[index], self.variance(index)
        if np.ndim(variance) == 0:
            return math.prod(part.shape) * float(variance)
        weights = np.ones(())
        for family in part.queries:
            weights = np.multiply.outer(weights, family.weights())
        return float((weights * variance).sum())

    def __str__(self) -> str:
        gap = max(self.gap, 0.0)  # rounding may leave an optimal plan 1e-16 below its bound
        name, value = ("largest stddev", self.max_stddev) if self.objective == "max" else ("RMSE", self.rmse)
        lines = [
            f"Plan '{self.mechanism}' for {self.workload.summary}",
            f"  privacy cost:   {self._price}",
            f"  measurements:   {len(self.measurements):,}",
            f"  {name + ':':<15} {value:.6g}  (no plan of its kind is below {self.lower_bound:.6g}; gap {gap:.1e})",
        ]
        parts = self.workload.parts
        lines += [f"  {self.label(p):<40} stddev {self._typical(i)}" for i, p in enumerate(parts[:LISTED])]
        if len(parts) > LISTED:
            lines.append(f"  ... and {len(parts) - LISTED:,} more")
        return "\n".join(lines)

    @property
    def _price(self) -> str:
        if NOISES[self.noise].pure:
            return f"epsilon {self.epsilon:.6g}  (pure)"
        return f"{self.beta:.6g}  (rho {self.rho:.6g}, mu {self.mu:.6g})"

    def _repr_html_(self) -> str:
        import html  # for import time

        rows = "".join(
            f"<tr><td>{html.escape(self.label(p))}</td><td>{math.prod(p.shape):,}</td><td>{self._typical(i)}</td></tr>"
            for i, p in enumerate(self.workload.parts[:LISTED])
        )
        head = html.escape("\n".join(str(self).split("\n")[:4]))
        return f"<pre>{head}</pre><table><tr><th>query set</th><th>queries</th><th>stddev</th></tr>{rows}</table>"

    def _typical(self, index: int) -> str:
        found = self.stddev(index)
        return f"{found:.6g}" if isinstance(found, float) else f"{np.min(found):.6g} to {np.max(found):.6g}"

    @staticmethod
    def label(part: Part) -> str:
        """The part's name in results: attribute names joined by commas; '' is the total."""
        return ",".join(part.clique)


def family_answers(part: Part, marginal: Array) -> Array:
    """The queries of a part on its marginal, shape ``part.shape``."""
    if part.joint:
        return part.queries[0].answers(marginal.reshape(-1), 0)
    for axis, family in enumerate(part.queries):
        marginal = family.answers(marginal, axis)
    return marginal


def unknown_objective(objective: str) -> DPError:
    """The refusal of an objective that no planner of marginals has."""
    return DPError(
        f"objective {as_sql(objective)} is not known; use 'total' (sum of variances), 'max' (largest variance), "
        "or 'fitted' (marginals, by mechanism 'residual')."
    )
