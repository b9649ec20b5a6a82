"""Groups of public values are those that public rows allow which conditions leave, whatever column of them conditions are on."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again

KEYS = {"INTEGER": "i", "VARCHAR": "'d' || i", "DATE": "DATE '2000-01-01' + i::INTEGER"}
"""Types of keys, with their values."""


def opened(folder: Path, type_: str = "INTEGER", *, constrained: bool = True, seed: int | None = None) -> Loaded:
    connection, value = duckdb.connect(), KEYS[type_]
    reference = "REFERENCES doctors (doctor_id)" if constrained else ""
    connection.execute(
        f"""
        CREATE TABLE people (id INTEGER PRIMARY KEY, sex VARCHAR); INSERT INTO people SELECT i, ['f', 'm'][1 + i % 2] FROM range(120) t(i);
        CREATE TABLE wards (ward_id INTEGER PRIMARY KEY, floor INTEGER); INSERT INTO wards SELECT i, i % 3 FROM range(6) t(i);
        CREATE TABLE doctors (doctor_id {type_} PRIMARY KEY, field VARCHAR, pay DECIMAL(8, 2), since DATE, score DOUBLE, busy BOOLEAN, ward_id INTEGER);
        INSERT INTO doctors SELECT {value}, CASE WHEN i % 5 > 0 THEN ['heart', 'bone', 'skin'][1 + i % 3] END, i * 10.25, DATE '2020-01-01' + i::INTEGER,
            [1.5, 'nan'::DOUBLE, 'inf'::DOUBLE, NULL][1 + i % 4], [true, false, NULL][1 + i % 3], CASE WHEN i % 7 < 6 THEN i % 7 END FROM range(24) t(i);
        CREATE TABLE stays (stay_id INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES people (id), doctor_id {type_} {reference}, cost INTEGER);
        INSERT INTO stays SELECT k, k % 120, CASE WHEN k % 9 > 0 THEN {value} END, k % 5 FROM (SELECT k, k * 7 % 24 AS i FROM range(480) t(k));
        """
    )
    load = duckdb_dp.testing.load_exact if seed is None else duckdb_dp.testing.load
    load(connection, folder / "stays.dp", **({} if seed is None else {"seed": seed}))
    found = Loaded(connection, folder / "stays.dp")
    found(
        "CALL dp_protect(['people', 'stays'], unit := 'people.id', max_rows := {'stays': 4}, epsilon := 1e7, delta := 1e-9); "
        "CALL dp_public(['doctors', 'wards']); CALL dp_attribute('people', 'sex', \"values\" := ['f', 'm']); "
        "CALL dp_attribute('stays', 'cost', low := 0, high := 4)"
    )
    if not constrained:
        found("CALL dp_link('stays', \"references\" := {'doctor_id': 'doctors.doctor_id'})")
    return found


@pytest.fixture(scope="module", params=[(one, True) for one in KEYS] + [("INTEGER", False)], ids=str)
def stays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    type_, constrained = request.param
    found = opened(tmp_path_factory.mktemp("stays"), type_, constrained=constrained)
    yield found
    found.connection.close()


CONDITIONS = [
    "d.field = 'heart'", "d.field <> 'heart'", "d.field IN ('heart', 'skin')", "NOT d.field IN ('heart', 'skin')", "d.field LIKE 'b%'", "d.field IS NULL",
    "d.field IS NOT NULL", "d.field = 'heart' OR d.field IS NULL", "coalesce(d.field, 'heart') = 'heart'", "upper(d.field) = 'BONE'", "d.pay > 100", "d.pay * 2 < 50.5",
    "d.since >= '2020-01-10'", "year(d.since) = 2020 AND day(d.since) = 3", "d.score > 1", "isnan(d.score)", "d.score = 'inf'", "d.busy", "NOT d.busy", "d.busy IS NULL",
    "d.ward_id = 3", "d.field = 'heart' AND d.pay > 100", "d.field = 'heart' AND s.cost > 2",
]  # fmt: skip
FROM = [
    "stays s JOIN doctors d ON s.doctor_id = d.doctor_id WHERE {}",
    "stays s LEFT JOIN doctors d ON s.doctor_id = d.doctor_id WHERE {}",
    "people p LEFT JOIN stays s ON p.id = s.person LEFT JOIN doctors d ON s.doctor_id = d.doctor_id WHERE {}",
    "people p LEFT JOIN stays s ON p.id = s.person JOIN doctors d ON s.doctor_id = d.doctor_id WHERE {}",
    "stays s, doctors d WHERE s.doctor_id = d.doctor_id AND ({})",
    "stays s LEFT JOIN doctors d ON s.doctor_id = d.doctor_id AND ({})",
]
GROUPS = ["d.doctor_id", "s.doctor_id", "d.field", "d.ward_id"]


def allowed(found: Loaded, group: str, table: str, condition: str) -> tuple[set[object], bool]:
    """The groups that the rows of doctors have, and whether conditions leave rows without a doctor."""
    own, column = condition.replace("s.cost > 2", "true"), group.replace("s.", "d.")
    if table.endswith("AND ({})") and "LEFT" in table:
        own = own if group != "s.doctor_id" else "true"
        return {one for (one,) in found(f"SELECT {column} FROM doctors d WHERE {own}") if one is not None}, True
    groups = {one for (one,) in found(f"SELECT {column} FROM doctors d WHERE {own}") if one is not None}
    ((none,),) = found(f"SELECT count(*) FROM (SELECT 1) AS one LEFT JOIN doctors d ON false WHERE {own}")
    return groups, bool(none) and "LEFT JOIN doctors" in table


def constrained(found: Loaded) -> bool:
    sql = "SELECT count(*) FROM duckdb_constraints() WHERE table_name = 'stays' AND constraint_type = 'FOREIGN KEY'"
    return bool(found(sql) == [(2,)])


EACH = [*itertools.product(FROM, GROUPS, CONDITIONS)][::3]
"""A third of all, of each FROM and group with each third condition: all would take minutes."""


@pytest.mark.some(3)
@pytest.mark.parametrize(("table", "group", "condition"), EACH)
def test_groups_are_those_that_public_rows_allow(stays: Loaded, table: str, group: str, condition: str) -> None:
    """Of the reference itself they are all keys where conditions leave rows without a doctor."""
    select = f"SELECT {group} AS g, count(*) AS n FROM {table.format(condition)} GROUP BY 1"
    expected, missing = allowed(stays, group, table, condition)
    truth = dict(stays(select))
    own = condition.replace("s.cost > 2", "true")
    if not expected and not missing and stays(f"SELECT count(*) FROM doctors d WHERE {own}") == [(0,)]:
        assert "no group" in stays.refused("FROM dp_sql(?, epsilon := 1e4)", [select])
        return
    if group == "s.doctor_id" and missing and table.startswith("people") and not constrained(stays):
        assert "no declared domain" in stays.refused(
            "FROM dp_sql(?, epsilon := 1e4)", [select]
        )  # rows may refer nowhere
        return
    found = {g: round(n) for g, n in stays("SELECT g, n FROM dp_sql(?, epsilon := 1e4)", [select])}
    assert {g: n for g, n in found.items() if n} == {g: n for g, n in truth.items() if g in found}
    assert {*truth} <= {*found} | {None}
    assert expected or missing or {*found} == {None}  # where all rows that are left have NULL
    if expected and (group != "s.doctor_id" or not missing):
        assert {*found} - {None} == expected


SUBQUERIES = {
    "s.doctor_id IN (SELECT doctor_id FROM doctors WHERE {})": False,
    "s.doctor_id NOT IN (SELECT doctor_id FROM doctors WHERE {})": True,
    "EXISTS (SELECT 1 FROM doctors d WHERE d.doctor_id = s.doctor_id AND ({}))": False,
    "NOT EXISTS (SELECT 1 FROM doctors d WHERE s.doctor_id = d.doctor_id AND ({}))": True,
    "s.doctor_id = (SELECT max(doctor_id) FROM doctors WHERE {})": False,
    "s.doctor_id IN (SELECT doctor_id FROM doctors d JOIN wards USING (ward_id) WHERE {})": False,
}  # fmt: skip
OF_DOCTORS = ["field = 'heart'", "field = 'bone' OR pay > 180", "ward_id = 2", "doctor_id IS NOT NULL", "busy"]


@pytest.mark.some(4)
@pytest.mark.parametrize("condition", OF_DOCTORS)
@pytest.mark.parametrize("subquery", SUBQUERIES)
def test_subqueries_of_public_rows_say_which_keys_there_are(stays: Loaded, subquery: str, condition: str) -> None:
    where = subquery.format(condition)
    select = f"SELECT s.doctor_id AS g, count(*) AS n FROM stays s WHERE {where} GROUP BY 1"
    keys = {one for (one,) in stays(f"SELECT s.doctor_id FROM doctors s WHERE {where}")}
    truth = {g: n for g, n in stays(select) if g is not None}
    if not keys:
        assert "no group" in stays.refused("FROM dp_sql(?, epsilon := 1e4)", [select])
        return
    found = {g: round(n) for g, n in stays("SELECT g, n FROM dp_sql(?, epsilon := 1e4)", [select])}
    assert {*found} == keys
    assert {g: n for g, n in found.items() if n} == truth


NOT_PUBLIC = [
    "SELECT s.doctor_id AS g, count(*) AS n FROM stays s WHERE s.doctor_id IN (SELECT t.doctor_id FROM stays t WHERE t.person = s.person AND cost > 3) GROUP BY 1",
    "SELECT s.doctor_id AS g, count(*) AS n FROM stays s WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = s.person AND sex = 'f') GROUP BY 1",
    "SELECT s.doctor_id AS g, count(*) AS n FROM stays s JOIN doctors d USING (doctor_id) WHERE d.field = 'heart' OR s.cost > 3 GROUP BY 1",
    "SELECT s.doctor_id AS g, count(*) AS n FROM stays s JOIN stays t ON s.person = t.person WHERE s.doctor_id = t.doctor_id AND t.cost > 3 GROUP BY 1",
    "SELECT s.doctor_id AS g, count(*) AS n FROM stays s JOIN doctors d USING (doctor_id) WHERE s.cost * 5 > d.pay GROUP BY 1",
]


@pytest.mark.parametrize("select", NOT_PUBLIC)
def test_protected_rows_exclude_no_group(tmp_path: Path, select: str) -> None:
    """With the rows that there are, and with none."""
    found = opened(tmp_path)
    groups = [g for g, _ in found("SELECT g, n FROM dp_sql(?, epsilon := 1e4)", [select])]
    assert len(groups) == 24
    found("DELETE FROM stays")
    assert [g for g, _ in found("SELECT g, n FROM dp_sql(?, epsilon := 1e4, fresh := true)", [select])] == groups


@pytest.mark.parametrize(
    "select",
    [
        "SELECT {} AS g, count(*) AS n FROM stays s LEFT JOIN doctors d ON s.doctor_id = d.doctor_id WHERE d.field = 'heart' GROUP BY 1",
        "SELECT s.doctor_id AS g, count(*) AS n FROM stays s WHERE s.doctor_id IN (SELECT doctor_id FROM doctors WHERE field = 'heart') GROUP BY 1",
        "SELECT {} AS g, sum(cost) AS n FROM people p LEFT JOIN stays s ON p.id = s.person LEFT JOIN doctors d ON s.doctor_id = d.doctor_id WHERE d.pay > 9 GROUP BY 1",
        "SELECT count(*) AS n FROM stays s LEFT JOIN doctors d ON s.doctor_id = d.doctor_id WHERE d.field = 'heart'",
    ],
)  # fmt: skip
def test_what_was_answered_with_more_groups_is_found_again(tmp_path: Path, select: str) -> None:
    for place, group in enumerate(("d.doctor_id", "s.doctor_id")):
        (tmp_path / str(place)).mkdir()
        check_found_again(opened(tmp_path / str(place), seed=1), select.format(group), 7)


def test_a_left_join_is_the_inner_one_that_conditions_make_of_it(tmp_path: Path) -> None:
    """One question, asked once."""
    found, before = opened(tmp_path, seed=1), None
    for join in ("JOIN", "LEFT JOIN"):
        select = f"SELECT d.doctor_id AS g, count(*) AS n FROM stays s {join} doctors d ON s.doctor_id = d.doctor_id WHERE d.field = 'heart' GROUP BY 1"
        got = found("FROM dp_sql(?, epsilon := 1)", [select])
        assert before in (None, got)
        before = got
    assert found.charges() == 1
