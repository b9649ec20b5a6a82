"""Which pairs have too many cells is said before anything is drawn, and which were measured in groups of values, or not at all, after."""

import itertools
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import duckdb_dp
from duckdb_dp.accounting.base import ZCDP
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.request import Request
from duckdb_dp.sql.measured_pairs import pairs_note


@pytest.mark.slow
def test_the_steps_of_a_database_name_pairs_in_groups(tmp_path: Path) -> None:
    con = duckdb.connect(str(tmp_path / "guests.db"))
    duckdb_dp.load(con)
    con.execute("CREATE TABLE guests (id INT PRIMARY KEY, age INT, income INT, kind INT)")
    con.execute(
        "INSERT INTO guests SELECT i, i * 7 % 80, i * 7 % 80 // 4 + (hash(i) % 39)::INT, i % 2 FROM range(3000) t(i)"
    )
    con.execute("CREATE TABLE hotels (id INT PRIMARY KEY, stars INT)")
    con.execute("INSERT INTO hotels SELECT i, i % 5 FROM range(100) t(i)")
    con.execute("CREATE TABLE stays (guest INT REFERENCES guests(id), hotel INT REFERENCES hotels(id), cost INT)")
    con.execute("INSERT INTO stays SELECT id, (id * 3 + i) % 100, age // 2 FROM guests, range(3) t(i)")
    con.execute(
        "CALL dp_protect(['guests', 'stays'], unit := 'guests.id', max_rows := 5, epsilon := 20, delta := 1e-9)"
    )
    for table, column, high in (
        ("guests", "age", 79),
        ("guests", "income", 59),
        ("guests", "kind", 1),
        ("stays", "cost", 39),
    ):
        con.execute(f"CALL dp_attribute('{table}', '{column}', low := 0, high := {high})")
    con.execute("CALL dp_public('hotels')")
    done = con.execute("CALL dp_synthesize_database('main', target := 'syn', epsilon := 5)").fetchall()
    notes = {row[1]: row[-1] for row in done}
    assert "pairs measured in groups of values: age x income" in notes["guests"]
    assert "pairs of attributes of links measured in at most" in notes["stays"]
    assert "guests.age x cost" in notes["stays"]


DAYS = "low := '2020-01-01', high := '2020-12-31'"

VISITS = f"""
CREATE TABLE guests (id INT PRIMARY KEY, born DATE, kind INT);
INSERT INTO guests SELECT i, DATE '2020-01-01' + (i * 7 % 366)::INT, i % 3 FROM range(600) t(i);
CREATE TABLE events (id INT PRIMARY KEY, held DATE, size INT);
INSERT INTO events SELECT i, DATE '2020-01-01' + (i * 11 % 366)::INT, i % 4 FROM range(90) t(i);
CREATE TABLE visits (guest INT REFERENCES guests(id), event INT REFERENCES events(id));
INSERT INTO visits SELECT id, (id * 3 + i) % 90 FROM guests, range(3) t(i);
CALL dp_protect(['guests', 'visits'], unit := 'guests.id', max_rows := 4, rho := 20);
CALL dp_protect('events', rho := 20);
CALL dp_public('events', links := 'visits');
CALL dp_attribute('guests', 'born', {DAYS});
CALL dp_attribute('guests', 'kind', low := 0, high := 2);
CALL dp_attribute('events', 'held', {DAYS});
CALL dp_attribute('events', 'size', low := 0, high := 3);
"""

BOTH = "{'synthetic': {'guests': 'syn.guests', 'events': 'syn.events'}}"


def notes(db: Any, call: str) -> dict[str, str]:
    """The notes of the steps of dp_synthesize_database, by table."""
    return {row[1]: row[-1] or "" for row in db(f"CALL dp_synthesize_database({call})")}


