"""The state that the SQL functions of one loaded database share: the ledger, the source of noise, and cached answers."""

import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar
from uuid import uuid4

import duckdb
import numpy as np

from duckdb_dp.accounting.ledger import Dataset, Ledger, Release
from duckdb_dp.answers import Answers, Columns, Planned, Sums, load
from duckdb_dp.counting.engines.source import SCHEMA, Attached
from duckdb_dp.counting.tally import Tallies
from duckdb_dp.domain.differences import DIFFERENCES
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.turns import TURNS
from duckdb_dp.errors import DPError, quoted
from duckdb_dp.noise.uniform import EntropySource
from duckdb_dp.progress import Track, silent
from duckdb_dp.reconstruct.likeness import ALIKE
from duckdb_dp.request import Request
from duckdb_dp.sql.signing import ACCOUNT, CONNECTION
from duckdb_dp.synthesis.table.in_order import IN_ORDER, SAID

Found = TypeVar("Found")

ORIGINAL_CURSOR = duckdb.DuckDBPyConnection.cursor
"""DuckDB's own: ``install`` puts one in its place that also installs macros."""

SHOWN = 100
"""Releases whose answers were read last, of which the shell may say more."""

KEPT = 2
"""Releases whose measurements are kept in memory after they were read."""

NAMED = "(lower(database_name), lower(schema_name), lower(table_name)) = (lower(?), lower(?), lower(?))"


