"""Rows with values that nobody has declared, and NULL: conditions and expressions mean of them what they mean in SQL."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckdb_dp.accounting.base import find_accounting
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.plan.choose import PrivacyCost, choose
from duckdb_dp.testing import load_exact
from tests.conftest import Loaded

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


TOTAL = "SELECT count(*) AS n FROM {table}"
BY_SEX = "SELECT sex, count(*) AS n FROM {table} GROUP BY sex"


@pytest.mark.some(4)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(
    ("table", "mechanism"),
    [("alone", "auto"), ("alone", "residual"), ("alone", "hdmm"), ("alone", "querysmasher"), ("people", "auto")],
)
def test_a_list_that_is_planned_counts_the_rows_that_sql_counts(
    con: duckdb.DuckDBPyConnection, condition: str, table: str, mechanism: str
) -> None:
    """Whatever else is in it: conditions and groups of other columns leave no row out."""
    filtered = f"SELECT count(*) AS n FROM {table} WHERE {condition}"
    asked = [
        TOTAL.format(table=table),
        BY_SEX.format(table=table),
        filtered,
        f"SELECT age, count(*) AS n FROM {table} GROUP BY age",
    ]
    try:
        explain = f"SELECT route FROM dp_explain('{table}', $1, epsilon := 1, mechanism := $2)"
        routes = {route for (route,) in con.execute(explain, [asked, mechanism]).fetchall()}
    except duckdb.Error as error:  # cells do not decide all of them
        assert mechanism != "auto"
        assert any(
            why in str(error) for why in ("from the declared domain", "cuts through the bin", "declared cell")
        ), error
        return
    if any("without rows that have an undeclared value" in route for route in routes):
        assert mechanism != "auto"
        return
    found = con.execute(
        "SELECT query, sex, age, n FROM dp_sql($1, epsilon := 1, mechanism := $2)", [asked, mechanism]
    ).fetchall()
    rows = {(number, age if number == 4 else sex): n for number, sex, age, n in found}
    assert len(rows) == len(found) == 1 + 2 + 1 + 100
    for number, select in enumerate(asked, 1):
        groups = con.execute(select).fetchall()
        true = {(number, row[0] if len(row) > 1 else None): row[-1] for row in groups}
        mine = {key: n for key, n in rows.items() if key[0] == number}
        assert {key: round(n) for key, n in mine.items()} == {key: true.get(key, 0) for key in mine}


@pytest.mark.parametrize(
    "text", ["count(*) AS n, count(age) AS a, count(sex) AS s", "count(*) AS n, count(sex) AS s, count(price) AS p"]
)
def test_grouping_sets_and_counts_of_columns_count_all_rows(con: duckdb.DuckDBPyConnection, text: str) -> None:
    select = f"SELECT sex, agreed, {text} FROM alone GROUP BY CUBE (sex, agreed)"
    columns = ["sex", "agreed", *(part.split()[-1] for part in text.split(", "))]
    found = con.execute(f"SELECT {', '.join(columns)} FROM dp_sql($1, epsilon := 1)", [select]).fetchall()
    each = [con.execute(f"SELECT {sets}, {text} FROM alone GROUP BY {group}").fetchall() for sets, group in (
        ("sex, agreed", "sex, agreed"), ("sex, NULL", "sex"), ("NULL, agreed", "agreed"), ("NULL, NULL", "()"))]  # fmt: skip
    declared = [
        [row for row in rows if row[0] in known and row[1] in other]
        for rows, known, other in zip(
            each, (("f", "m"), ("f", "m"), (None,), (None,)), ((True,), (None,), (True,), (None,)), strict=True
        )
    ]
    assert sorted(map(str, ([*row[:2], *map(round, row[2:])] for row in found))) == sorted(
        str([*row]) for rows in declared for row in rows
    )


def test_what_is_outside_has_no_row_and_is_explained(con: duckdb.DuckDBPyConnection) -> None:
    asked = [TOTAL.format(table="alone"), BY_SEX.format(table="alone")]
    explained = con.execute(
        "SELECT marginal, cells, route FROM dp_explain('alone', $1, epsilon := 1)", [asked]
    ).fetchall()
    assert [(name, cells) for name, cells, _ in explained] == [("total", 1), ("sex identity", 2)]
    assert all("planned" in route and "without rows" not in route for _, _, route in explained)


@pytest.mark.slow
def test_what_is_measured_beyond_what_is_asked_is_counted(con: duckdb.DuckDBPyConnection) -> None:
    """A plan of HDMM may measure the cells of attributes together that no SELECT names together."""
    asked = [
        TOTAL.format(table="alone"),
        BY_SEX.format(table="alone"),
        "SELECT count(*) AS n FROM alone WHERE level <> 'low'",
        "SELECT age, count(*) AS n FROM alone GROUP BY age",
    ]
    rows = con.execute("SELECT n FROM dp_sql($1, epsilon := 2, mechanism := 'hdmm')", [asked]).fetchall()
    assert [round(n) for (n,) in rows[:4]] == [4000, 1000, 1000, 2000]
    domain = Domain({"sex": 4, "age": 103, "level": 3})
    kinds: list[dict[str, Any]] = [
        {},
        {"sex": "identity"},
        {"level": [[0, 1, 0]]},
        {"level": [[0, 1, 1]]},
        {"age": "identity"},
    ]
    plans = [
        choose(
            Workload(domain, tuple(Workload.product(domain, kind).parts[0] for kind in kinds if kind is not left)),
            PrivacyCost.of(0.5, find_accounting("zcdp"), rows=1),
            mechanism="hdmm",
        )
        for left in kinds[2:4]
    ]
    assert any(("sex", "age") in one.beyond for one in plans)
    for one in plans:
        assert {clique for clique in one.beyond if len(clique) < 2} == set()


@pytest.mark.parametrize(
    "expression", ["age // 10", "age % 10", "year(day)", "date_trunc('month', day)", "abs(age - 50)", "nullif(age, 20)"]
)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("where", ["", "WHERE age >= 90", "WHERE age < 23 AND sex = 'f'"])
def test_groups_of_expressions_have_all_rows_that_are_in_them(
    con: duckdb.DuckDBPyConnection, table: str, expression: str, where: str
) -> None:
    """Those too whose value is not declared: age // 10 = 9 is one group of 90 to 99, and month 12 of all days in December."""
    select = f"SELECT {expression} AS g, count(*) AS n FROM {table} {where} GROUP BY g"
    found, true = answered(con, select), dict(con.execute(select).fetchall())
    assert found == {key: true[key] for key in found}
    declared = f"SELECT DISTINCT {expression} FROM {table} {where} {'AND' if where else 'WHERE'} age BETWEEN 0 AND 99 AND year(day) = 2024"
    assert {row[0] for row in con.execute(declared).fetchall()} <= {*found}


