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
        "CASE WHEN note LIKE 'a%' THEN note || 'x' ELSE strftime(DATE '2020-01-01', '%A, %d %B %Y, %c') END",
        "md5(note) || pi() || hash(other) || now()",
        "replace(replace(replace(replace(replace(replace(replace(note, 'ä', 'ae'), 'ö', 'oe'), 'ü', 'ue'), 'ß', 'ss'), 'Ä', 'Ae'), 'Ö', 'Oe'), 'Ü', 'Ue')",
    ],
)
def test_what_people_write_is_read_and_the_bound_holds(expression: str) -> None:
    text_lengths.check(parse_one(f"SELECT {expression} AS x, count(*) FROM t GROUP BY x", dialect="duckdb"))
    length = text_lengths.grown(parse_one(expression, dialect="duckdb"))
    for note in ("", "a", "a" * 1000, "1-a 2" * 200):
        row = duckdb.execute(f"SELECT length({expression}) FROM (SELECT ? AS note, '' AS other)", [note]).fetchone()
        assert row is not None
        assert row[0] <= length.times * len(note) + length.written


@pytest.mark.parametrize(
    "text",
    [
        "SELECT note || other AS a, other || note AS b, note || note AS c, a || b || c AS d, count(*) FROM t WHERE a || b || c = d GROUP BY ALL",
        "SELECT replace(note, 'ö', 'oe') AS note, replace(mail, '@', ' at ') AS mail, replace(url, '/', ' / ') AS url, replace(html, '&', "
        "'and') AS html FROM t WHERE note || mail || url = html",
        f"WITH {', '.join(f'c{i} AS (SELECT w || other AS w, other FROM c{i - 1})' if i else 'c0 AS (SELECT note AS w, other FROM t)' for i in range(7))} "
        "SELECT count(*) FROM c6 WHERE w = 'a'",
    ],
)
def test_texts_beside_each_other_do_not_multiply(text: str) -> None:
    text_lengths.check(parse_one(text, dialect="duckdb"))


def test_a_long_chain_of_texts_takes_no_long_time() -> None:
    """Each part is looked at once: of 2,000 parts each twice would take longer than there is time."""
    assert text_lengths.grown(parse_one("s" + " || 'a'" * 200, dialect="duckdb")) == text_lengths.Length(1.0, 200.0)
    assert text_lengths.grown(parse_one("s" + " || s" * 100, dialect="duckdb")) == text_lengths.Length(101.0, 0.0)


WIDE = "a" * 1_000


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT count(*) FROM t WHERE concat({', '.join([repr(WIDE)] * 5)}) = note",
        f"SELECT count(*) FROM (SELECT CASE WHEN note = 'b' THEN '{WIDE}' ELSE '' END AS m FROM t) WHERE concat(m, m, m, m, m) = 'b'",
        f"WITH a AS (SELECT coalesce(note, '{WIDE}') AS n FROM t) SELECT count(*) FROM a WHERE n || n || n || n || n = 'b'",
        f"SELECT '{WIDE}' AS a, a || a || a || a || a AS g, count(*) FROM t GROUP BY g",
        f"SELECT count(*) FROM t WHERE concat_ws('{WIDE}', 'a', 'b', 'c', 'd', note) = 'b'",
        f"SELECT count(*) FROM t WHERE replace(CASE WHEN note = 'b' THEN '{WIDE}' END, 'a', 'aaaaaaa') = 'b'",
        f"SELECT count(*) FROM t WHERE regexp_replace('{WIDE}', 'a', 'aaaaaaa', 'g') = note",
        "SELECT count(*) FROM (SELECT lpad('', 999, note) AS m FROM t) WHERE concat(m, m, m, m, m) = 'b'",
        f"SELECT count(*) FROM t WHERE concat({', '.join(['1' * 38] * 120)}) = note",
        "SELECT count(*) FROM t WHERE concat(" + "md5(''), " * 120 + "'') = note",
        f"SELECT count(*) FROM t WHERE strftime(day, '{'%c' * 300}') = note",
    ],
)
def test_texts_that_a_statement_writes_are_short(text: str) -> None:
    """A row of which a condition holds would take time and memory for what others do not."""
    with pytest.raises(DPError, match="more than 4,096 characters into one text"):
        text_lengths.check(parse_one(text, dialect="duckdb"))


CHAIN = " || ".join(["c"] * 15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"SELECT count(*) FROM (SELECT {CHAIN.replace('c', 'note')} AS c FROM t) WHERE md5({CHAIN}) = 'q'",
            "times as long as those of a row",
        ),
        (
            f"SELECT count(*) FROM (SELECT {CHAIN.replace('c', 'note')} AS c FROM t) GROUP BY {CHAIN}",
            "times as long as those of a row",
        ),
        (
            "SELECT count(*) FROM t WHERE " + " OR ".join(["md5(lpad(note, 999, 'x')) = 'q'"] * 70),
            "139,860 characters more",
        ),
        (
            f"WITH a AS (SELECT {CHAIN.replace('c', 'note')} AS c FROM t), b AS (SELECT {CHAIN} AS c FROM a) SELECT count(*) FROM b",
            "times as long",
        ),
    ],
)
def test_many_texts_of_one_row_are_refused(text: str, message: str) -> None:
    """They are kept of 2,048 rows at once: of 300 characters and 2,000 times their length that is more than a GB for each thread."""
    with pytest.raises(DPError, match=message):
        text_lengths.check(parse_one(text, dialect="duckdb"))


def test_texts_in_rows_that_joins_make_count_in_each() -> None:
    select = parse_one("SELECT count(*) FROM t JOIN u ON true WHERE md5(lower(note) || n) = 'q'", dialect="duckdb")
    text_lengths.check(select, 1_000)
    with pytest.raises(DPError, match=r"in each of 100,000 rows that joins make of one.*or join fewer rows"):
        text_lengths.check(select, 100_000)
    text_lengths.check(
        parse_one("SELECT count(*) FROM t JOIN u ON n > m WHERE note = 'q' AND n + m > 2", dialect="duckdb"), 100_000
    )
