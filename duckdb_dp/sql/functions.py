"""What the Python functions behind the macros do, once per database. Bodies only pass on to the modules."""

import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any
from uuid import uuid4

import duckdb
import numpy as np
import pyarrow as pa

from duckdb_dp.accounting.ledger import Dataset, Ledger, Release
from duckdb_dp.accounting.tables import LEDGER_COLUMNS
from duckdb_dp.answers import Answers, Columns, load
from duckdb_dp.counting.counts import Counts
from duckdb_dp.counting.encode import literal
from duckdb_dp.counting.engines.source import SCHEMA, Attached
from duckdb_dp.domain.attribute import Attribute
from duckdb_dp.domain.domain import Clique
from duckdb_dp.errors import DPError, quoted, quoted_name
from duckdb_dp.noise.bits import EntropySource
from duckdb_dp.progress import Track, silent
from duckdb_dp.release import release
from duckdb_dp.request import Request
from duckdb_dp.sql import (
    asking,
    attaching,
    declaring,
    dp_explain,
    dp_link,
    dp_links,
    dp_protect,
    dp_public,
    dp_quality,
    dp_synthesize,
    dp_synthesize_database,
    external_tables,
    render,
)
from duckdb_dp.sql.parse import check_collation, find_dataset
from duckdb_dp.sql.synthetic_tables import changed, read_blocks, read_table
from duckdb_dp.synthesis import SyntheticTable, exact_quality, synthesis
from duckdb_dp.synthesis.base import NOBODY
from duckdb_dp.synthesis.older import as_today

ORIGINAL_CURSOR = duckdb.DuckDBPyConnection.cursor
"""DuckDB's own: ``install`` puts one in its place that also installs macros."""

KEPT = 2
"""Releases whose measurements are kept in memory after they were read."""

LEDGER_ROWS = {"dp_ledger": "ledger_rows", "dp_budget": "budget_rows", "dp_releases": "releases"}
NAMED = "(lower(database_name), lower(schema_name), lower(table_name)) = (lower(?), lower(?), lower(?))"

CALLS: dict[str, ModuleType] = {
    "dp_protect": dp_protect, "dp_public": dp_public, "dp_link": dp_link, "dp_synthesize_database": dp_synthesize_database,
}  # fmt: skip
"""CALLs with a module of their own: ``COLUMNS``, ``context`` (SQL of what it needs to see) and ``declare`` (its rows)."""


