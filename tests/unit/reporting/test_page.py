"""The page of a release: sound HTML that needs nothing else, with everything that it must say."""

import base64
import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp.errors import DPError
from duckdb_dp.reporting import report
from duckdb_dp.reporting.answers import Answer, Rows
from duckdb_dp.reporting.facts import Facts, gather
from duckdb_dp.reporting.page import render

NAMES = ["overview", "weighted", "large", "ranges", "conditions", "selects"]
VOID = {"meta", "br", "img", "link", "input", "hr"}
HOSTILE = "<script>alert('x')</script>&\"</style>"


class Sound(HTMLParser):
    """Checks a page while it reads it: closed tags, unique ids, links that lead somewhere, nothing from outside."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.anchors: list[str] = []
        self.headings: list[int] = []
        self.captions = self.tables = 0
        self.seen: set[str] = set()
        self.text: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.seen.add(tag)
        found = {name: value or "" for name, value in attrs}
        assert len(found) == len(attrs), f"an attribute twice in <{tag}>"
        self.attributes += [(tag, name, value) for name, value in found.items()]
        if "id" in found:
            self.ids.append(found["id"])
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        self.tables += tag == "table"
        self.captions += tag == "caption"
        if tag == "th":
            assert found.get("scope") in ("row", "col")
        if tag == "svg":
            assert found.get("aria-hidden") == "true" or (found.get("role") == "img" and found.get("aria-label"))
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            if name in found:
                assert found[name].startswith(("#", "data:text/csv")), found[name][:80]
                if found[name].startswith("#"):
                    self.anchors.append(found[name][1:])
        assert not [name for name in found if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check(page: str) -> Sound:
    """A page that opens anywhere, and that everybody can read."""
    assert page.startswith('<!doctype html>\n<html lang="en">')
    found = Sound(page)
    assert found.seen.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "form", "base"})
    assert len(set(found.ids)) == len(found.ids)
    assert set(found.anchors) <= set(found.ids)
    assert found.anchors
    assert found.headings[0] == 1
    assert found.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(found.headings, found.headings[1:], strict=False))
    assert found.tables == found.captions
    assert ("meta", "name", "viewport") in found.attributes
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style
    assert style.count("{") == style.count("}")
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in page
    assert "{{" not in page
    assert not re.search(r"\b(None|nan|inf|Undefined)\b", "".join(found.text))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_pages_are_sound(pages: Any, name: str) -> None:
    page = pages(name)
    check(page)
    assert len(page) < 1_500_000


def test_it_says_everything(pages: Any) -> None:
    text = " ".join("".join(check(pages("overview")).text).split())
    for words in (
        "Differentially private statistics of adult",
        "age × hours_per_week",
        "FROM dp_release('overview');",
        "epsilon := 0.5, delta := 1e-9, mechanism := 'residual', objective := 'max', release := 'overview'",
        "census.main.adult",
        "bins with the edges 0, 18, 25, 35, 45, 55, 65, 120",
        "White, Black; everything else as “other”",
        "whole numbers 1 to 99",
        "Every row of adult is protected by itself",
        "add or remove one row",
        "ε = 0.5, δ = 1e-9",
        "ResidualPlanner",
        "% is left",
        "95 % interval",
        "residual",
        f"duckdb_dp {duckdb_dp.__version__}",
    ):
        assert words in text, words
    assert "NOT PRIVATE" not in text


def test_it_shows_the_stored_answers(adult: duckdb.DuckDBPyConnection, pages: Any) -> None:
    page = pages("overview")
    (encoded,) = re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]*)"', page)
    rows = list(csv.reader(io.StringIO(base64.b64decode(encoded).decode())))
    stored = adult.execute("FROM dp_release('overview')").fetchall()
    assert len(rows) == len(stored) + 1
    assert [float(row[5]) for row in rows[1:]] == [row[5] for row in stored]
    (count, stddev) = adult.execute(
        "SELECT count, stddev FROM dp_release('overview') WHERE marginal = 'age,sex' AND age = '[25, 35)' AND sex = 'Male'"
    ).fetchone()  # type: ignore[misc]
    shown = re.search(
        r'<th scope="row">\[25, 35\)</th><th scope="row">Male</th><td class="num">([\d,]+)</td><td class="num half">(\d+)<',
        page,
    )
    assert shown is not None
    assert abs(float(shown[1].replace(",", "")) - count) <= 0.5
    assert abs(float(shown[2]) - 1.96 * stddev) <= 0.51


def test_reports_cost_nothing(adult: duckdb.DuckDBPyConnection) -> None:
    before = adult.execute("FROM dp_ledger()").fetchall()
    report(adult, "overview")
    assert adult.execute("FROM dp_ledger()").fetchall() == before


def test_names_come_out_as_text(hostile: duckdb.DuckDBPyConnection) -> None:
    page = report(hostile, HOSTILE).html
    found = check(page)
    assert "".join(found.text).count(HOSTILE) > 5
    assert "<script" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert page.count("</style>") == 1
    text = " ".join("".join(found.text).split())
    assert "Every <i>unit in" in text
    assert "all of its up to 3 rows" in text
    assert "NULL" in text


def test_in_a_notebook_it_has_a_frame_of_its_own(hostile: duckdb.DuckDBPyConnection) -> None:
    page = report(hostile, 1)
    found = Sound(page._repr_html_())
    (source,) = [value for tag, name, value in found.attributes if name == "srcdoc"]
    assert source == page.html
    assert found.seen == {"iframe"}
    assert len(repr(page)) < 100


@pytest.mark.slow
def test_it_is_written_where_it_is_asked(adult: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    page = report(adult, 1, tmp_path / "page.html")
    assert page.path == tmp_path / "page.html"
    assert page.path.read_text(encoding="utf-8") == page.html
    assert report(adult, "1").html == page.html
    with pytest.raises(DPError, match="cannot be written"):
        report(adult, 1, tmp_path / "nowhere" / "page.html")


@pytest.mark.parametrize(
    ("name", "said"), [("nothing", "there is no release 'nothing'"), (99, "there is no release 99"), (None, "is NULL")]
)
def test_unknown_releases(adult: duckdb.DuckDBPyConnection, name: Any, said: str) -> None:
    with pytest.raises(DPError, match=said):
        report(adult, name)


def test_an_unloaded_connection_is_told_how_to_load() -> None:
    with duckdb.connect() as con, pytest.raises(DPError, match=re.escape("duckdb_dp.load(con)")):
        report(con, "x")


def test_seeded_releases_are_loudly_not_private(db: Any) -> None:
    db("FROM dp_marginals('people', ['sex'], mu := 1, release := 'test')")
    page = report(db.connection, "test").html
    text = " ".join("".join(check(page).text).split())
    assert text.startswith("NOT PRIVATE")
    assert text.count("NOT PRIVATE") >= 5
    assert "Differentially private statistics" not in text
    assert "operating system" not in text


# Read in another way

PROCESSED = ("nonnegative", "fitted")


@pytest.mark.parametrize("kind", PROCESSED)
def test_counts_can_be_read_post_processed(adult: duckdb.DuckDBPyConnection, kind: str) -> None:
    page = duckdb_dp.report(adult, "overview", postprocess=kind).html
    found = check(page)
    text = " ".join("".join(found.text).split())
    assert "The answers were post-processed" in text
    assert "Counts are unbiased" not in text
    assert "before post-processing is" in text
    assert f"objective := 'max', release := 'overview', postprocess := '{kind}');" in text
    call = f"FROM dp_release('overview', postprocess := '{kind}');"
    assert call in text
    (encoded,) = re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]*)"', page)
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(encoded).decode())))
    place = [column[0] for column in adult.execute(call).description or ()].index("count")
    assert [float(row["count"]) for row in rows] == [row[place] for row in adult.fetchall()]
    assert all(row["stddev"] == "" for row in rows)


@pytest.mark.slow
def test_as_they_are_is_the_same_as_unbiased(adult: duckdb.DuckDBPyConnection) -> None:
    assert report(adult, "overview", postprocess="unbiased").html == report(adult, "overview").html


@pytest.mark.slow
def test_pairs_is_fitted_unless_it_is_asked_otherwise(db: Any) -> None:
    db("FROM dp_marginals('people', ['sex', 'race'], mu := 1, mechanism := 'neyman', release := 'pairs')")
    texts = {
        kind: " ".join("".join(check(report(db.connection, "pairs", postprocess=kind).html).text).split())
        for kind in (None, "fitted", "unbiased")
    }
    assert texts[None] == texts["fitted"]
    assert "FROM dp_release('pairs');" in texts[None]
    assert "were post-processed" in texts[None]
    assert "FROM dp_release('pairs', postprocess := 'unbiased');" in texts["unbiased"]
    assert "Counts are unbiased" in texts["unbiased"]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [("overview", "rounded", "postprocess is 'rounded'; use 'unbiased'"), ("ranges", "fitted", "is for marginals")],
)
def test_what_cannot_be_read_so(adult: duckdb.DuckDBPyConnection, name: str, kind: str, said: str) -> None:
    with pytest.raises(DPError, match=f"report: .*{said}"):
        report(adult, name, postprocess=kind)


# Releases that are no answers

SYNTHETIC = """
CREATE TABLE users AS SELECT i AS user_id, i % 3 AS age FROM range(60) t(i);
CREATE TABLE likes AS SELECT i % 60 AS user_id, i * 7 % 60 AS friend FROM range(150) t(i);
CALL dp_protect('users', rho := 9); CALL dp_attribute('users', 'age', low := 0, high := 2);
CALL dp_protect('likes', unit := 'user_id', max_rows := 4, rho := 9);
CALL dp_link('likes', "references" := {'user_id': 'users.user_id', 'friend': 'users.user_id'});
CALL dp_public('users', links := 'likes');
CREATE TABLE users_syn AS FROM dp_synthesize('users', rho := 1, key := 'user_id', release := 'rows');
CREATE TABLE likes_syn AS FROM dp_links('likes', synthetic := {'user_id': 'users_syn', 'friend': 'users_syn'}, rho := 1,
    release := 'links');
