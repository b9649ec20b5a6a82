"""Declaring what is private and which values a column may take; then, with the noise off, counts by brute force."""

import datetime
import math
from collections import Counter
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def labels(loaded, table: str, attribute: str) -> list[Any]:
    return [
        label
        for (label,) in loaded(
            f"SELECT label FROM dp_domain('{table}') WHERE attribute = ? ORDER BY position", [attribute]
        )
    ]


def counts(loaded, table: str, attribute: str, mu: float) -> list[tuple[Any, int]]:
    rows = loaded(f"SELECT * FROM dp_marginals('{table}', [?], mu := ?, fresh := true)", [attribute, mu])
    return [(row[0], round(row[1], 6)) for row in rows]


# dp_protect


def test_a_table_is_protected_once_and_for_all(exact) -> None:
    exact("CREATE TABLE t AS SELECT 1 AS a")
    call = "CALL dp_protect('t', epsilon := 3, delta := 1e-9)"
    ((name, neighbours, accounting, budget, epsilon, delta, _),) = exact(call)
    assert (name, neighbours, accounting) == ("memory.main.t", "add or remove one row", "gdp")
    assert (budget, epsilon, delta) == (pytest.approx(0.264686, rel=1e-5), 3, 1e-9)
    assert exact(call) == exact("CALL dp_protect('T', delta := 1e-9, epsilon := 3.0)")
    assert exact("SELECT count(*) FROM dp_budget()") == [(2,)]
    for other in (
        "epsilon := 4, delta := 1e-9",
        "epsilon := 3, delta := 1e-8",
        "rho := 1",
        "mu := 1",
        "epsilon := 3, delta := 1e-9, unit := 'a', max_rows := 1",
    ):
        assert "a declaration stays: repeat it as it is" in exact.refused(f"CALL dp_protect('t', {other})")


@pytest.mark.parametrize(
    ("budget", "accounting", "cost", "epsilon"),
    [
        ("epsilon := 1, delta := 1e-6", "gdp", 4.22468**-2, 1),
        ("epsilon := 1, delta := 1e-9, accounting := 'zcdp'", "zcdp", 5.77869**-2 / 2, 1),
        ("rho := 0.5", "zcdp", 0.5, None),
        ("rho := 0.5, accounting := 'gdp'", "gdp", 1, None),
        ("mu := 2", "gdp", 4, None),
        ("mu := 2, delta := 1e-9", "gdp", 4, None),
    ],
)
def test_budgets_of_a_dataset(exact, budget: str, accounting: str, cost: float, epsilon: float | None) -> None:
    exact("CREATE TABLE t AS SELECT 1 AS a")
    row = exact(f"CALL dp_protect('t', {budget})")[0]
    assert row[2:5] == (accounting, pytest.approx(cost, rel=1e-5), epsilon)
    total, remaining, shown = exact("SELECT total, remaining, epsilon_total FROM dp_budget() WHERE dataset = 't'")[0]
    assert total == remaining == row[3]
    assert (shown is not None) == ("delta" in budget)


@pytest.mark.parametrize(
    "call",
    [
        "FROM dp_marginals('t', ['a'], {})",
        "FROM dp_queries('t', {{'a': 'identity'}}, {})",
        "FROM dp_quantiles('t', 'a', [0.5], {})",
        "FROM dp_sql('SELECT count(*) FROM t', {})",
        "FROM dp_discover('t', 'a', find := 'bounds', {})",
        "FROM dp_synthesize('t', {})",
        "FROM dp_explain('t', ['a'], {})",
        "CALL dp_synthesize_database('main', target := 'syn', {})",
    ],
)
def test_a_delta_above_that_of_the_dataset_makes_no_epsilon_cheap(exact, call: str) -> None:
    exact("CREATE TABLE t AS SELECT 1 AS a; CALL dp_protect('t', epsilon := 10, delta := 1e-9)")
    exact("CALL dp_attribute('t', 'a', low := 0, high := 3)")
    said = exact.refused(call.format("epsilon := 0.1, delta := 0.5"))
    assert "delta 0.5 is above 1e-09, at which the budget of 't' is kept" in said
    assert exact("SELECT spent FROM dp_budget() WHERE dataset = 't'") == [(0.0,)]
    exact(call.format("epsilon := 0.1, delta := 1e-9"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("'t'", "no budget"),
        ("'t', epsilon := 1", "epsilon needs a delta: CALL dp_protect('t', epsilon := 1, delta := 1e-9)"),
        ("'t', epsilon := 1, rho := 1", "2 budgets"),
        ("'t', epsilon := 0, delta := 1e-9", "epsilon 0 is not positive"),
        ("'t', epsilon := 1, delta := 1", "delta 1 is not between 0 and 1"),
        ("'t', rho := 'nan'::DOUBLE", "rho nan is not a finite number"),
        ("'t', mu := 1, accounting := 'pure'", "mu 1 is no pure budget"),
        ("'t', mu := 1, accounting := 'renyi'", "accounting 'renyi' is not available"),
        ("'t', mu := 1, unit := 'a'", "unit 'a' needs a bound on its rows: add max_rows := 5"),
        ("'t', mu := 1, unit := 'zz', max_rows := 2", "'t' has no column 'zz'; its columns are: a"),
        ("'t', mu := 1, max_rows := 2", "max_rows 2 needs a unit"),
        ("'t', mu := 1, unit := 'a', max_rows := 0", "max_rows 0 is not a whole number of at least 1"),
        ("'t', mu := 1, unit := 'a', max_rows := 1.5", "max_rows 1.5 is not a whole number of at least 1"),
        ("'t', mu := 1, delta := 2", "delta 2 is not between 0 and 1"),
        ("'nothing', mu := 1", "there is no table or view 'nothing'"),
        ("NULL, mu := 1", "name a table or view"),
        ("'range(5)', mu := 1", ""),
    ],
)
def test_what_cannot_be_protected(shared, arguments: str, says: str) -> None:
    shared("CREATE OR REPLACE TABLE t AS SELECT 1 AS a")
    line = shared.refused(f"CALL dp_protect({arguments})")
    assert line.startswith("Invalid Input Error: dp_protect: ")
    assert says in line
    assert shared("SELECT count(*) FROM dp_budget()") == [(1,)]


