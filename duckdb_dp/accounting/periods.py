"""Tables with a budget for each closed period: the rule, and the periods, each a dataset of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, final

from duckdb_dp.accounting import tables
from duckdb_dp.accounting.database import Database
from duckdb_dp.accounting.families import Name
from duckdb_dp.accounting.records import Dataset
from duckdb_dp.budget import Budget
from duckdb_dp.domain.periods import Period
from duckdb_dp.errors import DPError
from duckdb_dp.version import __version__


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a table is cut into periods, as it was declared.

    Attributes:
        time_column: says when a row belongs.
        every: 'day', 'week', 'month', 'quarter' or 'year'.
        place: catalog and schema of the periods' tables.
        start: a day of the first period.
    """

    time_column: str
    every: str
    place: tuple[str, str]
    start: date

    @property
    def fixed(self) -> tuple[object, ...]:
        """What stays as it was declared: an earlier start adds periods, and changes none."""
        return self.time_column.lower(), self.every, *(part.lower() for part in self.place)

    def to_json(self) -> str:
        """Plain text for the ledger."""
        return json.dumps([self.time_column, self.every, *self.place, self.start.isoformat()])

    @classmethod
    def from_json(cls, text: str) -> Rule:
        """The inverse of ``to_json``."""
        time_column, every, catalog, schema, start = json.loads(text)
        return cls(time_column=time_column, every=every, place=(catalog, schema), start=date.fromisoformat(start))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A period that is closed, with its dataset."""

    period: Period
    dataset: Dataset


@final
class Periods:
    """Periods of tables of one ledger.

    Args:
        database: the ledger's.

    Raises:
        DPError: as the ledger's methods do.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def check(self, name: Name, rule: Rule, declared: dict[str, Any]) -> Dataset | None:
        """The table as it was declared; None where it is new.

        Raises:
            DPError: it was declared in another way.
        """
        with self._database.reading() as db:
            existing = tables.find_dataset(db, *name)
        if existing is None:
            return None
        if existing.rule is None:
            raise DPError(
                f"'{existing.name}' is protected already with one budget for all its rows, and a declaration stays: its periods would be a "
                "second budget for them. Ask for periods of a table that is not protected."
            )
        same = all(getattr(existing, field) == value for field, value in declared.items())
        if not same or Rule.from_json(existing.rule).fixed != rule.fixed:
            known = Rule.from_json(existing.rule)
            raise DPError(
                f"{existing}, by {known.time_column} every {known.every} in {'.'.join(known.place)}, is declared already, and a "
                "declaration stays: repeat it as it is."
            )
        return existing

    def declare(self, name: Name, rule: Rule, budget: Budget, declared: dict[str, Any]) -> Dataset:
        """Declares that each closed period of a table has a budget, once and for all; the same again changes nothing.

        Args:
            name: the table, which has no budget of its own.
            rule: how it is cut.
            budget: all that may ever be spent on one period.
            declared: as ``tables.declaration`` has it.

        Privacy: states a bound; spends nothing.
        """
        with self._database.writing("nothing was declared") as db:
            if tables.find_dataset(db, *name) is None:
                made = tables.insert_dataset(db, name, budget, declared, neighbours(declared, "one period"))
                tables.insert(db, "periods", dataset=made.id, spec=rule.to_json())
        found = self.check(name, rule, declared)
        assert found is not None
        return found

    def close(self, whole: Dataset, made: Sequence[tuple[Name, Period]]) -> None:
        """Declares the tables of periods that are over; those that are declared stay as they are.

        Raises:
            DPError: a name is another table's.
        """
        with self._database.writing("no period was closed") as db:
            for name, period in made:
                if tables.find_dataset(db, *name) is None:
                    self._insert(db, whole, name, period)

    def _insert(self, db: Any, whole: Dataset, name: Name, period: Period) -> None:
        tables.check_not_public(db, name)
        same = ("unit", "max_rows", "auto_rows", "budget", "epsilon", "delta", "rho", "mu", "discovery_delta")
        declared = {field: getattr(whole, field) for field in same}
        tables.insert(
            db,
            "datasets",
            **dict(zip(("catalog", "schema", "name"), name, strict=True)),
            **declared,
            accounting=whole.accounting.name,
            neighbours=neighbours(declared, period.label),
            version=__version__,
        )
        dataset = tables.find_dataset(db, *name)
        assert dataset is not None
        spec = json.dumps([period.every, period.begins.isoformat(), period.ends.isoformat()])
        tables.insert(db, "periods", dataset=whole.id, period=dataset.id, spec=spec)

    def of(self, whole: Dataset) -> list[Closed]:
        """The closed periods of a table, in their order."""
        query = "SELECT d.catalog, d.schema, d.name, p.spec FROM periods p JOIN datasets d ON d.id = p.period WHERE p.dataset = ?"
        with self._database.reading() as db:
            found = [
                Closed(period=_period(row["spec"]), dataset=dataset)
                for row in db.execute(query, (whole.id,)).fetchall()
                if (dataset := tables.find_dataset(db, row["catalog"], row["schema"], row["name"])) is not None
            ]
        return sorted(found, key=lambda one: one.period.begins)

    def whole(self, dataset: Dataset) -> str | None:
        """The name of the table that a dataset is a period of; None where it is none."""
        query = "SELECT d.name FROM periods p JOIN datasets d ON d.id = p.dataset WHERE p.period = ?"
        with self._database.reading() as db:
            row = db.execute(query, (dataset.id,)).fetchone()
        return None if row is None else str(row["name"])


def check_whole(dataset: Dataset) -> None:
    """Refuses to protect a table as a whole whose periods have budgets."""
    if dataset.rule is not None:
        raise DPError(
            f"'{dataset.name}' has a budget for each of its closed periods, and a declaration stays: one for all its rows would be a "
            "second one. CALL dp_period closes further periods."
        )


def _period(spec: str) -> Period:
    every, begins, ends = json.loads(spec)
    return Period(every=every, begins=date.fromisoformat(begins), ends=date.fromisoformat(ends))


def neighbours(declared: dict[str, Any], which: str) -> str:
    """Which two tables are neighbours, in words: of a period, or of several."""
    return f"{tables.neighbours(declared['unit'], declared['max_rows'], auto_rows=declared['auto_rows'])} of {which}"
