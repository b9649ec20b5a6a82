"""The command duckdb-dp: what it prints, and how it fails."""

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import duckdb_dp
from duckdb_dp import cli, demo

TITLES = ["1. Declare", "2. Plan", "3. Ask", "4. A picture", "5. Ask the same again", "6. The ledger"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo that ran once."""
    return tmp_path_factory.mktemp("demo") / "new" / "folder"


@pytest.fixture(scope="module")
def first(folder: Path) -> str:
    """What the first run of the demo printed, as a process of its own."""
    command = [sys.executable, str(Path(__file__).parents[1] / "command.py")]
    done = subprocess.run([*command, "demo", "--out", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no warning, no 'nanobind: leaked'
    return done.stdout


@pytest.mark.slow
def test_the_demo_tells_its_story_in_order(first: str, folder: Path) -> None:
    places = [first.index(title) for title in TITLES]
    assert places == sorted(places)
    assert "CALL dp_protect('adult', epsilon := 3, delta := 1e-9);" in first
    assert first.count(" x ") >= 15  # the plan's marginals
    assert "charged once" in first
    assert "823 answers" in first
    assert "the same. New charges: 0" in first
    assert "NOT PRIVATE" in first
    assert str(folder / "adult.png") in first


def test_the_demo_keeps_what_it_made(first: str, folder: Path) -> None:
    assert (folder / "adult.duckdb").is_file()
    assert (folder / "adult.duckdb.dp" / "ledger.sqlite").is_file()
    assert (folder / "adult.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_demo_in_the_same_folder_is_free(first: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--out", str(folder)]) == 0
    assert "charged by an earlier run, so free" in capsys.readouterr().out


def test_ledger_and_budget_are_shown(first: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for database in (folder / "adult.duckdb", folder / "adult.duckdb.dp"):
        assert cli.main(["ledger", str(database)]) == 0
        assert "residual" in capsys.readouterr().out
        assert cli.main(["budget", str(database)]) == 0
        assert "add or remove one row" in capsys.readouterr().out


def test_an_empty_ledger_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect(tmp_path / "x.duckdb") as con:
        duckdb_dp.load(con)
    assert cli.main(["ledger", str(tmp_path / "x.duckdb")]) == 0
    assert cli.main(["budget", str(tmp_path / "x.duckdb")]) == 0
    assert capsys.readouterr().out == "nothing was charged yet\nnothing is protected yet\n"


@pytest.mark.parametrize("command", ["ledger", "budget", "releases"])
def test_no_ledger_is_an_error_of_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, str(tmp_path / "nothing.duckdb")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("duckdb-dp: there is no ledger")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_errors_of_duckdb_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "adult.duckdb").write_text("not a database, though long enough to look at " * 100)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("duckdb-dp: ")
    assert said.count("\n") == 1


def test_a_dataset_declared_otherwise_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect(tmp_path / "adult.duckdb") as con:
        duckdb_dp.load(con)
        con.execute("CREATE TABLE adult AS SELECT 1 AS age")
        con.execute("CALL dp_protect('adult', rho := 1)").fetchall()
    assert cli.main(["demo", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("duckdb-dp: dp_protect: ")
    assert said.count("\n") == 1


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    plain = capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    assert capsys.readouterr().out == plain
    for word in (
        "demo", "shell", "explain", "report", "ledger", "budget", "duckdb_dp.load(con)", "examples:", "exit codes:",
    ):  # fmt: skip
        assert word in plain
    assert max(map(len, plain.splitlines())) <= 100


@pytest.mark.parametrize("command", ["demo", "shell", "explain", "ledger", "budget", "releases", "report"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    assert command in capsys.readouterr().out


def test_numbers_are_rounded_for_people_and_whole_for_programs(
    first: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(folder / "adult.duckdb")
    for command, key in (("ledger", "epsilon"), ("budget", "epsilon_spent"), ("releases", "epsilon")):
        assert cli.main([command, database]) == 0
        shown = capsys.readouterr().out
        assert " 0.5 " in shown
        assert "0.4999" not in shown
        assert "1e-9" in shown
        assert cli.main([command, database, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert row[key] == pytest.approx(0.5)
        assert len(row) > 10


@pytest.mark.parametrize(
    "question",
    [
        ("all 2-way", "--epsilon", "0.25"),
        ("FROM dp_marginals('adult', 'all 2-way', epsilon := 0.25, release := 'x')",),
        ("age, sex; income", "--rho", "0.01", "--mechanism", "gaussian"),
        ("SELECT sex, count(*) FROM adult GROUP BY sex", "--mu", "0.1"),
        ("{'age': 'range'}", "--target-stddev", "20", "--dataset", "adult"),
    ],
)
def test_plans_cost_nothing_and_open_no_data(
    first: str, folder: Path, question: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    database = folder / "adult.duckdb"
    with duckdb.connect(database):  # in use elsewhere
        assert cli.main(["explain", str(database), *question]) == 0
    shown = capsys.readouterr().out
    assert "cost: epsilon " in shown
    assert "certificate: " in shown
    assert cli.main(["explain", str(database), *question, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"marginal", "stddev", "epsilon", "gap"} <= set(rows[0])
    assert cli.main(["ledger", str(database), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (("age, sx", "--epsilon", "1"), "has no declared domain"),
        (("age",), "give a budget"),
        (("age", "--epsilon", "1", "--rho", "1"), "type exactly one"),
        (("age", "--epsilon", "1", "--dataset", "other"), "is not protected"),
        (("FROM dp_marginals('adult', ['age'])",), "no budget"),
    ],
)
def test_refused_plans_are_one_line(
    first: str, folder: Path, question: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", str(folder / "adult.duckdb"), *question]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("duckdb-dp: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


@pytest.mark.slow
def test_a_report_is_a_file_or_goes_to_a_pipe(
    first: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = folder / "adult.duckdb"
    monkeypatch.chdir(tmp_path)
    with duckdb.connect(database):  # in use elsewhere
        assert cli.main(["report", str(database), "demo"]) == 0
        assert capsys.readouterr().out == "demo.html\n"
        assert cli.main(["report", str(database), "1", "-o", "-"]) == 0
    assert (tmp_path / "demo.html").read_text() == capsys.readouterr().out
    assert cli.main(["report", str(database), "demo", "--postprocess", "nonnegative", "-o", "-"]) == 0
    assert "The answers were post-processed" in capsys.readouterr().out
    assert cli.main(["report", str(database), "nothing"]) == 1
    assert capsys.readouterr().err == "duckdb-dp: report: there is no release 'nothing'; the latest are: demo.\n"


def test_versions_and_unknown_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"duckdb-dp {duckdb_dp.__version__}\n"
    for arguments in (["frobnicate"], ["report", "x.duckdb"], ["explain", "x.duckdb", "age", "--epsilon", "much"]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(arguments)


def test_without_matplotlib_there_are_still_bars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "◆" in out
    assert not (tmp_path / "adult.png").exists()


def test_the_shipped_data_are_the_documented_ones() -> None:
    with duckdb.connect() as con:
        assert con.execute(f"SELECT count(*), count(workclass), max(age) FROM '{demo.DATA}'").fetchone() == (
            48842,
            46043,
            90,
        )
        columns = con.execute(f"SELECT column_type FROM (DESCRIBE FROM '{demo.DATA}')").fetchall()
    assert len(columns) == 15
    assert {type_ for (type_,) in columns} == {"INTEGER", "VARCHAR"}
    assert demo.DATA.stat().st_size < 1_000_000
    assert "CC BY 4.0" in demo.DATA.with_name("README.md").read_text()
