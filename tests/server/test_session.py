"""A session's ways: price, ask, reuse, explore, wait, read; and what a second account pays."""

import io
import re
from typing import Any

import pytest

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.config import Config, Limits
from duckdb_dp.gateway.errors import Log, Waiting
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.limits import Turnstile
from duckdb_dp.gateway.sandbox import Sandbox
from tests.server.conftest import Served

ASKED = "FROM dp_marginals('visits', ['sex'], epsilon := 0.2)"
LARGE = "FROM dp_marginals('visits', ['age'], epsilon := 0.6)"


def left(served: Served, name: str) -> Any:
    return served.session(name).budget().to_pylist()[0]["remaining"]


@pytest.mark.slow
def test_a_statement_is_priced_for_free_and_charged_once(served: Served) -> None:
    alice = served.session("alice")
    (price,) = alice.price(ASKED).to_pylist()
    assert (price["epsilon"], price["fits"], price["waits"]) == (0.2, True, False)
    before = left(served, "alice")
    found = alice.run(ASKED)
    assert found.to_pydict()["sex"] == ["f", "m"]
    assert before - left(served, "alice") == pytest.approx(price["share_of_left"] * before)
    after = left(served, "alice")
    assert alice.run(ASKED) == found == alice.read_release(2)
    town = alice.run(f"SELECT town, count FROM ({ASKED}) JOIN towns USING (sex) WHERE town = ?", ["Mainz"])
    assert town.to_pydict() == {"town": ["Mainz"], "count": [found["count"][1].as_py()]}
    assert left(served, "alice") == after
    assert alice.schema(f"SELECT count + ? AS more FROM ({ASKED})").names == ["more"]


def test_a_second_account_pays_a_release_and_the_dataset_does_not(served: Served) -> None:
    alice, bob = served.session("alice"), served.session("bob")
    found = alice.run("FROM dp_marginals('visits', ['sex'], epsilon := 0.2, release := 'sexes')")
    spent = served.gateway.broker.ledger.budget_rows()[0]["spent"]
    for key in (2, "sexes", "alice/sexes"):
        with pytest.raises(DPError, match="there is no release"):
            bob.read_release(key)
    assert bob.releases().num_rows == 0
    assert left(served, "bob") == bob.budget()["total"][0].as_py()
    assert bob.run(ASKED) == found
    assert bob.budget()["remaining"][0] == alice.budget()["remaining"][0]
    assert served.gateway.broker.ledger.budget_rows()[0]["spent"] == spent
    assert bob.read_release(2) == found
    assert bob.releases()["name"].to_pylist() == [None]
    assert alice.releases()["name"].to_pylist() == ["sexes"]


def test_a_large_request_waits_for_a_steward_and_is_approved_once(served: Served) -> None:
    alice = served.session("alice")
    steward = served.gateway.steward(served.gateway.sign_in("sam", served.tokens["sam"], client="test"))
    for _ in range(2):
        with pytest.raises(Waiting, match="request 1 waits"):
            alice.run(LARGE)
    assert steward.requests()["statement"].to_pylist() == [LARGE]
    steward.approve(1)
    with pytest.raises(DPError, match="a decision stays"):
        steward.refuse(1, "no")
    assert alice.run(LARGE).num_rows == 5
    with pytest.raises(Waiting, match="request 2 waits"):
        alice.run("FROM dp_marginals('visits', ['age'], epsilon := 0.6, fresh := true)")
    outcomes = steward.audit()["outcome"].to_pylist()
    assert outcomes.count("waiting") == 3


@pytest.mark.slow
def test_exploring_is_free_and_marked(served: Served) -> None:
    alice = served.session("alice")
    before = left(served, "alice")
    assert alice.explore("SELECT count(*) AS n FROM visits")["synthetic"].to_pylist() == [True]
    assert alice.run("SELECT sex FROM visits_syn LIMIT 1")["synthetic"].to_pylist() == [True]
    alice.run("CREATE TABLE mine AS FROM visits_syn")
    assert "synthetic" in alice.run("FROM mine LIMIT 1").column_names
    assert "synthetic" not in alice.run("FROM towns").column_names
    with pytest.raises(DPError, match="explore reads synthetic"):
        alice.explore(ASKED)
    assert left(served, "alice") == before


