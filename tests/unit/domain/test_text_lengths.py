"""No text of a statement is longer than a bound times the texts of its row, whatever the row holds."""

import duckdb
import pytest
from sqlglot import parse_one

from duckdb_dp.domain import text_lengths
from duckdb_dp.errors import DPError

LONG = "x" * 300


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT count(*) FROM t WHERE replace(note, 'a', '{LONG}') = 'b'",
        "SELECT count(*) FROM t WHERE replace(replace(note, 'a', 'aaaaaaaaaaaaaaaaa'), 'a', 'aaaaaaaaaaaaaaaaa') = 'b'",
        "SELECT count(*) FROM t WHERE replace(note, 'a', note) = 'b'",
        f"SELECT count(*) FROM t WHERE regexp_replace(note, '', '{LONG}', 'g') = 'b'",
        "SELECT count(*) FROM t WHERE regexp_replace(note, 'a', note, 'g') = 'b'",
        "SELECT count(*) FROM (SELECT replace(n, 'a', 'aaaaaaaaaaaaaaaaa') AS m FROM (SELECT replace(note, 'a', "
        "'aaaaaaaaaaaaaaaaa') AS n FROM t)) WHERE m = 'b'",
        "WITH a AS (SELECT replace(note, 'a', 'aaaaaaaaaaaaaaaaa') AS n FROM t), "
        "b AS (SELECT replace(n, 'a', 'aaaaaaaaaaaaaaaaa') AS m FROM a) SELECT count(*) FROM b WHERE m = 'b'",
        "SELECT count(*) FROM (SELECT note || note || note || note AS a, a || a || a || a AS b, b || b || b || b AS c, "
        "c || c || c || c AS d, d || d AS e FROM t) WHERE e = 'b'",
        "SELECT concat(a, a, a, a) AS g, count(*) FROM (SELECT concat(b, b, b, b, b, b, b, b) AS a FROM (SELECT "
        "concat_ws('', note, note, note, note, note, note, note, note, note) AS b FROM t)) GROUP BY g",
    ],
)
def test_texts_that_grow_are_refused(text: str) -> None:
    with pytest.raises(DPError, match="may grow to more than 256 times"):
        text_lengths.check(parse_one(text, dialect="duckdb"))


@pytest.mark.parametrize(
    "expression",
    [
        "note || ', ' || other || ', ' || note",
        "replace(replace(replace(note, ' ', ''), '-', ''), 'a', 'bb')",
        "regexp_replace(note, '[0-9]+', '#', 'g')",
        "regexp_replace(note, '(.)', '\\1\\1\\1', 'g')",
        "lpad(upper(concat(note, other)), 20, '.')",
        "concat_ws('-', note, other, note)",
        "CASE WHEN note LIKE 'a%' THEN note || 'x' ELSE strftime(DATE '2020-01-01', '%A') END",
    ],
)
def test_what_people_write_is_read_and_the_bound_holds(expression: str) -> None:
    text_lengths.check(parse_one(f"SELECT {expression} AS x, count(*) FROM t GROUP BY x", dialect="duckdb"))
    factor = text_lengths.grown(parse_one(expression, dialect="duckdb"))
    for note in ("", "a", "a" * 1000, "1-a 2" * 200):
        row = duckdb.execute(f"SELECT length({expression}) FROM (SELECT ? AS note, '' AS other)", [note]).fetchone()
        assert row is not None
        assert row[0] <= factor * len(note) + len(expression)


def test_a_long_chain_of_texts_takes_no_long_time() -> None:
    """Each part is looked at once: of 2,000 parts each twice would take longer than there is time."""
    assert text_lengths.grown(parse_one("s" + " || 'a'" * 200, dialect="duckdb")) == 1.0
    assert text_lengths.grown(parse_one("s" + " || s" * 100, dialect="duckdb")) == 101.0
