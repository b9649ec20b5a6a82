"""Every argument of every function, given values that nobody would: answered, or refused in one line, and never charged.

The line is in words of SQL, and its hints can be pasted, for tables of any name.
"""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from duckdb_dp.counting.encode import decode, encode
from duckdb_dp.domain.domain import declare
from duckdb_dp.errors import DPError, identifier, quoted, quoted_name
from duckdb_dp.sql.install import macro_files
from tests.conftest import Loaded, one_line

BIG = "1" + "0" * 39  # DuckDB reads it as a DOUBLE
ODD = [
    *("NULL", "true", "''", "'x'", "'a\0b'", "'99999999999999999999'", "[]", "[NULL]", "[[]]", "['x', 1]", "{'a': 1}", "MAP {1: 2}"),
    *("0", "-1", "2", "-0.0", "1e-320", "0.5", "1e300", "-1e300", "1e39", "1.7e308", BIG, "99999999999999999999"),
    *("'nan'::DOUBLE", "'inf'::DOUBLE", "'-inf'::DOUBLE", "'nan'::FLOAT", "9223372036854775807", "-9223372036854775808"),
    *("9223372036854775808", "170141183460469231731687303715884105727", "-170141183460469231731687303715884105728"),
    *("'340282366920938463463374607431768211455'::UHUGEINT", "'99999999999999999999999999999999999999'::DECIMAL(38,0)"),
    *("'1e-38'::DECIMAL(38,38)", "'9999999999999999999999999999.0000000001'::DECIMAL(38,10)", "[1e39, 1e300]"),
    *("['nan'::DOUBLE]", "[0, 'inf'::DOUBLE]", "[-1, 1e-320]", "[170141183460469231731687303715884105727]", "[true]", "[0, 1]"),
    *("DATE '2020-01-01'", "'infinity'::DATE", "'290000-01-01'::DATE", "TIMESTAMP '2020-01-01 00:00:00.000001'", "TIME '24:00:00'"),
    *("INTERVAL 1 MONTH", "INTERVAL '-1 day'", "INTERVAL '999999999 months'", "INTERVAL 0 SECOND", "TIMESTAMPTZ '2020-01-01'"),
    *("'it''s'", "{}", "{'a': NULL}", "[NULL, NULL]", "[['a', NULL]]", "1.50::DECIMAL(9,2)", "repeat('x', 300)", "range(999)"),
    *("['2020-01-01', 'infinity']", "['infinity'::DATE, NULL]", "'\\x00'::BLOB", "uuid()", "'é'", "{'owners': 1}", "{'owners': 'x'}"),
]  # fmt: skip
TYPES = [
    *("TINYINT", "HUGEINT", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(38,0)", "DECIMAL(38,38)"),
    *("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_NS", "VARCHAR", "BOOLEAN", "UUID", "ENUM('x')", "BLOB"),
]  # fmt: skip
BUDGETED = {"dataset": "'spent'", "mu": "1"}
CALLS: dict[str, list[dict[str, str]]] = {
    "dp_account": [{"account": "'alice'"}],
    "dp_approve": [{"request": "1"}],
    "dp_grant": [{"account": "'alice'", "dataset": "'spent'", "mu": "1"}],
    "dp_refuse": [{"request": "1"}],
    "dp_share": [{"release": "1", "account": "'alice'"}],
    "dp_protect": [{"dataset": "'fresh'", "mu": "1"}, {"dataset": "'fresh'", "epsilon": "1", "delta": "1e-9"}],
    "dp_attributes": [{"dataset": "'spent'"}, {"dataset": "'spent'", "domain": "{'a': [0, 1, 2]}"}],
    "dp_check": [{"dataset": "'spent'"}],
    "dp_discover": [{**BUDGETED, "attribute": "'a'"}, {**BUDGETED, "attribute": "'a'", "find": "'bounds'"}],
    "dp_domain": [{"dataset": "'spent'"}],
    "dp_explain": [{**BUDGETED, "attributes": "['a']"}, {"dataset": "'spent'", "attributes": "['a']", "target_stddev": "5"}],
    "dp_link": [{"dataset": "'kids'"}],
    "dp_links": [{"dataset": "'kids'", "synthetic": "{'kids': 'kids_syn', 'owners': 'owners_syn'}", "mu": "1"}],
    "dp_marginals": [{**BUDGETED, "attributes": "['a']"}, {"dataset": "'spent'", "epsilon": "1", "attributes": "'all 2-way'", "mechanism": "'aim'"}],
    "dp_max_rows": [{"dataset": "'held'", "mu": "1"}],
    "dp_period": [{"dataset": "'months'", "time_column": "'day'", "start": "DATE '2025-01-01'", "every": "'quarter'", "mu": "1"}],
    "dp_late": [{"dataset": "'months'"}],
    "dp_public": [{"tables": "'kids_syn'"}, {"tables": "'owners'", "links": "'kids'"}],
    "dp_quality": [{**BUDGETED, "table_": "'spent_syn'"}],
    "dp_queries": [{**BUDGETED, "queries": "[{'a': 'range'}]"}],
    "dp_quantiles": [{**BUDGETED, "attribute": "'a'", "quantiles": "[0.25, 0.5]"}],
    "dp_release": [{"name": "1"}],
    "dp_running": [{"dataset": "'moments'", "attributes": "['b']", "start": "DATE '2020-01-01'", "mu": "1"}],
    "dp_sql": [{"sql": "'SELECT count(*) FROM spent'", "mu": "1"}],
    "dp_synthesize": [BUDGETED],
    "dp_view": [{"name": "'all_rows'", "query": "'SELECT * FROM spent'"}],
    "dp_synthesize_database": [{"schema": "'main'", "target": "'made'", "tables": "['owners', 'kids']", "mu": "1"}],
}  # fmt: skip
NAMELESS = {"dp_accounts", "dp_audit", "dp_budget", "dp_ledger", "dp_releases", "dp_requests"}
"""Functions without arguments."""

PYTHONS = re.compile(
    r"\b(None|True|False)\b|<class|object at|Decimal\(|datetime\.|sqlglot|internal error|Traceback|(?<![\w'.])b'"
)
"""What only Python says."""

few_or_many = pytest.mark.parametrize("pace", [16, pytest.param(2, marks=pytest.mark.slow)], ids=["few", "many"])
"""About every sixteenth case of a test, or every other one."""


def parameters(function: str) -> list[str]:
    """A function's arguments as its macro writes them, with their defaults."""
    (text,) = [text for name, text in macro_files() if name == f"{function}.sql"]
    found = re.search(r"^CREATE OR REPLACE MACRO \w+\((.*?)\) AS TABLE", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return [part.strip() for part in found[1].split(",")]


def arguments(function: str) -> list[str]:
    """Their names."""
    return [part.split(" :=")[0].strip('"') for part in parameters(function)]


def call(function: str, given: dict[str, str]) -> str:
    """The call; arguments without a default come first, and have no name."""
    plain = [part for part in parameters(function) if ":=" not in part]
    named = [f'"{name}" := {value}' for name, value in given.items() if name not in plain]
    return f"FROM {function}({', '.join([*(given[name] for name in plain), *named])})"


@pytest.fixture(scope="module")
def spent(shared: Loaded) -> Iterator[Loaded]:
    """Tables whose budgets are spent, so that a request that could be answered is refused after all other checks."""
    shared("CREATE TABLE spent AS SELECT i % 3 AS a, i % 2 = 0 AS b FROM range(30) t(i)")
    shared(
        "CREATE TABLE owners (id INTEGER PRIMARY KEY, b BOOLEAN); INSERT INTO owners SELECT i, i % 2 = 0 FROM range(9) t(i)"
    )
    shared("CREATE TABLE kids (id INTEGER PRIMARY KEY, o INTEGER REFERENCES owners (id), b BOOLEAN)")
    shared("INSERT INTO kids SELECT i, i % 9, true FROM range(20) t(i)")
    for name in ("spent", "owners", "kids"):
        shared(
            f"CALL dp_protect('{name}', mu := 1, delta := 1e-9, discovery_delta := 1e-10); CALL dp_attributes('{name}')"
        )
    shared("CALL dp_attribute('spent', 'a', low := 0, high := 2); CALL dp_account('alice')")
    for name in ("spent", "owners", "kids"):
        shared(f"CREATE TABLE {name}_syn AS SELECT * EXCLUDE (private) FROM dp_synthesize('{name}', mu := 1)")
    shared("CREATE TABLE moments AS SELECT i % 2 = 0 AS b, DATE '2020-01-01' + i::INTEGER AS day FROM range(9) t(i)")
    shared("CALL dp_protect('moments', mu := 1, delta := 1e-9); CALL dp_attributes('moments')")
    shared("FROM dp_marginals('moments', ['b'], mu := 1)")
    shared("CREATE TABLE held AS SELECT i % 9 AS u FROM range(30) t(i); CREATE TABLE months (day DATE)")
    shared("CALL dp_protect('held', unit := 'u', max_rows := 2, mu := 1); FROM dp_max_rows('held', mu := 1)")
    shared("CALL dp_period('months', 'day', start := DATE '2025-01-01', every := 'quarter', mu := 1)")
    names = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(TYPES))
    shared(f"CREATE TABLE odd ({names}); CALL dp_protect('odd', mu := 1)")
    return shared


def said(db: Loaded, sql: str) -> str:
    """The error of a statement, if it is ours: one line in words of SQL; and nothing is charged."""
    before = db.charged()
    message = ""
    try:
        db(sql)
    except duckdb.Error as error:
        if not str(error).startswith("Invalid Input Error: dp_"):
            return ""  # DuckDB's own: the statement never came to us
        message = one_line(str(error))
    assert db.charged() == before, sql
    told = not PYTHONS.search(message) and message.count("Invalid Input Error") <= 1 and len(message) < 700
    assert told, (sql[:200], message[:900])
    return message


def test_every_function_is_here() -> None:
    names = {name.removesuffix(".sql") for name, _ in macro_files()}
    assert names - {"_dp_bind"} == {*CALLS, *NAMELESS, "dp_attribute"}


@pytest.mark.slow
@few_or_many
@pytest.mark.parametrize("function", CALLS)
def test_odd_arguments(spent: Loaded, function: str, pace: int) -> None:
    """All values for the arguments of dp_protect and dp_marginals, and of the others in turn: they are read by the same code."""
    thorough = function in ("dp_marginals", "dp_protect", "dp_release")
    step = 7 * pace if pace > 2 else pace if thorough else 5 * pace
    for base in CALLS[function]:
        for place, name in enumerate(arguments(function), 5 * list(CALLS).index(function)):
            for odd in ODD[11 * place % step :: step]:
                given = {**base, name: odd}
                if function in ("dp_protect", "dp_period") and name != "dataset":
                    fresh = f"fresh_{next(NUMBER)}"
                    spent(f"CREATE TABLE {fresh} (i INTEGER, day DATE)")
                    given["dataset"] = f"'{fresh}'"
                said(spent, call(function, given))


NUMBER = itertools.count()

BASES: list[dict[str, str]] = [
    {"low": "0", "high": "10", "step": "2"},
    {"low": "'2020-01-01'", "high": "'2021-01-01'", "step": "INTERVAL 1 MONTH"},
    {"low": "TIME '00:00'", "high": "TIME '10:00'", "step": "INTERVAL 1 HOUR"},
    {"low": "1e300", "high": "1.7e308", "step": "1e307"},
    {"values": "[]"},
    {"bins": "[]"},
    *({word: f"[{edges}]"} for edges in (f"-1e39, 0, {BIG}", "-1e300, 1e300", "0, 1e-320") for word in ("values", "bins")),
]  # fmt: skip


def as_python(db: Loaded, sql: str) -> Any:
    """A value as it comes to us; NULL for what DuckDB itself does not understand."""
    try:
        text = db(f"SELECT to_json({{'a': {sql}}})::VARCHAR")[0][0]
    except (duckdb.ConversionException, duckdb.ParserException):  # a parser before 1.5 knows no text with a null byte
        return None
    return json.loads(text)["a"]


@pytest.mark.some(1)
@pytest.mark.parametrize("type_", TYPES)
def test_odd_domains(spent: Loaded, type_: str) -> None:
    odd = [as_python(spent, value) for value in ODD]
    for base in BASES:
        known = {word: as_python(spent, value) for word, value in base.items()}
        for name in known:
            for value in [known[name], *odd]:
                if name in ("values", "bins") and not isinstance(value, list):
                    continue
                try:
                    found = declare(name="x", type=type_, **{**known, name: value}, other=True)
                except DPError as error:
                    assert "\n" not in str(error)
                    assert len(str(error)) < 500
                else:
                    coded = encode([found], f"(SELECT NULL::{type_} AS x)")
                    spent(f"SELECT {coded.codes[0]}, {decode(found, '0.5::DOUBLE')} FROM {coded.rows}")


@pytest.mark.slow
@few_or_many
def test_odd_arguments_of_a_declaration(spent: Loaded, pace: int) -> None:
    for place in range(0, len(TYPES), 1 if pace == 2 else 3):
        for name in ("dataset", "attribute", "values", "bins", "low", "step", "other", "nulls"):
            for odd in ODD[place :: 4 * pace + 4]:
                given = {"dataset": "'odd'", "attribute": f"'c{place}'", "high": "10", name: odd}
                said(spent, call("dp_attribute", given).replace("FROM", "CALL"))
    said(spent, "FROM dp_domain('odd')")
    said(spent, "FROM dp_check('odd')")


NUMBERS = [
    *("1e39", "1e300", BIG, "-1e300", "1e-320", "0.1234567890123456789012", "99999999999999999999", "'nan'", "1e400", "NULL"),
]  # fmt: skip
COLUMNS = [
    *("TINYINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(38,10)", "DATE", "TIME", "VARCHAR", "BOOLEAN"),
]


@pytest.mark.slow
@few_or_many
def test_odd_numbers_in_conditions(spent: Loaded, pace: int) -> None:
    spent(f"CREATE OR REPLACE TABLE conditions ({', '.join(f'c{i} {type_}' for i, type_ in enumerate(COLUMNS))})")
    spent("CALL dp_protect('conditions', mu := 1e-9, delta := 1e-9)")
    for i, type_ in enumerate(COLUMNS):
        for domain in {
            "DATE": ["low := '2020-01-01', high := '2020-01-05'", "bins := ['2020-01-01', '2020-02-01']"],
            "TIME": ["bins := ['08:00', '09:00']"],
            "VARCHAR": ["\"values\" := ['a']"],
            "BOOLEAN": [""],
        }.get(type_, ['"values" := [0, 1]', "bins := [0, 1, 5]"]):
            spent(f"CALL dp_attribute('conditions', 'c{i}'{', ' * bool(domain)}{domain})")
            odd = [*NUMBERS, "'2020-01-01'", "'24:00'", "DATE '2020-01-01'", "'99999-01-01'", "''"]
            for number in odd[i % pace :: pace]:
                for condition in (
                    f"c{i} < {number}", f"c{i} = {number}", f"c{i} IN ({number}, 1)", f"abs(c{i}) + 1 > {number}",
                ):  # fmt: skip
                    text = f"SELECT count(*) FROM conditions WHERE {condition}".replace("'", "''")
                    said(spent, f"FROM dp_sql('{text}', mu := 1)")


def test_numbers_that_were_internal_errors(spent: Loaded) -> None:
    assert "there is no release" in spent.refused("FROM dp_release(99999999999999999999)")
    assert "does not fit" in spent.refused("CALL dp_attribute('odd', 'c6', \"values\" := [1e39])")
    assert "does not fit" in spent.refused("CALL dp_attribute('odd', 'c1', low := 1e300, high := 2e300)")


SELECTS = [
    *(f"SELECT {what} FROM people" for what in ("sum()", "count(1, 2)", "avg(DISTINCT age)", "CAST(age AS", "median(age)", "age +")),
    *("SELECT count(*) FROM people, people", "SELECT count(*) FROM (VALUES (1))", "SELECT count(*) FROM 'data.csv'", "UPDATE x", ""),
    *(f"SELECT count(*) FROM people {tail}" for tail in ("LIMIT 1", "GROUP BY age + 1", "GROUP BY 99", "FOR UPDATE", "WINDOW w AS ()")),
    *(
        f"SELECT count(*) FROM people WHERE {condition}"
        for condition in (
            "age = NULL", "race IN (NULL)", "age IN (SELECT 1)", "abs()", "race BETWEEN 1", "sex LIKE 1", "smoker = 1e300",
            "CASE WHEN true THEN 1 END", "age = {'a': 1}", "age = [1, NULL]", "sex = nobody", "not", "x", "race = INTERVAL 1 DAY",
            f"race IN ({', '.join(map(str, range(9999)))}) AND age < 7",
        )
    ),
]  # fmt: skip


@few_or_many
def test_sql_is_told_in_sql(shared: Loaded, pace: int) -> None:
    for sql in SELECTS[pace - 1 :: pace]:
        condition = sql.partition("WHERE ")[2] or sql
        for call in (
            f"FROM dp_sql({quoted(sql)}, mu := 9999)",
            f"FROM dp_queries('people', [{{'race': [{quoted(condition)}]}}], mu := 9999)",
        ):
            said(shared, call)


ODD_TABLES = ["my table", "data.csv", "it's", 'a "b"', "UPPER case", "select", "s.t.u", "Ünï"]
HINT = re.compile(r"(?:CALL|FROM) dp_\w+\((?:'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\[\.\.\.\]|[^()'])*\)")


def parses(hint: str) -> bool:
    """Whether DuckDB's parser takes a hint, in which '...' stands for what only the user knows."""
    filled = re.sub(r"\.\.\.", "NULL", re.sub(r", \.\.\.(?=[,)])", "", hint))
    return len(duckdb.extract_statements(filled)) == 1


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize("name", ODD_TABLES)
def test_hints_can_be_pasted(shared: Loaded, name: str) -> None:
    table, asked = identifier(name), quoted_name(name)
    shared(f"CREATE OR REPLACE TABLE {table} (i INTEGER, {table} INTEGER, order_id INTEGER)")
    column = quoted(name)
    found = []
    for sql in (
        f"FROM dp_marginals({asked}, [{column}], mu := 1)",
        f"CALL dp_protect({asked}, epsilon := 1)",
        f"CALL dp_protect({asked}, mu := 1, delta := 1e-9)",
        f"CALL dp_protect({asked}, mu := 2, delta := 1e-9)",
        f"FROM dp_marginals({asked}, [{column}], mu := 1)",
        f"FROM dp_marginals({asked}, 'all 2-way', mu := 1)",
        f"FROM dp_domain({asked})",
        f"FROM dp_check({asked})",
        f"FROM dp_synthesize({asked}, mu := 1)",
        f"CALL dp_link({asked})",
        f"FROM dp_links({asked}, synthetic := {{'a': 'b'}}, mu := 1)",
        f"FROM dp_quality({asked}, NULL, mu := 1)",
        f"FROM dp_quality({asked}, {asked}, mu := 1)",
        f"CALL dp_public({asked})",
        f"FROM dp_queries({asked}, [{{{column}: 'identity'}}], mu := 1)",
        f"FROM dp_sql({quoted(f'SELECT {table}, count(*) FROM {table} GROUP BY ALL')}, mu := 1)",
        f"CALL dp_attribute({asked}, {column}, low := 'x')",
    ):
        hints = HINT.findall(said(shared, sql))
        assert all(map(parses, hints)), (sql, hints)
        found += hints
    for (call,) in shared(f"SELECT declare FROM dp_attributes({asked}) WHERE declare IS NOT NULL"):
        assert parses(call), call
    assert any(asked in hint for hint in found)
    assert any(column in hint for hint in found)
