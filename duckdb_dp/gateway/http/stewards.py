"""The steward's pages: what waits, accounts and grants, the ledger, the audit."""

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from duckdb_dp.counting.encode import literal
from duckdb_dp.errors import DPError
from duckdb_dp.gateway.gateway import Steward
from duckdb_dp.gateway.http import words
from duckdb_dp.gateway.http.pages import download
from duckdb_dp.gateway.http.web import Call, Site, route

TABLES = {"ledger": "Ledger", "audit": "Audit"}
LATEST = 200
"""Rows of the ledger and the audit on a page, newest first; all of them are in the download."""


def routes(site: Site) -> list[Route]:
    """The pages."""
    return [
        route(site, "/queue", _queue, steward=True),
        route(site, "/queue/{number:int}", _request, "GET", "POST", steward=True),
        route(site, "/accounts", _accounts, "GET", "POST", steward=True),
        route(site, "/records/{kind}", _records, steward=True),
    ]


def _steward(call: Call) -> Steward:
    return call.site.door.gateway.steward(call.visit.account)


def _queue(call: Call) -> Response:
    rows = _steward(call).requests().to_pylist()
    waiting = [row for row in rows if row["state"] == "waiting"]
    return call.page(
        "queue.html.j2", waiting=waiting, decided=[row for row in rows if row not in waiting][::-1][:LATEST]
    )


def _request(call: Call) -> Response:
    """One request: its statement, its price and its error; and the decision."""
    number, steward = call.request.path_params["number"], _steward(call)
    row = next((row for row in steward.requests().to_pylist() if row["request"] == number), None)
    if row is None:
        raise DPError(f"there is no request {number}; the queue lists them.")
    if call.request.method == "POST":
        if call.form.get("do") == "approve":
            call.visit.session.run(f"CALL dp_approve({number})")
        else:
            reason = call.form.get("reason", "").strip()[:1000]
            if not reason:
                raise DPError("say why a request is refused: its account reads the reason.")
            call.visit.session.run(f"CALL dp_refuse({number}, {_text(call.form, 'reason')})")
        return RedirectResponse("/queue", 303)
    try:
        found = steward.price(row["account"], row["statement"] or "")
        prices, expected, error = words.in_full(found), words.expected(found.to_pylist()), None
    except DPError as refused:
        prices, expected, error = None, [], str(refused)
    return call.page("request.html.j2", row=row, prices=prices, expected=expected, error=error, left=_left(call, row))


def _left(call: Call, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The budget of an account on the dataset that a request asks about, where it has an epsilon."""
    key = (row["catalog"], row["schema"], row["dataset"])
    budgets = call.site.door.gateway.broker.ledger.asked_by(row["account"]).budget_rows()
    found = (one for one in budgets if (one["catalog"], one["schema"], one["dataset"]) == key)
    return next((one for one in found if one["epsilon_remaining"] is not None and one["epsilon_total"]), None)


def _accounts(call: Call) -> Response:
    """Accounts and grants; a new account's token is shown once."""
    token = None
    if call.request.method == "POST":
        token = _decide(call)
        if token is None:
            return RedirectResponse("/accounts", 303)
    steward = _steward(call)
    return call.page(
        "accounts.html.j2",
        token=token,
        accounts=_minutes(steward.accounts()),
        grants=steward.grants().to_pylist(),
        budgets=steward.budget().to_pylist(),
    )


def _minutes(rows: pa.Table) -> pa.Table:
    """The rows of accounts with their times to the minute."""
    times = pa.array([str(each)[:16].replace("T", " ") for each in rows["time"].to_pylist()], pa.string())
    return rows.set_column(rows.column_names.index("time"), "since", times)


def _decide(call: Call) -> tuple[str, str] | None:
    """What a form asks for, as the same call in SQL; (name, token) of a new account."""
    form, session = call.form, call.visit.session
    if form.get("do") == "account":
        row = session.run(
            f"CALL dp_account({literal(form.get('name', '')[:1000])}, role := {_text(form, 'role')})"
        ).to_pylist()[0]
        return row["account"], row["token"]
    options = [f"epsilon := {_number(form, 'epsilon')}"]
    if form.get("max_epsilon", "").strip():
        options.append(f"max_epsilon := {_number(form, 'max_epsilon')}")
    options += [f"{name} := {_text(form, name)}" for name in ("synthetic", "until") if form.get(name, "").strip()]
    session.run(f"CALL dp_grant({_text(form, 'name')}, {_text(form, 'dataset')}, {', '.join(options)})")
    return None


def _text(form: Mapping[str, str], name: str) -> str:
    """A field as a string of SQL."""
    return literal(form.get(name, "").strip()[:1000])


def _number(form: Mapping[str, str], name: str) -> str:
    try:
        number = float(form.get(name, ""))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DPError(f"{name} is no number; give one such as 0.5.")
    return repr(number)


def _records(call: Call) -> Response:
    """The ledger or the audit, as a page or as a file."""
    name, _, kind = call.request.path_params["kind"].partition(".")
    if name not in TABLES:
        raise DPError(f"there are the records {' and '.join(TABLES)}.")
    table: pa.Table = getattr(_steward(call), name)()
    if kind:
        return download(table, name, kind)
    newest = table.slice(max(0, table.num_rows - LATEST)).to_pylist()[::-1]
    return call.page(
        "records.html.j2", title=TABLES[name], name=name, total=table.num_rows, rows=newest, names=table.column_names
    )
