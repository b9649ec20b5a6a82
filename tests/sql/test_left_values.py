"""Public values of which no declaration is made, in LEFT JOINs: long decimals, NaN, infinite ones; NULL is a group beside them."""

import itertools
from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TYPES = {
    "DECIMAL(38, 4)": "9999999999999999999999999999999999.9999", "DECIMAL(19, 2)": "99999999999999999.99", "DECIMAL(38, 0)": "9" * 38,
    "DECIMAL(38, 37)": "9.1234567890123456789012345678901234567", "HUGEINT": "1" + "0" * 38, "UHUGEINT": "3" + "0" * 38, "DOUBLE": "nan",
    "FLOAT": "inf", "DECIMAL(18, 2)": "9999999999999999.99", "DATE": "infinity", "TIMESTAMP_NS": "2020-01-01 00:00:00.123456789",
}  # fmt: skip
"""Types, with a value that is hard to declare."""


@pytest.fixture(scope="module", params=TYPES)
def events(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    type_, folder = request.param, tmp_path_factory.mktemp("events")
    one, two = ("2020-01-01", "2020-01-02") if type_[:4] in ("DATE", "TIME") else ("1", "2")
    connection = duckdb.connect()
    connection.execute(
        f"""
        CREATE TABLE users (id INTEGER PRIMARY KEY, k INTEGER); INSERT INTO users SELECT i, i % 3 FROM range(300) t(i);
        CREATE TABLE kinds (kind INTEGER PRIMARY KEY, q {type_}, r {type_}, name VARCHAR);
        INSERT INTO kinds VALUES (1, '{one}', '{two}', 'a'), (2, '{two}', '{two}', 'b'), (3, '{TYPES[type_]}', '{TYPES[type_]}', 'c'), (4, NULL, NULL, 'c');
        CREATE TABLE events (event INTEGER PRIMARY KEY, u INTEGER NOT NULL REFERENCES users (id), x INTEGER);
        INSERT INTO events SELECT i, i % 250, 1 + i % 5 FROM range(500) r(i);
        """
    )
    duckdb_dp.testing.load_exact(connection, folder / "events.dp")
    found = Loaded(connection, folder / "events.dp")
    found(
        "CALL dp_protect(['users', 'events'], unit := 'users.id', max_rows := {'events': 2}, epsilon := 1e8, delta := 1e-9); "
        "CALL dp_public(['kinds']); CALL dp_attribute('users', 'k', low := 0, high := 2)"
    )
    yield found
    connection.close()


FROM = (
    "users LEFT JOIN events ON u = id LEFT JOIN kinds ON x = kind",
    "events LEFT JOIN kinds ON x = kind",
    "events LEFT JOIN kinds ON x = kind AND name <> 'a'",
    "events LEFT JOIN kinds ON x = kind WHERE name <> 'a'",
    "events LEFT JOIN kinds ON x = kind WHERE name <> 'a' OR name IS NULL",
    "events JOIN kinds ON x = kind",
)


AGGREGATES = ("count(*)", "count(q)", "sum(x) FILTER (WHERE x BETWEEN 0 AND 5)")
EACH = [*itertools.product(FROM, AGGREGATES, ("q", "q, r", "q, name", "name, q", "q, x % 2 AS odd"))][::2]
"""Half of all, of each FROM with each of both others: all would take minutes."""


@pytest.mark.some(5)
@pytest.mark.parametrize(("table", "aggregate", "keys"), EACH)
def test_long_decimals_and_the_like_are_groups(events: Loaded, table: str, aggregate: str, keys: str) -> None:
    where = " AND " if "WHERE" in table else " WHERE "
    table = (
        f"{table.replace('WHERE ', 'WHERE (')}{')' if 'WHERE' in table else ''}{where}x BETWEEN 1 AND 5"
        if "odd" in keys
        else table
    )
    select = f"SELECT {keys}, {aggregate} AS n FROM {table} GROUP BY ALL"
    names = ", ".join(one.rpartition(" ")[2] for one in keys.split(", "))
    if "odd" in keys and "users" in table:
        return  # where x is NULL, which is no group of what conditions list
    truth = sorted(
        (tuple(map(str, row)) for row in events(f"SELECT {names}, round(n) FROM ({select})") if row[-1]), key=str
    )
    found = events(f"SELECT {names}, round(n) FROM dp_sql(?, epsilon := 1e4)", [select])
    shown = sorted(((*map(str, row[:-1]), str(int(row[-1]))) for row in found if row[-1]), key=str)
    assert shown == [(*row[:-1], str(int(float(row[-1])))) for row in truth]


@pytest.mark.parametrize("aggregate", ["median(q)", "quantile_disc(q, 0.3)", "count(DISTINCT q)", "count(q)"])
@pytest.mark.parametrize("table", FROM)
def test_they_have_quantiles(events: Loaded, table: str, aggregate: str) -> None:
    assert len(events("FROM dp_sql(?, epsilon := 1e4)", [f"SELECT {aggregate} AS n FROM {table}"])) == 1
    table = table.replace("users LEFT JOIN events ON u = id", "events").replace(
        "events", "users JOIN events ON u = id", 1
    )
    asked = f"SELECT k, {aggregate} AS n FROM {table} GROUP BY k"
    assert len(events("FROM dp_sql(?, epsilon := 1e4)", [asked])) == 3
