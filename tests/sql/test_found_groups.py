"""GROUP BY of columns that nobody has declared: their values are found above a threshold, the rest is 'other'; two charges, one price."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import duckdb_dp.testing
from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.answers import direct_plan
from duckdb_dp.plan.clipping import by_norm
from duckdb_dp.sql import execute
from tests.conftest import Loaded

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE visits AS
SELECT i AS id, i % 1500 AS person, CASE WHEN i % 50 = 0 THEN NULL WHEN i % 7 = 0 THEN 'rare' || i ELSE 'city' || (i % 5) END AS city,
    i % 3 AS score, DATE '2024-01-01' + (i % 90)::INTEGER AS day, (i * 7) % 50 AS paid, i % 2 = 0 AS ok,
    (['sad', 'happy'][1 + i % 2])::mood AS mood
FROM range(3000) t(i);
CREATE TABLE alone AS SELECT * FROM visits;
"""
DECLARED = [
    "CALL dp_protect('visits', unit := 'person', max_rows := 2, epsilon := 1000, delta := 1e-9, discovery_delta := 5e-10)",
    "CALL dp_attribute('visits', 'day', low := '2024-01-01', high := '2024-03-30')",
    "CALL dp_protect('alone', epsilon := 1, delta := 1e-9)",
]
CASES = [
    ("SELECT city, count(*) AS n FROM visits GROUP BY city", {"city": "CASE WHEN city LIKE 'city%' THEN city ELSE 'other' END"}),
    ("SELECT city, score, count(*) AS n, sum(paid) AS s FROM visits WHERE paid BETWEEN 0 AND 50 GROUP BY city, score",
     {"city": "CASE WHEN city LIKE 'city%' THEN city ELSE 'other' END", "score": "score::VARCHAR"}),
    ("SELECT month(day) AS month, city, count(*) AS n FROM visits GROUP BY ALL",
     {"city": "CASE WHEN city LIKE 'city%' THEN city ELSE 'other' END"}),
    ("SELECT city, day, count(*) AS n FROM visits WHERE day < '2024-01-04' GROUP BY city, day",
     {"city": "CASE WHEN city LIKE 'city%' THEN city ELSE 'other' END"}),
    ("SELECT city, month(day) AS month, score, count(DISTINCT person) AS n FROM visits GROUP BY 1, 2, 3",
     {"city": "CASE WHEN city LIKE 'city%' THEN city ELSE 'other' END", "score": "score::VARCHAR"}),
    ("SELECT city, count(*) AS n, sum(count(*)) OVER () AS total FROM visits GROUP BY city",
     {"city": "CASE WHEN city LIKE 'city%' THEN city ELSE 'other' END"}),
    ("SELECT ok, mood, count(*) AS n FROM visits GROUP BY ok, mood", {}),
]  # fmt: skip


def made(folder: Path, exact: bool) -> Loaded:
    connection = duckdb.connect()
    connection.execute(TABLES)
    if exact:
        duckdb_dp.testing.load_exact(connection, folder)
    else:
        duckdb_dp.testing.load(connection, folder, seed=3)
    loaded = Loaded(connection, folder)
    for statement in DECLARED:
        loaded(statement)
    return loaded


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    loaded = made(tmp_path_factory.mktemp("found") / "l.dp", True)
    yield loaded
    loaded.connection.close()


def answers(loaded: Loaded, call: str, parameters: list[Any], columns: list[str]) -> set[tuple[str, ...]]:
    """The rows that are not empty, as text."""
    asked = loaded.connection.execute(call, parameters)
    names = [column[0] for column in asked.description or []]
    shown = [[row[names.index(name)] for name in columns] for row in asked.fetchall()]
    numbers = [place for place, name in enumerate(columns) if name in ("n", "s", "total")]
    kept = [row for row in shown if abs(row[numbers[0]]) > 0.5]
    return {tuple(str(round(x)) if i in numbers else str(x) for i, x in enumerate(row)) for row in kept}


