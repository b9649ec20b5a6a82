"""A CHECK that one column is never below another holds for all synthetic rows, and none is left out for it."""

import pytest

import duckdb_dp.testing
from duckdb_dp.sql.ordered_columns import _orders
from tests.conftest import Loaded

MONTHS = "low := '2022-01-01', high := '2024-03-31', step := '1 month'"
WEEKS = "low := '2021-12-27', high := '2024-04-07', step := '7 days'"
STAYS = """
CREATE TABLE patients (pid INTEGER PRIMARY KEY, sex BIGINT); INSERT INTO patients SELECT i, i % 2 FROM range(200) r(i);
CREATE TABLE wards AS SELECT i AS ward, i % 3 AS kind FROM range(12) r(i);
CREATE TABLE stays (pid INTEGER, ward INTEGER, first {type}, last {type}, acute BOOLEAN, CHECK ({check}));
INSERT INTO stays SELECT i % 200, i // 200, f, f + {later}, i % 3 = 0 FROM (SELECT i, {first} AS f FROM range(2000) r(i));
CALL dp_attribute('patients', 'sex', low := 0, high := 1)
"""
KINDS = {
    "dates": ("DATE", "DATE '2022-01-01' + ((i * 37) % 700)::INTEGER", "(i * i % 9)::INTEGER", MONTHS, MONTHS),
    "weeks": ("DATE", "DATE '2022-01-01' + ((i * 37) % 700)::INTEGER", "(i * i % 9)::INTEGER", MONTHS, WEEKS),
    "days": (
        "DATE", "DATE '2022-01-01' + ((i * 37) % 700)::INTEGER", "(i * i % 9)::INTEGER", MONTHS,
        "low := '2022-01-01', high := '2024-03-31'"
    ),
    "moments": ("TIMESTAMP", "TIMESTAMP '2022-01-01' + to_hours((i * 37) % 16000)", "to_hours(i * i % 99)", MONTHS, MONTHS),
    "prices": ("DECIMAL(9,2)", "(i * 37 % 900)::DECIMAL(9,2)", "(i * i % 9)::DECIMAL(9,2)", *("low := 0, high := 910, step := 70",) * 2),
    "numbers": ("DOUBLE", "(i * 37 % 900)::DOUBLE", "(i * i % 9)", *("low := 0, high := 910, step := 70, decimals := 0",) * 2),
}  # fmt: skip


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "check", ["last >= first", "first <= last AND acute IS NOT NULL", "last IS NULL OR first <= last"]
)
@pytest.mark.parametrize("made", ["rows", "links"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_left_out(exact: Loaded, kind: str, made: str, check: str) -> None:
    type_, first, later, low, high = KINDS[kind]
    tables = STAYS.format(type=type_, check=check, first=first, later=later).rpartition(";")[0]
    exact(tables)
    exact(
        "CALL dp_protect('stays', unit := 'pid', max_rows := 10, rho := 1e6)"
        if made == "links"
        else "CALL dp_protect('stays', rho := 1e6)"
    )
    for column, domain in (("first", low), ("last", high)):
        exact(f"CALL dp_attribute('stays', '{column}', {domain})")
    exact("CALL dp_attribute('stays', 'acute')")
    names = ["stays"]
    if made == "links":
        names = ["patients", "stays"]
        exact(
            "CALL dp_protect('patients', rho := 1e6); CALL dp_attribute('patients', 'sex', low := 0, high := 1); CALL dp_public('wards')"
        )
        exact("CALL dp_link('stays', \"references\" := {'pid': 'patients.pid', 'ward': 'wards.ward'})")
    steps = exact(f"CALL dp_synthesize_database('main', target := 'syn', tables := {names}, rho := 1)")
    assert "which a constraint forbids" not in str(steps)
    ((rows, wrong),) = exact("SELECT count(*), count(*) FILTER (last < first) FROM syn.stays")
    assert wrong == 0
    assert rows > 1500
    ((real, synthetic),) = exact(
        "SELECT (SELECT avg(last - first) FROM stays), (SELECT avg(last - first) FROM syn.stays)"
    )
    assert synthetic < 4 * real


@pytest.mark.slow
def test_a_column_that_is_always_below_another(exact: Loaded) -> None:
    """Strictly so, of moments that are as coarse as their bins, and without CHECK half of the rows of a bin are in the wrong order."""
    exact("""CREATE TABLE calls (start TIMESTAMP, over TIMESTAMP, CHECK (start < over)); CREATE VIEW free AS FROM calls;
        INSERT INTO calls SELECT t, t + to_seconds(30 + i % 4000) FROM (SELECT i, TIMESTAMP '2024-01-01' + to_minutes(i * 7) AS t
        FROM range(4000) r(i)); CALL dp_protect('calls', rho := 1e6); CALL dp_protect('free', rho := 1e6)""")
    for name in ("calls", "free"):
        for column in ("start", "over"):
            exact(
                f"CALL dp_attribute('{name}', '{column}', low := '2024-01-01', high := '2024-01-22', step := '1 day')"
            )
        exact(f"CREATE TABLE {name}_made AS FROM dp_synthesize('{name}', rho := 10)")
    assert exact("SELECT count(*) FILTER (start >= over) FROM calls_made") == [(0,)]
    ((wrong,),) = exact("SELECT avg((start >= over)::INTEGER) FROM free_made")
    assert wrong > 0.3


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(b >= a)", [("a", "b", False)]),
        ("(a < b)", [("a", "b", True)]),
        ('(("x y" > a) AND (c = 1))', [("a", "x y", True)]),
        ("(b BETWEEN a AND c)", [("a", "b", False), ("b", "c", False)]),
        ("((b IS NULL) OR (b >= a))", [("a", "b", False)]),
        ("((c IS NULL) OR (b >= a))", []),
        ("((c = 1) OR (b >= a))", []),
        ("(NOT (b >= a))", []),
        ("(b >= (a + 1))", []),
        ("(b >= 1)", []),
        ("(a >= a)", []),
        ("((", []),
    ],
)
def test_what_a_condition_says(text: str, found: list[tuple[str, str, bool]]) -> None:
    assert [*_orders(text, ["a", "b", "c", "x y"])] == found


