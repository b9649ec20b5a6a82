"""Groups of columns of public tables: what they determine, what stands together in these tables, and in which order they are shown."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again

TABLES = """
CREATE TABLE wards (ward_id INTEGER PRIMARY KEY, name VARCHAR, icu BOOLEAN, beds INTEGER, opened DATE);
INSERT INTO wards SELECT i, 'w' || i, [true, false, NULL][1 + i % 3], 10 + i // 2, DATE '2000-01-01' + i::INTEGER FROM range(8) t(i);
CREATE TABLE doctors (doc_id INTEGER PRIMARY KEY, specialty VARCHAR, chief VARCHAR);
INSERT INTO doctors SELECT i, ['heart', 'lung'][1 + i % 2], ['Lee', 'Ng'][1 + i % 2] FROM range(9) t(i);
CREATE TABLE patients (id INTEGER PRIMARY KEY);
INSERT INTO patients FROM range(300);
CREATE TABLE stays (stay INTEGER PRIMARY KEY, id INTEGER NOT NULL REFERENCES patients (id), ward_id INTEGER NOT NULL REFERENCES wards (ward_id),
    doc_id INTEGER NOT NULL REFERENCES doctors (doc_id), kind VARCHAR);
INSERT INTO stays SELECT i, i % 300, i % 7, i % 8, ['a', 'b'][1 + i % 2] FROM range(900) t(i);
"""
PROTECT = "CALL dp_protect(['patients', 'stays'], unit := 'patients.id', max_rows := {'stays': 3}, epsilon := 1e8, delta := 1e-9)"
STAYS = "stays s JOIN wards w USING (ward_id) JOIN doctors d USING (doc_id)"


def opened(folder: Path) -> Loaded:
    connection = duckdb.connect()
    connection.execute(TABLES)
    duckdb_dp.testing.load_exact(connection, folder / "wards.dp")
    found = Loaded(connection, folder / "wards.dp")
    found(PROTECT)
    found("CALL dp_public(['wards', 'doctors'])")
    found("CALL dp_attribute('stays', 'kind', \"values\" := ['a', 'b'])")
    return found


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = opened(tmp_path_factory.mktemp("wards"))
    yield found
    found.connection.close()


def answered(found: Loaded, select: str) -> tuple[list[str], list[tuple[object, ...]]]:
    """The columns of an answer that are no errors, and its rows but those of groups without rows."""
    result = found.connection.execute("FROM dp_sql(?, epsilon := 1e4)", [select])
    names = [name for name, *_ in result.description]
    truth = [name for name, *_ in found.connection.execute(f"DESCRIBE {select}").fetchall()]
    result = found.connection.execute("FROM dp_sql(?, epsilon := 1e4)", [select])
    shown = [i for i, name in enumerate(names) if name in truth]
    rows = [tuple(row[i] for i in shown) for row in result.fetchall()]
    return [names[i] for i in shown], [row for row in rows if row[names.index("n") if "n" in names else -1]]


ANSWERED = [
    f"SELECT w.ward_id, any_value(w.name) AS name, count(*) AS n FROM {STAYS} GROUP BY w.ward_id",
    f"SELECT w.name AS w, max(w.beds) AS beds, first(w.icu) AS icu, min(opened) AS day, count(*) AS n FROM {STAYS} GROUP BY w.name",
    f"SELECT kind, w.name AS w, count(*) * 12.0 / any_value(w.beds) AS n FROM {STAYS} GROUP BY ALL",
    f"SELECT w.name AS w, count(*) AS n FROM {STAYS} GROUP BY 1 HAVING max(w.beds) > 11",
    f"SELECT specialty, any_value(chief) AS chief, count(*) AS n FROM {STAYS} GROUP BY specialty",
    f"SELECT d.doc_id, w.name AS w, any_value(specialty) AS s, max(beds) AS b, count(*) AS n FROM {STAYS} GROUP BY ALL",
    "SELECT s.ward_id, any_value(w.name) AS name, count(*) AS n FROM stays s JOIN wards w ON w.ward_id = s.ward_id GROUP BY s.ward_id",
    f"SELECT w.name AS w, max(w.beds) AS beds, (SELECT max(beds) FROM wards) AS most, count(*) AS n FROM {STAYS} GROUP BY w.name",
]


@pytest.mark.some(3)
@pytest.mark.parametrize("select", ANSWERED)
def test_one_value_of_what_groups_determine_is_that_value(hospital: Loaded, select: str) -> None:
    names, rows = answered(hospital, select)
    truth = hospital.connection.execute(select)
    assert names == [name for name, *_ in truth.description]
    assert {row[:-1]: pytest.approx(float(str(row[-1])), abs=0.01) for row in truth.fetchall()} == {
        r[:-1]: r[-1] for r in rows
    }


REFUSED = [
    f"SELECT icu, max(w.beds) AS beds, count(*) AS n FROM {STAYS} GROUP BY icu",
    f"SELECT kind, any_value(w.name) AS name, count(*) AS n FROM {STAYS} GROUP BY kind",
    f"SELECT w.name AS w, any_value(kind) AS kind, count(*) AS n FROM {STAYS} GROUP BY w",
    f"SELECT w.name AS w, any_value(chief) AS chief, count(*) AS n FROM {STAYS} GROUP BY w",
    f"SELECT w.name AS w, max(w.beds) FILTER (WHERE kind = 'a') AS beds, count(*) AS n FROM {STAYS} GROUP BY w",
    f"SELECT w.name AS w, any_value(w.beds) AS beds, count(*) AS n FROM {STAYS} GROUP BY ROLLUP (w.name)",
    f"SELECT max(w.beds) AS beds, count(*) AS n FROM {STAYS}",
]


@pytest.mark.some(3)
@pytest.mark.parametrize("select", REFUSED)
def test_what_is_not_determined_is_refused(hospital: Loaded, select: str) -> None:
    assert "without a bound" in hospital.refused("FROM dp_sql(?, epsilon := 1)", [select])


KEYS = [
    "d.doc_id, w.name", "d.specialty, d.chief, w.name", "d.doc_id, w.name, w.beds", "w.name, d.doc_id, w.beds, d.chief",
    "kind, w.name, w.beds", "w.name, kind, w.icu, d.specialty, d.chief", "w.beds, w.opened, s.kind, w.ward_id",
]  # fmt: skip


@pytest.mark.some(3)
@pytest.mark.parametrize("how", ["each", "ALL", "places"])
@pytest.mark.parametrize("keys", KEYS)
def test_columns_of_each_public_table_stand_together_in_the_order_of_the_select(
    hospital: Loaded, keys: str, how: str
) -> None:
    """Groups are the rows that the tables have, of each that is joined by itself."""
    number = keys.count(",") + 1
    group = {"each": keys, "ALL": "ALL", "places": ", ".join(str(i + 1) for i in range(number))}[how]
    select = f"SELECT {keys}, count(*) AS n FROM {STAYS} GROUP BY {group}"
    names, rows = answered(hospital, select)
    assert names == [one.split(".")[-1] for one in keys.split(", ")] + ["n"]
    assert sorted(rows, key=str) == sorted([(*row[:-1], float(row[-1])) for row in hospital(select)], key=str)
    by_table = {t: [one for one in keys.split(", ") if one.startswith(f"{t}.")] for t in "wd"}
    tables = {"w": "wards w", "d": "doctors d"}
    most = 2 if "kind" in keys else 1
    for table, columns in by_table.items():
        most *= (
            hospital(f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(columns)} FROM {tables[table]})")[0][0]
            if columns
            else 1
        )
    ((groups,),) = hospital("SELECT count(*) FROM dp_sql(?, epsilon := 1e4)", [select])
    assert groups == most


@pytest.mark.some(2)
@pytest.mark.parametrize("keys", [*KEYS, "upper(kind) || '!'"])
def test_what_was_answered_before_is_found_again(tmp_path: Path, keys: str) -> None:
    """With other columns in front and other groups, as they were asked then."""
    found = opened(tmp_path)
    rest = STAYS if "." in keys else "(SELECT upper(kind) || '!' AS k FROM stays) GROUP BY k"
    select = (
        f"SELECT {keys}, count(*) AS n FROM {rest} GROUP BY {keys}"
        if "." in keys
        else f"SELECT k, count(*) AS n FROM {rest}"
    )
    check_found_again(found, select, 5)
