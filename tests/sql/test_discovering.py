"""dp_discover on the SQL surface: every column type, bad input, charges, idempotence, order, declarations, roles."""

import datetime
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp.sql import dp_discover
from tests.conftest import Loaded

PROTECT = (
    "CALL dp_protect('visits', unit := 'patient', max_rows := 5, mu := 100, delta := 1e-6, discovery_delta := 1e-7)"
)
ASK = "FROM dp_discover('visits', 'diagnosis', max_values := 3, mu := 50)"


def visits(loaded: Loaded) -> Loaded:
    """600 patients, 400 of whom have the flu, 300 a cold, 200 asthma, and one a disease of her own."""
    loaded(
        "CREATE TABLE visits AS SELECT i % 600 AS patient, "
        "CASE WHEN i < 400 THEN 'flu' WHEN i < 700 THEN 'cold' WHEN i < 900 THEN 'asthma' WHEN i < 901 THEN 'rare' END AS diagnosis, "
        "i % 7 AS ward FROM range(1500) t(i)"
    )
    loaded(PROTECT)
    return loaded


def test_values_that_many_hold_come_in_order(exact: Loaded) -> None:
    visits(exact)
    rows = exact(ASK)
    assert [row[:2] for row in rows] == [("asthma", 200.0), ("cold", 300.0), ("flu", 400.0)]
    assert exact.columns(ASK) == [
        ("value", "VARCHAR"), ("count", "DOUBLE"), ("stddev", "DOUBLE"), ("threshold", "DOUBLE"), ("declare", "VARCHAR"),
        ("private", "BOOLEAN"),
    ]  # fmt: skip
    assert [row[2] for row in rows] == pytest.approx([3**0.5 / 50] * 3)
    assert len({row[3] for row in rows}) == 1
    call = rows[0][4]
    assert (
        call
        == "CALL dp_attribute('visits', 'diagnosis', \"values\" := ['asthma', 'cold', 'flu'], other := true, nulls := true)"
    )
    exact(call)
    counts = exact("SELECT diagnosis, count FROM dp_marginals('visits', ['diagnosis'], mu := 10)")
    assert [label for label, _ in counts] == ["asthma", "cold", "flu", "other", None]


def test_a_unit_counts_for_at_most_so_many_values(exact: Loaded) -> None:
    visits(exact)
    two = exact("SELECT sum(count) FROM dp_discover('visits', 'ward', max_values := 2, mu := 9)")
    assert two == [(1200.0,)]
    assert exact("SELECT sum(count) FROM dp_discover('visits', 'ward', mu := 9)") == [(600.0,)]
    assert exact("SELECT sum(count) FROM dp_discover('visits', 'ward', max_values := 100, mu := 90)")[0][0] > 1200


TYPES: list[tuple[str, list[str], list[Any]]] = [
    ("VARCHAR", ["'a'", "'A'", "'a '", "''", "'é'", "'it''s \"q\"'"], ["", "A", "a", "a ", "it's \"q\"", "é"]),
    ("INTEGER", ["-5", "10", "9"], [-5, 9, 10]),
    ("HUGEINT", ["170141183460469231731687303715884105727", "-3"], [-3, 2**127 - 1]),
    ("UBIGINT", ["18446744073709551615", "0"], [0, 2**64 - 1]),
    ("DOUBLE", ["1e300", "-0.0", "0.1", "'NaN'", "'inf'", "'-inf'"], [0.0, 0.1, 1e300]),
    ("FLOAT", ["0.5", "-1e30"], [-1.0000000150474662e30, 0.5]),
    ("DECIMAL(38,10)", ["1.5", "-9999999999999999999999999999.0000000001"], [
        Decimal("-9999999999999999999999999999.0000000001"), Decimal("1.5")
    ]),
    ("BOOLEAN", ["true", "false"], [False, True]),
    ("ENUM('z', 'a')", ["'a'", "'z'"], ["z", "a"]),
    ("UUID", ["'b0000000-0000-0000-0000-000000000000'", "'0b000000-0000-0000-0000-000000000000'"], [
        uuid.UUID("0b000000-0000-0000-0000-000000000000"), uuid.UUID("b0000000-0000-0000-0000-000000000000")
    ]),
    ("DATE", ["'2020-03-01'", "'1999-12-31'", "'infinity'", "'-infinity'", "'5000-01-01 (BC)'", "'20000-01-01'"], [
        datetime.date(1999, 12, 31), datetime.date(2020, 3, 1)
    ]),
    ("TIME", ["'12:30:00'", "'01:00:00.5'"], [datetime.time(1, 0, 0, 500000), datetime.time(12, 30)]),
    ("TIMESTAMP", ["'2020-03-01 10:00:00.25'", "'infinity'"], [datetime.datetime(2020, 3, 1, 10, 0, 0, 250000)]),
    ("TIMESTAMP_S", ["'2020-03-01 10:00:00'"], [datetime.datetime(2020, 3, 1, 10)]),
]  # fmt: skip


