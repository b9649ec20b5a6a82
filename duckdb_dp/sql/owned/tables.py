"""The tables of a family as relations: members, with who owns their rows, and public tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, final

from sqlglot import exp, parse_one

from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.errors import DPError, as_sql, identifier, meant, of_file, quoted, quoted_name
from duckdb_dp.sql import owners
from duckdb_dp.sql.arguments import Place, candidates
from duckdb_dp.sql.family import Family, Member, PublicTable
from duckdb_dp.sql.owned.relations import Field, Most, Referred, Relation, Tag
from duckdb_dp.sql.owned.ties import key_tags
from duckdb_dp.synthesis.database import Name

Read = Callable[[str], list[tuple[Any, ...]]]
"""The rows of a SELECT of public tables."""


@final
class Tables:
    """The tables that a SELECT may read.

    Args:
        family: the dataset's.
        place: (catalog, schema) where names are looked for.
        read: reads public tables, to find how many rows they make of one.
        bounded: whether it is asked how many rows a unit has at most.
        collated: whether some column of the database is compared under a collation.
    """

    def __init__(
        self, family: Family, place: Place, read: Read, *, bounded: bool = False, collated: bool = False
    ) -> None:
        self.family, self._place, self._read, self.bounded, self.collated = family, place, read, bounded, collated
        self._counts: dict[str, int] = {}

    def counted(self, select: exp.Select) -> int:
        """The number that a SELECT of public tables returns."""
        text = select.sql("duckdb")
        if text not in self._counts:
            rows = self._read(text)
            self._counts[text] = int(rows[0][0]) if rows else 0
        return self._counts[text]

    @property
    def unit_types(self) -> tuple[str, ...]:
        """The types of the unit's columns."""
        return tuple(owners.unit_types(self.family))

    def owned_by(self, columns: Iterable[exp.Expr], names: Iterable[str]) -> list[exp.Expr]:
        """The owner's columns under other names; texts without a column's collation, under which groups would mix two owners."""
        found = []
        for column, name, type_ in zip(columns, names, self.unit_types, strict=True):
            plain = column.copy()
            if type_ == "VARCHAR":
                plain = exp.Anonymous(this="decode", expressions=[exp.Anonymous(this="encode", expressions=[plain])])
            found.append(exp.alias_(plain, name, quoted=True))
        return found

    def find(self, table: exp.Table) -> Relation:
        """The relation of a table's name.

        Raises:
            DPError: it is neither a member nor public.
        """
        parts = tuple(part.name for part in table.parts)
        for name in self._options(parts):
            member, public = self.family.member(name), self.family.public_table(name)
            if member is not None:
                return self._member(member)
            if public is not None:
                return _public(public)
        lost = {_folded(name): name for name in self.family.gone}
        if known := next((lost[_folded(name)] for name in self._options(parts) if _folded(name) in lost), None):
            raise unseen(known)
        raise unread(parts, self.family.dataset.name)

    def _options(self, parts: tuple[str, ...]) -> list[Name]:
        """The full names that a name may stand for; of attached tables their own name alone does too."""
        attached = [name for name in (*self.family.members, *self.family.public) if name[1] == SCHEMA]
        same = [name for name in attached if _folded(name)[-len(parts) :] == tuple(part.lower() for part in parts)]
        return [*candidates(parts, *self._place), *same]

    def public(self, name: Name) -> Relation:
        """A public table."""
        return _public(self.family.public[name])

    def view(self, table: exp.Table) -> tuple[str, Most | None] | None:
        """The SELECT of a named relation of the dataset, and how many of its rows a unit has; None of other names."""
        wanted = [_folded(name) for name in self._options(tuple(part.name for part in table.parts))]
        name = next((name for name in self.family.views if _folded(name) in wanted), None)
        return None if name is None else (self.family.views[name], _most(name, self.family.view_rows[name]))

    def declared(self, relation: Relation, view: exp.Table) -> Relation:
        """The rows of a named relation with the declarations of its own columns, where these have the type that was declared."""
        wanted = [_folded(name) for name in self._options(tuple(part.name for part in view.parts))]
        own = next((own for name, own in self.family.view_attributes.items() if _folded(name) in wanted), {})
        known = {name.lower(): one for name, one in own.items()}

        def one(field: Field) -> Field:
            found = known.get(field.name.lower())
            return field if found is None or found.type != field.type else replace(field, attribute=found)

        return replace(relation, fields=tuple(map(one, relation.fields)))

    def emptied(self, query: exp.Expr) -> exp.Expr:
        """SQL of the same columns that reads no table: with a row of NULLs in place of each."""

        def one(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table):
                return node
            name = (node.catalog, node.db, node.name)
            table = self.family.members.get(name) or self.family.public[name]
            row = [exp.alias_(_nothing(type_), at, quoted=True) for at, type_ in table.columns.items()]
            return exp.Subquery(this=exp.select(*row), alias=node.args.get("alias"))

        return query.transform(one)

    def with_owner(self, relation: Relation) -> Relation:
        """A member's rows with their owner, looked up along its references; rows that lead nowhere are left out."""
        assert relation.member is not None
        names = tuple(f"_dp_owner{i}" for i in range(len(self.family.unit)))
        found = owners.source(self.family, relation.member.name, names, relation.member.columns)
        assert found is not None
        query = parse_one(found.sql, dialect="duckdb")
        return replace(relation, query=query, owner=names, member=None, lookup=found.lookup)

    def _member(self, member: Member) -> Relation:
        family = self.family
        leading = [*member.owner, *(member.references[0].columns if member.references else ())]
        if gone := [column for column in leading if column not in member.columns]:
            if member.name in family.gone:
                raise unseen(member.name)
            raise DPError(
                f"'{member.name[2]}' has no column {as_sql(gone[0])} now, which says whose its rows are; give the column its name, "
                "as it was."
            )
        tags: dict[str, set[Tag]] = {name: set() for name in member.columns}

        def tag(table: Name, columns: Sequence[str], own: Sequence[str]) -> None:
            found = key_tags(table, columns)
            for column, name in zip(columns, own, strict=True):
                tags[name].add(found[column])

        declared = family.referred(member) if family.unit else ()
        if family.unit:
            for key in (*member.keys, *declared):
                tag(member.name, key, key)
            if member.owner:
                tag(family.unit_table, family.unit, member.owner)
            if member.references and family.member(member.references[0].parent) is not None:
                tag(member.references[0].parent, member.references[0].parent_columns, member.references[0].columns)
        fields = tuple(
            Field(
                name=name,
                at=name,
                type=type_,
                tags=frozenset(tags[name]),
                nullable=name not in member.not_null,
                attribute=_declared(member, name),
                table=member.name,
                column=name,
                refers=_referred(family, member, name),
            )
            for name, type_ in member.columns.items()
        )
        keys = tuple(map(frozenset, member.keys))
        direct = owners.of_itself(family, member)
        single = not family.unit or any(one <= set(member.owner) for one in keys)
        return Relation(
            query=_named(member.name),
            fields=fields,
            owned=True,
            owner=member.owner if direct else (),
            member=None if direct else member,
            single=single,
            keys=keys,
            declared=tuple(map(frozenset, declared)),
            expected=tuple(map(frozenset, family.expected(member) if family.unit else ())),
            most=_most(member.name, 1 if single else member.max_rows),
        )


