"""Joins that give a unit more rows than its tables have: without noise dp_sql answers what plain SQL does, and says what bounds them."""

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from duckdb_dp.testing import load_exact

EXAMPLES = {
    "SELECT count(*) FROM patients CROSS JOIN clinics": 4,
    "SELECT count(*) FROM patients, clinics WHERE region = 'a'": 2,
    "SELECT count(*) FROM visits v JOIN clinics c ON c.region = 'a'": 2 * 2,
    "SELECT count(*) FROM visits NATURAL JOIN rooms": 2 * 3,
    "SELECT count(*) FROM visits JOIN rooms USING (clinic)": 2 * 3,
    "SELECT count(*) FROM visits LEFT JOIN rooms USING (clinic) WHERE floor IS NULL OR floor > 1": 2 * 3,
    "SELECT count(*) FROM visits JOIN drugs USING (id)": 2 * 3,
    "SELECT count(*) FROM visits a JOIN visits b USING (id)": 2 * 2,
    "SELECT count(*) FROM visits a JOIN visits b USING (visit)": 2,
    "SELECT count(*) FROM patients LEFT JOIN visits USING (id) LEFT JOIN drugs USING (id)": 2 * 3,
    "SELECT count(*) FROM visits JOIN patients USING (id) JOIN clinics USING (clinic)": 2,
    "SELECT count(*) FROM patients WHERE EXISTS (SELECT 1 FROM drugs WHERE drugs.id = patients.id)": 1,
    "SELECT count(*) FROM patients WHERE id IN (SELECT id FROM drugs CROSS JOIN clinics)": 1,
    "SELECT count(*) FROM (SELECT id, count(*) AS n FROM visits JOIN drugs USING (id) GROUP BY id) WHERE n > 1": 1,
    "SELECT count(*) FROM (SELECT id, visit FROM visits JOIN drugs USING (id) GROUP BY id, visit)": 2,
    "SELECT count(*) FROM (SELECT id FROM visits UNION ALL SELECT id FROM drugs) JOIN clinics ON clinic = 1": 5,
    "WITH w AS (SELECT * FROM visits JOIN drugs USING (id)) SELECT count(*) FROM w, rooms WHERE w.clinic = rooms.clinic": 2
    * 3
    * 3,
    "SELECT count(*) FROM visits v JOIN clinics c ON v.clinic >= c.clinic": 2 * 4,
    "SELECT count(*) FROM visits JOIN (SELECT clinic, count(*) AS n FROM rooms GROUP BY clinic) USING (clinic)": 2,
    "SELECT count(*) FROM visits SEMI JOIN drugs USING (id)": 2,
    "SELECT count(*) FROM visits ANTI JOIN drugs ON drugs.id = visits.id AND clinic > 2": 2,
    "SELECT count(*) FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY visit) AS r FROM visits) WHERE r = 1": 1,
    "SELECT count(*) FROM (SELECT * FROM visits QUALIFY lag(clinic) OVER (PARTITION BY id ORDER BY visit) < clinic)": 2,
    "SELECT count(*) FROM (SELECT sum(clinic) OVER (PARTITION BY id) AS s FROM visits) JOIN clinics ON s = clinic": 2,
    "SELECT count(*) FROM both_ JOIN clinics USING (clinic)": 7,
}
"""SELECT -> how many rows of a patient count."""


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute(
            """
            CREATE TABLE patients (id INTEGER PRIMARY KEY, age INTEGER);
            CREATE TABLE visits (visit INTEGER PRIMARY KEY, id INTEGER REFERENCES patients (id), clinic INTEGER);
            CREATE TABLE drugs (id INTEGER REFERENCES patients (id), drug VARCHAR);
            CREATE TABLE clinics (clinic INTEGER PRIMARY KEY, region VARCHAR);
            CREATE TABLE rooms (clinic INTEGER, floor INTEGER);
            INSERT INTO patients SELECT i, i % 90 FROM range(60) AS t(i);
            INSERT INTO visits SELECT i, i % 60, i % 5 FROM range(110) AS t(i);
            INSERT INTO drugs SELECT i % 60, 'x' FROM range(170) AS t(i);
            INSERT INTO clinics VALUES (0, 'a'), (1, 'a'), (2, 'b'), (3, 'c');
            INSERT INTO rooms VALUES (0, 1), (0, 2), (0, 2), (1, 1), (3, NULL), (NULL, 1);
            """
        )
        load_exact(con, tmp_path_factory.mktemp("ledger"))
        con.execute(
            "CALL dp_protect(['patients', 'visits', 'drugs'], unit := 'patients.id', "
            "max_rows := {'visits': 2, 'drugs': 3}, epsilon := 10000, delta := 1e-6)"
        )
        con.execute("CALL dp_public(['clinics', 'rooms'])")
        con.execute("CALL dp_view('both_', 'SELECT * FROM visits JOIN drugs USING (id)', max_rows := 7)")
        yield con