@pytest.mark.some(3)
@pytest.mark.parametrize(("type_", "values", "expected"), TYPES, ids=[type_ for type_, *_ in TYPES])
def test_every_type(exact: Loaded, type_: str, values: list[str], expected: list[Any]) -> None:
    """NaN and infinities are never found; what is found is declared as it is, with NULL."""
    listed = ", ".join(f"CAST({value} AS {type_})" for value in [*values, "NULL"])
    n = len(values) + 1
    exact(f"CREATE TABLE t AS SELECT [{listed}][1 + i % {n}]::{type_} AS x FROM range({100 * n}) r(i)")
    exact("CALL dp_protect('t', mu := 100, delta := 1e-6, discovery_delta := 1e-7)")
    rows = exact("FROM dp_discover('t', 'x', mu := 50, declare := true)")
    assert [row[:2] for row in rows] == [(value, 100.0) for value in expected]
    assert exact.columns("FROM dp_discover('t', 'x', mu := 50)")[0] == ("value", type_)
    if type_ != "DECIMAL(38,10)":  # one of its values has more digits than a declaration
        domain = exact("SELECT count(*) FROM dp_domain('t')")
        assert domain == [(len(expected) + 1 + (type_ not in ("BOOLEAN", "ENUM('z', 'a')")),)]  # 'other', and NULL
    stored = exact("SELECT declare FROM dp_discover('t', 'x', mu := 50)")[0][0]
    exact(stored)
    assert exact.charges() == 1


def test_texts_are_told_apart_by_their_bytes(exact: Loaded) -> None:
    exact("CREATE TABLE t (x VARCHAR COLLATE NOCASE)")
    exact(
        "INSERT INTO t SELECT ['a', 'A', 'ä', 'x' || chr(0), repeat('y', 1001), repeat('z', 1000)][1 + i % 6] FROM range(600) r(i)"
    )
    exact("CALL dp_protect('t', mu := 100, delta := 1e-6, discovery_delta := 1e-7)")
    found = exact("SELECT value, count FROM dp_discover('t', 'x', mu := 50)")
    assert found == [("A", 100.0), ("a", 100.0), ("z" * 1000, 100.0), ("ä", 100.0)]


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_nothing_shows_how_much_there_is_below_the_threshold(exact: Loaded, rows: int) -> None:
    exact(f"CREATE TABLE t AS SELECT i AS u, 'only ' || i AS x FROM range({rows}) r(i)")
    exact("CALL dp_protect('t', unit := 'u', max_rows := 1, mu := 1, delta := 1e-6, discovery_delta := 1e-7)")
    assert exact("FROM dp_discover('t', 'x', mu := 0.5)") == []
    assert exact("FROM dp_release(1)") == []


def test_a_request_is_charged_once(exact: Loaded) -> None:
    visits(exact)
    first = exact(ASK)
    for again in (ASK, ASK.replace("mu := 50", "mu := 50.0"), f"{ASK} ORDER BY value", "FROM dp_release(1)"):
        assert exact(again) == first
    for free in (f"EXPLAIN {ASK.replace('50', '40')}", f"DESCRIBE {ASK.replace('50', '40')}"):
        exact(free)
    assert exact.charges() == 1
    exact(ASK.replace(")", ", release := 'found')").replace("50", "30"))
    assert exact("SELECT count(*) FROM dp_release('found')") == [(3,)]
    exact(ASK.replace(")", ", fresh := true)").replace("50", "30"))
    assert exact.charges() == 3
    (row, *_) = exact.charged()
    assert (row["function"], row["cost"], row["mechanism"]) == ("dp_discover", 2500.0, "gaussian")
    assert row["discovery_delta"] == pytest.approx(0.25e-7)  # as the share of the budget
    left = exact("SELECT discovery_delta, discovery_delta_remaining FROM dp_budget() WHERE dataset = 'visits'")
    assert left == [(1e-7, pytest.approx(1e-7 * (1 - 0.25 - 2 * 0.09)))]


