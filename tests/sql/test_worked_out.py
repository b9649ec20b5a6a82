"""GROUP BY of expressions of whole numbers whose range the conditions say: the groups are the values that are possible there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again

TABLES = """
CREATE TABLE users (id INTEGER PRIMARY KEY, sex VARCHAR); INSERT INTO users SELECT i, ['f', 'm'][1 + i % 2] FROM range(60) t(i);
CREATE TABLE stays (stay_id INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES users (id), a DATE, b DATE, s TIMESTAMP, e TIMESTAMP, x INTEGER, y INTEGER);
INSERT INTO stays SELECT i, i % 60, a, CASE WHEN i % 7 > 0 THEN a + d::INTEGER END, a, a + INTERVAL 1 HOUR * d, i % 13, i % 13 + d FROM
    (SELECT i, DATE '2024-01-01' + (i % 50)::INTEGER AS a, i % 101 - 20 AS d FROM range(1200) t(i));
CREATE TABLE alone AS SELECT * EXCLUDE stay_id FROM stays;
"""
PROTECTED = """
CALL dp_protect(['users', 'stays'], unit := 'users.id', max_rows := 20, epsilon := 1e7, delta := 1e-9{more});
CALL dp_protect('alone', unit := 'person', max_rows := 20, epsilon := 1e7, delta := 1e-9{more});
"""
DECLARED = "".join(
    f"CALL dp_attribute('{table}', '{name}', low := {low}, high := {high}{step});"
    for table in ("stays", "alone")
    for names, low, high, step in (
        (("a", "b"), "DATE '2023-01-01'", "DATE '2025-01-01'", ""),
        (("s", "e"), "TIMESTAMP '2023-01-01'", "TIMESTAMP '2025-01-01'", ", step := INTERVAL 1 HOUR"),
        (("x", "y"), "-2000", "2000", ""),
    )
    for name in names
)
FROM = (
    "SELECT {0} AS g, count(*) AS n FROM stays WHERE {1} GROUP BY 1",
    "SELECT {0} AS g, count(*) AS n FROM alone WHERE {1} GROUP BY 1",
    "SELECT {0} AS g, count(*) AS n FROM stays JOIN users ON person = id WHERE sex = 'f' AND {1} GROUP BY ALL",
    "SELECT g, count(*) AS n FROM (SELECT {0} AS g FROM stays WHERE {1}) GROUP BY g",
)
RANGES = ("b - a", "a - b", "date_diff('day', a, b)", "date_diff('hour', s, e)", "y - x", "date_sub('day', s, e)")
VALUES = (
    "({0}) // 7", "({0}) % 7", "({0} + 1) * 2", "10 - ({0})", "-({0})", "abs({0})", "CAST(({0}) / 7 AS INTEGER)", "(({0}) // 7) * 7 + 1",
    "CASE WHEN {0} < 7 THEN {0} ELSE 7 END", "nullif(({0}) // 30, 1)", "least({0}, 9)", "({0}) % 2 = 0", "(3 - ({0})) // -4",
)  # fmt: skip
CONDITIONS = (
    "{0} BETWEEN 0 AND 60", "{0} >= -5 AND {0} < 30", "60 > {0} AND 0 <= {0}", "{0} IN (1, 5, 30)", "{0} = 8", "({0}) + 1 BETWEEN 1 AND 20",
    "({0}) // 7 BETWEEN -1 AND 3", "({0}) * 2 < 40 AND -({0}) <= 6", "abs({0}) < 15", "NOT ({0} < 0 OR {0} > 60)", "10 - ({0}) BETWEEN 0 AND 9",
    "({0} BETWEEN -9 AND 0 OR {0} = 40)", "CAST(({0}) / 7 AS INTEGER) BETWEEN 0 AND 3", "{0} BETWEEN 0 AND 60 AND ({0}) % 2 = 0",
    "{0} BETWEEN 0.5 AND 6e1 AND {0} <> 7", "({0}) / 2 BETWEEN -2 AND 11.5", "{0} BETWEEN -20 AND 60 AND x IS NOT NULL",
    "{0} BETWEEN 0 AND 60 AND x < 9",
)  # fmt: skip
OTHER = ("{0} > 3", "{0} <> 3", "{0} BETWEEN 0 AND y", "{0} BETWEEN 0 AND 9 OR x = 3", "{0} BETWEEN 0 AND 900000000")
"""What bounds nothing, or says too many values."""


@pytest.fixture(scope="module", params=["", ", discovery_delta := 1e-10", DECLARED])
def stays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with opened(tmp_path_factory.mktemp("stays"), request.param) as found:
        yield found


@contextmanager
def opened(folder: Path, more: str) -> Iterator[Loaded]:
    """A connection with these tables, of which no noise is drawn; more arguments of dp_protect, or calls."""
    connection = duckdb.connect()
    connection.execute(TABLES)
    duckdb_dp.testing.load_exact(connection, folder / "stays.dp")
    found, calls = Loaded(connection, folder / "stays.dp"), more.startswith("CALL")
    found(PROTECTED.format(more="" if calls else more) + (more if calls else ""))
    yield found
    connection.close()


def cases() -> list[tuple[str, str, str]]:
    """Every value with every other condition, of ranges and tables in turn."""
    pairs = [(value, condition) for i, value in enumerate(VALUES) for condition in [*CONDITIONS][i % 2 :: 2]]
    return [(FROM[i % len(FROM)], RANGES[i % 5 if i % 11 else 5], *pair) for i, pair in enumerate(pairs)]


@pytest.mark.some(6)
@pytest.mark.parametrize(("table", "range_", "value", "condition"), cases())
def test_groups_are_those_that_are_possible(stays: Loaded, table: str, range_: str, value: str, condition: str) -> None:
    select = table.format(value.format(range_), condition.format(range_))
    truth = sorted(stays(select), key=str)
    found = sorted(stays("SELECT g, n FROM dp_sql(?, epsilon := 1e4)", [select]), key=str)
    assert [(g, round(n)) for g, n in found if round(n)] == truth
    possible = stays(
        f"SELECT DISTINCT {value.format('d')} FROM range(-2000, 2001) t(d), (SELECT 1 AS x) WHERE {condition.format('d')}"
    )
    groups = {g for g, _ in found}
    assert groups == {g for (g,) in possible} or (groups <= {True, False, None} and "% 2 = 0" in value)


TIMES = (
    "hour(s) // 6", "EXTRACT(month FROM a) % 3", "(dayofweek(b) + 6) % 7", "CASE WHEN hour(e) < 12 THEN 'am' ELSE 'pm' END",
    "date_part('hour', s) // 8 * 8", "quarter(b) > 2", "minute(s) // 30", "CAST(day(a) AS VARCHAR)",
)  # fmt: skip


@pytest.mark.some(3)
@pytest.mark.parametrize("table", FROM)
@pytest.mark.parametrize("value", TIMES)
def test_parts_of_times_need_no_condition(stays: Loaded, table: str, value: str) -> None:
    select = table.format(value, "x < 12 AND b IS NOT NULL" if "(b)" in value else "x < 12")
    truth = sorted(stays(select), key=str)
    found = sorted(stays("SELECT g, n FROM dp_sql(?, epsilon := 1e4)", [select]), key=str)
    assert [(g, round(n)) for g, n in found if round(n)] == truth
    assert len(found) <= 33


@pytest.mark.parametrize("table", FROM[:3])
def test_parts_of_times_that_are_null_are_a_group(tmp_path: Path, table: str) -> None:
    with opened(tmp_path, "") as stays:
        select = table.format("(dayofweek(b) + 6) % 7", "x < 12")
        found = sorted(stays("SELECT g, n FROM dp_sql(?, epsilon := 1e4)", [select]), key=str)
        assert [(g, round(n)) for g, n in found] == sorted(stays(select), key=str)


@pytest.mark.some(1)
@pytest.mark.parametrize("table", FROM)
@pytest.mark.parametrize("condition", OTHER)
def test_what_says_no_range_is_not_charged(tmp_path: Path, table: str, condition: str) -> None:
    with opened(tmp_path, "") as stays:
        for range_ in RANGES:
            select = table.format(f"({range_}) // 7", condition.format(range_))
            charges = stays.charges()
            with pytest.raises(duckdb.Error, match="dp_sql: "):
                stays("FROM dp_sql(?, epsilon := 1)", [select])
            assert stays.charges() == charges


@pytest.mark.parametrize("number", [4, 5])
@pytest.mark.parametrize("table", FROM[:3])
def test_what_was_found_before_is_not_charged_again(tmp_path: Path, table: str, number: int) -> None:
    with opened(tmp_path, ", discovery_delta := 1e-10") as stays:
        check_found_again(stays, table.format("(b - a) // 7", "b - a BETWEEN 0 AND 60"), number)


DURATIONS = (
    "day(e - s)",
    "month(e - s)",
    "hour(e - s)",
    "minute(e - s) // 6",
    "extract(second FROM e - s)",
    "date_part('hour', e - s)",
)


@pytest.mark.some(2)
@pytest.mark.parametrize("table", FROM)
@pytest.mark.parametrize("value", DURATIONS)
def test_parts_of_durations_are_no_parts_of_times(tmp_path: Path, table: str, value: str) -> None:
    """They are below 0 where the duration is, and of any size, so that a condition has to say which ones count."""
    with opened(tmp_path, "") as stays:
        assert "dp_sql: " in stays.refused("FROM dp_sql(?, epsilon := 1)", [table.format(value, "x < 12")])
        select = table.format(value, f"{value.split(' //')[0]} BETWEEN -30 AND 30")
        found = sorted(stays("SELECT g, n FROM dp_sql(?, epsilon := 1e4)", [select]), key=str)
        assert [(g, round(n)) for g, n in found if round(n)] == sorted(stays(select), key=str)
