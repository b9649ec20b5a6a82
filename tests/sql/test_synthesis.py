"""dp_synthesize and dp_quality in SQL: columns and types, charges, releases, and what is refused."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing
from duckdb_dp.adaptive.neyman import mechanism

SYN = "dp_synthesize('people', \"rows\" := 50, mu := 20)"

TYPED = """
CREATE TABLE typed AS SELECT i AS id, i::TINYINT AS tiny, i / 8 AS real, (i / 8)::DECIMAL(8,2) AS price, i::HUGEINT AS huge,
    i::UBIGINT AS big, DATE '2020-01-01' + i::INTEGER AS day, TIMESTAMP '2020-01-01' + to_hours(i) AS at_us,
    (TIMESTAMP '2020-01-01' + to_hours(i))::TIMESTAMP_S AS at_s, (TIMESTAMP '2020-01-01' + to_hours(i))::TIMESTAMP_NS AS at_ns,
    TIME '00:00' + to_minutes(i) AS clock, 'v' || (i % 3) AS word, (i % 3)::INTEGER AS digit, (i / 8)::FLOAT AS single,
    ('v' || (i % 3))::ENUM('v0', 'v1', 'v2') AS kind, CASE WHEN i % 4 > 0 THEN i % 2 = 0 END AS flag
