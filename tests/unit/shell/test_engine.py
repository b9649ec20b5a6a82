"""What the shell prints, in each mode, and how it fails."""

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp
from duckdb_dp.reporting.readable import number
from duckdb_dp.shell.commands import Leave
from duckdb_dp.shell.engine import Engine
from duckdb_dp.sql.stopping import INTERRUPTED
from duckdb_dp.terminal import ago, console, print_folded, text

Captured = pytest.CaptureFixture[str]
ASK = "FROM dp_marginals('people', ['sex'], epsilon := 0.5, delta := 1e-9, release := 'first');"


@pytest.fixture
def engine(db: Any) -> Engine:
    return Engine(con=db.connection)


def test_a_script_runs_line_by_line(engine: Engine, db: Any, capsys: Captured) -> None:
    script = f"-- first\n{ASK.replace(' epsilon', chr(10) + 'epsilon')}\n.mode csv\nFROM dp_release('first');\nSELECT 1 AS a; SELECT 2 AS b"
    assert engine.feed(io.StringIO(script))
    captured = capsys.readouterr()
    assert captured.err == ""
    table, rows = captured.out.split("sex,count", 1)
    assert "stddev" in table
    assert rows.splitlines()[-4:] == ["a", "1", "b", "2"]
    assert db.charges() == 1


def test_files_read_files_but_not_themselves(engine: Engine, tmp_path: Path, capsys: Captured) -> None:
    first, second = tmp_path / "first.sql", tmp_path / "second.sql"
    first.write_text(f"SELECT 41 AS a;\n.read {second}\n")
    second.write_text("SELECT 42 AS a;\n")
    for _ in range(2):
        assert engine.run(f".read {first}")
    assert capsys.readouterr().out.count("42") == 2
    second.write_text(f".read {first}\nSELECT 43 AS a;\n")
    assert not engine.run(f".read {first}")
    captured = capsys.readouterr()
    assert captured.err == f".read: {first} is being read, and would be read for ever; take this line out of it.\n"
    assert "43" not in captured.out
    assert engine.reading == []


def test_csv_and_json_keep_every_digit_and_every_row(engine: Engine, capsys: Captured) -> None:
    query = "SELECT i / 3 AS x, i % 2 = 0 AS even, NULL AS n, 'a,\"b' AS t FROM range(20001) r(i);"
    engine.mode = "csv"
    assert engine.run(query)
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[:3] == [["x", "even", "n", "t"], ["0.0", "true", "", 'a,"b'], [repr(1 / 3), "false", "", 'a,"b']]
    assert len(rows) == 20002
    engine.mode = "json"
    assert engine.run(query)
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert objects[1] == {"x": 1 / 3, "even": False, "n": None, "t": 'a,"b'}
    assert len(objects) == 20001