def test_two_tables_of_one_name_need_the_full_name(exact) -> None:
    exact("CREATE TABLE t AS SELECT 1 AS a; CREATE TEMP TABLE t AS SELECT 1 AS a")
    assert "could be 'memory.main.t' or 'temp.main.t'; write the full name" in exact.refused(
        "CALL dp_protect('t', mu := 1)"
    )
    assert exact("CALL dp_protect('main.t', mu := 1)")[0][0] == "memory.main.t"
    assert exact("CALL dp_protect('temp.main.t', mu := 1)")[0][0] == "temp.main.t"


def test_protecting_within_a_transaction_that_is_rolled_back(exact) -> None:
    exact("BEGIN; CREATE TABLE t AS SELECT 1 AS a")
    exact("CALL dp_protect('t', mu := 1); ROLLBACK")
    assert exact("SELECT count(*) FROM dp_budget()") == [(2,)]  # what was declared stays, and costs nothing
    exact("CREATE TABLE t AS SELECT 1 AS a")
    exact("CALL dp_attribute('t', 'a', low := 0, high := 1)")
    assert counts(exact, "t", "a", 0.1) == [(0, 0), (1, 1)]


def test_views_and_joins_behind_views(exact) -> None:
    exact(
        "CREATE TABLE patients AS SELECT i AS id, i % 2 = 0 AS insured FROM range(10) t(i);"
        "CREATE TABLE visits AS SELECT i % 10 AS patient, i % 3 AS ward FROM range(100) t(i);"
        "CREATE VIEW seen AS SELECT insured, ward, patient FROM visits JOIN patients ON id = patient"
    )
    assert exact("CALL dp_protect('seen', mu := 100, unit := 'PATIENT', max_rows := 5)")[0][:2] == (
        "memory.main.seen",
        "add or remove one 'patient' with up to 5 rows",
    )
    exact("CALL dp_attributes('seen'); CALL dp_attribute('seen', 'ward', low := 0, high := 2)")
    rows = exact("FROM dp_marginals('seen', ['insured', 'ward'], mu := 10)")
    assert [row[:2] for row in rows] == [(b, w) for b in (False, True, None) for w in (0, 1, 2)]
    assert sum(row[2] for row in rows) == pytest.approx(50)
    assert "'visits' is not protected" in exact.refused("FROM dp_marginals('visits', ['ward'], mu := 1)")


# dp_attribute

