"""Datasets of several tables: whose their rows are, what is refused, what they spend, and what is public beside them."""

from pathlib import Path

import pytest

from duckdb_dp.sql.bindings import LOADED
from duckdb_dp.sql.family import Family, family
from tests.conftest import Loaded

TABLES = """
CREATE TABLE clinics (clinic_id INTEGER PRIMARY KEY, region VARCHAR);
CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, sex VARCHAR);
CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, patient_id INTEGER REFERENCES patients (patient_id),
                     clinic_id INTEGER REFERENCES clinics (clinic_id), charge INTEGER);
CREATE TABLE drugs (id INTEGER PRIMARY KEY, visit_id INTEGER REFERENCES visits (visit_id), drug VARCHAR, days INTEGER);
INSERT INTO clinics SELECT i, ['n', 's'][1 + i % 2] FROM range(4) t(i);
INSERT INTO patients SELECT i, ['f', 'm'][1 + i % 2] FROM range(40) t(i);
INSERT INTO visits SELECT i, CASE WHEN i % 20 > 0 THEN i * 7 % 40 END, i % 4, i % 10 FROM range(160) t(i);
INSERT INTO drugs SELECT i, i % 150, 'd' || i % 3, i % 5 FROM range(600) t(i);
"""
LIST = "['patients', 'visits', 'drugs']"
PROTECT = (
    f"CALL dp_protect({LIST}, unit := 'patients.patient_id', max_rows := {{'visits': 10, 'drugs': 30}}, rho := 9e6)"
)
DECLARED = """
CALL dp_public(['clinics']);
CALL dp_attribute('patients', 'sex', "values" := ['f', 'm']);
CALL dp_attribute('visits', 'charge', low := 0, high := 9);
CALL dp_attribute('drugs', 'days', low := 0, high := 4);
CALL dp_attribute('drugs', 'drug', "values" := ['d0', 'd1', 'd2']);
"""
OWNED = {
    "patients": "patients",
    "visits": "visits WHERE patient_id IS NOT NULL",
    "drugs": "drugs JOIN visits USING (visit_id) WHERE patient_id IS NOT NULL",
}
"""Each member's rows that have an owner, by hand."""


@pytest.fixture
def hospital(exact: Loaded) -> Loaded:
    """Patients with their visits and drugs, protected together; no noise."""
    exact(TABLES + PROTECT + ";" + DECLARED)
    return exact


def tables_of(db: Loaded, name: str) -> Family:
    """The dataset of a table."""
    session = LOADED[db("SELECT _dp_loaded()")[0][0]].session
    found = session.ledger.dataset("memory", "main", name)
    assert found is not None
    return family(session, found)


def test_one_table_is_a_family(exact: Loaded) -> None:
    """A dataset of one table has itself as its member, and the public tables beside it."""
    exact("CREATE TABLE towns (id INTEGER PRIMARY KEY, mayor INTEGER UNIQUE, name VARCHAR NOT NULL)")
    exact("CALL dp_public('towns')")
    found = tables_of(exact, "people")
    assert found.unit == ()
    (member,) = found.members.values()
    assert list(member.columns) == list(member.attributes) == ["age", "sex", "race", "smoker"]
    assert member.references == ()
    (towns,) = found.public.values()
    assert towns.keys == (("id",),)
    assert towns.not_null == {"id", "name"}
    assert found.member(("MEMORY", "main", "People")) is member


def test_members(hospital: Loaded) -> None:
    """Each table knows the foreign key towards the unit, and which of its columns name the unit."""
    found = tables_of(hospital, "drugs")
    assert (found.unit_table[2], found.unit) == ("patients", ("patient_id",))
    members = {name[2]: member for name, member in found.members.items()}
    assert {name: (one.owner, one.max_rows) for name, one in members.items()} == {
        "patients": (("patient_id",), 1),
        "visits": (("patient_id",), 10),
        "drugs": ((), 30),
    }
    assert [r.parent[2] for r in members["visits"].references] == ["patients", "clinics"]
    assert [name[2] for name in found.public] == ["clinics"]
    assert hospital(PROTECT) == hospital(PROTECT)
    assert len(hospital("SELECT DISTINCT dataset FROM dp_budget()")) == 2


