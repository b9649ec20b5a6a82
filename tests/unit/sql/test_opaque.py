"""What fails in a row fails there whatever the other rows are, where an expression is said to be worked out whole."""

import duckdb
import pytest
from sqlglot import parse_one

from duckdb_dp.sql.opaque import whole

TYPES = {"c": "INTEGER", "e": "DECIMAL(18,0)", "s": "VARCHAR"}
WHOLE = (
    "c * 2147483647",
    "-(c + 2147483600)",
    "e * (1 - c)",
    "e * 999 * (1 + e)",
    "c - -2147483647 - c",
    "CASE WHEN c >= 0 THEN c * 2147483647 ELSE 0 END",
    "CASE WHEN s LIKE 'a%' AND c < 50 THEN c * 2147483647 WHEN c > 98 THEN e * 99 END",
)
OTHERS = (
    "(c * 2147483647) IS NULL",
    "(c * 2147483647) * 0",
    "c * (1 - 1)",
    "coalesce(c * 2147483647, 0)",
    "CASE WHEN c * 2147483647 > 0 THEN 1 END",
    "CASE c WHEN 1 THEN 2 END",
    "c > 0 OR c * 2147483647 > 0",
    "greatest(c, c * 2147483647)",
)
ROWS = "SELECT (i % 100)::INTEGER AS c, (999999999999990000 + i % 900)::DECIMAL(18,0) AS e, 'abc' AS s FROM range(3000) r(i)"
PERSONS = ("NULL, NULL, NULL", "-1, 5, 'b'", "2147483647, -5, ''")
ASKED = "count(x), count(*) FILTER (WHERE x IS NOT NULL), sum(CASE WHEN x IS NULL THEN 1 ELSE 0 END), count(*) FILTER (WHERE x <> 7)"


@pytest.mark.parametrize("text", WHOLE)
def test_other_rows_change_no_value(text: str) -> None:
    assert whole(parse_one(text, dialect="duckdb"), TYPES)
    with duckdb.connect() as con:
        counted = []
        for number, person in enumerate(("", *PERSONS)):
            con.execute(f"CREATE TABLE t{number} AS {ROWS}{f' UNION ALL SELECT {person}' if person else ''}")
            con.execute("CHECKPOINT")
            query = f"SELECT {ASKED} FROM (SELECT TRY(CAST(({text}) AS DOUBLE)) AS x FROM t{number})"
            counted.append(con.execute(query).fetchall()[0])
    for found in counted[1:]:
        assert all(0 <= one - other <= 1 for one, other in zip(found, counted[0], strict=True)), (text, counted)


@pytest.mark.parametrize("text", OTHERS)
def test_what_statistics_may_shorten_is_not_whole(text: str) -> None:
    assert not whole(parse_one(text, dialect="duckdb"), TYPES)
