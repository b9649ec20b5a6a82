"""Rows with values that nobody has declared, and NULL: conditions and expressions mean of them what they mean in SQL."""

from collections.abc import Iterator

import duckdb
import pytest

from duckdb_dp.testing import load_exact

TABLES = ["alone", "people", "people JOIN visits USING (id)"]

WHOLE = [
    "CASE WHEN sex = 'f' THEN 'f' ELSE 'not' END",
    "CASE WHEN sex = 'f' THEN 'f' WHEN sex = 'm' THEN 'm' END",
    "CASE sex WHEN 'f' THEN 1 WHEN 'm' THEN 2 ELSE 0 END",
    "CASE WHEN sex IS NULL THEN 'none' ELSE 'some' END",
    "CASE WHEN sex IN ('f', 'm') THEN sex ELSE 'else' END",
    "CASE WHEN level = 'low' THEN sex = 'f' ELSE false END",
    "if(sex = 'f', 1, 0)",
    "sex IS NULL",
    "sex = 'f'",
    "sex IS DISTINCT FROM 'f'",
    "age >= 65",
    "age BETWEEN 18 AND 64 OR sex = 'f'",
    "CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'old' END",
    "CASE WHEN price > 2 THEN 'dear' ELSE 'cheap' END",
    "CASE WHEN income > 50 THEN 'high' ELSE 'low' END",
    "CASE WHEN level = 'low' THEN 1 ELSE 2 END",
    "level = 'low'",
    "agreed IS TRUE",
    "month(day)",
    "day > DATE '2024-06-30'",
    "hour(seen)",
    "coalesce(CASE WHEN sex IN ('f', 'm') THEN sex END, 'else')",
    "coalesce(sex IN ('f'), false) AND age > 50",
]
"""Expressions whose text says all of their values."""

NEVER = [
    "sex IS NULL",
    "sex IS DISTINCT FROM 'f'",
    "agreed IS TRUE",
    "if(sex = 'f', 1, 0)",
    "coalesce(sex IN ('f'), false) AND age > 50",
]
"""Those that are never NULL of declared values: no row of NULL is shown of them."""

LISTED = [
    "coalesce(sex, 'none')",
    "upper(sex)",
    "concat(sex, '!')",
    "age // 50",
    "year(day)",
    "coalesce(sex, 'none') || level",
    "sex",
    "age",
]
"""Those that may have other values where a column has: rows of these are in no group."""

