"""Moments with a time zone are read in a zone that the text says, in one table and in joins; of any column NULLs are counted."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

READ = [
    "SELECT count(*) AS n FROM {t} WHERE a AT TIME ZONE 'UTC' > '2023-02-01'",
    "SELECT count(a) AS n FROM {t}",
    "SELECT count(*) AS n FROM {t} WHERE a IS NOT NULL AND a < b",
    "SELECT count(*) FILTER (WHERE span IS NULL) AS n FROM {t}",
    "SELECT count(bytes) AS n FROM {t}",
    "SELECT count(*) AS n FROM {t} WHERE date_diff('hour', a AT TIME ZONE 'UTC', b AT TIME ZONE 'UTC') = 4",
    "SELECT hour(a AT TIME ZONE 'Europe/Paris') AS h, count(*) AS n FROM {t} WHERE a IS NOT NULL GROUP BY h",
    "SELECT count(*) AS n FROM {t} WHERE coalesce(a, b) AT TIME ZONE 'utc' > '2023-02-01'",
    "SELECT count(*) AS n FROM {t} WHERE CASE WHEN a IS NULL THEN b ELSE greatest(a, b) END >= b",
    "SELECT count(*) AS n FROM {t} WHERE (day AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo')::DATE > '2023-01-20'",
]
REFUSED = {
    "SELECT count(*) AS n FROM {t} WHERE a > '2023-02-01'": "AT TIME ZONE 'UTC'",
    "SELECT count(*) AS n FROM {t} WHERE year(a) = 2023": "AT TIME ZONE 'UTC'",
    "SELECT avg(hour(a)) AS n FROM {t}": "AT TIME ZONE 'UTC'",
    "SELECT count(*) AS n FROM {t} WHERE coalesce(a, day) = b": "AT TIME ZONE 'UTC'",
    "SELECT count(*) AS n FROM {t} WHERE hour(CASE WHEN a > b THEN a ELSE b END) = 3": "AT TIME ZONE 'UTC'",
    "SELECT month(a) AS m, count(*) AS n FROM {t} GROUP BY m": "AT TIME ZONE 'UTC'",
    "SELECT count(*) AS n FROM {t} WHERE a AT TIME ZONE 'Nowhere' > '2023-02-01'": "'Nowhere' is no time zone",
    "SELECT count(*) AS n FROM {t} WHERE day AT TIME ZONE 'UTC' > '2023-02-01'": "another AT TIME ZONE",
    "SELECT count(*) AS n FROM {t} WHERE a AT TIME ZONE zone > '2023-02-01'": "is not among",
}


@pytest.fixture(scope="module")
def zoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    connection, folder = duckdb.connect(), tmp_path_factory.mktemp("zoned") / "l.dp"
    connection.execute(
        """
        CREATE TABLE units (u INTEGER PRIMARY KEY, zone VARCHAR);
        INSERT INTO units SELECT i, 'UTC' FROM range(200) t(i);
        CREATE TABLE t (u INTEGER REFERENCES units (u), zone VARCHAR, a TIMESTAMPTZ, b TIMESTAMPTZ, day TIMESTAMP, span INTERVAL, bytes BLOB);
        INSERT INTO t SELECT i % 200 AS u, 'UTC' AS zone, CASE WHEN i % 7 > 0 THEN TIMESTAMPTZ '2023-01-01 23:30:00+00' + INTERVAL 2 HOUR * i END AS a,
            TIMESTAMPTZ '2023-01-01 23:30:00+00' + INTERVAL 2 HOUR * (i + 2) AS b, TIMESTAMP '2023-01-01' + INTERVAL 1 HOUR * i AS day,
            CASE WHEN i % 5 = 0 THEN INTERVAL 1 DAY END AS span, CASE WHEN i % 3 = 0 THEN 'x'::BLOB END AS bytes FROM range(800) t(i)
        """
    )
    duckdb_dp.testing.load_exact(connection, folder)
    connection.execute("CALL dp_protect(['units', 't'], unit := 'units.u', epsilon := 1000, delta := 1e-9)")
    yield Loaded(connection, Path(folder))
    connection.close()


@pytest.mark.some(3)
@pytest.mark.parametrize("table", ["t", "t JOIN units USING (u)"])
@pytest.mark.parametrize("select", READ)
def test_they_are_read_in_the_zone_that_is_named(zoned: Loaded, select: str, table: str) -> None:
    text = select.format(t=table)
    found = zoned.connection.execute("FROM dp_sql(?, epsilon := 1, max_rows := 20)", [text]).fetchall()
    true = zoned(text)
    keys = len(true[0]) - 1
    assert {row[:keys]: pytest.approx(row[keys], abs=1e-3) for row in found if row[keys]} == {
        row[:keys]: row[keys] for row in true
    }


@pytest.mark.some(3)
@pytest.mark.parametrize("table", ["t", "t JOIN units USING (u)"])
@pytest.mark.parametrize("select", REFUSED)
def test_what_the_sessions_zone_would_decide_is_refused(zoned: Loaded, select: str, table: str) -> None:
    charges = zoned.charges()
    text = select.format(t=table).replace("zone >", "t.zone >")
    assert REFUSED[select] in zoned.refused("FROM dp_sql(?, epsilon := 1)", [text])
    assert zoned.charges() == charges


def test_it_is_no_group_itself(zoned: Loaded) -> None:
    line = zoned.refused("FROM dp_sql('SELECT a, count(*) AS n FROM t GROUP BY a', epsilon := 1)")
    assert "AT TIME ZONE 'UTC'" in line


@pytest.mark.parametrize("hour", ["hour(f)", "hour(f AT TIME ZONE 'UTC')"])
def test_the_same_of_what_a_unit_has(zoned: Loaded, hour: str) -> None:
    """An aggregate inside has no type before it is read."""
    for inner in (f"{hour.replace('f', 'min(a)')} AS h", f"{hour.replace('f', 'max(coalesce(a, b))')} AS h"):
        select = (
            f"SELECT h, count(*) AS n FROM (SELECT u, {inner} FROM t GROUP BY u) WHERE h BETWEEN 0 AND 23 GROUP BY h"
        )
        if "ZONE" not in hour:
            assert "AT TIME ZONE 'UTC'" in zoned.refused("FROM dp_sql(?, epsilon := 1)", [select])
            continue
        found = {row[0]: round(row[1]) for row in zoned("FROM dp_sql(?, epsilon := 1)", [select]) if round(row[1])}
        assert found == dict(zoned(select))