GROUPS = [
    "SELECT clinic, count(*) FROM visits WHERE clinic IN (0, 1, 4) GROUP BY clinic",
    "SELECT age // 10 * 10 AS decade, count(*) FROM patients WHERE age // 10 * 10 BETWEEN 0 AND 5 GROUP BY 1",
    "SELECT CASE WHEN age < 30 THEN 'young' ELSE 'old' END AS g, count(*) FROM patients GROUP BY g",
    "SELECT CASE WHEN clinic < 2 THEN 1 WHEN clinic = 3 THEN 2 END AS g, count(*) FROM visits GROUP BY ALL",
    "SELECT year(make_timestamp(visit * 400000000000000)) AS y, count(*) FROM visits WHERE year(make_timestamp(visit * 400000000000000)) IN (1970, 1982, 2008) GROUP BY y",
]
"""Groups of one table that its text lists."""


@pytest.mark.parametrize("select", GROUPS)
def test_groups_that_a_statement_lists_need_no_declaration(con: duckdb.DuckDBPyConnection, select: str) -> None:
    found = con.execute("FROM dp_sql($1, epsilon := 0.1)", [select]).fetchall()
    assert {row[:2] for row in found if row[1]} == set(con.execute(select).fetchall())


REFUSED = {
    "SELECT avg(r) FROM (SELECT row_number() OVER (ORDER BY visit) AS r FROM visits)": r"add PARTITION BY the unit's key \(id\)",
    "SELECT avg(r) FROM (SELECT rank() OVER (PARTITION BY clinic ORDER BY id) AS r FROM visits)": "several units",
    "SELECT avg(r) FROM (SELECT row_number() OVER (PARTITION BY id) AS r FROM visits)": "add ORDER BY",
    "SELECT avg(r) FROM (SELECT lag(random()) OVER (PARTITION BY id ORDER BY visit) AS r FROM visits)": "more than a column",
    "SELECT avg(r) FROM (SELECT sum(visit / 3) OVER (PARTITION BY id) AS r FROM visits)": "more than a column",
    "SELECT avg(r) FROM (SELECT avg(x) OVER (PARTITION BY id) AS r FROM (SELECT id, visit / 3 AS x FROM visits))": "DECIMAL",
    "SELECT avg(r) FROM (SELECT sum(visit) OVER (PARTITION BY id ORDER BY visit ROWS 1 PRECEDING) AS r FROM visits)": "frame",
    "SELECT count(*) FROM visits FULL JOIN clinics USING (clinic)": "LEFT JOIN from the protected side",
    "SELECT count(*) FROM visits AS a SEMI JOIN drugs USING (drug)": "not a column of both sides",
    "SELECT region FROM clinics c WHERE clinic > (SELECT count(*) FROM visits v WHERE v.clinic = c.clinic)": "row around it.*GROUP BY",
    "SELECT region FROM clinics WHERE clinic > (SELECT count(*) FROM drugs WHERE id = clinic)": "reads clinic of the row around it",
    "SELECT count(*) FROM clinics SEMI JOIN visits USING (clinic)": "one unit may decide",
}
"""SELECT -> what its refusal says."""