@pytest.mark.slow
def test_the_budget_is_never_overspent(exact: Loaded) -> None:
    exact("CREATE TABLE t AS SELECT 1 AS x")
    exact("CALL dp_protect('t', mu := 1, delta := 1e-6, discovery_delta := 1e-7)")
    for i in range(100):
        exact(f"FROM dp_discover('t', 'x', mu := {0.01 + i / 1e5})")
    assert "of discovery_delta" in exact.refused("FROM dp_discover('t', 'x', mu := 0.02)")
    assert "more than what remains" in exact.refused("FROM dp_discover('t', 'x', mu := 1)").replace(
        "a threshold", "more than what remains"
    )
    assert exact("FROM dp_discover('t', 'x', mu := 0.01)") == []


BAD = [
    ("'visits', 'nothing'", "has no column 'nothing'; its columns are: patient, diagnosis, ward"),
    ("'visits', NULL", "has no column NULL"),
    ("'visits', 3", "has no column 3"),
    ("'visit', 'diagnosis'", "is not protected"),
    ("'visits', 'diagnosis', find := 'all'", "find 'all' is not known"),
    ("'visits', 'diagnosis', find := 3", "find is 3; it is a word"),
    ("'visits', 'diagnosis', max_values := 0", "max_values is 0"),
    ("'visits', 'diagnosis', max_values := 'x'", "max_values is 'x'"),
    ("'visits', 'diagnosis', bins := 4", "bins is for find := 'bins'"),
    ("'visits', 'diagnosis', declare := 'yes'", "declare is 'yes'"),
    ("'visits', 'diagnosis', release := 4", "release is 4"),
    ("'visits', 'list'", "which is not supported"),
    ("'visits', 'patient'", "'patient' is the unit of 'visits'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input(exact: Loaded, arguments: str, message: str) -> None:
    visits(exact)
    if "list" in arguments:
        exact("ALTER TABLE visits ADD COLUMN list INTEGER[]")
    assert message in exact.refused(f"FROM dp_discover({arguments}, mu := 1)")


def test_bad_budgets(exact: Loaded) -> None:
    visits(exact)
    for budget, message in (
        ("", "no budget"),
        (", mu := 1000", "more than what remains"),
        (", mu := 1e-90", "would have to be held by"),
        (", mu := -1", "not positive"),
    ):
        assert message in exact.refused(f"FROM dp_discover('visits', 'diagnosis'{budget})")
    useless = exact.refused("FROM dp_discover('visits', 'ward', find := 'bounds', mu := 1e-90)")
    assert "would have to be held by" in useless


def test_the_rows_of_another_function_are_not_read_as_its_own(exact: Loaded) -> None:
    visits(exact)
    exact("CALL dp_attribute('visits', 'ward', \"values\" := [1, 2])")
    exact("FROM dp_marginals('visits', ['ward'], mu := 0.1, release := 'wards')")
    call = "SELECT _dp_call('', '{}', '{{\"handle\":\"1\",\"view\":\"all\"}}', '', '', NULL::VARCHAR)"
    for function in ("dp_discover", "dp_quality"):
        assert "release 1 is of dp_marginals" in str(exact(call.format(function)))


def test_tables_without_a_discovery_delta(exact: Loaded) -> None:
    assert "has not reserved for 'people'" in exact.refused("FROM dp_discover('people', 'sex', mu := 1)")
    exact("CREATE TABLE r AS SELECT 1 AS x; CALL dp_protect('r', mu := 1, delta := 1e-6, discovery_delta := 1e-9)")
    assert "each row of 'r' is a unit" in exact.refused("FROM dp_discover('r', 'x', max_values := 2, mu := 0.5)")


def test_default_collations_are_refused(exact: Loaded) -> None:
    visits(exact)
    exact("SET default_collation = 'nocase'")
    try:
        assert "default_collation" in exact.refused(ASK)
    finally:
        exact("RESET default_collation")


def test_requests_are_signed(exact: Loaded) -> None:
    visits(exact)
    exact(ASK)
    request = exact.charged()[0]["request"]
    forged = "SELECT _dp_run_values(?, NULL, NULL, ['flu'::BLOB], [10])"
    assert exact(forged, ["0" * 64 + request])[0][0].startswith("!")
    handle = json.dumps({"handle": "1", "sealed": "0" * 64})
    exact("SELECT _dp_call('', 'dp_discover', ?, '', '', NULL)", [handle])
    assert exact("SELECT count(*) FROM dp_domain('visits')") == [(0,)]


def test_declaring_is_the_curators(folder: Path) -> None:
    with duckdb.connect() as connection:
        duckdb_dp.testing.load_exact(connection, folder)
        loaded = visits(Loaded(connection, folder))
        analyst = Loaded(connection.cursor(), folder)
        duckdb_dp.load(analyst.connection, folder, role="analyst")
        assert "for the curator only" in analyst.refused(ASK.replace(")", ", declare := true)"))
        assert analyst("SELECT count(*) >= 0 FROM dp_domain('visits')") == [(True,)]
        assert len(loaded("SHOW TABLES")) == 1


def test_discovered_with_declare_then_asked(exact: Loaded) -> None:
    visits(exact)
    exact(f"EXPLAIN {ASK.replace(')', ', declare := true)')}")
    assert exact("FROM dp_domain('visits')") == []
    exact(ASK.replace(")", ", declare := true)"))
    assert exact("SELECT label FROM dp_domain('visits')") == [("asthma",), ("cold",), ("flu",), ("other",), (None,)]


@pytest.mark.slow
def test_arrival_plays_no_part(tmp_path: Path) -> None:
    found = []
    for order in ("i", "hash(i)", "-i"):
        with duckdb.connect() as connection:
            connection.execute(
                f"CREATE TABLE t AS SELECT i % 50 AS u, 'v' || i % 9 AS x FROM range(900) r(i) ORDER BY {order}"
            )
            duckdb_dp.testing.load(connection, tmp_path / f"{len(found)}.dp", seed=5)
            connection.execute(
                "CALL dp_protect('t', unit := 'u', max_rows := 9, mu := 10, delta := 1e-6, discovery_delta := 1e-7)"
            ).fetchall()
            found.append(connection.execute("FROM dp_discover('t', 'x', max_values := 9, mu := 5)").fetchall())
    assert len(found[0]) == 9
    assert found[0] == found[1] == found[2]


def test_its_report_shows_the_values(exact: Loaded) -> None:
    visits(exact)
    exact(ASK)
    html = duckdb_dp.report(exact.connection, 1).html
    assert "asthma" in html
    assert "Values that few hold are not shown" in html


CELLS: list[tuple[str, str, list[Any]]] = [
    ("TINYINT", "i % 60", [0.0, 100.0]),
    ("INTEGER", "1900 + i % 100", [1000.0, 2000.0]),
    ("UBIGINT", "18446744073709551615 - i", [1e19, 18446744073709551615.0]),
    ("HUGEINT", "'-170141183460469231731687303715884105728'::HUGEINT + i::HUGEINT", [-(2.0**127), -1e38]),
    ("DOUBLE", "-exp(i / 100.0)", [-50000.0, -0.5]),
    ("FLOAT", "i / 1e6", [0.0, 0.001]),
    ("DECIMAL(9,2)", "i / 100.0", [0.0, 10.0]),
    ("DECIMAL(38,38)", "(i::DECIMAL(38,0))::DOUBLE / 1e5", [0.0, 0.01]),
    ("DATE", "DATE '2019-02-01' + (i % 400)::INTEGER", [datetime.date(2019, 1, 1), datetime.date(2021, 1, 1)]),
    ("TIMESTAMP", "TIMESTAMP '1999-01-01' + INTERVAL 1 HOUR * i", [datetime.datetime(1999, 1, 1), datetime.datetime(2000, 1, 1)]),
    ("TIMESTAMP_NS", "TIMESTAMP '1999-01-01' + INTERVAL 1 HOUR * i", [datetime.datetime(1999, 1, 1), datetime.datetime(2000, 1, 1)]),
    ("TIME", "TIME '09:00:00' + INTERVAL 1 SECOND * i", [datetime.time(9), datetime.time(10)]),
]  # fmt: skip


def numbers(exact: Loaded, type_: str, value: str, mu: int = 100) -> None:
    """1,000 values, and what is no number."""
    odd = {"DOUBLE": "'NaN', 'inf', '-inf'", "FLOAT": "'NaN'", "DATE": "'infinity', '-infinity'"}.get(type_, "NULL")
    exact(f"CREATE TABLE t AS SELECT ({value})::{type_} AS x FROM range(1000) r(i)")
    exact(f"INSERT INTO t SELECT unnest([{odd}, NULL])::{type_} FROM range(50)")
    exact(f"CALL dp_protect('t', mu := {mu}, delta := 1e-6)")


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize(("type_", "value", "bounds"), CELLS, ids=[type_ for type_, *_ in CELLS])
def test_bounds_and_bins_of_every_ordered_type(exact: Loaded, type_: str, value: str, bounds: list[Any]) -> None:
    numbers(exact, type_, value)
    ((low, high, count, stddev, threshold, call, _),) = exact("FROM dp_discover('t', 'x', find := 'bounds', mu := 50)")
    assert [low, high] == bounds
    assert count == 1000
    assert stddev > 0
    assert threshold > 0
    exact(call)
    within = exact("SELECT sum(count) FROM dp_marginals('t', ['x'], mu := 10) WHERE x IS NOT NULL")
    assert within[0][0] == pytest.approx(1000)
    rows = exact("FROM dp_discover('t', 'x', find := 'bins', bins := 4, mu := 50, declare := true)")
    assert 1 <= len(rows) <= 4
    assert sum(row[2] for row in rows) == pytest.approx(1000)
    assert [row[1] for row in rows[:-1]] == [row[0] for row in rows[1:]]
    assert exact("SELECT count(*) FROM dp_domain('t')") == [(len(rows) + 1,)]  # NULL is declared too
    assert len(exact.charged()) == 3
    edge = exact.columns("FROM dp_discover('t', 'x', find := 'bins', bins := 4, mu := 50)")[:2]
    assert edge == [("low", type_ if type_[:4] in ("DATE", "TIME") else "DOUBLE"), ("high", edge[0][1])]


@pytest.mark.slow
def test_bins_have_equal_counts_and_stddevs_that_hold(tmp_path: Path) -> None:
    errors = []
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT (i % 80)::INTEGER AS x FROM range(80000) r(i)")
        for seed in range(30):
            duckdb_dp.testing.load(connection, tmp_path / f"{seed}.dp", seed=seed)
            connection.execute("CALL dp_protect('t', epsilon := 1, delta := 1e-9)").fetchall()
            rows = connection.execute(
                "FROM dp_discover('t', 'x', find := 'bins', bins := 8, epsilon := 0.5)"
            ).fetchall()
            assert len(rows) == 8
            for low, high, count, stddev, *_ in rows:  # by noise the bounds may take an empty cell more
                true = 1000 * (min(high, 80) - max(low, 0))
                assert abs(true - 10_000) <= 1000
                errors.append((count - true) / stddev)
    mean_square = sum(error**2 for error in errors) / len(errors)
    assert 0.75 < mean_square < 1.3


@pytest.mark.parametrize("find", ["bounds", "bins"])
def test_where_there_is_nothing_nothing_is_found(exact: Loaded, find: str) -> None:
    exact("CREATE TABLE e (x DOUBLE); CALL dp_protect('e', mu := 1, delta := 1e-6)")
    assert exact(f"FROM dp_discover('e', 'x', find := '{find}', mu := 0.5)") == []
    assert exact(f"FROM dp_discover('e', 'x', find := '{find}', mu := 0.5, declare := true)") == []
    assert exact.charges() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'people', 'sex', find := 'bounds'", "which has no order"),
        ("'people', 'age', find := 'bounds', bins := 3", "bins is for find := 'bins'"),
        ("'people', 'age', find := 'bins', max_values := 3", "max_values is for find := 'values'"),
        ("'people', 'age', find := 'bins', bins := 0", "bins is 0"),
    ],
)
def test_bad_input_for_bounds_and_bins(exact: Loaded, arguments: str, message: str) -> None:
    assert message in exact.refused(f"FROM dp_discover({arguments}, mu := 1)")


