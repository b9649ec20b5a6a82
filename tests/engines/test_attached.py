"""Attached tables answer as DuckDB's own do: the same requests, the same exact counts, the same promises."""

import itertools
import json
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.accounting.base import GDP
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.counting.engines import count, source
from duckdb_dp.counting.engines.jobs import jobs
from duckdb_dp.domain.domain import declare
from duckdb_dp.request import Request

ADULT = Path(duckdb_dp.__file__).parent / "data_files" / "adult.parquet"

DECLARED = """
CALL dp_attribute('{0}', 'age', bins := [0, 20, 40, 60, 100]);
CALL dp_attribute('{0}', 'sex', "values" := ['F', 'M']);
CALL dp_attribute('{0}', 'race', low := 0, high := 3);
CALL dp_attribute('{0}', 'smoker', nulls := true);
"""

QUESTIONS = [
    "dp_marginals('{0}', ['age', 'sex'], mu := 0.5)",
    "dp_marginals('{0}', [['age', 'smoker'], ['race'], []], mu := 0.5)",
    "dp_marginals('{0}', 'all <=3-way', mu := 0.5, objective := 'max')",
    "dp_marginals('{0}', [], mu := 0.5)",
    "dp_marginals('{0}', 'all 2-way', mu := 0.5, mechanism := 'aim')",
    "dp_queries('{0}', [{{'age': 'range', 'sex': 'identity'}}, {{'age+race': 'affine'}}], mu := 0.5)",
    "dp_quantiles('{0}', 'age', [0.1, 0.5], by := ['sex'], mu := 0.5)",
    "dp_sql('SELECT sex, count(*) FROM {0} WHERE age >= 20 AND age < 60 GROUP BY sex', mu := 0.5)",
    "dp_explain('{0}', 'all 2-way', mu := 0.5)",
    "dp_domain('{0}')",
    "dp_check('{0}')",
]


def attach(loaded: Any, put: Any, name: str, query: str, protect: str = "mu := 1000, delta := 1e-9") -> None:
    duckdb_dp.attach(loaded.connection, name, put(loaded.connection, query))
    loaded(f"CALL dp_protect('{name}', {protect})")


def same(loaded: Any, question: str, here: str, there: str) -> None:
    first, second = (f"FROM {question.format(name)}" for name in (here, there))
    for one, other in zip(loaded(first), loaded(second), strict=True):  # the grids of their noise may differ
        assert one == tuple(pytest.approx(x, abs=1e-3) if isinstance(x, float) else x for x in other)
    assert loaded.columns(first) == loaded.columns(second)


@pytest.mark.slow
def test_every_request_gives_the_same_answers(exact: Any, put: Any) -> None:
    attach(exact, put, "there", "FROM people")
    exact(DECLARED.format("there"))
    for question in QUESTIONS:
        same(exact, question, "people", "there")
    assert exact("SELECT DISTINCT schema FROM dp_ledger() ORDER BY 1") == [("(attached)",), ("main",)]
    assert len(exact("FROM dp_synthesize('there', mu := 0.5, rows := 10)")) == 10


@pytest.mark.slow
def test_adult(exact: Any, put: Any) -> None:
    exact(f"CREATE TABLE adult AS FROM '{ADULT}'; CALL dp_protect('adult', mu := 1000, delta := 1e-9)")
    attach(exact, put, "there", "FROM adult")
    for name, (low, high) in {"age": (20, 80), "education_num": (1, 16), "hours_per_week": (0, 60)}.items():
        for table in ("adult", "there"):
            exact(f"CALL dp_attribute('{table}', '{name}', low := {low}, high := {high}, step := 5, other := true)")
    for name in ("workclass", "education", "marital_status", "occupation", "race", "sex", "native_country", "income"):
        values = [value for (value,) in exact(f"SELECT DISTINCT {name} FROM adult WHERE {name} IS NOT NULL ORDER BY 1")]
        for table in ("adult", "there"):
            call = f"CALL dp_attribute('{table}', '{name}', \"values\" := ?, nulls := true)"
            exact(call, [values[: len(values) - len(name) % 2]])
    for question in ("dp_marginals('{0}', 'all 2-way', mu := 0.5)", "dp_check('{0}')"):
        same(exact, question, "adult", "there")


