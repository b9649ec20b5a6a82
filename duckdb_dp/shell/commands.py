"""The commands of the shell, which begin with a dot."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from duckdb_dp import DPError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MODES = ("box", "csv", "json", "line")
"""How results can be printed."""

HELP = """\
Statements end with ';' and may span lines. Everything DuckDB knows works, and the dp_ functions:

  declare   CALL dp_protect('people', epsilon := 3, delta := 1e-9);
            CALL dp_attributes('people');   declares what constraints list, and shows the rest; many at once, from a file, to a file:
            CALL dp_attributes('people', {'age': [0, 18, 65], 'sex': ['f', 'm']}, save := 'domain.toml');
            CALL dp_attributes('people', 'domain.toml');
  plan      FROM dp_explain('people', 'all 2-way', epsilon := 0.5);         costs nothing
  ask       FROM dp_marginals('people', ['age', 'sex'], epsilon := 0.5, release := 'first');
            FROM dp_queries('people', {'age': 'range'}, epsilon := 0.5);
            FROM dp_sql('SELECT sex, count(*) FROM people GROUP BY sex', epsilon := 0.5);
  read      FROM dp_release('first');                                       costs nothing
  account   FROM dp_budget();   FROM dp_ledger();   FROM dp_releases();

Commands:
  .help [FUNCTION]        this, or what a dp_ function takes and returns
  .tables                 tables, and which of them are protected
  .columns TABLE          columns of a table, and their declared domains
  .explain STATEMENT      what a statement with a dp_ call would cost, before it is run
  .report RELEASE [FILE] [fitted|nonnegative|unbiased]
                          the release as an HTML page; the last word says how counts are read
  .mode box|csv|json|line how results are printed
  .rows N                 most rows of a table on the screen
  .read FILE              run the statements of a file
  .quit                   leave; Ctrl-D does too
"""

READINGS = ("unbiased", "nonnegative", "fitted")
"""How a report can read counts."""

TABLES = """
SELECT concat_ws('.', nullif(database_name, current_database()),
                 CASE WHEN (database_name, schema_name) <> (current_database(), current_schema()) THEN schema_name END, t.name) AS "table",
       coalesce(b.neighbours, '') AS protected, b.epsilon_total AS epsilon, b.epsilon_remaining AS epsilon_left, b.releases
FROM (SELECT database_name, schema_name, table_name AS name FROM duckdb_tables() WHERE NOT internal
      UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal) t
LEFT JOIN (VALUES {members}) m(catalog, schema, name, dataset)
  ON (lower(m.catalog), lower(m.schema), lower(m.name)) = (lower(database_name), lower(schema_name), lower(t.name))
LEFT JOIN dp_budget() b ON (b.catalog, b.schema, b.dataset) = (m.catalog, m.schema, m.dataset)
ORDER BY ALL
"""
"""The tables, each with the budget of its dataset: ``members`` says which it is of."""

COLUMNS = """
SELECT c.column_name AS "column", c.column_type AS "type", d.cells, d.domain
FROM (DESCRIBE {table}) c
LEFT JOIN ({declared}) d ON lower(d.attribute) = lower(c.column_name)
"""
DECLARED = """
SELECT attribute, count(*) AS cells,
       string_agg(coalesce(label, 'NULL'), ', ' ORDER BY position) FILTER (position < 6)
       || CASE WHEN count(*) > 6 THEN ', ...' ELSE '' END AS domain
