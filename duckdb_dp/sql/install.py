"""``load``: opens the ledger, registers the functions, installs the macros of ``sql/*.sql``, and checks that they work."""

import atexit
import re
import warnings
import weakref
from collections.abc import Iterable
from functools import cache, wraps
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb

from duckdb_dp.accounting.ledger import Ledger, Release
from duckdb_dp.accounting.records import units
from duckdb_dp.errors import DPError, as_sql, expect, first_line
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.progress import tracker
from duckdb_dp.request import Request
from duckdb_dp.sql.arguments import WITHOUT
from duckdb_dp.sql.bindings import FUNCTIONS, LOADED, Loaded, installing, register, version
from duckdb_dp.sql.registry import ROLES, Role, functions
from duckdb_dp.sql.session import ORIGINAL_CURSOR, Session
from duckdb_dp.sql.stopping import CONNECTIONS

OLDEST = (1, 4)
"""Oldest DuckDB version that the tests run on."""


def load(
    con: duckdb.DuckDBPyConnection,
    ledger: str | Path | None,
    *,
    bits: EntropySource,
    progress: bool,
    role: Role = "curator",
) -> None:
    """Make the ``dp_`` functions work on a connection, its database's other cursors, and cursors made later."""
    expect("duckdb_dp.load", "con", con, duckdb.DuckDBPyConnection, "a connection, e.g. duckdb.connect('my.duckdb')")
    if ledger is not None:
        expect("duckdb_dp.load", "ledger", ledger, (str, Path), "a folder's name, e.g. 'my_ledger.dp'")
        if "\0" in str(ledger) or not str(ledger).strip():
            raise DPError(
                f"duckdb_dp.load: ledger is {as_sql(str(ledger))}; give a folder's name, e.g. 'my_ledger.dp'."
            )
    expect("duckdb_dp.load", "progress", progress, bool, "True or False")
    if not isinstance(role, str) or role not in ROLES:
        raise DPError(f"duckdb_dp.load: role is {as_sql(role)}; use 'curator' or 'analyst'.")
    _check_version()
    loaded = _find_loaded(con)
    if loaded is not None and ledger is None:
        kept = loaded.session.ledger  # also a temporary one: loading again must not forget what was spent
    else:
        kept = Ledger(_ledger_path(con, ledger))
    session = Session(con, ledger=kept, bits=bits, track=tracker(progress))
    weakref.finalize(con, session.forget_answers).atexit = False
    if loaded is not None:
        session.attached = loaded.session.attached
        loaded.session = session
    else:
        loaded = register(con, session)
    loaded.restricted |= role == "analyst"
    if loaded.restricted:
        _drop_macros(con)
    _evaluate_in_place(con)
    install_macros(con, role, loaded.keys[role])
    if _in_memory(con) and not loaded.restricted:
        # An in-memory database forgets them anyway, and cursors made before see them; an attached one would keep them.
        install_macros(con, role, loaded.keys[role], kind="MACRO")
    _self_test(con)


def _evaluate_in_place(con: duckdb.DuckDBPyConnection) -> None:
    """Keep DuckDB from taking out of TRY(...) what stands twice in a statement, for the whole database: it has no other setting for that.

    Raises:
        DPError: the configuration is locked.
    """
    cursor = ORIGINAL_CURSOR(con)
    ((disabled,),) = cursor.execute("SELECT current_setting('disabled_optimizers')").fetchall()
    if WITHOUT in disabled.split(","):
        return
    try:
        cursor.execute(f"SET GLOBAL disabled_optimizers = '{','.join(filter(None, [disabled, WITHOUT]))}'")
    except duckdb.Error:
        raise DPError(
            f"duckdb_dp.load: the configuration of this database is locked, and disabled_optimizers lacks '{WITHOUT}'; "
            f"SET disabled_optimizers = '{WITHOUT}' before lock_configuration."
        ) from None


def take_read(con: duckdb.DuckDBPyConnection) -> list[Release]:
    """The stored releases that statements were answered from since the last call; none where nothing is loaded."""
    loaded = _find_loaded(con)
    if loaded is None:
        return []
    found, loaded.session.read = loaded.session.read, {}
    return list(found.values())


Described = tuple[Request, bool, tuple[str, ...], str | None]
"""A request, whether a unit may have more rows than count, the columns of its table, and of which rows nobody is the unit."""


def take_shown(con: duckdb.DuckDBPyConnection) -> list[Described]:
    """What the releases asked of which statements have read answers since the last call."""
    loaded = _find_loaded(con)
    if loaded is None:
        return []
    session, found = loaded.session, loaded.session.shown
    session.shown = {}
    return described(session, found.values())


def shown(con: duckdb.DuckDBPyConnection) -> list[int]:
    """The numbers of the releases that statements have read answers of since ``take_shown``."""
    loaded = _find_loaded(con)
    return [] if loaded is None else sorted(loaded.session.shown)


def described(session: Session, requests: Iterable[Request]) -> list[Described]:
    """Requests with what is known of their tables; of a table that is gone nothing is."""
    return [_described(session, one) for one in requests]


