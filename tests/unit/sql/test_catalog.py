"""Tables of the catalog, read by two queries: what a call reads while it is planned is what a statement sees."""

from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.sql import catalog, collations
from duckdb_dp.sql.bindings import LOADED
from duckdb_dp.sql.session import ORIGINAL_CURSOR, Session

MADE = """
CREATE SCHEMA s; CREATE SCHEMA "Other";
CREATE TABLE s.a (x INT PRIMARY KEY, y INT DEFAULT 3 CHECK (y > 2), z VARCHAR NOT NULL UNIQUE);
CREATE TABLE s.b (k INT, l INT, FOREIGN KEY (k) REFERENCES s.a (x), UNIQUE (k, l));
CREATE VIEW s.v AS SELECT * FROM s.a;
CREATE TABLE main.a (q DECIMAL(4, 2)[]);
CREATE TABLE "Other".a (x INT)
"""
SCHEMAS = [[], ["s"], ["main"], ["s", "main", "other"], ["nowhere"]]


@pytest.mark.parametrize("schemas", SCHEMAS, ids=str)
def test_both_queries_find_the_same(schemas: list[str]) -> None:
    with duckdb.connect() as con:
        con.execute(MADE)
        wanted = [("memory", schema) for schema in schemas]
        row = con.execute(f"SELECT {catalog.query(wanted)}").fetchone()
        assert row is not None
        found = catalog.seen(con, wanted)
        assert found == catalog.read(row[0])
        assert len(found) == sum({"s": 3, "main": 1, "other": 1}.get(schema, 0) for schema in schemas)


CHANGES = """
CREATE TABLE t (x INTEGER, y VARCHAR DEFAULT 'a'); ALTER TABLE t ADD COLUMN z DOUBLE; ALTER TABLE t DROP COLUMN z; ALTER TABLE t RENAME x TO w;
ALTER TABLE t ALTER w TYPE BIGINT; ALTER TABLE t ALTER w SET NOT NULL; ALTER TABLE t ALTER w DROP NOT NULL; ALTER TABLE t ALTER y SET DEFAULT 'b';
ALTER TABLE t RENAME TO u; DROP TABLE u; CREATE TABLE u (w BIGINT PRIMARY KEY, y VARCHAR UNIQUE, CHECK (w > 0));
CREATE TABLE v (w BIGINT, FOREIGN KEY (w) REFERENCES u (w)); DROP TABLE v; CREATE TABLE v (w BIGINT); DROP TABLE v;
CREATE TYPE mood AS ENUM ('a', 'b'); CREATE TABLE m (x mood); DROP TABLE m; DROP TYPE mood; CREATE TYPE mood AS ENUM ('b', 'c');
CREATE TABLE m (x mood); CREATE TABLE c (x VARCHAR COLLATE NOCASE); DROP TABLE c; CREATE TABLE c (x VARCHAR); CREATE SCHEMA s; CREATE TABLE s.c (x INTEGER);
CREATE VIEW a AS FROM m; DROP VIEW a; CREATE VIEW a AS FROM c; ALTER TABLE c ADD COLUMN y INTEGER; DROP VIEW a; CREATE TABLE a (x INTEGER);
CREATE OR REPLACE TABLE a (x INTEGER, y INTEGER GENERATED ALWAYS AS (x + 1)); DROP SCHEMA s CASCADE; ATTACH ':memory:' AS o; CREATE TABLE o.a (x INTEGER);
DETACH o; ATTACH ':memory:' AS o; CREATE TABLE o.a (x VARCHAR)
"""
"""What changes a catalog, one after the other."""
EVERYWHERE = [("memory", "main"), ("memory", "s"), ("o", "main")]


def session_of(con: duckdb.DuckDBPyConnection) -> Session:
    return LOADED[con.execute("SELECT _dp_loaded()").fetchall()[0][0]].session


def check(session: Session, con: duckdb.DuckDBPyConnection) -> None:
    """What is kept between calls is what a new connection sees."""
    with ORIGINAL_CURSOR(con) as cursor:
        for schemas in (EVERYWHERE, EVERYWHERE[:1]):
            assert catalog.committed(session, schemas) == catalog.seen(cursor, set(schemas))
        texts = cursor.execute(
            "SELECT coalesce(bool_or(contains(sql, 'COLLATE')), false) FROM duckdb_tables()"
        ).fetchall()
    assert collations.in_use(session) == texts[0][0]


@pytest.mark.parametrize("other", [False, True], ids=["one connection", "another connection"])
def test_changes_of_the_catalog_are_seen_at_once(tmp_path: Path, *, other: bool) -> None:
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, tmp_path / "l.dp")
        session = session_of(con)
        with ORIGINAL_CURSOR(con) as second:
            for change in CHANGES.split(";"):
                (second if other else con).execute(change)
                check(session, con)
                check(session, con)  # from what is kept


def test_what_is_not_committed_is_not_kept(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, tmp_path / "l.dp")
        con.execute("CREATE TABLE t (x INTEGER)")
        session, t = session_of(con), ("memory", "main", "t")
        for end, columns in (("ROLLBACK", ["x"]), ("COMMIT", ["x", "y"])):
            con.execute("BEGIN; ALTER TABLE t ADD COLUMN y INTEGER")
            assert [*catalog.committed(session, EVERYWHERE[:1])[t].columns] == ["x"]
            with session.seeing_with(con):  # which makes tables itself
                assert [*catalog.committed(session, EVERYWHERE[:1])[t].columns] == ["x", "y"]
            assert [*catalog.committed(session, EVERYWHERE[:1])[t].columns] == ["x"]
            con.execute(end)
            assert [*catalog.committed(session, EVERYWHERE[:1])[t].columns] == columns
            check(session, con)


def test_a_catalog_that_is_as_it_was_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, tmp_path / "l.dp")
        con.execute("CREATE TABLE t (x INTEGER)")
        session = session_of(con)
        before = catalog.committed(session, EVERYWHERE[:1])
        with monkeypatch.context() as patched:
            patched.setattr(catalog, "_ALL", "SELECT error('read again')")
            assert catalog.committed(session, EVERYWHERE[:1]) == before
            con.execute("CREATE TABLE u (x INTEGER)")
            with pytest.raises(duckdb.Error, match="read again"):
                catalog.committed(session, EVERYWHERE[:1])
