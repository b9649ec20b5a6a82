"""What was asked: a canonical, hashable record. Two requests with the same hash are one release, charged once."""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from duckdb_dp.attribute import Attribute, canonical
from duckdb_dp.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.workload import Workload

MAX_CELLS = 100_000_000
"""Most cells of all marginals of one request: 0.8 GB of answers."""

SLACK = 2e-9
"""Noise is calibrated to this much less than is charged, so that sums of charges rounded in doubles never overspend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question about marginals of one dataset. Data are no part of it: comparing data would itself leak.

    Attributes:
        function: the SQL function.
        catalog, schema, table: the dataset's full name.
        unit: the column that names the privacy unit; None when every row is a unit.
        max_rows: rows kept of each unit (1 when every row is a unit).
        accounting: the dataset's, 'gdp' or 'zcdp'.
        attributes: the declared domain of every attribute in use, in the dataset's order.
        cliques: the marginals, in the order asked.
        weights: one per marginal, or None.
        cost: what is charged, in the accounting's own unit: mu^2 under 'gdp', rho under 'zcdp'.
        mechanism, objective: as asked.

    Raises:
        DPError: marginals with more than ``MAX_CELLS`` cells together.
    """

    function: str
    catalog: str
    schema: str
    table: str
    unit: str | None
    max_rows: int
    accounting: str
    attributes: tuple[Attribute, ...]
    cliques: tuple[Clique, ...]
    weights: tuple[float, ...] | None
    cost: float
    mechanism: str
    objective: str

    def __post_init__(self) -> None:
        cells = sum(map(self.domain.cells, self.cliques))
        if cells > MAX_CELLS:
            raise DPError(
                f"{self.function}: the marginals have {cells:,} cells together and the limit is {MAX_CELLS:,}. "
                "Ask for fewer attributes at a time, or declare coarser bins."
            )

    @property
    def domain(self) -> Domain:
        """Sizes of the attributes in use."""
        return Domain({attribute.name: attribute.size for attribute in self.attributes})

    @property
    def workload(self) -> Workload:
        """The marginals as a workload."""
        return Workload.marginals(self.domain, self.cliques, self.weights)

    @property
    def mu(self) -> float:
        """Cost for one unit as a Gaussian mechanism: mu^2 = 2 rho."""
        return math.sqrt(self.cost if self.accounting == "gdp" else 2 * self.cost)

    @property
    def beta(self) -> float:
        """Privacy cost that the noise is calibrated to, for tables that differ by one row.

        A unit of k rows changes every marginal k times as much, in L2: beta = mu^2 / k^2.
        """
        return self.mu**2 * (1 - SLACK) / self.max_rows**2

    def to_json(self) -> str:
        """Canonical JSON."""
        return canonical(
            {
                "function": self.function,
                "dataset": [self.catalog, self.schema, self.table],
                "unit": self.unit,
                "max_rows": self.max_rows,
                "accounting": self.accounting,
                "attributes": [attribute.to_json() for attribute in self.attributes],
                "cliques": [list(clique) for clique in self.cliques],
                "weights": self.weights,
                "cost": self.cost,
                "mechanism": self.mechanism,
                "objective": self.objective,
            }
        )

    @property
    def hash(self) -> str:
        """sha256 of the canonical JSON: the identity of the release."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> "Request":
        """The inverse of ``to_json``."""
        data: dict[str, Any] = json.loads(text)
        catalog, schema, table = data.pop("dataset")
        return cls(
            catalog=catalog,
            schema=schema,
            table=table,
            attributes=tuple(map(Attribute.from_json, data.pop("attributes"))),
            cliques=tuple(tuple(clique) for clique in data.pop("cliques")),
            weights=None if data["weights"] is None else tuple(data["weights"]),
            **{key: value for key, value in data.items() if key != "weights"},
        )
