"""Named relations of a dataset: rows of joins with one owner each, attributes of their own, and the dataset's budget."""

import pytest

from tests.conftest import Loaded
from tests.sql.test_families import DECLARED, PROTECT, TABLES

JOINED = (
    "SELECT d.days, d.drug, v.charge, p.sex, c.region FROM drugs d JOIN visits v USING (visit_id) "
    "JOIN patients p ON p.patient_id = v.patient_id JOIN clinics c ON c.clinic_id = v.clinic_id"
)
VIEW = f"CALL dp_view('sales', '{JOINED}')"


@pytest.fixture
def sales(exact: Loaded) -> Loaded:
    """A view of four tables; no noise."""
    exact(TABLES + PROTECT + ";" + DECLARED + VIEW + "; CALL dp_attribute('sales', 'region', \"values\" := ['n', 's'])")
    return exact


def test_a_view_has_attributes_and_the_datasets_budget(sales: Loaded) -> None:
    """Columns that a table declares need no declaration; answers are those of the join, and are charged to the dataset."""
    assert [(column, cells) for column, _, cells, _ in sales(VIEW)] == [
        ("days", 5),
        ("drug", 3),
        ("charge", 10),
        ("sex", 2),
        ("region", 2),
    ]
    counted = sales(f"SELECT region, sex, count(*) FROM ({JOINED}) GROUP BY ALL ORDER BY ALL")
    asked = "SELECT region, sex, round(count) FROM dp_marginals('sales', ['region', 'sex'], rho := 1) WHERE count > 0.5 ORDER BY ALL"
    assert sales(asked) == counted
    assert sales("SELECT dataset, releases FROM dp_budget() WHERE releases > 0") == [("patients", 1)]


@pytest.mark.slow
def test_every_function_takes_a_view(sales: Loaded) -> None:
    """Queries, quantiles, SELECTs, unknown bounds, rows and domains of a join."""
    assert len(sales("FROM dp_queries('sales', [{'days': 'prefix', 'region': 'identity'}], rho := 1)")) == 10
    assert sales("SELECT value FROM dp_quantiles('sales', 'days', [0.5], by := ['region'], rho := 1)") == [(2,), (2,)]
    exactly = sales(
        f"SELECT region, count(*), round(avg(charge * days), 6) FROM ({JOINED}) GROUP BY region ORDER BY region"
    )
    select = "SELECT region, count(*) AS n, avg(charge * days) AS m FROM sales GROUP BY region"
    assert sales(f"SELECT region, round(n), round(m, 6) FROM dp_sql('{select}', rho := 1) ORDER BY region") == exactly
    assert sales("SELECT high FROM dp_discover('sales', 'charge', find := 'bounds', rho := 1e3)") == [(10.0,)]
    assert len(sales("FROM dp_synthesize('sales', attributes := ['sex', 'region'], rho := 1e3)")) > 100
    assert len(sales("FROM dp_domain('sales')")) == 22
    assert sales("SELECT DISTINCT rows FROM dp_check('sales')") == sales(f"SELECT count(*) FROM ({JOINED})")
    assert [row[0] for row in sales("CALL dp_attributes('sales')")] == ["days", "drug", "charge", "sex", "region"]
    assert sales("SELECT count(*) FROM dp_explain('sales', ['region'], rho := 1)") == [(1,)]


@pytest.mark.slow
def test_bounds(sales: Loaded) -> None:
    """At most max_rows of the joined rows of each unit count; a relation with one row for each unit needs no bound."""
    sales("CALL dp_view('few', 'SELECT * FROM sales', max_rows := 2)")
    (units,) = sales("SELECT count(DISTINCT patient_id) FROM drugs JOIN visits USING (visit_id)")[0]
    assert sales("SELECT round(count) FROM dp_marginals('few', [], rho := 1)") == [(2 * units,)]
    sales("CALL dp_view('each', 'SELECT patient_id, count(*) AS n FROM visits GROUP BY patient_id')")
    sales("CALL dp_attribute('each', 'n', low := 0, high := 9)")
    (stddev,) = sales("SELECT DISTINCT stddev FROM dp_explain('each', ['n'], rho := 0.5)")[0]
    assert stddev == pytest.approx(1)
    sales("CALL dp_view('free', 'SELECT * FROM visits', max_rows := 'auto')")
    assert "max_rows := 5" in sales.refused("FROM dp_marginals('free', [], rho := 1)")


