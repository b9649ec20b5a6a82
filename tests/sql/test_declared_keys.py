"""Declared columns that refer to a public table: where it is joined, their groups are those of its rows that conditions leave."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again

MEMBERS = ", ".join(f"'k{i}'" for i in range(12))

KEYS = {
    "VARCHAR": "'c' || i",
    "INTEGER": "i",
    "BIGINT": "i * 10000000000",
    "DATE": "DATE '2000-01-01' + i::INTEGER",
    "TIMESTAMP": "TIMESTAMP '2000-01-01 10:00:00' + i * INTERVAL 1 HOUR",
    f"ENUM ({MEMBERS})": "'k' || i",
}
"""Types of keys, with their values."""

OTHER = {
    "VARCHAR": "'zz'",
    "INTEGER": "99",
    "BIGINT": "99",
    "DATE": "'1999-01-01'",
    "TIMESTAMP": "'1999-01-01 10:00:00'",
}
"""A value that is no key."""

DECLARED = {"nulls": "nulls := true", "keys": "", "few": '"values" := [{few}], nulls := true', "undeclared": None}
"""Declarations of the reference: by its public table, of some keys and a value that is none, and no declaration."""

FEW = (0, 1, 3, 5)
"""The public rows whose keys are declared, of these."""


def opened(
    folder: Path, type_: str = "VARCHAR", declared: str = "nulls", *, seed: int | None = None, link: bool = False
) -> Loaded:
    connection, value = duckdb.connect(), KEYS[type_]
    connection.execute(
        f"""
        CREATE TABLE members (id INTEGER PRIMARY KEY, sex VARCHAR); INSERT INTO members SELECT i, ['f', 'm'][1 + i % 2] FROM range(200) t(i);
        CREATE TABLE classes (code {type_} PRIMARY KEY, kind VARCHAR, level INTEGER);
        INSERT INTO classes SELECT {value}, ['yoga', 'run', 'bike'][1 + i % 3], i % 2 FROM range(12) t(i);
        CREATE TABLE bookings (id INTEGER PRIMARY KEY, member INTEGER NOT NULL REFERENCES members (id),
            code {type_} {"" if link else "REFERENCES classes (code)"}, cost INTEGER);
        INSERT INTO bookings SELECT k, k % 200, CASE WHEN k % 9 > 0 THEN {value} END, k % 5 FROM (SELECT k, k * 7 % 12 AS i FROM range(600) t(k));
        """
    )
    load = duckdb_dp.testing.load_exact if seed is None else duckdb_dp.testing.load
    load(connection, folder / "classes.dp", **({} if seed is None else {"seed": seed}))
    found = Loaded(connection, folder / "classes.dp")
    found(
        "CALL dp_protect(['members', 'bookings'], unit := 'members.id', max_rows := {'bookings': 4}, epsilon := 1e8, delta := 1e-9); "
        "CALL dp_public('classes'); CALL dp_attribute('members', 'sex', \"values\" := ['f', 'm']); "
        "CALL dp_attribute('bookings', 'cost', low := 0, high := 4)"
    )
    if link:
        found("CALL dp_link('bookings', \"references\" := {'code': 'classes.code'})")
    if (words := DECLARED[declared]) is not None:
        listed = [str(one) if "INT" in type_ else f"'{one}'" for one in few_of(found)] + [
            OTHER[type_] for _ in "1" if type_ in OTHER
        ]
        said = ", ".join(one for one in ("'bookings', 'code'", words.format(few=", ".join(listed))) if one)
        found(f"CALL dp_attribute({said})")
    return found


def few_of(found: Loaded) -> set[str]:
    return {code for (code,) in found(f"SELECT code::VARCHAR FROM classes WHERE rowid IN {FEW}")}


@pytest.fixture(
    scope="module",
    params=[(type_, one) for type_ in KEYS for one in DECLARED],
    ids=lambda one: f"{one[0][:4]} {one[1]}",
)
def classes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loaded, str]]:
    type_, declared = request.param
    found = opened(tmp_path_factory.mktemp("classes"), type_, declared)
    yield found, declared
    found.connection.close()


TIED = [
    "SELECT code AS g, kind AS h, count(*) AS n FROM bookings JOIN classes USING (code) GROUP BY ALL",
    "SELECT b.code AS g, c.kind AS h, c.level AS k, count(*) AS n FROM bookings b JOIN classes c ON b.code = c.code GROUP BY ALL",
    "SELECT b.code AS g, count(*) AS n FROM bookings b JOIN classes c USING (code) WHERE c.kind = 'yoga' GROUP BY b.code",
    "SELECT b.code AS g, sum(b.cost) AS n FROM bookings b, classes c WHERE c.code = b.code AND c.level = 1 AND kind <> 'run' GROUP BY 1",
    "SELECT b.code AS g, any_value(c.kind) AS h, count(*) AS n FROM bookings b JOIN classes c USING (code) GROUP BY b.code",
    "SELECT b.code AS g, min(c.kind) AS h, max(c.level) AS k, count(DISTINCT m.id) AS n FROM members m JOIN bookings b ON m.id = b.member "
    "JOIN classes c ON c.code = b.code GROUP BY b.code",
    "SELECT b.code AS g, count(*) AS n FROM bookings b LEFT JOIN classes c USING (code) WHERE c.kind = 'bike' GROUP BY ALL",
    "SELECT b.code AS g, kind AS h, count(*) AS n FROM members m LEFT JOIN bookings b ON m.id = b.member JOIN classes c USING (code) GROUP BY ALL",
    "WITH x AS (SELECT * FROM bookings WHERE cost < 3) SELECT code AS g, kind AS h, count(*) AS n FROM x JOIN classes USING (code) GROUP BY ALL",
    "WITH x AS (SELECT b.code, c.kind FROM bookings b JOIN classes c USING (code)) SELECT code AS g, kind AS h, count(*) AS n FROM x GROUP BY ALL",
    "WITH x AS (SELECT b.code FROM bookings b JOIN classes c USING (code) WHERE kind = 'yoga') SELECT code AS g, count(*) AS n FROM x GROUP BY ALL",
    "SELECT b.code AS g, sex AS h, count(*) AS n FROM members m JOIN bookings b ON m.id = b.member JOIN classes c USING (code) WHERE level = 0 GROUP BY ALL",
]  # fmt: skip


def shown(select: str) -> str:
    """The names of what it groups by."""
    return ", ".join(name for name in ("g", "h", "k") if f" AS {name}" in select)


@pytest.mark.some(8)
@pytest.mark.parametrize("select", TIED)
def test_groups_are_those_that_duckdb_has(classes: tuple[Loaded, str], select: str) -> None:
    """Whatever is declared: of a few keys those of the same rows alone."""
    found, declared = classes
    if found("SELECT typeof(code) LIKE 'ENUM%' FROM classes LIMIT 1") == [(True,)] and (
        " AS h" in select or declared == "undeclared"
    ):
        return  # whose groups are all members with all others
    truth = {row[:-1]: row[-1] for row in found(select)}
    if declared == "few":
        few = few_of(found)
        truth = {group: n for group, n in truth.items() if str(group[0]) in few}
        assert truth
    got = {
        row[:-1]: round(row[-1]) for row in found(f"SELECT {shown(select)}, n FROM dp_sql(?, epsilon := 1e5)", [select])
    }
    if "sex AS" in select:  # which public rows do not determine
        got = {group: n for group, n in got.items() if n}
    assert got == truth


LOOSE = [
    ("SELECT code AS g, count(*) AS n FROM bookings GROUP BY code", True),
    (
        "SELECT b.code AS g, count(*) AS n FROM bookings b LEFT JOIN classes c ON b.code = c.code AND c.kind = 'yoga' GROUP BY b.code",
        True,
    ),
    ("SELECT b.code AS g, count(*) AS n FROM bookings b LEFT JOIN classes c USING (code) GROUP BY b.code", True),
    ("SELECT b.code AS g, count(*) AS n FROM bookings b JOIN classes c USING (code) GROUP BY b.code", False),
]


@pytest.mark.parametrize(("select", "null"), LOOSE)
def test_null_is_a_group_where_the_join_leaves_it(tmp_path: Path, select: str, null: bool) -> None:
    found = opened(tmp_path)
    got = {g: round(n) for g, n in found("SELECT g, n FROM dp_sql(?, epsilon := 1e5)", [select])}
    assert (None in got) == null
    assert got == dict(found(select))


def test_other_values_stay_a_group(tmp_path: Path) -> None:
    """Which holds all further keys."""
    found = opened(tmp_path, declared="undeclared")
    found("CALL dp_attribute('bookings', 'code', \"values\" := ['c0', 'c1'], other := true)")
    select = "SELECT b.code AS g, count(*) AS n FROM bookings b JOIN classes c USING (code) GROUP BY b.code"
    got = {g: round(n) for g, n in found("SELECT g, n FROM dp_sql(?, epsilon := 1e5)", [select])}
    truth = dict(found(select))
    assert got == {"c0": truth.pop("c0"), "c1": truth.pop("c1"), "other": sum(truth.values())}


@pytest.mark.parametrize("declared", ["nulls", "keys", "few"])
def test_totals_are_of_all_rows(tmp_path: Path, declared: str) -> None:
    found = opened(tmp_path, declared=declared)
    select = "SELECT code AS g, kind AS h, count(*) AS n FROM bookings JOIN classes USING (code) GROUP BY ROLLUP (code, kind)"
    got = {(g, h): round(n) for g, h, n in found("SELECT g, h, n FROM dp_sql(?, epsilon := 1e5)", [select])}
    truth = {(g, h): n for g, h, n in found(select)}
    if declared == "few":
        few = few_of(found)
        assert {group: n for group, n in got.items() if n and group[0] in few} == {
            group: n for group, n in truth.items() if group[0] in few
        }
    else:
        assert got == truth


@pytest.mark.parametrize(
    "expression",
    ["upper(b.code)", "CASE WHEN b.code = 'c0' THEN 1 ELSE 2 END", "coalesce(b.code, 'none')", "length(b.code)"],
)
@pytest.mark.parametrize("declared", ["nulls", "keys"])
def test_what_is_worked_out_of_them_is_so_of_public_keys(tmp_path: Path, declared: str, expression: str) -> None:
    found = opened(tmp_path, declared=declared)
    select = f"SELECT {expression} AS g, count(*) AS n FROM bookings b JOIN classes c USING (code) WHERE kind = 'yoga' GROUP BY 1"
    got = {g: round(n) for g, n in found("SELECT g, n FROM dp_sql(?, epsilon := 1e5)", [select])}
    assert got == dict(found(select))


@pytest.mark.parametrize("declared", ["nulls", "keys", "few"])
def test_keys_that_are_not_enforced_are_the_same_where_they_are_joined(tmp_path: Path, declared: str) -> None:
    found = opened(tmp_path, declared=declared, link=True)
    select = "SELECT b.code AS g, kind AS h, count(*) AS n FROM bookings b JOIN classes c USING (code) GROUP BY ALL"
    got = {(g, h): round(n) for g, h, n in found("SELECT g, h, n FROM dp_sql(?, epsilon := 1e5)", [select])}
    few = few_of(found)
    assert got == {(g, h): n for g, h, n in found(select) if declared != "few" or g in few}


@pytest.mark.parametrize(("low", "high"), [(0, 11), (-5, 40), (3, 7)])
def test_ranges_of_keys_are_declared_values(tmp_path: Path, low: int, high: int) -> None:
    found = opened(tmp_path, "INTEGER", "undeclared")
    found(f"CALL dp_attribute('bookings', 'code', low := {low}, high := {high}, nulls := true)")
    for select in TIED[:3]:
        truth = {row[:-1]: row[-1] for row in found(select) if low <= row[0] <= high}
        assert {
            row[: len(row) - 1]: round(row[-1])
            for row in found(f"SELECT {shown(select)}, n FROM dp_sql(?, epsilon := 1e5)", [select])
        } == truth


def test_protected_rows_say_no_group(tmp_path: Path) -> None:
    """With the rows that there are, and with none."""
    found = opened(tmp_path)
    select = TIED[1]
    groups = found("SELECT g, h, k FROM dp_sql(?, epsilon := 1e5)", [select])
    assert len(groups) == 12
    found("DELETE FROM bookings")
    assert found("SELECT g, h, k FROM dp_sql(?, epsilon := 1e5, fresh := true)", [select]) == groups


@pytest.mark.parametrize("declared", ["nulls", "keys", "few"])
@pytest.mark.parametrize("select", [TIED[0], TIED[2], TIED[6], TIED[8]])
def test_what_was_answered_with_more_groups_is_found_again(tmp_path: Path, declared: str, select: str) -> None:
    check_found_again(opened(tmp_path, declared=declared, seed=1), select, 7)