def test_pure_budgets_are_refused(exact: Loaded) -> None:
    exact("CREATE TABLE p AS SELECT 1 AS x; CALL dp_protect('p', epsilon := 1, delta := 0)")
    for find in ("values", "bounds", "bins"):
        assert "no pure epsilon" in exact.refused(f"FROM dp_discover('p', 'x', find := '{find}', epsilon := 0.5)")


def test_the_price_is_explained(exact: Loaded) -> None:
    visits(exact)
    asked = {"diagnosis": "'max_values': 3", "ward": "'find': 'bounds'"}
    for name, more in asked.items():
        (row,) = exact(f"FROM dp_explain('visits', {{'discover': '{name}', {more}}}, mu := 50)")
        call = more.replace("'", "", 2).replace(":", " :=", 1)
        found = exact(f"FROM dp_discover('visits', '{name}', {call}, mu := 50)")
        assert row[:2] == (name, "values" if name == "diagnosis" else "bounds")
        assert row[3] == found[0][-3]
        assert row[7] == pytest.approx(50)
    assert row[4] is None
    assert "'find', 'max_values' and 'bins'" in exact.refused(
        "FROM dp_explain('visits', {'discover': 'ward', 'k': 1}, mu := 50)"
    )
    assert exact.charges() == 2


@pytest.mark.slow
def test_python_returns_what_sql_returns(exact: Loaded) -> None:
    visits(exact)
    found = duckdb_dp.discover(exact.connection, "visits", "diagnosis", max_values=3, mu=50, declare=True)
    assert exact("SELECT count(*) FROM dp_domain('visits')") == [(5,)]
    assert [tuple(row.values()) for row in found.to_pylist()] == exact(ASK)
    assert found.column_names == [name for name, _ in exact.columns(ASK)]
    bins = duckdb_dp.discover(exact.connection, "visits", "ward", find="bins", bins=3, mu=50)
    again = exact("FROM dp_discover('visits', 'ward', find := 'bins', bins := 3, mu := 50)")
    assert [tuple(row.values()) for row in bins.to_pylist()] == again
    assert exact.charges() == 2


