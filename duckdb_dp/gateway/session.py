"""One client's session: its statements are split, asked of the broker, and finished in its own sandbox."""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import pyarrow as pa

from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.gateway import catalog, statement
from duckdb_dp.gateway.broker import Asked, Broker
from duckdb_dp.gateway.errors import Waiting, waits
from duckdb_dp.gateway.pricing import priced
from duckdb_dp.gateway.sandbox import Sandbox
from duckdb_dp.gateway.statement import ANSWER, Statement
from duckdb_dp.gateway.values import UNREADABLE, marked

if TYPE_CHECKING:
    from duckdb_dp.gateway.gateway import Gateway  # for its type: a gateway makes its sessions

OWN, EXPLORE, ANSWERS = "own", "explore", "answers"
"""The sandboxes of a session."""

QUERIES = ("select", "from", "with", "pivot", "(")
"""First words of statements that make nothing, unless there is one of ``CHANGES`` in them."""

CHANGES = frozenset({"insert", "update", "delete", "merge", "create", "drop", "alter"})

THERE = """SELECT lower(name) AS name FROM (SELECT table_name AS name FROM duckdb_tables() UNION ALL
    SELECT view_name FROM duckdb_views() WHERE NOT internal UNION ALL SELECT function_name FROM duckdb_functions() WHERE NOT internal)"""
"""What a sandbox holds that a statement may name."""