@pytest.mark.some(2)
@pytest.mark.parametrize("case", CASES, ids=[str(place) for place in range(len(CASES))])
def test_groups_are_those_found_and_the_rest(exact: Loaded, case: tuple[str, dict[str, str]]) -> None:
    """Both charges are what was typed; the same call is free; values that are known already give the same sums."""
    select, shown = case
    epsilon = 3 + CASES.index(case) / 100
    columns = [name for name, _ in exact.columns(select)]
    call = "FROM dp_sql(?, epsilon := ?)"
    before = exact.charged()
    found = answers(exact, call, [select, epsilon], columns)
    replaced = ", ".join(f"{text} AS {name}" for name, text in shown.items())
    truth = select.replace(
        "FROM visits", f"FROM (SELECT * REPLACE ({replaced}) FROM visits)" if shown else "FROM visits"
    )
    assert found == answers(exact, truth, [], columns)
    charges = exact.charged()[len(before) :]
    assert [charge["function"] for charge in charges] == ["dp_discover"] * len(shown) + ["dp_sql"]
    total = exact("SELECT epsilon FROM dp_explain('visits', 'SELECT count(*) FROM visits', epsilon := ?)", [epsilon])[
        0
    ][0]
    assert total == pytest.approx(epsilon)
    mus = [charge["mu"] ** 2 for charge in charges]
    whole = exact("SELECT mu FROM dp_explain('visits', 'SELECT count(*) FROM visits', epsilon := ?)", [epsilon])[0][0]
    assert sum(mus) == pytest.approx(whole**2)
    assert answers(exact, call, [select, epsilon], columns) == found
    assert len(exact.charged()) == len(before) + len(charges)
    assert answers(exact, "FROM dp_sql(?, epsilon := ?, fresh := true)", [select, epsilon], columns) == found


def test_a_statement_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Values that were found and charged before are not charged again."""
    loaded = made(tmp_path / "l.dp", False)
    select = CASES[0][0]
    rows = loaded("SELECT budget_share, mu FROM dp_explain('visits', ?, epsilon := 3)", [select])
    assert [share for share, _ in rows] == pytest.approx([0.3, 0.7])
    whole = loaded("SELECT mu FROM dp_explain('visits', 'SELECT count(*) FROM visits', epsilon := 3)")[0][0]
    loaded("SELECT count(*) FROM dp_discover('visits', 'city', max_values := 2, mu := ?)", [(0.3 * whole**2) ** 0.5])
    assert loaded.charges() == 1
    loaded("SELECT count(*) FROM dp_sql(?, epsilon := 3)", [select])
    assert loaded.charges() in (2, 3)  # mu is typed with fewer digits than epsilon gives


def test_what_cannot_be_found_is_refused_before_any_charge(tmp_path: Path) -> None:
    loaded = made(tmp_path / "l.dp", False)
    assert "'city' has no declared domain" in loaded.refused(
        "FROM dp_sql('SELECT city, count(*) FROM alone GROUP BY city', epsilon := 1)"
    )
    assert "direct" in loaded.refused("FROM dp_sql(?, epsilon := 1, mechanism := 'hdmm')", [CASES[0][0]])


@pytest.mark.parametrize(
    ("select", "route"),
    [
        ("SELECT day, count(*) FROM visits GROUP BY day", "planned: declared cells"),
        ("SELECT count(*) FROM visits WHERE city LIKE 'c%'", "direct, not planned: 'city' has no declared domain"),
        ("SELECT day, avg(paid) FROM visits WHERE paid BETWEEN 0 AND 9 GROUP BY day", "direct, not planned"),
    ],
)
def test_the_route_has_a_reason(exact: Loaded, select: str, route: str) -> None:
    rows = exact("SELECT route FROM dp_explain('visits', ?, epsilon := 1)", [select])
    assert all(found.startswith(route) for (found,) in rows)
    assert rows


def test_too_little_budget_for_both_charges_nothing(tmp_path: Path) -> None:
    """The values alone would be affordable."""
    loaded = made(tmp_path / "l.dp", False)
    loaded("SELECT count(*) FROM dp_sql('SELECT count(*) FROM visits', epsilon := 990)")
    assert "nothing was charged" in loaded.refused("FROM dp_sql(?, epsilon := 400)", [CASES[0][0]])


def test_the_values_of_all_columns_and_the_sums_are_affordable_or_nothing_is_charged(
    db: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each column alone would be, with the sums; so too of what is kept for thresholds."""
    db(
        "CREATE TABLE t AS SELECT i % 2000 AS u, 'a' || i % 3 AS x, 'b' || i % 4 AS y, 'c' || i % 2 AS z FROM range(6000) r(i)"
    )
    db("CALL dp_protect('t', unit := 'u', max_rows := 3, mu := 1, discovery_delta := 1e-6)")
    select = "SELECT x, y, count(*) FROM t GROUP BY x, y"
    for mu in (1.01, 1.1, 1.18):
        db.refused("FROM dp_sql(?, mu := ?)", [select, mu])
        assert db.charges() == 0
    assert len(db("FROM dp_sql(?, mu := 0.5)", [select])) == 20
    monkeypatch.setattr(Ledger, "discovery_remaining", lambda ledger, dataset: 1e-12)
    before = db.charges()
    assert "of discovery_delta" in db.refused("FROM dp_sql(?, mu := 0.4)", [select])
    assert db.charges() == before


