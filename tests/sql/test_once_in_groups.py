"""Numbers of rows of which a unit has one in each group, by DISTINCT, UNION or GROUP BY inside, have the noise of numbers of units."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again

DISTINCT = "(SELECT DISTINCT uid, genre FROM ratings JOIN movies USING (mid))"
ONCE = {
    f"SELECT genre, count(*) AS n FROM {DISTINCT} GROUP BY genre": "genre, count(DISTINCT uid)",
    "SELECT genre, count(*) AS n FROM (SELECT uid, genre, max(stars) AS s FROM ratings JOIN movies USING (mid) GROUP BY ALL) "
    "WHERE s > 2 GROUP BY genre": "",
    "SELECT stars, count(*) AS n FROM (SELECT DISTINCT uid, stars FROM ratings) GROUP BY stars": "",
    "SELECT count(*) AS n FROM (SELECT uid FROM ratings UNION SELECT uid FROM users)": "",
    "SELECT genre, stars, count(*) FILTER (WHERE stars > 1) AS n FROM (SELECT DISTINCT uid, genre, stars FROM ratings JOIN movies "
    "USING (mid)) GROUP BY genre, stars": "",
}
MORE = [
    f"SELECT count(*) AS n FROM {DISTINCT}",  # a unit has as many as there are genres
    "SELECT stars > 2 AS k, count(*) AS n FROM (SELECT DISTINCT uid, stars FROM ratings) GROUP BY k",
    "SELECT bin, count(*) AS n FROM (SELECT DISTINCT uid, stars AS bin FROM binned) GROUP BY bin",
    "SELECT stars, count(*) AS n FROM (SELECT DISTINCT uid, stars, mid FROM ratings) GROUP BY stars",
    f"SELECT genre, count(*) AS n FROM {DISTINCT} WHERE genre <> 'g0' GROUP BY ROLLUP (genre)",
]


@contextmanager
def opened(folder: Path, discovers: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE users AS SELECT i AS uid FROM range(300) t(i); ALTER TABLE users ADD PRIMARY KEY (uid);"
            "CREATE TABLE movies AS SELECT i AS mid, CASE WHEN i % 7 > 0 THEN 'g' || (i % 4) END AS genre FROM range(60) t(i);"
            "ALTER TABLE movies ADD PRIMARY KEY (mid);"
            "CREATE TABLE ratings (uid BIGINT REFERENCES users (uid), mid BIGINT REFERENCES movies (mid), stars INTEGER);"
            "INSERT INTO ratings SELECT (i * i) % 290, (i * 7) % 60, i % 5 FROM range(4000) t(i);"
            "CREATE TABLE binned AS FROM ratings; ALTER TABLE binned ADD COLUMN row INTEGER"
        )
        duckdb_dp.testing.load_exact(connection, folder)
        connection.execute(
            "CALL dp_link('binned', {'uid': 'users.uid'});"
            "CALL dp_protect(['users', 'ratings', 'binned'], unit := 'users.uid', max_rows := {'ratings': 200, 'binned': 200}, "
            f"epsilon := 1e6, delta := 1e-9{', discovery_delta := 1e-10' if discovers else ''}); CALL dp_public('movies');"
            "CALL dp_attribute('ratings', 'stars', low := 0, high := 4); CALL dp_attribute('binned', 'stars', bins := [0, 2, 5])"
        )
        yield connection


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with opened(tmp_path_factory.mktemp("l") / "l.dp") as connection:
        yield connection


def _answered(con: duckdb.DuckDBPyConnection, sql: str) -> tuple[dict[str, int], float]:
    found = con.execute("FROM dp_sql(?, epsilon := 9)", [sql])
    names, rows = [column[0] for column in found.description or []], found.fetchall()
    place = names.index("n")
    return {str(row[:place]): round(row[place]) for row in rows if round(row[place])}, rows[0][names.index("stddev")]


@pytest.mark.parametrize("sql", ONCE)
def test_rows_that_a_unit_has_once_in_each_group(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    got, stddev = _answered(con, sql)
    assert got == {str(row[:-1]): row[-1] for row in con.execute(sql).fetchall() if row[-1]}
    assert stddev < 10


@pytest.mark.parametrize("sql", MORE)
def test_rows_of_which_it_may_have_more(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    got, stddev = _answered(con, sql)
    if "binned" not in sql:
        assert got == {str(row[:-1]): row[-1] for row in con.execute(sql).fetchall()}
    else:
        assert (
            sum(got.values())
            == con.execute("SELECT count(*) FROM (SELECT DISTINCT uid, stars FROM binned)").fetchone()[0]
        )  # type: ignore[index]
    assert stddev > 50


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT genre, count(*) AS n FROM {DISTINCT} GROUP BY genre",
        "SELECT EXISTS (SELECT 1 FROM ratings r WHERE r.uid = u.uid AND stars = 4) AS k, count(*) AS n FROM users u GROUP BY 1",
    ],
    ids=["distinct", "subquery"],
)
def test_what_was_answered_before_is_found_again(tmp_path: Path, sql: str) -> None:
    with opened(tmp_path / "l.dp", discovers=True) as connection:
        check_found_again(Loaded(connection, tmp_path / "l.dp"), sql, 8)
