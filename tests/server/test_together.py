"""Tables that are protected together, twins, shared releases and grants, as accounts see them."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp
from duckdb_dp.errors import DPError
from duckdb_dp.gateway.config import Config
from duckdb_dp.gateway.errors import Log
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.session import Account, Session

TABLES = """
CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR);
INSERT INTO patients SELECT i, ['f', 'm'][1 + i % 2] FROM range(500) t(i);
CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER REFERENCES patients (patient_id), reason VARCHAR, rating INTEGER);
INSERT INTO visits SELECT i, i % 500, ['flu', 'check'][1 + i % 2], 1 + i % 5 FROM range(2000) t(i);
CREATE TABLE survey AS SELECT ['a', 'b'][1 + i % 2] AS answer, i % 100 AS age, 'x' AS secret FROM range(3000) t(i);
"""
DECLARED = """
CALL dp_protect(['patients', 'visits'], unit := 'patient_id', max_rows := 'auto', epsilon := 5, delta := 1e-9);
CALL dp_protect('survey', epsilon := 3, delta := 1e-9);
CALL dp_attributes('visits', {'reason': ['flu', 'check'], 'rating': [1, 2, 3, 4, 5]});
CALL dp_attribute('patients', 'sex', "values" := ['f', 'm']);
CALL dp_attributes('survey', {'answer': ['a', 'b']});
CALL dp_attribute('survey', 'age', bins := [0, 50, 100]);
CALL dp_grant('alice', 'visits', epsilon := 2);
CALL dp_grant('alice', 'survey', epsilon := 1);
"""


class Place:
    """A gateway and what its log says."""

    def __init__(self, database: Path) -> None:
        self.said = io.StringIO()
        self.gateway = Gateway(Config(database=database, http=0), Log(self.said))

    def session(self, name: str, role: Any = "analyst") -> Session:
        return self.gateway.session(Account(name=name, role=role), client="test")

    def steward(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.session("sam", "steward").run(sql).to_pylist()
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with duckdb.connect(str(tmp_path / "c.duckdb")) as con:
        duckdb_dp.load(con, progress=False)
        con.execute(TABLES)
        for name, role in (("alice", "analyst"), ("bob", "analyst"), ("vera", "viewer"), ("sam", "steward")):
            con.execute(f"CALL dp_account('{name}', role := '{role}')").fetchall()
        con.execute(DECLARED)
    found = Place(tmp_path / "c.duckdb")
    yield found
    found.gateway.close()


@pytest.mark.slow
def test_tables_that_are_protected_together_are_all_listed(place: Place) -> None:
    """With one budget; their names are what statements name."""
    alice = place.session("alice")
    rows = {row["dataset"]: row for row in alice.datasets().to_pylist()}
    assert {name: row["tables"] for name, row in rows.items()} == {"patients": ["patients", "visits"], "survey": None}
    with alice.noted("tables"):
        assert {name: kind for name, (kind, _) in alice.tables().items()} == dict.fromkeys(
            ["patients", "visits", "survey"], "DATASET"
        )
        columns = alice.tables()["visits"][1]()
    assert [row["column"] for row in columns] == ["visit_id", "patient_id", "reason", "rating"]
    with pytest.raises(DPError, match="the rows of 'visits' stay where they are"):
        alice.run("SELECT reason, count(*) FROM visits GROUP BY reason")
    assert place.session("bob").datasets().num_rows == 0


def test_units_and_keys_are_said(place: Place) -> None:
    """Which column names the unit, which leads to another table; and no table that the account may neither ask nor read."""
    command = place.gateway.broker.command
    command("CREATE TABLE clinics (clinic_id INTEGER PRIMARY KEY, town VARCHAR)")
    command("CREATE TABLE staff (staff_id INTEGER PRIMARY KEY)")
    command(
        "CREATE TABLE shifts (who INTEGER, clinic_id INTEGER REFERENCES clinics (clinic_id), lead_id INTEGER REFERENCES staff (staff_id))"
    )
    command("CALL dp_public('clinics')")
    command("CALL dp_protect('shifts', unit := 'who', max_rows := 2, epsilon := 3, delta := 1e-9)")
    place.steward("CALL dp_grant('alice', 'shifts', epsilon := 1)")
    alice = place.session("alice")
    keys = {"who": "names the unit", "clinic_id": "refers to clinics.clinic_id", "lead_id": None}
    rows = {row["column"]: row["key"] for row in alice.describe("shifts").to_pylist()}
    assert rows == keys
    shown = {row["column_name"]: row["key"] for row in alice.run("DESCRIBE shifts").to_pylist()}
    assert shown == keys
    listed = {row["dataset"]: row["keys"] for row in alice.datasets().to_pylist()}
    assert listed == {
        "patients": ["patients.patient_id names the unit; is the primary key", "visits.patient_id names the unit; refers to patients.patient_id"],
        "survey": None,
        "shifts": ["shifts.who names the unit", "shifts.clinic_id refers to clinics.clinic_id"],
    }  # fmt: skip


def test_relations_of_dp_view_are_listed(place: Place) -> None:
    """With the dataset whose rows they have, and to those alone who have a grant on it; also when a table of theirs is gone."""
    command = place.gateway.broker.command
    command("CREATE TABLE zones AS SELECT i AS rating, 'z' || i % 2 AS zone FROM range(9) t(i)")
    command("CALL dp_public('zones')")
    select = "SELECT p.sex, z.zone, p.sex AS patient_id FROM visits v JOIN patients p USING (patient_id) JOIN zones z USING (rating)"
    command(f"CALL dp_view('seen', '{select}', max_rows := 4)")
    alice, bob = place.session("alice"), place.session("bob")
    assert {row["dataset"]: row["tables"] for row in alice.datasets().to_pylist()}["patients"] == [
        "patients",
        "visits",
        "seen",
    ]
    assert "seen" in alice.run("SHOW TABLES").column("name").to_pylist()
    found = [(row["column"], row["key"], row["values"]) for row in alice.describe("seen").to_pylist()]
    assert found == [("sex", None, "f, m"), ("zone", None, "not declared"), ("patient_id", None, "f, m")], (
        "no key, but for its name"
    )
    assert alice.run("DESCRIBE seen").num_rows == 3
    assert str(alice.counted("seen")).startswith("of each unit at most 4 rows count")
    assert "seen" not in bob.run("SHOW TABLES").column("name").to_pylist()
    with pytest.raises(DPError, match="there is no dataset"):
        bob.describe("seen")
    command("DROP TABLE zones")
    assert alice.describe("seen").num_rows == 0
    assert alice.datasets().num_rows == 2


def test_how_much_of_a_unit_counts_is_said(place: Place) -> None:
    """Where intervals do not cover the rest."""
    place.gateway.broker.command("CREATE TABLE kept AS SELECT i // 4 AS who, i AS x FROM range(400) t(i)")
    place.gateway.broker.command("CALL dp_protect('kept', unit := 'who', max_rows := 3, epsilon := 3, delta := 1e-9)")
    place.steward("CALL dp_grant('alice', 'kept', epsilon := 1)")
    alice = place.session("alice")
    assert str(alice.counted("kept")).startswith("of each unit at most 3 rows count")
    assert "clipped_at" in str(alice.counted("visits"))
    assert alice.counted("survey") is None
    with pytest.raises(DPError, match="there is no dataset"):
        place.session("bob").counted("survey")


@pytest.mark.slow
def test_a_plain_select_is_told_how_it_is_asked(place: Place) -> None:
    """In its own words."""
    alice = place.session("alice")
    select = "SELECT answer, count(*) FROM survey WHERE answer = 'a' GROUP BY answer"
    with pytest.raises(DPError) as refused:
        alice.run(select)
    call = str(refused.value).split("ask of them: ")[1].removesuffix(".")
    assert alice.run(call).column("answer").to_pylist() == ["a"]


@pytest.mark.slow
def test_every_grant_has_the_twin_that_was_made(place: Place) -> None:
    """Also a later one, and one that is given again; tables that are protected together have none, which the log says."""
    place.gateway.make_twins(0.2)
    said = [json.loads(line) for line in place.said.getvalue().splitlines()]
    twins = [line for line in said if line["event"] == "twin"]
    assert [line["dataset"] for line in twins] == ["survey"]
    (budget,) = [
        row for row in place.session("sam", "steward").run("FROM dp_budget()").to_pylist() if row["dataset"] == "survey"
    ]
    assert twins[0]["epsilon_left"] == pytest.approx(budget["epsilon_remaining"])
    assert {line["dataset"] for line in said if line["event"] == "no twin"} == {"patients", "visits"}
    place.steward("CALL dp_grant('bob', 'survey', epsilon := 0.5)")
    place.steward("CALL dp_grant('alice', 'survey', epsilon := 0.8)")
    for name in ("alice", "bob"):
        session = place.session(name)
        row = next(row for row in session.datasets().to_pylist() if row["dataset"] == "survey")
        assert row["synthetic"] == "survey_synthetic"
        assert session.explore(f"SELECT count(*) AS n FROM {row['synthetic']}").num_rows == 1
        assert session.explore("SELECT count(*) AS n FROM survey").to_pylist()[0]["synthetic"] is True
        with pytest.raises(DPError, match="the synthetic table has no column 'secret'"):
            session.explore("SELECT secret FROM survey")


def test_a_twin_is_made_for_grants_that_name_none(place: Place) -> None:
    """Whatever another account's grant names; where each grant names one, none is made, and the log says so."""
    place.gateway.broker.command("CREATE TABLE made AS FROM dp_synthesize('survey', epsilon := 0.1)")
    place.steward("CALL dp_grant('alice', 'survey', epsilon := 1, synthetic := 'made')")
    place.steward("CALL dp_grant('bob', 'survey', epsilon := 1, synthetic := 'made')")
    place.gateway.make_twins(0.2)
    said = [json.loads(line) for line in place.said.getvalue().splitlines()]
    assert [line["why"] for line in said if line.get("dataset") == "survey"] == [
        "each grant on it names a synthetic table"
    ]
    place.steward("CALL dp_grant('bob', 'survey', epsilon := 1, synthetic := '')")
    place.gateway.make_twins(0.2)
    twins = {
        name: {row["dataset"]: row["synthetic"] for row in place.session(name).datasets().to_pylist()}["survey"]
        for name in ("alice", "bob")
    }
    assert twins == {"alice": "made", "bob": "survey_synthetic"}


