"""Columns of public tables to which a parent of links refers, as attributes of the parent: the kind of the listing that a booking names."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from duckdb_dp.counting.encode import full_name, quote
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.request import Request
from duckdb_dp.sql import catalog, provenance, public_domains, public_views
from duckdb_dp.sql.session import Session
from duckdb_dp.sql.synthetic_tables import key_text
from duckdb_dp.synthesis.database import Name, Reference, Table
from duckdb_dp.synthesis.links.columns import JOINED

MOST, EACH = 3, 2
"""Most columns of a side that are joined, and of one public table: each has to be measured with all that the links have."""

VALUES = 8
"""Most values of such a column, as there are few counts for each otherwise, where the table's key is an attribute by itself."""

LEAST = 0.2
"""Nats that a column says of the key at least: a flag that 5 % of the rows have says 0.2, and less would hardly be seen."""

TRIED = 12
"""Columns that are compared, those first that say most by themselves."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedColumns:
    """Columns of a public table, or of other rows of the same unit, that are read by a reference.

    They are functions of the referring row and of such rows, so they add nothing to what one unit may change.

    Attributes:
        reference: the columns of the referring table, and the key of the other one.
        attributes: the other table's columns, as ``<role>.<column>``.
        made: the synthetic table in which synthetic rows find them; '' of a public table, in which they do as well.
    """

    reference: Reference
    attributes: tuple[Attribute, ...]
    made: str = ""

    @property
    def columns(self) -> list[str]:
        """The names that they have in the public table."""
        return [attribute.name.removeprefix(f"{self.reference.role}.") for attribute in self.attributes]

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the attributes, which are a request's own."""
        made = {"made": self.made} if self.made else {}
        return {"reference": self.reference.to_json(), "size": len(self.attributes), **made}

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]], named: Sequence[Attribute]) -> "tuple[JoinedColumns, ...]":
        """All that a side has, of the attributes that it has at the end."""
        start, found = len(named) - sum(one["size"] for one in data), []
        for one in data:
            own = tuple(named[start : start + one["size"]])
            found.append(cls(reference=Reference.from_json(one["reference"]), attributes=own, made=one.get("made", "")))
            start += one["size"]
        return tuple(found)


def joined(rows: str, columns: Sequence[JoinedColumns], *, synthetic: bool = False) -> str:
    """SQL of the same rows, as many of them, with joined columns: NULL where a reference is NULL or leads nowhere.

    Keys are compared as texts, so that no value fails: those of public tables as numbers where they are whole, and those of the unit's rows
    as they are, as their owners are found. Of rows with one key it is the one with the least values.

    Args:
        rows: SQL of the rows.
        columns: the columns.
        synthetic: whether these are synthetic rows, which read none that are private.
    """
    if not columns:
        return rows
    found, joins = ["r.*"], []
    for i, one in enumerate(columns):
        keys = [f"k{j}" for j in range(len(one.reference.key))]
        text = _as_it_is if one.made else key_text
        held = [f"encode({text(quote(key))}) AS {k}" for key, k in zip(one.reference.key, keys, strict=True)]
        read = [f"{quote(name)} AS v{j}" for j, name in enumerate(one.columns)]
        values = [f"v{j}" for j in range(len(read))]
        name = one.made if synthetic and one.made else full_name(*one.reference.parent)
        others = f"SELECT {', '.join([*held, *read])} FROM {name}"
        each = f"SELECT DISTINCT ON ({', '.join(keys)}) * FROM ({others}) ORDER BY {', '.join([*keys, *values])}"
        on = " AND ".join(
            f"p{i}.{key} = encode({text(f'r.{quote(column)}')})"
            for column, key in zip(one.reference.columns, keys, strict=True)
        )
        joins.append(f"LEFT JOIN ({each}) p{i} ON {on}")
        found += [f"p{i}.{value} AS {quote(a.name)}" for value, a in zip(values, one.attributes, strict=True)]
    return f"(SELECT {', '.join(found)} FROM {rows} r {' '.join(joins)})"


def _as_it_is(column: str) -> str:
    return f"TRY_CAST({column} AS VARCHAR)"


