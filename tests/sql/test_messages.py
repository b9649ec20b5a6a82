"""What errors say: one line in words of SQL, about any argument; and hints that can be pasted, for tables of any name."""

import re
from collections.abc import Iterator

import duckdb
import pytest

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
