"""Clients that look around: what statements that say what there is return, how they may be written, and what is noted of them."""

import math
import time

import pyarrow as pa
import pytest

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.http.tools import TOOLS, Asker
from tests.server.conftest import Served

DESCRIBING = [
    "SHOW TABLES", "DESCRIBE visits", "DESCRIBE towns", "DESC towns", "SHOW towns", "DESCRIBE TABLE towns", "SUMMARIZE towns",
    "DESCRIBE SELECT * FROM towns", "SUMMARIZE SELECT town FROM towns", "EXPLAIN FROM towns", "DESCRIBE mine", "SUMMARIZE mine", "DESCRIBE visits_syn",
]  # fmt: skip
PUBLIC = [
    "FROM towns", "SELECT town FROM main.towns", "WITH t AS (FROM towns) FROM t", "SELECT count(*) AS n FROM towns", "DESCRIBE towns",
    "SUMMARIZE towns", "EXPLAIN FROM towns", "SELECT 1 AS x", "DESCRIBE SELECT * FROM towns", "(SELECT town FROM towns)",
]  # fmt: skip
WRITTEN = [
    "-- hi\n{}", "/* hi */ {}", "/* a\n b */\n-- c\n  {}", "{} -- hi", "{} /* hi */", "-- it's\n{};", "--\n\n{}\n--", "{} ; -- done",
]  # fmt: skip


@pytest.mark.some(3)
@pytest.mark.parametrize("sql", DESCRIBING)
def test_columns_of_what_describes_are_told_before(served: Served, sql: str) -> None:
    """As those of a query, for clients that prepare a statement first."""
    alice = served.session("alice")
    alice.run("CREATE TABLE mine AS SELECT 1 AS x")
    said = alice.schema(sql)
    assert said.names
    assert said == alice.run(sql).schema
    assert alice.prepared(sql)[1] == said


def test_what_changes_something_has_no_columns_and_is_not_done_for_them(served: Served) -> None:
    alice = served.session("alice")
    alice.run("CREATE TABLE mine AS SELECT 1 AS x")
    for sql in ("INSERT INTO mine VALUES (2)", "EXPLAIN ANALYZE INSERT INTO mine VALUES (2)", "DROP TABLE mine"):
        alice.prepared(sql)
        assert not alice.schema(sql).names
    assert alice.run("FROM mine").num_rows == 1


@pytest.mark.some(4)
@pytest.mark.parametrize("form", WRITTEN)
def test_comments_say_nothing(served: Served, form: str) -> None:
    alice, sam = served.session("alice"), served.session("sam")
    for sql in (
        "SHOW TABLES",
        "DESCRIBE visits",
        "DESCRIBE towns",
        "CALL dp_budget()",
        "FROM dp_budget()",
        "FROM towns",
    ):
        assert alice.run(form.format(sql)) == alice.run(sql)
        assert alice.schema(form.format(sql)) == alice.schema(sql)
    assert sam.run(form.format("CALL dp_accounts()")).num_rows == 4
    assert alice.run("DESCRIBE /* which? */ visits") == alice.run("DESCRIBE visits")


@pytest.mark.slow
@pytest.mark.some(3)
@pytest.mark.parametrize("sql", PUBLIC)
def test_public_rows_are_not_called_synthetic(served: Served, sql: str) -> None:
    """Neither before the session has read synthetic rows nor after, nor while it explores; nor once they were described."""
    alice = served.session("alice")
    before = alice.run(sql)
    assert "synthetic" not in before.column_names
    alice.run("SELECT count(*) AS n FROM visits_syn")
    alice.explore("SELECT count(*) AS n FROM visits")
    for each in ("DESCRIBE towns", sql):
        alice.run(each)
        assert alice.run(sql) == before
        assert alice.explore(sql) == before
    assert alice.schema(sql) == before.schema


