"""The command ``duckdb-dp``: a demo, and the ledger of a database at a glance."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from duckdb_dp import DPError, __version__
from duckdb_dp.terminal import Rows, console, print_table

if TYPE_CHECKING:
    from duckdb_dp.account.ledger import Ledger

DESCRIPTION = """\
Differentially private statistics from SQL, inside DuckDB.

In Python or a notebook:
  con = duckdb.connect("census.duckdb")
  duckdb_dp.load(con)
  con.sql("FROM dp_marginals('adult', ['age', 'sex'], epsilon := 1.0)")
"""

EPILOG = """\
examples:
  duckdb-dp demo                   the main job on the UCI Adult data, in a temporary folder
  duckdb-dp demo --out adult-demo  the same in a folder; a second run there costs nothing
  duckdb-dp ledger census.duckdb   every charge: when it was made and what it cost
  duckdb-dp budget census.duckdb   what each protected table has left, and who is protected
"""

LEDGER_COLUMNS = ("release", "time", "dataset", "mechanism", "rho", "epsilon", "delta", "state")
BUDGET_COLUMNS = ("dataset", "neighbours", "delta", "epsilon_total", "epsilon_spent", "epsilon_remaining")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it worked, 1 when it did not, 2 for arguments that it does not know."""
    import duckdb

    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.run is None:
        parser.print_help()
        return 0
    run: Callable[[argparse.Namespace], None] = arguments.run
    try:
        run(arguments)
    except (DPError, duckdb.Error, OSError) as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        sys.stderr.write(f"duckdb-dp: {first_line.removeprefix('Invalid Input Error: ')}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


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
    demo = commands.add_parser("demo", help="private marginals of the UCI Adult data, step by step")
    demo.add_argument("--out", type=Path, metavar="DIR", help="folder for the database, its ledger and a picture")
    demo.set_defaults(run=_demo)
    for name, run, text in (
        ("ledger", _ledger, "every charge of a database's ledger"),
        ("budget", _budget, "what is spent and what is left of each protected table"),
    ):
        command = commands.add_parser(name, help=text, description=f"Show {text}. Costs nothing, opens no data.")
        command.add_argument("database", type=Path, help="a DuckDB file, or the folder of its ledger (<file>.dp)")
        command.set_defaults(run=run)
    return parser


def _demo(arguments: argparse.Namespace) -> None:
    from duckdb_dp import demo

    demo.run(arguments.out or Path(tempfile.mkdtemp(prefix="duckdb_dp_demo_")), console())


def _ledger(arguments: argparse.Namespace) -> None:
    rows = [{**row, "time": row["time"][:19].replace("T", " ")} for row in _open(arguments.database).ledger_rows()]
    _print(rows, LEDGER_COLUMNS, "nothing was charged yet")


def _budget(arguments: argparse.Namespace) -> None:
    _print(_open(arguments.database).budget_rows(), BUDGET_COLUMNS, "nothing is protected yet")


def _open(database: Path) -> "Ledger":
    from duckdb_dp.account.ledger import Ledger

    folder = database.with_name(database.name + ".dp")
    found = next((path for path in (database, folder) if (path / "ledger.sqlite").is_file()), None)
    if found is None:
        raise DPError(f"there is no ledger '{folder}'; name a database that duckdb_dp.load was used with.")
    return Ledger(found)


def _print(rows: Rows, columns: Sequence[str], empty: str) -> None:
    if rows:
        print_table(console(), rows, columns)
    else:
        console().print(empty)