ODD = """
SELECT * FROM (VALUES
  (1, 'a', 0.5::DOUBLE, '-9223372036854775808'::BIGINT, 10.10::DECIMAL(9, 2), DATE '2020-01-31', TIMESTAMP '2020-01-01 00:00:00', true),
  (2, 'ünï', 'NaN', 9223372036854775807, 99.99, DATE '2020-02-01', TIMESTAMP '2020-03-29 02:30:00.000001', false),
  (3, 'it''s "x"\\', 'inf', -1, -0.01, DATE '1969-12-31', TIMESTAMP '1999-12-31 23:59:59.999999', NULL),
  (4, 'outside', '-inf', 0, 0.00, NULL, TIMESTAMP '9999-12-31 00:00:00', true),
  (5, NULL, NULL, NULL, NULL, DATE '9999-12-31', NULL, NULL),
  (6, '日本', -0.0, 7, 5000000.00, DATE '0001-01-01', TIMESTAMP '0001-01-01 00:00:00', true),
  (7, '', 1e300, 8, 10.11, DATE '2020-01-01', TIMESTAMP '2020-01-01 00:00:00', false)
) t(id, label, number, huge, money, day, moment, flag)
"""
WORDS = {
    "label": "\"values\" := ['a', 'ünï', 'it''s \"x\"\\', '日本', '']",
    "number": "bins := [-1, 0, 0.5, 1e300]",
    "huge": "bins := [-9223372036854775808, -1, 0, 8, 9223372036854775807]",
    "money": "bins := [-0.01, 0, 10.1, 10.11, 5000000]",
    "day": "bins := ['1969-12-31', '2020-01-01', '2020-02-01']",
    "moment": "bins := ['1999-12-31 23:59:59.999999', '2020-01-01', '2020-03-29 02:30:00.000001']",
    "flag": '"values" := [true]',
}


@pytest.mark.slow
@pytest.mark.some(1, "backend")
@pytest.mark.parametrize("where", ["true", "false"], ids=["odd", "empty"])
def test_odd_rows(exact: Any, put: Any, where: str) -> None:
    exact(f"CREATE TABLE odd AS {ODD} WHERE {where}; CALL dp_protect('odd', mu := 1000, delta := 1e-9)")
    attach(exact, put, "there", "FROM odd")
    for i, flags in enumerate(["", ", other := true", ", nulls := true", ", other := true, nulls := true"]):
        for table in ("odd", "there"):
            exact("; ".join(f"CALL dp_attribute('{table}', '{name}', {words}{flags})" for name, words in WORDS.items()))
        same(exact, f"dp_marginals('{{0}}', 'all 2-way', mu := {0.5 + i})", "odd", "there")
        same(exact, "dp_check('{0}')", "odd", "there")


UNITS = (
    "SELECT i AS id, (i * i % 37)::INTEGER AS unit, (i % 11)::INTEGER AS v, (i % 5)::INTEGER AS w FROM range(600) t(i)"
)


def kept(loaded: Any, put: Any, name: str, query: str) -> list[tuple[Any, ...]]:
    """(unit, v, rows kept) with at most 3 rows of each unit."""
    attach(loaded, put, name, query, "mu := 1000, delta := 1e-9, unit := 'unit', max_rows := 3")
    for column, high in {"unit": 36, "v": 10, "w": 4}.items():
        loaded(f"CALL dp_attribute('{name}', '{column}', low := 0, high := {high})")
    found = loaded(f"SELECT unit, v, w, round(count) FROM dp_marginals('{name}', ['unit', 'v', 'w'], mu := 0.5)")
    return [row for row in found if row[-1]]


@pytest.mark.slow
def test_a_unit_keeps_rows_by_its_own_values_alone(exact: Any, put: Any) -> None:
    everyone = kept(exact, put, "everyone", UNITS)
    rows = dict(exact(f"SELECT unit, count(*) FROM ({UNITS}) GROUP BY unit"))
    for unit, count_ in rows.items():
        assert sum(n for u, *_, n in everyone if u == unit) == min(3, count_)
    assert kept(exact, put, "turned", f"FROM ({UNITS}) ORDER BY id DESC") == everyone
    without = kept(exact, put, "without", f"FROM ({UNITS}) WHERE unit <> 9")
    assert without == [row for row in everyone if row[0] != 9] != everyone
    assert kept(exact, put, "nameless", f"SELECT id, NULL::INTEGER AS unit, v, w FROM ({UNITS})") == []


