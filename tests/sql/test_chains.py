"""Rows whose parents are rows of the unit: orders of customers, lines of orders, and parts of lines."""

import json

import pytest

from tests.conftest import Loaded

KEYS = {
    "INTEGER": "({})",
    "UUID": "(lpad(hex({}), 32, '0'))::UUID",
    "VARCHAR": "'k' || ({})",
    "VARCHAR COLLATE NOCASE": "'k' || ({})",
    "HUGEINT": "({})::HUGEINT",
}
MADE = "CALL dp_synthesize_database('main', target := 'syn', tables := {}, rho := 1e6)"
NAMES = ["clients", "orders", "lines", "parts"]


def tables(type_: str, *, keyed: bool = True) -> str:
    """Channel 0 has one line for each order, 1 two, and 2 four, whose kinds are mostly the channel; columns named as inside."""
    key = KEYS[type_].format
    own = " PRIMARY KEY" if keyed else ""
    return f"""
    CREATE TABLE clients (id {type_} PRIMARY KEY, sex INTEGER);
    CREATE TABLE orders ("o id" {type_} PRIMARY KEY, id {type_} REFERENCES clients (id), v0 INTEGER);
    CREATE TABLE lines (k0 INTEGER PRIMARY KEY, "o id" {type_} REFERENCES orders ("o id"), o0 INTEGER);
    CREATE TABLE parts (p INTEGER{own}, k0 INTEGER REFERENCES lines (k0), good BOOLEAN);
    INSERT INTO clients SELECT {key("i")}, i % 2 FROM range(300) r(i);
    INSERT INTO orders SELECT {key("i")}, {key("i % 300")}, i * 7 % 3 FROM range(900) r(i);
    INSERT INTO lines SELECT row_number() OVER () - 1, {key("i")}, (i * 7 % 3 + (n = 3)::INTEGER) % 3 FROM range(900) r(i), range(4) s(n)
        WHERE n < 2 ^ (i * 7 % 3);
    INSERT INTO parts SELECT i, i % 2000, i % 3 = 0 FROM range(4000) r(i);
    CALL dp_protect(['clients', 'orders', 'lines', 'parts'], unit := 'clients.id', rho := 1e9,
        max_rows := {{'orders': 3, 'lines': 12, 'parts': 30}});
    CALL dp_attributes('clients', {{'sex': [0, 1]}}); CALL dp_attributes('orders', {{'v0': [0, 1, 2]}});
    CALL dp_attributes('lines', {{'o0': [0, 1, 2]}}); CALL dp_attributes('parts')
    """


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("type_", list(KEYS))
def test_each_row_gets_a_parent_that_is_there_and_fits(exact: Loaded, type_: str) -> None:
    exact(tables(type_))
    steps = exact(MADE.format(NAMES))
    assert [step[2] for step in steps] == [
        "rows", "rows", "parents in clients", "rows", "parents in orders", "rows", "parents in lines",
    ]  # fmt: skip
    for child, parent, key in (("orders", "clients", "id"), ("lines", "orders", "o id"), ("parts", "lines", "k0")):
        assert exact(f'SELECT count(*) FROM syn.{child} SEMI JOIN syn.{parent} USING ("{key}")') == exact(
            f"SELECT count(*) FROM syn.{child}"
        )
    numbers = exact(
        'SELECT v0, avg(n) FROM (SELECT v0, count(k0) AS n FROM syn.orders LEFT JOIN syn.lines USING ("o id") GROUP BY "o id", v0) '
        "GROUP BY v0 ORDER BY v0"
    )
    assert [round(n, 0) for _, n in numbers] == [1, 2, 4]
    ((alike,),) = exact('SELECT avg((v0 = o0)::INTEGER) FROM syn.orders JOIN syn.lines USING ("o id")')
    assert alike > 0.7  # 0.86 of those that are there, and a third by chance


@pytest.mark.slow
def test_rows_without_a_key_are_numbered(exact: Loaded) -> None:
    exact(tables("INTEGER", keyed=False))
    exact(MADE.format(NAMES))
    ((rows, keys, linked),) = exact(
        "SELECT count(*), count(DISTINCT rowid), count(k0) FROM syn.parts SEMI JOIN syn.lines USING (k0)"
    )
    assert rows == keys == linked > 3000


def test_a_key_of_two_columns_leads_to_a_parent(exact: Loaded) -> None:
    """Where one of the columns names the unit, and where the unit has two itself."""
    exact("""
    CREATE TABLE students (id INTEGER, school VARCHAR, sex INTEGER, PRIMARY KEY (id, school));
    CREATE TABLE terms (id INTEGER, school VARCHAR, term INTEGER, points INTEGER, PRIMARY KEY (id, school, term),
        FOREIGN KEY (id, school) REFERENCES students (id, school));
    CREATE TABLE exams (exam INTEGER PRIMARY KEY, id INTEGER, school VARCHAR, term INTEGER, grade INTEGER,
        FOREIGN KEY (id, school, term) REFERENCES terms (id, school, term));
    INSERT INTO students SELECT i // 2, ['x', 'y'][1 + i % 2], i % 2 FROM range(300) r(i);
    INSERT INTO terms SELECT i // 2, ['x', 'y'][1 + i % 2], t, i % 4 FROM range(300) r(i), range(3) s(t);
    INSERT INTO exams SELECT row_number() OVER (), id, school, term, points FROM terms, range(2);
    CALL dp_protect(['students', 'terms', 'exams'], unit := [['students.id', 'students.school']], rho := 1e9, max_rows := 6);
    CALL dp_attributes('students', {'sex': [0, 1]}); CALL dp_attributes('terms', {'points': [0, 1, 2, 3]});
    CALL dp_attributes('exams', {'grade': [0, 1, 2, 3]})
    """)
    exact(MADE.format(["students", "terms", "exams"]))
    ((alike, rows),) = exact(
        "SELECT avg((points = grade)::INTEGER), count(*) FROM syn.exams JOIN syn.terms USING (id, school, term)"
    )
    assert alike > 0.8
    assert rows > 1500