@pytest.mark.some(2)
@pytest.mark.parametrize("made", ["rows", "database", "explained", "links"])
@pytest.mark.parametrize("checks", ["b > a, a > b", "b > a, a >= b", "b > a, c >= b, a >= c"])
def test_orders_that_no_row_satisfies_are_refused_before_a_charge(exact: Loaded, made: str, checks: str) -> None:
    said = ", ".join(f"CHECK ({check})" for check in checks.split(", "))
    exact(
        f"CREATE TABLE sleepers AS SELECT i AS id, i AS age FROM range(3) t(i); CREATE TABLE stays (id BIGINT, a DATE, b DATE, c DATE, {said})"
    )
    if made == "links":
        exact("""CALL dp_link('stays', "references" := {'id': 'sleepers.id'});
            CALL dp_protect(['sleepers', 'stays'], unit := 'sleepers.id', rho := 10, max_rows := {'stays': 2});
            CALL dp_attribute('sleepers', 'age', low := 0, high := 2)""")
    else:
        exact("CALL dp_protect('stays', rho := 10)")
    for column in "abc":
        exact(f"CALL dp_attribute('stays', '{column}', {MONTHS}, nulls := true)")
    tables = ["sleepers", "stays"] if made == "links" else ["stays"]
    refused = exact.refused(
        {
            "rows": "FROM dp_synthesize('stays', rho := 1)",
            "explained": "FROM dp_explain('stays', {'synthesize': 'all'}, rho := 1)",
        }.get(made, f"CALL dp_synthesize_database('main', target := 'syn', tables := {tables}, rho := 1)")
    )
    assert "b > a and " in refused
    assert "drop one of these constraints" in refused
    assert exact.charges() == 0
    exact("FROM dp_synthesize('stays', attributes := ['b', 'c'], rho := 0.5)")  # which are in no circle


def test_equal_columns_and_chains_are_no_contradiction(exact: Loaded) -> None:
    exact("""CREATE TABLE stays (a DATE, b DATE, c DATE, CHECK (b >= a), CHECK (a >= b), CHECK (c > b));
        INSERT INTO stays SELECT d, d, d + 1 FROM (SELECT DATE '2022-01-01' + (i % 600)::INTEGER AS d FROM range(900) t(i));
        CALL dp_protect('stays', rho := 1e6)""")
    for column in "abc":
        exact(f"CALL dp_attribute('stays', '{column}', {MONTHS})")
    assert exact("SELECT count(*) FILTER (a <> b OR c <= b) FROM dp_synthesize('stays', rho := 1)") == [(0,)]