def test_units_within_their_bound_are_counted_as_in_duckdb(exact: Any, put: Any) -> None:
    exact(f"CREATE TABLE few AS FROM ({UNITS}) WHERE id < 100")
    exact("CALL dp_protect('few', mu := 1000, delta := 1e-9, unit := 'unit', max_rows := 50)")
    attach(exact, put, "there", "FROM few", "mu := 1000, delta := 1e-9, unit := 'unit', max_rows := 50")
    for table in ("few", "there"):
        exact(
            f"CALL dp_attribute('{table}', 'v', low := 2, high := 8); CALL dp_attribute('{table}', 'w', low := 0, high := 3)"
        )
    same(exact, "dp_marginals('{0}', 'all <=2-way', mu := 0.5)", "few", "there")


def test_long_lists_of_texts_are_looked_up(exact: Any, put: Any) -> None:
    exact(
        "CREATE TABLE long AS SELECT nullif('vü' || i % 150, 'vü7') AS label, (i % 3)::INTEGER AS k FROM range(1000) t(i)"
    )
    exact("CALL dp_protect('long', mu := 1000, delta := 1e-9)")
    attach(exact, put, "there", "FROM long")
    for flags in ("other := true, nulls := true", "nulls := true", "other := false"):
        for table in ("long", "there"):
            exact(f"CALL dp_attribute('{table}', 'label', \"values\" := ?, {flags})", [[f"vü{i}" for i in range(100)]])
            exact(f"CALL dp_attribute('{table}', 'k', low := 0, high := 2)")
        same(exact, "dp_marginals('{0}', 'all <=2-way', mu := 0.5)", "long", "there")
        same(exact, "dp_check('{0}')", "long", "there")


def test_marginals_of_more_attributes_than_a_key_holds(put: Any) -> None:
    names = [f"c{k}" for k in range(9)]
    with duckdb.connect() as con:
        columns = ", ".join(f"(hash(i, {k}) % 2000)::INTEGER AS c{k}" for k in range(9))
        con.execute(f"CREATE TABLE wide AS SELECT {columns} FROM range(300) t(i)")
        table = source.Source.of("wide", put(con, "FROM wide UNION ALL FROM wide"))
        rows = con.execute("FROM wide").fetchnumpy()
    attributes = tuple(declare(name=name, type="INTEGER", low=0, high=1999) for name in names)
    request = Request(
        function="dp_synthesize", catalog="e", schema="s", table="wide", unit=None, max_rows=1, accounting=GDP,
        attributes=attributes, questions=(), cost=1.0, mechanism="pairs", objective="",
    )  # fmt: skip
    pairs = tuple(itertools.combinations(names, 2))
    assert jobs(request.domain, pairs) == ((tuple(names),),)
    found = count.count(table, request, "key", pairs)
    for a, b in (("c0", "c8"), ("c4", "c5")):
        expected = 2 * np.bincount(rows[a].astype(np.int64) * 2000 + rows[b], minlength=2000**2)
        np.testing.assert_array_equal(found.marginal((a, b)), expected)