@pytest.mark.slow
@pytest.mark.parametrize("dates", [True, False])
def test_two_days_across_a_link_are_named_with_what_keeps_them(db: Any, dates: bool) -> None:
    """Before anything is drawn, and in the row of the step after it; numbers not once their steps are larger, and dates by their difference."""
    as_numbers = (
        VISITS.replace(DAYS, "low := 0, high := 365").replace("DATE '2020-01-01' + ", "").replace("DATE", "INT")
    )
    db(VISITS if dates else as_numbers)
    large = (
        "pairs of too many cells keep no relation but what other pairs imply, unless dp_attribute gives them a larger step or fewer "
        "bins, or noise is so large that these are in groups: guests.born x events.held"
    )
    said = (
        "of dates and times it is kept how far their bins are apart, to a factor of 2: guests.born x events.held"
        if dates
        else large
    )
    asked = "'main', target := 'syn', tables := ['guests', 'visits', 'events'], rho := 1"

    def explained() -> str:
        ((note,),) = db(f"SELECT note FROM dp_explain('visits', {BOTH}, rho := 1)")
        return str(note)

    assert said in explained()
    assert said in notes(db, f"{asked}, plan := true")["visits"]
    assert db.charges() == 0
    done = notes(db, asked)["visits"]
    assert done.count("guests.born x events.held") == 1
    assert said in done
    for table, column in (("guests", "born"), ("events", "held")):
        wide = f"{DAYS}, step := INTERVAL 7 DAY" if dates else "low := 0, high := 365, step := 7"
        db(f"CALL dp_attribute('{table}', '{column}', {wide})")
    assert "too many cells" not in explained()


def test_dates_whose_difference_noise_drowns_are_named_as_such(db: Any) -> None:
    db(VISITS)
    asked = "'main', target := 'syn', tables := ['guests', 'visits', 'events'], rho := 0.0001"
    kept = "where noise does not drown it, of dates and times it is kept how far their bins are apart"
    assert kept in notes(db, f"{asked}, plan := true")["visits"]
    done = notes(db, asked)["visits"]
    assert kept in done
    assert "guests.born x events.held" in done.partition("measured not at all, as noise would drown them: ")[2]


@pytest.mark.parametrize("method", ["forest", "mst", "aim"])
def test_pairs_of_rows_with_too_many_cells_are_named(db: Any, method: str) -> None:
    if method != "forest":
        pytest.importorskip("mbi")
    db("CREATE TABLE t AS SELECT i * 7 % 1100 AS a, i * 11 % 1100 AS b, i % 2 AS c FROM range(3000) s(i)")
    db("CALL dp_protect('t', rho := 5)")
    for column, high in (("a", 1099), ("b", 1099), ("c", 1)):
        db(f"CALL dp_attribute('t', '{column}', low := 0, high := {high})")
    call = f"dp_explain('t', {{'synthesize': 'all', 'method': '{method}'}}, rho := 1)"
    ((attributes, mechanism, rho, note),) = db(f"SELECT attributes, mechanism, rho, note FROM {call}")
    assert (attributes, mechanism, rho) == ("a, b, c", method, 1)
    assert note.endswith("a larger step or fewer bins: a x b")
    ((note,),) = db("SELECT note FROM dp_explain('t', {'synthesize': ['a', 'c']}, rho := 1)")
    assert note is None
    if method == "forest":
        done = notes(db, "'main', target := 'syn', tables := ['t'], rho := 1")["t"]
        assert done.count("a x b") == 1
        assert "a larger step or fewer bins: a x b" in done


def test_what_is_explained_of_rows_is_what_they_cost(db: Any) -> None:
    db("CREATE TABLE t AS SELECT i % 7 AS a, i % 3 AS b FROM range(300) s(i)")
    db("CALL dp_protect('t', rho := 5)")
    for column in "ab":
        db(f"CALL dp_attribute('t', '{column}', low := 0, high := 6)")
    ((rho, delta),) = db(
        "SELECT rho, delta FROM dp_explain('t', {'synthesize': 'all', 'rows': 50}, epsilon := 2, delta := 1e-6)"
    )
    assert db.charges() == 0
    db("FROM dp_synthesize('t', rows := 50, epsilon := 2, delta := 1e-6)")
    (charged,) = db.charged()
    assert rho == pytest.approx(charged["rho"])
    assert delta == charged["delta"]
    assert "'nonsense': with 'synthesize' there may be" in db.refused(
        "FROM dp_explain('t', {'synthesize': 'all', 'nonsense': 1}, rho := 1)"
    )
    with_more = "FROM dp_explain('t', {'synthesize': 'all'}, rho := 1, max_rows := 'auto')"
    assert "max_rows is 'auto', and it needs a number" in db.refused(with_more)
    for odd in ("5", "[]", "'a'"):
        assert "attributes is" in db.refused(f"FROM dp_explain('t', {{'synthesize': {odd}}}, rho := 1)")
    assert "has no column 'z'" in db.refused("FROM dp_explain('t', {'synthesize': ['z']}, rho := 1)")


