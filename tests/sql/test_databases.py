"""CALL dp_synthesize_database: a schema with its keys and constraints, made whole or not at all, for the total typed."""

import re
from typing import Any

import pytest

TABLES = """
CREATE TABLE regions (code VARCHAR PRIMARY KEY, big BOOLEAN, secret VARCHAR NOT NULL);
CREATE TABLE users (user_id INTEGER PRIMARY KEY, age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 79), email VARCHAR UNIQUE,
    level TINYINT DEFAULT 3, next INTEGER GENERATED ALWAYS AS (age + 1), region VARCHAR REFERENCES regions (code),
    mentor INTEGER REFERENCES users (user_id), mood ENUM('good', 'bad'));
CREATE TABLE movies (movie_id BIGINT PRIMARY KEY, comedy BOOLEAN);
CREATE TABLE ratings (user_id INTEGER REFERENCES users (user_id), movie_id BIGINT REFERENCES movies (movie_id), stars INTEGER,
    PRIMARY KEY (user_id, movie_id), CHECK (stars BETWEEN 1 AND 5));
CREATE TABLE views (user_id INTEGER REFERENCES users (user_id), movie_id BIGINT REFERENCES movies (movie_id), year INTEGER,
    PRIMARY KEY (user_id, movie_id, year));
CREATE VIEW elders AS SELECT age, mood FROM users WHERE age > 60;
INSERT INTO regions SELECT 'r' || i, i % 2 = 0, 'x' FROM range(6) t(i);
INSERT INTO users SELECT i, i * 37 % 80, 'mail' || i, 1, 'r' || (i % 6), NULL, ['good', 'bad'][1 + i % 2] FROM range(40) t(i);
INSERT INTO users SELECT i, i * 37 % 80, 'mail' || i, 1, 'r' || (i % 6), i % 40, ['good', 'bad'][1 + i % 2] FROM range(40, 120) t(i);
INSERT INTO movies SELECT i, i % 3 = 0 FROM range(30) t(i);
INSERT INTO ratings SELECT DISTINCT ON (u, m) i * 11 % 120 AS u, i * 13 % 30 AS m, 1 + i % 5 FROM range(600) t(i);
INSERT INTO views SELECT DISTINCT i * 11 % 120, i * 13 % 30, 2000 + i % 4 FROM range(300) t(i);
"""
PROTECTED = """
CALL dp_protect('regions', rho := 300); CALL dp_protect('users', rho := 300); CALL dp_protect('movies', rho := 300);
CALL dp_protect('ratings', unit := 'user_id', max_rows := 5, rho := 300);
CALL dp_protect('views', unit := 'user_id', max_rows := 5, rho := 300); CALL dp_protect('elders', rho := 300);
CALL dp_attributes('regions'); CALL dp_attribute('users', 'age', bins := [0, 20, 40, 80]); CALL dp_attribute('users', 'mood');
CALL dp_attributes('movies'); CALL dp_attributes('ratings'); CALL dp_attribute('views', 'year', low := 2000, high := 2003);
CALL dp_attribute('elders', 'age', bins := [60, 70, 80]);
"""
PUBLIC = """
CALL dp_public('regions', links := 'users'); CALL dp_public('movies', links := 'ratings'); CALL dp_public('movies', links := 'views');
"""


def make_store(db: Any, public: str = PUBLIC) -> Any:
    """A schema of six datasets."""
    db("DROP TABLE people")
    db(TABLES)
    db(PROTECTED)
    db(public)
    return db


@pytest.fixture
def store(db: Any) -> Any:
    """A schema for one test."""
    return make_store(db)


@pytest.fixture(scope="module")
def asked(shared: Any) -> Any:
    """A schema that is asked about, and not made."""
    return make_store(shared)


CALL = "CALL dp_synthesize_database('main', target := 'syn', tables := {tables}, rho := {rho}{more})"
ALL = "['regions', 'users', 'movies', 'ratings', 'views', 'elders']"


def call(tables: str = ALL, rho: float = 90, more: str = "") -> str:
    return CALL.format(tables=tables, rho=rho, more=more)


@pytest.mark.slow
def test_a_schema_is_made_whole_for_the_total(store: Any) -> None:
    planned = store(call(more=", plan := true"))
    assert store.charges() == 0
    assert store("SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'syn'") == [(0,)]
    done = store(call())
    assert [row[:7] for row in done] == [row[:7] for row in planned]
    assert sum(row[4] for row in done) == pytest.approx(1)
    assert sum(charge["cost"] for charge in store.charged()) == pytest.approx(90, rel=1e-9)
    assert [row[1:3] for row in done if row[1] in ("users", "ratings")] == [
        ("users", "rows"),
        ("users", "parents in regions"),
        ("users", "parents in mentor"),
        ("ratings", "links to users and movies"),
    ]
    for table in ("regions", "users", "movies", "ratings", "views", "elders"):
        (made,) = [row[7] for row in done if row[1] == table][-1:]
        assert store(f"SELECT count(*) FROM syn.{table}") == [(made,)]
    assert store("SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'syn'") == [(6,)]


