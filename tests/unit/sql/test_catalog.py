"""Tables of the catalog, read by two queries: what a call reads while it is planned is what a statement sees."""

import duckdb
import pytest

from duckdb_dp.sql import catalog

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