def _referred(family: Family, member: Member, column: str) -> tuple[Referred, ...]:
    """The keys of public tables that a column refers to."""
    found = family.public_keys(member.name, column)
    return tuple(Referred(parent=one.parent, key=one.parent_columns[0], enforced=one.enforced) for one in found)


def unread(parts: Sequence[str], dataset: str, known: Iterable[str] = ()) -> DPError:
    """The refusal of a table that is neither a member nor public; of those that are known one may be meant."""
    name = ".".join(parts)
    file, near = of_file(name), meant(known, parts[-1])
    if near and not file:
        return DPError(f"{as_sql(name)} is neither public nor a table of '{dataset}'{near}.")
    rest = f". {file}" if file else f"; if anybody may see its rows: CALL dp_public({quoted_name(*parts)})"
    return DPError(f"{as_sql(name)} is neither public nor a table of '{dataset}', so it cannot be read with it{rest}")


def unseen(name: Name) -> DPError:
    """The refusal of a table that was declared and is not there."""
    return DPError(
        f"{as_sql('.'.join(name))} is not there now: create it again, give it its name back, or attach its database as it was, AS "
        f"{identifier(name[0])}."
    )


def _nothing(type_: str) -> exp.Expr:
    """NULL of a type; of a column of a view that is NULL in all rows DuckDB says a type that no cast has."""
    return exp.null() if type_ == '"NULL"' else exp.cast(exp.null(), type_, dialect="duckdb")


def _most(name: Name, rows: int | None) -> Most | None:
    """That of a table for which a number is declared."""
    if rows is None:
        return None
    return Most(rows=rows, of=((identifier(name[2]), rows),) if rows > 1 else ())


def _declared(member: Member, name: str) -> Attribute | None:
    """The declaration of a column.

    Raises:
        DPError: the column has another type now.
    """
    attribute = member.attributes.get(name)
    if attribute is not None and attribute.type != member.columns[name]:
        raise DPError(
            f"'{member.name[2]}'.'{name}' was declared as {attribute.type} and is {member.columns[name]} now. Declare it again: "
            f"CALL dp_attribute({quoted_name(member.name[2])}, {quoted(name)}, ...)"
        )
    return attribute


def _public(table: PublicTable) -> Relation:
    fields = tuple(
        Field(
            name=name,
            at=name,
            type=type_,
            nullable=name not in table.not_null,
            table=table.name,
            column=name,
            public=True,
        )
        for name, type_ in table.columns.items()
    )
    return Relation(query=_named(table.name), fields=fields, owned=False, keys=tuple(map(frozenset, table.keys)))


def _named(name: Name, alias: str = "") -> exp.Table:
    catalog, schema, table = (exp.to_identifier(part, quoted=True) for part in name)
    found = exp.Table(this=table, db=schema, catalog=catalog)
    if alias:
        found.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return found


def _folded(name: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in name)
