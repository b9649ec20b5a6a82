"""What every planner returns: measurements, their noise, and the error they lead to."""

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from duckdb_dp.domain import Clique
from duckdb_dp.linop import Array, LinOp
from duckdb_dp.workload import Workload

LISTED = 12
"""Marginals shown when a plan is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One noisy linear measurement of one marginal: strategy @ counts + N(0, variance * I).

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
        """Privacy cost max_i [B^T B]_ii / variance of this measurement alone."""
        return self.strategy.squared_sensitivity / self.variance


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """A public plan: what would be measured, at which cost, and how good the answers would be.

    The privacy cost is beta = max_i [B^T Sigma^-1 B]_ii <= sum of the measurements' costs; the mechanism is
    sqrt(beta)-GDP and beta/2-zCDP for tables that differ by one row.

    Attributes:
        workload: the queries.
        mechanism: the planner's name.
        measurements: what is measured.
        lower_bound: a proved lower bound: no unbiased Gaussian mechanism of the same cost has a smaller
            ``rmse`` (objective 'total'), or a smaller ``max_stddev`` (objective 'max').
        objective: 'total' (sum of variances) or 'max' (largest weighted variance).

    Privacy: costs nothing; a plan never sees data.
    """

    workload: Workload
    mechanism: str
    measurements: tuple[Measurement, ...]
    lower_bound: float
    objective: str = "total"

    @abstractmethod
    def variance(self, clique: Clique) -> float:
        """Variance of each cell of one of the workload's marginals, in closed form."""

    @abstractmethod
    def answer(self, clique: Clique, noisy: Mapping[Clique, Array]) -> Array:
        """The unbiased answer to one marginal, from the noisy measurements keyed by clique.

        Returns:
            Array of shape ``domain.shape(clique)``.

        Privacy: post-processing.
        """

    @abstractmethod
    def share(self, clique: Clique) -> float:
        """Part of the privacy cost that serves one marginal; the parts of all marginals sum to 1."""

    @property
    def beta(self) -> float:
        """Privacy cost: the sum of the measurements' costs."""
        return math.fsum(measurement.cost for measurement in self.measurements)

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
    def rmse(self) -> float:
        """sqrt(sum of weight * variance over all queries / number of queries)."""
        sizes, weights = self.workload.domain, self.workload.weights
        total = math.fsum(w * sizes.cells(clique) * self.variance(clique) for clique, w in weights.items())
        return math.sqrt(total / self.queries)

    @property
    def max_stddev(self) -> float:
        """sqrt of the largest weight * variance of any query."""
        return math.sqrt(max(w * self.variance(clique) for clique, w in self.workload.weights.items()))

    def stddev(self, clique: Clique) -> float:
        """Standard deviation of each cell of one marginal."""
        return math.sqrt(self.variance(clique))

    def __str__(self) -> str:
        name, value = ("RMSE", self.rmse) if self.objective == "total" else ("largest stddev", self.max_stddev)
        lines = [
            f"Plan '{self.mechanism}' for {len(self.workload.weights):,} marginals, {self.queries:,} cells",
            f"  privacy cost:   {self.beta:.6g}  (rho {self.rho:.6g}, mu {self.mu:.6g})",
            f"  measurements:   {len(self.measurements):,}",
            f"  {name + ':':<15} {value:.6g}  (no Gaussian mechanism of this cost is below {self.lower_bound:.6g})",
        ]
        cliques = self.workload.cliques
        lines += [f"  {self.label(c):<40} stddev {self.stddev(c):.6g}" for c in cliques[:LISTED]]
        if len(cliques) > LISTED:
            lines.append(f"  ... and {len(cliques) - LISTED:,} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(self.label(c))}</td><td>{self.workload.domain.cells(c):,}</td>"
            f"<td>{self.stddev(c):.4g}</td></tr>"
            for c in self.workload.cliques[:LISTED]
        )
        head = html.escape(str(self).split("\n  " + self.label(self.workload.cliques[0]))[0])
        return f"<pre>{head}</pre><table><tr><th>marginal</th><th>cells</th><th>stddev</th></tr>{rows}</table>"

    @staticmethod
    def label(clique: Clique) -> str:
        """The marginal's name in results: attribute names joined by commas; '' is the total."""
        return ",".join(clique)

