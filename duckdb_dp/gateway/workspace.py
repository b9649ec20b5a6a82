"""The sandboxes of a session: what is around the dp_ calls of its statements runs there, with their answers as tables."""

import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, final

import pyarrow as pa

from duckdb_dp.counting.encode import literal
from duckdb_dp.errors import DPError
from duckdb_dp.gateway import catalog, statement
from duckdb_dp.gateway.sandbox import Sandbox
from duckdb_dp.gateway.statement import Statement
from duckdb_dp.gateway.values import marked

if TYPE_CHECKING:
    from duckdb_dp.gateway.gateway import Gateway  # for its type: a gateway makes the sessions

OWN, EXPLORE, ANSWERS = "own", "explore", "answers"
"""The sandboxes of a session."""

QUERIES = ("select", "from", "with", "pivot", "(")
"""First words of statements that make nothing, unless there is one of ``CHANGES`` in them."""

EXPLAINING = ("desc", "describe", "explain", "show", "summarize")
"""First words of statements that say something of what there is; they are not explained in turn, and change nothing either."""

CHANGES = frozenset({"insert", "update", "delete", "merge", "create", "drop", "alter"})

READ = "stay where they are"
"""What is said of a dataset that is read as a table."""

SHOWN = 200
"""Characters of a statement that an error repeats."""

KEPT = "; what was paid is kept, and read again at no cost"

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
    ) -> pa.Table:
        """What is left of a statement, in the sandbox, with a table in the place of each call."""
        with self._lock:
            place = self._place(read, EXPLORE if explore else OWN)
            box = self._box(read.names, place)
            tables = read.tables
            text = read.around([".".join(table) for table in tables])
            numbers = statement.used(text)
            known = {f"p{n}": None for n in numbers} if parameters is None else named(parameters, numbers)
            paid = bool(found) and form == "{}"
            try:
                for (schema, name), rows in zip(tables, found, strict=True):
                    box.give(name, rows, schema)
                answer = box.run(form.replace("{}", text), known, charged=paid)
            except DPError as error:
                raise self._taught(error, read.text, KEPT if paid else "") from None
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

    def _taught(self, error: DPError, sql: str, kept: str) -> DPError:
        """The error of a sandbox about a statement; where a dataset was read as a table, or a function as a value, how to ask it."""
        text = str(error)
        used = re.search(r'Referenced (?:column|table) "(dp_\w+|dp\d*)"', text)
        if used is not None:
            return DPError(
                "a dp_ function returns rows, as a table does: write FROM before it, as in FROM dp_budget()."
            )
        unknown = re.search(r'Referenced column "(\w+)" not found', text)
        if unknown is not None and sql.lower().find(unknown[1].lower()) >= 0 and self._names_twin(sql):
            return DPError(
                f"the synthetic table has no column '{unknown[1]}'; it has those that are declared, which a description of it lists."
            )
        missing = re.search(r"Table with name (\w+) does not exist", text)
        grants = {(row["catalog"], row["schema"], row["dataset"]): row for row in self._gateway.grants(self._account)}
        named = catalog.tables(self._gateway.broker, grants).items()
        granted = {name.lower(): (name, grants[whole]["twin"]) for whole, names in named for name in names}
        if missing is None or missing[1].lower() not in granted:
            return DPError(f"{text.rstrip('.')}{kept}.") if kept else error
        name, twin = granted[missing[1].lower()]
        explored = "" if twin is None else f" Its synthetic rows, {twin}, can be explored freely."
        own = " ".join(sql.split())
        plain = statement.first_word(sql) == "select" and "(" in sql and "dp_" not in sql and len(own) <= SHOWN
        asked = own if plain else f"SELECT count(*) AS n FROM {name}"
        return DPError(
            f"the rows of '{name}' {READ}; ask of them: FROM dp_sql({literal(asked)}, epsilon := 0.1).{explored}"
        )

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
