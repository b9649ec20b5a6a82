"""The Python functions that the macros call, registered once for each database: errors as text, rows as Arrow lists."""

import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import duckdb
import numpy as np
import pyarrow as pa

from duckdb_dp import arrow
from duckdb_dp.accounting.grants import Waiting
from duckdb_dp.errors import DPError
from duckdb_dp.sql import calls, execute, long_lists, own_names, stopping
from duckdb_dp.sql.registry import ROLES, Role
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.signing import WAITS, asked_by, asker, connection_of, opened

FUNCTIONS = (
    "_dp_plan", "_dp_why", "_dp_call", "_dp_run", "_dp_run_beside", "_dp_run_attached", "_dp_run_values", "_dp_run_found", "_dp_run_filled",
    "_dp_found_values", "_dp_tally", "_dp_tally_add", "_dp_unchanged", "_dp_note", "_dp_keys", "_dp_text_keys", "_dp_cells",
    "_dp_stddevs", "_dp_quantiles", "_dp_cut", "_dp_list", "_dp_numbers", "_dp_labels", "_dp_ends", "_dp_own", "_dp_loaded",
)  # fmt: skip
"""What is registered in a database."""

LOADED: "dict[str, Loaded]" = {}
"""What was registered, by the key that ``_dp_loaded()`` returns. For good: DuckDB keeps functions as long as their
database is open, but holds no reference to them when the connection that registered them is closed."""


INSTALLING: set[int] = set()
"""Threads that create macros."""


@contextmanager
def installing() -> Iterator[None]:
    """While macros are created: DuckDB binds those without arguments then, for nothing, and a plan of each takes 5 ms."""
    thread = threading.get_ident()
    INSTALLING.add(thread)
    try:
        yield
    finally:
        INSTALLING.discard(thread)