def test_tables_are_for_people(engine: Engine, capsys: Captured) -> None:
    assert engine.run(
        "SELECT 0.499999999999528::DOUBLE AS e, 1e-9 AS d, NULL AS n, '[red]' AS t, 'a\nb' AS l, '\x1b[31m' AS c;"
    )
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.splitlines()[3].split() == ["0.5", "1e-9", "NULL", "[red]", "a↵b", "\N{REPLACEMENT CHARACTER}[31m"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.499999999999528, "0.5"), (1e-9, "1e-9"), (123456.789, "123,457"), (1234567.0, "1,234,567"), (-0.25, "-0.25"),
        (0.0, "0"), (1e20, "1e20"), (float("nan"), "nan"), (float("-inf"), "-inf"), (0.00012345678, "0.000123457"),
    ],
)  # fmt: skip
def test_numbers_have_six_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_narrow_terminal_shows_the_first_columns(
    engine: Engine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert engine.run("FROM dp_budget();")
    out = capsys.readouterr().out
    assert "catalog" in out
    assert "more columns do not fit" in out
    assert max(map(len, out.splitlines())) <= 60


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_long_text_in_the_last_column_is_folded_and_whole(
    engine: Engine, capsys: Captured, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    call = "CALL dp_attribute('people', 'height', low := ..., high := ..., step := ...)"
    statement = "SELECT 'height' AS attribute, 'DOUBLE' AS type, NULL AS cells, $$" + call + "$$ AS declare;"
    assert engine.run(statement)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    start = next(line for line in lines if "declare" in line).index("declare")
    assert " ".join(line[start:].strip() for line in lines[3:]).strip() == call


def test_nothing_is_cut_in_a_pipe(engine: Engine, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert engine.run("SELECT repeat('a', 300) AS a, repeat('b', 300) AS b, 1 AS c;")
    assert f"{'a' * 300}   {'b' * 300}   1" in capsys.readouterr().out


def test_a_text_that_would_fill_the_screen_is_left_out(
    engine: Engine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert engine.run("SELECT 1 AS a, repeat('b', 4000) AS b, 2 AS c;")
    out = capsys.readouterr().out
    assert "…" in out
    assert len(out.splitlines()) < 8


def test_long_results_are_cut_and_say_so(engine: Engine, capsys: Captured) -> None:
    assert engine.run(".rows 3")
    assert engine.run("SELECT i FROM range(100000) t(i);")
    assert "The first 3 rows" in capsys.readouterr().out
    assert engine.run("SELECT 1;")  # rows that were not read are in nobody's way


def test_changes_say_how_many_rows(engine: Engine, capsys: Captured) -> None:
    assert engine.run(
        "CREATE TABLE t AS SELECT 1 AS a; INSERT INTO t VALUES (2), (3); CREATE VIEW v AS FROM t; DROP VIEW v;"
    )
    assert capsys.readouterr().out == "1 row\n2 rows\n"
    assert engine.run('INSERT INTO t VALUES (4) RETURNING a; SELECT count(*) AS "Count" FROM t;')
    out = capsys.readouterr().out
    assert "Count" in out
    assert "4" in out
    assert engine.run("EXPLAIN SELECT 1;")
    assert "\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM dp_marginals('people', ['nothing'], rho := 1);", "dp_marginals: 'people' has no column 'nothing'; its columns are: age"),
        ("FROM dp_marginals('people', ['sex'], mu := 2000);", "dp_marginals: "),
        (".frob", "there is no command .frob"),
        (".mode", ".mode: nothing is no mode"),
        (".rows x", ".rows: "),
        (".read /nowhere/x.sql", "/nowhere/x.sql: No such file"),
        (".explain FROM dp_synthesize('people', mu := 1)", ".explain: dp_synthesize costs the budget that it names"),
        (".explain CALL dp_synthesize_database('main', mu := 1)", ".explain: dp_synthesize_database costs the budget"),
        ("FROM dp_marginals('people', ['sex'], mu = 1);", "mu = ... is a comparison; a named argument is written mu := ..."),
        ("FROM dp_marginals('people', ['sex'], epsilonn := 1);", "dp_marginals has no argument epsilonn; epsilon may be meant.\n"),
        ("FROM dp_marginals('people', mu := 1);", "dp_marginals: the attributes are NULL; write ['age', 'sex']"),
        ("FROM dp_explain('people', {'max_rows': [1, 'auto']}, mu := 1);", "'auto' stands in a list of numbers"),
        ("CALL dp_protect('people', unit = 'age');", "dp_protect: epsilon false is not a number"),
        (".explain SELECT 1", ".explain: no call"),
        (".help nothing", ".help: there is no function nothing"),
        (".report nothing", "report: there is no release 'nothing'"),
        (".columns", ".columns: something is missing"),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_end_the_script(
    engine: Engine, db: Any, text: str, said: str, capsys: Captured
) -> None:
    assert not engine.feed([f"{text}\n", "SELECT 'not reached';\n"])
    captured = capsys.readouterr()
    assert captured.err.startswith(said)
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert engine.failed
    assert db.charges() == 0


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("failing", ["SELECT nope;", ".frob", "FROM dp_marginals('people', ['sex'], epsilon := -1);"])
def test_an_error_in_a_file_ends_the_script_that_reads_it(
    engine: Engine, db: Any, tmp_path: Path, depth: int, failing: str, capsys: Captured
) -> None:
    script = f"{failing}\n"
    for level in range(depth):
        path = tmp_path / f"{level}.sql"
        path.write_text(f"{script}{ASK}\n")
        script = f".read {path}\n"
    assert not engine.feed(io.StringIO(f"{script}{ASK}\n"))
    assert engine.failed
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err
    assert db.charges() == 0
    assert not engine.run(script)  # as typed at a prompt


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT 1 FORM t x;", ["Parser Error: syntax error", "LINE 1: SELECT 1 FORM t x", "                      ^"]),
        ("SELECT nope FROM people;", ["Binder Error: Referenced column", "LINE 1: SELECT nope FROM people", "       ^"]),
        ("FROM dp_marginal('people');", ["Catalog Error: ", "Did you mean", "dp_marginals"]),
    ],
)  # fmt: skip
def test_what_duckdb_does_not_understand_is_told_wholly(
    engine: Engine, text: str, told: list[str], capsys: Captured
) -> None:
    assert not engine.run(text)
    error = capsys.readouterr().err
    assert all(part in error for part in told), error
    assert "\n\n" not in error


@pytest.mark.slow
def test_commands(engine: Engine, db: Any, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.sql"
    script.write_text(ASK)
    page = tmp_path / "a page.html"
    lines = [".help\n", ".help dp_sql\n", ".tables\n", ".columns people\n", f".explain {ASK}\n"]
    assert engine.feed(lines)
    assert db.charges() == 0
    out = capsys.readouterr().out
    for word in (".report RELEASE", "dp_sql(sql,", "add or remove one row", "[20, 40)", "budget_share"):
        assert word in out
    assert engine.feed([f".read {script}\n", f".report first {page}\n"])
    assert str(page) in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")
    monkeypatch.chdir(tmp_path)
    assert engine.feed([f".report first {page} fitted\n", ".report first nonnegative;\n", ".report first\n"])
    assert capsys.readouterr().out == f"{page}\nfirst.html\nfirst.html\n"
    assert "fitted" in page.read_text()
    engine.con.execute("CREATE TABLE plain AS SELECT 1 AS a")
    assert engine.run(".columns plain")
    with pytest.raises(Leave):
        engine.run(".quit")


def test_names_are_read_again_after_a_statement(engine: Engine) -> None:
    seen = []
    engine.changed = lambda: seen.append(1)
    assert engine.run("CREATE TABLE t AS SELECT 1 AS a; SELECT 1;")
    assert len(seen) == 2


@pytest.mark.slow
def test_a_stored_answer_says_how_old_it_is(engine: Engine, db: Any, capsys: Captured) -> None:
    told = re.compile(
        r"^drawn \d{4}-\d\d-\d\d \d\d:\d\d UTC, just now; fresh := true draws anew and charges again$", re.MULTILINE
    )
    for ask in (
        ASK,
        "FROM dp_queries('people', {'age': 'range'}, mu := 0.5);",
        "FROM dp_sql('SELECT count(*) FROM people', mu := 0.5);",
        "FROM dp_synthesize('people', mu := 0.5);",
        "CREATE OR REPLACE TABLE kept AS FROM dp_marginals('people', ['age'], mu := 0.5);",
    ):
        for times in (0, 1, 1):
            assert engine.run(ask)
            captured = capsys.readouterr()
            assert (captured.err, len(told.findall(captured.out))) == ("", times)
    assert engine.run("FROM dp_release('first');")
    assert len(told.findall(capsys.readouterr().out)) == 1


def test_what_was_drawn_by_the_statement_does_not(engine: Engine, capsys: Captured) -> None:
    for ask in (
        ASK,
        ASK.replace(", release := '", ", fresh := true, release := 'new "),
        "SELECT 1;",
        "FROM dp_budget();",
    ):
        assert engine.run(ask)
        assert "drawn" not in capsys.readouterr().out
    engine.mode = "csv"
    assert engine.run(ASK)
    assert "drawn" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "just now"), (59, "just now"), (60, "1 minute ago"), (7200, "2 hours ago"), (86_400 * 3 + 5, "3 days ago")],
)
def test_ages_are_in_the_largest_unit(seconds: int, told: str) -> None:
    then = datetime(2026, 2, 3, tzinfo=UTC)
    assert ago(then, then + timedelta(seconds=seconds)) == told


