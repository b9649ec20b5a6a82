"""The broker: it holds the database and the ledger, and runs one dp_ call at a time, whose arguments are constants."""

import re
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, final

import duckdb
import pyarrow as pa

import duckdb_dp
from duckdb_dp.accounting.ledger import Dataset, Ledger
from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.errors import DPError, as_sql, few, first_line, quoted_name
from duckdb_dp.gateway import failed, left_out
from duckdb_dp.gateway.answered import Answered
from duckdb_dp.gateway.asked import Asked, check_size, written
from duckdb_dp.gateway.config import Limits
from duckdb_dp.gateway.deadline import LateError, within
from duckdb_dp.gateway.dues import Due, due
from duckdb_dp.gateway.errors import Log, Unforeseen, Waiting, foreseen
from duckdb_dp.gateway.values import fetched
from duckdb_dp.sql import provenance
from duckdb_dp.sql.install import for_account, for_steward, in_words, key_of, macro_files, session_of, unload
from duckdb_dp.sql.registry import functions
from duckdb_dp.sql.signing import WAITS

STEWARDS = frozenset({
    "dp_account", "dp_accounts", "dp_approve", "dp_audit", "dp_grant", "dp_refuse", "dp_requests", "dp_share",
})  # fmt: skip
"""Curator's functions that a steward may call over the network: they decide who may ask, and read no table."""

QUESTIONS = ("attributes", "queries", "attribute", "sql")
"""What the functions that dp_explain knows call what they are asked."""

SEEN = frozenset({"dp_budget", "dp_ledger", "dp_release", "dp_releases"})
"""Functions of which a steward sees everything, and an analyst what is its own."""

LOCAL = frozenset({"dp_synthesize_database"})
"""Functions for local connections alone: they make tables."""

# A statement is bound once so; a relation would plan its dp_ calls twice.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result", category=UserWarning)

Found = TypeVar("Found")

KEPT = 64 << 20
"""Bytes of answers that are kept to be given again."""