FROM range(100) t(i);
CALL dp_protect('typed', mu := 1000, delta := 1e-9);
CALL dp_attribute('typed', 'tiny', bins := [0, 10, 200], nulls := true);
CALL dp_attribute('typed', 'real', bins := [0, 5, 12.5]); CALL dp_attribute('typed', 'single', bins := [0, 5, 12.5]);
CALL dp_attribute('typed', 'price', bins := [0, 0.05, 13]); CALL dp_attribute('typed', 'huge', bins := [0, 50, 100]);
CALL dp_attribute('typed', 'big', bins := [0, 100, 18446744073709551615]);
CALL dp_attribute('typed', 'day', bins := ['2020-01-01', '2020-02-01', '2020-12-31']);
CALL dp_attribute('typed', 'at_us', bins := ['2020-01-01', '2020-01-02', '2020-02-01']);
CALL dp_attribute('typed', 'at_s', bins := ['2020-01-01', '2020-01-02', '2020-02-01']);
CALL dp_attribute('typed', 'at_ns', bins := ['2020-01-01', '2020-01-02', '2020-02-01']);
CALL dp_attribute('typed', 'clock', bins := ['00:00:00', '01:00:00', '12:00:00']);
CALL dp_attribute('typed', 'word', "values" := ['v0', 'v1'], other := true);
CALL dp_attribute('typed', 'digit', "values" := [0, 1], other := true);
CALL dp_attribute('typed', 'kind'); CALL dp_attribute('typed', 'flag', nulls := true);
"""


@pytest.fixture(scope="module")
def people(shared: Any) -> Any:
    """'people' with a synthetic table 'syn' beside it, made with next to no noise, and a public one that is less like it."""
    shared("CREATE TABLE syn AS FROM dp_synthesize('people', mu := 300)")
    shared("CREATE TABLE changed AS SELECT * REPLACE (CASE WHEN race = 1 THEN 'F' ELSE sex END AS sex) FROM syn")
    shared("CALL dp_public('changed')")
    return shared


def test_columns_and_types_are_the_tables_own(people: Any) -> None:
    assert people.columns(f"FROM {SYN}") == [
        ("age", "INTEGER"), ("sex", "VARCHAR"), ("race", "INTEGER"), ("smoker", "BOOLEAN"), ("private", "BOOLEAN"),
    ]  # fmt: skip
    assert people.columns("FROM dp_synthesize('people', attributes := ['Sex'], mu := 1)")[0] == ("sex", "VARCHAR")


@pytest.mark.slow
def test_every_type_comes_back_inside_its_bins(shared: Any) -> None:
    shared("; ".join(TYPED.split(";")[:-1]))
    shared("CREATE TABLE made AS FROM dp_synthesize('typed', \"rows\" := 300, mu := 100, key := 'id')")
    drawn = shared.columns("FROM made")[:-1]
    assert sorted(drawn) == sorted(shared.columns("FROM typed"))
    assert shared("SELECT min(id), max(id), count(DISTINCT id) FROM made") == [(1, 300, 300)]
    # A value outside its domain would be an error; and each falls into the cell that it was drawn for.
    errors = [row[3] for row in shared("FROM dp_quality('typed', 'made', exact := true)")]
    assert len(errors) == 3
    assert errors[0] < 0.02
    for name in ("real", "single", "price", "huge", "big", "day", "at_us", "at_s", "at_ns", "clock"):
        low, high, several = shared(f"SELECT min({name}), max({name}), count(DISTINCT {name}) > 20 FROM made")[0]
        (inside,) = shared(f"SELECT min({name}) <= {literal(high)} FROM typed WHERE {name} IS NOT NULL")[0]
        assert low is not None
        assert inside
        assert several
    assert {row[0] for row in shared("SELECT DISTINCT word FROM made")} == {"v0", "v1", "other"}
    assert {row[0] for row in shared("SELECT DISTINCT digit FROM made")} == {0, 1, None}
    assert {row[0] for row in shared("SELECT DISTINCT flag FROM made")} == {True, False, None}


def literal(value: object) -> str:
    return f"'{value}'" if not isinstance(value, int | float) else str(value)


def test_without_noise_the_marginals_are_those_of_the_table(people: Any) -> None:
    for clique in ("sex", "race", "sex, race", "smoker, race"):
        question = f"SELECT {clique}, count(*) FROM {{}} GROUP BY ALL"
        real, made = (
            Counter(dict(pairs(people(question.format("people"))))),
            Counter(dict(pairs(people(question.format("syn"))))),
        )
        assert sum((real - made).values()) <= 8
    assert people("SELECT count(*) FROM syn") == [(420,)]


def pairs(rows: list[tuple]) -> list[tuple[tuple, int]]:
    return [(row[:-1], row[-1]) for row in rows]


@pytest.mark.slow
def test_it_is_drawn_once_and_charged_once(db: Any) -> None:
    for free in (f"EXPLAIN FROM {SYN}", f"DESCRIBE FROM {SYN}", f"FROM {SYN} LIMIT 0", f"CREATE VIEW v AS FROM {SYN}"):
        db(free)
    assert db.charges() == 0
    first = db(f"FROM {SYN}")
    assert len(first) == 50
    assert db("FROM v") == first == db(f"FROM {SYN}")
    assert db("SELECT count(*) FROM v a, v b") == [(2500,)]
    assert db.charges() == 1
    assert db(f"FROM {SYN.replace('mu := 20', 'mu := 20, fresh := true')}") != first
    assert db("FROM dp_synthesize('people', \"rows\" := 51, mu := 20, release := 'more')") == db(
        "FROM dp_release('more')"
    )
    assert [row["cost"] for row in db.charged()] == [400, 400, 400]
    assert {(row["function"], row["mechanism"], row["state"]) for row in db.charged()} == {
        ("dp_synthesize", "forest", "stored")
    }


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [None, 1, 5])
def test_rounds_are_how_often_all_pairs_are_scored(
    exact: Any, monkeypatch: pytest.MonkeyPatch, rounds: int | None
) -> None:
    scored = []
    step = mechanism.step

    def counted(*args: Any) -> Any:
        scored.append(args[3])  # of how many rounds it is one
        return step(*args)

    monkeypatch.setattr(mechanism, "step", counted)
    asked = f"dp_synthesize('people', mu := 2, rounds := {rounds or 'NULL'}"
    first = exact(f"FROM {asked})")
    assert scored == [rounds or mechanism.ROUNDS] * (rounds or mechanism.ROUNDS)
    assert exact(f"FROM {asked})") == first  # the same request is read again
    assert len(scored) == (rounds or mechanism.ROUNDS)
    exact(f"FROM dp_synthesize('people', mu := 2, rounds := {(rounds or mechanism.ROUNDS) + 1})")  # another request
    assert len(scored) > (rounds or mechanism.ROUNDS)


@pytest.mark.slow
def test_keys_are_numbers_beside_the_attributes(exact: Any) -> None:
    exact(
        "CREATE TABLE shop (code VARCHAR PRIMARY KEY, open BOOLEAN); CREATE TABLE pair (a INTEGER, b INTEGER, x BOOLEAN, "
        "PRIMARY KEY (a, b)); CALL dp_protect('shop', mu := 9); CALL dp_protect('pair', mu := 9);"
        "CALL dp_attributes('shop'); CALL dp_attributes('pair'); CALL dp_attribute('pair', 'b', low := 0, high := 3)"
    )
    shop = exact("FROM dp_synthesize('shop', \"rows\" := 3, mu := 1)")
    assert [row[0] for row in shop] == ["shop-1", "shop-2", "shop-3"]
    # 'b' is an attribute, so 'a' alone tells the rows apart.
    assert [row[0] for row in exact("SELECT a FROM dp_synthesize('pair', \"rows\" := 3, mu := 1)")] == [1, 2, 3]
    assert [
        name for name, _ in exact.columns("FROM dp_synthesize('people', mu := 1, key := 'age', attributes := ['sex'])")
    ] == [
        "age",
        "sex",
        "private",
    ]
    assert "no column" in exact.refused("FROM dp_synthesize('people', mu := 1, key := 'who')")
    assert "name columns of 'people'" in exact.refused("FROM dp_synthesize('people', mu := 1, key := 'sex')")


@pytest.mark.slow
def test_an_empty_table_and_odd_rows_are_no_errors(exact: Any) -> None:
    exact("DELETE FROM people")
    # None would be told from a few by less noise only: here it could hide 2 rows (stddev 1), so about as many come out.
    assert 1 <= len(exact("FROM dp_synthesize('people', mu := 1)")) <= 5
    exact("INSERT INTO people VALUES (NULL, NULL, NULL, NULL), (999, 'X', -5, true)")
    assert len(exact("FROM dp_synthesize('people', \"rows\" := 4, mu := 2)")) == 4


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("dp_synthesize('people', mu := 1, \"rows\" := 0)", "rows is 0; it is a whole number from 1"),
        ("dp_synthesize('people', mu := 1, \"rows\" := 2.5)", "rows is 2.5"),
        ("dp_synthesize('people', mu := 1, method := 'gan')", "method 'gan' is not known"),
        ("dp_synthesize('people', mu := 1, rounds := 0)", "rounds is 0"),
        ("dp_synthesize('people', mu := 1, rounds := 21)", "rounds is 21"),
        ("dp_synthesize('people', mu := 1, rounds := 2, method := 'mst')", "method 'mst' does not take that"),
        ("dp_synthesize('people', mu := 1, attributes := ['x'])", "'people' has no column 'x'"),
        ("dp_synthesize('people', mu := 1, attributes := 'sex')", "write a list of names"),
        ("dp_synthesize('people', mu := 1, attributes := [])", "attributes is []; name some"),
        ("dp_synthesize('people', mu := 1, release := '')", "a release's name is a text"),
        ("dp_synthesize('people')", "no budget"),
        ("dp_synthesize('people', mu := 2000)", "is more than what remains"),
        ("dp_synthesize('nobody', mu := 1)", "'nobody' is not protected"),
        ("dp_quality('people', 'syn')", "no budget"),
        ("dp_quality('people', 5, mu := 1)", "the synthetic table is 5"),
        ("dp_quality('people', 'syn', exact := true, mu := 1)", "leave out the budget, or exact"),
    ],
)
def test_what_is_refused(people: Any, call: str, says: str) -> None:
    line = people.refused(f"FROM {call}")
    assert line.startswith(f"Invalid Input Error: {call.split('(')[0]}: ")
    assert says in line


def test_pure_budgets_are_refused(people: Any) -> None:
    people(
        "CREATE VIEW pure AS FROM people; CALL dp_protect('pure', epsilon := 9, delta := 0); CALL dp_attribute('pure', 'smoker')"
    )
    assert "no pure epsilon" in people.refused("FROM dp_synthesize('pure', epsilon := 1)")
    assert "no pure epsilon" in people.refused("FROM dp_quality('pure', 'syn', epsilon := 1)")


# dp_quality


def own_errors(loaded: Any, columns: list[str]) -> float:
    """|p - q|_1 of one marginal, by DuckDB itself."""
    names = ", ".join(columns)
    shares = "SELECT {names}, count(*) / sum(count(*)) OVER () AS share FROM {table} GROUP BY ALL"
    both = " FULL JOIN ".join(
        f"({shares.format(names=names, table=table)}) {table}" for table in ("coded", "coded_syn")
    )
    on = " AND ".join(f"coded.{c} IS NOT DISTINCT FROM coded_syn.{c}" for c in columns)
    return loaded(f"SELECT sum(abs(coalesce(coded.share, 0) - coalesce(coded_syn.share, 0))) FROM {both} ON {on}")[0][0]


def test_the_exact_score_is_the_distance_and_says_that_it_is_not_private(people: Any) -> None:
    before = people.charges()
    for table in ("people", "changed"):
        name = "coded" if table == "people" else "coded_syn"
        people(
            f"CREATE TEMP VIEW {name} AS SELECT * REPLACE (CASE WHEN age < 20 THEN 0 WHEN age < 40 THEN 1 WHEN age < 60 THEN 2 ELSE 3 END AS age) FROM {table}"
        )
    rows = people("FROM dp_quality('people', 'changed', exact := true, each := true)")
    assert {row[-1] for row in rows} == {"NOT PRIVATE"}
    for _, marginal, error, stddev, _ in rows:
        assert error == pytest.approx(own_errors(people, marginal.split(", ")), abs=1e-9)
        assert stddev == 0
    assert len(rows) == 4 + 6 + 4
    assert people.charges() == before
    summary = people(
        "SELECT attributes, marginals, error, worst_error FROM dp_quality('people', 'changed', exact := true)"
    )
    assert [row[:2] for row in summary] == [(1, 4), (2, 6), (3, 4)]
    assert summary[1][2] == pytest.approx(sum(row[2] for row in rows if row[1].count(",") == 1) / 6)


def test_pairs_that_are_too_large_are_said_to_be_left_out(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a score of single attributes alone passes for one of the table."""
    cells = dict(people("SELECT attribute, count(*) FROM dp_domain('people') GROUP BY ALL"))
    (largest, *_), every = sorted(cells.values(), reverse=True), math.comb(len(cells), 2)
    monkeypatch.setattr("duckdb_dp.synthesis.scores.CELLS", largest)
    rows = people("SELECT attributes, marginals, note FROM dp_quality('people', 'changed', exact := true)")
    held = {order: marginals for order, marginals, _ in rows}
    assert held[1] == len(cells)
    assert held.get(2, 0) < every
    assert {note for *_, note in rows} == {rows[0][2]}
    assert rows[0][2].startswith(f"NOT PRIVATE; {every - held.get(2, 0)} of {every} pairs and ")