@pytest.mark.slow
def test_what_is_wrong_around_a_call_is_said_before_it_is_charged(served: Served) -> None:
    alice = served.session("alice")
    before = left(served, "alice")
    for wrong in (
        f"SELECT no_such_column FROM ({ASKED})",
        f"{ASKED} JOIN nothing USING (sex)",
        f"{ASKED}, dp_marginals('visits', ['nothing'], epsilon := 0.1)",
        f"EXPLAIN {ASKED}",
        f"EXPLAIN ANALYZE {ASKED}",
        f"PREPARE p AS {ASKED}",
        "FROM dp_marginals('visits', ['sex'], epsilon := 0.2, epsilom := 1)",
        "FROM dp_marginals(age, ['sex'])",
        f"{ASKED}; {ASKED}",
    ):
        with pytest.raises(DPError):
            alice.run(wrong)
        assert left(served, "alice") == before, wrong


@pytest.mark.parametrize("text", ["FROM visits", "SELECT sex, count(*) FROM Visits GROUP BY sex"])
def test_who_reads_a_dataset_as_a_table_is_told_how_to_ask(served: Served, text: str) -> None:
    with pytest.raises(DPError, match="the rows of 'visits' stay where they are; ask of them: FROM dp_sql") as told:
        served.session("alice").run(text)
    call = str(told.value).split("ask of them: ")[1].split("). ")[0].removesuffix(").") + ")"
    assert served.session("alice").run(call).num_rows == (2 if "GROUP" in text else 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"CREATE VIEW v AS {ASKED}", "by no view or macro"),
        (f"CREATE MACRO m() AS TABLE {ASKED}", "by no view or macro"),
        (f"CREATE TABLE kept AS {ASKED}", "there is a table 'kept'"),
        ("FROM dp_synthesize('visits', epsilon := 0.1, rows := 100_000_000)", "would have 100,000,000 rows"),
    ],
)
def test_what_could_keep_or_show_no_rows_is_not_charged(served: Served, text: str, why: str) -> None:
    alice = served.session("alice")
    alice.run("CREATE TABLE kept (x INTEGER)")
    before = left(served, "alice")
    with pytest.raises(DPError, match=why):
        alice.run(text)
    assert left(served, "alice") == before


@pytest.mark.slow
def test_the_queue_shows_what_was_asked_whatever_others_plant(served: Served) -> None:
    alice, bob = served.session("alice"), served.session("bob")
    steward = served.gateway.steward(served.gateway.sign_in("sam", served.tokens["sam"], client="test"))
    ending = " waits for a steward, and nothing was charged; once it is approved, ask the same again."
    for number in ("1", "9" * 20):
        for each in (alice, bob):
            with pytest.raises(DPError):
                each.run(f"SELECT error('x; request {number}{ending}')")
    with pytest.raises(Waiting, match="request 1 waits"):
        alice.run(LARGE)
    (waiting,) = steward.requests().to_pylist()
    assert (waiting["account"], waiting["statement"]) == ("alice", LARGE)
    assert steward.audit().num_rows >= 5


@pytest.mark.slow
def test_an_answer_has_a_limit_in_bytes(served: Served) -> None:
    with pytest.raises(DPError, match="more than 64 MB"):
        served.session("alice").run("SELECT repeat('x', 400_000) AS x FROM range(300)")


@pytest.mark.slow
def test_an_account_has_few_sandboxes(served: Served) -> None:
    sessions = [served.session("alice") for _ in range(10)]
    for each in sessions:
        assert each.run("SELECT 1 AS one").num_rows == 1
    living = [box for each in sessions for box in each._space.boxes.values() if box.alive]
    assert len(living) == 8
    assert sessions[0].run("SELECT 1 AS one").num_rows == 1