@pytest.mark.some(1)
@pytest.mark.parametrize("name", list(OWNED))
def test_answers_are_of_rows_that_have_an_owner(hospital: Loaded, name: str) -> None:
    """Rows without an owner are left out, and the others count once."""
    attribute = {"patients": "sex", "visits": "charge", "drugs": "drug"}[name]
    counted = hospital(f"SELECT {attribute}, count(*) FROM {OWNED[name]} GROUP BY 1 ORDER BY 1")
    asked = f"SELECT {attribute}, round(count) FROM dp_marginals('{name}', ['{attribute}'], rho := 1) ORDER BY 1"
    assert hospital(asked) == counted
    (row,) = hospital("SELECT dataset, unit, neighbours FROM dp_ledger()")
    assert row == (
        "patients",
        "patient_id",
        "add or remove one 'patients.patient_id' with all its rows of 'patients', 'visits', 'drugs'",
    )


def test_bound_on_the_rows_of_a_unit(exact: Loaded) -> None:
    """At most max_rows rows of each unit count, of a table that names it by a join too."""
    exact(TABLES + PROTECT.replace("'drugs': 30", "'drugs': 3") + ";" + DECLARED)
    (kept,) = exact(f"SELECT sum(least(n, 3)) FROM (SELECT count(*) AS n FROM {OWNED['drugs']} GROUP BY patient_id)")
    assert exact("SELECT round(count) FROM dp_marginals('drugs', [], rho := 1)") == [kept]


def test_one_budget(hospital: Loaded) -> None:
    """All tables spend one budget, and a request over it names the dataset."""
    for name in OWNED:
        hospital(f"FROM dp_marginals('{name}', [], rho := 1e6)")
    ((spent, releases),) = hospital("SELECT spent, releases FROM dp_budget() WHERE dataset = 'patients'")
    assert (round(spent), releases) == (3e6, 3)
    line = hospital.refused("FROM dp_marginals('drugs', [], rho := 7e6)")
    assert "of the budget of 'drugs', of the dataset 'patients', rho 6e+06 of rho 9e+06" in line


@pytest.mark.slow
def test_every_function_takes_a_member(hospital: Loaded) -> None:
    """Queries, quantiles, SELECTs, unknown bounds, rows and scores of a table whose owners a join tells."""
    assert len(hospital("FROM dp_queries('drugs', [{'days': 'prefix'}], rho := 1)")) == 5
    assert hospital("SELECT value FROM dp_quantiles('drugs', 'days', [0.5], rho := 1)") == [(2,)]
    ((n, mean),) = hospital(
        "SELECT n, mean FROM dp_sql('SELECT count(*) AS n, avg(days) AS mean FROM drugs', rho := 1)"
    )
    exactly = hospital(f"SELECT count(*), avg(days) FROM {OWNED['drugs']}")
    assert (round(n), round(mean, 6)) == (exactly[0][0], round(exactly[0][1], 6))
    assert hospital("SELECT low FROM dp_discover('drugs', 'days', find := 'bounds', rho := 1e3)")
    hospital("CREATE TABLE made AS FROM dp_synthesize('drugs', rho := 100)")
    ((scores,),) = hospital("SELECT count(*) FROM dp_quality('drugs', 'made', rho := 100)")
    assert scores > 0
    assert hospital("SELECT attribute FROM dp_check('drugs')") == [
        ("visit_id",),
        ("days",),
        ("drug",),
    ]  # what leads to the unit first
    assert len(hospital("FROM dp_domain('drugs')")) == 8
    assert hospital("SELECT count(*) FROM dp_explain('drugs', ['days'], rho := 1)") == [(1,)]


