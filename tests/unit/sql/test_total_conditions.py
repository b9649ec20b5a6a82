"""Conditions that are said not to fail do not fail on any value, and hold where they hold inside TRY."""

import duckdb
import pytest

from duckdb_dp.sql.row_source import holds
from duckdb_dp.sql.total_conditions import NUMBERS, parts

VALUES = {
    "TINYINT": "[-128, 127, 0, NULL]",
    "UBIGINT": "[0, 18446744073709551615, NULL]",
    "BIGINT": "[-9223372036854775808, 9223372036854775807, 0, NULL]",
    "DOUBLE": "[0.5, 'nan'::DOUBLE, 'inf'::DOUBLE, -1e308, NULL]",
    "DECIMAL(18,18)": "[0.999999999999999999, -0.5, NULL]",
    "DECIMAL(18,0)": "[999999999999999999, -1, NULL]",
    "VARCHAR": "['', 'a', '12', 'x%', NULL]",
    "DATE": "['infinity', '1994-01-01', '-infinity', NULL]",
}
NUMERIC = [
    "c < 5",
    "c >= -1.5",
    "c BETWEEN 0.05 AND 999999999999999",
    "c BETWEEN 0.06 - 0.01 AND 2 * 3.5",
    "c IN (1, 2.5, 1e300)",
    "NOT (c = 0.0000000000001)",
    "c <> -128 OR c > c",
]
CONDITIONS = {
    "VARCHAR": [
        "c LIKE 'x%'",
        "NOT c ILIKE '_'",
        "c = 'a'",
        "c IN ('a', 'b')",
        "c BETWEEN '' AND 'm'",
        "NOT c < 'zz'",
        "c >= c",
    ],
    "DATE": [
        "c < CAST('1994-01-01' AS DATE) + INTERVAL '1' YEAR",
        "c >= CAST('1994-01-01' AS DATE)",
        "c BETWEEN CAST('1994-01-01' AS DATE) AND CAST('1995-01-01' AS DATE)",
    ],
}
OTHERS = [
    "CAST(c AS TINYINT) = 5",
    "c + 1 > 2",
    "c / 0 > 1",
    "c = 'a' AND ln(c) > 0",
    "c < '5'",
    "c < 5 AND 1 / c > 0",
]


@pytest.mark.parametrize("type_", VALUES)
def test_total_conditions_hold_where_they_do_inside_try(type_: str) -> None:
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT CAST(unnest({VALUES[type_]}) AS {type_}) AS c")
        for text in CONDITIONS.get(type_, NUMERIC):
            ((shown, total),) = parts(text, {"c": type_})
            assert total, text
            ((same,),) = con.execute(f"SELECT bool_and(coalesce(({shown}), false) = {holds(text)}) FROM t").fetchall()
            assert same, text


@pytest.mark.parametrize("type_", VALUES)
def test_what_may_fail_is_not_said_to_be_total(type_: str) -> None:
    for text in OTHERS:
        if type_ in ("VARCHAR", "DATE") or "'" not in text:
            assert not all(total for _, total in parts(text, {"c": type_})) or (
                type_ == "VARCHAR" and text == "c < '5'"
            ), text


def test_wide_decimals_and_long_numbers_are_left_to_try() -> None:
    assert parts("c < 5", {"c": "DECIMAL(19,2)"}) == [("c < 5", False)]
    assert parts("c < 5", {"c": "HUGEINT"}) == [("c < 5", False)]
    assert parts("c < 1234567890123456", {"c": "BIGINT"}) == [("c < 1234567890123456", False)]
    assert "HUGEINT" not in NUMBERS
    assert parts("c < 5 AND 1 / c > 0", {"c": "BIGINT"}) == [("c < 5", True), ("1 / c > 0", False)]