def _described(session: Session, request: Request) -> Described:
    from duckdb_dp.sql import catalog, family  # for import time

    dataset = session.ledger.dataset(request.catalog, request.schema, request.table)
    table = None if dataset is None else catalog.of(session, dataset)
    if dataset is None or table is None:
        return request, True, (), None
    one_row = request.max_rows == 1 and all(table.distinct(names) for names in units(request.unit))
    one_row &= not dict(request.options).get("one_parent")  # whose unit is a parent of the rows
    return request, not one_row, tuple(table.columns), family.unowned(dataset, table)


def members(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str, str, str]]:
    """(catalog, schema, table, name of its dataset) of every protected table; none where nothing is loaded."""
    loaded = _find_loaded(con)
    found = [] if loaded is None else loaded.session.ledger.datasets()
    return [(one.catalog, one.schema, one.name, one.member.dataset if one.member else one.name) for one in found]


def release_named(con: duckdb.DuckDBPyConnection, name: str) -> int | None:
    """The number of the release that was given a name, also where dp_releases() shows an earlier name of it."""
    loaded = _find_loaded(con)
    ledger = None if loaded is None else loaded.session.ledger
    found = None if ledger is None else ledger.named(name) or ledger.named(name, private=False)
    return None if found is None else found.id


def attach(con: duckdb.DuckDBPyConnection, name: str, table: Any) -> None:
    """Give a table of another engine a name in SQL, for as long as the database is open."""
    expect("attach", "con", con, duckdb.DuckDBPyConnection, "a connection, e.g. duckdb.connect('my.duckdb')")
    loaded = _find_loaded(con)
    if loaded is None:
        raise DPError("attach: this connection has no dp_ functions yet; call duckdb_dp.load(con) first.")
    from duckdb_dp.sql import external_tables  # for import time: most tables are in DuckDB

    external_tables.attach(con, loaded.session, name, table)


def session_of(con: duckdb.DuckDBPyConnection) -> Session:
    """What the functions of a loaded connection share."""
    loaded = _find_loaded(con)
    assert loaded is not None, "load first"
    return loaded.session


def for_account(con: duckdb.DuckDBPyConnection, name: str) -> duckdb.DuckDBPyConnection:
    """A connection on the same database for an account of the gateway: an analyst's, whose charges are that account's too.

    Its key is its own, so that its work can be told from that of others, and is forgotten with it.
    """
    loaded = _find_loaded(con)
    assert loaded is not None, "load first"
    return _keyed(con, name, loaded.accounts, "analyst")


def for_steward(con: duckdb.DuckDBPyConnection, name: str) -> duckdb.DuckDBPyConnection:
    """The same for a steward of the gateway: a curator's, whose decisions are the steward's."""
    return _keyed(con, name, session_of(con).stewards, "curator")


def _keyed(con: duckdb.DuckDBPyConnection, name: str, names: dict[str, str], role: Role) -> duckdb.DuckDBPyConnection:
    made, key = ORIGINAL_CURSOR(con), uuid4().hex
    names[key] = name
    weakref.finalize(made, names.pop, key, None).atexit = False
    install_macros(made, role, key)
    return made


def key_of(con: duckdb.DuckDBPyConnection) -> str:
    """The key that the macros of a connection pass."""
    return CONNECTIONS[con][1]


def in_words(con: duckdb.DuckDBPyConnection, function: str, call: str) -> str:
    """The SQL that a call of a function stands for on a connection; nothing is charged."""
    (text,) = (text for name, text in macro_files() if name == f"{function}.sql")
    header = re.search(
        r"MACRO \w+(\(.*?\))\s+AS TABLE SELECT \* FROM query\((.*)\);", _statements([text], key_of(con)), re.DOTALL
    )
    assert header is not None, function
    con.execute(f"CREATE OR REPLACE TEMP MACRO _dp_words_of_{function}{header[1]} AS {header[2]}")
    return str(con.execute(f"SELECT _dp_words_of_{call}").fetchall()[0][0])


def install_macros(con: duckdb.DuckDBPyConnection, role: Role, key: str, kind: str = "TEMP MACRO") -> None:
    """Create or replace the macros of ``sql/*.sql`` that are a role's; TEMP ones leave a database file untouched."""
    curators = {name for name, function in functions().items() if function.curator} if role != "curator" else ()
    chosen = [text for name, text in macro_files() if name.removesuffix(".sql") not in curators]
    with installing():
        con.execute(_statements(chosen, key, kind))
    CONNECTIONS[con] = role, key


def _statements(texts: Iterable[str], key: str, kind: str = "TEMP MACRO") -> str:
    """Macro files as one script, without their headers: DuckDB takes a third less time for it."""
    script = re.sub(r"^--.*\n", "", "".join(texts), flags=re.MULTILINE)
    script = re.sub(r"(?<=MACRO )(dp_\w+)\(([^)]+)\)", _without_must, script)
    return script.replace("{key}", key).replace("CREATE OR REPLACE MACRO", f"CREATE OR REPLACE {kind}")


