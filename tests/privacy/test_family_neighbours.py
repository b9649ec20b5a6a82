"""Databases of several tables with and without one unit: of each table at most its bound of rows goes, and no other unit's changes.

Random schemas are compared with owners that Python finds by hand: chains of tables with and without constraints, keys that
repeat, are NULL or lead nowhere, texts under a collation that takes some of them for one, and units with and without a table.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded

Row = dict[str, Any]


@dataclass
class Table:
    """A table of a random schema; its owner is the parent's, or its own column's."""

    name: str
    parent: "Table | None"
    column: str
    keyed: bool
    enforced: bool
    bound: int
    rows: list[Row] = field(default_factory=list)


class Schema:
    """Random tables with rows: ``id`` is a key, ``x`` an attribute, ``ref`` or ``person`` leads to the unit."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.seed, self.kind = seed, ["table", "public", "column"][seed % 3]
        self.text = rng.random() < 0.5
        self.names = ["a", "A", "b", "c", "d", "e"] if self.text else list(range(6))
        self.tables: list[Table] = []
        self.firm = 0.0 if self.text else rng.choice([0.0, 0.5, 1.0])
        keyed = rng.random() < self.firm
        if self.kind != "column":
            self.tables.append(Table(f"people{seed}", None, "id", keyed, False, 1 if keyed else 9))
            unique = range(len(self.names)) if keyed else [rng.randrange(len(self.names)) for _ in range(8)]
            self.tables[0].rows = [{"id": self.names[i], "x": self.value(), "ref": None} for i in unique]
        for place in range(rng.randint(2, 3)):
            self.add(place)

    def value(self) -> int | None:
        return self.rng.choice([0, 1, 2, 3, 7, None])

    def add(self, place: int) -> None:
        """A table with a PRIMARY KEY or not, and a FOREIGN KEY or a declared one."""
        rng = self.rng
        own = self.kind == "column" and (place == 0 or rng.random() < 0.4)
        parent = None if own else rng.choice(self.tables)
        keyed = rng.random() < self.firm
        enforced = parent is not None and parent.keyed and rng.random() < max(self.firm, 0.7)
        keys = [row["id"] for row in parent.rows] if parent else self.names
        keys = (
            [key for key in keys if key is not None]
            if enforced
            else [*keys, None, *([] if parent is None else [self.far])]
        )
        table = Table(f"t{self.seed}_{place}", parent, "ref", keyed, enforced, rng.choice([1, 2, 5, 50]))
        for i in range(rng.randint(10, 30)):
            ident = i if keyed or rng.random() < 0.8 else rng.choice([0, 1, None])
            table.rows.append({"id": self.key(ident), "x": self.value(), "ref": rng.choice([*keys, None])})
        self.tables.append(table)

    @property
    def far(self) -> Any:
        return "far" if self.text else 77

    def key(self, number: int | None) -> Any:
        return None if number is None else f"k{number}" if self.text else number

    def owners(self, table: Table, row: Row) -> set[Any]:
        """The units that a row is of."""
        key = row["id"] if table.name.startswith("people") else row["ref"]
        if key is None or table.parent is None:
            return set() if key is None else {key}
        found: set[Any] = set()
        return found.union(*(self.owners(table.parent, one) for one in table.parent.rows if one["id"] == key))

    def without(self, unit: Any) -> dict[str, list[Row]]:
        """The rows that stay when a unit leaves: those that are of nobody, or of another one too."""
        return {
            table.name: [row for row in table.rows if self.owners(table, row) != {unit} or self.is_public(table)]
            for table in self.tables
        }

    def only(self, unit: Any) -> dict[str, list[Row]]:
        """One unit's rows alone."""
        return {
            table.name: [row for row in table.rows if self.is_public(table) or unit in self.owners(table, row)]
            for table in self.tables
        }

    def is_public(self, table: Table) -> bool:
        return self.kind == "public" and table.name.startswith("people")

    @property
    def members(self) -> list[Table]:
        return [table for table in self.tables if not self.is_public(table)]

    def create(self, db: Loaded) -> None:
        """The tables, declared."""
        type_ = "VARCHAR COLLATE NOCASE" if self.text else "INTEGER"
        for table in self.tables:
            column = "userid" if table.parent is None and not table.name.startswith("people") else "ref"
            key = " PRIMARY KEY" if table.keyed else ""
            refers = f" REFERENCES {table.parent.name} (id)" if table.enforced and table.parent else ""
            db(f"CREATE TABLE {table.name} (id {type_}{key}, x INTEGER, {column} {type_}{refers})")
            table.column = column
        for table in self.tables:
            if table.parent is not None and not table.enforced:
                db(f"CALL dp_link('{table.name}', \"references\" := {{'ref': '{table.parent.name}.id'}})")
        if self.kind == "public":
            db(f"CALL dp_public('{self.tables[0].name}')")
        names = [table.name for table in self.members]
        self.rng.shuffle(names)
        unit = "userId" if self.kind == "column" else f"{self.tables[0].name}.id"
        bounds = ", ".join(f"'{table.name}': {table.bound}" for table in self.members)
        db(f"CALL dp_protect({names}, unit := '{unit}', max_rows := {{{bounds}}}, rho := 9e8, another := true)")
        for table in self.members:
            db(f"CALL dp_attribute('{table.name}', 'x', low := 0, high := 2, other := true, nulls := true)")

    def fill(self, db: Loaded, rows: dict[str, list[Row]]) -> None:
        """Put these rows into the tables, in place of others."""
        for table in reversed(self.tables):
            db(f"DELETE FROM {table.name}")
        for table in self.tables:
            given = rows[table.name]
            self.rng.shuffle(given)
            if given:
                marks = ", ".join(["(?, ?, ?)"] * len(given))
                values = [row[name] for row in given for name in ("id", "x", "ref")]
                db(f"INSERT INTO {table.name} VALUES {marks}", values)

    def counts(self, db: Loaded, table: Table) -> Counter[Any]:
        """How many rows of each value count, without noise."""
        asked = f"FROM dp_marginals('{table.name}', ['x'], rho := 1e3, fresh := true)"
        return Counter({x: round(count) for x, count in db(f"SELECT x, count {asked}")})

    def owned(self, table: Table) -> Counter[Any]:
        """How many rows of the table each unit has."""
        return Counter(owner for row in table.rows for owner in self.owners(table, row))


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """A database without noise."""
    folder = tmp_path_factory.mktemp("families") / "l.dp"
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, folder)
        yield Loaded(con, folder)


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(20))
def test_one_unit_less(db: Loaded, seed: int) -> None:
    """Each unit's rows count up to the bound; without one unit, its rows go, and nobody else's come or go."""
    schema = Schema(seed)
    schema.create(db)
    schema.fill(db, {table.name: list(table.rows) for table in schema.tables})
    before = {table.name: schema.counts(db, table) for table in schema.members}
    for table in schema.members:
        assert sum(before[table.name].values()) == sum(min(n, table.bound) for n in schema.owned(table).values())
    for unit in schema.rng.sample(schema.names, 3):
        schema.fill(db, schema.without(unit))
        for table in schema.members:
            gone = schema.counts(db, table)
            gone.subtract(before[table.name])
            assert max(gone.values()) <= 0
            assert -sum(gone.values()) == min(schema.owned(table)[unit], table.bound)


