"""What DuckDB refuses, in our words: only what is about the call, and DuckDB's own words for all else."""

import duckdb
import pytest

from duckdb_dp.reporting.refusals import in_our_words


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    """A connection with two macros, and nothing else of ours."""
    made = duckdb.connect()
    made.execute(
        'CREATE MACRO dp_x(dataset := NULL, epsilon := 1, "values" := [0], low := 0) AS TABLE SELECT epsilon::INTEGER AS e, low'
    )
    made.execute("CREATE MACRO dp_none() AS TABLE SELECT 1 AS a")
    return made


ALL = "its arguments are dataset, epsilon, values, low."


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("FROM dp_x('t', epsilonn := 2)", "dp_x has no argument epsilonn; epsilon may be meant."),
        ("FROM dp_x('t', zz := struct_pack(epsilon := 1), Low := 2)", f"dp_x has no argument zz; {ALL}"),
        ("FROM DP_X('zz := 1', value => [2], qq := {'a': 1})", f"dp_x has no argument value and qq; values may be meant; {ALL}"),
        ("FROM dp_x(1, 2, 3, 4, 5)", f"dp_x was given too many arguments; {ALL}"),
        ("FROM dp_none(1)", "dp_none was given too many arguments; it has none."),
        ("FROM dp_none(epsilon := 1)", "dp_none has no argument epsilon; it has none."),
        ("FROM dp_x(low := [1, 'auto'])", "'auto' stands in a list of numbers, and a list has one type: write all of it as texts, ['1', 'auto']."),
        ("FROM dp_x(epsilon := 'auto')", None),
        ("SELECT nothing FROM dp_x()", None),
        ("SELECT abs(1, 2)", None),
    ],
)  # fmt: skip
def test_refused(con: duckdb.DuckDBPyConnection, statement: str, told: str | None) -> None:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(statement).fetchall()
    assert in_our_words(statement, str(caught.value)) == told
    cell = f'con.sql("""{statement}""").df()'
    assert in_our_words(cell, str(caught.value)) == told
