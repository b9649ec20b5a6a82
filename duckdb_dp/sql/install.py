"""Loading: open the ledger, register the functions, install the macros of ``sql/*.sql``, and check that they work."""

import atexit
import json
import re
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import wraps
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa

from duckdb_dp.account.ledger import Ledger, Release
from duckdb_dp.errors import DPError
from duckdb_dp.noise.bits import Bits
from duckdb_dp.progress import tracker
from duckdb_dp.sql import attaching, stopping
from duckdb_dp.sql.beside import SIDE_TYPE
from duckdb_dp.sql.functions import ORIGINAL_CURSOR, Session
from duckdb_dp.sql.stopping import CONNECTIONS

OLDEST = (1, 4)
"""Oldest DuckDB version that the tests run on."""

FUNCTIONS = (
    "_dp_plan", "_dp_why", "_dp_call", "_dp_run", "_dp_run_beside", "_dp_run_attached", "_dp_unchanged",
    "_dp_keys", "_dp_text_keys", "_dp_cells", "_dp_stddevs", "_dp_loaded",
)  # fmt: skip
"""What is registered in a database."""

_LOADED: "dict[str, _Loaded]" = {}
"""What was registered, by the key that ``_dp_loaded()`` returns. For good: DuckDB keeps functions as long as their
database is open, but holds no reference to them when the connection that registered them is closed."""


class _Loaded:
    """The session that a database's functions use: that of the last load, from whichever of its connections."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.functions: list[Callable[..., Any]] = []
        self.stopped: dict[int, stopping.Stopped] = {}


def load(con: duckdb.DuckDBPyConnection, ledger: str | Path | None, *, bits: Bits, progress: bool) -> None:
    """Make the ``dp_`` functions work on a connection, its database's other cursors, and cursors made later."""
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
        _register(con, session)
    install_macros(con)
    if _database_path(con) is None:
        # An in-memory database forgets them anyway, and cursors made before see them.
        install_macros(con, kind="MACRO")
    _self_test(con)


def take_read(con: duckdb.DuckDBPyConnection) -> list[Release]:
    """The stored releases that statements were answered from since the last call; none where nothing is loaded."""
    loaded = _find_loaded(con)
    if loaded is None:
        return []
    found, loaded.session.read = loaded.session.read, {}
    return list(found.values())


def attach(con: duckdb.DuckDBPyConnection, name: str, table: Any) -> None:
    """Make a table of another engine known under a name, for as long as the database is open."""
    loaded = _find_loaded(con)
    if loaded is None:
        raise DPError("attach: this connection has no dp_ functions yet; call duckdb_dp.load(con) first.")
    attaching.attach(con, loaded.session, name, table)


def install_macros(con: duckdb.DuckDBPyConnection, kind: str = "TEMP MACRO") -> None:
    """Create or replace every macro of ``sql/*.sql`` on a connection; TEMP ones leave a database file untouched."""
    for _, text in macro_files():
        con.execute(re.sub(r"CREATE OR REPLACE MACRO", f"CREATE OR REPLACE {kind}", text))
    CONNECTIONS[con] = None