@pytest.mark.slow
def test_a_viewer_reads_what_was_shared_and_asks_nothing(served: Served) -> None:
    alice, vera, sam = (served.session(name) for name in ("alice", "vera", "sam"))
    found = alice.run(ASKED)
    with pytest.raises(DPError):
        vera.run(ASKED)
    with pytest.raises(DPError, match="there is no release"):
        vera.read_release(2)
    sam.run("CALL dp_share(2, 'vera')")
    assert vera.read_release(2) == found
    with pytest.raises(DPError, match="there is no function dp_share"):
        alice.run("CALL dp_share(2, 'alice')")


@pytest.mark.slow
def test_sign_in_takes_the_newest_token_alone(served: Served) -> None:
    gateway, token = served.gateway, served.tokens["alice"]
    assert gateway.sign_in(None, token, client="test").name == "alice"
    for name, wrong in (("bob", token), ("alice", token[:-1]), ("alice", ""), ("nobody", "x" * 10_000), (None, "ü")):
        with pytest.raises(DPError, match="the name or the token is wrong"):
            gateway.sign_in(name, wrong, client="test")
    served.session("sam").run("CALL dp_account('alice', role := 'closed')")
    with pytest.raises(DPError, match="the name or the token is wrong"):
        gateway.sign_in("alice", token, client="test")


@pytest.mark.slow
def test_fresh_draws_anew_each_time(served: Served) -> None:
    alice = served.session("alice")
    small = ASKED.replace("0.2", "0.05")
    fresh = small.replace(")", ", fresh := true)")
    answers = [alice.run(each) for each in (small, fresh, fresh)]
    assert len({str(each["count"]) for each in answers}) == 3
    assert alice.releases().num_rows == 3
    assert alice.read_release(2) == answers[0]


@pytest.mark.slow
def test_limits(served: Served) -> None:
    gateway = served.gateway
    small = Limits(at_once=1, per_minute=3, seconds=2, rows=10, memory=32, characters=200)
    turnstile = Turnstile(small)
    with turnstile.admitted("alice"):
        with pytest.raises(DPError, match="run already"), turnstile.admitted("alice"):
            pass
        with turnstile.admitted("bob"):
            pass
    for _ in range(2):
        with turnstile.admitted("alice"):
            pass
    with pytest.raises(DPError, match="within a minute"), turnstile.admitted("alice"):
        pass
    box = Sandbox(small)
    for wrong, words in (
        ("FROM range(11)", "more than 10 rows"),
        ("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b", "longer than 2 s"),
    ):
        with pytest.raises(DPError, match=words):
            box.run(wrong, {})
    assert not box.alive
    box = Sandbox(small)
    with pytest.raises(DPError, match=r"memory|allocate"):
        box.run("SELECT list(range) FROM range(100000000)", {})
    box.close()
    with pytest.raises(DPError, match="at most"):
        served.session("alice").run("SELECT '" + "x" * gateway.config.limits.characters + "'")


@pytest.mark.slow
def test_a_killed_sandbox_is_replaced(served: Served) -> None:
    alice = served.session("alice")
    alice.run("CREATE TABLE mine AS SELECT 1 AS one")
    alice.interrupt()
    with pytest.raises(DPError, match="mine"):
        alice.run("FROM mine")
    assert alice.run("SELECT 2 AS two").to_pydict() == {"two": [2]}


