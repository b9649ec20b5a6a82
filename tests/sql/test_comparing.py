"""dp_explain(mechanism := 'all') of marginals: every mechanism and reading, and what 'auto' takes."""

import math

import pytest

from duckdb_dp.sql.bindings import LOADED
from duckdb_dp.sql.compared_marginals import measured
from tests.conftest import Loaded

ASKED = "dp_explain('people', 'all 2-way', mu := 1, mechanism := 'all'{})"


@pytest.fixture(scope="module")
def rows(shared) -> list[tuple]:
    columns = "mechanism, reading, expected_error, intervals, rmse, note"
    return shared(f"SELECT {columns} FROM {ASKED.format(', rows := 5000')}")


@pytest.mark.slow
def test_every_mechanism_in_every_reading(rows: list[tuple]) -> None:
    found = {(mechanism, reading) for mechanism, reading, *_ in rows}
    for mechanism in ("residual", "gaussian", "hdmm", "laplace", "aim", "neyman"):
        assert {reading for name, reading in found if name == mechanism} == {"unbiased", "nonnegative", "fitted"}
    errors = [row[2] for row in rows]
    assert errors == sorted(errors)
    assert all(0 < error < 2 for error in errors)


def test_only_plans_without_bias_have_intervals(rows: list[tuple]) -> None:
    for mechanism, reading, _, intervals, rmse, _ in rows:
        assert intervals == (reading == "unbiased" and mechanism not in {"aim", "neyman"}) == (rmse is not None)


def test_what_auto_takes_is_what_a_call_takes(rows: list[tuple], shared) -> None:
    said = {reading: mechanism for mechanism, reading, *_, note in rows if note and "'auto' takes this" in note}
    assert said == {"unbiased": "residual", "fitted": "neyman"}
    for reading, mechanism in said.items():
        call = f"dp_explain('people', 'all 2-way', mu := 1, postprocess := '{reading}')"
        assert shared(f"SELECT DISTINCT mechanism FROM {call}") == [(mechanism,)]
    assert any("5,000 rows as said" in (note or "") for *_, note in rows)


@pytest.mark.slow
def test_auto_is_called_nearest_only_where_it_is(db: Loaded, rows: list[tuple]) -> None:
    """Of few rows and much noise a plan can be nearer than the mechanism that 'auto' takes for fitted counts: the note says by how much."""
    few = db(
        "SELECT mechanism, reading, expected_error, intervals, rmse, note FROM "
        "dp_explain('people', 'all 2-way', mu := 100, mechanism := 'all', rows := 5000)"
    )
    for found in (rows, few):
        ((error, note),) = [
            (error, note)
            for _, reading, error, _, _, note in found
            if note and "takes this" in note and reading == "fitted"
        ]
        least = min(row[2] for row in found if row[2] is not None)
        nearest = "nearest to the truth" in note
        assert nearest == (error <= 1.005 * least)
        assert nearest or f"{error / least - 1:.0%} above the least here" in note


