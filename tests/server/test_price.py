"""What a price says is what asking then costs, or why it is refused."""

import re

import pytest

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.http import words
from duckdb_dp.gateway.http.pictures import spread
from duckdb_dp.gateway.session import Account
from tests.server.conftest import Served


def spent(served: Served) -> float:
    return float(served.gateway.broker.ledger.accounts.grants("alice")[0]["spent"])


PRICED = [
    "FROM dp_marginals('visits', ['sex'], epsilon := 0.1)",
    "FROM dp_marginals(dataset := 'visits', attributes := ['sex', 'age'], epsilon := 0.1, bounds := true, release := 'a')",
    "FROM dp_marginals('visits', ['sex', 'age'], epsilon := 0.1, mechanism := 'aim', rounds := 3)",
    "FROM dp_marginals('visits', ['sex', 'age'], epsilon := 0.1, postprocess := 'fitted')",
    "FROM dp_queries('visits', {'age': 'range'}, precision := 200)",
    "FROM dp_quantiles('visits', 'age', [0.5], epsilon := 0.1)",
    "FROM dp_quantiles('visits', 'age', quantiles := [0.25, 0.5], by := 'sex', epsilon := 0.1)",
    "FROM dp_sql('SELECT sex, count(*) AS n, avg(age) AS mean FROM visits GROUP BY sex', epsilon := 0.1)",
    "FROM dp_sql('SELECT count(*) AS n FROM visits WHERE diagnosis = ''_dp_run(''''a'''')''', epsilon := 0.1)",
    "FROM dp_synthesize('visits', attributes := ['sex'], epsilon := 0.1)",
    "FROM dp_quality('visits', 'visits_syn', attributes := ['sex'], epsilon := 0.1)",
    "SELECT count FROM dp_marginals('visits', ['sex'], epsilon := 0.1) ORDER BY count LIMIT 1",
]


@pytest.mark.slow
@pytest.mark.parametrize("sql", PRICED)
def test_a_price_is_what_asking_costs_and_nothing_once_it_is_paid(served: Served, sql: str) -> None:
    alice = served.session("alice")
    (row, *_) = alice.price(sql).to_pylist()
    assert (row["dataset"], row["fits"], row["waits"]) == ("visits", True, False)
    grant = served.gateway.broker.ledger.accounts.grants("alice")[0]
    alice.run(sql)
    assert spent(served) == pytest.approx(row["share_of_grant"] * grant["total"], rel=1e-9)
    assert row["share_of_left"] == pytest.approx(row["share_of_grant"])
    assert row["epsilon"] > 0
    (again, *_) = alice.price(sql).to_pylist()
    assert (again["epsilon"], again["fits"], again["share_of_grant"]) == (0.0, True, None)
    assert "paid already" in again["note"]
    assert (again["stddev"], again["half_width"]) == (row["stddev"], row["half_width"])
    (bobs, *_) = served.session("bob").price(sql).to_pylist()
    assert bobs["share_of_grant"] == pytest.approx(row["share_of_grant"]), "another account has not paid it"
    before = spent(served)
    alice.run(sql)
    assert spent(served) == before


def test_fresh_is_never_paid_already(served: Served) -> None:
    sql = "FROM dp_marginals('visits', ['sex'], epsilon := 0.1, fresh := true)"
    alice = served.session("alice")
    alice.run(sql)
    assert alice.price(sql)["epsilon"].to_pylist() == [pytest.approx(0.1)]


@pytest.mark.slow
def test_a_price_is_of_the_budget_of_the_dataset_that_is_asked(served: Served) -> None:
    with served.gateway.broker._cursor("") as cursor:
        cursor.execute('CREATE TABLE "my table" AS FROM visits')
        cursor.execute("CALL dp_protect('my table', epsilon := 2, delta := 1e-9)")
        cursor.execute("CALL dp_attribute('my table', 'sex', \"values\" := ['f', 'm'])")
        cursor.execute("CALL dp_grant('alice', 'my table', epsilon := 0.5, max_epsilon := 0.2)")
    alice, bob = served.session("alice"), served.session("bob")
    for sql in (
        "FROM dp_marginals('my table', ['sex'], epsilon := {})",
        "FROM dp_sql('SELECT count(*) AS n FROM \"my table\"', epsilon := {})",
    ):
        (row,) = alice.price(sql.format(0.1)).to_pylist()
        assert (row["dataset"], row["fits"], row["waits"]) == ("my table", True, False)
        (row,) = alice.price(sql.format(0.3)).to_pylist()
        assert (row["fits"], row["waits"]) == (True, True)
        (row,) = alice.price(sql.format(50)).to_pylist()
        assert (row["dataset"], row["fits"], row["waits"]) == ("my table", False, False)
        assert row["share_of_grant"] > 1
        with pytest.raises(DPError, match=r"is not granted to 'bob'.*; granted are: 'visits'"):
            bob.price(sql.format(0.1))
    assert spent(served) == 0.0


def test_later_calls_of_a_statement_have_what_the_earlier_ones_leave(served: Served) -> None:
    alice = served.session("alice")
    two = "SELECT a.count FROM dp_marginals('visits', ['sex'], epsilon := {}) a, dp_marginals('visits', ['sex'], epsilon := {}) b"
    rows = alice.price(two.format(0.7, 0.75)).to_pylist()
    assert [row["fits"] for row in rows] == [True, False]
    assert "by itself first" in rows[1]["note"]


