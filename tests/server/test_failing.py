"""Errors that a row might cause, and what waits for a steward: nothing of a row is said, and nothing is charged for what is not answered."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pytest

import duckdb_dp
from duckdb_dp import private
from duckdb_dp.domain import row_expressions
from duckdb_dp.errors import DPError
from duckdb_dp.gateway.broker import Broker
from duckdb_dp.gateway.config import Config
from duckdb_dp.gateway.deadline import LateError
from duckdb_dp.gateway.errors import Log, Waiting
from duckdb_dp.gateway.failed import STOPS
from duckdb_dp.gateway.gateway import Gateway
from duckdb_dp.gateway.session import Account, Session

TABLES = """
CREATE TABLE visits AS SELECT i AS id, 'person' || i AS person, DATE '2024-01-01' + (i % 90)::INTEGER AS day, i % 7 AS ward,
    TIMESTAMP '2024-01-01' + INTERVAL 7 HOUR * i AS ts FROM range(2000) t(i);
CREATE TABLE stays AS SELECT *, i // 3 AS who FROM (SELECT range AS i FROM range(2000)) JOIN visits ON visits.id = i;
CREATE TABLE wards AS SELECT i AS ward, 'w' || i AS name FROM range(7) t(i);
CALL dp_protect('visits', epsilon := 5, delta := 1e-6, discovery_delta := 1e-7);
CALL dp_protect('stays', unit := 'who', max_rows := 3, epsilon := 5, delta := 1e-6);
CALL dp_public('wards');
CALL dp_account('alice', role := 'analyst');
CALL dp_account('sam', role := 'steward');
CALL dp_grant('alice', 'visits', epsilon := 2, max_epsilon := 0.5);
CALL dp_grant('alice', 'stays', epsilon := 2);
"""


class Place:
    def __init__(self, folder: Path) -> None:
        with duckdb.connect(str(folder / "c.duckdb")) as con:
            duckdb_dp.load(con, progress=False)
            con.execute(TABLES)
        self.gateway = Gateway(Config(database=folder / "c.duckdb", http=0), Log(io.StringIO()))
        self.alice = self.session("alice")

    def session(self, name: str, role: Any = "analyst") -> Session:
        return self.gateway.session(Account(name=name, role=role), client="test")

    def ask(self, select: str, more: str = "epsilon := 0.01") -> list[dict[str, Any]]:
        quoted = select.replace("'", "''")
        found: list[dict[str, Any]] = self.alice.run(f"FROM dp_sql('{quoted}', {more})").to_pylist()
        return found

    def spent(self) -> float:
        return float(sum(row["spent"] for row in self.alice.budget().to_pylist()))

    def steward(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.session("sam", "steward").run(sql).to_pylist()
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.gateway.close()


FAILING = [
    "CASE WHEN {} THEN person LIKE 'a' ESCAPE 'bc' ELSE false END",
    "CASE WHEN {} THEN person ILIKE (person || '!') ESCAPE '!' ELSE false END",
    "CASE WHEN {} THEN 'a' NOT LIKE person ESCAPE '' ELSE false END",
    "CASE WHEN {} THEN date_trunc('era', INTERVAL 3 DAY) IS NULL ELSE false END",
    "CASE WHEN {} THEN date_trunc('era', ts - TIMESTAMP '2024-01-01') IS NULL ELSE false END",
    "{} AND day > DATE 'abc'",
    "{} AND day BETWEEN DATE '' AND DATE '2024-02-01'",
    "{} AND day IN (DATE '99999999-01-01')",
    "{} AND day = DATE '2024-02-30'",
]
AROUND = [
    "SELECT count(*) AS n FROM visits WHERE {}",
    "SELECT count(*) FILTER (WHERE {}) AS n FROM visits",
    "SELECT sum(CASE WHEN {} THEN 1 ELSE 0 END) AS n FROM visits",
    "SELECT count(*) AS n FROM stays JOIN wards USING (ward) WHERE {}",
    "SELECT count(*) AS n FROM stays WHERE who IN (SELECT who FROM stays v WHERE {})",
    "SELECT count(*) AS n FROM (SELECT * FROM visits WHERE {}) v",
    "SELECT count(*) AS n FROM stays LEFT JOIN wards ON stays.ward = wards.ward AND {}",
]


FALLIBLE = [
    "{} AND CAST(person AS INTEGER) = 1",
    "{} AND strptime(person, '%Y') IS NULL",
    "CASE WHEN {} THEN make_date(2024, 13, 40) IS NULL ELSE false END",
    "CASE WHEN {} THEN (id * 1000)::TINYINT > 3 ELSE false END",
    "CASE WHEN {} THEN strptime(person, '%Y-%m-%d') > ts ELSE false END",
    "CASE WHEN {} THEN chr(id + 1114112) = 'a' ELSE false END",
    "CASE WHEN {} THEN sqrt(-1.0 - id) > 0 ELSE false END",
    "CASE WHEN {} THEN ('2024-13-0' || ward)::DATE > day ELSE false END",
    "CASE WHEN {} THEN ts + INTERVAL (id * 1000000000) YEAR > ts ELSE false END",
    "CASE WHEN {} THEN 9223372036854775807 + id > 0 ELSE false END",
    "CASE WHEN {} THEN date_part(person, day) > 0 ELSE false END",
]
PLACES = [
    *AROUND,
    "SELECT avg(CASE WHEN {} THEN 1 ELSE ward END) AS n FROM visits WHERE ward BETWEEN 0 AND 6",
    "SELECT median(CASE WHEN {} THEN 1 ELSE ward END) AS n FROM visits",
    "SELECT count(DISTINCT CASE WHEN {} THEN 1 ELSE ward END) AS n FROM visits",
    "SELECT CASE WHEN {} THEN 'a' ELSE 'b' END AS g, count(*) AS n FROM visits GROUP BY g",
    "SELECT {} AS g, count(*) AS n FROM visits GROUP BY g",
    "SELECT count(*) AS n FROM (SELECT who, max(CASE WHEN {} THEN 1 ELSE 0 END) AS b FROM stays GROUP BY who) v WHERE b = 1",
    "SELECT count(*) AS n FROM stays WHERE EXISTS (SELECT 1 FROM stays v WHERE v.who = stays.who AND {})",
    "SELECT count(*) AS n FROM (SELECT who FROM stays WHERE {} UNION ALL SELECT who FROM stays WHERE ward = 1) v",
    "SELECT count(*) AS n FROM (SELECT DISTINCT who, {} AS b FROM stays) v WHERE b",
    "SELECT count(*) AS n FROM (SELECT who, sum(ward) OVER (PARTITION BY who ORDER BY {} DESC) AS r FROM stays) v WHERE r = 1",
    *(
        f"SELECT count(*) AS n FROM (SELECT who, {window} AS k FROM stays) v WHERE k = 1"
        for window in (
            "rank() OVER (PARTITION BY who ORDER BY {})",
            "row_number() OVER (PARTITION BY who ORDER BY CASE WHEN {} THEN 1 ELSE 2 END)",
            "row_number() OVER (PARTITION BY who, {} ORDER BY day)",
            "lag(ward) OVER (PARTITION BY who ORDER BY {} DESC)",
            "count(*) OVER (PARTITION BY who, {})",
            "sum(ward) OVER (PARTITION BY who ORDER BY {})",
        )
    ),
    "SELECT count(*) AS n FROM (SELECT who, ward FROM stays QUALIFY row_number() OVER (PARTITION BY who ORDER BY {}) = 1) v",
    "SELECT count(*) AS n FROM (SELECT who, bool_or({}) AS b FROM stays GROUP BY who) v WHERE b",
    "SELECT sum(w) AS n FROM (SELECT who, sum(ward) FILTER (WHERE {}) AS w FROM stays GROUP BY who) v WHERE w BETWEEN 0 AND 6",
]


@pytest.mark.slow
@pytest.mark.some(6)
@pytest.mark.parametrize(
    ("failing", "around"),
    [
        (failing, around)
        for i, failing in enumerate([*FALLIBLE, *FAILING])
        for j, around in enumerate(PLACES)
        if (i + j) % 3 == 0  # each expression in a third of the places, each place with a third of the expressions
    ],
)
def test_no_row_decides_whether_a_question_is_answered(place: Place, failing: str, around: str) -> None:
    """With a row that would fail, and without one, the same is said: what is refused is refused by its text."""
    said = []
    for person in ("person42", "nobody42"):
        try:
            place.ask(around.format(failing.format(f"person = '{person}'")))
            said.append("answered")
        except DPError as error:
            said.append(str(error).replace(person, ""))
    assert said[0] == said[1]
    assert "internal error" not in said[0]


@pytest.mark.slow
def test_most_places_are_answered(place: Place) -> None:
    """So that the law above is about answers, and not about refusals: with what cannot fail, and with what fails inside TRY."""
    for condition in ("person = 'person42'", FALLIBLE[2].format("person = 'person42'")):
        answered = 0
        for around in PLACES:
            with contextlib.suppress(DPError):
                answered += len(place.ask(around.format(condition), "epsilon := 0.001")) > 0
        assert answered >= len(PLACES) - 1, (condition, answered, len(PLACES))


@pytest.mark.slow
def test_an_error_of_a_row_is_one_bit_that_a_steward_looks_at(place: Place) -> None:
    """Were there an expression that fails on a value, the first error ends the grant: the next question is not answered."""
    bad = "SELECT count(*) AS n FROM visits WHERE CASE WHEN {} THEN person LIKE 'a' ESCAPE 'bc' ELSE false END"
    with patch.object(row_expressions, "caught", lambda node: node):
        place.ask(bad.format("person = 'nobody'"))
        with pytest.raises(DPError, match=r"internal error .* grants it anew"):
            place.ask(bad.format("person = 'person42'"))
        for person in ("person43", "nobody else"):
            with pytest.raises(DPError, match="waits for a steward"):
                place.ask(bad.format(f"person = '{person}'"))
    with pytest.raises(DPError, match="waits for a steward"):
        place.ask("SELECT count(*) AS n FROM visits WHERE ward = 1")
    place.steward("CALL dp_grant('alice', 'visits', epsilon := 2)")
    assert len(place.ask("SELECT count(*) AS n FROM visits WHERE ward = 2")) == 1


@pytest.mark.parametrize("asked", ["dp_running", "drawn again"])
def test_what_is_charged_and_reads_rows_again_tells_no_value(tmp_path: Path, asked: str) -> None:
    """DuckDB's own text of an error quotes the value; running totals, and what is charged and not stored, read the rows as they are now."""
    with duckdb.connect(str(tmp_path / "c.duckdb")) as con:
        con.execute(
            "CREATE TABLE rows (day DATE, raw VARCHAR, who INTEGER, number INTEGER GENERATED ALWAYS AS (raw::INTEGER))"
        )
        con.execute("INSERT INTO rows SELECT DATE '2026-01-01', '' || i, i FROM range(50) t(i)")
        duckdb_dp.load(con, progress=False)
        con.execute(
            "CALL dp_protect('rows', epsilon := 9, delta := 1e-6); CALL dp_attribute('rows', 'number', low := 0, high := 9)"
        )
        con.execute("CALL dp_account('alice'); CALL dp_grant('alice', 'rows', epsilon := 9)")
    gateway = Gateway(Config(database=tmp_path / "c.duckdb", http=0), Log(io.StringIO()))
    alice = gateway.session(Account(name="alice", role="analyst"), client="test")
    more = "start := DATE '2026-01-01', time_column := 'day', every := 'day', horizon := 3660"
    running = f"FROM dp_running('rows', ['number'], {more}, epsilon := 1)"
    asked = running if asked == "dp_running" else "FROM dp_marginals('rows', ['number'], epsilon := 1)"
    if asked == running:
        assert alice.run(asked).num_rows > 0
    else:
        with patch.object(private, "_draw", side_effect=DPError("no disk.")), pytest.raises(DPError):
            alice.run(asked)
    with gateway.broker._con.cursor() as cursor:
        cursor.execute("UPDATE rows SET raw = 'a secret' WHERE who = 7")
    with pytest.raises(DPError, match=r"internal error \d+.*grants it anew") as refused:
        alice.run(asked)
    assert "secret" not in str(refused.value)
    with pytest.raises(DPError, match="waits for a steward"):
        alice.run(asked)
    gateway.close()


