"""Numbers that are said to fit together are compared without an error, whatever their values."""

import itertools

import duckdb
import pytest

from duckdb_dp.sql.owned.totals import fits

LARGEST = {
    "TINYINT": "127",
    "SMALLINT": "32767",
    "INTEGER": "2147483647",
    "BIGINT": "9223372036854775807",
    "UTINYINT": "255",
    "USMALLINT": "65535",
    "UINTEGER": "4294967295",
    "UBIGINT": "18446744073709551615",
    "HUGEINT": "170141183460469231731687303715884105727",
    "UHUGEINT": "340282366920938463463374607431768211455",
    "FLOAT": "3.4e38",
    "DOUBLE": "1.7e308",
    **{
        f"DECIMAL({digits},{scale})": f"{'9' * (digits - scale)}.{'9' * scale}".rstrip(".")
        for digits, scale in (
            (4, 1),
            (10, 2),
            (18, 0),
            (18, 2),
            (18, 18),
            (19, 0),
            (20, 1),
            (38, 0),
            (38, 2),
            (38, 10),
            (38, 19),
            (38, 38),
        )
    },
}
"""Types, and their largest values; the least are as long."""
COMPARED = (
    "a = b",
    "a <> b",
    "a < b",
    "a >= b",
    "a IS DISTINCT FROM b",
    "a BETWEEN b AND b",
    "a IN (b)",
    "coalesce(a, b) IS NULL",
    "hash(coalesce(a, b)) > 0",
)


def values(type_: str) -> list[str]:
    found = [LARGEST[type_], "0", "NULL"]
    found += [] if type_.startswith("U") else [f"-{LARGEST[type_]}"]
    return found + (["nan", "inf", "-inf"] if type_ in ("FLOAT", "DOUBLE") else [])


@pytest.mark.parametrize("first", LARGEST)
def test_what_fits_never_fails(first: str) -> None:
    """And of exact numbers what is said not to fit fails on some value."""
    with duckdb.connect() as con:
        for second in LARGEST:
            failed = False
            con.execute("CREATE OR REPLACE TABLE t (a VARCHAR, b VARCHAR)")
            con.executemany(
                "INSERT INTO t VALUES (?, ?)", [list(pair) for pair in itertools.product(values(first), values(second))]
            )
            con.execute("UPDATE t SET a = nullif(a, 'NULL'), b = nullif(b, 'NULL')")
            rows = f"(SELECT a::{first} AS a, b::{second} AS b FROM t)"
            for text in COMPARED:
                try:
                    con.execute(f"SELECT max(({text})::INTEGER) FROM {rows}").fetchall()
                except duckdb.Error:
                    failed = True
            assert not (failed and fits(first, second)), second
            if {first, second} <= {type_ for type_ in LARGEST if type_.startswith("DECIMAL")}:
                assert failed or fits(first, second), second


@pytest.mark.parametrize(
    "type_", [type_ for type_ in LARGEST if type_.startswith("DECIMAL") and int(type_[8:10].strip(",")) <= 18]
)
def test_sums_of_short_decimals_do_not_overflow(type_: str) -> None:
    """As many rows as there can be: 2^63 of them are less than the 38 digits of the sum."""
    with duckdb.connect() as con:
        scale = type_.partition(",")[2]
        assert con.execute(f"SELECT typeof(sum({LARGEST[type_]}::{type_}))").fetchall() == [(f"DECIMAL(38,{scale}",)]
    digits = int(LARGEST[type_].replace(".", ""))
    assert 2**63 * digits < 10**38