class Loaded:
    """The session that a database's functions use: the session of the last load, on any connection."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.functions: list[Callable[..., Any]] = []
        self.stopped: dict[int, stopping.Stopped] = {}
        # Macros pass a key that proves the role of their connection; nobody can guess that of another connection.
        self.keys: dict[Role, str] = {role: uuid4().hex for role in ROLES}
        self.accounts: dict[str, str] = {}  # the same of the gateway's accounts: key -> name
        self.restricted = False  # whether an analyst's connection was loaded

    def role(self, key: str) -> Role | None:
        """The role of the connection whose macros have this key."""
        if key in self.accounts:
            return "analyst"
        steward: Role | None = "curator" if key in self.session.stewards else None
        return next((role for role, known in self.keys.items() if known == key), steward)


def version() -> tuple[int, ...]:
    """Major and minor number of DuckDB."""
    return tuple(int(part) for part in re.findall(r"\d+", duckdb.__version__)[:2])


def register(con: duckdb.DuckDBPyConnection, session: Session) -> Loaded:
    """Register the functions, once per database."""
    key, loaded = uuid4().hex, Loaded(session)
    text, side = ["VARCHAR"] * 4, execute.SIDE_TYPE
    blocks = ["VARCHAR"] * 3 + ["VARCHAR[]", "STRUCT(k BIGINT, n BIGINT)[][]"]
    functions: list[tuple[str, Callable[..., Any], list[Any], str, str]] = [
        ("_dp_plan", _plan_or_null(loaded), [*text, *["VARCHAR"] * 3], "VARCHAR", "native"),
        ("_dp_why", _why_not(loaded), [*text, *["VARCHAR"] * 3], "VARCHAR", "native"),
        ("_dp_call", _rows_or_error(loaded), [*text, "VARCHAR", "VARCHAR"], "VARCHAR", "native"),
        ("_dp_run", _arrow_run(loaded), blocks, "VARCHAR", "arrow"),
        ("_dp_run_beside", _arrow_run_beside(loaded), [*blocks, "BOOLEAN", side], "VARCHAR", "arrow"),
        ("_dp_run_attached", _run_attached(loaded), text, "VARCHAR", "native"),
        ("_dp_run_values", _run_values(loaded), [*text[:3], "BLOB[]", "BIGINT[]"], "VARCHAR", "native"),
        ("_dp_run_found", _run_found(loaded), ["VARCHAR", "VARCHAR", "BLOB[]", "BIGINT[]"], "VARCHAR", "native"),
        ("_dp_run_filled", _arrow_run_filled(loaded), [*blocks, "VARCHAR"], "VARCHAR", "arrow"),
        ("_dp_found_values", _found_values(loaded), text[:3], "VARCHAR[]", "native"),
        ("_dp_tally", _open_tally(loaded), ["VARCHAR", "UBIGINT", "UBIGINT"], "VARCHAR", "native"),
        ("_dp_tally_add", _arrow_tally(loaded), ["BIGINT", "USMALLINT[]"], "INTEGER", "arrow"),
        ("_dp_note", _note_or_error(loaded), text[:3], "VARCHAR", "native"),
        ("_dp_cells", _arrow_lists(loaded, "cells"), ["VARCHAR", "INTEGER"], "DOUBLE[]", "arrow"),
        ("_dp_unchanged", _arrow_unchanged(loaded), ["VARCHAR", side], "VARCHAR", "arrow"),
        ("_dp_keys", _arrow_read(loaded, execute.keys, pa.int64()), ["VARCHAR", "INTEGER"], "BIGINT[]", "arrow"),
        ("_dp_labels", _arrow_read(loaded, execute.labels, pa.string()), text[:2], "VARCHAR[]", "arrow"),
        ("_dp_ends", _arrow_read(loaded, execute.ends, pa.int32()), text[:2], "INTEGER[]", "arrow"),
        ("_dp_text_keys", _arrow_text_keys(loaded), ["VARCHAR", *["INTEGER"] * 3, side], "VARCHAR[]", "arrow"),
        ("_dp_stddevs", _arrow_lists(loaded, "stddevs"), ["VARCHAR", "INTEGER"], "DOUBLE[]", "arrow"),
        ("_dp_quantiles", _arrow_quantiles(loaded), ["VARCHAR", "VARCHAR"], "DOUBLE[][]", "arrow"),
        ("_dp_cut", _arrow_read(loaded, execute.cut, pa.list_(pa.float64())), text[:2], "DOUBLE[][]", "arrow"),
        ("_dp_list", long_lists.texts, ["VARCHAR"], "VARCHAR[]", "native"),
        ("_dp_numbers", long_lists.numbers, ["VARCHAR", "INTEGER"], "DOUBLE[]", "arrow"),
        ("_dp_own", own_names.own, ["VARCHAR", "VARCHAR[]", "VARCHAR[]"], "VARCHAR", "native"),
        ("_dp_loaded", lambda: key, [], "VARCHAR", "native"),
    ]
    loaded.functions = [function for _, function, *_ in functions]
    LOADED[key] = loaded
    for name, function, parameters, result, kind in functions:
        # side_effects keeps DuckDB from running them while it plans, or twice for equal arguments.
        options: dict[str, Any] = {"type": kind, "null_handling": "special", "side_effects": True}
        con.create_function(name, function, parameters, result, **options)
    return loaded


def _message(function: object, error: BaseException) -> str:
    """The error as one line. Unforeseen errors show their type only, because their text might hold a private value."""
    if isinstance(error, stopping.Stopped):
        return f"{function}: {stopping.INTERRUPTED}"
    if isinstance(error, DPError):
        text = " ".join(str(error).split()).removeprefix("Workload: ")
        return f"{function}: {text if str(function).endswith('_database') else re.sub('^dp_[a-z_]+: ', '', text)}"
    if isinstance(error, RecursionError):
        return f"{function}: it is nested too deep; write it in steps."
    if isinstance(error, MemoryError):
        return (
            f"{function}: memory ran out; if it was charged, as FROM dp_ledger() shows, the same request goes on from there at no "
            "new cost, on a machine with more memory."
        )
    return f"{function}: internal error ({type(error).__name__}); please report it with the statement that led to it."


def _planned(loaded: Loaded, key: str, function: str, arguments: str, *where: str) -> str:
    place, settings, role = (where[0], where[1]), (where[2], where[3]), loaded.role(key)
    with asked_by(loaded.accounts.get(key), key):
        return calls.plan(loaded.session, function, arguments, place, role=role, settings=settings, key=key)


def _plan_or_null(loaded: Loaded) -> Callable[[str, str, str, str, str, str, str], str | None]:
    def plan(
        key: str, function: str, arguments: str, catalog: str, schema: str, collation: str, left_out: str
    ) -> str | None:
        if threading.get_ident() in INSTALLING:
            return "SELECT NULL"
        try:
            return stopping.run(
                lambda: _planned(loaded, key, function, arguments, catalog, schema, collation, left_out),
                planning=True,
                connection=key,
            )
        except stopping.Stopped as stopped:
            loaded.stopped[threading.get_ident()] = stopped
        except Exception:
            pass
        return None  # the macro then asks _dp_why, in the same thread

    return plan


def _why_not(loaded: Loaded) -> Callable[[str, str, str, str, str, str, str], str]:
    def why(key: str, function: str, arguments: str, catalog: str, schema: str, collation: str, left_out: str) -> str:
        stopped = loaded.stopped.pop(threading.get_ident(), None)

        def plan() -> None:
            if stopped is not None:
                raise stopped
            _planned(loaded, key, function, arguments, catalog, schema, collation, left_out)

        try:
            stopping.run(plan, connection=key)
        except (Exception, stopping.Stopped) as error:
            return _message(function, error)
        return f"{function}: tables, or the ledger, changed while it was planned; ask again."

    return why


def _told(function: Callable[[], str], work: Callable[[], str], connection: str = "") -> str:
    """What work returns, or '!' and why it failed: DuckDB's own error() then raises that, without a traceback."""
    try:
        return stopping.run(work, connection=connection)
    except (Exception, stopping.Stopped) as error:
        if isinstance(error, Waiting):
            WAITS[connection] = error.number
        return "!" + _message(function(), error)