def test_links_to_others_are_refused_before_a_charge(exact: Loaded) -> None:
    """Lines name no client, so that nothing bounds what one client changes in the links of a ware."""
    exact(
        "CREATE TABLE wares (ware INTEGER PRIMARY KEY, kind INTEGER); INSERT INTO wares SELECT i, i % 2 FROM range(5) r(i)"
    )
    exact("CALL dp_public('wares')")
    made = tables("INTEGER").replace("o0 INTEGER)", "o0 INTEGER, ware INTEGER REFERENCES wares (ware))")
    exact(made.replace("% 3 FROM range(900) r(i), range(4)", "% 3, i % 5 FROM range(900) r(i), range(4)"))
    exact("CREATE TABLE l AS FROM dp_synthesize('lines', key := 'k0', rho := 1)")
    before = exact.charges()
    line = exact.refused("FROM dp_links('lines', synthetic := {'lines': 'l', 'wares': 'wares'}, rho := 1)")
    assert "'lines' has no column that names the unit" in line
    assert exact.charges() == before
    notes = exact(
        "SELECT note FROM " + MADE.format(NAMES).removeprefix("CALL ").replace(", rho", ", plan := true, rho")
    )
    assert any("ware is drawn as any column, with the keys of 'wares'" in (note or "") for (note,) in notes)


@pytest.mark.parametrize("unique", [True, False])
def test_of_unique_references_one_link_is_counted(exact: Loaded, unique: bool) -> None:
    """A unit changes one link then, whatever its number of rows may be; what is protected is no choice of the call's."""
    key = " UNIQUE" if unique else ""
    exact(
        tables("INTEGER")
        .replace('"o id" INTEGER REFERENCES', f'"o id" INTEGER{key} REFERENCES')
        .replace("n < 2 ^ (i * 7 % 3)", "n < 1")
        .replace("% 2000", "% 900")
    )
    exact("CREATE TABLE o AS FROM dp_synthesize('orders', key := 'o id', rho := 1)")
    exact("CREATE TABLE l AS FROM dp_synthesize('lines', key := 'k0', rho := 1)")
    ask = "dp_links('lines', synthetic := {'lines': 'l', 'orders': 'o'}, rho := 0.5"
    exact(f"FROM {ask})")
    ((request,),) = exact("SELECT request FROM dp_releases() ORDER BY release DESC LIMIT 1")
    assert json.loads(request)["max_rows"] == (1 if unique else 12)
    assert "protects its unit" in exact.refused(f"FROM {ask}, protect := 'orders')")


@pytest.mark.slow
def test_children_of_links_of_a_table_without_a_primary_key(exact: Loaded) -> None:
    """Links have the key that others are declared to refer to; and a degree that is said bounds each parent's children."""
    exact("""
    CREATE TABLE wards (ward INTEGER PRIMARY KEY, heart BOOLEAN); CREATE TABLE sick (id INTEGER PRIMARY KEY, old BOOLEAN);
    INSERT INTO wards SELECT i, i % 4 = 0 FROM range(30) r(i); INSERT INTO sick SELECT i, i % 3 = 0 FROM range(300) r(i);
    CREATE TABLE stays AS SELECT i AS stay, (i % 300)::INTEGER AS id, (i * i % 30)::INTEGER AS ward, i % 7 = 0 AS acute FROM range(600) r(i);
    CREATE TABLE drugs AS SELECT i % 600 AS stay, i % 7 = 0 AS strong FROM range(900) r(i);
    CALL dp_public('wards'); CALL dp_link('drugs', "references" := {'stay': 'stays.stay'});
    CALL dp_link('stays', "references" := {'id': 'sick.id', 'ward': 'wards.ward'});
    CALL dp_protect(['sick', 'stays', 'drugs'], unit := 'sick.id', max_rows := 9, rho := 1e9);
    CALL dp_attribute('sick', 'old'); CALL dp_attribute('stays', 'acute'); CALL dp_attribute('drugs', 'strong')
    """)
    call = MADE.format(["sick", "stays", "drugs"])
    steps = exact(call.replace(", rho", ", max_degree := 2, rho"))
    assert ("stays", "links to sick and wards") in [(step[1], step[2]) for step in steps]
    assert "2 of its links at most" in (steps[-1][-1] or "")
    ((rows, parents),) = exact("SELECT count(*), count(DISTINCT stay) FROM syn.drugs SEMI JOIN syn.stays USING (stay)")
    assert rows > 400
    assert parents >= rows / 2


def test_rows_that_a_constraint_forbids_are_told(exact: Loaded) -> None:
    exact("""CREATE TABLE trips (trip INTEGER PRIMARY KEY, low INTEGER, high INTEGER, CHECK (high + 1 > low));
        INSERT INTO trips SELECT i, i % 10, i % 10 + i // 10 % 3 FROM range(600) r(i); CALL dp_protect('trips', rho := 1e9);
        CALL dp_attribute('trips', 'low', bins := [0, 5, 10]); CALL dp_attribute('trips', 'high', bins := [0, 5, 13])""")
    ((rows, note),) = exact("SELECT rows, note FROM " + MADE.format(["trips"]).removeprefix("CALL "))
    assert note == f"{600 - rows} rows left out, which a constraint forbids"
    assert exact.charges() == 1
