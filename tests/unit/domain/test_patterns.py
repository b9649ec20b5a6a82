"""No regular expression of a statement works for long on the text of a row."""

import re

import pytest
from sqlglot import parse_one

from duckdb_dp.domain import patterns
from duckdb_dp.errors import DPError


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("abc", 3),
        ("[a-z]+@[^.]*", 5),
        (r"\d{1,3}\.\d{1,3}", 7),
        ("(a|b){10}", 40),
        ("(((a{0,10}){0,10}){0,9})x", 1_001),
        ("(?i)(?:ab){3,}", 9),
        (r"[]{9}\]]{7}", 7),
        (r"\(\{5}", 4),
        ("a{2}{3}", 6),
        (r"\p{L}{3}\PN", 400),
        ("[[:alpha:]]{2}", 200),
        ("(?P<x>.{0,90})(?<y>b){7}", 105),
        ("((((", 0),
        ("", 0),
    ],
)
def test_counted_repetitions_are_written_out(pattern: str, size: int) -> None:
    assert patterns.steps(pattern) == size


@pytest.mark.parametrize("pattern", ["a{%d}", "(a{%d})", "(?:b|a{%d})", "(a|b){%d}", "[ab]{%d}", "(a{10}b){%d}"])
def test_the_size_is_no_less_than_that_of_the_text_it_needs(pattern: str) -> None:
    for count in (1, 7, 90):
        written = pattern % count
        found = next(
            text for text in ("a" * count, "a" * 10 * count, ("a" * 10 + "b") * count) if re.fullmatch(written, text)
        )
        assert patterns.steps(written) >= len(found)


@pytest.mark.parametrize(
    "condition",
    [
        "regexp_matches(note, '^(?i)re-?admitted.*[0-9]{4}-[0-9]{2}$')",
        "note ~ '.*(ab|cd)+'",
        r"regexp_replace(note, '<[^>]*>', '', 'g') = regexp_replace(note, '\s+', ' ', 'g')",
        "regexp_full_match(note, '([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}')",
        "note SIMILAR TO '(a|b)*'",
        r"regexp_matches(note, '^https?://(www\.)?[-a-zA-Z0-9@:%._+~#=]{1,256}\.[a-zA-Z0-9()]{1,6}\b([-a-zA-Z0-9()@:%_+.~#?&/=]*)$')",
        "regexp_replace(note, '<(script|style|head|title|noscript|iframe)[^>]*>.*?</(script|style|head|title|noscript|iframe)>', '', 'g') = ''",
    ],
)
def test_what_people_write_is_read(condition: str) -> None:
    patterns.check(parse_one(f"SELECT count(*) FROM t WHERE {condition}", dialect="duckdb"))


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("regexp_matches(note, other)", "write the regular expression as a literal"),
        ("note ~ ('a' || other)", "write the regular expression as a literal"),
        (
            "regexp_extract(note, CASE WHEN other = 'a' THEN '(a{99}){99}' ELSE 'b' END) = 'a'",
            "write the regular expression as a literal",
        ),
        (r"regexp_matches(note, '(\Q[\E)?(.{0,999})b]')", "a . before each sign"),
        ("note SIMILAR TO other", "write the regular expression as a literal"),
        ("regexp_replace(note, other, '') = ''", "write the regular expression as a literal"),
        ("regexp_matches(note, '((a{0,50}){0,50}){0,50}x')", "steps for each character"),
        (" OR ".join(["regexp_matches(note, '(a{0,50}){0,50}x')"] * 9), "steps for each character"),
        (" OR ".join(["regexp_replace(note, '.*z|a', 'y', 'g') = 'b'"] * 90), "steps for each character"),
    ],
)
def test_what_a_row_could_make_slow_is_refused(condition: str, says: str) -> None:
    with pytest.raises(DPError, match=says):
        patterns.check(parse_one(f"SELECT count(*) FROM t WHERE {condition}", dialect="duckdb"))