def test_what_may_be_made_of_synthetic_rows_is_called_so_where_one_explores(served: Served) -> None:
    alice = served.session("alice")
    for sql in (
        "SELECT count(*) AS n FROM visits", "FROM visits_syn LIMIT 1", "SELECT town FROM towns JOIN visits USING (sex) LIMIT 1",
        "FROM query('FROM visits') LIMIT 1", "CREATE TABLE towns2 AS FROM visits", "FROM towns2 LIMIT 1",
        "CREATE OR REPLACE TABLE towns AS FROM visits", "SELECT count(*) AS n FROM towns", "SUMMARIZE towns2", "SUMMARIZE visits",
    ):  # fmt: skip
        found = alice.explore(sql)
        assert found.column_names[-1] == "synthetic"
        assert set(found["synthetic"].to_pylist()) <= {True}


def test_an_agent_is_told_which_rows_are_synthetic(served: Served) -> None:
    asker = Asker(gateway=served.gateway, session=served.session("alice"))
    for _ in range(2):
        public = TOOLS["explore"].run(asker, {"sql": "FROM towns"})
        assert public["synthetic"] is False
        assert "synthetic" not in public["columns"]
        assert "true rows" in public["note"]
        assert TOOLS["explore"].run(asker, {"sql": "SELECT count(*) AS n FROM visits"})["synthetic"] is True


CATALOGUES = [
    "FROM information_schema.tables", "SELECT table_name FROM information_schema.columns", "FROM duckdb_tables()", "FROM duckdb_columns()",
    "SHOW ALL TABLES", "show  all tables;", "FROM sqlite_master", "FROM pg_catalog.pg_tables", "FROM duckdb_views()",
    "SELECT t.table_name FROM dp_budget(), duckdb_tables() t", "DESCRIBE information_schema.tables",
]  # fmt: skip


@pytest.mark.parametrize("sql", CATALOGUES)
def test_what_would_silently_list_nothing_says_what_lists_tables(served: Served, sql: str) -> None:
    alice = served.session("alice")
    for look in (alice.run, alice.schema, alice.explore):
        with pytest.raises(DPError, match="SHOW TABLES lists them"):
            look(sql)
    assert alice.run("SELECT 'duckdb_tables' AS text").num_rows == 1, "a text is no table"


def test_public_and_synthetic_tables_are_found(served: Served) -> None:
    """By the tools, with their columns; and nothing of those that are neither."""
    asker = Asker(gateway=served.gateway, session=served.session("alice"))
    listed = TOOLS["list_datasets"].run(asker, {})
    assert listed["tables"] == [{"table": "towns", "rows": "public"}, {"table": "visits_syn", "rows": "synthetic"}]
    for name, rows, columns in (("towns", "public", ["sex", "town"]), ("visits_syn", "synthetic", ["age", "sex"])):
        found = TOOLS["describe"].run(asker, {"dataset": name})
        assert (found["rows"], [each["column"] for each in found["columns"]]) == (rows, columns)
        assert all(each["values"].startswith(rows) for each in found["columns"])
    for name in ("payroll", "plain", "nothing"):
        with pytest.raises(DPError, match="no dataset and no public table"):
            TOOLS["describe"].run(asker, {"dataset": name})
    assert "payroll" not in str(listed)


def audit(served: Served, account: str) -> list[tuple[str, str]]:
    served.gateway.audit.flush()
    rows = served.gateway.broker.ledger.accounts.audit()
    return [(row["statement"], row["outcome"]) for row in rows if row["account"] == account]


def test_a_question_is_in_the_audit_once(served: Served) -> None:
    """Also where its columns were asked first, as by prepared statements; what is refused then is noted, as it is not asked again."""
    alice, sql = served.session("alice"), "FROM dp_marginals('visits', ['sex'], epsilon := 0.1)"
    alice.schema(sql)
    alice.prepared(sql)
    alice.run(sql)
    with pytest.raises(Exception, match="nothing"):
        alice.schema("FROM dp_marginals('nothing', ['sex'], epsilon := 0.1)")
    assert audit(served, "alice") == [
        (sql, "answered"), ("schema: FROM dp_marginals('nothing', ['sex'], epsilon := 0.1)", "refused"),
    ]  # fmt: skip


