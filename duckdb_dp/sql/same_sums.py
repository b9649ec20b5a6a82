"""The release of the same sums under other names, in another order: what is sorted, cut, named or worked out of them costs nothing more."""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

import numpy as np

from duckdb_dp.accounting.ledger import Release, hash_request
from duckdb_dp.domain.domain import Domain, canonical
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.request import Request
from duckdb_dp.sql.session import Session

if TYPE_CHECKING:
    from sqlglot import exp

NEWEST = 100
"""Releases that are looked through, the newest ones."""


@final
class Measured:
    """What the releases that were looked through have measured, roughly and as a hash, by the hash of their request."""

    def __init__(self) -> None:
        self.roughly: OrderedDict[str, tuple[Any, ...]] = OrderedDict()
        self.known: dict[str, str] = {}


def find(session: Session, request: Request) -> tuple[Release, Request] | None:
    """The newest stored release that measured what the request measures, and the request with its sums in that release's order.

    Privacy: post-processing.
    """
    measured, text = session.kept(Measured), request.to_json()
    wanted = _roughly(text)
    for number, hash_ in session.ledger.newest(request.function, NEWEST, private=session.bits.private):
        if hash_ not in measured.roughly:
            measured.roughly[hash_] = _roughly(session.ledger.release(number).request)
        if measured.roughly[hash_] != wanted:
            continue
        if hash_ not in measured.known:
            measured.known[hash_] = hash_request(_measured(session.ledger.release(number).request))
        if measured.known[hash_] == hash_request(_measured(text)):
            stored = session.ledger.release(number)
            if _mixed(Request.from_json(stored.request)):
                continue
            session.read[stored.id] = stored
            return stored, _arranged(request, Request.from_json(stored.request))
    while len(measured.roughly) > 10 * NEWEST:
        measured.known.pop(measured.roughly.popitem(last=False)[0], None)
    return None


def in_domain_order(part: GroupedSums, domain: Iterable[str], sizes: Callable[[str], int]) -> GroupedSums:
    """The same groups with the attributes in the domain's order, in which rows are placed.

    SELECTs of a list have the attributes that each knows in an order of its own.

    Args:
        part: of one SELECT.
        domain: the names of all attributes, in their order.
        sizes: how many cells an attribute has.
    """
    clique = tuple(name for name in domain if name in part.clique)
    if clique == part.clique:
        return part
    if part.groups is None:
        return replace(part, clique=clique)
    along = np.array(part.groups).reshape([sizes(name) for name in part.clique])
    turned = along.transpose([part.clique.index(name) for name in clique])
    return replace(part, clique=clique, groups=tuple(turned.reshape(-1).tolist()))


def _mixed(request: Request) -> bool:
    """Whether an earlier version put rows in groups of other cells than their own, as it had attributes in two orders."""
    order = [attribute.name for attribute in request.attributes]
    return any(
        part.groups is not None and list(part.clique) != [name for name in order if name in part.clique]
        for part in request.direct
    )


def _roughly(text: str) -> tuple[Any, ...]:
    """What is alike in all requests that measure the same, and differs in most others: it takes no parsing of SQL."""
    data: dict[str, Any] = json.loads(text)
    parts = [(part["size"], part["where"], len(part["sums"])) for part in data.get("direct", ())]
    names = [attribute["name"] for attribute in data["attributes"]]
    dataset = (*data["dataset"], data["unit"], data["max_rows"], data.get("version", 1))
    return data["cost"], *dataset, len(data["questions"]), *sorted(names), *parts


def _arranged(request: Request, stored: Request) -> Request:
    """The request with its sums and its groups where their like are among those that were stored."""
    sizes = request.domain
    parts = zip(request.direct, stored.direct, strict=True)
    return replace(
        request,
        attributes=stored.attributes if request.direct else request.attributes,
        direct=tuple(_in_order(part, other, sizes) for part, other in parts),
    )


def _in_order(part: GroupedSums, stored: GroupedSums, sizes: Domain) -> GroupedSums:
    free: dict[str, list[int]] = {}
    for place, one in enumerate(stored.sums):
        free.setdefault(_sum(one.to_json()), []).append(place)
    labels = part.labels
    if part.groups is not None and stored.groups is not None:
        own, theirs = _numbers(part.clique, part.groups, sizes), _numbers(stored.clique, stored.groups, sizes)
        places = np.argsort(own)[theirs]  # the number here of each of their groups
        labels = tuple(
            replace(one, values=tuple(one.values[i] for i in places)) if one.values else one for one in labels
        )
    arranged = part.arranged(stored.sums, [free[_sum(one.to_json())].pop(0) for one in part.sums])
    kept = {name: getattr(stored, name) for name in ("columns", "clique", "groups", "source")}
    return replace(arranged, labels=labels, **kept)