CSV = """
CREATE TABLE users AS SELECT i AS id, i % 2 AS sex FROM range(10) t(i);
CREATE TABLE trips AS SELECT i AS trip, i % 13 AS user_id, i % 3 AS days FROM range(60) t(i);
INSERT INTO trips VALUES (7, 9, 1);  -- a key of two rows, of users 7 and 9
CREATE TABLE stops AS SELECT i % 80 AS trip, i % 4 AS night FROM range(400) t(i);
"""
DECLARE = """
CALL dp_link('trips', "references" := {'user_id': 'users.id'}); CALL dp_link('stops', "references" := {'trip': 'trips.trip'});
CALL dp_protect(['users', 'trips', 'stops'], unit := 'users.id', max_rows := 99, rho := 9e6);
CALL dp_attribute('trips', 'days', low := 0, high := 2); CALL dp_attribute('stops', 'night', low := 0, high := 3);
"""


def test_tables_without_constraints(exact: Loaded) -> None:
    """Declared references lead to the unit; what leads nowhere is left out, and a row of two owners is once each one's."""
    exact(CSV)
    exact(DECLARE)
    for table, attribute, owned in (
        ("trips", "days", "trips WHERE user_id IN (SELECT id FROM users)"),
        (
            "stops",
            "night",
            "stops JOIN (SELECT DISTINCT trip, user_id FROM trips JOIN users ON id = user_id) USING (trip)",
        ),
    ):
        counted = exact(f"SELECT {attribute}, count(*) FROM {owned} GROUP BY 1 ORDER BY 1")
        asked = f"SELECT {attribute}, round(count) FROM dp_marginals('{table}', ['{attribute}'], rho := 1) ORDER BY 1"
        assert exact(asked) == counted
    assert "a declaration stays" in exact.refused("CALL dp_link('trips', \"references\" := {'user_id': 'stops.trip'})")


def test_owners_stay(hospital: Loaded) -> None:
    """What leads to the unit is fixed: later declarations, keys that are gone and columns that come change no owner."""
    before = hospital("SELECT drug, round(count) FROM dp_marginals('drugs', ['drug'], rho := 1)")
    hospital("CALL dp_link('drugs', \"references\" := {'id': 'patients.patient_id'})")
    hospital("CREATE TABLE kept AS FROM visits; CREATE TABLE held AS FROM drugs; DROP TABLE drugs; DROP TABLE visits")
    hospital("ALTER TABLE kept RENAME TO visits; ALTER TABLE held RENAME TO drugs")
    hospital("ALTER TABLE drugs ADD COLUMN patient_id INTEGER DEFAULT 3; INSERT INTO visits SELECT * FROM visits")
    assert hospital("SELECT drug, round(count) FROM dp_marginals('drugs', ['drug'], rho := 1, fresh := true)") == before
    hospital("CALL dp_attribute('drugs', 'patient_id', low := 0, high := 9)")
    assert "give it another name" in hospital.refused("FROM dp_marginals('drugs', ['patient_id'], rho := 1)")


def test_unit_without_a_table(exact: Loaded) -> None:
    """Where no table lists the people, a column of one name in all tables is the unit."""
    exact("CREATE TABLE ratings AS SELECT i % 7 AS userId, i % 5 AS stars FROM range(70) t(i)")
    exact("CREATE TABLE tags AS SELECT i % 9 AS userid, 'a' AS tag FROM range(20) t(i)")
    exact("CALL dp_protect(['ratings', 'tags'], unit := 'userId', max_rows := 10, rho := 100)")
    assert exact("SELECT round(count) FROM dp_marginals('tags', [], rho := 1)") == [(20,)]
    found = tables_of(exact, "tags")
    assert {name[2]: member.owner for name, member in found.members.items()} == {
        "ratings": ("userId",),
        "tags": ("userid",),
    }