@pytest.mark.slow
def test_columns_types_keys_and_constraints_are_the_same(store: Any) -> None:
    store(call(more=", undeclared := 'null'"))
    question = "SELECT table_name, column_name, data_type, CASE WHEN column_name <> 'next' THEN column_default END FROM duckdb_columns() WHERE NOT internal AND schema_name = '{}' AND {}"
    same = "table_name NOT IN ('elders') AND column_name <> 'secret' ORDER BY ALL"
    assert store(question.format("syn", same)) == store(question.format("main", same))
    rules = (
        "SELECT table_name, constraint_type, constraint_column_names, referenced_table FROM duckdb_constraints() WHERE "
        "schema_name = '{}' AND constraint_column_names <> ['secret'] ORDER BY ALL"
    )
    assert store(rules.format("syn")) == store(rules.format("main"))
    # And they hold: DuckDB has seen to it.
    assert store("SELECT count(mentor) > 20, count(*) > count(mentor) FROM syn.users") == [(True, True)]
    assert store("SELECT bool_and(next = age + 1 AND level = 3 AND email IS NULL) FROM syn.users") == [(True,)]
    assert store("SELECT count(DISTINCT region) > 1, count(DISTINCT mood) FROM syn.users") == [(True, 2)]
    assert store("SELECT count(*) > 100 FROM syn.ratings") == [(True,)]
    assert {name for name, _ in store.columns("FROM syn.elders")} == {"age"}


@pytest.mark.slow
def test_columns_that_were_never_declared_are_left_out(store: Any) -> None:
    notes = {row[1:3]: row[-1] for row in store(call())}
    assert re.search(
        r"the stored links measured \d+ ± \d+ of about \d+ rows with", notes["ratings", "links to users and movies"]
    )
    names = {name for name, _ in store.columns("FROM syn.users")}
    assert {name for name, _ in store.columns("FROM main.users")} - names == {"email"}
    assert store("SELECT bool_and(next = age + 1 AND level = 3) FROM syn.users") == [(True,)]


@pytest.mark.slow
def test_what_differs_is_said_before_anything_is_charged(asked: Any) -> None:
    notes = {row[1]: row[-1] for row in asked(call(more=", plan := true")) if row[-1]}
    assert "left out, NOT NULL and not declared: secret" in notes["regions"]
    kept = "CALL dp_attribute('users', 'email', \"values\" := [...]), or undeclared := 'null', as NULL"
    assert f"left out, not declared: email (to keep it: {kept})" in notes["users"]
    notes = {row[1]: row[-1] for row in asked(call(more=", plan := true, undeclared := 'null'")) if row[-1]}
    assert "NULL, not declared: email" in notes["users"]
    assert "undeclared is 'keep'; use 'null'" in asked.refused(call(more=", undeclared := 'keep'"))
    alone = asked(call("['users', 'movies', 'ratings']", more=", plan := true"))
    (*_, last) = [row[-1] for row in alone if row[1] == "users"]
    assert "'regions' is not among the tables, so region, which refers to it, is left out" in last
    assert "CALL dp_public(['regions'])" in last


@pytest.mark.slow
def test_again_it_is_free_and_the_same(store: Any) -> None:
    tables = "['users', 'movies', 'ratings']"
    store(call(tables))
    first, charges = store("FROM syn.ratings ORDER BY ALL"), store.charges()
    assert "has tables already" in store.refused(call(tables))
    store("DROP SCHEMA syn CASCADE")
    store(call(tables))
    assert store("FROM syn.ratings ORDER BY ALL") == first
    assert store.charges() == charges
    store("DROP SCHEMA syn CASCADE")
    store(call(tables, more=", fresh := true"))
    assert store.charges() == 2 * charges


def test_shares(asked: Any) -> None:
    rows = asked(
        call("['movies', 'users', 'ratings']", more=", shares := {'ratings': 10, 'movies': 0.5}, plan := true")
    )
    shares = {(row[1], row[2].split(" ")[0]): row[4] for row in rows}
    assert shares["ratings", "links"] == pytest.approx(20 * shares["users", "rows"])
    assert shares["movies", "rows"] == pytest.approx(shares["users", "rows"] / 2)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (call(rho=3000), "would be charged"),
        (call(tables="['nobody']"), "tables names 'nobody', and 'main' has no such table; its protected tables are"),
        (call(tables="[]"), "write a list of protected tables"),
        (call(more=", shares := {'nobody': 2}"), "shares names 'nobody', which is none of the tables that are made"),
        (call(more=", shares := {'users': 0}"), "write a positive number"),
        (call(more=", method := 'gan'"), "method 'gan' is not known"),
        (call(more=", link_method := 'gan'"), "link_method is 'gan'; use 'auto'"),
        (
            call(more=", max_rows := {'userz': 3}"),
            "max_rows names 'userz', which is none of the tables that are made: 'users'",
        ),
        (
            call(more=", max_rows := {'ratings': 6}"),
            "of which at most 5 rows of a unit count, as dp_protect says; 1 to 5 work.",
        ),
        ("CALL dp_synthesize_database('main', target := '', rho := 1)", "target is ''; name a schema"),
        (call(more=", max_degree := 0"), "max_degree is 0"),
        ("CALL dp_synthesize_database('main', target := 'main', rho := 1)", "name a new schema"),
        ("CALL dp_synthesize_database('main', rho := 1)", "target is missing"),
        ("CALL dp_synthesize_database('a.b.c', target := 'syn', rho := 1)", "write 'schema' or 'catalog.schema'"),
        ("CALL dp_synthesize_database('nowhere', target := 'syn', rho := 1)", "no table of 'nowhere' is protected"),
        ("CALL dp_synthesize_database('main', target := 'syn')", "no budget"),
        (
            # 'people' was dropped, and is protected still.
            "CALL dp_synthesize_database('main', target := 'syn', rho := 1)",
            "'people' is protected and cannot be seen",
        ),
    ],
)
def test_what_is_refused(asked: Any, statement: str, says: str) -> None:
    assert says in asked.refused(statement)
    assert asked("SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'syn'") == [(0,)]


