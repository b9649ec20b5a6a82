"""The prompt as a person uses it, and as a program of a pipe."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from duckdb_dp.errors import DPError
from duckdb_dp.shell import prompt
from duckdb_dp.shell.engine import Engine

COMMAND = [sys.executable, "-W", "error", str(Path(__file__).parents[2] / "command.py"), "shell"]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PipeInput]:
    """A terminal that types, and a history of its own."""
    monkeypatch.setenv("DUCKDB_DP_HISTORY", str(tmp_path / "state" / "history"))
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        yield typed


def test_statements_may_span_lines_and_are_remembered(
    keys: PipeInput, db: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys.send_text("SELECT 1\r+ 41 AS answer;\r")
    keys.send_text("SELECT broken;\r")
    keys.send_text("\r.mode csv\r")
    keys.send_text("SELECT 'still; here' AS x;\r.quit\r")
    assert prompt._talk(Engine(con=db.connection)) == 0
    captured = capsys.readouterr()
    assert "42" in captured.out
    assert captured.err.startswith("Binder Error")
    assert captured.out.endswith("x\nstill; here\n")
    history = tmp_path / "state" / "history"
    assert "+ 41 AS answer;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_tab_completes_with_names_as_they_are_now(db: Any) -> None:
    engine = Engine(con=db.connection)
    completer = prompt._completer(engine)

    def offered(text: str) -> list[tuple[str, int]]:
        found = completer.get_completions(Document(text), CompleteEvent())
        return [(completion.text, completion.start_position) for completion in found]

    assert offered("SELECT 1; FROM peop") == [("people", -4)]
    assert offered("FROM brandn") == []
    assert engine.run("CREATE TABLE brandnew AS SELECT 1 AS a;")
    assert offered("FROM brandn") == [("brandnew", -6)]


def test_ctrl_c_clears_the_line_and_ctrl_d_leaves(keys: PipeInput, db: Any, capsys: pytest.CaptureFixture[str]) -> None:
    keys.send_text("SELECT 'never'; \x03\x04")
    assert prompt._talk(Engine(con=db.connection)) == 0
    assert "never" not in capsys.readouterr().out


def piped(script: str, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    root = Path(prompt.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(
        [*COMMAND, *arguments], input=script, capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )


@pytest.mark.slow
def test_a_pipe_is_plain_and_its_errors_are_exit_codes(tmp_path: Path) -> None:
    script = """
    CREATE TABLE people AS SELECT i AS id, i % 2 = 0 AS even FROM range(100) t(i);
    CALL dp_protect('people', epsilon := 3, delta := 1e-9);
    CALL dp_attributes('people');
    .mode csv
    FROM dp_marginals('people', ['even'], epsilon := 1, release := 'first');
    FROM dp_marginals('people', ['even'], epsilon := 5);
    SELECT 'not reached';
    """
    done = piped(script, "my.duckdb", cwd=tmp_path)
    assert done.returncode == 1
    assert "even,count,stddev,ci_low,ci_high" in done.stdout
    assert "not reached" not in done.stdout
    assert "\x1b" not in done.stdout
    assert re.fullmatch(r"dp_marginals: [^\n]+\n", done.stderr)
    again = piped("SELECT count(*) AS n FROM dp_release('first')", "my.duckdb", "--json", "--read-only", cwd=tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, '{"n": 3}\n', "")
    assert {path.name for path in tmp_path.iterdir()} == {"my.duckdb", "my.duckdb.dp"}


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["SELECT count(*) FROM range(1000000000000) r(i) WHERE hash(i) % 7 = 3"])
def test_ctrl_c_ends_a_statement(tmp_path: Path, statement: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(prompt.__file__).parents[2])}
    for _ in range(3):  # whichever of DuckDB's threads works
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(COMMAND, **pipes, text=True, cwd=tmp_path, env=environment) as shell:
            try:
                shell.stdin.write(f"SELECT 'ready';\n{statement};\nSELECT 'not reached';\n")
                shell.stdin.close()
                while "ready" not in shell.stdout.readline():
                    pass
                time.sleep(0.5)
                shell.send_signal(signal.SIGINT)
                shell.wait(60)
            finally:
                shell.kill()
            assert shell.returncode == 1
            assert "not reached" not in shell.stdout.read()
            assert re.fullmatch(r"\s*interrupted; what was charged stays charged[^\n]+\n", shell.stderr.read())


WORDS = [
    "exit", "quit", "help", r"\d", r"\dt", r"\q", r"\?", "exit;", "QUIT ;", r"\d;", ".quit", ".help", ".tables", "help;",
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_words_of_other_prompts_act_at_once(
    word: str, keys: PipeInput, db: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    keys.send_text(f"{word}\r.quit\r")
    assert prompt._talk(Engine(con=db.connection)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    said = {"h": "Commands:", "?": "Commands:", "d": "people", "t": "people"}.get(word.lower().strip("\\.")[0], "")
    assert (said in captured.out) if said else (captured.out == "")


def test_such_words_in_sql_are_sql(keys: PipeInput, db: Any, capsys: pytest.CaptureFixture[str]) -> None:
    keys.send_text('SELECT 1 AS\rhelp;\rSELECT "exit" FROM (SELECT 7 AS exit);\r.quit\r')
    assert prompt._talk(Engine(con=db.connection)) == 0
    captured = capsys.readouterr()
    assert ("help" in captured.out, "7" in captured.out, captured.err) == (True, True, "")


def test_in_memory_needs_a_database_to_be_read_only() -> None:
    with pytest.raises(DPError, match="needs a database"):
        prompt.run(None, ledger=None, mode="box", read_only=True)


def test_without_a_home_there_is_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DUCKDB_DP_HISTORY", str(tmp_path / "file" / "history"))
    assert prompt.history_file() == Path(os.devnull)
    monkeypatch.delenv("DUCKDB_DP_HISTORY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert prompt.history_file() == tmp_path / "state" / "duckdb_dp" / "history"


def test_without_prompt_toolkit_there_is_still_a_prompt(
    db: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(["SELECT 40", "+ 2 AS x;", ".quit"])
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.setattr("builtins.input", lambda shown: next(typed))
    assert prompt._talk(Engine(con=db.connection)) == 0
    assert "42" in capsys.readouterr().out


def test_it_starts_without_what_takes_long(tmp_path: Path) -> None:
    """From the command to the prompt is a matter of imports: 0.9 s with these left out, 1.3 s with scipy alone."""
    slow = ("cvxpy", "jinja2", "matplotlib", "pandas", "scipy", "sqlglot", "torch", "tqdm")
    script = f"import sys; from duckdb_dp.cli import main; main(); print([m for m in {slow} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", script, "shell", tmp_path / "new.duckdb"],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout, found.stderr) == ("[]\n", "")