_TABLE = re.compile(
    r"\s*create\s+(?P<kept>or\s+replace\s+)?(temp(orary)?\s+)?table\s+(?P<unless>if\s+not\s+exists\b)?", re.IGNORECASE
)


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
        self._lock = threading.Lock()
        self._boxes: dict[
            str, Sandbox
        ] = {}  # its own, one to explore, and one for answers once its own has synthetic rows
        self._changed: set[str] = set()  # public tables whose copies were
        self._answers = 0

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
            return self._finished(sql, parameters, explore=False)

    def explore(self, sql: str) -> pa.Table:
        """The rows of a statement over synthetic and public tables; a dataset's name stands for its synthetic table.

        Every answer has a last column ``synthetic``, which is true.

        Raises:
            DPError: it is refused, or asks for true answers.

        Privacy: spends nothing.
        """
        with self._audited("explore", sql):
            return self._finished(sql, (), explore=True)

    def schema(self, sql: str) -> pa.Schema:
        """What ``run`` would return; parameters around dp_ calls are taken to be NULL.

        Raises:
            DPError: as ``run``, or an argument of a dp_ call is a parameter.

        Privacy: spends nothing.
        """
        with self._audited("schema", sql):
            read = self._read(sql)
            parts = [self._broker.schema(self._asked(call, (), read), *self._who) for call in read.calls]
            if read.alone:
                return parts[0]
            empty = [part.empty_table() for part in parts]
            return self._around(read, empty, None, explore=False, form="SELECT * FROM ({}) LIMIT 0").schema

    def price(self, sql: str) -> pa.Table:
        """What the dp_ calls of a statement would cost, and how good their answers would be: a row for each answer.

        Columns: call, answer, cells, stddev, half_width (of a 95 % interval), epsilon, delta (of the whole call), dataset,
        share_of_grant, share_of_left (of what the account may still spend), share_of_budget (of the dataset's), fits, note.

        Raises:
            DPError: a call is refused.

        Privacy: spends nothing.
        """
        with self._audited("price", sql):
            read = self._read(sql)
            if not read.calls:
                raise DPError("there is no dp_ call in this statement, so it costs nothing.")
            asked = [self._asked(call, (), read) for call in read.calls]
            who, broker = self._who, self._broker
            ask, check = (lambda each: broker.ask(each, *who)), (lambda each: broker.schema(each, *who))
            return priced(asked, ask, check, self._budgets(), self._grants())

    def datasets(self) -> pa.Table:
        """What the account may ask, a row for each dataset.

        Columns: dataset, unit (who is protected, in words), epsilon (the grant), epsilon_left, max_epsilon (of one request
        without a steward), delta, until, synthetic (its twin), accounting, releases.
        """
        with self._audited("datasets", "datasets"):
            return catalog.datasets(self._budgets(), self._grants())

    def describe(self, dataset: str) -> pa.Table:
        """The columns of a dataset: column, type, declared ('values', 'bins'; NULL where nothing is), cells, values (in words).

        Raises:
            DPError: there is no such dataset for this account.
        """
        with self._audited("describe", dataset):
            return catalog.described(self._broker, dataset, self._grants())

    def releases(self) -> pa.Table:
        """The releases that the account may read, as dp_releases()."""
        return self._ask("dp_releases")

    def read_release(self, key: int | str) -> pa.Table:
        """The rows of a release that the account may read, by number or name; at no cost.

        Raises:
            DPError: there is none.
        """
        return self._ask("dp_release", key)

    def budget(self) -> pa.Table:
        """The account's grants, with what is spent and left of each, as dp_budget()."""
        return self._ask("dp_budget")

    def interrupt(self) -> None:
        """Stop what runs in the sandbox; what is charged goes on, and is kept."""
        self.close()

    def close(self) -> None:
        """End the session; tables that it had made are gone."""
        for box in list(self._boxes.values()):
            box.close()
        self._boxes.clear()

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
                "explore reads synthetic and public tables alone; ask for true answers with ask or run, and price them first."
            )
        asked = [self._asked(call, parameters, read) for call in read.calls]
        for each in asked:
            self._broker.check(each, self.account.role)  # all of them, before any is charged
        if read.calls:
            self._check_place(read)
        new = [each for each in asked if each.charges and not self._broker.known(each, *self._who)]
        if len(new) > 1:  # as the second might be refused when the first is charged
            raise DPError(
                f"{len(new)} calls of this statement have no answer yet, and nothing was charged; ask each by itself first, such as FROM "
                f"{new[0].sql[:300]}: then this statement reads what was paid, at no cost."
            )
        if read.calls and not read.alone and not all(self._broker.known(each, *self._who) for each in asked):
            # What the rest of the statement is wrong about is said before anything is charged.
            empty = [self._broker.schema(each, *self._who).empty_table() for each in asked]
            self._around(read, empty, parameters, explore=False, form="EXPLAIN {}")
        found = [self._paid(each) for each in asked]
        return found[0] if read.alone else self._around(read, found, parameters, explore=explore)

    def _paid(self, asked: Asked) -> pa.Table:
        try:
            return self._broker.ask(asked, *self._who)
        except Waiting as error:
            error.add_note(f"FROM {asked.sql}")  # which a steward decides about, whatever the statement called it
            raise

    def _check_place(self, read: Statement) -> None:
        """Refuse, before anything is charged, calls in what keeps no rows, and a table that is there already."""
        if statement.first_word(read.text) not in (*QUERIES, "create", "insert"):
            raise DPError("a dp_ call stands in a SELECT, or in CREATE TABLE ... AS; what it would cost, price says.")
        if statement.first_word(read.text) != "create":
            return
        created = _TABLE.match(read.text)
        if created is None:
            raise DPError("a dp_ call is kept by CREATE TABLE ... AS, and by no view or macro.")
        for name in statement.made(read.text) if not (created["kept"] or created["unless"]) else ():
            query = "SELECT count(*) FROM duckdb_tables() WHERE lower(table_name) = $p1"
            if self._box(read.names, OWN).run(query, {"p1": name}).column(0)[0].as_py():
                raise DPError(
                    f"there is a table {as_sql(name)} in this session; CREATE OR REPLACE TABLE makes it anew."
                )

    def _read(self, sql: str) -> Statement:
        most = self._gateway.config.limits.characters
        if not isinstance(sql, str) or len(sql) > most:
            raise DPError(f"a statement is a text of at most {most:,} characters.")
        if "\0" in sql:
            raise DPError("a statement has no character NUL.")
        return statement.read(sql)

    def _asked(self, call: statement.Call, parameters: Sequence[object], read: Statement) -> Asked:
        """The call with constants for its arguments; those that are computed are computed in the sandbox."""
        values: list[Any] = []
        for _, text in call.arguments:
            found = statement.constant(text)
            if found is None:
                known = _values(parameters, statement.used(text))
                try:
                    table = self._box(read.names, OWN).run(f"SELECT {text} AS value", known)
                except DPError as error:
                    raise DPError(f"{call.function}: the argument {as_sql(text)} is no constant: {error}") from None
                if table.num_rows != 1 or table.num_columns != 1:
                    raise DPError(f"{call.function}: the argument {as_sql(text)} is not one value.")
                try:
                    found = (table.column(0)[0].as_py(),)
                except UNREADABLE:
                    raise DPError(
                        f"{call.function}: the argument {as_sql(text)} is a value that no argument takes, such as 'infinity'."
                    ) from None
            values.append(found[0])
        names = (name for name, _ in call.arguments)
        return Asked(function=call.function, arguments=tuple(zip(names, values, strict=True)))

    def _around(
        self,
        read: Statement,
        found: Sequence[pa.Table],
        parameters: Sequence[object] | None,
        *,
        explore: bool,
        form: str = "{}",
    ) -> pa.Table:
        """What is left of a statement, in the sandbox, with a table in the place of each call."""
        with self._lock:
            box = self._box(read.names, EXPLORE if explore else self._place(read))
            tables = []
            for table in found:
                self._answers += 1
                tables.append(f"{ANSWER}{self._answers}")
                box.give(tables[-1], table)
            text = read.around(tables)
            numbers = statement.used(text)
            known = {f"p{n}": None for n in numbers} if parameters is None else _values(parameters, numbers)
            try:
                rows = box.run(form.replace("{}", text), known, charged=bool(found) and form == "{}")
            except DPError as error:
                raise self._taught(error) from None
            finally:
                for name in tables if box.alive else ():
                    box.drop(name)
        if form == "EXPLAIN {}":
            return rows
        return marked(rows) if explore or box.synthetic else rows

    def _place(self, read: Statement) -> str:
        """Which sandbox a statement is finished in.

        One that was given a synthetic table marks all that comes from it, whatever was made of its rows and under what name; so a
        query that names nothing of it but unchanged public tables is finished in another one, which is given no synthetic table.
        """
        words = read.names | {statement.first_word(read.text)}
        public = self._broker.public_tables().keys() - self._gateway.twins(self.account.name).keys()
        if statement.first_word(read.text) not in QUERIES or words & CHANGES:
            self._changed |= words & public
            return OWN
        own = self._boxes.get(OWN)
        if own is None or not own.alive or not own.synthetic or words & {"query", "query_table"}:
            return OWN
        there = {name for row in own.run(THERE, {}).to_pylist() for name in row.values()} - (public - self._changed)
        return OWN if words & (there | self._gateway.twins(self.account.name).keys()) else ANSWERS

    def _box(self, names: frozenset[str], place: str) -> Sandbox:
        """The sandbox, with those public and synthetic tables that a statement names."""
        box = self._boxes.get(place)
        if box is None or not box.alive:
            box = self._boxes[place] = Sandbox(self._gateway.config.limits)
            self._gateway.boxes.add(self.account.name, box)
        twins = self._gateway.twins(self.account.name)
        known = {**self._broker.public_tables(), **twins}
        if place == EXPLORE:
            known |= self._gateway.twins(self.account.name, by_dataset=True)
        for name in (names & known.keys()) - box.tables:
            box.give(name, self._broker.public(known[name]))
        box.synthetic = box.synthetic or not names.isdisjoint(twins)
        return box

    def _taught(self, error: DPError) -> DPError:
        """The error of a sandbox; where a dataset was read as a table, it says how to ask it."""
        missing = re.search(r"Table with name (\w+) does not exist", str(error))
        granted = {key[2].lower(): (key[2], row["synthetic"]) for key, row in self._grants().items()}
        if missing is None or missing[1].lower() not in granted:
            return error
        name, twin = granted[missing[1].lower()]
        explored = "" if twin is None else " Its synthetic table can be explored freely."
        return DPError(
            f"the rows of '{name}' stay where they are; ask of them: FROM dp_sql('SELECT count(*) AS n FROM {name}', "
            f"epsilon := 0.1).{explored}"
        )

    def _budgets(self) -> list[dict[str, Any]]:
        return self._broker.ledger.asked_by(self.account.name).budget_rows()

    def _grants(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        rows = self._broker.ledger.accounts.grants(self.account.name)
        return {(row["catalog"], row["schema"], row["dataset"]): row for row in rows}

    @contextmanager
    def _audited(self, kind: str, text: str) -> Iterator[None]:
        """While a block runs, a statement runs: within the account's limits, and with a row in the audit."""
        began = time.monotonic()
        outcome, detail, request = "failed", None, None
        try:
            with self._gateway.turnstile.admitted(self.account.name):
                yield
            outcome = "answered"
        except DPError as error:
            if isinstance(error, Waiting):
                request, text, kind = waits(str(error)), getattr(error, "__notes__", [text])[0], "run"
            outcome, detail = ("waiting" if isinstance(error, Waiting) else "refused"), str(error)[:500]
            raise
        except Exception as error:
            told = self._gateway.log.unforeseen(error, account=self.account.name)
            detail = str(told)
            raise told from None
        finally:
            seconds = time.monotonic() - began
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


def _values(parameters: Sequence[object], numbers: Sequence[int]) -> Mapping[str, object]:
    """The values of parameters by their names in a statement."""
    if numbers and not 0 < numbers[-1] <= len(parameters):
        raise DPError(f"the statement has a parameter {numbers[-1]}, and {len(parameters)} values were given.")
    return {f"p{number}": parameters[number - 1] for number in numbers}