FREE = """
CREATE TABLE stays AS SELECT f AS "First", f + (i % 9)::INTEGER AS last, i % 2 AS acute, f::TIMESTAMP AS at, i::DOUBLE AS x
FROM (SELECT i, DATE '2022-01-01' + (i * 37 % 700)::INTEGER AS f FROM range(2000) r(i));
CALL dp_protect('stays', rho := 1e6); CALL dp_attribute('stays', 'First', {months});
CALL dp_attribute('stays', 'acute', low := 0, high := 1);
"""


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "said",
    [
        "CALL dp_attribute('stays', 'last', {words}, at_least := 'FIRST')",
        "CALL dp_attributes('stays', {{'last': {shape}}})",
    ],
)
def test_a_declared_order_holds_for_all_rows(exact: Loaded, said: str) -> None:
    """A file has no CHECK, so its curator says so; what is asked of other functions stays the request that it was."""
    exact(FREE.format(months=MONTHS))
    exact(f"CALL dp_attribute('stays', 'last', {MONTHS})")
    exact("FROM dp_marginals('stays', ['First', 'last'], rho := 1)")
    exact("CREATE TABLE apart AS FROM dp_synthesize('stays', rho := 1)")
    charges = exact.charges()
    shape = "{'low': '2022-01-01', 'high': '2024-03-31', 'step': '1 month', 'at_least': 'first'}"
    exact(said.format(words=MONTHS, shape=shape))
    exact("FROM dp_marginals('stays', ['First', 'last'], rho := 1)")
    exact("FROM dp_synthesize('stays', attributes := ['last', 'acute'], rho := 0.5)")
    assert exact.charges() == charges + 1  # the marginal is the stored one
    exact("CREATE TABLE made AS FROM dp_synthesize('stays', rho := 1)")
    wrong = 'SELECT avg((last < "First")::INTEGER) FROM {}'
    assert exact(wrong.format("made")) == [(0,)]
    assert exact(wrong.format("apart"))[0][0] > 0.2
    exact(f"CALL dp_attribute('stays', 'last', {MONTHS})")  # declared again without it
    assert exact(wrong.format("dp_synthesize('stays', rho := 1)"))[0][0] > 0.2
    assert exact.charges() == charges + 2  # which is the first request again


def test_links_keep_a_declared_order(exact: Loaded) -> None:
    exact("""CREATE TABLE patients (pid INTEGER PRIMARY KEY, sex INTEGER); INSERT INTO patients SELECT i, i % 2 FROM range(200) r(i);
        CREATE TABLE wards AS SELECT i AS ward, i % 3 AS kind FROM range(12) r(i); CREATE TABLE stays AS SELECT (i % 200)::INTEGER AS pid,
        i // 200 AS ward, DATE '2022-01-01' + (i * 37 % 700)::INTEGER AS d, d + (i % 9)::INTEGER AS e FROM range(2000) r(i);
        CALL dp_link('stays', "references" := {'pid': 'patients.pid', 'ward': 'wards.ward'}); CALL dp_public('wards');
        CALL dp_protect(['patients', 'stays'], unit := 'patients.pid', rho := 1e6, max_rows := {'stays': 10});
        CALL dp_attribute('patients', 'sex', low := 0, high := 1)""")
    exact(f"CALL dp_attribute('stays', 'd', {MONTHS}); CALL dp_attribute('stays', 'e', {WEEKS}, at_least := 'd')")
    steps = exact("CALL dp_synthesize_database('main', target := 'syn', tables := ['patients', 'stays'], rho := 1)")
    assert "links to patients and wards" in [step[2] for step in steps]
    assert "e never below d" in steps[-1][-1]
    assert exact("SELECT count(*) FILTER (e < d), count(*) > 1500 FROM syn.stays") == [(0, True)]


@pytest.mark.slow
def test_a_declared_order_is_kept_in_files(exact: Loaded) -> None:
    exact(FREE.format(months=MONTHS))
    exact(f"CALL dp_attribute('stays', 'last', {MONTHS}, at_least := 'First')")
    path = exact.folder / "domain.toml"
    exact(f"CALL dp_attributes('stays', save := '{path}')")
    assert 'at_least = "First"' in path.read_text()
    exact("CALL dp_attribute('stays', 'last', remove := true)")
    exact(f"CALL dp_attributes('stays', '{path}')")
    assert exact("SELECT count(*) FROM dp_synthesize('stays', rho := 1) WHERE last < \"First\"") == [(0,)]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("'last'", "name another column"),
        ("'at'", "name another column"),
        ("'acute'", "name another column"),
        ("'end'", "end"),
        ("3", "3"),
    ],
)
def test_an_order_that_cannot_be_is_refused(exact: Loaded, other: str, why: str) -> None:
    exact(FREE.format(months=MONTHS))
    assert why in exact.refused(f"CALL dp_attribute('stays', 'last', {MONTHS}, at_least := {other})")


