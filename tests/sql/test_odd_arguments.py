"""Every argument of every function, given values that nobody would: answered, or refused in one line, and never charged."""

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from duckdb_dp.counting.decode import decode
from duckdb_dp.counting.encode import encode
from duckdb_dp.domain.attribute import declare
from duckdb_dp.errors import DPError
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
    *("['2020-01-01', 'infinity']", "['infinity'::DATE, NULL]", "'\\x00'::BLOB", "uuid()", "'é'", "{'owners': 1}", "{'owners': 'x'}"),
]  # fmt: skip
TYPES = [
    *(
        "TINYINT",
        "HUGEINT",
        "UBIGINT",
        "UHUGEINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(9,2)",
        "DECIMAL(38,0)",
        "DECIMAL(38,38)",
    ),
    *("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_NS", "VARCHAR", "BOOLEAN", "UUID", "ENUM('x')", "BLOB"),
]
BUDGETED = {"dataset": "'spent'", "mu": "1"}
CALLS: dict[str, list[dict[str, str]]] = {
    "dp_protect": [{"dataset": "'fresh'", "mu": "1"}, {"dataset": "'fresh'", "epsilon": "1", "delta": "1e-9"}],
    "dp_attributes": [{"dataset": "'spent'"}],
    "dp_check": [{"dataset": "'spent'"}],
    "dp_domain": [{"dataset": "'spent'"}],
    "dp_explain": [
        {**BUDGETED, "attributes": "['a']"},
        {"dataset": "'spent'", "attributes": "['a']", "target_stddev": "5"},
    ],
    "dp_link": [{"dataset": "'kids'"}],
    "dp_links": [{"dataset": "'kids'", "synthetic": "{'kids': 'kids_syn', 'owners': 'owners_syn'}", "mu": "1"}],
    "dp_marginals": [
        {**BUDGETED, "attributes": "['a']"},
        {"dataset": "'spent'", "epsilon": "1", "attributes": "'all 2-way'", "mechanism": "'aim'"},
    ],
    "dp_public": [{"tables": "'kids_syn'"}, {"tables": "'owners'", "links": "'kids'"}],
    "dp_quality": [{**BUDGETED, "table_": "'spent_syn'"}],
    "dp_queries": [{**BUDGETED, "queries": "[{'a': 'range'}]"}],
    "dp_release": [{"name": "1"}],
    "dp_sql": [{"sql": "'SELECT count(*) FROM spent'", "mu": "1"}],
    "dp_synthesize": [BUDGETED],
    "dp_synthesize_database": [{"schema": "'main'", "target": "'made'", "tables": "['owners', 'kids']", "mu": "1"}],
}
NAMELESS = {"dp_budget", "dp_ledger", "dp_releases"}
"""Functions without arguments."""


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
        shared(f"CALL dp_protect('{name}', mu := 1, delta := 1e-9); CALL dp_attributes('{name}')")
    shared("CALL dp_attribute('spent', 'a', low := 0, high := 2)")
    for name in ("spent", "owners", "kids"):
        shared(f"CREATE TABLE {name}_syn AS SELECT * EXCLUDE (private) FROM dp_synthesize('{name}', mu := 1)")
    names = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(TYPES))
    shared(f"CREATE TABLE odd ({names}); CALL dp_protect('odd', mu := 1)")
    return shared


def answered_or_refused(db: Loaded, sql: str) -> None:
    before = db.charged()
    try:
        db(sql)
    except duckdb.Error as error:
        if not str(error).startswith("Invalid Input Error: dp_"):
            return  # DuckDB's own: the statement never came to us
        one_line(str(error))
    assert db.charged() == before, sql


def test_every_function_is_here() -> None:
    names = {name.removesuffix(".sql") for name, _ in macro_files()}
    assert names - {"_dp_bind"} == {*CALLS, *NAMELESS, "dp_attribute"}


@pytest.mark.parametrize("function", CALLS)
def test_odd_arguments(spent: Loaded, function: str) -> None:
    """All values for the arguments of dp_protect and dp_marginals, and of the others in turn: they are read by the same code."""
    step = 1 if function in ("dp_marginals", "dp_protect", "dp_release") else 5
    tried = 0
    for base in CALLS[function]:
        for place, name in enumerate(arguments(function)):
            for odd in ODD[place % step :: step]:
                tried += 1
                given = {**base, name: odd}
                if function == "dp_protect" and name != "dataset":
                    spent(f"CREATE TABLE fresh_{tried} (i INTEGER)")
                    given["dataset"] = f"'fresh_{tried}'"
                answered_or_refused(spent, call(function, given))