class Session:
    """What the functions of one loaded database share: its ledger, its source of noise, and a little cache.

    Args:
        connection: the connection that was loaded; held weakly, so that closing it closes the database.
        ledger: where charges and releases are kept.
        bits: the source of noise.
        track: wraps long loops to show progress.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, *, ledger: Ledger, bits: EntropySource, track: Track
    ) -> None:
        self.ledger = ledger
        self.bits = bits
        self.attached = Attached()
        self.read: dict[int, Release] = {}
        """Releases that statements were answered from, since somebody last looked."""
        self._track = track
        self._connections = [weakref.ref(connection)]
        self._lock = threading.Lock()
        self._eyes = threading.local()
        self._kept: OrderedDict[int, Answers] = OrderedDict()
        self._uncommitted: set[int] = set()
        self._id = uuid4().hex

    # While a statement is bound: declarations only

    def plan(
        self, function: str, arguments: str, catalog: str, schema: str, collation: str = "", *, key: str = ""
    ) -> str:
        """The SQL that a call stands for. Runs for EXPLAIN and DESCRIBE too: touches neither data nor budget.

        Args:
            function, arguments: the call.
            catalog, schema: where names are looked for.
            collation: the connection's default one.
            key: what the connection's macros say.
        """
        check_collation(function, collation)
        place = (catalog, schema)
        asked = attaching.in_full(self, function, json.loads(arguments), place)
        if function in ("dp_marginals", "dp_queries", "dp_sql"):
            return asking.ask(self, function, asked, place)
        synthetic = {"dp_synthesize": dp_synthesize.ask, "dp_links": dp_links.ask, "dp_quality": dp_quality.ask}
        if function in synthetic:
            return synthetic[function](self, asked, place)
        if function == "dp_release":
            return asking.release(self, asked, place)
        if function == "dp_check":
            dataset = find_dataset(self.ledger, asked["dataset"], *place)
            if dataset.schema != SCHEMA:
                return declaring.check(dataset, self.declared(dataset))
        known = {**LEDGER_COLUMNS, "dp_check": attaching.CHECK_COLUMNS}
        columns = dp_explain.columns(asked) if function == "dp_explain" else known.get(function)
        context = "NULL"
        if (module := CALLS.get(function)) is not None:
            columns, context = module.COLUMNS, module.context(self, asked, place)
        elif columns is None:
            columns = declaring.CALLS[function][0]
            context = declaring.catalog_query(declaring.names_for(self, function, asked, place))
        call = ", ".join([*map(literal, (key, function, arguments, catalog, schema)), f"{context}::VARCHAR"])
        return render.table(function, columns, f"_dp_call({call})")

    def call(self, function: str, arguments: str, catalog: str, schema: str, columns: str | None) -> str:
        """The rows of a small public table, as JSON."""
        rows: list[dict[str, Any]]
        asked = attaching.in_full(self, function, json.loads(arguments), (catalog, schema))
        if function == "dp_explain":
            rows = dp_explain.explain(self, asked, (catalog, schema))
        elif (module := CALLS.get(function)) is not None:
            rows = module.declare(self, asked, (catalog, schema), columns or "")
        elif function == "dp_quality":
            rows = dp_quality.rows(self.score(asked["handle"]), asked["view"])
        elif function in declaring.CALLS:
            known = json.loads(columns or "[]")
            known += self.attached.columns(declaring.names_for(self, function, asked, (catalog, schema)))
            rows = declaring.CALLS[function][1](self, asked, (catalog, schema), known)
        elif function == "dp_check":
            rows = attaching.check(self, asked, (catalog, schema))
        else:
            rows = getattr(self.ledger, LEDGER_ROWS[function])()
        return json.dumps(rows)

    def run(
        self,
        request: str,
        name: str | None,
        fresh_key: str | None,
        blocks: list[str],
        cells: pa.ListArray,
        kept: pa.BooleanScalar | None = None,
        beside: pa.ListScalar | None = None,
    ) -> str:
        """Charge and measure a counted request; the handle of the stored release.

        Args:
            request: as JSON.
            name: of the release.
            fresh_key: for fresh := true, the statement.
            blocks: what was counted, as JSON.
            cells: the counts.
            kept: whether a promised bound on the links holds.
            beside: the synthetic tables that the request is about.
        """
        asked = Request.from_json(request)
        tables = None if beside is None else [read_table(beside, place) for place in range(len(beside.values))]
        if asked.schema == SCHEMA:
            return self._run_outside(asked, name, fresh_key, tables=tables)
        counts = Counts(asked.domain, read_blocks(blocks, cells))
        return self._draw(asked, counts, name, fresh_key, tables=tables, kept=kept is None or kept.as_py())

    def run_attached(self, request: str, name: str | None, fresh_key: str | None, cliques: str) -> str:
        """The same for a request about an attached table, with nothing beside it."""
        wanted = tuple(map(tuple, json.loads(cliques)))
        return self._run_outside(Request.from_json(request), name, fresh_key, cliques=wanted)

    def _run_outside(
        self,
        asked: Request,
        name: str | None,
        fresh_key: str | None,
        *,
        cliques: tuple[Clique, ...] | None = None,
        tables: list[SyntheticTable] | None = None,
    ) -> str:
        """The engine of the tables counts first, so a failure there costs nothing."""
        stored = None if fresh_key is not None else self.stored(asked, name)
        if stored is not None:
            return str(stored.id)
        self._protected(asked)
        counts, kept = external_tables.counted(self, asked, cliques)
        return self._draw(asked, counts, name, fresh_key, tables=tables, kept=kept)

    def _protected(self, asked: Request) -> Dataset:
        dataset = self.ledger.dataset(asked.catalog, asked.schema, asked.table)
        if dataset is None:
            raise DPError(
                f"'{asked.table}' is not protected in this ledger. Protect it: CALL dp_protect({quoted_name(asked.table)}, ...)"
            )
        return dataset

    def _draw(
        self,
        asked: Request,
        counts: Counts,
        name: str | None,
        fresh_key: str | None,
        *,
        tables: list[SyntheticTable] | None,
        kept: bool,
    ) -> str:
        more: dict[str, Any] = {} if tables is None else {"tables": tables, "kept": kept}
        if dict(asked.options).get("exact"):
            return json.dumps(exact_quality(asked, counts, **more))
        draw: Any = release if not asked.synthetic else synthesis
        with self._lock:
            done = draw(
                asked,
                counts,
                ledger=self.ledger,
                dataset=self._protected(asked),
                bits=self.bits,
                name=name,
                fresh_key=None if fresh_key is None else f"{self._id}:{fresh_key}",
                track=self._track,
                **more,
            )
        self.answers(done)  # a file that cannot be read is an error here, where errors are text
        return str(done.id)

    def cells(self, handle: str, indices: list[int]) -> list[np.ndarray]:
        """Answers to some query sets of a stored release; a handle is its number and, after a '/', a postprocessing."""
        number, _, postprocess = handle.partition("/")
        found = self.answers(self.ledger.release(int(number)))
        return found.parts(indices) if not postprocess else found.postprocessed(indices, postprocess)

    def score(self, handle: str) -> Mapping[str, Any]:
        """A stored score by its number; an exact one is no release, but its own handle."""
        if handle.startswith("{"):
            found: dict[str, Any] = json.loads(handle)
            return found
        return self.detail(self.ledger.release(int(handle)))

    def detail(self, stored: Release) -> Mapping[str, Any]:
        """What was noted when synthetic rows, links or a score were drawn."""
        answers = self.answers(stored)
        assert isinstance(answers, Columns)
        return answers.detail

    def unchanged(self, handle: str, beside: pa.ListScalar) -> str:
        """The handle of a release about synthetic tables, as long as they are what they were.

        Raises:
            DPError: they have changed.
        """
        stored = self.ledger.release(int(handle))
        for place, digest in enumerate(self.detail(stored)["digests"]):
            if read_table(beside, place).digest != digest:
                raise DPError(changed(stored))
        return handle

    def note(self, handle: str, columns: str, digest: str) -> str:
        """Have the ledger know the rows of a release that are being handed out."""
        release = self.ledger.release(int(handle))
        self.ledger.public.note_rows(json.loads(columns), digest, release=release.id, private=release.private)
        return handle

    def keys(self, handle: str, index: int) -> pa.Array:
        """One column of the whole-number keys at one end of all links; NULL where there is none."""
        (stored,) = self.cells(handle, [index])
        keys = stored.view(np.int64)
        missing = keys == NOBODY
        return pa.array(keys, mask=missing) if missing.any() else pa.array(keys)

    def text_keys(self, handle: str, index: int, place: int, column: int, beside: pa.ListScalar) -> pa.Array:
        """The same of keys that are text, which the synthetic table holds."""
        (positions,) = self.cells(handle, [index])
        key = read_table(beside, place).key[column]
        return key.take(pa.array(positions, from_pandas=True).cast(pa.int64()))

    def stddevs(self, handle: str, indices: list[int]) -> list[np.ndarray]:
        """Standard deviations of the same."""
        return self.answers(self.ledger.release(int(handle.partition("/")[0]))).stddevs(indices)

    @property
    def quiet(self) -> bool:
        """Whether no progress is shown."""
        return self._track is silent

    def declared(self, dataset: Dataset) -> dict[str, Attribute]:
        """The current declarations of a dataset's attributes, in order."""
        found = [Attribute.from_json(json.loads(spec)) for _, spec in self.ledger.attributes(dataset)]
        return {attribute.name: attribute for attribute in found}

    def stored(self, request: Request, name: str | None) -> Release | None:
        """The newest stored release of a request, if it has that name already or none is asked for."""
        found = self.ledger.find(request.hash, private=self.bits.private)
        if found is None or found.state != "stored":
            return None
        if name is not None and self.ledger.named(name, private=self.bits.private) != found:
            return None
        self.read[found.id] = found
        return found

    def answers(self, stored: Release) -> Answers:
        """A stored release, ready to be read; the last few stay in memory."""
        with self._lock:
            if stored.id not in self._kept:
                self._kept[stored.id] = as_today(load(self.ledger, stored))
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(stored.id)
            return self._kept[stored.id]

    def forget_answers(self) -> None:
        """Let go of the releases in memory; they are read again when they are asked for."""
        with self._lock:
            self._kept.clear()

    def remember_uncommitted(self, dataset: Dataset) -> None:
        """Note a table that was protected before its CREATE TABLE was committed: other connections do not see it."""
        if not self._columns(dataset):
            self._uncommitted.add(dataset.id)

    def check_columns(self, dataset: Dataset, attributes: tuple[Attribute, ...]) -> None:
        """Compare declarations with the table as it is now.

        Raises:
            DPError: the table was dropped, or a column was dropped or changed its type.
        """
        if dataset.catalog == "temp" or dataset.id in self._uncommitted:
            return
        if dataset.schema == SCHEMA and self.attached.find(*_full(dataset)) is None:
            return  # stored releases can be read all the same
        types = self._columns(dataset)
        if types is None:
            return
        if not types:
            raise DPError(
                f"'{dataset.name}' is protected but there is no such table now in {dataset.catalog}.{dataset.schema}. "
                "Create or attach it again."
            )
        for attribute in attributes:
            found = types.get(attribute.name)
            if found != attribute.type:
                now = "is gone" if found is None else f"is {found} now"
                raise DPError(
                    f"'{dataset.name}'.'{attribute.name}' was declared as {attribute.type} and {now}. "
                    f"Declare it again: CALL dp_attribute({dataset.argument}, {quoted(attribute.name)}, ...)"
                )

    def _columns(self, dataset: Dataset) -> dict[str, str] | None:
        """Committed columns and types of a table; None when the loaded connection is gone and cannot be asked."""
        if (source := self.attached.find(*_full(dataset))) is not None:
            return source.columns
        query = f"SELECT column_name, data_type FROM duckdb_columns() WHERE {NAMED}"
        with self.looking() as cursor:
            return None if cursor is None else dict(cursor.execute(query, list(_full(dataset))).fetchall())

    @contextmanager
    def looking(self) -> Iterator[duckdb.DuckDBPyConnection | None]:
        """A connection to read the catalog by: one of its own, or the one that ``seeing_with`` has set; None: closed."""
        given: duckdb.DuckDBPyConnection | None = getattr(self._eyes, "cursor", None)
        if given is not None:
            yield given
            return
        with self.cursor() or nullcontext() as cursor:
            yield cursor

    @contextmanager
    def seeing_with(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """See the catalog as a connection does that makes tables in a transaction of its own, in this thread."""
        self._eyes.cursor = cursor
        try:
            yield
        finally:
            self._eyes.cursor = None

    def cursor(self) -> duckdb.DuckDBPyConnection | None:
        """A connection of its own on the same database, to be closed; it sees what is committed. None: it is closed.

        The loaded connection itself is busy with the statement that brought us here; a second one is not.
        """
        connection = next((found for ref in self._connections if (found := ref()) is not None), None)
        if connection is None:
            return None
        try:
            return ORIGINAL_CURSOR(connection)
        except duckdb.ConnectionException:
            return None  # it was closed, and another connection on its database is in use


def _full(dataset: Dataset) -> tuple[str, str, str]:
    return dataset.catalog, dataset.schema, dataset.name
