"""Conditions of one meaning are one request of one table too, and the form that they take has the same rows."""

import itertools
import random
from typing import Any

import duckdb
import pytest
from sqlglot import parse_one

from duckdb_dp.domain.row_expressions import checked
from duckdb_dp.sql.same_conditions import in_one_form
from tests.conftest import Loaded
from tests.sql.earlier_forms import as_in_form

SAME = [
    ("x BETWEEN 1 AND 5", "x >= 1 AND x <= 5", "5 >= x AND (1 <= x)", "NOT (x < 1 OR x > 5)"),
    ("x NOT BETWEEN 1 AND 5", "NOT (x >= 1 AND x <= 5)", "x > 5 OR x < 1"),
    ("x BETWEEN -3 AND 5", "x >= -3 AND x <= 5"),
    ("n BETWEEN 0.05 AND 0.07", "n >= 0.05 AND n <= 0.07", "n <= 0.07 AND 0.05 <= n"),
    ("n < 0.06 + 0.01", "0.07 > n"),
    ("x IN (2)", "x = 2", "2 = x", "NOT x <> 2"),
    ("x IN (2, 1, 3)", "x IN (1, 2, 3)", "x = 1 OR x = 2 OR x = 3", "x IN (1, 3) OR x = 2", "NOT (x <> 1 AND x NOT IN (2, 3))"),
    ("x NOT IN (2, 1)", "x <> 1 AND x <> 2", "NOT (x = 1 OR x = 2)"),
    ("t IN ('b', 'a')", "t = 'a' OR t = 'b'"),
    ("b", "b = true", "b <> false", "true = b", "NOT b = false"),
    ("NOT b", "b = false", "b <> true"),
    ("d >= '2024-02-01'", "d >= DATE '2024-02-01'", "'2024-02-01' <= d", "d >= CAST('2024-02-01' AS DATE)"),
    ("d BETWEEN '2024-02-01' AND '2024-02-29'", "d >= DATE '2024-02-01' AND d <= DATE '2024-02-29'"),
    ("d < DATE '2024-01-31' + INTERVAL 1 DAY", "d < DATE '2024-02-01'"),
    ("x > 1 AND t = 'a'", "q.t = 'a' AND 1 < q.x", "t = 'a' AND x > 1 AND x > 1", "TRUE AND (x > 1) AND t = 'a'"),
    ("t IS NOT NULL", "NOT t IS NULL"),
    ("year(d) = 2024 AND month(d) IN (1, 2)", "(month(d) = 1 OR month(d) = 2) AND 2024 = year(d)"),
]  # fmt: skip
"""Groups of conditions of one meaning."""

OTHERS = [
    ("x BETWEEN 1 AND 5", "x BETWEEN 5 AND 1"), ("x BETWEEN 1 AND 5", "x > 1 AND x <= 5"), ("b", "b IS NOT NULL"),
    ("x IN (1, 2)", "x IN (1, 3)"), ("x = 1 OR x = 2", "x = 1 AND x = 2"), ("x <> 1 OR x <> 2", "x NOT IN (1, 2)"),
    ("x = 1 OR n = 2", "x IN (1, 2)"), ("t = '1' OR t = '2'", "x IN (1, 2)"), ("d >= '2024-02-01'", "d > '2024-02-01'"),
    ("NOT b", "b"), ("b = true", "x = 1"), ("NOT (x > 1 AND n > 1)", "x <= 1 AND n <= 1"),
]  # fmt: skip
"""Pairs of another meaning."""

WAYS = [
    "SELECT count(*) AS n FROM q WHERE {}",
    "SELECT avg(x) AS m, count(*) AS n FROM q WHERE {}",
    "SELECT t, sum(n) AS s FROM q WHERE {} GROUP BY t",
    "SELECT count(*) FILTER (WHERE {}) AS k, avg(x) AS m FROM q",
    "SELECT sum(x) FILTER (WHERE {}) AS s FROM q",
    "SELECT count_if({}) AS k FROM q",
    "SELECT median(x) AS m FROM q WHERE {}",
    "SELECT x, count(*) AS k FROM q WHERE {} GROUP BY x",
]

TABLE = """
CREATE TABLE q AS SELECT i % 40 AS p, CASE WHEN i % 11 > 0 THEN i * 7 % 23 - 4 END AS x, (i % 50)::DECIMAL(15, 2) / 100 AS n,
['a', 'b', 'c', NULL][1 + i % 4] AS t, CASE WHEN i % 5 > 0 THEN i % 2 = 0 END AS b,
CASE WHEN i % 7 > 0 THEN DATE '2024-01-01' + (i % 90)::INTEGER END AS d FROM range(400) r(i)
"""


@pytest.fixture
def one(exact: Loaded) -> Loaded:
    exact(TABLE)
    exact("CALL dp_protect('q', unit := 'p', rho := 1000, max_rows := 10)")
    exact("""CALL dp_attribute('q', 't', "values" := ['a', 'b', 'c'])""")
    exact("CALL dp_attribute('q', 'x', low := -4, high := 22)")
    return exact


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", ["10", "'auto'"])
def test_conditions_of_one_meaning_are_one_charge(one: Loaded, way: str, rows: str) -> None:
    for same in SAME:
        before = one.charges()
        answers = [one(f"FROM dp_sql(?, rho := 0.01, max_rows := {rows})", [way.format(text)]) for text in same]
        assert one.charges() == before + 1, same
        assert all(answer == answers[0] for answer in answers), same


