"""The commands of ``duckdb-dp`` about the gateway: serve, mcp, and accounts, grants and requests in its ledger.

Those of accounts read and write the ledger alone, so they work while the database is served.
"""

import argparse
import getpass
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckdb_dp.budget import Budget
from duckdb_dp.counting.encode import literal
from duckdb_dp.errors import DPError, as_sql, few
from duckdb_dp.gateway.config import Config, Limits

if TYPE_CHECKING:
    from duckdb_dp.accounting.ledger import Dataset, Ledger

Rows = list[dict[str, Any]]
Find = Callable[[Path], "Ledger"]
"""The ledger of a database."""

COLUMNS = {
    "accounts": ("name", "role", "dataset", "epsilon", "max_epsilon", "until", "synthetic", "time"),
    "requests": ("request", "account", "dataset", "function", "epsilon", "state", "reason", "statement"),
    "grant": ("account", "dataset", "epsilon", "epsilon_left", "max_epsilon", "until", "synthetic"),
    "decided": ("request", "account", "epsilon", "state", "reason", "steward"),
    "share": ("release", "name", "account"),
    "audit": ("entry", "time", "account", "client", "statement", "outcome", "seconds"),
}


def add(commands: Any, find: Find, show: Callable[[Rows, tuple[str, ...], bool], None]) -> None:
    """Add the commands to a parser.

    Args:
        commands: of argparse.
        find: the ledger of a database.
        show: prints rows: (rows, columns, as JSON).
    """
    _add_serve(commands)
    _add_mcp(commands)

    def database(name: str, text: str, run: Callable[[argparse.Namespace], object]) -> Any:
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.add_argument("database", type=Path, help="a DuckDB file, or the folder of its ledger (<file>.dp)")
        command.set_defaults(run=run)
        return command

    def rows(name: str, text: str, read: Callable[["Ledger"], Rows]) -> None:
        command = database(name, text, lambda given: show(read(find(given.database)), COLUMNS[name], given.json))
        command.add_argument("--json", action="store_true", help="all columns, as a JSON list")

    rows("accounts", "the gateway's accounts and their grants", _accounts)
    rows("requests", "what waits for a steward, or was decided", lambda ledger: ledger.accounts.requests())
    rows("audit", "what the gateway was asked, by whom", lambda ledger: ledger.accounts.audit())

    def account(given: argparse.Namespace) -> None:
        ledger = find(given.database)
        token = ledger.accounts.add(given.name, given.role)
        _note(ledger, f"CALL dp_account({literal(given.name)}, role := {literal(given.role)})")
        show([{"name": given.name.lower(), "role": given.role, "token": token}], ("name", "role", "token"), given.json)

    made = database("account", "make an account, or give it a new role and token, which is shown once", account)
    made.add_argument("name")
    made.add_argument("--role", default="analyst", help="analyst (the default), viewer, steward, or closed")
    made.add_argument("--json", action="store_true", help="as JSON, for programs")

    grant = database(
        "grant",
        "say what an account may spend of a dataset",
        lambda given: show(_grant(find(given.database), given), COLUMNS["grant"], False),
    )
    grant.add_argument("account")
    grant.add_argument("dataset")
    for name in ("epsilon", "rho", "mu", "max-epsilon"):
        grant.add_argument(f"--{name}", type=float, metavar="X")
    grant.add_argument("--until", metavar="DAY", help="the last day, such as 2027-06-30")
    grant.add_argument("--synthetic", metavar="TABLE", help="its table of synthetic rows, to explore at no cost")

    def decide(given: argparse.Namespace, approved: bool) -> None:
        show(_decide(find(given.database), given, approved), COLUMNS["decided"], False)

    approve = database("approve", "approve a request that waits", lambda given: decide(given, True))
    refuse = database("refuse", "refuse a request that waits", lambda given: decide(given, False))
    for decided in (approve, refuse):
        decided.add_argument("request", type=int, help="its number in 'duckdb-dp requests'")
    refuse.add_argument("reason", nargs="?")

    share = database(
        "share",
        "let an account read a release",
        lambda given: show(_share(find(given.database), given), COLUMNS["share"], False),
    )
    share.add_argument("release", help="its name, or its number")
    share.add_argument("account")


