"""Runs statements and commands, and prints their results: the shell without its prompt."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckdb_dp import DPError
from duckdb_dp.reporting.readable import folded, note, number, reasons
from duckdb_dp.reporting.refusals import in_our_words
from duckdb_dp.shell import commands
from duckdb_dp.shell.commands import Failed, Leave
from duckdb_dp.shell.statements import is_open, split
from duckdb_dp.sql.install import shown, take_read, take_shown
from duckdb_dp.sql.stopping import INTERRUPTED, at_once
from duckdb_dp.terminal import UNLIMITED, ago, console, print_folded

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHOWN = 40
"""Rows of a result on a terminal."""

PIPED = 10_000
"""Rows of a table that is written to a file or a pipe; csv and json write all."""

BATCH = 10_000

AGES = 3
"""Stored answers of one statement whose age is told."""


@dataclass(slots=True, kw_only=True)
class Engine:
    """What a shell remembers between statements.

    Attributes:
        con: a connection with ``duckdb_dp`` loaded.
        mode: how results are printed, one of ``commands.MODES``.
        rows: most rows of a result in mode 'box' and 'line'.
        failed: whether a statement failed.
        reading: files whose lines are being run, one by a line of another.
        changed: called after each statement that may have changed what names there are.
    """

    con: "DuckDBPyConnection"
    mode: str = "box"
    rows: int = SHOWN
    failed: bool = False
    reading: list[Path] = field(default_factory=list)
    changed: Callable[[], None] = field(default=lambda: None)

    def run(self, text: str) -> bool:
        """Run a command or the statements of a text; whether all went well. An error is told, and ends the text.

        Raises:
            Leave: the command was to leave.
        """
        import duckdb

        try:
            with at_once(self.con.interrupt):
                if command := commands.meant(text):
                    commands.run(self, command)
                else:
                    complete, rest = split(text)
                    for statement in [*complete, *([rest] if rest else [])]:
                        self.execute(statement)
        except (KeyboardInterrupt, duckdb.InterruptException):
            return self._interrupted()
        except Leave:
            raise
        except Failed:
            return False
        except (DPError, duckdb.Error, OSError, UnicodeError) as error:
            if "executing the UDF: KeyboardInterrupt" in str(error):
                return self._interrupted()  # pressed in the moment before a function of ours could listen
            self.failed = True
            kept = ", ".join(f"FROM dp_release({number})" for number in shown(self.con))
            said = f"; the answers that were drawn are kept, and read at no cost: {kept}" if kept else ""
            sys.stderr.write(f"{told(error).rstrip('.') if said else told(error)}{said}\n")
            return False
        except RuntimeError as error:
            # DuckDB raises it for Ctrl-C while a statement runs.
            if "interrupt" not in str(error).lower():
                raise
            return self._interrupted()
        return True

    def _interrupted(self) -> bool:
        self.failed = True
        sys.stderr.write(f"\n{INTERRUPTED}\n")
        return False

    def execute(self, statement: str) -> None:
        """Run one statement and print its rows."""
        import duckdb

        take_read(self.con)
        take_shown(self.con)
        try:
            result = self.con.execute(statement)
        except (duckdb.BinderException, duckdb.ConversionException) as error:
            words = in_our_words(statement, str(error))
            raise DPError(words) if words else error from None
        names = [column[0] for column in result.description or ()]
        if names and not _only_counts(statement, names):
            self._show(names, result)
        elif names and self.mode in ("box", "line"):
            # One column, Count, with the number of changed rows; or Success, without a row.
            for (changed,) in result.fetchall():
                sys.stdout.write(f"{changed:,} {'row' if changed == 1 else 'rows'}\n")
        if self.mode in ("box", "line"):
            self._tell_bounds(statement, names)
            self._tell_ages()
        self.changed()

    def _tell_bounds(self, statement: str, names: Sequence[str]) -> None:
        """What answers leave out, and whether the statement picks rows by them."""
        from duckdb_dp.reporting.asked import left_out, unsaid  # for import time: the first answers bring these
        from duckdb_dp.reporting.picked import picked

        lines = [line for found in take_shown(self.con) for line in left_out(*found)]
        for line in unsaid([*lines, *picked(statement, names)], names):
            console(UNLIMITED).print(line, markup=False, style="dim")

    def _tell_ages(self) -> None:
        """How old answers are that were drawn before the statement: the table may have changed since."""
        out, now = console(UNLIMITED), datetime.now(UTC)
        times = [release.released_at or release.charged_at for release in take_read(self.con)[:AGES]]
        drawn = [datetime.fromisoformat(time).replace(tzinfo=UTC) for time in times]
        for said in dict.fromkeys(f"drawn {time:%Y-%m-%d %H:%M} UTC, {ago(time, now)}" for time in drawn):
            out.print(f"{said}; fresh := true draws anew and charges again", style="dim")

    def _show(self, names: Sequence[str], result: "DuckDBPyConnection") -> None:
        """Print a result as the mode says."""
        if self.mode == "csv":
            _write_csv(names, _batches(result))
        elif self.mode == "json":
            _write_json(names, _batches(result))
        else:
            rows = result.fetchmany(self.rows)
            if list(names) == ["explain_key", "explain_value"]:
                sys.stdout.writelines(f"{text}\n" for _, text in rows)
                return
            self._print(names, rows, more=len(result.fetchmany(1)) > 0)

    def _print(self, names: Sequence[str], rows: list[tuple[Any, ...]], *, more: bool) -> None:
        out = console(UNLIMITED)
        if self.mode == "line":
            widest = max(map(len, names))
            for row in rows:
                for name, value in zip(names, row, strict=True):
                    out.print(f"{name:>{widest}}  {_plain(value)}", markup=False, soft_wrap=True)
                out.print()
        else:
            shown, cells, right = folded(names, rows)
            hidden = print_folded(out, shown, cells, right=right)
            if len(shown) < len(names) and cells:
                said = [note(cells, right), f".mode line shows {_hidden(names, shown)} and every digit"]
                out.print("; ".join(filter(None, said)), markup=False, style="dim")
            for reason in reasons(names, rows):
                out.print(reason, markup=False, style="dim")
            if hidden:
                left_out = f"{len(hidden)} more columns do not fit: {', '.join(hidden)}"
                out.print(f"{left_out} (.mode line shows them)", markup=False)
        if more:
            out.print(f"The first {len(rows):,} rows; .rows N shows more, .mode csv all.", markup=False)

    def feed(self, lines: Iterable[str]) -> bool:
        """Run lines as they come, as from a pipe: up to the first error; whether all went well."""
        pending = ""
        for line in lines:
            if not pending.strip() and commands.meant(line):
                if not self.run(line):
                    return False
                continue
            pending += line
            if ";" in line and not is_open(pending):
                complete, pending = split(pending)
                if not all(self.run(statement) for statement in complete):
                    return False
        return self.run(pending) if split(pending)[1] else True


def told(error: Exception) -> str:
    """What went wrong, in one line; a statement that DuckDB does not understand with its candidates and the place."""
    import duckdb

    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or type(error).__name__}"
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    unclear = isinstance(error, duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException)
    return "\n".join(lines if unclear else lines[:1]).removeprefix("Invalid Input Error: ")


def _hidden(names: Sequence[str], shown: Sequence[str]) -> str:
    """The first columns that are shown beside an answer, or not at all."""
    return ", ".join([name for name in names if name not in shown][:3])


def _batches(result: "DuckDBPyConnection") -> Iterable[list[tuple[Any, ...]]]:
    while rows := result.fetchmany(BATCH):
        yield rows


def _write_csv(names: Sequence[str], batches: Iterable[list[tuple[Any, ...]]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for rows in batches:
        writer.writerows(["" if value is None else _csv(value) for value in row] for row in rows)


def _write_json(names: Sequence[str], batches: Iterable[list[tuple[Any, ...]]]) -> None:
    """One object per line."""
    for rows in batches:
        for row in rows:
            sys.stdout.write(json.dumps(dict(zip(names, row, strict=True)), default=str, ensure_ascii=False) + "\n")


def _csv(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return "NULL" if value is None else _csv(str(value) if not isinstance(value, bool) else value)


def _only_counts(statement: str, names: Sequence[str]) -> bool:
    """Whether all that a statement returns is the number of rows that it changed, or that it worked."""
    import duckdb

    if list(names) not in (["Count"], ["Success"]):
        return False
    try:
        parsed = duckdb.extract_statements(statement)
    except (duckdb.Error, ValueError):
        return False
    plain = {duckdb.ExpectedResultType.QUERY_RESULT}
    return any(set(found.expected_result_type) != plain for found in parsed)
