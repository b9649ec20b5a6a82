"""dp_sql, GROUP BY of columns that nobody has declared: their values are discovered first, and the rest is the group 'other'.

A part of the cost and of discovery_delta finds the values that enough units hold, as ``dp_discover`` does, and the sums are
taken over the groups of these values. Both are one request and two charges. Until the values are found, a request holds the
column with a placeholder in place of them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from duckdb_dp.accounting import grants
from duckdb_dp.accounting.ledger import Dataset, Release
from duckdb_dp.accounting.records import units
from duckdb_dp.counting.encode import quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain import types
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import Scalar
from duckdb_dp.errors import DPError, identifier
from duckdb_dp.grouped_sums import GroupedSums, Source
from duckdb_dp.plan.unknown_values import ThresholdNoise
from duckdb_dp.request import SELECT, Request
from duckdb_dp.sql import catalog, unknown_values
from duckdb_dp.sql.arguments import Arguments, Place, parse_budget, stable_cost
from duckdb_dp.sql.declarations import declared_point
from duckdb_dp.sql.session import Session

if TYPE_CHECKING:
    from sqlglot import exp

SHARE = 0.3
"""Of the cost, what finds the values; the sums have the rest."""

MOST_VALUES = 10
"""Values of one unit that are counted at most: more would raise the threshold for all."""

MOST_GROUPS, MOST_CELLS = 100_000, 10_000_000
"""Groups, and groups times the cells of a quantile, that are answered at most: of more values the largest ones."""

_POINTS = ("?", 0, 0.0, "1970-01-01", "00:00:00", False)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The columns whose values a call finds.

    Attributes:
        requests: for each column, as ``dp_discover`` writes it.
        stored: their releases; None where they are yet to be drawn.
        cost: what is left for the sums.
        known: columns whose values their types or the text say, at no cost.
        computed: (text, type) of those that are expressions over the columns of a row.
        columns: (name, type) of the table's own columns.
        source: the rows with what is computed.
        joined: whether the SELECTs are compiled to relations whose columns these are.
        top: columns of which the rows with other values are no group, as the largest groups are asked for.
    """

    requests: tuple[Request, ...]
    stored: tuple[Release | None, ...]
    cost: float
    known: Mapping[str, Attribute]
    computed: tuple[tuple[str, str], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    source: Source | None = None
    joined: bool = False
    top: frozenset[str] = frozenset()

    def rewritten(self, selects: "Sequence[exp.Select]") -> "list[exp.Select]":
        """SELECTs with columns in place of what is computed."""
        from duckdb_dp.sql import computed_groups  # for import time: it brings sqlglot

        names = [name for name, _ in self.computed]
        return [computed_groups.rewritten(select, dict(self.columns), names) for select in selects]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(str(dict(request.options)["attribute"]) for request in self.requests)

    @property
    def placeholders(self) -> dict[str, Attribute]:
        """The columns as attributes with one value in place of all that are found."""
        kinds = [str(dict(request.options)["type"]) for request in self.requests]
        named = zip(self.names, kinds, strict=True)
        return {name: _attribute(name, type_, (), other=name not in self.top) for name, type_ in named}

    @property
    def pending(self) -> bool:
        """Whether some values are yet to be found."""
        return any(release is None for release in self.stored)

    @property
    def unpaid(self) -> tuple[Request, ...]:
        """The requests whose values are yet to be found, which are charged with the sums."""
        return tuple(request for request, release in zip(self.requests, self.stored, strict=True) if release is None)


def found(
    session: Session, dataset: Dataset, selects: "Sequence[exp.Select]", arguments: Arguments, place: Place
) -> Found | None:
    """The columns that SELECTs group by without a declaration; None where there are none, or nothing is reserved to find them.

    Raises:
        DPError: they cannot be found with this budget.
    """
    if dataset.schema == SCHEMA or (table := catalog.of(session, dataset)) is None:
        return None
    from duckdb_dp.sql import computed_groups  # for import time: it brings sqlglot

    plain, more = computed_groups.undeclared(dataset, table, session.declared(dataset), selects)
    known = {
        name: found for name, type_ in plain.items() if (found := computed_groups.of_type(name, type_)) is not None
    }
    known |= {text: values for text, (_, values) in more.items() if values is not None}
    names = {name: type_ for name, type_ in plain.items() if name not in known}
    names |= {text: type_ for text, (type_, values) in more.items() if values is None}
    extra: dict[str, Any] = {}
    if more:
        unit = [name for unit in units(dataset.unit) for name in unit]
        computed = {text: type_ for text, (type_, _) in more.items()}
        rows = computed_groups.source(table, unit, computed)
        extra = {"computed": tuple(computed.items()), "columns": tuple(table.columns.items()), "source": rows}
    if not names or dataset.discovery_delta is None or dataset.accounting.pure:
        return None
    most = MOST_VALUES if dataset.auto_rows else min(dataset.max_rows, MOST_VALUES)
    columns = {
        name: Column(type=type_, most=most, source=extra["source"] if name in more else None)
        for name, type_ in names.items()
    }
    others = [select for select in selects if not computed_groups.ranked(select)]
    kept = computed_groups.undeclared(dataset, table, session.declared(dataset), others) if others else ({}, {})
    top = frozenset(columns) - {*kept[0], *kept[1]}
    return sought(session, dataset, columns, arguments, place, known=known, top=top, **extra)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column whose values are to be found.

    Attributes:
        type: its SQL type.
        most: how many of its values a unit is counted for.
        source: the rows; None for those of the dataset's own table.
    """

    type: str
    most: int
    source: Source | None = None


def sought(
    session: Session, dataset: Dataset, asked: Mapping[str, Column], arguments: Arguments, place: Place, **more: Any
) -> Found:
    """The columns with the requests that find their values, of which each takes an equal part of ``SHARE`` of the cost.

    Args:
        session, dataset, arguments, place: of the call.
        asked: the columns, by name.
        more: of ``Found``.

    Raises:
        DPError: they cannot be found with this budget.
    """
    from duckdb_dp.sql import dp_discover  # for import time: it brings sqlglot

    if (arguments.get("mechanism") or "auto") not in ("auto", "direct", SELECT):
        raise DPError(
            f"{identifier(next(iter(asked)))} has no declared domain, and its values are found for mechanism 'direct' alone; declare it."
        )
    cost = stable_cost(parse_budget(arguments, dataset), dataset.accounting)
    requests = []
    for name, column in asked.items():
        call = {
            "dataset": f"{quote(dataset.catalog)}.{quote(dataset.schema)}.{quote(dataset.name)}",
            "attribute": name,
            "max_values": None if dataset.unit is None else column.most,
        }
        each = SHARE * cost / len(asked)
        request = dp_discover.request_of(session, call, place, cost=each, column=(name, column.type))
        requests.append(request if column.source is None else replace(request, source=column.source))
    stored = tuple(session.stored(request, None) for request in requests)
    left = cost - math.fsum(request.cost for request in requests)
    return Found(requests=tuple(requests), stored=stored, cost=left, **more)


def _attribute(name: str, type_: str, texts: Sequence[str], *, other: bool) -> Attribute:
    """An attribute of the values of these texts, and 'other' if that is a group; without any, of one value that its type has."""
    dtype = types.column_type(type_)
    points = [point for text in texts if (point := declared_point(dtype, text)) is not None]
    for candidate in [points] if points else [[point] for point in _POINTS]:
        try:
            return Attribute(name=name, type=type_, kind="values", points=tuple(candidate), other=other)
        except DPError:
            continue
    raise DPError(f"{identifier(name)} is {type_}, whose values are not found; declare it by dp_attribute.")


def _found(placeholder: Attribute, texts: Sequence[str]) -> Attribute:
    """The attribute of the values that were found; of none, all rows are in 'other'."""
    if not texts:
        return replace(placeholder, points=(), other=True)
    return _attribute(placeholder.name, placeholder.type, texts, other=placeholder.other)


def filled(session: Session, request: Request, releases: Sequence[Release]) -> Request:
    """A request with the values that were found in place of placeholders.

    Privacy: post-processing.
    """
    texts: dict[str, list[str]] = {}
    names = [dict(Request.from_json(release.request).options)["attribute"] for release in releases]
    for release in releases:
        options = dict(Request.from_json(release.request).options)
        held = unknown_values.read(session.arrays(release), options["type"])
        texts[options["attribute"]] = _largest(held, _limit(request, [*names]))
    attributes = tuple(_found(a, texts[a.name]) if a.name in texts else a for a in request.attributes)
    named = {attribute.name: attribute for attribute in attributes}
    direct = tuple(_wider(part, request, [named[name] for name in part.clique], texts) for part in request.direct)
    return replace(request, attributes=attributes, direct=direct)


def _wider(
    part: GroupedSums, request: Request, attributes: Sequence[Attribute], found: Mapping[str, object]
) -> GroupedSums:
    """The groups of a part with all values of the columns that were found, which are the last of its clique."""
    last = [attribute for attribute in attributes if attribute.name in found]
    if not last:
        return part
    before = base(part, request, [attribute.name for attribute in last])  # of the placeholders' sizes
    sizes = [attribute.size for attribute in last]
    width = math.prod(sizes)
    size = before.size * width
    if part.groups is None:
        return replace(part, size=size)
    assert before.groups is not None
    groups = [-1 if group < 0 else group * width + place for group in before.groups for place in range(width)]
    values = {
        attribute.name: [
            label
            for _ in range(before.size * math.prod(sizes[:place]))
            for label in attribute.labels()
            for _ in range(math.prod(sizes[place + 1 :]))
        ]
        for place, attribute in enumerate(last)
    }
    labels = tuple(
        replace(label, attribute="", values=tuple(values[label.attribute]))
        if label.attribute in found
        else replace(label, values=tuple(value for value in before.labels[label.key] for _ in range(width)))
        for label in part.labels
    )
    return replace(part, size=size, groups=tuple(groups), labels=labels)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The groups of a part without the columns whose values are found.

    Attributes:
        size: how many there are.
        groups: of each cell of the declared columns; None where each is one.
        labels: by key, where they are listed.
    """

    size: int
    groups: tuple[int, ...] | None
    labels: Mapping[int, tuple[Scalar | None, ...]]


def base(part: GroupedSums, request: Request, found: Sequence[str]) -> Base:
    """The groups of the declared columns alone: those of the first cell of each placeholder."""
    sizes = {attribute.name: attribute.size for attribute in request.attributes}
    width = math.prod(sizes[name] for name in found)
    if part.groups is None:
        return Base(size=math.prod(sizes[n] for n in part.clique if n not in found), groups=None, labels={})
    numbers: dict[int, int] = {-1: -1}
    groups = tuple(numbers.setdefault(group, len(numbers) - 1) for group in part.groups[::width])
    first = sorted((new, old) for old, new in numbers.items() if new >= 0)
    labels = {label.key: tuple(label.values[old] for _, old in first) for label in part.labels}
    return Base(size=len(first), groups=groups, labels=labels)


def _limit(request: Request, found: Sequence[str]) -> int:
    """How many values of each column are answered at most: as many as keep the groups few, whatever is found."""
    from duckdb_dp.sql.group_labels import MAX_CELLS  # for import time: it brings sqlglot

    least, columns = MOST_GROUPS, len(found)
    width = math.prod(one.size for one in request.attributes if one.name in found)
    for part in request.direct:
        cells = max([1, *(one.cells.size for one in part.sums if one.cells is not None)])
        others = max(1, part.size // width)
        if part.groups is not None:
            others = max(others, math.ceil(len(part.groups) / width * MOST_GROUPS / MAX_CELLS))
        least = min(least, int((min(MOST_GROUPS, MOST_CELLS / cells) / others) ** (1 / columns)))
    return max(1, least - 1)


def _largest(held: Sequence[tuple[str, float]], limit: int) -> list[str]:
    """The texts of the values of the largest noisy counts, in their order."""
    if len(held) <= limit:
        return [text for text, _ in held]
    kept = sorted(range(len(held)), key=lambda place: -held[place][1])[:limit]
    return [held[place][0] for place in sorted(kept)]


def releases(session: Session, handles: str) -> list[Release]:
    """The releases that ``found(found)`` names."""
    from duckdb_dp.sql.dp_discover import FUNCTION  # for import time

    return [session.release_of(FUNCTION.name, number) for number in handles.split(",")]


def affordable(session: Session, found: Sequence[Request], sums: Request) -> None:
    """Refuse before anything is charged what the values of all columns and the sums together cost too much for.

    Args:
        session: whose ledger says what is left, to the account that asks.
        found: the requests that find values.
        sums: the request for whose groups they are found.

    Raises:
        DPError: too little is left, of the budget or of what is kept for thresholds.
    """
    dataset = session.ledger.dataset(sums.catalog, sums.schema, sums.table)
    unpaid = [each for each in found if session.ledger.find(each.hash, private=session.bits.private) is None]
    if dataset is None or not unpaid:
        return
    left, cost = session.ledger.remaining(dataset), math.fsum([sums.cost, *(each.cost for each in unpaid)])
    if cost > left * (1 + 1e-9):
        raise DPError(
            f"finding the groups and answering takes {cost:.6g} of the budget of '{dataset.name}', of which "
            f"{left:.6g} is left ({dataset.accounting.unit}); nothing was charged."
        )
    delta = math.fsum(ThresholdNoise.of(each).delta for each in unpaid)
    kept = session.ledger.discovery_remaining(dataset)
    if session.ledger.account is None and delta > kept * (1 + 1e-9):  # another account may have had them drawn
        raise DPError(
            f"finding the groups takes {delta:.4g} of discovery_delta, of which '{dataset.name}' has {kept:.4g} left; nothing was "
            "charged; declare the values by dp_attribute."
        )


@contextmanager
def as_whole(session: Session, sums: Request, *, finding: bool, fresh: bool = False) -> Iterator[None]:
    """While a block charges the part of a call that finds groups, or the sums: what may be spent at once is that of both together.

    Args:
        session: whose ledger knows the account.
        sums: the request of the sums, with placeholders of the groups: a steward approves that.
        finding: whether the groups are found now.
        fresh: whether the sums are drawn anew.

    Raises:
        Waiting: both together are more than the account may spend at once; nothing was charged.
    """
    ledger = session.ledger
    dataset = ledger.dataset(sums.catalog, sums.schema, sums.table)
    if ledger.account is None or dataset is None:
        yield
        return
    cost = sums.cost / (1 - SHARE) if finding else sums.cost
    asked = {
        "function": sums.function,
        "request": sums.to_json(),
        "request_hash": sums.hash,
        "mechanism": sums.mechanism,
    }
    ledger.accounts.admit(ledger.account, dataset, cost, fresh=fresh, **asked)
    token = grants.WHOLE.set(sums.hash)
    try:
        yield
    finally:
        grants.WHOLE.reset(token)


def texts(session: Session, request: Request, handles: str, name: str) -> list[str]:
    """The values of a column of a request that were found, as texts in the order of its cells."""
    done = filled(session, request, releases(session, handles))
    (attribute,) = (one for one in done.attributes if one.name == name)
    return [str(label) for label in attribute.labels()[: -1 if attribute.other else None]]