def _accounts(ledger: "Ledger") -> Rows:
    grants = ledger.accounts.grants()
    found: Rows = []
    for each in ledger.accounts.accounts():
        own = [row for row in grants if row["account"] == each["name"]] or [dict.fromkeys(COLUMNS["accounts"])]
        found += [{**row, **each} for row in own]
    return found


def _note(ledger: "Ledger", statement: str) -> None:
    """A row of the audit for what a steward did by a command, under the name of the machine's user."""
    ledger.accounts.note_all(
        [{"account": _user(), "client": "duckdb-dp", "statement": statement, "outcome": "answered"}]
    )


def _user() -> str:
    """The user of the machine; the database's files say what that may do."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # of a container, which has a number and no name
        return "local"


def _grant(ledger: "Ledger", given: argparse.Namespace) -> Rows:
    dataset = _dataset(ledger, given.dataset)
    budget = Budget(epsilon=given.epsilon, rho=given.rho, mu=given.mu)
    most = None if given.max_epsilon is None else Budget(epsilon=given.max_epsilon)
    twin: Any = None
    if given.synthetic == "":
        twin = ()
    elif given.synthetic is not None:
        parts = given.synthetic.split(".")
        twin = (*((dataset.catalog, dataset.schema)[: 3 - len(parts)]), *parts)
        if len(twin) != 3:
            raise DPError(f"grant: the synthetic table is {as_sql(given.synthetic)}; name it as catalog.schema.table.")
        _check_synthetic(ledger, given.database, twin)
    account = ledger.accounts.grant(given.account, dataset, budget, most=most, until=given.until, synthetic=twin)
    typed = [f"{name} := {value:g}" for name in ("epsilon", "rho", "mu") if (value := getattr(given, name)) is not None]
    typed += [] if most is None else [f"max_epsilon := {most.epsilon:g}"]
    typed += [
        f"{name} := {literal(value)}" for name in ("synthetic", "until") if (value := getattr(given, name)) is not None
    ]
    _note(ledger, f"CALL dp_grant({literal(account)}, {literal(given.dataset)}, {', '.join(typed)})")
    found = next(row for row in ledger.accounts.grants(account) if row["number"] == dataset.id)
    left = dataset.epsilon_of(ledger.asked_by(account).remaining(dataset))
    return [{**found, "epsilon_left": left}]


def _check_synthetic(ledger: "Ledger", database: Path, twin: tuple[str, str, str]) -> None:
    """Refuse a table whose rows are not known to be synthetic or public, as dp_grant does; a file that is served is not opened.

    What a served gateway is told so is checked when its rows are copied for a session.

    Raises:
        DPError: it is protected, or there is no such table, or its rows are not known.
    """
    name = ".".join(twin)
    wanted = tuple(part.lower() for part in twin)
    if wanted in {tuple(p.lower() for p in (d.catalog, d.schema, d.name)) for d in ledger.families.relations()}:
        raise DPError(
            f"grant: '{name}' is protected, so it is no synthetic table; make one by dp_synthesize, and name that."
        )
    import duckdb  # these for import time: other commands need the ledger alone

    import duckdb_dp
    from duckdb_dp.counting.encode import quote
    from duckdb_dp.sql import provenance
    from duckdb_dp.sql.install import session_of

    try:
        con = duckdb.connect(str(database), read_only=True)
    except duckdb.Error:
        return
    with con:
        duckdb_dp.load(con, ledger.path, progress=False)
        try:
            table = provenance.find(session_of(con), ".".join(map(quote, twin)), [("", "main")])
            condition = table.checked(list(table.table.columns))
            known = condition is None or con.execute(f"SELECT {condition}").fetchall() == [(True,)]
        except DPError as error:
            raise DPError(f"grant: {error}") from None
    if not known:
        raise DPError(f"grant: '{name}' does not hold rows of dp_synthesize as they were made; make it anew.")


def _decide(ledger: "Ledger", given: argparse.Namespace, approved: bool) -> Rows:
    reason = getattr(given, "reason", None)
    row = ledger.accounts.decide(given.request, approved=approved, reason=reason, steward=_user())
    more = "" if reason is None else f", {literal(reason)}"
    _note(ledger, f"CALL {'dp_approve' if approved else 'dp_refuse'}({given.request}{more})")
    return [row]


def _dataset(ledger: "Ledger", name: str) -> "Dataset":
    wanted = name.lower().split(".")
    found = [each for each in ledger.datasets() if [each.catalog, each.schema, each.name][-len(wanted) :] == wanted]
    found = found or [
        each
        for each in ledger.datasets()
        if [part.lower() for part in (each.catalog, each.schema, each.name)][-len(wanted) :] == wanted
    ]
    if not found or len({each.id for each in found}) > 1:
        known = few([each.name for each in ledger.datasets()]) or "none"
        raise DPError(
            f"grant: there is {'more than one' if found else 'no'} dataset {as_sql(name)}; there are: {known}."
        )
    return found[0]


def _share(ledger: "Ledger", given: argparse.Namespace) -> Rows:
    key = int(given.release) if given.release.isdigit() else given.release
    number = ledger.release(key).id
    ledger.accounts.share(number, given.account)
    _note(ledger, f"CALL dp_share({number}, {literal(given.account)})")
    return [row | {"account": given.account} for row in ledger.releases() if row["release"] == number]


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser(
        "serve",
        help="answer over the network, to accounts that hold no table",
        description="Answer over Arrow Flight SQL, MCP and a web page until SIGTERM. Accounts: duckdb-dp account, duckdb-dp grant.",
        epilog="""\
