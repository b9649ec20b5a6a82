"""What the SQL surface promises: a request is charged once ever, whoever asks, and errors cost nothing and are one line."""

import json
import re
import textwrap
from pathlib import Path

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp.accounting.ledger import Ledger

CALL = "FROM dp_marginals('people', ['sex'], mu := 0.5)"

PROLOGUE = """
import json, sys
import duckdb, duckdb_dp

def rows(con, sql):
    return con.execute(sql).fetchall()
"""
CREATE = """
con.execute("CREATE OR REPLACE TABLE people AS SELECT CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex FROM range(420) t(i)")
"""
DECLARE = """
con.execute("CALL dp_protect('people', mu := 10)")
con.execute("CALL dp_attribute('people', 'sex', \\"values\\" := ['F', 'M'])")
"""
ASK = f"""
print(json.dumps(rows(con, "{CALL}") + rows(con, "SELECT count(*) FROM dp_ledger()")))
"""


def total(loaded, table: str = "people", mu: float = 0.5) -> float:
    """The sum of a marginal's counts: with the noise off, the number of rows."""
    ((found,),) = loaded(f"SELECT sum(count) FROM dp_marginals('{table}', ['sex'], mu := {mu!r})")
    return round(found, 6)


def protect(loaded, table: str, mu: float = 100) -> None:
    loaded(f"CALL dp_protect('{table}', mu := {mu}); CALL dp_attribute('{table}', 'sex', \"values\" := ['F', 'M'])")


# Promise 1: once, ever


@pytest.mark.slow
def test_after_a_restart_and_read_only(run, tmp_path: Path) -> None:
    connect = "con = duckdb.connect(sys.argv[1]); "
    first = run(PROLOGUE + connect + CREATE + "duckdb_dp.load(con)" + DECLARE + ASK, tmp_path / "my.db")
    later = run(PROLOGUE + connect + "duckdb_dp.load(con)" + ASK, tmp_path / "my.db")
    reader = "con = duckdb.connect(sys.argv[1], read_only=True); duckdb_dp.load(con)"
    assert json.loads(run(PROLOGUE + reader + ASK, tmp_path / "my.db")) == json.loads(first) == json.loads(later)
    assert json.loads(first)[-1] == [1]
    assert Ledger(tmp_path / "my.db.dp").ledger_rows()[0]["private"]


def test_a_read_only_database_is_charged_for_new_questions(tmp_path: Path) -> None:
    path = tmp_path / "my.db"
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE people AS SELECT 'F' AS sex FROM range(10)")
        duckdb_dp.testing.load_exact(con)
        con.execute("CALL dp_protect('people', mu := 10); CALL dp_attribute('people', 'sex', \"values\" := ['F', 'M'])")
    before = path.read_bytes()
    with duckdb.connect(path, read_only=True) as con:
        duckdb_dp.testing.load_exact(con)
        assert [count for _, count, *_ in con.execute(CALL).fetchall()] == [10, 0]
    assert path.read_bytes() == before
    assert len(Ledger(tmp_path / "my.db.dp").ledger_rows()) == 1


@pytest.mark.slow
def test_from_another_process_with_a_database_of_its_own(run, folder: Path) -> None:
    script = PROLOGUE + "con = duckdb.connect()" + CREATE + "duckdb_dp.load(con, sys.argv[1])" + DECLARE + ASK
    assert run(script, folder) == run(script, folder)


def test_the_data_are_no_part_of_a_request(exact) -> None:
    assert total(exact) == 420
    exact("DELETE FROM people")
    assert total(exact) == 420
    assert total(exact, mu=0.25) == 0
    assert exact("SELECT count(DISTINCT released_at), count(released_at) FROM dp_releases()") == [(2, 2)]


def test_the_spelling_of_a_request_is_no_part_of_it(shared) -> None:
    before = shared.charges()
    asked = [
        "dp_marginals('people', ['sex', 'age'], mu := 0.5)",
        "dp_marginals('PEOPLE', ['Age', 'SEX'], mu => 0.50)",
        "dp_marginals('main.people', [['age', 'sex']], mu := 5e-1, bounds := false)",
        "dp_marginals('\"memory\".\"main\".\"people\"', ['age', 'sex'], mu := 0.5::DECIMAL(5, 3), mechanism := 'AUTO')",
        "dp_marginals(attributes := ['age', 'sex'], mu := 0.5, dataset := 'people')",
    ]
    assert len({tuple(shared(f"FROM {call}")) for call in asked}) == 1
    assert shared.charges() == before + 1