FROM dp_domain({text}) GROUP BY attribute
"""
UNDECLARED = "SELECT NULL::VARCHAR AS attribute, NULL::BIGINT AS cells, NULL::VARCHAR AS domain"


WORDS = {
    "exit": ".quit", "quit": ".quit", "\\q": ".quit", ":q": ".quit", "exit()": ".quit", "quit()": ".quit", "bye": ".quit",
    "help": ".help", "\\?": ".help", "\\h": ".help", "?": ".help", "help()": ".help",
    "\\d": ".tables", "\\dt": ".tables", "\\dv": ".tables", "\\l": ".tables",
    "\\i": ".read",
}  # fmt: skip
"""What other prompts call these commands: typed alone, or before the names that a command takes."""


class Leave(Exception):  # noqa: N818  no error
    """The user wants to leave."""


class Failed(Exception):  # noqa: N818  told already
    """A statement of a file failed, which has been told: nothing after it is run."""


class Shell(Protocol):
    """What commands work on; ``engine.Engine`` is one.

    Attributes:
        con: a connection with ``duckdb_dp`` loaded.
        mode: how results are printed, one of ``MODES``.
        rows: most rows of a result in mode 'box' and 'line'.
        reading: files whose lines are being run, one by a line of another.
    """

    con: "DuckDBPyConnection"
    mode: str
    rows: int
    reading: list[Path]

    def execute(self, statement: str) -> None:
        """Run one statement and print its rows."""

    def feed(self, lines: Iterable[str]) -> bool:
        """Run lines as they come, up to the first error; whether all went well."""


def meant(text: str) -> str:
    """The command that a text is: one of this shell's, or another prompt's word for it; empty for SQL."""
    line = text.strip()
    if line.startswith("."):
        return line
    word, _, rest = line.rstrip(";").strip().partition(" ")
    found = WORDS.get(word.lower().rstrip("+"), "")
    if not rest.strip():
        return found
    if not word.startswith("\\"):
        return ""
    return f"{'.columns' if found == '.tables' else found} {rest.strip()}" if found else ""


def run(shell: Shell, line: str) -> None:
    """Run one command.

    Raises:
        DPError: there is no such command, or it lacks an argument.
        Failed: a statement of the file that it read failed.
        Leave: it was to leave.
    """
    word, _, rest = line.partition(" ")
    rest = rest.strip().rstrip(";").strip()
    found = {
        ".help": _help,
        ".tables": _tables,
        ".columns": _columns,
        ".schema": _columns,
        ".explain": _explain,
        ".report": _report,
        ".mode": _mode,
        ".rows": _rows,
        ".read": _read,
        ".quit": _quit,
        ".exit": _quit,
    }.get(word.lower().rstrip(";"))
    if found is None:
        raise DPError(f"there is no command {word}; .help lists them.")
    found(shell, rest)


def _help(shell: Shell, rest: str) -> None:
    import sys

    if not rest:
        sys.stdout.write(HELP)
        return
    from duckdb_dp.shell.complete import headers

    name = rest.lower().strip("()")
    known = headers()
    if name not in known:
        raise DPError(f".help: there is no function {rest}; there are {', '.join(known)}.")
    sys.stdout.write(known[name] + "\n")


def _tables(shell: Shell, rest: str) -> None:
    from duckdb_dp.counting.encode import literal
    from duckdb_dp.sql.install import members

    found = [f"({', '.join(map(literal, names))})" for names in members(shell.con)]
    shell.execute(TABLES.format(members=", ".join(found or ["(NULL, NULL, NULL, NULL)"])))


def _columns(shell: Shell, rest: str) -> None:
    import duckdb

    table = _needed(".columns TABLE", rest)
    text = "'" + table.replace("'", "''") + "'"
    try:
        shell.con.execute(f"FROM dp_domain({text})").fetchall()
        declared = DECLARED.format(text=text)
    except duckdb.Error:
        declared = UNDECLARED  # not protected
    shell.execute(COLUMNS.format(table=table, declared=declared))


def _explain(shell: Shell, rest: str) -> None:
    from duckdb_dp.shell.statements import calls, priced

    found = calls(_needed(".explain STATEMENT", rest))
    if not found and (said := priced(rest)):
        raise DPError(f".explain: {said}")
    if not found:
        raise DPError(
            ".explain: no call of dp_marginals, dp_queries, dp_quantiles or dp_sql with a budget is in that statement."
        )
    for call in found:
        shell.execute(call.explained())


def _report(shell: Shell, rest: str) -> None:
    import sys

    from duckdb_dp.reporting import report

    name, *words = _needed(".report RELEASE [FILE] [fitted]", rest).split(" ")
    postprocess = words.pop() if words and words[-1] in READINGS else None
    page = report(shell.con, name, " ".join(words).strip() or f"{name}.html", postprocess=postprocess)
    sys.stdout.write(f"{page.path}\n")


def _mode(shell: Shell, rest: str) -> None:
    if rest not in MODES:
        raise DPError(f".mode: {rest or 'nothing'} is no mode; there are {', '.join(MODES)}.")
    shell.mode = rest


def _rows(shell: Shell, rest: str) -> None:
    if not rest.isdigit() or int(rest) < 1:
        raise DPError(".rows: how many? A number such as .rows 200 works.")
    shell.rows = int(rest)


def _read(shell: Shell, rest: str) -> None:
    path = Path(_needed(".read FILE", rest)).resolve()
    if path in shell.reading:
        raise DPError(f".read: {rest} is being read, and would be read for ever; take this line out of it.")
    with path.open(encoding="utf-8") as file:
        shell.reading.append(path)
        try:
            if not shell.feed(file):
                raise Failed
        finally:
            shell.reading.pop()


def _quit(shell: Shell, rest: str) -> None:
    raise Leave


def _needed(usage: str, rest: str) -> str:
    if not rest:
        raise DPError(f"{usage.split()[0]}: something is missing; write {usage}.")
    return rest