TYPES = [
    ("VARCHAR", '"values" := [\'b\', \'a\']', ["b", "a"], ["a", "b", "b", "c", None]),
    ("ENUM('x', 'y', 'z')", "", ["x", "y", "z"], ["y", "y", "z", None]),
    ("ENUM('x', 'y', 'z')", '"values" := [\'z\', \'x\']', ["z", "x"], ["y", "y", "z", None]),
    ("BOOLEAN", "", [False, True], [True, True, False, None]),
    ("BOOLEAN", '"values" := [true]', [True], [True, True, False, None]),
    ("TINYINT", "low := -128, high := 127", list(range(-128, 128)), [-128, 127, 0, 0, None]),
    ("SMALLINT", '"values" := [7, -3]', [7, -3], [7, 7, -3, 8, None]),
    ("INTEGER", "low := 3, high := 5", [3, 4, 5], [2, 3, 3, 5, 6, 2**31 - 1, -(2**31), None]),
    ("BIGINT", f'"values" := [{2**63 - 1}, {-(2**63)}]', [2**63 - 1, -(2**63)], [2**63 - 1, 0, -(2**63), -(2**63), None]),
    ("UTINYINT", "low := 250, high := 255, step := 1", list(range(250, 256)), [0, 250, 255, 255, None]),
    ("UBIGINT", f'"values" := [0, {2**64 - 1}]', [0, 2**64 - 1], [0, 1, 2**64 - 1, None]),
    ("HUGEINT", f'"values" := [{-(2**127)}, {2**127 - 1}]', [-(2**127), 2**127 - 1], [2**127 - 1, 0, -(2**127), None]),
    ("UHUGEINT", f'"values" := [0::UHUGEINT, {2**128 - 1}]', [0, 2**128 - 1], [2**128 - 1, 2**127, 0, 0, None]),
    ("FLOAT", '"values" := [0.5, 0.25]', [0.5, 0.25], [0.5, 0.25, math.nan, math.inf, None]),
    ("DOUBLE", '"values" := [0.1, 1e308]', [0.1, 1e308], [0.1, 1e308, math.nan, -math.inf, None]),
    ("DECIMAL(6,2)", '"values" := [0.1, 9999.99]', [Decimal("0.10"), Decimal("9999.99")], [Decimal("0.1"), Decimal("-9999.99"), None]),
    ("DATE", '"values" := [DATE \'2020-02-29\', \'1999-01-01\']', [datetime.date(2020, 2, 29), datetime.date(1999, 1, 1)], ["2020-02-29", "infinity", None]),
    ("TIMESTAMP", '"values" := [\'2020-02-29 12:00:00.5\']', [datetime.datetime(2020, 2, 29, 12, 0, 0, 500000)], ["2020-02-29 12:00:00.5", "-infinity", None]),
    ("TIME", '"values" := [\'12:30:00\']', [datetime.time(12, 30)], ["12:30:00", "00:00:00", None]),
    ("UUID", '"values" := [\'00000000-0000-0000-0000-0000000000AB\']', [UUID(int=0xAB)], [str(UUID(int=0xAB)), str(UUID(int=1)), None]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize(("type_", "declaration", "cells", "values"), TYPES, ids=[f"{t} {d}" for t, d, *_ in TYPES])
def test_values_of_every_type(exact, type_: str, declaration: str, cells: list[Any], values: list[Any]) -> None:
    texts = [None if value is None else str(value) for value in values]
    exact(f"CREATE TABLE t AS SELECT CAST(unnest(?::VARCHAR[]) AS {type_}) AS x", [texts])
    exact("CALL dp_protect('t', mu := 1000)")
    stored = [value for (value,) in exact("FROM t")]
    number = Counter(value for value in stored if value is not None and value in cells)
    nulls, outside = stored.count(None), len(stored) - stored.count(None) - number.total()
    for flags, extra in [("", []), ("nulls := true", [(None, nulls)]), ("other := true", [("other", outside + nulls)]),
                         ("other := true, nulls := true", [("other", outside), (None, nulls)])]:  # fmt: skip
        arguments = ", ".join(filter(None, ["'t'", "'x'", declaration, flags]))
        assert exact(f"CALL dp_attribute({arguments})") == [("x", type_, len(cells) + len(extra))]
        found = counts(exact, "t", "x", 1)
        assert [count for _, count in found] == [number[cell] for cell in cells] + [count for _, count in extra]
        type_now = "VARCHAR" if "other" in flags else type_
        assert exact.columns("FROM dp_marginals('t', ['x'], mu := 1)")[0] == ("x", type_now)
        if "other" not in flags:
            assert [label for label, _ in found] == cells + [None] * len(extra)
        else:
            assert [label for label, _ in found] == labels(exact, "t", "x")
            assert found[len(cells)] == ("other", extra[0][1])
        shown = ["true" if c is True else "false" if c is False else str(c) for c in cells]
        if type_ not in ("FLOAT", "DOUBLE", "DECIMAL(6,2)", "TIMESTAMP", "TIME"):
            assert labels(exact, "t", "x")[: len(cells)] == shown


BINS = [
    ("INTEGER", "bins := [0, 18, 65]", ["[0, 18)", "[18, 65]"], [(-1, 0), (0, 2), (17, 1), (18, 1), (65, 1), (66, 0)]),
    ("INTEGER", "low := 0, high := 10, step := 4", ["[0, 4)", "[4, 8)", "[8, 10]"], [(0, 1), (4, 1), (10, 1)]),
    ("UTINYINT", "bins := [-10, 0, 300]", ["[-10, 0)", "[0, 300]"], [(0, 1), (255, 1)]),
    ("UHUGEINT", f"bins := [5::UHUGEINT, {2**127}, {2**128 - 1}]", [f"[5, {2**127})", f"[{2**127}, {2**128 - 1}]"], [(4, 0), (2**127, 1), (2**128 - 1, 1)]),
    ("HUGEINT", f"bins := [{-(2**127)}, 0, {2**127 - 1}]", [f"[{-(2**127)}, 0)", f"[0, {2**127 - 1}]"], [(-(2**127), 1), (2**127 - 1, 1)]),
    ("DOUBLE", "low := 0, high := 0.3, step := 0.1", ["[0, 0.1)", "[0.1, 0.2)", "[0.2, 0.3]"], [(0.3, 1), (0.1, 1), (math.nan, 0), (math.inf, 0), (-math.inf, 0)]),
    ("FLOAT", "bins := [-0.5, 0.1, 3e38]", ["[-0.5, 0.1)", "[0.1, 3e+38]"], [(0.1, 1), (3e38, 1), (math.inf, 0), (math.nan, 0)]),
    ("DECIMAL(6,2)", "bins := [0, 0.005, 10]", ["[0.0, 0.005)", "[0.005, 10.0]"], [("0.00", 1), ("0.01", 1), ("10.00", 1), ("10.01", 0)]),
    ("DATE", "bins := ['2020-01-01', '2020-02-01', '2020-03-01']", ["[2020-01-01, 2020-02-01)", "[2020-02-01, 2020-03-01]"], [("2020-02-01", 1), ("2020-03-01", 1), ("infinity", 0), ("2019-12-31", 0)]),
    ("TIMESTAMP", "bins := [TIMESTAMP '2020-01-01', TIMESTAMP '2020-01-02 12:00']", ["[2020-01-01 00:00:00, 2020-01-02 12:00:00]"], [("2020-01-02 12:00:00", 1), ("2020-01-02 12:00:00.000001", 0)]),
]  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize(("type_", "declaration", "cells", "values"), BINS, ids=[f"{t} {d}" for t, d, *_ in BINS])
def test_bins_of_every_type(
    exact, type_: str, declaration: str, cells: list[str], values: list[tuple[Any, int]]
) -> None:
    exact("CALL dp_protect('people', mu := 1000, delta := 1e-9)")
    exact(f"CREATE TABLE t AS SELECT CAST(unnest(?::VARCHAR[]) AS {type_}) AS x", [[str(value) for value, _ in values]])
    exact(f"CALL dp_protect('t', mu := 1000); CALL dp_attribute('t', 'x', {declaration})")
    assert labels(exact, "t", "x") == cells
    found = counts(exact, "t", "x", 1)
    assert [label for label, _ in found] == cells
    assert sum(count for _, count in found) == sum(inside > 0 for _, inside in values)
    first, last = exact(
        "SELECT min(x), max(x) FROM t WHERE x::VARCHAR NOT IN ('nan', 'inf', '-inf', 'infinity', '-infinity')"
    )[0]
    assert first is not None
    assert last is not None
    rows = exact("SELECT x_low, x_high FROM dp_marginals('t', ['x'], mu := 1, bounds := true)")
    assert len(rows) == len(cells)
    assert all(low < high for low, high in rows)
    assert [str(low) for low, _ in rows[1:]] == [str(high) for _, high in rows[:-1]]


def test_steps_of_decimal_numbers_end_where_they_are_typed(exact) -> None:
    exact("CREATE TABLE t AS SELECT (i / 10.0)::DOUBLE AS x FROM range(11) t(i); CALL dp_protect('t', mu := 1000)")
    exact("CALL dp_attribute('t', 'x', low := 0, high := 1, step := 0.1)")
    assert [count for _, count in counts(exact, "t", "x", 1)] == [1] * 9 + [2]


NAMES = ["spa ce", 'quo"te', "apo'strophe", "ünïcødé", "hours-per-week", "select", "a.b", "a,b", "1st", "idx", "cells", "cell", "sd", "handle",
         "k", "n", "block", "c1", "s0", "one", "text", "r", "answers", "layout", "coded", "part", "query", "weight", "CamelCase", "日本"]  # fmt: skip


@pytest.mark.slow
def test_odd_names_all_together(exact) -> None:
    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    columns = ", ".join(f"(i % {2 + index % 3})::INTEGER AS {quoted(name)}" for index, name in enumerate(NAMES))
    exact(f'CREATE TABLE "odd ""name""" AS SELECT {columns} FROM range(12) t(i)')
    table = '"odd ""name"""'
    exact(f"CALL dp_protect('{table}', mu := 1000)")
    for index, name in enumerate(NAMES):
        exact("CALL dp_attribute(?, ?, low := 0, high := ?)", [table, name, 1 + index % 3])
    assert list(dict.fromkeys(a for (a,) in exact("SELECT attribute FROM dp_domain(?)", [table]))) == NAMES
    call = "FROM dp_marginals(?, ?, mu := 2)"
    found = exact.connection.execute(call, [table, [[name] for name in NAMES]])
    assert [column for column, *_ in found.description] == [
        "marginal", *NAMES, "count", "stddev", "ci_low", "ci_high", "private",
    ]  # fmt: skip
    rows = found.fetchall()
    for index, name in enumerate(NAMES):
        mine = [(row[1 + index], round(row[-5], 6)) for row in rows if row[0] == name]
        assert mine == [(value, 12 / (2 + index % 3)) for value in range(2 + index % 3)]
        assert all(
            row[1 + other] is None for row in rows if row[0] == name for other in range(len(NAMES)) if other != index
        )
    pair = exact(call, [table, ["c1", "s0", "sd"]])
    expected = Counter(
        (i % (2 + NAMES.index("c1") % 3), i % (2 + NAMES.index("s0") % 3), i % (2 + NAMES.index("sd") % 3))
        for i in range(12)
    )
    order = sorted(("c1", "s0", "sd"), key=NAMES.index)
    assert {row[:3]: round(row[3], 6) for row in pair if round(row[3], 6)} == {
        tuple(dict(zip(("c1", "s0", "sd"), key, strict=True))[name] for name in order): count
        for key, count in expected.items()
    }


@pytest.mark.parametrize("name", ["count", "stddev", "ci_low", "ci_high", "marginal", "private", "Count"])
def test_a_name_that_is_a_result_column_is_refused(exact, name: str) -> None:
    exact(f"CREATE TABLE t AS SELECT true AS \"{name}\"; CALL dp_protect('t', mu := 1)")
    assert "is also a result column. Rename it in a view" in exact.refused(f"CALL dp_attribute('t', '{name}')")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)


@pytest.mark.slow
@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cells=st.lists(TEXT, min_size=1, max_size=8, unique=True), extra=st.lists(TEXT, max_size=4), nulls=st.booleans())
def test_any_label(exact, cells: list[str], extra: list[str], nulls: bool) -> None:
    values = [*cells, *extra, *cells[:2], None]
    exact("CREATE OR REPLACE TABLE t AS SELECT unnest(?::VARCHAR[]) AS x", [values])
    exact("CALL dp_protect('t', mu := 1000)")
    exact('CALL dp_attribute(?, ?, "values" := ?, nulls := ?)', ["t", "x", cells, nulls])
    assert labels(exact, "t", "x") == cells + [None] * nulls
    assert counts(exact, "t", "x", 1) == [(cell, values.count(cell)) for cell in cells] + [(None, 1)] * nulls


