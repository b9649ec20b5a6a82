"""What CONTRIBUTING.md says is enough to add something: a toy of each kind is added so, and SQL uses it.

A toy column type is in tests/laws/test_column_types.py.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp.domain import queries
from duckdb_dp.plan import choose
from duckdb_dp.reconstruct import postprocess
from duckdb_dp.sql import install, registry
from tests.conftest import ROOT, Loaded

COUNTED = (
    "CREATE OR REPLACE MACRO dp_toy(dataset) AS TABLE SELECT * FROM query(_dp_bind('dp_toy', {'dataset': dataset}));"
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Any]:
    """A connection that is loaded after the toys were added."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people AS SELECT i % 4 AS age, i % 2 AS sex FROM range(60) t(i)")

        def load() -> Loaded:
            duckdb_dp.testing.load_exact(connection, folder)
            loaded = Loaded(connection, folder)
            loaded("CALL dp_protect('people', mu := 100, delta := 1e-9)")
            loaded("CALL dp_attribute('people', 'age', low := 0, high := 3)")
            loaded("CALL dp_attribute('people', 'sex', low := 0, high := 1)")
            return loaded

        yield load


def test_a_sql_function(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(session: Any, arguments: Any, place: Any, seen: str) -> registry.Rows:
        return [{"attribute": name} for name in session.declared(session.ledger.dataset("memory", "main", "people"))]

    files = install.macro_files()
    monkeypatch.setattr(install, "macro_files", lambda: [*files, ("dp_toy.sql", COUNTED)])
    monkeypatch.setattr(registry, "_FUNCTIONS", {**registry.functions()})
    registry.register(registry.Function(name="dp_toy", rows=rows, columns={"attribute": "VARCHAR"}))
    assert toy()("FROM dp_toy('people')") == [("age",), ("sex",)]


def test_a_mechanism(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(choose.PLANNERS, "toy", choose.PLANNERS["residual"])
    db = toy()
    assert db("SELECT count FROM dp_marginals('people', ['sex'], mu := 1, mechanism := 'toy')") == [(30.0,), (30.0,)]
    assert ("toy",) in db("SELECT mechanism FROM dp_explain('people', ['sex'], mu := 1, mechanism := 'all')")


def test_a_kind_of_query(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(queries.KINDS, "neighbours", lambda n: queries.Intervals("width", n, 2))
    db = toy()
    found = db("SELECT age_from, age_to, answer FROM dp_queries('people', {'age': 'neighbours'}, mu := 1)")
    assert found == [(0, 1, 30.0), (1, 2, 30.0), (2, 3, 30.0)]
    assert "neighbours" in db.refused("FROM dp_queries('people', {'age': 'nothing'}, mu := 1)")


def test_a_postprocessing(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(estimates: Any, _wanted: Any, _memory: float) -> postprocess.Read:
        return lambda clique: 2 * estimates.marginal(clique)

    monkeypatch.setitem(postprocess.KINDS, "doubled", doubled)
    db = toy()
    call = "FROM dp_marginals('people', ['sex'], mu := 1, postprocess := 'doubled')"
    assert db(f"SELECT count, stddev {call}") == [(60.0, None), (60.0, None)]


@pytest.mark.filterwarnings("ignore:fetch_arrow_table")  # of Ibis
def test_an_engine(toy: Any) -> None:
    """Any backend of Ibis that can group is one; nothing is written for it."""
    ibis = pytest.importorskip("ibis")
    db, engine = toy(), ibis.duckdb.connect()
    engine.raw_sql("CREATE TABLE t AS FROM (VALUES (1), (1), (2)) v(a)")
    duckdb_dp.attach(db.connection, "elsewhere", engine.table("t"))
    db("CALL dp_protect('elsewhere', mu := 9); CALL dp_attribute('elsewhere', 'a', low := 1, high := 2)")
    assert db("SELECT count FROM dp_marginals('elsewhere', ['a'], mu := 1)") == [(2.0,), (1.0,)]


def test_each_kind_has_its_lines() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    kinds = (
        "SQL function", "mechanism", "kind of query", "accounting", "noise", "column type", "post-processing", "engine",
    )  # fmt: skip
    for kind in (*kinds, "notebook"):
        assert re.search(rf"^\*\*An? {kind}\.\*\* ", text, re.MULTILINE), kind
