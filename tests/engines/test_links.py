"""Links that another engine joins and counts, and scores of its tables: as DuckDB's own SQL counts the same rows."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.engines import links
from duckdb_dp.counting.engines.source import Source
from duckdb_dp.request import Request
from duckdb_dp.sql import execute, link_counts
from duckdb_dp.sql.session import Session
from duckdb_dp.synthesis import quality
from duckdb_dp.synthesis.links import columns as link_columns
from tests.conftest import Loaded

ODD = """
CREATE TABLE users AS SELECT i::INTEGER AS user_id, ['F', 'M', 'ü', NULL][1 + i % 4] AS sex, (i * 37 % 90)::INTEGER AS age,
    ['0.5', 'NaN', 'inf', NULL, '-0.0', '7'][1 + i % 6]::DOUBLE AS weight FROM range(60) t(i);
INSERT INTO users VALUES (NULL, 'F', 1, 1), (3, NULL, 21, NULL);
CREATE TABLE movies AS SELECT ['m', 'M', 'ü日', '', ' m'][1 + i % 5] || i AS movie_id, i % 2 = 0 AS comedy FROM range(25) t(i);
INSERT INTO movies VALUES ('', true), (NULL, false), ('nobody''s "x"', NULL);
CREATE TABLE ratings AS SELECT ((i * i + i // 7) % 64)::INTEGER AS user_id,
    ['m', 'M', 'ü日', '', ' m'][1 + i * 13 % 27 % 5] || (i * 13 % 27) AS movie_id, ((i * i + i // 7) % 64 % 6)::TINYINT AS stars,
    i % 3 = 0 AS seen FROM range(400) t(i);
INSERT INTO ratings VALUES (NULL, 'm0', 1, true), (1, NULL, 1, true), (1, 'm0', NULL, true), (2, '', 2, true), (2, '', 2, true);
INSERT INTO ratings SELECT * REPLACE (99 AS stars) FROM ratings WHERE seen;
ALTER TABLE ratings DROP seen;
CREATE TABLE teams AS SELECT (i // 4)::INTEGER AS country, (i % 4)::INTEGER AS number, ['EU', 'US', 'AF'][1 + i % 3] AS region
    FROM range(12) t(i);
CREATE TABLE matches AS SELECT i % 12 // 4 AS home, i % 4 AS home_number, i * 5 % 11 // 4 AS away, i * 5 % 11 % 4 AS away_number,
    i % 5 = 0 AS extra FROM range(80) t(i);
CREATE TABLE players AS SELECT i::INTEGER AS player_id, CASE WHEN i % 10 > 0 THEN i % 4 END::INTEGER AS country,
    (i % 5)::INTEGER AS number, CASE WHEN i % 7 > 0 THEN i % 3 = 0 END AS tall FROM range(90) t(i);
"""
NAMES = ("users", "movies", "ratings", "teams", "matches", "players")
DECLARED = """
CALL dp_protect('users', rho := 1e6); CALL dp_protect('movies', rho := 1e6); CALL dp_protect('teams', rho := 1e6);
CALL dp_protect('players', rho := 1e6);
CALL dp_protect('ratings', unit := {unit}, max_rows := {most}, rho := 1e6);
CALL dp_protect('matches', unit := [['home', 'home_number']], max_rows := 90, rho := 1e6);
CALL dp_attribute('users', 'sex', "values" := ['F', 'ü'], nulls := true);
CALL dp_attribute('users', 'age', bins := [0, 20, 40, 80]);
CALL dp_attribute('users', 'weight', bins := [0, 1, 10], other := true);
CALL dp_attributes('movies'); CALL dp_attribute('ratings', 'stars', low := 1, high := 5);
CALL dp_attribute('teams', 'region', "values" := ['EU', 'US'], other := true); CALL dp_attributes('matches');
CALL dp_attributes('players');
CALL dp_link('ratings', "references" := {{'user_id': 'users.user_id', 'movie_id': 'movies.movie_id'}}, "distinct" := {distinct});
CALL dp_link('matches', "references" := [
    {{'columns': ['home', 'home_number'], 'references': ['teams.country', 'teams.number']}},
    {{'columns': ['away', 'away_number'], 'references': ['teams.country', 'teams.number']}}], "distinct" := true);
CALL dp_link('players', "references" := [
    {{'columns': ['country', 'number'], 'references': ['teams.country', 'teams.number']}}, {{'player_id': 'players.player_id'}}]);
CALL dp_public(['users', 'movies'], links := 'ratings'); CALL dp_public('teams', links := 'matches');
CALL dp_public('teams', links := 'players');
"""

SIDES = {
    "ratings": "synthetic := {'users': 'users_syn', 'movies': 'movies_syn'}",
    "matches": "synthetic := {'home_home_number': 'teams_syn', 'away_away_number': 'teams_syn'}",
    "players": "synthetic := {'players': 'players_syn', 'teams': 'teams_syn'}",
}


def asked(table: str, more: str = "rho := 1000") -> str:
    """A dp_links."""
    return f"dp_links('{table}', {SIDES[table]}, {more})"


def scored(table: str, more: str = "rho := 1000") -> str:
    """A dp_quality of links."""
    return f"dp_quality('{table}', '{table}_drawn', {SIDES[table]}, {more})"


@dataclass
class Counted:
    """What was counted for a request."""

    request: Request
    counts: Counts
    kept: bool


class Pair:
    """The same tables here, in DuckDB, and there, in another engine and attached."""

    def __init__(self, here: Loaded, there: Loaded, put: Any, counted: list[Counted]) -> None:
        self.here, self.there, self._put, self._counted = here, there, put, counted

    def make(self, tables: str, *, unit: str = "'user_id'", most: int = 999, distinct: bool = True) -> "Pair":
        """Make and declare the tables."""
        self.here(tables)
        for name in NAMES:
            self.attach(name, f"FROM {name}")
        for loaded in (self.here, self.there):
            loaded(DECLARED.format(unit=unit, most=most, distinct=str(distinct).lower()))
        return self

    def attach(self, name: str, query: str) -> Any:
        """Attach a copy of what DuckDB has; the Ibis table."""
        table = self._put(self.here.connection, query)
        duckdb_dp.attach(self.there.connection, name, table)
        return table

    def synthesise(self, *names: str) -> "Pair":
        """Make synthetic tables, which are alike on both sides, with a key that links can refer to."""
        for loaded in (self.here, self.there):
            for name in names or ("users", "movies", "teams", "players"):
                if (f"{name}_syn",) not in loaded("SHOW TABLES"):
                    loaded(f"CREATE TABLE {name}_syn AS FROM dp_synthesize('{name}', rows := 40, rho := 10)")
        return self

    def draw(self, table: str) -> None:
        """Make the synthetic links, on both sides."""
        for loaded in (self.here, self.there):
            loaded(f"CREATE OR REPLACE TABLE {table}_drawn AS FROM {asked(table)}")

    def both(self, call: str) -> list[tuple[Any, ...]]:
        """The rows of a call, which must be the same on both sides, as must be the exact counts that it is made of."""
        self._counted.clear()
        rows = [loaded(f"FROM {call}") for loaded in (self.here, self.there)]
        first, second = self._counted
        assert first.kept == second.kept
        for clique in cliques(first.request):
            expected = first.counts.marginal(clique)
            np.testing.assert_array_equal(second.counts.marginal(clique), expected, err_msg=f"{call}: {clique}")
        assert rows[0] == rows[1]
        assert self.here.columns(f"FROM {call}") == self.there.columns(f"FROM {call}")
        return rows[1]

    @property
    def last(self) -> Counted:
        """What was counted last."""
        return self._counted[-1]


def cliques(request: Request) -> list[tuple[str, ...]]:
    """All that is counted for a request: of links their number, joint cells and each pseudo-attribute."""
    names = request.domain.attributes
    tags = [name for name in names if name.endswith((".linked", ".degree"))]
    if "references" not in dict(request.options):
        return list(quality.cliques(request))
    return [(), tuple(name for name in names if name not in tags), *((tag,) for tag in tags)]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """What sessions draw from, as they do."""
    found: list[Counted] = []

    def draw(self: Session, request: Request, counts: Counts, *of: Any, real: Any = execute._draw, **more: Any) -> str:
        found.append(Counted(request, counts, more["bound_holds"]))
        return str(real(self, request, counts, *of, **more))

    monkeypatch.setattr(execute, "_draw", draw)
    return found


@pytest.fixture
def pair(
    exact: Any, put: Any, counted: list[Counted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pair]:
    """Two databases without noise; neither knows what the links of one unit have in common, nor those of each row: engines do not count that."""
    monkeypatch.setattr(link_columns, "unit_side", lambda _request: None)
    monkeypatch.setattr(link_counts, "counted_sides", lambda _request: ())
    with duckdb.connect() as connection:
        duckdb_dp.testing.load_exact(connection, tmp_path / "here.dp")
        yield Pair(Loaded(connection, tmp_path / "here.dp"), exact, put, counted)


# The law: the same counts


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [True, False], ids=["pairs", "rows"])
def test_links_are_counted_as_in_duckdb(pair: Pair, distinct: bool) -> None:
    """And so drawn and scored alike: NULL and repeated keys, dangling ones, texts, NaN, values outside their domains."""
    pair.make(ODD, distinct=distinct).synthesise()
    for table in SIDES if distinct else ("ratings",):
        assert len(pair.both(asked(table))) > 10
        assert pair.last.counts.marginal(()).item() > 20
        pair.draw(table)
        for more in ("rho := 1000", "rho := 1000, fresh := true, each := true", "exact := true, cells := true"):
            assert pair.both(scored(table, more))
        degrees = [name for name in pair.last.request.domain.attributes if name.endswith(".degree")]
        assert len(degrees) == (table != "players")


KEYS = {
    "text of numbers": ("INTEGER", "VARCHAR"),
    "numbers of text": ("VARCHAR", "BIGINT"),
    "long numbers": ("SMALLINT", "BIGINT"),
    "real numbers": ("DOUBLE", "DOUBLE"),
    "narrow numbers": ("DOUBLE", "FLOAT"),
    "decimals": ("DECIMAL(9,2)", "DECIMAL(9,2)"),
    "whole real numbers": ("BIGINT", "DOUBLE"),
    "whole decimals": ("DECIMAL(9,2)", "INTEGER"),
    "days": ("DATE", "DATE"),
    "days as text": ("DATE", "VARCHAR"),
    "truths": ("BOOLEAN", "BOOLEAN"),
}
TYPED = """
CREATE OR REPLACE MACRO typed(i) AS {value};
CREATE TABLE users AS SELECT typed(i)::{parent} AS user_id, (i % 3)::INTEGER AS age FROM range({rows}) t(i);
INSERT INTO users VALUES (NULL, 1);
CREATE TABLE movies AS SELECT i::INTEGER AS movie_id, i % 2 = 0 AS comedy FROM range(9) t(i);
CREATE TABLE ratings AS SELECT typed(i % 50)::{child} AS user_id, (i % 7)::INTEGER AS movie_id FROM range(200) t(i);
INSERT INTO ratings VALUES (NULL, 1);
"""


def values(type_: str) -> str:
    """SQL of different values of a type, by number."""
    if type_ in ("DOUBLE", "FLOAT"):
        return "(CASE i WHEN 0 THEN 'NaN'::FLOAT WHEN 1 THEN 'inf'::FLOAT WHEN 2 THEN -0.5 ELSE i + 0.25 END)"
    return {"DATE": "(DATE '1999-12-30' + i::INTEGER)", "BOOLEAN": "(i % 2 = 0)"}.get(type_, "i")


@pytest.mark.slow
@pytest.mark.some(1, "backend")
@pytest.mark.parametrize(("parent", "child"), KEYS.values(), ids=KEYS)
def test_keys_of_all_types_meet_as_in_duckdb(pair: Pair, parent: str, child: str) -> None:
    made = TYPED.format(value=values(parent), parent=parent, child=child, rows=2 if parent == "BOOLEAN" else 40)
    pair.here(made)
    for name in ("users", "movies", "ratings"):
        pair.attach(name, f"FROM {name}")
    pair.there("CREATE TABLE users_syn AS SELECT i::VARCHAR AS user_id, (i % 3)::INTEGER AS age FROM range(9) t(i)")
    pair.here("CREATE TABLE users_syn AS SELECT i::VARCHAR AS user_id, (i % 3)::INTEGER AS age FROM range(9) t(i)")
    for loaded in (pair.here, pair.there):
        loaded("CREATE TABLE movies_syn AS SELECT i::INTEGER AS movie_id, i % 2 = 0 AS comedy FROM range(9) t(i)")
        loaded("CREATE TABLE ratings_drawn AS SELECT i::VARCHAR AS user_id, i::INTEGER AS movie_id FROM range(9) t(i)")
        loaded("CALL dp_protect('users', rho := 1e6); CALL dp_attribute('users', 'age', low := 0, high := 2)")
        loaded("CALL dp_protect('movies', rho := 1e6); CALL dp_attributes('movies')")
        loaded("CALL dp_protect('ratings', unit := 'user_id', max_rows := 999, rho := 1e6)")
        loaded(
            "CALL dp_link('ratings', \"references\" := {'user_id': 'users.user_id', 'movie_id': 'movies.movie_id'}, \"distinct\" := true)"
        )
        loaded(
            "CALL dp_public(['users_syn', 'movies_syn', 'ratings_drawn']); CALL dp_public(['users', 'movies'], links := 'ratings')"
        )
    pair.both(scored("ratings", "exact := true, each := true"))
    type_ = "DOUBLE" if {parent, child} & {"BIGINT", "INTEGER"} and "VARCHAR" not in {parent, child} else "VARCHAR"
    met = f"SELECT DISTINCT user_id, movie_id FROM ratings SEMI JOIN users ON ratings.user_id::{type_} = users.user_id::{type_}"
    assert pair.last.counts.marginal(()).item() == len(pair.here(met))
    assert pair.last.counts.marginal(()).item() > 10


@pytest.mark.slow
def test_scores_of_single_tables(pair: Pair) -> None:
    pair.make(ODD).synthesise()
    for more in ("rho := 500", "rho := 500, each := true, fresh := true", "exact := true, cells := true"):
        rows = pair.both(f"dp_quality('users', 'users_syn', {more})")
    assert {what for what, *_ in rows} == {"rows"}
    assert {len(clique) for clique in quality.cliques(pair.last.request)} == {1, 2, 3}
    pair.both("dp_quality('users', 'users_syn', attributes := ['sex'], rho := 1)")


@pytest.mark.slow
def test_scores_of_a_table_with_units(pair: Pair) -> None:
    pair.make(ODD)
    for loaded in (pair.here, pair.there):
        loaded("CREATE TABLE stars AS SELECT 1 + i % 5 AS stars FROM range(9) t(i); CALL dp_public('stars')")
    pair.both("dp_quality('ratings', 'stars', rho := 1)")


EMPTY = {
    "no links": "DELETE FROM ratings; DELETE FROM players",
    "no parents": "DELETE FROM movies; DELETE FROM teams",
    "nothing": "; ".join(f"DELETE FROM {name}" for name in NAMES),
}


@pytest.mark.slow
@pytest.mark.parametrize("gone", EMPTY.values(), ids=EMPTY)
def test_empty_tables(pair: Pair, gone: str) -> None:
    pair.make(ODD).synthesise()
    pair.here(gone)
    for name in NAMES:
        pair.attach(name, f"FROM {name}")
    for table in ("ratings", "players"):
        pair.both(asked(table, "rows := 9, rho := 7") if table == "ratings" else asked(table, "rho := 7"))
        assert pair.last.counts.marginal(()).item() == 0
        for loaded in (pair.here, pair.there):
            loaded(
                f"CREATE TABLE {table}_drawn AS FROM {asked(table, 'rows := 9, rho := 7' if table == 'ratings' else 'rho := 7')}"
            )
        pair.both(scored(table, "exact := true"))


@pytest.mark.slow
def test_a_unit_keeps_links_up_to_its_bound(pair: Pair) -> None:
    """Engines may keep different links of a unit, and each as many."""
    pair.make(ODD, most=3).synthesise()
    found = []
    for loaded in (pair.here, pair.there):
        drawn = loaded(f"FROM {asked('ratings')}")
        found.append(pair.last.counts)
        assert drawn
        loaded("CREATE TABLE drawn AS SELECT 1 AS user_id, 'movies-1' AS movie_id, 1 AS stars; CALL dp_public('drawn')")
        loaded(f"FROM dp_quality('ratings', 'drawn', {SIDES['ratings']}, exact := true)")
        degrees = pair.last.counts.marginal(("users.degree",))
        assert (len(degrees), degrees.sum()) == (4, len(pair.here("FROM users WHERE age < 80 AND sex IS DISTINCT FROM 'M' AND user_id IS NOT NULL")) - 1)  # fmt: skip
    here, there = (counts.marginal(()).item() for counts in found)
    ((most,),) = pair.here(
        "SELECT sum(least(n, 3)) FROM (SELECT count(DISTINCT movie_id) AS n FROM ratings WHERE stars BETWEEN 1 AND 5 AND "
        "movie_id IS NOT NULL AND user_id IS NOT NULL GROUP BY user_id)"
    )
    assert 20 < there <= most
    assert 0.8 < here / there < 1.25
    for tag in ("users.linked", "movies.linked"):
        assert found[0].marginal((tag,)).sum() == found[1].marginal((tag,)).sum()


@pytest.mark.slow
def test_the_kept_links_depend_on_the_units_own_rows_alone(pair: Pair) -> None:
    """Without one user the others' links stay what they are; so they do in another order."""
    pair.make(ODD, most=2).synthesise()
    pair.there(f"FROM {asked('ratings', 'rho := 3')}")
    cells = next(clique for clique in cliques(pair.last.request) if len(clique) > 1)
    before = pair.last.counts.marginal(cells)
    pair.attach("ratings", "FROM ratings ORDER BY hash(user_id, movie_id, 7)")
    pair.there(f"FROM {asked('ratings', 'rho := 3, fresh := true')}")
    np.testing.assert_array_equal(pair.last.counts.marginal(cells), before)
    pair.attach("ratings", "FROM ratings WHERE user_id IS DISTINCT FROM 2")
    pair.there(f"FROM {asked('ratings', 'rho := 3, fresh := true')}")
    changed = before - pair.last.counts.marginal(cells)
    assert (changed.min(), changed.sum()) == (0, 2)


@pytest.mark.slow
def test_a_promise_about_both_ends_is_checked(pair: Pair) -> None:
    """Over all links with keys, whatever is declared of their attributes."""
    pair.make(ODD, unit="['user_id', 'movie_id']", most=60).synthesise()
    assert pair.both(asked("ratings"))
    assert pair.last.kept
    for loaded in (pair.here, pair.there):
        loaded("CREATE TABLE drawn AS SELECT 1 AS user_id, 'movies-1' AS movie_id, 1 AS stars; CALL dp_public('drawn')")
    pair.both(f"dp_quality('ratings', 'drawn', {SIDES['ratings']}, rho := 1)")
    pair.here("INSERT INTO ratings SELECT 1, 'none' || i, 99 FROM range(61) t(i)")
    pair.attach("ratings", "FROM ratings")
    for call in (asked("ratings", "rho := 2"), f"dp_quality('ratings', 'drawn', {SIDES['ratings']}, rho := 2)"):
        lines = [loaded.refused(f"FROM {call}") for loaded in (pair.here, pair.there)]
        assert "promised for both sides" in lines[0]
        assert lines[0] == lines[1]
        assert not pair.last.kept


@pytest.mark.slow
def test_one_statement_brings_back_counts_alone(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.make(ODD).synthesise()
    fetched = []

    def fetch(self: Source, build: Any, real: Any = Source.fetch) -> Any:
        fetched.append(real(self, build))
        return fetched[-1]

    monkeypatch.setattr(Source, "fetch", fetch)
    for call in (asked("ratings"), asked("players"), asked("matches")):
        pair.there(f"FROM {call}")
    assert len(fetched) == 3
    for found in fetched:
        assert found.column_names == ["block", "w0", "n"]
        assert len(found) < 100


# From SQL


@pytest.fixture
def attached(pair: Pair) -> Loaded:
    """Attached tables, with synthetic ones in DuckDB."""
    pair.make(ODD, most=4).synthesise()
    return pair.there


@pytest.mark.slow
def test_a_whole_day_with_attached_tables(attached: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr(links, "count_links", lambda *of, real=links.count_links: jobs.append(of) or real(*of))
    before = attached.charges()
    call = asked("ratings")
    for free in (
        f"EXPLAIN FROM {call}", f"DESCRIBE FROM {call}", f"FROM {call} LIMIT 0", f"CREATE VIEW v AS FROM {call}",
    ):  # fmt: skip
        attached(free)
    assert (len(jobs), attached.charges()) == (0, before)
    assert attached.columns(f"FROM {call}") == [
        ("user_id", "INTEGER"), ("movie_id", "VARCHAR"), ("stars", "TINYINT"), ("private", "BOOLEAN"),
    ]  # fmt: skip
    first = attached(f"FROM {call}")
    assert attached("FROM v") == attached(f"FROM {call}") == first
    assert (len(jobs), attached.charges()) == (1, before + 1)
    charge = attached.charged()[-1]
    assert charge["neighbours"] == "add or remove one 'user_id' with up to 4 rows"
    assert (charge["schema"], charge["dataset"], charge["cost"]) == ("(attached)", "ratings", 1000)
    attached(f"CREATE TABLE ratings_drawn AS FROM {call}")
    assert attached("SELECT max(n) <= 4 FROM (SELECT count(*) AS n FROM ratings_drawn GROUP BY user_id)") == [(True,)]
    for side, key in (("users", "user_id"), ("movies", "movie_id")):
        assert attached(f"SELECT count(*) FROM ratings_drawn WHERE {key} NOT IN (SELECT {key} FROM {side}_syn)") == [
            (0,)
        ]
    score = attached(f"FROM {scored('ratings')}")
    assert [what for what, *_ in score] == ["links", "across tables", "across tables", "degrees of users"]
    assert attached(f"FROM {scored('ratings')}") == score
    assert attached(f"FROM {scored('ratings', 'rho := 1000, each := true')}")
    assert (len(jobs), attached.charges()) == (2, before + 2)
    attached(f"FROM {scored('ratings', 'exact := true')}")
    attached(f"FROM {asked('ratings', 'rho := 1000, fresh := true')}")
    assert (len(jobs), attached.charges()) == (4, before + 3)
    assert attached("SELECT spent FROM dp_budget() WHERE dataset = 'ratings'") == [(3000.0,)]


@pytest.mark.slow
def test_stored_links_and_scores_are_read_without_the_engine(attached: Any) -> None:
    links_, score = asked("ratings", "release := 'who rated what', rho := 1000"), scored("ratings")
    attached(f"CREATE TABLE ratings_drawn AS FROM {links_}")
    alone = "dp_quality('users', 'users_syn', rho := 1)"
    children = asked("players")
    expected = {
        call: attached(f"FROM {call}") for call in (links_, score, alone, children, "dp_release('who rated what')")
    }
    attached("CREATE OR REPLACE TABLE people AS FROM people")
    with duckdb.connect() as later:
        duckdb_dp.testing.load_exact(later, attached.folder)
        for name in ("users_syn", "movies_syn", "teams_syn", "players_syn", "ratings_drawn"):
            later.register("copied", attached.connection.execute(f"FROM {name}").to_arrow_table())
            later.execute(f"CREATE TABLE {name} AS FROM copied")
            later.unregister("copied")
        for call, rows in expected.items():
            assert later.execute(f"FROM {call}").fetchall() == rows
        for call in (asked("ratings", "rho := 2"), scored("ratings", "rho := 2"), alone.replace("1)", "2)")):
            with pytest.raises(duckdb.Error, match="not attached now"):
                later.execute(f"FROM {call}").fetchall()


@pytest.mark.slow
def test_keys_number_synthetic_rows_once_links_are_declared(attached: Any) -> None:
    assert attached("SELECT min(user_id), max(user_id) FROM users_syn") == [(1, 40)]
    assert attached("SELECT min(movie_id) FROM movies_syn") == [("movies-1",)]


# What is refused


def refuse(loaded: Any, call: str, *words: str) -> None:
    line = loaded.refused(f"FROM {call}")
    for word in words:
        assert word in line


@pytest.fixture
def calls(attached: Any) -> list[str]:
    """Requests that need the engine."""
    attached("CREATE TABLE ratings_drawn AS SELECT 1 AS user_id, 'movies-1' AS movie_id, 1::TINYINT AS stars")
    attached("CALL dp_public('ratings_drawn')")
    return [asked("ratings"), scored("ratings"), scored("ratings", "exact := true")]


@pytest.mark.slow
def test_tables_of_two_engines(attached: Any, calls: list[str], pair: Pair) -> None:
    other = pytest.importorskip("ibis").duckdb.connect()
    other.raw_sql("CREATE TABLE movies AS SELECT 'm1' AS movie_id, true AS comedy")
    duckdb_dp.attach(attached.connection, "movies", other.table("movies"))
    for call in calls:
        refuse(attached, call, "attach")  # another connection, or another engine
    pair.attach("movies", "FROM movies")
    for call in calls:
        assert attached(f"FROM {call}")


@pytest.mark.slow
def test_tables_here_and_there(attached: Any) -> None:
    attached("CREATE TABLE here AS SELECT 1 AS user_id, 'm1' AS movie_id")
    attached("CALL dp_protect('here', unit := 'user_id', max_rows := 4, rho := 1)")
    ((engine,),) = attached("SELECT DISTINCT catalog FROM dp_budget() WHERE schema = '(attached)'")
    parents = {key: f'{engine}."(attached)".{key}s.{key}_id' for key in ("user", "movie")}
    attached(f"CALL dp_link('here', \"references\" := {json.dumps({f'{k}_id': v for k, v in parents.items()}).replace(chr(34), chr(39)).replace(chr(92) + chr(39), chr(34))})")  # fmt: skip
    refuse(attached, asked("ratings").replace("'ratings'", "'here'"), "is in DuckDB", "copy both to DuckDB")


@pytest.mark.slow
def test_a_table_that_was_replaced(attached: Any, calls: list[str], pair: Pair) -> None:
    for table, query, words in [
        ("users", "SELECT * EXCLUDE (age) FROM users", "'age'"),
        ("users", "SELECT age::VARCHAR AS age, * EXCLUDE (age) FROM users", "'age'"),
        ("users", "SELECT * EXCLUDE (user_id) FROM users", "the columns of 'users'"),
        ("ratings", "SELECT * EXCLUDE (stars) FROM ratings", "'stars'"),
        ("ratings", "SELECT * EXCLUDE (movie_id) FROM ratings", "the columns of 'ratings'"),
    ]:
        pair.attach(table, query)
        for call in calls:
            refuse(attached, call, words)
        pair.attach(table, f"FROM {table}")


@pytest.mark.slow
def test_a_table_that_changes_in_its_engine(attached: Any, backend: Any) -> None:
    """After it was attached: its place is taken by another one, or is empty."""
    backend.raw_sql("CREATE OR REPLACE TEMP VIEW films AS SELECT 'm0' AS movie_id, true AS comedy")
    duckdb_dp.attach(attached.connection, "movies", backend.table("films"))
    assert attached(f"FROM {asked('ratings')}")
    backend.raw_sql("CREATE OR REPLACE TEMP VIEW films AS SELECT 'm0' AS movie_id, 'yes' AS comedy")
    refuse(attached, asked("ratings", "rho := 2"), "the columns of 'movies'", "Attach it again")
    backend.raw_sql("DROP VIEW films")
    refuse(attached, asked("ratings", "rho := 2"), "attach 'movies' again", "nothing was charged")
    assert attached(f"FROM {asked('ratings')}")


@pytest.mark.slow
def test_rows_of_an_engine_that_fails_stay_private(attached: Any, backend: Any) -> None:
    fail = "raise_error('private 42')" if backend.name == "pyspark" else "error('private 42')"
    backend.raw_sql(
        f"CREATE OR REPLACE TEMP VIEW bad AS SELECT CASE WHEN x = 2 THEN CAST({fail} AS STRING) ELSE 'm' END AS movie_id, "
        "true AS comedy FROM (SELECT 1 AS x UNION ALL SELECT 2) t"
    )
    duckdb_dp.attach(attached.connection, "movies", backend.table("bad"))
    attached("CREATE TABLE drawn AS SELECT 1 AS user_id, 'movies-1' AS movie_id, 1 AS stars; CALL dp_public('drawn')")
    for call in (asked("ratings"), f"dp_quality('ratings', 'drawn', {SIDES['ratings']}, exact := true)"):
        line = attached.refused(f"FROM {call}")
        assert "nothing was charged" in line
        assert "42" not in line


@pytest.mark.slow
def test_a_session_that_has_ended(exact: Any) -> None:
    """Links, and scores of links and of a table."""
    other = pytest.importorskip("ibis").duckdb.connect()
    for name, columns in SMALL.items():
        other.raw_sql(f"CREATE TABLE {name} AS SELECT {columns}")
        duckdb_dp.attach(exact.connection, name, other.table(name))
    exact(SMALL_DECLARED)
    other.disconnect()
    for call in SMALL_CALLS:
        refuse(exact, call, "if its session has ended", "nothing was charged")


SMALL = {
    "users": "1 AS user_id, 1 AS age",
    "movies": "2 AS movie_id, 1 AS year",
    "ratings": "1 AS user_id, 2 AS movie_id",
}
SMALL_DECLARED = """
CALL dp_protect('users', rho := 9); CALL dp_protect('movies', rho := 9);
CALL dp_protect('ratings', unit := 'user_id', max_rows := 4, rho := 9);
CALL dp_attribute('users', 'age', low := 0, high := 2, other := true);
CALL dp_attribute('movies', 'year', low := 0, high := 2, other := true);
CALL dp_link('ratings', "references" := {'user_id': 'users.user_id', 'movie_id': 'movies.movie_id'}, "distinct" := true);
CREATE TABLE users_syn AS SELECT i AS user_id, i % 3 AS age FROM range(9) t(i);
CREATE TABLE movies_syn AS SELECT i AS movie_id, i % 3 AS year FROM range(9) t(i);
CREATE TABLE ratings_drawn AS SELECT 1 AS user_id, 2 AS movie_id;
CALL dp_public(['users_syn', 'movies_syn', 'ratings_drawn']); CALL dp_public('movies', links := 'ratings');
"""
SMALL_CALLS = (
    asked("ratings", "rho := 1"),
    scored("ratings", "rho := 1"),
    "dp_quality('users', 'users_syn', rho := 1)",
)


@pytest.mark.slow
def test_an_engine_that_lacks_a_function(exact: Any) -> None:
    lite = pytest.importorskip("ibis").sqlite.from_connection(sqlite3.connect(":memory:", check_same_thread=False))
    for name, columns in SMALL.items():
        names = ", ".join(f"{column.split()[-1]} INTEGER" for column in columns.split(","))
        lite.raw_sql(f"CREATE TABLE {name} ({names})").close()
        duckdb_dp.attach(exact.connection, name, lite.table(name))
    exact(SMALL_DECLARED)
    for call in SMALL_CALLS[:2]:
        refuse(exact, call, "which cannot count it")
    assert exact("SELECT what, error FROM dp_quality('users', 'users_syn', exact := true)") == [
        ("rows", pytest.approx(0.5))
    ]


@pytest.mark.slow
def test_rows_that_refer_to_rows_of_their_own_table(pair: Pair) -> None:
    """One key may be several rows', as far as the engine says: then one row more could change any number of links."""
    pair.here(
        "CREATE TABLE staff AS SELECT i::INTEGER AS id, (i // 3)::INTEGER AS boss, i % 2 = 0 AS senior FROM range(30) t(i)"
    )
    pair.attach("staff", "FROM staff")
    pair.there("CALL dp_protect('staff', rho := 9); CALL dp_attributes('staff')")
    pair.there("""CALL dp_link('staff', "references" := {'boss': 'staff.id'})""")
    pair.there("CREATE TABLE staff_syn AS FROM dp_synthesize('staff', rho := 1)")
    assert pair.there.columns("FROM staff_syn")[0] == ("id", "INTEGER")
    for synthetic in ("{'staff': 'staff_syn'}", "{'staff': 'staff_syn', 'boss': 'staff_syn'}"):
        refuse(
            pair.there,
            f"dp_links('staff', synthetic := {synthetic}, rho := 1)",
            "it is not known that its keys are unique",
        )


@pytest.mark.slow
def test_parents_that_are_read_from_the_protected_rows(pair: Pair) -> None:
    """Such as the same table under another name, which would be a table that refers to itself."""
    pair.here(
        "CREATE TABLE staff AS SELECT i::INTEGER AS id, (i // 3)::INTEGER AS boss, i % 2 = 0 AS senior FROM range(30) t(i)"
    )
    table = pair.attach("staff", "FROM staff")
    duckdb_dp.attach(pair.there.connection, "bosses", table.filter(table.senior))
    pair.attach("others", "FROM staff")
    for name in ("staff_of_bosses", "staff_of_others"):
        duckdb_dp.attach(pair.there.connection, name, table)
    for name in ("staff_of_bosses", "staff_of_others", "bosses", "others"):
        pair.there(f"CALL dp_protect('{name}', rho := 9); CALL dp_attributes('{name}')")
        pair.there(f"CREATE TABLE {name}_syn AS SELECT i AS id, i % 2 = 0 AS senior FROM range(9) t(i)")
        pair.there(f"CALL dp_public('{name}_syn')")
    for name, refused in (("bosses", True), ("others", False)):
        staff = f"staff_of_{name}"
        pair.there(f"""CALL dp_link('{staff}', "references" := {{'boss': '{name}.id', 'id': '{staff}.id'}})""")
        pair.there(f"CALL dp_public('{name}', links := '{staff}')")  # which makes no rows of others' public
        call = f"dp_links('{staff}', synthetic := {{'{staff}': '{staff}_syn', '{name}': '{name}_syn'}}, rho := 1)"
        if refused:
            refuse(pair.there, call, f"may be read from the rows that '{staff}' protects", "attach that")
        else:
            assert len(pair.there(f"FROM {call}")) == 9


@pytest.mark.slow
def test_children_whose_key_nobody_knows(pair: Pair) -> None:
    pair.make(ODD).synthesise()
    references = "{'columns': ['country', 'number'], 'references': ['teams.country', 'teams.number']}"
    for name, more in (("strangers", ""), ("known", ", {'player_id': 'known.player_id'}")):
        pair.attach(name, "FROM players")
        pair.there(f"CALL dp_protect('{name}', rho := 1e6); CALL dp_attributes('{name}')")
        pair.there(
            f"CALL dp_link('{name}', \"references\" := [{references}{more}]); CALL dp_public('teams', links := '{name}')"
        )
        call = f"dp_links('{name}', synthetic := {{'{name}': 'players_syn', 'teams': 'teams_syn'}}, rho := 1000)"
        if more:
            assert pair.there(f"FROM {call}")
        else:
            refuse(
                pair.there, call, "does not say which column identifies the rows of 'strangers'", "'id': 'strangers.id'"
            )


@pytest.mark.slow
def test_links_that_were_not_declared(pair: Pair) -> None:
    pair.here("CREATE TABLE ratings AS SELECT 1 AS user_id, 2 AS movie_id")
    pair.attach("ratings", "FROM ratings")
    pair.there("CALL dp_protect('ratings', unit := 'user_id', max_rows := 4, rho := 9)")
    assert "Declare what it refers to" in pair.there.refused(f"FROM {asked('ratings')}")
    for call, word in [
        ("CALL dp_link('ratings')", "has no FOREIGN KEY"),
        ("""CALL dp_link('ratings', "references" := {'user_id': 'users.user_id'})""", "no table 'users'"),
        ("""CALL dp_link('ratings', "references" := {'user': 'ratings.user_id'})""", "has no column 'user'"),
    ]:
        assert word in pair.there.refused(call)


@pytest.mark.slow
def test_synthetic_tables_that_are_not_here(attached: Any) -> None:
    """Not the private ones themselves, and none of the engine's."""
    ((engine,),) = attached("SELECT DISTINCT catalog FROM dp_budget() WHERE schema = '(attached)'")
    private = f'{engine}."(attached)".users'
    for name, word in ((private, "is protected"), ("movies", "there is no table 'movies'")):
        for call in (asked("ratings").replace("users_syn", name), f"dp_quality('users', '{name}', rho := 1)"):
            before = attached.charges()
            with pytest.raises(duckdb.Error, match=word):
                attached(f"FROM {call}")
            assert attached.charges() == before


@pytest.mark.slow
def test_all_attached_tables_in_one_call(attached: Any) -> None:
    """Their tables have no constraints, as those of views have none."""
    ((engine,),) = attached("SELECT DISTINCT catalog FROM dp_budget() WHERE schema = '(attached)'")
    before = attached.charges()
    call = f"CALL dp_synthesize_database('{engine}.(attached)', target := 'syn', tables := ['users', 'movies', 'ratings', 'players', 'teams'], rho := 60)"
    made = attached(call)
    assert sorted(what for _, _, what, *_ in made) == ["links to users and movies", "parents in teams", *["rows"] * 4]
    assert attached.charges() == before + 6
    assert attached(
        "SELECT count(*) > 10 FROM syn.ratings JOIN syn.users USING (user_id) JOIN syn.movies USING (movie_id)"
    ) == [(True,)]
    expected = attached("FROM syn.ratings ORDER BY ALL")
    attached("DROP SCHEMA syn CASCADE")
    attached(call)
    assert attached("FROM syn.ratings ORDER BY ALL") == expected
    assert attached.charges() == before + 6


@pytest.mark.slow
def test_a_table_that_is_called_like_a_step(exact: Any) -> None:
    """Ibis names common table expressions t0, t1, ...: one of them would be read in the table's place."""
    other = pytest.importorskip("ibis").duckdb.connect()
    other.raw_sql(
        "CREATE TABLE t3 AS SELECT 1 AS x; CREATE TABLE T12 AS SELECT 1 AS x; CREATE TABLE t3x AS SELECT 1 AS x"
    )
    for table in (other.table("t3"), other.table("T12"), other.table("t3x").union(other.table("t3"))):
        with pytest.raises(duckdb_dp.DPError, match="as steps of Ibis's statements are"):
            duckdb_dp.attach(exact.connection, "x", table)
    for table in (other.table("t3", database="main"), other.table("t3x")):
        duckdb_dp.attach(exact.connection, "x", table)


@pytest.mark.slow
def test_collations_of_the_engine_make_nobody_the_same(exact: Any, counted: list[Counted]) -> None:
    """Keys and units that differ by letter case alone, in columns that are compared without it, both ways round."""
    ibis = pytest.importorskip("ibis")
    engine = ibis.duckdb.connect()
    spelt = ", ".join(f"('{name}', true)" for name in ("abc", "ABC", "Abc", "aBC"))
    sql = (
        "CREATE TABLE users (who VARCHAR{0}, old BOOLEAN); CREATE TABLE things (what INTEGER, big BOOLEAN);"
        "CREATE TABLE links (who VARCHAR{1}, what INTEGER); INSERT INTO things VALUES (0, true), (1, false);"
        f"INSERT INTO users VALUES {spelt}; INSERT INTO links VALUES ('abc', 0), ('ABC', 1), ('ABC', 0)"
    )
    for i, collations in enumerate([("", " COLLATE nocase"), (" COLLATE nocase", ""), (" COLLATE nocase",) * 2]):
        schema = f"s{i}"
        engine.raw_sql(f"CREATE SCHEMA {schema}; USE {schema}; {sql.format(*collations)}")
        for name in ("users", "things", "links"):
            duckdb_dp.attach(exact.connection, f"{name}{i}", engine.table(name, database=schema))
        exact(
            f"CALL dp_protect('links{i}', unit := 'who', max_rows := 1, rho := 1e6); CALL dp_protect('users{i}', rho := 9);"
            f"CALL dp_protect('things{i}', rho := 9); CALL dp_attributes('users{i}'); CALL dp_attributes('things{i}');"
            f"CALL dp_link('links{i}', \"references\" := {{'who': 'users{i}.who', 'what': 'things{i}.what'}});"
            "CREATE OR REPLACE TABLE u AS SELECT 'a' AS who, true AS old; CREATE OR REPLACE TABLE t AS SELECT 1 AS what, true AS big;"
            f"CALL dp_public(['u', 't']); CALL dp_public('things{i}', links := 'links{i}')"
        )
        exact(f"FROM dp_links('links{i}', synthetic := {{'users{i}': 'u', 'things{i}': 't'}}, rho := 1e5)")
        found = counted[-1].counts
        assert found.marginal(()).tolist() == [2]
        assert found.marginal((f"users{i}.linked",)).tolist() == [2, 2]