def test_an_unforeseen_error_leaves_as_a_number(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("the value 4711 of alice")

    alice, out = served.session("alice"), io.StringIO()
    monkeypatch.setattr(served.gateway, "log", Log(out))
    monkeypatch.setattr(type(served.gateway.broker), "ask", broken)
    with pytest.raises(DPError) as caught:
        alice.run(ASKED)
    number = str(caught.value).split()[2].rstrip(";")
    log = out.getvalue()
    assert number in log
    assert "ZeroDivisionError" in log
    assert "4711" not in log + str(caught.value)


ROUNDABOUT = [
    ["CREATE TABLE memory.main.zz AS FROM visits_syn", "SELECT count(*) AS n FROM zz"],
    ["CREATE TABLE z2 (n BIGINT)", "INSERT INTO memory.main.z2 SELECT count(*) FROM visits_syn", "FROM z2"],
    ["CREATE OR REPLACE VIEW memory.main.v3 AS FROM visits_syn", "SELECT count(*) AS n FROM v3"],
    ["CREATE TABLE z5 AS FROM visits_syn", "ALTER TABLE z5 RENAME TO z6", "FROM z6 LIMIT 1"],
    ["FROM towns", "UPDATE towns SET town = (SELECT count(*) FROM visits_syn)", "SELECT town FROM towns"],
    ["FROM visits_syn LIMIT 1", "SELECT count(*) AS n FROM query('FROM visits' || '_syn')"],
    ["FROM visits_syn LIMIT 1", "SELECT count(*) AS n FROM query_table('visits_' || 'syn')"],
    ["SELECT count(*) AS n, false AS synthetic FROM visits_syn"],
    ['SELECT count(*) AS n, false AS "Synthetic" FROM visits_syn'],
    ["CREATE TABLE z7 AS FROM visits_syn", "SELECT b.release, a.sex FROM dp_releases() b, z7 a"],
    ["CREATE MACRO m8() AS (SELECT count(*) FROM visits_syn)", "SELECT m8() AS n, * FROM dp_budget()"],
]


@pytest.mark.slow
@pytest.mark.parametrize("statements", ROUNDABOUT, ids=lambda each: each[-1][:40])
def test_what_is_made_of_synthetic_rows_says_so(served: Served, statements: list[str]) -> None:
    alice = served.session("alice")
    found = [alice.run(each) for each in statements][-1]
    assert found.column_names[-1] == "synthetic"
    assert [name.lower() for name in found.column_names].count("synthetic") == 1
    assert set(found["synthetic"].to_pylist()) <= {True}


@pytest.mark.slow
def test_answers_are_not_called_synthetic_beside_synthetic_rows(served: Served) -> None:
    alice = served.session("alice")
    alice.run("CREATE TABLE mine AS FROM visits_syn")
    assert "synthetic" not in alice.run("SELECT release, name FROM dp_releases() ORDER BY release").column_names
    assert "synthetic" not in alice.run("FROM towns").column_names


@pytest.mark.slow
def test_a_table_that_is_there_is_refused_before_the_charge(served: Served) -> None:
    alice = served.session("alice")
    alice.run("CREATE TABLE z AS SELECT 1 AS one")
    with pytest.raises(DPError, match="there is a table 'z'"):
        alice.run("CREATE TABLE memory.main.z AS FROM dp_sql('SELECT count(*) AS n FROM visits', epsilon := 0.1)")
    assert alice.budget()["spent"].to_pylist() == [0.0]


ODD = [
    "DATE '99999-01-01'", "'infinity'::TIMESTAMP", "'-infinity'::DATE", "'infinity'::TIMESTAMPTZ", "{'': 1}", "{'a': 1, 'A': 2}", "[1, 'a']",
    "repeat('9', 400)", "1e400", "'nan'::DOUBLE", "2::HUGEINT ** 120", "170141183460469231731687303715884105727", "INTERVAL 9999999 YEAR",
    "'\\xFF'::BLOB", "MAP {'a': 1}", "MAP {1: 2}", "[[]]", "[NULL]", "{'a': NULL}", "TIME '24:00:00'", "gen_random_uuid()", "'101'::BIT", "NULL",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD)
def test_odd_arguments_are_told_in_a_line(served: Served, odd: str) -> None:
    alice = served.session("alice")
    for asked in (
        f"dp_release({odd})",
        f"dp_sql({odd}, epsilon := 0.1)",
        f"dp_sql('SELECT count(*) AS n FROM visits', epsilon := {odd})",
        f"dp_marginals('visits', {odd}, epsilon := 0.001)",
        f"dp_quantiles('visits', 'age', {odd}, epsilon := 0.001)",
        f"dp_explain('visits', ['sex'], epsilon := {odd})",
    ):
        try:
            alice.run(f"FROM {asked}")
        except DPError as error:
            assert "internal error" not in str(error), (asked, str(error))
            assert "\n" not in str(error)


HIDDEN = "FROM dp_marginals('visits', ['age', 'sex'], epsilon := 0.8)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE MACRO cheap() AS 0.8", "FROM dp_marginals('visits', ['age', 'sex'], epsilon := cheap())"],
        ["FROM /* 10,100 x */ dp_marginals('visits', ['age', 'sex'], epsilon := 0.8)"],
        [
            "SELECT count(*) AS \"epsilon := 0.0001\" FROM dp_marginals('visits', ['age', 'sex'], epsilon := (SELECT 0.8))"
        ],
        ["/*" + "x" * 20_000 + "*/ FROM dp_marginals('visits', ['age', 'sex'], epsilon := 0.8)"],
    ],
)
def test_a_steward_sees_the_call_that_is_asked(served: Served, statements: list[str]) -> None:
    alice, sam = (
        served.session("alice"),
        served.gateway.steward(served.gateway.sign_in("sam", served.tokens["sam"], client="t")),
    )
    for each in statements[:-1]:
        alice.run(each)
    with pytest.raises(Waiting):
        alice.run(statements[-1])
    assert sam.requests()["statement"].to_pylist() == [HIDDEN]
    assert served.session("sam").price(HIDDEN)["epsilon"][0].as_py() == pytest.approx(0.8)


