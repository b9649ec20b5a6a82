"""What a seed drew before, it draws now; and a ledger that an earlier version has written is still read.

The releases were drawn and written by version 0.1.0 in November 2026, with the library versions of constraints.txt:
``python tests/laws/test_same_release.py`` writes them anew, which only a change of what is drawn calls for.
``python tests/laws/test_same_release.py aim pairs`` writes what a seed draws for these since then; the ledger stays as it is.
"""

import datetime
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.accounting.ledger import Ledger

FIXTURES = Path(__file__).parents[1] / "fixtures"
WHOLE = "SELECT COLUMNS(lambda c: c <> 'private')"
LEDGER, ROWS = FIXTURES / "ledger", FIXTURES / "rows.json"
SINCE = FIXTURES / "rows_since.json"
"""Releases that a seed draws otherwise since the ledger was written: selections under 'gdp' have more epsilon now, and averages are
taken from the rows. Under 'name, stored' how a release of the older ledger is read now: adaptive mechanisms read fitted."""

TABLES = """
CREATE TABLE people AS
SELECT (i * 37 % 100)::INTEGER AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex, (i % 4)::INTEGER AS race,
       CASE WHEN i % 7 = 0 THEN NULL ELSE i % 2 = 0 END AS smoker, (i % 11 / 2)::DECIMAL(6, 2) AS fee,
       DATE '2020-01-01' + (i * 13 % 365)::INTEGER AS day FROM range(420) t(i);
CREATE TABLE visits AS SELECT i * 7 % 90 AS person, (i % 6)::INTEGER AS kind, i % 2 = 0 AS paid FROM range(300) t(i);
CREATE TABLE cells AS SELECT (i % 8)::INTEGER AS a, (i // 8 % 4)::INTEGER AS b, (i % 3)::INTEGER AS c FROM range(500) t(i);
CREATE TABLE users (user_id INTEGER PRIMARY KEY, age INTEGER, town VARCHAR);
INSERT INTO users SELECT i, i % 3, ['a', 'b'][1 + i % 2] FROM range(90) t(i);
CREATE TABLE movies (movie_id INTEGER PRIMARY KEY, comedy BOOLEAN);
INSERT INTO movies SELECT i, i % 2 = 0 FROM range(40) t(i);
CREATE TABLE ratings (user_id INTEGER REFERENCES users (user_id), movie_id INTEGER REFERENCES movies (movie_id),
                      stars INTEGER, PRIMARY KEY (user_id, movie_id));
INSERT INTO ratings SELECT DISTINCT ON (u, m) u, m, s FROM (SELECT i % 90 AS u, i * 7 % 40 AS m, i % 5 AS s FROM range(300) t(i));
CREATE TABLE pets (pet_id INTEGER PRIMARY KEY, user_id INTEGER REFERENCES users (user_id), cat BOOLEAN);
INSERT INTO pets SELECT i, i * 5 % 90, i % 3 = 0 FROM range(120) t(i);
CREATE TABLE staff (id INTEGER PRIMARY KEY, boss INTEGER REFERENCES staff (id), senior BOOLEAN);
""" + "".join(
    f"INSERT INTO staff SELECT i, CASE WHEN i > 0 THEN (i - 1) // 3 END, i % 2 = 0 FROM range({low}, {high}) t(i);"
    for low, high in ((0, 1), (1, 4), (4, 13), (13, 40), (40, 60))
)
DECLARED = """
CALL dp_protect('people', mu := 100, delta := 1e-9);
CALL dp_attribute('people', 'age', bins := [0, 20, 40, 60, 100]);
CALL dp_attribute('people', 'sex', "values" := ['F', 'M']);
CALL dp_attribute('people', 'race', low := 0, high := 3);
CALL dp_attribute('people', 'smoker', nulls := true);
CALL dp_attribute('people', 'fee', low := 0, high := 5, step := 0.5, other := true);
CALL dp_attribute('people', 'day', bins := ['2020-01-01', '2020-04-01', '2020-07-01', '2021-01-01']);
CALL dp_protect('visits', unit := 'person', max_rows := 3, rho := 500, delta := 1e-9);
CALL dp_attribute('visits', 'kind', low := 0, high := 5);
CALL dp_attributes('visits');
CALL dp_protect('cells', epsilon := 100, delta := 0);
CALL dp_attribute('cells', 'a', low := 0, high := 7);
CALL dp_attribute('cells', 'b', low := 0, high := 3);
CALL dp_attribute('cells', 'c', low := 0, high := 2);
CALL dp_protect('users', rho := 99); CALL dp_attribute('users', 'age', low := 0, high := 2);
CALL dp_attribute('users', 'town', "values" := ['a', 'b']);
CALL dp_protect('movies', rho := 99); CALL dp_attributes('movies');
CALL dp_protect('ratings', unit := 'user_id', max_rows := 5, rho := 99);
CALL dp_attribute('ratings', 'stars', low := 0, high := 4);
CALL dp_public('movies', links := 'ratings');
CALL dp_protect('pets', rho := 99); CALL dp_attributes('pets'); CALL dp_public('users', links := 'pets');
CALL dp_protect('staff', rho := 99); CALL dp_attributes('staff');
"""
GONE = "pairs"
"""A mechanism that is refused now; its stored releases are read."""

