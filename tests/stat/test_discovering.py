"""dp_discover: how many units must hold a value for it to appear in half of all releases."""

from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.accounting.convert import gdp_mu

RUNS = 300


@pytest.mark.parametrize(("values", "units", "scale"), [(1, 35, 1.0), (20, 166, 1.0), (1, 35, 0.8), (1, 35, 1.25)])
def test_a_value_appears_with_probability_one_half(tmp_path: Path, values: int, units: int, scale: float) -> None:
    """At (1, 1e-9) in all, half of delta for the threshold; and a test of 300 releases sees units of 4/5 or of 5/4.

    300 columns of one request would share a budget, so each release is of a table of its own: of many values, in one.
    """
    held = round(units * scale)
    with duckdb.connect() as connection:
        # Each of 300 values is held by its own units, 20 values by each of them where a unit has 20.
        groups = RUNS // values
        connection.execute(
            f"CREATE TABLE t AS SELECT g * 1000 + i AS u, 'v' || g * {values} + v AS x "
            f"FROM range({groups}) a(g), range({held}) b(i), range({values}) c(v)"
        )
        duckdb_dp.testing.load(connection, tmp_path / "test.dp", seed=values + held)
        connection.execute(
            "CALL dp_protect('t', unit := 'u', max_rows := 20, epsilon := 1, delta := 1e-9, discovery_delta := 5e-10)"
        ).fetchall()
        call = f"SELECT count(*), any_value(threshold), any_value(stddev) FROM dp_discover('t', 'x', max_values := {values}, epsilon := 1)"
        found, least, stddev = connection.execute(call).fetchall()[0]
    if found:
        assert stddev == pytest.approx(values**0.5 / gdp_mu(1, 5e-10), rel=1e-6)
        assert abs(least - units) < 1
    share = found / (groups * values)
    if scale == 1:
        assert 0.4 < share < 0.6
    else:
        assert not 0.3 < share < 0.7