def test_a_request_with_another_declared_domain_is_another(exact) -> None:
    exact(CALL)
    exact("CALL dp_attribute('people', 'sex', \"values\" := ['F', 'M'], other := true)")
    assert [row[0] for row in exact(CALL)] == ["F", "M", "other"]
    exact("CALL dp_attribute('people', 'sex', \"values\" := ['F', 'M'])")
    assert [row[0] for row in exact(CALL)] == ["F", "M"]
    assert exact.charges() == 2


def test_prepared_statements_with_parameters(db) -> None:
    db("PREPARE asked AS FROM dp_marginals('people', ['sex'], mu := ?)")
    first, second = db("EXECUTE asked(0.5)"), db("EXECUTE asked(0.25)")
    assert db("EXECUTE asked(0.5)") == first != second
    assert db.charges() == 2
    from_python = "FROM dp_marginals(?, ?, mu := ?, release := ?)"
    assert db(from_python, ["people", ["sex"], 0.5, "from python"]) == first
    assert db(from_python, ["people", ["sex"], 0.5, "from python"]) == first == db("FROM dp_release('from python')")
    assert db.charges() == 2


def test_prepared_before_the_release_and_run_after_it(db) -> None:
    db(f"PREPARE asked AS {CALL}")
    first = db(CALL)
    assert db("EXECUTE asked") == first == db("EXECUTE asked")
    assert db.charges() == 1


def test_from_a_list_of_python_variables(db) -> None:
    db("SET VARIABLE asked = ['sex']")
    assert db("FROM dp_marginals('people', getvariable('asked'), mu := 0.5)") == db(CALL)


# Promise 3: what was charged stays


@pytest.mark.slow
def test_a_rollback_keeps_the_charge_and_the_answer(exact) -> None:
    exact("BEGIN; INSERT INTO people SELECT * FROM people")
    assert total(exact) == 840
    exact("ROLLBACK")
    assert exact.charges() == 1
    assert total(exact) == 840
    assert total(exact, mu=0.25) == 420


def test_a_statement_that_fails_after_the_charge_keeps_it(exact) -> None:
    with pytest.raises(duckdb.Error):
        exact(f"SELECT error('later') FROM (SELECT count(*) AS n {CALL}) WHERE n > 0")
    assert exact.charges() == 1
    assert total(exact) == 420
    assert exact.charges() == 1


# Promise 4: the budget


def test_a_request_over_the_budget_is_refused_with_what_remains(exact) -> None:
    exact("CREATE TABLE small AS FROM people")
    protect(exact, "small", mu=1)
    assert total(exact, "small", mu=0.8) == 420
    line = exact.refused("FROM dp_marginals('small', ['sex'], mu := 0.7)")
    assert "mu^2 0.49 is more than what remains of the budget of 'small', mu^2 0.36 of mu^2 1;" in line
    assert re.search(r"nothing was charged; up to mu := 0\.(6|5999) works", line)
    assert total(exact, "small", mu=0.6) == 420
    assert exact.refused("FROM dp_marginals('small', ['sex'], mu := 0.001)")
    assert total(exact, "small", mu=0.8) == 420
    assert exact("SELECT spent, remaining, releases FROM dp_budget() WHERE dataset = 'small'") == [
        (pytest.approx(1), 0, 2)
    ]


def test_the_same_request_is_free_when_nothing_remains(db) -> None:
    db("CREATE TABLE small AS FROM people")
    protect(db, "small", mu=1)
    first = db("FROM dp_marginals('small', ['sex'], mu := 1)")
    assert db("FROM dp_marginals('small', ['sex'], mu := 1)") == first
    db.refused("FROM dp_marginals('small', ['sex'], mu := 1, fresh := true)")


# Promise 6: the caller's transaction, and the right table


def test_uncommitted_rows_and_tables(exact) -> None:
    exact("BEGIN; CREATE TABLE made AS FROM people LIMIT 100")
    protect(exact, "made")
    assert total(exact, "made") == 100
    exact("INSERT INTO made FROM people")
    assert total(exact, "made", mu=0.25) == 520
    exact("COMMIT")
    assert total(exact, "made", mu=0.125) == 520


def test_temporary_tables(exact) -> None:
    exact("CREATE TEMP TABLE passing AS FROM people LIMIT 7")
    protect(exact, "passing")
    assert total(exact, "passing") == 7
    assert exact("SELECT catalog, schema, dataset FROM dp_ledger()") == [("temp", "main", "passing")]
    assert total(exact, "temp.main.passing") == 7
    assert exact.charges() == 1