def test_another_meaning_is_another_request(one: Loaded) -> None:
    for place, pair in enumerate(OTHERS):
        before = one.charges()
        for text in pair:
            one(f"FROM dp_sql(?, rho := 0.01{place})", [WAYS[1].format(text)])
        assert one.charges() == before + 2, pair


@pytest.mark.parametrize("way", WAYS)
def test_what_was_stored_as_it_was_written_is_found(one: Loaded, way: str) -> None:
    for text in ("x >= 1 AND NOT t = 'a'", "x BETWEEN 1 AND 5", "b = true", "x = 1 OR x = 2"):
        before = one.charges()
        with as_in_form(1):
            answers = one("FROM dp_sql(?, rho := 0.02)", [way.format(text)])
        assert one("FROM dp_sql(?, rho := 0.02)", [way.format(text)]) == answers
        assert one.charges() == before + 1, text


NUMBERS = [
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE",
    "DECIMAL(4,1)", "DECIMAL(18,3)", "DECIMAL(38,10)",
]  # fmt: skip
VALUES = [
    -128,
    -3,
    -2.5,
    -1,
    0,
    0.05,
    0.06,
    0.07,
    0.5,
    1,
    1.5,
    2,
    2.5,
    3,
    5,
    100,
    127,
    255,
    32767,
    2**24 + 1,
    2**31 - 1,
    2**53 + 1,
    1e30,
]
ENDS = ["-3", "0", "1", "2", "5", "200", "16777217", "2147483647", "0.05", "0.07", "1.5", "-1.5", "12.25"]


def _conditions(rng: random.Random, count: int) -> list[str]:
    def leaf() -> str:
        low, high, more = (rng.choice(ENDS) for _ in range(3))
        return rng.choice([
            f"x BETWEEN {low} AND {high}", f"x NOT BETWEEN {low} AND {high}", f"x = {low}", f"x <> {low}", f"{low} > x", f"x >= {low}",
            f"x IN ({low}, {high})", f"x NOT IN ({low}, {high})", f"x = {low} OR x = {high}", f"x <> {low} AND x <> {high} AND x <> {more}",
            f"x IN ({low}, {more}) OR x = {high}", "x IS NULL",
        ])  # fmt: skip

    def tree(depth: int) -> str:
        if depth == 0 or rng.random() < 0.4:
            return leaf()
        kind = rng.choice(["({}) AND ({})", "({}) OR ({})", "NOT ({})"])
        return kind.format(*(tree(depth - 1) for _ in range(kind.count("{}"))))

    return [tree(2) for _ in range(count)]


@pytest.mark.parametrize("type_", NUMBERS)
def test_the_form_has_the_same_truth_for_all_numbers(type_: str) -> None:
    """For each value of a type, NULL, infinity and NaN among them, and conditions whose ends are of several types."""
    rng = random.Random(type_)
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE q (x {type_})")
        for value in [*VALUES, None, *(["inf", "-inf", "nan"] if type_ in ("FLOAT", "DOUBLE") else [])]:
            connection.execute(f"INSERT INTO q SELECT TRY_CAST(? AS {type_})", [value if value is None else str(value)])
        _same_truth(connection, _conditions(rng, 120), {"x": type_})


def test_the_form_has_the_same_truth_for_days_texts_and_booleans() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE q (d DATE, s TIMESTAMP, b BOOLEAN, t VARCHAR)")
        days = [None, "2024-01-31", "2024-02-01", "2024-02-29", "infinity", "-infinity"]
        for day, truth, text in itertools.product(days, [None, True, False], [None, "", "a", "b", "2024-02-01"]):
            connection.execute("INSERT INTO q VALUES (?, ?, ?, ?)", [day, day, truth, text])
        texts = [
            text
            for same in SAME
            for text in same
            if not {"x", "n"} & set(text.replace("(", " ").split()) and "q." not in text
        ]
        more = [
            "s >= '2024-02-01'",
            "s = '2024-02-01'",
            "t >= '2024-02-01'",
            "b = (t = 'a')",
            "b <> b",
            "(b = true) = (d = '2024-02-01')",
        ]
        pairs = [
            f"NOT (({one}) {join} ({two}))"
            for one, two in itertools.combinations([*texts, *more], 2)
            for join in ("AND", "OR")
        ]
        _same_truth(
            connection, [*texts, *more, *pairs[::7]], {"d": "DATE", "s": "TIMESTAMP", "b": "BOOLEAN", "t": "VARCHAR"}
        )


def _same_truth(connection: duckdb.DuckDBPyConnection, texts: list[str], types: dict[str, str]) -> None:
    def type_of(column: Any) -> str | None:
        return types.get(column.name)

    changed = 0
    for text in texts:
        form = in_one_form(checked(parse_one(text, dialect="duckdb"), {name: name for name in types}), type_of).sql(
            "duckdb"
        )
        changed += form != text
        found = connection.execute(
            f"SELECT * FROM (SELECT *, ({text}) AS a, ({form}) AS b2 FROM q) WHERE a IS DISTINCT FROM b2"
        ).fetchall()
        assert found == [], (text, form)
    assert changed > len(texts) / 3