@pytest.mark.some(3)
@pytest.mark.parametrize("find", ["values", "bounds", "bins"])
@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("type_", "held"),
    [
        ("DOUBLE", ["1e35", "3e35"]),
        ("DOUBLE", ["0.5", "3", "1e-9"]),
        ("FLOAT", ["-20000", "1"]),
        ("UHUGEINT", ["0", "7", "340282366920938463463374607431768211455"]),
        ("HUGEINT", ["-170141183460469231731687303715884105728", "5"]),
        ("BIGINT", ["-9223372036854775808", "9223372036854775807"]),
        ("DECIMAL(38,10)", ["0.5", "12345678901234567"]),
        ("DECIMAL(38,0)", ["99999999999999999999999999999999999999", "3"]),
        ("DECIMAL(18,2)", ["0.01", "0.02", "0.03"]),
        ("TIMESTAMP", ["9999-12-31 23:59:59", "2020-01-01 00:00:00"]),
        ("TIMESTAMP_S", ["9999-12-31 23:59:59"]),
        ("DATE", ["0001-01-01", "9999-12-31"]),
        ("VARCHAR", ["it's", '"', "other", "[1]"]),
    ],
)
def test_what_is_pasted_is_what_would_be_declared(exact: Loaded, type_: str, held: list[str], find: str) -> None:
    if find != "values" and type_ == "VARCHAR":
        return
    listed = ", ".join("'" + text.replace("'", "''") + "'" for text in held)
    for table in ("shown", "done"):
        exact(
            f"CREATE TABLE {table} AS SELECT i AS u, CAST(([{listed}])[i % {len(held)} + 1] AS {type_}) AS x FROM range(900) r(i)"
        )
        exact(f"CALL dp_protect('{table}', mu := 1e4, delta := 1e-6, discovery_delta := 1e-7)")
    call = f"find := '{find}', mu := 100"
    text = exact(f"SELECT declare FROM dp_discover('shown', 'x', {call})")[0][0]
    exact(f"FROM dp_discover('done', 'x', {call}, declare := true)")
    assert text is not None
    exact(text)
    domains = [exact(f"FROM dp_domain('{table}')") for table in ("shown", "done")]
    assert domains[0] == domains[1]
    answers = [exact(f"FROM dp_marginals('{table}', ['x'], mu := 1e3)") for table in ("shown", "done")]
    assert [row[0] for row in answers[0]] == [row[0] for row in answers[1]]