@pytest.mark.parametrize("epsilon", ["1e-15", "1e-30", "1e-100"])
def test_the_smallest_budgets_have_finite_and_honest_intervals(served: Served, epsilon: str) -> None:
    alice = served.session("alice")
    for call in (
        f"dp_sql('SELECT sex, count(*) AS n FROM visits GROUP BY sex', epsilon := {epsilon})",
        f"dp_marginals('visits', ['sex'], epsilon := {epsilon})",
    ):
        for row in alice.run(f"FROM {call}").to_pylist():
            _, value, stddev, low, high = row.values()
            assert all(map(math.isfinite, (value, stddev, low, high)))
            assert low < value < high
            assert high - low == pytest.approx(2 * 1.96 * stddev, rel=1e-3)
            assert abs(value - 500) < 8 * stddev
    (median,) = alice.run(f"FROM dp_sql('SELECT median(age) AS m FROM visits', epsilon := {epsilon})").to_pylist()
    # All values, or more: an end is NULL where noise leaves open whether it lies beyond them, once in a hundred.
    assert (median["ci_low"] or 0) <= 1
    assert median["ci_high"] is None or median["ci_high"] >= 49
    # Now and then noise makes the number of rows look clear.
    assert median["m"] is None or 0 <= median["m"] <= 50


def test_metadata_is_no_column(served: Served) -> None:
    """A public table may have a column that is called synthetic."""
    con = served.gateway.broker._con.cursor()
    con.execute("CREATE TABLE odd AS SELECT true AS synthetic")
    con.execute("CALL dp_public('odd')")
    asker = Asker(gateway=served.gateway, session=served.session("alice"))
    found = TOOLS["explore"].run(asker, {"sql": "FROM odd"})
    assert (found["columns"], found["rows"], found["synthetic"]) == (["synthetic"], [[True]], False)
    assert isinstance(asker.session.explore("FROM odd"), pa.Table)


def test_selects_alone_are_explained_over_the_gateway(served: Served) -> None:
    alice = served.session("alice")
    select = 'SELECT count(*) AS "n" FROM visits'
    named = alice.run(f"FROM dp_explain('visits', '{select}', epsilon := 0.5)")
    assert alice.run(f"FROM dp_explain('{select}', epsilon := 0.5)") == named
    with pytest.raises(DPError, match="no such table"):
        alice.run("FROM dp_explain('SELECT count(*) FROM nowhere', epsilon := 0.5)")
    with pytest.raises(DPError, match="attributes are NULL"):
        alice.run("FROM dp_explain('visits', epsilon := 0.5)")


@pytest.mark.parametrize("form", ["explain ", "EXPLAIN/* once */", "explain analyze "])
def test_an_explanation_is_not_explained(served: Served, form: str) -> None:
    """Nor is it read again for each time: its text may have 100 KB."""
    alice, before = served.session("alice"), time.monotonic()
    with pytest.raises(DPError):
        alice.run(form * 2_000 + "SELECT 1")
    assert time.monotonic() - before < 30


def test_whole_numbers_that_arrow_has_not_are_refused_before_a_charge(served: Served) -> None:
    con = served.gateway.broker._con.cursor()
    con.execute("CREATE TABLE huge AS SELECT 'm' AS sex, 340282366920938463463374607431768211455::UHUGEINT AS big")
    con.execute("CALL dp_public('huge')")
    alice = served.session("alice")
    before = alice.run("FROM dp_budget()")
    with pytest.raises(DPError, match="UHUGEINT"):
        alice.run(
            "FROM dp_sql('SELECT a.sex, n FROM (SELECT sex, count(*) AS n FROM visits GROUP BY sex) a JOIN huge USING (sex)', epsilon := 0.1)"
        )
    assert alice.run("FROM dp_budget()") == before