@pytest.mark.parametrize(("values", "least"), [(1, 35), (20, 166)])
def test_thresholds_are_those_of_the_design(tmp_path: Path, values: int, least: int) -> None:
    """At (1, 1e-9), half of it for thresholds: a value that so many units hold is found with probability one half."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 100 AS person, 'a' AS x FROM range(1000) t(i)")
        duckdb_dp.testing.load(connection, tmp_path / "l.dp", seed=1)
        loaded = Loaded(connection, tmp_path / "l.dp")
        loaded(
            "CALL dp_protect('t', unit := 'person', max_rows := 20, epsilon := 1, delta := 1e-9, discovery_delta := 5e-10)"
        )
        asked = "SELECT threshold FROM dp_explain('t', {'discover': 'x', 'max_values': ?}, epsilon := 1)"
        assert round(loaded(asked, [values])[0][0]) == least


AUTO = [
    "SELECT city, count(*) AS n, median(paid) AS m, sum(paid) AS s FROM visits WHERE score < 2 GROUP BY city ORDER BY n DESC LIMIT 3",
    "SELECT city, count(*) AS n, count(DISTINCT person) AS p, median(paid) AS m, avg(paid) AS a FROM visits WHERE score < 2 GROUP BY city",
    "SELECT month(day) AS month, city, score, sum(paid) AS s, count(DISTINCT id % 9) AS k FROM visits GROUP BY ALL",
    "SELECT month(day) AS month, city, score, count(DISTINCT id % 9) AS k FROM visits GROUP BY ALL ORDER BY k LIMIT 3",
    "SELECT left(city, 0) || id AS nobody, count(*) AS r FROM visits GROUP BY nobody ORDER BY r DESC LIMIT 3",
    "SELECT city, upper(city) AS u, stddev(paid) AS d FROM visits WHERE day < '2024-02-01' GROUP BY city, u",
    "SELECT day, score % 2 AS odd, count(id) AS n FROM visits WHERE day < '2024-01-09' GROUP BY day, odd",
    "SELECT left(city, 0) || id AS nobody, count(DISTINCT person) AS n, count(*) AS r FROM visits GROUP BY nobody",
]
MEMBERS = [
    "SELECT p.town, count(*) AS n, sum(v.paid) AS s FROM calls v JOIN persons p ON v.who = p.id WHERE v.paid BETWEEN 0 AND 49 GROUP BY p.town",
    "SELECT town, city, count(*) AS n FROM calls JOIN persons ON who = persons.id GROUP BY ALL",
    "SELECT upper(city) AS big, count(*) AS n FROM calls GROUP BY big",
    "SELECT k // 2 AS half, count(*) AS n FROM (SELECT who, count(*) AS k FROM calls GROUP BY who) GROUP BY half",
    "SELECT mood, ok IN (true) AS yes, count(*) AS n FROM calls JOIN persons p ON who = p.id GROUP BY ALL",
]


class SeenError(Exception):
    """Raised when the sums are known."""


def _picked(clip: Any) -> int:
    return min(int(np.searchsorted(clip.candidates, 2.0)), clip.size - 1)


def seen(loaded: Loaded, select: str) -> tuple[Any, Any, Any]:
    """The plan, the exact sums and the owners by norm of a call, which is not charged but for the values that it finds."""
    caught: list[Any] = []
    owners: dict[str, Any] = {}

    def note(asked: Any, sums: Any) -> Any:
        clips = by_norm(direct_plan(asked).clips)
        owners.update({clip.name: sums.owners(clip.sums[0], clip.size) for clip in clips if clip.chosen})
        return clips

    def choose(_session: object, asked: Any, _name: object, _key: object, sums: Any) -> list[int]:
        return [choice for choice in map(_picked, note(asked, sums)) for _ in range(3)]

    def stop(_session: object, asked: Any, sums: Any, *_: object, **__: object) -> None:
        if sums.by_cells:  # read at once
            note(asked, sums)
        caught.append((direct_plan(asked), sums, owners))
        raise SeenError

    drawing = patch.object(execute, "_draw", stop)
    with drawing, patch.object(execute, "_choose", choose), pytest.raises(duckdb.Error, match="SeenError"):
        loaded("FROM dp_sql(?, epsilon := 3)", [select])
    return caught[0]


@pytest.mark.parametrize("select", [AUTO[0], *(pytest.param(one, marks=pytest.mark.slow) for one in AUTO[1:])])
def test_found_groups_are_clipped_as_known_ones_are(tmp_path: Path, select: str) -> None:
    """The statement that finds the groups adds up the same as the one after it, which knows them."""
    with duckdb.connect() as connection:
        connection.execute(TABLES)
        duckdb_dp.testing.load_exact(connection, tmp_path / "l.dp")
        loaded = Loaded(connection, tmp_path / "l.dp")
        loaded(
            "CALL dp_protect('visits', unit := 'person', max_rows := 'auto', epsilon := 1000, delta := 1e-9, discovery_delta := 5e-10)"
        )
        loaded("CALL dp_attribute('visits', 'day', low := '2024-01-01', high := '2024-03-30')")
        (plan, first, norms), (again, second, norms_again) = seen(loaded, select), seen(loaded, select)
    assert plan.parts == again.parts
    assert {one["function"] for one in loaded.charged()} == {"dp_discover"}
    for clip in plan.clips:
        if clip.chosen:
            owners = [sums.owners(clip.sums[0], clip.size) for sums in (first, second)] if clip.rows else []
            owners = owners or [norms[clip.name], norms_again[clip.name]]
            assert owners[0].sum() > 0
            assert (owners[0] == owners[1]).all()
    seen_any = False
    for measurement in plan.measurements:
        clip = plan.clip_of(measurement.clique)
        assert clip is not None
        name = measurement.clique
        for choice in {0, clip.size // 2, clip.size - 1} if clip.rows else {0}:
            totals = [
                sums.first_rows(name, choice) if clip.rows else _total(sums, clip, name) for sums in (first, second)
            ]
            exact = clip.rows or first.by_cells == second.by_cells
            assert (totals[0] == totals[1]).all() if exact else totals[0] == pytest.approx(totals[1], rel=1e-8)
            seen_any = seen_any or bool(totals[0].any())
    assert seen_any


def _total(sums: Any, clip: Any, name: Any) -> Any:
    return sums.cut(name, _picked(clip)) if clip.chosen and sums.by_cells else sums.marginal(name)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("members") / "l.dp"
    with duckdb.connect() as connection:
        connection.execute(TABLES)
        connection.execute(
            "CREATE TABLE persons AS SELECT i AS id, CASE WHEN i % 11 = 0 THEN 'only' || i ELSE 'town' || i % 3 END AS town FROM range(1500) t(i);"
            "ALTER TABLE persons ADD PRIMARY KEY (id); CREATE TABLE calls AS SELECT * RENAME (person AS who) FROM visits"
        )
        duckdb_dp.testing.load_exact(connection, folder)
        loaded = Loaded(connection, folder)
        loaded("CALL dp_link('calls', \"references\" := {'who': 'persons.id'})")
        loaded(
            "CALL dp_protect(['persons', 'calls'], unit := 'persons.id', max_rows := {'calls': 2}, epsilon := 1000, delta := 1e-9, "
            "discovery_delta := 5e-10)"
        )
        yield loaded


@pytest.mark.parametrize("select", [*MEMBERS[:2], *(pytest.param(one, marks=pytest.mark.slow) for one in MEMBERS[2:])])
def test_groups_of_joined_rows_are_found(members: Loaded, select: str) -> None:
    """Without noise they are those of many units, and the rest; the second call knows them, and costs nothing."""
    before = members.charged()
    columns = [name for name, _ in members.columns(select)]
    found = answers(members, "FROM dp_sql(?, epsilon := 3)", [select], columns)
    rare = "CASE WHEN {0} LIKE 'rare%' OR {0} IS NULL THEN 'other' ELSE {0} END AS {0}"
    only = "CASE WHEN town LIKE 'only%' THEN 'other' ELSE town END AS town"
    truth = select.replace("FROM calls", f"FROM (SELECT * REPLACE ({rare.format('city')}) FROM calls)", 1)
    truth = truth.replace("JOIN persons", f"JOIN (SELECT * REPLACE ({only}) FROM persons)").replace(
        ") ON who = persons", ") persons ON who = persons"
    )
    truth = truth.replace("upper(city)", "CASE city WHEN 'other' THEN city ELSE upper(city) END")
    assert found == answers(members, truth, [], columns)
    charges = [one["function"] for one in members.charged()[len(before) :]]
    assert charges[-1] == "dp_sql"
    assert set(charges[:-1]) <= {"dp_discover"}
    assert answers(members, "FROM dp_sql(?, epsilon := 3)", [select], columns) == found
    assert len(members.charged()) == len(before) + len(charges)


def test_columns_of_one_name_in_a_list_are_found_apart_or_together(members: Loaded) -> None:
    """The same column of two SELECTs is found once; what only has the same name is another column."""
    same = ["SELECT city, count(*) AS n FROM calls JOIN persons p ON who = p.id GROUP BY city"] * 2
    same[1] = same[1].replace("GROUP", "WHERE score = 1 GROUP")
    before = members.charges()
    rows = members("SELECT query, city, n FROM dp_sql(?, epsilon := 4)", [same])
    assert members.charges() == before + 2
    assert {row[1] for row in rows if row[0] == 1} == {row[1] for row in rows if row[0] == 2}
    other = [same[0], same[0].replace("SELECT city", "SELECT town AS city").replace("BY city", "BY town")]
    rows = members("SELECT query, city, n FROM dp_sql(?, epsilon := 4)", [other])
    names = [{row[1] for row in rows if row[0] == number} for number in (1, 2)]
    assert names[0] & names[1] == {"other"}


@pytest.mark.slow
def test_columns_that_conditions_list_keep_their_own_values(members: Loaded) -> None:
    """Of two SELECTs each has the groups that its own condition lists, joined or not, beside planned ones or not."""
    for table in ("visits", "calls JOIN persons ON who = persons.id"):
        asked = [
            f"SELECT city, count(*) AS n FROM {table} WHERE city IN ({cities}) GROUP BY city"
            for cities in ("'city3'", "'city1', 'city2'", "'city1', 'city2', 'none'", "'city3'")
        ]
        if table == "visits":
            members(
                "CREATE OR REPLACE TABLE alone AS FROM visits; CALL dp_protect('alone', epsilon := 100, delta := 1e-9, another := true)"
            )
            members("CALL dp_attribute('alone', 'score', low := 0, high := 2)")
            asked = [
                one.replace("visits", "alone")
                for one in [*asked, "SELECT score AS city, count(*) AS n FROM visits GROUP BY score"]
            ]
        rows = members("SELECT query, city, round(n) FROM dp_sql(?, epsilon := 2)", [asked])
        truth = [
            row
            for number, one in enumerate(asked, 1)
            for row in members(f"SELECT {number}, city::VARCHAR, n FROM ({one}) ORDER BY city")
        ]
        assert sorted(row for row in rows if row[1] != "none") == sorted(truth)


def test_found_numbers_are_sorted_as_numbers(exact: Loaded) -> None:
    select = "SELECT score * 5 AS five, count(*) AS n FROM visits GROUP BY five ORDER BY five"
    rows = exact("SELECT five FROM dp_sql(?, epsilon := 6)", [select])
    assert rows == [(0,), (5,), (10,), (None,)]
    rows = exact("SELECT five FROM dp_sql(?, epsilon := 6)", [f"{select} DESC"])
    assert rows == [(10,), (5,), (0,), (None,)]


KEYS = {
    "TINYINT": "(i % 9 - 4)::TINYINT",
    "UBIGINT": "(i % 9 + 18446744073709551600)::UBIGINT",
    "HUGEINT": "((i % 9)::HUGEINT << 90)",
    "DOUBLE": "pow(10.0, 4 * (i % 9)) / 7 * (i % 9)",
    "FLOAT": "((i % 9) / 10)::FLOAT",
    "DECIMAL(9,2)": "((i % 9) / 8)::DECIMAL(9, 2)",
    "DATE": "DATE '1999-12-28' + (i % 9)::INTEGER",
    "TIMESTAMP": "TIMESTAMP '1999-12-28 01:02:03.5' + INTERVAL 9 HOUR * (i % 9)",
    "TIME": "TIME '08:00:00.25' + INTERVAL 1 HOUR * (i % 9)",
    "VARCHAR": "'k' || (i % 9)",
}


@pytest.mark.some(2)
@pytest.mark.parametrize("stored", [False, True], ids=["first", "stored"])
@pytest.mark.parametrize("type_", KEYS)
def test_what_is_found_has_its_own_type_and_conditions_hold_for_it(tmp_path: Path, type_: str, stored: bool) -> None:
    """Of every type: the same groups as DuckDB's, in its order, above and below, and one of all others, which is last."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {KEYS[type_]} AS k, i % 9 AS j FROM range(1800) r(i)")
        duckdb_dp.testing.load_exact(connection, tmp_path / "l.dp")
        connection.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, discovery_delta := 5e-10)")
        third = connection.execute("SELECT DISTINCT k FROM t ORDER BY k LIMIT 1 OFFSET 2").fetchall()[0][0]
        third = f"CAST('{third}' AS {type_})"
        for select in (
            "SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY k",
            f"SELECT k, count(*) AS n FROM t WHERE k > {third} GROUP BY k ORDER BY k DESC",
            f"SELECT k, count(*) AS n FROM t WHERE k <> {third} AND j < 7 GROUP BY k ORDER BY k",
            f"SELECT k, n FROM (SELECT k, count(*) AS n FROM t WHERE k <= {third} GROUP BY k) WHERE n > 1 ORDER BY k DESC LIMIT 2",
            "SELECT k, count(*) AS n, row_number() OVER (ORDER BY k) AS place FROM t GROUP BY k ORDER BY k",
        ):
            call = "FROM dp_sql(?, epsilon := 9)"
            if stored:
                connection.execute(call, [select])
            asked = connection.execute(call, [select])
            names = [column[0] for column in asked.description]
            kept = ["k", "n", *(["place"] if "place" in names else [])]
            found = [tuple(row[names.index(name)] for name in kept) for row in asked.fetchall()]
            truth = connection.execute(select)
            assert asked.description[0][1] == truth.description[0][1]
            expected = truth.fetchall()
            others = [row for row in found if row[0] in (None, "other")]
            kept = [row for row in found if row[0] not in (None, "other") and ("j < 7" not in select or row[1])]
            assert kept == expected
            assert len(others) == (0 if "n > 1" in select else 1)
            assert all(row[1] == 0 for row in others)


