"""Rows that are added up by the key that leads to their owners, before they are joined with these: the answers stay the same."""

import random
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.sql import bindings, owners
from duckdb_dp.sql.owned import top
from tests.conftest import Loaded

KEYED = (
    "SELECT sum(x) AS s FROM items",
    "SELECT count(*) AS n, sum(x) AS s, sum(y) AS t, avg(y) AS m, stddev(y) AS v FROM items WHERE y > 2 OR y IS NULL",
    "SELECT count(y) FILTER (WHERE x > 3) AS n, sum(CASE WHEN y < 5 THEN x ELSE 0 END) AS s FROM items",
    "SELECT sum(i.x * w) AS s, count(*) AS n FROM items i, weights WHERE k = kind AND w > 1",
    "SELECT sum(i.x) AS s, count(w) AS n FROM items i LEFT JOIN weights ON k = kind",
    "SELECT count(*) AS n FROM items i WHERE EXISTS (SELECT 1 FROM weights WHERE k = i.kind)",
    "SELECT sum(z) AS s FROM (SELECT x + kind AS z FROM items WHERE kind < 3)",
    "SELECT sum(x) AS s FROM parts",
    "SELECT sum(a.x) AS s FROM items a JOIN items b ON a.visit = b.visit AND a.kind < b.kind",
    "SELECT count(*) AS n FROM items a WHERE EXISTS (SELECT 1 FROM items b WHERE a.visit = b.visit AND b.kind > a.kind)",
)
"""SELECTs without groups of tables that look up their owners."""

OTHERS = (
    "SELECT kind, sum(x) AS s FROM items GROUP BY kind",
    "SELECT sum(x) AS s FROM items JOIN visits ON visit = visits.id",
    "SELECT sum(a.x) AS s FROM items a JOIN items b ON a.kind = b.kind",
    "SELECT sum(x) AS s FROM notes",
)
"""With groups, of tables whose rows have their owners beside them, with owners that are compared, and of keys that are texts."""


def rows(seed: int) -> list[str]:
    """INSERTs of tables without constraints: keys repeat, are NULL, and lead nowhere."""
    rng = random.Random(seed)

    def some(*values: Any) -> str:
        return str(rng.choice([*values, *values, *values, "NULL"]))

    found = [f"INSERT INTO people VALUES ({one})" for one in (1, 2, 3, 4, 4, "NULL")]
    found += [
        f"INSERT INTO visits VALUES ({some(*range(12))}, {some(*range(6))}, '{rng.choice('aAbB')}')" for _ in range(20)
    ]
    for _ in range(80):
        x, y = f"{rng.randrange(2000)} / 100", rng.choice(["NULL", "'nan'", "1e300", str(rng.randrange(10) / 3)])
        found.append(f"INSERT INTO items VALUES ({some(*range(16))}, {some(*range(5))}, {x}, {y})")
        found.append(f"INSERT INTO parts VALUES ({some(*range(5))}, {x})")
        found.append(f"INSERT INTO notes VALUES ('{rng.choice('aAbBc')}', {x})")
    return found


