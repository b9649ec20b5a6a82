"""dp_running: totals that go on, charged once, the same on every day; which rows count; bad input."""

import itertools
import threading
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import duckdb_dp
from duckdb_dp.synthesis import running
from tests.conftest import Loaded, one_line

ASK = "FROM dp_running('calls', ['region'], start := DATE '2025-01-01', horizon := 30, mu := 1)"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what time it is; the 15th of January 2025 at first."""

    def at(year: int, month: int, day: int, hour: int = 0) -> None:
        monkeypatch.setattr(running, "now", lambda: datetime(year, month, day, hour))

    at(2025, 1, 15)
    return at


def calls(loaded: Loaded, type_: str = "DATE", protect: str = "mu := 100, delta := 1e-6") -> Loaded:
    """Ten calls a day from 50 people in two regions, some before the start, some without a date or a region."""
    loaded(
        "CREATE TABLE calls AS SELECT i AS call_id, i % 50 AS person, ['north', 'south', 'moon', NULL][1 + i % 4] AS region, "
        f"CASE WHEN i % 37 > 0 THEN CAST(TIMESTAMP '2024-12-28 01:00:00' + INTERVAL 1 HOUR * (i * 2.4)::BIGINT AS {type_}) END "
        "AS day FROM range(600) t(i)"
    )
    loaded(f"CALL dp_protect('calls', {protect})")
    loaded("CALL dp_attribute('calls', 'region', \"values\" := ['north', 'south'])")
    return loaded


EVERY = {"hour": 24 * 14, "day": 14, "week": 2, "month": 0}
TYPES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
CASES = [(type_, every) for type_, every in itertools.product(TYPES, EVERY) if (type_, every) != ("DATE", "hour")]


@pytest.mark.some(1, "every")
@pytest.mark.parametrize(("type_", "every"), CASES)
def test_totals_are_those_of_the_table(exact: Loaded, clock: Any, type_: str, every: str) -> None:
    calls(exact, type_)
    clock(2025, 2, 10)
    asked = f"dp_running('calls', ['region'], start := DATE '2025-01-01', every := '{every}', horizon := 500, mu := 50)"
    rows = exact(f"SELECT region, day, total, stddev FROM {asked}")
    days = {"hour": 40 * 24, "day": 40, "week": 5, "month": 1}[every]
    assert len(rows) == 2 * min(days, 500)
    truth = f"SELECT count(*) FROM calls WHERE region = ? AND day >= DATE '2025-01-01' AND day < ?::TIMESTAMP + INTERVAL 1 {every}"
    for region, begins, total, stddev in rows[:: max(1, len(rows) // 20)]:
        ((count,),) = exact(truth, [region, str(begins)])
        assert total == pytest.approx(count, abs=stddev / 8)  # the noise's grid
    assert dict(exact.columns(f"FROM {asked}"))["day"] == type_


def test_a_later_day_adds_to_what_was_said_before_and_costs_nothing(db: Loaded, clock: Any) -> None:
    calls(db)
    first = db(ASK)
    assert len(first) == 28
    assert db.charges() == 1
    clock(2025, 1, 21)
    db("INSERT INTO calls SELECT 1000 + i, 60 + i, 'north', DATE '2025-01-18' FROM range(40) t(i)")
    later = db(ASK)
    assert len(later) == 40
    assert [row for row in later if row[1].day <= 14] == first
    assert db.charges() == 1
    assert "release 1 goes on, and is stored when the last step of its horizon is over" in db.refused(
        "FROM dp_release(1)"
    )
    clock(2025, 3, 1)
    whole = db(ASK)
    assert len(whole) == 60
    assert [row for row in whole if row[1].day <= 20] == later
    assert db("SELECT state FROM dp_releases()") == [("stored",)]
    assert db("FROM dp_release(1)") == whole == db(ASK)
    assert not list((db.folder / "releases").glob("*.journal"))
    assert db(ASK.replace("mu := 1", "mu := 1, fresh := true")) != whole


def test_a_release_that_goes_on_is_said_to(db: Loaded, clock: Any) -> None:
    """By its name and its number, while its horizon is not over and where nobody asked since; the call that it names works."""
    calls(db)
    named = ASK.replace("mu := 1", "mu := 1, release := 'run'")
    db(named)
    for month in (1, 3):
        clock(2025, month, 21)
        for name in ("'run'", "1"):
            said = db.refused(f"FROM dp_release({name})")
            assert f"release {name} goes on" in said
            assert said.endswith(
                "until then the same call, FROM dp_running(...), shows its totals so far at no new cost."
            )
    rows = db(named)
    assert db("FROM dp_release('run')") == rows
    assert db.charges() == 1


def test_another_process_goes_on_where_one_has_stopped(tmp_path: Path, clock: Any) -> None:
    said = []
    for day in (5, 12, 12):
        clock(2025, 1, day)
        with duckdb.connect(str(tmp_path / "calls.duckdb")) as connection:
            duckdb_dp.load(connection)
            if not said:
                calls(Loaded(connection, tmp_path / "calls.duckdb.dp"))
            said.append(connection.execute(ASK).fetchall())
    assert [len(rows) for rows in said] == [8, 22, 22]
    assert said[1] == said[2]
    assert set(said[0]) <= set(said[1])


def test_threads_draw_each_step_once(db: Loaded) -> None:
    calls(db)
    found: list[Any] = []
    cursors = [db.connection.cursor() for _ in range(4)]
    threads = [threading.Thread(target=lambda c=c: found.append(c.execute(ASK).fetchall())) for c in cursors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(rows == found[0] for rows in found)


def test_of_a_unit_its_first_rows_count(exact: Loaded, clock: Any) -> None:
    exact("CREATE TABLE calls (person INTEGER, region VARCHAR, day DATE)")
    exact("CALL dp_protect('calls', unit := 'person', max_rows := 2, mu := 100, delta := 1e-6)")
    exact("CALL dp_attribute('calls', 'region', \"values\" := ['north', 'south'])")
    exact("INSERT INTO calls SELECT p, 'north', DATE '2025-01-01' + d::INTEGER FROM range(100) t(p), range(5) s(d)")
    exact("INSERT INTO calls SELECT NULL, 'north', DATE '2025-01-01' FROM range(50)")
    asked = ASK.replace("mu := 1", "mu := 99")
    totals = [total for region, _, total, *_ in exact(asked) if region == "north"]
    assert totals == pytest.approx([100, *[200] * 13], abs=0.5)
    exact("INSERT INTO calls SELECT p, 'north', DATE '2025-01-16' FROM range(200) t(p)")
    clock(2025, 1, 20)
    assert [total for region, _, total, *_ in exact(asked) if region == "north"][:14] == totals
    assert exact(f"SELECT max(total) FROM ({asked})")[0][0] == pytest.approx(300, abs=0.5)


def test_members_of_a_family(exact: Loaded) -> None:
    exact("CREATE TABLE patients (id INTEGER PRIMARY KEY)")
    exact("INSERT INTO patients FROM range(40)")
    exact("CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, id INTEGER REFERENCES patients (id), visited TIMESTAMP)")
    exact("INSERT INTO visits SELECT i, i % 40, TIMESTAMP '2025-01-01' + INTERVAL 1 HOUR * i FROM range(80) t(i)")
    exact("CREATE TABLE bills (visit_id INTEGER REFERENCES visits (visit_id), due DATE)")
    exact("INSERT INTO bills SELECT i, DATE '2025-01-03' FROM range(80) t(i)")
    exact(
        "CALL dp_protect(['patients', 'visits', 'bills'], unit := 'patients.id', max_rows := {'visits': 2, 'bills': 1}, mu := 99, delta := 1e-6)"
    )
    asked = "SELECT total FROM dp_running('{}', [], start := DATE '2025-01-01', horizon := 9, mu := 60)"
    assert [total for (total,) in exact(asked.format("visits"))] == pytest.approx([24, 48, 72, *[80] * 6], abs=0.5)
    assert [total for (total,) in exact(asked.format("bills"))] == pytest.approx([0, 0, *[40] * 7], abs=0.5)


VIEWS = {
    "SELECT id, visited FROM visits WHERE visit_id > 3": True,
    "SELECT * FROM late": True,
    "SELECT id, max(visited) AS visited FROM visits GROUP BY id": False,
    "SELECT v.id, v.visited FROM visits AS v WHERE NOT EXISTS (SELECT 1 FROM visits AS w WHERE w.id = v.id AND w.visited > v.visited)": False,
    "SELECT DISTINCT id, visited FROM visits": False,
    "SELECT id, visited FROM visits UNION ALL SELECT id, visited FROM visits": False,
    "SELECT v.id, v.visited FROM visits AS v JOIN patients AS p USING (id)": False,
    "SELECT id, visited FROM visits QUALIFY row_number() OVER (PARTITION BY id ORDER BY visited DESC) = 1": False,
    "SELECT * FROM last": False,
}


@pytest.mark.parametrize("text", VIEWS)
def test_views_in_which_rows_may_go_are_refused(exact: Loaded, text: str) -> None:
    exact("CREATE TABLE patients (id INTEGER PRIMARY KEY); INSERT INTO patients FROM range(40)")
    exact("CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, id INTEGER REFERENCES patients (id), visited TIMESTAMP)")
    exact("INSERT INTO visits SELECT i, i % 40, TIMESTAMP '2025-01-01' + INTERVAL 1 HOUR * i FROM range(80) t(i)")
    exact(
        "CALL dp_protect(['patients', 'visits'], unit := 'patients.id', max_rows := {'visits': 2}, mu := 99, delta := 1e-6)"
    )
    exact("CALL dp_view('late', 'SELECT id, visited FROM visits WHERE visit_id > 60', max_rows := 2)")
    exact("CALL dp_view('last', 'SELECT id, max(visited) AS visited FROM visits GROUP BY id', max_rows := 1)")
    exact("CALL dp_view('asked', ?, max_rows := 2)", [text])
    call = "FROM dp_running('asked', [], start := DATE '2025-01-01', horizon := 9, mu := 9)"
    if VIEWS[text]:
        assert len(exact(call)) == 9
    else:
        assert "a row may go or change when others come" in exact.refused(call)


def test_plain_views_are_refused(exact: Loaded) -> None:
    calls(exact)
    exact("CREATE VIEW last AS SELECT person, max(day) AS day FROM calls GROUP BY person")
    exact("CALL dp_protect('last', unit := 'person', max_rows := 1, mu := 9, another := true)")
    assert "is a view" in exact.refused(
        "FROM dp_running('last', [], start := DATE '2025-01-01', horizon := 9, mu := 9)"
    )


REFUSED = {
    "start := NULL": "say where the first step begins",
    "start := DATE '2025-02-01'": "the first step ends at 2025-02-02",
    "start := 5": "say where the first step begins",
    "start := 'today'": "say where the first step begins",
    "start := TIMESTAMP '2025-01-01 10:00:00'": "say where the first step begins",
    "every := 'hour'": "of DATE there are 'day', 'week', 'month'",
    "every := 'year'": "of DATE there are",
    "every := 1": "every",
    "horizon := 0": "horizon is 0",
    "horizon := 3661": "horizon is 3661",
    "start := DATE '9999-12-01'": "year 9999",
    "time_column := 'region'": "name a column of dates or timestamps",
    "time_column := 'nothing'": "has no column 'nothing'",
    "time_column := 3": "has no column 3",
}


@pytest.mark.parametrize("changed", REFUSED)
def test_refusals(db: Loaded, changed: str) -> None:
    calls(db)
    name = changed.split(" ")[0]
    given = {"start": "start := DATE '2025-01-01'", "horizon": "horizon := 30"}
    given[name] = changed
    with pytest.raises(duckdb.Error) as caught:
        db(f"FROM dp_running('calls', ['region'], {', '.join(given.values())}, mu := 1)")
    assert REFUSED[changed] in one_line(str(caught.value))
    assert db.charges() == 0


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("FROM dp_running('calls', ['day'], start := DATE '2025-01-01', mu := 1)", "no declared domain"),
        ("FROM dp_running('calls', ['person'], start := DATE '2025-01-01', mu := 1)", "no declared domain"),
        ("FROM dp_running('calls', 5, start := DATE '2025-01-01', mu := 1)", "name declared ones"),
        ("FROM dp_running('people', [], start := DATE '2025-01-01', mu := 1)", "no column of dates"),
        (ASK.replace("mu := 1", "mu := 1000"), "budget"),
    ],
)
def test_other_refusals(db: Loaded, sql: str, why: str) -> None:
    calls(db)
    with pytest.raises(duckdb.Error, match=why) as caught:
        db(sql)
    one_line(str(caught.value))
    assert db.charges() == 0


@pytest.mark.parametrize(("protect", "why"), [
    ("unit := 'person', max_rows := 'auto', mu := 9", "needs one"),
    ("epsilon := 1, delta := 0", "no pure epsilon"),
])  # fmt: skip
def test_datasets_that_cannot(db: Loaded, protect: str, why: str) -> None:
    calls(db, protect=protect)
    with pytest.raises(duckdb.Error, match=why):
        db(ASK if "mu" in protect else ASK.replace("mu := 1", "epsilon := 1"))
    assert db.charges() == 0


def test_the_errors_are_as_large_as_said(db: Loaded) -> None:
    db(
        "CREATE TABLE calls AS SELECT i % 300 AS region, DATE '2025-01-01' + (i // 2000)::INTEGER AS day FROM range(30000) t(i)"
    )
    db("CALL dp_protect('calls', mu := 10, delta := 1e-6); CALL dp_attribute('calls', 'region', low := 0, high := 299)")
    truth = "SELECT count(*) FROM calls WHERE calls.region = r.region AND calls.day <= r.day"
    rows = db(f"SELECT (total - ({truth})) / stddev, ci_high - total, stddev FROM ({ASK}) AS r")
    errors = np.array([row[0] for row in rows]).reshape(300, 14)
    assert np.abs(errors.std(axis=0) - 1).max() < 0.17  # four standard deviations of it
    assert np.abs(errors.mean(axis=0)).max() < 0.24
    assert all(half == pytest.approx(1.959964 * stddev) for _, half, stddev in rows)


@pytest.mark.parametrize("steps", [1, 2, 7, 365])
def test_the_root_squared_is_the_running_total(steps: int) -> None:
    column = running.root(steps)
    square = np.convolve(column, column)[:steps]
    assert square == pytest.approx(np.ones(steps))
    exact = [Fraction(1)]
    for k in range(1, steps):
        exact.append(exact[-1] * (2 * k - 1) / (2 * k))
    assert column == pytest.approx([float(value) for value in exact], rel=1e-13)


def test_the_error_is_the_one_known_for_a_year() -> None:
    column = running.root(365)
    assert column @ column == pytest.approx(2.94, abs=0.01)  # in units of the noise that one count would have


def test_the_answers_of_a_row_are_within_their_bounds() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 10**9, size=3 * 41)
    for step in (0, 1, 39):
        part = running.RootRow(running.root(40), step, 3)
        answers, errors = part.apply(counts)
        for group in range(3):
            assert abs(Fraction(answers[group]) - part.exact(counts, group)) <= Fraction(errors[group])


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_no_history_of_a_unit_moves_the_answers_by_more_than_its_rows(rows: int) -> None:
    """Rows come, also late ones, and the first of them count: what a unit adds to all steps together is bounded by rows |r|."""
    rng = np.random.default_rng(rows)
    horizon = 25
    column = running.root(horizon)
    bound = rows * np.sqrt(running.RootRow(column, 0, 1).squared_sensitivity)
    worst = 0.0
    for _ in range(400):
        held: list[int] = []
        moved = []
        for step in range(horizon):
            held.extend(rng.integers(0, step + 1, size=rng.poisson(rng.choice([0.1, 1, 4]))).tolist())
            counted = sorted(held)[:rows]
            moved.append(sum(column[step - at] for at in counted))
        worst = max(worst, float(np.linalg.norm(moved)))
    assert worst <= bound
    assert worst > 0.8 * bound / rows
