"""dp_sql where nobody bounds the rows of a unit: what it adds is clipped to a norm that is chosen, or declared."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp.sql import own_names
from tests.conftest import Loaded

AUTO = "unit := 'u', max_rows := 'auto'"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """200 units of 5 rows each in three groups, and one of 3,000 rows in one of them."""
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, tmp_path / "l.dp")
        con.execute(
            "CREATE TABLE t AS SELECT i % 200 AS u, i % 3 AS g, (i % 7)::DECIMAL(8, 2) / 4 AS d, i % 11 / 3.0 AS x FROM range(1000) AS r(i)"
        )
        con.execute("INSERT INTO t SELECT 999, 1, 2.5, 1.5 FROM range(3000)")
        con.execute(f"CALL dp_protect('t', {AUTO}, mu := 100); CALL dp_attribute('t', 'g', low := 0, high := 2)")
        yield con


def asked(con: duckdb.DuckDBPyConnection, select: str, more: str = "mu := 20") -> tuple[list[str], list[tuple]]:
    found = con.execute(f"FROM dp_sql(?, {more})", [select])
    return [column[0] for column in found.description if column[0] != "private"], found.fetchall()


def test_heavy_units_are_clipped_and_the_answer_says_where(con: duckdb.DuckDBPyConnection) -> None:
    names, ((n, stddev, low, high, (tau,), *_),) = asked(con, "SELECT count(*) AS n FROM t")
    assert names == ["n", "stddev", "ci_low", "ci_high", "clipped_at"]
    assert 4 <= tau <= 16  # 5 rows a unit, and one of 3,000
    assert n == pytest.approx(1000 + tau, abs=200 * max(0.0, 5 - tau) + 1e-3)
    assert low < n < high
    assert stddev < 5


def test_a_declared_norm_costs_nothing_and_clips_there(con: duckdb.DuckDBPyConnection) -> None:
    _, ((n, chosen, *_),) = asked(con, "SELECT count(*) AS n FROM t", "mu := 20, clip := 16")
    assert n == pytest.approx(1016, abs=1e-3)
    assert chosen == pytest.approx(16 / 20)
    _, rows = asked(con, "SELECT g, sum(d) AS s FROM t GROUP BY g", "mu := 20, clip := 100")
    expected = dict(con.execute("SELECT g, sum(d)::DOUBLE FROM t WHERE u < 200 GROUP BY g").fetchall())
    assert {row[0]: row[1] for row in rows} == pytest.approx({**expected, 1: expected[1] + 100}, abs=0.01)
    assert all([100] in row[-2:] for row in rows)


def test_a_declared_norm_is_of_the_values_themselves(con: duckdb.DuckDBPyConnection) -> None:
    """An average is of no more than its sum is: of x less the middle of wide bounds nearly all would be cut off."""
    con.execute("DELETE FROM t WHERE u = 999; CALL dp_attribute('t', 'd', low := 0, high := 1000, step := 100)")
    _, ((m, *_),) = asked(con, "SELECT avg(d) AS m FROM t", "mu := 20, clip := 50")
    assert m == pytest.approx(con.execute("SELECT avg(d) FROM t").fetchall()[0][0], abs=0.01)
    _, ((s, *_),) = asked(con, "SELECT stddev_pop(d) AS s FROM t", "mu := 20, clip := 50")
    assert s == pytest.approx(con.execute("SELECT stddev_pop(d) FROM t").fetchall()[0][0], abs=0.01)


@pytest.mark.slow
def test_sums_averages_and_variances_need_no_bounds(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("DELETE FROM t WHERE u = 999")
    names, rows = asked(
        con, "SELECT g, sum(x) AS s, avg(d) AS m, stddev(x) AS v, count(DISTINCT u) AS k FROM t GROUP BY g", "mu := 60"
    )
    assert "m_clipped_at" in names
    expected = con.execute(
        "SELECT g, sum(x), avg(d), stddev(x), count(DISTINCT u) FROM t GROUP BY g ORDER BY g"
    ).fetchall()
    for row, (g, *truths) in zip(rows, expected, strict=True):
        assert row[0] == g
        for name, truth in zip("smvk", truths, strict=True):
            assert row[names.index(name)] == pytest.approx(float(truth), rel=0.12), name


@pytest.mark.parametrize("group", ["", ", g"], ids=["one group", "groups"])
def test_what_sums_share_is_worked_out_once(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    """A sum that stands alone and in an average has a bound and noise twice, and contributions and norms once."""
    con.execute("DELETE FROM t WHERE u = 999")
    emitted: list[str] = []

    def bound(sql: str) -> str:
        emitted.append(sql)
        return own_names.bound(sql)

    monkeypatch.setattr("duckdb_dp.sql.calls.own_names", SimpleNamespace(bound=bound))
    by = f"GROUP BY {group[2:]} ORDER BY {group[2:]}" if group else ""
    select = f"SELECT sum(d) AS s, avg(d) AS m, count(d) AS n, sum(x) AS y{group} FROM t {by}"
    names, rows = asked(con, select, "mu := 20")
    found = [[row[names.index(name)] for name in ("s", "m", "n", "y")] for row in rows]
    exact = con.execute(f"SELECT sum(d)::DOUBLE, avg(d), count(*), sum(x){group} FROM t {by}").fetchall()
    for one, other in zip(found, exact, strict=True):
        assert one == pytest.approx(other[:4], rel=0.5)  # of what is cut a part is missing
    (text,) = emitted
    for column in ("j", "n", *(["m"] if group else [])):
        made = re.findall(rf" AS ({column}\d+)\b", text.split("choice_text")[0])
        assert len(set(made)) == 3, column  # of d, of x, and of the number of values


@pytest.mark.parametrize("type_", ["DOUBLE", "FLOAT", "INTEGER", "DECIMAL(8, 2)"])
def test_rows_without_a_number_add_nothing(con: duckdb.DuckDBPyConnection, type_: str) -> None:
    con.execute(f"CREATE TABLE v (u INTEGER, y {type_}); INSERT INTO v SELECT i % 60, i % 4 FROM range(240) AS r(i)")
    con.execute("INSERT INTO v SELECT 1000 + i, NULL FROM range(20) AS r(i)")
    con.execute("INSERT INTO v SELECT i, NULL FROM range(5) AS r(i)")
    con.execute("CALL dp_protect('v', unit := 'u', max_rows := 'auto', mu := 100)")
    _, ((total, *_),) = asked(con, "SELECT sum(y) AS s FROM v", "mu := 20, clip := 100")
    assert total == pytest.approx(360, abs=1e-3)


@pytest.mark.slow
def test_what_has_no_norm_keeps_a_number_of_rows(con: duckdb.DuckDBPyConnection) -> None:
    names, (found,) = asked(con, "SELECT median(x) AS m, count(DISTINCT d) AS k FROM t")
    row = dict(zip(names, found, strict=False))
    assert row["m_clipped_at"] == row["k_clipped_at"]
    assert 1 <= row["m_clipped_at"][0] <= 16
    assert row["m"] == pytest.approx(5 / 3, abs=0.7)


def test_a_request_may_bound_rows_itself(con: duckdb.DuckDBPyConnection) -> None:
    _, ((n, stddev, *_),) = asked(con, "SELECT count(*) AS n FROM t", "mu := 20, max_rows := 5")
    assert n == pytest.approx(1005, abs=1e-3)
    assert stddev == pytest.approx(5 / 20)
    (row,) = con.execute("SELECT neighbours FROM dp_ledger()").fetchall()
    assert row == ("add or remove one 'u' with up to 5 rows",)
    con.execute(
        "CREATE TABLE s AS FROM t; CALL dp_protect('s', unit := 'u', max_rows := 2, mu := 100, another := true)"
    )
    names, _ = asked(con, "SELECT count(*) AS n FROM s", "mu := 20, max_rows := 'auto'")
    assert "clipped_at" in names


@pytest.mark.slow
def test_the_same_request_is_the_same_release(con: duckdb.DuckDBPyConnection) -> None:
    select = "SELECT g, count(*) AS n, median(x) AS m FROM t GROUP BY g"
    first = asked(con, select)
    con.execute("DELETE FROM t")
    assert asked(con, select) == first
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(1,)]


def test_an_empty_table_and_empty_groups_go_the_same_way(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("DELETE FROM t")
    _, rows = asked(con, "SELECT g, count(*) AS n, sum(d) AS s FROM t GROUP BY g")
    assert [(row[0], row[1]) for row in rows] == [(0, 0), (1, 0), (2, 0)]
    assert all(row[6:] == (None,) * 5 for row in (row[:11] for row in rows))  # no unit tells a bound of numbers


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("FROM dp_sql('SELECT count(*) FROM t', mu := 1, clip := 0)", "clip is 0; it is the most that one unit adds"),
        ("FROM dp_sql('SELECT count(*) FROM t', mu := 1, clip := 'a')", "clip is 'a'; it is the most"),
        ("FROM dp_sql('SELECT count(*) FROM t', mu := 1, clip := 5, max_rows := 5)", "give one of them"),
        ("FROM dp_sql('SELECT count(*) FROM t', mu := 1, max_rows := 0)", "max_rows is 0; it is a whole number"),
        ("FROM dp_sql('SELECT count(*) FROM one', mu := 1, max_rows := 'auto')", "each row of 'one' is a unit"),
        ("FROM dp_sql('SELECT g, count(*) FROM t GROUP BY g', mu := 1, mechanism := 'hdmm')", "add max_rows := 10"),
        ("FROM dp_marginals('t', ['g'], mu := 1)", "needs one"),
        ("CALL dp_protect('one', unit := 'a', max_rows := 'some', mu := 1)", "or 'auto'"),
        ("CALL dp_protect('one', max_rows := 'auto', mu := 1)", "needs a unit"),
        ("CALL dp_protect('two', unit := ['a', 'b'], max_rows := 'auto', mu := 1)", "needs a promise"),
    ],
)
def test_refusals_charge_nothing(con: duckdb.DuckDBPyConnection, call: str, why: str) -> None:
    con.execute("CREATE TABLE one (a INTEGER); CREATE TABLE two (a INTEGER, b INTEGER)")
    if "FROM one" in call:
        con.execute("CALL dp_protect('one', mu := 1)")
    with pytest.raises(duckdb.Error, match=why):
        con.execute(call).fetchall()
    assert con.execute("SELECT count(*) FROM dp_ledger()").fetchall() == [(0,)]


def test_dp_explain_shows_the_price_of_the_choice(con: duckdb.DuckDBPyConnection) -> None:
    found = con.execute(
        "SELECT marginal, stddev, budget_share FROM dp_explain('t', 'SELECT g, count(*) AS n, median(x) AS m FROM t GROUP BY g', mu := 1)"
    ).fetchall()
    shares = {name: share for name, _, share in found}
    assert sum(share for share in shares.values() if share) == pytest.approx(1)
    assert any("chooses" in name for name in shares)
    (row,) = con.execute("SELECT stddev FROM dp_explain('t', 'SELECT count(*) FROM t', mu := 1, clip := 8)").fetchall()
    assert row == (pytest.approx(8),)


@pytest.mark.slow
def test_the_report_says_that_units_were_cut(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("FROM dp_sql('SELECT g, sum(d) AS s FROM t GROUP BY g', mu := 20, release := 'cut')").fetchall()
    html = duckdb_dp.report(con, "cut").html
    assert "What one unit adds was cut" in html
    assert "is protected with all its rows" in html
    assert "were clamped" not in html


ABOVE = {
    "SELECT 2 * a AS b FROM (SELECT avg(x) AS a FROM t)": {"avg(x)"},
    "WITH w AS (SELECT g, sum(x) AS s FROM t GROUP BY g) SELECT g, round(s / 1000, 1) AS k FROM w": {"sum(x) by g"},
    "SELECT a / s AS r FROM (SELECT avg(x) AS a, sum(d) AS s FROM t)": {"avg(x)", "sum(d)"},
    "SELECT (SELECT sum(x) FROM t) / (SELECT sum(d) FROM t) AS q": {"sum(x)", "sum(d)"},
    "SELECT a FROM (SELECT avg(x) AS a FROM t) UNION ALL SELECT sum(d) + 1 FROM t": {"avg(x)"},
    "WITH w AS (SELECT sum(x) AS s FROM t), v AS (SELECT s + 1 AS r FROM w) SELECT -r AS n FROM v": {"sum(x)"},
}


@pytest.mark.parametrize("rows", ["", ", max_rows := 20", ", clip := 50"], ids=["norm", "bounds", "declared"])
@pytest.mark.parametrize(
    "select",
    [
        *("SELECT sum(x) AS s FROM t", "SELECT sum(x) AS s, count(*) AS n FROM t", "SELECT avg(x) AS a FROM t"),
        "SELECT sum(x) / sum(d) AS r, median(x) AS m FROM t",
        "SELECT s FROM (SELECT g, sum(x) AS s FROM t GROUP BY g) WHERE s > 1 UNION ALL SELECT 1.5",
        *ABOVE,
    ],
)
def test_where_answers_were_cut_is_a_list_whatever_the_statement(
    con: duckdb.DuckDBPyConnection, select: str, rows: str
) -> None:
    found = con.execute(f"DESCRIBE FROM dp_sql(?, mu := 20{rows})", [select]).fetchall()
    assert {kind for name, kind, *_ in found if name.endswith("clipped_at")} <= {"DOUBLE[]"}


@pytest.mark.some(2)
@pytest.mark.parametrize("rows", ["", "max_rows := 20"], ids=["norm", "bounds"])
@pytest.mark.parametrize("columns", ["all", "short"])
@pytest.mark.parametrize("select", ABOVE)
def test_what_stands_above_says_where_it_was_cut(
    con: duckdb.DuckDBPyConnection, select: str, columns: str, rows: str
) -> None:
    """With every interval, of what is worked out from answers too."""
    names, found = asked(con, select, ", ".join(filter(None, ["mu := 20", f"columns := '{columns}'", rows])))
    assert names[-1] == "clipped_at"
    assert "ci" in names or "ci_low" in names
    cut = found[0][names.index("clipped_at")]
    of = ABOVE[select]
    each = sum(1 if what.startswith("sum") else 2 for what in of) if not rows else 2 * len(of)
    assert len(cut) == each


def test_what_is_mostly_cut_off_is_null(con: duckdb.DuckDBPyConnection) -> None:
    """Half of the units have numbers beyond the bound that the noise allows for: it is shown, and no number; above it neither."""
    con.execute("CREATE TABLE far AS SELECT i AS u, i % 200 AS g, pow(1.5, i % 60) AS x FROM range(600) r(i)")
    con.execute("CALL dp_protect('far', unit := 'u', max_rows := 1, mu := 100)")
    con.execute("CALL dp_attribute('far', 'g', low := 0, high := 199)")
    below = "SELECT g, sum(x) AS s FROM far GROUP BY g"
    for select in (below, f"SELECT g, 2 * s AS b FROM ({below})"):
        names, rows = asked(con, select, "mu := 0.5")
        assert all(row[names.index("clipped_at")] for row in rows)
        for name in (names[1], "stddev", "ci_low", "ci_high"):
            assert {row[names.index(name)] for row in rows} == {None}, name


@pytest.mark.parametrize("epsilon", ["1e-12", "1e-40"])
@pytest.mark.parametrize("budget", ["delta := 1e-9", "delta := 0"])
def test_a_budget_that_tells_nothing_is_answered(tmp_path: Path, epsilon: str, budget: str) -> None:
    """With noise alone: no selection is made of what doubles cannot tell apart."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE r AS SELECT i % 50 AS u, i AS x FROM range(500) t(i)")
        duckdb_dp.load(con, ledger=f"{tmp_path}/l.dp", progress=False)
        con.execute(f"CALL dp_protect('r', unit := 'u', max_rows := 'auto', epsilon := 1, {budget})")
        ((stddev, total),) = con.execute(
            f"SELECT n_stddev, s FROM dp_sql('SELECT count(*) AS n, sum(x) AS s FROM r', epsilon := {epsilon})"
        ).fetchall()
        assert stddev > 1e6
        assert total is None


