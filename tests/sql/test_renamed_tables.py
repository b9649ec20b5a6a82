"""A protected table keeps its one budget: under another name it is refused, and the message says what works."""

from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

PROTECT = "CALL dp_protect('{}', epsilon := 1, delta := 1e-9)"


@pytest.fixture
def census(tmp_path: Path) -> Path:
    """A database file with a protected table, declared; closed."""
    path = tmp_path / "census.duckdb"
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE p AS SELECT (i % 5)::INTEGER AS a, i % 3 AS b FROM range(100) t(i)")
        duckdb_dp.testing.load(con, f"{path}.dp", seed=1)
        con.execute(PROTECT.format("p"))
        con.execute("CALL dp_attribute('p', 'a', low := 0, high := 4)")
        con.execute("FROM dp_marginals('p', ['a'], epsilon := 1)").fetchall()
    return path


def opened(con: duckdb.DuckDBPyConnection, ledger: Path) -> Loaded:
    duckdb_dp.testing.load(con, ledger, seed=1)
    return Loaded(con, ledger)


def test_renamed_file(census: Path) -> None:
    """Renamed with its ledger, as a backup is: no second budget, and ATTACH under the old name goes on."""
    moved, ledger = census.with_name("moved.duckdb"), census.with_name("moved.duckdb.dp")
    census.rename(moved)
    census.with_name("census.duckdb.dp").rename(ledger)
    with duckdb.connect(moved) as con:
        db = opened(con, ledger)
        for call in (PROTECT.format("p"), PROTECT.format("moved.main.p")):
            found = db.refused(call)
            assert "'moved.main.p' may be 'census.main.p', which is protected in this ledger" in found
            assert "rename it back to 'census', or ATTACH it AS \"census\"" in found
        found = db.refused("FROM dp_marginals('p', ['a'], epsilon := 1)")
        assert "is not protected under the name 'moved.main.p', but 'census.main.p' is" in found
        assert "Protect it" not in found
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{moved}' AS census; USE census")
        db = opened(con, ledger)
        assert len(db("FROM dp_marginals('p', ['a'], epsilon := 1)")) == 5
        assert db.charges() == 1


def test_a_renamed_file_is_not_public(census: Path) -> None:
    """A protected table under another name cannot be declared public, nor a view of it; once its own name is seen, another may."""
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{census}' AS other (READ_ONLY)")
        con.execute("CREATE VIEW seen AS FROM other.p")
        db = opened(con, census.with_name("census.duckdb.dp"))
        found = db.refused("CALL dp_public('other.p')")
        assert (
            "'other.main.p' may be 'census.main.p', which is protected in this ledger and cannot be seen now" in found
        )
        assert "'seen' may be read from 'p', which is protected" in db.refused("CALL dp_public('seen')")
        con.execute(f"DETACH other; ATTACH '{census}' AS census (READ_ONLY); ATTACH ':memory:' AS other")
        con.execute("CREATE TABLE other.p AS SELECT 1 AS a")
        assert db("CALL dp_public('other.p')") == [("other.main.p", "everywhere")]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("ALTER TABLE p RENAME TO q", "q"),
        ("CREATE SCHEMA s; CREATE TABLE s.p AS FROM p; DROP TABLE p", "s.p"),
        ("CREATE SCHEMA s; CREATE TABLE s.q AS FROM p; DROP TABLE p", "s.q"),
        ("CREATE TABLE q AS FROM p; DROP TABLE p", "q"),
        ("CREATE TEMP TABLE q AS FROM p; DROP TABLE p", "q"),
        ("CREATE TEMP TABLE p AS FROM main.p; DROP TABLE census.main.p", "temp.main.p"),
        ("ALTER TABLE p RENAME TO r; CREATE VIEW q AS FROM r", "q"),
    ],
)
def test_renamed_table(census: Path, change: str, name: str) -> None:
    with duckdb.connect(census) as con:
        db = opened(con, census.with_name("census.duckdb.dp"))
        db(change)
        assert 'Give it the old name back, "census"."main"."p".' in db.refused(PROTECT.format(name))
        db(PROTECT.format(name).replace(")", ", another := true)"))  # other people's rows
        db(PROTECT.format(name))  # repeated as it is
        assert len(db("FROM dp_budget()")) == 2


def test_made_anew(census: Path) -> None:
    """A table of the same name is the same dataset, and one with other columns is another."""
    with duckdb.connect(census) as con:
        db = opened(con, census.with_name("census.duckdb.dp"))
        db("CREATE TABLE q AS SELECT a FROM p; DROP TABLE q; CREATE TABLE q (c INTEGER)")
        db(PROTECT.format("q"))
        db("DROP TABLE p")
        assert "'p' is protected but there is no such table now" in db.refused(
            "FROM dp_marginals('p', [], epsilon := 0.1)"
        )
        db("CREATE TABLE p AS SELECT 1::INTEGER AS a, 2 AS b")
        db(PROTECT.format("p"))
        assert "more than what remains" in db.refused("FROM dp_marginals('p', [], epsilon := 0.1)")
        db("CREATE TABLE r (a BIGINT)")  # all protected tables are there
        db(PROTECT.format("r"))


def test_no_such_table(census: Path) -> None:
    with duckdb.connect(census) as con:
        db = opened(con, census.with_name("census.duckdb.dp"))
        db("CREATE TABLE people (a INTEGER)")
        db(PROTECT.format("people"))
        found = db.refused("FROM dp_marginals('peple', ['a'], epsilon := 0.1)")
        assert "no committed table or view has that name. Did you mean 'people'? Protected are: 'p', 'people'." in found
        found = db.refused("FROM dp_sql('SELECT count(*) FROM zzz', epsilon := 0.1)")
        assert "Did you mean" not in found
        assert "no committed table or view has that name. Protected are" in found
