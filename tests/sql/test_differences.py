"""Synthetic rows keep how far two dates or times of a row are apart, and how that depends on other columns."""

import itertools
from unittest.mock import patch

import pytest

import duckdb_dp.testing
from duckdb_dp.sql import ordered_columns
from tests.conftest import Loaded

MONTHS = "low := '2022-01-01', high := '2024-04-01', step := INTERVAL 1 MONTH"
TYPES = {
    "DATE": ("DATE '2022-01-01' + ((i * 37) % 700)::INTEGER", "to_days(CASE kind WHEN 'a' THEN 0 WHEN 'b' THEN 3 ELSE 20 + i % 7 END)", MONTHS),
    "TIMESTAMP": ("TIMESTAMP '2022-01-01' + to_hours((i * 37) % 16000)", "to_hours(CASE kind WHEN 'a' THEN 0 WHEN 'b' THEN 3 ELSE 200 + i % 70 END)", MONTHS),
    "TIMESTAMP_S": ("TIMESTAMP '2022-01-01' + to_hours((i * 37) % 16000)", "to_seconds(CASE kind WHEN 'a' THEN 0 WHEN 'b' THEN 3 ELSE 9000 + i % 70 END)", MONTHS),
    "TIMESTAMP_NS": ("TIMESTAMP '2022-01-01' + to_hours((i * 37) % 16000)", "to_hours(CASE kind WHEN 'a' THEN 0 WHEN 'b' THEN 3 ELSE 200 + i % 70 END)", MONTHS),
    "TIME": ("TIME '08:00:00' + to_minutes((i * 37) % 400)", "to_minutes(CASE kind WHEN 'a' THEN 0 WHEN 'b' THEN 7 ELSE 90 + i % 7 END)", "low := '08:00:00', high := '18:00:00', step := INTERVAL 1 HOUR"),
}  # fmt: skip
DECLARED = {"bins": "", "nulls": ", nulls := true", "other": ", other := true, nulls := true"}
TABLE = """
CREATE TABLE stays (kind VARCHAR, first {type}, last {type}, CHECK (last >= first));
INSERT INTO stays SELECT kind, f, CASE WHEN {empty} THEN NULL ELSE (f + {later})::{type} END
FROM (SELECT i, ['a', 'b', 'c'][1 + i % 3] AS kind, ({first})::{type} AS f FROM range(3000) r(i));
CALL dp_protect('stays', rho := 1e6); CALL dp_attribute('stays', 'kind', "values" := ['a', 'b', 'c']);
CALL dp_attribute('stays', 'first', {domain}); CALL dp_attribute('stays', 'last', {domain}{more})
"""
APART = """SELECT kind, last IS NULL, floor(log2(greatest(1, (epoch(last) - epoch(first)) / {unit}))), count(*) / (SELECT count(*) FROM {table})
FROM {table} GROUP BY ALL"""


def stays(found: Loaded, type_: str, declared: str = "bins", domain: str | None = None) -> None:
    first, later, usual = TYPES[type_]
    empty = "false" if declared == "bins" else "i % 10 = 0"
    found(
        TABLE.format(type=type_, first=first, later=later, domain=domain or usual, more=DECLARED[declared], empty=empty)
    )


def noisy(found: Loaded, seed: int = 1) -> None:
    duckdb_dp.testing.load(found.connection, found.folder, seed=seed)


def distance(found: Loaded, unit: int, table: str = "made") -> float:
    """The L1 distance of kinds and classes of differences."""
    real, drawn = (
        {row[:-1]: row[-1] for row in found(APART.format(unit=unit, table=name))} for name in ("stays", table)
    )
    return sum(abs(real.get(key, 0) - drawn.get(key, 0)) for key in real.keys() | drawn.keys())


@pytest.mark.slow
@pytest.mark.some(2)
@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("type_", TYPES)
def test_lengths_of_stay_depend_on_the_kind(exact: Loaded, type_: str, declared: str) -> None:
    stays(exact, type_, declared)
    noisy(exact)
    exact("CREATE TABLE made AS FROM dp_synthesize('stays', rho := 10)")
    assert exact("SELECT count(*) FROM made WHERE last < first") == [(0,)]
    assert exact("SELECT count(*) > 0 FROM dp_quality('stays', 'made', rho := 1)") == [(True,)]
    assert exact("FROM dp_release(1)")
    assert distance(exact, 86400 if type_ == "DATE" else 1) < 0.15
    ((real, drawn),) = exact("SELECT (SELECT count(last) FROM stays), (SELECT count(last) FROM made)")
    assert abs(real - drawn) < 90


def test_lengths_of_days_by_day(exact: Loaded) -> None:
    """Each day is a value; the pair of both has half a million cells, and the difference twenty."""
    stays(exact, "DATE", domain="low := '2022-01-01', high := '2024-03-31'")
    noisy(exact)
    exact("CREATE TABLE made AS FROM dp_synthesize('stays', rho := 10)")
    assert exact("SELECT count(*) FROM made WHERE last < first") == [(0,)]
    assert distance(exact, 86400) < 0.15


