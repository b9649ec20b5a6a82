"""Advice in messages can be followed as it is written, by whoever reads it."""

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

TABLES = """
CREATE TABLE staff (id INTEGER PRIMARY KEY, old BOOLEAN, boss INTEGER);
CREATE TABLE teams (tid INTEGER PRIMARY KEY, good BOOLEAN);
CREATE TABLE matches (home INTEGER REFERENCES teams (tid), away INTEGER REFERENCES teams (tid));
INSERT INTO staff SELECT i, i % 2 = 0, i // 2 FROM range(9) t(i); INSERT INTO teams SELECT i, i % 2 = 0 FROM range(4) t(i);
INSERT INTO matches SELECT i % 4, (i + 1) % 4 FROM range(8) t(i);
CALL dp_protect('staff', rho := 9); CALL dp_protect('teams', rho := 9);
CALL dp_attributes('staff'); CALL dp_attributes('teams');
CALL dp_link('staff', "references" := {'boss': 'staff.id'});
CREATE TABLE staff_syn AS SELECT 1 AS id, true AS old; CREATE TABLE teams_syn AS SELECT 1 AS tid, true AS good;
CREATE TABLE own AS SELECT i AS home, i AS away FROM range(50, 55) t(i); CALL dp_public(['staff_syn', 'teams_syn', 'own']);
"""


@pytest.fixture(scope="module")
def linked(shared: Loaded) -> Loaded:
    shared(TABLES)
    shared("CALL dp_protect('matches', unit := 'home', max_rows := 3, rho := 9)")
    return shared


def test_a_table_that_refers_to_itself(linked: Loaded) -> None:
    found = linked.refused("FROM dp_links('staff', synthetic := {'boss': 'staff_syn'}, rho := 1)")
    assert "synthetic := {'staff': 'staff_syn'}" in found


def test_a_key_that_is_there_already_is_not_asked_for(linked: Loaded) -> None:
    found = linked.refused("FROM dp_links('matches', synthetic := {'teams': 'teams_syn'}, rho := 1)")
    assert "CALL dp_public('teams', links := 'matches')" in found
    assert "PRIMARY KEY" not in found


def test_links_that_join_nothing_are_no_empty_table(linked: Loaded) -> None:
    linked("CALL dp_public('teams', links := 'matches')")
    found = linked.refused("FROM dp_quality('matches', 'own', synthetic := {'teams': 'teams_syn'}, rho := 1)")
    assert "refers to rows of" in found
    assert "no rows" not in found


def test_an_empty_list_of_attributes(linked: Loaded) -> None:
    for call in (
        "dp_quality('people', 'staff_syn', attributes := [], mu := 1)",
        "dp_synthesize('people', attributes := [], mu := 1)",
    ):
        assert "attributes is []; name some" in linked.refused(f"FROM {call}")


def test_the_ledger_names_the_bound_that_a_release_was_drawn_for(linked: Loaded) -> None:
    linked("CALL dp_public('teams', links := 'matches')")
    linked("FROM dp_links('matches', synthetic := {'teams': 'teams_syn'}, max_degree := 8, rho := 1)")
    ((neighbours,),) = linked("SELECT neighbours FROM dp_ledger() WHERE function = 'dp_links'")
    assert neighbours == "add or remove one 'home' with up to 8 rows"


def test_unknown_mechanisms_are_told_what_the_function_takes(linked: Loaded) -> None:
    found = linked.refused("FROM dp_marginals('people', ['sex'], mu := 1, mechanism := 'foo')")
    assert "'laplace', 'aim', 'neyman'." in found
    found = linked.refused("FROM dp_queries('people', {'sex': 'identity'}, mu := 1, mechanism := 'foo')")
    assert "'laplace'" not in found
    assert "'aim'" not in found


@pytest.mark.parametrize(
    ("column", "arguments", "says"),
    [
        ("v", "", 'give "values" := [...]'),
        ("z", "", "make it a number, a date or a text in a view"),
        ("z", ", \"values\" := ['2020-01-01']", "make it a number, a date or a text in a view"),
        ("l", ", bins := [1, 2]", "make it a number, a date or a text in a view"),
        ("n", ", low := 0", "lacks high"),
        ("n", ", high := 0", "lacks low"),
    ],
)
def test_declarations_say_what_the_type_can_take(linked: Loaded, column: str, arguments: str, says: str) -> None:
    linked("CREATE TABLE IF NOT EXISTS odd (v VARCHAR, z TIMESTAMPTZ, l INTEGER[], n INTEGER)")
    linked("CALL dp_protect('odd', rho := 1)")
    assert says in linked.refused(f"CALL dp_attribute('odd', '{column}'{arguments})")