def test_attached_databases_and_other_schemas(exact, tmp_path: Path) -> None:
    exact(f"ATTACH '{tmp_path / 'other.db'}' AS other; CREATE SCHEMA s; CREATE SCHEMA other.s")
    tables = {"other.people": 11, "s.people": 12, "other.s.people": 13}
    for table, rows in tables.items():
        exact(f"CREATE TABLE {table} AS FROM memory.main.people LIMIT {rows}")
        protect(exact, table)
    for table, rows in {
        **tables,
        "people": 420,
        "memory.people": 420,
        "other.main.people": 11,
        "memory.s.people": 12,
    }.items():
        assert total(exact, table) == rows
    exact("USE other")
    assert total(exact) == 11
    assert total(exact, "s.people") == 13
    exact("USE memory.s")
    assert total(exact) == 12
    exact("USE memory; DETACH other")
    assert total(exact) == 420
    assert "there is no such table now in other.main" in exact.refused(
        "FROM dp_marginals('other.people', ['sex'], mu := 0.1)"
    )
    assert exact.charges() == 4


def test_nothing_shadows_a_protected_table(exact) -> None:
    before = total(exact, mu=0.5)
    exact("CREATE TEMP TABLE people AS SELECT 'F' AS sex FROM range(3)")
    shadow = "WITH people AS (SELECT 'F' AS sex), coded AS (SELECT 1), blocks AS (SELECT 2), handle AS (SELECT 3), layout AS (SELECT 4), answers AS (SELECT 5) "
    ask = "SELECT sum(count) FROM dp_marginals('people', ['sex'], mu := {})"
    for number, prefix in enumerate(("", shadow)):
        assert exact(prefix + ask.format(0.2 + number / 10)) == [(pytest.approx(before),)]
    exact("CREATE SCHEMA s; CREATE TABLE s.people AS SELECT 'M' AS sex; SET search_path = 's,main'")
    assert "is not protected" in exact.refused(ask.format(0.05))
    exact("SET search_path = 'main,s'")
    assert exact(ask.format(0.05)) == [(pytest.approx(before),)]


@pytest.mark.slow
def test_a_name_that_could_be_two_protected_tables_is_refused(exact) -> None:
    exact("CREATE TEMP TABLE people AS SELECT 'F' AS sex FROM range(3)")
    protect(exact, "temp.main.people")
    assert "could be 'memory.main.people' and 'temp.main.people'; write the full name" in exact.refused(CALL)
    assert (total(exact, "temp.main.people"), total(exact, "memory.main.people")) == (3, 420)


@pytest.mark.slow
def test_cursors_made_before_and_after_loading(folder: Path) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE people AS SELECT 'F' AS sex FROM range(10)").fetchall()
        before = con.cursor()
        duckdb_dp.testing.load(con, folder, seed=1)
        protect(lambda sql: con.execute(sql).fetchall(), "people")
        after = con.cursor()
        answers = [cursor.execute(CALL).fetchall() for cursor in (con, before, after, after.cursor())]
        assert answers == [answers[0]] * 4


@pytest.mark.slow
def test_cursors_of_a_file_and_a_second_connection_to_it(tmp_path: Path) -> None:
    path = tmp_path / "my.db"
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE people AS SELECT 'F' AS sex FROM range(10)").fetchall()
        before, second = con.cursor(), duckdb.connect(path)
        duckdb_dp.testing.load(con, seed=1)
        con.execute("CALL dp_protect('people', mu := 10); CALL dp_attribute('people', 'sex', \"values\" := ['F', 'M'])")
        for other in (before, second):  # TEMP macros leave the file as it is, but are a connection's own
            duckdb_dp.testing.load(other, seed=1)
        answers = [cursor.execute(CALL).fetchall() for cursor in (con, con.cursor(), before, second, second.cursor())]
        assert answers == [answers[0]] * 5
        con.close()
        assert second.execute(CALL).fetchall() == answers[0]
        assert len(second.execute("FROM dp_marginals('people', ['sex'], mu := 0.25)").fetchall()) == 2
        second.close()
    with duckdb.connect(path) as con:
        assert (
            con.execute(
                "SELECT function_name FROM duckdb_functions() WHERE function_name LIKE '%dp\\_%' ESCAPE '\\'"
            ).fetchall()
            == []
        )


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["second.close(); del con", "con.close()", "del con; gc.collect()"])
def test_functions_outlive_the_connection_that_was_loaded(run, tmp_path: Path, ending: str) -> None:
    script = """
    import gc
    con = duckdb.connect(sys.argv[1]); second = duckdb.connect(sys.argv[1]); third = duckdb.connect(sys.argv[1])
    """
    use = f"""
    duckdb_dp.load(second)
    {ending}
    last = third if 'second' in {ending!r} else second
    waste = [bytearray(1000) for _ in range(1000)]
    duckdb_dp.load(last)
    for i in range(3):
        print(len(rows(last, f"FROM dp_marginals('people', ['sex'], mu := 0.1 + {{i}} / 10)")))
    """
    parts = [PROLOGUE, script, CREATE, "duckdb_dp.load(con)", DECLARE, use]
    assert run("\n".join(map(textwrap.dedent, parts)), tmp_path / "my.db").split() == ["2"] * 3


