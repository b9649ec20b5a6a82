"""The tools that an agent has, with the words that teach it to price before it asks and to ask nothing twice."""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, final

import pyarrow as pa

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.gateway.asked import written
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.http.releases import LISTED, released
from duckdb_dp.gateway.session import Session
from duckdb_dp.gateway.taught import READ
from duckdb_dp.gateway.values import is_marked, listed, readable, said
from duckdb_dp.reporting.labels import summary
from duckdb_dp.reporting.readable import reasons

INSTRUCTIONS = """\
True but noisy answers about private tables. Nobody can read the tables; every answer has a 95 % interval (ci_low, ci_high) and \
is paid from a budget that does not grow back.
1. list_datasets, then describe a dataset: which columns can be asked about, and what is left.
2. explore tries a query on synthetic rows, for nothing. Synthetic answers are for trying, never for reporting.
3. read_release without an argument lists answers that were paid already: reading them again costs nothing.
4. price says what a query would cost and how large its error would be. Always price before you ask.
5. ask spends the budget. The same query asked again is the stored answer and costs nothing.
Report an answer with its interval, and do not take differences smaller than the intervals for real. Few groups and one query with \
several counts are more precise than many queries. A refusal is final for that query: read what it says would work, and do not repeat it."""

SQL = """\
One SELECT over a dataset, with epsilon or precision beside it; or one DuckDB statement around dp_ functions, such as \
FROM dp_sql('SELECT sex, count(*) AS n FROM visits GROUP BY sex', epsilon := 0.1), \
FROM dp_marginals('visits', ['age', 'sex'], epsilon := 0.1) or FROM dp_quantiles('visits', 'age', [0.5], epsilon := 0.1)."""

OWN = {
    "dp_budget": "budget",
    "dp_releases": "read_release",
    "dp_release": "read_release",
    "dp_explain": "price",
    "dp_domain": "describe",
}
"""Functions that cost nothing -> the tools for what they return."""

ROWS, MOST = 200, 5_000
"""Rows of an answer, and the most that can be asked for."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who calls a tool."""

    gateway: Gateway
    session: Session


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool: its words, its parameters as JSON schemas, and what it does."""

    name: str
    title: str
    description: str
    run: Callable[[Asker, Mapping[str, Any]], dict[str, Any]]
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    free: bool = True

    @property
    def schema(self) -> dict[str, Any]:
        """Of its arguments."""
        return {
            "type": "object",
            "properties": {name: dict(each) for name, each in self.parameters.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }

    def call(self, asker: Asker, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the tool returns.

        Raises:
            DPError: an argument is missing, unknown or of another type; or the call is refused.
        """
        for name in arguments:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise DPError(f"{self.name} has no argument {as_sql(str(name)[:80])}; there are: {known}.")
        for name in self.required:
            if arguments.get(name) is None:
                raise DPError(f"{self.name} needs the argument '{name}': {self.parameters[name]['description']}")
        given = {name: value for name, value in arguments.items() if value is not None}
        for name, value in given.items():
            kinds = self.parameters[name]["type"]
            if not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
                raise DPError(f"{self.name}: '{name}' is not of the type {kinds}.")
        return self.run(asker, given)


def _is(value: object, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) if kind == "integer" else abs(value) <= sys.float_info.max


def _statement(arguments: Mapping[str, Any]) -> str:
    """The statement; a SELECT with a budget beside it becomes a call of dp_sql."""
    sql = str(arguments["sql"])
    options = [f'"{name}" := {written(arguments[name])}' for name in ("epsilon", "precision") if name in arguments]
    if "release" in arguments:
        options.append(f"release := {written(arguments['release'])}")
    if not options:
        return sql
    if re.search(r"\bfrom\s+dp_\w+\s*\(", sql, re.IGNORECASE):
        raise DPError(
            "epsilon, precision and release stand inside a dp_ call: give the call alone, or a plain SELECT with epsilon beside it."
        )
    quoted = "'" + sql.strip().rstrip(";").replace("'", "''") + "'"
    return f"FROM dp_sql({', '.join([quoted, *options])})"


@contextmanager
def _advising(arguments: Mapping[str, Any]) -> Iterator[None]:
    """While a block runs, refusals also say what an agent has for what they propose."""
    try:
        yield
    except DPError as error:
        more = re.search(r"\badd (\w+ := [\w.']+)", str(error))
        if READ in str(error):
            raise DPError(f"{error} Or give epsilon or precision beside this SELECT.") from None
        if more is not None and (call := _statement(arguments)) != arguments["sql"]:
            raise DPError(
                f"{error} Here that is a call as sql, with nothing beside it: {call[:-1]}, {more[1]})"
            ) from None
        raise


