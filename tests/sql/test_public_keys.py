"""Links to a public table of few rows say which row they go to, not only what the row is like."""

from unittest.mock import patch

import pytest

import duckdb_dp.testing
from duckdb_dp.sql import public_domains
from tests.conftest import Loaded

TABLES = """
CREATE TABLE users (uid INTEGER PRIMARY KEY, sex VARCHAR);
INSERT INTO users SELECT i, CASE WHEN i % 2 = 0 THEN 'F' ELSE 'M' END FROM range(1000) r(i);
CREATE TABLE clubs (club {type} PRIMARY KEY, kind INTEGER); INSERT INTO clubs SELECT {key}, 1 + i // 4 FROM range({clubs}) r(i);
CREATE TABLE joins (uid INTEGER REFERENCES users (uid), club {type} REFERENCES clubs (club), PRIMARY KEY (uid, club));
INSERT INTO joins SELECT uid, {key} FROM (SELECT i AS uid, unnest(CASE WHEN i % 2 = 0 THEN [0, 2, 4, 6] ELSE [1, 3, 5, 7] END) AS i FROM range(1000) r(i));
CALL dp_protect(['users', 'joins'], unit := 'users.uid', max_rows := {{'joins': 4}}, rho := 1e6);
CALL dp_public('clubs'); CALL dp_attribute('users', 'sex', "values" := ['F', 'M']);
"""
PAIRS = "SELECT sex, club, count(*) / sum(count(*)) OVER () FROM {0}.users JOIN {0}.joins USING (uid) GROUP BY ALL"
MADE = "CALL dp_synthesize_database('main', target := 'syn', tables := ['users', 'joins'], rho := {})"


def tables(found: Loaded, type_: str = "INTEGER", clubs: int = 8) -> None:
    found(TABLES.format(type=type_, key="i" if type_ == "INTEGER" else "'club ' || i", clubs=clubs))


def apart(found: Loaded) -> float:
    """The L1 distance of sexes and clubs: clubs of one kind are joined by one sex each."""
    real, made = ({row[:2]: float(row[2]) for row in found(PAIRS.format(name))} for name in ("main", "syn"))
    return sum(abs(real.get(key, 0) - made.get(key, 0)) for key in real.keys() | made.keys())


@pytest.mark.parametrize("type_", ["INTEGER", "VARCHAR"])
def test_who_joins_which_club_is_kept(exact: Loaded, type_: str) -> None:
    tables(exact, type_)
    duckdb_dp.testing.load(exact.connection, exact.folder, seed=1)
    exact(MADE.format(1))
    assert apart(exact) < 0.2


def test_larger_tables_are_known_by_their_columns_alone(exact: Loaded) -> None:
    """As without keys: both sexes join all clubs of a kind."""
    tables(exact, clubs=65)
    with patch.object(public_domains, "small_key", side_effect=public_domains.small_key) as asked:
        exact(MADE.format(1))
    assert asked.called
    assert apart(exact) > 0.5


@pytest.mark.slow
def test_links_from_before_are_paid_for(exact: Loaded) -> None:
    tables(exact)
    with patch.object(public_domains, "small_key", lambda *_: ()):
        exact(MADE.format(1))
    before = exact("FROM syn.joins ORDER BY ALL")
    charges = exact.charges()
    exact("DROP SCHEMA syn CASCADE")
    exact(MADE.format(1))
    assert exact("FROM syn.joins ORDER BY ALL") == before
    assert exact.charges() == charges
    links = "FROM dp_links('joins', synthetic := {{'users': 'syn.users', 'clubs': 'syn.clubs'}}, rho := 2{})"
    with patch.object(public_domains, "small_key", lambda *_: ()):
        before = exact(links.format(""))
    charges = exact.charges()
    assert sorted(exact(links.format(""))) == sorted(before)
    assert exact.charges() == charges
    exact(links.format(", fresh := true"))
    assert exact.charges() == charges + 1


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "column",
    [
        "['a', 'A', 'b'][1 + club % 3] COLLATE NOCASE",
        "CASE WHEN club % 3 = 0 THEN DATE 'infinity' ELSE DATE '2020-01-01' END",
        "CASE WHEN club % 3 = 0 THEN TIMESTAMP '-infinity' ELSE TIMESTAMP '2020-01-01' + to_days(club) END",
        "CASE WHEN club % 3 = 0 THEN NULL ELSE DATE 'infinity' END",
    ],
)
def test_public_values_that_are_hard_to_declare(exact: Loaded, column: str) -> None:
    """Texts that a collation takes for one, and dates without end: links were refused after the rows were charged."""
    exact(
        f"CREATE TABLE odd AS SELECT club, {column} AS odd FROM range(8) r(club); ALTER TABLE odd ADD PRIMARY KEY (club);"
        "CREATE TABLE users AS SELECT i AS uid, i % 2 AS sex FROM range(1000) r(i);"
        "CREATE TABLE visits AS SELECT i // 4 AS uid, i % 8 AS club, i % 3 AS n FROM range(4000) r(i); CALL dp_public('odd');"
        "CALL dp_link('visits', \"references\" := {'uid': 'users.uid', 'club': 'odd.club'});"
        "CALL dp_protect(['users', 'visits'], unit := 'users.uid', max_rows := {'visits': 4}, rho := 1e6);"
        "CALL dp_attribute('users', 'sex', low := 0, high := 1); CALL dp_attribute('visits', 'n', low := 0, high := 2)"
    )
    exact("CALL dp_synthesize_database('main', target := 'syn', tables := ['users', 'visits'], rho := 1)")
    assert exact("SELECT count(*) > 3000 FROM syn.visits") == [(True,)]
