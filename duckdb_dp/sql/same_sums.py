"""The release of the same sums under other names: what is sorted, cut, named or worked out of them costs nothing more."""

import json
from typing import Any

from duckdb_dp.accounting.ledger import Release
from duckdb_dp.domain.domain import canonical
from duckdb_dp.request import Request
from duckdb_dp.sql.session import Session

NEWEST = 100
"""Releases that are looked through, the newest ones."""


def find(session: Session, request: Request) -> Release | None:
    """The newest stored release that measured what the request measures, whatever its columns are called and show.

    Privacy: post-processing.
    """
    wanted = _measured(request.to_json())
    rows = (row for row in session.ledger.releases() if row["state"] == "stored")  # others are not there to be read yet
    numbers = [row["release"] for row in rows if row["function"] == request.function]
    for number in sorted(numbers, reverse=True)[:NEWEST]:
        stored = session.ledger.release(int(number))
        same = stored.state == "stored" and stored.private == session.bits.private
        if same and _measured(stored.request) == wanted:
            session.read[stored.id] = stored
            return stored
    return None


def _measured(text: str) -> str:
    """A request without what is worked out of its sums, and without the names of the columns of its counts."""
    data: dict[str, Any] = json.loads(text)
    for question in data.get("questions", ()):
        if [tag for tag, _ in question["shown"][:2]] == ["#", "@"]:  # of a SELECT, whose columns have tags of their own
            question["shown"] = [[tag, text if tag[0] in "#=" or tag == "@" else ""] for tag, text in question["shown"]]
    for part in data.get("direct", ()):
        part["labels"] = [label[1:] for label in part["labels"]]
        for word in ("outputs", "having", "order", "limit"):
            part.pop(word)
    return canonical(data)