def _rows_or_error(loaded: Loaded) -> Callable[[str, str, str, str, str, str | None], str]:
    def call(key: str, function: str, arguments: str, catalog: str, schema: str, columns: str | None) -> str:
        def rows() -> str:
            place = (catalog, schema)
            with asked_by(loaded.accounts.get(key), key):
                return calls.call(loaded.session, function, arguments, place, columns, role=loaded.role(key))

        return _told(lambda: function, rows, key)

    return call


def _asked(request: str) -> str:
    """The function that a request is of, also where it was made by hand."""
    try:
        return str(json.loads(opened(request))["function"])
    except DPError:
        return "duckdb_dp"


def _charged(request: str, work: Callable[[str], str]) -> str:
    """What work makes of a signed request, on account of whoever asked it; or '!' and why not."""

    def run() -> str:
        with asked_by(asker(request)):
            return work(opened(request))

    return _told(lambda: _asked(request), run, connection_of(request))


def _handle(loaded: Loaded, row: tuple[Any, ...], run: Callable[..., str] = execute.run) -> str:
    request, name, fresh_key, blocks, cells, *more = row
    plain = name.as_py(), fresh_key.as_py(), blocks.as_py()
    return _charged(request.as_py(), lambda asked: run(loaded.session, asked, *plain, cells.values, *more))


def _arrow_run(loaded: Loaded) -> Callable[..., pa.Array]:
    def run(requests: pa.Array, names: pa.Array, keys: pa.Array, blocks: pa.Array, cells: pa.Array) -> pa.Array:
        rows = zip(requests, names, keys, blocks, cells, strict=True)
        return arrow.texts(_handle(loaded, row) for row in rows)

    return run


def _arrow_run_beside(loaded: Loaded) -> Callable[..., pa.Array]:
    """The same, with whether a promise holds, and the synthetic tables that the request reads."""

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
        return arrow.texts(_handle(loaded, row) for row in rows)

    return run


def _run_values(loaded: Loaded) -> Callable[[str, str | None, str | None, list[bytes], list[int]], str]:
    """The same of unknown values, with how many units hold each. Not by Arrow, which fails from 2 GB of values on."""

    def run(request: str, name: str | None, fresh_key: str | None, values: list[bytes], counts: list[int]) -> str:
        return _charged(
            request, lambda asked: execute.run_values(loaded.session, asked, name, fresh_key, values, counts)
        )

    return run


def _run_found(loaded: Loaded) -> Callable[[str, str, list[bytes], list[int]], str]:
    """The same for the groups of a second request."""

    def run(request: str, later: str, values: list[bytes], counts: list[int]) -> str:
        return _charged(later, lambda asked: execute.run_found(loaded.session, opened(request), asked, values, counts))

    return run


def _arrow_run_filled(loaded: Loaded) -> Callable[..., pa.Array]:
    """As ``_arrow_run``, with the releases of the values that were found."""

    def run(
        asked: pa.Array, names: pa.Array, keys: pa.Array, blocks: pa.Array, cells: pa.Array, found: Any
    ) -> pa.Array:
        rows = zip(asked, names, keys, blocks, cells, found, strict=True)
        return arrow.texts(_handle(loaded, row, execute.run_filled) for row in rows)

    return run


def _found_values(loaded: Loaded) -> Callable[[str, str, str], list[str]]:
    """A function of (request, releases, column) that returns the values that were found, in the order of their cells."""

    def values(request: str, handles: str, name: str) -> list[str]:
        return execute.found_values(loaded.session, opened(request), handles, name)

    return values