@pytest.mark.slow
def test_loading_again_changes_nothing(db, run) -> None:
    first = db(CALL)
    for _ in range(2):
        duckdb_dp.testing.load(db.connection, db.folder, seed=99)
        assert db(CALL) == first
    run(PROLOGUE + "duckdb_dp.load(duckdb.connect(), sys.argv[1])", db.folder)
    assert db(CALL) == first
    assert db.charges() == 1


def test_loading_with_another_ledger_starts_from_that_one(db, tmp_path: Path) -> None:
    db(CALL)
    duckdb_dp.testing.load(db.connection, tmp_path / "new.dp", seed=1)
    with pytest.raises(duckdb.Error, match="is not protected"):
        db(CALL)
    duckdb_dp.testing.load(db.connection, db.folder, seed=1)
    db(CALL)
    assert db.charges() == 1


def test_an_in_memory_database_without_a_ledger_warns_and_works() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE people AS SELECT 'F' AS sex")
        with pytest.warns(
            UserWarning, match=r"will be forgotten.*duckdb_dp\.load\(con, ledger='my_ledger\.dp'\)"
        ) as caught:
            duckdb_dp.load(con)
        assert caught[0].filename == __file__
        protect(lambda sql: con.execute(sql).fetchall(), "people")
        assert len(con.execute(CALL).fetchall()) == 2


# Names of releases


def test_releases_by_name_and_by_number(db) -> None:
    first = db(CALL[:-1] + ", release := 'sexes')")
    assert db("FROM dp_release('sexes')") == db("FROM dp_release(1)") == db("FROM dp_release(name := 'sexes')") == first
    assert db("SELECT name, state, private FROM dp_releases()") == [("sexes", "stored", False)]
    second = db(CALL[:-1] + ", release := 'again', fresh := true)")
    assert db("FROM dp_release('again')") == db("FROM dp_release(2)") == db(CALL) == second
    assert db("FROM dp_release('sexes')") == db("FROM dp_release(1)") == first
    assert db("SELECT name FROM dp_releases()") == [("sexes",), ("again",)]
    assert "there is no release 'nothing'; the first names in use: 'again', 'sexes'" in db.refused(
        "FROM dp_release('nothing')"
    )
    for wrong in ("7", "NULL", "true", "['sexes']", "1.5"):
        db.refused(f"FROM dp_release({wrong})")


def test_a_name_stays_with_the_release_that_was_given_it(db) -> None:
    """Whatever is drawn anew, or named again: nobody can move a published name."""
    first = db(CALL[:-1] + ", release := 'published')")
    second = db(CALL[:-1] + ", fresh := true)")
    assert first != second
    assert "'published' stays with release 1: choose another for the new draw, or none" in db.refused(
        CALL[:-1] + ", release := 'published', fresh := true)"
    )
    assert db(CALL[:-1] + ", release := 'second')") == db(CALL) == second
    assert db(CALL[:-1] + ", release := 'published')") == first == db("FROM dp_release('published')")
    assert db(CALL[:-1] + ", release := 'third')") == second
    assert db("SELECT name FROM dp_releases()") == [("published",), ("second",)]
    assert db.charges() == 2


def test_a_name_belongs_to_one_request(db) -> None:
    first = db(CALL[:-1] + ", release := 'sexes')")
    used = "the name 'sexes' belongs to another request"
    assert used in db.refused("FROM dp_marginals('people', ['sex'], mu := 0.25, release := 'sexes')")
    db("FROM dp_marginals('people', ['age'], mu := 0.5)")
    assert used in db.refused("FROM dp_marginals('people', ['age'], mu := 0.5, release := 'sexes')")
    db(CALL[:-1] + ", release := 'a new name')")
    assert db("FROM dp_release('sexes')") == db("FROM dp_release('a new name')") == first
    assert db.charges() == 2