@pytest.mark.slow
def test_noise_makes_no_long_stays(exact: Loaded) -> None:
    """The mean, which one stay of a year would spoil, of three seeds."""
    stays(exact, "DATE", "nulls")
    ((real,),) = exact("SELECT avg(last - first) FROM stays")
    for seed in range(3):
        noisy(exact, seed)
        ((drawn,),) = exact("SELECT avg(last - first) FROM dp_synthesize('stays', rho := 0.1)")
        assert abs(drawn - real) < 1.5


def test_links_keep_how_long_they_last(exact: Loaded) -> None:
    exact(f"""CREATE TABLE users AS SELECT i AS uid, i % 2 AS sex FROM range(300) r(i); CREATE TABLE books AS SELECT i AS book FROM range(20) r(i);
        CREATE TABLE loans AS SELECT i % 300 AS uid, i // 300 AS book, ['a', 'b', 'c'][1 + i % 3] AS kind, DATE '2022-01-01' + (i * 37 % 700)::INTEGER AS first,
        first + (CASE i % 3 WHEN 0 THEN 0 WHEN 1 THEN 3 ELSE 20 + i % 7 END)::INTEGER AS last FROM range(3000) r(i);
        CREATE TABLE stays AS FROM loans;
        CALL dp_link('loans', "references" := {{'uid': 'users.uid', 'book': 'books.book'}}); CALL dp_public('books');
        CALL dp_protect(['users', 'loans'], unit := 'users.uid', rho := 1e6, max_rows := {{'loans': 10}});
        CALL dp_attribute('users', 'sex', low := 0, high := 1); CALL dp_attribute('loans', 'kind', "values" := ['a', 'b', 'c']);
        CALL dp_attribute('loans', 'first', {MONTHS}); CALL dp_attribute('loans', 'last', {MONTHS}, at_least := 'first')""")
    steps = exact("CALL dp_synthesize_database('main', target := 'syn', tables := ['users', 'loans'], rho := 100)")
    assert "how far apart is measured too: last - first" in steps[-1][-1]
    assert exact("SELECT count(*) FILTER (last < first), count(*) > 2500 FROM syn.loans") == [(0, True)]
    assert distance(exact, 86400, "syn.loans") < 0.3
    scores = exact(
        "FROM dp_quality('loans', 'syn.loans', synthetic := {'users': 'syn.users', 'books': 'syn.books'}, rho := 1)"
    )
    assert scores
    assert "last - first" not in str(scores)
    ((number,),) = exact("SELECT max(release) FROM dp_releases() WHERE function = 'dp_links'")
    assert exact(f"SELECT count(*) FROM dp_release({number}) WHERE last < first") == [(0,)]


def test_rows_from_before_are_paid_for(exact: Loaded) -> None:
    stays(exact, "DATE")
    with patch.object(ordered_columns, "looked_at", lambda *_: []):
        before = exact("SELECT * FROM dp_synthesize('stays', rho := 1) ORDER BY ALL")
    charges = exact.charges()
    assert exact("SELECT * FROM dp_synthesize('stays', rho := 1) ORDER BY ALL") == before
    assert exact.charges() == charges
    exact("FROM dp_synthesize('stays', rho := 1, fresh := true)")
    assert exact.charges() == charges + 1


def test_what_is_measured_and_what_could_be_said_is_explained(exact: Loaded) -> None:
    stays(exact, "DATE")
    explained = "CALL dp_explain('stays', {'synthesize': 'all'}, rho := 1)"
    assert "last never below first; how far apart is measured too: last - first" in exact(explained)[0][-1]
    exact("CREATE TABLE free AS FROM stays; CALL dp_protect('free', rho := 1e6)")
    for column, more in (("first", ""), ("last", "")):
        exact(f"CALL dp_attribute('free', '{column}', {MONTHS}{more})")
    said = exact("CALL dp_explain('free', {'synthesize': 'all'}, rho := 1)")[0][-1]
    assert "if last is never below first, at_least := 'first' in its declaration keeps how far they are apart" in said
    exact(f"CALL dp_attribute('free', 'last', {MONTHS}, at_least := 'first')")
    said = exact("CALL dp_explain('free', {'synthesize': 'all'}, rho := 1)")[0][-1]
    assert "how far apart is measured too: last - first" in said
    assert "if last" not in said


@pytest.mark.some(2)
@pytest.mark.parametrize("order", list(itertools.permutations(["b >= a", "c >= b", "c >= a"])))
def test_pairs_that_others_imply_change_no_difference(exact: Loaded, order: tuple[str, ...]) -> None:
    """In whatever order the conditions are written."""
    checks = ", ".join(f"CHECK ({one})" for one in order)
    exact(f"CREATE TABLE chain (a DATE, b DATE, c DATE, {checks})")
    exact("""INSERT INTO chain SELECT d, d + (i % 9)::INTEGER, d + (i % 9)::INTEGER + 2
        FROM (SELECT i, DATE '2022-01-01' + (i * 37 % 500)::INTEGER AS d FROM range(2000) r(i))""")
    exact("CALL dp_protect('chain', rho := 1e6)")
    for name in "abc":
        exact(f"CALL dp_attribute('chain', '{name}', {MONTHS})")
    noisy(exact)
    exact("CREATE TABLE made AS FROM dp_synthesize('chain', rho := 10)")
    ((between, wrong),) = exact(
        "SELECT avg((c - b BETWEEN 1 AND 3)::INTEGER), count_if(b < a OR c < b OR c < a) FROM made"
    )
    assert wrong == 0
    assert between > 0.95