MISSING = [("values", "VARCHAR", "'v' || i % 3"), ("values", "BOOLEAN", "i % 2 = 0"), ("values", "INTEGER", "i % 3")]
MISSING += [
    (find, type_, "i % 50 + 1") for find in ("bounds", "bins") for type_ in ("INTEGER", "DOUBLE", "DECIMAL(9,2)")
]


@pytest.mark.parametrize("share", [0, 0.01, 0.3])
@pytest.mark.parametrize(("find", "type_", "value"), MISSING)
def test_null_is_declared_where_clearly_some_rows_have_it(
    tmp_path: Path, find: str, type_: str, value: str, share: float
) -> None:
    """By a noisy count, for the same charge: of none, and of as few as an empty cell may seem to have, nothing is said."""
    with duckdb.connect() as connection:
        duckdb_dp.testing.load(connection, tmp_path / "l.dp", seed=1)
        loaded = Loaded(connection, tmp_path / "l.dp")
        loaded(
            f"CREATE TABLE t AS SELECT CASE WHEN i >= {share} * 3000 THEN ({value})::{type_} END AS x FROM range(3000) r(i)"
        )
        loaded("CALL dp_protect('t', epsilon := 3, delta := 1e-9, discovery_delta := 1e-10)")
        rows = loaded(f"SELECT declare FROM dp_discover('t', 'x', find := '{find}', epsilon := 0.5, declare := true)")
        (call,) = {row[0] for row in rows}
        assert ("nulls := true" in call) == (share == 0.3)
        labels = [label for (label,) in loaded("SELECT label FROM dp_domain('t')")]
        assert (None in labels) == (share == 0.3)
        loaded(call)
        assert loaded.charges() == 1