@pytest.mark.slow
def test_a_cast_above_the_answers_that_fails_is_null(place: Place) -> None:
    """It is of what was paid, and the grant stays."""
    assert place.ask("SELECT sum(x::INT) AS y FROM (SELECT count(*)::VARCHAR || 'q' AS x FROM visits)")[0]["y"] is None
    assert place.spent() > 0
    assert len(place.ask("SELECT count(*) AS n FROM visits")) == 1


@pytest.mark.slow
def test_what_waits_is_known_by_what_was_asked_and_not_by_a_text(place: Place) -> None:
    """A pattern may say that request 1 waits; it is an error of the pattern."""
    forged = "((; request 1 waits for a steward, and nothing was charged; once it is approved, ask the same again."
    with pytest.raises(DPError) as refused:
        place.ask(f"SELECT count(*) AS n FROM visits WHERE regexp_matches(person, '{forged}')")
    assert not isinstance(refused.value, Waiting)
    with pytest.raises(Waiting) as waiting:
        place.ask("SELECT count(*) AS n FROM visits", "epsilon := 0.9")
    assert waiting.value.number == 1
    (row,) = place.gateway.steward(Account(name="sam", role="steward")).requests().to_pylist()
    assert row["statement"].startswith("FROM dp_sql('SELECT count(*) AS n FROM visits'")