def test_of_marginals_too_large_to_try_what_is_known_is_listed(db: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duckdb_dp.trial.CELLS", 1)
    columns = "mechanism, reading, expected_error, intervals, note"
    found = db(f"SELECT {columns} FROM dp_explain('people', 'all 2-way', mu := 1.23, mechanism := 'all', rows := 5000)")
    assert {(mechanism, reading) for mechanism, reading, *_ in found} >= {
        ("residual", "fitted"),
        ("neyman", "unbiased"),
    }
    for mechanism, reading, error, intervals, note in found:
        known = reading == "unbiased" and mechanism not in {"aim", "neyman"}
        assert (error is not None) == known == intervals
        assert known or "too large to try" in note
    taken = {reading: note for _, reading, _, _, note in found if note and "'auto' takes this" in note}
    assert taken.keys() == {"unbiased", "fitted"}
    assert "nearest" not in taken["fitted"]


@pytest.mark.slow
def test_nothing_is_charged_and_the_same_is_said_again(db) -> None:
    first = db(f"FROM {ASKED.format('')}")
    assert db.charges() == 0
    assert db(f"FROM {ASKED.format('')}") == first


@pytest.mark.slow
def test_rows_of_the_newest_release(db) -> None:
    db("FROM dp_marginals('people', [[], ['sex']], mu := 5)")
    (total,) = db("SELECT count FROM dp_marginals('people', [[], ['sex']], mu := 5) WHERE marginal = ''")[0]
    notes = db(f"SELECT DISTINCT note FROM {ASKED.format('')} WHERE note LIKE '%assume%'")
    assert f"errors assume {round(total):,} rows of release" in notes[0][0]


def test_each_table_of_a_dataset_has_its_own_releases(exact: Loaded) -> None:
    """The ledger has them all under the dataset's name, which is that of one of its tables."""
    exact("CREATE TABLE p AS SELECT i AS id, i % 2 AS sex FROM range(70) t(i)")
    exact("CREATE TABLE rides AS SELECT i % 70 AS rider, i % 5 AS line FROM range(900) t(i)")
    exact("""CALL dp_link('rides', "references" := {'rider': 'p.id'})""")
    exact("CALL dp_protect(['p', 'rides'], unit := 'p.id', max_rows := {'p': 1, 'rides': 20}, mu := 99)")
    exact("CALL dp_attributes('p', {'sex': [0, 1]}); CALL dp_attributes('rides', {'line': [0, 1, 2, 3, 4]})")
    session = LOADED[exact("SELECT _dp_loaded()")[0][0]].session
    rows = {"p": 70, "rides": 900}
    for table in ("rides", "p"):
        exact(f"FROM dp_marginals('{table}', [[]], mu := 1)")
        for other, number in rows.items():
            dataset = session.ledger.dataset("memory", "main", other)
            assert dataset is not None
            known = measured(session, dataset, "dp_marginals")
            assert (known and known[0]) == (None if (table, other) == ("rides", "p") else number)


@pytest.mark.parametrize("rows", ["0", "-5", "'many'", "1.5"])
def test_what_is_no_number_of_rows(db, rows: str) -> None:
    assert "it is a whole number of rows" in db.refused(f"FROM {ASKED.format(f', rows := {rows}')}")


@pytest.mark.parametrize("asked", ["['sex']", "['race']"])
def test_expected_errors_of_plans_are_known_and_equal_ones_are_ranked_equal(shared, asked: str) -> None:
    """sqrt(2/pi) times the sum of the standard deviations, of Laplace noise sqrt(1/2), over the rows; of equal ones that of 'auto' is first."""
    rows = shared(
        "SELECT mechanism, reading, expected_error, rmse, gap, note LIKE '%auto%takes this%' FROM "
        f"dp_explain('people', {asked}, mu := 1, mechanism := 'all', rows := 5000)"
    )
    ((cells,),) = shared(f"SELECT cells FROM dp_explain('people', {asked}, mu := 1)")
    plans = [row for row in rows if row[3] is not None]
    assert [row[2] for row in plans] == pytest.approx(
        [math.sqrt(1 / 2 if row[0] == "laplace" else 2 / math.pi) * row[3] * cells / 5000 for row in plans], rel=1e-5
    )
    assert [row[3] for row in plans] == pytest.approx(sorted(row[3] for row in plans), rel=1e-5)
    assert [row[5] or False for row in plans] == [True] + [False] * (len(plans) - 1)
    assert all(row[4] == 0 or row[4] >= 1e-9 for row in plans)
    if asked == "['sex']":  # of counts that are far above 0, no reading has less error than the noise
        known = {row[0]: row[2] for row in plans}
        assert all(error == pytest.approx(known[name], rel=0.3) for name, _, error, *_ in rows if name in known)


QUERIES = {
    "{'age': 'range'}": {"hdmm", "querysmasher"},
    "'age', quantiles := [0.25, 0.5]": {"select", "hdmm"},
    "'SELECT count(*) FROM people WHERE age >= 20'": {"direct", "hdmm"},
    "'SELECT sum(race), count(*) FROM people'": {"direct"},
    "'SELECT median(age) FROM people'": {"direct", "select"},
    "'SELECT median(age), sum(race) FROM people'": {"direct", "select"},
}


@pytest.mark.parametrize("asked", QUERIES)
def test_every_mechanism_and_route_is_listed_and_one_is_taken(db: Loaded, asked: str) -> None:
    rows = db(
        f"SELECT mechanism, rmse, ratio_to_best, note FROM dp_explain('people', {asked}, mu := 1, mechanism := 'all')"
    )
    assert QUERIES[asked] <= {row[0] for row in rows}
    known = [row for row in rows if row[1] is not None]
    assert [row[1] for row in known] == sorted(row[1] for row in known)
    assert known[0][2] == 1.0
    (taken,) = [row[0] for row in rows if row[3] and "'auto' takes this" in row[3]]
    (alone,) = db(f"SELECT DISTINCT mechanism FROM dp_explain('people', {asked}, mu := 1)")[0]
    assert taken in alone
    assert db.charges() == 0