@pytest.mark.slow
def test_a_grant_keeps_the_twin_that_was_named(place: Place) -> None:
    place.gateway.broker.command("CREATE TABLE made AS FROM dp_synthesize('survey', epsilon := 0.1)")
    place.steward("CALL dp_grant('alice', 'survey', epsilon := 1, synthetic := 'made')")
    (row,) = place.steward("CALL dp_grant('alice', 'survey', epsilon := 0.5)")
    assert row["synthetic"] == "c.main.made"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("CALL dp_grant('bob', 'survey', epsilon := 4)", "the budget of 'survey' is"),
        ("CALL dp_grant('bob', 'visits', epsilon := 6)", "grant that much at most"),
        ("CALL dp_grant('bob', 'survey', epsilon := 1, max_epsilon := 2)", "max_epsilon := 2 of one request is more"),
        ("CALL dp_grant('zoe', 'survey', epsilon := 1)", "CALL dp_account('zoe'"),
    ],
)
def test_a_grant_that_cannot_be_meant_is_refused(place: Place, call: str, why: str) -> None:
    with pytest.raises(DPError) as refused:
        place.steward(call)
    assert why in str(refused.value)
    assert place.session("bob").datasets().num_rows == 0


@pytest.mark.slow
def test_a_shared_release_has_its_name_and_what_it_asked(place: Place) -> None:
    alice = place.session("alice")
    alice.run(
        "FROM dp_sql('SELECT answer, count(*) AS n FROM survey GROUP BY answer', epsilon := 0.3, release := 'answers')"
    )
    alice.run("FROM dp_sql('SELECT count(*) AS n FROM survey', epsilon := 0.3, release := 'mine')")
    number = next(row["release"] for row in alice.releases().to_pylist() if row["name"] == "answers")
    place.steward(f"CALL dp_share({number}, 'vera')")
    vera = place.session("vera", "viewer")
    assert [row["name"] for row in vera.releases().to_pylist()] == ["answers"]
    assert vera.read_release("answers").equals(vera.read_release(number))
    for other in ("mine", "alice/answers", "alice/mine"):
        with pytest.raises(DPError, match="there is no release"):
            vera.read_release(other)
    with pytest.raises(DPError, match="there is no release"):
        place.session("bob").read_release("answers")


