"""What errors say: one line in words of SQL, about any argument; and hints that can be pasted, for tables of any name."""

import re
from collections.abc import Iterator

import duckdb
import pytest

from duckdb_dp.errors import identifier, quoted, quoted_name
from duckdb_dp.shell.complete import arguments
from duckdb_dp.sql.install import macro_files
from tests.conftest import Loaded, one_line

ODD = ["NULL", "true", "'x'", "'it''s'", "[]", "{}", "{'a': NULL}", "-1", "1e300", "[NULL, NULL]", "[['a', NULL]]",
       "DATE '2020-01-01'", "'\\x00'::BLOB", "1.50::DECIMAL(9,2)", "repeat('x', 300)", "range(999)"]  # fmt: skip
PYTHONS = re.compile(r"\b(None|True|False)\b|<class|object at|Decimal\(|datetime\.|sqlglot|internal error|Traceback|b'")
"""What only Python says."""

CALLS = {
    "dp_attribute": ("'people', 'age'", ""),
    "dp_attributes": ("'people'", ""),
    "dp_budget": ("", ""),
    "dp_check": ("'people'", ""),
    "dp_domain": ("'people'", ""),
    "dp_explain": ("'people', ['sex']", "mu := 9999"),
    "dp_ledger": ("", ""),
    "dp_link": ("'people'", ""),
    "dp_links": ("'people'", "mu := 9999"),
    "dp_marginals": ("'people', ['sex']", "mu := 9999"),
    "dp_protect": ("'people'", "mu := 1000"),
    "dp_public": ("'people'", ""),
    "dp_quality": ("'people', 'made'", "mu := 9999"),
    "dp_queries": ("'people', [{'sex': 'identity'}]", "mu := 9999"),
    "dp_release": ("'r'", ""),
    "dp_releases": ("", ""),
    "dp_sql": ("'SELECT count(*) FROM people'", "mu := 9999"),
    "dp_synthesize": ("'people'", "mu := 9999"),
    "dp_synthesize_database": ("'main'", "target := 'syn', mu := 9999"),
}
"""function -> its first arguments, and named ones that it needs; a budget is more than is left, so that nothing is drawn."""


def test_every_function_is_here() -> None:
    assert set(CALLS) == {name.removesuffix(".sql") for name, _ in macro_files() if not name.startswith("_")}


def said(db: Loaded, sql: str) -> str:
    """The error of a statement, if it is ours."""
    try:
        db(sql)
    except duckdb.Error as error:
        return one_line(str(error)) if "dp_" in str(error).split(":")[1] else ""
    return ""


def variants(function: str) -> Iterator[str]:
    """Calls with one odd argument each."""
    plain, named = CALLS[function]
    first = [part for part in re.split(r", (?=['\[])", plain) if part]
    for odd in ODD:
        for place in range(len(first)):
            yield f"FROM {function}({', '.join([*first[:place], odd, *first[place + 1 :], *filter(None, [named])])})"
        for name in arguments()[function]:
            kept = [part for part in named.split(", ") if part and not part.startswith(f"{name} ")]
            given = ", ".join([*first, *kept, f'"{name}" := {odd}'])
            yield f"FROM {function}({given})"


@pytest.mark.parametrize("function", sorted(CALLS))
def test_odd_arguments_are_told_in_sql(shared: Loaded, function: str) -> None:
    found, charged = [], shared.charges()
    for sql in variants(function):
        message = said(shared, sql)
        if message:
            assert shared.charges() == charged, sql
        else:
            charged = shared.charges()
        if PYTHONS.search(message) or message.count("Invalid Input Error") > 1 or len(message) > 700:
            found.append((sql[:200], message[:900]))
    assert not found, "\n".join(map(str, found))


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


def test_sql_is_told_in_sql(shared: Loaded) -> None:
    for sql in SELECTS:
        condition = sql.partition("WHERE ")[2] or sql
        for call in (
            f"FROM dp_sql({quoted(sql)}, mu := 9999)",
            f"FROM dp_queries('people', [{{'race': [{quoted(condition)}]}}], mu := 9999)",
        ):
            message = said(shared, call)
            assert not PYTHONS.search(message), message
            assert len(message) < 700, message


ODD_TABLES = ["my table", "data.csv", "it's", 'a "b"', "UPPER case", "select", "s.t.u", "Ünï"]
HINT = re.compile(r"(?:CALL|FROM) dp_\w+\((?:'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\[\.\.\.\]|[^()'])*\)")


def parses(hint: str) -> bool:
    """Whether DuckDB's parser takes a hint, in which '...' stands for what only the user knows."""
    filled = re.sub(r"\.\.\.", "NULL", re.sub(r", \.\.\.(?=[,)])", "", hint))
    return len(duckdb.extract_statements(filled)) == 1


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