@pytest.mark.parametrize("select", REFUSED)
def test_what_reads_rows_of_several_units_is_refused(con: duckdb.DuckDBPyConnection, select: str) -> None:
    with pytest.raises(duckdb.Error, match=REFUSED[select]):
        con.execute("FROM dp_sql($1, epsilon := 0.1)", [select])


def test_tables_that_come_later_do_not_join(con: duckdb.DuckDBPyConnection) -> None:
    call = (
        "CALL dp_protect(['patients', 'visits', 'drugs', 'letters'], unit := 'patients.id', "
        "max_rows := {'visits': 2, 'drugs': 3}, epsilon := 1000, delta := 1e-6)"
    )
    con.execute("CREATE TABLE letters (id INTEGER REFERENCES patients (id))")
    with pytest.raises(duckdb.Error, match=r"'letters' cannot join it.*CALL dp_public\('letters'\)"):
        con.execute(call)


def plain(select: str) -> str:
    return select.replace("both_", "(SELECT * FROM visits JOIN drugs USING (id))")


@pytest.mark.parametrize("bound", [1, 2, 3, 10])
@pytest.mark.parametrize("first", ["patients", "visits", "drugs", "visits JOIN patients USING (id)"])
def test_a_bound_that_is_asked_is_that_of_each_table_beside_others(
    con: duckdb.DuckDBPyConnection, first: str, bound: int
) -> None:
    """Also beside a table with one row of each patient, of which no more than one can count: in a list, in one row, and in a quotient."""
    tables = [first, "patients", "drugs"]
    selects = [f"SELECT count(*) AS n FROM {table}" for table in tables]
    alone = [
        con.execute("SELECT n FROM dp_sql(?, epsilon := 1, max_rows := ?)", [one, bound]).fetchall()[0][0]
        for one in selects
    ]
    listed = con.execute(
        "SELECT n FROM dp_sql(?, epsilon := 1, max_rows := ?) ORDER BY query", [selects, bound]
    ).fetchall()
    assert [row[0] for row in listed] == alone
    row = ", ".join(f"({one}) AS n{i}" for i, one in enumerate(selects))
    found = con.execute(
        "SELECT n0, n1, n2 FROM dp_sql(?, epsilon := 1, max_rows := ?)", [f"SELECT {row}", bound]
    ).fetchall()
    assert [*found[0]] == alone
    share = f"SELECT ({selects[0]}) / ({selects[1]}) AS n"
    ((ratio,),) = con.execute("SELECT n FROM dp_sql(?, epsilon := 1e2, max_rows := ?)", [share, bound]).fetchall()
    assert ratio == pytest.approx(alone[0] / alone[1])


@pytest.mark.parametrize("select", EXAMPLES)
def test_no_row_of_a_join_is_cut_without_a_sign(con: duckdb.DuckDBPyConnection, select: str) -> None:
    ((answer, *_),) = con.execute("FROM dp_sql($1, epsilon := 0.1)", [select]).fetchall()
    assert [(answer,)] == con.execute(plain(select)).fetchall()


@pytest.mark.parametrize("select", EXAMPLES)
def test_the_noise_is_that_of_the_rows_that_count(con: duckdb.DuckDBPyConnection, select: str) -> None:
    def stddev(asked: str) -> float:
        ((found, route),) = con.execute(
            "SELECT stddev, route FROM dp_explain(NULL, $1, epsilon := 0.1)", [asked]
        ).fetchall()
        rows = EXAMPLES.get(asked, 1)
        assert (f"at most {rows} joined rows of a unit" in route) == (rows > 1)
        return float(found)

    assert stddev(select) == pytest.approx(EXAMPLES[select] * stddev("SELECT count(*) FROM patients WHERE age > 3"))