examples:
  duckdb-dp account clinic.duckdb alice
  duckdb-dp grant clinic.duckdb alice visits --epsilon 1 --max-epsilon 0.2
  duckdb-dp serve clinic.duckdb --flight 31337 --http 8080
  duckdb-dp serve --config gateway.toml
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument("database", nargs="?", type=Path, help="a DuckDB file with protected tables")
    serve.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML file with these settings; flags come before it"
    )
    serve.add_argument("--ledger", type=Path, metavar="DIR", help="folder of the ledger (default: <database>.dp)")
    serve.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    serve.add_argument("--flight", type=int, metavar="PORT", help="Arrow Flight SQL")
    serve.add_argument("--http", type=int, metavar="PORT", help="the web page, MCP under /mcp, and /health")
    serve.add_argument("--tls", nargs=2, type=Path, metavar=("CERT", "KEY"), help="certificate and key, PEM files")
    serve.add_argument(
        "--proxy", metavar="ADDRESS", help="of a proxy before it, whose word on who calls is believed (X-Forwarded-For)"
    )
    serve.add_argument("--at-least", type=float, metavar="S", help="seconds that each answer takes at least")
    serve.add_argument(
        "--twin", type=float, metavar="EPSILON", help="make a synthetic twin of each dataset at that price"
    )
    serve.add_argument("--log", type=Path, metavar="FILE", help="the file of the log (default: stderr)")
    limits = serve.add_argument_group("limits of an account")
    for each in fields(Limits):
        kind = float if each.name == "seconds" else int
        limits.add_argument(f"--{each.name.replace('_', '-')}", type=kind, metavar="N", help=f"default: {each.default}")
    serve.set_defaults(run=_serve)


def _serve(given: argparse.Namespace) -> int:
    from duckdb_dp.gateway import serve

    flags = {each.name: getattr(given, each.name) for each in fields(Config) if each.name != "limits"}
    limits = {each.name: getattr(given, each.name) for each in fields(Limits)}
    return serve.run(Config.read(given.config, flags, limits))


def _add_mcp(commands: Any) -> None:
    mcp = commands.add_parser(
        "mcp",
        help="an agent's tools for a database, over stdin and stdout (MCP)",
        description="Serve one account's tools to an agent that runs this command. The account's token is in the environment "
        "variable DUCKDB_DP_TOKEN. Whoever can run this on the database's machine can read its file: to agents elsewhere, serve /mcp.",
    )
    mcp.add_argument("database", type=Path, help="a DuckDB file that no other process has open")
    mcp.add_argument("--account", required=True, metavar="NAME", help="who asks")
    mcp.add_argument("--ledger", type=Path, metavar="DIR", help="folder of the ledger (default: <database>.dp)")
    mcp.set_defaults(run=_mcp)


def _mcp(given: argparse.Namespace) -> None:
    try:
        from duckdb_dp.gateway.http import stdio
    except ModuleNotFoundError as error:
        raise DPError(f"mcp: the package {error.name} is missing; install: pip install 'duckdb-dp[gateway]'") from None
    stdio.run(given.database, given.ledger, given.account)