@pytest.mark.slow
def test_a_long_request_is_shown_whole(served: Served) -> None:
    alice, sam = (
        served.session("alice"),
        served.gateway.steward(served.gateway.sign_in("sam", served.tokens["sam"], client="t")),
    )
    asked = f"FROM dp_sql('SELECT count(*) AS n FROM visits WHERE age IN ({', '.join(map(str, range(4_000)))})', epsilon := 0.8)"
    with pytest.raises(Waiting):
        alice.run(asked)
    assert sam.requests()["statement"].to_pylist() == [asked]


@pytest.mark.parametrize(
    "asked",
    [
        "dp_sql('x', epsilon := 0.001)",
        "dp_marginals('nothing', ['sex'], epsilon := 0.1)",
        "dp_queries('visits', ['x'], epsilon := 0.1)",
    ],
)
def test_a_price_speaks_of_the_call_that_was_written(served: Served, asked: str) -> None:
    with pytest.raises(DPError) as refused:
        served.session("alice").price(f"FROM {asked}")
    assert str(refused.value).startswith(f"{asked.partition('(')[0]}: ")
    with pytest.raises(DPError, match=re.escape(str(refused.value)[:60])):
        served.session("alice").run(f"FROM {asked}")


TWICE = [
    "SELECT a.count FROM dp_marginals('visits', ['sex'], epsilon := 0.1) a, dp_marginals('visits', ['age'], epsilon := 0.9) b",
    "SELECT 1 AS one FROM dp_marginals('visits', ['sex'], epsilon := 0.1), dp_marginals('payroll', ['salary'], epsilon := 0.1)",
    "FROM dp_sql('SELECT count(*) AS n FROM visits', epsilon := 0.1) JOIN dp_quantiles('visits', 'age', [0.5], epsilon := 9) ON true",
]


@pytest.mark.slow
@pytest.mark.parametrize("asked", TWICE)
def test_no_call_is_charged_where_another_may_be_refused(served: Served, asked: str) -> None:
    alice = served.session("alice")
    with pytest.raises(DPError, match=r"nothing was charged|'payroll' is not granted|than what remains"):
        alice.run(asked)
    assert alice.budget()["spent"].to_pylist() == [0.0]
    one, two = "FROM dp_marginals('visits', ['sex'], epsilon := 0.1)", "dp_marginals('visits', ['age'], epsilon := 0.1)"
    alice.run(one)
    assert alice.run(f"SELECT a.count AS x, b.count AS y {one} a, {two} b").num_rows > 0, "one of them was paid before"


