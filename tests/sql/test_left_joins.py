"""Rows of LEFT JOINs along keys: those that have a row of the joined table and those that have none are bounded apart."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import as_in_form, check_found_again

ROWS = {"parcels": 3, "events": 7, "claims": 2, "notes": 2}
"""How many rows of each table a person has at most."""

TABLES = """
CREATE TABLE people (id INTEGER PRIMARY KEY, age INTEGER);
CREATE TABLE parcels (pid INTEGER PRIMARY KEY, id INTEGER NOT NULL REFERENCES people (id), depot INTEGER);
CREATE TABLE events (eid INTEGER PRIMARY KEY, pid INTEGER REFERENCES parcels (pid), kind INTEGER, depot INTEGER);
CREATE TABLE claims (pid INTEGER REFERENCES parcels (pid), kind INTEGER);
CREATE TABLE notes (eid INTEGER REFERENCES events (eid), kind INTEGER);
CREATE TABLE depots (depot INTEGER PRIMARY KEY, place INTEGER);
INSERT INTO depots SELECT i, i // 2 FROM range(4) t(i);
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Persons with at most so many rows, many of whom have that many, all of one parcel, of two, or of several."""
    draw, connection = random.Random(7), duckdb.connect()
    folder = tmp_path_factory.mktemp("left") / "test.dp"
    connection.execute(TABLES)
    rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in ("people", *ROWS)}
    for person in range(80):
        rows["people"].append((person, draw.randrange(90)))
        some = {name: draw.choice([0, 1, most, most, most]) for name, most in ROWS.items()}
        parcels = [len(rows["parcels"]) + i for i in range(some["parcels"])]
        rows["parcels"] += [(one, person, draw.choice([None, 0, 1, 2, 3])) for one in parcels]
        near = parcels[: draw.choice([1, 1, 2, 3])]
        events = [len(rows["events"]) + i for i in range(some["events"] if parcels else 0)]
        rows["events"] += [
            (one, draw.choice(near), draw.choice([None, 1, 2]), draw.choice([None, 0, 3])) for one in events
        ]
        rows["claims"] += [
            (draw.choice(near), draw.choice([None, 1, 2])) for _ in range(some["claims"] if parcels else 0)
        ]
        rows["notes"] += [
            (draw.choice(events[:2]), draw.choice([None, 1])) for _ in range(some["notes"] if events else 0)
        ]
    for name, each in rows.items():
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(each[0]))})", each)
    duckdb_dp.testing.load(connection, folder, seed=1)
    loaded = Loaded(connection, folder)
    loaded(
        "CALL dp_protect(['people', 'parcels', 'events', 'claims', 'notes'], unit := 'people.id', max_rows := ?, mu := 1e6, delta := 1e-9)",
        [ROWS],
    )
    loaded("CALL dp_public('depots')")
    yield loaded
    connection.close()


def bound(found: Loaded, select: str) -> int:
    """How many joined rows of a person count, as dp_explain says it."""
    ((route,),) = found("SELECT route FROM dp_explain(NULL, ?, mu := 0.1)", [select])
    said = re.search(r"at most (\d+) joined rows", route)
    return int(said[1]) if said else 1


BOUNDS = {
    "parcels LEFT JOIN events USING (pid)": 3 + 7,
    "events e RIGHT JOIN parcels p ON e.pid = p.pid": 3 + 7,
    "people LEFT JOIN parcels USING (id)": 3,
    "people q LEFT JOIN parcels p USING (id) LEFT JOIN events e ON e.pid = p.pid": 3 + 7,
    "parcels LEFT JOIN events USING (pid) LEFT JOIN depots d ON d.depot = events.depot": 3 + 7,
    "parcels p LEFT JOIN events e ON e.pid = p.pid AND e.kind = 2": 3 + 7,
    "parcels p LEFT JOIN events e ON e.pid = p.pid AND e.eid = 3": 3,
    "parcels LEFT JOIN claims USING (pid)": 3 + 2,
    "parcels LEFT JOIN events USING (pid) LEFT JOIN notes USING (eid)": 3 + 7 + 2,
    "parcels p LEFT JOIN events e USING (pid) LEFT JOIN claims c ON c.pid = p.pid": 7 * 2 + 2 + 3,
    "parcels LEFT JOIN events USING (pid) WHERE events.kind = 2": 7,
    "parcels LEFT JOIN events USING (pid) WHERE events.kind BETWEEN 1 AND 2": 7,
    "parcels LEFT JOIN events USING (pid) WHERE events.kind IS NOT NULL": 7,
    "parcels LEFT JOIN events USING (pid) WHERE events.kind IN (1, 2) AND eid > 3": 7,
    "parcels LEFT JOIN events USING (pid) WHERE events.kind = 2 OR events.kind IS NULL": 3 + 7,
    "parcels LEFT JOIN events USING (pid) WHERE events.kind IS NULL": 3 + 7,
    "parcels LEFT JOIN events USING (pid) WHERE eid IS NULL": 3,
    "parcels p LEFT JOIN events e ON p.pid = e.pid WHERE e.pid IS NULL": 3,
    "parcels LEFT JOIN (SELECT pid, count(*) AS n FROM events GROUP BY pid) USING (pid)": 3,
    "(SELECT * FROM parcels LEFT JOIN events USING (pid)) LEFT JOIN notes USING (eid)": 3 + 7 + 2,
    "people, parcels p LEFT JOIN events e USING (pid) WHERE p.id = people.id": 3 + 7,
}  # fmt: skip
"""FROM -> how many of its rows a person has at most."""


@pytest.mark.some(6)
@pytest.mark.parametrize("rest", BOUNDS)
def test_rows_with_and_without_one_of_the_table_are_added(found: Loaded, rest: str) -> None:
    select = f"SELECT count(*) FROM {rest}"
    assert bound(found, select) == BOUNDS[rest]
    assert found("FROM dp_sql(?, mu := 100)", [select])[0][0] == pytest.approx(found(select)[0][0], abs=4)
    with as_in_form(5):
        assert bound(found, select) >= BOUNDS[rest]


KEYS = {
    ("parcels", "people"): "id", ("events", "parcels"): "pid", ("claims", "parcels"): "pid", ("notes", "events"): "eid",
    ("events", "claims"): "pid", ("depots", "parcels"): "depot", ("depots", "events"): "depot",
}  # fmt: skip
"""Two tables -> the column by which they are joined."""

COLUMNS = {
    "people": ["age"], "parcels": ["pid", "depot"], "events": ["eid", "pid", "kind"], "claims": ["pid", "kind"],
    "notes": ["eid", "kind"], "depots": ["place"],
}  # fmt: skip


def joined(draw: random.Random) -> tuple[str, str]:
    """A random FROM of some tables with conditions, and its first table."""
    first = draw.choice(["people", "parcels", "events", "claims"])
    text, known = first, [first]
    for _ in range(draw.randint(1, 4)):
        ends = {(a, b): on for (one, two), on in KEYS.items() for a, b in ((one, two), (two, one)) for on in [on]}
        ends = {(a, b): on for (a, b), on in ends.items() if b in known and a not in known and b != "depots"}
        if not ends:
            break
        table, other = draw.choice(sorted(ends))
        column = ends[table, other]
        extra = f" AND {condition(draw, table)}" if draw.random() < 0.3 else ""
        text += f" {draw.choice(['LEFT', 'LEFT', 'INNER'])} JOIN {table} ON {table}.{column} = {other}.{column}{extra}"
        known.append(table)
    if draw.random() < 0.5:
        text += f" WHERE {condition(draw, draw.choice(known))}"
    return text, first


def condition(draw: random.Random, table: str) -> str:
    column = f"{table}.{draw.choice(COLUMNS[table])}"
    form = draw.choice(
        ["{} = 1", "{} IS NULL", "{} IS NOT NULL", "{} BETWEEN 1 AND 40", "({0} > 2 OR {0} IS NULL)", "NOT {} < 2"]
    )
    return form.format(column)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_no_person_has_more_rows_than_a_bound_says(found: Loaded, seed: int) -> None:
    """Of random FROMs, over rows of which many persons have as many as they may, whole and as different rows of one table."""
    draw, asked = random.Random(seed), 0
    for _ in range(15):
        rest, first = joined(draw)
        owner = {"people": "people.id", "parcels": "parcels.id"}.get(
            first, f"(SELECT p0.id FROM parcels AS p0 WHERE p0.pid = {first}.pid)"
        )
        for value in ("*", f"DISTINCT {first}.{COLUMNS[first][0]}"):
            select = f"SELECT count({value}) FROM {rest}"
            try:
                most = bound(found, select)
            except duckdb.Error:  # a join that mixes persons
                continue
            per = found(f"SELECT max(n) FROM (SELECT {owner}, count({value}) AS n FROM {rest} GROUP BY ALL)")[0][0]
            assert most >= (per or 0), select
            asked += 1
    assert asked > 8


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Loaded]:
    """The same tables with few rows."""
    connection, folder = duckdb.connect(), tmp_path / "few.dp"
    connection.execute(TABLES)
    connection.execute(
        "INSERT INTO people SELECT i, i FROM range(20) t(i); INSERT INTO parcels SELECT i, i % 20, 1 FROM range(40) t(i)"
    )
    duckdb_dp.testing.load(connection, folder, seed=1)
    loaded = Loaded(connection, folder)
    loaded(
        f"CALL dp_protect({[*ROWS, 'people']}, unit := 'people.id', max_rows := {ROWS}, epsilon := 50, delta := 1e-6)"
    )
    loaded("CALL dp_public('depots')")
    yield loaded
    connection.close()


@pytest.mark.some(2)
@pytest.mark.parametrize("rest", BOUNDS)
def test_what_was_answered_with_the_product_is_found_again(few: Loaded, rest: str) -> None:
    check_found_again(few, f"SELECT count(*) FROM {rest}", 5)


def test_a_view_that_was_declared_with_the_product_is_declared_again(few: Loaded) -> None:
    call = "CALL dp_view('sent', 'SELECT p.pid, e.kind FROM parcels p LEFT JOIN events e USING (pid)')"
    with as_in_form(5):
        before = few(call)
    assert few(call) == before
    few(call.replace("sent", "anew"))
    views = [bound(few, f"SELECT count(*) FROM {one} JOIN depots ON kind = depot") for one in ("sent", "anew")]
    assert views == [3 * 7, 3 + 7]
    few("CALL dp_view('fewer', 'SELECT pid FROM parcels LEFT JOIN events USING (pid)', max_rows := 4)")
    assert "declared already" in few.refused(
        "CALL dp_view('fewer', 'SELECT pid FROM parcels LEFT JOIN events USING (pid)')"
    )