def _without_must(head: re.Match[str]) -> str:
    """A macro's name and parameters, all with a default: our words for what is missing, where DuckDB's speak of casts."""
    given = (each if ":=" in each else f"{each.rstrip()} := NULL" for each in head[2].split(","))
    return f"{head[1]}({','.join(given)})"


def _drop_macros(con: duckdb.DuckDBPyConnection) -> None:
    """Remove the macros of an earlier load: of this connection, and in an in-memory database of all connections."""
    names = [name.removesuffix(".sql") for name, _ in macro_files()]
    query = (
        "SELECT DISTINCT database_name, schema_name, function_name, function_type FROM duckdb_functions() "
        "WHERE function_name IN (SELECT unnest(?)) AND macro_definition LIKE '%_dp_%'"
    )
    for database, schema, name, type_ in con.execute(query, [names]).fetchall():
        kind = "MACRO TABLE" if type_ == "table_macro" else "MACRO"
        con.execute(f'DROP {kind} IF EXISTS "{database}"."{schema}"."{name}"')


@cache  # a load reads them twice
def macro_files() -> tuple[tuple[str, str], ...]:
    """(name, text) of every file of ``sql/``: inside the package when installed, next to it in a checkout."""
    packaged: Traversable = files("duckdb_dp") / "macros"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "sql"
    found = [(entry.name, entry.read_text()) for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return tuple(sorted(found))


def _check_version() -> None:
    if version() < OLDEST:
        raise DPError(
            f"duckdb_dp.load: duckdb {duckdb.__version__} is too old; install 1.4 or newer: pip install -U duckdb"
        )


def _database_path(con: duckdb.DuckDBPyConnection) -> Path | None:
    """The file of the database that the connection was opened on; None for an in-memory one."""
    query = "SELECT path FROM duckdb_databases() WHERE NOT internal ORDER BY database_oid LIMIT 1"
    found = ORIGINAL_CURSOR(con).execute(query).fetchone()
    return Path(found[0]) if found and found[0] else None


def _in_memory(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the connection was opened on a database in memory, and that is where names are looked for."""
    query = "SELECT database_name = current_database() FROM duckdb_databases() WHERE NOT internal ORDER BY database_oid LIMIT 1"
    return _database_path(con) is None and con.execute(query).fetchall() == [(True,)]


def _ledger_path(con: duckdb.DuckDBPyConnection, ledger: str | Path | None) -> Path:
    if ledger is not None:
        return Path(ledger)
    if (database := _database_path(con)) is not None:
        return database.with_name(database.name + ".dp")
    warnings.warn(
        "duckdb_dp: this in-memory database has no file to keep a ledger beside, so what is spent will be forgotten "
        "with this process, also of tables in a file that is attached. To keep it: duckdb_dp.load(con, ledger='my_ledger.dp')",
        stacklevel=4,
    )
    from tempfile import TemporaryDirectory  # for import time

    folder = TemporaryDirectory(prefix="duckdb_dp_")
    atexit.register(folder.cleanup)
    return Path(folder.name) / "ledger.dp"


def _find_loaded(con: duckdb.DuckDBPyConnection) -> Loaded | None:
    """What an earlier load registered in this database, from this connection or from another one."""
    if not LOADED:  # to look for similar names, as DuckDB does for its error, takes 15 ms
        return None
    try:
        found = ORIGINAL_CURSOR(con).execute("SELECT _dp_loaded()").fetchone()
    except duckdb.CatalogException:
        return None
    return None if found is None else LOADED[found[0]]


def _self_test(con: duckdb.DuckDBPyConnection) -> None:
    """Check that a macro plans while a statement is bound and calls while it runs, in this DuckDB version."""
    try:
        rows = con.execute("SELECT count(*) FROM dp_budget() WHERE spent < 0").fetchall()
    except duckdb.Error as error:
        raise DPError(
            f"duckdb_dp.load: duckdb {duckdb.__version__} cannot run dp_ functions: {first_line(error)}"
        ) from None
    if rows != [(0,)]:
        raise DPError(
            f"duckdb_dp.load: duckdb {duckdb.__version__} does not run dp_ functions as it should; install 2.0."
        )


def _follow_cursors() -> None:
    """Give the cursors of a loaded connection the TEMP macros too: DuckDB keeps those per connection.

    JupySQL and others run each statement on a cursor of its own, and a database file must not be changed by loading.
    """

    @wraps(ORIGINAL_CURSOR)
    def cursor(self: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        made = ORIGINAL_CURSOR(self)
        if self in CONNECTIONS:
            install_macros(made, *CONNECTIONS[self])
        return made

    duckdb.DuckDBPyConnection.cursor = cursor  # type: ignore[method-assign]


def unload(con: duckdb.DuckDBPyConnection) -> None:
    """Unregister the functions of a database that is closed next: duckdb 2.0 prints pages of 'nanobind: leaked' for those that are left."""
    try:
        for name in FUNCTIONS:
            con.remove_function(name)
    except duckdb.Error:
        # An unread result is in the way: closing drops both.
        con.close()


def _forget() -> None:
    for con in list(CONNECTIONS):
        unload(con)


_follow_cursors()
atexit.register(_forget)
