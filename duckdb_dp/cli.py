"""The command ``duckdb-dp``: a SQL prompt, plans, budgets and reports of a database, and a demo."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckdb_dp import DPError, __version__
from duckdb_dp.gateway import command
from duckdb_dp.reporting.readable import number
from duckdb_dp.shell.commands import MODES
from duckdb_dp.terminal import UNLIMITED, Rows, console, print_result, print_table

if TYPE_CHECKING:
    from duckdb_dp.accounting.ledger import Ledger

DESCRIPTION = """\
Differentially private statistics from SQL, inside DuckDB.

First time:   duckdb-dp demo             the whole way on public data, step by step
Then:         duckdb-dp shell my.duckdb  a SQL prompt with the dp_ functions; .help there
In Python:    con = duckdb.connect("my.duckdb"); duckdb_dp.load(con)
"""

EPILOG = """\
examples:
  duckdb-dp shell census.duckdb
      CREATE TABLE people AS FROM 'people.csv';
      CALL dp_protect('people', epsilon := 3, delta := 1e-9);
      CALL dp_attribute('people', 'age', bins := [0, 18, 65, 120]);
      FROM dp_marginals('people', ['age'], epsilon := 0.5, release := 'ages');
  duckdb-dp shell census.duckdb < release.sql      the same from a file, up to the first error
  duckdb-dp explain census.duckdb "all 2-way" --epsilon 0.5
  duckdb-dp report census.duckdb ages -o ages.html
  duckdb-dp budget census.duckdb                   what is spent, and what is left
  duckdb-dp ledger census.duckdb --json            every charge, for programs

exit codes: 0 it worked, 1 refused or failed (one line says why), 2 not understood
"""

COLUMNS = {
    "ledger": ("release", "time", "dataset", "function", "mechanism", "epsilon", "delta", "rho", "state"),
    "budget": ("dataset", "neighbours", "delta", "epsilon_total", "epsilon_spent", "epsilon_remaining", "releases"),
    "releases": ("release", "name", "dataset", "function", "mechanism", "epsilon", "delta", "state", "released_at"),
}
EMPTY = {
    "ledger": "nothing was charged yet",
    "budget": "nothing is protected yet",
    "releases": "nothing was released yet",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it worked, 1 when it was refused or failed, 2 for arguments that it does not know."""
    import duckdb

    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.run is None:
        parser.print_help()
        return 0
    run: Callable[[argparse.Namespace], int | None] = arguments.run
    try:
        return run(arguments) or 0
    except BrokenPipeError:
        # The reader has seen enough, as in: duckdb-dp ledger x.duckdb | head
        sys.stderr.close()
        return 1
    except (DPError, duckdb.Error, OSError) as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        sys.stderr.write(f"duckdb-dp: {first_line.removeprefix('Invalid Input Error: ')}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="duckdb-dp",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"duckdb-dp {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="command")
    _add_demo(commands)
    _add_shell(commands)
    _add_explain(commands)
    for name, text in (
        ("ledger", "every charge of a database's ledger"),
        ("budget", "what is spent and what is left of each protected table"),
        ("releases", "every release: its name, what made it and when"),
    ):
        shown = commands.add_parser(name, help=text, description=f"Show {text}. Costs nothing, opens no data.")
        _add_database(shown)
        _add_json(shown)
        shown.set_defaults(run=_account, table=name)
    _add_report(commands)
    command.add(commands, _ledger, _show)
    return parser


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="private marginals of the UCI Adult data, step by step")
    demo.add_argument("--out", type=Path, metavar="DIR", help="folder for the database, its ledger and a picture")
    demo.set_defaults(run=_demo)


def _add_shell(commands: Any) -> None:
    shell = commands.add_parser(
        "shell",
        help="a SQL prompt with the dp_ functions",
        description="A SQL prompt with the dp_ functions. Statements from a pipe run up to the first error; exit code 1 then.",
    )
    shell.add_argument("database", nargs="?", help="a DuckDB file, made if missing; in memory without one")
    shell.add_argument("--ledger", metavar="DIR", help="folder of the ledger (default: <database>.dp)")
    shell.add_argument("--mode", choices=MODES, default="box", help="how results are printed (default: box)")
    shell.add_argument("--json", dest="mode", action="store_const", const="json", help="the same as --mode json")
    shell.add_argument("--read-only", action="store_true", help="open the database without the right to change it")
    shell.set_defaults(run=_shell)