REQUESTS = {
    # Gaussian marginals
    "one marginal": "FROM dp_marginals('people', ['age', 'sex'], mu := 0.5)",
    "all pairs": "FROM dp_marginals('people', 'all 2-way', rho := 0.3)",
    "total, one and three": "FROM dp_marginals('people', [[], ['age'], ['age', 'sex', 'race']], epsilon := 1)",
    "largest variance": "FROM dp_marginals('people', 'all <=2-way', mu := 1, objective := 'max')",
    "weights": "FROM dp_marginals('people', [['age'], ['fee', 'day']], mu := 1, weights := [1, 5])",
    "independent": "FROM dp_marginals('people', [['age'], ['fee']], mu := 1, mechanism := 'gaussian')",
    "nonnegative": "FROM dp_marginals('people', 'all 2-way', rho := 0.3, postprocess := 'nonnegative')",
    "fitted": "FROM dp_marginals('people', 'all 1-way', rho := 0.01, postprocess := 'fitted')",
    "bounded people": "FROM dp_marginals('visits', [['kind'], ['kind', 'paid']], rho := 0.5)",
    "marginals by hdmm": "FROM dp_marginals('people', 'all 2-way', mu := 1, mechanism := 'hdmm')",
    # Pure DP
    "laplace": "FROM dp_marginals('cells', [['a'], ['b', 'c']], epsilon := 1, mechanism := 'laplace')",
    "pure hdmm": "FROM dp_marginals('cells', 'all 2-way', epsilon := 1)",
    "pure ranges": "FROM dp_queries('cells', [{'a': 'range', 'b': 'identity'}, {'c': 'prefix'}], epsilon := 1)",
    # Chosen by the data
    "aim": "FROM dp_marginals('people', 'all 2-way', mu := 2, mechanism := 'aim')",
    "aim, given": "FROM dp_marginals('people', 'all 2-way', mu := 2.5, mechanism := 'aim', given := ['aim'], rounds := 8)",
    "pairs": "FROM dp_marginals('people', 'all 2-way', mu := 2, mechanism := 'pairs')",
    # Queries
    "ranges": "FROM dp_queries('people', [{'age': 'range', 'sex': 'identity'}, {'race': 'prefix'}], mu := 1)",
    "conditions": "FROM dp_queries('people', {'age': ['age < 20', 'age >= 60'], 'sex': ['sex = ''F''']}, mu := 1)",
    "two attributes": "FROM dp_queries('cells', [{'a+b': 'affine'}, {'a+b': 'abs'}], epsilon := 2)",
    "hdmm": "FROM dp_queries('people', [{'race': 'width-2', 'fee': 'hierarchy-2'}], mu := 1, mechanism := 'hdmm')",
    # SQL
    "averages": "FROM dp_sql('SELECT sex, count(*) AS n, sum(race) AS s, avg(race) AS m FROM people GROUP BY sex', mu := 3)",
    "cube": "FROM dp_sql(['SELECT count(*) AS n FROM people WHERE age < 40 OR smoker', "
    "'SELECT race, sex, count(*) AS n FROM people GROUP BY CUBE (race, sex)'], mu := 1)",
    "joint condition": "FROM dp_sql('SELECT count(*) FROM cells WHERE a + b <= 5 AND c = 1', epsilon := 1)",
    # Synthetic rows; the later ones read the earlier ones
    "rows": "FROM dp_synthesize('people', mu := 5, release := 'rows')",
    "few rows": "FROM dp_synthesize('visits', rows := 50, attributes := ['kind'], rho := 1)",
    "users_syn": "FROM dp_synthesize('users', rho := 5)",
    "movies_syn": "FROM dp_synthesize('movies', rho := 5)",
    "links": "FROM dp_links('ratings', synthetic := {'users': 'users_syn', 'movies': 'movies_syn'}, rho := 5)",
    "links by the paper": "FROM dp_links('ratings', synthetic := {'users': 'users_syn', 'movies': 'movies_syn'}, "
    "rho := 4, method := 'paper', rounds := 3)",
    "pets_syn": "FROM dp_synthesize('pets', rho := 5)",
    "children": "FROM dp_links('pets', synthetic := {'pets': 'pets_syn', 'users': 'users_syn'}, rho := 5)",
    "staff_syn": "FROM dp_synthesize('staff', rho := 5)",
    "tree": "FROM dp_links('staff', synthetic := {'staff': 'staff_syn'}, rho := 5)",
    "score": "FROM dp_quality('people', 'rows', mu := 1)",
    "score of links": "FROM dp_quality('ratings', 'links', synthetic := {'users': 'users_syn', 'movies': 'movies_syn'}, rho := 1)",
}
"""Every kind of request. A name is also that of the table that keeps the rows, and of the release."""