def test_composite_keys_and_public_units(exact: Loaded) -> None:
    """A unit of two columns, whose register is public; a table further on names it by the same columns."""
    exact("""
    CREATE TABLE towns (land VARCHAR, town INTEGER, PRIMARY KEY (land, town));
    CREATE TABLE houses (land VARCHAR, town INTEGER, house INTEGER, PRIMARY KEY (land, town, house),
        FOREIGN KEY (land, town) REFERENCES towns (land, town));
    CREATE TABLE rooms (land VARCHAR, town INTEGER, house INTEGER, size INTEGER,
        FOREIGN KEY (land, town, house) REFERENCES houses (land, town, house));
    INSERT INTO towns SELECT 'l' || i % 2, i FROM range(6) t(i);
    INSERT INTO houses SELECT 'l' || i % 2, i % 6, i FROM range(24) t(i);
    INSERT INTO rooms SELECT 'l' || i % 2, i % 6, i % 24, i FROM range(72) t(i);
    CALL dp_public('towns');
    CALL dp_protect(['houses', 'rooms'], unit := [['towns.land', 'towns.town']], max_rows := 12, rho := 100);
    """)
    assert exact("SELECT round(count) FROM dp_marginals('rooms', [], rho := 1)") == [(72,)]
    found = tables_of(exact, "rooms")
    assert (found.unit_table[2], found.unit) == ("towns", ("land", "town"))
    assert {name[2]: member.owner for name, member in found.members.items()} == dict.fromkeys(
        ("houses", "rooms"), ("land", "town")
    )


def test_unit_table_is_a_member(exact: Loaded) -> None:
    """A table of people that is not in the list is protected with the others, as it is about them."""
    exact(TABLES + "CALL dp_protect(['drugs', 'visits'], unit := 'patients.patient_id', rho := 1)")
    assert "protected" in exact.refused("CALL dp_public('patients')")
    assert "a declaration stays" in exact.refused("CALL dp_protect('patients', rho := 1)")


def test_list_of_one(exact: Loaded) -> None:
    """One table in a list is a dataset as without a list."""
    exact(TABLES)
    exact("CALL dp_protect(['visits'], unit := 'visits.patient_id', max_rows := {'visits': 3}, rho := 1)")
    assert exact("CALL dp_protect('visits', unit := 'patient_id', max_rows := 3, rho := 1)")
    exact("CALL dp_protect(['clinics'], rho := 1)")


REFUSED = {
    "no path": ("['patients', 'clinics']", "patients.patient_id", "'clinics' does not lead to 'patients.patient_id': it has no FOREIGN KEY"),
    "several": ("['patients', 'towns2', 'clinics']", "patients.patient_id", "'towns2', 'clinics' do not lead to 'patients.patient_id': they have no FOREIGN KEY"),
    "a gap": ("['patients', 'drugs']", "patients.patient_id", "Add the tables between to the list"),
    "no table": ("[]", "patients.patient_id", "no table was named"),
    "no such table": ("['patients', 'nothing']", "patients.patient_id", "there is no table 'nothing'"),
    "no such column": ("['patients', 'visits']", "patients.id", "'patients' has no column 'id'"),
    "twice": ("['patients', 'PATIENTS']", "patients.patient_id", "names a table twice"),
    "two owners": ("['patients', 'letters']", "patients.patient_id", "may belong to two of 'patients.patient_id': by 'sender'"),
    "two types": ("['patients', 'texts']", "patients.patient_id", "keys of two types may mix people up"),
    "a view": ("['patients', 'seen']", "patients.patient_id", "'seen' is a view, and only tables"),
    "no unit": ("['patients', 'visits']", None, "several tables need a unit"),
    "two units": ("['patients', 'visits']", ["visits.patient_id", "visits.clinic_id"], "two units are protected in one table"),
    "no column of that name": ("['clinics', 'visits']", "nobody", "none of 'clinics', 'visits' has a column 'nobody'"),
    "protected alone": ("['people', 'visits']", "people.age", "does not lead to 'people.age'"),
    "public": ("['towns', 'patients']", "town", "'towns' was declared public"),
}  # fmt: skip
MORE = """
CREATE TABLE letters (sender INTEGER REFERENCES patients (patient_id), receiver INTEGER REFERENCES patients (patient_id));
CREATE TABLE texts (patient VARCHAR); CALL dp_link('texts', "references" := {'patient': 'patients.patient_id'});
CREATE TABLE towns2 (name VARCHAR, clinic_id INTEGER);
CREATE VIEW seen AS FROM visits; CREATE TABLE towns AS SELECT 1 AS town; CALL dp_public('towns');
ALTER TABLE patients ADD COLUMN town INTEGER;
"""