JOINS = [
    "SELECT c.x FROM {c} c JOIN {p} p ON c.ref = p.id",
    "SELECT c.x FROM {c} c LEFT JOIN {p} p ON c.ref = p.id WHERE p.x > 0 OR p.x IS NULL",
    "SELECT p.x FROM {p} p WHERE EXISTS (SELECT 1 FROM {c} c WHERE c.ref = p.id AND c.x > 0)",
    "SELECT max(c.x) AS x FROM {c} c JOIN {p} p ON c.ref = p.id GROUP BY p.id",
    "SELECT count(*)::INTEGER AS x FROM {c} GROUP BY ref",
    "SELECT a.x FROM {c} a JOIN {c} b ON a.id = b.id",
    "SELECT a.x FROM {c} a JOIN {c} b ON a.ref = b.ref",
    "SELECT a.x FROM {c} a JOIN {p} p ON a.ref = p.id JOIN {c} b ON b.ref = p.id",
    "SELECT x FROM {c} UNION ALL SELECT x FROM {p}",
]


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(100, 112))
def test_a_view_is_the_sum_of_its_units(db: Loaded, seed: int) -> None:
    """What a view that is not refused counts of all units is what it counts of each alone, added up: no unit's rows change others'."""
    schema = Schema(seed)
    schema.create(db)
    views = []
    members = {table.name for table in schema.members}
    for child in schema.members:
        if child.parent is None or child.parent.name not in members:
            continue
        for number, join in enumerate(JOINS):
            name = f"v{seed}_{child.name}_{number}"
            try:
                db(f"CALL dp_view('{name}', '{join.format(c=child.name, p=child.parent.name)}', max_rows := 5000)")
                db(f"CALL dp_attribute('{name}', 'x', low := 0, high := 3, other := true, nulls := true)")
                views.append(Table(name, None, "", False, False, 5000))
            except duckdb.Error as error:
                assert not any(fault in str(error) for fault in ("internal error", "not among the functions"))
    schema.fill(db, {table.name: list(table.rows) for table in schema.tables})
    together = {view.name: schema.counts(db, view) for view in views}
    apart: dict[str, Counter[Any]] = {view.name: Counter() for view in views}
    for unit in [*schema.names, schema.far]:
        schema.fill(db, schema.only(unit))
        for view in views:
            apart[view.name].update(schema.counts(db, view))
    assert together == apart
