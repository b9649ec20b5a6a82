"""The broker: it holds the database and the ledger, and runs one dp_ call at a time, whose arguments are constants."""

import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, final

import duckdb
import pyarrow as pa

import duckdb_dp
from duckdb_dp.accounting.ledger import Dataset, Ledger, hash_request
from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.errors import DPError, as_sql, first_line, quoted_name
from duckdb_dp.gateway import dues, failed, left_out
from duckdb_dp.gateway.answered import Answered
from duckdb_dp.gateway.aside import Aside
from duckdb_dp.gateway.asked import QUESTIONS, Asked
from duckdb_dp.gateway.config import Limits
from duckdb_dp.gateway.deadline import CHARGED, UNCHARGED, LateError, within
from duckdb_dp.gateway.dues import Due, requests
from duckdb_dp.gateway.errors import Log, Unforeseen, Waiting, failing, foreseen
from duckdb_dp.gateway.made_up import MadeUp
from duckdb_dp.gateway.offered import STEWARDS, Offered
from duckdb_dp.gateway.values import fetched
from duckdb_dp.request import Request
from duckdb_dp.sql import catalog, provenance
from duckdb_dp.sql.install import for_account, for_steward, in_words, key_of, session_of, unload
from duckdb_dp.sql.signing import READ, REST, WAITS
from duckdb_dp.synthesis.database import Table

SEEN = frozenset({"dp_budget", "dp_ledger", "dp_release", "dp_releases"})
"""Functions of which a steward sees everything, and an analyst what is its own."""

# A statement is bound once so; a relation would plan its dp_ calls twice.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result", category=UserWarning)

Found = TypeVar("Found")

KEPT = 64 << 20
"""Bytes of answers that are kept to be given again."""