@pytest.mark.slow
def test_parents_that_no_link_protects_are_refused_before_anything_is_charged(db: Any) -> None:
    """Each is named with the table that refers to it, and the call that says that its rows are public there."""
    make_store(db, public="SELECT 1")
    for declaration, child, parent in zip(
        PUBLIC.split(";"), ("users", "ratings", "views"), ("regions", "movies", "movies"), strict=False
    ):
        for more in ("", ", plan := true"):
            assert db.refused(call(more=more)) == (
                f"Invalid Input Error: dp_synthesize_database: links of '{child}' read rows of '{parent}', which they "
                "neither protect nor charge; the curator can declare these rows public in these links: "
                f"CALL dp_public('{parent}', links := '{child}')"
            )
        db(declaration)
    assert db("SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'syn'") == [(0,)]
    assert len(db(call(more=", plan := true"))) == 8


@pytest.mark.slow
def test_tables_that_cannot_be_made_together_are_refused(store: Any) -> None:
    store(
        "CREATE TABLE other (id INTEGER PRIMARY KEY, b BOOLEAN); CALL dp_protect('other', mu := 5); CALL dp_attributes('other');"
        "CREATE TABLE one (id INTEGER PRIMARY KEY, two INTEGER, b BOOLEAN); CREATE TABLE two (id INTEGER PRIMARY KEY, one INTEGER, b BOOLEAN);"
        "CALL dp_protect('one', rho := 9); CALL dp_protect('two', rho := 9); CALL dp_attributes('one'); CALL dp_attributes('two');"
        "CALL dp_link('one', \"references\" := {'two': 'two.id'}); CALL dp_link('two', \"references\" := {'one': 'one.id'});"
        "CREATE TABLE plain (user_id INTEGER REFERENCES users (user_id), movie_id BIGINT REFERENCES movies (movie_id));"
        "CALL dp_protect('plain', rho := 9)"
    )
    assert "several ('movies' zcdp" in store.refused(call("['movies', 'other']"))
    assert "form a cycle" in store.refused(call("['one', 'two']", rho=1))
    assert "protects single rows" in store.refused(call("['users', 'movies', 'plain']", rho=1))
    store("BEGIN; CREATE TABLE young (b BOOLEAN); CALL dp_protect('young', rho := 9)")
    assert "is not committed yet" in store.refused(call("['young']", rho=1))
    store("ROLLBACK")


