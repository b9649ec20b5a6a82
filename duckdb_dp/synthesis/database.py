"""The schema for synthesis: tables, keys and foreign keys, and the order in which tables are made; no data."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from duckdb_dp.errors import DPError, as_sql, few

Name = tuple[str, str, str]
"""Catalog, schema and table."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A foreign key: some columns of a table that hold the key of another one, or of the table itself.

    Attributes:
        columns: the columns.
        parent: full name of the table that they refer to.
        key: the columns of the parent, in the same order.
        role: the name of the reference: the parent's name, or the columns' names where two references have the same parent.
    """

    columns: tuple[str, ...]
    parent: Name
    key: tuple[str, ...]
    role: str

    def __post_init__(self) -> None:
        if not self.columns or len(self.columns) != len(self.key):
            raise DPError(
                f"the reference of {as_sql(self.columns)} to {as_sql(self.key)} of '{self.parent[2]}' is not one column "
                "for one: name as many columns as the key has."
            )

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"columns": list(self.columns), "parent": list(self.parent), "key": list(self.key), "role": self.role}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Reference":
        """The inverse of ``to_json``."""
        catalog, schema, table = data["parent"]
        return cls(
            columns=tuple(data["columns"]), parent=(catalog, schema, table), key=tuple(data["key"]), role=data["role"]
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table's columns and constraints: public facts.

    Attributes:
        name: its full name.
        columns: column -> type, in order.
        required: columns that are never NULL.
        keys: column sets that no two rows share, the primary key first.
        believed: column sets to which others refer as to keys, though no constraint keeps rows apart in them.
        references: its foreign keys.
        primary: the primary key; () where there is none.
        checks: (columns, condition) of every CHECK.
        defaults: column -> the default that it has.
        view: whether it is a view.
    """

    name: Name
    columns: Mapping[str, str]
    required: frozenset[str] = frozenset()
    keys: tuple[tuple[str, ...], ...] = ()
    believed: tuple[tuple[str, ...], ...] = ()
    references: tuple[Reference, ...] = ()
    primary: tuple[str, ...] = ()
    checks: tuple[tuple[tuple[str, ...], str], ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    view: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key, or the first unique one; () where there is none."""
        return self.keys[0] if self.keys else ()

    def distinct(self, columns: Iterable[str]) -> bool:
        """Whether no two rows can agree in these columns."""
        given = {column.lower() for column in columns}
        return any({column.lower() for column in key} <= given for key in self.keys)


def tables(columns: Sequence[Mapping[str, Any]], constraints: Sequence[Mapping[str, Any]]) -> dict[Name, Table]:
    """Tables from the rows of duckdb_columns() and duckdb_constraints().

    Args:
        columns: catalog, schema, table, column, type, default, view.
        constraints: catalog, schema, table, kind ('PRIMARY KEY', ...), columns, parent, key, condition.
    """
    described: dict[Name, list[Mapping[str, Any]]] = {}
    for row in columns:
        described.setdefault((row["catalog"], row["schema"], row["table"]), []).append(row)
    ruled: dict[Name, list[Mapping[str, Any]]] = {}
    for row in constraints:
        ruled.setdefault((row["catalog"], row["schema"], row["table"]), []).append(row)
    return {name: _table(name, rows, ruled.get(name, [])) for name, rows in described.items()}


def _table(name: Name, columns: Sequence[Mapping[str, Any]], constraints: Sequence[Mapping[str, Any]]) -> Table:
    def of(kind: str) -> list[Mapping[str, Any]]:
        return [row for row in constraints if row["kind"] == kind]

    catalog, schema, _ = name
    # A table's foreign keys stay within its schema: DuckDB knows no others.
    pairs = [
        (tuple(row["columns"]), (catalog, schema, row["parent"]), tuple(row["key"]))
        for row in of("FOREIGN KEY")
        if row["parent"] and row["columns"]  # DuckDB 1.4 says nothing of a table's references to itself
    ]
    return Table(
        name=name,
        columns={row["column"]: row["type"] for row in columns},
        required=frozenset(row["columns"][0] for row in of("NOT NULL")),
        keys=tuple(tuple(row["columns"]) for row in [*of("PRIMARY KEY"), *of("UNIQUE")]),
        references=with_roles(name, pairs),
        primary=next((tuple(row["columns"]) for row in of("PRIMARY KEY")), ()),
        checks=tuple((tuple(row["columns"]), row["condition"]) for row in of("CHECK") if row["condition"]),
        defaults={row["column"]: row["default"] for row in columns if row["default"] not in (None, "NULL")},
        view=bool(columns[0]["view"]),
    )


def with_roles(name: Name, pairs: Iterable[tuple[tuple[str, ...], Name, tuple[str, ...]]]) -> tuple[Reference, ...]:
    """References from (columns, parent, key), each with its role, in the order given.

    The role is the parent's name; where two references have the same parent, or the parent is the table itself, it is the
    columns' names, joined by '_'.
    """
    given = list(dict.fromkeys(pairs))
    folded = [tuple(part.lower() for part in parent) for _, parent, _ in given]
    itself = tuple(part.lower() for part in name)
    return tuple(
        Reference(
            columns=columns,
            parent=parent,
            key=key,
            role="_".join(columns) if folded.count(same) > 1 or same == itself else parent[2],
        )
        for (columns, parent, key), same in zip(given, folded, strict=True)
    )


def is_link(table: Table, known: Iterable[Table]) -> bool:
    """Whether a table links two others, many to many: it has two foreign keys and no other table refers to it.

    Each row of another table with foreign keys belongs to one row of each parent.
    """
    return len(table.references) == 2 and not any(
        _same(reference.parent, table.name) for other in known for reference in other.references
    )


def parents_first(known: Sequence[Table]) -> list[Table]:
    """The tables in an order in which each comes after those that it refers to, other than itself.

    Raises:
        DPError: their references form a cycle.
    """
    left, placed = list(known), list[Table]()
    while left:
        ready = [table for table in left if not any(_refers(table, other) for other in left if other is not table)]
        if not ready:
            names = few(repr(table.name[2]) for table in left)
            raise DPError(
                f"the foreign keys of {names} form a cycle, so no table can be made first; leave one of them out with "
                "tables := [...], or make them one by one with dp_synthesize and dp_links."
            )
        placed += ready
        left = [table for table in left if table not in ready]
    return placed


def _refers(table: Table, other: Table) -> bool:
    return any(_same(reference.parent, other.name) for reference in table.references)


def _same(one: Name, other: Name) -> bool:
    return tuple(part.lower() for part in one) == tuple(part.lower() for part in other)


def refers_by_keys(parent: Table, tables: Sequence[Table]) -> bool:
    """Whether all columns that tables refer to are a key, as links need."""
    return all(parent.distinct(r.key) for table in tables for r in table.references if r.parent == parent.name)


def with_referred_keys(tables: Sequence[Table]) -> list[Table]:
    """The tables, with what others refer to as a key: synthetic rows are numbered by it, whether the original has it or not.

    What the original does not have is ``believed`` too.
    """
    found = []
    for table in tables:
        referred = [r.key for other in tables for r in other.references if r.parent == table.name != other.name]
        known = [set(key) for key in table.keys]
        more = tuple(key for key in dict.fromkeys(referred) if set(key) not in known)
        found.append(replace(table, keys=(*table.keys, *more), believed=more))
    return found


def with_kept_keys(table: Table, valued: Collection[str]) -> Table:
    """The table with the keys that its synthetic rows must have: those of constraints, and those that number rows.

    Rows whose believed key is drawn are kept, whether others have the same one or not.

    Args:
        table: the table.
        valued: its columns that are drawn, and number no rows.
    """
    repeated = tuple(key for key in table.believed if {*key} <= {*valued})
    return replace(table, keys=tuple(key for key in table.keys if key not in repeated), believed=repeated)


def number_columns(table: Table, tables: Sequence[Table]) -> tuple[str, ...]:
    """The columns that number a table's rows: its key, or what others refer to."""
    referred = [reference.key for other in tables for reference in other.references if reference.parent == table.name]
    return tuple(dict.fromkeys([*table.key, *(column for key in referred for column in key)]))
