"""Neighbouring databases, one user or one movie with all links more or less: counts of links differ by what is charged for."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, cast
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.encode import literal
from duckdb_dp.counting.partners import PARTNERS, WHOLE, partners_of
from duckdb_dp.counting.units import UNIT, capped_of, pairs_of, rows_of, shares_of, sizes_of, values_of, weight_of
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Distance
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.reconstruct.measurement import LinearMeasurement
from duckdb_dp.synthesis.links.at_least import AtLeast
from duckdb_dp.synthesis.links.columns import REPEATED
from duckdb_dp.synthesis.links.limited import LimitedPairs
from duckdb_dp.synthesis.links.linked_rows import measure_linked

USERS, MOVIES, DEGREE = 14, 9, 3
BOTH = "[['user_id'], ['movie_id']]"
Row = tuple[Any, ...]
Database = dict[str, list[Row]]


class SeenError(DPError):
    """Stops a statement after it has counted, before anything is charged."""


def odd_database(seed: int) -> Database:
    """Users and movies with repeated and NULL keys and odd values; links that repeat, dangle, and exceed the bound."""
    rng = random.Random(seed)
    users = [(u, rng.choice(["F", "M", "M", "?", None]), rng.randrange(-5, 80)) for u in range(USERS)]
    users += [(u, rng.choice("FM"), rng.randrange(80)) for u in rng.choices(range(USERS), k=4)] + [(None, "F", 20)]
    movies = [(m, rng.choice([True, False, None])) for m in range(MOVIES)] + [
        (rng.randrange(MOVIES), True),
        (None, True),
    ]
    links: list[Row] = []
    for _ in range(90):
        user = rng.choice([*range(USERS), 0, 0, 1, 99, None])
        links.append((user, rng.choice([*range(MOVIES), 0, 77, None]), rng.choice([1, 2, 3, 9, None])))
    return {"users": users, "movies": movies, "ratings": links}


def bounded(database: Database) -> Database:
    """The same with so few rows, repeated ones too, that nobody has more than the bound, on either side."""
    held: Counter[Any] = Counter()
    links = []
    for user, movie, stars in database["ratings"]:
        if max(held["u", user], held["m", movie]) < DEGREE:
            held.update([("u", user), ("m", movie)])
            links.append((user, movie, stars))
    return {**database, "ratings": links}


def without(database: Database, table: str, key: Any) -> Database:
    """The database after one user or movie has left it, with all links."""
    column = 0 if table == "users" else 1
    return {
        **database,
        table: [row for row in database[table] if row[0] != key],
        "ratings": [row for row in database["ratings"] if row[column] != key],
    }


def fill(con: duckdb.DuckDBPyConnection, database: Database) -> None:
    """Put these rows into the tables, in place of others."""
    for table, rows in database.items():
        values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
        con.execute(f"DELETE FROM {table}; INSERT INTO {table} VALUES {values}")


ONCE = ', "distinct" := true'
UNITS = [("'user_id'", ONCE), ("'movie_id'", ONCE), (BOTH, ""), ("'user_id'", ""), ("'movie_id'", "")]


@pytest.fixture(scope="module", params=UNITS)
def protected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """(unit, connection with the tables, protected by it, whether it is measured if pairs repeat)."""
    unit, once = request.param
    with duckdb.connect() as con, patch("duckdb_dp.accounting.database.secrets.token_bytes", bytes):
        con.execute("CREATE TABLE users (user_id INTEGER, sex VARCHAR, age INTEGER)")
        con.execute("CREATE TABLE movies (movie_id INTEGER, comedy BOOLEAN)")
        con.execute("CREATE TABLE ratings (user_id INTEGER, movie_id INTEGER, stars INTEGER)")
        duckdb_dp.testing.load(con, tmp_path_factory.mktemp("links") / "l.dp", seed=1)
        con.execute(
            f"CALL dp_protect('ratings', unit := {unit}, max_rows := {DEGREE}, rho := 1);"
            "CALL dp_protect('users', rho := 1); CALL dp_protect('movies', rho := 1);"
            "CALL dp_attribute('users', 'sex', \"values\" := ['F', 'M'], other := true);"
            "CALL dp_attribute('users', 'age', bins := [0, 30, 70]); CALL dp_attribute('movies', 'comedy');"
            "CALL dp_attribute('ratings', 'stars', low := 1, high := 3, nulls := true);"
            "CALL dp_link('ratings', \"references\" := {'user_id': 'users.user_id', 'movie_id': 'movies.movie_id'}"
            f"{once});"
            "CREATE TABLE u AS SELECT 1 AS user_id, 'F' AS sex, 20 AS age;"
            "CREATE TABLE m AS SELECT 1 AS movie_id, true AS comedy; CALL dp_public(['u', 'm']);"
            "CALL dp_public(['users', 'movies'], links := 'ratings')"
        )
        yield unit, con, unit != BOTH and not once


def count(
    con: duckdb.DuckDBPyConnection, database: Database, own: Iterable[tuple[str, ...]] = ()
) -> dict[tuple[str, ...], list[int]]:
    """The exact counts that dp_links would measure, by their attributes; of units by these attributes of their own."""
    found: list[Counts] = []

    def stop(request: Any, counts: Counts, **more: Any) -> None:
        found.append(counts)
        raise SeenError("seen" if more["bound_holds"] else "a broken promise")

    fill(con, database)
    with patch("duckdb_dp.synthesis.functions.synthesis", stop), pytest.raises(duckdb.Error, match="seen"):
        con.execute(CALL).fetchall()
    (counts,) = found
    tables = [*TABLES, ROWS, *(sizes_of(DEGREE, *names) for names in own)] if counts.has_units else []
    links = tuple(name for name in counts.domain.attributes if not name.endswith((".linked", ".degree", REPEATED)))
    ends = [(name,) for name in counts.domain.attributes if name not in links]
    asked = [(), links, ("users.sex",), ("movies.comedy", "stars"), *ends]
    whole = {clique: counts.marginal(clique).tolist() for clique in [*asked, *tables, *counts.partners]}
    assert len(counts.partners) == counts.has_units
    for (name,) in ends:  # where degrees are counted, rows by whether they have a link are among them
        if name.endswith(".degree"):
            none, *some = whole[name,]
            whole[name.replace("degree", "linked"),] = [none, sum(some)]
    return whole


TABLES: list[tuple[str, ...]] = [
    sizes_of(DEGREE),
    *(values_of(first, name) for first in ([1, 2, 3], [1, 3], [1]) for name in ("users.sex", "movies.comedy", "stars")),
    *(pairs_of(*pair) for pair in (("movies.comedy", "stars"), ("stars", "stars"), ("users.age", "stars"))),
    *(capped_of(names, 2) for names in ((), ("stars",), ("users.sex", "movies.comedy"))),
    *(shares_of(names) for names in ((), ("stars",), ("users.sex", "stars"), ("users.age", "movies.comedy", "stars"))),
]
"""What is measured of whole units; one unit weighs 1 at most, or 2 where it is capped so, whichever side is the unit. So do its own
attributes: OWN."""

ROWS = rows_of(("users.sex", "movies.comedy", "stars"))
"""The links themselves, of which a query limits what each unit adds."""

OWN = {"users": [("users.sex",), ("users.age",)], "movies": [("movies.comedy",)]}

CALL = "FROM dp_links('ratings', synthetic := {'users': 'u', 'movies': 'm'}, rho := 1)"


def limited_length(one: list[int], other: list[int]) -> float:
    """How far one unit moves pairs in which each is limited, over the length for which noise is calibrated."""
    sizes = 3, 2, 4, 3
    centres, scales = [np.full(n, 1 / n) for n in sizes], [np.arange(1.0, n + 1) for n in sizes]
    options = {"bound": 0.4, "counted": 0.1, "rows": 1, "numbers": np.array([0, 0, 1, 2])}
    found = [LimitedPairs(centres=centres, scales=scales, pairs=[(0, 2), (1, 2), (2, 3)], **options) for _ in range(2)]
    gone = np.subtract(*(query.apply(np.array(rows))[0] for query, rows in zip(found, (one, other), strict=True)))
    return float(np.linalg.norm(gone)) / found[0].squared_sensitivity ** 0.5


def distance(one: list[int], other: list[int]) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(2))
def test_one_unit_changes_counts_by_its_bound(protected: Any, seed: int) -> None:
    unit, con, measured = protected
    database = bounded(odd_database(seed)) if unit == BOTH else odd_database(seed)
    for table in ("users", "movies"):
        if f"'{table[:-1]}_id'" not in unit:
            continue
        whole = count(con, database, OWN[table])
        for key in range(USERS if table == "users" else MOVIES):
            smaller = count(con, without(database, table, key), OWN[table])
            assert (unit == BOTH) == whole.keys().isdisjoint(TABLES)
            assert (unit == BOTH) == (("movies.degree",) in whole)
            assert measured == ((table + REPEATED,) in whole)
            for clique, exact in whole.items():
                if clique == ROWS:
                    assert (moved := limited_length(exact, smaller[clique])) <= 1
                    assert (moved > 0) == (len(exact) > len(smaller[clique]))
                elif clique[:1] == (PARTNERS,):
                    gone = [a - b for a, b in zip(exact, smaller[clique], strict=True)]
                    assert min(gone) >= 0, (table, key, clique)
                    assert sum(a**2 for a in gone) <= WHOLE**2, (table, key, clique)
                elif clique[:1] == (UNIT,):
                    gone = [a - b for a, b in zip(exact, smaller[clique], strict=True)]
                    assert min(gone) >= 0, (table, key, clique)
                    assert sum(gone) <= weight_of(clique), (table, key, clique)
                elif clique and clique[0].endswith(".degree"):
                    one, other = (
                        AtLeast(np.arange(1, DEGREE + 1)).apply(np.array(counts))[0]
                        for counts in (exact, smaller[clique])
                    )
                    assert np.abs(one - other).sum() <= DEGREE, (table, key, clique)
                    assert abs(sum(exact) - sum(smaller[clique])) <= 1
                elif clique and clique[0].endswith(REPEATED):
                    assert clique[0].startswith(table), (table, key, clique)
                    assert distance(exact, smaller[clique]) <= 1, (table, key, clique)
                elif not clique or not clique[0].endswith(".linked"):
                    assert distance(exact, smaller[clique]) <= DEGREE, (table, key, clique)
            for name in ("users.linked", "movies.linked"):
                # Its own row goes; partners only become unlinked, at most one for each link.
                most = 1 if name.startswith(table) else DEGREE
                assert abs(whole[name,][1] - smaller[name,][1]) <= most


def test_counts_are_those_of_the_kept_links(protected: Any) -> None:
    """Against plain Python, on a database in which no choice is left to the hash."""
    _, con, measured = protected
    users = [(u, "FM?"[u % 3], 10 * u % 80) for u in range(USERS)] + [(None, "F", 5)]
    movies = [(m, m % 2 == 0 if m else None) for m in range(MOVIES)]
    some: list[Row] = [
        (u, (u * 5 + i) % MOVIES, [1, 2, None, 9][(u + i) % 4]) for u in range(USERS) for i in range(u % (DEGREE + 1))
    ]
    rows = bounded({"ratings": [(99, 1, 9), (1, 77, 9), *some[:2], *some]})["ratings"]
    odd = [(None, 1, 1), (1, None, 1)]
    found = count(con, {"users": users, "movies": movies, "ratings": rows + odd})
    links = rows if measured else list(dict.fromkeys(rows))
    assert len(set(links)) < len(rows)
    sexes = {u: "FM".find(sex) % 3 for u, sex, age in users if u is not None and 0 <= age <= 70}
    ages = {u: int(age >= 30) for u, _, age in users}
    comedies = {m: int(comedy) for m, comedy in movies if comedy is not None}
    kept = [(u, m, s) for u, m, s in links if u in sexes and m in comedies and s in (1, 2, 3, None)]
    cells = Counter(
        ((sexes[u] * 2 + ages[u]) * 2 + comedies[m]) * 4 + (3 if stars is None else stars - 1) for u, m, stars in kept
    )
    (joint,) = [counts for clique, counts in found.items() if len(clique) == 4 and clique[0] != UNIT]
    assert len(kept) > 5
    assert joint == [cells[i] for i in range(3 * 2 * 2 * 4)]
    assert found[()] == [len(kept)]
    if measured:
        (side,) = [clique[0] for clique in found if clique and clique[0].endswith(REPEATED)]
        units, end = (sexes, 0) if side.startswith("users") else (comedies, 1)
        pairs = Counter(link[:2] for link in kept)
        linked = {link[end] for link in kept}
        twice = {pair[end] for pair, number in pairs.items() if number > 1}
        assert linked <= units.keys()
        assert found[side,] == [len(linked) - len(twice), len(twice)]
    for name, rows, linked in (
        ("users.linked", sexes, {u for u, _, _ in kept}),
        ("movies.linked", comedies, {m for _, m, _ in kept}),
    ):
        assert found[name,] == [len(rows) - len(linked), len(linked)]


def test_a_broken_promise_is_an_error_that_says_nobody(protected: Any) -> None:
    unit, con, measured = protected
    fill(con, odd_database(1))
    before = con.execute("FROM dp_budget()").fetchall()
    if unit != BOTH:
        assert len(con.execute(CALL).fetchall()) <= (DEGREE if measured else 1)
        return
    with pytest.raises(duckdb.Error) as caught:
        con.execute(CALL).fetchall()
    assert "more links than the 3 promised for both sides" in str(caught.value)
    assert con.execute("FROM dp_budget()").fetchall() == before


@pytest.mark.slow
def test_one_child_row_changes_counts_by_one(tmp_path: Any) -> None:
    """A table whose rows have one parent each, or none: a row more is one link more, and at most one parent's first."""
    children = [(i, [0, 1, 2, 3, 77, None][i % 6], ["a", "b", "a", "?"][i % 4]) for i in range(14)]
    found: list[Counts] = []

    def stop(request: Any, counts: Counts, **more: Any) -> None:
        found.append(counts)
        raise SeenError("seen")

    with duckdb.connect() as con, patch("duckdb_dp.synthesis.functions.synthesis", stop):
        con.execute(
            "CREATE TABLE parents (id INTEGER PRIMARY KEY, big BOOLEAN); INSERT INTO parents VALUES (0, true), (1, false)"
        )
        con.execute("INSERT INTO parents VALUES (2, NULL), (3, true), (4, true)")
        con.execute("CREATE TABLE children (id INTEGER PRIMARY KEY, parent INTEGER, kind VARCHAR)")
        duckdb_dp.testing.load(con, tmp_path / "l.dp", seed=1)
        con.execute(
            "CALL dp_protect('parents', rho := 1); CALL dp_attribute('parents', 'big'); CALL dp_protect('children', rho := 1);"
            "CALL dp_attribute('children', 'kind', \"values\" := ['a', 'b']);"
            "CALL dp_link('children', \"references\" := {'parent': 'parents.id'});"
            "CREATE TABLE c AS SELECT 1 AS id, 'a' AS kind; CREATE TABLE p AS SELECT 1 AS id, true AS big;"
            "CALL dp_public(['c', 'p']); CALL dp_public('parents', links := 'children')"
        )
        for rows in [children, *(children[:i] + children[i + 1 :] for i in range(len(children)))]:
            fill(con, {"children": rows})
            with pytest.raises(duckdb.Error, match="seen"):
                con.execute(
                    "FROM dp_links('children', synthetic := {'children': 'c', 'parents': 'p'}, rho := 1)"
                ).fetchall()
    cliques = [(), ("children.kind",), ("children.kind", "parents.big"), ("children.linked",), partners_of(1)]
    whole, *others = [{clique: counts.marginal(clique).tolist() for clique in cliques} for counts in found]
    inside = [parent for _, parent, kind in children if kind != "?"]
    linked_rows = [parent for parent in inside if parent in (0, 1, 3)]  # parent 2 has no declared value
    assert whole[()] == [len(linked_rows)]
    assert whole["children.linked",] == [len(inside) - len(linked_rows), len(linked_rows)]
    for smaller in others:
        for clique in cliques:
            assert distance(whole[clique], smaller[clique]) <= (WHOLE if clique == partners_of(1) else 1)
    linked = [counts.marginal(("parents.linked",)).tolist() for counts in found]
    assert all(abs(linked[0][1] - one[1]) <= 1 and sum(one) == 4 for one in linked)


