"""Joins by keys that are only declared: their bound is that of true keys, and it holds with and without a unit where keys repeat."""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

Row = tuple[Any, ...]

TAKEN, MARKS = 3, 4
"""Rows of a person that count."""

BOTH = "[{'columns': ['id', 'course'], 'references': ['taken.id', 'taken.course']}]"
LINKS = {
    "a key of two columns": [("marks", BOTH)],
    "a key of one column": [("marks", "{'entry': 'taken.entry'}")],
    "the table's own key": [("taken", "{'entry': 'taken.entry'}")],
    "by another order": [("marks", "[{'columns': ['course', 'id'], 'references': ['taken.course', 'taken.id']}]")],
}
"""What is declared after dp_protect, and by which columns tables are joined then."""

JOINS = {
    "JOIN": "SELECT x, count(*) AS n FROM marks AS m JOIN taken AS t ON {on} GROUP BY x",
    "LEFT JOIN": "SELECT y, count(*) AS n FROM marks AS m LEFT JOIN taken AS t ON {on} GROUP BY y",
    "three tables": "SELECT x, count(*) AS n FROM who AS w JOIN marks AS m ON m.id = w.id JOIN taken AS t ON {on} GROUP BY x",
    "a subquery": "SELECT x, count(*) AS n FROM (SELECT id, course, entry, y FROM marks WHERE y < 9) AS m JOIN taken AS t ON {on} GROUP BY x",
    "two subqueries": "WITH t AS (SELECT id, course, entry, x FROM taken) SELECT x, sum(y) AS n FROM marks AS m JOIN t ON {on} GROUP BY x",
}


def on(links: str) -> str:
    """The condition of a join by the key that is declared, and by the owner."""
    return "m.id = t.id AND " + (
        "m.course = t.course" if "two columns" in links or "order" in links else "m.entry = t.entry"
    )


def bound(db: Loaded, select: str) -> int:
    """How many joined rows of a unit count, as dp_explain says."""
    ((route,),) = db(f"SELECT DISTINCT route FROM dp_explain('{select}', rho := 1)")
    found = re.search(r"at most (\d+) joined rows", route)
    assert found is not None, route
    return int(found[1])


def create(db: Loaded, links: Sequence[tuple[str, str]], *, constraints: bool = False) -> None:
    """People, what they have taken, and marks of it, under one budget; the links are declared last, unless constraints say the same."""
    key = {"who": ", PRIMARY KEY (id)", "taken": ", PRIMARY KEY (id, course), UNIQUE (entry)"} if constraints else {}
    never = " NOT NULL" if constraints else ""
    db(f"CREATE TABLE who (id INTEGER{key.get('who', '')})")
    db(f"CREATE TABLE taken (id INTEGER, course VARCHAR, entry INTEGER{never}, x INTEGER{key.get('taken', '')})")
    db("CREATE TABLE marks (id INTEGER, course VARCHAR, entry INTEGER, y INTEGER)")
    for table in ("taken", "marks"):
        db(f"CALL dp_link('{table}', \"references\" := {{'id': 'who.id'}})")
    rows = f"{{'taken': {TAKEN}, 'marks': {MARKS}}}"
    db(f"CALL dp_protect(['who', 'taken', 'marks'], unit := 'who.id', max_rows := {rows}, rho := 1e9)")
    for table, references in () if constraints else links:
        db(f"CALL dp_link('{table}', \"references\" := {references})")
    db("CALL dp_attribute('taken', 'x', low := 0, high := 2); CALL dp_attribute('marks', 'y', low := 0, high := 1)")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Loaded]:
    """A database without noise."""
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, tmp_path / "l.dp")
        yield Loaded(con, tmp_path / "l.dp")


