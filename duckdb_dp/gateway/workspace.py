"""The sandboxes of a session: what is around the dp_ calls of its statements runs there, with their answers as tables."""

import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, final

import pyarrow as pa

from duckdb_dp.errors import DPError
from duckdb_dp.gateway import catalog, statement, taught
from duckdb_dp.gateway.placed import DESCRIBING, QUERIES
from duckdb_dp.gateway.sandbox import Sandbox
from duckdb_dp.gateway.statement import Statement
from duckdb_dp.gateway.values import marked

if TYPE_CHECKING:
    from duckdb_dp.gateway.gateway import Gateway  # for its type: a gateway makes the sessions

OWN, EXPLORE, ANSWERS = "own", "explore", "answers"
"""The sandboxes of a session."""

EXPLAINING = (*DESCRIBING, "explain", "show", "summarize")
"""First words of statements that say something of what there is; they are not explained in turn, and change nothing either."""

CHANGES = frozenset({"insert", "update", "delete", "merge", "create", "drop", "alter"})

THERE = """SELECT lower(name) AS name FROM (SELECT table_name AS name FROM duckdb_tables() UNION ALL
    SELECT view_name FROM duckdb_views() WHERE NOT internal UNION ALL SELECT function_name FROM duckdb_functions() WHERE NOT internal)"""
"""What a sandbox holds that a statement may name."""