def chosen(
    session: Session,
    table: Table,
    references: Iterable[Reference],
    copied: Mapping[Name, Table],
    free: Collection[Reference] = (),
) -> tuple[JoinedColumns, ...]:
    """The columns that a table's rows have by its references to public tables: few, of few values, and none that others imply.

    Args:
        session: the session.
        table: it.
        references: those of its references whose columns synthetic rows have.
        copied: the public tables.
        free: those whose columns may get values that are no keys, as they are declared so.

    Privacy: reads public rows.
    """
    known = catalog.find(catalog.committed(session, [table.name[:2]]), table.name)
    constrained = {(r.columns, r.parent, r.key) for r in known.references} if known else set()
    offered = []
    for reference in references:
        parent = copied[reference.parent]
        if SCHEMA in (table.name[1], parent.name[1]) or not parent.distinct(reference.key):
            continue
        certain = {*reference.columns} <= table.required
        certain = (
            certain and (reference.columns, reference.parent, reference.key) in constrained and reference not in free
        )
        taken = {name.lower() for name in table.columns}
        found = [
            replace(a, name=f"{reference.role}.{a.name}", nulls=a.nulls or not certain)
            for a in _telling(session, parent, reference.key)
        ]
        offered.append((reference, [a for a in found if a.name.lower() not in taken]))
    # The first column of each table before the second of any.
    turns = [(i, a) for turn in range(EACH) for i, (_, found) in enumerate(offered) for a in found[turn : turn + 1]]
    kept = [tuple(a for at, a in turns[:MOST] if at == i) for i in range(len(offered))]
    return tuple(
        JoinedColumns(reference=reference, attributes=own)
        for (reference, _), own in zip(offered, kept, strict=True)
        if own
    )


def public(columns: Mapping[Name, Sequence[JoinedColumns]]) -> dict[Name, tuple[JoinedColumns, ...]]:
    """Those of public tables alone."""
    return {name: tuple(one for one in each if not one.made) for name, each in columns.items()}


def of_parent(columns: Iterable[JoinedColumns], *, inherited: bool) -> tuple[JoinedColumns, ...]:
    """Those of a parent's rows: of public tables, and with ``inherited`` those of other rows of its unit too."""
    return tuple(one for one in columns if inherited or not one.made)


def of_child(columns: Iterable[JoinedColumns], own: Collection[str]) -> tuple[JoinedColumns, ...]:
    """Those that rows have before they have a parent: of public tables, by columns that are attributes."""
    return tuple(one for one in columns if not one.made and {*own} >= {*one.reference.columns})


def note(request: Request) -> str | None:
    """Which columns links are measured with that their parents have by references, in words."""
    options, start, said = dict(request.options), 0, list[str]()
    for place, data in enumerate(options.get(JOINED, ())):
        role, end = options["references"][place]["role"], start + options["sizes"][place]
        named = [replace(a, name=a.name.removeprefix(f"{role}.")) for a in request.attributes[start:end]]
        for one in JoinedColumns.from_json(data, named):
            said.append(f"{', '.join(one.columns)} of '{one.reference.parent[2]}', to which '{role}' refers")
        start = end
    return f"measured too: what rows have in common with {'; '.join(said)}" if said else None


def check_read(session: Session, columns: Iterable[JoinedColumns]) -> None:
    """Refuse public tables that fail where they are read.

    Raises:
        DPError: there is one.
    """
    for one in (each for each in columns if not each.made):
        name = one.reference.parent
        found = catalog.find(catalog.committed(session, [name[:2]]), name)
        if found is not None:
            public_views.check_read(session, found, [*one.reference.key, *one.columns])


def refusals(session: Session, function: str, columns: Iterable[JoinedColumns]) -> Iterator[tuple[str, str] | None]:
    """Conditions under which the public and synthetic tables are refused that columns are read from, as they are not those that are known.

    Raises:
        DPError: one is not public now.
    """
    for one in columns:
        found = provenance.find(session, one.made or full_name(*one.reference.parent), [one.reference.parent[:2]])
        yield found.refusal(function, [*one.reference.key, *one.columns])


def _telling(session: Session, table: Table, key: Sequence[str]) -> Iterator[Attribute]:
    """The columns of a public table that cut its rows most evenly: each time the one that says most beside those before it."""
    found = {a.name: a for a in public_domains.attributes(session, table, key) if a.kind != "bins" and a.size <= VALUES}
    with session.looking() as cursor:
        if cursor is None or not found:
            return

        def nats(names: Sequence[str]) -> tuple[float, int]:
            counts = f"SELECT count(*) AS n FROM {full_name(*table.name)} GROUP BY {', '.join(map(quote, names))}"
            sql = f"SELECT coalesce(sum(-n / t * ln(n / t)), 0), any_value(t) FROM (SELECT n, sum(n) OVER () AS t FROM ({counts}))"
            ((value, rows),) = cursor.execute(sql).fetchall()
            return float(value), int(rows or 0)

        alone = {name: nats([name]) for name in found}
        # A column of nearly as many values as there are rows says what the key says.
        left = [name for name, (_, rows) in alone.items() if 2 * found[name].size <= rows]
        left = sorted(left, key=lambda name: (-alone[name][0], name))[:TRIED]
        taken, said = list[str](), 0.0
        while left and len(taken) < EACH:
            more = {name: nats([*taken, name])[0] - said for name in left}
            best = min(left, key=lambda name: (-round(more[name], 6), name))
            if more[best] < LEAST:
                return
            yield found[best]
            said, taken = said + more[best], [*taken, best]
            left.remove(best)