@pytest.mark.some(10)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("'t', 'zz', low := 0, high := 1", "'t' has no column 'zz'; its columns are: i, s"),
        ("'t', NULL", "'t' has no column NULL"),
        ("'t', 'i'", "has type INTEGER, which does not list its values"),
        ("'t', 'i', \"values\" := []", "was declared without values"),
        ("'t', 'i', \"values\" := [1, 1]", "was declared with a value twice"),
        ("'t', 'i', \"values\" := ['a']", "has type INTEGER, which 'a' does not fit"),
        ("'t', 'i', \"values\" := [1.5]", "has type INTEGER, which 1.5 does not fit"),
        ("'t', 'i', \"values\" := [NULL]", "has type INTEGER, which NULL does not fit"),
        ("'t', 'i', \"values\" := [3_000_000_000]", "has type INTEGER, which 3000000000 does not fit"),
        ("'t', 'i', \"values\" := [true]", "has type INTEGER, which true does not fit"),
        ("'t', 'i', \"values\" := 'a'", "values is 'a'; write a list"),
        ("'t', 'i', bins := 5", "bins is 5; write a list"),
        ("'t', 'i', bins := [1]", "needs at least two bin edges"),
        ("'t', 'i', bins := [2, 1]", "needs at least two bin edges, each above the one before"),
        ("'t', 'i', bins := [1, 1]", "each above the one before"),
        ("'t', 'i', bins := [1, 2], low := 1, high := 2", "was declared by bins and by low/high. Use one of them"),
        ("'t', 'i', low := 5, high := 1", "was declared with low above high"),
        ("'t', 'i', low := 5", "lacks high; give low and high both"),
        ("'t', 'i', low := 'a', high := 'b'", "needs numbers for low, high and step"),
        ("'t', 'i', low := 1, high := 9, step := 0", "use low < high and a larger step > 0"),
        ("'t', 'i', low := 1, high := 9, step := -1", "use low < high and a larger step > 0"),
        ("'t', 'i', low := 0, high := 2_000_000_000", "At most 1,000,000 work"),
        ("'t', 'd', low := 0, high := 1, step := 1e-9", "use low < high and a larger step > 0"),
        ("'t', 'd', low := 0, high := 1", "give a step"),
        ("'t', 'd', bins := [0, 'inf'::DOUBLE]", "has type DOUBLE, which inf does not fit"),
        ("'t', 's', bins := ['a', 'b']", "has type VARCHAR, which has no order to cut"),
        ("'t', 's', low := 0, high := 1", 'or take TRY_CAST("s" AS DOUBLE), or AS DATE, in a view'),
        ("'t', 's', bins := [0, 18]", "read the file again with nullstr"),
        ("'t', 'e', bins := ['x', 'y']", 'which has no order to cut. Declare it by "values" := [...], or cast it'),
        ("'t', 's', \"values\" := [1]", "has type VARCHAR, which 1 does not fit"),
        ("'t', 's', \"values\" := ['a'], other := 'yes'", "other is 'yes'; write other := true"),
        ("'t', 's', \"values\" := ['a'], nulls := 1", "nulls is 1; write nulls := true"),
        ("'t', 'e', \"values\" := ['z']", "which 'z' does not fit"),
        ("'t', 'b', \"values\" := ['true']", "has type BOOLEAN, which 'true' does not fit"),
        ("'t', 'day', bins := ['2020-01-01', 'tomorrow']", "has type DATE, which 'tomorrow' does not fit"),
        (
            "'t', 'day', low := DATE '2020-01-01', high := DATE '2021-01-01', step := 1",
            "so low and high are such values and step is an interval above 0, of whole days",
        ),
        ("'t', 'list', \"values\" := [[1]]", "has type INTEGER[], which is not supported; make it a number, a date or a text"),
    ],
)  # fmt: skip
def test_what_cannot_be_declared(shared, arguments: str, says: str) -> None:
    shared(
        "CREATE OR REPLACE TABLE t (i INTEGER, s VARCHAR, d DOUBLE, e ENUM('x', 'y'), b BOOLEAN, day DATE, list INTEGER[])"
    )
    shared("CALL dp_protect('t', mu := 1)")
    line = shared.refused(f"CALL dp_attribute({arguments})")
    assert line.startswith("Invalid Input Error: dp_attribute: ")
    assert says in line
    assert shared("FROM dp_domain('t')") == []