def named(name: str) -> str:
    """The request, its release under its own name."""
    call = REQUESTS[name]
    return call if "release :=" in call else f"{call[:-1]}, release := '{name}')"


def needed(name: str) -> list[str]:
    """The requests whose tables or releases this one reads, and itself at the end."""
    earlier = list(REQUESTS)[: list(REQUESTS).index(name)]
    call = REQUESTS[name].split("release :=")[0]
    counted = call.split(", postprocess :=")[0] + ")"  # of which a reading is free
    return [other for other in earlier if f"'{other}'" in call or REQUESTS[other] == counted] + [name]


def plain(value: Any) -> Any:
    """A value as JSON holds it, which gives all digits of a float back."""
    if isinstance(value, Decimal | datetime.date | datetime.timedelta):
        return str(value)
    return value


def ask(connection: duckdb.DuckDBPyConnection, name: str) -> list[list[Any]]:
    """The rows of a request, which are kept in a table of its name."""
    connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS {WHOLE} FROM ({named(name)})')
    return [[plain(value) for value in row] for row in connection.execute(f'FROM "{name}"').fetchall()]


def started(ledger: Path) -> duckdb.DuckDBPyConnection:
    """The tables, and a ledger."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")  # rows stay in one order
    connection.execute(TABLES)
    duckdb_dp.testing.load(connection, ledger, seed=0)
    return connection


def shown(rows: list[list[Any]]) -> Any:
    """The rows if they are few; else how many, some of them, and a digest of what is no measured number in all."""
    if len(rows) <= 60:
        return rows
    exact = [[value for value in row if not isinstance(value, float)] for row in rows]
    return {
        "rows": len(rows),
        "some": rows[:: len(rows) // 20],
        "digest": hashlib.sha256(json.dumps(exact).encode()).hexdigest(),
    }


ROTATED = ("ranges", "hdmm", "cube")
"""Their strategies come from eigenvectors. Equal eigenvalues have many bases, and the processor's arithmetic decides on one of them: the
seed then draws other answers of the same distribution."""


def alike(found: Any, expected: Any) -> bool:
    """The same rows with the same standard deviations, and answers that differ by what their noise allows."""
    if isinstance(expected, dict):
        return [found["rows"], found["digest"]] == [expected["rows"], expected["digest"]] and alike(
            found["some"], expected["some"]
        )
    if len(found) != len(expected):
        return False
    for row, other in zip(found, expected, strict=True):
        *labels, answer, stddev, low, high = row
        if not like([*labels, stddev, high - low], [*other[:-4], other[-3], other[-1] - other[-2]]):
            return False
        if abs(answer - other[-4]) > 8 * stddev or not low < answer < high:
            return False
    return True


def like(found: Any, expected: Any) -> bool:
    """Equal, floats up to what another processor's arithmetic may change."""
    if isinstance(expected, float):
        return bool(found == pytest.approx(expected, rel=1e-6, abs=1e-6))
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(like, found, expected))
    if isinstance(expected, dict):
        return list(found) == list(expected) and like(list(found.values()), list(expected.values()))
    return bool(found == expected)


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ROWS.read_text())
    assert set(found) == set(REQUESTS)
    return found


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    ledger = tmp_path_factory.mktemp("fresh") / "test.dp"
    with started(ledger) as connection:
        connection.execute(DECLARED)
        yield connection, ledger


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    ledger = tmp_path_factory.mktemp("older") / "test.dp"
    shutil.copytree(LEDGER, ledger)
    with started(ledger) as connection:
        yield connection, ledger


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != GONE])
def test_same_seed_same_release(
    fresh: tuple[duckdb.DuckDBPyConnection, Path], expected: dict[str, Any], name: str
) -> None:
    connection, ledger = fresh
    drawn = json.loads(SINCE.read_text()).get(name, expected[name])
    for request in needed(name):
        duckdb_dp.testing.load(connection, ledger, seed=1 + list(REQUESTS).index(request))
        found = shown(ask(connection, request))
    assert like(found, drawn) or (name in ROTATED and alike(found, drawn))