def test_a_number_of_rows_in_the_request_is_what_counts(con: duckdb.DuckDBPyConnection) -> None:
    select = "SELECT count(*) FROM patients CROSS JOIN clinics"
    assert con.execute("FROM dp_sql($1, epsilon := 0.1, max_rows := 3)", [select]).fetchall()[0][0] == 3 * 60


def test_a_view_whose_bound_public_rows_decide_says_so(con: duckdb.DuckDBPyConnection) -> None:
    select = "SELECT v.*, c.region FROM visits AS v CROSS JOIN clinics AS c"
    with pytest.raises(
        duckdb.Error, match=r"may have 8 rows in the view \(2 of .visits. x 4 of .clinics.\).*max_rows := 8"
    ):
        con.execute("CALL dp_view('placed', $1)", [select])
    con.execute("CALL dp_view('placed', $1, max_rows := 8)", [select])
    (answer,) = con.execute("FROM dp_sql('SELECT count(*) FROM placed', epsilon := 0.1)").fetchall()
    assert answer[0] == 4 * 110


def stars(tables: int) -> str:
    """A join of a unit's rows with each other."""
    aliases = ", ".join(f"drugs AS v{i}" for i in range(tables))
    return f"SELECT count(*) FROM {aliases} WHERE " + " AND ".join(f"v{i}.id = v0.id" for i in range(1, tables))


def doubled(times: int) -> str:
    """A WITH in which each name stands for twice the rows of the one before."""
    names = "".join(f", a{i} AS (FROM a{i - 1} UNION ALL FROM a{i - 1})" for i in range(1, times + 1))
    return f"WITH a0 AS (FROM drugs){names} SELECT count(*) FROM a{times}"


FANNED = {
    stars(13): r"177,147 rows of one row \(3 of .drugs. x 3.*EXISTS",
    "SELECT count(*) FROM drugs, rooms a, rooms b, rooms c, rooms d, rooms e, rooms f, rooms g WHERE id = 7": r"279,936 rows of one row \(6 of .rooms.",
    "SELECT count(*) FROM drugs WHERE EXISTS (SELECT 1 FROM days a, days b WHERE a.n > id AND b.n > a.n)": "160,000 rows of one",
    "SELECT count(*) FROM drugs WHERE id > (SELECT count(*) FROM days a, days b WHERE a.n > id)": "160,000 rows of one",
    "SELECT count(*) FROM drugs WHERE id > (SELECT sum(a.n + id) FROM days a, days b)": "160,000 rows of one",
    "SELECT count(*) FROM (SELECT * FROM drugs, days) AS x JOIN (SELECT * FROM drugs, days) AS y USING (id)": "160,000 rows of one",
    "SELECT count(*) FROM drugs a JOIN drugs b USING (id) JOIN days ON true WHERE EXISTS (SELECT 1 FROM drugs c, rooms, clinics, clinics d WHERE c.id = a.id)": "115,200 rows",
    doubled(7): "reads 128 tables.*at most 100",
    "SELECT count(*) FROM drugs, days a, rooms WHERE md5(lpad(drug, 999, 'a')) = 'q' AND a.n > 0": "1,998 characters more in each of 2,394 rows",
    "SELECT count(*) FROM drugs, days a, rooms WHERE lpad(drug || drug || drug || drug || drug || a.n, 50, 'a') = 'q'": "26 times as long.*in each of 2,400",
    "SELECT count(*) FROM drugs, days WHERE regexp_matches(drug, '(abc){40}')": "160 steps.*in each of 400 rows",
}
"""SELECT -> why a row would take long."""