def test_a_release_that_did_not_look_for_null_stays_free(exact: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    visits(exact)
    asked = [ASK, "FROM dp_discover('visits', 'ward', find := 'bins', bins := 3, mu := 9)"]
    made = dp_discover.request_of
    with monkeypatch.context() as patched:
        patched.setattr(dp_discover, "request_of", lambda *args, **more: dp_discover._former(made(*args, **more)))
        before = [exact(one) for one in asked]
    charges = exact.charges()
    assert [exact(one) for one in asked] == before
    assert exact.charges() == charges
    assert "nulls" not in before[0][0][4]


SHAPES = {
    "lognormal": "exp(3 + {z})",
    "exponential": "-100 * ln(1 - {u})",
    "uniform": "100 * {u}",
}
"""Values of a number u between 0 and 1, and of its normal quantile z."""


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_bins_reach_to_where_noise_hides_the_rest(tmp_path: Path, shape: str) -> None:
    """Of 4,000 rows, five of each unit; at the edge of what the noise lets through a few percent are outside."""
    from scipy.special import ndtri

    rows = np.arange(4000) / 4000 + 1 / 8000
    left = []
    with duckdb.connect() as connection:
        columns = {"u": rows, "z": ndtri(rows)}
        connection.register("made", pa.table(columns))
        value = SHAPES[shape].format(**{name: name for name in columns})
        connection.execute(f"CREATE TABLE t AS SELECT (row_number() OVER ()) % 800 AS id, {value} AS x FROM made")
        for seed in range(12):
            duckdb_dp.testing.load(connection, tmp_path / f"{seed}.dp", seed=seed)
            connection.execute(
                "CALL dp_protect('t', unit := 'id', max_rows := 5, epsilon := 3, delta := 1e-9)"
            ).fetchall()
            found = connection.execute(
                "SELECT min(low), max(high) FROM dp_discover('t', 'x', find := 'bins', epsilon := 0.5)"
            ).fetchall()
            outside = "SELECT count(*) FILTER (WHERE NOT x BETWEEN $1 AND $2) / count(*) FROM t"
            left.append(connection.execute(outside, list(found[0])).fetchall()[0][0])
    assert sum(left) / len(left) < 0.08