@pytest.mark.some(2)
@pytest.mark.parametrize("type_", KEYS)
def test_where_no_value_is_found_there_is_one_group(tmp_path: Path, type_: str) -> None:
    """Of every type, also the second time; columns may be called as one likes."""
    with duckdb.connect() as connection:
        wide = KEYS[type_].replace("i % 9", "i % 200" if type_ == "TINYINT" else "i")
        wide = "(i % 128)::TINYINT" if type_ == "TINYINT" else wide.replace("4 * (i)", "(i)")
        wide = {"HUGEINT": "i::HUGEINT << 90", "UBIGINT": "18446744073709551000 + i"}.get(type_, wide)
        connection.execute(
            f"CREATE TABLE t AS SELECT TRY_CAST({wide} AS {type_}) AS v, i % 2 AS p FROM range(300) r(i)"
        )
        duckdb_dp.testing.load_exact(connection, tmp_path / "l.dp")
        connection.execute("CALL dp_protect('t', epsilon := 1000, delta := 1e-9, discovery_delta := 5e-10)")
        for _ in range(2):
            for select in (
                "SELECT v, count(*) AS n FROM t GROUP BY v",
                "SELECT p, v, count(*) AS n FROM t GROUP BY p, v",
            ):
                asked = connection.execute("FROM dp_sql(?, epsilon := 2)", [select])
                place = [column[0] for column in asked.description].index("n")
                rows = asked.fetchall()
                assert {row[place - 1] for row in rows} == {"other" if type_ == "VARCHAR" else None}
                assert sum(row[place] for row in rows) == 300
                if "p, v" in select:
                    assert {row[0]: row[place] for row in rows if row[0] is not None} == {0: 150, 1: 150}


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT score % 2 AS odd, count(*) AS n FROM visits WHERE score % 2 > 0 AND paid > 3 GROUP BY odd",
        "SELECT score, city, count(*) AS n FROM visits WHERE score + length(city) > 6 GROUP BY GROUPING SETS (score, (score, city))",
        "SELECT score + 1 AS more, count(*) AS n FROM visits WHERE score > 0 GROUP BY score HAVING score < 2",
    ],
)
def test_conditions_on_what_is_found_leave_groups_out(exact: Loaded, statement: str) -> None:
    asked = exact.connection.execute("FROM dp_sql(?, epsilon := 8)", [statement])
    place = [column[0] for column in asked.description].index("n") + 1
    found = {row[:place] for row in asked.fetchall() if None not in row[:1] and "other" not in row}
    truth = set(exact.connection.execute(statement).fetchall())
    assert {row for row in found if row[-1]} == {row for row in truth if "rare" not in str(row)}
    if "length" not in statement:
        assert len(found) == len(truth)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT score, count(*) AS n FROM visits WHERE score IN (1, 2) GROUP BY score",
        "SELECT score, count(*) AS n FROM visits WHERE score = 1 GROUP BY score",
        "SELECT score, sum(paid) AS n FROM visits WHERE score BETWEEN 0 AND 2 AND paid BETWEEN 0 AND 50 GROUP BY score",
        "SELECT city, score, count(*) AS n FROM visits WHERE city = 'city1' AND score >= 1 AND score <= 2 GROUP BY ALL",
        "SELECT k, n FROM (SELECT score AS k, count(*) AS n FROM visits WHERE score IN (1, 2) GROUP BY k) WHERE k > 1",
    ],
)
def test_groups_that_a_condition_lists_are_not_found(exact: Loaded, statement: str) -> None:
    kept = exact.connection.execute(
        "SELECT discovery_delta_remaining FROM dp_budget() WHERE dataset = 'visits'"
    ).fetchall()
    asked = exact.connection.execute("FROM dp_sql(?, epsilon := 100)", [statement])
    names = [column[0] for column in asked.description]
    place = 1 + names.index("n")
    rows = [row[:place] for row in asked.fetchall()]
    truth = exact.connection.execute(statement).fetchall()
    assert [row[:-1] for row in sorted(rows)] == [row[:-1] for row in sorted(truth)]
    assert [row[-1] for row in sorted(rows)] == pytest.approx([float(row[-1]) for row in sorted(truth)], abs=0.5)
    assert (
        exact.connection.execute(
            "SELECT discovery_delta_remaining FROM dp_budget() WHERE dataset = 'visits'"
        ).fetchall()
        == kept
    )