# What the schema says


def test_attributes_from_the_schema(exact) -> None:
    exact(
        "CREATE TYPE mood AS ENUM ('sad', 'it''s ok');"
        "CREATE TABLE t (id INTEGER, m mood, b BOOLEAN NOT NULL, n INTEGER CHECK (n BETWEEN 1 AND 5), "
        '"the age" SMALLINT NOT NULL CHECK ("the age" >= -3 AND "the age" <= 2), d DOUBLE CHECK (d BETWEEN 0 AND 1), s VARCHAR, x INTEGER CHECK (x > 3), '
        "day DATE, parts INTEGER[])"
    )
    exact("CALL dp_protect('t', mu := 1, unit := 'id', max_rows := 2)")
    found = exact("CALL dp_attributes('t')")
    assert [(name, cells) for name, _, cells, _ in found] == [
        ("m", 3), ("b", 2), ("n", 6), ("the age", 6), ("d", None), ("s", None), ("x", None), ("day", None), ("parts", None),
    ]  # fmt: skip
    missing = {name: declare for name, _, _, declare in found if declare is not None}
    assert missing == {
        "d": "CALL dp_attribute('t', 'd', low := ..., high := ..., step := ...)",
        "s": "CALL dp_attribute('t', 's', \"values\" := [...])",
        "x": "CALL dp_attribute('t', 'x', low := ..., high := ...)",
        "day": "CALL dp_attribute('t', 'day', bins := [...])",
        "parts": "-- attribute 'parts' has type INTEGER[], which is not supported; make it a number, a date or a text in a view",
    }
    assert labels(exact, "t", "m") == ["sad", "it's ok", None]
    assert labels(exact, "t", "b") == ["false", "true"]
    assert labels(exact, "t", "the age") == ["-3", "-2", "-1", "0", "1", "2"]
    exact("CALL dp_attribute('t', 'n', low := 1, high := 2)")
    assert [cells for name, _, cells, _ in exact("CALL dp_attributes('t')") if name == "n"] == [2]