@pytest.mark.parametrize("column", ["skewed", "even", "signed", "near"])
@pytest.mark.parametrize("group", ["", "kind"])
def test_an_average_has_about_the_least_noise_of_both_middles(exact: Loaded, column: str, group: str) -> None:
    """Of values far below the middle of their bounds, of those around it, of those of both signs, and of those between the middle and 0."""
    exact(
        "CREATE TABLE t AS SELECT i % 4000 AS u, 8 + i * 7 % 80 + CASE WHEN i % 50 = 0 THEN 900 ELSE 0 END AS skewed, 40 + i % 21 AS even, "
        "i % 9 - 4 AS signed, 25 + i % 11 AS near, ['a', 'b'][1 + i % 2] AS kind FROM range(9000) r(i)"
    )
    exact("CALL dp_protect('t', unit := 'u', rho := 1e6, max_rows := 'auto')")
    exact("CALL dp_attribute('t', 'skewed', low := 0, high := 5000)")
    exact("CALL dp_attribute('t', 'even', low := 0, high := 100)")
    exact("CALL dp_attribute('t', 'signed', low := -10, high := 10)")
    exact("CALL dp_attribute('t', 'near', low := 0, high := 100)")
    exact("""CALL dp_attribute('t', 'kind', "values" := ['a', 'b'])""")
    middle = {"skewed": 2500, "even": 50, "signed": 0, "near": 50}[column]
    by = f" GROUP BY {group}" if group else ""
    found = {}
    for name, text in {
        "avg": f"avg({column})",
        "of the middle": f"avg({column} - {middle})",
        "of zero": f"sum({column}) / count({column})",
    }.items():
        rows = exact(
            f"SELECT a, stddev FROM dp_sql('SELECT {text} AS a{f', {group}' if group else ''} FROM t{by}', rho := 0.1)"
        )
        found[name] = max(row[1] for row in rows)
        for row in rows if name == "avg" else ():
            ((true,),) = exact(f"SELECT avg({column}) FROM t")
            assert abs(row[0] - true) < 8 * row[1] + 0.05 * abs(true)
    # Of a third of the budget for each sum, where one of the two sums says nothing; of values between, both do.
    most = 0.85 if column == "near" else 1.25
    assert found["avg"] < most * min(found["of the middle"], found["of zero"]), found