def _add_explain(commands: Any) -> None:
    explain = commands.add_parser(
        "explain",
        help="what a question would cost, and how good its answers would be",
        description="Plan a question: its error and its cost, before anything is spent. Costs nothing, opens no data.",
        epilog="""\
examples:
  duckdb-dp explain census.duckdb "FROM dp_marginals('people', ['age', 'sex'], epsilon := 0.5)"
  duckdb-dp explain census.duckdb "all 2-way" --epsilon 0.5
  duckdb-dp explain census.duckdb "age, sex; income" --rho 0.01      two marginals
  duckdb-dp explain census.duckdb "{'age': 'range'}" --epsilon 0.5
  duckdb-dp explain census.duckdb "SELECT sex, count(*) FROM people GROUP BY sex" --epsilon 0.5
  duckdb-dp explain census.duckdb "age, sex" --precision 50          which budget that needs
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_database(explain)
    explain.add_argument("question", help="a statement with a dp_ call, SELECTs that count, or a request (see below)")
    explain.add_argument("--dataset", metavar="TABLE", help="the protected table, where the database has several")
    for name in ("epsilon", "delta", "rho", "mu", "target-stddev"):
        explain.add_argument(f"--{name}", type=float, metavar="X")
    explain.add_argument(
        "--precision", metavar="X", help="the largest standard deviation, such as 50, or '5%% of 1000'"
    )
    explain.add_argument("--mechanism", help="the mechanism (default: auto)")
    _add_json(explain)
    explain.set_defaults(run=_explain)


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="a release as an HTML page",
        description="Write one HTML page for a release: what was asked, whom it protects, its cost, its answers with "
        "error bars. It needs no network. Costs nothing, opens no data.",
    )
    _add_database(report)
    report.add_argument("release", help="its name, or its number; 'duckdb-dp releases' lists them")
    report.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="the page (default: <release>.html); - prints it"
    )
    report.add_argument(
        "--postprocess",
        choices=("unbiased", "nonnegative", "fitted"),
        help="how counts are read (default: as dp_release does, in general unbiased)",
    )
    report.set_defaults(run=_report)


def _add_database(command: argparse.ArgumentParser) -> None:
    command.add_argument("database", type=Path, help="a DuckDB file, or the folder of its ledger (<file>.dp)")


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="all columns and digits, as a JSON list")


def _demo(arguments: argparse.Namespace) -> None:
    from duckdb_dp import demo

    demo.run(arguments.out or Path(tempfile.mkdtemp(prefix="duckdb_dp_demo_")), console())


def _shell(arguments: argparse.Namespace) -> int:
    from duckdb_dp.shell import prompt

    return prompt.run(arguments.database, ledger=arguments.ledger, mode=arguments.mode, read_only=arguments.read_only)


def _account(arguments: argparse.Namespace) -> None:
    ledger = _ledger(arguments.database)
    rows = {"ledger": ledger.ledger_rows, "budget": ledger.budget_rows, "releases": ledger.releases}[arguments.table]()
    _show(rows, COLUMNS[arguments.table], arguments.json, EMPTY[arguments.table])


def _show(rows: Rows, columns: Sequence[str], as_json: bool, empty: str = "there are none yet") -> None:
    if as_json:
        _print_json(rows)
    elif rows:
        shown = [
            [_minute(row[name]) if name.endswith(("time", "_at")) else row[name] for name in columns] for row in rows
        ]
        out = console(UNLIMITED)
        if hidden := print_result(out, [name.replace("_", " ") for name in columns], shown):
            out.print(f"not shown for lack of space: {', '.join(columns[-hidden:])}; --json shows all")
    else:
        console().print(empty)


def _minute(time: str | None) -> str:
    return "" if time is None else time[:16].replace("T", " ")


def _number_or_text(given: str | None) -> float | str | None:
    """A number, or SQL of a text that is none."""
    try:
        return None if given is None else float(given)
    except ValueError:
        return "'" + str(given).replace("'", "''") + "'"


def _explain(arguments: argparse.Namespace) -> None:
    from duckdb_dp.shell.explaining import on_ledger, statements

    ledger = _ledger(arguments.database)
    tables = ledger.datasets()
    dataset = arguments.dataset or (tables[0].name if len(tables) == 1 else None)
    words = ("epsilon", "delta", "rho", "mu", "precision", "target_stddev")
    budget = {word: getattr(arguments, word) for word in words}
    budget["precision"] = _number_or_text(arguments.precision)
    if arguments.mechanism is not None:
        budget["mechanism"] = "'" + arguments.mechanism.replace("'", "''") + "'"
    found: Rows = []
    with on_ledger(ledger.path) as con:
        for statement in statements(arguments.question, dataset, budget):
            result = con.execute(statement)
            names = [column[0] for column in result.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
            found += rows
            if not arguments.json:
                _print_plan(rows)
    if arguments.json:
        _print_json(found)


def _print_plan(rows: Rows) -> None:
    out = console(UNLIMITED)
    shown = [
        {
            "asked": row["marginal"] or "total",
            "cells": row["cells"],
            "stddev": row["stddev"],
            "95 % interval": ""
            if row["half_width"] is None
            else f"± {row['half_width']:.4g} {row['error_in'] or ''}".rstrip(),
            "of the budget": "" if row["budget_share"] is None else f"{row['budget_share']:.1%}",
        }
        for row in rows
    ]
    print_table(out, shown, right=("stddev", "95 % interval", "of the budget"))
    one = rows[0]
    cost = [f"{name} {number(one[name])}" for name in ("epsilon", "delta", "rho", "mu") if one.get(name) is not None]
    out.print(f"cost: {', '.join(cost)}; mechanism: {one['mechanism']}", markup=False)
    if (gap := one.get("gap")) is not None:
        within = "no" if gap < 1e-9 else f"at most {100 * gap:.2g} %"
        out.print(f"certificate: a mechanism of its kind can have {within} less error at this cost", markup=False)


def _report(arguments: argparse.Namespace) -> None:
    from duckdb_dp.reporting import report
    from duckdb_dp.shell.explaining import on_ledger

    with on_ledger(_ledger(arguments.database).path) as con:
        page = report(con, arguments.release, postprocess=arguments.postprocess)
    if str(arguments.out) == "-":
        sys.stdout.write(page.html)
    else:
        target = page.save(arguments.out or f"{arguments.release}.html")
        sys.stdout.write(f"{target}\n")


def _ledger(database: Path) -> "Ledger":
    from duckdb_dp.accounting.ledger import Ledger

    folder = database.with_name(database.name + ".dp")
    found = next((path for path in (database, folder) if (path / "ledger.sqlite").is_file()), None)
    if found is None:
        raise DPError(f"there is no ledger '{folder}'; name a database that duckdb_dp.load was used with.")
    return Ledger(found)


def _print_json(rows: Rows) -> None:
    sys.stdout.write(json.dumps(rows, indent=2, default=str, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
