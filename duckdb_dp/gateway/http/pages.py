"""The pages of those who ask: datasets, the SQL box, answers and downloads, releases, budget."""

import io
from typing import Any

import pyarrow as pa
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.http import words
from duckdb_dp.gateway.http.pictures import said, sections
from duckdb_dp.gateway.http.releases import released
from duckdb_dp.gateway.http.web import Call, Site, route
from duckdb_dp.gateway.values import listed

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With which a text begins that a spreadsheet would compute, in wide characters too."""

LATEST = 20
"""Requests of an account that its page shows."""

RELEASES = 50
"""Of a page."""

DESCRIBED = 30
"""Tables whose columns are completed."""


def routes(site: Site) -> list[Route]:
    """The pages."""
    return [
        route(site, "/", _datasets),
        route(site, "/dataset/{name}", _dataset),
        route(site, "/ask", _ask, "GET", "POST"),
        route(site, "/words.json", _words),
        route(site, "/answer/{key}", _answer),
        route(site, "/releases", _releases),
        route(site, "/releases/{key}", _release),
        route(site, "/budget", _budget),
    ]


def _datasets(call: Call) -> Response:
    session = call.visit.session
    return call.page(
        "datasets.html.j2", datasets=session.datasets().to_pylist(), tables=sorted(session.readable().items())
    )


def _dataset(call: Call) -> Response:
    name = call.request.path_params["name"]
    described, counted = call.visit.session.describe(name), call.visit.session.counted(name)
    texts = {
        column: ["" if value is None else str(value) for value in listed(described[column])]
        for column in described.column_names
        if described[column].null_count < described.num_rows
    }
    kind, _ = call.visit.session.readable().get(name.lower(), (None, None))
    asked = name if kind else f"dp_sql('SELECT count(*) AS n FROM {name}', epsilon := 0.1)"
    columns = pa.table(texts)
    return call.page("dataset.html.j2", name=name, kind=kind, counted=counted, asked=f"FROM {asked}", columns=columns)


def _ask(call: Call) -> Response:
    """First the price, then the answer: what is asked is what was priced, letter by letter."""
    sql = call.form.get("sql", call.request.query_params.get("sql", ""))[:200_000].replace("\r\n", "\n")
    facts: dict[str, Any] = {
        "sql": sql, "price": None, "prices": None, "priced": "", "answer": None, "drawn": [], "said": [], "key": None, "error": None,
    }  # fmt: skip
    do, seal = call.form.get("do"), call.form.get("priced", "")
    if do is None:
        return call.page("ask.html.j2", **facts)
    try:
        if do == "ask" and call.site.visits.is_sealed(call.cookie, seal, sql):
            table = call.visit.session.run(sql)
            facts |= {"answer": table, "drawn": sections(table), "said": said(table), "key": call.visit.keep(table)}
        else:
            facts |= _price(call, sql)
    except DPError as error:
        return call.page("ask.html.j2", 400, **facts | {"error": str(error)})
    return call.page("ask.html.j2", **facts)


def _price(call: Call, sql: str) -> dict[str, Any]:
    if len(sql) > call.site.door.gateway.config.limits.characters:
        raise DPError(f"a statement has at most {call.site.door.gateway.config.limits.characters:,} characters.")
    table = call.visit.session.price(sql)
    found = words.price(table.to_pylist())
    return {
        "price": found,
        "prices": words.in_full(table),
        "priced": call.site.visits.seal(call.cookie, sql) if found.fits else "",
    }


def _words(call: Call) -> Response:
    """What the SQL box completes: functions, tables, columns."""
    session, broker = call.visit.session, call.site.door.gateway.broker
    with session.noted("words", "page"):
        tables = session.tables()
        columns = {row["column"] for _, rows in [*tables.values()][:DESCRIBED] for row in rows()}
    functions = broker.functions(call.visit.account.role)
    return JSONResponse({"functions": functions, "tables": sorted(tables), "columns": sorted(columns)})


def _answer(call: Call) -> Response:
    """An answer of this visit as a file."""
    key, _, kind = call.request.path_params["key"].rpartition(".")
    table = call.visit.answers.get(key)
    if table is None:
        raise DPError("this answer is no longer here; ask again, which costs nothing for a stored answer.")
    return download(table, "answer", kind)


def _releases(call: Call) -> Response:
    """The newest first, so many on a page."""
    found, asked = call.visit.session.releases(), call.request.query_params.get("page", "1")
    pages = max(1, -(-found.num_rows // RELEASES))
    number = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 1
    number = min(max(number, 1), pages)
    rows = found.to_pylist()[::-1][(number - 1) * RELEASES : number * RELEASES]
    return call.page("releases.html.j2", releases=rows, at=number, last=pages, total=found.num_rows)


def _release(call: Call) -> Response:
    """A release, as a page or as a file."""
    name, _, kind = call.request.path_params["key"].partition(".")
    if not (name.isascii() and name.isdigit() and len(name) < 19):
        raise DPError("releases have numbers; the list has a link to each.")
    table = call.visit.session.read_release(int(name))
    if kind:
        return download(table, f"release-{name}", kind)
    row = released(call.site.door.gateway.broker, call.visit.account, int(name))
    return call.page("release.html.j2", row=row, answer=table, drawn=sections(table), said=said(table))


def _budget(call: Call) -> Response:
    """What is left, and what became of requests to a steward: one that was approved is paid once it was asked again."""
    session, broker = call.visit.session, call.site.door.gateway.broker
    ledger = broker.ledger.asked_by(call.visit.account.name)
    requests = [
        {**row, "paid": ledger.find(row["request_hash"], private=broker.private) is not None}
        for row in session.requests()[:LATEST]
    ]
    return call.page("budget.html.j2", budgets=session.budget().to_pylist(), requests=requests)


def download(table: pa.Table, name: str, kind: str) -> Response:
    """A table as a file, 'csv' or 'parquet'.

    Raises:
        DPError: another kind, or values that such a file cannot hold.
    """
    out = io.BytesIO()
    try:
        if kind == "csv":
            from pyarrow import csv

            csv.write_csv(_flat(table), out)
        elif kind == "parquet":
            from pyarrow import parquet

            parquet.write_table(table, out)
        else:
            raise DPError("answers are downloaded as .csv or .parquet.")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DPError(
            f"this answer has values that a file of the kind '{kind}' cannot hold; take the other one."
        ) from None
    media = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}[kind]
    return Response(
        out.getvalue(), media_type=media, headers={"content-disposition": f'attachment; filename="{name}.{kind}"'}
    )


def _flat(table: pa.Table) -> pa.Table:
    """Lists, structs, durations and bytes as texts, which CSV has no other way to hold; and no text is a formula."""
    import json

    columns = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_nested(kind):
            column = _texts([None if v is None else json.dumps(v, default=str) for v in listed(column)])
        elif not (
            pa.types.is_boolean(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
        ):
            column = _texts([None if v is None else str(v) for v in listed(column)])
        columns.append(column)
    return pa.table(columns, names=[_unformulated(name) for name in table.column_names])


def _texts(values: list[str | None]) -> pa.Array:
    return pa.array([None if value is None else _unformulated(value) for value in values], pa.string())


def _unformulated(text: str) -> str:
    """A text that no spreadsheet computes: where it begins as a formula, an apostrophe stands before it."""
    return f"'{text}" if text.startswith(FORMULAS) else text


def signed_out() -> Response:
    """To the sign-in page."""
    return RedirectResponse("/sign-in", 303)