@pytest.mark.parametrize("name", REQUESTS)
def test_stored_requests_of_older_versions(
    older: tuple[duckdb.DuckDBPyConnection, Path], expected: dict[str, Any], name: str
) -> None:
    """The same call finds the stored release and charges nothing; so does its name."""
    connection, ledger = older
    charges = len(Ledger(ledger).ledger_rows())
    now = json.loads(SINCE.read_text()).get(f"{name}, stored", expected[name])
    for request in needed(name):
        found = shown(ask(connection, request))
    assert like(found, now)
    if "postprocess" not in REQUESTS[name]:
        rows = connection.execute(f"{WHOLE} FROM dp_release('{name}')").fetchall()
        assert like(shown([[plain(value) for value in row] for row in rows]), now)
    if name.startswith("aim"):
        rows = connection.execute(f"{WHOLE} FROM dp_release('{name}', postprocess := 'unbiased')").fetchall()
        assert like(shown([[plain(value) for value in row] for row in rows]), expected[name])
    assert len(Ledger(ledger).ledger_rows()) == charges


def write(ledger: Path, names: list[str], rows: Path) -> None:
    """Draw all requests in their order, as later ones read earlier ones, and keep the rows of some."""
    with started(ledger) as writing:
        writing.execute(DECLARED)
        drawn = {}
        for number, request in enumerate(REQUESTS, 1):
            if request == GONE:
                continue
            duckdb_dp.testing.load(writing, ledger, seed=number)
            drawn[request] = shown(ask(writing, request))
            sys.stdout.write(f"{request}\n")
    kept = {name: drawn[name] for name in names} | ({} if rows == ROWS else read(LEDGER))
    rows.write_text(json.dumps(kept, indent=0, ensure_ascii=False) + "\n")


def read(ledger: Path) -> dict[str, Any]:
    """How releases of the older ledger are read now, where that has changed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(ledger, Path(folder) / "test.dp"))
        with started(copy) as reading:
            return {f"{name}, stored": shown(ask(reading, name)) for name in ("fitted", "aim", "aim, given", GONE)}


if __name__ == "__main__":
    FIXTURES.mkdir(exist_ok=True)
    if sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "test.dp", sys.argv[1:], SINCE)
    else:
        shutil.rmtree(LEDGER, ignore_errors=True)
        write(LEDGER, list(REQUESTS), ROWS)
        SINCE.write_text("{}\n")