def loaded(seed: int, folder: Path) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("""
    CREATE TABLE people (id INTEGER); CREATE TABLE visits (id INTEGER, person INTEGER, code VARCHAR);
    CREATE TABLE items (visit INTEGER, kind INTEGER, x DECIMAL(9, 2), y DOUBLE);
    CREATE TABLE parts (item INTEGER, x DECIMAL(9, 2)); CREATE TABLE notes (code VARCHAR, x DECIMAL(9, 2));
    CREATE TABLE weights AS SELECT i // 2 AS k, i AS w FROM range(8) r(i);
    """)
    con.execute("; ".join(rows(seed)))
    duckdb_dp.testing.load_exact(con, folder / f"{uuid4().hex}.dp")
    con.execute("""
    CALL dp_link('visits', "references" := {'person': 'people.id'}); CALL dp_link('items', "references" := {'visit': 'visits.id'});
    CALL dp_link('parts', "references" := {'item': 'items.kind'}); CALL dp_link('notes', "references" := {'code': 'visits.code'});
    CALL dp_protect(['people', 'visits', 'items', 'parts', 'notes'], unit := 'people.id', max_rows := 'auto', rho := 1e6);
    CALL dp_public('weights'); CALL dp_attribute('items', 'kind', low := 0, high := 4);
    """)
    return con


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What calls were planned as."""
    found: list[str] = []
    planned = bindings._planned

    def noted(*arguments: Any) -> str:
        found.append(planned(*arguments))
        return found[-1]

    monkeypatch.setattr(bindings, "_planned", noted)
    return found


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_the_same_answers(seed: int, statements: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To the last bit, with candidates for bounds, and of owners that are one another's: without noise, as the rows were joined first."""
    answers = []
    for late in (True, False):
        if not late:
            monkeypatch.setattr(owners, "_lookup", lambda *_: None)
            monkeypatch.setattr(top, "lookup", lambda *_: None)
        with loaded(seed, tmp_path) as con:
            statements.clear()
            answers.append(
                [
                    con.execute(f"FROM dp_sql(?, rho := 100{more})", [one]).fetchall()
                    for one in (*KEYED, *OTHERS)
                    for more in ("", ", clip := 3")
                ]
            )
            used = ["_dp_key0" in one for one in statements]
            assert used == [late] * 2 * len(KEYED) + [False] * 2 * len(OTHERS)
    assert answers[0] == answers[1]


def test_sums_are_of_rows_with_owners(statements: list[str], tmp_path: Path) -> None:
    with loaded(1, tmp_path) as con:
        ((found, *_),) = con.execute(
            "FROM dp_sql('SELECT sum(x) AS s FROM items', rho := 1000, clip := 1000)"
        ).fetchall()
        owned = "SELECT DISTINCT v.id AS visit, p.id AS person FROM visits v JOIN people p ON person = p.id"
        ((expected,),) = con.execute(f"SELECT sum(x)::DOUBLE FROM items JOIN ({owned}) USING (visit)").fetchall()
    assert "_dp_key0" in statements[-1]
    assert found == pytest.approx(expected, abs=0.01)


def test_a_request_is_the_same_with_it(tmp_path: Path) -> None:
    """It says how rows are read, and not what is asked: a release is found again by requests without it."""
    with loaded(1, tmp_path) as con:
        con.execute("FROM dp_sql('SELECT sum(x) AS s FROM items', rho := 1)").fetchall()
        ((text,),) = con.execute("SELECT count(*)::VARCHAR FROM dp_ledger()").fetchall()
        con.execute("FROM dp_sql('SELECT sum(x) AS s FROM items', rho := 1)").fetchall()
        assert con.execute("SELECT count(*)::VARCHAR FROM dp_ledger()").fetchall() == [(text,)]
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE request::VARCHAR LIKE '%_dp_key%'").fetchall() == [
            (0,)
        ]


def test_owners_have_the_type_of_the_table_that_names_them(exact: Loaded) -> None:
    """Whole numbers of two widths may name one unit; none of them is taken for another column's type, and so for nobody."""
    exact("CREATE TABLE small AS SELECT i::SMALLINT AS person, i AS x FROM range(5) r(i)")
    exact("CREATE TABLE wide AS SELECT i AS id, (i % 5)::BIGINT AS person FROM range(20) r(i)")
    exact("CREATE TABLE led AS SELECT i % 20 AS wide, 1 AS x FROM range(60) r(i)")
    exact("CALL dp_link('led', \"references\" := {'wide': 'wide.id'})")
    exact("CALL dp_protect(['small', 'wide', 'led'], unit := 'person', max_rows := 'auto', rho := 1e6)")
    assert exact("SELECT round(n) FROM dp_sql('SELECT count(*) AS n FROM led', rho := 100, clip := 20)") == [(60,)]
    assert exact(
        "SELECT round(n) FROM dp_sql('SELECT count(*) AS n FROM led JOIN wide ON wide = id', rho := 100, clip := 20)"
    ) == [(60,)]