@pytest.mark.slow
@pytest.mark.parametrize("left", ["dangling", "NULL"])
def test_one_row_of_a_table_that_refers_to_itself_changes_counts_by_its_bound(tmp_path: Any, left: str) -> None:
    """Its own link, those of the rows that refer to it, and the one that moves up at its own parent, or fewer."""
    rng = random.Random(4)
    staff = [(i, rng.choice([None, 0, 0, 1, 1, 2, 3, 77, i]), rng.randrange(6)) for i in range(24)]
    found: list[Counts] = []

    def stop(request: Any, counts: Counts, **more: Any) -> None:
        assert request.max_rows == DEGREE + 2
        found.append(counts)
        raise SeenError("seen")

    with duckdb.connect() as con, patch("duckdb_dp.synthesis.functions.synthesis", stop):
        con.execute("CREATE TABLE staff (id INTEGER PRIMARY KEY, boss INTEGER, pay INTEGER)")
        duckdb_dp.testing.load(con, tmp_path / "l.dp", seed=1)
        con.execute(
            "CALL dp_protect('staff', rho := 1); CALL dp_attribute('staff', 'pay', low := 0, high := 4);"
            "CALL dp_link('staff', \"references\" := {'boss': 'staff.id'}); CREATE TABLE s AS SELECT 1 AS id, 1 AS pay; CALL dp_public('s')"
        )
        smaller = [[row for row in staff if row[0] != gone] for gone in range(len(staff))]
        if left == "NULL":
            smaller = [[(i, None if b == gone else b, pay) for i, b, pay in rows] for gone, rows in enumerate(smaller)]
        for rows in [staff, *smaller]:
            fill(con, {"staff": rows})
            with pytest.raises(duckdb.Error, match="seen"):
                con.execute(
                    f"FROM dp_links('staff', synthetic := {{'staff': 's'}}, max_degree := {DEGREE}, rho := 1)"
                ).fetchall()
    whole, *others = found
    for clique in [(), ("staff.pay",), ("boss.pay",), ("staff.pay", "boss.pay")]:
        exact = whole.marginal(clique).tolist()
        assert sum(exact) > 5
        changes = [distance(exact, one.marginal(clique).tolist()) for one in others]
        assert 1 < max(changes) <= DEGREE + 2
    for tag in ("staff.linked", "boss.linked"):  # what is measured of them: all rows, and those with a link
        rows, linked = (whole.marginal((tag,)).sum(), whole.marginal((tag,))[1])
        for one in others:
            assert abs(rows - one.marginal((tag,)).sum()) <= 1
            assert abs(linked - one.marginal((tag,))[1]) <= DEGREE + 2
    cells = Counter()  # where no choice is left to the hash, against plain Python
    pays = {i: pay for i, _, pay in staff if pay < 5}
    for boss in pays:
        kids = [i for i, b, pay in staff if b == boss and pay < 5]
        assert len(kids) <= DEGREE or boss in (0, 1)
        cells[boss] = min(len(kids), DEGREE)
    assert whole.marginal(("boss.pay",)).tolist() == [
        sum(n for boss, n in cells.items() if pays[boss] == pay) for pay in range(5)
    ]