def test_seeded_noise_is_marked_and_never_mixed_with_real_noise(folder: Path) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE people AS SELECT 'F' AS sex FROM range(10)").fetchall()
        duckdb_dp.load(con, folder)
        protect(lambda sql: con.execute(sql).fetchall(), "people")
        real = con.execute(CALL).fetchall()
        assert [name for name, *_ in con.execute(f"DESCRIBE {CALL}").fetchall()] == [
            "sex", "count", "stddev", "ci_low", "ci_high",
        ]  # fmt: skip
        duckdb_dp.testing.load(con, folder, seed=1)
        seeded = con.execute(CALL).fetchall()
        assert [name for name, *_ in con.execute(f"DESCRIBE {CALL}").fetchall()][-1] == "private"
        assert [row[-1] for row in seeded] == [False, False]
        assert con.execute("SELECT private, count(*) FROM dp_ledger() GROUP BY ALL ORDER BY ALL").fetchall() == [
            (False, 1),
            (True, 1),
        ]
        duckdb_dp.load(con, folder)
        assert con.execute(CALL).fetchall() == real


# Promise 7: bad input. Each error is one line that says what would work, and nothing is charged.


BAD = [
    ("FROM dp_marginals('nothing', ['sex'], mu := 1)", "'nothing' is not protected.*CALL dp_protect('nothing'"),
    ("FROM dp_marginals('a.b.c.d', ['sex'], mu := 1)", "'a.b.c.d' is not a table's name"),
    ("FROM dp_marginals('', ['sex'], mu := 1)", "name a table or view"),
    ("FROM dp_marginals(NULL, ['sex'], mu := 1)", "name a table or view"),
    ("FROM dp_marginals(7, ['sex'], mu := 1)", "name a table or view"),
    ("FROM dp_marginals('people', ['nothing'], mu := 1)", "'people' has no column 'nothing'; its columns are"),
    ("FROM dp_marginals('people', ['sex', 'SEX'], mu := 1)", "names an attribute twice"),
    ("FROM dp_marginals('people', [['sex'], ['sex']], mu := 1)", "is named twice"),
    ("FROM dp_marginals('people', [['age', 'sex'], ['sex', 'age']], mu := 1)", "is named twice"),
    ("FROM dp_marginals('people', [[], []], mu := 1)", "is named twice"),
    ("FROM dp_marginals('people', [['sex'], NULL], mu := 1)", "an attribute set is NULL; write a list"),
    ("FROM dp_marginals('people', [NULL], mu := 1)", "NULL is no attribute of 'people'"),
    ("FROM dp_marginals('people', NULL, mu := 1)", "the attributes are NULL; write"),
    ("FROM dp_marginals('people', 3, mu := 1)", "the attributes are 3; write"),
    ("FROM dp_marginals('people', 'every pair', mu := 1)", "the attributes are 'every pair'; write"),
    ("FROM dp_marginals('people', 'all 0-way', mu := 1)", "the order is 1 to 4"),
    ("FROM dp_marginals('people', 'all 5-way', mu := 1)", "the order is 1 to 4"),
    ("FROM dp_marginals('people', 'all <=5-way', mu := 1)", "the order is 1 to 4"),
    ("FROM dp_marginals('people', ['sex'])", "no budget: type exactly one of epsilon, rho, mu and precision"),
    ("FROM dp_queries('people', {'age': 'range'})", "no budget: type exactly one of epsilon, rho, mu and precision"),
    ("FROM dp_quantiles('people', 'age', [0.5])", "no budget: type exactly one of epsilon, rho, mu and precision"),
    ("FROM dp_sql('SELECT count(*) AS n FROM people')", "no budget: type exactly one of epsilon, rho, mu and precision"),
    ("FROM dp_synthesize('people', attributes := ['sex'])", "no budget: type exactly one of epsilon, rho and mu,"),
    ("FROM dp_marginals('people', ['sex'], delta := 1e-9)", "no budget.*type exactly one"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, rho := 1)", "2 budgets: type exactly one"),
    ("FROM dp_marginals('people', ['sex'], epsilon := 1, mu := 1, rho := 1)", "3 budgets: type exactly one"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, delta := 1e-6)", "takes no delta"),
    ("FROM dp_marginals('people', ['sex'], epsilon := 0)", "epsilon 0 is not positive"),
    ("FROM dp_marginals('people', ['sex'], epsilon := -1)", "epsilon -1 is not positive"),
    ("FROM dp_marginals('people', ['sex'], epsilon := 'nan'::DOUBLE)", "epsilon nan is not a finite number"),
    ("FROM dp_marginals('people', ['sex'], rho := 'inf'::DOUBLE)", "rho inf is not a finite number"),
    ("FROM dp_marginals('people', ['sex'], epsilon := '1')", "epsilon '1' is not a number"),
    ("FROM dp_marginals('people', ['sex'], epsilon := true)", "epsilon true is not a number"),
    ("FROM dp_marginals('people', ['sex'], epsilon := [1])", "is not a number"),
    ("FROM dp_marginals('people', ['sex'], epsilon := 1, delta := 0)", "delta 0"),
    ("FROM dp_marginals('people', ['sex'], epsilon := 1, delta := 1)", "delta 1 is not between 0 and 1"),
    ("FROM dp_marginals('people', ['sex'], epsilon := 1, delta := -1)", "delta -1 is not between 0 and 1"),
    ("FROM dp_marginals('people', ['sex'], mu := 1e-101)", "out of range"),
    ("FROM dp_marginals('people', ['sex'], mu := 2000)", "more than what remains.*nothing was charged"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, mechanism := 'magic')", "'magic' is not known; use 'auto', 'residual'"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, mechanism := 3)", "mechanism is 3; it is a word"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, objective := 'least')", "'least' is not known; use 'total'"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, weights := [1, 2])", "1 marginals but 2 weights"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, weights := [0])", "weights are positive and finite"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, weights := [-1])", "weights are positive and finite"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, weights := ['nan'::DOUBLE])", "weights are positive and finite"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, weights := [NULL])", "weights are positive and finite"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, weights := 'heavy')", "weights is 'heavy'; give one positive number"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, fresh := 'false')", "fresh is 'false'; write fresh := true"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, fresh := 1)", "fresh is 1; write fresh := true"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, bounds := 'yes')", "bounds is 'yes'; write bounds := true"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, release := '')", "a release's name is a text"),
    ("FROM dp_marginals('people', ['sex'], mu := 1, release := 7)", "a release's name is a text"),
    ("FROM dp_explain('people', ['sex'], mu := 1, target_stddev := 5)", "a budget or target_stddev, not both"),
    ("FROM dp_explain('people', ['sex'], target_stddev := 0)", "target_stddev is 0; it is a positive number"),
    ("FROM dp_explain('people', ['sex'], target_stddev := 'small')", "target_stddev is 'small'; it is a positive number"),
    ("FROM dp_explain('people', ['sex'], target_stddev := 5, delta := 2)", "delta 2 is not between 0 and 1"),
    ("FROM dp_explain('people', ['sex'])", "no budget"),
    ("FROM dp_explain('nothing', ['sex'], mu := 1)", "'nothing' is not protected"),
    ("FROM dp_queries('people', {'age': 'range'})", "budget"),
    ("FROM dp_queries('people', {'age': 'range'}, mu := 1, epsilon := 1)", "budget"),
    ("FROM dp_queries('nobody', {'age': 'range'}, mu := 1)", "'nobody' is not protected"),
    ("FROM dp_queries('people', {'age': 'range'}, mu := 1e6)", "remain"),
    ("FROM dp_queries('people', {'age': 'range'}, mu := 1, mechanism := 'magic')", "mechanism 'magic' is not known"),
    ("FROM dp_queries('people', {'age': 'range'}, mu := 1, mechanism := 'gaussian')", "this mechanism answers marginals only"),
    ("FROM dp_queries('people', {'age': 'range'}, mu := 1, release := '')", "a release's name is a text"),
    ("FROM dp_explain('people', {'age': 'rage'}, mu := 1)", "'rage' is no kind of query"),
    ("FROM dp_explain('people', {'age': 'range'}, mu := 1, target_stddev := 3)", "give a budget or target_stddev, not both"),
    ("FROM dp_sql([], mu := 1)", "write a SELECT as text, or a list of them"),
    ("FROM dp_sql(NULL, mu := 1)", "write a SELECT as text, or a list of them"),
    ("FROM dp_sql([NULL], mu := 1)", "write a SELECT as text, or a list of them"),
    ("FROM dp_sql(5, mu := 1)", "write a SELECT as text, or a list of them"),
    ("FROM dp_sql('SELECT count(*) FROM people')", "budget"),
    ("FROM dp_sql('SELECT count(*) FROM people', mu := 1, rho := 1)", "budget"),
    ("FROM dp_sql('SELECT count(*) FROM people', mu := -1)", "mu"),
    ("FROM dp_sql('SELECT count(*) FROM people', mu := 1e9)", "remain"),
    ("FROM dp_sql('SELECT count(*) FROM people', mu := 1, mechanism := 'magic')", "mechanism 'magic' is not known; use 'auto', 'residual'"),
    ("FROM dp_sql('SELECT sex, count(*) FROM people WHERE race = 1 GROUP BY sex', mu := 1, mechanism := 'gaussian')", "this mechanism answers marginals only"),
    ("FROM dp_sql(['SELECT count(*) FROM people', 'SELECT count(*) FROM others'], mu := 1)", "the SELECTs read several datasets (others, people); ask each in a call of its own"),
    ("FROM dp_explain('others', 'SELECT count(*) FROM people', mu := 1)", "several datasets"),
    ("FROM dp_domain('nothing')", "'nothing' is not protected"),
    ("CALL dp_check('nothing')", "'nothing' is not protected"),
    ("CALL dp_attributes('nothing')", "'nothing' is not protected"),
    ("CALL dp_attribute('nothing', 'sex')", "'nothing' is not protected"),
    ("CALL dp_attribute('people', 'nothing')", "has no column 'nothing'; its columns are: age, sex, race, smoker"),
    ("CALL dp_protect('nothing', mu := 1)", "there is no table or view 'nothing'"),
    ("CALL dp_protect('people', mu := 2)", "is declared already, and a declaration stays"),
]  # fmt: skip


