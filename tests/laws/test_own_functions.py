"""Macros never stand in for DuckDB's own functions, wherever they are: calls pass them by, and operators are refused."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.counting.encode import quote
from duckdb_dp.sql import lineage, own_names
from duckdb_dp.sql.above.gate import nodes
from tests.conftest import Loaded

PLACES = {
    "main": "CREATE MACRO {name}{bodies}",
    "temp": "CREATE TEMP MACRO {name}{bodies}",
    "not committed": "CREATE MACRO {name}{bodies}",
    "another schema": "CREATE MACRO s.{name}{bodies}",
    "another database": "CREATE MACRO o.main.{name}{bodies}",
    "another database's schema": "CREATE MACRO o.s.{name}{bodies}",
}
BODIES = "() AS 'leak', (a) AS 'leak', (a, b) AS 'leak', (a, b, c) AS 'leak'"
TABLE = "(a) AS TABLE SELECT 'leak' AS leak"

FORMS = """
a + b; a - b; -a; a * b; a / b; a // b; a % b; a ^ b; a ** b; a & b; a | b; ~a; a << b; a >> b; t || t; t LIKE 'x%'; t NOT LIKE 'x%'; t ILIKE 'X';
t NOT ILIKE 'X'; t LIKE 'x' ESCAPE '$'; t NOT LIKE 'x' ESCAPE '$'; t ILIKE 'x' ESCAPE '$'; t NOT ILIKE 'x' ESCAPE '$'; t GLOB 'x*'; t SIMILAR TO 'x';
t NOT SIMILAR TO 'x'; a IN [1, 2]; a IN l; [a, b]; {'a': a}; MAP {'a': a}; l[1:]; EXTRACT(year FROM d); EXTRACT('year' FROM d);
m AT TIME ZONE 'UTC'; d + INTERVAL '1' YEAR; INTERVAL '1' MONTH; INTERVAL (a) DAYS; INTERVAL 2 HOURS; INTERVAL 1 CENTURY; INTERVAL 1 MILLENNIUM;
INTERVAL 1 DECADE; INTERVAL 1 QUARTER; INTERVAL 1 WEEK; INTERVAL 1 MINUTE; INTERVAL 1 SECOND; INTERVAL 1 MILLISECOND; INTERVAL 1 MICROSECOND;
(a, b); (a, b) = (b, a); (a, b) IN ((7, 2)); NOT(a, b) = (2, 7); CASE WHEN(a, b) > (2, 7) THEN 1 END; greatest(1, (a, b)[1]);
a IN (7, 2) AND(a, b) = (7, 2); (l[1], b); (SELECT (a, b)); a = ANY(l); [x FOR x IN l]; l <-> l; count(*) + 1; CASE WHEN a > 1 THEN b - 1 END; a+b; (a)-(b); CURRENT_DATE
"""
ROW = "SELECT 7 AS a, 2 AS b, 'x' AS t, [1, 2] AS l, DATE '2020-02-03' AS d, TIMESTAMP '2020-02-03 04:05:06' AS m"


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """A loaded database where macros of one place are found, and how one is made there."""
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, tmp_path / "l.dp")
        con.execute(
            "CREATE SCHEMA s; ATTACH ':memory:' AS o; CREATE SCHEMA o.s; SET search_path = 'o.s,o.main,memory.s,memory.main'"
        )
        if request.param == "not committed":
            con.execute("BEGIN")
        yield con, PLACES[request.param]


def planned(con: duckdb.DuckDBPyConnection, sql: str) -> str:
    """What DuckDB makes of a statement once it is bound, or its error; neither ends a transaction."""
    ((found,),) = con.execute("SELECT system.main.json_serialize_plan(?)", [sql]).fetchall()
    return str(found)


def test_calls_pass_macros_by(place: tuple[duckdb.DuckDBPyConnection, str]) -> None:
    """Every function that may be called, however its name is written."""
    con, make = place
    for name in own_names.CALLED:
        con.execute(make.format(name=f'"{name}"', bodies=BODIES))
    seen = 0
    for name in sorted(name for name in own_names.CALLED if not name.startswith("duckdb_")):  # those are tables
        seen += "leak" in planned(con, f"SELECT {name}(1)")
        for written in (name, name.upper(), f'"{name}"'):
            sql, names = own_names.in_full(f"SELECT {written}(1)")
            found = planned(con, sql)
            assert "leak" not in found or (names and "there is a macro" in planned(con, own_names.bound(sql))), sql
    assert seen > 250  # without full names they are found


@pytest.mark.parametrize("name", ["range", "generate_series", "unnest", "duckdb_tables"])
def test_tables_pass_macros_by(place: tuple[duckdb.DuckDBPyConnection, str], name: str) -> None:
    con, make = place
    con.execute(make.format(name=name, bodies=TABLE))
    assert "leak" not in planned(con, own_names.bound(f"FROM {name}([1]), (SELECT 1 + 1)"))


def test_syntax_finds_no_macro(place: tuple[duckdb.DuckDBPyConnection, str]) -> None:
    """Whatever DuckDB's parser makes of operators and other syntax: with a macro of any of these names it is refused."""
    con, make = place
    for form in FORMS.split(";"):
        sql = f"SELECT {form} AS found FROM ({ROW}) AS made"
        own, statement = planned(con, own_names.bound(sql)), lineage.parsed(own_names.in_full(sql)[0])
        assert "macro" not in own
        called = [node for node in nodes(statement) if node.get("function_name") and node.get("catalog") != "system"]
        names = {str(node["function_name"]) for node in called} | (
            {"current_date"} if "CURRENT_DATE" in form else set()
        )
        assert names, form
        for name in sorted(names):
            con.execute(make.format(name=f'"{name}"', bodies=BODIES))
            found = planned(con, own_names.bound(sql))
            assert found == own or f"there is a macro '{name}'" in found, form
            con.execute(re.sub("CREATE (TEMP )?", "DROP ", make.format(name=f'"{name}"', bodies="")))
        assert planned(con, own_names.bound(sql)) == own


