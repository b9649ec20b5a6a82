"""Conversions that DuckDB adds: those that are not named fail for no value."""

import itertools

import duckdb
import pytest

from duckdb_dp.sql.conversions import failing
from tests.sql.test_public_views import EXTREMES

NUMBERS = {
    "UTINYINT": ["0", "255"],
    "SMALLINT": ["-32768", "32767"],
    "USMALLINT": ["0", "65535"],
    "UINTEGER": ["0", "4294967295"],
    "UHUGEINT": ["0", "340282366920938463463374607431768211455"],
    "DECIMAL(4,1)": ["999.9", "-999.9"],
    "DECIMAL(38,1)": ["'9999999999999999999999999999999999999.9'"],
    "TIMESTAMP_S": ["'290309-12-22 (BC)'", "'294247-01-10'"],
    "TIMESTAMP_NS": ["'2262-01-01'", "'1700-01-01'"],
}


def test_what_is_not_named_fails_for_no_value() -> None:
    values, safe, named = {**EXTREMES, **NUMBERS}, 0, 0
    with duckdb.connect() as con:
        for i, (type_, held) in enumerate(values.items()):
            con.execute(
                f"CREATE TABLE t{i} (x {type_}); INSERT INTO t{i} VALUES (NULL), {', '.join(f'({one})' for one in held)}"
            )
        for (i, one), other in itertools.product(enumerate(values), values):
            try:
                found = failing(con, f"SELECT CAST(x AS {other}) FROM t{i}")
                con.execute(f"SELECT bit_xor(hash(CAST(x AS {other}))) FROM t{i}").fetchall()
            except duckdb.BinderException:
                continue
            except (duckdb.Error, UnicodeDecodeError) as error:  # DuckDB's text may have a BLOB's bytes
                assert found, (one, other, error)
                named += 1
            else:
                safe += not found
    assert named > 100
    assert safe > 100


@pytest.mark.parametrize(
    ("select", "found"),
    [
        ("SELECT a + b FROM t WHERE s < d", ["DATE to TIMESTAMP_NS"]),
        ("SELECT a FROM t JOIN u ON h = e", ["HUGEINT to DECIMAL(38, 20)"]),
        ("SELECT h FROM t UNION SELECT e FROM u", ["HUGEINT to DECIMAL(38, 20)"]),
        ("SELECT (SELECT max(e) FROM u WHERE e > h) FROM t", ["HUGEINT to DECIMAL(38, 20)"]),
        ("SELECT TRY(h > 1.5), TRY_CAST(d AS TIMESTAMP_NS) FROM t", []),
        ("SELECT a, b, a = b, a IN (1, 2.5), a BETWEEN 1 AND b, s > TIMESTAMP_NS '2020-01-01' FROM t", []),
        ("SELECT count(*) FILTER (WHERE a > 1) = 3.5, a || b FROM t GROUP BY ALL", []),
    ],
)
def test_conversions_are_named(select: str, found: list[str]) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t (a INTEGER, b BIGINT, h HUGEINT, d DATE, s TIMESTAMP_NS); CREATE TABLE u (e DECIMAL(38, 20))"
        )
        assert failing(con, select) == found


def test_of_files_there_is_no_plan_in_duckdb_2() -> None:
    with duckdb.connect() as con:
        assert failing(con, "FROM read_csv('no.csv')") is None