@pytest.mark.slow
def test_refusals(exact: Loaded) -> None:
    """One line each that says what would work, and nothing is declared."""
    exact(TABLES.replace("INSERT INTO clinics", MORE.replace("CALL", "SELECT 1; CALL") + "INSERT INTO clinics", 1)
          .replace("(patient_id INTEGER PRIMARY KEY, sex", "(patient_id INTEGER PRIMARY KEY, town INTEGER, sex")
          .replace("ALTER TABLE patients ADD COLUMN town INTEGER;", "")
          .replace("INTO patients SELECT i,", "INTO patients SELECT i, i,"))  # fmt: skip
    for list_, unit, expected in REFUSED.values():
        line = exact.refused(
            f"CALL dp_protect({list_}, unit := $unit, rho := 1)".replace(
                "$unit", "NULL" if unit is None else repr(unit)
            )
        )
        assert expected in line
    for bound in ("{'visit': 3}", "0", "'many'", "{'visits': 2.5}"):
        assert "max_rows" in exact.refused(
            f"CALL dp_protect({LIST}, unit := 'patients.patient_id', max_rows := {bound}, rho := 1)"
        )
    assert exact("SELECT count(*) FROM dp_budget()") == [(1,)]
    exact("CALL dp_link('letters', \"references\" := {'sender': 'patients.patient_id'})")
    exact("CALL dp_protect(['patients', 'letters'], unit := 'patients.patient_id', rho := 1)")


def test_bounds_that_each_request_chooses(exact: Loaded) -> None:
    """Without max_rows a function that needs a number says how to name one."""
    exact(
        TABLES
        + f"CALL dp_protect({LIST}, unit := 'patients.patient_id', rho := 9); CALL dp_attribute('drugs', 'days', low := 0, high := 4)"
    )
    line = exact.refused("FROM dp_marginals('drugs', ['days'], rho := 1)")
    assert "max_rows := 5, say" in line
    assert exact("SELECT count(*) > 0 FROM dp_marginals('drugs', ['days'], rho := 1, max_rows := 5)") == [(True,)]
    line = exact.refused("FROM dp_links('drugs', synthetic := {'drugs': 'd', 'visits': 'v'}, rho := 1)")
    assert exact("SELECT round(count) FROM dp_marginals('patients', [], rho := 1)") == [(40,)]


@pytest.mark.slow
def test_links_and_databases(hospital: Loaded) -> None:
    """A table that names the unit is linked; others get parents, and all steps spend the one budget."""
    steps = hospital(
        "SELECT dataset, what, note FROM dp_synthesize_database('main', target := 'syn', tables := ['patients', 'visits', 'drugs'], rho := 1e6)"
    )
    assert [step[:2] for step in steps] == [
        ("patients", "rows"),
        ("visits", "links to patients and clinics"),
        ("drugs", "rows"),
        ("drugs", "parents in visits"),
    ]
    assert hospital("SELECT count(*) FROM syn.drugs SEMI JOIN syn.visits USING (visit_id)")[0][0] > 100
    assert hospital("SELECT count(*) FROM syn.visits SEMI JOIN syn.patients USING (patient_id)")[0][0] > 100
    assert [round(spent) for (spent,) in hospital("SELECT spent FROM dp_budget() WHERE dataset = 'patients'")] == [1e6]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "asked",
    [
        "CALL dp_public('drugs')",
        "CALL dp_public('looks_public')",
        "FROM dp_quality('patients', 'drugs', rho := 1)",
        "FROM dp_links('visits', synthetic := {'visits': 'visits', 'patients': 'patients'}, rho := 1)",
        "CALL dp_protect('drugs', unit := 'id', max_rows := 1, rho := 1)",
        "CALL dp_protect(['drugs', 'people'], unit := 'drugs.id', rho := 1)",
    ],
)
def test_no_member_is_read_free_of_charge(hospital: Loaded, asked: str) -> None:
    """A member is protected as a table alone is: not public, no synthetic table, in no second dataset, with no other owner."""
    hospital("CREATE VIEW looks_public AS SELECT drug FROM drugs")
    hospital.refused(asked)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["drugs", "visits", "patients"])