@pytest.mark.some(1)
@pytest.mark.parametrize("links", LINKS)
def test_the_bound_is_that_of_constraints(tmp_path: Path, links: str) -> None:
    """Which is smaller than without both."""
    found: list[list[int]] = []
    for name, declared, constraints in (("none", [], False), ("links", LINKS[links], False), ("keys", [], True)):
        with duckdb.connect() as con:
            duckdb_dp.testing.load_exact(con, tmp_path / f"{name}.dp")
            db = Loaded(con, tmp_path / f"{name}.dp")
            create(db, declared, constraints=constraints)
            found.append([bound(db, select.format(on=on(links))) for select in JOINS.values()])
    none, linked, keys = found
    assert linked == keys == [MARKS] * len(JOINS)
    assert none == [MARKS * TAKEN] * len(JOINS)


@pytest.mark.slow
@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("seed", range(2))
def test_one_unit_changes_joins_by_their_bound(db: Loaded, links: str, seed: int) -> None:
    """Whatever keys dangle, are NULL, or repeat: further rows of a unit are left out, and those of others stay."""
    rng = random.Random(seed)
    create(db, LINKS[links])
    people, courses = [*range(6), None], ["a", "b", None]
    taken = [(rng.choice(people), rng.choice(courses), rng.choice([1, 2, None]), rng.randrange(3)) for _ in range(40)]
    marks = [(rng.choice(people), rng.choice(courses), rng.choice([1, 2, None]), rng.randrange(2)) for _ in range(40)]

    def fill(without: int | None) -> None:
        for table, rows in (("who", [(i,) for i in range(6)]), ("taken", taken), ("marks", marks)):
            kept: list[Row] = [row for row in rows if without is None or row[0] != without]
            db(f"DELETE FROM {table}")
            db.connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(kept[0]))})", kept)

    fill(None)
    owned = f"SELECT max(n) FROM (SELECT count(*) AS n FROM marks AS m JOIN taken AS t ON {on(links)} GROUP BY m.id)"
    assert db(owned)[0][0] > MARKS  # so that the bound leaves rows out
    for name, text in JOINS.items():
        select = text.format(on=on(links))
        asked = f"SELECT #1, n FROM dp_sql('{select}', rho := 1, fresh := true)"
        assert bound(db, select) == MARKS
        fill(None)
        before, most = dict(db(asked)), 0.0
        for unit in range(6):
            fill(unit)
            less = dict(db(asked))
            gone = [before[group] - less[group] for group in before]
            assert min(gone) >= 0, (name, unit)
            assert sum(gone) <= MARKS, (name, unit)
            most = max(most, sum(gone))
        assert most > 1, name


def test_how_many_rows_joins_make_of_one_is_enforced(db: Loaded) -> None:
    """A further table is cut as without the declaration, as nothing else would hold where the key repeats."""
    create(db, [])
    select = f"SELECT x, count(*) AS n FROM marks AS m JOIN marks AS o ON m.id = o.id JOIN taken AS t ON {on('two columns')} GROUP BY x"
    cut = f'a row is joined with at most {TAKEN} of "taken"'
    asked = f"SELECT DISTINCT route FROM dp_explain('{select}', rho := 1)"
    assert cut in db(asked)[0][0]
    assert bound(db, select) == TAKEN * MARKS * MARKS
    db(f"CALL dp_link('marks', \"references\" := {BOTH})")
    assert cut in db(asked)[0][0]
    assert bound(db, select) == MARKS * MARKS


def test_a_key_that_is_gone_bounds_nothing(db: Loaded) -> None:
    """Statements that do not read it are answered, and others are refused in one line, also where it led to the unit."""
    create(db, LINKS["the table's own key"])
    db("ALTER TABLE taken RENAME COLUMN entry TO number; ALTER TABLE who RENAME COLUMN id TO person")
    joined = "SELECT x, count(*) AS n FROM marks AS m JOIN taken AS t ON m.id = t.id GROUP BY x"
    assert "has no column 'id' now" in db.refused(f"FROM dp_sql('{joined}', rho := 1)")
    db("ALTER TABLE who RENAME COLUMN person TO id")
    assert bound(db, joined.replace("m.id = t.id", "m.id = t.id AND m.entry = t.number")) == TAKEN * MARKS