@pytest.mark.parametrize("type_", ["DOUBLE", "FLOAT", "BIGINT", "DECIMAL(38,2)"])
@pytest.mark.parametrize("far", [0, 3e4, 5e6, 3.4e7, 1e9, -1e9, 1e12])
def test_averages_of_narrow_bounds_far_from_zero(exact: Loaded, type_: str, far: float) -> None:
    if type_ == "FLOAT" and abs(far) > 1e6:
        pytest.skip("a FLOAT has no such numbers")
    exact(f"CREATE TABLE t AS SELECT i % 900 AS u, ({far!r}::DOUBLE + i % 11)::{type_} AS x FROM range(3000) r(i)")
    exact("CALL dp_protect('t', unit := 'u', rho := 1e6, max_rows := 'auto')")
    exact(f"CALL dp_attribute('t', 'x', bins := [{far:.0f}, {far + 5:.0f}, {far + 11:.0f}])")
    for name, most in (("avg", 0.3), ("stddev", 1.0)):
        ((found, stddev),) = exact(f"SELECT a, stddev FROM dp_sql('SELECT {name}(x) AS a FROM t', rho := 1)")
        ((true,),) = exact(f"SELECT {name}(x)::DOUBLE FROM t")
        assert abs(found - true) < most
        assert 0 < stddev < most


