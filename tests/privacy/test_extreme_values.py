"""Values at the ends of their types, outside of what is declared: no row raises an error, in joins either, and none is in a group."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TYPES = {
    "TINYINT": ("-128", "127", "2", "low := 1, high := 3"),
    "UTINYINT": ("0", "255", "2", "low := 1, high := 3"),
    "SMALLINT": ("-32768", "32767", "2", "bins := [1, 2, 3]"),
    "INTEGER": ("-2147483648", "2147483647", "2", "low := 1, high := 3"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "2", "low := 1, high := 3"),
    "UBIGINT": ("0", "18446744073709551615", "18446744073709551611", "low := 18446744073709551610, high := 18446744073709551613"),
    "HUGEINT": ("-170141183460469231731687303715884105728", "170141183460469231731687303715884105727", "2", "low := 1, high := 3"),
    "UHUGEINT": ("0", "340282366920938463463374607431768211455", "2", "low := 1, high := 3"),
    "DATE": ("-infinity", "infinity", "2020-01-02", "low := DATE '2020-01-01', high := DATE '2020-01-04'"),
    "TIMESTAMP": ("-infinity", "infinity", "2020-01-02", "bins := [TIMESTAMP '2020-01-01', TIMESTAMP '2020-01-04']"),
    "TIME": ("00:00:00", "23:59:59", "11:00:00", "low := TIME '10:00', high := TIME '12:00', step := INTERVAL 1 HOUR"),
    "FLOAT": ("-inf", "nan", "2", "bins := [0, 1, 2, 3]"),
    "DOUBLE": ("-inf", "nan", "2", "bins := [0, 1, 2, 3]"),
    "DECIMAL(18, 4)": ("-99999999999999.9999", "99999999999999.9999", "2.0000", "bins := [0, 1, 2, 3]"),
    "DECIMAL(38, 4)": ("-9999999999999999999999999999999999.9999", "9999999999999999999999999999999999.9999", "2.0000", "bins := [0, 1, 2, 3]"),
    "VARCHAR": ("", "zzz", "a", "\"values\" := ['a', 'b']"),
}  # fmt: skip
"""Type -> the least and the largest value, one inside, and what is declared."""

FROM = ["users LEFT JOIN events ON u = id", "users JOIN events ON u = id", "events", "events LEFT JOIN users ON u = id", "(SELECT x, u FROM events JOIN users ON u = id)"]  # fmt: skip


@pytest.fixture(
    scope="module", params=[(type_, nulls) for type_ in TYPES for nulls in ("", ", nulls := true")], ids=str
)
def events(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    type_, nulls = request.param
    least, most, inside, declared = TYPES[type_]
    connection = duckdb.connect()
    connection.execute(
        f"""
        CREATE TABLE users (id INTEGER PRIMARY KEY); INSERT INTO users FROM range(300);
        CREATE TABLE events (event INTEGER PRIMARY KEY, u INTEGER NOT NULL REFERENCES users (id), x {type_});
        INSERT INTO events SELECT i, i % 250, CAST((['{least}', '{most}', '{inside}', '{inside}', NULL])[1 + i % 5] AS {type_}) FROM range(500) r(i);
        """
    )
    folder: Path = tmp_path_factory.mktemp("events")
    duckdb_dp.testing.load_exact(connection, folder / "events.dp")
    found = Loaded(connection, folder / "events.dp")
    found(
        "CALL dp_protect(['users', 'events'], unit := 'users.id', max_rows := {'events': 2}, epsilon := 1e8, delta := 1e-9)"
    )
    found(f"CALL dp_attribute('events', 'x', {declared}{nulls})")
    yield found
    connection.close()


@pytest.mark.some(16)
@pytest.mark.parametrize("table", FROM)
def test_values_at_the_ends_of_their_types_raise_nothing(events: Loaded, table: str) -> None:
    """They did where DuckDB worked out the group of a row before it left it out."""
    inside, missing = events(
        f"SELECT count(*) FILTER (WHERE x IN (SELECT x FROM events WHERE event = 2)), count(*) FILTER (WHERE x IS NULL) FROM {table}"
    )[0]
    found = events("FROM dp_sql(?, epsilon := 1e4)", [f"SELECT x, count(*) AS n FROM {table} GROUP BY x"])
    counts = {row[0]: round(row[1]) for row in found if round(row[1])}
    assert counts.pop(None, missing) == missing
    assert [*counts.values()] == [inside]
    for more in ("", " WHERE x IS NOT NULL"):
        asked = f"SELECT count(*) AS n, count(x) AS k, count(DISTINCT x) AS d FROM {table}{more}"
        names = "n, k, d"
        ((*answer,),) = events(f"SELECT {names} FROM dp_sql(?, epsilon := 1e4)", [asked])
        assert [round(one) for one in answer] == [*events(asked)[0]]