def test_a_protected_table_is_no_synthetic_one(people: Any) -> None:
    """Else an error would say how many of its rows lie outside a domain that anybody may declare anew."""
    before = people.charges()
    for more in ("mu := 1", "exact := true"):
        assert "is no synthetic table" in people.refused(f"FROM dp_quality('people', 'people', {more})")
    assert people.charges() == before


def test_the_cells_of_the_worst_and_of_a_typical_marginal(people: Any) -> None:
    before = people.charges()
    each = people("FROM dp_quality('people', 'changed', exact := true, each := true)")
    rows = people("FROM dp_quality('people', 'changed', exact := true, cells := true)")
    assert {row[-1] for row in rows} == {"NOT PRIVATE"}
    for order in range(3):
        errors = {marginal: error for _, marginal, error, *_ in each if marginal.count(",") == order}
        shown = {which: name for _, which, name, *_ in rows if name.count(",") == order}
        assert errors[shown["worst"]] == max(errors.values())
        assert errors[shown["typical"]] == sorted(errors.values())[len(errors) // 2]
    shares = dict(people("SELECT sex, count(*) / sum(count(*)) OVER () FROM people GROUP BY sex"))
    sexes = {cell: original for _, _, name, cell, original, *_ in rows if name == "sex"}
    for label, share in sexes.items():
        assert share == pytest.approx(shares.get(label, 0))
    assert people.charges() == before
    assert "add exact := true" in people.refused("FROM dp_quality('people', 'changed', mu := 1, cells := true)")
    assert "give one of them" in people.refused(
        "FROM dp_quality('people', 'changed', exact := true, each := true, cells := true)"
    )


@pytest.mark.slow
def test_the_private_score_is_charged_once_and_is_about_the_table_that_it_saw(db: Any) -> None:
    db("CREATE TABLE syn AS FROM dp_synthesize('people', mu := 20)")
    call = "dp_quality('people', 'syn', mu := 30, release := 'score')"
    rows = db(f"FROM {call}")
    exact = db("FROM dp_quality('people', 'syn', exact := true)")
    for (_, order, count, error, stddev, *_), real in zip(rows, exact, strict=True):
        assert (order, count) == real[1:3]
        assert abs(error - real[3]) < 6 * stddev
        assert 0 < stddev < 0.01
    assert db(f"FROM {call}") == rows == db("FROM dp_release('score')")
    assert db.charges() == 2
    db("UPDATE syn SET sex = 'F' WHERE race = 2")
    assert "'syn' does not hold rows as" in db.refused(f"FROM {call}")
    db("CREATE OR REPLACE TABLE syn AS FROM dp_synthesize('people', mu := 21)")  # known, and others
    assert "synthetic tables changed since release" in db.refused(f"FROM {call}")
    db("UPDATE syn SET sex = 'X'")
    assert "'syn' does not hold rows as" in db.refused("FROM dp_quality('people', 'syn', mu := 1)")
    db("CALL dp_public('syn')")
    assert "'sex' outside its declared domain" in db.refused("FROM dp_quality('people', 'syn', mu := 1)")
    db("DELETE FROM syn")
    assert 'syn" has no rows' in db.refused("FROM dp_quality('people', 'syn', mu := 1)")


def test_on_a_database_file(tmp_path: Path) -> None:
    """Keys are read from the file's catalog, and another process reads the same rows."""
    path = tmp_path / "a.duckdb"
    with duckdb.connect(path) as con:
        con.execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, b BOOLEAN); INSERT INTO t SELECT i, i % 3 = 0 FROM range(60) t(i)"
        )
        duckdb_dp.testing.load(con, seed=1)
        con.execute("CALL dp_protect('t', rho := 9); CALL dp_attributes('t')")
        first = con.execute("FROM dp_synthesize('t', rho := 1)").fetchall()
    with duckdb.connect(path) as con:
        duckdb_dp.testing.load(con, seed=2)
        assert con.execute("FROM dp_synthesize('t', rho := 1)").fetchall() == first
    assert [row[0] for row in first] == list(range(1, len(first) + 1))


