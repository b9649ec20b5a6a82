"""dp_period and dp_late: what is closed, what is promised together, and what is refused."""

from datetime import date, datetime, timedelta
from itertools import pairwise

import duckdb
import pytest

from duckdb_dp.accounting.base import find_accounting
from duckdb_dp.domain import periods
from duckdb_dp.domain.periods import A_YEAR
from duckdb_dp.sql import dp_period
from tests.conftest import Loaded

CALL = (
    "CALL dp_period('visits', 'day', every := 'month', start := DATE '2025-01-01', unit := 'patient', max_rows := 3, "
    "epsilon := 100, delta := 1e-9)"
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """It is the first of April 2025."""
    at(monkeypatch, "2025-04-01")
    return monkeypatch


def at(clock: pytest.MonkeyPatch, day: str) -> None:
    clock.setattr(dp_period, "now", lambda: datetime.fromisoformat(day))


def visits(loaded: Loaded, type_: str = "DATE") -> None:
    """One row for each patient and day, from December on, and rows without a day."""
    loaded(
        f"CREATE TABLE visits AS SELECT i % 40 AS patient, (DATE '2024-12-01' + i::INTEGER)::{type_} AS day, i % 2 AS ward FROM range(150) t(i)"
    )
    loaded("INSERT INTO visits VALUES (1, NULL, 1)")
    if type_ == "DATE":
        loaded("INSERT INTO visits VALUES (1, 'infinity', 1)")


@pytest.mark.parametrize("every", A_YEAR)
def test_periods_follow_one_another(every: str) -> None:
    found = list(periods.over(date(2023, 12, 29), every, datetime(2026, 3, 1)))
    assert all(one.ends == other.begins for one, other in pairwise(found))
    assert found[0].begins <= date(2023, 12, 29) < found[0].ends
    assert found[-1].ends <= date(2026, 3, 1) < periods.of(found[-1].ends, every).ends
    assert len({one.table("t") for one in found}) == len(found)
    days = (found[-1].ends - found[0].begins).days
    with duckdb.connect() as con:
        begins = f"SELECT DISTINCT date_trunc('{every}', ?::DATE + i::INTEGER)::DATE AS b FROM range(?) t(i) ORDER BY b"
        assert [one.begins for one in found] == [b for (b,) in con.execute(begins, [found[0].begins, days]).fetchall()]
    for year in (2023, 2024, 2025):
        spans = periods.over(date(year, 1, 1), every, datetime(year + 1, 12, 31))
        assert sum(one.begins <= date(year, 12, 31) for one in spans) <= A_YEAR[every]


@pytest.mark.parametrize("type_", ["DATE", "TIMESTAMP"])
@pytest.mark.usefixtures("clock")
def test_each_row_is_in_the_table_of_its_period(exact: Loaded, type_: str) -> None:
    visits(exact, type_)
    rows = exact(CALL)
    assert [row[:2] for row in rows[:3]] == [
        (f"2025-0{month}", f"memory.main.visits_2025_0{month}") for month in (1, 2, 3)
    ]
    for month in (1, 2, 3):
        copied = exact(f"FROM visits_2025_0{month} ORDER BY ALL")
        assert copied == exact(f"FROM visits WHERE date_trunc('month', day) = DATE '2025-0{month}-01' ORDER BY ALL")
        assert exact(f"SELECT count(*) FROM dp_sql('SELECT count(*) FROM visits_2025_0{month}', epsilon := 1)") == [
            (1,)
        ]


def test_closed_periods_stay_and_further_ones_follow(exact: Loaded, clock: pytest.MonkeyPatch) -> None:
    visits(exact)
    exact(CALL)
    exact("CALL dp_attribute('visits', 'ward', low := 0, high := 1)")
    ask = "SELECT ward, count FROM dp_marginals('visits_2025_02', ['ward'], epsilon := {})"
    assert exact(ask.format(20)) == [(0, 14.0), (1, 14.0)]
    exact("INSERT INTO visits SELECT i, DATE '2025-02-10', 0 FROM range(100, 107) t(i)")
    exact("UPDATE visits SET ward = 1 - ward WHERE day = DATE '2025-03-03'")
    assert not [row for row in exact(CALL) if row[-1] == "closed now"]
    assert exact(ask.format(21)) == [(0, 14.0), (1, 14.0)]
    late = exact("SELECT period, rows, late, gone, note FROM dp_late('visits')")
    assert late == [
        ("2025-01", 31, 0, 0, "NOT PRIVATE"), ("2025-02", 28, 7, 0, "NOT PRIVATE"), ("2025-03", 31, 1, 1, "NOT PRIVATE"),
    ]  # fmt: skip
    at(clock, "2025-05-02")
    found = exact(CALL)
    assert [(row[0], row[-1]) for row in found[:4]] == [
        ("2025-01", None), ("2025-02", None), ("2025-03", None), ("2025-04", "closed now"),
    ]  # fmt: skip
    earlier = exact(CALL.replace("2025-01-01", "2024-12-15"))
    assert [row[0] for row in earlier[:2]] == ["2024-12", "2025-01"]
    assert [row[0] for row in exact(CALL)[:5]] == [f"2025-0{m}" if m else "2024-12" for m in range(5)]
    assert exact("SELECT sum(count) FROM dp_marginals('visits_2024_12', ['ward'], epsilon := 9)") == [(31.0,)]


@pytest.mark.parametrize("budget", ["epsilon := 1, delta := 1e-9", "rho := 0.1", "mu := 1, delta := 1e-6", "epsilon := 2, delta := 0"])  # fmt: skip
@pytest.mark.usefixtures("clock")
def test_the_promise_is_the_sum(exact: Loaded, budget: str) -> None:
    visits(exact)
    rows = exact(CALL.replace("epsilon := 100, delta := 1e-9", budget))
    each, together, year = rows[0], rows[-2], rows[-1]
    assert (together[0], year[0]) == ("all 3 so far", "any 12, as in a year")
    assert together[4] == pytest.approx(3 * each[4])
    assert year[4] == pytest.approx(12 * each[4])
    dataset = exact("SELECT accounting, delta FROM dp_budget() WHERE dataset = 'visits_2025_01'")
    if dataset[0][1] is not None:
        expected = find_accounting(dataset[0][0]).epsilon(3 * each[4], dataset[0][1])
        assert together[5] == pytest.approx(expected)
        assert each[5] < together[5] < year[5]


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
def test_each_period_has_its_own_budget_and_the_table_none(exact: Loaded) -> None:
    visits(exact)
    exact(CALL)
    exact("FROM dp_sql('SELECT count(*) FROM visits_2025_01', epsilon := 100)")
    assert "more than what remains" in exact.refused("FROM dp_sql('SELECT count(*) FROM visits_2025_01', epsilon := 1)")
    exact("FROM dp_sql('SELECT count(*) FROM visits_2025_02', epsilon := 100)")
    assert exact.charged()[0]["neighbours"] == "add or remove one 'patient' with up to 3 rows of 2025-01"
    assert [row[0] for row in exact("SELECT dataset FROM dp_budget() WHERE dataset LIKE 'visits%' ORDER BY 1")] == [
        f"visits_2025_0{month}" for month in (1, 2, 3)
    ]
    exact("CALL dp_attribute('visits', 'ward', low := 0, high := 1)")
    for statement in (
        "FROM dp_sql('SELECT count(*) FROM visits', epsilon := 1)",
        "FROM dp_marginals('visits', ['ward'], epsilon := 1)",
        "FROM dp_quantiles('visits', 'ward', [0.5], epsilon := 1)",
        "FROM dp_synthesize('visits', epsilon := 1)",
        "FROM dp_discover('visits', 'ward', find := 'bounds', epsilon := 1)",
        "FROM dp_max_rows('visits', epsilon := 1)",
        "FROM dp_running('visits', ['ward'], start := DATE '2025-01-01', epsilon := 1)",
        "FROM dp_explain('visits', ['ward'], epsilon := 1)",
        "CALL dp_view('v', 'SELECT * FROM visits')",
    ):
        assert "a budget for each closed period and none for all" in exact.refused(statement)
    assert "second" in exact.refused("CALL dp_protect('visits', epsilon := 1, delta := 1e-9)")
    assert "is protected" in exact.refused("CALL dp_public('visits')")
    assert "is protected" in exact.refused("CALL dp_public('visits_2025_01')")
    exact("CREATE VIEW seen AS SELECT * FROM visits")
    assert "sum of the budgets" in exact("CALL dp_protect('seen', epsilon := 1, delta := 1e-9, another := true)")[0][-1]


REFUSED = {
    CALL.replace("'day'", "'ward'"): "of type BIGINT",
    CALL.replace("'day'", "'nothing'"): "has no column",
    CALL.replace("'month'", "'moon'"): "there are 'day', 'week'",
    CALL.replace("DATE '2025-01-01'", "'soon'"): "say a day",
    CALL.replace("DATE '2025-01-01'", "DATE '9999-12-30'"): "the last month of all",
    CALL.replace("'month', start := DATE '2025-01-01'", "'day', start := DATE '1925-01-01'"): "more than 1,000 periods",
    CALL.replace("'patient'", "['patient', 'ward']"): "periods are for one",
    CALL.replace(", delta := 1e-9", ""): "epsilon needs a delta",
    CALL.replace(", max_rows := 3", ""): "needs a bound",
    CALL.replace("'visits'", "'seen'"): "no view",
    CALL.replace("'visits'", "'nowhere'"): "there is no table",
    CALL.replace("'visits'", "'people'").replace("'day'", "'age'"): "of type INTEGER",
    CALL.replace(", epsilon", ", keep_in := 'nowhere', epsilon"): "cannot be made",
    CALL.replace("'visits'", "'other'"): "needs the name",
}


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
def test_what_is_refused_declares_nothing(exact: Loaded) -> None:
    visits(exact)
    exact("CREATE VIEW seen AS FROM visits; CREATE TABLE other AS FROM visits; CREATE TABLE other_2025_02 AS SELECT 1")
    tables = "SELECT count(*) FROM duckdb_tables()"
    before = exact(tables)
    for statement, why in REFUSED.items():
        assert why in exact.refused(statement)
        assert exact(tables) == before
    assert "is not protected" in exact.refused("FROM dp_sql('SELECT count(*) FROM other', epsilon := 1)")
    exact("CALL dp_protect('other', epsilon := 1, delta := 1e-9)")
    assert "is protected already" in exact.refused(CALL.replace("'visits'", "'other'"))
    exact(CALL)
    for changed in (CALL.replace("100", "99"), CALL.replace("'month'", "'week'"), CALL.replace(" := 3", " := 4")):
        assert "a declaration stays" in exact.refused(changed)
    assert "closes those that are over" in exact.refused("FROM dp_late('people')")


@pytest.mark.usefixtures("clock")
def test_a_table_that_is_gone_is_made_again_only_while_nothing_was_asked(exact: Loaded) -> None:
    visits(exact)
    exact(CALL)
    exact("FROM dp_sql('SELECT count(*) FROM visits_2025_02', epsilon := 1)")
    exact("DROP TABLE visits_2025_01; DROP TABLE visits_2025_02")
    notes = {row[0]: row[-1] for row in exact(CALL)}
    assert (notes["2025-01"], notes["2025-02"]) == ("closed now", None)
    assert exact("SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE 'visits_2025%'") == [(2,)]


@pytest.mark.usefixtures("clock")
def test_another_schema_and_no_start(exact: Loaded) -> None:
    visits(exact)
    exact("CREATE SCHEMA archive")
    short = "CALL dp_period('visits', 'day', keep_in := 'archive', epsilon := 1, delta := 1e-9)"
    (row,) = exact(short)
    assert row[0] == "any 12, as in a year"
    assert "2025-04, is closed by this call from 2025-05-01" in row[-1]
    found = exact(short.replace("epsilon", "start := DATE '2025-03-31', epsilon"))
    assert found[0][:3] == ("2025-03", "memory.archive.visits_2025_03", "add or remove one row of 2025-03")
    assert timedelta(0) <= datetime.now() - dp_period.now()