@pytest.mark.slow
def test_a_failure_leaves_no_table_and_keeps_what_was_charged(store: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("duckdb_dp.sql.ddl.Target.insert", lambda *_: "SELECT error('no room left')")
        with pytest.raises(Exception, match="No table was made"):
            store(call("['movies']", rho=1))
    assert store("SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'syn'") == [(0,)]
    store(call("['movies']", rho=1))
    assert store.charges() == 1


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("step", [1, 2])
def test_one_to_one_keeps_every_row_that_has_room(db: Any, step: int) -> None:
    db("CREATE TABLE people_1 (id INTEGER PRIMARY KEY, a INTEGER)")
    db("CREATE TABLE passports (id INTEGER PRIMARY KEY REFERENCES people_1 (id), b INTEGER NOT NULL)")
    db("INSERT INTO people_1 SELECT i, i % 3 FROM range(90) t(i)")
    db(f"INSERT INTO passports SELECT i, i % 3 FROM range(0, 90, {step}) t(i)")
    for table in ("people_1", "passports"):
        db(f"CALL dp_protect('{table}', rho := 300)")
    db("CALL dp_public('people_1', links := 'passports'); CALL dp_attribute('people_1', 'a', low := 0, high := 2)")
    db("CALL dp_attribute('passports', 'b', low := 0, high := 2)")
    done = db("CALL dp_synthesize_database('main', target := 'syn', tables := ['people_1', 'passports'], rho := 200)")
    made = [row[7] for row in done]
    assert made[2] == min(made[0], made[1])
    assert abs(made[1] - 90 / step) < 6
    assert db("SELECT count(*), count(DISTINCT id) FROM syn.passports") == [(made[2], made[2])]
    ((alike,),) = db("SELECT avg((a = b)::INTEGER) FROM syn.passports JOIN syn.people_1 USING (id)")
    assert alike > 0.9


def test_keys_that_cannot_be_numbered_are_refused_before_anything_is_charged(db: Any) -> None:
    db("CREATE TABLE days (day DATE PRIMARY KEY, a INTEGER)")
    db("CREATE TABLE visits (id INTEGER PRIMARY KEY, day DATE REFERENCES days (day), b INTEGER)")
    for table, column in (("days", "a"), ("visits", "b")):
        db(f"CALL dp_protect('{table}', rho := 9); CALL dp_attribute('{table}', '{column}', low := 0, high := 2)")
    call = "CALL dp_synthesize_database('main', target := 'syn', tables := ['days', 'visits'], rho := 2)"
    assert "keys of synthetic rows are numbered" in db.refused(call)
    assert db.charges() == 0


DECLARED_KEYS = {
    # type: (SQL of the key of row i, how it is declared, whether synthetic rows can have it)
    "INTEGER": ("i", "low := 0, high := 199", True),
    "VARCHAR": ("'k' || i", "\"values\" := ['k1', 'k2']", True),
    "UUID": ("gen_random_uuid()", "\"values\" := ['00000000-0000-0000-0000-00000000000a']", True),
    "DATE": ("DATE '2020-01-01' + i::INTEGER", "low := '2020-01-01', high := '2020-12-31'", False),
    "DOUBLE": ("i", "bins := [0, 100, 200]", False),
    "DECIMAL(9,0)": ("i", "bins := [0, 100, 200]", False),
}


@pytest.mark.some(3, "declared")
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("type_", DECLARED_KEYS)
def test_a_declared_key_is_numbered_where_rows_have_parents(db: Any, type_: str, declared: bool) -> None:
    """Of the parent, to which others refer, and of the child, whose rows get parents by it."""
    key, domain, good = DECLARED_KEYS[type_]
    us = type_ if good else "INTEGER"
    db(
        f"CREATE TABLE us (id {us} PRIMARY KEY, a INTEGER); INSERT INTO us SELECT {DECLARED_KEYS[us][0]}, i % 3 FROM range(40) t(i)"
    )
    db(f"CREATE TABLE vs (vid {type_} PRIMARY KEY, id {us} REFERENCES us (id), b INTEGER)")
    db("CREATE TABLE listed AS SELECT id, row_number() OVER () - 1 AS place FROM us")
    db(f"INSERT INTO vs SELECT {key}, id, i % 3 FROM range(80) t(i) JOIN listed ON place = i % 40")
    db("CALL dp_protect(['us', 'vs'], unit := 'us.id', max_rows := 2, rho := 9000)")
    db("CALL dp_attribute('us', 'a', low := 0, high := 2); CALL dp_attribute('vs', 'b', low := 0, high := 2)")
    if declared:
        db(f"CALL dp_attribute('us', 'id', {DECLARED_KEYS[us][1]}); CALL dp_attribute('vs', 'vid', {domain})")
    call = "CALL dp_synthesize_database('main', target := 'syn', tables := ['us', 'vs'], rho := 4000)"
    if not good:
        assert f"'vs' refers to 'us' and has the key vid of 'vs', of type {type_}" in db.refused(call)
        return
    planned = db(call.replace("rho :=", "plan := true, rho :="))
    done = db(call)
    for rows in (planned, done):
        notes = " ".join(note or "" for *_, note in rows)
        assert ("numbered as keys, though declared: id" in notes) == declared
        assert ("numbered as keys, though declared: vid" in notes) == declared
    assert [row[7] for row in done] == [40, 80, 80]
    assert db("SELECT count(DISTINCT vid), count(*) FROM syn.vs JOIN syn.us USING (id)") == [(80, 80)]


@pytest.mark.parametrize("part", ["land", "number"])
def test_a_declared_part_of_a_key_keeps_its_values(db: Any, part: str) -> None:
    db(
        "CREATE TABLE us (land VARCHAR, number INTEGER, a INTEGER, PRIMARY KEY (land, number));"
        "INSERT INTO us SELECT ['a', 'b'][1 + i % 2], i // 2, i % 3 FROM range(40) t(i);"
        "CREATE TABLE vs (vid INTEGER PRIMARY KEY, land VARCHAR, number INTEGER, b INTEGER, FOREIGN KEY (land, number) REFERENCES us);"
        "INSERT INTO vs SELECT i, ['a', 'b'][1 + i % 2], (i // 2) % 20, i % 3 FROM range(80) t(i);"
    )
    db("CALL dp_protect(['us', 'vs'], unit := [['us.land', 'us.number']], max_rows := 2, rho := 9000)")
    db("CALL dp_attribute('us', 'a', low := 0, high := 2); CALL dp_attribute('vs', 'b', low := 0, high := 2)")
    domain = {"land": "\"values\" := ['a', 'b']", "number": "low := 0, high := 19"}[part]
    db(f"CALL dp_attribute('us', '{part}', {domain}); CALL dp_attribute('vs', '{part}', {domain})")
    done = db("CALL dp_synthesize_database('main', target := 'syn', tables := ['us', 'vs'], rho := 4000)")
    assert not any("numbered as keys, though declared" in (row[-1] or "") for row in done)
    for table, rows in (("us", 40), ("vs", 80)):
        ((found, least),) = db(f"SELECT count(*), min(n) FROM (SELECT count(*) AS n FROM syn.{table} GROUP BY {part})")
        groups = 2 if part == "land" else 20
        assert (found, least >= rows / groups / 2) == (groups, True)
    assert db("SELECT count(*) FROM syn.vs JOIN syn.us USING (land, number)") == [(80,)]


def test_a_key_that_nothing_refers_to_stays_an_attribute(db: Any) -> None:
    db("CREATE TABLE us (id INTEGER PRIMARY KEY, a INTEGER); INSERT INTO us SELECT 2 * i, i % 3 FROM range(40) t(i)")
    db("CALL dp_protect('us', rho := 9000); CALL dp_attribute('us', 'a', low := 0, high := 2)")
    db("CALL dp_attribute('us', 'id', low := 0, high := 99)")
    ((*_, note),) = db("CALL dp_synthesize_database('main', target := 'syn', tables := ['us'], rho := 4000)")
    assert note is None
    assert db("SELECT count(*) FROM syn.us WHERE id % 2 <> 0") == [(0,)]


def test_declared_keys_of_what_a_link_table_links(db: Any) -> None:
    """Parents whose rows shared a key were left out."""
    made_anew(db)
    db("CALL dp_attribute('ms', 'm', low := 0, high := 19)")
    done = db("CALL dp_synthesize_database('main', target := 'syn', tables := ['us', 'ms', 'l'], rho := 250)")
    assert [row[-1] for row in done if row[1] == "ms"] == ["numbered as keys, though declared: m"]
    ((made,),) = db("SELECT count(*) FROM syn.ms")
    assert abs(made - 20) <= 2
    ((joined,), (links,)) = db("SELECT count(*) FROM syn.l JOIN syn.ms USING (m) UNION ALL SELECT count(*) FROM syn.l")
    assert joined == links > 0


def test_rows_that_a_constraint_forbids_are_counted(db: Any) -> None:
    db("CREATE TABLE staff (id INTEGER PRIMARY KEY, boss INTEGER, pay INTEGER, CHECK (boss < id))")
    db("INSERT INTO staff SELECT i, CASE WHEN i > 3 THEN i // 4 END, i % 3 FROM range(60) t(i)")
    db("CALL dp_protect('staff', rho := 9000); CALL dp_attribute('staff', 'pay', low := 0, high := 2)")
    db("CALL dp_link('staff', \"references\" := {'boss': 'staff.id'})")
    done = db("CALL dp_synthesize_database('main', target := 'syn', tables := ['staff'], rho := 5000)")
    lost = done[0][7] - done[1][7]
    assert lost > 0
    assert f"{lost} rows left out, which a constraint forbids" in done[1][-1]
    assert db("SELECT count(*) FROM syn.staff") == [(done[1][7],)]


LINKED = """
CREATE TABLE us (u INTEGER PRIMARY KEY, old BOOLEAN); CREATE TABLE ms (m INTEGER PRIMARY KEY, big BOOLEAN);
INSERT INTO us SELECT i, i % 2 = 0 FROM range(20) t(i); INSERT INTO ms SELECT i, i % 3 = 0 FROM range(20) t(i);
CREATE TABLE l (u {type}, m {type}); INSERT INTO l SELECT i % 20, i * 7 % 20 FROM range(60) t(i);
CREATE TABLE l2 (u {type}, m {type}); INSERT INTO l2 SELECT i, i FROM range(20) t(i);
CALL dp_protect('us', rho := 300); CALL dp_protect('ms', rho := 300); CALL dp_attributes('us'); CALL dp_attributes('ms');
CALL dp_protect('l', unit := ['u', 'm'], max_rows := {most}, rho := 300);
CALL dp_protect('l2', unit := ['u', 'm'], max_rows := 1, rho := 300);
CALL dp_link('l', "references" := {{'u': 'us.u', 'm': 'ms.m'}});
CALL dp_link('l2', "references" := {{'u': 'us.u', 'm': 'ms.m'}});
"""
WHOLE = "CALL dp_synthesize_database('main', target := 'syn', rho := 4{})"


def made_anew(db: Any, **how: object) -> None:
    db("DROP TABLE people; CREATE TABLE people (x INTEGER, age INTEGER, sex VARCHAR, race INTEGER, smoker BOOLEAN)")
    db(LINKED.format(**{"type": "INTEGER", "most": 3} | how))


@pytest.mark.slow
def test_promises_of_all_link_tables_are_checked_before_the_first_charge(db: Any) -> None:
    made_anew(db, most=2)
    whole = WHOLE.format(", tables := ['us', 'ms', 'l', 'l2']{}")
    db(whole.format(", plan := true"))  # which reads no rows
    assert "'l' has rows with more links than the 2 promised for both sides" in db.refused(whole.format(""))
    assert db("SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'syn'") == [(0,)]
    db(WHOLE.format(", tables := ['us', 'ms', 'l2']"))


@pytest.mark.slow
def test_a_promise_that_holds(db: Any) -> None:
    made_anew(db)
    assert [row[1] for row in db(WHOLE.format(", tables := ['us', 'ms', 'l', 'l2']"))] == ["us", "ms", "l", "l2"]


@pytest.mark.slow
def test_keys_of_other_types_than_those_they_refer_to_have_no_constraint(db: Any) -> None:
    """DuckDB has no such constraints, and refused the schema."""
    made_anew(db, type="BIGINT")
    call = WHOLE.format(", tables := ['us', 'ms', 'l']")
    planned, made = db(call[:-1] + ", plan := true)"), db(call)
    for note in (planned[-1][-1], made[-1][-1]):
        assert "without a constraint, as the types of the keys differ" in note
    assert db("SELECT count(*) FROM syn.l ANTI JOIN syn.us USING (u)") == [(0,)]
    kept = "SELECT count(*) FROM duckdb_constraints() WHERE schema_name = 'syn' AND constraint_type = 'FOREIGN KEY'"
    assert db(kept) == [(0,)]


@pytest.mark.slow
def test_a_schema_that_cannot_be_made(db: Any, tmp_path: Any) -> None:
    made_anew(db)
    db(
        f"ATTACH '{tmp_path}/other.duckdb' AS other; DETACH other; ATTACH '{tmp_path}/other.duckdb' AS other (READ_ONLY)"
    )
    for target in ("other.syn", "nowhere.syn"):
        found = db.refused(WHOLE.format("").replace("target := 'syn'", f"target := '{target}', tables := ['us']"))
        assert "schema 'syn' cannot be made, so nothing was charged" in found
        assert "No table was made" not in found


KEYS = [
    "rid INTEGER PRIMARY KEY",
    "PRIMARY KEY (uid, mid)",
    "UNIQUE (uid, mid)",
    "PRIMARY KEY (mid, s)",
    "n INTEGER, UNIQUE (uid, n)",
]


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("public", [True, False])
def test_what_can_be_planned_can_be_made_whatever_the_key(db: Any, key: str, public: bool) -> None:
    """Rows that refer to their unit and to a table that is not made, under keys of these references and others."""
    more = ", i" if "INTEGER" in key else ""
    db(f"""CREATE TABLE m (mid INTEGER PRIMARY KEY); CREATE TABLE u (uid INTEGER PRIMARY KEY, a INTEGER);
        CREATE TABLE r (uid INTEGER REFERENCES u (uid), mid INTEGER REFERENCES m (mid), s INTEGER, {key});
        INSERT INTO m FROM range(20); INSERT INTO u SELECT i, i % 4 FROM range(50) t(i);
        INSERT INTO r SELECT i % 50, (i + i // 100) % 20, i // 20{more} FROM range(150) t(i);
        CALL dp_protect(['u', 'r'], unit := 'u.uid', max_rows := 4, rho := 300);
        CALL dp_attribute('u', 'a', low := 0, high := 3); CALL dp_attribute('r', 's', low := 0, high := 7)""")
    if public:
        db("CALL dp_public('m')")
    made = call("['u', 'r']", 90)
    planned = db(made.replace("rho :=", "plan := true, rho :="))
    assert [row[:5] for row in db(made)] == [row[:5] for row in planned]
    assert db("SELECT count(*) = count(uid) AND count(*) > 50 FROM syn.r WHERE uid IN (SELECT uid FROM syn.u)") == [
        (True,)
    ]


@pytest.mark.slow
def test_a_family_without_numbers_of_rows_takes_them_in_the_call(db: Any) -> None:
    """What each error says to add is taken, and names in it can be pasted as they are."""
    db("""CREATE SCHEMA clin; CREATE TABLE clin."my people" AS SELECT i AS id, i % 3 AS kind FROM range(40) t(i);
        CREATE TABLE clin.visits AS SELECT i AS visit, i % 40 AS who, i % 5 AS days FROM range(120) t(i)""")
    protect = "CALL dp_protect(['clin.my people', 'clin.visits'], unit := 'clin.my people.id', rho := 300)"
    message = db.refused(protect)
    db(message.split("refer to: ")[1].split(". If no row")[0].replace("my_id", "who"))
    db(protect)
    db("""CALL dp_attribute('clin.my people', 'kind', low := 0, high := 2); CALL dp_attribute('clin.visits', 'days', low := 0, high := 4);
        CALL dp_link('clin.visits', "references" := {'visit': 'clin.visits.visit'})""")
    made = "CALL dp_synthesize_database('clin', target := 'syn', rho := 90{})"
    said = db.refused(made.format(""))
    assert "'visits': protected without a number of rows" in said
    assert "max_degree" not in said
    given = "max_rows := " + said.split("or max_rows := ")[1].split(": of each unit")[0]
    assert db(made.format(f", plan := true, {given}"))
    assert db(made.format(", plan := true, max_rows := 5"))
    assert "whole number" in db.refused(made.format(", max_rows := 'auto'"))
    planned = db(made.format(", plan := true, max_rows := {'visits': 3, 'my people': 1}"))
    done = db(made.format(", max_rows := {'visits': 3, 'my people': 1}"))
    assert [row[:6] for row in done] == [row[:6] for row in planned]
    assert db("SELECT max(n) FROM (SELECT count(*) AS n FROM syn.visits GROUP BY who)")[0][0] <= 3
    assert "max_degree := 5" in db.refused(
        "FROM dp_links('clin.visits', synthetic := {'visits': 'syn.visits', 'my people': 'syn.my people'}, rho := 1)"
    )


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
@pytest.mark.parametrize("linked", [True, False])
def test_public_tables_are_copied_and_the_plan_says_which_links_are_not_drawn(db: Any, key: str, linked: bool) -> None:
    """Items of orders name no client; a ware has a key or none; a client's town is a link of one table to a public one alone."""
    db(f"""CREATE TABLE wares (ware VARCHAR {key}, price INTEGER); CREATE TABLE towns (town INTEGER {key}, large BOOLEAN);
        CREATE TABLE clients (client INTEGER PRIMARY KEY, vip BOOLEAN, town INTEGER);
        CREATE TABLE orders (number INTEGER PRIMARY KEY, client INTEGER, paid BOOLEAN);
        CREATE TABLE items (number INTEGER, ware VARCHAR, gift BOOLEAN);
        INSERT INTO wares SELECT 'w' || i, i FROM range(20) t(i); INSERT INTO towns SELECT i, i < 2 FROM range(5) t(i);
        INSERT INTO clients SELECT i, i % 2 = 0, i % 5 FROM range(60) t(i);
        INSERT INTO orders SELECT i, i % 60, i % 3 = 0 FROM range(120) t(i);
        INSERT INTO items SELECT i % 120, 'w' || i % 20, i % 4 = 0 FROM range(240) t(i);
        CALL dp_public('wares'); CALL dp_public('towns');
        CALL dp_link('clients', "references" := {{'town': 'towns.town'}});
        CALL dp_link('orders', "references" := {{'client': 'clients.client'}});
        CALL dp_link('items', "references" := {{'number': 'orders.number', 'ware': 'wares.ware'}})""")
    if not linked:
        db("CALL dp_link('items', \"references\" := {'number': 'orders.number'})")
    db("""CALL dp_protect(['clients', 'orders', 'items'], unit := 'clients.client', max_rows := 4, rho := 90);
        CALL dp_attributes('clients'); CALL dp_attributes('orders'); CALL dp_attributes('items')""")
    make = "SELECT dataset, note FROM dp_synthesize_database('main', target := 'syn', tables := ['clients', 'orders', 'items'], rho := 9{})"
    planned = db(make.format(", plan := true"))
    assert db.charges() == 0
    notes = {dataset: (note or "").split("; ") for dataset, note in planned}
    drawn = "'{0}' is public, and {1} is drawn as any column, with the keys of '{0}' as its values"
    assert (drawn.format("wares", "ware") in notes["items"]) == linked
    assert ("'wares' is public and is copied as it is" in notes["items"]) == linked
    assert drawn.format("towns", "town") in notes["clients"]
    assert "'towns' is public and is copied as it is" in notes["clients"]
    done = dict(db(make.format("")))
    assert done["clients"].startswith(dict(planned)["clients"])
    assert done["items"].startswith(dict(planned)["items"])
    assert db("SELECT count(*) > 100 FROM syn.items SEMI JOIN syn.orders USING (number)") == [(True,)]
    for name in ("towns", *(["wares"] if linked else [])):
        assert db(f"FROM syn.{name} ORDER BY ALL") == db(f"FROM {name} ORDER BY ALL")


@pytest.mark.slow
def test_public_parents_are_copied_and_linked_to_as_they_are(db: Any) -> None:
    """Films that anybody may see: nobody declares their columns, joins read them, and synthetic ratings refer to them."""
    db("""CREATE TABLE films (film INTEGER PRIMARY KEY, title VARCHAR UNIQUE, drama BOOLEAN, year INTEGER, price DECIMAL(6, 2));
        CREATE TABLE viewers (viewer INTEGER PRIMARY KEY, sex VARCHAR);
        CREATE TABLE seen (viewer INTEGER REFERENCES viewers (viewer), film INTEGER REFERENCES films (film), stars INTEGER, PRIMARY KEY (viewer, film));
        INSERT INTO films SELECT i, 'f' || i, i % 3 = 0, 1900 + i, i * 0.25 FROM range(100) t(i);
        INSERT INTO viewers SELECT i, ['f', 'm'][1 + i % 2] FROM range(120) t(i);
        INSERT INTO seen SELECT i % 120, f, CASE WHEN f % 3 = 0 THEN 5 ELSE 1 + i % 2 END FROM (SELECT i, (i * 7 + i // 120) % 100 AS f FROM range(480) t(i));
        CALL dp_protect(['viewers', 'seen'], unit := 'viewers.viewer', max_rows := {'seen': 4}, rho := 3000); CALL dp_public('films');
        CALL dp_attribute('viewers', 'sex', "values" := ['f', 'm']); CALL dp_attribute('seen', 'stars', low := 1, high := 5)""")
    assert (
        len(db("FROM dp_sql('SELECT drama, count(*) FROM seen JOIN films USING (film) GROUP BY drama', rho := 1)")) == 2
    )
    made = "CALL dp_synthesize_database('main', target := 'syn', tables := ['viewers', 'seen'], rho := 900{})"
    planned, done = db(made.format(", plan := true")), db(made.format(""))
    assert [row[1:3] for row in done] == [("viewers", "rows"), ("seen", "links to viewers and films")]
    assert [row[:6] for row in done] == [row[:6] for row in planned]
    assert db("FROM syn.films EXCEPT FROM films") == []
    assert db("SELECT count(*) FROM syn.films") == [(100,)]
    assert db("SELECT avg(stars) > 4 FROM syn.seen JOIN syn.films USING (film) WHERE drama") == [(True,)]
    assert db("SELECT avg(stars) < 3 FROM syn.seen JOIN syn.films USING (film) WHERE NOT drama") == [(True,)]
    db("CREATE TABLE others AS FROM dp_synthesize('viewers', rho := 1)")
    assert db(
        "SELECT count(*) > 0 FROM dp_links('seen', synthetic := {'viewers': 'others', 'films': 'films'}, rho := 100)"
    ) == [(True,)]


def test_what_names_no_unit_keeps_no_links_from_being_drawn_and_gets_parents(db: Any) -> None:
    """Lines of orders name no client: orders link clients and public wares all the same, and a line is of an order."""
    db("""CREATE TABLE wares (ware INTEGER PRIMARY KEY, large BOOLEAN); CREATE TABLE clients (client INTEGER PRIMARY KEY, vip BOOLEAN);
        CREATE TABLE orders (number INTEGER PRIMARY KEY, client INTEGER REFERENCES clients (client), ware INTEGER REFERENCES wares (ware), paid BOOLEAN);
        CREATE TABLE lines (number INTEGER REFERENCES orders (number), line INTEGER, gift BOOLEAN, PRIMARY KEY (number, line));
        CREATE TABLE thanks (number INTEGER PRIMARY KEY REFERENCES orders (number), stars INTEGER);
        INSERT INTO wares SELECT i, i % 2 = 0 FROM range(20) t(i); INSERT INTO clients SELECT i, i % 2 = 0 FROM range(60) t(i);
        INSERT INTO orders SELECT i, i % 60, i % 20, i % 3 = 0 FROM range(120) t(i);
        INSERT INTO lines SELECT i // 2, 1 + i % 2, i % 4 = 0 FROM range(240) t(i); INSERT INTO thanks SELECT i, 1 + i % 5 FROM range(90) t(i);
        CALL dp_public('wares');
        CALL dp_protect(['clients', 'orders', 'lines', 'thanks'], unit := 'clients.client', max_rows := 4, rho := 90);
        CALL dp_attributes('clients'); CALL dp_attributes('orders'); CALL dp_attributes('lines', {'line': {'low': 1, 'high': 2}});
        CALL dp_attribute('thanks', 'stars', low := 1, high := 5)""")
    tables = "tables := ['clients', 'orders', 'lines', 'thanks']"
    steps = db(f"SELECT dataset, what FROM dp_synthesize_database('main', target := 'syn', {tables}, rho := 9)")
    assert ("orders", "links to clients and wares") in steps
    assert db("SELECT count(*) > 50 FROM syn.orders JOIN syn.wares USING (ware) JOIN syn.clients USING (client)") == [
        (True,)
    ]
    columns = "SELECT list(column_name ORDER BY column_name) FROM duckdb_columns() WHERE schema_name = 'syn' AND table_name = '{}'"
    assert db(columns.format("lines")) == [(["gift", "line", "number"],)]
    assert db(columns.format("thanks")) == [(["number", "stars"],)]
    assert db(
        "SELECT count(*) > 100, max(n) <= 2 FROM syn.lines SEMI JOIN syn.orders USING (number) JOIN "
        "(SELECT number, count(*) AS n FROM syn.lines GROUP BY number) USING (number)"
    ) == [(True, True)]
    assert db("SELECT count(*) > 60 FROM syn.thanks SEMI JOIN syn.orders USING (number)") == [(True,)]


def test_tables_of_several_deltas_are_made_at_the_least_one(db: Any) -> None:
    """A part of delta that is kept for discovery leaves less to synthetic rows, and what a refusal says to write works."""
    db("""CREATE TABLE cats AS SELECT i % 2 = 0 AS tame FROM range(40) t(i); CREATE TABLE dogs AS SELECT i % 3 = 0 AS tame FROM range(50) t(i);
        CALL dp_protect('cats', epsilon := 9, delta := 1e-9, discovery_delta := 1e-10); CALL dp_protect('dogs', epsilon := 9, delta := 1e-9);
        CALL dp_attributes('cats'); CALL dp_attributes('dogs')""")
    made = "CALL dp_synthesize_database('main', target := 'syn', tables := ['cats', 'dogs'], epsilon := 2{})"
    assert "write the least, delta := 9e-10, or" in db.refused(made.format(""))
    assert len(db(made.format(", delta := 9e-10"))) == 2


@pytest.mark.parametrize("asked", ["2", "{'visits': 2}", "100"])
def test_fewer_rows_of_a_unit_count_than_are_declared_where_a_call_says_so(db: Any, asked: str) -> None:
    """In the plan and in what is made, as in every other call; a number for all tables is of those that allow more."""
    db(
        "CREATE TABLE people_ (id INT PRIMARY KEY, age INT); CREATE TABLE visits (person INT REFERENCES people_(id), kind INT)"
    )
    db("INSERT INTO people_ SELECT i, i % 50 FROM range(300) t(i)")
    db("INSERT INTO visits SELECT i, j % 3 FROM range(300) t(i), range(1 + i % 8) u(j)")
    db("CALL dp_protect(['people_', 'visits'], unit := 'people_.id', max_rows := 8, rho := 900)")
    db(
        "CALL dp_attribute('people_', 'age', low := 0, high := 49); CALL dp_attribute('visits', 'kind', low := 0, high := 2)"
    )
    call = f"CALL dp_synthesize_database('main', target := 'syn', tables := ['people_', 'visits'], rho := 50, max_rows := {asked}"
    most = 8 if asked == "100" else 2
    for more in (", plan := true", ""):
        notes = [row[-1] or "" for row in db(f"{call}{more})") if row[1] == "visits"]
        assert any(f"links of one row of 'people_' above {most} are not counted" in note for note in notes)
    ((found,),) = db("SELECT max(n) FROM (SELECT count(*) AS n FROM syn.visits GROUP BY person)")
    assert found <= most


@pytest.mark.parametrize(
    "statement",
    [
        "CALL dp_attribute('shops', 'kind')",
        "CALL dp_attributes('shops')",
        "FROM dp_marginals('shops', ['kind'], rho := 1)",
        "FROM dp_quantiles('shops', 'kind', rho := 1)",
        "FROM dp_synthesize('shops', rho := 1)",
    ],
)
def test_a_public_table_is_not_said_to_want_protection(db: Any, statement: str) -> None:
    db("CREATE TABLE shops (id INT PRIMARY KEY, kind INT); CALL dp_public('shops')")
    assert "'shops' was declared public, so that anybody may see its rows" in db.refused(statement)


def test_what_is_promised_of_two_kinds_of_units_has_no_other_bound(db: Any) -> None:
    """Whether it held would tell how many links somebody has: a number for all tables is of the others, whoever has more links."""
    db("CREATE TABLE us (id INT PRIMARY KEY, a INT); CREATE TABLE ms (id INT PRIMARY KEY, b INT)")
    db("CREATE TABLE ls (u INT REFERENCES us(id), m INT REFERENCES ms(id), PRIMARY KEY (u, m))")
    db("INSERT INTO us SELECT i, i % 3 FROM range(60) t(i); INSERT INTO ms SELECT i, i % 2 FROM range(60) t(i)")
    db("INSERT INTO ls SELECT i, (i + j) % 60 FROM range(60) t(i), range(2) s(j); INSERT INTO ls VALUES (0, 5)")
    db("CALL dp_protect('us', rho := 300); CALL dp_protect('ms', rho := 300)")
    db("CALL dp_protect('ls', unit := ['u', 'm'], max_rows := 4, rho := 300)")
    db("CALL dp_public('us', links := 'ls'); CALL dp_public('ms', links := 'ls')")
    db("CALL dp_attribute('us', 'a', low := 0, high := 2); CALL dp_attribute('ms', 'b', low := 0, high := 1)")
    call = (
        "CALL dp_synthesize_database('main', target := 'syn', tables := ['us', 'ms', 'ls'], rho := 3, max_rows := {})"
    )
    assert "max_rows is 2 for 'ls', which promises at most 4 links for both sides" in db.refused(
        call.format("{'ls': 2}")
    )
    assert [row[1] for row in db(call.format(2))] == ["us", "ms", "ls"]
