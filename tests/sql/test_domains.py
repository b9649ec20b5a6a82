"""Functions of noisy answers that are functions of some numbers only, and increasing there: sqrt, logarithms, roots and powers."""

import math
from collections.abc import Iterator

import duckdb
import pytest

import duckdb_dp.testing

PARTIAL = [
    "sqrt({})", "ln({})", "log({})", "log10({})", "log2({})", "log(3, {})", "power({}, 0.5)", "{} ** 1.5", "round(sqrt({}), 1)",
    "sqrt(sqrt({}))", "ln(sqrt({}))",
]  # fmt: skip
"""NULL below 0."""
WHOLE = ["{} ** 3", "cbrt({})", "coalesce(ln({}), 0)", "greatest(log10({}), 0.5)", "power(1.5, {} / 20)"]
GROUPS = 300


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Groups of 0 to 29 rows, and noise of 4."""
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT g, 1 AS one FROM range({GROUPS}) r(g), range(30) s(j) WHERE j < g % 30")
        duckdb_dp.testing.load(con, tmp_path_factory.mktemp("ledger") / "l.dp", seed=7)
        con.execute(f"CALL dp_protect('t', mu := 100); CALL dp_attribute('t', 'g', low := 0, high := {GROUPS - 1})")
        yield con


@pytest.mark.some(3)
@pytest.mark.parametrize("function", PARTIAL + WHOLE)
def test_intervals_hold_and_nothing_is_nan(con: duckdb.DuckDBPyConnection, function: str) -> None:
    asked = f"SELECT g, {function.format('count(*)')} AS f, count(*) AS n FROM t GROUP BY g"
    rows = con.execute("SELECT g, n, f, f_ci_low, f_ci_high, f_stddev FROM dp_sql(?, mu := 0.25)", [asked]).fetchall()
    if "ln" in function or "log" in function:  # of which DuckDB 1.4 has none of 0
        rows = [row for row in rows if row[0] % 30]
    truths = con.execute(f"SELECT {function.format('(g % 30)::DOUBLE')} FROM range(1, 30) r(g)").fetchall()
    held = shown = 0
    for g, n, *found in rows:
        value, low, high, _ = found
        assert not any(map(math.isnan, [one for one in found if one is not None]))
        assert (value is None) == (n < 0 and function in PARTIAL)
        if value is None:
            assert found == [None] * 4
            continue
        shown += 1
        truth = (
            truths[g % 30 - 1][0]
            if g % 30
            else con.execute(f"SELECT {function.format('0.0::DOUBLE')}").fetchall()[0][0]
        )
        assert high is not None
        held += (low is None or low <= truth) and truth <= high
    assert held >= 0.9 * shown


def test_what_is_no_increasing_function_is_null_outside_too(con: duckdb.DuckDBPyConnection) -> None:
    """In HAVING, in other expressions, and above the aggregates."""
    asked = "SELECT g, 1 + sqrt(count(*)) AS f, power(count(*), -0.5) AS p, count(*) AS n FROM t GROUP BY g"
    rows = con.execute("SELECT n, f, p, p_ci_low FROM dp_sql(?, mu := 0.25)", [asked]).fetchall()
    assert all(
        (n < 0) == (f is None) and (p is None) == (low is None) and (p is None or n > 10) for n, f, p, low in rows
    )
    (kept,) = con.execute("SELECT min(n) FROM dp_sql(?, mu := 0.25)", [f"{asked} HAVING ln(count(*)) > 0"]).fetchall()
    assert kept[0] > 1
    above = "SELECT n, sqrt(sqrt(n)) AS s, log10(n) AS l FROM (SELECT g, count(*) AS n FROM t GROUP BY g)"
    rows = con.execute("SELECT n, s, l FROM dp_sql(?, mu := 0.25)", [above]).fetchall()
    assert all((n < 0) == (s is None) == (root is None) for n, s, root in rows)


LONG = [
    ("SELECT sqrt(sqrt(sqrt(sqrt(count(*))))) AS v FROM t", "3 deep"),
    ("SELECT ln(log2(power(sqrt(n), 0.5))) AS v FROM (SELECT count(*) AS n FROM t)", "3 deep"),
    ("SELECT count(*) AS n FROM t HAVING sqrt(sqrt(sqrt(sqrt(count(*))))) > 1", "3 deep"),
    ("SELECT count(*) AS a0, {chain} FROM t", "outputs name each other"),
    ("SELECT count(*) AS a0, {chain} FROM t HAVING a30 > 1 ORDER BY a30", "outputs name each other"),
    ("SELECT n AS a0, {chain} FROM (SELECT count(*) AS n, 1 AS one FROM t)", "outputs name each other"),
]


@pytest.mark.parametrize(("statement", "why"), LONG)
def test_no_short_statement_becomes_a_long_one(con: duckdb.DuckDBPyConnection, statement: str, why: str) -> None:
    """Functions in each other, and names of outputs, are written out several times: in the length of a text they grow exponentially."""
    inner = "n" if "(SELECT" in statement else "count(*)"
    asked = statement.format(chain=", ".join(f"{inner} + a{i} + a{i} AS a{i + 1}" for i in range(30)))
    before = con.execute("SELECT epsilon_spent, spent FROM dp_budget()").fetchall()
    with pytest.raises(duckdb.Error, match=why):
        con.execute("FROM dp_sql(?, mu := 1)", [asked])
    assert con.execute("SELECT epsilon_spent, spent FROM dp_budget()").fetchall() == before
