"""precision := 20 in place of a budget: the least budget at which no count, sum or rank has a larger standard deviation."""

from pathlib import Path

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from tests.conftest import Loaded

SALES = """
CREATE TABLE sales AS SELECT i % 400 AS person, ['north', 'south', 'east'][1 + i % 3] AS region, i % 60 AS age,
    (i * 7 % 100) / 4 AS paid FROM range(800) t(i)
"""
CALLS = {
    "marginals": "dp_marginals('sales', [['age', 'region'], ['age']], {})",
    "max": "dp_marginals('sales', 'all <=2-way', {}, objective := 'max')",
    "fitted": "dp_marginals('sales', 'all 2-way', {})",
    "queries": "dp_queries('sales', [{{'age': 'range'}}, {{'region': 'identity'}}], {})",
    "counts": "dp_sql('SELECT region, count(*) AS n FROM sales WHERE age < 30 OR region = ''east'' GROUP BY region', {})",
    "sums": "dp_sql('SELECT region, sum(paid) AS n FROM sales WHERE paid BETWEEN 0 AND 25 GROUP BY region', {})",
    "rows": "dp_sql('SELECT region, count(*) AS n FROM sales WHERE paid > 3 GROUP BY region', {}, max_rows := 1)",
    "above": "dp_sql('SELECT * FROM (SELECT region, count(paid) AS n FROM sales GROUP BY region)', {})",
    "short": "dp_marginals('sales', ['age'], {}, mechanism := 'gaussian')",
}


def made(folder: Path, budget: str) -> Loaded:
    connection = duckdb.connect()
    connection.execute(SALES)
    duckdb_dp.testing.load(connection, folder / "l.dp", seed=1)
    loaded = Loaded(connection, folder / "l.dp")
    loaded(
        f"CALL dp_protect('sales', unit := 'person', max_rows := 2, {budget}, discovery_delta := 1e-10)".replace(
            ", discovery_delta := 1e-10", "" if "pure" in budget else ", discovery_delta := 1e-10"
        )
    )
    loaded(
        "CALL dp_attribute('sales', 'age', low := 0, high := 59); CALL dp_attribute('sales', 'region', \"values\" := ['north', 'south', 'east'])"
    )
    return loaded


BUDGETS = {
    "gdp": "epsilon := 1e4, delta := 1e-9",
    "zcdp": "rho := 1e6, delta := 1e-9",
    "pure": "epsilon := 1e5, delta := 0, accounting := 'pure'",
}


@pytest.mark.some(2)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("accounting", BUDGETS)
def test_the_largest_error_is_the_precision(tmp_path: Path, accounting: str, call: str) -> None:
    """It is charged as the budget that it comes to, and dp_explain says which one before."""
    if accounting == "pure" and call in ("max", "short", "fitted"):
        pytest.skip("Gaussian noise")
    db = made(tmp_path, BUDGETS[accounting])
    text = CALLS[call]
    rows = db(
        f"SELECT max(stddev), max(ci_high - ci_low) FROM {text.format(chr(34) + 'precision' + chr(34) + ' := 20')}"
    )
    assert rows[0][0] == pytest.approx(20, rel=1e-4)
    assert rows[0][0] <= 20 * (1 + 1e-9)
    assert db.charges() == 1
    charged = db.charged()[0]
    word = "epsilon" if accounting == "pure" else "rho" if accounting == "zcdp" else "mu"
    again = f"{word} := {charged[word]!r}"
    assert db(f"SELECT max(stddev) FROM {text.format(again)}")[0][0] == pytest.approx(rows[0][0], rel=1e-6)
    db(f"SELECT count(*) FROM {text.format(chr(34) + 'precision' + chr(34) + ' := 20')}")
    assert db.charges() <= 2  # the ledger may show the cost with other digits


@pytest.mark.slow
def test_sums_inside_averages_and_quantiles_are_in_rows(tmp_path: Path) -> None:
    db = made(tmp_path, BUDGETS["gdp"])
    select = "SELECT region, count(*) AS n, avg(paid) AS m FROM sales WHERE paid BETWEEN 0 AND 25 GROUP BY region"
    assert db('SELECT max(n_stddev) FROM dp_sql(?, "precision" := 30)', [select])[0][0] <= 30
    worst = db("SELECT max(stddev) FROM dp_explain('sales', 'age', quantiles := [0.5], \"precision\" := 30)")[0][0]
    assert 20 < worst <= 30  # the mean of all ranks' variances
    found = duckdb_dp.quantiles(db.connection, "sales", "age", [0.5], precision=30)
    assert found.num_rows == 1
    mus = [one["mu"] for one in db.charged()]
    assert mus[1] == pytest.approx(
        db("SELECT mu FROM dp_explain('sales', 'age', quantiles := 0.5, \"precision\" := 30)")[0][0]
    )


def test_groups_that_are_found_take_their_part(tmp_path: Path) -> None:
    """The precision is that of the counts, whatever finds the groups."""
    db = made(tmp_path, BUDGETS["gdp"])
    db("ALTER TABLE sales ADD COLUMN shop VARCHAR; UPDATE sales SET shop = 'shop ' || age % 4")
    select = "SELECT shop, count(*) AS n FROM sales GROUP BY shop"
    assert db('SELECT max(stddev) FROM dp_sql(?, "precision" := 5)', [select])[0][0] == pytest.approx(5, rel=1e-4)
    assert [one["function"] for one in db.charged()] == ["dp_discover", "dp_sql"]


