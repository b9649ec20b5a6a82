"""dp_quantiles and dp_sql with mechanism 'select': values, intervals, charges, what is read again, and what is refused."""

import re
from html import unescape

import pytest

import duckdb_dp
from tests.conftest import Loaded

TYPES = {
    "INTEGER": ("i", "low := 0, high := 999"),
    "UTINYINT": ("i % 256", "low := 0, high := 255"),
    "DOUBLE": ("i / 4", "low := 0, high := 250, step := 0.25"),
    "DECIMAL(9,2)": ("i / 4", "low := 0, high := 250, step := 0.25"),
    "DATE": ("DATE '2020-01-01' + i::INTEGER", "low := DATE '2020-01-01', high := DATE '2022-12-31'"),
}


def made(db: Loaded, type_: str, protect: str = "mu := 10000, delta := 1e-9") -> None:
    value, declared = TYPES[type_]
    db(
        f"CREATE TABLE t AS SELECT ({value})::{type_} AS x, j % 2 AS g FROM (SELECT j, j * 38 % 999 AS i FROM range(3000) t(j))"
    )
    db(
        f"CALL dp_protect('t', {protect}); CALL dp_attribute('t', 'x', {declared}); CALL dp_attribute('t', 'g', low := 0, high := 1)"
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("type_", TYPES)
def test_without_noise_the_value_is_at_its_rank(exact: Loaded, type_: str) -> None:
    made(exact, type_)
    quantiles = [0.1, 0.5, 0.9]
    rows = exact("FROM dp_quantiles('t', 'x', ?, mechanism := 'select', mu := 1000)", [quantiles])
    assert [row[0] for row in rows] == quantiles
    for q, value, low, high, _ in rows:
        ((below, upto),) = exact("SELECT count(*) FILTER (x < ?), count(*) FILTER (x <= ?) FROM t", [low, high])
        assert below <= q * 3000 <= upto
        assert low <= value <= high
        ((below, upto),) = exact("SELECT count(*) FILTER (x < ?), count(*) FILTER (x <= ?) FROM t", [value, value])
        assert below - 20 <= q * 3000 <= upto + 20


def test_one_charge_and_only_what_was_selected(db: Loaded) -> None:
    made(db, "INTEGER", "mu := 10")
    first = db("FROM dp_quantiles('t', 'x', [0.5, 0.25], by := 'g', mu := 1, release := 'q')")
    assert db("SELECT mechanism, cost FROM dp_ledger()") == [("select", pytest.approx(1.0))]
    assert [row[:2] for row in first] == [(0, 0.5), (0, 0.25), (1, 0.5), (1, 0.25)]
    assert db("FROM dp_quantiles('t', 'x', [0.25, 0.5], by := 'g', mu := 1)") == [first[i] for i in (1, 0, 3, 2)]
    assert db("FROM dp_release('q')") == [first[i] for i in (1, 0, 3, 2)]
    assert db("FROM dp_release('q', quantiles := 0.5)") == [first[0], first[2]]
    assert "selected the quantiles [0.25, 0.5] alone; ask others by a call" in db.refused(
        "FROM dp_release('q', quantiles := 0.9)"
    )
    page = duckdb_dp.report(db.connection, "q").html
    (repeated,) = re.findall(r"FROM dp_quantiles\(.*?\);", unescape(page))
    assert db(repeated) == db("FROM dp_release('q')")
    assert db.charges() == 1
    db("FROM dp_quantiles('t', 'x', [0.25, 0.9], by := 'g', mu := 1)")
    assert db.charges() == 2


def test_auto_selects_few_quantiles_of_many_cells(db: Loaded) -> None:
    made(db, "INTEGER", "mu := 10")
    many = [round(i / 40, 3) for i in range(1, 40)]
    explained = "SELECT mechanism, stddev FROM dp_explain('t', 'x', quantiles := {}, mu := 0.5)"
    assert db(explained.format([0.5])) == [("select", None)]
    assert db(explained.format(many))[0][0] == "hdmm"
    ((route,),) = db("SELECT route FROM dp_explain('t', 'x', quantiles := [0.5], mu := 0.5)")
    assert route.startswith("1 quantiles are selected by their ranks, which takes 96% of the budget")
    assert "target_stddev: selected quantiles have no standard deviation" in db.refused(
        "FROM dp_explain('t', 'x', quantiles := [0.5], target_stddev := 4, mechanism := 'select')"
    )
    (row,) = db("SELECT value FROM dp_quantiles('t', 'x', [0.5], mu := 0.5, mechanism := 'hdmm')")
    assert row[0] is not None
    assert db("SELECT mechanism FROM dp_ledger()") == [("hdmm",)]


@pytest.mark.slow
@pytest.mark.parametrize("protect", ["epsilon := 100, delta := 0", "rho := 1000", "mu := 100"])
def test_every_accounting(db: Loaded, protect: str) -> None:
    db("CREATE TABLE t AS SELECT j * 38 % 99 AS x, j % 2 AS g FROM range(3000) t(j)")
    db(f"CALL dp_protect('t', {protect}); CALL dp_attribute('t', 'x', low := 0, high := 98)")
    db("CALL dp_attribute('t', 'g', low := 0, high := 1)")
    cost = {"e": "epsilon := 5", "r": "rho := 5", "m": "mu := 3"}[protect[0]]
    rows = db(f"FROM dp_quantiles('t', 'x', [0.1, 0.5], by := 'g', {cost}, mechanism := 'select')")
    for _, q, value, low, high, _ in rows:
        assert low <= value <= high
        assert abs(value / 100 - q) < 0.1
    rows = db(
        f"FROM dp_sql('SELECT g, median(x) AS m, count(*) AS n FROM t GROUP BY g', {cost}, mechanism := 'select')"
    )
    for row in rows:
        assert abs(row[1] - 50) < 10
    assert db("SELECT DISTINCT round(cost, 6) FROM dp_ledger()") == [(9.0 if protect[0] == "m" else 5.0,)]


@pytest.mark.slow
def test_selects_of_units_with_several_rows(db: Loaded) -> None:
    db("CREATE TABLE v AS SELECT i % 500 AS who, (i * 37 % 3000) / 2 AS x FROM range(3000) t(i)")
    db("CALL dp_protect('v', unit := 'who', max_rows := 'auto', mu := 100, delta := 1e-9)")
    ((median, stddev, low, high, rows, _),) = db(
        "FROM dp_sql('SELECT median(x) AS m FROM v', mu := 20, mechanism := 'select')"
    )
    assert low <= 750 <= high
    assert abs(median - 750) < 40
    assert stddev > 0
    assert rows[0] >= 1


REFUSED = {
    "FROM dp_marginals('t', ['g'], mechanism := 'select', mu := 1)": "mechanism 'select' is not known",
    "FROM dp_sql('SELECT sum(x) AS s FROM t', mechanism := 'select', mu := 1)": "'select' is for quantiles, such as median(x)",
    "FROM dp_quantiles('t', 'x', 2, mechanism := 'select', mu := 1)": "quantiles is 2; give numbers from 0 to 1",
    "FROM dp_quantiles('t', 'x', 0.5, mechanism := 'select', mu := 1000)": "is more than what remains",
}


@pytest.mark.parametrize("call", REFUSED)
def test_refusals(db: Loaded, call: str) -> None:
    made(db, "INTEGER", "mu := 10")
    assert REFUSED[call] in db.refused(call)
    assert db.charges() == 0


def test_an_empty_table_has_no_value(db: Loaded) -> None:
    db("CREATE TABLE t (x INTEGER); CALL dp_protect('t', mu := 10); CALL dp_attribute('t', 'x', low := 0, high := 999)")
    (row,) = db("FROM dp_quantiles('t', 'x', 0.5, mu := 1)")
    assert row[1] is None or row[2] <= row[1] <= row[3]