def test_an_engine_without_arrays_counts_block_by_block(exact: Any, put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    attach(exact, put, "there", "FROM people")
    exact(DECLARED.format("there"))
    monkeypatch.setattr(source.Source, "has", lambda self, *operations: False)
    same(exact, "dp_marginals('{0}', 'all 2-way', mu := 0.5)", "people", "there")


def test_one_statement_brings_back_the_cells_that_are_not_empty(
    exact: Any, put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(exact, put, "there", "FROM people WHERE age < 40")
    exact(DECLARED.format("there"))
    fetched = []

    def fetch(self: source.Source, build: Any, real: Any = source.Source.fetch) -> Any:
        fetched.append(real(self, build))
        return fetched[-1]

    monkeypatch.setattr(source.Source, "fetch", fetch)
    exact("FROM dp_marginals('there', 'all 2-way', mu := 0.5)")
    (found,) = fetched
    *keys, counts = map(found.column, found.column_names)
    assert min(counts.to_pylist()) > 0
    assert len(set(zip(*(key.to_pylist() for key in keys), strict=True))) == len(found)


# Promises


@pytest.fixture
def there(exact: Any, put: Any) -> Any:
    attach(exact, put, "there", "FROM people")
    exact(DECLARED.format("there"))
    return exact


ASK = "FROM dp_marginals('there', ['age', 'sex'], mu := 0.5)"


def test_a_request_is_charged_once_and_read_without_the_engine(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = []
    monkeypatch.setattr(count, "jobs", lambda *of, real=count.jobs: jobs.append(of) or real(*of))
    for free in (
        f"EXPLAIN {ASK}", f"DESCRIBE {ASK}", f"PREPARE later AS {ASK}", f"{ASK} LIMIT 0", f"CREATE VIEW v AS {ASK}",
    ):  # fmt: skip
        there(free)
    assert (jobs, there.charges()) == ([], 0)
    first = there("EXECUTE later")
    assert there("FROM v a JOIN v b USING (age, sex)")
    assert there("EXECUTE later") == there(ASK) == first
    assert (len(jobs), there.charges()) == (1, 1)
    there(ASK.replace("mu", "fresh := true, mu"))
    assert (len(jobs), there.charges()) == (2, 2)
    with duckdb.connect() as later:
        duckdb_dp.testing.load_exact(later, there.folder)
        assert later.execute(ASK).fetchall() == first
        with pytest.raises(duckdb.Error, match="not attached now"):
            later.execute(ASK.replace("0.5", "0.25")).fetchall()


def test_loading_again_keeps_what_is_attached(there: Any) -> None:
    duckdb_dp.testing.load_exact(there.connection, there.folder)
    assert there(ASK)
    assert there.connection.cursor().execute(ASK).fetchall()


def test_rows_of_an_engine_that_fails_stay_private(exact: Any, backend: Any) -> None:
    fail = "raise_error('private 42')" if backend.name == "pyspark" else "error('private 42')"
    backend.raw_sql(
        f"CREATE OR REPLACE TEMP VIEW bad AS SELECT CASE WHEN x = 2 THEN CAST({fail} AS INT) ELSE x END AS x FROM (SELECT 1 AS x UNION ALL SELECT 2) t"
    )
    duckdb_dp.attach(exact.connection, "bad", backend.table("bad"))
    exact("CALL dp_protect('bad', mu := 10); CALL dp_attribute('bad', 'x', low := 0, high := 9)")
    for ask in (
        "FROM dp_marginals('bad', ['x'], mu := 0.5)",
        "FROM dp_check('bad')",
        "FROM dp_synthesize('bad', mu := 0.5)",
    ):
        line = exact.refused(ask)
        assert "nothing was charged" in line
        assert "42" not in line
    backend.raw_sql("CREATE OR REPLACE TEMP VIEW bad AS SELECT CAST(1 AS INT) AS x")
    assert exact("SELECT sum(count) FROM dp_marginals('bad', ['x'], mu := 0.5)") == [(1.0,)]
    backend.raw_sql("CREATE OR REPLACE TEMP VIEW bad AS SELECT 'a' AS x")
    assert "Attach it again" in exact.refused("FROM dp_marginals('bad', ['x'], mu := 0.25)")
    backend.raw_sql("DROP VIEW bad")
    assert "attach 'bad' again" in exact.refused("FROM dp_marginals('bad', ['x'], mu := 0.25)")


def test_a_job_that_is_cancelled_charges_nothing(exact: Any, backend: Any) -> None:
    """By who runs the engine, while it counts: more rows than it could count in the time."""
    spark = backend.name == "pyspark"
    numbers = "range(0, 1000000000000) t(i)" if spark else "range(1000000000000) t(i)"
    backend.raw_sql(f"CREATE OR REPLACE TEMP VIEW endless AS SELECT CAST(i % 7 AS INT) AS x FROM {numbers}")
    duckdb_dp.attach(exact.connection, "endless", backend.table("endless"))
    exact("CALL dp_protect('endless', mu := 10); CALL dp_attribute('endless', 'x', low := 0, high := 9)")
    cancel = backend.raw_sql("SELECT 1").sparkSession.sparkContext.cancelAllJobs if spark else backend.con.interrupt
    answered = threading.Event()

    def keep_cancelling() -> None:
        while not answered.wait(0.2):
            cancel()

    canceller = threading.Timer(1.0, keep_cancelling)
    canceller.start()
    line = exact.refused("FROM dp_marginals('endless', ['x'], mu := 0.5)")
    answered.set()
    canceller.join()
    assert "nothing was charged" in line
    backend.raw_sql("CREATE OR REPLACE TEMP VIEW endless AS SELECT CAST(1 AS INT) AS x")
    assert exact("SELECT sum(count) FROM dp_marginals('endless', ['x'], mu := 0.5)") == [(1.0,)]


def test_a_charge_that_was_not_stored_stands_and_is_drawn_again_free(
    there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "store", full)
        with pytest.raises(duckdb.Error, match="dp_marginals: "):
            there(ASK)
    assert [charge["state"] for charge in there.charged()] == ["charged"]
    assert there(ASK)
    assert [charge["state"] for charge in there.charged()] == ["stored"]


def test_a_statement_that_is_interrupted_while_the_engine_counts(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB notices when the counting is over: the charge stands and its answer is there for who asks again."""

    def interrupted(*of: Any, real: Any = count.count) -> Any:
        there.connection.interrupt()
        return real(*of)

    with monkeypatch.context() as patch:
        patch.setattr(count, "count", interrupted)
        with pytest.raises(duckdb.Error, match=r"Interrupted|INTERRUPT"):
            there(ASK)
    before = there.charges()
    assert before <= 1
    assert there(ASK)
    assert there.charges() == 1


def test_a_session_that_has_ended(exact: Any) -> None:
    ibis = pytest.importorskip("ibis")
    other = ibis.duckdb.connect()
    other.raw_sql("CREATE TABLE t AS SELECT 1::INTEGER AS x")
    duckdb_dp.attach(exact.connection, "gone", other.table("t"))
    exact("CALL dp_protect('gone', mu := 10); CALL dp_attribute('gone', 'x', low := 0, high := 9)")
    other.disconnect()
    assert "if its session has ended" in exact.refused("FROM dp_marginals('gone', ['x'], mu := 0.5)")


@pytest.mark.spark
def test_a_spark_session_that_has_ended(spark_backend: Any, run: Any, folder: Path) -> None:
    script = """
        import json, sys, warnings
        warnings.simplefilter("ignore")
        import duckdb, duckdb_dp
        from duckdb_dp.counting.engines import spark
        settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
        backend = spark.connect(master="local[1]", memory="1g", config=settings)
        backend.raw_sql("CREATE TEMP VIEW t AS SELECT 1 AS x")
        con = duckdb.connect()
        duckdb_dp.load(con, sys.argv[1])
        duckdb_dp.attach(con, "t", backend.table("t"))
        con.execute("CALL dp_protect('t', mu := 10); CALL dp_attribute('t', 'x', low := 0, high := 9)").fetchall()
        backend.disconnect()
        try:
            con.execute("FROM dp_marginals('t', ['x'], mu := 0.5)").fetchall()
        except duckdb.Error as error:
            print(json.dumps([str(error), con.execute("SELECT count(*) FROM dp_ledger()").fetchall()]))
    """
    file = folder.with_name("script.py")
    file.write_text(textwrap.dedent(script))
    found = subprocess.run([sys.executable, str(file), str(folder)], capture_output=True, text=True, check=True)
    message, charges = json.loads(found.stdout)
    assert "\n" not in message
    assert "if its session has ended" in message
    assert charges == [[0]]


# What is refused


def test_what_cannot_be_attached(there: Any, put: Any) -> None:
    table = put(there.connection, "FROM people")
    for name, given, line in [
        ("people", table, "is a DuckDB table already"),
        ("PEOPLE", table, "is a DuckDB table already"),
        ("a.b", table, "several parts"),
        ("", table, "name a table"),
        ("x", "people", "give an Ibis table"),
        ("x", there.connection.table("people"), "give an Ibis table"),
        ("x", pytest.importorskip("ibis").table({"a": "int64"}, name="t"), "table of no engine"),
    ]:
        with pytest.raises(duckdb_dp.DPError, match=line):
            duckdb_dp.attach(there.connection, name, given)
    with duckdb.connect() as other, pytest.raises(duckdb_dp.DPError, match="call duckdb_dp"):
        duckdb_dp.attach(other, "x", table)


def test_a_table_of_the_loaded_connection_itself_is_not_another_engines(exact: Any) -> None:
    ibis = pytest.importorskip("ibis")
    itself = ibis.duckdb.from_connection(exact.connection)
    with pytest.raises(duckdb_dp.DPError, match="this DuckDB connection itself"):
        duckdb_dp.attach(exact.connection, "x", itself.table("people"))


def test_a_name_that_two_tables_share_is_written_in_full(there: Any, put: Any) -> None:
    there("CREATE TABLE there AS SELECT 'F' AS sex")
    assert "could be" in there.refused("CALL dp_protect('there', mu := 1)")
    assert there(ASK)  # the other one is not protected
    there("CALL dp_protect('main.there', mu := 1)")
    assert "write the full name" in there.refused(ASK.replace("0.5", "0.25"))
    engine = there("SELECT catalog FROM dp_budget() WHERE schema = '(attached)'")[0][0]
    assert there(ASK.replace("'there'", f"'{engine}.(attached).there'")) == there(
        ASK.replace("there", f"{engine}.(attached).THERE")
    )
    assert there.charges() == 1


def test_columns_of_types_that_duckdb_lacks_cannot_be_declared(exact: Any, put: Any) -> None:
    query = "SELECT [1] AS list, {'a': 1} AS struct, '1'::BLOB AS bytes, INTERVAL 1 DAY AS span, 1::INTEGER AS x"
    attach(exact, put, "odd", query.replace("INTERVAL 1 DAY AS span, ", ""))
    for column in ("list", "struct", "bytes"):
        assert "make it a number, a date or a text in a view" in exact.refused(
            f"CALL dp_attribute('odd', '{column}', \"values\" := ['a'])"
        )
    assert "no column 'y'" in exact.refused("CALL dp_attribute('odd', 'y', low := 0, high := 1)")
    exact("CALL dp_attribute('odd', 'x', low := 0, high := 1)")


def test_what_changed_since_it_was_declared_is_refused(there: Any, put: Any) -> None:
    duckdb_dp.attach(
        there.connection, "there", put(there.connection, "SELECT age::VARCHAR AS age, * EXCLUDE (age) FROM people")
    )
    assert "was declared as INTEGER and is VARCHAR now" in there.refused(ASK)
    duckdb_dp.attach(there.connection, "there", put(there.connection, "SELECT * EXCLUDE (age) FROM people"))
    assert "is gone" in there.refused(ASK)
    duckdb_dp.attach(there.connection, "there", put(there.connection, "FROM people"))
    assert there(ASK)


def test_an_engine_that_lacks_a_function(exact: Any) -> None:
    ibis = pytest.importorskip("ibis")
    lite = ibis.sqlite.from_connection(sqlite3.connect(":memory:", check_same_thread=False))
    lite.raw_sql("CREATE TABLE t (u INTEGER, x INTEGER, y TEXT)").close()
    lite.raw_sql("INSERT INTO t VALUES (1, 1, 'a'), (1, 2, 'ü'), (2, 9, NULL)").close()
    duckdb_dp.attach(exact.connection, "whole", lite.table("t"))
    duckdb_dp.attach(exact.connection, "units", lite.table("t"))
    exact("CALL dp_protect('whole', mu := 10); CALL dp_protect('units', mu := 10, unit := 'u', max_rows := 1)")
    for name in ("whole", "units"):
        exact(f"CALL dp_attribute('{name}', 'x', low := 0, high := 3, other := true)")
        exact(f"CALL dp_attribute('{name}', 'y', \"values\" := ['a', 'ü'], nulls := true)")
    found = exact("SELECT x, y, count FROM dp_marginals('whole', ['x', 'y'], mu := 0.5) WHERE round(count) <> 0")
    assert found == [("1", "a", 1.0), ("2", "ü", 1.0), ("other", None, 1.0)]
    assert exact("SELECT sum(count) FROM dp_marginals('whole', [['x'], ['y']], mu := 0.5)") == [(6.0,)]
    assert "which cannot count it" in exact.refused("FROM dp_marginals('units', ['x'], mu := 0.5)")
