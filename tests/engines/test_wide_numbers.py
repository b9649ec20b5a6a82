"""Columns that Ibis calls by one type and DuckDB by two: nothing is cast that fails on somebody's row."""

from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

HUGE = "170141183460469231731687303715884105727::HUGEINT"
TABLES = f"""
CREATE TABLE people AS SELECT CASE WHEN i = 7 THEN {HUGE} ELSE i END AS number, i AS id, i::DECIMAL(38,0) AS narrow FROM range(20) t(i);
CREATE TABLE visits AS SELECT i % 20 AS id, CASE WHEN i % 20 = 7 THEN {HUGE} ELSE i END AS wide, i::DECIMAL(38,0) AS narrow,
    [CASE WHEN i % 20 = 7 THEN {HUGE} ELSE i END] AS wides, [i::DECIMAL(38,0)] AS narrows, i % 3 AS kind FROM range(60) t(i);
"""
UNION = "SELECT count(*) AS n FROM (SELECT id, {0} AS x FROM visits UNION ALL SELECT id, {1} FROM visits) WHERE x IS NOT NULL"


def pair(tmp_path: Path) -> list[Loaded]:
    """Two databases whose tables are attached from DuckDB: one with the person 7, and one without."""
    ibis = pytest.importorskip("ibis")
    found = []
    for gone in (-1, 7):
        engine = ibis.duckdb.connect()
        engine.raw_sql(f"{TABLES}; DELETE FROM people WHERE id = {gone}; DELETE FROM visits WHERE id = {gone}")
        con = duckdb.connect()
        duckdb_dp.testing.load(con, tmp_path / f"{gone}", seed=1)
        for name, table in {"people": "people", "visits": "visits", "kinds": "people"}.items():
            duckdb_dp.attach(con, name, engine.table(table))
        found.append(Loaded(con, tmp_path / f"{gone}"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), [("wide", "narrow"), ("narrow", "wide"), ("wide", "wide")])
@pytest.mark.parametrize("bound", ["max_rows := 6", "max_rows := 'auto'"])
def test_a_union_of_wide_whole_numbers_fails_on_no_row(tmp_path: Path, one: str, other: str, bound: str) -> None:
    for db in pair(tmp_path):
        db("""CALL dp_link('visits', "references" := {'id': 'people.id'})""")
        db("CALL dp_protect(['people', 'visits'], unit := 'people.id', max_rows := {'visits': 3}, rho := 1e6)")
        assert len(db(f"FROM dp_sql('{UNION.format(one, other)}', rho := 1, {bound})")) == 1
        assert db(
            "FROM dp_sql('SELECT count(DISTINCT wide) AS n, median(wide) AS m FROM visits', rho := 1, max_rows := 3)"
        )


def test_a_union_of_what_no_type_is_known_of_is_refused(tmp_path: Path) -> None:
    """Lists of either are called by one type too."""
    said = []
    for db in pair(tmp_path):
        db("""CALL dp_link('visits', "references" := {'id': 'people.id'})""")
        db("CALL dp_protect(['people', 'visits'], unit := 'people.id', max_rows := {'visits': 3}, rho := 1e6)")
        said.append(db.refused(f"FROM dp_sql('{UNION.format('wides', 'narrows')}', rho := 1, max_rows := 6)"))
    assert said[0] == said[1]
    assert "in UNION ALL is not read in duckdb; leave it out" in said[0]


@pytest.mark.parametrize(("child", "key"), [("wide", "narrow"), ("narrow", "number")])
def test_keys_of_links_that_are_wide_fail_on_no_row(tmp_path: Path, child: str, key: str) -> None:
    for db in pair(tmp_path):
        db(f"""CALL dp_link('visits', "references" := {{'{child}': 'people.{key}', 'id': 'kinds.id'}})""")
        db("CALL dp_protect('people', rho := 1e6); CALL dp_protect('kinds', rho := 1e6)")
        db(
            f"CALL dp_protect('visits', unit := '{child}', max_rows := 9, rho := 1e6); CALL dp_attribute('visits', 'kind', low := 0, high := 2)"
        )
        db("CALL dp_public(['people', 'kinds'], links := 'visits')")
        for table in ("people", "kinds"):
            db(f"CALL dp_attribute('{table}', 'id', low := 0, high := 19)")
            db(
                f"CREATE TABLE {table}_syn AS SELECT i AS id, i::DECIMAL(38,0) AS narrow, i::DECIMAL(38,0) AS number FROM range(20) t(i)"
            )
        db("CALL dp_public(['people_syn', 'kinds_syn'])")
        assert db("FROM dp_links('visits', synthetic := {'people': 'people_syn', 'kinds': 'kinds_syn'}, rho := 10)")
