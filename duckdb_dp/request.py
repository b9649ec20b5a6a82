"""What was asked: a canonical, hashable record. Two requests with the same hash are one release, charged once."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from duckdb_dp.accounting.base import Accounting, find_accounting
from duckdb_dp.accounting.records import units as units
from duckdb_dp.domain.attribute import Attribute, canonical
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.errors import DPError

MAX_CELLS = 100_000_000
"""Most cells of all marginals of one request: 0.8 GB of answers."""

MAX_QUERIES = 1_000_000_000
"""Most queries of one request: a set is worked out when its rows are read, and the largest bounds the memory."""

MAX_ADAPTIVE = 10_000_000_000
"""Most cells of all marginals of an adaptive mechanism: it looks at few of them at a time."""

ADAPTIVE = ("aim", "pairs")
"""Mechanisms that choose what to measure by what they have measured."""

SYNTHESES = ("dp_synthesize", "dp_links", "dp_quality")
"""Functions that ask no queries: their requests hold no questions, and all that they are asked is in the options."""

SLACK = 2e-9
"""Noise is calibrated to this much less than is charged, so that sums of charges rounded in doubles never overspend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One set of queries of a request, as public data.

    Attributes:
        clique: the attributes, in the domain's order.
        kinds: one kind per attribute, a name such as 'range' or the rows of a 0/1 matrix; or one joint kind on all cells.
        joint: whether the single kind is on the joint cells.
        disjunction: whether a query is true where any of its predicates is, and not where all are.
        weight: weight of each query.
        shown: how a SELECT names its columns: (attribute or '', name) pairs; empty for the standard names.
    """

    clique: Clique
    kinds: tuple[str | tuple[tuple[float, ...], ...], ...]
    joint: bool = False
    disjunction: bool = False
    weight: float = 1.0
    shown: tuple[tuple[str, str], ...] = ()

    @classmethod
    def marginal(cls, clique: Clique, weight: float = 1.0) -> "Question":
        """Every cell of a marginal."""
        return cls(clique=clique, kinds=("identity",) * len(clique), weight=weight)

    def part(self, domain: Domain) -> Part:
        """The queries themselves."""
        if self.joint:
            (found,) = Workload.predicates(domain, self.clique, self.kinds[0], self.weight).parts
        else:
            kinds = dict(zip(self.clique, self.kinds, strict=True))
            united = Workload.disjunctions if self.disjunction else Workload.product
            (found,) = united(domain, kinds, self.weight).parts
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "clique": self.clique,
            "kinds": self.kinds,
            "joint": self.joint,
            "weight": self.weight,
            "shown": self.shown,
            **({"disjunction": True} if self.disjunction else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Question":
        """The inverse of ``to_json``."""
        return cls(
            clique=tuple(data["clique"]),
            kinds=tuple(kind if isinstance(kind, str) else tuple(map(tuple, kind)) for kind in data["kinds"]),
            joint=data["joint"],
            disjunction=data.get("disjunction", False),
            weight=data["weight"],
            shown=tuple((attribute, name) for attribute, name in data["shown"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Questions about one dataset. Data are no part of it: comparing data would itself leak.

    Attributes:
        function: the SQL function.
        catalog, schema, table: the dataset's full name.
        unit: the column that names the privacy unit; None when every row is a unit; see ``units``.
        max_rows: rows kept of each unit (1 when every row is a unit).
        accounting: the dataset's.
        attributes: the declared domain of every attribute in use, in the dataset's order.
        questions: the query sets, in the order asked.
        cost: what is charged, in the accounting's own unit.
        mechanism, objective: as asked.
        options: further arguments of a mechanism that change what is drawn, as (name, plain value) pairs in name order.

    Raises:
        DPError: more than ``MAX_CELLS`` cells to count, or queries to answer, together.
    """

    function: str
    catalog: str
    schema: str
    table: str
    unit: str | None
    max_rows: int
    accounting: Accounting
    attributes: tuple[Attribute, ...]
    questions: tuple[Question, ...]
    cost: float
    mechanism: str
    objective: str
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.synthetic:
            return
        cells = sum(map(self.domain.cells, set(self.cliques)))
        limit = MAX_ADAPTIVE if self.adaptive else MAX_CELLS
        if cells > limit:
            raise DPError(
                f"{self.function}: the marginals have {cells:,} cells together and the limit is {limit:,}. "
                "Ask for fewer attributes at a time, or declare coarser bins."
            )
        if self.adaptive:
            return
        queries = self.workload.queries
        if queries > MAX_QUERIES:
            raise DPError(
                f"{self.function}: {queries:,} queries were asked and the limit is {MAX_QUERIES:,}. "
                "Ask for fewer query sets at a time, or declare coarser bins."
            )

    @property
    def domain(self) -> Domain:
        """Sizes of the attributes in use."""
        return Domain({attribute.name: attribute.size for attribute in self.attributes})

    @property
    def adaptive(self) -> bool:
        """Whether the mechanism chooses what to measure by what it has measured."""
        return not self.synthetic and self.mechanism in ADAPTIVE

    @property
    def synthetic(self) -> bool:
        """Whether it asks for synthetic rows, or for their quality, and not for answers to queries."""
        return self.function in SYNTHESES

    @property
    def workload(self) -> Workload:
        """The queries as a workload."""
        domain = self.domain
        return Workload(domain, tuple(question.part(domain) for question in self.questions))

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The attribute sets, in the order asked."""
        return tuple(question.clique for question in self.questions)

    @property
    def calibrated(self) -> float:
        """The cost that the noise is calibrated to: a little less than is charged."""
        return self.cost * (1 - SLACK)

    def to_json(self) -> str:
        """Canonical JSON."""
        return canonical(
            {
                "function": self.function,
                "dataset": [self.catalog, self.schema, self.table],
                "unit": self.unit,
                "max_rows": self.max_rows,
                "accounting": self.accounting.name,
                "attributes": [attribute.to_json() for attribute in self.attributes],
                "questions": [question.to_json() for question in self.questions],
                "cost": self.cost,
                "mechanism": self.mechanism,
                "objective": self.objective,
                **({"options": self.options} if self.options else {}),
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
            accounting=find_accounting(data.pop("accounting")),
            attributes=tuple(map(Attribute.from_json, data.pop("attributes"))),
            questions=tuple(map(Question.from_json, data.pop("questions"))),
            options=tuple(
                (name, tuple(value) if isinstance(value, list) else value) for name, value in data.pop("options", ())
            ),
            **data,
        )
