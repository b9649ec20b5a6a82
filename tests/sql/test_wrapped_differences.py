"""Averages of what is worked out of a difference of two declared dates have as little noise as those of the difference itself."""

from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

WRAPPED = {
    "{0} + 1": 1.0, "1 + ({0})": 1.0, "{0} - 1": 1.0, "({0}) / 365.25": 1 / 365.25, "({0}) * 8": 8.0, "({0} + 1) * 8.0": 8.0,
    "-({0})": 1.0, "abs({0})": 1.0, "round(({0}) / 7.0, 1)": 1 / 7, "coalesce({0}, 0)": 1.0, "CAST({0} AS DOUBLE)": 1.0,
    "greatest({0}, 0)": 1.0, "CASE WHEN kind < 3 THEN {0} + 1 END": 1.0,
}  # fmt: skip
"""What stands around a difference, and how many times as large it is then."""

DIFFERENCES = {
    "b - a": "stays",
    "b - s.a": "stays s JOIN people USING (id)",
    "t::DATE - a": "stays",
    "t::DATE - u::DATE": "stays",
    "b - u::DATE": "stays",
    "b - p.born": "stays s JOIN people p USING (id)",
    "s.t::DATE - p.born": "stays s JOIN people p USING (id)",
}
"""Differences of two declared dates, and of what rows."""


@pytest.fixture(scope="module")
def stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Stays of some days in five years, of persons who were known some days before."""
    connection, folder = duckdb.connect(), tmp_path_factory.mktemp("wrapped") / "test.dp"
    connection.execute(
        "CREATE TABLE people AS SELECT i AS id, DATE '2020-01-01' + (i * 7 % 1500)::INTEGER AS born FROM range(2000) t(i)"
    )
    connection.execute(
        "CREATE TABLE stays AS SELECT id, i % 3 AS kind, a, a + (i % 11)::INTEGER AS b, a::TIMESTAMP AS u, "
        "(a + (i % 11)::INTEGER)::TIMESTAMP AS t FROM "
        "(SELECT i, i % 2000 AS id, DATE '2020-01-05' + (i % 2000 * 7 % 1500)::INTEGER AS a FROM range(6000) s(i))"
    )
    duckdb_dp.testing.load(connection, folder, seed=1)
    loaded = Loaded(connection, folder)
    loaded("CALL dp_link('stays', \"references\" := {'id': 'people.id'})")
    loaded(
        "CALL dp_protect(['people', 'stays'], unit := 'people.id', max_rows := {'stays': 3}, mu := 1e6, delta := 1e-9)"
    )
    loaded("CALL dp_attribute('stays', 'kind', low := 0, high := 2)")
    for table, name, type_ in (("stays", "a", "DATE"), ("stays", "b", "DATE"), ("people", "born", "DATE")):
        loaded(f"CALL dp_attribute('{table}', '{name}', low := {type_} '2020-01-01', high := {type_} '2024-12-31')")
    for name in "tu":
        ends = "low := TIMESTAMP '2020-01-01', high := TIMESTAMP '2025-01-01', step := INTERVAL 1 DAY"
        loaded(f"CALL dp_attribute('stays', '{name}', {ends})")
    yield loaded
    connection.close()


def answer(found: Loaded, select: str) -> tuple[float, float, float, float]:
    """(answer, stddev, low, high)."""
    ((*columns,),) = found("FROM dp_sql(?, mu := 0.5)", [select])
    return tuple(map(float, columns[:4]))  # type: ignore[return-value]


@pytest.mark.some(20)
@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("days", DIFFERENCES)
def test_noise_is_that_of_the_difference(stays: Loaded, days: str, wrapped: str) -> None:
    source = DIFFERENCES[days]
    bare = answer(stays, f"SELECT avg({days}) AS m FROM {source}")
    select = f"SELECT avg({wrapped.format(days)}) AS m FROM {source}"
    ((truth,),) = stays(select)
    found, stddev, low, high = answer(stays, select)
    assert bare[1] <= 2 * answer(stays, "SELECT avg(b - a) AS m FROM stays")[1]
    assert stddev <= 1.5 * bare[1] * WRAPPED[wrapped]
    assert low <= found <= high
    assert abs(found - float(truth)) <= 5 * stddev + 0.02 * abs(float(truth))


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", ["{0} + 1", "({0} + 1) * 8.0"])
def test_intervals_hold_the_truth(stays: Loaded, wrapped: str) -> None:
    held = []
    for kind in range(3):
        for least in range(40):  # each of other rows, so that none is answered from another
            where = f"kind = {kind} AND x <> {least}"
            select = (
                f"SELECT avg({wrapped.format('b - a')}) AS m FROM (SELECT *, id % 40 AS x FROM stays) WHERE {where}"
            )
            ((truth,),) = stays(select)
            _, _, low, high = answer(stays, select)
            held.append(low <= float(truth) <= high)
    assert sum(held) >= 0.88 * len(held)  # 95 % but in 1 of 5,000 such tests