REFUSED = [
    ("SELECT sex, count(*) AS n FROM visits GROUP BY sex", "stay where they are; ask of them: FROM dp_sql"),
    ("FROM visits", "stay where they are"),
    ("SELEC", "syntax error"),
    ("FROM nothing", "does not exist"),
    ("SELECT nothing FROM dp_marginals('visits', ['sex'], epsilon := 0.1)", "nothing"),
    ("CREATE VIEW v AS FROM dp_marginals('visits', ['sex'], epsilon := 0.1)", "by no view or macro"),
    ("FROM dp_marginals('visits', ['sex'], epsilon := 0.1, epsilom := 1)", "epsilom"),
    ("FROM dp_quality('visits', 'nothing', epsilon := 0.1)", "nothing"),
]


@pytest.mark.parametrize(("sql", "why"), REFUSED)
def test_what_is_refused_has_no_price(served: Served, sql: str, why: str) -> None:
    alice = served.session("alice")
    for each in (alice.price, alice.run):
        with pytest.raises(DPError, match=re.escape(why)):
            each(sql)


@pytest.mark.slow
def test_what_reads_public_tables_costs_nothing(served: Served) -> None:
    alice = served.session("alice")
    for sql in (
        "FROM towns",
        "SELECT count(*) AS n FROM visits_syn",
        "CREATE TABLE mine AS FROM towns",
        "SHOW TABLES",
        "DESCRIBE towns",
    ):
        (row,) = alice.price(sql).to_pylist()
        assert (row["epsilon"], row["fits"]) == (0.0, True)
        assert "costs nothing" in row["note"]
    with pytest.raises(DPError, match="mine"):
        alice.run("FROM mine")


def test_a_steward_sees_what_it_would_cost_who_asks(served: Served) -> None:
    large = "FROM dp_marginals('visits', ['age'], epsilon := 0.6)"
    with pytest.raises(DPError, match="waits"):
        served.session("alice").run(large)
    served.gateway.broker.ledger.accounts.add("stu", "steward")
    steward = served.gateway.steward(Account(name="stu", role="steward"))
    (waiting,) = steward.requests().to_pylist()
    (row,) = steward.price("alice", waiting["statement"]).to_pylist()
    assert (row["dataset"], row["fits"], row["waits"]) == ("visits", True, True)


UNITS = {
    "FROM dp_quantiles('visits', 'age', [0.5], epsilon := 0.1)": {"age quantiles": "ranks"},
    "FROM dp_quantiles('visits', 'age', [0.5], epsilon := 0.1, mechanism := 'select')": {"age quantiles": "ranks"},
    "FROM dp_sql('SELECT median(age) AS m FROM visits', epsilon := 0.1)": {'quantile("age", 0.5)': "ranks"},
    "FROM dp_sql('SELECT median(age) - 1 AS m FROM visits', epsilon := 0.1)": {'quantile("age", 0.5)': "ranks"},
    "FROM dp_sql('SELECT median(age) AS m, count(*) AS n FROM visits', epsilon := 0.1)": {
        'quantile("age", 0.5)': "ranks", "count(*)": "answer",
    },
    "FROM dp_sql('SELECT avg(age) AS m, stddev(age) AS s, sum(age) / count(*) AS r FROM visits', epsilon := 0.1)": {
        'sum("age" - 25)': "part", 'sum(("age" - 25)^2)': "part", 'count("age")': "part", 'count(*) - count("age")': "part",
    },
    "FROM dp_sql('SELECT sex, count(*) AS n FROM visits GROUP BY sex', epsilon := 0.1)": {"sex identity": "answer"},
}  # fmt: skip
"""What the half width of each row of a price is of."""


@pytest.mark.parametrize(("sql", "units"), UNITS.items())
def test_a_price_says_the_unit_of_each_error_and_mixes_no_two(served: Served, sql: str, units: dict[str, str]) -> None:
    alice = served.session("alice")
    rows = alice.price(sql).to_pylist()
    found = {row["answer"]: "ranks" if row["error_in"] else "part" if row["part_of"] else "answer" for row in rows}
    assert found == units
    notes = {found[row["answer"]]: row["note"] for row in rows}
    assert notes.get("answer") is None
    assert "places of the sorted rows" in notes.get("ranks", "places of the sorted rows")
    assert notes.get("part", "a part of ").startswith("a part of ")
    (sentence,) = words.price(rows).sentences
    assert ("places of the sorted rows" in sentence) == ("ranks" in units.values())
    assert ("an average of n rows" in sentence) == ("part" in units.values())
    own = [row["half_width"] for row in rows if found[row["answer"]] == "answer"]
    assert not own or f"{spread(own)}" in sentence, "widths of ranks and of sums are not among those of counts"
    both = alice.price(f"SELECT * FROM ({sql.replace('0.1', '0.11')}), ({sql})").to_pylist()
    assert [row["error_in"] for row in both[len(rows) :]] == [row["error_in"] for row in rows], "whatever the note says"
