"""What was asked, as a canonical, hashable record. Two requests with the same hash are one release, charged once."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from duckdb_dp.accounting.base import Accounting, find_accounting
from duckdb_dp.accounting.records import units as units
from duckdb_dp.domain.domain import Attribute, Clique, Domain, canonical
from duckdb_dp.domain.workload import Part, Workload
from duckdb_dp.errors import DPError
from duckdb_dp.grouped_sums import GroupedSums

MAX_CELLS = 100_000_000
"""Most cells of all marginals of one request: 0.8 GB of answers."""

MAX_QUERIES = 1_000_000_000
"""Most queries of one request: a set is worked out when its rows are read, and the largest bounds the memory."""

MAX_ADAPTIVE = 10_000_000_000
"""Most cells of all marginals of an adaptive mechanism: it looks at few of them at a time."""

ADAPTIVE = ("aim", "pairs")
"""Mechanisms that choose what to measure by what they have measured."""

SYNTHESES = ("dp_synthesize", "dp_links", "dp_quality", "dp_discover")
"""Functions that ask no queries: their requests hold no questions, and all that they are asked is in the options."""

SLACK = 2e-9
"""Noise is calibrated to this much less than is charged, so that sums of charges rounded in doubles never overspend."""


VERSION = 2
"""Of the text of requests. Text without a version has 1; what a later one adds is written with its number: 2 added ``direct``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectColumn:
    """A column of a SELECT's result, as dp_sql understood it.

    Attributes:
        name: as the SELECT calls it.
        attribute: what it is grouped by, or what is aggregated; '' for count(*).
        function: 'count', 'sum' or 'avg'; '' for a grouped column.
    """

    name: str
    attribute: str
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearQuery:
    """What is added up over the rows of a group: 1, the number of a column, or that less the middle of its domain.

    Attributes:
        function: 'count' (of rows where the attribute is not NULL), 'sum' or 'centred'.
        attribute: its column; '' where every row counts.
    """

    function: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.function}:{self.attribute}"

    @classmethod
    def parse(cls, text: str) -> "LinearQuery":
        """The inverse of ``str``."""
        function, _, attribute = text.partition(":")
        return cls(function=function, attribute=attribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The rows of a result along one axis of the answers.

    Attributes:
        attributes: what they are grouped by together.
        cells: one cell number for each attribute, row by row.
    """

    attributes: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectPart:
    """The part of a SELECT of dp_sql that a question answers: one linear query of one grouping set.

    Attributes:
        number: which SELECT of the call, from 1.
        query: what is added up.
        columns: the columns of the SELECT's result.
        groups: the rows along each axis where not every cell is one; in a joint question, all rows.
        summed: attributes of the clique that are used in conditions or aggregated, and have no column.
    """

    number: int
    query: LinearQuery
    columns: tuple[SelectColumn, ...]
    groups: tuple[Groups, ...] = ()
    summed: tuple[str, ...] = ()

    def to_tags(self, clique: Clique) -> list[tuple[str, str]]:
        """As version 1 writes it: (tag, text) pairs, '#' the number, '@' the query and aggregates, '=' the rows."""
        tags = [("#", str(self.number)), ("@", str(self.query))]
        tags += [(f"@{c.function}:{c.attribute}" if c.function else c.attribute, c.name) for c in self.columns]
        alone = {rows.attributes: rows for rows in self.groups}
        for name in clique:
            if name in self.summed:
                tags.append((f"={name}", ""))
            elif found := alone.pop((name,), None):
                tags += _row_tags(found)
        return tags + [tag for rows in alone.values() for tag in _row_tags(rows)]

    @classmethod
    def from_tags(cls, tags: Sequence[tuple[str, str]], clique: Clique, joint: bool) -> "SelectPart":
        """The inverse of ``to_tags``."""
        (_, number), (_, query), *rest = tags
        rows: dict[str, list[str]] = {}
        columns = []
        for tag, text in rest:
            kind, aggregates, attribute = tag.partition(":")
            if tag.startswith("="):
                rows.setdefault(tag[1:], []).append(text)
            elif aggregates and kind in _AGGREGATES:
                columns.append(SelectColumn(name=text, attribute=attribute, function=kind[1:]))
            else:
                columns.append(SelectColumn(name=text, attribute=tag))
        return cls(
            number=int(number),
            query=LinearQuery.parse(query),
            columns=tuple(columns),
            groups=tuple(_groups(key, cells, clique) for key, cells in rows.items() if joint or cells != [""]),
            summed=() if joint else tuple(key for key, cells in rows.items() if cells == [""]),
        )


_AGGREGATES = ("@count", "@sum", "@avg")


def _row_tags(rows: Groups) -> list[tuple[str, str]]:
    key = "=" + ",".join(rows.attributes)
    return [(key, ",".join(map(str, cells))) for cells in rows.cells]


def _groups(joined: str, cells: Sequence[str], clique: Clique) -> Groups:
    """The rows of one key of tags: names joined by commas, and cell numbers too."""
    numbers = tuple(tuple(map(int, filter(None, cell.split(",")))) for cell in cells)
    return Groups(attributes=_names(joined, len(numbers[0]), clique) or (), cells=numbers)


def _names(joined: str, count: int, clique: Clique) -> tuple[str, ...] | None:
    """The ``count`` names of a clique that were joined by commas, which a name may have some of itself."""
    if count <= 1:
        return (joined,) if joined in clique else None
    for name in clique:
        if joined.startswith(f"{name},") and (rest := _names(joined[len(name) + 1 :], count - 1, clique)):
            return (name, *rest)
    return None


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
    select: SelectPart | None = None

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
            select=SelectPart.from_tags(tags, clique, joint) if selected else None,
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
        direct: of dp_sql, what is summed row by row; it asks no ``questions`` then.

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
    direct: tuple[GroupedSums, ...] = ()

    def __post_init__(self) -> None:
        if self.synthetic:
            return
        if self.direct:
            groups = sum(part.size * len(part.sums) for part in self.direct)
            if groups > MAX_CELLS:
                raise DPError(
                    f"{self.function}: {groups:,} sums were asked and the limit is {MAX_CELLS:,}. Ask for fewer groups at a time."
                )
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
        if all(question.is_marginal for question in self.questions):
            return Workload.distinct(domain, self.cliques, [question.weight for question in self.questions])
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
                **({"direct": [part.to_json() for part in self.direct], "version": 2} if self.direct else {}),
            }
        )

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
        data: dict[str, Any] = json.loads(text)
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
            direct=tuple(map(GroupedSums.from_json, data.pop("direct", ()))),
            options=tuple(
                (name, tuple(value) if isinstance(value, list) else value) for name, value in data.pop("options", ())
            ),
            **data,
        )