@pytest.mark.parametrize("kind", ["\"values\" := ['f', 'm']", "\"values\" := ['f', 'm', 'x']"])
def test_count_of_a_column_leaves_null_out_whatever_is_other(tmp_path: Path, kind: str) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT ['f', 'm', NULL, 'x'][1 + i % 4] AS sex, i % 9 AS k FROM range(4000) AS r(i)"
        )
        load_exact(con, tmp_path / "test.dp")
        con.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-6)")
        con.execute(f"CALL dp_attribute('t', 'sex', {kind}, other := true)")
        con.execute("CALL dp_attribute('t', 'k', low := 0, high := 9)")
        assert con.execute(
            "SELECT n, m FROM dp_sql('SELECT count(sex) AS n, count(*) AS m FROM t', epsilon := 1)"
        ).fetchall() == [(3000, 4000)]
        listed = [
            "SELECT count(sex) AS n FROM t",
            "SELECT count(*) AS n FROM t",
            "SELECT k, count(sex) AS n FROM t GROUP BY k",
        ]
        found = con.execute("SELECT query, n FROM dp_sql($1, epsilon := 1)", [listed]).fetchall()
        assert [round(n) for _, n in found[:2]] == [3000, 4000]
        assert round(sum(n for number, n in found if number == 3)) == 3000
        rows = dict(
            con.execute(
                "SELECT sex, n FROM dp_sql('SELECT sex, count(sex) AS n FROM t GROUP BY sex', epsilon := 1)"
            ).fetchall()
        )
        assert rows["f"] == 1000
        assert rows["other"] == (0 if "x" in kind else 1000)