@pytest.mark.some(4)
@pytest.mark.parametrize("select", FANNED)
def test_joins_that_make_many_rows_of_one_are_refused_before_a_charge(
    con: duckdb.DuckDBPyConnection, select: str
) -> None:
    con.execute("CREATE OR REPLACE TABLE days AS SELECT i AS n FROM range(400) AS t(i); CALL dp_public('days')")
    spent = con.execute("SELECT epsilon_spent FROM dp_budget()").fetchall()
    for function in ("dp_sql(", "dp_explain(NULL, "):
        with pytest.raises(duckdb.Error, match=FANNED[select]):
            con.execute(f"FROM {function}$1, epsilon := 0.1, max_rows := 2)", [select])
    with pytest.raises(duckdb.Error, match=FANNED[select]):
        con.execute("CALL dp_view('fanned', $1, max_rows := 2)", [select.replace("count(*)", "*", 1)])
    assert spent == con.execute("SELECT epsilon_spent FROM dp_budget()").fetchall()


LOOKED_UP = {
    "SELECT count(*) FROM drugs WHERE id > (SELECT avg(a.n) FROM days a, days b)": "SELECT count(*) FROM drugs WHERE id > 199.5",
    "SELECT count(*) FROM drugs WHERE id IN (SELECT a.n FROM days a, days b WHERE b.n > 390)": "SELECT count(*) FROM drugs",
    "SELECT count(*) FROM drugs, days a, days b WHERE a.n = id AND b.n = id": "SELECT count(*) FROM drugs",
    stars(3) + " AND v0.id IN (3, 5)": stars(3) + " AND v0.id IN (3, 5)",
}
"""SELECTs whose joins make few rows of one, with the same in fewer words."""


@pytest.mark.parametrize("select", LOOKED_UP)
def test_public_rows_that_are_looked_up_or_read_once_are_no_limit(con: duckdb.DuckDBPyConnection, select: str) -> None:
    con.execute("CREATE OR REPLACE TABLE days AS SELECT i AS n FROM range(400) AS t(i); CALL dp_public('days')")
    ((answer, *_),) = con.execute("FROM dp_sql($1, epsilon := 0.1, max_rows := 27)", [select]).fetchall()
    assert [(answer,)] == con.execute(LOOKED_UP[select]).fetchall()


def test_a_further_join_takes_as_many_rows_as_count_and_dp_explain_says_it(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE many (id INTEGER, x INTEGER)")
    con.execute("INSERT INTO many SELECT i % 2, i FROM range(300) AS t(i)")
    con.execute("CALL dp_protect('many', unit := 'id', max_rows := 'auto', epsilon := 1000, delta := 1e-6)")
    select = (
        "SELECT count(*) FROM many AS a JOIN many AS b USING (id) JOIN many AS c USING (id) WHERE a.x < 4 AND c.x > 9"
    )
    ((route,),) = con.execute(
        "SELECT route FROM dp_explain(NULL, $1, epsilon := 1, max_rows := 90000)", [select]
    ).fetchall()
    assert re.search(r"a row is joined with at most 100 of .many.", route)
    ((answer, *_),) = con.execute("FROM dp_sql($1, epsilon := 1, max_rows := 90000)", [select]).fetchall()
    assert answer == pytest.approx(4 * 150 * 100, rel=0.01)  # sums are on a grid


def test_a_key_that_a_collation_equates_with_another_gives_a_row_one_row(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE codes (code VARCHAR COLLATE NOCASE PRIMARY KEY); INSERT INTO codes VALUES ('a'), ('A')"
        )
        con.execute("CREATE TABLE events (code VARCHAR); INSERT INTO events VALUES ('a')")
        load_exact(con, tmp_path)
        con.execute("CALL dp_protect('events', epsilon := 10, delta := 1e-6)")
        con.execute("CALL dp_public('codes')")
        found = con.execute("FROM dp_sql('SELECT count(*) FROM events JOIN codes USING (code)', epsilon := 0.1)")
        assert found.fetchall()[0][0] == 1
