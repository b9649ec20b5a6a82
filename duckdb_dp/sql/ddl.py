"""Synthetic tables with the columns, types, keys and constraints of the original ones, as far as they can hold."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from duckdb_dp.data.encode import quote
from duckdb_dp.relational.schema import Reference, Table


@final
@dataclass(slots=True, kw_only=True)
class Target:
    """What becomes of one table.

    Attributes:
        table: the original.
        filled: columns that get values.
        references: foreign keys that are filled.
        notes: what is different from the original.
    """

    table: Table
    filled: tuple[str, ...]
    references: tuple[Reference, ...]
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the synthetic table: those that are filled, and those that may be NULL or have a default."""
        kept = {}
        filled = {name.lower() for name in self.filled}
        for name, type_ in self.table.columns.items():
            required = name in self.table.required and name not in self.table.defaults
            if name.lower() in filled or not required:
                kept[name] = type_
        return kept

    @property
    def generated(self) -> set[str]:
        """Columns that the database works out from others: the catalog shows how as if it were a default."""
        names = "|".join(map(re.escape, self.table.columns))
        bare = {name: re.sub(r"'(?:[^']|'')*'", "", text) for name, text in self.table.defaults.items()}
        return {name for name, text in bare.items() if re.search(rf'(?<![\w"])"?(?:{names})"?(?![\w"(])', text)}

    def statement(self) -> str:
        """CREATE TABLE, in whatever schema is in use."""
        table, columns = self.table, self.columns
        parts = []
        for name, type_ in columns.items():
            text = f"{quote(name)} {type_}"
            if (default := table.defaults.get(name)) is not None:
                text += f" {'GENERATED ALWAYS AS' if name in self.generated else 'DEFAULT'} ({default})"
            if name in table.required:
                text += " NOT NULL"
            parts.append(text)
        keys = [key for key in table.keys if set(key) <= set(columns)]
        parts += [f"{'PRIMARY KEY' if key == table.primary else 'UNIQUE'} ({_list(key)})" for key in keys]
        parts += [f"CHECK ({text})" for used, text in table.checks if set(used) <= set(columns)]
        parts += [
            f"FOREIGN KEY ({_list(r.columns)}) REFERENCES {quote(r.parent[2])} ({_list(r.key)})"
            for r in self.references
        ]
        return f"CREATE TABLE {quote(table.name[2])} ({', '.join(parts)})"

    def insert(self, source: str, unique: Iterable[str]) -> str:
        """INSERT of the rows of a SELECT that keep the constraints.

        Args:
            source: the SELECT, with the columns that are filled.
            unique: columns whose values never repeat.
        """
        filled = {column.lower() for column in self.filled}
        names = [name for name in self.columns if name.lower() in filled and name not in self.generated]
        rows = self.kept(f"SELECT {_list(names)} FROM ({source})", names, unique)
        return f"INSERT INTO {quote(self.table.name[2])} ({_list(names)}) {rows}"

    def kept(self, rows: str, names: Sequence[str], unique: Iterable[str]) -> str:
        """SELECT of the rows that keep the constraints on some columns; of rows with one key the first is taken."""
        free = {name.lower() for name in unique}
        checks = [f"({text}) IS NOT FALSE" for used, text in self.table.checks if set(used) <= set(names)]
        referring = {column for reference in self.references for column in reference.columns}
        # A row for which no parent has room.
        checks += [f"{quote(name)} IS NOT NULL" for name in names if name in referring & self.table.required]
        if checks:
            rows = f"SELECT * FROM ({rows}) WHERE {' AND '.join(checks)}"
        for key in self.table.keys:
            if set(key) <= set(names) and not {column.lower() for column in key} & free:
                null = " OR ".join(f"{quote(column)} IS NULL" for column in key)
                rows = (
                    f"SELECT * FROM ({rows}) QUALIFY {null} OR row_number() OVER (PARTITION BY {_list(key)} "
                    f"ORDER BY {_list(names)}) = 1"
                )
        return rows

    def describe(self) -> None:
        """Note what is left out."""
        filled = {name.lower() for name in self.filled}
        kept = self.columns
        left = [name for name in self.table.columns if name not in kept]
        empty = [name for name in kept if name.lower() not in filled and name not in self.table.defaults]
        if left:
            self.notes.append(f"left out, NOT NULL and not declared: {', '.join(left)}")
        if empty:
            self.notes.append(f"NULL, not declared: {', '.join(empty)}")


def _list(names: Sequence[str] | Mapping[str, str]) -> str:
    return ", ".join(map(quote, names))