OTHERS = {
    "values": ("dp_discover('sales', 'region', {})", "max(stddev)"),
    "running": ("dp_running('sales', ['region'], start := DATE '2026-01-01', horizon := 6, {})", "max(stddev)"),
    "max_rows": ("dp_max_rows('sales', {})", "max(stddev)"),
    "explained values": ("dp_explain('sales', {{'discover': 'region'}}, {})", "max(stddev)"),
    "explained bounds": ("dp_explain('sales', {{'discover': 'age', 'find': 'bounds'}}, {})", "max(stddev)"),
    "explained bins": ("dp_explain('sales', {{'discover': 'age', 'find': 'bins'}}, {})", "max(stddev)"),
    "explained max_rows": ("dp_explain('sales', {{'max_rows': [1, 2]}}, {})", "min(stddev)"),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("call", OTHERS)
@pytest.mark.parametrize("accounting", ["gdp", "zcdp"])
@pytest.mark.parametrize("typed", ["20", "' 0.1 % of 20,000'"])
def test_what_else_has_one_noise_takes_a_precision(tmp_path: Path, accounting: str, call: str, typed: str) -> None:
    db = made(tmp_path, BUDGETS[accounting])
    db("ALTER TABLE sales ADD COLUMN day DATE; UPDATE sales SET day = DATE '2026-01-01' + (age % 6)::INTEGER")
    db(
        "INSERT INTO sales SELECT s.* REPLACE (person + 400 * k AS person) FROM sales AS s, range(1, 6) AS t(k)"
    )  # so that values are found
    text, worst = OTHERS[call]
    ((found,),) = db(f"SELECT {worst} FROM {text.format(chr(34) + 'precision' + chr(34) + f' := {typed}')}")
    assert found == pytest.approx(20, rel=1e-6)
    assert found <= 20


@pytest.mark.parametrize("call", ["discover('sales', 'region'", "running('sales', ['region']", "max_rows('sales'"])
def test_python_takes_a_precision_too(tmp_path: Path, call: str) -> None:
    db = made(tmp_path, BUDGETS["gdp"])
    db("ALTER TABLE sales ADD COLUMN day DATE; UPDATE sales SET day = DATE '2026-01-01' + (age % 6)::INTEGER")
    name, _, rest = call.partition("(")
    more = {"start": "2026-01-01", "horizon": 6} if name == "running" else {}
    arguments = eval(f"[{rest}]")
    found = getattr(duckdb_dp, name)(db.connection, *arguments, precision="5% of 100", **more)
    assert max(value for value in found["stddev"].to_pylist() if value is not None) == pytest.approx(5, rel=1e-6)
    assert [row["function"] for row in db.charged()] == [f"dp_{name}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        "dp_synthesize('sales', {})",
        "dp_quality('sales', 'made', {})",
        "dp_quality('sales', 'made', exact := true, {})",
        "dp_links('sales', synthetic := {{'people': 'people_syn'}}, {})",
        "dp_synthesize_database('main', target := 'copy', {})",
    ],
)
def test_what_has_no_one_error_says_what_to_type(tmp_path: Path, call: str) -> None:
    db = made(tmp_path, BUDGETS["gdp"])
    db("CREATE TABLE made AS FROM dp_synthesize('sales', epsilon := 1)")
    line = db.refused(f"FROM {call.format(chr(34) + 'precision' + chr(34) + ' := 20')}")
    assert "precision has no meaning here" in line
    assert "epsilon := 1" in line


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "typed",
    [
        "'5%'",
        "'5 of 100'",
        "'0% of 100'",
        "'5% of 0'",
        "'-5% of 100'",
        "'x'",
        "'1e5% of 10'",
        "true",
        "[1]",
        "'5% of " + "9" * 400 + "'",
    ],
)
@pytest.mark.parametrize("call", ["dp_marginals('sales', ['age'], {})", "dp_discover('sales', 'region', {})"])
def test_a_precision_that_is_none_is_refused(tmp_path: Path, typed: str, call: str) -> None:
    asked = call.format(f'"precision" := {typed}')
    assert "'5% of 1000'" in made(tmp_path, BUDGETS["gdp"]).refused(f"FROM {asked}")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("dp_marginals('sales', ['age'], \"precision\" := 5, epsilon := 1)", "give a budget or precision, not both"),
        ("dp_marginals('sales', ['age'], \"precision\" := 5, delta := 1e-9)", "precision takes no delta"),
        ("dp_marginals('sales', ['age'], \"precision\" := 0)", "precision is 0; it is a positive number, the largest standard deviation"),
        ("dp_sql('SELECT count(*) FROM sales', \"precision\" := '2 %')", "so say of which size it is a share: precision := '5% of 1000'"),
        ("dp_marginals('sales', 'all 2-way', \"precision\" := 5, mechanism := 'aim')", "depends on the data; use 'auto'"),
        ("dp_sql('SELECT sum(paid) FROM sales', \"precision\" := 5)", "write them: sum(x) FILTER (WHERE x BETWEEN 0 AND 100)"),
        ("dp_sql('SELECT count(*) FROM sales', \"precision\" := 5, max_rows := 'auto')", "add max_rows := 5, say, or clip := 5"),
        ("dp_sql('SELECT median(paid) FROM sales', \"precision\" := 5, mechanism := 'select')", "have no standard deviation"),
        ("dp_sql('SELECT count(*) FROM sales', \"precision\" := 1e-9)", "budget"),
    ],
)  # fmt: skip
def test_what_no_budget_decides_is_refused(tmp_path: Path, call: str, message: str) -> None:
    assert message in made(tmp_path, BUDGETS["gdp"]).refused(f"FROM {call}")