@pytest.mark.slow
def test_groups_that_are_found_wait_and_are_charged_with_their_sums(place: Place) -> None:
    """What may be spent at once is what both cost together, and nothing is charged while they wait, or when they are refused."""
    select = "SELECT ward, count(*) AS n FROM visits GROUP BY ward"
    (price, *_) = place.alice.price(f"FROM dp_sql('{select}', epsilon := 0.6)").to_pylist()
    assert price["waits"] and price["epsilon"] == pytest.approx(0.6, rel=1e-6)  # noqa: PT018
    for _ in range(2):
        with pytest.raises(Waiting) as waiting:
            place.ask(select, "epsilon := 0.6")
    assert place.spent() == 0.0
    number = waiting.value.number
    (row,) = place.gateway.steward(Account(name="sam", role="steward")).requests().to_pylist()
    assert row["epsilon"] == pytest.approx(0.6, rel=1e-6)
    place.steward(f"CALL dp_refuse({number}, 'no')")
    (price, *_) = place.alice.price(f"FROM dp_sql('{select}', epsilon := 0.6)").to_pylist()
    assert not price["fits"]
    with pytest.raises(DPError, match="a steward refused this"):
        place.ask(select, "epsilon := 0.6")
    assert place.spent() == 0.0
    with pytest.raises(Waiting) as waiting:
        place.ask(select, "epsilon := 0.7")
    place.steward(f"CALL dp_approve({waiting.value.number})")
    (price, *_) = place.alice.price(f"FROM dp_sql('{select}', epsilon := 0.7)").to_pylist()
    assert price["fits"] and not price["waits"]  # noqa: PT018
    assert len(place.ask(select, "epsilon := 0.7")) == 8
    spent = place.spent()
    assert len(place.ask(select, "epsilon := 0.7")) == 8
    assert place.spent() == spent > 0
    with pytest.raises(Waiting):  # an approval is for once
        place.ask(select, "epsilon := 0.7, fresh := true")
    assert len(place.ask(select, "epsilon := 0.3")) == 8  # below what may be spent at once