@pytest.mark.slow
def test_statements_that_fail_leave_nothing(served: Served) -> None:
    alice = served.session("alice")
    for _ in range(3):
        with pytest.raises(DPError):
            alice.run("SELECT sex::INTEGER AS n FROM dp_marginals('visits', ['sex'], epsilon := 0.1)")
    assert alice.run("SHOW TABLES")["name"].to_pylist() == ["towns", "visits", "visits_syn"]


@pytest.mark.slow
def test_a_steward_decides_as_it_is_documented(served: Served) -> None:
    with pytest.raises(DPError, match="waits"):
        served.session("alice").run("FROM dp_marginals('visits', ['sex'], epsilon := 0.8)")
    served.session("sam").run("CALL dp_refuse(1, 'ask for less')")
    assert "ask for less" in str(served.session("sam").run("FROM dp_requests()").to_pylist())


PLANNED = [
    "dp_sql('SELECT {} FROM visits', epsilon := 0.001)",
    "dp_explain(NULL, 'SELECT {} FROM visits', epsilon := 0.001)",
]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # where the end falls into a callback of a weak set
@pytest.mark.parametrize("call", PLANNED)
def test_planning_ends_in_time(made: Any, call: str) -> None:
    gateway = Gateway.open(Config(database=made[0] / "clinic.duckdb", limits=Limits(seconds=0.5)))
    try:
        alice = gateway.session(gateway.sign_in("alice", made[1]["alice"], client="test"), client="test")
        columns = ", ".join(f"count(*) FILTER (WHERE age > {each % 50}) AS c{each}" for each in range(1_000))
        with pytest.raises(DPError, match="took longer than"):
            alice.run(f"FROM {call.format(columns)}")
        assert alice.budget()["spent"].to_pylist() == [0.0]
        assert alice.run("FROM dp_domain('visits')").num_rows > 0
    finally:
        gateway.close()


def test_a_decision_has_its_steward_and_a_row_in_the_audit(served: Served) -> None:
    large = "FROM dp_marginals('visits', ['sex'], epsilon := {})"
    for epsilon in (0.7, 0.8):
        with pytest.raises(DPError, match="waits"):
            served.session("alice").run(large.format(epsilon))
    sam = served.session("sam")
    sam.run("CALL dp_approve(1)")
    sam.run("CALL dp_refuse(2, 'less')")
    steward = served.gateway.steward(sam.account)
    assert steward.requests()["steward"].to_pylist() == ["sam", "sam"]
    assert {"CALL dp_approve(1)", "CALL dp_refuse(2, 'less')"} <= set(steward.audit()["statement"].to_pylist())


@pytest.mark.slow
def test_answers_are_called_as_their_functions(served: Served) -> None:
    alice = served.session("alice")
    value = f"SELECT (SELECT count {ASKED} LIMIT 1)"
    names = alice.schema(value).names
    assert names == alice.run(value).column_names == alice.run(value).column_names
    assert "dp_marginals" in names[0]
    assert alice.run(f"SELECT dp_marginals.sex {ASKED}")["sex"].to_pylist() == ["f", "m"]
    both = f"SELECT a.sex {ASKED} a, ({ASKED}) b WHERE a.sex = b.sex"
    assert alice.run(both).num_rows == 2
    alice.run("CREATE TABLE dp_marginals AS SELECT 1 AS mine")
    assert alice.run(f"SELECT sex {ASKED} WHERE sex = 'f'").num_rows == 1
    assert alice.run("SELECT mine FROM dp_marginals").num_rows == 1
    for wrong in (
        "SELECT dp_budget()",
        f"SELECT nothing {ASKED}",
        "FROM c.main.dp_budget()",
        "SELECT 1 WHERE dp_budget()",
    ):
        with pytest.raises(DPError) as told:
            alice.run(wrong)
        assert "_dp_answer" not in str(told.value)
    with pytest.raises(DPError, match="write FROM before it"):
        alice.run("SELECT dp_budget()")


