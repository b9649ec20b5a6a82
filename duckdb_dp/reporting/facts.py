"""All facts that a report shows about a release, from the ledger and the stored answers; none of them is private."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duckdb_dp.errors import DPError, as_sql, expect, first_line
from duckdb_dp.reporting.answers import Rows
from duckdb_dp.reporting.rows import read
from duckdb_dp.request import Request
from duckdb_dp.sql.dp_marginals import parse_postprocess
from duckdb_dp.sql.install import release_named

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from duckdb_dp.plan.base import Plan

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A release and what belongs to it.

    Attributes:
        release: its row of dp_releases().
        charge: its row of dp_ledger().
        budget: its dataset's row of dp_budget().
        request: what was asked; None where this version does not understand it.
        arguments: the request as the ledger keeps it.
        plan: how it was answered; None where that was chosen by the data, privately, or nothing was, or is not understood.
        rows: its answers.
        postprocess: how they were made better when they were read; None: they are unbiased, or no counts.
        repeats: whether the same request reads this release: it has a name, or was not drawn anew since.
    """

    release: Row
    charge: Row
    budget: Row
    request: Request | None
    arguments: dict[str, Any]
    plan: "Plan | None"
    rows: Rows
    postprocess: str | None
    repeats: bool = True


def gather(con: "DuckDBPyConnection", name: str | int, postprocess: str | None = None) -> Facts:
    """The facts of a stored release, by its name or number, read as ``postprocess`` says.

    Raises:
        DPError: the connection has no ``dp_`` functions, there is no such release, or it cannot be read so.

    Privacy: post-processing.
    """
    release = _find(con, name)
    number = release["release"]
    charge = next(row for row in rows_of(con, "FROM dp_ledger()") if row["release"] == number)
    budget = next(row for row in rows_of(con, "FROM dp_budget()") if _dataset(row) == _dataset(release))
    request = _request(release["request"])
    kind = None if request is None else _postprocess(request, postprocess)
    rows = _read(con, number, request, kind)
    plan = None if request is None else _plan(request, charge["mechanism"])
    return Facts(
        release=release,
        charge=charge,
        budget=budget,
        request=request,
        arguments=json.loads(release["request"]),
        plan=plan,
        rows=rows,
        postprocess=kind,
        repeats=release["name"] is not None or not _drawn_anew(con, release),
    )


def _drawn_anew(con: "DuckDBPyConnection", release: Row) -> bool:
    """Whether a later release is of the same request: then that is what the request reads."""
    same = ("request", "private")
    return any(
        row["release"] > release["release"] and all(row[name] == release[name] for name in same)
        for row in rows_of(con, "FROM dp_releases()")
    )


def rows_of(con: "DuckDBPyConnection", query: str) -> list[dict[str, Any]]:
    """The rows of a small public table."""
    import duckdb

    expect("report", "con", con, duckdb.DuckDBPyConnection, "a connection that duckdb_dp.load was called with")
    cursor = con.cursor()
    try:
        result = cursor.execute(query)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    except duckdb.CatalogException:
        raise DPError("report: this connection has no dp_ functions; load them: duckdb_dp.load(con).") from None
    except duckdb.Error as error:
        raise DPError(_one_line(error)) from None
    finally:
        cursor.close()


def _find(con: "DuckDBPyConnection", name: str | int) -> dict[str, Any]:
    """The release of that name or number."""
    found = rows_of(con, "FROM dp_releases()")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DPError(f"report: the release is {as_sql(name)}; give its name or its number in dp_releases().")
    number = release_named(con, name) if isinstance(name, str) else name
    chosen = [row for row in found if row["release"] == number]
    if not chosen and isinstance(name, str) and re.fullmatch(r"\d+", name):
        chosen = [row for row in found if row["release"] == int(name)]
    if not chosen:
        known = ", ".join(str(row["name"] or row["release"]) for row in found[-8:]) or "none yet"
        raise DPError(f"report: there is no release {as_sql(name)}; the latest are: {known}.")
    return chosen[0]


def _dataset(row: Row) -> tuple[str, str, str]:
    return row["catalog"], row["schema"], row["dataset"]


def _request(text: str) -> Request | None:
    """The request, unless it is one that this version does not know."""
    try:
        return Request.from_json(text)
    except (DPError, KeyError, TypeError, ValueError):
        return None


def _postprocess(request: Request, asked: str | None) -> str | None:
    """How the answers are read; None: as they are."""
    if request.synthetic:
        if asked is None:
            return None
        raise DPError(f"report: postprocess is for counts, and {request.function} has drawn none; leave it out.")
    try:
        return parse_postprocess({"postprocess": asked}, request)
    except DPError as error:
        raise DPError(f"report: {error}") from None


def _read(con: "DuckDBPyConnection", number: int, request: Request | None, postprocess: str | None) -> Rows:
    import duckdb

    try:
        return read(con, number, request, postprocess)
    except duckdb.Error as error:
        raise DPError(_one_line(error)) from None


def _plan(request: Request, mechanism: str) -> "Plan | None":
    """The plan that the release was drawn with; reading the release has made it already."""
    from duckdb_dp.answers import plan

    if request.adaptive or request.synthetic:
        return None
    try:
        found = plan(request)
    except DPError:
        return None
    return found if found.mechanism == mechanism else None


def _one_line(error: Exception) -> str:
    return first_line(error)