def _list_datasets(asker: Asker, arguments: Mapping[str, Any]) -> dict[str, Any]:
    tables = [{"table": name, "rows": kind} for name, (kind, _) in sorted(asker.session.readable().items())]
    return {"datasets": _records(asker.session.datasets()), **({"tables": tables} if tables else {})}


def _describe(asker: Asker, arguments: Mapping[str, Any]) -> dict[str, Any]:
    name, session = arguments["dataset"], asker.session
    columns, counted = _records(session.describe(name)), session.counted(name)
    kind, _ = session.readable().get(name.lower(), (None, None))
    facts = {"counted": counted} if counted else {"rows": kind} if kind else {}
    return {"dataset": name, **facts, "columns": columns}


def _price(asker: Asker, arguments: Mapping[str, Any]) -> dict[str, Any]:
    with _advising(arguments):
        found = _records(asker.session.price(_statement(arguments)))
    return {"price": found[:ROWS], "answers": len(found)}


def _ask(asker: Asker, arguments: Mapping[str, Any]) -> dict[str, Any]:
    before = _spent(asker)
    with _advising(arguments):
        table = asker.session.run(_statement(arguments))
    after = _spent(asker)
    cost = [
        {
            "dataset": name,
            "share_of_grant": _plain(max(0.0, after[name][0] - before.get(name, (0.0, 0.0))[0])),
            "epsilon_left": _plain(after[name][1]),
        }
        for name in after
    ]
    paid = any(each["share_of_grant"] for each in cost)
    note = "Paid once: asked again, it costs nothing." if paid else "It cost nothing: it was paid before, or is free."
    return {**_answers(table, arguments), "cost": cost, "note": note}


def _read_release(asker: Asker, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if "release" not in arguments:
        return _rows(_listed(asker.session.releases()), arguments)
    key = arguments["release"]
    number = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 19
    key = int(key) if number else key
    found = _answers(asker.session.read_release(key), arguments)
    row = released(asker.gateway.broker, asker.session.account, key)
    return {**{name: _plain(value) for name, value in row.items() if value is not None}, **found}


def _listed(releases: pa.Table) -> pa.Table:
    """Releases, the newest first, with what they asked in words; their requests in full are in dp_releases()."""
    newest = releases.take(pa.array(range(releases.num_rows)[::-1], pa.int64()))  # of a type also where there is none
    asked = pa.array([summary(str(text)) for text in listed(newest.column("request"))], pa.string())
    return newest.select(list(LISTED)).append_column("asked", asked)


def _explore(asker: Asker, arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        table = asker.session.explore(arguments["sql"])
    except DPError as error:
        named = re.findall(r"\bdp_\w+(?=\s*\()", arguments["sql"].lower())
        tool = next((OWN[name] for name in named if name in OWN), None)
        raise DPError(f"{error} The tool {tool} has this at no cost.") if tool else error from None
    if not is_marked(table):
        return {**_rows(table, arguments), "synthetic": False, "note": "Of public tables alone: these are true rows."}
    note = "Synthetic rows: for trying queries, not for reporting."
    return {**_rows(table, arguments), "synthetic": True, "note": note}


def _budget(asker: Asker, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"budgets": _records(asker.session.budget())}


_TEXT = {"type": "string"}
_PAGE = {
    "limit": {"type": "integer", "description": f"Rows to return, {ROWS} by default and at most {MOST:,}."},
    "offset": {"type": "integer", "description": "Rows to skip; the stored answer is read, at no cost."},
}
_SPENDING: dict[str, Mapping[str, Any]] = {
    "sql": {**_TEXT, "description": SQL},
    "epsilon": {"type": "number", "description": "What a plain SELECT may spend. Smaller is cheaper and noisier."},
    "precision": {
        "type": ["number", "string"],
        "description": "Instead of epsilon: the standard deviation that is good enough, as 50, or '5% of 1000' of an answer of 1000.",
    },
}

TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            name="list_datasets",
            title="Datasets",
            description="The datasets that can be asked about: whom each protects, what is left of your budget, how much one request "
            "may cost without a steward's approval, whether there are synthetic rows to explore, and keys: which columns name the unit, "
            "and by which the tables are joined. tables are those that a query reads as they are: public ones, which dp_sql joins with "
            "datasets too, and synthetic ones. Free. Call it first.",
            run=_list_datasets,
        ),
        Tool(
            name="describe",
            title="Columns of a dataset",
            description="The columns of a dataset or a table, their types, what they name (key), and their declared values or bins. Only "
            "declared columns can be grouped by for nothing; these declarations are public, and say nothing about the data. Free.",
            run=_describe,
            parameters={"dataset": {**_TEXT, "description": "The name of a dataset or a table from list_datasets."}},
            required=("dataset",),
        ),
        Tool(
            name="price",
            title="Price a query",
            description="What a query would cost and how large the error of each answer would be, before anything is spent: half_width "
            "is half of the 95 % interval, share_of_left the part of your remaining budget. fits = false: it would be refused; ask for "
            "fewer groups or a smaller epsilon. waits = true: a steward would have to approve it. Free. Always call it before ask, and "
            "try several budgets until the error is just good enough.",
            run=_price,
            parameters=_SPENDING,
            required=("sql",),
        ),
        Tool(
            name="ask",
            title="Ask (spends budget)",
            description="True answers with noise: rows with ci_low and ci_high, what they cost and what is left. Spends the budget, once: "
            "the same query again returns the stored answer for nothing, so never change a query or its budget only to ask again. Price it "
            "first. If the call says that a request waits for a steward, tell the user its number, and ask the same query later. If the "
            "budget does not suffice, lower epsilon, ask for fewer groups, or read earlier releases.",
            run=_ask,
            parameters={
                **_SPENDING,
                "release": {**_TEXT, "description": "A name under which read_release finds the answer of a plain SELECT."},
                **_PAGE,
            },
            required=("sql",),
            free=False,
        ),
        Tool(
            name="read_release",
            title="Read paid answers",
            description="Without an argument, the list of stored answers that you may read, the newest first; with a number or a name, "
            "what one asked, its cost and its rows. Free. Look here before you ask: an answer that is here need not be paid again.",
            run=_read_release,
            parameters={
                "release": {"type": ["string", "integer"], "description": "The number or name of a release."},
                **_PAGE,
            },
        ),
        Tool(
            name="explore",
            title="Explore synthetic rows",
            description="Runs any SELECT over synthetic and public tables; a dataset's name stands for its synthetic rows. Free and "
            "unlimited. Use it to try out SQL and to see what is worth asking. Where it says synthetic, its numbers are not true "
            "answers: never report them.",
            run=_explore,
            parameters={
                "sql": {**_TEXT, "description": "A SELECT of DuckDB's SQL, such as SELECT sex, count(*) FROM visits GROUP BY sex."},
                **_PAGE,
            },
            required=("sql",),
        ),
        Tool(
            name="budget",
            title="Budget",
            description="What you were granted for each dataset, what is spent and what is left. Free. It does not grow back: plan the "
            "questions you will need before you spend.",
            run=_budget,
        ),
    )
}  # fmt: skip