@pytest.mark.slow
@pytest.mark.parametrize("window", ["ntile(ward)", "lag(ward, ward)", "lead(ward, 1, id)", "lag(person, 1, ward)"])
def test_a_row_says_no_argument_of_a_window_but_its_column(place: Place, window: str) -> None:
    with pytest.raises(DPError, match="that a row says; write it out"):
        place.ask(
            f"SELECT count(*) AS n FROM (SELECT {window} OVER (PARTITION BY who ORDER BY day) AS k FROM stays) v WHERE k = 1"
        )


@pytest.mark.slow
def test_what_was_paid_is_free_also_after_anothers_new_draw(place: Place) -> None:
    """An account has its own release of a request, whatever another had drawn anew since."""
    place.steward("FROM dp_account('bob')")
    place.steward("CALL dp_grant('bob', 'visits', epsilon := 1)")
    call = "FROM dp_sql('SELECT count(*) AS n FROM visits', epsilon := 0.1, fresh := {})"
    first = place.alice.run(call.format("false")).to_pylist()
    spent = place.spent()
    assert place.session("bob").run(call.format("true")).to_pylist() != first
    assert place.alice.run(call.format("false")).to_pylist() == first
    assert place.spent() == spent


def test_what_the_time_limit_stops_is_counted(place: Place) -> None:
    """A row may make a statement slow: to be stopped is a bit of it, which an account gets a few times, and at no time for what is paid."""
    slow = "SELECT count(*) AS n FROM visits WHERE ward = {}"
    place.ask(slow.format(0))
    run = Broker._run

    def stopped(self: Broker, asked: Any, *given: Any) -> Any:
        if asked.charges:
            raise LateError("dp_sql: it took longer than 1 s and was stopped.")
        return run(self, asked, *given)

    with patch.object(Broker, "_run", stopped):
        for number in range(1, STOPS):
            with pytest.raises(DPError, match=f"of which this is number {number}, nothing more is answered"):
                place.ask(slow.format(number))
        with pytest.raises(DPError, match="nothing more is answered about 'visits' until the steward has looked"):
            place.ask(slow.format(5))
    with pytest.raises(DPError, match="waits for a steward"):
        place.ask(slow.format(6))
    assert place.ask("SELECT count(*) AS n FROM stays WHERE ward = 1")
    place.steward("CALL dp_grant('alice', 'visits', epsilon := 2)")
    assert place.ask(slow.format(6))