def test_a_check_of_another_column_is_no_range_of_this_one(exact) -> None:
    exact(
        "CREATE TABLE t (age INTEGER, page INTEGER CHECK (page BETWEEN 1 AND 3), a INTEGER, b INTEGER CHECK (a + b BETWEEN 0 AND 2))"
    )
    exact(
        "CREATE TABLE u (n INTEGER CHECK (n BETWEEN 1 AND 5 OR n = 99), m INTEGER CHECK (NOT m BETWEEN 1 AND 5), "
        "k INTEGER CHECK (k BETWEEN 1 AND 5 AND k <> 3), p INTEGER CHECK (p BETWEEN 1 AND 5 * 10), age INTEGER, "
        '"my-age" INTEGER CHECK ("my-age" BETWEEN 1 AND 5), "the age" INTEGER CHECK ("the age" >= 1 AND "the age" <= 5))'
    )
    exact("CALL dp_protect('t', mu := 1); CALL dp_protect('u', mu := 1)")
    assert [(name, cells) for name, _, cells, _ in exact("CALL dp_attributes('t')")] == [
        ("age", None), ("page", 4), ("a", None), ("b", None),
    ]  # fmt: skip
    cells = {name: cells for name, _, cells, _ in exact("CALL dp_attributes('u')")}
    assert cells == {"n": None, "m": None, "k": 6, "p": None, "age": None, "my-age": 6, "the age": 6}