@pytest.mark.some(21)
@pytest.mark.parametrize(("statement", "says"), BAD, ids=[statement for statement, _ in BAD])
def test_bad_input(shared, statement: str, says: str) -> None:
    shared("CREATE TABLE IF NOT EXISTS others AS SELECT 1 AS x; CALL dp_protect('others', mu := 1)")
    function = statement.split()[1].split("(")[0]
    line = shared.refused(statement)
    assert line.startswith(f"Invalid Input Error: {function}: ")
    *first, last = says.split(".*")
    assert last in line
    assert all(part in line for part in first)


def test_more_cells_than_memory_allows(exact) -> None:
    exact("CREATE TABLE wide AS SELECT 1 AS a, 1 AS b")
    exact("CALL dp_protect('wide', mu := 1); CALL dp_attribute('wide', 'a', low := 1, high := 20_000)")
    exact("CALL dp_attribute('wide', 'b', low := 1, high := 20_000)")
    line = exact.refused("FROM dp_marginals('wide', ['a', 'b'], mu := 0.5)")
    assert "the marginals have 400,000,000 cells together and the limit is 100,000,000" in line
    assert "400,000,000" in exact.refused("FROM dp_explain('wide', ['a', 'b'], mu := 0.5)")


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DROP TABLE people", "there is no such table now in memory.main"),
        ("ALTER TABLE people DROP COLUMN sex", "'people'.'sex' was declared as VARCHAR and is gone"),
        ("ALTER TABLE people RENAME sex TO gender", "'people'.'sex' was declared as VARCHAR and is gone"),
        ("ALTER TABLE people ALTER sex TYPE ENUM('F', 'M')", "was declared as VARCHAR and is ENUM('F', 'M') now"),
        ("ALTER TABLE people RENAME TO persons", "there is no such table now in memory.main"),
    ],
)
def test_a_dropped_or_altered_table(exact, change: str, says: str) -> None:
    exact("FROM dp_marginals('people', ['race'], mu := 0.5)")
    exact(change)
    assert says in exact.refused(CALL)
    exact("DROP TABLE IF EXISTS people; CREATE TABLE people AS SELECT 'F' AS sex")
    assert total(exact) == 1


