"""References that a table repeats of a parent, such as the guest of a review and of its booking: they are read off the parent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from duckdb_dp.counting.encode import quote
from duckdb_dp.synthesis.database import Name, Reference, Table


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedReference:
    """A reference whose columns the table and a parent of it have, under the same names and to the same table, or as part of its key.

    Attributes:
        repeated: it.
        drawn: the reference to the parent.
    """

    repeated: Reference
    drawn: Reference

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that are read off the parent; none that the drawn reference has too."""
        return tuple(column for column in self.repeated.columns if column not in self.drawn.columns)

    def rows(self, rows: str, held: Sequence[str]) -> str:
        """SELECT of the rows that a SELECT with the columns ``held`` gives, with the columns that its parent has: NULL without one.

        Of several parents with one key it is the one with the least values.
        """
        pairs = zip(self.drawn.columns, self.drawn.key, strict=True)
        on = " AND ".join(f"r.{quote(column)} = p.{quote(key)}" for column, key in pairs)
        ours = ", ".join(f"r.{quote(name)}" for name in held)
        theirs = ", ".join(f"p.{quote(name)}" for name in self.read)
        keys, read = ", ".join(map(quote, self.drawn.key)), ", ".join(map(quote, self.read))
        parents = f"SELECT DISTINCT ON ({keys}) {keys}, {read} FROM {quote(self.drawn.parent[2])} ORDER BY {read}"
        return f"SELECT {ours}, {theirs} FROM ({rows}) AS r LEFT JOIN ({parents}) AS p ON {on}"

    @property
    def note(self) -> str:
        """In words."""
        return f"{', '.join(self.read)} as in '{self.drawn.parent[2]}', which has it too"


def repeated_references(
    table: Table,
    drawn: Sequence[Reference],
    filled: Mapping[Name, Sequence[Reference]],
    listed: Mapping[Name, Sequence[Reference]],
) -> Iterator[RepeatedReference]:
    """The references of a table that are not drawn and that a parent repeats.

    Args:
        table: the table, with its references.
        drawn: those of them that are drawn.
        filled: of each table that is made before, its references that get values.
        listed: of each of them those whose columns are drawn as any other: what is no part of the key differs between parent and child.
    """
    held = {column for reference in drawn for column in reference.columns}
    for reference in table.references:
        if reference in drawn or reference.parent == table.name:
            continue
        for one in drawn:
            known = dict(zip(one.columns, one.key, strict=True))
            within = {*reference.columns} <= {*known}
            # As the parent calls the columns: by the same names, or as the key to which the drawn reference leads.
            columns = tuple(known[column] for column in reference.columns) if within else reference.columns
            there = [*filled.get(one.parent, ()), *(listed.get(one.parent, ()) if within else ())]
            if (within or not held & {*reference.columns}) and (
                _plain(replace(reference, columns=columns)) in map(_plain, there)
            ):
                yield RepeatedReference(repeated=reference, drawn=one)
                break


def _plain(reference: Reference) -> tuple[object, ...]:
    """A reference without its role, by the names that both tables spell alike."""
    return [name.lower() for name in reference.columns], reference.parent, reference.key
