"""GROUP BY of what nobody declared and the conditions list: values, days, and what is worked out of them."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from sqlglot import parse_one

import duckdb_dp.testing
from duckdb_dp.sql.declared_groups import finest_unit
from tests.conftest import Loaded

TABLE = """
CREATE TABLE t AS SELECT i AS id, DATE '2024-01-01' + (i % 90)::INTEGER AS day, TIMESTAMP '2024-01-01' + INTERVAL 7 HOUR * (i % 140) AS ts,
    ((i % 8) / 4)::DECIMAL(5, 2) AS price, [1.5, 1234567890123456.78][1 + i % 2]::DECIMAL(18, 2) AS large, TIME '08:00' + INTERVAL 1 HOUR * (i % 5) AS tm, (i % 8) / 4 AS x, i % 5 AS k, ['a', 'b'][1 + i % 2] AS c
FROM range(6000) r(i)
"""
LISTED = [
    ("day", "day BETWEEN DATE '2024-01-02' AND DATE '2024-01-05'"),
    ("day", "day >= '2024-01-02' AND day < DATE '2024-01-02' + INTERVAL 3 DAY"),
    ("day", "day BETWEEN '2024-01-02' AND '2024-01-20' AND dayofweek(day) = 1"),
    ("day", "'2024-01-04' > day AND day > '2024-01-01 12:00'::TIMESTAMP"),
    ("day", "day = DATE '2024-01-02'"),
    ("day", "day IN (DATE '2024-01-02', '2024-1-7')"),
    ("day", "day IN ('2024-01-02', '2024-01-07') AND day > '2024-01-03'"),
    ("ts", "ts = TIMESTAMP '2024-01-01 07:00'"),
    ("ts", "ts IN ('2024-01-01 07:00', '2024-01-01 14:00:00')"),
    ("ts::DATE", "ts >= '2024-01-02' AND ts < '2024-01-07'"),
    ("date_trunc('day', ts)", "ts BETWEEN '2024-01-02' AND '2024-02-07 20:00'"),
    ("date_trunc('week', ts)", "ts BETWEEN '2024-01-02' AND '2024-02-07'"),
    ("date_trunc('day', ts)", "ts::DATE BETWEEN '2024-01-02' AND '2024-01-07'"),
    ("date_trunc('day', ts)", "ts::DATE > '2024-01-02' AND '2024-01-07' > ts::DATE"),
    ("month(ts)", "ts >= '2024-01-01' AND ts < '2024-02-10'"),
    ("month(ts)", "year(ts) = 2024 AND ts < '2024-02-10'"),
    ("EXTRACT(day FROM ts)", "ts >= '2024-01-02' AND ts < '2024-01-07'"),
    ("strftime(ts::DATE, '%d')", "ts BETWEEN '2024-01-02' AND '2024-01-07 20:00'"),
    ("strftime(ts, '%d %H')", "ts >= '2024-01-01' AND ts < '2024-01-01 01:00'"),
    ("strftime(ts, '%Y-%m')", "ts BETWEEN '2024-01-02' AND '2024-02-07 20:00'"),
    ("time_bucket(INTERVAL '7 days', ts)", "ts BETWEEN '2024-01-02' AND '2024-02-07'"),
    ("time_bucket(INTERVAL 2 WEEK, ts, TIMESTAMP '2024-01-01')", "ts BETWEEN '2024-01-02' AND '2024-02-07'"),
    ("time_bucket(INTERVAL 1 MONTH, day)", "day BETWEEN '2024-01-02' AND '2024-03-07'"),
    ("time_bucket(INTERVAL '14 hours', ts)", "ts >= '2024-01-01' AND ts < '2024-02-07'"),
    ("date_trunc('month', day)", "day BETWEEN '2024-01-02' AND '2024-03-07'"),
    ("tm", "tm IN ('08:00', '09:00:00')"),
    ("tm", "tm = TIME '08:00:00'"),
    ("price", "price IN (1.5, 0.25)"),
    ("price", "price = 1.50"),
    ("x", "x IN (1.5, 0.5) AND x < 1"),
    ("k", "k BETWEEN 1 AND 3"),
    ("k * 10", "k BETWEEN 1 AND 3"),
    ("k % 2", "k IN (1, 2) AND k < 2"),
    ("upper(c)", "c IN ('a', 'b')"),
]


@pytest.fixture(scope="module", params=["", ", discovery_delta := 5e-10"], ids=["plain", "discovering"])
def exact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    connection, folder = duckdb.connect(), tmp_path_factory.mktemp("listed") / "l.dp"
    connection.execute(TABLE)
    duckdb_dp.testing.load_exact(connection, folder)
    connection.execute(f"CALL dp_protect('t', epsilon := 1000, delta := 1e-9{request.param})")
    yield Loaded(connection, folder)
    connection.close()


BUCKETS = [
    "INTERVAL '90 minutes', ts", "INTERVAL '3 hours', ts", "INTERVAL '1 day', ts", "INTERVAL '10 days', ts, DATE '2023-12-31'",
    "INTERVAL '1 week', ts, TIMESTAMP '2024-01-02 00:00:00'", "INTERVAL '1 quarter', ts", "INTERVAL '1 year', ts", "INTERVAL 45 MINUTE, ts",
]  # fmt: skip
WIDE = [
    "INTERVAL '1 day', ts, TIMESTAMP '2024-01-01 12:30'",
    "INTERVAL '1 day', ts, INTERVAL '90 minutes'",
    "INTERVAL '1 day 30 minutes', ts",
]


@pytest.mark.some(3)
@pytest.mark.parametrize("bucket", BUCKETS)
def test_every_row_is_in_a_bucket_of_its_own(exact: Loaded, bucket: str) -> None:
    """Of all moments of some days, of which each starts in another part of a bucket."""
    key = f"time_bucket({bucket})"
    select = f"SELECT {key} AS g, count(*) AS n FROM t WHERE ts >= '2024-01-01 05:00' AND ts < '2024-01-09' GROUP BY g"
    found = {g: round(n) for g, n, *_ in exact("FROM dp_sql(?, epsilon := 3)", [select]) if n}
    assert found == dict(exact(select))


@pytest.mark.parametrize("bucket", WIDE)
def test_buckets_that_start_within_a_unit_are_not_listed(bucket: str) -> None:
    assert finest_unit(parse_one(f"time_bucket({bucket})", dialect="duckdb"), "ts") is None


@pytest.mark.some(2)
@pytest.mark.parametrize(("key", "condition"), LISTED)
def test_the_groups_are_those_of_the_conditions(exact: Loaded, key: str, condition: str) -> None:
    """And no others, of the same type, for one charge."""
    select = f"SELECT {key} AS g, count(*) AS n FROM t WHERE {condition} GROUP BY g"
    charges = exact.charges()
    asked = exact.connection.execute("FROM dp_sql(?, epsilon := 3)", [select])
    kind = asked.description[0][1]
    found = [(row[0], round(row[1])) for row in asked.fetchall()]
    truth = exact.connection.execute(select)
    assert kind == truth.description[0][1]
    assert sorted(found, key=str) == sorted(truth.fetchall(), key=str)
    assert exact.charges() == charges + 1


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("key", "condition", "groups"),
    [
        ("date_trunc('hour', ts)", "ts >= '2024-01-02' AND ts < '2024-01-03'", 24),
        ("date_trunc('hour', ts)", "ts BETWEEN '2024-01-02 03:30' AND '2024-01-02 05:00'", 3),
        ("date_trunc('hour', ts)", "ts > '2024-01-02 03:00' AND ts < '2024-01-02 05:00'", 2),
        ("date_trunc('hour', ts)", "ts::DATE = '2024-01-02'", 24),
        ("date_trunc('minute', ts)", "ts >= '2024-01-02' AND ts < '2024-01-02 10:00'", 600),
        ("hour(ts)", "ts BETWEEN '2024-01-02 03:30' AND '2024-01-02 05:00'", 3),
        ("hour(ts) // 6", "ts::DATE <= '2024-01-03' AND ts::DATE > '2024-01-02'", 4),
        ("date_trunc('month', ts)", "year(ts) >= 2024 AND year(ts) < 2025", 12),
        ("date_trunc('month', ts)", "year(ts) BETWEEN 2023 AND 2024", 24),
        ("date_trunc('hour', ts)", "ts::DATE > '2024-01-01' AND ts::DATE < TIMESTAMP '2024-01-03 12:00'", 48),
        (
            "date_trunc('hour', ts)",
            "ts::DATE > TIMESTAMP '2024-01-01 12:00' AND ts::DATE <= TIMESTAMP '2024-01-03 12:00'",
            48,
        ),
        ("date_trunc('hour', ts)", "ts::DATE BETWEEN '2024-01-01' AND TIMESTAMP '2024-01-03 12:00'", 72),
        ("day(day)", "day BETWEEN '2024-01-02' AND '2024-01-03'", 2),
    ],
)
def test_times_between_two_others_are_groups(exact: Loaded, key: str, condition: str, groups: int) -> None:
    """Those that no row has too, and no others."""
    select = f"SELECT {key} AS g, count(*) AS n FROM t WHERE {condition} GROUP BY g"
    found = dict(exact("SELECT g, round(n)::INTEGER FROM dp_sql(?, epsilon := 3)", [select]))
    assert len(found) == groups
    assert {g: n for g, n in found.items() if n} == dict(exact.connection.execute(select).fetchall())


@pytest.mark.parametrize(
    ("key", "condition"),
    [
        ("ts", "ts BETWEEN '2024-01-02' AND '2024-01-07'"),
        ("date_trunc('second', ts)", "ts BETWEEN '2024-01-02' AND '2024-01-07'"),
        ("date_trunc('millisecond', ts)", "ts BETWEEN '2024-01-02' AND '2024-01-02 00:00:01'"),
        ("ts::DATE", "ts >= '2024-01-15' AND year(ts) < 2024.4"),
        ("strftime(ts, '%H:%f')", "ts BETWEEN '2024-01-02' AND '2024-01-03'"),
        ("price", "price BETWEEN 0 AND 1"),
        ("day", "day > '2024-01-02'"),
        ("day", "day BETWEEN '0001-01-01' AND '9999-12-31'"),
        ("day", "day BETWEEN '0001-01-01 (BC)' AND '0002-01-01'"),
        ("day", "day > '9999-12-30' AND day < '10000-01-03'"),
        ("large", "large IN (1.5, 1234567890123456.78)"),
        ("k", "k <> 3"),
        ("k + id", "k BETWEEN 1 AND 3"),
        ("k", "k BETWEEN 1 AND id"),
    ],
)
def test_what_is_not_listed_is_declared(tmp_path: Path, key: str, condition: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        duckdb_dp.testing.load(connection, tmp_path / "l.dp", seed=1)
        connection.execute("CALL dp_protect('t', epsilon := 10, delta := 1e-9)")
        message = Loaded(connection, tmp_path).refused(
            "FROM dp_sql(?, epsilon := 1)", [f"SELECT {key} AS g, count(*) AS n FROM t WHERE {condition} GROUP BY g"]
        )
        assert "has no declared domain" in message
        assert connection.execute("SELECT count(*) FROM dp_ledger() WHERE function <> 'dp_protect'").fetchone() == (0,)


BINNED = {
    "day": "{'low': DATE '2024-01-01', 'high': DATE '2024-03-30', 'step': INTERVAL 1 MONTH}",
    "ts": "{'low': TIMESTAMP '2024-01-01', 'high': TIMESTAMP '2024-02-12', 'step': INTERVAL 1 WEEK}",
    "tm": "{'low': TIME '00:00', 'high': TIME '23:59:59', 'step': INTERVAL 6 HOUR}",
    "price": "{'bins': [0, 1, 2]}",
    "x": "{'bins': [0, 1, 2]}",
    "k": "{'bins': [0, 2, 5]}",
    "c": "{'values': ['a'], 'other': true}",
}
"""Declarations whose cells do not decide the conditions."""


CUT = [
    ("day", "day BETWEEN DATE '2024-01-02' AND DATE '2024-01-05'", 1),
    ("day", "'2024-02-04' > day AND day > '2024-01-01 12:00'::TIMESTAMP", 2),
    ("day", "day = DATE '2024-02-02'", 1),
    ("day", "day IN ('2024-01-02', '2024-03-07') AND day < '2024-03-01'", 1),
    ("ts", "ts BETWEEN '2024-01-10' AND '2024-01-20 12:00:00'", 2),
    ("tm", "tm = TIME '08:00:00' OR tm = '12:00'", 2),
    ("price", "price < 0.5", 1),
    ("x", "x >= 1.25", 1),
    ("k", "k <> 3 AND k > 2", 1),
]
"""Conditions that cut through bins, and how many bins have values that satisfy them."""


@pytest.fixture(scope="module")
def binned(exact: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    connection, folder = duckdb.connect(), tmp_path_factory.mktemp("binned") / "l.dp"
    connection.execute(TABLE)
    duckdb_dp.testing.load_exact(connection, folder)
    finds = exact.connection.execute("SELECT max(discovery_delta) > 0 FROM dp_budget()").fetchall()[0][0]
    connection.execute(
        f"CALL dp_protect('t', epsilon := 1000, delta := 1e-9{', discovery_delta := 5e-10' if finds else ''})"
    )
    for column, declared in BINNED.items():
        connection.execute(f"CALL dp_attributes('t', {{'{column}': {declared}}})")
    yield Loaded(connection, folder)
    connection.close()


@pytest.mark.some(2)
@pytest.mark.parametrize(("key", "condition"), [one for one in LISTED if one[0] not in BINNED])
def test_expressions_that_declared_cells_do_not_decide_are_listed_too(binned: Loaded, key: str, condition: str) -> None:
    test_the_groups_are_those_of_the_conditions(binned, key, condition)


@pytest.mark.some(2)
@pytest.mark.parametrize(("key", "condition", "groups"), CUT)
def test_bins_without_a_value_that_satisfies_a_condition_are_no_groups(
    binned: Loaded, key: str, condition: str, groups: int
) -> None:
    select = f"SELECT {key} AS g, count(*) AS n FROM t WHERE {condition} GROUP BY g"
    found = [round(n) for (n,) in binned("SELECT n FROM dp_sql(?, epsilon := 3)", [select])]
    ((rows,),) = binned.connection.execute(f"SELECT count(*) FROM t WHERE {condition}").fetchall()
    assert len(found) == groups
    assert sum(found) == rows


OTHERS = [
    "g <> 'a'", "g NOT IN ('a', 'b')", "NOT g = 'a'", "g LIKE 'a%'", "g NOT LIKE '%b'", "g ILIKE 'A_'", "g IS NOT NULL", "g IS NULL",
    "g < 'b'", "length(g) = 2", "upper(g) IN ('A', 'C')", "g IN ('a', 'ab')", "g = 'b' OR g = 'c'", "starts_with(g, 'c')", "g BETWEEN 'a' AND 'b'",
]  # fmt: skip
"""Conditions on a column of texts, not all of which are declared."""


@pytest.fixture(scope="module")
def others(exact: Loaded) -> Loaded:
    for table, nulls in (("o", ""), ("o_nulls", ", nulls := true")):
        exact(
            f"CREATE TABLE {table} AS SELECT (['a', 'ab', 'b', 'c', 'zz', NULL])[1 + i % 6] AS g, 1 AS x FROM range(600) t(i)"
        )
        exact(
            f"CALL dp_protect('{table}', mu := 10000, delta := 1e-9); CALL dp_attribute('{table}', 'x', low := 0, high := 1)"
        )
        exact(f"""CALL dp_attribute('{table}', 'g', "values" := ['a', 'ab', 'b', 'c'], other := true{nulls})""")
    return exact


@pytest.mark.some(2)
@pytest.mark.parametrize("table", ["o", "o_nulls"])
@pytest.mark.parametrize("aggregate", ["count(*)", "sum(x)"])
@pytest.mark.parametrize("condition", OTHERS)
def test_beside_other_are_no_values_that_do_not_satisfy_a_condition(
    others: Loaded, condition: str, aggregate: str, table: str
) -> None:
    select = f"SELECT g, {aggregate} AS n FROM {table} WHERE {condition} GROUP BY g"
    found = dict(others("SELECT g, n FROM dp_sql(?, mu := 100)", [select]))
    true: dict[str | None, int] = {}
    for g, n in others(f"SELECT g, count(*) FROM {table} WHERE {condition} GROUP BY g"):
        label = g if g in ("a", "ab", "b", "c") or (g is None and table == "o_nulls") else "other"
        true[label] = true.get(label, 0) + n
    assert {g: round(float(n)) for g, n in found.items() if round(float(n))} == true
    assert set(found) <= set(true) | {"other"}


def test_a_cell_of_zero_stays_for_what_negative_zero_satisfies(exact: Loaded) -> None:
    exact("CREATE TABLE z AS SELECT (['0.0', '-0.0', '1.5', '2.5'])[1 + i % 4]::DOUBLE AS f FROM range(400) t(i)")
    exact(
        """CALL dp_protect('z', mu := 1000, delta := 1e-9); CALL dp_attribute('z', 'f', "values" := [0.0, 1.5], other := true)"""
    )
    for condition in ("1 / f < 0", "f::VARCHAR = '-0.0'"):
        found = dict(
            exact(
                "SELECT f, n FROM dp_sql(?, mu := 100)",
                [f"SELECT f, count(*) AS n FROM z WHERE {condition} GROUP BY f"],
            )
        )
        assert round(sum(n for f, n in found.items() if f != "other")) == 100