class Session:
    """What the functions of one loaded database share: its ledger, its source of noise, and cached answers.

    Args:
        connection: the connection that was loaded; held weakly, so that closing it closes the database.
        ledger: where charges and releases are kept.
        bits: the source of noise.
        track: wraps long loops to show progress.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, *, ledger: Ledger, bits: EntropySource, track: Track
    ) -> None:
        self._ledger = ledger
        self.bits = bits
        self.attached = Attached()
        self.tallies = Tallies()
        self.read: dict[int, Release] = {}
        """Releases that statements were answered from, since somebody last looked."""
        self.shown: dict[int, Request] = {}
        """What the releases asked of which a local connection read answers, new ones too, since somebody last looked."""
        self.stewards: dict[str, str] = {}
        """Of the gateway's stewards: the key of a connection -> whose it is."""
        self.most_rows: int | None = None
        """Rows of an answer that may be drawn, as far as that is known before; None: any number."""
        self.elsewhere: Callable[[str], dict[str, str]] | None = None
        """Where accounts' statements on answers run: tries one on made-up rows, and returns its columns and their types; None: here."""
        self.track = track
        self._connections = [weakref.ref(connection)]
        self.lock = threading.Lock()
        self._eyes = threading.local()
        self._kept: OrderedDict[int, tuple[Release, Answers]] = OrderedDict()
        self._found: dict[type, object] = {}
        self._uncommitted: set[int] = set()
        self._declared: dict[tuple[int, int | None], dict[str, Attribute]] = {}
        self.id = uuid4().hex

    @property
    def ledger(self) -> Ledger:
        """The ledger; while an account of the gateway asks, as that account sees it."""
        account = ACCOUNT.get()
        return self._ledger if account is None else self._ledger.asked_by(account)

    @property
    def steward(self) -> str | None:
        """The steward of the gateway whose call this is; None for a local connection."""
        return self.stewards.get(CONNECTION.get())

    def unit_key(self) -> str:
        """The key of the hash that chooses which rows of a unit are kept: the ledger's secret, and nothing secret under a test's seed.

        With a seed the same calls on the same rows give the same answers.
        """
        return self.ledger.unit_key() if self.bits.private else "not private"

    def cells(self, handle: str, indices: list[int]) -> list[np.ndarray]:
        """Answers to some query sets of a stored release; a handle is its number and, after a '/', a postprocessing."""
        number, _, postprocess = handle.partition("/")
        found = self._numbered(int(number))
        return found.parts(indices) if not postprocess else found.postprocessed(indices, postprocess)

    def release_of(self, function: str, number: str) -> Release:
        """A stored release of that SQL function.

        Raises:
            DPError: it is of another function, or there is none.
        """
        stored = self.ledger.release(int(number))
        if stored.function != function:
            raise DPError(f"release {stored.id} is of {stored.function}; FROM dp_release({stored.id}) reads it.")
        return stored

    def detail(self, stored: Release) -> Mapping[str, Any]:
        """What was noted when synthetic rows, links or a score were drawn."""
        answers = self.answers(stored)
        assert isinstance(answers, Columns)
        return answers.detail

    def arrays(self, stored: Release) -> Mapping[str, np.ndarray]:
        """The arrays that a release of a function of ``request.SYNTHESES`` has stored."""
        answers = self.answers(stored)
        assert isinstance(answers, Columns)
        return answers.arrays

    def stddevs(self, handle: str, indices: list[int]) -> list[np.ndarray]:
        """Standard deviations of the same."""
        return self._numbered(int(handle.partition("/")[0])).stddevs(indices)

    def quantiles(self, handle: str, asked: list[float] | int) -> np.ndarray:
        """(cell, share, low, high) of every group and quantile of a stored release, as ``reconstruct.quantiles``.

        Of sums the number of one is asked, which is a quantile; or its bounds are chosen, and each group has these.
        """
        answers = self._numbered(int(handle))
        if isinstance(answers, Sums):
            assert isinstance(asked, int)
            return answers.found(asked)
        assert isinstance(answers, Planned)
        assert isinstance(asked, list)
        return answers.quantiles(asked)

    def cut(self, handle: str, numbers: list[int]) -> np.ndarray:
        """Of every group and each sum of these numbers itself, its stddev, and the bound that it was cut at; NaN where none was found.

        Shape (groups, sums, 3).
        """
        answers = self._numbered(int(handle))
        assert isinstance(answers, Sums)
        bounds = [answers.found(number)[:, 0] for number in numbers]
        rows = zip(answers.parts(numbers), answers.stddevs(numbers), bounds, strict=True)
        return np.stack([np.stack(one, axis=-1) for one in rows], axis=1)

    def kept(self, kind: type[Found]) -> Found:
        """The one object of a class that this database keeps between its calls."""
        found = self._found.get(kind)
        if found is None:  # without the lock, which is held while noise is drawn
            found = self._found.setdefault(kind, kind())
        assert isinstance(found, kind)
        return found

    @property
    def quiet(self) -> bool:
        """Whether no progress is shown."""
        return self.track is silent

    def declared(self, dataset: Dataset, *, decimals: bool = False) -> dict[str, Attribute]:
        """The current declarations of a dataset's attributes, in order.

        Args:
            dataset: whose they are.
            decimals: with those of synthetic values, and their order, which are no part of other requests.
        """
        whose = dataset.id, dataset.member and dataset.member.id
        before = self._declared.get(whose, {})
        specs = [spec for _, spec in self.ledger.attributes(dataset)]
        read = {spec: before.get(spec) or Attribute.from_json(json.loads(spec)) for spec in specs}
        found, self._declared[whose] = [read[spec] for spec in specs], read
        if not decimals:
            found = [
                each if each.decimals is None and each.at_least is None else replace(each, decimals=None, at_least=None)
                for each in found
            ]
        return {attribute.name: attribute for attribute in found}

    def stored(self, request: Request, name: str | None) -> Release | None:
        """The stored release of a request with this name, or its newest release if no name is given."""
        ledger, private = self.ledger, self.bits.private
        # Rows that were drawn before differences were counted, or before a CHECK kept columns in order, are paid for.
        said, dropped, forms = SAID in dict(request.options), set[str](), [request.hash]
        for option in (TURNS, ALIKE, DIFFERENCES, *(() if said else (IN_ORDER,))):
            dropped.add(option)
            left = tuple(one for one in request.options if one[0] not in dropped)
            forms.append(replace(request, options=left).hash)
        for one in dict.fromkeys(forms):
            found = ledger.find(one, private=private) if name is None else ledger.named(name, private=private)
            if found is not None and found.state == "stored" and found.request_hash == one:
                self.read[found.id] = found
                return found
        of_rows = request.synthetic and "references" not in dict(request.options)
        if of_rows and (found := self._drawn_before(request, name)) is not None:
            self.read[found.id] = found
            return found
        return None

    def _drawn_before(self, request: Request, name: str | None) -> Release | None:
        """The newest stored release that asked the same, whichever keys public rows said were alike: other public rows ask nothing new."""

        def plain(asked: Request) -> str:
            return replace(asked, options=tuple(one for one in asked.options if one[0] not in (TURNS, ALIKE))).hash

        wanted, place = plain(request), [request.catalog, request.schema, request.table]
        for row in reversed(self.ledger.releases()):
            usable = row["state"] == "stored" and bool(row["private"]) == self.bits.private
            if not usable or row["function"] != request.function or (name is not None and row["name"] != name):
                continue
            if json.loads(row["request"])["dataset"] == place and plain(Request.from_json(row["request"])) == wanted:
                return self.ledger.release(int(row["release"]))
        return None

    def newest(self, dataset: Dataset, function: str) -> Release | None:
        """The newest stored release of that SQL function about a table.

        By the table that its request names: the ledger has the releases of all tables of a dataset under the dataset's own name.

        Privacy: post-processing.
        """
        full = [dataset.catalog, dataset.schema, dataset.name]
        for row in reversed(self.ledger.releases()):
            usable = row["state"] == "stored" and bool(row["private"]) == self.bits.private
            if row["function"] == function and usable and json.loads(row["request"])["dataset"] == full:
                return self.ledger.release(int(row["release"]))
        return None

    def answers(self, stored: Release) -> Answers:
        """The answers of a stored release; those of the last few releases stay in memory."""
        with self.lock:
            if stored.id not in self._kept:
                found = load(self.ledger, stored)
                if isinstance(found, Columns):
                    from duckdb_dp.synthesis.older import as_today  # for import time: a marginal has no columns

                    found = as_today(found)
                self._kept[stored.id] = stored, found
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(stored.id)
            return self._kept[stored.id][1]

    def _numbered(self, number: int) -> Answers:
        """The answers of the release of that number, which are read once for all columns of a statement."""
        # What an account may read the ledger says every time.
        known = self._kept.get(number) if ACCOUNT.get() is None else None
        found = self.answers(self.ledger.release(number) if known is None else known[0])
        self.show(number, found.request)
        return found

    def show(self, number: int, request: Request) -> None:
        """Note what the release of that number asked, for who shows what its answers leave out."""
        if ACCOUNT.get() is None:
            while len(self.shown) >= SHOWN:  # where nobody looks
                self.shown.pop(next(iter(self.shown)))
            self.shown[number] = request

    def forget_answers(self) -> None:
        """Free the answers in memory; they are read again when they are needed."""
        with self.lock:
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
        if dataset.member is not None and dataset.member.view is not None:
            return  # what it reads was compiled just now
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
                now = f"is {found} now. Declare it again: CALL dp_attribute({dataset.argument}, {quoted(attribute.name)}, ...)"
                if found is None:
                    back = f"CALL dp_attribute({dataset.argument}, {quoted(attribute.name)}, remove := true)"
                    now = (
                        f"is gone. Give the column its name back, or leave it out, or take its declaration back: {back}"
                    )
                raise DPError(f"'{dataset.name}'.'{attribute.name}' was declared as {attribute.type} and {now}")

    def _columns(self, dataset: Dataset) -> dict[str, str] | None:
        """Committed columns and types of a table; None if the loaded connection is closed."""
        if dataset.schema == SCHEMA and (source := self.attached.find(*_full(dataset))) is not None:
            return source.columns
        full = tuple(part.lower() for part in _full(dataset))
        for name, table in (getattr(self._eyes, "noted", None) or {}).get(frozenset([full[:2]]), {}).items():
            if tuple(part.lower() for part in name) == full:
                return dict(table.columns)  # as ``catalog`` has found it for this plan
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
        """In this thread, read the catalog by a connection that makes tables in a transaction of its own."""
        self._eyes.cursor = cursor
        try:
            yield
        finally:
            self._eyes.cursor = None

    @contextmanager
    def planning(self) -> Iterator[None]:
        """In this thread, what is looked up in the catalog is looked up once: a plan is of one state of it."""
        before = getattr(self._eyes, "noted", None)
        self._eyes.noted = {} if before is None else before
        try:
            yield
        finally:
            self._eyes.noted = before

    def once(self, key: Hashable, look: Callable[[], Found]) -> Found:
        """What ``look`` finds; while a call is planned, what it found first."""
        noted: dict[Hashable, Found] | None = getattr(self._eyes, "noted", None)
        if noted is None or getattr(self._eyes, "cursor", None) is not None:
            return look()
        if key not in noted:
            noted[key] = look()
        return noted[key]

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