@pytest.mark.parametrize("power", [-98, -88, -60, 60, 76, 98])
def test_averages_of_very_large_and_small_numbers(exact: Loaded, power: int) -> None:
    exact(f"CREATE TABLE t AS SELECT i % 900 AS u, (i % 11) * 1e{power} AS x FROM range(3000) r(i)")
    exact("CALL dp_protect('t', unit := 'u', rho := 1e6, max_rows := 'auto')")
    exact(f"CALL dp_attribute('t', 'x', bins := [0, 5e{power}, 11e{power}])")
    ((found, stddev),) = exact("SELECT a, stddev FROM dp_sql('SELECT avg(x) AS a FROM t', rho := 1)")
    assert abs(found / 10.0**power - 5) < 0.3
    assert 0 < stddev / 10.0**power < 0.3


def test_a_variance_is_of_the_middle_with_less_noise(exact: Loaded) -> None:
    exact("CREATE TABLE t AS SELECT i % 4000 AS u, 8 + i * 7 % 80 AS skewed, 40 + i % 21 AS even FROM range(9000) r(i)")
    exact("CALL dp_protect('t', unit := 'u', rho := 1e6, max_rows := 'auto')")
    exact("CALL dp_attribute('t', 'skewed', low := 0, high := 5000)")
    exact("CALL dp_attribute('t', 'even', low := 0, high := 100)")
    for column in ("skewed", "even"):
        ((true,),) = exact(f"SELECT stddev({column}) FROM t")
        ((_, low, high),) = exact(
            f"SELECT a, ci_low, ci_high FROM dp_sql('SELECT stddev({column}) AS a FROM t', rho := 1)"
        )
        assert low < true < high, column
        assert high - low < true, column