@final
class Broker:
    """The database of a gateway.

    Args:
        database: the DuckDB file.
        ledger: the folder of its ledger.
        limits: seconds and rows of an answer.
        log: where unforeseen errors go.

    Raises:
        DPError: the database cannot be opened.
    """

    def __init__(self, database: Path, ledger: Path | None, limits: Limits, log: Log) -> None:
        self._limits, self._log, self._stops = limits, log, failed.Stops()
        try:
            self._con = duckdb.connect(str(database))
        except duckdb.Error as error:
            raise DPError(
                f"serve: '{database}' cannot be opened ({type(error).__name__}); close what else uses it."
            ) from None
        duckdb_dp.load(self._con, ledger, progress=False)
        self._session = session_of(self._con)
        self._session.most_rows = limits.rows  # what is known to be too large is refused before it is charged
        self.ledger: Ledger = self._session.ledger
        self._lock, self._offered, self._aside = threading.Lock(), Offered(), Aside(limits)
        self._session.elsewhere = self._aside.tried
        self._answered = Answered(self.ledger.accounts.said, KEPT)
        self._free: dict[Hashable, list[duckdb.DuckDBPyConnection]] = {}

    @property
    def parameters(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Function -> its arguments: (those without a default, those with one)."""
        return self._offered.parameters

    @property
    def private(self) -> bool:
        """Whether answers are: those of a seeded source are not."""
        return self._session.bits.private

    def functions(self, role: str) -> list[str]:
        """The functions that a role may call."""
        return self._offered.functions(role)

    def check(self, asked: Asked, role: str) -> None:
        """Refuse a function that there is not for a role, and arguments that it has not.

        Raises:
            DPError: it is so.
        """
        self._offered.check(asked, role)

    def ask(self, asked: Asked, account: str, role: str) -> pa.Table:
        """The rows of a call; charges.

        Raises:
            DPError: it is refused.
        """
        found: pa.Table = self._known("rows", asked, account, role, lambda: self._rows(asked, account, role))
        return found

    def schema(self, asked: Asked, account: str, role: str) -> pa.Schema:
        """The columns that a call would return; nothing is charged."""
        return self._known("columns", asked, account, role, lambda: self._columns(asked, account, role))

    def _known(self, what: str, asked: Asked, account: str, role: str, find: Callable[[], Any]) -> Any:
        """What this account was told of this call before, or is told now."""
        if not asked.keeps:
            return find()
        state, key = self._answered.present(), (what, account, role, asked.sql)
        found = self._answered.find(key)
        if found is None:
            found = find()
            self._answered.keep(key, state, found)
        return found

    def known(self, asked: Asked, account: str, role: str) -> bool:
        """Whether an account was given the rows of this call before, and can have them again at no cost."""
        self._answered.present()
        return asked.keeps and self._answered.find(("rows", account, role, asked.sql)) is not None

    def _columns(self, asked: Asked, account: str, role: str) -> pa.Schema:
        given = self._answered.find(("rows", account, role, asked.sql))
        if given is not None:
            return given.schema.remove_metadata()
        found, rest = self._described(asked, account, role)
        columns = ", ".join(f"NULL::{type_} AS {quote(name)}" for name, type_ in found.items())
        with self._cursor("") as cursor:
            rows = fetched(cursor.execute(f"SELECT {columns} LIMIT 0"), 1)
        return (rows if rest is None else self._aside.done(account, rest, rows, [*found.values()])).schema

    def made_up(self, asked: Asked, account: str, role: str) -> pa.Table:
        """Rows that a call might return, of declared labels and made-up numbers; nothing is charged.

        Raises:
            DPError: it is refused.
        """
        found, rest = self._described(asked, account, role)
        words = self._words(asked, account)[0] if asked.charges else ""
        known = [Request.from_json(each) for each in requests(words)]
        columns = ", ".join(f"NULL::{type_} AS {quote(name)}" for name, type_ in found.items())
        with self._cursor("") as cursor:
            described = cursor.execute(f"SELECT {columns} LIMIT 0").description or ()
            types = {str(column[0]): column[1] for column in described}
            sql = MadeUp(known, asked.named(self.parameters)).sql(types, parts=rest is not None)
            rows = fetched(cursor.execute(sql), 0)
        return rows if rest is None else self._aside.done(account, rest, rows, [*found.values()], said="")

    def releases(self, asked: Asked, account: str) -> list[int]:
        """The numbers of the releases that hold the rows of a call which an account has paid."""
        if not asked.charges:
            return []
        ledger, private = self.ledger.asked_by(account), self._session.bits.private
        sql, stored = self._words(asked, account)
        hashes = {hash_request(each) for each in requests(sql)} | {each.hash for each in stored}
        found = (ledger.find(each, private=private) for each in hashes)
        return sorted(each.id for each in found if each is not None)

    def _words(self, asked: Asked, account: str) -> tuple[str, list[Request]]:
        """The SQL that a call stands for, and the stored requests that it reads."""
        with self._cursor(account) as cursor:
            stored = READ[key_of(cursor)] = []
            try:
                sql, _ = self._timed(asked, account, cursor, lambda: in_words(cursor, asked.function, asked.sql))
            finally:
                READ.pop(key_of(cursor), None)
        return sql, stored

    def _described(self, asked: Asked, account: str, role: str) -> tuple[dict[str, str], str | None]:
        """The columns of a call's SQL with their types, and what is left to be done with its rows; nothing is charged."""
        self.check(asked, role)
        with self._cursor(account, self._made(asked, role)) as cursor:
            sql = f"DESCRIBE FROM {asked.sql}"
            rows, rest = self._timed(asked, account, cursor, lambda: cursor.execute(sql).fetchall())
        return {str(row[0]): str(row[1]) for row in rows}, rest

    def _rows(self, asked: Asked, account: str, role: str) -> pa.Table:
        """The rows; of what is paid all of them, and of what is free no more than the limit."""
        if asked.charges:
            failed.check(
                self.ledger.accounts, account, asked.function, lambda: self._of_words(dues.read, asked, account)
            )
            try:
                return self._run(asked, account, role)
            except (Unforeseen, LateError) as error:
                raise self._failed(error, asked, account, role) from None
        if asked.paid:
            return self._run(asked, account, role)
        found = self._run(asked, account, role, self._limits.rows)
        if found.num_rows > self._limits.rows:
            raise DPError(f"{asked.function}: there are more than {self._limits.rows:,} rows; ask for fewer.")
        return found

    def _run(self, asked: Asked, account: str, role: str, rows: int = 0) -> pa.Table:
        """The rows of a call, so many and a few more at most where that is not 0; what is left to be done with them is done apart."""
        self.check(asked, role)
        with self._cursor(account, self._made(asked, role)) as cursor:

            def told() -> tuple[pa.Table, list[str]]:
                found = cursor.execute(f"FROM {asked.sql}")
                types = [str(column[1]) for column in found.description or ()]
                return fetched(found, rows, self._aside.most if key_of(cursor) in REST else 0), types

            def work() -> pa.Table:
                (found, types), rest = self._timed(asked, account, cursor, told)
                return found if rest is None else self._aside.done(account, rest, found, types)

            return left_out.beside(self._session, key_of(cursor), work) if asked.paid else work()

    def _made(self, asked: Asked, role: str) -> Callable[..., Any]:
        """Whose connection a call runs on."""
        return for_steward if role == "steward" and asked.function in STEWARDS | SEEN else for_account

    def _failed(self, error: Unforeseen | LateError, asked: Asked, account: str, role: str) -> DPError:
        accounts = self.ledger.accounts

        def read() -> Dataset | None:
            return self._of_words(dues.read, asked, account)

        if isinstance(error, LateError):
            with suppress(DPError):
                if self.due(asked, account, role).dataset is None or self.releases(asked, account):
                    error = LateError(str(error).replace(UNCHARGED, CHARGED))
            return failed.late(error, account, self._stops, read, lambda dataset: accounts.suspend(account, dataset))
        return failed.told(
            error,
            bound=lambda: self._described(asked, account, role),
            read=read,
            suspend=lambda dataset: accounts.suspend(account, dataset),
        )

    def _timed(
        self, asked: Asked, account: str, cursor: duckdb.DuckDBPyConnection, work: Callable[[], Found]
    ) -> tuple[Found, str | None]:
        """What some work on a cursor returns, which is stopped when its time is over, and what it leaves to be done with it.

        Raises:
            DPError: it is, or the call is refused.
        """
        key = key_of(cursor)
        WAITS.pop(key, None)
        REST.pop(key, None)
        with within(self._limits.seconds, cursor, key) as late:
            try:
                return work(), REST.pop(key, None)
            except duckdb.Error as error:
                number = WAITS.pop(key, None)
                if late.is_set():
                    raise LateError(
                        f"{asked.function}: it took longer than {self._limits.seconds:g} s and was stopped; {UNCHARGED}; ask "
                        "for less at once."
                    ) from None
                ours = foreseen(asked.function, error)
                if ours is not None and number is not None:
                    raise Waiting(str(ours), number) from None
                raise ours or self._log.unforeseen(error, account=account, function=asked.function) from None

    def due(self, asked: Asked, account: str, role: str) -> Due:
        """What asking a call would charge now; what it would be refused for before a charge is refused, and nothing is charged.

        Raises:
            DPError: it is refused.
        """
        self.check(asked, role)
        return self._of_words(dues.due, asked, account) if asked.charges else Due()

    def _of_words(self, find: Callable[..., Found], asked: Asked, account: str) -> Found:
        words = self._words(asked, account)[0]
        return find(words, self.ledger.asked_by(account), fresh=asked.fresh, private=self.private)

    def explained(self, asked: Asked, account: str, role: str) -> list[dict[str, Any]]:
        """The rows of dp_explain about a call of dp_marginals, dp_queries, dp_quantiles or dp_sql.

        Raises:
            DPError: it cannot be explained.
        """
        known = {name for names in self.parameters["dp_explain"] for name in names}
        given = asked.named(self.parameters)
        question = next(name for name in self.parameters[asked.function][0] if name != "dataset" and name in QUESTIONS)
        plain = {"dataset": given.pop("dataset", None), "attributes": given.pop(question)}
        more = {name: value for name, value in given.items() if name in known}
        explain = Asked(function="dp_explain", arguments=tuple({**plain, **more}.items()))
        try:
            return self.ask(explain, account, role).to_pylist()  # type: ignore[no-any-return]
        except DPError as error:
            raise type(error)(str(error).replace("dp_explain: ", f"{asked.function}: ", 1)) from None

    def public(self, name: str) -> pa.Table:
        """A copy of the rows of a public table, by its full name.

        Raises:
            DPError: it is gone, its rows are not known to be public, or there are too many.
        """
        rows = self._copied(name, f"SELECT * FROM {{}} LIMIT {self._limits.rows + 1}")
        if rows.num_rows > self._limits.rows:
            raise DPError(
                f"the table {as_sql(name)} has more than {self._limits.rows:,} rows, which is what a session may copy."
            )
        return rows

    def synthetic(self, name: str) -> pa.Table:
        """A copy of the rows of a synthetic table, by its full name; of more than a session may copy, as many, evenly spaced.

        Raises:
            DPError: it is gone, or its rows are not known to be synthetic.
        """
        numbered = "SELECT *, row_number() OVER ()::HUGEINT AS _dp_n, count(*) OVER () AS _dp_of FROM {}"
        taken = "_dp_n * {} // _dp_of > (_dp_n - 1) * {} // _dp_of".replace("{}", str(self._limits.rows))
        return self._copied(name, f"SELECT * EXCLUDE (_dp_n, _dp_of) FROM ({numbered}) WHERE {taken}")

    def _copied(self, name: str, query: str) -> pa.Table:
        """What a query selects of a table whose rows are known to be public."""
        with self._cursor("") as cursor:
            cursor.execute("BEGIN")
            try:
                found = provenance.find(self._session, name, [("", "main")])
                condition = found.checked(list(found.table.columns))
                if condition is not None and cursor.execute(f"SELECT {condition}").fetchall() != [(True,)]:
                    raise DPError(
                        f"the table {as_sql(name)} does not hold the rows any more that were synthetic; ask the steward."
                    )
                return fetched(cursor.execute(query.replace("{}", full_name(*found.table.name))), 0)
            except duckdb.Error as error:
                raise failing(name, error) or self._log.unforeseen(error, function="public") from None
            finally:
                with suppress(duckdb.Error):
                    cursor.execute("ROLLBACK")

    def public_tables(self) -> dict[str, str]:
        """Names in small letters -> full names, of the tables that are public for everyone."""
        return {name[2].lower(): quoted_name(*name)[1:-1].replace("''", "'") for name in self.ledger.public.tables()}

    def table(self, dataset: Dataset) -> Table:
        """The columns and keys of a dataset's table, as declared; without columns where it is gone."""
        found = catalog.of(self._session, dataset)
        return found or Table(name=(dataset.catalog, dataset.schema, dataset.name), columns={})

    def columns(self, full: Sequence[str]) -> dict[str, str]:
        """Columns and types of a table."""
        where = "(lower(database_name), lower(schema_name), lower(table_name)) = (lower(?), lower(?), lower(?))"
        with self._cursor("") as cursor:
            query = f"SELECT column_name, data_type FROM duckdb_columns() WHERE {where} ORDER BY column_index"
            return dict(cursor.execute(query, list(full)).fetchall())

    @contextmanager
    def _cursor(self, account: str, made: Callable[..., Any] = for_account) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of an account, made so; '' for the curator's."""
        with self._lock:
            free = self._free.setdefault((account, made), [])
            cursor = free.pop() if free else None
            if cursor is None:
                cursor = made(self._con, account) if account else self._con.cursor()
        try:
            yield cursor
        except BaseException:
            cursor.close()
            raise
        with self._lock:
            free.append(cursor)

    def command(self, sql: str) -> None:
        """Run a statement of the gateway's own, as the curator.

        Raises:
            DPError: it is refused.
        """
        with self._cursor("") as cursor:
            try:
                cursor.execute(sql)
            except duckdb.Error as error:
                text = first_line(error)
                raise (
                    DPError(text) if text.startswith("dp_") else self._log.unforeseen(error, function="command")
                ) from None

    def answers(self) -> bool:
        """Whether the database does."""
        with self._cursor("") as cursor:
            return cursor.execute("SELECT 1").fetchall() == [(1,)]

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            for cursors in self._free.values():
                for cursor in cursors:
                    cursor.close()
            self._free.clear()
        unload(self._con)
        self._con.close()
        self._offered.close()
        self._aside.close()