def test_a_member_under_another_name_gets_no_second_budget(hospital: Loaded, name: str) -> None:
    """Renamed or copied, it is refused, alone and in a list; and what is called like it now is protected with the others."""
    hospital(f"CREATE TABLE other AS FROM {name}; DROP TABLE IF EXISTS drugs")
    hospital("DROP TABLE IF EXISTS visits" if name != "drugs" else "SELECT 1")
    hospital("DROP TABLE IF EXISTS patients" if name == "patients" else "SELECT 1")
    unit = "visit_id" if name == "drugs" else "patient_id"
    assert f"may be 'memory.main.{name}'" in hospital.refused(
        f"CALL dp_protect('other', unit := '{unit}', max_rows := 1, rho := 1)"
    )
    hospital("CREATE TABLE more (id INTEGER)")
    hospital(f"CALL dp_link('more', \"references\" := {{'id': 'other.{unit}'}})")
    assert "may be" in hospital.refused(f"CALL dp_protect(['other', 'more'], unit := 'other.{unit}', rho := 1)")
    hospital(f"CREATE TABLE {name} AS FROM other")
    assert "a declaration stays" in hospital.refused(f"CALL dp_protect('{name}', rho := 1)")


COLUMN_TYPES = [
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT"),
    *("DOUBLE", "DECIMAL(4,2)", "DECIMAL(38,10)", "BOOLEAN", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"),
    *("TIMESTAMP_NS", "UUID", "ENUM('x', 'y')"),
]  # fmt: skip


@pytest.mark.slow
def test_columns_of_every_type_are_read_through_subqueries(exact: Loaded) -> None:
    exact("CREATE TABLE p (id INTEGER PRIMARY KEY); INSERT INTO p FROM range(9)")
    columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(COLUMN_TYPES))
    exact(f"CREATE TABLE t (id INTEGER REFERENCES p (id), {columns})")
    exact("INSERT INTO t (id) SELECT i % 9 FROM range(30) r(i)")
    exact("CALL dp_protect(['p', 't'], unit := 'p.id', max_rows := {'t': 5}, mu := 1000)")
    for i, type_ in enumerate(COLUMN_TYPES):
        for inner in (f"SELECT id, c{i} FROM t", f"SELECT id, max(c{i}) AS c{i} FROM t GROUP BY id"):
            sql = f"SELECT count(*) AS n FROM ({inner}) AS s WHERE c{i} IS NULL"
            (found,) = exact("SELECT n FROM dp_sql(?, mu := 90)", [sql])
            assert found == (pytest.approx(exact(sql)[0][0], abs=0.1),), type_
    listed = exact(
        f"CALL dp_view('v', 'SELECT {', '.join(f'c{i}' for i in range(len(COLUMN_TYPES)))}, id FROM t', max_rows := 5)"
    )
    assert len(listed) == len(COLUMN_TYPES) + 1


