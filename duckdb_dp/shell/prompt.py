"""The prompt: history, completion and colours on a terminal; plain statements from a pipe."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb_dp
from duckdb_dp import DPError
from duckdb_dp.shell.commands import Leave, meant
from duckdb_dp.shell.engine import PIPED, Engine
from duckdb_dp.shell.statements import is_open, split

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer

PROMPT, CONTINUED = "dp> ", "... "


def run(database: str | None, *, ledger: str | None, mode: str, read_only: bool) -> int:
    """Open a database and run what is typed, or what comes from a pipe; the exit code.

    Args:
        database: a file; in memory without one.
        ledger: its folder; beside the file by default.
        mode: how results are printed.
        read_only: open the file without the right to change it.
    """
    import duckdb

    interactive = sys.stdin.isatty()
    if read_only and database is None:
        raise DPError("shell: --read-only needs a database.")
    with duckdb.connect(database or ":memory:", read_only=read_only) as con:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said below, in the shell's own words
            duckdb_dp.load(con, ledger, progress=interactive)
        # DuckDB's own choice would be by how Python was started.
        con.execute(f"SET enable_progress_bar = {interactive and sys.stdout.isatty()}")
        engine = Engine(con=con, mode=mode)
        if not sys.stdout.isatty():
            engine.rows = PIPED
        if interactive:
            _greet(database, ledger)
            return _talk(engine)
        try:
            return 0 if engine.feed(sys.stdin) else 1
        except Leave:
            return int(engine.failed)


def _greet(database: str | None, ledger: str | None) -> None:
    import duckdb

    where = database or "a database in memory"
    sys.stdout.write(f"duckdb_dp {duckdb_dp.__version__} with DuckDB {duckdb.__version__} on {where}\n")
    if database is None and ledger is None:
        sys.stdout.write("What is spent here is forgotten at the end. To keep it: duckdb-dp shell my.duckdb\n")
    sys.stdout.write("Statements end with ';'. Tab completes, .help helps, .quit leaves.\n")


def _talk(engine: Engine) -> int:
    """Prompt until the user leaves. Errors were shown when they came, so leaving is no failure."""
    ask = _prompt(engine)
    while True:
        try:
            text = ask()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        if not text.strip():
            continue
        try:
            engine.run(text)
        except Leave:
            return 0


def _prompt(engine: Engine) -> Any:
    """A function that asks for the next statement; the terminal's own line editing without prompt_toolkit."""
    try:
        session = _session(engine)
    except ImportError:
        return _plain
    return lambda: session.prompt()


def _plain() -> str:
    text = input(PROMPT)
    while not _is_complete(text):
        text += "\n" + input(CONTINUED)
    return text


def _session(engine: Engine) -> "PromptSession[str]":
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer

    # Enter ends a complete statement and begins a new line in any other.
    unfinished = Condition(lambda: not _is_complete(get_app().current_buffer.text))
    return PromptSession(
        PROMPT,
        history=FileHistory(str(history_file())),
        completer=_completer(engine),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        multiline=unfinished,
        prompt_continuation=CONTINUED,
        enable_open_in_editor=True,
        enable_history_search=True,
    )


def _is_complete(text: str) -> bool:
    if not text.strip() or meant(text):
        return True
    return not is_open(text) and not split(text)[1]


def history_file() -> Path:
    """Where statements are remembered: ``$DUCKDB_DP_HISTORY``, or a file in the user's state folder."""
    if named := os.environ.get("DUCKDB_DP_HISTORY"):
        path = Path(named)
    else:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        path = state / "duckdb_dp" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return Path(os.devnull)
    return path


def _completer(engine: Engine) -> "Completer":
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    from duckdb_dp.shell.complete import Names, complete, names_of

    class Sql(Completer):
        """Reads the names when they are first needed after a statement."""

        def __init__(self) -> None:
            self._names: Names | None = None
            engine.changed = self._forget

        def _forget(self) -> None:
            self._names = None

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            if self._names is None:
                self._names = _names(engine.con)
            _, statement = split(document.text_before_cursor)
            for found in complete(statement, self._names):
                yield Completion(found.text, start_position=-found.replaces, display_meta=found.meta)

    def _names(con: "DuckDBPyConnection") -> Names:
        import duckdb

        try:
            return names_of(con)
        except duckdb.Error:
            return Names()

    return Sql()