def test_an_analyst_is_told_whom_to_ask(linked: Loaded) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE people AS SELECT 1 AS a")
        duckdb_dp.testing.load(con, linked.folder.parent / "other.dp", seed=1)
        con.execute("CALL dp_protect('people', rho := 1)").fetchall()
        duckdb_dp.testing.load(con, linked.folder.parent / "other.dp", seed=1, role="analyst")
        for call in ("dp_marginals('people', ['a'], rho := 1)", "dp_marginals('more', ['a'], rho := 1)"):
            with pytest.raises(duckdb.Error, match="Only the curator can do that: ask the curator"):
                con.execute(f"FROM {call}")


def test_all_tables_that_a_view_may_share_rows_with_are_counted(linked: Loaded) -> None:
    linked("CREATE TABLE base AS SELECT 1 AS x")
    for i in range(5):
        linked(f"CREATE VIEW over_{i} AS FROM base; CALL dp_protect('over_{i}', rho := 1)")
    linked("CREATE VIEW last AS FROM base")
    ((*_, note),) = linked("CALL dp_protect('last', rho := 1)")
    assert "'over_0', 'over_1', 'over_2' and 2 more, with a budget too" in note


ATTRIBUTES = [
    "dp_marginals('stays', ['{}'], mu := 1)",
    "dp_marginals('stays', [['days'], ['days', '{}']], mu := 1)",
    "dp_queries('stays', {{'{}': 'range'}}, mu := 1)",
    "dp_quantiles('stays', '{}', [0.5], mu := 1)",
    "dp_quantiles('stays', 'days', [0.5], by := ['{}'], mu := 1)",
    "dp_synthesize('stays', attributes := ['{}'], mu := 1)",
    "dp_discover('stays', '{}', max_values := 1, mu := 1)",
    "dp_running('stays', ['{}'], start := DATE '2026-01-01', horizon := 6, mu := 1)",
    "dp_explain('stays', ['{}'], mu := 1)",
    "dp_explain('stays', {{'{}': 'range'}}, mu := 1)",
    "dp_explain('stays', '{}', quantiles := [0.5], mu := 1)",
    "dp_explain('stays', {{'discover': '{}', 'max_values': 1}}, mu := 1)",
    "dp_attribute('stays', '{}', low := 0, high := 1)",
    "dp_attributes('stays', {{'{}': [1, 2]}})",
]
"""Each function that takes names of attributes."""


@pytest.fixture(scope="module")
def bounded(shared: Loaded) -> Loaded:
    shared(
        "CREATE TABLE stays AS SELECT i % 20 AS person, i % 10 AS days, 'r' || i % 3 AS reason FROM range(200) t(i); "
        "CALL dp_protect('stays', unit := 'person', max_rows := 10, mu := 9, delta := 1e-6, discovery_delta := 1e-9, another := true); "
        "CALL dp_attribute('stays', 'days', low := 0, high := 9)"
    )
    return shared


@pytest.mark.parametrize("call", ATTRIBUTES)
def test_a_name_that_is_no_column_is_not_to_be_declared(bounded: Loaded, call: str) -> None:
    """It is told with the nearest columns first."""
    line = bounded.refused(f"FROM {call.format('reasn')}")
    assert "'stays' has no column 'reasn'; its columns are: reason, " in line
    assert "dp_attribute(" not in line


def test_where_the_table_is_not_seen_declared_columns_are_all_that_is_known(auto: Loaded) -> None:
    auto("CREATE TEMP TABLE short AS SELECT 1 AS days, 2 AS paid; CALL dp_protect('short', mu := 1)")
    auto("CALL dp_attribute('short', 'days', low := 0, high := 3)")
    line = auto.refused("FROM dp_sql('SELECT paid, count(*) FROM short GROUP BY paid', mu := 1)")
    assert "'paid' is no declared column (declared are: days), and the table itself is not read here" in line
    assert "there is no column" not in line