TEXT = 1_000_000
"""Characters of a call from its constants, all of which a steward may have to see."""


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
        self._lock, self._alone = threading.Lock(), duckdb.connect()
        self._answered = Answered(self.ledger.accounts.said, KEPT)
        self._free: dict[Hashable, list[duckdb.DuckDBPyConnection]] = {}

    @cached_property
    def parameters(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Function -> its arguments: (those without a default, those with one)."""
        found = {}
        for file, text in macro_files():
            name = file.removesuffix(".sql")
            if name not in functions():
                continue
            header = re.search(
                rf"MACRO {name}\((.*?)\)\s+AS", re.sub(r"^--.*\n", "", text, flags=re.MULTILINE), re.DOTALL
            )
            pieces = [piece.strip() for piece in (header[1] if header else "").split(",") if piece.strip()]
            plain = tuple(piece.strip('"') for piece in pieces if ":=" not in piece)
            named = tuple(piece.split(":=")[0].strip().strip('"') for piece in pieces if ":=" in piece)
            found[name] = (plain, named)
        return found

    def check(self, asked: Asked, role: str) -> None:
        """Refuse a function that there is not for a role, and arguments that it has not.

        Raises:
            DPError: it is so.
        """
        function = functions().get(asked.function)
        curators = function is not None and function.curator and not (role == "steward" and asked.function in STEWARDS)
        if function is None or curators or asked.function in LOCAL:
            raise DPError(
                f"there is no function {asked.function} here; what there is: {', '.join(self._offered(role))}."
            )
        plain, named = self.parameters[asked.function]
        given = [name for name, _ in asked.arguments if name is not None]
        for name in given:
            if name not in (*plain, *named):
                close = ", ".join((*plain, *named))
                raise DPError(f"{asked.function}: there is no argument {as_sql(name)}; there are: {close}.")
        positions = [name for name, _ in asked.arguments[: len(asked.arguments) - len(given)]]
        if any(positions) or len(set(given)) < len(given):
            raise DPError(f"{asked.function}: arguments without a name come first, and none comes twice.")
        missing = [name for name in plain[len(positions) :] if name not in given]
        most = len(plain) + (len(named) if asked.function in STEWARDS else 0)  # as dp_refuse(18, 'reason') is written
        if missing or len(positions) > most or set(given) & {*(*plain, *named)[: len(positions)]}:
            raise DPError(
                f"{asked.function}: {few(missing) + ' is missing' if missing else 'name the further arguments, with :='}."
            )
        check_size([value for _, value in asked.arguments])
        if len(asked.sql) > TEXT:
            raise DPError(f"{asked.function}: the arguments have more than {TEXT:,} characters; ask for less at once.")
        self._check_constants(asked)

    def _check_constants(self, asked: Asked) -> None:
        """Refuse lists and structs that DuckDB has no value for, such as {'': 1}, where there is nothing private to tell of."""
        nested = [value for _, value in asked.arguments if isinstance(value, list | tuple | dict)]
        if not nested:
            return
        try:
            self._alone.cursor().execute(f"SELECT {', '.join(map(written, nested))}")
        except duckdb.Error as error:
            raise DPError(f"{asked.function}: an argument is no value of DuckDB: {first_line(error)}") from None

    def _offered(self, role: str) -> list[str]:
        own = STEWARDS if role == "steward" else frozenset()
        return sorted(
            name for name, each in functions().items() if (not each.curator or name in own) and name not in LOCAL
        )

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
        described = self._run(asked, account, role, f"DESCRIBE FROM {asked.sql}").to_pylist()
        columns = ", ".join(f"NULL::{row['column_type']} AS {quote(row['column_name'])}" for row in described)
        with self._cursor("") as cursor:
            return fetched(cursor.execute(f"SELECT {columns} LIMIT 0"), 1).schema

    def _rows(self, asked: Asked, account: str, role: str) -> pa.Table:
        """The rows; of what is paid all of them, and of what is free no more than the limit."""
        if asked.charges:
            failed.check(self.ledger.accounts, account, asked.function, lambda: self.due(asked, account, role).dataset)
            try:
                return self._run(asked, account, role, f"FROM {asked.sql}")
            except (Unforeseen, LateError) as error:
                raise self._failed(error, asked, account, role) from None
        if asked.paid:
            return self._run(asked, account, role, f"FROM {asked.sql}")
        found = self._run(asked, account, role, f"FROM {asked.sql}", self._limits.rows)
        if found.num_rows > self._limits.rows:
            raise DPError(f"{asked.function}: there are more than {self._limits.rows:,} rows; ask for fewer.")
        return found

    def _run(self, asked: Asked, account: str, role: str, sql: str, rows: int = 0) -> pa.Table:
        self.check(asked, role)
        wide = role == "steward" and asked.function in STEWARDS | SEEN
        with self._cursor(account, for_steward if wide else for_account) as cursor:

            def work() -> pa.Table:
                return self._timed(asked, account, cursor, lambda: fetched(cursor.execute(sql), rows))

            answers = asked.paid and sql.startswith("FROM ")
            return left_out.beside(self._session, key_of(cursor), work) if answers else work()

    def _failed(self, error: Unforeseen | LateError, asked: Asked, account: str, role: str) -> DPError:
        accounts = self.ledger.accounts

        def owed() -> Dataset | None:
            return self.due(asked, account, role).dataset

        if isinstance(error, LateError):
            return failed.late(error, account, self._stops, owed, lambda dataset: accounts.suspend(account, dataset))

        def again() -> None:
            with self._cursor(account) as cursor, within(self._limits.seconds, cursor, key_of(cursor)):
                cursor.execute(f"FROM {asked.sql}").fetchall()

        return failed.told(
            error,
            bound=lambda: self._run(asked, account, role, f"DESCRIBE FROM {asked.sql}"),
            owed=owed,
            again=again,
            suspend=lambda dataset: accounts.suspend(account, dataset),
        )

    def _timed(self, asked: Asked, account: str, cursor: duckdb.DuckDBPyConnection, work: Callable[[], Found]) -> Found:
        """What some work on a cursor returns, which is stopped when its time is over.

        Raises:
            DPError: it is, or the call is refused.
        """
        key = key_of(cursor)
        WAITS.pop(key, None)
        with within(self._limits.seconds, cursor, key) as late:
            try:
                return work()
            except duckdb.Error as error:
                number = WAITS.pop(key, None)
                if late.is_set():
                    raise LateError(
                        f"{asked.function}: it took longer than {self._limits.seconds:g} s and was stopped; what was charged stays "
                        "charged, and the same request draws it at no new cost; ask for less at once."
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
        if not asked.charges:
            return Due()
        with self._cursor(account) as cursor:
            sql = self._timed(asked, account, cursor, lambda: in_words(cursor, asked.function, asked.sql))
        fresh = any(name == "fresh" and value is True for name, value in asked.arguments)
        return due(sql, self.ledger.asked_by(account), fresh=fresh, private=self._session.bits.private)

    def explained(self, asked: Asked, account: str, role: str) -> list[dict[str, Any]]:
        """The rows of dp_explain about a call of dp_marginals, dp_queries, dp_quantiles or dp_sql.

        Raises:
            DPError: it cannot be explained.
        """
        of, known = (
            self.parameters[asked.function][0],
            {name for names in self.parameters["dp_explain"] for name in names},
        )
        given = {name or of[place]: value for place, (name, value) in enumerate(asked.arguments)}
        question = next(name for name in of if name != "dataset" and name in QUESTIONS)
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
                raise self._log.unforeseen(error, function="public") from None
            finally:
                with suppress(duckdb.Error):
                    cursor.execute("ROLLBACK")

    def public_tables(self) -> dict[str, str]:
        """Names in small letters -> full names, of the tables that are public for everyone."""
        return {name[2].lower(): quoted_name(*name)[1:-1].replace("''", "'") for name in self.ledger.public.tables()}

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
        self._alone.close()