def test_values_that_a_check_lists(exact) -> None:
    """Only where it says nothing else, and of types whose values it spells out."""
    exact(
        "CREATE TABLE t (s VARCHAR CHECK (s IN ('a', 'it''s', 'a', 'b, c')), \"a b\" VARCHAR NOT NULL, n INTEGER CHECK (n IN (3, -1)), "
        "one UTINYINT CHECK (one IN (7, 300)), CHECK (\"a b\" IN ('NOT x', 'y OR z')))"
    )
    exact(
        "CREATE TABLE u (s VARCHAR CHECK (s NOT IN ('a', 'b')), n INTEGER CHECK (n IN (1, 2) OR n > 7), m INTEGER CHECK (m + 1 IN (1, 2)), "
        "d DATE CHECK (d IN ('2024-01-01')), k VARCHAR CHECK (upper(k) IN ('A')), f DOUBLE CHECK (f IN (1, 2)), s2 VARCHAR, "
        "e VARCHAR CHECK ((e IN ('a', 'b')) = (n = 1)), t INTEGER CHECK (t IN (1, n)), none UTINYINT CHECK (none IN (-1)))"
    )
    exact("CALL dp_protect('t', mu := 1); CALL dp_protect('u', mu := 1); CALL dp_attributes('t')")
    assert labels(exact, "t", "s") == ["a", "it's", "b, c", None]
    assert labels(exact, "t", "a b") == ["NOT x", "y OR z"]
    assert labels(exact, "t", "n") == ["3", "-1", None]
    assert labels(exact, "t", "one") == ["7", None]
    assert {cells for _, _, cells, _ in exact("CALL dp_attributes('u')")} == {None}


def test_domain_and_check(exact) -> None:
    exact(
        "CREATE TABLE t AS SELECT unnest([1, 2, 3, 99, NULL]) AS n, unnest(['a', 'b', 'zz', NULL, NULL]) AS s;"
        "CALL dp_protect('t', mu := 10)"
    )
    assert "has no declared attributes" in exact.refused("CALL dp_check('t')")
    exact(
        "CALL dp_attribute('t', 'n', bins := [0, 2, 50]); CALL dp_attribute('t', 's', \"values\" := ['a', 'b'], other := true, nulls := true)"
    )
    assert exact.columns("FROM dp_domain('t')") == [
        (name, "INTEGER" if name == "position" else "VARCHAR")
        for name in ("attribute", "position", "label", "low", "high")
    ]
    assert exact("FROM dp_domain('t')") == [
        ("n", 0, "[0, 2)", "0", "2"), ("n", 1, "[2, 50]", "2", "50"), ("s", 0, "a", None, None), ("s", 1, "b", None, None),
        ("s", 2, "other", None, None), ("s", 3, None, None, None),
    ]  # fmt: skip
    assert exact("CALL dp_check('t')") == [
        ("n", 5, 1, 1, "left out", "left out", "NOT PRIVATE"),
        ("s", 5, 1, 2, "other", "its own cell", "NOT PRIVATE"),
    ]
    assert exact.charges() == 0


def test_declaring_again_replaces_and_keeps_the_order(exact) -> None:
    exact("CREATE TABLE t AS SELECT 1 AS a, 1 AS b; CALL dp_protect('t', mu := 10)")
    for declaration in ("'b', low := 0, high := 1", "'a', low := 0, high := 1", "'B', low := 0, high := 2"):
        exact(f"CALL dp_attribute('t', {declaration})")
    assert exact("SELECT attribute, count(*) FROM dp_domain('t') GROUP BY ALL ORDER BY ALL") == [("a", 2), ("b", 3)]
    assert [name for name, _ in exact.columns("FROM dp_marginals('t', ['a', 'b'], mu := 1)")][:2] == ["b", "a"]


def test_rows_outside_are_left_out_of_every_marginal_of_a_request(exact) -> None:
    exact("CREATE TABLE t AS SELECT unnest([0, 0, 9]) AS a, unnest([0, 1, 1]) AS b; CALL dp_protect('t', mu := 100)")
    exact("CALL dp_attribute('t', 'a', low := 0, high := 1); CALL dp_attribute('t', 'b', low := 0, high := 1)")
    both = exact(
        "SELECT marginal, sum(count)::INTEGER FROM dp_marginals('t', [['a'], ['b'], []], mu := 50) GROUP BY ALL ORDER BY ALL"
    )
    assert both == [("", 2), ("a", 2), ("b", 2)]
    assert exact("SELECT sum(count)::INTEGER FROM dp_marginals('t', ['b'], mu := 50)") == [(3,)]


# Declarations that are taken back

TAKEN = {
    "by low and high": "'race', low := 0, high := 3",
    "by values": "'sex', \"values\" := ['F', 'M'], other := true",
    "by bins": "'age', bins := [0, 50, 100]",
    "by its type": "'smoker', nulls := true",
}