@final
class Workspace:
    """Its statements run one after the other where they share tables.

    Args:
        gateway: whose public and synthetic tables there are.
        account: whose session it is.
    """

    def __init__(self, gateway: "Gateway", account: str) -> None:
        self._gateway, self._account = gateway, account
        self._lock = threading.Lock()
        self.boxes: dict[str, Sandbox] = {}
        """Its own, one to explore, and one for answers once its own has synthetic rows."""
        self._changed: set[str] = set()  # public tables whose copies were

    def computed(self, read: Statement, text: str, parameters: Mapping[str, object]) -> pa.Table:
        """An expression of a statement, as a table of one column.

        Raises:
            DPError: DuckDB refuses it.
        """
        return self._box(read.names, OWN).run(f"SELECT {text} AS value", parameters)

    def holds(self, read: Statement, table: str) -> bool:
        """Whether there is a table of the session's own of that name."""
        query = "SELECT count(*) AS n FROM duckdb_tables() WHERE lower(table_name) = $p1"
        return bool(self._box(read.names, OWN).run(query, {"p1": table}).column(0)[0].as_py())

    def made(self) -> set[str]:
        """The tables that the session has made, in small letters."""
        own = self.boxes.get(OWN)
        if own is None or not own.alive:
            return set()
        names = own.run("SELECT lower(table_name) AS name FROM duckdb_tables()", {}).column(0).to_pylist()
        return {*names} - own.tables

    def around(
        self,
        read: Statement,
        found: Sequence[pa.Table],
        parameters: Sequence[object] | None,
        *,
        explore: bool,
        form: str = "{}",
        tried: bool = False,
    ) -> pa.Table:
        """What is left of a statement, in the sandbox, with a table in the place of each call.

        Args:
            read: the statement.
            found: the rows of its calls.
            parameters: of the statement; None where they are not known.
            explore: whether names of datasets are those of their synthetic tables.
            form: what is run, with the statement in the place of {}.
            tried: whether what it makes or changes is undone, and errors say that nothing was charged.

        Raises:
            DPError: it is refused.
        """
        with self._lock:
            place = self._place(read, EXPLORE if explore else OWN)
            box = self._box(read.names, place)
            tables = read.tables
            text = read.around([".".join(table) for table in tables])
            numbers = statement.used(text)
            known = {f"p{n}": None for n in numbers} if parameters is None else named(parameters, numbers)
            try:
                for (schema, name), rows in zip(tables, found, strict=True):
                    box.give(name, rows, schema)
                text, paid = form.replace("{}", text), bool(found) and form == "{}"
                answer = box.run(text, known, charged=paid, undone=tried)
            except DPError as error:
                told = self._taught(error, read, found) or (DPError(taught.tried(str(error))) if tried else error)
                raise told from None
            finally:
                for schema, name in tables if box.alive else ():
                    box.drop(name, schema)
        if form == "EXPLAIN {}":
            return answer
        return marked(answer) if place == EXPLORE or box.synthetic else answer

    def _place(self, read: Statement, home: str) -> str:
        """Which sandbox a statement is finished in that belongs to one of the first two.

        One that was given a synthetic table marks all that comes from it, whatever was made of its rows and under what name; so a
        query that names nothing of it but unchanged public tables is finished in another one, which is given no synthetic table.
        """
        first = statement.first_word(read.text)
        words, twins = read.names | {first}, {*self._gateway.twins(self._account)}
        if home == EXPLORE:
            twins |= self._gateway.twins(self._account, by_dataset=True).keys()
        public = self._gateway.broker.public_tables().keys() - twins
        if first not in (*QUERIES, *EXPLAINING) or words & CHANGES:
            self._changed |= words & public
            return home
        own = self.boxes.get(home)
        own = own if own is not None and own.alive else None
        clean = home == OWN and (own is None or not own.synthetic)
        if clean or first == "show" or words & {"query", "query_table"}:
            return home
        made = [] if own is None else own.run(THERE, {}).to_pylist()
        there = {name for row in made for name in row.values()} - (public - self._changed)
        return home if words & (there | twins) else ANSWERS

    def _box(self, names: frozenset[str], place: str) -> Sandbox:
        """The sandbox, with those public and synthetic tables that a statement names."""
        box = self.boxes.get(place)
        if box is None or not box.alive:
            box = self.boxes[place] = Sandbox(self._gateway.config.limits)
            self._gateway.boxes.add(self._account, box)
        twins = self._gateway.twins(self._account)
        known = {**self._gateway.broker.public_tables(), **twins}
        synthetic = set(twins.values())
        if place == EXPLORE:
            known |= self._gateway.twins(self._account, by_dataset=True)
        for name in (names & known.keys()) - box.tables:
            box.give(
                name,
                (self._gateway.broker.synthetic if known[name] in synthetic else self._gateway.broker.public)(
                    known[name]
                ),
            )
        box.synthetic = box.synthetic or not names.isdisjoint(twins)
        return box

    def _names_twin(self, sql: str) -> bool:
        """Whether a statement names a synthetic table, or the dataset of one."""
        words = {word.lower() for word in re.findall(r"\w+", sql)}
        twins = self._gateway.twins(self._account).keys() | self._gateway.twins(self._account, by_dataset=True).keys()
        return not words.isdisjoint(twins)

    def _taught(self, error: DPError, read: Statement, found: Sequence[pa.Table]) -> DPError | None:
        """The error of a sandbox about a statement in words of what the account has; None where it is about something else."""
        text, answers = str(error), [table.column_names for table in found]
        grants = {(row["catalog"], row["schema"], row["dataset"]): row for row in self._gateway.grants(self._account)}
        named = catalog.tables(self._gateway.broker, grants).items()
        granted = {name.lower(): (name, grants[whole]["twin"]) for whole, names in named for name in names}
        readable = sorted(
            {*self._gateway.broker.public_tables(), *self._gateway.twins(self._account), *self.made()} - granted.keys()
        )
        said = (
            taught.used_as_value(text)
            or taught.no_column(text, read, answers, self._names_twin(read.text))
            or taught.no_table(text, read, granted, readable)
        )
        return None if said is None else DPError(said)

    def close(self) -> None:
        """End them; tables that were made there are gone."""
        for box in list(self.boxes.values()):
            box.close()
        self.boxes.clear()


def named(parameters: Sequence[object], numbers: Sequence[int]) -> Mapping[str, object]:
    """The values of parameters by their names in a statement.

    Raises:
        DPError: there is no such parameter.
    """
    if numbers and not 0 < numbers[-1] <= len(parameters):
        raise DPError(f"the statement has a parameter {numbers[-1]}, and {len(parameters)} values were given.")
    return {f"p{number}": parameters[number - 1] for number in numbers}
