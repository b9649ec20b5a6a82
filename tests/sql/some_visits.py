"""A small dataset of several tables: people, their visits with moments of all types, their orders, and public towns."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE towns AS SELECT i AS town, 'town ' || i AS name FROM range(5) t(i);
CREATE TABLE users (id INTEGER PRIMARY KEY, sex VARCHAR, town INTEGER);
INSERT INTO users SELECT i, ['f', 'm'][1 + i % 2], i % 5 FROM range(200) t(i);
CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES users (id), a TIMESTAMP, b TIMESTAMP, da DATE, db DATE,
    ta TIME, tb TIME, za TIMESTAMPTZ, zb TIMESTAMPTZ, na TIMESTAMP_NS, nb TIMESTAMP_NS, iv INTERVAL, x INTEGER, reason VARCHAR);
INSERT INTO visits SELECT i, i * 7 % 200, a, a + INTERVAL 1 MINUTE * (i * 11 % 500), a, a::DATE + (i % 4)::INTEGER, a::TIME, TIME '23:00', a, a, a, a,
    INTERVAL 1 MINUTE * (i % 70), i % 11, ['flu', 'leg', 'eye'][1 + i % 3]
FROM (SELECT i, TIMESTAMP '2024-01-01 08:00' + INTERVAL 1 MINUTE * (i * 613 % 90000) AS a FROM range(800) t(i));
CREATE TABLE orders (order_id INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES users (id), price INTEGER);
INSERT INTO orders SELECT i, i * 7 % 150, i % 40 FROM range(400) t(i);
"""
PROTECTED = """
CALL dp_protect(['users', 'visits', 'orders'], unit := 'users.id', max_rows := {{'visits': 4, 'orders': 4}}, epsilon := 1e7, delta := 1e-9{more});
CALL dp_public('towns');
CALL dp_attribute('users', 'sex', "values" := ['f', 'm']);
CALL dp_attribute('visits', 'x', low := 0, high := 10);
"""
DECLARED = "".join(
    f"CALL dp_attribute('visits', '{name}', low := {type_} '{low}', high := {type_} '{high}'{step});"
    for type_, names, low, high, step in (
        ("TIMESTAMP", ("a", "b"), "2024-01-01", "2024-04-01", ", step := INTERVAL 1 HOUR"),
        ("DATE", ("da", "db"), "2024-01-01", "2024-04-01", ""),
        ("TIME", ("ta", "tb"), "00:00", "23:00", ", step := INTERVAL 1 HOUR"),
    )
    for name in names
)


@contextmanager
def loaded(folder: Path, *, declared: bool = False, more: str = "") -> Iterator[Loaded]:
    """A connection with these tables, of which no noise is drawn.

    Args:
        folder: of the ledger.
        declared: whether the moments are declared.
        more: further arguments of dp_protect.
    """
    connection = duckdb.connect()
    connection.execute(TABLES)
    duckdb_dp.testing.load_exact(connection, folder / "visits.dp")
    found = Loaded(connection, folder / "visits.dp")
    found(PROTECTED.format(more=more) + (DECLARED if declared else ""))
    yield found
    connection.close()


def answers(found: Loaded, select: str) -> list[tuple[object, ...]]:
    """The columns of a SELECT as dp_sql answers them, without their errors, sorted."""
    names = [name for name, *_ in found.connection.execute(select).description]
    chosen = ", ".join(f'"{name}"' for name in names)
    return sorted(found(f"SELECT {chosen} FROM dp_sql(?, epsilon := 1e4)", [select]), key=str)