def _spent(asker: Asker) -> dict[str, tuple[float, float]]:
    """Dataset -> (share of the account's grant that is spent, epsilon that is left)."""
    rows = asker.gateway.broker.ledger.asked_by(asker.session.account.name).budget_rows()
    shares = ((row["spent"] / row["total"] if row["total"] else 0.0, row["epsilon_remaining"]) for row in rows)
    return dict(zip((row["dataset"] for row in rows), shares, strict=True))


def _answers(table: pa.Table, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``_rows``, with what their intervals do not cover, and why answers are not there."""
    found = _rows(table, arguments)
    lines = [*reasons(found["columns"], found["rows"]), *said(table)]
    return {**found, "read_with": lines} if lines else found


def _rows(table: pa.Table, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Columns and rows; how many there are in all where not all are returned."""
    limit, offset = int(arguments.get("limit", ROWS)), int(arguments.get("offset", 0))
    if not 0 < limit <= MOST or not 0 <= offset < 2**31:
        raise DPError(f"limit is between 1 and {MOST:,}, and offset is not negative.")
    part = table.slice(offset, limit)
    columns = [[_plain(value) for value in column] for column in readable(part)]
    found: dict[str, Any] = {"columns": table.column_names, "rows": [list(row) for row in zip(*columns, strict=True)]}
    if part.num_rows < table.num_rows:
        found["rows_in_all"] = table.num_rows
    return found


def _records(table: pa.Table) -> list[dict[str, Any]]:
    """A dictionary for each row, without what is NULL."""
    rows = zip(*readable(table), strict=True)
    return [
        {name: _plain(value) for name, value in zip(table.column_names, row, strict=True) if value is not None}
        for row in rows
    ]


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers that are not whole in ten digits, which is more than their noise gives sense to."""
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    if isinstance(value, float | Decimal):
        short = float(f"{value:.10g}")  # which is infinite next to the largest number
        return short if math.isfinite(short) else float(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
