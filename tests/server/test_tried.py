"""What fails around dp_ calls is refused before anything is charged, as far as made-up answers can tell; and what is said of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pytest

from duckdb_dp.errors import DPError
from duckdb_dp.gateway import broker
from duckdb_dp.gateway.broker import Broker
from tests.server.conftest import Served

COUNT = "dp_sql('SELECT count(*) AS n FROM visits', epsilon := 0.01)"
GROUPS = "dp_sql('SELECT age, count(*) AS n FROM visits GROUP BY age', epsilon := 0.01)"
LEAST = "dp_sql('SELECT age, count(*) AS n FROM visits GROUP BY age ORDER BY n LIMIT 1', epsilon := 0.01)"


def left(served: Served) -> float:
    (row,) = served.gateway.broker.ledger.asked_by("alice").budget_rows()
    return float(row["epsilon_remaining"])


@pytest.mark.parametrize(
    "wrong",
    [
        f"SELECT n::DATE FROM {COUNT}",
        f"CREATE TABLE mine AS SELECT n::DATE FROM {COUNT}",
        f"SELECT strptime(age, '%Y') FROM {GROUPS}",
        f"SELECT age::INTEGER FROM {LEAST}",
        f"SELECT (SELECT n FROM {GROUPS}) AS x",
        "SELECT age::INTEGER FROM dp_marginals('visits', ['age'], epsilon := 0.01)",
        "SELECT sex::INTEGER FROM dp_synthesize('visits', epsilon := 0.01)",
        "SELECT (SELECT value FROM dp_quantiles('visits', 'age', [0.2, 0.5], epsilon := 0.01)) AS x",
        f"SELECT a.n::DATE FROM {COUNT} a, dp_budget() b",
        f"SELECT error('no') FROM {COUNT}",
    ],
)
def test_what_fails_around_a_call_is_refused_before_it_is_charged(served: Served, wrong: str) -> None:
    alice = served.session("alice")
    before = left(served)
    for asked in (alice.run, alice.price):
        with pytest.raises(DPError, match="tried on made-up answers, so nothing was charged"):
            asked(wrong)
        assert left(served) == before
    if wrong.startswith("CREATE"):
        alice.run(f"CREATE TABLE mine AS FROM {COUNT}")


def test_what_may_succeed_is_not_refused_and_changes_things_once(served: Served) -> None:
    alice = served.session("alice")
    one = "SELECT (SELECT {} FROM {}) AS x"
    assert alice.run(one.format("n", COUNT)).num_rows == 1
    assert alice.run(one.format("n", LEAST)).num_rows == 1
    assert alice.run(one.format("value", "dp_quantiles('visits', 'age', [0.2], epsilon := 0.01)")).num_rows == 1
    alice.run("CREATE TABLE mine (age VARCHAR, n DOUBLE)")
    alice.run(
        "INSERT INTO mine SELECT age, n FROM dp_sql('SELECT age, count(*) AS n FROM visits GROUP BY age', epsilon := 0.02)"
    )
    assert alice.run("SELECT count(*) AS n FROM mine")["n"].to_pylist() == [5]
    sam = served.session("sam")
    sam.run("CREATE TABLE made AS FROM dp_account('carol')")
    assert [row["account"] for row in sam.run("FROM made").to_pylist()] == ["carol"]


def test_what_only_noise_makes_fail_says_where_the_paid_answer_is(served: Served) -> None:
    alice = served.session("alice")
    before = left(served)
    with pytest.raises(DPError, match=r"read again at no cost: FROM dp_release\(\d+\)") as told:
        alice.run(f"SELECT CASE WHEN n NOT IN (100.5, 99.5, 98.5) THEN error('no') END FROM {COUNT}")
    after = left(served)
    assert after < before
    assert alice.run(f"FROM {str(told.value).split('FROM ')[-1].rstrip('.')}").num_rows == 1
    assert left(served) == after


def test_a_synthesis_that_is_paid_is_said_to_be_kept(served: Served) -> None:
    alice = served.session("alice")
    before = left(served)
    drawn = "dp_synthesize('visits', epsilon := 0.02)"
    with pytest.raises(DPError, match="what was paid is kept, and read again at no cost"):
        alice.run(f"SELECT CASE WHEN count(*) > 20 THEN error('no') END AS x FROM {drawn}")
    assert left(served) < before


def test_columns_of_answers_are_named_where_one_is_missing(served: Served) -> None:
    for name in ("alice", "bob"):
        session = served.session(name)
        if name == "bob":
            served.session("sam").run("CALL dp_grant('bob', 'visits', epsilon := 1, synthetic := '')")
        with pytest.raises(DPError, match="there is no column 'ages'; age may be meant; the answer has age, n, stddev"):
            session.run(f"SELECT ages FROM {GROUPS}")
        with pytest.raises(DPError, match="there is no column 'nope'; the answer has n, stddev, ci_low, ci_high"):
            session.run(f"SELECT t.nope FROM {COUNT} t")


def test_tables_that_there_are_are_named_where_one_is_missing(served: Served) -> None:
    alice = served.session("alice")
    alice.run("CREATE TABLE mine AS SELECT 1 AS a")
    for text in ("FROM nope", f"FROM {COUNT} JOIN nope USING (n)"):
        with pytest.raises(
            DPError, match=r"nope does not exist; there are mine, towns, visits_syn .* and visits \(asked about"
        ):
            alice.run(text)


@pytest.mark.parametrize(
    "text",
    [
        "FROM query('FROM visits')",
        "SELECT count(*) FROM query('FROM visits')",
        "SELECT * FROM pragma_storage_info('visits')",
        "SELECT * FROM query_table('visits')",
    ],
)
def test_what_is_proposed_for_a_dataset_that_is_read_can_be_asked(served: Served, text: str) -> None:
    alice = served.session("alice")
    with pytest.raises(DPError, match="stay where they are; ask of them: ") as told:
        alice.run(text)
    assert alice.run(str(told.value).split("ask of them: ")[1].split("). ")[0] + ")").num_rows == 1


def test_settings_are_not_advised(served: Served) -> None:
    alice = served.session("alice")
    for text in (f"SELECT {'1 + ' * 2000} 1", "SELECT (SELECT a FROM (VALUES (1), (2)) t(a))"):
        with pytest.raises(DPError) as told:
            alice.run(text)
        assert "SET" not in str(told.value)


@pytest.mark.parametrize("asked", ["run", "schema", "price"])
def test_explain_and_describe_are_free(served: Served, asked: str) -> None:
    alice = served.session("alice")
    before = left(served)
    for text in (f"EXPLAIN FROM {COUNT}", f"EXPLAIN ANALYZE SELECT * FROM {COUNT}"):
        with pytest.raises(DPError, match="FROM dp_explain"):
            getattr(alice, asked)(text)
    for text in (f"DESCRIBE FROM {GROUPS}", f"desc SELECT age, n FROM {GROUPS}"):
        found = alice.run(text)
        assert found["column_name"].to_pylist()[:2] == ["age", "n"]
        assert alice.schema(text).equals(found.schema.remove_metadata())
    assert left(served) == before


def test_a_call_that_is_stopped_says_whether_it_was_charged(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, drawn = served.session("alice"), "dp_synthesize('visits', epsilon := 0.02)"
    for paid in (COUNT, drawn):
        alice.run(f"FROM {paid}")
    monkeypatch.setattr(served.gateway.broker, "_answered", type(served.gateway.broker._answered)(object, 0))
    run = served.gateway.broker._run

    def stopped(asked: Any, *given: Any) -> Any:
        def late() -> None:
            raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")

        if not asked.charges:
            return run(asked, *given)
        with served.gateway.broker._cursor("alice") as cursor, monkeypatch.context() as patched:
            patched.setattr(broker, "within", over)
            return served.gateway.broker._timed(asked, "alice", cursor, late)

    monkeypatch.setattr(Broker, "_run", lambda self, *given: stopped(*given))
    for paid in (COUNT, drawn):
        with pytest.raises(DPError, match="was stopped; what was charged stays charged, and the same request draws it"):
            alice.run(f"FROM {paid}")
    before = left(served)
    with pytest.raises(DPError, match="was stopped; nothing was charged; ask for less at once"):
        alice.run(f"FROM {GROUPS}")
    assert left(served) == before


@contextmanager
def over(*_: object) -> Iterator[threading.Event]:
    event = threading.Event()
    event.set()
    yield event


def test_a_select_in_double_quotes_is_said_to_be_a_name(served: Served) -> None:
    with pytest.raises(DPError, match="is in double quotes, which hold names; write a text in single quotes"):
        served.session("alice").run('FROM dp_sql("SELECT count(*) AS n FROM visits", epsilon := 0.1)')