CONDITIONS = [
    "age > 50", "age <> 50", "NOT (sex = 'f')", "sex <> 'f'", "sex IS NULL", "sex IS DISTINCT FROM 'f'", "sex NOT IN ('f', 'm')",
    "coalesce(sex, 'none') = 'none'", "day >= DATE '2024-07-01'", "price > 2", "income > 50", "level <> 'low'", "age > 50 OR sex IS NULL",
    "seen >= TIMESTAMP '2024-03-01' AND seen < TIMESTAMP '2024-03-02'", "agreed IS NOT TRUE", "CASE WHEN age > 50 THEN sex = 'f' ELSE true END",
]  # fmt: skip


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Of each declared column some rows are outside its domain, and some NULL."""
    with duckdb.connect() as con:
        con.execute(
            """
            CREATE TYPE level AS ENUM ('low', 'high');
            CREATE TABLE people (id INTEGER PRIMARY KEY, sex VARCHAR, age INTEGER, day DATE, price DECIMAL(6, 2), income DOUBLE,
                level level, agreed BOOLEAN, seen TIMESTAMP);
            INSERT INTO people SELECT i, ['f', 'm', NULL, 'x'][1 + i % 4], CASE WHEN i % 7 > 0 THEN i % 110 END,
                CASE WHEN i % 11 > 0 THEN DATE '2024-01-01' + (i % 400)::INTEGER END, CASE WHEN i % 5 > 0 THEN i % 13 / 4 END,
                CASE WHEN i % 3 > 0 THEN i % 130 END, CASE WHEN i % 8 > 0 THEN ['low', 'high'][1 + i % 2] END::level,
                [true, false, NULL][1 + i % 3], TIMESTAMP '2024-02-28' + INTERVAL (i % 90) HOUR FROM range(4000) AS t(i);
            CREATE TABLE visits AS SELECT i % 4000 AS id, i AS visit FROM range(6000) AS t(i);
            CREATE TABLE alone AS FROM people;
            """
        )
        load_exact(con, tmp_path_factory.mktemp("ledger"))
        con.execute("CALL dp_protect('alone', epsilon := 100000, delta := 1e-6)")
        con.execute("CALL dp_link('visits', \"references\" := {'id': 'people.id'})")
        con.execute(
            "CALL dp_protect(['people', 'visits'], unit := 'people.id', max_rows := 2, epsilon := 100000, delta := 1e-6)"
        )
        for table in ("alone", "people"):
            con.execute(f"CALL dp_attribute('{table}', 'sex', \"values\" := ['f', 'm'])")
            con.execute(f"CALL dp_attribute('{table}', 'age', low := 0, high := 99)")
            con.execute(
                f"CALL dp_attribute('{table}', 'day', low := DATE '2024-01-01', high := DATE '2024-12-31', step := INTERVAL 1 DAY)"
            )
            con.execute(f"CALL dp_attribute('{table}', 'price', \"values\" := [0, 1, 2, 3])")
            con.execute(f"CALL dp_attribute('{table}', 'income', bins := [0, 10, 100])")
            con.execute(f"CALL dp_attribute('{table}', 'level', \"values\" := ['low'])")
            con.execute(f"CALL dp_attribute('{table}', 'agreed', \"values\" := [true])")
            con.execute(
                f"CALL dp_attribute('{table}', 'seen', low := TIMESTAMP '2024-03-01', high := TIMESTAMP '2024-03-02', step := INTERVAL 1 HOUR)"
            )
        yield con


def answered(con: duckdb.DuckDBPyConnection, select: str) -> dict[object, float]:
    """Group -> count, of those that are not 0."""
    rows = con.execute("SELECT * FROM dp_sql($1, epsilon := 1)", [select]).fetchall()
    found = {row[0]: row[1] for row in rows}
    assert len(found) == len(rows)
    return {key: count for key, count in found.items() if count}


@pytest.mark.some(4)
@pytest.mark.parametrize("expression", WHOLE)
@pytest.mark.parametrize("table", TABLES)
def test_an_expression_whose_text_says_its_values_is_that_of_each_row(
    con: duckdb.DuckDBPyConnection, table: str, expression: str
) -> None:
    select = f"SELECT {expression} AS g, count(*) AS n FROM {table} GROUP BY g"
    found, true = answered(con, select), dict(con.execute(select).fetchall())
    if not any(
        word in expression for word in ("CASE", "if(", "DATE")
    ):  # what is NULL of NULL is no group, as nobody has declared NULL
        true.pop(None, None)
    assert found == true
    if expression in NEVER:
        names = {row[0] for row in con.execute("SELECT * FROM dp_sql($1, epsilon := 1)", [select]).fetchall()}
        assert None not in names


@pytest.mark.parametrize(
    "expression",
    ["nullif(sex, 'f') = 'm'", "100 // nullif(age, 0) > 3", "TRY_CAST(sex AS INTEGER) > 3", "sex IN ('f', NULL)"],
)
@pytest.mark.parametrize("table", TABLES)
def test_what_is_null_of_declared_values_is_a_group(
    con: duckdb.DuckDBPyConnection, table: str, expression: str
) -> None:
    select = f"SELECT {expression} AS g, count(*) AS n FROM {table} GROUP BY g"
    assert answered(con, select) == dict(con.execute(select).fetchall())


@pytest.mark.some(2)
@pytest.mark.parametrize("expression", LISTED)
@pytest.mark.parametrize("table", TABLES)
def test_the_groups_that_declarations_list_are_whole(
    con: duckdb.DuckDBPyConnection, table: str, expression: str
) -> None:
    select = f"SELECT {expression} AS g, count(*) AS n FROM {table} GROUP BY g"
    found, true = answered(con, select), dict(con.execute(select).fetchall())
    assert found == {key: true[key] for key in found}
    declared = f"SELECT DISTINCT {expression} FROM {table} WHERE sex IN ('f', 'm') AND age < 100 AND year(day) = 2024 AND level = 'low'"
    assert {row[0] for row in con.execute(declared).fetchall()} <= set(found)


@pytest.mark.some(4)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("by", ["", "agreed IS NULL"])
def test_a_condition_keeps_the_rows_that_sql_keeps(
    con: duckdb.DuckDBPyConnection, table: str, condition: str, by: str
) -> None:
    select = f"SELECT {by or 0} AS g, count(*) AS n FROM {table} WHERE {condition} GROUP BY g"
    if not by:
        select = f"SELECT count(*) AS n FROM {table} WHERE {condition}"
        (row,) = con.execute("SELECT n FROM dp_sql($1, epsilon := 1)", [select]).fetchall()
        assert [row] == con.execute(select).fetchall()
    else:
        assert answered(con, select) == dict(con.execute(select).fetchall())


@pytest.mark.parametrize("table", TABLES[:2])
def test_parts_of_one_statement_count_the_rows_of_each(con: duckdb.DuckDBPyConnection, table: str) -> None:
    """A share of a total is none of the rows that other columns' declarations hold."""
    select = (
        f"SELECT sex, count(*) AS n, count(*) / (SELECT count(*) FROM {table}) AS share, (SELECT count(*) FROM {table} WHERE age > 50) AS old "
        f"FROM {table} GROUP BY sex"
    )
    found = con.execute("SELECT sex, n, share, old FROM dp_sql($1, epsilon := 1)", [select]).fetchall()
    true = {row[0]: row for row in con.execute(select).fetchall()}
    assert found == [pytest.approx(true[row[0]]) for row in found]
    assert {row[0] for row in found} == {"f", "m"}