def test_a_macro_cannot_guess_the_argument(place: tuple[duckdb.DuckDBPyConnection, str]) -> None:
    """It is named anew for each statement."""
    con, make = place
    before = own_names.bound("SELECT 1 + 1")
    argument = before.split('"_dp_')[1].split('"')[0]
    con.execute(make.format(name='"+"', bodies=f'("_dp_{argument}" := NULL) AS 2'))
    assert "there is a macro '+'" in planned(con, own_names.bound("SELECT 1 + 1"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT f(a, b), c",
        "SELECT a, b FROM (SELECT a, b FROM t)",
        'SELECT a IN (1, 2), "f"(a, b)',
        "SELECT sum(a) OVER (PARTITION BY b, c)",
    ],
)
def test_lists_that_are_no_rows_are_not_looked_up(sql: str) -> None:
    """A look at one name takes 0.2 ms of each call."""
    assert not {name for name in own_names.in_full(sql)[1] if "row" in name}


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("SELECT 'lower(a)', \"lower\", e'it\\'s lower(a)' /* lower(a) ' */ -- lower('", True),
        ("SELECT t.lower(a) FROM t", True),
        ('SELECT mine(a) FROM "t"(a), élower(a)', True),
        ("SELECT 'it''s' || LOWER(\"a\"\"(\")", False),
    ],
)
def test_only_calls_are_written_in_full(written: str, same: bool) -> None:
    found, _ = own_names.in_full(written)
    assert (found == written) is same
    assert same or found == 'SELECT \'it\'\'s\' || system.main."lower"("a""(")'


CALLS = [
    "FROM dp_marginals('people', [['age'], ['sex', 'race']], mu := 1)",
    "FROM dp_queries('people', [{'age': 'prefix', 'sex': 'identity'}], mu := 1)",
    "FROM dp_quantiles('people', 'age', [0.5], mu := 1)",
    "FROM dp_sql('SELECT sex, count(*) AS n, avg(age) AS a FROM people WHERE upper(sex) LIKE ''F%'' GROUP BY sex', mu := 1)",
    "FROM dp_sql('WITH t AS (SELECT race, count(*) AS n FROM people GROUP BY race) SELECT race, n / sum(n) OVER () AS s FROM t', mu := 1)",
    "FROM dp_sql('SELECT race, median(age) AS m FROM people GROUP BY race HAVING count(*) > 3', mu := 1)",
    "FROM dp_synthesize('people', mu := 1)",
]


@pytest.mark.parametrize("call", CALLS)
def test_no_emitted_name_is_looked_up_unseen(db: Loaded, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """As DuckDB's parser reads them, emitted statements call by full names, but for what is asked of DuckDB first."""
    emitted: list[str] = []

    def bound(sql: str) -> str:
        emitted.append(sql)
        return own_names.bound(sql)

    monkeypatch.setattr("duckdb_dp.sql.calls.own_names", SimpleNamespace(bound=bound))
    db(call)
    assert emitted
    for sql in emitted:
        full, names = own_names.in_full(sql)
        for node in nodes(lineage.parsed(full)):
            if (name := node.get("function_name")) and node.get("catalog") != "system":
                schema = f"{node['schema']}." if node.get("schema") else ""
                assert f"{schema}{quote(str(name))}" in names, name


SHADOWED = own_names.CALLED - {"to_json", "error", "struct_pack", "concat_ws", "list_value", "row", "array_extract"}
"""All but what the call itself is made with, and what syntax stands for."""


def test_answers_are_the_same_beside_macros(exact: Loaded) -> None:
    """Those that clip, add up and read answers too."""
    call = "SELECT COLUMNS(*) FROM dp_sql('SELECT sex, sum(age) AS a, count(*) AS n FROM people WHERE lower(sex) <> ''x'' GROUP BY sex', mu := 1, fresh := true)"
    own = exact(call)
    for name in SHADOWED:
        exact(f'CREATE TEMP MACRO "{name}"{BODIES}')
    assert exact(call) == own
    exact('CREATE TEMP MACRO "*"(a, b) AS 0')
    assert "there is a macro '*' in place of DuckDB's function" in exact.refused(call)


def test_the_statement_is_read_back() -> None:
    """As the gateway reads the requests in it, which say what it would charge."""
    sql = "SELECT 'it''s' || lower('(''a'')') || '', \"q'\""
    assert own_names.unbound(own_names.bound(sql)) == own_names.in_full(sql)[0]
    assert own_names.unbound("SELECT 1") == "SELECT 1"