@pytest.mark.slow
def test_an_account_is_told_what_is_left_of_its_own(place: Place) -> None:
    """What others were charged is not its to know; what works does."""
    place.steward("CALL dp_grant('bob', 'survey', epsilon := 0.4)")
    place.session("alice").run("FROM dp_marginals('survey', ['answer'], epsilon := 1)")
    bob = place.session("bob")
    query = "SELECT DISTINCT history FROM dp_explain('survey', ['age'], epsilon := 0.1)"
    assert bob.run(query).to_pylist() == [{"history": None}]
    for asked in (0.5, 2.99):
        with pytest.raises(DPError) as refused:
            bob.run(f"FROM dp_marginals('survey', ['age'], epsilon := {asked})")
        assert "remains of the grant of 'bob'" in str(refused.value)
    works = str(refused.value).split("epsilon := ")[1].split(" ")[0]
    assert bob.run(f"FROM dp_marginals('survey', ['age'], epsilon := {works})").num_rows == 2
    assert "so far 1 charge" in bob.run(query).to_pylist()[0]["history"]


@pytest.mark.slow
def test_agents_and_pages_say_why_answers_are_missing(place: Place) -> None:
    """As the shell does: of 500 patients an average with a bound that is chosen is NULL at this budget."""
    pytest.importorskip("mcp")
    from duckdb_dp.gateway.http.pictures import said, sections
    from duckdb_dp.gateway.http.tools import TOOLS, Asker

    alice = place.session("alice")
    asker = Asker(gateway=place.gateway, session=alice)
    select = "SELECT reason, avg(rating) AS stars FROM visits GROUP BY reason"
    found = TOOLS["ask"].call(asker, {"sql": select, "epsilon": 0.05})
    assert [row[1] for row in found["rows"]] == [None, None]
    assert any(text.startswith("NULL: ") for text in found["read_with"])
    assert any("no interval covers that" in text for text in found["read_with"])
    table = alice.run(f"FROM dp_sql('{select}', epsilon := 0.05)")
    assert said(table) == found["read_with"]
    assert sections(table) == []  # no picture of nothing
    price = TOOLS["price"].call(
        asker,
        {
            "sql": select.replace("visits", "survey").replace("reason", "answer").replace("rating", "age"),
            "epsilon": 0.05,
        },
    )
    assert any("a part of stars" in row.get("note", "") for row in price["price"])
    (release,) = TOOLS["read_release"].call(asker, {})["rows"]
    assert any("by reason" in str(value) for value in release)


