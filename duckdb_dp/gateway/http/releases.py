"""What a release is, beside its rows: what was asked of which dataset, at which cost and when; public to whoever may read it."""

from typing import Any

from duckdb_dp.gateway.asked import Asked
from duckdb_dp.gateway.broker import Broker
from duckdb_dp.gateway.session import Account
from duckdb_dp.reporting.labels import WHOLE, summary

LISTED = ("release", "name", "dataset", "function", "epsilon", "delta", "released_at", "private")
"""What is said of a release, beside what it asked."""


def released(broker: Broker, account: Account, key: int | str) -> dict[str, Any]:
    """A release that an account may read, by its number or name; it is no statement of the account's own."""
    rows = broker.ask(Asked(function="dp_releases", arguments=()), account.name, account.role).to_pylist()
    return facts(next((row for row in rows[::-1] if key in (row["release"], row["name"])), {}), WHOLE)


def facts(row: dict[str, Any], most: int) -> dict[str, Any]:
    """What is said of a row of dp_releases(): what it asked in words of so many characters; its request in full is in dp_releases()."""
    said = {name: row[name] for name in LISTED if name in row}
    return {**said, "asked": summary(str(row["request"]), most)} if row else {}
