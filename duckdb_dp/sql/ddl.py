"""CREATE TABLE for synthetic tables: columns, types, keys and constraints of the originals that synthetic rows can satisfy."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from duckdb_dp.counting.encode import quote
from duckdb_dp.domain import types
from duckdb_dp.domain.types.numbers import Whole
from duckdb_dp.errors import quoted, quoted_name
from duckdb_dp.sql import declarations
from duckdb_dp.sql.dp_link import ROWID
from duckdb_dp.sql.repeated_references import RepeatedReference
from duckdb_dp.sql.sibling_keys import SiblingKey, note
from duckdb_dp.synthesis.database import Name, Reference, Table

LEVEL = "_dp_level"
"""A column that no table of the user's has."""


@final
@dataclass(slots=True, kw_only=True)
class Target:
    """The synthetic table that is made of one original.

    Attributes:
        table: the original.
        filled: columns that get values.
        references: foreign keys that are filled.
        keyed: those to public tables whose keys are the values of the column, which is drawn as any other.
        parents: the tables that these refer to.
        itself: the one of them, if any, that is a constraint and refers to the table itself.
        siblings: keys of which one column gets its values when the table is complete.
        numbers: columns that number the rows, of which each differs between any two.
        row_number: a column that numbers them until they have their parents.
        repeated: references that are read off a parent when the table is complete.
        referred: columns to which other tables refer.
        nulls: whether columns that nothing is known of are kept, as NULL.
        notes: what is different from the original.
    """

    table: Table
    filled: tuple[str, ...]
    references: tuple[Reference, ...]
    keyed: tuple[Reference, ...] = ()
    parents: Mapping[Name, Table] = field(default_factory=dict)
    itself: Reference | None = None
    siblings: tuple[SiblingKey, ...] = ()
    numbers: tuple[str, ...] = ()
    row_number: tuple[str, ...] = ()
    repeated: tuple[RepeatedReference, ...] = ()
    referred: frozenset[str] = frozenset()
    nulls: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def referring(self) -> tuple[Reference, ...]:
        """The references that get values."""
        return (*self.references, *(one.repeated for one in self.repeated))

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are read off a parent."""
        return tuple(column for one in self.repeated for column in one.read)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the synthetic table: those that are filled or have a default, and where asked those that may be NULL."""
        filled = {name.lower() for name in self.filled}
        known = {name for name in self.table.columns if name.lower() in filled or name in self.table.defaults}
        if self.nulls:
            known |= set(self.table.columns) - self.table.required
        gone = [name for name in self.table.columns if name not in known]
        lost = {name for name in self.generated if any(_names(self.table.defaults[name], other) for other in gone)}
        return {name: type_ for name, type_ in self.table.columns.items() if name in known - lost}

    @property
    def generated(self) -> set[str]:
        """Columns that the database computes from others; the catalog shows their expression as a default."""
        names = "|".join(map(re.escape, self.table.columns))
        bare = {name: re.sub(r"'(?:[^']|'')*'", "", text) for name, text in self.table.defaults.items()}
        return {name for name, text in bare.items() if re.search(rf'(?<![\w"])"?(?:{names})"?(?![\w"(])', text)}

    def note_numbers(self, columns: Sequence[str]) -> None:
        """Note which columns are numbered though they are declared, and which parts of keys as they are not."""
        if columns:
            self.notes.append(f"numbered as keys, though declared: {', '.join(columns)}")
        if made_up := [name for name in self.numbers if name not in columns and self._is_part(name)]:
            self.notes.append(f"numbered as keys, not declared: {', '.join(made_up)}{self._kept_by(made_up)}")

    def note_references(self, copied: Mapping[Name, Table], of_many: Sequence[Reference]) -> None:
        """Note which references are not drawn, and which tables that the original refers to are copied.

        Args:
            copied: public tables, which are copied as they are.
            of_many: references that cannot be drawn, as no column of the original names the unit.
        """
        table = self.table
        lost = [reference for reference in table.references if reference not in self.referring]
        self.notes += [one.note for one in self.repeated if one.read]
        if of_many:
            names = " or ".join(column for reference in of_many for column in reference.columns)
            self.notes.append(f"'{table.name[2]}' has no column of the unit, so its rows get no {names}")
        for reference in table.references:
            parent, columns = reference.parent, ", ".join(reference.columns)
            if reference in lost and reference not in of_many:
                self.notes.append(self._unknown(reference, copied))
            elif parent == table.name and reference not in (self.itself, *lost):
                self.notes.append(f"{columns} refers to the table itself without a constraint")
        for reference in (*self.references, *self.keyed):
            if not (self._can_have(reference) or table.view):
                columns, of = ", ".join(reference.columns), reference.parent[2]
                why = "its rows may share them" if self._may_repeat(reference) else "the types of the keys differ"
                self.notes.append(f"{columns} refers to '{of}' without a constraint, as {why}")
        referred = dict.fromkeys(r.parent for r in table.references if r.parent in copied)
        self.notes += [f"'{parent[2]}' is public and is copied as it is" for parent in referred]

    def note_measured(self, reference: Reference, columns: Sequence[str]) -> None:
        """Note which columns of a parent are measured together with this table's though nobody declared them."""
        if columns:
            parent = reference.parent[2]
            self.notes.append(
                f"what rows have in common with {', '.join(columns)} of '{parent}' is measured as if declared"
            )

    def note_nulls(self, own: Collection[str], listed: Collection[str]) -> None:
        """Note that links whose reference is NULL are left out, and what would keep those to a public table.

        Args:
            own: columns that name the unit; nobody owns a row in which they are NULL.
            listed: columns whose values a public table lists.
        """
        for reference in self.references:
            free = [name for name in reference.columns if name not in self.table.required and name not in own]
            if free:
                self.notes.append(
                    f"rows whose {' or '.join(free)} is NULL are left out{self._kept_with_nulls(free, listed)}"
                )

    def _kept_with_nulls(self, columns: Sequence[str], listed: Collection[str]) -> str:
        dtype = types.find(self.table.columns[columns[0]])
        if len(columns) > 1 or dtype is None:
            return ""
        domain = "" if columns[0] in listed else f"{dtype.declared_by}, "
        call = declarations.call(quoted_name(self.table.name[2]), columns[0], f"{domain}nulls := true")
        return f" (to draw {columns[0]} as any column, with NULL: {call})"

    def _unknown(self, reference: Reference, copied: Mapping[Name, Table]) -> str:
        """Why columns that refer to a table are not drawn, and what would keep them."""
        own, parent, columns = reference.columns, reference.parent, ", ".join(reference.columns)
        kept, filled = self.columns, {name.lower() for name in self.filled}
        drawn = all(name.lower() in filled for name in own)
        if reference in self.keyed:
            return f"'{parent[2]}' is public, and {columns} is drawn as any column, with the keys of '{parent[2]}' as its values"
        if set(own) <= {*self.numbers}:
            return f"'{parent[2]}' is not linked to, and {columns}, which refers to it, is numbered, as other tables refer to it"
        if parent in copied and drawn:
            why = (
                f"several rows of '{parent[2]}' have the same {', '.join(reference.key)}, or none"
                if not copied[parent].distinct(reference.key)
                else "its parts are drawn apart"
                if len(own) > 1
                else "not all of its declared values are keys"
            )
            return f"'{parent[2]}' is public, and {columns}, which refers to it, is drawn as any column, without a constraint, as {why}"
        if parent in copied:
            repeated = not copied[parent].distinct(reference.key)
            why = f" (several of its rows have the same {', '.join(reference.key)}, or none)" if repeated else ""
            return f"'{parent[2]}' is public, and these links to it are not drawn: {columns} unknown{why}"
        if parent == self.table.name:
            drawn_where = (
                "such links are drawn where it is protected without a unit, and has a key that is no attribute"
            )
            return f"'{parent[2]}' refers to the table itself: {columns} unknown ({drawn_where})"
        became = "drawn as any column" if drawn else "NULL" if all(name in kept for name in own) else "left out"
        free = ", without a constraint" if drawn else ""
        if parent in self.parents:
            return f"'{parent[2]}' has rows of units that do not own these rows, so {columns}, which refers to it, is {became}{free}"
        table = quoted_name(parent[2])
        return (
            f"'{parent[2]}' is not among the tables, so {columns}, which refers to it, is {became}{free} (to keep the links, name it in "
            f"tables where it is protected, or CALL dp_public([{table}]) where anybody may see its rows)"
        )

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
            for r in (*self.referring, *self.keyed)
            if self._can_have(r) and (r.parent != table.name or r == self.itself)
        ]
        return f"CREATE TABLE {quote(table.name[2])} ({', '.join(parts)})"

    def _can_have(self, reference: Reference) -> bool:
        """Whether the foreign key can be a constraint: DuckDB has none between columns of different types, and none without a key."""
        if self._may_repeat(reference):
            return False
        parent = self.parents.get(reference.parent, self.table)
        types_ = zip(reference.columns, reference.key, strict=True)
        return all(self.table.columns.get(column) == parent.columns.get(key) for column, key in types_)

    def _may_repeat(self, reference: Reference) -> bool:
        """Whether rows of a parent may have the same key, which is only believed to be one."""
        return reference.key in self.parents.get(reference.parent, self.table).believed

    def insert(self, source: str) -> str:
        """INSERT of the rows of a SELECT, with the columns that are filled, that satisfy the constraints."""
        names = self._names
        rows = self.kept(self.complete(source, names), names)
        return f"INSERT INTO {quote(self.table.name[2])} ({_list(names)}) {rows}"

    def levels(self, source: str) -> str:
        """SELECT of the same rows with their ``LEVEL``, in its order, where rows refer to others of their own table.

        DuckDB inserts a row only if the row that it refers to was inserted by an earlier statement. So rows without a parent
        are at level 0, their children at level 1, and so on.
        """
        assert self.itself is not None
        up, key = self.itself.columns, self.itself.key
        rows = self.kept(self.complete(source, self._names), self._names)
        none = " OR ".join(f"{quote(column)} IS NULL" for column in up)
        on = " AND ".join(f"r.{quote(column)} = l.{quote(target)}" for column, target in zip(up, key, strict=True))
        same = " AND ".join(f"r.{quote(column)} = l.{quote(column)}" for column in key)
        keys = ", ".join(f"r.{quote(column)}" for column in key)
        return (
            f"WITH RECURSIVE rows AS MATERIALIZED ({rows}), levels AS ("
            f"SELECT {_list(key)}, 0 AS {LEVEL} FROM rows WHERE {none} "
            f"UNION ALL SELECT {keys}, l.{LEVEL} + 1 FROM rows r JOIN levels l ON {on}) "
            f"SELECT r.*, l.{LEVEL} FROM rows r JOIN levels l ON {same} ORDER BY l.{LEVEL}"
        )

    def level(self, stage: str, number: int) -> str:
        """INSERT of the rows of one level of the table that ``levels`` became."""
        names = _list(self._names)
        rows = f"SELECT {names} FROM {stage} WHERE {LEVEL} = {number}"
        return f"INSERT INTO {quote(self.table.name[2])} ({names}) {rows}"

    @property
    def _names(self) -> list[str]:
        filled = {column.lower() for column in self.filled}
        return [name for name in self.columns if name.lower() in filled and name not in self.generated]

    def complete(self, source: str, names: Sequence[str]) -> str:
        """SELECT of some columns of a complete table, in which siblings differ, of the rows of a SELECT."""
        held = [name for name in names if name not in self.read]
        rows = f"SELECT {_list(held)} FROM ({source})"
        for one in self.repeated:
            if one.read:
                rows, held = one.rows(rows, held), [*held, *one.read]
        if self.read:
            rows = f"SELECT {_list(names)} FROM ({rows})"
        return self._apart(rows, names, self.siblings)

    def begun(self, rows: str, names: Sequence[str]) -> str:
        """SELECT of the rows of a SELECT that have some of their columns, in which siblings differ already where no parent decides."""
        drawn = self._apart(rows, names, [one for one in self.siblings if one.attribute is not None])
        return self.kept(drawn, names)

    def _apart(self, rows: str, names: Sequence[str], siblings: Iterable[SiblingKey]) -> str:
        for one in siblings:
            if {one.column, *one.among} <= set(names):
                rows = one.rows(rows, names)
        return rows

    def kept(self, rows: str, names: Sequence[str]) -> str:
        """SELECT of the rows that satisfy the constraints on some columns; of rows with the same key, the first."""
        free = {name.lower() for name in self.numbers}
        checks = [f"({text}) IS NOT FALSE" for used, text in self.table.checks if set(used) <= set(names)]
        checks += [f"{quote(name)} IS NOT NULL" for name in names if name in self.table.required]
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
        referring = {c for r in self.table.references if r not in self.referring for c in r.columns}
        left = [name for name in self.table.columns if name not in kept and name not in referring]
        empty = [name for name in kept if name.lower() not in filled and name not in self.table.defaults]
        bound = [name for name in left if name in self.table.required]
        if bound:
            self.notes.append(f"left out, NOT NULL and not declared: {', '.join(bound)}{self._kept_by(bound)}")
        if free := [name for name in left if name not in bound]:
            kept_by = self._kept_by(free, "undeclared := 'null', as NULL")
            self.notes.append(f"left out, not declared: {', '.join(free)}{kept_by}")
        if empty:
            self.notes.append(f"NULL, not declared: {', '.join(empty)}")
        self.notes += note(self.siblings)

    def _is_part(self, column: str) -> bool:
        """Whether other tables refer to a column as one of several, and its numbers are no numbers of the original's kind."""
        several = any(column in key and len(key) > 1 for key in self.table.keys)
        return several and column in self.referred and not isinstance(types.find(self.table.columns[column]), Whole)

    def _kept_by(self, columns: Sequence[str], *more: str) -> str:
        """What would keep columns that nobody has declared: of one the statement that declares it, of several what lists these."""
        table = quoted_name(self.table.name[2])
        dtype = types.find(self.table.columns[columns[0]])
        call = None if dtype is None else declarations.call(table, columns[0], dtype.declared_by)
        call = call if len(columns) == 1 else f"what CALL dp_attributes({table}) lists for each"
        ways = list(filter(None, [self._own_key(columns), call, *more]))
        return f" (to keep {'it' if len(columns) == 1 else 'them'}: {', or '.join(ways)})" if ways else ""

    def _own_key(self, columns: Sequence[str]) -> str | None:
        """What keeps a column such as loan_id of a table without a key, where it may be the key; None where no column is called so."""
        name = next((name for name in columns if re.search(r"(?i)(^|_)(id|key|nr|no|number)$", name)), None)
        if name is None or ROWID not in self.table.columns:
            return None
        asked = f"{{{quoted(name)}: {quoted_name(self.table.name[2], name)}}}"
        return (
            f'if {name} identifies the rows: CALL dp_link({quoted_name(self.table.name[2])}, "references" := {asked})'
        )


def _names(text: str, column: str) -> bool:
    """Whether an expression names a column, outside of its texts."""
    bare = re.sub(r"'(?:[^']|'')*'", "", text)
    return re.search(rf'(?<![\w"])"?{re.escape(column)}"?(?![\w"(])', bare, re.IGNORECASE) is not None


def _list(names: Sequence[str] | Mapping[str, str]) -> str:
    return ", ".join(map(quote, names))