def test_a_table_dropped_in_this_transaction(exact) -> None:
    exact("BEGIN; DROP TABLE people")
    with pytest.raises(duckdb.CatalogException, match="people does not exist"):
        exact(CALL)
    exact("ROLLBACK")
    assert exact.charges() == 0
    assert total(exact) == 420


def test_a_temporary_table_whose_column_changed_shows_no_value(exact) -> None:
    exact("CREATE TEMP TABLE passing AS SELECT DATE '2020-01-01' AS day FROM range(10)")
    exact(
        "CALL dp_protect('passing', mu := 10); CALL dp_attribute('passing', 'day', bins := ['2020-01-01', '2021-01-01'])"
    )
    exact("ALTER TABLE passing ALTER day TYPE VARCHAR; INSERT INTO passing VALUES ('a secret')")
    assert exact("SELECT round(count) FROM dp_marginals('passing', ['day'], mu := 1)") == [(10,)]


def test_the_smallest_and_the_largest_budget_are_charged_and_answered(exact) -> None:
    assert total(exact, mu=1e-50) == 0  # 420 on a grid of 1e47
    assert total(exact, mu=999) == 420
    assert exact("SELECT count(*) FROM dp_releases() WHERE state = 'stored'") == [(2,)]


ODD = [
    "NULL, NULL", "1e400::DOUBLE, NULL", "'nan'::DOUBLE, 'x'", "'inf'::DOUBLE, ''", "'-inf'::DOUBLE, 'other'",
    "-1e308, 'a\\0b'", "2.5, 'é'",
]  # fmt: skip


