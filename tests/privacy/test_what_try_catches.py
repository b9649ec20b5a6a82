"""What an expression of a row may be made of fails inside TRY for every value, or is refused by its text: else an error would be a bit.

DuckDB's TRY does not catch what DuckDB has not implemented for a value, nor its internal errors.
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import duckdb
import pytest
from sqlglot import parse_one
from sqlglot.errors import ParseError

from duckdb_dp.domain.row_expressions import checked
from duckdb_dp.errors import DPError
from duckdb_dp.sql import zones
from duckdb_dp.sql.opaque import with_opaque_columns
from duckdb_dp.sql.owned.totals import typed
from duckdb_dp.sql.total_conditions import parts
from duckdb_dp.sql.typed import type_of

COLUMNS = {
    "n": ("BIGINT", ["0", "-1", "13", "'-9223372036854775808'", "9223372036854775807", "'-9223372036854775'", "'-9223372036800000000'", "2147483647"]),
    "h": ("HUGEINT", ["0", "170141183460469231731687303715884105727", "'-170141183460469231731687303715884105728'"]),
    "x": ("DOUBLE", ["0", "-1.5", "'nan'", "'inf'", "'-inf'", "1e308", "5e-324"]),
    "d": ("DECIMAL(38,10)", ["0", "9999999999999999999999999999.9999999999", "-1.5"]),
    "b": ("BOOLEAN", ["true", "false"]),
    "s": ("VARCHAR", ["''", "'a'", "'('", "'%'", "'year'", "'era'", "'nonsense'", "'\\'", "'2020-01-01'", "'infinity'", "chr(0)", "'-9'"]),
    "dt": ("DATE", ["'2000-01-01'", "'infinity'", "'-infinity'", "'5877642-06-25 (BC)'", "'5881580-07-10'"]),
    "tm": ("TIME", ["'10:00'", "'24:00:00'", "'00:00'"]),
    "ts": ("TIMESTAMP", ["'2000-01-01'", "'infinity'", "'-infinity'", "'290309-12-22 (BC) 00:00:00'", "make_timestamp(-9223372036800000000)"]),
    "tq": ("TIMESTAMP_MS", ["'2000-01-01'", "make_timestamp(-9223372036800000000)::TIMESTAMP_MS", "'infinity'"]),
    "tn": ("TIMESTAMP_NS", ["'2000-01-01'", "'1677-09-22'", "'infinity'"]),
    "tz": ("TIMESTAMP WITH TIME ZONE", ["'2000-01-01 00:00:00+00'", "'infinity'", "'-infinity'", "'290309-12-22 (BC) 00:00:00+00'", "'294246-12-31 23:59:59+00'",
           "make_timestamptz(-9223372036800000000)", "make_timestamptz(9223372036854775806)"]),
}  # fmt: skip
UNITS = ["millennium", "century", "decade", "year", "quarter", "month", "week", "day", "hour", "second", "microsecond",
         "dow", "isodow", "doy", "isoyear", "yearweek", "epoch", "era", "timezone", "julian"]  # fmt: skip
ONE = [
    "CAST({0} AS VARCHAR)", "CAST({0} AS DATE)", "CAST({0} AS TIMESTAMP)", "CAST({0} AS TIMESTAMP_S)", "CAST(CAST({0} AS TIMESTAMP_MS) AS VARCHAR)",
    "CAST({0} AS TIME)", "CAST({0} AS TINYINT)", "CAST({0} AS DECIMAL(5,2))", "CAST({0} AS BOOLEAN)", "CAST({0} AS TIMESTAMP_NS)", "-{0}", "abs({0})",
    "concat({0}, 'a')", "{0} || ''", "concat_ws({0}, 'a', 'b')", "lower({0})", "length({0})", "trim({0})", "reverse({0})", "ascii({0})", "chr({0})",
    "md5({0})", "hash({0})", "year({0})", "month({0})", "week({0})", "dayofweek({0})", "isodow({0})", "dayofyear({0})", "weekofyear({0})", "yearweek({0})",
    "isoyear({0})", "century({0})", "decade({0})", "weekday({0})", "dayname({0})", "monthname({0})", "hour({0})", "second({0})", "epoch({0})",
    "last_day({0})", "epoch_ms({0})", "make_timestamp({0})", "make_timestamp_ms({0})", "CAST(epoch_ms({0}) AS VARCHAR)",
    "CAST(make_timestamp({0}) AS VARCHAR)", "make_timestamp_ms({0}) || ''", "strftime({0}, '%Y-%m-%d %j')", "strftime({0}, s)", "strptime({0}, '%Y')",
    "try_strptime({0}, '%Y')", "strptime('a', {0})", "regexp_extract({0}, '(a)(b)', 2)", "regexp_extract('a', {0})", "regexp_matches('a', {0})",
    "regexp_replace('a', {0}, '\\9')", "regexp_full_match({0}, 'a')", "{0} LIKE '%a'", "'a' LIKE {0}", "'a' LIKE 'b' ESCAPE {0}", "{0} SIMILAR TO {0}",
    "{0} GLOB 'a*'", "split_part({0}, ' ', 1)", "split_part('a', {0}, 2)", "lpad('x', 3, {0})", "rpad({0}, 3, 'x')", "replace('a', 'a', {0})",
    "translate({0}, 'a', 'b')", "jaccard('a', {0})", "starts_with({0}, 'a')", "suffix({0}, 'a')", "strlen({0})", "bit_count({0})",
    "left('abc', {0})", "right('abc', {0})", "substring('abc', {0}, {0})", "{0}[1]", "round(1.5, {0})", "round({0}, 2)", "floor({0})", "sqrt({0})",
    "ln({0})", "log2({0})", "log({0}, 2)", "exp({0})", "power({0}, {0})", "{0} ** 99", "cbrt({0})", "asin({0})", "tan({0})", "degrees({0})", "sign({0})",
    "isnan({0})", "isinf({0})", "isfinite({0})", "{0} + INTERVAL 1 DAY", "{0} - INTERVAL 100000 YEAR", "{0} + INTERVAL (n) MONTH", "INTERVAL ({0}) DAY",
    "DATE '2000-01-01' + {0}", "TIMESTAMP '2000-01-01' + INTERVAL ({0}) MICROSECOND", "make_date({0}, {0}, {0})", "make_date(2000, {0}, 1)", "{0} << 3",
    "{0} & 1", "xor({0}, 3)", "time_bucket(INTERVAL 1 DAY, {0})", "time_bucket(INTERVAL 3 MONTH, {0}, DATE '2000-01-01')", "time_bucket(INTERVAL ({0}) DAY, ts)",
    "time_bucket(INTERVAL 1 DAY * {0}, ts)", "time_bucket(INTERVAL 0 MONTH, {0})", "date_part({0}, dt)", "date_part({0}, ts)", "date_part({0}, tm)",
    "date_part({0}, ts - ts)", "datepart({0}, ts)", "date_diff({0}, dt, dt)", "date_sub({0}, ts, ts)", "date_trunc({0}, ts)", "extract({0} FROM ts)",
    "CASE WHEN {0} THEN 1 END", "if({0}, 1, 0)", "coalesce({0}, {0})", "nullif({0}, {0})", "greatest({0}, {0})", "{0} IN (1, 2)", "{0} BETWEEN {0} AND {0}",
    *(f"date_part('{unit}', {{0}})" for unit in UNITS), *(f"date_trunc('{unit}', {{0}})" for unit in UNITS), *(f"extract({unit} FROM {{0}})" for unit in UNITS),
    *(f"date_part('{unit}', {{0}} - {{0}})" for unit in UNITS), *(f"extract({unit} FROM INTERVAL ({{0}}) DAY)" for unit in UNITS),
]  # fmt: skip
TWO = [
    *(f"{name}({{0}} - {{1}})" for name in ("week", "dayofweek", "isodow", "dayofyear", "yearweek", "isoyear", "weekday", "dayname", "year", "epoch", "last_day")),
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "{0} // {1}", "{0} % {1}", "{0} = {1}", "{0} < {1}", "{0} IS DISTINCT FROM {1}",
    "CAST({0} - {1} AS VARCHAR)", *(f"date_diff('{unit}', {{0}}, {{1}})" for unit in UNITS), *(f"date_sub('{unit}', {{0}}, {{1}})" for unit in UNITS),
]  # fmt: skip
OPERANDS = [
    "(ts - dt)",
    "(INTERVAL 3 DAY)",
    "(INTERVAL (n) MONTH)",
    "(dt - INTERVAL 1 DAY)",
    "(n > 1)",
    "(s || '!')",
    "hash(s)",
    "(n / 3)",
]
"""Of types that no column has, or that are worked out."""
PATTERNS = [
    f"{{0}} {negated}{like} {pattern} ESCAPE {sign}"
    for negated in ("", "NOT ") for like in ("LIKE", "ILIKE", "SIMILAR TO")
    for pattern in ("'a'", "'a!'", "'a!!'", "'!%'", "'%!_!!'", "s", "(s || '!')", "''") for sign in ("'!'", "'bc'", "''", "s", "'%'")
]  # fmt: skip
ZONED = [
    *(one.format(f"(tz AT TIME ZONE '{zone}')") for one in ("{0}", "CAST({0} AS DATE)", "CAST({0} AS VARCHAR)", "year({0})", "dayname({0})", "epoch({0})",
      "strftime({0}, '%Y-%m')", "last_day({0})", "{0} + INTERVAL 1 DAY", "CAST({0} AS TIME)", "time_bucket(INTERVAL 3 MONTH, {0})", "hour({0})", "{0} < ts")
      for zone in ("UTC", "Europe/Paris", "Pacific/Kiritimati")),
    *(f"date_trunc('{unit}', tz AT TIME ZONE 'America/New_York')" for unit in UNITS),
    *(f"extract({unit} FROM tz AT TIME ZONE 'America/New_York')" for unit in UNITS),
    *(f"date_diff('{unit}', tz AT TIME ZONE 'UTC', {other})" for unit in UNITS for other in ("ts", "dt", "tz AT TIME ZONE 'Asia/Tokyo'")),
    *(f"({one} AT TIME ZONE 'UTC') AT TIME ZONE 'Asia/Tokyo'" for one in ("ts", "dt", "tq", "tn")), "(ts AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo')::DATE",
    "(tz AT TIME ZONE 'UTC') - (tz AT TIME ZONE 'Asia/Tokyo')", "tz IS NULL", "tz < tz", "tz BETWEEN tz AND tz",
]  # fmt: skip
EXPRESSIONS = [
    *ZONED,
    *(one.format(c) for one in ONE for c in COLUMNS if c != "tz"),
    *(one.format(operand) for one in ONE for operand in OPERANDS),
    *(one.format(operand) for one in PATTERNS for operand in ("s", "(s || '!')", "'a'")),
    *(two.format(a, b) for two in TWO for a, b in itertools.product([*COLUMNS][:-1], repeat=2)),
    *(two.format(a, b) for two in TWO for a in OPERANDS[:4] for b in ("dt", "ts", "n", OPERANDS[1])),
]
TYPES = {name: type_ for name, (type_, _) in COLUMNS.items()}
PARTS = 12


@pytest.fixture(scope="module")
def made() -> Iterator[Any]:
    """Makes a database with extreme values of all types, again where an internal error has ended the last one."""
    opened: list[duckdb.DuckDBPyConnection] = []

    def make() -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config={"threads": 1})
        opened.append(connection)
        connection.execute("SET disabled_optimizers = 'common_subexpressions'")
        connection.execute(f"CREATE TABLE o ({', '.join(f'{name} {type_}' for name, type_ in TYPES.items())})")
        most = max(len(values) for _, values in COLUMNS.values())
        for shift in (0, 1, 3):
            for i in range(most):
                row = [
                    f"{values[(i + shift * k) % len(values)]}::{type_}"
                    for k, (type_, values) in enumerate(COLUMNS.values())
                ]
                connection.execute(f"INSERT INTO o VALUES ({', '.join(row)})")
        return connection

    yield make
    for connection in opened:
        connection.close()


def written(text: str) -> str | None:
    """The expression as dp_sql evaluates it; None of one that is refused by its text and its types."""
    try:
        node = checked(parse_one(text, dialect="duckdb"), {name: name for name in COLUMNS})
        zones.check(node, lambda column: TYPES[column.name])
        type_of(TYPES, node.sql("duckdb"))
    except (DPError, ParseError):
        return None
    return with_opaque_columns(node, lambda column: TYPES[column.name]).sql("duckdb")


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_value_makes_an_error_that_try_lets_through(made: Any, part: int) -> None:
    connection, seen, escaped = made(), 0, []
    for text in EXPRESSIONS[part::PARTS]:
        sql = written(text)
        if sql is None:
            continue
        seen += 1
        for asked in (f"TRY({sql})", f"TRY(CAST(({sql}) AS VARCHAR))", f"TRY(CAST(({sql}) AS DOUBLE))"):
            try:
                connection.execute(f"SELECT count({asked}), count(*) FILTER (WHERE {asked} IS NULL) FROM o").fetchall()
            except (duckdb.BinderException, duckdb.ConversionException) as error:
                # Of the types alone: the same without rows.
                with pytest.raises(type(error)):
                    connection.execute(f"SELECT {asked} FROM (SELECT * FROM o LIMIT 0)").fetchall()
            except duckdb.Error as error:
                escaped.append((text, str(error).splitlines()[0][:150]))
                connection = made()
    assert not escaped
    assert seen > len(EXPRESSIONS) // PARTS // 8


CONSTANTS = {
    "VARCHAR": "'a'",
    "BIGINT": "1",
    "DOUBLE": "1",
    "INTEGER": "1",
    "BOOLEAN": "true",
    "DATE": "DATE '2000-01-01'",
}


@pytest.mark.some(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_has_a_type_may_be_compared(part: int) -> None:
    """Types are found of a row of NULL, of which DuckDB may work out all beforehand: what fails there alone is answered too."""
    columns = {name: "DECIMAL(38,10)" if type_ == "HUGEINT" else type_ for name, type_ in TYPES.items()}
    compared, refused = 0, []
    for text in ONE[part::PARTS]:
        for column in COLUMNS:
            with suppress(DPError, ParseError):
                constant = CONSTANTS.get(type_of(columns, text.format(column)))
                if constant is None:
                    continue
                compared += 1
                asked = f"({text.format(column)}) = {constant}"
                for find in (
                    type_of,
                    lambda columns, asked: typed(asked, columns, lambda: parse_one(asked, dialect="duckdb")),
                ):
                    try:
                        assert find(columns, asked) == "BOOLEAN"
                    except DPError as error:
                        refused.append((asked, str(error)))
    assert not refused
    assert compared > 10


def test_the_law_finds_what_try_lets_through(made: Any) -> None:
    """That it is not caught is so in every version so far."""
    connection = made()
    with pytest.raises(duckdb.NotImplementedException):
        connection.execute("SELECT count(TRY(date_part(s, tm))) FROM o").fetchall()
    with pytest.raises(duckdb.SyntaxException):
        made().execute("SELECT count(TRY(s LIKE s ESCAPE s)) FROM o").fetchall()


@pytest.mark.parametrize(
    "text", ["abc", "", "99999999-01-01", "2024-02-30", "2024-2-3", "infinity", "0000-01-01", "2024-01-01 (BC)"]
)
def test_a_date_that_may_fail_is_inside_try(text: str) -> None:
    """Where no row is read DATE 'abc' does not fail: beside a condition on another column that would tell whether a row has that."""
    types = {"day": "DATE", "s": "VARCHAR"}
    for condition in (
        f"day > DATE '{text}'",
        f"day BETWEEN DATE '{text}' AND day",
        f"day IN (DATE '2024-01-01', DATE '{text}')",
    ):
        assert all(total == ("day" not in part) for part, total in parts(f"s = 'x' AND {condition}", types))
    assert all(total for _, total in parts("s = 'x' AND day > DATE '2024-02-29'", types))


PARTS_OF_DATES = ["week", "weekofyear", "dayofweek", "isodow", "weekday", "dayofyear", "yearweek", "isoyear"]
SPANS = [
    "(SELECT id, started - ended AS span FROM workers) w WHERE CASE WHEN id > 3 THEN {} = 1 ELSE false END",
    "(SELECT id, started - ended AS span FROM workers) w WHERE {} = 1",
    "workers JOIN (SELECT id, started, span FROM shifts JOIN workers USING (id)) w USING (id) WHERE {} = 1",
    "(SELECT id, max(span) AS span FROM shifts GROUP BY id) w WHERE {} IN (1, 2)",
    "workers WHERE (SELECT count(*) FROM shifts WHERE shifts.id = workers.id AND {} > 1) > 1",
    "(SELECT id, lag(span) OVER (PARTITION BY id ORDER BY seen) AS span FROM shifts) w WHERE coalesce({}, 3) = 1",
]


@pytest.mark.slow
def test_parts_of_dates_are_asked_of_no_interval(exact: Any) -> None:
    """One value would fail, in an error that TRY lets through: so they are refused by their types, whatever rows there are."""
    exact("""CREATE TABLE workers (id INTEGER PRIMARY KEY, started TIMESTAMP, ended TIMESTAMP);
    CREATE TABLE shifts (id INTEGER REFERENCES workers (id), seen DATE, span INTERVAL);
    INSERT INTO workers SELECT i, '2024-01-01'::TIMESTAMP + INTERVAL (i) DAY, '2024-01-01' FROM range(9) t(i);
    INSERT INTO shifts SELECT i % 9, '2024-01-01', INTERVAL (i) DAY FROM range(20) t(i);
    CALL dp_protect(['workers', 'shifts'], unit := 'workers.id', max_rows := 3, rho := 1e6)""")
    refused = 0
    for span in SPANS:
        for part in PARTS_OF_DATES:
            for text in (f"{part}(span)", f"extract({part} FROM span)", f"date_part('{part}', span)"):
                try:
                    exact("FROM dp_sql(?, rho := 1)", [f"SELECT count(*) AS n FROM {span.format(text)}"])
                except duckdb.Error as error:
                    assert str(error).startswith("Invalid Input Error: dp_sql: ")
                    refused += 1
        days = span.format("date_part('day', span)")
        assert exact("FROM dp_sql(?, rho := 1)", [f"SELECT count(*) AS n FROM {days}"])
    assert refused > len(SPANS) * len(PARTS_OF_DATES)


def test_nothing_is_worked_out_of_arrays(exact: Any) -> None:
    """DuckDB 1.4 has no CASE of them where a row has one."""
    exact("""CREATE TABLE texts (id INTEGER PRIMARY KEY, place FLOAT[2], n INTEGER); INSERT INTO texts SELECT i, [i, 1], i FROM range(9) t(i);
    CREATE TABLE reads (id INTEGER REFERENCES texts (id)); INSERT INTO reads SELECT i % 9 FROM range(20) t(i);
    CALL dp_protect(['texts', 'reads'], unit := 'texts.id', max_rows := 3, rho := 1e6)""")
    joined = "SELECT count(*) AS n FROM texts JOIN reads USING (id) WHERE "
    for text in (
        "coalesce(place, place)",
        "CASE WHEN n > 3 THEN place END",
        "if(n > 3, place, NULL)",
        "nullif(place, place)",
    ):
        refusal = exact.refused("FROM dp_sql(?, rho := 1)", [f"{joined}{text} IS NOT NULL"])
        assert "is FLOAT[2], of which nothing is worked out" in refusal
    assert exact("FROM dp_sql(?, rho := 1)", [f"{joined}place IS NOT NULL"])
