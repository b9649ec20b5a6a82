"""Intervals of quantiles hold infinite values, as those of divisions by 0 and logarithms of it, or say that an end is not known."""

import math
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

VALUES = ["1 / f", "ln(f)", "-g", "h", "1e308 * (f + 10) * 10", "k"]
if duckdb.__version__.startswith("1.4."):
    VALUES.remove("ln(f)")  # a logarithm of 0 is an error there
ABOVE = [
    "{}",
    "coalesce({} + 1, 0)",
    "least({}, 0)",
    "round({})",
    "{} + 1",
    "-({})",
    "{} / 2",
    "exp({})",
    "greatest({}, 0)",
    "floor({} * 2)",
]


@pytest.fixture(
    scope="module", params=["", "CALL dp_attribute('t', 'f', bins := [0, 1, 5, 10]);"], ids=["undeclared", "declared"]
)
def t(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    connection = duckdb.connect()
    connection.execute(
        """
        CREATE TABLE t AS SELECT i AS id, (CASE WHEN i % 10 < 7 THEN 0.0 ELSE i % 10 END)::DOUBLE AS f, (CASE WHEN i % 10 < 7 THEN 'inf' ELSE i::VARCHAR END)::DOUBLE AS g,
            (CASE WHEN i % 10 < 7 THEN '-inf' ELSE i::VARCHAR END)::FLOAT AS h, (CASE WHEN i % 10 < 7 THEN (i / 7)::VARCHAR ELSE 'inf' END)::DOUBLE AS k FROM range(3000) r(i)
        """
    )
    folder: Path = tmp_path_factory.mktemp("t")
    duckdb_dp.testing.load_exact(connection, folder / "t.dp")
    found = Loaded(connection, folder / "t.dp")
    found(f"CALL dp_protect('t', epsilon := 1e8, delta := 1e-9); {request.param}")
    yield found
    connection.close()


@pytest.mark.slow
@pytest.mark.some(6)
@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("value", VALUES)
def test_intervals_of_quantiles_hold_infinite_ones(t: Loaded, value: str, above: str) -> None:
    """At a budget of little noise, and of so much that all cells are in the interval."""
    shown = above.format(f"quantile_disc({value}, 0.5)")
    ((truth,),) = t(f"SELECT {shown} FROM t")
    for select in (
        f"SELECT {shown} AS m FROM t",
        f"SELECT {above.format('q')} AS m FROM (SELECT quantile_disc({value}, 0.5) AS q FROM t)",
    ):
        for epsilon in (1.0, 0.002):
            result = t.connection.execute("FROM dp_sql(?, epsilon := ?)", [select, epsilon])
            row = dict(zip([name for name, *_ in result.description], result.fetchall()[0], strict=True))
            low, high, stddev = row.get("ci_low"), row.get("ci_high"), row.get("stddev")
            assert low is None or low <= truth
            assert high is None or truth <= high
            assert stddev is None or math.isfinite(stddev)


@pytest.mark.parametrize("value", ["1 / f", "g", "h"])
def test_an_infinite_end_is_shown(t: Loaded, value: str) -> None:
    ((low, high, stddev),) = t(
        "SELECT ci_low, ci_high, stddev FROM dp_sql(?, epsilon := 1)", [f"SELECT median({value}) AS m FROM t"]
    )
    assert (low, high)[value != "h"] == (-math.inf if value == "h" else math.inf)
    assert stddev is None
    assert math.isfinite(high if value == "h" else low)
