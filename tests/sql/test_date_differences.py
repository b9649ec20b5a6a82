"""Differences of dates are numbers of days: in every aggregate, however the dates are declared, of rows of one table and of joins."""

from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

DECLARATIONS = {
    "nothing": "",
    "days": "low := DATE '2024-01-01', high := DATE '2024-12-31'",
    "bins": "bins := ['2024-01-01', '2024-04-15', '2025-01-01']",
    "months": "low := DATE '2024-01-01', high := DATE '2024-12-31', step := INTERVAL 1 MONTH",
    "values": "\"values\" := range(DATE '2024-01-01', DATE '2025-01-01', INTERVAL 1 DAY)",
}
AGGREGATES = [
    "sum(b - a)", "avg(b - a)", "avg(b - DATE '2024-01-01')", "stddev(b - a)", "median(b - a)", "sum(a - b) FILTER (WHERE kind = 1)",
    "avg(CASE WHEN kind = 1 THEN b - a ELSE 0 END)", "count(b - a)", "avg((b - a) * 2)", "sum(b - a) / count(*)",
    "avg(CAST(t AS DATE) - a)",
]  # fmt: skip


@pytest.fixture(scope="module", params=DECLARATIONS)
def stays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Stays of people, several each, whose dates are declared in one way."""
    connection, folder = duckdb.connect(), tmp_path_factory.mktemp("stays") / "test.dp"
    connection.execute("CREATE TABLE people AS SELECT i AS id, i % 2 AS sex FROM range(2000) t(i)")
    connection.execute(
        "CREATE TABLE stays AS SELECT i % 2000 AS id, i % 3 AS kind, DATE '2024-01-01' + (i * 7 % 300)::INTEGER AS a, "
        "DATE '2024-01-01' + (i * 7 % 300 + i % 11)::INTEGER AS b, TIMESTAMP '2024-05-01 10:00:00' AS t FROM range(6000) s(i)"
    )
    duckdb_dp.testing.load(connection, folder, seed=1)
    loaded = Loaded(connection, folder)
    loaded("CALL dp_link('stays', \"references\" := {'id': 'people.id'})")
    loaded("CALL dp_protect(['people', 'stays'], unit := 'people.id', mu := 1e6, delta := 1e-9)")
    loaded("CALL dp_attribute('stays', 'kind', low := 0, high := 2)")
    for name in "ab" if DECLARATIONS[request.param] else "":
        loaded(f"CALL dp_attribute('stays', '{name}', {DECLARATIONS[request.param]})")
    yield loaded
    connection.close()


@pytest.mark.parametrize("source", ["stays", "stays JOIN people USING (id) WHERE sex = 1"])
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregates_of_differences_of_dates(stays: Loaded, aggregate: str, source: str) -> None:
    asked = f"SELECT kind, {aggregate} AS x FROM {source} GROUP BY kind"
    truth = dict(stays(asked))
    found = {row[0]: row[1:5] for row in stays(f"FROM dp_sql($${asked}$$, mu := 100)")}
    assert set(found) == set(truth)
    for kind, (answer, stddev, low, high) in found.items():
        if truth[kind] is not None:
            assert abs(answer - float(truth[kind])) <= max(6 * stddev, 0.02 * abs(float(truth[kind])), 0.5), (
                kind,
                found,
            )
            assert low <= answer <= high


def test_a_date_itself_has_no_average(stays: Loaded) -> None:
    for value in ("a", "a + 3", "greatest(a, b)"):
        assert "only numbers have a sum or an average" in stays.refused(
            f"FROM dp_sql('SELECT avg({value}) AS x FROM stays', mu := 1)"
        )