@pytest.mark.parametrize(
    "error",
    [
        duckdb.InvalidInputException("Python exception occurred while executing the UDF: KeyboardInterrupt: \n\nAt:\n x"),
        duckdb.InterruptException("INTERRUPT Error: Interrupted!"),
        RuntimeError("Query interrupted"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_each_way_in_which_ctrl_c_comes_is_told_alike(
    engine: Engine, capsys: Captured, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def pressed(*_: object) -> None:
        raise error

    monkeypatch.setattr(Engine, "execute", pressed)
    assert not engine.run("SELECT 1;")
    assert capsys.readouterr().err.splitlines() == ["", INTERRUPTED]


def test_answers_stand_beside_their_errors(engine: Engine, capsys: Captured) -> None:
    assert engine.run(
        "SELECT 'f' AS sex, 5102.3427 AS n, 10.67 AS n_stddev, 5081.42 AS n_ci_low, 5123.26 AS n_ci_high;"
    )
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()[1:4:2]] == [["sex", "n"], ["f", "5,102", "±", "21"]]
    assert "± is half of the 95 % interval" in out
    engine.mode = "csv"
    assert engine.run("SELECT 5102.3427 AS n, 10.67 AS n_stddev, 5081.42 AS n_ci_low, 5123.26 AS n_ci_high;")
    assert capsys.readouterr().out == "n,n_stddev,n_ci_low,n_ci_high\n5102.3427,10.67,5081.42,5123.26\n"


def test_a_wide_result_is_folded_and_its_first_column_repeated(
    engine: Engine, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert engine.run(
        "SELECT 'row' AS label, COLUMNS(*) FROM (SELECT " + ", ".join(f"{i} AS column_{i}" for i in range(9)) + ");"
    )
    out = capsys.readouterr().out
    assert all(f"column_{i}" in out for i in range(9))
    assert out.count("label") == 3
    assert "do not fit" not in out
    assert max(map(len, out.splitlines())) <= 60


def test_a_folded_result_says_of_which_table_each_row_is(capsys: Captured) -> None:
    months = [f"visits_2026_0{i}" for i in range(1, 5)]
    for names, row in (
        (["catalog", "schema", "dataset"], ["memory", "main"]),
        (["release", "name", "catalog", "schema", "dataset"], [1, "first", "memory", "main"]),
    ):
        more = [f"a_long_number_{i}" for i in range(6)]
        print_folded(
            console(), [*names, *more], [[*row, month, *(j + i for j in range(6))] for i, month in enumerate(months)]
        )
        out = capsys.readouterr().out
        assert out.count(months[0]) == out.count("dataset") >= 2
        assert all(name in out for name in more)
        assert out.count("memory") == 4


def test_what_is_the_same_in_every_row_of_a_folded_result_is_told_once(capsys: Captured) -> None:
    names = ["marginal", *(f"a_long_number_{i}" for i in range(6)), "note", "last"]
    rows: list[list[Any]] = [[text, *range(6), "all of it " * 9, text * 2] for text in ("first", "second")]
    assert print_folded(console(), names, rows) == []
    out = capsys.readouterr().out
    assert [
        out.count(word) for word in ("in every row", "marginal", "secondsecond", "a_long_number_0", "a_long_number_5")
    ] == [1, 2, 1, 1, 1]
    assert out.count("all of it") == 9  # one text
    assert print_folded(console(), names, rows[:1]) == []
    assert "in every row" not in capsys.readouterr().out


def test_what_does_not_fit_beside_its_labels_is_shown_cut(capsys: Captured) -> None:
    rows = [[number, "t" * 35, f"{'x' * 999}{number}"] for number in (1, 2)]
    assert print_folded(console(), ["release", "dataset", "request"], rows) == []
    out = capsys.readouterr().out
    assert [out.count("dataset"), out.count("xxx…")] == [2, 2]


def test_lists_are_written_as_sql_writes_them() -> None:
    assert text([None, 2.8284271247461903, 1234.5, "a"]) == "[NULL, 2.82843, 1234.5, a]"
    assert text({"low": 1.23456789, "high": None}) == "{'low': 1.23457, 'high': NULL}"


KEPT = "of each unit at most {} count (max_rows): further ones are left out, and no interval covers that"


@pytest.mark.parametrize(
    ("protect", "ask", "said"),
    [
        ("'v', unit := 'who', max_rows := 3", "FROM dp_marginals('v', ['k'], epsilon := 1)", "3 rows"),
        ("'v', unit := 'who', max_rows := 3", "FROM dp_sql('SELECT avg(x) AS m FROM v', epsilon := 1)", "3 rows"),
        ("'v', unit := 'who', max_rows := 1", "FROM dp_sql('SELECT count(*) AS n FROM v', epsilon := 1)", "1 row"),
        (
            "'v', unit := 'who', max_rows := 1",
            "FROM dp_sql('SELECT count(*) AS n FROM v', max_rows := 5, epsilon := 1)",
            "5 rows",
        ),
        (
            "'v', unit := 'who', max_rows := 1",
            "FROM dp_sql('SELECT count(*) AS n FROM v', max_rows := 'auto', epsilon := 1)",
            None,
        ),
        ("'v', unit := 'id', max_rows := 1", "FROM dp_sql('SELECT count(*) AS n FROM v', epsilon := 1)", None),
        ("'v'", "FROM dp_marginals('v', ['k'], epsilon := 1)", None),
    ],
)
def test_which_rows_of_a_unit_count_is_said(
    folder: Path, capsys: Captured, protect: str, ask: str, said: str | None
) -> None:
    """Of new answers and of stored ones; an interval covers the noise alone. Of rows with a key of their unit there is no other."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE v (id INTEGER PRIMARY KEY, who INTEGER, k INTEGER, x INTEGER)")
        con.execute("INSERT INTO v SELECT i, i // 4, i % 3, i % 10 FROM range(400) t(i)")
        duckdb_dp.load(con, folder, progress=False)
        con.execute(f"CALL dp_protect({protect}, epsilon := 30, delta := 1e-9)")
        con.execute("CALL dp_attributes('v', {'k': [0, 1, 2]})")
        con.execute("CALL dp_attribute('v', 'x', low := 0, high := 9)")
        engine = Engine(con=con)
        for _ in range(2):
            assert engine.run(ask)
            out = capsys.readouterr().out
            assert ("of each unit" in out) == (said is not None)
            assert said is None or KEPT.format(said) in out
        assert engine.run("FROM dp_budget()")
        assert "of each unit" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("statement", "said", "unsaid"),
    [
        ("FROM dp_sql('SELECT count(*) AS n FROM v', epsilon := 1)", "rows whose who is NULL are in no answer", "cut off"),
        ("FROM dp_sql('SELECT count(*) AS n FROM keyed', epsilon := 1)", "n", "is NULL"),
        ("FROM dp_sql('SELECT sum(x) AS s FROM v', epsilon := 9)", "values count as at least", "bounds were chosen"),
        ("SELECT s, stddev FROM dp_sql('SELECT sum(x) AS s FROM v', epsilon := 9)", "bounds were chosen by a part", "count as"),
        ("FROM dp_sql('SELECT sum(y) AS s FROM v', epsilon := 1)", "values of y beyond 0 to 9 count as", "bounds were chosen"),
        ("FROM dp_sql('SELECT sum(y) AS s FROM v WHERE y BETWEEN 2 AND 5', epsilon := 1)", "s", "count as these bounds"),
        ("FROM dp_sql('SELECT sum(x) AS s FROM v WHERE x BETWEEN 0 AND 5', epsilon := 1)", "s", "count as these bounds"),
        ("FROM dp_running('v', [], start := '2024-01-01', horizon := 9, epsilon := 1)", "of each unit at most 4 rows count", "cut"),
    ],
)  # fmt: skip
def test_what_no_answer_holds_is_said(folder: Path, capsys: Captured, statement: str, said: str, unsaid: str) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE v AS SELECT i // 4 AS who, i % 50 AS x, i % 10 AS y, DATE '2024-01-01' + (i % 9)::INTEGER AS day FROM range(400) t(i)"
        )
        con.execute(
            "CREATE TABLE keyed (id INTEGER PRIMARY KEY, z INTEGER); INSERT INTO keyed SELECT i, i % 3 FROM range(400) t(i)"
        )
        duckdb_dp.load(con, folder, progress=False)
        con.execute("CALL dp_protect('v', unit := 'who', max_rows := 4, epsilon := 90, delta := 1e-9)")
        con.execute("CALL dp_protect('keyed', unit := 'id', max_rows := 1, epsilon := 90, delta := 1e-9)")
        con.execute("CALL dp_attribute('v', 'y', low := 0, high := 9)")
        assert Engine(con=con).run(statement)
        out = capsys.readouterr().out
    assert said in out
    assert unsaid not in out


def test_an_error_after_answers_says_where_they_are(engine: Engine, capsys: Captured) -> None:
    asked = "FROM dp_sql('SELECT sex, count(*) AS n FROM people GROUP BY sex', mu := 1)"
    assert not engine.run(f"SELECT n::TINYINT FROM {asked.removeprefix('FROM ')}")
    assert "the answers that were drawn are kept, and read at no cost: FROM dp_release(1)" in capsys.readouterr().err
    assert not engine.run("FROM gone")
    assert "dp_release" not in capsys.readouterr().err


def test_tables_of_one_dataset_have_its_budget(folder: Path, capsys: Captured) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE par (pid INTEGER PRIMARY KEY); CREATE TABLE child (pid INTEGER REFERENCES par (pid)); CREATE TABLE free (a INTEGER)"
        )
        con.execute("CREATE SCHEMA syn; CREATE TABLE syn.child (pid INTEGER)")
        duckdb_dp.load(con, folder, progress=False)
        engine = Engine(con=con, mode="csv")
        assert engine.run(".tables")
        con.execute("CALL dp_protect(['par', 'child'], unit := 'par.pid', epsilon := 50, delta := 1e-7)").fetchall()
        capsys.readouterr()
        assert engine.run(".tables")
        rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert [(row[0], row[2]) for row in rows[1:]] == [
        ("child", "50.0"),
        ("free", ""),
        ("par", "50.0"),
        ("syn.child", ""),
    ]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            ".explain FROM dp_discover('people', 'sex', mu := 1)",
            "dp_discover costs the budget that it names, and which values",
        ),
        (".explain FROM dp_running('people', mu := 1)", "dp_running costs the budget that it names"),
        (".explain SELECT 1", "no call of dp_marginals, dp_queries, dp_quantiles or dp_sql"),
    ],
)
def test_what_is_not_explained_says_what_is_known(engine: Engine, capsys: Captured, statement: str, says: str) -> None:
    assert not engine.run(statement)
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "call",
    [
        "dp_quantiles('people', 'age', [0.5], mu := 1)",
        "dp_quantiles('people', 'age', 0.5, ['sex'], mu := 1)",
        "dp_marginals('people', ['age'], mu := 1, columns := 'short')",
        "dp_sql('SELECT count(*) AS n FROM people', mu := 1, columns := 'short')",
    ],
)
def test_every_call_of_answers_is_explained(engine: Engine, capsys: Captured, call: str) -> None:
    assert engine.run(f".explain FROM {call}"), capsys.readouterr().err


def test_rows_that_noisy_answers_pick_are_said_to_be(folder: Path, capsys: Captured) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE v AS SELECT i % 3 AS k FROM range(400) t(i)")
        duckdb_dp.load(con, folder, progress=False)
        con.execute("CALL dp_protect('v', epsilon := 30, delta := 1e-9)")
        engine = Engine(con=con)
        asked = "FROM dp_sql('SELECT k, count(*) AS n FROM v WHERE k IN (0, 1, 2) GROUP BY k{}', epsilon := 1)"
        for end, picks in (("", False), (" ORDER BY n DESC LIMIT 1", True), (" ORDER BY k LIMIT 1", False)):
            assert engine.run(asked.format(end))  # planned over cells
            assert capsys.readouterr().out.count("rows are picked by noisy answers") == picks


@pytest.mark.parametrize(
    ("end", "picks"), [("HAVING sum(x) > 1", 1), ("ORDER BY s LIMIT 2", 1), ("ORDER BY k LIMIT 2", 0), ("", 0)]
)
def test_stored_rows_that_noisy_answers_picked_are_said_to_be(
    folder: Path, capsys: Captured, end: str, picks: int
) -> None:
    """Once, with the statement and where the release is read; and in its report."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE v AS SELECT i % 3 AS k, i % 10 AS x FROM range(400) t(i)")
        duckdb_dp.load(con, folder, progress=False)
        con.execute("CALL dp_protect('v', epsilon := 30, delta := 1e-9)")
        engine = Engine(con=con)
        select = f"SELECT k, sum(x) AS s FROM v WHERE k IN (0, 1, 2) AND x BETWEEN 0 AND 9 GROUP BY k {end}"
        for statement in (f"FROM dp_sql('{select}', epsilon := 1, release := 'r')", "FROM dp_release('r')"):
            assert engine.run(statement)
            assert capsys.readouterr().out.count("rows are picked by noisy answers") == picks
        html = duckdb_dp.report(con, "r").html
        assert ("Rows were picked by noisy answers" in html) == bool(picks)
        assert ("Every cell of the declared domain has an answer" in html) == (end == "")


def test_which_columns_synthetic_rows_do_not_have_is_said(folder: Path, capsys: Captured) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE v (id INTEGER PRIMARY KEY, who INTEGER, k INTEGER, x INTEGER, note VARCHAR)")
        con.execute("INSERT INTO v SELECT i, i // 4, i % 3, i % 10, 'n' FROM range(400) t(i)")
        duckdb_dp.load(con, folder, progress=False)
        con.execute("CALL dp_protect('v', unit := 'who', max_rows := 4, epsilon := 30, delta := 1e-9)")
        con.execute("CALL dp_attributes('v', {'k': [0, 1, 2], 'x': [0, 5, 10]})")
        engine = Engine(con=con)
        said = "not in the rows, as the request does not name them or nobody has declared them: {}\n"
        assert engine.run("FROM dp_synthesize('v', epsilon := 1)")
        assert said.format("id, note") in capsys.readouterr().out
        assert engine.run("CREATE TABLE w AS FROM dp_synthesize('v', attributes := ['k'], epsilon := 1)")
        assert said.format("id, x, note") in capsys.readouterr().out
        assert engine.run("FROM dp_marginals('v', ['k'], epsilon := 1)")
        assert "not in the rows" not in capsys.readouterr().out


def test_which_rows_are_in_no_answer_is_said(folder: Path, capsys: Captured) -> None:
    """One SELECT, and a list, have all rows of SQL; several marginals, and counts of dp_queries, have none with a value that is not declared."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE v AS SELECT i % 3 AS k, i % 2 AS x, i % 2 = 0 AS b FROM range(400) t(i)")
        duckdb_dp.load(con, folder, progress=False)
        con.execute("CALL dp_protect('v', epsilon := 30, delta := 1e-9)")
        con.execute("CALL dp_attributes('v', {'k': [0, 1], 'x': [0, 1]})")
        con.execute("CALL dp_attribute('v', 'b', nulls := true)")
        engine = Engine(con=con)
        both = "['SELECT count(*) AS n FROM v', 'SELECT k, count(*) AS n FROM v GROUP BY k']"
        for ask, left in {
            "FROM dp_marginals('v', ['k'], epsilon := 1)": None,
            "FROM dp_marginals('v', [[], ['b']], epsilon := 1)": None,
            "FROM dp_marginals('v', [['k'], ['k', 'x'], ['x', 'b']], epsilon := 1)": "k or x",
            "FROM dp_queries('v', [{'k': 'identity'}, {'x': 'identity'}], epsilon := 1)": "k or x",
            f"FROM dp_sql({both}, epsilon := 1)": None,
            "FROM dp_sql('SELECT k, x, count(*) AS n FROM v GROUP BY CUBE (k, x)', epsilon := 1)": None,
        }.items():
            assert engine.run(ask)
            out = capsys.readouterr().out
            assert ("in none of these answers" in out) == (left is not None), ask
            assert left is None or f"value of {left} is NULL or not declared" in out


def test_notes_say_of_each_attribute_what_has_no_cell_and_what_other_stands_for(folder: Path, capsys: Captured) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE v AS SELECT i AS id, i % 3 AS k, i % 2 AS x, i % 2 = 0 AS b, 'c' || i % 4 AS city, i % 5 AS size "
            "FROM range(4000) t(i)"
        )
        duckdb_dp.load(con, folder, progress=False)
        con.execute(
            "CALL dp_protect('v', unit := 'id', max_rows := 1, epsilon := 90, delta := 1e-9, discovery_delta := 1e-10)"
        )
        con.execute("CALL dp_attributes('v', {'k': [0, 1, NULL], 'x': [0, 1], 'b': {'nulls': false}})")
        engine = Engine(con=con)
        none, group = "are in none of these answers\n", "are in no group\n"
        for ask, said in {
            "FROM dp_marginals('v', [['k'], ['x']], epsilon := 1)": [
                f"rows whose value of k is not declared, or whose value of x is NULL or not declared {none}"
            ],
            "FROM dp_marginals('v', [['k'], ['b']], epsilon := 1)": [
                f"rows whose value of k is not declared, or whose value of b is NULL {none}"
            ],
            "FROM dp_sql('SELECT k, x, count(*) AS n FROM v GROUP BY k, x', epsilon := 1)": [
                f"rows whose k is not declared, or whose x is NULL or not declared {group}"
            ],
            "FROM dp_sql('SELECT city, count(*) AS n FROM v GROUP BY city', epsilon := 1)": [
                "'other' in city stands for all other values, and NULL\n"
            ],
            "FROM dp_sql('SELECT city AS c, size, count(*) AS n FROM v GROUP BY ALL', epsilon := 2)": [
                "'other' in c stands for all other values, and NULL\n",
                "NULL in size stands for all values that were not found, and NULL\n",
            ],
        }.items():
            assert engine.run(ask)
            out = capsys.readouterr().out
            assert all(line in out for line in said), out
            assert out.count(" stands for ") == sum("stands" in line for line in said)


def test_what_was_drawn_at_one_time_is_said_once(folder: Path, capsys: Captured) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE v AS SELECT i % 3 AS k, i % 2 AS x FROM range(400) t(i)")
        duckdb_dp.load(con, folder, progress=False)
        con.execute("CALL dp_protect('v', epsilon := 30, delta := 1e-9)")
        con.execute("CALL dp_attributes('v', {'k': [0, 1, 2], 'x': [0, 1]})")
        engine = Engine(con=con)
        both = " UNION ALL ".join(
            f"(SELECT count FROM dp_marginals('v', ['{name}'], epsilon := 1))" for name in ("k", "x")
        )
        assert engine.run(both)
        capsys.readouterr()
        assert engine.run(both)
        assert capsys.readouterr().out.count("drawn ") == 1
