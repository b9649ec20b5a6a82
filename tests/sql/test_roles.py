"""Who may call what: on an analyst's connection the curator's functions do not exist, and no detour leads to them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.errors import DPError
from duckdb_dp.sql import own_names
from duckdb_dp.sql.install import macro_files
from duckdb_dp.sql.registry import ROLES
from duckdb_dp.sql.registry import functions as registered

CURATORS = {name for name, function in registered().items() if function.curator}

ALL = sorted(name.removesuffix(".sql") for name, _ in macro_files() if not name.startswith("_"))

CALLS = {
    "dp_protect": "CALL dp_protect('t', epsilon := 1, delta := 1e-9)",
    "dp_attribute": "CALL dp_attribute('t', 'a', low := 0, high := 1)",
    "dp_attributes": "CALL dp_attributes('t')",
    "dp_link": "CALL dp_link('t', \"references\" := {'a': 't.a'})",
    "dp_public": "CALL dp_public('u')",
    "dp_view": "CALL dp_view('v', 'SELECT * FROM t')",
    "dp_check": "CALL dp_check('t')",
    "dp_account": "CALL dp_account('alice')",
    "dp_grant": "CALL dp_grant('alice', 't', epsilon := 1)",
    "dp_share": "CALL dp_share(1, 'alice')",
    "dp_requests": "FROM dp_requests()",
    "dp_approve": "CALL dp_approve(1)",
    "dp_refuse": "CALL dp_refuse(1)",
    "dp_accounts": "FROM dp_accounts()",
    "dp_audit": "FROM dp_audit()",
    "dp_period": "CALL dp_period('u', 'b', epsilon := 1, delta := 1e-9)",
    "dp_late": "FROM dp_late('u')",
}


@pytest.fixture(params=[":memory:", "people.duckdb"])
def pair(request: Any, tmp_path: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]]:
    """A curator's connection and an analyst's on one database."""
    path = request.param if request.param == ":memory:" else str(tmp_path / request.param)
    with duckdb.connect(path) as curator:
        curator.execute("CREATE TABLE t AS SELECT i % 3 AS a FROM range(50) r(i); CREATE TABLE u AS SELECT 1 AS b")
        duckdb_dp.testing.load(curator, tmp_path / "l.dp", seed=1)
        curator.execute("CALL dp_protect('t', mu := 9); CALL dp_attribute('t', 'a', low := 0, high := 2)").fetchall()
        analyst = curator.cursor()
        duckdb_dp.testing.load(analyst, tmp_path / "l.dp", seed=1, role="analyst")
        yield curator, analyst


def functions(con: duckdb.DuckDBPyConnection) -> set[str]:
    query = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_name LIKE 'dp\\_%' ESCAPE '\\'"
    return {name for (name,) in con.execute(query).fetchall()}


def test_every_function_of_the_curator_is_tried() -> None:
    assert set(CALLS) == CURATORS < set(ALL)


def test_each_role_has_its_functions(pair: Any) -> None:
    curator, analyst = pair
    assert functions(curator) == functions(curator.cursor()) == set(ALL)
    assert functions(analyst) == functions(analyst.cursor()) == set(ALL) - CURATORS


@pytest.mark.some(2)
@pytest.mark.parametrize("function", sorted(CALLS))
def test_an_analyst_cannot_call_what_is_the_curators(pair: Any, function: str) -> None:
    curator, analyst = pair
    before = curator.execute("FROM dp_domain('t')").fetchall()
    for con in (analyst, analyst.cursor()):
        with pytest.raises(duckdb.CatalogException):
            con.execute(CALLS[function])
    for key in ("''", "'0'", "NULL"):
        (text,) = analyst.execute(
            f"SELECT _dp_call({key}, '{function}', '{{\"dataset\": \"t\"}}', 'main', 'main', NULL)"
        ).fetchone()
        assert text.startswith(f"!{function}: {function} is for the curator only") or key == "NULL"
        (plan,) = analyst.execute(
            f"SELECT _dp_plan({key}, '{function}', '{{\"dataset\": \"t\"}}', 'main', 'main', '', 'common_subexpressions')"
        ).fetchone()
        assert plan is None
    assert curator.execute("FROM dp_domain('t')").fetchall() == before


@pytest.mark.some(1)
def test_an_analyst_asks(pair: Any) -> None:
    _, analyst = pair
    assert len(analyst.execute("FROM dp_marginals('t', ['a'], mu := 1)").fetchall()) == 3
    assert len(analyst.execute("FROM dp_sql('SELECT count(*) FROM t', mu := 1)").fetchall()) == 1
    assert analyst.execute("SELECT dataset FROM dp_budget()").fetchall() == [("t",)]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "word", ["exact := true", "cells := true", "exact := true, cells := true", "exact := true, each := true"]
)
def test_exact_scores_are_the_curators(pair: Any, word: str) -> None:
    curator, analyst = pair
    curator.execute("CREATE TABLE s AS FROM dp_synthesize('t', mu := 1)")
    with pytest.raises(duckdb.Error, match="which is for the curator only; leave it out and name a budget"):
        analyst.execute(f"FROM dp_quality('t', 's', {word})")
    assert curator.execute("SELECT DISTINCT note FROM dp_quality('t', 's', exact := true)").fetchall() == [
        ("NOT PRIVATE",)
    ]


@pytest.mark.some(1)
def test_a_connection_that_was_the_curators_loses_its_functions(pair: Any, tmp_path: Path) -> None:
    curator, _ = pair
    duckdb_dp.testing.load(curator, tmp_path / "l.dp", seed=1, role="analyst")
    assert functions(curator) == set(ALL) - CURATORS


def test_unknown_roles_are_refused(tmp_path: Path) -> None:
    with duckdb.connect() as con, pytest.raises(DPError, match="role is 'admin'; use 'curator' or 'analyst'"):
        duckdb_dp.load(con, tmp_path / "l.dp", role="admin")  # type: ignore[arg-type]


def test_the_lists_in_the_documents_are_complete() -> None:
    for page in ("privacy.md", "sql.md"):
        text = (Path(__file__).parents[2] / "docs" / page).read_text()
        section = text.split("Who may call what", 1)[1].split("\n## ", 1)[0]
        assert {name for name in ALL if f"`{name}`" in section} == set(ALL), page
    assert ROLES == ("curator", "analyst")


@pytest.mark.some(1)
def test_requests_that_were_made_by_hand_are_refused(pair: Any) -> None:
    curator, analyst = pair
    (plan,) = analyst.execute(
        "SELECT _dp_plan('', 'dp_marginals', '{\"dataset\": \"t\", \"attributes\": [\"a\"], \"mu\": 1}', current_database(), 'main', '', 'common_subexpressions')"
    ).fetchone()
    signed = own_names.unbound(plan).split('"_dp_run"(\'')[1].split("', ")[0]
    forged = [signed.replace('"cost":1.0', '"cost":0.1'), signed[64:], "0" * 64 + signed[64:], "", "{}"]
    for request in forged:
        assert request != signed
        query = "SELECT _dp_run(?, NULL::VARCHAR, NULL::VARCHAR, ['[\"a\"]'], [[{'k': 0::BIGINT, 'n': 9::BIGINT}]])"
        (text,) = analyst.execute(query, [request]).fetchone()
        assert text == "!duckdb_dp: a request was made by hand; ask by dp_marginals and the other dp_ functions."
    assert curator.execute("SELECT releases FROM dp_budget()").fetchall() == [(0,)]


@pytest.mark.slow
@pytest.mark.some(1)
def test_rows_of_a_release_are_noted_once(pair: Any) -> None:
    curator, analyst = pair
    curator.execute("CREATE TABLE s AS FROM dp_synthesize('t', mu := 1)")
    curator.execute("CREATE TABLE copied AS SELECT 0 AS a FROM range(7)")
    guess = "(SELECT concat(count(*), '/', sum(hash(CAST(a AS VARCHAR))::HUGEINT)) FROM (SELECT 0 AS a FROM range(7)))"
    analyst.execute(f"SELECT _dp_note('1', '[\"a\"]', {guess})").fetchall()
    with pytest.raises(duckdb.Error, match="does not hold rows"):
        analyst.execute("FROM dp_quality('t', 'copied', mu := 1)")
    assert len(analyst.execute("FROM dp_quality('t', 's', mu := 1)").fetchall()) > 0