@pytest.mark.slow
def test_nothing_is_said_of_tables_that_are_not_the_accounts(place: Place) -> None:
    """Whatever a name stands for in the file: protected, public or synthetic for another one, a view, plain, or nothing at all."""
    command = place.gateway.broker.command
    command("CREATE TABLE plain AS SELECT 'hidden' AS secret_column")
    command("CREATE VIEW seen AS FROM plain")
    command("CREATE TABLE theirs AS FROM dp_synthesize('survey', epsilon := 0.1)")
    place.steward("CALL dp_grant('bob', 'survey', epsilon := 1, synthetic := 'theirs')")
    alice = place.session("alice")
    said = set()
    for name in ("plain", "seen", "theirs", "patients", "nothing"):
        with pytest.raises(DPError) as refused:
            alice.run(f"FROM dp_quality('survey', '{name}', epsilon := 0.01)")
        said.add(str(refused.value).replace(name, "?"))
    assert len(said) == 1
    assert place.session("bob").run("FROM dp_quality('survey', 'theirs', epsilon := 0.1)").num_rows > 0


def test_a_dataset_is_the_one_that_was_granted(place: Place) -> None:
    """Not one of the same name in another schema."""
    command = place.gateway.broker.command
    command("CREATE SCHEMA s2")
    command("CREATE TABLE s2.survey AS SELECT 'HIV' AS hidden, 1 AS x")
    command("CALL dp_protect('s2.survey', epsilon := 3, delta := 1e-9)")
    command("CALL dp_attribute('s2.survey', 'hidden', \"values\" := ['HIV', 'none'])")
    alice = place.session("alice")
    assert "hidden" not in alice.describe("survey").column("column").to_pylist()
    with pytest.raises(DPError, match="there is no dataset"):
        alice.describe("s2.survey")
    with alice.noted("tables"):
        assert "hidden" not in [row["column"] for row in alice.tables()["survey"][1]()]
    place.steward("CALL dp_grant('alice', 's2.survey', epsilon := 1)")
    with pytest.raises(DPError, match="more than one dataset"):
        alice.describe("survey")
    assert alice.describe("s2.survey").column("column").to_pylist() == ["hidden", "x"]
    prices = [
        alice.price(f"FROM dp_marginals('{name}', ['{column}'], epsilon := 0.5)").to_pylist()[0]["share_of_grant"]
        for name, column in (("main.survey", "answer"), ("s2.survey", "hidden"))
    ]
    assert prices[0] == pytest.approx(prices[1])


