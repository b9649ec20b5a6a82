"""The release of the same sums under other names: what is sorted, cut, named or worked out of them costs nothing more."""

import json
from collections import OrderedDict
from typing import Any, final

from duckdb_dp.accounting.ledger import Release, hash_request
from duckdb_dp.domain.domain import canonical
from duckdb_dp.request import Request
from duckdb_dp.sql.session import Session

NEWEST = 100
"""Releases that are looked through, the newest ones."""


@final
class Measured:
    """What the releases that were looked through have measured, as a hash, by the hash of their request."""

    def __init__(self) -> None:
        self.known: OrderedDict[str, str] = OrderedDict()


def find(session: Session, request: Request) -> Release | None:
    """The newest stored release that measured what the request measures, whatever its columns are called and show.

    Privacy: post-processing.
    """
    wanted, known = hash_request(_measured(request.to_json())), session.kept(Measured).known
    for number, hash_ in session.ledger.newest(request.function, NEWEST, private=session.bits.private):
        if hash_ not in known:
            known[hash_] = hash_request(_measured(session.ledger.release(number).request))
        if known[hash_] == wanted:
            stored = session.ledger.release(number)
            session.read[stored.id] = stored
            return stored
    while len(known) > 10 * NEWEST:
        known.popitem(last=False)
    return None


def _measured(text: str) -> str:
    """A request without what is worked out of its sums, and without the names of its counts' columns and the order of their groups."""
    data: dict[str, Any] = json.loads(text)
    for question in data.get("questions", ()):
        if [tag for tag, _ in question["shown"][:2]] == ["#", "@"]:  # of a SELECT, whose columns have tags of their own
            tags = [[tag, text if tag[:1] in ("#", "=") or tag == "@" else ""] for tag, text in question["shown"]]
            groups = sorted(
                pair for pair in tags if pair[0][:1] not in ("#", "@", "=")
            )  # in whatever order they are selected
            question["shown"] = [*groups, *(pair for pair in tags if pair not in groups)]
    for part in data.get("direct", ()):
        part["labels"] = [label[2:] for label in part["labels"]]  # without the name and the type
        for word in ("outputs", "having", "order", "limit"):
            part.pop(word)
    return canonical(data)
