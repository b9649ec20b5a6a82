"""What was asked, as a canonical, hashable record. Two requests with the same hash are one release, charged once."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from duckdb_dp.accounting.base import Accounting, find_accounting
from duckdb_dp.accounting.records import units as units
from duckdb_dp.domain.differences import DIFFERENCES, Difference, differences
from duckdb_dp.domain.domain import Attribute, Clique, Domain, canonical
from duckdb_dp.domain.turns import TURNS, Turns
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.errors import DPError
from duckdb_dp.sum_names import MARK

if TYPE_CHECKING:
    from duckdb_dp.grouped_sums import GroupedSums, Source
    from duckdb_dp.select_parts import SelectPart

MAX_CELLS = 100_000_000
"""Most cells of all marginals of one request: 0.8 GB of answers."""

MAX_QUERIES = 1_000_000_000
"""Most queries of one request: a set is worked out when its rows are read, and the largest bounds the memory."""

MAX_ADAPTIVE = 10_000_000_000
"""Most cells of all marginals of an adaptive mechanism: it looks at few of them at a time."""

ADAPTIVE = ("aim", "neyman")
"""Mechanisms that choose what to measure by what they have measured."""

RETIRED = {"pairs": "neyman"}
"""Adaptive mechanisms of earlier versions, and what is better now: their releases are read, and no more are drawn."""

SELECT = "select"
"""The mechanism that selects quantiles by their ranks."""

SYNTHESES = ("dp_synthesize", "dp_links", "dp_quality", "dp_discover", "dp_running")
"""Functions that ask no queries: their requests hold no questions, and all that they are asked is in the options."""

GROWING = ("dp_running",)
"""Functions of which a release takes further steps with time: until the last one they are read from its journal."""

SLACK = 2e-9
"""Noise is calibrated to this much less than is charged, so that sums of charges rounded in doubles never overspend."""

VERSION = 8
"""Of the text of requests. Text without a version has 1; what a later one adds is written with its number: 2 added ``direct``, and
3 ``auto_rows`` and what is summed over a relation, ``source``, 4 ``decimals`` of attributes, 5 ``questions`` beside ``direct`` and the
mechanism 'select', 6 ``rest``, 7 ``line`` of attributes, 8 ``rows`` of grouping sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One set of queries of a request, as public data.

    A new kind of question says what it is in a field of its own, as ``select`` does. Where that has a value, ``to_json``
    writes it under a key of its own and the request its ``VERSION``, so that the text of all other requests stays.

    Attributes:
        clique: the attributes, in the domain's order.
        kinds: one kind per attribute, a name such as 'range' or the rows of a 0/1 matrix; or one joint kind on all cells.
        joint: whether the single kind is on the joint cells.
        disjunction: whether a query is true where any of its predicates is, and not where all are.
        weight: weight of each query.
        predicates: of dp_queries, (attribute, SQL) of every condition in the order of the answers; '' for joint ones.
        select: of dp_sql, what of a SELECT this answers; None for other functions.
    """

    clique: Clique
    kinds: tuple[str | tuple[tuple[float, ...], ...], ...]
    joint: bool = False
    disjunction: bool = False
    weight: float = 1.0
    predicates: tuple[tuple[str, str], ...] = ()
    select: "SelectPart | None" = None

    @classmethod
    def marginal(cls, clique: Clique, weight: float = 1.0) -> "Question":
        """Every cell of a marginal."""
        return cls(clique=clique, kinds=("identity",) * len(clique), weight=weight)

    @property
    def is_marginal(self) -> bool:
        """Whether the queries are the cells."""
        return not self.joint and not self.disjunction and self.kinds == ("identity",) * len(self.clique)

    def part(self, domain: Domain) -> Part:
        """The queries themselves."""
        if self.joint:
            (found,) = Workload.predicates(domain, self.clique, self.kinds[0], self.weight).parts
        else:
            kinds = dict(zip(self.clique, self.kinds, strict=True))
            united = Workload.disjunctions if self.disjunction else Workload.product
            (found,) = united(domain, kinds, self.weight).parts
        return found

    def texts(self, attribute: str) -> list[str]:
        """The conditions on an attribute of dp_queries, one for each answer along it; all of a joint question."""
        return [text for name, text in self.predicates if self.joint or name == attribute]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "clique": self.clique,
            "kinds": self.kinds,
            "joint": self.joint,
            "weight": self.weight,
            "shown": self.predicates if self.select is None else self.select.to_tags(self.clique),
            **({"disjunction": True} if self.disjunction else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Question":
        """The inverse of ``to_json``."""
        clique, joint = tuple(data["clique"]), data["joint"]
        tags = tuple((tag, text) for tag, text in data["shown"])
        selected = [tag for tag, _ in tags[:2]] == ["#", "@"]
        return cls(
            clique=clique,
            kinds=tuple(kind if isinstance(kind, str) else tuple(map(tuple, kind)) for kind in data["kinds"]),
            joint=joint,
            disjunction=data.get("disjunction", False),
            weight=data["weight"],
            predicates=() if selected else tags,
            select=_select_part(tags, clique, joint) if selected else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Questions about one dataset. Data are no part of it: comparing data would itself leak.

    Attributes:
        function: the SQL function.
        catalog, schema, table: the dataset's full name.
        unit: the column that names the privacy unit; None when every row is a unit; see ``units``.
        max_rows: rows kept of each unit (1 when every row is a unit); of grouping sets of ``direct`` that say so fewer.
        accounting: the dataset's.
        attributes: the declared domain of every attribute in use, in the dataset's order.
        questions: the query sets, in the order asked.
        cost: what is charged, in the accounting's own unit.
        mechanism, objective: as asked.
        options: further arguments of a mechanism that change what is drawn, as (name, plain value) pairs in name order.
        direct: of dp_sql, what is summed row by row; ``questions`` are the counts that are planned beside it.
        rest: attributes of which ``questions`` count what is outside them too, in cells that are not shown; see ``Attribute.rest``.
        source: of a member of a dataset of several tables, its rows with their owners, which ``unit`` names; None: the table.
        auto_rows: whether a part of the cost chooses how much of a unit counts; ``max_rows`` is 1 then, and noise is scaled.

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
    direct: "tuple[GroupedSums, ...]" = ()
    auto_rows: bool = False
    source: "Source | None" = None
    rest: tuple[str, ...] = ()
    _json: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.synthetic:
            return
        if self.direct:
            if self.questions and any(attribute.name.startswith(MARK) for attribute in self.attributes):
                raise AssertionError(f"names of sums start with {MARK}, and counts beside them have other ones")
            groups = sum(part.size * len(part.sums) for part in self.direct)
            if groups > MAX_CELLS:
                raise DPError(
                    f"{self.function}: {groups:,} sums were asked and the limit is {MAX_CELLS:,}. Ask for fewer groups at a time."
                )
        if self.direct and not self.questions:
            return
        cells = sum(map(self.domain.cells, set(self.cliques)))
        limit = MAX_ADAPTIVE if self.adaptive else MAX_CELLS
        if cells > limit:
            raise DPError(
                f"{self.function}: the marginals have {cells:,} cells together and the limit is {limit:,}. "
                "Ask for fewer attributes at a time, or declare coarser bins."
            )
        if not self.adaptive and (queries := self.workload.queries) > MAX_QUERIES:
            raise DPError(
                f"{self.function}: {queries:,} queries were asked and the limit is {MAX_QUERIES:,}. "
                "Ask for fewer query sets at a time, or declare coarser bins."
            )

    @property
    def domain(self) -> Domain:
        """Sizes of the attributes in use."""
        return Domain({attribute.name: attribute.size for attribute in self.counted})

    @property
    def counted(self) -> tuple[Attribute, ...]:
        """The attributes as rows are counted by them, with the cells that are not shown; after them the differences of pairs."""
        own = (one.with_rest() if one.name in self.rest else one for one in self.attributes)
        return (*own, *(one.attribute for one in self.differences))

    @property
    def differences(self) -> Sequence[Difference]:
        """The differences of dates and times that are counted beside the attributes, of a synthesis that says so."""
        pairs = next((value for name, value in self.options if name == DIFFERENCES), ())
        return differences(self.attributes, pairs) if pairs else ()

    @property
    def turns(self) -> Turns | None:
        """The turns of rows among those of their unit, by which they are counted too, of a synthesis that says so."""
        last = next((value for name, value in self.options if name == TURNS), ())
        return Turns.of([attribute.name for attribute in self.counted], last) if last else None

    @property
    def read(self) -> tuple[Attribute, ...]:
        """The attributes by which rows are counted, and their turn."""
        return (*self.counted, *([self.turns.attribute] if self.turns else []))

    def shape(self, index: int) -> tuple[int, ...]:
        """How many answers of a question are shown, along each of its axes."""
        question = self.questions[index]
        found = question.part(self.domain).shape
        if question.joint or question.disjunction or not self.rest:
            return found
        shown = {one.name: one.shown for one in self.counted}
        axes = zip(question.clique, question.kinds, found, strict=True)
        return tuple(shown[name] if kind == "identity" else size for name, kind, size in axes)

    @property
    def adaptive(self) -> bool:
        """Whether the mechanism chooses what to measure by what it has measured."""
        return not self.synthetic and self.mechanism in (*ADAPTIVE, *RETIRED)

    @property
    def selected(self) -> tuple[float, ...] | None:
        """The quantiles that are selected, increasing; None where they are read off noisy prefixes."""
        return dict(self.options)["quantiles"] if self.mechanism == SELECT and not self.direct else None

    @property
    def lined(self) -> bool:
        """Whether quantiles are found among all values, those beyond declared ones too; see ``Attribute.line``."""
        cells = (one.cells for part in self.direct for one in part.sums)
        return any(one is not None and one.line for one in (*self.attributes, *cells))

    @property
    def synthetic(self) -> bool:
        """Whether it asks for synthetic rows, or for their quality, and not for answers to queries."""
        return self.function in SYNTHESES

    @property
    def growing(self) -> bool:
        """Whether its release takes further steps with time."""
        return self.function in GROWING

    @property
    def workload(self) -> Workload:
        """The queries as a workload."""
        domain = self.domain
        if all(question.is_marginal for question in self.questions):
            return Workload.distinct(domain, self.cliques, [question.weight for question in self.questions])
        return Workload(domain, tuple(question.part(domain) for question in self.questions))

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The attribute sets, in the order asked."""
        return tuple(question.clique for question in self.questions)

    @property
    def beside(self) -> "Request":
        """The counts that are planned beside sums, alone: only their own attributes decide which rows they count."""
        used = {name for question in self.questions for name in question.clique}
        return replace(self, direct=(), attributes=tuple(one for one in self.attributes if one.name in used))

    @property
    def sums(self) -> int:
        """How many sums are taken row by row: answers to ``questions`` are numbered after them."""
        return sum(len(part.sums) for part in self.direct)

    def rows_of(self, part: "GroupedSums") -> int:
        """How many rows of a unit count in one of its grouping sets: its noise covers so many and no more."""
        return self.max_rows if part.rows is None else part.rows

    @property
    def calibrated(self) -> float:
        """The cost that the noise is calibrated to: a little less than is charged."""
        return self.cost * (1 - SLACK)

    def to_json(self) -> str:
        """Canonical JSON; a million edges are written once. Not by equality, as 1 equals 1.0 and is another text."""
        if not self._json:
            self._json.append(self._to_json())
        return self._json[0]

    def _to_json(self) -> str:
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
                **({"direct": [part.to_json() for part in self.direct]} if self.direct else {}),
                **({"auto_rows": True} if self.auto_rows else {}),
                **({} if self.source is None else {"source": self.source.to_json()}),
                **({"rest": self.rest} if self.rest else {}),
                **({} if self._version == 1 else {"version": self._version}),
            }
        )

    @property
    def _version(self) -> int:
        if any(part.rows is not None for part in self.direct):
            return 8
        if self.lined:
            return 7
        if self.rest:
            return 6
        if self.mechanism == SELECT or (self.direct and self.questions):
            return 5
        if any(attribute.decimals is not None for attribute in self.attributes):
            return 4
        if self.auto_rows or self.source is not None or any(part.source is not None for part in self.direct):
            return 3
        return 2 if self.direct else 1

    @property
    def hash(self) -> str:
        """sha256 of the canonical JSON: the identity of the release."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> "Request":
        """The inverse of ``to_json``, of what any version up to this one has written.

        Raises:
            DPError: a later version wrote it.
        """
        return _read(text)

    @classmethod
    def _of(cls, data: dict[str, Any]) -> "Request":
        if (version := data.pop("version", 1)) > VERSION:
            raise DPError(f"the request has version {version} and this duckdb_dp knows {VERSION}: upgrade duckdb_dp.")
        catalog, schema, table = data.pop("dataset")
        return cls(
            catalog=catalog,
            schema=schema,
            table=table,
            accounting=find_accounting(data.pop("accounting")),
            attributes=tuple(map(Attribute.from_json, data.pop("attributes"))),
            questions=tuple(map(Question.from_json, data.pop("questions"))),
            **_sums(data),
            rest=tuple(data.pop("rest", ())),
            options=tuple(
                (name, tuple(value) if isinstance(value, list) else value) for name, value in data.pop("options", ())
            ),
            **data,
        )


@lru_cache(maxsize=4)  # planned, drawn and read again; a million edges take 0.3 s each time
def _read(text: str) -> Request:
    return Request._of(json.loads(text))


def _select_part(tags: tuple[tuple[str, str], ...], clique: Clique, joint: bool) -> "SelectPart":
    from duckdb_dp.select_parts import SelectPart  # for import time: only dp_sql has them

    return SelectPart.from_tags(tags, clique, joint)


def _sums(data: dict[str, Any]) -> dict[str, Any]:
    """What is summed, and over which rows, if anything is; taken out of the data."""
    direct, source = data.pop("direct", ()), data.pop("source", None)
    if not direct and source is None:
        return {}
    from duckdb_dp.grouped_sums import GroupedSums, Source  # for import time: counts of cells have no sums

    return {
        "direct": tuple(map(GroupedSums.from_json, direct)),
        "source": None if source is None else Source.from_json(source),
    }
