"""Expressions of a row have the values in other engines that DuckDB gives them, and fail on none; those that may not are refused."""

import itertools
import math
from typing import Any

import duckdb
import pytest

from duckdb_dp.counting.engines.source import Source
from duckdb_dp.errors import DPError

ODD = """
SELECT row_number() OVER () AS id, * FROM (VALUES
  (1::TINYINT, 1::INTEGER, 1::BIGINT, 0.5::DOUBLE, 0.25::FLOAT, 10.10::DECIMAL(9, 2), 'a', DATE '2020-01-31', TIMESTAMP '2020-01-01 00:00:00', true),
  (127, 2147483647, 9223372036854775807, 'NaN', 'inf', 99.99, 'ünï', DATE '2020-02-29', TIMESTAMP '2020-03-29 02:30:00.000001', false),
  (-128, -2147483648, '-9223372036854775808', 'inf', '-inf', -0.01, 'A', DATE '1969-12-31', TIMESTAMP '1999-12-31 23:59:59.999999', NULL),
  (0, 0, 0, '-inf', 'NaN', 0.00, '', DATE '9999-12-31', TIMESTAMP '9999-12-31 00:00:00', true),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (-1, 65536, -1, -0.0, -0.0, 9999999.99, '日本', DATE '0001-01-01', TIMESTAMP '0001-01-01 00:00:00', true),
  (3, -46341, 4294967296, 1e300, 3e38, -9999999.99, 'a ', DATE '2020-12-31', TIMESTAMP '2020-12-31 23:59:59', false),
  (7, 46340, 9007199254740993, 5e-324, 1e-45, 2.50, 'b', DATE '1970-01-01', TIMESTAMP '1970-01-01 00:00:00', false)
) t(tiny, whole, big, real, single, money, label, day, moment, flag)
"""
COLUMNS = ["tiny", "whole", "big", "real", "single", "money", "label", "day", "moment", "flag"]
LITERALS = [
    "0",
    "1",
    "-1",
    "127",
    "2.5",
    "0.0",
    "1e3",
    "'a'",
    "'2020-01-31'",
    "DATE '2020-01-01' + INTERVAL 1 MONTH",
    "true",
    "NULL",
]
FORMS = [
    "{a} = {b}", "{a} <> {b}", "{a} < {b}", "{a} >= {b}", "{a} IN ({b}, {b})", "{a} BETWEEN {b} AND {b}", "NOT ({a} <= {b})",
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "{a} / nullif({b}, 0)", "nullif({a}, {b})", "coalesce({a}, {b})",
    "CASE WHEN {a} > {b} THEN {a} ELSE {b} END", "CASE WHEN {a} IS NULL THEN {b} END", "{a} > {b} OR {b} = {a}", "{a} + 1 > {b}",
    "{a} * {a} + {b} * 2", "{a} + {a} + {b}",
]  # fmt: skip
ALONE = [
    "{a}", "-{a}", "abs({a})", "{a} IS NULL", "{a} IS NOT NULL", "NOT {a}", "year({a})", "quarter({a})", "month({a})", "day({a})",
    "extract(year FROM {a})", "CAST({a} AS DOUBLE)", "CAST({a} AS INTEGER)", "TRY_CAST({a} AS TINYINT)", "CAST({a} AS BIGINT)",
    "CAST({a} AS DATE)", "CASE WHEN {a} THEN 1 ELSE 0 END", "{a} AND {a} IS NOT NULL", "{a} * {a} * {a}", "CAST({a} AS DOUBLE) * 2.5 - 1",
    "CAST({a} + 1 AS SMALLINT)", "{a} + 1 > 0 AND {a} > 0",
]  # fmt: skip
REFUSED = [
    "{a} % 2", "{a} // 2", "{a} / {a}", "{a} LIKE 'a%'", "upper({a})", "length({a})", "{a} || 'x'", "sqrt({a})", "round({a}, 1)", "random()",
    "concat({a}, 'x')", "TRY_CAST({a} AS DECIMAL(3, 1))", "date_trunc('month', {a})", "hash({a})", "greatest({a}, 1)", "{a} IS TRUE",
]  # fmt: skip


def same(mine: Any, theirs: Any) -> bool:
    """NaN is NaN, and what is worked out of decimals is a DOUBLE."""
    if mine is None or theirs is None:
        return mine is theirs
    if isinstance(mine, float) and math.isnan(mine):
        return bool(theirs != theirs)
    if isinstance(theirs, float) and not isinstance(mine, str | bool):
        return math.isclose(float(mine), theirs, rel_tol=1e-15) or float(mine) == theirs
    return bool(mine == theirs)


@pytest.fixture(scope="module")
def odd(put: Any) -> Any:
    """Make a connection with the rows, the same rows in the engine, and their types."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE odd AS {ODD}")
    types = {name: type_ for name, type_, *_ in con.execute("DESCRIBE odd").fetchall()}
    yield con, put(con, "FROM odd"), types
    con.close()


def compare(odd: Any, texts: list[str]) -> tuple[int, int]:
    """How many of the expressions the engine has, and how many are refused; all that it has are DuckDB's."""
    from duckdb_dp.sql.engines.rows import Rows

    con, table, types = odd
    rows = Rows("there", {name: (table[name], type_) for name, type_ in types.items()})
    read, fitting, refused = {}, [], 0
    for text in texts:
        try:
            found = con.execute(f"SELECT TRY({text}) FROM odd ORDER BY id").fetchall()
        except duckdb.Error:
            continue  # of types that do not fit
        try:
            value = rows.value(text).ibis
        except DPError as error:
            assert "\n" not in str(error)
            refused += 1
            continue
        read[f"v{len(fitting)}"] = value.cast("string") if value.type().is_temporal() else value
        fitting.append((text, found))
    for first in range(0, len(fitting), 80):
        names = list(read)[first : first + 80]
        asked = {"id": table["id"], **{name: read[name] for name in names}}
        answers = Source.of("odd", table).fetch(lambda rows, asked=asked: rows.select(**asked).order_by("id"))
        for name in names:
            text, found = fitting[int(name[1:])]
            for (mine,), theirs in zip(found, answers[name].to_pylist(), strict=True):
                moment = isinstance(theirs, str) and not isinstance(mine, str) and mine is not None
                assert same(str(mine) if moment else mine, theirs), (text, mine, theirs)
    return len(fitting), refused


@pytest.mark.some(1, "backend")
@pytest.mark.parametrize("form", FORMS)
def test_expressions_of_two_have_duckdbs_values(odd: Any, form: str) -> None:
    pairs = [*itertools.product(COLUMNS, LITERALS), *itertools.combinations(COLUMNS, 2)]
    answered, _ = compare(odd, [form.format(a=a, b=b) for a, b in pairs])
    assert answered > 10


def test_expressions_of_one_have_duckdbs_values(odd: Any) -> None:
    answered, _ = compare(odd, [form.format(a=a) for form in ALONE for a in COLUMNS])
    assert answered > len(ALONE) * 3


def test_what_may_differ_is_refused(odd: Any) -> None:
    answered, refused = compare(odd, [form.format(a=a) for form in REFUSED for a in COLUMNS])
    assert answered == 0
    assert refused > len(REFUSED) * 2