def macro_files() -> list[tuple[str, str]]:
    """(name, text) of every file of ``sql/``: inside the package when installed, beside it in a checkout."""
    packaged: Traversable = files("duckdb_dp") / "macros"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "sql"
    found = [(entry.name, entry.read_text()) for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted(found)


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", duckdb.__version__)[:2])


def _check_version() -> None:
    if _version() < OLDEST:
        raise DPError(
            f"duckdb_dp.load: duckdb {duckdb.__version__} is too old; install 1.4 or newer: pip install -U duckdb"
        )


def _database_path(con: duckdb.DuckDBPyConnection) -> Path | None:
    """The file of the database that the connection was opened on; None for an in-memory one."""
    query = "SELECT path FROM duckdb_databases() WHERE NOT internal ORDER BY database_oid LIMIT 1"
    found = ORIGINAL_CURSOR(con).execute(query).fetchone()
    return Path(found[0]) if found and found[0] else None


def _ledger_path(con: duckdb.DuckDBPyConnection, ledger: str | Path | None) -> Path:
    if ledger is not None:
        return Path(ledger)
    if (database := _database_path(con)) is not None:
        return database.with_name(database.name + ".dp")
    warnings.warn(
        "duckdb_dp: this in-memory database has no file to keep a ledger beside, so what is spent will be forgotten "
        "with this process. To keep it: duckdb_dp.load(con, ledger='my_ledger.dp')",
        stacklevel=4,
    )
    folder = TemporaryDirectory(prefix="duckdb_dp_")
    atexit.register(folder.cleanup)
    return Path(folder.name) / "ledger.dp"


def _find_loaded(con: duckdb.DuckDBPyConnection) -> _Loaded | None:
    """What an earlier load registered in this database, from this connection or from another one."""
    try:
        found = ORIGINAL_CURSOR(con).execute("SELECT _dp_loaded()").fetchone()
    except duckdb.CatalogException:
        return None
    return None if found is None else _LOADED[found[0]]


def _register(con: duckdb.DuckDBPyConnection, session: Session) -> None:
    """Register the functions, once per database."""
    key, loaded = uuid4().hex, _Loaded(session)
    text = ["VARCHAR"] * 4
    blocks = ["VARCHAR"] * 3 + ["VARCHAR[]", "STRUCT(k BIGINT, n BIGINT)[][]"]
    functions: list[tuple[str, Callable[..., Any], list[Any], str, str]] = [
        ("_dp_plan", _plan_or_null(loaded), [*text, "VARCHAR"], "VARCHAR", "native"),
        ("_dp_why", _why_not(loaded), [*text, "VARCHAR"], "VARCHAR", "native"),
        ("_dp_call", _rows_or_error(loaded), [*text, "VARCHAR"], "VARCHAR", "native"),
        ("_dp_run", _arrow_run(loaded), blocks, "VARCHAR", "arrow"),
        ("_dp_run_beside", _arrow_run_beside(loaded), [*blocks, "BOOLEAN", SIDE_TYPE], "VARCHAR", "arrow"),
        ("_dp_run_attached", _run_attached(loaded), text, "VARCHAR", "native"),
        ("_dp_cells", _arrow_lists(loaded, "cells"), ["VARCHAR", "INTEGER"], "DOUBLE[]", "arrow"),
        ("_dp_unchanged", _arrow_unchanged(loaded), ["VARCHAR", SIDE_TYPE], "VARCHAR", "arrow"),
        ("_dp_keys", _arrow_keys(loaded), ["VARCHAR", "INTEGER"], "BIGINT[]", "arrow"),
        ("_dp_text_keys", _arrow_text_keys(loaded), ["VARCHAR", *["INTEGER"] * 3, SIDE_TYPE], "VARCHAR[]", "arrow"),
        ("_dp_stddevs", _arrow_lists(loaded, "stddevs"), ["VARCHAR", "INTEGER"], "DOUBLE[]", "arrow"),
        ("_dp_loaded", lambda: key, [], "VARCHAR", "native"),
    ]
    loaded.functions = [function for _, function, *_ in functions]
    _LOADED[key] = loaded
    for name, function, parameters, result, kind in functions:
        # side_effects keeps DuckDB from running them while it plans, or twice for equal arguments.
        options: dict[str, Any] = {"type": kind, "null_handling": "special", "side_effects": True}
        con.create_function(name, function, parameters, result, **options)


def _message(function: object, error: BaseException) -> str:
    """One line. Unforeseen errors give their type only: their text might hold a private value."""
    if isinstance(error, stopping.Stopped):
        return f"{function}: {stopping.INTERRUPTED}"
    if isinstance(error, DPError):
        text = " ".join(str(error).split())
        return text if text.startswith(f"{function}:") else f"{function}: {text}"
    return f"{function}: internal error ({type(error).__name__}); please report it with the statement that led to it."


def _plan_or_null(loaded: _Loaded) -> Callable[[str, str, str, str, str], str | None]:
    def plan(function: str, arguments: str, catalog: str, schema: str, collation: str) -> str | None:
        try:
            return stopping.run(
                lambda: loaded.session.plan(function, arguments, catalog, schema, collation), planning=True
            )
        except stopping.Stopped as stopped:
            loaded.stopped[threading.get_ident()] = stopped
        except Exception:
            pass
        return None  # the macro then asks _dp_why, in the same thread

    return plan


def _why_not(loaded: _Loaded) -> Callable[[str, str, str, str, str], str]:
    def why(function: str, arguments: str, catalog: str, schema: str, collation: str) -> str:
        stopped = loaded.stopped.pop(threading.get_ident(), None)

        def plan() -> None:
            if stopped is not None:
                raise stopped
            loaded.session.plan(function, arguments, catalog, schema, collation)

        try:
            stopping.run(plan)
        except (Exception, stopping.Stopped) as error:
            return _message(function, error)
        return f"{function}: the ledger was busy; ask again."

    return why


def _told(function: Callable[[], str], work: Callable[[], str]) -> str:
    """What work returns, or '!' and why it failed: DuckDB's own error() then raises that, without a traceback."""
    try:
        return stopping.run(work)
    except (Exception, stopping.Stopped) as error:
        return "!" + _message(function(), error)


def _rows_or_error(loaded: _Loaded) -> Callable[[str, str, str, str, str | None], str]:
    def call(function: str, arguments: str, catalog: str, schema: str, columns: str | None) -> str:
        return _told(lambda: function, lambda: loaded.session.call(function, arguments, catalog, schema, columns))

    return call


def _handle(loaded: _Loaded, row: tuple[Any, ...]) -> str:
    request, name, fresh_key, blocks, cells, *more = row
    return _told(
        lambda: json.loads(request.as_py())["function"],
        lambda: loaded.session.run(
            request.as_py(), name.as_py(), fresh_key.as_py(), blocks.as_py(), cells.values, *more
        ),
    )


def _arrow_run(loaded: _Loaded) -> Callable[..., pa.Array]:
    def run(requests: pa.Array, names: pa.Array, keys: pa.Array, blocks: pa.Array, cells: pa.Array) -> pa.Array:
        rows = zip(requests, names, keys, blocks, cells, strict=True)
        return pa.array([_handle(loaded, row) for row in rows], pa.string())

    return run


def _arrow_run_beside(loaded: _Loaded) -> Callable[..., pa.Array]:
    """The same with a promise about the counts, and the synthetic tables that stand beside them."""

    def run(
        requests: pa.Array,
        names: pa.Array,
        keys: pa.Array,
        blocks: pa.Array,
        cells: pa.Array,
        kept: pa.Array,
        beside: pa.Array,
    ) -> pa.Array:
        rows = zip(requests, names, keys, blocks, cells, kept, beside, strict=True)
        return pa.array([_handle(loaded, row) for row in rows], pa.string())

    return run


def _run_attached(loaded: _Loaded) -> Callable[[str, str | None, str | None, str], str]:
    def run(request: str, name: str | None, fresh_key: str | None, cliques: str) -> str:
        return _told(
            lambda: json.loads(request)["function"],
            lambda: loaded.session.run_attached(request, name, fresh_key, cliques),
        )

    return run


def _arrow_unchanged(loaded: _Loaded) -> Callable[..., pa.Array]:
    def check(handle: str, beside: pa.ListScalar) -> str:
        return _told(
            lambda: loaded.session.ledger.release(int(handle)).function,
            lambda: loaded.session.unchanged(handle, beside),
        )

    def unchanged(handles: pa.Array, beside: pa.Array) -> pa.Array:
        return pa.array([check(h.as_py(), found) for h, found in zip(handles, beside, strict=True)], pa.string())

    return unchanged


def _arrow_keys(loaded: _Loaded) -> Callable[..., pa.Array]:
    """A function that returns the whole-number keys at one end of all links, as one list."""

    def keys(handles: pa.Array, indices: pa.Array) -> pa.Array:
        rows = zip(handles.to_pylist(), indices.to_pylist(), strict=True)
        return _as_lists([loaded.session.keys(*row) for row in rows], pa.int64())

    return keys


def _arrow_text_keys(loaded: _Loaded) -> Callable[..., pa.Array]:
    """The same of keys that are text."""

    def keys(handles: pa.Array, indices: pa.Array, places: pa.Array, columns: pa.Array, beside: pa.Array) -> pa.Array:
        plain = (column.to_pylist() for column in (handles, indices, places, columns))
        return _as_lists([loaded.session.text_keys(*row) for row in zip(*plain, beside, strict=True)], pa.string())

    return keys


def _as_lists(found: list[pa.Array], type_: pa.DataType) -> pa.Array:
    # In Arrow's own memory: DuckDB 1.4 passes arrays on to threads of pyarrow's, and one that lets go of numpy's memory
    # while Python is being left aborts the process.
    offsets = pa.array(list(accumulate(map(len, found), initial=0)), pa.int32())
    if len(found) == 1 and _version() >= (1, 5):
        return pa.ListArray.from_arrays(offsets, found[0])
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(found) if found else pa.array([], type_))


