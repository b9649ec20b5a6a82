"""GROUP BY of expressions over declared columns: the groups are those of the declaration, and nothing is spent on finding them."""

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

ROWS = """
SELECT i AS id, DATE '2023-01-05' + (i % 760)::INTEGER AS day, TIMESTAMP '2023-01-05' + INTERVAL 7 HOUR * (i % 2600) AS ts,
    (TIMESTAMP '2023-01-05' + INTERVAL 7 HOUR * (i % 2600))::TIMESTAMP_S AS seconds, (i % 120)::SMALLINT AS age,
    (i % 700 / 100)::DECIMAL(5, 2) AS price, CASE WHEN i % 9 > 0 THEN DATE '2023-02-01' + (i % 40)::INTEGER END AS maybe
FROM range(6000) AS t(i)
"""
DECLARED = {
    "day": "low := DATE '2023-01-01', high := DATE '2024-12-31', step := INTERVAL 1 MONTH",
    "ts": "bins := [TIMESTAMP '2023-01-15 10:30:00', TIMESTAMP '2023-06-01', TIMESTAMP '2024-03-15 12:00:00']",
    "seconds": "low := TIMESTAMP '2023-03-01', high := TIMESTAMP '2023-05-01', step := INTERVAL 1 WEEK",
    "age": "bins := [5, 18, 65, 90]",
    "price": "low := 0, high := 5, step := 0.5",
    "maybe": "bins := [DATE '2023-02-01', DATE '2023-02-15', DATE '2023-03-05'], nulls := true",
}
"""Column -> declaration: aligned with months and not, of several types, and with NULL."""

SPANS = {
    "day": ("DATE '2023-01-01'", "DATE '2024-12-31'", "INTERVAL 1 DAY"),
    "ts": ("TIMESTAMP '2023-01-15 10:30:00'", "TIMESTAMP '2024-03-15 12:00:00'", "INTERVAL 30 MINUTE"),
    "seconds": ("TIMESTAMP '2023-03-01'", "TIMESTAMP '2023-05-01'", "INTERVAL 1 HOUR"),
    "age": ("5", "90", "1"),
    "maybe": ("DATE '2023-02-01'", "DATE '2023-03-05'", "INTERVAL 1 DAY"),
}
"""Column -> the first and the last declared value, and a step in which its values are written."""

KEYS = [
    *(f"date_trunc('{unit}', {column})" for unit in ("day", "week", "month", "quarter", "year") for column in ("day", "ts")),
    "date_trunc('month', seconds)", "date_trunc('hour', seconds)", "date_trunc('month', maybe)",
    "year(day)", "year(ts)", "extract(year FROM ts)", "extract('year' FROM day)", "date_part('year', ts)", "year(ts) * 100 + month(ts)",
    "strftime(day, '%Y-%m')", "strftime(ts, '%Y-%m')", "strftime(ts, '%d.%m.%Y')", "strftime(ts, '%Y-%m-%d %H')", "strftime(day, '%f')",
    "last_day(ts)", "ts::DATE", "yearweek(ts)", "strftime(date_trunc('quarter', ts), '%Y/%m')", "age // 10", "age - 1",
]  # fmt: skip


