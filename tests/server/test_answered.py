"""Answers that are kept to be given again: to whom they were given, and as long as what was said stays as it was."""

from typing import Any

import pyarrow as pa
import pytest

from duckdb_dp.gateway import answered
from duckdb_dp.gateway.answered import Answered
from tests.server.conftest import Served

ASKED = "FROM dp_marginals('visits', ['sex'], epsilon := 0.2)"


def test_what_is_kept_is_of_the_present_state_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answered, "LOOK", 0.0)
    states = ["monday"]
    kept = Answered(lambda: states[-1], memory=200_000)
    state = kept.present()
    for number in range(300):
        kept.keep(number, state, pa.table({"a": range(100)}))
    assert kept.find(0) is None
    assert kept.find(299) is not None
    assert 50 < sum(kept.find(number) is not None for number in range(300)) < 200
    kept.keep("large", state, pa.table({"a": range(10_000)}))
    assert kept.find("large") is None
    states.append("tuesday")
    kept.present()
    assert kept.find(299) is None
    kept.keep("late", state, pa.table({"a": [1]}))
    assert kept.find("late") is None


def test_the_same_call_is_planned_once_for_each_account(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answered, "LOOK", 0.0)
    broker, planned = served.gateway.broker, []

    def noting(made: Any) -> Any:
        return lambda self, *arguments: planned.append(arguments[1]) or made(self, *arguments)

    for name in ("_run", "_described"):  # for the rows, and for the columns alone
        monkeypatch.setattr(type(broker), name, noting(getattr(type(broker), name)))
    alice, bob = served.session("alice"), served.session("bob")
    found = alice.run(ASKED)
    alice.run("FROM dp_marginals('visits', ['sex'], epsilon := 0.1)")
    assert [alice.run(ASKED), bob.run(ASKED), bob.run(ASKED)] == [found] * 3
    assert alice.schema(ASKED) == found.schema
    assert planned == ["alice", "alice", "bob"]
    assert (
        alice.schema("FROM dp_marginals('visits', ['sex'], epsilon := 0.3)") == found.schema
    )  # of a call that nobody has asked
    assert planned.pop() == "alice"
    assert bob.budget()["spent"][0].as_py() > 0
    budget = alice.budget()
    alice.run(ASKED)
    assert alice.budget() == budget


CHANGES = [
    "CALL dp_attribute('visits', 'sex', \"values\" := ['f', 'm', 'x'])",
    "CALL dp_grant('alice', 'visits', epsilon := 1, until := '2020-01-01')",
    "CALL dp_account('alice', role := 'viewer')",
    "CALL dp_attribute('visits', 'age', bins := [0, 50])",
]


def test_a_change_of_what_is_said_is_seen(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answered, "LOOK", 0.0)
    alice, kept = served.session("alice"), served.gateway.broker._answered
    for change in CHANGES:
        alice.run(ASKED)
        assert kept._known
        with served.gateway.broker._cursor("") as cursor:
            cursor.execute(change)
        kept.present()
        assert not kept._known, change
        if change == CHANGES[0]:
            assert alice.run(ASKED)["sex"].to_pylist() == ["f", "m", "x"]
