"""dp_quantiles: DuckDB's own quantiles without noise, whatever is declared; what is charged once, and what is refused."""

import pytest

import duckdb_dp
from duckdb_dp.errors import DPError
from tests.conftest import Loaded

QUANTILES = [0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1]

WHOLE = [
    "low := 0, high := 99, step := 1", "bins := [0, 10, 50, 100]", '"values" := [63, 0, 5, 98, 7], other := true',
    "low := 9, high := 70, step := 1", "bins := [5, 25, 50, 70], nulls := true",
]  # fmt: skip
MOMENTS = {
    "DATE": ("DATE '2020-01-01' + i::INTEGER", "2020-0{}-01", ["2020-01-09", "2020-01-02", "2020-03-01"]),
    "TIME": ("TIME '01:00:00' + INTERVAL (i) MINUTE", "0{}:00:00", ["01:09:00", "01:02:00", "02:30:00"]),
    **{
        f"TIMESTAMP{unit}": (
            "TIMESTAMP '2020-01-01 00:00:00' + INTERVAL (i) DAY",
            "2020-0{}-01 00:00:00",
            ["2020-01-09 00:00:00", "2020-01-02 00:00:00", "2020-03-01 00:00:00"],
        )
        for unit in ("", "_S", "_MS", "_NS")
    },
}
SIZES = [
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
]
COLUMNS = [
    *((type_, "i", declared) for type_ in SIZES for declared in WHOLE),
    *((type_, "i / 4", declared) for type_ in ("DECIMAL(9,2)", "FLOAT", "DOUBLE") for declared in (
        "low := 0, high := 25, step := 0.5", "bins := [0, 2.5, 12, 25]", '"values" := [2.25, 0, 24.75], nulls := true',
        "low := 2, high := 20, step := 0.5", "bins := [2.1, 2.5, 12, 21]")),
    *((type_, value, declared) for type_, (value, edge, points) in MOMENTS.items() for declared in (
        f"bins := {[edge.format(month) for month in (1, 2, 6)]}", f'"values" := {points}, other := true',
        f"bins := {[points[1], points[0], edge.format(2)]}")),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize(("type_", "value", "declared"), COLUMNS)
def test_without_noise_the_cell_is_that_of_the_quantile(exact: Loaded, type_: str, value: str, declared: str) -> None:
    exact(
        f"CREATE TABLE t AS SELECT CASE WHEN j % 11 > 0 THEN TRY_CAST({value} AS {type_}) END AS x "
        "FROM (SELECT j, j * 37 % 99 AS i FROM range(3000) t(j))"
    )
    exact("CALL dp_protect('t', mu := 1000, delta := 1e-9)")
    exact(f"CALL dp_attribute('t', 'x', {declared})")
    rows = exact("FROM dp_quantiles('t', 'x', ?, mu := 100)", [QUANTILES])
    asked = ", ".join(f"quantile_disc(x, {q}) AS q{i}" for i, q in enumerate(QUANTILES))
    direct = [f"SELECT {', '.join(f'q{i}, q{i}_ci_low, q{i}_ci_high' for i in range(len(QUANTILES)))} "
              f"FROM dp_sql('SELECT {asked} FROM t', mu := 100, mechanism := '{how}')" for how in ("direct", "select")]  # fmt: skip
    ((found,),) = exact(f"SELECT quantile_disc(x, {QUANTILES}) FROM t")
    assert [row[0] for row in rows] == QUANTILES
    for values in [[x for row in rows for x in row[1:4]], *(exact(sql)[0] for sql in direct)]:
        for q, got, low, high, true in zip(QUANTILES, values[::3], values[1::3], values[2::3], found, strict=True):
            # An end is open where rows lie beyond what is declared: the value is the declared end then.
            assert low is None or low <= true, q
            assert high is None or true <= high, q
            assert low is None or low <= got, q
            assert high is None or got <= high, q
            if low == high:  # rows below the value, and up to it; a rank may be off by the grid of the noise
                ((below, upto, n),) = exact(
                    f"SELECT count(*) FILTER (x < v), count(*) FILTER (x <= v), count(x) FROM t, (SELECT ?::{type_} AS v)",
                    [got],
                )
                assert below - 1 < q * n < upto + 1
    bins = "bins" in declared or "0.5" in declared
    expected = type_ if not bins or type_ in MOMENTS else "DOUBLE"
    assert [kind for name, kind in exact.columns("FROM dp_quantiles('t', 'x', 0.5, mu := 100)")][1:4] == [expected] * 3


def test_groups_in_the_order_of_their_cells(exact: Loaded) -> None:
    call = "FROM dp_quantiles('people', 'age', [0.75, 0.25], by := ['SEX', 'smoker'], mu := 100)"
    assert exact.columns(call) == [
        ("sex", "VARCHAR"), ("smoker", "BOOLEAN"), ("quantile", "DOUBLE"), ("value", "DOUBLE"), ("ci_low", "DOUBLE"),
        ("ci_high", "DOUBLE"), ("private", "BOOLEAN"),
    ]  # fmt: skip
    rows = exact(call)
    assert [row[:3] for row in rows] == [(s, b, q) for s in "FM" for b in (False, True, None) for q in (0.75, 0.25)]
    for sex, smoker, q, value, low, high, _ in rows:
        ((true,),) = exact(
            "SELECT quantile_cont(age, ?::DOUBLE) FROM people WHERE sex = ? AND smoker IS NOT DISTINCT FROM ?",
            [q, sex, smoker],
        )
        assert low <= true <= high
        assert abs(value - true) < 5
    assert exact("SELECT race FROM dp_quantiles('people', 'age', 0.5, by := 'race', mu := 100)") == [
        (race,) for race in range(4)
    ]


def test_values_that_nobody_declared_are_counted_and_null_is_not(exact: Loaded) -> None:
    exact("CREATE TABLE t AS SELECT CASE WHEN i < 90 THEN i % 10 WHEN i < 190 THEN 1000 END AS x FROM range(300) t(i)")
    exact("CALL dp_protect('t', mu := 1000, delta := 1e-9)")
    exact("CALL dp_attribute('t', 'x', low := 0, high := 9, other := true, nulls := true)")
    rows = exact("SELECT value, ci_low, ci_high FROM dp_quantiles('t', 'x', [0.05, 0.25, 0.95], mu := 100)")
    assert rows == [(1, 1, 1), (5, 5, 5), (9, 9, None)]
    ((value, low, high),) = exact(
        "SELECT q, ci_low, ci_high FROM dp_sql('SELECT quantile_disc(x, 0.95) AS q FROM t', mu := 100)"
    )
    assert (value, low, high) == (9, 9, None)


OLDER = [
    "FROM dp_quantiles('t', 'x', [0.5, 0.99], mu := 1)",
    "FROM dp_quantiles('t', 'y', [0.5], mu := 1)",
    "FROM dp_quantiles('t', 'x', [0.5], by := 'g', mu := 1, mechanism := 'select')",
    "FROM dp_sql('SELECT g, median(x) AS m FROM t GROUP BY g', mu := 1)",
    "FROM dp_sql('SELECT median(x) AS m FROM t', mu := 1, mechanism := 'select')",
    "FROM dp_sql('SELECT median(x) AS m FROM t', mu := 2, mechanism := 'direct')",
    "FROM dp_sql(['SELECT median(x) AS m FROM t', 'SELECT g, count(*) AS n FROM t GROUP BY g'], mu := 1)",
    "FROM dp_sql('SELECT m + 1 AS k FROM (SELECT median(x) AS m FROM t)', mu := 3)",
]


@pytest.mark.parametrize("call", OLDER)
def test_releases_of_declared_cells_alone_are_found(db: Loaded, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """As earlier versions made them: the same call reads them, and is not charged again."""
    db(
        "CREATE TABLE t AS SELECT i % 100 AS x, i % 3000 AS y, i % 2 AS g FROM range(6000) r(i); CALL dp_protect('t', mu := 100)"
    )
    for name, high in (("x", 60), ("y", 900), ("g", 1)):
        db(f"CALL dp_attribute('t', '{name}', low := 0, high := {high})")
    with monkeypatch.context() as before:
        before.setattr("duckdb_dp.domain.public_cells.on_line", lambda attribute: attribute)
        before.setattr("duckdb_dp.sql.quantile_sums.on_line", lambda attribute: attribute)
        first = db(call)
    assert db(call) == first
    assert db.charges() == 1


@pytest.mark.slow
def test_so_many_cells_that_there_are_none_beyond_them(exact: Loaded) -> None:
    exact("CREATE TABLE t AS SELECT i AS x FROM range(9000) r(i); CALL dp_protect('t', mu := 1000)")
    for high in (262_141, 262_142):
        exact(f"CALL dp_attribute('t', 'x', low := 0, high := {high})")
        for call in (
            "dp_quantiles('t', 'x', 0.5, mu := 10)",
            "dp_sql('SELECT quantile_disc(x, 0.5) AS value FROM t', mu := 10)",
        ):
            assert exact(f"SELECT value FROM {call}")[0][0] == pytest.approx(4500, abs=5)


def test_an_end_is_declared_where_no_rows_are_seen_beyond(db: Loaded) -> None:
    """In small groups an interval reaches the declared end, and says so: what is declared holds all rows."""
    db("CREATE TABLE t AS SELECT i % 10 AS x, i % 40 AS g FROM range(4000) t(i)")
    db("CALL dp_protect('t', mu := 1000, delta := 1e-9); CALL dp_attribute('t', 'x', low := 0, high := 9)")
    db("CALL dp_attribute('t', 'g', low := 0, high := 39)")
    rows = db("SELECT ci_high FROM dp_quantiles('t', 'x', 0.99, by := 'g', mu := 0.2)")
    assert sum(high is None for (high,) in rows) <= 16  # one in six by chance
    assert {high for (high,) in rows} <= {9, None}


def test_a_group_without_rows_has_no_value(exact: Loaded) -> None:
    exact("CREATE TABLE t AS SELECT i % 10 AS x, 'a' AS g FROM range(300) t(i)")
    exact("CALL dp_protect('t', mu := 1000, delta := 1e-9); CALL dp_attribute('t', 'x', low := 0, high := 9)")
    exact("""CALL dp_attribute('t', 'g', "values" := ['a', 'b'])""")
    assert exact("FROM dp_quantiles('t', 'x', 0.45, by := 'g', mu := 100)") == [
        ("a", 0.45, 4, 4, 4, False),
        ("b", 0.45, None, 0, 9, False),
    ]


@pytest.mark.slow
def test_one_charge_for_all_quantiles(db: Loaded) -> None:
    first = db("FROM dp_quantiles('people', 'age', [0.25, 0.5], by := ['sex'], mu := 1, release := 'ages')")
    assert db.charges() == 1
    again = db("FROM dp_quantiles('people', 'age', [0.5, 0.9, 0.25], by := ['sex'], mu := 1)")
    assert sorted(row for row in again if row[1] != 0.9) == sorted(first)
    assert db("FROM dp_release('ages', quantiles := [0.25, 0.5])") == first
    assert [row[1] for row in db("FROM dp_release('ages')")] == [0.25, 0.5, 0.75] * 2
    assert db.charges() == 1
    ((function, cost, state),) = db(
        "SELECT r.function, l.cost, r.state FROM dp_ledger() l JOIN dp_releases() r USING (release)"
    )
    assert (function, round(cost, 9), state) == ("dp_quantiles", 1.0, "stored")
    fresh = db("FROM dp_quantiles('people', 'age', [0.25, 0.5], by := ['sex'], mu := 1, fresh := true)")
    assert db.charges() == 2
    assert fresh != first
    db("FROM dp_quantiles('people', 'race', 0.5, mu := 1)")
    assert db.charges() == 3
    assert "is more than what remains" in db.refused("FROM dp_quantiles('people', 'age', 0.5, mu := 2000)")


BAD = {
    "'sex', 0.5": "'sex' is VARCHAR, which has no order; quantiles are of numbers, dates and times: this table has declared 'age', 'race'",
    "'smoker', 0.5": "'smoker' is BOOLEAN, which has no order",
    "'nobody', 0.5": "'people' has no column 'nobody'",
    "NULL, 0.5": "NULL is no attribute of 'people'",
    "['age'], 0.5": "['age'] is no attribute of 'people'",
    "'age', []": "quantiles is []; give numbers from 0 to 1",
    "'age', NULL": "quantiles is NULL; give numbers from 0 to 1",
    "'age', [0.5, NULL]": "quantiles is [0.5, NULL]; give numbers",
    "'age', 1.5": "quantiles is 1.5; give numbers from 0 to 1",
    "'age', [-0.1]": "quantiles is [-0.1]; give numbers from 0 to 1",
    "'age', 'nan'::DOUBLE": "quantiles is nan; give numbers",
    "'age', true": "quantiles is true; give numbers",
    "'age', ['0.5']": "quantiles is ['0.5']; give numbers",
    "'age', [0.5, 0.25, 0.5]": "quantiles names 0.5 twice; name it once",
    "'age', [i / 2000 FOR i IN range(1001)]": "quantiles has 1,001 numbers and the limit is 1,000",
    "'age', 0.5, by := ['age']": "'age' is in by and its quantiles are asked too",
    "'age', 0.5, by := ['sex', 'SEX']": "names an attribute twice; name it once",
    "'age', 0.5, by := ['nobody']": "'people' has no column 'nobody'",
    "'age', 0.5, by := 3": "3 is no attribute of 'people'",
    "'age', 0.5, by := [NULL]": "NULL is no attribute of 'people'",
    "'age', 0.5, mechanism := 'aim'": "mechanism 'aim' answers marginals",
    "'age', 0.5, mechanism := 'best'": "mechanism 'best' is not known",
}


@pytest.mark.parametrize("asked", BAD)
def test_refusals(shared: Loaded, asked: str) -> None:
    assert BAD[asked] in shared.refused(f"FROM dp_quantiles('people', {asked}, mu := 0.5)")


def test_more_refusals(db: Loaded) -> None:
    assert "no budget" in db.refused("FROM dp_quantiles('people', 'age', 0.5)")
    db(
        "CREATE TABLE t AS SELECT 1 AS x, 'a' AS value; CALL dp_protect('t', mu := 1); CALL dp_attribute('t', 'x', low := 0, high := 9)"
    )
    db("""CALL dp_attribute('t', 'value', "values" := ['a'])""")
    line = db.refused("FROM dp_quantiles('t', 'x', 0.5, by := ['value'], mu := 1)")
    assert "'value' in by is also a result column; rename it in a view" in line
    db("CALL dp_attribute('t', 'x', low := 0, high := 299999)")
    assert "declare coarser bins" in db.refused("FROM dp_quantiles('t', 'x', 0.5, mu := 1)")
    db("FROM dp_quantiles('people', 'age', 0.5, mu := 1, release := 'q')")
    assert "postprocess is only for marginals" in db.refused("FROM dp_release('q', postprocess := 'fitted')")


def test_units_with_several_rows(exact: Loaded) -> None:
    """Two rows of each unit are kept, whose values are all that counts."""
    exact("CREATE TABLE visits AS SELECT i % 100 AS who, (i % 100) % 10 AS x FROM range(1000) t(i)")
    exact(
        "CALL dp_protect('visits', mu := 10, unit := 'who', max_rows := 2); CALL dp_attribute('visits', 'x', low := 0, high := 9)"
    )
    assert exact("SELECT value FROM dp_quantiles('visits', 'x', [0.05, 0.45, 0.95], mu := 5)") == [(0,), (4,), (9,)]
    ((stddev,),) = exact("SELECT stddev FROM dp_explain('visits', 'x', quantiles := 0.5, mu := 5)")
    exact(
        "CREATE TABLE people2 AS FROM visits; CALL dp_protect('people2', mu := 10); CALL dp_attribute('people2', 'x', low := 0, high := 9)"
    )
    ((alone,),) = exact("SELECT stddev FROM dp_explain('people2', 'x', quantiles := 0.5, mu := 5)")
    assert stddev == pytest.approx(2 * alone, rel=1e-3)


def test_explained_before_it_is_paid(db: Loaded) -> None:
    rows = db("SELECT marginal, cells, mu FROM dp_explain('people', 'age', quantiles := [0.5], by := ['sex'], mu := 1)")
    assert rows == [("age quantiles by sex", 12, pytest.approx(1.0))]
    ((mu,),) = db("SELECT mu FROM dp_explain('people', 'age', quantiles := 0.5, target_stddev := 5)")
    ((stddev,),) = db(f"SELECT stddev FROM dp_explain('people', 'age', quantiles := 0.5, mu := {mu!r})")
    assert stddev <= 5.001
    names = [
        name
        for (name,) in db(
            "SELECT mechanism FROM dp_explain('people', 'age', quantiles := 0.5, mu := 1, mechanism := 'all')"
        )
    ]
    assert "hdmm" in names
    assert "quantiles is 2" in db.refused("FROM dp_explain('people', 'age', quantiles := 2, mu := 1)")
    assert db.charges() == 0


def test_pure_noise(db: Loaded) -> None:
    db("CREATE TABLE pure AS FROM people; CALL dp_protect('pure', epsilon := 10, delta := 0)")
    db("CALL dp_attribute('pure', 'age', bins := [0, 20, 40, 60, 100])")
    ((_, value, low, high, _),) = db("FROM dp_quantiles('pure', 'age', 0.5, epsilon := 5)")
    assert low <= 49.5 <= high
    assert low <= value <= high
    assert db("SELECT cost FROM dp_ledger()") == [(5.0,)]


def test_python_returns_what_sql_returns(exact: Loaded) -> None:
    con = exact.connection
    found = duckdb_dp.quantiles(con, "people", "age", [0.25, 0.5], by=["sex"], mu=100.0, release="ages")
    assert [tuple(row.values()) for row in found.to_pylist()] == exact(
        "FROM dp_release('ages', quantiles := [0.25, 0.5])"
    )
    one = duckdb_dp.quantiles(con, "people", "race", 0.9, mu=100.0)
    assert one.to_pydict() == {"quantile": [0.9], "value": [3], "ci_low": [3], "ci_high": [3], "private": [False]}
    with pytest.raises(DPError, match="dp_quantiles: 'sex' is VARCHAR, which has no order"):
        duckdb_dp.quantiles(con, "people", "sex", 0.5, mu=1.0)


def test_python_charges_a_fresh_draw_once(db: Loaded) -> None:
    for number in (1, 2):
        duckdb_dp.quantiles(db.connection, "people", "age", 0.5, mu=1.0, fresh=True)
        assert db.charges() == number


@pytest.mark.slow
def test_reports_of_dates_have_rows_alone(exact: Loaded) -> None:
    exact(
        "CREATE TABLE t AS SELECT DATE '2020-01-01' + i::INTEGER AS day FROM range(90) t(i); CALL dp_protect('t', mu := 9)"
    )
    exact("CALL dp_attribute('t', 'day', bins := ['2020-01-01', '2020-02-01', '2020-04-01'])")
    exact("FROM dp_quantiles('t', 'day', 0.5, mu := 9, release := 'days')")
    page = duckdb_dp.report(exact.connection, "days").html
    assert "day quantiles" in page
    assert "<td>2020-02-15</td>" in page


def test_reports_show_them(exact: Loaded) -> None:
    exact("FROM dp_quantiles('people', 'age', 0.5, by := ['sex'], mu := 1, release := 'ages')")
    page = duckdb_dp.report(exact.connection, "ages").html
    assert "age quantiles by sex" in page
    assert (
        "FROM dp_quantiles(&#39;memory.main.people&#39;, &#39;age&#39;, [0.25, 0.5, 0.75], by := [&#39;sex&#39;], rho := 0.5"
        in page
    )
