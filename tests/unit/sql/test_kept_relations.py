"""A SELECT that is asked again is compiled anew where anything that it depends on has changed."""

from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

JOINED = "SELECT t.name, count(*) AS n FROM p JOIN t USING (town) GROUP BY t.name"


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE p (id INTEGER PRIMARY KEY, town INTEGER)")
    connection.execute("INSERT INTO p SELECT i, i % 2 FROM range(40) r(i)")
    connection.execute(
        "CREATE TABLE t (town INTEGER PRIMARY KEY, name VARCHAR); INSERT INTO t VALUES (0, 'a'), (1, 'b')"
    )
    duckdb_dp.testing.load_exact(connection, tmp_path / "l.dp")
    found = Loaded(connection, tmp_path / "l.dp")
    found("CALL dp_protect(['p'], unit := 'p.id', epsilon := 1000, delta := 1e-9); CALL dp_public('t')")
    return found


def test_public_rows(loaded: Loaded) -> None:
    asked = f"SELECT name, n FROM dp_sql('{JOINED}', epsilon := 1, fresh := true) ORDER BY name"
    assert [name for name, _ in loaded(asked)] == ["a", "b"]
    assert [name for name, _ in loaded(asked)] == ["a", "b"]
    loaded("INSERT INTO t VALUES (2, 'c')")
    assert [name for name, _ in loaded(asked)] == ["a", "b", "c"]


def test_columns_and_tables(loaded: Loaded) -> None:
    asked = f"FROM dp_sql('{JOINED}', epsilon := 1, fresh := true)"
    loaded(asked)
    loaded("ALTER TABLE t RENAME COLUMN name TO label")
    assert "name" in loaded.refused(asked)
    loaded("ALTER TABLE t RENAME COLUMN label TO name")
    assert len(loaded(asked)) == 2


def test_the_same_text_in_another_way(loaded: Loaded) -> None:
    for _ in range(2):
        assert loaded(f"SELECT count(*) FROM dp_sql('{JOINED}', epsilon := 1)") == [(2,)]
        assert loaded(f"SELECT count(*) FROM dp_sql(['{JOINED}', '{JOINED} HAVING count(*) > 3'], epsilon := 1)") == [
            (4,)
        ]
        assert loaded(f"SELECT count(*) FROM dp_sql('{JOINED}', max_rows := 3, epsilon := 1)") == [(2,)]