def test_names_are_resolved_once(sales: Loaded) -> None:
    """A view means the tables that it was made of, wherever it is read."""
    before = sales("SELECT round(count) FROM dp_marginals('sales', [], rho := 1)")
    sales("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.drugs AS FROM drugs LIMIT 1; USE elsewhere")
    assert sales("SELECT round(count) FROM dp_marginals('main.sales', [], rho := 1, fresh := true)") == before
    sales("USE memory.main; CREATE TABLE sales (region VARCHAR); INSERT INTO sales VALUES ('n')")
    assert sales("SELECT round(count) FROM dp_marginals('sales', [], rho := 1, fresh := true)") == before


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT clinic_id, count(*) AS n FROM visits GROUP BY clinic_id", "may hold rows of several units"),
        (
            "SELECT a.charge FROM visits a JOIN visits b ON a.clinic_id = b.clinic_id",
            "rows of several units would be mixed",
        ),
        ("SELECT charge FROM visits LIMIT 3", "LIMIT"),
        ("SELECT random() AS r FROM visits", "RANDOM()"),
        ("SELECT a.charge, b.charge FROM visits a JOIN visits b USING (visit_id)", "two columns 'charge'"),
        ("SELECT v.charge FROM visits v JOIN people p ON p.age = v.charge", "several datasets"),
        ("SELECT region FROM clinics", "no protected table"),
        ("SELECT * FROM nothing", "CALL dp_public('nothing')"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("DELETE FROM visits", "one SELECT"),
        ("SELECT charge FROM", "does not parse"),
    ],
)
def test_refusals(shared: Loaded, query: str, expected: str) -> None:
    """One line each, and nothing is declared."""
    if not shared("SELECT 1 FROM duckdb_tables() WHERE table_name = 'visits'"):
        shared(TABLES + PROTECT + ";" + DECLARED)
    assert expected in shared.refused(f"CALL dp_view('bad', '{query}')")


def test_names_and_bounds_that_are_refused(sales: Loaded) -> None:
    """A name is one thing's, a text stays, and what a view reads may change so that it is refused."""
    assert "is a table or view already" in sales.refused("CALL dp_view('visits', 'SELECT * FROM visits')")
    assert "choose another name" in sales.refused("CALL dp_view('sales', 'SELECT * FROM visits')")
    assert "max_rows" in sales.refused("CALL dp_view('few', 'SELECT * FROM visits', max_rows := 0)")
    sales("CREATE TABLE sales_2 (i INTEGER)")
    sales("ALTER TABLE drugs RENAME days TO nights")
    sales.refused("FROM dp_marginals('sales', ['region'], rho := 1)")


def test_a_view_of_members_is_named_for_their_budget(exact: Loaded) -> None:
    """A second budget over the same people is not what the message says; what it says works."""
    exact(TABLES + PROTECT)
    exact("CREATE VIEW adults AS SELECT patient_id, sex FROM patients; CREATE TABLE other AS SELECT 1 AS x")
    refused = exact.refused("FROM dp_sql('SELECT count(*) FROM adults', rho := 1)")
    assert "dp_protect" not in refused
    call = refused[refused.index("CALL dp_view") : refused.index(", and ask that")]
    exact(call)
    assert exact("SELECT round(count) FROM dp_sql('SELECT count(*) FROM adults_rows', rho := 1)") == exact(
        "SELECT count(*) FROM patients"
    )
    assert "CALL dp_protect('other'" in exact.refused("FROM dp_sql('SELECT count(*) FROM other', rho := 1)")


@pytest.mark.parametrize("order", ["x", "x DESC", "x NULLS FIRST", "x NULLS LAST", "x DESC NULLS FIRST"])
def test_order_inside_windows_of_a_view_does_not_depend_on_settings(exact: Loaded, order: str) -> None:
    """It is ascending with NULLs last where it does not say otherwise, as one answer stands for all sessions."""
    exact(
        "CREATE TABLE p (id INTEGER PRIMARY KEY); INSERT INTO p FROM range(40);"
        "CREATE TABLE v (pid INTEGER REFERENCES p (id), x INTEGER); INSERT INTO v SELECT i % 40, CASE WHEN i % 3 > 0 THEN i END "
        "FROM range(120) t(i); CALL dp_protect(['p', 'v'], unit := 'p.id', max_rows := 3, mu := 1000, delta := 1e-9)"
    )
    query = f"SELECT pid, CASE WHEN x IS NULL THEN 1 ELSE 0 END AS gone, row_number() OVER (PARTITION BY pid ORDER BY {order}) AS r FROM v"
    ((true,),) = exact(f"SELECT count(*) FROM ({query}) WHERE r = 1 AND gone = 1")
    exact(f"CALL dp_view('placed', '{query}', max_rows := 3); CALL dp_attribute('placed', 'r', low := 1, high := 3)")
    exact("CALL dp_attribute('placed', 'gone', low := 0, high := 1)")
    asked = "SELECT round(count) FROM dp_marginals('placed', ['gone', 'r'], mu := 10{}) WHERE gone = 1 AND r = 1"
    assert true == (40 if "FIRST" in order else 0)
    for setting in ("SELECT 1", "SET default_null_order = 'NULLS FIRST'", "SET default_order = 'DESC'"):
        exact(setting)
        assert exact(asked.format(", fresh := true")) == [(true,)], setting
    made = exact("SELECT releases FROM dp_budget()")
    assert exact(asked.format("")) == [(true,)]
    assert exact("SELECT releases FROM dp_budget()") == made
