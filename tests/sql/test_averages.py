"""Averages and the ends of their intervals lie between the bounds of what is averaged, and intervals hold the truth as often as before."""

from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

GROUPS = 60


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Small groups of values near the end of their bounds, of which noise moves many averages beyond it; one value is not declared."""
    with duckdb.connect() as connection:
        folder = tmp_path_factory.mktemp("averages") / "l.dp"
        duckdb_dp.testing.load(connection, folder, seed=5)
        connection.execute(
            f"""
            CREATE TABLE people AS SELECT i AS id FROM range({GROUPS * 60}) AS t(i);
            CREATE TABLE t AS SELECT i AS id, i % {GROUPS} AS g, CASE WHEN i % 50 > 0 THEN 10 - (i % 7 = 0)::INTEGER ELSE 99 END AS x,
                8.0 AS y FROM range({GROUPS * 60}) AS t(i);
            CREATE TABLE alone AS FROM t;
            """
        )
        connection.execute("CALL dp_protect('alone', epsilon := 1e5, delta := 1e-9)")
        connection.execute("CALL dp_link('t', \"references\" := {'id': 'people.id'})")
        connection.execute(
            "CALL dp_protect(['people', 't'], unit := 'people.id', max_rows := {'t': 1}, epsilon := 1e5, delta := 1e-9)"
        )
        for table in ("alone", "t"):
            connection.execute(f"CALL dp_attribute('{table}', 'g', low := 0, high := {GROUPS - 1})")
            connection.execute(f"CALL dp_attribute('{table}', 'x', low := 0, high := 10)")
        yield Loaded(connection, folder)


BOUNDED = {
    "avg(x)": (0, 10),
    "avg(x) FILTER (WHERE x > 2)": (0, 10),
    "avg(y) FILTER (WHERE y BETWEEN 0 AND 8)": (0, 8),
    "avg(x * 2 - 5)": (-5, 15),
    "avg(CASE WHEN x > 8 THEN 1 ELSE 0 END)": (0, 1),
    "100 * avg((x > 8)::INTEGER)": (0, 100),
    "round(avg(x), 1)": (0, 10),
    "-avg(x) / 2 + 1": (-4, 1),
}  # fmt: skip
"""Expressions of averages, and between which numbers they lie."""

FROM = ["alone", "t", "people JOIN t USING (id)", "(SELECT g, x, y FROM alone WHERE x > 1)"]


def rows(
    loaded: Loaded, asked: str, source: str, more: str = "epsilon := 1"
) -> list[tuple[float, float, float, float]]:
    select = f"SELECT g, {asked} AS m, count(*) AS n FROM {source} GROUP BY g"
    found = loaded(f"SELECT m, m_ci_low, m_ci_high, m_stddev FROM dp_sql(?, {more}) WHERE m IS NOT NULL", [select])
    return [(a, b, c, d) for a, b, c, d in found]


@pytest.mark.some(4)
@pytest.mark.parametrize("asked", BOUNDED)
@pytest.mark.parametrize("source", FROM)
def test_averages_and_their_intervals_lie_between_the_bounds(loaded: Loaded, asked: str, source: str) -> None:
    low, high = BOUNDED[asked]
    found = rows(loaded, asked, source)
    assert len(found) > GROUPS / 2
    for value, first, last, stddev in found:
        assert low <= first <= value <= last <= high
        assert stddev > 0
    assert any(end in (low, high) for row in found for end in row[1:3])  # else nothing was to be moved


def test_those_of_planned_cells_do_too(loaded: Loaded) -> None:
    found = [row for mu in (3, 4, 5) for row in rows(loaded, "avg(x)", "alone", f"mu := {mu}, mechanism := 'hdmm'")]
    assert all(0 <= first <= value <= last <= 10 for value, first, last, _ in found)
    assert any(last == 10 for *_, last, _ in found)


def test_a_column_that_passes_through_is_bounded_too(loaded: Loaded) -> None:
    inner = "SELECT g, avg(x) AS m, count(*) AS n FROM alone GROUP BY g"
    found = loaded(
        "SELECT m, m_ci_high FROM dp_sql(?, epsilon := 1) WHERE m IS NOT NULL", [f"SELECT * FROM ({inner}) WHERE n > 0"]
    )
    assert max(value for value, _ in found) <= 10 == max(high for _, high in found)


def test_the_average_of_the_clamped_values_is_in_the_interval_as_often(loaded: Loaded) -> None:
    """Of about 600 intervals, of which those at the bound would miss it if they were moved and not cut."""
    true = dict(loaded("SELECT g, avg(least(x, 10)) FROM alone GROUP BY g"))
    held = total = 0
    for call in range(10):
        asked = "SELECT g, avg(x) AS m, count(*) AS n FROM alone GROUP BY g"
        select = f"SELECT g, m_ci_low, m_ci_high FROM dp_sql(?, epsilon := {1 + call / 100}) WHERE m IS NOT NULL"
        for g, low, high in loaded(select, [asked]):
            held, total = held + (low <= true[g] <= high), total + 1
    assert total > 400
    assert held / total > 0.925


def test_values_that_count_as_they_are_do_not_bound_their_average(exact: Loaded) -> None:
    """Where a norm is chosen values beyond the declaration are not clamped: only what a condition says bounds them."""
    exact("CREATE TABLE far AS SELECT i % 9000 AS unit, 10 AS x FROM range(18000) AS t(i)")
    exact("CALL dp_protect('far', unit := 'unit', max_rows := 'auto', epsilon := 1e4, delta := 1e-9)")
    exact("CALL dp_attribute('far', 'x', low := 0, high := 8)")
    ((clamped,),) = exact("SELECT avg FROM dp_sql('SELECT avg(x) FROM far', epsilon := 10, max_rows := 2)")
    ((free,),) = exact("SELECT avg FROM dp_sql('SELECT avg(x) FROM far', epsilon := 10)")
    assert clamped == 8
    assert free > 9