def _arrow_lists(loaded: _Loaded, method: str) -> Callable[..., pa.Array]:
    """A function of (handle, index) that returns one list of numbers per query set."""

    def lists(handles: pa.Array, indices: pa.Array) -> pa.Array:
        if not len(indices):
            return pa.array([], pa.list_(pa.float64()))
        (handle,) = set(handles.to_pylist())
        found = stopping.run(lambda: getattr(loaded.session, method)(handle, indices.to_pylist()))
        return _as_lists([pa.array(numbers.reshape(-1)) for numbers in found], pa.float64())

    return lists


def _self_test(con: duckdb.DuckDBPyConnection) -> None:
    """A state table through both phases: the macro must plan while binding and call while running."""
    try:
        found = ORIGINAL_CURSOR(con)
        install_macros(found)
        rows = found.execute("SELECT count(*) FROM dp_budget() WHERE spent < 0").fetchall()
    except duckdb.Error as error:
        raise DPError(
            f"duckdb_dp.load: duckdb {duckdb.__version__} cannot run dp_ functions: {str(error).splitlines()[0]}"
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
            install_macros(made)
        return made

    duckdb.DuckDBPyConnection.cursor = cursor  # type: ignore[method-assign]


def _forget() -> None:
    """Unregister at exit: duckdb 2.0 prints pages of 'nanobind: leaked' for functions that outlive the interpreter."""
    for con in list(CONNECTIONS):
        try:
            for name in FUNCTIONS:
                con.remove_function(name)
        except duckdb.Error:
            # An unread result is in the way: closing drops both.
            con.close()


_follow_cursors()
atexit.register(_forget)
