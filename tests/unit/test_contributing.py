"""What CONTRIBUTING.md says is enough to add something: a toy of each kind is added so, and SQL uses it.

A toy column type is in tests/laws/test_column_types.py, a toy accounting in tests/unit/accounting/test_base.py.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp.domain import queries
from duckdb_dp.noise import kinds
from duckdb_dp.plan import choose
from duckdb_dp.plan.base import Plan
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


def test_a_noise(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn, charged, stored and read by its name: a Gaussian of twice the variance that its cost would allow."""

    class Twice(kinds.Noise):
        name, pure, degree, quantile = "twice", False, 2, kinds.GAUSSIAN.quantile

        def draw(self, *given: Any, **more: Any) -> Any:
            return kinds.GAUSSIAN.draw(*given, **more)

        def event(self, cost: float, accounting: Any) -> Any:
            return kinds.GAUSSIAN.event(cost, accounting)

        def unit_variance(self, cost: float) -> float:
            return 2 * kinds.GAUSSIAN.unit_variance(cost)

        def variance(self, strategy: Any, cost: float) -> float:
            return 2 * kinds.GAUSSIAN.variance(strategy, cost)

        def cost(self, strategy: Any, variance: float) -> float:
            return kinds.GAUSSIAN.cost(strategy, variance / 2)

    def planner(*given: Any) -> Plan:
        plan = choose.PLANNERS["gaussian"](*given)
        return replace(
            plan, noise="twice", measurements=tuple(replace(m, variance=2 * m.variance) for m in plan.measurements)
        )

    monkeypatch.setitem(kinds.NOISES, "twice", Twice())
    monkeypatch.setitem(choose.PLANNERS, "toy", planner)
    db = toy()
    call = "SELECT count, stddev FROM dp_marginals('people', ['sex'], mu := 0.5, mechanism := 'toy')"
    for _ in range(2):  # measured, then read
        assert db(call) == [(30.0, pytest.approx(2 * 2**0.5))] * 2
    assert db.charges() == 1


@pytest.mark.slow
def test_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in the folder is run: its outputs are kept, and its ledger is not."""
    nbformat, run = pytest.importorskip("nbformat"), pytest.importorskip("notebooks.run")
    cell = nbformat.v4.new_code_cell(
        "import duckdb, duckdb_dp; duckdb_dp.load(con := duckdb.connect('x.db')); print(con.sql('FROM dp_budget()').fetchall())"
    )
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=kernel), tmp_path / "7_toy.ipynb")
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path), "7_toy"])
    run.main()
    (kept,) = nbformat.read(tmp_path / "7_toy.ipynb", as_version=4).cells
    assert [output["text"] for output in kept.outputs] == ["[]\n"]
    assert [path.name for path in tmp_path.iterdir()] == ["7_toy.ipynb"]


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
    things = (
        "SQL function", "mechanism", "kind of query", "accounting", "noise", "column type", "post-processing", "engine",
    )  # fmt: skip
    for kind in (*things, "notebook"):
        assert re.search(rf"^\*\*An? {kind}\.\*\* ", text, re.MULTILINE), kind