@pytest.mark.slow
def test_two_columns_that_are_never_below_a_third(exact: Loaded) -> None:
    """Ordered, shipped and paid: with noise neither of both differences grows; the second one did, as its rows all moved up."""
    exact("""CREATE TABLE loans AS SELECT d AS a, d + (i * 7 % 40)::INTEGER AS b, d + (i * 11 % 36)::INTEGER AS c
        FROM (SELECT i, DATE '2023-01-01' + (i * 37 % 700)::INTEGER AS d FROM range(7000) r(i)); CALL dp_protect('loans', rho := 1e6)""")
    months = "bins := range(DATE '2023-01-01', DATE '2025-06-02', INTERVAL 1 MONTH)"
    for column, more in (("a", ""), ("b", ", at_least := 'a'"), ("c", ", at_least := 'a'")):
        exact(f"CALL dp_attribute('loans', '{column}', {months}{more})")
    real = exact("SELECT avg(b - a), avg(c - a) FROM loans")[0]
    duckdb_dp.testing.load(exact.connection, exact.folder, seed=1)
    ((one, other, least),) = exact(
        "SELECT avg(b - a), avg(c - a), min(least(b, c) - a) FROM dp_synthesize('loans', rho := 0.005)"
    )
    assert least == 0
    assert abs(one - real[0]) < 4
    assert abs(other - real[1]) < 4


@pytest.mark.parametrize("made", ["rows", "links"])
def test_chains_of_other_decimals_and_bins_are_in_order_as_shown(exact: Loaded, made: str) -> None:
    """Two decimals below none, below bins of another width, and two columns above one."""
    exact("""CREATE TABLE patients (pid INTEGER PRIMARY KEY, sex INTEGER); INSERT INTO patients SELECT i, i % 2 FROM range(200) r(i);
        CREATE TABLE wards AS SELECT i AS ward, i % 3 AS kind FROM range(12) r(i); CREATE TABLE stays AS SELECT (i % 200)::INTEGER AS pid,
        i // 200 AS ward, (i * 37 % 1700) / 100 AS x, ceil(x) AS y, y + i % 3 AS z, (x + 0.004)::FLOAT AS v FROM range(2000) r(i)""")
    if made == "links":
        exact("""CALL dp_link('stays', "references" := {'pid': 'patients.pid', 'ward': 'wards.ward'}); CALL dp_public('wards');
            CALL dp_protect(['patients', 'stays'], unit := 'patients.pid', rho := 1e6, max_rows := {'stays': 10});
            CALL dp_attribute('patients', 'sex', low := 0, high := 1)""")
    else:
        exact("CALL dp_protect('stays', rho := 1e6)")
    exact("""CALL dp_attribute('stays', 'x', bins := [0, 10, 20], decimals := 2);
        CALL dp_attribute('stays', 'y', bins := [0, 10, 20], decimals := 0, at_least := 'x');
        CALL dp_attribute('stays', 'z', bins := [0, 7, 21], at_least := 'y');
        CALL dp_attribute('stays', 'v', bins := [0, 1, 2, 20], at_least := 'x')""")
    names = ["patients", "stays"] if made == "links" else ["stays"]
    exact(f"CALL dp_synthesize_database('main', target := 'syn', tables := {names}, rho := 1)")
    found = exact("""SELECT count(*) FILTER (y < x), count(*) FILTER (z < y), count(*) FILTER (v < x), count(*) > 1500,
        bool_and(y = round(y) AND x BETWEEN 0 AND 20 AND z <= 21) FROM syn.stays""")
    assert found == [(0, 0, 0, True, True)]


def test_a_view_with_the_difference_keeps_it(exact: Loaded) -> None:
    """Stays of 0 to 8 days by kind of ward, of dates by month; both dates by themselves do not say how long a stay is."""
    exact(
        "CREATE TABLE sleepers AS SELECT i AS id, i AS age FROM range(2000) t(i);"
        "CREATE TABLE stays AS SELECT i % 2000 AS id, i % 3 AS ward, d AS first, d + ((i % 3) * 3 + i % 3)::INTEGER AS last "
        "FROM (SELECT i, DATE '2020-01-01' + (i * 37 % 900)::INTEGER AS d FROM range(4000) t(i));"
        "CALL dp_link('stays', \"references\" := {'id': 'sleepers.id'});"
        "CALL dp_protect(['sleepers', 'stays'], unit := 'sleepers.id', max_rows := {'stays': 2}, rho := 100);"
        "CALL dp_view('stay', 'SELECT ward, first, last - first AS days FROM stays');"
        "CALL dp_attribute('stay', 'ward', low := 0, high := 2); CALL dp_attribute('stay', 'days', low := 0, high := 59);"
        "CALL dp_attribute('stay', 'first', low := DATE '2020-01-01', high := DATE '2022-12-31', step := INTERVAL 1 MONTH);"
    )
    made = exact("SELECT ward, avg(days) FROM dp_synthesize('stay', rho := 20) GROUP BY ward ORDER BY ward")
    assert [round(days) for _, days in made] == [0, 4, 8]