@pytest.mark.slow
def test_odd_values_change_neither_shape_nor_errors(exact) -> None:
    exact("CREATE TABLE odd (x DOUBLE, s VARCHAR); CALL dp_protect('odd', mu := 1000)")
    exact(
        "CALL dp_attribute('odd', 'x', bins := [0, 1, 2]); CALL dp_attribute('odd', 's', \"values\" := ['a', 'b'], other := true)"
    )
    shapes = set()
    for number, values in enumerate([None, *ODD]):
        exact("DELETE FROM odd")
        if values is not None:
            exact(f"INSERT INTO odd SELECT {values.replace('1e400', '1e308')} FROM range(50)")
        call = f"dp_marginals('odd', [['x'], ['x', 's'], ['s']], mu := {number + 1})"
        shapes.add((*exact.columns(f"FROM {call}"), *[row[:3] for row in exact(f"FROM {call}")]))
        assert sum(row[0] for row in exact(f"SELECT count FROM {call}")) == pytest.approx(0, abs=1e-9)
    assert len(shapes) == 1
    assert exact.charges() == len(ODD) + 1


# Loading is light and leaves nothing behind

HEAVY = (
    "cvxpy",
    "jax",
    "matplotlib",
    "mbi",
    "pandas",
    "pyarrow.compute",
    "scipy",
    "sklearn",
    "sqlglot",
    "torch",
    "tqdm",
)


@pytest.mark.skipif(
    duckdb.__version__.startswith("1.4."),
    reason="DuckDB 1.4 imports pandas by itself, and plans the call inside each macro when the macro is made",
)
def test_a_first_marginal_imports_nothing_heavy(run, tmp_path: Path) -> None:
    script = PROLOGUE + "con = duckdb.connect(sys.argv[1])" + CREATE + "duckdb_dp.load(con)" + DECLARE + ASK
    heavy = f"\nprint([m for m in {HEAVY} if m in sys.modules])"
    assert run(script + heavy, tmp_path / "my.db").splitlines()[-1] == "[]"


EXITS = {
    "nothing special": "",
    "rows unread": "con.execute(ASKED)",
    "a relation": "relation = con.sql(ASKED)",
    "a relation that was shown": "relation = con.sql(ASKED); str(relation)",
    "a relation and no connection": "relation = con.sql(ASKED); del con; gc.collect()",
    "a relation and a closed connection": "relation = con.sql(ASKED); con.close()",
    "a cursor and no connection": "cursor = con.cursor(); del con; gc.collect(); rows(cursor, ASKED)",
    "a cursor with rows unread": "cursor = con.cursor(); del con; gc.collect(); cursor.execute(ASKED)",
    "a cursor never used": "cursor = con.cursor()",
    "closed": "con.close()",
    "deleted": "del con",
    "loaded twice": "duckdb_dp.load(con, sys.argv[2]); rows(con, ASKED)",
    "an open transaction": "con.execute('BEGIN'); rows(con, ASKED)",
    "a second connection": "second = duckdb.connect(sys.argv[1])",
    "a second connection and the first closed": "second = duckdb.connect(sys.argv[1]); con.close()",
    "a second connection, loaded": "second = duckdb.connect(sys.argv[1]); duckdb_dp.load(second, sys.argv[2]); del con; rows(second, ASKED)",
    "sys.exit": "sys.exit(0)",
}


@pytest.mark.slow
def test_nothing_is_printed_at_exit(start, tmp_path: Path) -> None:
    script = (
        PROLOGUE
        + "import gc; con = duckdb.connect(sys.argv[1])"
        + CREATE
        + "duckdb_dp.load(con, sys.argv[2])"
        + DECLARE
        + ASK
    )
    script += "\nASKED = \"FROM dp_marginals('people', ['sex'], mu := 0.25)\"\n"
    printed = {}
    names = list(EXITS)
    for pair in zip(names[::2], [*names[1::2], "in memory"], strict=True):
        paths = {name: ":memory:" if name == "in memory" else tmp_path / f"{name}.db" for name in pair}
        started = {name: start(script + EXITS.get(name, ""), paths[name], tmp_path / f"{name}.dp") for name in pair}
        printed |= {name: (process.communicate(timeout=60)[1], process.returncode) for name, process in started.items()}
    assert printed == dict.fromkeys([*EXITS, "in memory"], ("", 0))
