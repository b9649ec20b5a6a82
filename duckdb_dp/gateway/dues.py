"""What asking a call would charge, by the requests inside the SQL that it stands for."""

import json
import math
import re
from dataclasses import dataclass
from typing import final

from duckdb_dp.accounting.ledger import Dataset, Ledger, hash_request
from duckdb_dp.errors import DPError
from duckdb_dp.sql.own_names import unbound
from duckdb_dp.sql.signing import opened

_SIGNED = re.compile(r"'([0-9a-f]{64}(?:[^']|'')*)'")
"""A text of SQL that may be a signed request."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a call would charge.

    Attributes:
        dataset: whose budget that is; None where nothing is charged.
        cost: in the unit of its accounting, of all its requests.
        decided: 'approved' where a steward has approved it, 'refused' where one refused it.
    """

    dataset: Dataset | None = None
    cost: float = 0.0
    decided: str | None = None


def due(sql: str, ledger: Ledger, *, fresh: bool, private: bool) -> Due:
    """What the SQL of a call would charge.

    Args:
        sql: what the call stands for.
        ledger: as the account sees it.
        fresh: whether each run draws anew.
        private: whether answers are.

    Raises:
        DPError: the dataset is not granted to the account.
    """
    asked = requests(sql)
    owed = [each for each in asked if fresh or ledger.find(hash_request(each), private=private) is None]
    if not owed:
        return Due()
    read = [json.loads(each) for each in owed]
    dataset = ledger.dataset(*read[0]["dataset"])
    said = {ledger.accounts.decided(ledger.account, hash_request(each)) for each in owed} if ledger.account else set()
    decided = next((word for word in ("refused", "approved") if word in said), None)
    return Due(dataset=dataset, cost=math.fsum(each["cost"] for each in read), decided=decided)


def read(sql: str, ledger: Ledger, *, fresh: bool, private: bool) -> Dataset | None:
    """The dataset whose rows the SQL of a call may read: of all requests whose answers are not stored, also where they are charged.

    Running totals are stored once their last step is over, and a request whose drawing failed is charged and drawn again.

    Raises:
        DPError: the dataset is not granted to the account.
    """
    for each in sorted(requests(sql)):
        found = None if fresh else ledger.find(hash_request(each), private=private)
        if found is None or found.state != "stored":
            return ledger.dataset(*json.loads(each)["dataset"])
    return None


def requests(sql: str) -> set[str]:
    """The JSON of the requests inside the SQL of a call."""
    return {text for found in _SIGNED.findall(unbound(sql)) if (text := _request(found)) is not None}


def _request(found: str) -> str | None:
    """The JSON of a signed request; None of another text."""
    try:
        return opened(found.replace("''", "'"))
    except DPError:
        return None