def test_errors_that_are_compared_are_of_the_answers_that_are_shown(con: duckdb.DuckDBPyConnection) -> None:
    asked = [
        TOTAL.format(table="alone"),
        BY_SEX.format(table="alone"),
        "SELECT sex, level, count(*) AS n FROM alone GROUP BY CUBE (sex, level)",
    ]
    explain = "SELECT mechanism, rmse, max_stddev FROM dp_explain('alone', $1, epsilon := 1, mechanism := 'all') WHERE rmse IS NOT NULL"
    compared = con.execute(explain, [asked]).fetchall()
    assert {name for name, *_ in compared} >= {"residual_plus", "hdmm", "querysmasher", "direct"}
    for name, rmse, largest in compared:
        if name == "laplace":  # which its own noise answers
            continue
        rows = con.execute("SELECT stddev FROM dp_sql($1, epsilon := 1, mechanism := $2)", [asked, name]).fetchall()
        errors = [stddev for (stddev,) in rows]
        assert rmse == pytest.approx(math.sqrt(sum(one**2 for one in errors) / len(errors)), rel=1e-6), name
        assert largest == pytest.approx(max(errors), rel=1e-6), name


@pytest.mark.parametrize("asked", ["GROUPING(sex)", "grouping_id(sex)"])
def test_which_set_a_row_is_of_is_asked_by_a_list(con: duckdb.DuckDBPyConnection, asked: str) -> None:
    select = f"SELECT sex, {asked} AS g, count(*) AS n FROM alone GROUP BY ROLLUP (sex)"
    with pytest.raises(duckdb.Error, match="ask the grouping sets as a list"):
        con.execute("FROM dp_sql($1, epsilon := 1)", [select]).fetchall()


