"""Intervals of products and squares of noisy answers hold the truth where their factors are near 0, as elsewhere."""

from collections.abc import Iterator

import duckdb
import pytest
from scipy import stats

import duckdb_dp.testing
from duckdb_dp.sql import steps
from duckdb_dp.sql.steps import Steps

SIZES, GROUPS = [0, 2, 5, 10, 60], 600
PRODUCTS = [
    "power(n, 2)", "n * n", "n * s", "n * (s - n)", "3 - n * s / 10", "(n - 10) ** 2 / 7", "n * n * n", "-(n * n) + s",
    "round(n * s, -1)",
]  # fmt: skip


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Groups of so many rows, and noise of 2 to 16."""
    with duckdb.connect() as con:
        con.execute(
            f"CREATE TABLE t AS SELECT g, j % 4 AS x FROM range({GROUPS}) r(g), range(60) s(j) WHERE j < {SIZES}[1 + g % {len(SIZES)}]"
        )
        duckdb_dp.testing.load(con, tmp_path_factory.mktemp("ledger") / "l.dp", seed=7)
        con.execute(f"CALL dp_protect('t', mu := 1000); CALL dp_attribute('t', 'g', low := 0, high := {GROUPS - 1})")
        con.execute("CALL dp_attribute('t', 'x', low := 0, high := 3)")
        yield con


@pytest.mark.some(2)
@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("product", PRODUCTS)
def test_intervals_hold_near_0_too(con: duckdb.DuckDBPyConnection, product: str, above: bool) -> None:
    counted = "SELECT g, count(*) AS n, sum(x) AS s FROM t GROUP BY g"
    if above:
        asked = f"SELECT g, {product} AS f, n AS m FROM ({counted})"
    else:
        asked = f"SELECT g, count(*) AS n, sum(x) AS s, {product} AS f FROM t GROUP BY g"
    rows = con.execute("SELECT g, f, f_ci_low, f_ci_high FROM dp_sql(?, mu := 0.5)", [asked]).fetchall()
    listed = ", ".join(f"({place}, {n}, {sum(j % 4 for j in range(n))})" for place, n in enumerate(SIZES))
    truths = dict(con.execute(f"SELECT i, {product} FROM (VALUES {listed}) v(i, n, s)").fetchall())
    for place in range(len(SIZES)):
        group = [(value, low, high) for g, value, low, high in rows if g % len(SIZES) == place]
        assert all(low <= value <= high for value, low, high in group)
        held = sum(low <= truths[place] <= high for _, low, high in group)
        assert stats.binomtest(held, len(group), 0.95, alternative="less").pvalue > 1e-3, (place, held)


def test_far_from_0_they_are_hardly_wider(con: duckdb.DuckDBPyConnection) -> None:
    asked = "SELECT count(*) AS n, power(count(*), 2) AS f FROM t"
    ((n, sd, f, stddev),) = con.execute("SELECT n, n_stddev, f, f_stddev FROM dp_sql(?, mu := 0.5)", [asked]).fetchall()
    assert f == pytest.approx(n**2)
    assert stddev == pytest.approx(2 * n * sd, rel=1e-6)


def test_of_many_products_no_error_is_known(con: duckdb.DuckDBPyConnection) -> None:
    for asked in (
        f"SELECT {' * '.join(['count(*)', 'sum(x)'] * 4)} AS f FROM t",
        f"SELECT {' * '.join(['n', 's'] * 4)} AS f FROM (SELECT count(*) AS n, sum(x) AS s FROM t)",
    ):
        found = con.execute("FROM dp_sql(?, mu := 0.5)", [asked])
        names = [column[0] for column in found.description or []]
        row = dict(zip(names, found.fetchall()[0], strict=True))
        assert row["f"] is not None
        assert row.get("ci_low") is None


def test_a_stored_request_has_its_products(con: duckdb.DuckDBPyConnection) -> None:
    con.execute(
        "FROM dp_sql('SELECT g, sqrt(count(*) * sum(x)) AS f FROM t GROUP BY g', mu := 0.5, release := 'products')"
    )
    first = con.execute("FROM dp_release('products')").fetchall()
    assert (
        con.execute("FROM dp_sql('SELECT g, sqrt(count(*) * sum(x)) AS f FROM t GROUP BY g', mu := 0.5)").fetchall()
        == first
    )


LONG = {
    "covariance": "avg(g * x) - avg(g) * avg(x)",
    "slope": "(avg(g * x) - avg(g) * avg(x)) / (avg(x * x) - avg(x) * avg(x))",
    "correlation": "(avg(g * x) - avg(g) * avg(x)) / sqrt((avg(g * g) - avg(g) * avg(g)) * (avg(x * x) - avg(x) * avg(x)))",
    "skewness": "(avg(x * x * x) - 3 * avg(x) * avg(x * x) + 2 * avg(x) * avg(x) * avg(x)) / power(avg(x * x) - avg(x) * avg(x), 1.5)",
    "a share of a product": "100 * sum(x) * count(*) / (sum(g) * count(g) + 1)",
    "in steps": "round(ln(1 + (count(*) - sum(x)) ** 2 * count(g)), 2)",
}


@pytest.mark.parametrize("long", LONG)
def test_long_expressions_are_worked_out_in_steps(
    con: duckdb.DuckDBPyConnection, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same answers as in one text, whose length grows with each product by a factor."""
    asked = f"SELECT {LONG[long]} AS f FROM t"
    call = "SELECT f, stddev, ci_low, ci_high FROM dp_sql(?, mu := 50)"
    texts: list[str] = []

    def noted(self: Steps, relation: str) -> str:
        texts.append(around(self, relation))
        return texts[-1]

    around = Steps.around
    monkeypatch.setattr(Steps, "around", noted)
    found = con.execute(call, [asked]).fetchall()
    assert 0 < max(map(len, texts)) < 40_000
    assert found[0][0] is not None
    if long not in ("correlation", "skewness"):  # which take a minute in one text
        monkeypatch.setattr(steps, "LONG", 10**9)
        again = con.execute(call + " WHERE true", [asked]).fetchall()
        assert found == [tuple(pytest.approx(x, rel=1e-12) for x in row) for row in again]
    ((truth,),) = con.execute(asked).fetchall()
    value, _, low, high = found[0]
    assert low <= value <= high
    assert low - (high - low) <= truth <= high + (high - low)


@pytest.mark.parametrize("text", ["v0", "v7", "(v12", "it''s v3)", 'a "v99" (b'])
def test_texts_that_look_like_steps_are_texts(con: duckdb.DuckDBPyConnection, text: str) -> None:
    for rest in ("", " + 0 * sum(x) * count(*)" * 60):
        asked = f"SELECT CASE WHEN count(*) > 5{rest} THEN '{text}' ELSE '({text}' END AS f FROM t"
        assert con.execute("SELECT f FROM dp_sql(?, mu := 50)", [asked]).fetchall() == [(text.replace("''", "'"),)]


def test_what_is_no_expression_is_no_step(con: duckdb.DuckDBPyConnection) -> None:
    long, many = "x" * 200, " + 0 * sum(x) * count(*)" * 60
    asked = f"SELECT CASE WHEN count(*) > 5{many} AND concat('{long}', '') IN ('{long}') THEN 'long' ELSE 'other' END AS f FROM t"
    assert con.execute("SELECT f FROM dp_sql(?, mu := 50)", [asked]).fetchall() == [("long",)]
