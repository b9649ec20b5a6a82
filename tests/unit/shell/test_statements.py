"""Where statements end, and which calls are in them."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckdb_dp.shell.statements import calls, is_blank, is_open, split, tokens

PIECES = st.sampled_from(
    [
        "SELECT 1",
        ";",
        "'a;b'",
        '"x;y"',
        "-- c;\n",
        "/* ; */",
        "$$ ; $$",
        "$t$ ; $t$",
        "'it''s;'",
        "e'\\';'",
        "\n",
        " a ",
        "(",
        "[1,2]",
    ]
)


@given(st.lists(PIECES, max_size=12))
def test_only_semicolons_outside_of_quotes_and_comments_split(pieces: list[str]) -> None:
    text = " ".join(pieces)
    assert "".join(tokens(text)) == text
    complete, rest = split(text)
    expected = [part for part in _parts(pieces) if not all(is_blank(piece) for piece in part)]
    assert len(complete) + bool(rest) == len(expected)
    assert not is_open(text)


def _parts(pieces: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for piece in pieces:
        if piece == ";":
            found.append([])
        else:
            found[-1].append(piece)
    return found


@pytest.mark.parametrize(
    "text", ["'", "select 'a", 'select "a', "/* x", "/*/", "$$ a", "$a$ x $b$", "'a''", "e'\\'", "select 'a;\n b"]
)
def test_unfinished_texts_stay_open(text: str) -> None:
    assert is_open(text)
    assert split(f"{text};")[0] == []


def test_statements_are_those_of_duckdb() -> None:
    text = 'SELECT 1; SELECT \';\', "a;" FROM (SELECT 1 AS "a;") -- x;\n; /* y; */ SELECT $$;$$; ;SELECT 2'
    complete, rest = split(text)
    assert len(complete) + 1 == len(duckdb.extract_statements(text))
    assert rest.strip() == "SELECT 2"
    with duckdb.connect() as con:
        for statement in (*complete, rest):
            con.execute(statement).fetchall()


def test_calls_are_found_with_their_arguments() -> None:
    found = calls(
        "-- dp_sql('no')\nSELECT 'dp_queries(1)' FROM dp_marginals ('a', [['x', 'y'], []], epsilon := 0.5, release := 'r', "
        "fresh => true) JOIN DP_SQL('SELECT count(*), f(1, 2) FROM t', rho:=1)"
    )
    assert [call.function for call in found] == ["dp_marginals", "dp_sql"]
    assert found[0].explained() == "FROM dp_explain('a', [['x', 'y'], []], epsilon := 0.5)"
    assert found[1].explained() == "FROM dp_explain(NULL, 'SELECT count(*), f(1, 2) FROM t', rho:=1)"


def test_names_alone_are_no_calls() -> None:
    assert calls("SELECT dp_marginals FROM t WHERE x = 'dp_sql(1)' -- dp_queries(2)") == []