@pytest.fixture(scope="module", params=["alone", "family"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """One table whose rows are units, or one of two tables; something is kept for finding groups, so that what is found is charged."""
    with duckdb.connect() as connection:
        folder = tmp_path_factory.mktemp("declared") / "l.dp"
        connection.execute(f"CREATE TABLE t AS {ROWS}")
        duckdb_dp.testing.load_exact(connection, folder)
        budget = "epsilon := 1e5, delta := 1e-9, discovery_delta := 5e-10"
        if request.param == "alone":
            connection.execute(f"CALL dp_protect('t', {budget})")
        else:
            connection.execute("CREATE TABLE people AS SELECT i AS id FROM range(6000) AS r(i)")
            connection.execute("CALL dp_link('t', \"references\" := {'id': 'people.id'})")
            connection.execute(
                f"CALL dp_protect(['people', 't'], unit := 'people.id', max_rows := {{'t': 1}}, {budget})"
            )
        for column, declared in DECLARED.items():
            connection.execute(f"CALL dp_attribute('t', '{column}', {declared})")
        yield Loaded(connection, folder)


def column_of(key: str) -> str:
    names = re.findall(rf"\b({'|'.join(DECLARED)})\b", re.sub("'[^']*'", "", key))
    assert len({*names}) == 1
    return names[0]


def possible(loaded: Loaded, key: str, condition: str = "true") -> set[object]:
    """What the expression is of all values from the first declared one to the last."""
    column = column_of(key)
    low, high, step = SPANS[column]
    values = f"unnest(generate_series({low}, {high}, {step}))::{'SMALLINT' if column == 'age' else low.split()[0]}"
    rows = loaded(f"SELECT DISTINCT {key} FROM (SELECT {values} AS {column}) WHERE {condition}")
    return {row[0] for row in rows} | ({None} if column == "maybe" and condition == "true" else set())


def answered(loaded: Loaded, select: str) -> dict[object, int]:
    """Group -> count, of one charge."""
    charges = loaded.charges()
    rows = loaded("SELECT g, round(n)::INTEGER FROM dp_sql(?, epsilon := 3)", [select])
    assert loaded.charges() - charges <= 1  # a request that was made before is free, and no values are found
    assert len({row[0] for row in rows}) == len(rows)
    return dict(rows)


@pytest.mark.some(4)
@pytest.mark.parametrize("key", KEYS)
def test_groups_are_those_of_the_declaration_with_the_rows_of_sql(loaded: Loaded, key: str) -> None:
    select = f"SELECT {key} AS g, count(*) AS n FROM t GROUP BY g"
    found, true = answered(loaded, select), dict(loaded(select))
    assert {*found} == possible(loaded, key)
    assert found == {g: true.get(g, 0) for g in found}
    assert (
        loaded.columns(f"SELECT {key} AS g FROM t")[0][1]
        == loaded("SELECT typeof(g) FROM dp_sql(?, epsilon := 3) WHERE g IS NOT NULL LIMIT 1", [select])[0][0]
    )


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("key", "condition"),
    [
        ("date_trunc('month', day)", "day >= '2024-02-10'"),
        ("date_trunc('month', day)", "year(day) = 2024"),
        ("date_trunc('month', day)", "day < DATE '2023-03-01'"),
        ("date_trunc('month', ts)", "ts >= '2024-01-31 22:00'"),
        ("date_trunc('month', ts)", "'2023-03-01 00:30' > ts"),
        ("date_trunc('day', ts)", "ts::DATE > '2024-03-10'"),
        ("year(ts)", "year(ts) >= 2024"),
        ("strftime(ts, '%Y-%m')", "ts > '2024-02-29 23:00'"),
        ("age // 10", "age > 41"),
        ("age // 10", "age <> 41"),
    ],
)
def test_a_condition_leaves_out_the_groups_that_no_row_of_it_is_in(loaded: Loaded, key: str, condition: str) -> None:
    select = f"SELECT {key} AS g, count(*) AS n FROM t WHERE {condition} GROUP BY g"
    found, true = answered(loaded, select), dict(loaded(select))
    assert {*found} == possible(loaded, key, condition)
    assert found == {g: true.get(g, 0) for g in found}


@pytest.mark.parametrize(
    "condition", ["hour(ts) = 7", "ts <> '2023-05-01 12:00'", "ts IN ('2023-05-01 05:00', '2024-01-09')"]
)
def test_a_condition_within_a_day_leaves_no_day_out(loaded: Loaded, condition: str) -> None:
    """Of which the first and the last moment do not say whether some moment of the day satisfies it."""
    select = f"SELECT year(ts) AS g, count(*) AS n FROM t WHERE {condition} GROUP BY g"
    found, true = answered(loaded, select), dict(loaded(select))
    assert {*true} & {2023, 2024} <= {*found}
    assert found == {g: true.get(g, 0) for g in found}


def test_sums_and_several_keys_have_these_groups_too(loaded: Loaded) -> None:
    select = (
        "SELECT date_trunc('quarter', day) AS q, age // 50 AS a, sum(price) AS s, count(*) AS n FROM t GROUP BY ALL"
    )
    rows = loaded("SELECT q, a, round(n) FROM dp_sql(?, epsilon := 4)", [select])
    assert {row[:2] for row in rows} == {(q, a) for q in possible(loaded, "date_trunc('quarter', day)") for a in (0, 1)}
    true = {row[:2]: row[3] for row in loaded(select)}
    assert [n for *_, n in rows] == [true.get((q, a), 0) for q, a, _ in rows]


@pytest.mark.parametrize("key", ["date_trunc('second', ts)", "strftime(ts, '%f')", "ts + INTERVAL 1 DAY", "epoch(ts)"])
def test_what_is_not_listed_is_refused_or_found_as_before(tmp_path: Path, key: str) -> None:
    """Too many moments, or all of each moment."""
    with duckdb.connect() as connection:
        duckdb_dp.testing.load_exact(connection, tmp_path / "l.dp")
        connection.execute(f"CREATE TABLE t AS {ROWS}")
        connection.execute("CALL dp_protect('t', epsilon := 1e5, delta := 1e-9)")
        connection.execute(f"CALL dp_attribute('t', 'ts', {DECLARED['ts']})")
        line = Loaded(connection, tmp_path / "l.dp").refused(
            "FROM dp_sql(?, epsilon := 1)", [f"SELECT {key} AS g, count(*) AS n FROM t GROUP BY g"]
        )
        assert "is declared in bins" in line


STEPS = {
    "floor(x / 5) * 5": True, "round(x)": True, "round(x, 1)": True, "CAST(x AS INTEGER)": True, "ceil(-x)": True, "trunc(x)": True,
    "floor(x / 10) * 10 + 5": True, "floor(y)": True, "round(y / 3)": True, "CASE WHEN floor(x) > 3 THEN 'a' ELSE 'b' END": True,
    "CAST(floor(x / 5) * 5 AS INTEGER)": True, "x::INT % 3": True, "'bin ' || floor(x / 10)::INT": True, "floor(x * -2 + 1)": True,
    "floor(x) + floor(x)": True, "coalesce(floor(x), 0)": True, "CAST(y AS BIGINT) // 10": True, "floor(x / 20), round(y / 50)": True,
    "x // 5": False, "floor(x) - x": False, "sqrt(x)": False, "floor(x * x)": False, "floor(10 / x)": False, "floor(x) + ceil(x)": False,
    "round(x, -1)": False, "round(y, 1)": False, "floor(x * 1e300 * 1e300)": False,
}  # fmt: skip
"""Groups -> whether the edges of the bins say all of them."""


@pytest.mark.parametrize(("key", "known"), STEPS.items())
def test_rounded_numbers_in_bins_have_all_groups_between_the_edges(exact: Loaded, key: str, known: bool) -> None:
    """A histogram of a DOUBLE, which has no values to list: each group that has rows is there, and what is not known is refused."""
    exact(
        "CREATE TABLE t AS SELECT (i * 37 % 1000) / 20.0::DOUBLE - 10 AS x, ((i * 31 % 777) / 7.0)::FLOAT AS y FROM range(4000) r(i)"
    )
    exact(
        "CALL dp_protect('t', epsilon := 1e5, delta := 1e-9); CALL dp_attribute('t', 'x', low := -10, high := 40, step := 2.5)"
    )
    exact("CALL dp_attribute('t', 'y', bins := [0, 50, 111])")
    asked = f"SELECT {key}, count(*) AS n FROM t GROUP BY ALL"
    if not known:
        assert "is declared in bins" in exact.refused(f"FROM dp_sql($${asked}$$, epsilon := 100)")
        return
    named = ", ".join(f"{one} AS k{i}" for i, one in enumerate(key.split(", ") if "round(y / 50)" in key else [key]))
    asked, places = f"SELECT {named}, count(*) AS n FROM t GROUP BY ALL", named.count(" AS k")
    truth = {row[:places]: row[places] for row in exact(asked)}
    found = {row[:places]: row[places] for row in exact(f"FROM dp_sql($${asked}$$, epsilon := 1000)")}
    assert truth.keys() <= found.keys()
    assert all(abs(count - truth.get(group, 0)) < 0.5 for group, count in found.items())


@pytest.mark.parametrize(
    ("column", "value", "where"),
    [
        ("day", "day::DATE", "day BETWEEN '2024-03-05' AND '2024-03-07'"),
        ("age", "age::INTEGER", "age BETWEEN 20 AND 23"),
    ],
)
def test_a_part_of_a_bin_has_the_label_of_all_of_it(loaded: Loaded, column: str, value: str, where: str) -> None:
    """And its days and numbers are groups by themselves, as the documentation says."""
    whole, each = (f"SELECT {key} AS k, count(*) AS n FROM t WHERE {where} GROUP BY k" for key in (column, value))
    ((label, n),) = loaded("SELECT k, n FROM dp_sql(?, epsilon := 1e3) WHERE n > 5", [whole])
    truth = sorted(loaded(each))
    assert str(label).startswith("[")
    assert round(n) == sum(m for _, m in truth)
    assert [(k, round(m)) for k, m in loaded("SELECT k, n FROM dp_sql(?, epsilon := 1e3)", [each]) if m > 5] == truth
