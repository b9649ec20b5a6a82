"""The sums of a SELECT that is asked again are found anew where anything that they follow from has changed."""

from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.sql import direct
from tests.conftest import Loaded

ASKED = "SELECT n FROM dp_sql('SELECT sum(x) AS n FROM t', mu := 1, fresh := true)"


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 1 + i % 5 AS x, i % 3 AS g FROM range(50) r(i)")
    duckdb_dp.testing.load_exact(connection, tmp_path / "l.dp")
    found = Loaded(connection, tmp_path / "l.dp")
    found("CALL dp_protect('t', mu := 10000, delta := 1e-9)")
    found("CALL dp_attribute('t', 'x', low := 0, high := 5); CALL dp_attribute('t', 'g', low := 0, high := 2)")
    return found


def test_only_what_is_new_is_found(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    parts = direct.parts
    monkeypatch.setattr(direct, "parts", lambda select, *a, **k: texts.append(select.sql()) or parts(select, *a, **k))
    for _ in range(3):
        assert loaded(ASKED) == [(150,)]
    assert len(texts) == 1
    assert loaded(ASKED.replace("FROM t'", "  from t'")) == [(150,)]
    assert loaded(ASKED.replace("sum(x)", "sum(2 * x)")) == [(300,)]
    assert len(texts) == 2


def test_declarations(loaded: Loaded) -> None:
    assert loaded(ASKED) == [(150,)]
    loaded("CALL dp_attribute('t', 'x', low := 0, high := 2)")
    assert loaded(ASKED) == [(90,)]
    grouped = "FROM dp_sql('SELECT g, sum(x) AS n FROM t GROUP BY g', mu := 1, fresh := true)"
    assert len(loaded(grouped)) == 3
    loaded("CALL dp_attribute('t', 'g', low := 0, high := 6)")
    assert len(loaded(grouped)) == 7


def test_columns(loaded: Loaded) -> None:
    asked = ASKED.replace("sum(x)", "sum(CASE WHEN y > 1 THEN 1 ELSE 0 END)").replace("FROM t'", "FROM t WHERE g < 5'")
    loaded("ALTER TABLE t ADD COLUMN y DOUBLE DEFAULT 2")
    assert loaded(asked) == [(50,)]
    loaded("ALTER TABLE t RENAME COLUMN y TO z")
    assert "y" in loaded.refused(asked)
    loaded("ALTER TABLE t ADD COLUMN y VARCHAR DEFAULT 'a'")
    assert "VARCHAR" in loaded.refused(asked)


def test_releases_that_were_looked_through_are_not_read_again(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """For another one of the same sums each new question looks through the newest hundred."""
    for number in range(6):
        loaded(f"FROM dp_sql('SELECT sum(x) AS n FROM t WHERE g < {number}', mu := 1)")
    read = []
    release = Ledger.release
    monkeypatch.setattr(Ledger, "release", lambda ledger, key: read.append(key) or release(ledger, key))
    loaded("FROM dp_sql('SELECT sum(x) AS n FROM t WHERE g < 7', mu := 1)")
    assert len([number for number in read if number <= 6]) <= 1
    charges = loaded.charges()
    loaded("FROM dp_sql('SELECT sum(x) AS again FROM t WHERE g < 3', mu := 1)")
    assert loaded.charges() == charges