@pytest.mark.parametrize("how", TAKEN)
def test_a_declaration_is_taken_back(exact, how: str) -> None:
    """Later requests have no domain of the column, and what was released before is as it was; declared again, it is found again."""
    column, *_ = TAKEN[how].split("'")[1:]
    exact("CALL dp_protect('people', mu := 1000, delta := 1e-9)")
    exact(f"CALL dp_attribute('people', {TAKEN[how]})")
    exact("CALL dp_view('shown', 'SELECT * FROM people')")
    asked = f"FROM dp_marginals('people', ['{column}'], mu := 1, release := 'one')"
    rows, of_view = exact(asked), exact(f"FROM dp_marginals('shown', ['{column}'], mu := 1)")
    ((name, _, cells),) = exact(f"CALL dp_attribute('people', '{column.upper()}', remove := true)")
    assert (name, cells) == (column, None)
    assert column not in dict(exact("SELECT DISTINCT attribute, 1 FROM dp_domain('people')"))
    assert f"'people'.'{column}' has no declared domain" in exact.refused(asked)
    assert exact("FROM dp_release('one')") == rows
    assert exact(f"FROM dp_marginals('shown', ['{column}'], mu := 1)") == of_view
    assert exact(f"FROM dp_marginals('shown', ['{column}'], mu := 2)")  # which has a declaration of its own
    assert "no declaration of" in exact.refused(f"CALL dp_attribute('people', '{column}', remove := true)")
    charges = exact.charges()
    exact(f"CALL dp_attribute('people', {TAKEN[how]})")
    assert exact(asked) == rows
    assert exact.charges() == charges


def test_declarations_of_members_and_views_are_taken_back_apart(exact) -> None:
    exact(
        "CREATE TABLE a (id INTEGER PRIMARY KEY, x INTEGER); CREATE TABLE b (id INTEGER REFERENCES a (id), x INTEGER)"
    )
    exact("CALL dp_protect(['a', 'b'], unit := 'a.id', max_rows := 2, mu := 9)")
    for table in ("a", "b"):
        exact(f"CALL dp_attribute('{table}', 'x', low := 0, high := 3)")
    exact("CALL dp_view('v', 'SELECT a.id, a.x, b.x AS y FROM a JOIN b USING (id)', max_rows := 2)")
    declared = {"a": ["x"], "b": ["x"], "v": ["x", "y"]}
    for table, column in (("b", "x"), ("v", "y"), ("a", "x")):
        exact(f"CALL dp_attribute('{table}', '{column}', remove := true)")
        declared[table].remove(column)
        for name, left in declared.items():
            found = (
                dict.fromkeys(attribute for (attribute,) in exact(f"SELECT attribute FROM dp_domain('{name}')"))
                if left
                else {}
            )
            assert list(found) == left


def test_of_what_is_declared_again_the_order_is_as_it_was(exact) -> None:
    asked = "FROM dp_marginals('people', 'all 1-way', mu := 1)"
    rows = exact(asked)
    exact("CALL dp_attribute('people', 'sex', remove := true)")
    assert exact(asked) != rows
    exact("CALL dp_attribute('people', 'sex', \"values\" := ['F', 'M'])")
    assert exact(asked) == rows
    assert exact.charges() == 2


def test_the_declaration_of_a_column_that_is_gone_is_taken_back(exact) -> None:
    exact("ALTER TABLE people DROP COLUMN race")
    asked = "FROM dp_marginals('people', 'all 1-way', mu := 1)"
    said = exact.refused(asked)
    assert said.endswith("take its declaration back: CALL dp_attribute('people', 'race', remove := true)")
    exact("CALL dp_attribute('people', 'race', remove := true)")
    assert exact(asked)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            "'nothing', remove := true",
            "'people' has no declaration of 'nothing' to take back; declared are: age, sex, race, smoker.",
        ),
        ("5, remove := true", "has no declaration of 5 to take back"),
        ("'sex', remove := true, low := 1, nulls := true", "declares nothing; leave low and nulls out."),
        ("'sex', remove := 5", "remove is 5"),
    ],
)
def test_what_cannot_be_taken_back(exact, asked: str, says: str) -> None:
    assert says in exact.refused(f"CALL dp_attribute('people', {asked})")
    assert len(exact("SELECT DISTINCT attribute FROM dp_domain('people')")) == 4


@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE", "DECIMAL(9,2)"])
@pytest.mark.parametrize("high", [1, 10, 20, 45, 50, 90, 100, 1000])
def test_an_automatic_step_is_never_refused(exact, type_: str, high: int) -> None:
    exact(f"CREATE TABLE f (x {type_}); CALL dp_protect('f', mu := 1)")
    ((_, _, cells),) = exact(f"CALL dp_attribute('f', 'x', low := 0, high := {high}, step := 'auto')")
    assert 9 < cells <= 50


def test_the_end_of_a_day_is_named(exact) -> None:
    exact("CREATE TABLE f (x TIME); CALL dp_protect('f', mu := 1)")
    for step in ("'auto'", "INTERVAL 1 HOUR"):
        call = f"CALL dp_attribute('f', 'x', low := '00:00:00', high := '{{}}', step := {step})"
        said = exact.refused(call.format("24:00:00"))
        assert said.endswith("to the end of the day write high := '23:59:59.999999'.")
        assert exact(call.format("23:59:59.999999")) == [("x", "TIME", 24)]