NUMBERED = {
    "TINYINT": ("(i % 12 - 2)::TINYINT", "low := -2, high := 7"),
    "BIGINT": ("i % 12", "low := 0, high := 9"),
    "DOUBLE": ("(i % 12)::DOUBLE / 2", '"values" := [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]'),
    "DECIMAL(9,2)": ("(i % 12)::DECIMAL(9,2)", '"values" := [0.00, 1.00, 2.00, 3.00, 4.00, 5.00, 6.00, 7.00, 8.00, 9.00]'),
    "DATE": ("DATE '2024-01-07' + (i % 12)::INTEGER", "low := DATE '2024-01-07', high := DATE '2024-01-16'"),
}  # fmt: skip
"""Numbers and dates of which two are not declared: as texts most of them would sort otherwise."""


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("type_", NUMBERED)
def test_numbers_beside_other_sort_and_compare_as_numbers(exact: Loaded, type_: str, nulls: bool) -> None:
    """Above aggregates too, by either route, as DuckDB does with those that are declared; 'other' is the last one."""
    value, domain = NUMBERED[type_]
    exact(f"CREATE TABLE numbered AS SELECT CAST({value} AS {type_}) AS k, i % 5 AS v FROM range(240) t(i)")
    exact(
        "CALL dp_protect('numbered', mu := 1e6, delta := 1e-9); CALL dp_attribute('numbered', 'v', low := 0, high := 4)"
    )
    exact(f"CALL dp_attribute('numbered', 'k', {domain}, other := true, nulls := {nulls})")
    declared = [str(row[0]) for row in exact("SELECT DISTINCT k FROM numbered ORDER BY k LIMIT 10")]
    declared = [str(float(one)) for one in declared] if type_.startswith("DEC") else declared  # as its labels are
    fourth = declared[3]

    def keys(select: str) -> list[str]:
        return [str(row[0]) for row in exact("FROM dp_sql(?, mu := 1000)", [select])]

    for what in ("count(*)", "sum(v)"):
        assert keys(f"SELECT k, {what} AS n FROM numbered GROUP BY k ORDER BY k LIMIT 10") == declared
        inner = f"SELECT k, {what} AS n FROM numbered GROUP BY k"
        cumulated = exact(
            "FROM dp_sql(?, mu := 1000)", [f"SELECT k, sum(n) OVER (ORDER BY k) AS c FROM ({inner}) ORDER BY k"]
        )
        assert [str(row[0]) for row in cumulated][:10] == declared
        assert [row[1] for row in cumulated] == sorted(row[1] for row in cumulated)
        assert keys(f"{inner} HAVING k = '{fourth}'") == [fourth]
        assert keys(f"SELECT * FROM ({inner}) WHERE k <= '{fourth}' ORDER BY k") == declared[:4]
        assert (
            keys(f"SELECT * FROM ({inner}) WHERE k BETWEEN '{declared[1]}' AND '{fourth}' ORDER BY k") == declared[1:4]
        )
    inner = "SELECT k, count(*) AS n FROM numbered GROUP BY k"
    line = exact.refused(f"FROM dp_sql('SELECT * FROM ({inner}) WHERE k > ''nothing''', mu := 999)")
    assert "'nothing' is no label of 'k'" in line
    if type_ != "DATE":
        assert keys(f"SELECT * FROM ({inner}) WHERE k = {fourth}") == [fourth]
        assert "a text" in exact.refused(f"FROM dp_sql('SELECT k + 1 AS m, n FROM ({inner})', mu := 999)")
        assert "Could not convert string 'other'" in exact.refused(
            f"FROM dp_sql('SELECT k::INTEGER AS m, n FROM ({inner})', mu := 999)"
        )


def test_labels_of_bins_are_compared_with_labels(exact: Loaded) -> None:
    inner = "SELECT age, count(*) AS n FROM people GROUP BY age"
    below = exact("FROM dp_sql(?, mu := 10)", [f"{inner} HAVING age < '[40, 60)'"])
    assert [row[0] for row in below] == ["[0, 20)", "[20, 40)"]
    for wrong in ("age < '40'", "age < 40", "age IN ('[0, 20)', '3')", "age BETWEEN '[0, 20)' AND 'z'"):
        line = exact.refused("FROM dp_sql(?, mu := 9)", [f"{inner} HAVING {wrong}"])
        assert "is no label of 'age', whose labels are the texts '[0, 20)'" in line


@pytest.mark.parametrize(
    "item", ["max(age)", "min(age)", "lag(age) OVER (ORDER BY age)", "any_value(age)", "list(age)"]
)
def test_what_is_made_of_labels_needs_no_alias(exact: Loaded, item: str) -> None:
    select = f"SELECT {item}, count(*) FROM (SELECT age, count(*) AS n FROM people GROUP BY age) GROUP BY ALL"
    select = (
        select if "OVER" not in item else f"SELECT {item}, n FROM (SELECT age, count(*) AS n FROM people GROUP BY age)"
    )
    assert exact("FROM dp_sql(?, mu := 10)", [select])


@pytest.mark.parametrize("order", ["NULLS_FIRST", "NULLS_LAST", "NULLS_FIRST_ON_ASC_LAST_ON_DESC"])
def test_missing_labels_stand_where_the_setting_says(exact: Loaded, order: str) -> None:
    exact(f"SET default_null_order = '{order}'")
    for what in ("count(*)", "sum(race)"):
        for after in ("", "DESC", "NULLS FIRST"):
            ask = f"SELECT smoker, {what} AS n FROM people GROUP BY smoker ORDER BY smoker {after}"
            ours = [row[0] for row in exact("FROM dp_sql(?, mu := 10)", [ask])]
            assert ours == [row[0] for row in exact(ask)], (what, after)