def test_answers_say_what_they_leave_out(served: Served) -> None:
    """New ones and stored ones, alone, and in a statement around them, for agents and on pages; not in the columns of Flight."""
    from duckdb_dp.gateway.http.pictures import said

    alice = served.session("alice")
    call = "dp_sql('SELECT sex, sum(age) AS total FROM visits GROUP BY sex', epsilon := 0.1)"
    lines = [
        "values of age beyond 0 to 50 count as these bounds: no interval covers that",
        "rows whose sex is NULL or not declared are in no group",
    ]
    for _ in range(2):
        assert said(alice.run(f"FROM {call}")) == lines
        assert (
            said(
                alice.run(
                    f"SELECT sex, total, total_ci_low, total_ci_high FROM (SELECT *, ci_low AS total_ci_low, ci_high AS total_ci_high FROM {call})"
                )
            )
            == lines
        )
    number = max(alice.releases().column("release").to_pylist())
    assert said(alice.read_release(number)) == lines
    both = "dp_marginals('visits', [['sex'], ['age']], epsilon := 0.1)"
    assert "none of these answers" in "".join(said(alice.run(f"FROM {both}")))
    assert said(alice.run("FROM dp_marginals('visits', ['sex'], epsilon := 0.1)")) == []
    (line,) = said(alice.run("FROM dp_marginals('visits', ['sex'], epsilon := 0.1) ORDER BY count DESC LIMIT 1"))
    assert line.startswith("rows are picked by noisy answers")
    assert alice.schema(f"FROM {both}").metadata is None


def test_sql_shows_what_there_is(served: Served) -> None:
    """Datasets, public and synthetic tables, and those of the session; of a dataset what is declared, as the tools say it."""
    alice = served.session("alice")
    names = ["towns", "visits", "visits_syn"]
    for text in ("SHOW TABLES", "show tables", " SHOW  TABLES ;"):
        assert alice.run(text).column("name").to_pylist() == names
        assert alice.schema(text).names == ["name"]
    alice.run("CREATE TABLE mine AS SELECT 1 AS x")
    assert alice.run("SHOW TABLES").column("name").to_pylist() == ["mine", *names]
    for text in ("DESCRIBE visits", "DESC Visits", "SHOW visits", 'DESCRIBE TABLE "visits"'):
        found = alice.run(text)
        assert found.column("column_name").to_pylist() == alice.describe("visits").column("column").to_pylist()
        assert found.column("extra").to_pylist() == ["0, 10, 20, 30, 40, 50", "f, m", "not declared"]
        assert alice.schema(text) == found.schema
    assert alice.run("DESCRIBE towns").column("column_name").to_pylist()[:2] == ["sex", "town"]
    assert alice.run("DESCRIBE mine").column("column_name").to_pylist()[0] == "x"
    for text in ("DESCRIBE payroll", "SHOW plain"):  # not granted
        with pytest.raises(DPError):
            alice.run(text)


def test_quotes_that_do_not_match_are_told(served: Served) -> None:
    alice = served.session("alice")
    with pytest.raises(DPError, match="write each quote twice"):
        alice.run("FROM dp_sql('SELECT count(*) AS n FROM visits WHERE sex = 'f'', epsilon := 0.1)")
    for text in (
        "'SELECT count(*) AS n FROM visits WHERE sex = ''f'''",
        "$$SELECT count(*) AS n FROM visits WHERE sex = 'f'$$",
    ):
        assert alice.run(f"FROM dp_sql({text}, epsilon := 0.1)").num_rows == 1


def test_an_account_sees_what_became_of_its_requests(served: Served) -> None:
    alice, sam = served.session("alice"), served.session("sam")
    for epsilon in (0.8, 0.9):
        with pytest.raises(DPError, match=r"may spend at once, epsilon := 0\.5 or mu := .*, on 'visits'"):
            alice.run(f"FROM dp_marginals('visits', ['sex'], epsilon := {epsilon})")
    sam.run("CALL dp_refuse(1, 'ask for less')")
    assert [(row["request"], row["state"], row["reason"]) for row in alice.requests()] == [
        (2, "waiting", None),
        (1, "refused", "ask for less"),
    ]
    assert served.session("bob").requests() == []