def test_a_row_of_two_units_is_said_to_count_for_each(exact: Loaded) -> None:
    """An account of two clients, through a table of owners whose account is no key: counted twice, as the note of dp_protect says."""
    exact("""CREATE TABLE clients (client INTEGER PRIMARY KEY); INSERT INTO clients SELECT i FROM range(20) t(i);
        CREATE TABLE accounts (account INTEGER PRIMARY KEY, open BOOLEAN); INSERT INTO accounts SELECT i, i % 2 = 0 FROM range(30) t(i);
        CREATE TABLE owners (client INTEGER REFERENCES clients (client), account INTEGER REFERENCES accounts (account), PRIMARY KEY (client, account));
        INSERT INTO owners SELECT i % 20, i FROM range(30) t(i); INSERT INTO owners SELECT 1 + i % 19, i FROM range(10) t(i);
        CALL dp_link('accounts', "references" := {'account': 'owners.account'}); CALL dp_link('owners', "references" := {'client': 'clients.client'})""")
    call = "dp_protect(['clients', 'owners', 'accounts'], unit := 'clients.client', max_rows := {'owners': 5, 'accounts': 5}, rho := 9)"
    notes = {row[0].split(".")[-1]: row[-1] for row in exact(f"CALL {call}")}
    assert notes["accounts"].startswith(
        "a row is of whom 'owners' says by 'account', and counts once for each where that says several; "
    )
    assert notes["owners"].startswith("a row is of whom 'clients' says by 'client'; ")
    assert exact("SELECT round(count) FROM dp_marginals('accounts', [], rho := 1)") == [(40,)]


def test_what_is_said_of_views_of_files_works(exact: Loaded, tmp_path: Path) -> None:
    """Of a view of tables these are protected; a view of files, and a file, take a table, or stand alone."""
    for name in ("us", "vs"):
        exact(f"COPY (SELECT i % 9 AS id, i AS x FROM range(30) t(i)) TO '{tmp_path}/{name}.parquet'")
        exact(f"CREATE VIEW {name} AS FROM '{tmp_path}/{name}.parquet'")
    exact(
        "CREATE TABLE more AS SELECT i AS id FROM range(9) t(i); CREATE VIEW mixed AS SELECT us.* FROM us JOIN more USING (id)"
    )
    protect = "CALL dp_protect([{}], unit := 'id', max_rows := 4, rho := 1)"
    for name in ("us", "vs", "mixed"):
        said = exact.refused(protect.format(f"'{name}', 'more'"))
        assert f'make a table of its rows, CREATE TABLE "{name}_rows" AS FROM "{name}", and name that' in said
        exact(f"CREATE TABLE {name}_rows AS FROM {name}")
        assert f"or protect it by itself: CALL dp_protect('{name}', unit" in said
    exact("CREATE TEMP TABLE short AS FROM more")
    said = exact.refused(protect.format("'short', 'more'"))
    assert said.endswith('CREATE TABLE "short_rows" AS FROM "short", and name that')
    said = exact.refused(protect.format(f"'{tmp_path}/us.parquet', 'more'"))
    assert "Of a file make a table first: CREATE TABLE my_table AS FROM" in said
    assert len(exact(protect.format("'us_rows', 'vs_rows'"))) == 2
    assert exact("CALL dp_protect('vs', unit := 'id', max_rows := 5, rho := 1)")


@pytest.mark.some(1)
@pytest.mark.parametrize("table", ["patients", "visits", "drugs"])
def test_any_table_of_a_unit_takes_a_larger_share(hospital: Loaded, table: str) -> None:
    """They have one budget, of which each step has a part: three times as much for a table, before they add up to 1."""
    call = (
        "SELECT dataset, sum(share) FROM dp_synthesize_database('main', target := 'syn', tables := ['patients', 'visits', 'drugs'], "
        "rho := 1e6, plan := true{}) GROUP BY ALL"
    )
    even, raised = dict(hospital(call.format(""))), dict(hospital(call.format(f", shares := {{'{table}': 3}}")))
    whole = sum(part * (3 if name == table else 1) for name, part in even.items())
    for name, part in even.items():
        assert raised[name] == pytest.approx(part * (3 if name == table else 1) / whole)
    line = hospital.refused(call.format(", shares := {'visit': 3}"))
    assert "none of the tables that are made: 'visits'" in line
    assert "'patients'" in line
