"""One client's session: its statements are split, asked of the broker, and finished in its own sandbox."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

import pyarrow as pa

from duckdb_dp.errors import DPError
from duckdb_dp.gateway import catalog, placed, statement
from duckdb_dp.gateway.asked import Asked
from duckdb_dp.gateway.broker import Broker
from duckdb_dp.gateway.computed import value_of
from duckdb_dp.gateway.errors import Waiting
from duckdb_dp.gateway.offered import STEWARDS
from duckdb_dp.gateway.placed import DESCRIBING, QUERIES
from duckdb_dp.gateway.pricing import nothing, priced
from duckdb_dp.gateway.shown import DATASET, listed_by_show, shown
from duckdb_dp.gateway.statement import Statement
from duckdb_dp.gateway.values import picking, said, saying
from duckdb_dp.gateway.workspace import EXPLAINING, Workspace, named

if TYPE_CHECKING:
    from duckdb_dp.gateway.gateway import Gateway  # for its type: a gateway makes its sessions

FREE_ROWS = "reads public and synthetic tables alone, and costs nothing"

PREPARED = 100
"""Statements that a session remembers to have counted."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who is signed in."""

    name: str
    role: Literal["steward", "analyst", "viewer"]


@final
class Session:
    """What one client asks. Safe to use from several threads; its statements run one after the other where they share tables.

    Every error is a DPError whose text may be shown to the client.

    Args:
        gateway: whose database is asked.
        account: who asks.
        client: from where, for the audit.
    """

    def __init__(self, gateway: "Gateway", account: Account, client: str) -> None:
        self.account = account
        self._gateway, self._client = gateway, client
        self._space = Workspace(gateway, account.name)
        self._lock = threading.Lock()
        self._prepared: OrderedDict[str, None] = OrderedDict()  # what was counted when its columns were asked

    def run(self, sql: str, parameters: Sequence[object] = ()) -> pa.Table:
        """The rows of a statement; each dp_ call in it is charged once, ever.

        Rows that may have been computed from a synthetic table have a last column ``synthetic``, which is true.

        Args:
            sql: one statement, with ? or $1 for parameters.
            parameters: their values, in order.

        Raises:
            Waiting: a request is above the account's max_epsilon; its text says the request's number.
            DPError: it is refused, or takes too long, too many rows or too much memory.

        Privacy: spends what the dp_ calls in it say, of the account's grant and of the dataset's budget.
        """
        with self._audited("run", sql):
            return picking(self._finished(sql, parameters, explore=False), sql)

    def explore(self, sql: str) -> pa.Table:
        """The rows of a statement over synthetic and public tables; a dataset's name stands for its synthetic table.

        They have a last column ``synthetic``, which is true, unless the statement reads nothing but public tables as they are.

        Raises:
            DPError: it is refused, or asks for true answers.

        Privacy: spends nothing.
        """
        with self._audited("explore", sql):
            return self._finished(sql, (), explore=True)

    def schema(self, sql: str) -> pa.Schema:
        """What ``run`` would return; parameters around dp_ calls are taken to be NULL. What makes or changes something has no columns.

        Raises:
            DPError: as ``run``, or an argument of a dp_ call is a parameter.

        Privacy: spends nothing.
        """
        with self._audited("schema", sql):
            return self._columns(self._read(sql))

    def prepared(self, sql: str) -> tuple[Statement, pa.Schema | None]:
        """A statement to be run later, and what it would return; None where that hangs on parameters in its dp_ calls.

        Raises:
            DPError: as ``run``.

        Privacy: spends nothing.
        """
        with self._audited("schema", sql):
            read = self._read(sql)
            later = any(statement.used(text) for call in read.calls for _, text in call.arguments)
            return read, None if later else self._columns(read)

    def _columns(self, read: Statement) -> pa.Schema:
        if not read.calls and (found := self._shown(read)) is not None:
            return found.schema
        word = statement.first_word(read.text)
        if word in EXPLAINING and "analyze" not in read.names:  # it is no query to be read FROM
            return self._space.around(read, self._empty(read), None, explore=False).schema.remove_metadata()
        if not read.alone and word not in QUERIES:
            return pa.schema([])
        empty = self._empty(read)
        if read.alone:
            return empty[0].schema
        found = self._space.around(
            read, empty, None, explore=False, form="SELECT * FROM ({}\n) LIMIT 0"
        )  # after a comment
        return found.schema.remove_metadata()

    def _empty(self, read: Statement, parameters: Sequence[object] = ()) -> list[pa.Table]:
        """Of each call no rows, in its columns."""
        asked = (self._asked(call, parameters, read) for call in read.calls)
        return [self._broker.schema(each, *self._who).empty_table() for each in asked]

    def _is_counted(self, kind: str, text: str) -> bool:
        """Whether this is one more statement within its minute: catalogue calls are none, and one that was prepared is counted then."""
        with self._lock:
            if kind == "run" and text in self._prepared:
                del self._prepared[text]
                return False
            if kind == "schema":
                self._prepared[text] = None
                if len(self._prepared) > PREPARED:
                    self._prepared.popitem(last=False)
        return kind not in ("catalogue", "page")

    def price(self, sql: str) -> pa.Table:
        """What the dp_ calls of a statement would cost, and how good their answers would be: a row for each answer.

        Columns: call, answer, cells, stddev, half_width (of a 95 % interval), error_in (its unit, where
        that is not the answer's), part_of (the answers that a sum is but a part of), epsilon, delta (of the whole call), dataset,
        share_of_grant, share_of_left (of what the account may still spend), share_of_budget (of the dataset's), fits, note.

        Raises:
            DPError: a call is refused.

        Privacy: spends nothing.
        """
        with self._audited("price", sql):
            return self.priced(sql)

    def priced(self, sql: str) -> pa.Table:
        """The same where it is no statement of the account's own, as when a steward looks at one that waits."""
        read, who, broker = self._read(sql), self._who, self._broker
        if not read.calls:
            self._checked(read)
            return nothing(FREE_ROWS)
        asked = [self._asked(call, (), read) for call in read.calls]
        self._tried(read, asked, self._new(asked))
        explain, due = (lambda each: broker.explained(each, *who)), (lambda each: broker.due(each, *who))
        return priced(asked, explain, due, self._budgets(), self._grants())

    def datasets(self) -> pa.Table:
        """What the account may ask, a row for each dataset.

        Columns: dataset, tables (those that are protected together, which a statement names; NULL of one alone), unit (who is protected,
        in words), keys (which columns name it, and lead to other tables), epsilon (the grant), epsilon_left, max_epsilon (of one request
        without a steward), delta, until, synthetic (its twin), accounting, releases.
        """
        with self._audited("datasets", "datasets"):
            return catalog.datasets(self._broker, self._budgets(), self._grants())

    @contextmanager
    def noted(self, call: str, kind: str = "catalogue") -> Iterator[None]:
        """While a block runs, a catalogue call runs: within the account's limits, and with a row in the audit; of a 'page' with none."""
        with self._audited(kind, call):
            yield

    def tables(self) -> dict[str, tuple[str, Callable[[], list[dict[str, Any]]]]]:
        """What a statement may name: name -> ('DATASET', which dp_ functions are asked about, or 'TABLE', which is read; its columns).

        The columns are rows as those of ``describe``. Call it within ``noted``.
        """
        grants, broker = self._grants(), self._broker
        asked = (name for names in catalog.tables(broker, grants).values() for name in names)
        return {name: (DATASET, partial(catalog.columns, broker, name, grants)) for name in asked} | {
            name: ("TABLE", partial(catalog.read, broker, *kind)) for name, kind in self.readable().items()
        }

    def readable(self) -> catalog.Readable:
        """The public and synthetic tables, whose rows a statement reads as they are and joins with datasets."""
        public = {name: ("public", full) for name, full in self._broker.public_tables().items()}
        return public | {name: ("synthetic", full) for name, full in self._gateway.twins(self.account.name).items()}

    def describe(self, dataset: str) -> pa.Table:
        """The columns of a dataset or a table that is read: column, type, key (in words), declared, cells, values (in words).

        Raises:
            DPError: there is none of that name for this account.
        """
        with self._audited("describe", dataset):
            return catalog.described(self._broker, dataset, self._grants(), self.readable())

    def counted(self, dataset: str) -> str | None:
        """How much of a unit counts in answers about a dataset's table, in words; None where each row is a unit, or is public.

        Raises:
            DPError: as ``describe``.
        """
        return None if dataset.lower() in self.readable() else catalog.counted(self._broker, dataset, self._grants())

    def releases(self) -> pa.Table:
        """The releases that the account may read, as dp_releases()."""
        return self._ask("dp_releases")

    def read_release(self, key: int | str) -> pa.Table:
        """The rows of a release that the account may read, by number or name; at no cost.

        Raises:
            DPError: there is none.
        """
        return self._ask("dp_release", key)

    def requests(self) -> list[dict[str, Any]]:
        """What of this account has waited for a steward, the latest first: request, dataset, epsilon, state, reason, statement."""
        self._gateway.audit.flush()
        mine = [row for row in self._broker.ledger.accounts.requests() if row["account"] == self.account.name]
        return mine[::-1]

    def budget(self) -> pa.Table:
        """The account's grants, with what is spent and left of each, as dp_budget()."""
        return self._ask("dp_budget")

    def interrupt(self) -> None:
        """Stop what runs in the sandbox; what is charged goes on, and is kept."""
        self.close()

    def close(self) -> None:
        """End the session; tables that it had made are gone."""
        self._space.close()

    # How a statement is run

    @property
    def _broker(self) -> Broker:
        return self._gateway.broker

    @property
    def _who(self) -> tuple[str, str]:
        return self.account.name, self.account.role

    def _ask(self, function: str, *arguments: object) -> pa.Table:
        asked = Asked(function=function, arguments=tuple((None, each) for each in arguments))
        with self._audited("run", f"FROM {asked.sql}"):
            return self._broker.ask(asked, *self._who)

    def _finished(self, sql: str, parameters: Sequence[object], *, explore: bool) -> pa.Table:
        read = self._read(sql)
        if explore and read.calls:
            raise DPError(
                "explore reads synthetic and public tables alone; ask for true answers with ask, and price them first."
            )
        if not read.calls and (known := self._shown(read)) is not None:
            return known
        if read.calls and statement.first_word(read.text) in DESCRIBING:
            return self._space.around(read, self._empty(read, parameters), parameters, explore=explore)
        asked = [self._asked(call, parameters, read) for call in read.calls]
        for each in asked:
            self._broker.check(each, self.account.role)  # all of them, before any is charged
        new = [] if read.alone else self._new(asked)
        if len(new) > 1:  # as the second might be refused when the first is charged
            raise DPError(
                f"{len(new)} calls of this statement have no answer yet, and nothing was charged; ask each by itself first, such as FROM "
                f"{new[0].sql[:300]}: then this statement reads what was paid, at no cost."
            )
        self._tried(read, asked, new, parameters)
        found = [self._paid(each) for each in asked]
        if read.alone:
            return found[0]
        lines = [line for one in found for line in said(one)]
        try:
            return saying(self._space.around(read, found, parameters, explore=explore), lines)
        except DPError as error:
            paid = sorted({one for each in asked for one in self._broker.releases(each, self.account.name)})
            if not any(each.charges for each in asked):
                raise
            again = ", ".join(f"FROM dp_release({one})" for one in paid) or "FROM dp_releases() lists it"
            raise DPError(
                f"{str(error).rstrip('.')}; what was paid is kept, and read again at no cost: {again}."
            ) from None

    def _new(self, asked: Sequence[Asked]) -> list[Asked]:
        """The calls that would charge something."""
        unknown = [each for each in asked if each.charges and not self._broker.known(each, *self._who)]
        return [each for each in unknown if self._broker.due(each, *self._who).dataset is not None]

    def _tried(
        self, read: Statement, asked: Sequence[Asked], new: Sequence[Asked], parameters: Sequence[object] | None = None
    ) -> None:
        """Refuse, before calls charge or change anything, what would fail around them."""
        made_up = [] if read.alone else [each for each in asked if each in new or each.function in STEWARDS]
        if made_up:
            rows = [self._broker.made_up(each, *self._who) if each in made_up else self._paid(each) for each in asked]
            self._space.around(read, rows, parameters, explore=False, tried=True)

    def _shown(self, read: Statement) -> pa.Table | None:
        """What there is, where a statement asks that."""
        if statement.first_word(read.text) not in ("describe", "desc", "show"):
            return None
        return shown(read.text, self.tables(), self._space.made())

    def _checked(self, read: Statement) -> None:
        """Refuse what a statement without calls would be refused for; nothing runs."""
        if statement.first_word(read.text) not in EXPLAINING:
            self._space.around(read, (), None, explore=False, form="EXPLAIN {}")

    def _paid(self, asked: Asked) -> pa.Table:
        try:
            return self._broker.ask(asked, *self._who)
        except Waiting as error:
            error.add_note(f"FROM {asked.sql}")  # which a steward decides about, whatever the statement called it
            raise

    def _read(self, sql: str) -> Statement:
        most = self._gateway.config.limits.characters
        if not isinstance(sql, str) or len(sql) > most:
            raise DPError(f"a statement is a text of at most {most:,} characters.")
        if "\0" in sql:
            raise DPError("a statement has no character NUL.")
        read = listed_by_show(statement.read(sql))
        placed.check(read, lambda name: self._space.holds(read, name))
        return read

    def _asked(self, call: statement.Call, parameters: Sequence[object], read: Statement) -> Asked:
        """The call with constants for its arguments; those that are computed are computed in the sandbox."""

        def computed(text: str) -> pa.Table:
            return self._space.computed(read, text, named(parameters, statement.used(text)))

        values = [value_of(call.function, text, computed) for _, text in call.arguments]
        names = (name for name, _ in call.arguments)
        return Asked(function=call.function, arguments=tuple(zip(names, values, strict=True)))

    def _budgets(self) -> list[dict[str, Any]]:
        return self._broker.ledger.asked_by(self.account.name).budget_rows()

    def _grants(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        rows = self._gateway.grants(self.account.name)
        return {(row["catalog"], row["schema"], row["dataset"]): row for row in rows}

    @contextmanager
    def _audited(self, kind: str, text: str) -> Iterator[None]:
        """While a block runs, a statement runs: within the account's limits, and with a row in the audit."""
        began = time.monotonic()
        outcome, detail, request = "failed", None, None
        try:
            with self._gateway.turnstile.admitted(self.account.name, counted=self._is_counted(kind, text)):
                yield
            outcome = "answered"
        except DPError as error:
            if isinstance(error, Waiting):
                request, text, kind = error.number, getattr(error, "__notes__", [text])[0], "run"
            outcome, detail = ("waiting" if isinstance(error, Waiting) else "refused"), str(error)[:500]
            raise
        except Exception as error:
            told = self._gateway.log.unforeseen(error, account=self.account.name)
            detail = str(told)
            raise told from None
        finally:
            seconds = time.monotonic() - began
            # Columns that were told are those of rows that are asked next, and a page completes what is asked: nobody asked for these.
            if kind not in ("schema", "page") or outcome != "answered":
                self._gateway.audit.note(
                    account=self.account.name,
                    client=self._client[:200],
                    statement=text if kind == "run" else f"{kind}: {text}",
                    outcome=outcome,
                    detail=detail,
                    request=request,
                    seconds=round(seconds, 4),
                )
            least = self._gateway.config.at_least
            if seconds < least:
                time.sleep(least - seconds)