WRONG = [
    ("FROM dp_sql('SELECT count(*) AS n FROM visits', mechanism := 'selct', mu := 1)", "mechanism 'selct' is not known; use 'auto'"),
    ("FROM dp_sql('SELECT median(days) AS n FROM visits', mechanism := 'selct', mu := 1)", "select may be meant"),
    ("FROM dp_explain('visits', {'maxrows': [5, 20]}, mu := 1)", "max_rows may be meant: {'max_rows': [5, 20]}"),
    ("FROM dp_explain('visits', {'max_row': 5}, mu := 1)", "max_rows may be meant"),
    ("CALL dp_attribute('visits', 'days', low := 9, high := 0)", "low := 0, high := 9 may be meant"),
    ("CALL dp_attribute('visits', 'days', low := 9, high := 0, step := 3)", "low is above high; low := 0, high := 9 may be meant"),
    ("CALL dp_attribute('visits', 'paid', low := 9.5, high := 0.5, step := 0.5)", "low := 0.5, high := 9.5 may be meant"),
    (
        "CALL dp_attribute('visits', 'day', low := DATE '2020-02-01', high := DATE '2020-01-01')",
        "in steps of a day; low is above high; low := '2020-01-01', high := '2020-02-01' may be meant",
    ),
    ("FROM dp_sql('SELECT count(*) AS n FROM visits WHERE', mu := 1)", "WHERE has no condition behind it"),
    ("FROM dp_sql('SELECT count(*) AS n FROM visits WHERE days >', mu := 1)", "what belongs behind > is missing"),
    ("FROM dp_sql('SELECT days, count(*) AS n FROM visits GROUP BY', mu := 1)", "GROUP BY has nothing behind it"),
    ("FROM dp_sql('SELECT count(*) AS n FORM visits', mu := 1)", "FORM is not expected there, in line 1, column 22"),
    ("FROM dp_sql('SELECT count(* FROM visits', mu := 1)", "Expecting ), in line 1, column 16."),
    ("FROM dp_sql('SELECT string_agg(reason) FROM visits', mu := 1)", "one row can change string_agg(reason, ',') without a bound"),
    ("FROM dp_sql('SELECT any_value(paid) FROM visits', mu := 1)", "name the column in GROUP BY too"),
    ("FROM dp_sql('SELECT count(*) AS n FROM read_csv(''v.csv'')', mu := 1)", "read_csv('v.csv') reads a file; make a table of it"),
    ("FROM dp_sql('SELECT count(*) AS n FROM read_json_auto(''v.json'')', mu := 1)", "reads a file; make a table of it"),
    ("FROM dp_sql('SELECT count(*) FROM visits JOIN read_parquet(''v.parquet'') USING (home)', mu := 1)", "reads a file; make a table"),
    ("FROM dp_sql('SELECT count(*) AS n FROM ''v.parquet''', mu := 1)", "Of a file make a table first: CREATE TABLE my_table AS FROM 'v.parquet'"),
    ("FROM dp_sql('SELECT count(*) FROM visits JOIN ''v.parquet'' USING (home)', mu := 1)", "CREATE TABLE my_table AS FROM 'v.parquet'"),
    ("FROM dp_marginals('v.csv', ['days'], mu := 1)", "CREATE TABLE my_table AS FROM 'v.csv'"),
    ("FROM dp_sql('SELECT count(*) AS n FROM visit', mu := 1)", "Did you mean 'visits'?"),
    ("FROM dp_sql('SELECT reason, count(*) AS n FROM visits GROUP BY reason', mu := 1)", "reserve a discovery_delta in dp_protect"),
    ("FROM dp_sql('SELECT r, count(*) AS n FROM (SELECT reason AS r FROM visits) GROUP BY r', mu := 1)", "reserve a discovery_delta"),
    ("FROM dp_quantiles('visits', 'days', [1.5], mu := 1)", "quantiles is [1.5]; give numbers from 0 to 1"),
    ("FROM dp_quantiles('visits', 'days', 50, mu := 1)", "quantiles is 50; give numbers from 0 to 1"),
    *(
        (f"FROM dp_sql($$SELECT count(*) AS n FROM visits WHERE {condition}$$, mu := 1)", f"no part of a date or a time; {meant} may be meant")
        for condition, meant in (
            ("date_trunc('moth', day) = day", "month"), ("extract(yeer FROM day) = 2020", "year"), ("date_part('quater', day) = 1", "quarter"),
            ("date_diff('dayz', day, DATE '2020-01-01') = 1", "day"),
        )
    ),
]  # fmt: skip
"""What is wrong is named, with what may be meant, where what one unit adds is chosen too."""