def _measured(text: str) -> str:
    """A request without what is worked out of its sums, the names of its columns, and the order of its sums and its groups."""
    data: dict[str, Any] = json.loads(text)
    for question in data.get("questions", ()):
        if [tag for tag, _ in question["shown"][:2]] == ["#", "@"]:  # of a SELECT, whose columns have tags of their own
            tags = [[tag, text if tag[:1] in ("#", "=") or tag == "@" else ""] for tag, text in question["shown"]]
            groups = sorted(
                pair for pair in tags if pair[0][:1] not in ("#", "@", "=")
            )  # in whatever order they are selected
            question["shown"] = [*groups, *(pair for pair in tags if pair not in groups)]
    if data.get("direct"):
        sizes = Request.from_json(text).domain
        data["attributes"] = sorted(map(canonical, data["attributes"]))
    for part in data.get("direct", ()):
        groups = part["groups"]
        order = None if groups is None else np.argsort(_numbers(part["clique"], groups, sizes))
        # Without the name, the type and the number of the key: groups are numbered by their cells alone.
        labels = [
            [attribute, values if order is None or not values else [values[i] for i in order]]
            for _, _, _, attribute, values in part["labels"]
        ]
        part["labels"] = sorted(map(canonical, labels))
        part["groups"] = None if order is None else _by_name(part["clique"], groups, sizes, np.argsort(order))
        for word in ("clique", "columns"):
            part[word] = sorted(part[word])
        part["sums"] = sorted(map(_sum, part["sums"]))
        if "source" in part:
            part["source"][0] = _sorted_columns(part["source"][0])
        for word in ("outputs", "having", "order", "limit"):
            part.pop(word)
    return canonical(data)


def _cells(clique: Sequence[str], groups: Sequence[int], sizes: Domain) -> np.ndarray:
    """The group of each cell, with the attributes in the order of their names."""
    along = np.array(groups).reshape([sizes.sizes[name] for name in clique])
    return along.transpose(sorted(range(len(clique)), key=list(clique).__getitem__)).reshape(-1)


def _numbers(clique: Sequence[str], groups: Sequence[int], sizes: Domain) -> np.ndarray:
    """What number each group has in the order of their first cells, with the attributes in the order of their names."""
    found, first = np.unique(_cells(clique, groups, sizes), return_index=True)
    return np.argsort(np.argsort(first[found >= 0]))


def _by_name(clique: Sequence[str], groups: Sequence[int], sizes: Domain, numbers: np.ndarray) -> list[int]:
    cells = _cells(clique, groups, sizes)
    return [int(one) for one in np.where(cells < 0, -1, numbers[cells])]


@lru_cache(maxsize=1000)
def _sorted_columns(relation: str) -> str:
    """The text of a relation with its columns in the order of their names."""
    from sqlglot import exp, parse_one  # for import time: counts of cells have no relations

    tree = parse_one(relation, dialect="duckdb")
    if isinstance(tree, exp.Select):
        tree.set("expressions", sorted(tree.expressions, key=lambda one: one.alias_or_name))
    return tree.sql("duckdb")


def _sum(plain: list[Any]) -> str:
    """What a sum is, as text, whichever side of + and * comes first in its value."""
    return canonical([_either_side(plain[0]) if plain[0] else "", *plain[1:]])


@lru_cache(maxsize=1000)
def _either_side(value: str) -> str:
    """The text of an expression whose sums and products have their sides in one order: a + b and b + a are one number in every type."""
    from sqlglot import exp, parse_one  # for import time: counts of cells have no expressions

    def sides_of(node: "exp.Expr") -> "list[exp.Expr]":
        """Both sides, each in parentheses where an operator joins it: a * (b // c) is not (a * b) // c."""
        sides = (node.this.unnest(), node.expression.unnest())
        return [exp.Paren(this=side) if isinstance(side, exp.Binary) else side for side in sides]

    tree = parse_one(value, dialect="duckdb")
    for node in reversed(list(tree.walk())):  # those inside first, whose texts the others are sorted by
        if not isinstance(node, exp.Binary):
            continue
        sides = sides_of(node)
        if isinstance(node, exp.Add | exp.Mul):
            sides.sort(key=lambda side: side.sql("duckdb"))
        node.set("this", sides[0])
        node.set("expression", sides[1])
    return tree.sql("duckdb")
