"""Pairs of columns of which CHECK, or a declaration, says that one is never below the other, as the first and the last day of a stay."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.differences import DIFFERENCES, Difference, differences, looked_at
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types.moments import Moment
from duckdb_dp.errors import DPError, quoted
from duckdb_dp.request import Request
from duckdb_dp.synthesis.database import Table
from duckdb_dp.synthesis.links.columns import link_attributes
from duckdb_dp.synthesis.table.in_order import IN_ORDER, SAID, Order, comparable, orders

HINTS = 2
"""Pairs of which it is said that they could be in order, at most."""


def with_orders(request: Request, table: Table | None, attributes: Sequence[Attribute]) -> Request:
    """The request of a synthesis, with the pairs of its attributes that a constraint of the table, or who declared them, keeps in order.

    Of dates and times of DuckDB's own tables it is counted how far they are apart. Other engines count the columns alone.

    Privacy: looks at constraints and declarations only.
    """
    known = {attribute.name: attribute for attribute in attributes}
    found = [
        (low, high, strict)
        for low, high, strict in [*([] if table is None else _checked(table)), *_declared(attributes)]
        if {low, high} <= known.keys() and comparable(known[low], known[high])
    ]
    plain = tuple(each if each.at_least is None else replace(each, at_least=None) for each in request.attributes)
    request = replace(request, attributes=plain)
    if not found:
        return request
    options = [*request.options, (IN_ORDER, tuple(dict.fromkeys(found)))]
    if {*found} & {*_declared(attributes)}:
        options.append((SAID, True))
    if request.schema != SCHEMA and (apart := looked_at(attributes, [(low, high) for low, high, _ in found])):
        options.append((DIFFERENCES, tuple(apart)))
    return replace(request, options=tuple(sorted(options)))


def check_orders(request: Request) -> None:
    """Refuse rows that no order of their columns allows, before they are charged; stored ones were paid for.

    Raises:
        DPError: of two columns each is always above the other one, maybe by way of others.

    Privacy: depends on public facts only.
    """
    found = orders(request)
    for low, high, strict in found:
        if strict and (back := _path(found, high, low)):
            said = " and ".join(
                f"{upper} {'>' if more else '>='} {lower}" for lower, upper, more in [(low, high, True), *back]
            )
            raise DPError(
                f"{request.function}: CHECKs or at_least of '{request.table}' say {said}, which no row with all of these values satisfies; "
                "drop one of these constraints, or ask for fewer of these columns with attributes := [...]."
            )


def _path(found: Sequence[Order], low: str, high: str) -> list[Order]:
    """The pairs by which one column is never above another one, step by step; none where no pairs say so."""
    reached: dict[str, list[Order]] = {low: []}
    waiting = [low]
    while waiting and high not in reached:
        at = waiting.pop(0)
        for pair in found:
            if pair[0] == at and pair[1] not in reached:
                reached[pair[1]] = [*reached[at], pair]
                waiting.append(pair[1])
    return reached.get(high, [])


def order_note(request: Request) -> str | None:
    """Which columns are kept in order, whose difference is measured, and of which pairs that could be said; None where there are none.

    Privacy: depends on public facts only.
    """
    of_links = "references" in dict(request.options)
    attributes = link_attributes(request) if of_links else request.attributes
    said, apart = orders(request), [one.name for one in request.differences]
    notes = [f"{upper} never below {lower}" for lower, upper, _ in said]
    notes = [", ".join(notes)] if notes else []
    if apart:
        notes.append(f"how far apart is measured too: {', '.join(apart)}")
    if request.schema != SCHEMA:
        known = {frozenset(pair[:2]) for pair in said}
        dated = [a.name for a in attributes if isinstance(a.dtype, Moment)]
        between = differences(attributes, list(itertools.combinations(dated, 2)))
        free = [one for one in between if {one.low.name, one.high.name} not in known and _may_be_ordered(one)]
        notes += [
            f"if {one.high.name} is never below {one.low.name}, at_least := {quoted(one.low.name)} in its declaration keeps how far they "
            "are apart"
            for one in free[:HINTS]
        ]
    return "; ".join(notes) or None


def _may_be_ordered(one: Difference) -> bool:
    return comparable(one.low, one.high) and one.possible


def _declared(attributes: Sequence[Attribute]) -> Iterator[Order]:
    for attribute in attributes:
        if attribute.at_least is not None:
            yield attribute.at_least, attribute.name, False


def _checked(table: Table) -> Iterator[Order]:
    for used, text in table.checks:
        if len(set(used)) > 1:
            yield from _orders(text, table.columns)


def _orders(text: str, columns: Collection[str]) -> Iterator[Order]:
    """(lower, upper, whether they always differ) of the columns that a condition compares, whatever else it says."""
    from sqlglot import exp, parse_one  # for import time: few tables have such a condition
    from sqlglot.errors import SqlglotError

    spelled = {column.lower(): column for column in columns}

    def name(node: exp.Expr) -> str | None:
        node = node.unnest()
        return spelled.get(node.name.lower()) if isinstance(node, exp.Column) and not node.table else None

    def read(node: exp.Expr) -> Iterator[Order]:
        node = node.unnest()
        if isinstance(node, exp.And):
            yield from itertools.chain(read(node.left), read(node.right))
        elif isinstance(node, exp.Or):  # x IS NULL OR x <= y: where one is NULL nothing is drawn
            nulls = [side for side in (node.left, node.right) if _is_null(side)]
            others = [side for side in (node.left, node.right) if side not in nulls]
            for low, high, strict in [*read(others[0])] if len(others) == 1 else []:
                if name(nulls[0].unnest().this) in (low, high):
                    yield low, high, strict
        elif isinstance(node, exp.Between):
            yield from _both(name(node.args["low"]), name(node.this), strict=False)
            yield from _both(name(node.this), name(node.args["high"]), strict=False)
        elif isinstance(node, exp.LTE | exp.LT):
            yield from _both(name(node.left), name(node.right), strict=isinstance(node, exp.LT))
        elif isinstance(node, exp.GTE | exp.GT):
            yield from _both(name(node.right), name(node.left), strict=isinstance(node, exp.GT))

    def _is_null(node: exp.Expr) -> bool:
        node = node.unnest()
        return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)

    def _both(low: str | None, high: str | None, *, strict: bool) -> Iterator[Order]:
        if low is not None and high is not None and low != high:
            yield low, high, strict

    try:
        yield from read(parse_one(text, dialect="duckdb"))
    except SqlglotError:
        return  # then it is a constraint that forbids rows