FROM dp_quality('users', 'users_syn', rho := 1, release := 'quality');
"""


@pytest.mark.slow
def test_synthetic_rows_have_pages_too(db: Any) -> None:
    for statement in db.connection.extract_statements(SYNTHETIC):
        db(statement)
    for name, said in (
        ("rows", "Synthetic rows, with dp_synthesize."),
        ("links", "Links between the rows of two synthetic tables, with dp_links."),
        ("quality", "Every error is a true distance"),
    ):
        text = " ".join("".join(check(report(db.connection, name).html).text).split())
        assert said in text
        assert f"FROM dp_release('{name}');" in text
        with pytest.raises(DPError, match="postprocess is for counts"):
            report(db.connection, name, postprocess="fitted")


@pytest.fixture
def facts(adult: duckdb.DuckDBPyConnection) -> Facts:
    return gather(adult, "overview")


def test_answers_without_errors_say_so(facts: Facts) -> None:
    sets = [
        replace(
            one, answers=[Answer(labels=a.labels, value=a.value, stddev=None, low=None, high=None) for a in one.answers]
        )
        for one in facts.rows.sets
    ]
    page = render(replace(facts, rows=replace(facts.rows, sets=sets), plan=None))
    text = " ".join("".join(check(page).text).split())
    assert "Their error is not known" in text
    assert "there is no certificate" in text
    assert "±" not in text.split("How to read them")[0].split("Answers", 1)[1]
    assert 'class="mark-interval"' not in page
    assert 'class="band"' not in page


def test_functions_of_other_versions_are_shown_as_they_are(facts: Facts) -> None:
    rows = Rows(columns=("id", "name"), sample=[(1, "<b>"), (None, "x")], total=None, sets=[], further=[])
    release = {**facts.release, "function": "dp_later", "request": '{"function":"dp_later","rows":"<5>"}'}
    charge = {**facts.charge, "function": "dp_later", "mechanism": "later", "epsilon": None, "delta": None, "mu": None}
    page = render(
        replace(
            facts,
            rows=rows,
            request=None,
            plan=None,
            release=release,
            charge=charge,
            arguments={"function": "dp_later"},
        )
    )
    text = " ".join("".join(check(page).text).split())
    assert '{"function":"dp_later","rows":"<5>"}' in text
    assert "no rows of the data" in text
    assert "μ² = " in text
    assert "later" in text


@pytest.mark.slow
def test_long_releases_make_short_pages(
    adult: duckdb.DuckDBPyConnection, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duckdb_dp.reporting.answers.DRAWN", 2)
    monkeypatch.setattr("duckdb_dp.reporting.answers.SAVED", 50)
    page = report(adult, "overview").html
    text = " ".join("".join(check(page).text).split())
    assert (
        "part of the release and not drawn here: total (1); age × hours_per_week (693); age × sex × race (42)" in text
    )
    assert "Download the first 50 rows as CSV" in text
    monkeypatch.setattr("duckdb_dp.reporting.page.CELLS", 5)
    assert "hours_per_week (99); total (1)" in report(adult, "overview").html


@pytest.mark.slow
def test_sums_and_averages_of_bins_say_that_they_take_middles(db: Any) -> None:
    db(
        "FROM dp_sql('SELECT avg(age) AS a, sum(race) AS r, count(age) AS n FROM people', mechanism := 'hdmm', mu := 1, release := 'bins')"
    )
    db("FROM dp_sql('SELECT avg(race) AS r FROM people', mechanism := 'hdmm', mu := 1, release := 'single')")
    text = {name: " ".join(report(db.connection, name).html.split()) for name in ("bins", "single")}
    assert "Sums and averages of age</strong> take the middle of its bin for every value" in text["bins"]
    assert "nor of the middles of bins" in text["bins"]
    assert "the true one plus random noise" not in text["bins"]
    assert "the middle of its bin" not in text["single"]


@pytest.mark.slow
def test_a_second_name_finds_the_same_page(db: Any) -> None:
    for name in ("one", "two"):
        db(f"FROM dp_marginals('people', ['sex'], mu := 1, release := '{name}')")
    assert report(db.connection, "one").html == report(db.connection, "two").html
