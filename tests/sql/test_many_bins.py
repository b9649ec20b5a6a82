"""Rows in many uneven bins are counted where they lie, whatever else the column holds."""

import bisect

import pytest

EDGES = [i + i % 3 / 8 for i in range(301)]


@pytest.mark.some(1)
@pytest.mark.parametrize("type_", ["DOUBLE", "FLOAT", "DECIMAL(9, 3)", "DECIMAL(30, 3)"])
def test_many_uneven_bins(exact, type_: str) -> None:
    """The last type has no whole numbers of units that doubles hold, and its bins are joined."""
    exact(f"CREATE TABLE t AS SELECT (i * 37 % 4000 / 10 - 20)::{type_} AS x, i % 2 AS b FROM range(4000) r(i)")
    exact(f"INSERT INTO t VALUES (NULL, 0), (300, 1), (300.25, 1), (0, 0){', (CAST(0.125 AS DOUBLE), 0)'}")
    if type_ in ("DOUBLE", "FLOAT"):
        exact("INSERT INTO t VALUES ('NaN', 0), ('inf', 1), ('-inf', 0)")
    exact("CALL dp_protect('t', rho := 1e9)")
    exact("CALL dp_attribute('t', 'b', low := 0, high := 1)")
    exact("CALL dp_attribute('t', 'x', bins := [i + i % 3 / 8 for i in range(301)], nulls := true)")
    expected: dict[int | None, int] = {}
    for (value,) in exact("SELECT x::DOUBLE FROM t"):
        if value is None or EDGES[0] <= value <= EDGES[-1]:
            cell = None if value is None else min(bisect.bisect_right(EDGES, value) - 1, len(EDGES) - 2)
            expected[cell] = expected.get(cell, 0) + 1
    found = [count for (count,) in exact("SELECT round(count)::BIGINT FROM dp_marginals('t', ['x'], rho := 1e6)")]
    assert found == [expected.get(cell, 0) for cell in (*range(len(EDGES) - 1), None)]
    assert sum(
        count for (count,) in exact("SELECT round(count) FROM dp_marginals('t', [['x', 'b']], rho := 1e6)")
    ) == sum(expected.values())
