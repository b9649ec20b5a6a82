"""How messages write values, names and lists."""

from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from duckdb_dp.errors import as_sql, brief, few, first_line, quoted, quoted_name
from duckdb_dp.sql.arguments import name_parts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (0, "0"),
        (0.5, "0.5"),
        (Decimal("1.50"), "1.50"),
        ("it's", "'it''s'"),
        ([1, None, [False]], "[1, NULL, [false]]"),
        (("a",), "['a']"),
        ({"a": None, "b": {"c": "d"}}, "{'a': NULL, 'b': {'c': 'd'}}"),
        (date(2020, 1, 1), "an object of Python's type date"),
        (int, "an object of Python's type type"),
        (1 << 20_000, "a number of more than 60 digits"),
        ("a\nb", "'a b'"),
    ],
    ids=range(13),
)
def test_values_are_written_as_sql_does(value: object, text: str) -> None:
    assert as_sql(value) == text


@pytest.mark.parametrize(
    "value", ["x" * 10**6, [1] * 10**6, {str(i): i for i in range(10**5)}, [["a"] * 999] * 999], ids=range(4)
)
def test_long_values_are_cut(value: object) -> None:
    assert len(as_sql(value)) == 63
    assert as_sql(value).endswith("...")


def test_long_sql_is_cut() -> None:
    assert brief("SELECT\n 1") == "SELECT 1"
    assert brief("x" * 200) == "x" * 160 + "..."


def test_long_lists_are_cut() -> None:
    assert few([]) == ""
    assert few(range(5)) == "0, 1, 2, 3, 4"
    assert few(range(1642)) == "0, 1, 2, 3, 4, and others"
    assert few("ab", " or ") == "a or b"


ODD_NAMES = ["t", "my table", "data.csv", "it's", 'a "b"', " ", "Ünï", "select", ".", '"', "a\nb", " x ", "UPPER", "1"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_can_be_pasted(name: str) -> None:
    for parts in ((name,), ("s", name), (name, "s", name)):
        row: Any = duckdb.execute(f"SELECT {quoted_name(*parts)}").fetchone()
        assert name_parts(row[0]) == parts
    assert duckdb.execute(f"SELECT {quoted(name)}").fetchone() == (name,)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Invalid Input Error: dp_sql: no.", "dp_sql: no."),
        ("Out of Memory Error: full\n\nLINE 1: ...", "full"),
        ("Catalog Error: no Error: here", "no Error: here"),
        ("plain\n \x1b[4mx\x1b[0m", "plain"),
        ("Required argument missing for <class 'sqlglot.expressions.Count'>.", "Required argument missing for Count."),
        ("", "Exception"),
    ],
)
def test_other_libraries_are_cited_in_one_line(text: str, line: str) -> None:
    assert first_line(Exception(text)) == line