def _run_attached(loaded: Loaded) -> Callable[[str, str | None, str | None, str], str]:
    def run(request: str, name: str | None, fresh_key: str | None, cliques: str) -> str:
        return _charged(request, lambda asked: execute.run_attached(loaded.session, asked, name, fresh_key, cliques))

    return run


def _open_tally(loaded: Loaded) -> Callable[[str, int, int], str]:
    def opened(description: str, connection: int, statement: int) -> str:
        return _told(lambda: "duckdb_dp", lambda: str(loaded.session.tallies.open(description, connection, statement)))

    return opened


def _arrow_tally(loaded: Loaded) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """A function that adds rows to a tally and returns 1 for each."""

    def add(numbers: pa.Array, codes: pa.Array) -> pa.Array:
        if len(codes):
            loaded.session.tallies.add(numbers[0].as_py(), lambda: arrow.to_numpy(_one(codes).flatten()))
        return arrow.numbers(np.ones(len(codes), np.int32))

    return add


def _one(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _note_or_error(loaded: Loaded) -> Callable[[str, str, str], str]:
    def note(handle: str, columns: str, digest: str) -> str:
        return _told(
            lambda: loaded.session.ledger.release(int(handle)).function,
            lambda: execute.note(loaded.session, handle, columns, digest),
        )

    return note


def _arrow_unchanged(loaded: Loaded) -> Callable[..., pa.Array]:
    def check(handle: str, beside: pa.ListScalar) -> str:
        return _told(
            lambda: loaded.session.ledger.release(int(handle)).function,
            lambda: execute.unchanged(loaded.session, handle, beside),
        )

    def unchanged(handles: pa.Array, beside: pa.Array) -> pa.Array:
        return arrow.texts(check(h.as_py(), found) for h, found in zip(handles, beside, strict=True))

    return unchanged


def _arrow_read(loaded: Loaded, read: Callable[..., pa.Array], type_: pa.DataType) -> Callable[..., pa.Array]:
    """A function that returns one list: the keys at one end of all links, the labels of an attribute, or the ends of ranges."""

    def lists(handles: pa.Array, which: pa.Array) -> pa.Array:
        rows = zip(handles.to_pylist(), which.to_pylist(), strict=True)
        return _as_lists([read(loaded.session, *row) for row in rows], type_)

    return lists


def _arrow_text_keys(loaded: Loaded) -> Callable[..., pa.Array]:
    """The same of keys that are text."""

    def keys(handles: pa.Array, indices: pa.Array, places: pa.Array, columns: pa.Array, beside: pa.Array) -> pa.Array:
        plain = (column.to_pylist() for column in (handles, indices, places, columns))
        return _as_lists(
            [execute.text_keys(loaded.session, *row) for row in zip(*plain, beside, strict=True)], pa.string()
        )

    return keys


def _arrow_quantiles(loaded: Loaded) -> Callable[..., pa.Array]:
    """A function of (handle, JSON) that returns a list of numbers per group, and per quantile: see ``Session.quantiles``."""

    def one(handle: str, asked: str) -> list[list[float | None]]:
        found = stopping.run(lambda: loaded.session.quantiles(handle, json.loads(asked)))
        return [[None if math.isnan(x) else x for x in row] for row in found.reshape(-1, found.shape[-1]).tolist()]

    def quantiles(handles: pa.Array, asked: pa.Array) -> pa.Array:
        rows = zip(handles.to_pylist(), asked.to_pylist(), strict=True)
        return pa.array([one(*row) for row in rows], pa.list_(pa.list_(pa.float64())))

    return quantiles


def _as_lists(found: list[pa.Array], type_: pa.DataType) -> pa.Array:
    # In Arrow's own memory: DuckDB 1.4 passes arrays on to threads of pyarrow's, and one that lets go of numpy's memory
    # while Python is being left aborts the process.
    made = arrow.lists(found, type_)
    return made if version() >= (1, 5) else pa.concat_arrays([made])


def _arrow_lists(loaded: Loaded, method: str) -> Callable[..., pa.Array]:
    """A function of (handle, index) that returns one list of numbers per query set."""

    def lists(handles: pa.Array, indices: pa.Array) -> pa.Array:
        if not len(indices):
            return pa.nulls(0, pa.list_(pa.float64()))
        (handle,) = set(handles.to_pylist())
        found = stopping.run(lambda: getattr(loaded.session, method)(handle, indices.to_pylist()))
        return _as_lists([arrow.numbers(one) for one in found], pa.float64())

    return lists