@pytest.mark.slow
def test_a_twin_is_left_out_where_it_cannot_be_made(place: Place) -> None:
    """Others are made, and the log says why; a grant may name none."""
    command = place.gateway.broker.command
    command("CREATE TABLE bare AS SELECT 1 AS x")
    command("CALL dp_protect('bare', epsilon := 1, delta := 1e-9)")
    command("CREATE TABLE pure AS SELECT 1 AS x")
    command("CALL dp_protect('pure', epsilon := 1, delta := 0)")
    command("CALL dp_attribute('pure', 'x', low := 0, high := 3)")
    place.gateway.make_twins(0.2)
    said = [json.loads(line) for line in place.said.getvalue().splitlines()]
    assert {"bare", "pure"} <= {line["dataset"] for line in said if line["event"] == "no twin"}
    assert [line["dataset"] for line in said if line["event"] == "twin"] == ["survey"]
    place.gateway.made = {}
    (row,) = place.steward("CALL dp_grant('alice', 'survey', epsilon := 1, synthetic := '')")
    assert row["synthetic"] is None


def test_visits_of_one_account_end_no_others(place: Place) -> None:
    pytest.importorskip("starlette")
    from duckdb_dp.gateway.http.visits import OF_ACCOUNT, Visit, Visits

    visits = Visits()
    sam = visits.begin(
        Visit(account=Account(name="sam", role="steward"), token="t", session=place.session("sam", "steward"))
    )
    vera = [
        visits.begin(
            Visit(account=Account(name="vera", role="viewer"), token="t", session=place.session("vera", "viewer"))
        )
        for _ in range(OF_ACCOUNT + 5)
    ]
    assert visits.find(sam) is not None
    assert [visits.find(each) is not None for each in vera] == [False] * 5 + [True] * OF_ACCOUNT
    visits.close()


def test_a_statement_that_is_prepared_is_within_the_limits(place: Place) -> None:
    """Its length, and those of an account within a minute."""
    alice = place.session("alice")
    most = place.gateway.config.limits.characters
    call = "FROM dp_marginals('survey', ['answer'], epsilon := ?)"
    read, columns = alice.prepared(call)
    assert columns is None
    assert read.calls[0].function == "dp_marginals"
    with pytest.raises(DPError, match="at most"):
        alice.prepared(f"{call} -- {'x' * most}")