def test_a_key_of_few_values_numbers_rows_below_1_after_its_greatest(exact: Any) -> None:
    exact(
        "CREATE TABLE shelf (id TINYINT PRIMARY KEY, sex VARCHAR); INSERT INTO shelf SELECT i, 'F' FROM range(-20, 120) t(i)"
    )
    exact("CALL dp_protect('shelf', rho := 1000); CALL dp_attribute('shelf', 'sex', \"values\" := ['F', 'M'])")
    made = exact("SELECT id FROM dp_synthesize('shelf', rho := 500)")
    assert [row[0] for row in made] == [*range(1, 128), *range(-128, len(made) - 255)]
    assert abs(len(made) - 140) <= 1


@pytest.mark.parametrize("name", ["Ä", "Straße É", "ΑΩ", "İ", "plain"])
def test_columns_of_any_letters_are_synthesised(exact: Any, name: str) -> None:
    """Names are compared without regard to case in ASCII alone, as DuckDB does."""
    exact(f'CREATE TABLE named AS SELECT i % 3 AS "{name}", i % 2 AS other FROM range(300) t(i)')
    exact("CALL dp_protect('named', mu := 100, delta := 1e-9)")
    for column in (name, "other"):
        exact(f"CALL dp_attribute('named', '{column}', low := 0, high := 2)")
    rows = exact(f"SELECT \"{name}\", count(*) FROM dp_synthesize('named', mu := 20) GROUP BY 1 ORDER BY 1")
    assert [value for value, _ in rows] == [0, 1, 2]
    exact("CREATE TABLE named_syn AS FROM dp_synthesize('named', mu := 20)")
    assert exact("SELECT count(*) FROM dp_quality('named', 'named_syn', mu := 1)") != [(0,)]