def test_rows_that_change_sides_change_what_is_measured_of_them_by_one() -> None:
    """One user less may unlink as many movies as the bound says: two counts change, and the queryable reckons with one."""
    asked: list[tuple[Any, float]] = []

    class Recorder:
        def measure_all(self, steps: Iterable[tuple[Any, Any, float]]) -> list[LinearMeasurement]:
            asked.extend((strategy, rho) for _, strategy, rho in steps)
            return [
                LinearMeasurement(clique=(), strategy=s, answers=s.apply(np.array([5, 7]))[0], variance=1.0)
                for s, _ in asked
            ]

    share, variance = measure_linked(cast(PrivateQueryable, Recorder()), "movies.linked", 0.5)
    assert share == pytest.approx(7 / 12)
    assert variance == pytest.approx(1 / 12**2)
    assert sum(rho for _, rho in asked) == 0.5
    assert len(asked) == 2
    for strategy, _ in asked:
        for change in ([1, 0], [0, 1], [1, -1]):  # an unlinked row, a linked one, and one that has lost its link
            moved = strategy.apply(np.array(change))[0]
            assert np.square(moved).sum() <= strategy.squared_sensitivity + 1e-12


def test_a_unit_that_loses_its_links_changes_its_degree() -> None:
    """From k to 0: two cells of the degrees change, and with them the distance by up to 2, also where k is 1."""
    for rows in (1, 2, 5):
        operator = Distance(np.array([4.0, 0.0, 3.0]), moved=max(1.0, 2 / rows))
        for before, after in (([5, 2, 3], [6, 1, 3]), ([5, 0, 4], [6, 0, 3])):
            change = abs(operator.apply(np.array(before))[0][0] - operator.apply(np.array(after))[0][0])
            assert change <= rows * np.sqrt(operator.squared_sensitivity) + 1e-12
    assert Distance(np.array([4.0, 0.0])).squared_sensitivity == 1