class Stored:
    """A session of which one release is asked."""

    def __init__(self, detail: dict[str, Any]) -> None:
        self.detail_of = detail

    def stored(self, request: Request, name: None) -> str:
        """Something."""
        return "a release"

    def detail(self, stored: str) -> dict[str, Any]:
        """The detail."""
        return self.detail_of


@pytest.mark.parametrize("seed", range(5))
def test_every_pair_of_rows_is_measured_or_named(seed: int) -> None:
    """Whichever pairs were measured, alone, in groups or in triples: the others are named, and none of these."""
    rng = np.random.default_rng(seed)
    names = "abcd"[: 3 + seed % 2]
    attributes = tuple(Attribute(name=name, type="INTEGER", kind="values", points=tuple(range(3))) for name in names)
    every = list(itertools.combinations(names, 2))
    alone, grouped, _ = (
        [pair for pair, kind in zip(every, rng.integers(0, 3, len(every)), strict=True) if kind == k] for k in range(3)
    )
    triples = [tuple(names[:3])] if seed == 3 else []
    detail = {"measured": [[], *map(list, (*alone, *triples))], "grouped": [[*pair, 2, 2] for pair in grouped]}
    request = Request(
        function="dp_synthesize", catalog="c", schema="s", table="t", unit=None, max_rows=1, accounting=ZCDP, attributes=attributes,
        questions=(), cost=1.0, mechanism="forest", objective="",
    )  # fmt: skip
    note = pairs_note(Stored(detail), request) or ""  # type: ignore[arg-type]  # all that it asks of a session
    measured = {pair for clique in (*alone, *grouped, *triples) for pair in itertools.combinations(clique, 2)}
    _, _, named = note.partition("as the budget says more elsewhere: ")
    assert set(filter(None, named.removesuffix(", and others").split(", "))) <= {
        " x ".join(p) for p in every if p not in measured
    }
    assert bool(named) == (len(measured) < len(every))


@pytest.mark.parametrize("unit", ["'guest'", "['guest', 'event']"])
def test_two_dates_of_which_one_is_of_the_links(db: Any, unit: str) -> None:
    """Of the links of one unit they are measured in groups, whatever their cells; of two units the counts of single values have to fit."""
    many = "low := '1950-01-01', high := '2009-12-31'"
    db(
        "CREATE TABLE guests (id INT PRIMARY KEY, born DATE); CREATE TABLE events (id INT PRIMARY KEY, size INT);"
        "CREATE TABLE visits (guest INT REFERENCES guests(id), event INT REFERENCES events(id), held DATE, PRIMARY KEY (guest, event));"
        "CALL dp_protect('guests', rho := 20); CALL dp_protect('events', rho := 20);"
        f"CALL dp_protect('visits', unit := {unit}, max_rows := 4, rho := 20); CALL dp_public('events', links := 'visits');"
        f"CALL dp_attribute('guests', 'born', {many}); CALL dp_attribute('visits', 'held', {many});"
        "CALL dp_attribute('events', 'size', low := 0, high := 3);"
    )
    ((note,),) = db(f"SELECT note FROM dp_explain('visits', {BOTH}, rho := 1)")
    _, _, named = note.partition("fewer bins: " if "event" in unit else "these are in groups: ")
    expected = {"guests.born x events.size"} | ({"guests.born x held"} if "event" in unit else set())
    assert set(named.split(", ")) == expected
