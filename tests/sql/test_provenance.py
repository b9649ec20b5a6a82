"""What may stand beside private tables: rows that the ledger knows and tables declared public, whatever name leads to them."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing

TABLES = """
CREATE TABLE towns (town_id INTEGER PRIMARY KEY, coast BOOLEAN);
CREATE TABLE users (user_id INTEGER PRIMARY KEY, sex VARCHAR, age INTEGER, town_id INTEGER REFERENCES towns (town_id));
CREATE TABLE movies (movie_id INTEGER PRIMARY KEY, comedy BOOLEAN);
CREATE TABLE ratings (user_id INTEGER REFERENCES users (user_id), movie_id INTEGER REFERENCES movies (movie_id), stars INTEGER,
    PRIMARY KEY (user_id, movie_id));
CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, days INTEGER, user_id INTEGER NOT NULL REFERENCES users (user_id),
    town_id INTEGER NOT NULL REFERENCES towns (town_id));
INSERT INTO towns SELECT 76000 + i, i % 2 = 0 FROM range(6) t(i);
INSERT INTO users SELECT 76000 + i, ['zqF', 'zqM'][1 + i % 2], i * 37 % 80, 76000 + i % 6 FROM range(60) t(i);
INSERT INTO movies SELECT 76000 + i, i % 3 = 0 FROM range(25) t(i);
INSERT INTO ratings SELECT DISTINCT ON (u, m) 76000 + i * i % 60 AS u, 76000 + i * 7 % 25 AS m, 1 + i % 5 FROM range(300) t(i);
INSERT INTO visits SELECT 76000 + i, 1 + i % 4, 76000 + i % 60, 76000 + i % 6 FROM range(90) t(i);
"""
DECLARED = """
CALL dp_protect('towns', rho := 9e6); CALL dp_protect('users', rho := 9e6); CALL dp_protect('movies', rho := 9e6);
CALL dp_protect('visits', rho := 9e6); CALL dp_protect('ratings', unit := 'user_id', max_rows := 5, rho := 9e6);
CALL dp_attributes('towns'); CALL dp_attributes('movies');
CALL dp_attribute('users', 'sex', "values" := ['zqF', 'zqM'], nulls := true); CALL dp_attribute('users', 'age', bins := [0, 40, 80]);
CALL dp_attribute('ratings', 'stars', low := 1, high := 5, nulls := true); CALL dp_attribute('visits', 'days', low := 1, high := 4);
CALL dp_public('movies', links := 'ratings'); CALL dp_public('towns', links := 'users');
CALL dp_public(['users', 'towns'], links := 'visits');
"""
SIDES = "synthetic := {'users': 'users_syn', 'movies': 'movies_syn'}"
MADE = (
    " ".join(f"CREATE TABLE {t}_syn AS FROM dp_synthesize('{t}', rho := 100);" for t in ("towns", "users", "movies"))
    + f" CREATE TABLE ratings_syn AS FROM dp_links('ratings', {SIDES}, rho := 100);"
)

USERS = {"p": "users", "s": "users_syn", "k": "user_id", "c": "sex", "low": "'zqF'", "high": "'zqM'"}
USERS["columns"] = "user_id, sex, age"
RATINGS = {"p": "ratings", "s": "ratings_syn", "k": "user_id", "c": "stars", "low": "2", "high": "4"}
RATINGS["columns"] = "user_id, movie_id, stars"

PLACES = {
    "a side of links": (USERS, "dp_links('ratings', synthetic := {{'users': '{x}', 'movies': 'movies_syn'}}, rho := 1)"),
    "a child": (USERS, "dp_links('users', synthetic := {{'users': '{x}', 'towns': 'towns_syn'}}, rho := 1)"),
    "rows that are scored": (USERS, "dp_quality('users', '{x}', rho := 1)"),
    "rows that are scored exactly": (USERS, "dp_quality('users', '{x}', exact := true, cells := true)"),
    "links that are scored": (RATINGS, f"dp_quality('ratings', '{{x}}', {SIDES.replace('{', '{{').replace('}', '}}')}, rho := 1)"),
    "a side of links that are scored": (
        USERS,
        "dp_quality('ratings', 'ratings_syn', synthetic := {{'users': '{x}', 'movies': 'movies_syn'}}, exact := true)",
    ),
}  # fmt: skip
"""Every argument that names a table: (the tables it is about, the call)."""

CONTENT = ("outside its declared", "same as another", "links at most", "no rows", "NULL", "internal error")
"""Words of errors about what is in a table."""


@pytest.fixture(scope="module")
def known(shared: Any) -> Any:
    """Private tables with synthetic ones beside them."""
    shared(TABLES)
    shared(DECLARED)
    shared(MADE)
    shared("CREATE TABLE towns_2 AS FROM towns_syn OFFSET 1")
    shared.number = count(100)
    return shared


def refused_alike(db: Any, call: str) -> str:
    """The one line of a refusal, which says what would work, and nothing of what is in any table."""
    line = db.refused(f"FROM {call}")
    assert any(way in line for way in ("CALL dp_public(", "FROM dp_synthesize(", "create it, commit it")), line
    for word in (*CONTENT, "zq", "7600", "7601"):
        assert word not in line
    return str(line)


MADE_BY = {
    "a view": "CREATE VIEW {x} AS FROM {p}",
    "a view of a view": "CREATE VIEW {x}_0 AS FROM {p}; CREATE VIEW {x} AS SELECT * FROM {x}_0 WHERE true",
    "a view of synthetic rows": "CREATE VIEW {x} AS FROM {s}",
    "a macro's rows in a view": "CREATE MACRO {x}_0() AS TABLE FROM {p}; CREATE VIEW {x} AS FROM {x}_0()",
    "a TEMP view": "CREATE TEMP VIEW {x} AS FROM {p}",
    "a TEMP table": "CREATE TEMP TABLE {x} AS FROM {p}",
    "a TEMP table of synthetic rows": "CREATE TEMP TABLE {x} AS FROM {s}",
    "a copy": "CREATE TABLE {x} AS FROM {p}",
    "a copy without foreign keys": "CREATE TABLE {x} AS SELECT {columns} FROM {p}",
    "a copy under keys of its own": "CREATE TABLE {x} AS SELECT * REPLACE (row_number() OVER () AS {k}) FROM {p}",
    "one value": "CREATE TABLE {x} AS SELECT * REPLACE (CASE WHEN rowid = 3 AND {c} = {low} OR rowid <> 3 AND {c} = {high} THEN {high} ELSE {low} END AS {c}) FROM {s}",
    "one value that is another": "CREATE TABLE {x} AS FROM {s}; UPDATE {x} SET {c} = CASE {c} WHEN {low} THEN {high} ELSE {low} END WHERE rowid = 3",
    "one value that is NULL": "CREATE TABLE {x} AS FROM {s}; UPDATE {x} SET {c} = NULL WHERE rowid = (SELECT min(rowid) FROM {x} WHERE {c} IS NOT NULL)",
    "a value outside its domain": "CREATE TABLE {x} AS SELECT * REPLACE ('zq' || {c} AS {c}) FROM {s}",
    "a row less": "CREATE TABLE {x} AS FROM {s} OFFSET 1",
    "a private row more": "CREATE TABLE {x} AS SELECT {columns} FROM {s} UNION ALL (SELECT {columns} FROM {p} LIMIT 1)",
    "a private row in another's place": "CREATE TABLE {x} AS (SELECT {columns} FROM {s} OFFSET 1) UNION ALL (SELECT {columns} FROM {p} LIMIT 1)",
    "all rows twice": "CREATE TABLE {x} AS FROM {s} UNION ALL FROM {s}",
    "no rows": "CREATE TABLE {x} AS FROM {s} LIMIT 0",
    "two values swapped": """CREATE TABLE {x} AS FROM {s}; UPDATE {x} SET {c} = CASE {c} WHEN {low} THEN {high} ELSE {low} END
        WHERE rowid IN ((SELECT min(rowid) FROM {x} WHERE {c} = {low}), (SELECT min(rowid) FROM {x} WHERE {c} = {high}))""",
    "a column by the rows of another": "CREATE TABLE {x} AS SELECT * REPLACE (coalesce(lead({c}) OVER (ORDER BY rowid), {low}) AS {c}) FROM {s}",
    "a private column": "CREATE TABLE {x} AS SELECT s.* REPLACE (p.{c} AS {c}) FROM {s} s POSITIONAL JOIN {p} p WHERE s.{k} IS NOT NULL",
    "another key": "CREATE TABLE {x} AS SELECT * REPLACE ({k} + 1000 AS {k}) FROM {s}",
    "a NULL key": "CREATE TABLE {x} AS SELECT * REPLACE (NULL::INTEGER AS {k}) FROM {s}",
    "a text for a key": "CREATE TABLE {x} AS SELECT * REPLACE ('zq' || {k} AS {k}) FROM {s}",
    "a list": "CREATE TABLE {x} AS SELECT * REPLACE ([{c}] AS {c}) FROM {s}",
    "a table that is not committed": "BEGIN; CREATE TABLE {x} AS FROM {s}",
    "synthetic rows that changed in a transaction": "CREATE TABLE {x} AS FROM {s}; BEGIN; UPDATE {x} SET {c} = NULL",
    "a view that took a table's place": "CREATE TABLE {x} AS FROM {s}; BEGIN; DROP TABLE {x}; CREATE VIEW {x} AS FROM {p}",
    "a table that took a table's place": "CREATE TABLE {x} AS FROM {s}; BEGIN; DROP TABLE {x}; CREATE TABLE {x} AS FROM {p}",
}  # fmt: skip
"""How a table that is none of synthetic rows, or no table, is made."""


@pytest.mark.some(1, "place")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("made", MADE_BY)
def test_what_is_not_known_is_refused(known: Any, made: str, place: str) -> None:
    names, call = PLACES[place]
    x = f"x_{next(known.number)}"
    known(MADE_BY[made].format(x=x, **names))
    try:
        line = refused_alike(known, call.format(x=x))
        assert f"'{x}'" in line
    finally:
        if "BEGIN" in MADE_BY[made]:
            known("ROLLBACK")


NAMES = [
    "{p}", "{upper}", "main.{p}", "memory.main.{p}", 'MEMORY."Main".{upper}', '"{p}"', "other.{s}", "Other.{s}", "temp.{s}",
    "temp.main.{s}", "nowhere.{s}", "{p}.csv", "{folder}/{p}.csv", '"{folder}/{p}.csv"', "{folder}/*.parquet",
    '"{folder}/*.parquet"', '"{folder}/{p}.db".main.{p}', "https://example.org/{p}.csv", '"https://example.org/{p}.csv"',
    "s3://bucket/{p}.parquet", "arrow_rows", "pandas_rows", "registered", "duckdb_tables", "information_schema.columns",
    "system.main.duckdb_columns", "{s};", "{s} x", "(FROM {p})", "{s}, {p}", "{p}\" -- ", "given",
]  # fmt: skip
"""Names that lead to other rows in DuckDB, or nowhere."""


few_or_all = pytest.mark.parametrize("pace", [3, pytest.param(1, marks=pytest.mark.slow)], ids=["few", "all"])


@pytest.mark.slow
@few_or_all
@pytest.mark.some(1, "pace")
@pytest.mark.parametrize("place", PLACES)
def test_names_that_lead_elsewhere_are_refused(known: Any, place: str, tmp_path: Path, pace: int) -> None:
    pytest.importorskip("pandas")
    names, call = PLACES[place]
    known("CREATE SCHEMA IF NOT EXISTS other; SET python_scan_all_frames = true")
    known(f"CREATE OR REPLACE TABLE other.{names['s']} AS FROM {names['p']}")
    for kind in ("csv", "parquet"):
        known(f"COPY {names['p']} TO '{tmp_path}/{names['p']}.{kind}'")
    arrow_rows = known.connection.sql(f"FROM {names['p']}").to_arrow_table()
    pandas_rows = arrow_rows.to_pandas().astype(object)  # DuckDB 1.4 knows no text of pandas 3
    known.connection.register("registered", arrow_rows)
    for name in ("arrow_rows", "pandas_rows", "registered"):
        assert len(known.connection.execute(f"FROM {name}").fetchall()) == len(pandas_rows)
    for name in NAMES[::pace]:
        x = name.format(**names, folder=tmp_path, upper=names["p"].upper()).replace("'", "''")
        line = known.refused(f"WITH given AS (FROM {names['p']}) FROM {call.format(x=x)}")
        assert not any(word in line.replace(str(tmp_path), "") for word in (*CONTENT, "zq", "7600", "7601")), line
        assert any(
            way in line for way in ("CALL dp_public(", "FROM dp_synthesize(", "create it, commit it", "write 'table'")
        )
    known.connection.unregister("registered")
    del arrow_rows


@pytest.mark.slow
def test_the_schema_in_use_and_its_tables(known: Any) -> None:
    """One name means the committed table of the schema in use, also where a TEMP table hides it."""
    call = "memory.main.dp_quality('main.users', '{}', exact := true)"
    score = known(f"FROM {call.format('users_syn')}")
    known(
        "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.users_syn AS FROM users; CREATE TABLE elsewhere.kept AS FROM users_syn"
    )
    try:
        for use in ("USE elsewhere", "SET search_path = 'elsewhere,main'", "SET schema = 'elsewhere'"):
            known(use)
            assert "'users_syn' does not hold rows as" in refused_alike(known, call.format("users_syn"))
            assert "is protected" in refused_alike(known, call.format("main.users"))
            assert "there is no table 'movies_syn'" in refused_alike(known, call.format("movies_syn"))
            for name in (
                "main.users_syn", "MAIN.Users_Syn", "memory.main.users_syn", '"memory"."main"."USERS_SYN"', "kept",
            ):  # fmt: skip
                assert known(f"FROM {call.format(name)}") == score
            known("USE memory.main")
        known("CREATE TEMP TABLE users_syn AS FROM users")
        assert known(f"FROM {call.format('users_syn')}") == score
    finally:
        known("USE memory.main; DROP TABLE IF EXISTS temp.users_syn")


# What is taken

TAKEN = {
    "as they come": "CREATE TABLE {x} AS FROM {made}",
    "in another order": "CREATE TABLE {x} AS FROM {made} ORDER BY random()",
    "without 'private'": "CREATE TABLE {x} AS SELECT * EXCLUDE (private) FROM {made}",
    "with columns in another order": "CREATE TABLE {x} AS SELECT private, {c}, * EXCLUDE (private, {c}) FROM {made}",
    "into a prepared table": "CREATE TABLE {x} AS FROM {p} LIMIT 0; INSERT INTO {x} BY NAME SELECT * EXCLUDE (private) FROM {made}",
    "through a view": "CREATE VIEW {x}_0 AS FROM {made}; CREATE TABLE {x} AS FROM {x}_0",
    "from another table": "CREATE TABLE {x} AS FROM {s}",
    "from its release": "CREATE TABLE {x} AS FROM dp_release('{s}')",
    "through a file": "COPY (FROM {made}) TO '{folder}/{x}.parquet'; CREATE TABLE {x} AS FROM '{folder}/{x}.parquet'",
    "renamed": "CREATE TABLE {x}_0 AS FROM {made}; ALTER TABLE {x}_0 RENAME TO {x}",
    "changed and changed back": "CREATE TABLE {x} AS FROM {made}; CREATE TABLE {x}_0 AS FROM {x}; DELETE FROM {x}; INSERT INTO {x} FROM {x}_0",
    "beside other columns": "CREATE TABLE {x} AS SELECT 'zq' AS other, *, 1 AS another FROM {made}",
    "in a transaction": "BEGIN; CREATE TABLE {x} AS FROM {made}; COMMIT",
    "a view declared public": "CREATE VIEW {x} AS FROM {made}; CALL dp_public('{x}')",
    "a view of its release declared public": "CREATE VIEW {x} AS FROM dp_release('{s}'); CALL dp_public('{x}')",
    "any rows declared public": "CREATE TABLE {x} AS SELECT {columns} FROM {s} OFFSET 1; CALL dp_public('{x}')",
}  # fmt: skip


@pytest.mark.slow
@few_or_all
@pytest.mark.some(1, "pace")
@pytest.mark.parametrize("place", PLACES)
def test_what_is_known_is_taken(known: Any, place: str, tmp_path: Path, pace: int) -> None:
    names, call = PLACES[place]
    known("FROM dp_synthesize('users', rho := 100.5, release := 'users_syn')")
    known(f"FROM dp_links('ratings', {SIDES}, rho := 100.5, release := 'ratings_syn')")
    made = "dp_synthesize('users', rho := 100)" if names is USERS else f"dp_links('ratings', {SIDES}, rho := 100)"
    for way, text in list(TAKEN.items())[::pace]:
        x = f"x_{next(known.number)}"
        known(text.format(x=x, made=made, folder=tmp_path, **names))
        rows = known(f"FROM {call.format(x=x)}")
        assert rows, way
        assert "zq'" not in str(rows)
    if place == "a child":
        assert [name for name, _ in known.columns(f"FROM {call.format(x='users_syn')}")] == [
            "user_id", "sex", "age", "town_id", "private",
        ]  # fmt: skip


@pytest.mark.slow
def test_only_declared_columns_come_out_of_a_child_table(known: Any) -> None:
    known("CREATE TABLE more AS SELECT *, 'zq' AS secret, 76 AS Town_Id FROM users_syn; CREATE TABLE much AS FROM more")
    known("CALL dp_public('much')")
    for table in ("more", "much"):
        call = f"dp_links('users', synthetic := {{'users': '{table}', 'towns': 'towns_syn'}}, rho := 2)"
        assert [name for name, _ in known.columns(f"FROM {call}")] == ["user_id", "sex", "age", "town_id", "private"]
        assert known(f"SELECT count(*) FROM {call} WHERE town_id = 76") == [(0,)]


@pytest.mark.slow
def test_parents_one_after_another(known: Any) -> None:
    """A table with two foreign keys is linked twice, and the rows of the first call stand beside the second."""
    known("CREATE TABLE v0 AS FROM dp_synthesize('visits', rho := 100)")
    calls = [
        f"dp_links('visits', synthetic := {{{{'visits': '{{}}', '{parent}': '{parent}_syn'}}}}, rho := 100)"
        for parent in ("users", "towns")
    ]
    known(f"CREATE TABLE v1 AS FROM {calls[0].format('v0')}; CREATE TABLE v2 AS FROM {calls[1].format('v1')}")
    assert [name for name, _ in known.columns("FROM v2")] == ["visit_id", "days", "user_id", "town_id", "private"]
    assert known("SELECT count(*) FROM v2 JOIN users_syn USING (user_id) JOIN towns_syn USING (town_id)") == known(
        "SELECT count(*) FROM v0"
    )
    for parent in ("users", "towns"):
        scored = f"dp_quality('visits', 'v2', synthetic := {{'visits': 'v0', '{parent}': '{parent}_syn'}}, rho := 1)"
        assert known(f"FROM {scored}")
    # A foreign key that no call has made is a private column as any other.
    known(
        "CREATE TABLE odd AS SELECT v0.*, visits.user_id FROM v0 POSITIONAL JOIN visits WHERE v0.visit_id IS NOT NULL"
    )
    known("CREATE TABLE moved AS SELECT * REPLACE (user_id % 60 + 1 AS user_id) FROM v1")
    for table in ("odd", "moved"):
        refused_alike(known, calls[1].format(table))


@pytest.mark.slow
def test_a_declaration_holds_as_long_as_nothing_is_protected(known: Any) -> None:
    """A view of what was protected later is public no more; a table is either."""
    known("CREATE TABLE later AS SELECT user_id, sex, age FROM users_syn; CREATE VIEW of_later AS FROM later")
    known("CREATE VIEW of_view AS SELECT * FROM of_later WHERE true; CALL dp_public(['of_later', 'of_view'])")
    calls = [call for names, call in PLACES.values() if names is USERS]
    for name in ("of_later", "of_view"):
        assert all(known(f"FROM {call.format(x=name)}") for call in calls)
    known("CALL dp_protect('later', rho := 9)")
    for name in ("of_later", "of_view"):
        for call in calls:
            line = known.refused(f"FROM {call.format(x=name)}")
            assert (
                f"'{name}' may be read from 'later', which is protected, so it is not public; make a table of" in line
            )
    assert "'later' is protected, and a declaration stays" in known.refused("CALL dp_public('later')")
    known("CREATE TABLE open AS FROM users_syn; CALL dp_public('OPEN')")
    assert "'open' was declared public by dp_public, and a declaration stays" in known.refused(
        "CALL dp_protect('Open', rho := 1)"
    )
    assert known("CALL dp_public(['main.open', 'memory.main.open'])") == [("memory.main.open", "everywhere")] * 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("'nothing'", "there is no table or view 'nothing'"),
        ("'temp.main.registered'", "there is no table or view"),
        ("['towns_2', 'nothing']", "there is no table or view 'nothing'"),
        ("[]", "no table was named"),
        ("NULL", "name a table or view"),
        ("5", "name a table or view"),
        ("'a.b.c.d'", "is not a table's name"),
        ("'towns_syn', links := 'ratings'", "'ratings' does not refer to 'towns_syn'; it refers to 'users', 'movies'"),
        ("'movies', links := 'nothing'", "'nothing' is not protected"),
        ("'movies', links := 'movies'", "has no FOREIGN KEY"),
        ("'movies', links := 5", "name a table or view"),
    ],
)
def test_declarations_that_are_refused(known: Any, asked: str, says: str) -> None:
    """Then none of the tables is declared."""
    assert says in known.refused(f"CALL dp_public({asked})")
    assert "'towns_2' does not hold rows as" in known.refused("FROM dp_quality('towns', 'towns_2', rho := 1)")


TYPES = {
    "VARCHAR": "'a', 'B', 'é ''\"', ''", "ENUM('x', 'y')": "'x', 'y'", "DOUBLE": "0.1, 1e300, -0.0, 3", "FLOAT": "0.1, 3e30",
    "DECIMAL(18,4)": "1.5, 2.25", "DATE": "'2020-01-01', '1969-01-01'", "TIME": "'10:00:00', '23:59:59.999999'",
    "TIMESTAMP": "'2020-01-01 10:00:00.123456'", "TIMESTAMP_S": "'2020-01-01 10:00:00'", "BOOLEAN": "true, false",
    "TIMESTAMP_MS": "'2020-01-01 10:00:00.123'", "UUID": "'00000000-0000-0000-0000-00000000000a'", "TINYINT": "-128, 127",
    "HUGEINT": "170141183460469231731687303715884105727, -1", "UBIGINT": "18446744073709551615", "UHUGEINT": "1, 2",
}  # fmt: skip


@pytest.mark.slow
def test_rows_of_all_types_are_known_again(db: Any) -> None:
    db("CREATE TABLE a_home (home INTEGER PRIMARY KEY, big BOOLEAN); INSERT INTO a_home VALUES (1, true), (2, false)")
    columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(TYPES))
    values = ", ".join(f"unnest(list_concat([{found}]::{type_}[], [NULL]))" for type_, found in TYPES.items())
    db(f"CREATE TABLE odd (id INTEGER PRIMARY KEY, {columns}, home INTEGER REFERENCES a_home (home))")
    db(f"INSERT INTO odd SELECT row_number() OVER (), *, 1 FROM (SELECT {values} FROM range(40))")
    db("CALL dp_protect('a_home', rho := 9); CALL dp_attributes('a_home'); CALL dp_protect('odd', rho := 9e6)")
    db("CALL dp_public('a_home', links := 'odd'); CREATE TABLE home_syn AS FROM dp_synthesize('a_home', rho := 1)")
    for i, (type_, found) in enumerate(TYPES.items()):
        domain = "" if type_.startswith("ENUM") else f'"values" := [{found}], '
        db(f"CALL dp_attribute('odd', 'c{i}', {domain}nulls := true)")
    made = "dp_synthesize('odd', rho := 1000)"
    db(f"CREATE TABLE odd_1 AS FROM {made}; CREATE TABLE odd_2 AS SELECT * EXCLUDE (home) FROM odd LIMIT 0")
    db(f"INSERT INTO odd_2 SELECT * EXCLUDE (private) FROM {made} ORDER BY hash(c0, c1)")
    assert db.columns("FROM odd_1")[:-1] == db.columns("FROM odd")[:-1]
    assert all(db("SELECT " + ", ".join(f"count(*) > count(c{i}) AND count(c{i}) > 0" for i in range(len(TYPES))) + " FROM odd_1")[0])  # fmt: skip
    for setting in ("TimeZone = 'Asia/Tokyo'", "default_null_order = 'nulls_first'", "threads = 1"):
        db(f"SET {setting}")
        for table in ("odd_1", "odd_2"):
            assert db(f"FROM dp_quality('odd', '{table}', attributes := ['c0', 'c7'], rho := 5)")
            assert db(f"FROM dp_links('odd', synthetic := {{'odd': '{table}', 'a_home': 'home_syn'}}, rho := 5)")


@pytest.mark.slow
def test_tables_of_one_call_are_known(db: Any) -> None:
    """Also those with columns of which nothing is declared, and rows that a constraint forbids left out."""
    db("DROP TABLE people")
    db(
        TABLES.replace("age INTEGER", "age INTEGER CHECK (age < 60), mail VARCHAR").replace(
            "i * 37 % 80,", "i * 37 % 60, NULL,"
        )
    )
    db(DECLARED)
    tables = "['towns', 'users', 'movies', 'ratings']"
    db(f"CALL dp_synthesize_database('main', target := 'syn', tables := {tables}, rho := 1000)")
    for table in ("towns", "users", "movies"):
        assert db(f"FROM dp_quality('{table}', 'syn.{table}', rho := 1)")
    sides = "synthetic := {'users': 'syn.users', 'movies': 'syn.movies'}"
    assert db(f"FROM dp_quality('ratings', 'syn.ratings', {sides}, rho := 1)")
    assert db(f"FROM dp_links('ratings', {sides}, rho := 5)")
    sides = "synthetic := {'users': 'syn.users', 'towns': 'syn.towns'}"
    assert db(f"FROM dp_quality('users', 'syn.users', {sides}, rho := 1)")
    assert db(f"FROM dp_links('users', {sides}, rho := 5)")
    db("UPDATE syn.movies SET comedy = NOT comedy WHERE movie_id = 1")
    refused_alike(db, "dp_quality('movies', 'syn.movies', rho := 2)")


@pytest.mark.slow
def test_rows_are_known_after_a_restart(tmp_path: Path, run: Callable[..., str]) -> None:
    """In another process, from another connection, and by each key that they are read with."""
    script = f"""
        import sys, duckdb, duckdb_dp.testing
        con = duckdb.connect(sys.argv[1])
        duckdb_dp.testing.load(con, seed=1)
        con.execute({TABLES + DECLARED + MADE!r})
        con.execute("CREATE TABLE bare AS FROM users; CALL dp_protect('bare', rho := 9)")
        con.execute("CALL dp_attribute('bare', 'age', bins := [0, 40, 80])")
        print(len(con.execute("FROM dp_synthesize('bare', rho := 1) LIMIT 1").fetchall()))
    """
    assert run(script, tmp_path / "a.duckdb") == "1\n"
    with duckdb.connect(tmp_path / "a.duckdb") as con:
        duckdb_dp.testing.load(con, seed=2)
        with con.cursor() as other:
            calls = [call.format(x=names["s"]) for names, call in PLACES.values()]
            for each in (con, other):
                assert all(each.execute(f"FROM {call}").fetchall() for call in calls)
            con.execute("CREATE TABLE keyed AS FROM dp_synthesize('bare', rho := 1, key := 'user_id')")
            con.execute(
                "CALL dp_link('bare', \"references\" := {'town_id': 'towns.town_id', 'user_id': 'bare.user_id'})"
            )
            con.execute("CALL dp_public('towns', links := 'bare')")
            asked = "FROM dp_links('bare', synthetic := {'bare': 'keyed', 'towns': 'towns_syn'}, rho := 1)"
            assert len(other.execute(asked).fetchall()) == len(other.execute("FROM keyed").fetchall())
    # Rows of a seeded source are nothing that a ledger vouches for.
    with duckdb.connect(tmp_path / "a.duckdb") as con:
        duckdb_dp.load(con, progress=False)
        with pytest.raises(duckdb.Error, match=r"CALL dp_public\('users_syn'\)"):
            con.execute("FROM dp_quality('users', 'users_syn', rho := 2)").fetchall()
