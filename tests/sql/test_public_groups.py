"""GROUP BY of columns of public tables, of every type, and of what is worked out of them."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

COLUMNS = {
    "truth": "i % 2 = 0",
    "tiny": "(i % 5)::TINYINT",
    "huge": "170141183460469231731687303715884105000::HUGEINT + i % 5",
    "single": "(i % 5 + 0.1)::FLOAT",
    "double": "(i % 5 + 0.1)::DOUBLE",
    "price": "(i % 5 + 0.13)::DECIMAL(8, 2)",
    "zeros": "(i % 5 + 0.1)::DECIMAL(8, 2)",
    "even": "(i % 5)::DECIMAL(18, 0)",
    "large": "(i % 5)::DECIMAL(38, 10) + 1234567890123456789.0123456789",
    "word": "'v' || i % 5",
    "day": "DATE '2024-01-01' + (i % 5)::INTEGER",
    "ts": "TIMESTAMP '2024-01-01 01:02:03.5' + INTERVAL 1 DAY * (i % 5)",
    "second": "(TIMESTAMP '2024-01-01 01:02:03' + INTERVAL 1 DAY * (i % 5))::TIMESTAMP_S",
    "milli": "(TIMESTAMP '2024-01-01 01:02:03.004' + INTERVAL 1 DAY * (i % 5))::TIMESTAMP_MS",
    "nano": "(TIMESTAMP '2024-01-01 01:02:03.004' + INTERVAL 1 DAY * (i % 5))::TIMESTAMP_NS",
    "zoned": "TIMESTAMPTZ '2023-06-01 01:02:03+00' + INTERVAL 1 MONTH * (i % 5)",
    "clock": "TIME '01:02:03.5' + INTERVAL 1 HOUR * (i % 5)",
    "span": "INTERVAL 1 DAY * (i % 5)",
    "uuid": "('00000000-0000-0000-0000-00000000000' || i % 5)::UUID",
    "enum": "['a', 'b'][1 + i % 2]::ENUM('a', 'b', 'c')",
    "bytes": "('ab' || i % 5)::BLOB",
    "list": "[i % 5]",
    "record": "{'a': i % 5}",
}
UNLISTED = {"zoned", "span", "bytes", "list", "record"}
"""Columns of which no groups are made, but of what is worked out of them."""

WORKED_OUT = [
    "round(price, -1)",
    "price > 2",
    "round(large / 1e18)",
    "large > 1234567890123456791",
    "year(zoned AT TIME ZONE 'UTC')",
    "(zoned AT TIME ZONE 'Europe/Paris')::DATE",
    "zoned IS NULL",
    "span IS NULL",
    "span > INTERVAL 2 DAY",
    "upper(word)",
    "date_trunc('month', day)",
]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    connection, folder = duckdb.connect(), tmp_path_factory.mktemp("public") / "l.dp"
    columns = ", ".join(f"CASE WHEN i < 9 THEN {text} END AS {name}" for name, text in COLUMNS.items())
    connection.execute(
        f"""
        CREATE TABLE public (k INTEGER PRIMARY KEY, {", ".join(f"{name} {type_}" for name, type_ in types(connection))});
        INSERT INTO public SELECT i, {columns} FROM range(10) t(i);
        CREATE TABLE units (id INTEGER PRIMARY KEY);
        INSERT INTO units FROM range(300);
        CREATE TABLE visits (id INTEGER REFERENCES units (id), k INTEGER REFERENCES public (k));
        INSERT INTO visits SELECT i % 300, i % 10 FROM range(900) t(i);
        """
    )
    duckdb_dp.testing.load_exact(connection, folder)
    connection.execute("CALL dp_protect(['units', 'visits'], unit := 'units.id', epsilon := 1000, delta := 1e-9)")
    connection.execute("CALL dp_public(['public'])")
    yield Loaded(connection, Path(folder))
    connection.close()


def types(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    columns = ", ".join(f"{text} AS {name}" for name, text in COLUMNS.items())
    described = connection.execute(f"DESCRIBE SELECT {columns} FROM range(10) t(i)").fetchall()
    return [(str(row[0]), str(row[1])) for row in described]


def check(joined: Loaded, key: str, join: str = "JOIN") -> None:
    """The groups are the key's values with DuckDB's own counts, of the key's type."""
    select = f"SELECT {key} AS g, count(*) AS n FROM visits {join} public USING (k) GROUP BY g"
    asked = joined.connection.execute("FROM dp_sql(?, epsilon := 1, max_rows := 20)", [select])
    type_, rows = asked.description[0][1], asked.fetchall()
    true = joined.connection.execute(select)
    assert type_ == true.description[0][1]
    found = {plain(row[0]): round(row[1]) for row in rows}
    assert len(found) == len(rows)
    assert {g: n for g, n in found.items() if n} == {plain(g): n for g, n in true.fetchall()}


def plain(value: object) -> object:
    return str(value) if isinstance(value, Decimal) else value  # all digits


@pytest.mark.some(3)
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize("column", [name for name in COLUMNS if name not in UNLISTED])
def test_the_values_of_a_public_column_are_groups(joined: Loaded, column: str, join: str) -> None:
    check(joined, column, join)


@pytest.mark.parametrize("key", WORKED_OUT)
def test_what_is_worked_out_of_a_public_column_is_grouped_by(joined: Loaded, key: str) -> None:
    """Also where its own values could not be listed."""
    check(joined, key)


@pytest.mark.parametrize("column", sorted(UNLISTED))
def test_a_column_of_which_no_groups_are_made_is_refused(joined: Loaded, column: str) -> None:
    charges = joined.charges()
    line = joined.refused(
        "FROM dp_sql(?, epsilon := 1)",
        [f"SELECT {column}, count(*) AS n FROM visits JOIN public USING (k) GROUP BY {column}"],
    )
    assert line.startswith(f'Invalid Input Error: dp_sql: GROUP BY "{column}": ')
    assert "worked out of it" in line or "make it a number, a date or a text" in line
    assert joined.charges() == charges