BASES: list[dict[str, str]] = [
    {"low": "0", "high": "10", "step": "2"},
    {"low": "'2020-01-01'", "high": "'2021-01-01'", "step": "INTERVAL 1 MONTH"},
    {"low": "TIME '00:00'", "high": "TIME '10:00'", "step": "INTERVAL 1 HOUR"},
    {"low": "1e300", "high": "1.7e308", "step": "1e307"},
    {"values": "[]"},
    {"bins": "[]"},
    *(
        {word: f"[{edges}]"}
        for edges in (f"-1e39, 0, {BIG}", "-1e300, 1e300", "0, 1e-320")
        for word in ("values", "bins")
    ),
]


def as_python(db: Loaded, sql: str) -> Any:
    """A value as it comes to us; NULL for what DuckDB itself does not understand."""
    try:
        text = db(f"SELECT to_json({{'a': {sql}}})::VARCHAR")[0][0]
    except duckdb.ConversionException:
        return None
    return json.loads(text)["a"]


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
                    spent(f"SELECT {encode(found)}, {decode(found, '0.5::DOUBLE')} FROM (SELECT NULL::{type_} AS x)")


def test_odd_arguments_of_a_declaration(spent: Loaded) -> None:
    for place in range(len(TYPES)):
        for name in ("dataset", "attribute", "values", "bins", "low", "step", "other", "nulls"):
            for odd in ODD[place::8]:
                given = {"dataset": "'odd'", "attribute": f"'c{place}'", "high": "10", name: odd}
                answered_or_refused(spent, call("dp_attribute", given).replace("FROM", "CALL"))
    answered_or_refused(spent, "FROM dp_domain('odd')")
    answered_or_refused(spent, "FROM dp_check('odd')")


NUMBERS = [
    "1e39",
    "1e300",
    BIG,
    "-1e300",
    "1e-320",
    "0.1234567890123456789012",
    "99999999999999999999",
    "'nan'",
    "1e400",
    "NULL",
]
COLUMNS = [
    "TINYINT",
    "HUGEINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(9,2)",
    "DECIMAL(38,10)",
    "DATE",
    "TIME",
    "VARCHAR",
    "BOOLEAN",
]


def test_odd_numbers_in_conditions(spent: Loaded) -> None:
    spent(f"CREATE TABLE conditions ({', '.join(f'c{i} {type_}' for i, type_ in enumerate(COLUMNS))})")
    spent("CALL dp_protect('conditions', mu := 1e-9, delta := 1e-9)")
    for i, type_ in enumerate(COLUMNS):
        for domain in {
            "DATE": ["low := '2020-01-01', high := '2020-01-05'", "bins := ['2020-01-01', '2020-02-01']"],
            "TIME": ["bins := ['08:00', '09:00']"],
            "VARCHAR": ["\"values\" := ['a']"],
            "BOOLEAN": [""],
        }.get(type_, ['"values" := [0, 1]', "bins := [0, 1, 5]"]):
            spent(f"CALL dp_attribute('conditions', 'c{i}'{', ' * bool(domain)}{domain})")
            for number in [*NUMBERS, "'2020-01-01'", "'24:00'", "DATE '2020-01-01'", "'99999-01-01'", "''"]:
                for condition in (
                    f"c{i} < {number}",
                    f"c{i} = {number}",
                    f"c{i} IN ({number}, 1)",
                    f"abs(c{i}) + 1 > {number}",
                ):
                    text = f"SELECT count(*) FROM conditions WHERE {condition}".replace("'", "''")
                    answered_or_refused(spent, f"FROM dp_sql('{text}', mu := 1)")


def test_numbers_that_were_internal_errors(spent: Loaded) -> None:
    assert "there is no release" in spent.refused("FROM dp_release(99999999999999999999)")
    assert "does not fit" in spent.refused("CALL dp_attribute('odd', 'c6', \"values\" := [1e39])")
    assert "does not fit" in spent.refused("CALL dp_attribute('odd', 'c1', low := 1e300, high := 2e300)")