def test_in_which_order_columns_are_found_does_not_tell_of_the_rows(tmp_path: Path) -> None:
    """The ledger shows the order: DuckDB's would depend on how many rows there are, and on whether a condition may hold for any of them."""
    select = (
        "SELECT left(v.c, 1) AS g, x.b AS h, p.a, count(*) AS n FROM v JOIN v x ON v.vid = x.vid JOIN p ON p.id = v.pid "
        "WHERE v.fee > {fee} GROUP BY ALL"
    )
    asked: set[str] = set()
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE p (id INTEGER PRIMARY KEY, a VARCHAR); INSERT INTO p SELECT i, 'a' || i % 3 FROM range(9) t(i);"
            "CREATE TABLE v (vid INTEGER PRIMARY KEY, pid INTEGER REFERENCES p (id), b VARCHAR, c VARCHAR, fee INTEGER)"
        )
        duckdb_dp.testing.load_exact(connection, tmp_path / "l.dp")
        loaded = Loaded(connection, tmp_path / "l.dp")
        loaded("CALL dp_protect(['p', 'v'], unit := 'p.id', max_rows := {'v': 2}, rho := 1e6, discovery_delta := 1e-3)")
        for fee in range(4):  # no row, some whose fees are too small, and some with larger ones
            if fee:
                loaded(
                    f"INSERT INTO v SELECT {100 * fee} + i, i % 9, 'b' || i % 2, 'c' || i, {fee} FROM range(40) t(i)"
                )
            loaded("FROM dp_sql(?, rho := 1)", [select.format(fee=2 + fee / 8)])
            charged = [json.loads(one["request"])["options"] for one in loaded.charged()[-4:-1]]
            asked.add(str([dict(options)["attribute"] for options in charged]))
    assert asked == {"['g', 'h', 'a']"}