@pytest.fixture(scope="module")
def auto(shared: Loaded) -> Loaded:
    shared(
        "CREATE TABLE visits AS SELECT i % 20 AS person, i % 10 AS days, i * 0.5 AS paid, DATE '2020-01-01' + (i % 90)::INTEGER AS day, "
        "'r' || i % 3 AS reason FROM range(200) t(i); CALL dp_protect('visits', unit := 'person', max_rows := 'auto', mu := 9, delta := 1e-6)"
    )
    return shared


@pytest.mark.parametrize(("call", "said"), WRONG)
def test_what_is_wrong_is_named(auto: Loaded, call: str, said: str) -> None:
    assert said in auto.refused(call)


def test_numbers_that_overflow_are_null(exact: Loaded) -> None:
    for asked in (
        "power(count(*), 200)",
        "exp(3 * count(*))",
        "power(10, count(*))",
        "power(count(*), 60) * power(count(*), 90)",
    ):
        found = exact(f"SELECT * EXCLUDE (private) FROM dp_sql('SELECT {asked} AS p FROM people', mu := 1)")
        assert found == [(None, None, None, None)], asked
    assert exact("SELECT p FROM dp_sql('SELECT power(count(*), 2) AS p FROM people', mu := 9)") == [(420.0**2,)]


def test_what_counts_nothing_is_shown_as_it_was_written(exact: Loaded) -> None:
    asked = "SELECT age, rank() OVER (ORDER BY age) AS r FROM people GROUP BY age"
    assert ": SELECT age FROM people GROUP BY age counts nothing" in exact.refused("FROM dp_sql(?, mu := 1)", [asked])


def test_a_column_that_has_the_name_of_a_window_is_a_group(exact: Loaded) -> None:
    exact("CREATE TABLE stays AS SELECT i % 3 AS q FROM range(99) t(i); CALL dp_protect('stays', rho := 1e9)")
    exact("CALL dp_attribute('stays', 'q', low := 0, high := 2)")
    asked = "SELECT s.q AS k, count(*) AS n, row_number() OVER (ORDER BY s.q) AS q FROM stays AS s GROUP BY s.q"
    assert [
        (k, round(n), q) for k, n, q in exact("SELECT k, n, q FROM dp_sql(?, rho := 1e6) ORDER BY k", [asked])
    ] == exact(f"{asked} ORDER BY k")


WRITTEN = {
    "SELECT avg(b - a) AS x FROM stays": 'epoch("b" - "a") / 3600',
    "SELECT median(b - a) AS x FROM stays": 'epoch("b" - "a") / 3600',
    "SELECT ntile(4) OVER (ORDER BY n) AS q, count(*) FROM stays GROUP BY q": "is a window function",
    "SELECT count(*), ntile(4) OVER (ORDER BY n) AS q FROM stays GROUP BY 2": "is a window function",
    "SELECT row_number() OVER () AS q, count(*) FROM stays GROUP BY ALL": "is a window function",
    "SELECT entropy(n) FROM stays": "GROUP BY the column",
    "SELECT histogram(n) FROM stays": "GROUP BY the column",
    "SELECT corr(n, n) FROM stays": "avg(y * y)",
}


@pytest.mark.parametrize("asked", WRITTEN)
def test_what_to_write_instead_is_told(exact: Loaded, asked: str) -> None:
    exact(
        "CREATE TABLE stays AS SELECT i % 9 AS n, now()::TIMESTAMP AS a, now()::TIMESTAMP + INTERVAL 7 HOUR AS b FROM range(99) t(i)"
    )
    exact("CALL dp_protect('stays', rho := 1e9)")
    before = exact("SELECT count(*) FROM dp_ledger()")
    with pytest.raises(duckdb.Error) as error:
        exact("FROM dp_sql(?, rho := 1)", [asked])
    assert WRITTEN[asked] in str(error.value)
    assert exact("SELECT count(*) FROM dp_ledger()") == before
    instead = "SELECT avg(epoch(b - a) / 3600) AS h, avg(epoch(b) - epoch(a)) AS s FROM stays WHERE b >= a"
    ((hours, seconds),) = exact("SELECT h, s FROM dp_sql(?, rho := 1e6)", [instead])
    assert (round(hours), round(seconds / 3600)) == (7, 7)
