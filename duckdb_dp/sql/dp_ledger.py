"""dp_ledger: every charge, with everything that was recorded about it."""

import json
from typing import Any

from duckdb_dp.errors import brief
from duckdb_dp.sql.arguments import Arguments, Place
from duckdb_dp.sql.registry import Function, Rows, register
from duckdb_dp.sql.session import Session

COLUMNS = {
    "release": "BIGINT", "time": "TIMESTAMP", "catalog": "VARCHAR", "schema": "VARCHAR", "dataset": "VARCHAR",
    "function": "VARCHAR", "mechanism": "VARCHAR", "accounting": "VARCHAR", "cost": "DOUBLE", "mu": "DOUBLE",
    "rho": "DOUBLE", "epsilon": "DOUBLE", "delta": "DOUBLE", "unit": "VARCHAR", "neighbours": "VARCHAR",
    "state": "VARCHAR", "private": "BOOLEAN", "version": "VARCHAR", "request": "VARCHAR", "request_hash": "VARCHAR",
    "discovery_delta": "DOUBLE",
}  # fmt: skip


SHOWN, LONGEST = 8, 600
"""Values of a list that are shown of a request, and characters of a text in it."""


def rows(session: Session, _arguments: Arguments, _place: Place, _seen: str) -> Rows:
    """As the ledger has them; of requests long lists, such as the cells that a median is found in, are shown in short."""
    return [{**row, "request": shown(row["request"])} for row in session.ledger.ledger_rows()]


def shown(request: str) -> str:
    """A request without the middle of its long lists and the end of its long texts."""
    return request if len(request) <= LONGEST else json.dumps(_short(json.loads(request)), ensure_ascii=False)


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list):
        listed = list(map(_short, value if len(value) <= SHOWN else [*value[: SHOWN // 2], *value[-SHOWN // 2 :]]))
        more = len(value) - len(listed)
        return [*listed[: SHOWN // 2], f"… {more:,} more …", *listed[SHOWN // 2 :]] if more else listed
    return brief(value, LONGEST) if isinstance(value, str) else value


FUNCTION = register(Function(name="dp_ledger", rows=rows, columns=COLUMNS, public=True))
